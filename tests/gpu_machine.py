"""Kernels of the tests: PTX that ptxas assembles once, recorded, and executed by the engine on arrays of this process."""

from __future__ import annotations

import lzma
import re
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from detmatrix.scanner.gpu import isa, sass
from detmatrix.scanner.gpu.build import of_nvidia
from detmatrix.scanner.gpu.cubin import Cubin
from detmatrix.scanner.gpu.engine import Orders, Result, launch

ARCHITECTURES = [int(one.removeprefix("sm_")) for one in isa.ARCHITECTURES]
DATA = Path(__file__).parent / "data" / "gpu"
# What PTX is asked for, to have all that an architecture has.
VERSIONS = {80: "8.0", 90: "8.1", 100: "8.8"}
# PTX has braces before its registers, which jinja would take for its own.
_TEMPLATES = Environment(
    block_start_string="<%", block_end_string="%>", variable_start_string="<<", variable_end_string=">>",
    line_statement_prefix="%%", undefined=StrictUndefined, loader=FileSystemLoader(DATA), autoescape=False,
)  # fmt: skip
# The addresses of a thread's words at the parameters.
_EACH = "mad.wide.u32 %d3, %r3, 4, %d0; mad.wide.u32 %d4, %r3, 4, %d1; mad.wide.u32 %d5, %r3, 4, %d2;"
# Where modules have their variables, for as long as the tests run.
_VARIABLES = np.zeros((64, 4096), np.uint8)
_placed = iter(_VARIABLES)


def assembler() -> str | None:
    """Return the path of ptxas: that of the package ``nvidia-cuda-nvcc``, or one that the path has."""
    return of_nvidia("*/bin/ptxas") or shutil.which("ptxas")


def assembled(ptx: str, architecture: int = 80) -> bytes:
    """Return the cubin that ptxas makes of PTX."""
    command = assembler()
    assert command, "there is no ptxas: pip install nvidia-cuda-nvcc"
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder, "module.ptx"), Path(folder, "module.cubin")
        source.write_text(ptx)
        done = subprocess.run(
            [command, "-arch", f"sm_{architecture}", "-o", made, source],
            capture_output=True,
            text=True,
            check=False,
        )
        assert not done.returncode, done.stdout + done.stderr
        return made.read_bytes()


def head(architecture: int = 80) -> str:
    """Return what a module of PTX begins with."""
    return f".version {VERSIONS[architecture]}\n.target sm_{architecture}\n.address_size 64\n"


def written(name: str, **values: Any) -> str:
    """Return the PTX of a template of the tests' data, without what begins with #."""
    text = _TEMPLATES.get_template(f"{name}.ptx.j2").render(values)
    return re.sub("^#.*\n|^\n", "", text, flags=re.MULTILINE)


def kernels(name: str, architecture: int = 80) -> str:
    """Return a module of kernels that a template tells by their bodies, behind what it begins with."""
    text = written(name, architecture=architecture, registers=_registers).replace("EACH", _EACH)
    begin, *found = re.split(r"^entry (\w+):(.*)\n", text, flags=re.MULTILINE)
    return head(architecture) + begin + "".join(map(_entry, found[::3], found[2::3], found[1::3]))


def _entry(name: str, body: str, declared: str) -> str:
    """Return a kernel of three 64-bit parameters, in %d0 to %d2; %r0 is the thread, %r1 the block, %r2 the size, %r3 the thread of all."""
    return f"""
.visible .entry {name}(.param .u64 a, .param .u64 b, .param .u64 c) {{
.reg .b16 %h<40>; .reg .b32 %r<80>; .reg .b64 %d<80>; .reg .f32 %f<40>; .reg .f64 %g<20>; .reg .pred %p<30>;
{declared}
ld.param.u64 %d0, [a]; ld.param.u64 %d1, [b]; ld.param.u64 %d2, [c];
mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.u32 %r3, %r1, %r2, %r0;
{body}
ret;
}}
"""


def _registers(kind: str, first: int, count: int) -> str:
    return ", ".join(f"{kind}{number}" for number in range(first, first + count))


def record(name: str, ptx: str, architecture: int) -> None:
    """Assemble PTX for an architecture, and write both into a file of the tests' data."""
    content = ptx.encode() + b"\0" + assembled(ptx, architecture)
    made = lzma.compress(content, preset=9 | lzma.PRESET_EXTREME)
    (DATA / f"{name}-sm_{architecture}.xz").write_bytes(made)


@cache
def recorded(name: str, architecture: int = 80) -> tuple[str, Cubin]:
    """Return the PTX of a file of the tests' data, and what ptxas made of it."""
    text, content = lzma.decompress((DATA / f"{name}-sm_{architecture}.xz").read_bytes()).split(b"\0", 1)
    return text.decode(), loaded(content, architecture)


def loaded(content: bytes, architecture: int = 80) -> Cubin:
    """Return a cubin whose variables lie in memory of this process."""
    cubin = Cubin(content, architecture)
    at = next(_placed)
    image = cubin.place(at.ctypes.data)
    at[: len(image)] = np.frombuffer(image, np.uint8)
    return cubin


@cache
def instructions(cubin: Cubin) -> dict[str, list[re.Match[str]]]:
    """Return the lines of each kernel, all read by one nvdisasm, which takes long to start."""
    codes = {name: cubin.kernel(name).code for name in cubin.kernels}
    lines = iter(sass._lines(b"".join(codes.values()), cubin.architecture))
    found: dict[str, list[re.Match[str]]] = {}
    base = 0
    for name, code in codes.items():
        found[name] = [_moved(line, base) for line in islice(lines, len(code) // sass.WIDTH)]
        base += len(code)
    return found


def _moved(line: re.Match[str], base: int) -> re.Match[str]:
    """Return a line with the target of a jump as it is where the kernel starts at 0."""
    if not re.match(r"BRA|CALL\.REL|RET", line[4]):
        return line
    moved = re.sub(r"0x[0-9a-f]+ ;$", lambda at: f"{int(at[0][:-2], 16) - base:#x} ;", line[0].rstrip())
    found = sass._LINE.match(moved)
    assert found
    return found


@cache
def program(cubin: Cubin, name: str) -> bytes:
    """Return a kernel's instructions as ``sass.instructions`` does."""
    code = cubin.kernel(name).code
    lines = enumerate(instructions(cubin)[name])
    return b"".join(sass._encoded(line, at, code, cubin.architecture) for at, line in lines)


def run(
    cubin: Cubin,
    name: str,
    *parameters: np.ndarray[Any, Any] | int,
    grid: int | tuple[int, int, int] = 1,
    block: int | tuple[int, int, int] = 32,
    orders: Mapping[str, int] | None = None,
    local: int = 0,
    **options: Any,
) -> Result:
    """Execute a kernel whose parameters are arrays, which is the memory that exists, and 64-bit numbers."""
    kernel = cubin.kernel(name)
    kernel = replace(kernel, local=max(kernel.local, local))
    arrays = [one for one in parameters if isinstance(one, np.ndarray)]
    ranges = sorted((one.ctypes.data, one.ctypes.data + one.nbytes) for one in arrays)
    numbers = [one.ctypes.data if isinstance(one, np.ndarray) else one for one in parameters]
    return launch(
        kernel,
        program(cubin, name),
        (grid, 1, 1) if isinstance(grid, int) else grid,
        (block, 1, 1) if isinstance(block, int) else block,
        struct.pack(f"<{len(numbers)}Q", *numbers),
        ranges=struct.pack(f"<{2 * len(ranges)}Q", *(edge for one in ranges for edge in one)),
        orders=Orders(**(orders or {})),
        **options,
    )
