"""What the reader admits every command can render: run files with random changes end in a report or in one line."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import lines, write_lines
from tests.mutants import Mutants, act, actions, base_run, read

ACTIONS = actions()


def _all_render(folder: Path, seed: int, count: int, seconds: float = 1e9) -> None:
    """Read that many mutants, and render each that can be read by one of the commands, in turn."""
    base = read(base_run(folder / "base.jsonl"))
    assert base is not None
    mutants, path = Mutants(folder / "base.jsonl", seed), folder / "mutant.jsonl"
    until, rendered = time.monotonic() + seconds, 0
    for number in range(count):
        if time.monotonic() > until:
            break
        mutants.write(path)
        if (one := read(path)) is not None:
            name = list(ACTIONS)[rendered % len(ACTIONS)]
            rendered += 1
            try:
                act(ACTIONS[name], one, base)
            except Exception as error:
                # pytest shows what was raised; which file it was is known here.
                error.add_note(f"{name}, seed {seed}, mutant {number}: {path}")
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


def test_what_is_rendered_says_something(tmp_path: Path) -> None:
    """The run that is changed is one that every command has something to say of."""
    base = read(base_run(tmp_path / "base.jsonl"))
    assert base is not None

    assert [name for name, action in ACTIONS.items() if not act(action, base, base)] == []


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
    base = read(base_run(tmp_path / "base.jsonl"))
    assert base is not None
    records = lines(tmp_path / "base.jsonl")
    for record in records:
        if record["kind"] == kind and record.get("outcome", "ran") == "ran":
            (record["environment"] if kind == "header" else record).update(change)

    if (one := read(write_lines(tmp_path / "mutant.jsonl", records))) is not None:
        for action in ACTIONS.values():
            act(action, one, base)
