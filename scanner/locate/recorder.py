"""Write down every op of a run with digests of what it was given and what it gave, to be held against another run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import torch

from scanner.locate.comparison import COMPOUND, NOTHING, sort_of
from scanner.locate.digests import digest, digest_words, quick_digest_words
from scanner.locate.digests import words as words_of
from scanner.locate.overloads import KnownOverload, scalars, tensors, words
from scanner.locate.places import SiteKey, call_site
from scanner.locate.replay import generators
from scanner.locate.storages import StorageTable, covers, geometry
from scanner.locate.unwritten import WRITERS, UnwrittenMemory
from scanner.worker.bits import parts

# Ops that are written at once; digests stay on their device until then.
_BATCH = 2048
_ALL = (1 << 64) - 1
# Stands for what is not compared: memory that nothing has written, or that cannot be read.
_UNKNOWN = "-"
# Begins the digest of a generator's state.
_GENERATOR = "g"
# Begins the digest of an input that something else than an op wrote to after it had been digested.
_CHANGED = "c"


class _Digest:
    """A digest that is read later, from where it was computed."""

    __slots__ = ("quick", "text")

    def __init__(self, text: str = "") -> None:
        self.text = text
        self.quick: _Digest | None = None  # tells whether the tensor was written to since


class _Memory:
    """What is known of the memory of tensors: the line of the op that wrote it last, and digests by where they lie in it."""

    __slots__ = ("digests", "writer")

    def __init__(self, writer: int) -> None:
        self.writer = writer
        self.digests: dict[tuple[Any, ...], _Digest] = {}


_NOT_COMPARED, _NO_ELEMENTS = _Digest(_UNKNOWN), _Digest("0")


class RunRecorder:
    """Writes a line for each op: [site, tensors, numbers, digests before, what wrote that memory, digests behind, older].

    What wrote the memory of an input is the number of a line; negative numbers stand for memory that no op wrote. Older
    lines wrote the rest of memory of which the op wrote a part.
    """

    def __init__(self, path: str, unwritten: UnwrittenMemory) -> None:
        self._file: IO[str] = Path(path).open("w", encoding="utf-8")  # noqa: SIM115 - until the program's end
        self._unwritten = unwritten
        self._lines: list[str] = []
        self._sites: dict[SiteKey, int] = {}
        self._texts: dict[str, int] = {}
        self._rows: list[tuple[int, int, int, list[_Digest], list[int], list[_Digest], list[int]]] = []
        self._count = 0
        self._waiting: list[tuple[_Digest, torch.Tensor]] = []
        self._memory: StorageTable[_Memory] = StorageTable()
        # Inputs that were not digested again: the digests of a line, which one of them, and what it is if that is wrong.
        self._checks: list[tuple[list[_Digest], int, _Digest]] = []
        self._outside = 0

    def begin(self, op: KnownOverload, args: Sequence[Any], kwargs: Mapping[str, Any], key: SiteKey) -> None:
        """Digest what an op is given."""
        given = tensors((args, dict(kwargs)))
        hidden = self._unwritten.given_open
        if op.name in WRITERS or op.is_out:
            hidden = hidden | set(map(id, op.changed(args, kwargs)))
        before: list[_Digest] = []
        writers = []
        for one in given:
            memory = self._memory.get(one) or self._from_outside(one)
            writers.append(memory.writer)
            self._read(one, memory, before) if id(one) not in hidden else before.append(_NOT_COMPARED)
        if op.random and op.aten:
            before += [self._digest(one.get_state(), _GENERATOR) for one in generators(kwargs)]
        site = self._sites.get(key)
        if site is None:
            site = self._sites[key] = len(self._sites)
            self._line({"site": asdict(call_site(key))})
        shapes, numbers = self._text(", ".join(words(args, kwargs))), self._text(scalars(args, kwargs))
        self._rows.append((site, shapes, numbers, before, writers, [], []))

    def end(self, written: Sequence[torch.Tensor], opened: frozenset[int]) -> None:
        """Digest what it gave, but for the places of outputs that it leaves unwritten."""
        behind = self._rows[-1][-2]
        for place, one in enumerate(written):
            hidden = place in opened or self._unwritten.has(one)
            memory = self._written(one)
            behind.append(_NOT_COMPARED if hidden else self._known(one, memory))
        self._ended()

    def end_undigested(self, written: Sequence[torch.Tensor]) -> None:
        """Note that an op, or what it has begun, may have written these tensors, and may go on writing."""
        for one in written:
            self._written(one)
        self._ended()

    def _written(self, tensor: torch.Tensor) -> _Memory:
        """Return what is known of memory of which the op that ends has written at least what this tensor has of it."""
        last = self._memory.get(tensor)
        if last is not None and not covers(tensor):
            self._rows[-1][-1].append(last.writer)
        memory = _Memory(self._count)
        self._memory.set(tensor, memory)
        return memory

    def _ended(self) -> None:
        self._count += 1
        if len(self._rows) >= _BATCH:
            self.flush()

    def _text(self, text: str) -> int:
        number = self._texts.get(text)
        if number is None:
            number = self._texts[text] = len(self._texts)
            self._line({"text": text})
        return number

    def _from_outside(self, tensor: torch.Tensor) -> _Memory:
        self._outside -= 1
        memory = _Memory(self._outside)
        self._memory.set(tensor, memory)
        return memory

    def _read(self, tensor: torch.Tensor, memory: _Memory, before: list[_Digest]) -> None:
        """Digest an input, or look whether it is still what it was."""
        known = memory.digests.get(geometry(tensor)) if sort_of(tensor) < COMPOUND else None
        if known is None:
            before.append(self._known(tensor, memory))
        else:
            self._checks.append(
                (before, len(before), self._waits(quick_digest_words(words_of(tensor)), _CHANGED))
            )
            before.append(known)

    def _known(self, tensor: torch.Tensor, memory: _Memory) -> _Digest:
        """Digest a tensor, and keep what it is known by."""
        if sort_of(tensor) >= COMPOUND or not tensor.numel():
            return self._digest(tensor)
        bits = words_of(tensor)
        found = self._waits(digest_words(bits))
        found.quick = self._waits(quick_digest_words(bits), _CHANGED)
        memory.digests[geometry(tensor)] = found
        return found

    def _waits(self, numbers: torch.Tensor, sign: str = "") -> _Digest:
        """Return a digest whose numbers are read at the next ``flush``."""
        found = _Digest(sign)
        self._waiting.append((found, numbers))
        return found

    def _digest(self, tensor: torch.Tensor, sign: str = "") -> _Digest:
        if sort_of(tensor) == NOTHING:
            return _NOT_COMPARED
        if sort_of(tensor) == COMPOUND:
            pieces = [digest(piece) for _, piece in parts(tensor, "") if piece.numel()]
            found = digest(torch.cat(pieces)) if pieces else None
        else:
            found = digest(tensor) if tensor.numel() else None
        return _NO_ELEMENTS if found is None else self._waits(found, sign)

    def flush(self) -> None:
        """Write the ops seen since the last time; one synchronisation for each device."""
        by_device: dict[torch.device, list[tuple[_Digest, torch.Tensor]]] = {}
        for one, numbers in self._waiting:
            by_device.setdefault(numbers.device, []).append((one, numbers))
        for waiting in by_device.values():
            values = torch.ops.aten.stack.default([numbers for _, numbers in waiting]).tolist()
            for (one, _), (first, second) in zip(waiting, values, strict=True):
                one.text += f"{first & _ALL:016x}{second & _ALL:016x}"
        for before, place, now in self._checks:
            then = before[place].quick
            if then is not None and then.text != now.text:
                before[place] = now
        self._waiting, self._checks = [], []
        for site, shapes, numbers, before, writers, behind, older in self._rows:
            texts = [one.text for one in before], [one.text for one in behind]
            self._line([site, shapes, numbers, texts[0], writers, texts[1], older])
        self._rows = []
        self._file.write("".join(self._lines))
        # A forked process would write again what is left in the buffer.
        self._file.flush()
        self._lines = []

    def _line(self, value: Any) -> None:
        self._lines.append(json.dumps(value, separators=(",", ":")) + "\n")

    def close(self) -> None:
        """Write what is left."""
        self.flush()
        self._file.close()
