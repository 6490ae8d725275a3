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
from tests.conftest import table

CATALOG = [names_of(spec) for spec in SPECS]
ROWS = [(names_of(spec), planned.id) for spec in SPECS for planned in spec.rows("any")]
EVERYTHING = [*CATALOG, *recorded_names()]


@pytest.mark.parametrize(("typed", "expected"), table("names.txt", "catalog"))
def test_a_name_means_the_op_of_the_catalog(typed: str, expected: str) -> None:
    """Modules, functions, methods, with and without what stands before a dot, in any case."""
    assert [op.name for op in called(typed, CATALOG)] == [expected]


@pytest.mark.parametrize(("typed", "expected"), table("names.txt", "databases"))
def test_a_name_means_entries_of_the_databases(typed: str, expected: str) -> None:
    """Their names are recorded, so that no torch starts for it."""
    assert {op.name for op in called(typed, recorded_names())} == {*expected.split()}


def test_a_name_that_an_op_has_means_no_other() -> None:
    """What answers to a name is asked only where nothing has it."""
    assert [op.name for op in called("index_put", CATALOG)] == ["torch.Tensor.index_put", "torch.index_put"]
    assert [op.name for op in called("index_put_", CATALOG)] == ["torch.Tensor.index_put_"]
    assert {op.name for op in ops_of("conv2d:sample_0", EVERYTHING)} == {"opinfo:nn.functional.conv2d"}


@pytest.mark.parametrize(("pattern", "same"), table("names.txt", "rows"))
def test_names_begin_the_ids_of_rows(pattern: str, same: str) -> None:
    """What stands behind the colon is meant of the op that the name means."""
    assert rows_of(pattern, ROWS) == rows_of(same, ROWS) != set()


@pytest.mark.parametrize(("slip", "expected"), table("names.txt", "slips"))
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
