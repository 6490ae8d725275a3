"""Pooling and unpooling: where windows overlap, the backward pass adds several gradients into one element.

Average pools do so for every element of an overlap, max pools for the maximum that windows share. Unpooling
writes instead of adding, and two equal indices race for one place.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, prod

from opspecs.inputs import Inputs
from opspecs.model import Call, Case, OpSpec, call

KERNELS = "https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/cuda"

PLACES = "about 16 different values written to each place"


def _shape(t: Inputs, dims: int) -> tuple[int, ...]:
    """Return ``(N, C, ...)`` of a pooled input: about 2**14 elements on a CPU, 2**22 on CUDA."""
    side = t.size(
        cpu={1: 2048, 2: 64, 3: 12}, cuda={1: 1 << 16, 2: 256, 3: 64}, simulated={1: 2048, 2: 64, 3: 10}
    )
    return (2, t.size(cpu=4, cuda={1: 32, 2: 32, 3: 8}[dims]), *(side[dims],) * dims)


def _smooth(t: Inputs, dims: int, *args: object, channels_last: bool = False, **kwargs: object) -> Call:
    """Pool normal values with the given arguments."""
    drawn = t.normal(*_shape(t, dims))
    return call(t.leaf(t.channels_last(drawn) if channels_last else drawn), *args, **kwargs)


def _spiky(t: Inputs, dims: int, *args: object, channels_last: bool = False, **kwargs: object) -> Call:
    """Pool values with a spike in every 64 or so: it is the maximum of each window that holds it."""
    drawn = t.spiky(*_shape(t, dims))
    return call(t.leaf(t.channels_last(drawn) if channels_last else drawn), *args, **kwargs)


def _tied(t: Inputs, dims: int, *args: object, **kwargs: object) -> Call:
    """Pool values out of {0, 1, 2}: nearly every window has several maxima, and an index to choose."""
    return call(t.leaf(t.integers(*_shape(t, dims), high=3)), *args, **kwargs)


def _hollow(t: Inputs) -> Call:
    """Pool values of which a corner is minus infinity, as what pads it is: no other element than a padded one is its maximum."""
    drawn = t.normal(1, 2, 6, 6, 6)
    drawn[..., :2, :2, :2] = -inf
    return call(drawn, 2, stride=2, padding=1, return_indices=True)


def _side(t: Inputs, dims: int, numerator: int, denominator: int = 1) -> int:
    """Return that fraction of the input's side, and one more, so that neither divides the other."""
    return _shape(t, dims)[-1] * numerator // denominator + 1


def _with(cases: dict[str, Case], *names: str) -> dict[str, Case]:
    """Return cases with the traits of these names, which their ids tell."""
    return {case: replace(declared, traits=_traits(case, names)) for case, declared in cases.items()}


def _traits(case: str, names: tuple[str, ...]) -> dict[str, str]:
    fields = {
        "memory_format": "channels_last" if "channels_last" in case else "contiguous",
        "return_indices": str("indices" in case),
        # The windows of tied values divide the input.
        "output_size": {"output_size_1": "1", "tied_indices": "dividing"}.get(case, case.partition("_")[0]),
    }
    return {name: fields[name] for name in names}


def _adaptive_average_cases(dims: int) -> dict[str, Case]:
    """Return the cases AdaptiveAvgPool1d to AdaptiveAvgPool3d share."""
    larger = f"up to {3**dims} gradients added into each input element"
    cases = {"larger_output": Case(inputs=lambda t: _smooth(t, dims, _side(t, dims, 3, 2)), provokes=larger)}
    if dims > 1:
        cases["larger_output_channels_last"] = Case(
            inputs=lambda t: _smooth(t, dims, _side(t, dims, 3, 2), channels_last=True), provokes=larger
        )
    return cases | {
        # Two gradients always commute.
        "smaller_output": Case(
            inputs=lambda t: _smooth(t, dims, _side(t, dims, 3, 4)),
            provokes=f"up to {2**dims} gradients added into each input element" if dims > 1 else "",
        ),
        # One window over everything: each element receives a single gradient.
        "output_size_1": Case(inputs=lambda t: _smooth(t, dims, 1)),
        "dividing_output": Case(inputs=lambda t: _smooth(t, dims, _shape(t, dims)[-1] // 4)),
    }


def _adaptive_maximum(dims: int) -> OpSpec:
    """Return the spec of one of AdaptiveMaxPool1d to AdaptiveMaxPool3d."""
    larger = f"up to {3**dims} windows share one maximum, and their gradients are added there"
    # Side of the windows in which values out of three are tied.
    window = {1: 16, 2: 4, 3: 4}[dims]
    cases = {"larger_output": Case(inputs=lambda t: _spiky(t, dims, _side(t, dims, 3, 2)), provokes=larger)}
    if dims > 1:
        cases["larger_output_channels_last"] = Case(
            inputs=lambda t: _spiky(t, dims, _side(t, dims, 3, 2), channels_last=True), provokes=larger
        )
    if dims == 2:  # noqa: PLR2004
        cases["larger_output_indices"] = Case(
            inputs=lambda t: _spiky(t, dims, _side(t, dims, 3, 2), return_indices=True), provokes=larger
        )
    cases |= {
        # Two gradients always commute.
        "smaller_output": Case(
            inputs=lambda t: _spiky(t, dims, _side(t, dims, 3, 4)),
            provokes=f"up to {2**dims} windows share one maximum, and their gradients are added there"
            if dims > 1
            else "",
        ),
        "tied_indices": Case(
            inputs=lambda t: _tied(t, dims, _shape(t, dims)[-1] // window, return_indices=True),
            provokes=f"about {window**dims // 3} equal maxima in each window, of which the indices name one",
            directions=("forward",),
        ),
        "dividing_output": Case(inputs=lambda t: _spiky(t, dims, _shape(t, dims)[-1] // 4)),
    }
    return OpSpec(
        name=f"torch.nn.AdaptiveMaxPool{dims}d",
        op=f"torch.nn.functional.adaptive_max_pool{dims}d",
        why="Where the output does not divide the input, windows share maxima, and the CUDA backward adds their "
        f"gradients there with atomic additions ({KERNELS}/AdaptiveMaxPooling{max(dims, 2)}d.cu).",
        directions=("backward",),
        cases=_with(cases, "output_size", "memory_format", "return_indices"),
        cuda_dtypes=("float16", "bfloat16"),
    )


def _fractional(
    t: Inputs, dims: int, kernel: int, output: int, *, channels_last: bool = False, **kwargs: object
) -> Call:
    """Pool with given random samples, so that the windows are inputs and not another source of chance."""
    shape = _shape(t, dims)
    samples = t.uniform(*shape[:2], dims)
    drawn = t.spiky(*shape)
    image = t.leaf(t.channels_last(drawn) if channels_last else drawn)
    return call(image, kernel, output_size=output, _random_samples=samples, **kwargs)


def _fractional_cases(dims: int) -> dict[str, Case]:
    """Return the cases FractionalMaxPool2d and FractionalMaxPool3d share."""
    return {
        # Windows of 3 at steps of about 1.
        "overlapping": Case(
            inputs=lambda t: _fractional(t, dims, 3, _shape(t, dims)[-1] - 3),
            provokes=f"up to {3**dims} windows share one maximum, and their gradients are added there",
        ),
        "overlapping_indices": Case(
            inputs=lambda t: _fractional(t, dims, 3, _shape(t, dims)[-1] - 3, return_indices=True),
            provokes=f"up to {3**dims} windows share one maximum, and name it in the indices",
            directions=("forward", "backward"),
        ),
        "overlapping_channels_last": Case(
            inputs=lambda t: _fractional(t, dims, 3, _shape(t, dims)[-1] - 3, channels_last=True),
            provokes=f"up to {3**dims} windows share one maximum, and their gradients are added there",
        ),
        "disjoint": Case(inputs=lambda t: _fractional(t, dims, 2, _shape(t, dims)[-1] // 2)),
    }


def _unpool(dims: int) -> OpSpec:
    """Return the spec of MaxUnpool1d, MaxUnpool2d or MaxUnpool3d."""

    def shape(t: Inputs, *, channels_last: bool = False) -> tuple[int, ...]:
        # CPU threads cut the values into equal parts. They meet in a plane if there is only one, and channels
        # last in each of them: https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/cpu/MaxUnpoolKernel.cpp
        batch, channels, side = t.size(
            cpu=(1, 16, 54) if channels_last else (1, 1, {1: 45056, 2: 212, 3: 36}[dims]),
            cuda=(4, 4, {1: 1 << 16, 2: 256, 3: 32}[dims]),
        )
        return (batch, channels, *(side,) * dims)

    def duplicates(t: Inputs, *, channels_last: bool = False) -> Call:
        # The first places of each plane, a 16th as many as there are values.
        drawn = shape(t, channels_last=channels_last)
        values, indices = t.values(*drawn), t.index(*drawn, high=prod(drawn[2:]) // 16)
        if channels_last:
            values, indices = t.channels_last(values), t.channels_last(indices)
        # As large as the values on a CPU: what differs each time is digested each time.
        return call(t.leaf(values), indices, t.size(cpu=1, cuda=2))

    def real(t: Inputs) -> Call:
        batch, channels = t.size(cpu=(1, 1), cuda=(4, 4))
        side = 2 * {1: 1 << 16, 2: 256, 3: 32}[dims]
        values, indices = t.max_pool(t.normal(batch, channels, *(side,) * dims), 2)
        return call(t.leaf(values), indices, 2)

    def volume(t: Inputs) -> Call:
        # In 3-D the kernel takes no channels last. On a CPU a single plane has such strides, in which threads meet all the time.
        batch, channels, side = t.size(cpu=(1, 1, 36), cuda=(4, 4, 32))
        size = (batch, side, side, side, channels)
        values, indices = t.values(*size), t.index(*size, high=side**3 // 16)
        return call(t.leaf(values.movedim(-1, 1)), indices.movedim(-1, 1), t.size(cpu=1, cuda=2))

    cases = {
        "duplicate_indices": Case(inputs=duplicates, provokes=PLACES),
        "duplicate_indices_dtypes": Case(
            inputs=duplicates, provokes=PLACES, dtypes=("float64", "float16"), directions=("forward",)
        ),
    }
    if dims > 1:
        last = volume if dims == 3 else lambda t: duplicates(t, channels_last=True)  # noqa: PLR2004
        cases["duplicate_indices_channels_last"] = Case(inputs=last, provokes=PLACES)
    # Disjoint windows: no place is written twice.
    cases["max_pool_indices"] = Case(inputs=real)
    return OpSpec(
        name=f"torch.nn.MaxUnpool{dims}d",
        op=f"torch.nn.functional.max_unpool{dims}d",
        why="Of several values with one index the last one written stays, and threads write in any order "
        f"({KERNELS}/MaxUnpooling.cu).",
        cases=_with(cases, "memory_format"),
        directions=("forward", "backward"),
    )


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        name="torch.nn.AvgPool3d",
        op="torch.nn.functional.avg_pool3d",
        why="Where windows overlap, the CUDA backward adds their gradients with atomic additions "
        f"({KERNELS}/AveragePool3d.cu).",
        directions=("backward",),
        cases=_with(
            {
                "overlapping": Case(
                    inputs=lambda t: _smooth(t, 3, 3, stride=2),
                    provokes="up to 8 gradients added into each input element",
                ),
                "overlapping_channels_last": Case(
                    inputs=lambda t: _smooth(t, 3, 3, stride=2, channels_last=True),
                    provokes="up to 8 gradients added into each input element",
                ),
                # A kernel of its own for kernel size 3, another one for stride 1.
                "stride_1": Case(
                    inputs=lambda t: _smooth(t, 3, 3, stride=1),
                    provokes="up to 27 gradients added into each input element",
                ),
                "padded": Case(
                    inputs=lambda t: _smooth(t, 3, 4, stride=2, padding=1),
                    provokes="up to 8 gradients added into each input element",
                ),
                "overlapping_small": Case(
                    inputs=lambda t: call(t.leaf(t.normal(1, 2, 5, 5, 5)), 3, stride=1),
                    provokes="up to 27 gradients added into each input element",
                ),
                "disjoint": Case(inputs=lambda t: _smooth(t, 3, 2)),
            },
            "memory_format",
        ),
        cuda_dtypes=("float16", "bfloat16"),
    ),
    *(
        OpSpec(
            name=f"torch.nn.AdaptiveAvgPool{dims}d",
            op=f"torch.nn.functional.adaptive_avg_pool{dims}d",
            why="Where the output does not divide the input, windows overlap, and the CUDA backward adds their "
            f"gradients with atomic additions ({KERNELS}/{source}).",
            directions=("backward",),
            cases=_with(_adaptive_average_cases(dims), "output_size", "memory_format"),
            cuda_dtypes=("float16", "bfloat16"),
        )
        for dims, source in (
            (1, "AdaptiveAveragePooling.cu"),
            (2, "AdaptiveAveragePooling.cu"),
            (3, "AdaptiveAveragePooling3d.cu"),
        )
    ),
    *(_adaptive_maximum(dims) for dims in (1, 2, 3)),
    OpSpec(
        name="torch.nn.MaxPool2d",
        op="torch.nn.functional.max_pool2d",
        why="Where windows share a maximum, their gradients are added there; channels last, the CUDA backward does "
        f"so with atomic additions ({KERNELS}/DilatedMaxPool2d.cu), and else an input collects its own.",
        directions=("backward",),
        cases=_with(
            {
                "overlapping": Case(
                    inputs=lambda t: _spiky(t, 2, 3, stride=1),
                    provokes="up to 9 windows share one maximum, and their gradients are added there",
                ),
                "overlapping_channels_last": Case(
                    inputs=lambda t: _spiky(t, 2, 3, stride=1, channels_last=True),
                    provokes="up to 9 windows share one maximum, and their gradients are added there",
                ),
                "overlapping_indices": Case(
                    inputs=lambda t: _spiky(t, 2, 3, stride=1, return_indices=True),
                    provokes="up to 9 windows share one maximum, and name it in the indices",
                    directions=("forward", "backward"),
                ),
                "tied_indices": Case(
                    inputs=lambda t: _tied(t, 2, 4, return_indices=True),
                    provokes="about 5 equal maxima in each window, of which the indices name one",
                    directions=("forward",),
                ),
                "disjoint": Case(inputs=lambda t: _spiky(t, 2, 2)),
            },
            "memory_format",
            "return_indices",
        ),
        cuda_dtypes=("float16", "bfloat16"),
    ),
    OpSpec(
        name="torch.nn.MaxPool3d",
        op="torch.nn.functional.max_pool3d",
        why="Where windows share a maximum, the CUDA backward adds their gradients there with atomic additions "
        f"({KERNELS}/DilatedMaxPool3d.cu).",
        directions=("backward",),
        cases=_with(
            {
                "overlapping": Case(
                    inputs=lambda t: _spiky(t, 3, 3, stride=1),
                    provokes="up to 27 windows share one maximum, and their gradients are added there",
                ),
                "overlapping_channels_last": Case(
                    inputs=lambda t: _spiky(t, 3, 3, stride=1, channels_last=True),
                    provokes="up to 27 windows share one maximum, and their gradients are added there",
                ),
                "overlapping_indices": Case(
                    inputs=lambda t: _spiky(t, 3, 3, stride=1, return_indices=True),
                    provokes="up to 27 windows share one maximum, and name it in the indices",
                    directions=("forward", "backward"),
                ),
                "dilated": Case(
                    inputs=lambda t: _spiky(t, 3, 3, stride=1, dilation=2),
                    provokes="up to 27 windows share one maximum, and their gradients are added there",
                ),
                "tied_indices": Case(
                    inputs=lambda t: _tied(t, 3, 2, return_indices=True),
                    provokes="about 3 equal maxima in each window, of which the indices name one",
                    directions=("forward",),
                ),
                "hollow_indices": Case(
                    inputs=_hollow,
                    provokes="8 equal maxima in the window of a corner, 7 of them padded",
                    directions=("forward",),
                    devices=("cuda",),
                ),
                "disjoint": Case(inputs=lambda t: _spiky(t, 3, 2)),
            },
            "memory_format",
            "return_indices",
        ),
        cuda_dtypes=("float16", "bfloat16"),
    ),
    OpSpec(
        name="torch.nn.FractionalMaxPool2d",
        op="torch.nn.functional.fractional_max_pool2d",
        why="Where windows share a maximum, the CUDA backward adds their gradients there with atomic additions "
        f"({KERNELS}/FractionalMaxPool2d.cu).",
        directions=("backward",),
        cases=_with(_fractional_cases(2), "memory_format", "return_indices"),
        cuda_dtypes=("float16",),
    ),
    OpSpec(
        name="torch.nn.FractionalMaxPool3d",
        op="torch.nn.functional.fractional_max_pool3d",
        why="Where windows share a maximum, the CUDA backward adds their gradients there with atomic additions "
        f"({KERNELS}/FractionalMaxPool3d.cu).",
        directions=("backward",),
        cases=_with(_fractional_cases(3), "memory_format", "return_indices"),
        cuda_dtypes=("float16",),
    ),
    _unpool(1),
    _unpool(2),
    _unpool(3),
)
