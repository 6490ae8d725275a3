"""Worker processes: start one under a mode, ask it, and know how it ended.

Only names and numbers cross the boundary. A worker is started in a folder that holds links to the two
packages it needs, so that another interpreter finds those and nothing else of ours.

What runs in a worker may write into its pipe too, and a fork of it may answer twice. So every request carries a number
that nobody can guess and the reply must repeat, one line for one request; a worker that writes anything else is stopped.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypedDict, TypeVar

import msgspec

from detmatrix.opspecs.user import resolved
from detmatrix.scanner.accelerators import ACCELERATORS, SIMULATED, kind_of
from detmatrix.scanner.errors import UntrustedScanError, UsageError
from detmatrix.scanner.gpu.process import LOST, GpuProcess, StandIns, killed_by, last_printed
from detmatrix.scanner.modes import MODE_TABLE, turns
from detmatrix.scanner.observations.records import Mode

_PACKAGE = Path(__file__).absolute().parents[2]


class ImportSandbox(contextlib.ExitStack):
    """The folder workers start in: a link to our package, and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        folder = tempfile.TemporaryDirectory(prefix="detmatrix-worker-", ignore_cleanup_errors=True)
        self.path = Path(self.enter_context(folder))
        (self.path / _PACKAGE.name).symlink_to(_PACKAGE, target_is_directory=True)


# Importing torch takes seconds, and minutes from a cold network disk.
START_SECONDS = 300.0

# Setting another mode takes no time, but a worker may be stuck in what its last row has left behind.
_TURN_SECONDS = 60.0

# A worker that has closed its pipes gets so long to say by its exit code how it ended.
LAST_SECONDS = 5.0

# Bytes of a reply; the longest, the list of all overloads, has a quarter of a million.
_LONGEST_REPLY = 16 << 20
_NO_REPLY = "wrote something that is no reply into the reply pipe"
SENSELESS = "the worker's reply makes no sense"

# Of the interpreter of a worker; releases of torch from 2.0 on exist for it.
NEEDS_PYTHON = (3, 10)

_GUARDIAN = Path(__file__).with_name("guardian.py")
# Whether what an op puts into a session of its own is found and ended.
ENDS_ALL = sys.platform == "linux"


class WorkerEndedError(Exception):
    """A worker ended, or was stopped, perhaps for taking too long (``timed_out``), before it answered; the text says how."""

    def __init__(self, message: str, *, timed_out: bool = False) -> None:
        super().__init__(message)
        self.timed_out = timed_out


class _Device(TypedDict):
    kind: str
    name: str
    capability: str
    memory: int


class WorkerBuild(TypedDict):
    """What a worker says of its torch, and of what that sees of the machine."""

    torch: str
    torch_git: str | None
    cuda: str | None
    rocm: str | None
    cudnn: int | None
    tf32: list[str]
    threads: int
    python: str
    devices: list[_Device]
    docstring: str


class _Hello(msgspec.Struct):
    """The first reply of a worker: one of the two."""

    build: WorkerBuild | None = None
    failed: str | None = None


class WorkerProcess:
    """One worker process."""

    def __init__(self, of: WorkerSupervisor, mode: Mode) -> None:
        """Start it in a mode and wait for its hello; all else is as its supervisor has it."""
        python, sandbox, simulation = of.python, of.sandbox, of.simulation
        _refuse_missing(python)
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        # Removed with the worker: the next one of a mode that compiles does so anew.
        self._compiled = contextlib.ExitStack()
        requests, self._requests = os.pipe()
        self._replies, replies = os.pipe()
        alive, self._alive = os.pipe()
        command = [sys.executable, "-ISB", str(_GUARDIAN), python, "-m", "detmatrix.scanner.worker"]
        command += ["--mode", mode, "--requests", str(requests), "--replies", str(replies)]
        for path in of.spec_files:
            command += ["--specs", path]
        command += ["--as-simulated"] * of.as_simulated
        descriptors = [requests, replies]
        self._gpu = None
        caches = {}
        try:
            if MODE_TABLE[mode].compiles:
                folder = tempfile.TemporaryDirectory("-compiled", dir=sandbox, ignore_cleanup_errors=True)
                caches["TORCHINDUCTOR_CACHE_DIR"] = self._compiled.enter_context(folder)
            if simulation is not None:
                self._gpu = GpuProcess(simulation)
                command += ["--simulate", str(simulation.folder)]
                command += ["--gpu", ",".join(map(str, self._gpu.descriptors))]
                descriptors += self._gpu.descriptors
            self._process = subprocess.Popen(
                command,
                cwd=sandbox,
                env=worker_environment(mode, of.device, beside=of.beside, ordered=of.ordered)
                | packages_for(python)
                | of.order(mode)
                | caches,
                # Ends when this process does, and with it the guardian.
                stdin=alive,
                stdout=self._log,
                stderr=self._log,
                pass_fds=descriptors,
                # A session of its own: Ctrl-C reaches the manager alone.
                start_new_session=True,
            )
        except OSError as error:
            self._close()
            self._compiled.close()
            raise UntrustedScanError(f"{python}: no worker could be started ({error.strerror})") from error
        finally:
            for descriptor in (*descriptors, alive):
                os.close(descriptor)
        self._heard = 0
        self._stopped = False
        self._started = False
        try:
            self.build = self._hello(python)
        except BaseException:
            # Also Ctrl-C while it imports torch: nobody else knows of it yet.
            self.stop()
            raise
        self._started = True

    def _hello(self, python: str) -> WorkerBuild:
        """Return what a worker says of its torch; raise why it cannot work."""
        try:
            hello = msgspec.convert(self.ask({"do": "start"}, START_SECONDS), _Hello)
        except msgspec.ValidationError:
            hello = _Hello()
        except WorkerEndedError as error:
            _refuse_old(python)
            raise UntrustedScanError(f"{python}: no worker could be started ({error})") from error
        if hello.build is None or hello.failed is not None:
            raise _refusal(python, hello.failed or _NO_REPLY)
        return hello.build

    def ask(self, request: dict[str, Any], timeout: float) -> dict[str, Any]:
        """Send a request and return the reply; raise how the worker ended, or was stopped for taking longer than *timeout*."""
        if self._readable(0):
            # The end of it, or what it was not asked for: of an earlier row, or of a fork that lives on.
            if os.read(self._replies, 1):
                raise self._no_reply()
            raise WorkerEndedError(self._ending())
        # What earlier rows printed are no last words of this one. Not by seeking: the worker shares the position.
        self._heard = os.fstat(self._log.fileno()).st_size
        identity = secrets.token_hex(16)
        line = json.dumps({"id": identity, **request}).encode() + b"\n"
        try:
            os.write(self._requests, line)
        except BrokenPipeError:
            raise WorkerEndedError(self._ending()) from None
        try:
            reply = json.loads(self._receive(timeout))
        except (ValueError, RecursionError):
            reply = None
        if not isinstance(reply, dict) or reply.pop("id", None) != identity:
            raise self._no_reply()
        return reply

    def _readable(self, seconds: float) -> bool:
        """Tell whether there is something to read, or the end, waiting so long for it."""
        waiting = select.poll()
        waiting.register(self._replies, select.POLLIN)
        return bool(waiting.poll(seconds * 1000))

    def _no_reply(self) -> WorkerEndedError:
        """Stop a worker of which nobody knows what its replies are replies to, and return what to say of it."""
        self.stop()
        return WorkerEndedError(_NO_REPLY)

    def _receive(self, timeout: float) -> bytes:
        buffer = bytearray()
        deadline = time.monotonic() + timeout
        while not buffer.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0:
                self.stop()
                raise WorkerEndedError(f"took longer than {timeout:g} s and was stopped", timed_out=True)
            # A child of the op may hold the pipe open after the worker is gone, so look at the process too.
            ready = self._readable(min(left, 0.25))
            ended = self._process.poll() is not None
            if ready:
                data = os.read(self._replies, 1 << 16)
                buffer += data
                if len(buffer) > _LONGEST_REPLY or b"\n" in data[:-1]:
                    raise self._no_reply()
                if data:
                    continue
            if ready or ended:
                raise WorkerEndedError(self._ending())
        return bytes(buffer)

    def _ending(self) -> str:
        """Say how the process ended, with the last line it printed."""
        try:
            code = self._process.wait(timeout=LAST_SECONDS)
        except subprocess.TimeoutExpired:
            self.stop()
            return "closed its pipes and was stopped"
        printed = last_printed(self._log, self._heard)
        lost = self._gpu.ending() if self._gpu is not None and code == LOST else None
        self.stop()
        if lost is not None:
            return f"the simulated GPU ended: {lost}"
        if code >= 0:
            text = f"exited with code {code}" + (" in the middle of the case" if self._started else "")
        else:
            text = killed_by(-code)
        return text + printed

    def kill(self) -> None:
        """End the process, and leave the rest to whoever asks it."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    def stop(self) -> None:
        """End the process and everything it started; stopping twice is harmless."""
        if self._stopped:
            return
        self._stopped = True
        self._close()
        if ENDS_ALL:
            # A process that is stuck in a driver cannot be waited for.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=30)
        if self._process.returncode is None:
            # On macOS a group of zombies may not be signalled.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=30)
        self._compiled.close()

    def _close(self) -> None:
        os.close(self._alive)
        os.close(self._requests)
        os.close(self._replies)
        self._log.close()
        if self._gpu is not None:
            self._gpu.stop()


def _refusal(python: str, reason: str) -> Exception:
    """Return what to raise where a worker says why it cannot work."""
    if reason.startswith("ModuleNotFoundError: No module named 'torch'"):
        return UntrustedScanError(f"{python}: has no torch; install it there (pip install torch)")
    return UntrustedScanError(f"{python}: no worker could be started ({reason})")


def _refuse_missing(python: str) -> None:
    """Refuse an interpreter that cannot be executed."""
    if shutil.which(python) is not None:
        return
    if Path(python).is_dir():
        raise UntrustedScanError(
            f"{python}: is a folder; give the interpreter itself, such as {Path(python, 'bin', 'python')}"
        )
    why = os.strerror(errno.EACCES if Path(python).exists() else errno.ENOENT)
    raise UntrustedScanError(f"{python}: no worker could be started ({why})")


def _refuse_old(python: str) -> None:
    """Refuse an interpreter that is too old for a worker; one that does not tell its version is not judged here."""
    command = [python, "-c", "import sys; print('%d.%d.%d' % sys.version_info[:3])"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=30, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return
    version = re.fullmatch(r"(\d+)\.(\d+)\.\d+", done.stdout.strip())
    if done.returncode or version is None or tuple(map(int, version.groups())) >= NEEDS_PYTHON:
        return
    needed = ".".join(map(str, NEEDS_PYTHON))
    raise UntrustedScanError(
        f"{python}: is Python {version[0]}, and a worker needs {needed} or newer; give an interpreter that is, "
        f"with a torch for it"
    )


_Kind = TypeVar("_Kind")


@dataclass(eq=False)
class WorkerSupervisor:
    """Starts a worker when one is needed, and replaces it when it ended or may no longer be believed; at first none is started."""

    python: str
    sandbox: Path
    spec_files: tuple[str, ...]
    device: str  # as asked for, then as resolved
    simulation: StandIns | None = None
    as_simulated: bool = field(default=False, kw_only=True)
    beside: bool = field(default=False, kw_only=True)  # others, which work at the same time
    ordered: bool = field(default=True, kw_only=True)  # sets of strings, alike in every process
    started: int = field(default=0, init=False)  # workers so far; tells one from the next
    _begun: Counter[Mode] = field(default_factory=Counter, init=False)  # workers that began in each mode
    _worker: WorkerProcess | None = field(default=None, init=False)
    _mode: Mode | None = field(default=None, init=False)
    _modes: set[Mode] = field(default_factory=set, init=False)  # that the worker in service has lived under
    _used: bool = field(default=False, init=False)
    _killed: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        """Let a worker find what is named: it lives in another folder."""
        self.python = os.path.abspath(self.python) if os.sep in self.python else self.python  # noqa: PTH100 - links stay
        self.spec_files = tuple(map(resolved, self.spec_files))

    def another(self, *, beside: bool = False) -> WorkerSupervisor:
        """Return a supervisor like this one, with workers of its own, perhaps *beside* others that work at the same time."""
        return replace(self, beside=beside)

    def order(self, mode: Mode) -> dict[str, str]:
        """Return what orders the sets of strings of the next worker: otherwise than in the one before it, and alike in all modes.

        Or a function that goes by their order might differ in one mode alone, by chance.
        """
        self._begun[mode] += 1
        left = self.ordered or _HASH_SEED in os.environ
        return {} if left else {_HASH_SEED: str(self._begun[mode])}

    def start(self, mode: Mode) -> WorkerProcess:
        """Start a worker."""
        self._worker = WorkerProcess(self, mode)
        self._mode, self._modes = mode, {mode}
        self._used = False
        self.started += 1
        return self._worker

    def first(self, mode: Mode) -> WorkerProcess:
        """Start the worker that says which torch there is; where none starts, an interpreter that the user named is refused."""
        try:
            return self.start(mode)
        except UntrustedScanError as error:
            if self.python == sys.executable:
                raise
            raise UsageError(f"--python {error}") from error

    def renew(self, mode: Mode) -> None:
        """See to it that rows are asked next of a process that has executed nothing under this mode, nor what would tell there."""
        if self._used and (mode in self._modes or not all(turns(one, mode) for one in self._modes)):
            self.retire()

    def aged(self, mode: Mode) -> bool:
        """Tell whether the worker in service has lived under another mode than this one."""
        return self._worker is not None and not self._modes <= {mode}

    def _turn(self, mode: Mode) -> None:
        """Have the worker in service live under another mode, or stop it where the environment of that is another.

        It counts as another worker then, which has to answer the controls. Most of the time of a small scan goes into starts.
        """
        if self._worker is None or self._mode is None or self._mode == mode:
            return
        if MODE_TABLE[self._mode].variables == MODE_TABLE[mode].variables:
            with contextlib.suppress(WorkerEndedError):
                self._worker.ask({"do": "turn", "mode": mode}, _TURN_SECONDS)
                self._mode = mode
                self._modes.add(mode)
                self.started += 1
                return
        self.retire()

    def ask(self, mode: Mode, request: dict[str, Any], timeout: float) -> dict[str, Any]:
        """Send a request to the worker in service, or to a fresh one, and return its answer; without one it is retired."""
        self._turn(mode)
        worker = self._worker
        if worker is None and not self._killed:
            worker = self.start(mode)
        if worker is None or self._killed:  # perhaps while it started
            self.retire()
            raise WorkerEndedError("was stopped with the scan")
        self._used = True
        try:
            reply = worker.ask(request, timeout)
        except WorkerEndedError:
            self.retire()
            raise
        answer = reply.get("answer")
        if not isinstance(answer, dict):
            self.retire()
            raise WorkerEndedError(SENSELESS)
        if reply.get("tainted"):
            self.retire()
        return answer

    def ask_for(
        self,
        kind: type[_Kind],
        mode: Mode,
        request: dict[str, Any],
        timeout: float,
        place: Mapping[str, Any] | None = None,
    ) -> _Kind:
        """Send a request like ``ask``, and return the answer, with the fields of a *place*, as what it must be."""
        answer = self.ask(mode, request, timeout)
        try:
            return msgspec.convert({**(place or {}), **answer}, kind)
        except msgspec.ValidationError as error:
            self.retire()
            raise WorkerEndedError(f"{SENSELESS} ({error})") from error

    def serving(self, mode: Mode) -> int | None:
        """Return the number of the worker in service, counted from 1; ``None`` if what is asked next in a mode starts or turns one."""
        return self.started if self._worker is not None and self._mode == mode else None

    def kill(self) -> None:
        """End the worker in service while another thread waits for its answer, which gets none, nor of a later worker."""
        self._killed = True
        if (worker := self._worker) is not None:
            worker.kill()

    def retire(self) -> None:
        """Stop the worker in service, if there is one."""
        if self._worker is not None:
            self._worker.stop()
        self._worker = None
        self._mode, self._modes = None, set()


# --- The environment of a worker: what it inherits, what its mode asks for, and where its threads run


# What a worker inherits; everything else of the user's environment stays outside.
INHERITED = (
    "ATEN_CPU_CAPABILITY", "CUDA_DEVICE_ORDER", "CUDA_HOME", "CUDA_VISIBLE_DEVICES", "DYLD_LIBRARY_PATH",
    "GOMP_CPU_AFFINITY", "HIP_VISIBLE_DEVICES", "HOME", "KMP_AFFINITY", "LANG", "LC_ALL", "LD_LIBRARY_PATH",
    "MKL_CBWR", "MKL_NUM_THREADS", "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_TF32_OVERRIDE",
    "NVIDIA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "OMP_PLACES", "OMP_PROC_BIND", "ONEAPI_DEVICE_SELECTOR",
    "PATH", "PYTORCH_CUDA_ALLOC_CONF", "TMPDIR",
)  # fmt: skip
_PACKAGES = "PYTHONPATH"
# PyTorch's databases walk through sets of strings: which sample is the third must not differ from process to process.
_HASH_SEED = "PYTHONHASHSEED"
_SAME_ORDER = {_HASH_SEED: "0"}


def worker_environment(
    mode: Mode, device: str, *, beside: bool = False, ordered: bool = True
) -> dict[str, str]:
    """Return the whole environment of a worker: the allow-list, what its mode sets, and where threads run.

    Threads that spin while they wait would keep workers *beside* this one from working. Where sets of strings are not to be
    *ordered*, `WorkerSupervisor.order` says how they are.
    """
    inherited = {name: os.environ[name] for name in (*INHERITED, *_SAME_ORDER) if name in os.environ}
    waiting = {"OMP_WAIT_POLICY": "passive"} if beside else {}
    return (
        inherited
        | (_SAME_ORDER if ordered else {})
        | {**MODE_TABLE[mode].variables}
        | _pinning(inherited, device)
        | waiting
    )


def packages_for(python: str) -> dict[str, str]:
    """Return where an interpreter looks for packages that pip has put into a folder of its own (``--target``).

    That is this one's PYTHONPATH, and what lies there may not be made for another interpreter. Whatever packages lie there,
    a worker starts in a folder that has ours, which come first.
    """
    found = shutil.which(python)
    folders = [os.path.abspath(one) for one in os.environ.get(_PACKAGES, "").split(os.pathsep) if one]  # noqa: PTH100
    if found is None or os.path.abspath(found) != os.path.abspath(sys.executable) or not folders:  # noqa: PTH100
        return {}
    return {_PACKAGES: os.pathsep.join(folders)}


def _pinning(inherited: dict[str, str], device: str) -> dict[str, str]:
    """Bind each OpenMP thread to a core of its own on the CPU, unless the user has placed them; say how many there are.

    Left to themselves the threads of a fresh process may share a core for its whole life. They then never run at
    the same time, so that nothing races, and each parallel region waits for the scheduler. Beside a simulated GPU there is
    one: more would take the cores from its interpreter, most of all while they wait for the next parallel region.
    """
    if device == SIMULATED:
        return {"OMP_NUM_THREADS": "1"}
    if kind_of(device) in ACCELERATORS or sys.platform != "linux":
        return {}
    placed = {"GOMP_CPU_AFFINITY", "KMP_AFFINITY", "OMP_PLACES", "OMP_PROC_BIND"} & inherited.keys()
    return {} if placed else {"OMP_PROC_BIND": "true"}
