"""Which rows speak to which claims: the one mapping that the documentation and the catalog's coverage share.

A condition must be stated to hold: a row without the trait ``reduce`` says nothing about ``reduce='sum'``.
"""

from __future__ import annotations

from detmatrix.scanner.accelerators import kind_of
from detmatrix.scanner.observations.records import Claim, Condition, Row

device_kind = kind_of


def matches(row: Row, claim: Claim, *, ignore_device: bool = False) -> bool:
    """Tell whether what *row* shows is something that *claim* is about."""
    return (
        claim.parsed
        and not set(names_of(row)).isdisjoint(claim.targets)
        and (ignore_device or claim.device in {"any", claimed_kind(row.device)})
        and claim.direction in {"any", row.direction}
        and all(holds(condition, row) for condition in claim.conditions)
    )


def names_of(row: Row) -> tuple[str, ...]:
    """Return the names the lists may call the row's op by, the preferred one first."""
    return row.documented or (row.spec,)


def holds(condition: Condition, row: Row) -> bool:
    """Tell whether a row is an instance of a condition."""
    match condition.kind, condition.name:
        case "dtype", _:
            return not {row.dtype, dtype_kind(row.dtype)}.isdisjoint(condition.values)
        case "input", "requires_grad":
            return (row.direction == "backward") == ("True" in condition.values)
        case "unspecified", _:
            # "In some cases", and no word of which: any row may be one of them.
            return True
    return row.traits.get(condition.name) in condition.values


def meet(one: Condition, other: Condition) -> bool:
    """Tell whether two conditions of one kind and name hold of some call at once."""
    if one.kind != "dtype":
        return not set(one.values).isdisjoint(other.values)
    # "floating" is said of float32, too.
    return any(
        value in {held, dtype_kind(held)} or held == dtype_kind(value)
        for value in one.values
        for held in other.values
    )


def is_vague(claim: Claim) -> bool:
    """Tell whether a claim leaves unsaid when it applies; a row can then confirm it, and none contradicts it."""
    return any(condition.kind == "unspecified" for condition in claim.conditions)


def claimed_kind(device: str) -> str:
    """Return the kind of device that claims speak of: a simulated GPU runs what is claimed of CUDA, and whoever tells says so."""
    kind = device_kind(device)
    return "cuda" if kind == "simulated" else kind


def dtype_kind(dtype: str) -> str:
    """Return ``floating``, ``complex``, ``integer`` or ``bool``, in the claims' words; else the dtype itself."""
    if dtype.startswith(("float", "bfloat")):
        return "floating"
    if dtype.startswith("complex"):
        return "complex"
    return "integer" if dtype.startswith(("int", "uint")) else dtype
