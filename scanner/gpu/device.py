"""The GPUs that can be simulated: a published table of each, and how many blocks fit on a multiprocessor.

Host code of PyTorch chooses kernels and grids by these numbers, so they are those of one real device, and a number that
nobody published is an error, not a guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from detmatrix.scanner.errors import DetmatrixError

# Number and name of each ``cudaDevAttr...`` of CUDA's runtime API, and its value on the A100, the H100 and the B200 (one value: on
# all). The limits are those of the CUDA C++ Programming Guide, "Technical Specifications per Compute Capability", and
# its table of throughputs; the rest is what deviceQuery prints on them, of the B200 what https://github.com/pytorch/ao/pull/4002
# shows; its copy engines nobody shows. That the device is on bus 1 is our choice.
_PUBLISHED = """
  1 MaxThreadsPerBlock                     1024
  2 MaxBlockDimX                           1024
  3 MaxBlockDimY                           1024
  4 MaxBlockDimZ                           64
  5 MaxGridDimX                            2147483647
  6 MaxGridDimY                            65535
  7 MaxGridDimZ                            65535
  8 MaxSharedMemoryPerBlock                49152
  9 TotalConstantMemory                    65536
 10 WarpSize                               32
 11 MaxPitch                               2147483647
 12 MaxRegistersPerBlock                   65536
 13 ClockRate                              1410000    1980000    1965000
 14 TextureAlignment                       512
 15 GpuOverlap                             1
 16 MultiProcessorCount                    108        132        148
 17 KernelExecTimeout                      0
 18 Integrated                             0
 19 CanMapHostMemory                       1
 20 ComputeMode                            0
 31 ConcurrentKernels                      1
 32 EccEnabled                             1
 33 PciBusId                               1
 34 PciDeviceId                            0
 36 MemoryClockRate                        1593000    2619000    3996000
 37 GlobalMemoryBusWidth                   5120       5120       7680
 38 L2CacheSize                            41943040   52428800   132644864
 39 MaxThreadsPerMultiProcessor            2048
 40 AsyncEngineCount                       3
 41 UnifiedAddressing                      1
 50 PciDomainId                            0
 75 ComputeCapabilityMajor                 8          9          10
 76 ComputeCapabilityMinor                 0
 81 MaxSharedMemoryPerMultiprocessor       167936     233472     233472
 82 MaxRegistersPerMultiprocessor          65536
 83 ManagedMemory                          1
 87 SingleToDoublePrecisionPerfRatio       2
 90 ComputePreemptionSupported             1
 95 CooperativeLaunch                      1
 97 MaxSharedMemoryPerBlockOptin           166912     232448     232448
106 MaxBlocksPerMultiprocessor             32
111 ReservedSharedMemoryPerBlock           1024
120 ClusterLaunch                          0          1          1
"""
# Nobody printed these of the two devices: what a driver for Linux is expected to say. They fill ``cudaDeviceProp``, which
# has no way to refuse; who asks for one of them alone gets an error.
_ASSUMED = """
 30 SurfaceAlignment                       512
 35 TccDriver                              0
 51 TexturePitchAlignment                  32
 78 StreamPrioritiesSupported              1
 79 GlobalL1CacheSupported                 1
 80 LocalL1CacheSupported                  1
 84 IsMultiGpuBoard                        0
 85 MultiGpuBoardGroupID                   0
 86 HostNativeAtomicSupported              0
 88 PageableMemoryAccess                   0
 89 ConcurrentManagedAccess                1
 91 CanUseHostPointerForRegisteredMem      1
 99 HostRegisterSupported                  1
100 PageableMemoryAccessUsesHostPageTables 0
101 DirectManagedMemAccessFromHost         0
115 MemoryPoolsSupported                   1
"""

# Rules of occupancy that all architectures share: CUDA's ``cuda_occupancy.h``.
_REGISTERS_A_WARP = 256  # Registers are given to a warp in units of so many,
_PARTITIONS = 4  # from the partition of the multiprocessor that the warp lives in;
_SHARED_UNIT = 128  # shared memory is given to a block in units of so many bytes.
_REGISTERS_A_THREAD = 255
_BARRIERS_A_BLOCK = 2  # on average, of those that a multiprocessor has,
_COUNTS_BARRIERS = 90  # which limits blocks from this architecture on


class DeviceError(DetmatrixError):
    """A device, or a number of one, that no table has."""


@dataclass(frozen=True, slots=True)
class GpuTable:
    """One published device."""

    architecture: int  # such as 80
    name: str  # as ``cudaDeviceProp`` has it
    memory: int  # bytes of global memory
    attributes: Mapping[str, tuple[int, int]]  # number of a ``cudaDevAttr`` and value, by its name

    def __getitem__(self, name: str) -> int:
        """Return an attribute by the name that follows ``cudaDevAttr``.

        Raises:
            DeviceError: The table does not have it.
        """
        if name not in self.attributes:
            raise DeviceError(f"{self.name}: the table has no cudaDevAttr{name}")
        return self.attributes[name][1]


def _read(column: int) -> dict[str, tuple[int, int]]:
    rows = [line.split() for line in (_PUBLISHED.strip() + _ASSUMED.rstrip()).splitlines()]
    return {name: (int(number), int(values[column % len(values)])) for number, name, *values in rows}


# Memory as deviceQuery prints it (drivers of CUDA 12.5 and 12.8): others keep a few MiB more or less for themselves.
DEVICES = {
    80: GpuTable(80, "NVIDIA A100-SXM4-80GB", 85_100_068_864, _read(0)),
    90: GpuTable(90, "NVIDIA H100 80GB HBM3", 85_028_896_768, _read(1)),
    100: GpuTable(100, "NVIDIA B200", 191_514_411_008, _read(2)),
}


def device(architecture: int, multiprocessors: int = 0) -> GpuTable:
    """Return the device of an architecture, such as 80, with so many multiprocessors; 0: as many as are published.

    Raises:
        DeviceError: There is no table for it.
    """
    if architecture not in DEVICES:
        known = ", ".join(f"sm_{one}" for one in DEVICES)
        raise DeviceError(f"sm_{architecture}: cannot be simulated; {known} can")
    of = DEVICES[architecture]
    changed = {"MultiProcessorCount": (16, multiprocessors)} if multiprocessors else {}
    return replace(of, attributes={**of.attributes, **changed})


def blocks_per_multiprocessor(
    on: GpuTable, registers: int, static_shared: int, dynamic_shared: int, threads: int, barriers: int = 0
) -> int:
    """Return how many blocks of a kernel are resident on one multiprocessor, by NVIDIA's published rules.

    Shared memory is all that the multiprocessor has: how much of it the L1 cache keeps is decided at the launch, for as
    many blocks as the other limits allow, unless a program prefers another share. Registers are those of one thread, threads
    those of one block, shared memory is in bytes.
    """
    warps = -(-threads // on["WarpSize"])
    a_warp = -(-registers * on["WarpSize"] // _REGISTERS_A_WARP) * _REGISTERS_A_WARP
    reserved = on["ReservedSharedMemoryPerBlock"]
    shared = -(-(static_shared + dynamic_shared + reserved) // _SHARED_UNIT) * _SHARED_UNIT
    rounded = -(-warps // _PARTITIONS) * _PARTITIONS  # as the hardware checks the registers of a block
    if (
        not 0 < threads <= on["MaxThreadsPerBlock"]
        or registers > _REGISTERS_A_THREAD
        or a_warp * rounded > on["MaxRegistersPerBlock"]
        or shared > on["MaxSharedMemoryPerBlockOptin"] + reserved
    ):
        return 0
    limits = [
        on["MaxBlocksPerMultiprocessor"],
        on["MaxThreadsPerMultiProcessor"] // on["WarpSize"] // warps,
        on["MaxSharedMemoryPerMultiprocessor"] // shared,
    ]
    if registers:
        limits.append(on["MaxRegistersPerMultiprocessor"] // _PARTITIONS // a_warp * _PARTITIONS // warps)
    if barriers and on.architecture >= _COUNTS_BARRIERS:
        limits.append(on["MaxBlocksPerMultiprocessor"] * _BARRIERS_A_BLOCK // barriers)
    return min(limits)


def as_header(of: GpuTable) -> str:
    """Return the table as C: ``DEVICE_<attribute>`` each, and ``DEVICE_ATTRIBUTES(X)``: X(number, value) of what is published."""
    published = {int(line.split()[0]) for line in _PUBLISHED.strip().splitlines()}
    answers = " ".join(
        f"X({number}, {value})" for number, value in of.attributes.values() if number in published
    )
    lines = [
        f'#define DEVICE_NAME "{of.name}"',
        f"#define DEVICE_ARCHITECTURE {of.architecture}",
        f"#define DEVICE_MEMORY {of.memory}ull",
        *(f"#define DEVICE_{name} {value}" for name, (_, value) in of.attributes.items()),
        f"#define DEVICE_ATTRIBUTES(X) {answers}",
    ]
    return "\n".join(lines) + "\n"
