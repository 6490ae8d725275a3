"""What an op leaves behind in its process is noticed, so that no later row inherits it."""

from __future__ import annotations

import ctypes
import ctypes.util
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from detmatrix.opspecs.model import Case, OpSpec, call  # noqa: E402 - what follows needs torch
from detmatrix.scanner.worker import global_state  # noqa: E402
from detmatrix.scanner.worker.observe import observe  # noqa: E402

Undo = Callable[[], object]


def _entered(context: AbstractContextManager[Any]) -> Undo:
    context.__enter__()
    return lambda: context.__exit__(None, None, None)


def _rounding(direction: int) -> Undo:
    library = ctypes.CDLL(ctypes.util.find_library("m"))
    library.fesetround(direction)
    return lambda: library.fesetround(0)


def _patched(owner: Any, name: str) -> Undo:
    had, before = name in vars(owner), getattr(owner, name)
    setattr(owner, name, lambda *args, **_: args[0])
    return lambda: setattr(owner, name, before) if had else delattr(owner, name)


def _handler() -> Undo:
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    return lambda: signal.signal(signal.SIGUSR1, before)


def _thread() -> Undo:
    end = threading.Event()
    thread = threading.Thread(target=end.wait, daemon=True)
    thread.start()

    def undo() -> None:
        end.set()
        thread.join()

    return undo


def _strict_warnings() -> Undo:
    before = warnings.filters[:]
    warnings.simplefilter("error", ResourceWarning)

    def undo() -> None:
        warnings.filters[:] = before  # type: ignore[index]

    return undo


def _flushed() -> Undo:
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush denormals")
    return lambda: torch.set_flush_denormal(False)


def _device() -> Undo:
    torch.set_default_device("meta")
    return lambda: torch.set_default_device(None)


def _dtype() -> Undo:
    torch.set_default_dtype(torch.float64)
    return lambda: torch.set_default_dtype(torch.float32)


def _threads() -> Undo:
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    return lambda: torch.set_num_threads(before)


def _debug_mode() -> Undo:
    torch.set_deterministic_debug_mode("error")
    return lambda: torch.set_deterministic_debug_mode("default")


def _traced() -> Undo:
    before = sys.getprofile()
    sys.setprofile(lambda *_: None)
    return lambda: sys.setprofile(before)


def _mode() -> Undo:
    from torch.utils._python_dispatch import TorchDispatchMode  # noqa: PLC0415

    return _entered(TorchDispatchMode())


X86 = pytest.mark.skipif(
    sys.platform != "linux" or "x86" not in __import__("platform").machine(),
    reason="other numbers for rounding",
)
LEFT: dict[str, tuple[Callable[[], Undo], str]] = {
    "rounding": (lambda: _rounding(0xC00), "rounding: to nearest -> towards zero"),
    "flush": (_flushed, "denormals flushed"),
    "saved_tensors": (
        lambda: _entered(torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x)),
        "saved tensor hooks",
    ),
    "multiplication": (lambda: _patched(torch.Tensor, "__mul__"), "replaced torch.Tensor.__mul__"),
    "comparison": (lambda: _patched(torch, "equal"), "replaced torch.equal"),
    "flag": (
        lambda: _patched(torch, "use_deterministic_algorithms"),
        "replaced torch.use_deterministic_algorithms",
    ),
    "handler": (_handler, "signal handlers: SIGUSR1"),
    "device": (_device, "default device"),
    "dtype": (_dtype, "default dtype: torch.float32 -> torch.float64"),
    "threads": (_threads, "thread count"),
    # The other interface of the flag.
    "debug_mode": (_debug_mode, "use_deterministic_algorithms: False -> True"),
    "dispatch_mode": (_mode, "dispatch modes: 0 -> 1"),
    "function_mode": (lambda: _entered(torch.overrides.TorchFunctionMode()), "function modes: 0 -> 1"),
    "autocast": (lambda: _entered(torch.autocast("cpu")), "autocast"),
    "thread": (_thread, "Python threads"),
    "warnings": (_strict_warnings, "warnings that raise"),
    "profile": (_traced, "trace functions"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=X86 if name == "rounding" else ()) for name in LEFT]
)
def test_what_an_op_leaves_behind_is_an_error_of_its_row(name: str) -> None:
    """Whatever a later op or our own comparison would inherit makes the row an error that names it."""
    leave, words = LEFT[name]
    undo: list[Undo] = []
    results = []

    def op(x: Any) -> Any:
        results.append(x + 1)
        # Warnings of the first execution are recorded, and what it does to them put back.
        if len(results) == 2:
            undo.append(leave())
        return results[-1]

    try:
        answer = _observed(op)
    finally:
        for one in undo:
            one()
        # A mode that is left entered keeps the flag of gradients from being put back.
        torch.set_grad_enabled(True)

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

    assert _observed(op)["message"] == "the op set the flag 8 times, and put it back"


def test_nothing_left_behind_is_no_error() -> None:
    """An op that minds its own business is not accused."""
    assert _observed(lambda x: x + 1)["outcome"] == "ran"


def _observed(op: Callable[..., Any]) -> dict[str, Any]:
    spec = OpSpec(
        name="planted.op", op=op, why="Planted.", cases={"plain": Case(inputs=lambda t: call(t.normal(8)))}
    )
    return observe(spec, "plain", direction="forward", dtype="float32", device="cpu", seed=0, runs=4)
