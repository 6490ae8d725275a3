"""The documented lists as one web page: every bullet beside what runs showed of it, and what a build lets expect.

What a build says stands in tables of its own, in italics, below what was measured.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from reports.builds.expectations import EXPECTATION_MEANING
from reports.docs import builds
from reports.docs.agreement import Docs
from reports.docs.builds import BuildFiles
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
    "alert_gone": ("✗", "silent"),
    "alert_reached": ("✗", "silent"),
    "alert_partly": ("≈", "over_alert"),
    "unsettled": ("?", "over_alert"),
    "expected_raise": ("!", "fixed_by_mode"),
    "expected_flag": ("=", "fixed_by_mode"),
    "no_flag": ("○", "over_alert"),
    "other_device": ("·", "inconclusive"),
    "unlinked": ("·", "inconclusive"),
}
# ":func:`torch.bmm`" and "``mode='max'``": what a bullet sets as code.
_CODE = re.compile(r":\w+:`~?([^`]+)`|``([^`]+)``|`([^`]+)`")


def render(docs: Docs | None, files: BuildFiles | None = None) -> Iterator[str]:
    """Yield the page in pieces."""
    report = None if docs is None else view_of(docs)
    expected = None if files is None else builds.view_of(files)
    claims = [claim for build in (expected["builds"] if expected else ()) for claim in build["claims"]]
    found = Counter(claim["expected"] for claim in claims)
    tiles = [
        (name, number, meaning)
        for name, number, meaning in (report.count_lines if report else ())
        if name in _MARKS
    ]
    tiles += [(name, found[name], EXPECTATION_MEANING[name]) for name in EXPECTATION_MEANING if found[name]]
    return generate(
        "docs",
        words,
        report=report,
        expected=expected,
        page=View(
            {},
            torch=docs.torch if docs is not None else expected["torch"] if expected else "",
            matrices=docs.matrices if docs is not None else (),
            tiles=tiles,
            marks=_MARKS,
            claims=len(report["claims"] if report else ()) + len(claims),
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
