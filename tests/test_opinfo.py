"""PyTorch's databases as sources: what is taken of them, how it is enlarged, and what is said of it."""

from __future__ import annotations

import functools
import json
import math
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from detmatrix.opspecs.inputs import Inputs, RealSizeInputs, SimulatedInputs, WholeInputs
from detmatrix.opspecs.model import MissingError
from detmatrix.opspecs.pytorch import database, enlarge
from detmatrix.opspecs.pytorch.gradgrad import gradgrad
from detmatrix.opspecs.pytorch.sources import ADAPTERS, recorded_entries
from detmatrix.scanner.cases import discovery
from detmatrix.scanner.errors import UntrustedScanError
from detmatrix.scanner.run.passes import PassRunner
from detmatrix.scanner.worker import databases
from detmatrix.scanner.worker.execution import DRAWS, Execution, InvalidCaseError
from detmatrix.scanner.worker.threads import working_threads
from tests.commands import Command, command_in
from tests.conftest import refused, table

# PyTorch's databases need it, and the other tests do not.
pytest.importorskip("expecttest")

ENTRIES = (
    *("put", "put_", "sort", "zeros_like", "bincount", "nn.functional.dropout"),
    "torch.ops.aten._flash_attention_forward",
)
PATTERNS = (
    *(f"opinfo:{name}" for name in ENTRIES),
    "module:nn.BatchNorm2d",
    "module:nn.LSTM",
    "gradgrad:put",
)
OPTIONS = (
    *("--source", "opinfo,modules,gradgrad", "--device", "cpu", "--runs", 6, "--processes", 1),
    *("--no-cost", "--no-overloads"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a scan of a few entries, ``run.jsonl``."""
    folder = tmp_path_factory.mktemp("opinfo")
    done = command_in(folder)("scan", *PATTERNS, *OPTIONS, "-o", "run.jsonl")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def rows(folder: Path) -> list[dict[str, Any]]:
    """The rows of the scan's JSON report."""
    done = command_in(folder)("report", "run.jsonl", "--format", "json")
    return list(json.loads(done.stdout)["rows"])


def _of(rows: list[dict[str, Any]], spec: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["spec"] == spec]


# What is taken


def _elements(text: str) -> int:
    """Return the elements of an input told as ``args[0]: float32 (5, 5), strides …``."""
    shape = text.partition("(")[2].partition(")")[0]
    return math.prod(int(size) for size in shape.split(",") if size.strip())


def test_enlarged_inputs_are_large(rows: list[dict[str, Any]]) -> None:
    """Large enough for a CPU kernel to run in two threads; the samples are not."""
    sizes: dict[str, list[int]] = {"samples": [], "enlarged": []}
    for row in rows:
        if row["inputs"] and row["spec"].startswith("opinfo:"):
            sizes[row["provoked"]].append(max(map(_elements, row["inputs"])))

    assert min(sizes["enlarged"]) >= 1 << 16
    assert max(sizes["samples"]) < 1 << 15


# What comes of it


def test_what_cannot_run_here_says_why(rows: list[dict[str, Any]]) -> None:
    """An entry that declares no dtype for the CPU is a row, and its reason is the database's."""
    (row,) = _of(rows, "opinfo:torch.ops.aten._flash_attention_forward")

    assert row["off"]["verdict"] == row["on"]["verdict"] == "not_run"
    assert row["off"]["reason"] == "the database declares no float32 for this device, no dtype at all"


def test_second_gradients_are_rows_of_their_own(folder: Path, rows: list[dict[str, Any]]) -> None:
    """Under a name of their own, with samples as they are and grown; their scripts have the function that computes them."""
    found = _of(rows, "gradgrad:put")

    assert {row["provoked"] for row in found} == {"samples", "enlarged"}
    script = command_in(folder)("repro", "run.jsonl", f"gradgrad:put:{found[0]['case']}:forward:float32")
    assert "return (torch.put, (0, 2), " in script.stdout
    assert {row["op"] for row in found} == {"second gradient of torch.put"}
    assert {row["off"]["verdict"] for row in found} <= {"deterministic", "nondeterministic"}


def test_second_gradients_are_those_of_the_formula() -> None:
    """Of x³ with upstream gradients u and v: 6xuv for x, 3x²v for u, of as many numbers as the output has; zeros of a sum for x."""
    x = torch.tensor([1.0, 2.0, 4.0])
    u = v = torch.tensor([0.5, 1.0, 1.5])

    of_x, of_u = gradgrad(torch.pow, (0,), x, 3)
    zeros, _ = gradgrad(torch.cumsum, (0,), x, 0)
    with pytest.raises(MissingError, match="there is no second gradient"):
        gradgrad(torch.round, (0,), x)

    assert torch.allclose(of_x, 6 * x * u * v)
    assert torch.allclose(of_u, 3 * x**2 * v)
    # A formula that knows that it is zero, and one that does not, have the same results.
    assert torch.equal(zeros, torch.zeros(3))


# Going on, listing, and what a user can get wrong


def test_enumeration_goes_on(folder: Path, tmp_path: Path) -> None:
    """A scan that is cut while its databases are enumerated keeps the entries it has, and asks for the others."""
    records = (folder / "run.jsonl").read_text().splitlines(keepends=True)
    entries = [one for one in records if one.startswith('{"kind":"entry"')]
    (tmp_path / "run.jsonl").write_text("".join(records[:1] + entries[:-1]))

    asked: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        enumerated = discovery._entry

        def entry(supervisor: Any, name: str, options: Any) -> Any:
            asked.append(name)
            return enumerated(supervisor, name, options)

        def stop(*_: object) -> None:
            raise UntrustedScanError("stopped")

        patch.setattr(discovery, "_entry", entry)
        patch.setattr(PassRunner, "run", stop)
        done = command_in(tmp_path)("scan", "--resume", "-o", "run.jsonl")

    assert done.returncode == 4, done.stderr
    again = (tmp_path / "run.jsonl").read_text().splitlines(keepends=True)
    assert asked == [json.loads(entries[-1])["spec"]]
    assert again[: len(entries)] == [*records[:1], *entries[:-1]]
    # Which enlargements an op takes in time may differ from one moment to the next.
    assert [json.loads(one)["spec"] for one in again[1:]] == [json.loads(one)["spec"] for one in entries]


def test_missing_library_is_named(detmatrix: Command, tmp_path: Path) -> None:
    """An interpreter without what the databases import: one line says what to install there."""
    python = tmp_path / "python"
    script = (
        "import sys, runpy; sys.modules['expecttest'] = None; sys.argv.pop(1); runpy.run_module(sys.argv.pop(1), alter_sys=True, \
run_name='__main__')"
    )
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c {shlex.quote(script)} "$@"\n')
    python.chmod(0o755)

    line = refused(
        detmatrix("scan", "--source", "opinfo", "opinfo:add", "--device", "cpu", "--python", python)
    )

    assert line == (
        "--source opinfo: PyTorch's database of operators needs expecttest; install it beside the scanned "
        "torch (pip install expecttest)"
    )


def test_recorded_names_are_fresh() -> None:
    """What this torch has is in the table by which names are understood; nox -s names adds what is missing."""
    here = {name for source in ADAPTERS for name in database.entries(source)}

    assert here - set(recorded_entries()) == set()


# Drawing and growing


def _drawn(name: str, case: str, enlargement: str = "") -> list[torch.Tensor]:
    t = Inputs("key", dtype="float32", device="cpu", direction="forward")
    call = database.find(name, seed=0, enlargement=enlargement).cases[case].inputs(t)
    return enlarge.tensors([call.args, dict(call.kwargs)])


def test_sample_is_the_same_whatever_was_drawn_before() -> None:
    """Neither other rows nor the state of the generators reach the inputs of a row."""
    first = _drawn("opinfo:sort", "sample_3")
    torch.rand(7)
    _drawn("opinfo:put", "sample_9")
    _drawn("opinfo:sort", "sample_0")
    again = _drawn("opinfo:sort", "sample_3")

    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))


@pytest.mark.parametrize(
    ("name", "grows"),
    [("gather", True), ("lu_unpack", False), ("torch.ops.aten._flash_attention_forward", False)],
)
def test_integers_that_a_kernel_trusts_are_not_drawn_anew(name: str, grows: bool) -> None:
    """They would be addresses outside of a tensor, or let rows overlap, and what is seen then says nothing of the op."""
    sample: Any = ((torch.randn(4, 4), torch.tensor([0, 2, 4], dtype=torch.int32)), {})

    assert bool([*enlarge.enlargements(sample, f"opinfo:{name}", enlarge.ON_CPU)]) == grows


def test_grown_values_lie_within_the_sample() -> None:
    """Mixed values keep the least and the greatest, and are hardly ever equal; picked ones tie."""
    values = torch.tensor([0.25, 0.5, 0.75])
    (mixed,), (picked,) = (
        enlarge.grow(((values,), {}), f"size=all by=1000 values={kind}", "key")[0]
        for kind in ("mixed", "picked")
    )

    assert mixed.shape == picked.shape == (3000,)
    assert mixed.min() >= 0.25
    assert mixed.max() <= 0.75
    assert len(mixed.unique()) > 1500
    assert set(picked.tolist()) == set(values.tolist())


def test_grown_dimensions_fit_together() -> None:
    """Dimensions of one size grow alike, indices repeat within their range, and sizes in tuples follow."""
    args = (torch.rand(5, 3), torch.arange(5), (5, 2), 5)
    (values, index, sizes, number), _ = enlarge.grow((args, {}), "size=5 by=40 values=mixed ints=1", "key")

    assert (values.shape, index.shape, sizes, number) == ((200, 3), (200,), (200, 2), 5)
    assert index.max() < 5
    assert len(index.unique()) < len(index)


def test_sizes_in_tuples_grow_where_there_are_some() -> None:
    """Whether they do is tried of a tuple that names a size of a tensor, not of one that names none."""
    tensor = torch.rand(5, 3)
    found = {number: [*enlarge.enlargements(((tensor, (number,)), {}), "", 1 << 16)] for number in (4, 5)}

    assert [one for one in found[5] if one not in found[4]] == [
        "size=all by=67 values=mixed ints=1", "size=5 by=4370 values=mixed ints=1",
    ]  # fmt: skip


# Which samples become rows, how they are enlarged, and what the lists' conditions say of them.


@pytest.fixture(autouse=True, scope="module")
def threads() -> Iterator[None]:
    """Give the process its threads back: whoever enumerates has one."""
    count = torch.get_num_threads()
    yield
    torch.set_num_threads(count)


@functools.cache
def _entry_rows(name: str, dtype: str = "float32") -> list[dict[str, Any]]:
    answer = databases.entry_rows(name, device="cpu", seed=0, dtypes=[dtype], samples=2, trial=True)
    return list(answer["rows"])


def _enlarged(name: str) -> list[dict[str, Any]]:
    return [row for row in _entry_rows(name) if row["provoked"] == "enlarged"]


@pytest.mark.parametrize("name", ["opinfo:as_strided", "opinfo:randint", "opinfo:select"])
def test_growing_what_is_hardly_read_is_no_enlargement(name: str) -> None:
    """However large the input, sixteen elements of it, or one row, are all these look at."""
    assert _entry_rows(name)
    assert [row for row in _enlarged(name) if row["case"] in {"enlarged_2", "enlarged_3", "enlarged_7"}] == []


@pytest.mark.parametrize("name", ["nn.functional.embedding", "grid_sampler_2d", "index_add"])
def test_what_threads_share_is_taken_rather_than_what_one_does(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A table of ten rows that receive thousands of gradients is one thread's work, one of 370 is that of two."""
    monkeypatch.setattr("detmatrix.scanner.worker.threads._PATIENCE", 5.0)  # beside other tests
    shared = _enlarged(f"opinfo:{name}")
    counts, found = working_threads, []
    for threads in (None, 1):
        monkeypatch.setattr(databases, "working_threads", lambda phase, threads=threads: (phase(), threads))
        rows = databases.entry_rows(
            f"opinfo:{name}", device="cpu", seed=0, dtypes=None, samples=2, trial=True
        )["rows"]
        found.append({row["case"]: row["enlargement"] for row in rows if row["provoked"] == "enlarged"})
    monkeypatch.setattr(databases, "working_threads", counts)

    # Where nobody can tell, or no recipe is better than another, the first one is taken.
    first, alone = found
    assert alone == first
    assert {row["case"] for row in shared if row["enlargement"] != first.get(row["case"])}
    for row in shared:
        spec = database.find(f"opinfo:{name}", seed=0, enlargement=row["enlargement"])
        options: dict[str, Any] = {"kept": DRAWS, "dtype": "float32", "device": "cpu", "seed": 0}
        execution = Execution(spec, row["case"], direction=row["direction"], **options)
        assert databases.sharing(execution) == 2


@pytest.mark.parametrize(
    ("seconds", "directions", "executed"),
    [
        ((0.001, 0.02, 0.14), ["forward", "backward"], 3),
        ((0.001, 0.02, 0.2), None, 3),
        ((0.3, 0.3), None, 2),  # asked once more
        ((1.1,), None, 1),
        ((0.3, 0.001, 0.02, 0.1), ["forward", "backward"], 4),  # something was loaded
        ((0.001, 0.2, 0.02, 0.1), ["forward", "backward"], 4),
        ((None, 0.001, None, 0.02, None, 0.1), ["forward"], 6),  # nothing to differentiate
        ((0.001, ValueError), None, 2),
    ],
)
def test_a_sample_is_enlarged_if_the_op_takes_it(
    monkeypatch: pytest.MonkeyPatch,
    seconds: tuple[float | type[Exception] | None, ...],
    directions: list[str] | None,
    executed: int,
) -> None:
    """Within 0.15 s, tried at 1/64 and 1/8 of the size first, so that what grows too fast shows early."""
    entry = database.entries("opinfo")["opinfo:sin"]
    planner = databases.EntryPlanner(entry, "float32", "cpu", 0, {})
    left = list(seconds)

    def execute(*_: object) -> float:
        answer = left.pop(0)
        if isinstance(answer, float):
            return answer
        raise InvalidCaseError("nothing to differentiate") if answer is None else answer("refused")

    monkeypatch.setattr(databases.EntryPlanner, "execute", execute)
    monkeypatch.setattr(databases.EntryPlanner, "_provokes", lambda *_: databases.COLLIDES)
    monkeypatch.setattr(databases.EntryPlanner, "_is_shared", lambda *_: True)
    monkeypatch.setattr(databases, "_MOST_ENLARGEMENTS", 1)

    found = planner.enlarged("enlarged_0", database.Sample((torch.rand(5, 5),), {}), "")

    assert (found and found.directions, len(seconds) - len(left)) == (directions, executed)


@pytest.mark.parametrize(("name", "dtype", "expected"), table("databases.txt", "traits"))
def test_traits_are_those_of_the_lists(name: str, dtype: str, expected: str) -> None:
    """What a bullet makes its condition is told of each sample of the op, whether it stands by name, by place or nowhere."""
    found = {tuple(sorted(row["traits"].items())) for row in _entry_rows(name, dtype)}

    assert sorted(found) == [tuple(sorted(traits.items())) for traits in json.loads(expected)]


@pytest.mark.parametrize("name", ["opinfo:repeat_interleave", "opinfo:__getitem__", "opinfo:index_put"])
def test_no_row_stands_twice(name: str) -> None:
    """The sample that is enlarged for its indices is one that was not taken before."""
    keys = [(row["case"], row["direction"], row["dtype"]) for row in _entry_rows(name)]

    assert len(keys) == len(set(keys))


def test_samples_are_drawn_as_for_the_cpu_for_a_simulated_gpu() -> None:
    """The same numbers, in memory laid out as there; an enlarged one has its real size where no kernel is executed."""
    options: dict[str, Any] = {"dtype": "float32", "device": "meta", "direction": "forward"}
    sample = database.find("opinfo:index_add", seed=0).cases["sample_0"]
    drawn = sample.inputs(Inputs("key", **options | {"device": "cpu"}))
    recipe = next(enlarge.enlargements((drawn.args, drawn.kwargs), "opinfo:index_add", enlarge.ON_SIMULATED))
    case = database.find("opinfo:index_add", seed=0, enlargement=recipe).cases["enlarged_0"]
    plain, small, real, whole = (
        of("key", **options | ({"device": "cpu"} if of in (Inputs, WholeInputs) else {}))
        for of in (Inputs, SimulatedInputs, RealSizeInputs, WholeInputs)
    )
    here, there, filling, rounded = (
        enlarge.tensors(case.inputs(t).args) for t in (plain, small, real, whole)
    )

    assert [(one.shape, one.stride()) for one in there] == [(one.shape, one.stride()) for one in here]
    assert {one.device.type for one in there} == {"meta"}
    assert (plain.smaller, small.smaller) == (False, True)
    assert max(one.numel() for one in filling) >= enlarge.ON_GPU > max(one.numel() for one in there)
    assert torch.equal(rounded[0], here[0].round())


def test_samples_that_share_memory_share_it_on_a_simulated_gpu() -> None:
    """Views of one memory, transposed and conjugated ones too."""
    t = SimulatedInputs("key", dtype="float32", device="cpu", direction="forward")
    base, memo = torch.randn(4, 3, dtype=torch.complex64), dict[int, Any]()
    views = [base, base.T, base.conj(), base.imag[1:], base.conj().imag]
    copies = [t.given(one, memo) for one in views]

    assert all(torch.equal(one, other) for one, other in zip(views, copies, strict=True))
    assert len({one.untyped_storage().data_ptr() for one in copies}) == 1
    assert [one.stride() for one in copies] == [one.stride() for one in views]
    assert copies[0].data_ptr() != base.data_ptr()
