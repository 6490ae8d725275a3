"""What the documented lists of a run's torch say of its rows, and which rows they should speak of and do not."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from detmatrix.reports.matrix.model import Matrix
from detmatrix.scanner.claims.matching import matches, names_of
from detmatrix.scanner.claims.tables import documented_claims, documented_notes
from detmatrix.scanner.errors import UsageError
from detmatrix.scanner.observations.records import Claim, Row, Section
from detmatrix.scanner.verdicts.findings import MatrixRow
from detmatrix.scanner.verdicts.vocabulary import Finding

SECTION_WORDS: dict[Section, str] = {
    "deterministic": "acts",
    "raises": "raises",
    "cublas": "raises without a cuBLAS workspace",
    "other": "other list",
    "note": "a note",
}
NOT_LISTED = "not listed"
# In the names of ops that are to return memory as it is: "torch.Tensor.new_empty_strided", "torch.ops.aten.resize_".
_HANDS_OUT = re.compile(r"[._](?:empty|resize)|\.new$")
# What a row shows that the lists ought to say of its op.
UNDOCUMENTED: tuple[Finding, ...] = ("silent", "raises", "over_alert", "fixed_by_mode", "uninitialized")


class RunLists(Struct, frozen=True):
    """What the lists of one run's torch say, and where they come from if not from the run."""

    claims: tuple[Claim, ...]
    note: str | None = None


def lists_of(one: Matrix) -> RunLists:
    """Return the claims of a run; for want of them, those tabled for its release; for want of a table, none."""
    header = one.run.header
    torch = header.environment.torch
    if header.claims:
        return RunLists(with_notes(header.claims, torch))
    try:
        return RunLists(
            documented_claims(torch),
            f"{one.name} holds no claims; those tabled for torch {torch} stand in for them.",
        )
    except UsageError:
        return RunLists((), f"{one.name} holds no claims, and there is no table of those of torch {torch}.")


def with_notes(claims: tuple[Claim, ...], torch: str) -> tuple[Claim, ...]:
    """Return claims of a run; one that was made before notes were read has those that are tabled for its release."""
    if any(claim.section == "note" for claim in claims):
        return claims
    try:
        return (*claims, *documented_notes(torch))
    except UsageError:
        return claims


def is_noted(row: Row, claims: Iterable[Claim]) -> bool:
    """Tell whether a note is about a row: an op in place on a tensor some of whose elements are one place in memory."""
    overlapping = row.family == "overlap" and names_of(row)[0].endswith("_")
    return overlapping and any(claim.section == "note" for claim in claims)


def documented(row: Row, claims: Iterable[Claim]) -> str:
    """Return in which lists a row's op stands, in words: "acts", "raises", "not listed"."""
    return " and ".join(SECTION_WORDS[section] for section in sections(row, claims)) or NOT_LISTED


def sections(row: Row, claims: Iterable[Claim]) -> list[Section]:
    """Return the lists in which a row's op stands, each once."""
    return list(dict.fromkeys(claim.section for claim in claims if matches(row, claim)))


def is_filled(row: MatrixRow) -> bool:
    """Tell whether a row differs only because of memory that nobody wrote and that the flag has filled.

    ``torch.utils.deterministic.fill_uninitialized_memory`` documents what returns it, so that the lists need not. A run that
    was made before the fill was told apart from the flag knows it of the ops that declare it.
    """
    older = "fill" in row.row.traits and row.finding == "fixed_by_mode" and not row.needs_both
    return row.finding == "uninitialized" or older


def hands_out(op: str) -> bool:
    """Tell whether an op is to return memory that nobody wrote, as ``torch.empty`` and ``torch.Tensor.resize_`` are."""
    return _HANDS_OUT.search(op) is not None


def is_missing(row: MatrixRow, claims: Iterable[Claim]) -> bool:
    """Tell whether a row raises or differs, and no claim is, or may be, about it.

    Args:
        row: Of a scan that can be trusted.
        claims: Those that could be about it.
    """
    names = names_of(row.row)
    return (
        row.finding in UNDOCUMENTED
        and not is_filled(row)
        and names[0].startswith("torch.")
        and not is_noted(row.row, claims)
        and not any(
            matches(row.row, claim) or (not claim.parsed and is_about(claim, names)) for claim in claims
        )
    )


def is_about(claim: Claim, names: Iterable[str]) -> bool:
    """Tell whether a claim is about one of these ops; of one that was not understood, whether its words name it."""
    if claim.parsed:
        return any(name in claim.targets for name in names)
    return any(re.search(rf"(?<![\w.]){re.escape(name)}(?!\.?\w)", claim.text) for name in names)
