"""Why a claim is judged as it is: what was seen in its rows, and what tells those that fail from the others."""

from __future__ import annotations

from collections.abc import Sequence

from reports.docs.conditions import BENCHMARK, Behaviour, Evidence, Split, acts_with_benchmark, separations
from reports.matrix.cells import counted
from reports.matrix.model import Matrix
from reports.matrix.view import doubts
from scanner.claims.matching import is_vague
from scanner.observations.records import Claim
from scanner.plurals import several

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
            return f"another path is taken with the flag on, {counted(row.on)}"
        case "over_alert" | "inconclusive":
            return (
                f"the alert is raised, though no difference was seen with the flag off ({counted(row.off)}"
                f"{''.join(f', {doubt}' for doubt in doubts(row.weak, serial=row.serial))})"
            )
        case "silent":
            return f"differs with the flag on and nothing is raised ({counted(row.on)})"
        case "raises":
            return f"the alert is raised ({counted(row.off)} with the flag off)"
        case "fixed_by_mode" | "uninitialized":
            return (
                f"acts deterministically ({counted(row.off)} with the flag off, {counted(row.on)} with it on)"
            )
    return f"neither raises nor differs ({counted(row.off)} with the flag off, {counted(row.on)} with it on)"


def contradiction(claim: Claim, evidence: Sequence[Evidence]) -> str:
    """Say which rows show otherwise, and what tells them from those that agree."""
    failing = [one for one in evidence if one.effect == "contradicts"]
    holding = [one for one in evidence if one.effect in {"confirms", "not_triggered"}]
    shown = "; ".join(
        f"{_SHOWN[behaviour]} in {_counted_rows(some)}"
        for behaviour in _SHOWN
        if (some := [one for one in failing if one.behaviour == behaviour])
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
        here = [one for one in evidence if one.device == device]
        rows = [(one.row.row, one.behaviour) for one in here if one.behaviour]
        effects = {one.effect for one in here}
        on = f" on {here[0].place}" if claim.device == "any" else ""
        if "contradicts" not in effects:
            parts += [f"It holds{on}."] if effects & {"confirms", "not_triggered"} else []
        elif not effects & {"confirms", "not_triggered"}:
            parts.append(f"It fails{on}.")
        elif found := separations(claim, rows):
            word = "decides" if len(found) == 1 else "may decide"
            parts.append(f"What {word}{on}: {' or '.join(split_words(split) for split in found)}.")
        else:
            parts.append(f"No single condition decides{on}: {_cases_words(here)}.")
    return " ".join(parts)


def _cases_words(evidence: Sequence[Evidence]) -> str:
    """Name the cases in which a claim fails, and those in which it holds."""
    some = len({one.row.row.spec for one in evidence}) > 1

    def named(failing: bool) -> str:
        names = list(
            dict.fromkeys(
                f"{f'{row.spec} ' if some else ''}{row.case} {row.direction} {row.dtype}"
                for one in evidence
                if one.effect != "none" and (one.effect == "contradicts") == failing
                for row in [one.row.row]
            )
        )
        more = f" and {len(names) - _CASES} more" if len(names) > _CASES else ""
        return ", ".join(names[:_CASES]) + more

    return f"fails in {named(True)}; holds in {named(False)}"


def split_words(split: Split) -> str:
    """Say for which values of a condition a claim fails, and for which it holds."""
    fails, holds = (
        ", ".join("unstated" if value is None else value for value in values)
        for values in (split.fails, split.values["keep"])
    )
    return f"{split.name} (fails for {fails}{f', not for {holds}' if holds else ''})"


def confirmation(claim: Claim, evidence: Sequence[Evidence]) -> str:
    """Say what the strongest row that confirms a claim showed."""
    confirming = [one for one in evidence if one.effect == "confirms"]
    best = strongest(confirming)
    more = f", the most of {several(len(confirming), 'row')}" if len(confirming) > 1 else ""
    cublas = "; CUBLAS_WORKSPACE_CONFIG is set in the mode on" if claim.section == "cublas" else ""
    return f"{shown_words(best)}{more}{_measured_on(claim, evidence)}{cublas}"


def nothing(claim: Claim, evidence: Sequence[Evidence]) -> str:
    """Say in how many rows nothing was seen, and how many of them provoke nothing."""
    rows = [one for one in evidence if one.effect == "not_triggered"]
    innocent = sum(not one.row.row.provokes for one in rows)
    text = (
        f"{counted(rows[0].row.off)} in {several(len(rows), 'row')}"
        if len(rows) == 1
        else f"0 of n in {several(len(rows), 'row')}"
    )
    if innocent:
        text += f", {'all' if innocent == len(rows) else innocent} innocent"
    if is_vague(claim):
        text = f"the bullet does not say when; {text}"
    if switched := [one for one in rows if acts_with_benchmark(one.row)]:
        text += f"; with {BENCHMARK}=True {several(len(switched), 'row')} differed, and not with cudnn.deterministic too"
    cublas = "; CUBLAS_WORKSPACE_CONFIG is set in the mode on" if claim.section == "cublas" else ""
    return f"{text}{_measured_on(claim, evidence)}{cublas}"


def no_evidence(evidence: Sequence[Evidence]) -> str:
    """Say why rows that speak to a claim are no evidence."""
    reasons = list(dict.fromkeys(one.doubt or one.row.reason or "no reason was recorded" for one in evidence))
    more = f"; and {len(reasons) - _REASONS} more reasons" if len(reasons) > _REASONS else ""
    return f"no evidence in {several(len(evidence), 'row')}: {'; '.join(reasons[:_REASONS])}{more}"


def not_covered(matrices: Sequence[Matrix]) -> str:
    """Say that nothing was looked at, and which runs did not look at all rows."""
    limited = [one.name for one in matrices if one.run.header.settings.patterns]
    more = f" ({', '.join(limited)} ran only the rows that patterns selected)" if limited else ""
    return f"no row of these runs speaks to it{more}"


def _measured_on(claim: Claim, evidence: Sequence[Evidence]) -> str:
    """Say where a bullet about every device was looked at."""
    if claim.device != "any":
        return ""
    return f", on {' and '.join(dict.fromkeys(one.place for one in evidence if one.behaviour))}"


def strongest(evidence: Sequence[Evidence]) -> Evidence:
    """Return the row that shows most: the largest share that differed, the first of equals."""

    def share(one: Evidence) -> float:
        return max(cell.differing / cell.runs if cell.runs else 0.0 for cell in (one.row.on, one.row.off))

    return max(evidence, key=share)


def _counted_rows(rows: Sequence[Evidence]) -> str:
    """Say how many rows there are, and the k of n of the one that differed most with the flag on."""
    compared = [one.row.on for one in rows if counted(one.row.on)]
    if not compared:
        return several(len(rows), "row")
    most = max(compared, key=lambda cell: (cell.differing / cell.runs, -cell.runs))
    return f"{several(len(rows), 'row')} ({counted(most)} with the flag on)"
