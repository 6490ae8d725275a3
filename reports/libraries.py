"""What the libraries below PyTorch document of reproducibility, and which ops call them: documented, never measured.

The table is kept in a file, each entry with its place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from detmatrix.reports.render import page
from detmatrix.reports.render.json import View, fields_of, object_pieces
from detmatrix.reports.render.markdown import generate
from detmatrix.reports.render.output import wrapped
from detmatrix.scanner.errors import UsageError

DATA = Path(__file__).with_name("libraries.toml")

Promise = Literal["not_guaranteed", "run_to_run", "gpu_to_gpu"]
# The words of CCCL's determinism page, the weakest first.
PROMISES: dict[Promise, str] = {
    "not_guaranteed": "the result may differ from one call to the next, on one device and for one input",
    "run_to_run": "the same bits in repeated runs on the same device, under the condition that stands beside it",
    "gpu_to_gpu": "the same bits on devices of other architectures too; of a library for CPUs, on other CPUs",
}
_ABOUT = (
    "What libraries document of reproducibility, in CCCL's terms. detmatrix measured none of it, and a routine that is not "
    "listed promises nothing."
)
Words = Annotated[str, Meta(min_length=1, max_length=400)]
Link = Annotated[str, Meta(pattern=r"^https://[^\s]+\Z", max_length=300)]


class LibraryEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """What one place of a library's documentation promises of some of its routines."""

    id: Words
    library: Words
    area: Words  # routines, or what they do
    promise: Promise
    condition: Words  # under which the promise is made, or is not
    version: Words  # of the library, as the place gives it
    link: Link
    quotation: Words
    setting: Words | None = None  # that changes it
    via: Link | None = None  # where the library's words were read, if not in its own place

    @property
    def when(self) -> str:
        """The condition as a clause."""
        return self.condition if self.condition == "always" else f"if {self.condition}"

    @property
    def said(self) -> str:
        """The promise, and of what."""
        return f"{self.promise}: {self.area}"


class NothingFound(Struct, frozen=True, forbid_unknown_fields=True):
    """What was looked for in a library's documentation in vain."""

    library: Words
    area: Words
    looked: Words  # where


class LibraryCall(Struct, frozen=True, forbid_unknown_fields=True):
    """Ops that call routines of a library, and the place in PyTorch's source that says so."""

    ops: tuple[Words, ...]  # dotted names, as patterns
    device: Literal["cpu", "cuda", "rocm"]
    entries: tuple[Words, ...]  # ids
    source: Link
    quotation: Words
    condition: Words | None = None
    sparse: bool = False  # of sparse tensors alone

    def is_by(self, names: Collection[str]) -> bool:
        """Tell whether an op of these names makes the call."""
        return any(fnmatchcase(name, pattern) for name in names for pattern in self.ops)


class ComposedOps(Struct, frozen=True, forbid_unknown_fields=True):
    """Ops that PyTorch computes by another op, of dense tensors, and the place in its source that says so."""

    ops: tuple[Words, ...]  # dotted names, as patterns
    through: Words  # the dotted name of the other op
    source: Link
    quotation: Words

    def calls(self, known: Iterable[LibraryCall]) -> Iterator[LibraryCall]:
        """Yield the calls that the other op makes, as these ops'."""
        for call in known:
            if call.is_by({self.through}) and not call.sparse:
                way = f"by way of {self.through.removeprefix('torch.')}"
                yield replace(
                    call,
                    ops=self.ops,
                    source=self.source,
                    quotation=self.quotation,
                    condition=f"{way}; {call.condition}" if call.condition else way,
                )


class LibraryTable(Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """All of it, and the day on which the places were read."""

    read: Annotated[str, Meta(pattern=r"^\d{4}-\d\d-\d\d\Z")]
    entries: tuple[LibraryEntry, ...]
    nothing_found: tuple[NothingFound, ...]
    calls: tuple[LibraryCall, ...]
    composed: tuple[ComposedOps, ...] = ()

    def __post_init__(self) -> None:
        """Refuse ids that stand twice, and calls of what no entry is about."""
        ids = [entry.id for entry in self.entries]
        if twice := [name for name, count in Counter(ids).items() if count > 1]:
            raise ValueError(f"the id {twice[0]!r} stands twice")
        if unknown := {name for call in self.calls for name in call.entries} - set(ids):
            raise ValueError(f"no entry has the id {min(unknown)!r}")
        for one in self.composed:
            if not any(one.calls(self.calls)):
                raise ValueError(f"no call is by {one.through!r}")

    @cached_property
    def every_call(self) -> tuple[LibraryCall, ...]:
        """The calls of ops, and those that ops make by way of other ops."""
        return (*self.calls, *(call for one in self.composed for call in one.calls(self.calls)))

    @property
    def libraries(self) -> tuple[str, ...]:
        """The names of the libraries, in the order of the file."""
        names = [entry.library for entry in self.entries]
        return tuple(dict.fromkeys([*names, *(one.library for one in self.nothing_found)]))

    def calling(self, entry: LibraryEntry) -> list[LibraryCall]:
        """Return the calls of the routines of an entry."""
        return [call for call in self.every_call if entry.id in call.entries]

    def called_by(self, names: Collection[str]) -> Iterator[tuple[LibraryCall, LibraryEntry]]:
        """Yield what an op of these names calls, with what is documented of it."""
        known = {entry.id: entry for entry in self.entries}
        for call in self.every_call:
            if call.is_by(names):
                yield from ((call, known[name]) for name in call.entries)


@cache
def documented_libraries(path: Path = DATA) -> LibraryTable:
    """Return the table.

    Raises:
        UsageError: It cannot be read, an id stands twice, or a call names an entry that is not there.
    """
    try:
        return msgspec.toml.decode(path.read_bytes(), type=LibraryTable)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read ({error}); restore the file") from error


def libraries_view(table: LibraryTable, asked: Sequence[str]) -> View:
    """Return what is said of the libraries asked for, or of all.

    Args:
        table: All that is known.
        asked: Names of libraries; capitals do not matter.

    Raises:
        UsageError: A library is not in the table.
    """
    names = {name.lower(): name for name in table.libraries}
    for name in asked:
        if name.lower() not in names:
            raise UsageError(f"no entry is about {name!r}; choose: {', '.join(table.libraries)}")
    chosen = [one for key, one in names.items() if not asked or key in {name.lower() for name in asked}]
    return View(
        {
            "state": "Documented, not measured",
            "read": table.read,
            "libraries": [
                {
                    "library": name,
                    "entries": [
                        _entry(one, table.calling(one)) for one in table.entries if one.library == name
                    ],
                    "nothing_found": [
                        fields_of(one, "area", "looked") for one in table.nothing_found if one.library == name
                    ],
                }
                for name in chosen
            ],
        },
        about=_ABOUT,
        promises=PROMISES,
    )


def _entry(entry: LibraryEntry, calls: Sequence[LibraryCall]) -> View:
    fields = asdict(entry)
    del fields["library"]
    called = [fields_of(one, "ops", "device", "condition", "source", "quotation") for one in calls]
    ops: dict[str, dict[str, None]] = {}  # each once for each device
    for call in calls:
        ops.setdefault(call.device, {}).update(dict.fromkeys(call.ops))
    return View(
        {**fields, "called_by": called},
        when=entry.when,
        said=entry.said,
        setting_words=entry.setting or "none",
        ops_words="; ".join(f"{device}: {', '.join(some)}" for device, some in ops.items()),
    )


def libraries_of(names: Collection[str]) -> list[View]:
    """Return what libraries document of the routines that an op calls; *names* are its dotted names."""
    found: dict[tuple[str, str, str | None], list[LibraryEntry]] = {}
    places: dict[tuple[str, str, str | None], LibraryCall] = {}
    for call, entry in documented_libraries().called_by(names):
        key = (call.device, entry.library, call.condition)
        found.setdefault(key, []).append(entry)
        places.setdefault(key, call)
    return [
        View(
            {
                "device": device,
                "library": library,
                "condition": condition,
                "source": places[device, library, condition].source,
                "entries": [View(asdict(entry), when=entry.when, said=entry.said) for entry in entries],
            },
            title=f"{library} on {device}" + (f" ({condition})" if condition else ""),
        )
        for (device, library, condition), entries in found.items()
    ]


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


def _lines(view: View) -> Iterator[str]:
    """Yield plain text for a terminal of 80 columns; links are whole."""
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


RENDERERS: dict[str, Callable[[View], Iterable[str]]] = {
    "text": lambda view: (f"{line}\n" for line in _lines(view)),
    "md": lambda view: generate("libraries", view),
    "json": lambda view: (*object_pieces(view, "libraries"), "\n"),
    "html": lambda view: page.generate("libraries", report=view, script=False),
}
