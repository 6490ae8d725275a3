"""What cuDNN is asked about: GPUs described in cuDNN's JSON, and operations with the shapes of real networks."""

from __future__ import annotations

from typing import Literal

from scanner.observations.records import Record

Operation = Literal["forward", "data gradient", "weight gradient", "norm forward", "norm backward"]
CONVOLUTIONS: tuple[Operation, ...] = ("forward", "data gradient", "weight gradient")
NORMALISATIONS: tuple[Operation, ...] = ("norm forward", "norm backward")

# A transposed convolution is the data gradient of the convolution that leads from its output to its input.
_TRANSPOSED: dict[Operation, Operation] = {"forward": "data gradient", "data gradient": "forward"}


def cudnn_operation(operation: Operation, *, transposed: bool) -> Operation:
    """Return the operation that cuDNN is asked for, whose engines have numbers of their own."""
    return _TRANSPOSED.get(operation, operation) if transposed else operation


# What cuDNN is told of a GPU that is not there. It asks for each of these; the figures are those of NVIDIA's tables of
# compute capabilities and data sheets.
_COMMON: dict[str, object] = {
    "cudaDeviceId": 0,
    "driverVer": 13000,
    "maxGridSize": [2147483647, 65535, 65535],
    "maxBlockSize": [1024, 1024, 64],
    "regsPerBlock": 65536,
    "smCountOrigin": 0,
    "warpSize": 32,
    "maxSharedMemoryPerBlock": 49152,
    "oversizedSharedMemoryPerBlock": 0,
    "reservedSharedMemoryPerBlock": 1024,
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
    shared: int,
    l2: int,
    bus: int,
    clocks: tuple[int, int],
    memory: int,
) -> dict[str, object]:
    """Describe a GPU: shared memory and cache in bytes, clocks of SMs and memory in kHz, memory in gigabytes."""
    return _COMMON | {
        "deviceName": name,
        "pciDeviceId": pci,
        "deviceVer": capability,
        "multiProcessorCount": sms,
        "maxSharedMemoryPerBlockOptin": shared - (0 if capability < 800 else 1024),  # noqa: PLR2004 - since 8.0
        "maxSharedMemoryPerSM": shared,
        "reservedSharedMemoryPerBlock": 0 if capability < 800 else 1024,  # noqa: PLR2004
        "l2CacheSize": l2,
        "memoryBusWidth": bus,
        "smClockRateKHz": clocks[0],
        "memClockRateKHz": clocks[1],
        "totalGlobalMem": memory * 10**9,
    }


GPUS: dict[str, dict[str, object]] = {
    "V100": _gpu("Tesla V100-SXM2-16GB", 0x1DB1, 700, 80, 98304, 6 << 20, 4096, (1530000, 877000), 16),
    "A100": _gpu("NVIDIA A100-SXM4-80GB", 0x20B2, 800, 108, 167936, 40 << 20, 5120, (1410000, 1593000), 80),
    "H100": _gpu("NVIDIA H100 80GB HBM3", 0x2330, 900, 132, 233472, 50 << 20, 5120, (1980000, 2619000), 80),
    "B200": _gpu("NVIDIA B200", 0x2901, 1000, 148, 233472, 126 << 20, 8192, (1965000, 3996000), 180),
}
# The GPU that is there, which cuDNN asks itself.
PRESENT = "present"


class Problem(Record, frozen=True):
    """A layer: what a convolution or a normalisation is given."""

    network: str
    layer: str
    batch: int
    channels: int  # of the input
    size: tuple[int, ...]  # of the input, in space
    filters: int = 0  # channels of the output; 0: the layer is a normalisation
    kernel: int = 1
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    groups: int = 1
    transposed: bool = False
    norm: str = ""  # "batch", "layer" or "instance"

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
    Problem("ResNet-50", "bn1", 32, 64, (112, 112), norm="batch"),
    Problem("ResNet-50", "layer4 bn3", 32, 2048, (7, 7), norm="batch"),
    Problem("ViT-B/16", "layer norm", 32 * 197, 768, (1, 1), norm="layer"),
    Problem("Stylisation", "instance norm", 4, 64, (256, 256), norm="instance"),
)
