"""The two lists written again: an entry changes on evidence alone, and every other one keeps its bytes.

Each bullet is taken apart into one part per device and op, because only the part with evidence may change, and what
is left of it is put together again. A change that the docstring has no words for is not made, and said.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from msgspec import Struct
from msgspec.structs import replace

from reports.docs.additions import NO_WORDS, addition, with_arguments
from reports.docs.agreement import Docs
from reports.docs.bullets import DEVICES, ListName, Statement, statement_of, write
from reports.docs.conditions import (
    BENCHMARK,
    Action,
    Behaviour,
    Evidence,
    Rows,
    action_of,
    acts_with_benchmark,
    narrowed,
    splits,
)
from reports.docs.entries import OTHER, Entries, ListEntry, entries_of, entry_of, insert, list_of, text_of
from reports.docs.reasons import split_words
from scanner.claims.matching import matches, names_of
from scanner.errors import UsageError
from scanner.observations.records import Claim

_UNTOLD = " (whether the flag cures it or the fill of uninitialized memory, the run does not tell)"


class RegeneratedLists(Struct, frozen=True, kw_only=True):
    """The lists as documented and as measured."""

    documented: str
    regenerated: str
    changes: dict[int, str]  # a bullet's place -> what became of it, or why nothing did
    added: dict[tuple[str, str], str]  # op and device -> what was added for it, or why nothing was


class _Part(Struct, frozen=True, kw_only=True):
    """What is said of one op on one device after the evidence."""

    list: ListName
    target: str
    device: str
    claim: Claim


def regenerate(docs: Docs) -> RegeneratedLists:
    """Write the two lists again.

    Raises:
        UsageError: The claims do not hold the docstring's lines.
    """
    return _Writer(docs).write()


def lists_of(docs: Docs) -> RegeneratedLists | None:
    """Return the lists as they would be written, or ``None`` where the docstring's lines are not known."""
    try:
        return regenerate(docs)
    except UsageError:
        return None


class _Writer:
    """The state of writing the lists again."""

    def __init__(self, docs: Docs) -> None:
        self._rows = [(one.row.row, one.behaviour) for one in docs.rows if one.behaviour]
        self._docs = docs
        self._evidence: dict[str, list[Evidence]] = {}
        for one in docs.rows:
            for name in names_of(one.row.row) if one.behaviour or one.shows_little else ():
                self._evidence.setdefault(name, []).append(one)
        self._changes: dict[int, str] = {}
        self._added: dict[tuple[str, str], str] = {}
        self._entries: Entries = {}

    def write(self) -> RegeneratedLists:
        """Return the lists before and after."""
        self._entries = entries_of(self._docs.claims)
        bullets = [entry for entries in self._entries.values() for entry in entries]
        documented = text_of(self._entries)
        for entry in bullets:
            self._revise(entry)
        for (op, device), group in groupby(self._docs.undocumented, key=lambda one: (one.op, one.device)):
            evidence = [row for one in group for row in one.evidence]
            self._added[op, device] = "; ".join(self._add(op, device, evidence))
        return RegeneratedLists(
            documented=documented,
            regenerated=text_of(self._entries),
            changes=self._changes,
            added=self._added,
        )

    # --- Bullets that are there

    def _revise(self, entry: ListEntry) -> None:
        """Move, narrow or remove an entry as the evidence on its parts says."""
        first = entry.claims[0]
        here = list_of(entry)
        kept: list[_Part] = []
        moved: list[_Part] = []
        lines: list[str] = []
        parts: list[_Part] = []
        for claim in entry.claims if first.parsed else ():
            for device in DEVICES if claim.device == "any" else (claim.device,):
                for target in claim.targets:
                    part = _Part(list=here, target=target, device=device, claim=claim)
                    stay, go, why = self._decide(part, entry.source)
                    kept += stay
                    moved += go
                    lines += [why] if why else []
                    parts.append(part)
        if lines:
            self._changes[first.order] = "; ".join(dict.fromkeys(lines))
        if kept == parts:
            return
        place = self._entries[here].index(entry)
        whole = [replace(part, list=here) for part in moved] == parts
        left = [] if whole else self._written(kept, entry)
        arriving = [entry_of(OTHER[here], entry.source)] if whole else self._written(moved, entry)
        if left is None or arriving is None:
            self._changes[first.order] = f"left as it is: the lists have no words for it ({'; '.join(lines)})"
            return
        self._entries[here][place : place + 1] = left
        for one in arriving:
            insert(self._entries, one, OTHER[here])

    def _decide(self, part: _Part, source: str) -> tuple[list[_Part], list[_Part], str]:
        """Return what of a part stays, what goes to the other list, and why."""
        claim = replace(part.claim, targets=(part.target,), device=part.device)
        rows = self._speaking(claim)
        action = action_of(claim, rows)
        what = f"{part.target} on {part.device}"
        there = replace(part, list=OTHER[part.list])
        shown = {behaviour for _, behaviour in rows}
        if action == "keep":
            if part.list == "deterministic" and shown == {"nothing"} and self._needs_benchmark(claim):
                narrow = replace(part, claim=narrowed(part.claim, BENCHMARK, ("True",)))
                text = f"{BENCHMARK}=True: rows differ only with it, and not with cudnn.deterministic on too"
                return [narrow], [], f"{what} is narrowed by {text}"
            unproven = part.list == "raises" and shown == {"nothing"}
            text = f"{what} is left as it is: nothing was raised, but no input provokes a difference"
            return [part], [], text if unproven else ""
        found = splits(claim, rows)
        if action == "move" and not found:
            why = "it acts deterministically" if there.list == "deterministic" else "it raises"
            return [], [there], f"{what} moves to the list {there.list!r}: {why}"
        if action == "drop" and not found:
            why = "never differed, in either mode" if shown == {"nothing"} else "differs with the flag on"
            return [], [], f"{what} goes: it {why}, and nothing is raised"
        # Where a condition without words may decide as well, the one that has words is not known to.
        if len(found) != 1 or not _has_words(part, found[0].name, found[0].values, source):
            text = (
                "several conditions may decide"
                if len(found) > 1
                else "no condition that the lists have words for decides"
            )
            return [part], [], f"{what} is left as it is: {text}"
        (split,) = found
        by_fate = {
            action: [replace(part, claim=narrowed(part.claim, split.name, values))] if values else []
            for action, values in split.values.items()
        }
        moved = [
            replace(one, list=there.list)
            for one in by_fate["move"]
            if not self._is_said(replace(one.claim, targets=(part.target,), device=part.device), there.list)
        ]
        return by_fate["keep"], moved, f"{what} is narrowed by {split_words(split)}"

    def _is_said(self, claim: Claim, where: ListName) -> bool:
        """Tell whether the other list speaks already of all rows of a claim."""
        there = [one for one in self._docs.claims if one.section == where]
        return all(
            any(matches(row, one) for one in there)
            for row, behaviour in self._speaking(claim)
            if behaviour != "nothing"
        )

    def _speaking(self, claim: Claim) -> Rows:
        return [(row, behaviour) for row, behaviour in self._rows if matches(row, claim)]

    def _needs_benchmark(self, claim: Claim) -> bool:
        """Tell whether any of the rows of a claim, none of which differs with the flag off, does with cuDNN's benchmark on."""
        rows = [one.row for one in self._docs.rows if one.behaviour and matches(one.row.row, claim)]
        return any(map(acts_with_benchmark, rows))

    def _written(self, parts: Sequence[_Part], entry: ListEntry) -> list[ListEntry] | None:
        """Put parts together into as few bullets as say the same, or return ``None`` if one has no words."""
        written = []
        for statement in _statements(parts):
            source = write(statement, entry.source)
            if source is None:
                return None
            written.append(entry_of(statement.list, source))
        return written

    # --- Bullets that are missing

    def _add(self, op: str, device: str, evidence: Sequence[Evidence]) -> Iterator[str]:
        """Add bullets for rows without one; yield what was added, or why nothing was."""
        wanted: tuple[tuple[ListName, Behaviour], ...] = (("raises", "raises"), ("deterministic", "acts"))
        for where, behaviour in wanted:
            rows = [with_arguments(one) for one in evidence if one.behaviour == behaviour]
            if not rows:
                continue
            measured = [with_arguments(one) for one in self._evidence.get(op, ())]
            standing = [
                one for entries in self._entries.values() for entry in entries for one in entry.claims
            ]
            claim = addition(op, device, where, rows, measured, standing)
            source = None if isinstance(claim, str) else write(statement_of(claim))
            if source is None:
                yield f"not added to the list {where!r}: {claim if isinstance(claim, str) else NO_WORDS}"
                continue
            entry = entry_of(where, source)
            insert(self._entries, entry, where)
            # Runs of today tell them apart: what the fill cures is no "fixed_by_mode" there.
            cured = any(one.behaviour == "acts" and one.row.unfilled.verdict == "not_run" for one in rows)
            yield f"added to the list {where!r}: {entry.claims[0].text}{_UNTOLD if cured else ''}"
        if any(one.behaviour == "differs" for one in evidence):
            yield "in neither list: it differs with the flag on, and nothing is raised"


def _has_words(part: _Part, name: str, values: dict[Action, tuple[str | None, ...]], source: str) -> bool:
    """Tell whether both sides of a split can be written."""
    return all(
        write(
            statement_of(
                replace(narrowed(part.claim, name, some), targets=(part.target,), device=part.device)
            ),
            source,
        )
        for action in ("keep", "move")
        if (some := values[action])
    )


def _statements(parts: Sequence[_Part]) -> Iterator[Statement]:
    """Yield what parts of one bullet say, ops and devices of which the same is said together."""
    groups: dict[tuple[object, ...], list[_Part]] = {}
    for part in parts:
        groups.setdefault((part.list, part.claim.direction, part.claim.conditions), []).append(part)
    for same in groups.values():
        devices: dict[str, list[str]] = {}
        for part in same:
            devices.setdefault(part.target, []).append(part.device)
        together: dict[tuple[str, ...], list[str]] = {}
        for target, on in devices.items():
            together.setdefault(tuple(on), []).append(target)
        for on_all, targets in together.items():
            anywhere = same[0].claim.device == "any" and on_all == DEVICES
            yield Statement(
                list=same[0].list,
                targets=tuple(targets),
                devices=() if anywhere else on_all,
                direction=same[0].claim.direction,
                conditions=same[0].claim.conditions,
            )
