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

from detmatrix.scanner.alerts import alert_caller
from detmatrix.scanner.worker.execution import first_line
from tests import tied

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


# The alert is recognised by PyTorch's own texts, and nothing else is.


torch = pytest.importorskip("torch")

# What a backward says that was compiled while the flag was off, and is run while it is on.
_COMPILED = (
    "This compiled backward function is being run with torch.use_deterministic_algorithms(True), but it was "
    "previously generated during the forward function while torch.use_deterministic_algorithms(False) was set."
)
_REST = (
    " does not have a deterministic implementation, but you set 'torch.use_deterministic_algorithms(True)'. You "
    "can turn off determinism just for this operation, or you can use the 'warn_only=True' option, if that's "
    "acceptable for your application. You can also file an issue at https://github.com/pytorch/pytorch/issues to "
    "help us prioritize adding deterministic support for this operation."
)
# alertCuBLASConfigNotDeterministic in aten/src/ATen/Context.cpp of older builds with CUDA, raised where
# CUBLAS_WORKSPACE_CONFIG was not set. Builds for the CPU do not hold it.
_CUBLAS = (
    "Deterministic behavior was enabled with either `torch.use_deterministic_algorithms(True)` or "
    "`at::Context::setDeterministicAlgorithms(true)`, but this operation is not deterministic because it uses "
    "CuBLAS and you have CUDA >= 10.2. To enable deterministic behavior in this case, you must set an environment "
    "variable before running your PyTorch application: CUBLAS_WORKSPACE_CONFIG=:4096:8 or "
    "CUBLAS_WORKSPACE_CONFIG=:16:8. For more information, go to "
    "https://docs.nvidia.com/cuda/cublas/index.html#results-reproducibility"
)


@pytest.fixture
def _flag() -> Any:
    """Set the flag, and take it back."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def _put() -> None:
    torch.zeros(4).put_(torch.tensor([0, 0]), torch.ones(2), accumulate=False)


def _unpool(dimensions: int) -> None:
    functional = torch.nn.functional
    values, indices = getattr(functional, f"max_pool{dimensions}d")(
        torch.rand(1, 1, *[4] * dimensions), 2, return_indices=True
    )
    getattr(functional, f"max_unpool{dimensions}d")(values, indices, 2)


@pytest.mark.usefixtures("_flag")
@pytest.mark.parametrize(
    ("op", "caller"),
    [
        (_put, "put_"),
        (lambda: _unpool(2), "max_unpooling2d_forward_out"),
        (lambda: _unpool(3), "max_unpooling3d_forward_out"),
    ],
    ids=["put_", "max_unpool2d", "max_unpool3d"],
)
def test_alerts_of_the_installed_torch_are_recognised(op: Any, caller: str) -> None:
    """What PyTorch really raises names its caller, in the whole text and in the line a run file keeps."""
    with pytest.raises(RuntimeError) as raised:
        op()

    text = first_line(raised.value).removeprefix("RuntimeError: ")
    assert alert_caller("RuntimeError", str(raised.value)) == caller
    assert alert_caller("RuntimeError", text) == caller


@pytest.mark.parametrize(
    ("exception", "message"),
    [
        (None, None),
        (None, "put_" + _REST),
        ("RuntimeError", None),
        ("RuntimeError", ""),
        ("ValueError", "put_" + _REST),
        ("NotImplementedError", "put_" + _REST),
        ("UserWarning", "put_" + _REST),
        ("RuntimeError", _REST),
        ("RuntimeError", " put_" + _REST),
        ("RuntimeError", "\n" + _REST),
        ("RuntimeError", "put_ does not have a deterministic implementation"),
        ("RuntimeError", "put_ does not have an implementation, but you set 'torch.use_deterministic_algorithms(True)'"),
        ("RuntimeError", "deterministic indexing backward not implemented"),
        ("RuntimeError", "CUDA error: an illegal memory access was encountered"),
        ("RuntimeError", "This operation is not deterministic because it uses CuBLAS"),
        ("RuntimeError", "Error: " + _CUBLAS),
        ("RuntimeError", _COMPILED),
        ("AssertionError", _CUBLAS),
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

    assert done.stdout.splitlines()[:1] == [_COMPILED]


def test_warn_only_warns_with_the_words_of_the_alert() -> None:
    """With warn_only the sentence comes as a warning and the op goes on: nothing is raised."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            _put()
    finally:
        torch.use_deterministic_algorithms(False)

    texts = [str(warning.message) for warning in caught]
    assert [text for text in texts if "put_ does not have a deterministic implementation" in text]
    assert [alert_caller("UserWarning", text) for text in texts] == [None] * len(texts)
