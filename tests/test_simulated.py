"""What a scan makes of a simulated GPU: its schedules, its verdicts, its refusals."""

from __future__ import annotations

import gc
import sys
import time
import weakref
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from msgspec.structs import replace

from detmatrix.opspecs.inputs import SimulatedInputs
from detmatrix.opspecs.model import Case, OpSpec, call
from detmatrix.scanner.accelerators import SIMULATED
from detmatrix.scanner.cases.plan import asked_for
from detmatrix.scanner.cases.rows import control_rows
from detmatrix.scanner.errors import UsageError
from detmatrix.scanner.observations import records
from detmatrix.scanner.observations.records import CpuComparison, Observation, Schedule, Simulation
from detmatrix.scanner.observations.runfile import read_run
from detmatrix.scanner.observations.settings import SETTINGS
from detmatrix.scanner.perturbations import shares
from detmatrix.scanner.repro.replay import ReplaySource, _compared, witness_of
from detmatrix.scanner.run import simulation
from detmatrix.scanner.schedules import SCHEDULES, split
from detmatrix.scanner.verdicts.cells import Cell
from detmatrix.scanner.verdicts.controls import check_controls
from detmatrix.scanner.verdicts.findings import MatrixRow, finding_of, matrix
from detmatrix.scanner.verdicts.simulated import recall
from detmatrix.scanner.worker import simulated
from detmatrix.scanner.worker.execution import Execution
from detmatrix.scanner.worker.observe import observe, settled
from detmatrix.scanner.worker.threads import thread_count
from tests.commands import Command, scanned_in
from tests.conftest import refused, table
from tests.runs import ENVIRONMENT, ran, row

RECORDED = Path(__file__).parents[1] / "reports" / "runs"
DATA = Path(__file__).parent / "data"

CONFLICTS: dict[str, Any] = {
    "pairs": [0, 0, 0], "commuting": 0, "tame": 0, "doubts": [], "told": [], "inexact": False,
}  # fmt: skip
TOLD: dict[str, Any] = {
    "launch": 0, "kernel": "k", "address": 64, "scope": "warps", "kinds": ["float add", "float add"], "blocks": [0, 0],
    "threads": [1, 33], "lines": [7, 7], "steps": [9, 9], "values": [1, 2], "old": 3, "shows": True,
}  # fmt: skip


WHERE: dict[str, Any] = {
    "direction": "forward", "dtype": "float32", "device": "cpu", "seed": 5, "perturbations": list(SCHEDULES), "seconds": 100.0,
}  # fmt: skip
REPORTED: dict[str, Any] = {"launches": [], "faults": [], "libraries": [], "products": []}


class Gpu:
    """Stands for the worker's side of a simulated GPU, which tells what a test says: also *whole*, asked with small integers."""

    def __init__(self, patch: pytest.MonkeyPatch, whole: dict[str, Any] | None = None, **told: Any) -> None:
        self.begun: list[tuple[str, int]] = []
        self.asked: dict[str, bool] = {}
        self._whole: dict[str, Any] | None = None
        self._told: dict[str, Any] = REPORTED | {"swapped": (True, True)} | told
        self._when_whole = whole or {}
        patch.setattr(simulated, "active", lambda: True)
        patch.setattr(simulated, "begin", self._begin)
        patch.setattr(simulated, "report", self._report)

    @property
    def now(self) -> tuple[str, int]:
        """The schedule that is in force: none where the CPU is asked for the same, which takes one thread."""
        return self.begun[-1] if torch.get_num_threads() != 1 else ("of the CPU", 0)

    def _report(self) -> simulated.Report:
        for name in ("moved", "traced"):  # the CPU, which is asked behind it, knows no such thing
            self.asked.pop(name, None)
        return simulated.Report(**self._told | (self._whole or {}))

    def _begin(self, name: str, number: int, seed: int, deadline: float, **asked: bool) -> None:
        assert seed == 5
        assert deadline > time.perf_counter()
        log = asked.get("log", False)
        if log and (name, number) == ("canonical", 0):
            self._whole = self._when_whole
        assert self._whole is not None or log == ((name, number) == ("canonical", 1))
        self.begun.append((name, number))
        self.asked = asked

    def observe(self, op: Callable[..., Any], runs: int = 8) -> dict[str, Any]:
        """Observe an op on it."""
        spec = OpSpec(name="own", op=op, why="", cases={"one": Case(inputs=lambda t: call(t.normal(64)))})
        with thread_count(2):
            return observe(spec, "one", **WHERE, runs=runs)


ASKED = asked_for(simulate="sm_80", workers=1)
HEADER = records.Header(format=7, tool="", started="", settings=ASKED, environment=ENVIRONMENT, planned=())
AGREES = CpuComparison(agrees=True)


@pytest.mark.parametrize(
    ("runs", "counts"),
    [(3, "2 1 0 0 0 0 0 0"), (8, "2 1 1 1 1 1 1 0"), (9, "2 1 1 1 1 1 1 1"), (16, "2 1 3 2 2 2 2 2")],
)
def test_executions_are_split_among_classes(runs: int, counts: str) -> None:
    """Canonical twice, memory once, the rest in turns; a worker divides by the same table."""
    assert " ".join(map(str, split(runs).values())) == counts
    assert shares(runs, SCHEDULES) == list(split(runs).values())
    assert shares(2, ["canonical"]) == [2]


def test_another_count_of_multiprocessors_is_another_device() -> None:
    """It is told by the run file, and what repeats a scan asks for it; without one it is the published count."""
    asked = asked_for(simulate="sm_80", multiprocessors=2)
    counts = [it.multiprocessors for it in map(simulation.described, (asked, ASKED)) if it]

    assert counts == [2, 108]
    assert SETTINGS["multiprocessors"].words(2) == ["--multiprocessors", "2"]
    assert SETTINGS["multiprocessors"].words(ASKED.multiprocessors) == []


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("platform.machine", "aarch64", "and this is Linux on aarch64"),
        ("find_spec", None, r"pip install 'detmatrix\[simulate]'"),
    ],
)
def test_machines_that_lack_something_are_told(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str | None, said: str
) -> None:
    """Another system and a missing package are errors of use."""
    monkeypatch.setattr(f"detmatrix.scanner.run.simulation.{name}", lambda *_: value)

    with pytest.raises(UsageError, match=said):
        simulation.simulation_for(ASKED, sys.executable, None)  # type: ignore[arg-type]


# ---- executions, with a GPU that does what a test says


def conflicts(*pairs: int, **more: Any) -> dict[str, Any]:
    """Return what the log tells of accesses that nothing orders: of blocks, of warps, of lanes."""
    return {"conflicts": CONFLICTS | {"pairs": pairs, "doubts": []} | more}


def differing(by: float, *names: str) -> Callable[[Any, Gpu], Any]:
    """Return an op that gives something else under schedules whose names begin so."""
    return lambda x, gpu: x + 1 + by * gpu.now[0].startswith(names)


def _once(x: Any, gpu: Gpu) -> Any:
    return x + (gpu.now in {("warps", 0), ("pair", 0)})


def _third_pair(x: Any, gpu: Gpu) -> Any:
    place = torch.zeros(64)
    place[5] = gpu.now in {("warps", 0), ("pair", 2)}
    return x * (1 + place)


def _moved(by: float) -> Callable[[Any, Gpu], Any]:
    return lambda x, gpu: x + by * gpu.asked.get("moved", False)


def _changing(change: Callable[[Any], Any]) -> Callable[[Any, Gpu], Any]:
    return lambda x, gpu: x + change(x) * (gpu.now in {("warps", 0), ("pair", 0)})


def _small(change: Callable[[Any], Any], kind: str, *pairs: Any) -> tuple[Any, dict[str, Any]]:
    """Return an op of which a pair of this kind is the witness, and what is told of it with small integers."""
    added = kind == "float add" and bool(pairs)
    whole = conflicts(0, 0, 0, told=[*pairs], inexact=added) | {"approximates": True}
    return _changing(change), conflicts(0, 2, 0, told=[TOLD | {"kinds": [kind] * 2}]) | {"whole": whole}


ANY = set(SCHEDULES[2:])
BLOCKS, WARPS = {"resident-blocks", "any-blocks"}, {"warps"}
UNORDERED = [TOLD | {"scope": "blocks"}, TOLD | {"old": 4}, TOLD | {"old": 5}]
# What an op gives on a GPU and what the GPU tells, and then what is found of the row, by fields: of texts what they say among others.
OBSERVED: dict[str, tuple[Callable[[Any, Gpu], Any], dict[str, Any], dict[str, Any]]] = {
    # The weakest class that differs is told, behind which executions end; rounding is no other value.
    "rounding, by warps": (
        differing(1e-6, "warps", "both", "lanes"), {},
        {"outcome": "ran", "schedule": {"name": "warps", "number": 0, "seed": 5}, "cpu.agrees": True, "value_race": False,
         "classes": {"canonical", "memory", "resident-blocks"} | WARPS},
    ),
    "a value race": (differing(1, "resident-blocks"), {}, {"outcome": "ran", "value_race": True}),
    "two canonical executions": (
        lambda x, gpu: x + (gpu.now == ("canonical", 1)), {}, {"outcome": "invalid", "message": "the simulation itself is not reproducible"},
    ),
    "memory": (differing(1, "memory"), {}, {"outcome": "ran", "cpu.why": "it returns memory that nobody wrote"}),
    "wrong": (differing(1, *SCHEDULES), {}, {"outcome": "ran", "schedule": None, "cpu.agrees": False}),
    # Orders are tried where threads are in conflict: what nothing can change is not executed again; where there is doubt all are.
    "no conflict": (differing(0), conflicts(0, 0, 0), {"race_free": True, "classes": {"canonical", "memory"}}),
    "of warps": (differing(0), conflicts(0, 7, 0), {"race_free": False, "classes": {"canonical", "memory"} | WARPS}),
    "of blocks and lanes": (
        differing(0), conflicts(3, 0, 9), {"race_free": False, "classes": {"canonical", "memory", "lanes", "divergence"} | BLOCKS},
    ),
    "of blocks and warps": (
        differing(0), conflicts(3, 1, 0), {"race_free": False, "classes": {"canonical", "memory", "both"} | WARPS | BLOCKS},
    ),
    "a doubt": (
        differing(0), conflicts(0, 0, 0, doubts=["reads a clock"]), {"race_free": False, "classes": {"canonical", "memory"} | ANY},
    ),
    # What is race-free is executed once in the reverse of all orders; the first kernel that leaves other memory behind has conflicts.
    "a log that missed all": (
        differing(1, "everything"), conflicts(0, 0, 0), {"outcome": "invalid", "message": "conflict log is wrong"},
    ),
    "a log that missed a kernel": (
        differing(1, "warps"), conflicts(0, 2, 0) | {"unexplained": "k"},
        {"outcome": "invalid", "message": "it found none in k, and there results begin to differ"},
    ),
    # A row that does not differ is executed once with allocations elsewhere; no order is blamed for what differs then.
    **{
        f"addresses, {of}": (
            lambda x, gpu: x + bool(gpu.asked.get("shifted")), conflicts(of, of, of),
            {"outcome": "ran", "race_free": False, "schedule": None, "conflicts.doubts": ("depends on addresses",)},
        )
        for of in (0, 1)
    },
    # A pair of accesses shows a difference if it came alone, and its values tell one; one that never came is no witness.
    "a pair": (_once, conflicts(0, 2, 0, told=[TOLD]), {"witness.shows": True}),
    "a pair with others": (_once, conflicts(0, 2, 0, told=[TOLD]) | {"swapped": (True, False)}, {"witness.shows": False}),
    "a pair whose values tell nothing": (_once, conflicts(0, 2, 0, told=[TOLD | {"shows": False}]), {"witness.shows": False}),
    "a pair that never came": (_once, conflicts(0, 2, 0, told=[TOLD]) | {"swapped": (False, False)}, {"witness": None}),
    # Pairs that the class may show are tried one by one; the first that gives other bits is told with the element.
    "the third pair": (
        _third_pair, conflicts(0, 2, 0, told=UNORDERED), {"witness.old": "0x5", "witness.output": "output", "witness.element": 5},
    ),
    # What rounds no more where nothing has to be rounded does not differ; stores of other threads do.
    "exact, a race": (*_small(lambda x: x * (1 + 1e-3) * 1e3 - x * 1e3, "write"), {"exact": "stays", "contradiction": ""}),
    "exact, rounding": (*_small(lambda x: (x - x.round()) / 2, "float add"), {"exact": "vanishes", "contradiction": ""}),
    "exact, additions": (
        *_small(lambda x: x + 1, "float add", TOLD), {"exact": None, "exact_why": "it adds what is not exact with small integers either"},
    ),
    "exact, approximations": (
        *_small(lambda x: x + 1, "float add"), {"exact": None, "exact_why": "it approximates, so that small integers do not stay exact"},
    ),
    "exact, equal stores": (
        *_small(lambda x: x - x.round(), "write"), {"exact": None, "exact_why": "its writers write the same small integers"},
    ),
    "exact, stores": (
        *_small(lambda x: x - x.round(), "write", TOLD), {"exact": "vanishes", "exact_why": "", "contradiction": "its witness are two stores"},
    ),
    # A row whose kernels approximate is executed once more with other last bits, and held to the CPU again.
    "approximations": (_moved(1), {"approximates": True}, {"cpu.agrees": True, "approximation_sensitive": True}),
    "approximations that matter little": (_moved(1e-7), {"approximates": True}, {"approximation_sensitive": False}),
    "no approximations": (_moved(1), {"approximates": False}, {"approximation_sensitive": False}),
}  # fmt: skip


@pytest.mark.parametrize("name", OBSERVED)
def test_what_is_found_of_a_row(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """By what differs, under which schedules, and by what the GPU tells of accesses."""
    op, told, expected = OBSERVED[name]
    gpu = Gpu(monkeypatch, **told)
    found = gpu.observe(lambda x: op(x, gpu), runs=20)
    found["classes"] = {one["perturbation"] for one in found["groups"]} if "groups" in found else None
    known = msgspec.convert(found["simulated"], Simulation)

    for path, value in expected.items():
        seen = found[path] if path in found else attrgetter(path)(known)
        seen = msgspec.to_builtins(seen) if isinstance(value, dict) else seen
        assert value in seen if value and isinstance(value, str) else seen == value, (path, found)
    if name.startswith("exact"):
        assert known.witness is not None
        assert bool(known.contradiction) == (name == "exact, stores")
        assert known.exact_why == expected.get("exact_why", "")
    if name == "the third pair":
        assert known.witness is not None
        assert known.witness.canonical != known.witness.swapped


def test_both_traced_executions_begin_without_what_others_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A result that an execution left in a cycle would lie where the next allocates: it is collected before each of the two."""
    gpu = Gpu(monkeypatch, conflicts=CONFLICTS | {"pairs": [0, 2, 0]})
    results: list[weakref.ref[torch.Tensor]] = []
    alive = []

    def op(x: torch.Tensor) -> torch.Tensor:
        if gpu.asked.get("traced"):
            alive.append(sum(one() is not None for one in results))
        result = x + (gpu.now[0] == "warps")
        cycle: list[object] = [result]
        cycle.append(cycle)
        results.append(weakref.ref(result))
        return result

    gpu.observe(op)

    assert alive == [0, 0]
    assert gc.isenabled()


def test_an_op_in_place_leaves_no_copy_of_its_input() -> None:
    """One that waits for a collection would decide where later executions allocate."""
    case = Case(inputs=lambda t: call(t.normal(64)))
    spec = OpSpec(name="own", op=torch.Tensor.neg_, why="", in_place=True, cases={"one": case})
    execution = Execution(spec, "one", direction="forward", dtype="float32", device="cpu", seed=5)
    gc.disable()
    try:
        left = weakref.ref(execution.arguments()[0])
        assert left() is None
    finally:
        gc.enable()


ALERT = "put_ does not have a deterministic implementation, but you set 'torch.use_deterministic_algorithms(True)'"
RAISED = {"outcome": "raised", "exception": "RuntimeError", "message": "CUDA error"}
SEEN: dict[str, dict[str, Any]] = {
    "ran": {"outcome": "ran"},
    "same": {"outcome": "ran", "simulated": {"schedule": {}}},
    "other": {"outcome": "ran", "simulated": {"schedule": {"name": "warps"}}},
    "raised": RAISED,
    "alert": RAISED | {"message": ALERT},
}


@pytest.mark.parametrize(
    ("seen", "fault", "library", "product", "outcome", "message"), table("simulated.txt", "outcomes")
)
def test_outcomes(seen: str, fault: str, library: str, product: str, outcome: str, message: str) -> None:
    """A fault is never swallowed, an alert is believed, a library proves nothing, products prove a difference alone."""
    faults, libraries, products = ([] if one == "none" else [one] for one in (fault, library, product))
    told = {
        "faults": [tuple(one.split(": ")) for one in faults],
        "libraries": libraries,
        "products": products,
    }

    after = SEEN[seen] | settled(SEEN[seen], simulated.Report(**REPORTED | told))

    assert (after["outcome"], after.get("message")) == (
        outcome,
        {"none": None, "alert": ALERT}.get(message, message),
    )
    assert (after["simulated"]["libraries"], after["simulated"]["products"]) == (libraries, products)


def test_inputs_are_drawn_as_for_the_cpu() -> None:
    """A third size, the CPU's by default; and no pool."""
    options: dict[str, Any] = {"dtype": "float32", "device": "meta", "direction": "forward"}
    t = SimulatedInputs("key", **options)

    assert (t.size(cpu=1, cuda=2), t.size(cpu=1, cuda=2, simulated=3)) == (1, 3)
    assert t.mixed(8, 8).device.type == t.coo(4, 4, stored=3).device.type == "meta"
    assert t.device == "meta"


AS_SIMULATED = "torch.nn.functional.interpolate:bilinear:backward:float32"


def test_a_device_may_be_given_the_inputs_of_a_simulated_gpu(detmatrix: Command, tmp_path: Path) -> None:
    """Its bits can then be held against a simulation's; a script of the row draws the same inputs."""
    alone = ("--device", "cpu", "--processes", 1, "--no-cost", "--no-overloads")
    recorded = read_run(RECORDED / "torch-2.13.0-simulated-sm_80.jsonl.gz")
    digests = [{one.inputs_digest for one in recorded.observations if ":".join(one.key) == AS_SIMULATED}]
    for asked in ((), ("--as-simulated",)):
        run = scanned_in(tmp_path, "--perturb", "quiet", "--runs", 2, *alone, *asked, "--force", AS_SIMULATED)
        digests.append({one.inputs_digest for one in run.observations})
    told = detmatrix("report", "run.jsonl", "--format", "md").stdout
    written = detmatrix("repro", "run.jsonl", AS_SIMULATED)

    assert digests[0] == digests[2] != digests[1]
    assert "given the inputs of a simulated GPU" in told
    assert (written.returncode, "the inputs drawn here are not those" in written.stderr) == (0, False)


# ---- verdicts


CPU = {
    "agrees": AGREES,
    "disagrees": CpuComparison(agrees=False, output="output", elements=1, of=2),
    "cannot": CpuComparison(agrees=None, why="no kernel"),
    "none": None,
}
# What simulated executions show that is no difference.
VERDICTS: dict[str, Any] = {
    "same": "deterministic",
    "other": "deterministic",
    "raises": "raises",
    "nan": "error",
}


def cell(shown: Any) -> Cell:
    """Return what simulated executions showed: one of these, or a class of schedules that gives other bits."""
    schedule = None if shown in VERDICTS else Schedule(name=shown, number=0, seed=0)
    known = Simulation(schedule=schedule, cpu=None if shown == "raises" else AGREES)
    bits: dict[str, Any] = {
        "first": "b" if shown == "other" else "a",
        "blank": "nan" if shown == "nan" else None,
    }
    verdict = VERDICTS.get(shown, "nondeterministic")
    return Cell(verdict=verdict, runs=8, by_process=(8,), simulated=known, **bits)


@pytest.mark.parametrize(("off", "on", "finding", "reason"), table("simulated.txt", "findings"))
def test_findings_rest_on_schedules(off: str, on: str, finding: str, reason: str) -> None:
    """No number of executions is asked for, and no rate bounded: schedules are no samples."""
    assert finding_of(cell(off), cell(on)) == (finding, None if reason == "none" else reason)
    assert cell("same").upper_bound is None


def simulated_row(off: CpuComparison | None, on: CpuComparison | None) -> MatrixRow:
    """Return a row of a run, with what the CPU says of each mode."""
    planned = row("own", device=SIMULATED)
    seen: list[Observation] = []
    for mode, cpu in (("off", off), ("on", on)):
        (one,) = ran(planned, mode, {"a": 8})  # type: ignore[arg-type]
        seen.append(replace(one, simulated=Simulation(cpu=cpu)))
    return next(iter(matrix(replace(HEADER, planned=(planned,)), seen, closed=True)))


@pytest.mark.parametrize(("off", "on", "beside", "verdicts"), table("simulated.txt", "cpu"))
def test_results_that_are_not_the_cpus(off: str, on: str, beside: str, verdicts: str) -> None:
    """One mode that agrees tells whose fault the other is; else it may be ours, and is an error."""
    found = simulated_row(CPU[off], CPU[on])

    assert found.beside == (() if beside == "none" else (beside,))
    assert {*found.beside} <= found.found
    assert f"{found.off.verdict} {found.on.verdict}" == verdicts
    if "error" in verdicts:
        assert found.finding == "inconclusive"
        assert "its result is not the CPU's: 1 of 2 elements of output" in str(found.reason)
    assert found.weak is None


@pytest.mark.parametrize(
    ("name", "mode", "schedule", "pairs", "cpu", "runs", "ok"), table("simulated.txt", "controls")
)
def test_controls(name: str, mode: Any, schedule: Any, pairs: str, cpu: str, runs: str, ok: str) -> None:
    """Each differs in exactly its class, or is proved not to; what is in conflict never is."""
    (planned,) = [one for one in control_rows(SIMULATED) if one.spec == f"control.{name}"]
    witness = Simulation(
        schedule=None if schedule == "none" else Schedule(name=schedule, number=0, seed=0),
        cpu=CPU[cpu],
        conflicts=records.Conflicts(pairs=(int(pairs), 0, 0)),
    )
    executions = split(int(runs)).items()
    groups = tuple(records.Group(perturbation=it, executions=n, differing=0) for it, n in executions if n)
    (one,) = ran(planned, mode, {"a": 8})

    (check,) = check_controls(
        replace(HEADER, controls=(planned,)), [replace(one, simulated=witness, groups=groups)]
    )

    assert check.ok is (ok == "yes"), check


@pytest.mark.parametrize("reads", [False, True])
def test_kernels_of_the_size_that_a_gpu_gets(monkeypatch: pytest.MonkeyPatch, reads: bool) -> None:
    """Host code alone is run at that size; kernels that were not executed are told, and those that had one block."""
    gpu = Gpu(monkeypatch)
    executed, names = {"a": 1, "b": 2}, {"a": "A", "b": "B", "c": "C<8>"}

    def report() -> simulated.Report:
        launched = {"a": 7, "b": 9, "c": 1} if gpu.asked.get("skip") else executed
        told = {"launches": list(launched), "blocks": list(launched.values()), "names": names}
        return simulated.Report(**REPORTED | told, reads=reads and bool(gpu.asked.get("skip")))

    monkeypatch.setattr(simulated, "report", report)
    sizes: list[int] = []
    case = Case(inputs=lambda t: call(t.normal(t.size(cpu=4, cuda=1 << 20))))

    def op(x: torch.Tensor) -> torch.Tensor:
        sizes.append(len(x))
        return x + 1

    spec = OpSpec(name="own", op=op, why="", cases={"one": case})
    monkeypatch.setattr("detmatrix.opspecs.inputs.RealSizeInputs.size", lambda _, **sizes: sizes["cuda"])
    found = observe(spec, "one", **WHERE, runs=8)["simulated"]

    assert sizes[-1] == 1 << 20
    assert set(sizes[:-1]) == {4}
    assert found.get("other_kernels") == (None if reads else ["C<8>", "A of several blocks"])
    assert found.get("real_size_why", "") == ("its host code reads results" if reads else "")


def test_recall_counts_a_schedule_from_its_turn_on() -> None:
    """With blocks and warps in conflict the third order of blocks takes more than eight executions; goldens show the rest."""
    known = Simulation(
        schedule=Schedule(name="resident-blocks", number=2, seed=0),
        conflicts=records.Conflicts(pairs=(4, 4, 0)),
    )
    found = simulated_row(AGREES, AGREES)
    off = replace(found.off, verdict="nondeterministic", simulated=known)

    told = recall([replace(found, cells=found.cells | {"off": off})], 16)

    assert told == ({"resident-blocks": 1}, {4: 0, 8: 0, 16: 1})


# ---- scripts of a recorded simulation, which replay schedules: of a scan with --simulate sm_80 of torch 2.15.0


REPLAYED = "torch.nn.AdaptiveMaxPool3d:smaller_output:backward:float32"


@pytest.fixture(scope="module")
def replayed() -> tuple[MatrixRow, ReplaySource]:
    """Return the row that is replayed, and what its script holds."""
    run = read_run(DATA / "simulated.jsonl.gz")
    row = next(it for it in matrix(run.header, run.observations, closed=True) if it.row.id == REPLAYED)
    return row, witness_of(row, run.header)


def test_script_replays_a_schedule(
    detmatrix: Command, tmp_path: Path, replayed: tuple[MatrixRow, ReplaySource]
) -> None:
    """It holds the row, the schedule of each mode and both digests, and nothing that a run file says outside of quotes."""
    path, (_, source) = DATA / "simulated.jsonl.gz", replayed
    detmatrix("repro", "--replay", path, "AdaptiveMaxPool3d:smaller_output", "-o", "replay.py")
    text = (tmp_path / "replay.py").read_text(encoding="utf-8")
    held: list[ReplaySource] = []
    script = text.replace("from detmatrix.scanner.repro.replay import main\n", "")
    exec(script, {"main": lambda one: held.append(msgspec.convert(one, ReplaySource))})

    assert held == [source]
    shown = {mode: (len(it.digests), it.schedule and it.schedule.name) for mode, it in source.modes.items()}
    assert shown == {"off": (2, "resident-blocks"), "on": (2, "resident-blocks")}
    line = refused(detmatrix("repro", "--replay", path, "Conv2d:dense"))
    assert "nothing to replay, it ran in no mode (off: not_run (calls cudnnBackendExecute" in line


@pytest.mark.parametrize(
    ("change", "same", "line"),
    [
        ({}, True, "the same as recorded"),
        ({"inputs_digest": "2:0"}, False, "the inputs are not those of the run"),
        ({"digests": {"2:a": 3, "2:b": 1}}, False, "NOT what is recorded"),
        ({"outcome": "timeout", "message": "it did not end"}, False, "timeout: it did not end"),
    ],
)
def test_replay_tells_the_same_from_other_bits(
    replayed: tuple[MatrixRow, ReplaySource], change: dict[str, Any], same: bool, line: str
) -> None:
    """A replay is the same if its inputs, its schedule and the bits of both executions are."""
    row, source = replayed
    lines = list(_compared(source, source.modes["off"], replace(row.observations[0], **change)))

    assert all(is_same for _, is_same in lines) is same
    assert any(text.startswith(line) for text, _ in lines)
