"""What becomes of a bullet when the lists are written again: it stays, moves, splits or narrows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from reports.docs.judge import Docs
from reports.docs.regenerate import regenerate
from scanner.verdicts.vocabulary import Finding
from tests.compared import shows
from tests.documented import CUDA, bullets, diff, docs_of, docstring, regenerated, serial, shown, weak
from tests.runs import row


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
    ("bullet", "keeps", "fails", "kept", "moved"),
    [
        (
            f"torch.a {CUDA}",
            {"traits": {"accumulate": "True"}},
            {"traits": {"accumulate": "False"}},
            ":func:`torch.a` with ``accumulate=True`` when called on a CUDA tensor",
            ":func:`torch.a` with ``accumulate=False`` when called on a CUDA tensor",
        ),
        (
            f"torch.a {CUDA}",
            {"dtype": "float16"},
            {"dtype": "int64"},
            ":func:`torch.a` when called on a CUDA tensor and dtype is floating point, complex or bool",
            ":func:`torch.a` when called on a CUDA tensor and dtype is integer",
        ),
        (
            f"torch.a with ``reduce='sum'`` or ``reduce='mean'`` {CUDA}",
            {"traits": {"reduce": "mean"}},
            {"traits": {"reduce": "sum"}},
            ":func:`torch.a` with ``reduce='mean'`` when called on a CUDA tensor",
            ":func:`torch.a` with ``reduce='sum'`` when called on a CUDA tensor",
        ),
        (
            (
                "torch.a when attempting to differentiate a CUDA tensor and one of the following modes is used:\n\n"
                "    - ``p``\n    - ``q``\n    - ``r``\n    - ``s``"
            ),
            {"traits": {"mode": "p"}, "direction": "backward"},
            {"traits": {"mode": "q"}, "direction": "backward"},
            (
                ":func:`torch.a` when attempting to differentiate a CUDA tensor and one of the following modes is used: "
                "- ``p`` - ``r`` - ``s``"
            ),
            ":func:`torch.a` with ``mode='q'`` when attempting to differentiate a CUDA tensor",
        ),
        (
            "torch.nn.A, torch.b, and torch.c when called on a CPU, CUDA or MPS tensor",
            {"documented": ("torch.c",)},
            {"documented": ("torch.nn.A", "torch.b")},
            None,
            ":class:`torch.nn.A` and :func:`torch.b` when called on a CUDA tensor",
        ),
    ],
)
def test_an_over_broad_bullet_is_split(
    bullet: str, keeps: dict[str, Any], fails: dict[str, Any], kept: str | None, moved: str
) -> None:
    """The condition that decides narrows the bullet, and what it leaves out is said in the other list."""
    text = docstring([bullet])
    acting, raising = regenerated(
        text, [shown("torch.a", "fixed_by_mode", **keeps), shown("torch.a", "raises", **fails)]
    )

    assert raising == [moved]
    assert (
        acting == [kept]
        if kept
        else acting
        == [
            ":class:`torch.nn.A` and :func:`torch.b` when called on a CPU or MPS tensor",
            ":func:`torch.c` when called on a CPU, CUDA or MPS tensor",
        ]
    )


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
    found = regenerate(docs)

    assert found.documented == found.regenerated
    assert "is left as it is" in found.changes[0]


def test_a_raising_bullet_narrows_to_what_raises() -> None:
    """Where nothing was seen to differ and nothing is raised, the bullet says less, and the other list no more."""
    rows = [
        shown("torch.bincount", "raises", traits={"weights": "given"}),
        shown("torch.bincount", "deterministic"),
    ]
    text = docstring([], [f":func:`torch.bincount` {CUDA}"])

    assert regenerated(text, rows) == (
        [],
        [":func:`torch.bincount` when called on a CUDA tensor and ``weights`` tensor is given"],
    )


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
    lists_found = regenerate(docs)

    assert bullets(lists_found.regenerated) == ([], left)
    assert lists_found.changes[0] == (
        "torch.a on cuda goes: it never differed, in either mode, and nothing is raised"
        if provokes
        else "torch.a on cuda is left as it is: nothing was raised, but no input provokes a difference"
    )


@pytest.mark.parametrize(
    ("doubt", "finding"),
    [
        *((weak, finding) for finding in ("deterministic", "fixed_by_mode", "mode_dependent")),
        *((serial, finding) for finding in ("deterministic", "mode_dependent")),
    ],
)
def test_sameness_where_nothing_could_race_changes_no_bullet(
    doubt: Callable[[Docs], Docs], finding: Finding
) -> None:
    """That a row did not differ at low power, or with one thread at work, drops, moves, narrows and adds nothing."""
    bullet = f"torch.a {CUDA}"
    rows = [shown("torch.a", finding), shown("torch.b", finding)]
    for text in (docstring(["torch.z"], [bullet]), docstring([bullet], ["torch.z"])):
        lists_found = regenerate(doubt(docs_of(text, rows)))
        assert lists_found.regenerated == lists_found.documented
        assert (lists_found.changes, lists_found.added) == ({}, {})
    # Beside rows that are proof, the weak ones narrow nothing either: the whole bullet moves.
    text = docstring([f"torch.a {CUDA}"], ["torch.z"])
    rows = [shown("torch.a", finding, dtype="float32"), shown("torch.a", "raises", dtype="int64")]
    assert bullets(regenerate(doubt(docs_of(text, rows))).regenerated) == ([], ["torch.z", bullet])


@pytest.mark.parametrize("doubt", [weak, serial])
@pytest.mark.parametrize(("finding", "where"), [("raises", 1), ("over_alert", 1)])
def test_what_raises_is_added_whatever_could_race(
    doubt: Callable[[Docs], Docs], finding: Finding, where: int
) -> None:
    """An alert proves itself, whatever could race."""
    docs = doubt(docs_of(docstring(["torch.z"], ["torch.y"]), [shown("torch.a", finding)]))

    assert bullets(regenerate(docs).regenerated)[where][-1] == f":func:`torch.a` {CUDA}"


def test_nothing_seen_moves_no_part_of_a_bullet() -> None:
    """Of a bullet about several ops, one acts and moves, one was provoked in vain and goes, one is innocent and stays."""
    rows = [
        shown("torch.a", "fixed_by_mode"),
        shows("deterministic", row("torch.a", "quiet", device="cuda")),
        shows("deterministic", row("torch.b", device="cuda")),
        shows("deterministic", row("torch.c", device="cuda", provokes="")),
    ]
    text = docstring([], [f"torch.a, torch.b, and torch.c {CUDA}"])

    assert regenerated(text, rows) == ([f":func:`torch.a` {CUDA}"], [f":func:`torch.c` {CUDA}"])


@pytest.mark.parametrize("other", [{"traits": {"dims": "2"}}, {"traits": {"dims": "2", "reduction": "sum"}}])
def test_conditions_without_words_narrow_no_bullet(other: dict[str, Any]) -> None:
    """The number of dimensions is no argument: where it decides, or may as well as an argument, nothing changes."""
    docs = docs_of(
        docstring([f"torch.a {CUDA}"]),
        [
            shown("torch.a", "fixed_by_mode", traits={"dims": "1", "reduction": "mean"}),
            shown("torch.a", "raises", traits={"reduction": "mean"} | other["traits"]),
        ],
    )

    assert diff(docs) == ""
    assert "dims (fails for 2, not for 1)" in docs.judged[0].reason


def test_new_bullets_swallow_none() -> None:
    """Beside a standing bullet of the op a new one says what its rows share, or is not written."""
    standing = f"torch.a with ``reduce='sum'`` {CUDA}"
    sums = shown("torch.a", "raises", case="sum", traits={"reduce": "sum"})
    prods = [shown("torch.a", "raises", case=f"prod{n}", traits={"reduce": "prod"}) for n in range(2)]
    bare = shown("torch.a", "raises", case="bare")
    text = docstring(["torch.z"], [standing])
    narrow = ":func:`torch.a` with ``reduce='prod'`` when called on a CUDA tensor"

    assert regenerated(text, [sums, *prods])[1] == [standing, narrow]
    assert regenerated(text, prods)[1] == [standing, narrow]
    assert regenerated(text, [sums, *prods, bare])[1] == [standing]


def test_what_an_unparsed_bullet_names_is_not_added() -> None:
    """A bullet that was not understood may say what a new one would."""
    text = docstring(["torch.a on Tuesdays"], ["torch.z"])

    assert regenerated(text, [shown("torch.a", "raises")]) == (["torch.a on Tuesdays"], ["torch.z"])


def test_unmeasured_values_stay() -> None:
    """Where only some values of a bullet's own condition were measured, only those move, whatever they show."""
    text = docstring([], [f":func:`torch.a` with ``reduce='sum'`` or ``reduce='mean'`` {CUDA}"])

    assert regenerated(text, [shown("torch.a", "fixed_by_mode", traits={"reduce": "sum"})]) == (
        [f":func:`torch.a` with ``reduce='sum'`` {CUDA}"],
        [f":func:`torch.a` with ``reduce='mean'`` {CUDA}"],
    )


def test_a_bullets_own_condition_decides_first() -> None:
    """Where the bullet's own condition and another one would both do, it is the bullet's own."""
    text = docstring([f"torch.a with ``reduce='sum'`` or ``reduce='mean'`` {CUDA}"])
    rows = [
        shown("torch.a", "fixed_by_mode", traits={"reduce": "sum"}),
        shown("torch.a", "raises", traits={"reduce": "mean"}, dtype="int64"),
    ]

    assert regenerated(text, rows)[1] == [f":func:`torch.a` with ``reduce='mean'`` {CUDA}"]


def test_a_bullet_that_moved_is_not_swallowed() -> None:
    """A bullet that moved counts where it stands now: a new one of its op that said more would leave it idle."""
    text = docstring([], [f"torch.a with ``accumulate=True`` {CUDA}"])
    rows = [
        shown("torch.a", "fixed_by_mode", case="x"),
        shown("torch.a", "fixed_by_mode", traits={"accumulate": "True"}),
    ]
    found = regenerate(docs_of(text, rows))

    assert bullets(found.regenerated) == ([f"torch.a with ``accumulate=True`` {CUDA}"], [])
    assert found.added["torch.a", "cuda"].startswith("not added to the list 'deterministic'")


def test_the_other_ops_of_a_bullet_keep_any_device() -> None:
    """An op without evidence is said of every device as before, when another one of its bullet is not."""
    text = docstring([], ["torch.a and torch.b"])

    assert regenerated(text, [shown("torch.a", "fixed_by_mode")])[1] == [
        ":func:`torch.a` when called on a CPU or MPS tensor",
        ":func:`torch.b`",
    ]


def test_any_device_is_every_device_that_the_lists_know() -> None:
    """A bullet without a device loses the one on which it fails; what was not measured stays."""
    text = docstring([], [":class:`torch.nn.MaxUnpool1d`"])

    assert regenerated(text, [shown("torch.nn.MaxUnpool1d", "fixed_by_mode", "cpu")]) == (
        [":class:`torch.nn.MaxUnpool1d` when called on a CPU tensor"],
        [":class:`torch.nn.MaxUnpool1d` when called on a CUDA or MPS tensor"],
    )
