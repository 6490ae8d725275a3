"""The process that executes the kernels of one worker: its memory, its socket, and how both end together."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PathDistribution
from pathlib import Path
from typing import IO

from detmatrix.scanner.errors import UsageError, signal_name
from detmatrix.scanner.gpu.build import built
from detmatrix.scanner.gpu.device import GpuTable, device
from detmatrix.scanner.gpu.isa import ARCHITECTURES
from detmatrix.scanner.gpu.standins import sources

# What the runtime of a worker exits with whose interpreter is gone.
LOST = 70
_LAST_SECONDS = 5.0
# Bytes of its own that the interpreter may have; the memory of the device does not count among them.
_MOST_BYTES = 8 << 30
_ROOT = str(Path(__file__).parents[3])
_GUARDIAN = str(Path(__file__).parents[1] / "processes" / "guardian.py")
_CHILD = f"""import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_DATA, ({_MOST_BYTES}, {_MOST_BYTES}))
sys.path.insert(0, sys.argv.pop(1))
runpy.run_module("detmatrix.scanner.gpu", run_name="__main__", alter_sys=True)"""
_FIND_TORCH = (
    "import importlib.util as u; s = u.find_spec('torch'); print(*s.submodule_search_locations if s else '')"
)


@dataclass(frozen=True)
class StandIns:
    """What the workers of a simulated scan have in place of a GPU."""

    of: GpuTable  # the device
    folder: Path  # of the stand-ins for NVIDIA's libraries, made for the build that is scanned


def prepare(
    python: str, architecture: str, environment: Mapping[str, str] | None = None, *, multiprocessors: int = 0
) -> StandIns:
    """Build what a simulation of the torch of an interpreter needs, unless an earlier scan has; for workers of an environment.

    Raises:
        UsageError: There is no compiler, no build of torch for CUDA 13, or no Linux.
        DeviceError: No device of that architecture is known.
    """
    if sys.platform != "linux":
        raise UsageError(
            "a GPU can be simulated on Linux alone, for which there are builds of torch with CUDA"
        )
    if architecture not in ARCHITECTURES:
        raise UsageError(f"--simulate {architecture}: cannot be simulated; {', '.join(ARCHITECTURES)} can")
    of = device(int(architecture.removeprefix("sm_")), multiprocessors)
    done = subprocess.run(
        [python, "-c", _FIND_TORCH], capture_output=True, text=True, cwd="/", env=environment, check=False
    )
    torch = Path(done.stdout.strip() or "/nowhere")
    if done.returncode or not (torch / "lib").is_dir():
        raise UsageError(f"{python}: has no torch whose libraries could be read; install one for CUDA there")
    versions = _versions(torch)
    # Their packages are those of an extra.
    from detmatrix.scanner.gpu.cubin import architectures  # noqa: PLC0415
    from detmatrix.scanner.gpu.engine import compiled  # noqa: PLC0415
    from detmatrix.scanner.gpu.sass import disassembler  # noqa: PLC0415

    has = architectures(torch / "lib" / "libtorch_cuda.so")
    if architecture not in has:
        raise UsageError(f"{torch}: has no code for {architecture}; it is built for {', '.join(sorted(has))}")
    # What a row would fail of is told before the first one: a compiler or a disassembler that is not there.
    disassembler()
    compiled()
    files, libraries = sources(torch / "lib", of, versions)
    return StandIns(of, built(architecture, files, libraries))


def _versions(torch: Path) -> dict[str, int]:
    """Return the numbers of the libraries that a build was made for, from its version and what it requires."""
    text = (torch / "version.py").read_text(encoding="utf-8")
    cuda = re.search(r"^cuda\b.*'(\d+)\.(\d+)", text, re.MULTILINE)
    if cuda is None or cuda[1] != "13":
        raise UsageError(
            f"{torch}: is no build of torch for CUDA 13, the only one whose GPU can be simulated"
        )
    found = {"RUNTIME": 1000 * int(cuda[1]) + 10 * int(cuda[2]), "CUDNN": 90000, "NCCL": 20000}
    for folder in torch.parent.glob("torch-*.dist-info"):
        for line in PathDistribution(folder).requires or ():
            if pinned := re.match(r"nvidia-(cudnn|nccl)-cu13==(\d+)\.(\d+)\.(\d+)", line):
                found[pinned[1].upper()] = 10000 * int(pinned[2]) + 100 * int(pinned[3]) + int(pinned[4])
    return found


def killed_by(signal_number: int) -> str:
    """Say which signal ended a process."""
    memory = " (out of memory?)" if signal_number == signal.SIGKILL else ""
    return f"killed by {signal_name(signal_number)}{memory}"


def last_printed(log: IO[bytes], since: int = 0) -> str:
    """Quote the last line that a process has printed behind a place of its log; nothing if there is none."""
    log.seek(max(since, log.seek(0, os.SEEK_END) - 4096))
    lines = log.read().decode(errors="replace").strip().splitlines()
    return f"; last printed: {lines[-1][:300]}" if lines and lines[-1] else ""


class GpuProcess:
    """The interpreter process of one worker; it ends when the worker does, or this process."""

    def __init__(self, simulation: StandIns) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        ours, theirs = socket.socketpair()
        memory = os.memfd_create("simulated-gpu", os.MFD_CLOEXEC)
        os.ftruncate(memory, simulation.of.memory)
        # Of the socket and of the memory, for the worker. Who starts it closes them here, so that the end of either process is
        # seen by the other.
        self.descriptors = (theirs.detach(), memory)
        alive, self._alive = os.pipe()
        command = [sys.executable, "-ISB", _GUARDIAN, sys.executable, "-c", _CHILD, _ROOT]
        command += ["--socket", str(ours.fileno()), "--memory", str(memory)]
        command += ["--arch", f"sm_{simulation.of.architecture}"]
        command += ["--multiprocessors", str(simulation.of["MultiProcessorCount"])]
        self._process = subprocess.Popen(
            command,
            stdin=alive,
            stdout=self._log,
            stderr=self._log,
            pass_fds=(ours.fileno(), memory),
            start_new_session=True,
        )
        os.close(alive)
        ours.close()

    def ending(self) -> str:
        """Say how it ended, with the last line it printed."""
        try:
            code = self._process.wait(timeout=_LAST_SECONDS)
        except subprocess.TimeoutExpired:
            return "closed its socket"
        return (f"exit code {code}" if code >= 0 else killed_by(-code)) + last_printed(self._log)

    def stop(self) -> None:
        """End it, whatever it does."""
        os.close(self._alive)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=30)
        self._log.close()
