"""Claims joined with the rows of several runs: agreement, and what the lists do not say.

Pure functions of run files. A row of a run that cannot be trusted, a row without a finding, and a row of low power
whose finding rests on nothing having differed are shown but are no evidence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

from msgspec import Struct
from msgspec.structs import replace

from detmatrix.reports.docs.evidence import (
    Agreement,
    Behaviour,
    Evidence,
    Split,
    behaviour_of,
    count_rows,
    effect_of,
    failing,
    held_back,
    several_rows,
    splits,
)
from detmatrix.reports.matrix.model import (
    UNDOCUMENTED,
    Matrix,
    input_elements,
    is_about,
    is_filled,
    is_noted,
    with_notes,
)
from detmatrix.reports.render import grouped
from detmatrix.scanner.claims.matching import is_vague, matches, names_of
from detmatrix.scanner.claims.tables import contradictions, documented_claims
from detmatrix.scanner.errors import UsageError
from detmatrix.scanner.observations.parts import parts_of
from detmatrix.scanner.observations.records import Claim
from detmatrix.scanner.plurals import first_of, several
from detmatrix.scanner.verdicts.findings import MatrixRow
from detmatrix.scanner.verdicts.simulated import NOT_EXERCISED, proved
from detmatrix.scanner.verdicts.vocabulary import BESIDE, Finding, Word, meanings

# Printed with every table, in the order of the counts: the gravest that a row shows decides. The colour is that of a finding.
AGREEMENT: dict[Agreement, Word] = {
    "contradicted": Word(
        "At least one row shows otherwise; where other rows agree, the bullet says too much.", "✗", "silent"
    ),
    "confirmed": Word("The rows show what the bullet says, and none shows otherwise.", "✓", "deterministic"),
    "not_triggered": Word(
        "Documented as normally nondeterministic, but 0 of n executions differed in either mode; this "
        "neither confirms nor contradicts.",
        "○",
        "over_alert",
    ),
    "not_run": Word("No row gave evidence, or too few did; the reason is given.", "·", "inconclusive"),
    "not_covered": Word("No row of these runs speaks to the bullet, on any device.", "·", "inconclusive"),
}
AGREEMENT_MEANING = meanings(AGREEMENT)
# What else is told of the lists, by the names of the fields of ``Docs``.
KIND_MEANING = {
    "undocumented": "Groups of rows that raise or differ, and that no claim is about.",
    "self_contradictory": "Pairs of claims that put one call of an op into both lists.",
    "unread": "The same of ops that an unparsed bullet names, which may be about them.",
    "unparsed": "Bullets that were not understood; no row is compared with them.",
}

_WEAK = {
    "serial": "serial: one thread did all the work with the flag off, so that nothing could race",
    "not exercised": "not exercised: too few additions to one place to show an order",
}


class JudgedClaim(Struct, frozen=True, kw_only=True):
    """A claim, and what the runs say of it."""

    claim: Claim
    agreement: Agreement
    reason: str
    evidence: tuple[Evidence, ...]  # all rows that speak to it, in the order of the runs

    @property
    def simulated(self) -> bool:
        """Whether rows of a simulated GPU speak to it; no other row does then."""
        return any(one.simulated for one in self.evidence)

    @property
    def label(self) -> str:
        """The agreement, by what it was judged: "confirmed (simulated)"."""
        return label(self.agreement, simulated=self.simulated)


def label(agreement: str, *, simulated: bool) -> str:
    """Name an agreement with what it was judged by."""
    return f"{agreement} (simulated)" if simulated else agreement


class Undocumented(Struct, frozen=True, kw_only=True):
    """Rows of one op that raise or differ, and that no claim is known to be about."""

    op: str
    device: str
    direction: str
    finding: Finding
    evidence: tuple[Evidence, ...]
    named: tuple[Claim, ...]  # claims that name the op: of other calls of it, or unparsed

    @property
    def smallest(self) -> MatrixRow:
        """The row whose inputs have the fewest elements, as far as that is known."""
        rows = [one.row for one in self.evidence]
        return min(rows, key=lambda row: ((size := input_elements(row)) is None, size or 0))


class Docs(Struct, frozen=True, kw_only=True):
    """All that the runs say of the documented lists."""

    torch: str  # the release, without the build
    matrices: tuple[Matrix, ...]
    claims: tuple[Claim, ...]
    note: str | None  # where the claims come from, if not from the runs
    judged: tuple[JudgedClaim, ...]
    undocumented: tuple[Undocumented, ...]
    # The same of ops that an unparsed bullet names: it may be about these rows.
    unread: tuple[Undocumented, ...]
    # Rows of uninitialised memory that the flag has filled: torch.utils.deterministic.fill_uninitialized_memory documents
    # those of ops that are to return such memory; what another op reads of it is a bug. No bullet is missing for either.
    filled: tuple[Evidence, ...]
    self_contradictory: tuple[tuple[Claim, Claim], ...]
    unparsed: tuple[Claim, ...]
    rows: tuple[Evidence, ...]  # every row of every run

    @property
    def seen(self) -> str:
        """How the rows were seen."""
        seen = ("simulated" if one.simulated else "measured" for one in self.matrices)
        return " and ".join(dict.fromkeys(seen))


def join(matrices: Sequence[Matrix], claims: tuple[Claim, ...] | None = None) -> Docs:
    """Judge documented claims, without any those of the runs, by the rows of *matrices*.

    Raises:
        UsageError: The runs are not of one torch release, or hold different claims, or there are none; or one is
            given twice, or simulates what another measured.
    """
    torch = _release(matrices)
    claims, note = _claims(matrices, torch) if claims is None else (claims, None)
    rows = tuple(_rows(matrices))
    parsed = [claim for claim in claims if claim.parsed and claim.section != "note"]
    missing = list(_undocumented(claims, [one for one in rows if not is_filled(one.row)]))
    return Docs(
        torch=torch,
        matrices=tuple(matrices),
        claims=claims,
        note=note,
        judged=tuple(judged for claim in parsed for judged in _judge(claim, rows, matrices)),
        undocumented=tuple(one for one in missing if all(claim.parsed for claim in one.named)),
        unread=tuple(one for one in missing if not all(claim.parsed for claim in one.named)),
        filled=tuple(
            one
            for one in rows
            if is_filled(one.row) and not any(matches(one.row.row, claim) for claim in parsed)
        ),
        self_contradictory=contradictions(claims),
        unparsed=tuple(claim for claim in claims if not claim.parsed),
        rows=rows,
    )


def _release(matrices: Sequence[Matrix]) -> str:
    """Return the release of torch of runs that can be joined."""
    for other, one in combinations(matrices, 2):
        header, theirs = one.run.header, other.run.header
        if parts_of(header) == parts_of(theirs) and header.settings == theirs.settings:
            raise UsageError(
                f"{other.name} and {one.name} are the same run, started {header.started}; give each run once"
            )
    simulated = [one.name for one in matrices if one.simulated]
    measured = [one.name for one in matrices if one.kind == "cuda"]
    if simulated and measured:
        raise UsageError(
            f"{simulated[0]} is simulated and {measured[0]} was measured on CUDA; judge the lists by one of them at a time"
        )
    found = {one.release: one.name for one in reversed(matrices)}
    if len(found) > 1:
        text = " and ".join(f"{name} is of torch {torch}" for torch, name in reversed(found.items()))
        raise UsageError(f"the runs document different lists: {text}; give runs of one release at a time")
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
        return with_notes(having[0].run.header.claims, torch), None
    try:
        tabled = with_notes(documented_claims(torch), torch)
    except UsageError as error:
        raise UsageError(
            f"{matrices[0].name}: holds no claims (was its torch stripped of docstrings, or the file written by an "
            f"early detmatrix?), and {error}"
        ) from error
    return tabled, f"The runs hold no claims; those tabled for torch {torch} stand in for them."


def _texts(one: Matrix) -> list[tuple[object, ...]]:
    # Notes were not always read.
    claims = (claim for claim in one.run.header.claims if claim.section != "note")
    return [(claim.order, claim.section, claim.device, claim.text) for claim in claims]


def _rows(matrices: Iterable[Matrix]) -> list[Evidence]:
    rows = [_evidence(one, row) for one in matrices for row in one.rows]
    shown: dict[str, dict[str, Behaviour]] = {}
    for one in rows:
        if one.gpu and one.behaviour:
            shown.setdefault(one.row.row.id, {})[one.gpu] = one.behaviour
    hanging = {
        row: f"depends on the simulated GPU: {', '.join(f'{_SHOWN[it]} on {gpu}' for gpu, it in found.items())}"
        for row, found in shown.items()
        if len({*found.values()}) > 1
    }
    # What is held back on one simulated GPU is held back on all of them.
    held = {one.row.row.id: one.held for one in rows if one.held} | hanging
    return [replace(one, held=held.get(one.row.row.id, "")) if one.gpu else one for one in rows]


def _evidence(one: Matrix, row: MatrixRow) -> Evidence:
    doubt = f"{one.name} is not trustworthy: {'; '.join(one.distrust)}" if one.distrust else None
    behaviour = behaviour_of(row)
    of = one.run.header.environment.simulated
    weak = ""
    # An alert and bits that differ are proof; that nothing differed is none where nothing could race.
    if behaviour in {"acts", "nothing"} and not doubt:
        known = row.off.simulated
        weak = "underpowered" if row.weak is not None else "serial" if row.serial else ""
        weak = "not exercised" if known and known.not_exercised and not row.off.differing else weak
        doubt = _WEAK.get(weak, f"low power: {row.weak}") if weak else None
    return Evidence(
        run=one.name,
        gpu=f"{of.architecture} with {several(of.multiprocessors, 'multiprocessor')}" if of else "",
        row=row,
        behaviour=None if doubt else behaviour,
        doubt=doubt,
        weak=weak,
        held=held_back(row, behaviour),
    )


def _judge(claim: Claim, rows: Sequence[Evidence], matrices: Sequence[Matrix]) -> Iterator[JudgedClaim]:
    """Yield what was measured of a claim and what was simulated, each by itself."""
    evidence = [
        replace(one, effect=effect_of(claim, one.behaviour)) for one in rows if matches(one.row.row, claim)
    ]
    for simulated in (False, True):
        if some := tuple(one for one in evidence if one.simulated == simulated):
            yield _judged(claim, some)
    if not evidence:
        elsewhere = any(matches(one.row.row, claim, ignore_device=True) for one in rows)
        agreement: Agreement = "not_run" if elsewhere else "not_covered"
        limited = ", ".join(one.name for one in matrices if one.run.header.settings.patterns)
        reason = f"none of these runs is on {claim.device}"
        if not elsewhere:
            reason = "no row of these runs speaks to it"
            reason += f" ({limited} ran only the rows that patterns selected)" if limited else ""
        yield JudgedClaim(claim=claim, agreement=agreement, reason=reason, evidence=())


def _judged(claim: Claim, evidence: tuple[Evidence, ...]) -> JudgedClaim:
    effects = {one.effect for one in evidence}
    agreement = next(name for name in AGREEMENT if name in effects)
    if (reason := no_evidence(evidence)) and agreement == "not_triggered":
        agreement = "not_run"
    reason = reason if agreement == "not_run" else _REASONS_FOR[agreement](claim, evidence)
    beside = {name: [one for one in evidence if name in one.row.beside] for name in BESIDE}
    reason += "".join(
        f"; {BESIDE[name].phrase} in {several_rows(some)}" for name, some in beside.items() if some
    )
    reason = reason.removesuffix(".")
    kept = grouped(
        (one.held, one) for one in evidence if one.held and one.effect in {"contradicted", "confirmed"}
    )
    reason += "".join(
        f"; the bits of {several_rows(some)} change no list: {why}" for why, some in kept.items()
    )
    if agreement == "confirmed" and (alerts := over_alerts(evidence)):
        reason += f"; over-alerts: {alerts}"
    return JudgedClaim(claim=claim, agreement=agreement, reason=reason, evidence=evidence)


def _undocumented(claims: Sequence[Claim], rows: Iterable[Evidence]) -> Iterator[Undocumented]:
    """Yield what raises or differs without a claim about it, the ops in alphabetical order."""
    groups = grouped(
        ((op, one.device, row.direction, UNDOCUMENTED.index(one.row.finding)), one)
        for one, row, op in ((it, it.row.row, names_of(it.row.row)[0]) for it in rows)
        if one.behaviour is not None and one.row.finding in UNDOCUMENTED and op.startswith("torch.")
        if not any(matches(row, claim) for claim in claims) and not is_noted(row, claims)
    )
    for (op, device, direction, place), evidence in sorted(groups.items(), key=lambda group: group[0]):
        names = {name for one in evidence for name in names_of(one.row.row)}
        yield Undocumented(
            op=op,
            device=device,
            direction=direction,
            finding=UNDOCUMENTED[place],
            evidence=tuple(evidence),
            named=tuple(claim for claim in claims if is_about(claim, names)),
        )


def count(docs: Docs) -> list[tuple[str, int, str]]:
    """Return what is counted, how many there are, and what it means; what was simulated is counted by itself."""
    found = Counter(judged.label for judged in docs.judged)
    return [
        *(
            (name, found[name], meaning)
            for agreement, meaning in AGREEMENT_MEANING.items()
            for name in (agreement, label(agreement, simulated=True))
            if name == agreement or found[name]
        ),
        *((name, len(getattr(docs, name)), meaning) for name, meaning in KIND_MEANING.items()),
    ]


_REASONS = 3  # that are told of rows without evidence
_CASES = 5  # that are named where no condition tells rows apart

_SHOWN: dict[Behaviour, str] = {
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
            return f"another path is taken with the flag on, {row.on.counted}"
        case "over_alert" | "inconclusive":
            return (
                f"the alert is raised, though no difference was seen with the flag off ({row.off.counted}"
                f"{''.join(f', {doubt}' for doubt in row.doubt_words())})"
            )
        case "silent":
            return f"differs with the flag on and nothing is raised ({row.on.counted})"
        case "raises":
            return f"the alert is raised ({row.off.counted} with the flag off)"
    shown = _SHOWN["acts" if row.finding in {"fixed_by_mode", "uninitialized"} else "nothing"]
    return f"{shown} ({row.off.counted} with the flag off, {row.on.counted} with it on)"


def contradiction(claim: Claim, evidence: Sequence[Evidence]) -> str:
    """Say which rows show otherwise, and what tells them from those that agree."""
    against = [one for one in evidence if one.effect == "contradicted"]
    holding = [one for one in evidence if one.effect in {"confirmed", "not_triggered"}]
    shown = "; ".join(
        f"{_SHOWN[behaviour]} in {_counted_rows(some)}"
        for behaviour in _SHOWN
        if (some := [one for one in against if one.behaviour == behaviour])
    )
    if not holding:
        return f"{shown}{_where(claim, evidence)}"
    confirming = [one for one in holding if one.effect == "confirmed"]
    holds = "holds" if confirming else "neither raises nor differs"
    return f"says too much: {shown}; {holds} in {_counted_rows(confirming or holding)}. {_decided(claim, evidence)}"


def _decided(claim: Claim, evidence: Sequence[Evidence]) -> str:
    """Name the condition that decides, or those that may."""
    parts = []
    for device in dict.fromkeys(one.device for one in evidence):
        here = [one for one in evidence if one.device == device]
        rows = [one for one in here if one.behaviour]
        effects = {one.effect for one in here}
        on = f" on {here[0].place}" if claim.device == "any" else ""
        if "contradicted" not in effects:
            parts += [f"It holds{on}."] if effects & {"confirmed", "not_triggered"} else []
        elif not effects & {"confirmed", "not_triggered"}:
            parts.append(f"It fails{on}.")
        elif found := splits(claim, rows, failing):
            word = "decides" if len(found) == 1 else "may decide"
            parts.append(f"What {word}{on}: {' or '.join(split_words(*it) for it in found.items())}.")
        else:
            parts.append(f"No single condition decides{on}: {_cases_words(here)}.")
    return " ".join(parts)


def _cases_words(evidence: Sequence[Evidence]) -> str:
    """Name the cases in which a claim fails, and those in which it holds."""
    some = len({one.row.row.spec for one in evidence}) > 1

    names: dict[bool, dict[str, None]] = {True: {}, False: {}}
    for one in (it for it in evidence if it.effect != "not_run"):
        row = one.row.row
        name = f"{f'{row.spec} ' if some else ''}{row.case} {row.direction} {row.dtype}"
        names[one.effect == "contradicted"][name] = None
    fails, holds = (first_of([*found], _CASES) for found in names.values())
    return f"fails in {fails}; holds in {holds}"


def split_words(name: str, split: Split) -> str:
    """Say for which values of a condition a claim fails, and for which it holds."""
    fails, holds = (
        ", ".join("unstated" if value is None else value for value in values)
        for values in (split["move"] + split["drop"], split["keep"])
    )
    return f"{name} (fails for {fails}{f', not for {holds}' if holds else ''})"


def confirmation(claim: Claim, evidence: Sequence[Evidence]) -> str:
    """Say what the strongest row that confirms a claim showed."""
    confirming = [one for one in evidence if one.effect == "confirmed"]
    best = strongest(confirming)
    more = f", the strongest of {several_rows(confirming)}" if len(confirming) > 1 else ""
    return f"{shown_words(best)}{more}{_where(claim, evidence)}"


def nothing(claim: Claim, evidence: Sequence[Evidence]) -> str:
    """Say in how many rows nothing was seen, and how many of them provoke nothing."""
    rows = [one for one in evidence if one.effect == "not_triggered"]
    innocent = [one for one in rows if not one.row.row.provokes]
    text = f"{rows[0].row.off.counted if len(rows) == 1 else '0 of n'} in {several_rows(rows)}"
    if innocent:
        text += f", {'all' if innocent == rows else count_rows(innocent)} innocent"
    if is_vague(claim):
        text = f"the bullet does not say when; {text}"
    return f"{text}{_where(claim, evidence)}"


_REASONS_FOR = {"contradicted": contradiction, "confirmed": confirmation, "not_triggered": nothing}


def over_alerts(evidence: Sequence[Evidence]) -> str:
    """Name the cases in which the alert is raised and no order of a simulated GPU gave other bits, with what conflicts prove."""
    cases: dict[str, list[str]] = {}
    for one in evidence:
        if one.simulated and one.row.finding == "over_alert" and (known := one.row.off.simulated):
            nothing_seen = NOT_EXERCISED if known.not_exercised else "no schedule differed"
            proof = proved(known) if known.race_free else nothing_seen
            cases.setdefault(proof, []).append(one.row.row.case)
    return "; ".join(f"{', '.join(dict.fromkeys(some))} ({proof})" for proof, some in cases.items())


def no_evidence(evidence: Sequence[Evidence]) -> str:
    """Say why most rows that speak to a claim are no evidence; empty if half are some, or one raises or differs."""
    none = [one for one in evidence if not one.behaviour]
    others = grouped((one.row.off.counted, one) for one in evidence if one.behaviour)
    if 2 * len(none) <= len(evidence) or not {one.behaviour for one in evidence} <= {None, "nothing"}:
        return ""
    # Once where both modes say the same.
    of_rows = [
        one.doubt
        or (one.row.off.reason if one.row.off.reason == one.row.on.reason else None)
        or one.row.reason
        for one in none
    ]
    reasons = list(dict.fromkeys(it or "no reason was recorded" for it in of_rows))
    more = f"; and {len(reasons) - _REASONS} more reasons" if len(reasons) > _REASONS else ""
    of = f"{count_rows(none)} of " if len(none) < len(evidence) else ""
    shown = "".join(f"; {several_rows(some, 'other row')}: {text}" for text, some in others.items())
    return f"no evidence in {of}{several_rows(evidence)}: {'; '.join(reasons[:_REASONS])}{more}{shown}"


def _where(claim: Claim, evidence: Sequence[Evidence]) -> str:
    """Say where a bullet about every device was looked at, and what the mode on sets of what a list of cuBLAS names."""
    places = dict.fromkeys(one.place for one in evidence if one.behaviour)
    on = f", on {' and '.join(places)}" if claim.device == "any" else ""
    return f"{on}; CUBLAS_WORKSPACE_CONFIG is set in the mode on" if claim.section == "cublas" else on


def strongest(evidence: Sequence[Evidence]) -> Evidence:
    """Return the row that shows most: the largest share that differed, the first of equals."""
    return max(
        evidence,
        key=lambda one: max(
            cell.differing / cell.runs if cell.runs else 0.0 for cell in (one.row.on, one.row.off)
        ),
    )


def _counted_rows(rows: Sequence[Evidence]) -> str:
    """Say how many rows there are, and the k of n of the one that differed most with the flag on."""
    compared = [one.row.on for one in rows if one.row.on.counted]
    if not compared:
        return several_rows(rows)
    most = max(compared, key=lambda cell: (cell.differing / cell.runs, -cell.runs))
    return f"{several_rows(rows)} ({most.counted} with the flag on)"
