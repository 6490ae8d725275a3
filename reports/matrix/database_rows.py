"""What rows made of PyTorch's databases are worth: a tiny sample shows that an op raises, and little else."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from scanner.observations.records import Enumerated
from scanner.verdicts.findings import MatrixRow

_NAMES = {"opinfo": "operators", "modules": "modules"}


class Sampled(Struct, frozen=True):
    """Rows of a scan that are made of PyTorch's databases, by what provokes a difference in them."""

    samples: int
    enlarged: int
    blank: int  # enlarged rows whose result holds no information: they provoke nothing, and count as samples
    weak: int  # samples, the blank, the serial ones and those of low power included, found deterministic
    strong: (
        int  # enlarged rows found deterministic, the blank, the serial ones and those of low power left out
    )


def sampled_of(rows: Sequence[MatrixRow]) -> Sampled | None:
    """Count the rows of a whole scan; ``None`` if none of them is of a database."""
    ours = [row for row in rows if row.row.provoked]
    if not ours:
        return None
    enlarged = [row for row in ours if row.row.provoked == "enlarged"]
    provoked = [row for row in enlarged if not (row.off.constant or row.on.constant)]
    same = sum(row.finding == "deterministic" for row in ours)
    strong = sum(row.finding == "deterministic" and row.weak is None and not row.serial for row in provoked)
    return Sampled(
        samples=len(ours) - len(enlarged),
        enlarged=len(enlarged),
        blank=len(enlarged) - len(provoked),
        weak=same - strong,
        strong=strong,
    )


def sampled_words(sampled: Sampled | None) -> str | None:
    """Say what "deterministic" is worth in such rows; ``None`` if there are none."""
    if sampled is None:
        return None
    blank = f", of which {sampled.blank} gave a blank result and count as samples" if sampled.blank else ""
    return (
        f"Of the rows made of PyTorch's databases {sampled.samples} are samples as they are and {sampled.enlarged} "
        f"were enlarged until kernels run in parallel{blank}: samples are tiny and hardly anything in them collides, so "
        f'that "deterministic" of {sampled.weak} rows is weak evidence, against {sampled.strong} enlarged ones that '
        f"did not differ."
    )


def enumerated_words(enumerated: Sequence[Enumerated]) -> list[tuple[str, str]]:
    """Say what each database held and what was taken of it, as (label, text)."""
    lines = []
    for one in enumerated:
        text = (
            f"{one.entries} entries with {one.samples} samples, {one.taken} taken; {one.enlarged} enlarged, "
        )
        text += f"{one.refused} could not be"
        lines.append((f"database of {_NAMES.get(one.source, one.source)}", text))
    return lines
