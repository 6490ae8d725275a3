"""Censuses and traces put together by the build they are of, which is that of the runs or it is said."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from msgspec import Struct

from reports.builds.expectations import BuildExpectations, ExpectedClaim, expect
from reports.builds.files import Source, fits, git_of, paired, release, version
from reports.docs.agreement import Docs
from scanner.census.record import read_census
from scanner.claims.tables import documented_claims
from scanner.errors import UsageError
from scanner.observations.records import Claim
from scanner.observations.trace_file import read_trace


class BuildFiles(Struct, frozen=True, kw_only=True):
    """What the files of builds say of the lists of one release."""

    torch: str  # the release, without the build
    note: str | None  # where the claims come from, if not from a run
    builds: tuple[BuildExpectations, ...]
    left: tuple[str, ...]  # a sentence for each file that was not joined
    docs: Docs | None  # what was measured, if anything was


def read_files(censuses: Sequence[str], traces: Sequence[str], docs: Docs | None) -> BuildFiles:
    """Read the files and judge the claims of their release; of the runs' release, if there are runs.

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
    claims: tuple[Claim, ...] = docs.claims if docs is not None else documented_claims(torch)
    note = None if docs is not None else f"The bullets are those tabled for torch {torch}."
    return BuildFiles(torch=torch, note=note, builds=tuple(_builds(claims, fitting)), left=left, docs=docs)


def _builds(claims: Sequence[Claim], named: Sequence[tuple[str, Source]]) -> Iterator[BuildExpectations]:
    for census, trace, device in paired(named):
        yield expect(claims, census, trace, device)


def measured(one: ExpectedClaim, docs: Docs | None) -> str:
    """Say what was measured; a run that gave no evidence measured nothing."""
    judged = [] if docs is None else [other for other in docs.judged if other.claim.id == one.claim.id]
    for other in judged:
        if other.agreement in {"contradicted", "confirmed", "not_triggered"}:
            return f"{other.agreement} on {' and '.join(dict.fromkeys(row.device for row in other.deciding))}"
    return "not measured"
