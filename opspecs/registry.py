"""The catalog: the families, joined in one explicit list, and what patterns select from it.

A pattern that matches nothing is an error: a typing slip must not read as an empty, and therefore clean, scan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from detmatrix.opspecs.families.by_index import embedding, gather, indexing, scatter
from detmatrix.opspecs.families.images import convolution, fold, interpolation, padding, pooling, sampling
from detmatrix.opspecs.families.matrices import matmul, sparse
from detmatrix.opspecs.families.memory import overlap, uninitialized
from detmatrix.opspecs.families.networks import attention, loss, normalization, recurrent
from detmatrix.opspecs.families.reductions import cumulative, histogram, reduction, sorting
from detmatrix.opspecs.model import OpSpec, Planned
from detmatrix.opspecs.patterns import OpNames, near, op_names, recorded_names, rows_of

# Reports show the families in this order.
FAMILIES: dict[str, tuple[OpSpec, ...]] = {
    "convolution": convolution.SPECS,
    "indexing": indexing.SPECS,
    "overlap": overlap.SPECS,
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
    "reduction": reduction.SPECS,
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


def names_of(spec: OpSpec) -> OpNames:
    """Return what patterns may call the op of a spec."""
    return op_names(spec.name, spec.family, spec.op_name, spec.documented)


class NoMatchError(LookupError):
    """A pattern, the first argument, selects nothing; the second is what its writer may have meant, best first."""


def select(
    patterns: Sequence[str], device: str, specs: Sequence[OpSpec] = SPECS
) -> list[tuple[OpSpec, Planned]]:
    """Return the rows on a device, or on ``"any"``, that at least one pattern selects, in catalog order; all of them without a pattern.

    Raises:
        NoMatchError: A pattern selects nothing.
    """
    named = [(names_of(spec), planned.id) for spec in specs for planned in spec.rows(device)]
    for pattern in patterns:
        if not rows_of(pattern, named):
            raise NoMatchError(pattern, near(pattern, named, recorded_names()))
    return selected(patterns, device, specs)


def selected(
    patterns: Sequence[str], device: str, specs: Sequence[OpSpec], others: Sequence[OpNames] = ()
) -> list[tuple[OpSpec, Planned]]:
    """Return the rows that at least one pattern selects, if there are any; *others* are ops that it may mean, with no rows here."""
    rows = [(spec, planned) for spec in specs for planned in spec.rows(device)]
    if not patterns:
        return rows
    names = {spec.name: names_of(spec) for spec in specs}
    named = [(names[spec.name], planned.id) for spec, planned in rows]
    named += [(one, f"{one.name}:") for one in others if one.name not in names]
    chosen = {row for pattern in patterns for row in rows_of(pattern, named)}
    return [(spec, planned) for spec, planned in rows if planned.id in chosen]
