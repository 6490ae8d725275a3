"""Pooling and unpooling: where windows overlap, the backward pass adds several gradients into one element.

Average pools do so for every element of an overlap, max pools for the maximum that windows share. Unpooling
writes instead of adding, and two equal indices race for one place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf
from re import sub
from typing import Any

from detmatrix.opspecs.families import KERNELS
from detmatrix.opspecs.inputs import Inputs
from detmatrix.opspecs.model import BACKWARD, BOTH, CUDA, FORWARD, HALF, Call, Case, OpSpec, Tensor, call

GRADIENTS, NAMED = "and their gradients are added there", "and name it in the indices"
PLACES = "about 16 different values written to each place"


def _shape(t: Inputs, dims: int) -> tuple[int, ...]:
    """Return ``(N, C, ...)`` of a pooled input: about 2**14 elements on a CPU, 2**22 on CUDA."""
    side = t.size(
        cpu={1: 2048, 2: 64, 3: 12}, cuda={1: 1 << 15, 2: 256, 3: 64}, simulated={1: 2048, 2: 64, 3: 10}
    )
    return (2, t.size(cpu=4, cuda={1: 32, 2: 32, 3: 8}[dims]), *(side[dims],) * dims)


def _smooth(t: Inputs, dims: int) -> Tensor:
    return t.normal(*_shape(t, dims))


def _spiky(t: Inputs, dims: int) -> Tensor:
    """Draw values with a spike in every 64 or so: it is the maximum of each window that holds it."""
    return t.spiky(*_shape(t, dims))


def _tied(t: Inputs, dims: int) -> Tensor:
    """Draw values out of {0, 1, 2}: nearly every window has several maxima, and an index to choose."""
    return t.integers(*_shape(t, dims), high=3)


def _hollow(t: Inputs) -> Call:
    """Pool values of which a corner is minus infinity, as what pads it is: no other element than a padded one is its maximum."""
    drawn = t.normal(1, 2, 6, 6, 6)
    drawn[..., :2, :2, :2] = -inf
    return call(drawn, 2, stride=2, padding=1, return_indices=True)


def _side(t: Inputs, dims: int, numerator: int, denominator: int = 1) -> int:
    """Return that fraction of the input's side, and one more, so that neither divides the other."""
    return _shape(t, dims)[-1] * numerator // denominator + 1


def _case(
    draw: Callable[[Inputs, int], Tensor],
    dims: int,
    size: Any,
    provokes: str = "",
    *,
    channels_last: bool = False,
    directions: Any = None,
    **options: Any,
) -> Case:
    """Return a case that pools what is drawn, in windows or to an output of a size; an option may be a function of ``t``."""

    def inputs(t: Inputs) -> Call:
        given = {name: value(t) if callable(value) else value for name, value in options.items()}
        drawn = draw(t, dims)
        image = t.leaf(t.channels_last(drawn) if channels_last else drawn)
        return call(image, size(t) if callable(size) else size, **given)

    return Case(inputs, provokes, directions=directions)


def _traits(module: str, case: str) -> dict[str, str]:
    """Return the traits that a module's lists have conditions of, which the id of a case tells."""
    # The windows of tied values divide the input.
    size = {"output_size_1": "1", "tied_indices": "dividing"}.get(case, case.partition("_")[0])
    return {
        **({"output_size": size} if module.startswith("Adaptive") else {}),
        "memory_format": "channels_last" if "channels_last" in case else "contiguous",
        **({"return_indices": str("indices" in case)} if "MaxPool" in module else {}),
    }


def _spec(
    module: str, why: str, cases: dict[str, Case], cuda_dtypes: tuple[str, ...] = HALF, **declared: Any
) -> OpSpec:
    """Return the spec of a module, whose function has the same name, written otherwise."""
    return OpSpec(
        name=f"torch.nn.{module}",
        op=f"torch.nn.functional.{sub('(?<=[a-z])(?=[A-Z])', '_', module).lower()}",
        why=why,
        cases={case: replace(one, traits=_traits(module, case)) for case, one in cases.items()},
        cuda_dtypes=cuda_dtypes,
        **{"directions": BACKWARD} | declared,
    )


def _added(gradients: int) -> str:
    return f"up to {gradients} gradients added into each input element"


def _shared(windows: int, then: str = GRADIENTS) -> str:
    return f"up to {windows} windows share one maximum, {then}"


def _tied_case(dims: int, size: Any, equal: int) -> Case:
    """Return a case in which windows hold equal maxima."""
    provokes = f"about {equal} equal maxima in each window, of which the indices name one"
    return _case(_tied, dims, size, provokes, return_indices=True, directions=FORWARD)


def _adaptive(kind: str, dims: int) -> OpSpec:
    """Return the spec of one of AdaptiveAvgPool1d to AdaptiveMaxPool3d."""
    maximum = kind == "Max"
    draw, provokes = (_spiky, _shared) if maximum else (_smooth, _added)

    def larger(**options: Any) -> Case:
        return _case(draw, dims, lambda t: _side(t, dims, 3, 2), provokes(3**dims), **options)

    cases = {"larger_output": larger()}
    if dims > 1:
        cases["larger_output_channels_last"] = larger(channels_last=True)
    if dims == 2 and maximum:  # noqa: PLR2004
        cases["larger_output_indices"] = larger(return_indices=True)
    # Two gradients always commute.
    few = provokes(2**dims) if dims > 1 else ""
    cases["smaller_output"] = _case(draw, dims, lambda t: _side(t, dims, 3, 4), few)
    if maximum:
        # Side of the windows in which values out of three are tied.
        window = {1: 16, 2: 4, 3: 4}[dims]
        cases["tied_indices"] = _tied_case(dims, lambda t: _shape(t, dims)[-1] // window, window**dims // 3)
    else:
        # One window over everything: each element receives a single gradient.
        cases["output_size_1"] = _case(draw, dims, 1)
    cases["dividing_output"] = _case(draw, dims, lambda t: _shape(t, dims)[-1] // 4)
    overlap, source = "windows overlap", f"AdaptiveAveragePooling{'3d' if dims == 3 else ''}"  # noqa: PLR2004
    if maximum:
        overlap, source = "windows share maxima", f"AdaptiveMaxPooling{max(dims, 2)}d"
    return _spec(
        f"Adaptive{kind}Pool{dims}d",
        f"Where the output does not divide the input, {overlap}, and the CUDA backward adds their gradients "
        f"{'there ' if maximum else ''}with atomic additions ({KERNELS}/cuda/{source}.cu).",
        cases,
    )


def _maximum(dims: int, backward: str) -> OpSpec:
    """Return the spec of MaxPool2d or MaxPool3d."""

    def overlapping(then: str = GRADIENTS, **options: Any) -> Case:
        return _case(_spiky, dims, 3, _shared(3**dims, then), stride=1, **options)

    cases = {
        "overlapping": overlapping(),
        "overlapping_channels_last": overlapping(channels_last=True),
        "overlapping_indices": overlapping(NAMED, return_indices=True, directions=BOTH),
    }
    if dims == 3:  # noqa: PLR2004
        cases |= {
            "dilated": overlapping(dilation=2),
            "tied_indices": _tied_case(dims, 2, 3),
            "hollow_indices": Case(
                _hollow,
                "8 equal maxima in the window of a corner, 7 of them padded",
                directions=FORWARD,
                devices=CUDA,
            ),
        }
    else:
        cases["tied_indices"] = _tied_case(dims, 4, 5)
    cases["disjoint"] = _case(_spiky, dims, 2)
    why = f"Where windows share a maximum, {backward}"
    return _spec(f"MaxPool{dims}d", why, cases)


def _fractional(dims: int) -> OpSpec:
    """Return the spec of FractionalMaxPool2d or FractionalMaxPool3d."""

    def pooled(kernel: int, output: Callable[[int], int], provokes: str, **options: Any) -> Case:
        # The samples are given, so that the windows are inputs and not another source of chance.
        return _case(
            _spiky,
            dims,
            kernel,
            provokes,
            output_size=lambda t: output(_shape(t, dims)[-1]),
            _random_samples=lambda t: t.uniform(*_shape(t, dims)[:2], dims),
            **options,
        )

    def overlapping(then: str = GRADIENTS, **options: Any) -> Case:
        # Windows of 3 at steps of about 1.
        return pooled(3, lambda side: side - 3, _shared(3**dims, then), **options)

    cases = {
        "overlapping": overlapping(),
        "overlapping_indices": overlapping(NAMED, return_indices=True, directions=BOTH),
        "overlapping_channels_last": overlapping(channels_last=True),
        "disjoint": pooled(2, lambda side: side // 2, ""),
    }
    return _spec(
        f"FractionalMaxPool{dims}d",
        f"Where windows share a maximum, {ATOMIC} ({KERNELS}/cuda/FractionalMaxPool{dims}d.cu).",
        cases,
        ("float16",),
    )


def _unpool(dims: int) -> OpSpec:
    """Return the spec of MaxUnpool1d, MaxUnpool2d or MaxUnpool3d."""
    side_cuda = {1: 1 << 16, 2: 256, 3: 32}[dims]

    def duplicates(t: Inputs, *, channels_last: bool = False) -> Call:
        # CPU threads cut the values into equal parts. They meet in a plane if there is only one, and channels
        # last in each of them: https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/cpu/MaxUnpoolKernel.cpp
        on_cpu = (1, 16, 54) if channels_last else (1, 1, {1: 45056, 2: 212, 3: 36}[dims])
        batch, channels, side = t.size(cpu=on_cpu, cuda=(4, 4, side_cuda))
        shape = (batch, channels, *(side,) * dims)
        # The first places of each plane, a 16th as many as there are values.
        values, indices = t.values(*shape), t.index(*shape, high=side**dims // 16)
        if channels_last:
            values, indices = t.channels_last(values), t.channels_last(indices)
        # As large as the values on a CPU: what differs each time is digested each time.
        return call(t.leaf(values), indices, t.size(cpu=1, cuda=2))

    def real(t: Inputs) -> Call:
        shape = (*t.size(cpu=(1, 1), cuda=(4, 4)), *(2 * side_cuda,) * dims)
        values, indices = t.max_pool(t.normal(*shape), 2)
        return call(t.leaf(values), indices, 2)

    def volume(t: Inputs) -> Call:
        # In 3-D the kernel takes no channels last. On a CPU a single plane has such strides, in which threads meet all the time.
        batch, channels, side = t.size(cpu=(1, 1, 36), cuda=(4, 4, 32))
        size = (batch, side, side, side, channels)
        values, indices = t.values(*size), t.index(*size, high=side**3 // 16)
        return call(t.leaf(values.movedim(-1, 1)), indices.movedim(-1, 1), t.size(cpu=1, cuda=2))

    cases = {
        "duplicate_indices": Case(duplicates, PLACES),
        "duplicate_indices_dtypes": Case(
            duplicates, PLACES, dtypes=("float64", "float16"), directions=FORWARD
        ),
    }
    if dims > 1:
        last = volume if dims == 3 else lambda t: duplicates(t, channels_last=True)  # noqa: PLR2004
        cases["duplicate_indices_channels_last"] = Case(last, PLACES)
    # Disjoint windows: no place is written twice.
    cases["max_pool_indices"] = Case(real)
    why = (
        "Of several values with one index the last one written stays, and threads write in any order "
        f"({KERNELS}/cuda/MaxUnpooling.cu)."
    )
    return _spec(f"MaxUnpool{dims}d", why, cases, (), directions=BOTH)


ATOMIC = "the CUDA backward adds their gradients there with atomic additions"
SPECS: tuple[OpSpec, ...] = (
    _spec(
        "AvgPool3d",
        "Where windows overlap, the CUDA backward adds their gradients with atomic additions "
        f"({KERNELS}/cuda/AveragePool3d.cu).",
        {
            "overlapping": _case(_smooth, 3, 3, _added(8), stride=2),
            "overlapping_channels_last": _case(_smooth, 3, 3, _added(8), stride=2, channels_last=True),
            # A kernel of its own for kernel size 3, another one for stride 1.
            "stride_1": _case(_smooth, 3, 3, _added(27), stride=1),
            "padded": _case(_smooth, 3, 4, _added(8), stride=2, padding=1),
            "overlapping_small": _case(lambda t, _: t.normal(1, 2, 5, 5, 5), 3, 3, _added(27), stride=1),
            "disjoint": _case(_smooth, 3, 2),
        },
    ),
    *(_adaptive(kind, dims) for kind in ("Avg", "Max") for dims in (1, 2, 3)),
    _maximum(
        2,
        "their gradients are added there; channels last, the CUDA backward does so with atomic additions "
        f"({KERNELS}/cuda/DilatedMaxPool2d.cu), and else an input collects its own.",
    ),
    _maximum(3, f"{ATOMIC} ({KERNELS}/cuda/DilatedMaxPool3d.cu)."),
    *map(_fractional, (2, 3)),
    *map(_unpool, (1, 2, 3)),
)
