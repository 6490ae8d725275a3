"""Older formats of the run file are read as what they are; the records of the newest are checked like the others."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from detmatrix.scanner.errors import RunFileError
from detmatrix.scanner.observations.records import FORMAT
from detmatrix.scanner.observations.runfile import Run, read_run
from detmatrix.scanner.verdicts.findings import matrix
from tests.commands import Command, scanned_in
from tests.conftest import lines, one_line, write_lines
from tests.stand_in import StandIn

SPECS = Path(__file__).with_name("quick.py")
OPTIONS = (
    "quick.cumsum", "--specs", SPECS, "--device", "cpu", "--runs", 4, "--processes", 1, "-o", "run.jsonl",
)  # fmt: skip
# Fields that came with formats 2 to 4, by the kind of line that has them.
NEW = {
    "header": {"controls"},
    "observation": {"groups", "blank", "alerts", "threads"},
    "closing": {"sentinels", "costs", "dispatches"},
}
NEW_SETTINGS = {"perturb", "confidence", "max_rate", "max_time", "cost", "overloads"}


@pytest.fixture(scope="module")
def scanned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scan a small op with everything on."""
    folder = tmp_path_factory.mktemp("formats")
    scanned_in(folder, *OPTIONS, "--python", StandIn(folder).python)
    return folder / "run.jsonl"


def _first_format(path: Path) -> list[dict[str, Any]]:
    """Return the records of a run as the first format would have held them."""
    header, *others = lines(path)
    controls = {(row["spec"], row["case"]) for row in header["controls"]}
    records = [header | {"format": 1}]
    settings = header["settings"].items()
    records[0]["settings"] = {name: value for name, value in settings if name not in NEW_SETTINGS}
    records[0]["settings"]["modes"] = ["off", "on"]
    records += [
        record
        for record in others
        if record["kind"] in NEW and (record.get("spec"), record.get("case")) not in controls
    ]
    for record in records:
        for name in NEW[record["kind"]]:
            del record[name]
        for row in record.get("planned", []):
            del row["constant"]
        for output in record.get("outputs", []):
            del output["severity"]
    records[-1]["observations"] = len(records) - 2
    return records


def _findings(run: Run) -> list[tuple[str, str, int]]:
    found = matrix(run.header, run.observations, closed=True, sentinels=run.sentinels, costs=run.costs)
    return [(row.row.id, row.finding, row.off.runs) for row in found]


def test_the_first_format_says_what_it_always_said(scanned: Path, tmp_path: Path) -> None:
    """A file of it gives the same findings; of what it did not hold nothing is made up."""
    old = read_run(write_lines(tmp_path / "old.jsonl", _first_format(scanned)))

    assert (old.header.format, {one.threads for one in old.observations}) == (1, {None})
    assert _findings(old) == _findings(read_run(scanned))
    assert (old.kernels, old.dispatches, old.controls, old.sentinels, old.costs) == (None, (), (), (), ())
    assert (old.header.settings.overloads, old.header.settings.perturb) == (False, ("quiet",))
    rows = list(matrix(old.header, old.observations, closed=True))
    assert [(row.cost, row.off.groups) for row in rows] == [(None, ())] * len(rows)
    # No sentinel is made up; that n is small is told of any format.
    assert not any("sentinel" in (row.weak or "") for row in rows)


def test_unfinished_scan_of_an_older_format_is_not_resumed(
    detmatrix: Command, scanned: Path, tmp_path: Path
) -> None:
    """Adding lines an older reader cannot read would break a file that says it can; the way out is told."""
    write_lines(tmp_path / "run.jsonl", _first_format(scanned)[:-1])

    done = detmatrix("scan", *OPTIONS, "--python", StandIn(tmp_path).python, "--resume")

    assert done.returncode == 2
    assert "cannot be resumed, its format is not the one it began with (10, it has 1)" in one_line(
        done.stderr
    )


Change = Callable[[list[dict[str, Any]]], object]


def _at(records: list[dict[str, Any]], kind: str) -> int:
    """Return the place of the first line of a kind."""
    return [record["kind"] for record in records].index(kind)


def _last(kind: str, **changes: object) -> Change:
    """Return a change to the last line of a kind."""
    return lambda records: records[-1 - _at(records[::-1], kind)].update(changes)


def _group(name: str, executions: int, differing: int = 0, **digests: int) -> dict[str, Any]:
    """Return a group as a run file holds it; one with digests was compared apart."""
    group = {"perturbation": name, "executions": executions, "differing": differing}
    return group | {"digests": digests} if digests else group


def _grouped(*groups: dict[str, Any], first: int | None = None) -> Change:
    """Return a change that makes the last observation one of four equal executions in groups."""
    return _last(
        "observation", outcome="ran", executions=4, digests={"a": 4}, outputs=[], first_differing=first,
        forward_differing=0, groups=list(groups),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (_last("sentinel", before=5), r"line \d+: the sentinel before row 5 \(process 0\) was never planned"),
        (_last("sentinel", process=7), r"the sentinel before row 4 \(process 7\) was never planned"),
        (_last("sentinel", mode="loud"), r"Invalid enum value 'loud' - at `\$.mode`"),
        (_last("cost", case="other"), r"the cost of quick.cumsum:other:\w+:float64 was never planned"),
        (_last("cost", off={"median": -1.0, "low": 0.0, "high": 0.0}), r"at `\$.off.median`"),
        (lambda records: records.insert(_at(records, "cost"), records[_at(records, "cost")]),
         r"the cost of quick.cumsum:small:forward:float32 stands twice \(first in line \d+\)"),
        (lambda records: records.pop(_at(records, "sentinel")),
         r"the scan closed with \d+ sentinels, the file holds \d+ - at `\$.sentinels`"),
        (_last("observation", groups=[_group("threads=1", 3, a=2)]),
         r"counts 3 executions under threads=1 but 2 digests - at `\$.groups`"),
        (_last("sentinel", executions=20, differing=20),
         (r", line \d+: the sentinel before row 4 counts 20 differing of 20 executions, the first included "
          r"- at `\$.differing`; restore the file$")),
        (_last("sentinel", executions=0, differing=1), r"counts 1 differing of 0 executions, .* `\$.differing`"),
        (_grouped(_group("quiet", 2), _group("poison", 2, 3)),
         (r", line \d+: the observation of \S+ counts 3 differing of 2 executions under poison "
          r"- at `\$.groups\[1\].differing`; restore the file$")),
        (_grouped(_group("quiet", 2), _group("threads=1", 2, 3, a=2)),
         r"counts 3 differing of 2 executions under threads=1 - at `\$.groups\[1\].differing`"),
        (_grouped(_group("quiet", 2), _group("poison", 1)),
         r": the observation of \S+ counts 4 executions but 3 in its groups - at `\$.groups`; restore the file$"),
        (_grouped(_group("quiet", 2), _group("poison", 3)), r"counts 4 executions but 5 in its groups"),
        (_grouped(_group("quiet", 2), _group("threads=1", 2, a=2)), r"counts 4 executions but 2 in its groups"),
        (_grouped(_group("threads=1", 4, a=4)), r"counts 4 executions but 1 in its groups"),
        (_grouped(_group("quiet", 2), _group("quiet", 2)),
         (r": the observation of \S+ has the executions under quiet twice - at `\$.groups\[1\].perturbation`; "
          r"restore the file$")),
        (_grouped(_group("quiet", 4), _group("threads=1", 2, a=2), first=6),
         r"names execution 6 of 6 as the first that differed - at `\$.first_differing`; restore the file$"),
        (lambda records: _last("cost", **{name: records[0]["controls"][0][name] for name in ("spec", "case", "direction", "dtype")})(records),
         r"the cost of control\.\S+ was never planned; restore the file$"),
        (_last("cost", outcome="ran", off=None),
         r": the cost of \S+ has no timing though the row ran - at `\$.off`; restore the file$"),
        (_last("cost", outcome="ran", on=None), r"has no timing though the row ran - at `\$.on`; restore"),
        (_last("dispatch", case="other"), r"the overloads of quick.cumsum:other:\w+:float64 was never planned"),
        (_last("dispatch", outcome="ran", modes={"off": {"overloads": []}}),
         r": the overloads of \S+ ran, and not in both modes - at `\$.modes`; restore the file$"),
        (lambda records: records.insert(-1, records[_at(records, "kernels")]),
         r"the list of overloads stands twice \(first in line \d+\)"),
        (lambda records: records.pop(_at(records, "dispatch")),
         r"the scan closed with 4 dispatches, the file holds 3 - at `\$.dispatches`"),
        (lambda records: records[0]["controls"].append(records[0]["planned"][0]), r"line 1: a row is planned twice"),
    ],
)  # fmt: skip
def test_damage_to_new_records_is_told_with_its_place(
    scanned: Path, tmp_path: Path, change: Change, text: str
) -> None:
    """A record that was never planned, stands twice, or does not add up is refused, and the line named."""
    records = lines(scanned)
    change(records)

    with pytest.raises(RunFileError, match=text):
        read_run(write_lines(tmp_path / "damaged.jsonl", records))


@pytest.mark.parametrize(
    "change",
    [
        _grouped(_group("quiet", 2), _group("poison", 2, 2), _group("threads=1", 2, 1, a=1, b=1), first=5),
        # Where other thread counts come first, the first execution belongs to no group.
        _grouped(_group("threads=1", 3, a=3), _group("quiet", 3)),
        _last("sentinel", executions=20, differing=19),
        _last("sentinel", executions=0, differing=0, message="killed"),
        _last("cost", outcome="ran", on={"median": 2.0, "low": 2.0, "high": 2.0}, unfilled=None),
        _last("cost", outcome="raised", off=None, on=None, unfilled=None, message="no"),
    ],
)
def test_what_a_scan_may_see_is_read(scanned: Path, tmp_path: Path, change: Change) -> None:
    """Counts at the very edge of what can be are no damage."""
    records = lines(scanned)
    change(records)

    assert read_run(write_lines(tmp_path / "edge.jsonl", records)).closing is not None


def test_recorded_runs_of_any_format_are_readable() -> None:
    """The runs in reports/runs are read as they are."""
    paths = sorted((Path(__file__).parent.parent / "reports" / "runs").glob("*.jsonl.gz"))

    assert paths
    for path in paths:
        with gzip.open(path) as file:
            written = json.loads(file.readline())["format"]
        assert read_run(path).header.format == written <= FORMAT
