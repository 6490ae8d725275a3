"""From two cells to a finding: every pair of verdicts, and why a row is inconclusive."""

from __future__ import annotations

import re
from typing import get_args

import pytest
from msgspec.structs import replace

from detmatrix.scanner.modes import LEAST_RUNS
from detmatrix.scanner.observations.records import Output
from detmatrix.scanner.verdicts.cells import Cell
from detmatrix.scanner.verdicts.findings import finding_of
from detmatrix.scanner.verdicts.power import LEAST_SERIAL_RUNS
from detmatrix.scanner.verdicts.vocabulary import FINDING_MEANING, VERDICT_MEANING, Finding, Verdict

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
# Rows: mode off; columns: mode on, in the order of VERDICTS (deterministic, nondeterministic, raises, error,
# timeout, crash, not_run).
_FINDINGS: dict[Verdict, str] = {
    "deterministic":    "deterministic silent over_alert   inconclusive inconclusive inconclusive inconclusive",
    "nondeterministic": "fixed_by_mode silent raises       inconclusive inconclusive inconclusive inconclusive",
    "raises":           "inconclusive  silent inconclusive inconclusive inconclusive inconclusive inconclusive",
    "error":            "inconclusive  silent inconclusive inconclusive inconclusive inconclusive inconclusive",
    "timeout":          "inconclusive  silent inconclusive inconclusive inconclusive inconclusive inconclusive",
    "crash":            "inconclusive  silent inconclusive inconclusive inconclusive inconclusive inconclusive",
    "not_run":          "inconclusive  silent inconclusive inconclusive inconclusive inconclusive inconclusive",
}  # fmt: skip


@pytest.mark.parametrize(
    ("off", "on", "expected"),
    [
        (off, on, finding)
        for off, findings in _FINDINGS.items()
        for on, finding in zip(VERDICTS, findings.split(), strict=True)
    ],
)
def test_finding_of_every_pair(off: Verdict, on: Verdict, expected: Finding) -> None:
    """The table of the design, total over 49 pairs; the reason stands where it is inconclusive, and only there."""
    finding, reason = finding_of(Cell(verdict=off, first="a", runs=LEAST_RUNS), Cell(verdict=on, first="a"))

    assert finding == expected
    assert (reason is not None) == (expected == "inconclusive")


def test_modes_with_other_outputs_are_mode_dependent() -> None:
    """Each mode repeats itself, but they disagree."""
    off, on = (Cell(verdict="deterministic", runs=LEAST_RUNS, first=digest) for digest in "ab")

    assert finding_of(off, on) == ("mode_dependent", None)


@pytest.mark.parametrize(
    ("on", "finding", "unknown"),
    [
        (Cell(verdict="deterministic", first="b", runs=LEAST_RUNS), "mode_dependent", "whether the flag gives other bits, or a race does"),
        (Cell(verdict="raises"), "over_alert", "whether what raises ever differs"),
    ],
    ids=["other bits", "raises"],
)  # fmt: skip
@pytest.mark.parametrize(("serial", "least"), [(False, LEAST_RUNS), (True, LEAST_SERIAL_RUNS)])
def test_what_the_flag_does_is_said_of_enough_executions(
    on: Cell, finding: Finding, unknown: str, *, serial: bool, least: int
) -> None:
    """A race that shows once in a hundred executions is not told from the flag by ten; half are enough of one thread."""
    few, enough = (
        Cell(verdict="deterministic", first="a", runs=n, serial=serial) for n in (least - 1, least)
    )

    text = f"0 of {least - 1} executions differed with the flag off, of at least {least} that would show {unknown}"
    assert finding_of(few, on) == ("inconclusive", text)
    assert finding_of(enough, on) == (finding, None)


def test_other_bits_with_the_flag_on_are_said_of_enough_executions_there() -> None:
    """What gives other bits with the flag on may race there alone, which no execution with it off shows."""
    off, few = (
        Cell(verdict="deterministic", first=it, runs=n) for it, n in (("a", 1000), ("b", LEAST_RUNS - 1))
    )

    text = "0 of 99 executions differed with the flag on, of at least 100 that would show whether the flag gives other bits, or a race does"
    assert finding_of(off, few) == ("inconclusive", text)
    assert finding_of(off, replace(few, runs=LEAST_RUNS)) == ("mode_dependent", None)
    # That both give the same bits rests on the bound of both, which low power speaks of.
    assert finding_of(off, replace(few, first="a")) == ("deterministic", None)


def test_the_flag_is_credited_after_enough_executions_without_the_fill() -> None:
    """Ten of them do not tell what the flag cures from what the fill does, where memory rarely shows."""
    off, on = Cell(verdict="nondeterministic", first="a"), Cell(verdict="deterministic", first="a")
    few, enough = (Cell(verdict="deterministic", first="a", runs=n) for n in (LEAST_RUNS - 1, LEAST_RUNS))

    text = "executions differed with nothing filled, of at least 100 that would show whether the flag fixes it, or the fill does"
    assert finding_of(off, on, unfilled=few) == ("inconclusive", f"0 of 99 {text}")
    assert finding_of(off, on, unfilled=enough) == ("fixed_by_mode", None)


@pytest.mark.parametrize(
    ("off", "unfilled", "fixed_by_flag"),
    [
        # The flag fixes the first output, which raced in nearly every execution, the fill the second.
        ((("output[0]", 90), ("output[1]", 99)), (("output[1]", 99),), "output[0]"),
        ((("output", 90), ("grad", 40), ("new", 99)), (("new", 1),), "output, grad"),
        # One that differs in both is fixed by the fill, as is what hardly differed at all with the flag off.
        ((("output[0]", 99), ("output[1]", 99)), (("output[0]", 1), ("output[1]", 99)), None),
        ((("output[0]", 1), ("output[1]", 99)), (("output[1]", 99),), None),
        # What differs between processes only is counted of no output.
        ((("output[0]", 90),), (), None),
    ],
)  # fmt: skip
def test_what_needs_the_flag_and_the_fill_is_fixed_by_the_flag(
    off: tuple[tuple[str, int], ...], unfilled: tuple[tuple[str, int], ...], fixed_by_flag: str | None
) -> None:
    """A race in one output is not hidden behind memory that nobody wrote in another."""
    cells = [
        Cell(
            verdict="nondeterministic",
            first="a",
            runs=100,
            differing=99,
            by_process=(50, 50),
            outputs=tuple(
                Output(name=name, shape=(), dtype="float32", differing=differing)
                for name, differing in outputs
            ),
        )
        for outputs in (off, unfilled)
    ]
    still = Cell(verdict="deterministic", first="a")
    finding, reason = finding_of(cells[0], still, unfilled=cells[1])

    few = finding_of(cells[0], still, unfilled=replace(cells[1], runs=LEAST_RUNS - 1))
    if fixed_by_flag is None:
        assert (finding, reason) == ("uninitialized", None)
    else:
        differed = f"{unfilled[0][0]} still differed, {fixed_by_flag} did not"
        assert finding == "fixed_by_mode"
        assert reason == f"with the flag on and nothing filled {differed}: both are needed"
        text = "99 executions with nothing filled do not tell what the flag fixes, and what the fill"
        assert few == ("inconclusive", text)


def test_what_the_fill_makes_all_nan_is_uninitialized() -> None:
    """With the flag on nothing but the fill came out, and without the fill it differs as with the flag off."""
    off, unfilled = (Cell(verdict="nondeterministic", runs=100, differing=99) for _ in range(2))
    on = Cell(verdict="error", reason="produced all NaN", blank="nan")

    assert finding_of(off, on, unfilled=unfilled) == ("uninitialized", None)
    assert finding_of(off, on) == ("inconclusive", "on: error (produced all NaN)")


@pytest.mark.parametrize(
    ("off", "on", "reason"),
    [
        (Cell(verdict="error", reason="bad"), Cell(verdict="deterministic"), "off: error (bad)"),
        (Cell(verdict="deterministic"), Cell(verdict="crash", reason="dead"), "on: crash (dead)"),
        (Cell(verdict="timeout"), Cell(verdict="raises", reason="put_"), "off: timeout"),
        (Cell(verdict="not_run", reason="x"), Cell(verdict="error", reason="y"), "off: not_run (x); on: error (y)"),
        (Cell(verdict="raises"), Cell(verdict="raises"), "off: raises, on: raises"),
        (Cell(verdict="raises"), Cell(verdict="deterministic"), "off: raises, on: deterministic"),
    ],
)  # fmt: skip
def test_inconclusive_tells_which_mode_lacks_a_verdict(off: Cell, on: Cell, reason: str) -> None:
    """The reason names the mode, its verdict and its reason."""
    assert finding_of(off, on) == ("inconclusive", reason)


def test_every_verdict_and_finding_has_one_sentence() -> None:
    """Reports print what each word means."""
    assert set(VERDICT_MEANING) == set(VERDICTS)
    assert set(FINDING_MEANING) == set(get_args(Finding))
    for meaning in (*VERDICT_MEANING.values(), *FINDING_MEANING.values()):
        assert re.fullmatch(r"\S[^.]*\.", meaning)
