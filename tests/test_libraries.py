"""``detmatrix libraries``: what libraries document of reproducibility, each entry with its place, and the ops that call them."""

from __future__ import annotations

from pathlib import Path

import pytest

from reports.libraries import (
    DATA,
    PROMISES,
    LibraryCall,
    LibraryEntry,
    documented_libraries,
    libraries_of,
)
from scanner.errors import UsageError
from tests.commands import Command
from tests.conftest import refused

TABLE = documented_libraries()
ASKED = [
    "cuBLAS",
    "cuDNN",
    "cuSPARSE",
    "cuSOLVER",
    "cuFFT",
    "CUB",
    "NCCL",
    "MIOpen",
    "rocSPARSE",
    "oneDNN",
    "MKL",
]


@pytest.mark.parametrize("entry", TABLE.entries, ids=lambda entry: entry.id)
def test_an_entry_has_its_place(entry: LibraryEntry) -> None:
    """A quotation, a link and a version: nothing is told from memory."""
    assert len(entry.quotation.split()) > 3
    assert entry.link.startswith("https://")
    assert entry.version.strip()
    assert entry.promise in PROMISES
    # What somebody else has told of a library says where.
    assert entry.via != entry.link


@pytest.mark.parametrize(
    "call", TABLE.every_call, ids=lambda call: f"{call.ops[0]}-{call.device}-{call.entries[0]}"
)
def test_a_call_has_its_place_in_the_source(call: LibraryCall) -> None:
    """The source of PyTorch at a commit, quoted."""
    assert call.source.startswith("https://github.com/pytorch/pytorch/blob/")
    assert len(call.source.split("/")[6]) == 40
    assert call.quotation.strip()


def test_no_call_leads_to_the_documentation_of_another_interface() -> None:
    """PyTorch calls MKL by its interface for C, of which the reference for SYCL says nothing."""
    called = {name for call in TABLE.calls for name in call.entries}

    assert [entry.id for entry in TABLE.entries if entry.id in called and "dpcpp" in entry.link] == []


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (('id = "cublas-streams"', 'id = "cublas-routines"'), "the id 'cublas-routines' stands twice"),
        (('entries = ["cub-scan"]', 'entries = ["nowhere"]'), "no entry has the id 'nowhere'"),
        (('promise = "gpu_to_gpu"', 'promise = "always"'), "Invalid enum value 'always'"),
        (('through = "torch.geqrf"', 'through = "torch.qeqrf"'), "no call is by 'torch.qeqrf'"),
        (('area = "all transforms"', 'area = ""'), "length >= 1"),
        (('via = "https://', 'via = "javascript:'), "matching regex"),
    ],
)
def test_a_table_that_is_wrong(tmp_path: Path, changed: tuple[str, str], expected: str) -> None:
    """It is refused in one line."""
    path = tmp_path / "table.toml"
    path.write_text(DATA.read_text(encoding="utf-8").replace(*changed), encoding="utf-8")

    with pytest.raises(UsageError, match="restore the file") as refusal:
        documented_libraries(path)

    assert expected in str(refusal.value)


def test_a_library_that_is_not_there(detmatrix: Command) -> None:
    """One line, which names those that are."""
    told = refused(detmatrix("libraries", "cuRAND"))

    assert told.strip() == f"no entry is about 'cuRAND'; choose: {', '.join(ASKED)}"


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["torch.nn.functional.grid_sample"], ["cuDNN on cuda"]),
        (["torch.nn.Conv2d"], ["cuDNN on cuda", "MIOpen on rocm", "oneDNN on cpu"]),
        (["torch.mm"], ["cuBLAS on cuda", "MKL on cpu", "oneDNN on cpu"]),
        (["torch.einsum"], ["cuBLAS on cuda", "MKL on cpu", "oneDNN on cpu"]),
        (["torch.vdot"], ["cuBLAS on cuda"]),
        (["torch._scaled_mm"], ["cuBLAS on cuda"]),
        (["torch.nn.MultiheadAttention"], ["cuBLAS on cuda", "MKL on cpu", "oneDNN on cpu"]),
        (["torch.nn.LazyConvTranspose3d"], ["cuDNN on cuda", "MIOpen on rocm", "oneDNN on cpu"]),
        (["torch.sparse.mm"], ["cuSPARSE on cuda", "rocSPARSE on rocm"]),
        (["torch.fft.rfftn"], ["cuFFT on cuda", "MKL on cpu"]),
        (["torch.fft.fftshift"], []),
        (["torch.take"], []),
    ],
)
def test_libraries_that_an_op_calls(names: list[str], expected: list[str]) -> None:
    """By its dotted names, each with its device."""
    assert [one.title.partition(" (")[0] for one in libraries_of(names)] == expected


@pytest.mark.parametrize("name", ["torch.geqrf", "torch.linalg.qr", "torch.linalg.eigh", "torch.linalg.svd"])
def test_what_cusolver_does_not_guarantee_is_told_of_each_op(name: str) -> None:
    """The functions that its documentation names are those that these ops call."""
    told = [entry["id"] for one in libraries_of([name]) for entry in one["entries"]]

    assert told == ["cusolver-deterministic", "cusolver-nondeterministic"]


def test_an_op_that_calls_another_one_says_so() -> None:
    """With the place where it does, under the condition of the other one, and without what sparse tensors alone call."""
    titles = [one.title for one in libraries_of(["torch.addbmm"])]
    through = {
        one["source"] for name in ("torch.tensordot", "torch.nn.Bilinear") for one in libraries_of([name])
    }

    assert titles[:2] == [
        "cuBLAS on cuda (by way of addmm)",
        "MKL on cpu (by way of addmm; float32 and float64, in a build whose BLAS is MKL)",
    ]
    assert {source.rpartition("/")[2] for source in through} == {"Linear.cpp"}
    assert "cuSPARSE" in {one["library"] for one in libraries_of(["torch.bmm"])}
    assert "cuSPARSE" not in {one["library"] for one in libraries_of(["torch.einsum"])}
