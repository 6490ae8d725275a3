"""Every command that reads files prints what is approved, which shows all that a run file can hold; and mutants of a run are rendered.

After a wanted change ``nox -s goldens`` writes the texts again; read their diff.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator
from difflib import unified_diff
from itertools import islice
from pathlib import Path
from typing import Any, get_args

import click
import msgspec
import pytest

from detmatrix.reports.matrix import model
from detmatrix.reports.render import NARROW
from detmatrix.scanner.cli.main import COMMANDS, load
from detmatrix.scanner.errors import EXIT_RUN_FILE, DetmatrixError
from detmatrix.scanner.modes import WORKER_MODES
from detmatrix.scanner.observations.merge import merge
from detmatrix.scanner.observations.records import OfRow, Outcome, Record
from detmatrix.scanner.observations.runfile import RunReader, read_run
from detmatrix.scanner.repro.script import invariance_script, script
from detmatrix.scanner.verdicts.findings import matrix
from detmatrix.scanner.verdicts.vocabulary import FINDING_MEANING, VERDICT_MEANING
from tests import tied
from tests.commands import command_in
from tests.conftest import lines, write_lines
from tests.goldens import APPROVED, LINES, NAMES, Goldens, prepare
from tests.mutants import INPUT_SOURCE, Mutants

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


# Renders goldens by their names where no torch is.
ELSEWHERE = """
import sys, tempfile
from pathlib import Path
sys.modules["torch"] = None
from tests.goldens import APPROVED, Goldens
goldens = Goldens(Path(tempfile.mkdtemp()))
for name in sys.argv[1:]:
    assert goldens.render(name) == (APPROVED / name).read_text("utf-8"), name
"""


def test_another_process_prints_the_same() -> None:
    """Nothing depends on the folder, on how strings are hashed, or on a torch."""
    names = [name for name, line in LINES.items() if RUN in line.split()]
    done = tied.run([sys.executable, "-c", ELSEWHERE, *names], env=os.environ | {"PYTHONHASHSEED": "2"})

    assert (done.returncode, done.stderr) == (0, "")
    assert {name.partition("-")[0] for name in names} == {"report", "docs", "compare", "explain", "coverage"}


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
    assert len(NAMES) == 333


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

    # A report for PyTorch that says something has inputs that a torch draws: tests/test_docs.py holds it.
    assert missing == []


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


# What the reader admits every command can render: run files with random changes end in a report or in one line.

RUN = "run.jsonl"
# Of goldens that read the run which shows everything: a command line for each command and format.
OF_THE_RUN = {
    (line.split()[0], *line.partition("--format ")[2].split()[:1]): line
    for line in LINES.values()
    if RUN in line.split()
}
ACTIONS = (*OF_THE_RUN.values(), f"compare weak.jsonl {RUN} --fail-on change", "scripts", "merge")


def _is_rendered(folder: Path, action: str) -> bool:
    """Do something with the run in a folder, and tell whether it was read; what is refused is refused in a line."""
    if action not in {"scripts", "merge"}:
        done = command_in(folder)(*action.split())
        assert done.returncode in range(EXIT_RUN_FILE + 1)
        assert done.stdout or done.stderr or "--into" in action
        return done.returncode != EXIT_RUN_FILE
    with contextlib.suppress(DetmatrixError):
        (_write_scripts if action == "scripts" else _merge)(folder / RUN)
        return True
    return False


def _write_scripts(path: Path) -> None:
    (one,) = model.load([str(path)])
    for planned in one.rows:
        assert script(INPUT_SOURCE, planned, one.run.header)
        for what in planned.invariance:
            # One that was not tried is refused in a line.
            with contextlib.suppress(DetmatrixError):
                invariance_script(INPUT_SOURCE, planned, one.run.header, what)


def _merge(path: Path) -> None:
    """Merge a run as the only shard of its plan: a merged one is refused."""
    header, _, rest = path.read_text(encoding="utf-8", errors="surrogateescape").partition("\n")
    shard = path.with_name("shard.jsonl")
    alone = json.dumps(json.loads(header) | {"parts": [], "shards": 1, "shard": 1})
    shard.write_text(f"{alone}\n{rest}", encoding="utf-8", errors="surrogateescape")
    assert list(merge([shard])[2])


def _all_render(folder: Path, seed: int, count: int, seconds: float = 1e9) -> None:
    """Do one of the actions with each mutant, the next one when one was read."""
    prepare(folder)
    mutants = Mutants(folder / RUN, seed)
    until, rendered = time.monotonic() + seconds, 0
    for number in range(count):
        if time.monotonic() > until:
            break
        mutants.write(folder / RUN)
        action = ACTIONS[rendered % len(ACTIONS)]
        try:
            rendered += _is_rendered(folder, action)
        except Exception as error:
            # pytest shows what was raised; which file it was is known here.
            error.add_note(f"{action}, seed {seed}, mutant {number}: {folder / RUN}")
            raise
    assert rendered > number / 10


@pytest.mark.parametrize("seed", range(2))
def test_mutants_are_rendered_or_refused(tmp_path: Path, seed: int) -> None:
    """600 of them, the same each time; nightly 50 000."""
    _all_render(tmp_path, seed, 300)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(100, 104))
def test_many_mutants_are_rendered_or_refused(tmp_path: Path, seed: int) -> None:
    """50 000 of them, or as many as two minutes are enough for."""
    _all_render(tmp_path, seed, 12_500, seconds=30)


# What ended in a traceback before the reader refused it or reports knew it: (kind of line, change).
FOUND: dict[str, tuple[str, dict[str, Any]]] = {
    "controls": ("header", {"torch": "1" * 5000}),
    "controls, executions": ("observation", {"executions": 10**30, "digests": {"a": 10**30}, "groups": []}),
    "matrix model, inputs": ("observation", {"inputs": [f"args[0]: float32 ({'9' * 5000})"]}),
    "matrix model, product": ("observation", {"inputs": [f"args[0]: float32 ({', '.join(['9' * 18] * 600)})"]}),
    "matrix model, sums": ("cost", {"off_memory": 2**63 - 1, "on_memory": 2**64}),
    "power": ("sentinel", {"executions": 10**400, "differing": 10**399}),
    "cost": ("cost", {"off": dict.fromkeys(("median", "low", "high"), 1e-320)}),
    "cost, large": ("cost", {"on": dict.fromkeys(("median", "low", "high"), 1.7e308)}),
    "severity": ("observation", {"outputs": [{"name": "o", "shape": [-1], "dtype": "x" * 99, "differing": 10**400}]}),
    "compare cost": ("cost", {"on": dict.fromkeys(("median", "low", "high"), 1e-323)}),
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_mutants_that_were_not_rendered(tmp_path: Path, name: str) -> None:
    """Every command over each of them."""
    kind, change = FOUND[name]
    prepare(tmp_path)
    records = lines(tmp_path / RUN)
    for record in records:
        if record["kind"] == kind and record.get("outcome", "ran") == "ran":
            (record["environment"] if kind == "header" else record).update(change)
    write_lines(tmp_path / RUN, records)

    assert len({_is_rendered(tmp_path, action) for action in ACTIONS}) == 1
