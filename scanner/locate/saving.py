"""Keep the inputs of an op that differed, so that it can be executed elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from detmatrix.scanner.locate.memory.storages import substituted


def save_inputs(
    folder: str, number: int, name: str, args: Any, kwargs: Any, before: dict[int, torch.Tensor]
) -> str:
    """Write what an op was given; return where to, or why it could not be written.

    Args:
        folder: Is made if it is not there.
        number: Of the root.
        name: Of the overload.
        args: The arguments.
        kwargs: And those by name; a generator is left out.
        before: What stood in the arguments that the op changes, by their identity.
    """
    path = Path(folder, f"root-{number}-{''.join(c if c.isalnum() else '_' for c in name)}.pt")
    saved = {
        "op": name,
        "args": _plain(substituted(tuple(args), before)),
        "kwargs": {
            key: _plain(substituted(one, before)) for key, one in kwargs.items() if key != "generator"
        },
        "torch": str(torch.__version__),
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(saved, path)
    except Exception as error:  # noqa: BLE001 - the program goes on
        return f"nowhere ({type(error).__name__}: {error})"
    return f"{path} ({path.stat().st_size} bytes)"


def _plain(value: Any) -> Any:
    """Return an argument as ``torch.load(weights_only=True)`` reads it: words for layouts and memory formats."""
    if isinstance(value, torch.Tensor):
        # A view would be saved with all of the memory that it is of; strides may matter to the kernel.
        return value.detach().clone()
    if isinstance(value, (tuple, list)):
        return [_plain(one) for one in value]
    if isinstance(value, (torch.layout, torch.memory_format, torch.dtype, torch.device)):
        return {"torch": str(value)}
    return value
