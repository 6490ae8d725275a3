"""Real scans: what they find on this CPU, what they tell of it, and that they go on where they were cut."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from detmatrix.scanner.observations.runfile import read_run
from detmatrix.scanner.verdicts.findings import matrix
from tests.commands import Command, command_in
from tests.conftest import cells, lines

QUICK = Path(__file__).with_name("quick.py")
OPTIONS = ("--specs", QUICK, "--device", "cpu", "--processes", 1)
# Ops that race, are serial, and raise, on any CPU with two threads.
RACING = (
    "torch.Tensor.put_", "torch.Tensor.index_put_:accumulate*", "torch.cumsum:*:forward:float32", "torch.histc",
    "torch.nn.MaxUnpool1d",
)  # fmt: skip


def _racing(folder: Path) -> Path:
    """Scan ops of which some race; return the run file."""
    options = ("--device", "cpu", "--processes", 1, "--no-cost", "--no-overloads")
    done = command_in(folder)("scan", *RACING, *options, "-o", "run.jsonl")
    assert done.returncode == 0, done.stderr
    return folder / "run.jsonl"


@pytest.fixture(scope="module")
def racing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a scan of ops of which some race."""
    torch = pytest.importorskip("torch")
    if torch.get_num_threads() < 2:
        pytest.skip("one thread: nothing differs on a CPU without a second one")
    return _racing(tmp_path_factory.mktemp("racing"))


@pytest.mark.alone
def test_cpu_shows_every_verdict(racing: Path) -> None:
    """A machine without a GPU shows deterministic, nondeterministic and raises from real runs of real ops."""
    report = json.loads(command_in(racing.parent)("report", racing, "--format", "json").stdout)

    seen = cells(report["rows"])
    assert seen["torch.Tensor.put_:accumulate:forward:float32"] == ("nondeterministic", "deterministic")
    assert seen["torch.Tensor.put_:overwrite:forward:float32"][1] == "raises"
    assert seen["torch.Tensor.put_:accumulate:forward:int64"] == ("deterministic", "deterministic")
    assert seen["torch.Tensor.index_put_:accumulate:forward:float32"] == ("nondeterministic", "deterministic")
    alerts = {row["on"]["alert"] for row in report["rows"]}
    assert alerts == {None, "put_", "max_unpooling2d_forward_out"}


@pytest.mark.alone
def test_two_scans_agree(racing: Path, tmp_path: Path) -> None:
    """The same scan of real ops again gives the same findings: serial ones, raising ones, and ones that race."""
    found = []
    for path in (racing, _racing(tmp_path)):
        run = read_run(path)
        rows = matrix(run.header, run.observations, closed=True, sentinels=run.sentinels)
        found.append({row.row.id: row.finding for row in rows})

    assert found[0] == found[1]
    assert {"deterministic", "fixed_by_mode", "raises", "over_alert"} <= set(found[0].values())


def test_inputs_follow_from_the_seed(real_scan: Path) -> None:
    """Inputs depend on the seed and on nothing else: not on the process, the mode, or what ran before."""
    pytest.importorskip("torch")
    from detmatrix.scanner.worker.observe import observe  # noqa: PLC0415 - needs torch
    from tests.quick import SPECS  # noqa: PLC0415

    scanned = {o.key: o.inputs_digest for o in read_run(real_scan).observations if o.inputs_digest}
    for spec in SPECS:
        for one in spec.rows("cpu"):
            if one.spec == "quick.missing":
                continue
            where = {"direction": one.direction, "dtype": one.dtype, "device": "cpu", "runs": 1}
            equal, other = (observe(spec, one.case, **where, seed=seed) for seed in (0, 1))  # type: ignore[arg-type]

            key = (one.spec, one.case, one.direction, one.dtype)
            assert equal["inputs_digest"] == scanned[key] != other["inputs_digest"]


def test_real_scan_goes_on(detmatrix: Command, tmp_path: Path, real_scan: Path) -> None:
    """A real scan that was cut is finished with the same inputs, outputs and verdicts; whole lines stay."""
    options = ("quick.cumsum", "quick.put_", *OPTIONS, "--runs", 6)
    header, *records = lines(real_scan)
    quick = [
        one for one in records if one.get("spec", "").startswith(("quick.cumsum", "quick.put_", "control."))
    ]
    # As the same scan of these rows alone would have left it, cut before what raised runs under warn_only.
    header["planned"] = [row for row in header["planned"] if row["spec"] in {"quick.cumsum", "quick.put_"}]
    header["settings"] |= {"patterns": ["quick.cumsum", "quick.put_"], "specs": [str(QUICK)], "timeout": 60.0}
    seen = [one for one in quick if one["kind"] == "observation" and one["process"] == 0]
    assert (seen[-1]["mode"], seen[-1]["spec"]) == ("warn_only", "quick.put_")
    kept = "".join(json.dumps(one) + "\n" for one in (header, *seen[:-1]))
    path = tmp_path / "run.jsonl"
    path.write_text(kept + json.dumps(seen[-1])[:100])

    done = detmatrix("scan", *options, "--resume", "-o", path)

    assert done.returncode == 0, done.stderr
    assert path.read_text().startswith(kept)
    found, expected = (
        {(o.key, o.mode): (o.outcome, o.inputs_digest, tuple(o.digests)) for o in read_run(file).observations}
        for file in (path, real_scan)
    )
    assert found == {key: expected[key] for key in found}
    assert len(found) == 5 * 2 + 1
