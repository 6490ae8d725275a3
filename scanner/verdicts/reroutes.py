"""What a trace says of the flag: where it leads to other overloads, and when the path is chosen."""

from __future__ import annotations

from typing import Literal

import msgspec

from scanner.observations.trace.records import Reach, TracedRow

# What turning the flag on only for the backward part comes to.
#
# same     the backward part is the same with the flag off and on
# forward  it goes the way of the flag being off: the path was chosen in the forward part
# backward  it goes the way of the flag being on
# alert    it raises the alert
# other    it goes a third way
# unknown  a mode was not traced to its end
Chosen = Literal["same", "forward", "backward", "alert", "other", "unknown"]

CHOSEN_MEANING: dict[Chosen, str] = {
    "same": "backward reaches the same overloads with the flag off and on",
    "forward": "in forward: turned on only for backward, the flag does not reroute: the overload of the flag being "
    "off is reached, and raises if its function alerts",
    "backward": "in backward: turned on only for backward, the flag acts as if it had been on before",
    "alert": "turned on only for backward, the flag raises the alert",
    "other": "turned on only for backward, the flag leads to other overloads again",
    "unknown": "not traced to the end",
}


class Reroute(msgspec.Struct, frozen=True):
    """What only one mode reaches, in one part of a row."""

    part: Literal["forward", "backward"]
    only_off: tuple[str, ...]  # in the order of first calls
    only_on: tuple[str, ...]


def reroutes(row: TracedRow) -> tuple[Reroute, ...]:
    """Return where the flag reroutes a row.

    A part that did not go to its end in both modes tells nothing and is left out: what is missing there may have
    come later.
    """
    off, on = row.in_mode("off"), row.in_mode("on")
    if off is None or on is None:
        return ()
    found = []
    parts: tuple[Literal["forward", "backward"], ...] = ("forward", "backward")
    for part in parts:
        if not (_ended(off, part) and _ended(on, part)):
            continue
        without, within = getattr(off, part), getattr(on, part)
        if without.keys() != within.keys():
            found.append(
                Reroute(
                    part,
                    tuple(name for name in without if name not in within),
                    tuple(name for name in within if name not in without),
                )
            )
    return tuple(found)


def chosen(row: TracedRow) -> Chosen | None:
    """Return when the path of a row's backward part is chosen; ``None`` for a forward row."""
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


def _ended(reach: Reach, part: str) -> bool:
    """Say whether a part went to its end."""
    return reach.outcome == "traced" or (reach.stopped == "backward" and part == "forward")
