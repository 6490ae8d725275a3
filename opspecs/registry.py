"""The catalog: the families, joined in one explicit list, and the patterns that select from it.

A pattern matches names or row ids by ``fnmatch`` rules, and one that matches nothing is an error: a typing
slip must not read as an empty, and therefore clean, scan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from opspecs.families import (
    attention,
    convolution,
    cumulative,
    embedding,
    fold,
    gather,
    histogram,
    indexing,
    interpolation,
    loss,
    matmul,
    normalization,
    padding,
    pooling,
    recurrent,
    sampling,
    scatter,
    sorting,
    sparse,
    uninitialized,
)
from opspecs.model import OpSpec, Planned

# Reports show the families in this order.
FAMILIES: dict[str, tuple[OpSpec, ...]] = {
    "convolution": convolution.SPECS,
    "indexing": indexing.SPECS,
    "selection": gather.SPECS,
    "scatter": scatter.SPECS,
    "pooling": pooling.SPECS,
    "padding": padding.SPECS,
    "interpolation": interpolation.SPECS,
    "sampling": sampling.SPECS,
    "embedding": embedding.SPECS,
    "loss": loss.SPECS,
    "attention": attention.SPECS,
    "recurrent": recurrent.SPECS,
    "normalization": normalization.SPECS,
    "matrix": matmul.SPECS,
    "sparse": sparse.SPECS,
    "folding": fold.SPECS,
    "scan": cumulative.SPECS,
    "histogram": histogram.SPECS,
    "ordering": sorting.SPECS,
    "memory": uninitialized.SPECS,
}

SPECS: tuple[OpSpec, ...] = tuple(
    replace(spec, family=family) for family, specs in FAMILIES.items() for spec in specs
)


class NoMatchError(LookupError):
    """A pattern selects nothing; ``near`` holds what its writer may have meant, best first."""

    def __init__(self, pattern: str, near: tuple[str, ...]) -> None:
        super().__init__(pattern, near)
        self.pattern = pattern
        self.near = near

    def __str__(self) -> str:
        hint = f"; did you mean {' or '.join(self.near)}?" if self.near else ""
        return f"no op matches {self.pattern!r}{hint}"


def select(
    patterns: Sequence[str], device: str, specs: Sequence[OpSpec] = SPECS
) -> list[tuple[OpSpec, Planned]]:
    """Return the rows that at least one pattern selects, in catalog order; all of them without a pattern.

    Args:
        patterns: Each selects by spec name (``torch.nn.Conv2d``), by its last component (``Conv2d``), by
            family (``pooling``) or, if it holds a colon, by row id (``spec:case:direction:dtype``), of which
            trailing parts may be left out. ``*``, ``?`` and ``[...]`` are those of ``fnmatch``.
        device: ``"cpu"``, ``"cuda"``, or ``"any"`` for the rows of all devices.
        specs: What to select from.

    Raises:
        NoMatchError: A pattern selects nothing.
    """
    rows = selected((), device, specs)
    for pattern in patterns:
        if not any(_matches(pattern, spec, planned) for spec, planned in rows):
            raise NoMatchError(pattern, _near(pattern, rows))
    return selected(patterns, device, specs)


def selected(patterns: Sequence[str], device: str, specs: Sequence[OpSpec]) -> list[tuple[OpSpec, Planned]]:
    """Return the rows that at least one pattern selects, as ``select`` does, if there are any."""
    rows = [(spec, planned) for spec in specs for planned in spec.rows(device)]
    return [
        (spec, planned)
        for spec, planned in rows
        if not patterns or any(_matches(pattern, spec, planned) for pattern in patterns)
    ]


def _matches(pattern: str, spec: OpSpec, planned: Planned) -> bool:
    """Say whether a pattern selects a row."""
    if ":" in pattern:
        # As many parts of the id as the pattern has; the name of a database's entry may count as one or as two.
        parts = planned.id.split(":")
        return any(
            fnmatchcase(":".join(parts[: pattern.count(":") + 1 + extra]), pattern)
            for extra in range(spec.name.count(":") + 1)
        )
    return any(fnmatchcase(name, pattern) for name in _names(spec.name, spec.family))


def could_match(pattern: str, name: str, family: str) -> bool:
    """Tell whether a pattern may select a row of a database's entry, whose cases are not known yet.

    Args:
        pattern: As ``select`` takes it.
        name: Of the spec, ``opinfo:nn.functional.conv2d``.
        family: Of the spec.
    """
    if ":" not in pattern:
        return any(fnmatchcase(one, pattern) for one in _names(name, family))
    parts = pattern.split(":")
    return any(fnmatchcase(name, ":".join(parts[:count])) for count in (1, 2))


def _names(name: str, family: str) -> tuple[str, ...]:
    """Return what a spec answers to: of ``opinfo:nn.functional.conv2d`` also without what stands before the colon."""
    plain = name.rpartition(":")[2]
    return tuple(dict.fromkeys((name, plain, plain.rpartition(".")[2], family)))


def _near(pattern: str, rows: Sequence[tuple[OpSpec, Planned]]) -> tuple[str, ...]:
    """Return up to three names like *pattern*; row ids if it has their form."""
    # Only a typing slip needs it, and listing must start fast.
    from difflib import get_close_matches  # noqa: PLC0415

    if ":" in pattern:
        length = pattern.count(":") + 1
        names = [":".join(planned.id.split(":")[:length]) for _, planned in rows]
    else:
        names = [name for spec, _ in rows for name in _names(spec.name, spec.family)]
    return tuple(get_close_matches(pattern, list(dict.fromkeys(names)), cutoff=0.5))
