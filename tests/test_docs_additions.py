"""A new bullet carries the conditions of its evidence, or there is none and it is said why."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from detmatrix.reports.docs.regenerate import regenerate
from detmatrix.scanner.verdicts.vocabulary import Finding
from tests.documented import (
    bullets,
    docs_of,
    docstring,
    serial,
    shown,
    weak,
)
from tests.runs import Planned, drifting, ran, stable

TEXT = docstring(["torch.z"], ["torch.y"])


def drawn(finding: Finding, case: str, *inputs: str, **fields: Any) -> Planned:
    """Return a row of a database with this finding and these inputs."""
    planned, observations = shown("torch.new_", finding, case=case, **fields)
    if finding == "fixed_by_mode":
        observations = [*ran(planned, "off", *drifting(40)), *ran(planned, "on", *stable())]
    return planned, [replace(one, inputs=inputs) for one in observations]


def told(*rows: Planned) -> tuple[list[str], str]:
    """Return the bullets added to the first list, and what is said of that."""
    found = regenerate(docs_of(TEXT, rows))
    return bullets(found.regenerated)[0][1:], found.added["torch.new_", "cuda"]


FLAT, DEEP = "args[0]: float32 (64, 3)", "args[0]: float32 (2, 64, 3)"


@pytest.mark.parametrize(
    ("differ", "still", "said"),
    [
        # An argument that a database's row was called with.
        ((FLAT, "kwargs['driver']: 'gelsy'"), (FLAT, "kwargs['driver']: 'gels'"), "with ``driver='gelsy'`` when"),
        # A dtype of the same kind, and one of another.
        (({"dtype": "float32"},), ({"dtype": "float64"},), "and dtype is float32"),
        (({"dtype": "float32"},), ({"dtype": "int64"},), "and dtype is floating point"),
        # A trait of a hand-written case.
        (({"traits": {"reduce": "sum"}},), ({"traits": {"reduce": "amax"}},), "with ``reduce='sum'`` when"),
    ],
)  # fmt: skip
def test_what_separates_goes_into_the_bullet(differ: Any, still: Any, said: str) -> None:
    """Rows that could have differed and did not are what the bullet leaves out."""
    rows = [_row("fixed_by_mode", "differs", differ), _row("deterministic", "still", still)]
    (bullet,), text = told(*rows)

    assert said in bullet
    assert text.startswith("added to the list 'deterministic'")
    # Written again with the bullet there, nothing more is added, and it is contradicted by none of the rows.
    again = regenerate(docs_of(docstring(["torch.z", bullet], ["torch.y"]), rows))
    assert again.documented == again.regenerated


def _row(finding: Finding, case: str, said: Any) -> Planned:
    fields = next((one for one in said if isinstance(one, dict)), {})
    return drawn(finding, case, *(one for one in said if isinstance(one, str)), **fields)


@pytest.mark.parametrize(
    ("differ", "still", "why"),
    [
        # Both the argument and the shape hold in all that differ and in none that does not.
        (
            (FLAT, "kwargs['driver']: 'gelsy'"),
            (DEEP, "kwargs['driver']: 'gels'"),
            "several conditions tell them apart: driver (gelsy); dimensions of args[0] (2)",
        ),
        ((FLAT,), (DEEP,), "no words for what tells them apart: dimensions of args[0] (2)"),
        ((FLAT,), (f"{FLAT}, strides (1, 64)",), "layout of args[0] (contiguous)"),
        ((FLAT, "args[1]: 'a'"), (FLAT, "args[1]: 'b'"), "no words for what tells them apart: args[1] ('a')"),
        ((FLAT,), (FLAT,), "no single condition tells them apart"),
        # What a row does not state is no value that a bullet can name.
        ((FLAT,), (FLAT, "kwargs['driver']: 'gels'"), "no single condition tells them apart"),
        # Where a call runs is no condition of its own.
        ((FLAT, "kwargs['device']: 'a'"), (FLAT, "kwargs['device']: 'b'"), "no single condition tells them apart"),
    ],
)  # fmt: skip
def test_without_one_condition_there_is_no_bullet(
    differ: tuple[str, ...], still: tuple[str, ...], why: str
) -> None:
    """The rows are told, and what may separate them."""
    added, text = told(drawn("fixed_by_mode", "differs", *differ), drawn("deterministic", "still", *still))

    assert added == []
    assert why in text
    assert "1 row differed and 1 did not (torch.new_:still:forward:float32)" in text


def test_what_hardly_could_differ_is_left_out_where_words_can() -> None:
    """A dtype that one thread adds in, or that was seen at low power, takes no bullet away, and none speaks of it: only float32 was seen to differ."""
    differing = drawn("fixed_by_mode", "differs", FLAT)
    still = drawn("deterministic", "still", FLAT, dtype="float64")
    alike = drawn("deterministic", "small", FLAT)
    bullet = ":func:`torch.new_` when called on a CUDA tensor and dtype is float32"

    for rows in ([differing, still], [differing, alike, still], [differing, still, alike]):
        docs = docs_of(TEXT, rows)
        # A busy machine, on which rows are of low power besides or instead, changes no bullet.
        for shown_little in (serial(docs), weak(docs, ["off"]), weak(serial(docs), ["off"])):
            assert bullets(regenerate(shown_little).regenerated)[0][1:] == [bullet]
