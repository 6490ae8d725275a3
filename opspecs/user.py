"""Specs from a file of the user's, declared like ours."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import get_args

from opspecs.model import Case, Direction, OpSpec

# What controls and sentinels are known by in a run file.
_OURS = ("control.", "sentinel.")


class SpecFileError(Exception):
    """A file of specs cannot be used; the message names the file, the line and what to change."""


def load_specs(file: str | Path) -> tuple[OpSpec, ...]:
    """Execute a Python file and return the ``SPECS`` it declares, each in the family named after the file.

    Raises:
        SpecFileError: It cannot be executed, or ``SPECS`` is not a sequence of specs.
    """
    path = Path(file)
    module_spec = importlib.util.spec_from_file_location(f"detmatrix_specs_{path.stem}", path)
    if module_spec is None or module_spec.loader is None:
        raise SpecFileError(f"{path}: not a Python file; give one that ends in .py")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[module_spec.name] = module
    try:
        module_spec.loader.exec_module(module)
    except FileNotFoundError:
        raise SpecFileError(f"{path}: no such file") from None
    except Exception as error:
        raise SpecFileError(f"{path}{_line(error, path)}: {type(error).__name__}: {error}") from error
    specs = getattr(module, "SPECS", None)
    if not isinstance(specs, (tuple, list)) or not all(isinstance(spec, OpSpec) for spec in specs):
        where = _declared(path, lambda node: isinstance(node, ast.Name) and node.id == "SPECS")
        raise SpecFileError(f"{path}{where}: declares no SPECS; assign a tuple of OpSpec to it")
    for spec in specs:
        if wrong := next(_faults(spec), None):
            name = spec.name
            where = _declared(path, lambda node: isinstance(node, ast.Constant) and node.value == name)  # noqa: B023
            raise SpecFileError(f"{path}{where}: {spec.name!r}: {wrong}")
    return tuple(replace(spec, family=spec.family or path.stem, source="own") for spec in specs)


def _faults(spec: OpSpec) -> Iterator[str]:
    """Yield what a spec declares that a scan could not run, and what to declare instead; the first is told."""
    if not isinstance(spec.name, str) or not spec.name or ":" in spec.name:
        yield "name must be a text without ':', which separates the parts of a row id"
    elif spec.name.startswith(_OURS):
        yield f"names that begin with {' or '.join(_OURS)} are those of our own; give the spec another name"
    if not isinstance(spec.op, str) and not callable(spec.op):
        yield "op must be a dotted path below torch, or a function"
    if not spec.cases or not all(isinstance(case, Case) for case in spec.cases.values()):
        yield "cases must map names to Case(inputs=lambda t: call(...))"
    if not all(isinstance(name, str) and name and ":" not in name for name in spec.cases):
        yield "the name of a case must be a text without ':'"
    if not all(callable(case.inputs) for case in spec.cases.values()):
        yield "the inputs of a case must be a function of t that returns call(...)"
    declared: list[OpSpec | Case] = [spec, *spec.cases.values()]
    if not all(set(one.directions or ()) <= set(get_args(Direction)) for one in declared):
        yield f"directions must be among {', '.join(get_args(Direction))}"
    if isinstance(spec.documented, str):
        yield "documented must be a tuple of names, such as ('torch.Tensor.put_',)"
    if any(
        isinstance(one.dtypes, str) or not all(isinstance(n, str) for n in one.dtypes or ())
        for one in declared
    ):
        yield "dtypes must be a tuple of names such as 'float32'"


def _declared(path: Path, fits: Callable[[ast.AST], bool]) -> str:
    """Return ``", line 12"``: where the first node that fits stands in a file that was executed a moment ago."""
    lines = [node.lineno for node in ast.walk(ast.parse(path.read_bytes())) if fits(node)]  # type: ignore[attr-defined]
    return f", line {min(lines)}" if lines else ""


def _line(error: BaseException, path: Path) -> str:
    """Return ``", line 12"``: the innermost line of the file that an exception passed through."""
    if isinstance(error, SyntaxError):
        return f", line {error.lineno}"
    found = ""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path.absolute()):
            found = f", line {trace.tb_lineno}"
        trace = trace.tb_next
    return found
