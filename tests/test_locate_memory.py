"""``locate`` and memory: what reads some that nothing has written is a root; digests tell what stands there apart."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from detmatrix.scanner.locate import locate
from detmatrix.scanner.locate.memory import digests
from detmatrix.scanner.locate.memory.digests import digest
from detmatrix.scanner.locate.replay import RepeatedCall
from tests.programs.planted import define

pytestmark = pytest.mark.usefixtures("one_thread")


def _partly() -> torch.Tensor:
    x = torch.empty(10)
    x[:5] = 1
    return x


def _by_numpy() -> torch.Tensor:
    x = torch.empty(10)
    x.numpy()[:] = 1
    return x


def _onto_itself() -> torch.Tensor:
    x = torch.empty(10)
    return torch.add(x, 1, out=x)


UNWRITTEN: dict[str, tuple[bool, Callable[[], Any]]] = {
    "added to": (True, lambda: torch.empty(10).add_(1)),
    "read": (True, lambda: torch.empty_like(torch.ones(3)) * 2),
    "partly written": (True, lambda: _partly().sum()),
    "the written part read": (False, lambda: _partly()[:5] * 2),
    "filled": (False, lambda: torch.empty(10).fill_(1).sum()),
    "drawn": (False, lambda: torch.empty(10).normal_().sum()),
    "scattered wholly": (False, lambda: torch.empty(9).scatter_(0, torch.arange(9), torch.ones(9)).sum()),
    "scattered in part": (True, lambda: torch.empty(10).scatter_(0, torch.arange(9), torch.ones(9)).sum()),
    "written by numpy": (False, lambda: _by_numpy().sum()),
    "an argument out": (False, lambda: torch.add(torch.ones(3), 1, out=torch.empty(3)).sum()),
    "an argument out that is read": (True, _onto_itself),
    "masked": (False, lambda: torch.where(torch.tensor([False]), torch.empty(3), torch.ones(3)).sum()),
    "never read": (False, lambda: torch.empty(3)),
    "copied": (True, lambda: torch.empty(3).clone()),
}


@pytest.mark.parametrize("name", UNWRITTEN)
def test_unwritten_memory_is_a_root_only_if_a_result_depends_on_it(name: str) -> None:
    """It is followed element by element."""
    expected, program = UNWRITTEN[name]
    with locate() as found:
        program()

    assert [one.cause for one in found.roots] == ["unwritten"] * expected


@pytest.mark.parametrize("races", [False, True])
def test_a_workspace_is_no_root_although_its_memory_looks_the_same_with_the_flag_on(*, races: bool) -> None:
    """The workspace of an LSTM is handed other memory with the flag off, and the same each time when it is asked for again."""
    count = itertools.count(1)

    def compute(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        workspace = torch.empty(8, dtype=torch.uint8)
        still = torch.are_deterministic_algorithms_enabled()
        if not (still and torch.utils.deterministic.fill_uninitialized_memory):
            workspace.fill_(7 if still else next(count))
        workspace[:2] = next(count) if races and not still else 1
        return x * 2, workspace

    lstm = define("lstm(Tensor x) -> (Tensor, Tensor)", compute)
    with locate() as found:
        lstm(torch.ones(3))

    assert [(root.outputs, root.flag) for root in found.roots] == [((1,), "cured")] * races


def test_memory_that_was_filled_before_is_no_other_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """An LSTM leaves most of its workspace unwritten, which looks filled where something filled lay there before."""
    values = itertools.cycle(range(1, 100))

    def first(self: RepeatedCall) -> Any:
        _freed(255)
        return execute_first(self)

    def other(self: RepeatedCall) -> Any:
        _freed(next(values))
        return execute_again(self)

    execute_first, execute_again = RepeatedCall.first, RepeatedCall.other
    monkeypatch.setattr(RepeatedCall, "first", first)
    monkeypatch.setattr(RepeatedCall, "other", other)
    cell, x = torch.nn.LSTM(8, 8), torch.randn(1, 6, 8)

    with locate(replays=2) as found:
        for _ in range(30):
            cell(x)

    assert found.roots == (), str(found)


def _freed(value: int) -> None:
    """Free memory of the size of the workspace that holds one value, for the next execution to be given."""
    held = [torch.full((28672,), value, dtype=torch.uint8) for _ in range(6)]
    del held


@pytest.mark.parametrize("alerts", [False, True])
def test_a_result_that_is_the_same_as_the_fill_is_no_unwritten_memory(*, alerts: bool) -> None:
    """Memory of booleans is filled with True, which is what half of all results are; with the flag on it may race, too."""
    values = itertools.cycle([True, False])

    def compute(_: torch.Tensor) -> torch.Tensor:
        still = torch.are_deterministic_algorithms_enabled()
        if alerts and still and not torch.is_deterministic_algorithms_warn_only_enabled():
            raise RuntimeError(
                "racer does not have a deterministic implementation, but you set 'torch.use_deterministic_algorithms(True)'"
            )
        return torch.tensor([True if still and not alerts else next(values)])

    roots: list[Any] = []
    racer = define("racer(Tensor x) -> Tensor", compute)
    # The first result is True, and then False.
    for _ in range(2):
        values = itertools.cycle([True, False] if not roots else [False, True])
        with locate(replays=1) as found:
            racer(torch.ones(3))
        roots += [root.flag for root in found.roots]

    assert roots == ["raises" if alerts else "cured"] * 2


def _flipped(column: int) -> torch.Tensor:
    x = torch.ones(128, 256, dtype=torch.float64)
    x[:, column] = -1
    return x


def test_equal_sums_and_permutations_are_seen() -> None:
    """Norms and XOR, by which others compare runs, are blind to these."""
    x = torch.randn(1000)
    pairs = {
        "permuted": (x, x.flip(0)),
        "two swapped": (x, torch.cat([x[:1].clone() * 0 + x[1], x[:1], x[2:]])),
        "pairs that XOR to zero": (torch.zeros(4), torch.tensor([3.0, 3.0, 0.0, 0.0])),
        "two signs": (torch.ones(8), torch.tensor([1.0, -1, 1, -1, 1, 1, 1, 1])),
        "all signs": (torch.ones(4096), -torch.ones(4096)),
        "exponents of neighbours": (torch.ones(64), torch.ones(64) * 2),
        "the sign of zero": (torch.zeros(3), -torch.zeros(3)),
        "signs of vectors, float64": (torch.ones(128, 256, dtype=torch.float64), _flipped(7)),
        "rows of tiles": (torch.arange(200 * 176), torch.arange(200 * 176).view(200, 176).flip(0).view(-1)),
        "shapes of blocks": (torch.arange(1 << 19), torch.arange(1 << 19).roll(1 << 17)),
        "the last of an odd number": (
            torch.zeros(7, dtype=torch.uint8),
            torch.tensor([0] * 6 + [1], dtype=torch.uint8),
        ),
    }
    for name, (one, other) in pairs.items():
        assert digest(one).tolist() != digest(other).tolist(), name


def test_digests_are_the_same_in_inference_mode_and_behind_it() -> None:
    """Memory that is used again belongs to neither."""
    digests._workplace.cache_clear()
    with torch.inference_mode():
        once = digest(torch.arange(9)).tolist()

    assert digest(torch.arange(9)).tolist() == once
