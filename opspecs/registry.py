"""The catalog: the families, joined in one explicit list, and the patterns that select from it."""

from __future__ import annotations

from dataclasses import replace

from opspecs import convolution
from opspecs.model import OpSpec

# Reports show the families in this order.
FAMILIES: dict[str, tuple[OpSpec, ...]] = {
    "convolution": convolution.SPECS,
}

SPECS: tuple[OpSpec, ...] = tuple(
    replace(spec, family=family) for family, specs in FAMILIES.items() for spec in specs
)
