"""A folder of pages: the ops of the newest release in front, a page for each op, each release's matrix, what changed, the lists' drift.

Run files go in, and what comes out are places in the folder, each with the pieces of its page. Links are relative: they work from a
file as from a server.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from detmatrix.reports.compare import page as comparison
from detmatrix.reports.compare.runs import compare
from detmatrix.reports.docs.judge import join
from detmatrix.reports.docs.view import RENDERERS as DOCS
from detmatrix.reports.explain import known_op, lists_by_release, view_of_known
from detmatrix.reports.matrix.model import Matrix, matrix_of, narrowed
from detmatrix.reports.matrix.words import machine_words
from detmatrix.reports.render import page_pieces
from detmatrix.reports.report import page as matrix_page
from detmatrix.reports.report.view import report_view, squares
from detmatrix.scanner.claims.matching import names_of
from detmatrix.scanner.observations import versions
from detmatrix.scanner.observations.runfile import Run
from detmatrix.scanner.verdicts.vocabulary import BESIDE, FINDING_MEANING, WORST_FIRST

Page = tuple[str, Iterable[str]]  # its place in the folder, and its pieces
FRONT = "index.html"
_IN_ROW = 3  # words of a row's id behind the name of its op
# An op in a code span, or one that a button unfolds; what scripts are given has no tag as it is.
_NAMED = re.compile(
    r"<code>(?P<code>[^<]+)</code>|<button[^>]*>(?:<b>)?(?P<button>[^<]+)(?:</b>[^<]*)?</button>"
)
_BRAND = '<p class="brand">detmatrix</p>'


def site(runs: Mapping[str, Run], texts: Mapping[str, str]) -> Iterator[Page]:
    """Yield the pages of a site.

    Args:
        runs: By their paths.
        texts: Reports to show beside them, by their names.
    """
    releases: dict[str, dict[str, Run]] = {}
    for path, run in sorted(runs.items(), key=lambda it: versions.key(_release(it[1]))):
        # The ops of all databases are told on a page of their own: most are no op of the lists.
        whole = "" if {"opinfo", "gradgrad"}.isdisjoint(run.header.settings.sources) else "-all"
        releases.setdefault(f"{_release(run)}{whole}", {})[path] = run
    matrices = {
        name: [matrix_of(Path(path).name, run) for path, run in some.items()]
        for name, some in releases.items()
    }
    listed = [name for name in releases if not name.endswith("-all")] or [*releases]
    newest = matrices[listed[-1]]
    # One chain of releases for each kind of device: of simulated GPUs the one that most runs are of.
    gpus = Counter(_gpu(one) for name in listed for one in matrices[name] if one.simulated)
    usual = max(gpus, key=gpus.__getitem__, default=None)
    together = [one for name in listed for one in matrices[name] if _gpu(one) in {None, usual}]
    pages = [(name.replace("-all", ", all ops"), f"releases/{name}.html") for name in reversed(releases)]
    links = [(f"The documented lists of {listed[-1]}", "lists.html")]
    links += [("What changed between releases", "changes.html")] if len(listed) > 1 else []
    told = [(title(text), f"reports/{name}.html") for name, text in texts.items()]
    files = [
        (one.name, f"torch {_release(one.run)}, {machine_words(one)}")
        for some in matrices.values()
        for one in some
    ]
    # By every name that lists may call an op by; an op's own name goes before another's.
    rows = [row.row for one in newest for row in one.rows]
    ops = {name: page_of(row.spec) for row in rows for name in names_of(row)}
    ops |= {row.spec: page_of(row.spec) for row in rows}
    yield FRONT, _front(newest, files=files, releases=pages, pages=links, reports=told)
    for name, some in matrices.items():
        yield f"releases/{name}.html", _linked(matrix_page.render(some), "../", ops)
    yield "lists.html", _linked(DOCS["html"](join(newest)), "", ops)
    if len(listed) > 1:
        yield "changes.html", _linked(comparison.render(compare(together)), "", ops)
    for name, text in texts.items():
        yield (
            f"reports/{name}.html",
            page_pieces("text", title=title(text), text=text, up="../", script=False),
        )
    yield from _ops(newest, {path: run for name in listed for path, run in releases[name].items()})


def _gpu(one: Matrix) -> str | None:
    simulated = one.run.header.environment.simulated
    return simulated.architecture if simulated else None


def title(text: str) -> str:
    """Return the first heading of a text in Markdown."""
    return next((line.lstrip("# ") for line in text.splitlines() if line.startswith("#")), "report")


def page_of(op: str) -> str:
    """Return the place of an op's page."""
    return f"ops/{re.sub(r'[^A-Za-z0-9_.-]', '_', op)}.html"


def _release(run: Run) -> str:
    return versions.release(run.header.environment.torch)


def _linked(pieces: Iterable[str], up: str, ops: Mapping[str, str]) -> Iterator[str]:
    """Yield a page whose head leads back to the front, and whose names of ops, and of rows, lead to the pages of *ops*."""

    def led(found: re.Match[str]) -> str:
        name = html.unescape(found["code"] or found["button"])
        if (place := ops.get(name) or ops.get(name.rsplit(":", _IN_ROW)[0])) is None:
            return found[0]
        if found["code"]:
            return f'<a href="{up}{place}">{found[0]}</a>'
        return f'{found[0]} <a href="{up}{place}" aria-label="Page of {html.escape(name)}">page</a>'

    link = f'<p class="brand"><a href="{up}{FRONT}">detmatrix</a></p>'
    yield _NAMED.sub(led, "".join(pieces).replace(_BRAND, link, 1))


def _front(newest: Sequence[Matrix], **links: Sequence[tuple[str, str]]) -> Iterator[str]:
    report = report_view(newest)
    families, devices = squares(report)
    found = {name: words for ops in families.values() for name, words in ops}
    counts = Counter(one for words in found.values() for one in {*words} if one)
    meanings = FINDING_MEANING | {name: word.meaning for name, word in BESIDE.items()}
    counted = {name: counts[name] for name in (*BESIDE, *WORST_FIRST) if counts[name]}
    yield from page_pieces(
        "site",
        styles=("report", "explain"),
        report=report,
        families=families,
        devices=devices,
        address=page_of,
        found=found,
        counted=counted,
        meanings={name: meanings[name] for name in counted},
        ranks={name: rank for rank, name in enumerate(meanings)},
        simulated=any(one.simulated for one in newest),
        links=links,
    )


def _ops(newest: Sequence[Matrix], runs: Mapping[str, Run]) -> Iterator[Page]:
    lists, paths, names = lists_by_release(), list(runs), [Path(path).name for path in runs]
    for spec in dict.fromkeys(row.row.spec for one in newest for row in one.rows):
        known = known_op(spec, [*runs.values()], lists)
        view = view_of_known(known, lists, narrowed(paths, [*runs.values()], known.is_about), names)
        yield page_of(spec), page_pieces("explain", report=view, up="../", files=names, script=False)
