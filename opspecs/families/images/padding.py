"""Padding by what is there: backward, each element collects the gradients of all its copies.

Reflection copies an element at most twice along each dim, replication repeats the ones at the border as often
as the padding is wide.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import prod

from detmatrix.opspecs.families import KERNELS
from detmatrix.opspecs.inputs import Inputs
from detmatrix.opspecs.model import BOTH, Call, Case, OpSpec, call

# By dims: sides of the padded input, as far as there is something to reflect, and how often the border is repeated.
REFLECTED = {"cpu": {1: 2048, 2: 32, 3: 8}, "cuda": {1: 1 << 14, 2: 64, 3: 20}}
REPLICATED = {"cpu": {1: 64, 2: 16, 3: 6}, "cuda": {1: 256, 2: 32, 3: 12}}
# The time of half types on CUDA, which retry until nobody came between, grows with the square of additions into a corner.
WIDTH = {"cpu": {1: 1024, 2: 16, 3: 4}, "cuda": {1: 1 << 11, 2: 40, 3: 10}}


def _pad(t: Inputs, side: int, dims: int, width: int, mode: str, *, channels_last: bool = False) -> Call:
    """Pad all sides of ``(N, C, ...)`` by as much."""
    drawn = t.normal(*t.size(cpu=(2, 4), cuda=(4, 16)), *(side,) * dims)
    padded = t.leaf(t.channels_last(drawn) if channels_last else drawn)
    return call(padded, (width,) * (2 * dims), mode=mode)


def _cases(
    dims: int, mode: str, name: str, sizes: Callable[[Inputs], tuple[int, int]], provokes: str, corner: str
) -> dict[str, Case]:
    """Return the cases that both modes have, of a side and a width: as wide as that, by one, and channels last."""

    def inputs(t: Inputs, width: int = 0, **layout: bool) -> Call:
        side, wide = sizes(t)
        return _pad(t, side, dims, width or wide, mode, **layout)

    # Near a border an element has a single copy along each dim, and two gradients always commute.
    narrow = f"{2**dims} gradients added into each {corner}" if dims > 1 else ""
    cases = {name: Case(inputs, provokes, directions=BOTH), "narrow": Case(partial(inputs, width=1), narrow)}
    if dims > 1:
        cases[f"{name}_channels_last"] = Case(partial(inputs, channels_last=True), provokes)
    return cases


def _uneven(t: Inputs, lead: tuple[int, ...], pads: tuple[int, ...]) -> Call:
    """Repeat the border as often as each side says."""
    return call(t.leaf(t.normal(*lead, *(4, 5, 3)[: len(pads) // 2])), pads, mode="replicate")


def _spec(module: str, source: str, cases: dict[str, Case]) -> OpSpec:
    """Return the spec of a module; the id of a case tells its layout."""
    layouts = {name: "channels_last" if "channels_last" in name else "contiguous" for name in cases}
    return OpSpec(
        name=f"torch.nn.{module}",
        op="torch.nn.functional.pad",
        why="The CUDA backward adds each output's gradient to the element it is a copy of with atomic additions "
        f"({KERNELS}/cuda/{source}).",
        directions=("backward",),
        cases={name: replace(case, traits={"memory_format": layouts[name]}) for name, case in cases.items()},
        cuda_dtypes=("float16", "bfloat16"),
    )


def _reflection(dims: int) -> OpSpec:
    """Return the spec of one of ReflectionPad1d to ReflectionPad3d."""

    def sizes(t: Inputs) -> tuple[int, int]:
        side = t.size(**REFLECTED)[dims]
        return side, side - 1

    everywhere, corner = f"up to {3**dims} gradients added into each input element", "element beside a corner"
    cases = _cases(dims, "reflect", "whole_side", sizes, everywhere, corner)
    if dims == 2:  # noqa: PLR2004
        cases["whole_side_small"] = Case(lambda t: _pad(t, 6, 2, 5, "reflect"), everywhere)
        # Pads that meet in the middle column, and one that cuts two columns off: its kernel with the flag on has branches for these.
        cases["touching"] = Case(lambda t: _pad(t, 7, 2, 3, "reflect"), everywhere)
        cases["cropped"] = Case(
            lambda t: call(t.leaf(t.normal(1, 2, 8, 8)), (1, -2, 1, 1), mode="reflect"),
            "4 gradients added into each element beside a corner",
            devices=("cuda",),
        )
    return _spec(f"ReflectionPad{dims}d", "ReflectionPad.cu", cases)


def _replication(dims: int) -> OpSpec:
    """Return the spec of one of ReplicationPad1d to ReplicationPad3d."""
    on_cpu, on_cuda = ((width[dims] + 1) ** dims for width in WIDTH.values())
    corners = f"{on_cpu} gradients added into each corner element ({on_cuda} on CUDA)"
    cases = _cases(
        dims,
        "replicate",
        "wide",
        lambda t: (t.size(**REPLICATED)[dims], t.size(**WIDTH)[dims]),
        corners,
        "corner element",
    )
    # Pads that differ from side to side, of a batch and without one.
    pads = (3, 4, 5, 6, 1, 2)[: 2 * dims]
    several = f"up to {prod(1 + max(pair) for pair in zip(pads[::2], pads[1::2], strict=True))} gradients added into each corner"
    for name, lead in {"uneven": (1, 2), "uneven_unbatched": (3,)}.items():
        inputs = partial(_uneven, lead=lead, pads=pads)
        cases[name] = Case(inputs, several, devices=("cuda",))
    return _spec(f"ReplicationPad{dims}d", "ReplicationPadding.cu", cases)


SPECS: tuple[OpSpec, ...] = tuple(kind(dims) for kind in (_reflection, _replication) for dims in (1, 2, 3))
