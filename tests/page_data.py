"""What the page of a report holds as data, from which its script draws rows."""

from __future__ import annotations

import json
import re
from typing import Any


def _block(page: str, name: str) -> Any:
    """Return one of the page's blocks of data."""
    found = re.search(rf'<script type="application/json" id="{name}">(.*?)</script>', page, re.DOTALL)
    assert found is not None, name
    return json.loads(found[1])


def results(page: str) -> list[dict[str, Any]]:
    """Return what each row shows, as the page's script reads it."""
    tables = _block(page, "tables")
    rows = [place for op in _block(page, "rows") for place in op["rows"]]
    found = [_record(tables["results"], _record(tables["rows"], place)["result"]) for place in rows]
    return [one | {"cells": [_record(tables["cells"], cell) for cell in one["cells"]]} for one in found]


def _record(table: dict[str, Any], place: int) -> dict[str, Any]:
    columns = {
        name: it
        if isinstance(it, list)
        else [it["of"][at] for at in it["at"]]
        if "at" in it
        else it["of"] * 9999
        for name, it in table.items()
    }
    return {name: column[place] for name, column in columns.items()}
