"""A trace as Markdown: what the flag reroutes, what alerts, what could not be traced."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from reports.render.markdown import code, plain, table
from scanner.observations.trace_records import TracedRow, TraceFile
from scanner.verdicts.reroutes import CHOSEN_MEANING, chosen, reroutes

# Ops named where many share a reason.
_NAMED = 6


def render(trace: TraceFile) -> Iterator[str]:
    """Yield the pieces of the page."""
    build = trace.build
    yield "# Trace\n\n"
    yield (
        f"torch {plain(build.torch)}, fake tensors on {plain(trace.settings.device)}: {_counts(trace)}. Expected, not "
        f"measured: no kernel ran, and what a kernel decides by itself is not here.\n"
    )
    yield from _reroutes(trace)
    yield from _alerts(trace)
    yield from _rest(trace)


def _counts(trace: TraceFile) -> str:
    """Say how many rows came how far, by the worse of their modes."""
    worst = Counter(_worst(row) for row in trace.rows)
    text = ", ".join(f"{count} {outcome}" for outcome, count in worst.most_common())
    return f"{len(trace.rows)} rows: {text}" if text else "no rows"


def _worst(row: TracedRow) -> str:
    """Return the outcome of the mode that came least far, as a word."""
    outcomes = {reach.outcome for reach in row.reached}
    early = sorted(outcomes - {"traced", "alert"})
    return early[0] if early else "alert" if "alert" in outcomes else "traced"


def _reroutes(trace: TraceFile) -> Iterator[str]:
    """Yield a table with a line per op, part and pair of ways."""
    groups: defaultdict[tuple[str, ...], list[TracedRow]] = defaultdict(list)
    for row in trace.rows:
        for one in reroutes(row):
            when = chosen(row) if one.part == "backward" else None
            key = (row.row.spec, one.part, _overloads(one.only_off), _overloads(one.only_on), when or "")
            groups[key].append(row)
    yield "\n## Rerouted by the flag\n\n"
    if not groups:
        yield "Nothing: both modes reach the same overloads wherever both were traced.\n"
        return
    columns = ("op", "cases", "dtypes", "part", "only with the flag off", "only with the flag on", "chosen")
    yield table(
        columns,
        (
            (code(spec), _each(rows, "case"), _each(rows, "dtype"), part, off, on, when)
            for (spec, part, off, on, when), rows in groups.items()
        ),
    )
    met = {key[-1] for key in groups}
    lines = [f"*{name}*: {meaning}." for name, meaning in CHOSEN_MEANING.items() if name in met]
    if lines:
        yield f"\nWhen the way of the backward part is chosen: {' '.join(lines)}\n"


def _alerts(trace: TraceFile) -> Iterator[str]:
    """Yield a table of the alerts raised above the kernels."""
    groups: defaultdict[tuple[str, str, str, str], list[TracedRow]] = defaultdict(list)
    for row in trace.rows:
        for reach in row.reached:
            if reach.outcome == "alert":
                key = (row.row.spec, reach.mode, reach.stopped or "", reach.caller or "")
                groups[key].append(row)
    if not groups:
        return
    yield "\n## Alerts raised above the kernels\n\n"
    yield table(
        ("op", "cases", "dtypes", "flag", "part", "alert caller"),
        (
            (code(spec), _each(rows, "case"), _each(rows, "dtype"), mode, part, code(caller))
            for (spec, mode, part, caller), rows in groups.items()
        ),
    )


def _rest(trace: TraceFile) -> Iterator[str]:
    """Yield a table of the reasons for which rows were not traced to their end."""
    groups: defaultdict[tuple[str, str, str], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for row in trace.rows:
        for reach in row.reached:
            if reach.outcome not in ("traced", "alert"):
                key = (reach.outcome, reach.stopped or "", reach.message or "")
                groups[key][row.row.spec].add(row.row.id)
    if not groups:
        return
    yield "\n## Not traced to the end\n\n"
    yield table(
        ("outcome", "stopped in", "why", "rows", "ops"),
        (
            (outcome, part, plain(why), str(sum(map(len, ops.values()))), _named(ops))
            for (outcome, part, why), ops in groups.items()
        ),
    )


def _overloads(names: Iterable[str]) -> str:
    return ", ".join(code(name) for name in names) or "none"


def _each(rows: Iterable[TracedRow], name: str) -> str:
    return ", ".join(plain(value) for value in dict.fromkeys(getattr(row.row, name) for row in rows))


def _named(ops: Iterable[str]) -> str:
    names = [code(name) for name in ops]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
