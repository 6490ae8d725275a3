"""Padding by what is there: backward, each element collects the gradients of all its copies.

Reflection copies an element at most twice along each dim, replication repeats the ones at the border as often
as the padding is wide.
"""

from __future__ import annotations

from functools import partial
from math import prod

from detmatrix.opspecs.inputs import Inputs
from detmatrix.opspecs.model import BOTH, Call, Case, OpSpec, call

KERNELS = "https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/cuda"

# Sides of the padded input, by dims.
REFLECTED_CPU, REFLECTED_CUDA = {1: 2048, 2: 32, 3: 8}, {1: 1 << 14, 2: 64, 3: 20}
REPLICATED_CPU, REPLICATED_CUDA = {1: 64, 2: 16, 3: 6}, {1: 256, 2: 32, 3: 12}
CONTIGUOUS, CHANNELS_LAST = {"memory_format": "contiguous"}, {"memory_format": "channels_last"}
# Widths of the replication, by dims.
WIDTH_CPU, WIDTH_CUDA = {1: 1024, 2: 16, 3: 4}, {1: 1 << 14, 2: 96, 3: 20}


def _pad(t: Inputs, side: int, dims: int, width: int, mode: str, *, channels_last: bool = False) -> Call:
    """Pad all sides of ``(N, C, ...)`` by as much."""
    drawn = t.normal(*t.size(cpu=(2, 4), cuda=(4, 16)), *(side,) * dims)
    padded = t.leaf(t.channels_last(drawn) if channels_last else drawn)
    return call(padded, (width,) * (2 * dims), mode=mode)


def _reflect(t: Inputs, dims: int, *, width: int = 0, channels_last: bool = False) -> Call:
    """Reflect as far as there is something to reflect, or by a *width*."""
    side = t.size(cpu=REFLECTED_CPU, cuda=REFLECTED_CUDA)[dims]
    return _pad(t, side, dims, width or side - 1, "reflect", channels_last=channels_last)


def _replicate(t: Inputs, dims: int, *, width: int = 0, channels_last: bool = False) -> Call:
    """Repeat the border many times, or by a *width*."""
    side = t.size(cpu=REPLICATED_CPU, cuda=REPLICATED_CUDA)[dims]
    width = width or t.size(cpu=WIDTH_CPU, cuda=WIDTH_CUDA)[dims]
    return _pad(t, side, dims, width, "replicate", channels_last=channels_last)


def _uneven(t: Inputs, lead: tuple[int, ...], pads: tuple[int, ...]) -> Call:
    """Repeat the border as often as each side says."""
    return call(t.leaf(t.normal(*lead, *(4, 5, 3)[: len(pads) // 2])), pads, mode="replicate")


def _spec(module: str, source: str, cases: dict[str, Case]) -> OpSpec:
    return OpSpec(
        name=f"torch.nn.{module}",
        op="torch.nn.functional.pad",
        why="The CUDA backward adds each output's gradient to the element it is a copy of with atomic additions "
        f"({KERNELS}/{source}).",
        directions=("backward",),
        cases=cases,
        cuda_dtypes=("float16", "bfloat16"),
    )


def _reflection(dims: int) -> OpSpec:
    """Return the spec of one of ReflectionPad1d to ReflectionPad3d."""
    everywhere = f"up to {3**dims} gradients added into each input element"
    cases = {
        "whole_side": Case(lambda t: _reflect(t, dims), everywhere, directions=BOTH, traits=CONTIGUOUS),
        # Near a border an element has a single copy along each dim, and two gradients always commute.
        "narrow": Case(
            lambda t: _reflect(t, dims, width=1),
            f"{2**dims} gradients added into each element beside a corner" if dims > 1 else "",
            traits=CONTIGUOUS,
        ),
    }
    if dims > 1:
        cases["whole_side_channels_last"] = Case(
            lambda t: _reflect(t, dims, channels_last=True), everywhere, traits=CHANNELS_LAST
        )
    if dims == 2:  # noqa: PLR2004
        cases["whole_side_small"] = Case(
            lambda t: _pad(t, 6, dims, 5, "reflect"), everywhere, traits=CONTIGUOUS
        )
        # Pads that meet in the middle column, and one that cuts two columns off: its kernel with the flag on has branches for these.
        cases["touching"] = Case(lambda t: _pad(t, 7, dims, 3, "reflect"), everywhere, traits=CONTIGUOUS)
        cases["cropped"] = Case(
            lambda t: call(t.leaf(t.normal(1, 2, 8, 8)), (1, -2, 1, 1), mode="reflect"),
            "4 gradients added into each element beside a corner",
            devices=("cuda",),
            traits=CONTIGUOUS,
        )
    return _spec(f"ReflectionPad{dims}d", "ReflectionPad.cu", cases)


def _replication(dims: int) -> OpSpec:
    """Return the spec of one of ReplicationPad1d to ReplicationPad3d."""
    on_cpu, on_cuda = ((width[dims] + 1) ** dims for width in (WIDTH_CPU, WIDTH_CUDA))
    corners = f"{on_cpu} gradients added into each corner element ({on_cuda} on CUDA)"
    cases = {
        "wide": Case(lambda t: _replicate(t, dims), corners, directions=BOTH, traits=CONTIGUOUS),
        "narrow": Case(
            lambda t: _replicate(t, dims, width=1),
            f"{2**dims} gradients added into each corner element" if dims > 1 else "",
            traits=CONTIGUOUS,
        ),
    }
    if dims > 1:
        cases["wide_channels_last"] = Case(
            lambda t: _replicate(t, dims, channels_last=True), corners, traits=CHANNELS_LAST
        )
    # Pads that differ from side to side, of a batch and without one.
    pads = (3, 4, 5, 6, 1, 2)[: 2 * dims]
    several = f"up to {prod(1 + max(pair) for pair in zip(pads[::2], pads[1::2], strict=True))} gradients added into each corner"
    for name, lead in {"uneven": (1, 2), "uneven_unbatched": (3,)}.items():
        cases[name] = Case(
            partial(_uneven, lead=lead, pads=pads), several, devices=("cuda",), traits=CONTIGUOUS
        )
    return _spec(f"ReplicationPad{dims}d", "ReplicationPadding.cu", cases)


SPECS: tuple[OpSpec, ...] = (
    *(_reflection(dims) for dims in (1, 2, 3)),
    *(_replication(dims) for dims in (1, 2, 3)),
)
