"""Why a run cannot be trusted: what its scan found out, and what its controls and inputs show whatever it says."""

from __future__ import annotations

from collections.abc import Iterator

from detmatrix.scanner.observations.parts import part_by_worker
from detmatrix.scanner.observations.records import Mode
from detmatrix.scanner.observations.runfile import Run
from detmatrix.scanner.verdicts.controls import misbehaving
from detmatrix.scanner.verdicts.findings import unequal_inputs
from detmatrix.scanner.verdicts.invariance import is_control, misled


def distrust(run: Run) -> tuple[str, ...]:
    """Say why a run cannot be trusted; its observations are asked even where its closing line says nothing."""
    stored = run.closing.distrust if run.closing else ()
    missing = (
        f"the control {control} was not observed in process {process} of mode {mode}"
        for control, mode, process in unobserved(run)
    )
    shown = (
        *unequal_inputs(run.observations),
        *misbehaving(run.header, run.controls),
        *invariance_distrust(run),
    )
    return tuple(dict.fromkeys((*stored, *run.distrust, *shown, *missing)))


def unobserved(run: Run) -> Iterator[tuple[str, Mode, int]]:
    """Yield the controls that a finished scan passed over where it observed rows, each with mode and process."""
    if run.closing is None:
        return
    seen = {(control.key, control.mode, control.process, control.worker) for control in run.controls}
    for mode, process, worker in dict.fromkeys(
        (one.mode, one.process, one.worker) for one in run.observations
    ):
        for control in run.header.controls:
            if (control.key, mode, process, worker) not in seen:
                yield control.spec.removeprefix("control."), mode, process


def invariance_distrust(run: Run) -> Iterator[str]:
    """Yield why what a run says of invariance cannot be trusted."""
    controls = [one for one in run.invariances if is_control(one)]
    yield from misled(controls)
    if run.closing is None:
        return
    part_of = part_by_worker(run.header)
    # Those of one machine vouch for no other.
    answered = {(part_of[one.worker], one.what) for one in controls}
    asked = {(part_of[one.worker], one.what) for one in run.invariances}
    yield from (f"no control was asked of {what}" for _, what in sorted(asked - answered))
