"""Take a table of engines: a cuDNN in, a record out; what loads it is a process of its own."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from detmatrix.scanner.cudnn.problems import CONVOLUTIONS, GPUS, PRESENT, PROBLEMS, Problem
from detmatrix.scanner.cudnn.record import EngineCell, EngineTable, Loaded, Place, Request
from detmatrix.scanner.errors import BuildError, UsageError, signal_name
from detmatrix.scanner.gpu.build import SharedLibrary, built, of_nvidia
from detmatrix.scanner.processes.environment import tool_version

LIBRARY = "libcudnn.so.9"
DRIVER = "libcuda.so.1"
INSTALL = "install one with pip install 'detmatrix[cudnn]', or name one with --library"
# cuDNN looks these up when it is loaded, and needs none of them to describe its engines: each fails if it is called.
_STUB = "".join(
    f"int {name}(void) {{ return 100; }}\n"  # CUDA_ERROR_NO_DEVICE
    for name in (
        *("cuGetErrorString", "cuModuleGetFunction", "cuModuleLoadData", "cuModuleUnload"),
        *("cuTensorMapEncodeIm2col", "cuTensorMapEncodeTiled"),
    )
)
_TIMEOUT = 1800.0  # seconds for all cells; a minute is usual
_MOST_CRASHES = 20
_ROOT = str(Path(__file__).parents[3])
_CHILD = "import sys; sys.path.insert(0, sys.argv[1]); from detmatrix.scanner.cudnn.probe import main; main()"
_NO_ORDER = "the heuristics end the process of cuDNN for this GPU"


def find_library() -> str:
    """Return the path of the cuDNN that pip installed here.

    Raises:
        UsageError: There is none.
    """
    if path := of_nvidia(f"cudnn/lib/{LIBRARY}"):
        return path
    raise UsageError(f"cudnn: there is no cuDNN beside this Python; {INSTALL}; --read shows a recorded table")


def driver_is_there() -> bool:
    """Tell whether this machine has NVIDIA's driver."""
    try:
        return int(ctypes.CDLL(DRIVER).cuInit(0)) == 0
    except (OSError, AttributeError):
        return False


def places(
    gpus: Sequence[str], problems: Sequence[Problem], dtypes: Sequence[str], layouts: Sequence[str]
) -> list[Place]:
    """Return what cuDNN is to be asked, in order."""
    return [
        (gpu, operation, number, dtype, layout)
        for gpu in gpus
        for number in range(len(problems))
        for operation in CONVOLUTIONS
        for dtype in dtypes
        for layout in layouts
    ]


def take(
    library: str,
    gpus: Sequence[str],
    dtypes: Sequence[str],
    layouts: Sequence[str],
    progress: Callable[[str], None],
    problems: Sequence[Problem] = PROBLEMS,
) -> EngineTable:
    """Ask a cuDNN for its engines.

    Raises:
        UsageError: Something needed is not installed, or there is no such GPU.
        BuildError: It is no cuDNN that describes its engines.
    """
    there = driver_is_there()
    if PRESENT in gpus and not there:
        raise UsageError("cudnn: there is no NVIDIA driver here; name described GPUs with --arch")
    path = None
    if not there:
        made = SharedLibrary(DRIVER, ("stub.c",), (f"-Wl,-soname,{DRIVER}",))
        path = str(built("cudnn", {"stub.c": _STUB}, [made]) / DRIVER)
        progress(f"no NVIDIA driver here: a compiled stub of {DRIVER} takes its place")
    progress(f"asking {library}")
    loaded, cells = _ask(library, path, gpus, places(gpus, problems, dtypes, layouts), problems)
    return EngineTable(
        tool=f"detmatrix {tool_version()}",
        cudnn=version_text(loaded.version),
        driver="present" if there else "stub",
        gpus=loaded.gpus,
        descriptions={name: GPUS[name] for name in gpus if name in GPUS},
        problems=tuple(problems),
        cells=tuple(cells),
    )


def version_text(number: int) -> str:
    """Return the release that ``cudnnGetVersion`` tells as a number."""
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def _ask(
    library: str,
    stub_path: str | None,
    gpus: Sequence[str],
    wanted: Sequence[Place],
    problems: Sequence[Problem],
) -> tuple[Loaded, list[EngineCell]]:
    """Ask in one process; where it ends early, say so of the cell it was at, and go on behind it in another."""
    cells: dict[Place, EngineCell] = {}
    unordered: list[str] = []
    for _ in range(_MOST_CRASHES):
        rest = tuple(place for place in wanted if place not in cells)
        loaded, found, ending = _one_process(
            Request(
                library,
                stub_path,
                {name: GPUS.get(name, {}) for name in gpus},
                tuple(problems),
                rest,
                tuple(unordered),
            )
        )
        known = {name for name, state in loaded.gpus.items() if state in {PRESENT, "described"}}
        if not known:
            raise BuildError(
                f"{library}: cuDNN {version_text(loaded.version)} cannot be told of GPUs that are not there "
                f"({next(iter(loaded.gpus.values()), 'none named')}); give one since 9.8"
            )
        cells |= {cell.place: replace(cell, refused=cell.refused or _NO_ORDER) if cell.gpu in unordered else cell
                  for cell in found}  # fmt: skip
        if ending is None:
            return loaded, list(cells.values())
        last = found[-1] if found else None
        left = [place for place in wanted if place not in cells and place[0] in known]
        # A cell is said without its order first, and once more when the heuristics have answered.
        said = [cell.place for cell in found]
        if (
            last
            and last.engines
            and last.refused is None
            and last.gpu not in unordered
            and said.count(last.place) == 1
        ):
            unordered.append(last.gpu)
            cells[last.place] = replace(last, refused=f"{_NO_ORDER} ({ending})")
        elif not left:
            # It had said all before it ended: some libraries fail as they are unloaded.
            return loaded, list(cells.values())
        else:
            at = left[0]
            cells[at] = EngineCell(*at, refused=f"the process of cuDNN ended ({ending})")
    raise BuildError(f"{library}: its process ended {_MOST_CRASHES} times; {INSTALL}")


def _one_process(request: Request) -> tuple[Loaded, list[EngineCell], str | None]:
    """Return what a process was told, and how it ended if not by itself."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _CHILD, _ROOT],
            input=msgspec.json.encode(request),
            capture_output=True,
            check=False,
            timeout=_TIMEOUT,
        )
    except subprocess.TimeoutExpired as error:
        raise BuildError(f"{request.library}: did not answer within {_TIMEOUT:.0f} s") from error
    ending = signal_name(-done.returncode) if done.returncode < 0 else f"exit code {done.returncode}"
    # Of a process that was killed the last line may be cut.
    lines = [line for line in done.stdout.split(b"\n") if line.endswith(b"}")]
    if not lines:
        said = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise BuildError(
            f"{request.library}: the process that loaded it ended ({': '.join([ending, *said])}); {INSTALL}"
        )
    loaded = msgspec.json.decode(lines[0], type=Loaded)
    if loaded.failed is not None:
        raise BuildError(f"{request.library}: cannot be loaded ({loaded.failed}); {INSTALL}")
    cells = []
    for line in lines[1:]:
        with suppress(msgspec.DecodeError):
            cells.append(msgspec.json.decode(line, type=EngineCell))
    return loaded, cells, ending if done.returncode else None
