"""Censuses and traces put together by the build they are of, which is that of the runs or it is said."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from msgspec import Struct

from reports.builds import words
from reports.builds.expectations import (
    EXPECTATION_MEANING,
    PLACE_MEANING,
    BuildExpectations,
    Expectation,
    ExpectedClaim,
    count,
    expect,
)
from reports.builds.files import Source, fits, git_of, outdated, paired, release, version
from reports.builds.links import WAY_MEANING
from reports.builds.ops import OP_MEANING, ExpectedOp
from reports.docs.agreement import Docs
from reports.matrix.expected import link_fields
from reports.render.json import View, fields_of
from scanner.census.record import read_census
from scanner.claims.tables import contradictions, documented_claims
from scanner.errors import UsageError
from scanner.observations.records import Claim
from scanner.observations.trace.files import read_trace

# The evidence of these is told in full.
_DISAGREEMENTS: tuple[Expectation, ...] = (
    "alert_gone",
    "alert_reached",
    "alert_partly",
    "unsettled",
    "other_device",
    "unlinked",
)
_DEVICES = {"cpu": "CPU", "cuda": "CUDA"}


class BuildFiles(Struct, frozen=True, kw_only=True):
    """What the files of builds say of the lists of one release."""

    torch: str  # the release, without the build
    note: str | None  # where the claims come from, if not from a run
    builds: tuple[BuildExpectations, ...]
    left: tuple[str, ...]  # a sentence for each file that was not joined
    outdated: tuple[str, ...]  # a sentence for each that an older rule set made
    docs: Docs | None  # what was measured, if anything was
    self_contradictory: tuple[tuple[Claim, Claim], ...]


def read_files(
    censuses: Sequence[str],
    traces: Sequence[str],
    docs: Docs | None,
    given: tuple[Claim, ...] | None = None,
) -> BuildFiles:
    """Read the files and judge the claims *given*; else those of the runs, or without runs those of their release.

    Raises:
        BuildError: A census cannot be read.
        RunFileError: A trace cannot be read.
        UsageError: There is no table of the release's claims, or no file at all.
    """
    named: list[tuple[str, Source]] = [
        *((PurePath(path).name, read_census(path)) for path in censuses),
        *((PurePath(path).name, read_trace(path)) for path in traces),
    ]
    if not named:
        raise UsageError("give run files, or a census or a trace of a build")
    torch = docs.torch if docs is not None else release(named[0][1])
    gits = {
        git
        for git in (
            [one.run.header.environment.torch_git for one in docs.matrices]
            if docs is not None
            else [git_of(named[0][1])]
        )
        if git is not None
    }
    fitting = [(name, one) for name, one in named if fits(one, torch, gits)]
    whose = "the runs are" if docs is not None else f"{named[0][0]} is"
    left = tuple(
        f"Not joined: {name} is of torch {version(one)} (git {git_of(one) or 'unknown'}), and {whose} "
        f"of torch {torch} (git {', '.join(sorted(gits)) or 'unknown'})."
        for name, one in named
        if not fits(one, torch, gits)
    )
    claims = given
    if claims is None:
        claims = docs.claims if docs is not None else documented_claims(torch)
    note = (
        None if docs is not None or given is not None else f"The bullets are those tabled for torch {torch}."
    )
    builds = tuple(expect(claims, *files) for files in paired(fitting))
    return BuildFiles(
        torch=torch,
        note=note,
        builds=builds,
        left=left,
        outdated=tuple(f"{text}." for name, one in fitting if (text := outdated(one, name)) is not None),
        docs=docs,
        self_contradictory=contradictions(claims),
    )


def view_of(files: BuildFiles) -> View:
    """Return what is shown of builds: its keys are the JSON, its attributes what only people read."""
    return View(
        {
            "torch": files.torch,
            "note": files.note,
            "not_joined": files.left,
            "outdated": files.outdated,
            "expectations": EXPECTATION_MEANING,
            "self_contradictory": [
                {"deterministic": one.id, "raises": other.id, "texts": [one.text, other.text]}
                for one, other in files.self_contradictory
            ],
            "builds": [_build(build, files.docs) for build in files.builds],
        },
        # Runs have said it before.
        pairs=files.self_contradictory if files.docs is None else (),
        places=PLACE_MEANING,
        op_kinds=OP_MEANING,
        ways=WAY_MEANING,
        disagreements=_DISAGREEMENTS,
    )


def _build(build: BuildExpectations, docs: Docs | None) -> View:
    return View(
        {
            "torch": build.torch,
            "device": build.device,
            "census": build.census_name,
            "trace": build.trace_name,
            "counts": {name: number for name, number, _ in count(build)},
            "claims": [_claim(one, build, docs) for one in build.expected],
            "no_bullet": [
                {"kind": one.kind, **fields_of(one.place, "function", "library", "alert"), "ops": one.ops}
                for one in build.unspoken
            ],
            "ops": [_op(one) for one in build.ops],
        },
        of=_DEVICES.get(build.device, build.device),
        files=[name for name in (build.census_name, build.trace_name) if name is not None],
    )


def _op(one: ExpectedOp) -> View:
    groups = {
        "unlisted": ("no bullet speaks of", one.unlisted),
        "passing": ("documented to raise, and no alert is known of", one.passing),
        "unsure": ("documented to raise, and may pass the alert by, of", one.unsure),
    }
    return View(
        {
            **fields_of(one, "op", "direction", "documented", "kinds", "alerts", "innocent"),
            "cases": len(one.rows),
            "raising": [row.row.row.id for row in one.raising],
            **{name: [row.row.row.id for row in rows] for name, (_, rows) in groups.items()},
        },
        may_pass=sum(row.may_pass for row in one.raising),
        groups=[(text, len(rows), one.named(rows)) for text, rows in groups.values() if rows],
    )


def _claim(one: ExpectedClaim, build: BuildExpectations, docs: Docs | None) -> View:
    ways: dict[str, list[str]] = {}
    for traced in one.traced:
        ways.setdefault(traced.text, []).append(traced.row.row.id)
    return View(
        {
            "id": one.claim.id,
            "text": one.claim.text,
            "documented": words.documented(one),
            "binary": words.binary(one, build),
            "trace": words.trace(one, build),
            "expected": one.expectation,
            "measured": _measured(one, docs),
            "alerts": [link_fields(link) for link in one.alerts],
            "flags": [link_fields(link) for link in one.flags],
            "traced": [{"id": row.row.row.id, "way": row.way, "told": row.text} for row in one.traced],
        },
        links=[words.link_words(link) for link in dict.fromkeys((*one.alerts, *one.flags))],
        ways=ways,
    )


def _measured(one: ExpectedClaim, docs: Docs | None) -> str:
    """Say what was measured; a run that gave no evidence measured nothing."""
    judged = [] if docs is None else [other for other in docs.judged if other.claim.id == one.claim.id]
    for other in judged:
        if other.agreement in {"contradicted", "confirmed", "not_triggered"}:
            return f"{other.agreement} on {' and '.join(dict.fromkeys(row.device for row in other.deciding))}"
    return "not measured"
