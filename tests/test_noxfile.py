"""Sessions read versions and options of their own; the rest goes to the command."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from unittest.mock import Mock

import pytest

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


CLOSED, OPEN = '{"kind":"closing"}', '{"kind":"observation"}'


@pytest.mark.parametrize(
    ("name", "posargs", "last", "expected"),
    [
        ("scan", "", "", "--python python-2.13.0 -o detmatrix.jsonl"),
        ("scan", "--torch 2.11.0 torch.cumsum --runs 5", "",
         "torch.cumsum --runs 5 --python python-2.11.0 -o detmatrix.jsonl"),
        ("scan", "--python=py -oa.jsonl --resume x", "", "--resume x --python py -o a.jsonl"),
        ("simulate", "", "", "--simulate sm_80 --python cuda-2.15.0 -o detmatrix-simulated.jsonl"),
        ("simulate", "--torch 2.11.0 --arch sm_90 torch.cumsum -- --runs 16", "",
         "torch.cumsum --runs 16 --simulate sm_90 --python cuda-2.11.0 -o detmatrix-simulated.jsonl"),
        ("simulate", "--torch=newest -oa.jsonl", "", "--simulate sm_80 --python cuda-2.15.0 -o a.jsonl"),
        # Running a session again scans again, or goes on with what was interrupted; a file that was named is the user's business.
        ("scan", "", CLOSED, "--force --python python-2.13.0 -o detmatrix.jsonl"),
        ("scan", "", OPEN, "--resume --python python-2.13.0 -o detmatrix.jsonl"),
        ("scan", "-o detmatrix.jsonl", CLOSED, "--python python-2.13.0 -o detmatrix.jsonl"),
        ("scan", "--resume", CLOSED, "--resume --python python-2.13.0 -o detmatrix.jsonl"),
    ],
)  # fmt: skip
def test_scan_passes_on_what_is_not_its_own(
    noxfile: ModuleType, linux: Path, name: str, posargs: str, last: str, expected: str
) -> None:
    """The session chooses build and GPU; patterns and options are those of a scan, and a page follows."""
    if last:
        (linux / "detmatrix.jsonl").write_text(f"{last}\n", encoding="utf-8")
    session = _session(*posargs.split())

    getattr(noxfile, name).func(session)

    scanned, page = _ran(session)[-2:]
    run = expected.rsplit(maxsplit=1)[-1]
    assert scanned == ("detmatrix", "scan", *expected.split())
    assert page == ("detmatrix", "report", run, "--format", "html", "-o", run.replace("jsonl", "html"))


@pytest.mark.parametrize(
    ("name", "posargs", "text"),
    [
        ("compare", "2.13.0 2.15.0 --ops", "--ops: expected one argument"),
        ("compare", "2.13.0 2.15.0 --op x", "unrecognized arguments: --op"),
        ("compare", "2.13.0 torch.cumsum", "torch.cumsum is no version of torch, such as 2.13.0"),
        ("compare", "2.13.0 2.13.0", "name two or more versions"),
        # Without a package index the words for releases mean nothing.
        ("compare without an index", "newest 2.13.0", "name versions"),
        *(("simulate", f"--torch {build}", f"{build} is a build without CUDA; name the release")
          for build in ("2.15.0+cpu", "2.15.0+xpu", "2.9.1+rocm6.4")),
        ("simulate on arm64", "--torch newest", "Linux on x86-64"),
    ],
)  # fmt: skip
def test_wrong_arguments_end_the_session_in_a_line(
    noxfile: ModuleType, monkeypatch: pytest.MonkeyPatch, linux: Path, name: str, posargs: str, text: str
) -> None:
    """What is wrong is named before anything is installed."""
    name, _, where = name.partition(" ")
    if where == "on arm64":
        monkeypatch.setattr(noxfile.platform, "machine", lambda: "arm64")
    session = _session(*posargs.split(), listed="" if where == "without an index" else LISTED)

    with pytest.raises(SystemExit, match=re.escape(text)):
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
