"""What reports say of invariance in words, and what became of it from one run to another; its columns stand in ``columns.py``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from reports.matrix.difference import NOT_MEASURED
from scanner.invariance import POSITIONS
from scanner.verdicts.findings import MatrixRow
from scanner.verdicts.invariance import Dependence, PropertyVerdict

# The words of https://docs.nvidia.com/cudnn/operations/determinism, of repeatability and batch together.
CUDNN_WORDS: dict[Dependence, str] = {
    "invariant": "Supported",
    "varies": "Replay only",
    "not_repeatable": "Not guaranteed",
    "error": "Unverified",
    "not_asked": "Unverified",
}


def short(one: PropertyVerdict) -> str:
    """Return the verdict with the values that it rests on."""
    if one.verdict == "not_asked":
        return "not asked"
    if one.verdict == "error":
        return f"error: {one.reason}"
    parts = [one.verdict.replace("_", " ")]
    if one.at:
        parts.append(f"at {values_words(one.at, one.tried)}")
    if one.verdict == "invariant":
        parts.append(f"at {values_words(one.tried, one.tried)}")
    if one.baseline:
        parts.append(f"against {one.baseline}")
    return " ".join(parts)


def words(one: PropertyVerdict) -> str:
    """Return all that is known of a row in a property."""
    parts = [short(one)]
    if one.verdict == "not_asked":
        parts = [f"not asked: {one.reason}"]
    elif one.verdict == "not_repeatable" and one.reason:
        parts.append(one.reason)
    if one.severity is not None:
        parts.append(far(one))
    if one.raised:
        parts.append(
            f"not compared: {one.reason}"
            if len(one.raised) == 1
            else f"not compared at {', '.join(one.raised)}"
        )
    if one.left_out:
        parts.append(f"left out: {', '.join(one.left_out)}, summed over the batch")
    return "; ".join(parts)


def far(one: PropertyVerdict) -> str:
    """Return how far what varies is from the baseline, where it is farthest."""
    it = one.severity
    if it is None:
        return NOT_MEASURED
    steps = f"{it.max_ulp} ULP" if it.max_ulp is not None else "not comparable"
    return f"up to {steps}, in {100 * it.differing_elements / it.elements:.3g} % of the elements"


def values_words(values: Sequence[str], tried: Sequence[str]) -> str:
    """Return values in few words: "1, 2, 3 (anywhere), 16 (last)" of a batch, "transposed (args[0], args[1])" of layouts."""
    pairs = [value.partition(" ") for value in values]
    if not all(rest for _, _, rest in pairs):
        return ", ".join(values)
    by_first: dict[str, list[str]] = {}
    for first, _, rest in pairs:
        by_first.setdefault(first, []).append(rest)
    all_of: dict[str, set[str]] = {}
    for first, _, rest in (value.partition(" ") for value in tried):
        all_of.setdefault(first, set()).add(rest)
    groups: dict[tuple[str, ...], list[str]] = {}
    for first, rests in by_first.items():
        places = set(rests) == set(POSITIONS) == all_of.get(first)
        groups.setdefault(("anywhere",) if places else tuple(rests), []).append(first)
    return ", ".join(f"{', '.join(firsts)} ({', '.join(rests)})" for rests, firsts in groups.items())


def dependence_change(
    old: MatrixRow, new: MatrixRow
) -> tuple[Literal["improved", "regressed", "changed"], list[str]]:
    """Return what the properties of a row in two runs are together, and a text for each that changed.

    Those alone are held against each other that were tried at the same values, against the same baseline.
    """
    texts: list[str] = []
    verdicts: set[tuple[Dependence, Dependence]] = set()
    for what, after in new.invariance.items():
        before = old.invariance.get(what)
        if before is None or {before.verdict, after.verdict} - {"invariant", "varies"}:
            continue
        if (before.baseline, before.tried) != (after.baseline, after.tried) or before.at == after.at:
            continue
        sides = (
            f"varies at {values_words(one.at, one.tried)}" if one.at else one.verdict
            for one in (before, after)
        )
        texts.append(f"{what}: {' → '.join(sides)}")
        verdicts.add((before.verdict, after.verdict))
    if verdicts == {("varies", "invariant")}:
        return "improved", texts
    return ("regressed" if verdicts == {("invariant", "varies")} else "changed"), texts
