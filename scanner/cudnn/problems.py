"""What cuDNN is asked about: operations with the shapes of real networks."""

from __future__ import annotations

from typing import Literal, NamedTuple

from detmatrix.scanner.observations.records import Record

Operation = Literal[
    "forward",
    "data gradient",
    "weight gradient",
    "norm forward",
    "norm backward",
    "attention forward",
    "attention backward",
]
CONVOLUTIONS: tuple[Operation, ...] = ("forward", "data gradient", "weight gradient")
NORMALISATIONS: tuple[Operation, ...] = ("norm forward", "norm backward")
ATTENTIONS: tuple[Operation, ...] = ("attention forward", "attention backward")

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
    """A layer: what a convolution, a normalisation or an attention is given."""

    network: str
    layer: str
    batch: int
    channels: int  # of the input; of each head of an attention
    size: tuple[int, ...]  # of the input, in space; the length of an attention's sequence
    filters: int = 0  # channels of a convolution's output
    kernel: int = 1
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    groups: int = 1
    transposed: bool = False
    norm: str = ""  # "batch", "layer" or "instance"
    heads: int = 0  # of an attention

    @property
    def operations(self) -> tuple[Operation, ...]:
        """What cuDNN is asked about it."""
        return NORMALISATIONS if self.norm else ATTENTIONS if self.heads else CONVOLUTIONS

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
    Problem("ResNet-50", "bn1", 32, 64, (112, 112), norm="batch"),
    Problem("ResNet-50", "layer4 bn3", 32, 2048, (7, 7), norm="batch"),
    Problem("ViT-B/16", "layer norm", 32 * 197, 768, (1, 1), norm="layer"),
    Problem("Stylisation", "instance norm", 4, 64, (256, 256), norm="instance"),
    Problem("GPT-2", "attention", 4, 64, (1024,), heads=12),
    Problem("ViT-B/16", "attention", 32, 64, (197,), heads=12),
)
