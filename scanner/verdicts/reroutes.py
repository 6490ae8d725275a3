"""What a trace says of the flag: where it leads to other overloads, and when the path is decided."""

from __future__ import annotations

from typing import Literal

import msgspec

from scanner.observations.trace.records import Reach, TracedRow

# What turning the flag on only for the backward phase comes to.
#
# same     the backward phase is the same with the flag off and on
# forward  it goes the way of the flag being off: the path was decided in the forward phase
# backward  it goes the way of the flag being on
# alert    it raises the alert
# other    it goes a third way
# unknown  a mode was not traced to its end
Decided = Literal["same", "forward", "backward", "alert", "other", "unknown"]

DECIDED_MEANING: dict[Decided, str] = {
    "same": "backward reaches the same overloads with the flag off and on",
    "forward": "in forward: turned on only for backward, the flag does not reroute: the overload of the flag being "
    "off is reached, and raises if its function alerts",
    "backward": "in backward: turned on only for backward, the flag acts as if it had been on before",
    "alert": "turned on only for backward, the flag raises the alert",
    "other": "turned on only for backward, the flag leads to other overloads again",
    "unknown": "not traced to the end",
}


class Reroute(msgspec.Struct, frozen=True):
    """What only one mode reaches, in one phase of a row."""

    phase: Literal["forward", "backward"]
    only_off: tuple[str, ...]  # in the order of first calls
    only_on: tuple[str, ...]


def reroutes(row: TracedRow) -> tuple[Reroute, ...]:
    """Return where the flag reroutes a row.

    A phase that did not go to its end in both modes tells nothing and is left out: what is missing there may have
    come later.
    """
    off, on = row.in_mode("off"), row.in_mode("on")
    if off is None or on is None:
        return ()
    found = []
    phases: tuple[Literal["forward", "backward"], ...] = ("forward", "backward")
    for phase in phases:
        if not (_ended(off, phase) and _ended(on, phase)):
            continue
        without, within = getattr(off, phase), getattr(on, phase)
        if without.keys() != within.keys():
            found.append(
                Reroute(
                    phase,
                    tuple(name for name in without if name not in within),
                    tuple(name for name in within if name not in without),
                )
            )
    return tuple(found)


def decided(row: TracedRow) -> Decided | None:
    """Return when the path of a row's backward phase is decided; ``None`` for a forward row."""
    off, on, backward_only = row.in_mode("off"), row.in_mode("on"), row.in_mode("late")
    if backward_only is None:
        return None
    if backward_only.outcome == "alert":
        return "alert"
    if off is None or on is None or any(reach.outcome != "traced" for reach in (off, on, backward_only)):
        return "unknown"
    if off.backward == on.backward == backward_only.backward:
        return "same"
    if backward_only.backward == off.backward:
        return "forward"
    return "backward" if backward_only.backward == on.backward else "other"


def _ended(reach: Reach, phase: str) -> bool:
    """Say whether a phase went to its end."""
    return reach.outcome == "traced" or (reach.stopped == "backward" and phase == "forward")
