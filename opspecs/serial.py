"""What a serial loop over the indices gives: results that PyTorch's own tests hold some ops to, with the flag on.

Its documentation promises less: that the flag makes an op "always produce the same output", and, of ``index_copy_`` with
duplicate indices, that the result "depends on which copy occurs last". Its tests say which
(``test_index_put_non_accumulate_deterministic``, ``test_index_copy_deterministic``, ``test_gather_backward_one_dim``:
https://github.com/pytorch/pytorch/blob/main/test/test_torch.py). The loop itself would take a second; these take milliseconds
and give its bits.
"""

from __future__ import annotations

from typing import Any

from detmatrix.opspecs.model import Call, Tensor


def last_written(call: Call, *, dim: int = 0) -> Tensor:
    """Return what is left when sources are written one after the other, by one index for each along *dim*.

    Takes the arguments of ``index_put`` and ``put`` (into, index, source) and of ``index_copy`` (into, dim, index, source).
    """
    into, index, source = _named(call)
    import torch  # noqa: PLC0415 - specs load without it

    winner = torch.zeros(into.shape[dim], dtype=torch.int64)
    order = torch.arange(len(index))
    winner.scatter_reduce_(0, index.cpu(), order, "amax", include_self=False)
    winner, written = winner.to(into.device), index.unique()
    result = into.clone()
    return result.index_copy_(dim, written, source.index_select(dim, winner[written]).to(into.dtype))


def summed(call: Call) -> Tensor | None:
    """Return what is left when sources are added one after the other; ``None`` but on a CPU: a GPU adds in another order."""
    into, index, source = _named(call)
    return _sum(into, index, source)


def summed_gradient(call: Call, gradient: Tensor | None = None) -> Tensor | None:
    """Return the gradient of what was read by index: what arrives at each element, added one after the other."""
    leaf, *_, index = call.args
    return None if gradient is None else _sum(leaf.detach().new_zeros(leaf.shape), index, gradient)


def _named(call: Call) -> tuple[Any, Any, Any]:
    """Return what is written into, the one index along a dim, and what is written."""
    into, *_, index, source = call.args
    return into, index[0] if isinstance(index, tuple) else index, source


def _sum(into: Tensor, index: Tensor, source: Tensor) -> Tensor | None:
    if into.device.type != "cpu":
        return None
    import torch  # noqa: PLC0415

    sorted_index, order = index.sort(stable=True)
    place = torch.arange(len(index))
    first = torch.ones(len(index), dtype=torch.bool)
    first[1:] = sorted_index[1:] != sorted_index[:-1]
    # Which of the sources of its slot each one is: those of one turn go to different slots, so that no order is left.
    turn = place - torch.where(first, place, 0).cummax(0).values
    result = into.clone()
    for now in order[turn.argsort(stable=True)].split(turn.bincount().tolist()):
        result.index_copy_(0, index[now], result[index[now]] + source[now])
    return result
