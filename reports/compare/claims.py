"""The documented lists of two releases: what moved, came, went or was reworded, beside what was measured to change.

The lists speak of the flag, so that what counts of a row is what it does with the flag off and on: ``Change.of_flag``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

from msgspec import Struct

from reports.compare.rows.judged import MOVES, Change
from scanner.claims.matching import matches, names_of
from scanner.observations.records import Claim, Section

ClaimKind = Literal["moved", "added", "dropped", "reworded"]
Measured = Literal["changed", "otherwise", "same", "not_comparable", "other_device", "not_covered"]

# One sentence each, printed with every report.
CLAIM_MEANING: dict[ClaimKind, str] = {
    "moved": "The bullet stands in another list than before.",
    "added": "Only the later release has the bullet.",
    "dropped": "Only the earlier release has the bullet.",
    "reworded": "The same list says something else of the same ops: in other words, or under other conditions.",
}
MEASURED_MEANING: dict[Measured, str] = {
    "changed": "At least one row that speaks to the bullet changed as the bullet did, or, beside one that was reworded, at "
    "all.",
    "otherwise": "Rows that speak to it changed, and none as the bullet did: a documented change without a measured one.",
    "same": "A documented change without a measured one: with the flag off and on the rows that speak to it show the same in "
    "both runs, whatever they do in chosen modes.",
    "not_comparable": "No row that speaks to it can be compared.",
    "other_device": "It is about another device than these runs.",
    "not_covered": "No row of these runs speaks to it.",
}
_RAISING: set[Section] = {"raises", "cublas"}


class ClaimChange(Struct, frozen=True, kw_only=True):
    """A claim that the lists of two releases do not share, and the rows that speak to it."""

    kind: ClaimKind
    old: Claim | None
    new: Claim | None
    measured: Measured
    rows: tuple[Change, ...]  # those that speak to it on its device

    @property
    def claim(self) -> Claim:
        """The later of the two, or the only one."""
        claim = self.new or self.old
        assert claim is not None
        return claim

    @property
    def unmeasured(self) -> bool:
        """Whether the lists say that something changed, and the rows that it did not; words alone say nothing."""
        return self.measured in {"same", "otherwise"} and self.kind != "reworded"


def compare_claims(
    old: Sequence[Claim], new: Sequence[Claim], changes: Sequence[Change]
) -> tuple[ClaimChange, ...]:
    """Return what the lists of two releases do not share, in the order of the later one, what went last.

    Args:
        old: The claims of the earlier one.
        new: Those of the later one.
        changes: What became of the rows.
    """
    return tuple(
        ClaimChange(
            kind=_kind(before, after),
            old=before,
            new=after,
            measured=_measured(before, after, changes),
            rows=tuple(_speaking(before, after, changes)),
        )
        for before, after in _paired(old, new)
        if before is None or after is None or (before.id, before.text) != (after.id, after.text)
    )


def undocumented(claims: Sequence[ClaimChange], changes: Iterable[Change]) -> tuple[Change, ...]:
    """Return the rows of torch that changed although no claim about them changed in the same way."""
    heard = {
        change.row.row.key
        for claim in claims
        for change in claim.rows
        if _agrees(claim.old, claim.new, change)
    }
    return tuple(
        change
        for change in changes
        if change.of_flag in MOVES
        and change.row.row.key not in heard
        and names_of(change.row.row)[0].startswith("torch.")
    )


def _paired(old: Sequence[Claim], new: Sequence[Claim]) -> Iterator[tuple[Claim | None, Claim | None]]:
    """Pair the claims of two releases: first those that say the same, then those of the same ops."""
    left, found = list(old), dict[int, Claim]()
    keys: tuple[Callable[[Claim], object], ...] = (
        lambda claim: claim.id,
        lambda claim: claim.id.partition("/")[2],  # the same bullet in another list
        lambda claim: (claim.section, _about(claim)),  # under other conditions
        _about,
    )
    for key in keys:
        for place, after in enumerate(new):
            if place in found:
                continue
            before = [claim for claim in left if key(claim) == key(after)]
            rivals = [
                claim for other, claim in enumerate(new) if other not in found and key(claim) == key(after)
            ]
            # Where several could be meant, none is.
            if len(before) == len(rivals) == 1:
                found[place] = before[0]
                left.remove(before[0])
    yield from ((found.get(place), after) for place, after in enumerate(new))
    yield from ((before, None) for before in left)


def _about(claim: Claim) -> object:
    """Return what a claim is about, whatever it says of it; of one that was not understood, itself."""
    if not claim.parsed:
        return claim.id
    return (frozenset(claim.targets), claim.device, claim.direction)


def _kind(old: Claim | None, new: Claim | None) -> ClaimKind:
    if old is None:
        return "added"
    if new is None:
        return "dropped"
    return "reworded" if old.section == new.section else "moved"


def _speaking(
    old: Claim | None, new: Claim | None, changes: Iterable[Change], *, ignore_device: bool = False
) -> Iterator[Change]:
    claims = [claim for claim in (old, new) if claim is not None]
    for change in changes:
        if any(matches(change.row.row, claim, ignore_device=ignore_device) for claim in claims):
            yield change


def _measured(old: Claim | None, new: Claim | None, changes: Sequence[Change]) -> Measured:
    """Say what the rows that speak to a changed claim show."""
    rows = list(_speaking(old, new, changes))
    kinds = {change.of_flag for change in rows}
    if not kinds:
        elsewhere = any(_speaking(old, new, changes, ignore_device=True))
        return "other_device" if elsewhere else "not_covered"
    moved = [change for change in rows if change.of_flag in MOVES]
    if moved:
        reworded = _kind(old, new) == "reworded"
        return "changed" if reworded or any(_agrees(old, new, change) for change in moved) else "otherwise"
    return "same" if "same" in kinds else "not_comparable"


def _agrees(old: Claim | None, new: Claim | None, change: Change) -> bool:
    """Tell whether a row that changed did so as a claim did: into the list it came to, out of the one it left.

    A claim that says of the row what it said before, in other words, speaks of no change.
    """
    if change.old is None or change.new is None:
        return False
    before, after = (
        {claim.section} if claim is not None and matches(change.row.row, claim) else set[Section]()
        for claim in (old, new)
    )
    raised, raises = (row.on.verdict == "raises" for row in (change.old, change.new))
    came, went = after - before, before - after
    if came:
        if came <= _RAISING:
            return raises and not raised
        return came != {"deterministic"} or (change.of_flag == "improved" and not raises)
    if went <= _RAISING:
        return bool(went) and raised and not raises
    return went != {"deterministic"} or change.of_flag != "improved"
