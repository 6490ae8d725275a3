"""A child process: reads a JSON list of symbols, answers one JSON line for each; null where it cannot tell.

It runs under limits of its own, see ``scanner.census.names``.
"""

from __future__ import annotations

import contextlib
import json
import sys

MEMORY = 1 << 30
LONGEST = 1 << 16


def main() -> None:
    """Answer line by line, so that what was answered before a symbol that cannot be is kept."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource  # noqa: PLC0415 - Windows has none

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    try:
        from cpp_demangle import demangle  # noqa: PLC0415 - has no wheel for every platform
    except ImportError:
        return
    for symbol in json.load(sys.stdin):
        try:
            text = demangle(symbol) if symbol.startswith("_Z") and len(symbol) < LONGEST else None
        except ValueError:
            text = None
        print(json.dumps(text if text is not None and len(text) < LONGEST else None), flush=True)


if __name__ == "__main__":
    main()
