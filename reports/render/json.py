"""What the JSON reports have in common: a value on one line, and one object or several in one file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

_One = TypeVar("_One")


def json_of(value: object) -> str:
    """Return a value as JSON on one line."""
    return msgspec.json.encode(value).decode()


def one_or_several(
    name: str, ones: Sequence[_One], pieces_of: Callable[[_One], Iterator[str]]
) -> Iterator[str]:
    """Yield the object of a single one, and ``{"name": […]}`` for several.

    Args:
        name: What several of them are called.
        ones: At least one.
        pieces_of: Yields the text of one object, without a line end behind it.
    """
    if len(ones) == 1:
        yield from pieces_of(ones[0])
        yield "\n"
        return
    yield f'{{"{name}": [\n'
    for number, one in enumerate(ones):
        yield ",\n" if number else ""
        yield from pieces_of(one)
    yield "\n]}\n"


class View(dict[str, Any]):
    """What a report shows: machines are told what stands under the keys, only people what the attributes say.

    A template reads both alike.
    """

    def __init__(self, fields: Mapping[str, object], **words: object) -> None:
        super().__init__(fields)
        self.__dict__ |= words


def object_pieces(view: Mapping[str, Any], *lists: str) -> Iterator[str]:
    """Yield an object, a key per line, without a line end behind it.

    Args:
        view: What is told.
        lists: Keys of which each member gets a line of its own.
    """
    for number, (key, value) in enumerate(view.items()):
        yield f"{',' if number else '{'}\n{json_of(key)}: "
        if key not in lists:
            yield json_of(value)
            continue
        yield "[\n"
        for place, one in enumerate(value):
            yield (",\n" if place else "") + json_of(one)
        yield "\n]"
    yield "\n}"
