"""The path of a GPU through the worker, on a stand-in for one: tensors stay there, nothing waits, what breaks is replaced."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from detmatrix.opspecs.model import OpSpec, Planned
from detmatrix.opspecs.registry import SPECS
from detmatrix.scanner.cases.rows import known_rows
from detmatrix.scanner.observations.records import Mode, Row
from detmatrix.scanner.observations.runfile import read_run
from detmatrix.scanner.processes import environment
from detmatrix.scanner.processes.process import ImportSandbox, WorkerBuild, WorkerSupervisor
from detmatrix.scanner.verdicts.cells import Cell, row_cell
from detmatrix.scanner.worker import accelerator, bits, databases
from detmatrix.scanner.worker.execution import DRAWS, Execution
from tests.commands import Command
from tests.runs import ran
from tests.stand_in_worker import BUILD

FAKE = Path(__file__).with_name("fake_cuda.py")
ROWS = [row for spec in SPECS for row in spec.rows("cuda")]
# What a pass asks of a row.
PASSES: dict[str, dict[str, Any]] = {
    "observe": {"runs": 8, "perturbations": ["quiet", "stress", "shift", "poison"]},
    "cost": {"max_seconds": 0.001},
    "dispatch": {},
}
# A file of specs whose worker has a stand-in for a device of another kind.
OTHER = f"""
import sys
sys.path.append({str(FAKE.parents[1])!r})
from tests.fake_device import install
from tests.quick import SPECS
install("{{kind}}")
"""
# What an op says that the CPU has no kernel for, and what it says with the flag on.
LACKS = ("not implemented for", "No viable backend", "deterministic implementation")
PATIENCE = 120.0


class Fake:
    """Workers that have the stand-in."""

    def __init__(self, folder: Path) -> None:
        self.supervisor = WorkerSupervisor(sys.executable, folder, (str(FAKE),), "cuda:0")

    def ask(self, do: str, spec: str, mode: Mode = "off", **more: Any) -> dict[str, Any]:
        """Ask for a row of the harmful ops."""
        row = Planned(spec=f"fake.{spec}", case="one", direction="forward", dtype="float32")
        return self.row(do, row, mode, **more)

    def row(self, do: str, row: Planned, mode: Mode = "off", **more: Any) -> dict[str, Any]:
        """Ask for a row."""
        request = {"do": do, **row._asdict(), "device": "cuda:0", "seed": 0, **PASSES[do], **more}
        return self.supervisor.ask(mode, request, PATIENCE)

    def told(self) -> tuple[int, int]:
        """Return how often the host has waited, and how many bytes were held at most, since this was last asked."""
        waited, peak, *_ = self.ask("observe", "tells")["message"].replace(",", "").split()
        return int(waited), int(peak)


@pytest.fixture(scope="module")
def fake() -> Iterator[Fake]:
    """Return workers that have the stand-in; one that breaks is replaced."""
    with ImportSandbox() as sandbox:
        workers = Fake(sandbox.path)
        yield workers
        workers.supervisor.retire()


def _waits(fake: Fake, spec: str, case: str, runs: int) -> int:
    row = Planned(spec=spec, case=case, direction="forward", dtype="float32")
    before, _ = fake.told()
    fake.row("observe", row, runs=runs, perturbations=["quiet"])
    return fake.told()[0] - before


@pytest.mark.parametrize(("spec", "case"), [("control.constant", "plain"), ("control.varies", "each_time")])
def test_synchronisations_do_not_grow_with_n(fake: Fake, spec: str, case: str) -> None:
    """The host waits as often for 400 executions as for 50, whether they differ or not; no execution waits.

    Twice a second it looks at what differed, so that beside other work it waits some times more.
    """
    assert _waits(fake, spec, case, 400) <= _waits(fake, spec, case, 50) + 20


def test_what_differs_is_seen_early(fake: Fake) -> None:
    """Of a case that always differs no more outputs are made, digested and measured than are needed."""
    row = Planned(spec="control.varies", case="each_time", direction="forward", dtype="float32")
    answer = fake.row("observe", row, runs=400, perturbations=["quiet"])

    assert answer["executions"] == 12
    assert len(answer["digests"]) == 12
    (output,) = answer["outputs"]
    assert output["severity"]["differing_elements"] == 1


@pytest.mark.parametrize(
    ("spec", "max_time", "perturbations", "expected"),
    [
        # The first execution and one behind it, and one of each further perturbation.
        ("slower", 0.6, ["quiet", "shift", "poison"], range(4, 5)),
        # As many as fit, and those that were queued when the time was over.
        ("slow", 0.4, ["quiet"], range(5, 26)),
    ],
)
def test_time_is_that_of_the_device(
    fake: Fake, spec: str, max_time: float, perturbations: list[str], expected: range
) -> None:
    """Work that is queued at once is not taken for work that is done, so that time bounds a case on a device, too."""
    answer = fake.ask("observe", spec, runs=60, perturbations=perturbations, max_time=max_time)

    assert answer["executions"] in expected


def test_memory_of_queued_comparisons_is_bounded(fake: Fake) -> None:
    """Outputs wait for their comparison in a sixteenth of the memory of the device; 100 of these would take 400 MB."""
    fake.told()
    answer = fake.ask("observe", "wide", runs=100, perturbations=["quiet"])
    _, peak = fake.told()

    assert answer["executions"] == 100
    # The input, which is repeated from a few numbers, the first output and a copy of it, and what a comparison makes.
    assert peak < (1 << 29) / 16 + 8 * (4 << 20)


@pytest.mark.parametrize("do", PASSES)
@pytest.mark.parametrize(
    ("spec", "told"), [("asserts", "device-side assert triggered"), ("large", "OutOfMemoryError")]
)
def test_what_breaks_a_worker_costs_its_row_and_that_worker(
    fake: Fake, spec: str, told: str, do: str
) -> None:
    """What fails on the device stays with the process, in which no later row runs; the memory of the next one is whole."""
    assert fake.ask(do, "before")["outcome"] == "ran"
    started = fake.supervisor.started

    answer = fake.ask(do, spec)

    assert told in str([answer, *answer.get("modes", {}).values()])
    assert fake.ask(do, "behind")["outcome"] == "ran"
    assert fake.supervisor.started == started + 1


@pytest.mark.parametrize("spec", ["before", "wide", "partly_empty"])
def test_digests_are_those_of_the_cpu(fake: Fake, spec: str) -> None:
    """What is digested on a device, many blocks at once, has the digest that it has on the CPU."""
    there, here = (fake.ask("observe", spec, device=device) for device in ("cuda:0", "cpu"))

    assert there["inputs_digest"] == here["inputs_digest"]
    assert list(there["digests"]) == list(here["digests"])


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("xpu", "XPU: memory is not bounded, so that one worker runs at a time"),
        ("mps", "MPS: no perturbation stress (it has one stream); memory is not bounded, so that one worker runs at a time"),
    ],
)  # fmt: skip
def test_other_accelerators_run_what_they_can(
    detmatrix: Command, tmp_path: Path, kind: str, text: str
) -> None:
    """A whole scan of a device that is not CUDA; what it cannot do is said in one line."""
    specs = tmp_path / f"fake_{kind}.py"
    specs.write_text(OTHER.format(kind=kind))
    options = ("--specs", specs, "--device", kind, "--runs", 8, "--processes", 1)

    done = detmatrix("scan", "quick.cumsum", "torch.kthvalue:tied_rows", *options, "-o", "run.jsonl")

    assert done.returncode == 0, done.stderr
    assert f"scan: {text}" in done.stderr.splitlines()
    run = read_run(tmp_path / "run.jsonl")
    assert run.closing is not None
    assert run.closing.distrust == ()
    assert run.header.settings.device == f"{kind}:0"
    for records in (run.observations, run.costs, run.dispatches):
        assert {one.outcome for one in records} == {"ran"}
    assert run.kernels is not None
    assert run.kernels.message is None


@pytest.mark.parametrize("do", PASSES)
@pytest.mark.parametrize(
    "row", [*ROWS[::400], pytest.param(ROWS, marks=pytest.mark.nightly, id="all")], ids=lambda row: row.id
)
def test_rows_run_on_the_device(fake: Fake, row: Planned | list[Planned], do: str) -> None:
    """Whatever the catalog plans goes through every pass; nothing fails but what the CPU below lacks."""
    answers = {one.id: fake.row(do, one) for one in ([row] if isinstance(row, Planned) else row)}

    failed = {one: answer for one, answer in answers.items() if answer["outcome"] not in {"ran", "raised"}}
    assert failed == {}
    raised = {
        one: answer["message"]
        for one, answer in answers.items()
        if answer["outcome"] == "raised" and not any(text in answer["message"] for text in LACKS)
    }
    assert raised == {}


# What a worker asks of a device beside running rows: its memory, its first calls, its TF32; and how many share it.

GIB = 1 << 30


@pytest.mark.parametrize(
    ("share", "total", "within"),
    [
        # As far as what is in use and a gigabyte more.
        (1.0, 80, 2 / 80),
        # Of workers side by side each keeps to its own, also behind a trial.
        (1 / 16, 8, 1 / 16),
    ],
)
def test_memory_of_a_device_is_bounded_while_samples_are_tried(
    monkeypatch: pytest.MonkeyPatch, share: float, total: int, within: float
) -> None:
    """Addresses, which libraries reserve, are not bounded there."""
    given: list[float] = []
    module = SimpleNamespace(
        get_device_properties=lambda _: SimpleNamespace(total_memory=total * GIB),
        memory_allocated=lambda _: GIB,
        set_per_process_memory_fraction=lambda share, _: given.append(share),
        set_device=lambda _: None,
    )
    monkeypatch.setattr(accelerator, "module_of", lambda _: module)
    monkeypatch.setattr(accelerator, "_shares", {})
    monkeypatch.setattr("detmatrix.scanner.worker.databases.resource.setrlimit", None)
    accelerator.select("cuda:0", share)
    accelerator.select("cuda:0", share)

    assert accelerator.memory("cuda:0") == total * GIB * share
    with databases._bounded_memory("cuda:0"):
        assert given[-1] == within
    assert given == [share] * (share < 1) + [within, share]


@pytest.mark.parametrize(("device", "expected"), [("cuda:0", 0.01), ("cpu", 5.0)])
def test_what_a_first_call_loads_is_no_time_of_the_op(
    monkeypatch: pytest.MonkeyPatch, device: str, expected: float
) -> None:
    """On a device a call that took too long is made again; on the CPU nothing is loaded with a kernel."""
    calls = iter([5.0, 0.01])
    monkeypatch.setattr(databases.EntryPlanner, "execute", lambda *_: next(calls))
    entry: Any = None
    tried = databases.EntryPlanner(entry, "float32", device, 0, {})

    assert tried._seconds("enlarged_0", "forward", "") == expected


@pytest.mark.parametrize("allowed", [True, False])
def test_tf32_is_told_as_it_is_set(allowed: bool) -> None:
    """What a build allows by default differs between releases, and decides what convolutions compute."""
    # The test suite of PyTorch, which other tests load, lets the setting be changed in no other way.
    with torch.backends.cudnn.flags(allow_tf32=allowed):
        assert ("cuDNN" in accelerator.tf32()) == allowed


@pytest.mark.parametrize(
    ("device", "memory", "cores", "expected"),
    [
        ("cpu", 0, 64, 1),
        ("cuda:0", 80 * GIB, 16, 8),
        ("cuda:0", 80 * GIB, 6, 3),
        ("cuda:0", 24 * GIB, 16, 3),
        ("cuda:0", 4 * GIB, 16, 1),
        ("cuda:0", 80 * GIB, 1, 1),
        ("xpu:0", 80 * GIB, 16, 1),
    ],
)
def test_workers_that_share_a_device(
    monkeypatch: pytest.MonkeyPatch, device: str, memory: int, cores: int, expected: int
) -> None:
    """As many as memory and cores allow; one where they would be load to one another, or memory has no bounds."""
    monkeypatch.setattr("detmatrix.scanner.processes.environment.os.cpu_count", lambda: cores)
    there = [{"kind": device.partition(":")[0], "name": "Pretended", "capability": "", "memory": memory}]
    build: WorkerBuild = {**BUILD, "devices": there}  # type: ignore[typeddict-item]

    assert environment.workers_for(device, build) == expected


# Rows of CUDA in the sizes of CUDA: computed by the CPU, of the numbers that an accelerator draws.


# What draws inputs takes any name but "cpu" for that of an accelerator, and torch takes this one for the CPU.
DEVICE = "cpu:0"
# What a CPU cannot do, or takes long for; with halves the backward of a nearest grid_sample writes out of bounds in torch 2.13.
LEFT_OUT = (
    "*:*float16",
    "torch.histc:*:int*",
    "torch.nn.functional.linear_cross_entropy:*:backward:*",
    "torch.nn.functional.scaled_dot_product_attention:efficient*",
)


def _cell(spec: OpSpec, row: Row) -> Cell:
    """Return the cell of a row that is the same twice."""
    execution = Execution(
        spec, row.case, direction=row.direction, dtype=row.dtype, device=DEVICE, seed=0, kept=DRAWS
    )
    _, judged = execution.parts(*execution())
    kind, part = bits.blank(judged, execution.inputs())
    observations = [replace(one, blank=kind, blank_output=part) for one in ran(row, "off", {"a": 2})]
    return row_cell(observations, "", row)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
def test_rows_hold_information() -> None:
    """None is an error for want of it: a gradient that is zero everywhere in these sizes is one on every GPU."""
    rows = [(spec, row) for spec in SPECS for row in known_rows("cuda:0", (spec,))]
    cells = {
        row.id: _cell(spec, row)
        for spec, row in rows
        if not any(fnmatchcase(row.id, one) for one in LEFT_OUT)
    }

    assert len(cells) > len(rows) / 2
    assert {one: cell.reason for one, cell in cells.items() if cell.verdict != "deterministic"} == {}
