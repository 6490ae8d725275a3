"""Backward without the autograd engine, which asks the device for streams and so needs the GPU.

The nodes of the graph are called one after the other, as the engine calls them. What the engine does between them is
done here too: gradients that meet are added, and each is brought to the shape and dtype of what it is the gradient of.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import torch


class NoShapesError(Exception):
    """This torch does not tell what the nodes of a graph expect."""

    def __str__(self) -> str:
        return f"torch {torch.__version__} does not tell the shapes of gradients; trace a newer one"


def differentiate(
    outputs: Sequence[torch.Tensor], upstream: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor]
) -> list[torch.Tensor | None]:
    """Return what ``torch.autograd.grad(outputs, leaves, upstream, allow_unused=True)`` does.

    Raises:
        NoShapesError: This torch is too old.
    """
    with torch.no_grad():
        walk = _Walk([output.grad_fn for output in outputs if output.grad_fn is not None])
        for output, gradient in zip(outputs, upstream, strict=True):
            if output.grad_fn is None:
                walk.gradients[id(output)] = gradient
            else:
                walk.add(output.grad_fn, output.output_nr, gradient)
        walk.run()
    return [walk.gradients.get(id(leaf)) for leaf in leaves]


class _Walk:
    """The state of one backward pass."""

    def __init__(self, roots: Sequence[Any]) -> None:
        # The nodes are held, since each is known by the object that stands for it.
        self._edges_to: Counter[Any] = Counter(dict.fromkeys(roots, 0))
        found = list(self._edges_to)
        for node in found:
            for following, _ in node.next_functions:
                if following is not None:
                    if following not in self._edges_to:
                        found.append(following)
                    self._edges_to[following] += 1
        self._ready = [node for node in self._edges_to if not self._edges_to[node]]
        self._arrived: defaultdict[Any, dict[int, torch.Tensor]] = defaultdict(dict)
        self.gradients: dict[int, torch.Tensor | None] = {}  # by the identity of the leaf

    def add(self, node: Any, place: int, gradient: torch.Tensor) -> None:
        """Hand a gradient to a node."""
        expected = _expected(node)[place]
        if gradient.shape != torch.Size(expected.shape):
            gradient = gradient.sum_to_size(expected.shape)
        if gradient.dtype != expected.dtype:
            gradient = gradient.to(expected.dtype)
        arrived = self._arrived[node]
        arrived[place] = arrived[place] + gradient if place in arrived else gradient

    def run(self) -> None:
        """Call each node after all that lead to it."""
        while self._ready:
            node = self._ready.pop()
            arrived = self._arrived.pop(node, {})
            if not node.next_functions and hasattr(node, "variable"):
                self.gradients[id(node.variable)] = arrived.get(0)
                continue
            results: Any = None
            if arrived:
                # Nodes of functions written in Python are called in another way.
                written = isinstance(node, torch.autograd.function.BackwardCFunction)
                call = node.apply if written else node
                given = [arrived.get(place) for place in range(len(_expected(node)))]
                results = call(*(_zeros_for(node, given) if written else given))
                if written and isinstance(results, tuple):
                    results = _for_tensors(node, results)
            if not isinstance(results, tuple):
                results = (results,) * max(1, len(node.next_functions) if results is None else 1)
            for (following, place), gradient in zip(node.next_functions, results, strict=True):
                if following is None:
                    continue
                if gradient is not None:
                    self.add(following, place, gradient)
                self._edges_to[following] -= 1
                if not self._edges_to[following]:
                    self._ready.append(following)


def _zeros_for(node: Any, given: list[Any]) -> list[Any]:
    """Return gradients with zeros for those that never arrived, which the engine makes for functions written in Python."""
    return [
        torch.zeros(tuple(one.shape), dtype=one.dtype, device=one.device) if gradient is None else gradient
        for gradient, one in zip(given, _expected(node), strict=True)
    ]


def _for_tensors(node: Any, results: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return one gradient for each edge: a function written in Python returns one for each argument, tensor or not."""
    wanted = iter(
        [gradient for gradient, needed in zip(results, node.needs_input_grad, strict=True) if needed]
    )
    return tuple(None if following is None else next(wanted) for following, _ in node.next_functions)


def _expected(node: Any) -> Any:
    """Return what a node expects: the shape and dtype of each gradient that is handed to it."""
    try:
        return node._input_metadata  # noqa: SLF001 - has no public name
    except AttributeError:
        raise NoShapesError from None
