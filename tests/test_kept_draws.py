"""Numbers that were drawn once are drawn no more, and are the same."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from opspecs.inputs import Inputs, KeptDraws  # noqa: E402 - it needs torch
from opspecs.registry import SPECS  # noqa: E402
from scanner.worker import execution  # noqa: E402
from scanner.worker import observe as observing  # noqa: E402

KEY = "key"


class Counted:
    """Counts what torch draws."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.drawn = 0
        for name in ("rand", "randn", "randint", "randperm"):
            monkeypatch.setattr(torch, name, self._counting(getattr(torch, name)))

    def _counting(self, draw: Any) -> Any:
        def counting(*args: Any, **kwargs: Any) -> Any:
            self.drawn += 1
            return draw(*args, **kwargs)

        return counting


def _inputs(kept: KeptDraws | None, direction: str = "forward", key: str = KEY) -> Inputs:
    return Inputs(key, dtype="float32", device="cpu", direction=direction, kept=kept)


def _all(t: Inputs, *, other: bool = False) -> list[Any]:
    first = [t.leaf(t.mixed(50)), t.index(20, high=7)]
    between = [t.uniform(3)] if other else []
    return [*first, *between, t.permutation(9), t.spiky(4, 64), t.mask(6), t.integers(5, high=3)]


def test_both_directions_are_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second direction takes the numbers of the first, which are those that it would have drawn."""
    kept, counted = KeptDraws(), Counted(monkeypatch)
    _all(_inputs(kept))
    drawn = counted.drawn
    again = _all(_inputs(kept, "backward"))

    assert counted.drawn == drawn
    assert all(map(torch.equal, again, _all(_inputs(None, "backward"))))


def test_another_sequence_goes_on_with_its_own_numbers() -> None:
    """Where it asks for something else, what follows is what it would be without anything kept."""
    kept = KeptDraws()
    _all(_inputs(kept))

    for other in (True, False, True):
        assert all(map(torch.equal, _all(_inputs(kept), other=other), _all(_inputs(None), other=other)))


def test_an_op_that_writes_into_its_input_changes_no_later_one() -> None:
    """On the CPU the numbers themselves would be the input."""
    kept = KeptDraws()
    fresh = _inputs(None).normal(100)
    _inputs(kept).normal(100).zero_()
    _inputs(kept).normal(100).zero_()

    assert torch.equal(_inputs(kept).normal(100), fresh)


@pytest.mark.parametrize("limits", [{"keys": 2}, {"size": 1 << 12}, {"size": 1}])
def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch, limits: dict[str, int]) -> None:
    """Of what was asked for longest ago nothing is kept, and what is drawn is the same all the same."""
    kept, counted = KeptDraws(**limits), Counted(monkeypatch)
    for key in "abc" * 2:
        assert all(map(torch.equal, _all(_inputs(kept, key=key)), _all(_inputs(None, key=key))))
    drawn = counted.drawn
    _all(_inputs(kept, key="a"))

    assert counted.drawn > drawn


def test_cases_of_the_catalog_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a case does with what it draws."""
    monkeypatch.setattr(Inputs, "size", lambda _, **sizes: sizes["cpu"])
    kept = KeptDraws()
    for spec in SPECS[::15]:
        name, case = next(iter(spec.cases.items()))
        if "cpu" not in case.devices:
            continue
        options = {"dtype": (case.dtypes or spec.dtypes)[0], "device": "cpu", "direction": "backward"}
        wanted, *again = (case.inputs(Inputs(name, kept=some, **options)) for some in (None, kept, kept))
        for one in again:
            pairs = zip(wanted.args, one.args, strict=True)
            assert all(
                torch.equal(left.to_dense(), right.to_dense())
                for left, right in pairs
                if isinstance(left, torch.Tensor) and not left.is_quantized
            ), spec.name


def test_a_worker_draws_a_case_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its backward row takes what its forward row drew; both say the same digest of their inputs."""
    monkeypatch.setattr(execution, "DRAWS", kept := KeptDraws())
    monkeypatch.setattr(observing, "DRAWS", kept)
    spec = next(spec for spec in SPECS if spec.name == "torch.gather")
    counted = Counted(monkeypatch)
    drawn, digests = [], []
    for direction in ("forward", "backward"):
        before = counted.drawn
        options: dict[str, Any] = {"dtype": "float32", "device": "cpu", "seed": 0, "runs": 2}
        digests.append(observing.observe(spec, "collisions", direction=direction, **options)["inputs_digest"])
        drawn.append(counted.drawn - before)

    # Of the backward row the upstream gradient is drawn, which the forward row has none of.
    assert drawn == [drawn[0], 1]
    assert drawn[0] > 1
    assert digests[0] == digests[1]
