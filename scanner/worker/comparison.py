"""Hold the outputs of executions against those of the first, bit by bit.

On the CPU each output is compared at once. On a GPU the comparison is queued on the device behind the
execution and the mismatch flags are read now and then, so that no execution waits for the host; what differed is digested
and measured there too.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
from typing import Any

import torch

from detmatrix.scanner.worker import accelerator, bits
from detmatrix.scanner.worker.difference import SeverityAccumulator

# Outputs kept on a GPU until their flags are read, in bytes and as a share of its memory; the differing ones are then
# digested.
_CHUNK_BYTES, _CHUNK_SHARE = 1 << 30, 1 / 16
# Stands for the digest of an output that differed and was overwritten before it was digested.
_OVERWRITTEN = "overwritten"
# Differing executions of which it is said how far they are from the first.
_EXAMINED = 3
# What is sampled of all outputs of an execution together, in bytes and in numbers of one of them; at least one of each.
_SAMPLE_BYTES, _SAMPLE_NUMBERS = 64, 16


class OutputComparison:
    """Counts executions equal to the first under its digest; digests the others, which tells how many distinct outputs there are."""

    def __init__(self, first: list[bits.Part], runs: int) -> None:
        self._first = bits.frozen(first)
        self._aliases = {tensor.data_ptr() for _, tensor in first}
        self._originals: list[bits.Part] | None = first
        self._digest = bits.digest(self._first)
        self._digests: dict[str, int] = {self._digest: 1}
        self._unequal = [0] * len(first)
        self._severities = [SeverityAccumulator(tensor) for _, tensor in self._first]
        self._examined = 0
        self._first_differing: int | None = None
        self.differing = 0  # executions known to differ: all of those behind `settle`
        self._on_cpu = all(tensor.device.type == "cpu" for _, tensor in first)
        self._copy = False
        self._pending: list[tuple[int, list[bits.Part]]] = []
        self._pending_bytes = 0
        self._chunk = _CHUNK_BYTES
        if not self._on_cpu:
            device = next(tensor.device for _, tensor in first if tensor.device.type != "cpu")
            self._flags = torch.zeros((runs, len(first)), dtype=torch.bool, device=device)
            self._chunk = min(_CHUNK_BYTES, int(_CHUNK_SHARE * accelerator.memory(str(device))))

    def add(self, index: int, judged: list[bits.Part]) -> None:
        """Compare execution *index*; on a GPU only queue the comparison."""
        if not bits.same_structure(self._first, judged):
            self.settle()
            self._differs(index, judged, [True] * len(self._unequal), bits.digest(judged))
        elif self._on_cpu:
            unequal = [
                not bits.equal_on_cpu(first, tensor)
                for (_, first), (_, tensor) in zip(self._first, judged, strict=True)
            ]
            if any(unequal):
                self._differs(index, judged, unequal, bits.digest(judged))
            else:
                self._digests[self._digest] += 1
        else:
            self._queue(index, judged)

    def _queue(self, index: int, judged: list[bits.Part]) -> None:
        """Queue a comparison on the device and keep the output until its flags are read."""
        for column, ((_, first), (_, tensor)) in enumerate(zip(self._first, judged, strict=True)):
            if tensor.device.type == "cpu":
                self._flags[index, column] = not bits.equal_on_cpu(first, tensor)
            else:
                self._flags[index, column] = bits.differ_on_device(first, tensor)
        if self._originals is not None:
            # The first output is still alive, so only an op that reuses its buffer returns the same address.
            self._copy = any(tensor.data_ptr() in self._aliases for _, tensor in judged)
            self._originals = None
        self._pending.append((index, bits.frozen(judged) if self._copy else judged))
        self._pending_bytes += sum(tensor.numel() * tensor.element_size() for _, tensor in judged)
        if self._pending_bytes > self._chunk:
            self.settle()

    def settle(self) -> None:
        """Read the flags of the queued comparisons, all at once, and then the digests of what differed."""
        if not self._pending:
            return
        start = self._pending[0][0]
        flags = self._flags[start : self._pending[-1][0] + 1].tolist()
        pending, self._pending, self._pending_bytes = self._pending, [], 0
        differing = [(index, judged) for index, judged in pending if any(flags[index - start])]
        self._digests[self._digest] += len(pending) - len(differing)
        digests = bits.digests([judged for _, judged in differing])
        for (index, judged), digest in zip(differing, digests, strict=True):
            self._differs(index, judged, flags[index - start], digest)

    def _differs(self, index: int, judged: list[bits.Part], unequal: list[bool], digest: str) -> None:
        if digest == self._digest:
            # The flags were computed when the output was fresh; an op that reuses buffers has changed it since.
            digest = _OVERWRITTEN
        self._digests[digest] = self._digests.get(digest, 0) + 1
        self._unequal = [count + flag for count, flag in zip(self._unequal, unequal, strict=True)]
        self.differing += 1
        if self._first_differing is None:
            self._first_differing = index
        if self._examined < _EXAMINED and digest != _OVERWRITTEN and bits.same_structure(self._first, judged):
            self._examined += 1
            for severity, (_, tensor), flag in zip(self._severities, judged, unequal, strict=True):
                if flag:
                    severity.add(tensor)

    def elements_unlike(self, parts: list[bits.Part]) -> int:
        """Return how many elements of the first execution have other bits than these parts; all if it has another structure."""
        if not bits.same_structure(self._first, parts):
            elements: int = sum(tensor.numel() for _, tensor in self._first)
            return max(1, elements)
        unlike = 0
        for (_, first), (_, tensor) in zip(self._first, parts, strict=True):
            if not first.numel():
                continue  # it has nothing that could be measured
            severity = SeverityAccumulator(first)
            severity.add(tensor)
            unlike += int((severity.result() or {})["differing_elements"])
        return unlike

    def element_unlike(
        self, judged: list[bits.Part], only: tuple[int, int] | None = None
    ) -> dict[str, Any] | None:
        """Return the first element that has other bits than in the first execution; ``None`` if there is none, or no structure."""
        if not bits.same_structure(self._first, judged):
            return None
        pairs = zip(self._first, judged, strict=True)
        for part, ((name, first), (_, other)) in enumerate(pairs):
            size = first.element_size()
            ours, theirs = (_bytes(tensor.contiguous()) for tensor in (first, other))
            for at in range(0, len(ours) if ours != theirs else 0, size):
                if ours[at : at + size] != theirs[at : at + size] and only in (None, (part, at // size)):
                    pair = [one[at : at + size][::-1].hex() for one in (ours, theirs)]
                    return {"output": name, "element": at // size, "canonical": pair[0], "swapped": pair[1]}
        return None

    def result(self, *, sample: bool = False) -> dict[str, Any]:
        """Return digests, first differing execution and outputs, as fields of an observation; also a sample, if that is asked."""
        self.settle()
        size = _SAMPLE_BYTES // max(1, len(self._first))
        return {
            "executions": sum(self._digests.values()),
            "digests": self._digests,
            "first_differing": self._first_differing,
            "outputs": [
                {
                    "name": name,
                    "shape": list(tensor.shape),
                    "dtype": str(tensor.dtype).removeprefix("torch."),
                    "differing": differing,
                    "severity": severity.result(),
                    "sample": _sample(name, tensor, size) if sample else "",
                }
                for (name, tensor), differing, severity in zip(
                    self._first, self._unequal, self._severities, strict=True
                )
            ],
        }


def _sample(name: str, tensor: torch.Tensor, size: int) -> str:
    """Return raw bits of some numbers of a part, always those at the same places; waits for its device once.

    Name and shape decide the places, so that every process, machine and release takes them. Of complex elements the real and
    the imaginary part are a number each. At least one number, and as many as fit into *size* bytes.
    """
    integers = bits.as_integers(tensor)
    width, total = integers.element_size(), integers.numel()
    count = min(max(1, size // width), _SAMPLE_NUMBERS, total)
    if not count:
        return ""
    places = set(range(total)) if total == count else set()
    draws = itertools.count()
    while len(places) < count:
        word = hashlib.sha256(f"{name}|{tuple(tensor.shape)}|{next(draws)}".encode()).digest()
        places.add(int.from_bytes(word[:8], "big") % total)
    # By places, for a strided tensor would be copied whole to become a flat one.
    numbers = integers.take(torch.tensor(sorted(places), device=integers.device)).tolist()
    return " ".join(f"{number % (1 << 8 * width):0{2 * width}x}" for number in numbers)


def _bytes(tensor: torch.Tensor) -> bytes:
    return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())
