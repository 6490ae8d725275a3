"""Names as users type them mean the ops they know by them."""

from __future__ import annotations

import json

import pytest
import torch

from detmatrix.opspecs.patterns import called, near, ops_of, recorded_names, rows_of
from detmatrix.opspecs.pytorch.names import function_of
from detmatrix.opspecs.registry import SPECS, names_of
from detmatrix.scanner.cases.plan import DTYPES
from detmatrix.scanner.modes import MODE_TABLE
from tests.commands import Command

CATALOG = [names_of(spec) for spec in SPECS]
ROWS = [(names_of(spec), planned.id) for spec in SPECS for planned in spec.rows("any")]
EVERYTHING = [*CATALOG, *recorded_names()]


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("conv2d", "torch.nn.Conv2d"),
        ("Conv2d", "torch.nn.Conv2d"),
        ("nn.Conv2d", "torch.nn.Conv2d"),
        ("F.conv2d", "torch.nn.Conv2d"),
        ("functional.conv2d", "torch.nn.Conv2d"),
        ("torch.nn.functional.conv2d", "torch.nn.Conv2d"),
        ("CONV2D", "torch.nn.Conv2d"),
        ("cross_entropy", "torch.nn.CrossEntropyLoss"),
        ("CrossEntropy", "torch.nn.CrossEntropyLoss"),
        ("lstm", "torch.nn.LSTM"),
        ("batch_norm", "torch.nn.BatchNorm2d"),
        ("Tensor.put", "torch.Tensor.put"),
        ("resize", "torch.Tensor.resize_"),
        ("getitem", "torch.Tensor.__getitem__"),
        ("aten::index_put_", "torch.Tensor.index_put_"),
        ("aten.index_put_.default", "torch.Tensor.index_put_"),
        ("torch.ops.aten.cumsum.dim_int", "torch.cumsum"),
    ],
)
def test_a_name_means_the_op_of_the_catalog(typed: str, expected: str) -> None:
    """Modules, functions, methods, with and without what stands before a dot, in any case."""
    assert [op.name for op in called(typed, CATALOG)] == [expected]


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("Dropout", {"opinfo:nn.functional.dropout", "opinfo:nn.functional.dropout_"}),
        ("torch.nn.Dropout", {"opinfo:nn.functional.dropout", "opinfo:nn.functional.dropout_"}),
        ("nn.Linear", {"module:nn.Linear"}),
        ("bce_loss", {"module:nn.BCELoss", "opinfo:nn.functional.binary_cross_entropy"}),
        ("torch.nn.functional.gelu", {"module:nn.GELU", "opinfo:nn.functional.gelu"}),
        ("torch.linalg.lstsq", {"opinfo:linalg.lstsq", "opinfo:linalg.lstsq.grad_oriented"}),
        ("add_", {"opinfo:add_"}),
        ("gradgrad:nn.functional.gelu", {"gradgrad:nn.functional.gelu"}),
    ],
)
def test_a_name_means_entries_of_the_databases(typed: str, expected: set[str]) -> None:
    """Their names are recorded, so that no torch starts for it."""
    assert {op.name for op in called(typed, recorded_names())} == expected


def test_a_name_that_an_op_has_means_no_other() -> None:
    """What answers to a name is asked only where nothing has it."""
    assert [op.name for op in called("index_put", CATALOG)] == ["torch.Tensor.index_put", "torch.index_put"]
    assert [op.name for op in called("index_put_", CATALOG)] == ["torch.Tensor.index_put_"]
    assert {op.name for op in ops_of("conv2d:sample_0", EVERYTHING)} == {"opinfo:nn.functional.conv2d"}


@pytest.mark.parametrize(
    ("pattern", "same"),
    [
        ("conv2d:weight_grad", "torch.nn.Conv2d:weight_grad"),
        ("take:*:backward", "torch.take:*:backward"),
        ("F.embedding_bag:*:backward:float32", "torch.nn.EmbeddingBag:*:backward:float32"),
        ("aten::take:*:backward", "torch.take:*:backward"),
    ],
)
def test_names_begin_the_ids_of_rows(pattern: str, same: str) -> None:
    """What stands behind the colon is meant of the op that the name means."""
    assert rows_of(pattern, ROWS) == rows_of(same, ROWS) != set()


@pytest.mark.parametrize(
    ("slip", "expected"),
    [
        ("Dropot", "dropout"),
        ("torch.nn.Lineer", "torch.nn.Linear"),
        ("torch.nn.functional.conv2", "torch.nn.functional.conv2d"),
        ("crossentropi", "cross_entropy"),
        ("cumsum:flet", "torch.cumsum:flat"),
        ("sdpa", "scaled_dot_product_attention"),
        ("upsample", "upsample_nearest"),
        ("aten::upsample_bilinear2d", "upsample_bilinear"),
    ],
)
def test_a_slip_names_what_is_meant_once(slip: str, expected: str) -> None:
    """The nearest name comes first, and names of one op do not crowd out others."""
    found = near(slip, ROWS, recorded_names())

    assert found[0] == expected
    assert len({name.lower().rpartition(".")[2] for name in found}) == len(found)


@pytest.mark.parametrize("typed", ["", "mystery", "aten::zzzz"])
def test_a_name_that_is_like_none_suggests_none(typed: str) -> None:
    """What is farther away than a slip is nothing that was meant."""
    assert called(typed, EVERYTHING) == []
    assert near(typed, ROWS, recorded_names()) == ()


def test_modules_call_functions_that_exist() -> None:
    """The rule that leads from a module to its function leads to one of this torch, or nowhere."""
    functional = torch.nn.functional
    modules = [op.name.rpartition(".")[2] for op in recorded_names() if op.family == "modules"]
    irregular = {module: function for module in modules if (function := function_of(module)) != module}

    assert len(irregular) > 20
    assert {module for module, function in irregular.items() if not hasattr(functional, function)} == set()


# ``detmatrix list``: every row once, by pattern, as a table and as JSON.


def test_every_mode_is_listed_and_the_help_leads_there(detmatrix: Command) -> None:
    """Goldens show what is said of each."""
    listed = json.loads(detmatrix("list", "--modes", "--format", "json").stdout)

    assert [one["mode"] for one in listed] == [mode for mode, it in MODE_TABLE.items() if not it.retired]
    assert "detmatrix list --modes" in " ".join(detmatrix("scan", "--help").stdout.split())


# Which dtypes of the databases' entries a scan takes, and what it says of those that an entry lacks.


def test_dtypes_are_those_of_torch() -> None:
    """The main process knows them without a torch."""
    known = {
        str(value).removeprefix("torch.") for value in vars(torch).values() if isinstance(value, torch.dtype)
    }
    assert known <= set(DTYPES)
