"""What every format says of libraries, and what the report of an op says of those that it calls."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import cache

from msgspec.structs import asdict

from reports.libraries.model import PROMISES, LibraryCall, LibraryEntry, LibraryTable, documented_libraries
from reports.render.json import View
from scanner.errors import UsageError

STATE = "Documented, not measured"
ABOUT = (
    "What the libraries themselves document of reproducibility, in the words of CCCL. detmatrix has measured none of it, and a "
    "routine of which nothing is said here is not one that promises anything."
)


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
            raise UsageError(f"nothing is tabled of {name!r}; choose: {', '.join(table.libraries)}")
    chosen = [one for key, one in names.items() if not asked or key in {name.lower() for name in asked}]
    return View(
        {
            "state": STATE,
            "read": table.read,
            "libraries": [_library(table, name) for name in chosen],
        },
        about=ABOUT,
        promises=PROMISES,
    )


def _library(table: LibraryTable, name: str) -> View:
    entries = [_entry(one, table.calling(one)) for one in table.entries if one.library == name]
    missing = [one for one in table.nothing_found if one.library == name]
    return View(
        {
            "library": name,
            "entries": entries,
            "nothing_found": [{"area": one.area, "looked": one.looked} for one in missing],
        }
    )


def _entry(entry: LibraryEntry, calls: Sequence[LibraryCall]) -> View:
    fields = asdict(entry)
    del fields["library"]
    called = [{"ops": one.ops, "device": one.device, "condition": one.condition, "source": one.source,
               "quotation": one.quotation} for one in calls]  # fmt: skip
    return View(
        {**fields, "called_by": called},
        when=entry.when,
        said=entry.said,
        setting_words=entry.setting or "none",
        ops_words="; ".join(f"{device}: {', '.join(ops)}" for device, ops in _by_device(calls).items()),
    )


def _by_device(calls: Iterable[LibraryCall]) -> dict[str, list[str]]:
    """Return the ops that call, each once for each device."""
    found: dict[str, list[str]] = {}
    for call in calls:
        ops = found.setdefault(call.device, [])
        ops += [op for op in call.ops if op not in ops]
    return found


def libraries_of(names: Collection[str]) -> list[View]:
    """Return what libraries document of the routines that an op calls.

    Args:
        names: Of the op, dotted.
    """
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
