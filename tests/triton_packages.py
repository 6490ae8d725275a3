# ruff: noqa: ANN001, ANN002, ANN202, PLW0108
# mypy: ignore-errors
"""Triton kernels as packages bring them, as a user's file of specs: nothing of theirs is kept here."""

from __future__ import annotations

from fla.modules.layernorm import layer_norm as fla_layer_norm
from fla.ops.attn import parallel_attn
from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction
from liger_kernel.ops.experimental.embedding import LigerEmbeddingFunction
from liger_kernel.ops.group_norm import LigerGroupNormFunction
from liger_kernel.ops.layer_norm import LigerLayerNormFunction
from liger_kernel.ops.rms_norm import LigerRMSNormFunction
from liger_kernel.ops.softmax import LigerSoftmaxFunction
from liger_kernel.ops.swiglu import LigerSiLUMulFunction

from detmatrix.opspecs.model import Case, OpSpec, call


def _spec(name, op, inputs):
    return OpSpec(
        name=name,
        op=op,
        why="As the package has it.",
        directions=("backward",),
        cases={"all": Case(inputs=inputs)},
    )


def _liger(function, *more, copies=False):
    """Return a function of a package's class; some write into what they were given."""
    return lambda *tensors: function.apply(*(one.clone() if copies else one for one in tensors), *more)


def _norm(t, *shape):
    return call(t.leaf(t.normal(*shape)), t.leaf(t.normal(shape[1])), t.leaf(t.normal(shape[1])))


def _attended(t):
    return call(*(t.leaf(t.normal(1, 32, 1, 16)) for _ in range(3)))


SPECS = (
    _spec("liger.layer_norm", _liger(LigerLayerNormFunction, 1e-5), lambda t: _norm(t, 32, 64)),
    _spec(
        "liger.rms_norm",
        _liger(LigerRMSNormFunction, 1e-6, 0.0, "llama", False),
        lambda t: call(t.leaf(t.normal(32, 64)), t.leaf(t.normal(64))),
    ),
    _spec("liger.group_norm", _liger(LigerGroupNormFunction, 8, 4, 1e-5), lambda t: _norm(t, 6, 8, 32)),
    _spec("liger.softmax", _liger(LigerSoftmaxFunction), lambda t: call(t.leaf(t.normal(32, 64)))),
    _spec(
        "liger.swiglu",
        _liger(LigerSiLUMulFunction, copies=True),
        lambda t: call(t.leaf(t.normal(32, 64)), t.leaf(t.normal(32, 64))),
    ),
    _spec(
        "liger.cross_entropy",
        lambda x, target: LigerCrossEntropyFunction.apply(x.clone(), target, None)[0],
        lambda t: call(t.leaf(t.normal(32, 64)), t.index(32, high=64)),
    ),
    _spec(
        "liger.embedding",
        _liger(LigerEmbeddingFunction),
        lambda t: call(t.leaf(t.normal(4, 32)), t.index(256, high=4)),
    ),
    _spec(
        "liger.rms_norm_in_place",
        _liger(LigerRMSNormFunction, 1e-6),
        lambda t: call(t.leaf(t.normal(32, 64)), t.leaf(t.normal(64))),
    ),
    _spec("fla.layer_norm", lambda *xwb: fla_layer_norm(*xwb), lambda t: _norm(t, 32, 64)),
    _spec("fla.parallel_attn", lambda *qkv: parallel_attn(*qkv), _attended),
)
