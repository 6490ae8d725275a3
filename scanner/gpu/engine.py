"""The engine: C that executes a kernel's instructions under a schedule, compiled once, called with ctypes."""

from __future__ import annotations

import contextlib
import ctypes
import re
import struct
import time
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from detmatrix.scanner.errors import UsageError
from detmatrix.scanner.gpu import isa, sass
from detmatrix.scanner.gpu.build import SharedLibrary, built, compiler
from detmatrix.scanner.gpu.cubin import CubinKernel
from detmatrix.scanner.schedules import DIRECTED, EVERYTHING, SCOPES

_ASCENDING, _DESCENDING, _ODD_FIRST, _FIRST_LAST, _DRAWN, _INTERLEAVED = range(6)
# Of the first executions of a class; those after them draw. The third does, too: a lost update shows in turns alone.
_DIRECTED = (_DESCENDING, _ODD_FIRST, _INTERLEAVED, _FIRST_LAST)
# What memory, registers and shared memory hold that nobody wrote: NaN in every format of floats.
_UNWRITTEN = 0x7FFA7FFA
# Pairs of accesses in conflict that are kept of each scope and sort, to be tried alone.
MOST_PAIRS = 8
_FOLDER = Path(__file__).with_name("engine")
_SHARED_WINDOW, _LOCAL_WINDOW = 1 << 56, 1 << 57
KINDS = ("ran", "fault", "unknown", "timeout")
_MOST_BLOCKS = 1 << 31
_NOWHERE = (1 << 32) - 1  # where no instruction failed
# How the engine tells a call of what is the driver's, by its address; and the one that ends a kernel's own assertion.
_CALL, _ASSERTION = "a call of the driver's function ", "__assertfail"
# The direction of rounding is changed where an instruction says so.
_FLAGS = ("-O3", "-fno-strict-aliasing", "-frounding-math", "-fno-trapping-math", "-fno-math-errno")
_WIDE = {"avx2", "fma", "bmi1", "bmi2", "f16c", "movbe", "abm"}
_LEVELS = {"v4": {*_WIDE, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}, "v3": _WIDE}
_LANES = 32
# Conflicts of a launch that are told one by one, a third of each scope.
_SAMPLES = 384
# What accesses do; what else may differ in life.
_ACCESSES = ("read", "write", "add", "and", "or", "xor", "min", "max", "float add", "exchange")
_APPROXIMATES = 8
DOUBTS = ("reads a clock", "copies asynchronously", "its log was full")


def _records(header: str) -> dict[str, Any]:
    """Return what both sides fill in: the structures without a tag that a header declares, by name."""
    types: dict[str, Any] = {
        **{f"uint{bits}_t": getattr(ctypes, f"c_uint{bits}") for bits in (8, 16, 32, 64)},
        "double": ctypes.c_double,
        "char": ctypes.c_char,
    }
    text = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    counts = {"SCOPES": len(SCOPES)} | {name: int(it) for name, it in re.findall(r"(\w+) = (\d+)", text)}
    for body, name in re.findall(r"typedef struct \{([^}]*)\} (\w+);", text):
        fields = []
        for of, declared in re.findall(r"(?:const )?(\w+) ([^;]+);", body):
            for pointer, field, count in re.findall(r"(\*?)(\w+)(?:\[(\w+)\])?", declared):
                one = ctypes.c_void_p if pointer else types[of]
                length = counts.get(count) or int(count or 1)
                fields.append((field, one * length if count else one))
        types[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
    return types


_RECORDS = _records((_FOLDER / "engine.h").read_text(encoding="utf-8"))


class Orders(NamedTuple):
    """Which orders a launch takes: numbers of ``engine.h``, 0 the canonical one; and what memory nobody wrote holds."""

    blocks: int = 0
    warps: int = 0
    lanes: int = 0
    paths: int = 0
    any_dispatch: int = 0
    registers: int = _UNWRITTEN
    seed: int = 0
    moved: int = 0  # whether approximations (MUFU) have another last bit


def orders_of(name: str, number: int, seed: int, ordinal: int) -> Orders:
    """Return how blocks, warps, lanes and paths are ordered in one launch.

    The first execution of a class takes the order that is the reverse of the canonical one, which swaps all pairs; the second
    lets odd blocks, warps or lanes come before even ones, the third switches between blocks or warps at drawn instructions, the
    fourth holds up the first of them until all others have ended. Those after them draw orders, and every other one switches, too.
    The *number* is that of the execution within the class, *ordinal* that of the launch within the execution.
    """
    drawn = int.from_bytes(sha256(f"{name}|{number}|{seed}|{ordinal}".encode()).digest()[:8], "little")
    how = _DIRECTED[number] if number < DIRECTED else _INTERLEAVED if number % 2 else _DRAWN
    # Of two paths there are two orders, and which block comes first is no matter of who is resident.
    fewer = how if how in (_DESCENDING, _INTERLEAVED) else _DRAWN
    free = {
        "resident-blocks": (how, 0, 0, 0, 0),
        "warps": (0, how, 0, 0, 0),
        "both": (how, how, 0, 0, 0),
        "any-blocks": (fewer, 0, 0, 0, 1),
        "lanes": (0, 0, how, 0, 0),
        "divergence": (0, 0, 0, fewer, 0),
    }
    if name.startswith(EVERYTHING):
        scopes = name.partition(":")[2].split(",")
        blocks, warps, lanes = (how * (scope in scopes) for scope in SCOPES)
        free[name] = (blocks, warps, lanes, fewer * (lanes > 0), int(blocks > 0))
    filled = drawn & 0xFFFFFFFF if name == "memory" else _UNWRITTEN
    return Orders(*free.get(name, (0, 0, 0, 0, 0)), filled, drawn)


class LaunchError(Exception):
    """A launch that did not run; ``kind`` is ``fault``, ``unknown`` or ``timeout``, ``line`` the place of the instruction, if it is one."""

    def __init__(self, kind: str, text: str, line: int | None = None) -> None:
        super().__init__(text)
        self.kind, self.line = kind, line


class Conflict(NamedTuple):
    """Two accesses of different threads to one place that nothing orders; the first of a pair came first."""

    address: int  # of the place; of shared memory the block stands above the 24 lowest bits
    scope: str  # by how much the threads differ, of ``SCOPES``
    kinds: tuple[str, str]  # what each did, ``read``, ``write``, ``float add``
    blocks: tuple[int, int]  # of each its block
    threads: tuple[int, int]  # its place in the block
    lines: tuple[int, int]  # its instruction
    steps: tuple[int, int]  # instructions that its warp had executed
    values: tuple[int, int]  # what it wrote or added
    old: int  # what the first found
    shows: bool  # whether the other order leaves other bits at the place, as far as these values tell


class Result(NamedTuple):
    """How much was executed, and which accesses nothing orders."""

    steps: int  # instructions of warps
    work: int  # instructions of threads
    # Pairs of accesses in conflict: by threads of two blocks, of two warps, of one warp.
    pairs: tuple[int, int, int] = (0, 0, 0)
    commuting: int = 0  # pairs that give the same in both orders, and are none of those
    tame: int = 0  # pairs of additions of which each place had too few to show an order
    conflicts: tuple[Conflict, ...] = ()  # the first of them
    # What else may differ in life, or was not looked for: a clock, copies that end later, a log that was full.
    doubts: tuple[str, ...] = ()
    approximates: bool = False  # whether it took results of MUFU, whose last bits no document tells
    # Of each pair that was looked for whether its second access came first, and whether then both brought the same values,
    # and the second found what the first had found.
    watched: tuple[tuple[bool, bool], ...] = ()


def _level() -> tuple[str, ...]:
    """Return the flag of the level of x86-64 whose vectors and fused operations the engine may use, if there is one.

    Bits are the same with and without: no operation is fused that is not in the kernel, and each is rounded as IEEE 754 says.
    """
    with contextlib.suppress(OSError):
        line = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
        for level, needed in _LEVELS.items():
            if line and needed.issubset(line[1].split()):
                return (f"-march=x86{'_64_' if 'ziglang' in compiler() else '-64-'}{level}",)
    return ()


@cache
def compiled() -> ctypes.CDLL:
    """Return the engine, compiled now or by an earlier scan."""
    sources = {path.name: path.read_text(encoding="utf-8") for path in sorted(_FOLDER.iterdir())}
    files = tuple(name for name in sources if name.endswith(".c"))
    sources["isa.h"] = isa.header()

    def made(*level: str) -> Path:
        return built("engine", sources, [SharedLibrary("engine.so", (*files, "-lm"), (*_FLAGS, *level))])

    try:
        place = made(*_level())
    except UsageError:  # perhaps a compiler that knows no levels
        place = made()
    library = ctypes.CDLL(str(place / "engine.so"))
    library.sizes.restype = ctypes.c_uint64
    library.run.restype = None
    if library.sizes() != sass.SIZE << 32 | ctypes.sizeof(_RECORDS["Launch"]):
        raise AssertionError("the engine and its caller disagree about their records")
    return library


def launch(
    kernel: CubinKernel,
    program: bytes,
    grid: Sequence[int],
    block: Sequence[int],
    parameters: bytes,
    *,
    dynamic_shared: int = 0,
    resident: int = 1 << 20,
    ranges: bytes = b"",
    orders: Orders = Orders(),  # noqa: B008 - a tuple
    log: bool = False,
    swap: Conflict | None = None,
    watch: Sequence[Conflict] = (),
    seconds: float = 60.0,
) -> Result:
    """Execute a kernel, by its instructions as ``sass.instructions`` returns them, on memory of this process.

    *parameters* are bytes from the first parameter on, *dynamic_shared* bytes of shared memory beside those that the kernel declares,
    *resident* the blocks that the device holds at once. Of its memory exist *ranges*: pairs of first address and the one behind, 64 bits
    each, ascending. To *log* is to look for accesses that nothing orders; it takes half as long again, and where threads do little else
    two to six times as long. Two of them happen in the other order in a *swap*: the first is held up until the second has been made. Of
    the pairs to *watch* it is told in which order they come; without any, of the pair that is swapped.

    Raises:
        LaunchError: It did what no kernel may, has an instruction that is unknown, or took too long.
    """
    call = _RECORDS["Launch"](program=_address(program), instructions=len(program) // sass.SIZE)
    call.grid[:], call.block[:] = grid, block
    if (
        not 0 < grid[0] * grid[1] * grid[2] < _MOST_BLOCKS
        or not 0 < block[0] * block[1] * block[2] <= kernel.max_threads
    ):
        raise LaunchError("fault", f"a grid of {tuple(grid)} blocks of {tuple(block)} threads")
    call.registers, call.local, call.resident = max(kernel.registers, 1), kernel.local, resident
    call.shared = kernel.shared_base + kernel.shared + dynamic_shared
    banks = {0: _bank0(kernel, grid, block, parameters), **kernel.banks}
    placed = {number: (_address(content), len(content)) for number, content in banks.items() if content}
    for number, (address, size) in {**placed, **kernel.placed}.items():
        call.bank[number], call.bank_size[number] = address, size
    call.ranges, call.range_count = _address(ranges), len(ranges) // 16
    external = struct.pack(f"<{len(kernel.externals)}Q", *kernel.externals)
    call.external, call.external_count = _address(external), len(kernel.externals)
    call.schedule = _RECORDS["Schedule"](*orders)
    call.deadline = time.monotonic() + seconds
    call.architecture = kernel.architecture
    call.shared_window, call.local_window = _SHARED_WINDOW, _LOCAL_WINDOW
    sample = (_RECORDS["Conflict"] * (_SAMPLES if log else 0))()
    if swap is not None:
        call.swap.asked, call.swap.scope = 1, SCOPES.index(swap.scope)
        call.swap.block[:], call.swap.thread[:], call.swap.step[:] = swap.blocks, swap.threads, swap.steps
    call.sample, call.samples, call.log = ctypes.cast(sample, ctypes.c_void_p), len(sample), log
    watch = watch or ([swap] if swap else [])
    accesses = sorted(_place(one, k) for one in watch for k in (0, 1))
    places = {it: number for number, it in enumerate(dict.fromkeys(accesses))}
    marks = (_RECORDS["Mark"] * len(places))(
        *((block, thread, line, 0, step) for block, _, step, thread, line in places)
    )
    call.mark, call.marks = ctypes.cast(marks, ctypes.c_void_p), len(marks)
    compiled().run(ctypes.byref(call))
    if call.status:
        line = None if call.line == _NOWHERE else call.line
        text = call.text.decode(errors="replace")
        for address, name in kernel.externals.items():
            failed = "an assertion failed, " if name == _ASSERTION else ""
            text = text.replace(f"{_CALL}{address}", f"{failed}{_CALL}{name}")
        raise LaunchError(KINDS[call.status], text, line)
    told = [_told(one) for one in sample[: call.sampled] if one.scope < len(SCOPES)]
    doubts = tuple(doubt for place, doubt in enumerate(DOUBTS) if call.flags >> place & 1)
    return Result(
        call.steps,
        call.work,
        tuple(call.pairs),
        call.commuting,
        call.tame,
        tuple(told),
        doubts,
        bool(call.flags & _APPROXIMATES),
        tuple(_came(one, [marks[places[_place(one, k)]] for k in (0, 1)]) for one in watch),
    )


def _place(one: Conflict, k: int) -> tuple[int, int, int, int, int]:
    return one.blocks[k], one.threads[k] // _LANES, one.steps[k], one.threads[k], one.lines[k]


def _came(one: Conflict, marks: list[Any]) -> tuple[bool, bool]:
    first, second = marks
    swapped = 0 < second.turn < first.turn
    finds = "read" in one.kinds or "write" in one.kinds or second.old == one.old
    return swapped, swapped and finds and (first.value, second.value) == one.values


def _told(one: Any) -> Conflict:
    kinds = (_ACCESSES[one.kind[0]], _ACCESSES[one.kind[1]])
    blocks, threads, lines, steps, values = map(tuple, (one.block, one.thread, one.line, one.step, one.value))
    shows = bool(one.shows)
    return Conflict(
        one.address, SCOPES[one.scope], kinds, blocks, threads, lines, steps, values, one.old, shows
    )


def _address(content: bytes) -> int | None:
    """Return where bytes lie, which have to live as long as the address is used."""
    return ctypes.cast(ctypes.c_char_p(content), ctypes.c_void_p).value


def _bank0(kernel: CubinKernel, grid: Sequence[int], block: Sequence[int], parameters: bytes) -> bytes:
    bank = bytearray(kernel.parameter_base)
    contents = (
        (sass.BLOCK, struct.pack("<3I", *block)),
        (sass.GRID, struct.pack("<3I", *grid)),
        (sass.SHARED_WINDOW, struct.pack("<Q", _SHARED_WINDOW)),
        (sass.LOCAL_WINDOW, struct.pack("<Q", _LOCAL_WINDOW)),
        (sass.STACK, struct.pack("<I", kernel.local)),
    )
    for places, content in contents:
        if (place := places.get(kernel.architecture)) is not None:
            bank[place : place + len(content)] = content
    return bytes(bank) + parameters + bytes(-len(parameters) % 16)
