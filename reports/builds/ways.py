"""What a traced row comes to, in words."""

from __future__ import annotations

from collections.abc import Sequence

from reports.builds.links import Link
from scanner.observations.trace.records import TracedRow
from scanner.verdicts.reroutes import decided

_NAMED = 2  # overloads of a phase that are named


def alerting(alerts: Sequence[Link], asking: set[str | None]) -> str:
    """Say which overload leads to an alert, the surest link first."""
    first = min(alerts, key=lambda one: (one.way != "function", one.way == "shared", one.overload in asking))
    path = "always" if first.place.path == "always" else "on some ways"
    also = ", and one that checks the flag" if first.overload in asking else ""
    return f"reaches {first.overload}, {whose(first)} alerts {path}{also}"


def other_alert(caller: str | None) -> str:
    """Say that the trace met an alert that is another op's."""
    return (
        f"the trace met the alert of {caller}, which names another op: Python code of shapes raises it for several ops, "
        f"and the kernel of this one is not known to raise it"
    )


def backward_only_text(row: TracedRow, alerts: Sequence[Link]) -> str | None:
    """Say what turning the flag on for the backward phase alone comes to, where the path is decided before."""
    on, backward_only = row.in_mode("on"), row.in_mode("late")
    caller = backward_only.caller if backward_only is not None else None
    if on is not None and caller not in {None, on.caller}:
        return f"turned on only for backward it raises {caller}"
    if alerts:
        first = min(alerts, key=_unsure)
        would = "could" if any(_unsure(first)) else "would"
        return f"turned on only for backward it {would} raise {first.place.alert or 'an unresolved alert'}"
    if decided(row) == "forward":
        return "turned on only for backward it does not reroute"
    return None


def _unsure(link: Link) -> tuple[bool, bool]:
    return link.way != "function", link.place.path != "always"


def whose(link: Link) -> str:
    """Say whose the function of a link is."""
    if link.way == "shared":
        return "and a function of the op's name, which may serve another of its overloads,"
    return "whose function" if link.way == "function" else "and a function of that name"


def some(names: Sequence[str]) -> str:
    """Name the first overloads of a phase."""
    more = " and more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}" if names else "nothing"
