"""The documented lists as entries: bullets in their own lines, taken apart and put together without a change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from msgspec import Struct

from reports.docs.bullets import ListName, lists
from scanner.claims.tables import parse_claims
from scanner.errors import UsageError
from scanner.observations.records import Claim

OTHER: dict[str, ListName] = {"deterministic": "raises", "raises": "deterministic"}

Entries = dict[ListName, list["ListEntry"]]


class ListEntry(Struct, kw_only=True):
    """A bullet of a list, in its own lines."""

    source: str
    claims: tuple[Claim, ...]
    loose: bool  # a blank line sets it off from the next one


def entries_of(claims: Iterable[Claim]) -> Entries:
    """Return the bullets of the two lists.

    Raises:
        UsageError: A claim does not hold the docstring's lines.
    """
    entries: Entries = {"deterministic": [], "raises": []}
    for entry in _bullets(claims):
        entries[list_of(entry)].append(entry)
    return entries


def text_of(entries: Entries) -> str:
    """Return both lists with their headings, as in the docstring."""
    return lists({name: list(sources(some)) for name, some in entries.items()})


def insert(entries: Entries, entry: ListEntry, where: ListName) -> None:
    """Put a bullet behind the last one of its list that names one of its ops, or at the end."""
    some = entries[where]
    targets = set(entry.claims[0].targets)
    near = [place for place, one in enumerate(some) if not targets.isdisjoint(one.claims[0].targets)]
    some.insert(near[-1] + 1 if near else len(some), entry)


def _bullets(claims: Iterable[Claim]) -> Iterator[ListEntry]:
    """Yield the bullets of the two lists.

    Raises:
        UsageError: A claim does not hold the docstring's lines.
    """
    listed = [claim for claim in claims if claim.section in OTHER]
    for _, group in groupby(listed, key=lambda claim: claim.order):
        of_bullet = tuple(group)
        source = of_bullet[0].source
        if source is None:
            raise UsageError(
                "these claims do not hold the docstring's lines, so that the lists cannot be written again; scan a "
                "torch that has docstrings, or choose --format md or json"
            )
        yield ListEntry(source=source.rstrip("\n"), claims=of_bullet, loose=source.endswith("\n"))


def list_of(entry: ListEntry) -> ListName:
    """Return the list that a bullet stands in."""
    return "raises" if entry.claims[0].section == "raises" else "deterministic"


def entry_of(where: ListName, source: str) -> ListEntry:
    """Return a bullet of a list by its lines."""
    claims = parse_claims(lists({"deterministic": [], "raises": [], where: [source]}))
    return ListEntry(source=source, claims=claims, loose="\n\n" in source)


def sources(entries: Sequence[ListEntry]) -> Iterator[str]:
    """Yield the lines of each bullet, with the blank line behind it."""
    for place, entry in enumerate(entries):
        last = place == len(entries) - 1
        # A nested list needs a blank line before the next bullet.
        yield entry.source + ("\n" if (entry.loose or "\n\n" in entry.source) and not last else "")
