"""The two lists written again: an entry changes on evidence alone, and every other one keeps its bytes.

Each bullet is taken apart into one part per device and op, because only the part with evidence may change, and what
is left of it is put together again. A change that the docstring has no words for is not made, and said.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from msgspec import Struct
from msgspec.structs import replace

from detmatrix.reports.docs.entries import (
    DEVICES,
    OTHER,
    Entries,
    ListEntry,
    ListName,
    entries_of,
    entry_of,
    insert,
    kind_of,
    list_of,
    lists,
    text_of,
    write,
)
from detmatrix.reports.docs.evidence import (
    BENCHMARK,
    Behaviour,
    Evidence,
    Rows,
    action_of,
    acts_with_benchmark,
    effect_of,
    narrowed,
    splits,
)
from detmatrix.reports.docs.judge import Docs, split_words, strongest
from detmatrix.scanner.claims.matching import dtype_kind, matches, names_of
from detmatrix.scanner.claims.tables import overlap, parse_claims
from detmatrix.scanner.observations.records import Claim, Condition, Row
from detmatrix.scanner.plurals import several
from detmatrix.scanner.verdicts.simulated import PROVED

SIMULATED = "[simulated: "
_UNTOLD = " (whether the flag cures it or the fill of uninitialized memory, the run does not tell)"


class RegeneratedLists(Struct, frozen=True, kw_only=True):
    """The lists as documented and as measured."""

    documented: str
    regenerated: str
    changes: dict[int, str]  # a bullet's place -> what became of it, or why nothing did
    added: dict[tuple[str, str], str]  # op and device -> what was added for it, or why nothing was

    @property
    def notes(self) -> list[str]:
        """All that is said of changes."""
        return [*self.changes.values(), *(f"{op} on {on}: {text}" for (op, on), text in self.added.items())]


def regenerate(docs: Docs) -> RegeneratedLists:
    """Write the two lists again.

    Raises:
        UsageError: The claims do not hold the docstring's lines.
    """
    return _Writer(docs).write()


class _Writer:
    """The state of writing the lists again."""

    def __init__(self, docs: Docs) -> None:
        self._docs = docs
        # Of a row that is held back counts that host code raised nothing.
        self._seen = [
            replace(one, behaviour="nothing") if one.held and one.behaviour else one for one in docs.rows
        ]
        self._evidence: dict[str, list[Evidence]] = {}
        for one in self._seen:
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
        for (op, device), some in groupby(self._docs.undocumented, key=lambda one: (one.op, one.device)):
            group = list(some)
            evidence = [row for one in group for row in one.evidence if not row.held]
            held = "; ".join(dict.fromkeys(row.held for one in group for row in one.evidence if row.held))
            added = self._add(op, device, evidence) if evidence else [f"nothing is proposed: {held}"]
            self._added[op, device] = "; ".join(added)
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
        here = list_of(first)
        # What is said of one op on one device is a claim of its own.
        parts = [
            replace(claim, targets=(target,), device=device)
            for claim in (entry.claims if first.parsed else ())
            for device in (DEVICES if claim.device == "any" else (claim.device,))
            for target in claim.targets
        ]
        decided = [self._decide(part, entry.source) for part in parts]
        kept = [one for stay, _, _ in decided for one in stay]
        moved = [one for _, go, _ in decided for one in go]
        lines = [why for *_, why in decided if why]
        if lines:
            self._changes[first.order] = "; ".join(dict.fromkeys(lines))
        if kept == parts:
            return
        place = self._entries[here].index(entry)
        whole = [replace(part, section=here) for part in moved] == parts
        left = [] if whole else self._written(kept, entry)
        arriving = [entry_of(OTHER[here], entry.source)] if whole else self._written(moved, entry)
        if left is None or arriving is None:
            self._changes[first.order] = f"left as it is: the lists have no words for it ({'; '.join(lines)})"
            return
        self._entries[here][place : place + 1] = left
        for one in arriving:
            insert(self._entries, one, OTHER[here])

    def _decide(self, claim: Claim, source: str) -> tuple[list[Claim], list[Claim], str]:
        """Return what of a claim stays, what goes to the other list, and why."""
        evidence = self._speaking(claim)
        rows = [(_provoking(one), one.behaviour) for one in evidence if one.behaviour]
        action = action_of(claim, rows)
        what = f"{claim.targets[0]} on {claim.device}"
        there = OTHER[claim.section]
        shown = {behaviour for _, behaviour in rows}
        if action == "keep":
            if (
                claim.section == "deterministic"
                and shown == {"nothing"}
                and any(acts_with_benchmark(one.row) for one in self._speaking(claim))
            ):
                text = f"{BENCHMARK}=True: rows differ only with it, and not with cudnn.deterministic on too"
                return [narrowed(claim, BENCHMARK, ("True",))], [], f"{what} is narrowed by {text}"
            unproven = claim.section == "raises" and shown == {"nothing"}
            text = f"{what} is left as it is: nothing was raised, but no input provokes a difference"
            return [claim], [], text if unproven else ""
        found = splits(claim, rows)
        failing = [one for one in evidence if effect_of(claim, one.behaviour) == "contradicts"]
        rests_on = witness_words([one for one in failing if not one.held] or failing)
        acting = there == "deterministic"
        arrives = acting and (action == "move" or any(split.values["move"] for split in found))
        faults = [one for one in self._faults(claim.targets[0], claim.device) if one.wrong or arrives]
        whole = not found and not (acting and faults)
        if action == "move" and whole:
            why = "it acts deterministically" if acting else "it raises"
            return [], [replace(claim, section=there)], f"{what} moves to the list {there!r}: {why}{rests_on}"
        if action == "drop" and whole:
            why = "never differed, in either mode" if shown == {"nothing"} else "differs with the flag on"
            why = "is not known to act deterministically" if any(one.held for one in evidence) else why
            return [], [], f"{what} goes: it {why}, and nothing is raised{rests_on}"
        # Where a condition without words may decide as well, the one that has words is not known to.
        worded = [
            split
            for split in found
            if all(
                write(narrowed(claim, split.name, values), source)
                for values in (split.values["keep"], split.values["move"])
                if values
            )
        ]
        if faults or len(found) != 1 or not worded:
            text = (
                f"{faults[0].fault}; report that first"
                if faults
                else "several conditions may decide"
                if len(found) > 1
                else "no condition that the lists have words for decides"
            )
            return [claim], [], f"{what} is left as it is: {text}"
        (split,) = found
        by_fate = {
            action: [narrowed(claim, split.name, values)] if values else []
            for action, values in split.values.items()
        }
        # What the other list says already of all rows is not said twice.
        others = [one for one in self._docs.claims if one.section == there]
        moved = [
            replace(one, section=there)
            for one in by_fate["move"]
            if not all(
                any(matches(it.row.row, other) for other in others)
                for it in self._speaking(one)
                if it.behaviour != "nothing"
            )
        ]
        return by_fate["keep"], moved, f"{what} is narrowed by {split_words(split)}{rests_on}"

    def _speaking(self, claim: Claim) -> list[Evidence]:
        return [one for one in self._seen if one.behaviour and matches(one.row.row, claim)]

    def _faults(self, op: str, device: str) -> list[Evidence]:
        """Return the rows for which an op is not said to act deterministically, first those of wrong results."""
        rows = [one for one in self._docs.rows if one.device == device and op in names_of(one.row.row)]
        return sorted((one for one in rows if one.fault), key=lambda one: not one.wrong)

    def _written(self, parts: Sequence[Claim], entry: ListEntry) -> list[ListEntry] | None:
        """Put parts together into as few bullets as say the same, or return ``None`` if one has no words."""
        written = []
        for claim, devices in _together(parts):
            anywhere = entry.claims[0].device == "any" and devices == DEVICES
            source = write(claim, entry.source, () if anywhere else devices)
            if source is None:
                return None
            written.append(entry_of(list_of(claim), source))
        return written

    # --- Bullets that are missing

    def _add(self, op: str, device: str, evidence: Sequence[Evidence]) -> Iterator[str]:
        """Add bullets for rows without one; yield what was added, or why nothing was."""
        wanted: tuple[tuple[ListName, Behaviour], ...] = (("raises", "raises"), ("deterministic", "acts"))
        for where, behaviour in wanted:
            rows = [with_arguments(one) for one in evidence if one.behaviour == behaviour]
            if not rows:
                continue
            if where == "deterministic" and (faults := self._faults(op, device)):
                yield f"not added to the list {where!r}: {faults[0].fault}"
                continue
            measured = [
                with_arguments(one) for one in self._evidence.get(op, ()) if where == "raises" or not one.held
            ]
            standing = [
                one for entries in self._entries.values() for entry in entries for one in entry.claims
            ]
            claim = addition(op, device, where, rows, measured, standing)
            source = None if isinstance(claim, str) else write(claim)
            if source is None:
                yield f"not added to the list {where!r}: {claim if isinstance(claim, str) else NO_WORDS}"
                continue
            entry = entry_of(where, source)
            insert(self._entries, entry, where)
            # Runs of today tell them apart: what the fill cures is no "fixed_by_mode" there.
            cured = any(one.behaviour == "acts" and one.row.unfilled.verdict == "not_run" for one in rows)
            yield f"added to the list {where!r}: {entry.claims[0].text}{_UNTOLD if cured else ''}{witness_words(rows)}"
        if differing := [one for one in evidence if one.behaviour == "differs"]:
            yield f"in neither list: it differs with the flag on, and nothing is raised{witness_words(differing)}"


def _provoking(one: Evidence) -> Row:
    """Return a row; one whose threads are proved never to be in conflict shows as much as one that provokes a difference."""
    known = one.row.off.simulated
    proved = known is not None and known.race_free
    return replace(one.row.row, provokes=PROVED) if proved and not one.row.row.provokes else one.row.row


def witness_words(evidence: Sequence[Evidence]) -> str:
    """Name the witness of a simulated row that a change rests on; nothing of what was measured."""
    some = [one for one in evidence if one.simulated]
    return f" {SIMULATED}{strongest(some).witness}]" if some else ""


def _together(parts: Sequence[Claim]) -> Iterator[tuple[Claim, tuple[str, ...]]]:
    """Yield what parts of one bullet say, ops of which the same is said together, and the devices."""
    groups: dict[tuple[object, ...], list[Claim]] = {}
    for part in parts:
        groups.setdefault((part.section, part.direction, part.conditions), []).append(part)
    for same in groups.values():
        devices: dict[str, list[str]] = {}
        for part in same:
            devices.setdefault(part.targets[0], []).append(part.device)
        together: dict[tuple[str, ...], list[str]] = {}
        for target, on in devices.items():
            together.setdefault(tuple(on), []).append(target)
        for on_all, targets in together.items():
            yield replace(same[0], targets=tuple(targets)), on_all


NO_WORDS = "no words for it fit these rows and leave out all others"
# "kwargs['driver']: 'gelsy'" and "args[0]: float32 (64, 3), strides (1, 64)", as a worker writes its inputs down
_SAID = re.compile(r"kwargs\['([A-Za-z_]\w*)'\]: '([A-Za-z_]\w*)'", re.ASCII)
_TENSOR = re.compile(r"(\w+(?:\[[^]:]{1,40}\])*): \w+ \(([\d, ]*)\)(, strides .*)?", re.ASCII)
_PLACE = re.compile(r"args(?:\[\d+\])+: ('\w+'|None)", re.ASCII)
# Said of where and how a call runs, not of what it computes.
_CIRCUMSTANCES = frozenset({"device"})
# The chance with which executions of one kind would fall apart so, all that differ on one side.
_CHANCE = 0.05
_NAMED = 3  # conditions, and rows


def with_arguments(one: Evidence) -> Evidence:
    """Return evidence whose row has the arguments among its traits that its inputs say in words."""
    row = one.row.row
    found = {match[1]: match[2] for text in _inputs(one) if (match := _SAID.fullmatch(text))}
    told = {
        name: value
        for name, value in found.items()
        if kind_of(name) == "keyword" and name not in _CIRCUMSTANCES
    }
    return replace(one, row=replace(one.row, row=replace(row, traits={**told, **row.traits})))


def addition(
    op: str,
    device: str,
    where: ListName,
    rows: Sequence[Evidence],
    measured: Sequence[Evidence],
    standing: Sequence[Claim],
) -> Claim | str:
    """Return what a list is to say of rows that it does not know, or why it is to say nothing.

    Args:
        op: The op.
        device: Where it was measured.
        where: The list.
        rows: Those that no bullet speaks to, and that show what the list says.
        measured: All rows of the op.
        standing: The claims of all bullets.
    """
    (claim, *_) = parse_claims(lists({"deterministic": [], "raises": [], where: [f"* :func:`{op}`"]})) or (
        None,
    )
    if claim is None or not claim.parsed:
        return NO_WORDS
    backward = all(one.row.row.direction == "backward" for one in rows)
    claim = replace(claim, device=device, direction="backward" if backward else "any")
    evidence: Rows = [(one.row.row, one.behaviour) for one in measured if one.behaviour]
    shared = _shared(claim, rows)
    each = [replace(claim, conditions=(condition,)) for condition in shared.conditions]
    alone = [one for one in each if _fitting(one, rows, evidence, standing) == one]
    for attempt in (claim, *(alone if len(alone) == 1 else ()), shared):
        found = _fitting(attempt, rows, evidence, standing)
        if found is not None:
            break
    else:
        return NO_WORDS
    return _evidenced(found, rows, measured, evidence, standing) if where == "deterministic" else found


# --- What separates rows that differ from those that do not


def _evidenced(
    claim: Claim,
    rows: Sequence[Evidence],
    measured: Sequence[Evidence],
    evidence: Rows,
    standing: Sequence[Claim],
) -> Claim | str:
    """Return a claim with what tells rows that differ from others of the op, or why there is to be none."""
    found: Claim | str = claim
    if still := _still(claim, rows, measured, "nothing"):
        found = _separated(claim, rows, still, evidence, standing)
    # That nothing differed in one thread, or at low power, shows of no op that it does not differ, yet nothing is said of it
    # where words can leave it out.
    for one in _still(claim, rows, measured, None):
        narrow = found if isinstance(found, str) else _separated(found, rows, [one], evidence, standing)
        found = found if isinstance(narrow, str) else narrow
    return found


def _still(
    claim: Claim, rows: Sequence[Evidence], measured: Sequence[Evidence], behaviour: Behaviour | None
) -> list[Evidence]:
    """Return the rows that a claim would speak to, and that did not differ: those that could have, or hardly could."""
    directions = {one.row.row.direction for one in rows}
    return [
        one
        for one in measured
        if one.behaviour == behaviour
        and (behaviour is not None or one.shows_little)
        and one.row.row.provokes
        and one.row.row.direction in directions
        and matches(one.row.row, claim)
    ]


def _separated(
    claim: Claim,
    rows: Sequence[Evidence],
    still: Sequence[Evidence],
    evidence: Rows,
    standing: Sequence[Claim],
) -> Claim | str:
    """Return a claim with the one condition that holds in all rows that differ and in none that does not."""
    ids = [one.row.row.id for one in still]
    more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
    seen = f"{several(len(rows), 'row')} differed and {len(still)} did not ({', '.join(ids[:_NAMED])}{more})"
    off = [one.row.off for one in rows]
    differing, runs = sum(cell.differing for cell in off), sum(cell.runs for cell in off)
    others = sum(one.row.off.runs for one in still)
    # The chance that none of these executions differs, were they like the others: whole numbers are divided correctly rounded.
    if math.comb(runs, differing) / math.comb(runs + others, differing) > _CHANCE:
        return f"{seen}, which may be chance: too few executions"
    found = list(separating([_features(one) for one in rows], [_features(one) for one in still]))
    if len(found) != 1:
        what = "several conditions tell" if found else "no single condition tells"
        which = f": {'; '.join(map(condition_words, found[:_NAMED]))}" if found else ""
        return f"{seen}, and {what} them apart{which}"
    (condition,) = found
    narrow = _fitting(narrowed(claim, condition.name, condition.values), rows, evidence, standing)
    if narrow is None or write(narrow) is None:
        return f"{seen}, and the lists have no words for what tells them apart: {condition_words(condition)}"
    return narrow


def separating(here: Sequence[Mapping[str, str]], there: Sequence[Mapping[str, str]]) -> Iterator[Condition]:
    """Yield the conditions that hold in all rows *here* and in none *there*, by what each row states."""
    for name in here[0]:
        # What a row does not state is a value, too, and one that no bullet can say.
        held = {features.get(name, "") for features in here}
        others = {features.get(name, "") for features in there}
        if name == "dtype" and {*map(dtype_kind, held)}.isdisjoint(map(dtype_kind, others)):
            held = {*map(dtype_kind, held)}
        if "" not in held and held.isdisjoint(others):
            yield Condition(kind=kind_of(name), name=name, values=tuple(sorted(held)))


def _features(one: Evidence) -> dict[str, str]:
    """Return all in which rows of one op and direction can differ: arguments, dtype, and the shapes of tensors."""
    row = one.row.row
    found = {**row.traits, "dtype": row.dtype}
    for text in _inputs(one):
        if tensor := _TENSOR.fullmatch(text):
            sizes = [size for size in tensor[2].split(",") if size.strip()]
            found[f"dimensions of {tensor[1]}"] = str(len(sizes))
            found[f"layout of {tensor[1]}"] = "strided" if tensor[3] else "contiguous"
        elif place := _PLACE.fullmatch(text):
            found[text.partition(":")[0]] = place[1]
    return found


def _inputs(one: Evidence) -> tuple[str, ...]:
    """Return what a row was called with, as its worker wrote it down."""
    return next((seen.inputs for seen in one.row.observations if seen.inputs), ())


def condition_words(condition: Condition) -> str:
    """Return a condition with its values."""
    return f"{condition.name} ({' or '.join(condition.values)})"


# --- What fits the rows


def _shared(claim: Claim, rows: Sequence[Evidence]) -> Claim:
    """Return a claim restricted by the traits that all *rows* have in common."""
    for name, value in sorted(rows[0].row.row.traits.items()):
        part = narrowed(claim, name, [value])
        if all(one.row.row.traits.get(name) == value for one in rows) and write(part):
            claim = part
    return claim


def _fitting(
    claim: Claim, rows: Sequence[Evidence], evidence: Rows, standing: Sequence[Claim]
) -> Claim | None:
    """Return a claim as it is or narrowed, if it then fits all rows it speaks to, and no other bullet.

    A bullet that already speaks to some of the rows, or says part of what the claim says, would say nothing any
    more beside it.
    """
    speaking = [(row, behaviour) for row, behaviour in evidence if matches(row, claim)]
    if action_of(claim, speaking) != "keep":
        found = [
            part
            for split in splits(claim, speaking)
            if split.values["keep"]
            and write(part := narrowed(claim, split.name, split.values["keep"]))
            and all(matches(one.row.row, part) for one in rows)
        ]
        if len(found) != 1:
            return None
        (claim,) = found
    sections = {"deterministic", "raises"}
    if any(
        one.parsed and {one.section, claim.section} == sections and overlap(claim, one) for one in standing
    ):
        return None
    taken = any(matches(row, claim) and any(matches(row, one) for one in standing) for row, _ in evidence)
    return None if taken or any(_swallows(claim, one) for one in standing) else claim


def _swallows(claim: Claim, other: Claim) -> bool:
    """Tell whether all that another claim says of an op on a device is said by this one, too."""
    stated = {(condition.kind, condition.name): set(condition.values) for condition in other.conditions}
    return (
        other.parsed
        and not set(claim.targets).isdisjoint(other.targets)
        and (claim.device == other.device or "any" in {claim.device, other.device})
        and claim.direction in {"any", other.direction}
        and all(
            (condition.kind, condition.name) in stated
            and stated[condition.kind, condition.name] <= set(condition.values)
            for condition in claim.conditions
        )
    )
