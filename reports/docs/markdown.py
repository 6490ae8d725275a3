"""The judged claims as Markdown for people."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from reports.docs.agreement import (
    AGREEMENT_MEANING,
    KIND_MEANING,
    Docs,
    JudgedClaim,
    Undocumented,
    count,
)
from reports.docs.conditions import Effect, Evidence
from reports.docs.lists import RegeneratedLists, lists_of
from reports.docs.reasons import shown_words, strongest
from reports.matrix import words
from reports.matrix.model import Matrix
from reports.render.markdown import code, plain, table
from scanner.observations.records import MODES, Claim
from scanner.verdicts.findings import FINDING_MEANING, VERDICT_MEANING

_IDS = 3  # deciding rows that a table names
_REFERENCE = re.compile(r"(?::\w+:)?(`{1,2})~?([^`]+)\1")
_EFFECTS: dict[Effect, str] = {
    "contradicts": "against",
    "confirms": "for",
    "not_triggered": "nothing seen",
    "none": "no evidence",
}


def render(docs: Docs) -> Iterator[str]:
    """Yield the table for people."""
    lists = lists_of(docs)
    yield f"# What torch {plain(docs.torch)} documents as deterministic, and what was measured\n\n"
    yield from _runs(docs)
    yield from _counts(docs)
    yield "## The documented claims\n\n"
    yield table(
        ("claim", "list", "device", "agreement", "off", "on", "evidence"),
        [_claim_cells(judged) for judged in docs.judged],
    )
    yield "\n"
    yield from _reasons(docs, lists)
    yield from _undocumented(docs, lists)
    yield from _filled(docs)
    yield from _pairs(docs)
    if docs.unparsed:
        yield "## Not understood\n\n"
        yield from (f"* {bullet(claim.text)} ({plain(claim.section)})\n" for claim in docs.unparsed)
        yield from (
            f"* An unparsed bullet names {code(one.op)}, {one.direction} on {plain(one.device)}: "
            f"{plain(one.finding)}: {plain(shown_words(strongest(one.evidence)))}: {_ids(one.evidence)}\n"
            for one in docs.unread
        )
        yield "\n"
    yield from _legend()


def _runs(docs: Docs) -> Iterator[str]:
    for one in docs.matrices:
        yield from (
            f"> [!CAUTION]\n> **{code(one.name)}: {plain(text)}**\n\n" for text in words.state_words(one)
        )
    if docs.note:
        yield f"> [!NOTE]\n> {plain(docs.note)}\n\n"
    yield table(
        ("run", "torch", "device", "machine", "rows", "n", "state"),
        [
            (
                code(one.name),
                plain(one.run.header.environment.torch),
                plain(one.run.header.settings.device),
                plain(one.run.header.environment.gpu or one.run.header.environment.cpu),
                str(one.planned),
                str(one.executions),
                _state(one),
            )
            for one in docs.matrices
        ],
    )
    yield "\n"
    yield from (f"{plain(text)}\n\n" for text in dict.fromkeys(map(words.n_words, docs.matrices)))


def _state(one: Matrix) -> str:
    if one.distrust:
        return "not trustworthy, no evidence"
    weak = sum(one.weak.values())
    power = f", {weak} {'row' if weak == 1 else 'rows'} of low power" if weak else ""
    power += f", {one.serial} serial" if one.serial else ""
    return ("complete" if one.run.closing else "incomplete") + power


def _counts(docs: Docs) -> Iterator[str]:
    yield table(
        ("what", "how many", "meaning"),
        [(plain(name), str(count), text) for name, count, text in count(docs)],
    )
    yield "\n"


def _claim_cells(judged: JudgedClaim) -> tuple[str, ...]:
    claim = judged.claim
    best = strongest(judged.deciding) if judged.deciding else None
    return (
        bullet(claim.text),
        plain(claim.section),
        claim.device,
        plain(judged.agreement),
        *(plain(words.cell_words(best.row, mode)) if best else "no evidence" for mode in MODES),
        _evidence(judged),
    )


def _evidence(judged: JudgedClaim) -> str:
    """Name the rows that decide, the strongest first, or say why there are none."""
    if not judged.deciding:
        return plain(judged.reason)
    ordered = sorted(judged.evidence, key=lambda one: (list(_EFFECTS).index(one.effect), _doubted(one)))
    effects = Counter(_doubted(one) or _EFFECTS[one.effect] for one in ordered)
    counts = ", ".join(f"{count} {effect}" for effect, count in effects.items())
    return f"{counts}: {_ids(judged.deciding)}"


def _doubted(one: Evidence) -> str:
    """Say why a row is no evidence although it ran."""
    return "of low power" if one.low_power else "serial" if one.serial else ""


def _ids(evidence: Sequence[Evidence]) -> str:
    best = strongest(evidence)
    ids = list(dict.fromkeys(one.row.row.id for one in (best, *evidence)))
    more = f" and {len(ids) - _IDS} more" if len(ids) > _IDS else ""
    return ", ".join(code(one) for one in ids[:_IDS]) + more


def _smallest(one: Undocumented) -> str:
    """Name the row that shows it with the fewest elements to look at."""
    evidence, elements = one.smallest
    return code(evidence.row.row.id) + ("" if elements is None else f", {elements} input elements")


def bullet(text: str) -> str:
    """Return a bullet's words with its roles stripped and its code kept."""
    parts = []
    end = 0
    for found in _REFERENCE.finditer(text):
        parts += [_spaced(text[end : found.start()]), code(found[2])]
        end = found.end()
    return "".join([*parts, _spaced(text[end:])]).strip()


def _spaced(text: str) -> str:
    """Return *text* escaped, with a space at either end where it had one."""
    ends = (" " if text[:1].isspace() else "", " " if text[-1:].isspace() else "")
    return plain(text).join(ends) if text.strip() else ends[0]


def _reasons(docs: Docs, lists: RegeneratedLists | None) -> Iterator[str]:
    """Tell for each claim with evidence what was seen, and what would become of its bullet."""
    for agreement in ("contradicted", "confirmed", "not_triggered"):
        some = [judged for judged in docs.judged if judged.agreement == agreement]
        if some:
            yield f"## {agreement.replace('_', ' ').capitalize()}\n\n"
        for judged in some:
            on = "" if judged.claim.device == "any" else f", {judged.claim.device}"
            yield f"* {bullet(judged.claim.text)} ({judged.claim.section}{on}): {plain(judged.reason)}\n"
            change = lists.changes.get(judged.claim.order) if lists else None
            if change and agreement == "contradicted":
                yield f"  * {plain(change)}\n"
        if some:
            yield "\n"


def _undocumented(docs: Docs, lists: RegeneratedLists | None) -> Iterator[str]:
    if not docs.undocumented:
        return
    yield "## Undocumented\n\n"
    yield table(
        ("op", "device", "direction", "finding", "off", "on", "rows", "smallest case"),
        [
            (
                code(one.op),
                plain(one.device),
                one.direction,
                plain(one.finding),
                *(plain(words.cell_words(strongest(one.evidence).row, mode)) for mode in MODES),
                str(len(one.evidence)),
                _smallest(one),
            )
            for one in docs.undocumented
        ],
    )
    yield "\n"
    for op, device in dict.fromkeys((one.op, one.device) for one in docs.undocumented):
        if lists:
            yield f"* {code(op)} on {plain(device)}: {bullet(lists.added[op, device])}\n"
        for one in docs.undocumented:
            if (one.op, one.device) == (op, device):
                yield from (f"  * {_named(claim)}\n" for claim in one.named)
    yield "\n"


def _filled(docs: Docs) -> Iterator[str]:
    if not docs.filled:
        return
    yield "## Uninitialised memory\n\n"
    yield (
        f"{len(docs.filled)} rows differ because they return memory that nobody wrote, and do not with the flag on, "
        f"which has it filled. `torch.utils.deterministic.fill_uninitialized_memory` documents that, so no bullet is "
        f"missing: {_ids(docs.filled)}\n\n"
    )


def _named(claim: Claim) -> str:
    return f"{bullet(claim.text)} ({plain(claim.section)}) speaks of other calls of it"


def _pairs(docs: Docs) -> Iterator[str]:
    if not docs.self_contradictory:
        return
    yield "## In both lists\n\n"
    agreements = {judged.claim.id: judged.agreement for judged in docs.judged}
    for pair in docs.self_contradictory:
        text = " and ".join(
            f"{bullet(one.text)} ({one.section}: {plain(agreements[one.id])})" for one in pair
        )
        yield f"* {text}\n"
    yield "\n"


def _legend() -> Iterator[str]:
    yield "## The words\n\nAgreements, one per claim:\n\n"
    yield from (f"* **{plain(name)}**: {meaning}\n" for name, meaning in AGREEMENT_MEANING.items())
    yield from (f"* **{plain(name)}**: {meaning}\n" for name, meaning in KIND_MEANING.items())
    yield "\nVerdicts, one per mode of a row; the rows shown are those that differed most:\n\n"
    yield from (f"* **{plain(name)}**: {meaning}\n" for name, meaning in VERDICT_MEANING.items())
    yield "\nFindings, one per row:\n\n"
    yield from (f"* **{plain(name)}**: {meaning}\n" for name, meaning in FINDING_MEANING.items())
    yield "\n*off* and *on* are `torch.use_deterministic_algorithms(False)` and `(True)`.\n"
