"""Scripts of ``detmatrix repro`` as tests make them; loading this takes a torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from detmatrix.opspecs.model import OpSpec, Planned
from detmatrix.opspecs.registry import SPECS, select
from detmatrix.opspecs.user import load_specs
from detmatrix.scanner.observations.records import Header, Output
from detmatrix.scanner.repro.script import InputSource, script
from detmatrix.scanner.verdicts.findings import MatrixRow, matrix
from detmatrix.scanner.worker.execution import Execution
from detmatrix.scanner.worker.repro import input_source
from tests.runs import ENVIRONMENT, HEADER, SETTINGS, ran, row

SEED = 3
OUTPUT = Output(name="output", shape=(4096,), dtype="float32", differing=0)
# Ops as a user declares them, for the findings that no op of PyTorch gives on a CPU.
PLANTED = (Path(__file__).parent / "data" / "specs-scripts.py.txt").read_text(encoding="utf-8")


def header(**environment: Any) -> Header:
    """Return the header of a run on this machine, whose variables change nothing in this process."""
    settings = msgspec.structs.replace(SETTINGS, runs=2, processes=1, seed=SEED)
    changed = msgspec.structs.replace(ENVIRONMENT, **{"variables": {}, **environment})
    return msgspec.structs.replace(HEADER, settings=settings, environment=changed)


def seen(spec: OpSpec, planned: Planned, *outputs: Output, device: str = "cpu") -> MatrixRow:
    """Return a row of which nothing is known but, if given, its outputs."""
    planned_row = row(*planned, family=spec.family, device=device)
    (observed,) = ran(planned_row, "off", {"a": 2})
    observed = msgspec.structs.replace(observed, outputs=outputs)
    head = msgspec.structs.replace(header(), planned=(planned_row,))
    (found,) = matrix(head, [observed], closed=True)
    return found


def source_of(spec_files: Sequence[str] = (), **row: Any) -> dict[str, Any]:
    """Return what a worker with files of specs answers to how the inputs of a row are made."""
    own = [spec for path in spec_files for spec in load_specs(path)]
    return input_source({spec.name: spec for spec in (*SPECS, *own)}, **row)


def asked(planned: Planned, device: str = "cpu", specs: Sequence[str] = ()) -> InputSource:
    """Return the recipe of a row."""
    return msgspec.convert(source_of(specs, **planned._asdict(), device=device, seed=SEED), InputSource)


def drawn_by_worker(planned: Planned, spec: OpSpec) -> Execution:
    """Return the execution of a row as a worker makes it."""
    where = {"direction": planned.direction, "dtype": planned.dtype, "device": "cpu", "seed": SEED}
    return Execution(spec, planned.case, **where)  # type: ignore[arg-type]


def loaded(text: str) -> dict[str, Any]:
    """Execute a script as a module, which runs nothing, and return its names."""
    names: dict[str, Any] = {"__name__": "script"}
    exec(compile(text, "script", "exec"), names)
    return names


def put() -> tuple[OpSpec, Planned]:
    return select(["torch.Tensor.put_:overwrite:forward:float32"], "cpu")[0]


def loaded_put(**options: Any) -> dict[str, Any]:
    """Return the names of a script with nothing special about it."""
    return loaded(script(asked(put()[1], **options), seen(*put(), OUTPUT), header()))
