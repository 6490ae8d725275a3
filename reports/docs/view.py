"""What ``docs`` shows, in every format: its keys are the JSON, its attributes what only people read."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain

from detmatrix.reports.docs.evidence import Effect, Evidence
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
from detmatrix.reports.docs.regenerate import SIMULATED, RegeneratedLists, regenerate
from detmatrix.reports.matrix import words
from detmatrix.reports.matrix.model import Matrix, hands_out
from detmatrix.reports.matrix.rows import flag_cells
from detmatrix.reports.matrix.words import states
from detmatrix.reports.render import (
    NONE,
    View,
    fields_of,
    markdown_pieces,
    object_pieces,
    page_pieces,
    pieces,
)
from detmatrix.scanner.claims.matching import device_kind, matches, names_of
from detmatrix.scanner.errors import UsageError, one_line, safe_lines
from detmatrix.scanner.observations.parts import parts_of
from detmatrix.scanner.observations.records import MODES
from detmatrix.scanner.plurals import several
from detmatrix.scanner.verdicts.vocabulary import FINDING_MEANING, VERDICT_MEANING

_EFFECTS: dict[Effect, str] = {
    "contradicts": "against",
    "confirms": "for",
    "not_triggered": "nothing seen",
    "none": "no evidence",
}


def view_of(docs: Docs) -> View:
    """Return what is shown of judged claims."""
    lists = None  # where the docstring's lines are not known
    with suppress(UsageError):
        lists = regenerate(docs)
    # Where rows ran, in words that head a column: "CPU, measured", "CUDA, simulated".
    columns = sorted({_column(one) for one in docs.rows})
    agreements: dict[str, list[str]] = {}
    for judged in docs.judged:
        agreements.setdefault(judged.claim.id, []).append(judged.label)
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
        count_lines=counts,
        columns=columns,
        labels=[
            name for name, _, _ in counts if name.startswith(("contradicted", "confirmed", "not_triggered"))
        ],
        seen=docs.seen,
        filled_told=_filled(docs, wanted=True),
        unwritten_told=_filled(docs, wanted=False),
        n_words=list(dict.fromkeys(map(words.n_words, docs.matrices))),
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
        n=f"up to {one.executions} schedules" if one.simulated else f"n = {one.executions} executions",
        machine=words.machine_words(one)
        if one.simulated
        else words.named_machines(part.environment.gpu or part.environment.cpu for part in parts_of(header)),
        state="not trustworthy, no evidence" if one.distrust else state,
        states=[text for _, text in states(one)],
    )


def _column(one: Evidence) -> str:
    return f"{one.device.upper()}, {'simulated' if one.simulated else 'measured'}"


def _shown(evidence: Sequence[Evidence]) -> str:
    """Name the finding of the row that shows most, and what it showed with the flag off and on."""
    some = [one for one in evidence if one.behaviour]
    if not some:
        return no_evidence(evidence)
    row = strongest(some).row
    cells = dict.fromkeys(cell.counted or cell.verdict for cell in (row.off, row.on))
    return f"{row.finding}: {' → '.join(cells)}"


def _claim(judged: JudgedClaim, docs: Docs, lists: RegeneratedLists | None, columns: Sequence[str]) -> View:
    """Return a claim: the keys that are promised, then what else is known of it."""
    claim, deciding = judged.claim, judged.deciding
    # What rows show on each device, also where the bullet speaks of another one.
    found: dict[str, list[Evidence]] = {}
    for one in docs.rows:
        if matches(one.row.row, claim, ignore_device=True):
            found.setdefault(_column(one), []).append(one)
    ordered = sorted(judged.evidence, key=lambda one: (list(_EFFECTS).index(one.effect), one.weak))
    effects = Counter(one.weak or _EFFECTS[one.effect] for one in ordered)
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
    (smallest, elements), shown = one.smallest, strongest(one.evidence)
    return View(
        {
            **fields_of(one, "op", "device", "direction", "finding"),
            "evidence": _ids(one.evidence),
            "smallest": {"id": smallest.row.row.id, "elements": elements},
            "named": [claim.id for claim in one.named if claim.parsed],
            "unparsed": [claim.id for claim in one.named if not claim.parsed],
            "regenerated": lists.added.get((one.op, one.device)) if lists else None,
            "rows": [_row(row) for row in one.evidence],
        },
        device=one.place,
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
        "effect": one.effect,
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


def render_rst(docs: Docs) -> Iterator[str]:
    """Yield the two lists in the docstring's own form.

    Raises:
        UsageError: The claims do not hold the docstring's lines.
    """
    yield safe_lines(regenerate(docs).regenerated)


def render_diff(docs: Docs) -> Iterator[str]:
    """Yield a unified diff from the documented lists to the regenerated ones; nothing if they agree.

    Raises:
        UsageError: The claims do not hold the docstring's lines.
    """
    lists = regenerate(docs)
    if lists.documented != lists.regenerated:
        yield from (f"# {one_line(text)}\n" for text in lists.notes if SIMULATED in text)
    yield from difflib.unified_diff(
        safe_lines(lists.documented).splitlines(keepends=True),
        safe_lines(lists.regenerated).splitlines(keepends=True),
        fromfile=f"torch {docs.torch}, documented",
        tofile=f"torch {docs.torch}, {docs.seen}",
    )


def state_lines(docs: Docs) -> Iterator[str]:
    """Yield what a reader must know of the runs before believing any of it."""
    for one in docs.matrices:
        yield from (f"{state}: {one.name}: {text}" for state, text in states(one))


def drift_lines(docs: Docs) -> Iterator[str]:
    """Yield a line for all that is contradicted, undocumented, self-contradictory, not understood or not covered."""

    def judged(agreement: str) -> Iterator[str]:
        return (f"{it.label}: {it.claim.id}: {it.reason}" for it in docs.judged if it.agreement == agreement)

    def missing(one: Undocumented) -> str:
        shown = shown_words(strongest(one.evidence))
        return f"{one.op}, {one.direction} on {one.place}: {one.finding}: {shown}"

    yield from judged("contradicted")
    yield from (f"undocumented: {missing(one)}: {one.smallest[0].row.row.id}" for one in docs.undocumented)
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
        words,
        report=report,
        page=View(
            {},
            torch=docs.torch,
            matrices=docs.matrices,
            diff=diff,
            tiles=[one for one in report.count_lines if one[0] in _MARKS and one[1]],
            marks=_MARKS,
            claims=len(report["claims"]),
            parts=pieces,
            worst_first=lambda claims: sorted(claims, key=lambda claim: list(_MARKS).index(claim.label)),
        ),
    )


RENDERERS: dict[str, Callable[[Docs], Iterator[str]]] = {
    "md": lambda docs: markdown_pieces("docs", view_of(docs)),
    "html": page_of,
    "rst": render_rst,
    "diff": render_diff,
    "json": lambda docs: chain(object_pieces(view_of(docs), "claims", "undocumented"), ["\n"]),
}
