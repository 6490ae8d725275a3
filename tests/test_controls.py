"""Controls that misbehave void a scan, whichever worker they run in; sentinels survive an interruption."""

from __future__ import annotations

import json
from pathlib import Path

from scanner.runfile import read_run
from tests.commands import command_in
from tests.evidence_scans import scan


def test_control_that_misbehaves_voids_the_scan(tmp_path: Path) -> None:
    """Where a random op ignores its seed the scan says so, exits 4, and every report repeats it."""
    specs = tmp_path / "broken.py"
    specs.write_text(
        "import sys, itertools\n"
        "from opspecs.model import Case, OpSpec, call\n"
        "if 'torch' in sys.modules:\n"
        "    import torch\n"
        "    rand, count = torch.rand, itertools.count()\n"
        "    torch.rand = lambda *a, **k: rand(*a, **k) + next(count)\n"
        "SPECS = [OpSpec(name='plain', op='torch.neg', why='Test.', cases={'one': Case(\n"
        "    inputs=lambda t: call(t.normal(8)))})]\n"
    )

    run = scan(tmp_path, "plain", "--specs", specs, "--runs", 4, "--processes", 1, code=4)

    assert run.closing is not None
    assert run.closing.distrust[0].startswith(
        "the control random in process 0 of mode off should show 0 of 4 differed, seeded, and shows"
    )
    report = command_in(tmp_path)
    for form in ("md", "html"):
        assert "Not trustworthy: the control random" in report("report", "run.jsonl", "--format", form).stdout
    assert json.loads(report("report", "run.jsonl", "--format", "json").stdout)["distrust"]


def test_worker_that_replaces_another_answers_the_controls(tmp_path: Path) -> None:
    """A worker started after a crash could be a broken one as well: if it misbehaves the scan is void."""
    specs = tmp_path / "broken.py"
    # The first worker breaks down in the middle, and every later one loads a generator that takes no seed.
    specs.write_text(
        "import itertools, os, pathlib, sys\n"
        "from opspecs.model import Case, OpSpec, call\n"
        f"mark = pathlib.Path({str(tmp_path / 'mark')!r})\n"
        "if 'torch' in sys.modules and mark.exists():\n"
        "    import torch\n"
        "    rand, count = torch.rand, itertools.count()\n"
        "    torch.rand = lambda *a, **k: rand(*a, **k) + next(count)\n"
        "def ends(x):\n"
        "    mark.touch()\n"
        "    os.abort()\n"
        "case = {'one': Case(inputs=lambda t: call(t.normal(8)))}\n"
        "SPECS = [OpSpec(name='ends', op=ends, why='Test.', cases=case),\n"
        "         OpSpec(name='plain', op='torch.neg', why='Test.', cases=case)]\n"
    )

    run = scan(tmp_path, "ends", "plain", "--specs", specs, "--runs", 4, "--processes", 1, code=4)

    assert run.closing is not None
    assert any("control random in process 0 of mode off" in told for told in run.closing.distrust)
    assert len({control.spec for control in run.controls if control.mode == "off"}) == 6
    # Told in the file at once: a scan that is cut off and goes on does not forget it.
    path = tmp_path / "run.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    assert "Not trustworthy: the control random" in command_in(tmp_path)("report", path).stdout
    assert command_in(tmp_path)("scan", "--resume", "-o", path).returncode == 4
    assert read_run(path).distrust == run.distrust


def test_resumed_scan_has_a_sentinel_behind_its_last_row(tmp_path: Path) -> None:
    """Cut off before the sentinel that ends a pass, a scan runs it when it goes on."""
    scan(tmp_path, "circumstance.doubles", "--processes", 1)
    path = tmp_path / "run.jsonl"
    records = path.read_text().splitlines(keepends=True)
    last = max(place for place, line in enumerate(records) if '"kind":"sentinel"' in line)
    path.write_text("".join(records[:last]))

    run = scan(tmp_path, "--resume")

    assert max(sentinel.before for sentinel in run.sentinels if sentinel.mode == "on") == 1
