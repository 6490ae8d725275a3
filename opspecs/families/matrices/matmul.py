"""Matrix products: few results, each a sum of thousands of products that a library may split as it likes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from detmatrix.opspecs.families import normals
from detmatrix.opspecs.inputs import Inputs
from detmatrix.opspecs.model import BOTH, ITEMS, Call, Case, OpSpec, batched, call

WHY = (
    "cuBLAS may split a long sum between blocks and join the parts in any order, unless its workspace is "
    "configured (https://docs.nvidia.com/cuda/cublas/#results-reproducibility); on a single stream it repeats its bits."
)
ITEM_PRODUCTS = "512 products summed into each element (4096 on CUDA)"
PRODUCTS = "8192 products summed into each element (65536 on CUDA)"


LONG, ITEM_SIZES = {"cpu": (16, 1 << 13), "cuda": (128, 1 << 16)}, {"cpu": (512, 256), "cuda": (4096, 4096)}
# Two operands that share a long dim: little comes out, from long sums.
_long = normals(lambda side, inner: ((side, inner), (inner, side)), **LONG)
# Rows of a batch, and a weight that all of them are multiplied with.
_items = normals(lambda inner, width: ((ITEMS, inner), (inner, width)), **ITEM_SIZES)


def _vector(t: Inputs) -> Call:
    matrix, columns = _long(t).args
    return call(matrix, columns[:, 0].contiguous())


def _added(t: Inputs, product: Callable[[Inputs], Call]) -> Call:
    """Add a row to a product."""
    one, other = product(t).args
    return call(t.leaf(t.normal(other.shape[1])), one, other)


def _distances(t: Inputs, p: float, compute_mode: str = "use_mm_for_euclid_dist_if_necessary") -> Call:
    # A CPU divides the dims among its threads, if there are many.
    points, dims = t.size(cpu=(64, 512), cuda=(1 << 9, 32), simulated=(64, 32))
    one, other = t.leaf(t.normal(points, dims)), t.leaf(t.normal(points, dims))
    return call(one, other, p=p, compute_mode=compute_mode)


DISTANCES = "64 gradients added into each point (512 on CUDA)"
WITHOUT_MM = "donot_use_mm_for_euclid_dist"

SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        name="torch.mm",
        why=WHY,
        cases={
            "long_sums": Case(_long, PRODUCTS, directions=BOTH),
            "square": Case(
                normals(lambda side: ((side, side), (side, side)), cpu=(128,), cuda=(1 << 11,)),
                "128 products summed into each element (2048 on CUDA)",
                directions=BOTH,
            ),
            # Few rows and uneven sides: two threads of a CPU group the sums of a row otherwise than one does.
            "thin": Case(
                normals(
                    lambda rows, inner, columns: ((rows, inner), (inner, columns)),
                    cpu=(5, 1 << 12, 129),
                    cuda=(5, 1 << 16, 1025),
                ),
                "4096 products summed into each element (65536 on CUDA)",
            ),
            # Two operands that share a dim of one: a product is an element, nothing is summed.
            "outer_product": Case(normals(lambda side: ((side, 1), (1, side)), cpu=(320,), cuda=(1 << 11,))),
            "batch": batched(_items, ITEM_PRODUCTS),
        },
        cuda_dtypes=("float16", "bfloat16"),
    ),
    OpSpec(
        name="torch.matmul",
        why=WHY,
        cases={
            "batched": Case(
                normals(lambda side, inner: ((2, side, inner), (2, inner, side)), **LONG),
                PRODUCTS,
                directions=BOTH,
            ),
            # A batch of two, and one operand for both: its gradient sums over the batch.
            "broadcast": Case(
                normals(lambda side, inner: ((2, side, inner), (inner, side)), **LONG),
                PRODUCTS,
                directions=BOTH,
            ),
        },
        cuda_dtypes=("float16", "bfloat16"),
    ),
    OpSpec(
        name="torch.mv",
        why=f"{WHY} On a CPU one thread multiplies, however large the matrix.",
        cases={"long_sums": Case(_vector, PRODUCTS)},
        cuda_dtypes=("float16",),
    ),
    OpSpec(
        name="torch.addmm",
        why=WHY,
        cases={
            "long_sums": Case(partial(_added, product=_long), PRODUCTS, directions=BOTH),
            "batch": batched(partial(_added, product=_items), ITEM_PRODUCTS, {1: 0}),
        },
        cuda_dtypes=("float16", "bfloat16"),
    ),
    OpSpec(
        name="torch.nn.functional.linear",
        why=WHY,
        cases={
            "batch": batched(
                normals(lambda inner, width: ((ITEMS, inner), (width, inner), (width,)), **ITEM_SIZES),
                ITEM_PRODUCTS,
            )
        },
    ),
    OpSpec(
        name="torch.cdist",
        why="The CUDA backward joins the gradients that a point receives from all others.",
        directions=("backward",),
        cases={
            "euclidean_mm_wide": Case(lambda t: _distances(t, 2.0), DISTANCES, directions=BOTH),
            "euclidean_wide": Case(lambda t: _distances(t, 2.0, WITHOUT_MM), DISTANCES),
            "manhattan_wide": Case(lambda t: _distances(t, 1.0), DISTANCES),
            "chebyshev_wide": Case(lambda t: _distances(t, float("inf")), DISTANCES),
        },
    ),
)
