"""cuDNN through ctypes: its library, its descriptors, and its refusals as exceptions that name the attribute.

Numbers are those of the headers of release 9 (``cudnn_graph_v9.h``, ``cudnn_ops_v9.h``). nvidia-cudnn-frontend would describe
the same graphs, but it is compiled for some releases of Python, its version says which attributes it knows, and it hides which
attribute cuDNN refused. The C API is documented and enough.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from enum import Enum, IntEnum
from types import TracebackType
from typing import Any, Self


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


class Attribute(Enum):
    """``cudnnBackendAttributeName_t``: the number of an attribute, and the type of its elements."""

    CONVOLUTION_COMP_TYPE = 100, AttributeType.DATA_TYPE
    CONVOLUTION_CONV_MODE = 101, AttributeType.CONVOLUTION_MODE
    CONVOLUTION_DILATIONS = 102, AttributeType.INT64
    CONVOLUTION_FILTER_STRIDES = 103, AttributeType.INT64
    CONVOLUTION_POST_PADDINGS = 104, AttributeType.INT64
    CONVOLUTION_PRE_PADDINGS = 105, AttributeType.INT64
    CONVOLUTION_SPATIAL_DIMS = 106, AttributeType.INT64
    ENGINEHEUR_MODE = 200, AttributeType.HEUR_MODE
    ENGINEHEUR_OPERATION_GRAPH = 201, AttributeType.DESCRIPTOR
    ENGINEHEUR_RESULTS = 202, AttributeType.DESCRIPTOR
    ENGINEHEUR_DEVICEPROP = 204, AttributeType.DESCRIPTOR
    ENGINECFG_ENGINE = 300, AttributeType.DESCRIPTOR
    OPERATION_CONVOLUTION_FORWARD_ALPHA = 700, AttributeType.DOUBLE
    OPERATION_CONVOLUTION_FORWARD_BETA = 701, AttributeType.DOUBLE
    OPERATION_CONVOLUTION_FORWARD_CONV_DESC = 702, AttributeType.DESCRIPTOR
    OPERATION_CONVOLUTION_FORWARD_W = 703, AttributeType.DESCRIPTOR
    OPERATION_CONVOLUTION_FORWARD_X = 704, AttributeType.DESCRIPTOR
    OPERATION_CONVOLUTION_FORWARD_Y = 705, AttributeType.DESCRIPTOR
    OPERATION_CONVOLUTION_BWD_DATA_ALPHA = 706, AttributeType.DOUBLE
    OPERATION_CONVOLUTION_BWD_DATA_BETA = 707, AttributeType.DOUBLE
    OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC = 708, AttributeType.DESCRIPTOR
    OPERATION_CONVOLUTION_BWD_DATA_W = 709, AttributeType.DESCRIPTOR
    OPERATION_CONVOLUTION_BWD_DATA_DX = 710, AttributeType.DESCRIPTOR
    OPERATION_CONVOLUTION_BWD_DATA_DY = 711, AttributeType.DESCRIPTOR
    OPERATION_CONVOLUTION_BWD_FILTER_ALPHA = 712, AttributeType.DOUBLE
    OPERATION_CONVOLUTION_BWD_FILTER_BETA = 713, AttributeType.DOUBLE
    OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC = 714, AttributeType.DESCRIPTOR
    OPERATION_CONVOLUTION_BWD_FILTER_DW = 715, AttributeType.DESCRIPTOR
    OPERATION_CONVOLUTION_BWD_FILTER_X = 716, AttributeType.DESCRIPTOR
    OPERATION_CONVOLUTION_BWD_FILTER_DY = 717, AttributeType.DESCRIPTOR
    OPERATIONGRAPH_OPS = 801, AttributeType.DESCRIPTOR
    OPERATIONGRAPH_ENGINE_GLOBAL_COUNT = 802, AttributeType.INT64
    TENSOR_BYTE_ALIGNMENT = 900, AttributeType.INT64
    TENSOR_DATA_TYPE = 901, AttributeType.DATA_TYPE
    TENSOR_DIMENSIONS = 902, AttributeType.INT64
    TENSOR_STRIDES = 903, AttributeType.INT64
    TENSOR_UNIQUE_ID = 906, AttributeType.INT64
    TENSOR_IS_BY_VALUE = 908, AttributeType.BOOLEAN
    ENGINE_OPERATION_GRAPH = 1300, AttributeType.DESCRIPTOR
    ENGINE_GLOBAL_INDEX = 1301, AttributeType.INT64
    ENGINE_NUMERICAL_NOTE = 1303, AttributeType.NUMERICAL_NOTE
    ENGINE_DEVICEPROP = 1307, AttributeType.DESCRIPTOR
    OPERATION_NORM_FWD_MODE = 2000, AttributeType.NORM_MODE
    OPERATION_NORM_FWD_PHASE = 2001, AttributeType.NORM_PHASE
    OPERATION_NORM_FWD_XDESC = 2002, AttributeType.DESCRIPTOR
    OPERATION_NORM_FWD_MEAN_DESC = 2003, AttributeType.DESCRIPTOR
    OPERATION_NORM_FWD_INV_VARIANCE_DESC = 2004, AttributeType.DESCRIPTOR
    OPERATION_NORM_FWD_SCALE_DESC = 2005, AttributeType.DESCRIPTOR
    OPERATION_NORM_FWD_BIAS_DESC = 2006, AttributeType.DESCRIPTOR
    OPERATION_NORM_FWD_EPSILON_DESC = 2007, AttributeType.DESCRIPTOR
    OPERATION_NORM_FWD_YDESC = 2013, AttributeType.DESCRIPTOR
    OPERATION_NORM_BWD_MODE = 2100, AttributeType.NORM_MODE
    OPERATION_NORM_BWD_XDESC = 2101, AttributeType.DESCRIPTOR
    OPERATION_NORM_BWD_MEAN_DESC = 2102, AttributeType.DESCRIPTOR
    OPERATION_NORM_BWD_INV_VARIANCE_DESC = 2103, AttributeType.DESCRIPTOR
    OPERATION_NORM_BWD_DYDESC = 2104, AttributeType.DESCRIPTOR
    OPERATION_NORM_BWD_SCALE_DESC = 2105, AttributeType.DESCRIPTOR
    OPERATION_NORM_BWD_DSCALE_DESC = 2107, AttributeType.DESCRIPTOR
    OPERATION_NORM_BWD_DBIAS_DESC = 2108, AttributeType.DESCRIPTOR
    OPERATION_NORM_BWD_DXDESC = 2109, AttributeType.DESCRIPTOR
    DEVICEPROP_DEVICE_ID = 2700, AttributeType.INT32
    DEVICEPROP_JSON_REPRESENTATION = 2702, AttributeType.CHAR
    OPERATION_SDPA_FWD_QDESC = 2800, AttributeType.DESCRIPTOR
    OPERATION_SDPA_FWD_KDESC = 2801, AttributeType.DESCRIPTOR
    OPERATION_SDPA_FWD_VDESC = 2802, AttributeType.DESCRIPTOR
    OPERATION_SDPA_FWD_ODESC = 2803, AttributeType.DESCRIPTOR
    OPERATION_SDPA_FWD_STATSDESC = 2804, AttributeType.DESCRIPTOR
    OPERATION_SDPA_FWD_SCALEDESC = 2805, AttributeType.DESCRIPTOR
    OPERATION_SDPA_BWD_QDESC = 2851, AttributeType.DESCRIPTOR
    OPERATION_SDPA_BWD_KDESC = 2852, AttributeType.DESCRIPTOR
    OPERATION_SDPA_BWD_VDESC = 2853, AttributeType.DESCRIPTOR
    OPERATION_SDPA_BWD_ODESC = 2854, AttributeType.DESCRIPTOR
    OPERATION_SDPA_BWD_STATSDESC = 2855, AttributeType.DESCRIPTOR
    OPERATION_SDPA_BWD_SCALEDESC = 2856, AttributeType.DESCRIPTOR
    OPERATION_SDPA_BWD_DQDESC = 2859, AttributeType.DESCRIPTOR
    OPERATION_SDPA_BWD_DKDESC = 2860, AttributeType.DESCRIPTOR
    OPERATION_SDPA_BWD_DVDESC = 2861, AttributeType.DESCRIPTOR
    OPERATION_SDPA_BWD_DODDESC = 2862, AttributeType.DESCRIPTOR

    @property
    def number(self) -> int:
        """The number that the C API knows it by."""
        return self.value[0]

    @property
    def type(self) -> AttributeType:
        """The type of its elements."""
        return self.value[1]


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
    """What cuDNN refused: a call, the attribute if it was about one, and the status."""


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
        """Raise what a call came to, unless it succeeded.

        Raises:
            CudnnError: It did not.
        """
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

    def set(self, attribute: Attribute, *values: Any) -> Self:
        """Set an attribute.

        Args:
            attribute: Which.
            values: Its elements: numbers, descriptors, or one ``bytes`` of characters.

        Raises:
            CudnnError: cuDNN refuses it; the message names the attribute.
        """
        element = _ELEMENTS.get(attribute.type, ctypes.c_int)
        data: Any
        if attribute.type is AttributeType.CHAR:
            data, count = ctypes.create_string_buffer(values[0]), len(values[0]) + 1
        else:
            plain = [one.handle.value if isinstance(one, Descriptor) else one for one in values]
            data, count = (element * len(plain))(*plain), len(plain)
        self._kept.append((values, data))
        self._library.check(
            self._library.c.cudnnBackendSetAttribute(
                self.handle, attribute.number, attribute.type, count, data
            ),
            f"{self.kind.name}: set {attribute.name}",
        )
        return self

    def finalize(self) -> Self:
        """Have cuDNN check it as a whole.

        Raises:
            CudnnError: cuDNN refuses it.
        """
        self._library.check(self._library.c.cudnnBackendFinalize(self.handle), f"{self.kind.name}: finalize")
        return self

    def get(self, attribute: Attribute, most: int = 1) -> list[int]:
        """Return the elements of an attribute that are numbers, at most so many.

        Raises:
            CudnnError: cuDNN refuses it; the message names the attribute.
        """
        found = (_ELEMENTS.get(attribute.type, ctypes.c_int) * most)()
        return list(found[: self._read(attribute, most, found)])

    def count(self, attribute: Attribute) -> int:
        """Return how many elements an attribute has.

        Raises:
            CudnnError: cuDNN refuses it; the message names the attribute.
        """
        return self._read(attribute, 0, None)

    def fill(self, attribute: Attribute, descriptors: Sequence[Descriptor]) -> int:
        """Have cuDNN fill in descriptors of an attribute; return how many it did.

        Raises:
            CudnnError: cuDNN refuses it; the message names the attribute.
        """
        handles = (ctypes.c_void_p * len(descriptors))(*(one.handle.value for one in descriptors))
        return self._read(attribute, len(descriptors), handles)

    def _read(self, attribute: Attribute, most: int, into: Any) -> int:
        count = ctypes.c_int64(0)
        self._library.check(
            self._library.c.cudnnBackendGetAttribute(
                self.handle, attribute.number, attribute.type, most, ctypes.byref(count), into
            ),
            f"{self.kind.name}: get {attribute.name}",
        )
        return min(count.value, most) if most else count.value


def note_name(number: int) -> str:
    """Return the name of a numerical note; of one that a newer cuDNN has, its number."""
    return NOTES[number] if 0 <= number < len(NOTES) else f"note {number}"
