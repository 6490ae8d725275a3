"""What ``docs`` shows, in every format: its keys are the JSON, its attributes what only people read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from reports.docs.agreement import AGREEMENT_MEANING, KIND_MEANING, Docs, JudgedClaim, Undocumented, count
from reports.docs.conditions import Effect, Evidence
from reports.docs.lists import RegeneratedLists, lists_of
from reports.docs.reasons import shown_words, strongest
from reports.matrix import words
from reports.matrix.cells import cell_view
from reports.matrix.listed import hands_out
from reports.matrix.model import Matrix
from reports.render.json import View, fields_of
from scanner.claims.matching import device_kind, names_of
from scanner.observations.parts import parts_of
from scanner.observations.records import MODES
from scanner.plurals import several
from scanner.verdicts.cells import VERDICT_MEANING
from scanner.verdicts.findings import FINDING_MEANING

_CELL = ("verdict", "runs", "differing", "upper_bound", "alert", "reason")
_EFFECTS: dict[Effect, str] = {
    "contradicts": "against",
    "confirms": "for",
    "not_triggered": "nothing seen",
    "none": "no evidence",
}


def view_of(docs: Docs) -> View:
    """Return what is shown of judged claims."""
    lists = lists_of(docs)
    agreements = {judged.claim.id: judged.agreement for judged in docs.judged}
    counts = count(docs)
    return View(
        {
            "claims": [_claim(judged, lists) for judged in docs.judged],
            "undocumented": [_undocumented(one, lists) for one in docs.undocumented],
            "self_contradictory": [
                View(
                    {
                        "deterministic": one.id,
                        "raises": other.id,
                        "targets": [target for target in one.targets if target in other.targets],
                        "texts": [one.text, other.text],
                    },
                    sides=[(it.text, it.section, agreements[it.id]) for it in (one, other)],
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
    names = [(one, names_of(one.row.row)[0]) for one in docs.filled]
    some = [
        one
        for one, op in names
        if (hands_out(op) if wanted else op.startswith("torch.") and not hands_out(op))
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
            "executions": one.executions,
            "upper_bound": one.upper_bound,
            "planned": one.planned,
            "complete": not one.missing,
            "distrust": one.distrust,
            "low_power": one.weak,
            "serial": one.serial,
            "serial_unknown": one.serial_unknown,
        },
        device=one.device,
        n=f"up to {one.executions} schedules" if one.simulated else f"n = {one.executions} executions",
        machine=words.machine_words(one)
        if one.simulated
        else words.named_machines(part.environment.gpu or part.environment.cpu for part in parts_of(header)),
        state="not trustworthy, no evidence" if one.distrust else state,
        states=words.state_words(one),
    )


def _doubted(one: Evidence) -> str:
    """Say why a row is no evidence although it ran."""
    return "underpowered" if one.low_power else "serial" if one.serial else ""


def _claim(judged: JudgedClaim, lists: RegeneratedLists | None) -> View:
    """Return a claim: the keys that are promised, then what else is known of it."""
    claim, deciding = judged.claim, judged.deciding
    ordered = sorted(judged.evidence, key=lambda one: (list(_EFFECTS).index(one.effect), _doubted(one)))
    effects = Counter(_doubted(one) or _EFFECTS[one.effect] for one in ordered)
    devices = sorted({one.device for one in deciding})
    places = sorted({one.place for one in deciding})
    where = f" on {' and '.join(places)}" if claim.device == "any" and places else ""
    return View(
        {
            **fields_of(claim, "section", "targets", "device", "direction", "conditions", "text"),
            "agreement": judged.agreement,
            "evidence": _ids(deciding),
            **fields_of(claim, "id", "order"),
            "reason": judged.reason,
            "devices": devices,
            "regenerated": lists.changes.get(claim.order) if lists else None,
            "rows": [_row(one) for one in judged.evidence],
        },
        # A bullet that names no device speaks of all of them, and is held against those of the runs alone.
        where=where or " in simulation" * any(one.simulated for one in deciding),
        cells=_cells(deciding) if deciding else ["no evidence" for _ in MODES],
        effects=", ".join(f"{count} {effect}" for effect, count in effects.items()),
        first=_strongest_first(deciding),
    )


def _undocumented(one: Undocumented, lists: RegeneratedLists | None) -> View:
    smallest, elements = one.smallest
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
        cells=_cells(one.evidence),
        first=_strongest_first(one.evidence),
        shown=shown_words(strongest(one.evidence)),
        others=one.named,
    )


def _row(one: Evidence) -> dict[str, object]:
    row = one.row
    cells: dict[str, object] = {mode: fields_of(cell_view(row, mode), *_CELL) for mode in MODES}
    return {
        "id": row.row.id,
        "run": one.run,
        "device": row.row.device,
        "kind": device_kind(row.row.device),
        "effect": one.effect,
        "finding": row.finding,
        **cells,
        "reason": one.doubt or row.reason,
        "low_power": row.weak,
        "serial": row.serial,
        "traits": row.row.traits,
    }


def _cells(evidence: Sequence[Evidence]) -> list[str]:
    """Return both cells of the row that shows most."""
    return [words.cell_words(strongest(evidence).row, mode) for mode in MODES]


def _ids(evidence: Sequence[Evidence]) -> list[str]:
    return list(dict.fromkeys(one.row.row.id for one in evidence))


def _strongest_first(evidence: Sequence[Evidence]) -> list[str]:
    """Return the ids of rows, first that of the row that shows most."""
    return _ids([strongest(evidence), *evidence]) if evidence else []
