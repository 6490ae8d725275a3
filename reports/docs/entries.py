"""The documented lists as entries: bullets in their own lines, and bullets written in the docstring's own words.

What is written must read back as what was meant: a bullet that the claims' parser would understand otherwise,
or a condition that the lists have no words for, is not written at all.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Literal

from msgspec import Struct

from detmatrix.scanner.claims.tables import parse_claims
from detmatrix.scanner.errors import UsageError
from detmatrix.scanner.observations.records import Claim, Condition, Kind

ListName = Literal["deterministic", "raises"]

DEVICES = ("cpu", "cuda", "mps")  # all that the lists speak of, in their order
HEADINGS: dict[ListName, str] = {
    "deterministic": "    The following normally-nondeterministic operations will act\n"
    "    deterministically when ``mode=True``:\n",
    "raises": "    The following normally-nondeterministic operations will throw a\n"
    "    :class:`RuntimeError` when ``mode=True``:\n",
}
INDENT = " " * 8
_WIDTH = 98  # columns, indentation included; some of the docstring's own lines have more
_LONG = 3  # values from which on they make a list of their own

# The conditions whose name alone says that they are no keyword arguments.
_KINDS: dict[str, Kind] = {
    "src": "argument",
    "weights": "argument",
    "index": "argument",
    "quantized": "input",
    "requires_grad": "input",
    "layout": "layout",
    "output": "output",
    "fill": "fill",
    "dtype": "dtype",
}
# Traits that are neither keyword arguments nor anything that a release has words for.
_WORDLESS = frozenset({"dims", "memory_format", "output_size"})
_DTYPES = {"floating": "floating point"}
_BARE = re.compile(r"True|False|None|\d+")
# What a value may be, of a condition and of a keyword argument: "2-D" describes one, and is none.
_SPOKEN = (re.compile(r"\w[\w -]*", re.ASCII), re.compile(r"[A-Za-z_]\w*|\d+", re.ASCII))
_GRAD = "requires grad"
_Slot = Literal["having", "when", "call", "end"]  # "with …", "when …", what it is called on, the last words


def kind_of(name: str) -> Kind:
    """Return what kind of condition a trait of this name is."""
    return _KINDS.get(name, "keyword")


def role_of(target: str, text: str = "") -> str:
    """Return an op with its role, the one it has in *text* if it is there: ``:func:`torch.bmm```."""
    found = re.search(rf":(\w+):`~?{re.escape(target)}`", text)
    last = target.rpartition(".")[2]
    role = found[1] if found else "class" if last[:1].isupper() else "func"
    return f":{role}:`{target}`"


def write(claim: Claim, text: str = "", devices: Sequence[str] | None = None) -> str | None:
    """Return the lines of a bullet, or ``None`` if the lists have no words for it.

    Args:
        claim: What to say.
        text: The bullet it is made from, whose roles are kept.
        devices: Of which to say it, if not of the claim's own; none: of any.
    """
    if devices is None:
        devices = () if claim.device == "any" else (claim.device,)
    said = _words(claim, devices, text)
    if said is None:
        return None
    words, items = said
    lines = textwrap.wrap(
        f"* {words}",
        _WIDTH - len(INDENT),
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    if items:
        lines += ["", *(f"  - ``{item}``" for item in items)]
    source = "\n".join(lines)
    return source if _reads_back(claim, devices, source) else None


def lists(entries: dict[ListName, Sequence[str]]) -> str:
    """Return both lists with their headings, indented as in the docstring."""
    parts = []
    for name, heading in HEADINGS.items():
        bullets = "\n".join(entries[name])
        parts.append(heading + (f"\n{textwrap.indent(bullets, INDENT)}\n" if bullets else ""))
    return "\n".join(parts)


def _reads_back(claim: Claim, devices: Sequence[str], source: str) -> bool:
    """Tell whether a bullet is read as what it was to say."""
    where, facts = list_of(claim), _facts(claim.conditions)
    read = parse_claims(f"{HEADINGS[where]}\n{textwrap.indent(source, INDENT)}\n")
    meant = {(where, frozenset(claim.targets), it, claim.direction, facts) for it in devices or ("any",)}
    return all(claim.parsed for claim in read) and meant == {
        (claim.section, frozenset(claim.targets), claim.device, claim.direction, _facts(claim.conditions))
        for claim in read
    }


def _facts(conditions: Iterable[Condition]) -> frozenset[tuple[str, str, frozenset[str]]]:
    return frozenset(
        (condition.kind, condition.name, frozenset(condition.values)) for condition in conditions
    )


def _words(claim: Claim, devices: Sequence[str], text: str) -> tuple[str, tuple[str, ...]] | None:
    """Return a bullet's sentence and its nested list, or ``None`` if there are no words for it."""
    nested = next(
        (one for one in claim.conditions if one.kind == "keyword" and len(one.values) >= _LONG), None
    )
    said: dict[_Slot, list[str]] = {"having": [], "when": [], "call": [], "end": []}
    for condition in claim.conditions:
        phrase = _PHRASES.get(condition.kind)
        if (
            phrase is None
            or condition.name in _WORDLESS
            or "none" in condition.values
            or not all(map(_SPOKEN[condition.kind == "keyword"].fullmatch, condition.values))
        ):
            return None
        if condition is not nested:
            slot, words = phrase(condition.name, condition.values)
            said[slot].append(words)
    call = _call(claim, devices, said["call"])
    when = [*([call] if call else []), *said["when"]]
    if nested:
        when.append(f"one of the following {nested.name}s is used:")
    *others, last = (role_of(target, text) for target in claim.targets)
    comma = "," * (len(others) > 1)
    parts = [
        f"{', '.join(others)}{comma} and {last}" if others else last,
        *([f"with {' and '.join(said['having'])}"] if said["having"] else []),
        *([f"when {' and '.join(when)}"] if when else []),
        *said["end"],
    ]
    return " ".join(parts), nested.values if nested else ()


def _call(claim: Claim, devices: Sequence[str], said: Sequence[str]) -> str:
    """Return "called on a CUDA tensor", "attempting to differentiate a CPU or CUDA tensor" or nothing."""
    names = _either([device.upper() for device in devices])
    on = f"{'an' if names.startswith('M') else 'a'} {names} tensor" if names else ""
    if _GRAD in said:
        return f"called on {on} that {_GRAD}" if on else _GRAD
    if said:
        return f"called on {said[0]} {names} tensors"
    if claim.direction == "backward":
        return f"attempting to differentiate {on}".rstrip()
    return f"called on {on}" if on else ""


def _input(name: str, values: Sequence[str]) -> tuple[_Slot, str]:
    if name == "requires_grad":
        return "call", _GRAD
    return (
        "when",
        f"called with a {'quantized tensor' if list(values) == ['True'] else 'tensor that is not quantized'}",
    )


def _argument(name: str, values: Sequence[str]) -> tuple[_Slot, str]:
    match values:
        case ["given"]:
            return "when", f"``{name}`` tensor is given"
        case ["list of tensors"]:
            return "when", f"the {name} is a list of tensors"
    return "when", f"`{name}` type is {_either(values)}"


def _either(words: Sequence[str]) -> str:
    """Return "a", "a or b", "a, b or c"."""
    return " or ".join([*([", ".join(words[:-1])] if len(words) > 1 else []), *words[-1:]])


# What each kind of condition says, and where in the sentence. What uninitialised memory is filled with is in none.
_PHRASES: dict[Kind, Callable[[str, Sequence[str]], tuple[_Slot, str]]] = {
    "keyword": lambda name, values: (
        "having",
        " or ".join(f"``{name}={value if _BARE.fullmatch(value) else repr(value)}``" for value in values),
    ),
    "output": lambda _, values: ("having", f"{_either(values)} output"),
    "layout": lambda _, values: ("call", _either(values)),
    "input": _input,
    "dtype": lambda _, values: (
        "when",
        f"dtype is {_either([_DTYPES.get(value, value) for value in values])}",
    ),
    "argument": _argument,
    "unspecified": lambda *_: ("end", "in some cases"),
}


# --- The lists as bullets in their own lines

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
    listed = [claim for claim in claims if claim.section in OTHER]
    for _, group in groupby(listed, key=lambda claim: claim.order):
        of_bullet = tuple(group)
        source = of_bullet[0].source
        if source is None:
            raise UsageError(
                "these claims do not hold the docstring's lines, so that the lists cannot be written again; scan a "
                "torch that has docstrings, or choose --format md or json"
            )
        entry = ListEntry(source=source.rstrip("\n"), claims=of_bullet, loose=source.endswith("\n"))
        entries[list_of(of_bullet[0])].append(entry)
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


def list_of(claim: Claim) -> ListName:
    """Return the list that a claim stands in."""
    return "raises" if claim.section == "raises" else "deterministic"


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
