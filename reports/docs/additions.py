"""Bullets that are missing from the lists, none of which says more than its rows show.

A bullet that says "acts deterministically" is held against the rows of its op that could have differed and did not: what
tells those that differ from them goes into the bullet, or there is no bullet, and it is said why.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from reports.docs.bullets import ListName, kind_of, lists, statement_of, write
from reports.docs.conditions import Behaviour, Evidence, Rows, action_of, narrowed, splits
from scanner.claims.matching import dtype_kind, matches
from scanner.claims.tables import overlap, parse_claims
from scanner.observations.records import Claim, Condition
from scanner.plurals import several

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
    for attempt in (claim, _shared(claim, rows)):
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
    if _chance(rows, still) > _CHANCE:
        return f"{seen}, which may be chance: too few executions"
    found = list(separating([_features(one) for one in rows], [_features(one) for one in still]))
    if len(found) != 1:
        what = "several conditions tell" if found else "no single condition tells"
        which = f": {'; '.join(map(condition_words, found[:_NAMED]))}" if found else ""
        return f"{seen}, and {what} them apart{which}"
    (condition,) = found
    narrow = _fitting(narrowed(claim, condition.name, condition.values), rows, evidence, standing)
    if narrow is None or write(statement_of(narrow)) is None:
        return f"{seen}, and the lists have no words for what tells them apart: {condition_words(condition)}"
    return narrow


def _chance(rows: Sequence[Evidence], still: Sequence[Evidence]) -> float:
    """Return with what chance none of the executions of *still* differs, if they were like those of *rows*."""
    off = [one.row.off for one in rows]
    differing, runs = sum(cell.differing for cell in off), sum(cell.runs for cell in off)
    others = sum(one.row.off.runs for one in still)
    # Whole numbers of any size are divided correctly rounded.
    return math.comb(runs, differing) / math.comb(runs + others, differing)


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
        if all(one.row.row.traits.get(name) == value for one in rows) and write(statement_of(part)):
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
            and write(statement_of(part := narrowed(claim, split.name, split.values["keep"])))
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
