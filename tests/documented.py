"""Documented lists and the rows that speak to them, for tests of the docs command."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from detmatrix.reports.docs.judge import Docs, JudgedClaim, join
from detmatrix.reports.docs.regenerate import HEADINGS, INDENT
from detmatrix.reports.matrix.model import Matrix, matrix_of
from detmatrix.scanner.claims.tables import parse_claims
from detmatrix.scanner.observations.records import (
    MODES,
    Claim,
    CpuComparison,
    Mode,
    Observation,
    Schedule,
    SimulatedDevice,
    Simulation,
)
from detmatrix.scanner.verdicts.vocabulary import Finding
from tests.compared import run_of, shows
from tests.evidence_runs import sentinel
from tests.runs import Planned, row

CPU, CUDA = "when called on a CPU tensor", "when called on a CUDA tensor"
SIMULATED = "simulated:0"


def docstring(acting: Iterable[str] = (), raising: Iterable[str] = ()) -> str:
    """Return a docstring with these bullets in its two lists; a bullet may have several lines."""
    lists = [
        heading + "\n" + "".join(textwrap.indent(f"* {bullet}\n", INDENT) for bullet in bullets)
        for heading, bullets in zip(HEADINGS.values(), (acting, raising), strict=True)
    ]
    return "Sets a flag.\n\n" + "\n".join(lists) + "\n    Note that this is all.\n"


def shown(op: str, finding: Finding, device: str = "cuda", **fields: Any) -> Planned:
    """Return a row of an op on a device with a finding; *fields* are those of ``tests.runs.row``, and how *often* it differs."""
    often = fields.pop("often", 6)
    return shows(finding, row(op, fields.pop("case", finding), device=device, **fields), often=often)


def docs_of(text: str, rows: Sequence[Planned]) -> Docs:
    """Return what a run says of a docstring."""
    return join([run_of(*rows, claims=parse_claims(text))])


def seen_as(one: Matrix, change: Callable[[Observation], Observation], **fields: Any) -> Matrix:
    """Return a run with other observations; *fields* are further ones of the run that are others."""
    observations = tuple(map(change, one.run.observations))
    return matrix_of(one.name, replace(one.run, observations=observations, **fields))


def only(docs: Docs) -> JudgedClaim:
    """Return the one claim that was judged."""
    (judged,) = docs.judged
    return judged


def bullets(text: str) -> tuple[list[str], list[str]]:
    """Return the bullets of both lists, each on one line."""
    claims = {claim.order: claim for claim in parse_claims(text)}.values()
    acting, raising = (
        [claim.text for claim in claims if claim.section == section]
        for section in ("deterministic", "raises")
    )
    return acting, raising


def weak(docs: Docs, modes: Sequence[Mode] = MODES) -> Docs:
    """Return what the same runs say if hardly anything could race in some modes."""
    sentinels = tuple(sentinel(mode, differing=1) for mode in modes)
    return join([matrix_of(one.name, replace(one.run, sentinels=sentinels)) for one in docs.matrices])


def serial(docs: Docs) -> Docs:
    """Return what the same runs say if one thread did all the work of every row."""
    return join([seen_as(one, lambda it: replace(it, threads=1)) for one in docs.matrices])


def simulated(text: str, *rows: Planned, multiprocessors: int = 108, **known: Any) -> Matrix:
    """Return a run on a simulated GPU; what differs does so under ``resident-blocks``, and *known* is known of every cell."""
    one = run_of(*rows, claims=parse_claims(text), name=f"{multiprocessors}.jsonl")
    schedule = known.pop("schedule", "resident-blocks")
    found = Simulation(cpu=CpuComparison(agrees=True), **known)
    differs = replace(found, schedule=Schedule(name=schedule, number=0, seed=0))
    header = one.run.header
    gpu = SimulatedDevice(
        architecture="sm_80",
        name="GPU",
        multiprocessors=multiprocessors,
        build="b",
        executions={"canonical": 2},
    )
    environment = replace(header.environment, simulated=gpu)

    def observed(it: Observation) -> Observation:
        known = differs if len(it.digests) > 1 else found
        return replace(it, simulated=known) if it.outcome == "ran" else it

    return seen_as(one, observed, header=replace(header, environment=environment))


# Single bullets under the headings of the lists, and the claims they are read as.

DETERMINISTIC, RAISES = HEADINGS.values()
CUBLAS = (
    "    A handful of CUDA operations are nondeterministic unless the environment variable\n"
    "    ``CUBLAS_WORKSPACE_CONFIG=:4096:8`` is set. If not, a :class:`RuntimeError`\n"
    "    will be raised from these operations when called with CUDA tensors:\n"
)


def read(bullet: str, heading: str = RAISES) -> tuple[Claim, ...]:
    """Return the claims of the lists that consist of one bullet, written without its marker."""
    return parse_claims(f"Sets.\n\n{heading}\n        * {bullet}\n\n    Note that this is slow.\n")


def claim_of(bullet: str) -> Claim:
    (claim,) = read(bullet)
    return claim
