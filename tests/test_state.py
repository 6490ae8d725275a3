"""What an op leaves behind: in its process, so that no later row inherits it, and in its arguments."""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import itertools
import logging
import math
import platform
import random
import signal
import sys
import threading
import time
import warnings
from collections import UserDict, deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import date
from fractions import Fraction
from functools import cache, partial, reduce, wraps
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from detmatrix.opspecs.inputs import Inputs
from detmatrix.opspecs.model import Call, call
from detmatrix.opspecs.user import _given
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


def _seen(op: Callable[..., Any], inputs: Callable[[Any], Call], **options: Any) -> dict[str, Any]:
    """Return what a worker answers of an op of a user's, executed four times unless told otherwise."""
    return observed(spec_of(op, inputs, file="mine.py"), **{"runs": 4, **options})


def _beside(argument: Callable[[], Any]) -> Callable[[Any], Call]:
    """Return what draws a tensor, and makes another argument anew."""
    return lambda t: call(t.normal(4, 16), argument())


def _again(argument: Any) -> Callable[[Any], Call]:
    """Return what gives the same argument each time."""
    return _beside(lambda: argument)


def _module(kind: str) -> Any:
    torch.manual_seed(0)
    if kind == "spectral":
        return torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(16, 16))
    return torch.nn.BatchNorm1d(16)


def _same(x: Any, *_: Any) -> Any:
    return x * 2


def _races(x: Any, *_: Any) -> Any:
    return x + time.perf_counter_ns() % 1_000_003


def _applied(x: Any, module: Any) -> Any:
    return module(x)


def _learned(x: Any, module: Any) -> Any:
    module(x)
    return module.running_mean.clone()


def _step(x: Any, weight: Any) -> Any:
    with torch.enable_grad():
        (x @ weight).square().sum().backward()
    return weight.grad.clone()


def _with_weight(t: Any) -> Call:
    return call(t.normal(4, 8), t.normal(8, 2).requires_grad_())


def _optimized(x: Any, optimizer: Any) -> Any:
    weight = optimizer.param_groups[0]["params"][0]
    weight.grad = x @ weight.detach().T @ x
    optimizer.step()
    return weight.detach() * 1.0


def _with_optimizer(t: Any) -> Call:
    weight = torch.nn.Parameter(t.normal(4, 4))
    return call(t.normal(4, 4), torch.optim.SGD([weight], lr=0.1, momentum=0.9))


def _drawn(x: Any, numbers: Any) -> Any:
    """Take a number of whatever gives some, a module its statistics."""
    if isinstance(numbers, torch.nn.Module):
        return _learned(x, numbers)
    numbers = getattr(numbers, "numbers", numbers)
    return x + (next(numbers) if isinstance(numbers, Iterator) else numbers.random())


def _remembered(x: Any, memory: Any) -> Any:
    """Hand out again what was computed once."""
    if not hasattr(memory, "seen"):
        memory.seen = _races(x)
    return memory.seen.clone()


ONE_GENERATOR, DRAWN = np.random.default_rng(0), itertools.count()


def _made_once(t: Any) -> Call:
    """Make arguments of which two may not fit into the memory of a GPU."""
    if next(DRAWN):
        raise torch.OutOfMemoryError
    return call(t.normal(4), torch.nn.Identity())


@dataclass(frozen=True)
class Frozen:
    """What does not change itself may hold what does."""

    seen: Any = field(default_factory=list)
    scale: float = 1.0


class Named:
    """Equal to all others of its name, and hashed by that, as tokenizers are."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named)

    def __hash__(self) -> int:
        return 1


class Items(UserDict[str, Any]):
    """A mapping with an attribute, as batches of tokens are."""

    calls = 0

    def __call__(self) -> int:
        """Count."""
        self.calls += 1
        return self.calls


def _counting() -> Callable[[], int]:
    count = 0

    def step() -> int:
        nonlocal count
        count += 1
        return count

    return step


def _counting_within() -> Callable[[], int]:
    count = 0

    def step() -> int:
        def within() -> int:
            nonlocal count
            count += 1
            return count

        return within()

    return step


def _called(x: Any, function: Callable[[], Any]) -> Any:
    return x + function()


def _counted(x: Any, holder: Any) -> Any:
    holder.seen.append(1)
    return x + len(holder.seen)


def _noted(x: Any, *of: Any) -> Any:
    noted = (*of, x)[0]
    noted.calls = getattr(noted, "calls", 0) + 1
    return x * noted.calls


def _with_hook(t: Any) -> Call:
    x, calls = t.normal(4).requires_grad_(), itertools.count(1)
    x.register_hook(lambda it: it * next(calls))
    return call(x)


def _holding(it: Any) -> Callable[..., Any]:
    return lambda *_: it


def _with_default(x: Any, options: Any = {"by": 2}) -> Any:  # noqa: B006 - as users have it
    return x * options["by"]


def _filled(x: Any) -> Any:
    BUFFER.numpy()[:] = x
    return BUFFER


SETTINGS = SimpleNamespace(scale=2.0, names=["a"])
SHARED_STATE = SimpleNamespace(seen=[])
KEPT = cache(lambda: torch.ones(4))
BUFFER = torch.empty(4, 16)
SHARED = itertools.count(), random.Random(0), ONE_GENERATOR, torch.nn.BatchNorm1d(16)
UNCHANGING = (
    *(..., np.dtype("float32"), np.float32(1), np.add, torch.Tensor.add, torch.finfo(torch.float32), math),
    *(torch.ops.aten.add, torch.ops.aten.add.Tensor, frozenset({1}), Fraction(1, 2), Path("a")),
    *(date(2026, 1, 1), partial(pow, 2), torch.relu, wraps(_same)(_holding(_same)), b"bytes"),
)
GIVEN = "it differed only on arguments that earlier executions were given"
ALL_SAME, ALL_DIFFER = [4], [1] * 4


# The op, its arguments, and how often each output came in four executions, or why they prove nothing.
@dataclass(slots=True, eq=False)
class Slotted:
    """Has no dictionary."""

    holder: Any = field(default_factory=lambda: SHARED_STATE)


SHARED_TOLD = "it differed, and its inputs are not made anew each time: the {} is the same object".format
SHARED_WEIGHT = torch.ones(16, 2, requires_grad=True)
ARGUMENTS: dict[str, tuple[Callable[..., Any], Callable[[Any], Call], list[int] | str]] = {
    # An op that learns, adds up or draws from what it is given is no nondeterministic one.
    "running statistics": (_learned, _beside(lambda: _module("batch")), GIVEN),
    "bound method": (_applied, _beside(lambda: _module("spectral").forward), GIVEN),
    "spectral norm": (_applied, _beside(lambda: _module("spectral")), GIVEN),
    "gradient": (_step, _with_weight, GIVEN),
    "random": (_drawn, _beside(lambda: random.Random(0)), GIVEN),
    "numpy": (_drawn, _beside(lambda: np.random.default_rng(0)), GIVEN),
    "iterator": (_drawn, _beside(itertools.count), GIVEN),
    "object that cannot be pickled": (_drawn, _beside(lambda: SimpleNamespace(numbers=itertools.count(), lock=threading.Lock())), GIVEN),
    "optimizer": (_optimized, _with_optimizer, GIVEN),
    "frozen": (_counted, _beside(Frozen), GIVEN),
    "equal by its name": (_counted, _beside(Named), GIVEN),
    "closure": (_called, _beside(_counting), GIVEN),
    "closure in a partial": (_called, _beside(lambda: partial(_counting())), GIVEN),
    "method of an iterator": (_called, _beside(lambda: itertools.count().__next__), GIVEN),
    "method of a list": (_called, _beside(lambda: [*range(99)].pop), GIVEN),
    "generator in a partial": (_called, _beside(lambda: partial(torch.rand, 16, generator=torch.Generator().manual_seed(3))), GIVEN),
    "tensor in a partial": (_called, _beside(lambda: partial(torch.zeros(16).add_, 1)), GIVEN),
    "attribute of a mapping": (_called, _beside(Items), GIVEN),
    "attribute of a tensor": (_noted, lambda t: call(t.normal(4)), GIVEN),
    "attribute of a function": (_noted, _beside(lambda: lambda: 0), GIVEN),
    "closure of a closure": (_called, _beside(_counting_within), GIVEN),
    "memory": (lambda x, it: x + (it.__setitem__(0, it[0] + 1) or it[0]), _beside(lambda: memoryview(bytearray(1))), GIVEN),
    "hook of a tensor": (torch.enable_grad()(lambda x: torch.autograd.grad(x.square().sum(), x)[0]), _with_hook, GIVEN),
    **{f"shared inside {name}": (lambda x, _: _counted(x, SHARED_STATE), _beside(make), SHARED_TOLD("SimpleNamespace")) for name, make in {
        "a namespace": lambda: SimpleNamespace(holder=SHARED_STATE), "an object": lambda: Frozen(SHARED_STATE), "slots": Slotted,
        "a queue": lambda: deque([SHARED_STATE]), "a set": lambda: {Slotted()}, "a list": lambda: [SHARED_STATE],
        "keys": lambda: SimpleNamespace(of={Slotted(): 1}), "a partial": lambda: partial(id, SHARED_STATE),
        "a closure": lambda: _holding(SHARED_STATE), "a default": lambda: lambda it=SHARED_STATE: it,
        "a default of a keyword": lambda: lambda *, it=SHARED_STATE: it, "a tensor": lambda: next(vars(t).update(of=SHARED_STATE) or t for t in [torch.ones(2)]),
        "an attribute of a function": lambda: wraps(_holding(SHARED_STATE))(lambda: 0), "slots of a tensor": lambda: next(vars(object)["__setattr__"](
            t, "n", SHARED_STATE) or t for t in [torch.ones(2).as_subclass(type("", (torch.Tensor,), {"__slots__": ("n",)}))]),
        "a later hook": lambda: next(t.register_post_accumulate_grad_hook(partial(id, SHARED_STATE)) and t for t in [torch.ones(2, requires_grad=True)]),
        "a hook": lambda: torch.nn.Identity().apply(lambda it: it.register_forward_hook(partial(id, SHARED_STATE))),
    }.items()},
    "gradient of a shared weight": (lambda x, it: _step(x, it.of), _beside(lambda: SimpleNamespace(of=SHARED_WEIGHT)), SHARED_TOLD("Tensor")),
    "list that grows": (lambda x, it: x + (it.append("step") or len(it)), _beside(list), "the op changed its inputs"),
    # What is shared and holds settings alone may be: loggers, defaults, weights of a file.
    "shared settings": (_races, _beside(lambda: SimpleNamespace(log=logging.getLogger("mine"), of=SETTINGS)), ALL_DIFFER),
    "shared default": (_races, _again(_with_default), ALL_DIFFER),
    "shared tensor in a partial": (_races, _again(partial(torch.mul, torch.ones(16))), ALL_DIFFER),
    "scripted, made anew": (_races, _beside(lambda: torch.jit.script(torch.nn.ReLU())), ALL_DIFFER),
    "shared frozen": (_races, _again(Frozen()), ALL_DIFFER),
    "scripted": (_same, _beside(lambda: SimpleNamespace(of=torch.distributed.ReduceOp.SUM)), ALL_SAME),
    "wrapped as torch's": (_called, _beside(lambda: wraps(torch.nn.functional.relu)(_counting())), GIVEN),
    "decorated by torch": (_called, _beside(lambda: torch.no_grad()(_counting())), GIVEN),
    "decorated by torch, shared": (_races, _again(torch.no_grad()(_same)), ALL_DIFFER),
    # What is handed out again was not executed; what is written into memory that is kept was.
    "kept": (lambda *_: KEPT(), _beside(int), "it returned the same tensor again"),
    "raced through an array": (lambda x, _: _filled(_races(x)), _beside(int), ALL_DIFFER),
    "written again": (lambda x, _: torch.mul(x, 2, out=BUFFER), _beside(int), ALL_SAME),
    # A race beside a state that changes is a race, and a state that changes no result no error.
    "race beside statistics": (lambda *args: _races(_learned(*args)), _beside(lambda: _module("batch")), ALL_DIFFER),
    "race beside a gradient": (lambda *args: _races(_step(*args)), _with_weight, ALL_DIFFER),
    "trained to the same bits": (_applied, _beside(lambda: _module("batch")), ALL_SAME),
    "computed once": (_remembered, _beside(SimpleNamespace), "it differed on arguments made anew, and never on those"),
    # Drawn from a generator that nobody seeds.
    "not the same anew": (_races, _beside(lambda: ONE_GENERATOR.random(4)), "its arguments are not the same when they are made anew"),
    # The state of an object that is given again goes on from call to call; without a difference nothing is asked.
    **{f"shared {type(it).__name__}": (_drawn, _again(it), SHARED_TOLD(type(it).__name__)) for it in SHARED},
    **{f"shared {type(it).__name__}, unused": (_same, _again(it), ALL_SAME) for it in SHARED},
    "cannot be made twice": (_same, _made_once, ALL_SAME),
    # What nobody can change may be given again, and needs not be made anew for a real difference.
    **{f"unchanging {type(it).__name__}": (_races, _again(it), ALL_DIFFER) for it in UNCHANGING},
    # What holds no bits, or none yet, is no reason not to run.
    "no elements": (_same, _beside(lambda: np.empty(0)), ALL_SAME),
    "objects": (_races, _beside(lambda: np.array([object()])), ALL_DIFFER),
    "other order of bytes": (_same, _beside(lambda: np.arange(4, dtype=">u2")[::2]), ALL_SAME),
    "lazy": (_same, _beside(lambda: torch.nn.LazyLinear(2)), ALL_SAME),
    "nothing": (_same, _beside(torch.nn.Identity), ALL_SAME),
    "a long chain": (_same, _beside(lambda: reduce(lambda rest, _: SimpleNamespace(rest=rest), range(2000), None)), ALL_SAME),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_difference_is_one_of_equal_arguments(name: str) -> None:
    """Executions that were given another state prove nothing, neither that an op differs nor that it does not."""
    op, inputs, expected = ARGUMENTS[name]
    seen = _seen(op, inputs)

    told = isinstance(expected, str)
    assert seen["outcome"] == ("invalid" if told else "ran")
    assert seen["message"].startswith(expected) if told else [*seen["digests"].values()] == expected


def test_a_generator_is_put_back_before_each_execution() -> None:
    """As torch's own is: the op draws the same, and is told to draw."""
    inputs = _beside(lambda: torch.Generator().manual_seed(7))
    seen = _seen(lambda x, own: x + torch.rand(16, generator=own), inputs, runs=6)

    assert (seen["outcome"], [*seen["digests"].values()], seen["seeded"]) == ("ran", [6], True)
    assert not _seen(_same, inputs)["seeded"]


def test_a_race_that_a_perturbation_shows_is_looked_for_under_it() -> None:
    """Beside an object that nobody changes."""
    inputs = _beside(torch.nn.Identity)
    seen = _seen(lambda x, _: after_a_pause(x), inputs, runs=20, perturbations=["quiet", "pause"])

    differed = {one["perturbation"]: bool(one["differing"]) for one in seen["groups"]}
    assert (seen["outcome"], differed) == ("ran", {"quiet": False, "pause": True})


def test_arguments_are_made_anew_while_there_is_time() -> None:
    """Where each takes long, what is not shown in time is not said."""
    turns = itertools.count()

    def inputs(t: Any) -> Call:
        time.sleep(0.02)
        return call(t.normal(4), SimpleNamespace())

    seen = _seen(lambda x, _: x + (next(turns) == 1), inputs, runs=60, max_time=0.05)

    told = "no time was left to show that it differs on arguments made anew"
    assert (seen["outcome"], seen["message"]) == ("invalid", told)


SCALED: dict[str, Callable[[float], Any]] = {
    "array": lambda scale: np.arange(4.0) * scale,
    "module": lambda scale: (
        torch.nn.Linear(4, 1, False).requires_grad_(False).apply(lambda it: it.weight.fill_(scale))
    ),
    "statistics": lambda scale: torch.nn.BatchNorm1d(4).apply(lambda it: it.running_mean.fill_(scale)),
    "number": np.float32,
    "dataclass": lambda scale: Frozen(scale=scale),
    "bytes": lambda scale: b"%f" % scale,
}


@pytest.mark.parametrize("kind", SCALED)
def test_inputs_are_told_apart_by_what_arguments_hold(kind: str) -> None:
    """Numbers of an array and parameters of a module, which a user draws anew in each process, enter the digest of the inputs."""

    def digest(scale: float) -> str:
        return str(_seen(_same, _beside(lambda: SCALED[kind](scale)))["inputs_digest"])

    assert digest(1.0) == digest(1.0) != digest(2.0)


def test_a_weight_lies_on_the_device_of_the_scan_with_its_gradient() -> None:
    """Where that is another one than it was made on; it stays a parameter, and whoever draws at random goes on as if nothing was."""
    weight, before = torch.nn.Parameter(torch.ones(2)), random.getstate()
    weight.grad = torch.ones(2)
    (there,) = _given(lambda _: weight, Inputs("", dtype="float32", device="meta", direction="forward")).args

    assert (type(there), there.is_meta, there.grad.is_meta) == (torch.nn.Parameter, True, True)
    assert random.getstate() == before


def test_a_file_that_sets_the_flag_where_it_begins_does_not_decide_the_mode(tmp_path: Path) -> None:
    """Programs of users do; a worker of the mode off is one all the same."""
    path = tmp_path / "mine.py"
    path.write_text("import torch\ntorch.use_deterministic_algorithms(True)\nfn = torch.sum\n")
    try:
        assert "failed" not in _start(MODE_TABLE["off"], [f"{path}:fn"])
        assert not torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("dim", [1, -1])
def test_a_number_that_was_computed_is_no_input_given_back(dim: int) -> None:
    """Whatever numbers the op was given: 1 is where the largest is."""
    seen = observed(spec_of(torch.argmax, lambda _: call(torch.tensor([[1.0, 3.0, 2.0]]), dim)))

    assert (seen["outcome"], seen["blank"]) == ("ran", None)
