"""A comparison in every format: Markdown, JSON, a block of a Markdown file, what CI reads, and the page with a timeline of all runs.

Every row of the runs is in the page, in which the filters at first show those that changed. What a row's panel shows
stands beside it as tables of records, as in the page of the matrix.
"""

from __future__ import annotations

import re
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, groupby
from pathlib import Path

import click
from msgspec import Struct

from detmatrix.reports.checks import NAMED, Case, Level, State, annotation, case_of, errors_first, junit
from detmatrix.reports.commands import CHECK_WITHOUT_INTO, Block, command_words, deliver, refuse
from detmatrix.reports.compare.comparable import arrow
from detmatrix.reports.compare.judge import CHANGES, CLASS, CLASS_MEANING, Change, Kind
from detmatrix.reports.compare.runs import Comparison, Pair, compare, measure_again
from detmatrix.reports.compare.view import build_notes, finding_notes, finding_words, view_of
from detmatrix.reports.matrix import run_words
from detmatrix.reports.matrix.model import Matrix, RunLists, documented, load
from detmatrix.reports.matrix.ops import direction_of
from detmatrix.reports.matrix.rows import TIMES, cost_words, timed
from detmatrix.reports.render import (
    NONE,
    Tables,
    View,
    check_place,
    fields_of,
    grouped,
    markdown_pieces,
    object_pieces,
    page_pieces,
    text_pieces,
    write_to_stdout,
)
from detmatrix.scanner.cli.options import (
    Names,
    Whole,
    block_check_option,
    form_of,
    format_option,
    into_option,
    specs_option,
    tell,
)
from detmatrix.scanner.errors import EXIT_CHECK_FAILED, EXIT_DONE, one_line
from detmatrix.scanner.modes import DEFAULT_MODES
from detmatrix.scanner.observations.settings import MOST_RUNS
from detmatrix.scanner.plurals import first_of
from detmatrix.scanner.verdicts.findings import MatrixRow

_REPLANNED: tuple[Kind, ...] = ("added", "removed")
# What a reader chooses among, where rows are of it: the first is what the page shows at first; what is the catalog's
# alone stands last.
_CHOICES: dict[str, str] = {
    "": "Rows that changed from one run to the next, or seem to have; not those that the catalog gained or lost.",
    **{str(kind): meaning for kind, meaning in CLASS_MEANING.items() if kind not in _REPLANNED},
    "other_bits": "Rows whose bits repeat in both runs, with other bits in the later one. Not a change of determinism.",
    "documented": "Rows whose documentation changed between two releases; the steps count bullets.",
    "all": "Every row, even if it is the same in all runs.",
    **{kind: CLASS_MEANING[kind] for kind in _REPLANNED},
}
_NO_LISTS = "no lists"


def _timelines(report: View) -> Iterator[View]:
    """Yield of each kind of device of which there are two runs what became of its rows, those that changed most first."""
    for kind in dict.fromkeys(run.record.kind for run in report["runs"]):
        runs = [run for run in report["runs"] if run.record.kind == kind]
        steps = [step for step in report["pairs"] if step.record.new.kind == kind]
        if not steps:
            continue
        pairs, matrices = [step.record for step in steps], [run.record for run in runs]
        torches = Counter(one.torch for one in matrices)
        lists = [pairs[0].lists[0], *(pair.lists[1] for pair in pairs)]
        by_run = [{row.row.key: row for row in one.rows} for one in matrices]
        changes = [{}, *({change.row.key: change for change in pair.changes} for pair in pairs)]
        columns = [*zip(matrices, lists, by_run, changes, strict=True)]
        # The latest run says in which order the rows stand.
        rows = [
            _line([(one, its, found.get(key), changed.get(key)) for one, its, found, changed in columns])
            for key in dict.fromkeys(key for found in reversed(by_run) for key in found)
        ]
        rows.sort(key=lambda row: (not row.is_other, -row.changed, -len(row.turns)))
        # The rows that changed stand first, and so do the ops: the worst, then those of which most rows did.
        of_op = grouped((row.row.spec, row) for row in rows)
        ops = [_op(name, some) for name, some in of_op.items() if some[0].turns]
        ops.sort(key=lambda op: (_rank(op.worst), -len(op.changed)))
        yield View(
            {},
            runs=runs,
            steps=steps,
            rows=rows,
            differing=[row for row in rows if row.turns],
            device=matrices[-1].device,
            # What tells runs apart: the version of torch, and the file's name where several have the same.
            labels=[it.torch if torches[it.torch] == 1 else f"{it.torch} ({it.name})" for it in matrices],
            moved=[op for op in ops if op.worst.kind not in _REPLANNED],
            replanned=[op for op in ops if op.worst.kind in _REPLANNED],
            machines=" and ".join(dict.fromkeys(run.machine for run in runs)),
            executions=" or ".join(dict.fromkeys(run.executed for run in runs)),
            stepped=[op for step in steps for op in step.ops],
        )


def _line(seen: Sequence[tuple[Matrix, RunLists, MatrixRow | None, Change | None]]) -> View:
    """Return one row in every run, with the changes between: of a run that did not plan it nothing."""
    changes = [change for *_, change in seen if change is not None]
    # Changes of its finding, be they comparable or not; whether one is not the catalog's alone.
    turns = [change for change in changes if change.differs]
    is_other = any(change.kind not in _REPLANNED for change in turns)
    row = [row for _, _, row, _ in seen if row is not None][-1].row
    moments, before = list[View](), None
    for one, lists, shown, change in seen:
        listed = documented(row, lists.claims) if lists.claims else _NO_LISTS
        rests, marks = finding_notes(shown, one) if shown else ("", [])
        moment = View(
            {},
            place=len(moments),  # among the runs
            row=shown,
            change=change,
            documented=listed,
            redocumented=before not in {None, listed, _NO_LISTS} and listed != _NO_LISTS,
            finding=finding_words(shown, one),
            note=", ".join(filter(None, [rests, *marks])),
            cells=(shown.off.words, shown.on_words) if shown else ("", ""),
            became=change.words if change is not None and change.differs else None,
        )
        moments, before = [*moments, moment], listed
    kinds = {str(change.kind) for change in changes}
    also = {
        "other_bits": any(change.other_bits for change in changes),
        "documented": any(one.redocumented for one in moments),
        "": is_other,
        "all": True,
    }
    return View(
        {},
        row=row,
        changes=changes,
        turns=turns,
        changed=sum(change.kind in CHANGES for change in turns),
        is_other=is_other,
        moments=moments,
        # What the page finds it under.
        choices=(kinds - {"same"} or kinds) | {choice for choice, is_so in also.items() if is_so},
    )


def _for_people(comparison: Comparison) -> View:
    """Return what is shown of a comparison, with the timeline of each kind of device."""
    report = view_of(comparison)
    return View(report, **vars(report), tables=[*_timelines(report)])


def block(comparison: Comparison) -> Iterator[str]:
    """Yield two small tables for a Markdown file that is about something else: each step, and what changed in it."""
    return markdown_pieces("compare_block", _for_people(comparison))


def render(comparison: Comparison) -> Iterator[str]:
    """Yield the page in pieces."""
    report = _for_people(comparison)
    rows = [row for table in report.tables for row in table.rows]
    counts = Counter(chain.from_iterable(row.choices for row in rows))
    # What an address names each row by: its id, numbered where several kinds of device have it.
    known, anchors = Counter[str](), dict[tuple[object, str], str]()
    for row in (one.row for one in rows):
        name = re.sub(r"\s+", "_", row.id)
        known[name] += 1
        anchors[row.key, row.device] = name if known[name] == 1 else f"{name}@{known[name]}"
    phrases = [
        dict([*run_words.environment_words(it), *run_words.settings_words(it)]) for it in comparison.matrices
    ]
    return page_pieces(
        "compare",
        words=run_words,
        styles=("ops",),
        report=report,
        page=View(
            {},
            matrices=comparison.matrices,
            rows=len(rows),
            bits_compared=sum(any(one.bits for one in row.changes) for row in rows),
            anchors=anchors,
            choices=[
                (choice, meaning, counts[choice])
                for choice, meaning in _CHOICES.items()
                if counts[choice] or choice in {"", "all"}
            ],
            families=sorted({one.row.family for one in rows}),
            facts=_facts(report.tables),
            class_sign={kind: word.sign for kind, word in CLASS.items()},
            # Environment and settings of all runs side by side: label, a text per run, whether they differ.
            circumstances=[
                (name, texts := [one.get(name, NONE) for one in phrases], len({*texts}) > 1)
                for name in dict.fromkeys(name for one in phrases for name in one)
                if name != "run file"
            ],
            TIMES=TIMES,
        ),
    )


def _op(name: str, rows: Sequence[View]) -> View:
    """Join the rows of an op: what became of it worst, what each run shows of it, what releases document of it."""
    changed = [row for row in rows if row.turns]
    worst, row = min(((change, row) for row in changed for change in row.turns), key=lambda it: _rank(it[0]))
    listed, ways = [one.documented for one in row.moments], ("forward", "backward")
    # What a run did not plan is no row in it.
    by_run = [[one.row for one in seen if one.row] for seen in zip(*(it.moments for it in rows), strict=True)]
    return View(
        {},
        name=name,
        rows=len(rows),
        changed=changed,
        worst=worst,
        cells=[
            [direction_of([one for one in seen if one.row.direction == way]) for way in ways]
            for seen in by_run
        ],
        documented=" → ".join(text for text, _ in groupby(listed)),
    )


def _rank(change: Change) -> tuple[int, bool, bool]:
    """Return how bad a change is; what only seems to be one stands behind those that are."""
    return CLASS[change.seeming].rank, change.apparent is not None, not change.wrong


_FACTS = ("family", "spec", "op", "case", "direction", "dtype", "device", "provokes", "why")


def _facts(tables: Iterable[View]) -> dict[str, dict[str, object]]:
    """Return what the script knows of each row, in the page's order."""
    facts = Tables()
    for number, table in enumerate(tables):
        for one in table.rows:
            moments = tuple(_moment(moment, facts) for moment in one.moments)
            facts.place("rows", table=number, **fields_of(one.row, *_FACTS), moments=moments)
    return facts.columns()


def _moment(one: View, facts: Tables) -> int:
    """Return one row in one run: what it shows, what it costs, what became of it."""
    row, change, shown, became = one.row, one.change, None, None
    if row is not None:
        shown = facts.place(
            "shown",
            **fields_of(row, "finding", "reason", "weak"),
            **fields_of(one, "note", "documented"),
            off=one.cells[0],
            on=one.cells[1],
            verdicts=tuple(row.cell(mode).verdict for mode in DEFAULT_MODES),
            serial=run_words.serial_word(row.serial),
        )
    if change is not None:
        became = facts.place(
            "became",
            **fields_of(change, "kind", "detail", "reason"),
            seems=change.apparent,
            words=change.words,
            bits=change.bits_words,
            redocumented=one.redocumented,
        )
    price = (cost_words(row), (cost := timed(row)) and cost.ratio) if row else (None, None)
    return facts.place("moments", shown=shown, became=became, cost=price[0], ratio=price[1])


# --- What CI is told: which rows fail a check, what is likely before what is churn

# What a check may be told to fail on: a class, or a word for several.
FAILS: dict[str, tuple[Kind, ...]] = {
    "regression": ("regressed",),
    "change": CHANGES,
    **{kind: (kind,) for kind in CHANGES},
}


class Failure(Struct, frozen=True):
    """One thing that fails a check: a row, rows of one op together, or all samples that came and went."""

    pair: Pair
    title: str
    text: str
    op: str
    ids: tuple[str, ...] = ()  # empty: nothing could be compared

    def __str__(self) -> str:
        return f"{self.title}: {self.text}"


def failures(comparison: Comparison, kinds: Sequence[Kind]) -> Iterator[Failure]:
    """Yield what is of the classes asked for, the worst first.

    A row that cannot be compared counts as what it seems, unless the exact test takes its difference for chance; rows
    of one op that all seem to have changed in one way count if the test does not take them all together for chance.
    Samples of PyTorch's databases that only one release has count once. A check that could not compare anything has
    not passed.
    """
    order = [kind for kind in CHANGES if kind in kinds]
    for kind in order:
        for pair in comparison.pairs:
            for change in sorted(pair.changes, key=lambda it: not it.wrong):
                row, seems = change.row, change.apparent == kind and not change.chance
                if not _is_churn(change) and (change.kind == kind or seems):
                    found = arrow(finding_words(change.old, pair.old), finding_words(change.new, pair.new))
                    detail = f"; {change.detail}" if change.detail else ""
                    text = f"{row.id}: {found} ({pair.name}){detail}"
                    yield Failure(pair, change.words, text, row.spec, (row.id,))
            for one in (it for it in pair.likely if it.kind == kind):
                text = f"{one.op}: {len(one.rows)} rows together: {one.told} ({pair.name}): {first_of(one.rows, NAMED)}"
                yield Failure(pair, f"{kind} (likely)", text, one.op, tuple(one.rows))
    for pair in comparison.pairs:
        if churn := [change for change in pair.changes if _is_churn(change) and change.kind in order]:
            counts = Counter(change.kind for change in churn)
            what = ", ".join(f"{counts[kind]} rows {kind}" for kind in order if counts[kind])
            entries = len({change.row.spec for change in churn})
            of = f"{entries} {'entry' if entries == 1 else 'entries'} of PyTorch's databases"
            text = f"{what}, of {of}: each release draws its own samples ({pair.name})"
            yield Failure(pair, "other samples", text, "samples", tuple(it.row.id for it in churn))
    for pair in (it for it in comparison.pairs if not it.compared):
        reasons = Counter(change.reason for change in pair.changes if change.reason is not None)
        counted = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
        why = "; ".join(f"{obstacle.reason}: {obstacle.detail}" for obstacle in pair.obstacles)
        why = why or (f"no row can be compared ({counted})" if counted else "no row is in both")
        yield Failure(pair, "nothing compared", f"{pair.name}: {why}", "detmatrix")


def _is_churn(change: Change) -> bool:
    """Tell whether a row came or went because PyTorch's databases draw other samples in another release."""
    return change.kind in _REPLANNED and bool(change.row.provoked)


def render_github(comparison: Comparison, kinds: Sequence[Kind] = ("regressed",)) -> Iterator[str]:
    """Return annotations: errors of what fails, warnings of what else changed and of builds of other kinds."""

    def told(level: Level, found: Iterable[Failure]) -> Iterator[str]:
        return (annotation(level, one.title, one.text, one.pair.new.run.path) for one in found)

    latest = comparison.matrices[-1].run.path
    others = failures(comparison, [kind for kind in CHANGES if kind not in kinds])
    return errors_first(
        dict.fromkeys(
            [
                *told("error", failures(comparison, kinds)),
                *(annotation("warning", "detmatrix", text, latest) for text in build_notes(comparison)),
                *told("warning", (one for one in others if one.ids)),
            ]
        )
    )


def render_junit(comparison: Comparison, kinds: Sequence[Kind] = ("regressed",)) -> Iterator[str]:
    """Yield test cases: one for each failure, and for each row that is in none."""
    failed = list(failures(comparison, kinds))
    pairs = ((pair, [one for one in failed if one.pair is pair]) for pair in comparison.pairs)
    return junit([(pair.name, list(_cases(pair, some))) for pair, some in pairs])


def _cases(pair: Pair, failed: Sequence[Failure]) -> Iterator[Case]:
    for one in failed:
        name = one.ids[0].removeprefix(f"{one.op}:") if len(one.ids) == 1 else one.title
        yield case_of(one.op, name, "failed" if one.ids else "error", str(one))
    told = {id_ for one in failed for id_ in one.ids}
    for change in (change for change in pair.changes if change.row.id not in told):
        row = change.row
        text = f"{change.words}: {change.reason}: {change.detail}"
        state: State = "skipped" if change.kind == "not_comparable" else "passed"
        yield case_of(row.spec, row.id.removeprefix(f"{row.spec}:"), state, text)


RENDERERS: dict[str, Callable[[Comparison], Iterator[str]]] = {
    "text": lambda comparison: text_pieces("compare", view_of(comparison)),
    # What is worse first, then what else changed, then what could not be told.
    "md": lambda comparison: markdown_pieces("compare", _for_people(comparison)),
    "html": render,
    # One row per line.
    "json": lambda comparison: chain(
        object_pieces(view_of(comparison), "pairs", each=lambda pair: object_pieces(pair, "rows", edge="")),
        ["\n"],
    ),
}


# --- The command

BLOCK = "compare"
FOR_CI = {"junit": render_junit, "github": render_github}
FORMATS: dict[str, Callable[..., Iterator[str]]] = {**RENDERERS, **FOR_CI}


@click.command(name="compare")
@click.argument("runs", metavar="RUN RUN...", nargs=-1, required=True)
@format_option(
    FORMATS,
    "Text for a terminal, Markdown, a web page that works offline, JSON, or what CI systems read: JUnit XML and annotations of GitHub.",
    default="text",
)
@click.option(
    "--fail-on",
    # In the order in which checks tell them.
    type=Names(
        "class", FAILS, lambda names: tuple(it for it in CHANGES if any(it in FAILS[one] for one in names))
    ),
    metavar="CLASS,...",
    help=f"Exit 1 when a row is of one of these classes, and print those rows first, one line each: {', '.join(FAILS)}, "
    "where change is any of them; also when two runs could not be compared in any row. Unconfirmed changes count. So do "
    "apparent changes of rows that cannot be compared, unless Fisher's exact test gives p > 0.05, and those of all rows "
    "of an op together if it gives p < 0.01. Samples of PyTorch's databases that came or went count once, last.",
)
@click.option(
    "--confirm",
    is_flag=True,
    help="Re-measure rows that appear to differ, both runs in turns, before calling them changed.",
)
@click.option(
    "--python",
    "pythons",
    multiple=True,
    metavar="PATH",
    help="With --confirm: the interpreter that has the torch of a run. Once for each run, in their order.",
)
@specs_option(
    "With --confirm: a file of specs that the runs used. It is Python, and runs only if it is named here."
)
@click.option(
    "--runs",
    "executions",
    type=Whole(2, MOST_RUNS),
    metavar="N",
    help="With --confirm: executions per process. Default: as in the scans. If the total is smaller than in the scans, no "
    "change is dismissed.",
)
@click.option(
    "--rounds",
    type=Whole(2),
    metavar="N",
    help="With --confirm: processes of each run in each mode. Default: twice those of the scans, at least 7, or 16 where "
    "a row seems to differ between processes only.",
)
@click.option(
    "-o",
    "--output",
    "outputs",
    metavar="FILE",
    multiple=True,
    help="Write to FILE instead of standard output. May be given more than once: -o changes.md -o changes.html.",
)
@into_option(BLOCK, ": a line for each step from one run to the next, and for each op that changed.")
@block_check_option
def command(
    runs: tuple[str, ...],
    form: str | None,
    fail_on: tuple[Kind, ...] | None,
    confirm: bool,
    pythons: tuple[str, ...],
    spec_files: tuple[str, ...],
    executions: int | None,
    rounds: int | None,
    outputs: tuple[str, ...],
    into: str | None,
    check: bool,
) -> int:
    """Say what changed between runs: which ops improved, regressed, or cannot be compared, and why.

    RUN is a file that scan wrote, or one compressed with gzip (.gz). Each is compared with the one before it on the
    same kind of device; more than two make a timeline.
    """
    of_confirm = {"--python": pythons, "--specs": spec_files, "--runs": executions, "--rounds": rounds}
    refuse(
        (len(runs) == 1, f"{runs[0]}: one run has nothing to be compared with; give at least two"),
        *((given and not confirm, f"{it} is for --confirm; give both") for it, given in of_confirm.items()),
        (check and into is None, CHECK_WITHOUT_INTO),
        (
            into is not None and (outputs or fail_on or confirm or form not in {None, "md"}),
            "--into writes Markdown into a file of its own; give it without -o, --format, --fail-on and --confirm",
        ),
    )
    matrices = load(runs)
    comparison = compare(matrices)
    if into is not None:
        command = command_words("compare", runs, ["--into", Path(into).name])
        body = "".join(block(comparison))
        return Block(Path(into), BLOCK).update(command, body, runs, check=check)
    for output in outputs:
        check_place(Path(output), runs)
    if confirm:
        # A batch system that ends the job gives it time to stop its workers.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        tell(f"compare: starting torch: {', '.join(pythons)}")
        again = measure_again(comparison, pythons, executions, rounds, spec_files)
        comparison = compare(matrices, again)
    # Text says it itself.
    for told in build_notes(comparison) if outputs or form not in {None, "text"} else ():
        click.echo(one_line(f"detmatrix: warning: {told}"), err=True)
    failed = [f"{one_line(str(one))}\n" for one in failures(comparison, fail_on)] if fail_on else []
    # The failures of a check go first, but to where a machine reads.
    renderers = FORMATS | {
        name: partial(render, kinds=fail_on or FAILS["regression"]) for name, render in FOR_CI.items()
    }
    for output in outputs:
        chosen = form_of(form, output, renderers, "text")
        deliver(renderers[chosen](comparison), chosen, output, runs)
    if outputs:
        write_to_stdout(failed)
    elif form in {"json", "html", *FOR_CI}:
        click.echo("".join(failed), nl=False, err=True)
        write_to_stdout(renderers[form](comparison))
    else:
        write_to_stdout(chain(failed, ["\n"] if failed else [], renderers[form or "text"](comparison)))
    return EXIT_CHECK_FAILED if failed else EXIT_DONE
