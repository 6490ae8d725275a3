"""Which places of a census a row or a bullet leads to, and by which way that is known.

The links are rules on names that the build itself gives: of functions, alerts and overloads. There is no
table of which op alerts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Literal

from msgspec import Struct

from scanner.census.record import Census, Path_
from scanner.claims.matching import names_of
from scanner.observations.records import Claim, Row
from scanner.observations.trace.records import TracedOverload

# met       the trace met the alert itself
# function  the build's declarations name this function for an overload that is reached
# name      the function is called as an overload that is reached, but for words that say where it runs or how
# shared    the function is called as the op of an overload that is reached, by a name that says no overload
# words     no overload leads there; the function has no words but those of the bullet, and all of its op
# list      the bullet is in the list of one alert, that of cuBLAS, and the place raises it
Way = Literal["met", "function", "name", "shared", "words", "list"]
WAY_MEANING: dict[Way, str] = {
    "met": "the trace met the alert itself",
    "function": "the build declares the function for an overload that the case reaches",
    "name": "the function is called as an overload that the case reaches, but for words such as `cuda`",
    "shared": "the function is called as the op, a name that its overloads share: it may serve another than the one "
    "that the case reaches",
    "words": "no overload leads there: the function has no words but those of the bullet, and all of its op",
    "list": "the bullet is in the list of ops that raise for want of a cuBLAS workspace, and the alert is that one; "
    "which of the functions that raise it the op calls is not known",
}

# They say where a function runs, or how it was made.
_WHERE = frozenset(
    [
        "structured",
        "launch",
        "cuda",
        "gpu",
        "cpu",
        "cudnn",
        "out",
        "impl",
        "kernel",
        "template",
        "func",
        "symint",
        "aot",
    ]
)
_CUBLAS = "cuBLAS"  # what a census calls the caller of that alert, whose text names none
_FILLERS = frozenset({"with", "two"})  # no words of a bullet, and nothing is told by their absence
_DIRECTIONS = frozenset({"forward", "backward"})
# A word may be longer by an ending: "sample" and "sampler", "conv" and "convolution".
_STEM = 4
_DIMENSION = re.compile(r"\d+d")


class Place(Struct, frozen=True):
    """Where a build alerts, or checks the flag; ``fill``: to fill uninitialized memory, and for nothing else."""

    kind: Literal["alert", "flag", "fill"]
    library: str
    function: str  # short
    alert: str | None = None  # the caller named; None: unresolved, or no alert
    path: Path_ = "unknown"  # of an alert


class Link(Struct, frozen=True):
    """A place that something leads to."""

    place: Place
    way: Way
    overload: str | None = None  # through which


class Places:
    """The places of a census that serve one kind of device."""

    def __init__(self, census: Census | None, device: str) -> None:
        """Take those of a census; none of ``None``."""
        found = [] if census is None else [one for one in _places(census) if _serves(one, device)]
        self.all: tuple[Place, ...] = tuple(dict.fromkeys(found))
        self._known: dict[str, tuple[Link, ...]] = {}

    def met(self, caller: str) -> Iterator[Link]:
        """Yield the alerts that name a caller."""
        yield from (Link(one, "met") for one in self.all if one.alert == caller)

    def cublas(self) -> Iterator[Link]:
        """Yield the alerts of a cuBLAS whose workspace is not configured."""
        yield from (Link(one, "list") for one in self.all if one.alert == _CUBLAS)

    def reached(self, overload: TracedOverload) -> tuple[Link, ...]:
        """Return what an overload leads to."""
        if overload.name not in self._known:
            self._known[overload.name] = tuple(self._of(overload))
        return self._known[overload.name]

    def _of(self, overload: TracedOverload) -> Iterator[Link]:
        declared = {_component(name) for name in overload.functions}
        base, _, variant = overload.name.partition("::")[2].partition(".")
        stems = {_stem(name) for name in (*declared, f"{base}_{variant}")}
        exact = [
            Link(one, "function", overload.name) for one in self.all if _component(one.function) in declared
        ]
        named = [
            Link(one, "name", overload.name)
            for one in self.all
            if _component(one.function) not in declared and _stem(_component(one.function)) in stems
        ]
        # The name without the overload's own is shared by all overloads of an op, so it is the last resort, and said
        # to be: which of them such a function serves is not in the build.
        yield from (exact + named) or [
            Link(one, "shared", overload.name)
            for one in self.all
            if _stem(_component(one.function)) == _stem(base)
        ]

    def worded(self, claim: Claim) -> Iterator[Link]:
        """Yield what the words of a bullet lead to."""
        texts = {word for one in claim.conditions for text in (one.name, *one.values) for word in words(text)}
        for target in claim.targets:
            yield from self._worded(target, claim.direction, texts)

    def worded_row(self, row: Row) -> Iterator[Link]:
        """Yield what the words of a row lead to."""
        texts = {word for pair in row.traits.items() for text in pair for word in words(text)}
        yield from self._worded(names_of(row)[0], row.direction, texts)

    def _worded(self, op: str, direction: str, texts: set[str]) -> Iterator[Link]:
        named = words(op.rpartition(".")[2])
        wanted = [word for word in named if not _DIMENSION.fullmatch(word)]
        dimensions = set(named) - set(wanted)
        allowed = {*wanted, *texts, *({direction} if direction in _DIRECTIONS else _DIRECTIONS)}
        for one in self.all:
            said = _stem(_component(one.function))
            plain = [word for word in said if not _DIMENSION.fullmatch(word) and word not in _FILLERS]
            if (
                wanted
                and all(any(_same(word, other) for other in allowed) for word in plain)
                and all(any(_same(word, other) for other in plain) for word in wanted)
                and (direction != "backward" or "backward" in plain)
                and (not dimensions or {word for word in said if _DIMENSION.fullmatch(word)} <= dimensions)
            ):
                yield Link(one, "words")


def applies(place: Place, traits: Mapping[str, Sequence[str]], known: Mapping[str, Iterable[str]]) -> bool:
    """Tell whether an alert may be about such calls: one that names ``prod`` is not about ``sum``.

    Args:
        place: The alert.
        traits: The values that the calls have, of the traits that are stated.
        known: All values that each trait of the op is known to have.
    """
    said = set(words(place.alert or ""))
    for trait, values in known.items():
        named = said & set(values)
        if named and trait in traits and named.isdisjoint(traits[trait]):
            return False
    return True


def words(text: str) -> list[str]:
    """Return the words of a name, in small letters: ``AdaptiveAvgPool2d`` is adaptive, avg, pool, 2d."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", text)
    return re.findall(r"\d+d(?![a-z])|[a-z]+|\d+", apart.lower())


def _same(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    return short == long or (len(short) >= _STEM and long.startswith(short))


@cache
def _component(function: str) -> str:
    """Return the function's own name: that of ``at::native::structured_f::impl`` is ``structured_f``."""
    parts = [
        part for part in function.split("::") if not part.startswith(("{", "operator")) and part != "impl"
    ]
    return parts[-1] if parts else function


@cache
def _stem(name: str) -> tuple[str, ...]:
    return tuple(word for word in words(name) if word not in _WHERE)


def _places(census: Census) -> Iterator[Place]:
    for site in census.alerts:
        yield Place("alert", site.library, site.function or "unknown", site.alert, site.path)
    # Who also asks whether memory is to be filled asks because of that, which is documented elsewhere.
    filling = {(one.library, one.function) for one in census.asks if "FillUninitialized" in one.flag}
    for ask in census.asks:
        if not ask.function.startswith("at::Context::"):
            fills = (ask.library, ask.function) in filling
            yield Place("fill" if fills else "flag", ask.library, ask.function)
    for place in census.python:
        # What runs when an op is called; the compiler's own files and the tests ask for reasons of theirs.
        if place.kind == "asks" and place.file.startswith(("torch/nn/", "torch/_native/")):
            yield Place("flag", place.file, place.function)


def _serves(place: Place, device: str) -> bool:
    """Tell whether a place can be passed on a device."""
    said = words(_component(place.function))
    if place.library.endswith(".py"):
        return True
    if device != "cuda":
        return "cuda" not in place.library and "cuda" not in said
    # The kernels of the CPU's library are those of the CPU; the rest of it serves all devices.
    return "cuda" in place.library or "cuda" in said or not {"cpu", "kernel"} & set(said)
