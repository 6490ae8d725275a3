"""What the files of builds say of the documented lists, as JSON for machines."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from reports.builds import words
from reports.builds.expectations import EXPECTATION_MEANING, BuildExpectations, ExpectedClaim, count
from reports.docs.builds import BuildFiles, measured
from reports.matrix.expected import link_fields


def render(files: BuildFiles) -> Iterator[str]:
    """Yield one object, of files alone."""
    yield msgspec.json.format(msgspec.json.encode(fields(files)), indent=1).decode() + "\n"


def fields(files: BuildFiles) -> dict[str, object]:
    """Return what is told of builds, by key."""
    return {
        "torch": files.torch,
        "note": files.note,
        "not_joined": files.left,
        "expectations": EXPECTATION_MEANING,
        "builds": [_build(build, files) for build in files.builds],
    }


def _build(build: BuildExpectations, files: BuildFiles) -> dict[str, object]:
    return {
        "torch": build.torch,
        "device": build.device,
        "census": build.census_name,
        "trace": build.trace_name,
        "counts": {name: number for name, number, _ in count(build)},
        "claims": [_claim(one, build, files) for one in build.expected],
        "no_bullet": [
            {
                "kind": one.kind,
                "function": one.place.function,
                "library": one.place.library,
                "alert": one.place.alert,
                "ops": one.ops,
            }
            for one in build.unspoken
        ],
    }


def _claim(one: ExpectedClaim, build: BuildExpectations, files: BuildFiles) -> dict[str, object]:
    return {
        "id": one.claim.id,
        "text": one.claim.text,
        "documented": words.documented(one),
        "binary": words.binary(one, build),
        "trace": words.trace(one, build),
        "expected": one.expectation,
        "measured": measured(one, files.docs),
        "alerts": [link_fields(link) for link in one.alerts],
        "flags": [link_fields(link) for link in one.flags],
        "traced": [{"id": row.row.row.id, "way": row.way, "told": row.text} for row in one.traced],
    }
