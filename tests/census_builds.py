"""Small builds of torch for the tests of the census: a wheel around a library that is kept beside the tests."""

from __future__ import annotations

import zipfile
from pathlib import Path

from tests.commands import command_in

LIBRARY = (Path(__file__).parent / "data" / "census" / "alerts.so").read_bytes()
VERSION = b"__version__ = '2.99.0+cpu'\ncuda: str | None = None\ngit_version = 'abc123'\n"
PYTHON = b"""import torch

if torch.are_deterministic_algorithms_enabled():
    pass


class Meta:
    def median(self, deterministic):
        utils.alert_not_deterministic("median CUDA with indices output")
        return torch.backends.cudnn.deterministic and deterministic


def set_flag(mode):
    torch.use_deterministic_algorithms(mode)
    torch.backends.cudnn.deterministic = mode
    utils.alert_not_deterministic(f"{mode}d")
"""
MEMBERS = {
    "torch/version.py": VERSION,
    "torch/_meta.py": PYTHON,
    "torch/lib/libtorch_cpu.so": LIBRARY,
}


def wheel(path: Path, members: dict[str, bytes] | None = None) -> Path:
    """Write a wheel of the given members, by default those of a whole build."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in (MEMBERS if members is None else members).items():
            file.writestr(name, content)
    return path


def with_library(path: Path, library: bytes) -> Path:
    """Write a wheel with another library."""
    return wheel(path, MEMBERS | {"torch/lib/libtorch_cpu.so": library})


def detmatrix(*arguments: str | Path) -> tuple[int, str, str]:
    """Run the command line in this process; return exit code, output, and messages but progress."""
    done = command_in(Path.cwd())(*arguments)
    lines = [line for line in done.stderr.splitlines(keepends=True) if not line.startswith("reading ")]
    return done.returncode, done.stdout, "".join(lines)
