"""Where the Python files of a build check the flag, or raise an alert themselves."""

from __future__ import annotations

import ast
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Literal

from scanner.census.build import Build, whole
from scanner.census.record import PythonPlace, UnreadFile

# Names whose use is a question, whatever they are attributes of.
ASKS = {
    "are_deterministic_algorithms_enabled",
    "is_deterministic_algorithms_warn_only_enabled",
    "get_deterministic_debug_mode",
    "fill_uninitialized_memory",
    "_get_deterministic_algorithms",
    "_get_deterministic_algorithms_warn_only",
    "_get_deterministic_fill_uninitialized_memory",
    "_get_cudnn_deterministic",
    "_get_mkldnn_deterministic",
}
# `deterministic` is a word of many meanings; it is the flag as an attribute of these.
FLAG = "deterministic"
FLAG_OF = {"cudnn", "mkldnn"}
ALERTS = {"alert_not_deterministic", "_alert_not_deterministic", "alertNotDeterministic"}
_WORDS = tuple(word.encode() for word in (*ASKS, FLAG, *ALERTS))
_Kind = Literal["asks", "alerts"]
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def python_places(build: Build) -> tuple[list[PythonPlace], list[UnreadFile]]:
    """Return the places in all Python files, and the files that could not be read though they speak of it."""
    places: list[PythonPlace] = []
    unread: list[UnreadFile] = []
    seen: Counter[str] = Counter()
    for path in build.python_files:
        text = build.read(path)
        name = whole(path)
        if text is None:
            unread.append(UnreadFile(file=name, reason="larger than any Python file of torch"))
            continue
        if not any(word in text for word in _WORDS):
            continue
        try:
            found = list(_places(name, text))
        # What a hostile file can make the parser raise: it says which with the last two.
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            unread.append(UnreadFile(file=name, reason=f"cannot be parsed ({type(error).__name__})"))
            continue
        for kind, word, alert, line, function in sorted(found, key=lambda one: one[3]):
            key = f"python:{name}:{function}:{word}"
            seen[key] += 1
            identity = key if seen[key] == 1 else f"{key}#{seen[key]}"
            places.append(
                PythonPlace(
                    id=identity, kind=kind, name=word, alert=alert, file=name, line=line, function=function
                )
            )
    return places, unread


def _places(name: str, text: bytes) -> Iterator[tuple[_Kind, str, str | None, int, str]]:
    """Yield kind, name, alert, line and enclosing function of each place in a file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(text, filename=name)
    waiting: list[tuple[ast.AST, str]] = [(tree, "")]
    while waiting:
        node, function = waiting.pop()
        inner = function
        if isinstance(node, _FUNCTIONS):
            inner = f"{function}.{node.name}" if function else node.name
        waiting.extend((child, inner) for child in ast.iter_child_nodes(node))
        if isinstance(node, ast.Call):
            called = _last_name(node.func)
            if called in ALERTS:
                argument = node.args[0] if node.args else None
                literal = argument.value if isinstance(argument, ast.Constant) else None
                alert = whole(literal) if isinstance(literal, str) else None
                yield "alerts", called, alert, node.lineno, function or "<module>"
        elif isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
            word = _last_name(node)
            if word in ASKS or (word == FLAG and isinstance(node, ast.Attribute) and _is_flag(node)):
                yield (
                    "asks",
                    word if word != FLAG else whole(ast.unparse(node)),
                    None,
                    node.lineno,
                    function or "<module>",
                )


def _last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def _is_flag(node: ast.Attribute) -> bool:
    return _last_name(node.value) in FLAG_OF
