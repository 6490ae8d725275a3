"""Bullets under the headings of the documented lists, and the claims they are read as."""

from __future__ import annotations

import msgspec

from detmatrix.scanner.claims.tables import parse_claims
from detmatrix.scanner.observations.records import Claim, Condition, Kind

DETERMINISTIC = "    The following normally-nondeterministic operations will act\n    deterministically when ``mode=True``:\n"
RAISES = (
    "    The following normally-nondeterministic operations will throw a\n"
    "    :class:`RuntimeError` when ``mode=True``:\n"
)
CUBLAS = (
    "    A handful of CUDA operations are nondeterministic unless the environment variable\n"
    "    ``CUBLAS_WORKSPACE_CONFIG=:4096:8`` is set. If not, a :class:`RuntimeError`\n"
    "    will be raised from these operations when called with CUDA tensors:\n"
)


def read(bullet: str, heading: str = RAISES) -> tuple[Claim, ...]:
    """Return the claims of the lists that consist of one bullet, written without its marker."""
    return parse_claims(f"Sets.\n\n{heading}\n        * {bullet}\n\n    Note that this is slow.\n")


def one(bullet: str, heading: str = RAISES) -> Claim:
    (claim,) = read(bullet, heading)
    return claim


def condition(kind: str, name: str, *values: str) -> Condition:
    return Condition(kind=msgspec.convert(kind, Kind), name=name, values=values)
