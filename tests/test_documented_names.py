"""The entries of PyTorch's databases go by the names that the documented lists use."""

from __future__ import annotations

import pytest

from detmatrix.opspecs.pytorch.names import names_for
from detmatrix.scanner.claims.tables import documented_claims, documented_versions

# Of each documented op the entry that runs it, by the name of its spec.
ENTRIES = {
    **{
        f"torch.{name}": f"opinfo:{name}"
        for name in (
            *("bincount", "bmm", "cumsum", "empty", "empty_like", "empty_permuted", "empty_strided", "gather"),
            *("histc", "index_add", "index_select", "kthvalue", "median", "mm", "mv", "repeat_interleave"),
            "nn.functional.grid_sample",
        )
    },
    "torch.nn.functional.interpolate": "opinfo:nn.functional.interpolate.bilinear",
    "torch.Tensor.__getitem__": "opinfo:__getitem__",
    "torch.Tensor.index_copy": "opinfo:index_copy_",
    "torch.Tensor.index_put": "opinfo:index_put",
    "torch.Tensor.index_reduce": "opinfo:index_reduce.amax",
    "torch.Tensor.put_": "opinfo:put",
    "torch.Tensor.resize_": "opinfo:resize_",
    "torch.Tensor.scatter": "opinfo:scatter",
    "torch.Tensor.scatter_add_": "opinfo:scatter_add",
    "torch.Tensor.scatter_reduce": "opinfo:scatter_reduce.mean",
    "torch.nn.CTCLoss": "opinfo:nn.functional.ctc_loss",
    "torch.nn.NLLLoss": "opinfo:nn.functional.nll_loss",
    "torch.nn.Embedding": "opinfo:nn.functional.embedding",
    "torch.nn.EmbeddingBag": "opinfo:nn.functional.embedding_bag",
    "torch.nn.AdaptiveAvgPool2d": "opinfo:nn.functional.adaptive_avg_pool2d",
    "torch.nn.AdaptiveAvgPool3d": "opinfo:nn.functional.adaptive_avg_pool3d",
    "torch.nn.AdaptiveMaxPool2d": "opinfo:nn.functional.adaptive_max_pool2d",
    "torch.nn.AvgPool3d": "opinfo:nn.functional.avg_pool3d",
    "torch.nn.FractionalMaxPool2d": "opinfo:nn.functional.fractional_max_pool2d",
    "torch.nn.FractionalMaxPool3d": "opinfo:nn.functional.fractional_max_pool3d",
    "torch.nn.MaxPool2d": "opinfo:nn.functional.max_pool2d",
    "torch.nn.MaxPool3d": "opinfo:nn.functional.max_pool3d",
    **{f"torch.nn.MaxUnpool{n}d": f"opinfo:nn.functional.max_unpool{n}d.grad" for n in (1, 2, 3)},
    **{f"torch.nn.Conv{n}d": f"opinfo:nn.functional.conv{n}d" for n in (1, 2, 3)},
    **{f"torch.nn.ConvTranspose{n}d": f"opinfo:nn.functional.conv_transpose{n}d" for n in (1, 2, 3)},
    **{f"torch.nn.{kind}Pad{n}d": f"module:nn.{kind}Pad{n}d" for kind in ("Reflection", "Replication") for n in (1, 2, 3)},
}  # fmt: skip


@pytest.mark.parametrize("version", documented_versions())
def test_every_documented_op_is_named_by_an_entry(version: str) -> None:
    """Whatever a release's lists name, an entry of the databases goes by that name."""
    targets = {target for claim in documented_claims(version) for target in claim.targets}

    assert targets <= ENTRIES.keys()
    assert [name for name in targets if name not in names_for(ENTRIES[name])] == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("opinfo:index_add", ("torch.index_add", "torch.Tensor.index_add", "torch.Tensor.index_add_")),
        ("opinfo:index_add_", ("torch.Tensor.index_add_", "torch.Tensor.index_add", "torch.index_add")),
        ("opinfo:nn.functional.conv2d", ("torch.nn.functional.conv2d", "torch.nn.Conv2d")),
        ("opinfo:nn.functional.relu_", ("torch.nn.functional.relu_", "torch.nn.functional.relu")),
        ("opinfo:nn.functional.pad.reflect", ("torch.nn.functional.pad",)),
        ("opinfo:linalg.norm.subgradients_at_zero", ("torch.linalg.norm",)),
        ("opinfo:torch.ops.aten._safe_softmax.default", ("torch.ops.aten._safe_softmax",)),
        ("opinfo:new_empty", ("torch.Tensor.new_empty", "torch.Tensor.new_empty_")),
        ("opinfo:std.unbiased", ("torch.std", "torch.Tensor.std", "torch.Tensor.std_")),
        ("module:nn.LSTM", ("torch.nn.LSTM",)),
    ],
)
def test_names_of_an_entry(name: str, expected: tuple[str, ...]) -> None:
    """Name spaces, methods, in-place variants and variants of an entry each follow their rule."""
    assert names_for(name) == expected


def test_a_bullet_of_another_dimension_is_not_named() -> None:
    """An entry that may be of any dimension is no evidence about the module of one."""
    assert not any("Pad2d" in name for name in names_for("opinfo:nn.functional.pad.replicate"))
