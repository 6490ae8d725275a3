"""Sessions read versions and options of their own; the rest goes to the command."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from unittest.mock import Mock

import pytest

from tests.conftest import approved_lines

ROOT = Path(__file__).parent.parent
LISTED = (
    "torch (2.15.0)\nAvailable versions: 2.16.0rc1, 2.15.0+cpu, 2.15.0, 2.14.1+cpu, 2.14.1, 2.14.0, 2.13.0\n"
)


@pytest.fixture(scope="module")
def noxfile() -> ModuleType:
    """The noxfile as a module."""
    spec = importlib.util.spec_from_file_location("noxfile", ROOT / "noxfile.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        # The sessions read pyproject.toml beside it.
        patch.chdir(ROOT)
        spec.loader.exec_module(module)
    return module


def _session(*posargs: str, listed: str = LISTED) -> Mock:
    """Return a session that runs nothing, and would be told of these releases."""
    return Mock(posargs=posargs, **{"error.side_effect": sys.exit, "run.return_value": listed})


def _ran(session: Mock) -> list[tuple[str, ...]]:
    """Return the commands that a session would run."""
    return [one.args for one in session.run.call_args_list]


@pytest.fixture
def linux(noxfile: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty folder on a machine whose builds of torch can be simulated, and environments that are names."""
    for function, kind in (("environment_of", "python"), ("environment_for_cuda", "cuda")):
        monkeypatch.setattr(noxfile, function, lambda _, torch, kind=kind: f"{kind}-{torch}")
    monkeypatch.setattr(noxfile.sys, "platform", "linux")
    monkeypatch.setattr(noxfile.platform, "machine", lambda: "x86_64")
    monkeypatch.chdir(tmp_path)
    return tmp_path


LAST_LINES = {
    "a complete run is there": '{"kind":"closing"}',
    "an interrupted run is there": '{"kind":"observation"}',
}


@pytest.mark.parametrize(
    ("name", "posargs", "where", "expected"),
    approved_lines("sessions.txt", r"\$ nox -s (\w+)(?: -- (.*?))?(?: # (.*))?"),
)
def test_sessions_pass_on_what_is_not_their_own_or_refuse_it(
    noxfile: ModuleType, monkeypatch: pytest.MonkeyPatch, linux: Path, name: str, posargs: str, where: str, expected: str
) -> None:  # fmt: skip
    """The session chooses build and GPU; patterns and options are those of a scan, and a page follows."""
    session = _session(*posargs.split(), listed="" if where == "without a package index" else LISTED)
    if where in LAST_LINES:
        (linux / "detmatrix.jsonl").write_text(f"{LAST_LINES[where]}\n", encoding="utf-8")
    if where == "on arm64":
        monkeypatch.setattr(noxfile.platform, "machine", lambda: "arm64")

    if expected.startswith("detmatrix "):
        getattr(noxfile, name).func(session)
        scanned, page = _ran(session)[-2:]
        run = scanned[-1]
        assert scanned == tuple(expected.split())
        assert page == ("detmatrix", "report", run, "--format", "html", "-o", run.replace("jsonl", "html"))
    else:
        with pytest.raises(SystemExit, match=re.escape(expected)):
            getattr(noxfile, name).func(session)
        assert not session.install.called
        assert not [words for words in _ran(session) if "detmatrix" in words]
        assert not list(linux.iterdir())


@pytest.mark.parametrize("marks", [(), ("alone",), ("nightly",), ("alone", "nightly")], ids=str)
def test_every_test_is_run_by_one_session_once(
    noxfile: ModuleType, monkeypatch: pytest.MonkeyPatch, marks: tuple[str, ...]
) -> None:
    """Whatever a test is marked with, one call of pytest in one session selects it, and CI runs both sessions."""
    monkeypatch.setattr(noxfile, "environment_for_cuda", lambda *_: "python")
    session = _session()

    for name in ("tests", "nightly"):
        getattr(noxfile, name).func(session)

    chosen = [command[command.index("-m") + 1] for command in _ran(session) if command[0] == "pytest"]
    names = {name: name in marks for name in ("alone", "nightly", "planted")}
    assert [bool(eval(expression, {}, names)) for expression in chosen].count(True) == 1
    text = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert all(f"python3 -m nox -s {name}\n" in text for name in ("tests", "nightly"))
