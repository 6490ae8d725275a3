"""The scripts of ``detmatrix repro`` judge what they see as a report does."""

from __future__ import annotations

import ast
import copy
import dataclasses
import json
import re
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from detmatrix.opspecs.families.images import convolution
from detmatrix.opspecs.inputs import Inputs
from detmatrix.opspecs.masked import masked_convolutions
from detmatrix.opspecs.model import Call, Planned, call
from detmatrix.opspecs.registry import FAMILIES, select
from detmatrix.scanner.alerts import ALERT
from detmatrix.scanner.errors import DetmatrixError, UsageError
from detmatrix.scanner.modes import LEAST_RUNS, Mode, with_chosen
from detmatrix.scanner.observations.records import Compiled, Header, Observation, Output
from detmatrix.scanner.observations.runfile import read_run
from detmatrix.scanner.perturbations import OFFERED
from detmatrix.scanner.repro.script import perturbations, script
from detmatrix.scanner.verdicts.cells import Cell
from detmatrix.scanner.verdicts.findings import MatrixRow, finding_of, matrix
from detmatrix.scanner.verdicts.vocabulary import MODE_FINDING_MEANING, ModeFinding, Verdict
from detmatrix.scanner.worker.bits import digest, parts
from detmatrix.scanner.worker.repro import Drawing, InputSourceError
from tests.conftest import lines, write_lines
from tests.evidence_runs import under
from tests.mutants import INPUT_SOURCE, places
from tests.observed import observed
from tests.runs import ENVIRONMENT, SETTINGS, drifting, ran, row, stable, write_run
from tests.scripts import (
    OUTPUT,
    PLANTED,
    SEED,
    asked,
    drawn_by_worker,
    header,
    loaded,
    loaded_put,
    put,
    seen,
    source_of,
)


@pytest.mark.parametrize("warn_only", ["deterministic", "nondeterministic"])
@pytest.mark.parametrize("on", ["deterministic", "nondeterministic", "raises", "error"])
@pytest.mark.parametrize("off", ["deterministic", "nondeterministic", "error"])
@pytest.mark.parametrize("bits", ["a", "b"])
def test_findings_are_those_of_the_report(
    off: Verdict, on: Verdict, warn_only: Verdict, bits: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What follows from the verdicts of all modes follows in both."""
    cells = {
        "off": Cell(verdict=off, first="a", runs=LEAST_RUNS),
        "on": Cell(verdict=on, first=bits, runs=LEAST_RUNS),
        "warn_only": Cell(verdict=warn_only),
    }
    names = loaded_put()
    names["cell"] = lambda mode: (cells[mode].verdict, cells[mode].first)

    # Executed less often it says of none what the report would not say.
    for runs in (LEAST_RUNS, LEAST_RUNS - 1):
        names["RUNS"] = runs
        names["main"]()
        expected, _ = finding_of(replace(cells["off"], runs=runs), cells["on"], cells["warn_only"])
        told = capsys.readouterr().out
        assert (
            told == f"finding: {expected}\n"
            if runs == LEAST_RUNS
            else re.match(rf"finding: {expected}\b", told)
        )


ALERTED = f"RuntimeError: put_ {ALERT})'. You can"
# What torch.compile makes of it.
WRAPPED = f"  Explanation: Dynamo failed to run FX node with fake tensors: got {ALERTED}"
HINT = "\n\nSet TORCHDYNAMO_VERBOSE=1 for the internal stack trace (please do this especially if you're reporting a bug)"


@pytest.mark.parametrize(
    ("mode", "children", "text"),
    [
        ("off", [["a", "a"], ["a", "a"]], "deterministic: 0 of 4 differed, 1 distinct"),
        ("on", [["a", "a"], ["b", "b"]], "nondeterministic: 2 of 4 differed, 2 distinct"),
        ("on", [["a", "b"], ["c", "b"]], "nondeterministic: 3 of 4 differed, 3 distinct"),
        ("on", [ALERTED, ALERTED], f"raises: {ALERTED[:100]}"),
        ("warn_only", [ALERTED, ALERTED], f"raises: {ALERTED[:100]}"),
        ("off", [ALERTED, ALERTED], f"error: {ALERTED[:100]}"),
        ("on", [ALERTED, ["a", "a"]], f"error: {ALERTED[:100]}"),
        ("on", [ALERTED.replace("Runtime", "Value")] * 2, f"error: {ALERTED.replace('Runtime', 'Value')[:100]}"),
        ("on", ["Traceback\n  line\nValueError: no"] * 2, "error: ValueError: no"),
        ("on", [f"Traceback\n{WRAPPED}{HINT}"] * 2, f"raises: {ALERTED[:100]}"),
        ("on", [f"Traceback\nInductorError: no compiler{HINT}"] * 2, "error: InductorError: no compiler"),
        ("on", ["", ""], "error: ended with code -11"),
    ],
)  # fmt: skip
def test_cells_are_those_of_the_report(
    mode: str, children: list[list[str] | str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """All processes of a mode make one set of outputs; an alert counts only where all raise it, the flag being on."""
    names = loaded_put()
    names["PROCESSES"] = 2
    answers = iter(children)

    def run(command: list[str], **_: Any) -> Any:
        assert command[-1] == mode
        answer = next(answers)
        if isinstance(answer, str):
            return SimpleNamespace(returncode=1 if answer else -11, stdout="", stderr=answer)
        return SimpleNamespace(
            returncode=0, stdout=f"about\nprinted by the op\n{json.dumps(answer)}", stderr=""
        )

    names |= {"subprocess": SimpleNamespace(run=run), "__file__": "script.py"}

    names["cell"](mode)

    assert capsys.readouterr().out.splitlines()[-1] == f"{mode}: {text}"


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
    compared = parts(value, "output")
    generic = loaded(script(asked(put()[1]), seen(*put()), header()))

    taken = generic["parts"](value)

    scale_and_zero_point = kind == "quantized"
    tensors = [tensor for _, tensor in compared]
    assert generic["digest"](tensors) == generic["digest"](taken[: len(taken) - scale_and_zero_point])
    assert not scale_and_zero_point or taken[-1].tolist() == [0.1, 3.0]
    outputs = [Output(name=name, shape=(3,), dtype="float32", differing=0) for name, _ in compared]
    known = loaded(script(asked(put()[1]), seen(*put(), *outputs), header()))
    if kind in ("rows", "columns", "coordinates", "quantized", "quantized by channel"):
        assert generic["digest"](taken) == known["digest"](known["parts"](value))


def _raced(differing: dict[str, int], family: str = "scatter") -> tuple[MatrixRow, Header]:
    """Return a row, and its run, that differed so often under each perturbation, in ten executions of each."""
    planned = row("torch.Tensor.scatter_add_", family=family)
    groups = under(**{name: (10, count) for name, count in differing.items()})
    raced = [*ran(planned, "off", *drifting(4), groups=groups), *ran(planned, "on", *stable())]
    run = replace(header(), planned=(planned,))
    (found,) = matrix(run, raced, closed=True)
    return found, run


@pytest.mark.parametrize(
    ("family", "groups", "expected"),
    [
        ("scatter", {}, []),
        ("scatter", {"quiet": 1, "stress": 9, "poison": 9}, []),
        ("scatter", {"quiet": 1, "stress": 10, "poison": 9}, ["stress"]),
        ("scatter", {"quiet": 0, "stress": 2, "shift": 1, "poison": 0}, ["stress"]),
        ("scatter", {"quiet": 0, "stress": 1, "poison": 9}, ["poison"]),
        ("memory", {}, ["poison"]),
        ("memory", {"quiet": 9, "poison": 9}, ["poison"]),
    ],
)
def test_perturbations_are_those_that_the_row_needs(
    family: str, groups: dict[str, int], expected: list[str]
) -> None:
    """A script does no more than it must; what lies in memory it cannot leave to chance."""
    assert perturbations(_raced(groups, family)[0]) == expected


@pytest.mark.parametrize("name", sorted({*OFFERED} - {"quiet"}))
def test_a_script_brings_each_perturbation_about(name: str) -> None:
    """One that the template did not know would be left out, and the script would show nothing."""

    def code(name: str) -> set[str]:
        text = script(INPUT_SOURCE, *_raced({"quiet": 0, name: 3}))
        return {line for line in text.splitlines() if not line.startswith("import")}

    assert code(name) - code("shift" if name == "stress" else "stress")


# Nothing that a run file says becomes code of the script that reproduces a row: whoever runs it trusts the script.

# Each begins where a value could end; the last one speaks to the reader of Python before there is any code.
PAYLOADS = (
    "threads=1)\ncanary()\n#",
    "1\rcanary()\r#",
    '"), canary(), ("',
    "'), canary(), ('",
    "x\\",
    "coding: utf-7 +AAo-canary()+AAo-",
    "vim: set fileencoding=utf-7 : +AAo-canary()",
    "\0",
    "\u2028canary()",
)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Return the lines of a run on a GPU whose row needs a perturbation and whose scan set variables."""
    planned = row("torch.cumsum", device="cuda:0")
    groups = under(quiet=(25, 0), stress=(25, 2))
    variables = {"off": {"OMP_NUM_THREADS": "2"}, "on": {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}}
    path = write_run(
        tmp_path_factory.mktemp("records") / "run.jsonl",
        [(planned, [*ran(planned, "off", *drifting(3), groups=groups), *ran(planned, "on", *stable())])],
        environment=replace(ENVIRONMENT, gpu="Example GPU", cuda="13.0", variables=variables),
        settings=replace(SETTINGS, device="cuda:0"),
    )
    return lines(path)


def _written(path: Path) -> str:
    run = read_run(path)
    (found,) = matrix(run.header, run.observations, closed=True)
    return script(INPUT_SOURCE, found, run.header)


def _texts(records: Any) -> Iterator[tuple[Any, Any, bool]]:
    """Yield where strings stand in nested records: what they are in, the key there, and whether it is the key itself."""
    for outer, key in places(records):
        if isinstance(key, str):
            yield outer, key, True
        if isinstance(outer[key], str):
            yield outer, key, False


def test_no_text_of_a_run_file_becomes_code(records: list[dict[str, Any]], tmp_path: Path) -> None:
    """Whatever stands in the place of any string is refused, or stands in a comment or between quotes."""
    path = tmp_path / "run.jsonl"
    written = refused = 0
    for number in range(len(list(_texts(records)))):
        # A third of them for each place: all for all take seconds.
        for payload in PAYLOADS[number % 3 :: 3]:
            changed = copy.deepcopy(records)
            outer, key, is_name = next(islice(_texts(changed), number, None))
            outer[payload if is_name else key] = outer.pop(key) if is_name else payload
            write_lines(path, changed)
            try:
                text = _written(path)
            except DetmatrixError:
                refused += 1
                continue
            written += 1
            # As Python reads a file: its first lines may name an encoding.
            names = {node.id for node in ast.walk(ast.parse(text.encode())) if isinstance(node, ast.Name)}
            assert "canary" not in names, (key, payload)

    assert written > 100
    assert refused > 100


def test_variables_of_a_script_are_those_of_a_table(records: list[dict[str, Any]], tmp_path: Path) -> None:
    """What would load a library, or find another Python, is not set, neither for the script nor for its children."""
    path = tmp_path / "run.jsonl"
    changed = copy.deepcopy(records)
    variables = changed[0]["environment"]["variables"]
    evil = dict.fromkeys(
        ("LD_PRELOAD", "PYTHONPATH", "OMP_TOOL_LIBRARIES", "MKL_THREADING_LAYER"), "/tmp/evil.so"
    )
    for mode in ("off", "on"):
        variables[mode] |= {"OMP_NUM_THREADS": "3", "OMP_PROC_BIND": "true", **evil}
    text = _written(write_lines(path, changed))

    assert not re.findall("evil|PYTHONPATH", text)
    # Set as it was, unless whoever runs the script has set it.
    assert "os.environ.setdefault('OMP_NUM_THREADS', '3')" in text
    assert "os.environ.setdefault('OMP_PROC_BIND', 'true')" in text
    # A process that has loaded torch is bound to one core, and so is all that it starts.
    assert "import torch" not in text.partition("    sys.exit()")[0]
    assert "{'CUBLAS_WORKSPACE_CONFIG': ':4096:8'}" in text

    variables["off"]["OMP_NUM_THREADS"] = "3')\nprint('mine"
    write_lines(path, changed)
    with pytest.raises(UsageError, match="as the value of a variable that steers threads"):
        _written(path)


# The scripts of ``detmatrix repro`` draw the inputs of the scan, bit for bit, or say why they cannot.


def described(args: Any, kwargs: Any, leaves: Any) -> Any:
    """Return all in which inputs can differ."""
    named = [*parts(args, "args", skip_others=True), *parts(kwargs, "kwargs", skip_others=True)]
    graph = [tensor.requires_grad for _, tensor in named], digest(parts(leaves, "leaves"))
    text = repr((args, kwargs)).replace("'cuda'", "'cpu'")
    return digest(named), [tensor.stride() for _, tensor in named], graph, text


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
        execution = drawn_by_worker(planned, spec)
        expected = described(execution.call.args, dict(execution.call.kwargs), execution.leaves)

        text = script(asked(planned), seen(spec, planned), header())

        args, kwargs, *leaves = loaded(text)["inputs"]()
        if described(args, kwargs, leaves[0] if leaves else []) != expected:
            different.append(planned.id)

    assert not different


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    "pattern",
    [
        "torch.Tensor.put_:overwrite:forward:float32",
        "torch.nn.Embedding:collisions_half:*:bfloat16",
        "torch.nn.CTCLoss:four_labels_cudnn:*",
        "torch.Tensor.scatter_reduce:amax:backward:float32",
        "torch.nn.functional.grid_sample:each_pixel_once:*:float16",
        "torch.sparse.mm:csr_dense_grad:*:float32",
        "torch.empty:integer:*:uint8",
    ],
)
def test_script_of_a_cuda_row_is_written_without_one(pattern: str) -> None:
    """Drawn on the CPU and moved, in the sizes of CUDA; where both are the CPU, the bits are the same."""
    spec, planned = select([pattern], "cuda")[0]
    t = Inputs(f"{SEED}|{spec.name}|{planned.case}|{planned.dtype}", dtype=planned.dtype, device="cuda",
               direction=planned.direction)  # fmt: skip
    with Drawing("cuda"):
        call = spec.cases[planned.case].inputs(t)
    head = header(gpu="Example GPU", cuda="12.6", variables={"on": {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}})
    head = replace(head, settings=replace(head.settings, device="cuda:0"))

    text = script(asked(planned, "cuda"), seen(spec, planned, device="cuda:0"), head)

    assert '"cuda"' in text
    assert "os.environ | {'CUBLAS_WORKSPACE_CONFIG': ':4096:8'} if mode != \"off\"" in text
    args, kwargs, *leaves = loaded(text.replace('"cuda"', '"cpu"'))["inputs"]()
    assert described(args, kwargs, leaves[0] if leaves else []) == described(
        call.args, dict(call.kwargs), t.leaves
    )


@pytest.mark.parametrize(
    "pattern",
    [
        "gather:*:float64",
        "nn.LSTM:one_layer",
        "sparse.mm:coo*",
        "nn.functional.scaled_dot_product_attention:math:*",
    ],
)
def test_script_computes_the_gradients_of_the_scan(pattern: str) -> None:
    """Upstream gradients are those that a worker draws, so that the results are the same bits."""
    for spec, planned in select([f"torch.{pattern}"], "cpu"):
        execution = drawn_by_worker(planned, spec)
        execution.reseed()
        output, gradients = execution()

        names = loaded(script(asked(planned), seen(spec, planned), header()))

        expected = [tensor for _, tensor in parts(gradients if execution.backward else output, "output")]
        assert names["digest"](expected) == names["digest"](names["execute"](*names["inputs"]()))


@pytest.mark.parametrize(
    ("spec", "text"),
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
def test_no_recipe(spec: str, text: str, tmp_path: Path) -> None:
    """What has no source, or makes other inputs each time, is refused in a sentence."""
    (tmp_path / "planted.py").write_text(PLANTED, encoding="utf-8")
    planned = Planned(spec, "only", "forward", "float32")

    with pytest.raises(InputSourceError, match=text):
        source_of([str(tmp_path / "planted.py")], **planned._asdict(), device="cpu", seed=SEED)


# --- What scripts and specs do in the modes that a scan was asked for


def _script(seen: dict[Mode, dict[str, Any]]) -> str:
    """Return the script of a row that was run in these modes, with what was seen otherwise than that nothing differed."""
    ((spec, planned),) = select(["torch.take:permutation:backward:float32"], "cpu")
    planned_row = row(*planned, family=spec.family)
    outputs = (replace(OUTPUT, name="grad of args[0]"),)
    still: dict[str, Any] = {"outcome": "ran", "executions": 2, "digests": {"a": 2}, "outputs": outputs}
    observations = [
        Observation(**planned._asdict(), mode=mode, process=0, **still | fields)
        for mode, fields in seen.items()
    ]
    settings = replace(header().settings, modes=with_chosen(tuple(seen)))
    head = replace(header(), planned=(planned_row,), settings=settings)
    (found,) = matrix(head, observations, closed=True)
    return script(asked(planned), found, head)


@pytest.mark.parametrize(
    ("mode", "settings"),
    [
        ("off", [False]),
        ("on", [True]),
        ("backward_only", [False, True, False, True, False]),
        ("forward_only", [True, False, True, False, True]),
    ],
)
def test_script_switches_the_flag_as_the_scan_did(
    monkeypatch: pytest.MonkeyPatch, mode: Mode, settings: list[bool]
) -> None:
    """Between the parts of each of two executions, and back; other modes keep what they set."""
    names = loaded(_script({"off": {}, "on": {}, mode: {}}))
    calls: list[bool] = []
    set_flag = torch.use_deterministic_algorithms

    def note(flag: bool, **more: Any) -> None:
        calls.append(flag)
        set_flag(flag, **more)

    monkeypatch.setattr(torch, "use_deterministic_algorithms", note)
    monkeypatch.setattr(sys, "argv", ["script", mode])
    try:
        names["observe"](mode)
    finally:
        set_flag(False)

    assert calls == settings


def test_script_claims_nothing_of_what_was_not_compiled() -> None:
    """Under torch.compile the op would run eagerly, which the scan calls no verdict; the comment says why the mode is left out."""
    eagerly = {"outcome": "not_run", "message": "not compiled: dynamic shape", "executions": 0, "digests": {}}
    not_compiled = eagerly | {"compiled": Compiled(graphs=0, breaks=1, kernels=0)}
    text = _script({"off": {}, "on": {}, "backward_only": {}, "compile_on": not_compiled})

    comment = " ".join(line[2:] for line in text.splitlines() if line.startswith("# "))
    code = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    assert "for mode in ('backward_only',):" in code
    assert "compile_on" not in code
    assert "not compiled: dynamic shape" in comment


STILL, OTHER, RACES = {"a": 200}, {"b": 200}, {"a": 180, "b": 20}


@pytest.mark.parametrize(
    ("mode", "off", "late", "finding"),
    [
        ("backward_only", STILL, RACES, "silent"),
        ("backward_only", RACES, RACES, "silent"),
        ("backward_only", RACES, STILL, "fixed_by_mode"),
        ("forward_only", STILL, RACES, "differs"),
        ("forward_only", RACES, RACES, "also_differs"),
        ("forward_only", STILL, STILL, "as_off"),
        ("forward_only", STILL, OTHER, "mode_dependent"),
    ],
)
def test_script_says_whose_finding_it_is(
    mode: Mode,
    off: dict[str, int],
    late: dict[str, int],
    finding: ModeFinding,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It ends in the finding of the mode, which is that of the scan; that of off and on is not left to be taken for it."""
    seen: dict[Mode, dict[str, int]] = {"off": off, "on": STILL, "unfilled": STILL, mode: late}
    text = _script({one: {"executions": 200, "digests": found} for one, found in seen.items()})
    cells = {
        one: ("nondeterministic" if len(found) > 1 else "deterministic", next(iter(found)))
        for one, found in seen.items()
    }
    names = loaded(text)
    names["cell"], names["RUNS"] = cells.__getitem__, 200

    names["main"]()

    own = "deterministic" if off is STILL else "fixed_by_mode"
    assert capsys.readouterr().out.splitlines()[-2:] == [
        f"finding with the flag off and on: {own}",
        f"finding in {mode}: {finding}",
    ]
    comment = " ".join(line[2:] for line in text.splitlines() if line.startswith("# "))
    assert f" {own} with the flag off and on: " in comment
    assert f" {finding} in {mode}: {MODE_FINDING_MEANING[finding]}" in comment
    if finding == "mode_dependent":
        names["RUNS"] = 20
        names["main"]()
        assert capsys.readouterr().out.splitlines()[-1].startswith(f"finding in {mode}: inconclusive")


def test_masks_say_what_an_output_sees() -> None:
    """Counted by hand of three layers: the row above, widening by one each, and the pixels to the left."""
    draws = Inputs("field", dtype="float32", device="cpu", direction="backward")
    image = draws.normal(1, 1, 7, 7)
    weights = [draws.normal(1, 1, 3, 3) for _ in range(3)]

    field = convolution.receptive_field(call(image, weights, 4, 3))[0, 0]

    assert ["".join("#" if pixel else "." for pixel in line) for line in field.tolist()] == [
        ".......",
        "#######",
        "######.",
        "#####..",
        "###....",
        ".......",
        ".......",
    ]


FIELD = next(one for one in convolution.SPECS if one.name == "masked_conv2d.receptive_field")


def _small(t: Inputs) -> Call:
    image = t.leaf(t.normal(1, 1, 8, 8))
    return call(image, [t.normal(2, 1, 3, 3), t.normal(2, 2, 3, 3)], 4, 4)


@pytest.mark.parametrize("mode", ["off", "on", "backward_only", "forward_only"])
def test_a_gradient_outside_of_the_masks_is_told_and_there_is_none(
    monkeypatch: pytest.MonkeyPatch, mode: Mode
) -> None:
    """One product that should be zero and is not shows in every mode; ``tests/golden`` has what reports make of it."""
    right = observed(FIELD, "nonzero_gradient", mode, direction="backward")
    assert (right["outcome"], right["reference"]["elements"]) == ("ran", 0)
    assert right["digests"] == {right["reference"]["digest"]: 2}
    monkeypatch.setattr(
        "detmatrix.opspecs.masked.masked_convolutions",
        lambda image, *rest: masked_convolutions(image, *rest) + 1e-30 * image[:, :, -1, -1],
    )
    small = dataclasses.replace(FIELD.cases["nonzero_gradient"], inputs=_small)

    seen = observed(dataclasses.replace(FIELD, cases={"small": small}), mode=mode, direction="backward")

    assert (seen["outcome"], seen["reference"]["elements"]) == ("ran", 1)
