"""Any text is read: every bullet gives a claim, what is written is read, and time is linear."""

from __future__ import annotations

import re
import string
import textwrap
import time
from collections import Counter

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from detmatrix.scanner.claims.tables import parse_claims
from detmatrix.scanner.observations.records import Claim
from tests.bullets import CUBLAS, DETERMINISTIC, RAISES, condition

# What bullets are made of, and what breaks parsers.
fragments = st.sampled_from(
    [
        *(
            ":func:`torch.a`",
            "``torch.b``",
            ", ",
            " and ",
            " when ",
            "called on a CUDA tensor",
            "CPU or CUDA",
        ),
        *("``reduce='sum'``", "accumulate=True", "that requires grad", "dtype is complex", "in some cases"),
        *["`", "``", ":", "*", "-", "=", "'", "\\", "[", "]", "|", "?"],
        *("- ", "\t", "\r", "\x0b", "\x85", "\u2028", "\ud800"),
    ]
)
line = st.lists(fragments | st.text(st.characters(exclude_characters="\n"), max_size=4), max_size=6).map(
    "".join
)


# To draw such texts takes long beside other load.
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(line | st.sampled_from([DETERMINISTIC, RAISES, CUBLAS, "", "        * ", "      - "])).map(
        "\n".join
    )
)
def test_any_text_is_accepted(text: str) -> None:
    """Odd text gives claims with distinct ids, the same ones each time, that survive being written."""
    found = parse_claims(text)

    assert parse_claims(text) == found
    assert max(Counter(claim.id for claim in found).values(), default=1) == 1
    assert msgspec.json.decode(msgspec.json.encode(found), type=tuple[Claim, ...]) == found


words = st.text(string.ascii_lowercase, min_size=1, max_size=6)


@given(
    ops=st.lists(words, min_size=1, max_size=3, unique=True),
    role=st.sampled_from([":func:`torch.{}`", ":class:`torch.nn.{}`", "``torch.{}``", "torch.{}"]),
    device=st.sampled_from(["cpu", "cuda", "mps"]),
    verb=st.sampled_from(["called on", "attempting to differentiate"]),
    keyword=st.none() | st.tuples(words, st.lists(words, min_size=1, max_size=3, unique=True)),
    dtypes=st.lists(st.sampled_from(["floating", "complex", "integer"]), max_size=2, unique=True),
    width=st.integers(30, 120),
    indent=st.integers(0, 12),
)
def test_what_is_written_is_read(
    ops: list[str],
    role: str,
    device: str,
    verb: str,
    keyword: tuple[str, list[str]] | None,
    dtypes: list[str],
    width: int,
    indent: int,
) -> None:
    """A bullet put together from any ops, device, keyword values and dtypes is read back, however wrapped."""
    bullet = ", ".join(role.format(op) for op in ops) + f" when {verb} a {device.upper()} tensor"
    conditions = []
    if keyword:
        name, values = keyword
        bullet += " when " + " or ".join(f"``{name}='{value}'``" for value in values)
        conditions.append(condition("keyword", name, *values))
    if dtypes:
        bullet += f" with {' or '.join(dtypes)} dtype"
        conditions.append(condition("dtype", "dtype", *dtypes))
    wrapped = textwrap.fill(
        bullet, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    (claim,) = parse_claims(f"{DETERMINISTIC}\n{textwrap.indent('* ' + wrapped, ' ' * indent)}\n")

    assert claim.parsed
    assert claim.targets == tuple(role.format(op).strip("`").split("`")[-1] for op in ops)
    assert (claim.device, claim.direction) == (device, "any" if verb == "called on" else "backward")
    assert claim.conditions == tuple(conditions)
    assert claim.text == bullet


@pytest.mark.parametrize(
    "text",
    [
        "x " * 500_000,
        "`" * 1_000_000,
        "* torch.a\n" + "  - x\n" * 150_000,
        "* " + ":func:`torch.a`, " * 60_000,
        "* torch.a when called on " + "cpu or " * 150_000,
        "* torch.a" + " when called on cpu tensor" * 40_000,
        "* torch.a when a=" + "b/" * 500_000 + "!",
        "* torch.a" + " in some cases" * 70_000 + " " + "a" * 100_000,
        "* " + ":" * 1_000_000,
    ],
    ids=lambda text: re.sub(r"\W+", "_", text[:24]) or "blank",
)
def test_time_is_linear(text: str) -> None:
    """A megabyte of odd text takes seconds at most, where a pattern that backtracks would take hours."""
    before = time.process_time()
    parse_claims(f"{RAISES}\n{text}")

    assert time.process_time() - before < 10
