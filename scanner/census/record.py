"""The record of a census, and what each field means: JSON, one build per file.

Nothing in it depends on the machine that took it. Ids are made of the library, what is called and the function's
short name, so that those of two builds can be held against each other.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from scanner.errors import BuildError
from scanner.observations.files import RecordKind, read_record, readable
from scanner.observations.records import Count, Record

# Census format history:
#
# 1: the build, its libraries, alerts, what checks the flag, Python places, kernels.
# 2: the rule set it was made by; a file of format 1 is of the first.
FORMAT = 2
# The rule sets that censuses were made by, the last is today's. A rule that changes what a census holds of the same build
# adds one.
RULE_SETS = ("as first recorded",)
MAX_BYTES = 256 << 20
_OPENING = 256  # bytes that tell a census from other files

# call     an ordinary call
# jump     the call was made a jump, because nothing follows it in the function
# address  the address was taken: who calls through it cannot be seen
Via = Literal["call", "jump", "address"]

# always       every way from the function's start to a return passes the call
# conditional  at least one way from the function's start to a return does not
# unknown      the machine code does not say: a computed jump may lead past it, or no way to the call was found
Path_ = Literal["always", "conditional", "unknown"]


class Library(Record, frozen=True):
    """One shared library that was read."""

    name: str
    bytes: Count
    build_id: str | None  # hexadecimal, from the note that the linker wrote
    code_bytes: Count
    functions: Count  # that have a symbol


class AlertSite(Record, frozen=True):
    """One place in machine code that raises an alert."""

    id: str
    library: str
    api: str  # "alertNotDeterministic" or "alertCuBLASConfigNotDeterministic"
    alert: str | None  # the caller that the alert's text names; None: it could not be recovered
    unresolved: str | None  # why it could not
    path: Path_
    via: Via
    function: str | None  # short; None: no symbol covers the place
    signature: str | None  # demangled in full; the symbol itself where it cannot be
    symbol: str | None
    address: Count  # of the instruction, as the library numbers its code


class FlagSite(Record, frozen=True):
    """One function, as compiled, that asks."""

    signature: str
    symbol: str
    calls: Annotated[int, Meta(ge=1)]


class FlagCheck(Record, frozen=True):
    """Functions of one short name (overloads, instances of a template) that ask for one flag."""

    id: str
    library: str
    flag: str  # the member of at::Context: "deterministicAlgorithms", "deterministicCuDNN", ...
    function: str
    calls: Annotated[int, Meta(ge=1)]
    places: tuple[FlagSite, ...]


class PythonPlace(Record, frozen=True):
    """One place in a Python file that checks a flag or raises an alert."""

    id: str
    kind: Literal["asks", "alerts"]
    name: str  # what stands there: "are_deterministic_algorithms_enabled"
    alert: str | None  # of an alert: the caller, where it is written as a literal
    file: str  # within the package: "torch/_meta_registrations.py"
    line: Annotated[int, Meta(ge=1)]
    function: str  # the function around it; "<module>" where there is none


class UnreadFile(Record, frozen=True):
    """A Python file that speaks of determinism and could not be parsed."""

    file: str
    reason: str


class Kernel(Record, frozen=True):
    """A CUDA kernel whose machine code has floating-point atomics."""

    kernel: str  # demangled in full; the symbol itself where it cannot be
    symbol: str
    operations: dict[str, int]  # "RED.E.ADD.F32" -> how many


class KernelCode(Record, frozen=True):
    """What the disassembler said of the kernels for one architecture."""

    arch: str
    library: str
    tool: str  # the disassembler's own line about its version
    total: Count  # kernels looked at
    failed: tuple[str, ...]  # parts of the library that the disassembler could not read
    floating: tuple[Kernel, ...]
    compare_and_swap: Count  # further kernels with compare-and-swap alone, which may be floating-point loops


class Counts(Record, frozen=True):
    """The census in figures."""

    alert_sites: Count
    alert_strings: Count  # distinct ones
    unresolved: Count  # sites whose string could not be recovered
    asking_functions: Count  # functions as compiled that ask for any flag
    ask_calls: Count
    python_places: Count


class Census(Record, frozen=True, kw_only=True):
    """A census of one build."""

    kind: Literal["census"] = "census"
    format: Annotated[int, Meta(ge=1)]
    tool: str  # "detmatrix 0.1.0"
    rules: Annotated[int, Meta(ge=1)] = 1  # which of the rule sets
    torch: str
    torch_git: str | None
    cuda: str | None
    source: str  # the wheel's file name, or "installed"
    libraries: tuple[Library, ...]
    counts: Counts
    alerts: tuple[AlertSite, ...]
    asks: tuple[FlagCheck, ...]
    python: tuple[PythonPlace, ...]
    python_unread: tuple[UnreadFile, ...]
    kernels: KernelCode | None = None  # None: not looked at


KIND = RecordKind(
    "census",
    "census",
    "detmatrix census",
    FORMAT,
    len(RULE_SETS),
    MAX_BYTES,
    "take the census again",
    BuildError,
)


def encode(census: Census) -> str:
    """Return the record as JSON, with the same bytes for the same census."""
    return json.dumps(msgspec.to_builtins(census), indent=1, ensure_ascii=True) + "\n"


def read_census(path: str | Path) -> Census:
    """Read a recorded census; a name that ends in ``.gz`` is read compressed.

    Raises:
        BuildError: The file cannot be read, is none, is damaged, or has a newer format.
    """
    return read_record(path, Census, KIND)


def is_census(path: str | Path) -> bool:
    """Tell whether a file opens as a census does; of one that cannot be read, that it is none."""
    try:
        with readable(Path(path), "detmatrix census", BuildError) as file:
            return re.match(rb'\s*\{\s*"kind"\s*:\s*"census"', file.read(_OPENING)) is not None
    except BuildError:
        return False
