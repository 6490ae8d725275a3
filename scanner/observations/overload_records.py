"""The records of a run file that speak of overloads: those of the build, and those each row reaches."""

from __future__ import annotations

from typing import Literal

from msgspec import field

from detmatrix.scanner.observations.records import Direction, Dtype, Mode, Outcome, Record

# Where the kernel of an overload comes from, the first that holds.
#
# device      registered for the device's dense tensors
# composite   one for all devices, made of other ops
# layout      registered for the device's tensors of another layout: sparse, quantized, nested, mkldnn
# decomposed  one that is replaced by the ops it is made of before the recorder sees it
# none        there is none for the device: another device's, or a wrapper without one
Kernel = Literal["device", "composite", "layout", "decomposed", "none"]
# What an overload writes into: a new tensor (or a view), an argument it changes, the argument `out`.
Writes = Literal["new", "in_place", "out"]


class KernelGroup(Record, frozen=True):
    """Overloads of one sort."""

    kernel: Kernel
    writes: Writes
    names: tuple[str, ...]  # as the schema has them: "aten::add.Tensor"


class BuildOverloads(Record, frozen=True, tag="kernels", tag_field="kind"):
    """Every overload of the scanned build, each in one group; none if *message* says why they are not known."""

    groups: tuple[KernelGroup, ...]
    message: str | None = None
    alerts: tuple[str, ...] = ()  # callers that alerts compiled into the build name; none: not known


class Reached(Record, frozen=True):
    """What one execution under a recorder reached in one mode."""

    overloads: tuple[str, ...]  # in the order of their first call; the last one may have raised
    # The caller of each alert, and the overload that raised it; None: one that the recorder does not see.
    alerts: tuple[tuple[str, str | None], ...] = ()
    message: str | None = None  # what ended it, if not an alert


class Dispatch(Record, frozen=True, tag="dispatch", tag_field="kind"):
    """The overloads one row reaches, in an execution of its own that is not compared with any other."""

    spec: str
    case: str
    direction: Direction
    dtype: Dtype
    outcome: Outcome  # ran: it was executed, whatever came of it
    message: str | None = None  # why it was not
    modes: dict[Mode, Reached] = field(default_factory=dict)  # warn_only only of a row that raises

    @property
    def key(self) -> tuple[str, str, str, str]:
        """The row it belongs to, as ``Row.key``."""
        return (self.spec, self.case, self.direction, self.dtype)
