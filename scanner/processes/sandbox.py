"""The folder that workers start in, so that another interpreter finds our package, and nothing beside it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

_PACKAGE = Path(__file__).absolute().parents[2]
_PREFIX = "detmatrix-sandbox-"
# Of the folders in it that hold what a worker compiles.
_CACHE = "compiled-"


class ImportSandbox:
    """The folder workers start in: a link to our package, and nothing else."""

    def __init__(self) -> None:
        _remove_left_behind()
        # Locked while this process lives, and by its name found by others only once it is.
        made = Path(tempfile.mkdtemp(prefix=f"making-{_PREFIX}"))
        self._lock = os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.path = made.rename(made.with_name(made.name.removeprefix("making-")))
        (self.path / _PACKAGE.name).symlink_to(_PACKAGE, target_is_directory=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def cache_folder(sandbox: Path) -> Path:
    """Return a new folder in the sandbox for what one worker compiles."""
    return Path(tempfile.mkdtemp(prefix=_CACHE, dir=sandbox))


def _remove_left_behind() -> None:
    """Remove the folders of scans that were killed: those of this user that nobody has locked."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        # Of others nothing is touched, links are not followed, and what else lies there stays.
        with contextlib.suppress(OSError):
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if os.fstat(lock).st_uid == os.geteuid():
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    with contextlib.suppress(FileNotFoundError):
                        os.readlink(_PACKAGE.name, dir_fd=lock)  # fails for what is no link, and so not ours
                        os.unlink(_PACKAGE.name, dir_fd=lock)
                    for name in os.listdir(lock):  # noqa: PTH208 - the folder that is locked, whatever its path names now
                        if name.startswith(_CACHE):
                            shutil.rmtree(name, ignore_errors=True, dir_fd=lock)
                    path.rmdir()
            finally:
                os.close(lock)
