"""Censuses of builds held against each other: which alerts and which questions for a flag came and went."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Literal

from msgspec import Struct

from scanner.census.record import Census, is_census, read_census
from scanner.errors import UsageError

Kind = Literal["alerts", "flags", "python"]
KINDS: dict[Kind, str] = {
    "alerts": "Call sites of alerts",
    "flags": "Functions that check a flag",
    "python": "Places in Python files",
}
RAISED = {"always": "always", "conditional": "on some ways", "unknown": "unknown"}


class Item(Struct, frozen=True):
    """One place of a build, the same in every build that has its id."""

    id: str
    kind: Kind
    what: str  # the alert's caller, the flag, or what stands in the Python file
    function: str
    library: str
    path: str | None  # of an alert: on which ways through the function

    @property
    def where(self) -> tuple[str, str, str, str]:
        """What several call sites in one function have in common."""
        return self.kind, self.what, self.function, self.library

    @property
    def raised(self) -> str:
        """On which ways through the function an alert is raised, in words."""
        return "none" if self.path is None else RAISED[self.path]


class Step(Struct, frozen=True, kw_only=True):
    """What came and went from one census to the next."""

    old: str
    new: str
    gained: tuple[Item, ...]
    lost: tuple[Item, ...]
    changed: tuple[tuple[Item, Item], ...]  # alerts that are raised on other ways
    apart: tuple[str, ...]  # libraries that only one of the two has, in which nothing is compared

    @property
    def tables(self) -> list[tuple[str, list[tuple[str, Item, str]]]]:
        """Under the title of each kind of place what came, went or changed: the place, and how its alert is raised."""
        some = [
            *(("gained", item, item.raised) for item in self.gained),
            *(("lost", item, item.raised) for item in self.lost),
            *(("changed", new, f"{old.raised}, now {new.raised}") for old, new in self.changed),
        ]
        tables = ((title, [line for line in some if line[1].kind == kind]) for kind, title in KINDS.items())
        return [(title, lines) for title, lines in tables if lines]


class CensusTimeline(Struct, frozen=True, kw_only=True):
    """Censuses in the order given, and the steps between them."""

    censuses: tuple[Census, ...]
    names: tuple[str, ...]
    items: tuple[dict[str, Item], ...]  # by id, of each census
    steps: tuple[Step, ...]

    @property
    def varying(self) -> tuple[Item, ...]:
        """What came or went between any two that have its library, as the last that has it tells it."""
        known: dict[str, Item] = {}
        for items in self.items:
            known |= items
        moved = {item.id for step in self.steps for item in (*step.gained, *step.lost)}
        return tuple(item for item in known.values() if item.id in moved)

    def distinct(self, kind: Kind) -> dict[tuple[str, ...], Item]:
        """Return what came or went of a kind, the call sites of one alert in one function once."""
        return {item.where: item for item in self.varying if item.kind == kind}

    def state(self, place: int, item: Item) -> str:
        """Say whether a census has an item."""
        if item.id in self.items[place]:
            return "yes"
        return "no" if _read(self.censuses[place], item) else "not in this build"


def are_censuses(paths: Sequence[str]) -> bool:
    """Tell whether the files are censuses.

    Raises:
        UsageError: Some are, and others are not.
    """
    found = [path for path in paths if is_census(path)]
    if found and len(found) < len(paths):
        other = next(path for path in paths if path not in found)
        raise UsageError(
            f"{found[0]} is a census, {other} is none; compare runs with runs, censuses with "
            f"censuses, or give the censuses beside runs with --census"
        )
    return bool(found)


def compare_censuses(paths: Sequence[str]) -> CensusTimeline:
    """Read censuses, oldest first, and hold each against the one before.

    Raises:
        BuildError: One cannot be read.
        UsageError: One is given twice.
    """
    return timeline_of(read_censuses(paths))


def read_censuses(paths: Sequence[str]) -> list[tuple[str, Census]]:
    """Read censuses, each with its file's name.

    Raises:
        BuildError: One cannot be read.
        UsageError: One is given twice.
    """
    censuses = [read_census(path) for path in paths]
    for place, one in enumerate(censuses):
        if one in censuses[:place]:
            raise UsageError(f"{paths[place]}: is there twice; give each census once")
        if one.rules != censuses[0].rules:
            raise UsageError(
                f"{paths[place]}: was made by rule set {one.rules}, {paths[0]} by {censuses[0].rules}; make the older "
                f"one again, since differences of rules are none of builds"
            )
    return [(PurePath(path).name, one) for path, one in zip(paths, censuses, strict=True)]


def timeline_of(named: Sequence[tuple[str, Census]]) -> CensusTimeline:
    """Hold censuses, oldest first, each against the one before."""
    names, censuses = tuple(name for name, _ in named), tuple(one for _, one in named)
    items = tuple({item.id: item for item in _items(census)} for census in censuses)
    steps = tuple(_step(place, censuses, names, items) for place in range(1, len(censuses)))
    return CensusTimeline(censuses=censuses, names=names, items=items, steps=steps)


def _step(
    place: int, censuses: Sequence[Census], names: Sequence[str], items: Sequence[dict[str, Item]]
) -> Step:
    old, new = items[place - 1], items[place]
    before, after = censuses[place - 1], censuses[place]
    libraries = [{one.name for one in census.libraries} for census in (before, after)]
    return Step(
        old=names[place - 1],
        new=names[place],
        gained=tuple(item for key, item in new.items() if key not in old and _read(before, item)),
        lost=tuple(item for key, item in old.items() if key not in new and _read(after, item)),
        changed=tuple(
            (old[key], item) for key, item in new.items() if key in old and old[key].path != item.path
        ),
        apart=tuple(sorted(libraries[0] ^ libraries[1])),
    )


def _read(census: Census, item: Item) -> bool:
    """Tell whether a census speaks of the item's library at all."""
    return item.kind == "python" or any(one.name == item.library for one in census.libraries)


def _items(census: Census) -> Iterator[Item]:
    for site in census.alerts:
        yield Item(
            site.id, "alerts", site.alert or "unresolved", site.function or "unknown", site.library, site.path
        )
    for ask in census.asks:
        yield Item(ask.id, "flags", ask.flag, ask.function, ask.library, None)
    for place in census.python:
        what = place.name if place.alert is None else f"{place.name}: {place.alert}"
        yield Item(place.id, "python", what, place.function, place.file, None)
