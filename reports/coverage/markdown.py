"""The coverage of overloads as Markdown for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reports.coverage.claims import HEADS, documented_lines
from reports.coverage.model import (
    KERNEL_MEANING,
    RUNNABLE,
    SEES,
    SORT_MEANING,
    Coverage,
    by_finding,
    count_lines,
    figure_words,
    never_lines,
)
from reports.matrix import words
from reports.render.markdown import NONE, code, plain, table

_IDS = 3  # rows that a cell names
_NAMES = 60  # overloads that a list names


def render(coverages: Sequence[Coverage]) -> Iterator[str]:
    """Yield one document per build and kind of device, and the words once at the end."""
    for one in coverages:
        yield from _coverage(one)
    yield f"## The words\n\n{SEES}\n\nSorts of overloads:\n\n"
    yield from (f"* **{sort}**: {meaning}\n" for sort, meaning in SORT_MEANING.items())
    yield "\nKernels:\n\n"
    yield from (f"* **{kernel}**: {meaning}\n" for kernel, meaning in KERNEL_MEANING.items())


def _coverage(one: Coverage) -> Iterator[str]:
    yield f"# Overloads of torch {plain(one.torch)} that were executed on {plain(one.device)}\n\n"
    for matrix in one.matrices:
        lines = [f"{code(matrix.name)}: {plain(state)}" for state in words.state_words(matrix)]
        yield from (f"> [!CAUTION]\n> **{state}**\n\n" for state in lines)
    yield f"{plain(figure_words(one))} Runs: {', '.join(code(matrix.name) for matrix in one.matrices)}.\n\n"
    if one.unknown is None:
        yield from _counts(one)
        yield from _alerts(one)
        yield from _executed(one)
        yield from _never(one)
    yield from _missing(one)


def _counts(one: Coverage) -> Iterator[str]:
    yield table(("namespace", "sort", *RUNNABLE), [tuple(map(plain, line)) for line in count_lines(one)])
    yield "\n"


def _alerts(one: Coverage) -> Iterator[str]:
    yield "## Alerts\n\n"
    if documented := documented_lines(one):
        yield table(HEADS, [tuple(map(plain, line)) for line in documented])
        yield "\n"
    if not one.alerts:
        yield "No row met an alert.\n\n"
        return
    yield table(
        ("caller", "raised by", "rows"),
        [
            (
                code(alert.caller),
                ", ".join(map(code, alert.overloads)) or "nothing that the recorder sees",
                _ids(alert.rows),
            )
            for alert in one.alerts
        ],
    )
    yield "\n"


def _executed(one: Coverage) -> Iterator[str]:
    yield "## Executed, with the worst finding of their rows\n\n"
    yield table(
        ("overload", "sort", "kernel", "rows", "worst finding", "found in"),
        [
            (
                code(it.name),
                it.sort,
                it.kernel or "not listed",
                str(it.rows),
                plain(it.worst or NONE),
                _ids(it.evidence),
            )
            for it in by_finding(one)
        ],
    )
    yield "\n"


def _never(one: Coverage) -> Iterator[str]:
    yield f"## Never reached\n\n{len(one.never)} overloads with a kernel for the device, all of them in the JSON.\n\n"
    for title, names in never_lines(one):
        more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
        yield f"<details><summary>{plain(title)}: {len(names)}</summary>\n\n"
        yield f"{', '.join(map(code, names[:_NAMES]))}{more}\n\n</details>\n\n"


def _missing(one: Coverage) -> Iterator[str]:
    if one.missing:
        yield "## Rows whose overloads are not known\n\n"
        yield from (f"* {plain(reason)}: {_ids(ids)}\n" for reason, ids in one.missing.items())
        yield "\n"


def _ids(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - _IDS} more" if len(ids) > _IDS else ""
    return ", ".join(map(code, ids[:_IDS])) + more
