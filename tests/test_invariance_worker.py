"""What a worker measures of threads, batch and layout, on real torch: ops with known answers, and measurements that are broken."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import torch

from detmatrix.opspecs.controls import INVARIANCE_CONTROLS
from detmatrix.opspecs.model import Batch, Call, Case, OpSpec, call
from detmatrix.scanner.invariance import PROPERTIES, Property
from detmatrix.scanner.observations.records import Invariance
from detmatrix.scanner.verdicts.invariance import misled
from detmatrix.scanner.worker import invariance as variants
from detmatrix.scanner.worker.invariance import measure

# One thread of its own has each process of a test run, so that the baseline is known.
OWN = 1
pytestmark = pytest.mark.usefixtures("one_thread")


def asked(op: Any, inputs: Any, what: Property, batch: Batch | None = None, **more: Any) -> dict[str, Any]:
    """Measure one property of an op."""
    direction = more.pop("direction", "forward")
    spec = OpSpec(name="t", op=op, why=".", cases={"c": Case(inputs=inputs, batch=batch)}, **more)
    return measure(
        spec, "c", property=what, direction=direction, dtype="float32", device="cpu", seed=0, max_time=60
    )


def at(measured: dict[str, Any], outcome: str) -> list[str]:
    """Return the values that came out so."""
    return [one["value"] for one in measured["trials"] if one["outcome"] == outcome]


def rows(t: Any) -> Call:
    return call(t.leaf(t.normal(48, 8)), t.leaf(t.normal(8)))


def controls() -> list[Invariance]:
    """Ask all controls all properties, as a scan does."""
    found = []
    for spec, what in itertools.product(INVARIANCE_CONTROLS, PROPERTIES):
        for row in spec.rows("cpu"):
            asked: dict[str, Any] = {"property": what, "direction": row.direction, "dtype": row.dtype}
            answer = measure(spec, row.case, **asked, device="cpu", seed=0, max_time=60)
            found.append(msgspec.convert({**row._asdict(), **asked, **answer}, Invariance))
    return found


def test_controls_show_what_they_must() -> None:
    """What varies with one property does at every value, and with no other; what varies with none does not."""
    assert misled(controls()) == ()


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        ("_with_threads", "by_threads (forward) should show other bits at 2, 3, 4, 8"),
        ("picked", "by_place (forward) should show other bits at"),
        ("_relaid", "by_layout (forward) should show other bits at"),
    ],
)
def test_a_broken_measurement_misleads_a_control(
    monkeypatch: pytest.MonkeyPatch, broken: str, told: str
) -> None:
    """Threads that do not change, items that are always the first, layouts that are one: the controls notice."""
    import contextlib  # noqa: PLC0415

    others: dict[str, Any] = {
        "_with_threads": lambda _: contextlib.nullcontext(),
        "picked": lambda tensor, axis, places: tensor.detach().narrow(axis, 0, len(places)).clone(),
        "_relaid": lambda tensor, layout: tensor.detach().clone() if layout == "sliced" else None,
    }
    monkeypatch.setattr(variants, broken, others[broken])

    assert any(told in text for text in misled(controls()))


def test_threads_split_a_real_sum() -> None:
    """PyTorch's own reduction joins as many partial sums as there are threads, whatever the cores."""
    measured = asked("torch.sum", lambda t: call(t.normal(1 << 17)), "threads")

    assert (measured["outcome"], measured["baseline"], measured["differing"]) == ("ran", "1 thread", 0)
    assert at(measured, "varies")
    assert torch.get_num_threads() == OWN


def test_gradients_are_those_of_the_same_upstream_gradients() -> None:
    """An item's gradient is held against the one it has in the whole; what is summed over the batch is left out."""
    measured = asked("torch.mul", rows, "batch", Batch({0: 0}), direction="backward")

    assert measured["left_out"] == ("grad of args[1]",)
    assert len(at(measured, "same")) == 33
    assert measured["baseline"] == "48 items"


def by_neighbours(x: torch.Tensor, axis: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Add to each item the sum of all, whose bits depend on how many there are."""
    return x, x + x.sum(axis, keepdim=True)


def test_items_lie_along_the_axis_that_is_declared() -> None:
    """Of inputs and of outputs; sizes beyond the batch are not tried."""
    measured = asked(by_neighbours, lambda t: call(t.normal(2, 6), 1), "batch", Batch({0: 1}, 1))

    assert measured["baseline"] == "6 items"
    assert at(measured, "same") == ["6 permuted"] or "6 permuted" in at(measured, "varies")
    assert {"1 first", "5 last", "3 permuted"} <= set(at(measured, "varies"))
    assert not [value for value in at(measured, "varies") if int(value.split()[0]) > 6]
    assert {one["name"] for trial in measured["trials"] for one in trial["outputs"]} == {"output[1]"}


def racing(x: torch.Tensor, numbers: Iterator[int]) -> torch.Tensor:
    """Give other bits each time, with eight threads alone."""
    return x + next(numbers) * (torch.get_num_threads() == 8)


def test_what_is_not_repeatable_does_not_vary() -> None:
    """Executions that differ among themselves at a value say nothing of what the value changes."""
    measured = asked(racing, lambda t: call(t.normal(64), itertools.count(1)), "threads")

    assert at(measured, "not_repeatable") == ["8"]
    assert at(measured, "varies") == []


def test_every_floating_point_input_is_laid_out_by_itself() -> None:
    """Each in the layouts that it can have and has not; indices, and what is written into, stay."""
    image = asked(
        "torch.nn.functional.conv2d", lambda t: call(t.normal(2, 3, 8, 8), t.normal(4, 3, 3, 3)), "layout"
    )
    written = asked(
        "torch.Tensor.index_add_",
        lambda t: call(t.normal(4, 6), 0, t.index(5, high=4), t.normal(5, 6)),
        "layout",
        in_place=True,
    )
    last = asked("torch.relu", lambda t: call(t.channels_last(t.normal(2, 3, 8, 8))), "layout")

    assert [one["value"] for one in image["trials"]] == [
        f"{layout} args[{place}]" for place in (0, 1) for layout in ("transposed", "channels_last", "sliced")
    ]
    assert [one["value"] for one in written["trials"]] == ["transposed args[3]", "sliced args[3]"]
    assert last["trials"][0]["value"] == "contiguous args[0]"


@pytest.mark.parametrize(
    ("op", "inputs", "what", "batch", "why"),
    [
        ("torch.relu", lambda t: call(t.normal(4, 4)), "batch", None, "its spec declares no batch"),
        ("torch.dropout", lambda t: call(t.normal(48, 4), 0.5, True), "batch", Batch({0: 0}), "it draws random numbers"),
        ("torch.bincount", lambda t: call(t.index(8, high=4)), "layout", None, "no floating-point input"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_says_why(
    op: str, inputs: Any, what: Property, batch: Batch | None, why: str
) -> None:
    """It is no verdict, and no failure."""
    measured = asked(op, inputs, what, batch)

    assert measured["outcome"] == "not_run"
    assert why in measured["message"]
