"""What others published of real GPUs beside the recorded simulation; ``python -m tests.test_published`` writes the table."""

from __future__ import annotations

import tomllib
from pathlib import Path

from scanner.observations.runfile import read_run
from scanner.verdicts.findings import matrix

GPU = Path(__file__).parents[1] / "scanner" / "gpu"
RUN = Path(__file__).parents[1] / "reports" / "runs" / "torch-2.15.0-simulated-sm_80.jsonl.gz"
PAGE, BEGIN, END = GPU / "README.md", "<!-- published:begin -->\n", "<!-- published:end -->"
ENTRIES = tomllib.loads((GPU / "published.toml").read_text(encoding="utf-8"))["published"]
WORDS = {"nondeterministic": "differs", "deterministic": "same", "raises": "raises"}


def table() -> str:
    """Return the table, with a sentence for each disagreement."""
    run = read_run(RUN)
    rows = {it.row.id: it for it in matrix(run.header, run.observations, closed=True)}
    lines = ["| what | GPU | flag | published | simulated | row |", "|---|---|---|---|---|---|"]
    for entry in ENTRIES:
        cell = rows[entry["row"]].cell(entry["flag"])
        shown = WORDS.get(cell.verdict, cell.verdict)
        schedule = cell.simulated.schedule if cell.simulated else None
        note = f" ({schedule.name})" if schedule else ""
        why = f". {entry['why']}" if shown != entry["seen"] else ""
        lines.append(
            f"| {entry['what']} | {entry['gpu']} | {entry['flag']} | [{entry['seen']}]({entry['source']}) | {shown}{note}{why} "
            f"| `{entry['row']}` |"
        )
    alike = sum(
        f"]({entry['source']}) | {entry['seen']}" in line
        for entry, line in zip(ENTRIES, lines[2:], strict=True)
    )
    return "\n".join(["", *lines, "", f"{alike} of {len(ENTRIES)} agree; the others are explained.", ""])


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
