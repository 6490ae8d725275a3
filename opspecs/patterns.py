"""What a pattern of a command line means: names of ops as their users type them, and ids of rows.

An op has a name of its own, ``torch.nn.Conv2d``, and answers to others: ``conv2d``, ``F.conv2d``, ``nn.Conv2d``. A pattern
selects the ops that have the name, and only where there is none those that answer to it, so that ``torch.index_put``
never means ``torch.Tensor.index_put_`` too. Names follow rules: none of this needs a torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cache
from typing import NamedTuple

from detmatrix.opspecs.pytorch.names import function_of, names_for
from detmatrix.opspecs.pytorch.sources import PREFIXES, recorded_entries

_MOST_NEAR = 3
# As alike as a name must be to be what was meant: with less, sdpa would be sparse.
_LIKENESS = 0.65
# Letters that must be typed of the beginning of a name for it to be suggested.
_LEAST_BEGUN = 4
# An overload as PyTorch's dispatcher or torch.ops names it: aten::index_put_, torch.ops.aten.index_put_.default.
_OVERLOAD = re.compile(r"(?:torch\.ops\.)?aten\.(\w+)(?:\.\w+)?")


class OpNames(NamedTuple):
    """What one op is called."""

    name: str  # of its spec
    family: str = ""
    documented: tuple[str, ...] = ()  # how PyTorch's lists would speak of it, the preferred name first
    path: str = ""  # of what is called, which several ops may call

    @property
    def dotted(self) -> tuple[str, ...]:
        """Its dotted names, and that of what is called."""
        return tuple(dict.fromkeys(one for one in (*self.documented, self.path) if one and ":" not in one))

    @property
    def own(self) -> tuple[str, ...]:
        """The names it has: that of its spec, also without what stands before the colon or a dot, and its family."""
        # A name alone means an op, and not its second gradient.
        shorter = () if self.name.startswith("gradgrad:") else _shorter(self.name.rpartition(":")[2])
        names = (self.name, *shorter, self.family)
        return tuple(dict.fromkeys(filter(None, names)))


def op_names(name: str, family: str, op: str = "", documented: Sequence[str] = ()) -> OpNames:
    """Return what an op is called; the path *op* of a user's function is no name."""
    if not documented:
        documented = names_for(name) if name.startswith(tuple(PREFIXES)) else (name,)
    return OpNames(name, family, tuple(documented), op if op.startswith("torch.") else "")


@cache
def recorded_names() -> tuple[OpNames, ...]:
    """Return the names of the entries of PyTorch's databases, of all releases recorded."""
    return tuple(op_names(name, PREFIXES[f"{name.partition(':')[0]}:"]) for name in recorded_entries())


def called(pattern: str, ops: Iterable[OpNames]) -> list[OpNames]:
    """Return the ops that a pattern without the id of a row selects: those of that name, else those that answer to it."""
    ops, pattern = list(ops), _in_python(pattern)
    found = [op for op in ops if any(fnmatchcase(name, pattern) for name in op.own)]
    if found or not pattern:
        return found
    key = _key(pattern)
    found = [op for op in ops if any(fnmatchcase(name, key) for name in _answers(op))]
    if found or (plain := _without_overload(pattern)) == pattern:
        return found
    return called(plain, ops)


def ops_of(pattern: str, ops: Iterable[OpNames]) -> list[OpNames]:
    """Return the ops of which a pattern, a name or an id of rows as ``rows_of`` takes it, may select rows; their cases need not be known."""
    pattern = _in_python(pattern)
    if ":" not in pattern:
        return called(pattern, ops)
    ops, parts = list(ops), pattern.split(":")
    found = [op for op in ops if any(fnmatchcase(op.name, ":".join(parts[:count])) for count in (1, 2))]
    return found or called(_split(pattern)[0], ops)


def rows_of(pattern: str, rows: Sequence[tuple[OpNames, str]]) -> set[str]:
    """Return the ids of the rows that a pattern selects, of rows given with their ops.

    It selects by the name of an op or by its family or, if it holds a colon, by row id, of which trailing parts may be left
    out. ``*``, ``?`` and ``[...]`` are those of ``fnmatch``.
    """
    pattern = _in_python(pattern)
    if ":" not in pattern:
        return {row for _, row in _rows_called(pattern, rows)}
    exact = {row for op, row in rows if _has_id(pattern, op, row)}
    if exact:
        return exact
    head, rest = _split(pattern)
    found = [(row, row.removeprefix(f"{op.name}:").split(":")) for op, row in _rows_called(head, rows)]
    return {row for row, parts in found if fnmatchcase(":".join(parts[: rest.count(":") + 1]), rest)}


def _rows_called(pattern: str, rows: Sequence[tuple[OpNames, str]]) -> list[tuple[OpNames, str]]:
    names = {op.name for op in called(pattern, dict.fromkeys(op for op, _ in rows))}
    return [(op, row) for op, row in rows if op.name in names]


def near(
    pattern: str, rows: Sequence[tuple[OpNames, str]], others: Iterable[OpNames] = ()
) -> tuple[str, ...]:
    """Return up to three names that the writer of a pattern which selects nothing may have meant, best first.

    They are row ids if it has their form; *others* are ops that it may mean beside those of the rows.
    """
    # Only a typing slip needs it, and listing must start fast.
    from difflib import get_close_matches  # noqa: PLC0415

    pattern = _in_python(pattern)
    ops = list(dict.fromkeys((*(op for op, _ in rows), *others)))
    if ":" in pattern and (meant := ops_of(pattern, ops)):
        length, names = pattern.count(":") + 1, {op.name for op in meant}
        # The op is known, and the slip stands behind it.
        ids = [":".join(row.split(":")[:length]) for op, row in rows if op.name in names]
        rest = _split(pattern)[1]
        typed = {":".join(row.split(":")[-rest.count(":") - 1 :]): row for row in ids}
        return tuple(typed[text] for text in get_close_matches(rest, typed, n=_MOST_NEAR, cutoff=0.5))
    # Names that somebody would type.
    typable = sorted(
        {name for op in ops for name in (*_dotted(op.dotted), *op.own)}, key=lambda it: (len(it), it)
    )
    head = _without_overload(_split(pattern)[0])
    close = [name for name in typable if _abbreviates(head, name)]
    close += get_close_matches(head, typable, n=_MOST_NEAR * 6, cutoff=_LIKENESS)
    close += [name for name in typable if len(head) >= _LEAST_BEGUN and name.startswith(head)]
    # Of those that mean the same, the best.
    best: dict[str, str] = {}
    for name in close:
        best.setdefault(_key(name.rpartition(".")[2]), name)
    return tuple(best.values())[:_MOST_NEAR]


def _in_python(pattern: str) -> str:
    """Return a pattern in which an overload has no colons, which part the id of a row."""
    return f"aten.{pattern.removeprefix('aten::')}" if pattern.startswith("aten::") else pattern


def _without_overload(name: str) -> str:
    """Return the name that follows ``aten``, without that of the overload; any other name as it is."""
    found = _OVERLOAD.fullmatch(name)
    return found[1] if found else name


def _abbreviates(typed: str, name: str) -> bool:
    """Tell whether the initials of a name were typed: ``sdpa`` for ``scaled_dot_product_attention``."""
    words = name.split("_")
    return len(words) > 2 and typed.lower() == "".join(word[:1] for word in words)  # noqa: PLR2004 - two are chance


def _split(pattern: str) -> tuple[str, str]:
    """Part the id of rows into the name of an op, which may begin with that of its database, and the rest."""
    prefix, colon, _ = pattern.partition(":")
    begins = f"{prefix}{colon}" if f"{prefix}{colon}" in PREFIXES else ""
    head, _, rest = pattern.removeprefix(begins).partition(":")
    return begins + head, rest


def _has_id(pattern: str, op: OpNames, row: str) -> bool:
    """Tell whether a pattern is the id of a row, or as many parts of it as the pattern has."""
    parts = row.split(":")
    # The name of a database's entry may count as one part or as two.
    return fnmatchcase(row, pattern) or any(
        fnmatchcase(":".join(parts[: pattern.count(":") + 1 + extra]), pattern)
        for extra in range(op.name.count(":") + 1)
    )


@cache
def _answers(op: OpNames) -> frozenset[str]:
    """Return what an op answers to beside its own names, as ``_key`` writes them."""
    keys = {_key(name) for name in _dotted(op.dotted)}
    # So written, a function has the name of its module.
    return frozenset(keys | {key.replace("nn.functional.", "nn.") for key in keys})


def _dotted(names: Iterable[str]) -> Iterator[str]:
    """Yield the dotted names that mean the same op, each also without what stands before one of its dots."""
    for name in dict.fromkeys(alias for one in names for alias in _aliases(one)):
        yield from _shorter(name)
        for module, usual in (("torch.nn.functional.", "F."), ("torch.distributed.", "dist.")):
            if name.startswith(module):
                yield f"{usual}{name.removeprefix(module)}"


def _shorter(name: str) -> list[str]:
    """Return a dotted name, and without what stands before each of its dots."""
    parts = name.split(".")
    return [".".join(parts[place:]) for place in range(len(parts))]


def _aliases(name: str) -> Iterator[str]:
    """Yield a dotted name and the others that follow from it: of a module its function, of a method the function."""
    yield name
    if name.startswith("torch.nn.") and name.count(".") == 2:  # noqa: PLR2004 - torch.nn.Module
        yield f"torch.nn.functional.{function_of(name.rpartition('.')[2])}"
    for root in ("torch.Tensor.", "torch."):
        if name.startswith(root) and "." not in (last := name.removeprefix(root)):
            yield from (f"torch.{last}", f"torch.Tensor.{last}")


def _key(name: str) -> str:
    """Return what is the same of ``CrossEntropyLoss`` and ``cross_entropy``, ``scatter_add_`` and ``scatter_add``."""
    return ".".join(_plain(part) for part in name.split("."))


def _plain(part: str) -> str:
    plain = part.lower().replace("_", "")
    return plain.removesuffix("loss") or plain
