"""What cuDNN is asked about: operations with the shapes of real networks, on which GPUs; and which layer a case of ours is."""

from __future__ import annotations

import re
from functools import cache
from typing import Literal, NamedTuple, TypeVar, cast

from detmatrix.opspecs.inputs import Inputs
from detmatrix.scanner.observations.records import Record, Row

Operation = Literal[
    "forward",
    "data gradient",
    "weight gradient",
    # Retired: recorded tables have them.
    "norm forward",
    "norm backward",
    "attention forward",
    "attention backward",
]
CONVOLUTIONS: tuple[Operation, ...] = ("forward", "data gradient", "weight gradient")

# A transposed convolution is the data gradient of the convolution that leads from its output to its input.
_TRANSPOSED: dict[Operation, Operation] = {"forward": "data gradient", "data gradient": "forward"}


def cudnn_operation(operation: Operation, *, transposed: bool) -> Operation:
    """Return the operation that cuDNN is asked for, whose engines have numbers of their own."""
    return _TRANSPOSED.get(operation, operation) if transposed else operation


class LayerKind(NamedTuple):
    """What convolutions have in common that are alike but for their sizes and the numbers of their channels."""

    dims: int
    grouping: Literal["", "grouped", "depthwise"]
    strided: bool
    dilated: bool
    pointwise: bool  # a kernel of one

    def __str__(self) -> str:
        """Return it in words: "2-D, depthwise, strided"."""
        words = (
            self.grouping,
            "strided" if self.strided else "",
            "dilated" if self.dilated else "",
            "kernel of 1" if self.pointwise else "",
        )
        return ", ".join((f"{self.dims}-D", *filter(None, words)))


class Problem(Record, frozen=True):
    """A layer: what a convolution is given."""

    network: str
    layer: str
    batch: int
    channels: int  # of the input
    size: tuple[int, ...]  # of the input, in space
    filters: int = 0  # channels of a convolution's output
    kernel: int = 1
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    groups: int = 1
    transposed: bool = False
    norm: str = ""  # retired: of a normalisation
    heads: int = 0  # retired: of an attention

    @property
    def kind(self) -> LayerKind:
        """Which convolutions are like it; a transposed one is like the one whose gradient it is."""
        return LayerKind(
            dims=len(self.size),
            grouping="" if self.groups == 1 else "depthwise" if self.groups == self.channels else "grouped",
            strided=self.stride > 1,
            dilated=self.dilation > 1,
            pointwise=self.kernel == 1,
        )

    @property
    def name(self) -> str:
        """The network and its layer."""
        return f"{self.network} {self.layer}"


def _conv(
    network: str, layer: str, batch: int, channels: int, size: tuple[int, ...], filters: int, kernel: int, *,
    stride: int = 1, padding: int | None = None, dilation: int = 1, groups: int = 1,
) -> Problem:  # fmt: skip
    """Describe a convolution that keeps the size, but for its stride, unless its padding is given."""
    padding = dilation * (kernel - 1) // 2 if padding is None else padding
    return Problem(network, layer, batch, channels, size, filters, kernel, stride, padding, dilation, groups)


def _resnet50() -> list[Problem]:
    """List each distinct convolution of ResNet-50 (stride in the 3 by 3 convolution, as torchvision has it), 32 images."""
    found = [_conv("ResNet-50", "conv1", 32, 3, (224, 224), 64, 7, stride=2)]
    channels, size = 64, 56
    for stage, width in enumerate((64, 128, 256, 512), 1):
        stride = 1 if stage == 1 else 2
        here, after, name = (size, size), (size // stride,) * 2, f"layer{stage}"
        found += [
            _conv("ResNet-50", f"{name}.0.conv1", 32, channels, here, width, 1),
            _conv("ResNet-50", f"{name}.0.conv2", 32, width, here, width, 3, stride=stride),
            _conv("ResNet-50", f"{name}.0.conv3", 32, width, after, 4 * width, 1),
            _conv("ResNet-50", f"{name}.0.downsample", 32, channels, here, 4 * width, 1, stride=stride),
            _conv("ResNet-50", f"{name}.1.conv1", 32, 4 * width, after, width, 1),
        ]
        if stride > 1:
            found.append(_conv("ResNet-50", f"{name}.1.conv2", 32, width, after, width, 3))
        channels, size = 4 * width, size // stride
    return found


PROBLEMS: tuple[Problem, ...] = (
    *_resnet50(),
    _conv("U-Net", "first", 4, 1, (572, 572), 64, 3, padding=0),
    _conv("U-Net", "encoder 2", 4, 64, (280, 280), 128, 3),
    _conv("U-Net", "decoder 1", 4, 128, (392, 392), 64, 3),
    _conv("U-Net", "last", 4, 64, (388, 388), 2, 1),
    Problem("U-Net", "up 1", 4, 128, (196, 196), 64, 2, stride=2, transposed=True),
    Problem("DCGAN", "up 3", 64, 256, (16, 16), 128, 4, stride=2, padding=1, transposed=True),
    _conv("VGG-16", "first", 32, 3, (224, 224), 64, 3),
    _conv("ViT-B/16", "patches", 32, 3, (224, 224), 768, 16, stride=16, padding=0),
    _conv("ConvNeXt-T", "patches", 32, 3, (224, 224), 96, 4, stride=4, padding=0),
    _conv("ConvNeXt-T", "stage 1 depthwise", 32, 96, (56, 56), 96, 7, groups=96),
    _conv("ConvNeXt-T", "stage 4 depthwise", 32, 768, (7, 7), 768, 7, groups=768),
    _conv("MobileNetV2", "depthwise, stride 2", 32, 144, (56, 56), 144, 3, stride=2, groups=144),
    _conv("ResNeXt-50", "layer2 grouped", 32, 256, (28, 28), 256, 3, groups=32),
    _conv("DeepLabV3", "dilated by 12", 4, 2048, (33, 33), 256, 3, dilation=12),
    _conv("WaveNet", "1-D, dilated by 8", 8, 64, (16000,), 64, 2, dilation=8, padding=0),
    _conv("wav2vec 2.0", "1-D, layer 1", 8, 512, (3199,), 512, 3, stride=2, padding=0),
    _conv("3D U-Net", "3-D, encoder 1", 1, 32, (96, 96, 96), 64, 3),
    _conv("R3D-18", "3-D, layer2", 4, 64, (8, 56, 56), 128, 3, stride=2),
)


# --- GPUs described to cuDNN in its JSON, each figure with the place that it is from


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


# What differs between them; ``deviceVer`` is the capability times 100, clocks are in kHz, and of the shared memory of a multiprocessor
# CUDA reserves some in each block.
_FIGURES = (
    *("deviceName", "pciDeviceId", "deviceVer", "multiProcessorCount", "maxSharedMemoryPerBlockOptin"),
    *("maxSharedMemoryPerSM", "reservedSharedMemoryPerBlock", "l2CacheSize", "memoryBusWidth"),
    *("smClockRateKHz", "memClockRateKHz", "totalGlobalMem"),
)
GPUS: dict[str, Description] = {
    name: _COMMON | dict(zip(_FIGURES, figures, strict=True))
    for name, figures in {
        "V100": ("Tesla V100-SXM2-16GB", 0x1DB1, 700, 80, 98304, 98304, 0, 6291456, 4096,
                 1530000, 877000, 16935682048),
        "A100": ("NVIDIA A100-SXM4-80GB", 0x20B2, 800, 108, 166912, 167936, 1024, 41943040, 5120,
                 1410000, 1593000, 85100068864),
        "H100": ("NVIDIA H100 80GB HBM3", 0x2330, 900, 132, 232448, 233472, 1024, 52428800, 5120,
                 1980000, 2619000, 84942979072),
        "B200": ("NVIDIA B200", 0x2901, 1000, 148, 232448, 233472, 1024, 132644864, 7680,
                 1965000, 3996000, 191514411008),
    }.items()
}  # fmt: skip


# --- Which layer a case of a convolution is
#
# Its generator is called with shapes in the place of tensors, so that it draws nothing. What a layer is described by (groups, stride,
# dilation, which tensor's gradient is asked for) is thereby what the op is called with on CUDA, and no second table of it.


T = TypeVar("T")
_OP = re.compile(r"(?:^|\.)conv(?P<transposed>_?transpose)?[123]d$", re.IGNORECASE)
# By the place of the argument that is a leaf; that of the bias is a sum over positions, which no engine computes.
_GRADIENTS: dict[int, Operation] = {0: "data gradient", 1: "weight gradient"}


class CaseLayer(NamedTuple):
    """A case of a convolution as cuDNN is asked about it."""

    problem: Problem
    layout: str
    gradients: tuple[Operation, ...]  # that the backward direction computes


class _Shape(NamedTuple):
    """Stands for a tensor."""

    dimensions: tuple[int, ...]
    layout: str = "contiguous"
    leaf: bool = False


class _Shapes:
    """Stands for the ``Inputs`` of a case on CUDA, as far as convolutions draw from them."""

    def size(self, *, cpu: object, cuda: T, simulated: object = None) -> T:  # noqa: ARG002 - cases name them
        return cuda

    def normal(self, *shape: int) -> _Shape:
        return _Shape(shape)

    def channels_last(self, tensor: _Shape) -> _Shape:
        return tensor._replace(layout="channels_last")

    def leaf(self, tensor: _Shape) -> _Shape:
        return tensor._replace(leaf=True)


def is_convolution(row: Row) -> bool:
    """Tell whether the op of a row is one of PyTorch's convolutions."""
    return _OP.search(row.op) is not None


def layer_of(row: Row) -> CaseLayer | None:
    """Return the layer that the case of a convolution is; ``None`` of a case that the catalog does not have.

    Of other cases, as those of PyTorch's databases, a row holds no stride, dilation or groups.
    """
    return _layer(row.spec, row.case, row.op) if row.source == "documented" else None


@cache
def _layer(name: str, case: str, op: str) -> CaseLayer | None:
    # Reports load the catalog only for rows that ask for it.
    from detmatrix.scanner.cases.catalog import load_catalog  # noqa: PLC0415

    spec = next((one for one in load_catalog(()) if (one.name, one.op_name) == (name, op)), None)
    found = _OP.search(op)
    if spec is None or found is None or case not in spec.cases:
        return None
    called = spec.cases[case].inputs(cast("Inputs", _Shapes()))
    data, weight = called.args[:2]
    batch, channels, *size = data.dimensions
    outer, inner, kernel, *_ = weight.dimensions
    options = {word: called.kwargs.get(word, 1) for word in ("stride", "dilation", "groups")}
    transposed = found["transposed"] is not None
    return CaseLayer(
        Problem(
            name,
            case,
            batch,
            channels,
            tuple(size),
            inner * options["groups"] if transposed else outer,
            kernel,
            padding=called.kwargs.get("padding", 0),
            transposed=transposed,
            **options,
        ),
        "channels_last" if "channels_last" in {data.layout, weight.layout} else "contiguous",
        tuple(_GRADIENTS[place] for place, one in enumerate(called.args) if one.leaf and place in _GRADIENTS),
    )
