"""What became of a row from one run to the next: the table of findings, and the evidence a change needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace

from detmatrix.reports.compare.comparable import Reason
from detmatrix.reports.compare.judge import CHANGES, Change, Kind, class_of
from detmatrix.scanner.observations.records import MODES, Observation, Outcome, Row
from detmatrix.scanner.verdicts.vocabulary import FINDING_MEANING, Finding
from tests.compared import OFTEN, pair_of, run_of, shows
from tests.runs import (
    ENVIRONMENT,
    PROCESSES,
    RUNS,
    Planned,
    drifting,
    ended,
    raised,
    ran,
    row,
    stable,
)

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


@pytest.mark.parametrize("findings", [pair for pair, kind in EXPECTED.items() if kind in CHANGES])
def test_only_an_alert_is_proof_by_itself(findings: tuple[Finding, Finding]) -> None:
    """That an op raises is proof, and that it differs where it raised; whatever else seems to have changed is not."""
    raised_before, raised_after = (finding in {"raises", "over_alert"} for finding in findings)
    change = only(shows(findings[0]), shows(findings[1]))
    proof = raised_before != raised_after and (raised_after or findings[1] == "silent")

    assert proof is change.judged.confirmed


def _on(*observations: Observation, off: Sequence[Mapping[str, int]] = ()) -> Planned:
    """Return the row with these observations beside those with the flag off."""
    return PLANNED, [*ran(PLANNED, "off", *(off or stable())), *observations]


def _forced(*alerts: str, often: int | None = None) -> Planned:
    """Return a row that is deterministic with the flag off, raises, and runs under warn_only."""
    outputs = drifting(often) if often else stable()
    return PLANNED, [*shows("over_alert")[1], *ran(PLANNED, "warn_only", *outputs, alerts=alerts)]


def _ended(outcome: Outcome, message: str) -> Planned:
    return PLANNED, ended(PLANNED, "off", outcome, message)


def _executed(n: int) -> Planned:
    return PLANNED, [o for mode in MODES for o in ran(PLANNED, mode, *[{"a": n // PROCESSES}] * PROCESSES)]


STILL, DIFFERS, SILENT = (shows(finding) for finding in ("deterministic", "fixed_by_mode", "silent"))
# One process that chose another algorithm, however often it executed; other bits in both modes; another alert.
ONE_PROCESS = _on(*ran(PLANNED, "on", *stable()), off=[{"a": RUNS}, {"b": RUNS}])
OTHER_BITS = PLANNED, [o for mode in MODES for o in ran(PLANNED, mode, *stable("z"))]
OTHER_ALERT = _on(*raised(PLANNED, "on", "other_kernel"), off=drifting(OFTEN))
FILL_ASKED = PLANNED, [*DIFFERS[1], *ran(PLANNED, "unfilled", *stable())]


@pytest.mark.parametrize(
    ("before", "after", "kind", "proof", "detail"),
    [
        # That one scan never asked what the fill cures is no change; that it cures another row than before is one.
        (DIFFERS, shows("uninitialized"), "same", None, ""),
        (FILL_ASKED, shows("uninitialized"), "changed", False, "fill off: deterministic → nondeterministic"),
        # 7 of 98 against 0 of 98 is chance enough, unless an alert tells.
        (shows("fixed_by_mode", often=8), STILL, "improved", "too_few_executions", "p = 0.014"),
        (STILL, shows("fixed_by_mode", often=8), "regressed", "too_few_executions", "p = 0.014"),
        (shows("silent", often=8), shows("over_alert"), "improved", True, "the alert is proof"),
        (shows("over_alert"), shows("silent", often=8), "regressed", True, "the alert is proof"),
        (ONE_PROCESS, STILL, "improved", "too_few_executions", ""),
        (STILL, ONE_PROCESS, "regressed", "too_few_executions", ""),
        # Rates are told where they differ, and change no class; bits neither.
        (DIFFERS, shows("fixed_by_mode", often=45), "same", None, "rates differ, off: 19 of 98 → 44 of 98"),
        (DIFFERS, shows("fixed_by_mode", often=22), "same", None, ""),
        (STILL, OTHER_BITS, "same", None, ""),
        # What chance may have done does not stand for what a chosen mode did.
        (
            (PLANNED, [*STILL[1], *raised(PLANNED, "compile_on", "put_")]),
            (PLANNED, [*shows("silent", often=2)[1], *ran(PLANNED, "compile_on", *stable())]),
            "improved", False, "compile_on: raises → as_off; on: 0 of 98",
        ),
        (
            (PLANNED, [*STILL[1], *ran(PLANNED, "compile_on", *stable())]),
            (PLANNED, [*STILL[1], *ran(PLANNED, "compile_on", *drifting(8))]),
            "regressed", "too_few_executions", "compile_on: as_off → silent",
        ),
        # The caller of an alert is text of the build, so that one scan of each is proof, as are those behind the first.
        (shows("raises"), OTHER_ALERT, "changed", True, "scatter_add_kernel → other_kernel"),
        (
            _forced("scatter_add_kernel", often=OFTEN),
            _forced("scatter_add_kernel", "next", often=OFTEN),
            "changed",
            True,
            "next",
        ),
        # A run that made no op run saw only the alert that ended it.
        (shows("over_alert"), _forced("scatter_add_kernel", "next"), "same", None, ""),
        (_forced(often=OFTEN), _forced(), "improved", False, "warn_only: 19 of 98 → 0 of 98"),
        (_forced(often=OFTEN), shows("over_alert"), "improved", "warn_only_missing", ""),
        # Under a finding that speaks of the flag on, the flag off may have changed.
        (SILENT, _on(*SILENT[1][PROCESSES:], off=drifting(OFTEN)), "regressed", False, "off: 0 of 98 → 19 of 98"),
        # Without a verdict what is certain of the flag on is told; two ways to have none are comparable where they are alike.
        (_ended("not_run", "torch 2.1 lacks it"), shows("silent"), None, "no_verdict", "after, flag on: nondeter"),
        (_ended("not_run", "torch 2.1 lacks it"), _ended("not_run", "torch 2.2 lacks it"), "same", None, "in either run"),
        (_ended("not_run", "torch 2.1 lacks it"), _ended("timeout", "stopped"), None, "no_verdict", "stopped"),
        # 0 of 10 leaves rates plausible that 0 of 100 excludes by far; 0 of 20 is of the same order.
        (_executed(100), _executed(20), "same", None, ""),
        (_executed(100), _executed(10), None, "fewer_executions", "0 of 100 → 0 of 10"),
        (_executed(10), _executed(100), None, "fewer_executions", "0 of 10 → 0 of 100"),
    ],
)  # fmt: skip
def test_what_says_that_a_row_changed(
    before: Planned, after: Planned, kind: Kind | None, proof: bool | Reason | None, detail: str
) -> None:
    """A class; whether that is proof, or the reason why the row is not comparable though it seems so; and what is told."""
    judged = only(before, after).judged
    doubted = isinstance(proof, str)

    assert (judged.apparent if doubted else judged.kind) == kind
    assert (judged.reason if doubted else judged.confirmed) == proof
    assert (judged.kind == "not_comparable") is doubted
    assert detail in judged.detail
    assert detail or not judged.detail or doubted


@pytest.mark.parametrize(
    ("after", "modes"),
    [(OTHER_BITS, MODES), (_on(*ran(PLANNED, "on", *stable()), off=[{"z": 30, "y": 20}]), ())],
)
def test_other_bits(after: Planned, modes: tuple[str, ...]) -> None:
    """Of a nondeterministic mode the first output is one of many."""
    assert only(STILL, after).other_bits == modes


@pytest.mark.parametrize(("bits", "cpu"), [("2:z", ENVIRONMENT.cpu), ("z", "Another CPU")])
def test_other_bits_take_digests_of_one_kind_and_one_machine(bits: str, cpu: str) -> None:
    """Digests of another kind, as older run files have, and bits of another CPU say nothing of the release."""
    both = [o for mode in MODES for o in ran(PLANNED, mode, *stable(bits))]
    pair = pair_of(run_of(shows("deterministic")), run_of((PLANNED, both), cpu=cpu))

    assert pair.changes[0].other_bits == ()
    assert pair.bits == (0, 0)


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


def test_rows_are_joined_by_all_that_names_them() -> None:
    """Another case, direction or dtype is another row."""
    names: list[dict[str, Any]] = [{}, {"case": "other"}, {"direction": "backward"}, {"dtype": "float64"}]
    rows = [row("torch.cumsum", **name) for name in names]
    old = run_of(*(shows("deterministic", one) for one in rows), name="a")
    new = run_of(*(shows("silent", one) for one in reversed(rows)), name="b")

    pair = pair_of(old, new)
    assert [one.id for one in reversed(rows)] == [change.row.row.id for change in pair.changes]
    assert 4 == pair.counts["regressed"] == pair.unconfirmed
