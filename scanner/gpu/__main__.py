"""The interpreter process: ``python -m detmatrix.scanner.gpu --socket N --memory N --arch sm_80``.

It maps the memory of the device where the worker has it, and answers the worker's runtime: what a kernel needs, where a
variable lies, and launches, each of which is executed before it is answered. It ends when the worker does.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import mmap
import os
import socket
import struct
import sys
import time
import zlib
from collections.abc import Callable
from typing import Any

from detmatrix.scanner.errors import DetmatrixError
from detmatrix.scanner.gpu import sass
from detmatrix.scanner.gpu.cubin import Cubin, CubinError, CubinKernel, cubins, readable
from detmatrix.scanner.gpu.device import GpuTable, blocks_per_multiprocessor, device
from detmatrix.scanner.gpu.engine import KINDS, MOST_PAIRS, Conflict, LaunchError, Result, launch, orders_of
from detmatrix.scanner.schedules import CANONICAL, MEMORY, PAIR, SCOPES, shown_in

# Where both processes map the device's memory; the end of it is this one's, for the variables of modules.
BASE = 0x7A0000000000
OWN = 1 << 30
_MAP_FIXED_NOREPLACE, _MAP_NORESERVE = 0x100000, 0x4000
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
# What is aligned to less than this in no module.
_ALIGNED = 4096


# Accesses that decide nothing of what their threads do next: a swap of two of them moves no others with it that matter.
_INDEPENDENT = frozenset({"float add", "write"})


class SassInterpreter:
    """The kernels that a worker has registered, the schedule that is in force, and what happened under it."""

    def __init__(self, on: GpuTable) -> None:
        self._device = on
        self._images: dict[int, bytes] = {}
        self._modules: dict[int, list[Cubin]] = {}
        self._kernels: dict[tuple[int, str], CubinKernel] = {}
        self._own: list[tuple[int, int]] = []  # what variables of modules take of the memory
        self._free = BASE + on.memory - OWN
        self._asked: dict[str, Any] = {"class": "canonical", "number": 0, "seed": 0, "seconds": 300.0}
        self._deadline = time.monotonic() + 300.0
        self._launches: list[tuple[str, int]] = []  # kernel and number of blocks
        self._faults: list[dict[str, str]] = []
        self._approximates = False  # a kernel took results of MUFU
        self._work = 0  # instructions of threads
        self._ordinal = 0
        # Of the last execution whose conflicts were looked for: its launches, pairs to be tried alone (the launch of each, its
        # kernel, and the conflict), and those of all that came in the other order since (launch and place).
        self._logged: list[tuple[CubinKernel, Result]] = []
        self._pairs: list[tuple[int, CubinKernel, Conflict]] = []
        self._reversed: set[tuple[int, int]] = set()
        # Whether the pair that was swapped came so, and whether then all else of it is as it was.
        self._swapped = (False, False)
        # What launches left in memory, of the last traced canonical execution and of this one.
        self._canonical: list[int] = []
        self._left: list[int] = []
        self.answers: dict[int, Callable[[memoryview], bytes]] = {
            1: self._image,
            2: self._function,
            3: self._occupancy,
            4: self._launch,
            5: self._symbol,
            6: self._schedule,
            7: self._report,
        }

    def answer(self, kind: int, payload: memoryview) -> tuple[int, bytes]:
        """Return the status and the text or the content of a reply."""
        try:
            return KINDS.index("ran"), self.answers[kind](payload)
        except LaunchError as error:
            status, text = error.kind, str(error)
        except (DetmatrixError, OSError) as error:  # code that is not understood, or nowhere to keep it
            status, text = "unknown", str(error)
        self._faults.append({"kind": status, "text": text})
        return KINDS.index(status), text.encode()

    def _image(self, payload: memoryview) -> bytes:
        (number,) = struct.unpack_from("<Q", payload)
        self._images[number] = bytes(payload[8:])
        return b""

    def _module(self, number: int) -> list[Cubin]:
        """Return the cubins of a fat binary; their variables are given memory when it is first asked for."""
        if number not in self._modules:
            found = cubins(self._images.pop(number), self._device.architecture)
            for one in found:
                content = one.place(self._free)
                ctypes.memmove(self._free, content, len(content))
                if content:
                    self._own.append((self._free, self._free + len(content)))
                self._free += -(-len(content) // _ALIGNED) * _ALIGNED
            self._modules[number] = found
        return self._modules[number]

    def _kernel(self, number: int, name: str) -> CubinKernel:
        if (number, name) not in self._kernels:
            found = next((one for one in self._module(number) if name in one.kernels), None)
            if found is None:
                raise CubinError(
                    f"no code of {name} for sm_{self._device.architecture}, for which its library is to be compiled"
                )
            self._kernels[number, name] = found.kernel(name)
        return self._kernels[number, name]

    def _function(self, payload: memoryview) -> bytes:
        (number,) = struct.unpack_from("<Q", payload)
        kernel = self._kernel(number, bytes(payload[8:]).decode())
        limit = self._device["MaxSharedMemoryPerBlock"] - kernel.shared
        sizes = (kernel.registers, kernel.shared, kernel.constant, kernel.local, kernel.max_threads, limit)
        parameters = [number for parameter in kernel.parameters for number in parameter]
        head = (*sizes, *[self._device.architecture] * 2, len(kernel.parameters))
        return struct.pack(f"<8iI{len(parameters)}I", *head, *parameters)

    def _blocks(self, kernel: CubinKernel, dynamic: int, threads: int) -> int:
        return blocks_per_multiprocessor(
            self._device, kernel.registers, kernel.shared, dynamic, threads, kernel.barriers
        )

    def _occupancy(self, payload: memoryview) -> bytes:
        number, threads, dynamic = struct.unpack_from("<QiQ", payload)
        return struct.pack(
            "<i", self._blocks(self._kernel(number, bytes(payload[20:]).decode()), dynamic, threads)
        )

    def _launch(self, payload: memoryview) -> bytes:
        number, *sizes, dynamic, _, length = struct.unpack_from("<Q6IQII", payload)
        at = struct.calcsize("<Q6IQII")
        name = bytes(payload[at : at + length]).decode()
        at += length
        (length,) = struct.unpack_from("<I", payload, at)
        parameters = bytes(payload[at + 4 : at + 4 + length])
        at += 4 + length
        (count,) = struct.unpack_from("<I", payload, at)
        numbers = struct.unpack_from(f"<{2 * count}Q", payload, at + 4)
        ranges = [(start, start + size) for start, size in zip(numbers[::2], numbers[1::2], strict=True)]
        ranges = sorted([*ranges, *self._own])
        self._launches.append((name, math.prod(sizes[:3])))
        if self._asked.get("skip"):
            if time.monotonic() > self._deadline:
                raise LaunchError("timeout", f"no time is left for kernel {name}")
            return b""
        kernel = self._kernel(number, name)
        grid, block = sizes[:3], sizes[3:]
        resident = (
            self._blocks(kernel, dynamic, block[0] * block[1] * block[2])
            * self._device["MultiProcessorCount"]
        )
        asked = self._asked
        orders = orders_of(asked["class"], asked["number"], asked["seed"], self._ordinal)._replace(
            moved=bool(asked.get("moved"))
        )
        swap = self._pairs[asked["number"]] if asked["class"] == PAIR else None
        log = bool(asked.get("log"))
        known = self._logged[self._ordinal :][:1] if asked["class"] not in (CANONICAL, MEMORY, PAIR) else []
        try:
            result = launch(
                kernel,
                sass.instructions(kernel.code, self._device.architecture),
                grid,
                block,
                parameters,
                dynamic_shared=dynamic,
                resident=resident,
                ranges=struct.pack(f"<{2 * len(ranges)}Q", *(edge for one in ranges for edge in one)),
                orders=orders,
                log=log,
                swap=swap[2] if swap and swap[0] == self._ordinal else None,
                watch=known[0][1].conflicts if known and known[0][0].name == name else (),
                seconds=self._deadline - time.monotonic(),
            )
        except LaunchError as error:
            text = str(error)
            if error.line is not None:
                text += f": {sass.text_of(kernel.code, self._device.architecture, error.line)}"
            raise LaunchError(error.kind, f"{text} of kernel {name}") from error
        if log:
            self._logged.append((kernel, result))
        if known:
            came = enumerate(result.watched)
            self._reversed |= {(self._ordinal, place) for place, (swapped, _) in came if swapped}
        elif result.watched:
            (self._swapped,) = result.watched
        if asked.get("traced"):
            self._left.append(_digest(ranges))
        self._approximates |= result.approximates
        self._work += result.work
        self._ordinal += 1
        return b""

    def _symbol(self, payload: memoryview) -> bytes:
        (number,) = struct.unpack_from("<Q", payload)
        name = bytes(payload[8:]).decode()
        for one in self._module(number):
            if name in one.variables:
                return struct.pack("<2Q", *one.variables[name])
        raise CubinError(f"no variable {name} for sm_{self._device.architecture}")

    def _schedule(self, payload: memoryview) -> bytes:
        self._asked = json.loads(bytes(payload))
        self._deadline = time.monotonic() + self._asked["seconds"]
        self._ordinal, self._left, self._swapped = 0, [], (False, False)
        if self._asked.get("log"):
            self._logged, self._reversed = [], set()
        return b""

    def _report(self, _: memoryview) -> bytes:
        conflicts = None
        if self._asked.get("log") and self._logged:
            pairs = [
                (at, kernel, one) for at, (kernel, it) in enumerate(self._logged) for one in it.conflicts
            ]
            self._pairs = _chosen(pairs)
            conflicts = _joined([it for _, it in self._logged], self._pairs)
        if self._asked.get("traced") and self._asked["class"] == CANONICAL:
            self._canonical = self._left
        said = {
            "launches": [name for name, _ in self._launches],
            "blocks": [blocks for _, blocks in self._launches],
            "names": {name: readable(name) for name, _ in self._launches if self._asked.get("skip")},
            "faults": self._faults,
            "conflicts": conflicts,
            "approximates": self._approximates,
            "work": self._work,
            "reversed": (len(self._reversed), sum(len(it.conflicts) for _, it in self._logged)),
            "swapped": self._swapped,
            "unexplained": self._unexplained() if self._asked.get("traced") else "",
        }
        self._launches, self._faults, self._approximates, self._work = [], [], False, 0
        return json.dumps(said).encode()

    def _unexplained(self) -> str:
        """Name what first left other memory behind than in the canonical execution, if no conflict is known there that explains it."""
        left = zip(self._canonical, self._left, strict=False)
        at = next((number for number, (one, other) in enumerate(left) if one != other), None)
        if at is None:
            return "" if self._asked["class"] == CANONICAL else "what no kernel wrote"
        if at >= len(self._logged):
            return ""
        kernel, result = self._logged[at]
        changed = zip(SCOPES, result.pairs, strict=True)
        if result.doubts or any(pairs and shown_in(self._asked["class"], scope) for scope, pairs in changed):
            return ""
        return readable(kernel.name)


def _chosen(pairs: list[tuple[int, CubinKernel, Conflict]]) -> list[tuple[int, CubinKernel, Conflict]]:
    """Return the pairs to be tried: of each scope those first whose values tell a difference, some of each sort."""
    groups: dict[tuple[bool, str], list[tuple[int, CubinKernel, Conflict]]] = {}
    for one in sorted(pairs, key=lambda one: not one[2].shows):
        groups.setdefault((not _INDEPENDENT.issuperset(one[2].kinds), one[2].scope), []).append(one)
    return [one for key in sorted(groups) for one in groups[key][:MOST_PAIRS]]


def _digest(ranges: list[tuple[int, int]]) -> int:
    """Return a checksum of the memory that exists."""
    found = 0
    for start, end in ranges:
        found = zlib.crc32((ctypes.c_char * (end - start)).from_address(start), found)
    return found


def _joined(found: list[Result], pairs: list[tuple[int, CubinKernel, Conflict]]) -> dict[str, Any]:
    """Return what the launches of an execution have in conflict."""
    return {
        "pairs": [sum(numbers) for numbers in zip(*(one.pairs for one in found), strict=True)],
        "commuting": sum(one.commuting for one in found),
        "tame": sum(one.tame for one in found),
        "told": [
            {"launch": launch, "kernel": readable(kernel.name), "source": kernel.source, **one._asdict()}
            for launch, kernel, one in pairs
        ],
        "inexact": any(set(pair.kinds) == {"float add"} for one in found for pair in one.conflicts),
        "doubts": sorted({doubt for one in found for doubt in one.doubts}),
    }


def _map(descriptor: int, size: int) -> None:
    """Map the device's memory where the worker has it."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
    flags = mmap.MAP_SHARED | _MAP_FIXED_NOREPLACE | _MAP_NORESERVE
    # What a launch frees is kept for the next: asking the system for memory again costs more than many kernels do.
    libc.mallopt(_TRIM_THRESHOLD, 1 << 28)
    libc.mallopt(_MMAP_THRESHOLD, 1 << 25)
    if libc.mmap(BASE, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, descriptor, 0) != BASE:
        sys.exit(f"the memory of the device cannot be mapped ({os.strerror(ctypes.get_errno())})")


def main() -> None:
    """Answer until the worker is gone."""
    parser = argparse.ArgumentParser(prog="python -m detmatrix.scanner.gpu", allow_abbrev=False)
    parser.add_argument("--socket", type=int, required=True)
    parser.add_argument("--memory", type=int, required=True)
    parser.add_argument("--arch", required=True)
    parser.add_argument("--multiprocessors", type=int, default=0)
    options = parser.parse_args()
    on = device(int(options.arch.removeprefix("sm_")), options.multiprocessors)
    _map(options.memory, on.memory)
    interpreter = SassInterpreter(on)
    with socket.socket(fileno=options.socket) as connection, connection.makefile("rb") as requests:
        while len(head := requests.read(8)) == 8:  # noqa: PLR2004
            kind, length = struct.unpack("<2I", head)
            if len(payload := requests.read(length)) < length:
                break
            status, content = interpreter.answer(kind, memoryview(payload))
            connection.sendall(struct.pack("<2I", status, len(content)) + content)


if __name__ == "__main__":
    main()
