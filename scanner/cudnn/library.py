"""cuDNN through ctypes: its library, its descriptors, and its refusals as exceptions that name the attribute.

nvidia-cudnn-frontend would describe the same graphs, but it is compiled for some releases of Python, its version says
which attributes it knows, and it hides which attribute cuDNN refused. The C API is documented and enough.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from scanner.cudnn.enums import NOTES, Attribute, AttributeType, Kind

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
