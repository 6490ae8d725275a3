"""A folder of pages: the ops of the newest release in front, a page for each op, each release's matrix, what changed, the lists' drift.

Run files go in, and what comes out are places in the folder, each with the pieces of its page. Links are relative: they work from a
file as from a server.
"""

from __future__ import annotations

import html
import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import click
from msgspec.structs import replace

from detmatrix.reports.compare import page as comparison
from detmatrix.reports.compare.runs import compare
from detmatrix.reports.docs.judge import join
from detmatrix.reports.docs.view import RENDERERS as DOCS
from detmatrix.reports.explain import explained, known_op, lists_by_release
from detmatrix.reports.matrix.model import RECORDED, Matrix, matrix_of, narrowed, recorded
from detmatrix.reports.matrix.run_words import machine_words
from detmatrix.reports.render import grouped, page_pieces, write_whole
from detmatrix.reports.report import page as matrix_page
from detmatrix.reports.report.view import report_view, squares
from detmatrix.scanner.claims.matching import names_of
from detmatrix.scanner.errors import EXIT_DONE, UsageError, one_line
from detmatrix.scanner.observations import torch_versions
from detmatrix.scanner.observations.runfile import Run, read_run
from detmatrix.scanner.observations.writer import cannot_write
from detmatrix.scanner.plurals import several
from detmatrix.scanner.verdicts.vocabulary import BESIDE, FINDING_MEANING, WORST_FIRST

Page = tuple[str, Iterable[str]]  # its place in the folder, and its pieces
FRONT = "index.html"
_IN_ROW = 3  # words of a row's id behind the name of its op
# An op in a code span, or one that a button unfolds; what scripts are given has no tag as it is.
_NAMED = re.compile(
    r"<code>(?P<code>[^<]+)</code>|<button[^>]*>(?:<b>)?(?P<button>[^<]+)(?:</b>[^<]*)?</button>"
)
_BRAND = '<p class="brand">detmatrix</p>'


def site(runs: Iterable[Run], texts: Mapping[str, str]) -> Iterator[Page]:
    """Yield the pages of a site of runs, whose files have different names; *texts* are reports to show beside them, by name."""
    made = sorted(
        (matrix_of(Path(run.path).name, run) for run in runs), key=lambda it: torch_versions.key(it.release)
    )
    # The ops of all databases are told on a page of their own: most are no op of the lists.
    matrices = grouped(
        (f"{one.release}{'-all' * ('opinfo' in one.run.header.settings.sources)}", one) for one in made
    )
    listed = [name for name in matrices if not name.endswith("-all")] or [*matrices]
    newest = matrices[listed[-1]]
    # One chain of releases for each kind of device: of simulated GPUs the one that most runs are of.
    gpus = Counter(_gpu(one) for name in listed for one in matrices[name] if one.simulated)
    usual = max(gpus, key=gpus.__getitem__, default=None)
    chained = [(name, one) for name in listed for one in matrices[name] if _gpu(one) in {None, usual}]
    # Of a release, runs whose rows are all in larger ones would be steps by themselves.
    covered = defaultdict[tuple[str | None, ...], set[tuple[str, ...]]](set)
    again = set[str]()
    for name, one in sorted(chained, key=lambda it: -len(it[1].run.observations)):
        keys, header = {row.row.key for row in one.rows}, one.run.header
        known = covered[name, header.settings.device, header.environment.gpu]
        if keys and keys <= known:
            again.add(one.run.path)
        known |= keys
    together = [one for _, one in chained if one.run.path not in again]
    pages = [(name.replace("-all", ", all ops"), f"releases/{name}.html") for name in reversed(matrices)]
    links = [(f"The documented lists of {listed[-1]}", "lists.html")]
    links += [("What changed between releases", "changes.html")] if len(listed) > 1 else []
    told = [(title(text), f"reports/{name}.html") for name, text in texts.items()]
    files = [
        (one.name, f"torch {one.release}, {machine_words(one)}") for some in matrices.values() for one in some
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
        yield (f"reports/{name}.html", page_pieces("text", title=title(text), text=text, up="../"))
    yield from _ops(newest, [one.run for name in listed for one in matrices[name]])


def _gpu(one: Matrix) -> str | None:
    simulated = one.run.header.environment.simulated
    return simulated.architecture if simulated else None


def title(text: str) -> str:
    """Return the first heading of a text in Markdown."""
    return next((line.lstrip("# ") for line in text.splitlines() if line.startswith("#")), "report")


def page_of(op: str) -> str:
    """Return the place of an op's page."""
    return f"ops/{re.sub(r'[^A-Za-z0-9_.-]', '_', op)}.html"


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
    meanings = {name: word.meaning for name, word in BESIDE.items()} | FINDING_MEANING
    ranks = {name: rank for rank, name in enumerate((*BESIDE, *WORST_FIRST))}
    # An op counts once, where its device is that shows the worst of it.
    worst = {name: min(filter(None, words), key=ranks.__getitem__) for name, words in found.items()}
    counted = {name: count for name in ranks if (count := [*worst.values()].count(name))}
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
        ranks=ranks,
        worst=worst,
        simulated=any(one.simulated for one in newest),
        links=links,
    )


def _ops(newest: Sequence[Matrix], runs: Iterable[Run]) -> Iterator[Page]:
    lists, named = lists_by_release(), [replace(run, path=Path(run.path).name) for run in runs]
    for spec in dict.fromkeys(row.row.spec for one in newest for row in one.rows):
        known = known_op(spec, named, lists)
        view = explained(known, lists, narrowed(named, known.is_about))
        yield page_of(spec), page_pieces("explain", report=view, up="../", files=[run.path for run in named])


# --- The command

# What tells a folder that this command has written from one that it must not touch.
_MARK = ".detmatrix-site"


@click.command(name="site")
@click.argument("runs", metavar="[RUN]...", nargs=-1)
@click.option(
    "-o",
    "--output",
    "folder",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    default=Path("detmatrix-site"),
    show_default=True,
    help="Where to write it: a new or empty folder, or one that this command wrote.",
)
def command(runs: tuple[str, ...], folder: Path) -> int:
    """Make a site of run files: the newest release's ops, a page for each op, each release's matrix, and the files themselves.

    RUN is a file that scan wrote; by default those that are recorded with detmatrix. The pages need no server: open FOLDER/index.html.
    """
    # The reports for PyTorch of a checkout; there are none where detmatrix is installed.
    upstream = sorted(path for path in (RECORDED.parent / "upstream").glob("*.md") if path.stem != "README")
    own = {} if runs else {path.stem: path.read_text(encoding="utf-8") for path in upstream}
    read = [read_run(path) for path in dict.fromkeys(runs) or recorded()]
    ours = folder.is_dir() and ((folder / _MARK).is_file() or not any(folder.iterdir()))
    if folder.exists() and not ours:
        raise UsageError(f"{folder}: is there, and no site of ours; choose another folder with -o")
    for name, count in Counter(Path(run.path).name for run in read).items():
        if count > 1:
            raise UsageError(
                f"{name}: {count} runs have this name, and lie in one folder of the site; rename them"
            )
    written = 0
    try:
        for place in ("ops", "releases", "reports", "runs"):
            (folder / place).mkdir(parents=True, exist_ok=True)
        (folder / _MARK).touch()
        for path in (*(run.path for run in read), *(() if runs else recorded(of="instead"))):
            shutil.copyfile(path, folder / "runs" / Path(path).name)
        for place, pieces in site(read, own):
            write_whole(folder / place, pieces, ())
            written += 1
    except OSError as error:
        raise cannot_write(folder, error) from None
    click.echo(one_line(f"Wrote {several(written, 'page')}; open {folder / FRONT}"), err=True)
    return EXIT_DONE
