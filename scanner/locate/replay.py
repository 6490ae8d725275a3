"""Execute an op again in place, on the same inputs, and compare what it gives."""

from __future__ import annotations

import contextlib
import random
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from detmatrix.scanner.alerts import caller_in
from detmatrix.scanner.locate.memory import COMPOUND, KeptTensors, size_of, sort_of, substituted, unequal
from detmatrix.scanner.locate.overloads import KnownOverload, among, generator_of, tensors
from detmatrix.scanner.locate.simulated import on_host
from detmatrix.scanner.located import Distance, WithFlag
from detmatrix.scanner.worker.bits import as_integers, parts
from detmatrix.scanner.worker.difference import SeverityAccumulator

# Further executions with the flag on, of an op that differed, as multiples of the replays.
_WITH_FLAG = 3


# Of a tensor some of whose elements are one in memory.
_OVERLAPS = 1
# An op whose output seems filled is executed so often in other memory, or twice if it gives more bytes than so many; and
# then so often in filled memory.
_OTHER_MEMORY, _SMALL, _FILLED_AGAIN = 16, 1 << 20, 6


class RepeatedCall:
    """One call of an op that is to be executed several times, from the same state each time."""

    def __init__(self, op: KnownOverload, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.op, self.func, self.args, self.kwargs = op, func, args, kwargs
        self.given, self.changed = among(args, kwargs), op.changed(args, kwargs)

    def once(self) -> Any:
        """Execute the op, and look at nothing."""
        return self.func(*self.args, **self.kwargs)

    def first(self) -> Any:
        """Execute the op as the program asked, and keep what it gave; errors are the program's."""
        self.before = [_copied(one) for one in self.changed]
        unsure = [
            (place, name, one, _copied(one))
            for place, name, value in (self._placed() if self.op.unsure else ())
            for one in tensors(value)
            if not _among(one, self.changed)
        ]
        self._generators = states(generator_of(self.args, self.kwargs)) if self.op.random else []
        self._elsewhere = _states_elsewhere() if self.op.unsure else []
        result = self.once()
        # Arguments that it changed although the schema does not say so.
        self.hidden = [(place, name) for place, name, one, before in unsure if bool(unequal(one, before))]
        self.returned = returned(result, self.changed)
        self._after = [_copied(one) for one in self.changed]
        mine = self.returned
        if self.op.unsure:
            # It may return the same memory each time.
            mine = [*(_copied(one) if sort_of(one) < COMPOUND else one for one in mine), *_numbers(result)]
        # What is returned, then the arguments that it changes.
        self.kept = KeptTensors(on_host(mine + self._after))
        return result

    def _placed(self) -> Iterator[tuple[int, str, Any]]:
        """Yield the arguments with their positions in the schema and the names by which they are given."""
        yield from ((place, "", one) for place, one in enumerate(self.args))
        yield from ((self.op.arguments.index(name), name, one) for name, one in self.kwargs.items())

    def again(self) -> list[torch.Tensor]:
        """Execute it from the same state; return what is compared with ``kept``."""
        for one, before in zip(self.changed, self.before, strict=True):
            one.copy_(before)
        for generator, state in self._generators:
            generator.set_state(state)
        for put_back, state in self._elsewhere:
            put_back(state)
        result = self.once()
        # Runs once per execution.
        if self.op.unsure:
            return on_host(returned(result, self.changed) + _numbers(result) + self.changed)
        return on_host(returned(result, self.changed) + self.changed if self.changed else tensors(result))

    def other(self) -> list[torch.Tensor] | None:
        """Execute it again; return what is to be looked at closer, ``None`` where all is the same.

        What is the same is let go of at once, and the next execution writes to memory that is still in the caches.
        """
        again = self.again()
        return None if self.kept.same_on_cpu(again) else again

    def draws(self) -> bool:
        """Tell whether another execution moves a random generator on."""
        before = states(generator_of(self.args, self.kwargs))
        self.again()
        moved = any(not torch.equal(generator.get_state(), state) for generator, state in before)
        for generator, state in before:
            generator.set_state(state)
        return moved

    def queued(self, times: int) -> list[list[int]] | None:
        """Execute it so many times, waiting once; return the places that differ, for each execution in which any does.

        ``None``: nothing is on a device that one would wait for, and each execution is as well looked at at once.
        """
        if not self.kept.on_device:
            return None
        answers = [differing(self.kept.tensors, self.again()) for _ in range(times)]
        flags = [one for execution in answers for one in execution if isinstance(one, torch.Tensor)]
        waited = iter(torch.stack(flags).tolist() if flags else ())
        found = [
            [
                place
                for place, one in enumerate(execution)
                if (next(waited) if isinstance(one, torch.Tensor) else one)
            ]
            for execution in answers
        ]
        return list(filter(None, found))

    def restore(self) -> None:
        """Leave the arguments, and what it returned, as the first execution left them."""
        for one, after in zip(self.changed, self._after, strict=True):
            one.copy_(after)
        for one, kept in zip(self.returned if self.op.unsure else (), self.kept.tensors, strict=False):
            if bool(unequal(one, kept)) and plain([one]):
                one.copy_(kept)


def returned(result: Any, changed: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the tensors that an op returned, but for arguments that it changed."""
    if not changed:
        return tensors(result)
    # Most ops in place, of which an optimizer is made.
    if len(changed) == 1 and result is changed[0]:
        return []
    return [one for one in tensors(result) if not _among(one, changed)]


def _among(tensor: torch.Tensor, others: Sequence[torch.Tensor]) -> bool:
    return any(tensor is one for one in others)


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten.clone.default(tensor)


def states(own: torch.Generator | None) -> list[tuple[torch.Generator, torch.Tensor]]:
    """Return the generators that an op may draw from, and their states: that which it is given, or the default ones."""
    on_devices = torch.cuda.default_generators if torch.cuda.is_initialized() else ()
    return [
        (one, one.get_state())
        for one in ([own] if own is not None else [torch.default_generator, *on_devices])
    ]


def _states_elsewhere() -> list[tuple[Callable[[Any], object], Any]]:
    """Return what puts back the generators of Python and NumPy, and their states."""
    found: list[tuple[Callable[[Any], object], Any]] = [(random.setstate, random.getstate())]
    if numpy := sys.modules.get("numpy.random"):
        found.append((numpy.set_state, numpy.get_state()))
    return found


def _numbers(result: Any) -> list[torch.Tensor]:
    """Return the numbers among what an op returned, as tensors."""
    values = result if isinstance(result, (tuple, list)) else [result]
    return [torch.tensor(one, device="cpu") for one in values if isinstance(one, (int, float, complex))]


@contextlib.contextmanager
def drawing_again(call: RepeatedCall) -> Iterator[None]:
    """Leave the generators that an op may draw from as they were."""
    before = states(generator_of(call.args, call.kwargs)) if call.op.random else []
    try:
        yield
    finally:
        for generator, state in before:
            generator.set_state(state)


def differing(kept: Sequence[torch.Tensor], again: Sequence[torch.Tensor]) -> list[bool | torch.Tensor]:
    """Tell of each tensor whether it differs; on another device than the CPU by a flag there, waiting for nothing."""
    if len(kept) != len(again):
        return [True] * max(len(kept), len(again))
    return [unequal(one, other) for one, other in zip(kept, again, strict=True)]


def settled(kept: Sequence[torch.Tensor], again: Sequence[torch.Tensor]) -> list[int]:
    """Return the places of tensors that differ, waiting for the device."""
    return [place for place, differs in enumerate(differing(kept, again)) if differs]


def measure(
    distance: Distance, kept: Sequence[torch.Tensor], again: Sequence[torch.Tensor], places: Sequence[int]
) -> None:
    """Note how far outputs that differ are apart, if it is farther than what was seen."""
    elements = count = 0
    for place in places:
        if place >= min(len(kept), len(again)):
            continue
        mine, its = parts(kept[place], "output"), parts(again[place], "output")
        for (_, one), (_, other) in zip(mine, its, strict=False):
            if one.shape != other.shape or one.dtype != other.dtype or not one.numel():
                continue
            looked = SeverityAccumulator(one)
            looked.add(other)
            seen = looked.result() or {}
            elements += one.numel()
            count += seen.get("differing_elements", 0)
            for name in ("max_abs", "max_ulp"):
                values = [value for value in (getattr(distance, name), seen.get(name)) if value is not None]
                setattr(distance, name, max(values) if values else None)
    if elements and count * max(distance.elements, 1) >= distance.differing * elements:
        distance.elements, distance.differing = elements, count


def with_flag(call: RepeatedCall, times: int) -> tuple[WithFlag, str | None]:
    """Execute an op that differed with the flag on; return what came of it, and the caller of its alert."""
    try:
        unfilled = _stable(call, times * _WITH_FLAG, fill=False)
    except RuntimeError as error:
        caller = caller_in(str(error))
        return ("raises", caller) if caller is not None else ("failed", None)
    except Exception:  # noqa: BLE001 - whatever it is, the program does not meet it
        return "failed", None
    if unfilled:
        return "cured", None
    return ("filled" if _stable(call, times * _WITH_FLAG, fill=True) else "differs"), None


def _stable(call: RepeatedCall, times: int, *, fill: bool) -> bool:
    with deterministic(fill=fill):
        again = call.again()
        first = [_copied(one) for one in again]
        for _ in range(times):
            # The one before is held until then, so that what the op leaves unwritten is other memory each time.
            again = call.again()
            if settled(first, again):
                return False
        return True


@contextlib.contextmanager
def deterministic(*, on: bool = True, fill: bool = True, warn_only: bool = False) -> Iterator[None]:
    """Set the flag, or unset it, within the block, and put it back as the program has it."""
    was = torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    settings: Any = getattr(torch.utils, "deterministic", None)
    filled = getattr(settings, "fill_uninitialized_memory", None)
    _set: Callable[..., None] = torch._C._set_deterministic_algorithms  # noqa: SLF001 - as the public one, but for the compiler's
    try:
        if filled is not None:
            settings.fill_uninitialized_memory = fill
        _set(on, warn_only=warn_only)
        yield
    finally:
        _set(was, warn_only=warns)
        if filled is not None:
            settings.fill_uninitialized_memory = filled


def too_large(call_tensors: Sequence[torch.Tensor], most: int) -> bool:
    """Tell whether copies of tensors would take more than so many bytes."""
    return sum(map(size_of, call_tensors)) > most


def plain(values: Sequence[torch.Tensor]) -> bool:
    """Tell whether all of the tensors have memory of their own that can be copied back to where it was."""
    overlap = torch._debug_has_internal_overlap  # noqa: SLF001 - has no public name
    return all(sort_of(one) < COMPOUND and overlap(one) != _OVERLAPS for one in values)


def left_open(call: RepeatedCall) -> dict[int, torch.Tensor]:
    """Return the outputs that an op does not write wholly, as they are where such memory is filled.

    PyTorch fills it with NaN, or with the largest integer, when the flag is on. What the op writes itself is the same
    with the flag on and nothing filled, in whatever memory.
    """
    if not hasattr(torch.utils, "deterministic"):
        return {}
    try:
        filled = _with_memory(call, fill=True)
        unclear = {
            place: one
            for place, (one, mine) in enumerate(zip(filled, call.returned, strict=False))
            if sort_of(one) < COMPOUND and one.shape == mine.shape and bool(_filled(one).any())
        }
        found = dict[int, torch.Tensor]()
        # It may be given memory that was filled for another execution: what it was given is held, so that it gets other.
        held = []
        for _ in range(_OTHER_MEMORY if not too_large(filled, _SMALL) else 2):
            if not unclear:
                break
            held.append(_with_memory(call, fill=False))
            for place, one in tuple(unclear.items()):
                if bool((_filled(one) & ~_filled(held[-1][place])).any()):
                    found[place] = unclear.pop(place)
        # Where not even the flag keeps it from racing a result may have been the same as the fill, and is not each time.
        for _ in range(_FILLED_AGAIN if found else 0):
            again = _with_memory(call, fill=True)
            found = {
                place: one for place, one in found.items() if torch.equal(_filled(one), _filled(again[place]))
            }
    except Exception:  # noqa: BLE001 - nothing is learned, and the program never meets it
        return {}
    finally:
        call.restore()
    return found


def _with_memory(call: RepeatedCall, *, fill: bool) -> list[torch.Tensor]:
    """Execute an op with the flag on, with or without its memory being filled, whether or not it alerts."""
    with deterministic(fill=fill, warn_only=True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call.again()


def unwritten_alone(
    outputs: Sequence[torch.Tensor],
    again: Sequence[torch.Tensor],
    places: Sequence[int],
    opened: Mapping[int, torch.Tensor],
) -> bool:
    """Tell whether outputs differ from those of another time only in elements that the op, by ``left_open``, does not write."""
    for place in places:
        if place not in opened or outputs[place].shape != again[place].shape:
            return False
        one, other = (as_integers(it[place].contiguous()) for it in (outputs, again))
        differs = (one != other).view(*outputs[place].shape, -1).any(-1)
        if bool((differs & ~_filled(opened[place])).any()):
            return False
    return True


def _filled(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_floating_point() or tensor.is_complex():
        return tensor.isnan()
    return tensor == (True if tensor.dtype is torch.bool else torch.iinfo(tensor.dtype).max)


# --- The inputs of an op that differed, kept so that it can be executed elsewhere


def save_inputs(folder: str, number: int, call: RepeatedCall) -> str:
    """Write what an op was given to a folder, which may have to be made; return where to, or why it could not be written."""
    name = call.op.name
    path = Path(folder, f"root-{number}-{''.join(c if c.isalnum() else '_' for c in name)}.pt")
    before = {id(one): was for one, was in zip(call.changed, call.before, strict=True)}
    args, kwargs = _loadable(substituted([tuple(call.args), dict(call.kwargs)], before))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save({"op": name, "args": args, "kwargs": kwargs, "torch": str(torch.__version__)}, path)
    except Exception as error:  # noqa: BLE001 - the program goes on
        return f"nowhere ({type(error).__name__}: {error})"
    return f"{path} ({path.stat().st_size} bytes)"


def _loadable(value: Any) -> Any:
    """Return an argument as ``torch.load(weights_only=True)`` reads it: words for layouts and memory formats."""
    if isinstance(value, torch.Tensor):
        # A view would be saved with all of the memory that it is of; strides may matter to the kernel.
        return value.detach().clone()
    if isinstance(value, (tuple, list)):
        return [_loadable(one) for one in value]
    if isinstance(value, dict):
        return {key: _loadable(one) for key, one in value.items()}
    if isinstance(value, torch.Generator):
        return None
    if isinstance(value, (torch.layout, torch.memory_format, torch.dtype, torch.device)):
        return {"torch": str(value)}
    return value
