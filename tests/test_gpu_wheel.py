"""A release's own kernels on the simulated GPU: what is known of some ops is found, proved or refused, and can be replayed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from detmatrix.scanner.observations.runfile import Run, read_run
from detmatrix.scanner.verdicts.findings import MatrixRow, matrix
from tests.commands import command_in

PYTHON = os.environ.get("DETMATRIX_CUDA_PYTHON", "")
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(not PYTHON, reason="needs a CUDA build of torch, which nox -s nightly installs"),
]
ROWS = {
    "torch.index_add:few_indices:forward:float32": ("fixed_by_mode", "resident-blocks"),
    "torch.nn.AdaptiveMaxPool3d:smaller_output:backward:float32": ("silent", "resident-blocks"),
    "torch.nn.AdaptiveMaxPool3d:dividing_output:backward:float32": ("deterministic", None),
    "torch.cumprod:long_flat:forward:float32": ("silent", "resident-blocks"),
    "torch.cumsum:many_rows:forward:float32": ("deterministic", None),
    "torch.nn.ReflectionPad2d:whole_side_small:backward:float32": ("fixed_by_mode", "warps"),
    # Its barrier was added later: https://github.com/pytorch/pytorch/pull/187687
    "torch.nn.Embedding:few_indices:backward:float32": ("silent", "warps"),
    "torch.nn.Conv1d:dense:forward:float32": ("inconclusive", None),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Scan these rows."""
    folder = tmp_path_factory.mktemp("wheel")
    done = command_in(folder)(
        "scan", "--simulate", "sm_80", "--python", PYTHON, *ROWS, "-o", "run.jsonl", "--workers", 1
    )
    assert done.returncode == 0, done.stderr
    return read_run(folder / "run.jsonl")


@pytest.fixture(scope="module")
def rows(run: Run) -> dict[str, MatrixRow]:
    """Return what came out, by row."""
    found = matrix(run.header, run.observations, closed=True, sentinels=run.sentinels)
    return {one.row.id: one for one in found}


@pytest.mark.parametrize("name", ROWS)
def test_findings(rows: dict[str, MatrixRow], name: str) -> None:
    """The finding of a row, and the weakest class of schedules that shows its difference."""
    finding, schedule = ROWS[name]
    row = rows[name]
    shown = row.off.simulated.schedule if row.off.simulated else None

    assert (row.finding, shown.name if shown else None) == (finding, schedule), row.reason


def test_what_is_proved(rows: dict[str, MatrixRow]) -> None:
    """Rows without a conflict are proved; a difference has a pair of accesses that shows it alone."""
    proved = {name for name, row in rows.items() if row.off.simulated and row.off.simulated.race_free}
    witnessed = {name for name, row in rows.items() if row.off.simulated and row.off.simulated.witness}

    assert proved == {
        "torch.nn.AdaptiveMaxPool3d:dividing_output:backward:float32",
        "torch.cumsum:many_rows:forward:float32",
    }
    assert witnessed >= {
        "torch.index_add:few_indices:forward:float32",
        "torch.nn.AdaptiveMaxPool3d:smaller_output:backward:float32",
        "torch.nn.ReflectionPad2d:whole_side_small:backward:float32",
    }


def test_rounding_is_told_from_a_race_and_by_which_source(rows: dict[str, MatrixRow]) -> None:
    """With small integers what rounds does not differ, and what races does; the size of a GPU launches these kernels."""
    told = {}
    for name in (
        "torch.index_add:few_indices:forward",
        "torch.cumprod:long_flat:forward",
        "torch.nn.Embedding:few_indices:backward",
    ):
        known = rows[f"{name}:float32"].off.simulated
        assert known is not None
        told[name.split(":")[0]] = (
            known.exact,
            known.witness.source if known.witness else "",
            known.other_kernels,
        )
        assert not known.contradiction

    # Its witness is one of many pairs, not all of which are tried.
    assert told.pop("torch.nn.Embedding")[0] == "stays"
    assert told == {
        "torch.index_add": ("vanishes", "IndexKernelUtils.cu", ()),
        "torch.cumprod": ("vanishes", "CumprodKernel.cu", ()),
    }


def test_a_wrong_gradient_is_told(rows: dict[str, MatrixRow]) -> None:
    """With the flag on ReflectionPad2d loses contributions where its pads overlap."""
    assert {name for name, row in rows.items() if "wrong_with_flag" in row.found} == {
        "torch.nn.ReflectionPad2d:whole_side_small:backward:float32"
    }


def test_witnesses_replay(run: Run) -> None:
    """A process of its own shows the same bits from the recorded schedule."""
    for name in ("torch.index_add:few_indices", "torch.nn.AdaptiveMaxPool3d:smaller_output"):
        done = command_in(Path(run.path).parent)("repro", "--replay", run.path, name, "--python", PYTHON)
        assert done.returncode == 0, done.stdout + done.stderr


PROGRAM = """\
import torch
torch.manual_seed(0)
index = torch.randint(4, (1000,)).cuda()
source = torch.randn(1000, 8).cuda()
into = torch.zeros(4, 8).cuda()
into.index_add_(0, index, source)
image = torch.randn(2, 1, 8, 8)
net = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2))
on_cpu = torch.autograd.grad(net(image).square().sum(), net[0].weight)[0]
on_gpu = torch.autograd.grad(net.cuda()(image.cuda()).square().sum(), net[0].weight)[0]
torch.testing.assert_close(on_gpu.cpu(), on_cpu, rtol=1e-3, atol=1e-3)
(into @ source.T).relu().sum().item()
"""


def test_a_program_on_the_simulated_gpu(tmp_path: Path) -> None:
    """A program without a GPU: the op whose order matters is a root; the CPU computes for libraries, which are not judged."""
    (tmp_path / "train.py").write_text(PROGRAM, encoding="utf-8")
    done = command_in(tmp_path)(
        "locate", "--simulate", "sm_80", "--python", PYTHON, "--format", "json", "train.py"
    )
    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)

    assert [(one["site"]["op"], one["site"]["line"]["line"], one["cause"]) for one in told["roots"]] == [
        ("aten::index_add_", 6, "schedule")
    ]
    assert (told["roots"][0]["origin"], told["roots"][0]["flag"]) == ("resident blocks", "cured")
    unjudged = {op for reason, ops in told["left_out_ops"].items() if "not judged" in reason for op in ops}
    assert unjudged == {
        *("aten::convolution", "aten::convolution_backward", "aten::mm"),
        *("aten::cudnn_batch_norm", "aten::cudnn_batch_norm_backward"),
    }
    assert told["ended"] is None
    assert (told["simulated"], told["device"]) == (True, "sm_80")
