"""What tables of cuDNN's engines show, recorded ones and one made by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from detmatrix.reports.cudnn import changes
from detmatrix.scanner.cudnn.problems import Problem
from detmatrix.scanner.cudnn.record import TF32, Engine, EngineCell, EngineTable, encode, first_place, ways
from tests.commands import Command
from tests.conftest import refused

ENGINES = Path(__file__).parent.parent / "reports" / "engines"
RECORDED = [
    ENGINES / f"cudnn-{version}.json.gz"
    for version in ("9.10.2", "9.19.0", "9.20.0", "9.24.0", "9.26.0", "9.28.0")
]
TENSOR_CORES, RACING, DOWN = (
    Engine(1, ("TENSOR_CORE",)),
    Engine(2, ("NONDETERMINISTIC",)),
    Engine(3, ("DOWN_CONVERT_INPUTS",)),
)


def _cell(
    dtype: str = "float32", layout: str = "contiguous", order: tuple[int, ...] = (3, 1, 2)
) -> EngineCell:
    return EngineCell("H100", "data gradient", 0, dtype, layout, 9, (TENSOR_CORES, RACING, DOWN), order)


def _table(*cells: EngineCell, cudnn: str = "9.28.0") -> EngineTable:
    layer = Problem("Net\x1b[2J | <b>", "conv1", 1, 3, (8, 8), 4, 3, padding=1)
    return EngineTable(
        tool="detmatrix 0",
        cudnn=cudnn,
        driver="stub",
        gpus={"H100": "described"},
        problems=(layer,),
        cells=cells,
    )


def test_what_pytorch_tries() -> None:
    """Without TF32 tensor cores go, so that the nondeterministic engine moves up; what converts inputs down always goes."""
    both = ways(_cell())

    assert both == {TF32: (TENSOR_CORES, RACING), "float32": (RACING,)}
    assert ways(_cell("float16")) == {"float16": (TENSOR_CORES, RACING)}
    assert (first_place(both[TF32]), first_place(both["float32"]), first_place((DOWN,))) == (2, 1, None)


@pytest.mark.parametrize("form", ["md", "html"])
def test_changes(detmatrix: Command, tmp_path: Path, form: str) -> None:
    """Of two tables the layers are named where the first engine changed, and their text stays text."""
    for name, order in (("old.json", (1, 2)), ("new.json", (2, 1))):
        (tmp_path / name).write_text(encode(_table(_cell("float16", order=order), cudnn=name)))
    done = detmatrix("cudnn", "--read", "old.json", "--read", "new.json", "--format", form)

    assert done.returncode == 0
    assert "<b>" not in done.stdout.partition("old.json to new.json")[2].partition("Accepted engines")[0]
    assert "newly first" in done.stdout
    assert "no longer first" not in done.stdout
    assert ("\x1b" in done.stdout) is (form == "html")


def test_a_dtype_whose_order_is_unknown_is_no_change() -> None:
    """Neither has it come where the older release leaves it to the fallback list, nor has it gone the other way."""
    half = _cell("float16", order=(2, 1))
    known, unknown = (_table(half, _cell("bfloat16", order=order)) for order in ((2, 1), ()))

    steps = changes([unknown, known, unknown])["steps"]
    assert [(step["newly_first"], step["no_longer_first"]) for step in steps] == [([], []), ([], [])]


def test_recorded_changes_are_those_of_the_tables(detmatrix: Command) -> None:
    """The page in the repository is what the command writes of the recorded tables."""
    paths = [word for path in RECORDED for word in ("--read", str(path))]

    assert detmatrix("cudnn", *paths, "--format", "md").stdout == (ENGINES / "changes.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", "not a table of engines; give a file that detmatrix cudnn wrote"),
        ('{"kind": "cudnn", "format": 99}', "written in table of engines format 99"),
        ('{"kind": "cudnn", "format": 1}', "required field"),
        (encode(_table(_cell())).replace('"problem":0', '"problem":7'), "a problem that is not there"),
    ],
)
def test_damaged_table(detmatrix: Command, tmp_path: Path, text: str, expected: str) -> None:
    """What cannot be read is one line."""
    (tmp_path / "table.json").write_text(text)
    done = detmatrix("cudnn", "--read", "table.json")

    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert expected in done.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--arch", "K80", "--library", "x"], "--arch: no GPU 'K80' is described; choose: V100, A100, H100, B200, present"),
        (["--read", "x", "--arch", "H100"], "--read renders a recorded table; leave --library and --arch out"),
        (["-o", "x.json.gz"], "x.json.gz: a table is written plain; choose a name without .gz, compress it later"),
    ],
)  # fmt: skip
def test_usage(detmatrix: Command, arguments: list[str], expected: str) -> None:
    """What cannot be done is one line."""
    assert refused(detmatrix("cudnn", *arguments)) == expected
