"""Sessions take versions and options out of their arguments; the rest goes to the command."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn

import pytest

ROOT = Path(__file__).parent.parent
LISTED = (
    "torch (2.15.0)\nAvailable versions: 2.16.0rc1, 2.15.0+cpu, 2.15.0, 2.14.1+cpu, 2.14.1, 2.14.0, 2.13.0\n"
)


class SessionError(Exception):
    """What a session stops with."""


def _stop(message: str) -> NoReturn:
    raise SessionError(message)


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


def _session(listed: str = LISTED) -> Any:
    return SimpleNamespace(error=_stop, run=lambda *_, **__: listed)


@pytest.mark.parametrize("given", [["2.13.0", "--ops", "a b", "x"], ["2.13.0", "--ops=a b", "x"]])
def test_options_are_taken_with_their_value(noxfile: ModuleType, given: list[str]) -> None:
    """An option may be written with = or without."""
    taken = noxfile._taken(_session(), given, "--ops")

    assert (taken, given) == ("a b", ["2.13.0", "x"])


def test_option_without_value_is_told(noxfile: ModuleType) -> None:
    """The last word of a command line may be an option that lacks its value."""
    with pytest.raises(SessionError, match="--ops needs a value"):
        noxfile._taken(_session(), ["2.13.0", "--ops"], "--ops")


def test_versions_are_taken_once_each(noxfile: ModuleType) -> None:
    """What is no version stays among the arguments, and what is named twice is scanned once."""
    arguments = ["2.13.0", "--cost", "2.15.0+cpu", "2.13.0", "2.15.0rc1"]

    assert noxfile._versions(_session(), arguments) == ["2.13.0", "2.15.0+cpu"]
    assert arguments == ["--cost", "2.15.0rc1"]


def test_newest_and_previous_are_releases(noxfile: ModuleType) -> None:
    """Pre-releases and builds of the same release are not the one before it."""
    assert noxfile._versions(_session(), ["previous", "newest"]) == ["2.14.1", "2.15.0"]


def test_index_that_says_nothing_is_told(noxfile: ModuleType) -> None:
    """Without a package index the words for releases mean nothing."""
    with pytest.raises(SessionError, match=re.escape("name versions")):
        noxfile._versions(_session(""), ["newest", "2.13.0"])


def test_recorded_runs_are_in_order_of_release(noxfile: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The timeline begins with the oldest release, which is not the first by name."""
    monkeypatch.chdir(ROOT)

    runs = [Path(run).name for run in noxfile.recorded("cpu")]

    assert runs[0] == "torch-2.1.2-cpu.jsonl.gz"
    assert runs[-1] == "torch-2.15.0-cpu.jsonl.gz"
    assert len(runs) >= 8


def test_recorded_censuses_are_of_builds_for_cuda(
    noxfile: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timeline is about one kind of build, and begins with the oldest."""
    monkeypatch.chdir(ROOT)

    censuses = [Path(census).name for census in noxfile.recorded_censuses()]

    assert censuses[0] == "torch-2.1.2-cu121.json.gz"
    assert censuses[-1] == "torch-2.15.0-cu132.json.gz"
    assert not [name for name in censuses if "cpu" in name]


def test_environment_has_what_the_databases_import(noxfile: ModuleType, tmp_path: Path) -> None:
    """NumPy and expecttest beside torch; one that was made without them is made anew, any other is kept."""
    (tmp_path / "torch-2.15.0").mkdir()
    (tmp_path / "torch-2.15.0" / "ready").touch()
    ran: list[tuple[str, ...]] = []
    session = SimpleNamespace(
        virtualenv=SimpleNamespace(location=str(tmp_path / "record")),
        log=lambda _: None,
        run=lambda *command, **_: ran.append(command),
    )

    python = noxfile.environment_of(session, "2.15.0")

    (installed,) = (command for command in ran if "install" in command)
    assert installed == (python, "-m", "pip", "install", "torch==2.15.0", "numpy", "expecttest")
    ran.clear()
    assert noxfile.environment_of(session, "2.15.0") == python
    assert not ran


@pytest.mark.parametrize(
    ("closing", "before", "kept"),
    [
        ("", "same", True),
        ('{"kind":"closing","distrust":[]}', "same", True),
        ('{"kind":"closing","distrust":["a control differed"]}', "same", False),
        ('{"kind":"closing","distrust":[]}', "other", False),
        ('{"kind":"closing","distrust":[]}', None, False),
    ],
)
def test_only_scans_of_the_same_interrupted_session_stay(
    noxfile: ModuleType, tmp_path: Path, closing: str, before: str | None, kept: bool
) -> None:
    """A run file of other ops, or one that cannot be trusted, is not compared with a new one."""
    run, unfinished = tmp_path / "run.jsonl", tmp_path / "unfinished"
    run.write_text(f'{{"kind":"header"}}\n{{"kind":"observation"}}\n{closing}\n', encoding="utf-8")
    if before is not None:
        unfinished.write_text(before, encoding="utf-8")

    noxfile._leave([run], unfinished, "same")

    assert run.exists() == kept
    assert unfinished.read_text(encoding="utf-8") == "same"


@pytest.mark.parametrize("marks", [(), ("alone",), ("nightly",), ("alone", "nightly")], ids=str)
def test_every_test_is_run_by_one_session_once(noxfile: ModuleType, marks: tuple[str, ...]) -> None:
    """Whatever a test is marked with, one call of pytest in one session selects it, and CI runs both sessions."""
    calls: list[tuple[str, ...]] = []
    session = SimpleNamespace(
        posargs=[],
        install=lambda *_: None,
        warn=lambda _: None,
        run=lambda *command, **_: calls.append(command),
    )

    for name in ("tests", "nightly"):
        getattr(noxfile, name).func(session)

    chosen = [command[command.index("-m") + 1] for command in calls if command[0] == "pytest"]
    names = {name: name in marks for name in ("alone", "nightly")}
    assert [bool(eval(expression, {}, names)) for expression in chosen].count(True) == 1
    text = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert all(f"python3 -m nox -s {name}\n" in text for name in ("tests", "nightly"))
