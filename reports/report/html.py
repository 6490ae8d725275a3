"""The matrix as one web page that needs no network: a line an op, the worst first, and behind each line its rows.

The lines of ops stand in the page and need no script. The rows are data (``page_rows.py``), each repeated value once, so that
thousands of them stay below a megabyte; the page's script draws those of an op when it is unfolded. jinja2 escapes all of
it, data included, and a content security policy lets no other script run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

from msgspec.structs import replace

from reports.coverage import DOCUMENTED, coverages
from reports.matrix.model import Matrix
from reports.matrix.ops import LISTED_MEANING
from reports.matrix.words import bound_words
from reports.render.json import View
from reports.render.page import Pool, generate
from reports.report.page_rows import documented_words, op_facts, overload_facts
from reports.report.view import report_view
from scanner.verdicts.vocabulary import WORST_FIRST

# More than this no browser filters at once; ten thousand rows are a page of some megabytes.
MOST_ROWS = 20_000


def render(matrices: Sequence[Matrix]) -> Iterator[str]:
    """Yield the page in pieces."""
    report = report_view(_most(matrices))
    pool = Pool()
    covered = coverages(matrices)
    yield from generate(
        "report",
        report=report,
        facts=op_facts(report, pool),
        pool=pool,
        limit=_limit_words(matrices, report),
        coverages=covered,
        overloads=(overload_facts(one, report, pool) for one in covered if one["aten"]),
        documented_heads=[head.capitalize() for head in DOCUMENTED],
        documented_words=documented_words,
        shown_labels=_labels,
        bounds=[bound_words(one) for one in matrices],
        simulated=all(one.simulated for one in matrices),
        worst_first=WORST_FIRST,
        listed_meaning=LISTED_MEANING,
        styles=("ops",),
    )


def _labels(report: View) -> list[str]:
    """Name each run by its column, or by its file where several share one."""
    return [
        next(
            (column.title for column in report["columns"] if column["runs"] == [run.number]),
            run.name,
        )
        for run in report.runs
    ]


def _most(matrices: Sequence[Matrix]) -> Sequence[Matrix]:
    """Leave out what a browser cannot hold: of all rows those stay whose findings are the worst, in their order."""
    findings = [row.finding for one in matrices for row in one.rows]
    if len(findings) <= MOST_ROWS:
        return matrices
    kept = set(sorted(range(len(findings)), key=lambda place: WORST_FIRST.index(findings[place]))[:MOST_ROWS])
    place = count()
    return [replace(one, rows=tuple(row for row in one.rows if next(place) in kept)) for one in matrices]


def _limit_words(matrices: Sequence[Matrix], report: View) -> str | None:
    """Say that rows were left out because there are too many."""
    rows, most = sum(len(one.rows) for one in matrices), sum(len(run.rows) for run in report.runs)
    if rows == most:
        return None
    return (
        f"A page holds {most} rows at most: these are {most} of {rows}, those with the worst findings. Choose others "
        f"with --only and --rows; the reports in Markdown, CSV and JSON have all of them."
    )
