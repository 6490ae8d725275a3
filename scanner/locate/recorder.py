"""Write down every op of a run with digests of what it was given and what it gave, to be held against another run."""

from __future__ import annotations

import gzip
import json
import os
import platform
import random
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import IO, Any

import torch

from detmatrix.scanner.locate.call_sites import SiteKey, call_site
from detmatrix.scanner.locate.memory import COMPOUND, CPU, NOTHING, StorageTable, covers, digest, sort_of
from detmatrix.scanner.locate.overloads import generator_of, scalars, tensor_names, words
from detmatrix.scanner.locate.replay import RepeatedCall, states
from detmatrix.scanner.locate.unwritten import UnwrittenMemory
from detmatrix.scanner.locate.uses import RegionUse
from detmatrix.scanner.located import CHANGED, GENERATOR, NOT_COMPARED, PART
from detmatrix.scanner.worker.bits import parts

# Ops that are written at once; digests stay on their device until then.
_BATCH = 2048
# Where the position of a fresh Mersenne Twister stands: nothing was drawn from it since it was seeded, or numpy imported.
_FRESH = {623, 624}
_encode = json.JSONEncoder(check_circular=False, separators=(",", ":")).encode


@dataclass(slots=True, eq=False)
class _Digest:
    """A digest, which may be read later from where it was computed."""

    number: int = 0
    sign: str = ""
    before: _Digest | None = None  # of the same memory, when an op last wrote or read it

    def written(self) -> int | str:
        """Return it as it stands in the record: a number, or a text that begins with what it is."""
        if self.before is not None and self.before.number != self.number:
            return f"{CHANGED}{self.number}"
        if self.sign == NOT_COMPARED:
            return self.sign
        return f"{self.sign}{self.number}" if self.sign else self.number


@dataclass(slots=True)
class _Memory:
    """What is known of the memory of tensors: the line of the op that wrote it last, and digests by where they lie in it."""

    writer: int
    digests: dict[tuple[Any, ...], _Digest] = field(default_factory=dict)


@dataclass(slots=True)
class _Line:
    """What is written of an op."""

    site: int
    tensors: int
    numbers: int
    before: list[_Digest] = field(default_factory=list)
    writers: list[int] = field(default_factory=list)
    behind: list[_Digest] = field(default_factory=list)
    older: list[int] = field(default_factory=list)
    used: int | None = None  # numbers that a compiled region uses beside its arguments
    gave: int | None = None  # shapes of what it gave, if the digest of some is that of zeros

    def written(self) -> list[Any]:
        """Return it as it stands in the record."""
        before, behind = [one.written() for one in self.before], [one.written() for one in self.behind]
        more = (
            [self.used, self.gave] if self.gave is not None else [self.used] if self.used is not None else []
        )
        return [self.site, self.tensors, self.numbers, before, self.writers, behind, self.older, *more]


_HIDDEN, _NO_ELEMENTS = _Digest(sign=NOT_COMPARED), _Digest()


class RunRecorder:
    """Writes a line for each op: [site, tensors, numbers, digests before, what wrote that memory, digests behind, older].

    What wrote the memory of an input is the number of a line; negative numbers stand for memory that no op wrote. Older
    lines wrote the rest of memory of which the op wrote a part. That of a compiled region has one more, the numbers that it
    uses beside its arguments, and that of an op that gave zeros a ninth: the shapes of what it gave.
    """

    def __init__(self, path: str, unwritten: UnwrittenMemory) -> None:
        # Until the program's end.
        opened: Any = gzip.open if path.endswith(".gz") else open
        self._file: IO[str] = opened(path, "wt", encoding="utf-8")
        self._unwritten = unwritten
        rank = os.environ.get("RANK", "")
        header = {
            "kind": "ops",
            "format": 2,
            "torch": str(torch.__version__),
            "python": platform.python_version(),
            "threads": torch.get_num_threads(),
            "cuda": torch.version.cuda,
            "rank": int(rank) if rank.isdecimal() else None,
            "eager": os.environ.get("TORCHDYNAMO_DISABLE") == "1",
        }
        self._file.write(f"{_encode(header)}\n")
        self._file.flush()
        self._states: dict[str, int] = {}
        # Call sites and texts, which lines name by their numbers.
        self._sites: dict[SiteKey, int] = {}
        self._texts: dict[str, int] = {}
        self._lines: list[_Line | dict[str, Any]] = []  # of ops, and what is noted between them
        self._count = 0
        # Digests that are still on another device than the CPU.
        self._waiting: list[tuple[_Digest, torch.Tensor]] = []
        self._memory: StorageTable[_Memory] = StorageTable()
        self._outside = 0

    def begin(self, call: RepeatedCall, key: SiteKey, used: RegionUse | None = None) -> None:
        """Digest what an op is given, ahead of its call; of a compiled region also what it uses."""
        op, args, kwargs, given = call.op, call.args, call.kwargs, call.given
        site = self._sites.get(key)
        if site is None:
            site = self._sites[key] = len(self._sites)
            names = used.names if used else tensor_names(op.arguments, args, kwargs)
            self._note({"site": asdict(call_site(key)), "arguments": names})
        line = _Line(
            site, self._text(", ".join(words(given))), self._text(scalars(op.arguments, args, kwargs))
        )
        if used and used.numbers:
            line.used = self._text(", ".join(f"{name}={one!r}" for name, one in used.numbers.items()))
        hidden, opened = set(map(id, op.overwritten(args, kwargs))), self._unwritten.given_open
        for one in given:
            memory = self._memory.get(one)
            if memory is None:
                self._note_states()
                self._outside -= 1
                memory = _Memory(self._outside)
                self._memory.set(one, memory)
            line.writers.append(memory.writer)
            line.before.append(self._known(one, memory, hidden=id(one) in hidden, part=id(one) in opened))
        if op.random and op.aten:
            line.before += [
                self._digest(state, CPU, GENERATOR) for _, state in states(generator_of(args, kwargs))
            ]
        self._line = line

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Digest the states that random generators had before a block, of those that it draws from."""
        before = states(None)
        yield
        for generator, state in before:
            if not torch.equal(generator.get_state(), state):
                self._line.before.append(self._digest(state, CPU, GENERATOR))

    def end(self, written: Sequence[torch.Tensor], opened: frozenset[int] | None) -> None:
        """Digest what it gave, but for the places of outputs that it leaves unwritten; ``None``: it may go on writing."""
        for place, one in enumerate(written):
            memory = self._written(one)
            if opened is not None:
                part = place not in opened and self._unwritten.has(one)
                self._line.behind.append(self._known(one, memory, hidden=place in opened, part=part))
        if not all(one.number for one in self._line.behind):  # or it is not known yet
            self._line.gave = self._text(", ".join(words(written)))
        # Only now: an op that raised has no line.
        self._lines.append(self._line)
        self._count += 1
        if len(self._lines) >= _BATCH:
            self.flush()

    def _written(self, tensor: torch.Tensor) -> _Memory:
        """Return what is known of memory of which the op that ends has written at least what this tensor has of it."""
        memory = _Memory(self._count)
        last = self._memory.set(tensor, memory)
        if last is not None and not covers(tensor):
            self._line.older.append(last.writer)
        return memory

    def _text(self, text: str) -> int:
        number = self._texts.get(text)
        if number is None:
            number = self._texts[text] = len(self._texts)
            self._note({"text": text})
        return number

    def _known(self, tensor: torch.Tensor, memory: _Memory, *, hidden: bool, part: bool) -> _Digest:
        """Digest a tensor, and keep what it is known by: something else than an op may write to it."""
        if hidden or part:
            written = None if hidden else self._unwritten.part_of(tensor)
            if written is None:
                return _HIDDEN
            content, opened = (int(digest(one.contiguous())) for one in written)
            return _Digest(content, f"{PART}{opened}.")
        sort = sort_of(tensor)
        found = self._digest(tensor, sort)
        if sort < COMPOUND and found is not _NO_ELEMENTS:
            place = tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype
            found.before = memory.digests.get(place)
            memory.digests[place] = found
        return found

    def _digest(self, tensor: torch.Tensor, sort: int, sign: str = "") -> _Digest:
        if sort == NOTHING:
            return _HIDDEN
        pieces = [one for _, one in parts(tensor, "")] if sort == COMPOUND else [tensor]
        numbers = [digest(piece) for piece in pieces if piece.numel()]
        if not numbers:
            return _NO_ELEMENTS
        number = digest(torch.stack(numbers)) if sort == COMPOUND else numbers[0]
        found = _Digest(sign=sign)
        if sort == CPU:
            found.number = int(number)
        else:
            self._waiting.append((found, number))
        return found

    def handed(self, tensor: torch.Tensor, *, saved: bool = False) -> None:
        """Note that Python is given what a tensor holds, without an op, or that it is saved."""
        memory = self._memory.get(tensor)
        if memory is not None:
            self._note({"saved" if saved else "handed": memory.writer})

    def step(self, number: int) -> None:
        """Note that a step begins."""
        self._note({"step": number})

    def _note(self, one: dict[str, Any]) -> None:
        self._lines.append(one)

    def _note_states(self) -> None:
        """Note the states of Python's generators, of those that were drawn from: they may have made what an op is given."""
        states = python_states()
        if states != self._states:
            self._states = states
            self._note({"states": states})

    def flush(self) -> None:
        """Write the ops seen since the last time; one synchronisation for each device."""
        by_device: dict[torch.device, list[tuple[_Digest, torch.Tensor]]] = {}
        for one, number in self._waiting:
            by_device.setdefault(number.device, []).append((one, number))
        for waiting in by_device.values():
            values = torch.stack([number for _, number in waiting]).tolist()
            for (one, _), value in zip(waiting, values, strict=True):
                one.number = value
        # As a whole: what interrupts this may be caught, and the program go on. Then each line is written once, whatever comes.
        text = "".join(
            f"{_encode(one.written() if isinstance(one, _Line) else one)}\n" for one in self._lines
        )
        lines, self._waiting, self._lines = self._lines, [], []
        self._file.write(text)
        for line in lines:
            for one in line.before if isinstance(line, _Line) else ():
                one.before = None  # or each would hold on to all those before it
        # A forked process would write again what is left in the buffer.
        self._file.flush()

    def close(self, ended: str | None = None, unwritten: Iterable[SiteKey] = ()) -> None:
        """Write what is left, the call sites that read memory which nothing had written, and how the program ended."""
        self._note({"unwritten": [self._sites[key] for key in unwritten if key in self._sites]})
        self._note({"ended": ended or ""})
        self.flush()
        self._file.close()


def python_states() -> dict[str, int]:
    """Return digests of the states of Python's and numpy's global generators, of those that were drawn from."""
    found = {}
    _, state, _ = random.getstate()
    if state[-1] not in _FRESH:
        found["random"] = state
    drawn: Any = sys.modules.get("numpy.random")
    if drawn is not None:
        state = drawn.get_state()
        if state[0] == "MT19937" and state[2] not in _FRESH:
            found["numpy.random"] = (state[1].tobytes(), *state[2:])
    return {name: zlib.crc32(repr(state).encode()) for name, state in found.items()}
