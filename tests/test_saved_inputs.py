"""Inputs that ``locate --save`` kept, as scripts: what they execute, and what a file may not make them do."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import tied
from tests.commands import Command

torch = pytest.importorskip("torch")

GOOD = {"op": "aten::add.Tensor", "args": [torch.ones(3), 1], "kwargs": {}, "torch": "2.13.0"}


class Runs:
    """Is code, where whoever unpickles it lets it be."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("canary",)


def _saved(**changed: Any) -> dict[str, Any]:
    return GOOD | changed


@pytest.mark.nightly
def test_inputs_of_a_root_become_a_script(detmatrix: Command, tmp_path: Path) -> None:
    """It needs only torch, and shows what the program did: here an op that was planted by nobody, and is stable."""
    from detmatrix.scanner.locate.overloads import known  # noqa: PLC0415
    from detmatrix.scanner.locate.replay import RepeatedCall, save_inputs  # noqa: PLC0415

    add = torch.ops.aten.add_.Tensor
    call = RepeatedCall(known(add), add, (torch.arange(6.0), 1), {"alpha": 2})
    call.first()
    told = save_inputs(str(tmp_path / "kept"), 1, call)
    (saved,) = (tmp_path / "kept").iterdir()
    done = detmatrix("repro", saved, "-o", "again.py")
    assert done.returncode == 0
    ran = tied.run([sys.executable, "again.py"], cwd=tmp_path, env=os.environ | {"PYTHONPATH": ""})

    assert told == f"{saved} ({saved.stat().st_size} bytes)"
    assert ran.stdout.splitlines()[1:] == [
        "flag off: 0 of 99 differed from the first",
        "flag on: 0 of 99 differed from the first",
    ]
    assert ran.returncode == 0


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
