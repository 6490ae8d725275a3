"""What an op leaves behind in its process is noticed, so that no later row inherits it."""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import platform
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any
from unittest import mock

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from detmatrix.scanner.alerts import ALERT, CUBLAS_ALERT, REFUSAL, alert_caller
from detmatrix.scanner.worker import global_state
from tests import tied
from tests.observed import observed, spec_of


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
    program = (
        "import torch\n"
        "doubled = torch.compile(lambda x: x.sin() * 2, backend='aot_eager')\n"
        "x = torch.ones(3, requires_grad=True)\n"
        "y = doubled(x)\n"
        "torch.use_deterministic_algorithms(True)\n"
        "try:\n"
        "    torch.autograd.grad(y, x, torch.ones(3))\n"
        "except RuntimeError as error:\n"
        "    print(error)\n"
    )

    done = tied.run([sys.executable, "-W", "ignore", "-c", program], timeout=300)

    assert done.stdout.startswith(f"{REFUSAL}, but it was previously generated during the forward function")
