"""What may be written instead of an op gives its values, is timed beside it, and its code is shown as it is executed."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest

from detmatrix.opspecs.model import Call, Case, OpSpec, call
from detmatrix.opspecs.spellings import SPELLINGS, code_of
from detmatrix.reports.explain import recorded_runs

torch = pytest.importorskip("torch")

from detmatrix.scanner.worker.cost import measure  # noqa: E402 - it needs torch
from detmatrix.scanner.worker.execution import resolve  # noqa: E402
from tests.observed import observed  # noqa: E402

WHERE: dict[str, Any] = {"direction": "forward", "dtype": "float32", "device": "cpu", "seed": 0}
FIRST = {spec.name: planned for spec in SPELLINGS for planned in reversed([*spec.rows("cpu")])}


@pytest.mark.parametrize("spec", [one for one in SPELLINGS if one.name in FIRST], ids=lambda one: one.name)
def test_it_gives_the_values_of_the_op(spec: OpSpec) -> None:
    """Its first row, executed by what a scan executes it with."""
    row = FIRST[spec.name]
    seen = observed(spec, row.case, direction=row.direction, sample=True)

    assert (seen["outcome"], seen["instead"]["agrees"]) == ("ran", True)


X = torch.tensor([[1.0, float("nan"), 3.0, 3.0], [4.0, 0.5, 7.0, 6.0], [-1.0, 2.0, float("nan"), 9.0]])
NUMBERS, PLACES = X.nan_to_num(5.0), torch.tensor([[0, 2, 0], [1, 1, 0]])
SOURCE, SHORT = torch.arange(12.0).view(3, 4) + 1, torch.tensor([2, 0, 2, 0])
IMAGE, CLASSES = torch.arange(48.0).view(1, 2, 4, 6).sin(), torch.tensor([0, 3, 1])
BAGS, GRID = torch.tensor([[0, 2], [1, 1]]), torch.linspace(-1.2, 1.2, 18).view(1, 3, 3, 2)
VOLUME, RANGE = torch.arange(64.0).view(1, 4, 4, 4).cos(), torch.tensor([-1.0, 0.0, 1.0, 2.0, 2.5, 9.0])
WEIGHT = torch.tensor([1.0, 2.0, 0.5, 3.0])
DIMS, ADDED, REDUCED = (0, -1), [..., True], ("mean", "prod", "amax", "amin")


def every(*places: Sequence[Any], **named: Sequence[Any]) -> list[Call]:
    """Return a call with each choice of arguments; a named one that is ``...`` is left out."""
    return [
        call(*chosen[: len(places)], **{name: one for name, one in zip(named, chosen[len(places) :], strict=True) if one is not ...})
        for chosen in product(*places, *named.values())
    ]  # fmt: skip


# What lies beside the cases that are executed, for every spelling of the op; each function is there for one number of dims.
BESIDE: dict[str, list[Call]] = {
    "torch.index_add": every([X, NUMBERS], [-1], [SHORT], [SOURCE], alpha=[..., 2])
    + every([NUMBERS.long()], [0, -2], [SHORT[:3]], [SOURCE.long()]),
    "torch.Tensor.index_put_": [
        call(X, (torch.tensor(index),), source, accumulate=add)
        for add in (False, True)
        for index, source in (([-1, 2, 0], SOURCE), ([2, 2], SOURCE[:1]), ([True, False, True], SOURCE[:2]))
    ]
    + [call(X, (PLACES[0], PLACES[1]), SOURCE[0, :3])]
    + every([X], [(PLACES[0],)], [SOURCE], accumulate=ADDED),
    "torch.Tensor.put_": every([X, X[0]], [PLACES, PLACES - 1], [SOURCE[:2, :3]], accumulate=ADDED)
    + every([X[0]], [PLACES[0]], [SOURCE[0, :3]], accumulate=ADDED),
    "torch.Tensor.index_copy": [call(X, dim, SHORT[: X.shape[dim]], SOURCE) for dim in (-1, -2)],
    "torch.Tensor.scatter_add_": every([X], DIMS, [PLACES], [SOURCE]),
    "torch.Tensor.scatter": [
        *every([X], DIMS, [PLACES], [SOURCE], reduce=[..., "add"]),
        call(X, 0, PLACES, 2.0),
    ],
    "torch.Tensor.scatter_reduce": every(
        [X, NUMBERS], DIMS, [PLACES], [SOURCE], reduce=("sum", *REDUCED), include_self=[..., False]
    ),
    "torch.Tensor.index_reduce": [
        one
        for dim in DIMS
        for one in every(
            [X, NUMBERS], [dim], [SHORT[: X.shape[dim]]], [SOURCE], REDUCED, include_self=[..., False]
        )
    ],
    "torch.gather": every([X], DIMS, [PLACES], sparse_grad=ADDED),
    "torch.take_along_dim": [
        *every([X], [PLACES[:1]], DIMS),
        call(X, PLACES[:, :1], 0),
        call(X, PLACES[:1, :1], -1),
    ],
    "torch.index_select": every([X], DIMS, [SHORT, SHORT[0]]),
    "torch.repeat_interleave": every([X], [SHORT, SHORT[:3], SHORT[:1]], dim=[..., 0, 1, -1]),
    "torch.take": every([X], [PLACES, PLACES - 3]),
    "torch.nn.Embedding": [call(BAGS, X), call(BAGS, X, padding_idx=0), call(BAGS, NUMBERS, max_norm=1.0)],
    "torch.nn.EmbeddingBag": [
        *every([BAGS], [X, NUMBERS], mode=("max", "sum", "mean")),
        call(BAGS, NUMBERS, mode="max", padding_idx=0),
    ],
    "torch.nn.AvgPool3d": [
        *every([VOLUME], [2], stride=[2], padding=[1], count_include_pad=(True, False)),
        *every([VOLUME[None], VOLUME], [2], stride=[1]),
        call(VOLUME, 3, stride=2, ceil_mode=True),
    ],
    "torch.nn.MaxPool3d": [call(VOLUME, 2, stride=1), call(VOLUME, 3, stride=2, ceil_mode=True)],
    **{f"torch.nn.Adaptive{kind}Pool2d": [call(X[None, None], 2)] for kind in ("Avg", "Max")},
    "torch.nn.MaxUnpool2d": every([IMAGE], [torch.arange(48).view(1, 2, 4, 6) % 24], [2], stride=[..., 3]),
    "torch.nn.ReflectionPad2d": every([IMAGE], [(1, 2, 3, 0)], mode=("reflect", "constant")),
    "torch.nn.ReplicationPad2d": every([IMAGE], [(1, 2, 3, 0)], mode=("replicate", "circular")),
    "torch.nn.functional.interpolate": every(
        [IMAGE, IMAGE.double(), X[None, None]],
        scale_factor=(0.7, 2, 2.5),
        mode=("bilinear", "bicubic", "area", "nearest"),
    ),
    "torch.nn.functional.grid_sample": [
        call(image, GRID, **more)
        for image in (IMAGE, X[None, None])
        for more in ({}, {"mode": "nearest"}, {"padding_mode": "border"}, {"align_corners": True})
    ],
    **{
        f"torch.nn.{name}Loss": [
            *every([X, NUMBERS], [CLASSES], [None, WEIGHT], reduction=("none", "mean", "sum")),
            call(NUMBERS, CLASSES, ignore_index=3),
            *([call(NUMBERS, CLASSES, label_smoothing=0.1)] * (name == "CrossEntropy")),
        ]
        for name in ("NLL", "CrossEntropy")
    },
    **{
        f"torch.{name}": every([X, NUMBERS[:2], X[0]], DIMS) for name in ("cumsum", "cumprod", "logcumsumexp")
    },
    "torch.histc": [call(RANGE, 4, 0, 2), call(X, 3, 0, 5), call(RANGE, 4, 0, 0), call(RANGE, 4)],
    "torch.bincount": [call(SHORT, WEIGHT), call(SHORT, WEIGHT, minlength=9), call(SHORT)],
    **{
        f"torch.{name}": [*every([X, NUMBERS, X * torch.nan], DIMS), call(X), call(X, 0, keepdim=True)]
        for name in ("median", "nanmedian")
    },
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("spec", "of"),
    [(one, one.instead_of) for one in SPELLINGS if one.instead_of and one.instead_of.name in BESIDE],
    ids=lambda one: one.name,
)
def test_beside_its_cases_it_gives_the_values_of_the_op_or_refuses(spec: OpSpec, of: OpSpec) -> None:
    """Other dims, NaN, narrow indices, further arguments of the op: what it does not do it refuses."""
    op, written = resolve(of.op_name), resolve(spec.op)
    same = 0
    for it in BESIDE[of.name]:
        try:
            found = written(*copy.deepcopy(it.args), **it.kwargs)
        except (TypeError, ValueError, AssertionError, RuntimeError, IndexError):
            continue
        expected = op(*copy.deepcopy(it.args), **it.kwargs)
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
