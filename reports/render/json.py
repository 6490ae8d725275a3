"""What the JSON reports have in common: a value on one line, and one object or several in one file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec


def json_of(value: object) -> str:
    """Return a value as JSON on one line."""
    return msgspec.json.encode(value).decode()


def fields_of(one: object, *names: str) -> dict[str, Any]:
    """Return some fields of a structure by their names."""
    return {name: getattr(one, name) for name in names}


class View(dict[str, Any]):
    """What a report shows: machines are told what stands under the keys, only people what the attributes say.

    A key can be read as an attribute too, and what the view does not say itself, its record does.
    """

    def __init__(self, fields: Mapping[str, object], record: object = None, **words: object) -> None:
        super().__init__(fields)
        self.record = record
        self.__dict__ |= words

    def __getattr__(self, name: str) -> Any:
        return self[name] if name in self else getattr(self.record, name)


def object_pieces(
    view: Mapping[str, Any],
    *lists: str,
    each: Callable[[Any], Iterable[str]] = lambda one: [json_of(one)],
    edge: str = "\n",
) -> Iterator[str]:
    """Yield an object, a key per line, without a line end behind it.

    Args:
        view: What is told.
        lists: Keys of which each member begins a line.
        each: Yields the text of such a member.
        edge: What stands between the braces and what is in them.
    """
    for number, (key, value) in enumerate(view.items()):
        yield f",\n{json_of(key)}: " if number else f"{{{edge}{json_of(key)}: "
        if key not in lists:
            yield json_of(value)
            continue
        yield "[\n"
        for place, one in enumerate(value):
            yield ",\n" if place else ""
            yield from each(one)
        yield "\n]"
    yield f"{edge}}}"
