"""Which CUDA kernels of a build contain floating-point atomics, as NVIDIA's disassembler tells.

``cuobjdump`` unpacks the parts of the library for one architecture, ``nvdisasm`` disassembles them one by one. Both
come with Triton, which a CUDA build of torch depends on. Neither runs anything of what it reads.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from scanner.census.build import Build, find_installed
from scanner.census.names import demangle
from scanner.census.record import Kernel, KernelCode
from scanner.errors import BuildError, UsageError

LIBRARY = "libtorch_cuda.so"
PREFERRED = ("sm_90", "sm_80", "sm_100", "sm_86", "sm_75", "sm_70")
_SECONDS = 600  # that one call of a tool may take
_PARTS = re.compile(r"^ELF file +\d+: (\S+\.(sm_[0-9]+[a-z]?)\.cubin)$", re.MULTILINE)
_ARCH = re.compile(r"sm_[0-9]{2,3}[a-z]?")
_KERNEL = re.compile(r"^\.text\.(\S+):|^\s*\.section\s+\.text\.([^,\s]+)")
# RED, REDG, ATOM, ATOMG, ATOMS, UTMAREDG... with the type among the modifiers; compare-and-swap is told apart.
_ATOMIC = re.compile(r"\b((?:RED|REDG|REDUX|ATOM|ATOMG|ATOMS|UTMAREDG|UBLKRED)\.[A-Z0-9_.x]+)")
_FLOATING = re.compile(r"\.(?:F16x?2?|F32|F32x2|F64|BF16x?2?|BF16_V2|F16_V2)(?:x[24])?\b")


class Tools(NamedTuple):
    """Where the two programs are."""

    cuobjdump: str
    nvdisasm: str


class _Found(NamedTuple):
    """What one part of the library holds."""

    total: int
    floating: dict[str, Counter[str]]
    swapping: set[str]


def tools(python: str, cuobjdump: str | None) -> Tools:
    """Return the tools: those beside a given ``cuobjdump``, or those of the Triton beside an interpreter.

    Raises:
        UsageError: They are not there.
    """
    if cuobjdump is None:
        found = find_installed(python, "triton/backends/nvidia/bin/cuobjdump")
        if found is None:
            raise UsageError(f"{python}: has no Triton with cuobjdump beside it; name one with --cuobjdump")
        cuobjdump = str(found)
    disassembler = Path(cuobjdump).with_name("nvdisasm")
    for one in (Path(cuobjdump), disassembler):
        if shutil.which(str(one)) is None:
            raise UsageError(f"{one}: is no program; --sass needs cuobjdump, with nvdisasm beside it")
    return Tools(str(Path(cuobjdump).absolute()), str(disassembler.absolute()))


def kernels(build: Build, programs: Tools, arch: str | None, progress: Callable[[str], None]) -> KernelCode:
    """Look at the kernels for one architecture.

    Args:
        build: The build.
        programs: The disassembler.
        arch: Such as ``"sm_90"``; ``None``: the first of the common ones that the build has.
        progress: Called with the progress.

    Raises:
        UsageError: The build has no kernels for it, or none at all.
        BuildError: The tools cannot read the library.
    """
    if arch is not None and not _ARCH.fullmatch(arch):
        raise UsageError(f"--arch {arch}: no name of an architecture; give one like sm_90")
    if LIBRARY not in build.libraries:
        raise UsageError(f"{build.source}: has no {LIBRARY}, so no CUDA kernels; leave out --sass")
    with build.library(LIBRARY) as path, tempfile.TemporaryDirectory(prefix="detmatrix-") as folder:
        library = path.resolve()
        progress(f"which kernels {LIBRARY} has")
        listed = _PARTS.findall(_run([programs.cuobjdump, "--list-elf", str(library)], folder))
        chosen = arch or next((one for one in PREFERRED if any(part[1] == one for part in listed)), None)
        archs = {part[1] for part in listed}
        if chosen is None or chosen not in archs:
            raise UsageError(
                f"{LIBRARY}: has no kernels for {chosen or 'any common architecture'}; it has "
                f"{', '.join(sorted(archs)) or 'none'}"
            )
        progress(f"unpacking {sum(part[1] == chosen for part in listed)} parts for {chosen}")
        _run([programs.cuobjdump, "--extract-elf", f".{chosen}.cubin", str(library)], folder)
        parts = sorted(Path(folder).glob("*.cubin"))
        found, failed = _look(programs, parts, progress)
    floating: dict[str, Counter[str]] = {}
    swapping: set[str] = set()
    for one in found:
        swapping |= one.swapping
        for symbol, operations in one.floating.items():
            floating.setdefault(symbol, Counter()).update(operations)
    names = demangle(floating)
    return KernelCode(
        arch=chosen,
        library=LIBRARY,
        tool=_version(programs),
        total=sum(one.total for one in found),
        failed=tuple(failed),
        floating=tuple(
            Kernel(kernel=names[symbol], symbol=symbol, operations=dict(sorted(floating[symbol].items())))
            for symbol in sorted(floating)
        ),
        compare_and_swap=len(swapping - floating.keys()),
    )


def _look(
    programs: Tools, parts: list[Path], progress: Callable[[str], None]
) -> tuple[list[_Found], list[str]]:
    """Disassemble all parts, as many at once as there are cores."""
    found, failed = [], []
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        for number, (part, one) in enumerate(
            zip(parts, pool.map(lambda part: _part(programs, part), parts), strict=True)
        ):
            progress(f"kernels: part {number + 1} of {len(parts)}")
            if one is None:
                failed.append(f"part {number + 1} of {len(parts)}")
            else:
                found.append(one)
            part.unlink()
    return found, failed


def _part(programs: Tools, part: Path) -> _Found | None:
    """Disassemble one part; ``None`` if the disassembler fails."""
    floating: dict[str, Counter[str]] = {}
    swapping: set[str] = set()
    seen: set[str] = set()
    kernel = ""
    with subprocess.Popen(
        [programs.nvdisasm, "--print-code", str(part)],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, errors="replace",
    ) as process:  # fmt: skip
        for line in process.stdout or ():
            if line.startswith(".text.") or ".section" in line:
                if named := _KERNEL.match(line):
                    kernel = named[1] or named[2]
                    seen.add(kernel)
            elif ("RED" in line or "ATOM" in line) and (atomic := _ATOMIC.search(line)):
                if _FLOATING.search(atomic[1]):
                    floating.setdefault(kernel, Counter())[atomic[1]] += 1
                elif ".CAS" in atomic[1]:
                    swapping.add(kernel)
    return _Found(len(seen), floating, swapping) if process.returncode == 0 else None


def _version(programs: Tools) -> str:
    return _run([programs.nvdisasm, "--version"], ".").strip().splitlines()[-1]


def _run(command: list[str], folder: str) -> str:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise BuildError(
            f"{LIBRARY}: {Path(command[0]).name} cannot read it ({type(error).__name__})"
        ) from error
    return done.stdout
