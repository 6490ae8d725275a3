"""What ``docs`` prints: every format by its name, and the lines of its check."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator

from reports import docs_json, docs_markdown
from reports.docs_join import (
    Docs,
    shown_words,
    strongest,
)
from reports.docs_lists import regenerate


def render_rst(docs: Docs) -> Iterator[str]:
    """Yield the two lists in the docstring's own form.

    Raises:
        UsageError: The claims do not hold the docstring's lines.
    """
    yield regenerate(docs).regenerated


def render_diff(docs: Docs) -> Iterator[str]:
    """Yield a unified diff from the documented lists to the regenerated ones; nothing if they agree.

    Raises:
        UsageError: The claims do not hold the docstring's lines.
    """
    lists = regenerate(docs)
    yield from difflib.unified_diff(
        lists.documented.splitlines(keepends=True),
        lists.regenerated.splitlines(keepends=True),
        fromfile=f"torch {docs.torch}, documented",
        tofile=f"torch {docs.torch}, measured",
    )


def drift_lines(docs: Docs) -> Iterator[str]:
    """Yield one line for everything that is contradicted, undocumented, self-contradictory or not covered."""
    for agreement in ("contradicted", "not_covered"):
        if agreement == "not_covered":
            for one in docs.undocumented:
                shown = shown_words(strongest(one.evidence))
                yield f"undocumented: {one.op}, {one.direction} on {one.device}: {one.finding}: {shown}"
            for acting, raising in docs.self_contradictory:
                yield f"self_contradictory: {acting.id} and {raising.id}"
        for judged in docs.judged:
            if judged.agreement == agreement:
                yield f"{agreement}: {judged.claim.id}: {judged.reason}"


RENDERERS: dict[str, Callable[[Docs], Iterator[str]]] = {
    "md": docs_markdown.render,
    "rst": render_rst,
    "diff": render_diff,
    "json": docs_json.render,
}
