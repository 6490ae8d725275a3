"""What an op leaves behind: in its process, so that no later row inherits it, and in its arguments."""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import itertools
import math
import platform
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import date
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from detmatrix.opspecs.model import Call, call
from detmatrix.scanner.alerts import ALERT, CUBLAS_ALERT, REFUSAL, alert_caller
from detmatrix.scanner.modes import MODE_TABLE
from detmatrix.scanner.worker import global_state
from detmatrix.scanner.worker.__main__ import _start
from tests import tied
from tests.observed import observed, spec_of
from tests.planted import after_a_pause


@contextlib.contextmanager
def _between(do: Callable[[], object], undo: Callable[[], object]) -> Iterator[None]:
    do()
    try:
        yield
    finally:
        undo()


def _patched(owner: Any, name: str) -> AbstractContextManager[Any]:
    return mock.patch.object(owner, name, lambda *args, **_: args[0])


def _rounding() -> AbstractContextManager[None]:
    library = ctypes.CDLL(ctypes.util.find_library("m"))
    return _between(partial(library.fesetround, 0xC00), partial(library.fesetround, 0))


def _setting(name: str, value: object, usual: object) -> Callable[[], AbstractContextManager[None]]:
    change = getattr(torch, name)
    return lambda: _between(partial(change, value), partial(change, usual))


@contextlib.contextmanager
def _thread() -> Iterator[None]:
    end = threading.Event()
    thread = threading.Thread(target=end.wait, daemon=True)
    thread.start()
    yield
    end.set()
    thread.join()


def _handler(handler: Any) -> Callable[[], object]:
    return partial(signal.signal, signal.SIGUSR1, handler)


X86 = pytest.mark.skipif(
    sys.platform != "linux" or "x86" not in platform.machine(),
    reason="other numbers for rounding, and denormals may stay",
)
THREADS = torch.get_num_threads()
LEFT: dict[str, tuple[Callable[[], AbstractContextManager[Any]], str]] = {
    "rounding": (_rounding, "rounding: to nearest -> towards zero"),
    "flush": (_setting("set_flush_denormal", True, False), "denormals flushed"),
    "saved_tensors": (lambda: torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x), "saved tensor hooks"),
    "multiplication": (lambda: _patched(torch.Tensor, "__mul__"), "replaced torch.Tensor.__mul__"),
    "comparison": (lambda: _patched(torch, "equal"), "replaced torch.equal"),
    "flag": (lambda: _patched(torch, "use_deterministic_algorithms"), "replaced torch.use_deterministic_algorithms"),
    "handler": (lambda: _between(_handler(lambda *_: None), _handler(signal.SIG_DFL)), "signal handlers: SIGUSR1"),
    "device": (_setting("set_default_device", "meta", None), "default device"),
    "dtype": (_setting("set_default_dtype", torch.float64, torch.float32), "default dtype: torch.float32 -> torch.float64"),
    "threads": (_setting("set_num_threads", THREADS + 1, THREADS), "thread count"),
    # The other interface of the flag.
    "debug_mode": (_setting("set_deterministic_debug_mode", "error", "default"), "use_deterministic_algorithms: False -> True"),
    "dispatch_mode": (TorchDispatchMode, "dispatch modes: 0 -> 1"),
    "function_mode": (torch.overrides.TorchFunctionMode, "function modes: 0 -> 1"),
    "autocast": (lambda: torch.autocast("cpu"), "autocast"),
    "thread": (_thread, "Python threads"),
    "warnings": (lambda: warnings.catch_warnings(action="error", category=ResourceWarning), "warnings that raise"),
    "profile": (lambda: _between(partial(sys.setprofile, print), partial(sys.setprofile, sys.getprofile())), "trace functions"),
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=X86 if name in {"rounding", "flush"} else ()) for name in LEFT]
)
def test_what_an_op_leaves_behind_is_an_error_of_its_row(name: str) -> None:
    """Whatever a later op or our own comparison would inherit makes the row an error that names it."""
    leave, words = LEFT[name]
    results = []
    with contextlib.ExitStack() as left:
        # A mode that is left entered keeps the flag of gradients from being put back.
        left.callback(torch.set_grad_enabled, True)

        def op(x: Any) -> Any:
            results.append(x + 1)
            # Warnings of the first execution are recorded, and what it does to them put back.
            if len(results) == 2:
                left.enter_context(leave())
            return results[-1]

        answer = observed(spec_of(op), runs=4)

    assert answer["outcome"] == "invalid"
    assert answer["message"].startswith("changed global state (")
    assert words in answer["message"]


def test_setting_the_flag_and_putting_it_back_is_an_error() -> None:
    """The op's result then is not that of the mode that its cell names."""

    def op(x: Any) -> Any:
        torch.use_deterministic_algorithms(True)
        torch.use_deterministic_algorithms(False)
        return x + 1

    # Loads PyTorch's compiler, which wraps a function of torch and sets a variable: no op is charged with that.
    before = global_state.snapshot()
    torch.use_deterministic_algorithms(False)
    assert "replaced" not in global_state.changes(before, global_state.snapshot())

    assert observed(spec_of(op), runs=4)["message"] == "the op set the flag 8 times, and put it back"


# The alert is recognised by PyTorch's own texts, and nothing else is.

_REST = f" {ALERT})'. You can turn off determinism just for this operation"
_CUBLAS = (
    f"{CUBLAS_ALERT} `at::Context::setDeterministicAlgorithms(true)`, but this operation is not deterministic"
)


@pytest.mark.parametrize(
    ("exception", "message"),
    [
        (None, "put_" + _REST),
        ("RuntimeError", None),
        ("ValueError", "put_" + _REST),
        ("UserWarning", "put_" + _REST),
        ("RuntimeError", _REST),
        ("RuntimeError", " put_" + _REST),
        ("RuntimeError", "\n" + _REST),
        ("RuntimeError", "put_ does not have a deterministic implementation"),
        ("RuntimeError", "put_ does not have an implementation, but you set 'torch.use_deterministic_algorithms(True)'"),
        ("RuntimeError", "This operation is not deterministic because it uses CuBLAS"),
        ("RuntimeError", "Error: " + _CUBLAS + " because it uses CuBLAS"),
        ("RuntimeError", _CUBLAS),
        ("RuntimeError", REFUSAL),
        ("AssertionError", _CUBLAS + " because it uses CuBLAS"),
    ],
)  # fmt: skip
def test_lookalikes_are_no_alert(exception: str | None, message: str | None) -> None:
    """Other types, halves of the text and other errors about determinism are errors, never findings."""
    assert alert_caller(exception, message) is None


@pytest.mark.nightly
def test_guard_of_the_compiler_has_the_words_that_tests_plant() -> None:
    """The installed torch refuses a backward that was compiled under the other mode, in the words above."""
    program = (Path(__file__).parent / "data" / "guarded-backward.py.txt").read_text(encoding="utf-8")

    done = tied.run([sys.executable, "-W", "ignore", "-c", program], timeout=300)

    assert done.stdout.startswith(f"{REFUSAL}, but it was previously generated during the forward function")


# What arguments of a user's spec hold beside tensors: it is the same for each execution, or an input that changed.


def _step(x: Any, weight: Any) -> Any:
    with torch.enable_grad():
        (x @ weight).square().sum().backward()
    return weight.grad.clone()


def _optimized(x: Any, weight: Any, optimizer: Any) -> Any:
    weight.grad = x @ weight.detach().T @ x
    optimizer.step()
    return weight.detach() * 1.0


def _seen(op: Callable[..., Any], inputs: Callable[[Any], Call], **options: Any) -> dict[str, Any]:
    """Return what a worker answers of an op of a user's, executed four times unless told otherwise."""
    return observed(spec_of(op, inputs, file="mine.py"), **{"runs": 4, **options})


def _module(kind: str) -> Any:
    torch.manual_seed(0)
    if kind == "spectral":
        return torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(16, 16))
    return torch.nn.BatchNorm1d(16)


def _with_optimizer(t: Any) -> Call:
    weight = torch.nn.Parameter(t.normal(4, 4))
    return call(t.normal(4, 4), weight.detach().clone(), torch.optim.SGD([weight], lr=0.1, momentum=0.9))


def _applied(module: Any, x: Any) -> Any:
    return module(x)


def _learned(module: Any, x: Any) -> Any:
    module(x)
    return module.running_mean.clone()


def _added(x: Any, numbers: Any) -> Any:
    return x + (next(numbers) if isinstance(numbers, Iterator) else numbers.random())


# What learns, adds up or draws from what it is given.
LEARNS: dict[str, tuple[Callable[..., Any], Callable[[Any], Call]]] = {
    "running statistics": (_learned, lambda t: call(_module("batch"), t.normal(4, 16))),
    "bound method": (_applied, lambda t: call(_module("spectral").forward, t.normal(4, 16))),
    "spectral norm": (_applied, lambda t: call(_module("spectral"), t.normal(4, 16))),
    "gradient": (_step, lambda t: call(t.normal(4, 8), t.normal(8, 2).requires_grad_())),
    "random": (_added, lambda t: call(t.normal(4), random.Random(0))),
    "numpy": (_added, lambda t: call(t.normal(4), np.random.default_rng(0))),
    "iterator": (_added, lambda t: call(t.normal(4), itertools.count())),
    "object that cannot be pickled": (
        lambda x, it: _added(x, it.numbers),
        lambda t: call(t.normal(4), SimpleNamespace(numbers=itertools.count(), lock=threading.Lock())),
    ),
    "optimizer": (
        lambda x, _, optimizer: _optimized(x, optimizer.param_groups[0]["params"][0], optimizer),
        _with_optimizer,
    ),
}


@pytest.mark.parametrize("kind", LEARNS)
def test_executions_that_were_given_another_state_prove_nothing(kind: str) -> None:
    """An op that learns, adds up or draws from what it is given is no nondeterministic one."""
    seen = _seen(*LEARNS[kind])

    assert seen["outcome"] == "invalid"
    assert seen["message"].startswith("it differed only on arguments that earlier executions were given")


@pytest.mark.parametrize("kind", ["running statistics", "gradient"])
def test_what_differs_on_arguments_made_anew_differs(kind: str) -> None:
    """A race beside a state that changes is a race."""
    op, inputs = LEARNS[kind]
    seen = _seen(lambda *args: op(*args) + time.perf_counter_ns() % 1_000_003, inputs)

    assert (seen["outcome"], len(seen["digests"])) == ("ran", 4)


def test_a_generator_is_put_back_before_each_execution() -> None:
    """As torch's own is: the op draws the same, and is told to draw."""

    def inputs(t: Any) -> Call:
        return call(t.normal(64), torch.Generator().manual_seed(7))

    seen = _seen(lambda x, own: x + torch.rand(64, generator=own), inputs, runs=6)

    assert (seen["outcome"], [*seen["digests"].values()], seen["seeded"]) == ("ran", [6], True)
    assert not _seen(lambda x, _: x * 2, inputs)["seeded"]


def test_arguments_that_cannot_be_made_anew_prove_nothing() -> None:
    """Where they are drawn from a generator that nobody seeds."""
    draw = np.random.default_rng(0)
    inputs = lambda t: call(t.normal(4).double(), draw.random(4))  # noqa: E731
    seen = _seen(lambda x, _: x + time.perf_counter_ns(), inputs)

    assert (seen["outcome"], seen["message"]) == (
        "invalid",
        "its arguments are not the same when they are made anew",
    )


SHARED = itertools.count(), random.Random(0), np.random.default_rng(0), torch.nn.BatchNorm1d(16)


@pytest.mark.parametrize("shared", SHARED, ids=lambda it: type(it).__name__)
def test_an_object_that_is_given_again_is_not_made_anew(shared: Any) -> None:
    """Its state goes on from call to call, so that a difference proves nothing; without one nothing is asked."""

    def draw(x: Any, it: Any) -> Any:
        return _learned(it, x) if isinstance(it, torch.nn.Module) else _added(x, it)

    inputs = lambda t: call(t.normal(4, 16), shared)  # noqa: E731
    differs, same = _seen(draw, inputs), _seen(lambda x, _: x * 2, inputs)

    told = f"it differed, and its inputs are not made anew each time: the {type(shared).__name__} is the same object"
    assert (differs["outcome"], differs["message"]) == ("invalid", told)
    assert (same["outcome"], [*same["digests"].values()]) == ("ran", [4])


UNCHANGING = (
    *(
        ...,
        np.dtype("float32"),
        np.float32(1),
        np.add,
        torch.ops.aten.add,
        torch.ops.aten.add.Tensor,
        torch.Tensor.add,
    ),
    *(
        torch.finfo(torch.float32),
        frozenset({1}),
        Fraction(1, 2),
        Path("a"),
        date(2026, 1, 1),
        math,
        partial(pow, 2),
    ),
)


@pytest.mark.parametrize("shared", UNCHANGING, ids=lambda it: type(it).__name__)
def test_what_nobody_can_change_may_be_given_again(shared: Any) -> None:
    """A real difference stays one, and needs no arguments made anew."""
    inputs = lambda t: call(t.normal(4).double(), shared)  # noqa: E731
    seen = _seen(lambda x, _: x + time.perf_counter_ns(), inputs)

    assert (seen["outcome"], len(seen["digests"])) == ("ran", 4)


def test_that_nothing_differed_is_not_lost_to_arguments_that_cannot_be_made_twice() -> None:
    """Two of them may not fit into the memory of a GPU."""
    drawn = itertools.count()

    def inputs(t: Any) -> Call:
        if next(drawn):
            raise torch.OutOfMemoryError
        return call(t.normal(4), torch.nn.Identity())

    seen = _seen(lambda x, _: x * 2, inputs)

    assert (seen["outcome"], [*seen["digests"].values()]) == ("ran", [4])


def test_a_race_that_a_perturbation_shows_is_looked_for_under_it() -> None:
    """Beside an object that nobody changes."""
    inputs = lambda t: call(t.normal(64), torch.nn.Identity())  # noqa: E731
    seen = _seen(lambda x, _: after_a_pause(x), inputs, runs=20, perturbations=["quiet", "pause"])

    assert [(one["perturbation"], bool(one["differing"])) for one in seen["groups"]] == [
        ("quiet", False),
        ("pause", True),
    ]
    assert seen["outcome"] == "ran"


def test_a_state_that_hides_a_difference_is_no_determinism() -> None:
    """What was computed once is handed out again."""

    def remembered(x: Any, memory: Any) -> Any:
        if not hasattr(memory, "seen"):
            memory.seen = x + time.perf_counter_ns() % 1_000_003
        return memory.seen.clone()

    seen = _seen(remembered, lambda t: call(t.normal(4), SimpleNamespace()))

    assert seen["outcome"] == "invalid"
    assert seen["message"].startswith("it differed on arguments made anew, and never on those")


def test_arguments_are_made_anew_while_there_is_time() -> None:
    """Where each takes long, what is not shown in time is not said."""
    turns = itertools.count()

    def inputs(t: Any) -> Call:
        time.sleep(0.02)
        return call(t.normal(4), SimpleNamespace())

    seen = _seen(lambda x, _: x + (next(turns) == 1), inputs, runs=60, max_time=0.05)

    assert (seen["outcome"], seen["message"]) == (
        "invalid",
        "no time was left to show that it differs on arguments made anew",
    )


def test_a_state_that_changes_no_result_is_no_error() -> None:
    """A module that is trained may give the same bits all the same."""
    assert _seen(_applied, LEARNS["running statistics"][1])["outcome"] == "ran"


@pytest.mark.parametrize(
    "argument",
    [
        lambda scale: np.arange(4.0) * scale,
        lambda scale: (
            torch.nn.Linear(4, 1)
            .apply(lambda it: torch.nn.init.constant_(it.weight, scale))
            .apply(lambda it: torch.nn.init.zeros_(it.bias))
        ),
    ],
    ids=["array", "module"],
)
def test_inputs_are_told_apart_by_what_arguments_hold(argument: Callable[[float], Any]) -> None:
    """Numbers of an array and parameters of a module, which a user draws anew in each process, enter the digest of the inputs."""

    def digest(scale: float) -> str:
        return str(_seen(lambda x, _: x * 2, lambda t: call(t.normal(4), argument(scale)))["inputs_digest"])

    assert digest(1.0) == digest(1.0) != digest(2.0)


def test_a_file_that_sets_the_flag_where_it_begins_does_not_decide_the_mode(tmp_path: Path) -> None:
    """Programs of users do; a worker of the mode off is one all the same."""
    path = tmp_path / "mine.py"
    path.write_text("import torch\ntorch.use_deterministic_algorithms(True)\nfn = torch.sum\n")
    try:
        assert "failed" not in _start(MODE_TABLE["off"], [f"{path}:fn"])
        assert not torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(
    "argument",
    [
        np.empty(0),
        np.array([None]),
        np.arange(4, dtype=">u2")[::2],
        torch.nn.LazyLinear(2),
        torch.nn.Identity(),
    ],
    ids=["no elements", "objects", "other order of bytes", "lazy", "nothing"],
)
def test_arguments_of_any_kind_are_looked_through(argument: Any) -> None:
    """What holds no bits, or none yet, is no reason not to run."""
    assert _seen(lambda x, _: x * 2, lambda t: call(t.normal(4), argument))["outcome"] == "ran"


@pytest.mark.parametrize("dim", [1, -1])
def test_a_number_that_was_computed_is_no_input_given_back(dim: int) -> None:
    """Whatever numbers the op was given: 1 is where the largest is."""
    seen = observed(spec_of(torch.argmax, lambda _: call(torch.tensor([[1.0, 3.0, 2.0]]), dim)))

    assert (seen["outcome"], seen["blank"]) == ("ran", None)
