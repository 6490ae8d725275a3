"""What was found in a program, in words: for a terminal, and for whoever prints it in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from scanner.errors import one_line
from scanner.located import CallSite, CodeLine, Located, Root, WithFlag

WITH_FLAG: dict[WithFlag, str] = {
    "cured": "gives the same bits each time",
    "filled": "gives the same bits each time, since uninitialized memory is filled",
    "raises": "raises",
    "differs": "differs all the same",
    "failed": "could not be executed",
}
_HEADS = ("differed", "op", "line", "module", "part", "with the flag on")


def worst_first(roots: Sequence[Root]) -> list[Root]:
    """Return roots, those that differ and reach most first."""
    return sorted(roots, key=lambda root: (-root.reached, -root.differing, root.first))


def line_words(line: CodeLine | None) -> str:
    """Return ``train.py:12 (forward)``, the path from the current folder if it lies below."""
    if line is None:
        return "unknown"
    path = Path(line.file)
    if path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    return one_line(f"{path}:{line.line} ({line.function})")


def part_words(site: CallSite) -> str:
    """Say which part of the program called an op."""
    return f"backward ({one_line(site.node)})" if site.node else site.phase


def flag_words(root: Root) -> str:
    """Say what the op does with the flag on."""
    if root.flag is None:
        return "not tried"
    return (
        f"raises ({one_line(root.alert)})" if root.flag == "raises" and root.alert else WITH_FLAG[root.flag]
    )


def differed_words(root: Root) -> str:
    """Say how often it differed."""
    return f"{root.differing} of {root.executions}"


def summary(located: Located) -> str:
    """Return what was done and found in one sentence."""
    count = len(located.roots)
    roots = "no call site" if not count else "1 call site" if count == 1 else f"{count} call sites"
    return (
        f"{roots} of this program {'is' if count == 1 else 'are' if count else 'was seen to be'} not reproducible "
        f"(torch {one_line(located.torch)}, {located.threads} threads): {located.ops} ops, "
        f"{located.replayed} of them executed {located.replays} more times"
    )


def text(located: Located) -> str:
    """Return the whole report for a terminal."""
    lines = [summary(located) + "."]
    if located.roots:
        rows = [
            (
                differed_words(root),
                one_line(root.site.op),
                line_words(root.site.line),
                one_line(root.site.module or ""),
                part_words(root.site),
                flag_words(root),
            )
            for root in worst_first(located.roots)
        ]
        lines += ["", *_table(_HEADS, rows)]
    lines += ["", *notes(located)]
    return "\n".join(lines) + "\n"


def notes(located: Located) -> list[str]:
    """Return what must be known of what was not seen."""
    found = [
        f"Sentinel {one_line(one.op)} on {one.device}: {one.differing} of {one.executions} differed."
        for one in located.sentinels
    ]
    found += [
        f"Not executed again: {count} calls, {reason} ({', '.join(map(one_line, located.left_out_ops.get(reason, ())))})."
        for reason, count in located.left_out.items()
    ]
    if located.ended is not None:
        found.append(f"The program ended early: {one_line(located.ended)}.")
    return found


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (heads, *rows)
    ]
