"""The process that loads cuDNN: a request on standard input, lines of JSON on standard output.

A library that is asked about GPUs that are not there may end its process; the command's own goes on. It is called through
ctypes, and its refusals are exceptions that name the attribute. Numbers are those of the headers of release 9
(``cudnn_graph_v9.h``, ``cudnn_ops_v9.h``). nvidia-cudnn-frontend would describe the same graphs, but it is compiled for some
releases of Python, its version says which attributes it knows, and it hides which attribute cuDNN refused.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import math
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from enum import IntEnum
from typing import Any, Self

import msgspec
from msgspec.structs import replace

from detmatrix.scanner.cudnn.problems import PRESENT, Operation, Problem, cudnn_operation
from detmatrix.scanner.cudnn.record import Engine, EngineCell, Loaded, Request


class Kind(IntEnum):
    """``cudnnBackendDescriptorType_t``: what a descriptor describes."""

    CONVOLUTION = 1
    ENGINE = 2
    ENGINECFG = 3
    ENGINEHEUR = 4
    OPERATION_CONVOLUTION_FORWARD = 10
    OPERATION_CONVOLUTION_BACKWARD_FILTER = 11
    OPERATION_CONVOLUTION_BACKWARD_DATA = 12
    OPERATIONGRAPH = 15
    TENSOR = 17
    DEVICEPROP = 38


# ``cudnnBackendAttributeType_t``: the number of a type, and what its elements are in C.
_TYPES: dict[str, tuple[int, Any]] = {
    "DATA_TYPE": (1, ctypes.c_int),
    "INT64": (3, ctypes.c_int64),
    "DOUBLE": (5, ctypes.c_double),
    "CONVOLUTION_MODE": (7, ctypes.c_int),
    "HEUR_MODE": (8, ctypes.c_int),
    "NUMERICAL_NOTE": (11, ctypes.c_int),
    "DESCRIPTOR": (15, ctypes.c_void_p),
    "INT32": (23, ctypes.c_int32),
    "CHAR": (24, ctypes.c_char),
}
# ``cudnnBackendAttributeName_t``.
# The number of the first, what their names begin with, the type of their elements, and how the names go on: each has the
# number behind the one before.
_NUMBERED = {
    100: "CONVOLUTION DATA_TYPE COMP_TYPE",
    101: "CONVOLUTION CONVOLUTION_MODE CONV_MODE",
    102: "CONVOLUTION INT64 DILATIONS FILTER_STRIDES POST_PADDINGS PRE_PADDINGS SPATIAL_DIMS",
    200: "ENGINEHEUR HEUR_MODE MODE",
    201: "ENGINEHEUR DESCRIPTOR OPERATION_GRAPH RESULTS",
    204: "ENGINEHEUR DESCRIPTOR DEVICEPROP",
    300: "ENGINECFG DESCRIPTOR ENGINE",
    700: "OPERATION_CONVOLUTION_FORWARD DOUBLE ALPHA BETA",
    702: "OPERATION_CONVOLUTION_FORWARD DESCRIPTOR CONV_DESC W X Y",
    706: "OPERATION_CONVOLUTION_BWD_DATA DOUBLE ALPHA BETA",
    708: "OPERATION_CONVOLUTION_BWD_DATA DESCRIPTOR CONV_DESC W DX DY",
    712: "OPERATION_CONVOLUTION_BWD_FILTER DOUBLE ALPHA BETA",
    714: "OPERATION_CONVOLUTION_BWD_FILTER DESCRIPTOR CONV_DESC DW X DY",
    801: "OPERATIONGRAPH DESCRIPTOR OPS",
    802: "OPERATIONGRAPH INT64 ENGINE_GLOBAL_COUNT",
    900: "TENSOR INT64 BYTE_ALIGNMENT",
    901: "TENSOR DATA_TYPE DATA_TYPE",
    902: "TENSOR INT64 DIMENSIONS STRIDES",
    906: "TENSOR INT64 UNIQUE_ID",
    1300: "ENGINE DESCRIPTOR OPERATION_GRAPH",
    1301: "ENGINE INT64 GLOBAL_INDEX",
    1303: "ENGINE NUMERICAL_NOTE NUMERICAL_NOTE",
    1307: "ENGINE DESCRIPTOR DEVICEPROP",
    2700: "DEVICEPROP INT32 DEVICE_ID",
    2702: "DEVICEPROP CHAR JSON_REPRESENTATION",
}


# By the name of an attribute its number, that of the type of its elements, and what these are in C.
_ATTRIBUTES = {
    f"{prefix}_{name}": (number, *_TYPES[kind])
    for first, (prefix, kind, *names) in ((first, words.split()) for first, words in _NUMBERED.items())
    for number, name in enumerate(names, first)
}


# ``cudnnBackendNumericalNote_t``, in order.
NOTES = (
    "TENSOR_CORE",
    "DOWN_CONVERT_INPUTS",
    "REDUCED_PRECISION_REDUCTION",
    "FFT",
    "NONDETERMINISTIC",
    "WINOGRAD",
    "WINOGRAD_TILE_4x4",
    "WINOGRAD_TILE_6x6",
    "WINOGRAD_TILE_13x13",
    "STRICT_NAN_PROP",
)
DATA_TYPES = {"float32": 0, "float16": 2, "bfloat16": 9}  # cudnnDataType_t
CROSS_CORRELATION = 1  # cudnnConvolutionMode_t
HEUR_MODE_A = 3  # cudnnBackendHeurMode_t


class CudnnError(Exception):
    """What cuDNN refused: a call, the attribute if it was about one, and the status. Every call of a descriptor may raise it."""


class CudnnLibrary:
    """A loaded cuDNN."""

    def __init__(self, path: str) -> None:
        """Load it.

        Raises:
            OSError: It cannot be loaded.
            AttributeError: It is no cuDNN with a backend API.
        """
        self.c = ctypes.CDLL(path)
        self.c.cudnnGetVersion.restype = ctypes.c_size_t
        self.c.cudnnGetErrorString.restype = ctypes.c_char_p
        # Attribute counts are 64 bits wide, which ctypes does not guess.
        self.c.cudnnBackendSetAttribute.argtypes = [
            *(ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_void_p)
        ]
        self.c.cudnnBackendGetAttribute.argtypes = [
            *(ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
        ]
        self.c.cudnnBackendFinalize.argtypes = [ctypes.c_void_p]
        self.c.cudnnBackendDestroyDescriptor.argtypes = [ctypes.c_void_p]
        self.version = int(self.c.cudnnGetVersion())

    def check(self, status: int, call: str) -> None:
        """Raise what a call came to, unless it succeeded."""
        if status == 0:
            return
        # What cudnnGetLastErrorString adds is of earlier calls too, so that the name of the status is all that is said.
        raise CudnnError(f"{call}: {self.c.cudnnGetErrorString(status).decode(errors='replace')}")


class Descriptor(ExitStack):
    """A descriptor of the backend API; destroyed at the end of its ``with`` block."""

    def __init__(self, library: CudnnLibrary, kind: Kind) -> None:
        super().__init__()
        self._library = library
        self.kind = kind
        self.handle = ctypes.c_void_p()
        self._kept: list[object] = []  # what cuDNN points to must outlive the descriptor
        self._library.check(
            library.c.cudnnBackendCreateDescriptor(ctypes.c_int(kind), ctypes.byref(self.handle)),
            f"create {kind.name}",
        )
        self.callback(library.c.cudnnBackendDestroyDescriptor, self.handle)

    def set(self, attribute: str, *values: Any) -> Self:
        """Set the elements of an attribute: numbers, descriptors, or one ``bytes`` of characters."""
        number, kind, element = _ATTRIBUTES[attribute]
        data: Any
        if element is ctypes.c_char:
            data, count = ctypes.create_string_buffer(values[0]), len(values[0]) + 1
        else:
            plain = [one.handle.value if isinstance(one, Descriptor) else one for one in values]
            data, count = (element * len(plain))(*plain), len(plain)
        self._kept.append((values, data))
        self._library.check(
            self._library.c.cudnnBackendSetAttribute(self.handle, number, kind, count, data),
            f"{self.kind.name}: set {attribute}",
        )
        return self

    def finalize(self) -> Self:
        """Have cuDNN check it as a whole."""
        self._library.check(self._library.c.cudnnBackendFinalize(self.handle), f"{self.kind.name}: finalize")
        return self

    def get(self, attribute: str, most: int = 1) -> list[int]:
        """Return the elements of an attribute that are numbers, at most so many."""
        found = (_ATTRIBUTES[attribute][2] * most)()
        return list(found[: self._read(attribute, most, found)])

    def count(self, attribute: str) -> int:
        """Return how many elements an attribute has."""
        return self._read(attribute, 0, None)

    def fill(self, attribute: str, descriptors: Sequence[Descriptor]) -> int:
        """Have cuDNN fill in descriptors of an attribute; return how many it did."""
        handles = (ctypes.c_void_p * len(descriptors))(*(one.handle.value for one in descriptors))
        return self._read(attribute, len(descriptors), handles)

    def _read(self, attribute: str, most: int, into: Any) -> int:
        count = ctypes.c_int64(0)
        self._library.check(
            self._library.c.cudnnBackendGetAttribute(
                self.handle, *_ATTRIBUTES[attribute][:2], most, ctypes.byref(count), into
            ),
            f"{self.kind.name}: get {attribute}",
        )
        return min(count.value, most) if most else count.value


_ALIGNMENT = 16  # bytes; PyTorch's allocations have at least that
_CONVOLUTION = {
    "forward": (Kind.OPERATION_CONVOLUTION_FORWARD, "FORWARD", ("X", "W", "Y")),
    "data gradient": (Kind.OPERATION_CONVOLUTION_BACKWARD_DATA, "BWD_DATA", ("DX", "W", "DY")),
    "weight gradient": (Kind.OPERATION_CONVOLUTION_BACKWARD_FILTER, "BWD_FILTER", ("X", "DW", "DY")),
}


def strides(dimensions: Sequence[int], layout: str) -> list[int]:
    """Return the strides of a tensor whose dimensions are batch, channels, space."""
    order = list(range(len(dimensions)))
    if layout == "channels_last":
        order = [0, *order[2:], 1]
    return [
        math.prod(dimensions[other] for other in order[order.index(one) + 1 :])
        for one in range(len(dimensions))
    ]


class GraphBuilder:
    """Describes operations to one cuDNN; what it made is destroyed at the end of its ``with`` block."""

    def __init__(self, library: CudnnLibrary, stack: ExitStack) -> None:
        self._library = library
        self._stack = stack
        self._ids = itertools.count(1)

    def make(self, kind: Kind) -> Descriptor:
        """Create a descriptor."""
        return self._stack.enter_context(Descriptor(self._library, kind))

    def graph(self, operation: Operation, problem: Problem, dtype: str, layout: str) -> Descriptor:
        """Return the graph of one operation."""
        one = self._convolution(operation, problem, dtype, layout)
        graph = self.make(Kind.OPERATIONGRAPH).set("OPERATIONGRAPH_OPS", one.finalize())
        return graph.finalize()

    def _tensor(self, dimensions: Sequence[int], dtype: str, layout: str) -> Descriptor:
        tensor = self.make(Kind.TENSOR)
        tensor.set("TENSOR_DATA_TYPE", DATA_TYPES[dtype])
        tensor.set("TENSOR_DIMENSIONS", *dimensions)
        tensor.set("TENSOR_STRIDES", *strides(dimensions, layout))
        tensor.set("TENSOR_UNIQUE_ID", next(self._ids))
        tensor.set("TENSOR_BYTE_ALIGNMENT", _ALIGNMENT)
        return tensor.finalize()

    def _convolution(self, operation: Operation, problem: Problem, dtype: str, layout: str) -> Descriptor:
        # PyTorch calls cuDNN with two dimensions at least; those that the layer does not have come first.
        space = len(problem.size)
        absent = [1] * (2 - space)
        filters, channels = problem.filters, problem.channels
        before = [*absent, *problem.size]
        after = [*absent, *(_size_after(problem, one) for one in problem.size)]
        kernel = [*absent, *[problem.kernel] * space]
        if problem.transposed:
            before, after, channels, filters = after, before, filters, channels
        asked = cudnn_operation(operation, transposed=problem.transposed)
        kind, word, roles = _CONVOLUTION[asked]
        convolution = self.make(Kind.CONVOLUTION)
        convolution.set("CONVOLUTION_COMP_TYPE", DATA_TYPES["float32"])
        convolution.set("CONVOLUTION_CONV_MODE", CROSS_CORRELATION)
        convolution.set("CONVOLUTION_SPATIAL_DIMS", len(before))
        convolution.set("CONVOLUTION_DILATIONS", *absent, *[problem.dilation] * space)
        convolution.set("CONVOLUTION_FILTER_STRIDES", *absent, *[problem.stride] * space)
        for attribute in ("CONVOLUTION_PRE_PADDINGS", "CONVOLUTION_POST_PADDINGS"):
            convolution.set(attribute, *[0] * len(absent), *[problem.padding] * space)
        dimensions = (
            [problem.batch, channels, *before],
            [filters, channels // problem.groups, *kernel],
            [problem.batch, filters, *after],
        )
        one = self.make(kind)
        prefix = f"OPERATION_CONVOLUTION_{word}_"
        one.set(f"{prefix}ALPHA", 1.0).set(f"{prefix}BETA", 0.0)
        one.set(f"{prefix}CONV_DESC", convolution.finalize())
        for role, shape in zip(roles, dimensions, strict=True):
            one.set(f"{prefix}{role}", self._tensor(shape, dtype, layout))
        return one


def _size_after(problem: Problem, size: int) -> int:
    reach = problem.dilation * (problem.kernel - 1)
    if problem.transposed:
        return (size - 1) * problem.stride - 2 * problem.padding + reach + 1
    return (size + 2 * problem.padding - reach - 1) // problem.stride + 1


_MOST_NOTES = 32
_MOST_CONFIGURATIONS = 256


def accepted(library: CudnnLibrary, graph: Descriptor, gpu: Descriptor) -> tuple[int, tuple[Engine, ...]]:
    """Return how many engines cuDNN numbers for a graph, and those that it accepts, with their notes."""
    total = graph.get("OPERATIONGRAPH_ENGINE_GLOBAL_COUNT")[0]
    found = []
    for number in range(total):
        with Descriptor(library, Kind.ENGINE) as engine:
            engine.set("ENGINE_OPERATION_GRAPH", graph)
            engine.set("ENGINE_GLOBAL_INDEX", number)
            engine.set("ENGINE_DEVICEPROP", gpu)
            try:
                engine.finalize()
            except CudnnError:
                continue  # this engine is not for this graph on this GPU
            notes = engine.get("ENGINE_NUMERICAL_NOTE", _MOST_NOTES)
            # Of one that a newer cuDNN has the name is not known.
            names = (NOTES[one] if 0 <= one < len(NOTES) else f"note {one}" for one in sorted(notes))
            found.append(Engine(number, tuple(names)))
    return total, tuple(found)


def order(library: CudnnLibrary, graph: Descriptor, gpu: Descriptor) -> tuple[int, ...]:
    """Return the engines in the order of heuristics mode A, each at its best place."""
    with ExitStack() as stack:
        heuristics = stack.enter_context(Descriptor(library, Kind.ENGINEHEUR))
        heuristics.set("ENGINEHEUR_OPERATION_GRAPH", graph)
        heuristics.set("ENGINEHEUR_MODE", HEUR_MODE_A)
        heuristics.set("ENGINEHEUR_DEVICEPROP", gpu)
        heuristics.finalize()
        count = min(heuristics.count("ENGINEHEUR_RESULTS"), _MOST_CONFIGURATIONS)
        listed = [stack.enter_context(Descriptor(library, Kind.ENGINECFG)) for _ in range(count)]
        found: dict[int, None] = {}
        for one in listed[: heuristics.fill("ENGINEHEUR_RESULTS", listed)]:
            with Descriptor(library, Kind.ENGINE) as engine:
                one.fill("ENGINECFG_ENGINE", [engine])
                found[engine.get("ENGINE_GLOBAL_INDEX")[0]] = None
        return tuple(found)


def answer(request: Request, say: Callable[[object], None]) -> None:
    """Load cuDNN and ask it; write a line for what was loaded, and one for each cell whenever more is known of it."""
    gpus: dict[str, Descriptor] = {}
    with ExitStack() as stack:
        try:
            if request.stub is not None:
                ctypes.CDLL(request.stub, mode=ctypes.RTLD_GLOBAL)
            library = CudnnLibrary(request.library)
        except (OSError, AttributeError) as error:
            say(Loaded(failed=str(error)))
            return
        states = {}
        for name, description in request.gpus.items():
            try:
                gpu = stack.enter_context(Descriptor(library, Kind.DEVICEPROP))
                if name == PRESENT:
                    gpu.set("DEVICEPROP_DEVICE_ID", 0)
                else:  # before 9.8 cuDNN refuses it
                    gpu.set("DEVICEPROP_JSON_REPRESENTATION", json.dumps(description).encode())
                gpus[name] = gpu.finalize()
                states[name] = PRESENT if name == PRESENT else "described"
            except CudnnError as error:
                states[name] = str(error)
        say(Loaded(library.version, states))
        for place in request.places:
            name, operation, problem, dtype, layout = place
            if name not in gpus:
                continue
            cell = EngineCell(*place)
            with ExitStack() as graphs:
                try:
                    graph = GraphBuilder(library, graphs).graph(
                        operation, request.problems[problem], dtype, layout
                    )
                    total, engines = accepted(library, graph, gpus[name])
                    cell = replace(cell, total=total, engines=engines)
                    if engines and name not in request.unordered:
                        # Said before the heuristics are asked, which may end the process.
                        say(cell)
                        cell = replace(cell, order=order(library, graph, gpus[name]))
                except CudnnError as error:
                    cell = replace(cell, refused=str(error))
                say(cell)


def main() -> None:
    """Answer the request on standard input."""
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=Request)
    # cuDNN prints what it misses in a driver on standard output, which is for the answer.
    out = os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "wb") as nowhere:  # noqa: PTH123 - a descriptor is all that is wanted
        os.dup2(nowhere.fileno(), 1)

    def say(one: object) -> None:
        out.write(msgspec.json.encode(one) + b"\n")
        out.flush()

    answer(request, say)
