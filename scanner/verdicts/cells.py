"""From observations to the verdict of a cell: pure functions, total over every outcome.

The verdict of a cell joins its processes: outputs are compared by digest across all of them, in one set per
mode, so that a difference between processes counts like one within a process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache, reduce
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from detmatrix.scanner.alerts import REFUSAL, alert_caller
from detmatrix.scanner.observations.records import (
    Blank,
    Compiled,
    Observation,
    Outcome,
    Output,
    Row,
    Severity,
    Simulation,
)
from detmatrix.scanner.plurals import several
from detmatrix.scanner.schedules import MEMORY
from detmatrix.scanner.verdicts import simulated
from detmatrix.scanner.verdicts.bound import upper_bound
from detmatrix.scanner.verdicts.vocabulary import ModeFinding, Verdict

NO_REASON = "no reason was recorded"
# Endings that are their own verdict.
_ENDED: dict[Outcome, Verdict] = {"timeout": "timeout", "crash": "crash", "not_run": "not_run"}
COMPARED = ("deterministic", "nondeterministic")  # verdicts that rest on compared executions
USABLE = (*COMPARED, "raises")

# What a result that holds no information is called, where its spec does not declare that it is constant.
BLANK_MEANING: dict[Blank, str] = {
    "zeros": "produced all zeros",
    "nan": "produced all NaN",
    "value": "produced one value throughout",
    "input": "returned only its input",
}
# Of these any op that computes something is free; one value throughout may be an answer.
_VACUOUS: tuple[Blank, ...] = ("zeros", "nan", "input")


class GroupCount(Struct, frozen=True, kw_only=True):
    """The executions of a cell under one perturbation, all processes joined."""

    perturbation: str
    executions: int
    differing: int  # from the first execution of their process


class ReferenceCount(Struct, frozen=True, kw_only=True):
    """How executions are to a reference that holds in every mode, all processes joined."""

    unlike: int  # executions whose bits are not those of the reference
    elements: int  # of a first execution, at most, that are not

    @property
    def words(self) -> str:
        """Say it, but for the n that stands beside it."""
        if not self.unlike:
            return "as its reference"
        where = f", {several(self.elements, 'element')} of the first" if self.elements else ""
        return f"{self.unlike} not as its reference{where}"


class Cell(Struct, frozen=True, kw_only=True):
    """One row under one mode, all processes joined."""

    verdict: Verdict
    runs: int = 0  # n: executions compared
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
    # Whether in all processes one thread did the work of the phase that is judged; None: not measured.
    serial: bool | None = None
    # The compared tensors: of each the executions that were not as the first of their process, and the largest distances.
    outputs: tuple[Output, ...] = ()
    seeded: bool = False  # it drew random numbers, and its generator was seeded before every execution
    # Backward only: executions whose forward outputs were not those of the first of their process; None: nothing was observed.
    forward_differing: int | None = None
    # The first execution that was not as the first of its process, and that process; None: there is none.
    first_differing: tuple[int, int] | None = None
    by_process: tuple[int, ...] = ()  # executions of each process
    reference: ReferenceCount | None = None  # None: it has none that holds in every mode
    # Executions that did not give the most frequent bits of their process, and processes that did not begin with those of most.
    # Which came first makes no difference.
    rarer: int = 0
    rarer_processes: int = 0
    # In which some differed from the first of all.
    differing_processes: int = 0
    # The least that torch.compile made of it in a process; None: not asked to.
    compiled: Compiled | None = None
    blank: Blank | None = None  # of an error: every output was that
    # On a simulated GPU: of the first process that differed, else of the first
    simulated: Simulation | None = None
    refused: bool = False  # in every process PyTorch refused to run what was compiled with another flag
    # Of a mode that ``--modes`` chose: what differs from the flag off; None: it has nothing to say of the row.
    finding: ModeFinding | None = None
    finding_reason: str | None = None  # why that is inconclusive
    weak: str | None = None  # low power: why that nothing differed in it says little
    # Under torch.compile: what was compiled, and how its bits are to eager ones.
    remarks: tuple[str, ...] = ()

    @property
    def where(self) -> str | None:
        """Where the differences lie; ``None`` if there are none."""
        if not self.differing:
            return None
        if not self.between:
            return "within a process"
        return "within and between processes" if self.within else "between processes only"

    @property
    def agrees(self) -> bool | None:
        """Whether a simulated GPU computed what the CPU does; ``None``: not compared."""
        return self.simulated.cpu.agrees if self.simulated and self.simulated.cpu else None

    @property
    def reads_unwritten(self) -> bool:
        """Whether a simulated GPU gave other bits because memory that nobody wrote held others."""
        schedule = self.simulated and self.simulated.schedule
        return bool(schedule and schedule.name == MEMORY)

    @property
    def upper_bound(self) -> float | None:
        """95 % upper bound on the rate of differing when 0 of n differed; ``None`` otherwise."""
        # Schedules are no samples of a rate.
        counts = self.verdict == "deterministic" and self.simulated is None
        return upper_bound(self.by_process) if counts else None

    @property
    def compared(self) -> bool:
        """Whether executions were compared."""
        return self.verdict in COMPARED

    @property
    def bound(self) -> float | None:
        """The bound on the rate of differing; ``None`` where 0 of n says nothing, as of a constant."""
        return None if self.constant else self.upper_bound

    @property
    def processes(self) -> tuple[int, int] | None:
        """Of compiled code, which each process compiled anew: in how many of them it differed, and how many there were."""
        if self.compiled is None or not self.compared:
            return None
        return self.differing_processes, len(self.by_process)

    @property
    def counted(self) -> str:
        """The words "k of n differed" where executions were compared, or the schedule that differs; else nothing."""
        if not self.compared:
            return ""
        if not self.simulated:
            return f"{self.differing} of {self.runs} differed"
        schedule = self.simulated.schedule
        if schedule:
            return f"differs under {simulated.schedule_words(schedule)}"
        known = self.simulated
        return simulated.proved(known) if known.race_free else f"0 of {self.runs} schedules differed"

    @property
    def details(self) -> str:
        """What the cell says behind its verdict if executions were compared, else nothing."""
        return ", ".join(self._parts)

    @property
    def _parts(self) -> list[str]:
        if not self.compared:
            return []
        # Schedules are compared in one process, and end where one gives other bits.
        counts = (
            [] if self.simulated else [f"{self.distinct} distinct", self.where if not self.within else None]
        )
        compiled = None
        if self.processes is not None:
            differing, of = self.processes
            seen = f"{differing} of {of}" if self.differing else str(of)
            compiled = f"in {seen} {'process' if of == 1 else 'processes'}"
        known = self.simulated
        parts = (
            simulated.standing(known, self.runs) if known else self.counted,
            *(simulated.behind_standing(known) if known else []),
            *(["constant", *counts[1:]] if self.constant else counts),
            *(simulated.cell_words(known) if known else []),
            # What a backward row is judged by are its gradients.
            f"{self.forward_differing} in the forward phase" if self.forward_differing else None,
            self.reference.words if self.reference else None,
            "seeded" if self.seeded else None,
            compiled,
        )
        return [it for it in parts if it]

    @property
    def short(self) -> str:
        """The verdict, or k of n as a fraction."""
        if self.simulated and self.simulated.schedule and self.compared:
            return self.simulated.schedule.name
        return f"{self.differing}/{self.runs}" if self.compared else self.verdict

    @property
    def words(self) -> str:
        """The verdict, k of n, the distinct outputs, and where they differ."""
        if not self.compared:
            return f"{self.verdict}{', seeded' if self.seeded else ''}"
        if self.simulated:
            rests_on, *more = self._parts
            return ", ".join([f"{self.verdict} ({rests_on})", *more])
        return f"{self.verdict}: {self.details}"

    @property
    def under(self) -> str:
        """Under which perturbations executions differed from the first of their process."""
        if not self.groups:
            return "not recorded"
        counts = [
            f"{it.perturbation} {it.differing} of {it.executions}" for it in self.groups if it.differing
        ]
        return ", ".join(counts) or "none"

    @property
    def ended(self) -> str:
        """The verdict with its reason in brackets, if there is one."""
        return f"{self.verdict} ({self.reason})" if self.reason else self.verdict

    @property
    def failure(self) -> str | None:
        """Why the cell has no usable verdict; ``None`` if it has one."""
        return None if self.verdict in USABLE else f"{self.verdict}: {self.cause}"

    @property
    def cause(self) -> str:
        """The reason in words."""
        return self.reason or NO_REASON

    @property
    def severity(self) -> Severity | None:
        """The largest of each measure over all outputs; ``None`` if none was looked at."""
        return reduce(farthest, (output.severity for output in self.outputs), None)


def row_cell(observations: Sequence[Observation], missing: str, row: Row) -> Cell:
    """Join what the processes of one mode observed of a row, in any order; *missing* is the reason where there is nothing."""
    if not observations:
        return _absent(missing)
    ordered = sorted(observations, key=lambda observation: observation.process)
    firsts = [(one.first_differing, one.process) for one in ordered if one.first_differing is not None]
    return replace(
        _judged(ordered, row),
        seconds=sum(observation.seconds for observation in ordered),
        outputs=_outputs(ordered),
        seeded=any(observation.seeded for observation in ordered),
        forward_differing=sum(observation.forward_differing for observation in ordered),
        first_differing=min(firsts, default=None),
    )


def farthest(one: Severity | None, other: Severity | None) -> Severity | None:
    """Return the largest of each measure of both, over all that were examined."""
    if one is None or other is None:
        return one or other
    known: dict[str, list[Any]] = {
        name: [value for value in (getattr(one, name), getattr(other, name)) if value is not None]
        for name in Severity.__struct_fields__
    }
    largest: dict[str, Any] = {name: max(values, default=None) for name, values in known.items()}
    return Severity(**largest | {"examined": one.examined + other.examined})


def _outputs(observations: Iterable[Observation]) -> tuple[Output, ...]:
    """Return the compared tensors of some processes: executions that differed summed, distances the largest.

    Each process counts against its own first execution; what differs only between processes shows in the cell's k of n.
    """
    outputs: dict[str, Output] = {}
    for output in (output for observation in observations for output in observation.outputs):
        before = outputs.get(output.name)
        if before is not None and (differing := before.differing + output.differing):
            severity = farthest(before.severity, output.severity)
            outputs[output.name] = replace(output, differing=differing, severity=severity)
        else:
            outputs[output.name] = output
    return tuple(outputs.values())


def _judged(ordered: Sequence[Observation], row: Row) -> Cell:
    """Return the verdict of the processes of one mode, and what it rests on."""
    if len({observation.inputs_digest for observation in ordered} - {None}) > 1:
        return Cell(verdict="error", reason="the inputs differed between processes")
    simulations = [one.simulated for one in ordered if one.simulated]
    simulation = next((one for one in simulations if one.schedule), next(iter(simulations), None))
    failed = [observation for observation in ordered if observation.outcome != "ran"]
    compiled = _least([observation.compiled for observation in ordered if observation.compiled])
    if not failed:
        return replace(_compared(ordered, row), compiled=compiled, simulated=simulation)
    verdict, alert, reason = _failure(failed[0])
    if len({_failure(observation)[:2] for observation in failed}) > 1 or len(failed) < len(ordered):
        text = "; ".join(
            f"process {observation.process}: {_described(observation)}" for observation in ordered
        )
        # Processes that disagree prove nothing, even if one of them raised the alert; nor is what one of them ran not_run.
        verdict = "error" if verdict in {"raises", "not_run"} else verdict
        return Cell(verdict=verdict, reason=f"processes disagree ({text})")
    return Cell(
        verdict=verdict,
        alert=alert,
        reason=reason,
        compiled=compiled,
        simulated=simulation,
        refused=all(one.outcome == "raised" and REFUSAL in (one.message or "") for one in failed),
    )


def _least(compiled: Sequence[Compiled]) -> Compiled | None:
    """Return what was compiled in the process in which that was least."""
    if not compiled:
        return None
    return Compiled(
        graphs=min(one.graphs for one in compiled),
        breaks=max(one.breaks for one in compiled),
        kernels=min(one.kernels for one in compiled),
        hits=min(one.hits for one in compiled),
    )


@lru_cache(maxsize=16)
def _absent(missing: str) -> Cell:
    """Return the cell of a mode in which a row was not observed, as most rows are in some; there may be a million."""
    return Cell(verdict="not_run", reason=missing)


# Of earlier releases, which asked for other orders of these programs, too; that they did not differ in one order is no evidence.
_INTERPRETED = (
    "Triton's interpreter ran the programs of its kernels one after the other; scan it with --simulate"
)


def _compared(ordered: Sequence[Observation], row: Row) -> Cell:
    """Return the verdict of processes that all ran: one set of outputs for the mode."""
    outputs = Counter[str]()
    for observation in ordered:
        outputs.update(observation.digests)
    runs = outputs.total()
    if runs < 2:  # noqa: PLR2004
        return Cell(verdict="not_run", runs=runs, reason="a single execution has nothing to differ from")
    # A digest keeps the place where it was first seen, so the first is what the others are held against.
    first = next(iter(outputs))
    differing = runs - outputs[first]
    constant, blank, part = row.may_be_blank, ordered[0].blank, ordered[0].blank_output
    # The first process that can tell how many threads work does; the others need not.
    threads = {observation.threads for observation in ordered} - {None}
    # Of what is written by hand each output must hold some information, even if not all must.
    if not differing and blank in _VACUOUS and ((part and not row.provoked) or not constant):
        reason = f"{part}: {BLANK_MEANING[blank]}" if part else BLANK_MEANING[blank]
        return Cell(verdict="error", runs=runs, reason=reason, blank=blank)
    if not differing and any(observation.launches for observation in ordered):
        return Cell(verdict="error", runs=runs, reason=_INTERPRETED)
    return Cell(
        verdict="nondeterministic" if differing else "deterministic",
        runs=runs,
        differing=differing,
        distinct=len(outputs),
        first=first,
        within=sum(_within(observation) for observation in ordered),
        between=len({next(iter(observation.digests)) for observation in ordered}) > 1,
        constant=bool(constant and blank and not part and not differing),
        alerts=tuple(dict.fromkeys(alert for observation in ordered for alert in observation.alerts)),
        groups=_joined(ordered),
        # A backward phase is given what came out of the forward one.
        serial=threads == {1} and not any(one.forward_differing for one in ordered) if threads else None,
        by_process=tuple(sum(observation.digests.values()) for observation in ordered),
        reference=_reference(ordered),
        rarer=sum(sum(one.digests.values()) - max(one.digests.values()) for one in ordered),
        rarer_processes=len(ordered) - max(Counter(next(iter(one.digests)) for one in ordered).values()),
        differing_processes=sum(next(iter(one.digests)) != first or _within(one) > 0 for one in ordered),
    )


def _reference(ordered: Sequence[Observation]) -> ReferenceCount | None:
    """Count what is not as the reference of the case."""
    held = [(one, one.reference) for one in ordered if one.reference]
    if not held:
        return None
    return ReferenceCount(
        unlike=sum(count for one, it in held for digest, count in one.digests.items() if digest != it.digest),
        elements=max(it.elements for _, it in held),
    )


def _within(observation: Observation) -> int:
    """Return how many executions differed from the first one of their own process."""
    return sum(observation.digests.values()) - next(iter(observation.digests.values()))


def _joined(ordered: Sequence[Observation]) -> tuple[GroupCount, ...]:
    """Add the groups of all processes up by perturbation; retired ones are left out."""
    executions, differing = Counter[str](), Counter[str]()
    groups = (group for observation in ordered for group in observation.groups)
    for group in (group for group in groups if group.digests is None):
        executions[group.perturbation] += group.executions
        differing[group.perturbation] += group.differing
    return tuple(
        GroupCount(perturbation=name, executions=count, differing=differing[name])
        for name, count in executions.items()
    )


def _failure(observation: Observation) -> tuple[Verdict, str | None, str | None]:
    """Return verdict, alert caller and reason of an observation that did not run through."""
    message = observation.message
    if observation.outcome == "raised":
        caller = alert_caller(observation.exception, message)
        if caller is not None and observation.mode != "off":
            return "raises", caller, message
        return "error", None, f"{observation.exception}: {message}" if message else observation.exception
    return _ENDED.get(observation.outcome, "error"), None, message


def _described(observation: Observation) -> str:
    """Say in a few words what one process saw."""
    if observation.outcome == "ran":
        return f"ran, {len(observation.digests)} distinct in {observation.executions}"
    verdict, _, reason = _failure(observation)
    return f"{verdict}, {reason}" if reason else verdict
