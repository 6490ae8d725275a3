"""Releases of torch are in order, whatever a file says that its torch is."""

from __future__ import annotations

import random

import pytest

from detmatrix.scanner.observations import versions


def test_releases_are_in_order() -> None:
    """Numbers count as numbers, a release comes behind what leads to it, and what is no version comes first."""
    expected = ["main", "2.9.1", "2.13.0a0+git0123456", "2.13.0rc1", "2.13.0", "2.13.0+cpu", "2.13.1"]
    given = expected.copy()
    random.Random(0).shuffle(given)

    assert sorted(given, key=versions.key) == expected


@pytest.mark.parametrize(
    ("version", "release", "minor"),
    [
        ("2.13.0+cpu", "2.13.0", (2, 13)),
        ("2.10", "2.10", (2, 10)),
        ("2.6.0a0+df5bbc09d1.nv24.11", "2.6.0a0", (2, 6)),
        ("main", "main", (0,)),
        ("9" * 5000, "9" * 5000, (0,)),
    ],
    ids=lambda value: str(value)[:12],
)
def test_release_and_minor_of_a_build(version: str, release: str, minor: tuple[int, ...]) -> None:
    """A build is of one release; a file may name anything, which is of none that is known."""
    assert (versions.release(version), versions.minor(version)) == (release, minor)
