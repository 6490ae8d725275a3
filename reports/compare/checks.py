"""What CI is told of a comparison: which rows fail a check, what is likely before what is churn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import Struct

from reports.checks import Case, State, annotation, case_of, errors_first, junit, named
from reports.compare.judge import CHANGES, Change, Kind
from reports.compare.runs import Comparison, LikelyChange, Pair
from reports.compare.view import arrow, build_notes, finding_words

# What a check may be told to fail on: a class, or a word for several.
FAILS: dict[str, tuple[Kind, ...]] = {
    "regression": ("regressed",),
    "change": CHANGES,
    **{kind: (kind,) for kind in CHANGES},
}


class Failure(Struct, frozen=True, kw_only=True):
    """One thing that fails a check: a row, rows of one op together, or all samples that came and went."""

    pair: Pair
    title: str
    text: str
    op: str
    ids: tuple[str, ...]  # empty: nothing could be compared

    @property
    def line(self) -> str:
        """All of it."""
        return f"{self.title}: {self.text}"


def failures(comparison: Comparison, kinds: Sequence[Kind]) -> Iterator[Failure]:
    """Yield what is of the classes asked for, the worst first.

    A row that cannot be compared counts as what it seems, unless the exact test takes its difference for chance; rows
    of one op that all seem to have changed in one way count if the test does not take them all together for chance.
    Samples of PyTorch's databases that only one release has count once. A check that could not compare anything has
    not passed.
    """
    order = [kind for kind in CHANGES if kind in kinds]
    for kind in order:
        for pair in comparison.pairs:
            yield from (_of_row(pair, change) for change in pair.changes if _fails(change, kind))
            yield from (_likely(pair, one) for one in pair.likely if one.kind == kind)
    for pair in comparison.pairs:
        yield from _churn(pair, order)
    yield from (_nothing(pair) for pair in comparison.pairs if not pair.compared)


def failing(comparison: Comparison, kinds: Sequence[Kind]) -> Iterator[str]:
    """Yield a line for each failure."""
    return (one.line for one in failures(comparison, kinds))


def _likely(pair: Pair, one: LikelyChange) -> Failure:
    ids = tuple(change.id for change in one.changes)
    text = f"{one.op}: {len(ids)} rows together: {'; '.join(map(str, one.tests))} ({pair.name}): {named(ids)}"
    return Failure(pair=pair, title=f"{one.kind} (likely)", text=text, op=one.op, ids=ids)


def render_github(comparison: Comparison, kinds: Sequence[Kind] = ("regressed",)) -> Iterator[str]:
    """Return annotations: errors of what fails, warnings of what else changed and of builds of other kinds."""
    latest = comparison.matrices[-1].run.path
    others = failures(comparison, [kind for kind in CHANGES if kind not in kinds])
    warned = [("detmatrix", text, latest) for text in build_notes(comparison)]
    warned += [(one.title, one.text, one.pair.new.run.path) for one in others if one.ids]
    failed = (
        annotation("error", one.title, one.text, one.pair.new.run.path) for one in failures(comparison, kinds)
    )
    return errors_first([*failed, *(annotation("warning", *it) for it in dict.fromkeys(warned))])


def render_junit(comparison: Comparison, kinds: Sequence[Kind] = ("regressed",)) -> Iterator[str]:
    """Yield test cases: one for each failure, and for each row that is in none."""
    failed = list(failures(comparison, kinds))
    return junit(
        [
            (pair.name, list(_cases(pair, [one for one in failed if one.pair is pair])))
            for pair in comparison.pairs
        ]
    )


def _cases(pair: Pair, failed: Sequence[Failure]) -> Iterator[Case]:
    for one in failed:
        name = one.ids[0].removeprefix(f"{one.op}:") if len(one.ids) == 1 else one.title
        yield case_of(one.op, name, "failed" if one.ids else "error", one.line)
    told = {id_ for one in failed for id_ in one.ids}
    for change in (change for change in pair.changes if change.id not in told):
        row = change.row.row
        text = f"{change.words}: {change.judged.reason}: {change.judged.detail}"
        state: State = "skipped" if change.kind == "not_comparable" else "passed"
        yield case_of(row.spec, row.id.removeprefix(f"{row.spec}:"), state, text)


def _fails(change: Change, kind: Kind) -> bool:
    if _is_churn(change):
        return False
    return kind == change.kind or (kind == change.judged.apparent and not change.judged.chance)


def _is_churn(change: Change) -> bool:
    """Tell whether a row came or went because PyTorch's databases draw other samples in another release."""
    return change.kind in {"added", "removed"} and bool(change.row.row.provoked)


def _of_row(pair: Pair, change: Change) -> Failure:
    row = change.row.row
    findings = arrow(finding_words(change.old, pair.old), finding_words(change.new, pair.new))
    detail = f"; {change.judged.detail}" if change.judged.detail else ""
    return Failure(
        pair=pair,
        title=change.words,
        text=f"{row.id}: {findings} ({pair.name}){detail}",
        op=row.spec,
        ids=(row.id,),
    )


def _churn(pair: Pair, kinds: Sequence[Kind]) -> Iterator[Failure]:
    """Yield one failure for all samples that only one of two releases has, if that is asked for."""
    found = [change for change in pair.changes if _is_churn(change) and change.kind in kinds]
    if not found:
        return
    counts = Counter(change.kind for change in found)
    what = ", ".join(f"{counts[kind]} rows {kind}" for kind in kinds if counts[kind])
    entries = len({change.row.row.spec for change in found})
    text = (
        f"{what}, of {entries} {'entry' if entries == 1 else 'entries'} of PyTorch's databases: each release draws "
        f"its own samples ({pair.name})"
    )
    ids = tuple(change.id for change in found)
    yield Failure(pair=pair, title="other samples", text=text, op="samples", ids=ids)


def _nothing(pair: Pair) -> Failure:
    """Say why no row of two runs could be compared."""
    reasons = Counter(change.judged.reason for change in pair.changes if change.judged.reason is not None)
    counts = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
    why = "; ".join(f"{obstacle.reason}: {obstacle.detail}" for obstacle in pair.obstacles)
    why = why or (f"no row can be compared ({counts})" if counts else "no row is in both")
    return Failure(pair=pair, title="nothing compared", text=f"{pair.name}: {why}", op="detmatrix", ids=())
