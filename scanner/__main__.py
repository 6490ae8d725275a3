"""``python -m scanner`` is ``detmatrix``."""

from scanner.cli import main

if __name__ == "__main__":
    main()
