"""Censuses held against each other, as Markdown for people and JSON for machines."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from reports.builds.changes import KINDS, CensusTimeline, Item, Step
from reports.render.markdown import code, plain, table

_PATHS = {"always": "always", "conditional": "on some ways", "unknown": "unknown"}


def markdown(timeline: CensusTimeline) -> Iterator[str]:
    """Yield the report for people."""
    yield "# What changed in the builds\n\nRead from their files; nothing was run or measured.\n\n"
    yield table(
        ("census", "torch", "call sites", "distinct alerts", "unresolved", "asking functions", "Python"),
        [
            (
                code(name),
                plain(census.torch),
                *(
                    str(number)
                    for number in (
                        census.counts.alert_sites,
                        census.counts.alert_strings,
                        census.counts.unresolved,
                        census.counts.asking_functions,
                        census.counts.python_places,
                    )
                ),
            )
            for name, census in zip(timeline.names, timeline.censuses, strict=True)
        ],
    )  # fmt: skip
    yield "\n"
    if len(timeline.censuses) > 2:  # noqa: PLR2004 - one step says it all
        yield from _over_all(timeline)
    for step in timeline.steps:
        yield from _step(step)


def _over_all(timeline: CensusTimeline) -> Iterator[str]:
    """Yield what came or went in any step, a column for each build."""
    for kind, title in KINDS.items():
        # Call sites of one alert in one function make one line.
        some = {
            (item.what, item.function, item.library): item for item in timeline.varying if item.kind == kind
        }
        if kind == "python" or not some:
            continue
        yield f"## {title} over all builds\n\nHow many, of those whose number or place is not the same in all.\n\n"
        yield table(
            ("what", "function", *(plain(census.torch) for census in timeline.censuses)),
            [
                (
                    code(item.what),
                    code(item.function),
                    *(_how_many(timeline, place, item) for place in range(len(timeline.censuses))),
                )
                for _, item in sorted(some.items())
            ],
        )
        yield "\n"


def _how_many(timeline: CensusTimeline, place: int, item: Item) -> str:
    """Count what stands in the function, in one census."""
    same = sum(
        (one.kind, one.what, one.function, one.library) == (item.kind, item.what, item.function, item.library)
        for one in timeline.items[place].values()
    )
    return str(same) if same else timeline.state(place, item)


def _step(step: Step) -> Iterator[str]:
    yield f"## {code(step.old)} to {code(step.new)}\n\n"
    yield from body(step, "###")


def body(step: Step, level: str) -> Iterator[str]:
    """Yield what came and went in a step, under headings of a level."""
    if step.apart:
        yield f"Only one of the two has {', '.join(map(code, step.apart))}: nothing in it is compared.\n\n"
    if not (step.gained or step.lost or step.changed):
        yield "Nothing came or went.\n\n"
        return
    for title, columns, rows in tables(step):
        yield f"{level} {title}\n\n"
        yield table(
            columns,
            [
                [
                    text if name in {"change", "raised"} else code(text)
                    for name, text in zip(columns, row, strict=True)
                ]
                for row in rows
            ],
        )
        yield "\n"


def tables(step: Step) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Yield a table for each kind of place of which any came, went or changed: its title, its columns, its rows."""
    some = [
        *(("gained", item, _raised(item)) for item in step.gained),
        *(("lost", item, _raised(item)) for item in step.lost),
        *(("changed", new, f"{_raised(old)}, now {_raised(new)}") for old, new in step.changed),
    ]
    for kind, title in KINDS.items():
        is_alert = kind == "alerts"
        rows = [
            [change, item.what, *[raised] * is_alert, item.function, item.library]
            for change, item, raised in some
            if item.kind == kind
        ]
        if rows:
            yield title, ["change", "what", *["raised"] * is_alert, "function", "file"], rows


def _raised(item: Item) -> str:
    return _PATHS.get(item.path or "", "none")


def as_json(timeline: CensusTimeline) -> Iterator[str]:
    """Yield one object."""
    fields = {
        "censuses": [
            {"name": name, "torch": census.torch, "git": census.torch_git, "counts": census.counts}
            for name, census in zip(timeline.names, timeline.censuses, strict=True)
        ],
        "steps": timeline.steps,
        "over_all": [
            {**_fields(item), "in": [timeline.state(place, item) for place in range(len(timeline.censuses))]}
            for item in timeline.varying
        ],
    }
    yield msgspec.json.format(msgspec.json.encode(fields), indent=1).decode() + "\n"


def _fields(item: Item) -> dict[str, object]:
    return {name: getattr(item, name) for name in item.__struct_fields__}


RENDERERS: dict[str, Callable[[CensusTimeline], Iterator[str]]] = {"md": markdown, "json": as_json}
