"""Hold a census against a run: every alert that a scan met must be in the census of that build."""

from __future__ import annotations

from scanner.alerts import alert_caller
from scanner.census.record import Census
from scanner.errors import UsageError
from scanner.observations.runfile import Run


def met(run: Run) -> dict[str, str]:
    """Return the callers of the alerts that a run met, each with the id of a row that met it."""
    found: dict[str, str] = {}
    rows = {row.key: row.id for row in (*run.header.planned, *run.header.controls)}
    for one in (*run.observations, *run.controls):
        for caller in (alert_caller(one.exception, one.message), *one.alerts):
            if caller is not None:
                found.setdefault(caller, rows.get(one.key, ":".join(one.key)))
    return found


def missing_alerts(census: Census, run: Run) -> list[str]:
    """Return a line for each alert that a run met and the census does not have.

    Raises:
        UsageError: The run is of another build, so that nothing follows from either.
    """
    scanned = run.header.environment
    same = (
        census.torch == scanned.torch
        if census.torch_git is None or scanned.torch_git is None
        else census.torch_git == scanned.torch_git
    )
    if not same:
        raise UsageError(
            f"{run.path}: is of torch {scanned.torch} (git {scanned.torch_git or 'unknown'}), the census of "
            f"{census.torch} (git {census.torch_git or 'unknown'}); take the census of the build that was scanned"
        )
    known = {one.alert for one in census.alerts} | {one.alert for one in census.python}
    unresolved = census.counts.unresolved
    rest = f"; {unresolved} call sites are unresolved" if unresolved else ""
    return [
        f"missing: {caller}: {row} raised it, and no call site in the census of torch {census.torch} names it{rest}"
        for caller, row in sorted(met(run).items())
        if caller not in known
    ]
