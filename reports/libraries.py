"""What the libraries below PyTorch document of reproducibility, and which ops call them: documented, never measured.

The table is kept in ``libraries.toml``, each entry with its place; ``tests/test_explain.py`` holds it to its form.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import NamedTuple

import click
import msgspec

from detmatrix.reports.commands import Place, writes
from detmatrix.reports.render import View, markdown_pieces, object_pieces, page_pieces, text_pieces
from detmatrix.scanner.errors import UsageError

# The words of CCCL's determinism page, the weakest first.
PROMISES = {
    "not_guaranteed": "the result may differ from one call to the next, on one device and for one input",
    "run_to_run": "the same bits in repeated runs on the same device, under the condition that stands beside it",
    "gpu_to_gpu": "the same bits on devices of other architectures too; of a library for CPUs, on other CPUs",
}
_ABOUT = (
    "What libraries document of reproducibility, in CCCL's terms. detmatrix measured none of it, and a routine that is not "
    "listed promises nothing."
)
# Of an entry: the routines, or what they do; the promise and the condition under which it is made, or is not; the version of
# the library; the place and its words; the setting that changes it; where these words were read, if not in their own place.
_ENTRY = ("id", "library", "area", "promise", "condition", "version", "link", "quotation", "setting", "via")
# Of a call: dotted names of ops, as patterns, and the place in PyTorch's source that says so.
_CALL = ("ops", "device", "condition", "source", "quotation")


class Libraries(NamedTuple):
    """The table, and the day on which the places were read."""

    read: str
    entries: dict[str, View]  # by id
    nothing_found: list[View]  # what was looked for in a library's documentation in vain, and where
    calls: list[View]  # of ops, and those that ops make by way of other ops, each with its entries

    @property
    def names(self) -> list[str]:
        """The names of the libraries, in the order of the file."""
        return list(dict.fromkeys(one.library for one in (*self.entries.values(), *self.nothing_found)))


@cache
def documented_libraries() -> Libraries:
    """Return the table."""
    table = msgspec.toml.decode(Path(__file__).with_name("libraries.toml").read_bytes())
    entries = {}
    for one in table["entries"]:
        when = one["condition"] if one["condition"] == "always" else f"if {one['condition']}"
        entry = {name: one.get(name) for name in _ENTRY}
        entries[one["id"]] = View(entry, when=when, said=f"{one['promise']}: {one['area']}")
    calls = [
        View(
            {name: one.get(name) for name in _CALL},
            entries=[entries[name] for name in one["entries"]],
            sparse=one.get("sparse", False),  # of sparse tensors alone
        )
        for one in table["calls"]
    ]
    composed = []
    for one in table["composed"]:
        way = f"by way of {one['through'].removeprefix('torch.')}"
        for call in calls:
            if _is_by(call, {one["through"]}) and not call.sparse:
                condition = f"{way}; {call.condition}" if call.condition else way
                place = {name: one[name] for name in ("ops", "source", "quotation")}
                composed.append(View(call | place | {"condition": condition}, entries=call.entries))
    nothing = [
        View({name: one[name] for name in ("area", "looked")}, library=one["library"])
        for one in table["nothing_found"]
    ]
    return Libraries(table["read"], entries, nothing, [*calls, *composed])


def _is_by(call: View, names: Collection[str]) -> bool:
    """Tell whether an op of these names makes a call."""
    return any(fnmatchcase(name, pattern) for name in names for pattern in call.ops)


def libraries_view(asked: Sequence[str]) -> View:
    """Return what is said of all libraries, or of those asked for, whose capitals do not matter; an unknown one is refused."""
    table = documented_libraries()
    known = {name.lower() for name in table.names}
    for name in asked:
        if name.lower() not in known:
            raise UsageError(f"no entry is about {name!r}; choose: {', '.join(table.names)}")
    wanted = {name.lower() for name in asked} or known
    return View(
        {
            "state": "Documented, not measured",
            "read": table.read,
            "libraries": [
                {
                    "library": name,
                    "entries": [_called(one, table) for one in table.entries.values() if one.library == name],
                    "nothing_found": [one for one in table.nothing_found if one.library == name],
                }
                for name in table.names
                if name.lower() in wanted
            ],
        },
        about=_ABOUT,
        promises=PROMISES,
    )


def _called(entry: View, table: Libraries) -> View:
    """Return an entry with the calls of its routines."""
    calls = [call for call in table.calls if entry in call.entries]
    ops: dict[str, dict[str, None]] = {}  # each once for each device
    for call in calls:
        ops.setdefault(call.device, {}).update(dict.fromkeys(call.ops))
    fields = {name: value for name, value in entry.items() if name != "library"}
    return View(
        fields | {"called_by": calls},
        entry,
        setting_words=entry.setting or "none",
        ops_words="; ".join(f"{device}: {', '.join(some)}" for device, some in ops.items()),
    )


def libraries_of(names: Collection[str]) -> list[View]:
    """Return what libraries document of the routines that an op calls; *names* are its dotted names."""
    found: dict[tuple[str, str, str | None], View] = {}
    for call in documented_libraries().calls:
        for entry in call.entries if _is_by(call, names) else ():
            device, library, condition = key = (call.device, entry.library, call.condition)
            fields = {"device": device, "library": library, "condition": condition, "source": call.source}
            title = f"{library} on {device}" + (f" ({condition})" if condition else "")
            found.setdefault(key, View(fields | {"entries": []}, title=title))["entries"].append(entry)
    return list(found.values())


@cache
def library_names(names: frozenset[str]) -> tuple[str, ...]:
    """Return the libraries that an op of these names calls and that document something of it."""
    return tuple(dict.fromkeys(one["library"] for one in libraries_of(names)))


@cache
def libraries_told(names: frozenset[str]) -> tuple[str, ...]:
    """Return the same in a line for each entry, with its condition and its link; many rows ask for one op."""
    return tuple(
        f"{one.title}: {entry.said}, {entry.when} {entry['link']}"
        for one in libraries_of(names)
        for entry in one["entries"]
    )


RENDERERS: dict[str, Callable[[View], Iterable[str]]] = {
    "text": lambda view: text_pieces("libraries", view),
    "md": lambda view: markdown_pieces("libraries", view),
    "json": lambda view: (*object_pieces(view, "libraries"), "\n"),
    "html": lambda view: page_pieces("libraries", report=view),
}


@click.command()
@click.argument("names", metavar="[LIBRARY]...", nargs=-1)
@writes(RENDERERS, "Text for a terminal, Markdown, JSON, or a web page.", default="text")
def libraries(names: tuple[str, ...], to: Place) -> int:
    """Say what cuBLAS, cuDNN, MKL and others document of reproducibility: documented, not measured.

    Each entry has the condition, the setting that changes it, a quotation with its link, and the ops that call the
    routine. LIBRARY is a name such as cuDNN; without one all are told.
    """
    return to.write(libraries_view(names))
