"""Second gradients of the ops of ``op_db`` that have some, each an op of its own: import it in a worker only.

A row of them runs the op, its gradient and the gradient of that: where the op or its gradient differs, they do, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from detmatrix.opspecs.model import MissingError
from detmatrix.opspecs.pytorch import opinfo
from detmatrix.opspecs.pytorch.database import Entry, Sample, names_of

_WHY = "The second gradient of an entry of PyTorch's operator database: double backward, whose formulas are others."


def gradgrad(op: Callable[..., Any], places: Sequence[int], *args: Any, **kwargs: Any) -> list[Any]:
    """Return the second gradients of an op, one for each input that takes a gradient and each upstream gradient.

    Args:
        op: It.
        places: Of the tensors that take a gradient, among the leaves of ``(args, kwargs)``.
        args: What the op is called with.
        kwargs: What it is called with by name.

    Raises:
        MissingError: No first gradient depends on anything.
    """
    import torch  # noqa: PLC0415
    from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten  # noqa: PLC0415

    def upstream(output: Any) -> Any:
        numbers = torch.linspace(0.5, 1.5, output.numel(), device=output.device)
        return numbers.to(output.dtype).view(output.shape).requires_grad_()

    def differentiable(tree: Any) -> list[Any]:
        return [one for one in tree_leaves(tree) if isinstance(one, torch.Tensor) and one.requires_grad]

    given, form = tree_flatten((args, kwargs))
    for place in places:
        given[place] = given[place].detach().requires_grad_()
    inputs = [given[place] for place in places]
    args, kwargs = tree_unflatten(given, form)
    # Without gradients, as a row's forward phase is executed, there is no graph.
    with torch.enable_grad():
        outputs = differentiable(op(*args, **kwargs))
        upstreams = [upstream(output) for output in outputs]
        first = differentiable(
            torch.autograd.grad(outputs, inputs, upstreams, create_graph=True, allow_unused=True)
        )
        second = torch.autograd.grad(
            first, [*inputs, *upstreams], [upstream(one) for one in first], allow_unused=True
        )
    if all(one is None for one in second):
        raise MissingError("there is no second gradient: the first is constant")
    # One that is constant on one way of computing it, and zero on another, is as much a result on both.
    return [
        torch.zeros_like(given) if one is None else one
        for one, given in zip(second, [*inputs, *upstreams], strict=True)
    ]


def _samples(entry: Entry, device: str, dtype: str, _: bool) -> Iterator[Sample]:
    import torch  # noqa: PLC0415
    from torch.utils._pytree import tree_leaves  # noqa: PLC0415

    for sample in entry.samples(device, dtype, True):
        leaves = tree_leaves((sample.args, dict(sample.kwargs)))
        places = [
            place for place, one in enumerate(leaves) if isinstance(one, torch.Tensor) and one.requires_grad
        ]
        if places:
            yield Sample((entry.op, tuple(places), *sample.args), sample.kwargs, fixed=2)


def _entries() -> Iterator[Entry]:
    from torch.testing._internal.common_methods_invocations import op_db  # noqa: PLC0415 - takes seconds

    for info in op_db:
        first = opinfo.ENTRIES[f"opinfo:{info.full_name}"]
        if info.supports_gradgrad and not first.in_place:
            yield Entry(
                name=f"gradgrad:{info.full_name}",
                path=f"second gradient of {first.path}",
                op=gradgrad,
                dtypes=partial(names_of, info.supported_backward_dtypes),
                differentiable=lambda *_: False,
                samples=partial(_samples, first),
                why=_WHY,
            )


ENTRIES = {entry.name: entry for entry in _entries()}
