"""Which functions of ``detmatrix.opspecs.instead`` may be written instead of which op, and in which of its cases that is tried."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from detmatrix.opspecs.model import OpSpec, each
from detmatrix.opspecs.registry import SPECS

# Spec -> function -> cases.
_INSTEAD: dict[str, dict[str, tuple[str, ...]]] = {
    "torch.index_add": {
        "segments_along_dim": ("collisions", "rows", "columns"),
        "accumulate_along_dim": ("collisions", "rows"),
    },
    "torch.Tensor.index_put_": {
        "segments_of_places": ("accumulate", "accumulate_rows"),
        "last_at_places": ("overwrite", "overwrite_rows"),
    },
    "torch.Tensor.put_": {
        "segments_of_places": ("accumulate",),
        "accumulate_at_places": ("accumulate",),
        "last_at_places": ("overwrite",),
    },
    "torch.Tensor.index_copy": {"last_along_dim": ("duplicates", "duplicate_rows", "duplicate_columns")},
    "torch.Tensor.scatter_add_": {"sums_of_elements": ("collisions", "rows", "columns")},
    "torch.Tensor.scatter": {
        "last_of_elements": ("duplicates", "duplicate_rows"),
        "segments_of_elements": ("reduce_add_rows", "reduce_multiply_rows"),
    },
    "torch.Tensor.scatter_reduce": {"segments_of_elements": ("sum", "mean", "prod", "prod_columns")},
    "torch.Tensor.index_reduce": {"segments_along_dim": ("mean_rows", "prod_rows", "amax_rows", "amin_rows")},
    "torch.gather": {"gather_by_indexing": ("collisions", "rows", "columns")},
    "torch.take_along_dim": {"take_along_dim_by_indexing": ("collisions", "rows")},
    "torch.index_select": {"select_by_indexing": ("collisions", "rows", "columns")},
    "torch.repeat_interleave": {"repeat_by_indexing": ("uneven", "uneven_rows")},
    "torch.take": {"take_by_indexing": ("collisions", "rows")},
    "torch.nn.Embedding": {"embedding_by_indexing": ("collisions_large", "few_indices")},
    "torch.nn.EmbeddingBag": {"maxima_of_bags": ("max", "max_two_rows")},
    "torch.nn.AvgPool3d": {"windows_by_unfolding": ("overlapping", "stride_1", "padded")},
    "torch.nn.MaxPool3d": {"maxima_by_unfolding": ("overlapping",)},
    **{
        f"torch.nn.Adaptive{kind}Pool{dims}d": {f"{function}_{dims}d": ("larger_output", "smaller_output")}
        for kind, function in (("Avg", "means_by_indexing"), ("Max", "maxima_by_indexing"))
        for dims in (1, 2, 3)
    },
    **{
        f"torch.nn.MaxUnpool{dims}d": {
            f"last_of_each_plane_{dims}d": ("duplicate_indices_dtypes", "max_pool_indices")
        }
        for dims in (1, 2, 3)
    },
    **{
        f"torch.nn.ReflectionPad{dims}d": {"reflected_by_cat": ("whole_side", "narrow")} for dims in (1, 2, 3)
    },
    **{f"torch.nn.ReplicationPad{dims}d": {"replicated_by_cat": ("wide",)} for dims in (1, 2, 3)},
    "torch.nn.functional.interpolate": {
        "resized_by_weights": (
            *("linear_large", "linear_large_align_corners"),
            *("bilinear", "bilinear_align_corners", "bilinear_antialias", "bilinear_antialias_down_large"),
            *("bicubic", "bicubic_antialias", "trilinear", "area_2d", "area_3d"),
        )
    },
    "torch.nn.functional.grid_sample": {"sampled_by_indexing": ("bilinear_batch",)},
    "torch.nn.NLLLoss": {"picked_losses": ("spatial_mean", "spatial_sum", "spatial_mean_weighted")},
    "torch.nn.CrossEntropyLoss": {"picked_entropies": ("spatial", "spatial_sum")},
    "torch.cumsum": {"cumsum_of_two_rows": ("flat",)},
    "torch.cumprod": {"cumprod_of_two_rows": ("long_flat",)},
    "torch.logcumsumexp": {"logcumsumexp_of_two_rows": ("flat",)},
    "torch.histc": {"counted_bins": ("few_bins", "many_bins")},
    "torch.bincount": {"weights_of_segments": ("weights",)},
    "torch.median": {"middle_of_sorted": ("tied_rows", "tied_columns")},
    "torch.nanmedian": {"middle_of_numbers": ("tied_rows", "tied_columns")},
}
_DIMS = re.compile(r"_[123]d$")


class Code(NamedTuple):
    """A function as it is written."""

    note: str
    lines: str  # with those of ours that it calls, behind the import of torch


def _spellings() -> tuple[OpSpec, ...]:
    known = {spec.name: spec for spec in SPECS}
    return tuple(
        _spelling(known[of], function, cases)
        for of, functions in _INSTEAD.items()
        for function, cases in functions.items()
    )


def _spelling(op: OpSpec, function: str, cases: tuple[str, ...]) -> OpSpec:
    # Of functions that are there for each number of dims the op's name has it.
    name = f"instead:{op.name}.{_DIMS.sub('', function)}"
    return OpSpec(
        name=name,
        op=f"detmatrix.opspecs.instead.{function}",
        why=f"Written instead of {op.name}. {code_of(function).note}",
        cases=each({case: op.cases[case] for case in cases}, dtypes=("float32",), reference=None, batch=None),
        directions=op.directions,
        documented=(name,),
        instead_of=op,
        family="instead",
        source="instead",
    )


@cache
def _module() -> tuple[str, dict[str, ast.FunctionDef]]:
    text = Path(__file__).with_name("instead.py").read_text(encoding="utf-8")
    functions = (node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef))
    return text, {node.name: node for node in functions}


def code_of(function: str) -> Code:
    """Return the text of a function, without annotations of its arguments and with the functions that it calls before it."""
    _, functions = _module()
    return Code(
        ast.get_docstring(functions[function]) or "", "\n\n".join(["import torch", *_definitions(function)])
    )


def _definitions(function: str) -> list[str]:
    text, functions = _module()
    node = functions[function]
    called = (one.id for one in ast.walk(node) if isinstance(one, ast.Name) and one.id in functions)
    body = node.body[ast.get_docstring(node) is not None :]
    for argument in (one for one in ast.walk(node.args) if isinstance(one, ast.arg)):
        argument.annotation = None
    head = f"def {function}({ast.unparse(node.args)}):"
    lines = text.splitlines()[body[0].lineno - 1 : node.end_lineno]
    own = "\n".join([head, *lines])
    return list(dict.fromkeys([*(one for name in called for one in _definitions(name)), own]))


SPELLINGS: tuple[OpSpec, ...] = _spellings()
