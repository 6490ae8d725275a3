"""What users are told of chosen columns: by explain, in the flat table, in a terminal, by filters and by checks."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from reports.matrix.columns import all_columns
from reports.matrix.model import load
from scanner.invariance import PROPERTIES
from scanner.modes import CHOSEN_MODES, Mode, with_chosen
from scanner.observations.records import Compiled, HeldReference, Observation
from scanner.verdicts.vocabulary import (
    BESIDE_MEANING,
    COLUMN_WORDS,
    DOUBTS,
    FINDING_MEANING,
    FINDING_WORDS,
    NO_SIGN,
)
from tests.commands import Command
from tests.conftest import one_line
from tests.evidence_runs import as_json
from tests.invariances import ASKED_CONTROLS, asked_of
from tests.runs import SETTINGS, drifting, ran, row, stable, write_run

TAKE = row("torch.take", "duplicates", family="gather")
OTHER = row("torch.take", "permutation", family="gather", provokes="")
MM = row("torch.mm", "batch", "backward")
READ = row("torch.mm", "batch", "forward")
GRAPH = Compiled(graphs=2, breaks=1, kernels=2)


def _both(planned: Any) -> list[Observation]:
    return [*ran(planned, "off", *stable()), *ran(planned, "on", *stable())]


@pytest.fixture
def compiled(tmp_path: Path) -> Path:
    """Return a run of an op that differs where it is compiled and not with the flag on, in one case."""
    seen = [*ran(TAKE, "compile_off", *drifting(40)), *ran(TAKE, "compile_on", *stable())]
    seen = [replace(one, compiled=GRAPH) for one in seen]
    settings = replace(SETTINGS, modes=with_chosen(("compile_off", "compile_on")))
    rows = [(TAKE, [*_both(TAKE), *seen]), (OTHER, _both(OTHER))]
    return write_run(tmp_path / "compiled.jsonl", rows, settings=settings)


@pytest.fixture
def asked(tmp_path: Path) -> Path:
    """Return a run of a row whose bits vary with its batch."""
    (record,) = asked_of(READ, {"batch": ("8 last",)})
    controls = [one for one in ASKED_CONTROLS if one.what == record.what]
    settings = replace(SETTINGS, invariance=("batch",))
    records = [replace(record, left_out=("grad of args[1]",)), *controls]
    return write_run(tmp_path / "asked.jsonl", [(READ, _both(READ))], settings=settings, invariances=records)


# --- explain


def _explained(detmatrix: Command, *arguments: object) -> dict[str, Any]:
    done = detmatrix("explain", *arguments, "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("on", "cached", "last"),
    [
        (stable(), stable(), "With torch.compile, set the flag."),
        (stable(), drifting(40), "or set the flag in every process that fills it."),
        (drifting(40), drifting(40), "under compile_on and compile_on_cached it differs though the flag is on."),
    ],
)  # fmt: skip
def test_explain_says_what_helps_against_a_cache(
    detmatrix: Command, tmp_path: Path, on: list[dict[str, int]], cached: list[dict[str, int]], last: str
) -> None:
    """The flag alone does not where another process has filled it; where compiled code differs without one, nothing is known to."""
    seen = [*_both(MM), *ran(MM, "compile_off", *drifting(40))]
    seen += [*ran(MM, "compile_on", *on), *ran(MM, "compile_on_cached", *cached)]
    settings = replace(SETTINGS, modes=with_chosen(("compile_off", "compile_on", "compile_on_cached")))
    path = write_run(tmp_path / "run.jsonl", [(MM, seen)], settings=settings)
    told = _explained(detmatrix, "mm", path)["action"]

    assert told.endswith(last)
    assert ("use a fresh folder (TORCHINDUCTOR_CACHE_DIR)" in told) == (on != cached)
    assert told.count("set the flag.") == (cached == stable())


def test_explain_joins_what_the_specs_of_an_op_show(detmatrix: Command, tmp_path: Path) -> None:
    """The worst of each column in any spec, and a script that shows it beside that of the worst row of off and on."""
    sample = replace(row("opinfo:take", "sample_0", "backward"), op="torch.take", source="opinfo")
    fixed = [*ran(TAKE, "off", *drifting(4)), *ran(TAKE, "on", *stable()), *ran(TAKE, "unfilled", *stable())]
    fixed += ran(TAKE, "compile_on", *stable())
    unlike = [replace(one, reference=HeldReference(digest="b", elements=2)) for one in _both(sample)]
    silent = ran(sample, "compile_on", *drifting(40))
    settings = replace(SETTINGS, modes=with_chosen(("compile_on",)))
    rows = [(TAKE, fixed), (sample, [*unlike, *silent])]
    path = write_run(tmp_path / "run.jsonl", rows, settings=settings)
    told = _explained(detmatrix, "take", path)

    assert told["finding"] == "fixed_by_mode"
    assert told["action"].startswith("In 1 row it did not match the reference of the case")
    assert told["action"].endswith("Under compile_on it differs though the flag is on (in 1 of 2 rows).")
    assert told["commands"] == [
        f"detmatrix repro {path} torch.take:duplicates:forward:float32",
        f"detmatrix repro {path} opinfo:take:sample_0:backward:float32",
    ]


def test_every_finding_of_a_column_has_its_words_and_signs(compiled: Path) -> None:
    """Whatever a scan may be asked for; filters and checks know each by one word."""
    (one,) = load([str(compiled)])
    settings = replace(SETTINGS, modes=with_chosen(CHOSEN_MODES), invariance=tuple(PROPERTIES))
    every = replace(one, run=replace(one.run, header=replace(one.run.header, settings=settings)))
    findings = {finding for column in all_columns([every]) for finding in column.findings}

    assert len(all_columns([every])) == len(CHOSEN_MODES) + len(PROPERTIES)
    assert all(COLUMN_WORDS[it].phrase and COLUMN_WORDS[it].sign != NO_SIGN for it in findings)
    assert findings | {*FINDING_MEANING, *BESIDE_MEANING, *DOUBTS} == set(FINDING_WORDS)


# --- Tables


def test_an_op_is_sent_to_its_worst_result(detmatrix: Command, tmp_path: Path) -> None:
    """Whichever column stands first: what differs though the flag is on before other bits."""
    modes: tuple[Mode, ...] = ("forward_only", "compile_on")
    seen = [*_both(MM), *ran(MM, "forward_only", *stable("b")), *ran(MM, "compile_on", *drifting(40))]
    rows = [(MM, seen), (READ, [*_both(READ), *ran(READ, "compile_on", *stable())])]
    path = write_run(tmp_path / "run.jsonl", rows, settings=replace(SETTINGS, modes=with_chosen(modes)))

    assert as_json(path)["ops"][0]["action"] == "see compile_on"
    assert _explained(detmatrix, "mm", path)["commands"] == [
        f"detmatrix repro {path} torch.mm:batch:backward:float32"
    ]


# --- Filters and checks


def test_checks_fail_on_what_bits_depend_on(detmatrix: Command, asked: Path) -> None:
    """Exit 1 and one line; no other word fails it."""
    done = detmatrix("report", asked, "--fail-on", "varies")

    assert done.returncode == 1
    assert one_line(done.stderr) == (
        "detmatrix: --fail-on varies: 1 row of 1 op: varies with another batch: torch.mm (1 row)"
    )
    assert detmatrix("report", asked, "--fail-on", "not_repeatable,differs").returncode == 0


@pytest.mark.parametrize("command", ["report", "scan"])
def test_help_names_the_findings_of_columns(detmatrix: Command, command: str) -> None:
    """Each of them."""
    told = " ".join(detmatrix(command, "--help").stdout.split())

    assert all(re.search(rf" {word}[,;.]", told) for word in FINDING_WORDS)
