"""Whatever the evidence and however odd the docstring, the lists say what was meant."""

from __future__ import annotations

import re
import textwrap
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from reports.docs.entries import INDENT, Statement, kind_of, lists, role_of, write
from reports.docs.regenerate import regenerate
from scanner.claims.matching import matches
from scanner.claims.tables import parse_claims
from scanner.observations.records import ClaimDirection, Condition
from scanner.verdicts.vocabulary import Finding
from tests.documented import CPU, CUDA, docs_of, docstring, shown
from tests.runs import Planned

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
    found = regenerate(docs)

    for section in ("deterministic", "raises"):
        left = iter(sources(found.regenerated, section).values())
        for order, source in sources(text, section).items():
            claims = [claim for claim in docs.claims if claim.order == order]
            if not any(matches(row, claim) for row, _ in rows for claim in claims):
                # An iterator that is searched goes on behind what was found: the order is kept, too.
                assert source in left
    assert all(claim.parsed for claim in parse_claims(found.regenerated))
    again = regenerate(docs_of(found.regenerated, rows))
    assert again.documented == again.regenerated == found.regenerated


@given(
    targets=st.lists(st.sampled_from(OPS), min_size=1, max_size=3, unique=True).map(tuple),
    devices=st.lists(st.sampled_from(["cpu", "cuda", "mps"]), max_size=3, unique=True).map(tuple),
    direction=st.sampled_from(["any", "backward", "forward"]),
    name=st.sampled_from(["accumulate", "src", "weights", "index", "layout", "output", "quantized", "dtype", "x-y", ""]),
    values=st.lists(st.sampled_from(["True", "given", "sum", "2-D", "a b", "`", ""]) | st.text(max_size=3), max_size=4,
                    unique=True).map(tuple),
)  # fmt: skip
def test_what_is_written_is_what_was_meant(
    targets: tuple[str, ...],
    devices: tuple[str, ...],
    direction: ClaimDirection,
    name: str,
    values: tuple[str, ...],
) -> None:
    """A bullet is either written so that it reads back as meant, or not at all."""
    condition = Condition(kind=kind_of(name), name=name, values=values)
    statement = Statement(
        list="raises", targets=targets, devices=devices, direction=direction, conditions=(condition,)
    )
    source = write(statement)
    if source is None:
        return
    claims = parse_claims(lists({"deterministic": [], "raises": [source]}))

    assert {claim.device for claim in claims} == set(devices or ("any",))
    for claim in claims:
        assert (set(claim.targets), claim.direction, claim.section) == (set(targets), direction, "raises")
        assert [(one.kind, one.name, set(one.values)) for one in claim.conditions] == [
            (condition.kind, name, set(values))
        ]


@given(st.text(st.characters(exclude_characters="\r"), max_size=200), measured_rows)
def test_odd_docstrings_are_no_error(odd: str, measured: list[Any]) -> None:
    """Whatever the bullets say, the lists are written, and what was not understood stays as it is."""
    text = docstring([*re.split("\n+", odd.strip("\n")), "torch.a"], [odd.replace("\n", " ")])
    if not parse_claims(text):
        return
    found = regenerate(docs_of(text, planned(measured)))

    for claim in parse_claims(text):
        if not claim.parsed and claim.section in {"deterministic", "raises"}:
            assert textwrap.indent((claim.source or "").rstrip("\n"), INDENT) in found.regenerated
