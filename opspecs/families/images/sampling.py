"""Sampling an image at given points: backward, a pixel collects the gradients of all points near it.

Points crowd into a corner of the image, so that a hundred or more of them fall upon each pixel there.
"""

from __future__ import annotations

from detmatrix.opspecs.inputs import Inputs
from detmatrix.opspecs.model import BOTH, Call, Case, Direction, OpSpec, call

KERNELS = "https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native"


def _sample(
    t: Inputs,
    dims: int,
    mode: str,
    padding: str,
    *,
    align_corners: bool = False,
    beyond: bool = False,
    grid_grad: bool = False,
    channels_last: bool = False,
    small: bool = False,
) -> Call:
    """Sample a corner, or what lies around it and *beyond* the image, which reaches from -1 to 1.

    Beyond it padding decides: the border takes all gradients, reflection folds them back.
    """
    # A CPU divides a batch among its threads, and so only one that has enough points.
    batch, channels = t.size(cpu=(16 if small else 4, 4), cuda=(2, 16))
    side = t.size(cpu={2: 32, 3: 10}, cuda={2: 128, 3: 32})[dims]
    points = t.size(cpu={2: 64, 3: 16}, cuda={2: 512, 3: 64})[dims]
    if small:
        side, points = 8, 16
    image = t.normal(batch, channels, *(side,) * dims)
    if channels_last:
        image = t.channels_last(image)
    grid = t.uniform(batch, *(points,) * dims, dims, low=0.8 if beyond else 0.2, high=1.4 if beyond else 0.6)
    if grid_grad:
        grid = t.leaf(grid)
    else:
        image = t.leaf(image)
    return call(image, grid, mode=mode, padding_mode=padding, align_corners=align_corners)


def _sample_channels(t: Inputs) -> Call:
    """Sample more channels than cuDNN's sampler takes (1024), which else samples where corners are aligned."""
    points = t.size(cpu=64, cuda=1 << 12, simulated=320)
    grid = t.uniform(1, 1, points, 2, low=0.2, high=0.6)
    return call(t.leaf(t.normal(1, 1025, 8, 8)), grid, align_corners=True)


def _traits(dims: int, mode: str, memory_format: str = "contiguous") -> dict[str, str]:
    return {"dims": f"{dims}-D", "mode": mode, "memory_format": memory_format}


def _sample_pixels(t: Inputs) -> Call:
    """Sample each pixel once, at its centre."""
    batch, side = t.size(cpu=(1, 64), cuda=(2, 512))
    centres = (t.permutation(side).sort().values * 2 + 1).to(t.dtype) / side - 1
    rows, columns = centres.reshape(-1, 1).expand(side, side), centres.expand(side, side)
    # Columns come first in a grid.
    grid = columns.new_zeros(batch, side, side, 2)
    grid[..., 0] = columns
    grid[..., 1] = rows
    image = t.leaf(t.normal(batch, 4, side, side))
    return call(image, grid, mode="nearest", padding_mode="zeros", align_corners=False)


def _case(
    dims: int,
    mode: str,
    padding: str = "zeros",
    *,
    directions: tuple[Direction, ...] = ("backward",),
    **options: bool,
) -> Case:
    """Return a case in which a hundred points or more fall upon each pixel of a corner, or of the border."""
    channels_last = options.get("channels_last", False)
    return Case(
        lambda t: _sample(t, dims, mode, padding, beyond=padding != "zeros", **options),
        "gradients of a hundred points or more added into each pixel",
        directions=directions,
        traits=_traits(dims, mode, "channels_last" if channels_last else "contiguous"),
    )


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        name="torch.nn.functional.grid_sample",
        why="The CUDA backward adds the gradient of each point to the pixels around it with atomic additions "
        f"({KERNELS}/cuda/GridSampler.cu).",
        directions=("backward",),
        cases={
            "bilinear_batch": _case(2, "bilinear", directions=BOTH),
            "bilinear_align_corners_batch": _case(2, "bilinear", align_corners=True),
            "bilinear_border_batch": _case(2, "bilinear", "border"),
            "bilinear_border_align_corners_batch": _case(2, "bilinear", "border", align_corners=True),
            "bilinear_reflection_batch": _case(2, "bilinear", "reflection"),
            "bilinear_reflection_align_corners_batch": _case(2, "bilinear", "reflection", align_corners=True),
            "bilinear_channels_last_batch": _case(2, "bilinear", channels_last=True),
            "nearest_batch": _case(2, "nearest"),
            "nearest_border_batch": _case(2, "nearest", "border"),
            "bicubic_batch": _case(2, "bicubic"),
            "bicubic_border_batch": _case(2, "bicubic", "border"),
            "bicubic_reflection_align_corners_batch": _case(2, "bicubic", "reflection", align_corners=True),
            "trilinear_batch": _case(3, "bilinear", directions=BOTH),
            "trilinear_border_batch": _case(3, "bilinear", "border"),
            "trilinear_reflection_align_corners_batch": _case(
                3, "bilinear", "reflection", align_corners=True
            ),
            "trilinear_channels_last_batch": _case(3, "bilinear", channels_last=True),
            "nearest_3d_batch": _case(3, "nearest"),
            "bilinear_small_batch": Case(
                lambda t: _sample(t, 2, "bilinear", "zeros", small=True),
                "gradients of about 70 points added into each pixel",
                traits=_traits(2, "bilinear"),
            ),
            "bilinear_align_corners_channels": Case(
                _sample_channels,
                "gradients of a hundred points or more added into each pixel",
                devices=("cuda",),
                traits=_traits(2, "bilinear"),
            ),
            # Each point has a gradient of its own, a sum over the channels.
            "grid_grad_batch": Case(
                lambda t: _sample(t, 2, "bilinear", "zeros", grid_grad=True), traits=_traits(2, "bilinear")
            ),
            "grid_grad_3d_batch": Case(
                lambda t: _sample(t, 3, "bilinear", "zeros", grid_grad=True), traits=_traits(3, "bilinear")
            ),
            "each_pixel_once": Case(_sample_pixels, traits=_traits(2, "nearest")),
        },
        cuda_dtypes=("float16",),
    ),
)
