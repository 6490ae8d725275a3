"""Claims joined with what a build says without being measured: its census, and a trace of it.

All of this is *expected*. Agreements have words of their own, none of which is one of a measurement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from msgspec import Struct

from reports.builds.links import Link, Place, words
from reports.builds.ops import OP_MEANING, ExpectedOp, expected_ops
from reports.builds.traced import PASSING, RAISING, Reader, Traced
from scanner.census.record import Census
from scanner.claims.matching import RAISING_LISTS, device_kind, matches, names_of
from scanner.errors import UsageError
from scanner.observations.records import Claim
from scanner.observations.trace.records import TraceFile

Expectation = Literal[
    "alert_gone",
    "alert_reached",
    "alert_partly",
    "expected_raise",
    "unsettled",
    "expected_flag",
    "no_flag",
    "other_device",
    "unlinked",
]
EXPECTATION_MEANING: dict[Expectation, str] = {
    "alert_gone": "Documented to raise, but no alert in the build is one that its ops are known to lead to.",
    "alert_reached": "Documented to act deterministically, but with the flag on a traced case meets an alert, or "
    "reaches an overload whose function always alerts, and which leads to no question for the flag.",
    "alert_partly": "Documented to raise: some of its traced cases lead to an alert, and others end without "
    "one that is known.",
    "expected_raise": "Documented to raise, and an alert in the build is one that its ops lead to, or the one of "
    "its list: that of cuBLAS.",
    "unsettled": "Documented to act deterministically; an alert is linked; the build does not say whether "
    "a call meets it: the flag is checked too, or there is a way past, or no trace.",
    "expected_flag": "Documented to act deterministically, and the flag is checked or reroutes the case; "
    "no alert.",
    "no_flag": "Documented to act deterministically, and what its cases reach is not known to check the "
    "flag, nor to alert.",
    "other_device": "Documented for any device, and what it leads to is in the code of another one.",
    "unlinked": "No honest link from the bullet to anything in the build.",
}
PlaceKind = Literal["undocumented_alert", "undocumented_flag", "unlinked_alert", "unlinked_flag"]
PLACE_MEANING: dict[PlaceKind, str] = {
    "undocumented_alert": "Alerts in the build to which no bullet leads, but ops that are named here.",
    "undocumented_flag": "Functions that check the flag, likewise: candidates for the first list.",
    "unlinked_alert": "Alerts to which neither a bullet nor a traced case leads. Words alone are no link where "
    "overloads lead to other alerts.",
    "unlinked_flag": "Functions that check the flag, likewise.",
}


class ExpectedClaim(Struct, frozen=True, kw_only=True):
    """A claim, and what a build says of it."""

    claim: Claim
    expectation: Expectation
    alerts: tuple[Link, ...]
    flags: tuple[Link, ...]
    traced: tuple[Traced, ...]

    @property
    def deciding(self) -> tuple[Traced, ...]:
        """The traced rows that the expectation rests on."""
        if self.expectation == "alert_reached":
            return tuple(one for one in self.traced if one.certain)
        return self.traced


class UnmatchedSite(Struct, frozen=True, kw_only=True):
    """A place that no bullet leads to."""

    kind: PlaceKind
    place: Place
    ops: tuple[str, ...]  # those that lead there


class BuildExpectations(Struct, frozen=True, kw_only=True):
    """What the files of one build say of the documented lists, for one kind of device."""

    device: str
    census: Census | None
    census_name: str | None
    trace: TraceFile | None
    trace_name: str | None
    expected: tuple[ExpectedClaim, ...]
    unspoken: tuple[UnmatchedSite, ...]
    ops: tuple[ExpectedOp, ...]

    @property
    def torch(self) -> str:
        """The build's version."""
        if self.census is not None:
            return self.census.torch
        assert self.trace is not None
        return self.trace.build.torch


def expect(
    claims: Iterable[Claim],
    census: tuple[str, Census] | None,
    trace: tuple[str, TraceFile] | None,
    device: str,
) -> BuildExpectations:
    """Judge the claims about a device by a census, a trace, or both of one build.

    Raises:
        UsageError: There is neither.
    """
    if census is None and trace is None:
        raise UsageError("there is neither a census nor a trace to judge by")
    parsed = [claim for claim in claims if claim.parsed and claim.device in {"any", device}]
    reader = Reader(census[1] if census else None, trace[1] if trace else None, device)
    expected = tuple(_judge(reader, claim) for claim in parsed)
    return BuildExpectations(
        device=device,
        census=census[1] if census else None,
        census_name=census[0] if census else None,
        trace=trace[1] if trace else None,
        trace_name=trace[0] if trace else None,
        expected=expected,
        unspoken=tuple(_unspoken(reader, expected)),
        ops=tuple(expected_ops(reader, parsed)),
    )


def _judge(reader: Reader, claim: Claim) -> ExpectedClaim:
    """Judge one claim."""
    traced = tuple(reader.trace(row, claim.direction) for row in reader.rows if matches(row.row, claim))
    alerts = tuple(dict.fromkeys(link for one in traced for link in one.alerts))
    flags = tuple(dict.fromkeys(link for one in traced for link in one.flags))
    if claim.section == "cublas":
        alerts = tuple(dict.fromkeys((*alerts, *reader.places.cublas())))
    checks = tuple(link for link in flags if link.place.kind == "flag")
    if not alerts and (claim.section in RAISING_LISTS or not checks):
        by_words = [link for link in reader.places.worded(claim) if reader.applies(link, claim)]
        alerts = tuple(link for link in by_words if link.place.kind == "alert")
        kinds = {"flag"} if claim.section in RAISING_LISTS else {"flag", "fill"}
        flags = checks or tuple(link for link in by_words if link.place.kind in kinds) or flags
    elif claim.section == "raises":
        # Of a case that could not be traced to its end, words are asked beside what the others reach.
        known = {link.place for link in alerts}
        rest = (link for one in traced if one.way == "stopped" for link in reader.worded(one.row.row))
        more = (link for link in rest if link.place.kind == "alert" and link.place not in known)
        alerts += tuple(dict.fromkeys(more))
    decide = _raising if claim.section in RAISING_LISTS else _acting
    expectation = decide(reader, claim, traced, alerts, flags)
    if claim.device == "any" and (expectation == "unlinked" or (expectation == "alert_gone" and not traced)):
        other = [link for link in reader.elsewhere.worded(claim) if link.place.kind != "fill"]
        instead = tuple(link for link in other if link.place.kind == "alert")
        # A question for the flag elsewhere does not bring back an alert that is gone here.
        if instead or (other and expectation == "unlinked"):
            alerts, flags = instead, tuple(link for link in other if link.place.kind == "flag")
            expectation = "other_device"
    return ExpectedClaim(
        claim=claim,
        expectation=expectation,
        alerts=alerts,
        flags=flags,
        traced=traced,
    )


def _raising(
    reader: Reader, claim: Claim, traced: Sequence[Traced], alerts: Sequence[Link], flags: Sequence[Link]
) -> Expectation:
    met = {one.way for one in traced}
    if met & RAISING:
        return "alert_partly" if met & PASSING else "expected_raise"
    if alerts:
        return "expected_raise"
    # What raises for cuBLAS is linked by the alert itself, so that a build without it is known to lack it.
    known = flags or claim.section == "cublas" or any(one.way != "stopped" for one in traced)
    return "alert_gone" if known and reader.places.all and not _near(reader, claim) else "unlinked"


def _near(reader: Reader, claim: Claim) -> bool:
    """Tell whether an alert has all the words of the op, and so may be the one, though not linked.

    An alert that an overload leads to is known to be that overload's.
    """
    ops = [set(words(target.rpartition(".")[2])) for target in claim.targets]
    return any(
        one.kind == "alert"
        and one not in reader.owned
        and any(op <= {*words(one.function), *words(one.alert or "")} for op in ops)
        for one in reader.places.all
    )


def _acting(
    reader: Reader, _: Claim, traced: Sequence[Traced], alerts: Sequence[Link], flags: Sequence[Link]
) -> Expectation:
    if any(one.certain for one in traced):
        return "alert_reached"
    if alerts:
        return "unsettled"
    if flags or any(one.way == "reroutes" for one in traced):
        return "expected_flag"
    ended = traced and all(one.way != "stopped" for one in traced)
    return "no_flag" if ended and reader.places.all else "unlinked"


def _unspoken(reader: Reader, expected: Sequence[ExpectedClaim]) -> Iterator[UnmatchedSite]:
    """Yield the places that no claim leads to, with the ops that do."""
    spoken = {link.place for one in expected for link in (*one.alerts, *one.flags)}
    for one in expected:
        # What a case reaches with the flag off alone is spoken of too: the flag leads it elsewhere.
        spoken |= {
            link.place for row in one.traced for link in (*row.backward_only, *reader.anywhere(row.row))
        }
    ops: dict[Place, dict[str, None]] = {}
    for row in reader.rows:
        reached = list(reader.anywhere(row))
        on = row.in_mode("on")
        if on is not None and on.caller is not None:
            reached += [] if reader.names_another(row) else reader.places.met(on.caller)
        # As with bullets: words are asked only where no overload leads to such a place.
        kinds = {link.place.kind for link in reached}
        reached += [link for link in reader.places.worded_row(row.row) if link.place.kind not in kinds]
        for link in reached:
            ops.setdefault(link.place, {})[names_of(row.row)[0]] = None
    for place in reader.places.all:
        # What fills memory is documented elsewhere.
        if place not in spoken and place.kind != "fill":
            text: PlaceKind
            if place.kind == "alert":
                text = "undocumented_alert" if place in ops else "unlinked_alert"
            else:
                text = "undocumented_flag" if place in ops else "unlinked_flag"
            yield UnmatchedSite(kind=text, place=place, ops=tuple(ops.get(place, ())))


def count(build: BuildExpectations) -> list[tuple[str, int, str]]:
    """Return what is counted, how many there are, and what it means."""
    found = Counter(one.expectation for one in build.expected)
    places = Counter(one.kind for one in build.unspoken)
    ops = Counter(kind for one in build.ops for kind in one.kinds)
    return [
        *((name, found[name], meaning) for name, meaning in EXPECTATION_MEANING.items()),
        *((kind, places[kind], meaning) for kind, meaning in PLACE_MEANING.items()),
        *((kind, ops[kind], meaning) for kind, meaning in OP_MEANING.items()),
    ]


def device_of(census: Census | None, trace: TraceFile | None) -> str:
    """Return the kind of device that files speak of: that of the trace; of a census, CUDA where it has it."""
    if trace is not None:
        return device_kind(trace.settings.device)
    assert census is not None
    return "cuda" if any("cuda" in one.name for one in census.libraries) else "cpu"
