"""One table of settings: what it says of a setting holds on the command line, in a run file, on resuming, in reports."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from detmatrix.reports.matrix.words import rerun_options
from detmatrix.scanner.cases.settings import Plan, asked_for, settings_for
from detmatrix.scanner.cli import scan as scan_command
from detmatrix.scanner.errors import UsageError
from detmatrix.scanner.modes import with_chosen
from detmatrix.scanner.observations.settings import SETTINGS
from detmatrix.scanner.run.resume import begun
from tests.runs import write_run

OPTIONS = [name for name, setting in SETTINGS.items() if setting.option]
# Other than the default, as the command line writes it and as a run file holds it.
OTHER: dict[str, tuple[str, Any]] = {
    "device": ("cuda:1", "cuda:1"),
    "runs": ("7", 7),
    "processes": ("3", 3),
    "timeout": ("1.5", 1.5),
    "seed": ("9", 9),
    "modes": ("on,cudnn_both,backward_only", with_chosen(("backward_only", "cudnn_both"))),
    "perturb": ("threads,poison", ("poison", "threads")),
    "max_time": ("0.25", 0.25),
    "specs": ("my specs.py", ("my specs.py",)),
    "sources": ("all", ("documented", "opinfo", "modules")),
    "dtypes": ("float64,int8", ("float64", "int8")),
    "samples": ("5", 5),
}


def asked(monkeypatch: pytest.MonkeyPatch, options: Sequence[str]) -> Plan:
    """Return what ``detmatrix scan`` with some options would set out to do."""
    plans: list[Plan] = []

    def note(plan: Plan, _: object) -> None:
        plans.append(plan)
        raise KeyboardInterrupt

    monkeypatch.setattr(scan_command, "scan", note)
    scan_command.command.main(list(options), standalone_mode=False)
    (plan,) = plans
    return plan


def test_settings_that_are_not_asked_for_are_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bare command asks for nothing, and names all there is in its help."""
    plan = asked(monkeypatch, [])
    text = scan_command.command.get_help(scan_command.command.make_context("scan", []))

    assert (plan.settings, plan.said) == (asked_for(), frozenset())
    for name in OPTIONS:
        assert f"  {SETTINGS[name].option}" in text
        assert SETTINGS[name].label


def test_command_that_reruns_a_row_asks_for_what_was_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every setting that decides what an execution is stands in the command, and is read back as it was."""
    given = asked_for(**{name: value for name, (_, value) in OTHER.items()})

    again = asked(monkeypatch, shlex.split(rerun_options(given)))

    # Those of a simulated GPU stand in place of others.
    reruns = {name for name, setting in SETTINGS.items() if setting.reruns}
    assert reruns - {"simulate", "multiprocessors"} == OTHER.keys()
    assert replace(again.settings, patterns=()) == given


@pytest.mark.parametrize("name", sorted(OTHER.keys() - {"specs"}))
def test_scan_goes_on_only_with_the_settings_it_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    """What is asked for anew is refused, what is asked for as it was is not, nor what is not asked for."""
    path = tmp_path / "run.jsonl"
    option, (text, value) = SETTINGS[name].option, OTHER[name]
    at_first = settings_for(asked_for(sources=("opinfo",)), "cpu")
    command = ["--resume", "-o", str(path)]

    write_run(path, [], closing=None, settings=at_first)
    assert begun(asked(monkeypatch, command)) is not None
    with pytest.raises(UsageError, match=f"cannot be resumed, {option} is not the one it began with"):
        begun(asked(monkeypatch, [option, text, *command]))
    path.unlink()
    write_run(path, [], closing=None, settings=replace(at_first, **{name: value}))
    assert begun(asked(monkeypatch, [option, text, *command])) is not None
