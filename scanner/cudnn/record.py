"""The record of what a cuDNN says of its engines, and what each field means: JSON, one cuDNN per file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from detmatrix.scanner.cudnn.problems import Description, Operation, Problem
from detmatrix.scanner.errors import BuildError
from detmatrix.scanner.observations.opening import RecordKind, read_record
from detmatrix.scanner.observations.records import Count, Record

# Format history:
#
# 1: the library, the GPUs, the problems, the cells.
# 2: attention, and how the GPUs were described; what the executions of an engine came to.
FORMAT = 2
NONDETERMINISTIC = "NONDETERMINISTIC"

# stub     no driver was there; a stand-in for it was compiled
# present  the driver of this machine
Driver = Literal["stub", "present"]


# The first fields of a cell.
Place = tuple[str, Operation, int, str, str]


class Engine(Record, frozen=True):
    """An engine that cuDNN accepts for an operation."""

    number: Count  # cuDNN's global index among the engines of the operation
    notes: tuple[str, ...]  # numerical notes, of any configuration of it
    executed: Any = None  # retired: what executing it came to

    @property
    def nondeterministic(self) -> bool:
        """Whether cuDNN says so."""
        return NONDETERMINISTIC in self.notes


class EngineCell(Record, frozen=True):
    """What cuDNN says of one operation on one GPU."""

    gpu: str
    operation: Operation
    problem: Count  # its place among the problems
    dtype: str
    layout: str
    total: Count = 0  # engines that cuDNN numbers for the operation
    engines: tuple[Engine, ...] = ()  # those that it accepts
    order: tuple[Count, ...] = ()  # engines in the order of heuristics mode A, each at its best place
    refused: str | None = None  # what cuDNN said instead; with engines, instead of an order

    @property
    def place(self) -> Place:
        """Where it stands."""
        return self.gpu, self.operation, self.problem, self.dtype, self.layout


class EngineTable(Record, frozen=True, kw_only=True):
    """What one cuDNN says of its engines."""

    kind: Literal["cudnn"] = "cudnn"
    format: Annotated[int, Meta(ge=1)] = FORMAT
    tool: str  # "detmatrix 0.1.0"
    cudnn: str  # "9.28.0"
    driver: Driver
    gpus: dict[str, str]  # name -> "described" or "present", or what cuDNN said instead
    descriptions: dict[str, Description] = msgspec.field(default_factory=dict)
    measured: Any = None  # retired: where engines were executed
    problems: tuple[Problem, ...]
    cells: tuple[EngineCell, ...]


class Request(Record, frozen=True):
    """What the process that loads cuDNN is asked."""

    library: str
    stub: str | None
    gpus: dict[str, Description]
    problems: tuple[Problem, ...]
    places: tuple[Place, ...]
    unordered: tuple[str, ...] = ()  # GPUs whose heuristics are not asked


class Loaded(Record, frozen=True):
    """The first line that it answers; a line for each cell follows."""

    version: Count = 0
    gpus: dict[str, str] = msgspec.field(default_factory=dict)
    failed: str | None = None  # why cuDNN could not be loaded


_KIND = RecordKind(
    kind="cudnn",
    name="table of engines",
    writer="detmatrix cudnn",
    format=FORMAT,
    most=64 << 20,
    again="record the table again",
    failure=BuildError,
)


def encode(table: EngineTable) -> str:
    """Return the record as JSON, a cell per line, with the same bytes for the same table."""
    rest = {name: getattr(table, name) for name in table.__struct_fields__ if name != "cells"}
    head = msgspec.json.encode(rest).decode().removesuffix("}")
    cells = ",\n".join(msgspec.json.encode(cell).decode() for cell in table.cells)
    return f'{head},"cells":[\n{cells}\n]}}\n'


def read_table(path: str | Path) -> EngineTable:
    """Read a recorded table; a name that ends in ``.gz`` is read compressed.

    Raises:
        BuildError: The file cannot be read, is none, is damaged, or has a newer format.
    """
    table = read_record(path, EngineTable, _KIND)
    if any(cell.problem >= len(table.problems) for cell in table.cells):
        raise BuildError(f"{path}: a cell is of a problem that is not there; record the table again")
    return table


# What PyTorch tries, and in which order, where ``torch.backends.cudnn.benchmark`` is off, says
# ``aten/src/ATen/native/cudnn/Conv_v8.cpp``: ``get_configs_from_heuristics`` asks for the heuristics, ``filterEngineConfigs``
# leaves engines out, and ``try_configs`` takes the first that can be built and run. It asks for mode INSTANT, which lists what
# mode A lists (1008 convolutions compared, in cuDNN 9.20 and 9.28).
TF32 = "float32 with TF32"


def ways(cell: EngineCell) -> dict[str, tuple[Engine, ...]]:
    """Return the engines in the order in which PyTorch tries them, by what it is told of the dtype.

    Engines that convert their inputs down are always left out, and in float32 without
    ``torch.backends.cudnn.allow_tf32`` those on tensor cores too.
    """
    known = {engine.number: engine for engine in cell.engines}
    listed = [known[one] for one in cell.order if one in known]
    kept = tuple(one for one in listed if "DOWN_CONVERT_INPUTS" not in one.notes)
    if cell.dtype != "float32":
        return {cell.dtype: kept}
    return {TF32: kept, "float32": tuple(one for one in kept if "TENSOR_CORE" not in one.notes)}


def first_place(engines: tuple[Engine, ...]) -> int | None:
    """Return the place, from 1, of the first nondeterministic engine; ``None``: there is none."""
    return next((place for place, one in enumerate(engines, 1) if one.nondeterministic), None)
