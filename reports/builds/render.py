"""Censuses, what changed between them, and traces as Markdown for people; changes as JSON too.

The JSON of a census and of a trace is the record itself.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

import msgspec

from reports.builds.changes import KINDS, RAISED, CensusTimeline, Item
from reports.builds.files import outdated
from reports.builds.traced import names_another
from reports.render.json import View, json_of
from reports.render.markdown import generate
from scanner.census.record import Census
from scanner.observations.records import Row
from scanner.observations.trace.records import TracedRow, TraceFile
from scanner.verdicts.reroutes import DECIDED_MEANING, decided, reroutes


def census(record: Census) -> Iterator[str]:
    """Yield a census for people."""
    alerts = sorted(record.alerts, key=lambda one: (one.alert is None, one.alert or "", one.id))
    return generate(
        "census",
        View(
            {},
            record=record,
            summary=summary(record),
            alerts=alerts,
            raised=RAISED,
            outdated=outdated(record),
        ),
    )


def summary(record: Census) -> str:
    """Return a census in one sentence."""
    counts = record.counts
    return (
        f"torch {record.torch} (git {record.torch_git or 'unknown'}, {record.source}): "
        f"{counts.alert_sites} call sites of alerts, {counts.alert_strings} distinct strings, "
        f"{counts.unresolved} unresolved; {counts.asking_functions} functions ask for a flag in "
        f"{counts.ask_calls} calls; {counts.python_places} places in Python files."
    )


def trace(record: TraceFile) -> Iterator[str]:
    """Yield a trace for people: what the flag reroutes, what alerts, what could not be traced."""
    rerouted: defaultdict[tuple[object, ...], list[Row]] = defaultdict(list)
    alerts: defaultdict[tuple[str, ...], list[Row]] = defaultdict(list)
    rest: defaultdict[tuple[str, ...], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    met = set()
    names = [one.name for one in record.overloads]
    for row in record.rows:
        another = names_another(row, names)
        for one in reroutes(row):
            when = decided(row) if one.phase == "backward" else None
            met.add(when)
            rerouted[row.row.spec, one.phase, one.only_off, one.only_on, when or ""].append(row.row)
        for reach in row.reached:
            if reach.outcome == "alert":
                whose = "another op" if another else "its op"
                alerts[row.row.spec, reach.mode, reach.stopped or "", reach.caller or "", whose].append(
                    row.row
                )
            elif reach.outcome != "traced":
                why = reach.outcome, reach.stopped or "", reach.message or ""
                rest[why][row.row.spec].add(row.row.id)
    return generate(
        "trace",
        View(
            {},
            record=record,
            outdated=outdated(record),
            outcomes=Counter(map(_worst, record.rows)).most_common(),
            rerouted=rerouted,
            decided={name: meaning for name, meaning in DECIDED_MEANING.items() if name in met},
            alerts=alerts,
            rest=[(why, list(ops), sum(map(len, ops.values()))) for why, ops in rest.items()],
        ),
    )


def _worst(row: TracedRow) -> str:
    """Return the outcome of the mode that came least far, as a word."""
    outcomes = {reach.outcome for reach in row.reached}
    early = sorted(outcomes - {"traced", "alert"})
    return early[0] if early else "alert" if "alert" in outcomes else "traced"


def changes(timeline: CensusTimeline) -> Iterator[str]:
    """Yield for people what changed from census to census."""
    return generate("changes", _changes(timeline))


def changes_json(timeline: CensusTimeline) -> Iterator[str]:
    """Yield one object."""
    yield msgspec.json.format(json_of(_changes(timeline)), indent=1) + "\n"


def _changes(timeline: CensusTimeline) -> View:
    places = range(len(timeline.censuses))
    return View(
        {
            "censuses": [
                {"name": name, "torch": one.torch, "git": one.torch_git, "counts": one.counts}
                for name, one in zip(timeline.names, timeline.censuses, strict=True)
            ],
            "steps": timeline.steps,
            "over_all": [
                {**msgspec.structs.asdict(item), "in": [timeline.state(place, item) for place in places]}
                for item in timeline.varying
            ],
        },
        # One step says it all; call sites of one alert in one function make one line.
        varying=[
            (title, [(item, [_how_many(timeline, place, item) for place in places]) for item in some])
            for kind, title in KINDS.items()
            if kind != "python" and len(timeline.censuses) > 2  # noqa: PLR2004
            if (some := [item for _, item in sorted(timeline.distinct(kind).items())])
        ],
    )


def _how_many(timeline: CensusTimeline, place: int, item: Item) -> int | str:
    """Count what stands in the function, in one census."""
    same = sum(one.where == item.where for one in timeline.items[place].values())
    return same or timeline.state(place, item)


CHANGES: dict[str, Callable[[CensusTimeline], Iterator[str]]] = {"md": changes, "json": changes_json}
