"""Record how inputs are drawn: what a piece of code does with torch.

A case is a function of ours or of the user's. It is run once while every call of torch is recorded; what was
recorded, in order, makes the same tensors. Nothing is known here of how inputs are drawn or of what a case computes
from them, so neither can drift away from what is recorded.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_NAMESPACES = {"torch": torch, "torch.nn.functional": torch.nn.functional, "torch.sparse": torch.sparse}


@dataclasses.dataclass(eq=False)
class Node:
    """One recorded call: a statement, or an expression within one."""

    # "torch.randn", "torch.Tensor.to"; ".values" or "[0]" for an item of a tuple; empty if it has no name.
    path: str
    args: tuple[Any, ...]  # with nodes in the places of tensors; of an item the tuple and its place there
    kwargs: dict[str, Any]
    tensor: torch.Tensor | None = None  # what came out
    length: int = 0  # of the tuple that came out
    draws: bool = False  # moves a generator on
    writes: bool = False  # into a tensor that is there already

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition(".")[2]

    @property
    def is_item(self) -> bool:
        """Whether it is an item of a tuple."""
        return self.path.startswith((".", "["))

    def operands(self) -> Iterator[Node]:
        """Yield the nodes it reads."""
        yield from nodes_in([self.args, self.kwargs])


def nodes_in(value: Any) -> Iterator[Node]:
    """Yield the nodes in nested arguments."""
    found: list[Node] = []
    mapped(value, lambda leaf: found.append(leaf) if isinstance(leaf, Node) else None)
    yield from found


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Change the leaves of nested arguments."""
    if isinstance(value, Mapping):
        return {key: mapped(item, change) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(*(mapped(end, change) for end in (value.start, value.stop, value.step)))
    if isinstance(value, tuple):
        return tuple(mapped(item, change) for item in value)
    return [mapped(item, change) for item in value] if isinstance(value, list) else change(value)


class Drawing(TorchFunctionMode):  # type: ignore[misc]
    """Records the calls of torch made inside it. Tensors of another device are real ones on the CPU."""

    def __init__(self, device: str) -> None:
        """Record nothing yet; the device, ``"cpu"`` or the kind of an accelerator, is the one that is written, and may be missing here."""
        super().__init__()
        self.device = device
        self.nodes: list[Node] = []
        self.generators: list[torch.Generator] = []
        # By identity, with the tensor itself, so that no other takes its place.
        self._made: dict[int, tuple[torch.Tensor, Node]] = {}

    def __torch_function__(
        self, func: Any, _: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call, and record what makes, draws or changes a tensor."""
        kwargs = kwargs or {}
        node = Node(_path(func), self.known(args), self.known(kwargs))
        name = node.name
        node.draws = any(isinstance(value, torch.Generator) for value in kwargs.values())
        node.writes = (name.endswith("_") and not name.endswith("__")) or "__set" in name or "out" in kwargs
        moved = ["cpu"] if self.device != "cpu" and name == "cpu" else []
        args, kwargs = mapped((args, kwargs), lambda leaf: self._here(leaf, moved))
        result = func(*args, **kwargs)
        if any(result is value for value in args) and isinstance(result, torch.Tensor) and not node.writes:
            if not moved:
                return result  # It was converted to what it is already.
            result = result.clone()
        self._record(node, result)
        return result

    def known(self, value: Any) -> Any:
        """Return nested arguments with nodes in the places of tensors."""
        return mapped(value, self._node_of)

    def _node_of(self, value: Any) -> Any:
        if isinstance(value, torch.Generator) and not any(value is known for known in self.generators):
            self.generators.append(value)
        if not isinstance(value, torch.Tensor):
            return value
        return self._made.setdefault(id(value), (value, Node("", (), {}, value)))[1]

    def _here(self, value: Any, moved: list[str]) -> Any:
        """Return the CPU in place of any device where another one is written, and note it."""
        device = str(value).partition(":")[0] if isinstance(value, (str, torch.device)) else ""
        if self.device != "cpu" and device in ("cpu", self.device):
            moved.append(device)
            return "cpu"
        return value

    def _record(self, node: Node, result: Any) -> None:
        if isinstance(result, torch.Tensor):
            node.tensor = result
            self._made[id(result)] = (result, node)
        elif not node.writes and not (
            isinstance(result, (tuple, list))
            and any(isinstance(item, (torch.Tensor, tuple)) for item in result)
        ):
            return  # A number, a shape: it will be written as what it is.
        self.nodes.append(node)
        if isinstance(result, (tuple, list)):
            node.length = len(result)
            for number, item in enumerate(result):
                self._record(Node(_item_path(result, number), (node, number), {}), item)


def _path(func: Any) -> str:
    """Return the dotted path of a function or method of torch, empty if it is not found."""
    name = getattr(func, "__name__", "")
    if name in ("__get__", "__set__"):
        return f"torch.Tensor.{func.__self__.__name__}.{name}"
    if getattr(torch.Tensor, name, None) is func:
        return f"torch.Tensor.{name}"
    for path, namespace in _NAMESPACES.items():
        if getattr(namespace, name, None) is func:
            return f"{path}.{name}"
    # Some operators are known by the name of the method they wrap.
    for kind in torch.Tensor.__mro__:
        for known, value in vars(kind).items():
            if value is func:
                return f"torch.Tensor.{known}"
    # The functions of torch.linalg, torch.fft and torch.special are called linalg_norm and the like.
    family, _, rest = name.partition("_")
    return f"torch.{family}.{rest}" if getattr(getattr(torch, family, None), rest, None) is func else ""


def _item_path(result: Any, number: int) -> str:
    """Return how to get at an item of a result: by its name if it has one."""
    names = dir(type(result)) if type(result) not in (tuple, list) else ()
    found = (f".{name}" for name in names if getattr(result, name, None) is result[number])
    return next(found, f"[{number}]")
