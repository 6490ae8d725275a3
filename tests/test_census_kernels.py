"""``census --sass`` lists the CUDA kernels with floating-point atomics; the disassembler is NVIDIA's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.census_builds import LIBRARY, MEMBERS, detmatrix, wheel

# Stand-ins for the two programs, which come with Triton and so are not on every machine that runs these tests. What
# they print is what those of CUDA 13 print of libtorch_cuda.so, shortened.
CUOBJDUMP = """#!/bin/sh
case "$1" in
--list-elf)
    echo "ELF file    1: libtorch_cuda.1.sm_80.cubin"
    echo "ELF file    2: libtorch_cuda.2.sm_90.cubin"
    echo "ELF file    3: libtorch_cuda.3.sm_90.cubin"
    echo "ELF file    4: libtorch_cuda.4.sm_90a.cubin" ;;
--extract-elf)
    echo good > libtorch_cuda.2$2; echo bad > libtorch_cuda.3$2 ;;
esac
"""
NVDISASM = """#!/bin/sh
[ "$1" = --version ] && { echo "nvdisasm: NVIDIA (R) CUDA disassembler"; echo "Build cuda_13"; exit; }
grep -q bad "$2" && exit 1
cat <<'END'
\t.section\t.text._Z3addPf,"ax",@progbits
.text._Z3addPf:
        /*0070*/                   RED.E.ADD.F32.FTZ.RN.STRONG.GPU desc[UR4][R2.64], R5 ;
        /*0080*/              @!P0 RED.E.ADD.F32.FTZ.RN.STRONG.GPU desc[UR4][R2.64+0x4], R5 ;
        /*0090*/                   ATOMG.E.ADD.F16x2.RN.STRONG.GPU PT, R6, desc[UR4][R2.64], R7 ;
\t.section\t.text._Z5countPi,"ax",@progbits
.text._Z5countPi:
        /*0070*/                   RED.E.ADD.STRONG.GPU desc[UR4][R2.64], R5 ;
\t.section\t.text._Z4loopPd,"ax",@progbits
.text._Z4loopPd:
        /*0070*/                   ATOMG.E.CAS.64.STRONG.GPU PT, R6, desc[UR4][R2.64], R4 ;
END
"""


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """The path of a ``cuobjdump`` with an ``nvdisasm`` beside it."""
    for name, text in (("cuobjdump", CUOBJDUMP), ("nvdisasm", NVDISASM)):
        (tmp_path / name).write_text(text, encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    return tmp_path / "cuobjdump"


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """The small build with a library of CUDA ops."""
    return wheel(tmp_path / "torch.whl", MEMBERS | {"torch/lib/libtorch_cuda.so": LIBRARY})


def test_kernels_with_floating_point_atomics(tools: Path, build: Path, tmp_path: Path) -> None:
    """Additions of floats count, those of integers do not, loops of compare-and-swap are counted apart."""
    output = tmp_path / "census.json"
    code, _, text = detmatrix("census", "--wheel", build, "--sass", "--cuobjdump", tools, "-o", output)
    kernels = json.loads(output.read_bytes())["kernels"]

    assert (code, text) == (0, "")
    assert (kernels["arch"], kernels["total"], kernels["compare_and_swap"]) == ("sm_90", 3, 1)
    assert [(one["kernel"], one["operations"]) for one in kernels["floating"]] == [
        (
            "add(float*)",
            {"ATOMG.E.ADD.F16x2.RN.STRONG.GPU": 1, "RED.E.ADD.F32.FTZ.RN.STRONG.GPU": 2},
        )
    ]
    assert kernels["failed"] == ["part 2 of 2"]


@pytest.mark.parametrize(
    ("arch", "text"), [("sm_75", "it has sm_80, sm_90, sm_90a"), ("-x", "no name of an architecture")]
)
def test_architectures_that_are_not_there(arch: str, text: str, tools: Path, build: Path) -> None:
    """The message names those that are."""
    code, _, line = detmatrix("census", "--wheel", build, "--sass", "--cuobjdump", tools, f"--arch={arch}")

    assert code == 2
    assert text in line


def test_build_without_kernels(tools: Path, tmp_path: Path) -> None:
    """A CPU build has none."""
    code, _, line = detmatrix(
        "census", "--wheel", wheel(tmp_path / "cpu.whl"), "--sass", "--cuobjdump", tools
    )

    assert code == 2
    assert "no CUDA kernels" in line


def test_tools_that_are_not_there(build: Path, tmp_path: Path) -> None:
    """Without the disassembler the message says what is missing."""
    code, _, line = detmatrix(
        "census", "--wheel", build, "--sass", "--cuobjdump", tmp_path / "no" / "cuobjdump"
    )

    assert code == 2
    assert "needs cuobjdump, with nvdisasm beside it" in line
