"""What a scan makes of a simulated GPU: its schedules, its verdicts, its refusals."""

from __future__ import annotations

import gc
import sys
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from msgspec.structs import replace

from detmatrix.opspecs.inputs import SimulatedInputs
from detmatrix.opspecs.model import Case, OpSpec, call
from detmatrix.scanner.accelerators import SIMULATED
from detmatrix.scanner.cases.rows import control_rows
from detmatrix.scanner.cases.settings import asked_for
from detmatrix.scanner.errors import UsageError
from detmatrix.scanner.observations import records
from detmatrix.scanner.observations.records import CpuComparison, Observation, Schedule, Simulation
from detmatrix.scanner.observations.runfile import read_run
from detmatrix.scanner.observations.settings import SETTINGS
from detmatrix.scanner.perturbations import OFFERED, shares
from detmatrix.scanner.run import simulation
from detmatrix.scanner.schedules import SCHEDULES, split
from detmatrix.scanner.verdicts.cells import Cell
from detmatrix.scanner.verdicts.controls import check_controls
from detmatrix.scanner.verdicts.findings import MatrixRow, finding_of, matrix
from detmatrix.scanner.verdicts.simulated import recall
from detmatrix.scanner.worker import simulated
from detmatrix.scanner.worker.execution import Execution
from detmatrix.scanner.worker.observe import observe, settled
from tests.commands import Command
from tests.runs import ENVIRONMENT, ran, row

RECORDED = Path(__file__).parents[1] / "reports" / "runs"

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
    """Stands for the worker's side of a simulated GPU."""

    def __init__(self, patch: pytest.MonkeyPatch, **told: Any) -> None:
        self.now = ("canonical", 0)
        self.begun: list[tuple[str, int]] = []
        self.whole = False  # small integers are asked for
        self.skips: bool | None = False
        self.moved: bool | None = False
        self.shifted: bool | None = False
        self.traced: bool | None = False
        found: dict[str, Any] = REPORTED | {"swapped": (True, True)} | told
        self.told = found
        patch.setattr(simulated, "active", lambda: True)
        patch.setattr(simulated, "begin", self._begin)
        patch.setattr(simulated, "report", self._report)

    def _report(self) -> simulated.Report:
        self.moved = self.traced = False  # the CPU, which is asked behind it, knows no such thing
        return simulated.Report(**self.told)

    def _begin(
        self, name: str, number: int, seed: int, deadline: float, *, log: bool = False, **how: bool
    ) -> None:
        assert seed == 5
        assert deadline > time.perf_counter()
        self.whole |= log and (name, number) == ("canonical", 0)
        assert self.whole or log == ((name, number) == ("canonical", 1))
        self.now = (name, number)
        self.skips, self.moved, self.shifted = how.get("skip"), how.get("moved"), how.get("shifted")
        self.traced = how.get("traced")
        self.begun.append(self.now)

    def observe(self, op: Callable[..., Any], runs: int = 8) -> dict[str, Any]:
        """Observe an op on it."""
        spec = OpSpec(name="own", op=op, why="", cases={"one": Case(inputs=lambda t: call(t.normal(64)))})
        return observe(spec, "one", **WHERE, runs=runs)


ASKED = asked_for(simulate="sm_80", workers=1)
HEADER = records.Header(format=7, tool="", started="", settings=ASKED, environment=ENVIRONMENT, planned=())
AGREES, DISAGREES = CpuComparison(agrees=True), CpuComparison(agrees=False, output="output", elements=1, of=2)


@pytest.mark.parametrize(
    ("runs", "counts"),
    [(3, "2 1 0 0 0 0 0 0"), (8, "2 1 1 1 1 1 1 0"), (9, "2 1 1 1 1 1 1 1"), (16, "2 1 3 2 2 2 2 2")],
)
def test_executions_are_split_among_classes(runs: int, counts: str) -> None:
    """Canonical twice, memory once, the rest in turns; a worker divides by the same table."""
    assert " ".join(map(str, split(runs).values())) == counts
    assert shares(runs, SCHEDULES) == list(split(runs).values())
    assert shares(2, ["canonical"]) == [2]


def test_schedules_are_asked_for_by_the_architecture_alone() -> None:
    """They are no perturbations of other devices, and no words of a command line."""
    asked = (ASKED.device, ASKED.perturb, ASKED.runs, ASKED.processes, ASKED.cost, ASKED.overloads)
    words = [word for name, it in SETTINGS.items() if it.reruns for word in it.words(getattr(ASKED, name))]

    assert not set(OFFERED) & set(SCHEDULES)
    assert asked == (SIMULATED, SCHEDULES, 8, 1, False, False)
    assert words[:4] == ["--simulate", "sm_80", "--runs", "8"]
    assert not {"--device", "--perturb"} & set(words)


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


def test_executions_end_behind_the_first_class_that_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is told is the weakest class; rounding is no other value."""
    gpu = Gpu(monkeypatch)
    found = gpu.observe(lambda x: x + 1 + 1e-6 * (gpu.now[0] in {"warps", "both", "lanes"}), runs=14)

    assert found["outcome"] == "ran"
    assert found["simulated"]["schedule"] == {"name": "warps", "number": 0, "seed": 5}
    assert found["simulated"]["cpu"]["agrees"] is True
    assert found["simulated"]["value_race"] is False
    assert [one["perturbation"] for one in found["groups"]] == [
        "canonical",
        "memory",
        "resident-blocks",
        "warps",
    ]
    assert ("canonical", 1) in gpu.begun
    assert gpu.begun[-4:] == [("warps", 1), ("canonical", 0), ("warps", 0), ("canonical", 0)]


@pytest.mark.parametrize(
    ("pairs", "doubts", "classes"),
    [
        ([0, 0, 0], [], set()),
        ([0, 7, 0], [], {"warps"}),
        ([3, 0, 9], [], {"resident-blocks", "any-blocks", "lanes", "divergence"}),
        ([3, 1, 0], [], {"resident-blocks", "warps", "both", "any-blocks"}),
        ([0, 0, 0], ["reads a clock"], set(SCHEDULES[2:])),
    ],
)
def test_orders_are_tried_where_threads_are_in_conflict(
    monkeypatch: pytest.MonkeyPatch, pairs: list[int], doubts: list[str], classes: set[str]
) -> None:
    """What nothing can change is not executed again; where there is doubt all classes are."""
    gpu = Gpu(monkeypatch, conflicts=CONFLICTS | {"pairs": pairs, "doubts": doubts})
    found = gpu.observe(lambda x: x + 1, runs=20)

    assert {one["perturbation"] for one in found["groups"]} == {"canonical", "memory"} | classes
    simulation = msgspec.convert(found["simulated"], Simulation)
    assert simulation.race_free is (not classes)


@pytest.mark.parametrize(
    ("pairs", "differs", "said"),
    [
        ([0, 0, 0], "everything", "conflict log is wrong"),
        ([0, 2, 0], "warps", "it found none in k, and there results begin to differ"),
    ],
)
def test_a_log_that_missed_a_conflict_is_a_fault_of_ours(
    monkeypatch: pytest.MonkeyPatch, pairs: list[int], differs: str, said: str
) -> None:
    """What is race-free is executed once in the reverse of all orders; the first kernel that leaves other memory behind has conflicts."""
    gpu = Gpu(monkeypatch, conflicts=CONFLICTS | {"pairs": pairs}, unexplained="k")
    found = gpu.observe(lambda x: x + gpu.now[0].startswith(differs))

    assert found["outcome"] == "invalid"
    assert said in found["message"]


def test_both_traced_executions_begin_without_what_others_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A result that an execution left in a cycle would lie where the next allocates: it is collected before each of the two."""
    gpu = Gpu(monkeypatch, conflicts=CONFLICTS | {"pairs": [0, 2, 0]})
    results: list[weakref.ref[torch.Tensor]] = []
    alive = []

    def op(x: torch.Tensor) -> torch.Tensor:
        if gpu.traced:
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


@pytest.mark.parametrize("pairs", [[0, 0, 0], [1, 1, 1]])
def test_what_depends_on_addresses_is_never_race_free(
    monkeypatch: pytest.MonkeyPatch, pairs: list[int]
) -> None:
    """A row that does not differ is executed once with allocations elsewhere; no order is blamed for what differs then."""
    gpu = Gpu(monkeypatch, conflicts=CONFLICTS | {"pairs": pairs, "doubts": []})
    found = gpu.observe(lambda x: x + bool(gpu.shifted))

    simulation = msgspec.convert(found["simulated"], Simulation)
    assert (found["outcome"], simulation.race_free, simulation.schedule) == ("ran", False, None)
    assert simulation.conflicts is not None
    assert simulation.conflicts.doubts == ("depends on addresses",)


@pytest.mark.parametrize(
    ("swapped", "shows", "told"),
    [
        ((True, True), True, True),
        ((True, False), True, False),
        ((True, True), False, False),
        ((False, False), True, None),
    ],
)
def test_a_pair_shows_a_difference_if_it_came_alone(
    monkeypatch: pytest.MonkeyPatch, swapped: tuple[bool, bool], shows: bool, told: bool | None
) -> None:
    """Its warp is held up with it: that more moved is told, and that values tell nothing; one that never came is no witness."""
    pairs = CONFLICTS | {"pairs": [0, 2, 0], "told": [TOLD | {"shows": shows}]}
    gpu = Gpu(monkeypatch, conflicts=pairs, swapped=swapped)
    found = gpu.observe(lambda x: x + (gpu.now in {("warps", 0), ("pair", 0)}))

    witness = msgspec.convert(found["simulated"], Simulation).witness
    assert (witness and witness.shows) is told


def test_one_swapped_pair_is_the_witness(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs that the class may show are tried one by one; the first that gives other bits is told with the element."""
    told = [TOLD | {"scope": "blocks"}, TOLD | {"old": 4}, TOLD | {"old": 5}]
    gpu = Gpu(monkeypatch, conflicts=CONFLICTS | {"pairs": [0, 2, 0], "told": told})
    swapped = torch.zeros(64)
    swapped[5] = 1
    found = gpu.observe(lambda x: x * (1 + swapped * (gpu.now in {("warps", 0), ("pair", 2)})))

    witness = msgspec.convert(found["simulated"], Simulation).witness
    assert witness is not None
    assert (witness.old, witness.output, witness.element) == ("0x5", "output", 5)
    assert witness.canonical != witness.swapped
    assert ("pair", 0) not in gpu.begun


@pytest.mark.parametrize(
    ("differs", "outcome", "expected"),
    [
        (lambda now: now == ("canonical", 1), "invalid", "the simulation itself is not reproducible"),
        (lambda now: now[0] == "memory", "ran", "it returns memory that nobody wrote"),
        (lambda now: now[0] == "resident-blocks", "ran", True),
        (lambda now: now[0] != "nothing", "ran", False),
    ],
    ids=["canonical", "memory", "value race", "wrong"],
)
def test_what_differs_decides(
    monkeypatch: pytest.MonkeyPatch, differs: Callable[..., bool], outcome: str, expected: object
) -> None:
    """Two canonical executions that differ are a fault of ours; another value under another schedule is a value race."""
    gpu = Gpu(monkeypatch)
    # On the CPU the same op runs without any schedule.
    op = lambda x: x * 2 + (differs(gpu.now) and torch.get_num_threads() != 1)  # noqa: E731
    torch.set_num_threads(2)
    found = gpu.observe(op)

    assert found["outcome"] == outcome
    known = found["simulated"]
    shown = (
        found.get("message")
        or known["cpu"].get("why")
        or (known["value_race"] if known["schedule"] else known["cpu"]["agrees"])
    )
    assert str(shown).startswith(expected) if isinstance(expected, str) else shown is expected, found


LIBRARY = "calls cudnnBackendExecute (cuDNN)"
PRODUCTS = "its matrix products (cublasSgemm_v2) were computed by the CPU; no schedule of PyTorch's own kernels gave other bits"
ALERT = "put_ does not have a deterministic implementation, but you set 'torch.use_deterministic_algorithms(True)'"


@pytest.mark.parametrize(
    ("observed", "told", "outcome", "message"),
    [
        ({"outcome": "ran"}, {}, "ran", None),
        ({"outcome": "ran"}, {"faults": [("unknown", "XMMA is not known")]}, "invalid", "simulated GPU: XMMA is not known"),
        ({"outcome": "raised"}, {"faults": [("timeout", "k took 1 s")]}, "timeout", "simulated GPU: k took 1 s"),
        ({"outcome": "ran"}, {"libraries": ["cudnnBackendExecute"]}, "not_run", LIBRARY),
        ({"outcome": "raised"}, {"libraries": ["cudnnBackendExecute"]}, "not_run", LIBRARY),
        (
            {"outcome": "raised"},
            {"libraries": ["cudnnBackendExecute"], "faults": [("fault", "no memory of the device")]},
            "not_run",
            LIBRARY,
        ),
        (
            {"outcome": "raised"},
            {"libraries": ["cudnnBackendExecute"], "faults": [("unknown", "XMMA is not known")]},
            "invalid",
            "simulated GPU: XMMA is not known",
        ),
        ({"outcome": "raised", "alert": True}, {"libraries": ["cudnnBackendExecute"]}, "raised", ALERT),
        ({"outcome": "ran"}, {"products": ["cublasSgemm_v2"]}, "not_run", PRODUCTS),
        ({"outcome": "ran", "simulated": {"schedule": {}}}, {"products": ["cublasSgemm_v2"]}, "not_run", PRODUCTS),
        ({"outcome": "ran", "simulated": {"schedule": {"name": "warps"}}}, {"products": ["cublasSgemm_v2"]}, "ran", None),
        ({"outcome": "raised", "alert": True}, {"products": ["cublasSgemm_v2"]}, "raised", ALERT),
    ],
)  # fmt: skip
def test_outcomes(observed: dict[str, Any], told: dict[str, Any], outcome: str, message: str | None) -> None:
    """A fault is never swallowed, an alert is believed, a library proves nothing, products prove a difference alone."""
    raised_it = {
        "exception": "RuntimeError",
        "message": ALERT if observed.pop("alert", False) else "CUDA error",
    }
    observed = observed | (raised_it if observed["outcome"] == "raised" else {})
    seen = simulated.Report(**REPORTED | told)

    after = observed | settled(observed, seen)

    assert (after["outcome"], after.get("message")) == (outcome, message)
    assert after["simulated"]["libraries"] == seen.libraries
    assert after["simulated"]["products"] == seen.products


def test_inputs_are_drawn_as_for_the_cpu() -> None:
    """A third size, the CPU's by default; and no pool."""
    options: dict[str, Any] = {"dtype": "float32", "device": "meta", "direction": "forward"}
    t = SimulatedInputs("key", **options)

    assert (t.size(cpu=1, cuda=2), t.size(cpu=1, cuda=2, simulated=3)) == (1, 3)
    assert t.mixed(8, 8).device.type == t.coo(4, 4, stored=3).device.type == "meta"
    assert t.device == "meta"


ASIDE = ("--no-cost", "--no-overloads")
AS_SIMULATED = "torch.nn.functional.interpolate:bilinear:backward:float32"


def test_a_device_may_be_given_the_inputs_of_a_simulated_gpu(detmatrix: Command, tmp_path: Path) -> None:
    """Its bits can then be held against a simulation's; a script of the row draws the same inputs."""
    path = tmp_path / "run.jsonl"
    options = ("--device", "cpu", "--perturb", "quiet", "--runs", "2", "--processes", "1")
    digests = {}
    for asked in (("--as-simulated",), ()):
        assert (
            detmatrix("scan", *options, *ASIDE, *asked, "--force", "-o", str(path), AS_SIMULATED).returncode
            == 0
        )
        seen = read_run(path)
        digests[asked] = {one.inputs_digest for one in seen.observations}
        if asked:
            assert (
                "given the inputs of a simulated GPU"
                in detmatrix("report", str(path), "--format", "md").stdout
            )
            written = detmatrix("repro", str(path), AS_SIMULATED)
            assert written.returncode == 0
            assert "the inputs drawn here are not those" not in written.stderr
    recorded = read_run(RECORDED / "torch-2.13.0-simulated-sm_80.jsonl.gz")
    there = {one.inputs_digest for one in recorded.observations if ":".join(one.key) == AS_SIMULATED}

    assert digests["--as-simulated",] == there
    assert not digests[()] & there


# ---- verdicts


def cell(verdict: Any, name: str = "", cpu: CpuComparison | None = AGREES, **more: Any) -> Cell:
    """Return what simulated executions showed."""
    schedule = Schedule(name=name, number=0, seed=0) if name else None
    return Cell(
        verdict=verdict, runs=8, by_process=(8,), simulated=Simulation(schedule=schedule, cpu=cpu), **more
    )


STILL, MOVES = cell("deterministic", first="a"), cell("nondeterministic", "warps", first="a")


@pytest.mark.parametrize(
    ("off", "on", "finding", "reason"),
    [
        (STILL, STILL, "deterministic", None),
        (STILL, replace(STILL, first="b"), "mode_dependent", None),
        (STILL, cell("raises", cpu=None), "over_alert", "8 schedules with the flag off gave the same bits"),
        (MOVES, STILL, "fixed_by_mode", None),
        (MOVES, MOVES, "silent", None),
        (cell("nondeterministic", "memory"), STILL, "uninitialized", None),
        (cell("nondeterministic", "memory"), cell("error", blank="nan"), "uninitialized", None),
        (MOVES, cell("nondeterministic", "memory"), "silent", "it reads memory that nobody wrote, which the flag does not fill"),
    ],
)  # fmt: skip
def test_findings_rest_on_schedules(off: Cell, on: Cell, finding: str, reason: str | None) -> None:
    """No number of executions is asked for, and no rate bounded: schedules are no samples."""
    assert finding_of(off, on) == (finding, reason)
    assert STILL.upper_bound is None


def simulated_row(off: CpuComparison | None, on: CpuComparison | None) -> MatrixRow:
    """Return a row of a run, with what the CPU says of each mode."""
    planned = row("own", device=SIMULATED)
    seen: list[Observation] = []
    for mode, cpu in (("off", off), ("on", on)):
        (one,) = ran(planned, mode, {"a": 8})  # type: ignore[arg-type]
        seen.append(replace(one, simulated=Simulation(cpu=cpu)))
    return next(iter(matrix(replace(HEADER, planned=(planned,)), seen, closed=True)))


@pytest.mark.parametrize(
    ("off", "on", "beside", "verdicts"),
    [
        (AGREES, AGREES, (), "deterministic deterministic"),
        (AGREES, DISAGREES, ("wrong_with_flag",), "deterministic deterministic"),
        (DISAGREES, AGREES, ("wrong_without_flag",), "deterministic deterministic"),
        (DISAGREES, DISAGREES, (), "error error"),
        (DISAGREES, CpuComparison(agrees=None, why="no kernel"), (), "error deterministic"),
        (None, DISAGREES, (), "deterministic error"),
    ],
)
def test_results_that_are_not_the_cpus(
    off: CpuComparison | None, on: CpuComparison | None, beside: tuple[str, ...], verdicts: str
) -> None:
    """One mode that agrees tells whose fault the other is; else it may be ours, and is an error."""
    found = simulated_row(off, on)

    assert found.beside == beside
    assert set(beside) <= found.found
    assert f"{found.off.verdict} {found.on.verdict}" == verdicts
    if "error" in verdicts:
        assert found.finding == "inconclusive"
        assert "its result is not the CPU's: 1 of 2 elements of output" in str(found.reason)
    assert found.weak is None


@pytest.mark.parametrize(
    ("name", "mode", "schedule", "pairs", "cpu", "runs", "ok"),
    [
        ("elementwise", "off", "", 0, AGREES, 8, True),
        ("elementwise", "off", "", 0, DISAGREES, 8, False),
        ("elementwise", "off", "", 1, AGREES, 8, False),
        ("barriers", "on", "lanes", 1, AGREES, 8, False),
        ("integer_scan", "off", "", 1, AGREES, 8, True),
        ("integer_scan", "off", "", 0, AGREES, 8, False),
        ("atomics", "off", "resident-blocks", 1, AGREES, 8, True),
        ("atomics", "off", "warps", 1, AGREES, 8, False),
        ("atomics", "off", "", 1, AGREES, 8, False),
        ("atomics", "off", "", 1, AGREES, 2, True),
        ("atomics", "off", "", 0, AGREES, 2, False),
        ("atomics", "on", "", 0, AGREES, 8, True),
        ("atomics", "on", "resident-blocks", 1, AGREES, 8, False),
        ("unwritten", "off", "memory", 0, None, 8, True),
        ("unwritten", "unfilled", "", 0, None, 8, False),
        ("unwritten", "unfilled", "", 0, None, 2, True),
        ("unwritten", "on", "", 0, None, 8, True),
        ("read_write", "on", "warps", 1, None, 8, True),
        ("read_write", "on", "", 0, None, 2, False),
    ],
)
def test_controls(
    name: str, mode: Any, schedule: str, pairs: int, cpu: CpuComparison | None, runs: int, ok: bool
) -> None:
    """Each differs in exactly its class, or is proved not to; what is in conflict never is."""
    (planned,) = [one for one in control_rows(SIMULATED) if one.spec == f"control.{name}"]
    witness = Simulation(
        schedule=Schedule(name=schedule, number=0, seed=0) if schedule else None,
        cpu=cpu,
        conflicts=records.Conflicts(pairs=(pairs, 0, 0)),
    )
    groups = tuple(
        records.Group(perturbation=it, executions=n, differing=0) for it, n in split(runs).items() if n
    )
    (one,) = ran(planned, mode, {"a": 8})

    (check,) = check_controls(
        replace(HEADER, controls=(planned,)), [replace(one, simulated=witness, groups=groups)]
    )

    assert check.ok is ok, check


@pytest.mark.parametrize(
    ("change", "kinds", "pairs", "expected"),
    [
        (lambda x: x * (1 + 1e-3) * 1e3 - x * 1e3, "write", [], ("stays", "")),
        (lambda x: (x - x.round()) / 2, "float add", [], ("vanishes", "")),
        (lambda x: x + 1, "float add", [TOLD], (None, "it adds what is not exact with small integers either")),
        (lambda x: x + 1, "float add", [], (None, "it approximates, so that small integers do not stay exact")),
        (lambda x: x - x.round(), "write", [], (None, "its writers write the same small integers")),
        (lambda x: x - x.round(), "write", [TOLD], ("vanishes", "")),
    ],
)  # fmt: skip
def test_small_integers_tell_rounding_from_a_race(
    monkeypatch: pytest.MonkeyPatch, change: Any, kinds: str, pairs: list[Any], expected: tuple[Any, str]
) -> None:
    """What rounds no more where nothing has to be rounded does not differ; stores of other threads do."""
    told = [TOLD | {"kinds": [kinds] * 2}]
    gpu = Gpu(monkeypatch, conflicts=CONFLICTS | {"pairs": [0, 2, 0], "told": told})

    def op(x: torch.Tensor) -> torch.Tensor:
        if gpu.whole:
            gpu.told["conflicts"] = CONFLICTS | {
                "told": pairs,
                "inexact": kinds == "float add" and bool(pairs),
            }
            gpu.told["approximates"] = True
        return x + change(x) * (gpu.now in {("warps", 0), ("pair", 0)})

    simulation = msgspec.convert(gpu.observe(op)["simulated"], Simulation)

    assert simulation.witness is not None
    assert (simulation.exact, simulation.exact_why) == expected
    assert bool(simulation.contradiction) == (expected[0] == "vanishes" and kinds == "write")


@pytest.mark.parametrize("reads", [False, True])
def test_kernels_of_the_size_that_a_gpu_gets(monkeypatch: pytest.MonkeyPatch, reads: bool) -> None:
    """Host code alone is run at that size; kernels that were not executed are told, and those that had one block."""
    gpu = Gpu(monkeypatch)
    executed, names = {"a": 1, "b": 2}, {"a": "A", "b": "B", "c": "C<8>"}

    def report() -> simulated.Report:
        launched = {"a": 7, "b": 9, "c": 1} if gpu.skips else executed
        return simulated.Report(
            list(launched), [], [], [], None, list(launched.values()), names, reads and bool(gpu.skips)
        )

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


def test_recall_tells_how_many_schedules_it_takes() -> None:
    """A difference counts in its class, and from the number of executions on in which its schedule has its turn."""

    def differing(name: Any, number: int, pairs: tuple[int, int, int]) -> MatrixRow:
        found = simulated_row(AGREES, AGREES)
        known = Simulation(
            schedule=Schedule(name=name, number=number, seed=0), conflicts=records.Conflicts(pairs=pairs)
        )
        off = replace(found.off, verdict="nondeterministic", simulated=known)
        return replace(found, cells=found.cells | {"off": off})

    rows = [
        differing("memory", 0, (0, 0, 0)),
        differing("resident-blocks", 0, (4, 0, 0)),
        differing("resident-blocks", 2, (4, 4, 0)),
        differing("lanes", 0, (0, 0, 9)),
    ]

    assert recall(rows, 16) == ({"memory": 1, "resident-blocks": 2, "lanes": 1}, {4: 3, 8: 3, 16: 4})


@pytest.mark.parametrize(
    ("approximates", "error", "told"), [(True, 1.0, True), (True, 1e-7, False), (False, 1.0, False)]
)
def test_what_rests_on_approximations_is_told(
    monkeypatch: pytest.MonkeyPatch, approximates: bool, error: float, told: bool
) -> None:
    """A row whose kernels approximate is executed once more with other last bits, and held to the CPU again."""
    gpu = Gpu(monkeypatch, approximates=approximates)
    found = gpu.observe(lambda x: x + error * bool(gpu.moved))

    assert found["simulated"]["cpu"]["agrees"] is True
    assert found["simulated"]["approximation_sensitive"] is told
