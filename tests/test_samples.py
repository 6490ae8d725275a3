"""Which samples of PyTorch's databases become rows, how they are enlarged, and what the lists' conditions say of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

# PyTorch's databases need it, and the other tests do not.
pytest.importorskip("expecttest")

from detmatrix.opspecs.pytorch import database
from detmatrix.scanner.worker.databases.samples import entry_rows
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
    monkeypatch.setattr(
        "detmatrix.scanner.worker.databases.trials.working_threads", lambda phase: (phase(), None)
    )
    unknown = entry_rows(f"opinfo:{name}", device="cpu", seed=0, dtypes=None, samples=2, trial=True)["rows"]
    first = {row["case"]: row["enlargement"] for row in unknown if row["provoked"] == "enlarged"}
    monkeypatch.setattr(
        "detmatrix.scanner.worker.databases.trials.working_threads", lambda phase: (phase(), 1)
    )
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
