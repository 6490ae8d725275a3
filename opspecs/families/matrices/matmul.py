"""Matrix products: few results, each a sum of thousands of products that a library may split as it likes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from detmatrix.opspecs.batched import ITEMS, batched
from detmatrix.opspecs.inputs import Inputs
from detmatrix.opspecs.model import BOTH, Call, Case, OpSpec, call

if TYPE_CHECKING:
    import torch

WHY = (
    "cuBLAS may split a long sum between blocks and join the parts in any order, unless its workspace is "
    "configured (https://docs.nvidia.com/cuda/cublas/#results-reproducibility); on a single stream it repeats its bits."
)
ITEM_PRODUCTS = "512 products summed into each element (4096 on CUDA)"
PRODUCTS = "8192 products summed into each element (65536 on CUDA)"


def _long(t: Inputs, *batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Two operands that share a long dim: little comes out, from long sums."""
    side, inner = t.size(cpu=(16, 1 << 13), cuda=(128, 1 << 16))
    return t.leaf(t.normal(*batch, side, inner)), t.leaf(t.normal(*batch, inner, side))


def _broadcast(t: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch of two, and one operand for both."""
    side, inner = t.size(cpu=(16, 1 << 13), cuda=(128, 1 << 16))
    return t.leaf(t.normal(2, side, inner)), t.leaf(t.normal(inner, side))


def _thin(t: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
    """Few rows and uneven sides: two threads of a CPU group the sums of a row otherwise than one does."""
    rows, inner, columns = t.size(cpu=(5, 1 << 12, 129), cuda=(5, 1 << 16, 1025))
    return t.normal(rows, inner), t.normal(inner, columns)


def _square(t: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
    side = t.size(cpu=128, cuda=1 << 11)
    return t.leaf(t.normal(side, side)), t.leaf(t.normal(side, side))


def _outer(t: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
    """Two operands that share a dim of one: a product is an element, nothing is summed."""
    side = t.size(cpu=320, cuda=1 << 11)
    return t.normal(side, 1), t.normal(1, side)


def _vector(t: Inputs) -> Call:
    matrix, columns = _long(t)
    return call(matrix, columns[:, 0].contiguous())


def _added(t: Inputs) -> Call:
    one, other = _long(t)
    return call(t.leaf(t.normal(one.shape[0])), one, other)


def _items(t: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of a batch, and a weight that all of them are multiplied with."""
    inner, width = t.size(cpu=(512, 256), cuda=(4096, 4096))
    return t.leaf(t.normal(ITEMS, inner)), t.leaf(t.normal(inner, width))


def _layer(t: Inputs) -> Call:
    inner, width = t.size(cpu=(512, 256), cuda=(4096, 4096))
    shapes = ((ITEMS, inner), (width, inner), (width,))
    return call(*(t.leaf(t.normal(*shape)) for shape in shapes))


def _added_items(t: Inputs) -> Call:
    items, weight = _items(t)
    return call(t.leaf(t.normal(weight.shape[1])), items, weight)


def _mm_cases() -> dict[str, Case]:
    """Return the cases of a product of two matrices."""
    return {
        "long_sums": Case(lambda t: call(*_long(t)), PRODUCTS, directions=BOTH),
        "square": Case(
            lambda t: call(*_square(t)),
            "128 products summed into each element (2048 on CUDA)",
            directions=BOTH,
        ),
        "thin": Case(lambda t: call(*_thin(t)), "4096 products summed into each element (65536 on CUDA)"),
        "outer_product": Case(lambda t: call(*_outer(t))),
        "batch": batched(lambda t: call(*_items(t)), ITEM_PRODUCTS),
    }


def _distances(t: Inputs, p: float, compute_mode: str = "use_mm_for_euclid_dist_if_necessary") -> Call:
    # A CPU divides the dims among its threads, if there are many.
    points, dims = t.size(cpu=(64, 512), cuda=(1 << 11, 32), simulated=(64, 32))
    one, other = t.leaf(t.normal(points, dims)), t.leaf(t.normal(points, dims))
    return call(one, other, p=p, compute_mode=compute_mode)


DISTANCES = "64 gradients added into each point (2048 on CUDA)"
WITHOUT_MM = "donot_use_mm_for_euclid_dist"

SPECS: tuple[OpSpec, ...] = (
    OpSpec(name="torch.mm", why=WHY, cases=_mm_cases(), cuda_dtypes=("float16", "bfloat16")),
    OpSpec(
        name="torch.matmul",
        why=WHY,
        cases={
            "batched": Case(lambda t: call(*_long(t, 2)), PRODUCTS, directions=BOTH),
            # The gradient of what is shared sums over the batch.
            "broadcast": Case(lambda t: call(*_broadcast(t)), PRODUCTS, directions=BOTH),
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
            "long_sums": Case(_added, PRODUCTS, directions=BOTH),
            "batch": batched(_added_items, ITEM_PRODUCTS, {1: 0}),
        },
        cuda_dtypes=("float16", "bfloat16"),
    ),
    OpSpec(name="torch.nn.functional.linear", why=WHY, cases={"batch": batched(_layer, ITEM_PRODUCTS)}),
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
