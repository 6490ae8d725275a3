"""Functions of the user's, and ``import detmatrix as dm``: what the guides show works, and what cannot be done is said in a line."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import detmatrix as dm
from detmatrix.opspecs.user import load_specs
from detmatrix.reports.cli.check import view_of_function, with_gradients
from detmatrix.reports.explain import RENDERERS as EXPLAINED
from detmatrix.reports.matrix.model import load, matrix_of
from detmatrix.scanner.observations.records import MODES
from detmatrix.scanner.worker.execution import describe
from tests.commands import Command, scanned_in
from tests.conftest import refused, table
from tests.runs import ran, row, stable, write_run
from tests.stand_in import StandIn

ROOT = Path(__file__).parent.parent
RECORDED = [str(ROOT / f"reports/runs/torch-{release}-cpu.jsonl.gz") for release in ("2.13.0", "2.15.0")]
GUIDE = (ROOT / "reports" / "README.md").read_text(encoding="utf-8")
# A call such as ``step(x)`` of one that a module, a number and itself are all that it needs.
CELL = "import torch\nSIZE = 8\ndef step(x):\n    return torch.ones(SIZE) + x if x else step(1)\n"


@pytest.mark.parametrize("workers", ["stand-ins", pytest.param("torch", marks=pytest.mark.nightly)])
def test_the_example_runs_as_cells_of_a_notebook(tmp_path: Path, workers: str) -> None:
    """Each statement of the guide; the values that it shows are those that the commands print."""
    python = str(StandIn(tmp_path).python) if workers == "stand-ins" else sys.executable
    (example,) = re.findall(r"## From Python\n\n```python\n(.*?)```", GUIDE, flags=re.DOTALL)
    shown = ["import detmatrix"]
    shown += [f"detmatrix.{name}.__kwdefaults__['python'] = {python!r}" for name in ("scan", "check")]
    for node in ast.parse(example).body:
        text = ast.unparse(node)
        shown.append(f"print({text})" if isinstance(node, ast.Expr) else text)
    code = "\n".join(shown).replace("'changes.html'", repr(str(tmp_path / "changes.html")))
    done = subprocess.run(
        [sys.executable, "-c", _as_cells(code)], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert re.search(r"torch\.take\s+fixed_by_mode\s+set the flag", done.stdout)
    assert re.search(r"On CPU \(torch 2\.\d+\.\d+\): Set the flag", done.stdout)
    assert re.search(r"^same +683$", done.stdout, flags=re.MULTILINE)
    assert "overwrite" in done.stdout
    assert "\ndeterministic\n" in done.stdout
    assert (tmp_path / "changes.html").read_text().startswith("<!DOCTYPE html>")


def _as_cells(code: str) -> str:
    """Return code that executes a text as notebooks do: its source is known to linecache alone."""
    return (
        f"import linecache\ncode = {code!r}\n"
        "linecache.cache['<cell>'] = (len(code), None, code.splitlines(True), '<cell>')\n"
        "exec(compile(code, '<cell>', 'exec'), globals())\n"
    )


def test_results_are_what_the_commands_write(tmp_path: Path) -> None:
    """Text, JSON, and each format by its name; a table for a notebook."""
    run = dm.read(RECORDED[0], rows=["take"])
    run.write(tmp_path / "take.csv")

    assert str(run) in run.render("text")
    assert run.json["rows"][0]["spec"] == "torch.take"
    assert (tmp_path / "take.csv").read_text() == run.render("csv")
    assert len(run.rows) == 6
    # Numbers and booleans with gaps stay what they are, and the file says the same.
    typed = ("off_runs", "cost_ratio", "serial")
    assert [run.rows[name].dtype.name for name in typed] == ["Int64", "Float64", "boolean"]
    assert run.rows.to_csv(index=False, na_rep="NA", lineterminator="\n") == run.render("csv")
    assert not run.distrust
    assert "<td>torch.take</td>" in run._repr_html_()
    assert dm.explain("take", RECORDED[0])._repr_markdown_().startswith("## `torch.take`")


@pytest.mark.parametrize(("asked", "says"), table("api.txt", "refused"))
def test_what_cannot_be_done_is_said_in_a_line(asked: str, says: str) -> None:
    """An error of ours, not a traceback of a process."""
    with pytest.raises(dm.DetmatrixError, match=re.escape(says)) as caught:
        eval(asked, {"dm": dm, "ast": ast, "RUN": RECORDED[0]})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("size", ["[8]", "np.float64(8)"])
def test_a_function_that_needs_more_than_modules_is_refused(size: str) -> None:
    """A cell's function takes what it needs as arguments; another process has no others."""
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(_as_cells(CELL.replace("SIZE = 8", f"import numpy as np\nSIZE = {size}")), space)

    with pytest.raises(dm.DetmatrixError, match="uses SIZE, which another process does not have"):
        dm.check(space["step"])


def test_what_a_cell_has_of_the_same_names_does_not_matter(tmp_path: Path) -> None:
    """Arguments, locals and its own name are the function's; numbers go with it, those that no literal writes too."""
    kept = tmp_path / "kept.jsonl"
    kept.write_text("of an earlier scan")
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(_as_cells((ROOT / "tests/data/cell.py.txt").read_text()), space)
    checked = dm.check(space["step"], (space["x"],), device="cpu", runs=2, output=kept)

    assert checked.finding == "deterministic"
    assert f"({kept})" in " ".join(str(checked).split())
    assert dm.read(kept).rows["spec"].tolist() == ["step.step"]


# ``detmatrix check``: a function of the user's becomes the same row as any other.

FILE = Path(__file__).with_name("checked.py")


@pytest.fixture
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter whose workers say what those of torch say of the function below."""
    described = {"do": "describe", "then": {"directions": ["forward", "backward"]}}
    varies = {"do": "observe", "spec": "checked.varies", "direction": "forward", "then": "vary"}
    return str(StandIn(tmp_path_factory.mktemp("python"), described, varies).python)


def test_function_is_scanned_like_an_op(detmatrix: Command, tmp_path: Path, python: str) -> None:
    """It differs with the flag on and says nothing: silent. Its gradients are compared too; the run is kept if asked for."""
    done = detmatrix(
        *("check", f"{FILE}:varies", "--inputs", f"{FILE}:pair", "--device", "cpu", "--runs", 2),
        *("--format", "json", "-o", "run.jsonl", "--python", python),
    )

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    (run,) = found["measured"]
    assert found["finding"] == "silent"
    assert found["action"].startswith("The flag does not help. Look for what it draws without a seed")
    assert [case["finding"] for case in run["cases"]["forward"]] == ["silent"]
    assert [row for case in run["cases"]["backward"] for row in case["rows"]] == [
        "checked.varies:inputs:backward:float32"
    ]
    report = json.loads(detmatrix("report", "run.jsonl", "--format", "json").stdout)
    assert {row["source"] for row in report["rows"]} == {"own"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.jsonl"]


@pytest.mark.nightly
def test_what_needs_the_flag_and_the_fill_is_told_by_output(detmatrix: Command, tmp_path: Path) -> None:
    """What the flag fixes is not put down to the memory that nobody wrote beside it; the script says no other thing."""
    function, inputs = f"{FILE}:needs_both", f"{FILE}:constant"
    done = detmatrix(
        "check", function, "--inputs", inputs, "--device", "cpu", "--runs", 20, "-o", "run.jsonl"
    )
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())
    assert "forward: fixed_by_mode" in text
    assert "nothing filled output[1] still differed, output[0] did not: both are needed" in text
    assert "Leave torch.utils.deterministic.fill_uninitialized_memory on: inputs needs both." in text

    row = "checked.needs_both:inputs:forward:float32"
    done = detmatrix("repro", "run.jsonl", row, "--specs", f"{function}({inputs})", "-o", "repro.py")
    assert done.returncode == 0, done.stderr
    assert "both are needed." in " ".join(
        (tmp_path / "repro.py").read_text().partition("import")[0].split("\n# ")
    )
    said = subprocess.run(
        [sys.executable, "repro.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "finding: fixed_by_mode" in said.stdout


def test_function_that_fails_has_no_verdict(detmatrix: Command, tmp_path: Path) -> None:
    """Exit 1, with the error and the line of the user's file."""
    failed = {"outcome": "raised", "exception": "ValueError", "message": "no such luck, checked.py, line 28"}
    standing = StandIn(tmp_path, {"do": "observe", "spec": "checked.broken", "then": failed})

    done = detmatrix("check", f"{FILE}:broken", "--python", standing.python, "--runs", 2)

    assert done.returncode == 1
    text = " ".join(done.stdout.split())
    assert "forward: inconclusive" in text
    assert "ValueError: no such luck, checked.py, line 28" in text
    assert "WHAT TO DO Fix the exception, then run check again." in text
    assert "COST OF THE FLAG" not in text


def test_serial_function_has_no_bound(tmp_path: Path) -> None:
    """Where one thread did all the work nothing could race: n says nothing, and the text says why."""
    function = row("checked.constant")
    seen = [one for mode in MODES for one in ran(function, mode, *stable(), threads=1)]
    (one,) = load([str(write_run(tmp_path / "run.jsonl", [(function, seen)]))])
    view = view_of_function(one, "run.jsonl", None)

    text = " ".join("".join(EXPLAINED["text"](view)).split())
    assert (
        "no difference in 1 row; 1 serial serial: one thread did all the work, so nothing could race" in text
    )
    assert "rate <" not in text


def test_what_only_the_workers_can_import(detmatrix: Command, tmp_path: Path) -> None:
    """A file that imports what this interpreter lacks is executed by the workers' alone; its functions are found all the same."""
    standing, path = StandIn(tmp_path), tmp_path / "away.py"
    path.write_text("import not_here_at_all\ndef kernel(): pass\n", encoding="utf-8")

    assert detmatrix("check", f"{path}:kernel", "--python", standing.python, "--runs", 2).returncode == 0
    assert "did you mean kernel?" in refused(
        detmatrix("check", f"{path}:kernal", "--python", standing.python)
    )


@pytest.mark.parametrize(("function", "directions"), table("api.txt", "inputs"))
def test_rows_are_those_of_the_inputs(function: str, directions: str) -> None:
    """Backward is run where an input requires grad, and the dtype is that of what can be differentiated."""
    (spec,) = load_specs(f"{FILE}:{function.replace('(', f'({FILE}:')}")

    found = describe(spec, "inputs", device="cpu", seed=0)
    assert found == {"directions": directions.split(), "dtype": "float32"}


def test_functions_are_given_what_their_users_give_them(tmp_path: Path) -> None:
    """The same in every process, weights of the file included, in the kinds they were made in, with gradients and where they count."""
    expected = {tuple(key.split()): finding for key, finding in table("api.txt", "given")}
    path = tmp_path / "mine.py"
    path.write_text((ROOT / "tests" / "data" / "given.py.txt").read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "helper.py").write_text("def twice(x):\n    return x * 2\n", encoding="utf-8")
    functions = dict.fromkeys(function.replace("(", f"({path}:") for function, _ in expected)
    named = [word for one in functions for word in ("--specs", f"{path}:{one}")]
    patterns = [f"mine.{one.partition('(')[0]}" for one in functions]

    run = scanned_in(
        tmp_path, *patterns, *named, "--device", "cpu", "--runs", 4, "--no-cost", "--no-overloads"
    )

    matrix = matrix_of("run.jsonl", run)
    found = {(one.row.spec, one.row.direction): one.finding for one in matrix.rows}
    known = {
        (f"mine.{function.partition('(')[0]}", direction): finding
        for (function, direction), finding in expected.items()
    }
    assert found == known
    # ``check`` counts no gradient as open that there is none of.
    settled = {(one.row.spec, one.row.direction): one.finding for one in with_gradients(matrix).rows}
    assert settled == {row: finding for row, finding in known.items() if finding != "inconclusive"}


def test_example_of_the_guide(tmp_path: Path) -> None:
    """The function of the guide is called with what the one above it returns, and differentiated."""
    guide = (ROOT / "opspecs" / "README.md").read_text(encoding="utf-8")
    example, arguments = re.findall(
        r"```python\n(.*?)```\n\n +detmatrix check (.+?) #", guide, flags=re.DOTALL
    )[0]
    path = tmp_path / "my.py"
    path.write_text(example, encoding="utf-8")
    function, _, inputs = arguments.split()

    (spec,) = load_specs(f"{path}{function.removeprefix('my.py')}({path}{inputs.removeprefix('my.py')})")
    answer = describe(spec, "inputs", device="cpu", seed=0)

    assert answer == {"directions": ["forward", "backward"], "dtype": "float32"}
