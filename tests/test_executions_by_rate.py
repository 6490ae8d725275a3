"""How often a case is executed: by rate and confidence, bounded by time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import Command
from tests.conftest import one_line
from tests.evidence_scans import rows_by_name, scan


def test_rate_and_confidence_choose_the_executions(tmp_path: Path) -> None:
    """1 in 100 seen with 90 %: ln 0.1 / ln 0.99 = 229.1, so 230 of them quiet; ten differences are enough."""
    run = scan(
        tmp_path, "circumstance.doubles", "circumstance.under_stress",
        "--max-rate", 0.01, "--confidence", 0.9, "--processes", 1,
    )  # fmt: skip

    rows = rows_by_name(run)
    quiet = next(group for group in rows["doubles"].off.groups if group.perturbation == "quiet")
    assert 230 <= quiet.executions <= 235
    # Of 60 executions 35 are quiet, 10 under each of two others and 5 under stress, which is left out: one thread does it.
    assert rows["doubles"].off.runs == pytest.approx(quiet.executions * 55 / 35, abs=8)
    stress = next(group for group in rows["under_stress"].off.groups if group.perturbation == "stress")
    assert (stress.executions, stress.differing) == (10, 10)
    assert run.header.settings.confidence == 0.9


def test_time_bounds_a_case_and_the_true_n_is_recorded(tmp_path: Path) -> None:
    """A slow case runs as often as its time allows, and is compared over just that."""
    run = scan(
        tmp_path, "circumstance.slow", "circumstance.doubles",
        "--runs", 100, "--max-time", 0.6, "--perturb", "quiet", "--processes", 1,
    )  # fmt: skip

    rows = rows_by_name(run)
    assert 2 <= rows["slow"].off.runs < 20
    assert rows["doubles"].off.runs == 100


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ("--perturb", "quiet,noise"),
            "unknown perturbation 'noise'; choose: quiet, stress, shift, poison, pause, order, threads",
        ),
        (("--perturb", ","), "none given"),
        (("--max-rate", "0.1", "--runs", "3"), "--max-rate chooses how many executions"),
        (("--confidence", "0.9"), "--confidence says how probably --max-rate would be seen"),
        (("--max-rate", "1"), "--max-rate"),
        (("--max-rate", "1e-7", "--device", "cpu"), "--max-rate 1e-07 needs more than 1000000 executions"),
        (("--max-rate", "1e-17", "--device", "cpu"), "--max-rate 1e-17 needs more than 1000000 executions"),
        (("--max-rate", "0.999999999", "--device", "cpu"), "give a rate farther from 0 and 1"),
        (("--confidence", "nan", "--max-rate", "0.5"), "is not a number"),
        (("--max-time", "0"), "--max-time"),
    ],
)
def test_bad_power_is_one_line(detmatrix: Command, arguments: tuple[str, ...], text: str) -> None:
    """What cannot be asked is told in one line, with exit code 2."""
    done = detmatrix("scan", "cumsum", *arguments)

    assert (done.returncode, done.stdout) == (2, "")
    assert one_line(done.stderr)
    assert text in done.stderr
