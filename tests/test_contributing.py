"""The four steps of CONTRIBUTING work as they are written."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

from tests import tied

ROOT = Path(__file__).parent.parent


def test_adding_a_spec_takes_the_four_steps(tmp_path: Path) -> None:
    """The example spec, added to a copy of the catalog, passes its checks and scans by the commands given."""
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = guide.split("## Add an op spec in four steps")[1].split("\n## ")[0]
    (example,) = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
    (check,) = re.findall(r"`nox -s tests -- (tests/test_specs\.py -k \w+)`", section)
    (scan, report) = re.findall(r"`detmatrix (scan \S+) && detmatrix (report \S+ --all)`", section)[0]
    assert [line[0] for line in section.splitlines() if re.match(r"\d\. ", line)] == ["1", "2", "3", "4"]
    for package in ("opspecs", "scanner", "reports", "tests"):
        shutil.copytree(
            ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__", "runs")
        )
    shutil.copytree(ROOT / "detmatrix", tmp_path / "detmatrix", symlinks=True)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    family = tmp_path / "opspecs" / "families" / "reductions" / "cumulative.py"
    source = family.read_text(encoding="utf-8").rstrip()
    assert source.endswith(")")
    family.write_text(source[:-1] + textwrap.dedent(example).rstrip() + "\n)\n", encoding="utf-8")

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        done = tied.run([sys.executable, "-m", *command], cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    checked = run("pytest", "-q", *check.split())
    run(
        "detmatrix",
        *scan.split(),
        "--device",
        "cpu",
        "--runs",
        "3",
        "--processes",
        "1",
        "--no-cost",
        "--no-overloads",
    )
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
