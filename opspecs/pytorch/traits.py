"""What a database's sample is an instance of, as far as PyTorch's documented lists state conditions of its op, in their words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

# Gives an argument by its name and its place, if it has one; else a default.
Arguments = Callable[..., Any]


def traits_of(entry: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], dtype: str) -> dict[str, str]:
    """Return the traits of a sample of an entry, by the name of its spec: ``"opinfo:index_put_"``."""

    def given(name: str, place: int = len(args), default: Any = None) -> Any:
        return kwargs.get(name, args[place] if len(args) > place else default)

    name = entry.partition(":")[2]
    for function, tell in _TRAITS.items():
        if name in (function, f"{function}_") or name.startswith(f"{function}."):
            return tell(given, dtype)
    return {}


def _named(name: str, place: int, default: Any = None) -> Callable[[Arguments, str], dict[str, str]]:
    """Tell the value of an argument that is a word or a truth value."""
    return lambda given, _: {name: str(given(name, place, default))}


def _index(given: Arguments, _: str) -> dict[str, str]:
    index = given("index", 1)
    index = index if isinstance(index, tuple) else (index,)
    listed = any(hasattr(one, "shape") or isinstance(one, list) for one in index)
    return {"index": "list of tensors" if listed else "slice"}


def _fill(given: Arguments, dtype: str) -> dict[str, str]:
    """Tell what the flag fills memory with that was never written; the result may be asked for in another dtype."""
    dtype = str(given("dtype") or dtype).removeprefix("torch.")
    if dtype.startswith(("float", "bfloat")):
        return {"fill": "floating:NaN"}
    return {"fill": "complex:NaN" if dtype.startswith("complex") else "integer:maximum"}


_TRAITS: dict[str, Callable[[Arguments, str], dict[str, str]]] = {
    "__getitem__": _index,
    "bincount": lambda given, _: {"weights": "none" if given("weights", 1) is None else "given"},
    "bmm": lambda *_: {"layout": "dense"},
    "index_put": _named("accumulate", 3, default=False),
    "index_reduce": _named("reduce", 4),
    # Along a dim, which may be given as None, there are indices.
    "median": lambda given, _: {"output": "value" if given("dim", 1, ...) is ... else "indices"},
    "nn.functional.embedding_bag": _named("mode", 6, default="mean"),
    "nn.functional.interpolate": _named("mode", 3, default="nearest"),
    "put": _named("accumulate", 3, default=False),
    **dict.fromkeys(("resize", "resize_as"), lambda *told: {"quantized": "False"} | _fill(*told)),
    # A number stands under another name: value.
    "scatter": lambda given, _: {"src": "Tensor" if hasattr(given("src", 3), "shape") else "number"},
    "scatter_reduce": _named("reduce", 4),
    **dict.fromkeys(
        (*("empty", "empty_like", "empty_permuted", "empty_strided"), *("new_empty", "new_empty_strided")),
        _fill,
    ),
}
