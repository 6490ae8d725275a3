"""``import detmatrix as dm``: what the guide shows works, loads what it needs alone, and says in a line what cannot be done."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import detmatrix as dm
from tests.conftest import table
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
        eval(asked, {"dm": dm, "RUN": RECORDED[0]})
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
    code = """import torch
import wsgiref.util as _, wsgiref
LIMIT, x, y = float("inf"), [8], [9]
def step(x: "Nothing", most=LIMIT) -> None:
    y = [x[z] for z in range(4)]
    x = wsgiref.util.guess_scheme({"HTTPS": "on"}) and torch.ones(4)
    return torch.stack(y).clamp(max=most) + 1 if y else step(x)
x = torch.ones(4)
"""
    exec(_as_cells(code), space)
    checked = dm.check(space["step"], (space["x"],), device="cpu", runs=2, output=kept)

    assert checked.finding == "deterministic"
    assert f"({kept})" in " ".join(str(checked).split())
    assert dm.read(kept).rows["spec"].tolist() == ["step.step"]
