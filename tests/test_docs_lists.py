"""The documented lists written again: real docstrings, new bullets, and the golden ones."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from reports.docs.entries import Statement, role_of, write
from reports.docs.judge import Docs
from reports.docs.regenerate import regenerate
from reports.docs.view import render_diff, render_rst
from scanner.claims.tables import documented_claims, documented_versions
from scanner.errors import UsageError
from scanner.verdicts.vocabulary import Finding
from tests.documented import CUDA, bullets, diff, docs_of, docstring, regenerated, shown

# --- Real docstrings -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def installed() -> str:
    torch = pytest.importorskip("torch")
    return torch.use_deterministic_algorithms.__doc__ or ""


def test_without_evidence_nothing_changes(installed: str) -> None:
    """The lists of the installed torch come out byte for byte as its docstring has them."""
    docs = docs_of(installed, [shown("torch.unheard_of", "deterministic", "cpu")])

    assert "".join(render_rst(docs)) in "    " + inspect.cleandoc(installed).replace("\n", "\n    ").replace(
        "    \n", "\n"
    )
    assert "".join(render_rst(docs)).count("* :") == len({claim.order for claim in docs.claims})
    assert diff(docs) == ""


def test_only_the_bullet_with_evidence_changes(installed: str) -> None:
    """One contradicted bullet of the installed torch is one line less here and one more there."""
    docs = docs_of(installed, [shown("torch.nn.AvgPool3d", "fixed_by_mode", direction="backward")])
    bullet = "        * :class:`torch.nn.AvgPool3d` when attempting to differentiate a CUDA tensor\n"
    changed = [line for line in diff(docs).splitlines(keepends=True)[2:] if line[0] in "+-"]

    assert changed == [f"+{bullet}", f"-{bullet}"]


@pytest.mark.parametrize("version", documented_versions())
def test_every_documented_bullet_can_be_written(version: str) -> None:
    """What any release says of an op can be said again, but for what uninitialised memory is filled with."""
    for claim in documented_claims(version):
        if claim.section not in {"deterministic", "raises"}:
            continue
        statement = Statement(
            list="raises" if claim.section == "raises" else "deterministic",
            targets=claim.targets,
            devices=() if claim.device == "any" else (claim.device,),
            direction=claim.direction,
            conditions=claim.conditions,
        )
        fills = any(condition.kind == "fill" for condition in claim.conditions)

        assert (write(statement, claim.text) is None) == fills


def test_what_the_other_list_says_already_is_not_said_twice() -> None:
    """The contradiction of 2.15 is resolved by evidence: scatter_reduce raises for what it raises for."""
    sums = ":func:`torch.Tensor.scatter_reduce` when ``reduce='sum'`` or ``reduce='mean'`` and called on CUDA tensor"
    text = docstring([sums], [":func:`torch.Tensor.scatter_reduce` when called on CUDA or MPS tensor"])
    findings: dict[str, Finding] = {"sum": "fixed_by_mode", "mean": "fixed_by_mode", "prod": "raises"}
    rows = [
        shown("torch.Tensor.scatter_reduce", finding, case=reduce, traits={"reduce": reduce})
        for reduce, finding in findings.items()
    ]
    docs = docs_of(text, rows)
    acting, raising = bullets(regenerate(docs).regenerated)

    assert len(docs.self_contradictory) == 1
    assert acting == [sums]
    assert raising == [
        ":func:`torch.Tensor.scatter_reduce` with ``reduce='prod'`` when called on a CUDA tensor",
        ":func:`torch.Tensor.scatter_reduce` when called on an MPS tensor",
    ]


@pytest.mark.parametrize(
    ("rows", "acting", "raising"),
    [
        ([("raises", {})], [], [f":func:`torch.new_` {CUDA}"]),
        ([("fixed_by_mode", {})], [f":func:`torch.new_` {CUDA}"], []),
        ([("over_alert", {}), ("raises", {"direction": "backward"})], [], [f":func:`torch.new_` {CUDA}"]),
        (
            [("raises", {"direction": "backward"}), ("deterministic", {})],
            [],
            [":func:`torch.new_` when attempting to differentiate a CUDA tensor"],
        ),
        ([("silent", {})], [], []),
        ([("raises", {}), ("deterministic", {})], [], []),
        (
            [("raises", {"traits": {"reduce": "prod"}}), ("fixed_by_mode", {"traits": {"reduce": "sum"}})],
            [":func:`torch.new_` with ``reduce='sum'`` when called on a CUDA tensor"],
            [":func:`torch.new_` with ``reduce='prod'`` when called on a CUDA tensor"],
        ),
    ],
)
def test_undocumented_rows_get_a_bullet(
    rows: list[tuple[Finding, dict[str, Any]]], acting: list[str], raising: list[str]
) -> None:
    """An op that raises or acts deterministically appears, with no more said of it than its rows all show."""
    measured = [shown("torch.new_", finding, **fields) for finding, fields in rows]

    assert regenerated(docstring(["torch.b"], ["torch.c"]), measured) == (
        ["torch.b", *acting],
        ["torch.c", *raising],
    )


def test_a_new_bullet_stands_by_its_op_and_contradicts_none() -> None:
    """It goes behind the other bullets of its op, and takes a condition that keeps it off the other list's."""
    text = docstring(
        [f"torch.Tensor.put_ with ``accumulate=True`` {CUDA}"],
        ["torch.Tensor.put_ with ``accumulate=True``", "torch.z"],
    )
    rows = [shown("torch.Tensor.put_", "raises", traits={"accumulate": "False"})]

    assert regenerated(text, rows)[1] == [
        "torch.Tensor.put_ with ``accumulate=True``",
        ":func:`torch.Tensor.put_` with ``accumulate=False`` when called on a CUDA tensor",
        "torch.z",
    ]


def test_nested_lists_keep_their_blank_lines() -> None:
    """A bullet with a list of its own moves whole, and a blank line follows it where another bullet does."""
    nested = (
        ":func:`torch.a` when attempting to differentiate a CUDA tensor\n"
        "  and one of the following modes is used:\n\n  - ``p``\n  - ``q``\n"
    )
    text = docstring([":func:`torch.a` with ``x=1``", "torch.z"], [nested, "torch.b"])
    found = regenerate(docs_of(text, [shown("torch.a", "mode_dependent", direction="backward", traits={"mode": "p"}),
                                      shown("torch.a", "fixed_by_mode", direction="backward", traits={"mode": "q"})]))  # fmt: skip

    assert found.documented in text
    assert (
        "        * :func:`torch.a` when attempting to differentiate a CUDA tensor\n"
        "          and one of the following modes is used:\n\n          - ``p``\n          - ``q``\n\n"
        "        * torch.z\n\n"
    ) in found.regenerated
    assert found.regenerated.endswith("``mode=True``:\n\n        * torch.b\n")


def test_tabled_claims_cannot_be_written_again() -> None:
    """A run without claims has no docstring to regenerate; the message says what else can be done."""
    docs = docs_of("", [shown("torch.b", "deterministic")])

    with pytest.raises(UsageError, match=r"do not hold the docstring's lines.*--format md or json"):
        regenerate(docs)


def test_roles() -> None:
    """An op keeps the role it has; else a class is what has a capital."""
    assert [role_of("torch.A"), role_of("torch.Tensor.a"), role_of("torch.a", ":meth:`~torch.a`")] == [
        ":class:`torch.A`", ":func:`torch.Tensor.a`", ":meth:`torch.a`",
    ]  # fmt: skip


@pytest.mark.parametrize("render", [render_rst, render_diff])
def test_no_bullet_commands_a_terminal(render: Callable[[Docs], Iterator[str]]) -> None:
    """A run file may hold any docstring; what is printed of it are lines of text."""
    bullet = ":func:`torch.put_` with \x1b[2J and \u202e"
    docs = docs_of(docstring([bullet]), [shown("torch.add", "fixed_by_mode")])
    text = "".join(render(docs))

    assert "\\x1b[2J and \\u202e" in text
    assert all(line.isprintable() for line in text.split("\n"))
