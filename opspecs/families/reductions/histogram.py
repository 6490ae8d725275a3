"""Histograms: many values counted in few bins.

Counting adds ones, and sums of ones are exact in any order until a count outgrows the dtype's digits; so the
race, and the alert, leave a trace only where a bin holds more than 2**24 float32 counts.
"""

from __future__ import annotations

from detmatrix.opspecs.families import KERNELS
from detmatrix.opspecs.inputs import Inputs
from detmatrix.opspecs.model import CUDA, FLOATS, Call, Case, OpSpec, call, each


def _counted(t: Inputs, bins: int, *, cpu: int = 1 << 15, cuda: int = 1 << 20) -> Call:
    """Count values spread evenly over all bins; in integers for an integer dtype."""
    length = t.size(cpu=cpu, cuda=cuda)
    floating = t.dtype.is_floating_point
    drawn = t.uniform(length, high=float(bins)) if floating else t.integers(length, high=bins)
    return call(drawn, bins, 0, bins)


def _one_each(t: Inputs) -> Call:
    bins = t.size(cpu=1 << 14, cuda=1 << 16)
    return call(t.permutation(bins).to(t.dtype), bins, 0, bins)


def _many(t: Inputs) -> int:
    return t.size(cpu=1 << 14, cuda=1 << 20)


def _weighed(t: Inputs, bins: int) -> Call:
    values = _many(t)
    return call(t.index(values, high=bins), t.normal(values))


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        name="torch.histc",
        why="On CUDA every value is counted with an atomic addition, in the order in which threads arrive "
        f"({KERNELS}/cuda/SummaryOps.cu).",
        cases={
            "few_bins": Case(
                lambda t: _counted(t, 4), "about 8192 counts into each of 4 bins (262144 on CUDA)"
            ),
            "many_bins": Case(
                lambda t: _counted(t, 1000), "about 32 counts into each of 1000 bins (1048 on CUDA)"
            ),
            "inexact_counts": Case(
                lambda t: _counted(t, 2, cuda=1 << 26),
                "16384 counts into each of 2 bins (on CUDA 33554432, more than float32 counts exactly)",
                dtypes=("float32",),
            ),
            "small": Case(lambda t: _counted(t, 4, cpu=256, cuda=256), "about 64 counts into each of 4 bins"),
            "one_value_per_bin": Case(_one_each),
        },
        dtypes=("float32", "float64"),
        # A CPU counts floating-point values only.
        cuda_dtypes=("int32", "int64"),
    ),
    OpSpec(
        name="torch.bincount",
        why="On CUDA every value is counted, and every weight added, with an atomic addition, in the order in which threads "
        f"arrive ({KERNELS}/cuda/SummaryOps.cu). On a CPU one thread counts, in a loop over the values "
        f"({KERNELS}/SummaryOps.cpp).",
        cases={
            **each(
                {
                    "weights": Case(
                        lambda t: _weighed(t, 64),
                        "about 256 weights added into each of 64 bins (16384 on CUDA)",
                        dtypes=FLOATS,
                    ),
                    "weights_many_bins": Case(
                        lambda t: _weighed(t, 1000),
                        "about 1048 weights added into each of 1000 bins",
                        devices=CUDA,
                    ),
                    "weights_small": Case(
                        lambda t: call(t.index(256, high=4), t.normal(256)),
                        "about 64 weights added into each of 4 bins",
                        devices=CUDA,
                    ),
                    # Sums of few integers are exact in any order.
                    "weights_integral": Case(
                        lambda t: call(t.index(_many(t), high=64), t.integers(_many(t), high=8)),
                        dtypes=("float32", "int64"),
                    ),
                    "weights_one_each": Case(lambda t: call(t.permutation(_many(t)), t.normal(_many(t)))),
                },
                traits={"weights": "given"},
            ),
            **each(
                {
                    "counts": Case(lambda t: call(t.integers(_many(t), high=64)), dtypes=("int64", "uint8")),
                    "counts_minlength": Case(
                        lambda t: call(t.integers(_many(t), high=2), minlength=1 << 14), dtypes=("int64",)
                    ),
                },
                traits={"weights": "none"},
            ),
        },
    ),
)
