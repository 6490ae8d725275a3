"""Censuses beside the runs that are compared: what came and went in the builds, release by release.

Nothing of it is measured. A release that has a run and no census, or a census and no run, stands in its line and says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import Struct

from reports.builds.changes import CensusTimeline, Kind, Step, read_censuses, timeline_of
from reports.builds.expectations import device_of
from reports.builds.files import release
from reports.compare.excerpt import claims_words
from reports.compare.runs import Comparison, Pair
from reports.matrix.model import Matrix
from scanner.observations import versions

NOTE = (
    "Read from the files of builds; nothing was run or measured for it. What came and went stands at the release that the "
    "later of two censuses is of. Where a release has no run, or no census, its line says so."
)
HEADS = (
    "release",
    "run",
    "changed bullets",
    "census",
    "alerts gained",
    "alerts lost",
    "checks of the flag, gained",
    "checks of the flag, lost",
)
NO_RUN, NO_CENSUS = "no run", "no census"
_FIRST_RUN, _FIRST_CENSUS = "the first run", "the first census"


class BuildStep(Struct, frozen=True):
    """What came and went from one census to the next, and the releases they are of."""

    old: str
    new: str
    step: Step

    def count(self, change: Literal["gained", "lost"], kind: Kind) -> int:
        """How many places of a kind came or went."""
        return sum(item.kind == kind for item in getattr(self.step, change))


class BuildTimeline(Struct, frozen=True, kw_only=True):
    """The censuses of builds for one kind of device, by release, beside all releases of runs."""

    device: str
    timeline: CensusTimeline
    steps: tuple[BuildStep, ...]
    lines: tuple[tuple[str, ...], ...]  # under HEADS
    runs: frozenset[str]  # the releases that have one

    def of(self, pair: Pair) -> list[BuildStep]:
        """Return the steps that end after the earlier release of two runs, and not after the later one."""
        low, high = sorted(versions.key(_release(one)) for one in (pair.old, pair.new))
        return [one for one in self.steps if low < versions.key(one.new) <= high]

    def beyond(self, pairs: Sequence[Pair]) -> list[BuildStep]:
        """Return the steps that stand with no two runs."""
        lines = [one for pair in pairs for one in self.of(pair)]
        return [one for one in self.steps if one not in lines]

    def title(self, one: BuildStep) -> str:
        """Name a step, and the releases in it that have no run."""
        unrun = [name for name in dict.fromkeys((one.old, one.new)) if name not in self.runs]
        more = f" ({NO_RUN} of {' and '.join(unrun)})" if unrun else ""
        names = (one.step.old, one.step.new) if one.old == one.new else (one.old, one.new)
        return f"{' → '.join(names)}{more}"

    def gap(self, pair: Pair) -> str | None:
        """Say that no census stands with two runs of different releases; ``None`` if one does."""
        low, high = sorted((_release(one) for one in (pair.old, pair.new)), key=versions.key)
        if low == high or self.of(pair):
            return None
        return f"No step from census to census ends after torch {low} and up to {high}."


def builds_of(paths: Sequence[str], comparison: Comparison) -> list[BuildTimeline]:
    """Read censuses and put those of builds for each kind of device in the order of their releases.

    Raises:
        BuildError: One cannot be read.
        UsageError: One is given twice.
    """
    named = read_censuses(paths)
    named.sort(key=lambda one: versions.key(release(one[1])))
    found = []
    for device in dict.fromkeys(device_of(census, None) for _, census in named):
        timeline = timeline_of([one for one in named if device_of(one[1], None) == device])
        releases = [release(census) for census in timeline.censuses]
        steps = tuple(map(BuildStep, releases, releases[1:], timeline.steps))
        found.append(
            BuildTimeline(
                device=device,
                timeline=timeline,
                steps=steps,
                lines=tuple(_lines(comparison, timeline, releases, steps)),
                runs=frozenset(map(_release, comparison.matrices)),
            )
        )
    return found


def counts_words(steps: Sequence[BuildStep]) -> str:
    """Say how much came and went in some steps."""
    alerts, flags = (
        [sum(one.count(change, kind) for one in steps) for change in _CHANGES] for kind in _COUNTED
    )
    return (
        f"in the builds {alerts[0]} alerts gained and {alerts[1]} lost, {flags[0]} functions that check the flag "
        f"gained and {flags[1]} lost"
    )


_CHANGES: tuple[Literal["gained", "lost"], ...] = ("gained", "lost")
_COUNTED: tuple[Kind, ...] = ("alerts", "flags")


def _lines(
    comparison: Comparison, timeline: CensusTimeline, releases: Sequence[str], steps: Sequence[BuildStep]
) -> Iterator[tuple[str, ...]]:
    """Yield a line for each census, and for each release that has a run alone."""
    runs: dict[str, list[Matrix]] = {}
    for one in comparison.matrices:
        runs.setdefault(_release(one), []).append(one)
    for name in sorted({*runs, *releases}, key=versions.key):
        ran = runs.get(name, [])
        documented = dict.fromkeys(claims_words(pair) for pair in comparison.pairs if pair.new in ran)
        text = ", ".join(map(str, documented)) or (_FIRST_RUN if ran else NO_RUN)
        places = [place for place, other in enumerate(releases) if other == name]
        if not places:
            yield name, _named(ran, None), text, *[NO_CENSUS] * 5
        for place in places:
            counts = [
                str(steps[place - 1].count(change, kind)) if place else _FIRST_CENSUS
                for kind in _COUNTED
                for change in _CHANGES
            ]
            census = timeline.censuses[place]
            yield name, _named(ran, census.torch_git), text, timeline.names[place], *counts


def _named(runs: Sequence[Matrix], git: str | None) -> str:
    """Name runs, and say which were made from other sources than a census."""
    lines = []
    for one in runs:
        own = one.run.header.environment.torch_git
        lines.append(f"{one.name} (other sources)" if None not in {own, git} and own != git else one.name)
    return ", ".join(lines) or NO_RUN


def _release(one: Matrix) -> str:
    return versions.release(one.run.header.environment.torch)
