"""What others published of real GPUs beside the recorded simulation; ``python -m tests.test_published`` writes the table."""

from __future__ import annotations

import tomllib
from pathlib import Path

from detmatrix.scanner.observations.runfile import read_run
from detmatrix.scanner.verdicts.cells import Cell
from detmatrix.scanner.verdicts.findings import MatrixRow, matrix
from detmatrix.scanner.verdicts.simulated import others

GPU = Path(__file__).parents[1] / "scanner" / "gpu"
RUNS = Path(__file__).parents[1] / "reports" / "runs"
PAGE, BEGIN, END = GPU / "README.md", "<!-- published:begin -->\n", "<!-- published:end -->"
ENTRIES = tomllib.loads((GPU / "published.toml").read_text(encoding="utf-8"))["published"]
WORDS = {"nondeterministic": "differs", "deterministic": "same", "raises": "raises"}


def recorded(torch: str, architecture: str) -> dict[str, MatrixRow]:
    """Return the rows of a recorded simulated run."""
    run = read_run(RUNS / f"torch-{torch}-simulated-{architecture}.jsonl.gz")
    return {it.row.id: it for it in matrix(run.header, run.observations, closed=True)}


def shown(cell: Cell) -> str:
    """Return what schedules showed, with the class that did."""
    word = WORDS.get(cell.verdict, cell.verdict)
    schedule = cell.simulated.schedule if cell.simulated else None
    text = f"{word} ({schedule.name})" if schedule else word
    return "; ".join([text, *(others(cell.simulated) if cell.simulated and not schedule else ())])


def devices() -> str:
    """Return how far architectures agree on what differs."""
    runs = [recorded("2.15.0", one) for one in ("sm_80", "sm_90", "sm_100")]
    cells = [
        (row, flag, [one[row].cell(flag) for one in runs])
        for row in runs[0]
        if all(row in one for one in runs)
        for flag in ("off", "on")
    ]
    differing = [it for it in cells if any(one.verdict == "nondeterministic" for one in it[2])]
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
    rows, alike = recorded("2.15.0", "sm_80"), 0
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
    return "\n".join(
        ["", *lines, "", f"{alike} of {len(ENTRIES)} agree; the others are explained.", "", devices()]
    )


def test_the_table_is_what_the_recorded_run_says() -> None:
    """A disagreement without a reason has none to print, and fails."""
    text = PAGE.read_text(encoding="utf-8")
    assert text[text.index(BEGIN) + len(BEGIN) : text.index(END)] == table()
    assert len(ENTRIES) >= 20
    assert len({(it["row"], it["flag"], it["source"]) for it in ENTRIES}) == len(ENTRIES)


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(
        page[: page.index(BEGIN) + len(BEGIN)] + table() + page[page.index(END) :], encoding="utf-8"
    )
