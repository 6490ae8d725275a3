"""``detmatrix list --claims``: which rows of the catalog speak to which bullets of the documented lists.

Bullets come from the tables of ``reports/claims``, rows from the catalog; neither needs torch. No row runs on MPS,
so a bullet about it counts as covered where the same op, direction and conditions are measured elsewhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from detmatrix.opspecs.model import OpSpec
from detmatrix.opspecs.registry import SPECS
from detmatrix.scanner.cases.rows import known_rows
from detmatrix.scanner.claims.matching import matches
from detmatrix.scanner.claims.tables import documented_claims, documented_versions
from detmatrix.scanner.observations.records import Claim, Row, Section
from detmatrix.scanner.plurals import several

_HEADINGS: dict[Section, str] = {
    "deterministic": "acts deterministically",
    "raises": "raises",
    "cublas": "raises unless the workspace of cuBLAS is configured",
    "other": "elsewhere in the docstring",
    "note": "in a note",
}


def planning(specs: Sequence[OpSpec] = SPECS) -> list[Row]:
    """Return the rows of the catalog on each device they are planned on."""
    return [row for device in ("cpu", "cuda") for row in known_rows(device, specs)]


def rows_by_spec(claim: Claim, rows: Sequence[Row]) -> dict[str, list[str]]:
    """Return the ids of the rows that speak to a claim, by spec, in catalog order."""
    found: dict[str, list[str]] = {}
    for row in rows:
        if not matches(row, claim, ignore_device=claim.device == "mps"):
            continue
        ids = found.setdefault(row.spec, [])
        if row.id not in ids:
            ids.append(row.id)
    return found


def coverage(version: str | None, form: str) -> str:
    """Return the coverage of the bullets of a torch release, the latest by default.

    Raises:
        UsageError: There is no table for that release.
    """
    version = documented_versions()[-1] if version is None else version
    claims = documented_claims(version)
    rows = planning()
    covered = [(claim, rows_by_spec(claim, rows)) for claim in claims]
    if form == "json":
        return json.dumps({"torch": version, "claims": [_object(*pair) for pair in covered]}, indent=2)
    return "\n".join(_lines(version, covered))


def _object(claim: Claim, specs: Mapping[str, Sequence[str]]) -> dict[str, object]:
    return {
        "id": claim.id,
        "section": claim.section,
        "targets": claim.targets,
        "device": claim.device,
        "direction": claim.direction,
        "text": plain(claim.text),
        "covered": bool(specs),
        "specs": [{"name": name, "rows": ids} for name, ids in specs.items()],
    }


def _lines(version: str, covered: Sequence[tuple[Claim, Mapping[str, Sequence[str]]]]) -> Iterator[str]:
    """Yield the bullets in the order of the docstring, and below each what speaks to it."""
    section = None
    bullets = missing = 0
    for _, of_one in groupby(covered, key=lambda pair: pair[0].order):
        pairs = list(of_one)
        if pairs[0][0].section != section:
            section = pairs[0][0].section
            yield from ([""] if bullets else [])
            yield _HEADINGS[section]
        bullets += 1
        missing += not all(specs for _, specs in pairs)
        yield f"  {plain(pairs[0][0].text)}"
        for claim, specs in pairs:
            # A bullet may name several devices, each a claim of its own.
            where = f"{claim.device}: " if len(pairs) > 1 else ""
            yield f"    {where}{_described(specs)}"
    text = f"torch {version}: {bullets} bullets, {bullets - missing} covered"
    yield from ["", text + (f", {missing} not covered" if missing else "")]
    if any(claim.device == "mps" for claim, _ in covered):
        yield "Nothing runs on MPS: what is said of it is covered by rows of the CPU and CUDA."


def _described(specs: Mapping[str, Sequence[str]]) -> str:
    """Return the specs with how many of their rows speak to the claim."""
    counts = (f"{name} ({several(len(ids), 'row')})" for name, ids in specs.items())
    return ", ".join(counts) or "not covered"


def plain(text: str) -> str:
    """Return a bullet's words without the markup of its roles and code."""
    return re.sub(r"`+", "", re.sub(r":(?:func|class|meth|attr):`~?([^`]*)`", r"\1", text))
