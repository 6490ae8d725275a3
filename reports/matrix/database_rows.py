"""What rows made of PyTorch's databases are worth: a tiny sample shows that an op raises, and little else."""

from __future__ import annotations

from collections.abc import Sequence

from scanner.observations.records import Enumerated
from scanner.verdicts.findings import MatrixRow

_NAMES = {"opinfo": "operators", "modules": "modules"}


def sampled_words(rows: Sequence[MatrixRow]) -> str | None:
    """Say what "deterministic" is worth in rows of databases, by what provokes a difference in them; ``None`` without any.

    Enlarged rows whose result holds no information provoke nothing, and count as samples.
    """
    ours = [row for row in rows if row.row.provoked]
    if not ours:
        return None
    enlarged = [row for row in ours if row.row.provoked == "enlarged"]
    provoked = [row for row in enlarged if not (row.off.constant or row.on.constant)]
    same = sum(row.finding == "deterministic" for row in ours)
    strong = sum(row.finding == "deterministic" and row.weak is None and not row.serial for row in provoked)
    count = len(enlarged) - len(provoked)
    blank = f", of which {count} gave a blank result and count as samples" if count else ""
    return (
        f"Of the rows made of PyTorch's databases {len(ours) - len(enlarged)} are samples as they are, tiny, so that hardly "
        f"anything in them collides; {len(enlarged)} were enlarged until kernels run in parallel{blank}. That a row did "
        f"not differ is weak evidence in {same - strong} rows, and better evidence in {strong} enlarged ones."
    )


def enumerated_words(enumerated: Sequence[Enumerated]) -> list[tuple[str, str]]:
    """Say what each database held and what was taken of it, as (label, text)."""
    labels = [f"database of {_NAMES.get(one.source, one.source)}" for one in enumerated]
    taken = [f"{one.entries} entries with {one.samples} samples, {one.taken} taken" for one in enumerated]
    grown = [f"{one.enlarged} enlarged, {one.refused} could not be" for one in enumerated]
    return [(label, "; ".join(texts)) for label, *texts in zip(labels, taken, grown, strict=True)]
