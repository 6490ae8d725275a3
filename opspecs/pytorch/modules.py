"""``module_db``, the database of modules that PyTorch's own tests are made of: import it in a worker only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from detmatrix.opspecs.pytorch.database import Entry, Sample, names_of

_WHY = "An entry of PyTorch's database of modules; nobody has said what in its kernels could reorder."


def run(module: Any, state: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
    """Call a module with these parameters and buffers in place of its own; neither are changed by it."""
    import torch  # noqa: PLC0415

    buffers = {name for name, _ in module.named_buffers()}
    fresh = {name: tensor.clone() if name in buffers else tensor for name, tensor in state.items()}
    return torch.func.functional_call(module, fresh, args, kwargs)


def _entries() -> dict[str, Entry]:
    from torch.testing._internal.common_modules import module_db  # noqa: PLC0415 - takes seconds

    found = {}
    for info in module_db:
        entry = Entry(
            name=f"module:{info.name}",
            path=f"torch.{info.name}",
            op=run,
            dtypes=partial(names_of, info.supported_dtypes),
            differentiable=lambda _, dtype: dtype.startswith(("float", "bfloat", "complex")),
            samples=partial(_samples, info),
            why=_WHY,
        )
        found[entry.name] = entry
    return found


def _samples(info: Any, device: str, dtype: str, grad: bool) -> Iterator[Sample]:
    import torch  # noqa: PLC0415

    kind = getattr(torch, dtype)
    for drawn in info.module_inputs_func(info, device=device, dtype=kind, requires_grad=grad, training=True):
        made, given = drawn.constructor_input, drawn.forward_input
        module = info.module_cls(*made.args, **made.kwargs).to(device).to(kind).train()
        if info.is_lazy:
            # A lazy module learns the shapes of its parameters from what it is called with first.
            with torch.no_grad():
                module(*given.args, **given.kwargs)
        state = {
            **{name: value.detach().requires_grad_(grad) for name, value in module.named_parameters()},
            **{name: value.detach() for name, value in module.named_buffers()},
        }
        yield Sample((module, state, *given.args), dict(given.kwargs), fixed=2)


ENTRIES = _entries()
