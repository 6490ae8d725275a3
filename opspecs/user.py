"""Specs from a file of the user's, declared like ours, or made of one function; all they hold is checked before a scan rests on it."""

from __future__ import annotations

import ast
import contextlib
import copy
import importlib.util
import inspect
import os
import random
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from difflib import get_close_matches
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, get_args

from detmatrix.opspecs.inputs import Inputs
from detmatrix.opspecs.model import Batch, Call, Case, Device, Direction, OpSpec, call

if TYPE_CHECKING:
    import torch

_NAMED = re.compile(r"(.+\.py):(\w+)(?:\((.+\.py):(\w+)\))?")
# What controls and sentinels are known by in a run file.
_OURS = ("control.", "sentinel.")


class SpecFileError(Exception):
    """A file of specs cannot be used; the message names the file, the line and what to change."""


class FunctionName(NamedTuple):
    """Which function, and which one gives its inputs, each with its file."""

    file: str
    function: str
    inputs_file: str = ""
    inputs: str = ""

    def __str__(self) -> str:
        inputs = f"({self.inputs_file}:{self.inputs})" if self.inputs else ""
        return f"{self.file}:{self.function}{inputs}"

    @property
    def name(self) -> str:
        """What the spec is called."""
        return f"{Path(self.file).stem}.{self.function}"


def named_function(text: str) -> FunctionName | None:
    """Return the function that a text names; ``None`` if it is the name of a file."""
    found = _NAMED.fullmatch(text)
    return FunctionName(*found.groups("")) if found else None


def resolved(specs: str) -> str:
    """Return a file of specs, or a function with its files, by paths that hold in any folder."""
    named = named_function(specs)
    if named is None:
        return str(Path(specs).resolve())
    inputs = str(Path(named.inputs_file).resolve()) if named.inputs_file else ""
    return str(named._replace(file=str(Path(named.file).resolve()), inputs_file=inputs))


def file_of(specs: str) -> Path:
    """Return the file in which specs are declared."""
    named = named_function(specs)
    return Path(named.file if named else specs)


def load_specs(file: str | Path) -> tuple[OpSpec, ...]:
    """Execute a Python file and return the ``SPECS`` it declares, each in the family named after the file.

    Of ``FILE.py:FUNCTION``, or ``FILE.py:FUNCTION(FILE.py:INPUTS)``, return the one that is made of the function. A file that
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
        if wrong := next(_faults(spec), None):
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
    return (_of_function(named, declared, [*map(_digest_of, contents.values())]),)


def _elsewhere() -> None:
    """Stand for a function that only workers execute."""


def _of_function(
    named: FunctionName, declared: Mapping[str, Mapping[str, Any]], digests: list[str]
) -> OpSpec:
    """Return the spec of a function, given what each of its files declares; what it is given, a worker finds out."""
    op = _function(named.file, named.function, declared[named.file])
    make = _function(named.inputs_file, named.inputs, declared[named.inputs_file]) if named.inputs else None
    if make is None:
        _check_callable(op, named)
    spec = OpSpec(
        name=named.name,
        op=op,
        why="",
        directions=("forward", "backward"),
        cases={"inputs": Case(lambda t: _given(make, t) if make else call(), "inputs of your own")},
        described=True,
        some_leaves=True,
    )
    digest = digests[0] if len(digests) == 1 else _digest_of("".join(digests).encode())
    return _owned(spec, Path(named.file), digest)


def _function(file: str, name: str, declared: Mapping[str, Any]) -> Callable[..., Any]:
    found = declared.get(name)
    if callable(found):
        return found  # type: ignore[no-any-return]
    near = get_close_matches(name, [one for one, value in declared.items() if callable(value)], n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise SpecFileError(f"{file}: has no function {name!r}{hint}")


def _check_callable(op: Callable[..., Any], named: FunctionName) -> None:
    try:
        inspect.signature(op).bind()
    except ValueError:
        return  # one of C's, which does not say what it takes
    except TypeError as error:
        raise SpecFileError(
            f"{named.file}: {named.function} takes arguments ({error}); name a function that returns them with --inputs "
            f"FILE.py:FUNCTION"
        ) from None


def _given(make: Callable[..., Any], t: Inputs) -> Call:
    """Return the arguments that a function makes, the same each time, on the device of the scan."""
    wanted = [one for one in inspect.signature(make).parameters.values() if one.default is one.empty]
    takes = any(one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) for one in wanted)
    with seeded(0 if takes else int(t.index(1, high=1 << 31))):
        made = make(t) if takes else make()
    if isinstance(made, dict):
        made = Call((), made)
    elif not isinstance(made, Call):
        made = Call(tuple(made) if isinstance(made, tuple) else (made,), {})
    places = _Places(t)
    return Call(places.of(made.args), places.of(dict(made.kwargs)))


class _Places:
    """Nested arguments on the device of a scan, where tensors that require a gradient are leaves.

    What lies there stays itself, and so does what holds nothing else, since other arguments may hold it, too.
    """

    def __init__(self, t: Inputs) -> None:
        import torch  # noqa: PLC0415 - a worker calls this

        self._torch, self._device, self._follow = torch, torch.device(t.device), t.follow
        self._placed: dict[int, Any] = {}

    def of(self, value: Any) -> Any:
        """Return a value as it is there; what holds itself is not looked through a second time."""
        if id(value) not in self._placed:
            self._placed[id(value)] = value
            self._placed[id(value)] = self._new(value)
        return self._placed[id(value)]

    def _new(self, value: Any) -> Any:
        if isinstance(value, self._torch.Tensor):
            return self._tensor(value)
        # A module registers its parameters itself.
        record = is_dataclass(value) and not isinstance(value, (type, self._torch.nn.Module))
        items: dict[Any, Any]
        if record:
            items = {one.name: getattr(value, one.name) for one in fields(value) if hasattr(value, one.name)}
        elif isinstance(value, (tuple, list, dict)):
            items = dict(value) if isinstance(value, dict) else dict(enumerate(value))
        else:
            return value
        placed = {name: self.of(one) for name, one in items.items()}
        if all(placed[name] is one for name, one in items.items()):
            return value
        if isinstance(value, tuple):
            kind, there = type(value), list(placed.values())
            if hasattr(kind, "n_sequence_fields"):  # torch's named tuples
                return kind(there)
            # Not by a class of one's own, which may take its items in some other way.
            made = tuple.__new__(kind, there)
            vars(made).update(vars(value)) if hasattr(value, "__dict__") else None
            return made
        other = copy.copy(value)
        for name, one in placed.items():
            if record:
                object.__setattr__(other, name, one)
            else:
                other[name] = one
        return other

    def _tensor(self, value: torch.Tensor) -> torch.Tensor:
        there = value
        if value.device != self._device or not value.is_leaf:
            there = value.detach().to(self._device)
            if isinstance(value, self._torch.nn.Parameter):
                there = self._torch.nn.Parameter(there, requires_grad=False)
            there.requires_grad_(value.requires_grad)
            if value.is_leaf and value.grad is not None:
                there.grad = value.grad.to(self._device)
        if there.requires_grad:
            self._follow(there)
        return there


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the generators that have no owner, of torch, Python and NumPy, and put those of the CPU back behind the block."""
    import torch  # noqa: PLC0415 - a worker calls this

    numpy = sys.modules.get("numpy")
    before, of_numpy = random.getstate(), numpy and numpy.random.get_state()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        random.seed(seed)
        if numpy:
            numpy.random.seed(seed)
        try:
            yield
        finally:
            random.setstate(before)
            if numpy:
                numpy.random.set_state(of_numpy)


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
        digest = _digest_of(path.read_bytes())
        with _staying():
            return _module(path.resolve()), digest
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        raise SpecFileError(f"{_where(error, path)}: {type(error).__name__}: {error}") from error


def _digest_of(content: bytes) -> str:
    import hashlib  # noqa: PLC0415 - listing must start fast

    return hashlib.sha256(content).hexdigest()


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
    if not package and str(path.parent) not in sys.path:
        # Behind all others: what lies beside a file can be imported, as if Python had been given the file.
        sys.path.append(str(path.parent))
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


# What a declared spec may hold.


def _faults(spec: OpSpec) -> Iterator[str]:
    """Yield what a spec declares that a scan could not run or record, and what to declare instead."""
    yield from _name(spec)
    if not callable(spec.op) and not (
        _is_text(spec.op) and all(part.isidentifier() for part in spec.op.split("."))
    ):
        yield f"op must be a dotted path below torch, or a function, and is {_described(spec.op)}"
    elif spec.op == spec.name and not spec.name.startswith("torch."):
        yield "op is missing: a function, or a dotted path below torch"
    yield from _wrong(spec, "why, family", _is_text, "a text")
    yield from _wrong(spec, "in_place, some_leaves", lambda value: isinstance(value, bool), "True or False")
    if not _are(spec.documented, _is_text):
        yield f"documented must be a tuple of names, such as ('torch.Tensor.put_',), and is {_described(spec.documented)}"
    if not _are(spec.directions, _is_direction) or not spec.directions:
        yield _must_be_among("directions", Direction, spec.directions)
    if not _are(spec.cuda_dtypes, _is_dtype):
        yield f"cuda_dtypes must be a tuple of names such as 'float32', and is {_described(spec.cuda_dtypes)}"
    # A spec may have rows on CUDA alone.
    if not _are(spec.dtypes, _is_dtype) or not (spec.dtypes or spec.cuda_dtypes):
        yield f"dtypes must be a tuple of names such as 'float32', and is {_described(spec.dtypes)}"
    if (
        not isinstance(spec.cases, Mapping)
        or not spec.cases
        or not all(isinstance(case, Case) for case in spec.cases.values())
    ):
        yield "cases must map names to Case(inputs=lambda t: call(...))"
    elif not all(_is_text(name) and name and ":" not in name and name.isprintable() for name in spec.cases):
        yield "the name of a case must be a text of one line without ':'"
    else:
        for name, case in spec.cases.items():
            yield from (f"case {name!r}: {fault}" for fault in _of_case(case))


def _name(spec: OpSpec) -> Iterator[str]:
    if not _is_text(spec.name) or not spec.name or ":" in spec.name or not spec.name.isprintable():
        yield "name must be a text of one line without ':', which separates the parts of a row id"
    elif spec.name.startswith(_OURS):
        yield f"names that begin with {' or '.join(_OURS)} are those of our own; give the spec another name"


def _of_case(case: Case) -> Iterator[str]:
    if not callable(case.inputs):
        yield f"inputs must be a function of t that returns call(...), and is {_described(case.inputs)}"
    yield from _wrong(case, "provokes, constant", _is_text, "a text")
    yield from _wrong(
        case, "reference", lambda value: value is None or callable(value), "a function of the call, or None"
    )
    if case.batch is not None and not _is_batch(case.batch):
        yield f"batch must be like Batch({{0: 0}}): the axis of each argument that holds one, and is {_described(case.batch)}"
    if case.directions is not None and not (_are(case.directions, _is_direction) and case.directions):
        yield _must_be_among("directions", Direction, case.directions)
    if case.dtypes is not None and not (_are(case.dtypes, _is_dtype) and case.dtypes):
        yield f"dtypes must be a tuple of names such as 'float32', and is {_described(case.dtypes)}"
    if not _are(case.devices, lambda value: value in get_args(Device)) or not case.devices:
        yield _must_be_among("devices", Device, case.devices)
    if not isinstance(case.traits, Mapping) or not _are([*case.traits, *case.traits.values()], _is_text):
        yield f"traits must map texts to texts, such as {{'accumulate': 'True'}}, and is {_described(case.traits)}"


def _wrong(one: OpSpec | Case, fields: str, right: Callable[[Any], bool], what: str) -> Iterator[str]:
    for name in fields.split(", "):
        if not right(value := getattr(one, name)):
            yield f"{name} must be {what}, and is {_described(value)}"


def _must_be_among(name: str, choices: Any, value: Any) -> str:
    known = get_args(choices)
    return f"{name} must be a tuple of names among {', '.join(known)}, such as ({known[0]!r},), and is {_described(value)}"


def _described(value: Any) -> str:
    """Return a value as its declaration may have it, cut short."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - an object of the user's may fail at this too
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."  # noqa: PLR2004


def _are(values: Any, right: Callable[[Any], bool]) -> bool:
    """Tell whether something is a sequence of what is right; a set has another order in every process."""
    return isinstance(values, (tuple, list)) and all(map(right, values))


def _is_batch(value: Any) -> bool:
    held = value.inputs if isinstance(value, Batch) else None
    return (
        isinstance(held, Mapping)
        and bool(held)
        and all(isinstance(name, (int, str)) for name in held)
        and all(isinstance(axis, int) for axis in (*held.values(), value.outputs))
    )


def _is_direction(value: Any) -> bool:
    return value in get_args(Direction)


def _is_text(value: Any) -> bool:
    """Tell whether something is a text that a file can hold."""
    return isinstance(value, str) and not any("\ud800" <= char <= "\udfff" for char in value)


def _is_dtype(value: Any) -> bool:
    # Which there are, the scanned torch knows: a row with another one is not run.
    return isinstance(value, str) and value.isidentifier()
