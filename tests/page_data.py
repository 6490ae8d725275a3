"""What the page of a report holds as data, from which its script draws rows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any


def block(page: str, name: str) -> Any:
    """Return one of the page's blocks of data."""
    found = re.search(rf'<script type="application/json" id="{name}">(.*?)</script>', page, re.DOTALL)
    assert found is not None, name
    return json.loads(found[1])


def told(page: str) -> list[str]:
    """Return every text that the rows are drawn from, each once."""
    return list(_texts(block(page, "pool")))


def results(page: str) -> list[list[Any]]:
    """Return what each row shows, its finding's place in the pool first, as the page's script reads it."""
    pool = block(page, "pool")
    return [pool[row[4]] for op in block(page, "rows") for row in op[5]]


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)
