"""Sampling an image at given points: backward, a pixel collects the gradients of all points near it.

Points crowd into a corner of the image, so that a hundred or more of them fall upon each pixel there.
"""

from __future__ import annotations

from typing import Any

from detmatrix.opspecs.families import KERNELS
from detmatrix.opspecs.inputs import Inputs
from detmatrix.opspecs.model import BOTH, Call, Case, OpSpec, call

CROWDED = "gradients of a hundred points or more added into each pixel"


def _sample(
    t: Inputs,
    dims: int,
    *,
    grid_grad: bool = False,
    channels_last: bool = False,
    small: bool = False,
    **options: Any,
) -> Call:
    """Sample a corner, or with another padding than zeros what lies around it and beyond the image, which reaches from -1 to 1.

    Beyond it padding decides: the border takes all gradients, reflection folds them back.
    """
    # A CPU divides a batch among its threads, and so only one that has enough points.
    batch, channels = t.size(cpu=(16 if small else 4, 4), cuda=(2, 16))
    side = t.size(cpu={2: 32, 3: 10}, cuda={2: 64, 3: 32})[dims]
    points = t.size(cpu={2: 64, 3: 16}, cuda={2: 160, 3: 64})[dims]
    if small:
        side, points = 8, 16
    image = t.normal(batch, channels, *(side,) * dims)
    image = t.channels_last(image) if channels_last else image
    low, high = (0.2, 0.6) if options["padding_mode"] == "zeros" else (0.8, 1.4)
    grid = t.uniform(batch, *(points,) * dims, dims, low=low, high=high)
    return call(*((image, t.leaf(grid)) if grid_grad else (t.leaf(image), grid)), **options)


def _sample_channels(t: Inputs) -> Call:
    """Sample more channels than cuDNN's sampler takes (1024), which else samples where corners are aligned."""
    points = t.size(cpu=64, cuda=1 << 12, simulated=320)
    grid = t.uniform(1, 1, points, 2, low=0.2, high=0.6)
    return call(t.leaf(t.normal(1, 1025, 8, 8)), grid, align_corners=True)


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


def _case(name: str, provokes: str = CROWDED, **options: bool) -> Case:
    """Return the case of a name, which says mode, padding, corners and layout; 100 points or more fall upon a pixel or the border."""
    words = name.split("_")
    mode = words[0].replace("trilinear", "bilinear")
    dims = 3 if words[0] == "trilinear" or "3d" in words else 2
    padding = next((word for word in ("border", "reflection") if word in words), "zeros")
    given: dict[str, Any] = {"mode": mode, "padding_mode": padding, "align_corners": "corners" in words}
    last = "channels" in words
    return Case(
        lambda t: _sample(t, dims, channels_last=last, **options, **given),
        provokes,
        directions=BOTH if name in {"bilinear", "trilinear"} else None,
        traits={
            "dims": f"{dims}-D",
            "mode": mode,
            "memory_format": "channels_last" if last else "contiguous",
        },
    )


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        name="torch.nn.functional.grid_sample",
        why="The CUDA backward adds the gradient of each point to the pixels around it with atomic additions "
        f"({KERNELS}/cuda/GridSampler.cu).",
        directions=("backward",),
        cases={
            **{
                f"{name}_batch": _case(name)
                for name in (
                    *(
                        "bilinear",
                        "bilinear_align_corners",
                        "bilinear_border",
                        "bilinear_border_align_corners",
                    ),
                    *("bilinear_reflection", "bilinear_reflection_align_corners", "bilinear_channels_last"),
                    *("nearest", "nearest_border"),
                    *("bicubic", "bicubic_border", "bicubic_reflection_align_corners"),
                    *("trilinear", "trilinear_border", "trilinear_reflection_align_corners"),
                    *("trilinear_channels_last", "nearest_3d"),
                )
            },
            "bilinear_small_batch": _case(
                "bilinear_small", "gradients of about 70 points added into each pixel", small=True
            ),
            "bilinear_align_corners_channels": Case(
                _sample_channels, CROWDED, devices=("cuda",), traits=_case("bilinear").traits
            ),
            # Each point has a gradient of its own, a sum over the channels.
            "grid_grad_batch": _case("bilinear_grid", "", grid_grad=True),
            "grid_grad_3d_batch": _case("bilinear_grid_3d", "", grid_grad=True),
            "each_pixel_once": Case(_sample_pixels, traits=_case("nearest").traits),
        },
        cuda_dtypes=("float16",),
    ),
)
