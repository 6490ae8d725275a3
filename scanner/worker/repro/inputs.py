"""How a row's inputs are made, in source that needs torch alone: a worker's answer to ``source``."""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import FunctionType, ModuleType
from typing import Any

import torch

from detmatrix.opspecs.inputs import Inputs, SimulatedInputs, UpstreamGradients
from detmatrix.opspecs.model import Call, MissingError, OpSpec
from detmatrix.opspecs.pytorch import database
from detmatrix.scanner.worker import bits
from detmatrix.scanner.worker.accelerator import is_there
from detmatrix.scanner.worker.execution import NotRunnableError, first_line, resolve
from detmatrix.scanner.worker.repro.codegen import Drawing, Source, UntraceableError, mapped

# Stands for the shape of an output, which is not known before it is there.
_ANY_SHAPE = 7919
# The modules whose functions and classes are written out: ours, and files of the user's.
_WRITTEN_OUT = ("detmatrix.opspecs.", "detmatrix_specs_")


class InputSourceError(Exception):
    """There is no source of a row's inputs; the message says why."""


def input_source(
    specs: Mapping[str, OpSpec],
    *,
    spec: str,
    case: str,
    direction: str,
    dtype: str,
    device: str,
    seed: int,
    grown: str = "",
) -> dict[str, Any]:
    """Return the source of a row's inputs, and what the call of its op needs.

    The device may be one that this machine lacks; ``"simulated"`` draws as a simulated GPU does, for CUDA.

    Returns:
        ``lines`` that draw the inputs, and ``args``, ``kwargs`` and ``leaves`` made of them; ``digest`` of the inputs
        as an observation has it, ``None`` where they cannot be drawn; ``op``, ``in_place``, and the ``imports`` and
        ``definitions`` that the op needs; ``upstream``, the seed of the upstream gradients and the expression that
        draws one for an output ``o`` from a generator ``g``; ``batch``, the axes of the case's batch.

    Raises:
        InputSourceError: There is no such row here, or something in it has no source.
    """
    if database.source_of(spec):
        of = _of_database(spec, case, dtype, device, seed, grown)
    elif spec in specs and case in specs[spec].cases:
        of = specs[spec]
    else:
        raise InputSourceError("the specs here have no such case; take the detmatrix that scanned it")
    if not hasattr(torch, dtype):
        raise InputSourceError(f"torch {torch.__version__} has no dtype {dtype}")
    key = f"{seed}|{spec}|{case}|{dtype}"
    simulated, device = device == "simulated", "cuda" if device == "simulated" else device
    options: dict[str, Any] = {"dtype": dtype, "device": device, "direction": direction}
    inputs, drawing = (SimulatedInputs if simulated else Inputs)(key, **options), Drawing(device)
    try:
        with drawing:
            call = of.cases[case].inputs(inputs)
    except MissingError as error:
        raise InputSourceError(f"torch {torch.__version__} has no {error}") from error
    except Exception as error:
        raise InputSourceError(f"its inputs cannot be drawn here ({first_line(error)})") from error
    if not isinstance(call, Call):
        raise InputSourceError("its inputs are no call(...)")
    values = [call.args, dict(call.kwargs), inputs.leaves]
    try:
        wanted = drawing.known(values)
        source = Source(drawing, wanted)
        lines = [source.text(value) for value in wanted]
        op = _Op(of.op)
        upstream = (
            _upstream(f"{key}|upstream", options, simulated=simulated) if direction == "backward" else None
        )
    except UntraceableError as error:
        raise InputSourceError(str(error)) from error
    batch = of.cases[case].batch
    made, here = _drawn_here(source, device) if simulated else (source.lines, device)
    return {
        "lines": source.lines,
        **dict(zip(("args", "kwargs", "leaves"), lines, strict=True)),
        "digest": _digest(made, lines, values, here, drawn=of.some_leaves),
        "op": op.text,
        "in_place": of.in_place,
        "imports": op.imports,
        "definitions": op.definitions,
        "upstream": upstream,
        "batch": None if batch is None else {"inputs": list(batch.inputs.items()), "outputs": batch.outputs},
    }


def _of_database(name: str, case: str, dtype: str, device: str, seed: int, grown: str) -> OpSpec:
    """Return the spec of a database's entry whose samples are written as the numbers they consist of."""
    if device != "cpu":
        raise InputSourceError(
            "PyTorch's databases draw their samples on the device itself; only those of the CPU are written"
        )
    try:
        spec = database.find(name, seed=seed, enlargement=grown)
        # Drawn now and kept: how the database draws is not to be recorded.
        spec.cases[case].inputs(Inputs("", dtype=dtype, device=device, direction="forward"))
        spec = database.find(name, seed=seed, enlargement=grown, literal=True)
    except (database.DatabaseError, KeyError, MissingError) as error:
        raise InputSourceError(first_line(error)) from error
    path = database.entries(database.source_of(name) or "")[name].path
    with contextlib.suppress(NotRunnableError):
        if path.startswith("torch.") and resolve(path) is spec.op:
            return replace(spec, op=path)
    return spec


def _drawn_here(source: Source, device: str) -> tuple[list[str], str]:
    """Return the lines that draw for a simulated GPU as they run on the CPU; in the source they move to the device at the end."""
    source.lines = [line.replace('.to("cpu")', "").replace('.to("cpu", ', ".to(") for line in source.lines]
    return [line.replace(f'"{device}"', '"cpu"') for line in source.lines], "cpu"


def _upstream(key: str, options: dict[str, Any], *, simulated: bool = False) -> tuple[int, str]:
    """Return the seed of the upstream gradients, and how one is drawn."""
    if simulated:
        seed, drawn = _upstream(key, options | {"device": "cpu"})
        return seed, f'{drawn}.to("{options["device"]}")'
    inputs = UpstreamGradients(key, **options)
    if options["device"] != "cpu":
        return inputs.gradient_source()
    with Drawing(options["device"]) as drawing:
        drawn = inputs.normal(_ANY_SHAPE)
    (_, line) = Source(drawing, drawing.known(drawn)).lines
    return drawing.generators[0].initial_seed(), line.partition(" = ")[2].replace(str(_ANY_SHAPE), "o.shape")


def _digest(lines: list[str], texts: list[str], values: list[Any], device: str, *, drawn: bool) -> str | None:
    """Run what was written; return the digest of its inputs as an observation has it, with what is no tensor if it is *drawn*."""
    if device != "cpu" and not is_there(device):
        return None
    body = textwrap.indent("\n".join([*lines, f"return [{', '.join(texts)}]"]), "    ")
    names: dict[str, Any] = {"torch": torch}
    try:
        exec(f"def inputs():\n{body}", names)  # noqa: S102 - written a moment ago, by us
        made = names["inputs"]()
    except Exception as error:
        raise InputSourceError(f"its inputs were not understood ({first_line(error)})") from error
    # Another device may compute other bits from equal draws.
    if device == "cpu" and _described(made) != _described(values):
        raise InputSourceError("its inputs were not understood: what was written makes others")
    args, kwargs, _ = made
    return bits.digest(
        [*bits.parts(args, "args", skip_others=True), *bits.parts(kwargs, "kwargs", skip_others=True)],
        [*bits.said(args, "args"), *bits.said(kwargs, "kwargs")] if drawn else [],
    )


def _described(values: list[Any]) -> list[Any]:
    """Return all in which inputs can differ: bits, strides, part in backward, and what is no tensor."""
    parts = bits.parts(values, "inputs", skip_others=True)
    plain = mapped(values, lambda one: one.requires_grad if isinstance(one, torch.Tensor) else repr(one))
    return [bits.digest(parts), [tensor.stride() for _, tensor in parts], plain]


class _Op:
    """The source of an op: a dotted path, or a function and what it needs of its module."""

    def __init__(self, op: Any) -> None:
        """Write it."""
        self.imports: list[str] = []
        self.definitions: list[str] = []
        self._seen: set[str] = set()
        if isinstance(op, str) and op.startswith(_WRITTEN_OUT):
            op = resolve(op)
        if isinstance(op, str):
            self.text = op
            self._import_parents(op)
        else:
            if not isinstance(op, FunctionType) or op.__closure__ or not op.__name__.isidentifier():
                raise UntraceableError(f"{getattr(op, '__qualname__', op)!s} is no function of a module")
            self.text = op.__name__
            self._define(op.__name__, op)

    def _import_parents(self, path: str) -> None:
        """Import the modules on the way to an op that ``import torch`` leaves out."""
        root, *names = path.split(".")
        found, at = importlib.import_module(root), root
        for name in names:
            at = f"{at}.{name}"
            if not hasattr(found, name):
                try:
                    importlib.import_module(at)
                except ImportError:
                    return  # This torch has no such op; the script will say so of the one it runs in.
                self.imports.append(f"import {at}")
            found = getattr(found, name)

    def _define(self, name: str, value: Any) -> None:
        """Define a name, after those it needs itself."""
        if name in self._seen or value is torch:
            return
        self._seen.add(name)
        module = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        if isinstance(module, str) and module.partition(".")[0] in {"torch", *sys.stdlib_module_names}:
            self.imports.append(_import(name, value, module))
        elif isinstance(value, (FunctionType, type)) and str(module).startswith(_WRITTEN_OUT):
            text = self._source(name, value)
            known = vars(sys.modules[value.__module__])
            for needed in _names_in(text, value):
                if needed in known:
                    self._define(needed, known[needed])
            self.definitions.append(
                text if value.__name__ == name else f"{text}\n\n{name} = {value.__name__}"
            )
        elif callable(value) or isinstance(value, ModuleType):
            raise UntraceableError(f"{name} is neither torch's nor defined beside the op")
        else:
            self.definitions.append(f"{name} = {Source(Drawing('cpu'), ()).text(value)}")

    @staticmethod
    def _source(name: str, value: Any) -> str:
        try:
            text = textwrap.dedent(inspect.getsource(value)).rstrip()
        except (OSError, TypeError) as error:
            raise UntraceableError(f"the source of {name} cannot be read") from error
        # Whoever reads a script has no linter to quiet.
        return re.sub(r"  # (noqa|type: ignore).*", "", text)


def _import(name: str, value: Any, module: str) -> str:
    """Return the statement that imports a module, or something out of one."""
    if isinstance(value, ModuleType):
        return f"import {module}" if name == module else f"import {module} as {name}"
    own = getattr(value, "__name__", name)
    return f"from {module} import {own}" + (f" as {name}" if name != own else "")


def _names_in(text: str, value: Any) -> list[str]:
    """Return the names that some source reads and does not bind itself, those in annotations left out."""
    code = getattr(value, "__code__", None)
    bound = {*code.co_varnames, *code.co_cellvars} if code else set()
    return [name for name in dict.fromkeys(_walk(ast.parse(text))) if name not in bound]


def _walk(node: ast.AST) -> Iterator[str]:
    """Yield the names below a node, annotations left out."""
    for field, child in ast.iter_fields(node):
        if field in ("annotation", "returns"):
            continue
        for item in child if isinstance(child, list) else [child]:
            if isinstance(item, ast.Name):
                yield item.id
            elif isinstance(item, ast.AST):
                yield from _walk(item)
