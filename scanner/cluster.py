"""A scan on a Ray cluster: each shard is a task, and the run file is what they give, merged.

Ray decides what runs where and when, and runs a task again whose node or process was lost: a shard is scanned whole or not at
all. Shards that are complete lie in a folder beside the run file until all are there.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from detmatrix.scanner.cases.plan import Plan
from detmatrix.scanner.errors import (
    EXIT_RUN_FILE,
    EXIT_UNTRUSTED,
    EXIT_USAGE,
    DetmatrixError,
    RunFileError,
    UntrustedScanError,
    UsageError,
)
from detmatrix.scanner.observations.merge import difference, merged_beside
from detmatrix.scanner.observations.parts import missing_words, parts_of
from detmatrix.scanner.observations.records import Header
from detmatrix.scanner.observations.runfile import Run, read_run
from detmatrix.scanner.observations.settings import SETTINGS
from detmatrix.scanner.observations.writer import RunWriter, cannot_write
from detmatrix.scanner.plurals import several
from detmatrix.scanner.run.progress import Progress
from detmatrix.scanner.run.resume import check_settings

# Addresses that are no HOST:PORT: Ray on this machine, for this scan alone; the cluster that this machine belongs to.
LOCAL, AUTO = "local", "auto"
# Ray itself waits for two minutes, and is in the way of Ctrl-C meanwhile.
_ANSWER_SECONDS = 5.0
# Of Ray on this machine: what it keeps are pieces of run files.
_STORE_BYTES = 1 << 28
# How often Ray runs a task again that was lost with its node or its process.
_RETRIES = 2
# Between looks at what has come; Ctrl-C is heard as often.
_WAIT_SECONDS = 1.0
# What the line of an error begins with, and how much of what a scan says is brought back.
_COMMAND, _LAST_WORDS = "detmatrix: ", 4096
# Ray sets it to the cores of a task where a node does not, and a scan on one thread sees no race.
_THREADS = "OMP_NUM_THREADS"


def scan_shard(words: Sequence[str], variables: dict[str, str | None]) -> tuple[str, int, bytes, bytes]:
    """Scan one shard, in a process of Ray's on a node; return the host, the exit code, the last words and the run file.

    Ray sends this function by value, so that a node finds nothing of ours but the detmatrix that is installed there: it uses the
    standard library alone. Whatever ends this process ends all that it started, and a signal is raised as ``InterruptedError``. A
    variable that is ``None`` must not be set.
    """
    host = platform.node()
    installed = importlib.util.find_spec("detmatrix")
    if installed is None or installed.origin is None:
        return host, 2, b"detmatrix is not installed there; install it on each node: detmatrix[ray]", b""
    guardian = Path(installed.origin).parent / "scanner" / "processes" / "guardian.py"
    with tempfile.TemporaryDirectory(prefix="detmatrix-shard-") as folder:
        run, said = Path(folder, "run.jsonl"), Path(folder, "said")
        scan = [sys.executable, "-m", "detmatrix", "scan", "-o", run.name, *words]
        with said.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-ISB", str(guardian), *scan],
                cwd=folder,
                env={key: value for key, value in {**os.environ, **variables}.items() if value is not None},
                # The guardian ends, and all below it, when this pipe does.
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
            )
        with process:
            code = process.wait()
        if code < 0 or code >= 128:  # noqa: PLR2004 - what shells add a signal to
            raise InterruptedError(f"it was stopped by signal {-code if code < 0 else code - 128}")
        return host, code, said.read_bytes()[-_LAST_WORDS:], run.read_bytes() if run.exists() else b""


def scan_on_cluster(plan: Plan, address: str, shards: int | None, progress: Progress) -> Run:
    """Scan each shard of a plan as a task, and return what the run file then holds; complete shards stay, whatever fails."""
    # Opened first, for it is also the lock.
    with RunWriter(plan.output) as writer, contextlib.ExitStack() as ending:
        folder = ending.enter_context(_shards_folder(plan))
        there = _shards_in(folder)
        if not there and (finished := _finished_run(plan)) is not None:
            return finished
        progress.doing("starting Ray" if address == LOCAL else f"connecting to Ray at {address}")
        ending.callback(progress.end)
        with _connected(address) as ray:
            device = _device_there(ray, plan.settings.device)
            total = shards or (int(there[0].stem.rpartition("-")[2]) if there else 0)
            total, options = _places(ray, device, total)
            kept = _Shards(folder, total)
            if not {*there} <= {*kept.paths.values()}:
                raise UsageError(
                    f"{folder}: holds {len(there)} of other shards; give the number they were of, or --force"
                )
            _scan_shards(ray, kept, options, _words_of(plan, device), progress)
        _merge(plan, kept, writer, progress)
        return read_run(plan.output)


def how_to_go_on(plan: Plan, address: str, shards: int | None) -> str:
    """Say what an interrupted scan left, and the command that goes on with it."""
    folder = _folder_for(plan.output)
    if not folder.exists():
        return "no shard is complete yet, start again"
    words = [*([] if shards is None else ["--shards", str(shards)]), "-o", str(plan.output)]
    words += _words_of(plan, plan.settings.device)
    again = shlex.join(["detmatrix", "scan", "--ray", address, "--resume", *words])
    return f"{folder} holds the complete shards, go on with: {again}"


def _words_of(plan: Plan, device: str) -> list[str]:
    """Return the words of a command line that ask for the same scan on a node."""
    said = {name: getattr(plan.settings, name) for name in SETTINGS if name in plan.said}
    said["device"] = device
    # A task has a folder of its own.
    said["specs"] = tuple(os.path.abspath(path) for path in plan.settings.specs)  # noqa: PTH100 - links stay
    words = [
        word for name, value in said.items() if SETTINGS[name].option for word in SETTINGS[name].words(value)
    ]
    if plan.python != sys.executable:
        python = os.path.abspath(plan.python) if os.sep in plan.python else plan.python  # noqa: PTH100
        words += ["--python", python]
    return [*words, *["--"] * bool(plan.settings.patterns), *plan.settings.patterns]


class _Shards:
    """The files of the shards of one plan."""

    def __init__(self, folder: Path, total: int) -> None:
        self.paths = {f"{one}/{total}": folder / f"{one}-of-{total}.jsonl" for one in range(1, total + 1)}
        self._header: Header | None = None  # of the first

    def take(self, path: Path) -> Run:
        try:
            run = read_run(path)
        except RunFileError as error:
            raise RunFileError(f"{error}; install the same detmatrix on all nodes") from error
        self._header = self._header or run.header
        if (text := difference(self._header, run.header)) is not None:
            raise UsageError(
                f"{path.name}: is of another plan than the shards before: {text}; all nodes must have the same"
            )
        return run

    def keep(self, shard: str, done: tuple[str, int, bytes, bytes]) -> None:
        """Write down a shard that is complete."""
        host, code, said, data = done
        path = self.paths[shard]
        beside = path.with_suffix(".part")
        beside.write_bytes(data)
        try:
            if not data or self.take(beside).closing is None:
                lines = said.decode(errors="replace").strip().splitlines()
                ours = [line.removeprefix(_COMMAND) for line in lines if line.startswith(_COMMAND)]
                text = next(iter((ours or lines)[-1:]), f"ended with {code}")
                error = DetmatrixError(f"shard {shard} on {host}: {text}")
                error.exit_code = code if code in {EXIT_USAGE, EXIT_RUN_FILE} else EXIT_UNTRUSTED
                raise error
            beside.rename(path)
        finally:
            beside.unlink(missing_ok=True)


def _scan_shards(
    ray: Any, kept: _Shards, options: dict[str, Any], words: Sequence[str], progress: Progress
) -> None:
    """Have all shards scanned that are not there yet."""
    # A node is to find nothing of ours but the detmatrix that is installed there.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    remote = ray.remote(max_retries=_RETRIES, retry_exceptions=[InterruptedError], **options)(scan_shard)
    going: dict[Any, str] = {}
    lost: list[str] = []
    for shard, path in kept.paths.items():
        if path.exists():
            kept.take(path)
        else:
            asked = ["--shard", shard, *words]
            going[remote.remote(asked, {_THREADS: os.environ.get(_THREADS)})] = shard
    total = len(kept.paths)
    try:
        progress.doing("waiting for the nodes or a GPU to be free; see ray status")
        while going:
            for task in ray.wait([*going], timeout=_WAIT_SECONDS)[0]:
                shard = going.pop(task)
                try:
                    done = ray.get(task)
                except ray.exceptions.RayError as error:
                    # What the function raised by itself; anything else is the loss of a node or a process.
                    cause = getattr(error, "cause", None)
                    if cause is not None and not isinstance(cause, InterruptedError):
                        raise UntrustedScanError(f"shard {shard}: {cause}") from error
                    lost.append(f"shard {shard} ({cause or type(error).__name__})")
                    continue
                kept.keep(shard, done)
                complete = total - len(going) - len(lost)
                progress.note(f"shard {shard} is complete: {complete} of {several(total, 'shard')}")
    finally:
        for task in going:
            ray.cancel(task)
    if lost:
        raise UntrustedScanError(
            f"{lost[0]} was lost {1 + _RETRIES} times ({len(lost)} such); see ray status and the logs of the node, then go on "
            f"with --resume"
        )


def _folder_for(output: Path) -> Path:
    """Return where the shards of a run file are kept until it is written."""
    return output.with_suffix(".shards")


@contextlib.contextmanager
def _shards_folder(plan: Plan) -> Iterator[Path]:
    """Have a folder for the shards of a run file; it goes when it is empty."""
    folder = _folder_for(plan.output)
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise cannot_write(folder, error) from error
    try:
        there = _shards_in(folder)
        if there and not plan.resume and not plan.force:
            raise UsageError(
                f"{folder}: holds the shards of an unfinished scan; go on with --resume, or start over with --force"
            )
        for path in there if plan.force else ():
            path.unlink()
        yield folder
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _shards_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("[0-9]*-of-[0-9]*.jsonl"))


def _finished_run(plan: Plan) -> Run | None:
    """Return the run to go on with if an earlier scan has finished it."""
    if not plan.resume or not plan.output.stat().st_size:
        return None
    run = read_run(plan.output)
    if run.closing is None or missing_words(run.header, parts_of(run.header, run.closing)):
        return None
    check_settings(plan, run.header.settings)
    return run


def _merge(plan: Plan, kept: _Shards, writer: RunWriter, progress: Progress) -> None:
    try:
        with merged_beside([*kept.paths.values()], plan.output) as (merged, missing):
            if missing:
                raise UntrustedScanError(
                    f"{_folder_for(plan.output)}: {missing}; go on with --resume, or start over with --force"
                )
            if plan.output.stat().st_size and not plan.force:
                progress.note(f"{plan.output}: the earlier run is kept as {writer.set_aside().name}")
            writer.replace(merged)
    except OSError as error:
        raise UsageError(
            f"{plan.output}: cannot be merged ({error.strerror}); make room and go on with --resume"
        ) from error
    for path in kept.paths.values():
        path.unlink()


@contextlib.contextmanager
def _connected(address: str) -> Iterator[Any]:
    """Be a program of a Ray cluster, and yield ``ray``; where the address is that of this machine, start Ray and end it."""
    # Ray reads it when it is imported.
    for name, value in _variables(address).items():
        os.environ.setdefault(name, value)
    try:
        ray = importlib.import_module("ray")
    except ImportError:
        raise UsageError(
            "--ray: Ray is not installed; install it with: pip install 'detmatrix[ray]'"
        ) from None
    local = {"include_dashboard": False, "object_store_memory": _STORE_BYTES} if address == LOCAL else {}
    handler = signal.getsignal(signal.SIGTERM)
    # Ray has its processes search the current folder of who starts it, where anything may lie.
    with tempfile.TemporaryDirectory() as empty:
        try:
            if address not in {LOCAL, AUTO}:
                host, _, port = address.rpartition(":")
                socket.create_connection((host, int(port)), _ANSWER_SECONDS).close()
            with contextlib.chdir(empty):
                ray.init(address, logging_level="ERROR", log_to_driver=False, **local)
        except (OSError, OverflowError, RuntimeError) as error:
            said = str(error).strip().partition("\n")[0]
            raise UsageError(f"--ray {address}: no Ray answers there ({said}); see ray status") from error
        try:
            signal.signal(signal.SIGTERM, handler)  # Ray has one of its own
            yield ray
        finally:
            ray.shutdown()


def _variables(address: str) -> dict[str, str]:
    """Return the variables that Ray is to have, unless the user gave it others."""
    # It prints the logs of a node that died where the summary of a scan goes.
    quiet = {"RAY_DEDUP_LOGS_SKIP_REGEX": "."}
    if address != LOCAL:
        return quiet
    # Nobody else can have code run there, nothing is reported of it, and its processes have the priority of any other.
    return quiet | {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",
    }


def _device_there(ray: Any, asked: str) -> str:
    """Return the device of the scan of each task: what was asked for, or what the cluster has."""
    if asked == "auto":
        return "cuda" if ray.cluster_resources().get("GPU") else "cpu"
    if ":" in asked:
        raise UsageError(
            f"--device {asked}: Ray chooses the GPU of each shard; give --device {asked.partition(':')[0]}"
        )
    return asked


def _places(ray: Any, device: str, shards: int) -> tuple[int, dict[str, Any]]:
    """Return how many shards there are, where that was not said as many as run side by side, and what each asks Ray for."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if device != "cpu":
        gpus = int(sum(node.get("GPU", 0) for node in nodes))
        if not gpus:
            raise UsageError(
                f"--device {device}: no node of the Ray cluster has a GPU; give --device cpu, or see ray status for what it has"
            )
        # Never a share of a GPU: two scans on one would be load to one another.
        return shards or gpus, {"num_gpus": 1}
    cores = sorted((int(node["CPU"]) for node in nodes if node.get("CPU", 0) >= 1), reverse=True)
    able = cores[: shards or len(cores)]
    if not able:
        raise UsageError("--ray: no node of the cluster has a CPU for tasks; see ray status for what it has")
    # A bundle on each node, which one task fills: beside nothing else of Ray's if nodes have equally many cores. That of a node
    # that dies moves to one that comes.
    group = importlib.import_module("ray.util.placement_group")
    strategies = importlib.import_module("ray.util.scheduling_strategies")
    bundles = group.placement_group([{"CPU": able[-1]}] * len(able), strategy="STRICT_SPREAD")
    strategy = strategies.PlacementGroupSchedulingStrategy(bundles)
    return shards or len(able), {"num_cpus": able[-1], "scheduling_strategy": strategy}
