"""Which layer a case of a convolution is: its generator is called with shapes in the place of tensors, so that it draws nothing.

What a layer is described by (groups, stride, dilation, which tensor's gradient is asked for) is thereby what the op is called
with on CUDA, and no second table of it.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple, TypeVar, cast

from detmatrix.opspecs.inputs import Inputs
from detmatrix.scanner.cudnn.problems import Operation, Problem
from detmatrix.scanner.observations.records import Row

T = TypeVar("T")
_OP = re.compile(r"(?:^|\.)conv(?P<transposed>_?transpose)?[123]d$", re.IGNORECASE)
# By the place of the argument that is a leaf; that of the bias is a sum over positions, which no engine computes.
_GRADIENTS: dict[int, Operation] = {0: "data gradient", 1: "weight gradient"}


class CaseLayer(NamedTuple):
    """A case of a convolution as cuDNN is asked about it."""

    problem: Problem
    layout: str
    gradients: tuple[Operation, ...]  # that the backward direction computes


class _Shape(NamedTuple):
    """Stands for a tensor."""

    dimensions: tuple[int, ...]
    layout: str = "contiguous"
    leaf: bool = False


class _Shapes:
    """Stands for the ``Inputs`` of a case on CUDA, as far as convolutions draw from them."""

    def size(self, *, cpu: object, cuda: T, simulated: object = None) -> T:  # noqa: ARG002 - cases name them
        return cuda

    def normal(self, *shape: int) -> _Shape:
        return _Shape(shape)

    def channels_last(self, tensor: _Shape) -> _Shape:
        return tensor._replace(layout="channels_last")

    def leaf(self, tensor: _Shape) -> _Shape:
        return tensor._replace(leaf=True)


def is_convolution(row: Row) -> bool:
    """Tell whether the op of a row is one of PyTorch's convolutions."""
    return _OP.search(row.op) is not None


def layer_of(row: Row) -> CaseLayer | None:
    """Return the layer that the case of a convolution is; ``None`` of a case that the catalog does not have.

    Of other cases, as those of PyTorch's databases, a row holds no stride, dilation or groups.
    """
    return _layer(row.spec, row.case, row.op) if row.source == "documented" else None


@cache
def _layer(name: str, case: str, op: str) -> CaseLayer | None:
    # Reports load the catalog only for rows that ask for it.
    from detmatrix.scanner.cases.catalog import load_catalog  # noqa: PLC0415

    spec = next((one for one in load_catalog(()) if (one.name, one.op_name) == (name, op)), None)
    found = _OP.search(op)
    if spec is None or found is None or case not in spec.cases:
        return None
    called = spec.cases[case].inputs(cast("Inputs", _Shapes()))
    data, weight = called.args[:2]
    batch, channels, *size = data.dimensions
    outer, inner, kernel, *_ = weight.dimensions
    options = {word: called.kwargs.get(word, 1) for word in ("stride", "dilation", "groups")}
    transposed = found["transposed"] is not None
    return CaseLayer(
        Problem(
            name,
            case,
            batch,
            channels,
            tuple(size),
            inner * options["groups"] if transposed else outer,
            kernel,
            padding=called.kwargs.get("padding", 0),
            transposed=transposed,
            **options,
        ),
        "channels_last" if "channels_last" in {data.layout, weight.layout} else "contiguous",
        tuple(_GRADIENTS[place] for place, one in enumerate(called.args) if one.leaf and place in _GRADIENTS),
    )
