"""What tables of cuDNN's engines show, recorded ones and one made by hand; and how cuDNN is asked for them."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from detmatrix.reports.cudnn import changes, expected_engines
from detmatrix.scanner.cases.catalog import load_catalog
from detmatrix.scanner.cases.rows import known_rows
from detmatrix.scanner.cudnn import take as taking
from detmatrix.scanner.cudnn.problems import PROBLEMS, Problem, is_convolution, layer_of
from detmatrix.scanner.cudnn.record import TF32, Engine, EngineCell, EngineTable, encode, first_place, ways
from detmatrix.scanner.errors import BuildError, UsageError
from detmatrix.scanner.gpu import build
from detmatrix.scanner.observations.records import Row
from tests.commands import Command
from tests.conftest import refused, table
from tests.runs import row

ENGINES = Path(__file__).parent.parent / "reports" / "engines"
VERSIONS = ("9.10.2", "9.19.0", "9.20.0", "9.24.0", "9.26.0", "9.28.0")
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
    gpus = {"H100": "described"}
    return EngineTable(
        tool="detmatrix 0", cudnn=cudnn, driver="stub", gpus=gpus, problems=(layer,), cells=cells
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
    paths = [word for it in VERSIONS for word in ("--read", str(ENGINES / f"cudnn-{it}.json.gz"))]

    assert detmatrix("cudnn", *paths, "--format", "md").stdout == (ENGINES / "changes.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", "not a table of engines (it is JSON of another kind); give a file"),
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


# --- What a row of the matrix is told of cuDNN's engines: those of recorded layers like its own case, and of no others.

CATALOG = [one for one in known_rows("cuda:0", load_catalog(())) if is_convolution(one)]


@pytest.mark.parametrize("one", CATALOG, ids=lambda one: one.id)
def test_every_case_of_the_catalog_is_a_layer(one: Row) -> None:
    """What its generator calls the op with on CUDA agrees with what the case is named for, and with its traits."""
    layer = layer_of(one)
    assert layer is not None
    kind, named = layer.problem.kind, one.case

    assert (kind.dims, layer.problem.transposed) == (int(one.op[-2]), "transpose" in one.op)
    assert kind.grouping == next((word for word in ("depthwise", "grouped") if word in named), "")
    assert (kind.strided, kind.dilated) == ("strided" in named, "dilated" in named)
    assert kind.pointwise == (named == "single_product")
    assert layer.layout == one.traits.get("memory_format", "contiguous")
    of = [name for name in ("input", "weight", "bias") if named.endswith(f"{name}_grad")]
    gradients = {"input": ("data gradient",), "weight": ("weight gradient",), "bias": ()}
    assert layer.gradients == (gradients[of[0]] if of else layer.gradients)
    assert named != "batch" or layer.gradients == ("data gradient", "weight gradient")


@pytest.mark.parametrize(("named", "torch", "told"), table("engines.txt", "expected"))
def test_a_row_counts_layers_like_its_case(named: str, torch: str, told: str) -> None:
    """Where none is recorded it says so, and of builds whose wheel is not known nothing."""
    name, case, direction, dtype = named.split()
    op = f"torch.nn.functional.{name.lower().replace('transpose', '_transpose')}"
    planned = row(f"torch.nn.{name}", case, direction, dtype, op=op)  # type: ignore[arg-type]

    assert (expected_engines(planned, torch) or "none") == told


# What the process that loads cuDNN says: against a cuDNN of a few lines of C, whose answers are known.

LAYER = PROBLEMS[0]


@pytest.fixture(scope="module")
def library() -> Path:
    """Compile the fake once."""
    try:
        build.compiler()
    except UsageError as error:
        pytest.skip(str(error))
    source = (Path(__file__).parent / "data" / "fake_cudnn.c").read_text(encoding="utf-8")
    made = build.SharedLibrary("libcudnn.so.9", ("cudnn.c",))
    return build.built("fake-cudnn", {"cudnn.c": source}, [made]) / "libcudnn.so.9"


@pytest.fixture(autouse=True)
def _no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taking, "driver_is_there", lambda: False)


def _take(library: Path, *gpus: str) -> EngineTable:
    return taking.take(str(library), gpus or ("H100",), ["float32"], ["contiguous"], lambda _: None, [LAYER])


def test_engines_notes_and_order(library: Path) -> None:
    """Each accepted engine stands there with its notes, in the order of the heuristics, whatever cuDNN prints."""
    table = _take(library)

    assert (table.cudnn, table.driver, table.gpus) == ("9.28.0", "stub", {"H100": "described"})
    assert [cell.operation for cell in table.cells] == ["forward", "data gradient", "weight gradient"]
    for cell in table.cells:
        assert (cell.total, cell.order, cell.refused) == (3, (2, 0), None)
        assert cell.engines == (Engine(0, ()), Engine(2, ("NONDETERMINISTIC",)))


@pytest.mark.parametrize("how", ["crash", "unloads"])
def test_a_process_that_fails(library: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """One that fails at its end has said all that was asked; where heuristics end it the engines are kept without their order."""
    expected = _take(library, "B200", "H100").cells
    monkeypatch.setenv("FAKE_CUDNN", how)
    cells = _take(library, "B200", "H100").cells

    crashed = [cell for cell in cells if how == "crash" and cell.gpu == "B200"]
    assert [replace(cell, order=(2, 0), refused=None) if cell in crashed else cell for cell in cells] == [
        *expected
    ]
    assert all(cell.order == () and "heuristics end the process" in (cell.refused or "") for cell in crashed)
    assert how == "unloads" or "SIGABRT" in (crashed[0].refused or "")


def test_cudnn_without_described_gpus(
    detmatrix: Command, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cuDNN before 9.8 reads no description: one line says so."""
    monkeypatch.setenv("FAKE_CUDNN", "old")
    done = detmatrix("cudnn", "--library", str(library), "--arch", "H100")

    assert done.returncode == 3
    assert done.stderr.splitlines()[-1] == (
        f"detmatrix: {library}: cuDNN 9.28.0 cannot be told of GPUs that are not there (DEVICEPROP: set "
        "DEVICEPROP_JSON_REPRESENTATION: CUDNN_STATUS_BAD_PARAM); give one since 9.8"
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["--library", "libcudnn.so.9"],
            "without a GPU a C compiler is needed, and there is none: install cc",
        ),
        ([], "cudnn: there is no cuDNN beside this Python; install one with pip install 'detmatrix[cudnn]'"),
    ],
)
def test_what_must_be_installed(
    detmatrix: Command, monkeypatch: pytest.MonkeyPatch, words: list[str], told: str
) -> None:
    """One line says what: a compiler, or an extra."""
    monkeypatch.setattr(build, "find_spec", lambda _: None)
    monkeypatch.setenv("CC", "no-such-compiler")

    assert refused(detmatrix("cudnn", *words)).startswith(told)


@pytest.mark.usefixtures("library")
def test_library_that_is_none(tmp_path: Path) -> None:
    """A file that cannot be loaded is told in a line."""
    (tmp_path / "libcudnn.so.9").write_text("no library")

    with pytest.raises(BuildError, match=r"cannot be loaded \(.*\); install one with"):
        _take(tmp_path / "libcudnn.so.9")
