"""What the reader admits every command can render: run files with random changes end in a report or in one line."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import Any

import pytest

from detmatrix.reports.matrix.model import load
from detmatrix.scanner.errors import EXIT_RUN_FILE, DetmatrixError
from detmatrix.scanner.observations.merge import merge
from detmatrix.scanner.repro.script import invariance_script, script
from tests.commands import command_in
from tests.conftest import lines, write_lines
from tests.goldens import LINES, prepare
from tests.mutants import INPUT_SOURCE, Mutants

RUN = "run.jsonl"
# Of goldens that read the run which shows everything: a command line for each command and format.
GOLDENS = {
    (line.split()[0], *line.partition("--format ")[2].split()[:1]): line
    for line in LINES.values()
    if RUN in line.split()
}
ACTIONS = (*GOLDENS.values(), f"compare weak.jsonl {RUN} --fail-on change", "scripts", "merge")


def _is_rendered(folder: Path, action: str) -> bool:
    """Do something with the run in a folder, and tell whether it was read; what is refused is refused in a line."""
    if action not in {"scripts", "merge"}:
        done = command_in(folder)(*action.split())
        assert done.returncode in range(EXIT_RUN_FILE + 1)
        assert done.stdout or done.stderr or "--into" in action
        return done.returncode != EXIT_RUN_FILE
    with contextlib.suppress(DetmatrixError):
        (_write_scripts if action == "scripts" else _merge)(folder / RUN)
        return True
    return False


def _write_scripts(path: Path) -> None:
    (one,) = load([str(path)])
    for planned in one.rows:
        assert script(INPUT_SOURCE, planned, one.run.header)
        for what in planned.invariance:
            # One that was not tried is refused in a line.
            with contextlib.suppress(DetmatrixError):
                invariance_script(INPUT_SOURCE, planned, one.run.header, what)


def _merge(path: Path) -> None:
    """Merge a run as the only shard of its plan: a merged one is refused."""
    header, _, rest = path.read_text(encoding="utf-8", errors="surrogateescape").partition("\n")
    shard = path.with_name("shard.jsonl")
    alone = json.dumps(json.loads(header) | {"parts": [], "shards": 1, "shard": 1})
    shard.write_text(f"{alone}\n{rest}", encoding="utf-8", errors="surrogateescape")
    assert list(merge([shard])[2])


def _all_render(folder: Path, seed: int, count: int, seconds: float = 1e9) -> None:
    """Do one of the actions with each mutant, the next one when one was read."""
    prepare(folder)
    mutants = Mutants(folder / RUN, seed)
    until, rendered = time.monotonic() + seconds, 0
    for number in range(count):
        if time.monotonic() > until:
            break
        mutants.write(folder / RUN)
        action = ACTIONS[rendered % len(ACTIONS)]
        try:
            rendered += _is_rendered(folder, action)
        except Exception as error:
            # pytest shows what was raised; which file it was is known here.
            error.add_note(f"{action}, seed {seed}, mutant {number}: {folder / RUN}")
            raise
    assert rendered > number / 10


@pytest.mark.parametrize("seed", range(2))
def test_mutants_are_rendered_or_refused(tmp_path: Path, seed: int) -> None:
    """600 of them, the same each time; nightly 50 000."""
    _all_render(tmp_path, seed, 300)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(100, 104))
def test_many_mutants_are_rendered_or_refused(tmp_path: Path, seed: int) -> None:
    """50 000 of them, or as many as two minutes are enough for."""
    _all_render(tmp_path, seed, 12_500, seconds=30)


# What ended in a traceback before the reader refused it or reports knew it: (kind of line, change).
FOUND: dict[str, tuple[str, dict[str, Any]]] = {
    "controls": ("header", {"torch": "1" * 5000}),
    "controls, executions": ("observation", {"executions": 10**30, "digests": {"a": 10**30}, "groups": []}),
    "matrix model, inputs": ("observation", {"inputs": [f"args[0]: float32 ({'9' * 5000})"]}),
    "matrix model, product": ("observation", {"inputs": [f"args[0]: float32 ({', '.join(['9' * 18] * 600)})"]}),
    "matrix model, sums": ("cost", {"off_memory": 2**63 - 1, "on_memory": 2**64}),
    "power": ("sentinel", {"executions": 10**400, "differing": 10**399}),
    "cost": ("cost", {"off": dict.fromkeys(("median", "low", "high"), 1e-320)}),
    "cost, large": ("cost", {"on": dict.fromkeys(("median", "low", "high"), 1.7e308)}),
    "severity": ("observation", {"outputs": [{"name": "o", "shape": [-1], "dtype": "x" * 99, "differing": 10**400}]}),
    "compare cost": ("cost", {"on": dict.fromkeys(("median", "low", "high"), 1e-323)}),
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_mutants_that_were_not_rendered(tmp_path: Path, name: str) -> None:
    """Every command over each of them."""
    kind, change = FOUND[name]
    prepare(tmp_path)
    records = lines(tmp_path / RUN)
    for record in records:
        if record["kind"] == kind and record.get("outcome", "ran") == "ran":
            (record["environment"] if kind == "header" else record).update(change)
    write_lines(tmp_path / RUN, records)

    assert len({_is_rendered(tmp_path, action) for action in ACTIONS}) == 1
