"""Embeddings: a row of the table collects the gradients of every place that looked it up.

A vocabulary of a few rows makes each of them the sum of thousands; CUDA has kernels of their own for few
indices, for bags, and for each way of reducing a bag.
"""

from __future__ import annotations

from dataclasses import replace

from detmatrix.opspecs.families import KERNELS
from detmatrix.opspecs.inputs import Inputs
from detmatrix.opspecs.model import (
    BACKWARD,
    BOTH,
    CUDA,
    FLOATS,
    FORWARD,
    HALF,
    ITEMS,
    Call,
    Case,
    OpSpec,
    batched,
    call,
)

ADDITIONS = "about 512 gradients added into each row (16384 on CUDA)"
FEW_ADDITIONS = "about 8 gradients added into each row (16384 on CUDA)"


def _table(t: Inputs) -> tuple[int, int]:
    """Lookups, and columns of the table."""
    return t.size(cpu=(1 << 13, 8), cuda=(1 << 18, 64), simulated=(1 << 12, 8))


def _look_up(t: Inputs, *, rows: int = 0, **options: object) -> Call:
    """Look up random rows of a table, a large one if it is not said of how many."""
    # Of a large one a CPU gives a thousand rows to each of its threads.
    rows = rows or t.size(cpu=1 << 10, cuda=16, simulated=16)
    lookups, columns = _table(t)
    return call(t.index(lookups, high=rows), t.leaf(t.normal(rows, columns)), **options)


def _look_up_sentences(t: Inputs) -> Call:
    index, table = _look_up(t).args
    return call(index.reshape(-1, 64), table)


def _look_up_few(t: Inputs) -> Call:
    # CUDA sorts the indices of more than 3072 lookups, and takes another kernel for fewer.
    return call(t.index(2048, high=4), t.leaf(t.normal(4, 256)))


def _look_up_once(t: Inputs) -> Call:
    lookups, columns = _table(t)
    return call(t.permutation(lookups), t.leaf(t.normal(lookups, columns)))


def _bag(t: Inputs, mode: str, *, rows: int = 16, **options: object) -> Call:
    """Fill bags of four with random rows of a small table."""
    lookups, columns = _table(t)
    indices = t.index(lookups // 4, 4, high=rows)
    return call(indices, t.leaf(t.normal(rows, columns)), mode=mode, **options)


def _bag_offsets(t: Inputs, mode: str) -> Call:
    """Fill bags of uneven sizes, some of them empty."""
    lookups, columns = _table(t)
    starts = t.index(lookups // 4, high=lookups).sort().values
    starts[0] = 0
    return call(t.index(lookups, high=16), t.leaf(t.normal(16, columns)), starts, mode=mode)


def _bag_weighted(t: Inputs) -> Call:
    lookups, columns = _table(t)
    indices, weights = t.index(lookups // 4, 4, high=16), t.leaf(t.normal(lookups // 4, 4))
    return call(indices, t.leaf(t.normal(16, columns)), mode="sum", per_sample_weights=weights)


def _bag_once(t: Inputs, mode: str) -> Call:
    indices, table = _look_up_once(t).args
    return call(indices.reshape(-1, 4), table, mode=mode)


def _bag_cases(mode: str) -> dict[str, Case]:
    """Return the cases all modes of EmbeddingBag share."""
    additions = (
        "about 128 maxima's gradients added into each element (4096 on CUDA)" if mode == "max" else ADDITIONS
    )
    # One thread of a CPU does what maxima ask for, so that one way of filling bags stands for all there.
    several = Case(
        lambda t: _bag(t, mode),
        additions,
        devices=CUDA if mode == "max" else ("cpu", "cuda"),
        traits={"mode": mode},
    )
    everywhere = replace(several, devices=("cpu", "cuda"))
    return {
        mode: replace(everywhere, directions=BOTH),
        f"{mode}_two_rows": replace(
            several,
            inputs=lambda t: _bag(t, mode, rows=2),
            provokes="thousands of gradients added into each row",
        ),
        f"{mode}_offsets": replace(several, inputs=lambda t: _bag_offsets(t, mode)),
        f"{mode}_padding_idx": replace(several, inputs=lambda t: _bag(t, mode, padding_idx=0)),
        f"{mode}_permutation": replace(everywhere, inputs=lambda t: _bag_once(t, mode), provokes=""),
    }


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        name="torch.nn.Embedding",
        op="torch.nn.functional.embedding",
        why="Its backward adds the gradients of all lookups of a row, on CUDA in blocks of sorted indices whose "
        f"partial sums are joined ({KERNELS}/cuda/Embedding.cu, {KERNELS}/cuda/EmbeddingBackwardKernel.cu). A CPU divides the "
        f"rows among its threads, if there are many ({KERNELS}/Embedding.cpp).",
        directions=BACKWARD,
        cases={
            "collisions_large": Case(_look_up, FEW_ADDITIONS, directions=BOTH, dtypes=FLOATS),
            "collisions_half": Case(_look_up, ADDITIONS, dtypes=HALF, devices=CUDA),
            "two_rows": Case(
                lambda t: _look_up(t, rows=2), "about 131072 gradients added into each row", devices=CUDA
            ),
            "sentences_large": Case(_look_up_sentences, FEW_ADDITIONS),
            "few_indices": Case(_look_up_few, "about 512 gradients added into each row", devices=CUDA),
            "padding_idx_large": Case(lambda t: _look_up(t, padding_idx=0), FEW_ADDITIONS),
            "scale_grad_by_freq_large": Case(lambda t: _look_up(t, scale_grad_by_freq=True), FEW_ADDITIONS),
            # The gradient lists what belongs to each row, and leaves the sum to whoever coalesces it.
            "sparse": Case(lambda t: _look_up(t, rows=16, sparse=True)),
            "permutation": Case(_look_up_once),
            "batch": batched(
                lambda t: call(t.index(ITEMS, 16, high=64), t.leaf(t.normal(64, 32))), "", directions=FORWARD
            ),
        },
    ),
    OpSpec(
        name="torch.nn.EmbeddingBag",
        op="torch.nn.functional.embedding_bag",
        why="Its backward adds the gradients of all bags that hold a row, on CUDA for maxima with atomic additions "
        f"({KERNELS}/cuda/EmbeddingBag.cu). On a CPU one thread looks for the maxima, and adds their gradients one after "
        f"the other ({KERNELS}/EmbeddingBag.cpp).",
        directions=BACKWARD,
        cases={
            **_bag_cases("sum"),
            **_bag_cases("mean"),
            **_bag_cases("max"),
            "sum_weighted": Case(_bag_weighted, ADDITIONS, traits={"mode": "sum"}),
            "sum_scale_grad_by_freq": Case(
                lambda t: _bag(t, "sum", scale_grad_by_freq=True), ADDITIONS, traits={"mode": "sum"}
            ),
            "sum_sparse": Case(lambda t: _bag(t, "sum", sparse=True), traits={"mode": "sum"}),
        },
        cuda_dtypes=("float16",),
    ),
)
