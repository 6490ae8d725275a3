"""What a traced row comes to with the flag on, by the places of its build that its overloads lead to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from msgspec import Struct

from reports.builds import ways
from reports.builds.links import Link, Places, applies, words
from scanner.census.record import Census
from scanner.claims.matching import names_of
from scanner.observations.records import Claim, Row
from scanner.observations.trace.records import TracedRow, TraceFile
from scanner.verdicts.reroutes import reroutes

# What a traced row comes to with the flag on: the words of the trace column.
#
# met          the trace met the alert
# other_alert  it met one that names another op, which Python code of shapes raises for several
# alerts       it reaches a function that alerts, on all ways or some
# reroutes     the flag leads it to other overloads, and to no alert
# asks         a function that it reaches checks the flag
# fills        one that it reaches checks the flag to fill memory, and none for another reason
# same         both modes reach the same overloads, and nothing there is known to alert or to ask
# stopped      it could not be traced to its end, and nothing was found until then
Way = Literal["met", "other_alert", "alerts", "reroutes", "asks", "fills", "same", "stopped"]
RAISING: frozenset[Way] = frozenset({"met", "alerts"})
PASSING: frozenset[Way] = frozenset({"reroutes", "asks", "fills", "same"})  # it ends without a known alert
_LEAST = 4  # letters of a word that is looked for within another


class Traced(Struct, frozen=True, kw_only=True):
    """What one traced row says of a claim."""

    row: TracedRow
    way: Way
    on: str  # in words, what it does with the flag on
    # What turning the flag on for backward alone comes to, in words, where the path is decided before.
    backward_only_text: str | None
    alerts: tuple[Link, ...]
    flags: tuple[Link, ...]
    backward_only: tuple[Link, ...]  # the alerts that it reaches only if the flag is turned on late
    certain: bool  # an alert is met, or on all ways by an overload that leads to no question for the flag

    @property
    def may_pass(self) -> bool:
        """Whether it may pass by all alerts it leads to: on a way through the function, or through another one."""
        asking = {link.overload for link in self.flags}
        return self.way == "alerts" and all(
            link.place.path != "always" or link.way == "shared" or link.overload in asking
            for link in self.alerts
        )

    @property
    def by_name_alone(self) -> bool:
        """Whether all alerts it leads to are in functions whose name several overloads share."""
        return self.way == "alerts" and all(link.way == "shared" for link in self.alerts)

    @property
    def text(self) -> str:
        """All of it in words."""
        return self.on if self.backward_only_text is None else f"{self.on}; {self.backward_only_text}"


class Reader:
    """The places and the rows of one build."""

    def __init__(self, census: Census | None, trace: TraceFile | None, device: str) -> None:
        """Take the places that serve a kind of device, and those of the other kind apart."""
        self.places = Places(census, device)
        self.elsewhere = Places(census, "cpu" if device == "cuda" else "cuda")
        self.rows = trace.rows if trace else ()
        self._overloads = {one.name: one for one in (trace.overloads if trace else ())}
        # Places that an overload leads to.
        self.owned = {link.place for one in self._overloads.values() for link in self.places.reached(one)}
        # Overload -> the callers of its alerts that the trace meets, because Python code repeats them.
        self._repeated: dict[str, set[str]] = {}
        self._values: dict[str, dict[str, set[str]]] = {}
        for row in self.rows:
            self._note_repeated(row)
            for name in names_of(row.row):
                for trait, value in row.row.traits.items():
                    self._values.setdefault(name, {}).setdefault(trait, set()).add(value)

    def names_another(self, row: TracedRow) -> bool:
        """Tell whether the alert that a row met names another op."""
        return names_another(row, self._overloads)

    def _note_repeated(self, row: TracedRow) -> None:
        """Note of which overloads the trace meets the alert itself."""
        on = row.in_mode("on")
        if on is None or on.caller is None or self.names_another(row):
            return
        for name in (on.forward.keys() | on.backward.keys()) & self._overloads.keys():
            if any(link.place.alert == on.caller for link in self.places.reached(self._overloads[name])):
                self._repeated.setdefault(name, set()).add(on.caller)

    def worded(self, row: Row) -> list[Link]:
        """Return what the words of a row lead to, of alerts those that may be about it."""
        return [link for link in self.places.worded_row(row) if self._applies_row(link, row)]

    def worded_alerts(self, row: Row) -> list[Link]:
        """Return the alerts among what the words of a row lead to."""
        return [link for link in self.worded(row) if link.place.kind == "alert"]

    def trace(self, row: TracedRow, direction: str) -> Traced:
        """Say what a row reaches with the flag on, in the phase that a claim is about; in both if of any direction."""
        on = row.in_mode("on")
        assert on is not None
        phases = ["backward"] if direction == "backward" else ["forward", "backward"]
        reached = [name for phase in phases for name in getattr(on, phase)]
        links = {
            name: self.places.reached(self._overloads[name]) for name in reached if name in self._overloads
        }
        anothers = self.names_another(row)
        met = list(self.places.met(on.caller)) if on.caller is not None and not anothers else []
        found = [*met, *(link for some in links.values() for link in some)]
        alerts = [one for one in found if one.place.kind == "alert" and self._applies_row(one, row.row)]
        # What the trace raises for other cases of the overload, it would have raised for this one.
        passed = [
            one
            for one in alerts
            if on.outcome == "traced" and one.place.alert in self._repeated.get(one.overload or "", ())
        ]
        alerts = [one for one in alerts if one not in passed]
        flags = [one for one in found if one.place.kind == "flag"] + self.python(row)
        asking = {one.overload for one in flags}
        fills = [one for one in found if one.place.kind == "fill"]
        changed = [one for one in reroutes(row) if one.phase in phases]
        way: Way
        if anothers:
            way, text = "other_alert", ways.other_alert(on.caller)
        elif on.caller is not None:
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
        elif fills:
            way, text = (
                "fills",
                f"fill only: {fills[0].overload} checks the flag to fill memory, nothing else that was reached does",
            )
        elif passed:
            way = "same"
            text = f"the alert of {passed[0].place.alert}, which the trace meets in other cases, is not met"
        else:
            way, text = "same", "the same overloads in both modes, none known to alert or to check the flag"
        backward_only = self._backward_only(row)
        return Traced(
            row=row,
            way=way,
            on=text,
            backward_only_text=ways.backward_only_text(row, backward_only),
            alerts=tuple(alerts),
            flags=tuple(fills if way == "fills" else flags),
            backward_only=tuple(backward_only),
            certain=way == "met"
            or any(
                one.way == "function" and one.place.path == "always" and one.overload not in asking
                for one in alerts
            ),
        )  # fmt: skip

    def _backward_only(self, row: TracedRow) -> list[Link]:
        """Return what alerts if the flag is turned on for the backward phase alone, and not if it was on before."""
        on, backward_only = row.in_mode("on"), row.in_mode("late")
        if on is None or backward_only is None:
            return []
        found = (
            list(self.places.met(backward_only.caller))
            if backward_only.caller not in {None, on.caller}
            else []
        )
        for name in backward_only.backward:
            if name not in on.backward and name in self._overloads:
                found += self.places.reached(self._overloads[name])
        return [one for one in found if one.place.kind == "alert" and self._applies_row(one, row.row)]

    def python(self, row: TracedRow) -> list[Link]:
        """Return the Python function itself, where it checks the flag and the flag reroutes the row."""
        module, _, function = row.row.op.rpartition(".")
        file = f"{module.replace('.', '/')}.py"
        return [
            Link(one, "function")
            for one in self.places.all
            if one.library == file and one.function == function and reroutes(row)
        ]

    def applies(self, link: Link, claim: Claim) -> bool:
        """Tell whether a place may be about the calls that a claim speaks of."""
        traits = {one.name: one.values for one in claim.conditions}
        return all(applies(link.place, traits, self._known(target)) for target in claim.targets)

    def _applies_row(self, link: Link, row: Row) -> bool:
        traits = {name: (value,) for name, value in row.traits.items()}
        return applies(link.place, traits, self._known(names_of(row)[0]))

    def _known(self, name: str) -> dict[str, set[str]]:
        return self._values.get(name, {})

    def anywhere(self, row: TracedRow) -> Iterator[Link]:
        """Yield what a row's overloads lead to in any mode."""
        for name in dict.fromkeys(n for reach in row.reached for n in (*reach.forward, *reach.backward)):
            if name in self._overloads:
                yield from self.places.reached(self._overloads[name])
        yield from self.python(row)


def names_another(row: TracedRow, overloads: Iterable[str]) -> bool:
    """Tell whether the alert that a trace met names another op than those of the row.

    Python code of shapes serves several ops at once and raises the alert of one of them for all.

    Args:
        row: What was traced.
        overloads: All that the trace reaches, the other op among them.
    """
    on = row.in_mode("on")
    if on is None or on.caller is None:
        return False
    said = words(on.caller)
    own = [names_of(row.row)[0].rpartition(".")[2], *map(_base, (*on.forward, *on.backward))]
    if any(_alike(word, other) for name in own for word in words(name) for other in said):
        return False
    return any(named and set(named) <= set(said) for name in overloads if (named := words(_base(name))))


def _base(overload: str) -> str:
    """Return the op of an overload: ``add`` of ``aten::add.Tensor``."""
    return overload.rpartition("::")[2].partition(".")[0]


def _alike(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    return short == long or (len(short) >= _LEAST and short in long)
