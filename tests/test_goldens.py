"""Every command that reads files prints what is approved, and the approved texts show all that a run file can hold.

After a wanted change ``nox -s goldens`` writes the texts again; read their diff.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import unified_diff
from itertools import islice
from pathlib import Path
from typing import Any, get_args

import click
import msgspec
import pytest

from detmatrix.reports.render import NARROW
from detmatrix.scanner.cli.main import COMMANDS, load
from detmatrix.scanner.modes import WORKER_MODES
from detmatrix.scanner.observations.records import OfRow, Outcome, Record
from detmatrix.scanner.observations.runfile import RunReader, read_run
from detmatrix.scanner.verdicts.findings import matrix
from detmatrix.scanner.verdicts.vocabulary import FINDING_MEANING, VERDICT_MEANING
from tests.goldens import APPROVED, LINES, NAMES, Goldens

# They run code, or print nothing of what they write but why they refuse it; tests/test_explain.py holds the pages of a site.
NOT_READ_ONLY = {"scan", "merge", "check", "site"}
# Fields of files that go on, or that are merged, which tests of `merge` and `--resume` read.
NOT_SHOWN = {
    "Header.began",
    "Header.continues",
    "Header.file",
    "Invariance.worker",
    "Output.sample",  # tests/test_comparison.py holds what compare tells of it
    "Part.began",
    "Part.file",
    "Row.part",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that the command lines run in."""
    return tmp_path_factory.mktemp("goldens")


@pytest.fixture(scope="module")
def goldens(folder: Path) -> Goldens:
    """Return what renders the goldens."""
    return Goldens(folder)


@pytest.mark.parametrize("name", NAMES)
def test_output_is_approved(goldens: Goldens, folder: Path, name: str) -> None:
    """A command prints exactly the approved text, and writes into no run."""
    path = APPROVED / name
    approved = path.read_text(encoding="utf-8") if path.exists() else ""
    before = {path: path.read_bytes() for path in folder.glob("*.jsonl*")}
    shown = goldens.render(name)
    after = {path: path.read_bytes() for path in before}
    differing = unified_diff(approved.splitlines(), shown.splitlines(), "approved", "shown", n=1, lineterm="")

    assert shown == approved, "\n".join(["nox -s goldens approves:", *islice(differing, 40)])
    assert after == before


def test_no_line_of_a_report_is_wider_than_a_terminal() -> None:
    """Whatever a scan was asked for."""
    shown = [name for name, line in LINES.items() if line.startswith("report ") and "--format text" in line]
    printed = {
        name: (APPROVED / name).read_text("utf-8").partition("\n")[2].partition("\n[exit")[0]
        for name in shown
    }

    assert len(shown) > 9
    assert {
        name: max(map(len, text.splitlines())) > NARROW for name, text in printed.items()
    } == dict.fromkeys(shown, False)


def test_no_approved_text_is_left_behind() -> None:
    """Each file there begins with its command line, or is one of the scripts."""
    assert {path.name for path in APPROVED.iterdir()} == set(NAMES)
    # A text that goes takes its command line with it: one more or less is told here.
    assert len(NAMES) == 329


def test_no_approved_text_obeys_a_hostile_name() -> None:
    """No control character, no line of a name's own, no element of its own, in whatever is approved of `locate`."""
    texts = {path.name: path.read_text("utf-8") for path in APPROVED.glob("locate-*")}
    assert {name for name, text in texts.items() if "script" in text} >= {
        "locate-parting.html",
        "locate-parting.md",
    }
    assert not [name for name, text in texts.items() if "⟨1b⟩" in text or "\n# y" in text]
    assert not [name for name, text in texts.items() if "<script>|" in text and name.endswith("html")]


def test_every_format_of_every_command_is_approved() -> None:
    """A new command that reads files, or a new format, has no way around a golden."""
    approved = {tuple(line.split()) for line in LINES.values()}
    missing = []
    for name in COMMANDS.keys() - NOT_READ_ONLY:
        command: click.Command = load(COMMANDS[name][0])
        choices = [
            form for option in command.params if option.name == "form" and isinstance(option.type, click.Choice)
            for form in option.type.choices
        ]  # fmt: skip
        lines = [words for words in approved if words[0] == name]
        shown = {words[words.index("--format") + 1] for words in lines if "--format" in words}
        missing += [f"{name} {form}" for form in set(choices) - shown]
        missing += [] if lines else [name]

    # A report for PyTorch has inputs that a torch draws: tests/test_docs_lists.py holds it.
    assert missing == ["docs pr"]


def _fields_said(value: Any) -> Iterator[str]:
    """Yield the fields of records that hold something other than their default."""
    if isinstance(value, msgspec.Struct):
        for field in msgspec.structs.fields(value):
            inner = getattr(value, field.name)
            default = field.default_factory() if callable(field.default_factory) else field.default
            if field.required or inner != default:
                yield f"{type(value).__name__}.{field.name}"
            yield from _fields_said(inner)
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _fields_said(inner)
    elif isinstance(value, (tuple, list)):
        for inner in value:
            yield from _fields_said(inner)


def test_runs_show_every_field(goldens: Goldens, folder: Path) -> None:
    """A new field of a run file is set in a run that is rendered."""
    assert goldens
    readers = [RunReader(path) for path in (*folder.glob("*.jsonl"), folder / "simulated.jsonl.gz")]
    records = [record for reader in readers for record in (reader.header, *reader.records())]
    said = {field for record in records for field in _fields_said(record)}
    known = {
        f"{record.__name__}.{field.name}" for record in _records() for field in msgspec.structs.fields(record)
    }

    assert known - said == NOT_SHOWN


def _records() -> set[type[Record]]:
    found = {*Record.__subclasses__(), *OfRow.__subclasses__()} - {OfRow}
    return {record for record in found if record.__module__.endswith("records")}


def test_runs_show_every_word(goldens: Goldens, folder: Path) -> None:
    """Two runs have every mode, one of them outcome, verdict and finding, so that no format leaves one out unseen."""
    assert goldens
    run = read_run(folder / "run.jsonl")
    rows = list(matrix(run.header, run.observations, closed=True))

    assert {one.outcome for one in run.observations} == set(get_args(Outcome))
    seen = {one.mode for name in ("run", "gpu") for one in read_run(folder / f"{name}.jsonl").observations}
    assert seen == set(WORKER_MODES)
    assert {one.finding for one in rows} == set(FINDING_MEANING)
    assert {cell.verdict for one in rows for cell in (one.off, one.on)} == set(VERDICT_MEANING)
