"""Sparse operands: products of few stored elements, summed row by row in an order of the library's choice."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import TYPE_CHECKING

from detmatrix.opspecs.families import KERNELS, normals
from detmatrix.opspecs.inputs import Inputs
from detmatrix.opspecs.model import BACKWARD, BOTH, FLOATS, ITEMS, Call, Case, OpSpec, batched, call, each

if TYPE_CHECKING:
    import torch


# Said of the CPU.
ONE_THREAD = (
    "On a CPU one thread goes through the stored elements of a matrix in COO layout (SparseTensorMath.cpp)."
)
SPARSE_DENSE = {"layout": "sparse-dense"}
DENSE_GRADIENTS = "about 8 products summed into each element (32 on CUDA)"
PRODUCTS = "about 64 products summed into each element (256 on CUDA)"


def _operands(t: Inputs, *batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw a sparse matrix, of which every 8th element is stored, and a wide dense one."""
    rows, inner, columns = t.size(cpu=(64, 512, 32), cuda=(256, 2048, 128))
    stored = prod(batch) * rows * inner // 8
    return t.coo(*batch, rows, inner, stored=stored), t.normal(*batch, inner, columns)


def _product(t: Inputs, *batch: int, leaf: str = "") -> Call:
    sparse, dense = _operands(t, *batch)
    return call(t.leaf(sparse) if leaf == "sparse" else sparse, t.leaf(dense) if leaf == "dense" else dense)


def _rows_product(t: Inputs, *, leaf: bool = False) -> Call:
    """Multiply a matrix stored by rows (CSR)."""
    sparse, dense = _operands(t)
    return call(sparse.to_sparse_csr(), t.leaf(dense) if leaf else dense)


def _dense(batch: int, side: int, inner: int) -> tuple[tuple[int, ...], ...]:
    return (batch, side, inner), (batch, inner, side)


def _added(t: Inputs) -> Call:
    sparse, dense = _operands(t)
    return call(t.normal(sparse.shape[0], dense.shape[1]), sparse, dense)


def _repeated(t: Inputs) -> Call:
    """Draw a matrix that stores each of its elements about 16 times, to be summed."""
    # A CPU sorts more than 32768 places in two threads.
    stored, side = t.size(cpu=(40_000, 50), cuda=(1 << 20, 256))
    return call(t.coo(side, side, stored=stored, repeated=True))


def _transposed(t: Inputs) -> Call:
    """Draw a matrix that stores no element twice, by columns: one in order already would come back with its bits."""
    return call(_operands(t)[0].t()._coalesced_(False))


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        name="torch.bmm",
        why="cuSPARSE sums the products of a sparse row, and cuBLAS those of a dense one, in an order of its own "
        f"({KERNELS}/sparse/cuda/SparseBlas.cpp). {ONE_THREAD}",
        cases={
            "sparse_dense": Case(lambda t: _product(t, 4), PRODUCTS, traits=SPARSE_DENSE, dtypes=FLOATS),
            **each(
                {
                    "sparse_dense_grad": Case(lambda t: _product(t, 4, leaf="dense"), DENSE_GRADIENTS),
                    "sparse_dense_sparse_grad": Case(
                        lambda t: _product(t, 4, leaf="sparse"),
                        "32 products summed into each element (128 on CUDA)",
                    ),
                },
                directions=BACKWARD,
                traits=SPARSE_DENSE,
            ),
            "dense": Case(
                normals(_dense, cpu=(4, 16, 1 << 11), cuda=(8, 64, 1 << 14)),
                "2048 products summed into each element (16384 on CUDA)",
                directions=BOTH,
                traits={"layout": "dense"},
            ),
            "batch": batched(
                normals(_dense, cpu=(ITEMS, 8, 256), cuda=(ITEMS, 64, 1 << 12)),
                "256 products summed into each element (4096 on CUDA)",
                {0: 0, 1: 0},
            ),
        },
    ),
    OpSpec(
        name="torch.sparse.mm",
        why=f"cuSPARSE sums the products of a row in an order of its own ({KERNELS}/sparse/cuda/SparseCUDABlas.cpp). "
        f"{ONE_THREAD}",
        cases={
            "coo": Case(_product, PRODUCTS),
            "coo_dense_grad": Case(partial(_product, leaf="dense"), DENSE_GRADIENTS, directions=BACKWARD),
            "coo_sparse_grad": Case(
                lambda t: _product(t, leaf="sparse"),
                "32 products summed into each stored element (128 on CUDA)",
                directions=BACKWARD,
            ),
            "csr": Case(_rows_product, PRODUCTS),
            "csr_dense_grad": Case(partial(_rows_product, leaf=True), DENSE_GRADIENTS, directions=BACKWARD),
        },
    ),
    OpSpec(
        name="torch.sparse.addmm",
        why=f"cuSPARSE sums the products of a row in an order of its own ({KERNELS}/sparse/cuda/SparseCUDABlas.cpp). "
        f"{ONE_THREAD}",
        cases={"coo": Case(_added, PRODUCTS)},
    ),
    OpSpec(
        name="torch.Tensor.coalesce",
        why="Elements that are stored several times are sorted and summed, and a sort that is not stable leaves their "
        f"order open ({KERNELS}/sparse/cuda/SparseCUDATensor.cu).",
        cases={
            "many_repeated": Case(
                _repeated, "about 16 values summed into each stored element", dtypes=("float32", "int64")
            ),
            "stored_by_columns": Case(_transposed),
        },
    ),
)
