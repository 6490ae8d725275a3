"""Claims joined with what a build says without being measured: its census, and a trace of it.

All of this is *expected*. Agreements have words of their own, none of which is one of a measurement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from msgspec import Struct

from reports.builds import ways
from reports.builds.links import Link, Place, Places, applies, words
from scanner.census.record import Census
from scanner.claims.matching import device_kind, matches, names_of
from scanner.errors import UsageError
from scanner.observations.records import Claim, Row
from scanner.observations.trace_records import TracedRow, TraceFile
from scanner.verdicts.reroutes import reroutes

_RAISING = frozenset({"raises", "cublas"})  # the lists of what raises

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
# What a traced row comes to with the flag on: the words of the trace column.
#
# met       the trace met the alert
# alerts    it reaches a function that alerts, on all ways or some
# reroutes  the flag leads it to other overloads, and to no alert
# asks      a function that it reaches checks the flag
# same      both modes reach the same overloads, and nothing there is known to alert or to ask
# stopped   it could not be traced to its end, and nothing was found until then
Way = Literal["met", "alerts", "reroutes", "asks", "same", "stopped"]


class Traced(Struct, frozen=True, kw_only=True):
    """What one traced row says of a claim."""

    row: TracedRow
    way: Way
    on: str  # in words, what it does with the flag on
    # What turning the flag on for backward alone comes to, in words, where the path is chosen before.
    backward_only_text: str | None
    alerts: tuple[Link, ...]
    flags: tuple[Link, ...]
    backward_only: tuple[Link, ...]  # the alerts that it reaches only if the flag is turned on late
    certain: bool  # an alert is met, or on all ways by an overload that leads to no question for the flag

    @property
    def text(self) -> str:
        """All of it in words."""
        return self.on if self.backward_only_text is None else f"{self.on}; {self.backward_only_text}"


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
    expected = tuple(reader.judge(claim) for claim in parsed)
    return BuildExpectations(
        device=device,
        census=census[1] if census else None,
        census_name=census[0] if census else None,
        trace=trace[1] if trace else None,
        trace_name=trace[0] if trace else None,
        expected=expected,
        unspoken=tuple(reader.unspoken(expected)),
    )


class Reader:
    """The places and the rows of one build."""

    def __init__(self, census: Census | None, trace: TraceFile | None, device: str) -> None:
        """Take the places that serve a kind of device, and those of the other kind apart."""
        self._places = Places(census, device)
        self._elsewhere = Places(census, "cpu" if device == "cuda" else "cuda")
        self._rows = trace.rows if trace else ()
        self._overloads = {one.name: one for one in (trace.overloads if trace else ())}
        self._owned = {link.place for one in self._overloads.values() for link in self._places.reached(one)}
        self._values: dict[str, dict[str, set[str]]] = {}
        for row in self._rows:
            for name in names_of(row.row):
                for trait, value in row.row.traits.items():
                    self._values.setdefault(name, {}).setdefault(trait, set()).add(value)

    def judge(self, claim: Claim) -> ExpectedClaim:
        """Judge one claim."""
        traced = tuple(self.trace(row, claim.direction) for row in self._rows if matches(row.row, claim))
        alerts = tuple(dict.fromkeys(link for one in traced for link in one.alerts))
        flags = tuple(dict.fromkeys(link for one in traced for link in one.flags))
        if claim.section == "cublas":
            alerts = tuple(dict.fromkeys((*alerts, *self._places.cublas())))
        if not alerts and (claim.section in _RAISING or not flags):
            by_words = [link for link in self._places.worded(claim) if self._applies(link, claim)]
            alerts = tuple(link for link in by_words if link.place.kind == "alert")
            flags = flags or tuple(link for link in by_words if link.place.kind == "flag")
        elif claim.section == "raises":
            # Of a case that could not be traced to its end, words are asked beside what the others reach.
            known = {link.place for link in alerts}
            rest = (link for one in traced if one.way == "stopped" for link in self.worded(one.row.row))
            more = (link for link in rest if link.place.kind == "alert" and link.place not in known)
            alerts += tuple(dict.fromkeys(more))
        decide = self._raising if claim.section in _RAISING else self._acting
        expectation = decide(claim, traced, alerts, flags)
        if claim.device == "any" and (
            expectation == "unlinked" or (expectation == "alert_gone" and not traced)
        ):
            other = list(self._elsewhere.worded(claim))
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
        self, claim: Claim, traced: Sequence[Traced], alerts: Sequence[Link], flags: Sequence[Link]
    ) -> Expectation:
        alerting = [one for one in traced if one.way in {"met", "alerts"}]
        if alerting:
            passing = [one for one in traced if one.way in {"reroutes", "asks", "same"}]
            return "alert_partly" if passing else "expected_raise"
        if alerts:
            return "expected_raise"
        # What raises for cuBLAS is linked by the alert itself, so that a build without it is known to lack it.
        known = flags or claim.section == "cublas" or any(one.way != "stopped" for one in traced)
        return "alert_gone" if known and self._places.all and not self._near(claim) else "unlinked"

    def _near(self, claim: Claim) -> bool:
        """Tell whether an alert has all the words of the op, and so may be the one, though not linked.

        An alert that an overload leads to is known to be that overload's.
        """
        ops = [set(words(target.rpartition(".")[2])) for target in claim.targets]
        return any(
            one.kind == "alert"
            and one not in self._owned
            and any(op <= {*words(one.function), *words(one.alert or "")} for op in ops)
            for one in self._places.all
        )

    def _acting(
        self, _: Claim, traced: Sequence[Traced], alerts: Sequence[Link], flags: Sequence[Link]
    ) -> Expectation:
        if any(one.certain for one in traced):
            return "alert_reached"
        if alerts:
            return "unsettled"
        if flags or any(one.way == "reroutes" for one in traced):
            return "expected_flag"
        ended = traced and all(one.way != "stopped" for one in traced)
        return "no_flag" if ended and self._places.all else "unlinked"

    def worded(self, row: Row) -> list[Link]:
        """Return what the words of a row lead to, of alerts those that may be about it."""
        return [link for link in self._places.worded_row(row) if self._applies_row(link, row)]

    def trace(self, row: TracedRow, direction: str) -> Traced:
        """Say what a row reaches with the flag on, in the part that a claim is about; in both if of any direction."""
        on = row.in_mode("on")
        assert on is not None
        parts = ["backward"] if direction == "backward" else ["forward", "backward"]
        reached = [name for part in parts for name in getattr(on, part)]
        links = {
            name: self._places.reached(self._overloads[name]) for name in reached if name in self._overloads
        }
        met = list(self._places.met(on.caller)) if on.caller is not None else []
        found = [*met, *(link for some in links.values() for link in some)]
        alerts = [one for one in found if one.place.kind == "alert" and self._applies_row(one, row.row)]
        flags = [one for one in found if one.place.kind == "flag"] + self._python(row)
        asking = {one.overload for one in flags}
        changed = [one for one in reroutes(row) if one.part in parts]
        way: Way
        if on.caller is not None:
            way, text = "met", f"the trace met the alert of {on.caller}"
        elif alerts:
            way, text = "alerts", ways.alerting(alerts, asking)
        elif changed:
            way = "reroutes"
            # What leads to a place of the build says more than what makes its inputs.
            instead = sorted(changed[0].only_on, key=lambda name: not links.get(name))
            text = f"rerouted: {ways.some(changed[0].only_off)} becomes {ways.some(instead)}"
        elif on.outcome != "traced":
            way, text = "stopped", f"not traced: {on.message or on.outcome}"
        elif any(one.overload for one in flags):
            asked = next(one for one in flags if one.overload)
            way, text = "asks", f"reaches {asked.overload}, {ways.whose(asked)} checks the flag"
        else:
            way, text = "same", "the same overloads in both modes, none known to alert or to check the flag"
        backward_only = self._backward_only(row)
        return Traced(
            row=row,
            way=way,
            on=text,
            backward_only_text=ways.backward_only_text(row, backward_only),
            alerts=tuple(alerts),
            flags=tuple(flags),
            backward_only=tuple(backward_only),
            certain=on.caller is not None
            or any(
                one.way == "function" and one.place.path == "always" and one.overload not in asking
                for one in alerts
            ),
        )  # fmt: skip

    def _backward_only(self, row: TracedRow) -> list[Link]:
        """Return what alerts if the flag is turned on for the backward part alone, and not if it was on before."""
        on, backward_only = row.in_mode("on"), row.in_mode("late")
        if on is None or backward_only is None:
            return []
        found = (
            list(self._places.met(backward_only.caller))
            if backward_only.caller not in {None, on.caller}
            else []
        )
        for name in backward_only.backward:
            if name not in on.backward and name in self._overloads:
                found += self._places.reached(self._overloads[name])
        return [one for one in found if one.place.kind == "alert" and self._applies_row(one, row.row)]

    def _python(self, row: TracedRow) -> list[Link]:
        """Return the Python function itself, where it checks the flag and the flag reroutes the row."""
        module, _, function = row.row.op.rpartition(".")
        file = f"{module.replace('.', '/')}.py"
        return [
            Link(one, "function")
            for one in self._places.all
            if one.library == file and one.function == function and reroutes(row)
        ]

    def _applies(self, link: Link, claim: Claim) -> bool:
        traits = {one.name: one.values for one in claim.conditions}
        return all(applies(link.place, traits, self._known(target)) for target in claim.targets)

    def _applies_row(self, link: Link, row: Row) -> bool:
        traits = {name: (value,) for name, value in row.traits.items()}
        return applies(link.place, traits, self._known(names_of(row)[0]))

    def _known(self, name: str) -> dict[str, set[str]]:
        return self._values.get(name, {})

    def unspoken(self, expected: Sequence[ExpectedClaim]) -> Iterator[UnmatchedSite]:
        """Yield the places that no claim leads to, with the ops that do."""
        spoken = {link.place for one in expected for link in (*one.alerts, *one.flags)}
        for one in expected:
            # What a case reaches with the flag off alone is spoken of too: the flag leads it elsewhere.
            spoken |= {link.place for row in one.traced for link in (*row.backward_only, *self._off(row.row))}
        ops: dict[Place, dict[str, None]] = {}
        for row in self._rows:
            reached = list(self._off(row))
            on = row.in_mode("on")
            if on is not None and on.caller is not None:
                reached += self._places.met(on.caller)
            # As with bullets: words are asked only where no overload leads to such a place.
            kinds = {link.place.kind for link in reached}
            reached += [link for link in self._places.worded_row(row.row) if link.place.kind not in kinds]
            for link in reached:
                ops.setdefault(link.place, {})[names_of(row.row)[0]] = None
        for place in self._places.all:
            if place not in spoken:
                text: PlaceKind
                if place.kind == "alert":
                    text = "undocumented_alert" if place in ops else "unlinked_alert"
                else:
                    text = "undocumented_flag" if place in ops else "unlinked_flag"
                yield UnmatchedSite(kind=text, place=place, ops=tuple(ops.get(place, ())))

    def _off(self, row: TracedRow) -> Iterator[Link]:
        """Yield what a row leads to in any mode."""
        for name in dict.fromkeys(n for reach in row.reached for n in (*reach.forward, *reach.backward)):
            if name in self._overloads:
                yield from self._places.reached(self._overloads[name])
        yield from self._python(row)


def count(build: BuildExpectations) -> list[tuple[str, int, str]]:
    """Return what is counted, how many there are, and what it means."""
    found = Counter(one.expectation for one in build.expected)
    places = Counter(one.kind for one in build.unspoken)
    return [
        *((name, found[name], meaning) for name, meaning in EXPECTATION_MEANING.items()),
        *((kind, places[kind], meaning) for kind, meaning in PLACE_MEANING.items()),
    ]


def device_of(census: Census | None, trace: TraceFile | None) -> str:
    """Return the kind of device that files speak of: that of the trace; of a census, CUDA where it has it."""
    if trace is not None:
        return device_kind(trace.settings.device)
    assert census is not None
    return "cuda" if any("cuda" in one.name for one in census.libraries) else "cpu"
