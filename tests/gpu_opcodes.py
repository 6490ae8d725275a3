"""Operations of PTX, each with what Python says of it: the opcodes of the engine that compute, with their modifiers, are among them.

They are rows of ``tests/data/gpu/opcodes.txt``; ``python -m tests.gpu_opcodes`` assembles them anew, where there is ptxas.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

from tests import gpu_numbers
from tests.gpu_machine import DATA, HEAD, record, written
from tests.gpu_numbers import THREADS, TYPES

BLOCK = 256
_PER_KERNEL = 10


@dataclass(frozen=True)
class Case:
    """One operation: PTX with ``$0``, ``$1``, … for its inputs and ``$r`` for its result, and what it should be.

    Attributes:
        ptx: Statements.
        inputs: Types of the inputs.
        result: Type of the result.
        expected: From Python's numbers that of the result, or None where anything goes; of packed types once for each half.
        error: By how much a result may differ, relative to it.
    """

    ptx: str
    inputs: tuple[str, ...]
    result: str
    expected: Callable[..., Any]
    error: float = 0


def _rows() -> Iterator[str]:
    """Yield the rows of the table, those below a line ``for`` once for each combination of its values."""
    values: list[list[tuple[str, str]]] = []
    for line in (DATA / "opcodes.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("for "):
            named = (one.split("=") for one in line.removeprefix("for ").split(";"))
            values = [[(f"<{name.strip()}>", value) for value in given.split()] for name, given in named]
        elif line and line[0] != "#":
            for chosen in product(*(values if line[0] == " " else ())):
                row = line.strip()
                for name, value in chosen:
                    row = row.replace(name, value)
                yield row


def _case(row: str) -> Case:
    ptx, signature, formula, *error = re.split(r"\s{2,}", row)
    taken, _, result = signature.partition(" > ")
    inputs = tuple(taken.split())
    if "$" not in ptx:
        ptx = f"{ptx} $r, {', '.join(f'${k}' for k in range(len(inputs)))};"
    expected = eval(f"lambda {', '.join('abc'[: len(inputs)])}: {formula}", vars(math) | vars(gpu_numbers))
    return Case(ptx, inputs, result, expected, 2.0 ** int(error[0].removeprefix("2**")) if error else 0)


CASES = [_case(row) for row in _rows()]


@cache
def groups() -> list[tuple[tuple[str, ...], list[Case]]]:
    """Return the cases of each kernel: those that have the same inputs, ten at most."""
    by: dict[tuple[str, ...], list[Case]] = {}
    for one in CASES:
        by.setdefault(one.inputs, []).append(one)
    return [
        (kinds, found[at : at + _PER_KERNEL])
        for kinds, found in by.items()
        for at in range(0, len(found), _PER_KERNEL)
    ]


def _register(kind: str) -> str:
    return {"f32": "f32", "f64": "f64"}.get(kind, f"b{max(16, 8 * TYPES[kind].itemsize)}")


def _access(kind: str) -> str:
    return kind if kind[0] in "su" or kind in {"f32", "f64"} else f"b{8 * TYPES[kind].itemsize}"


def ptx() -> str:
    """Return the module of all cases."""
    return HEAD + written("opcodes", groups=groups(), threads=THREADS, register=_register, access=_access)


if __name__ == "__main__":
    record("opcodes", ptx())
