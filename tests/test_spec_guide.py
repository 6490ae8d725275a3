"""The guide to specs names all that a spec holds, and all that draws inputs."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from detmatrix.opspecs.inputs import Inputs
from detmatrix.opspecs.model import Case, OpSpec

GUIDE = (Path(__file__).parent.parent / "opspecs" / "README.md").read_text(encoding="utf-8")
# Said by what loads a spec, never by who writes one.
LOADED = {"source", "file", "digest", "described"}


def _told(heading: str) -> set[str]:
    """Return the names in the first column of the table below a line."""
    table = GUIDE.split(heading)[1].split("\n\n")[1]
    first = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return {name for cell in first for name in re.findall(r"`(?:t\.)?(\w+)", cell)}


@pytest.mark.parametrize(("kind", "heading"), [(OpSpec, "`OpSpec(...)`, in"), (Case, "`Case(...)`:")])
def test_every_field_is_told(kind: type, heading: str) -> None:
    """Neither more nor less."""
    assert _told(heading) == {field.name for field in fields(kind)} - LOADED


def test_every_method_is_told() -> None:
    """Whatever t has that a case may call."""
    # What a worker asks of it, and no case.
    asked = {"gradients", "smaller"}
    public = {name for name in vars(Inputs) if not name.startswith("_")} - asked

    assert _told("`t` draws on the CPU") == public | {"device", "dtype"}
