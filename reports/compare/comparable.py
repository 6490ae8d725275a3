"""Whether two runs, or two rows of them, are comparable, whether two rates of differing are told apart, and how far bits moved.

Only like is compared with like: a difference that the machine, the settings or the inputs could explain says nothing about torch.

Rates: Fisher's exact test, two-sided, on k of n against k of n. Counted are executions that do not give the most frequent
output of their own process, one of which cannot differ from itself: which output came first is chance. A row that differs
only between processes is counted in processes: fifty executions of a process that chose another algorithm are one event.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from detmatrix.reports.matrix.model import Matrix
from detmatrix.reports.render import View, fields_of
from detmatrix.scanner.observations.parts import machine_of, part_without
from detmatrix.scanner.observations.records import MODES, Environment, Mode, Observation, Row, digest_kind
from detmatrix.scanner.observations.settings import SETTINGS, Settings, written
from detmatrix.scanner.perturbations import PERTURBATIONS
from detmatrix.scanner.plurals import several
from detmatrix.scanner.verdicts.findings import MatrixRow

Reason = Literal[
    "untrusted_run",
    "other_device",
    "other_threads",
    "other_variables",
    "other_perturbations",
    "not_asked_for",
    "other_inputs",
    "no_verdict",
    "low_power",
    "too_few_executions",
    "fewer_executions",
    "warn_only_missing",
    "not_reproduced",
]

# One sentence each, printed with every report. The order is that of the reports.
REASON_MEANING: dict[Reason, str] = {
    "untrusted_run": "A run cannot be trusted; its rows are no evidence.",
    "other_device": "The runs are of different hardware, which may choose other kernels and race otherwise.",
    "other_threads": "The runs had different numbers of threads.",
    "other_variables": "Environment variables that steer what is computed, or where threads run, differ.",
    "other_perturbations": "The executions ran under different circumstances.",
    "not_asked_for": "One of the scans was asked for other rows; this row is not among them.",
    "other_inputs": "The runs computed different things: other input bits, or another call.",
    "no_verdict": "A run has no finding for the row; the reason is given.",
    "low_power": "The row did not differ in a run that could have missed a race.",
    "too_few_executions": "One run saw the row differ and the other did not, but so few executions differed that the "
    "other run may have missed it.",
    "fewer_executions": "Neither run saw the row differ, but one made so few executions that it could have missed a rate "
    "that the other excludes.",
    "warn_only_missing": "The op raises in both runs, and only one run shows what it does under warn_only.",
    "not_reproduced": "Measured again, the row changed in another way than the runs suggest.",
}

# With these the runs did not compute the same, or cannot be believed: what is other in them says nothing of torch.
UNLIKE: frozenset[Reason] = frozenset(
    ("untrusted_run", "other_device", "other_threads", "other_variables", "other_inputs")
)

# Where libraries lie and which devices are seen, not what they compute; two environments on one machine differ here. And
# what a scan sets itself for PyTorch's databases, and older ones did not.
_PLACES = {
    *("CUDA_DEVICE_ORDER", "CUDA_HOME", "CUDA_VISIBLE_DEVICES", "DYLD_LIBRARY_PATH", "LD_LIBRARY_PATH"),
    *("NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_VISIBLE_DEVICES", "PYTHONHASHSEED"),
}


def arrow(before: str, after: str) -> str:
    """Return what something was and is; once if that is the same."""
    return before if before == after else f"{before} → {after}"


class NotComparable(Struct, frozen=True):
    """Why something is not comparable."""

    reason: Reason
    detail: str


def of_environments(kind: str, before: Environment, after: Environment) -> Iterator[NotComparable]:
    """Yield what two machines, or two states of one, do not have in common that ops of a kind of device depend on."""
    known = None not in (before.cpu_model, after.cpu_model)
    hardware_then, hardware_now = (hardware(kind, one, model=known) for one in (before, after))
    if hardware_then != hardware_now:
        yield NotComparable("other_device", f"{hardware_then} → {hardware_now}")
    if kind == "cpu" and _threads(before) != _threads(after):
        yield NotComparable("other_threads", f"{_threads(before)} → {_threads(after)}")
    if changed := list(_variables(before, after)):
        yield NotComparable("other_variables", "; ".join(changed))


def of_machines(old: Matrix, new: Matrix, before: MatrixRow, after: MatrixRow) -> NotComparable | None:
    """Return what the machines of a row do not have in common, where a run is of several; of others ``of_runs`` tells."""
    headers = old.run.header, new.run.header
    if not any(header.parts for header in headers):
        return None
    machines = (machine_of(header, one.row) for header, one in zip(headers, (before, after), strict=True))
    return next(of_environments(old.kind, *machines), None)


def of_rows(old: MatrixRow, new: MatrixRow) -> NotComparable | None:
    """Return what keeps one row of two runs that are alike from being compared."""
    if old.row.op != new.row.op:
        return NotComparable("other_inputs", f"calls {old.row.op} → {new.row.op}")
    before, after = (
        {one.inputs_digest: one.inputs for one in row.observations if one.inputs_digest is not None}
        for row in (old, new)
    )
    # Where a row was never called there are no inputs; it has no finding then, which is told instead.
    if not before or not after:
        return None
    if set(map(digest_kind, before)) != set(map(digest_kind, after)):
        # Run files before format 5 hold digests of another kind: what is drawn is known by dtype and shape alone.
        if set(before.values()) != set(after.values()):
            return NotComparable("other_inputs", "the inputs have other dtypes or shapes")
    elif before.keys() != after.keys():
        return NotComparable("other_inputs", "the input bits are not the same")
    return None


def of_draws(old: Matrix, new: Matrix, before: MatrixRow, after: MatrixRow) -> NotComparable | None:
    """Return that other numbers were drawn although the inputs are the same: by the op, with another seed, or as upstream gradients."""
    drawn = [one.run.header.settings.as_simulated for one in (old, new)]
    if drawn[0] != drawn[1] and after.row.direction == "backward":
        return NotComparable("other_inputs", "upstream gradients, which --as-simulated draws on the CPU")
    seeds = [one.run.header.settings.seed for one in (old, new)]
    if seeds[0] != seeds[1] and any(one.seeded for row in (before, after) for one in row.observations):
        return NotComparable("other_inputs", f"the op draws numbers, seed {seeds[0]} → {seeds[1]}")
    return None


def of_absence(absent: Matrix, present: Matrix, row: Row) -> NotComparable | None:
    """Return why it says nothing that one run did not plan a row and the other did."""
    if (part := part_without(absent.run.header, row)) is not None:
        return NotComparable("not_asked_for", f"{absent.name} lacks {part}, where the row would be")
    if row.spec in absent.unreached:
        return NotComparable("not_asked_for", f"{absent.name} ended before it had enumerated {row.spec}")
    settings, others = absent.run.header.settings, present.run.header.settings
    if settings.patterns:
        return NotComparable("not_asked_for", f"{absent.name} is a scan of {' '.join(settings.patterns)}")
    has, had = (_asked(one) for one in (settings, others))
    asked = [f"{option} {has[option]} and not {had[option]}" for option in has if has[option] != had[option]]
    return (
        NotComparable("not_asked_for", f"{absent.name} is a scan with {'; '.join(asked)}") if asked else None
    )


def _asked(settings: Settings) -> dict[str, str]:
    """Return in words what decides, beside patterns, which rows a scan plans."""
    # Where the files of specs lie is no matter, and of the properties one alone has cases of its own.
    settings = replace(
        settings,
        specs=tuple(Path(path).name for path in settings.specs),
        invariance=tuple(one for one in settings.invariance if one == "batch"),
    )
    return {
        setting.option: written(getattr(settings, name)) or "none"
        for name, setting in SETTINGS.items()
        if setting.selects
    }


def hardware(kind: str, environment: Environment, *, model: bool = False) -> str:
    """Name what the ops of a kind of device run on, a CPU with its *model* if that is asked for."""
    if of := environment.simulated:
        return f"{environment.gpu} ({of.architecture}, {of.multiprocessors} multiprocessors)"
    cpu = environment.cpu + f" ({environment.cpu_model})" * model
    return cpu if kind == "cpu" else environment.gpu or cpu


def of_runs(old: Matrix, new: Matrix) -> Iterator[NotComparable]:
    """Yield what keeps all rows of two runs from being compared; nothing if they are alike."""
    for one in (old, new):
        if one.distrust:
            yield NotComparable("untrusted_run", f"{one.name}: {'; '.join(one.distrust)}")
    before, after = old.run.header, new.run.header
    if not (before.parts or after.parts):
        yield from of_environments(old.kind, before.environment, after.environment)
    # Executions under a retired one are left out.
    perturbed = [
        [it for it in one.settings.perturb if not PERTURBATIONS[it].retired] for one in (before, after)
    ]
    if perturbed[0] != perturbed[1]:
        yield NotComparable("other_perturbations", " → ".join(map(",".join, perturbed)))
    # How many schedules of each class a simulated row has.
    of = [header.environment.simulated for header in (before, after)]
    schedules = [", ".join(f"{name} {n}" for name, n in it.executions.items()) if it else "" for it in of]
    if schedules[0] != schedules[1]:
        yield NotComparable("other_perturbations", " → ".join(schedules))


def _threads(environment: Environment) -> str:
    """Say how many threads there were and, where that is fewer, on how many cores they raced."""
    threads, cores = environment.threads, len(environment.affinity)
    return f"{threads} on {cores} core{'s' * (cores != 1)}" if 0 < cores < threads else f"{threads}"


def _variables(old: Environment, new: Environment) -> Iterator[str]:
    """Yield the variables that differ, by mode; a mode that one of the runs did not have is left out."""
    for mode in MODES:
        if mode not in old.variables or mode not in new.variables:
            continue
        before, after = old.variables[mode], new.variables[mode]
        for name in sorted((before.keys() | after.keys()) - _PLACES):
            values = before.get(name, "unset"), after.get(name, "unset")
            if values[0] != values[1]:
                yield f"{mode}: {name} {values[0]} → {values[1]}"


# --- Rates

Unit = Literal["executions", "processes"]

LEVEL = 0.01
# Above this a difference is taken for chance; between the two a row may well have changed.
CHANCE = 0.05
# Printed wherever a p-value is.
CAVEAT = (
    f"Two rates differ if Fisher's exact test says so, two-sided, at a level of {LEVEL:g} for each row: of a hundred rows with "
    f"equal rates, one may seem to differ. The test counts executions whose output is not the most frequent of their process "
    f"or, where nothing differs within a process, processes; it leaves out one of each set, which cannot differ from itself. "
    f"p is a guide: executions of one process are not independent, and a process goes on to the next perturbation after ten "
    f"differences. Rates that differ are no change of class by themselves. A difference with p above {CHANCE:g} fails no check."
)
# Stands in a run file for outputs that differed and were gone before they were digested; they need not be equal.
_OVERWRITTEN = "overwritten"
# Larger counts are scaled down to this, since a file may hold any number; fewer executions prove less, never more.
_MOST = 10_000


class Rate(Struct, frozen=True):
    """How many of those that could differ did."""

    differing: int
    compared: int

    def __str__(self) -> str:
        return f"{self.differing} of {self.compared}"


class RateTest(Struct, frozen=True, dict=True):
    """The rates of one row in one mode of two runs."""

    mode: Mode
    unit: Unit
    old: Rate
    new: Rate

    @cached_property
    def p(self) -> float:
        """How likely such a difference is, or a larger one, if the rates are equal."""
        return fisher(self.old, self.new)

    @property
    def chance(self) -> bool:
        """Whether equal rates would often give such a difference."""
        return self.p > CHANCE

    @property
    def differ(self) -> bool:
        """Whether the rates are told apart."""
        return self.p < LEVEL

    @property
    def view(self) -> dict[str, object]:
        """What JSON says of it."""
        sides = {"from": self.old, "to": self.new}
        return {**fields_of(self, "mode", "unit"), **sides, **fields_of(self, "p", "differ")}

    def __str__(self) -> str:
        return f"{self.mode}: {self.old} → {self.new} further {self.unit} differed, p = {self.p:.2g}"


def rate_test(
    mode: Mode, old: Sequence[Observation], new: Sequence[Observation], *, processes: bool = False
) -> RateTest:
    """Compare what two runs saw of one row in one mode: observations that all ran, by process.

    With *processes* those in which anything differed are counted, or where it did within none those that gave another output:
    executions of one process are not independent, and what befell it befell them all.
    """
    sides = [_within(run) for run in (old, new)]
    if not any(side.differing for side in sides):
        return RateTest(mode, "processes", _between(old), _between(new))
    if processes:
        sides = [Rate(sum(_within([one]).differing > 0 for one in run), len(run)) for run in (old, new)]
    return RateTest(mode, "processes" if processes else "executions", *sides)


def together(tests: Sequence[RateTest]) -> RateTest | None:
    """Compare the rates of several rows of one op in one mode together; ``None`` where no test counts executions."""
    counted = [test for test in tests if test.unit == "executions"]
    if not counted:
        return None
    sides = (
        Rate(sum(one.differing for one in side), sum(one.compared for one in side))
        for side in zip(*((test.old, test.new) for test in counted), strict=True)
    )
    return RateTest(counted[0].mode, "executions", *sides)


def fisher(one: Rate, other: Rate) -> float:
    """Return the two-sided p-value of Fisher's exact test.

    With the margins fixed, the p-value is the probability of all tables that are no more likely than this one. The
    weights are whole numbers, so that "no more likely" needs no tolerance.
    """
    one, other = (
        Rate(it.differing * _MOST // it.compared, _MOST) if it.compared > _MOST else it for it in (one, other)
    )
    total = one.differing + other.differing
    seen = math.comb(one.compared, one.differing) * math.comb(other.compared, other.differing)
    # Python divides whole numbers of any size correctly rounded.
    extreme = sum(weight for weight in _weights(one.compared, other.compared, total) if weight <= seen)
    return extreme / math.comb(one.compared + other.compared, total)


def _weights(one: int, other: int, total: int) -> Iterator[int]:
    """Yield in how many ways each split of *total* between samples of sizes *one* and *other* comes about."""
    low, high = max(0, total - other), min(one, total)
    weight = math.comb(one, low) * math.comb(other, total - low)
    for k in range(low, high + 1):
        yield weight
        weight = weight * (one - k) * (total - k) // ((k + 1) * (other - total + k + 1))


def _within(observations: Sequence[Observation]) -> Rate:
    """Count the executions that did not give the most frequent output of their own process."""
    sets = [one.digests for one in observations if one.digests]
    usual = (
        max((n for digest, n in digests.items() if digest != _OVERWRITTEN), default=1) for digests in sets
    )
    every = [sum(digests.values()) for digests in sets]
    return Rate(sum(every) - sum(usual), sum(every) - len(every))


def _between(observations: Sequence[Observation]) -> Rate:
    """Count the processes whose output is not the most frequent one, where nothing differs within any."""
    outputs = Counter(next(iter(one.digests)) for one in observations if one.digests)
    return Rate(outputs.total() - max(outputs.values(), default=1), outputs.total() - 1)


# dtype -> the bits of infinity, of one of its components: below lie the finite numbers, in their order, as IEEE 754 and
# bfloat16 (the upper half of a float32) have it. The bit above is the sign.
_INFINITY = {
    **dict.fromkeys(("float16", "complex32"), 0x7C00),
    **dict.fromkeys(("float32", "complex64"), 0x7F800000),
    **dict.fromkeys(("float64", "complex128"), 0x7FF0000000000000),
    "bfloat16": 0x7F80,
}


def moved(old: MatrixRow, new: MatrixRow, mode: Mode) -> View | None:
    """Return how far the bits of a row moved; ``None`` where the runs hold no samples of the same outputs of the same inputs.

    The numbers that were not sampled may have moved further.
    """
    sampled = (
        (one for one in row.observations if one.mode == mode and any(it.sample for it in one.outputs))
        for row in (old, new)
    )
    before, after = (next((one for one in some if one.inputs_digest), None) for some in sampled)
    if before is None or after is None or before.inputs_digest != after.inputs_digest:
        return None
    known = {(one.name, one.shape, one.dtype): one.sample.split() for one in before.outputs}
    pairs = [
        [
            (one.dtype, int(left, 16), int(right, 16))
            for left, right in zip(sample, one.sample.split(), strict=True)
        ]
        for one in after.outputs
        if len(sample := known.get((one.name, one.shape, one.dtype), [])) == len(one.sample.split())
    ]
    flat = [pair for output in pairs for pair in output]
    if not flat:
        return None
    # None: no pair of finite floating-point numbers is among them.
    farthest = max((ulp for it in flat if (ulp := _steps(*it)) is not None), default=None)
    unequal, among = sum(left != right for _, left, right in flat), several(len(flat), "sampled number")
    words, share = f"{unequal} of {among} moved", None
    if farthest:
        # Near zero many ULPs are little beside the other numbers of the output.
        share = max(map(_share, pairs))
        words = f"at least {farthest} ULP in {among}, {share:.2g} of the largest"
    return View(
        {"sampled": len(flat), "moved": unequal, "at_least_ulp": farthest, "at_least_of_largest": share},
        words=words if unequal else f"none of {among} moved, so how far is not known",
    )


def _share(pairs: Sequence[tuple[str, int, int]]) -> float:
    """Return how far the finite numbers of an output moved, over the largest of them."""
    finite = [[_number(dtype, bits) for bits in it] for dtype, *it in pairs if _steps(dtype, *it) is not None]
    largest = max((abs(one) for both in finite for one in both), default=0.0)
    return max(abs(new / largest - old / largest) for old, new in finite) if largest else 0.0


def _number(dtype: str, bits: int) -> float:
    """Return the number that bits of a floating-point dtype stand for."""
    if dtype == "bfloat16":
        dtype, bits = "float32", bits << 16
    size, code = {0x7C00: (2, "e"), 0x7F800000: (4, "f")}.get(_INFINITY[dtype], (8, "d"))
    return float(struct.unpack(f">{code}", bits.to_bytes(size, "big"))[0])


def _steps(dtype: str, left: int, right: int) -> int | None:
    """Return how many numbers a dtype has from one to the other; ``None`` of integers, infinities and NaN."""
    infinity = _INFINITY.get(dtype)
    if infinity is None:
        return None
    sign = 1 << infinity.bit_length()
    sizes = [bits & (sign - 1) for bits in (left, right)]
    if max(sizes) >= infinity or max(left, right) >= 2 * sign:
        return None
    one, other = (-size if bits & sign else size for bits, size in zip((left, right), sizes, strict=True))
    return abs(one - other)
