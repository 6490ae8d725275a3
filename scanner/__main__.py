"""``python -m scanner`` is ``detmatrix``."""

from detmatrix import main

if __name__ == "__main__":
    main()
