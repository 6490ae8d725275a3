"""What a build lets expect of each op and direction beside the lists: raised and not listed, listed and not raised."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import Struct

from reports.builds.traced import PASSING, RAISING, Reader, Traced
from scanner.claims.matching import RAISING_LISTS, matches, names_of
from scanner.observations.records import Claim
from scanner.observations.trace.records import TracedRow

OpKind = Literal["unlisted_raise", "partly_raised", "innocent_raise"]
OP_MEANING: dict[OpKind, str] = {
    "unlisted_raise": "Ops, in one direction, with cases that lead to an alert, by more than a name that overloads share, and to "
    "which no bullet speaks.",
    "partly_raised": "Ops, in one direction, with cases that are documented to raise and end without a known alert, or "
    "may pass by those that they reach.",
    "innocent_raise": "Ops, in one direction, that lead to an alert under a condition of which all cases are innocent: "
    "by their specs nothing in them can differ.",
}


class ExpectedOp(Struct, frozen=True, kw_only=True):
    """An op in one direction, and those of its traced cases that the lists do not tell of, or not rightly."""

    op: str
    direction: str
    documented: tuple[str, ...]  # the lists whose bullets speak to some of its cases
    rows: tuple[TracedRow, ...]
    raising: tuple[Traced, ...]  # lead to an alert
    unlisted: tuple[Traced, ...]  # of these: no bullet speaks to them
    passing: tuple[Traced, ...]  # documented to raise, and end without a known alert
    unsure: tuple[Traced, ...]  # documented to raise, and may pass the alert by

    @property
    def kinds(self) -> tuple[OpKind, ...]:
        """What there is to say of it; nothing where the lists say it."""
        found: dict[OpKind, object] = {
            "unlisted_raise": self.unlisted,
            "partly_raised": self.passing or self.unsure,
            "innocent_raise": self.innocent,
        }
        return tuple(kind for kind, some in found.items() if some)

    @property
    def innocent(self) -> tuple[str, ...]:
        """The conditions under which it always alerts and by its specs never differs: ``reduce=amax``."""
        groups: dict[str, list[Traced]] = {}
        for one in self.raising:
            for name, value in {"": "", **one.row.row.traits}.items():
                groups.setdefault(f"{name}={value}" if name else "every case", []).append(one)
        return tuple(
            name
            for name, some in groups.items()
            if not any(one.may_pass or one.row.row.provokes for one in some)
        )

    @property
    def alerts(self) -> tuple[str, ...]:
        """The callers of the alerts that it leads to."""
        found: dict[str, None] = {}
        for one in self.raising:
            on = one.row.in_mode("on")
            # What the trace met need not be in a census.
            met = [on.caller] if on is not None and on.caller is not None else []
            found |= dict.fromkeys([*met, *(link.place.alert or "unresolved" for link in one.alerts)])
        return tuple(found)

    def named(self, some: Sequence[Traced]) -> list[str]:
        """Name cases, those of which not every dtype is meant with the dtypes that are."""
        meant: dict[str, list[str]] = {}
        for one in some:
            meant.setdefault(self._case(one.row), []).append(one.row.row.dtype)
        every: dict[str, set[str]] = {}
        for row in self.rows:
            every.setdefault(self._case(row), set()).add(row.row.dtype)
        return [
            case if set(dtypes) == every[case] else f"{case}:{','.join(dtypes)}"
            for case, dtypes in meant.items()
        ]

    def _case(self, row: TracedRow) -> str:
        return row.row.case if row.row.spec == self.op else f"{row.row.spec}:{row.row.case}"


def expected_ops(reader: Reader, claims: Sequence[Claim]) -> Iterator[ExpectedOp]:
    """Yield the ops with something to say of them, each direction apart, in the order of the trace.

    Args:
        reader: The build.
        claims: Those about its device.
    """
    groups: dict[tuple[str, str], list[TracedRow]] = {}
    for row in reader.rows:
        groups.setdefault((names_of(row.row)[0], row.row.direction), []).append(row)
    for (op, direction), rows in groups.items():
        # A bullet that names no direction is told of forward rows, where there are any.
        whole = direction == "forward" or (op, "forward") not in groups
        one = _op(reader, op, rows, [claim for claim in claims if op in claim.targets], whole=whole)
        if one.kinds:
            yield one


def _op(
    reader: Reader, op: str, rows: Sequence[TracedRow], claims: Sequence[Claim], *, whole: bool
) -> ExpectedOp:
    lists: dict[str, None] = {}
    raising, unlisted, passing, unsure = [], [], [], []
    direction = rows[0].row.direction
    for row in rows:
        said = reader.trace(row, direction)
        speaking = [claim for claim in claims if matches(row.row, claim)]
        lists |= dict.fromkeys(claim.section for claim in speaking)
        if said.way in RAISING and _in_direction(row, said):
            raising.append(said)
            # Which overload such a function serves is not known, and no bullet can be missing for want of knowing.
            unlisted += [] if speaking or said.by_name_alone else [said]
        for claim in speaking:
            if claim.section in RAISING_LISTS and (whole or claim.direction == direction):
                listed = reader.trace(row, claim.direction)
                # An alert that no overload leads to may be its: the words of the op say so.
                near = any(link.place not in reader.owned for link in reader.worded_alerts(row.row))
                passing += [listed] if listed.way in PASSING and not near else []
                unsure += [listed] if listed.may_pass else []
                break
    return ExpectedOp(
        op=op,
        direction=direction,
        documented=tuple(lists),
        rows=tuple(rows),
        raising=tuple(raising),
        unlisted=tuple(unlisted),
        passing=tuple(passing),
        unsure=tuple(unsure),
    )


def _in_direction(row: TracedRow, said: Traced) -> bool:
    """Tell whether an alert is met in the direction of its row: that of the forward phase is told of forward rows."""
    on = row.in_mode("on")
    return (
        said.way != "met" or row.row.direction == "forward" or (on is not None and on.stopped == "backward")
    )
