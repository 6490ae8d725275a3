"""All that is known of one op: what lists say, what runs measured or simulated, and what to do."""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby, product
from typing import Any

import click
from msgspec.structs import replace

from detmatrix.reports.commands import DEFAULT_RUN, Place, writes
from detmatrix.reports.libraries import documented_libraries, libraries_of
from detmatrix.reports.matrix.chosen_columns import (
    NOTHING,
    Column,
    PropertyColumn,
    all_columns,
    cell_of,
    outranking,
)
from detmatrix.reports.matrix.model import SECTION_WORDS, Matrix, hands_out, is_about, narrowed, recorded
from detmatrix.reports.matrix.ops import UNSCANNED, RunRow, ops_view
from detmatrix.reports.matrix.rows import engines_of, times
from detmatrix.reports.matrix.run_words import (
    bullet_words,
    machine_of_row,
    named_machines,
    percent,
    proof_words,
)
from detmatrix.reports.matrix.run_words import span as span_of
from detmatrix.reports.render import View, grouped, json_of, markdown_pieces, page_pieces, text_pieces
from detmatrix.scanner.accelerators import label_of
from detmatrix.scanner.cases.known import KnownOp, op_called, spellings_of
from detmatrix.scanner.claims.matching import claimed_kind
from detmatrix.scanner.claims.tables import documented_claims, documented_versions
from detmatrix.scanner.cli.options import complete_op
from detmatrix.scanner.errors import UsageError
from detmatrix.scanner.observations import torch_versions
from detmatrix.scanner.observations.records import Claim
from detmatrix.scanner.observations.runfile import Run, read_run
from detmatrix.scanner.plurals import several
from detmatrix.scanner.verdicts.cells import COMPARED
from detmatrix.scanner.verdicts.findings import UNLIKE_REFERENCE, MatrixRow
from detmatrix.scanner.verdicts.vocabulary import (
    BESIDE,
    COLUMN_WORDS,
    CURED,
    FINDING,
    RAISING,
    WORST_FIRST,
    Finding,
)

# Of a function of one's own that differs with the flag on.
_OF_OWN = (
    "The flag does not help. Look for what it draws without a seed (random, NumPy, a clock), for what it keeps from call to "
    "call, for the order of sets, and for threads that end in any order; of PyTorch's ops, detmatrix locate names the one."
)
# Of an op of PyTorch that is not to return such memory.
_READS = (
    "It reads uninitialized memory, which is a bug of the op: report it to PyTorch. The flag fills that memory "
    "(torch.utils.deterministic.fill_uninitialized_memory, on by default)."
)
# The key of the compiler's cache holds the flag of the forward phase alone.
_CACHED_ADVICE = (
    "With torch.compile, set the flag, and never reuse a cache that a process filled whose flag was off in its backward phase: "
    "use a fresh folder (TORCHINDUCTOR_CACHE_DIR), or set the flag in every process that fills it."
)
Lists = Mapping[str, Sequence[Claim]]  # by release, the oldest first


def lists_by_release() -> Lists:
    """Return the documented lists, the oldest release first."""
    return {it: documented_claims(it) for it in sorted(documented_versions(), key=torch_versions.key)}


def known_op(op: str, runs: Sequence[Run], lists: Lists) -> KnownOp:
    """Return the op that a name means, of all that runs, lists and libraries name; refuse a name of none or of several."""
    targets = [name for claims in lists.values() for claim in claims for name in claim.targets]
    rows = [row for run in runs for row in run.header.planned]
    # The ops that the table of libraries names, without those that a pattern stands for.
    called = (name for call in documented_libraries().calls for name in call.ops)
    named = (name for name in called if "*" not in name and "[" not in name)
    return op_called(op, rows, [*targets, *named])


def explained(
    op: KnownOp,
    lists: Lists,
    matrices: Sequence[Matrix],
    spelled: Sequence[Matrix] = (),
    *,
    own: bool = False,
) -> View:
    """Return what is known of one op, of which the matrices have the rows alone; *spelled* have those of its spellings.

    Without names of lists and libraries neither is asked of it. Where runs of the user's *own* end, those that are recorded are named.
    """
    about = {it: [one for one in claims if is_about(one, op.names)] for it, claims in lists.items()}
    instead = instead_of(op.specs, spelled)
    libraries = libraries_of(op.names)
    by_op = ops_view(matrices)
    ops = by_op.ops
    # The worst finding of each release on each kind of device, and the runs of the latest that there is anything of.
    history: dict[str, dict[str, Finding | None]] = {}
    runs: dict[str, tuple[int, ...]] = {}
    releases: dict[str, str] = {}
    for place, column in enumerate(by_op.columns):
        findings = [it.cells[place].finding for it in ops if it.cells[place].finding]
        found = history.setdefault(label_of(column["device"]), defaultdict(lambda: None))
        found[column["torch"]] = min(findings, key=WORST_FIRST.index, default=None)
        if findings:
            runs[column.device] = column.runs
            releases[label_of(column["device"])] = column["torch"]
    latest = [row for it in ops for run, row in it.rows if any(run in some for some in runs.values())]
    cells = [cell_of(column, latest) for column in by_op.further]
    engines = (engines_of(row, one.torch) for one in matrices for row in one.rows)
    whys = op.why or [row.row.why for one in matrices for row in one.rows if row.row.why]
    worst = ops[0].finding if ops else None
    actions = list(
        _advices(by_op, latest, releases, cells, libraries, own=own)
        if worst
        else _documented_advice(libraries)
    )
    if instead and worst not in {None, "deterministic"}:
        actions.append("Or write it as shown below, under what to write instead.")
    where = {one.kind for one in matrices if one.rows}
    claims = Counter(claim.device for claim in (list(about.values())[-1] if about else ()))
    unmeasured = {kind: count for kind, count in claims.items() if kind not in {"any", *where}}
    return View(
        {
            "op": op.name,
            "specs": list(op.specs),
            "releases": list(lists),
            "documented": list(_documented(about)),
            "measured": list(_measured(matrices)),
            "instead": instead,
            "unmeasured": unmeasured,
            # Runs tell it in the words of the catalog of their day.
            "why": list(dict.fromkeys(whys)),
            "engines": list(dict.fromkeys(filter(None, engines))),
            "libraries": libraries,
            "finding": worst,
            "action": " ".join(actions) or None,
            "cost": {it.name: it.cost_words for it in ops if it.cost or it.fill},
            "commands": _commands(op.name, by_op, cells, matrices),
        },
        meaning=FINDING[worst].meaning if worst else None,
        actions=actions,
        releases_words=span(list(lists), list(lists)),
        history=history,
        history_releases=sorted({column.torch for column in by_op.columns}, key=torch_versions.key),
    )


def _advices(
    by_op: View,
    latest: Sequence[MatrixRow],
    releases: Mapping[str, str],
    cells: Sequence[View],
    libraries: Sequence[View],
    *,
    own: bool,
) -> Iterator[str]:
    """Yield what to do on each kind of device, by what off and on show, and by further columns where they were asked for.

    *releases* are those of the latest rows by the name of the device, said where they are several.
    """
    op = by_op.ops[0]
    devices = grouped((label_of(row.row.device), row) for row in latest)
    kinds = dict.fromkeys(label_of(column["device"]) for column in by_op.columns)
    # Runs on a CPU say nothing of CUDA, where an op of PyTorch's has other kernels.
    if [*kinds] == ["CPU"] and any(row.row.source != "own" for row in latest):
        kinds["CUDA"] = None
    # Runs on CUDA are recorded of the catalog alone.
    known = next((row.row.spec for row in latest if own and row.row.source == "documented"), None)
    # Bits that repeat may be wrong: what a GPU gave was not compared with the CPU, what the simulated one gives is.
    wrong = {row.row.id for row in latest if "wrong_with_flag" in row.beside}
    of_it = next((f" (torch {releases[it]})" for it in releases if "simulated" in it), "")
    for label in kinds:
        of = f" (torch {releases[label]})" if label in releases and len({*releases.values()}) > 1 else ""
        where = "" if [*kinds] == ["CPU"] else f"On {label}{of}"
        told = " ".join(_documented_advice(libraries)) or "Unknown here: no run has it."
        recorded_ones = f", or read the recorded runs: detmatrix explain {known} --recorded" if known else ""
        unscanned = (
            f"{where}: {told} Scan on a GPU{recorded_ones}." if label != "CPU" else f"{where}: {UNSCANNED}."
        )
        yield from _advices_on(where, op, devices[label], libraries) if label in devices else [unscanned]
        cured = (row for row in devices.get(label, ()) if row.finding in CURED and label == "CUDA")
        if cases := _named(row for row in cured if row.row.id in wrong):
            yield f"{where}, not for inputs as in {cases}: simulated{of_it}, the result with the flag on is wrong."
    yield from further_advice(by_op.further, cells)


def _advices_on(where: str, op: View, rows: Sequence[MatrixRow], libraries: Sequence[View]) -> Iterator[str]:
    """Yield what to do on one kind of device, which *where* names unless that is clear."""
    start, within = (f"{where}: ", f"{where}, in") if where else ("", "In")
    if unlike := sum(bool(row.unlike_reference) for row in rows):
        yield f"{within} {several(unlike, 'row')} it did not match the reference of the case, which holds in every mode."
    for name, word in BESIDE.items():
        if count := sum(name in row.beside for row in rows):
            yield f"{within} {several(count, 'row')}: {word.meaning} {word.advice}"
    worst = min((row.finding for row in rows), key=WORST_FIRST.index)
    if any("wrong_with_flag" in row.beside for row in rows):  # whatever the flag is good for otherwise
        if raising := _named(row for row in rows if row.on.verdict == "raises"):
            yield f"{start}Cases that raise with the flag on: {raising}."
    elif op.finding == "deterministic" and not op.doubts and not op.is_clean:
        yield f"{start}No difference was seen with the flag off and on."
    else:
        yield start + _advice(worst, op, rows, libraries)
    unknown = [row for row in rows if row.finding == "inconclusive" and _calls([row])]
    if unknown and worst != "inconclusive":
        yield (
            f"{within} {_named(unknown)}: unknown, as libraries are not simulated ({', '.join(_calls(unknown))})."
            f"{_settings(libraries)}"
        )


def _advice(worst: Finding, op: View, rows: Sequence[MatrixRow], libraries: Sequence[View]) -> str:
    """Return what to do, with the cases that it is not true of."""
    if worst == "deterministic" and op.doubts:
        return (
            f"Weak evidence: no difference was seen, but every row of a direction is {' or '.join(op.doubts)}. "
            f"The op may differ with larger inputs, or where it was not measured."
        )
    calls = _calls(rows)
    if any(_seems_cured(row) for row in rows) and worst == "inconclusive":
        return (
            "It differs with the flag off, and no difference was seen with it on, but too little ran to say what cures it: "
            "set the flag, and scan again."
        )
    if worst == "inconclusive" and calls:
        return f"Unknown, as libraries are not simulated ({', '.join(calls)}).{_settings(libraries)} Scan on a GPU."
    reads = worst == "uninitialized" and all(
        row.row.op.startswith("torch.") and not hands_out(row.row.op) for row in rows if row.finding == worst
    )
    advice = _READS if reads else FINDING[worst].advice
    if worst == "silent" and all(row.row.source == "own" for row in rows):
        advice = _OF_OWN
    if worst == "fixed_by_mode" and (
        both := _named(row for row in rows if row.finding == worst and row.unfilled.differing)
    ):
        advice += f" Leave torch.utils.deterministic.fill_uninitialized_memory on: {both} needs both."
    fixed = _named(row for row in rows if row.finding in CURED)
    raising = _named(row for row in rows if row.on.verdict == "raises")
    if worst in RAISING and fixed:
        return f"{advice} Cases that raise: {raising}. The flag fixes: {fixed}."
    if worst in CURED and raising:
        return f"{advice} Cases that raise with it: {raising}."
    return advice


def _seems_cured(row: MatrixRow) -> bool:
    return (row.finding, row.off.verdict, row.on.verdict) == (
        "inconclusive",
        "nondeterministic",
        "deterministic",
    )


def _calls(rows: Iterable[MatrixRow]) -> list[str]:
    """Return the libraries that rows on a simulated GPU call, which are not executed."""
    known = (cell.simulated for row in rows for cell in (row.off, row.on) if cell.simulated)
    return list(dict.fromkeys(call for it in known for call in (*it.libraries, *it.products)))


def _settings(libraries: Sequence[View]) -> str:
    """Say what libraries of CUDA document not to guarantee, and the settings that change it."""
    told = grouped(
        ((one["library"], entry["setting"]), entry["area"])
        for one in libraries
        for entry in one["entries"]
        if one["device"] == "cuda" and entry["setting"] and entry["promise"] == "not_guaranteed"
    )
    return "".join(
        f" {library} documents no guarantee for {' and '.join(areas)}. What helps: {setting}."
        for (library, setting), areas in told.items()
    )


def _documented_advice(libraries: Sequence[View]) -> Iterator[str]:
    """Yield what to do with an op that no run has a row of: what libraries of CUDA that it calls document."""
    for one in libraries:
        if one["device"] == "cuda":
            told = _settings([one]) or "".join(
                f" {one['library']} documents {entry['promise']} for {entry['area']}."
                for entry in one["entries"]
            )
            where = f", {one['condition']}" if one["condition"] else ""
            yield f"Unknown here: no run has it. Documented{where}:{told}"


def _named(rows: Iterable[MatrixRow]) -> str:
    """Return the names of cases, each once."""
    return ", ".join(dict.fromkeys(row.row.case for row in rows))


def span(some: Sequence[str], releases: Sequence[str]) -> str:
    """Return releases in words, those that follow one another as a span: "2.0-2.8, 2.10"."""
    known = {release: place for place, release in enumerate(releases)}
    parts = []
    for _, group in groupby(enumerate(sorted(known[one] for one in some)), lambda pair: pair[1] - pair[0]):
        places = [place for _, place in group]
        # Two numbers tell a release from the next.
        ends = [".".join(releases[place].split(".")[:2]) for place in (places[0], places[-1])]
        parts.append("-".join(dict.fromkeys(ends)))
    return ", ".join(parts)


def _documented(lists: Lists) -> Iterator[View]:
    """Yield each bullet once, with the releases that have it."""
    found: dict[tuple[str, str, str], dict[str, None]] = {}
    for release, claims in lists.items():
        for claim in claims:
            bullet = (SECTION_WORDS[claim.section], claim.device, bullet_words(claim))
            found.setdefault(bullet, {})[release] = None
    for (section, device, text), some in found.items():
        fields = {"list": section, "device": device, "text": text, "releases": [*some]}
        yield View(fields, span=span([*some], [*lists]))


def _measured(matrices: Sequence[Matrix]) -> Iterator[View]:
    """Yield what runs measured, then what was simulated, the latest release first; runs of the same findings are told by the latest."""
    together: dict[object, list[Matrix]] = {}
    # Of one release those that are complete go before the others.
    for one in sorted(
        matrices,
        key=lambda it: (not it.simulated, torch_versions.key(it.torch), not it.missing),
        reverse=True,
    ):
        if one.rows:
            columns = all_columns([one])
            findings = frozenset(
                (it.row.id, it.finding, *((column.name, column.finding(it)) for column in columns))
                for it in one.rows
            )
            # Other inputs, and what a scan that was cut short left out, are told of each.
            asked = (one.kind, one.run.header.settings.as_simulated, one.missing)
            together.setdefault((asked, findings), []).append(one)
    for one, *same in together.values():
        rows, further = one.rows, {column.name: _words(column, one.rows) for column in all_columns([one])}
        environment, settings = one.run.header.environment, one.run.header.settings
        machines = (machine_of_row(one.run.header, it.row) for it in rows)
        counts = {cell.runs for row in rows for cell in (row.off, row.on) if cell.compared}
        directions = grouped(
            (direction, _finding(finding, some))
            for direction, finding in product(("forward", "backward"), WORST_FIRST)
            if (some := [it for it in rows if (it.row.direction, it.finding) == (direction, finding)])
        )
        yield View(
            {
                "run": one.run.path,
                "torch": environment.torch,
                "device": settings.device,
                "machine": named_machines(machines),
                "executions": one.executions,
                "distrust": list(one.distrust),
                "same": [it.torch for it in same],
                "cases": directions,
                **({"further": further} if further else {}),
            },
            head="CUDA, SIMULATED" if one.simulated else f"MEASURED on {label_of(settings.device)}",
            where=label_of(settings.device),
            # The release of each, with the architecture of a simulated GPU: there may be several of one release.
            same_words=", ".join(
                f"{it.torch} ({of.architecture})" if (of := it.run.header.environment.simulated) else it.torch
                for it in same
            ),
            n_words=f"up to {one.executions} schedules per mode; not measured on a GPU"
            if one.simulated
            else f"n = {span_of(sorted(counts))} per mode{'; incomplete' if one.missing else ''}"
            if counts
            else "",
            further_words=further,
        )


def _finding(finding: Finding, rows: Sequence[MatrixRow]) -> View:
    """Return what rows of one finding show; the row that shows it most stands for them."""
    row = max(rows, key=_differing)
    cases = grouped(
        (one.row.case if ":" not in one.row.spec else f"{one.row.spec}:{one.row.case}", one.row.dtype)
        for one in rows
    )
    # Where nothing could race, no number of executions bounds anything.
    raced = [one for one in rows if not one.serial]
    bounds = [bound for one in raced for bound in (one.off.bound, one.on.bound) if bound]
    doubts = {
        "serial": sum(bool(one.serial) for one in rows),
        "with threads not counted": sum(one.serial is None for one in rows),
        "low power": sum(one.weak is not None for one in rows),
        UNLIKE_REFERENCE: sum(bool(one.unlike_reference) for one in rows),
        **{word.phrase: sum(name in one.beside for one in rows) for name, word in BESIDE.items()},
    }
    differ = any(cell.verdict not in COMPARED or cell.differing for cell in (row.off, row.on))
    said: dict[str, Any] = {
        "finding": finding,
        "rows": [one.row.id for one in rows],
        "cases": {name: list(dict.fromkeys(dtypes)) for name, dtypes in cases.items()},
        "shown": row.row.id,
        "off": row.off.words,
        "on": row.on_words,
        "bound": max(bounds) if bounds else None,
        "doubts": {name: count for name, count in doubts.items() if count},
        "reasons": list(dict.fromkeys(one.reason for one in rows if one.reason)),
    }
    if rests := [*(f"one pair that shows it, {text}" for text in row.witnesses), *proof_words(rows)]:
        said["rests_on"] = rests
    # The dtypes are said once where they are the same for all.
    kinds = {name: f" ({', '.join(dtypes)})" for name, dtypes in said["cases"].items()}
    words = ", ".join(name + kind for name, kind in kinds.items())
    if len({*kinds.values()}) == 1:
        words = ", ".join(kinds) + next(iter(kinds.values()))
    bound = percent(max(bounds)) if bounds else None
    return View(said, differ=differ, bound_words=bound, cases_words=words)


def _commands(name: str, by_op: View, cells: Sequence[View], matrices: Sequence[Matrix]) -> list[str]:
    """Return the commands that show it: a script for the worst row, and for a column that finds worse; or the scan that measures it."""
    if not by_op.ops:
        # A collective needs several processes, which no scan has.
        return [] if name.startswith("torch.distributed.") else [shlex.join(["detmatrix", "scan", name])]
    op, shown = by_op.ops[0], list[tuple[list[RunRow], list[str]]]()
    if op.finding != "deterministic":
        shown.append(([it for it in op.rows if it[1].finding == op.finding], []))
    if found := outranking(op.finding, by_op.further, cells):
        column, cell = found
        rows = [one for op in by_op.ops for one in op.rows if column.finding(one[1]) == cell.finding]
        shown.append((rows, ["--invariance", column.name] if isinstance(column, PropertyColumn) else []))
    return list(dict.fromkeys(_command(rows, options, matrices) for rows, options in shown))


def _command(rows: Sequence[RunRow], options: Sequence[str], matrices: Sequence[Matrix]) -> str:
    """Return the command for the row that differs most of those of the latest release."""
    latest = max((run for run, _ in rows), key=lambda run: torch_versions.key(matrices[run].torch))
    row = max((row for run, row in rows if run == latest), key=_differing)
    own = ["--specs", "FILE.py"] if row.row.source == "own" else []
    if all(cell.verdict == "not_run" for cell in (row.off, row.on)):
        return shlex.join(["detmatrix", "scan", row.row.spec, *own, "--device", "cuda"])
    command = ["detmatrix", "repro", matrices[latest].run.path, row.row.id, *options, *own]
    # Without a GPU the schedule is replayed; without --replay a script needs one.
    python = ["--replay", "--python", "PYTHON_WITH_TORCH_FOR_CUDA"] if matrices[latest].simulated else []
    return shlex.join([*command, *python])


def _differing(row: MatrixRow) -> tuple[int, int]:
    """Return how often a row differed, with the flag on before off."""
    return row.on.differing, row.off.differing


def _words(column: Column, rows: Sequence[MatrixRow]) -> str:
    about = [(row, column.said(row)) for row in rows if column.why_not(row.row) is None]
    if not about:
        return f"{NOTHING}, {column.why_not(rows[0].row)}"
    order = [*column.findings, None]
    found = grouped((said, row) for row, said in sorted(about, key=lambda pair: order.index(pair[1].finding)))
    texts = []
    # A case of which not all rows show the same is named with direction and dtype.
    shared = Counter(case for some in found.values() for case in {one.row.case for one in some})
    for said, some in found.items():
        # Of what a column says nothing of, the reason tells which rows that is.
        names = (
            f"{row.case} {row.direction} {row.dtype}" if shared[row.case] > 1 else row.case
            for row in (one.row for one in some)
        )
        where = ", ".join(dict.fromkeys(names)) if said.finding else several(len(some), "row")
        texts.append(f"{said.text}: {where}" + (f" ({said.reason})" if said.reason else ""))
    return "; ".join(texts)


def further_advice(columns: Sequence[Column], cells: Sequence[View]) -> list[str]:
    """Return sentences on what further columns show of an op, first what needs attention."""
    told: dict[str, list[str]] = {}
    for column, cell in sorted(zip(columns, cells, strict=True), key=lambda pair: not pair[1].notable):
        if cell.finding is not None:
            part = "" if cell.rows == cell.of else f" (in {cell.rows} of {cell.of} rows)"
            told.setdefault(f"{COLUMN_WORDS[cell.finding].phrase}{part}", []).append(column.where)
    if not told:
        return []
    text = "; ".join(f"{_listed(places)} {phrase}" for phrase, places in told.items())
    found = {column.name: cell.finding for column, cell in zip(columns, cells, strict=True)}
    advice = [f"{text[0].upper()}{text[1:]}."]
    # What to do under torch.compile, where the flag is seen to help compiled code.
    if found.get("compile_on") in {"as_off", "fixed_by_mode", "mode_dependent"}:
        if found.get("compile_on_cached") == "silent":
            advice.append(_CACHED_ADVICE)
        elif found.get("compile_off") in {"differs", "also_differs"}:
            advice.append("With torch.compile, set the flag.")
    return advice


def _listed(places: Sequence[str]) -> str:
    """Return "under a, b and c" of "under a", "under b" and "under c"."""
    first, *others = (place.partition(" ") for place in places)
    *names, last = [first[2], *(other[2] for other in others)]
    return f"{first[0]} {', '.join(names)} and {last}" if names else f"{first[0]} {last}"


RENDERERS: dict[str, Callable[[View], Iterable[str]]] = {
    "text": lambda view: text_pieces("explain", view),
    "md": lambda view: markdown_pieces("explain", view),
    "html": lambda view: page_pieces("explain", report=view, up=""),
    "json": lambda view: [json_of(view), "\n"],
}


# --- The command


@click.command()
@click.argument("op", metavar="OP", shell_complete=complete_op)
@click.argument("runs", metavar="[RUN]...", nargs=-1)
@click.option(
    "--recorded",
    "from_recorded",
    is_flag=True,
    help="Read the runs that are recorded with detmatrix, in place of RUN.",
)
@writes(RENDERERS, "Text for a terminal, Markdown, a web page, or JSON.", default="text")
def explain(op: str, runs: tuple[str, ...], from_recorded: bool, to: Place) -> int:
    """Say all that is known of one op: documented, measured, simulated, why, what to do, what it costs.

    OP is a name as you type it: conv2d, torch.nn.functional.conv2d, nn.Conv2d, Dropout. RUN is a file that scan wrote; by
    default detmatrix.jsonl, or without one the runs that are recorded with detmatrix, which the text names.
    """
    if runs and from_recorded:
        raise UsageError("--recorded names runs, and so does RUN; give one of them")
    own = (str(DEFAULT_RUN),) if DEFAULT_RUN.exists() and not from_recorded else ()
    view, paths = view_of(op, runs or own)
    return to.write(view, paths)


def view_of(op: str, paths: tuple[str, ...]) -> tuple[View, tuple[str, ...]]:
    """Return what is known of one op, and the run files it is from: those named, or without any the recorded ones."""
    lists = lists_by_release()
    given = [read_run(path) for path in paths]
    known = known_op(op, given, lists)
    matrices = narrowed(given, known.is_about) if paths else _recorded(known)
    spelled = narrowed(given, lambda row: row.source == "instead")
    view = explained(known, lists, matrices, spelled, own=bool(paths))
    return view, tuple(one.run.path for one in matrices)


def _recorded(known: KnownOp) -> list[Matrix]:
    """Return the recorded runs of the documented ops, and those of all ops where the CPU has no row in them."""
    whole = recorded(what="cpu-all")
    matrices = narrowed([read_run(path) for path in recorded() if path not in whole], known.is_about)
    # Rows that a run which was cut short did not come to tell nothing.
    matrices = [replace(one, rows=tuple(row for row in one.rows if row.observations)) for one in matrices]
    found = [one for one in matrices if one.rows]
    if not any(one.kind == "cpu" for one in found):
        others = narrowed([read_run(path) for path in whole], known.is_about)
        matrices = [*(matrices if found else []), *others]
    return matrices if any(one.rows for one in matrices) else []


# --- What may be written instead of an op: the code of each spelling, and what runs of it showed


def instead_of(specs: Collection[str], runs: Sequence[Matrix] = ()) -> list[View]:
    """Return what may be written instead of the op of these specs; runs of spellings stand for the recorded ones of their kinds."""
    found = []
    for spec, code in spellings_of(specs):
        seen = [*_seen(spec.name, runs)]
        covered = {claimed_kind(run["device"]) for run in seen}
        seen += (
            run for run in _seen(spec.name, recorded_runs()) if claimed_kind(run["device"]) not in covered
        )
        found.append(
            View(
                {"code": code.lines, "note": code.note, "cases": list(spec.cases), "runs": seen},
                words=[*_told(seen), *(run.words for run in seen)] or ["It was not run."],
            )
        )
    return found


def recorded_runs() -> list[Matrix]:
    """Return the recorded runs of spellings."""
    return _spelled(tuple(recorded(of="instead")))


@cache
def _spelled(paths: tuple[str, ...]) -> list[Matrix]:
    return narrowed([read_run(path) for path in paths], lambda row: row.source == "instead")


def _told(seen: Sequence[View]) -> Iterator[str]:
    """Say in which cases a spelling was executed, and whether it is for CUDA alone."""
    cases = dict.fromkeys(case for run in seen for case in run["cases"])
    if cases:
        yield f"executed in the cases {', '.join(cases)}"
    on_cpu = [run["finding"] for run in seen if run["device"] == "cpu"]
    if len(on_cpu) < len(seen) and any(finding != "deterministic" for finding in on_cpu):
        yield "for CUDA: on the CPU it differs"


def _seen(spec: str, runs: Sequence[Matrix]) -> Iterator[View]:
    """Yield what each run showed of a spelling."""
    for one in runs:
        rows = [row for row in one.rows if row.row.spec == spec]
        if not rows:
            continue
        finding = min((it.finding for it in rows), key=WORST_FIRST.index)
        # How far the rows are from the op.
        seen = [it.instead for row in rows for it in row.observations if it.instead is not None]
        wrong = next((it.words for it in seen if not it.agrees), None if seen else "not compared with the op")
        largest = max((it.largest for it in seen if it.largest is not None), default=None)
        values = wrong or f"the op's values{f' to within {largest:.1e} of the largest' if largest else ''}"
        # What a row takes of the op's time with the flag off, and its case.
        timed = ((row.cost, row.row.case) for row in rows if row.cost)
        taken = [
            (it.off.median / it.op.median, case) for it, case in timed if it.off and it.op and it.op.median
        ]
        cost, slowest = ([min(taken)[0], max(taken)[0]], max(taken)[1]) if taken else ([], None)
        head = one.device if one.simulated else f"{label_of(one.run.header.settings.device)}, measured"
        ratios = " to ".join(dict.fromkeys(map(times, cost)))
        took = [f"takes {ratios} ({slowest}) the op's time with the flag off"] if cost else []
        told = [f"{finding} in {several(len(rows), 'row')}", values, *took, *proof_words(rows)]
        yield View(
            {
                "run": one.run.path,
                "torch": one.torch,
                "device": one.run.header.settings.device,
                "finding": finding,
                "rows": [row.row.id for row in rows],
                "cases": list(dict.fromkeys(row.row.case for row in rows)),
                "agrees": wrong is None,
                "largest": largest,
                "values": values,
                "cost": cost,
                "slowest": slowest,
            },
            words=f"{head}, torch {one.torch}: {'; '.join(told)}",
        )
