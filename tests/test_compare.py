"""What became of a row from one run to the next: the table of findings, and the evidence a change needs."""

from __future__ import annotations

from itertools import product
from typing import Any, get_args

import pytest
from msgspec.structs import replace

from reports.compare.comparable import REASON_MEANING, Reason
from reports.compare.judge import CHANGES, CLASS_MEANING, Change, Kind, class_of
from reports.compare.page import timelines
from reports.compare.runs import compare
from reports.matrix.model import load, matrix_of
from scanner.errors import UsageError
from scanner.observations.records import MODES, Observation, Row
from scanner.verdicts.vocabulary import FINDING_MEANING, Finding
from tests.compared import OFTEN, pair_of, run_of, shows
from tests.runs import (
    ENVIRONMENT,
    PROCESSES,
    RUNS,
    SETTINGS,
    Planned,
    drifting,
    ended,
    raised,
    ran,
    row,
    stable,
)

RECORDED = ("reports/runs/torch-2.13.0-cpu.jsonl.gz", "reports/runs/torch-2.15.0-cpu.jsonl.gz")
FINDINGS: tuple[Finding, ...] = (
    "silent",
    "raises",
    "over_alert",
    "fixed_by_mode",
    "uninitialized",
    "mode_dependent",
    "deterministic",
    "order_dependent",
    "inconclusive",
)
# Before, downwards; after, to the right. s same, i improved, r regressed, c changed, ? not comparable.
TABLE = """
s i i i i i i ? ?
r s i i i i i ? ?
r r s i i i i ? ?
r r r s s i i ? ?
r r r s s i i ? ?
r r r r r s c ? ?
r r r r r c s ? ?
? ? ? ? ? ? ? s ?
? ? ? ? ? ? ? ? s
"""
LETTERS: dict[str, Kind] = {
    "s": "same",
    "i": "improved",
    "r": "regressed",
    "c": "changed",
    "?": "not_comparable",
}
EXPECTED: dict[tuple[Finding, Finding], Kind] = {
    (before, after): LETTERS[letter]
    for (before, after), letter in zip(product(FINDINGS, FINDINGS), TABLE.split(), strict=True)
}
PLANNED = row("torch.Tensor.scatter_add_")
PUT = ":func:`torch.Tensor.put_`"
OTHER = shows("deterministic", row("torch.cumsum"))


def only(old: Planned, new: Planned) -> Change:
    """Return what became of the one row of two runs that are alike."""
    (change,) = pair_of(run_of(old, name="a"), run_of(new, name="b")).changes
    return change


@pytest.mark.parametrize(("findings", "kind"), EXPECTED.items())
def test_table_of_findings(findings: tuple[Finding, Finding], kind: Kind) -> None:
    """Every pair of findings has its class, and rows that differ often enough have the class of their findings."""
    assert set(FINDINGS) == set(FINDING_MEANING)
    assert kind == class_of(*findings)
    assert kind == only(shows(findings[0]), shows(findings[1])).kind


def test_words_are_explained() -> None:
    """Each class and each reason has its sentence."""
    assert set(get_args(Kind)) == set(CLASS_MEANING)
    assert set(get_args(Reason)) == set(REASON_MEANING)


@pytest.mark.parametrize("findings", [pair for pair, kind in EXPECTED.items() if kind in CHANGES])
def test_only_an_alert_is_proof_by_itself(findings: tuple[Finding, Finding]) -> None:
    """That an op raises is proof, and that it differs where it raised; whatever else seems to have changed is not."""
    raised_before, raised_after = (finding in {"raises", "over_alert"} for finding in findings)
    change = only(shows(findings[0]), shows(findings[1]))
    proof = raised_before != raised_after and (raised_after or findings[1] == "silent")

    assert proof is change.judged.confirmed


def test_the_fill_and_the_flag_are_told_apart_where_both_runs_did() -> None:
    """That one scan never asked what the fill cures is no change; that it cures another row than before is one."""
    asked = *shows("fixed_by_mode")[1], *ran(PLANNED, "unfilled", *stable())
    filled = PLANNED, shows("uninitialized")[1]

    assert only(shows("fixed_by_mode"), filled).kind == "same"
    change = only((PLANNED, asked), filled)
    assert (change.kind, change.judged.confirmed) == ("changed", False)
    assert change.judged.detail == "fill off: deterministic → nondeterministic"


@pytest.mark.parametrize("finding", FINDINGS)
def test_one_run_twice_is_the_same(finding: Finding) -> None:
    """Nothing changed between a run and itself, and nothing is left to confirm."""
    change = only(shows(finding), shows(finding))

    assert (change.kind, change.judged.confirmed, change.judged.reason) == ("same", None, None)
    assert change.other_bits == ()


@pytest.mark.parametrize(("before", "after"), [("fixed_by_mode", "deterministic"), ("silent", "over_alert")])
@pytest.mark.parametrize("turned", [False, True])
def test_a_rare_difference_may_have_been_missed(before: Finding, after: Finding, *, turned: bool) -> None:
    """7 of 98 against 0 of 98 is chance enough, in either direction, unless an alert tells."""
    pair = [shows(before, often=8), shows(after)]
    change = only(*(reversed(pair) if turned else pair))

    if before == "silent":
        assert ("regressed" if turned else "improved", True) == (change.kind, change.judged.confirmed)
    else:
        assert (change.kind, change.judged.reason) == ("not_comparable", "too_few_executions")
        assert ("regressed" if turned else "improved") == change.judged.apparent
        assert "p = 0.014" in change.judged.detail


@pytest.mark.parametrize("turned", [False, True])
def test_processes_that_disagree_are_one_event(*, turned: bool) -> None:
    """A process that chose another algorithm counts once, however often it executed: the other run may have missed it."""
    once = (PLANNED, [*ran(PLANNED, "off", {"a": RUNS}, {"b": RUNS}), *ran(PLANNED, "on", *stable())])
    pair = [once, shows("deterministic")]
    change = only(*(reversed(pair) if turned else pair))

    assert (change.kind, change.judged.reason) == ("not_comparable", "too_few_executions")


def test_differing_rates_are_no_change() -> None:
    """A rate that is another than before is told, and the row stays what it is."""
    change = only(shows("fixed_by_mode", often=OFTEN), shows("fixed_by_mode", often=45))

    assert change.kind == "same"
    assert "rates differ, off: 19 of 98 → 44 of 98" in change.judged.detail


def test_equal_rates_are_not_told_apart() -> None:
    """19 of 98 and 21 of 98 may be one rate; nothing is said of it."""
    change = only(shows("fixed_by_mode", often=20), shows("fixed_by_mode", often=22))

    assert (change.kind, change.judged.detail) == ("same", "")


def test_other_bits_are_no_change() -> None:
    """Versions may compute other bits, both deterministically."""
    both = [o for mode in MODES for o in ran(PLANNED, mode, *stable("z"))]
    change = only(shows("deterministic"), (PLANNED, both))

    assert (change.kind, change.other_bits) == ("same", MODES)


@pytest.mark.parametrize(("bits", "cpu"), [("2:z", ENVIRONMENT.cpu), ("z", "Another CPU")])
def test_other_bits_take_digests_of_one_kind_and_one_machine(bits: str, cpu: str) -> None:
    """Digests of another kind, as older run files have, and bits of another CPU say nothing of the release."""
    both = [o for mode in MODES for o in ran(PLANNED, mode, *stable(bits))]
    (change,) = pair_of(run_of(shows("deterministic")), run_of((PLANNED, both), cpu=cpu)).changes

    assert change.other_bits == ()


def _bits_of(planned: Row, first: str, sample: str, **changed: Any) -> Planned:
    """Return a deterministic row with these bits, of which its first output has this sample."""
    observations = [o for mode in MODES for o in ran(planned, mode, *stable(first))]
    (output,) = observations[0].outputs
    return planned, [replace(o, outputs=(replace(output, sample=sample),), **changed) for o in observations]


@pytest.mark.parametrize(
    ("dtype", "old", "new", "words"),
    [
        ("float32", "3f800000 40000000", "3f800003 40000000", "at least 3 ULP in 2 sampled numbers"),
        # Either side of zero, which both zeros are.
        ("float32", "00000002 80000000", "80000001 00000000", "at least 3 ULP in 2 sampled numbers"),
        ("bfloat16", "3f80", "3f7f", "at least 1 ULP in 1 sampled number"),
        ("complex128", "3ff0000000000000", "3ff0000000000010", "at least 16 ULP in 1 sampled number"),
        ("float32", "7fc00000 3f800000", "3f800000 3f800000", "1 of 2 sampled numbers moved"),
        ("float32", "80000000", "00000000", "1 of 1 sampled number moved"),
        ("int64", "0000000000000001 0000000000000002", "0000000000000007 0000000000000002",
         "1 of 2 sampled numbers moved"),
        ("float32", "3f800000", "3f800000", "0 of 1 sampled number moved"),
    ],
)  # fmt: skip
def test_samples_tell_how_far_bits_moved(dtype: str, old: str, new: str, words: str) -> None:
    """The distance of what was sampled bounds that of the whole output from below, and integers have none."""
    planned = row("torch.sum", dtype=dtype)
    change = only(_bits_of(planned, "a", old), _bits_of(planned, "z", new))

    assert change.bits_words == f"off, on; bits moved: {words}"


@pytest.mark.parametrize(
    ("sample", "changed"),
    [("", {}), ("3f800000 3f800000", {}), ("3f800003", {"inputs_digest": "j" * 8})],
)
def test_nothing_is_said_of_how_far_without_samples_of_the_same_inputs(
    sample: str, changed: dict[str, Any]
) -> None:
    """Older run files have no samples; a sample of another length or of other inputs is no other one of the same."""
    change = only(_bits_of(PLANNED, "a", "3f800000"), _bits_of(PLANNED, "z", sample, **changed))

    assert change.moved == {}
    assert "moved" not in change.bits_words


def test_bits_of_what_differs_are_not_counted() -> None:
    """Of a nondeterministic mode the first output is one of many."""
    other = (PLANNED, [*ran(PLANNED, "off", {"z": 30, "y": 20}), *ran(PLANNED, "on", *stable())])

    assert only(shows("fixed_by_mode"), other).other_bits == ()


def test_another_alert_caller_is_a_change() -> None:
    """The caller is text of the build, so that one scan of each is proof."""
    other = (PLANNED, [*ran(PLANNED, "off", *drifting(OFTEN)), *raised(PLANNED, "on", "other_kernel")])
    change = only(shows("raises"), other)

    assert (change.kind, change.judged.confirmed) == ("changed", True)
    assert "scatter_add_kernel → other_kernel" in change.judged.detail


def _forced(*alerts: str, often: int | None = None) -> Planned:
    """Return a row that is deterministic with the flag off, raises, and runs under warn_only."""
    outputs = drifting(often) if often else stable()
    made_to_run = ran(PLANNED, "warn_only", *outputs, alerts=alerts)
    return PLANNED, [*shows("over_alert")[1], *made_to_run]


def test_an_alert_behind_the_first_is_a_change() -> None:
    """What an op raises next under warn_only is an alert too."""
    change = only(
        _forced("scatter_add_kernel", often=OFTEN), _forced("scatter_add_kernel", "next", often=OFTEN)
    )

    assert (change.kind, change.judged.confirmed) == ("changed", True)


def test_alerts_behind_the_first_need_both_runs() -> None:
    """A run that made no op run saw only the alert that ended it."""
    assert only(shows("over_alert"), _forced("scatter_add_kernel", "next")).kind == "same"


def test_an_alert_without_need_is_told_by_the_op_made_to_run() -> None:
    """An op that differs under warn_only, and does not in the other version, is better there."""
    change = only(_forced(often=OFTEN), _forced())

    assert (change.kind, change.judged.confirmed) == ("improved", False)
    assert "warn_only: 19 of 98 → 0 of 98" in change.judged.detail


def test_a_scan_that_made_nothing_run_cannot_tell() -> None:
    """An early scan, which made no op run, does not contradict one that saw it differ when it was."""
    change = only(_forced(often=OFTEN), shows("over_alert"))

    assert (
        change.kind,
        change.judged.reason,
        change.judged.apparent,
    ) == ("not_comparable", "warn_only_missing", "improved")


def _without(message: str) -> Planned:
    return PLANNED, ended(PLANNED, "off", "not_run", message)


def test_no_verdict_is_not_comparable() -> None:
    """An op that a torch lacks has no finding to compare; what is certain of the flag on is told."""
    change = only(_without("torch 2.1.2 has no new_op"), shows("silent"))

    assert (change.kind, change.judged.reason, change.judged.apparent) == (
        "not_comparable",
        "no_verdict",
        None,
    )
    assert "has no new_op" in change.judged.detail
    assert "after, flag on: nondeterministic" in change.judged.detail


def test_no_verdict_in_either_is_the_same_only_in_the_same_way() -> None:
    """An op that neither version has did not change; one that crashes where it timed out may have."""
    slow = (PLANNED, ended(PLANNED, "off", "timeout", "stopped after 60 s"))

    assert only(_without("torch 2.1.2 lacks it"), _without("torch 2.2.2 lacks it")).kind == "same"
    assert only(_without("torch 2.1.2 lacks it"), slow).kind == "not_comparable"


def _executed(n: int) -> Planned:
    return PLANNED, [o for mode in MODES for o in ran(PLANNED, mode, *[{"a": n // PROCESSES}] * PROCESSES)]


@pytest.mark.parametrize(("n", "kind"), [(100, "same"), (20, "same"), (10, "not_comparable")])
def test_far_fewer_executions_are_not_comparable(n: int, kind: Kind) -> None:
    """0 of 10 leaves rates plausible that 0 of 100 excludes by far; 0 of 20 is of the same order."""
    for change in (only(_executed(100), _executed(n)), only(_executed(n), _executed(100))):
        assert kind == change.kind
        assert ("fewer_executions" if n == 10 else None) == change.judged.reason


def test_rows_are_joined_by_all_that_names_them() -> None:
    """Another case, direction or dtype is another row."""
    names: list[dict[str, Any]] = [{}, {"case": "other"}, {"direction": "backward"}, {"dtype": "float64"}]
    rows = [row("torch.cumsum", **name) for name in names]
    old = run_of(*(shows("deterministic", one) for one in rows), name="a")
    new = run_of(*(shows("silent", one) for one in reversed(rows)), name="b")

    pair = pair_of(old, new)
    assert [one.id for one in reversed(rows)] == [change.row.row.id for change in pair.changes]
    assert 4 == pair.counts["regressed"] == pair.unconfirmed


def test_each_run_is_compared_with_the_one_before_it_on_its_device() -> None:
    """Runs on CPU and CUDA given in any order make pairs of like devices; one that is alone is named."""
    cuda = replace(SETTINGS, device="cuda:0")
    runs = [
        run_of(shows("deterministic"), name=name, settings=settings, gpu="H100")
        for name, settings in (("a", SETTINGS), ("b", cuda), ("c", SETTINGS), ("d", SETTINGS))
    ]
    comparison = compare(runs)

    assert [(pair.old.name, pair.new.name) for pair in comparison.pairs] == [("a", "c"), ("c", "d")]
    assert [one.name for one in comparison.alone] == ["b"]
    with pytest.raises(UsageError, match="a is of CPU, b is of CUDA"):
        compare(runs[:2])


def test_timeline() -> None:
    """Of three versions the rows that changed are told in each of them, those that changed most first."""
    add, put, take, new = (row(name) for name in ("torch.add", "torch.put", "torch.take", "torch.new"))
    first = run_of(shows("raises", add), shows("silent", put), shows("raises", take), name="a")
    second = run_of(shows("raises", add), shows("raises", put), shows("raises", take), name="b")
    third = run_of(
        shows("fixed_by_mode", add),
        shows("deterministic", put),
        shows("raises", take),
        shows("raises", new),
        name="c",
    )
    (timeline,) = timelines(compare([first, second, third]))

    assert len(timeline.rows) - len(timeline.differing) == 1
    assert [
        (one.row.row.spec, one.changed, [cell and cell.finding for cell in one.cells])
        for one in timeline.differing
    ] == [
        ("torch.put", 2, ["silent", "raises", "deterministic"]),
        ("torch.add", 1, ["raises", "raises", "fixed_by_mode"]),
        ("torch.new", 1, [None, None, "raises"]),
    ]
    assert [len(one.pairs) for one in timelines(compare([first, second]))] == [1]


def test_recorded_runs_are_the_same() -> None:
    """Two scans of two releases show no change and no false alarm."""
    pair = pair_of(*load(RECORDED))
    rows = len(pair.new.rows)

    assert {kind: count for kind, count in pair.counts.items() if count} == {"same": rows}
    assert pair.unconfirmed == 0
    # Linear interpolation gives other bits in 2.15.
    assert "torch.nn.functional.interpolate:linear_large:forward:float32" in [
        change.row.row.id for change in pair.changes if change.other_bits
    ]
    assert "other_device" in {one.measured for one in pair.claims}
    assert pair.cost is not None
    # All but those that raise.
    assert pair.cost["rows"] == rows - sum(row.on.verdict == "raises" for row in pair.new.rows)


def test_a_regression_planted_in_a_recorded_run_is_found() -> None:
    """Of all rows the one that became silent and the one that began to raise are told, and no other."""
    old, new = load(RECORDED)
    still = next(
        one.row for one in new.rows if one.finding == "deterministic" and one.row.spec == "torch.cumsum"
    )
    differs = next(one.row for one in new.rows if one.finding == "fixed_by_mode")
    kept = []
    for one in new.run.observations:
        if (one.key, one.mode) == (still.key, "on"):
            digest = next(iter(one.digests))
            kept.append(replace(one, digests={digest: 40, "other": 10}))
        elif (one.key, one.mode) == (differs.key, "on"):
            kept.append(_raising(one))
        else:
            kept.append(one)
    pair = pair_of(old, matrix_of(new.name, replace(new.run, observations=tuple(kept))))

    assert {(still.key, False), (differs.key, True)} == {
        (change.row.row.key, change.judged.confirmed) for change in pair.of("regressed")
    }
    assert pair.counts["same"] == pair_of(old, new).counts["same"] - 2


def _raising(one: Observation) -> Observation:
    text = raised(row(one.spec, one.case, one.direction, one.dtype), "on", "planted")[one.process]
    return replace(text, inputs_digest=one.inputs_digest)
