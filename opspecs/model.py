"""What an op spec is: data about one operation, told without torch.

A spec names an operation by its dotted path and holds functions that draw inputs. Only a worker process
looks the path up and calls the functions, so specs load on a machine that has no torch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Literal, NamedTuple

from detmatrix.opspecs.inputs import Inputs

Tensor = Any  # of torch, without which specs load
Direction = Literal["forward", "backward"]
Device = Literal["cpu", "cuda"]
FORWARD: tuple[Direction, ...] = ("forward",)
BACKWARD: tuple[Direction, ...] = ("backward",)
BOTH = (*FORWARD, *BACKWARD)
CUDA: tuple[Device, ...] = ("cuda",)
HALF, FLOATS = ("float16", "bfloat16"), ("float32", "float64")


class MissingError(Exception):
    """The scanned torch lacks something a case needs; its cell is ``not_run`` with this as the reason."""


@dataclass(frozen=True)
class Call:
    """The arguments of one call of an op; reads like the call it stands for."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


def call(*args: Any, **kwargs: Any) -> Call:
    """Return the arguments of a call, written as the call itself would be."""
    return Call(args, kwargs)


@dataclass(frozen=True)
class Batch:
    """Where the arguments and the outputs of a call hold a batch: items of which none should know of another.

    ``inputs`` has the axis of each argument that holds one item for each of the batch, by its place or its keyword; all tensors
    in a list share it. Other arguments are the same for all items. ``outputs`` is the axis of whatever is returned.
    """

    inputs: Mapping[int | str, int]
    outputs: int = 0


@dataclass(frozen=True)
class Case:
    """One input generator of a spec.

    ``provokes`` says, in a few words, what in these inputs could expose a difference ("16384 additions
    into each slot"). An innocent case, whose inputs leave the op no choice of order, leaves it empty.
    ``directions`` and ``dtypes`` replace those of the spec where they are given. ``devices`` leaves out those
    that have no such kernel.
    """

    inputs: Callable[[Inputs], Call]
    provokes: str = ""
    _: KW_ONLY
    directions: tuple[Direction, ...] | None = None
    dtypes: tuple[str, ...] | None = None
    devices: tuple[Device, ...] = ("cpu", "cuda")
    # What this case is an instance of, in the words of PyTorch's documented conditions: {"accumulate": "True"}.
    # A few names are ours (tests/test_claims.py has them), for conditions the lists leave out: {"dims": "1-D"}.
    traits: Mapping[str, str] = field(default_factory=dict)
    # Why the result holds no information by definition ("the flag fills it with NaN"). An op that gives zeros, NaN or
    # its input back without such a reason was not really tried, and its cell is an error.
    constant: str = ""
    # What the op is to return with the flag on (backward: the gradient of its one leaf), bit for bit, from the call (and the
    # gradient of the output); None where nothing is known, as on another device. Of two results that are both the same
    # each time it tells which one is meant.
    reference: Callable[..., Any] | None = None
    # The reference is what the op gives in every mode, with the flag off too. A result that is another one is then told beside
    # what the mode shows; of a reference that only the flag promises it is an error.
    holds_always: bool = False
    # Which arguments hold a batch, so that it can be asked whether an item's bits depend on the others (scan --invariance).
    batch: Batch | None = None
    # Left out of a scan that names no op, unless it asks about batches: the case tells little of the flag.
    on_request: bool = False


def each(cases: Mapping[str, Case], **fields: Any) -> dict[str, Case]:
    """Return cases that have these fields in common."""
    return {name: replace(case, **fields) for name, case in cases.items()}


def with_dtypes(name: str, case: Case, dtypes: tuple[str, ...], device: Device) -> dict[str, Case]:
    """Return a case and ``NAME_dtypes``, its inputs in dtypes that one kind of device is asked about; it has no reference."""
    return {name: case, f"{name}_dtypes": replace(case, dtypes=dtypes, devices=(device,), reference=None)}


class Planned(NamedTuple):
    """One row of the matrix as data: what is to be run, before a mode and a process are chosen."""

    spec: str
    case: str
    direction: Direction
    dtype: str

    @property
    def id(self) -> str:
        """``spec:case:direction:dtype``, the id that patterns match and that reruns name."""
        return f"{self.spec}:{self.case}:{self.direction}:{self.dtype}"


@dataclass(frozen=True, kw_only=True)
class OpSpec:
    """One declared op: the name users know it by, what to call, and the cases to call it with.

    Names neither tests nor reports nor expected verdicts: what an op does is measured.
    """

    # The name PyTorch's documentation uses; unique in the catalog.
    name: str
    # Why equal inputs might give unequal bits here, in a sentence, with a link where one exists.
    why: str
    cases: Mapping[str, Case]
    # Dotted path of the callable, by default the name. The worker looks it up, and an older torch may lack it. A file of
    # your own may give a function of its own instead.
    op: str | Callable[..., Any] = ""
    directions: tuple[Direction, ...] = ("forward",)
    dtypes: tuple[str, ...] = ("float32",)
    # Dtypes added on CUDA only, for ops that take seconds in them on a CPU.
    cuda_dtypes: tuple[str, ...] = ()
    # The names by which PyTorch's lists speak of this op, if its own name is not the only one.
    documented: tuple[str, ...] = ()
    # The op writes into its first argument, which is therefore cloned before each execution.
    in_place: bool = False
    # Leaves that get no gradient are left out of the backward direction, unless that is all of them; else each must
    # get one.
    some_leaves: bool = False
    # A worker infers dtype and directions from the inputs.
    described: bool = False
    # The op in whose place its callable is another spelling: executions are compared with those of the op, and timed beside them.
    instead_of: OpSpec | None = None
    family: str = field(default="", compare=False)
    # Where the spec is from, as run files call it; what loads specs of another origin says so.
    source: str = field(default="documented", compare=False)
    # Where a spec of the user's is declared, so that an error in it can say so; empty of all others.
    file: str = field(default="", compare=False)
    # SHA-256 of that file as it was executed, so that a scan does not go on with another one.
    digest: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        """Call what the spec is called after, if nothing else is to be called."""
        if self.op == "":
            object.__setattr__(self, "op", self.name)

    @property
    def op_name(self) -> str:
        """The dotted path of the op, as reports show it."""
        if isinstance(self.op, str):
            return self.op.removeprefix("detmatrix.")
        # A partial or an instance that can be called has no name of its own.
        name = getattr(self.op, "__qualname__", None) or type(self.op).__qualname__
        # Runs were recorded before families had folders and packages one name, and join by this one.
        module = re.sub(r"^detmatrix\.opspecs\.(families(\.\w+)+\.)?", "opspecs.", self.op.__module__)
        return f"{module}.{name}"

    def rows(self, device: str) -> Iterator[Planned]:
        """Yield the rows of this spec on *device*, in declared order.

        Args:
            device: ``"cpu"``, ``"cuda"`` or another kind of accelerator, for which what is said of CUDA holds, or
                ``"any"`` for the rows of all devices.
        """
        device = device if device in {"cpu", "any"} else "cuda"
        for name, case in self.cases.items():
            if device not in (*case.devices, "any"):
                continue
            extra = self.cuda_dtypes if device != "cpu" and "cuda" in case.devices else ()
            dtypes = (*self.dtypes, *extra) if case.dtypes is None else case.dtypes
            # Each once, however often it is named: a row is planned once.
            for direction in dict.fromkeys(case.directions or self.directions):
                for dtype in dict.fromkeys(dtypes):
                    yield Planned(spec=self.name, case=name, direction=direction, dtype=dtype)


ITEMS = 48


def batched(
    inputs: Callable[[Inputs], Call],
    provokes: str,
    held: Mapping[int | str, int] | None = None,
    outputs: int = 0,
    directions: tuple[Direction, ...] = ("forward", "backward"),
) -> Case:
    """Return a case of a batch of ``ITEMS`` in the dtypes that models are served in; *held* has its axis in each argument with one."""
    return Case(
        inputs,
        provokes,
        directions=directions,
        dtypes=("float32", "bfloat16", "float16"),
        batch=Batch({0: 0} if held is None else held, outputs),
        on_request=True,
    )
