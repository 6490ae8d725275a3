"""Whether an op takes a case, and how it is best enlarged: tried before the case becomes a row, with the flag off."""

from __future__ import annotations

import contextlib
import resource
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch

from detmatrix.opspecs.pytorch import database, enlarge
from detmatrix.opspecs.pytorch.database import Entry, Sample
from detmatrix.scanner.schedules import CANONICAL
from detmatrix.scanner.worker import accelerator, bits, simulated
from detmatrix.scanner.worker.execution import DRAWS, Execution, InvalidCaseError
from detmatrix.scanner.worker.threads import working_threads

# Seconds of a simulated GPU are counted in instructions of threads, the same everywhere; how many may really pass.
_INSTRUCTIONS_A_SECOND, _MOST_SIMULATED = 100_000_000, 20.0
# Elements of outputs that take a second to compare, in as many executions as a row gets.
_ELEMENTS_A_SECOND = 10_000_000
# Parts of the size that a recipe is tried in first, so that what grows too fast shows before it takes minutes.
_TRIED_FIRST = (256, 16)
# An enlarged case is left out if one execution of it, backward included, takes longer, or more memory. On the CPU
# these are seconds of one thread, without those that it waits for a core.
_MOST_SECONDS = 0.15
_MOST_BYTES = 1 << 30
# Recipes that are tried for one sample, and seconds after which no further one is.
_MOST_ENLARGEMENTS = 24
_PATIENCE = 1.0
# Accepted ones that are compared, where threads do not share the work of the first.
_MOST_COMPARED = 6
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


class NothingToCompareError(Exception):
    """The output has no elements."""


class Enlargement(NamedTuple):
    """A recipe that an op accepts."""

    shared: int  # directions in which threads share the work
    directions: list[str]
    recipe: str
    provokes: str


class Trials:
    """Executes cases of one entry in one dtype."""

    def __init__(self, entry: Entry, dtype: str, device: str, seed: int) -> None:
        self._entry = entry
        self._options: dict[str, Any] = {"dtype": dtype, "device": device, "seed": seed}
        self._dtype = dtype
        self._instructions = 0  # that a simulated GPU executed

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

    def enlarged(self, case: str, sample: Sample, needs: str) -> Enlargement | None:
        """Return how a sample is enlarged: by a recipe that the op accepts, and that provokes what is needed.

        It is the first by which threads share the work in every direction, or that by which they do in most.
        """
        target = enlarge.ON_CPU if self._options["device"] == "cpu" else enlarge.ON_GPU
        target = enlarge.ON_SIMULATED if simulated.active() else target
        tree = (sample.args[sample.fixed :], dict(sample.kwargs))
        name = self._entry.name
        small = [
            {enlarge.kind_of(one): one for one in enlarge.enlargements(tree, name, target // part)}
            for part in _TRIED_FIRST
        ]
        found: dict[tuple[str, ...], Enlargement] = {}
        started = time.process_time()
        for recipe in islice(enlarge.enlargements(tree, name, target), _MOST_ENLARGEMENTS):
            if len(found) == _MOST_COMPARED or time.process_time() - started > _PATIENCE:
                break
            # What stands in the inputs makes no difference to who does the work.
            grown = tuple(part for part in enlarge.kind_of(recipe) if not part.startswith("values="))
            if grown in found:
                continue
            first = [known[enlarge.kind_of(recipe)] for known in small if enlarge.kind_of(recipe) in known]
            if not all(self._accepted(case, one) for one in first):
                continue
            directions = self._accepted(case, recipe)
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
        threads: list[int | None] = []

        def counted(phase: Callable[[], Any]) -> Any:
            result, working = working_threads(phase)
            threads.append(working)
            return result

        before = torch.get_num_threads()
        torch.set_num_threads(_SHARING)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                # The first one starts the threads.
                execution()
                execution(None, counted)
        except Exception:  # noqa: BLE001 - it was accepted a moment ago
            return False
        finally:
            torch.set_num_threads(before)
        return threads != [1]

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
        text = [_PARALLEL, COLLIDES] if grown["indices"] else [_PARALLEL]
        return "; ".join(
            [*text, "values repeat"] if grown["values"] and "values=mixed" not in enlargement else text
        )

    def _accepted(self, case: str, enlargement: str) -> list[str]:
        """Return the directions in which the op takes a recipe's inputs within the limits; none if it does not."""
        try:
            with _bounded_memory(self._options["device"]):
                if self._seconds(case, "forward", enlargement) > _MOST_SECONDS:
                    return []
                if not self._entry.in_place and self._entry.differentiable(
                    self._options["device"], self._dtype
                ):
                    with contextlib.suppress(InvalidCaseError):
                        seconds = self._seconds(case, "backward", enlargement)
                        return ["forward", "backward"] if seconds <= _MOST_SECONDS else []
        except Exception:  # noqa: BLE001 - an op may refuse in any way it likes
            return []
        return ["forward"]

    def _seconds(self, case: str, direction: str, enlargement: str) -> float:
        """Return the seconds of an execution; on a device without what is loaded at the first call of a kernel."""
        seconds = self.execute(case, direction, enlargement)
        if seconds > _MOST_SECONDS and self._options["device"] != "cpu":
            seconds = self.execute(case, direction, enlargement)
        return seconds


@contextlib.contextmanager
def _bounded_memory(device: str) -> Iterator[None]:
    """Let an allocation fail rather than take the machine's memory; on the CPU Linux alone can.

    On a device its own memory is bounded: its libraries, which are loaded when they are needed, reserve far more
    addresses than they use.
    """
    if device != "cpu":
        with accelerator.bounded_memory(device, _MOST_BYTES):
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
