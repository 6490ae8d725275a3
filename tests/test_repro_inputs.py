"""The scripts of ``detmatrix repro`` draw the inputs of the scan, bit for bit, or say why they cannot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from detmatrix.opspecs.inputs import Inputs
from detmatrix.opspecs.registry import FAMILIES, select
from detmatrix.scanner.repro.script import script

torch = pytest.importorskip("torch")

from detmatrix.scanner.worker.bits import digest, parts  # noqa: E402 - it needs torch
from detmatrix.scanner.worker.execution import Execution  # noqa: E402
from detmatrix.scanner.worker.repro.inputs import InputSourceError, input_source  # noqa: E402
from detmatrix.scanner.worker.repro.recorder import Drawing  # noqa: E402
from tests.scripts import PLANTED, SEED, asked, header, loaded, seen  # noqa: E402


def described(args: Any, kwargs: Any, leaves: Any) -> Any:
    """Return all in which inputs can differ."""
    named = [*parts(args, "args", skip_others=True), *parts(kwargs, "kwargs", skip_others=True)]
    graph = [tensor.requires_grad for _, tensor in named], digest(parts(leaves, "leaves"))
    text = repr((args, kwargs)).replace("'cuda'", "'cpu'")
    return digest(named), [tensor.stride() for _, tensor in named], graph, text


@pytest.fixture(autouse=True)
def _plain_repr() -> Iterator[None]:
    """Let what stands for a tensor in a text be short."""
    torch.set_printoptions(profile="default", edgeitems=1, threshold=1)
    yield
    torch.set_printoptions(profile="default")


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("family", FAMILIES)
def test_script_draws_the_inputs_of_the_scan(family: str) -> None:
    """The arguments, keyword arguments and leaves of every row are bit for bit those that a worker draws."""
    different = []
    for spec, planned in select([family], "cpu"):
        execution = Execution(
            spec, planned.case, direction=planned.direction, dtype=planned.dtype, device="cpu", seed=SEED
        )
        expected = described(execution.call.args, dict(execution.call.kwargs), execution.leaves)

        text = script(asked(planned), seen(spec, planned), header())

        args, kwargs, *leaves = loaded(text)["inputs"]()
        if described(args, kwargs, leaves[0] if leaves else []) != expected:
            different.append(planned.id)

    assert not different


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    "pattern",
    [
        "torch.Tensor.put_:overwrite:forward:float32",
        "torch.nn.Embedding:collisions_half:*:bfloat16",
        "torch.nn.CTCLoss:four_labels_cudnn:*",
        "torch.Tensor.scatter_reduce:amax:backward:float32",
        "torch.nn.functional.grid_sample:each_pixel_once:*:float16",
        "torch.sparse.mm:csr_dense_grad:*:float32",
        "torch.empty:integer:*:uint8",
    ],
)
def test_script_of_a_cuda_row_is_written_without_one(pattern: str) -> None:
    """Drawn on the CPU and moved, in the sizes of CUDA; where both are the CPU, the bits are the same."""
    spec, planned = select([pattern], "cuda")[0]
    t = Inputs(f"{SEED}|{spec.name}|{planned.case}|{planned.dtype}", dtype=planned.dtype, device="cuda",
               direction=planned.direction)  # fmt: skip
    with Drawing("cuda"):
        call = spec.cases[planned.case].inputs(t)
    head = header(gpu="Example GPU", cuda="12.6", variables={"on": {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}})
    head = msgspec.structs.replace(head, settings=msgspec.structs.replace(head.settings, device="cuda:0"))

    text = script(asked(planned, "cuda"), seen(spec, planned, device="cuda:0"), head)

    assert '"cuda"' in text
    assert "os.environ | {'CUBLAS_WORKSPACE_CONFIG': ':4096:8'} if mode != \"off\"" in text
    args, kwargs, *leaves = loaded(text.replace('"cuda"', '"cpu"'))["inputs"]()
    assert described(args, kwargs, leaves[0] if leaves else []) == described(
        call.args, dict(call.kwargs), t.leaves
    )


@pytest.mark.parametrize("pattern", ["torch.gather:*:float64", "torch.nn.LSTM:one_layer", "torch.sparse.mm:coo*",
                                     "scaled_dot_product_attention:math:*"])  # fmt: skip
def test_script_computes_the_gradients_of_the_scan(pattern: str) -> None:
    """Upstream gradients are those that a worker draws, so that the results are the same bits."""
    for spec, planned in select([pattern.replace("scaled", "torch.nn.functional.scaled")], "cpu"):
        execution = Execution(
            spec, planned.case, direction=planned.direction, dtype=planned.dtype, device="cpu", seed=SEED
        )
        execution.reseed()
        output, gradients = execution()

        names = loaded(script(asked(planned), seen(spec, planned), header()))

        expected = [tensor for _, tensor in parts(gradients if execution.backward else output, "output")]
        assert names["digest"](expected) == names["digest"](names["execute"](*names["inputs"]()))


def test_an_op_brings_along_what_it_needs(tmp_path: Path) -> None:
    """Of the module it is in: functions and values it calls and reads, in an order that works; nothing else."""
    (tmp_path / "planted.py").write_text(PLANTED, encoding="utf-8")

    answer = input_source(spec="mine.by_mode", **ONLY, specs=[str(tmp_path / "planted.py")])

    assert answer["imports"] == []
    assert "\n".join(answer["definitions"]).splitlines() == [
        "FACTOR = (3.0, 1)",
        "def scaled(x: torch.Tensor, case: Case | None = None, factor: float = FACTOR[0]) -> torch.Tensor:",
        "    return x * factor",
        "def by_mode(x, bias):",
        '    """Give other bits with the flag on."""',
        "    return scaled(x) + torch.are_deterministic_algorithms_enabled() * bias",
    ]


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ("mine.closing", "closing.<locals>.<lambda> is no function of a module"),
        ("mine.elsewhere", "click is neither torch's nor defined beside the op"),
        ("mine.opaque", "a list_iterator has no source"),
        ("mine.failing", r"its inputs cannot be drawn here \(ZeroDivisionError: division by zero\)"),
        ("mine.lacking", "torch .* has no gizmo"),
        ("mine.unseeded", "its inputs were not understood: what was written makes others"),
        ("mine.gone", "the specs here have no such case; take the detmatrix that scanned it"),
    ],
)
def test_no_recipe(spec: str, text: str, tmp_path: Path) -> None:
    """What has no source, or makes other inputs each time, is refused in a sentence."""
    (tmp_path / "planted.py").write_text(PLANTED, encoding="utf-8")

    with pytest.raises(InputSourceError, match=text):
        input_source(spec=spec, **ONLY, specs=[str(tmp_path / "planted.py")])


ONLY: dict[str, Any] = {
    "case": "only",
    "direction": "forward",
    "dtype": "float32",
    "device": "cpu",
    "seed": SEED,
}
