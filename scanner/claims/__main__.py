"""``python -m detmatrix.scanner.claims WHEEL…``: write the tables of releases."""

from __future__ import annotations

import sys

from detmatrix.scanner.claims.tables import main
from detmatrix.scanner.errors import DetmatrixError

if __name__ == "__main__":
    try:
        sys.exit(main())
    except DetmatrixError as problem:
        print(f"error: {problem}", file=sys.stderr)
        sys.exit(problem.exit_code)
