"""Runs that never were in a file, for tests of comparisons: rows that show a finding, and what surrounds them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from detmatrix.reports.compare.runs import Pair, compare
from detmatrix.reports.matrix.model import Matrix, matrix_of
from detmatrix.scanner.modes import MODES, WORKER_MODES
from detmatrix.scanner.observations.records import Claim, Cost, Row, Sentinel, Settings
from detmatrix.scanner.observations.runfile import Run
from detmatrix.scanner.verdicts.vocabulary import Finding
from tests.runs import CLOSING, ENVIRONMENT, HEADER, SETTINGS, Planned, seen

OFTEN = 20  # distinct outputs of a row that differs so often that no other run would have missed it
ROUNDS = 7  # processes of each mode where rows are measured again

# What a row of each finding shows, as ``seen`` reads it; {} are the distinct outputs where it differs.
SHOWN: dict[Finding, str] = {
    "deterministic": "off stable; on stable",
    "mode_dependent": "off stable; on stable b",
    "fixed_by_mode": "off drifting {0}; on stable",
    "uninitialized": "off drifting {0}; on stable; unfilled drifting {0}",
    "raises": "off drifting {0}; on raises scatter_add_kernel",
    "over_alert": "off stable; on raises scatter_add_kernel",
    "silent": "off stable; on drifting {0}",
    "inconclusive": "off raised NotImplementedError: no kernel; on stable",
}


def shows(finding: Finding, planned: Row | None = None, *, often: int = OFTEN) -> Planned:
    """Return a row, a scatter_add_ by default, that shows a finding; where it differs it has so many distinct outputs."""
    return seen(SHOWN[finding].format(often), planned)


def in_turns(finding: Finding, *, odd: int | None = None) -> Planned:
    """Return a row as measuring it again gives it: what differs does so in each of seven processes.

    Args:
        finding: The finding.
        odd: In how many processes instead something differs.
    """
    planned, observations = shows(finding)
    still = dict(shows("deterministic")[1][0].digests)
    again = []
    for one in observations:
        if one.process == 0:
            for process in range(ROUNDS):
                usual = odd is not None and process >= odd and len(one.digests) > 1
                again.append(replace(one, process=process, **({"digests": still} if usual else {})))
    return planned, again


def run_of(
    *rows: Planned,
    name: str = "run.jsonl",
    torch: str = "2.13.0+cpu",
    claims: Sequence[Claim] = (),
    sentinels: Sequence[Sentinel] = (),
    costs: Sequence[Cost] = (),
    distrust: tuple[str, ...] = (),
    settings: Settings | None = None,
    **environment: Any,
) -> Matrix:
    """Return the matrix of a run with these rows; *environment* are fields in which its machine is another.

    It is of the device of its rows, and runs of other names started at other times. A run in which no op was run under warn_only
    is one of a scan that had no such mode.
    """
    observations = tuple(observation for _, of_row in rows for observation in of_row)
    settings = settings or replace(SETTINGS, device=rows[0][0].device if rows else "cpu")
    if any(observation.mode not in MODES for observation in observations):
        settings = replace(settings, modes=WORKER_MODES)
    header = replace(
        HEADER,
        started=f"{HEADER.started}, {name}",
        settings=settings,
        environment=replace(ENVIRONMENT, torch=torch, **environment),
        planned=tuple(planned for planned, _ in rows),
        claims=tuple(claims),
    )
    run = Run(
        path=name,
        header=header,
        observations=observations,
        closing=replace(CLOSING, observations=len(observations), distrust=distrust),
        end=0,
        sentinels=tuple(sentinels),
        costs=tuple(costs),
    )
    return matrix_of(name, run)


def pair_of(old: Matrix, new: Matrix) -> Pair:
    """Return the comparison of two runs."""
    (pair,) = compare([old, new]).pairs
    return pair
