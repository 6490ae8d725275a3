"""The scripts of ``detmatrix repro``: the same inputs, the same finding, and nothing but torch."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from opspecs.inputs import Inputs
from opspecs.model import OpSpec, Planned
from opspecs.registry import FAMILIES, select
from scanner import repro_parts
from scanner.alerts import alert_caller
from scanner.manager import worker_environment
from scanner.records import FORMAT, Group, Header, Observation, Output, Settings
from scanner.repro import Recipe, _wrapped, perturbations, script
from scanner.runfile import Run, read_run
from scanner.verdicts import Cell, GroupCount, MatrixRow, Verdict, finding_of, matrix
from tests.conftest import Command, command_in, one_line
from tests.runs import ENVIRONMENT, drifting, ran, row, stable, write_run

torch = pytest.importorskip("torch")

from scanner.bits import digest, parts  # noqa: E402 - it needs torch
from scanner.execution import Execution  # noqa: E402
from scanner.recipe import RecipeError, recipe  # noqa: E402

RECORDED = Path(__file__).parent.parent / "reports" / "runs" / "torch-2.13.0-cpu.jsonl.gz"
SEED = 3
# Ops as a user declares them, for the findings that no op of PyTorch gives on a CPU.
PLANTED = '''
from __future__ import annotations

import time
import click
import torch
from opspecs.model import Case, MissingError, OpSpec, call

FACTOR = (3.0, 1)


def scaled(x: torch.Tensor, case: Case | None = None, factor: float = FACTOR[0]) -> torch.Tensor:
    return x * factor  # noqa: RUF100


def by_mode(x, bias):
    """Give other bits with the flag on."""
    return scaled(x) + torch.are_deterministic_algorithms_enabled() * bias


def noisy(x):
    """Return other bits each time, in a number, beside all kinds of things that stay."""
    return {"sum": x.sum().item(), "noise": time.perf_counter_ns(), "none": None, "both": [x, (x.to_sparse(),)]}


def fails(x):
    raise ValueError("on purpose")


def closing(y):
    return lambda x: x + y


def elsewhere(x):
    return click.echo(x)


def lacking(t):
    raise MissingError("gizmo")


def spec(name, op, inputs=lambda t: call(t.normal(8)), **options):
    return OpSpec(name=f"mine.{name}", op=op, why="Planted.", cases={"only": Case(inputs=inputs)}, **options)


SPECS = (
    spec("by_mode", by_mode, lambda t: call(t.normal(8), 2.0)),
    spec("noisy", noisy),
    spec("fails", fails),
    spec("missing", "torch.no_such_op"),
    spec("closing", closing(1)),
    spec("elsewhere", elsewhere),
    spec("opaque", fails, lambda t: call(iter([t]))),
    spec("failing", fails, lambda t: call(1 / 0)),
    spec("lacking", fails, lacking),
    spec("unseeded", fails, lambda t: call(torch.rand(8))),
)
'''
# Rows of a fresh scan, and what they show.
SHOWN = {
    "torch.Tensor.put_:overwrite:forward:float32": "raises",
    "torch.Tensor.put_:overwrite_permutation:forward:float32": "over_alert",
    "torch.take:collisions:backward:float32": "fixed_by_mode",
    "torch.empty:floating:forward:float32": "fixed_by_mode",
    "torch.Tensor.resize_:grow_quantized:forward:quint8": "raises",
    "torch.topk:ties_short:forward:float32": "deterministic",
    "torch.sparse.mm:coo_sparse_grad:backward:float32": "deterministic",
    "mine.by_mode:only:forward:float32": "mode_dependent",
    "mine.noisy:only:forward:float32": "silent",
    "mine.fails:only:forward:float32": "inconclusive",
    "mine.missing:only:forward:float32": "inconclusive",
}
# Runs scripts in forks of one process that has loaded torch and done nothing with it: loading takes seconds.
FORKS = """
import os, runpy, subprocess, sys, tempfile, traceback
from types import SimpleNamespace
import torch

torch.use_deterministic_algorithms(False)  # loads a compiler

def run(command, **_):
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        pid = os.fork()
        if not pid:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            sys.argv = command[3:]
            try:
                runpy.run_path(sys.argv[0], run_name="__main__")
                sys.stdout.flush()
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(1)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        out.seek(0)
        err.seek(0)
        return SimpleNamespace(returncode=code, stdout=out.read(), stderr=err.read())

subprocess.run = run
sys.argv, scripts = sys.argv[:1], sys.argv[1:]
for script in scripts:
    print("script:", script, flush=True)
    runpy.run_path(script, run_name="__main__")
"""


def header(**environment: Any) -> Header:
    """Return the header of a run on this machine, whose variables change nothing in this process."""
    settings = Settings(patterns=(), device="cpu", runs=2, processes=1, timeout=60.0, seed=SEED)
    changed = msgspec.structs.replace(ENVIRONMENT, **{"variables": {}, **environment})
    return Header(format=FORMAT, tool="0", started="", settings=settings, environment=changed, planned=())


def seen(spec: OpSpec, planned: Planned, *outputs: Output, device: str = "cpu") -> MatrixRow:
    """Return a row of which nothing is known but, if given, its outputs."""
    planned_row = row(
        planned.spec, planned.case, planned.direction, planned.dtype, family=spec.family, device=device
    )
    observed = Observation(
        spec=planned.spec,
        case=planned.case,
        direction=planned.direction,
        dtype=planned.dtype,
        mode="off",
        process=0,
        outcome="ran",
        executions=2,
        digests={"a": 2},
        outputs=outputs,
    )
    head = msgspec.structs.replace(header(), planned=(planned_row,))
    (found,) = matrix(head, [observed], closed=True)
    return found


def asked(planned: Planned, device: str = "cpu") -> Recipe:
    """Return the recipe of a row."""
    fields = {name: getattr(planned, name) for name in ("spec", "case", "direction", "dtype")}
    return msgspec.convert(recipe(**fields, device=device, seed=SEED, specs=[]), Recipe)


def loaded(text: str) -> dict[str, Any]:
    """Execute a script as a module, which runs nothing, and return its names."""
    names: dict[str, Any] = {"__name__": "script"}
    exec(compile(text, "script", "exec"), names)
    return names


def described(args: Any, kwargs: Any, leaves: Any) -> Any:
    """Return all in which inputs can differ."""
    named = [*parts(args, "args", skip_others=True), *parts(kwargs, "kwargs", skip_others=True)]
    graph = [tensor.requires_grad for _, tensor in named], digest(parts(leaves, "leaves"))
    return digest(named), [tensor.stride() for _, tensor in named], graph, repr((args, kwargs))


@pytest.fixture(autouse=True)
def _plain_repr() -> Iterator[None]:
    """Let what stands for a tensor in a text be short."""
    torch.set_printoptions(profile="default", edgeitems=1, threshold=1)
    yield
    torch.set_printoptions(profile="default")


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("family", FAMILIES)
def test_script_draws_the_inputs_of_the_scan(family: str) -> None:
    """The arguments, keyword arguments and leaves of every row are bit for bit those that a worker draws."""
    different = []
    for spec, planned in select([family], "cpu"):
        execution = Execution(
            spec, planned.case, direction=planned.direction, dtype=planned.dtype, device="cpu", seed=SEED
        )
        expected = described(execution.call.args, dict(execution.call.kwargs), execution.leaves)

        text = script(asked(planned), seen(spec, planned), header())

        args, kwargs, *leaves = loaded(text)["inputs"]()
        if described(args, kwargs, leaves[0] if leaves else []) != expected:
            different.append(planned.id)

    assert not different


class CudaSized(Inputs):
    """Draws what a CUDA device would get."""

    def size(self, *, cpu: Any, cuda: Any) -> Any:  # noqa: ARG002 - the name is part of the interface
        """Choose what CUDA gets."""
        return cuda


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    "pattern",
    [
        "torch.Tensor.put_:overwrite:forward:float32",
        "torch.nn.Embedding:collisions_half:*:bfloat16",
        "torch.nn.CTCLoss:cudnn_targets:*",
        "torch.nn.functional.grid_sample:each_pixel_once:*:float16",
        "torch.sparse.mm:csr_dense_grad:*:float32",
        "torch.empty:integer:*:uint8",
    ],
)
def test_script_of_a_cuda_row_is_written_without_one(pattern: str) -> None:
    """Drawn on the CPU and moved, in the sizes of CUDA; where both are the CPU, the bits are the same."""
    spec, planned = select([pattern], "cuda")[0]
    t = CudaSized(f"{SEED}|{spec.name}|{planned.case}|{planned.dtype}", dtype=planned.dtype, device="cpu",
                  direction=planned.direction)  # fmt: skip
    call = spec.cases[planned.case].inputs(t)
    head = header(gpu="Example GPU", cuda="12.6", variables={"on": {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}})
    head = msgspec.structs.replace(head, settings=msgspec.structs.replace(head.settings, device="cuda:0"))

    text = script(asked(planned, "cuda"), seen(spec, planned, device="cuda:0"), head)

    assert '"cuda"' in text
    assert 'os.environ | {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"} if mode != "off"' in text
    args, kwargs, *leaves = loaded(text.replace('"cuda"', '"cpu"'))["inputs"]()
    assert described(args, kwargs, leaves[0] if leaves else []) == described(
        call.args, dict(call.kwargs), t.leaves
    )


@pytest.mark.parametrize("pattern", ["torch.gather:collisions:*:float64", "torch.nn.LSTM:one_layer", "torch.sparse.mm:coo*",
                                     "scaled_dot_product_attention:math:*"])  # fmt: skip
def test_script_computes_the_gradients_of_the_scan(pattern: str) -> None:
    """Upstream gradients are those that a worker draws, so that the results are the same bits."""
    for spec, planned in select([pattern.replace("scaled", "torch.nn.functional.scaled")], "cpu"):
        execution = Execution(
            spec, planned.case, direction=planned.direction, dtype=planned.dtype, device="cpu", seed=SEED
        )
        execution.reseed()
        output, gradients = execution()

        names = loaded(script(asked(planned), seen(spec, planned), header()))

        expected = [tensor for _, tensor in parts(gradients if execution.backward else output, "output")]
        assert names["digest"](expected) == names["digest"](names["execute"](*names["inputs"]()))


@pytest.fixture(scope="module")
def scanned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scan a few rows, and return the run file."""
    folder = tmp_path_factory.mktemp("scanned")
    (folder / "planted.py").write_text(PLANTED, encoding="utf-8")
    options = ["--device", "cpu", "--runs", 40, "--processes", 1, "--seed", SEED, "--no-cost"]
    patterns = [name for name in SHOWN if not name.startswith("mine.")]
    done = command_in(folder)(
        "scan",
        *patterns,
        "mine.*",
        "--specs",
        "planted.py",
        "--perturb",
        "quiet,poison",
        *options,
        "-o",
        "run.jsonl",
    )
    assert done.returncode == 0, done.stderr
    return folder / "run.jsonl"


def rows_of(run: Run) -> dict[str, MatrixRow]:
    return {one.row.id: one for one in matrix(run.header, run.observations, closed=True)}


def disturbed(found: MatrixRow, *names: str) -> MatrixRow:
    """Return a row that differs under these perturbations alone, under one in each mode."""
    quiet = GroupCount(perturbation="quiet", executions=4, differing=0)
    groups = [GroupCount(perturbation=name, executions=4, differing=3) for name in names]
    cells = [msgspec.structs.replace(found.off, differing=3, groups=(quiet, group)) for group in groups]
    return msgspec.structs.replace(found, **dict(zip(("off", "on", "forced"), cells, strict=False)))


@pytest.fixture(scope="module")
def printed(scanned: Path) -> dict[str, str]:
    """Write the scripts of the scanned rows, and one under perturbations; run them, and return what they print."""
    run = read_run(scanned)
    found = {name: rows_of(run)[name] for name in SHOWN}
    found["disturbed"] = disturbed(
        found["torch.topk:ties_short:forward:float32"], "stress", "shift", "poison"
    )
    places = []
    for number, one in enumerate(found.values()):
        fields = dict(zip(("spec", "case", "direction", "dtype"), one.row.key, strict=True))
        answer = recipe(**fields, device="cpu", seed=SEED, specs=[str(scanned.parent / "planted.py")])
        places.append(scanned.parent / f"{number}.py")
        places[-1].write_text(script(msgspec.convert(answer, Recipe), one, run.header), encoding="utf-8")
    command = [sys.executable, "-I", "-c", FORKS, *map(str, places)]
    options: dict[str, Any] = {"env": worker_environment("off", "cpu"), "capture_output": True, "text": True}
    done = subprocess.run(command, cwd="/", check=False, **options)
    assert done.returncode == 0, done.stderr
    texts = done.stdout.split("script: ")[1:]
    return dict(zip(found, (text.partition("\n")[2] for text in texts), strict=True))


@pytest.mark.parametrize("name", SHOWN)
def test_script_shows_what_the_scan_showed(name: str, scanned: Path, printed: dict[str, str]) -> None:
    """Verdict by verdict it finds what the report says, and forces ops that raise to run."""
    expected = rows_of(read_run(scanned))[name]

    about, *lines = printed[name].splitlines()

    told = dict(line.split(": ", 1) for line in lines)
    assert SHOWN[name] == expected.finding == told.pop("finding"), printed[name]
    assert (
        about
        == f"torch {torch.__version__}, CUDA {torch.version.cuda}, {torch.get_num_threads()} threads, cpu"
    )
    cells = {"off": expected.off, "on": expected.on}
    if expected.on.verdict == "raises":
        cells["warn_only"] = expected.forced
    verdicts = {mode: cell.verdict.replace("not_run", "error") for mode, cell in cells.items()}
    assert verdicts == {mode: text.partition(":")[0] for mode, text in told.items()}


def test_script_runs_under_perturbations(printed: dict[str, str]) -> None:
    """What brings perturbations about works, together too, and makes nothing differ that does not."""
    assert printed["disturbed"].splitlines()[1:] == [
        "off: deterministic: 0 of 40 differed, 1 distinct",
        "on: deterministic: 0 of 40 differed, 1 distinct",
        "finding: deterministic",
    ]


def test_script_alone(scanned: Path, tmp_path: Path) -> None:
    """A script of the command line runs in processes of its own, in an empty folder, with torch and nothing of ours."""
    name = "torch.Tensor.put_:overwrite:forward:float32"
    place = tmp_path / "script.py"

    wrote = command_in(scanned.parent)("repro", scanned.name, name, "-o", place)
    done = subprocess.run(
        [sys.executable, "-I", place], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert (wrote.returncode, wrote.stdout, wrote.stderr) == (0, "", "")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(
        r"torch .*\n"
        r"off: nondeterministic: \d+ of 40 differed, \d+ distinct\n"
        r"on: raises: RuntimeError: put_ does not have a deterministic implementation.*\n"
        r"warn_only: nondeterministic: \d+ of 40 differed, \d+ distinct\n"
        r"finding: raises\n",
        done.stdout,
    )
    text = place.read_text(encoding="utf-8")
    assert text.startswith(f"# {name} with torch {torch.__version__} on ")
    assert len(text.splitlines()) < 80


@pytest.mark.usefixtures("printed")
def test_scripts_import_torch_alone(scanned: Path) -> None:
    """The standard library and torch are imported, whatever the op's own module imports."""
    for number in range(len(SHOWN)):
        nodes = list(ast.walk(ast.parse((scanned.parent / f"{number}.py").read_text(encoding="utf-8"))))

        imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        imported |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
        assert {name.partition(".")[0] for name in imported} <= sys.stdlib_module_names | {"torch"}


def test_an_op_brings_along_what_it_needs(tmp_path: Path) -> None:
    """Of the module it is in: functions and values it calls and reads, in an order that works; nothing else."""
    (tmp_path / "planted.py").write_text(PLANTED, encoding="utf-8")

    answer = recipe(spec="mine.by_mode", **ONLY, specs=[str(tmp_path / "planted.py")])

    assert answer["imports"] == []
    assert "\n".join(answer["definitions"]).splitlines() == [
        "FACTOR = (3.0, 1)",
        "def scaled(x: torch.Tensor, case: Case | None = None, factor: float = FACTOR[0]) -> torch.Tensor:",
        "    return x * factor",
        "def by_mode(x, bias):",
        '    """Give other bits with the flag on."""',
        "    return scaled(x) + torch.are_deterministic_algorithms_enabled() * bias",
    ]


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("mine.closing", "closing.<locals>.<lambda> is no function of a module"),
        ("mine.elsewhere", "click is neither torch's nor defined beside the op"),
        ("mine.opaque", "a list_iterator has no source"),
        ("mine.failing", r"its inputs cannot be drawn here \(ZeroDivisionError: division by zero\)"),
        ("mine.lacking", "torch .* has no gizmo"),
        ("mine.unseeded", "its inputs were not understood: what was written makes others"),
        ("mine.gone", "the specs here have no such case; take the detmatrix that scanned it"),
    ],
)
def test_no_recipe(spec: str, told: str, tmp_path: Path) -> None:
    """What has no source, or makes other inputs each time, is refused in a sentence."""
    (tmp_path / "planted.py").write_text(PLANTED, encoding="utf-8")

    with pytest.raises(RecipeError, match=told):
        recipe(spec=spec, **ONLY, specs=[str(tmp_path / "planted.py")])


ONLY: dict[str, Any] = {
    "case": "only",
    "direction": "forward",
    "dtype": "float32",
    "device": "cpu",
    "seed": SEED,
}


def put() -> tuple[OpSpec, Planned]:
    return select(["torch.Tensor.put_:overwrite:forward:float32"], "cpu")[0]


def loaded_put(**options: Any) -> dict[str, Any]:
    """Return the names of a script with nothing special about it."""
    return loaded(script(asked(put()[1], **options), seen(*put(), OUTPUT), header()))


OUTPUT = Output(name="output", shape=(4096,), dtype="float32", differing=0)


@pytest.mark.parametrize("forced", ["deterministic", "nondeterministic"])
@pytest.mark.parametrize("on", ["deterministic", "nondeterministic", "raises", "error"])
@pytest.mark.parametrize("off", ["deterministic", "nondeterministic", "error"])
@pytest.mark.parametrize("bits", ["a", "b"])
def test_findings_are_those_of_the_report(
    off: Verdict, on: Verdict, forced: Verdict, bits: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What follows from the verdicts of all modes follows in both."""
    cells = {
        "off": Cell(verdict=off, first="a"),
        "on": Cell(verdict=on, first=bits),
        "warn_only": Cell(verdict=forced),
    }
    expected, _ = finding_of(cells["off"], cells["on"], cells["warn_only"])
    names = loaded_put()
    names["cell"] = lambda mode: (cells[mode].verdict, cells[mode].first)

    names["main"]()

    assert capsys.readouterr().out == f"finding: {expected}\n"


ALERT = f"RuntimeError: put_ {repro_parts.ALERT})'. You can"


@pytest.mark.parametrize(
    ("mode", "children", "told"),
    [
        ("off", [["a", "a"], ["a", "a"]], "deterministic: 0 of 4 differed, 1 distinct"),
        ("on", [["a", "a"], ["b", "b"]], "nondeterministic: 2 of 4 differed, 2 distinct"),
        ("on", [["a", "b"], ["c", "b"]], "nondeterministic: 3 of 4 differed, 3 distinct"),
        ("on", [ALERT, ALERT], f"raises: {ALERT[:100]}"),
        ("warn_only", [ALERT, ALERT], f"raises: {ALERT[:100]}"),
        ("off", [ALERT, ALERT], f"error: {ALERT[:100]}"),
        ("on", [ALERT, ["a", "a"]], f"error: {ALERT[:100]}"),
        ("on", [ALERT.replace("Runtime", "Value")] * 2, f"error: {ALERT.replace('Runtime', 'Value')[:100]}"),
        ("on", ["Traceback\n  line\nValueError: no"] * 2, "error: ValueError: no"),
        ("on", ["", ""], "error: ended with code -11"),
    ],
)
def test_cells_are_those_of_the_report(
    mode: str, children: list[list[str] | str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """All processes of a mode make one set of outputs; an alert counts only where all raise it, the flag being on."""
    names = loaded_put()
    names["PROCESSES"] = 2
    answers = iter(children)

    def run(command: list[str], **_: Any) -> Any:
        assert command[-1] == mode
        answer = next(answers)
        failed = isinstance(answer, str)
        code = 0 if not failed else 1 if answer else -11
        return SimpleNamespace(
            returncode=code,
            stdout="" if failed else f"about\nprinted by the op\n{json.dumps(answer)}",
            stderr=answer if failed else "",
        )

    names["subprocess"] = SimpleNamespace(run=run)
    names["__file__"] = "script.py"

    names["cell"](mode)

    assert capsys.readouterr().out.splitlines()[-1] == f"{mode}: {told}"


def test_alerts_are_recognised() -> None:
    """A script knows the alerts by a part of the text by which a scan knows them."""
    whole = f"put_ {repro_parts.ALERT})'"
    cublas = f"{repro_parts.CUBLAS_ALERT} `at::Context::setDeterministicAlgorithms(true)`, but this operation is not "
    cublas += "deterministic because it uses CuBLAS and you have CUDA >= 10.2."

    assert alert_caller("RuntimeError", whole) == "put_"
    assert alert_caller("RuntimeError", cublas) == "cuBLAS"


def numbered() -> Any:
    return torch.arange(12.0).reshape(3, 4)


KINDS: dict[str, Callable[[], Any]] = {
    "nested": lambda: {"a": [numbered(), (numbered() + 1, None)], "b": 3},
    "numbers": lambda: (True, 5, -0.0, 1e-300, 1 + 2j),
    "rows": lambda: numbered().to_sparse_csr(),
    "columns": lambda: numbered().to_sparse_csc(),
    "coordinates": lambda: (numbered().to_sparse(), numbered().to_sparse()),
    "quantized": lambda: torch.quantize_per_tensor(numbered(), 0.1, 3, torch.quint8),
    "quantized by channel": lambda: torch.quantize_per_channel(
        numbered(), torch.tensor([0.1, 0.2, 0.3]), torch.zeros(3, dtype=torch.int64), 0, torch.qint8
    ),
    "of several lengths": lambda: torch.nested.nested_tensor([numbered()[0], numbered()[1, :2]]),
}


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_outputs_of_any_kind_are_taken_apart(kind: str) -> None:
    """Of a row that never ran anything may come out; the tensors hashed are those that a scan compares."""
    value = KINDS[kind]()
    compared = [tensor for _, tensor in parts(value, "output")]
    generic = loaded(script(asked(put()[1]), seen(*put()), header()))

    taken = generic["parts"](value)

    scale_and_zero_point = kind == "quantized"
    assert generic["digest"](compared) == generic["digest"](taken[: len(taken) - scale_and_zero_point])
    if scale_and_zero_point:
        assert taken[-1].tolist() == [0.1, 3.0]
    outputs = [
        Output(name=name, shape=(3,), dtype="float32", differing=0) for name, _ in parts(value, "output")
    ]
    known = loaded(script(asked(put()[1]), seen(*put(), *outputs), header()))
    if kind in ("rows", "columns", "coordinates", "quantized", "quantized by channel"):
        assert generic["digest"](taken) == known["digest"](known["parts"](value))


def test_raw_bits_are_hashed() -> None:
    """The sign of zero, the payload of a NaN, dtype and shape count; how a tensor lies in memory does not."""
    digest_of = loaded_put()["digest"]
    x = torch.arange(6.0).reshape(2, 3)
    quiet, other = (
        torch.tensor([bits], dtype=torch.int32).view(torch.float32) for bits in (0x7FC00000, 0x7FC00001)
    )
    c = torch.tensor([1 + 2j, 3 - 4j])

    different = [[x], [x + 0.0, x], [-x], [x.reshape(3, 2)], [x.double()], [quiet], [other], [x[:0]], [c], [c.conj()],
                 [torch.tensor(0.0)], [torch.tensor(-0.0)], [torch.tensor(False)]]  # fmt: skip
    assert len({digest_of(tensors) for tensors in different}) == len(different)
    assert digest_of([x]) == digest_of([x.T.contiguous().T.requires_grad_()])
    assert digest_of([c.conj()]) == digest_of([c.conj_physical()])
    assert digest_of([torch._efficientzerotensor(3)]) == digest_of([torch.zeros(3)])


def grouped(**rates: int) -> tuple[Group, ...]:
    return tuple(
        Group(perturbation=name.replace("_", "="), executions=10, differing=differing)
        for name, differing in rates.items()
    )


@pytest.mark.parametrize(
    ("family", "groups", "expected"),
    [
        ("scatter", grouped(), []),
        ("scatter", grouped(quiet=1, stress=9, poison=9), []),
        ("scatter", grouped(quiet=0, stress=2, shift=1, poison=0), ["stress"]),
        ("scatter", grouped(quiet=0, stress=1, poison=9), ["poison"]),
        ("scatter", grouped(quiet=0, threads_1=3), ["threads=1"]),
        ("memory", grouped(), ["poison"]),
        ("memory", grouped(quiet=9, poison=9), ["poison"]),
    ],
)
def test_perturbations_are_those_that_the_row_needs(
    family: str, groups: tuple[Group, ...], expected: list[str]
) -> None:
    """A script does no more than it must; what lies in memory it cannot leave to chance."""
    planned = row("torch.Tensor.scatter_add_", family=family)
    observations = [*ran(planned, "off", *drifting(4), groups=groups), *ran(planned, "on", *stable())]
    (found,) = matrix(msgspec.structs.replace(header(), planned=(planned,)), observations, closed=True)

    assert perturbations(found) == expected


def test_environment_of_the_scan_is_set() -> None:
    """What steers threads and arithmetic is set as it was, unless whoever runs the script has set it."""
    head = header(
        variables={"off": {"LD_LIBRARY_PATH": "/secret", "OMP_NUM_THREADS": "3", "OMP_PROC_BIND": "true"}}
    )

    text = script(asked(put()[1]), seen(*put(), OUTPUT), head)

    assert 'os.environ.setdefault("OMP_NUM_THREADS", "3")' in text
    assert 'os.environ.setdefault("OMP_PROC_BIND", "true")' in text
    assert "secret" not in text
    # A process that has loaded torch is bound to one core, and so is all that it starts.
    assert "\n    import torch" in text
    assert "\nimport torch" not in text


def test_long_statements_are_broken_where_they_may_be() -> None:
    """Between brackets and behind commas; what stands in strings is left alone."""
    told = [f'"({place}, \\", it\'s [so"' for place in range(40)]
    line = f"found = [{', '.join(told)}], 'a, (b', ({', '.join(map(str, range(200)))})"

    broken = _wrapped(line)

    names: dict[str, Any] = {}
    exec("\n".join(broken), names)
    assert names["found"] == ([f"({place}, \", it's [so" for place in range(40)], "a, (b", tuple(range(200)))
    assert max(map(len, broken)) <= 118
    assert len(broken) > 10


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["torch.Tensor.put"], "no row of run.jsonl is called 'torch.Tensor.put'; did you mean torch.Tensor.put_"),
        (["torch.Tensor.put_:overwritten"], "did you mean torch.Tensor.put_:overwrite"),
        (["zzz"], "no row of run.jsonl is called 'zzz'; detmatrix report shows what there is"),
        (["control.varies"], "no row of run.jsonl is called 'control.varies'"),
        (["torch.Tensor.put_"], "'torch.Tensor.put_' means 2 rows of run.jsonl; give one of them: torch.Tensor.put_:over"),
        (["take", "-o", "run.jsonl"], "run.jsonl: is the run file; choose another place with -o"),
        (["take", "-o", "no/such/folder.py"], "no/such/folder.py: cannot be written (No such file or directory)"),
        (["take", "--python", "/no/python"], "--python /no/python: cannot be started (No such file or directory)"),
        (["take", "--python", "without torch"], "has no torch; install it there (pip install torch)"),
        (["mine.noisy", "--specs", "gone.py"], "gone.py is not there; say where it is now with --specs"),
        (["mine.noisy", "--specs", "broken.py"], "broken.py, line 2: ZeroDivisionError"),
        (["closing"], "no script can be written: closing.<locals>.<lambda>"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_told_in_a_line(
    arguments: list[str], told: str, scanned: Path, tmp_path: Path
) -> None:
    """Each exits with 2: what happened, where, what to do."""
    (scanned.parent / "broken.py").write_text("SPECS = (\n1 / 0,)", encoding="utf-8")
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n', encoding="utf-8")
    bare.chmod(0o755)

    done = command_in(scanned.parent)(
        "repro", scanned.name, *(str(bare) if one == "without torch" else one for one in arguments)
    )

    assert (done.returncode, done.stdout) == (2, "")
    assert told in one_line(done.stderr)


def test_run_file_must_be_readable(detmatrix: Command) -> None:
    """A run file that is none exits with 3, as with every command."""
    done = detmatrix("repro", "gone.jsonl", "take")

    assert (done.returncode, one_line(done.stderr)[:35]) == (3, "detmatrix: gone.jsonl: cannot be re")


def test_runs_of_format_1_are_read(detmatrix: Command) -> None:
    """A run that knew no perturbations has rows of memory all the same, which a script must poison."""
    done = detmatrix("repro", RECORDED, "torch.empty:floating:forward:float32")

    assert (done.returncode, done.stderr) == (0, "")
    assert "            poison(number)\n" in done.stdout.replace("        poison", "            poison")
    assert "# fixed_by_mode: " in done.stdout


def test_other_inputs_are_told(detmatrix: Command, tmp_path: Path) -> None:
    """A script that draws other inputs than the run did is written, and the reader is told."""
    planned = row("torch.Tensor.put_", "overwrite")
    write_run(
        tmp_path / "run.jsonl",
        [(planned, [*ran(planned, "off", *drifting()), *ran(planned, "on", *stable())])],
    )

    done = detmatrix("repro", "run.jsonl", planned.id)

    assert done.returncode == 0
    assert "the inputs drawn here are not those of the run" in one_line(done.stderr)
    compile(done.stdout, "script", "exec")


def test_row_that_was_never_observed(detmatrix: Command, tmp_path: Path) -> None:
    """The script is written all the same: it says what it sees."""
    write_run(tmp_path / "run.jsonl", [(row("torch.Tensor.put_", "overwrite"), [])], closing=None)

    done = detmatrix("repro", "run.jsonl", "put_")

    assert (done.returncode, done.stderr) == (0, "")
    assert "nothing was observed (" in done.stdout.splitlines()[1]
    compile(done.stdout, "script", "exec")
