"""A simulated GPU in a worker: the stand-ins that are loaded before torch, and what they tell of each execution."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

# Bytes that may be allocated on the device, and by the worker beside it: a row that takes more is refused, not the machine.
_MOST_ON_DEVICE = 8 << 30
_MOST_BYTES = 16 << 30
_SCHEDULE, _REPORT = 6, 7
# How fresh memory is filled: with NaN, or in turn with random finite numbers, zeros and huge ones; or not, and it may be large.
_NAN, _KINDS, _BLANK = 0, (1, 2, 3), 4
# By how much allocations lie further: an odd number of what they are aligned to.
_SHIFT = 17 * 512

_libraries: list[ctypes.CDLL] = []
_alike = False


class SimulationError(RuntimeError):
    """The interpreter of the simulated GPU refused what it was asked."""


class Report(NamedTuple):
    """What happened since the last report, or since ``begin``."""

    launches: list[str]  # mangled names of kernels, in order
    # Kind (fault, unknown, timeout) and text of what was not executed as it should be.
    faults: list[tuple[str, str]]
    libraries: list[str]  # calls of NVIDIA's libraries that nobody executed
    products: list[str]  # matrix products that the CPU computed in place of a library
    # Where they were looked for: pairs of accesses that nothing orders, by threads of two blocks, two warps and one warp
    # (``pairs``), those that commute, those too few to show an order (``tame``), kernels and doubts.
    conflicts: dict[str, Any] | None = None
    blocks: Sequence[int] = ()  # of each launch its number of blocks
    names: Mapping[str, str] = {}  # where nothing is executed: of each kernel, for readers
    reads: bool = False  # where nothing is executed: whether host code read what is not there
    approximates: bool = False  # whether a kernel took results of MUFU
    # Of the pairs in conflict that are told, how many came in the other order since they were looked for, and all.
    reversed: Sequence[int] = (0, 0)
    # Whether the pair that was swapped came so, and whether with the same values, one behind the other.
    swapped: Sequence[bool] = (False, False)
    # The kernel that first left other memory behind than canonically, if nothing is in conflict there.
    unexplained: str = ""
    work: int = 0  # instructions of threads

    @property
    def most_blocks(self) -> dict[str, int]:
        """Return the kernels that were launched, and of each the most blocks."""
        most: dict[str, int] = {}
        for name, blocks in zip(self.launches, self.blocks, strict=True):
            most[name] = max(blocks, most.get(name, 0))
        return most


def load(folder: str, socket: int, memory: int) -> None:
    """Load the stand-ins for all to see, before torch: a library whose name is loaded is not searched again."""
    # What the caching allocator hands out again holds what was there before, which host code would read.
    os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    # Triton links a helper with libcuda, and asks ldconfig for one otherwise.
    os.environ["TRITON_LIBCUDA_PATH"] = folder
    # Of the machine's own GPUs, if it has any.
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    for descriptor in (socket, memory):
        os.set_inheritable(descriptor, False)
    resource.setrlimit(resource.RLIMIT_DATA, (_MOST_BYTES, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    names = Path(folder, "order.txt").read_text(encoding="utf-8").split()
    _libraries.extend(ctypes.CDLL(str(Path(folder, name)), ctypes.RTLD_GLOBAL) for name in names)
    runtime = _libraries[0]
    runtime.gpu_notes.restype = ctypes.c_void_p
    runtime.gpu_free.argtypes = [ctypes.c_void_p]
    runtime.gpu_fill.argtypes = [ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64]
    pointer = ctypes.c_void_p
    runtime.gpu_ask.argtypes = [ctypes.c_uint32, ctypes.c_char_p, ctypes.c_size_t, pointer, pointer]
    if error := runtime.gpu_start(socket, memory, ctypes.c_uint64(_MOST_ON_DEVICE)):
        raise OSError(error, f"memory of the simulated GPU: {os.strerror(error)}")


def active() -> bool:
    """Tell whether the GPU of this process is simulated."""
    return bool(_libraries)


def draw_alike(*, asked: bool) -> None:
    """Draw the inputs of a simulated GPU on a device that is none, if that is asked."""
    global _alike  # noqa: PLW0603 - a worker is told once
    _alike = asked


def draws() -> bool:
    """Tell whether inputs are those of a simulated GPU: drawn on the CPU, and small."""
    return active() or _alike


def begin(schedule: str, number: int, seed: int, deadline: float, **asked: bool) -> None:
    """Say what the next execution does.

    *number* is that of the execution within its class, from 0; *deadline* is as ``time.perf_counter`` counts. May be *asked*:
    ``log``: look for accesses that nothing orders; ``skip``: execute no kernel, and only write down which are launched;
    ``moved``: let results of MUFU have another last bit; ``shifted``: let allocations lie at other addresses; ``traced``:
    look at what each kernel leaves in memory.
    """
    kind = _KINDS[number % len(_KINDS)] if schedule == "memory" else _BLANK if asked.get("skip") else _NAN
    _libraries[0].gpu_fill(kind, (seed << 20 ^ number) & (1 << 64) - 1, _SHIFT if asked.get("shifted") else 0)
    seconds = max(0.0, deadline - time.perf_counter())
    _ask(_SCHEDULE, {"class": schedule, "number": number, "seed": seed, "seconds": seconds, **asked})
    report()


def report() -> Report:
    """Return what happened since the last time, and forget it."""
    answer = json.loads(_ask(_REPORT))
    faults = [(one["kind"], one["text"]) for one in answer.pop("faults")]
    notes: dict[str, list[str]] = {"library": [], "product": [], "unknown": [], "read": []}
    runtime = _libraries[0]
    if at := runtime.gpu_notes():
        for line in ctypes.string_at(at).decode(errors="replace").splitlines():
            kind, _, text = line.partition("\t")
            notes[kind].append(text)
        runtime.gpu_free(at)
    faults += [("unknown", text) for text in dict.fromkeys(notes["unknown"])]
    libraries, products = (list(dict.fromkeys(notes[one])) for one in ("library", "product"))
    return Report(faults=faults, libraries=libraries, products=products, reads=bool(notes["read"]), **answer)


def _ask(kind: int, request: dict[str, object] | None = None) -> bytes:
    payload = b"" if request is None else json.dumps(request).encode()
    reply, size = ctypes.c_void_p(), ctypes.c_uint32()
    runtime = _libraries[0]
    status = runtime.gpu_ask(kind, payload, len(payload), ctypes.byref(reply), ctypes.byref(size))
    text = ctypes.string_at(reply, size.value)
    runtime.gpu_free(reply)
    if status:
        raise SimulationError(text.decode(errors="replace"))
    return text
