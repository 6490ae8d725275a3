"""Find a build of torch without running any of it: beside an interpreter, or in a wheel."""

from __future__ import annotations

import ast
import json
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from scanner.census.wheel import MAX_LIBRARY, Wheel
from scanner.errors import BuildError, UsageError

# The libraries that hold ops, in the order of the census. Which of them there are depends on the build.
LIBRARIES = tuple(f"libtorch_{name}.so" for name in ("cpu", "cuda", "cuda_linalg", "hip", "xpu"))
MAX_SOURCE = 4 << 20  # bytes of one Python file
_SECONDS = 60

# Asks an interpreter where packages lie: it runs nothing that lies there (no site, so no .pth files).
_WHERE = """
import json, os, site, sys
prefixes, user = [sys.prefix], [site.getusersitepackages()]
base = os.path.dirname(os.path.dirname(os.path.abspath(sys.executable)))
if os.path.exists(os.path.join(base, "pyvenv.cfg")):
    with open(os.path.join(base, "pyvenv.cfg")) as file:
        shared = "include-system-site-packages = true" in file.read().lower()
    prefixes, user = [base] + ([sys.base_prefix] if shared else []), user if shared else []
print(json.dumps(user + site.getsitepackages(prefixes)))
"""


class Version(NamedTuple):
    """What ``torch/version.py`` says."""

    torch: str
    git: str | None
    cuda: str | None


class Build:
    """A build of torch: its version, its libraries, its Python files."""

    def __init__(self, source: str) -> None:
        """Name the build.

        Args:
            source: What the record calls it.
        """
        self.source = whole(source)
        self._refuse_other_platforms()
        text = self.read("torch/version.py")
        if text is None:
            raise BuildError(f"{source}: holds no torch/version.py; give a build of torch")
        self.version = _version(source, text)

    @property
    def names(self) -> tuple[str, ...]:
        """The files in it that may matter, as ``torch/lib/libtorch_cpu.so``, sorted."""
        raise NotImplementedError

    def read(self, name: str) -> bytes | None:
        """Return a small file; ``None`` if there is none, or it is larger than any Python file of torch."""
        raise NotImplementedError

    def library(self, name: str) -> AbstractContextManager[Path]:
        """Give a library as a file on disk while the context lasts."""
        raise NotImplementedError(name)

    @property
    def libraries(self) -> tuple[str, ...]:
        """The libraries there are."""
        return tuple(name for name in LIBRARIES if f"torch/lib/{name}" in self.names)

    @property
    def python_files(self) -> tuple[str, ...]:
        """The Python files of the package."""
        return tuple(name for name in self.names if name.endswith(".py"))

    def _refuse_other_platforms(self) -> None:
        if "torch/lib/libtorch_cpu.so" in self.names:
            return
        for suffix, platform in (("libtorch_cpu.dylib", "macOS"), ("torch_cpu.dll", "Windows")):
            if f"torch/lib/{suffix}" in self.names:
                raise BuildError(
                    f"{self.source}: a build for {platform}; a census reads builds for Linux on x86-64"
                )
        raise BuildError(f"{self.source}: holds no torch/lib/libtorch_cpu.so; give a build of torch")


class InstalledBuild(Build):
    """A torch that an interpreter would import."""

    def __init__(self, python: str) -> None:
        """Find it.

        Args:
            python: Path of the interpreter.

        Raises:
            UsageError: There is no such interpreter.
            BuildError: It has no torch.
        """
        version = find_installed(python, "torch/version.py")
        if version is None:
            raise BuildError(
                f"{python}: has no torch beside it; name another interpreter with --python, or a --wheel"
            )
        self._folder = version.parent
        self._names = tuple(
            sorted(
                f"torch/{path.relative_to(self._folder).as_posix()}"
                for pattern in ("lib/*", "**/*.py")
                for path in self._folder.glob(pattern)
                if path.is_file()
            )
        )
        super().__init__("installed")

    @property
    def names(self) -> tuple[str, ...]:
        """The files in it that may matter."""
        return self._names

    def _path(self, name: str) -> Path:
        return self._folder.parent / name

    def read(self, name: str) -> bytes | None:
        """Return a small file."""
        try:
            with self._path(name).open("rb") as file:
                text = file.read(MAX_SOURCE + 1)
        except OSError:
            return None
        return text if len(text) <= MAX_SOURCE else None

    @contextmanager
    def library(self, name: str) -> Iterator[Path]:
        """Give the library where it lies."""
        path = self._path(f"torch/lib/{name}")
        if path.stat().st_size > MAX_LIBRARY:
            raise BuildError(f"{name}: larger than any library of torch")
        yield path


class WheelBuild(Build):
    """A torch in a wheel."""

    def __init__(self, wheel: Wheel) -> None:
        """Look into a wheel.

        Raises:
            BuildError: It is no wheel of torch for Linux, or damaged.
        """
        self._wheel = wheel
        self._names = tuple(name for name in wheel.names if name.startswith("torch/"))
        super().__init__(wheel.path.name)

    @property
    def names(self) -> tuple[str, ...]:
        """The members that may matter."""
        return self._names

    def read(self, name: str) -> bytes | None:
        """Return a small member."""
        return self._wheel.read(name, MAX_SOURCE) if name in self._wheel else None

    @contextmanager
    def library(self, name: str) -> Iterator[Path]:
        """Unpack the library."""
        with self._wheel.unpacked(f"torch/lib/{name}") as path:
            yield path


@contextmanager
def open_build(python: str, wheel: str | None) -> Iterator[Build]:
    """Give the build in a wheel while the context lasts, or the one beside an interpreter.

    Raises:
        UsageError: There is no such interpreter.
        BuildError: There is no build, or it cannot be read.
    """
    if wheel is None:
        yield InstalledBuild(python)
    else:
        with closing(Wheel(Path(wheel))) as opened:
            yield WheelBuild(opened)


def find_installed(python: str, name: str) -> Path | None:
    """Return a file that a package beside an interpreter has, ``torch/version.py`` say; ``None`` if it is not there.

    Raises:
        UsageError: There is no such interpreter.
    """
    try:
        done = subprocess.run(
            [python, "-I", "-S", "-c", _WHERE], capture_output=True, text=True, timeout=_SECONDS, check=True
        )
        folders = [str(folder) for folder in json.loads(done.stdout)]
    except (OSError, subprocess.SubprocessError, ValueError, TypeError) as error:
        raise UsageError(f"{python}: does not run as a Python interpreter; give one with --python") from error
    return next((Path(folder) / name for folder in folders if (Path(folder) / name).is_file()), None)


def _version(source: str, text: bytes) -> Version:
    """Read the assignments of ``torch/version.py`` without running it."""
    values: dict[str, object] = {}
    try:
        for statement in ast.parse(text).body:
            if isinstance(statement, ast.Assign):
                target, value = statement.targets[0], statement.value
            elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
                target, value = statement.target, statement.value
            else:
                continue
            if isinstance(target, ast.Name) and isinstance(value, ast.Constant):
                values[target.id] = value.value
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        values = {}
    torch, git, cuda = (values.get(name) for name in ("__version__", "git_version", "cuda"))
    if not isinstance(torch, str):
        raise BuildError(f"{source}: torch/version.py names no version; give a build of torch")
    return Version(
        whole(torch),
        whole(git) if isinstance(git, str) else None,
        whole(cuda) if isinstance(cuda, str) else None,
    )


def whole(text: str) -> str:
    """Return a text of a build with lone surrogates replaced, which could not be written to a record."""
    return text.encode(errors="replace").decode()
