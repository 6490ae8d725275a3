"""Read and write trace files: one JSON object; a name that ends in ``.gz`` is read compressed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec

from scanner.errors import RunFileError
from scanner.observations.files import readable, refuse_newer
from scanner.observations.trace_records import FORMAT, RULE_SETS, TraceFile

# A trace of the whole catalog is a few megabytes.
_MOST_BYTES = 256 << 20
_DEVICE = re.compile(r"cpu|cuda(:[0-9]+)?")


class _Opening(msgspec.Struct):
    """Just enough to tell what wrote the file."""

    kind: str = ""
    format: object = None
    rules: object = None


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
    data = _read(Path(path))
    try:
        opening = msgspec.json.decode(data, type=_Opening)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RunFileError(
            f"{path}: not a detmatrix trace file ({error}); give a file that trace wrote"
        ) from error
    if opening.kind != "trace":
        raise RunFileError(f"{path}: not a detmatrix trace file; give a file that trace wrote")
    refuse_newer(path, "trace file format", opening.format, FORMAT, RunFileError)
    refuse_newer(path, "trace rule set", opening.rules, len(RULE_SETS), RunFileError)
    if isinstance(opening.format, int) and opening.format < 1:
        raise RunFileError(f"{path}: no such trace file format: {opening.format} - at `$.format`")
    try:
        trace = msgspec.json.decode(data, type=TraceFile)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RunFileError(f"{path}: {error}; restore the file, or trace again") from error
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


def _read(path: Path) -> bytes:
    with readable(path, "trace", RunFileError) as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise RunFileError(f"{path}: holds more than {_MOST_BYTES >> 20} MiB; give a file that trace wrote")
    return data
