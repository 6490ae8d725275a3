"""What became of a row from one run to the next: the table of findings, and the evidence a change needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, get_args

import pytest
from msgspec.structs import replace

from reports.compare import compare, timelines
from reports.compare_again import Again, confirm, open_to_doubt
from reports.compare_circumstances import REASON_MEANING, Reason
from reports.compare_rows import CHANGES, CLASS_MEANING, Change, Judged, Kind, class_of, judge
from reports.compare_html import render as html
from reports.compare_markdown import render as markdown
from reports.compare_words import failing, notes
from reports.matrix import Matrix, load, matrix_of
from scanner.errors import UsageError
from scanner.claims import parse_claims
from scanner.records import MODES, Claim, Observation
from scanner.verdicts import FINDING_MEANING, Finding
from tests.compared import OFTEN, SETTINGS, in_turns, pair_of, run_of, shows
from tests.documented import docstring
from tests.evidence_runs import cost, sentinel
from tests.runs import ENVIRONMENT, PROCESSES, RUNS, Planned, drifting, ended, raised, ran, row, stable

RECORDED = ("reports/runs/torch-2.13.0-cpu.jsonl.gz", "reports/runs/torch-2.15.0-cpu.jsonl.gz")
FINDINGS: tuple[Finding, ...] = (
    "silent",
    "raises",
    "over_alert",
    "fixed_by_mode",
    "mode_dependent",
    "deterministic",
    "inconclusive",
)
# Before, downwards; after, to the right. s same, i improved, r regressed, c changed, ? not comparable.
TABLE = """
s i i i i i ?
r s i i i i ?
r r s i i i ?
r r r s i i ?
r r r r s c ?
r r r r c s ?
? ? ? ? ? ? s
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


@pytest.mark.parametrize("after", ["deterministic", "silent"])
def test_an_alert_that_stopped_may_hide_a_rare_difference(after: Finding) -> None:
    """0 of 100 is no proof that an op which no longer raises runs deterministically: it is measured again."""
    change = only(shows("raises"), shows("deterministic"))
    joined = confirm(change.judged, _judged(shows("raises"), shows(after)))

    assert (change.kind, change.judged.confirmed, open_to_doubt(change)) == ("improved", False, True)
    assert "no longer raises, which is proof; that it does not differ rests on 0 of 100" in change.judged.detail
    assert (joined.kind, joined.confirmed) == ("improved" if after == "deterministic" else "regressed", True)


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
        assert ("regressed" if turned else "improved") == change.judged.seems
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
    """Return a row that is deterministic with the flag off, raises, and is made to run."""
    outputs = drifting(often) if often else stable()
    made_to_run = ran(PLANNED, "warn_only", *outputs, alerts=alerts)
    return PLANNED, [*shows("over_alert")[1], *made_to_run]


def test_an_alert_behind_the_first_is_a_change() -> None:
    """What an op raises next when it is made to run is an alert too."""
    change = only(
        _forced("scatter_add_kernel", often=OFTEN), _forced("scatter_add_kernel", "next", often=OFTEN)
    )

    assert (change.kind, change.judged.confirmed) == ("changed", True)


def test_alerts_behind_the_first_need_both_runs() -> None:
    """A run that made no op run saw only the alert that ended it."""
    assert only(shows("over_alert"), _forced("scatter_add_kernel", "next")).kind == "same"


def test_an_alert_without_need_is_told_by_the_op_made_to_run() -> None:
    """An op that differs when it is made to run, and does not in the other version, is better there."""
    change = only(_forced(often=OFTEN), _forced())

    assert (change.kind, change.judged.confirmed) == ("improved", False)
    assert "warn_only: 19 of 98 → 0 of 98" in change.judged.detail


def test_a_scan_that_made_nothing_run_cannot_tell() -> None:
    """An early scan, which made no op run, does not contradict one that saw it differ when it was."""
    change = only(_forced(often=OFTEN), shows("over_alert"))

    assert (
        change.kind,
        change.judged.reason,
        change.judged.seems,
    ) == ("not_comparable", "not_made_to_run", "improved")


def _without(message: str) -> Planned:
    return PLANNED, ended(PLANNED, "off", "not_run", message)


def test_no_verdict_is_not_comparable() -> None:
    """An op that a torch lacks has no finding to compare; what is certain of the flag on is told."""
    change = only(_without("torch 2.1.2 has no new_op"), shows("silent"))

    assert (change.kind, change.judged.reason, change.judged.seems) == ("not_comparable", "no_verdict", None)
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


def _weak(*rows: Planned, name: str, claims: Sequence[Claim] = ()) -> Matrix:
    """Return a run whose sentinels hardly differed."""
    seen = [
        sentinel(mode, process, before, differing=1)
        for mode in MODES
        for process in range(PROCESSES)
        for before in (0, len(rows))
    ]
    return run_of(*rows, name=name, sentinels=seen, claims=claims)


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
        assert change.judged.seems is None
        assert not open_to_doubt(change)


def test_two_runs_of_low_power_compare_nothing() -> None:
    """Two scans in which nothing could race agree in all rows, which no check takes for proof."""
    listed = (parse_claims(docstring([], [PUT])), parse_claims(docstring([PUT], [])))
    still = shows("deterministic", row("torch.Tensor.put_"))
    comparison = compare([_weak(still, name=name, claims=of) for name, of in zip("ab", listed, strict=True)])
    (pair,) = comparison.pairs

    assert pair.compared == 0
    assert [line.partition(":")[0] for line in failing(comparison, ("regressed",))] == ["nothing compared"]
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
    seems = None if after == "deterministic" else "improved" if turned else "regressed"
    assert seems == change.judged.seems


def test_places_of_libraries_do_not_matter() -> None:
    """Two environments on one machine find their libraries elsewhere."""
    variables = {
        mode: {**values, "LD_LIBRARY_PATH": "/elsewhere"} for mode, values in ENVIRONMENT.variables.items()
    }
    pair = pair_of(
        run_of(shows("raises"), name="a"),
        run_of(shows("raises"), name="b", variables=variables, os="Linux 6.2"),
    )

    assert (pair.counts["same"], pair.obstacles) == (1, ())


def test_a_gpu_is_compared_with_the_same_gpu() -> None:
    """On CUDA the GPU must be the same, and the CPU and its threads need not."""
    settings = replace(SETTINGS, device="cuda:0")
    planned = row("torch.Tensor.scatter_add_", device="cuda:0")
    rows = shows("fixed_by_mode", planned)
    old, same, other = (
        run_of(rows, name=name, settings=settings, gpu=gpu, cpu=name, threads=threads)
        for name, gpu, threads in (("a", "H100", 2), ("b", "H100", 8), ("c", "H200", 2))
    )

    assert pair_of(old, same).counts["same"] == 1
    assert pair_of(old, other).changes[0].judged.reason == "other_device"


def test_another_driver_or_detmatrix_is_told() -> None:
    """What may explain a change and is no obstacle stands among the notes; on a CPU the driver is no matter."""

    def made(name: str, driver: str, tool: str, device: str) -> Matrix:
        settings = replace(SETTINGS, device=device)
        one = run_of(shows("raises"), name=name, settings=settings, gpu="H100", driver=driver)
        return replace(one, run=replace(one.run, header=replace(one.run.header, tool=tool)))

    def told(device: str, *made_with: str) -> list[str]:
        comparison = compare([made("a", "550", "0.1.0", device), made("b", *made_with, device)])
        assert comparison.pairs[0].counts["same"] == 1
        return [note for note in notes(comparison) if "another" in note]

    end = "; changes may be due to that."
    assert told("cuda:0", "550", "0.1.0") == []
    assert told("cuda:0", "570", "0.1.0") == [f"a → b: the driver was another, 550 → 570{end}"]
    assert told("cpu", "570", "0.2.0") == [f"a → b: detmatrix was another, 0.1.0 → 0.2.0{end}"]


def test_rows_of_one_run_alone() -> None:
    """A row that only one run planned was added or removed; one that a scan was not asked for is no such thing."""
    planned = shows("deterministic"), shows("raises", row("torch.Tensor.put_"))
    both, one = run_of(*planned, name="a"), run_of(planned[0], name="b")
    asked = run_of(planned[0], name="b", settings=replace(SETTINGS, patterns=("scatter*",)))

    assert [change.kind for change in pair_of(both, one).changes] == ["same", "removed"]
    assert [change.kind for change in pair_of(one, both).changes] == ["same", "added"]
    for pair in (pair_of(both, asked), pair_of(asked, both)):
        assert [change.judged.reason for change in pair.changes] == [None, "not_asked_for"]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"sources": ("documented", "opinfo")}, "--source documented and not documented,opinfo"),
        ({"samples": 3}, "--samples 0 and not 3"),
        ({"dtypes": ("all",)}, "--dtypes none and not all"),
        ({"specs": ("mine.py",)}, "--specs none and not mine.py"),
    ],
)
def test_rows_that_one_scan_was_not_asked_for_are_not_added(settings: dict[str, Any], told: str) -> None:
    """Another choice of sources, samples, dtypes or files plans other rows, and no torch added them."""
    rows = shows("deterministic"), shows("raises", row("torch.Tensor.put_"))
    few, many = run_of(rows[0], name="few"), run_of(*rows, name="many", settings=replace(SETTINGS, **settings))

    for pair in (pair_of(few, many), pair_of(many, few)):
        judged = pair.changes[1].judged
        assert (judged.kind, judged.reason) == ("not_comparable", "not_asked_for")
        assert judged.detail == f"few is a scan with {told}"


def test_a_folder_of_specs_is_no_other_choice() -> None:
    """The same file of specs from elsewhere is the same."""
    runs = [
        run_of(*rows, name=name, settings=replace(SETTINGS, specs=(f"/{name}/mine.py",)))
        for name, rows in (("a", [shows("raises")]), ("b", [shows("raises"), OTHER]))
    ]

    assert pair_of(*runs).counts["added"] == 1


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
    with pytest.raises(UsageError, match="a is of cpu, b is of cuda"):
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


def _judged(old: Planned, new: Planned) -> Judged:
    (before,), (after,) = run_of(old, name="a").rows, run_of(new, name="b").rows
    return judge(before, after)


DETERMINISTIC, DIFFERS = shows("deterministic"), shows("fixed_by_mode")


@pytest.mark.parametrize(
    ("again", "expected"),
    [
        ((DIFFERS, DETERMINISTIC), ("improved", True, None)),
        ((DETERMINISTIC, DETERMINISTIC), ("same", None, None)),
        ((DIFFERS, DIFFERS), ("same", None, None)),
        ((DETERMINISTIC, DIFFERS), ("not_comparable", None, "not_reproduced")),
        ((shows("fixed_by_mode", often=3), DETERMINISTIC), ("improved", False, None)),
    ],
)
def test_measuring_again_decides(again: tuple[Planned, Planned], expected: tuple[object, ...]) -> None:
    """Only a change that shows again when both are measured in turns is confirmed."""
    first = _judged(DIFFERS, DETERMINISTIC)
    joined = confirm(first, _judged(*again))

    assert (first.kind, first.confirmed) == ("improved", False)
    assert expected == (joined.kind, joined.confirmed, joined.reason)


@pytest.mark.parametrize(
    "again",
    [(DETERMINISTIC, shows("silent", often=3)), (DIFFERS, DETERMINISTIC)],
    ids=["too few", "the reverse"],
)
def test_measuring_again_undoes_no_difference_that_was_seen(again: tuple[Planned, Planned]) -> None:
    """19 of 98 against 0 of 98, then 2 of 98 against 0 of 98, or the reverse: no check for regressions passes."""
    old, new = run_of(DETERMINISTIC, name="a"), run_of(shows("silent"), name="b")
    measured = Again(old=run_of(again[0]), new=run_of(again[1]), left={})
    comparison = compare([old, new], {("a", "b"): measured})
    (change,) = comparison.pairs[0].changes

    assert (change.kind, change.judged.confirmed) == ("regressed", False)
    assert "19 of 98" in change.judged.detail
    assert len(list(failing(comparison, ("regressed",)))) == 1


def test_a_check_counts_what_a_row_seems() -> None:
    """7 of 98 against 0 of 98 is not comparable, and a check that asks for regressions does not pass over it."""
    comparison = compare([run_of(DETERMINISTIC, name="a"), run_of(shows("silent", often=8), name="b")])
    told = list(failing(comparison, ("regressed",)))

    assert len(told) == 2  # nothing else was compared either
    assert told[0].startswith("not_comparable (seems regressed): torch.Tensor.scatter_add_:")
    assert not any("seems" in line for line in failing(comparison, ("improved",)))


def test_measuring_again_reaches_the_pair() -> None:
    """What was measured again is taken by the names of the runs and of the row, also where the scans saw too little."""
    old, new = run_of(shows("fixed_by_mode", often=3), name="a"), run_of(DETERMINISTIC, name="b")
    again = Again(old=run_of(in_turns("fixed_by_mode")), new=run_of(in_turns("deterministic")), left={})
    comparison = compare([old, new], {("a", "b"): again})

    assert (
        comparison.pairs[0].changes[0].kind,
        comparison.pairs[0].changes[0].judged.confirmed,
    ) == ("improved", True)
    assert pair_of(old, new).changes[0].kind == "not_comparable"


def _timed(off: float, on: float, *, name: str, **environment: Any) -> Matrix:
    return run_of(DETERMINISTIC, name=name, costs=[cost(PLANNED, off, on)], **environment)


@pytest.mark.parametrize(
    ("before", "after", "factor"),
    [
        ((1e-5, 1e-5), (1e-5, 3e-5), 3.0),  # a cost that came
        ((1e-5, 3e-5), (1e-5, 1e-5), 1 / 3),  # one that went
        ((1e-5, 3e-5), (7e-5, 21e-5), None),  # slower in all, at the same ratio
        ((1e-5, 1e-5), (1e-5, 1.45e-5), None),  # not by more than 1.5 times
        ((1e-5, 1e-5), (1e-5, 1.6e-5), 1.6),
    ],
)
def test_cost_is_compared_as_ratios(
    before: tuple[float, float], after: tuple[float, float], factor: float | None
) -> None:
    """A row is listed if its ratio changed by more than 1.5 times, whatever the times."""
    found = pair_of(_timed(*before, name="a"), _timed(*after, name="b")).cost

    assert found is not None
    assert found.rows == 1
    assert [pytest.approx(factor)] * (factor is not None) == [one.factor for one in found.listed]


def test_cost_needs_ratios_told_apart_from_their_spread() -> None:
    """Quartiles so wide that both runs could have one ratio are no change of cost."""
    wide = replace(cost(PLANNED, 1e-5, 2e-5), on=replace(cost(PLANNED, 2e-5, 2e-5).on, low=0.9e-5))  # type: ignore[type-var]
    found = pair_of(_timed(1e-5, 1e-5, name="a"), run_of(DETERMINISTIC, name="b", costs=[wide])).cost

    assert found is not None
    assert (found.rows, found.listed) == (1, ())


def test_cost_that_changed_is_unconfirmed() -> None:
    """A ratio that grew is said to seem so, since each run timed the row once."""
    comparison = compare([_timed(1e-5, 1e-5, name="a"), _timed(1e-5, 3e-5, name="b")])

    for text in ("".join(markdown(comparison)), "".join(html(comparison))):
        assert "1 seem to have changed, by one timing of each run (unconfirmed)." in text


def test_cost_needs_the_same_hardware_and_inputs() -> None:
    """Ratios on another machine or of other inputs are not held against each other."""
    other = run_of(_other_inputs(DETERMINISTIC), name="b", costs=[cost(PLANNED, 1e-5, 9e-5)])
    found = pair_of(_timed(1e-5, 1e-5, name="a"), other).cost

    assert found is not None
    assert found.rows == 0
    assert None is pair_of(_timed(1e-5, 1e-5, name="a"), _timed(1e-5, 9e-5, name="b", cpu="Other")).cost


def test_recorded_runs_are_the_same() -> None:
    """Two scans of two releases show no change and no false alarm."""
    pair = pair_of(*load(RECORDED))

    assert {kind: count for kind, count in pair.counts.items() if count} == {"same": 665}
    assert pair.unconfirmed == 0
    # Linear interpolation gives other bits in 2.15.
    assert "torch.nn.functional.interpolate:linear:forward:float32" in [
        change.row.row.id for change in pair.changes if change.other_bits
    ]
    assert "other_device" in {one.measured for one in pair.claims}
    assert pair.cost is not None
    # All but those that raise.
    assert pair.cost.rows == 665 - sum(row.on.verdict == "raises" for row in pair.new.rows)


def test_a_regression_planted_in_a_recorded_run_is_found() -> None:
    """Of 665 rows the one that became silent and the one that began to raise are told, and no other."""
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
    assert pair.counts["same"] == 663


def _raising(one: Observation) -> Observation:
    told = raised(row(one.spec, one.case, one.direction, one.dtype), "on", "planted")[one.process]
    return replace(told, inputs_digest=one.inputs_digest)
