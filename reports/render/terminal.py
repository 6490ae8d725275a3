"""Text for a terminal: as wide as one that nobody widened."""

from __future__ import annotations

import textwrap

from scanner.errors import one_line

WIDTH = 80


def wrapped(text: str, indent: str = "") -> list[str]:
    """Break a text into lines; what goes on stands further in. Names and options stay whole."""
    return textwrap.wrap(
        one_line(text),
        WIDTH,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
