"""A census as Markdown for people."""

from __future__ import annotations

from collections.abc import Iterator

from reports.render.markdown import code, plain, table
from scanner.census.record import Census, KernelCode

_PATHS = {
    "always": "always",
    "conditional": "on some ways",
    "unknown": "unknown",
}


def render(census: Census) -> Iterator[str]:
    """Yield the report."""
    yield f"# What the build of torch {plain(census.torch)} says of determinism\n\n"
    yield f"{plain(summary(census))}\n\n"
    yield "Read from the files of the build; nothing of it was run.\n\n"
    yield table(
        ("library", "bytes", "functions", "build id"),
        [
            (code(one.name), str(one.bytes), str(one.functions), code(one.build_id or "none"))
            for one in census.libraries
        ],
    )
    yield "\n## Alerts\n\n"
    yield table(
        ("alert caller", "raised", "function", "library"),
        [
            (
                code(one.alert) if one.alert is not None else f"unresolved: {plain(one.unresolved or '')}",
                _PATHS[one.path],
                code(one.function or "none"),
                code(one.library),
            )
            for one in sorted(census.alerts, key=lambda one: (one.alert is None, one.alert or "", one.id))
        ],
    )
    yield (
        "\n*always*: every way through the function to a return passes the alert. *on some ways*: at least one way "
        "does not. *unknown*: the machine code does not say.\n\n## Functions that ask for a flag\n\n"
    )
    yield table(
        ("flag", "function", "calls", "instances", "library"),
        [
            (code(one.flag), code(one.function), str(one.calls), str(len(one.places)), code(one.library))
            for one in census.asks
        ],
    )
    yield "\n## Python files\n\n"
    yield table(
        ("place", "function", "what stands there", "alert caller"),
        [
            (
                code(f"{one.file}:{one.line}"),
                code(one.function),
                code(one.name),
                code(one.alert) if one.alert is not None else "none",
            )
            for one in census.python
        ],
    )
    if census.python_unread:
        yield "\n### Not read\n\n"
        yield table(("file", "reason"), [(code(one.file), plain(one.reason)) for one in census.python_unread])
    if census.kernels is not None:
        yield from _kernels(census.kernels)


def summary(census: Census) -> str:
    """Return the census in one sentence."""
    counts = census.counts
    return (
        f"torch {census.torch} (git {census.torch_git or 'unknown'}, {census.source}): "
        f"{counts.alert_sites} call sites of alerts, {counts.alert_strings} distinct strings, "
        f"{counts.unresolved} unresolved; {counts.asking_functions} functions ask for a flag in "
        f"{counts.ask_calls} calls; {counts.python_places} places in Python files."
    )


def _kernels(kernels: KernelCode) -> Iterator[str]:
    yield (
        f"\n## CUDA kernels with floating-point atomics, {plain(kernels.arch)}\n\n"
        f"{len(kernels.floating)} of {kernels.total} kernels of {plain(kernels.library)}; {kernels.compare_and_swap} "
        f"more have compare-and-swap alone, which may be a floating-point loop. Read with "
        f"{plain(kernels.tool)}.{f' Parts not read: {len(kernels.failed)}.' if kernels.failed else ''}\n\n"
    )
    yield table(
        ("kernel", "operations"),
        [
            (
                code(one.kernel),
                plain(", ".join(f"{count} {name}" for name, count in one.operations.items())),
            )
            for one in kernels.floating
        ],
    )
