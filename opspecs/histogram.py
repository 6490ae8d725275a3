"""Histograms: many values counted in few bins.

Counting adds ones, and sums of ones are exact in any order until a count outgrows the dtype's digits; so the
race, and the alert, leave a trace only where a bin holds more than 2**24 float32 counts.
"""

from __future__ import annotations

from opspecs.inputs import Inputs
from opspecs.model import Call, Case, OpSpec, call


def _counted(t: Inputs, length: int, bins: int) -> Call:
    """Count values spread evenly over all bins; in integers for an integer dtype."""
    if t.dtype.is_floating_point:
        drawn = t.uniform(length, high=float(bins))
    else:
        drawn = t.integers(length, high=bins)
    return call(drawn, bins, 0, bins)


def _one_each(t: Inputs) -> Call:
    bins = t.size(cpu=1 << 14, cuda=1 << 16)
    return call(t.permutation(bins).to(t.dtype), bins, 0, bins)


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        name="torch.histc",
        op="torch.histc",
        why="On CUDA every value is counted with an atomic addition, in the order in which threads arrive "
        "(https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/cuda/SummaryOps.cu).",
        cases={
            "few_bins": Case(
                inputs=lambda t: _counted(t, t.size(cpu=1 << 15, cuda=1 << 20), 4),
                provokes="about 8192 counts into each of 4 bins (262144 on CUDA)",
            ),
            "many_bins": Case(
                inputs=lambda t: _counted(t, t.size(cpu=1 << 15, cuda=1 << 20), 1000),
                provokes="about 32 counts into each of 1000 bins (1048 on CUDA)",
            ),
            "inexact_counts": Case(
                inputs=lambda t: _counted(t, t.size(cpu=1 << 15, cuda=1 << 26), 2),
                provokes="16384 counts into each of 2 bins (on CUDA 33554432, more than float32 counts exactly)",
                dtypes=("float32",),
            ),
            "one_value_per_bin": Case(inputs=_one_each),
        },
        dtypes=("float32", "float64"),
        # A CPU counts floating-point values only.
        cuda_dtypes=("int32", "int64"),
    ),
)
