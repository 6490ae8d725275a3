"""What a serial loop gives is computed without the loop, and is the same, bit for bit."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from detmatrix.opspecs import serial  # noqa: E402 - what follows needs torch
from detmatrix.opspecs.inputs import Inputs  # noqa: E402
from detmatrix.opspecs.model import call  # noqa: E402


@pytest.fixture
def t() -> Inputs:
    return Inputs("k", dtype="float32", device="cpu", direction="forward")


@pytest.mark.parametrize("shape", [(), (3,)], ids=["elements", "rows"])
def test_sources_are_added_one_after_the_other(t: Inputs, shape: tuple[int, ...]) -> None:
    """The additions are rounded one by one, in the order of the sources, from what is there."""
    into, index, source = t.mixed(7, *shape), t.index(200, high=5), t.mixed(200, *shape)
    expected = into.clone()
    for place, value in zip(index.tolist(), source, strict=True):
        expected[place] += value

    for given in (call(into, (index,), source, accumulate=True), call(into, index, source, accumulate=True)):
        assert torch.equal(serial.summed(given), expected)


def test_gradients_are_added_one_after_the_other(t: Inputs) -> None:
    """What is read by index gets its gradients in the order of reading; in the forward direction there are none."""
    leaf, index, gradient = t.mixed(7), t.index(200, high=5), t.mixed(200)
    expected = torch.zeros(7)
    for place, value in zip(index.tolist(), gradient, strict=True):
        expected[place] += value

    assert torch.equal(serial.summed_gradient(call(leaf, 0, index), gradient), expected)
    assert serial.summed_gradient(call(leaf, 0, index)) is None


@pytest.mark.parametrize("dim", [0, 1])
def test_the_last_source_stays(t: Inputs, dim: int) -> None:
    """Of several sources with one index the last one is left, and what no index names stays what it was."""
    into, index, source = t.normal(7, 7), t.index(30, high=5), t.normal(30, 30)
    source = source.narrow(1 - dim, 0, 7)
    expected = into.clone()
    for number, place in enumerate(index.tolist()):
        expected.select(dim, place).copy_(source.select(dim, number))

    assert torch.equal(serial.last_written(call(into, dim, index, source), dim=dim), expected)
