"""What keeps runs and rows from being compared: power, the machine, the inputs, and what a scan was asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from detmatrix.reports.compare.comparable import Reason, of_rows
from detmatrix.reports.compare.judge import Kind
from detmatrix.reports.compare.page import failures
from detmatrix.reports.compare.runs import compare, open_to_doubt
from detmatrix.reports.matrix.model import Matrix
from detmatrix.scanner.claims.tables import parse_claims
from detmatrix.scanner.observations.records import Claim, Part
from detmatrix.scanner.verdicts.vocabulary import Finding
from tests.compared import pair_of, run_of, shows
from tests.documented import docstring
from tests.evidence_runs import sentinels
from tests.runs import ENVIRONMENT, SETTINGS, Planned, row

PUT = ":func:`torch.Tensor.put_`"
OTHER = shows("deterministic", row("torch.cumsum"))


def _weak(*rows: Planned, name: str, claims: Sequence[Claim] = ()) -> Matrix:
    """Return a run whose sentinels hardly differed."""
    return run_of(*rows, name=name, sentinels=sentinels(1, 0, len(rows)), claims=claims)


@pytest.mark.parametrize(
    ("before", "after", "weak", "kind"),
    [
        # What did not differ where nothing could race is no improvement.
        ("fixed_by_mode", "deterministic", "after", "not_comparable"),
        ("deterministic", "fixed_by_mode", "before", "not_comparable"),
        ("silent", "fixed_by_mode", "after", "not_comparable"),
        ("deterministic", "mode_dependent", "before", "not_comparable"),
        # Nor is it known whether an op that no longer raises is silent.
        ("raises", "fixed_by_mode", "after", "not_comparable"),
        # What did differ or raise needs no power, nor does an op that began to raise.
        ("fixed_by_mode", "deterministic", "before", "improved"),
        ("deterministic", "silent", "after", "regressed"),
        ("deterministic", "over_alert", "before", "regressed"),
        ("raises", "silent", "after", "regressed"),
        ("silent", "silent", "after", "same"),
        ("over_alert", "over_alert", "after", "same"),
        # That neither differed is no proof of anything either.
        ("deterministic", "deterministic", "after", "not_comparable"),
        ("fixed_by_mode", "fixed_by_mode", "before", "not_comparable"),
    ],
)
def test_low_power(before: Finding, after: Finding, weak: str, kind: Kind) -> None:
    """Low power matters where a verdict rests on nothing having differed."""
    old = (_weak if weak == "before" else run_of)(shows(before), name="a")
    new = (_weak if weak == "after" else run_of)(shows(after), name="b")
    (change,) = pair_of(old, new).changes

    assert kind == change.kind
    assert ("low_power" if kind == "not_comparable" else None) == change.judged.reason
    if before == after:
        assert change.judged.apparent is None
        assert not open_to_doubt(change)


def test_two_runs_of_low_power_compare_nothing() -> None:
    """Two scans in which nothing could race agree in all rows, which no check takes for proof."""
    listed = (parse_claims(docstring([], [PUT])), parse_claims(docstring([PUT], [])))
    still = shows("deterministic", row("torch.Tensor.put_"))
    comparison = compare([_weak(still, name=name, claims=of) for name, of in zip("ab", listed, strict=True)])
    (pair,) = comparison.pairs

    assert pair.compared == 0
    assert [one.title for one in failures(comparison, ("regressed",))] == ["nothing compared"]
    assert [(one.measured, one.unmeasured) for one in pair.claims] == [("not_comparable", False)]


def _renamed(planned: Planned, **fields: object) -> Planned:
    return replace(planned[0], **fields), planned[1]


def _other_inputs(planned: Planned) -> Planned:
    return planned[0], [replace(one, inputs_digest="other") for one in planned[1]]


CIRCUMSTANCES: dict[str, tuple[Reason, Callable[[Planned], Matrix]]] = {
    "distrust": ("untrusted_run", lambda rows: run_of(rows, distrust=("the inputs differed",))),
    "cpu": ("other_device", lambda rows: run_of(rows, cpu="Another CPU")),
    "threads": ("other_threads", lambda rows: run_of(rows, threads=4, affinity=(0, 1, 2, 3))),
    "cores": ("other_threads", lambda rows: run_of(rows, affinity=(1,))),
    "variables": (
        "other_variables",
        lambda rows: run_of(rows, variables={"off": {"OMP_NUM_THREADS": "2"}, "on": {"MKL_CBWR": "SSE2"}}),
    ),
    "perturb": (
        "other_perturbations",
        lambda rows: run_of(rows, settings=replace(SETTINGS, perturb=("quiet", "stress"))),
    ),
    "inputs": ("other_inputs", lambda rows: run_of(_other_inputs(rows))),
    "op": ("other_inputs", lambda rows: run_of(_renamed(rows, op="torch.scatter"))),
}


@pytest.mark.parametrize("name", CIRCUMSTANCES)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("after", ["silent", "deterministic"])
def test_only_like_is_compared_with_like(name: str, after: Finding, *, turned: bool) -> None:
    """What the machine, the settings or the inputs could explain is no change, and what it seems is told."""
    reason, make = CIRCUMSTANCES[name]
    old, new = run_of(shows("deterministic"), name="a"), make(shows(after))
    (change,) = pair_of(*((new, old) if turned else (old, new))).changes

    assert ("not_comparable", reason) == (change.kind, change.judged.reason)
    apparent = None if after == "deterministic" else "improved" if turned else "regressed"
    assert apparent == change.judged.apparent


ELSEWHERE = {mode: {**it, "LD_LIBRARY_PATH": "/elsewhere"} for mode, it in ENVIRONMENT.variables.items()}


@pytest.mark.parametrize(
    ("device", "changed", "reason"),
    [
        # Two environments on one machine find their libraries elsewhere.
        ("cpu", {"variables": ELSEWHERE, "os": "Linux 6.2"}, None),
        # On CUDA the GPU must be the same, and the CPU and its threads need not.
        ("cuda:0", {"gpu": "H100", "cpu": "another", "threads": 8}, None),
        ("cuda:0", {"gpu": "H200"}, "other_device"),
    ],
)
def test_what_matters_of_a_machine(device: str, changed: dict[str, Any], reason: Reason | None) -> None:
    """Its hardware, as far as it computes."""
    rows, settings = shows("fixed_by_mode", row("torch.put", device=device)), replace(SETTINGS, device=device)
    old, new = (
        run_of(rows, name="a", settings=settings, **it)
        for it in ({"gpu": "H100"}, {"gpu": "H100", **changed})
    )

    assert pair_of(old, new).changes[0].judged.reason == reason


@pytest.mark.parametrize(
    ("few", "many", "detail"),
    [
        # A row that only one run planned was added or removed.
        ({}, {}, None),
        # The same file of specs from elsewhere is the same; rows are asked about threads, and none is planned for that.
        ({"specs": ("/few/mine.py",)}, {"specs": ("/many/mine.py",)}, None),
        ({}, {"invariance": ("threads",)}, None),
        # Another choice of patterns, sources, samples, dtypes or files plans other rows, and no torch added them.
        ({"patterns": ("scatter*",)}, {}, "few is a scan of scatter*"),
        ({}, {"sources": ("documented", "opinfo")}, "few is a scan with --source documented and not documented,opinfo"),
        ({}, {"samples": 3}, "few is a scan with --samples 0 and not 3"),
        ({}, {"dtypes": ("all",)}, "few is a scan with --dtypes none and not all"),
        ({}, {"specs": ("mine.py",)}, "few is a scan with --specs none and not mine.py"),
        ({}, {"invariance": ("threads", "batch")}, "few is a scan with --invariance none and not batch"),
    ],
)  # fmt: skip
def test_rows_of_one_run_alone(few: dict[str, Any], many: dict[str, Any], detail: str | None) -> None:
    """A row is added or removed where the other scan was asked for it."""
    rows = shows("deterministic"), shows("raises", row("torch.Tensor.put_"))
    less = run_of(rows[0], name="few", settings=replace(SETTINGS, **few))
    more = run_of(*rows, name="many", settings=replace(SETTINGS, **many))

    for pair, kind in ((pair_of(less, more), "added"), (pair_of(more, less), "removed")):
        judged = pair.changes[1].judged
        assert judged.kind == ("not_comparable" if detail else kind)
        assert (judged.reason, judged.detail) == (("not_asked_for", detail) if detail else (None, ""))


@pytest.mark.parametrize(
    ("plan", "lacks"),
    [
        ({"shard": 2, "shards": 3}, "shard 1 of 3"),
        # A file that continues another, as earlier releases wrote them, has later rows alone.
        ({"shard": 1, "shards": 3, "file": 2}, "shard 1 of 3"),
        ({"file": 2}, "the whole plan"),
        ({"shards": 3, "parts": ((2, 1), (3, 1))}, "shard 1 of 3"),
        ({"shard": 1, "shards": 3}, None),
        ({"shards": 3, "parts": ((1, 1), (2, 1))}, None),
    ],
)
def test_rows_of_parts_that_a_file_lacks_are_not_removed(plan: dict[str, Any], lacks: str | None) -> None:
    """One shard, or some of them, tell nothing of the rows of another; of their own rows they do."""
    put = shows("raises", row("torch.Tensor.put_"))
    whole, few = run_of(OTHER, put, name="whole"), run_of(OTHER, name="few")
    if "parts" in plan:
        part = Part(shard=1, file=1, started="", environment=ENVIRONMENT, workers=1, closing=None)
        parts = tuple(replace(part, shard=shard, file=file) for shard, file in plan["parts"])
        plan = {**plan, "parts": parts}
    header = replace(few.run.header, groups={put[0].spec: 1, OTHER[0].spec: 2}, **plan)
    few = replace(few, run=replace(few.run, header=header))

    for pair, kind in ((pair_of(whole, few), "removed"), (pair_of(few, whole), "added")):
        (judged,) = (change.judged for change in pair.changes if change.judged.kind != "same")
        assert judged.kind == ("not_comparable" if lacks else kind)
        assert judged.detail == (f"few lacks {lacks}, where the row would be" if lacks else "")


TWO, THREE = (f"args[0]: float32 ({n},)" for n in (2, 3))


@pytest.mark.parametrize(
    ("digests", "inputs", "expected"),
    [
        (("a" * 32, "b" * 32), (TWO, TWO), "the input bits are not the same"),
        (("2:a", "2:b"), (TWO, TWO), "the input bits are not the same"),
        (("a" * 32, f"2:{'a' * 32}"), (TWO, TWO), None),
        (("a" * 32, f"2:{'a' * 32}"), (TWO, THREE), "the inputs have other dtypes or shapes"),
    ],
)
def test_digests_of_different_kinds_are_not_compared(
    digests: tuple[str, str], inputs: tuple[str, str], expected: str | None
) -> None:
    """What an older file holds of the bits of inputs says nothing of what a newer one does."""
    shown, observed = OTHER
    old, new = (
        run_of((shown, [replace(one, inputs_digest=digest, inputs=(said,)) for one in observed])).rows[0]
        for digest, said in zip(digests, inputs, strict=True)
    )

    obstacle = of_rows(old, new)

    assert (None if obstacle is None else obstacle.detail) == expected
