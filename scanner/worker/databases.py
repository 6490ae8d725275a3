"""Which rows an entry of PyTorch's databases gives: a worker's answer to ``enumerate``.

Of the samples those are taken that differ most from one another, and each is grown so that threads share the work, if
the op accepts that: whether it does is tried here, with the flag off.
"""

from __future__ import annotations

import contextlib
import math
import resource
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch

from detmatrix.opspecs.pytorch import database, enlarge, traits
from detmatrix.opspecs.pytorch.database import Entry, Sample
from detmatrix.scanner.schedules import CANONICAL
from detmatrix.scanner.worker import accelerator, bits, perturb, simulated
from detmatrix.scanner.worker.execution import DRAWS, Execution, InvalidCaseError
from detmatrix.scanner.worker.threads import thread_count, working_threads

# Seconds of a simulated GPU are counted in instructions of threads, the same everywhere; how many may really pass.
_INSTRUCTIONS_A_SECOND, _MOST_SIMULATED = 100_000_000, 20.0
# Elements of outputs that take a second to compare, in as many executions as a row gets.
_ELEMENTS_A_SECOND = 10_000_000
# Parts of the size that a recipe is tried in first, so that what grows too fast shows before it takes minutes: of a cube the first
# one takes a second.
_TRIED_FIRST = (64, 8)
# An enlarged case is left out if one execution of it, backward included, takes longer, or more memory. On the CPU
# these are seconds of one thread, without those that it waits for a core, and to fill more memory takes longer anyway.
_MOST_SECONDS = 0.15
_MOST_BYTES, _MOST_BYTES_ON_DEVICE = 1 << 28, 1 << 30
# Seconds that it takes at most to load or compile what is called for the first time.
_LOADING = 1.0
# Recipes that are tried for one sample, and seconds after which no further one is.
_MOST_ENLARGEMENTS = 24
_PATIENCE = 2.0
# Accepted ones that are compared, where threads do not share the work of the first.
_MOST_COMPARED = 5
# Threads that might share the work: as many on every machine, so that each takes the same recipes.
_SHARING = 2
# What an enlarged case provokes.
_PARALLEL = "large enough for kernels to run in parallel"
COLLIDES = "indices repeat"
# An op has more to do if so much of the size that was aimed at is written or indexed, or is read.
_ENOUGH = 8
# Large inputs are changed part by part, one run of elements after the other; an op reads its input if nearly all of the
# changes show. A handful of elements, or a row, lies in one or two of the parts.
_PARTS = 8
_READ = 6
# Arguments that often switch off the part of an op that could differ: a dropout with p=0.0 or training=False draws
# nothing.
_SWITCHED_OFF = ("False", "0", "0.0")
# Samples that are looked at for each that is taken: some give an output without elements.
_SPARE = 4


class NothingToCompareError(Exception):
    """The output has no elements."""


class TooSlowError(Exception):
    """An op takes too long with enlarged inputs."""


class Enlargement(NamedTuple):
    """A recipe that an op accepts."""

    shared: int  # directions in which threads share the work
    directions: list[str]
    recipe: str
    provokes: str


class EntryPlanner:
    """Plans the rows of one entry in one dtype, for which it executes cases."""

    def __init__(self, entry: Entry, dtype: str, device: str, seed: int, answer: dict[str, Any]) -> None:
        self._entry, self._dtype, self._answer = entry, dtype, answer
        self._options: dict[str, Any] = {"dtype": dtype, "device": device, "seed": seed}
        self._instructions = 0  # that a simulated GPU executed
        self._total = 0
        self._traits: dict[str, str] = {}

    def _clock(self) -> float:
        """Return seconds of the device; of the CPU those of one thread."""
        if simulated.active():
            self._instructions += simulated.report().work
            return self._instructions / _INSTRUCTIONS_A_SECOND
        return time.process_time() if self._options["device"] == "cpu" else time.perf_counter()

    def execute(self, case: str, direction: str, enlargement: str) -> float:
        """Execute once, and return the seconds."""
        execution = self._execution(case, direction, enlargement)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            started = self._clock()
            output, gradients = execution()
            accelerator.synchronize(execution.device)
            seconds = self._clock() - started
            elements = sum(tensor.numel() for _, tensor in bits.parts(output, "output"))
            if not elements:
                raise NothingToCompareError
            if simulated.active():  # no kernel writes what is filled with a number
                seconds += elements / _ELEMENTS_A_SECOND
            if execution.backward and not sum(one.numel() for one in gradients if one is not None):
                raise InvalidCaseError("no gradient has elements")
        return seconds

    @property
    def differentiable(self) -> bool:
        """Whether the entry says so."""
        return not self._entry.in_place and self._entry.differentiable(self._options["device"], self._dtype)

    def runs(self, case: str, direction: str) -> bool:
        """Tell whether a case gives something to compare, or raises, which is for its row to say."""
        nothing = NothingToCompareError if direction == "forward" else InvalidCaseError
        try:
            self.execute(case, direction, "")
        except Exception as error:  # noqa: BLE001 - what else goes wrong is for the row to say
            return not isinstance(error, nothing)
        return True

    def enlarged(self, case: str, sample: Sample, needs: str) -> Enlargement | None:
        """Return how a sample is enlarged: by a recipe that the op accepts, and that provokes what is needed.

        It is the first by which threads share the work in every direction, or that by which they do in most.
        """
        target = enlarge.ON_CPU if self._options["device"] == "cpu" else enlarge.ON_GPU
        target = enlarge.ON_SIMULATED if simulated.draws() else target
        tree = sample.inputs
        name = self._entry.name
        small = [
            {enlarge.kind_of(one): one for one in enlarge.enlargements(tree, name, target // part)}
            for part in _TRIED_FIRST
        ]
        found: dict[tuple[str, ...], Enlargement] = {}
        slow = set[tuple[str, ...]]()
        started = time.process_time()
        for recipe in islice(enlarge.enlargements(tree, name, target), _MOST_ENLARGEMENTS):
            if len(found) == _MOST_COMPARED or time.process_time() - started > _PATIENCE:
                break
            # What stands in the inputs makes no difference to who does the work, and hardly any to how much there is of it.
            grown = tuple(part for part in enlarge.kind_of(recipe) if not part.startswith("values="))
            if grown in found or grown in slow:
                continue
            smaller = [known[enlarge.kind_of(recipe)] for known in small if enlarge.kind_of(recipe) in known]
            try:
                directions = self._accepted(case, list(dict.fromkeys([*smaller, recipe])))
            except TooSlowError:
                slow.add(grown)
                continue
            if directions and needs in (provokes := self._provokes(case, recipe, target)) and provokes:
                before = time.process_time()
                shared = sum(self._is_shared(case, direction, recipe) for direction in directions)
                # Threads that share it wait for one another, on a busy machine for long.
                started += time.process_time() - before
                found[grown] = Enlargement(shared, directions, recipe, provokes)
                if shared == len(directions):
                    break
        return max(found.values(), key=lambda one: one.shared, default=None)

    def _is_shared(self, case: str, direction: str, enlargement: str) -> bool:
        """Tell whether threads share the work of an execution, or nobody can tell."""
        if self._options["device"] != "cpu":
            return True
        execution = self._execution(case, direction, enlargement)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return sharing(execution) != 1
        except Exception:  # noqa: BLE001 - it was accepted a moment ago
            return False

    def _execution(self, case: str, direction: str, enlargement: str) -> Execution:
        if simulated.active():
            until = time.perf_counter() + _MOST_SIMULATED
            simulated.begin(CANONICAL, 0, self._options["seed"], until)
        spec = database.find(self._entry.name, seed=self._options["seed"], enlargement=enlargement)
        execution = Execution(spec, case, direction=direction, kept=DRAWS, **self._options)
        execution.reseed()
        return execution

    def _provokes(self, case: str, enlargement: str, target: int) -> str:
        """Say what in the grown inputs could expose a difference; nothing if the op has no more to do than before."""
        try:
            with warnings.catch_warnings(), _bounded_memory(self._options["device"]):
                warnings.simplefilter("ignore")
                execution = self._execution(case, "forward", enlargement)
                if not does_more(execution, target):
                    return ""
        except Exception:  # noqa: BLE001 - it was accepted a moment ago; it may not have the memory again
            return ""
        grown = repeating(execution, target)
        again = grown["values"] and "values=mixed" not in enlargement
        told = {_PARALLEL: True, COLLIDES: grown["indices"], "values repeat": again}
        return "; ".join(text for text, holds in told.items() if holds)

    def _accepted(self, case: str, recipes: Sequence[str]) -> list[str]:
        """Return the directions in which the op takes the inputs of the last recipe, if it takes those of the smaller ones before it.

        Raises:
            TooSlowError: It takes them, and too long.
        """
        directions: list[str] = []
        for recipe in recipes:
            directions, seconds = self._tried(case, recipe)
            # Once more: the first time it may have loaded or compiled something.
            if _MOST_SECONDS < seconds < _LOADING and (recipe != recipes[-1] or len(recipes) == 1):
                directions, seconds = self._tried(case, recipe)
            if seconds > _MOST_SECONDS:
                raise TooSlowError
            if not directions:
                break
        return directions

    def _tried(self, case: str, recipe: str) -> tuple[list[str], float]:
        """Return the directions in which the op takes a recipe's inputs, and the seconds: backward, which includes forward, is tried first."""
        for direction in ("backward", "forward") if self.differentiable else ("forward",):
            try:
                with _bounded_memory(self._options["device"]):
                    seconds = self._seconds(case, direction, recipe)
            except InvalidCaseError:  # nothing to differentiate
                continue
            except Exception:  # noqa: BLE001 - an op may refuse in any way it likes
                break
            return ["forward", "backward"][: 1 + (direction == "backward")], seconds
        return [], 0.0

    def _seconds(self, case: str, direction: str, enlargement: str) -> float:
        """Return the seconds of an execution; on a device without what is loaded at the first call of a kernel."""
        seconds = self.execute(case, direction, enlargement)
        if seconds > _MOST_SECONDS and self._options["device"] != "cpu":
            seconds = self.execute(case, direction, enlargement)
        return seconds

    def plan(self, most: int, *, trial: bool) -> None:
        """Add the rows of at most so many samples to the answer; a *trial* calls the op."""
        try:
            samples = database.drawn(self._entry, **self._options, on="cpu" if simulated.draws() else "")
        except Exception:  # noqa: BLE001 - the row that stands for it says what went wrong
            samples = []
        self._total = len(samples)
        self._answer["samples"] += self._total
        if not samples:
            self._add("sample_0", "forward", "samples")
            return
        for number in self._telling(_unlike(samples, _SPARE * most), most, trial=trial):
            case, sample = f"sample_{number}", samples[number]
            self._tell_traits(sample)
            self._add(case, "forward", "samples")
            if self.differentiable and (not trial or self.runs(case, "backward")):
                self._add(case, "backward", "samples")
            if trial:
                self._enlarge(number, sample)
        if trial:
            self._collide(samples)

    def _collide(self, samples: list[Sample]) -> None:
        """Enlarge one more sample, in which indices repeat, if there is one and that is so in none that were taken."""
        indices = [number for number, sample in enumerate(samples) if _has_indices(sample)]
        taken = {row["case"] for row in self._rows}
        for number in [one for one in indices if f"enlarged_{one}" not in taken][:_SPARE]:
            if any(COLLIDES in row["provokes"] for row in self._rows):
                return
            self._tell_traits(samples[number])
            self._enlarge(number, samples[number], needs=COLLIDES)

    @property
    def _rows(self) -> list[dict[str, Any]]:
        return [row for row in self._answer["rows"] if row["dtype"] == self._dtype]

    def _tell_traits(self, sample: Sample) -> None:
        """Note what the rows added next are instances of."""
        self._traits = traits.traits_of(
            self._entry.name, sample.args[sample.fixed :], sample.kwargs, self._dtype
        )

    def _telling(self, numbers: list[int], most: int, *, trial: bool) -> list[int]:
        """Return the first *most* samples that give an output with elements, or raise: there is something to compare."""
        kept: list[int] = []
        for number in numbers:
            if len(kept) < most and (not trial or self.runs(f"sample_{number}", "forward")):
                kept.append(number)
        return sorted(kept or numbers[:1])

    def _add(
        self, case: str, direction: str, provoked: str, enlargement: str = "", provokes: str = ""
    ) -> None:
        row = {"case": case, "direction": direction, "dtype": self._dtype, "provoked": provoked}
        grown = {"enlargement": enlargement, "samples": self._total, "provokes": provokes}
        self._answer["rows"].append(row | grown | {"traits": self._traits})

    def _enlarge(self, number: int, sample: Sample, needs: str = "") -> None:
        """Add the rows of the enlarged sample, if the op accepts it and it provokes what is needed."""
        case = f"enlarged_{number}"
        best = self.enlarged(case, sample, needs)
        if best is None:
            self._answer["refused"] += not needs
            return
        for direction in best.directions:
            self._add(case, direction, "enlarged", best.recipe, best.provokes)


def sharing(execution: Execution) -> int | None:
    """Return how many threads work in an execution where there are several; ``None`` where nobody can tell."""
    threads: list[int | None] = []

    def counted(phase: Callable[[], Any]) -> Any:
        result, working = working_threads(phase)
        threads.append(working)
        return result

    with thread_count(_SHARING):
        execution(None, counted)
        if threads[0] is None:  # those of before had not gone to sleep
            execution(None, counted)
    return threads[-1]


@contextlib.contextmanager
def _bounded_memory(device: str) -> Iterator[None]:
    """Let an allocation fail rather than take the machine's memory; on the CPU Linux alone can.

    On a device its own memory is bounded: its libraries, which are loaded when they are needed, reserve far more
    addresses than they use.
    """
    if device != "cpu":
        with accelerator.bounded_memory(device, _MOST_BYTES_ON_DEVICE):
            yield
        return
    if sys.platform != "linux":
        yield
        return
    used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + _MOST_BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def does_more(execution: Execution, target: int) -> bool:
    """Tell whether the op writes, indexes or reads about as much as its inputs were grown to."""
    least = target // _ENOUGH
    execution.reseed()
    output = bits.parts(execution()[0], "output")
    inputs = enlarge.tensors([execution.call.args, dict(execution.call.kwargs)])
    indexed = any(_is_integer(tensor) and tensor.numel() >= least for tensor in inputs)
    if indexed or sum(tensor.numel() for _, tensor in output) >= least:
        return True
    large = {id(tensor) for tensor in inputs if tensor.layout == torch.strided and tensor.numel() >= least}
    before = bits.digest(output)
    if not large:
        return False
    # A greatest value takes no notice of lesser ones.
    return any(
        sum(_digest_with(execution, large, part, sign) != before for part in range(_PARTS)) >= _READ
        for sign in (1, -1)
    )


def repeating(execution: Execution, target: int) -> dict[str, bool]:
    """Tell whether integers, which may be indices and are always drawn anew, and other values are among what grew."""
    inputs = enlarge.tensors([execution.call.args, dict(execution.call.kwargs)])
    grown = [tensor for tensor in inputs if tensor.numel() >= target // _ENOUGH]
    return {"indices": any(map(_is_integer, grown)), "values": not all(map(_is_integer, grown))}


def _is_integer(tensor: torch.Tensor) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)


def _digest_with(execution: Execution, large: set[int], part: int, sign: int) -> str | None:
    """Return the digest of the output where one part of large inputs is another; ``None`` if the op refuses them."""

    def other(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in large or _is_integer(tensor):
            return tensor
        changed = tensor.detach().clone(memory_format=torch.contiguous_format)
        some = changed.view(-1).chunk(_PARTS)[part]
        # Beyond all others, so that a least, a middle and a greatest value is another one too.
        beyond = None if some.dtype == torch.bool else sign * (2 * changed.abs().max() + 1)
        some.copy_(~some if beyond is None else beyond)
        return changed

    args: tuple[Any, ...] = enlarge.mapped(execution.call.args, other)
    kwargs = enlarge.mapped(dict(execution.call.kwargs), other)
    execution.reseed()
    try:
        with torch.no_grad():
            return bits.digest(bits.parts(execution.op(*args, **kwargs), "output"))
    except Exception:  # noqa: BLE001 - what refuses other values has read them
        return None


def entry_rows(
    name: str, *, device: str, seed: int, dtypes: list[str] | None, samples: int, trial: bool
) -> dict[str, Any]:
    """Return the rows of an entry, and what they were chosen from: at most so many samples per dtype.

    *dtypes* are those wanted of the ones that the entry declares; ``None``: float32, or the first there is. A *trial* calls
    the op, to know what can be differentiated and enlarged; without, every sample is taken to be differentiable if the entry
    is, and nothing is enlarged.
    """
    # Whether an op takes its inputs does not depend on threads, which on a busy machine wait for one another. The worker
    # that enumerates observes nothing.
    torch.set_num_threads(1)
    # Nor are they to wait for the worker beside this one, which OpenMP bound to the same core.
    perturb.unbind()
    entry = database.entries(database.source_of(name) or "")[name]
    answer: dict[str, Any] = {"op": entry.path, "why": entry.why, "rows": [], "samples": 0, "refused": 0}
    for dtype in _dtypes(entry.dtypes(device), dtypes):
        EntryPlanner(entry, dtype, device, seed, answer).plan(samples, trial=trial)
    return answer


def _dtypes(declared: list[str], wanted: list[str] | None) -> list[str]:
    """Return the dtypes to scan; of an entry without any of them, the first one stands for the row that says so."""
    if wanted is not None and "all" not in wanted:
        return [dtype for dtype in declared if dtype in wanted] or wanted[:1]
    if wanted is not None and declared:
        return declared
    order = ("float32", "float64", "bfloat16", "float16", "complex64", "int64")
    return [next((dtype for dtype in order if dtype in declared), (declared or ["float32"])[0])]


def _unlike(samples: list[Sample], most: int) -> list[int]:
    """Return the numbers of up to *most* samples, always the least like those before it.

    The first is one with indices, if there are any, which can collide, and a large one.
    """
    described = [_features(sample) for sample in samples]
    elements = [sum(tensor.numel() for tensor in enlarge.tensors([s.args, dict(s.kwargs)])) for s in samples]
    off = [sum(text in _SWITCHED_OFF for _, text in features) for features in described]
    indexed = list(map(_has_indices, samples))
    best = max(
        range(len(samples)), key=lambda number: (indexed[number], elements[number], -off[number], -number)
    )
    chosen: list[int] = []
    seen = set()
    # How unlike each sample is to the chosen one that it is most like.
    unlike = dict.fromkeys(range(len(samples)), math.inf)
    while True:
        del unlike[best]
        digest = _digest(samples[best])
        if digest not in seen:
            seen.add(digest)
            chosen.append(best)
            unlike = {
                number: min(least, len(described[number] ^ described[best]))
                for number, least in unlike.items()
            }
        if not unlike or len(chosen) == most:
            return chosen
        best = max(unlike, key=lambda number: (min(elements[number], 2), unlike[number], -number))


def _has_indices(sample: Sample) -> bool:
    return enlarge.has_indices(sample.inputs)


def _digest(sample: Sample) -> tuple[str, frozenset[tuple[str, str]]]:
    """Return all in which two samples can differ."""
    parts = bits.parts([list(sample.args), dict(sample.kwargs)], "sample", skip_others=True)
    return bits.digest(parts), _features(sample)


def _features(sample: Sample) -> frozenset[tuple[str, str]]:
    """Describe a sample's structure, so that the number of unequal parts tells how unlike two samples are."""
    found: set[tuple[str, str]] = set()

    def walk(value: Any, name: str) -> None:
        if isinstance(value, torch.Tensor):
            sizes = tuple(min(size, 2) for size in value.shape)
            for text in (str(value.dtype), str(value.layout), f"{value.dim()}-D", f"sizes {sizes}"):
                found.add((name, text))
        elif isinstance(value, dict):
            for key, item in value.items():
                walk(item, f"{name}[{key!r}]")
        elif isinstance(value, (tuple, list)):
            found.add((name, f"{type(value).__name__} of {len(value)}"))
            for position, item in enumerate(value):
                walk(item, f"{name}[{position}]")
        elif isinstance(value, (bool, int, float, complex, str, torch.dtype, type(None))):
            found.add((name, repr(value)))
        else:
            found.add((name, type(value).__name__))

    walk(sample.args, "args")
    walk(dict(sample.kwargs), "kwargs")
    return frozenset(found)
