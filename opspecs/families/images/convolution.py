"""Convolutions and transposed convolutions: long sums of products, cut up by whichever algorithm is chosen.

Each gradient is a case of its own, because each is a kernel of its own, chosen by itself. Images are large and
channels few: then the sum into each weight is long, and worth splitting between blocks.

Masked convolutions, as a PixelCNN stacks them: which pixels an output sees is known from the masks alone. A gradient that is
not exactly zero where a mask forbids it is a leak, however small: an algorithm that computes in another domain (FFT, Winograd)
does not multiply by the zeros of a mask.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

from detmatrix.opspecs.inputs import Inputs
from detmatrix.opspecs.model import BACKWARD, FORWARD, ITEMS, Call, Case, OpSpec, Tensor, batched, call

CHANNELS = 4
# N * D * H * W of the input, per device; the shapes below keep to it. Of what comes out larger, on CUDA, the output has as many.
POSITIONS_CPU = 1 << 11
POSITIONS_CUDA = 1 << 20


def _shape(t: Inputs, dims: int, channels: int, *, enlarged: bool) -> tuple[int, ...]:
    """Return ``(N, C, ...)`` of the input, with as many positions whatever the number of dims; fewer if they are *enlarged*."""
    batch, side = t.size(
        cpu={1: (2, 1 << 10), 2: (2, 1 << 5), 3: (4, 1 << 3)},
        cuda={1: (16, 1 << 16), 2: (16, 1 << 8), 3: (4, 1 << 6)},
    )[dims]
    side //= t.size(cpu=1, cuda=2) if enlarged else 1
    return (batch, channels, *(side,) * dims)


def _convolve(
    t: Inputs,
    dims: int,
    leaf: str,
    *,
    channels: int = CHANNELS,
    kernel: int = 3,
    channels_last: bool = False,
    small: bool = False,
    enlarged: bool = False,
    **options: int,
) -> Call:
    """Draw input, weight and, if its gradient is wanted, bias; as many channels come out as go in."""
    drawn = t.normal(
        *((1, channels, *(8,) * dims) if small else _shape(t, dims, channels, enlarged=enlarged))
    )
    tensors = {
        "input": t.channels_last(drawn) if channels_last else drawn,
        # Equal numbers of channels give Conv and ConvTranspose weights of one shape.
        "weight": t.normal(channels, channels // options.get("groups", 1), *(kernel,) * dims),
    }
    if leaf == "bias":
        tensors["bias"] = t.normal(channels)
    if leaf:
        tensors[leaf] = t.leaf(tensors[leaf])
    given = {
        "stride": 1,
        "padding": options.get("dilation", 1) * (kernel // 2),
        "dilation": 1,
        "groups": 1,
    } | options
    return call(*tensors.values(), **given)


def _usual(t: Inputs, *, channels_last: bool = False) -> Call:
    """Draw a layer as networks have them: 64 channels of 56 by 56 in batches of 32, and a kernel of 3."""
    drawn = t.normal(t.size(cpu=1, cuda=32), 64, 56, 56)
    return call(t.channels_last(drawn) if channels_last else drawn, t.leaf(t.normal(64, 64, 3, 3)), padding=1)


def _convolve_items(t: Inputs) -> Call:
    """Draw a batch of images, and a layer that doubles their channels."""
    side, channels = t.size(cpu=(8, 4), cuda=(56, 64))
    shapes = ((ITEMS, channels, side, side), (2 * channels, channels, 3, 3), (2 * channels,))
    return call(*(t.leaf(t.normal(*shape)) for shape in shapes), padding=1)


def _case(dims: int, leaf: str, provokes: str, **options: Any) -> Case:
    """Return a case of the forward pass, or of the gradient of one of the tensors (``leaf``)."""
    return Case(
        lambda t: _convolve(t, dims, leaf, **options),
        provokes,
        directions=BACKWARD if leaf else FORWARD,
        traits={"memory_format": "channels_last" if options.get("channels_last") else "contiguous"},
    )


def _spec(dims: int, *, transposed: bool) -> OpSpec:
    """Return the spec of one of Conv1d to Conv3d and ConvTranspose1d to ConvTranspose3d."""
    products = f"{CHANNELS * 3**dims} products summed into each"
    strided = f"up to {CHANNELS * 3**dims} products summed into each input element"
    # A strided convolution has fewer outputs, a transposed one more; its inputs count, of which CUDA gets fewer.
    weights, strided_weights = (
        f"about {on_cpu} products summed into each weight ({on_cuda} on CUDA)"
        for on_cpu, on_cuda in (
            (POSITIONS_CPU, POSITIONS_CUDA),
            (POSITIONS_CPU // (1 if transposed else 2**dims), POSITIONS_CUDA // 2**dims),
        )
    )
    case = partial(_case, dims)
    cases = {
        "dense": case("", f"{products} output element"),
        "input_grad": case("input", f"{products} input element"),
        "weight_grad": case("weight", weights),
        "bias_grad": case(
            "bias", f"{POSITIONS_CPU} gradients summed into each bias ({POSITIONS_CUDA} on CUDA)"
        ),
    }
    if dims > 1:  # There is no channels last of three dims.
        cases |= {
            "channels_last": case("", f"{products} output element", channels_last=True),
            "channels_last_input_grad": case("input", f"{products} input element", channels_last=True),
            "channels_last_weight_grad": case("weight", weights, channels_last=True),
        }
    doubled = partial(case, stride=2, dilation=2, enlarged=transposed)
    cases |= {
        "depthwise_input_grad": case(
            "input", f"{3**dims} products summed into each input element", groups=CHANNELS
        ),
        "depthwise_weight_grad": case("weight", weights, groups=CHANNELS),
        "strided_dilated_input_grad": doubled("input", strided),
        "strided_dilated_weight_grad": doubled("weight", strided_weights),
        "grouped_weight_grad": case("weight", weights, groups=2),
        # One channel and a kernel of one: a product is an output, nothing is summed.
        "single_product": case("", "", channels=1, kernel=1),
    }
    if dims == 2 and not transposed:  # noqa: PLR2004
        cases["small_weight_grad"] = case("weight", "up to 64 products summed into each weight", small=True)
        # Algorithms are chosen by the shape of such a layer; it takes a CPU seconds.
        cases |= {
            f"usual_{last and 'channels_last_'}weight_grad": Case(
                partial(_usual, channels_last=bool(last)),
                "about 100352 products summed into each weight",
                directions=BACKWARD,
                devices=("cuda",),
                dtypes=dtypes,
                traits={"memory_format": last or "contiguous"},
            )
            for last, dtypes in (("", ("float32",)), ("channels_last", ("float32", "float16")))
        }
        cases["batch"] = batched(_convolve_items, "36 products summed into each output element (576 on CUDA)")
    name = f"torch.nn.Conv{'Transpose' if transposed else ''}{dims}d"
    return OpSpec(
        name=name,
        op=f"torch.nn.functional.conv{'_transpose' if transposed else ''}{dims}d",
        why="cuDNN chooses among algorithms, some of which join partial sums with atomic additions "
        "(https://docs.pytorch.org/docs/stable/notes/randomness.html).",
        cases=cases,
        cuda_dtypes=("float16", "bfloat16"),
    )


LAYERS = 12


def receptive_field(call: Call, _: Tensor | None = None) -> Tensor:
    """Return 1 where a pixel takes part in the output by the masks, else 0: no convolution is computed."""
    image, weights, row, column = call.args
    import torch  # noqa: PLC0415

    field = torch.zeros(image.shape[-2:], dtype=torch.bool)
    field[row, column] = True
    for layer in reversed(range(len(weights))):
        middle = weights[layer].shape[-1] // 2
        offsets = [
            (down, right)
            for down in range(-middle, 1)
            for right in range(-middle, middle + 1)
            if (down, right) < (0, int(layer > 0))
        ]
        field = torch.stack([_shifted(field, *offset) for offset in offsets]).any(dim=0)
    return field.expand(image.shape).to(image.dtype).to(image.device)


def _shifted(field: Tensor, down: int, right: int) -> Tensor:
    """Return a map moved by so many rows and columns; what leaves the image is lost."""
    moved = field.roll((down, right), (0, 1))
    if down:
        moved[down:] = False
    if right:
        moved[:, slice(right, None) if right < 0 else slice(right)] = False
    return moved


def _stack(t: Inputs) -> Call:
    """Draw an image of one channel and the weights, and ask for the position in the middle."""
    side, channels = t.size(cpu=(32, 8), cuda=(64, 64))
    image = t.leaf(t.normal(1, 1, side, side))
    widths = [1, *[channels] * LAYERS]
    # So that neither the values nor their gradients grow or vanish on the way.
    weights = [t.normal(after, before, 3, 3) * (4 * before) ** -0.5 for before, after in pairwise(widths)]
    return call(image, weights, side // 2, side // 2)


_MASKED = tuple(
    OpSpec(
        name=name,
        op=f"detmatrix.opspecs.masked.{op}",
        why="cuDNN chooses among algorithms that give the gradient of a convolution; in those that compute in another domain the zeros "
        "of a mask do not stay zeros, and pixels that an output must not see get a gradient. What an output must see is drawn in "
        "https://uvadlc-notebooks.readthedocs.io/en/latest/tutorial_notebooks/tutorial12/Autoregressive_Image_Modeling.html.",
        directions=BACKWARD,
        cases={
            case: Case(
                _stack,
                "12 layers, each of which may be computed by another algorithm",
                reference=reference,
                holds_always=reference is not None,
            )
        },
    )
    for name, op, case, reference in (
        ("masked_conv2d", "masked_convolutions", "input_gradient", None),
        ("masked_conv2d.receptive_field", "seen_by_masked_convolutions", "nonzero_gradient", receptive_field),
    )
)
SPECS: tuple[OpSpec, ...] = (
    *(_spec(dims, transposed=transposed) for transposed in (False, True) for dims in (1, 2, 3)),
    *_MASKED,
)
