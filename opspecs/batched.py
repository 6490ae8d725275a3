"""Cases that hold a batch of items, of what serving engines compute: an item's bits should not depend on its neighbours.

A batch is larger than any of the sizes that a scan tries, so that each of them is a part of it, and no power of two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from detmatrix.opspecs.inputs import Inputs
from detmatrix.opspecs.model import Batch, Call, Case, Direction

ITEMS = 48


def batched(
    inputs: Callable[[Inputs], Call],
    provokes: str,
    held: Mapping[int | str, int] | None = None,
    outputs: int = 0,
    directions: tuple[Direction, ...] = ("forward", "backward"),
) -> Case:
    """Return a case in the dtypes that models are served in, of a batch of ``ITEMS``.

    *held* is the axis of the batch in each argument that holds it, by default the first of the first argument.
    """
    return Case(
        inputs,
        provokes,
        directions=directions,
        dtypes=("float32", "bfloat16", "float16"),
        batch=Batch({0: 0} if held is None else held, outputs),
        on_request=True,
    )
