"""What is known of an overload before it is executed again: what it changes, whether it may be at all, what it is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

import torch

# Namespaces whose ops speak with other processes.
_COMMUNICATION = {"c10d", "_c10d_functional", "c10d_functional", "_dtensor", "symm_mem", "rpc"}
EFFECTS = "have effects outside of their tensors"
# They change what a tensor is, not what it holds, or say something to the host or the allocator.
_NO_REPLAY = {
    "set_", "resize_", "resize_as_", "resize_as_sparse_", "_resize_output_", "record_stream", "_pin_memory"
}  # fmt: skip
# Changes that their schemas do not tell: positions of arguments.
_HIDDEN_CHANGES = {
    "aten::native_batch_norm": (3, 4),
    "aten::cudnn_batch_norm": (3, 4),
    "aten::miopen_batch_norm": (3, 4),
    "aten::_native_batch_norm_legit": (3, 4),
    "aten::batch_norm_gather_stats": (3, 4),
    "aten::batch_norm_gather_stats_with_counts": (3, 4),
    "aten::_batch_norm_with_update": (3, 4),
    "aten::batch_norm_update_stats": (1, 2),
    "aten::rrelu_with_noise": (1,),
    "aten::_fused_moving_avg_obs_fq_helper": (3, 4, 5, 6),
    "aten::embedding_renorm_": (0,),
}
# They write every element of the argument that they change, and read none of it; as all do of their arguments out=.
_WRITERS = {
    "aten::copy_", "aten::fill_.Scalar", "aten::fill_.Tensor", "aten::zero_", "aten::normal_", "aten::uniform_",
    "aten::random_", "aten::random_.from", "aten::random_.to", "aten::bernoulli_.float", "aten::bernoulli_.Tensor",
    "aten::exponential_", "aten::cauchy_", "aten::log_normal_", "aten::geometric_", "aten::_foreach_copy_",
    "aten::_foreach_zero_",
}  # fmt: skip
# They hand out memory that they do not write.
_EMPTY = {
    "empty", "empty_like", "empty_strided", "empty_permuted", "empty_quantized", "_empty_affine_quantized",
    "_empty_per_channel_affine_quantized", "new_empty", "new_empty_strided", "_efficientzerotensor",
}  # fmt: skip
# Who computes what is done to tensors of a class.
_TORCH, FAKE, OWN = "torch", "fake", "own"
_seeded = getattr(torch.Tag, "nondeterministic_seeded", None)
_inplace_view = getattr(torch.Tag, "inplace_view", None)


class KnownOverload:
    """An overload, with what its schema and our tables say of it."""

    def __init__(self, func: Any) -> None:
        schema = func._schema  # noqa: SLF001 - has no public name
        self.base = base = str(schema.name)
        namespace, _, plain = base.partition("::")
        self.aten = namespace == "aten"
        self.outputs = len(schema.returns)
        self.name: str = base + (f".{schema.overload_name}" if schema.overload_name else "")
        tags = getattr(func, "tags", ())
        arguments = schema.arguments
        self.arguments: tuple[str, ...] = tuple(one.name for one in arguments)
        written = {
            place
            for place, one in enumerate(arguments)
            if one.alias_info is not None and one.alias_info.is_write
        }
        hidden = {place for place in _HIDDEN_CHANGES.get(base, ()) if place < len(arguments)}
        # (position, name) of the arguments that it changes.
        self.changes: tuple[tuple[int, str], ...] = tuple(
            (place, arguments[place].name) for place in sorted(written | hidden)
        )
        # Ranges of the profiler compute nothing either.
        self.view = namespace == "profiler" or (
            not written and any(one.alias_info is not None for one in schema.returns)
        )
        # Those of which it reads nothing, and writes all.
        self.overwrites = tuple(
            (place, one.name)
            for place, one in enumerate(arguments)
            if one.is_out or (place in written and self.name in _WRITERS)
        )
        self.empty = self.aten and plain in _EMPTY
        # Of ops that are not PyTorch's own nobody knows whether they draw.
        self.random = _seeded in tags or not self.aten or "rnn" in plain
        # Whether its schema may keep a change to itself, and what it returns be memory of its own; of PyTorch's own ops it is known.
        self.unsure = not self.aten
        effects = self.aten and (plain in _NO_REPLAY or _inplace_view in tags)
        speaks = "take part in communication" if namespace in _COMMUNICATION else None
        self.refused: str | None = EFFECTS if effects else speaks
        self.composite = _composite(func, self.name) if self.refused is None else None

    def changed(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
        """Return the tensors among the arguments that it changes."""
        return _at(self.changes, args, kwargs) if self.changes else []

    def overwritten(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
        """Return the tensors among the arguments that it writes wholly without reading them."""
        if not self.overwrites:
            return []
        places = dict(self.overwrites)
        names = set(places.values())
        read = among(
            [one for place, one in enumerate(args) if place not in places],
            {name: one for name, one in kwargs.items() if name not in names},
        )
        numbers = set(map(id, read))
        return [one for one in _at(self.overwrites, args, kwargs) if id(one) not in numbers]


class OpaqueOperator(KnownOverload):
    """What is called like an op and is none: a compiled region, a control-flow operator."""

    def __init__(self, func: Any) -> None:
        self.name = self.base = str(getattr(func, "name", lambda: func)())
        self.aten, self.outputs, self.unsure, self.arguments = False, 1, False, ()
        self.changes = self.overwrites = ()
        self.view = self.empty = self.random = False
        self.refused, self.composite = "are no single op", None


@cache
def known(func: Any) -> KnownOverload:
    """Return what is known of an overload; the answer is kept."""
    return (KnownOverload if isinstance(func, torch._ops.OpOverload) else OpaqueOperator)(func)  # noqa: SLF001


def _at(
    places: Sequence[tuple[int, str]], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[torch.Tensor]:
    """Return the tensors at some positions of arguments, or under their names."""
    found: list[torch.Tensor] = []
    for place, name in places:
        found += tensors(args[place] if place < len(args) else kwargs.get(name))
    return found


def owner(kind: type) -> str:
    """Tell who computes what is done to tensors of a class."""
    dispatch = getattr(kind, "__torch_dispatch__", None)
    if dispatch in {torch.Tensor.__torch_dispatch__, torch._C._disabled_torch_dispatch_impl}:  # noqa: SLF001
        return _TORCH
    # Tensors of PyTorch's tracers compute nothing.
    return FAKE if kind.__module__.startswith("torch._subclasses.f") else OWN


def tensors(value: Any) -> list[torch.Tensor]:
    """Return the tensors in an argument or in what an op returned."""
    if isinstance(value, torch.Tensor):
        return [value]
    return list(_walk(value)) if isinstance(value, (tuple, list, dict)) else []


def _walk(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _walk(item)


def among(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """Return the tensors among the arguments of a call."""
    found: list[torch.Tensor] = []
    # Asked of every op: most arguments are tensors or hold none.
    for value in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (tuple, list, dict)):
            found += _walk(value)
    return found


def generator_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.Generator | None:
    """Return the generator that an op is given; few ops take it by its position."""
    own: torch.Generator | None = kwargs.get("generator")
    return own or next((one for one in args if isinstance(one, torch.Generator)), None)


def words(given: Sequence[torch.Tensor]) -> tuple[str, ...]:
    """Return dtypes and shapes of tensors: ``float32[4, 128]``."""
    return tuple(_word(one.dtype, ("nested",) if one.is_nested else one.shape) for one in given)


@lru_cache(maxsize=10_000)
def _word(dtype: torch.dtype, shape: Sequence[int | str]) -> str:
    return f"{str(dtype).removeprefix('torch.')}[{', '.join(map(str, shape))}]"


def _by_name(
    names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    """Yield arguments with what their schema calls them."""
    for place, one in enumerate(args):
        yield (names[place] if place < len(names) else f"argument {place + 1}"), one
    yield from kwargs.items()


def scalars(names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return the arguments that are no tensors, as text."""
    return ", ".join(
        f"{name}={_scalar(one)}"
        for name, one in _by_name(names, args, kwargs)
        if not isinstance(one, torch.Tensor)
    )


def tensor_names(names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[str]:
    """Return what the tensors of ``among`` are called, those of a list by their places in it; then the generator."""
    found = []
    for name, one in _by_name(names, args, kwargs):
        inside = tensors(one)
        found += (
            [name] if isinstance(one, torch.Tensor) else [f"{name}[{place}]" for place in range(len(inside))]
        )
    return found + ["generator"] * (generator_of(args, kwargs) is not None)


def _scalar(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return "tensor"
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(_scalar, value))}]"
    # Of other objects the text may hold an address, which is another one in each process.
    plain = value is None or isinstance(
        value, (str, int, float, complex, torch.device, torch.dtype, torch.layout, torch.memory_format)
    )
    return repr(value) if plain else type(value).__name__


# --- Composite ops, which only call others: autograd takes them apart ahead of a mode, but not in inference mode


_has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key  # noqa: SLF001 - has no public name
_Key = torch._C.DispatchKey  # noqa: SLF001
_excluded = torch._C._dispatch_tls_local_exclude_set  # noqa: SLF001
_included = torch._C._dispatch_tls_local_include_set  # noqa: SLF001
# Gives back what was excluded when the op was called, ahead of autocast; where a release has none, ops stay whole.
_as_called: Any = getattr(torch._C, "_RestorePythonTLSSnapshot", None)  # noqa: SLF001
# Dispatch keys under which a composite op may have a kernel of its own.
_DEVICES = ("CPU", "CUDA", "XPU", "MPS")
# They see to conjugate and negative views, and note what was excluded when an op was called.
_LIFTED = [
    getattr(_Key, key)
    for key in ("Conjugate", "Negative", "ZeroTensor", "PythonTLSSnapshot")
    if hasattr(_Key, key)
]


def _composite(func: Any, name: str) -> Callable[..., Any] | None:
    """Return what calls the ops that a composite op is made of, as it does without a mode; ``None`` if it has a kernel.

    These ops are given to the mode that is entered. While a mode is given an op, what comes ahead of a mode is excluded:
    autocast and, or else results are wrong, what resolves conjugate views.
    """
    taken_apart = hasattr(_as_called, "__enter__") and _has_kernel(name, "CompositeImplicitAutograd")
    if not taken_apart or any(_has_kernel(name, key) for key in _DEVICES):
        return None
    # Not ``func.decompose``, which takes other kernels once the compiler's decompositions are loaded.
    op = func._op_dk  # noqa: SLF001 - has no public name
    # Where it is cast itself, what it calls is not.
    keys = [f"Autocast{device}" for device in _DEVICES]
    casts = [getattr(_Key, key) for key in keys if hasattr(_Key, key) and not _has_kernel(name, key)]

    def call(*args: Any, **kwargs: Any) -> Any:
        included, excluded = _included(), _excluded()
        with _as_called():
            asked = _excluded()
            for key in (*_LIFTED, *[key for key in casts if not asked.has(key)]):
                excluded = excluded.remove(key)
            with torch._C._ForceDispatchKeyGuard(included, excluded):  # noqa: SLF001 - has no public name
                return op(_Key.CompositeImplicitAutograd, *args, **kwargs)

    return call
