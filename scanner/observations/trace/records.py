"""The records of a trace file: which overloads each case reached in each mode, with fake tensors.

A trace is *expected*, never measured: no kernel ran. It is one JSON object.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from scanner.observations.records import Record, Row

# Trace file format history:
#
# 1: settings, build, overloads, rows.
# 2: the rule set it was made by; a file of format 1 is of the first.
FORMAT = 2
# The rule sets that traces were made by, the last is today's. A rule that changes what a trace holds of the same build adds
# one.
RULE_SETS = (
    "as first recorded",
    "the functions of an overload are those that dense tensors reach, without those of other layouts",
)

# off   the flag is off
# on    the flag is on before the forward phase
# late  backward only: the flag is off in the forward phase and turned on for the backward one
TraceMode = Literal["off", "on", "late"]
# traced      it went to its end
# alert       PyTorch's alert was raised above the kernels: in Python, in composite code, or where shapes are computed
# not_traced  fake tensors went no further; `message` says why, and what was reached until then is there
# not_run     this torch lacks the op or the dtype
# timeout     the worker was stopped when the case exceeded the limit
# crash       the worker ended in the middle of the case
TraceOutcome = Literal["traced", "alert", "not_traced", "not_run", "timeout", "crash"]
TracePhase = Literal["inputs", "forward", "backward"]
# own        registered for the device
# composite  made of other overloads, which are in the trace where they could be reached
# none       neither: it has kernels for other layouts or devices
# unknown    a build without CUDA cannot say
Kernel = Literal["own", "composite", "none", "unknown"]

# Overload ("aten::index_put", "aten::add.Tensor") -> calls, in the order of first calls.
Calls = dict[str, Annotated[int, Meta(ge=1)]]


class Reach(Record, frozen=True):
    """What one row reached in one mode."""

    mode: TraceMode
    outcome: TraceOutcome
    forward: Calls = field(default_factory=dict)
    backward: Calls = field(default_factory=dict)
    stopped: TracePhase | None = None  # the phase in which it ended early
    caller: str | None = None  # named by the alert
    message: str | None = None


class TracedRow(Record, frozen=True):
    """A row with what it reached, in the order off, on, late."""

    row: Row
    reached: tuple[Reach, ...]

    def in_mode(self, mode: TraceMode) -> Reach | None:
        """Return what it reached in a mode, ``None`` if it has no such mode."""
        return next((reach for reach in self.reached if reach.mode == mode), None)


class TracedOverload(Record, frozen=True):
    """One overload that any row reached."""

    name: str
    kernel: Kernel  # for the device of the trace
    # The C++ functions where its call begins on that device, as the build's own declarations name them; those of a
    # structured kernel without "::impl". Empty: not declared there.
    functions: tuple[str, ...] = ()


class TraceSettings(Record, frozen=True):
    """What the user asked for."""

    patterns: tuple[str, ...]
    device: str  # "cpu", "cuda:0"; no such device need have been there
    timeout: Annotated[float, Meta(gt=0)]  # seconds a case may take
    specs: tuple[str, ...] = ()


class TracedBuild(Record, frozen=True):
    """The build that was traced."""

    torch: str
    torch_git: str | None
    cuda: str | None
    cudnn: int | None
    python: str
    gpus: tuple[str, ...]  # what the build saw, though nothing ran there


class TraceFile(Record, frozen=True, kw_only=True, tag="trace", tag_field="kind"):
    """A whole trace."""

    format: int
    tool: str  # version of detmatrix
    rules: Annotated[int, Meta(ge=1)] = 1  # which of the rule sets
    started: str  # UTC, ISO 8601
    settings: TraceSettings
    build: TracedBuild
    rows: tuple[TracedRow, ...]
    overloads: tuple[TracedOverload, ...] = ()
