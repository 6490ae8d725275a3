"""cuDNN through ctypes: its library, its descriptors, and its refusals as exceptions that name the attribute.

Numbers are those of the headers of release 9 (``cudnn_graph_v9.h``, ``cudnn_ops_v9.h``). nvidia-cudnn-frontend would describe
the same graphs, but it is compiled for some releases of Python, its version says which attributes it knows, and it hides which
attribute cuDNN refused. The C API is documented and enough.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from enum import IntEnum
from types import TracebackType
from typing import Any, NamedTuple, Self


class AttributeType(IntEnum):
    """``cudnnBackendAttributeType_t``."""

    DATA_TYPE = 1
    BOOLEAN = 2
    INT64 = 3
    DOUBLE = 5
    CONVOLUTION_MODE = 7
    HEUR_MODE = 8
    NUMERICAL_NOTE = 11
    DESCRIPTOR = 15
    INT32 = 23
    CHAR = 24
    NORM_MODE = 27
    NORM_PHASE = 28


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
    OPERATION_NORM_FORWARD = 29
    OPERATION_NORM_BACKWARD = 30
    DEVICEPROP = 38
    OPERATION_SDPA_FWD = 41
    OPERATION_SDPA_BWD = 43


class Attribute(NamedTuple):
    """``cudnnBackendAttributeName_t``: the number of an attribute, and the type of its elements."""

    number: int
    type: AttributeType


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
    908: "TENSOR BOOLEAN IS_BY_VALUE",
    1300: "ENGINE DESCRIPTOR OPERATION_GRAPH",
    1301: "ENGINE INT64 GLOBAL_INDEX",
    1303: "ENGINE NUMERICAL_NOTE NUMERICAL_NOTE",
    1307: "ENGINE DESCRIPTOR DEVICEPROP",
    2000: "OPERATION_NORM_FWD NORM_MODE MODE",
    2001: "OPERATION_NORM_FWD NORM_PHASE PHASE",
    2002: "OPERATION_NORM_FWD DESCRIPTOR XDESC MEAN_DESC INV_VARIANCE_DESC SCALE_DESC BIAS_DESC EPSILON_DESC",
    2013: "OPERATION_NORM_FWD DESCRIPTOR YDESC",
    2100: "OPERATION_NORM_BWD NORM_MODE MODE",
    2101: "OPERATION_NORM_BWD DESCRIPTOR XDESC MEAN_DESC INV_VARIANCE_DESC DYDESC SCALE_DESC",
    2107: "OPERATION_NORM_BWD DESCRIPTOR DSCALE_DESC DBIAS_DESC DXDESC",
    2700: "DEVICEPROP INT32 DEVICE_ID",
    2702: "DEVICEPROP CHAR JSON_REPRESENTATION",
    2800: "OPERATION_SDPA_FWD DESCRIPTOR QDESC KDESC VDESC ODESC STATSDESC SCALEDESC",
    2851: "OPERATION_SDPA_BWD DESCRIPTOR QDESC KDESC VDESC ODESC STATSDESC SCALEDESC",
    2859: "OPERATION_SDPA_BWD DESCRIPTOR DQDESC DKDESC DVDESC DODDESC",
}


def _attributes() -> Iterator[tuple[str, Attribute]]:
    for first, words in _NUMBERED.items():
        prefix, kind, *names = words.split()
        for number, name in enumerate(names, first):
            yield f"{prefix}_{name}", Attribute(number, AttributeType[kind])


ATTRIBUTES = dict(_attributes())


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
NORM_MODES = {"layer": 0, "instance": 1, "batch": 2}  # cudnnBackendNormMode_t
NORM_TRAINING = 1  # cudnnBackendNormFwdPhase_t


_ELEMENTS: dict[AttributeType, Any] = {
    AttributeType.BOOLEAN: ctypes.c_bool,
    AttributeType.INT64: ctypes.c_int64,
    AttributeType.DOUBLE: ctypes.c_double,
    AttributeType.DESCRIPTOR: ctypes.c_void_p,
    AttributeType.INT32: ctypes.c_int32,
    AttributeType.CHAR: ctypes.c_char,
}


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


class Descriptor:
    """A descriptor of the backend API; destroyed at the end of its ``with`` block."""

    def __init__(self, library: CudnnLibrary, kind: Kind) -> None:
        self._library = library
        self.kind = kind
        self.handle = ctypes.c_void_p()
        self._kept: list[object] = []  # what cuDNN points to must outlive the descriptor
        self._library.check(
            library.c.cudnnBackendCreateDescriptor(ctypes.c_int(kind), ctypes.byref(self.handle)),
            f"create {kind.name}",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.destroy()

    def destroy(self) -> None:
        """Destroy it; a second time does nothing."""
        if self.handle:
            self._library.c.cudnnBackendDestroyDescriptor(self.handle)
            self.handle = ctypes.c_void_p()

    def set(self, attribute: str, *values: Any) -> Self:
        """Set the elements of an attribute: numbers, descriptors, or one ``bytes`` of characters."""
        number, kind = ATTRIBUTES[attribute]
        element = _ELEMENTS.get(kind, ctypes.c_int)
        data: Any
        if kind is AttributeType.CHAR:
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
        found = (_ELEMENTS.get(ATTRIBUTES[attribute].type, ctypes.c_int) * most)()
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
                self.handle, *ATTRIBUTES[attribute], most, ctypes.byref(count), into
            ),
            f"{self.kind.name}: get {attribute}",
        )
        return min(count.value, most) if most else count.value


def note_name(number: int) -> str:
    """Return the name of a numerical note; of one that a newer cuDNN has, its number."""
    return NOTES[number] if 0 <= number < len(NOTES) else f"note {number}"
