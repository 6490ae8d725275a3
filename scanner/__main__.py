"""``python -m scanner`` is ``detmatrix``."""

from scanner.cli.main import main

if __name__ == "__main__":
    main()
