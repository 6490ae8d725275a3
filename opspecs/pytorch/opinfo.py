"""``op_db`` and those of ``foreach`` ops, the operator databases of PyTorch's own tests: import them in a worker only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from detmatrix.opspecs.model import MissingError
from detmatrix.opspecs.pytorch import enlarge
from detmatrix.opspecs.pytorch.database import Entry, Sample, names_of

_WHY = "An entry of PyTorch's operator database; nobody has said what in its kernel could reorder."
_UNWRITTEN = "Returns memory that was never written: what differs is what lay there before."
_NEVER_WRITTEN = "memory that was never written"
_NEVER_WRITE = {
    *("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"),
    *("resize_", "resize_as_"),
}
# Databases of ops that take lists of tensors.
_OF_LISTS = ("unary", "binary", "pointwise", "reduce", "other")
# Entries whose op writes into its first argument, though its name does not say so.
_WRITE = {"cauchy", "exponential", "geometric", "log_normal", "normal.in_place", "uniform"}
# Entries that write into tensors among their arguments which take no gradient: running means and the like.
_WRITE_BUFFERS = {
    *("_batch_norm_with_update", "_native_batch_norm_legit", "native_batch_norm"),
    *("nn.functional.batch_norm", "nn.functional.instance_norm"),
}


def _entries() -> dict[str, Entry]:
    from torch.testing._internal import common_methods_invocations as databases  # noqa: PLC0415 - takes seconds

    op_db = databases.op_db
    of_lists = [info for kind in _OF_LISTS for info in getattr(databases, f"foreach_{kind}_op_db", ())]

    # Ops that draw random numbers are called through a wrapper that seeds the generator and puts it back. Executions
    # here are seeded already, and that an op draws at all is to be seen.
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.testing._internal.") and hasattr(module, "wrapper_set_seed"):
            module.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)  # type: ignore[attr-defined]
    found = {}
    for info in (*op_db, *of_lists):
        writes = info in of_lists and info.op.__name__.endswith("_")
        entry = _entry(info, info.name, info.op, in_place=writes)
        found[entry.name] = entry
    for info in op_db:
        # Often another kernel, with an alert of its own. Entries whose own op writes are in place as they are.
        if info.inplace_variant is not None and not info.name.endswith("_"):
            entry = _entry(info, f"{info.name}_", info.inplace_variant, in_place=True)
            found.setdefault(entry.name, entry)
    return found


def _with_fresh_buffers(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call an op with copies of what it may write into."""
    args, kwargs = enlarge.mapped(
        (args, kwargs), lambda tensor: tensor if tensor.requires_grad else tensor.clone()
    )
    return op(*args, **kwargs)


def _on_cuda(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call an op whose kernel is compiled for the GPU when it is called."""
    if not any(tensor.is_cuda for tensor in enlarge.tensors(args)):
        raise MissingError("CUDA: the entry has no other kernel")
    return op(*args, **kwargs)


def _entry(info: Any, name: str, op: Callable[..., Any], *, in_place: bool) -> Entry:
    variant = f".{info.variant_test_name}" if info.variant_test_name else ""
    if info.name in _WRITE_BUFFERS:
        op = partial(_with_fresh_buffers, op)
    elif info.name.startswith("jiterator_"):
        op = partial(_on_cuda, op)
    in_place = in_place or f"{name}{variant}" in _WRITE
    return Entry(
        name=f"opinfo:{name}{variant}",
        path=_path(name, in_place=in_place),
        op=op,
        dtypes=lambda device: names_of(info.supported_dtypes, device),
        differentiable=lambda device, dtype: dtype in names_of(info.supported_backward_dtypes, device),
        samples=partial(_samples, info, in_place),
        why=_UNWRITTEN if info.name in _NEVER_WRITE else _WHY,
        in_place=in_place,
        constant=_NEVER_WRITTEN if info.name in _NEVER_WRITE else "",
    )


def _path(name: str, *, in_place: bool) -> str:
    """Return how a reader would call an entry."""
    import torch  # noqa: PLC0415

    plain = name.removeprefix("torch.")
    for root in ("torch.Tensor",) if in_place else ("torch", "torch.Tensor"):
        found: Any = torch.Tensor if root == "torch.Tensor" else torch
        for part in plain.split("."):
            found = getattr(found, part, None)
        if found is not None:
            return f"{root}.{plain}"
    return name


def _samples(info: Any, in_place: bool, device: str, dtype: str, grad: bool) -> Iterator[Sample]:
    import torch  # noqa: PLC0415

    # Not `sample_inputs`, which seeds each sample anew in some releases.
    for sample in info.sample_inputs_func(info, device, getattr(torch, dtype), grad):
        # What is broadcast has no room for the result.
        if not (in_place and sample.broadcasts_input):
            yield Sample((sample.input, *sample.args), dict(sample.kwargs))


ENTRIES = _entries()
