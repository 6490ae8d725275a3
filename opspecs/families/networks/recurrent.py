"""Recurrent networks: each weight collects a gradient from every step of every sequence."""

from __future__ import annotations

from detmatrix.opspecs.inputs import Inputs
from detmatrix.opspecs.model import BOTH, ITEMS, Call, Case, OpSpec, batched, call

WHY = (
    "cuDNN chooses the algorithm, and cuBLAS may split its sums "
    "(https://docs.pytorch.org/docs/stable/generated/torch.nn.LSTM.html)."
)
PRODUCTS = "256 products summed into each weight's gradient (4096 on CUDA)"


def _run(t: Inputs, *, gates: int, layers: int = 1, bidirectional: bool = False, items: int = 0) -> Call:
    """Draw a sequence ``(T, N, width)``, the first state and all weights: the arguments of ``torch.lstm`` (4 gates; a GRU has 3)."""
    steps, batch, width = t.size(cpu=(8, 32, 16), cuda=(64, 64, 256))
    batch = items or batch
    directions = 2 if bidirectional else 1
    scale = width**-0.5
    weights = [
        t.leaf(t.uniform(gates * width, *reads, low=-scale, high=scale))
        for layer in range(layers)
        for _ in range(directions)
        for reads in ((width * directions if layer else width,), (width,), (), ())
    ]
    state = t.normal(layers * directions, batch, width)
    # An LSTM has a second state, of its cells.
    states = [state, t.normal(layers * directions, batch, width)] if gates == 4 else state  # noqa: PLR2004
    sequence = t.leaf(t.normal(steps, batch, width))
    has_biases, dropout, train, batch_first = True, 0.0, True, False
    return call(sequence, states, weights, has_biases, layers, dropout, train, bidirectional, batch_first)


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        name="torch.nn.LSTM",
        op="torch.lstm",
        why=WHY,
        directions=("backward",),
        cases={
            "one_layer": Case(lambda t: _run(t, gates=4), PRODUCTS, directions=BOTH),
            "two_layers_bidirectional": Case(
                lambda t: _run(t, gates=4, layers=2, bidirectional=True), PRODUCTS
            ),
            # Sequences lie side by side along the second axis, in the states too.
            "batch": batched(
                lambda t: _run(t, gates=4, items=ITEMS), "32 products summed into each gate", {0: 1, 1: 1}, 1
            ),
        },
        cuda_dtypes=("float16",),
    ),
    OpSpec(
        name="torch.nn.GRU",
        op="torch.gru",
        why=WHY,
        directions=("backward",),
        cases={"one_layer": Case(lambda t: _run(t, gates=3), PRODUCTS)},
        cuda_dtypes=("float16",),
    ),
)
