"""Text for a terminal: as wide as that is, and 80 columns where nobody looks at one."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Iterable

from detmatrix.scanner.errors import one_line

NARROW, _WIDE = 80, 160


def columns() -> int:
    """Return how many columns a text may take."""
    if not sys.stdout.isatty():
        return NARROW
    return min(max(shutil.get_terminal_size((NARROW, 24)).columns, NARROW // 2), _WIDE)


def wrapped(text: str, indent: str = "", width: int | None = None) -> list[str]:
    """Break a text into lines; what goes on stands further in. Names and options stay whole."""
    return textwrap.wrap(
        one_line(text),
        columns() if width is None else width,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def fitted(names: Iterable[str], width: int, most: int = 0) -> dict[str, str]:
    """Return each name on one line; one that is too wide without what stands before a dot or a colon of it.

    Two names do not read the same: what would stays whole. That, or a last part that is too wide, may take *most* columns.
    """
    texts: dict[str, str] = {}
    most = max(width, most)
    for name in dict.fromkeys(names):
        whole = one_line(name)
        ends = [f"…{whole[dot.end() :]}" for dot in re.finditer(r"[.:]", whole)]
        texts[name] = next((text for text in (whole, *ends) if len(text) <= width), (whole, *ends)[-1])
    counts = Counter(texts.values())
    chosen = {name: text if counts[text] == 1 else one_line(name) for name, text in texts.items()}
    return {
        name: text if len(text) <= most else f"…{text[len(text) - most + 1 :]}"
        for name, text in chosen.items()
    }
