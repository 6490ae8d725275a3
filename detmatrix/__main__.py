"""``python -m detmatrix`` is ``detmatrix``."""

from detmatrix.scanner.cli.main import main

if __name__ == "__main__":
    main()
