"""Censuses and traces put together by the build they are of, which is that of the runs or it is said."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from msgspec import Struct

from reports.builds.expectations import Build, device_of, expect
from reports.docs.agreement import Docs
from scanner.census.record import Census, read_census
from scanner.claims.tables import documented_claims
from scanner.errors import UsageError
from scanner.observations.records import Claim
from scanner.observations.trace_file import read_trace
from scanner.observations.trace_records import TraceFile

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


def _builds(claims: Sequence[Claim], named: Sequence[tuple[str, Source]]) -> Iterator[Build]:
    for census, trace, device in paired(named):
        yield expect(claims, census, trace, device)


def paired(
    named: Sequence[tuple[str, Source]],
) -> Iterator[tuple[tuple[str, Census] | None, tuple[str, TraceFile] | None, str]]:
    """Yield each trace with the census of its build or else of its device, then the censuses left; and the device."""
    censuses = [(name, one) for name, one in named if isinstance(one, Census)]
    used: list[Census] = []
    for name, one in named:
        if isinstance(one, TraceFile):
            device = device_of(None, one)
            fitting = [other for other in censuses if device == "cpu" or device_of(other[1], None) == device]
            # One release is built for several versions of CUDA, and for none: the trace's own build comes first.
            fitting.sort(
                key=lambda other: (version(other[1]) != version(one), device_of(other[1], None) != device)
            )
            used += [other for _, other in fitting[:1] if device_of(other, None) == device]
            yield fitting[0] if fitting else None, (name, one), device
    for name, census in censuses:
        if not any(census is one for one in used):
            yield (name, census), None, device_of(census, None)


def fits(one: Source, torch: str, gits: set[str]) -> bool:
    """Tell whether a file is of a release, made from the same sources where both are known."""
    git = git_of(one)
    return release(one) == torch and (git is None or not gits or git in gits)


def version(one: Source) -> str:
    """Return the version of a file's build."""
    return one.torch if isinstance(one, Census) else one.build.torch


def release(one: Source) -> str:
    """Return the release of a file's build."""
    return version(one).partition("+")[0]


def git_of(one: Source) -> str | None:
    """Return the git revision of a file's build."""
    return one.torch_git if isinstance(one, Census) else one.build.torch_git
