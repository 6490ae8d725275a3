"""What a check has to tell, before it is written in the form that a CI system reads."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import PurePath
from typing import Literal

from msgspec import Struct

Level = Literal["error", "warning", "notice"]
State = Literal["passed", "failed", "skipped", "error"]

_NAMED = 3  # rows that one line names


class Annotation(Struct, frozen=True, kw_only=True):
    """A remark that a CI system shows beside a file."""

    level: Level
    title: str
    text: str
    file: str


class CheckCase(Struct, frozen=True, kw_only=True):
    """One test case: a row, or several that are told together."""

    group: str  # the op
    name: str
    state: State
    text: str  # what it showed, or why it was skipped
    doubt: str | None = None  # why it says little that it passed


class Suite(Struct, frozen=True, kw_only=True):
    """The test cases of one run, or of two that are compared."""

    name: str
    cases: tuple[CheckCase, ...]


def place_of(path: str) -> str:
    """Return a path as CI systems want it: from the current folder; without its folder if it lies elsewhere."""
    # By its words alone: a path that a run file holds is not looked for.
    near = os.path.relpath(path)
    return PurePath(path).name if near.startswith("..") else near


def named(ids: Sequence[str]) -> str:
    """Name the first rows of several."""
    more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
    return f"{', '.join(ids[:_NAMED])}{more}"
