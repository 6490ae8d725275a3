"""What real GPUs did beside the recorded simulation: one that was measured, and those that others published.

``python -m tests.test_published`` writes the tables.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from detmatrix.reports.render import grouped
from detmatrix.scanner.modes import Mode
from detmatrix.scanner.observations.runfile import read_run
from detmatrix.scanner.schedules import SCHEDULES
from detmatrix.scanner.verdicts.cells import Cell
from detmatrix.scanner.verdicts.findings import MatrixRow, matrix
from detmatrix.scanner.verdicts.simulated import others

GPU = Path(__file__).parents[1] / "scanner" / "gpu"
RUNS = Path(__file__).parents[1] / "reports" / "runs"
PAGE = GPU / "README.md"
ENTRIES = tomllib.loads((GPU / "published.toml").read_text(encoding="utf-8"))["published"]
WORDS = {"nondeterministic": "differs", "deterministic": "same", "raises": "raises"}
H100 = (("2.11.0", "simulated-sm_90"), ("2.11.0", "cuda-as-simulated"))


@cache
def recorded(torch: str, device: str) -> dict[str, MatrixRow]:
    """Return the rows of a recorded run on a GPU, or on a simulated one."""
    run = read_run(RUNS / f"torch-{torch}-{device}.jsonl.gz")
    return {it.row.id: it for it in matrix(run.header, run.observations, closed=True)}


def cells(
    runs: Sequence[tuple[str, str]], flags: Iterable[Mode] = ("off", "on")
) -> Iterator[tuple[str, Mode, list[Cell]]]:
    """Yield the cells of rows that all of these runs have: the row, the flag, and what each shows."""
    rows = [recorded(*one) for one in runs]
    for row in rows[0]:
        if all(row in one for one in rows):
            yield from ((row, flag, [one[row].cell(flag) for one in rows]) for flag in flags)


def shown(cell: Cell) -> str:
    """Return what schedules showed, with the class that did."""
    word = WORDS.get(cell.verdict, cell.verdict)
    schedule = cell.simulated.schedule if cell.simulated else None
    text = f"{word} ({schedule.name})" if schedule else word
    return "; ".join([text, *(others(cell.simulated) if cell.simulated and not schedule else ())])


def devices() -> str:
    """Return how far architectures agree on what differs."""
    found = cells([("2.15.0", f"simulated-sm_{one}") for one in (80, 90, 100)])
    differing = [it for it in found if any(one.verdict == "nondeterministic" for one in it[2])]
    unlike = [
        f"* `{row}`, flag {flag}: {'; '.join(map(shown, on))}\n"
        for row, flag, on in differing
        if len({*map(shown, on)}) > 1
    ]
    return (
        f"Of {len(differing)} cells in float32 (a row with the flag off or on) that differ on sm_80, sm_90 or sm_100, all of torch 2.15.0, "
        f"{len(differing) - len(unlike)} differ on all, and in the same class. The others, in this order:\n\n{''.join(unlike)}\n"
    )


def table() -> str:
    """Return the table, with a sentence for each disagreement, and what other architectures say."""
    rows, alike = recorded("2.15.0", "simulated-sm_80"), 0
    lines = ["| what | GPU | flag | published | simulated | row |", "|---|---|---|---|---|---|"]
    for entry in ENTRIES:
        said = shown(rows[entry["row"]].cell(entry["flag"]))
        agrees = said.startswith(entry["seen"])
        alike += agrees
        why = "" if agrees else f". {entry['why']}"
        lines.append(
            f"| {entry['what']} | {entry['gpu']} | {entry['flag']} | [{entry['seen']}]({entry['source']}) | {said}{why} "
            f"| `{entry['row']}` |"
        )
    told = f"{alike} of {len(ENTRIES)} agree; the others are explained."
    return "\n".join(["", *lines, "", told, "", devices()])


def alike(row: str, flag: str) -> bool:
    """Whether the first execution of each process gave the same bits on an H100 as simulated."""
    first, other = (
        {
            next(iter(one.digests))
            for one in recorded(*run)[row].observations
            if one.mode == flag and one.digests
        }
        for run in H100
    )
    return first == other


def said_simulated(cell: Cell) -> str:
    """Return what a simulation says of a cell, as the table of an H100 has it."""
    simulation = cell.simulated
    if cell.verdict == "nondeterministic" and simulation and simulation.schedule:
        return f"differs: {simulation.schedule.name}"
    if cell.verdict == "deterministic" and simulation and simulation.race_free:
        return "same, proved"
    return {"deterministic": "same", "not_run": "not_run: a library"}.get(cell.verdict, cell.verdict)


ORDER = ["raises", "same, proved", "same", *(f"differs: {name}" for name in SCHEDULES), "not_run: a library"]


def measured() -> str:
    """Return what an H100 did in the cells of the simulation of one, given the same inputs."""
    found = [(row, flag, said_simulated(ours), ours, gpu) for row, flag, (ours, gpu) in cells(H100)]
    kinds = grouped((one[2], one) for one in found)
    lines = ["| the simulation says | cells | the H100 | the same bits |", "|---|---|---|---|"]
    for kind in sorted(kinds, key=lambda one: ORDER.index(one) if one in ORDER else len(ORDER)):
        there = Counter(WORDS.get(gpu.verdict, gpu.verdict) for *_, gpu in kinds[kind])
        same = [alike(row, flag) for row, flag, *_ in kinds[kind] if kind.startswith("same")]
        bits = f"{sum(same)} of {len(same)}" if same else ""
        text = ", ".join(f"{count} {word}" for word, count in there.most_common())
        lines.append(f"| {kind} | {len(kinds[kind])} | {text} | {bits} |")
    unseen = [
        f"* `{row}`, flag {flag}"
        for row, flag, said, ours, gpu in found
        if (ours.verdict, gpu.verdict) == ("nondeterministic", "deterministic") and said != "differs: lanes"
    ]
    silent = [
        f"* `{row}`, flag on"
        for row, flag, _, ours, gpu in found
        if (flag, ours.verdict, gpu.verdict) == ("on", "not_run", "nondeterministic")
    ]
    never = f"Of the classes that GPUs take, the H100 did not show {len(unseen)}:"
    quietly = f"With the flag on, of libraries that are not simulated, it differs, and nothing is raised, in {len(silent)}:"
    return "\n".join(["", *lines, "", never, "", *unseen, "", quietly, "", *silent, "", ""])


BLOCKS: dict[str, Callable[[], str]] = {"published": table, "measured": measured}


def block(text: str, name: str) -> tuple[int, int]:
    """Return where a block of the page begins and ends."""
    begin = f"<!-- {name}:begin -->\n"
    return text.index(begin) + len(begin), text.index(f"<!-- {name}:end -->")


@pytest.mark.parametrize("name", BLOCKS)
def test_a_table_is_what_the_recorded_runs_say(name: str) -> None:
    """A disagreement without a reason has none to print, and fails."""
    text = PAGE.read_text(encoding="utf-8")
    begin, end = block(text, name)
    assert text[begin:end] == BLOCKS[name]()


def test_each_published_row_stands_once() -> None:
    """A row, a flag and a source are an entry."""
    assert len({(it["row"], it["flag"], it["source"]) for it in ENTRIES}) == len(ENTRIES) >= 20


def test_nothing_that_an_h100_did_was_denied() -> None:
    """Where the simulation found no other order, the H100 never differed; what one raises, the other does."""
    found = {(row, flag): both for row, flag, both in cells(H100, ("off", "on", "warn_only"))}
    denied = [
        key
        for key, (ours, gpu) in found.items()
        if ours.verdict == "deterministic" and gpu.verdict not in {"deterministic", "not_run"}
    ]
    # The page says why.
    assert denied == [("torch.nn.NLLLoss:spatial_mean_channels_last:forward:float32", "warn_only")]
    assert [ours for ours, _ in found.values() if ours.verdict == "raises"]
    assert all((ours.verdict == "raises") == (gpu.verdict == "raises") for ours, gpu in found.values())


if __name__ == "__main__":
    for key, write in BLOCKS.items():
        page = PAGE.read_text(encoding="utf-8")
        here, behind = block(page, key)
        PAGE.write_text(page[:here] + write() + page[behind:], encoding="utf-8")
