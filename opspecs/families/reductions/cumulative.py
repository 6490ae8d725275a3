"""Prefix sums and products: every output joins all that stand before it, so blocks must be joined in some order.

CUDA scans a 1-D tensor with another kernel than the rows or columns of an N-D one, hence the shapes.
"""

from __future__ import annotations

from detmatrix.opspecs.families import KERNELS
from detmatrix.opspecs.inputs import Inputs
from detmatrix.opspecs.model import BOTH, CUDA, HALF, Call, Case, OpSpec, Tensor, call, each, with_dtypes

# Said of the CPU.
ONE_ROW = "On a CPU one thread goes through a row, so that a tensor of one dim is scanned by one thread."


def _flat(t: Inputs) -> Call:
    """One long sum of values between 1e-3 and 1e3, so that every association rounds elsewhere."""
    return call(t.leaf(t.mixed(t.size(cpu=1 << 18, cuda=1 << 20, simulated=1 << 16))), 0)


def _factors(t: Inputs, *shape: int) -> Tensor:
    """Draw values so near to 1 that the product of a million stays in range."""
    return t.uniform(*shape, low=0.999, high=1.001)


def _along(dim: int, shape: tuple[int, ...], cuda_shape: tuple[int, ...]) -> Case:
    """Return a case that sums a tensor along one of its dims."""
    return Case(
        lambda t: call(t.leaf(t.normal(*t.size(cpu=shape, cuda=cuda_shape))), dim),
        f"sums of up to {shape[dim]} values ({cuda_shape[dim]} on CUDA)",
        directions=BOTH,
        traits={"dims": f"{len(shape)}-D"},
    )


PRODUCTS = "products of up to 65536 values (1048576 on CUDA)"
EXPONENTIALS = "sums of up to 16384 exponentials (1048576 on CUDA)"


def _flat_product(t: Inputs) -> Call:
    return call(t.leaf(_factors(t, t.size(cpu=1 << 16, cuda=1 << 20))), 0)


def _flat_exponentials(t: Inputs) -> Call:
    return call(t.leaf(t.normal(t.size(cpu=1 << 14, cuda=1 << 20))), 0)


def _drawn(t: Inputs) -> Call:
    """Ask for 64 numbers of each of several distributions."""
    return call(t.uniform(8, t.size(cpu=1 << 10, cuda=1 << 16, simulated=1 << 8)), 64)


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        name="torch.cumsum",
        why="A long 1-D scan is cut into blocks, and which predecessors a block finds summed already depends on timing "
        f"({KERNELS}/cuda/ScanUtils.cuh). {ONE_ROW}",
        cases={
            **each(
                {
                    "flat": Case(
                        _flat,
                        "sums of up to 262144 values (1048576 on CUDA) of mixed magnitude",
                        directions=BOTH,
                        dtypes=("float32", "float64", "complex64"),
                    ),
                    "flat_wide": Case(
                        _flat,
                        "sums of up to 1048576 values of mixed magnitude",
                        dtypes=("complex128",),
                        devices=CUDA,
                    ),
                    # Normal values: mixed ones would leave the range of float16.
                    "flat_half": Case(
                        lambda t: call(t.normal(t.size(cpu=1 << 15, cuda=1 << 20)), 0),
                        "sums of up to 1048576 values",
                        dtypes=HALF,
                        devices=CUDA,
                    ),
                    # Integer addition is associative: blocks may be joined in any order.
                    "flat_integers": Case(
                        lambda t: call(t.values(t.size(cpu=1 << 17, cuda=1 << 20)), 0),
                        dtypes=("int32", "int64"),
                    ),
                    "flat_small": Case(
                        lambda t: call(t.normal(t.size(cpu=10_000, cuda=10_000, simulated=1 << 15)), 0),
                        "sums of up to 10000 values",
                        devices=CUDA,
                    ),
                },
                traits={"dims": "1-D"},
            ),
            "long_rows": _along(1, (8, 1 << 14), (8, 1 << 18)),
            "many_rows": _along(1, (1 << 10, 128), (1 << 16, 128)),
            "columns": _along(0, (1 << 10, 128), (1 << 12, 128)),
            "middle": _along(1, (8, 256, 64), (32, 1 << 12, 64)),
        },
    ),
    OpSpec(
        name="torch.cumprod",
        why="A long 1-D scan is cut into blocks, which must be joined in some order "
        f"({KERNELS}/cuda/ScanUtils.cuh). {ONE_ROW}",
        cases={
            **with_dtypes("long_flat", Case(_flat_product, PRODUCTS, directions=BOTH), ("float64",), "cuda"),
            "flat_integers": Case(
                # Odd ones: of even ones the product soon is zero.
                lambda t: call(2 * t.values(t.size(cpu=1 << 15, cuda=1 << 20)) + 1, 0),
                dtypes=("int64",),
            ),
            "longer_rows": Case(
                lambda t: call(t.leaf(_factors(t, *t.size(cpu=(8, 1 << 14), cuda=(8, 1 << 18)))), 1),
                "products of up to 16384 values (262144 on CUDA)",
                directions=BOTH,
                dtypes=("float32", "float64"),
            ),
        },
    ),
    OpSpec(
        name="torch.logcumsumexp",
        why=f"A long 1-D scan is cut into blocks, which must be joined in some order ({KERNELS}/cuda/LogcumsumexpKernel.cu). "
        f"{ONE_ROW}",
        cases={
            **with_dtypes(
                "flat", Case(_flat_exponentials, EXPONENTIALS, directions=BOTH), ("float64",), "cuda"
            ),
            "longer_rows": Case(
                lambda t: call(t.leaf(t.normal(*t.size(cpu=(8, 5000), cuda=(8, 1 << 18)))), 1),
                "sums of up to 5000 exponentials (262144 on CUDA)",
                directions=BOTH,
                dtypes=("float32", "float64"),
            ),
        },
    ),
    OpSpec(
        name="torch.multinomial",
        why="With replacement it looks up the numbers that it draws in prefix sums of the probabilities "
        f"({KERNELS}/cuda/MultinomialKernel.cu); without, it takes the largest quotients. On a CPU one thread draws.",
        cases={
            "replacement": Case(
                lambda t: call(*_drawn(t).args, replacement=True),
                "prefix sums of 1024 probabilities (65536 on CUDA)",
            ),
            "no_replacement": Case(_drawn),
        },
        cuda_dtypes=("float64",),
    ),
)
