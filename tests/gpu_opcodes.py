"""Operations of PTX, each with what Python says of it: the opcodes of the engine that compute, with their modifiers, are among them.

They are rows of ``tests/data/gpu/opcodes.txt``; ``python -m tests.gpu_opcodes`` assembles them anew, where there is ptxas, and so it
does with the kernels of what one thread alone does not show (``programs.ptx.j2``).
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
from tests.gpu_machine import ARCHITECTURES, DATA, head, kernels, record, written
from tests.gpu_numbers import TABLE, THREADS, TYPES

BLOCK = 256
_PER_KERNEL = 10
SHARING, PLACES = 64, 3  # threads of a block, and the places that they update


@dataclass(frozen=True)
class Case:
    """One operation: PTX with ``$0``, ``$1``, … for its inputs and ``$r`` for its result, and what it should be.

    Attributes:
        ptx: Statements.
        inputs: Types of the inputs.
        result: Type of the result.
        expected: From Python's numbers that of the result, or None where anything goes; of packed types once for each half.
        error: By how much a result may differ, relative to it.
        since: The architecture from which on PTX has it.
        atomic: The instruction, of one that threads execute at places that they share, too: ``"atom.global.add.u32"``.
    """

    ptx: str
    inputs: tuple[str, ...]
    result: str
    expected: Callable[..., Any]
    error: float = 0
    since: int = 80
    atomic: str = ""


def _rows() -> Iterator[tuple[str, int]]:
    """Yield the rows of the table, those below a line ``for`` once for each combination of its values, and since when they are."""
    since = 80
    values: list[list[tuple[str, str]]] = []
    for line in (DATA / "opcodes.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("for "):
            named = (one.split("=") for one in line.removeprefix("for ").split(";"))
            values = [[(f"<{name.strip()}>", value) for value in given.split()] for name, given in named]
        elif line.startswith("from "):
            since = int(line.removeprefix("from "))
        elif line and line[0] != "#":
            for chosen in product(*(values if line[0] == " " else ())):
                row = line.strip()
                for name, value in chosen:
                    row = row.replace(name, value)
                yield row, since


def _atomic(ptx: str, inputs: tuple[str, ...]) -> str:
    """Return an atomic onto the first input in memory, behind which that is read; what it returns must be the first input."""
    kind, space = f"b{8 * TYPES[inputs[0]].itemsize}", ptx.split(".")[1]
    given = ", ".join(f"${k}" for k in range(1, len(inputs)))
    old = "t, " if ptx.startswith("atom") else ""
    return (
        f"{{ .reg .{kind} t; mov.{kind} t, $0; st.{space}.{kind} [%at_{space}], $0; {ptx} {old}[%at_{space}], {given}; "
        f"ld.{space}.{kind} $r, [%from_{space}]; xor.{kind} t, t, $0; or.{kind} $r, $r, t; }}"
    )


def _case(row: str, since: int) -> Case:
    ptx, signature, formula, *error = re.split(r"\s{2,}", row)
    taken, _, result = signature.partition(" > ")
    inputs = tuple(taken.split())
    atomic = ptx if ptx.startswith(("atom.", "red.")) else ""
    if atomic:
        ptx = _atomic(ptx, inputs)
    if "$" not in ptx:
        ptx = f"{ptx} $r, {', '.join(f'${k}' for k in range(len(inputs)))};"
    expected = eval(f"lambda {', '.join('abc'[: len(inputs)])}: {formula}", vars(math) | vars(gpu_numbers))
    relative = 2.0 ** int(error[0].removeprefix("2**")) if error else 0
    return Case(ptx, inputs, result, expected, relative, since, "" if ".generic." in atomic else atomic)


CASES = [_case(*row) for row in _rows()]


@cache
def groups(architecture: int = 80) -> list[tuple[tuple[str, ...], list[Case]]]:
    """Return the cases of each kernel for an architecture: those that have the same inputs, ten at most."""
    by: dict[tuple[str, ...], list[Case]] = {}
    for one in CASES:
        if one.since <= architecture:
            by.setdefault(one.inputs, []).append(one)
    return [
        (kinds, found[at : at + _PER_KERNEL])
        for kinds, found in by.items()
        for at in range(0, len(found), _PER_KERNEL)
    ]


def atomics(architecture: int = 80) -> list[Case]:
    """Return those that threads execute at places that they share, in the order of their kernels."""
    return [one for one in CASES if one.atomic and one.since <= architecture]


def _register(kind: str) -> str:
    return {"f32": "f32", "f64": "f64"}.get(kind, f"b{max(16, 8 * TYPES[kind].itemsize)}")


def _access(kind: str) -> str:
    plain = (kind[0] in "su" and "x" not in kind) or kind in {"f32", "f64"}
    return kind if plain else f"b{8 * TYPES[kind].itemsize}"


def ptx(architecture: int = 80) -> str:
    """Return the module of all cases of an architecture."""
    given = {"threads": THREADS, "block": BLOCK, "table": TABLE, "register": _register, "access": _access}
    given["shared_places"] = {"threads": SHARING, "places": PLACES}
    return head(architecture) + written(
        "opcodes", groups=groups(architecture), atomics=atomics(architecture), **given
    )


if __name__ == "__main__":
    for one in ARCHITECTURES:
        record("opcodes", ptx(one), one)
        record("programs", kernels("programs", one), one)
