"""Of which build a census or a trace is, and which of them belong together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reports.builds.expectations import device_of
from scanner.census import record as census_record
from scanner.census.record import Census
from scanner.observations import versions
from scanner.observations.trace import records as trace_records
from scanner.observations.trace.records import TraceFile

Source = Census | TraceFile


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
    return versions.release(version(one))


def git_of(one: Source) -> str | None:
    """Return the git revision of a file's build."""
    return one.torch_git if isinstance(one, Census) else one.build.torch_git


def outdated(one: Source, name: str = "it") -> str | None:
    """Say of a file that an older rule set made what has changed since; ``None`` of one that today's made."""
    known = (census_record if isinstance(one, Census) else trace_records).RULE_SETS
    if one.rules == len(known):
        return None
    what = "census" if isinstance(one, Census) else "trace"
    since = "; ".join(known[one.rules :])
    return (
        f"{name} was made by rule set {one.rules} of {what}, today's is {len(known)} ({since}); make it again"
    )
