"""What the files of a build say of a claim, in words: *expected*, never measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from reports.builds.expectations import BuildExpectations, ExpectedClaim
from reports.builds.links import Link

_NAMED = 2  # links, and ways of traced cases, that a cell names
_PATHS = {"always": "always", "conditional": "on some ways", "unknown": "on unknown ways"}


def documented(one: ExpectedClaim) -> str:
    """Say which list a claim is in, and of what device."""
    return f"{one.claim.section} on {'any device' if one.claim.device == 'any' else one.claim.device}"


def binary(one: ExpectedClaim, build: BuildExpectations) -> str:
    """Say what the census has."""
    if build.census is None:
        return "no census"
    if one.expectation == "other_device":
        return f"in the code of another device: {_links([*one.alerts, *one.flags])}"
    return linked(one.alerts, one.flags)


def linked(alerts: Sequence[Link], flags: Sequence[Link]) -> str:
    """Say which alerts and which checks of the flag of a census something leads to."""
    lines = [f"alert in build: {_links(alerts)}" if alerts else "no alert in build that is linked"]
    said = {"flag": "checks the flag", "fill": "checks the flag to fill memory only"}
    found = ((text, [link for link in flags if link.place.kind == kind]) for kind, text in said.items())
    return "; ".join([*lines, *(f"{text}: {_links(some)}" for text, some in found if some)])


def trace(one: ExpectedClaim, build: BuildExpectations) -> str:
    """Say what the traced cases reach with the flag on."""
    if build.trace is None:
        return "no trace"
    if not one.traced:
        return "no case in the trace"
    on = Counter(row.on for row in one.deciding)
    # Of all its cases, since what the flag does when it comes too late decides nothing.
    backward_only = Counter(
        row.backward_only_text for row in one.traced if row.backward_only_text is not None
    )
    return "; ".join(_most(counts, len(one.traced)) for counts in (on, backward_only) if counts)


def _most(counts: Counter[str], cases: int) -> str:
    lines = [f"{words} ({count} of {cases} cases)" for words, count in counts.most_common(_NAMED)]
    more = f"; and {len(counts) - _NAMED} other ways" if len(counts) > _NAMED else ""
    return "; ".join(lines) + more


def link_words(link: Link) -> str:
    """Name a link's place, and say by which way it was found."""
    place = link.place
    what = (
        f"alert {place.alert or 'unresolved'}, {_PATHS[place.path]}, in"
        if place.kind == "alert"
        else "asks, to fill memory only, in"
        if place.kind == "fill"
        else "checks in"
    )
    through = f" through {link.overload}" if link.overload else ""
    return f"{what} {place.function} ({place.library}), by {link.way}{through}"


def _links(links: Sequence[Link]) -> str:
    """Name the places, the alerts by their callers."""
    names = list(
        dict.fromkeys(
            f"{link.place.alert or 'unresolved'} ({_PATHS[link.place.path]})"
            if link.place.kind == "alert"
            else link.place.function
            for link in links
        )
    )
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
