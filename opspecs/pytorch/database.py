"""PyTorch's own databases as sources of specs: what both have in common, and how a spec is found by name.

The entries live in ``torch.testing._internal`` of the scanned torch, so that only a worker can name them. A case is
called after the sample it is made of, counted from 0 in the order in which the database draws: ``sample_3`` as it is,
``enlarged_3`` grown by a recipe (``detmatrix.opspecs.pytorch.enlarge``) that travels with the row.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Any

from detmatrix.opspecs.inputs import Inputs
from detmatrix.opspecs.model import Call, Case, MissingError, OpSpec
from detmatrix.opspecs.pytorch import enlarge
from detmatrix.opspecs.pytorch.sources import ADAPTERS, PREFIXES


class DatabaseError(Exception):
    """The scanned torch's databases cannot be imported; the message says what to install there."""


@dataclass(frozen=True, eq=False)
class Sample:
    """One sample of an entry: what its op is called with."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    # Leading arguments that are no inputs, and so are never grown: a module and its parameters.
    fixed: int = 0

    @property
    def inputs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What may be grown."""
        return self.args[self.fixed :], dict(self.kwargs)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One entry of a database."""

    name: str  # of the spec: "opinfo:nn.functional.conv2d"
    path: str  # of the op, as a reader would call it
    op: Callable[..., Any]
    dtypes: Callable[[str], list[str]]  # device -> those it declares
    differentiable: Callable[[str, str], bool]  # by device and dtype
    # By device, dtype and whether gradients are wanted, in the database's order. Draws from the global generators.
    samples: Callable[[str, str, bool], Iterator[Sample]] = field(repr=False)
    why: str
    in_place: bool = False
    constant: str = ""  # why a result holds no information


def names_of(supported: Callable[[str], Any], device: str) -> list[str]:
    """Return the names of the dtypes that a database says of the kind of a device."""
    return sorted(str(dtype).removeprefix("torch.") for dtype in supported(device.partition(":")[0]))


def entries(source: str) -> Mapping[str, Entry]:
    """Return the entries of a source by the name of their spec, in the database's order.

    Raises:
        DatabaseError: They cannot be imported.
    """
    try:
        found: Mapping[str, Entry] = importlib.import_module(ADAPTERS[source]).ENTRIES
    except ModuleNotFoundError as error:
        raise DatabaseError(
            f"PyTorch's database of {'modules' if source == 'modules' else 'operators'} needs {error.name}; install "
            f"it beside the scanned torch (pip install {error.name})"
        ) from error
    except Exception as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise DatabaseError(
            f"torch.testing._internal of the scanned torch cannot be imported ({text})"
        ) from error
    return found


def source_of(name: str) -> str | None:
    """Return the source that a spec's name says it is from; ``None`` of those that are written by hand."""
    return next((source for prefix, source in PREFIXES.items() if name.startswith(prefix)), None)


def find(name: str, *, seed: int, enlargement: str = "", literal: bool = False) -> OpSpec:
    """Return the spec of an entry; any of its cases can be drawn.

    With *literal* the tensors of a sample are made of numbers, for whoever writes down how inputs are made; the sample must
    have been drawn before.

    Raises:
        DatabaseError: The databases cannot be imported.
        KeyError: They have no such entry.
    """
    entry = entries(source_of(name) or "")[name]
    return OpSpec(
        name=name,
        op=entry.op,
        why=entry.why,
        cases=_Cases(entry, seed, enlargement, literal),
        in_place=entry.in_place,
        some_leaves=True,
    )


@dataclass(frozen=True)
class _Cases(Mapping[str, Case]):
    """The cases of an entry, which are as many as it has samples."""

    entry: Entry
    seed: int
    enlargement: str
    literal: bool

    def __getitem__(self, name: str) -> Case:
        kind, _, number = name.partition("_")
        if kind not in ("sample", "enlarged") or not number.isdecimal():
            raise KeyError(name)
        enlargement = self.enlargement if kind == "enlarged" else ""
        return Case(lambda t: self._draw(t, int(number), enlargement), constant=self.entry.constant)

    def _draw(self, t: Inputs, number: int, enlargement: str) -> Call:
        """Draw the inputs of a case."""
        dtype, name = str(t.dtype).removeprefix("torch."), self.entry.name
        key = (name, t.device, dtype, self.seed)
        if len(_cache.get(key, ())) <= number:
            _cache.clear()
            options: dict[str, Any] = {
                "device": t.device,
                "dtype": dtype,
                "seed": self.seed,
                "on": t.draws_on,
            }
            _cache[key] = drawn(self.entry, most=number + 1, **options)
        if len(_cache[key]) <= number:
            raise MissingError(
                f"the database has no sample {number} of it for this device, only {len(_cache[key])}"
            )
        sample = _cache[key][number]
        if self.literal:
            args, kwargs = _in_numbers((sample.args, dict(sample.kwargs)))
            sample = Sample(args, kwargs, sample.fixed)
        if enlargement:
            t.smaller = t.draws_on != t.device
            if t.real:
                enlargement = enlarge.to_real_size(sample.inputs, name, enlargement)
                if not enlargement:
                    raise MissingError("its sample does not grow so in all that a GPU would get")
            sample = _grown(sample, enlargement, f"{self.seed}|{name}|{number}|{dtype}")
        return Call(*_own((sample.args, dict(sample.kwargs)), t, fresh=self.literal))

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def drawn(
    entry: Entry, *, device: str, dtype: str, seed: int, most: int | None = None, on: str = ""
) -> list[Sample]:
    """Return the first *most* samples of an entry (default: all), the same bits in every process, drawn *on* the device or another.

    Raises:
        MissingError: The entry declares no such dtype for the device.
    """
    from torch.testing._internal.common_utils import set_rng_seed  # noqa: PLC0415

    declared = entry.dtypes(device)
    if dtype not in declared:
        text = f"only {', '.join(declared)}" if declared else "no dtype at all"
        raise MissingError(f"the database declares no {dtype} for this device, {text}")
    # From torch's generators, numpy's and Python's own.
    key = f"{seed}|{entry.name}|{dtype}"
    set_rng_seed(int.from_bytes(hashlib.sha256(key.encode()).digest()[:4], "big"))
    with _equal_draws():
        grad = entry.differentiable(device, dtype)
        return list(islice(entry.samples(on or device, dtype, grad), most))


@contextlib.contextmanager
def _equal_draws() -> Iterator[None]:
    """Draw alike in every mode: memory that a sample never writes is filled, and no alert ends the drawing."""
    import warnings  # noqa: PLC0415

    import torch  # noqa: PLC0415

    enabled = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(enabled, warn_only=warn_only)


# The samples drawn last, by what they were drawn for: the rows of an entry stand one behind the other.
_cache: dict[tuple[Any, ...], list[Sample]] = {}


@lru_cache(maxsize=1)
def _grown(sample: Sample, enlargement: str, key: str) -> Sample:
    """Return a sample grown by a recipe; the one grown last is kept for the other direction."""
    with _equal_draws():
        args, kwargs = enlarge.grow(sample.inputs, enlargement, key)
    return Sample((*sample.args[: sample.fixed], *args), kwargs, sample.fixed)


def _in_numbers(tree: Any) -> Any:
    """Return a tree with equal tensors that are made of numbers."""
    import torch  # noqa: PLC0415

    def in_numbers(tensor: torch.Tensor) -> torch.Tensor:
        numbers = torch.tensor(tensor.tolist(), dtype=tensor.dtype).reshape(tensor.shape)
        return numbers.requires_grad_() if tensor.requires_grad else numbers

    return enlarge.mapped(tree, in_numbers)


def _own(tree: Any, t: Inputs, *, fresh: bool) -> Any:
    """Return a tree with copies of its tensors, those that require gradients as leaves; the sample stays as it was."""
    import torch  # noqa: PLC0415

    memo: dict[int, Any] = {}

    def own(tensor: torch.Tensor) -> torch.Tensor:
        copied = tensor.detach() if fresh else t.given(tensor.detach(), memo)
        return t.leaf(copied) if tensor.requires_grad else copied

    args, kwargs = enlarge.mapped(tree, own)
    if t.draws_on != t.device:
        args = tuple(t.device if _names(one, t.draws_on) else one for one in args)
        kwargs = {key: t.device if _names(one, t.draws_on) else one for key, one in kwargs.items()}
    return args, kwargs


def _names(value: Any, device: str) -> bool:
    return type(value).__name__ in ("str", "device") and str(value) == device
