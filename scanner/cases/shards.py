"""The shards of a plan: which scan observes which groups of rows, and the digest by which files of one plan are known."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from detmatrix.scanner.accelerators import kind_of
from detmatrix.scanner.errors import UsageError
from detmatrix.scanner.observations.parts import BUILD, common_settings
from detmatrix.scanner.observations.records import Header, Row
from detmatrix.scanner.plurals import several


def divided(groups: Sequence[str], shards: int) -> dict[str, int]:
    """Return the shard that observes each group of rows: each has every Nth group, in planned order.

    Raises:
        UsageError: A shard would have no group.
    """
    if shards > max(len(groups), 1):
        are = "is" if len(groups) == 1 else "are"
        raise UsageError(
            f"--shard, --shards: {several(shards, 'shard')}, and there {are} {several(len(groups), 'op')} to divide among "
            f"them; give fewer shards"
        )
    return {group: 1 + place % shards for place, group in enumerate(groups)}


def plan_digest(header: Header, rows: Sequence[Row]) -> str:
    """Return the digest of a plan, by the header of any of its shards and the rows of all that are planned before enumerating."""
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
