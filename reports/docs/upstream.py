"""What goes upstream: the docstring's changes as a patch of ``torch/__init__.py``, and a report for each op.

The file to change is read, never executed. Its own lists are held against the evidence, and only their bullets change;
lines that are not understood end in an error. What stands before the patch says what it rests on; git passes over it.
"""

from __future__ import annotations

import ast
import difflib
import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from detmatrix.reports.docs.entries import entries_of
from detmatrix.reports.docs.evidence import Evidence
from detmatrix.reports.docs.judge import Docs, shown_words
from detmatrix.reports.docs.regenerate import regenerate
from detmatrix.reports.docs.view import render_diff
from detmatrix.reports.matrix.model import input_elements
from detmatrix.reports.render import Markdown, View, literal, markdown_pieces
from detmatrix.scanner.claims.matching import names_of
from detmatrix.scanner.claims.tables import parse_claims
from detmatrix.scanner.errors import UsageError, one_line, safe_lines
from detmatrix.scanner.observations.records import Claim
from detmatrix.scanner.plurals import several
from detmatrix.scanner.repro.script import InputSource

PATH = "torch/__init__.py"
FUNCTION = "use_deterministic_algorithms"
_LARGEST = 16 << 20  # bytes of a file; torch/__init__.py has 100 kB
MOST_LINES = 15  # of a repro
_NEAR = 1e-05  # by which any element of a right result may be off
_NO_END = "\n\\ No newline at end of file\n"


Drawn = Callable[[Evidence], InputSource]


class DocumentedSource(Struct, frozen=True, kw_only=True):
    """A file of Python that has the lists in a docstring."""

    path: str
    text: str
    claims: tuple[Claim, ...]


def read_source(path: str) -> DocumentedSource:
    """Read the lists out of a file of Python, executing nothing of it.

    Raises:
        UsageError: It cannot be read, or has no lists.
    """
    try:
        with Path(path).open("rb") as file:
            content = file.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise UsageError(f"{path}: is too large to be PyTorch's; give the {PATH} of a checkout")
        text = content.decode()
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


def lines(source: DocumentedSource, docs: Docs) -> list[str]:
    """Return the patch; nothing if nothing would change.

    Raises:
        UsageError: The file's lists are not laid out as expected, or hold what a terminal could take for a command.
    """
    lists = regenerate(docs)
    if lists.regenerated == lists.documented:
        return []
    # That they are found proves that the file's lines are understood.
    if source.text.count(lists.documented) != 1:
        raise UsageError(
            f"{source.path}: its lists are not laid out as PyTorch's are; give the {PATH} of a checkout"
        )
    after = source.text.replace(lists.documented, lists.regenerated)
    old, new = ([f"{line}\n" for line in text.split("\n")] for text in (source.text, after))
    # The last "line" is what follows the last end of line.
    for some in (old, new):
        some[-1:] = [] if some[-1] == "\n" else [some[-1].removesuffix("\n") + _NO_END]
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


def ops_of(docs: Docs) -> list[str]:
    """Return the ops of which something may be reported, in alphabetical order."""
    drifting = [
        one
        for judged in docs.judged
        for one in judged.evidence
        if one.effect == "contradicts" and not one.held
    ]
    wrong = [one for one in docs.rows if one.wrong]
    return sorted(
        {names_of(one.row.row)[0] for one in (*drifting, *wrong)} | {one.op for one in docs.undocumented}
    )


def report(docs: Docs, asked: str, source: DocumentedSource | None, drawn: Drawn) -> View | None:
    """Return what is reported of an op; ``None`` if nothing changes a list, and nothing is silent or wrong.

    Args:
        docs: What the runs say.
        asked: An op, as ``ops_of`` has it, and behind a colon the case that shows it, if not the smallest.
        source: The file that the patch changes; without it the patch has the lines of the docstring alone, which git finds.
        drawn: Says how the inputs of a row are made.
    """
    op, _, case = asked.partition(":")
    rows = tuple(one for one in docs.rows if op in names_of(one.row.row))
    undocumented = tuple(one for one in docs.undocumented if one.op == op)
    part = replace(docs, rows=rows, undocumented=undocumented)
    lists = regenerate(part)
    changes = lists.documented != lists.regenerated
    speaking = [judged for judged in docs.judged if judged.evidence and op in judged.claim.targets]
    told = [one for judged in speaking for one in judged.evidence if one.effect == "contradicts"]
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
    kind, cpu = kind or str(best.behaviour), best.row.on.simulated and best.row.on.simulated.cpu
    unlisted = ", ".join(
        f"{it.finding} in {several(len(it.evidence), f'{it.direction} row')}" for it in undocumented
    )
    code, patch = _code(drawn(best)), lines(source, part) if source else render_diff(part)
    return View(
        {},
        title=f"{op}: {best.row.row.direction} on {best.device.upper()} {_TITLES[kind]}",
        row=best.row.row,
        run=best.run,
        shown=f"with the flag on {cpu.words}, and with it off they are"
        if kind == "wrong" and cpu
        else shown_words(best),
        standing=_standing(best),
        table=[
            *(
                (one.claim.text, lists.changes.get(one.claim.order, "stays"), f"{one.label}: {one.reason}")
                for one in speaking
            ),
            *(("(in no list)", text, unlisted) for text in dict.fromkeys(lists.added.values())),
        ],
        applies=source is not None,
        patch=_fenced("diff", [line for line in patch if not line.startswith("# ")]) if changes else "",
        test=_fenced("python", _test(op, kind, best, code)),
        repro=_fenced("python", _repro(kind, best, code)),
        replays=best.simulated,
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
    """Yield the reports of some ops, or of all.

    Raises:
        UsageError: There is nothing to report of an op.
    """
    known = ops_of(docs)
    if strange := [op for op in ops if op.partition(":")[0] not in known]:
        told = f"there is of: {', '.join(known)}" if known else "nor of any other op"
        raise UsageError(f"--op: there is nothing to report of {strange[0]}; {told}")
    for op in dict.fromkeys(ops) or known:
        if (view := report(docs, op, source, drawn)) is not None:
            yield from markdown_pieces("docs_pr", view)
        elif ops:
            raise UsageError(f"--op: what was seen of {op} changes no list; detmatrix docs says why")


def _standing(one: Evidence) -> str:
    """Say how it was seen, in the words that go to a maintainer."""
    if not one.simulated:
        return f"Measured on {one.device.upper()}."
    cell = one.row.on if one.behaviour == "differs" else one.row.off
    schedule = cell.simulated and cell.simulated.schedule
    gpu = one.gpu.partition(" ")[0]
    if one.wrong:
        return f"Shown on {gpu} code in simulation, in the canonical order of threads; not observed on a GPU."
    by = f", class *{schedule.name}*" if schedule else ", by host code, whatever the order of threads"
    return f"{'CUDA permits this; s' if schedule else 'S'}hown on {gpu} code in simulation{by}; not observed on a GPU."


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


def _relative(one: Evidence) -> float:
    """Return by which share of the CPU's a right element may be off."""
    return 0.01 if one.row.row.dtype in {"float16", "bfloat16"} else 0.001


def _repro(kind: str, one: Evidence, code: Sequence[str]) -> list[str]:
    """Return a script of at most 15 lines; a longer one is left to ``detmatrix repro``."""
    on, relative = "torch.use_deterministic_algorithms(True)", _relative(one)
    run = f'run("{one.device}")'
    end = [
        on,
        f"first = {run}",
        f'print(sum(not all(map(torch.equal, {run}, first)) for _ in range(100)), "of 100 differed")',
    ]
    if kind == "raises":
        end = [on, f"{run}  # RuntimeError: {one.row.on.alert} does not have a deterministic implementation"]
    elif kind == "wrong":
        end = [
            'cpu = run("cpu")',
            on,
            f"same = [torch.isclose(a.cpu(), b, {relative}, {_NEAR}, True) for a, b in zip({run}, cpu)]",
            "off = sum((~one).sum().item() for one in same)",
            f'print(off, "elements are not the CPU\'s by more than a relative {relative}; 0 after the fix")',
        ]
    script = ["import torch", *code, *end]
    return script if len(script) <= MOST_LINES else [f"# detmatrix repro {one.run} {one.row.row.id}"]


def _test(op: str, kind: str, one: Evidence, code: Sequence[str]) -> list[str]:
    """Return the test to add, as those in PyTorch's test/test_torch.py."""
    name = op.rpartition(".")[2].strip("_")
    # Nobody but PyTorch can name an alert that it does not raise.
    silent = f"{name.lower()}_{one.row.row.direction}_cuda" if kind == "silent" else None
    alert = one.row.on.alert if kind == "raises" else silent
    end = [
        "with DeterministicGuard(True):",
        "    expected = run(device)",
        "    for _ in range(5):",
        "        self.assertEqual(run(device), expected, atol=0, rtol=0)",
    ]
    if alert:
        end = [f"self.check_nondeterministic_alert(lambda: run(device), '{alert}', True)"]
    elif kind == "wrong":
        end = [
            'expected = run("cpu")',
            "with DeterministicGuard(True):",
            f"    self.assertEqual(run(device), expected, rtol={_relative(one)}, atol={_NEAR})",
        ]
    only = "@onlyCUDA" if one.device == "cuda" else "@onlyCPU"
    what = "nondeterministic_alert" if alert else "deterministic"
    return [only, f"def test_{what}_{name}(self, device):", *(f"    {line}" for line in (*code, *end))]
