"""What sameness leans on, in every report: low power, sentinels, constants, n."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from msgspec.structs import replace

from reports.cli.report import RENDERERS
from scanner.observations.records import MODES, Group
from tests.evidence_runs import (
    FORCING,
    cost,
    only,
    quiet_row,
    sentinel,
    text,
    under,
)
from tests.page_data import results
from tests.runs import ENVIRONMENT, RUNS, Planned, drifting, raised, ran, row, stable, write_run


def test_serial_rows_are_marked_in_every_report(tmp_path: Path) -> None:
    """A row that did not differ and that one thread did is marked and counted; one that is not known to be so is not."""
    alone, several, raced, innocent = (
        row("torch.cumsum", case, provokes=provokes)
        for case, provokes in (("alone", "much"), ("several", "much"), ("raced", "much"), ("innocent", ""))
    )
    rows = [
        (alone, [one for mode in MODES for one in ran(alone, mode, *stable(), threads=1)]),
        (several, [one for mode in MODES for one in ran(several, mode, *stable(), threads=2)]),
        (raced, [*ran(raced, "off", *drifting(4), threads=1), *ran(raced, "on", *stable(), threads=1)]),
        (innocent, [*ran(innocent, "off", *stable(), threads=1), *ran(innocent, "on", *stable(), threads=2)]),
    ]
    path = write_run(tmp_path / "run.jsonl", rows)
    one = only(path)
    message, page = text("md", path), text("html", path)

    assert [it.serial for it in one.rows] == [True, False, False, True]
    assert (one.serial, one.serial_provoking) == (2, 1)
    assert "Serial: one thread did all the work in 2 of 4 rows (1 of them provoking)" in message
    assert message.count("| deterministic (n = 100 per mode), serial |") == 2
    serial = [result["serial"] == "serial" for result in results(page)]
    assert sum(serial) == 2
    # Where nothing could race, 0 of n bounds nothing.
    assert [len(result["cells"][1]["told"]) == 1 for result in results(page)] == serial
    assert page.count('id="serial-0"') == 1
    data = json.loads(text("json", path))
    assert (data["serial"], [it["serial"] for it in data["rows"]]) == (2, [True, False, False, True])
    assert "serial" in text("csv", path).splitlines()[0].split(",")
    # What CI is told: a passed row says that it is serial, and a notice how many are.
    passed = {
        it.attrib["name"]: it.findtext("system-out")
        for it in ET.fromstring(text("junit", path)).iter("testcase")
    }
    assert [name.partition(":")[0] for name, said in passed.items() if said] == ["alone", "innocent"]
    said = "deterministic (n = 100 per mode), serial: With the flag off one thread did"
    assert str(passed["alone:forward:float32"]).startswith(said)
    assert "::notice file=" in text("github", path)
    assert "Serial: one thread did all the work in 2 of 4 rows" in text("github", path)
    # What was scanned before this was measured says of no row that it is serial; with one thread all are of low power.
    unknown = [(planned, [replace(it, threads=None) for it in seen]) for planned, seen in rows]
    assert only(write_run(tmp_path / "old.jsonl", unknown)).serial == 0
    single = replace(ENVIRONMENT, threads=1)
    assert only(write_run(tmp_path / "single.jsonl", rows, environment=single)).serial == 0


def test_hostile_evidence_stays_text(tmp_path: Path) -> None:
    """Names of sentinels, alerts and constants from a run file are neither markup nor elements."""
    bad = "<b>x</b> | **y** [l](http://e) `z`"
    one = row("torch.op", constant=bad)
    digests = {"o": 5}
    groups = (
        *under(quiet=(RUNS, 0)),
        Group(perturbation="threads=1", executions=5, differing=0, digests=digests),
    )
    still = [o for mode in MODES for o in ran(one, mode, *stable(), blank="zeros", groups=groups)]
    loud = row("torch.loud")
    seen = [
        *ran(loud, "off", *stable()),
        *raised(loud, "on", bad),
        *ran(loud, "warn_only", *drifting(), alerts=(bad,)),
    ]
    path = write_run(
        tmp_path / "r.jsonl",
        [(one, still), (loud, seen)],
        settings=replace(FORCING, perturb=("quiet", "threads")),
        sentinels=[replace(sentinel(differing=0), op=bad)],
        costs=[cost(one, 1e-5, 9e-5)],
        controls=[quiet_row(row(f"control.{bad}"))],
        closing=None,
    )
    message, page = text("md", path), text("html", path)
    tokens = MarkdownIt("commonmark").enable("table").parse(message)
    inline = [token for outer in tokens for token in [outer, *(outer.children or [])]]

    assert not [token for token in inline if token.type in ("html_block", "html_inline", "link_open")]
    assert not [token for token in inline if "x" in token.content and token.type == "strong_open"]
    assert "<b>x" not in page
    assert page.count("<script") == 6
    lines = [line.replace("\\|", "") for line in message.splitlines() if line.startswith("| `torch.")]
    assert [line.count("|") for line in lines if "float32 |" in line] == [10, 10]


# Constants, n.


@pytest.mark.parametrize("form", RENDERERS)
def test_old_files_render(tmp_path: Path, form: str) -> None:
    """A file of format 1, which knows nothing of all this, gives every report, each with its words for it."""
    plan: list[Planned] = [quiet_row(), (row("torch.put"), raised(row("torch.put"), "on", "put_"))]
    message = text(form, write_run(tmp_path / "old.jsonl", plan, format_=1))

    # An annotation is about what needs one.
    assert form == "github" or "cumsum" in message
    assert form != "md" or "raises; warn_only not run" in message
