"""Compiled C in a cache folder: built once, by the machine's compiler or that of the package ``ziglang``.

A folder is named by a digest of all that went into it. It is built beside its place and renamed, so that scans at once
share it, and what a scan was killed at is never taken for whole; its manifest has the digests of its files, so that a
damaged one is built anew.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from detmatrix.scanner.errors import UsageError

_MANIFEST = "manifest.json"
_SCRATCH = "making-"
# Of any machine that shares the cache, and the same bits on each: no instruction of this CPU alone, no fused additions.
_FLAGS = ("-fPIC", "-shared", "-pthread", "-ffp-contract=off", "-fno-sanitize=undefined")
# No build takes so long: one that is older was left behind.
_LONGEST_SECONDS = 3600.0
_NO_COMPILER = (
    "without a GPU a C compiler is needed, and there is none: install cc (apt install gcc), "
    "or the package with one (pip install ziglang), or name another in the variable CC"
)


@dataclass(frozen=True)
class SharedLibrary:
    """One shared library to compile."""

    name: str  # of its file
    sources: tuple[str, ...]  # names among the files it is compiled from
    flags: tuple[str, ...] = ("-O1",)  # of the compiler, beside those of every library


def compiler() -> list[str]:
    """Return the command of a C compiler: that of the variable CC, ``cc``, or the one of the package ``ziglang``.

    Raises:
        UsageError: There is none.
    """
    named = shlex.split(os.environ.get("CC", "")) or ["cc"]
    if shutil.which(named[0]):
        return named
    if find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "cc", "-mcpu=baseline"]
    raise UsageError(_NO_COMPILER)


def of_nvidia(pattern: str) -> str | None:
    """Return the path of a file in NVIDIA's packages of the registry, such as ``*/bin/nvdisasm``; ``None`` if none has it."""
    spec = find_spec("nvidia")
    folders = (spec.submodule_search_locations or ()) if spec else ()
    return next((str(path) for folder in folders for path in sorted(Path(folder).glob(pattern))), None)


def built(purpose: str, files: Mapping[str, str], libraries: Sequence[SharedLibrary]) -> Path:
    """Return the folder that has these files and libraries, compiled now or by an earlier scan; its name begins with the purpose.

    Raises:
        UsageError: There is no compiler, it fails, or the cache cannot be written.
    """
    command = compiler()
    told = subprocess.run(
        [*command, "--version"], capture_output=True, text=True, errors="replace", check=False
    )
    identity = [sys.platform, os.uname().machine, command[-2:], told.stdout, _FLAGS]
    described = json.dumps([identity, sorted(files.items()), [vars(one) for one in libraries]])
    key = sha256(described.encode()).hexdigest()
    root = _cache_root()
    place = root / f"{purpose}-{key[:24]}"
    if _whole(place, key):
        return place
    with _writing(root):
        scratch = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=root))
    try:
        made = scratch / "made"
        _build(made, command, files, libraries)
        digests = {path.name: sha256(path.read_bytes()).hexdigest() for path in sorted(made.iterdir())}
        (made / _MANIFEST).write_text(json.dumps({"key": key, "files": digests}), encoding="utf-8")
        for attempt in range(2):
            with contextlib.suppress(OSError):
                made.rename(place)
            if _whole(place, key):
                return place
            # Damaged: it goes away as one, for another scan may look at it.
            with contextlib.suppress(OSError):
                place.rename(scratch / f"damaged{attempt}")
        raise UsageError(f"{place}: is damaged and cannot be replaced; remove it, or set XDG_CACHE_HOME")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        _remove_left_behind(root)


def _remove_left_behind(root: Path) -> None:
    """Remove what scans left that were killed while they built; those that build now keep theirs."""
    for path in root.glob(f"{_SCRATCH}*"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _LONGEST_SECONDS:
                shutil.rmtree(path)


def cache_folder(name: str) -> Path:
    """Return a folder of the cache for small files, made if there is none.

    Raises:
        UsageError: It cannot be written.
    """
    place = _cache_root() / name
    with _writing(place):
        return place


@contextlib.contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Make a folder if there is none, and refuse what keeps it or what the block makes in it from being written."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise UsageError(
            f"{folder}: cannot be written ({error.strerror}); name another folder in XDG_CACHE_HOME"
        ) from error


def _cache_root() -> Path:
    named = os.environ.get("XDG_CACHE_HOME", "")
    # What is not absolute is to be ignored, as the specification of the variable says.
    base = Path(named) if Path(named).is_absolute() else Path.home() / ".cache"
    return base / "detmatrix" / "gpu"


def _build(
    folder: Path, command: Sequence[str], files: Mapping[str, str], libraries: Sequence[SharedLibrary]
) -> None:
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    for one in libraries:
        arguments = [*command, *_FLAGS, *one.flags, "-o", one.name, *one.sources]
        done = subprocess.run(
            arguments, cwd=folder, capture_output=True, text=True, errors="replace", check=False
        )
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()
            why = lines[0].strip() if lines else f"exit code {done.returncode}"
            raise UsageError(
                f"{' '.join(command)} cannot compile {one.name}: {why}; name another compiler in CC"
            )


def _whole(folder: Path, key: str) -> bool:
    """Tell whether a folder is this user's, was built for this key, and has every file as it was built."""
    try:
        manifest = json.loads((folder / _MANIFEST).read_bytes())
        if folder.stat().st_uid != os.geteuid() or manifest["key"] != key:
            return False
        return all(
            sha256((folder / name).read_bytes()).hexdigest() == digest
            for name, digest in manifest["files"].items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
