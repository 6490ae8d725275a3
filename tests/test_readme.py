"""What the README tells users is so."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import textwrap
from pathlib import Path

import pytest

from detmatrix.scanner import errors
from detmatrix.scanner.observations.runfile import Run, read_run
from detmatrix.scanner.schedules import CANONICAL, FREEDOMS
from detmatrix.scanner.verdicts.findings import matrix
from detmatrix.scanner.verdicts.simulated import recall_words
from detmatrix.scanner.verdicts.vocabulary import FINDING_MEANING, VERDICT_MEANING
from tests import tied
from tests.commands import Command
from tests.stand_in import StandIn

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
OWN_SPECS = (ROOT / "opspecs" / "README.md").read_text(encoding="utf-8")
EVIDENCE = (ROOT / "scanner" / "README.md").read_text(encoding="utf-8")
GPU = (ROOT / "scanner" / "gpu" / "README.md").read_text(encoding="utf-8")


def _table(heading: str, page: str = README) -> list[list[str]]:
    """Return the rows of the tables below a heading, header lines left out."""
    section = page.split(f"## {heading}\n")[1].split("\n## ", maxsplit=1)[0]
    rows = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows if not set(row[0]) <= set("-|")]


@pytest.mark.alone
def test_own_specs_scan_as_shown(detmatrix: Command, tmp_path: Path) -> None:
    """The example file scans by the command below it: the op with a race differs, the one without does not."""
    # The other one needs Triton (tests/test_gpu_wheel.py).
    example, _ = re.findall(r"```python\n((?:(?!```).)*SPECS.*?)```", OWN_SPECS, flags=re.DOTALL)
    (tmp_path / "my_ops.py").write_text(example, encoding="utf-8")
    (command,) = re.findall(r"detmatrix (scan --specs my_ops\.py) '(mine\.\*)'", OWN_SPECS)

    done = detmatrix(
        *command[0].split(), command[1], "--device", "cpu", "--processes", 1, "--no-cost", "--no-overloads"
    )

    assert done.returncode == 0, done.stderr
    report = json.loads(detmatrix("report", "detmatrix.jsonl", "--format", "json").stdout)
    assert [(row["spec"], row["finding"]) for row in report["rows"]] == [
        ("mine.racy_sum", "silent"),
        ("mine.ordered_sum", "deterministic"),
    ]


def test_every_word_is_told() -> None:
    """The codes that commands end with, verdicts and findings, and classes of schedules, weakest first, with whether GPUs take them."""
    codes = {value for name, value in vars(errors).items() if name.startswith("EXIT_")}
    words = {word for row in _table("Read a cell") for word in row[0].split(", ")}
    classes = {row[0]: row[2] for row in _table("Which orders are explored", GPU)}
    told = {
        name: "no known GPU" not in text
        for name, text in classes.items()
        if name in {*FREEDOMS} or "GPU" in text
    }

    assert {int(row[0]) for row in _table("Exit codes", EVIDENCE)[1:]} == codes
    assert words - {"verdict", "finding"} == set(VERDICT_MEANING) | set(FINDING_MEANING)
    assert list(told.items()) == [(name, it.headline) for name, it in FREEDOMS.items() if name != CANONICAL]


def test_ci_runs_the_command_the_readme_gives() -> None:
    """CI calls the very test command a user is told."""
    (command,) = re.findall(
        r"^    (python3 -m pip install nox && python3 -m nox -s tests) ", README, re.MULTILINE
    )

    assert command in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()


def test_every_picture_is_there() -> None:
    """The matrix beside them is a block, which ``nox -s docs`` holds to what recorded runs say."""
    assert [path for path in re.findall(r"!\[.*?\]\((.+?)\)", README) if not (ROOT / path).exists()] == []


def test_the_recall_of_schedules_is_that_of_the_recorded_run() -> None:
    """How many cells differ, in which classes, and with how many executions."""
    run = read_run(ROOT / "reports" / "runs" / "torch-2.15.0-simulated-sm_80.jsonl.gz")
    rows = matrix(run.header, run.observations, closed=True)

    assert recall_words(rows, run.header)[0] in " ".join(README.split())


def _checkout(folder: Path) -> Path:
    """Copy what a checkout has, without what is recorded."""
    left_out = shutil.ignore_patterns("__pycache__", "runs")
    for name in (".ci", "opspecs", "reports", "scanner", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=left_out)
    shutil.copytree(ROOT / "detmatrix", folder / "detmatrix", symlinks=True)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


# The four steps of CONTRIBUTING work as they are written.


def test_adding_a_spec_takes_the_four_steps(tmp_path: Path) -> None:
    """The example spec, added to a copy of the catalog, passes its checks and scans by the commands given."""
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = guide.split("## Add an op spec in four steps")[1].split("\n## ")[0]
    (example,) = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
    (check,) = re.findall(r"`nox -s tests -- (tests/test_specs\.py -k \w+)`", section)
    (scan, report) = re.findall(r"`detmatrix (scan \S+) && detmatrix (report \S+ --all)`", section)[0]
    assert [line[0] for line in section.splitlines() if re.match(r"\d\. ", line)] == ["1", "2", "3", "4"]
    folder = _checkout(tmp_path / "checkout")
    family = folder / "opspecs" / "families" / "reductions" / "cumulative.py"
    source = family.read_text(encoding="utf-8").rstrip()
    assert source.endswith(")")
    family.write_text(source[:-1] + textwrap.dedent(example).rstrip() + "\n)\n", encoding="utf-8")

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        done = tied.run([sys.executable, "-m", *command], cwd=folder)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    checked = run("pytest", "-q", *check.split())
    options = "--device cpu --runs 3 --processes 1 --no-cost --no-overloads"
    run("detmatrix", *scan.split(), *options.split())
    shown = run("detmatrix", *report.split())

    assert re.search(r"[1-9]\d* passed", checked.stdout)
    assert "torch.logsumexp" in shown.stdout
    assert "| single_column" in shown.stdout


def test_tests_that_the_guide_names_exist() -> None:
    """Each fault of the simulated GPU has a test that holds it down, by its name."""
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    names = re.findall(r"\btest_\w+(?=[`:]|\.py)", guide)
    sources = "".join(
        path.read_text(encoding="utf-8") + path.stem + "." for path in (ROOT / "tests").glob("test_*.py")
    )

    assert len(names) > 20
    assert [name for name in names if f"def {name}(" not in sources and f"{name}." not in sources] == []


# The action that projects scan their ops with: its script does what its inputs say, and ends with the code of the check.

ACTION = (ROOT / ".github/actions/scan/action.yml").read_text(encoding="utf-8")
GUIDE = (ROOT / "reports" / "README.md").read_text(encoding="utf-8")
INPUTS = set(re.findall(r"^  ([\w-]+):$", ACTION.split("inputs:\n")[1].split("runs:\n")[0], re.MULTILINE))


@pytest.fixture
def act(tmp_path: Path) -> Command:
    """Return what runs the script of the action, given its inputs, where a detmatrix is installed."""
    command = tmp_path / "bin" / "detmatrix"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m detmatrix "$@"\n')
    command.chmod(0o755)
    path, summary = f"{command.parent}:{os.environ['PATH']}", str(tmp_path / "summary.md")
    usual = {"PATH": path, "PYTHONPATH": str(ROOT), "GITHUB_STEP_SUMMARY": summary, "NAME": "detmatrix"}
    script = textwrap.dedent(ACTION.split("      run: |\n")[1].split("    - name:")[0])
    words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    return lambda **given: tied.run(words, cwd=tmp_path, env=os.environ | usual | given)


DEFAULT = ACTION.split("  fail-on:\n")[1].split("default: ")[1].split("\n")[0]


@pytest.mark.parametrize(("fail_on", "code"), [(DEFAULT, 1), ("", 0)])
def test_the_action_scans_tells_and_fails(act: Command, tmp_path: Path, fail_on: str, code: int) -> None:
    """An op that is silent: annotations, a summary, the files of the artifact, and the exit code that was asked for."""
    standing = StandIn(tmp_path, {"do": "observe", "mode": "on", "spec": "torch.bmm", "then": "vary"})
    options = f"--device cpu --python {standing.python} --no-overloads --no-cost"
    done = act(OPS="torch.bmm", OPTIONS=options, FAIL_ON=fail_on, EXCEPT="")
    notes = done.stdout.rpartition("::detmatrix-")[2].splitlines()[1:]

    assert done.returncode == code, done.stderr
    assert {line.split(" ")[0] for line in notes} == {"::error"}
    assert all("silent%3A torch.bmm" in line for line in notes)
    assert "torch.bmm" in (tmp_path / "summary.md").read_text()
    assert {path.suffix for path in tmp_path.glob("detmatrix.*")} == {".jsonl", ".html", ".xml"}
    assert "<failure" in (tmp_path / "detmatrix.xml").read_text()


def test_the_lines_that_use_the_action_name_inputs_it_has() -> None:
    """What reports/README.md shows can be pasted."""
    (example,) = re.findall(r"```yaml\n(.*?)```", GUIDE, flags=re.DOTALL)
    used = set(re.findall(r"^ {4}([\w-]+):", example, flags=re.MULTILINE))

    assert "wrong_with_flag" in DEFAULT.split(",")
    assert "/.github/actions/scan@" in example
    assert len(example.splitlines()) == 5
    assert used
    assert used <= INPUTS
    assert set(re.findall(r"\binputs\.([\w-]+)", ACTION)) == INPUTS


def test_rows_that_are_allowed_are_allowed_wherever_it_checks(act: Command, tmp_path: Path) -> None:
    """Patterns on several lines; the scan itself is asked for no check."""
    command, log = tmp_path / "bin" / "detmatrix", tmp_path / "log"
    command.write_text(f'#!/bin/sh\necho "$@" >> {log}\n')
    assert act(OPS="a*", OPTIONS="", FAIL_ON="raises", EXCEPT="put_\ntake").returncode == 0
    lines = log.read_text().splitlines()

    assert lines[0].endswith("-- a*")
    assert [line for line in lines if "--fail-on" in line] == [
        line for line in lines if "--fail-on raises --except put_ --except take" in line
    ]
    assert sum("--except" in line for line in lines) == 2


# The unattended campaign of .ci/cuda, here on the CPU: it packs what it measured, and goes on with an archive.

NAMES = ("documented", "as-simulated", "databases", "cost", "dtypes")


@pytest.mark.nightly
def test_campaign_goes_on_with_its_archive(tmp_path: Path) -> None:
    """All runs are in one archive; another checkout that gets it measures nothing again, and what it lacked."""
    # A python3 that finds all that is installed here but detmatrix, as on a machine with a GPU.
    site, python = tmp_path / "site", tmp_path / "python3"
    site.mkdir()
    for one in Path(sysconfig.get_path("purelib")).iterdir():
        if "detmatrix" not in one.name:
            (site / one.name).symlink_to(one)
    # Without -S the folder that detmatrix is installed in would be searched as well.
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -S "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    variables = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(site)}
    first, second = (_checkout(tmp_path / name) for name in ("first", "second"))
    archive, measured = first / "out" / "results.tar.xz", list[list[Run]]()
    for folder in (first, second):
        (folder / ".cuda").mkdir()
        if folder is second:
            shutil.copy(archive, folder / ".cuda")
        words = [folder / ".ci" / "cuda", "out", "500", "cpu", "*index_add*"]
        done = tied.run(words, env=os.environ | variables)
        assert done.returncode == 0, done.stderr
        work = folder / ".cuda" / "work"
        measured.append([read_run(work / f"torch-cpu-{name}.jsonl") for name in NAMES])

    before, after = measured
    assert archive.stat().st_size < 16 << 20
    with tarfile.open(archive) as packed:
        names = {Path(name).name for name in packed.getnames()}
    assert {f"torch-cpu-{name}.jsonl.gz" for name in NAMES} <= names
    assert all(run.closing is not None for run in before)
    assert [(run.header, run.observations) for run in after] == [
        (run.header, run.observations) for run in before
    ]
