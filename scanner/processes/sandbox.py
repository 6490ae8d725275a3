"""The folder that workers start in, so that another interpreter finds our package, and nothing beside it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

_PACKAGE = Path(__file__).absolute().parents[2]


class ImportSandbox:
    """The folder workers start in: a link to our package, and nothing else."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="detmatrix-worker-", ignore_cleanup_errors=True)
        self.path = Path(self._folder.name)
        (self.path / _PACKAGE.name).symlink_to(_PACKAGE, target_is_directory=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._folder.cleanup()


def cache_folder(sandbox: Path) -> Path:
    """Return a new folder in the sandbox for what one worker compiles."""
    return Path(tempfile.mkdtemp(prefix="compiled-", dir=sandbox))
