"""Numbers that were drawn once are drawn no more, and are the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from detmatrix.opspecs import draws
from detmatrix.opspecs.draws import KeptDraws
from detmatrix.opspecs.inputs import Inputs, UpstreamGradients
from detmatrix.opspecs.model import Case, OpSpec, call
from detmatrix.opspecs.registry import SPECS
from detmatrix.scanner.worker import execution
from detmatrix.scanner.worker import observe as observing

KEY = "key"
ACCELERATOR = "cuda:0"


@pytest.fixture(autouse=True)
def _small_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw fewer numbers than fill the pool of a GPU, which takes seconds; still more than what is drawn each time."""
    monkeypatch.setattr(draws, "POOL", 1 << 20)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Return what says how often torch has drawn."""
    draws_of_torch = {
        name: Mock(wraps=getattr(torch, name)) for name in ("rand", "randn", "randint", "randperm")
    }
    for name, draw in draws_of_torch.items():
        monkeypatch.setattr(torch, name, draw)
    return lambda: sum(draw.call_count for draw in draws_of_torch.values())


@pytest.fixture
def _on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave tensors where they are that would be moved to an accelerator, which is not there."""
    to = torch.Tensor.to

    def moving(tensor: Any, *args: Any) -> Any:
        return to(tensor, *(one for one in args if one != ACCELERATOR)) if args != (ACCELERATOR,) else tensor

    monkeypatch.setattr(torch.Tensor, "to", moving)


def _inputs(kept: KeptDraws | None, direction: str = "forward", key: str = KEY) -> Inputs:
    return Inputs(key, dtype="float32", device="cpu", direction=direction, kept=kept)


def _all(t: Inputs, *, other: bool = False) -> list[Any]:
    first = [t.leaf(t.mixed(50)), t.index(20, high=7)]
    between = [t.uniform(3)] if other else []
    return [*first, *between, t.permutation(9), t.spiky(4, 64), t.mask(6), t.integers(5, high=3)]


def test_both_directions_are_drawn_once(counted: Callable[[], int]) -> None:
    """The second direction takes the numbers of the first, which are those that it would have drawn."""
    kept = KeptDraws()
    _all(_inputs(kept))
    drawn = counted()
    again = _all(_inputs(kept, "backward"))

    assert counted() == drawn
    assert all(map(torch.equal, again, _all(_inputs(None, "backward"))))
    # Where something else is asked for, what follows is what it would be without anything kept.
    for other in (True, False, True):
        assert all(map(torch.equal, _all(_inputs(kept), other=other), _all(_inputs(None), other=other)))


@pytest.mark.parametrize("limits", [{"keys": 2}, {"size": 1 << 12}, {"size": 1}])
def test_what_is_kept_is_bounded(counted: Callable[[], int], limits: dict[str, int]) -> None:
    """Of what was asked for longest ago nothing is kept, and what is drawn is the same all the same."""
    kept = KeptDraws(**limits)
    for key in "abc" * 2:
        assert all(map(torch.equal, _all(_inputs(kept, key=key)), _all(_inputs(None, key=key))))
    drawn = counted()
    _all(_inputs(kept, key="a"))

    assert counted() > drawn


def test_a_worker_draws_a_case_once(monkeypatch: pytest.MonkeyPatch, counted: Callable[[], int]) -> None:
    """Its backward row takes what its forward row drew; both say the same digest of their inputs."""
    monkeypatch.setattr(execution, "DRAWS", kept := KeptDraws())
    monkeypatch.setattr(observing, "DRAWS", kept)
    spec = next(spec for spec in SPECS if spec.name == "torch.gather")
    drawn, digests = [], []
    for direction in ("forward", "backward"):
        before = counted()
        options: dict[str, Any] = {"dtype": "float32", "device": "cpu", "seed": 0, "runs": 2}
        digests.append(observing.observe(spec, "collisions", direction=direction, **options)["inputs_digest"])
        drawn.append(counted() - before)

    # Of the backward row the upstream gradient is drawn, which the forward row has none of.
    assert drawn == [drawn[0], 1]
    assert drawn[0] > 1
    assert digests[0] == digests[1]


@pytest.mark.usefixtures("_on_the_cpu")
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "bfloat16"])
def test_large_draws_of_an_accelerator_are_windows_of_one_pool(
    counted: Callable[[], int], dtype: str
) -> None:
    """Whatever is asked for is there, in the range and the shape asked for, and no two draws are the same."""
    kept = KeptDraws()

    def drawn(key: str) -> list[Any]:
        t = Inputs(key, dtype=dtype, device=ACCELERATOR, direction="forward", kept=kept)
        return [t.normal(1 << 9, 1 << 8), t.normal(1 << 17), t.index(1 << 17, high=7), t.normal(draws.POOL)]

    ones = drawn("a")
    pools = counted()
    again, others = drawn("a"), drawn("b")

    assert counted() == pools  # each pool was drawn once
    assert all(map(torch.equal, ones, again))
    assert not any(map(torch.equal, ones, others))
    assert not torch.equal(ones[0].flatten(), ones[1])
    assert ones[0].shape == (1 << 9, 1 << 8)
    assert (ones[2].unique() == torch.arange(7)).all()
    assert abs(ones[-1].abs().float().square().mean() - 1) < 0.01


@pytest.mark.usefixtures("_on_the_cpu")
@pytest.mark.parametrize(
    ("device", "what", "size"),
    [("cpu", "normal", 100), (ACCELERATOR, "normal", 1 << 17), (ACCELERATOR, "gradient", 1 << 17)],
)
def test_what_an_op_writes_into_changes_no_later_one(device: str, what: str, size: int) -> None:
    """The numbers that are kept, or the pool of an accelerator, would themselves be the input."""
    kept = KeptDraws()

    def draw() -> Any:
        t = UpstreamGradients(KEY, dtype="float32", device=device, direction="forward", kept=kept)
        return getattr(t, what)(size)

    first = draw()
    before = first.clone()
    first.zero_()
    draw().zero_()

    assert torch.equal(draw(), before)


@pytest.mark.usefixtures("_on_the_cpu")
def test_what_a_worker_only_tries_takes_the_pools_that_are_there(
    monkeypatch: pytest.MonkeyPatch, counted: Callable[[], int]
) -> None:
    """Drawing them takes longer than a trial of an enlarged sample may, and each trial would draw them again."""
    monkeypatch.setattr(execution, "DRAWS", KeptDraws())
    case = Case(inputs=lambda t: call(t.leaf(t.normal(1 << 17))))
    spec = OpSpec(name="mine.large", op="torch.exp", why="Is described.", cases={"large": case})

    described = [execution.describe(spec, "large", device=ACCELERATOR, seed=seed) for seed in (0, 1)]

    assert described == [{"directions": ["forward", "backward"], "dtype": "float32"}] * 2
    assert counted() == 1
