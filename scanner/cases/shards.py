"""The shards of a plan: which scan observes which groups of rows, and the digest by which files of one plan are known."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from heapq import heapify, heapreplace
from pathlib import Path
from statistics import median

import msgspec
from msgspec.structs import replace

from detmatrix.scanner.accelerators import kind_of
from detmatrix.scanner.errors import UsageError
from detmatrix.scanner.observations.parts import BUILD, common_settings
from detmatrix.scanner.observations.records import Header, Observation, Row
from detmatrix.scanner.observations.runfile import RunReader
from detmatrix.scanner.plurals import several


def divided(groups: Sequence[str], shards: int, seconds: Mapping[str, float]) -> dict[str, int]:
    """Return the shard that observes each group of rows.

    Those that take longest are given away first, each to the shard that has least to do. Without seconds all are taken to
    be alike, so that each shard has every Nth group.

    Args:
        groups: In planned order.
        shards: How many there are.
        seconds: What groups took in an earlier run; one that it did not have is taken to be an ordinary one.

    Raises:
        UsageError: A shard would have no group.
    """
    if shards > max(len(groups), 1):
        are = "is" if len(groups) == 1 else "are"
        raise UsageError(
            f"--shard, --shards: {several(shards, 'shard')}, and there {are} {several(len(groups), 'op')} to divide among "
            f"them; give fewer shards"
        )
    ordinary = median(seconds[group] for group in groups if group in seconds) if seconds else 1.0
    expected = {group: seconds.get(group, ordinary) for group in groups}
    busy = [(0.0, number) for number in range(1, shards + 1)]
    heapify(busy)
    found: dict[str, int] = {}
    # A group that takes no time must not go where others of its kind are: each shard is to have one.
    least = max(expected.values(), default=0.0) * 1e-9 or 1.0
    for group in sorted(groups, key=lambda group: -expected[group]):
        taken, number = busy[0]
        found[group] = number
        heapreplace(busy, (taken + max(expected[group], least), number))
    return {group: found[group] for group in groups}


def seconds_of(path: Path, groups: Sequence[str]) -> dict[str, float]:
    """Return how long each group of rows took in a run.

    Raises:
        RunFileError: It cannot be read.
        UsageError: It has none of these groups.
    """
    seconds: defaultdict[str, float] = defaultdict(float)
    known = set(groups)
    for record in RunReader(path).records():
        if isinstance(record, Observation) and record.spec in known:
            seconds[record.spec] += record.seconds + record.setup_seconds
    if not seconds:
        raise UsageError(f"--balance {path}: has none of the ops of this scan; give a run of the same ops")
    return dict(seconds)


def plan_digest(header: Header, rows: Sequence[Row]) -> str:
    """Return the digest of a plan, which is the same for all of its shards.

    Args:
        header: Of any of them.
        rows: That are planned before databases are enumerated, of all shards.
    """
    environment = header.environment
    planned = {
        "tool": header.tool,
        "build": [getattr(environment, name) for name in BUILD],
        "settings": common_settings(header.settings),
        "claims": header.claims,
        # Which of its GPUs a machine gives is its own affair.
        "controls": [replace(row, device=kind_of(row.device)) for row in header.controls],
        # The module of a file of specs is named after its place.
        "rows": [(row.key, row.digest or row.op) for row in rows],
        "groups": header.groups,
        "shards": header.shards,
    }
    return hashlib.sha256(msgspec.json.encode(planned)).hexdigest()
