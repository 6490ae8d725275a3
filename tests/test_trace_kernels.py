"""The functions behind an overload are those of dense tensors, as torch's own declarations name them."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("name", "device", "functions"),
    [
        ("aten::bmm", "cuda:0", ["at::native::structured_bmm_out_cuda"]),
        ("aten::bmm", "cpu", ["at::native::structured_bmm_out_cpu"]),
        # The device has functions for other layouts alone; those of dense tensors are made of other overloads.
        ("aten::sum", "cuda:0", ["at::native::sum"]),
        # Declared for other layouts alone: the dense one is generated from a formula, and has no function there.
        ("aten::add.Tensor", "cuda:0", []),
        ("aten::bincount", "cuda:0", ["at::native::_bincount_cuda"]),
        # No dense tensor gets there.
        ("aten::_coalesce", "cuda:0", ["at::native::_coalesce_sparse_cuda"]),
        ("aten::_nnz", "cuda:0", ["at::native::_nnz_sparse", "at::native::_nnz_sparse_csr"]),
    ],
)
def test_functions_of_other_layouts_are_left_out(name: str, device: str, functions: list[str]) -> None:
    """What only sparse, quantized or nested tensors reach is told of the ops that are theirs alone."""
    pytest.importorskip("torch")
    from scanner.worker.dispatcher.native_functions import kernels  # noqa: PLC0415 - needs torch

    (found,) = kernels([name], device)

    assert found["functions"] == functions
