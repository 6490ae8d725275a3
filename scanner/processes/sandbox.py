"""The folder that workers start in, so that another interpreter finds our two packages and nothing else of ours."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

_PACKAGES = ("opspecs", "scanner")
_PREFIX = "detmatrix-sandbox-"
# Of the folders in it that hold what a worker compiles.
_CACHE = "compiled-"


class ImportSandbox:
    """The folder workers start in: links to the packages a worker imports, and nothing else."""

    def __init__(self) -> None:
        _remove_left_behind()
        # Locked while this process lives, and by its name found by others only once it is.
        made = Path(tempfile.mkdtemp(prefix=f"making-{_PREFIX}"))
        self._lock = os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.path = made.rename(made.with_name(made.name.removeprefix("making-")))
        root = Path(__file__).resolve().parents[2]
        for package in _PACKAGES:
            (self.path / package).symlink_to(root / package, target_is_directory=True)

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
                    for package in _PACKAGES:
                        with contextlib.suppress(FileNotFoundError):
                            os.readlink(package, dir_fd=lock)  # fails for what is no link, and so not ours
                            os.unlink(package, dir_fd=lock)
                    for name in os.listdir(lock):  # noqa: PTH208 - the folder that is locked, whatever its path names now
                        if name.startswith(_CACHE):
                            shutil.rmtree(name, ignore_errors=True, dir_fd=lock)
                    path.rmdir()
            finally:
                os.close(lock)
