"""What became of a row from one run to the next: the table of findings, the evidence a change needs, and measuring it again."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from itertools import product, zip_longest
from typing import Any

import pytest
from msgspec.structs import replace

from detmatrix.reports.compare.comparable import Rate, fisher, rate_test
from detmatrix.reports.compare.judge import (
    CHANGES,
    Change,
    Kind,
    class_of,
    few_processes,
    judge,
    with_dependence,
)
from detmatrix.reports.compare.page import failures
from detmatrix.reports.compare.runs import Again, compare
from detmatrix.reports.matrix.model import Matrix, matrix_of
from detmatrix.scanner.observations.records import Cost, Row
from detmatrix.scanner.run.remeasure import rounds_for
from detmatrix.scanner.verdicts.vocabulary import FINDING_MEANING, Finding
from tests.compared import in_turns, pair_of, run_of, seen, shows
from tests.conftest import table
from tests.evidence_runs import ASKED_CONTROLS, asked_of, cost, sentinels
from tests.runs import RUNS, SETTINGS, Planned, ran, row

KINDS: tuple[Kind, ...] = ("same", "improved", "regressed", "changed", "not_comparable")
LETTERS = dict(zip("sirc?", KINDS, strict=True))
AFTER, *_LINES = (line.split() for (line,) in table("comparisons.txt", "findings"))
EXPECTED: dict[tuple[Any, Any], Kind] = {
    (before, after): LETTERS[letter]
    for before, *letters in _LINES
    for after, letter in zip(AFTER, letters, strict=True)
}
PLANNED = row("torch.Tensor.scatter_add_")


def only(old: Planned, new: Planned) -> Change:
    """Return what became of the one row of two runs that are alike."""
    (change,) = pair_of(run_of(old, name="a"), run_of(new, name="b")).changes
    return change


@pytest.mark.parametrize(("findings", "kind"), EXPECTED.items())
def test_table_of_findings(findings: tuple[Finding, Finding], kind: Kind) -> None:
    """Every pair of findings has its class. That an op raises is proof, and that it differs where it raised; nothing else is."""
    before, after = findings
    judged = only(shows(before), shows(after))
    raised_before, raised_after = (finding in {"raises", "over_alert"} for finding in findings)

    assert set(EXPECTED) == set(product(FINDING_MEANING, repeat=2))
    assert kind == class_of(before, after) == judged.kind
    if kind in CHANGES:
        proof = raised_before != raised_after and (raised_after or after == "silent")
        assert proof is judged.confirmed


def _other_inputs(planned: Planned) -> Planned:
    return planned[0], [replace(one, inputs_digest="other") for one in planned[1]]


STILL, DIFFERS, SILENT = (shows(finding) for finding in ("deterministic", "fixed_by_mode", "silent"))


@pytest.mark.parametrize(("before", "after", "kind", "proof", "detail"), table("comparisons.txt", "changes"))
def test_what_says_that_a_row_changed(before: str, after: str, kind: str, proof: str, detail: str) -> None:
    """A class; whether that is proof, or the reason why the row is not comparable though it seems so; and what is told."""
    judged, doubted = only(seen(before), seen(after)), proof not in {"true", "false", "none"}

    assert str(judged.apparent if doubted else judged.kind).lower() == kind
    assert str(judged.reason if doubted else judged.confirmed).lower() == proof
    assert (judged.kind == "not_comparable") is doubted
    assert detail in judged.detail or (detail == "none" and (doubted or not judged.detail))


@pytest.mark.parametrize(("after", "environment", "modes", "bits"), table("comparisons.txt", "bits"))
def test_other_bits(after: str, environment: str, modes: str, bits: str) -> None:
    """They are told of modes that were deterministic in both runs, by digests of one kind, of one machine."""
    pair = pair_of(run_of(STILL), run_of(seen(after), **json.loads(environment)))

    assert " ".join(pair.changes[0].other_bits) == modes.replace("none", "")
    assert "{} of {}".format(*pair.bits) == bits


def _sampled(planned: Row, first: str, sample: str, **changed: Any) -> Planned:
    """Return a deterministic row with these bits, of which its first output has this sample."""
    _, observations = seen(f"off stable {first}; on stable {first}", planned)
    (output,) = observations[0].outputs
    return planned, [replace(o, outputs=(replace(output, sample=sample),), **changed) for o in observations]


@pytest.mark.parametrize(("dtype", "old", "new", "changed", "words"), table("comparisons.txt", "samples"))
def test_samples_tell_how_far_bits_moved(dtype: str, old: str, new: str, changed: str, words: str) -> None:
    """The distance of what was sampled bounds that of the whole output from below."""
    planned, other = row("torch.sum", dtype=dtype), json.loads(changed)
    before, after = _sampled(planned, "a", old), _sampled(planned, "z", new.replace("none", ""), **other)
    change = only(before, after)
    head = "bits differ;" if words.startswith("none of") else "bits moved:"
    told = "" if other else "off, on" if words == "none" else f"off, on; {head} {words}"

    assert (change.bits_words, bool(change.moved)) == (told, words != "none")


def test_rows_are_joined_by_all_that_names_them() -> None:
    """Another case, direction or dtype is another row."""
    names: list[dict[str, Any]] = [{}, {"case": "other"}, {"direction": "backward"}, {"dtype": "float64"}]
    rows = [row("torch.cumsum", **name) for name in names]
    old = run_of(*(shows("deterministic", one) for one in rows), name="a")
    new = run_of(*(shows("silent", one) for one in reversed(rows)), name="b")

    pair = pair_of(old, new)
    assert [one.id for one in reversed(rows)] == [change.row.id for change in pair.changes]
    assert 4 == pair.counts["regressed"] == sum(change.confirmed is False for change in pair.changes)


# What measuring again makes of a change, what fails a check, and rows that a run has no finding of.


TURNS = {finding: run_of(in_turns(finding)) for finding in ("deterministic", "fixed_by_mode", "over_alert")}


def _few() -> Matrix:
    """Return a run of seven processes of two executions each."""
    few = [
        replace(one, executions=2, digests=dict.fromkeys(one.digests, 2))
        for one in in_turns("deterministic")[1]
    ]
    return run_of((PLANNED, few), settings=replace(SETTINGS, processes=7, runs=2))


WEAK, STRONG = (run_of(STILL, sentinels=sentinels(seen, 0, 1)) for seen in (1, 10))
FEW, VAIN = _few(), "measured again without result, "


SUGGEST, GONE = "the scans suggest improved", "the catalog has no such row"
BETTER, WORSE = (DIFFERS, STILL), (STILL, SILENT)  # what the scans showed


@pytest.mark.parametrize(
    ("scans", "old", "new", "kind", "confirmed", "detail"),
    [
        # Only a change that shows again when both are measured in turns is confirmed.
        (BETTER, TURNS["fixed_by_mode"], TURNS["deterministic"], "improved", True, "; measured again in turns"),
        (BETTER, TURNS["deterministic"], TURNS["deterministic"], "same", None, f"{SUGGEST}; measured again in turns"),
        (BETTER, TURNS["fixed_by_mode"], TURNS["fixed_by_mode"], "same", None, f"{SUGGEST}; measured again in turns"),
        (BETTER, TURNS["deterministic"], TURNS["fixed_by_mode"], "not_comparable", None, f"{SUGGEST}, measured again it is regressed"),
        (BETTER, TURNS["deterministic"], TURNS["over_alert"], "regressed", True, f"{SUGGEST}, measured again it is regressed"),
        # Neither run differed again: where something could race and as often as in the scans, it is the same.
        (WORSE, STRONG, STRONG, "same", None, ""),
        (WORSE, WEAK, WEAK, "regressed", False, f"{VAIN}low_power: the sentinel (torch.index_put) differed in 1 of 11"),
        (WORSE, FEW, FEW, "regressed", False, f"{VAIN}too_few_executions: on: 0 of 14, and the scans made 100 executions"),
        # In turns, one differed where the other did not: a sentinel that did not either is no excuse.
        (WORSE, *(run_of(in_turns(it), sentinels=sentinels(1, 0, 1)) for it in ("deterministic", "silent")), "regressed", True, ""),
        # A measurement that cannot be believed neither confirms nor drops anything.
        (WORSE, run_of(STILL), run_of(SILENT, distrust=("a control",)), "regressed", False, f"{VAIN}untrusted_run: run.jsonl: a control"),
        (WORSE, run_of(STILL), run_of(_other_inputs(SILENT)), "regressed", False, f"{VAIN}other_inputs: the input bits are not the same"),
        (WORSE, run_of(STILL), run_of(seen("off crash killed")), "regressed", False, f"{VAIN}no_verdict: "),
        # A row that the catalog here has no more is told.
        (WORSE, run_of(), run_of(), "regressed", False, f"; not measured again: {GONE}"),
        # One odd process is one event: a change shows in the processes as well, or stays unconfirmed.
        *(
            (WORSE, TURNS["deterministic"], run_of(in_turns("silent", odd=odd)), "regressed", odd > 5,
             "" if odd > 5 else f"on: 0 of 7 → {odd} of 7 further processes differed")
            for odd in (1, 5, 6, 7)
        ),
    ],
)  # fmt: skip
def test_what_measuring_again_makes_of_a_change(
    scans: tuple[Planned, Planned],
    old: Matrix,
    new: Matrix,
    kind: Kind,
    confirmed: bool | None,
    detail: str,
) -> None:
    """It is confirmed, dropped, or left as it was with the reason."""
    first = [run_of(one, name=name) for one, name in zip(scans, "ab", strict=True)]
    again = Again(old=old, new=new, left={} if old.rows else {PLANNED.key: GONE})
    ((judged,),) = (pair.changes for pair in compare(first, {("a", "b"): again}).pairs)

    assert (judged.kind, judged.confirmed) == (kind, confirmed)
    assert (judged.reason == "not_reproduced") is (kind == "not_comparable")
    assert detail in judged.detail
    assert (VAIN in judged.detail) == detail.startswith(VAIN) or "processes" in detail


def test_a_proved_dependence_stands_before_a_doubtful_improvement(monkeypatch: pytest.MonkeyPatch) -> None:
    """What may be chance does not hide what is proof; and each text is told, also one that begins another."""
    monkeypatch.setattr(
        "detmatrix.reports.compare.judge.dependence_change", lambda *_: ("regressed", ["batch: 1"])
    )
    row = run_of(STILL).rows[0]
    doubted = Change(old=row, new=row, kind="improved", confirmed=False, detail="batch: 1, 2")

    found = with_dependence(doubted, row, row)

    assert (found.kind, found.confirmed, found.detail) == ("regressed", True, "batch: 1, 2; batch: 1")


CAME, WENT = "batch: invariant → varies at 1 (first)", "batch: varies at 1 (first) → invariant"


@pytest.mark.parametrize(
    ("at", "again", "kind", "confirmed", "detail"),
    [
        # The flag seems to change a row, too, and that alone is measured again.
        (((), ("1 first",)), ("deterministic", "deterministic"), "regressed", True, CAME),
        (((), ("1 first",)), ("deterministic", "silent"), "regressed", True, CAME),
        (((), ("1 first",)), ("silent", "deterministic"), "regressed", False, CAME),
        ((("1 first",), ()), ("deterministic", "deterministic"), "improved", True, WENT),
        ((("1 first",), ()), ("deterministic", "silent"), "regressed", True, WENT),
        (((), ()), ("deterministic", "deterministic"), "same", None, "both show the same"),
    ],
)
def test_measuring_again_undoes_no_dependence(
    at: tuple[Any, Any],
    again: tuple[Finding, Finding],
    kind: Kind,
    confirmed: bool | None,
    detail: str,
) -> None:
    """Whether bits depend on the batch is proof by itself, and is told once whatever becomes of the rest."""
    first = [
        matrix_of(
            name,
            replace(
                run_of(one, name=name, settings=replace(SETTINGS, invariance=("batch",))).run,
                invariances=(*asked_of(PLANNED, {"batch": varies}), *ASKED_CONTROLS),
            ),
        )
        for name, one, varies in zip("ab", WORSE, at, strict=True)
    ]
    old, new = (run_of(in_turns(it), sentinels=sentinels(10, 0, 1)) for it in again)
    ((judged,),) = (
        pair.changes for pair in compare(first, {("a", "b"): Again(old=old, new=new, left={})}).pairs
    )

    assert (judged.kind, judged.confirmed) == (kind, confirmed)
    assert judged.detail.count(detail) == 1


def _seldom(differing: int, *rows: str) -> list[Planned]:
    """Return samples of which so few of twenty executions with the flag off differ that chance may have done it."""
    off = {"a": 20 - differing, **{f"b{place}": 1 for place in range(differing)}}
    names = [name.split(":") for name in rows]
    named = [replace(row(op, case), source="opinfo", provoked="samples") for op, case in names]
    return [(one, [*ran(one, "off", off), *ran(one, "on", {"a": 20})]) for one in named]


RARE, ADD = shows("silent", often=2), shows("deterministic", row("torch.add"))
OF_ONE_OP, OF_SEVERAL = (
    [name.format(place) for place in range(4)] for name in ("torch.lstsq:{}", "torch.op{}:0")
)


@pytest.mark.parametrize(
    ("old", "new", "kinds", "told"),
    [
        # 7 of 98 against 0 of 98 is not comparable, and a check that asks for regressions does not pass over it.
        ([STILL], [shows("silent", often=8)], ("regressed",),
         ["not_comparable (seems regressed): torch.Tensor.scatter_add_:", "nothing compared: "]),
        ([STILL], [shows("silent", often=8)], ("improved",), ["nothing compared: "]),
        # 1 of 98 against 0 of 98, p = 1: no check fails because of it.
        ([STILL, ADD], [RARE, ADD], CHANGES, []),
        # Four rows of an op, each of which may be chance, are no chance together, and stand above samples, which count once.
        (
            [*_seldom(4, *OF_ONE_OP), *_seldom(0, "torch.qr:same", "torch.qr:a", "torch.qr:b")],
            [*_seldom(0, *OF_ONE_OP), *_seldom(0, "torch.qr:same", "torch.qr:c", "torch.cdist:d")],
            CHANGES,
            ["improved (likely): torch.lstsq: 4 rows together: off: 16 of 76 → 0 of 76 further executions differed",
             "other samples: 2 rows added, 2 rows removed, of 2 entries"],
        ),
        ([*_seldom(4, *OF_ONE_OP), ADD], [*_seldom(0, *OF_ONE_OP), ADD], ("regressed",), []),
        # Nothing joins rows of several ops.
        ([*_seldom(4, *OF_SEVERAL), ADD], [*_seldom(0, *OF_SEVERAL), ADD], CHANGES, []),
    ],
)  # fmt: skip
def test_what_fails_a_check(
    old: list[Planned], new: list[Planned], kinds: tuple[Kind, ...], told: list[str]
) -> None:
    """A row counts as what it seems unless that is chance, rows of one op count together, other samples once."""
    failed = failures(compare([run_of(*old, name="old"), run_of(*new, name="new")]), kinds)

    assert [str(one)[: len(text)] for one, text in zip_longest(failed, told, fillvalue="")] == told


def test_rounds_suffice_for_the_test_of_processes() -> None:
    """An output that every process of one run has to itself is told from none, and there are twice the processes."""
    assert [rounds_for(SETTINGS, replace(SETTINGS, processes=n)) for n in (2, 5)] == [7, 10]
    assert [rounds_for(SETTINGS, replace(SETTINGS, processes=n), between=True) for n in (2, 9)] == [16, 18]
    # Another output in every process, and one of two algorithms in seven of sixteen.
    for outputs in ([f"{n}" for n in range(7)], ["b"] * 7 + ["a"] * 9):
        still, apart = (
            seen(f"off {json.dumps([{output: RUNS} for output in off])}; on stable")
            for off in (["a"] * len(outputs), outputs)
        )
        (old,), (new,) = run_of(still).rows, run_of(apart).rows

        assert (judge(old, new).kind, judge(old, new).confirmed) == ("regressed", False)
        assert few_processes(old, new) is None


# Whether two rates differ: the exact test against brute force, and what is counted.


def _brute_force(one: Rate, other: Rate) -> Fraction:
    """Return the p-value from the choice of every single table with these margins, in exact fractions."""
    total = one.differing + other.differing
    tables = math.comb(one.compared + other.compared, total)
    weights = {
        k: Fraction(math.comb(one.compared, k) * math.comb(other.compared, total - k), tables)
        for k in range(total + 1)
    }
    assert sum(weights.values()) == 1
    return sum((weight for weight in weights.values() if weight <= weights[one.differing]), Fraction())


def test_every_small_table_is_exact() -> None:
    """For every two samples of up to nine the p-value is the one that counting all tables gives."""
    rates = [Rate(k, n) for n in range(10) for k in range(n + 1)]
    for one, other in product(rates, repeat=2):
        weighed = _brute_force(one, other)
        assert fisher(one, other) == float(weighed), (one, other)


@pytest.mark.parametrize(
    ("one", "other", "p"),
    [
        (Rate(1, 12), Rate(9, 12), 0.002759456185220083),  # "studying", of the usual textbook example
        (Rate(1, 98), Rate(0, 98), 1.0),
        (Rate(98, 98), Rate(0, 98), 2 / math.comb(196, 98)),
        # A file may hold any number; what it proves does not grow with it, and it takes no time.
        (Rate(10**18, 10**18), Rate(0, 10**18), 0.0),
        (Rate(1, 10**18), Rate(0, 10**18), 1.0),
    ],
)
def test_known_values(one: Rate, other: Rate, p: float) -> None:
    """Values that are known from elsewhere, in either order."""
    assert fisher(one, other) == pytest.approx(p, rel=1e-12)
    assert fisher(one, other) == fisher(other, one)


@pytest.mark.parametrize(("processes", "unit", "rate"), table("comparisons.txt", "counted"))
def test_what_is_counted(processes: str, unit: str, rate: str) -> None:
    """Executions of a process are held against its most frequent output; where none differ, processes are."""
    outputs = json.loads(processes)
    test = rate_test("off", ran(PLANNED, "off", *outputs), ran(PLANNED, "off", *[{"a": RUNS}] * len(outputs)))

    assert (test.unit, str(test.old), test.new.differing) == (unit, rate, 0)


# --- The cost of the flag in two runs: ratios within each, told apart or not.

TIMED = cost(PLANNED, 1e-5, 1e-5)
WIDE = cost(PLANNED, 1e-5, 2e-5)
WIDE = replace(WIDE, on=replace(WIDE.on, low=0.9e-5))  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("before", "after", "shown", "environment", "rows", "factor"),
    [
        (TIMED, cost(PLANNED, 1e-5, 3e-5), STILL, {}, 1, 3.0),  # a cost that came
        (cost(PLANNED, 1e-5, 3e-5), TIMED, STILL, {}, 1, 1 / 3),  # one that went
        (cost(PLANNED, 1e-5, 3e-5), cost(PLANNED, 7e-5, 21e-5), STILL, {}, 1, None),  # slower in all, at the same ratio
        (TIMED, cost(PLANNED, 1e-5, 1.45e-5), STILL, {}, 1, None),  # not by more than 1.5 times
        (TIMED, cost(PLANNED, 1e-5, 1.6e-5), STILL, {}, 1, 1.6),
        # Quartiles so wide that both runs could have one ratio are no change of cost.
        (TIMED, WIDE, STILL, {}, 1, None),
        # Ratios of other inputs or on another machine are not held against each other.
        (TIMED, cost(PLANNED, 1e-5, 9e-5), _other_inputs(STILL), {}, 0, None),
        (TIMED, cost(PLANNED, 1e-5, 9e-5), STILL, {"cpu": "Other"}, None, None),
    ],
)  # fmt: skip
def test_cost_is_compared_as_ratios(
    before: Cost,
    after: Cost,
    shown: Planned,
    environment: dict[str, Any],
    rows: int | None,
    factor: float | None,
) -> None:
    """A row is listed if its ratio changed by more than 1.5 times, whatever the times, and is told apart."""
    found = pair_of(run_of(STILL, costs=[before]), run_of(shown, costs=[after], **environment)).cost

    assert (found and found["rows"]) == rows
    assert [one["factor"] for one in (found.listed if found else ())] == [pytest.approx(factor)] * (
        factor is not None
    )
