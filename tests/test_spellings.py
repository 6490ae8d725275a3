"""What may be written instead of an op gives its values, is timed beside it, and its code is shown as it is executed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
import torch

from detmatrix.opspecs.inputs import Inputs
from detmatrix.opspecs.model import Call, Case, OpSpec, call
from detmatrix.opspecs.pytorch import database
from detmatrix.opspecs.pytorch.enlarge import mapped
from detmatrix.opspecs.pytorch.names import names_for
from detmatrix.opspecs.spellings import SPELLINGS, code_of
from detmatrix.reports.explain import recorded_runs
from detmatrix.scanner.worker.cost import measure
from detmatrix.scanner.worker.execution import resolve
from detmatrix.scanner.worker.threads import thread_count
from tests.observed import observed

WHERE: dict[str, Any] = {"direction": "forward", "dtype": "float32", "device": "cpu", "seed": 0}
FIRST = {spec.name: planned for spec in SPELLINGS for planned in reversed([*spec.rows("cpu")])}


@pytest.mark.parametrize("spec", [one for one in SPELLINGS if one.name in FIRST], ids=lambda one: one.name)
def test_it_gives_the_values_of_the_op(spec: OpSpec) -> None:
    """Its first row, executed by what a scan executes it with."""
    row = FIRST[spec.name]
    seen = observed(spec, row.case, direction=row.direction, sample=True)

    assert (seen["outcome"], seen["instead"]["agrees"]) == ("ran", True)


def _with_a_nan(tensor: Any) -> Any:
    copied = tensor.detach().clone()
    if copied.is_floating_point() and copied.numel():
        copied[(-1,) * copied.dim()] = torch.nan
    return copied


CHANGES: tuple[Callable[[Any], Any], ...] = (lambda it: it.detach().clone(), _with_a_nan)


REFUSALS = (AssertionError, IndexError, RuntimeError, TypeError, ValueError)
# Refused less clearly: a tensor without dims, repeats that are an int.
_BY_ZERO = (
    *("index_add.accumulate_along_dim", "index_select.select_by_indexing", "cumsum.cumsum_of_two_rows"),
    *("cumprod.cumprod_of_two_rows", "logcumsumexp.logcumsumexp_of_two_rows"),
)
ROUGH: dict[str, tuple[type[Exception], ...]] = {
    "instead:torch.repeat_interleave.repeat_by_indexing": (AttributeError, ZeroDivisionError),
    **{f"instead:torch.{name}": (ZeroDivisionError,) for name in _BY_ZERO},
}


def _calls(of: OpSpec) -> Iterator[Call]:
    """Yield what the op is called with in all of its cases, and in the samples that PyTorch's database has of it."""
    for case in of.cases.values():
        dtype = (case.dtypes or of.dtypes)[0]
        yield case.inputs(Inputs("key", dtype=dtype, device="cpu", direction="forward"))
    for entry in database.entries("opinfo").values():
        if not entry.in_place and {of.name, of.op_name, *of.documented} & {*names_for(entry.name)}:
            dtype = "float32" if "float32" in entry.dtypes("cpu") else "int64"
            for sample in database.drawn(entry, device="cpu", dtype=dtype, seed=0, most=24):
                # Of an embedding the database names the table first.
                args = sample.args[1::-1] + sample.args[2:] if "embedding" in entry.name else sample.args
                yield call(*args, **sample.kwargs)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("spec", SPELLINGS, ids=lambda one: one.name)
def test_whatever_the_op_is_called_with_it_gives_its_values_or_refuses(spec: OpSpec) -> None:
    """Other dims, NaN, narrow indices, further arguments: what it does not do it refuses."""
    pytest.importorskip("expecttest")  # PyTorch's database needs it
    of = spec.instead_of
    assert of
    same = 0
    op, written = resolve(of.op_name), resolve(spec.op)
    calls = [*_calls(of)]
    assert len(calls) > len(of.cases)  # the database has the op
    for change, it in product(CHANGES, calls):
        args, named = mapped((it.args, dict(it.kwargs)), change)
        with thread_count(1):  # several race to be the last at a place
            try:
                found = written(*copy.deepcopy(args), **named)
            except REFUSALS + ROUGH.get(spec.name, ()):
                continue
            expected = op(*copy.deepcopy(args), **named)
        found, expected = (one if torch.is_tensor(one) else one[0] for one in (found, expected))
        torch.testing.assert_close(found, expected, equal_nan=True, msg=lambda text, it=it: f"{it}: {text}")
        same += 1

    assert same


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("batch", [(), (2,)], ids=["unbatched", "batched"])
@pytest.mark.parametrize("kind", ["AdaptiveAvgPool", "AdaptiveMaxPool", "MaxUnpool"])
def test_inputs_without_a_batch_are_those_of_the_op(kind: str, batch: tuple[int, ...], dims: int) -> None:
    """By an int the op's module alone tells how many dims are pooled; an input of another number of dims is refused."""
    spec = next(
        one for one in SPELLINGS if one.instead_of and one.instead_of.name == f"torch.nn.{kind}{dims}d"
    )
    assert spec.instead_of
    op, written = resolve(spec.instead_of.op_name), resolve(spec.op)
    image = torch.rand(*batch, 2, *(6,) * dims)
    given: tuple[Any, ...] = (image, 4)
    if kind == "MaxUnpool":
        pool = getattr(torch.nn.functional, f"max_pool{dims}d")
        given = (*pool(image, 2, return_indices=True), 2)

    torch.testing.assert_close(written(*given), op(*given))
    with pytest.raises(AssertionError):
        written(*(one[None, None, None] if torch.is_tensor(one) else one for one in given))


def test_other_values_are_told() -> None:
    """What differs from the op is no other spelling of it; it is timed beside the op all the same."""
    op = OpSpec(name="torch.neg", why="", cases={"only": Case(lambda t: call(t.normal(64)))})
    wrong = OpSpec(name="planted.wrong", op=lambda x: -x + (x > 0), why="", cases=op.cases, instead_of=op)
    seen = observed(wrong, sample=True)
    timed = measure(wrong, "only", **WHERE, max_seconds=0.02)

    assert seen["instead"]["agrees"] is False
    assert seen["instead"]["elements"] > 1
    assert timed["op"]["median"] > 0
    assert "op" not in measure(op, "only", **WHERE, max_seconds=0.02)


def test_the_code_shown_runs_by_itself() -> None:
    """What is shown of a function is its text with all that it calls: it gives the same where torch can be imported."""
    spec = next(one for one in SPELLINGS if one.name.endswith("last_of_each_plane"))
    function, defined = resolve(spec.op), dict[str, Any]()
    exec(code_of("last_of_each_plane_1d").lines, defined)
    values, places = torch.rand(2, 1, 8), torch.tensor([[[1, 2, 2, 2, 0, 5, 5, 1]]] * 2)

    assert torch.equal(defined["last_of_each_plane_1d"](values, places, 2), function(values, places, 2))


def test_those_shown_are_deterministic_on_a_simulated_gpu() -> None:
    """A recorded run on a simulated GPU has each, with the values of the op and the same bits in every schedule."""
    rows = [row for one in recorded_runs() if one.simulated for row in one.rows]
    agree = {row.row.spec for row in rows if all(it.instead.agrees for it in row.observations if it.instead)}

    assert agree == {spec.name for spec in SPELLINGS}
    assert {row.finding for row in rows} <= {"deterministic", "mode_dependent"}
