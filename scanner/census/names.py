"""Names of functions as people read them: demangled, and short.

Demanglers can be made to loop or to fill the memory by a name that refers to its own parts again and again, and
names come from files of untrusted origin. So a child process demangles, under limits; what it does not answer
stays as it is.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

SECONDS = 30
_CLONE = re.compile(r"(?:\.(?:cold|constprop|isra|part|lto_priv|localalias)(?:\.\d+)*|\.\d+)+$")


def demangle(symbols: Iterable[str]) -> dict[str, str]:
    """Return each symbol's demangled name, without suffixes of clones; itself where it cannot be demangled."""
    plain = {symbol: _CLONE.sub("", symbol) for symbol in symbols}
    asked = sorted(set(plain.values()))
    child = [sys.executable, "-P", str(Path(__file__).with_name("demangler.py"))]
    try:
        done = subprocess.run(
            child, input=json.dumps(asked), capture_output=True, text=True, timeout=SECONDS, check=False
        )
        answers = done.stdout
    except subprocess.TimeoutExpired as error:
        answers = error.stdout.decode(errors="replace") if isinstance(error.stdout, bytes) else ""
    known = {}
    for name, line in zip(asked, answers.split("\n")[:-1], strict=False):
        known[name] = json.loads(line) or name
    return {symbol: known.get(name, name) for symbol, name in plain.items()}


def short(name: str) -> str:
    """Return a demangled name without result, parameters and template arguments.

    ``void at::native::f<int>(int)::{lambda(char)#1}::operator()() const`` is
    ``at::native::f::{lambda#1}::operator()``.
    """
    text = name.replace("(anonymous namespace)", "ANONYMOUS").replace(" const::", "::")
    text = re.sub(r"\boperator ?(\(\)|<<=|>>=|<=>|<<|>>|<=|>=|->\*|->|<|>)", _hide_operator, text)
    text = _without_brackets(text)
    text = re.sub(r"(?: (?:const|volatile|noexcept)|&)+$", "", text.strip())
    conversion = text.rfind("operator ")
    start = text.rfind(" ", 0, conversion if conversion >= 0 else None)
    text = re.sub(r"\bOPERATOR_([0-9a-f]+)_", _show_operator, text[start + 1 :].strip())
    return text.replace("ANONYMOUS", "(anonymous namespace)") or name


def _hide_operator(found: re.Match[str]) -> str:
    return f"OPERATOR_{found[1].encode().hex()}_"


def _show_operator(found: re.Match[str]) -> str:
    return "operator" + bytes.fromhex(found[1]).decode()


def _without_brackets(text: str) -> str:
    """Return the text without what stands in round and angle brackets; braces count as text."""
    kept = []
    depth = 0
    for at, character in enumerate(text):
        if character in "(<":
            depth += 1
        elif character in ")>":
            # An arrow is no bracket.
            depth -= depth > 0 and text[at - 1 : at + 1] != "->"
        elif not depth:
            kept.append(character)
    return "".join(kept)
