"""Ten roots of different kinds, each at a line that ends in ``# root`` and its kind."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

_count = itertools.count(1)
_library = torch.library.Library("detmatrix_planted", "DEF")


def _define(schema: str, function: Any) -> None:
    _library.define(schema)
    _library.impl(schema.partition("(")[0], function, "CPU")


def define(schema: str, function: Any) -> Any:
    """Return a new op; its name has a number behind it."""
    name, _, arguments = schema.partition("(")
    name = f"{name}_{next(_count)}"
    _define(f"{name}({arguments}", function)
    return getattr(planted, name)


def _in_place(x: Any) -> None:
    x.view(-1)[0] += next(_count)


def _in_places(xs: Any) -> None:
    _in_place(xs[-1])


# They differ by construction: each execution moves the count on.
_define("add_count(Tensor x) -> Tensor", lambda x: x + next(_count))
_define("add_count_(Tensor(a!) x) -> ()", _in_place)
_define("add_count_to_list_(Tensor(a!)[] xs) -> ()", _in_places)
_define("second(Tensor x) -> (Tensor, Tensor)", lambda x: (x * 2, x + next(_count)))
_define("several(Tensor x) -> Tensor[]", lambda x: [x.clone() for _ in range(next(_count) % 7)])
_define("permuted(Tensor x) -> Tensor", lambda x: x.roll(next(_count)))
_define("indices(Tensor x) -> Tensor", lambda x: x.argsort() + next(_count) % 2)
_define("sparse(Tensor x) -> Tensor", lambda x: (x + next(_count)).to_sparse())
_define("total(Tensor x) -> Tensor", lambda x: x.sum() + next(_count) * 2.0**-20)
planted = torch.ops.detmatrix_planted


class Function(torch.autograd.Function):
    """An op of the user's own whose backward differs."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:  # noqa: ARG004
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:  # noqa: ARG004
        return planted.add_count(gradient)  # root: a backward function of one's own


class Attention(nn.Module):
    """Something deep in a model."""

    def forward(self, x: Any) -> Any:
        return x + planted.total(x.detach())  # root: in a module


class Model(nn.Module):
    """Modules in modules."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.ModuleDict({"attn": Attention()}) for _ in range(2))

    def forward(self, x: Any) -> Any:
        return self.layers[1]["attn"](x)


def _recomputed(x: Any) -> Any:
    return x.sin() * planted.total(x.detach()).sign()  # root: under checkpointing


def step() -> None:
    """Call each once."""
    torch.manual_seed(0)
    x = torch.randn(4, 8, requires_grad=True)
    y = planted.add_count(x.detach())  # root: returned
    planted.add_count_(y)  # root: changed in place
    planted.add_count_to_list_([y, y.clone()])  # root: changed in a list
    planted.second(y.t())  # root: the second output
    planted.permuted(y)  # root: equal sums
    planted.indices(y)  # root: integers
    planted.sparse(y)  # root: sparse
    (torch.empty(9) + 1).sum()  # root: unwritten memory
    z = Function.apply(Model()(x))
    z.register_hook(lambda gradient: planted.add_count(gradient) * 1)  # root: a hook, whatever node called it
    z = checkpoint(_recomputed, z, use_reentrant=False)
    z.sum().backward()
    with torch.no_grad():
        x -= planted.add_count(x.grad)  # root: an update
