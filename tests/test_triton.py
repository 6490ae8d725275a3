"""Triton kernels in the interpreter, their programs in other orders: kernels of our own, that of the guide, and a program's."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from detmatrix.reports.matrix.model import load
from detmatrix.scanner.verdicts.findings import MatrixRow
from tests.commands import Command, process_in

HERE = Path(__file__).parent
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(
        importlib.util.find_spec("triton") is None, reason="needs Triton (pip install triton)"
    ),
]
Rows = dict[str, MatrixRow]


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """Scan the kernels of our own, and return their rows by name."""
    folder = tmp_path_factory.mktemp("ours")
    options = ("--perturb", "quiet,order", "--runs", 20, "--processes", 1, "--no-cost", "--no-overloads")
    done = process_in(folder)(
        "scan", "--specs", HERE / "triton_specs.py", "triton.*", "--device", "cpu", *map(str, options)
    )
    assert done.returncode == 0, done.stderr
    (matrix,) = load([str(folder / "detmatrix.jsonl")])
    return {one.row.spec.partition(".")[2]: one for one in matrix.rows}


# Float atomics, sums behind a lock, overlapping stores of programs and of the lanes of one (last_writer); then rows by
# themselves and integer atomics, of which no order differs, which proves little of a GPU.
FINDINGS = dict.fromkeys(("norm_backward", "scatter_add", "last_writer"), "order_dependent")
FINDINGS |= dict.fromkeys(("softmax", "histogram"), "deterministic")


@pytest.mark.parametrize("name", FINDINGS)
def test_kernels_whose_order_decides_are_found(ours: Rows, name: str) -> None:
    """And no others; in one order nothing differs."""
    row, differs = ours[name], FINDINGS[name] == "order_dependent"

    assert row.finding == FINDINGS[name]
    assert differs or row.weak is not None
    for cell in (row.off, row.on):
        assert (cell.verdict, cell.differing) == ("deterministic", 0)
        assert cell.orders is not None
        assert cell.orders.differing >= 5 if differs else cell.orders.distinct == 1 < cell.orders.executions


def test_a_program_that_waits_for_another_ends_in_a_line(ours: Rows) -> None:
    """In the order in which it runs first nobody answers it."""
    row = ours["waits"]

    assert row.finding == "inconclusive"
    assert row.off.verdict == "error"
    assert "a program waits for another one, which runs later in the interpreter" in str(row.off.reason)


def test_orders_are_the_same_in_every_process(ours: Rows) -> None:
    """Their numbers are their seeds: both modes saw the same bits, and so would whoever scans again."""
    first, second = (
        next(one for one in ours["scatter_add"].observations if one.mode == mode).groups[-1].digests
        for mode in ("off", "on")
    )

    assert first == second


def test_the_kernel_of_the_guide(detmatrix_process: Command, tmp_path: Path) -> None:
    """It scans by the command below it."""
    guide = (HERE.parent / "opspecs" / "README.md").read_text(encoding="utf-8")
    _, _, section = guide.partition("### A Triton kernel, without a GPU")
    (tmp_path / "my_kernels.py").write_text(
        section.split("```")[1].removeprefix("python\n"), encoding="utf-8"
    )
    assert "scan --specs my_kernels.py 'mine.*' --perturb quiet,order\n" in section
    words = ("--specs", "my_kernels.py", "mine.*", "--perturb", "quiet,order", "--device", "cpu", "--no-cost")
    done = detmatrix_process("scan", *words, "--processes", "1", "--no-overloads")

    assert done.returncode == 0, done.stderr
    (row,) = load([str(tmp_path / "detmatrix.jsonl")])[0].rows
    assert row.finding == "order_dependent"


def test_locate_finds_the_launch(detmatrix_process: Command) -> None:
    """The line of the launch whose order decides, what it reached, and no other one."""
    program = HERE / "triton_specs.py"
    done = detmatrix_process("locate", "--order", "--format", "json", program)
    assert done.returncode == 1, done.stderr
    (root,) = json.loads(done.stdout)["roots"]
    line = next(
        number for number, text in enumerate(program.read_text().splitlines(), 1) if "add_up[" in text
    )

    assert (root["cause"], root["site"]["op"]) == ("order", "triton::add_up")
    assert (
        root["site"]["line"].items()
        >= {"file": str(program), "line": line, "function": "scatter_add"}.items()
    )
    assert root["site"]["library"] is None
    assert (root["executions"], root["calls"]) == (4, 1)
    assert root["differing"] == 4
    assert root["reached"] == 3
    assert json.loads(done.stdout)["launches"] == 2
