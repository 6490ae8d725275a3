"""What a declared spec may hold: all of it is checked before a scan rests on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_args

from detmatrix.opspecs.model import Batch, Case, Device, Direction, OpSpec

# What controls and sentinels are known by in a run file.
_OURS = ("control.", "sentinel.")


def faults(spec: OpSpec) -> Iterator[str]:
    """Yield what a spec declares that a scan could not run or record, and what to declare instead."""
    yield from _name(spec)
    if not callable(spec.op) and not (
        _is_text(spec.op) and all(part.isidentifier() for part in spec.op.split("."))
    ):
        yield f"op must be a dotted path below torch, or a function, and is {_described(spec.op)}"
    elif spec.op == spec.name and not spec.name.startswith("torch."):
        yield "op is missing: a function, or a dotted path below torch"
    yield from _wrong(spec, "why, family", _is_text, "a text")
    yield from _wrong(spec, "in_place, some_leaves", lambda value: isinstance(value, bool), "True or False")
    if not _are(spec.documented, _is_text):
        yield f"documented must be a tuple of names, such as ('torch.Tensor.put_',), and is {_described(spec.documented)}"
    if not _are(spec.directions, _is_direction) or not spec.directions:
        yield _must_be_among("directions", Direction, spec.directions)
    if not _are(spec.cuda_dtypes, _is_dtype):
        yield f"cuda_dtypes must be a tuple of names such as 'float32', and is {_described(spec.cuda_dtypes)}"
    # A spec may have rows on CUDA alone.
    if not _are(spec.dtypes, _is_dtype) or not (spec.dtypes or spec.cuda_dtypes):
        yield f"dtypes must be a tuple of names such as 'float32', and is {_described(spec.dtypes)}"
    if (
        not isinstance(spec.cases, Mapping)
        or not spec.cases
        or not all(isinstance(case, Case) for case in spec.cases.values())
    ):
        yield "cases must map names to Case(inputs=lambda t: call(...))"
    elif not all(_is_text(name) and name and ":" not in name and name.isprintable() for name in spec.cases):
        yield "the name of a case must be a text of one line without ':'"
    else:
        for name, case in spec.cases.items():
            yield from (f"case {name!r}: {fault}" for fault in _of_case(case))


def _name(spec: OpSpec) -> Iterator[str]:
    if not _is_text(spec.name) or not spec.name or ":" in spec.name or not spec.name.isprintable():
        yield "name must be a text of one line without ':', which separates the parts of a row id"
    elif spec.name.startswith(_OURS):
        yield f"names that begin with {' or '.join(_OURS)} are those of our own; give the spec another name"


def _of_case(case: Case) -> Iterator[str]:
    if not callable(case.inputs):
        yield f"inputs must be a function of t that returns call(...), and is {_described(case.inputs)}"
    yield from _wrong(case, "provokes, constant", _is_text, "a text")
    yield from _wrong(
        case, "reference", lambda value: value is None or callable(value), "a function of the call, or None"
    )
    if case.batch is not None and not _is_batch(case.batch):
        yield f"batch must be like Batch({{0: 0}}): the axis of each argument that holds one, and is {_described(case.batch)}"
    if case.directions is not None and not (_are(case.directions, _is_direction) and case.directions):
        yield _must_be_among("directions", Direction, case.directions)
    if case.dtypes is not None and not (_are(case.dtypes, _is_dtype) and case.dtypes):
        yield f"dtypes must be a tuple of names such as 'float32', and is {_described(case.dtypes)}"
    if not _are(case.devices, lambda value: value in get_args(Device)) or not case.devices:
        yield _must_be_among("devices", Device, case.devices)
    if not isinstance(case.traits, Mapping) or not _are([*case.traits, *case.traits.values()], _is_text):
        yield f"traits must map texts to texts, such as {{'accumulate': 'True'}}, and is {_described(case.traits)}"


def _wrong(one: OpSpec | Case, fields: str, right: Callable[[Any], bool], what: str) -> Iterator[str]:
    for name in fields.split(", "):
        if not right(value := getattr(one, name)):
            yield f"{name} must be {what}, and is {_described(value)}"


def _must_be_among(name: str, choices: Any, value: Any) -> str:
    known = get_args(choices)
    return f"{name} must be a tuple of names among {', '.join(known)}, such as ({known[0]!r},), and is {_described(value)}"


def _described(value: Any) -> str:
    """Return a value as its declaration may have it, cut short."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - an object of the user's may fail at this too
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."  # noqa: PLR2004


def _are(values: Any, right: Callable[[Any], bool]) -> bool:
    """Tell whether something is a sequence of what is right; a set has another order in every process."""
    return isinstance(values, (tuple, list)) and all(map(right, values))


def _is_batch(value: Any) -> bool:
    held = value.inputs if isinstance(value, Batch) else None
    return (
        isinstance(held, Mapping)
        and bool(held)
        and all(isinstance(name, (int, str)) for name in held)
        and all(isinstance(axis, int) for axis in (*held.values(), value.outputs))
    )


def _is_direction(value: Any) -> bool:
    return value in get_args(Direction)


def _is_text(value: Any) -> bool:
    """Tell whether something is a text that a file can hold."""
    return isinstance(value, str) and not any("\ud800" <= char <= "\udfff" for char in value)


def _is_dtype(value: Any) -> bool:
    # Which there are, the scanned torch knows: a row with another one is not run.
    return isinstance(value, str) and value.isidentifier()
