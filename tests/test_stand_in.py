"""The stand-in for a worker speaks the truth: a real worker, asked the same, answers in the same form."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from detmatrix.opspecs.controls import SPECS as CONTROLS
from detmatrix.scanner.modes import DEFAULT_MODES
from detmatrix.scanner.observations.records import Mode
from detmatrix.scanner.processes.process import ImportSandbox, WorkerSupervisor
from tests.quick import SPECS
from tests.stand_in import StandIn

# One stands for the modes that a scan is asked for.
_PARAMS: tuple[Mode, ...] = (*DEFAULT_MODES, "backward_only")
# Requests with their replies; what a worker says of its torch, with those; the mode, with what a real one and a stand-in say.
Transcript = list[tuple[dict[str, Any], dict[str, Any]]]
Both = tuple[Mode, list[tuple[dict[str, Any], Transcript]]]
FILE = Path(__file__).with_name("quick.py")
WHERE = {"device": "cpu", "seed": 0}
RUNS = {"runs": 8, "perturbations": ["quiet", "stress", "shift", "poison"], "max_time": None}


def _requests() -> Iterator[dict[str, Any]]:
    """Yield what a scan asks of a worker: sentinels, controls, rows, timings, overloads."""
    sentinel = {"spec": "sentinel.index_put", "case": "race", "direction": "forward", "dtype": "float32"}
    yield {"do": "sentinel", **sentinel, **WHERE, "runs": 20}
    rows = [planned for spec in (*CONTROLS, *SPECS) for planned in spec.rows("cpu")]
    for one in rows:
        yield {"do": "observe", **one._asdict(), **WHERE, **RUNS}
    yield {"do": "kernels", "device": "cpu", "overloads": True}
    for one in rows:
        if one.spec == "quick.cumsum":
            yield {"do": "cost", **one._asdict(), **WHERE, "max_seconds": 0.01}
            yield {"do": "dispatch", **one._asdict(), **WHERE}
            yield {"do": "invariance", **one._asdict(), **WHERE, "property": "layout", "max_time": 10}
    yield {"do": "turn", "mode": "warn_only"}


def _transcript(python: str, mode: Mode) -> tuple[dict[str, Any], Transcript]:
    """Return what a worker says of its torch, and each request with the reply."""
    with ImportSandbox() as sandbox:
        worker = WorkerSupervisor(python, sandbox.path, (str(FILE),), "cpu").start(mode)
        try:
            # The flag is another one where rows are timed and looked into.
            asked = [one for one in _requests() if mode == "on" or one["do"] in {"sentinel", "observe"}]
            return dict(worker.build), [(one, worker.ask(dict(one), 60)) for one in asked]
        finally:
            worker.stop()


@pytest.fixture(scope="module", params=_PARAMS)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Both:
    """Return the transcripts of both, in each mode."""
    standing = StandIn(tmp_path_factory.mktemp("standing"))
    pythons = sys.executable, str(standing.python)
    return request.param, [_transcript(python, request.param) for python in pythons]


def _form(value: Any, hidden: frozenset[str] = frozenset()) -> Any:
    """Return the fields and the kinds of what a worker replied; of a list those of its first item, of hidden fields nothing."""
    if isinstance(value, dict):
        return {name: "…" if name in hidden else _form(inner, hidden) for name, inner in value.items()}
    if isinstance(value, list):
        return [_form(one, hidden) for one in value[:1]]
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return "number" if is_number else type(value).__name__


def test_the_hello_has_the_same_form(both: Both) -> None:
    """Both say of their torch the same things."""
    _, ((real, _), (standing, _)) = both

    assert set(real) == set(standing)
    lines = [name for name, value in real.items() if value is not None and name != "devices"]
    assert [_form(real[name]) for name in lines] == [_form(standing[name]) for name in lines]


# Fields that depend on what an op computes and on the machine: their presence is compared, and no more.
_VALUES = frozenset(
    ["severity", "blank", "blank_output", "digests", "first_differing", "inputs", "overloads", "groups"]
)


def _shape(reply: dict[str, Any]) -> Any:
    """Return the form of a reply, with what was executed under which perturbation."""
    answer = reply["answer"]
    groups = answer.get("groups", []) if "outcome" in answer else []
    shared = [(group["perturbation"], group["executions"]) for group in groups]
    return _form(reply, _VALUES), answer.get("outcome"), answer.get("executions"), shared


# Where a stand-in gives the answer of a healthy op, these fail or are not there.
_UNWELL = ("quick.fails", "quick.missing")


def test_replies_have_the_same_form(both: Both) -> None:
    """Each reply has the same fields, of the same kinds, for as many executions under each perturbation."""
    mode, ((_, real), (_, standing)) = both
    healthy = [
        (asked, reply, also)
        for (asked, reply), (_, also) in zip(real, standing, strict=True)
        if asked.get("spec") not in _UNWELL
    ]

    for asked, reply, also in healthy:
        if asked["do"] == "sentinel":
            # How soon ten executions have differed is up to the machine.
            reply["answer"]["executions"] = also["answer"]["executions"]
            reply["answer"]["groups"] = also["answer"]["groups"]
        assert _shape(reply) == _shape(also), asked
    assert len(healthy) == (26 if mode == "on" else 12)
