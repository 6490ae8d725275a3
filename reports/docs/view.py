"""What ``docs`` shows, in every format: its keys are the JSON, its attributes what only people read."""

from __future__ import annotations

import ast
import difflib
import math
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from detmatrix.reports.docs.evidence import Agreement, Evidence, several_rows
from detmatrix.reports.docs.judge import (
    AGREEMENT,
    AGREEMENT_MEANING,
    KIND_MEANING,
    Docs,
    JudgedClaim,
    Undocumented,
    count,
    label,
    no_evidence,
    shown_words,
    strongest,
)
from detmatrix.reports.docs.regenerate import ADDED, SIMULATED, RegeneratedLists, entries_of
from detmatrix.reports.matrix import run_words
from detmatrix.reports.matrix.model import Matrix, hands_out, input_elements
from detmatrix.reports.matrix.rows import flag_cells
from detmatrix.reports.matrix.run_words import states
from detmatrix.reports.render import (
    NONE,
    Markdown,
    View,
    bullet,
    fields_of,
    grouped,
    literal,
    markdown_pieces,
    object_pieces,
    page_pieces,
    pieces,
)
from detmatrix.scanner.claims.matching import device_kind, matches, names_of
from detmatrix.scanner.claims.tables import parse_claims
from detmatrix.scanner.errors import UsageError, one_line, safe_lines
from detmatrix.scanner.observations.records import MODES, Claim
from detmatrix.scanner.plurals import several
from detmatrix.scanner.repro.script import InputSource
from detmatrix.scanner.verdicts.vocabulary import FINDING_MEANING, VERDICT_MEANING

# What a row does to a bullet, for machines and in a count.
_EFFECTS: dict[Agreement, tuple[str, str]] = {
    "contradicted": ("contradicts", "against"),
    "confirmed": ("confirms", "for"),
    "not_triggered": ("not_triggered", "nothing seen"),
    "not_run": ("none", "no evidence"),
}


def view_of(docs: Docs) -> View:
    """Return what is shown of judged claims."""
    lists = None  # where the docstring's lines are not known
    with suppress(UsageError):
        lists = RegeneratedLists(docs)
    # Where rows ran, in words that head a column: "CPU, measured", "CUDA, simulated".
    columns = sorted({_column(one) for one in docs.rows})
    agreements = grouped((judged.claim.id, judged.label) for judged in docs.judged)
    counts = count(docs)
    return View(
        {
            "claims": [_claim(judged, docs, lists, columns) for judged in docs.judged],
            "undocumented": [_undocumented(one, lists) for one in docs.undocumented],
            "self_contradictory": [
                View(
                    {
                        "deterministic": one.id,
                        "raises": other.id,
                        "targets": [target for target in one.targets if target in other.targets],
                        "texts": [one.text, other.text],
                    },
                    sides=[(it.text, it.section, " and ".join(agreements[it.id])) for it in (one, other)],
                )
                for one, other in docs.self_contradictory
            ],
            "filled": _ids(docs.filled),
            "unread": [_undocumented(one, None) for one in docs.unread],
            "unparsed": [fields_of(claim, "id", "section", "targets", "text") for claim in docs.unparsed],
            "torch": docs.torch,
            "runs": [_run(one) for one in docs.matrices],
            "note": docs.note,
            "counts": {name: number for name, number, _ in counts},
            "agreements": AGREEMENT_MEANING,
        },
        docs,
        count_lines=counts,
        columns=columns,
        labels=[
            name for name, _, _ in counts if name.startswith(("contradicted", "confirmed", "not_triggered"))
        ],
        filled_told=_filled(docs, wanted=True),
        unwritten_told=_filled(docs, wanted=False),
        n_words=list(dict.fromkeys(map(run_words.n_words, docs.matrices))),
        kinds=KIND_MEANING,
        verdicts=VERDICT_MEANING,
        findings=FINDING_MEANING,
    )


def _filled(docs: Docs, *, wanted: bool) -> tuple[str, list[str]] | None:
    """Count and name rows of ops that are to return unwritten memory, or of PyTorch's others; ``None`` if there are none."""
    some = [
        one
        for one, op in ((it, names_of(it.row.row)[0]) for it in docs.filled)
        if hands_out(op) == wanted and (wanted or op.startswith("torch."))
    ]
    count = f"{several(len(some), 'row')} {'differs' if len(some) == 1 else 'differ'}"
    return (count, _strongest_first(some)) if some else None


def _run(one: Matrix) -> View:
    header = one.run.header
    weak = sum(one.weak.values())
    power = f", {several(weak, 'underpowered row')}" if weak else ""
    power += f", {one.serial} serial" if one.serial else ""
    power += f", serial not measured in {one.serial_unknown}" if one.serial_unknown else ""
    state = ("incomplete" if one.missing else "complete") + power
    return View(
        {
            "path": one.name,
            "torch": header.environment.torch,
            "device": header.settings.device,
            "tool": header.tool,
            **fields_of(one, "executions", "upper_bound", "planned"),
            "complete": not one.missing,
            "distrust": one.distrust,
            "low_power": one.weak,
            **fields_of(one, "serial", "serial_unknown"),
        },
        device=one.device,
        executed=run_words.executed(one),
        machine=run_words.machine_words(one),
        state="not trustworthy, no evidence" if one.distrust else state,
        states=[text for _, text in states(one)],
    )


def _column(one: Evidence) -> str:
    return f"{one.device.upper()}, {'simulated' if one.simulated else 'measured'}"


def _shown(evidence: Sequence[Evidence]) -> str:
    """Name the finding of the row that shows most, and what it showed with the flag off and on."""
    some = [one for one in evidence if one.behaviour]
    if why := no_evidence(evidence):
        return why
    row = strongest(some).row
    cells = dict.fromkeys(cell.counted or cell.verdict for cell in (row.off, row.on))
    return f"{row.finding}: {' → '.join(cells)}"


def _claim(judged: JudgedClaim, docs: Docs, lists: RegeneratedLists | None, columns: Sequence[str]) -> View:
    """Return a claim: the keys that are promised, then what else is known of it."""
    claim = judged.claim
    # The rows on which the agreement rests.
    deciding = [one for one in judged.evidence if one.effect == judged.agreement != "not_run"]
    # What rows show on each device, also where the bullet speaks of another one.
    found = grouped((_column(it), it) for it in docs.rows if matches(it.row.row, claim, ignore_device=True))
    ordered = sorted(judged.evidence, key=lambda one: (list(_EFFECTS).index(one.effect), one.weak))
    effects = Counter(one.weak or _EFFECTS[one.effect][1] for one in ordered)
    devices = sorted({one.device for one in deciding})
    where = f" on {' and '.join(devices)}" if claim.device == "any" and devices else ""
    return View(
        {
            **fields_of(claim, "section", "targets", "device", "direction", "conditions", "text"),
            "agreement": judged.agreement,
            "simulated": judged.simulated,
            "evidence": _ids(deciding),
            **fields_of(claim, "id", "order"),
            "reason": judged.reason,
            "devices": devices,
            "regenerated": lists.changes.get(claim.order) if lists else None,
            "rows": [_row(one) for one in judged.evidence],
        },
        # A bullet that names no device speaks of all of them, and is held against those of the runs alone.
        where=where,
        label=judged.label,
        cells=[_shown(found[name]) if name in found else NONE for name in columns],
        effects=", ".join(f"{count} {effect}" for effect, count in effects.items()),
        first=_strongest_first(deciding),
    )


def _undocumented(one: Undocumented, lists: RegeneratedLists | None) -> View:
    smallest, shown = one.smallest, strongest(one.evidence)
    return View(
        {
            **fields_of(one, "op", "device", "direction", "finding"),
            "evidence": _ids(one.evidence),
            "smallest": {"id": smallest.row.id, "elements": input_elements(smallest)},
            "named": [claim.id for claim in one.named if claim.parsed],
            "unparsed": [claim.id for claim in one.named if not claim.parsed],
            "regenerated": lists.added.get((one.op, one.device)) if lists else None,
            "rows": [_row(row) for row in one.evidence],
        },
        device=one.evidence[0].place,
        cells=[shown.row.cell(mode).words for mode in MODES],
        first=_strongest_first(one.evidence),
        shown=shown_words(shown),
        others=one.named,
    )


def _row(one: Evidence) -> dict[str, object]:
    row = one.row
    return {
        "id": row.row.id,
        "run": one.run,
        "device": row.row.device,
        "kind": device_kind(row.row.device),
        "effect": _EFFECTS[one.effect][0],
        "finding": row.finding,
        **flag_cells(row),
        "reason": one.doubt or row.reason,
        "low_power": row.weak,
        "serial": row.serial,
        "traits": row.row.traits,
    }


def _ids(evidence: Sequence[Evidence]) -> list[str]:
    return list(dict.fromkeys(one.row.row.id for one in evidence))


def _strongest_first(evidence: Sequence[Evidence]) -> list[str]:
    """Return the ids of rows, first that of the row that shows most."""
    return _ids([strongest(evidence), *evidence]) if evidence else []


def render_diff(docs: Docs) -> Iterator[str]:
    """Yield a unified diff from the documented lists to the regenerated ones; nothing if they agree."""
    lists = RegeneratedLists(docs)
    if lists.documented != lists.regenerated:
        yield from (f"# {one_line(text)}\n" for text in lists.notes if SIMULATED in text)
    yield from difflib.unified_diff(
        safe_lines(lists.documented).splitlines(keepends=True),
        safe_lines(lists.regenerated).splitlines(keepends=True),
        fromfile=f"torch {docs.torch}, documented",
        tofile=f"torch {docs.torch}, {docs.seen}",
    )
    for (op, device), text in lists.added.items():
        if SIMULATED not in text and ("; " in text or not text.startswith(ADDED)):  # else it stands above
            yield f"# {one_line(f'undocumented: {op} on {device}: {text}')}\n"


def render_rst(docs: Docs) -> Iterator[str]:
    """Yield the two lists in the docstring's own form, below a comment that says which bullets rest on simulation alone."""
    lists = RegeneratedLists(docs)
    told = f"{several(len(lists.simulated), 'changed or added bullet')}: {', '.join(lists.simulated)}"
    yield f"    .. On simulation alone, not measured on a GPU: {one_line(told)}\n\n" * bool(lists.simulated)
    yield safe_lines(lists.regenerated)


def drift_lines(docs: Docs) -> Iterator[str]:
    """Yield a line for all that is contradicted, undocumented, self-contradictory, not understood or not covered."""

    def judged(agreement: str) -> Iterator[str]:
        return (f"{it.label}: {it.claim.id}: {it.reason}" for it in docs.judged if it.agreement == agreement)

    def missing(one: Undocumented) -> str:
        shown = shown_words(strongest(one.evidence))
        return f"{one.op}, {one.direction} on {one.evidence[0].place}: {one.finding}: {shown}"

    yield from judged("contradicted")
    yield from (f"undocumented: {missing(one)}: {one.smallest.row.id}" for one in docs.undocumented)
    yield from (f"self_contradictory: {one.id} and {other.id}" for one, other in docs.self_contradictory)
    yield from (f"unparsed: {claim.text}" for claim in docs.unparsed)
    yield from (f"unread: {missing(one)}; an unparsed bullet names it" for one in docs.unread)
    yield from judged("not_covered")


# Each agreement, by what it was judged, with its sign and its colour: a state is told by its word, too.
_MARKS = {
    label(name, simulated=simulated): (word.sign, word.colour)
    for name, word in AGREEMENT.items()
    for simulated in (False, True)
}


def page_of(docs: Docs) -> Iterator[str]:
    """Yield the page in pieces."""
    report = view_of(docs)
    diff: list[str] = []
    with suppress(UsageError):  # older tables of the lists hold no lines of the docstring
        diff = "".join(render_diff(docs)).splitlines()
    return page_pieces(
        "docs",
        words=run_words,
        report=report,
        diff=diff,
        tiles=[one for one in report.count_lines if one[0] in _MARKS and one[1]],
        marks=_MARKS,
        parts=pieces,
        worst_first=sorted(report["claims"], key=lambda claim: list(_MARKS).index(claim.label)),
    )


RENDERERS: dict[str, Callable[[Docs], Iterable[str]]] = {
    "md": lambda docs: markdown_pieces("docs", view_of(docs)),
    "html": page_of,
    "rst": render_rst,
    "diff": render_diff,
    "json": lambda docs: chain(object_pieces(view_of(docs), "claims", "undocumented"), ["\n"]),
}


# --- What goes upstream: the docstring's changes as a patch of ``torch/__init__.py``, and a report for each op
#
# The file to change is read, never executed. Its own lists are held against the evidence, and only their bullets change;
# lines that are not understood end in an error. What stands before the patch says what it rests on; git passes over it.

PATH = "torch/__init__.py"
FUNCTION = "use_deterministic_algorithms"
_LARGEST = 16 << 20  # bytes of a file that are read; torch/__init__.py has 100 kB
MOST_LINES = 15  # of a repro
_NEAR = 1e-05  # by which any element of a right result may be off

Drawn = Callable[[Evidence], InputSource]  # says how the inputs of a row are made


class DocumentedSource(Struct, frozen=True, kw_only=True):
    """A file of Python that has the lists in a docstring."""

    path: str
    text: str
    claims: tuple[Claim, ...]


def read_source(path: str) -> DocumentedSource:
    """Read the lists out of a file of Python, executing nothing of it; refuse one that has none or cannot be read."""
    try:
        with Path(path).open("rb") as file:
            text = file.read(_LARGEST).decode()
        module = ast.parse(text)
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be read ({error.strerror}); give the {PATH} of a checkout with --source"
        ) from error
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"{path}: is no Python that can be read; give the {PATH} of a checkout") from error
    for node in module.body:
        if isinstance(node, ast.FunctionDef) and node.name == FUNCTION:
            claims = parse_claims(ast.get_docstring(node, clean=False) or "")
            if all(entries_of(claims).values()):
                return DocumentedSource(path=path, text=text, claims=claims)
    raise UsageError(f"{path}: has no {FUNCTION} with both lists; give the {PATH} of a checkout")


def patch_lines(source: DocumentedSource, docs: Docs) -> list[str]:
    """Return the patch; nothing if nothing would change.

    Raises:
        UsageError: The file's lists are not laid out as expected, or hold what a terminal could take for a command.
    """
    lists = RegeneratedLists(docs)
    if lists.regenerated == lists.documented:
        return []
    # That they are found proves that the file's lines are understood.
    if source.text.count(lists.documented) != 1:
        raise UsageError(
            f"{source.path}: its lists are not laid out as PyTorch's are; give the {PATH} of a checkout"
        )
    after = source.text.replace(lists.documented, lists.regenerated)
    # What follows the last end of line is far from the lists.
    old, new = ([f"{line}\n" for line in text.split("\n")[:-1]] for text in (source.text, after))
    patch = [*difflib.unified_diff(old, new, f"a/{PATH}", f"b/{PATH}")]
    if safe_lines("".join(patch)) != "".join(patch):
        raise UsageError(f"{source.path}: its lists hold characters that cannot be shown; remove them first")
    preamble = [
        f"Changes of the lists in the docstring of torch.{FUNCTION}, by detmatrix.",
        "Apply them at the top of a checkout of PyTorch: git apply FILE",
        f"{docs.seen.capitalize()}, torch {docs.torch}: {', '.join(one.name for one in docs.matrices)}",
        *lists.notes,
    ]
    return [*(f"# {one_line(line)}\n" for line in preamble), f"diff --git a/{PATH} b/{PATH}\n", *patch]


# --- Reports for PyTorch's maintainers, one an op


def report_of(docs: Docs, asked: str, source: DocumentedSource | None, drawn: Drawn) -> View | None:
    """Return what is reported of an op; ``None`` if nothing changes a list, and nothing is silent or wrong.

    Behind a colon the op has the case that shows it, if not the smallest. Without the file that the patch changes it has the
    lines of the docstring alone, which git finds.
    """
    op, _, case = asked.partition(":")
    rows = tuple(one for one in docs.rows if op in names_of(one.row.row))
    undocumented = tuple(one for one in docs.undocumented if one.op == op)
    part = replace(docs, rows=rows, undocumented=undocumented)
    lists = RegeneratedLists(part)
    changes = lists.documented != lists.regenerated
    speaking = [judged for judged in docs.judged if judged.evidence and op in judged.claim.targets]
    told = [one for judged in speaking for one in judged.evidence if one.effect == "contradicted"]
    told += [one for it in undocumented for one in it.evidence]
    found = {
        "wrong": [one for one in rows if one.wrong],
        "silent": [one for one in rows if one.behaviour == "differs" and not one.held],
        "": [one for one in told if changes and not one.held],
    }
    kind, shown = next(((kind, some) for kind, some in found.items() if some), ("", []))
    shown = [one for one in shown if case in {"", one.row.row.case}]
    if not shown:
        return None
    # A row that provokes a difference, and of those the smallest; what raises in its forward phase is no matter of the backward one.
    best = min(
        shown,
        key=lambda one: (
            not one.row.row.provokes,
            one.row.row.direction == "backward",
            input_elements(one.row) or math.inf,
        ),
    )
    cell = best.row.on if best.behaviour == "differs" else best.row.off
    kind, cpu = kind or str(best.behaviour), best.row.on.simulated and best.row.on.simulated.cpu
    unlisted = grouped(
        (
            it.device,
            f"{it.finding} in {several_rows(it.evidence, f'{it.direction} row')} ({_column(it.evidence[0])})",
        )
        for it in undocumented
    )
    test, script = _scripts(op, kind, best, _code(drawn(best)))
    patch = patch_lines(source, part) if source else render_diff(part)
    return View(
        {},
        best,
        title=f"{op}: {best.row.row.direction} on {best.device.upper()} {_TITLES[kind]}",
        shown=f"with the flag on {cpu.words}, and with it off they are"
        if kind == "wrong" and cpu
        else shown_words(best),
        # By which it was shown: none of what host code does, whatever the order of threads.
        schedule=cell.simulated.schedule if cell.simulated else None,
        table=[
            *(
                (one.claim.text, lists.changes.get(one.claim.order, "stays"), f"{one.label}: {one.reason}")
                for one in speaking
            ),
            *(("(in no list)", text, "; ".join(unlisted[on])) for (_, on), text in lists.added.items()),
        ],
        applies=source is not None,
        patch=_fenced("diff", [line for line in patch if not line.startswith("# ")]) if changes else "",
        test=_fenced("python", test),
        repro=_fenced("python", script),
        silent=kind == "silent",
    )


_TITLES = {
    "wrong": "gives another result with deterministic algorithms on",
    "silent": "differs with deterministic algorithms on and raises no alert",
    "raises": "raises with deterministic algorithms on, and the list does not say so",
    "acts": "acts deterministically with the flag on, and the list does not say so",
    "nothing": "raises nothing with deterministic algorithms on, and the list says that it does",
}


def _fenced(language: str, code: Sequence[str]) -> Markdown:
    text = "".join(line if line.endswith("\n") else f"{line}\n" for line in code)
    return Markdown(literal(safe_lines(text.removesuffix("\n")), language, rst=False))


def pull_requests(
    docs: Docs, ops: Sequence[str], source: DocumentedSource | None, drawn: Drawn
) -> Iterator[str]:
    """Yield the reports of some ops, or of all; refuse an op of which there is nothing to report."""
    evidence = (one for judged in docs.judged for one in judged.evidence)
    drifting = (one for one in evidence if one.effect == "contradicted" and not one.held)
    found = (*drifting, *(one for one in docs.rows if one.wrong))
    known = sorted({names_of(one.row.row)[0] for one in found} | {one.op for one in docs.undocumented})
    if strange := [op for op in ops if op.partition(":")[0] not in known]:
        told = f"there is of: {', '.join(known)}" if known else "nor of any other op"
        raise UsageError(f"--op: there is nothing to report of {strange[0]}; {told}")
    views = {op: report_of(docs, op, source, drawn) for op in dict.fromkeys(ops) or known}
    for op, view in views.items():
        if view is not None:
            yield from markdown_pieces("docs_pr", view)
        elif ops:
            raise UsageError(f"--op: what was seen of {op} changes no list; detmatrix docs says why")
    added = () if ops else RegeneratedLists(docs).added.items()
    if rest := [f"* {bullet(f'{op} on {on}: {text}')}\n" for (op, on), text in added if views[op] is None]:
        yield "".join(["# Undocumented, and nothing is proposed\n\n", *rest])


def _code(source: InputSource) -> list[str]:
    """Return lines that define ``run``, which makes the inputs on a device and calls the op."""
    plain = source.args[1:-1].rstrip(",") if source.args.startswith("(") else f"*{source.args}"
    call = ast.parse(f"f({plain}, **{source.kwargs})", mode="eval").body
    assert isinstance(call, ast.Call)
    keywords = call.keywords[0].value
    if isinstance(keywords, ast.Dict) and all(isinstance(key, ast.Constant) for key in keywords.keys):
        names = [ast.literal_eval(key) for key in keywords.keys if key]
        call.keywords = [ast.keyword(*it) for it in zip(names, keywords.values, strict=True)]
    body = [f"o = {source.op}{ast.unparse(call)[1:]}", "return o if isinstance(o, tuple) else (o,)"]
    if source.upstream:
        seed, expression = source.upstream
        made = f"g = torch.Generator().manual_seed({seed})" + "; i = 0" * (" i " in expression)
        body[1:] = [
            "o = o[0] if isinstance(o, tuple) else o",
            made,
            f"return torch.autograd.grad(o, {source.leaves}, {expression})",
        ]
    text = "\n".join([*source.definitions, *source.lines, *body]).replace('"cuda"', "device")
    return [*source.imports, "def run(device):", *textwrap.indent(text, "    ").splitlines()]


def _scripts(op: str, kind: str, one: Evidence, code: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the test to add, as those in PyTorch's test/test_torch.py, and a script of at most 15 lines.

    A longer one is left to ``detmatrix repro``.
    """
    on, here = "torch.use_deterministic_algorithms(True)", f'run("{one.device}")'
    name = op.rpartition(".")[2].strip("_")
    # Nobody but PyTorch can name an alert that it does not raise.
    silent = f"{name.lower()}_{one.row.row.direction}_cuda" if kind == "silent" else None
    alert = one.row.on.alert if kind == "raises" else silent
    tests = [
        "with DeterministicGuard(True):",
        "    expected = run(device)",
        "    for _ in range(5):",
        "        self.assertEqual(run(device), expected, atol=0, rtol=0)",
    ]
    shows = [
        on,
        f"first = {here}",
        f'print(sum(not all(map(torch.equal, {here}, first)) for _ in range(100)), "of 100 differed")',
    ]
    if alert:
        tests = [f"self.check_nondeterministic_alert(lambda: run(device), '{alert}', True)"]
    if kind == "raises":
        shows = [on, f"{here}  # RuntimeError: {alert} does not have a deterministic implementation"]
    elif kind == "wrong":
        # By which share of the CPU's a right element may be off.
        relative = 0.01 if one.row.row.dtype in {"float16", "bfloat16"} else 0.001
        tests = [
            'expected = run("cpu")',
            "with DeterministicGuard(True):",
            f"    self.assertEqual(run(device), expected, rtol={relative}, atol={_NEAR})",
        ]
        shows = [
            'cpu = run("cpu")',
            on,
            f"same = [torch.isclose(a.cpu(), b, {relative}, {_NEAR}, True) for a, b in zip({here}, cpu)]",
            "off = sum((~one).sum().item() for one in same)",
            f'print(off, "elements are not the CPU\'s by more than a relative {relative}; 0 after the fix")',
        ]
    script = ["import torch", *code, *shows]
    if len(script) > MOST_LINES:
        script = [f"# detmatrix repro {one.run} {one.row.row.id}"]
    only = "@onlyCUDA" if one.device == "cuda" else "@onlyCPU"
    head = f"def test_{'nondeterministic_alert' if alert else 'deterministic'}_{name}(self, device):"
    return [only, head, *(f"    {line}" for line in (*code, *tests))], script
