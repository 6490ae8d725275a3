"""By which names PyTorch's documented lists would speak of an entry of its own databases of ops and modules.

Names follow rules, so none of this needs a torch: the functions of a name space are documented under it, all else as
a function and as a method, in place or not. A variant of an entry (``nn.functional.interpolate.bilinear``) goes by the
names of the entry; what it is a variant of decides conditions, not names.
"""

from __future__ import annotations

import re

# Below these the next part of an entry's name is that of a function, and what follows it that of a variant.
_NAMESPACES = (
    "nn.functional", "signal.windows", "ops.aten", "linalg", "fft", "special", "masked", "sparse",
)  # fmt: skip
# Functions whose module does nothing else with its input, as the lists name it. `pad` stands for the padding modules
# of every dimension, of which an entry is one and its name does not say which.
_MODULES = {
    **{
        f"{function}{dims}d": f"{function.title().replace('_', '')}{dims}d"
        for dims in (1, 2, 3)
        for function in (
            *("adaptive_avg_pool", "adaptive_max_pool", "avg_pool", "conv", "conv_transpose", "max_pool"),
            "max_unpool",
        )
    },
    "binary_cross_entropy": "BCELoss",
    "cross_entropy": "CrossEntropyLoss",
    "ctc_loss": "CTCLoss",
    "embedding": "Embedding",
    "embedding_bag": "EmbeddingBag",
    "fractional_max_pool2d": "FractionalMaxPool2d",
    "fractional_max_pool3d": "FractionalMaxPool3d",
    "multi_margin_loss": "MultiMarginLoss",
    "multilabel_margin_loss": "MultiLabelMarginLoss",
    "nll_loss": "NLLLoss",
}
# Modules whose function goes by another name than theirs.
_FUNCTIONS = {
    "BCELoss": "binary_cross_entropy",
    "BCEWithLogitsLoss": "binary_cross_entropy_with_logits",
    "MultiheadAttention": "multi_head_attention_forward",
    "Upsample": "interpolate",
    "UpsamplingBilinear2d": "interpolate",
    "UpsamplingNearest2d": "interpolate",
}
# Methods of a tensor that are no functions of torch, and those of them that only write into it.
_METHODS_ONLY = {
    "bfloat16", "bool", "byte", "cdouble", "cfloat", "chalf", "char", "contiguous", "cpu", "double",
    "expand", "expand_as", "float", "half", "int", "item", "long", "mH", "mT", "H", "T", "new_empty",
    "new_empty_strided", "new_full", "new_ones", "new_zeros", "repeat", "reshape_as", "short",
    "sum_to_size", "to", "to_sparse", "unfold", "view", "view_as",
}  # fmt: skip
_IN_PLACE_ONLY = {"cauchy", "exponential", "geometric", "log_normal", "uniform"}


def names_for(name: str) -> tuple[str, ...]:
    """Return the dotted names the lists may call an entry's op by, the preferred one first; its own alone for a second gradient.

    The name is that of a spec made from an entry: ``"opinfo:index_add_"``, ``"opinfo:nn.functional.interpolate.bilinear"``,
    ``"module:nn.LSTM"``.

    Raises:
        ValueError: It is of neither database.
    """
    source, _, entry = name.partition(":")
    if source == "module":
        return (f"torch.{entry}",)
    if source == "gradgrad":
        return (name,)  # no list speaks of double backward
    if source != "opinfo":
        raise ValueError(f"{name}: names an entry of neither database")
    entry = entry.removeprefix("torch.")
    for namespace in _NAMESPACES:
        if entry.startswith(f"{namespace}."):
            return _function(namespace, entry.removeprefix(f"{namespace}.").split(".")[0])
    return _method(entry.split(".")[0])


def function_of(module: str) -> str:
    """Return the function in ``torch.nn.functional`` that a module calls, underscores aside: ``Conv2d``, ``batch_norm``."""
    if module in _FUNCTIONS:
        return _FUNCTIONS[module]
    if re.fullmatch(r"\w+Pad[123]d", module):
        return "pad"
    return {"BatchNorm": "batch_norm", "InstanceNorm": "instance_norm"}.get(module[:-2], module)


def _function(namespace: str, function: str) -> tuple[str, ...]:
    names = [f"torch.{namespace}.{function}"]
    plain = function.removesuffix("_")
    if plain != function:
        names.append(f"torch.{namespace}.{plain}")
    if namespace == "nn.functional" and plain in _MODULES:
        names.append(f"torch.nn.{_MODULES[plain]}")
    return tuple(names)


def _method(function: str) -> tuple[str, ...]:
    """Return the names of what is a function of torch, a method of a tensor, and one that writes into it."""
    if function.startswith("__"):
        return (f"torch.Tensor.{function}",)
    plain = function.removesuffix("_")
    in_place, method = f"torch.Tensor.{plain}_", f"torch.Tensor.{plain}"
    if plain in _IN_PLACE_ONLY:
        return (in_place,)
    if function in _METHODS_ONLY:
        return method, in_place
    if plain != function:
        return in_place, method, f"torch.{plain}"
    return f"torch.{plain}", method, in_place
