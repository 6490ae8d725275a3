"""Fat binaries are read as nvcc writes them, and occupancy is what NVIDIA's own rules say."""

import struct
from contextlib import suppress
from pathlib import Path
from random import Random

import lz4.block
import pytest

from detmatrix.scanner.elf import text
from detmatrix.scanner.gpu.cubin import EXTERNALS, Cubin, CubinError, architectures, cubins
from detmatrix.scanner.gpu.device import DEVICES, DeviceError, blocks_per_multiprocessor, device
from tests.conftest import table

MODULE = (Path(__file__).parent / "data" / "gpu" / "module.fatbin").read_bytes()
BASE = 0x7A1400000000
STAGED = "_Z6stagedPKfPficd"


def module(architecture: int) -> Cubin:
    return cubins(MODULE, architecture)[0]


def placed(cubin: Cubin) -> Cubin:
    cubin.place(BASE)
    return cubin


def fatbin(data: bytes, flags: int, content: bytes, compressed: int) -> bytes:
    """Return a fat binary with one cubin for sm_80, as its header describes it."""
    padded = content + bytes(-len(content) % 8)
    entry = struct.pack("<HHIQI8xI8xQ8xQ", 2, 0x101, 64, len(padded), compressed, 80, flags, len(data))
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entry) + len(padded)) + entry + padded


def library(content: bytes) -> bytes:
    """Return a shared library that has a section .nv_fatbin and nothing else."""
    names = b"\0.nv_fatbin\0.shstrtab\0"
    sections = [(0, 0, 0, 0), (1, 1, 64, len(content)), (12, 3, 64 + len(content), len(names))]
    heads = b"".join(struct.pack("<IIQQQQIIQQ", *one[:2], 0, 0, *one[2:], 0, 0, 1, 0) for one in sections)
    start = 64 + len(content) + len(names)
    head = struct.pack("<5s35xQ10xHHH", b"\x7fELF\x02", start, 64, len(sections), 2)
    return head.ljust(64, b"\0") + content + names + heads


# A kernel, the architecture, and what of it its source declares, or the compiler shows.
SIZES: list[tuple[str, int, dict[str, object]]] = [
    *(
        (STAGED, architecture, {
            "parameters": ((0, 8), (8, 8), (16, 4), (20, 1), (24, 8)), "parameter_base": base, "max_threads": 128, "barriers": 1,
            "shared": 33 * 4, "shared_base": first, "local": 0, "constant": 12,
        })
        for architecture, base, first in ((80, 0x160, 0), (90, 0x210, 1024))
    ),
    ("_Z7nothingv", 80, {"parameters": (), "parameter_base": 0x160, "max_threads": 1024}),
    # More than 4 KiB of parameters have records of another kind, and start elsewhere on sm_80.
    ("_Z5large5LargePic", 80, {"parameters": ((0, 4400), (4400, 8), (4408, 1)), "parameter_base": 0x1A80}),
    ("_Z7stackedPii", 80, {"local": 256}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "architecture", "sizes"), SIZES)
def test_a_kernel_has_the_sizes_of_its_source(name: str, architecture: int, sizes: dict[str, object]) -> None:
    """Parameters, launch bounds, shared memory and barriers are those that the source declares."""
    kernel = placed(module(architecture)).kernel(name)

    assert {field: getattr(kernel, field) for field in sizes} == sizes
    assert 4 <= kernel.registers <= 32
    assert len(kernel.code) % 16 == 0


@pytest.mark.parametrize("architecture", [80, 90])
def test_addresses_of_variables_are_filled_in(architecture: int) -> None:
    """Constants and initial values hold the addresses of variables once the module has its place."""
    cubin = module(architecture)

    image = cubin.place(BASE)

    table, size = cubin.variables["table"]
    assert size == 16
    assert struct.unpack_from("<4i", image, table - BASE) == (10, 20, 30, 40)
    assert struct.unpack_from("<Q", image, cubin.variables["second"][0] - BASE) == (table + 4,)
    assert struct.unpack_from("<3f", image, cubin.variables["weights"][0] - BASE) == (1.0, 2.0, 4.0)
    assert image[cubin.variables["zeroed"][0] - BASE :][:32] == bytes(32)
    kernel = cubin.kernel(STAGED)
    assert kernel.placed == {3: cubin.variables["weights"]}
    addresses = {one for (one,) in struct.iter_unpack("<Q", kernel.banks[4])}
    assert {cubin.variables[one][0] for one in ("table", "second", "zeroed")} <= addresses


def test_a_function_of_the_driver_has_an_address_that_says_its_name() -> None:
    """A kernel that asserts calls an address that the interpreter can tell from every other."""
    kernel = placed(module(80)).kernel("_Z7checkedPKii")

    ((address, name),) = kernel.externals.items()
    assert (name, address >= EXTERNALS) == ("__assertfail", True)
    assert struct.pack("<Q", address) in kernel.banks[4]


@pytest.mark.parametrize(
    ("architecture", "expected"),
    [(75, []), (80, ["sm_80"]), (86, ["sm_86"]), (89, ["sm_86"]), (90, ["sm_90a", "sm_90"]), (100, [])],
)
def test_the_code_that_a_device_runs(architecture: int, expected: list[str]) -> None:
    """The same major number, the highest minor number, and code with the features of the device first."""
    found = cubins(MODULE, architecture)

    assert [f"sm_{one.architecture}{one.suffix}" for one in found] == expected


def test_a_cubin_alone_is_for_one_architecture() -> None:
    """What Triton hands to the driver lies in no fat binary; its flags say what it is for, in a place that CUDA 13 changed."""
    data = module(80)._data
    older = data[:8] + b"\7" + data[9:48] + struct.pack("<I", 0x500550) + data[52:]

    assert [one.architecture for file in (data, older) for one in cubins(file, 86)] == [80, 80]
    for file in (data, older):
        with pytest.raises(CubinError, match="a cubin for sm_80, which sm_90 does not run"):
            cubins(file, 90)
    with pytest.raises(CubinError, match="cut off or damaged"):
        cubins(data[:40], 80)


@pytest.mark.parametrize("kind", ["lz4", "none"])
def test_other_compression(kind: str) -> None:
    """Builds before CUDA 12.8 used LZ4, and small ones are not compressed."""
    data = module(80)._data
    content = lz4.block.compress(data, store_size=False) if kind == "lz4" else data
    flags, compressed = (0x2011, len(content)) if kind == "lz4" else (0x11, 0)

    (cubin,) = cubins(fatbin(data, flags, content, compressed), 80)

    assert cubin.kernels == module(80).kernels
    assert cubin._data[: len(data)] == data


def test_architectures_of_a_library(tmp_path: Path) -> None:
    """All fat binaries of a library are looked at, over the gaps between them."""
    other = fatbin(b"", 0x11, b"", 0)
    path = tmp_path / "library.so"
    path.write_bytes(library(MODULE + bytes(16) + other))

    assert architectures(path) == {"sm_80", "sm_86", "sm_90", "sm_90a"}

    path.write_bytes(library(MODULE[:-8]))
    with pytest.raises(CubinError, match="cut off or damaged"):
        architectures(path)


def test_what_is_not_there_is_an_error() -> None:
    """A kernel that a module lacks, one of a module that has no place, and a relocation that no build has, are named."""
    data = bytearray(module(80)._data)
    section = module(80)._relocations[".nv.constant4"][0]
    struct.pack_into("<I", data, section.offset + 8, 56)

    with pytest.raises(CubinError, match="cubin for sm_80 has no kernel f"):
        module(80).kernel("f")
    with pytest.raises(CubinError, match="cubin for sm_80: its variables have no place yet"):
        module(80).kernel(STAGED)
    with pytest.raises(
        CubinError, match=r"^cubin for sm_80: \.nv\.constant4 has unknown relocation 56 against __assertfail"
    ):
        Cubin(bytes(data), 80).place(BASE)
    with pytest.raises(ValueError, match="a name does not end"):
        text(b"name", 0)


def test_a_fat_binary_that_is_cut_off() -> None:
    """Each length but the whole one is refused with one line."""
    for length in range(0, len(MODULE), 97):
        with pytest.raises(CubinError, match=r"^.*$"):
            cubins(MODULE[:length], 80)


def test_a_damaged_cubin() -> None:
    """Whatever byte is damaged, reading ends with a cubin, or with an error of its own."""
    whole, random = module(80)._data, Random(0)
    for _ in range(400):
        data = bytearray(whole[: random.choice((len(whole), random.randrange(len(whole))))])
        for _ in range(random.randrange(8)):
            data[random.randrange(len(data))] = random.randrange(256)
        with suppress(CubinError):
            cubin = placed(Cubin(bytes(data), 80))
            for name in cubin.kernels:
                cubin.kernel(name)


@pytest.mark.parametrize("known", table("gpu/tables.txt", "occupancy"), ids=str)
def test_occupancy(known: list[str]) -> None:
    """As many blocks fit on a multiprocessor as NVIDIA's published rules say."""
    architecture, *kernel, blocks = map(int, known)

    assert blocks_per_multiprocessor(device(architecture), *kernel) == blocks


def test_the_table_of_a_device() -> None:
    """What a table has is that of the device; what it does not have is an error."""
    a100, h100, b200 = device(80), device(90), device(100)

    assert [one["MultiProcessorCount"] for one in (a100, h100, b200)] == [108, 132, 148]
    assert [one["ComputeCapabilityMajor"] for one in (a100, h100, b200)] == [8, 9, 10]
    assert device(80, 8)["MultiProcessorCount"] == 8
    assert all(
        len({number for number, _ in one.attributes.values()}) == len(one.attributes)
        for one in DEVICES.values()
    )
    with pytest.raises(DeviceError, match="the table has no cudaDevAttrClusters"):
        a100["Clusters"]
    with pytest.raises(DeviceError, match="sm_75: cannot be simulated; sm_80, sm_90, sm_100 can"):
        device(75)
