"""What CI is told: exit codes of checks and the line that says why, annotations of GitHub, JUnit XML."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from reports.checks import annotation
from reports.compare.checks import failing
from reports.compare.judge import CHANGES
from reports.compare.runs import compare
from scanner.observations.records import MODES
from scanner.verdicts.vocabulary import Finding
from tests.commands import Command
from tests.compared import run_of, shows
from tests.conftest import one_line
from tests.runs import CLOSING, ENVIRONMENT, Planned, drifting, ended, ran, row, stable, write_run
from tests.stand_in import StandIn

FORGED = "torch.x\n::error::forged%0A"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a run of one op that is silent, one that raises and one that is deterministic."""
    findings: tuple[Finding, ...] = ("silent", "raises", "deterministic")
    rows = [shows(finding, row(f"torch.{finding}")) for finding in findings]
    return write_run(tmp_path / "run.jsonl", rows)


@pytest.mark.parametrize(
    ("asked", "code", "line"),
    [
        ("silent", 1, "1 row of 1 op: silent: torch.silent (1 row)"),
        (
            "raises,silent",
            1,
            "2 rows of 2 ops: silent: torch.silent (1 row); raises: torch.raises (1 row)",
        ),
        ("inconclusive,mode_dependent", 0, None),
    ],
)
def test_a_report_fails_on_findings(
    detmatrix: Command, run: Path, asked: str, code: int, line: str | None
) -> None:
    """Exit 1, and one line that says which rows of which ops, the worst first; the report is as ever."""
    done = detmatrix("report", run, "--fail-on", asked)

    assert done.returncode == code
    assert done.stdout == detmatrix("report", run).stdout
    assert done.stderr == (f"detmatrix: --fail-on {asked}: {line}\n" if line else "")


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ("serial", "1 row of 1 op: serial: torch.alone (1 row)"),
        ("low_power", "1 row of 1 op: low_power: torch.seldom (1 row)"),
        (
            "serial,fixed_by_mode",
            "2 rows of 2 ops: fixed_by_mode: torch.seldom (1 row); serial: torch.alone (1 row)",
        ),
    ],
)
def test_a_check_fails_on_weak_evidence(detmatrix: Command, tmp_path: Path, asked: str, line: str) -> None:
    """A check may want no row of one thread, or of low power; each form of it says so, and ``--only`` shows them."""
    alone, shared, seldom = (row(f"torch.{name}") for name in ("alone", "shared", "seldom"))
    run = write_run(
        tmp_path / "run.jsonl",
        [
            *(
                (one, [seen for mode in MODES for seen in ran(one, mode, *stable(), threads=threads)])
                for one, threads in ((alone, 1), (shared, 2))
            ),
            # Once of a hundred times, which a hundred times may miss.
            (
                seldom,
                [
                    *ran(seldom, "off", *drifting(2), threads=2),
                    *ran(seldom, "on", *stable()),
                ],
            ),
        ],
    )
    done = detmatrix("report", run, "--fail-on", asked)
    count = len(asked.split(","))
    annotated = detmatrix("report", run, "--format", "github", "--fail-on", asked).stdout
    suite = ET.fromstring(detmatrix("report", run, "--format", "junit", "--fail-on", asked).stdout)
    failures = [one.attrib["message"] for one in suite.iter("failure")]
    only = json.loads(detmatrix("report", run, "--format", "json", "--only", asked).stdout)

    assert (done.returncode, done.stderr) == (1, f"detmatrix: --fail-on {asked}: {line}\n")
    assert annotated.count("::error ") == count == len(failures) == len(only["rows"])
    assert sum(word in text for text in failures for word in asked.split(",")) == count


def test_nothing_settled_and_nothing_to_trust_pass_no_check(detmatrix: Command, tmp_path: Path) -> None:
    """A check that rests on no finding has not passed."""
    open_row = row("torch.open")
    lost = write_run(tmp_path / "lost.jsonl", [(open_row, ended(open_row, "off", "crash", "signal 11"))])
    closing = replace(CLOSING, distrust=("the control varies shows nothing",))
    void = write_run(tmp_path / "void.jsonl", [shows("deterministic")], closing=closing)

    told = [detmatrix("report", path, "--fail-on", "silent") for path in (lost, void)]

    assert [done.returncode for done in told] == [1, 1]
    assert "nothing was settled in lost.jsonl: 1 row, all inconclusive" in told[0].stderr
    assert "void.jsonl is not trustworthy: the control varies shows nothing" in told[1].stderr


@pytest.mark.parametrize(("asked", "code"), [("silent", 1), ("raises", 0)])
def test_a_scan_fails_on_findings(detmatrix: Command, tmp_path: Path, asked: str, code: int) -> None:
    """The scan is whole, its file is kept, and the last line says what failed."""
    standing = StandIn(tmp_path, {"do": "observe", "mode": "on", "spec": "torch.bmm", "then": "vary"})
    words = ("torch.bmm", "--device", "cpu", "--python", standing.python, "--no-overloads", "--no-cost")
    done = detmatrix("scan", *words, "--fail-on", asked)

    assert done.returncode == code, done.stderr
    assert (tmp_path / "detmatrix.jsonl").exists()
    last = done.stderr.splitlines()[-1]
    assert last.startswith("detmatrix: --fail-on silent: ") is bool(code)
    assert ("silent: torch.bmm (" in last) is bool(code)


@pytest.mark.parametrize(
    ("command", "asked", "names"),
    [("report", "slient", "silent, "), ("scan", "slient", "silent, "), ("compare", "worse", "regression, ")],
)
def test_a_class_that_there_is_not_is_refused(
    detmatrix: Command, run: Path, command: str, asked: str, names: str
) -> None:
    """One line names those that there are."""
    done = detmatrix(command, *([run, run] if command == "compare" else [run]), "--fail-on", asked)

    assert done.returncode == 2
    assert f"called {asked!r}" in done.stderr or f"unknown class {asked!r}" in done.stderr
    assert names in one_line(done.stderr)


def test_annotations_tell_the_worst_first(detmatrix: Command, run: Path) -> None:
    """What a check fails on is an error, what else raises a warning, and what is fine is no line."""
    shown = detmatrix("report", run, "--format", "github").stdout.splitlines()
    asked = detmatrix("report", run, "--format", "github", "--fail-on", "raises")

    assert [line.split("::")[1].split(",title=") for line in shown] == [
        [f"error file={run.name}", "silent%3A torch.silent"],
        # Nobody counted the threads of the row that did not differ.
        [f"notice file={run.name}", "detmatrix"],
        [f"warning file={run.name}", "raises%3A torch.raises"],
    ]
    assert [line.split(" ")[0] for line in asked.stdout.splitlines()] == ["::error", "::notice", "::warning"]
    assert asked.stdout.startswith(f"::error file={run.name},title=raises%3A torch.raises::")
    assert asked.returncode == 1


def test_what_a_run_file_says_is_no_command_of_github() -> None:
    """Line breaks, separators and the escape character itself are escaped; one annotation is one line."""
    hostile = "a,b::c\r\n::add-mask::x%0A\x1b[31m"
    line = annotation("error", hostile, hostile, hostile)

    assert line.count("\n") == 1
    assert line.endswith("\n")
    assert line.startswith("::error file=a%2Cb%3A%3Ac %3A%3Aadd-mask%3A%3Ax%250A\\x1b[31m,title=a%2Cb")
    # The text stands last, where only an end of line would end it.
    assert line.split("::", 2)[2] == "a,b::c ::add-mask::x%250A\\x1b[31m\n"


def test_forged_names_stay_on_their_line(detmatrix: Command, tmp_path: Path) -> None:
    """An op whose name is a command makes an annotation of ours, and a test case whose name it is."""
    run = write_run(tmp_path / "run.jsonl", [shows("silent", row(FORGED))])
    noted = detmatrix("report", run, "--format", "github").stdout
    suite = ET.fromstring(detmatrix("report", run, "--format", "junit").stdout)

    assert [line.partition(" ")[0] for line in noted.splitlines()] == ["::error"]
    assert suite.find(".//testcase[failure]").attrib["classname"] == "torch.x ::error::forged%0A"  # type: ignore[union-attr]


def test_junit_has_a_case_for_each_row(detmatrix: Command, run: Path) -> None:
    """What a check fails on failed; the ending of the file's name says the format."""
    done = detmatrix("report", run, "-o", "run.xml", "--fail-on", "silent,raises")
    top = ET.parse(run.with_suffix(".xml")).getroot()
    cases = {case.attrib["classname"]: [one.tag for one in case] for case in top.iter("testcase")}

    assert done.returncode == 1
    assert cases == {"torch.silent": ["failure"], "torch.raises": ["failure"], "torch.deterministic": []}
    assert (top.attrib["tests"], top.attrib["failures"]) == ("3", "2")


# --- Comparisons


def _seldom(op: str, case: str, differing: int) -> Planned:
    """Return a sample of which so few of twenty executions in each mode off differ that chance may have done it."""
    planned = replace(row(op, case), spec=f"opinfo:{op}", op=op, source="opinfo", provoked="samples")
    off = [{"a": 20 - differing, **{f"b{place}": 1 for place in range(differing)}}]
    return planned, [*ran(planned, "off", *off), *ran(planned, "on", {"a": 20})]


def _samples(op: str, *cases: str) -> list[Planned]:
    return [_seldom(op, case, 0) for case in cases]


def test_rows_of_one_op_count_together_and_samples_count_once() -> None:
    """Four rows, each of which may be chance, are no chance together; what is likely stands above other samples."""
    old = [_seldom("torch.linalg.lstsq", f"sample_{place}", 4) for place in range(4)]
    new = [_seldom("torch.linalg.lstsq", f"sample_{place}", 0) for place in range(4)]
    pair = [
        run_of(*old, *_samples("torch.qr", "same", "a", "b"), name="old"),
        run_of(*new, *_samples("torch.qr", "same", "c"), *_samples("torch.cdist", "d"), name="new"),
    ]
    lines = list(failing(compare(pair), CHANGES))

    assert [line.partition(":")[0] for line in lines] == ["improved (likely)", "other samples"]
    assert lines[0].startswith(
        "improved (likely): torch.linalg.lstsq: 4 rows together: off: 16 of 76 → 0 of 76 further executions differed"
    )
    assert lines[1].startswith("other samples: 2 rows added, 2 rows removed, of 2 entries")
    assert not list(failing(compare(pair), ("regressed",)))


def test_rows_of_several_ops_do_not_count_together() -> None:
    """Each of four ops may have changed by chance; nothing joins them."""
    old = [*_samples("torch.qr", "same"), *(_seldom(f"torch.op{place}", "sample_0", 4) for place in range(4))]
    new = [*_samples("torch.qr", "same"), *(_seldom(f"torch.op{place}", "sample_0", 0) for place in range(4))]

    assert not list(failing(compare([run_of(*old, name="old"), run_of(*new, name="new")]), CHANGES))


@pytest.mark.parametrize(
    ("builds", "told"),
    [
        (("2.13.0+cpu", "2.15.0+cu132"), True),
        (("2.13.0+cu126", "2.15.0+cu132"), False),
        (("2.13.0", "2.15.0"), False),
    ],
)
def test_builds_of_different_kinds_are_told(
    detmatrix: Command, tmp_path: Path, builds: tuple[str, str], told: bool
) -> None:
    """A build for CPUs and one for CUDA are compared with a warning, in the report and beside it."""
    runs = [
        write_run(
            tmp_path / f"{torch}.jsonl", [shows("silent")], environment=replace(ENVIRONMENT, torch=torch)
        )
        for torch in builds
    ]
    shown = {form: detmatrix("compare", *runs, "--format", form) for form in ("md", "github")}
    text = "builds of different kinds, 2.13.0+cpu and 2.15.0+cu132"

    assert {done.returncode for done in shown.values()} == {0}
    assert ("builds of different kinds" in shown["md"].stdout) is told
    assert one_line(shown["md"].stderr).startswith("detmatrix: warning: ") if told else not shown["md"].stderr
    assert (text in shown["github"].stdout) is told


def test_a_comparison_for_ci(detmatrix: Command, tmp_path: Path) -> None:
    """What fails is an error and a failed case, what else changed a warning."""
    changes: dict[str, tuple[Any, Any]] = {
        "torch.worse": ("deterministic", "silent"),
        "torch.better": ("raises", "fixed_by_mode"),
        "torch.same": ("deterministic", "deterministic"),
    }
    runs = [
        write_run(tmp_path / name, [shows(one[place], row(op)) for op, one in changes.items()])
        for place, name in enumerate(("old.jsonl", "new.jsonl"))
    ]
    noted = detmatrix("compare", *runs, "--format", "github")
    done = detmatrix("compare", *runs, "--fail-on", "regressed,improved", "-o", "out.xml", "-o", "out.json")
    top = ET.parse(tmp_path / "out.xml").getroot()

    assert [line.split(" ")[0] for line in noted.stdout.splitlines()] == ["::error", "::warning"]
    assert noted.stdout.startswith(f"::error file={runs[1].name},title=regressed (unconfirmed)::torch.worse:")
    assert noted.returncode == 0
    assert done.returncode == 1
    assert [line.partition(" ")[0] for line in done.stdout.splitlines()] == ["regressed", "improved"]
    assert {case.attrib["classname"]: [one.tag for one in case] for case in top.iter("testcase")} == {
        "torch.worse": ["failure"],
        "torch.better": ["failure"],
        "torch.same": [],
    }


def test_runs_of_two_machines_pass_no_check(detmatrix: Command, tmp_path: Path) -> None:
    """Two runs of which nothing can be compared are an error of their suite."""
    runs = [
        write_run(
            tmp_path / f"{cpu}.jsonl", [shows("silent")], environment=replace(ENVIRONMENT, cpu=cpu, gpu=cpu)
        )
        for cpu in ("one", "other")
    ]
    top = ET.fromstring(detmatrix("compare", *runs, "--format", "junit").stdout)

    assert top.attrib["errors"] == "1"
    assert "nothing compared" in top.find(".//error").attrib["message"]  # type: ignore[union-attr]
