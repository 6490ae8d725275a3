"""Runs that are held against one list together: of one release, each once."""

from __future__ import annotations

import pytest

from reports.docs.judge import join
from reports.docs.view import drift_lines
from scanner.claims.tables import documented_claims, parse_claims
from scanner.errors import UsageError
from tests.documented import CUDA, docstring, only, run_of, shown


def test_the_same_run_is_refused_twice() -> None:
    """A run counts once, whatever its files are called; another start, or another machine, is another run."""
    claims, rows = parse_claims(docstring(["torch.a"])), [shown("torch.a", "raises")]
    one, copy, later = (
        run_of(claims, rows, name=name, started=started)
        for name, started in (("a.jsonl", "at noon"), ("b.jsonl.gz", "at noon"), ("c.jsonl", "later"))
    )

    with pytest.raises(UsageError) as raised:
        join([one, later, copy])

    assert str(raised.value) == (
        "a.jsonl and b.jsonl.gz are the same run, started at noon; give each run once"
    )
    assert len(join([one, later]).matrices) == 2


def test_both_lists_of_2_15_contradict_each_other() -> None:
    """scatter_reduce stands in both lists of 2.15, which a run without claims takes from the table."""
    docs = join([run_of((), [shown("torch.b", "deterministic")], torch="2.15.0+cpu")])

    assert [tuple(claim.id for claim in pair) for pair in docs.self_contradictory] == [
        (
            "deterministic/torch.Tensor.scatter_reduce/cuda/reduce=mean,sum",
            "raises/torch.Tensor.scatter_reduce/cuda",
        )
    ]
    assert docs.claims == documented_claims("2.15.0")
    assert "those tabled for torch 2.15.0 stand in" in (docs.note or "")
    assert any(line.startswith("self_contradictory: ") for line in drift_lines(docs))


@pytest.mark.parametrize(
    ("torches", "texts", "message"),
    [
        (
            ("2.13.0+cpu", "2.11.0"),
            ("torch.a", "torch.a"),
            (
                "the runs document different lists: 0.jsonl is of torch 2.13.0 and 1.jsonl is of torch 2.11.0; give "
                "runs of one release at a time"
            ),
        ),
        (
            ("2.13.0+cpu", "2.13.0+cu130"),
            ("torch.a", "torch.b"),
            (
                "the runs document different lists: those of 1.jsonl are not those of 0.jsonl, though both are of "
                "torch 2.13.0; give runs of one build at a time"
            ),
        ),
    ],
)
def test_lists_of_two_builds_are_refused(
    torches: tuple[str, ...], texts: tuple[str, ...], message: str
) -> None:
    """Runs join only where they speak of the same lists; the message names both."""
    runs = [
        run_of(
            parse_claims(docstring([text])), [shown("torch.a", "raises")], name=f"{number}.jsonl", torch=torch
        )
        for number, (torch, text) in enumerate(zip(torches, texts, strict=True))
    ]

    with pytest.raises(UsageError) as raised:
        join(runs)

    assert message == str(raised.value)


def test_builds_of_one_release_join() -> None:
    """A CPU build and a CUDA build document the same lists; a run without claims takes the others'."""
    claims = parse_claims(docstring([f"torch.a {CUDA}"]))
    cpu = run_of((), [shown("torch.a", "fixed_by_mode", "cpu")], torch="2.13.0+cpu")
    cuda = run_of(claims, [shown("torch.a", "fixed_by_mode")], torch="2.13.0+cu130")

    assert only(join([cpu, cuda])).agreement == "confirmed"


def test_no_claims_and_no_table_is_refused() -> None:
    """Without a docstring and without a table nothing can be called undocumented."""
    with pytest.raises(
        UsageError, match=r"run\.jsonl: holds no claims .*no table of the claims of torch 9\.9"
    ):
        join([run_of((), [shown("torch.a", "raises")], torch="9.9.0")])
