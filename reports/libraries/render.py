"""What libraries document, in every format that the command prints."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from reports.render import page
from reports.render.json import View, object_pieces
from reports.render.markdown import generate
from reports.render.terminal import wrapped


def text(view: View) -> Iterator[str]:
    """Yield plain text for a terminal of 80 columns; links are whole."""
    yield from (f"{line}\n" for line in _lines(view))


def _lines(view: View) -> Iterator[str]:
    yield from wrapped(f"{view['state'].upper()} (read {view['read']}). {view.about}")
    for library in view["libraries"]:
        yield from ("", library["library"])
        for entry in library["entries"]:
            yield from wrapped(entry.said, "  ")
            yield from wrapped(entry.when, "    ")
            if entry["setting"]:
                yield from wrapped(f"changed by: {entry['setting']}", "    ")
            if entry.ops_words:
                yield from wrapped(f"called by: {entry.ops_words}", "    ")
            yield from wrapped(f"“{entry['quotation']}” (version: {entry['version']})", "    ")
            yield f"    {entry['link']}"
            if entry["via"]:
                yield f"    read in {entry['via']}"
        for missing in library["nothing_found"]:
            yield from wrapped(f"nothing found: {missing['area']}", "  ")
            yield from wrapped(f"looked in {missing['looked']}", "    ")
    yield from ("", "PROMISES")
    for word, meaning in view.promises.items():
        yield from wrapped(f"{word}: {meaning}", "  ")


def as_json(view: View) -> Iterator[str]:
    """Yield one object, a line for each library."""
    yield from object_pieces(view, "libraries")
    yield "\n"


def html(view: View) -> Iterator[str]:
    """Yield a page that needs no network and no script."""
    return page.generate("libraries", report=view, script=False)


RENDERERS: dict[str, Callable[[View], Iterator[str]]] = {
    "text": text,
    "md": lambda view: generate("libraries", view),
    "json": as_json,
    "html": html,
}
