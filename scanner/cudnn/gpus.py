"""GPUs described to cuDNN in its JSON, each figure with the place that it is from."""

from __future__ import annotations

# What cuDNN reads of a GPU, by the names of its JSON.
Description = dict[str, int | str | tuple[int, ...]]

# The GPU that is there, which cuDNN asks itself.
PRESENT = "present"

_ARCHITECTURES = "cuda/__device/arch_traits.h of NVIDIA's wheel nvidia-cuda-cccl 13.3.5"
_PRODUCTS = "xla/backends/gpu/target_config/specs of OpenXLA, as CUDA reports the GPU"
_PCI = "pci.ids of the PCI ID project"
# What nothing public was found to say.
ASSUMED = "assumed"

# Where each figure is from, by the name that cuDNN's JSON gives it.
SOURCES: dict[str, str] = {
    "deviceName": _PRODUCTS,
    "pciDeviceId": _PCI,
    "deviceVer": _PRODUCTS,
    "multiProcessorCount": _PRODUCTS,
    "smClockRateKHz": _PRODUCTS,
    "memClockRateKHz": f"{_PRODUCTS}; of A100 from its memory_bandwidth and its bus",
    "memoryBusWidth": f"{_PRODUCTS}, from memory_bandwidth and the memory's clock; of A100 deviceQuery",
    "l2CacheSize": _PRODUCTS,
    "totalGlobalMem": _PRODUCTS,
    "driverVer": f"{_PRODUCTS}; of A100 {ASSUMED}",
    **dict.fromkeys(
        (
            *("maxSharedMemoryPerSM", "maxSharedMemoryPerBlock", "maxSharedMemoryPerBlockOptin"),
            *("reservedSharedMemoryPerBlock", "maxGridSize", "maxBlockSize", "regsPerBlock"),
            *("maxRegistersPerSM", "warpSize", "maxCtasPerSM", "maxThreadsPerBlock", "maxThreadsPerSM"),
        ),
        _ARCHITECTURES,
    ),
    **dict.fromkeys(
        (
            "cudaDeviceId",
            "smCountOrigin",
            "oversizedSharedMemoryPerBlock",
            "isTccDriver",
            "supportCoopLaunch",
        ),
        ASSUMED,
    ),
}

# What cuDNN asks for and all of them share.
_COMMON: Description = {
    "cudaDeviceId": 0,
    "driverVer": 13000,
    "maxGridSize": (2147483647, 65535, 65535),
    "maxBlockSize": (1024, 1024, 64),
    "regsPerBlock": 65536,
    "smCountOrigin": 0,
    "warpSize": 32,
    "maxSharedMemoryPerBlock": 49152,
    "oversizedSharedMemoryPerBlock": 0,
    "maxRegistersPerSM": 65536,
    "maxCtasPerSM": 32,
    "maxThreadsPerBlock": 1024,
    "maxThreadsPerSM": 2048,
    "isTccDriver": 0,
    "supportCoopLaunch": 1,
}


def _gpu(
    name: str,
    pci: int,
    capability: int,
    sms: int,
    shared: tuple[int, int],
    l2: int,
    bus: int,
    clocks: tuple[int, int],
    memory: int,
) -> Description:
    """Describe a GPU: its capability times 100, shared memory of a multiprocessor and what CUDA reserves in each block, clocks in kHz."""
    return _COMMON | {
        "deviceName": name,
        "pciDeviceId": pci,
        "deviceVer": capability,
        "multiProcessorCount": sms,
        "maxSharedMemoryPerBlockOptin": shared[0] - shared[1],
        "maxSharedMemoryPerSM": shared[0],
        "reservedSharedMemoryPerBlock": shared[1],
        "l2CacheSize": l2,
        "memoryBusWidth": bus,
        "smClockRateKHz": clocks[0],
        "memClockRateKHz": clocks[1],
        "totalGlobalMem": memory,
    }


GPUS: dict[str, Description] = {
    "V100": _gpu("Tesla V100-SXM2-16GB", 0x1DB1, 700, 80, (98304, 0), 6291456, 4096,
                 (1530000, 877000), 16935682048),
    "A100": _gpu("NVIDIA A100-SXM4-80GB", 0x20B2, 800, 108, (167936, 1024), 41943040, 5120,
                 (1410000, 1593000), 85100068864),
    "H100": _gpu("NVIDIA H100 80GB HBM3", 0x2330, 900, 132, (233472, 1024), 52428800, 5120,
                 (1980000, 2619000), 84942979072),
    "B200": _gpu("NVIDIA B200", 0x2901, 1000, 148, (233472, 1024), 132644864, 7680,
                 (1965000, 3996000), 191514411008),
}  # fmt: skip
