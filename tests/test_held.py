"""What arguments of a user's spec hold beside tensors: it is the same for each execution, or an input that changed."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from detmatrix.opspecs.model import Call, call
from detmatrix.scanner.modes import MODE_TABLE
from detmatrix.scanner.worker.__main__ import _start
from tests.observed import observed, spec_of
from tests.planted import after_a_pause


def _step(x: Any, weight: Any) -> Any:
    with torch.enable_grad():
        (x @ weight).square().sum().backward()
    return weight.grad.clone()


def _optimized(x: Any, weight: Any, optimizer: Any) -> Any:
    weight.grad = x @ weight.detach().T @ x
    optimizer.step()
    return weight.detach() * 1.0


def _module(kind: str) -> Any:
    torch.manual_seed(0)
    if kind == "spectral":
        return torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(16, 16))
    return torch.nn.BatchNorm1d(16)


def _with_optimizer(t: Any) -> Call:
    weight = torch.nn.Parameter(t.normal(4, 4))
    return call(t.normal(4, 4), weight.detach().clone(), torch.optim.SGD([weight], lr=0.1, momentum=0.9))


@pytest.mark.parametrize(
    ("op", "inputs"),
    [
        pytest.param(
            lambda module, x: (module(x), module.running_mean.clone())[1],
            lambda t: call(_module("batch"), t.normal(4, 16)),
            id="running statistics",
        ),
        pytest.param(
            lambda forward, x: forward(x),
            lambda t: call(_module("spectral").forward, t.normal(4, 16)),
            id="bound method",
        ),
        pytest.param(
            lambda module, x: module(x),
            lambda t: call(_module("spectral"), t.normal(4, 16)),
            id="spectral norm",
        ),
        pytest.param(_step, lambda t: call(t.normal(4, 8), t.normal(8, 2).requires_grad_()), id="gradient"),
        pytest.param(
            lambda x, draw: x + draw.random(), lambda t: call(t.normal(4), random.Random(0)), id="random"
        ),
        pytest.param(
            lambda x, draw: x + draw.random(),
            lambda t: call(t.normal(4), np.random.default_rng(0)),
            id="numpy",
        ),
        pytest.param(
            lambda x, numbers: x + next(numbers),
            lambda t: call(t.normal(4), itertools.count()),
            id="iterator",
        ),
        pytest.param(
            lambda x, it: x + next(it.numbers),
            lambda t: call(t.normal(4), SimpleNamespace(numbers=itertools.count(), lock=threading.Lock())),
            id="object that cannot be pickled",
        ),
        pytest.param(
            lambda x, _, optimizer: _optimized(x, optimizer.param_groups[0]["params"][0], optimizer),
            _with_optimizer,
            id="optimizer",
        ),
    ],
)
def test_executions_that_were_given_another_state_prove_nothing(
    op: Any, inputs: Callable[[Any], Call]
) -> None:
    """An op that learns, adds up or draws from what it is given is no nondeterministic one."""
    seen = observed(spec_of(op, inputs, file="mine.py"), runs=4)

    assert seen["outcome"] == "invalid"
    assert seen["message"].startswith("it differed only on arguments that earlier executions were given")


def test_a_generator_is_put_back_before_each_execution() -> None:
    """As torch's own is: the op draws the same, and is told to draw."""

    def inputs(t: Any) -> Call:
        return call(t.normal(64), torch.Generator().manual_seed(7))

    seen = observed(spec_of(lambda x, own: x + torch.rand(64, generator=own), inputs, file="mine.py"), runs=6)

    assert (seen["outcome"], [*seen["digests"].values()], seen["seeded"]) == ("ran", [6], True)


@pytest.mark.parametrize(
    ("op", "inputs"),
    [
        pytest.param(
            lambda module, x: module(x) + time.perf_counter_ns() % 1_000_003,
            lambda t: call(_module("batch"), t.normal(4, 16)),
            id="running statistics",
        ),
        pytest.param(
            lambda x, weight: _step(x, weight) + time.perf_counter_ns() % 1_000_003,
            lambda t: call(t.normal(4, 8), t.normal(8, 2).requires_grad_()),
            id="gradient",
        ),
    ],
)
def test_what_differs_on_arguments_made_anew_differs(op: Any, inputs: Callable[[Any], Call]) -> None:
    """A race beside a state that changes is a race."""
    seen = observed(spec_of(op, inputs, file="mine.py"), runs=4)

    assert (seen["outcome"], len(seen["digests"])) == ("ran", 4)


def test_arguments_that_cannot_be_made_anew_prove_nothing() -> None:
    """Where they are drawn from a generator that nobody seeds."""
    draw = np.random.default_rng(0)
    spec = spec_of(
        lambda x, _: x + time.perf_counter_ns(),
        lambda t: call(t.normal(4).double(), draw.random(4)),
        file="mine.py",
    )
    seen = observed(spec, runs=4)

    assert (seen["outcome"], seen["message"]) == (
        "invalid",
        "its arguments are not the same when they are made anew",
    )


SHARED = itertools.count(), random.Random(0), np.random.default_rng(0), torch.nn.BatchNorm1d(16)


@pytest.mark.parametrize("shared", SHARED, ids=lambda it: type(it).__name__)
def test_an_object_that_is_given_again_is_not_made_anew(shared: Any) -> None:
    """Its state goes on from call to call, so that a difference proves nothing; without one nothing is asked."""

    def draw(x: Any, it: Any) -> Any:
        if isinstance(it, torch.nn.Module):
            it(x)
            return it.running_mean.clone()
        return x + (next(it) if isinstance(it, itertools.count) else it.random())

    inputs = lambda t: call(t.normal(4, 16), shared)  # noqa: E731
    differs = observed(spec_of(draw, inputs, file="mine.py"), runs=4)
    same = observed(spec_of(lambda x, _: x * 2, inputs, file="mine.py"), runs=4)

    told = f"it differed, and its inputs are not made anew each time: the {type(shared).__name__} is the same object"
    assert (differs["outcome"], differs["message"]) == ("invalid", told)
    assert (same["outcome"], [*same["digests"].values()]) == ("ran", [4])


def test_a_race_that_a_perturbation_shows_is_looked_for_under_it() -> None:
    """Beside an object that nobody changes."""

    def inputs(t: Any) -> Call:
        return call(t.normal(64), torch.nn.Identity())

    spec = spec_of(lambda x, _: after_a_pause(x), inputs, file="mine.py")
    seen = observed(spec, runs=20, perturbations=["quiet", "pause"])

    assert [(one["perturbation"], bool(one["differing"])) for one in seen["groups"]] == [
        ("quiet", False),
        ("pause", True),
    ]
    assert seen["outcome"] == "ran"


def test_a_state_that_hides_a_difference_is_no_determinism() -> None:
    """What was computed once is handed out again."""

    def remembered(x: Any, memory: Any) -> Any:
        if not hasattr(memory, "seen"):
            memory.seen = x + time.perf_counter_ns() % 1_000_003
        return memory.seen.clone()

    spec = spec_of(remembered, lambda t: call(t.normal(4), SimpleNamespace()), file="mine.py")
    seen = observed(spec, runs=4)

    assert seen["outcome"] == "invalid"
    assert seen["message"].startswith("it differed on arguments made anew, and never on those")


def test_arguments_are_made_anew_while_there_is_time() -> None:
    """Where each takes long, what is not shown in time is not said."""
    turns = itertools.count()

    def inputs(t: Any) -> Call:
        time.sleep(0.02)
        return call(t.normal(4), SimpleNamespace())

    rare = spec_of(lambda x, _: x + (next(turns) == 30), inputs, file="mine.py")
    seen = observed(rare, runs=60, max_time=0.05)

    assert (seen["outcome"], seen["message"]) == (
        "invalid",
        "no time was left to show that it differs on arguments made anew",
    )


def test_a_state_that_changes_no_result_is_no_error() -> None:
    """A module that is trained may give the same bits all the same."""

    def inputs(t: Any) -> Call:
        return call(_module("batch"), t.normal(4, 16))

    seen = observed(spec_of(lambda module, x: module(x), inputs, file="mine.py"), runs=4)

    assert seen["outcome"] == "ran"


@pytest.mark.parametrize(
    "argument",
    [
        lambda scale: np.arange(4.0) * scale,
        lambda scale: (
            torch.nn.Linear(4, 1)
            .apply(lambda it: torch.nn.init.constant_(it.weight, scale))
            .apply(lambda it: torch.nn.init.zeros_(it.bias))
        ),
    ],
    ids=["array", "module"],
)
def test_inputs_are_told_apart_by_what_arguments_hold(argument: Callable[[float], Any]) -> None:
    """Numbers of an array and parameters of a module, which a user draws anew in each process, enter the digest of the inputs."""

    def digest(scale: float) -> str:
        def inputs(t: Any) -> Call:
            return call(t.normal(4), argument(scale))

        seen = observed(spec_of(lambda x, _: x * 2, inputs, file="mine.py"))
        return str(seen["inputs_digest"])

    assert digest(1.0) == digest(1.0) != digest(2.0)


def test_a_file_that_sets_the_flag_where_it_begins_does_not_decide_the_mode(tmp_path: Path) -> None:
    """Programs of users do; a worker of the mode off is one all the same."""
    path = tmp_path / "mine.py"
    path.write_text("import torch\ntorch.use_deterministic_algorithms(True)\nfn = torch.sum\n")
    try:
        assert "failed" not in _start(MODE_TABLE["off"], [f"{path}:fn"])
        assert not torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(
    "argument",
    [
        np.empty(0),
        np.array([None]),
        np.arange(4, dtype=">u2")[::2],
        torch.nn.LazyLinear(2),
        torch.nn.Identity(),
    ],
    ids=["no elements", "objects", "other order of bytes", "lazy", "nothing"],
)
def test_arguments_of_any_kind_are_looked_through(argument: Any) -> None:
    """What holds no bits, or none yet, is no reason not to run."""
    seen = observed(spec_of(lambda x, _: x * 2, lambda t: call(t.normal(4), argument), file="mine.py"))

    assert seen["outcome"] == "ran"


@pytest.mark.parametrize("dim", [1, -1])
def test_a_number_that_was_computed_is_no_input_given_back(dim: int) -> None:
    """Whatever numbers the op was given: 1 is where the largest is."""
    seen = observed(spec_of(torch.argmax, lambda _: call(torch.tensor([[1.0, 3.0, 2.0]]), dim)))

    assert (seen["outcome"], seen["blank"]) == ("ran", None)
