"""Write down every op of a run with digests of what it was given and what it gave, to be held against another run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import torch

from scanner.locate.comparison import COMPOUND, NOTHING, sort_of
from scanner.locate.digests import digest
from scanner.locate.overloads import KnownOverload, scalars, tensors, words
from scanner.locate.places import SiteKey, call_site
from scanner.locate.replay import generators
from scanner.locate.storages import StorageTable, geometry
from scanner.locate.unwritten import WRITERS, UnwrittenMemory
from scanner.worker.bits import parts

# Ops that are written at once; digests stay on their device until then.
_BATCH = 2048
_ALL = (1 << 64) - 1
# Stands for what is not compared: memory that nothing has written, or that cannot be read.
_UNKNOWN = "-"


class _Digest:
    """A digest that is read later, from where it was computed."""

    __slots__ = ("text",)

    def __init__(self, text: str = "") -> None:
        self.text = text


_NOT_COMPARED, _NO_ELEMENTS = _Digest(_UNKNOWN), _Digest("0")


class RunRecorder:
    """Writes a line for each op: [site, tensors, numbers, digests before, digests behind, which inputs changed between ops]."""

    def __init__(self, path: str, unwritten: UnwrittenMemory) -> None:
        self._file: IO[str] = Path(path).open("w", encoding="utf-8")  # noqa: SIM115 - until the program's end
        self._unwritten = unwritten
        self._lines: list[str] = []
        self._sites: dict[SiteKey, int] = {}
        self._texts: dict[str, int] = {}
        self._rows: list[tuple[int, int, int, list[_Digest], list[_Digest], list[int]]] = []
        self._waiting: list[tuple[_Digest, torch.Tensor]] = []
        # Digests that an input was last known by, to be held against what it is: (row, place, then, now).
        self._checks: list[tuple[list[int], int, _Digest, _Digest]] = []
        self._last: StorageTable[dict[tuple[Any, ...], _Digest]] = StorageTable()

    def begin(self, op: KnownOverload, args: Sequence[Any], kwargs: Mapping[str, Any], key: SiteKey) -> None:
        """Digest what an op is given."""
        given = tensors((args, dict(kwargs)))
        overwritten = set(map(id, op.changed(args, kwargs))) if op.name in WRITERS or op.is_out else ()
        changed: list[int] = []
        before = [
            _NOT_COMPARED if id(one) in overwritten else self._read(one, changed, place)
            for place, one in enumerate(given)
        ]
        if op.random and op.aten:
            before += [self._digest(one.get_state()) for one in generators(kwargs)]
        site = self._sites.get(key)
        if site is None:
            site = self._sites[key] = len(self._sites)
            self._line({"site": asdict(call_site(key))})
        shapes, numbers = self._text(", ".join(words(args, kwargs))), self._text(scalars(args, kwargs))
        self._rows.append((site, shapes, numbers, before, [], changed))

    def end(self, written: Sequence[torch.Tensor], opened: frozenset[int]) -> None:
        """Digest what it gave, but for the places of outputs that it leaves unwritten."""
        behind = self._rows[-1][4]
        for place, one in enumerate(written):
            behind.append(_NOT_COMPARED if place in opened else self._wrote(one))
        if len(self._rows) >= _BATCH:
            self.flush()

    def _text(self, text: str) -> int:
        number = self._texts.get(text)
        if number is None:
            number = self._texts[text] = len(self._texts)
            self._line({"text": text})
        return number

    def _read(self, tensor: torch.Tensor, changed: list[int], place: int) -> _Digest:
        if self._unwritten.has(tensor):
            return _NOT_COMPARED
        now = self._digest(tensor)
        known = self._last.get(tensor)
        if known is not None and (then := known.get(geometry(tensor))) is not None:
            self._checks.append((changed, place, then, now))
            known[geometry(tensor)] = now
        elif known is not None:
            known[geometry(tensor)] = now
        else:
            self._last.set(tensor, {geometry(tensor): now})
        return now

    def _wrote(self, tensor: torch.Tensor) -> _Digest:
        if self._unwritten.has(tensor):
            return _NOT_COMPARED
        now = self._digest(tensor)
        # Whatever else shares the memory may hold something new.
        self._last.set(tensor, {geometry(tensor): now} if sort_of(tensor) < COMPOUND else {})
        return now

    def forget(self, changed: Sequence[torch.Tensor]) -> None:
        """Forget tensors that something else than this thread may go on writing."""
        for one in changed:
            self._last.remove(one)

    def _digest(self, tensor: torch.Tensor) -> _Digest:
        if sort_of(tensor) == NOTHING:
            return _NOT_COMPARED
        if sort_of(tensor) == COMPOUND:
            pieces = [digest(piece) for _, piece in parts(tensor, "") if piece.numel()]
            found = digest(torch.cat(pieces)) if pieces else None
        else:
            found = digest(tensor) if tensor.numel() else None
        if found is None:
            return _NO_ELEMENTS
        mine = _Digest()
        self._waiting.append((mine, found))
        return mine

    def flush(self) -> None:
        """Write the ops seen since the last time; one synchronisation for each device."""
        by_device: dict[torch.device, list[tuple[_Digest, torch.Tensor]]] = {}
        for one, numbers in self._waiting:
            by_device.setdefault(numbers.device, []).append((one, numbers))
        for waiting in by_device.values():
            values = torch.ops.aten.stack.default([numbers for _, numbers in waiting]).tolist()
            for (one, _), (first, second) in zip(waiting, values, strict=True):
                one.text = f"{first & _ALL:016x}{second & _ALL:016x}"
        for changed, place, then, now in self._checks:
            if then.text != now.text:
                changed.append(place)
        self._waiting, self._checks = [], []
        for site, shapes, numbers, before, behind, changed in self._rows:
            self._line(
                [site, shapes, numbers, [one.text for one in before], [one.text for one in behind], changed]
            )
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
