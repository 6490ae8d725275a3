"""The two lists with what a build says of itself: alerts that are gone, and alerts that no bullet speaks of.

Only what a census and a trace together leave no doubt of changes an entry: alerts that a traced case meets, or that every
way through what it reaches passes; bullets of which no case has an alert left. None of it was measured. What runs have
shown of a bullet stands.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec.structs import replace

from reports.builds.expectations import BuildExpectations, ExpectedClaim
from reports.builds.ops import ExpectedOp
from reports.builds.traced import PASSING, Traced
from reports.docs.additions import condition_words, separating
from reports.docs.bullets import ListName, lists, role_of, statement_of, write
from reports.docs.conditions import narrowed
from reports.docs.entries import ListEntry, entries_of, entry_of, insert, text_of
from scanner.claims.tables import overlap, parse_claims
from scanner.observations.records import Claim
from scanner.observations.trace.records import TracedRow

# Ways that make a difference of the flag, without an alert.
_ACTING = {"reroutes", "asks"}


def with_builds(
    text: str, builds: Iterable[BuildExpectations], measured: Collection[str]
) -> tuple[str, list[str]]:
    """Return the lists as builds let expect them, and a sentence for each entry that they change.

    Args:
        text: The lists.
        builds: What is expected.
        measured: The ids of the claims of which runs have shown something; they stay.
    """
    writer = _Writer(text, measured)
    for build in builds:
        for claim in build.expected:
            writer.revise(claim, build.device)
        for op in build.ops:
            writer.add(op, build.device)
    return text_of(writer.entries), writer.notes


class _Writer:
    """The state of writing the lists again."""

    def __init__(self, text: str, measured: Collection[str]) -> None:
        self.entries = entries_of(parse_claims(text))
        self.notes: list[str] = []
        self._measured = measured

    # --- Bullets that are there

    def revise(self, one: ExpectedClaim, device: str) -> None:
        """Move, narrow or remove the entry of a claim."""
        entry = self._entry(one.claim)
        # A bullet of several ops or devices is told apart by measurement alone.
        if entry is None or one.claim.device != device or not one.traced or len(one.claim.targets) > 1:
            return
        if one.expectation == "alert_gone":
            self._without_alert(entry, one)
        elif one.expectation == "alert_reached":
            self._alerting(entry, one)

    def _entry(self, claim: Claim) -> ListEntry | None:
        """Return the entry of a claim that nothing was measured of, if it is alone in one."""
        if claim.id in self._measured:
            return None
        every = (entry for some in self.entries.values() for entry in some)
        return next((entry for entry in every if [it.id for it in entry.claims] == [claim.id]), None)

    def _without_alert(self, entry: ListEntry, one: ExpectedClaim) -> None:
        """Say of an op that has no alert left that it acts, if the flag makes a difference, or say nothing."""
        ways = {traced.way for traced in one.traced}
        if not ways <= PASSING:
            return
        what = f"{one.claim.id}: no alert is left in the build"
        self.entries["raises"].remove(entry)
        if ways <= _ACTING:
            self._insert(entry.source, "deterministic")
            self.notes.append(
                f"{what}, and its traced cases ask for the flag or are rerouted by it: moved to 'deterministic'"
            )
        else:
            self.notes.append(f"{what}: removed from 'raises'")

    def _alerting(self, entry: ListEntry, one: ExpectedClaim) -> None:
        """Say of an op that is documented to act, and alerts, that it raises, under the condition that decides."""
        here = [traced for traced in one.traced if traced.certain]
        there = [traced for traced in one.traced if not traced.certain]
        what = f"{one.claim.id}: {len(here)} of {len(one.traced)} traced cases lead to an alert"
        if not there:
            self.entries["deterministic"].remove(entry)
            self._insert(entry.source, "raises")
            self.notes.append(f"{what}: moved to 'raises'")
            return
        raising = _narrow(one.claim, _rows(here), _rows(there), "raises", entry.source)
        acting = _narrow(one.claim, _rows(there), _rows(here), "deterministic", entry.source)
        if raising is None or acting is None:
            self.notes.append(f"{what}: left as it is, the lists have no words for what tells them apart")
            return
        self.entries["deterministic"].remove(entry)
        self._insert(acting[0], "deterministic")
        self._insert(raising[0], "raises")
        self.notes.append(f"{what}: narrowed by {raising[1]}")

    # --- Bullets that are missing

    def add(self, op: ExpectedOp, device: str) -> None:
        """Add a bullet for cases that lead to an alert for certain, and to which none speaks."""
        here = [traced for traced in op.unlisted if traced.certain]
        bullet = f"* {role_of(op.op)} when called on a {device.upper()} tensor"
        claims = parse_claims(lists({"deterministic": [], "raises": [bullet]}))
        if not here or not claims or not claims[0].parsed:
            return
        ids = {traced.row.row.id for traced in here}
        there = [row for row in op.rows if row.row.id not in ids]
        claim = replace(claims[0], direction="backward" if op.direction == "backward" else "any")
        what = f"{op.op} {op.direction}: {len(here)} of {len(op.rows)} traced cases lead to an alert, and no bullet speaks of them"
        found = _narrow(claim, _rows(here), there, "raises")
        standing = [it for entry in self.entries["deterministic"] for it in entry.claims]
        if found is None:
            self.notes.append(f"{what}: not added, the lists have no words for what tells them apart")
        elif any(
            it.parsed and overlap(it, added)
            for it in standing
            for added in entry_of("raises", found[0]).claims
        ):
            self.notes.append(f"{what}: not added, the list 'deterministic' speaks of the op")
        else:
            self._insert(found[0], "raises")
            self.notes.append(f"{what}: added to 'raises'{f', narrowed by {found[1]}' if found[1] else ''}")

    def _insert(self, source: str, where: ListName) -> None:
        insert(self.entries, entry_of(where, source), where)


def _narrow(
    claim: Claim, here: Sequence[TracedRow], there: Sequence[TracedRow], where: ListName, source: str = ""
) -> tuple[str, str] | None:
    """Return the bullet for the rows *here* that leaves out all *there*, and the condition that it took.

    Returns:
        ``None`` if no condition tells them apart, several do, or the lists have no words for it.
    """
    claim, words = replace(claim, section=where), ""
    if there:
        found = list(separating(_features(here), _features(there)))
        if len(found) != 1:
            return None
        claim, words = narrowed(claim, found[0].name, found[0].values), condition_words(found[0])
    written = write(statement_of(claim), source)
    return None if written is None else (written, words)


def _rows(traced: Iterable[Traced]) -> list[TracedRow]:
    return [one.row for one in traced]


def _features(rows: Iterable[TracedRow]) -> list[Mapping[str, str]]:
    return [{**row.row.traits, "dtype": row.row.dtype} for row in rows]
