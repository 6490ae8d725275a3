"""Read and write trace files: one JSON object; a name that ends in ``.gz`` is read compressed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec

from scanner.errors import RunFileError
from scanner.observations.files import RecordKind, read_record
from scanner.observations.trace.records import FORMAT, RULE_SETS, TraceFile

_DEVICE = re.compile(r"cpu|cuda(:[0-9]+)?")


_KIND = RecordKind(
    kind="trace",
    name="trace file",
    writer="detmatrix trace",
    format=FORMAT,
    rules=len(RULE_SETS),
    most=256 << 20,  # a trace of the whole catalog is a few megabytes
    again="restore the file, or trace again",
    failure=RunFileError,
)


def trace_text(trace: TraceFile) -> str:
    """Return what a trace file holds: indented, a line per field; equal traces give equal text."""
    try:
        encoded = msgspec.json.encode(trace)
    except UnicodeEncodeError:
        # The text of an exception need not be UTF-8.
        encoded = json.dumps(msgspec.to_builtins(trace), ensure_ascii=False).encode(errors="replace")
    return msgspec.json.format(encoded, indent=1).decode() + "\n"


def read_trace(path: str | Path) -> TraceFile:
    """Read a trace file.

    Raises:
        RunFileError: The file cannot be read, is no trace file, is damaged, or has a newer format. The message names
            the path of the field.
    """
    trace = read_record(path, TraceFile, _KIND)
    _check(str(path), trace)
    return trace


def _check(path: str, trace: TraceFile) -> None:
    """Refuse a device that no trace is made for, and what would be told twice, or in part."""
    if not _DEVICE.fullmatch(trace.settings.device):
        raise RunFileError(
            f"{path}: no such device: {trace.settings.device!r} - at `$.settings.device`; restore the file"
        )
    seen: set[tuple[str, ...]] = set()
    for number, one in enumerate(trace.rows):
        wanted = ["off", "on", "late"] if one.row.direction == "backward" else ["off", "on"]
        if one.row.key in seen:
            raise RunFileError(
                f"{path}: {one.row.id} is there twice - at `$.rows[{number}]`; restore the file"
            )
        if [reach.mode for reach in one.reached] != wanted:
            raise RunFileError(
                f"{path}: the modes are to be {', '.join(wanted)} - at `$.rows[{number}].reached`; restore the file"
            )
        seen.add(one.row.key)
