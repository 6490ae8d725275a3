"""The alert is recognised by PyTorch's own texts, and nothing else is."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import pytest

from detmatrix.scanner.alerts import alert_caller
from detmatrix.scanner.worker.execution import first_line
from tests import tied

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
