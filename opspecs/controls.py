"""Controls and sentinels: ops whose answer is known, run in every scan by the same engine as every other op.

A control that answers wrongly means that the scan cannot see, or sees what is not there; ``detmatrix.scanner.verdicts.controls`` says
what each must answer. A sentinel differs wherever anything can race at all: where it does not, neither could a row.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from detmatrix.opspecs.inputs import Inputs
from detmatrix.opspecs.model import BOTH, FORWARD, Batch, Call, Case, OpSpec, call

if TYPE_CHECKING:
    import torch

# Of the rare control: the chance of an execution to differ, and what its schedule is drawn from.
RARE_RATE = 0.1
RARE_SEED = 4
FLIPS = "Flips low bits of one element, other ones each time."


def schedule(seed: int = RARE_SEED) -> Iterator[bool]:
    """Yield for each execution whether it differs: never the first, each later one with ``RARE_RATE``, by a generator of its own."""
    draws = random.Random(seed)  # noqa: S311 - a schedule, not a secret
    yield False
    while True:
        yield draws.random() < RARE_RATE


def constant(x: torch.Tensor) -> torch.Tensor:
    """Give the same bits each time."""
    return x * 3


def varies(x: torch.Tensor, numbers: Iterator[int]) -> torch.Tensor:
    """Give other bits each time: in the last element alone, by one unit in the last place and more."""
    import torch  # noqa: PLC0415 - specs load without it

    result = x.clone()
    result.view(torch.int32)[-1] ^= next(numbers)
    return result


def rare(x: torch.Tensor, differs: Iterator[bool]) -> torch.Tensor:
    """Give other bits when the schedule says so: the sign of one element."""
    result = x.clone()
    if next(differs):
        result[0] = -result[0]
    return result


def by_threads(x: torch.Tensor) -> torch.Tensor:
    """Give other bits with every number of threads."""
    import torch  # noqa: PLC0415

    return x * (1 + torch.get_num_threads())


def by_size(x: torch.Tensor) -> torch.Tensor:
    """Give other bits with every size of the batch, and so does the gradient."""
    return x * (1 + x.shape[0])


def by_place(x: torch.Tensor) -> torch.Tensor:
    """Give other bits in each place of the batch."""
    import torch  # noqa: PLC0415

    return x * torch.arange(1, 1 + x.shape[0], device=x.device)[:, None]


def by_layout(x: torch.Tensor) -> torch.Tensor:
    """Give other bits in every layout."""
    return x * (1 + sum(place * step for place, step in enumerate(x.stride())))


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        name="control.constant",
        op=constant,
        why="Elementwise: there is no order to choose.",
        cases={"plain": Case(lambda t: call(t.normal(4096)))},
    ),
    OpSpec(
        name="control.varies",
        op=varies,
        why=FLIPS,
        cases={"each_time": Case(lambda t: call(t.normal(4096), itertools.count()))},
    ),
    OpSpec(
        name="control.rare",
        op=rare,
        why="Flips one sign bit in a tenth of the executions, by a schedule that is known.",
        cases={"known_rate": Case(lambda t: call(t.normal(4096), schedule()))},
    ),
    OpSpec(
        name="control.uninitialised",
        op="torch.empty",
        why="Returns memory that was never written, which the flag has filled.",
        cases={"small": Case(lambda t: call(2048, dtype=t.dtype, device=t.device))},
    ),
    OpSpec(
        name="control.random",
        op="torch.rand",
        why="Draws from the generator, which is seeded before every execution.",
        cases={"uniform": Case(lambda t: call(4096, device=t.device))},
    ),
    OpSpec(
        name="control.alerts",
        op="torch.Tensor.put_",
        why="Raises PyTorch's alert with the flag on, on every device and in every release.",
        cases={"no_duplicates": Case(lambda t: call(t.normal(64), t.permutation(64), t.normal(64)))},
        in_place=True,
    ),
)


def chain(x: torch.Tensor) -> torch.Tensor:
    """Give each element by itself."""
    return ((x * 3 + 1).abs() + 0.5).reciprocal()


def scattered(x: torch.Tensor, index: torch.Tensor, added: torch.Tensor) -> torch.Tensor:
    """Add to elements, some of them to one."""
    return x.scatter_add(0, index, added)


def stored(x: torch.Tensor, index: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Store into elements, several into one."""
    return x.scatter(0, index, values)


def unwritten(size: int, **made: Any) -> torch.Tensor:
    """Compute with memory that nobody wrote."""
    import torch  # noqa: PLC0415

    return torch.empty(size, **made) + 1


def shifted(x: torch.Tensor) -> torch.Tensor:
    """Add each element to the next one in place: threads read what others write, and this op does not look at overlaps."""
    import torch  # noqa: PLC0415

    result = x.clone()
    torch._foreach_add_([result[1:]], [result[:-1]])
    return result


def _pairs(t: Inputs, slots: int) -> Call:
    """Return 2²⁴ and then -2²⁴ for each slot, which holds 1: added in this order they leave 0, in the other one 1.

    A block scatters 1024 elements, and its threads take turns: with 1024 slots the two of a slot come from two blocks, with 32
    from two warps of one, with 1 from two lanes.
    """
    import torch  # noqa: PLC0415

    index = torch.arange(slots).repeat(2)
    large = torch.full((slots,), 2.0**24)
    return call(*(one.to(t.device) for one in (torch.ones(slots), index, torch.cat([large, -large]))))


def _block_pairs(t: Inputs) -> Call:
    return _pairs(t, 1024)


def _integers(t: Inputs) -> Call:
    return call(t.index(4, high=9), 0, t.index(256, high=4), t.index(256, high=100))


def _accumulated(t: Inputs) -> Call:
    return call(t.normal(4), (t.index(64, high=4),), t.mixed(64), accumulate=True)


def _size(t: Inputs) -> Call:
    return call(64, dtype=t.dtype, device=t.device)


def _swamped(t: Inputs) -> Call:
    """Return 2²⁴ and numbers of which only those of several tiles together are large enough to be added to it."""
    import torch  # noqa: PLC0415

    numbers = torch.full((8000,), 2.0**-11)
    numbers[0] = 2.0**24
    return call(numbers.to(t.device), 0)


def _near_one(t: Inputs) -> Call:
    """Return factors that all round."""
    import torch  # noqa: PLC0415

    return call(torch.linspace(0.99, 1.01, 10_000).to(t.device), 0)


# Of a simulated GPU, where they are asked in place of the others; ``detmatrix.scanner.verdicts.controls`` says of each which class of
# schedules must give other bits, or that it is proved that none does. What differs does so whatever the seed.
SIMULATED_CONTROLS: tuple[OpSpec, ...] = tuple(
    OpSpec(name=f"control.{name}", op=op, why=why, cases={"one": Case(inputs)})
    for name, op, inputs, why in (
        ("elementwise", chain, lambda t: call(t.normal(4096)), "There is no order to choose."),
        (
            *("barriers", "torch.sum", lambda t: call(t.mixed(4, 512), 1)),
            "Each block adds its rows up between barriers, which leave no order to choose.",
        ),
        (
            *("last_block", "torch.sum", lambda t: call(t.mixed(64).expand(2048, 64))),
            "The block that comes last, by a counter, adds up what all blocks left, in their order.",
        ),
        (
            *("integer_scan", "torch.cumsum", lambda t: call(t.index(6000, high=100), 0)),
            "Tiles wait for those before them and take what is there; integers do not round.",
        ),
        (
            *("radix_sort", "torch.sort", lambda t: call(t.index(3000, high=100).byte())),
            "Counts digits and moves what it sorts, with barriers between.",
        ),
        ("integer_atomics", "torch.scatter_add", _integers, "Atomic additions of integers, which commute."),
        ("accumulate", "torch.index_put", _accumulated, "Sorts indices, then each sum is one thread's."),
        ("atomics", scattered, _block_pairs, "Two blocks add to each element by atomic additions."),
        ("warp_atomics", scattered, lambda t: _pairs(t, 32), "Two warps of a block add to each element."),
        ("lane_atomics", scattered, lambda t: _pairs(t, 1), "Two lanes of a warp add to one element."),
        (
            *("scan", "torch.cumsum", _swamped),
            "Tiles wait for those before them and add up what is there, and the order of that rounds.",
        ),
        ("products", "torch.cumprod", _near_one, "The same, and the flag changes nothing."),
        ("stores", stored, _block_pairs, "Two blocks store into each element, and the last one stays."),
        ("unwritten", unwritten, _size, "Computes with memory that nobody wrote, which the flag has filled."),
        ("read_write", shifted, lambda t: call(t.normal(512)), "Threads read what others write."),
    )
)

_IMAGE = {"image": Case(lambda t: call(t.leaf(t.normal(48, 2, 4, 8))), batch=Batch({0: 0}))}
_ROWS = {"rows": Case(lambda t: call(t.leaf(t.normal(48, 8))), batch=Batch({0: 0}))}
_FLIPPED = Case(lambda t: call(t.normal(48), itertools.count()), batch=Batch({0: 0}))

# Asked where a scan asks for invariance; ``detmatrix.scanner.verdicts.invariance`` says where each must give other bits.
INVARIANCE_CONTROLS: tuple[OpSpec, ...] = tuple(
    OpSpec(name=f"control.{name}", op=op, why=why, directions=directions, cases=cases)
    for name, op, why, directions, cases in (
        ("invariant", constant, "Elementwise: threads, batch and layout decide nothing.", BOTH, _IMAGE),
        ("unrepeatable", varies, FLIPS, FORWARD, {"each_time": _FLIPPED}),
        ("by_threads", by_threads, "Multiplies by the number of threads.", FORWARD, _ROWS),
        ("by_size", by_size, "Multiplies by the number of items.", BOTH, _ROWS),
        ("by_place", by_place, "Multiplies each item by its place.", FORWARD, _ROWS),
        ("by_layout", by_layout, "Multiplies by a sum of the strides.", FORWARD, _IMAGE),
    )
)

# Of the CPU, and of accelerators.
SENTINELS: dict[str, OpSpec] = {
    # With float32 and two threads or more, additions into one slot arrive in any order (aten TensorAdvancedIndexing,
    # cpu_index_put: accumulate adds atomically).
    "cpu": OpSpec(
        name="sentinel.index_put",
        op="torch.index_put",
        why="Parallel atomic additions into 64 slots.",
        cases={
            "race": Case(
                lambda t: call(t.normal(64), (t.index(1 << 16, high=64),), t.normal(1 << 16), accumulate=True)
            )
        },
    ),
    # atomicAdd: https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/cuda/ScatterGatherKernel.cu
    "accelerator": OpSpec(
        name="sentinel.scatter_add",
        op="torch.scatter_add",
        why="Atomic additions into 64 slots.",
        cases={"race": Case(lambda t: call(t.normal(64), 0, t.index(1 << 20, high=64), t.normal(1 << 20)))},
    ),
}
