"""What a row's bits depend on beyond a run: verdicts on threads, batch and layout, and what the controls of these must show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from detmatrix.scanner.invariance import Property
from detmatrix.scanner.observations.records import Invariance, Severity, Tried
from detmatrix.scanner.verdicts.cells import Cell
from detmatrix.scanner.verdicts.vocabulary import Dependence


class PropertyVerdict(Struct, frozen=True, kw_only=True):
    """Whether the bits of a row depend on one property."""

    verdict: Dependence
    baseline: str | None = None  # what the values are held against
    tried: tuple[str, ...] = ()  # values at which executions were compared
    at: tuple[str, ...] = ()  # those with other bits, or at which executions differ among themselves
    raised: tuple[str, ...] = ()  # values at which it raised or could not be tried
    left_out: tuple[str, ...] = ()
    severity: Severity | None = None  # the farthest of all values
    reason: str | None = None


def verdict_of(record: Invariance | None, off: Cell, missing: str) -> PropertyVerdict:
    """Return what a record says of a row."""
    if record is None:
        if off.verdict == "nondeterministic":
            text = f"{off.differing} of {off.runs} executions differed run to run"
            return PropertyVerdict(verdict="not_repeatable", reason=text)
        text = missing if off.verdict == "deterministic" else f"{off.verdict} with the flag off"
        return PropertyVerdict(verdict="not_asked", reason=text)
    if record.outcome != "ran":
        verdict: Dependence = "not_asked" if record.outcome == "not_run" else "error"
        return PropertyVerdict(verdict=verdict, reason=record.message or record.outcome)
    tried = [one for one in record.trials if one.outcome in {"same", "varies", "not_repeatable"}]
    varies = [one for one in tried if one.outcome == "varies"]
    racing = [one for one in tried if one.outcome == "not_repeatable"]
    failed = [one for one in record.trials if one not in tried]
    reason: str | None = next((f"{one.value}: {one.message}" for one in failed), None)
    at: Sequence[Tried] = varies or racing
    if record.differing:
        verdict = "not_repeatable"
        reason = f"{record.differing} of {record.executions} executions of the baseline differed"
    elif racing and not varies:
        verdict = "not_repeatable"
    else:
        verdict = "varies" if varies else "invariant" if tried else "error"
    measured = [output.severity for one in varies for output in one.outputs if output.severity is not None]
    # By ULP, then by the share of elements.
    farthest = max(
        measured, key=lambda it: (it.max_ulp or 0, it.differing_elements / it.elements), default=None
    )
    return PropertyVerdict(
        verdict=verdict,
        baseline=record.baseline,
        tried=tuple(one.value for one in tried),
        at=tuple(one.value for one in at),
        raised=tuple(one.value for one in failed),
        left_out=record.left_out,
        severity=farthest if verdict == "varies" else None,
        reason=reason,
    )


def is_control(record: Invariance) -> bool:
    """Tell whether a record is of a control."""
    return record.spec.startswith("control.")


def misled(records: Iterable[Invariance]) -> tuple[str, ...]:
    """Say of each control that answered wrongly what it should have shown and what it showed."""
    return tuple(
        f"the control {record.spec.removeprefix('control.')} ({record.direction}) should show {expected} of "
        f"{record.what}, and shows {seen}"
        for record in records
        if (expected := _expected(record)) != (seen := _seen(record))
    )


def _expected(record: Invariance) -> str:
    control, what = record.spec.removeprefix("control."), record.what
    if control == "unrepeatable":
        return "executions of the baseline that differ"
    # The value of a batch is its size and which items it holds: "8 last"; the whole is there in a random order alone.
    values = [one.value for one in record.trials]
    if not values:
        return "values that are tried"
    whole = f"{(record.baseline or '').partition(' ')[0]} permuted"
    other: dict[tuple[str, Property], list[str]] = {
        ("by_threads", "threads"): values,
        ("by_size", "batch"): [value for value in values if value != whole],
        ("by_place", "batch"): [value for value in values if not value.endswith(" first")],
        ("by_layout", "layout"): values,
    }
    return _listed(other.get((control, what), []))


def _seen(record: Invariance) -> str:
    if record.outcome != "ran":
        return f"{record.outcome} ({record.message})"
    if record.differing:
        return "executions of the baseline that differ"
    if not record.trials:
        return "none"
    odd = [one for one in record.trials if one.outcome not in {"same", "varies"}]
    if odd:
        return f"{odd[0].outcome} at {odd[0].value} ({odd[0].message})"
    return _listed([one.value for one in record.trials if one.outcome == "varies"])


def _listed(values: Sequence[str]) -> str:
    return f"other bits at {', '.join(values)}" if values else "the same bits everywhere"
