"""The documented lists written again: what stays, moves, splits, narrows, appears, and why."""

from __future__ import annotations

import inspect
import re
import textwrap
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detmatrix.reports.docs.regenerate import INDENT, RegeneratedLists, role_of, write
from detmatrix.reports.docs.view import render_rst
from detmatrix.scanner.claims.matching import matches
from detmatrix.scanner.claims.tables import documented_claims, documented_versions, parse_claims
from detmatrix.scanner.verdicts.vocabulary import Finding
from tests.compared import shows
from tests.documented import (
    CPU,
    CUDA,
    bullets,
    diff,
    docs_of,
    docstring,
    regenerated,
    shown,
)
from tests.runs import Planned, row

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
    assert "".join(render_rst(docs)).count("* :") == len(
        {claim.order for claim in docs.claims if claim.source}
    )
    assert diff(docs) == ""


@pytest.mark.parametrize("version", documented_versions())
def test_every_documented_bullet_can_be_written(version: str) -> None:
    """What any release says of an op can be said again, but for what uninitialised memory is filled with."""
    for claim in documented_claims(version):
        if claim.section not in {"deterministic", "raises"}:
            continue
        fills = any(condition.kind == "fill" for condition in claim.conditions)

        assert (write(claim, claim.text) is None) == fills


NEW, A, PUT = ":func:`torch.new_`", ":func:`torch.a`", ":func:`torch.Tensor.put_`"
REDUCE, BOTH = ":func:`torch.Tensor.scatter_reduce`", "``reduce='sum'`` or ``reduce='mean'``"
SUM, MEAN, PROD = (f"with ``reduce='{it}'``" for it in ("sum", "mean", "prod"))
MODES = "when attempting to differentiate a CUDA tensor and one of the following modes is used:"


def _of(op: str, finding: Finding, case: str = "", **fields: Any) -> Planned:
    """Return a row, whose traits are the fields that a row does not have."""
    known = {name: fields.pop(name) for name in ("direction", "dtype", "documented") if name in fields}
    return shown(op, finding, case=case or finding, traits=fields, **known)


@pytest.mark.parametrize(
    ("acting", "raising", "rows", "acting_then", "raising_then"),
    [
        # What no bullet is about appears, with no more said of it than its rows all show.
        ([], [], [_of("torch.new_", "raises")], [], [f"{NEW} {CUDA}"]),
        ([], [], [_of("torch.new_", "fixed_by_mode")], [f"{NEW} {CUDA}"], []),
        ([], [], [_of("torch.new_", "over_alert"), _of("torch.new_", "raises", direction="backward")], [], [f"{NEW} {CUDA}"]),
        (
            [], [], [_of("torch.new_", "raises", direction="backward"), _of("torch.new_", "deterministic")],
            [], [f"{NEW} when attempting to differentiate a CUDA tensor"],
        ),
        ([], [], [_of("torch.new_", "silent")], [], []),
        ([], [], [_of("torch.new_", "raises"), _of("torch.new_", "deterministic")], [], []),
        (
            [], [], [_of("torch.new_", "raises", reduce="prod"), _of("torch.new_", "fixed_by_mode", reduce="sum")],
            [f"{NEW} {SUM} {CUDA}"], [f"{NEW} {PROD} {CUDA}"],
        ),
        # A new bullet stands behind the others of its op, with a condition that keeps it off the other list's.
        (
            [f"torch.Tensor.put_ with ``accumulate=True`` {CUDA}"], ["torch.Tensor.put_ with ``accumulate=True``", "torch.z"],
            [_of("torch.Tensor.put_", "raises", accumulate="False")], [f"torch.Tensor.put_ with ``accumulate=True`` {CUDA}"],
            ["torch.Tensor.put_ with ``accumulate=True``", f"{PUT} with ``accumulate=False`` {CUDA}", "torch.z"],
        ),
        # Beside a standing one it says what its rows share, or is not written.
        (
            [], [f"torch.a {SUM} {CUDA}"], [_of("torch.a", "raises", "s", reduce="sum"), _of("torch.a", "raises", "p", reduce="prod")],
            [], [f"torch.a {SUM} {CUDA}", f"{A} {PROD} {CUDA}"],
        ),
        (
            [], [f"torch.a {SUM} {CUDA}"], [_of("torch.a", "raises", "p", reduce="prod"), _of("torch.a", "raises", "bare")],
            [], [f"torch.a {SUM} {CUDA}"],
        ),
        # Of what all rows share it says the one condition that does alone, and both where either would do.
        (
            [], [f"torch.a {PROD} {CUDA}"],
            [_of("torch.a", "raises", "s", reduce="sum", half="True"), _of("torch.a", "raises", "p", reduce="prod", half="True")],
            [], [f"torch.a {PROD} {CUDA}", f"{A} {SUM} {CUDA}"],
        ),
        (
            [], [f"torch.a {PROD} {CUDA}"],
            [_of("torch.a", "raises", "s", reduce="sum", half="True"), _of("torch.a", "raises", "p", reduce="prod", half="False")],
            [], [f"torch.a {PROD} {CUDA}", f"{A} with ``half=True`` and ``reduce='sum'`` {CUDA}"],
        ),
        # What differs with the flag on keeps its op from being said to act, in either list.
        ([], [], [_of("torch.new_", "fixed_by_mode", reduce="sum"), _of("torch.new_", "silent", reduce="prod")], [], []),
        (
            [], [f"torch.a {SUM} {CUDA}"], [_of("torch.a", "fixed_by_mode", reduce="sum"), _of("torch.a", "silent", reduce="prod")],
            [], [f"torch.a {SUM} {CUDA}"],
        ),
        # A bullet that was not understood may say what a new one would.
        (["torch.a on Tuesdays"], [], [_of("torch.a", "raises")], ["torch.a on Tuesdays"], []),
        # Both lists of 2.15 speak of scatter_reduce: it raises for what it raises for.
        (
            [f"{REDUCE} when {BOTH} and called on CUDA tensor"], [f"{REDUCE} when called on CUDA or MPS tensor"],
            [*(_of("torch.Tensor.scatter_reduce", "fixed_by_mode", it, reduce=it) for it in ("sum", "mean")),
             _of("torch.Tensor.scatter_reduce", "raises", reduce="prod")],
            [f"{REDUCE} when {BOTH} and called on CUDA tensor"],
            [f"{REDUCE} {PROD} {CUDA}", f"{REDUCE} when called on an MPS tensor"],
        ),
        # The condition that decides narrows a bullet, and what it leaves out is said in the other list.
        (
            [f"torch.a {CUDA}"], [], [_of("torch.a", "fixed_by_mode", accumulate="True"), _of("torch.a", "raises", accumulate="False")],
            [f"{A} with ``accumulate=True`` {CUDA}"], [f"{A} with ``accumulate=False`` {CUDA}"],
        ),
        (
            [f"torch.a {CUDA}"], [], [_of("torch.a", "fixed_by_mode", dtype="float16"), _of("torch.a", "raises", dtype="int64")],
            [f"{A} {CUDA} and dtype is floating point"], [f"{A} {CUDA} and dtype is integer"],
        ),
        # Its own condition decides first, though another would do; what was not measured of it stays.
        (
            [f"torch.a with {BOTH} {CUDA}"], [],
            [_of("torch.a", "fixed_by_mode", reduce="mean"), _of("torch.a", "raises", reduce="sum", dtype="int64")],
            [f"{A} {MEAN} {CUDA}"], [f"{A} {SUM} {CUDA}"],
        ),
        ([], [f"{A} with {BOTH} {CUDA}"], [_of("torch.a", "fixed_by_mode", reduce="sum")], [f"{A} {SUM} {CUDA}"], [f"{A} {MEAN} {CUDA}"]),
        (
            [f"torch.a {MODES}\n\n    - ``p``\n    - ``q``\n    - ``r``\n    - ``s``"], [],
            [_of("torch.a", "fixed_by_mode", mode="p", direction="backward"), _of("torch.a", "raises", mode="q", direction="backward")],
            [f"{A} {MODES} - ``p`` - ``r`` - ``s``"], [f"{A} with ``mode='q'`` when attempting to differentiate a CUDA tensor"],
        ),
        (
            ["torch.nn.A, torch.b, and torch.c when called on a CPU, CUDA or MPS tensor"], [],
            [_of("torch.a", "fixed_by_mode", documented=("torch.c",)), _of("torch.a", "raises", documented=("torch.nn.A", "torch.b"))],
            [":class:`torch.nn.A` and :func:`torch.b` when called on a CPU or MPS tensor",
             ":func:`torch.c` when called on a CPU, CUDA or MPS tensor"],
            [f":class:`torch.nn.A` and :func:`torch.b` {CUDA}"],
        ),
        # Where nothing was seen to differ and nothing is raised a raising bullet says less, and the other list no more.
        (
            [], [f":func:`torch.bincount` {CUDA}"], [_of("torch.bincount", "raises", weights="given"), _of("torch.bincount", "deterministic")],
            [], [f":func:`torch.bincount` {CUDA} and ``weights`` tensor is given"],
        ),
    ],
)  # fmt: skip
def test_what_the_lists_become(
    acting: list[str],
    raising: list[str],
    rows: list[Planned],
    acting_then: list[str],
    raising_then: list[str],
) -> None:
    """Bullets appear, move, split and narrow as rows show, and say no more than rows do."""
    text = docstring(["torch.y", *acting], ["torch.x", *raising])

    assert regenerated(text, rows) == (["torch.y", *acting_then], ["torch.x", *raising_then])


@pytest.mark.parametrize(
    ("bullet", "findings", "expected"),
    [
        ("torch.a {}", ["fixed_by_mode"], "acting"),
        ("torch.a {}", ["mode_dependent", "deterministic"], "acting"),
        ("torch.a {}", ["raises", "over_alert", "inconclusive"], "raising"),
        ("torch.a {}", ["silent"], "neither"),
        # No condition tells these rows apart.
        ("torch.a {}", ["raises", "fixed_by_mode"], "where it was"),
        ("torch.a {}", ["silent", "deterministic"], "where it was"),
        ("torch.a {}", ["inconclusive"], "where it was"),
        ("torch.a {} on Tuesdays", ["raises", "silent"], "where it was"),
        ("torch.a {} in some cases", ["silent"], "where it was"),
    ],
)
@pytest.mark.parametrize("documented", ["acting", "raising"])
def test_a_bullet_stands_where_the_evidence_puts_it(
    bullet: str, findings: list[Finding], expected: str, documented: str
) -> None:
    """A bullet contradicted whole moves with its own words, or goes; one without decisive evidence stays."""
    said = bullet.format(CUDA)
    text = docstring([said], ["torch.z"]) if documented == "acting" else docstring(["torch.z"], [said])
    acting, raising = regenerated(text, [shown("torch.a", finding) for finding in findings])
    where = documented if expected == "where it was" else expected

    assert {"acting": said in acting, "raising": said in raising} == {
        "acting": where == "acting",
        "raising": where == "raising",
    }
    assert len(acting) + len(raising) == 1 + (where != "neither")


@pytest.mark.parametrize(
    ("keeps", "fails"),
    [
        # Two conditions might decide.
        ({"traits": {"a": "True"}, "dtype": "int64"}, {"traits": {"a": "False"}}),
        # No list has words for "forward alone", nor for what no row states.
        ({"direction": "forward"}, {"direction": "backward"}),
        ({}, {"traits": {"accumulate": "True"}}),
        # A description is no argument, and for what is not given there are no words.
        ({"traits": {"weights": "given"}}, {"traits": {"weights": "none"}}),
        ({"traits": {"dim": "1-D"}}, {"traits": {"dim": "2-D"}}),
    ],
)
def test_what_cannot_be_said_is_left(keeps: dict[str, Any], fails: dict[str, Any]) -> None:
    """An over-broad bullet stays as it is where the evidence or the words are not clear, and that is told."""
    text = docstring([f"torch.a {CUDA}"])
    docs = docs_of(text, [shown("torch.a", "fixed_by_mode", **keeps), shown("torch.a", "raises", **fails)])
    found = RegeneratedLists(docs)

    assert found.documented == found.regenerated
    assert "is left as it is" in found.changes[0]


@pytest.mark.parametrize(
    ("provokes", "left"), [("", [f"torch.a {CUDA}", "torch.z"]), ("collisions", ["torch.z"])]
)
def test_nothing_seen_moves_no_bullet(provokes: str, left: list[str]) -> None:
    """0 of n in both modes and no alert never makes a bullet act; it goes if the inputs could have shown more."""
    quiet = [
        shows("deterministic", row("torch.a", "quiet", device="cuda", provokes=provokes)),
        shows("deterministic", row("torch.a", "innocent", device="cuda", provokes="")),
    ]
    docs = docs_of(docstring([], [f"torch.a {CUDA}", "torch.z"]), quiet)
    lists_found = RegeneratedLists(docs)

    assert bullets(lists_found.regenerated) == ([], left)
    assert lists_found.changes[0] == (
        "torch.a on cuda goes: it never differed, in either mode, and nothing is raised"
        if provokes
        else "torch.a on cuda is left as it is: nothing was raised, but no input provokes a difference"
    )


# A busy machine draws examples slowly.
PATIENT = settings(max_examples=50)
OPS = ("torch.a", "torch.nn.B", "torch.Tensor.c_")
TRAITS = st.fixed_dictionaries(
    {},
    optional={
        "reduce": st.sampled_from(["sum", "mean", "prod"]),
        "accumulate": st.sampled_from(["True", "False"]),
    },
)
FINDINGS = st.sampled_from(
    cast("list[Finding]", ["deterministic", "mode_dependent", "fixed_by_mode", "raises", "over_alert", "silent", "order_dependent", "inconclusive"])
)  # fmt: skip
bullet_texts = st.builds(
    lambda ops, keyword, call: " ".join(
        [", ".join(role_of(op) for op in ops), *([keyword] if keyword else []), *([call] if call else [])]
    ),
    st.lists(st.sampled_from(OPS), min_size=1, max_size=3, unique=True),
    st.sampled_from(["", "with ``accumulate=True``", "when ``reduce='sum'`` or ``reduce='mean'``", "with integer dtype"]),
    st.sampled_from(
        ["", CPU, CUDA, "when called on a CPU or CUDA tensor", "when attempting to differentiate a CUDA tensor"]
    ),
)  # fmt: skip
measured_rows = st.lists(
    st.tuples(
        st.sampled_from(OPS),
        FINDINGS,
        st.sampled_from(["cpu", "cuda"]),
        st.sampled_from(["forward", "backward"]),
        st.sampled_from(["float32", "int64"]),
        TRAITS,
    ),
    max_size=8,
)  # fmt: skip


def planned(measured: list[Any]) -> list[Planned]:
    return [
        shown(op, finding, device, case=f"case{number}", direction=direction, dtype=dtype, traits=traits)
        for number, (op, finding, device, direction, dtype, traits) in enumerate(measured)
    ]


def sources(text: str, section: str) -> dict[int, str]:
    """Return the lines of each bullet of a list by its place."""
    return {claim.order: claim.source or "" for claim in parse_claims(text) if claim.section == section}


@PATIENT
@given(
    st.lists(bullet_texts, max_size=5, unique=True),
    st.lists(bullet_texts, max_size=5, unique=True),
    measured_rows,
)
def test_any_evidence(acting: list[str], raising: list[str], measured: list[Any]) -> None:
    """Bullets without evidence keep their lines and order, all bullets parse, and a second time nothing changes."""
    text = docstring([*acting, "torch.z"], raising)
    rows = planned(measured)
    docs = docs_of(text, rows)
    found = RegeneratedLists(docs)

    for section in ("deterministic", "raises"):
        left = iter(sources(found.regenerated, section).values())
        for order, source in sources(text, section).items():
            claims = [claim for claim in docs.claims if claim.order == order]
            if not any(matches(row, claim) for row, _ in rows for claim in claims):
                # An iterator that is searched goes on behind what was found: the order is kept, too.
                assert source in left
    assert all(claim.parsed for claim in parse_claims(found.regenerated))
    again = RegeneratedLists(docs_of(found.regenerated, rows))
    assert again.documented == again.regenerated == found.regenerated


@PATIENT
@given(st.text(st.characters(exclude_characters="\r"), max_size=200), measured_rows)
def test_odd_docstrings_are_no_error(odd: str, measured: list[Any]) -> None:
    """Whatever the bullets say, the lists are written, and what was not understood stays as it is."""
    text = docstring([*re.split("\n+", odd.strip("\n")), "torch.a"], [odd.replace("\n", " ")])
    if not parse_claims(text):
        return
    found = RegeneratedLists(docs_of(text, planned(measured)))

    for claim in parse_claims(text):
        if not claim.parsed and claim.section in {"deterministic", "raises"}:
            assert textwrap.indent((claim.source or "").rstrip("\n"), INDENT) in found.regenerated
