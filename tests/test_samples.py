"""Which samples of PyTorch's databases become rows, how they are enlarged, and what the lists' conditions say of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

# PyTorch's databases need it, and the other tests do not.
pytest.importorskip("expecttest")

from detmatrix.opspecs.inputs import Inputs, RealSizeInputs, SimulatedInputs, WholeInputs
from detmatrix.opspecs.pytorch import database, enlarge
from detmatrix.scanner.worker.databases import entry_rows
from detmatrix.scanner.worker.execution import DRAWS, Execution
from detmatrix.scanner.worker.threads import working_threads


@pytest.fixture(autouse=True, scope="module")
def threads() -> Iterator[None]:
    """Give the process its threads back: whoever enumerates has one."""
    count = torch.get_num_threads()
    yield
    torch.set_num_threads(count)


@functools.cache
def _rows(name: str, dtype: str = "float32") -> list[dict[str, Any]]:
    answer = entry_rows(name, device="cpu", seed=0, dtypes=[dtype], samples=2, trial=True)
    return list(answer["rows"])


def _enlarged(name: str) -> list[dict[str, Any]]:
    return [row for row in _rows(name) if row["provoked"] == "enlarged"]


@pytest.mark.parametrize("name", ["opinfo:as_strided", "opinfo:randint", "opinfo:select"])
def test_growing_what_is_hardly_read_is_no_enlargement(name: str) -> None:
    """However large the input, sixteen elements of it, or one row, are all these look at."""
    assert _rows(name)
    assert [row for row in _enlarged(name) if row["case"] in {"enlarged_2", "enlarged_3", "enlarged_7"}] == []


@pytest.mark.parametrize("name", ["nn.functional.embedding", "grid_sampler_2d", "index_add"])
def test_what_threads_share_is_taken_rather_than_what_one_does(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A table of ten rows that receive thousands of gradients is one thread's work, one of 370 is that of two."""
    shared = _enlarged(f"opinfo:{name}")
    monkeypatch.setattr("detmatrix.scanner.worker.databases.working_threads", lambda phase: (phase(), None))
    unknown = entry_rows(f"opinfo:{name}", device="cpu", seed=0, dtypes=None, samples=2, trial=True)["rows"]
    first = {row["case"]: row["enlargement"] for row in unknown if row["provoked"] == "enlarged"}
    monkeypatch.setattr("detmatrix.scanner.worker.databases.working_threads", lambda phase: (phase(), 1))
    alone = entry_rows(f"opinfo:{name}", device="cpu", seed=0, dtypes=None, samples=2, trial=True)["rows"]

    # Where nobody can tell, or no recipe is better than another, the first one is taken.
    assert {row["case"]: row["enlargement"] for row in alone if row["provoked"] == "enlarged"} == first
    assert {row["case"] for row in shared if row["enlargement"] != first.get(row["case"])}
    for row in shared:
        spec = database.find(f"opinfo:{name}", seed=0, enlargement=row["enlargement"])
        execution = Execution(
            spec, row["case"], direction=row["direction"], kept=DRAWS, dtype="float32", device="cpu", seed=0
        )
        worked: list[int | None] = []

        def counted(phase: Callable[[], Any], worked: list[int | None] = worked) -> Any:
            result, threads = working_threads(phase)
            worked.append(threads)
            return result

        torch.set_num_threads(2)
        execution()
        execution(None, counted)
        assert worked == [2]


@pytest.mark.parametrize(
    ("name", "dtype", "expected"),
    [
        ("opinfo:put", "float32", [{"accumulate": "False"}, {"accumulate": "True"}]),
        ("opinfo:index_put_", "float32", [{"accumulate": "False"}, {"accumulate": "True"}]),
        ("opinfo:scatter", "float32", [{"src": "Tensor"}, {"src": "number"}]),
        ("opinfo:scatter_reduce.amax", "float32", [{"reduce": "amax"}]),
        ("opinfo:bincount", "int64", [{"weights": "given"}, {"weights": "none"}]),
        ("opinfo:median", "float32", [{"output": "indices"}, {"output": "value"}]),
        ("opinfo:nn.functional.interpolate.bilinear", "float32", [{"mode": "bilinear"}]),
        ("opinfo:empty", "float32", [{"fill": "floating:NaN"}]),
        ("opinfo:empty", "int64", [{"fill": "integer:maximum"}]),
        ("opinfo:empty", "complex64", [{"fill": "complex:NaN"}]),
        ("opinfo:resize_", "float32", [{"fill": "floating:NaN", "quantized": "False"}]),
        ("opinfo:nn.functional.embedding_bag", "float32", [{"mode": "mean"}, {"mode": "sum"}]),
        ("opinfo:sin", "float32", [{}]),
    ],
)
def test_traits_are_those_of_the_lists(name: str, dtype: str, expected: list[dict[str, str]]) -> None:
    """What a bullet makes its condition is told of each sample of the op, whether it stands by name, by place or nowhere."""
    found = {tuple(sorted(row["traits"].items())) for row in _rows(name, dtype)}

    assert sorted(found) == [tuple(sorted(traits.items())) for traits in expected]


@pytest.mark.parametrize("name", ["opinfo:repeat_interleave", "opinfo:__getitem__", "opinfo:index_put"])
def test_no_row_stands_twice(name: str) -> None:
    """The sample that is enlarged for its indices is one that was not taken before."""
    keys = [(row["case"], row["direction"], row["dtype"]) for row in _rows(name)]

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
