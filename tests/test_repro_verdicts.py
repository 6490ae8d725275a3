"""The scripts of ``detmatrix repro`` judge what they see as a report does."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from detmatrix.scanner.alerts import alert_caller
from detmatrix.scanner.modes import LEAST_RUNS
from detmatrix.scanner.observations.records import Group, Output
from detmatrix.scanner.repro.script import ALERT, CUBLAS_ALERT, perturbations, script
from detmatrix.scanner.verdicts.cells import Cell
from detmatrix.scanner.verdicts.findings import finding_of, matrix
from detmatrix.scanner.verdicts.vocabulary import Verdict
from tests.runs import drifting, ran, row, stable

torch = pytest.importorskip("torch")

from detmatrix.scanner.worker.bits import parts  # noqa: E402 - it needs torch
from tests.scripts import asked, header, loaded, loaded_put, put, seen  # noqa: E402


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
    expected, _ = finding_of(cells["off"], cells["on"], cells["warn_only"])
    names = loaded_put()
    names["cell"] = lambda mode: (cells[mode].verdict, cells[mode].first)
    names["RUNS"] = LEAST_RUNS

    names["main"]()

    assert capsys.readouterr().out == f"finding: {expected}\n"
    # Executed less often it says of none what the report would not say.
    names["RUNS"] = LEAST_RUNS - 1
    names["main"]()
    seldom = finding_of(replace(cells["off"], runs=LEAST_RUNS - 1), cells["on"], cells["warn_only"])[0]
    assert capsys.readouterr().out.startswith(f"finding: {seldom}")


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

    assert capsys.readouterr().out.splitlines()[-1] == f"{mode}: {text}"


def test_alerts_are_recognised() -> None:
    """A script knows the alerts by a part of the text by which a scan knows them."""
    whole = f"put_ {ALERT})'"
    cublas = f"{CUBLAS_ALERT} `at::Context::setDeterministicAlgorithms(true)`, but this operation is not "
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
        ("scatter", grouped(quiet=1, stress=10, poison=9), ["stress"]),
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
