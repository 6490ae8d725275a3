"""``detmatrix libraries``: what libraries document of reproducibility, each entry with its place, and the ops that call them."""

from __future__ import annotations

from pathlib import Path

import pytest

from detmatrix.reports.libraries import (
    DATA,
    PROMISES,
    LibraryCall,
    LibraryEntry,
    documented_libraries,
    libraries_of,
)
from detmatrix.scanner.errors import UsageError
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
