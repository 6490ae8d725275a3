"""Memory that nobody wrote: these return whatever lay there before.

With the flag on, ``torch.utils.deterministic.fill_uninitialized_memory`` has it filled. With it off, small blocks
come from a heap in use, and large ones often from the system, which clears them, so the same op can look stable.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from detmatrix.opspecs.inputs import Inputs
from detmatrix.opspecs.model import Call, Case, OpSpec, call

if TYPE_CHECKING:
    import torch

WHY = (
    "It returns memory that was never written, unless the flag has it filled "
    "(https://docs.pytorch.org/docs/stable/deterministic.html)."
)
SMALL = "8192 bytes that were never written"
LARGE = "1048576 bytes that were never written (16777216 on CUDA)"

# Filled memory holds no information.
FILLED = "the flag fills it with NaN, True or the largest integer"

# What the flag fills with, by dtype; the condition that was documented in 2.1, which says nothing of truth values.
FILLS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "floating": (("float32", "float64", "float16"), {"fill": "floating:NaN"}),
    "complex": (("complex64",), {"fill": "complex:NaN"}),
    "integer": (("int64", "uint8"), {"fill": "integer:maximum"}),
    "bool": (("bool",), {}),
}


def _elements(t: Inputs, size: int | None = None) -> int:
    """Return how many elements fill so many bytes, 8 KiB if nothing is said."""
    return (size or 1 << 13) // t.itemsize


def _large(t: Inputs) -> int:
    return _elements(t, t.size(cpu=1 << 20, cuda=1 << 24))


def filled(call: Call) -> torch.Tensor | None:
    """Return what the flag makes of memory that nobody wrote, as PyTorch's tests say: NaN, the largest integer, True.

    Takes a size behind a tensor or without one, or a last tensor of that size. ``None`` where nothing is filled.
    """
    import torch  # noqa: PLC0415 - specs load without it

    if not getattr(getattr(torch.utils, "deterministic", None), "fill_uninitialized_memory", False):
        return None
    tensors = [it for it in call.args if isinstance(it, torch.Tensor)]
    like = tensors[0] if tensors else torch.empty(0, **call.kwargs)
    others = [it for it in call.args if not isinstance(it, torch.Tensor)]
    size: Any = others[0] if others else tensors[-1].shape
    floating = like.is_floating_point() or like.is_complex()
    value = float("nan") if floating else like.dtype == torch.bool or torch.iinfo(like.dtype).max
    return like.new_full((size,) if isinstance(size, int) else tuple(size), value)


def grown(call: Call) -> torch.Tensor | None:
    """Return the same behind what was there before."""
    result = filled(call)
    if result is not None:
        result.view(-1)[: call.args[0].numel()] = call.args[0].view(-1)
    return result


def _cases(inputs: Callable[[Inputs], Call], reference: Callable[..., Any] = filled) -> dict[str, Case]:
    """Return a small case for each kind of dtype."""
    return {
        kind: Case(inputs, SMALL, dtypes=dtypes, traits=traits, constant=FILLED, reference=reference)
        for kind, (dtypes, traits) in FILLS.items()
    }


FLOATING = Case(
    lambda t: call(_elements(t), dtype=t.dtype, device=t.device),
    SMALL,
    traits=FILLS["floating"][1],
    constant=FILLED,
    reference=filled,
)


def empty_into(small: torch.Tensor, size: int) -> torch.Tensor:
    """Have ``empty`` grow a tensor that is given as ``out``."""
    import torch  # noqa: PLC0415 - specs load without it

    return torch.empty(size, out=small)


PLAIN = {"quantized": "False"}
SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        name="torch.empty",
        why=WHY,
        cases=_cases(FLOATING.inputs)
        | {
            "large": replace(
                FLOATING, inputs=lambda t: call(_large(t), dtype=t.dtype, device=t.device), provokes=LARGE
            )
        },
    ),
    OpSpec(
        name="torch.empty_out",
        op=empty_into,
        why="What a tensor gains that is given as out was never written, unless the flag has it filled "
        "(https://docs.pytorch.org/docs/stable/deterministic.html).",
        cases=_cases(lambda t: call(t.values(1), _elements(t))),
        documented=("torch.empty",),
        in_place=True,
    ),
    *(
        OpSpec(name=name, why=WHY, cases=_cases(inputs))
        for name, inputs in {
            "torch.empty_like": lambda t: call(t.values(_elements(t))),
            "torch.empty_strided": lambda t: call(
                (64, _elements(t) // 64), (1, 64), dtype=t.dtype, device=t.device
            ),
            "torch.empty_permuted": lambda t: call(
                (8, 8, _elements(t) // 64), (2, 0, 1), dtype=t.dtype, device=t.device
            ),
        }.items()
    ),
    *(
        OpSpec(name=f"torch.Tensor.{name}", why=WHY, cases={"floating": replace(FLOATING, inputs=inputs)})
        for name, inputs in {
            "new_empty": lambda t: call(t.values(1), (_elements(t),)),
            "new_empty_strided": lambda t: call(t.values(1), (64, _elements(t) // 64), (1, 64)),
        }.items()
    ),
    OpSpec(
        name="torch.Tensor.resize_",
        why="What a tensor gains when it grows was never written, unless the flag has it filled "
        "(https://docs.pytorch.org/docs/stable/deterministic.html).",
        cases={
            f"grow_{kind}": replace(case, constant="", traits={**PLAIN, **case.traits})
            for kind, case in _cases(lambda t: call(t.values(16), (_elements(t),)), grown).items()
        }
        | {
            "grow_large": Case(
                lambda t: call(t.values(16), (_large(t),)),
                LARGE,
                traits=PLAIN | FILLS["floating"][1],
                reference=grown,
            ),
            "shrink": Case(
                lambda t: call(t.values(_elements(t)), (16,)),
                traits=PLAIN | FILLS["floating"][1],
                constant="Shrinking keeps the elements that are there, and computes none.",
            ),
            # CUDA has no kernel that resizes quantized tensors.
            "grow_quantized": Case(
                lambda t: call(t.quantized(16), (1 << 13,)),
                SMALL,
                dtypes=("quint8", "qint8", "qint32"),
                devices=("cpu",),
                traits={"quantized": "True"},
            ),
            "shrink_quantized": Case(
                lambda t: call(t.quantized(1 << 13), (16,)),
                dtypes=("quint8",),
                devices=("cpu",),
                traits={"quantized": "True"},
            ),
        },
        in_place=True,
    ),
    OpSpec(
        name="torch.Tensor.resize_as_",
        why="It resizes like resize_, and what a tensor gains when it grows was never written "
        "(https://docs.pytorch.org/docs/stable/deterministic.html).",
        cases=_cases(lambda t: call(t.values(16), t.values(_elements(t))), grown),
        in_place=True,
    ),
)
