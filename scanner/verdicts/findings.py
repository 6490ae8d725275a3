"""From observations to cell verdicts and findings: pure functions, total over every outcome.

The verdict of a cell joins its processes: outputs are compared by digest across all of them, in one set per
mode, so that a difference between processes counts like one within a process.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from msgspec import Struct

from scanner.alerts import alert_caller
from scanner.observations.records import (
    MODES,
    WORKER_MODES,
    Blank,
    Cost,
    Header,
    Mode,
    Observation,
    Row,
    Sentinel,
)
from scanner.observations.settings import MOST_FURTHER
from scanner.verdicts.power import PowerCheck

Verdict = Literal["deterministic", "nondeterministic", "raises", "error", "timeout", "crash", "not_run"]
Finding = Literal[
    "deterministic",
    "mode_dependent",
    "uninitialized",
    "fixed_by_mode",
    "raises",
    "over_alert",
    "silent",
    "inconclusive",
]

# One sentence each, printed with every report. The order is that of the reports.
VERDICT_MEANING: dict[Verdict, str] = {
    "deterministic": "No execution differed from the first, bit for bit, in n executions; this bounds the rate "
    "of differing, and does not rule out nondeterminism.",
    "nondeterministic": "k of n executions differed in at least one bit from the first, on the same inputs.",
    "raises": "PyTorch raised its alert that the op has no deterministic implementation.",
    "error": "Something else went wrong, and the reason is given; this says nothing about determinism.",
    "timeout": "The case took longer than the limit and was stopped.",
    "crash": "The worker process ended in the middle of the case.",
    "not_run": "The case was never executed, and the reason is given.",
}
FINDING_MEANING: dict[Finding, str] = {
    "silent": "The flag is on, nothing was raised, and the bits differ.",
    "raises": "Raises with the flag on, and does differ: with it off, or under warn_only.",
    "over_alert": "Raises with the flag on although no difference was seen, neither with it off nor under "
    "warn_only.",
    "fixed_by_mode": "Differs with the flag off, did not differ with it on.",
    "uninitialized": "Differs with the flag off, and with it on unless uninitialized memory is filled: the fill fixes it, "
    "not the flag.",
    "mode_dependent": "Did not differ within either mode, but the modes give different bits.",
    "deterministic": "Did not differ in either mode, and both modes give the same bits.",
    "inconclusive": "At least one mode has no usable verdict; the reason is given.",
}


# What a result that holds no information is called, where its spec does not declare that it is constant.
BLANK_MEANING: dict[Blank, str] = {
    "zeros": "produced all zeros",
    "nan": "produced all NaN",
    "value": "produced one value throughout",
    "input": "returned only its input",
}
# Executions with the flag off, at least, before a row that did not differ in them is called mode_dependent or
# over_alert: as many as a scan of the catalog makes by default, and half of it where nothing can race. Ten executions do
# not tell a race that shows in one of a hundred from what the flag does.
LEAST_RUNS = 100
LEAST_SERIAL_RUNS = 50
# Findings that say of a row that it is deterministic although the flag changes what it does, each with what is not known
# as long as it was executed too seldom.
NEED_RUNS: dict[Finding, str] = {
    "mode_dependent": "whether the flag gives other bits, or a race does",
    "over_alert": "whether what raises ever differs",
}
# Executions with the flag off that a scan aims at before it says so. Rows with other bits are few, and a race that shows in
# one of 200 executions is seen in 1000 of them with 99 %.
_AIM: dict[Finding, int] = {"mode_dependent": MOST_FURTHER, "over_alert": LEAST_RUNS}
# Findings that rest on nothing having differed.
_STILL: tuple[Finding, ...] = ("deterministic", *NEED_RUNS)

# Of these any op that computes something is free; one value throughout may be an answer.
_VACUOUS: tuple[Blank, ...] = ("zeros", "nan", "input")


class GroupCount(Struct, frozen=True, kw_only=True):
    """The executions of a cell under one perturbation, all processes joined."""

    perturbation: str
    executions: int
    differing: int  # from the first execution of their process


class Cell(Struct, frozen=True, kw_only=True):
    """One row under one mode, all processes joined."""

    verdict: Verdict
    runs: int = 0  # n: executions compared; those under other thread counts only where they differ
    differing: int = 0  # k: executions whose bits are not those of the first
    distinct: int = 0
    first: str | None = None  # digest of the first output
    alert: str | None = None  # the caller named in the alert
    reason: str | None = None
    seconds: float = 0.0
    within: int = 0  # executions that differed from the first of their own process
    between: bool = False  # processes disagree about their first output
    constant: bool = False  # its spec declares that it holds no information, and so it was
    alerts: tuple[str, ...] = ()  # warn_only: callers of all alerts
    groups: tuple[GroupCount, ...] = ()
    other_threads: tuple[str, ...] = ()  # thread counts that give bits of their own, "threads=1"
    serial: bool = False  # in all processes one thread did the work of an execution

    @property
    def where(self) -> str | None:
        """Where the differences lie; ``None`` if there are none."""
        if not self.differing:
            return None
        if not self.between:
            return "within a process"
        return "within and between processes" if self.within else "between processes only"

    @property
    def upper_bound(self) -> float | None:
        """95 % upper bound on the rate of differing when 0 of n differed; ``None`` otherwise."""
        return upper_bound(self.runs) if self.verdict == "deterministic" else None


class MatrixRow(Struct, frozen=True, kw_only=True):
    """One row of the matrix: what was planned, what each mode showed, and what follows."""

    row: Row
    off: Cell
    on: Cell
    finding: Finding
    reason: str | None  # why the finding is inconclusive
    warn_only: Cell  # mode warn_only: what an op that raises does under warn_only
    unfilled: Cell  # mode unfilled: what an op that the flag cures does without the fill
    weak: str | None  # low power: why "deterministic" says little here
    serial: bool  # it did not differ, and with the flag off one thread did all the work, so that nothing could race
    cost: Cost | None
    observations: tuple[Observation, ...]  # by mode and process, for details


def upper_bound(n: int) -> float:
    """Largest rate of differing that 0 of *n* leaves plausible at 95 %: ``1 - 0.05 ** (1 / n)``."""
    return float(1 - 0.05 ** (1 / n))


def observation_verdict(observation: Observation, row: Row | None = None) -> Verdict:
    """Return the verdict of a single process, as progress shows it."""
    return _cell([observation], "", row).verdict if row else cell_of([observation]).verdict


def _cell(observations: Sequence[Observation], missing: str, row: Row) -> Cell:
    return cell_of(observations, missing, constant=row.may_be_blank, strict=not row.provoked)


def cell_of(
    observations: Sequence[Observation],
    missing: str = "not reached by the scan",
    *,
    constant: str = "",
    strict: bool = True,
) -> Cell:
    """Join what the processes of one mode observed of one row.

    Args:
        observations: Those of one row and one mode, in any order.
        missing: The reason given when there are none.
        constant: Why the row's result may hold no information; empty if it must hold some.
        strict: Whether each of its outputs must, if they do not all hold none.
    """
    if not observations:
        return Cell(verdict="not_run", reason=missing)
    ordered = sorted(observations, key=lambda observation: observation.process)
    seconds = sum(observation.seconds for observation in ordered)
    if len({observation.inputs_digest for observation in ordered} - {None}) > 1:
        return Cell(verdict="error", reason="the inputs differed between processes", seconds=seconds)
    failed = [observation for observation in ordered if observation.outcome != "ran"]
    if not failed:
        return _compared(ordered, seconds, constant, strict=strict)
    verdict, alert, reason = _failure(failed[0])
    if len({_failure(observation)[:2] for observation in failed}) > 1 or len(failed) < len(ordered):
        text = "; ".join(
            f"process {observation.process}: {_described(observation)}" for observation in ordered
        )
        # Processes that disagree prove nothing, even if one of them raised the alert.
        verdict = "error" if verdict == "raises" else verdict
        return Cell(verdict=verdict, reason=f"processes disagree ({text})", seconds=seconds)
    return Cell(verdict=verdict, alert=alert, reason=reason, seconds=seconds)


def _compared(ordered: Sequence[Observation], seconds: float, constant: str, *, strict: bool) -> Cell:
    """Return the verdict of processes that all ran: one set of outputs for the mode.

    Executions with another thread count are a set of their own, since other bits are no nondeterminism there.
    """
    sets: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for observation in ordered:
        sets[""].update(observation.digests)
        for group in observation.groups:
            sets[group.perturbation].update(group.digests or {})
    main = sets.pop("")
    runs = main.total()
    if runs < 2:  # noqa: PLR2004
        return Cell(verdict="not_run", runs=runs, reason="a single execution has nothing to differ from")
    # A digest keeps the place where it was first seen, so the first of a set is its reference.
    firsts = {name: next(iter(outputs)) for name, outputs in sets.items() if outputs}
    first = next(iter(main))
    differing = runs - main[first]
    # A set that does not differ in itself adds nothing: with one thread hardly anything could.
    apart = {
        name: sets[name] for name, reference in firsts.items() if sets[name][reference] < sets[name].total()
    }
    runs += sum(outputs.total() for outputs in apart.values())
    differing += sum(outputs.total() - outputs[firsts[name]] for name, outputs in apart.items())
    blank, part = ordered[0].blank, ordered[0].blank_output
    if not differing and blank in _VACUOUS and ((part and strict) or not constant):
        reason = f"{part}: {BLANK_MEANING[blank]}" if part else BLANK_MEANING[blank]
        return Cell(verdict="error", runs=runs, reason=reason, seconds=seconds)
    return Cell(
        verdict="nondeterministic" if differing else "deterministic",
        runs=runs,
        differing=differing,
        distinct=len(main) + sum(len(outputs) - 1 for outputs in apart.values()),
        first=first,
        seconds=seconds,
        within=sum(_within(observation) for observation in ordered),
        between=_between(ordered),
        constant=bool(constant and blank and not part and not differing),
        alerts=tuple(dict.fromkeys(alert for observation in ordered for alert in observation.alerts)),
        groups=_joined(ordered),
        other_threads=tuple(name for name, reference in firsts.items() if reference != first),
        serial=all(observation.threads == 1 for observation in ordered),
    )


def _within(observation: Observation) -> int:
    """Return how many executions differed from the first one they were compared with in their own process."""
    sets = [observation.digests, *(group.digests for group in observation.groups if group.digests)]
    return sum(sum(digests.values()) - next(iter(digests.values())) for digests in sets)


def _between(ordered: Sequence[Observation]) -> bool:
    """Tell whether processes disagree about the first output, under any circumstances that are compared apart."""
    firsts: defaultdict[str, set[str]] = defaultdict(set)
    for observation in ordered:
        firsts[""].add(next(iter(observation.digests)))
        for group in observation.groups:
            if group.digests:
                firsts[group.perturbation].add(next(iter(group.digests)))
    return any(len(digests) > 1 for digests in firsts.values())


def _joined(ordered: Sequence[Observation]) -> tuple[GroupCount, ...]:
    """Add the groups of all processes up by perturbation."""
    counts: dict[str, tuple[int, int]] = {}
    for observation in ordered:
        for group in observation.groups:
            executions, differing = counts.get(group.perturbation, (0, 0))
            counts[group.perturbation] = (executions + group.executions, differing + group.differing)
    return tuple(
        GroupCount(perturbation=name, executions=executions, differing=differing)
        for name, (executions, differing) in counts.items()
    )


def _failure(observation: Observation) -> tuple[Verdict, str | None, str | None]:
    """Return verdict, alert caller and reason of an observation that did not run through."""
    message = observation.message
    match observation.outcome:
        case "raised":
            caller = alert_caller(observation.exception, message)
            if caller is not None and observation.mode != "off":
                return "raises", caller, message
            return "error", None, f"{observation.exception}: {message}" if message else observation.exception
        case "timeout":
            return "timeout", None, message
        case "crash":
            return "crash", None, message
        case "not_run":
            return "not_run", None, message
        case _:
            return "error", None, message


def _described(observation: Observation) -> str:
    """Say in a few words what one process saw."""
    if observation.outcome == "ran":
        return f"ran, {len(observation.digests)} distinct in {observation.executions}"
    verdict, _, reason = _failure(observation)
    return f"{verdict}, {reason}" if reason else verdict


def unequal_inputs(observations: Iterable[Observation]) -> tuple[str, ...]:
    """Say of each observation whose inputs are not those its row had first; any such voids a scan."""
    first: dict[tuple[str, ...], str] = {}
    return tuple(
        f"the inputs of {':'.join(observation.key)} in process {observation.process} of mode {observation.mode} "
        f"are not those of the first process"
        for observation in observations
        if observation.inputs_digest is not None
        and first.setdefault(observation.key, observation.inputs_digest) != observation.inputs_digest
    )


def finding_of(
    off: Cell, on: Cell, warn_only: Cell | None = None, unfilled: Cell | None = None
) -> tuple[Finding, str | None]:
    """Return the class of a row from both modes, and the reason if it is inconclusive.

    Args:
        off: What was seen with the flag off.
        on: What was seen with it on.
        warn_only: What a row that raises did when it was run under warn_only with the flag on; ``None`` if none ever was, as in
            scans before there was such a mode.
        unfilled: What a row that differs with the flag off, and not with it on, did with the flag on and nothing filled.
    """
    finding, reason = _seen(off, on, warn_only, unfilled)
    if finding in NEED_RUNS and (needed := _runs_needed(off)) > off.runs:
        text = f"0 of {off.runs} executions differed with the flag off, of at least {needed} that would show"
        return "inconclusive", f"{text} {NEED_RUNS[finding]}"
    return finding, reason


def runs_missing(row: MatrixRow) -> int:
    """Return how many more executions with the flag off a scan makes of a row before it tells its finding."""
    warn_only = None if row.warn_only.verdict == "not_run" else row.warn_only
    finding, _ = _seen(row.off, row.on, warn_only, None)
    if finding not in NEED_RUNS:
        return 0
    # What cannot race is not waited for.
    aim = _AIM[finding] if not row.off.serial else LEAST_RUNS * (row.off.runs < LEAST_SERIAL_RUNS)
    return max(0, aim - row.off.runs)


def _runs_needed(off: Cell) -> int:
    return LEAST_SERIAL_RUNS if off.serial else LEAST_RUNS


def _seen(off: Cell, on: Cell, warn_only: Cell | None, unfilled: Cell | None) -> tuple[Finding, str | None]:
    """Return the finding of a row, however seldom it was executed."""
    same = off.first == on.first
    findings: dict[tuple[Verdict, Verdict], Finding] = {
        ("deterministic", "deterministic"): "deterministic" if same else "mode_dependent",
        ("nondeterministic", "deterministic"): "uninitialized"
        if unfilled is not None and unfilled.verdict == "nondeterministic"
        else "fixed_by_mode",
        ("nondeterministic", "raises"): "raises",
    }
    if on.verdict == "nondeterministic":
        return "silent", None
    if (off.verdict, on.verdict) == ("deterministic", "raises"):
        return _under_warn_only(warn_only)
    if (off.verdict, on.verdict) in findings:
        return findings[off.verdict, on.verdict], None
    failed = [
        f"{mode}: {cell.verdict}" + (f" ({cell.reason})" if cell.reason else "")
        for mode, cell in (("off", off), ("on", on))
        if cell.verdict not in ("deterministic", "nondeterministic", "raises")
    ]
    return "inconclusive", "; ".join(failed) or f"off: {off.verdict}, on: {on.verdict}"


def _under_warn_only(warn_only: Cell | None) -> tuple[Finding, str | None]:
    """Return the finding of a row that raises and did not differ with the flag off."""
    if warn_only is None or warn_only.verdict == "deterministic":
        return "over_alert", None
    if warn_only.verdict == "nondeterministic":
        return "raises", None
    text = f" ({warn_only.reason})" if warn_only.reason else ""
    return "inconclusive", f"warn_only: {warn_only.verdict}{text}"


def matrix(
    header: Header,
    observations: Iterable[Observation],
    *,
    closed: bool,
    sentinels: Iterable[Sentinel] = (),
    costs: Iterable[Cost] = (),
) -> Iterator[MatrixRow]:
    """Yield one row per planned row, in planned order, whether or not anything was observed of it.

    Args:
        header: The run's header, which plans the rows.
        observations: The run's observations.
        closed: Whether the run is complete, which decides what an absent observation is called.
        sentinels: What the sentinels saw, which decides what is of low power.
        costs: The run's timings.
    """
    seen: defaultdict[tuple[str, ...], dict[Mode, list[Observation]]] = defaultdict(
        lambda: {mode: [] for mode in WORKER_MODES}
    )
    for observation in observations:
        seen[observation.key][observation.mode].append(observation)
    cost_of = {cost.key: cost for cost in costs}
    power_check = PowerCheck(header, sentinels)
    missing = "not recorded" if closed else "the scan was interrupted before this case"
    for place, row in enumerate(header.planned):
        by_mode = seen.get(row.key) or {mode: [] for mode in WORKER_MODES}
        off, on = (_cell(by_mode[mode], missing, row) for mode in MODES)
        not_run_reason = "only ops that raise are run under warn_only" if on.verdict != "raises" else missing
        warn_only = _cell(by_mode["warn_only"], not_run_reason, row)
        cured = off.verdict == "nondeterministic" and on.verdict == "deterministic"
        unfilled = _cell(
            by_mode["unfilled"],
            missing if cured else "only ops that the flag cures run without the fill",
            row,
        )
        finding, reason = finding_of(
            off, on, warn_only if "warn_only" in header.settings.modes else None, unfilled
        )
        lines = tuple(
            sorted(
                (o for mode in WORKER_MODES for o in by_mode[mode]),
                key=lambda o: (WORKER_MODES.index(o.mode), o.process),
            )
        )
        if unequal_inputs(lines):
            finding, reason = "inconclusive", "the inputs differed between processes or modes"
        # With one thread nothing can race in any row; low power says so.
        serial = off.serial and header.environment.threads > 1 and finding in _STILL and not row.constant
        cells = {"off": off, "on": on, "warn_only": warn_only, "unfilled": unfilled}
        still = [o for o in lines if cells[o.mode].verdict == "deterministic"]
        yield MatrixRow(
            row=row,
            off=off,
            on=on,
            finding=finding,
            reason=reason,
            warn_only=warn_only,
            unfilled=unfilled,
            weak=power_check.of(place, [o for o in still if not row.constant]),
            serial=serial,
            cost=cost_of.get(row.key),
            observations=lines,
        )
