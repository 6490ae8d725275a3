"""The scripts of ``detmatrix repro`` show what the scan showed, and need nothing but torch."""

from __future__ import annotations

import ast
import os
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from detmatrix.opspecs.model import Planned
from detmatrix.scanner.modes import Mode
from detmatrix.scanner.observations.runfile import Run, read_run
from detmatrix.scanner.processes.process import worker_environment
from detmatrix.scanner.repro.script import script
from detmatrix.scanner.verdicts.cells import GroupCount
from detmatrix.scanner.verdicts.findings import MatrixRow, matrix
from tests import tied
from tests.commands import Command, command_in
from tests.conftest import DATA, approved_lines, is_approved, one_line, refused
from tests.runs import drifting, ran, row, stable, write_run
from tests.scripts import PLANTED, SEED, asked

# Rows of a fresh scan, and what they show.
SHOWN = {
    "torch.Tensor.put_:overwrite:forward:float32": "raises",
    "torch.Tensor.put_:overwrite_permutation:forward:float32": "over_alert",
    "torch.take:collisions:backward:float32": "fixed_by_mode",
    "torch.empty:floating:forward:float32": "uninitialized",
    "torch.Tensor.resize_:grow_quantized:forward:quint8": "raises",
    "torch.topk:tied_short_rows:forward:float32": "deterministic",
    "torch.sparse.mm:coo_sparse_grad:backward:float32": "deterministic",
    "mine.by_mode:only:forward:float32": "mode_dependent",
    "mine.noisy:only:forward:float32": "silent",
    "mine.fails:only:forward:float32": "inconclusive",
    "mine.missing:only:forward:float32": "inconclusive",
}


@pytest.fixture(scope="module")
def scanned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scan a few rows, and return the run file."""
    folder = tmp_path_factory.mktemp("scanned")
    (folder / "planted.py").write_text(PLANTED, encoding="utf-8")
    patterns = [name for name in SHOWN if not name.startswith("mine.")]
    done = command_in(folder)(
        "scan", *patterns, "mine.*", "--specs", "planted.py", "--device", "cpu", "--runs", 40, "--processes", 1,
        "--seed", SEED, "--perturb", "quiet,poison", "--no-cost", "--no-overloads", "-o", "run.jsonl",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / "run.jsonl"


def rows_of(run: Run) -> dict[str, MatrixRow]:
    return {one.row.id: one for one in matrix(run.header, run.observations, closed=True)}


def disturbed(found: MatrixRow, *names: str) -> MatrixRow:
    """Return a row that differs under these perturbations alone, under one in each mode."""
    quiet = GroupCount(perturbation="quiet", executions=4, differing=0)
    groups = [GroupCount(perturbation=name, executions=4, differing=3) for name in names]
    cells = [replace(found.off, differing=3, groups=(quiet, group)) for group in groups]
    modes: tuple[Mode, ...] = ("off", "on", "warn_only")
    return replace(found, cells=found.cells | dict(zip(modes, cells, strict=False)))


@pytest.fixture(scope="module")
def printed(scanned: Path) -> dict[str, str]:
    """Write the scripts of the scanned rows, and one under perturbations; run them, and return what they print."""
    run = read_run(scanned)
    found = {name: rows_of(run)[name] for name in SHOWN}
    found["disturbed"] = disturbed(
        found["torch.topk:tied_short_rows:forward:float32"], "stress", "shift", "poison"
    )
    places = []
    for number, one in enumerate(found.values()):
        planned = Planned(one.row.spec, one.row.case, one.row.direction, one.row.dtype)
        source = asked(planned, specs=[str(scanned.parent / "planted.py")])
        places.append(scanned.parent / f"{number}.py")
        places[-1].write_text(script(source, one, run.header), encoding="utf-8")
    # In forks of one process that has loaded torch and done nothing with it: loading takes seconds.
    command = [sys.executable, "-I", DATA / "forks.py.txt", *places]
    options: dict[str, Any] = {"env": worker_environment("off", "cpu"), "capture_output": True, "text": True}
    done = tied.run(command, cwd="/", **options)
    assert done.returncode == 0, done.stderr
    texts = done.stdout.split("script: ")[1:]
    return dict(zip(found, (text.partition("\n")[2] for text in texts), strict=True))


@pytest.mark.alone
@pytest.mark.parametrize("name", SHOWN)
def test_script_shows_what_the_scan_showed(name: str, scanned: Path, printed: dict[str, str]) -> None:
    """Verdict by verdict it finds what the report says, and forces ops that raise to run."""
    expected = rows_of(read_run(scanned))[name]

    about, *lines = printed[name].splitlines()

    message = dict(line.split(": ", 1) for line in lines)
    assert SHOWN[name] == expected.finding == message.pop("finding"), printed[name]
    build = f"torch {torch.__version__}, CUDA {torch.version.cuda}"
    assert about == f"{build}, {torch.get_num_threads()} threads, cpu"
    cells = {"off": expected.off, "on": expected.on}
    if expected.on.verdict == "raises":
        cells["warn_only"] = expected.warn_only
    if expected.finding in {"fixed_by_mode", "uninitialized"}:
        cells["unfilled"] = expected.unfilled
    verdicts = {mode: cell.verdict.replace("not_run", "error") for mode, cell in cells.items()}
    assert verdicts == {mode: text.partition(":")[0] for mode, text in message.items()}


@pytest.mark.alone
def test_script_runs_under_perturbations(printed: dict[str, str]) -> None:
    """What brings perturbations about works, together too, and makes nothing differ that does not."""
    assert printed["disturbed"].splitlines()[1:] == [
        "off: deterministic: 0 of 40 differed, 1 distinct",
        "on: deterministic: 0 of 40 differed, 1 distinct",
        "finding: deterministic",
    ]


@pytest.mark.alone
def test_script_alone(scanned: Path, tmp_path: Path) -> None:
    """A script of the command line runs in processes of its own, in an empty folder, with torch and nothing of ours."""
    name = "torch.Tensor.put_:overwrite:forward:float32"
    place = tmp_path / "script.py"

    wrote = command_in(scanned.parent)("repro", scanned.name, name, "-o", place)
    done = tied.run([sys.executable, "-I", place], cwd=tmp_path)

    assert (wrote.returncode, wrote.stdout, wrote.stderr) == (0, "", "")
    assert (done.returncode, done.stderr) == (0, "")
    words = [line.partition(" ")[0] for line in done.stdout.splitlines()]
    assert words == ["torch", "off:", "on:", "warn_only:", "finding:"]
    assert done.stdout.endswith("finding: raises\n")


@pytest.mark.alone
@pytest.mark.usefixtures("printed")
def test_scripts_import_torch_alone(scanned: Path) -> None:
    """The standard library and torch are imported, whatever the op's own module imports; of it there is what the op needs alone."""
    planted = set(re.findall(r"^def (\w+)", PLANTED, re.MULTILINE))
    for number, name in enumerate(SHOWN):
        nodes = list(ast.walk(ast.parse((scanned.parent / f"{number}.py").read_text(encoding="utf-8"))))

        imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        imported |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
        assert {one.partition(".")[0] for one in imported} <= sys.stdlib_module_names | {"torch"}
        defined = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
        op = name.partition(":")[0].removeprefix("mine.")
        assert defined & planted == ({"scaled", op} if op == "by_mode" else {op} & planted)


@pytest.mark.alone
@pytest.mark.parametrize(("words", "expected"), approved_lines("refusals-repro.txt"))
def test_what_cannot_be_done_is_told_in_a_line(
    words: str, expected: str, scanned: Path, tmp_path: Path
) -> None:
    """Each exits with 2: what happened, where, what to do."""
    (scanned.parent / "broken.py").write_text("SPECS = (\n1 / 0,)", encoding="utf-8")
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n', encoding="utf-8")
    bare.chmod(0o755)

    done = command_in(scanned.parent)(*words.replace("{BARE}", str(bare)).split())

    assert is_approved(refused(done, progress=("repro: ",)), expected.replace("{BARE}", str(bare)))


def test_other_inputs_are_told(detmatrix: Command, tmp_path: Path) -> None:
    """A script that draws other inputs than the run did is written, and the reader is told."""
    planned = row("torch.Tensor.put_", "overwrite")
    observed = [*ran(planned, "off", *drifting()), *ran(planned, "on", *stable())]
    # Of the kind that digests have now; what an older file holds says nothing.
    write_run(tmp_path / "run.jsonl", [(planned, [replace(one, inputs_digest="2:0") for one in observed])])

    done = detmatrix("repro", "run.jsonl", planned.id)

    assert done.returncode == 0
    assert "the inputs drawn here are not those of the run" in one_line(done.stderr)
    compile(done.stdout, "script", "exec")


# --- Inputs that ``locate --save`` kept, as scripts: what they execute, and what a file may not make them do


GOOD = {"op": "aten::add.Tensor", "args": [torch.ones(3), 1], "kwargs": {}, "torch": "2.13.0"}


class Runs:
    """Is code, where whoever unpickles it lets it be."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("canary",)


def _saved(**changed: Any) -> dict[str, Any]:
    return GOOD | changed


@pytest.fixture
def executed(
    detmatrix: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Any:
    """Return a function that runs the script of a file in this process; returns its exit code and what it printed."""
    monkeypatch.setenv("OMP_PROC_BIND", "true")
    monkeypatch.setattr(sys, "argv", ["again.py", "--here"])
    monkeypatch.chdir(tmp_path)

    def run(content: Any) -> tuple[int, str, str]:
        if isinstance(content, bytes):
            (tmp_path / "saved.pt").write_bytes(content)
        else:
            torch.save(content, tmp_path / "saved.pt")
        assert detmatrix("repro", "saved.pt", "-o", "again.py").returncode == 0
        with pytest.raises(SystemExit) as ended:
            runpy.run_path("again.py", run_name="__main__")
        printed = capsys.readouterr()
        return ended.value.code, printed.out, printed.err  # type: ignore[return-value]

    yield run
    torch.use_deterministic_algorithms(False)


def test_inputs_of_a_root_become_a_script(executed: Any, tmp_path: Path) -> None:
    """It shows what the program did: here an op that was planted by nobody, and is stable."""
    from detmatrix.scanner.locate.overloads import known  # noqa: PLC0415
    from detmatrix.scanner.locate.replay import RepeatedCall, save_inputs  # noqa: PLC0415

    add = torch.ops.aten.add_.Tensor
    call = RepeatedCall(known(add), add, (torch.arange(6.0), 1), {"alpha": 2})
    call.first()
    told = save_inputs(str(tmp_path / "kept"), 1, call)
    (saved,) = (tmp_path / "kept").iterdir()

    code, printed, _ = executed(saved.read_bytes())

    assert told == f"{saved} ({saved.stat().st_size} bytes)"
    assert (code, *printed.splitlines()[1:]) == (
        0, "flag off: 0 of 99 differed from the first", "flag on: 0 of 99 differed from the first",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "is no file that detmatrix locate --save wrote (EOFError)"),
        (b"PK\x03\x04nothing", "is no file that detmatrix locate --save wrote ("),
        (_saved(args=[torch.ones(3), Runs()]), "is no file that detmatrix locate --save wrote (UnpicklingError)"),
        (Runs(), "is no file that detmatrix locate --save wrote (UnpicklingError)"),
        ([1, 2], "is no file that detmatrix locate --save wrote (TypeError)"),
        ({"op": "aten::add.Tensor"}, "is no file that detmatrix locate --save wrote (KeyError)"),
        (_saved(kwargs=[1]), "is no file that detmatrix locate --save wrote (AttributeError)"),
        (_saved(op=5), "is no file that detmatrix locate --save wrote (TypeError)"),
        (_saved(op="aten::from_file", args=["again.py"]), "holds no inputs of an op"),
        (_saved(op="aten::add.Tensor\n\x1b[31m"), "holds no inputs of an op"),
        (_saved(op="os::mkdir"), "os::mkdir: this torch has no such op"),
        (_saved(op="aten::__class__"), "aten::__class__: this torch has no such op"),
    ],
)  # fmt: skip
def test_a_crafted_file_is_one_line(executed: Any, tmp_path: Path, content: Any, text: str) -> None:
    """Nothing of it is executed but an op of the dispatcher, and no traceback is shown."""
    code, printed, complained = executed(content)

    assert (code, printed) == (2, "")
    assert text in complained
    assert complained.count("\n") == 1
    assert complained.strip().isprintable()
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (_saved(args=[torch.ones(3)]), "flag off: raised RuntimeError: "),
        (_saved(args=[torch.ones(3), {"torch": "no\x1bdevice"}]), "flag off: raised RuntimeError: "),
        (_saved(args=[torch.ones(3), {"x": 1}]), "flag off: raised KeyError: "),
        (_saved(torch="2\x1b[31m", args=[torch.ones(3)]), "recorded with torch 2?[31m, "),
    ],
)
def test_inputs_that_fit_no_op_are_told(executed: Any, content: Any, text: str) -> None:
    """They may be those of another torch: nothing was compared, which is no 0 of 99."""
    code, printed, complained = executed(content)

    assert (code, complained) == (2, "")
    assert text in printed
    assert all(one.isprintable() for one in printed.splitlines())
    assert len(printed.splitlines()) == 3


def test_an_op_that_takes_its_process_with_it_is_one_line(detmatrix: Command, tmp_path: Path) -> None:
    """A crafted file may give an op what no program can: here indices far outside of a sparse tensor."""
    crash = [torch.full((1, 1), 1 << 40), torch.ones(1), [4]]
    torch.save(_saved(op="aten::_sparse_coo_tensor_unsafe", args=crash), tmp_path / "saved.pt")
    assert detmatrix("repro", "saved.pt", "-o", "again.py").returncode == 0
    ran = tied.run([sys.executable, "again.py"], cwd=tmp_path)

    assert ran.returncode == 2
    assert ran.stderr == f"{tmp_path / 'saved.pt'}: the op ended its process with SIGSEGV\n"
