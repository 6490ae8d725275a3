"""Whether an enlarged case gives its op more to do: inputs may grow and the op still look at three elements of them."""

from __future__ import annotations

from typing import Any

import torch

from opspecs.pytorch.enlarge import mapped, tensors
from scanner.worker import bits
from scanner.worker.execution import Execution

# An op has more to do if so much of the size that was aimed at is written or indexed, or is read.
_ENOUGH = 8
# Large inputs are changed part by part, one run of elements after the other; an op reads its input if nearly all of the
# changes show. A handful of elements, or a row, lies in one or two of the parts.
_PARTS = 8
_READ = 6


def does_more(execution: Execution, target: int) -> bool:
    """Tell whether the op writes, indexes or reads about as much as its inputs were grown to.

    Args:
        execution: The enlarged case, forward.
        target: Elements that the recipe aimed at.
    """
    least = target // _ENOUGH
    execution.reseed()
    output = bits.parts(execution()[0], "output")
    inputs = tensors([execution.call.args, dict(execution.call.kwargs)])
    indexed = any(_is_integer(tensor) and tensor.numel() >= least for tensor in inputs)
    if indexed or sum(tensor.numel() for _, tensor in output) >= least:
        return True
    large = {id(tensor) for tensor in inputs if tensor.layout == torch.strided and tensor.numel() >= least}
    before = bits.digest(output)
    if not large:
        return False
    # A greatest value takes no notice of lesser ones.
    return any(
        sum(_digest_with(execution, large, part, sign) != before for part in range(_PARTS)) >= _READ
        for sign in (1, -1)
    )


def repeating(execution: Execution, target: int) -> dict[str, bool]:
    """Tell whether integers, which may be indices and are always drawn anew, and other values are among what grew."""
    inputs = tensors([execution.call.args, dict(execution.call.kwargs)])
    grown = [tensor for tensor in inputs if tensor.numel() >= target // _ENOUGH]
    return {"indices": any(map(_is_integer, grown)), "values": not all(map(_is_integer, grown))}


def _is_integer(tensor: torch.Tensor) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)


def _digest_with(execution: Execution, large: set[int], part: int, sign: int) -> str | None:
    """Return the digest of the output where one part of large inputs is another; ``None`` if the op refuses them."""

    def other(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in large or _is_integer(tensor):
            return tensor
        changed = tensor.detach().clone(memory_format=torch.contiguous_format)
        some = changed.view(-1).chunk(_PARTS)[part]
        # Beyond all others, so that a least, a middle and a greatest value is another one too.
        beyond = None if some.dtype == torch.bool else sign * (2 * changed.abs().max() + 1)
        some.copy_(~some if beyond is None else beyond)
        return changed

    args: tuple[Any, ...] = mapped(execution.call.args, other)
    kwargs = mapped(dict(execution.call.kwargs), other)
    execution.reseed()
    try:
        with torch.no_grad():
            return bits.digest(bits.parts(execution.op(*args, **kwargs), "output"))
    except Exception:  # noqa: BLE001 - what refuses other values has read them
        return None
