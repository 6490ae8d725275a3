"""Specs from a file of the user's, declared like ours."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import Any, NoReturn

from detmatrix.opspecs.functions import FunctionName, named_function, spec_of
from detmatrix.opspecs.model import OpSpec
from detmatrix.opspecs.validation import faults


class SpecFileError(Exception):
    """A file of specs cannot be used; the message names the file, the line and what to change."""


def load_specs(file: str | Path) -> tuple[OpSpec, ...]:
    """Execute a Python file and return the ``SPECS`` it declares, each in the family named after the file.

    Of ``FILE.py:FUNCTION``, as ``detmatrix.opspecs.functions`` reads it, return the one that is made of the function. A file that
    lies in a package is executed as a part of it, whether or not this Python has it installed, so that it may import what
    lies beside it.

    Raises:
        SpecFileError: It cannot be executed, or ``SPECS`` is not a sequence of specs that can be scanned.
    """
    if (named := named_function(str(file))) is not None:
        # A file that holds both a function and what gives its inputs is executed once.
        executed = {
            one: _executed(Path(one)) for one in dict.fromkeys(filter(None, (named.file, named.inputs_file)))
        }
        declared = {one: vars(module) for one, (module, _) in executed.items()}
        return (_of_function(named, declared, [digest for _, digest in executed.values()]),)
    path = Path(file)
    module, digest = _executed(path)
    specs = getattr(module, "SPECS", None)
    assigned = _line(path, lambda node: isinstance(node, ast.Name) and node.id == "SPECS")
    if not isinstance(specs, (tuple, list)) or not all(isinstance(spec, OpSpec) for spec in specs):
        raise SpecFileError(f"{path}{assigned}: declares no SPECS; assign a tuple of OpSpec to it")
    if not specs:
        raise SpecFileError(f"{path}{assigned}: SPECS is empty; put an OpSpec into it")
    for spec in specs:
        if wrong := next(faults(spec), None):
            name = spec.name
            where = _line(path, lambda node: _names(node, name)) or assigned  # noqa: B023
            raise SpecFileError(f"{path}{where}: {name!r}: {wrong}")
    return tuple(_owned(spec, path, digest) for spec in specs)


def load_specs_for_workers(file: str) -> tuple[OpSpec, ...]:
    """Return what ``load_specs`` returns. A function whose file imports what this interpreter lacks is not executed here.

    The workers' interpreter, which may be another one, executes it, and says what is wrong with it.

    Raises:
        SpecFileError: It cannot be executed for another reason, or has no such function.
    """
    try:
        return load_specs(file)
    except SpecFileError as error:
        named = named_function(file)
        if named is None or not isinstance(error.__cause__, ModuleNotFoundError):
            raise
    contents = {one: Path(one).read_bytes() for one in filter(None, (named.file, named.inputs_file))}
    declared = {
        one: {
            node.name: _elsewhere
            for node in ast.walk(ast.parse(content))
            if isinstance(node, ast.FunctionDef)
        }
        for one, content in contents.items()
    }
    digests = [hashlib.sha256(content).hexdigest() for content in contents.values()]
    return (_of_function(named, declared, digests),)


def _elsewhere() -> None:
    """Stand for a function that only workers execute."""


def _of_function(
    named: FunctionName, declared: Mapping[str, Mapping[str, Any]], digests: list[str]
) -> OpSpec:
    try:
        spec = spec_of(named, declared)
    except (LookupError, TypeError) as error:
        raise SpecFileError(str(error.args[0])) from error
    digest = digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()
    return _owned(spec, Path(named.file), digest)


def _owned(spec: OpSpec, path: Path, digest: str) -> OpSpec:
    """Return a spec with what is known of the file that declares it."""
    return replace(
        spec,
        documented=tuple(spec.documented),
        family=spec.family or path.stem,
        source="own",
        file=str(path.resolve()),
        digest=digest,
    )


def _executed(path: Path) -> tuple[ModuleType, str]:
    """Return the module of a file, executed once, and the digest of what was executed."""
    if not path.exists():
        raise SpecFileError(f"{path}: no such file")
    if path.suffix != ".py":
        raise SpecFileError(f"{path}: not a Python file; give one that ends in .py")
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        with _staying():
            return _module(path.resolve()), digest
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        raise SpecFileError(f"{_where(error, path)}: {type(error).__name__}: {error}") from error


@contextlib.contextmanager
def _staying() -> Iterator[None]:
    """Let ``os._exit`` raise as ``sys.exit`` does: a scan does not end well because a file of specs says so."""
    leave, process = os._exit, os.getpid()

    def stay(code: int) -> NoReturn:
        if os.getpid() != process:
            leave(code)
        raise SystemExit(code)

    os._exit = stay  # type: ignore[assignment]
    try:
        yield
    finally:
        os._exit = leave


def place_of(error: BaseException, file: str) -> str:
    """Return ``", my_ops.py, line 12"``: the innermost line of the user's that an exception passed through.

    Files beside that of the spec, and all of its package, are the user's too; the file is empty of specs that are ours.
    """
    if not file:
        return ""
    packages = _packages(Path(file))
    found = ""
    for frame, line in walk_tb(error.__traceback__):
        path = Path(frame.f_code.co_filename)
        if packages[0] in path.parents if packages else path.parent == Path(file).parent:
            found = f", {path.name}, line {line}"
    return found


class _PartOf(ModuleSpec):
    """Tells the import system which package a module lies in, since its name does not."""

    package = ""

    @property
    def parent(self) -> str:
        """The package in which relative imports begin."""
        return self.package


def _module(path: Path) -> ModuleType:
    """Return the module of a file, executed; one that its own package has imported is not executed again."""
    package = _package(path)
    dotted = f"{package}.{path.stem}".removeprefix(".")
    known = sys.modules.get(dotted)
    if package and known is not None:
        return known
    # By this name a script that reproduces a row knows what it has to write out.
    name = f"detmatrix_specs_{dotted}"
    loader = SourceFileLoader(name, str(path))
    spec = _PartOf(name, loader, origin=str(path))
    spec.has_location = True
    spec.package = package
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    # Others of its package know it by the name it has there.
    _execute(dotted if package else name, module, loader)
    return module


def _execute(dotted: str, module: ModuleType, loader: Loader) -> None:
    """Execute a module as the import system does, which knows it while it runs and forgets it if it fails."""
    sys.modules[dotted] = module
    try:
        loader.exec_module(module)
    except BaseException:
        del sys.modules[dotted]
        raise
    around, _, own = dotted.rpartition(".")
    if around in sys.modules:
        setattr(sys.modules[around], own, module)


def _package(path: Path) -> str:
    """Import the packages around a file, from where they lie, and return the name of the innermost; empty if none."""
    name = ""
    for folder in _packages(path):
        name = f"{name}.{folder.name}".removeprefix(".")
        known = sys.modules.get(name)
        if known is None:
            spec = importlib.util.spec_from_file_location(
                name, folder / "__init__.py", submodule_search_locations=[str(folder)]
            )
            if spec is None or spec.loader is None:
                return ""
            _execute(name, importlib.util.module_from_spec(spec), spec.loader)
        elif not any(Path(place).resolve() == folder.resolve() for place in getattr(known, "__path__", ())):
            # Another package has the name, ours perhaps: what the file imports of its own cannot be found.
            return ""
    return name


def _packages(path: Path) -> list[Path]:
    """Return the folders of the packages in which a file lies, the outermost first."""
    found: list[Path] = []
    folder = path.parent
    while (folder / "__init__.py").is_file() and folder.name.isidentifier():
        found.insert(0, folder)
        folder = folder.parent
    return found


def _names(node: ast.AST, name: object) -> bool:
    """Tell whether a node is the name that a spec is given."""
    if not isinstance(node, ast.keyword) or node.arg != "name":
        return False
    return isinstance(node.value, ast.Constant) and node.value.value == name


def _line(path: Path, fits: Callable[[ast.AST], bool]) -> str:
    """Return ``", line 12"``: where the first node that fits stands in a file that was executed a moment ago."""
    lines = [node.lineno for node in ast.walk(ast.parse(path.read_bytes())) if fits(node)]  # type: ignore[attr-defined]
    return f", line {min(lines)}" if lines else ""


def _where(error: BaseException, path: Path) -> str:
    """Return ``my_ops.py, line 12``: the innermost line of the file that an exception passed through.

    Where Python could not read a file, it is that file, and where the package around it failed, that one's.
    """
    if isinstance(error, SyntaxError) and error.filename and Path(error.filename).is_file():
        same = Path(error.filename) == path.resolve()
        return f"{path if same else error.filename}, line {error.lineno}"
    found = ""
    around = {str(folder / "__init__.py") for folder in _packages(path.resolve())}
    for frame, line in walk_tb(error.__traceback__):
        name = frame.f_code.co_filename
        if name == str(path.resolve()):
            found = f"{path}, line {line}"
        elif name in around:
            found = found or f"{name}, line {line}"
    return found or str(path)
