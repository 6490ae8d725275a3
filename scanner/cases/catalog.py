"""The catalog as a command sees it: ours and the user's specs, and what patterns select from them."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from detmatrix.opspecs.model import OpSpec, Planned
from detmatrix.opspecs.registry import SPECS, NoMatchError, select
from detmatrix.opspecs.spellings import SPELLINGS
from detmatrix.opspecs.user import SpecFileError, load_specs_for_workers, named_function, resolved
from detmatrix.scanner.accelerators import ACCELERATORS
from detmatrix.scanner.errors import UsageError

# Entry points by which packages bring specs of their own.
_GROUP = "detmatrix.specs"


def load_catalog(spec_files: Sequence[str], sources: Sequence[str] = ("documented",)) -> tuple[OpSpec, ...]:
    """Return the catalog and its spellings, if they are among the sources, and the specs of the user's files; refuse one that cannot be."""
    ours = {"documented": SPECS, "instead": SPELLINGS}
    specs = {spec.name: spec for source, some in ours.items() if source in sources for spec in some}
    for path in spec_files:
        try:
            own = load_specs_for_workers(path)
        except SpecFileError as error:
            raise UsageError(str(error)) from error
        except SystemExit as error:
            raise UsageError(
                f"{path}: exits when it is loaded; let it declare SPECS and do nothing else"
            ) from error
        for spec in own:
            if spec.name in specs:
                raise UsageError(f"{path}: the name {spec.name} is taken; give the spec a name of its own")
            specs[spec.name] = spec
    return tuple(specs.values())


def function_named(function: str, inputs: str | None) -> tuple[str, str]:
    """Return how a function ``FILE.py:FUNCTION`` is named among files of specs, and what its spec is called.

    Its *inputs* are those that another such function returns, if there is one. What is not written so is refused.
    """
    found = []
    for text in filter(None, (function, inputs)):
        one = named_function(text)
        if one is None or one.inputs:
            raise UsageError(f"{text!r} names no function; give FILE.py:FUNCTION")
        found.append(one)
    named = (
        found[0] if inputs is None else found[0]._replace(inputs_file=found[1].file, inputs=found[1].function)
    )
    return resolved(str(named)), named.name


def line_of(named: str) -> tuple[str, int]:
    """Return the file and the line of a function as ``function_named`` names it; it was just loaded from there."""
    function = named_function(named)
    assert function is not None
    tree = ast.parse(Path(function.file).read_text(encoding="utf-8"))
    made = (node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef)))
    return function.file, next((node.lineno for node in made if node.name == function.function), 1)


def with_installed(files: Sequence[str]) -> tuple[str, ...]:
    """Return files of specs with those that installed packages bring: the modules of entry points ``detmatrix.specs``.

    They are loaded like files of the user's, by the main process and by each worker; another interpreter needs what
    they import from elsewhere. An entry point that names no file of Python is refused, and so is a package that fails.
    """
    found = list(files)
    if not _may_bring_specs():
        return tuple(dict.fromkeys(found))
    from importlib.metadata import entry_points  # noqa: PLC0415

    for point in entry_points(group=_GROUP):
        owner = point.dist.name if point.dist else "a package"
        text = f"{owner}: its entry point {point.name} = {point.value} of the group {_GROUP}"
        mend = f"mend it there, or uninstall {owner}"
        try:
            spec = importlib.util.find_spec(point.module)
        except (Exception, SystemExit) as error:
            # A package that is not there, or a module that is none; not one that its package lacks in turn.
            missing = error.name if isinstance(error, ModuleNotFoundError) else None
            if missing is None or not f"{point.module}.".startswith(f"{missing}."):
                failed = f"{type(error).__name__}: {error}"
                raise UsageError(
                    f"{text} lies in a package that fails when it is imported ({failed}); {mend}"
                ) from error
            spec = None
        if spec is None or not spec.origin or not Path(spec.origin).is_file():
            raise UsageError(f"{text} names no module with a file; {mend}")
        found.append(spec.origin)
    return tuple(dict.fromkeys(found))


def _may_bring_specs() -> bool:
    """Tell whether a package could bring specs. Nearly none does, and to load ``importlib.metadata`` takes longer."""
    for folder in map(Path, sys.path):
        if folder.is_file():
            return True  # an archive, whose insides are not looked into
        for file in folder.glob("*-info/entry_points.txt"):
            with contextlib.suppress(OSError):
                if _GROUP.encode() in file.read_bytes():
                    return True
    return False


def named_files(named: Sequence[str], recorded: Sequence[str], text: str) -> tuple[str, ...]:
    """Return the files of specs that may run for a run file: those of the command line, and those of installed packages.

    A file of specs is Python, and a run file may come from anyone: what it names is never executed for its sake alone.
    Digests in it would prove nothing, for whoever writes the one writes the other. Where the run had files of specs and the command
    line names none, a ``UsageError`` begins with *text*, which says what cannot be done without.
    """
    files = with_installed(named)
    missing = [path for path in recorded if path not in files]
    if missing and not named:
        options = " ".join(f"--specs {shlex.quote(path)}" for path in missing)
        raise UsageError(
            f"{text}; specs are Python, which runs only where the command line names it: if you trust it, add {options}"
        )
    return files


def choose(patterns: Sequence[str], device: str, specs: Sequence[OpSpec]) -> list[tuple[OpSpec, Planned]]:
    """Select rows by patterns; refuse one that matches nothing, and name near matches."""
    try:
        return select(patterns, device, specs)
    except NoMatchError as error:
        pattern, close = error.args
        near = f"did you mean {' or '.join(close)}?" if close else "detmatrix list shows what there is"
        where = " on the CPU" if device == "cpu" else ""
        where = f" on {ACCELERATORS[device].label}" if device in ACCELERATORS else where
        raise UsageError(f"no op{where} matches {pattern!r}; {near}") from error
