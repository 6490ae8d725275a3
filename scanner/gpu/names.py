"""Names of kernels for readers: as their source has them, without what only a compiler needs."""

from __future__ import annotations

import re

_MOST = 160
# Of the names of what is local to a source file: nvcc writes the length of the file's name, and the name.
_LOCAL = re.compile(r"_GLOBAL__N__[0-9a-f]{8}_(\d+)_(\w+)")
_BRACKETS = re.compile(r"([<>(){}])")


def source_of(text: str) -> str:
    """Return the source file that names of a module tell of, such as ``RangeFactories.cu``; empty if they tell of none."""
    local = _LOCAL.search(text)
    return re.sub(r"_(cuh?|cpp)$", r".\1", local[2][: int(local[1])]) if local else ""


def demangled(name: str) -> str:
    """Return the name of a kernel as its source has it, as far as a demangler is there."""
    try:
        from cpp_demangle import demangle  # noqa: PLC0415 - has wheels for some systems alone
    except ImportError:
        return name
    try:
        return str(demangle(name))
    except ValueError:
        return name


def shortened(name: str) -> str:
    """Return a demangled name without its parameters, namespaces, and what stands in the arguments of its template."""
    head, arguments, depth = "", "", 0
    for part in _BRACKETS.split(name.replace("(anonymous namespace)::", "")):
        if part in ("<", "(", "{"):
            if depth == 0 and part == "(":
                break
            arguments = "" if depth == 0 else arguments
            depth += 1
        elif part in (">", ")", "}"):
            depth -= 1
        elif depth == 0:
            head += part
        elif depth == 1:
            arguments += part
    said = ", ".join(filter(None, map(_last, arguments.split(","))))
    return (_last(head.rpartition(" ")[2]) + (f"<{said}>" if said else ""))[:_MOST]


def _last(path: str) -> str:
    """Return what a path leads to; of a function that is local to another one, the outermost."""
    parts = path.strip().split("::")
    parts = parts[: parts.index("", 1)] if "" in parts[1:] else parts
    named = [part for part in parts if not part.startswith("operator")]
    return (named or parts)[-1]
