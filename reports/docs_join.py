"""Claims joined with the rows of several runs: agreement, and what the lists do not say.

Pure functions of run files. A row of a run that cannot be trusted, and a row without a finding, are shown but are
no evidence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from msgspec import Struct

from reports.docs_split import Effect, Showing, Split, effect_of, showing_of, splits
from reports.matrix import Matrix
from reports.words import counted
from scanner.claims import contradictions, documented_claims
from scanner.coverage import device_kind, is_vague, names_of, speaks
from scanner.errors import UsageError
from scanner.records import Claim
from scanner.verdicts import Finding, MatrixRow

Agreement = Literal["contradicted", "confirmed", "not_triggered", "not_run", "not_covered"]

# One sentence each, printed with every table. The order is that of the counts.
AGREEMENT_MEANING: dict[Agreement, str] = {
    "contradicted": "At least one row shows otherwise; where other rows agree, the bullet says too much.",
    "confirmed": "The rows show what the bullet says, and none shows otherwise.",
    "not_triggered": "Documented as normally nondeterministic, but 0 of n executions differed in either mode; this "
    "neither confirms nor contradicts.",
    "not_run": "No row gave evidence, and the reason is given.",
    "not_covered": "No row of these runs speaks to the bullet, on any device.",
}
KIND_MEANING = {
    "undocumented": "Measured groups of rows that raise or differ, and that no claim is about.",
    "self_contradictory": "Pairs of claims that put one call of an op into both lists.",
    "unparsed": "Bullets that were not understood; no row is held against them.",
}
UNDOCUMENTED: tuple[Finding, ...] = ("silent", "raises", "over_alert", "fixed_by_mode")

_REASONS = 3  # that are told of rows without evidence


class Evidence(Struct, frozen=True, kw_only=True):
    """One row of one run, and what it does to a claim."""

    run: str  # the run's name
    row: MatrixRow
    showing: Showing | None  # None: it is no evidence
    doubt: str | None  # why it is none, if not for its finding
    effect: Effect = "none"

    @property
    def device(self) -> str:
        """The kind of device it was run on."""
        return device_kind(self.row.row.device)


class Judged(Struct, frozen=True, kw_only=True):
    """A claim, and what the runs say of it."""

    claim: Claim
    agreement: Agreement
    reason: str
    evidence: tuple[Evidence, ...]  # all rows that speak to it, in the order of the runs

    @property
    def deciding(self) -> tuple[Evidence, ...]:
        """The rows on which the agreement rests."""
        effects: dict[Agreement, Effect] = {
            "contradicted": "contradicts",
            "confirmed": "confirms",
            "not_triggered": "not_triggered",
        }
        effect = effects.get(self.agreement)
        return tuple(one for one in self.evidence if effect and one.effect == effect)


class Undocumented(Struct, frozen=True, kw_only=True):
    """Rows of one op that raise or differ, and that no parsed claim is about."""

    op: str
    device: str
    direction: str
    finding: Finding
    evidence: tuple[Evidence, ...]
    named: tuple[Claim, ...]  # claims that name the op: of other calls of it, or unparsed


class Docs(Struct, frozen=True, kw_only=True):
    """All that the runs say of the documented lists."""

    torch: str  # the release, without the build
    matrices: tuple[Matrix, ...]
    claims: tuple[Claim, ...]
    note: str | None  # where the claims come from, if not from the runs
    judged: tuple[Judged, ...]
    undocumented: tuple[Undocumented, ...]
    # Rows of uninitialised memory that the flag has filled: torch.utils.deterministic.fill_uninitialized_memory
    # documents them, so no bullet is missing.
    filled: tuple[Evidence, ...]
    self_contradictory: tuple[tuple[Claim, Claim], ...]
    unparsed: tuple[Claim, ...]
    rows: tuple[Evidence, ...]  # every row of every run


def join(matrices: Sequence[Matrix]) -> Docs:
    """Judge the documented claims by the rows of *matrices*.

    Raises:
        UsageError: The runs are not of one torch release, or hold different claims, or there are none.
    """
    torch = _release(matrices)
    claims, note = _claims(matrices, torch)
    rows = tuple(_rows(matrices))
    parsed = [claim for claim in claims if claim.parsed]
    return Docs(
        torch=torch,
        matrices=tuple(matrices),
        claims=claims,
        note=note,
        judged=tuple(_judge(claim, rows, matrices) for claim in parsed),
        undocumented=tuple(_undocumented(claims, [one for one in rows if not _is_filled(one)])),
        filled=tuple(
            one for one in rows if _is_filled(one) and not any(speaks(one.row.row, claim) for claim in parsed)
        ),
        self_contradictory=contradictions(claims),
        unparsed=tuple(claim for claim in claims if not claim.parsed),
        rows=rows,
    )


def _release(matrices: Sequence[Matrix]) -> str:
    found = {one.run.header.environment.torch.partition("+")[0]: one.name for one in reversed(matrices)}
    if len(found) > 1:
        told = " and ".join(f"{name} is of torch {torch}" for torch, name in reversed(found.items()))
        raise UsageError(f"the runs document different lists: {told}; give runs of one release at a time")
    return next(iter(found))


def _claims(matrices: Sequence[Matrix], torch: str) -> tuple[tuple[Claim, ...], str | None]:
    """Return the claims of the runs; for want of them, those tabled for the release."""
    having = [one for one in matrices if one.run.header.claims]
    for one in having[1:]:
        if _texts(one) != _texts(having[0]):
            raise UsageError(
                f"the runs document different lists: those of {one.name} are not those of {having[0].name}, though "
                f"both are of torch {torch}; give runs of one build at a time"
            )
    if having:
        return having[0].run.header.claims, None
    try:
        tabled = documented_claims(torch)
    except UsageError as error:
        raise UsageError(
            f"{matrices[0].name}: holds no claims (was its torch stripped of docstrings, or the file written by an "
            f"early detmatrix?), and {error}"
        ) from error
    return tabled, f"The runs hold no claims; those tabled for torch {torch} stand in for them."


def _texts(one: Matrix) -> list[tuple[object, ...]]:
    return [(claim.order, claim.section, claim.device, claim.text) for claim in one.run.header.claims]


def _rows(matrices: Iterable[Matrix]) -> Iterator[Evidence]:
    for one in matrices:
        doubt = f"{one.name} is not trustworthy: {'; '.join(one.distrust)}" if one.distrust else None
        for row in one.rows:
            yield Evidence(run=one.name, row=row, showing=None if doubt else showing_of(row), doubt=doubt)


def _judge(claim: Claim, rows: Sequence[Evidence], matrices: Sequence[Matrix]) -> Judged:
    evidence = tuple(
        Evidence(
            run=one.run,
            row=one.row,
            showing=one.showing,
            doubt=one.doubt,
            effect=effect_of(claim, one.showing),
        )
        for one in rows
        if speaks(one.row.row, claim)
    )
    effects = {one.effect for one in evidence}
    agreement: Agreement
    if "contradicts" in effects:
        agreement, reason = "contradicted", _contradiction(claim, evidence)
    elif "confirms" in effects:
        agreement, reason = "confirmed", _confirmation(claim, evidence)
    elif "not_triggered" in effects:
        agreement, reason = "not_triggered", _nothing(claim, evidence)
    elif evidence:
        agreement, reason = "not_run", _no_evidence(evidence)
    elif any(speaks(one.row.row, claim, ignore_device=True) for one in rows):
        agreement, reason = "not_run", f"none of these runs is on {claim.device}"
    else:
        agreement, reason = "not_covered", _not_covered(matrices)
    return Judged(claim=claim, agreement=agreement, reason=reason, evidence=evidence)


def _is_filled(evidence: Evidence) -> bool:
    """Tell whether a row differs only because it returns memory that the flag has filled."""
    return "fill" in evidence.row.row.traits and evidence.row.finding == "fixed_by_mode"


def _undocumented(claims: Sequence[Claim], rows: Iterable[Evidence]) -> Iterator[Undocumented]:
    """Yield what raises or differs without a claim about it, the ops in alphabetical order."""
    groups: dict[tuple[str, str, str, int], list[Evidence]] = {}
    for one in rows:
        row = one.row.row
        op = names_of(row)[0]
        if one.showing is None or one.row.finding not in UNDOCUMENTED or not op.startswith("torch."):
            continue
        if not any(speaks(row, claim) for claim in claims):
            key = (op, one.device, row.direction, UNDOCUMENTED.index(one.row.finding))
            groups.setdefault(key, []).append(one)
    for (op, device, direction, place), evidence in sorted(groups.items(), key=lambda group: group[0]):
        names = {name for one in evidence for name in names_of(one.row.row)}
        yield Undocumented(
            op=op,
            device=device,
            direction=direction,
            finding=UNDOCUMENTED[place],
            evidence=tuple(evidence),
            named=tuple(claim for claim in claims if not names.isdisjoint(claim.targets)),
        )


# --- Reasons ---------------------------------------------------------------------------------------------------

_SHOWN: dict[Showing, str] = {
    "acts": "acts deterministically",
    "raises": "raises",
    "differs": "differs without raising",
    "nothing": "neither raises nor differs",
}


def shown_words(evidence: Evidence) -> str:
    """Say in a few words what a row showed with the flag on, and with it off."""
    row = evidence.row
    match row.finding:
        case "mode_dependent":
            return f"another path is taken with the flag on, {counted(row.on)}"
        case "over_alert":
            return (
                f"the alert is raised, though no difference was seen with the flag off ({counted(row.off)})"
            )
        case "silent":
            return f"differs with the flag on and nothing is raised ({counted(row.on)})"
        case "raises":
            return f"the alert is raised ({counted(row.off)} with the flag off)"
        case "fixed_by_mode":
            return (
                f"acts deterministically ({counted(row.off)} with the flag off, {counted(row.on)} with it on)"
            )
    return f"neither raises nor differs ({counted(row.off)} with the flag off, {counted(row.on)} with it on)"


def _contradiction(claim: Claim, evidence: Sequence[Evidence]) -> str:
    """Say which rows show otherwise, and what tells them from those that agree."""
    failing = [one for one in evidence if one.effect == "contradicts"]
    holding = [one for one in evidence if one.effect in {"confirms", "not_triggered"}]
    shown = "; ".join(
        f"{_SHOWN[showing]} in {_counted_rows(some)}"
        for showing in _SHOWN
        if (some := [one for one in failing if one.showing == showing])
    )
    if not holding:
        return f"{shown}{_measured_on(claim, evidence)}"
    return f"says too much: {shown}; {_holds(holding)}. {_decided(claim, evidence)}"


def _holds(holding: Sequence[Evidence]) -> str:
    confirming = [one for one in holding if one.effect == "confirms"]
    if confirming:
        return f"holds in {_counted_rows(confirming)}"
    return f"neither raises nor differs in {_counted_rows(holding)}"


def _decided(claim: Claim, evidence: Sequence[Evidence]) -> str:
    """Name the condition that decides, or those that may."""
    parts = []
    for device in dict.fromkeys(one.device for one in evidence):
        rows = [(one.row.row, one.showing) for one in evidence if one.device == device and one.showing]
        effects = {one.effect for one in evidence if one.device == device}
        on = f" on {device}" if claim.device == "any" else ""
        if "contradicts" not in effects:
            parts += [f"It holds{on}."] if effects & {"confirms", "not_triggered"} else []
        elif not effects & {"confirms", "not_triggered"}:
            parts.append(f"It fails{on}.")
        elif found := splits(claim, rows):
            word = "decides" if len(found) == 1 else "may decide"
            parts.append(f"What {word}{on}: {' or '.join(split_words(split) for split in found)}.")
        else:
            parts.append(f"No single condition decides{on}.")
    return " ".join(parts)


def split_words(split: Split) -> str:
    """Say for which values of a condition a claim fails, and for which it holds."""
    fails, holds = (
        ", ".join("unstated" if value is None else value for value in values)
        for values in (split.fails, split.values["keep"])
    )
    return f"{split.name} (fails for {fails}{f', not for {holds}' if holds else ''})"


def _confirmation(claim: Claim, evidence: Sequence[Evidence]) -> str:
    confirming = [one for one in evidence if one.effect == "confirms"]
    best = strongest(confirming)
    more = f", the most of {_rows_words(confirming)}" if len(confirming) > 1 else ""
    cublas = "; CUBLAS_WORKSPACE_CONFIG is set in the mode on" if claim.section == "cublas" else ""
    return f"{shown_words(best)}{more}{_measured_on(claim, evidence)}{cublas}"


def _nothing(claim: Claim, evidence: Sequence[Evidence]) -> str:
    rows = [one for one in evidence if one.effect == "not_triggered"]
    innocent = sum(not one.row.row.provokes for one in rows)
    told = (
        f"{counted(rows[0].row.off)} in {_rows_words(rows)}"
        if len(rows) == 1
        else f"0 of n in {_rows_words(rows)}"
    )
    if innocent:
        told += f", {'all' if innocent == len(rows) else innocent} innocent"
    if is_vague(claim):
        told = f"the bullet does not say when; {told}"
    cublas = "; CUBLAS_WORKSPACE_CONFIG is set in the mode on" if claim.section == "cublas" else ""
    return f"{told}{_measured_on(claim, evidence)}{cublas}"


def _no_evidence(evidence: Sequence[Evidence]) -> str:
    """Say why rows that speak to a claim are no evidence."""
    reasons = list(dict.fromkeys(one.doubt or one.row.reason or "no reason was recorded" for one in evidence))
    more = f"; and {len(reasons) - _REASONS} more reasons" if len(reasons) > _REASONS else ""
    return f"no evidence in {_rows_words(evidence)}: {'; '.join(reasons[:_REASONS])}{more}"


def _not_covered(matrices: Sequence[Matrix]) -> str:
    limited = [one.name for one in matrices if one.run.header.settings.patterns]
    more = f" ({', '.join(limited)} ran only the rows that patterns selected)" if limited else ""
    return f"no row of these runs speaks to it{more}"


def _measured_on(claim: Claim, evidence: Sequence[Evidence]) -> str:
    """Say where a bullet about every device was looked at."""
    if claim.device != "any":
        return ""
    return f", on {' and '.join(dict.fromkeys(one.device for one in evidence if one.showing))}"


def strongest(evidence: Sequence[Evidence]) -> Evidence:
    """Return the row that shows most: the largest share that differed, the first of equals."""

    def share(one: Evidence) -> float:
        return max(cell.differing / cell.runs if cell.runs else 0.0 for cell in (one.row.on, one.row.off))

    return max(evidence, key=share)


def _counted_rows(rows: Sequence[Evidence]) -> str:
    """Say how many rows there are, and the k of n of the one that differed most with the flag on."""
    compared = [one.row.on for one in rows if counted(one.row.on)]
    if not compared:
        return _rows_words(rows)
    most = max(compared, key=lambda cell: (cell.differing / cell.runs, -cell.runs))
    return f"{_rows_words(rows)} ({counted(most)} with the flag on)"


def _rows_words(rows: Sequence[object]) -> str:
    return "1 row" if len(rows) == 1 else f"{len(rows)} rows"


def count(docs: Docs) -> list[tuple[str, int, str]]:
    """Return what is counted, how many there are, and what it means."""
    found = Counter(judged.agreement for judged in docs.judged)
    others = {
        "undocumented": len(docs.undocumented),
        "self_contradictory": len(docs.self_contradictory),
        "unparsed": len(docs.unparsed),
    }
    return [
        *((agreement, found[agreement], meaning) for agreement, meaning in AGREEMENT_MEANING.items()),
        *((name, count, KIND_MEANING[name]) for name, count in others.items()),
    ]
