"""Memory that nothing has written, and ops whose result depends on it.

What ``empty`` and its kin hand out is followed element by element until it is written. An op that is given elements which
are not is executed on copies in which they hold one thing and then another: only if its result differs has it read them.
Some ops leave a part of an output unwritten; that is no root unless a later op reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from detmatrix.scanner.locate.memory import CPU, DEVICE, StorageTable, sort_of, substituted, unequal
from detmatrix.scanner.locate.overloads import KnownOverload, tensors
from detmatrix.scanner.locate.replay import RepeatedCall, drawing_again
from detmatrix.scanner.worker import simulated
from detmatrix.scanner.worker.bits import as_integers

# Larger memory is not followed.
_MOST_BYTES = 1 << 28


@dataclass
class _Blank:
    """Memory of which something was never written."""

    open: torch.Tensor  # for each element of the memory, whether it is not
    dtype: torch.dtype
    values: tuple[torch.Tensor, torch.Tensor]  # two things that these elements may hold
    origin: str  # the op that handed it out
    was: torch.Tensor  # what the memory held at that time: something else may write without an op
    doubted: bool = False  # a region may have written elements as they were: reading them is no root


class UnwrittenMemory:
    """Follows memory from ops that do not write it to ops that read it."""

    def __init__(self) -> None:
        self._blanks: StorageTable[_Blank] = StorageTable()
        # Tensors that the op in question was given while something of them was unwritten, by identity.
        self.given_open: set[int] = set()

    def handed_out(self, op: KnownOverload, result: Any, begin: int = 0) -> None:
        """Note what ``empty`` or one of its kin returned, or what memory has become larger by, from some element on."""
        settings: Any = getattr(torch.utils, "deterministic", None)
        if torch.are_deterministic_algorithms_enabled() and getattr(
            settings, "fill_uninitialized_memory", False
        ):
            return  # it is filled
        for one in tensors(result):
            if not _followed(one) or not one.numel() or _bytes(one) > _MOST_BYTES:
                continue
            memory = _memory(one, one.dtype)
            generator = torch.Generator(device="cpu").manual_seed(0)
            low, high = (torch.rand(len(memory), generator=generator, device="cpu") for _ in range(2))
            if one.is_floating_point() or one.is_complex():
                try:
                    values = (
                        (-low).to(one),
                        (high + 2).to(one),
                    )  # converted last: few ops know numbers of 8 bits
                except NotImplementedError:
                    continue  # none knows those of 4 bits, which are read as bytes
            else:
                values = torch.zeros_like(memory), torch.ones_like(memory)
            opened = torch.ones(len(memory), dtype=torch.bool, device=one.device)
            opened[:begin] = False
            self._blanks.set(one, _Blank(opened, one.dtype, values, op.name, memory.clone()))

    def once(self, call: RepeatedCall) -> Any:
        """Execute an op that may resize what it changes; note what memory becomes larger by."""
        before = [(one, one.untyped_storage()._cdata, _bytes(one)) for one in call.changed if _followed(one)]  # noqa: SLF001
        result = call.once()
        for one, storage, size in before:
            if one.untyped_storage()._cdata == storage and _bytes(one) > size:  # noqa: SLF001
                self.handed_out(call.op, one, size // one.element_size())
        return result

    def left_open(self, op: KnownOverload, output: torch.Tensor, other: torch.Tensor) -> None:
        """Note that elements of an output are unwritten: those in which another execution left something else."""
        if not _followed(output) or output.shape != other.shape:
            return
        memory = _memory(output, output.dtype)
        values = memory.clone(), memory.clone()
        _like(values[1], output).copy_(other)
        self._blanks.set(output, _Blank(~_same_elements(*values), output.dtype, values, op.name, values[0]))

    def _blank_of(self, tensor: torch.Tensor) -> _Blank | None:
        return self._blanks.get(tensor) if self._blanks and _followed(tensor) else None

    def has(self, tensor: torch.Tensor) -> bool:
        """Tell whether some element of a tensor is unwritten."""
        blank = self._blank_of(tensor)
        if blank is None or _resized(tensor, blank):
            return False
        return bool(_like(blank.open, tensor).any())

    def part_of(self, tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Return a tensor with zeros where nothing is known to have written, and where that is; ``None`` where nothing has, or it is unknown."""
        blank = self._blank_of(tensor)
        if blank is None or _resized(tensor, blank) or sort_of(tensor) != CPU:
            return None
        opened = _like(blank.open, tensor)
        if bool(opened.all()):
            return None
        filled = tensor.clone()
        # By their bits, since not every dtype can be filled.
        (filled if filled.is_complex() else as_integers(filled)).masked_fill_(opened, 0)
        return filled, opened

    def untouched(self, tensor: torch.Tensor) -> bool:
        """Tell whether nothing has written to the memory of a tensor: what stands there is what was left of another one."""
        blank = self._blank_of(tensor)
        if blank is None or _resized(tensor, blank):
            return False
        self._written_behind_us(tensor, blank)
        return bool(blank.open.all())

    def exported(self, tensor: torch.Tensor) -> None:
        """Follow no more what numpy, for one, may write to: it may leave all bits as they were, in memory that is used again."""
        self._blanks.remove(tensor)

    def reads(self, call: RepeatedCall, *, region: bool = False) -> str | None:
        """Before an op is called: return the op that handed out unwritten memory which its result depends on.

        Of a *region* what it writes is told behind it, by ``closed_within``.
        """
        self.given_open = set()
        if not self._blanks:
            return None
        overwritten = set(map(id, call.op.overwritten(call.args, call.kwargs)))
        for one in call.given:
            blank = self._blank_of(one)
            if blank is None:
                continue
            if id(one) in overwritten and not _resized(one, blank):
                self._close(one, blank, kept=False)
            elif call.op.refused is not None:
                # It may well write there; that nothing had before is no difference between runs.
                self.given_open |= {id(one)} if self.has(one) else set()
                if not region:
                    self._blanks.remove(one)
            elif _resized(one, blank):
                self._blanks.remove(one)
            elif self._written_behind_us(one, blank) and bool(_like(blank.open, one).any()):
                self.given_open.add(id(one))
                found = None if blank.doubted else self._test(call, one, blank)
                if found:
                    self._blanks.remove(one)
                    return found
        return None

    def closed_within(self, tensor: torch.Tensor, before: torch.Tensor) -> None:
        """Note what a region has written of a tensor: the elements that are no longer as *before*."""
        blank = self._blank_of(tensor)
        if blank is None or _resized(tensor, blank):
            return
        now, then = (as_integers(one.contiguous().view(-1)) for one in (tensor, before))
        kept = (now == then).view(tensor.numel(), -1).all(1).view(tensor.shape)
        blank.doubted = True
        self._close(tensor, blank, kept=kept)

    def _close(self, tensor: torch.Tensor, blank: _Blank, *, kept: torch.Tensor | bool) -> None:
        opened = _like(blank.open, tensor)
        if kept is False:
            opened.fill_(False)  # also where elements share memory
        else:
            opened.logical_and_(kept)
        if not bool(blank.open.any()):
            self._blanks.remove(tensor)

    def _written_behind_us(self, tensor: torch.Tensor, blank: _Blank) -> bool:
        """Close the elements that no op has written and that changed: numpy, for one, writes without an op. Tell whether any is left."""
        blank.open.logical_and_(_same_elements(_memory(tensor, blank.dtype), blank.was))
        if left := bool(blank.open.any()):
            return left
        self._blanks.remove(tensor)
        return False

    def _test(self, call: RepeatedCall, read: torch.Tensor, blank: _Blank) -> str | None:
        """Execute an op on copies that hold one thing or another where nothing was written."""
        memory = _memory(read, blank.dtype)
        seen = []
        for values in (blank.values[0], blank.values[0], blank.values[1]):
            poisoned = torch.where(blank.open, values, memory)
            results = _executed(call, read, poisoned)
            if results is None:
                self._blanks.remove(read)
                return None
            seen.append((results, poisoned))
        (first, one), (again, same), (second, other) = seen
        if not _same([*first, one], [*again, same]):
            # It differs by itself.
            self._blanks.remove(read)
            return None
        kept = blank.open & _same_elements(one, blank.values[0]) & _same_elements(other, blank.values[1])
        moved = ~_same_elements(one, other) & ~kept
        if not _same(first, second) or bool(moved.any()):
            return blank.origin
        if call.changed:
            blank.open = kept
            if not bool(kept.any()):
                self._blanks.remove(read)
        return None


def _executed(call: RepeatedCall, read: torch.Tensor, poisoned: torch.Tensor) -> list[torch.Tensor] | None:
    """Execute an op with other memory in the place of that of *read*; return what it gave beside, ``None`` if it raised."""
    new: dict[int, torch.Tensor] = {}
    for one in call.given:
        if _shares(one, read):
            if one.dtype != poisoned.dtype:
                return None
            new[id(one)] = _like(poisoned, one)
        elif any(one is it for it in call.changed):
            new[id(one)] = one.clone()
    try:
        with drawing_again(call):
            result = call.func(*substituted(call.args, new), **substituted(dict(call.kwargs), new))
    except Exception:  # noqa: BLE001 - nothing can be said, and the program never meets it
        return None
    mine = {id(one) for one in new.values()}
    found = [one for one in tensors(result) if id(one) not in mine]
    found += [new[id(one)] for one in call.changed]
    return [one for one in found if not _shares(one, poisoned)]


def _followed(tensor: torch.Tensor) -> bool:
    """Tell whether memory is followed: not that of a simulated GPU, where each look would be a kernel."""
    return sort_of(tensor) == CPU or (sort_of(tensor) == DEVICE and not simulated.active())


def _resized(tensor: torch.Tensor, blank: _Blank) -> bool:
    """Tell whether memory is read as something else than it was handed out as: of another dtype, or another size."""
    return tensor.dtype != blank.dtype or bool(_bytes(tensor) // tensor.element_size() != len(blank.open))


def _bytes(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage().nbytes())


def _memory(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return all elements of the memory of a tensor."""
    count = _bytes(tensor) // tensor.element_size()
    return tensor.view(dtype).as_strided((count,), (1,), 0)


def _like(memory: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Return those elements of *memory* that *tensor* has of its own."""
    return memory.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def _shares(one: torch.Tensor, other: torch.Tensor) -> bool:
    return (
        sort_of(one) in {CPU, DEVICE} and one.untyped_storage()._cdata == other.untyped_storage()._cdata  # noqa: SLF001 - has no public name
    )


def _same(ones: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    return len(ones) == len(others) and not any(
        bool(unequal(x, y)) for x, y in zip(ones, others, strict=True)
    )


def _same_elements(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    same = as_integers(one) == as_integers(other)
    return same.view(len(one), -1).all(1)
