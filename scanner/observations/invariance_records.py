"""The records of a run file that speak of invariance: what a row gave with other threads, batches and layouts."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from detmatrix.scanner.invariance import Property, Trial
from detmatrix.scanner.observations.records import (
    MOST_NAMES,
    Count,
    Direction,
    Dtype,
    Outcome,
    Output,
    Record,
)


class Tried(Record, frozen=True):
    """What a row gave at one value of a property."""

    value: str  # "3", "8 last", "transposed args[0]"
    outcome: Trial
    executions: Count = 0
    outputs: tuple[Output, ...] = ()  # the compared tensors that differed from those of the baseline
    message: str | None = None


class Invariance(Record, frozen=True, tag="invariance", tag_field="kind"):
    """A row, or a control, tried at each value of one property, with the flag off and in one process."""

    spec: str
    case: str
    direction: Direction
    dtype: Dtype
    what: Property = field(name="property")
    outcome: Outcome
    message: str | None = None  # why it was not tried
    # What the values are held against: "2 threads", "48 items", "the inputs as drawn".
    baseline: str | None = None
    left_out: tuple[str, ...] = ()  # gradients that are summed over the batch
    executions: Count = 0  # of the baseline, before and behind those of the values
    differing: Count = 0  # of those, from the first one
    trials: Annotated[tuple[Tried, ...], Meta(max_length=MOST_NAMES)] = ()
    worker: Count = 0  # of a merged file: one of the part that asked

    @property
    def key(self) -> tuple[str, str, str, str]:
        """The row it belongs to, as ``Row.key``."""
        return (self.spec, self.case, self.direction, self.dtype)
