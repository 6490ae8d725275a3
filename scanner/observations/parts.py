"""Of which shards of a plan a run file is made, on which machines, and what is missing of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from detmatrix.scanner.accelerators import kind_of
from detmatrix.scanner.observations.records import Closing, Environment, Header, Part, Row, Settings

# What of an environment is the build's, with the libraries that are installed beside it; the rest is the machine's.
BUILD = ("torch", "torch_git", "cuda", "rocm", "cudnn", "simulated")


def parts_of(header: Header, closing: Closing | None = None) -> tuple[Part, ...]:
    """Return the parts of a merged file; any other file is one, of which the closing line must be given to stand there."""
    return header.parts or (
        Part(
            shard=header.shard,
            started=header.started,
            environment=header.environment,
            workers=header.settings.workers,
            closing=closing,
        ),
    )


def machine_of(header: Header, row: Row) -> Environment:
    """Return the machine on which a row was observed."""
    return header.parts[row.part].environment if header.parts else header.environment


def in_common(header: Header, name: str) -> object:
    """Return a field of the environment in which all machines of a run are alike; ``None`` if they are not."""
    values = [getattr(part.environment, name) for part in parts_of(header)]
    return values[0] if values.count(values[0]) == len(values) else None


def part_by_worker(header: Header) -> list[Part]:
    """Return which part each worker belongs to, by the number that observations and sentinels have."""
    return [part for part in parts_of(header) for _ in range(part.workers)]


def common_settings(settings: Settings) -> Settings:
    """Return the settings that all shards of a plan have in common."""
    # Where files of specs lie, for how many workers it has room, and which of its GPUs it gives, is a machine's own affair.
    return replace(settings, specs=(), workers=1, device=kind_of(settings.device))


def misplaced(header: Header, row: Row) -> str | None:
    """Say that a row does not belong to the part that is said to have it; ``None`` if it does."""
    parts = header.parts
    if row.part >= max(len(parts), 1):
        return f"is of part {row.part}, and there are {max(len(parts), 1)}"
    return foreign(header, row.spec, (parts[row.part].shard if parts else header.shard,))


def foreign(header: Header, group: str, here: Collection[int]) -> str | None:
    """Say that an op is in another shard of the plan than those that are here; ``None`` if it is in one of them."""
    if not header.groups:
        return None  # older files name no plan
    shard = header.groups.get(group)
    if shard in here:
        return None
    if shard is None:
        return "is in no shard of the plan"
    return f"is in shard {shard} of the plan, not in {ranges([*here])}"


def part_without(header: Header, row: Row) -> str | None:
    """Name the shard of its plan in which a row would be and which a file lacks; ``None`` if it lacks none of them."""
    shard = header.groups.get(row.spec)
    there = shard is None or any(part.shard == shard for part in parts_of(header))
    return None if there else part_name(shard or 1, header.shards)


def part_name(shard: int, shards: int) -> str:
    """Name a shard of a plan."""
    return f"shard {shard} of {shards}" if shards > 1 else "the whole plan"


def missing_words(header: Header, parts: Sequence[Part]) -> str:
    """Say which shards of a plan are missing or not finished; empty if it is whole."""
    there = {part.shard for part in parts}
    absent = [shard for shard in range(1, header.shards + 1) if shard not in there]
    unfinished = [part.shard for part in parts if part.closing is None]
    if header.shards == 1:
        return "the scan did not finish" if unfinished else ""
    said = ((absent, "missing"), (unfinished, "not finished"))
    return "; ".join(_are(shards, header.shards, what) for shards, what in said if shards)


def shard_words(header: Header) -> str:
    """Say which shards of a plan a file holds; empty of a file that is the whole plan."""
    if header.parts:
        return f"{len(header.parts)} of {header.shards}, in {len(header.parts)} files"
    return f"{header.shard} of {header.shards}" if header.shards > 1 else ""


def ranges(numbers: Sequence[int]) -> str:
    """Return sorted numbers with runs joined: ``0-3, 8``."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def _are(shards: Sequence[int], count: int, what: str) -> str:
    several = len(shards) > 1
    return f"shard{'s' * several} {ranges(shards)} of {count} {'are' if several else 'is'} {what}"
