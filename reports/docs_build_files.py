"""Censuses and traces put together by the build they are of, which is that of the runs or it is said."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from msgspec import Struct

from reports.docs_build import Build, device_of, expect
from reports.docs_join import Docs
from scanner.census.record import Census, read_census
from scanner.claims import documented_claims
from scanner.errors import UsageError
from scanner.records import Claim
from scanner.trace_records import TraceFile
from scanner.tracefile import read_trace

Source = Census | TraceFile


class BuildFiles(Struct, frozen=True, kw_only=True):
    """What the files of builds say of the lists of one release."""

    torch: str  # the release, without the build
    note: str | None  # where the claims come from, if not from a run
    builds: tuple[Build, ...]
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
    torch = docs.torch if docs is not None else _release(named[0][1])
    gits = {
        git
        for git in (
            [one.run.header.environment.torch_git for one in docs.matrices]
            if docs is not None
            else [_git(named[0][1])]
        )
        if git is not None
    }
    fitting = [(name, one) for name, one in named if _fits(one, torch, gits)]
    whose = "the runs are" if docs is not None else f"{named[0][0]} is"
    left = tuple(
        f"Not joined: {name} is of torch {_version(one)} (git {_git(one) or 'unknown'}), and {whose} "
        f"of torch {torch} (git {', '.join(sorted(gits)) or 'unknown'})."
        for name, one in named
        if not _fits(one, torch, gits)
    )
    claims: tuple[Claim, ...] = docs.claims if docs is not None else documented_claims(torch)
    note = None if docs is not None else f"The bullets are those tabled for torch {torch}."
    return BuildFiles(torch=torch, note=note, builds=tuple(_builds(claims, fitting)), left=left, docs=docs)


def _builds(claims: Sequence[Claim], named: Sequence[tuple[str, Source]]) -> Iterator[Build]:
    """Yield each trace with the census of its device, then the censuses that are left."""
    censuses = [(name, one) for name, one in named if isinstance(one, Census)]
    used: set[str] = set()
    for name, one in named:
        if isinstance(one, TraceFile):
            device = device_of(None, one)
            fitting = [other for other in censuses if device == "cpu" or device_of(other[1], None) == device]
            used |= {other[0] for other in fitting[:1] if device_of(other[1], None) == device}
            yield expect(claims, fitting[0] if fitting else None, (name, one), device)
    for name, census in censuses:
        if name not in used:
            yield expect(claims, (name, census), None, device_of(census, None))


def _fits(one: Source, torch: str, gits: set[str]) -> bool:
    git = _git(one)
    return _release(one) == torch and (git is None or not gits or git in gits)


def _version(one: Source) -> str:
    return one.torch if isinstance(one, Census) else one.build.torch


def _release(one: Source) -> str:
    return _version(one).partition("+")[0]


def _git(one: Source) -> str | None:
    return one.torch_git if isinstance(one, Census) else one.build.torch_git
