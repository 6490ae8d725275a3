"""Interpolation: enlarging spreads each input element over many outputs, whose gradients come back as a sum.

Modes, dims, memory formats and antialiasing have kernels of their own, so each has a case, named after it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from detmatrix.opspecs.families import KERNELS
from detmatrix.opspecs.inputs import Inputs
from detmatrix.opspecs.model import BOTH, Call, Case, OpSpec, call


def _interpolate(
    t: Inputs, dims: int, mode: str, scale: float, *, channels_last: bool, large: bool, **options: bool
) -> Call:
    """Draw an input of *dims* dims and resize it; where the output is small, a *large* one for two threads of a CPU."""
    batch = 2 if large else 1
    # CUDA has kernels of their own for 16 channels that lie last, or more, in these modes.
    last = channels_last and mode in {"nearest", "nearest-exact", "bilinear"}
    batch, channels = t.size(cpu=(batch, 4), cuda=(2, 16), simulated=(1, 16) if last else (batch, 4))
    # With the flag on each tap of a linear mode is an index_put of its own, with a sort.
    small = {1: 1024, 2: 16, 3: 4 if mode == "trilinear" else 8}
    side = t.size(cpu={1: 1024, 2: 32, 3: 8}, cuda={1: 1 << 14, 2: 96, 3: 16}, simulated=small)[dims]
    if large and (dims == 1 or scale < 1):
        small |= {2: 48, 3: 12}
        side = t.size(cpu={1: 1 << 12, 2: 136, 3: 24}[dims], cuda=side, simulated=small[dims])
    drawn = t.normal(batch, channels, *(side,) * dims)
    image = t.leaf(t.channels_last(drawn) if channels_last else drawn)
    return call(image, scale_factor=scale, mode=mode, **options)


def _case(
    dims: int,
    mode: str,
    scale: float,
    gradients: int,
    *options: str,
    channels_last: bool = False,
    large: bool = False,
    **declared: Any,
) -> Case:
    """Return a case in which each input element receives up to about *gradients* gradients; two always commute."""
    given = dict.fromkeys(options, True)
    return Case(
        lambda t: _interpolate(t, dims, mode, scale, channels_last=channels_last, large=large, **given),
        f"up to about {gradients} gradients added into each input element" if gradients > 2 else "",  # noqa: PLR2004
        traits={
            "mode": mode,
            "dims": f"{dims}-D",
            "antialias": str("antialias" in options),
            "memory_format": "channels_last" if channels_last else "contiguous",
        },
        **declared,
    )


def _nearest(mode: str) -> dict[str, Case]:
    """Return the cases of a mode in which an output copies one input element."""
    return {
        f"{mode}_1d_large": _case(1, mode, 3, 3, large=True),
        f"{mode}_2d": _case(2, mode, 3, 9, directions=BOTH),
        f"{mode}_2d_channels_last_batch": _case(2, mode, 3, 9, channels_last=True, large=True),
        f"{mode}_3d": _case(3, mode, 3, 27),
        # Half of the elements is copied, once.
        f"{mode}_2d_down": _case(2, mode, 0.5, 1),
    }


def _smooth(mode: str, dims: int, taps: int) -> dict[str, Case]:
    """Return the cases of a mode that draws an output from so many input elements (*taps*) along each dim if nothing is resized."""
    enlarged, large, name = (3 * taps) ** dims, dims == 1, f"{mode}_large" if dims == 1 else mode
    return {
        name: _case(dims, mode, 3, enlarged, directions=BOTH, large=large),
        f"{name}_align_corners": _case(dims, mode, 3, enlarged, "align_corners", large=large),
        f"{mode}_down_large": _case(dims, mode, 0.75, 36 if mode == "bicubic" else 2**dims, large=True),
    }


def _image(mode: str, taps: int) -> dict[str, Case]:
    """Return the cases bilinear and bicubic add: channels last, and antialiasing both ways."""
    enlarged, reduced = (3 * taps) ** 2, taps**2
    down = partial(_case, 2, mode, 0.5, reduced, "antialias", large=True)
    return {
        f"{mode}_channels_last_batch": _case(2, mode, 3, enlarged, channels_last=True, large=True),
        f"{mode}_antialias": _case(2, mode, 3, enlarged, "antialias"),
        f"{mode}_antialias_down_large": down(directions=BOTH),
        f"{mode}_antialias_channels_last_large": down(channels_last=True),
    }


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        name="torch.nn.functional.interpolate",
        why="The CUDA backward of most modes adds each output's gradient to the inputs it was drawn from with atomic "
        f"additions ({KERNELS}/cuda/UpSampleBilinear2d.cu); in the nearest modes an input collects its own.",
        directions=("backward",),
        cases={
            **_nearest("nearest"),
            **_nearest("nearest-exact"),
            **_smooth("linear", 1, 2),
            **_smooth("bilinear", 2, 2),
            **_image("bilinear", 2),
            **_smooth("bicubic", 2, 4),
            **_image("bicubic", 4),
            **_smooth("trilinear", 3, 2),
            "trilinear_channels_last_batch": _case(3, "trilinear", 3, 216, channels_last=True, large=True),
            # Adaptive average pools, whose windows overlap where sizes do not divide.
            # Enlarged by a half, an element takes part in two outputs along each dim; by 0.7, in three.
            "area_1d": _case(1, "area", 1.5, 2),
            "area_1d_uneven": _case(1, "area", 1.7, 3, devices=("cuda",)),
            "area_2d": _case(2, "area", 1.5, 4, directions=BOTH),
            "area_2d_channels_last_batch": _case(2, "area", 1.5, 4, channels_last=True, large=True),
            "area_2d_down": _case(2, "area", 0.75, 4),
            "area_3d": _case(3, "area", 1.5, 8),
        },
        cuda_dtypes=("float16",),
    ),
)
