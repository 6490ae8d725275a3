"""Normalization: means over many elements, and weights whose gradients sum over all that they scaled."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from detmatrix.opspecs.families import KERNELS
from detmatrix.opspecs.inputs import Inputs
from detmatrix.opspecs.model import BOTH, ITEMS, Call, Case, OpSpec, Tensor, batched, call

GROUP_AVERAGED = "2048 elements averaged in each group (131072 on CUDA)"
AVERAGED = "512 elements averaged in each row (4096 on CUDA)"
CHANNEL_AVERAGED = "4096 elements averaged in each channel (2097152 on CUDA)"


def _layer_norm(t: Inputs, rows: int, columns: int) -> Call:
    drawn, weight, bias = (t.leaf(t.normal(*shape)) for shape in ((rows, columns), (columns,), (columns,)))
    return call(drawn, (columns,), weight, bias)


def _items(t: Inputs) -> tuple[Tensor, tuple[int, ...], Tensor]:
    """Rows of a batch, the width that each is normalized over, and a weight."""
    width = t.size(cpu=512, cuda=4096)
    return t.leaf(t.normal(ITEMS, width)), (width,), t.leaf(t.normal(width))


def _image(t: Inputs, *, channels_last: bool, bias: bool = True) -> tuple[object, ...]:
    """Draw an image ``(N, 8, H, W)``, and weight and bias of its channels."""
    # Of channels that lie last a GPU cuts no fewer than 8192 elements into blocks.
    batch, side = t.size(cpu=(4, 32), cuda=(32, 256), simulated=(8, 32))
    drawn = t.normal(batch, 8, side, side)
    image = t.leaf(t.channels_last(drawn) if channels_last else drawn)
    return image, *(t.leaf(t.normal(8)) for _ in range(1 + bias))


def _batch_norm(t: Inputs, *, channels_last: bool = False, native: bool = False) -> Call:
    """Normalize by the batch's own mean and variance; running ones would be changed by each call.

    Without a bias cuDNN does not do it, and PyTorch's *native* kernels do.
    """
    image, *scales = _image(t, channels_last=channels_last, bias=not native)
    return call(image, None, None, *scales, training=True)


def _batch_norm_rows(t: Inputs) -> Call:
    rows, columns = t.size(cpu=(1 << 11, 16), cuda=(1 << 18, 64), simulated=(1 << 12, 16))
    drawn, weight, bias = (t.leaf(t.normal(*shape)) for shape in ((rows, columns), (columns,), (columns,)))
    return call(drawn, None, None, weight, bias, training=True)


def _group_norm(t: Inputs, *, channels_last: bool = False) -> Call:
    image, weight, bias = _image(t, channels_last=channels_last)
    return call(image, 4, weight, bias)


NATIVE = Case(partial(_batch_norm, native=True), CHANNEL_AVERAGED, devices=("cuda",))

SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        name="torch.nn.LayerNorm",
        op="torch.nn.functional.layer_norm",
        why=f"Rows are cut into blocks whose partial sums are joined ({KERNELS}/cuda/layer_norm_kernel.cu).",
        directions=("backward",),
        cases={
            "many_rows": Case(
                lambda t: _layer_norm(t, *t.size(cpu=(1 << 10, 32), cuda=(1 << 17, 64))),
                "1024 gradients added into each weight (131072 on CUDA)",
                directions=BOTH,
            ),
            "long_rows": Case(
                lambda t: _layer_norm(
                    t, *t.size(cpu=(8, 1 << 12), cuda=(64, 1 << 16), simulated=(64, 1 << 10))
                ),
                "4096 elements averaged in each row (65536 on CUDA)",
                directions=BOTH,
            ),
            "batch": batched(
                lambda t: call(*_items(t), t.leaf(t.normal(t.size(cpu=512, cuda=4096)))), AVERAGED
            ),
        },
        cuda_dtypes=("float16", "bfloat16"),
    ),
    OpSpec(
        name="torch.nn.functional.rms_norm",
        why=f"Rows are cut into lanes whose partial sums are joined ({KERNELS}/cuda/layer_norm_kernel.cu).",
        cases={"batch": batched(lambda t: call(*_items(t)), AVERAGED)},
    ),
    OpSpec(
        name="torch.nn.BatchNorm2d",
        op="torch.nn.functional.batch_norm",
        why="A channel is cut into blocks whose partial sums are joined; cuDNN may do it in its own way "
        f"({KERNELS}/cuda/Normalization.cuh).",
        directions=("backward",),
        cases={
            "images": Case(_batch_norm, CHANNEL_AVERAGED, directions=BOTH),
            "images_channels_last": Case(partial(_batch_norm, channels_last=True), CHANNEL_AVERAGED),
            "images_native": replace(NATIVE, directions=BOTH),
            "images_native_channels_last": replace(
                NATIVE, inputs=partial(_batch_norm, channels_last=True, native=True)
            ),
            "rows": Case(_batch_norm_rows, "2048 elements averaged in each column (262144 on CUDA)"),
        },
        cuda_dtypes=("float16",),
    ),
    OpSpec(
        name="torch.nn.GroupNorm",
        op="torch.nn.functional.group_norm",
        why=f"A group is cut into blocks whose partial sums are joined ({KERNELS}/cuda/group_norm_kernel.cu).",
        directions=("backward",),
        cases={
            "images": Case(_group_norm, GROUP_AVERAGED, directions=BOTH),
            "images_channels_last": Case(partial(_group_norm, channels_last=True), GROUP_AVERAGED),
        },
        cuda_dtypes=("float16",),
    ),
)
