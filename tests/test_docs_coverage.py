"""Which rows speak to which claims."""

from __future__ import annotations

from typing import Any

import pytest

from scanner.claims.matching import covering, device_kind, dtype_kind, is_vague, matches
from scanner.claims.tables import parse_claims
from scanner.observations.records import Claim, Condition
from tests.documented import docstring
from tests.runs import row


def claim_of(bullet: str) -> Claim:
    """Return what a bullet in the first list claims of its first device."""
    return parse_claims(docstring([bullet]))[0]


@pytest.mark.parametrize(
    ("bullet", "fields", "expected"),
    [
        ("torch.a", {}, True),
        ("torch.b", {}, False),
        ("torch.b", {"documented": ("torch.c", "torch.b")}, True),
        # Its documented names replace its own: a functional may be listed as a module.
        ("torch.a", {"documented": ("torch.b",)}, False),
        ("torch.a when called on a CUDA tensor", {"device": "cpu"}, False),
        ("torch.a when called on a CUDA tensor", {"device": "cuda:1"}, True),
        ("torch.a when attempting to differentiate a CPU tensor", {}, False),
        ("torch.a when attempting to differentiate a CPU tensor", {"direction": "backward"}, True),
        ("torch.a when called on a CPU tensor that requires grad", {"direction": "backward"}, True),
        ("torch.a when called on a CPU tensor that requires grad", {}, False),
        ("torch.a with integer dtype", {}, False),
        ("torch.a with integer dtype", {"dtype": "uint8"}, True),
        ("torch.a with floating or complex dtype", {"dtype": "bfloat16"}, True),
        ("torch.a with floating or complex dtype", {"dtype": "bool"}, False),
        ("torch.a with ``accumulate=True``", {}, False),
        ("torch.a with ``accumulate=True``", {"traits": {"accumulate": "False"}}, False),
        ("torch.a with ``accumulate=True``", {"traits": {"accumulate": "True", "x": "y"}}, True),
        ("torch.a when ``reduce='sum'`` or ``reduce='mean'``", {"traits": {"reduce": "mean"}}, True),
        ("torch.a when ``reduce='sum'`` and ``mode='max'``", {"traits": {"reduce": "sum"}}, False),
        ("torch.a and the index is a list of tensors", {"traits": {"index": "list of tensors"}}, True),
        ("torch.a with indices output", {"traits": {"output": "indices"}}, True),
        ("torch.a when called with a quantized tensor", {"traits": {"quantized": "True"}}, True),
        ("torch.a in some cases", {}, True),
        ("torch.a on Tuesdays", {}, False),
    ],
)
def test_a_row_speaks_to_a_claim(bullet: str, fields: dict[str, Any], expected: bool) -> None:
    """Name, device, direction and every condition must fit; a condition unstated does not hold."""
    assert expected == matches(row("torch.a", **fields), claim_of(bullet))


def test_covering_ignores_the_device() -> None:
    """Coverage asks whether there is a row at all, on whatever device it would run."""
    claim = claim_of("torch.a when called on an MPS tensor")
    rows = [row("torch.a"), row("torch.b"), row("torch.a", "other", device="cuda:0")]

    assert [rows[0], rows[2]] == covering(claim, rows)
    assert covering(claim, rows, ignore_device=False) == []


def test_requires_grad_can_be_denied() -> None:
    """A tensor that does not require grad is one that is not differentiated."""
    claim = Claim(
        id="x", section="raises", targets=("torch.a",), device="any", direction="any", text="", parsed=True, order=0,
        conditions=(Condition(kind="input", name="requires_grad", values=("False",)),),
    )  # fmt: skip

    assert [matches(row("torch.a", direction=direction), claim) for direction in ("forward", "backward")] == [
        True,
        False,
    ]


def test_vague_claims_are_known() -> None:
    """Only a bullet that says "in some cases" leaves open when it applies."""
    assert [is_vague(claim_of(bullet)) for bullet in ("torch.a in some cases", "torch.a")] == [True, False]


def test_kinds() -> None:
    """Devices lose their number; dtypes fall into the four kinds of the lists, or are their own."""
    dtypes = ("float16", "bfloat16", "complex64", "int8", "uint16", "bool", "quint8")

    assert [device_kind(name) for name in ("cpu", "cuda:0", "cuda")] == ["cpu", "cuda", "cuda"]
    assert [dtype_kind(name) for name in dtypes] == [
        "floating", "floating", "complex", "integer", "integer", "bool", "quint8",
    ]  # fmt: skip
