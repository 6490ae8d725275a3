"""What each control must answer, and whether it did; and why a run cannot be trusted, whatever its closing line says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import islice

from msgspec import Struct

from detmatrix.opspecs.controls import schedule
from detmatrix.scanner.alerts import alert_caller
from detmatrix.scanner.modes import MODE_TABLE
from detmatrix.scanner.observations import torch_versions
from detmatrix.scanner.observations.parts import part_by_worker
from detmatrix.scanner.observations.records import AS_ON_CPU, Header, Mode, Observation
from detmatrix.scanner.observations.runfile import Run
from detmatrix.scanner.schedules import MEMORY
from detmatrix.scanner.verdicts.findings import unequal_inputs
from detmatrix.scanner.verdicts.invariance import is_control, misled

# What a control must show is derived when a run file is read, from `detmatrix.opspecs.controls`: a change there that gives other
# answers needs a new format of the run file.

# The first release in which the flag has uninitialised memory filled.
_FILLS_SINCE = (2, 1)
_SPARES_SINCE = (2, 2)  # and when a program may have it spare them


# Of a simulated GPU, with the flag off and with it on: the class of schedules in which a control must be the first to give other
# bits, that none does, or that none can, which the conflict log proves.
_PROVED, _EQUAL = "race-free", "no differences"
_SIMULATED = {
    "elementwise": (_PROVED, _PROVED),
    "barriers": (_PROVED, _PROVED),
    "last_block": (_EQUAL, _EQUAL),
    "integer_scan": (_EQUAL, _EQUAL),
    "radix_sort": (_PROVED, _PROVED),
    "integer_atomics": (_PROVED, _PROVED),
    "accumulate": (_PROVED, _PROVED),
    "atomics": ("resident-blocks", _PROVED),
    "warp_atomics": ("warps", _PROVED),
    "lane_atomics": ("lanes", _PROVED),
    "scan": ("resident-blocks", _PROVED),
    "products": ("resident-blocks", "resident-blocks"),
    "stores": ("resident-blocks", _PROVED),
    "unwritten": (MEMORY, _PROVED),
    "read_write": ("warps", "warps"),
}
# Of which the CPU has nothing to say.
_UNLIKE_CPU = {"stores", "unwritten", "read_write"}


class ControlCheck(Struct, frozen=True, kw_only=True):
    """One control in one process of one mode: what it had to show, and what it showed."""

    control: str
    mode: Mode
    process: int
    expected: str
    seen: str

    @property
    def ok(self) -> bool:
        """Whether it answered rightly."""
        return self.expected == self.seen


def check_controls(header: Header, observations: Iterable[Observation]) -> list[ControlCheck]:
    """Hold what was observed of the controls against what each must answer, in the order of observation."""
    checks = []
    part_of = part_by_worker(header)
    first_digests: dict[int, str] = {}
    for observation in observations:
        expected, seen = _answers(header, observation)
        if observation.spec == "control.constant" and expected == seen:
            digest = next(iter(observation.digests))
            # One output for the whole scan: its modes and processes are held against one another too. Other machines may
            # have other kernels.
            first_digest = first_digests.setdefault(part_of[observation.worker].shard, digest)
            seen = seen if digest == first_digest else "other bits than in the first process"
        checks.append(
            ControlCheck(
                control=observation.spec.removeprefix("control."),
                mode=observation.mode,
                process=observation.process,
                expected=expected,
                seen=seen,
            )
        )
    return checks


def misbehaving(header: Header, observations: Iterable[Observation]) -> tuple[str, ...]:
    """Say of each control that answered wrongly what it should have shown and what it showed."""
    return tuple(
        f"the control {check.control} in process {check.process} of mode {check.mode} should show "
        f"{check.expected}, and shows {check.seen}"
        for check in check_controls(header, observations)
        if not check.ok
    )


def _answers(header: Header, observation: Observation) -> tuple[str, str]:
    """Return what a control must show and what it shows, in the same words if it is right."""
    name = observation.spec.removeprefix("control.")
    if name == "alerts" and MODE_TABLE[observation.mode].alerts:
        return "the alert of put_", _seen(observation)
    if observation.outcome != "ran":
        return "a result", _seen(observation)
    if name in _SIMULATED:
        return _simulated(name, observation)
    n = observation.executions
    differing = _described(n - next(iter(observation.digests.values())), n)
    if name == "uninitialised":
        return _uninitialised(header, observation, differing)
    seeded = "seeded" if observation.seeded else "not seeded"
    # Alerts are caught under warn_only; with the flag off there are none.
    alert = "put_" if observation.mode == "warn_only" else "none"
    alerts = " ".join(observation.alerts) or "none"
    answers = {
        "constant": (_described(0, n), differing),
        "varies": (f"{n} distinct of {n}", f"{len(observation.digests)} distinct of {n}"),
        "rare": (_described(_differing_rarely(n), n), differing),
        "random": (f"{_described(0, n)}, seeded", f"{differing}, {seeded}"),
        "alerts": (f"{_described(0, n)}, alerts: {alert}", f"{differing}, alerts: {alerts}"),
    }
    return answers.get(name, ("a control that this detmatrix knows", observation.spec))


def _simulated(name: str, observation: Observation) -> tuple[str, str]:
    """A control must differ in exactly its class, or be proved not to, and give the values of the CPU."""
    mode, known = MODE_TABLE[observation.mode], observation.simulated
    wanted = _SIMULATED[name][mode.deterministic and (mode.fill or name != "unwritten")]
    # Between rows the canonical schedule alone is asked.
    if len(observation.groups) == 1 and wanted not in (_PROVED, _EQUAL):
        wanted = _PROVED if wanted == MEMORY else _EQUAL
    if known is None or name in _UNLIKE_CPU or mode.execution != "eager":
        told = AS_ON_CPU
    else:
        told = known.cpu.words if known.cpu else "nothing of the CPU"
    if known is None or known.schedule is None:
        shown = _PROVED if known and known.race_free else _EQUAL
    else:
        shown = known.schedule.name
    return f"{wanted}, {AS_ON_CPU}", f"{shown}, {told}"


def _uninitialised(header: Header, observation: Observation, differing: str) -> tuple[str, str]:
    """Memory that nobody wrote must show where it is poisoned, and must not where the flag has it filled."""
    mode = MODE_TABLE[observation.mode]
    release = torch_versions.minor(header.environment.torch)
    if mode.deterministic and release >= _FILLS_SINCE and (mode.fill or release < _SPARES_SINCE):
        filled = "filled with NaN" if observation.blank == "nan" else "not filled"
        return f"{_described(0, observation.executions)}, filled with NaN", f"{differing}, {filled}"
    poisoned = [group for group in observation.groups if group.perturbation == "poison"]
    # The first execution is quiet, and what one other finds may lie anywhere.
    if sum(group.executions for group in poisoned) <= 2:  # noqa: PLR2004
        return "a result", "a result"
    seen = any(group.differing for group in poisoned)
    return "differences under poison", "differences under poison" if seen else "none under poison"


def _seen(observation: Observation) -> str:
    """Say how an observation that did not run through ended."""
    if observation.outcome == "ran":
        return "a result"
    caller = alert_caller(observation.exception, observation.message)
    if caller is not None:
        return f"the alert of {caller}"
    message = ": ".join(text for text in (observation.exception, observation.message) if text)
    return f"{observation.outcome} ({message})" if message else observation.outcome


@cache
def _differing_rarely(executions: int) -> int:
    """Return how many of so many executions of the rare control differ."""
    return sum(islice(schedule(), executions))


def _described(differing: int, n: int) -> str:
    return f"{differing} of {n} differed"


def distrust(run: Run) -> tuple[str, ...]:
    """Say why a run cannot be trusted; its observations are asked even where its closing line says nothing."""
    stored = run.closing.distrust if run.closing else ()
    missing = (
        f"the control {control} was not observed in process {process} of mode {mode}"
        for control, mode, process in unobserved(run)
    )
    shown = (
        *unequal_inputs(run.observations),
        *misbehaving(run.header, run.controls),
        *invariance_distrust(run),
    )
    return tuple(dict.fromkeys((*stored, *run.distrust, *shown, *missing)))


def unobserved(run: Run) -> Iterator[tuple[str, Mode, int]]:
    """Yield the controls that a finished scan passed over where it observed rows, each with mode and process."""
    if run.closing is None:
        return
    seen = {(control.key, control.mode, control.process, control.worker) for control in run.controls}
    for mode, process, worker in dict.fromkeys(
        (one.mode, one.process, one.worker) for one in run.observations
    ):
        for control in run.header.controls:
            if (control.key, mode, process, worker) not in seen:
                yield control.spec.removeprefix("control."), mode, process


def invariance_distrust(run: Run) -> Iterator[str]:
    """Yield why what a run says of invariance cannot be trusted."""
    controls = [one for one in run.invariances if is_control(one)]
    yield from misled(controls)
    if run.closing is None:
        return
    part_of = part_by_worker(run.header)
    # Those of one machine vouch for no other.
    answered = {(part_of[one.worker].shard, one.what) for one in controls}
    asked = {(part_of[one.worker].shard, one.what) for one in run.invariances}
    yield from (f"no control was asked of {what}" for _, what in sorted(asked - answered))
