"""How a row's inputs are made, in source that needs torch alone: a worker's answer to ``source``."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import importlib
import inspect
import json
import math
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from detmatrix.opspecs.inputs import Inputs, SimulatedInputs, UpstreamGradients
from detmatrix.opspecs.model import Call, MissingError, OpSpec
from detmatrix.opspecs.pytorch import database
from detmatrix.scanner.worker import bits
from detmatrix.scanner.worker.accelerator import is_there
from detmatrix.scanner.worker.execution import NotRunnableError, first_line, resolve

# Stands for the shape of an output, which is not known before it is there.
_ANY_SHAPE = 7919
# The modules whose functions and classes are written out: ours, and files of the user's.
_WRITTEN_OUT = ("detmatrix.opspecs.", "detmatrix_specs_")


class InputSourceError(Exception):
    """There is no source of a row's inputs, or of something in them; the message says why."""


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
    wanted = drawing.known(values)
    source = Source(drawing, wanted)
    lines = [source.text(value) for value in wanted]
    op = _Op(of.op)
    upstream = _upstream(f"{key}|upstream", options, simulated=simulated) if direction == "backward" else None
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
        "batch": batch and (list(batch.inputs.items()), batch.outputs),
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
            return dataclasses.replace(spec, op=path)
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
                raise InputSourceError(f"{getattr(op, '__qualname__', op)!s} is no function of a module")
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
            raise InputSourceError(f"{name} is neither torch's nor defined beside the op")
        else:
            self.definitions.append(f"{name} = {Source(Drawing('cpu'), ()).text(value)}")

    @staticmethod
    def _source(name: str, value: Any) -> str:
        try:
            text = textwrap.dedent(inspect.getsource(value)).rstrip()
        except (OSError, TypeError) as error:
            raise InputSourceError(f"the source of {name} cannot be read") from error
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


# --- What was recorded of torch, written as source that does the same
#
# Statements stand in the order in which they were recorded; what only one of them uses is written into it, unless
# that would have it computed before or behind its turn.


_NAMESPACES = {"torch": torch, "torch.nn.functional": torch.nn.functional, "torch.sparse": torch.sparse}


@dataclasses.dataclass(eq=False)
class Node:
    """One recorded call: a statement, or an expression within one."""

    # "torch.randn", "torch.Tensor.to"; ".values" or "[0]" for an item of a tuple; empty if it has no name.
    path: str
    args: tuple[Any, ...]  # with nodes in the places of tensors; of an item the tuple and its place there
    kwargs: dict[str, Any]
    tensor: torch.Tensor | None = None  # what came out
    length: int = 0  # of the tuple that came out
    draws: bool = False  # moves a generator on
    writes: bool = False  # into a tensor that is there already

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition(".")[2]

    @property
    def is_item(self) -> bool:
        """Whether it is an item of a tuple."""
        return self.path.startswith((".", "["))

    def operands(self) -> Iterator[Node]:
        """Yield the nodes it reads."""
        yield from nodes_in([self.args, self.kwargs])


def nodes_in(value: Any) -> Iterator[Node]:
    """Yield the nodes in nested arguments."""
    found: list[Node] = []
    mapped(value, lambda leaf: found.append(leaf) if isinstance(leaf, Node) else None)
    yield from found


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Change the leaves of nested arguments."""
    if isinstance(value, Mapping):
        return {key: mapped(item, change) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(*(mapped(end, change) for end in (value.start, value.stop, value.step)))
    if isinstance(value, tuple):
        return tuple(mapped(item, change) for item in value)
    return [mapped(item, change) for item in value] if isinstance(value, list) else change(value)


class Drawing(TorchFunctionMode):  # type: ignore[misc]
    """Records the calls of torch made inside it. Tensors of another device are real ones on the CPU."""

    def __init__(self, device: str) -> None:
        """Record nothing yet; the device, ``"cpu"`` or the kind of an accelerator, is the one that is written, and may be missing here."""
        super().__init__()
        self.device = device
        self.nodes: list[Node] = []
        self.generators: list[torch.Generator] = []
        # By identity, with the tensor itself, so that no other takes its place.
        self._made: dict[int, tuple[torch.Tensor, Node]] = {}

    def __torch_function__(
        self, func: Any, _: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call, and record what makes, draws or changes a tensor."""
        kwargs = kwargs or {}
        node = Node(_path(func), self.known(args), self.known(kwargs))
        name = node.name
        node.draws = any(isinstance(value, torch.Generator) for value in kwargs.values())
        node.writes = (name.endswith("_") and not name.endswith("__")) or "__set" in name or "out" in kwargs
        moved = ["cpu"] if self.device != "cpu" and name == "cpu" else []
        args, kwargs = mapped((args, kwargs), lambda leaf: self._here(leaf, moved))
        result = func(*args, **kwargs)
        if any(result is value for value in args) and isinstance(result, torch.Tensor) and not node.writes:
            if not moved:
                return result  # It was converted to what it is already.
            result = result.clone()
        self._record(node, result)
        return result

    def known(self, value: Any) -> Any:
        """Return nested arguments with nodes in the places of tensors."""
        return mapped(value, self._node_of)

    def _node_of(self, value: Any) -> Any:
        if isinstance(value, torch.Generator) and not any(value is known for known in self.generators):
            self.generators.append(value)
        if not isinstance(value, torch.Tensor):
            return value
        return self._made.setdefault(id(value), (value, Node("", (), {}, value)))[1]

    def _here(self, value: Any, moved: list[str]) -> Any:
        """Return the CPU in place of any device where another one is written, and note it."""
        device = str(value).partition(":")[0] if isinstance(value, (str, torch.device)) else ""
        if self.device != "cpu" and device in ("cpu", self.device):
            moved.append(device)
            return "cpu"
        return value

    def _record(self, node: Node, result: Any) -> None:
        if isinstance(result, torch.Tensor):
            node.tensor = result
            self._made[id(result)] = (result, node)
        elif not node.writes and not (
            isinstance(result, (tuple, list))
            and any(isinstance(item, (torch.Tensor, tuple)) for item in result)
        ):
            return  # A number, a shape: it will be written as what it is.
        self.nodes.append(node)
        if isinstance(result, (tuple, list)):
            node.length = len(result)
            for number, item in enumerate(result):
                self._record(Node(_item_path(result, number), (node, number), {}), item)


def _path(func: Any) -> str:
    """Return the dotted path of a function or method of torch, empty if it is not found."""
    name = getattr(func, "__name__", "")
    if name in ("__get__", "__set__"):
        return f"torch.Tensor.{func.__self__.__name__}.{name}"
    if getattr(torch.Tensor, name, None) is func:
        return f"torch.Tensor.{name}"
    for path, namespace in _NAMESPACES.items():
        if getattr(namespace, name, None) is func:
            return f"{path}.{name}"
    # Some operators are known by the name of the method they wrap.
    for kind in torch.Tensor.__mro__:
        for known, value in vars(kind).items():
            if value is func:
                return f"torch.Tensor.{known}"
    # The functions of torch.linalg, torch.fft and torch.special are called linalg_norm and the like.
    family, _, rest = name.partition("_")
    return f"torch.{family}.{rest}" if getattr(getattr(torch, family, None), rest, None) is func else ""


def _item_path(result: Any, number: int) -> str:
    """Return how to get at an item of a result: by its name if it has one."""
    names = dir(type(result)) if type(result) not in (tuple, list) else ()
    found = (f".{name}" for name in names if getattr(result, name, None) is result[number])
    return next(found, f"[{number}]")


NOT_OURS = "a tensor is made by something that is no function of torch"
_BINARY = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "__truediv__": "/", "__floordiv__": "//", "remainder": "%",
    "pow": "**", "__pow__": "**", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "__eq__": "==", "ne": "!=",
    "__and__": "&", "__or__": "|", "__xor__": "^",
}  # fmt: skip
# The operand that torch is given first stands on the right.
_REFLECTED = {"__rsub__": "-", "__rpow__": "**", "__rdiv__": "/", "__rfloordiv__": "//"}
# What binds tighter needs no brackets within what binds less tightly.
_TIGHTNESS = {"+": 1, "-": 1, "*": 2, "/": 2, "//": 2, "%": 2}


class Source:
    """Writes what of a drawing is needed for some values as statements, each expression into the one that uses it."""

    def __init__(self, drawing: Drawing, wanted: Any) -> None:
        """Write the statements."""
        self._device = drawing.device
        self._generators = drawing.generators
        self._wanted = set(nodes_in(wanted))
        self._nodes = _needed(drawing.nodes, self._wanted)
        self._place = {node: number for number, node in enumerate(self._nodes)}
        self._users: dict[Node, list[Node]] = {node: [] for node in self._nodes}
        for node in self._nodes:
            for operand in dict.fromkeys(node.operands()):
                self._users.setdefault(operand, []).append(node)
        self._texts: dict[Node, str] = {}
        self._tightness: dict[Node, int] = {}  # expressions that need brackets to be part of others
        self._drawn: dict[Node, int] = {}  # expressions that contain a draw, and its place
        self._named = 0
        self.lines = [
            f"{self.text(generator)} = torch.Generator().manual_seed({generator.initial_seed()})"
            for generator in self._generators
            if any(value is generator for node in self._nodes for value in node.kwargs.values())
        ]
        for node in self._nodes:
            if node not in self._texts:
                self._write(node)

    def text(self, value: Any) -> str:
        """Return a value as source.

        Raises:
            InputSourceError: It is none of torch or the language.
        """
        if isinstance(value, Node):
            if value not in self._texts:
                raise InputSourceError(NOT_OURS)
            return self._texts[value]
        if isinstance(value, torch.Generator):
            number = next(n for n, known in enumerate(self._generators) if known is value)
            return f"g{number or ''}"
        if isinstance(value, slice):
            ends = (value.start, value.stop) if value.step is None else (value.start, value.stop, value.step)
            return f"slice({', '.join(map(self.text, ends))})"
        return self._collection(value) if isinstance(value, (Mapping, list, tuple)) else literal(value)

    def _collection(self, value: Any) -> str:
        if isinstance(value, Mapping):
            return f"{{{', '.join(f'{self.text(key)}: {self.text(item)}' for key, item in value.items())}}}"
        inner = ", ".join(map(self.text, value))
        if isinstance(value, list):
            return f"[{inner}]"
        if len(value) > 3 and all(item is value[0] for item in value):  # noqa: PLR2004
            return f"({self.text(value[0])},) * {len(value)}"
        return f"({inner},)" if len(value) == 1 else f"({inner})"

    def _write(self, node: Node) -> None:
        """Write a node's statement, or keep its expression for the one that will use it."""
        text = self._expression(node)
        items = [user for user in self._users[node] if user.is_item]
        if len(items) > 1:
            names = ["_"] * node.length
            for item in items:
                names[item.args[1]] = self._texts[item] = self._name()
            self.lines.append(f"{', '.join(names)} = {text}")
        elif self._fits_in_user(node):
            self._texts[node] = text
        elif _returns_itself(node) and self._texts[node.args[0]].isidentifier():
            self.lines.append(text)
            self._texts[node] = self._texts[node.args[0]]
        elif node.tensor is None or not (self._users[node] or node in self._wanted):
            self.lines.append(text if node.writes else f"{text}  # drawn, and not used")
        else:
            self._texts[node] = self._name()
            self.lines.append(f"{self._texts[node]} = {text}")

    def _name(self) -> str:
        self._named += 1
        return f"x{self._named - 1}"

    def _fits_in_user(self, node: Node) -> bool:
        """Tell whether a node may move to its only user: past nothing that draws if it draws, and past no write."""
        if node in self._wanted or node.writes or len(self._users[node]) != 1:
            return False
        place, user = self._place[node], self._place[self._users[node][0]]
        drawn = [place] if node.draws else [self._drawn[one] for one in node.operands() if one in self._drawn]
        if any(other.writes for other in self._nodes[place + 1 : user]):
            return False
        if drawn:
            if any(other.draws for other in self._nodes[drawn[0] + 1 : user]):
                return False
            self._drawn[node] = drawn[0]
        return True

    def _expression(self, node: Node) -> str:
        if not node.path:
            raise InputSourceError(NOT_OURS)
        if not node.is_item and not node.path.startswith("torch.Tensor."):
            return f"{node.path}({self._arguments(node.path, *_plain(node))})"
        operand = self._operand(node.args[0])
        attribute = f"{operand}.{node.path.split('.')[2]}" if node.name in ("__get__", "__set__") else ""
        match node.name:
            case "__get__":
                text = attribute
            case "__set__":
                text = f"{attribute} = {self.text(node.args[1])}"
            case "__getitem__":
                text = f"{operand}[{self._index(node.args[1])}]"
            case "__setitem__":
                text = f"{operand}[{self._index(node.args[1])}] = {self.text(node.args[2])}"
            case "detach" if self._is_alone(node.args[0]):
                text = self._texts[node.args[0]]
                if node.args[0] in self._tightness:
                    self._tightness[node] = self._tightness[node.args[0]]
            case _:
                text = f"{operand}{node.path}" if node.is_item else self._operation(node, operand)
        return text

    def _is_alone(self, node: Node) -> bool:
        """Tell whether nobody else sees a tensor, so that it need not be told apart from what becomes of it."""
        alone = len(self._users[node]) == 1 and node not in self._wanted
        return alone and node.tensor is not None and not node.tensor.requires_grad

    def _operation(self, node: Node, operand: str) -> str:
        """Return the source of an operator or a method."""
        name, args = node.name, node.args[1:]
        if len(args) == 1 and not node.kwargs and name in _BINARY | _REFLECTED:
            sides = [args[0], node.args[0]] if name in _REFLECTED else [node.args[0], args[0]]
            sign = (_BINARY | _REFLECTED)[name]
            own = self._tightness[node] = _TIGHTNESS.get(sign, 0)
            # Of equals the left one is computed first; signs that are no equals of any are set apart.
            left, right = (
                self._operand(side, own + (number or not own)) for number, side in enumerate(sides)
            )
            return f"{left} {sign} {right}"
        if name == "neg" and not args:
            self._tightness[node] = 0
            return f"-{operand}"
        if name == "to" and node.args[0].tensor is not None:
            # What it is already need not be said.
            known = [node.args[0].tensor.dtype, "cpu" if self._device == "cpu" else None]
            args = tuple(value for value in args if value not in known) or args
        return f"{operand}.{name}({self._arguments(node.path, args, node.kwargs)})"

    def _operand(self, value: Any, within: int = 9) -> str:
        """Return a value in brackets if it binds less tightly than what it is to be part of."""
        text = self.text(value)
        if isinstance(value, Node):
            loose = self._tightness.get(value, 9) < within and not text.isidentifier()
        else:
            loose = text.startswith("-")
        return f"({text})" if loose else text

    def _arguments(self, path: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        """Return arguments as a caller would write them, without those that have their default value."""
        defaults = {}
        if path.startswith("torch.nn.functional."):
            function = getattr(torch.nn.functional, path.rpartition(".")[2])
            with contextlib.suppress(ValueError):  # Those that are built in tell no signature.
                parameters = inspect.signature(function).parameters
                defaults = {name: parameter.default for name, parameter in parameters.items()}
        lines = [self.text(value) for value in args]
        lines += [
            f"{key}={self.text(value)}"
            for key, value in kwargs.items()
            if isinstance(value, Node) or key not in defaults or value != defaults[key]
        ]
        return ", ".join(lines)

    def _index(self, value: Any) -> str:
        """Return what stands between square brackets."""
        if isinstance(value, tuple) and value:
            text = (self.text(one) if isinstance(one, tuple) else self._index(one) for one in value)
            return ", ".join(text) + ("," if len(value) == 1 else "")
        if isinstance(value, slice):
            ends = ["" if end is None else self.text(end) for end in (value.start, value.stop, value.step)]
            return ":".join(ends if ends[2] else ends[:2])
        return "..." if value is Ellipsis else self.text(value)


def _needed(recorded: list[Node], wanted: set[Node]) -> list[Node]:
    """Return the nodes that matter, in order: a draw that nobody uses still moves its generator on."""
    live = set(wanted)
    needed: list[Node] = []
    for node in reversed(recorded):
        if node in live or node.writes or (node.draws and any(later.draws for later in needed)):
            live.update(node.operands())
            needed.append(node)
    return needed[::-1]


def _returns_itself(node: Node) -> bool:
    """Tell whether a call is a method that returns the tensor it has changed."""
    changed = node.args[0] if node.args else None
    return isinstance(changed, Node) and node.writes and node.tensor is changed.tensor is not None


def _plain(node: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return a function's arguments as short as one writes them by hand."""
    args, kwargs = node.args, node.kwargs
    if node.path in ("torch.randn", "torch.rand"):
        if len(args) == 1 and isinstance(args[0], tuple) and args[0]:
            args = args[0]
        if kwargs.get("dtype") == torch.get_default_dtype():
            kwargs = {key: value for key, value in kwargs.items() if key != "dtype"}
    return args, kwargs


def literal(value: Any) -> str:  # noqa: PLR0911 - one for each kind of value
    """Return the source of something that is neither a tensor nor a collection."""
    if value is None or isinstance(value, (torch.dtype, torch.layout, torch.memory_format, torch.device)):
        return f'torch.device("{value}")' if isinstance(value, torch.device) else str(value)
    if type(value) is str:
        return json.dumps(value) if value.isascii() and value.isprintable() else repr(value)
    if type(value) is float and not math.isfinite(value):
        return f'float("{value}")'
    if type(value) in (bool, int, float, bytes, range, type(...)):
        return repr(value)
    if type(value) is complex:
        return f"complex({literal(value.real)}, {literal(value.imag)})"
    kind = type(value)
    if dataclasses.is_dataclass(kind) and getattr(torch.nn, kind.__name__, None) is kind:
        # Options of an op, of which only what differs from the default is said.
        said = [
            f"{field.name}={literal(getattr(value, field.name))}"
            for field in dataclasses.fields(kind)
            if getattr(value, field.name) != field.default
        ]
        return f"torch.nn.{kind.__name__}({', '.join(said)})"
    if callable(value) and (name := torch.overrides.resolve_name(value)):
        return str(name)
    raise InputSourceError(f"a {type(value).__name__} has no source")
