"""Ask of one case whether a property changes its bits: execute it at each value, and hold it against the case as it is.

The values of a property at which a case is tried are each a way to execute it, and what it is to give there.
"""

from __future__ import annotations

import contextlib
import itertools
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple

import torch

from detmatrix.opspecs.model import Batch, OpSpec
from detmatrix.opspecs.pytorch.enlarge import mapped
from detmatrix.scanner.invariance import (
    EXECUTIONS,
    EXECUTIONS_IF_OTHER,
    LAYOUTS,
    POSITIONS,
    SIZES,
    THREADS,
    Property,
)
from detmatrix.scanner.plurals import several
from detmatrix.scanner.worker import bits
from detmatrix.scanner.worker.comparison import OutputComparison
from detmatrix.scanner.worker.execution import (
    Execution,
    InvalidCaseError,
    NotRunnableError,
    attempt,
    first_line,
    tensors_in,
)
from detmatrix.scanner.worker.threads import thread_count

_SEED = 0  # of the order in which items are permuted
_IMAGES = {4: torch.channels_last, 5: torch.channels_last_3d}


class NotAskedError(NotRunnableError):
    """The property cannot be asked of this case; the text says why."""


class Variant(NamedTuple):
    """One value of a property."""

    name: str  # "3", "8 last", "transposed args[0]"
    prepare: Callable[[], Execution]
    # What of the baseline's output, or of a gradient, is to come out.
    expected: Callable[[Any], Any] = lambda value: value
    around: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext


class Variants(NamedTuple):
    """The values of a property, and what they are held against."""

    baseline: Execution
    named: str  # the baseline in words: "2 threads", "48 items", "the inputs as drawn"
    left_out: tuple[str, ...]  # gradients that say nothing of the property
    tried: list[Variant]


def variants_of(what: Property, execution: Execution, batch: Batch | None) -> Variants:
    """Return the values at which a case is tried; raise why it cannot be asked."""
    if what == "threads":
        return _threads(execution)
    return _layouts(execution) if what == "layout" else _batches(execution, batch)


def _threads(execution: Execution) -> Variants:
    if execution.device != "cpu":
        raise NotAskedError("threads are those of a CPU")
    own = torch.get_num_threads()
    tried = [
        Variant(str(count), lambda: execution, around=partial(_with_threads, count))
        for count in THREADS
        if count != own
    ]
    return Variants(execution, several(own, "thread"), (), tried)


@contextlib.contextmanager
def _with_threads(count: int) -> Iterator[None]:
    """Let OpenMP and MKL split their work among so many threads, which may be more than there are cores.

    A process that is started with ``OMP_NUM_THREADS`` above the cores is given fewer by MKL; this call is not.
    """
    with thread_count(count):
        if torch.get_num_threads() != count:
            raise NotAskedError(f"torch has {torch.get_num_threads()} threads when asked for {count}")
        yield


def _batches(execution: Execution, batch: Batch | None) -> Variants:
    if batch is None:
        raise NotAskedError("its spec declares no batch")
    axes = _batch_axes(execution, batch)
    items = {held.shape[axis] for held, axis in axes.values()}
    if len(items) != 1:
        raise NotAskedError(f"its inputs disagree about the number of items: {sorted(items)}")
    (count,) = items
    kept = [leaf for leaf in execution.leaves if id(leaf) in axes]
    if execution.backward and not kept:
        raise NotAskedError("all of its gradients are summed over the batch")
    names = dict(zip(map(id, execution.leaves), execution.leaf_names, strict=True))
    left_out = tuple(f"grad of {names[id(leaf)]}" for leaf in execution.leaves if id(leaf) not in axes)
    baseline = execution.changed({}, leaves=kept)

    def variant(name: str, places: torch.Tensor) -> Variant:
        places = places.to(execution.device)

        def prepare() -> Execution:
            changed = {key: picked(held, axis, places) for key, (held, axis) in axes.items()}
            upstream = [picked(one, batch.outputs, places) for one in baseline.gradients_given()]
            return execution.changed(changed, leaves=kept, upstream=upstream)

        def expected(value: Any) -> Any:
            if not execution.backward:
                return mapped(value, lambda one: picked(one, batch.outputs, places))
            # The gradient of an input has its batch where the input has it.
            return [picked(one, axes[id(leaf)][1], places) for one, leaf in zip(value, kept, strict=True)]

        return Variant(name, prepare, expected)

    order = torch.randperm(count, generator=torch.Generator().manual_seed(_SEED))
    places = {
        "first": torch.arange,
        "middle": lambda size: torch.arange(size) + (count - size) // 2,
        "last": lambda size: torch.arange(size) + count - size,
        "permuted": lambda size: order[:size],
    }
    tried = [
        variant(f"{size} {position}", places[position](size))
        for position in POSITIONS
        for size in SIZES
        if size < count
    ]
    return Variants(baseline, f"{count} items", left_out, [*tried, variant(f"{count} permuted", order)])


def _batch_axes(execution: Execution, batch: Batch) -> dict[int, tuple[torch.Tensor, int]]:
    """Return the tensors that hold the batch, each with the axis along which it does, by identity."""
    axes: dict[int, tuple[torch.Tensor, int]] = {}
    for name, axis in batch.inputs.items():
        argument = execution.call.args[name] if isinstance(name, int) else execution.call.kwargs[name]
        axes |= {id(tensor): (tensor, axis) for tensor in tensors_in(argument)}
    return axes


def picked(tensor: torch.Tensor, axis: int, places: torch.Tensor) -> torch.Tensor:
    """Return some items along an axis in memory of their own, laid out in the order of the original's strides."""
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    chosen = tensor.detach().permute(order).index_select(order.index(axis % tensor.dim()), places)
    return chosen.permute([order.index(one) for one in range(tensor.dim())])


def _layouts(execution: Execution) -> Variants:
    tried = [
        Variant(f"{layout} {name}", partial(_with_layout, execution, tensor, layout))
        for name, tensor in _laid_out(execution)
        for layout in LAYOUTS
        if _relaid(tensor, layout) is not None
    ]
    if not tried:
        raise NotAskedError("it has no floating-point input that could be laid out otherwise")
    return Variants(execution, "the inputs as drawn", (), tried)


def _with_layout(execution: Execution, tensor: torch.Tensor, layout: str) -> Execution:
    other = _relaid(tensor, layout)
    return execution.changed({} if other is None else {id(tensor): other})


def _laid_out(execution: Execution) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the strided floating-point tensors among the arguments; one that is written into is cloned anyway."""
    for name, tensor in execution.named_arguments():
        numbers = tensor.is_floating_point() or tensor.is_complex()
        written = execution.in_place and name == "args[0]"
        if numbers and tensor.layout == torch.strided and not tensor.is_quantized and not written:
            yield name, tensor


def _relaid(tensor: torch.Tensor, layout: str) -> torch.Tensor | None:
    """Return the same values in another layout; ``None`` where they have it already, or cannot have it."""
    plain = tensor.detach()
    if layout == "contiguous":
        other = plain.contiguous()
    elif layout == "transposed" and plain.dim() > 1:
        other = plain.transpose(-1, -2).contiguous().transpose(-1, -2)
    elif layout == "channels_last" and plain.dim() in _IMAGES:
        other = plain.contiguous(memory_format=_IMAGES[plain.dim()])
    elif layout == "sliced" and plain.dim():
        wider = plain.new_zeros((*plain.shape[:-1], plain.shape[-1] + 2))
        other = wider[..., 1:-1]
        other.copy_(plain)
        return other
    else:
        return None
    steps = [
        (one, two)
        for one, two, size in zip(plain.stride(), other.stride(), plain.shape, strict=True)
        if size > 1
    ]
    return other if any(one != two for one, two in steps) else None


def measure(
    spec: OpSpec,
    case: str,
    *,
    property: Property,  # noqa: A002 - the word of the command line
    max_time: float,
    **drawn: Any,
) -> dict[str, Any]:
    """Try a case at each value of a property and return fields of ``records.Invariance``."""
    deadline = time.perf_counter() + max_time

    def use(execution: Execution) -> dict[str, Any]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _measure(property, variants_of(property, execution, spec.cases[case].batch), deadline)

    return attempt(use, spec, case, **drawn)


def _measure(what: Property, variants: Variants, deadline: float) -> dict[str, Any]:
    baseline = variants.baseline
    baseline.reseed()
    fresh = baseline.random_state()
    output, gradients = baseline()
    value = gradients if baseline.backward else output  # what is compared
    drew = any(not torch.equal(old, new) for old, new in zip(fresh, baseline.random_state(), strict=True))
    if drew and what == "batch":
        raise NotAskedError("it draws random numbers, and which item gets which depends on the batch")
    first = baseline.parts(value, value)[1]
    if not sum(tensor.numel() for _, tensor in first):
        raise InvalidCaseError("there is nothing to compare: no output has elements")
    again = OutputComparison(first, 3 * EXECUTIONS_IF_OTHER)
    for number in range(1, EXECUTIONS_IF_OTHER):
        again.add(number, _executed(baseline))
    tried = [_tried(variant, baseline, value, deadline) for variant in variants.tried]
    # What an op leaves behind may be other bits from then on.
    again.add(EXECUTIONS_IF_OTHER, _executed(baseline))
    again.settle()
    return {
        "outcome": "ran",
        "baseline": variants.named,
        "left_out": variants.left_out,
        "executions": EXECUTIONS_IF_OTHER + 1,
        "differing": again.differing,
        "trials": tried,
    }


def _tried(variant: Variant, baseline: Execution, value: Any, deadline: float) -> dict[str, Any]:
    """Execute a case at one value: often, where its bits are not those of the baseline."""
    if time.perf_counter() > deadline:
        return {"value": variant.name, "outcome": "not_tried", "message": "the time was over"}
    try:
        with variant.around():
            return {"value": variant.name, **_compared(variant, baseline, value)}
    except NotAskedError as error:
        return {"value": variant.name, "outcome": "not_tried", "message": str(error)}
    except Exception as error:  # noqa: BLE001 - what an op raises at one value is an answer
        return {"value": variant.name, "outcome": "raised", "message": first_line(error)}


def _compared(variant: Variant, baseline: Execution, value: Any) -> dict[str, Any]:
    execution = variant.prepare()
    expected = variant.expected(value)
    compare = OutputComparison(baseline.parts(expected, expected)[1], EXECUTIONS_IF_OTHER + 1)
    for number in itertools.count(1):
        compare.add(number, _executed(execution))
        if number == EXECUTIONS:
            compare.settle()
        if number >= (EXECUTIONS_IF_OTHER if compare.differing else EXECUTIONS):
            break
    result = compare.result()
    once = compare.differing == number and len(result["digests"]) == 2  # noqa: PLR2004 - the baseline's and another
    return {
        "outcome": ("varies" if once else "not_repeatable") if compare.differing else "same",
        "executions": number,
        "outputs": [one for one in result["outputs"] if one["differing"]],
    }


def _executed(execution: Execution) -> list[bits.Part]:
    execution.reseed()
    return execution.parts(*execution())[1]
