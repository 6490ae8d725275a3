"""A control that really misbehaves voids a scan; ``test_workers`` has all the others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from detmatrix.scanner.cli.scan import _tell
from detmatrix.scanner.errors import EXIT_DONE, EXIT_UNTRUSTED
from detmatrix.scanner.observations.runfile import read_run
from tests.commands import Command, command_in
from tests.conftest import lines
from tests.evidence_scans import scan
from tests.runs import ended, ran, row, stable, write_run
from tests.stand_in import StandIn


def test_control_that_fails_behind_rows_voids_them_alone(tmp_path: Path) -> None:
    """An op that blinds our comparison makes no row behind it deterministic: those since the last good control are errors."""
    specs = tmp_path / "blind.py"
    specs.write_text(
        "import itertools\n"
        "from detmatrix.opspecs.model import Case, OpSpec, call\n"
        "def varies(x, count):\n"
        "    return x + next(count)\n"
        "def blinds(x):\n"
        "    import detmatrix.scanner.worker.bits as bits\n"
        "    bits.equal_on_cpu = lambda *_: True\n"
        "    return x + 1\n"
        "def spec(name, op, *more):\n"
        "    inputs = lambda t: call(t.normal(8), *(one() for one in more))\n"
        "    return OpSpec(name=name, op=op, why='Test.', cases={'one': Case(inputs=inputs)})\n"
        "SPECS = [spec('before', varies, itertools.count), spec('blinds', blinds),\n"
        "         spec('behind', varies, itertools.count)]\n"
    )

    run = scan(tmp_path, "be*", "blinds", "--specs", specs, "--runs", 4, "--processes", 1)

    assert run.closing is not None
    assert not run.closing.distrust
    found = {(one.spec, one.mode): one for one in run.observations}
    # What differed with the flag on is believed of a worker whose controls were asked at once.
    assert found["before", "on"].outcome == "ran"
    for where in (("behind", "off"), ("behind", "on"), ("blinds", "off"), ("before", "off")):
        assert str(found[where].message).startswith(
            "not trustworthy: the control varies in process 0 of mode"
        )
    shown = command_in(tmp_path)("report", "run.jsonl", "--format", "json")
    rows = {row["spec"]: row["finding"] for row in json.loads(shown.stdout)["rows"]}
    assert rows == {"before": "silent", "blinds": "inconclusive", "behind": "inconclusive"}


@pytest.mark.parametrize("believed", [0, 1])
def test_scan_of_which_nothing_is_believed_cannot_be_trusted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], believed: int
) -> None:
    """Rows alone that no control vouches for: exit 4, though each of them is only an error."""
    rows = [row("torch.voided"), row("torch.believed")][: 1 + believed]
    planned = [
        (
            one,
            [
                seen
                for mode in ("off", "on")
                for seen in (
                    ran(one, mode, *stable())
                    if one.spec == "torch.believed"
                    else ended(one, mode, "invalid", "not trustworthy: the control varies shows crash")
                )
            ],
        )
        for one in rows
    ]
    run = read_run(write_run(tmp_path / "run.jsonl", planned))

    assert _tell(run, (), ()) == (EXIT_DONE if believed else EXIT_UNTRUSTED)
    said = capsys.readouterr().err
    assert "run.jsonl: 1 row is not trustworthy: the control varies shows crash" in said
    assert ("the scan cannot be trusted: no control vouches for any of its rows" in said) == (not believed)


def test_distrust_is_not_forgotten(detmatrix: Command, tmp_path: Path) -> None:
    """A worker that replaced another and failed a control voids the scan, also when the scan is cut off and goes on."""
    broken = {"seeded": False, "digests": {"a": 7, "b": 1}}
    standing = StandIn(
        tmp_path,
        {"worker": 1, "spec": "quick.fails", "then": "die"},
        {"worker": 2, "spec": "control.random", "then": broken},
    )
    path = tmp_path / "run.jsonl"
    options = ("quick", "--specs", Path(__file__).with_name("quick.py"), "--device", "cpu", "--runs", 8)
    command = ("scan", *options, "--processes", 1, "--python", standing.python, "-o", path)

    done = detmatrix(*command)

    reason = (
        "the control random in process 0 of mode off should show 0 of 8 differed, seeded, and shows 1 of 8 differed, "
        "not seeded"
    )
    assert (done.returncode, lines(path)[-1]["distrust"]) == (4, [reason])
    assert f"detmatrix: the scan cannot be trusted: {reason} (1 such)" in done.stderr
    # The answers of the first worker stay in the file; of the second there is what it answered wrongly.
    controls = [one for one in read_run(path).controls if (one.mode, one.process) == ("off", 0)]
    assert len({one.spec for one in controls}) == len(controls) == 6
    # Told in the file at once: a scan that is cut off and goes on does not forget it.
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    assert "Not trustworthy: the control random" in detmatrix("report", path).stdout
    assert detmatrix(*command, "--resume").returncode == 4
    assert json.loads(detmatrix("report", path, "--format", "json").stdout)["distrust"] == [reason]
