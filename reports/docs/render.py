"""What ``docs`` prints: every format by its name, and the lines of its check."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator

from reports.docs import html
from reports.docs.agreement import Docs
from reports.docs.lists import regenerate
from reports.docs.reasons import shown_words, strongest
from reports.docs.view import view_of
from reports.matrix.words import states
from reports.render.json import object_pieces
from reports.render.markdown import generate
from scanner.errors import safe_lines


def markdown(docs: Docs) -> Iterator[str]:
    """Yield the tables for people."""
    return generate("docs", view_of(docs))


def as_json(docs: Docs) -> Iterator[str]:
    """Yield one object, one claim per line."""
    yield from object_pieces(view_of(docs), "claims", "undocumented")
    yield "\n"


def render_rst(docs: Docs) -> Iterator[str]:
    """Yield the two lists in the docstring's own form.

    Raises:
        UsageError: The claims do not hold the docstring's lines.
    """
    yield safe_lines(regenerate(docs).regenerated)


def render_diff(docs: Docs) -> Iterator[str]:
    """Yield a unified diff from the documented lists to the regenerated ones; nothing if they agree.

    Raises:
        UsageError: The claims do not hold the docstring's lines.
    """
    lists = regenerate(docs)
    yield from difflib.unified_diff(
        safe_lines(lists.documented).splitlines(keepends=True),
        safe_lines(lists.regenerated).splitlines(keepends=True),
        fromfile=f"torch {docs.torch}, documented",
        tofile=f"torch {docs.torch}, {docs.seen}",
    )


def state_lines(docs: Docs) -> Iterator[str]:
    """Yield what a reader must know of the runs before believing any of it."""
    for one in docs.matrices:
        yield from (f"{state}: {one.name}: {text}" for state, text in states(one))


def drift_lines(docs: Docs) -> Iterator[str]:
    """Yield a line for all that is contradicted, undocumented, self-contradictory, not understood or not covered."""
    for agreement in ("contradicted", "not_covered"):
        if agreement == "not_covered":
            for one in docs.undocumented:
                shown = shown_words(strongest(one.evidence))
                case = one.smallest[0].row.row.id
                yield f"undocumented: {one.op}, {one.direction} on {one.place}: {one.finding}: {shown}: {case}"
            for acting, raising in docs.self_contradictory:
                yield f"self_contradictory: {acting.id} and {raising.id}"
            yield from (f"unparsed: {claim.text}" for claim in docs.unparsed)
            for one in docs.unread:
                shown = shown_words(strongest(one.evidence))
                yield (
                    f"unread: {one.op}, {one.direction} on {one.place}: {one.finding}: {shown}; an unparsed bullet "
                    f"names it"
                )
        for judged in docs.judged:
            if judged.agreement == agreement:
                yield f"{agreement}: {judged.claim.id}: {judged.reason}"


RENDERERS: dict[str, Callable[[Docs], Iterator[str]]] = {
    "md": markdown,
    "html": html.render,
    "rst": render_rst,
    "diff": render_diff,
    "json": as_json,
}
