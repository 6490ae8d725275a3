"""The claims that bullets and lists are read as."""

from __future__ import annotations

import re
import textwrap

import pytest

from detmatrix.scanner.claims.tables import documented_claims, documented_versions, parse_claims
from tests.bullets import CUBLAS, DETERMINISTIC, RAISES, condition, one, read

# --- Bullets ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bullet", "expected"),
    [
        (":class:`torch.nn.MaxUnpool1d`", "raises/torch.nn.MaxUnpool1d"),
        (":class:`torch.nn.A` when attempting to differentiate", "raises/torch.nn.A/backward"),
        (
            ":func:`torch.a` when ``reduce='sum'`` or ``reduce='mean'`` and called on CUDA tensor",
            "raises/torch.a/cuda/reduce=mean,sum",
        ),
        (
            ":func:`torch.a` when called on an MPS tensor with integral or boolean dtype",
            "raises/torch.a/mps/dtype=bool,integer",
        ),
        (
            ":func:`torch.b`, :func:`torch.c`, and :func:`torch.a`\n          when called on a CPU tensor.",
            "raises/torch.a+torch.b+torch.c/cpu",
        ),
        (
            ":func:`torch.resize`, when called with a tensor that is not\n          quantized",
            "raises/torch.resize/quantized=False",
        ),
        # Missing roles, stray connectives and odd separators are read; a stray space is not.
        ("``torch.kthvalue`` with called on a CUDA tensor", "raises/torch.kthvalue/cuda"),
        ("torch.kthvalue() when called on a CUDA tensor", "raises/torch.kthvalue/cuda"),
        (":func:torch.kthvalue when called on CUDA tensors.", "raises/torch.kthvalue/cuda"),
        (":func`torch.kthvalue` , when called on CUDA tensor", None),
        (":meth:`~torch.Tensor.put_` if accumulate=True", "raises/torch.Tensor.put_/accumulate=True"),
        (":func:`torch.a` with ``reduce='prod'\\'mean'``", "raises/torch.a/reduce=mean,prod"),
        (":func:`torch.a` with ``reduce='prod'|'mean'``", "raises/torch.a/reduce=mean,prod"),
        (":func:`torch.a`/:func:`torch.b` when called on a cuda tensor", "raises/torch.a+torch.b/cuda"),
    ],
)
def test_each_feature_of_the_grammar_shows_in_the_id(bullet: str, expected: str | None) -> None:
    """Slips and what no release has are read like the bullets of releases, whose ids the recorded tables hold."""
    claim = one(bullet)

    assert (claim.id if claim.parsed else None) == expected


def test_nested_list_gives_the_modes() -> None:
    """A nested list names the values of the argument that its sentence announces."""
    claim = one(
        ":func:`torch.interpolate` when attempting to differentiate a CUDA tensor\n"
        "          and one of the following modes is used:\n\n"
        "          - ``linear``\n          - ``bicubic``\n"
    )

    assert (claim.direction, claim.conditions) == (
        "backward",
        (condition("keyword", "mode", "linear", "bicubic"),),
    )


@pytest.mark.parametrize(
    "nested",
    [
        "when called on a CUDA tensor\n\n          - ``linear``",
        "when one of the following modes is used:",
        "when one of the following modes is used:\n\n          - ``linear`` mostly",
        "when one of the following modes is used:\n\n          - ``linear``\n            on Tuesdays",
        "when one of the following modes is used:\n\n          - ``linear``\n\n          Mostly.",
    ],
)
def test_nested_list_out_of_place_is_unparsed(nested: str) -> None:
    """A list that nothing announces, an announcement without list, and items of several words are not read."""
    claim = one(f":func:`torch.interpolate` {nested}")

    assert (claim.parsed, claim.targets) == (False, ("torch.interpolate",))


def test_each_device_is_a_claim_of_its_own() -> None:
    """A bullet about two devices gives two claims that share its order and words."""
    first, second = read(":func:`torch.index_copy` when called on a CPU or CUDA tensor")

    assert (first.device, second.device) == ("cpu", "cuda")
    assert (first.order, first.text, first.source) == (second.order, second.text, second.source)


@pytest.mark.parametrize(
    "bullet",
    [
        "",
        "Some ops.",
        ":func:`nms` when called on a CUDA tensor",
        ":func:`torch.a` unless called on a CUDA tensor",
        ":func:`torch.a` when not called on a CUDA tensor",
        ":func:`torch.a` when called on an XPU tensor",
        ":func:`torch.a` when called on a CUDA or XPU tensor",
        ":func:`torch.a` when called on a CUDA tensor when called on a CPU tensor",
        ":func:`torch.a` when ``accumulate=True`` and ``accumulate=False``",
        ":func:`torch.a` when ``accumulate=True`` or ``reduce='sum'``",
        ":func:`torch.a` when called on a CUDA tensor or ``accumulate=True``",
        ":func:`torch.a` when called on a CUDA tensor, :func:`torch.b`",
        ":func:`torch.a` :func:`torch.b` when called on a CUDA tensor",
        ":func:`torch.a` when called on a CUDA tensor and",
        ":func:`torch.a` with = indices output",
        ":func:`torch.a` when called on a CUDA tensorial",
        ":func:`torch.a` when called on a CUDA tensorin some cases",
    ],
)
def test_a_word_left_over_makes_a_bullet_unparsed(bullet: str) -> None:
    """Nothing is guessed of a bullet that is not understood; its words stay."""
    claim = one(bullet)

    assert (claim.parsed, claim.device, claim.direction, claim.conditions) == (False, "any", "any", ())
    assert claim.text == bullet
    assert re.fullmatch(r"raises/[\w.+?]+/unparsed-[0-9a-f]{8}", claim.id)


@pytest.mark.parametrize("word", ["zebra", "not", "unless", "nor", "``", "XPU", "CPU", "=", "[mode]"])
def test_no_foreign_word_is_swallowed(word: str) -> None:
    """One word more, anywhere in any bullet of any release, makes it unparsed."""
    texts = {claim.text for version in documented_versions() for claim in documented_claims(version)}
    swallowed = []
    for text in sorted(text for text in texts if " - " not in text):
        words = text.split()
        longer = [" ".join([*words[:place], word, *words[place:]]) for place in range(len(words) + 1)]
        swallowed += [bullet for bullet in longer if any(claim.parsed for claim in read(bullet))]

    assert swallowed == []


def test_same_bullet_twice_has_two_ids() -> None:
    """Ids are unique even where the docstring repeats itself."""
    found = parse_claims(f"{RAISES}\n        * :func:`torch.a`\n        * :func:`torch.a`\n")

    assert [claim.id for claim in found] == ["raises/torch.a", "raises/torch.a#2"]


# --- Lists -----------------------------------------------------------------------------------------------------


def test_sections_come_from_the_paragraph_above() -> None:
    """Each list belongs to its heading; cuBLAS ops are on CUDA because their heading says so."""
    bullet = "\n        * :func:`torch.a`\n\n"
    found = parse_claims(f"{DETERMINISTIC}{bullet}{RAISES}{bullet}    Prose.\n\n{CUBLAS}{bullet}")

    assert [(claim.id, claim.order) for claim in found] == [
        ("deterministic/torch.a", 0),
        ("raises/torch.a", 1),
        ("cublas/torch.a/cuda", 2),
    ]


def test_ops_under_an_unknown_heading_are_shown() -> None:
    """A new list is not lost in silence; lists that are not about ops are left alone."""
    found = parse_claims(
        "    These sing:\n\n      * :func:`torch.a`\n      * torch.b loudly\n      - don't autotune\n"
    )

    assert [(claim.section, claim.targets, claim.parsed) for claim in found] == [
        ("other", ("torch.a",), False),
        ("other", ("torch.b",), False),
    ]


@pytest.mark.parametrize(
    "listed",
    [
        "        * :func:`torch.a`\n        * :func:`torch.b` when\n          called on CUDA tensor",
        "        * :func:`torch.a`\n       * :func:`torch.b` when\n       called on CUDA tensor",
        "        * :func:`torch.a`\n        * :func:`torch.b` when\n    called on CUDA tensor",
        "        * :func:`torch.a`\n\n\n         * :func:`torch.b` when\n\n          called on CUDA tensor",
        "        *:func:`torch.a`\n        - :func:`torch.b` when\r\n\t  called on CUDA tensor",
        "* :func:`torch.a`\n* :func:`torch.b`   when\ncalled on CUDA tensor",
    ],
)
def test_indentation_may_slip(listed: str) -> None:
    """A bullet ends where another starts, however it is indented; lazy and blank continuation belong to it."""
    found = parse_claims(f"{RAISES}\n{listed}\n\nNote that this is slow.")

    assert [claim.id for claim in found] == ["raises/torch.a", "raises/torch.b/cuda"]


def test_source_holds_the_blank_lines_before_the_next_bullet() -> None:
    """A list is written again byte by byte from its sources; what follows the list is not in them."""
    listed = "        * torch.a\n          of:\n\n          - x\n\n        * torch.b\n"
    found = parse_claims(f"{RAISES}\n{listed}\n\n    Note that.")

    assert [claim.source for claim in found] == ["* torch.a\n  of:\n\n  - x\n", "* torch.b"]
    assert textwrap.indent("\n".join(claim.source or "" for claim in found), " " * 8) + "\n" == listed
