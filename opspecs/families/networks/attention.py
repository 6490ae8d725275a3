"""Attention: scaled_dot_product_attention on each of its backends, every one a kernel of its own.

Keys are long, because the gradient of a query sums over keys, and few heads share many blocks of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from detmatrix.opspecs.inputs import Inputs
from detmatrix.opspecs.model import (
    BACKWARD,
    BOTH,
    CUDA,
    ITEMS,
    Call,
    Case,
    Device,
    MissingError,
    OpSpec,
    batched,
    call,
)

if TYPE_CHECKING:
    import torch

EVERYWHERE: tuple[Device, ...] = ("cpu", "cuda")


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None = None,
    *,
    backend: str = "",
    is_causal: bool = False,
) -> torch.Tensor:
    """Attend on the backend of that name in ``torch.nn.attention.SDPBackend``, and no other; without one, as PyTorch chooses.

    Raises:
        MissingError: This torch cannot choose a backend (before 2.3), or not this one.
    """
    import torch  # noqa: PLC0415 - specs load without it

    given = (query, key, value, mask, 0.0, is_causal)
    # What a CPU does not have: the simulated GPU's results are compared with what it chooses.
    if not backend or (query.device.type == "cpu" and backend not in {"MATH", "FLASH_ATTENTION"}):
        return torch.nn.functional.scaled_dot_product_attention(*given)
    try:
        from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: PLC0415
    except ImportError:
        raise MissingError("torch.nn.attention") from None
    if not hasattr(SDPBackend, backend):
        raise MissingError(f"torch.nn.attention.SDPBackend.{backend}")
    with sdpa_kernel(getattr(SDPBackend, backend)):
        return torch.nn.functional.scaled_dot_product_attention(*given)


def _attend(t: Inputs, *, masked: bool = False, **options: object) -> Call:
    """Draw ``(N, heads, length, E)``; the gradients of query, key and value are all wanted."""
    batch, heads, queries, keys, width = t.size(cpu=(1, 2, 64, 512, 16), cuda=(2, 8, 1024, 4096, 64))
    query = t.leaf(t.normal(batch, heads, queries, width))
    key, value = (t.leaf(t.normal(batch, heads, keys, width)) for _ in range(2))
    mask = t.normal(queries, keys) if masked else None
    return call(query, key, value, mask, **options)


def _attend_square(t: Inputs, **options: object) -> Call:
    """Draw as many queries as keys, so that each attends to what comes before it."""
    batch, heads, length, width = t.size(cpu=(1, 2, 128, 16), cuda=(2, 8, 2048, 64))
    query, key, value = (t.leaf(t.normal(batch, heads, length, width)) for _ in range(3))
    return call(query, key, value, is_causal=True, **options)


def _attend_items(t: Inputs, mask: str, *, queries: int = 32, keys: int = 32) -> Call:
    """Draw a batch; the keys are longer than the queries where a prefix was attended to before.

    The *mask* is ``"causal"``; ``"own"``, one for each item; ``"prefix"``, one for all that hides the keys behind a query.
    """
    heads, width = t.size(cpu=(2, 16), cuda=(8, 64))
    query, key, value = (t.leaf(t.normal(ITEMS, heads, length, width)) for length in (queries, keys, keys))
    if mask == "causal":
        return call(query, key, value, is_causal=True)
    if mask == "own":
        return call(query, key, value, t.normal(ITEMS, 1, queries, keys))
    places = t.permutation(keys).sort().values
    return call(query, key, value, places <= (places[:queries] + keys - queries)[:, None])


ATTENDED: dict[int | str, int] = {0: 0, 1: 0, 2: 0}
WEIGHTED = "up to 32 weighted values added into each output"


def _backend(name: str, *dtypes: str, devices: tuple[Device, ...] = CUDA) -> dict[str, Case]:
    """Return the cases of one backend."""
    backend = "MATH" if name == "math" else f"{name.upper()}_ATTENTION"
    shared = Case(
        lambda t: _attend(t, backend=backend),
        "512 products summed into each query's gradient (4096 on CUDA), 64 into each key's (1024)",
        directions=BOTH,
        dtypes=dtypes,
        devices=devices,
    )
    causal = replace(
        shared,
        inputs=lambda t: _attend_square(t, backend=backend),
        provokes="up to 128 products summed into each gradient (2048 on CUDA)",
        directions=None,
    )
    return {name: shared, f"{name}_causal": causal}


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        name="torch.nn.functional.scaled_dot_product_attention",
        op=attend,
        why="Backward, blocks of keys add to the gradients of the same queries, on some backends with atomic additions "
        "(https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html).",
        directions=BACKWARD,
        cases={
            **_backend("math", "float32", "bfloat16", devices=EVERYWHERE),
            # A CPU has it in float32 too, CUDA in half types alone.
            **_backend("flash", "bfloat16", "float16", devices=EVERYWHERE),
            "flash_float": Case(
                lambda t: _attend(t, backend="FLASH_ATTENTION"),
                "512 products summed into each query's gradient, 64 into each key's",
                devices=("cpu",),
            ),
            **_backend("efficient", "float32", "float16"),
            "efficient_mask": Case(
                lambda t: _attend(t, masked=True, backend="EFFICIENT_ATTENTION"),
                "4096 products summed into each query's gradient, 1024 into each key's",
                devices=CUDA,
            ),
            **_backend("cudnn", "float16", "bfloat16"),
            "batch_causal": batched(lambda t: _attend_items(t, "causal"), WEIGHTED, ATTENDED),
            "batch_mask": batched(lambda t: _attend_items(t, "own"), WEIGHTED, {**ATTENDED, 3: 0}),
            "batch_prefix": batched(
                lambda t: _attend_items(t, "prefix", queries=8, keys=64),
                "up to 64 weighted values added into each output",
                ATTENDED,
            ),
        },
    ),
)
