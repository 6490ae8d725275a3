"""The documented lists as one web page: every bullet beside what runs showed of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from reports.docs.agreement import Docs
from reports.docs.view import view_of
from reports.matrix import words
from reports.render.json import View
from reports.render.page import Pool, generate

# A sign, and the finding whose colour it has: a state is told by its word, too.
_MARKS: dict[str, tuple[str, str]] = {
    "contradicted": ("✗", "silent"),
    "confirmed": ("✓", "deterministic"),
    "not_triggered": ("○", "over_alert"),
    "not_run": ("·", "inconclusive"),
    "not_covered": ("·", "inconclusive"),
}
# ":func:`torch.bmm`" and "``mode='max'``": what a bullet sets as code.
_CODE = re.compile(r":\w+:`~?([^`]+)`|``([^`]+)``|`([^`]+)`")


def render(docs: Docs) -> Iterator[str]:
    """Yield the page in pieces."""
    report = view_of(docs)
    return generate(
        "docs",
        words,
        report=report,
        page=View(
            {},
            torch=docs.torch,
            matrices=docs.matrices,
            tiles=[one for one in report.count_lines if one[0] in _MARKS],
            marks=_MARKS,
            claims=len(report["claims"]),
            parts=_parts,
            worst_first=_worst_first,
            pool=Pool(),
        ),
    )


def _worst_first(claims: Iterable[View], state: str) -> list[View]:
    """Return claims by what is under the key *state*, in the order of the tiles."""
    return sorted(claims, key=lambda claim: list(_MARKS).index(claim[state]))


def _parts(text: str) -> list[tuple[bool, str]]:
    """Return the words of a bullet in pieces, each with whether it is code."""
    pieces: list[tuple[bool, str]] = []
    end = 0
    for found in _CODE.finditer(text):
        pieces += [(False, text[end : found.start()]), (True, found[1] or found[2] or found[3])]
        end = found.end()
    return [*pieces, (False, text[end:])]
