"""Versions of torch: which release a build is of and what it is for, and which of two is older."""

from __future__ import annotations

from packaging.version import Version


def release(version: str) -> str:
    """Return the release that a build is of, ``2.13.0`` of ``2.13.0+cpu``."""
    return version.partition("+")[0]


def key(version: str) -> tuple[Version, str]:
    """Return what versions are sorted by; what is none, which a file may hold, comes first."""
    try:
        return Version(version), version
    except ValueError:
        return Version("0"), version


def minor(version: str) -> tuple[int, ...]:
    """Return the first two numbers, ``(2, 13)`` of ``2.13.0+cpu``."""
    return key(version)[0].release[:2]


def build_kind(version: str) -> str:
    """Return what a build is for: ``cpu``, ``cu`` (CUDA), ``rocm``, ``xpu``; empty if its version does not say.

    That of ``2.13.0+cu132`` is ``cu``: builds for two releases of CUDA are of one kind.
    """
    return version.partition("+")[2].partition(".")[0].rstrip("0123456789")
