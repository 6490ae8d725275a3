"""Repeat one case and compare every execution with the first, bit by bit: what a worker does with a row."""

from __future__ import annotations

import gc
import math
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch

from detmatrix.opspecs.model import OpSpec
from detmatrix.opspecs.user import place_of
from detmatrix.scanner.alerts import alert_caller, caller_in
from detmatrix.scanner.modes import ExecutionKind
from detmatrix.scanner.perturbations import OF_SEVERAL_THREADS, CaseContext, shares
from detmatrix.scanner.schedules import CANONICAL, DIRECTED, EVERYTHING, MEMORY, PAIR, SCOPES, shown_in, split
from detmatrix.scanner.worker import bits, global_state, perturb, simulated
from detmatrix.scanner.worker.agreement import (
    CpuReference,
    NotComparedError,
    Prepare,
    exactness,
    real_size,
    rests_on_approximations,
)
from detmatrix.scanner.worker.comparison import OutputComparison
from detmatrix.scanner.worker.execution import (
    DRAWS,
    EXECUTIONS,
    Execution,
    InvalidCaseError,
    SwitchedExecution,
    called,
    failed,
    first_line,
    on_host,
    tensors_in,
)
from detmatrix.scanner.worker.held import state_of
from detmatrix.scanner.worker.threads import working_threads

# Under each perturbation a case that has differed so often has been shown to; more would only cost time.
_ENOUGH = 10
# Pairs of accesses in conflict that are tried alone, for one that shows the difference.
_MOST_SWAPS = 16
# What is not simulated, by how its calls begin.
_LIBRARIES = ("cuBLAS", "cuDNN", "cuFFT", "cuRAND", "cuSOLVER", "cuSPARSE", "NCCL", "NVRTC")
# On a GPU the flags are read after so many executions, to know whether that is so; then where it would be at the rate at
# which executions differed so far, and before what is queued would take more than so many seconds.
_FIRST_LOOK = 12
_LOOK_SECONDS = 0.5


def observe(
    spec: OpSpec,
    case: str,
    *,
    direction: str,
    dtype: str,
    device: str,
    seed: int,
    runs: int,
    perturbations: list[str] | None = None,
    max_time: float | None = None,
    count_threads: bool = False,
    execution: ExecutionKind = "eager",
    seconds: float = math.inf,
    sample: bool = False,
) -> dict[str, Any]:
    """Execute a case and return the observation, as fields of ``records.Observation``.

    There are fewer *runs* if the case has differed often enough, or executions have taken *max_time*, but two and one under each further
    perturbation. Perturbations share them; all are quiet if none is named. To count the threads of a CPU that work in a quiet execution
    takes milliseconds, for those of the execution before must have gone to sleep. A simulated GPU may take so many *seconds*.
    """
    before = global_state.snapshot()
    observed: dict[str, Any] = {"outcome": "invalid"}
    gpu = SimulatedGpu(seed, seconds) if simulated.active() else None
    drawn: dict[str, Any] = {"direction": direction, "dtype": dtype, "device": device, "seed": seed}

    def prepare(**more: Any) -> Execution:
        with global_state.uncounted():  # a database sets the flag while it draws
            return EXECUTIONS[execution](spec, case, **drawn, **more)

    try:
        budget = Budget(runs, perturbations or ["quiet"], max_time)
        _observe(observed, _Asked(prepare, budget, count_threads and device == "cpu", gpu, sample))
    except BaseException as error:  # noqa: BLE001 - an op may raise anything, sys.exit included; all of it is data
        observed.update(failed(error))
        if observed["outcome"] == "raised":
            observed.update(exception=type(error).__name__, message=_message(error, spec.file))
    if gpu:
        gpu.look()
        observed.update(settled(observed, gpu.seen))
    return observed | global_state.changed_since(before)


class SimulatedGpu:
    """The simulated GPU while one case is executed on it: what is asked of it, and all that it tells."""

    def __init__(self, seed: int, seconds: float) -> None:
        """Begin with the canonical schedule, under which inputs are placed."""
        self.seed = seed
        self.deadline = time.perf_counter() + seconds
        self.seen = simulated.Report([], [], [], [])
        self.conflicts: dict[str, Any] | None = None  # None: nobody has looked for them yet
        self.launched: dict[str, int] = {}  # kernels since the last time, and the most blocks of each
        self.approximates = False  # they took results whose last bits no document tells
        self.new = self.seen  # what the last look saw
        self.begin()

    def begin(self) -> None:
        """Let what follows be the first canonical execution."""
        simulated.begin(CANONICAL, 0, self.seed, self.deadline)

    def look(self) -> None:
        """Take in what happened since the last time."""
        seen, new = self.seen, simulated.report()
        self.new = new
        self.conflicts = new.conflicts or self.conflicts
        self.launched = new.most_blocks
        self.approximates |= new.approximates
        self.seen = seen._replace(
            faults=list(dict.fromkeys([*seen.faults, *new.faults])),
            libraries=list(dict.fromkeys([*seen.libraries, *new.libraries])),
            products=list(dict.fromkeys([*seen.products, *new.products])),
        )

    def scopes(self) -> list[str]:
        """Return in which scopes threads are in conflict; all of them where that is not known."""
        if self.conflicts is None or self.conflicts["doubts"]:
            return list(SCOPES)
        return [scope for scope, pairs in zip(SCOPES, self.conflicts["pairs"], strict=True) if pairs]

    def check(self) -> None:
        """Take it in, and end where further executions would prove nothing: a kernel or a library was not executed."""
        self.look()
        if self.seen.faults or self.seen.libraries:
            raise InvalidCaseError("it did not run as a GPU would run it")


def settled(observed: Mapping[str, Any], seen: simulated.Report) -> dict[str, Any]:
    """Return what becomes of an observation by what a simulated GPU told: pure, so that each rule can be tested."""
    simulation = observed.get("simulated", {}) | {"libraries": seen.libraries, "products": seen.products}
    told: dict[str, Any] = {"simulated": simulation}
    none = {"exception": None}
    # What a library was to compute leads kernels astray: numbers that are no places.
    faults = [one for one in seen.faults if not (seen.libraries and one[0] == "fault")]
    if faults:
        # Whatever the op made of it: it may even have swallowed the error.
        kind, text = faults[0]
        outcome = "timeout" if kind == "timeout" else "invalid"
        return told | none | {"outcome": outcome, "message": f"simulated GPU: {text}"}
    if observed["outcome"] == "raised" and alert_caller(observed["exception"], observed["message"]):
        return told
    if seen.libraries:
        calls = (
            next((f"{call} ({name})" for name in _LIBRARIES if call.lower().startswith(name.lower())), call)
            for call in seen.libraries
        )
        return told | none | {"outcome": "not_run", "message": f"calls {', '.join(calls)}"}
    if seen.products and observed["outcome"] == "ran" and not simulation.get("schedule"):
        return told | {
            "outcome": "not_run",
            "message": f"its matrix products ({', '.join(seen.products)}) were computed by the CPU; no schedule of PyTorch's "
            "own kernels gave other bits",
        }
    return told


class Budget:
    """How many executions, shared by which perturbations, and until when."""

    def __init__(self, runs: int, perturbations: list[str], max_time: float | None) -> None:
        self.runs = runs
        self.max_time = max_time
        # A scan that an earlier release began may name others, which are retired.
        known = [name for name in perturbations if name in perturb.STARTS] or ["quiet"]
        self.groups = [(name, perturb.STARTS[name]) for name in known]
        self.shares = shares(runs, [name for name, _ in self.groups])

    def narrow(self, scopes: list[str]) -> None:
        """Give the executions that are left to the classes of schedules that may change anything."""
        counts = split(self.runs, scopes)
        self.shares = [counts[name] for name, _ in self.groups]

    def deadline(self, group: int, now: float) -> float:
        """Return when a group must end for the others to get their part of the time that is left."""
        if self.max_time is None:
            return float("inf")
        return now + self.max_time * self.shares[group] / self.runs


def _message(error: BaseException, file: str) -> str:
    """Return the first line of an exception's text; all but an alert says where in the user's *file* of specs it came up."""
    text = first_line(error).removeprefix(type(error).__name__).removeprefix(": ")
    if alert_caller(type(error).__name__, text):
        return text
    return f"{text}{place_of(error, file)}".removeprefix(", ")


class _Asked(NamedTuple):
    """What is asked of a case, and of which GPU if that is simulated."""

    prepare: Prepare
    budget: Budget
    count_threads: bool
    gpu: SimulatedGpu | None
    sample: bool


def _observe(observed: dict[str, Any], asked: _Asked) -> None:
    """Fill in *observed* step by step, so that what was seen before an exception is kept."""
    started, gpu = time.perf_counter(), asked.gpu
    execution = asked.prepare(kept=DRAWS)
    inputs = execution.inputs()
    said = execution.said()
    words = execution.words()
    inputs_digest, unchanged = _digest(execution, inputs, said), bits.unchanged(inputs)
    observed.update(
        inputs=[*(_summary(name, tensor) for name, tensor in inputs), *said],
        inputs_digest=inputs_digest,
        setup_seconds=time.perf_counter() - started,
    )
    started, times_set = time.perf_counter(), global_state.times_set()
    try:
        if gpu:
            gpu.check()
        repetition = _Repetition(execution, observed, asked)
        observed.update(repetition.run())
    finally:
        observed.update(execution.facts(), seconds=time.perf_counter() - started)
    if gpu:
        if execution.smaller:
            observed["simulated"] |= real_size(asked.prepare, repetition.launched, gpu.seed)
        gpu.begin()
    expected = _expected(execution)
    if expected is not None:
        elements = repetition.main.elements_unlike(expected)
        if execution.reference_always:
            observed["reference"] = {"digest": bits.digest(expected), "elements": elements}
        elif elements:
            raise InvalidCaseError("with the flag on the result is not that of the reference of its case")
    observed.update(_held_to_op(execution, execution.of_op() if asked.sample else None))
    if times := global_state.times_set() - times_set:
        raise InvalidCaseError(f"the op set the flag {times} times, and put it back")
    if not unchanged(execution.inputs()) or execution.words() != words:
        raise InvalidCaseError("the op changed its inputs")
    if execution.changed_gradients_given():
        raise InvalidCaseError("the op changed the gradient of its output")
    repetition.check_state(inputs_digest)
    observed["outcome"] = "ran"


def _digest(execution: Execution, inputs: list[bits.Part], said: list[str]) -> str:
    """Return the digest of the inputs, with what other arguments of a user's hold."""
    return bits.digest([*inputs, *execution.held()], said)


def _expected(execution: Execution) -> list[bits.Part] | None:
    """Return what the reference of a case gives; ``None`` without one, and where what promises it, the flag, is off."""
    if execution.reference is None or not (execution.reference_always or execution.deterministic):
        return None
    try:
        expected = execution.reference(execution.call, *execution.gradients_given())
    except Exception as error:
        raise InvalidCaseError(f"its reference failed ({first_line(error)})") from error
    name = f"grad of {execution.leaf_names[0]}" if execution.backward else "output"
    return None if expected is None else bits.parts(on_host(expected), name)


def _held_to_op(execution: Execution, op: Execution | None) -> dict[str, Any]:
    """Return how another spelling is to the op itself, if there is one."""
    if op is None:
        return {}
    execution.reseed()
    output, gradients = execution()
    returned = on_host(output), tuple(on_host(gradients))
    try:
        reference = CpuReference(op)
        compared = reference.compare(*returned)
    except NotComparedError as error:
        return {"instead": {"agrees": None, "why": str(error)}}
    return {"instead": {**compared, "largest": reference.distance(*returned) if compared["agrees"] else None}}


def _summary(name: str, tensor: torch.Tensor) -> str:
    """Say dtype and shape, and strides where they are not the contiguous ones."""
    text = f"{name}: {str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
    return text if tensor.is_contiguous() else f"{text}, strides {tensor.stride()}"


def _not_held(why: str) -> dict[str, Any]:
    return {"cpu": {"agrees": None, "why": why}}


class _Repetition:
    """The executions of one case, compared with the first, group by group."""

    def __init__(self, execution: Execution, observed: dict[str, Any], asked: _Asked) -> None:
        self._execution, self._observed, self._asked = execution, observed, asked
        self._gpu, self._budget = asked.gpu, asked.budget
        # On a simulated GPU by the first execution: kernels, and the most blocks of each.
        self.launched: dict[str, int] = {}
        self._schedule: dict[str, Any] | None = None  # under which an execution first differed
        self._returned: Any = None  # by the last execution, on the host
        # Of its tensors on the device: where, bytes, bytes of an element.
        self._places: list[tuple[int, int, int]] = []
        self._differed: Any = None  # by that one
        self._index = 0
        self._groups: list[dict[str, Any]] = []
        self._threads: int | None = None

    def run(self) -> dict[str, Any]:
        """Execute and compare; return fields of an observation. The first execution, which others are held against, is quiet."""
        execution, observed = self._execution, self._observed
        if self._gpu:
            self._gpu.begin()
        execution.reseed()
        fresh = execution.random_state()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            forward, judged = self._parts(*execution())
        first = self._returned
        self.launched = self._gpu.launched if self._gpu else {}
        callers = [caller for warning in caught if (caller := caller_in(str(warning.message)))]
        observed["alerts"] = list(dict.fromkeys(callers))
        observed["seeded"] = any(
            not torch.equal(old, new) for old, new in zip(fresh, execution.random_state(), strict=True)
        )
        if not sum(tensor.numel() for _, tensor in judged):
            raise InvalidCaseError("there is nothing to compare: no output has elements")
        # A number that the op computed may be equal to one that it was given.
        given = [part for name, one in execution.named_arguments() for part in bits.parts(on_host(one), name)]
        observed["blank"], observed["blank_output"] = bits.blank(judged, given)
        self.main = OutputComparison(judged, self._budget.runs)
        self._forward = OutputComparison(forward, self._budget.runs) if forward else None
        self._site = CaseContext(
            execution.device,
            tuple(tensor.numel() * tensor.element_size() for _, tensor in judged),
            *((self._gpu.seed, self._gpu.deadline) if self._gpu else ()),
        )
        self._advance()
        groups = []
        for number in range(len(self._budget.groups)):
            groups.append(self._group(number))
            if self._schedule:
                break
            if self._gpu and self._budget.groups[number][0] == CANONICAL:
                self._budget.narrow(self._gpu.scopes())
        if self._gpu:
            self._check_log(self._gpu)
            observed["simulated"] = {
                "schedule": self._schedule,
                **self._held_to_cpu(first),
                **self._conflicts(self._gpu),
            }
            if self._schedule and self._schedule["name"] not in (CANONICAL, MEMORY):
                witness = observed["simulated"].get("witness")
                observed["simulated"] |= exactness(
                    self._asked.prepare, self._schedule, witness, self._gpu.deadline
                )
            if self._schedule and self._schedule["name"] == CANONICAL:
                raise InvalidCaseError(
                    "the simulation itself is not reproducible: two canonical executions differ"
                )
        result = self.main.result(sample=self._asked.sample)
        result["groups"] = self._groups = [group for group in groups if group]
        result["threads"] = self._threads
        if self._forward:
            self._forward.settle()
            result["forward_differing"] = self._forward.differing
        return result

    def _parts(
        self, output: Any, gradients: tuple[torch.Tensor, ...]
    ) -> tuple[list[bits.Part], list[bits.Part]]:
        """Return the parts of one execution; of a simulated GPU, on the CPU, where no kernel of its own compares them."""
        if self._gpu:
            self._gpu.check()
            self._places = [
                (one.data_ptr(), one.nbytes, one.element_size())
                if one.layout == torch.strided and one.is_contiguous()
                else (0, 0, 1)
                for one in tensors_in(gradients if self._execution.backward else output)
            ]
            output, gradients = self._returned = on_host(output), tuple(on_host(gradients))
        return self._execution.parts(output, gradients)

    def _held_to_cpu(self, first: Any) -> dict[str, Any]:
        """Return how the canonical execution is to the CPU, and whether the schedule that differed gave other values."""
        name = self._schedule["name"] if self._schedule else None
        whys = {
            "it draws random numbers": self._observed["seeded"],
            "it returns memory that nobody wrote": name == MEMORY,
            f"it holds no information: {self._execution.constant}": self._execution.constant,
            "a part of it runs in another mode": isinstance(self._execution, SwitchedExecution),
        }
        if why := next((text for text, holds in whys.items() if holds), ""):
            return _not_held(why)
        differed = self._schedule is not None
        try:
            reference = CpuReference(self._execution.eagerly())
            cpu = reference.compare(*first)
            race = differed and reference.compare(*self._differed)["agrees"] is False
            wrong = race or cpu["agrees"] is False
            if wrong and differed and reference.writers_race(first, self._differed):
                return _not_held("writers race for an element, and any of them may be the last")
            race = race and cpu["agrees"] is True
            sensitive = (
                self._gpu is not None
                and self._gpu.approximates
                and cpu["agrees"] is True
                and rests_on_approximations(self._execution, reference, self._gpu.seed, self._gpu.deadline)
            )
        except NotComparedError as error:
            return _not_held(str(error))
        except Exception as error:  # noqa: BLE001 - results of any kind; the op is not to blame
            return _not_held(f"the comparison failed ({first_line(error)})")
        return {"cpu": cpu, "value_race": race, "approximation_sensitive": sensitive}

    def _check_log(self, gpu: SimulatedGpu) -> None:
        """Execute again what says whether the conflict log is right.

        What differed is traced: the first kernel that leaves other memory behind must have conflicts. What did not is executed in
        other orders of all that was not found in conflict, once reversed and at other addresses, and once drawn.
        """
        if gpu.conflicts is None:
            return
        wrong = "the simulation's conflict log is wrong: it found none"
        if self._schedule:
            kernel = self._traced(gpu, self._schedule)
            if kernel:
                raise InvalidCaseError(f"{wrong} in {kernel}, and there results begin to differ")
            return
        quiet = [one for one in SCOPES if one not in gpu.scopes()]
        orders = f"{EVERYTHING}:{','.join(quiet)}"
        unlike = self._unlike(gpu, orders, 0, shifted=True)
        if unlike and self._unlike(gpu, CANONICAL, 0, shifted=True):
            gpu.conflicts["doubts"].append("depends on addresses")
        elif unlike or (quiet and self._unlike(gpu, orders, DIRECTED)):
            raise InvalidCaseError(f"{wrong} among {', '.join(quiet)}, and their order matters")

    def _traced(self, gpu: SimulatedGpu, schedule: dict[str, Any]) -> str:
        """Return the kernel at which a schedule begins to give other bits, if nothing is known to be in conflict there."""
        if schedule["name"] in (CANONICAL, MEMORY):
            return ""
        seen = gpu.seen
        # Garbage is other memory: what earlier rows left if it is collected in between, what the first of the two executions
        # left if it is not, as all other kernels would find it.
        gc.disable()
        try:
            for name, number in ((CANONICAL, 0), (schedule["name"], schedule["number"])):
                gc.collect()
                self._unlike(gpu, name, number, traced=True)
        except Exception:  # noqa: BLE001 - no time may be left
            return ""
        finally:
            gc.enable()
            gpu.seen = seen
        return gpu.new.unexplained

    def _unlike(
        self, gpu: SimulatedGpu, name: str, number: int, only: int | None = None, **asked: bool
    ) -> dict[str, Any] | None:
        """Execute under a schedule, and return the first element with other bits than canonically, or only that at an address.

        An address that is not of the result tells of no element, so that all are looked at.
        """
        simulated.begin(name, number, gpu.seed, gpu.deadline, **asked)
        self._execution.reseed()
        _, judged = self._parts(*self._execution())
        places = self._places if only is not None and len(self._places) == len(judged) else []
        at = [
            (part, (only - start) // item)
            for part, (start, size, item) in enumerate(places)
            if only is not None and start <= only < start + size
        ]
        return self.main.element_unlike(judged, next(iter(at), None))

    def check_state(self, inputs_digest: str) -> None:
        """Refuse what arguments may have made or hidden that earlier executions were given, too: some are made anew, and tried.

        A difference must show on them. As many are tried, where and as far as there is time, as show a race that is as frequent as the
        difference, but for one time in a hundred. Without a difference one is tried.
        """
        if self._execution.kept and not self.main.differing:
            raise InvalidCaseError(
                "it returned the same tensor again, and nothing shows that it was computed anew: return a new one"
            )
        given = self._execution.may_change_given()
        if not given:
            return
        differing = self.main.differing
        most = max(self._groups, key=lambda one: one["differing"] / one["executions"])
        rate = min(0.99, most["differing"] / most["executions"])
        tries = min(self._budget.runs, math.ceil(math.log(0.01) / math.log(1 - rate))) if differing else 1
        deadline = time.perf_counter() + (self._budget.max_time or math.inf)
        start = dict(self._budget.groups)[most["perturbation"]]
        with nullcontext(lambda _: None) if self._gpu else start(self._site) as before:
            for number in range(tries):
                if number and time.perf_counter() > deadline:
                    raise InvalidCaseError("no time was left to show that it differs on arguments made anew")
                try:
                    unlike = self._unlike_anew(given, inputs_digest, before, number)
                except Exception:
                    if differing:
                        raise
                    return  # that nothing differed is known all the same
                if unlike and differing:
                    return
                if unlike:
                    raise InvalidCaseError(
                        "it differed on arguments made anew, and never on those that earlier executions were given, whose "
                        "state may hide it"
                    )
        if differing:
            raise InvalidCaseError(
                "it differed only on arguments that earlier executions were given, too, whose state it may have changed: let it "
                "change copies (copy.deepcopy)"
            )

    def _unlike_anew(
        self, given: list[Any], inputs_digest: str, before: Callable[[int], None], number: int
    ) -> bool:
        """Tell whether an execution gives other bits on arguments made anew; refuse those that are not, or are others."""
        anew, old = self._asked.prepare(kept=DRAWS), {id(one) for one in given}
        shared = [one for one in anew.may_change_given() if id(one) in old]
        states = [None if anew.is_given(one) else state_of(one) for one in shared]
        self._refuse(shared, states, states)
        if _digest(anew, anew.inputs(), anew.said()) != inputs_digest:
            raise InvalidCaseError("its arguments are not the same when they are made anew")
        if self._gpu:
            known = self._schedule or {"name": CANONICAL, "number": 0}
            simulated.begin(known["name"], known["number"], self._gpu.seed, self._gpu.deadline)
        before(self._index + number)
        anew.reseed()
        unlike = bool(self.main.elements_unlike(anew.parts(*map(on_host, anew()))[1]))
        self._refuse(shared, states, map(state_of, shared))
        return unlike

    @staticmethod
    def _refuse(shared: Iterable[Any], before: Iterable[str | None], after: Iterable[str | None]) -> None:
        """Refuse a difference where an object that is given again has changed, or nobody can tell; all others hold settings."""
        for one, old, new in zip(shared, before, after, strict=True):
            if old is None or old != new:
                raise InvalidCaseError(
                    f"it differed, and its inputs are not made anew each time: the {type(one).__name__} is the same object"
                )

    def _conflicts(self, gpu: SimulatedGpu) -> dict[str, Any]:
        """Return which accesses were in conflict, and one pair of them that shows the difference by itself."""
        if gpu.conflicts is None:
            return {}
        known = dict(gpu.conflicts)
        told, _ = known.pop("told"), known.pop("inexact")
        known["reversed"], known["sampled"] = gpu.new.reversed
        schedule = self._schedule["name"] if self._schedule else ""
        able = [(number, pair) for number, pair in enumerate(told) if shown_in(schedule, pair["scope"])]
        witness: dict[str, Any] = {}
        for number, pair in able[:_MOST_SWAPS]:
            seen = gpu.seen
            try:
                # Who reads carries on elsewhere what it has found.
                at = None if {"read", "exchange"} & set(pair["kinds"]) else pair["address"]
                element = self._unlike(gpu, PAIR, number, at)
            except Exception:  # noqa: BLE001, S112 - what a swap leads to says nothing of the op
                continue
            finally:
                gpu.seen = seen
            came, alone = gpu.new.swapped
            # The first is held up with its warp or its block: that others came before it, too, is told.
            shows = pair["shows"] and alone
            if element and came and (shows or not witness):
                hexed = {"values": [f"{value:#x}" for value in pair["values"]], "old": f"{pair['old']:#x}"}
                witness = {"witness": {**pair, **hexed, **element, "shows": shows}}
            if witness and shows:
                break
        return {"conflicts": known} | witness

    def _advance(self) -> None:
        self._index += 1
        self._observed["executions"] = self._index

    def _group(self, number: int) -> dict[str, Any] | None:
        """Run one group's share; ``None`` if it has none."""
        name, start = self._budget.groups[number]
        share, compare = self._budget.shares[number], self.main
        # What one thread does alone gives the same bits however busy the cores are, and whatever sleeps.
        if not share or (name in OF_SEVERAL_THREADS and self._threads == 1):
            return None
        # The first execution is behind us, and counts for the first group.
        done = int(number == 0)
        known = compare.differing
        deadline = self._budget.deadline(number, time.perf_counter())
        looks = _Looks(deadline, done)
        with start(self._site) as before:
            while done < share:
                if looks.differing(compare, done, known) >= _ENOUGH:
                    break
                # Behind the look, which may have waited for what was queued.
                if time.perf_counter() > deadline and done and self._index > 1:
                    break
                before(self._index)
                self._execution.reseed()
                counts = self._asked.count_threads and name == "quiet" and done == 1
                forward, judged = self._parts(*self._execution(None, self._counted if counts else called))
                compare.add(self._index, judged)
                if self._forward:
                    self._forward.add(self._index, forward)
                if self._gpu and self._schedule is None and compare.differing:
                    self._schedule = {"name": name, "number": done, "seed": self._gpu.seed}
                    self._differed = self._returned
                done += 1
                self._advance()
        if not done:
            return None
        compare.settle()
        return {"perturbation": name, "executions": done, "differing": compare.differing - known}

    def _counted(self, phase: Callable[[], Any]) -> Any:
        """Note how many threads work in the phase that is judged: what is one thread's work there cannot race there."""
        result, self._threads = working_threads(phase)
        return result


class _Looks:
    """When it is asked how many executions of a group differed: on a GPU the clock alone sees how fast work is queued."""

    def __init__(self, deadline: float, done: int) -> None:
        self._deadline, self._done, self._looked = deadline, done, time.perf_counter()
        # Often enough to notice that the time is over.
        self._patience = min(_LOOK_SECONDS, (deadline - self._looked) / 4)
        self._next: float = _FIRST_LOOK
        # The first execution of a group is waited for: until then nobody knows how long one takes.
        self._due = done + 1

    def differing(self, compare: OutputComparison, done: int, known: int) -> int:
        """Return how many are known to differ, of *done*, beyond those that were *known* before."""
        if done >= min(self._next, self._due) or time.perf_counter() - self._looked > self._patience:
            compare.settle()
            now = time.perf_counter()
            if done > self._done:
                pace = (now - self._looked) / (done - self._done)
                self._due = done + max(1, int(min(self._patience, self._deadline - now) / pace))
            self._done, self._looked = done, now
            # Where enough would differ at the rate at which they did so far.
            if done >= _FIRST_LOOK:
                seen = compare.differing - known
                self._next = math.ceil(done * _ENOUGH / seen) if seen else math.inf
        return compare.differing - known
