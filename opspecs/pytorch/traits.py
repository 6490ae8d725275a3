"""What a database's sample is an instance of, as far as PyTorch's documented lists state conditions of its op, in their words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Arguments = tuple[Any, ...]
Named = Mapping[str, Any]

_MISSING = object()


def traits_of(entry: str, args: Arguments, kwargs: Named, dtype: str) -> dict[str, str]:
    """Return the traits of a sample of an entry, by the name of its spec: ``"opinfo:index_put_"``."""
    name = entry.partition(":")[2]
    for function, tell in _TRAITS.items():
        if name in (function, f"{function}_") or name.startswith(f"{function}."):
            return tell(args, kwargs, dtype)
    return {}


def _keyword(name: str, place: int, default: Any) -> Callable[[Arguments, Named, str], dict[str, str]]:
    """Tell the value of an argument that is a word or a truth value."""

    def tell(args: Arguments, kwargs: Named, _: str) -> dict[str, str]:
        return {name: str(_argument(args, kwargs, name, place, default))}

    return tell


def _argument(args: Arguments, kwargs: Named, name: str, place: int, default: Any) -> Any:
    return kwargs.get(name, args[place] if len(args) > place else default)


def _weights(args: Arguments, kwargs: Named, _: str) -> dict[str, str]:
    given = _argument(args, kwargs, "weights", 1, None) is not None
    return {"weights": "given" if given else "none"}


def _source(args: Arguments, kwargs: Named, _: str) -> dict[str, str]:
    # A number stands under another name: value.
    source = _argument(args, kwargs, "src", 3, None)
    return {"src": "Tensor" if hasattr(source, "shape") else "number"}


def _index(args: Arguments, _: Named, __: str) -> dict[str, str]:
    index = args[1] if isinstance(args[1], tuple) else (args[1],)
    listed = any(hasattr(one, "shape") or isinstance(one, list) for one in index)
    return {"index": "list of tensors" if listed else "slice"}


def _median(args: Arguments, kwargs: Named, _: str) -> dict[str, str]:
    along = _argument(args, kwargs, "dim", 1, _MISSING) is not _MISSING
    return {"output": "indices" if along else "value"}


def _fill(_: Arguments, kwargs: Named, dtype: str) -> dict[str, str]:
    """Tell what the flag fills memory with that was never written; the result may be asked for in another dtype."""
    dtype = str(kwargs.get("dtype") or dtype).removeprefix("torch.")
    if dtype.startswith(("float", "bfloat")):
        return {"fill": "floating:NaN"}
    return {"fill": "complex:NaN" if dtype.startswith("complex") else "integer:maximum"}


_TRAITS: dict[str, Callable[[Arguments, Named, str], dict[str, str]]] = {
    "__getitem__": _index,
    "bincount": _weights,
    "bmm": lambda *_: {"layout": "dense"},
    "index_put": _keyword("accumulate", 3, default=False),
    "index_reduce": _keyword("reduce", 4, default=None),
    "median": _median,
    "nn.functional.embedding_bag": _keyword("mode", 6, default="mean"),
    "nn.functional.interpolate": _keyword("mode", 3, default="nearest"),
    "put": _keyword("accumulate", 3, default=False),
    "resize": lambda *text: {"quantized": "False"} | _fill(*text),
    "resize_as": lambda *text: {"quantized": "False"} | _fill(*text),
    "scatter": _source,
    "scatter_reduce": _keyword("reduce", 4, default=None),
    **dict.fromkeys(
        (*("empty", "empty_like", "empty_permuted", "empty_strided"), *("new_empty", "new_empty_strided")),
        _fill,
    ),
}
