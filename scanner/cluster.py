"""A scan on a Ray cluster: a task for each interpreter, kind of GPU and shard, and one run file of the shards in the end.

Ray decides what runs where and when, and runs a task again whose node or process was lost: a shard is scanned whole or not at
all. Shards that are complete lie in a folder beside the run file until all are there.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import importlib.util
import os
import platform
import re
import secrets
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from detmatrix.scanner.cases.settings import Plan
from detmatrix.scanner.cases.shards import ops_named
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
from detmatrix.scanner.observations.records import MOST_SHARDS, Header
from detmatrix.scanner.observations.runfile import Run, read_run
from detmatrix.scanner.observations.settings import SETTINGS
from detmatrix.scanner.observations.writer import RunWriter, refuse_packed
from detmatrix.scanner.plurals import several
from detmatrix.scanner.run.progress import Progress
from detmatrix.scanner.run.resume import check_settings

# Addresses that are no HOST:PORT: Ray on this machine, for this scan alone; the cluster that this machine belongs to.
LOCAL, AUTO = "local", "auto"
ANSWER_SECONDS = 15.0

# Ray itself waits for two minutes, and is in the way of Ctrl-C meanwhile.
_PROBE = (
    "import sys, ray\n"
    "try: ray.init(sys.argv[1], logging_level='CRITICAL', log_to_driver=False)\n"
    "except Exception as error: print(' '.join(str(error).split())); sys.exit(1)"
)
# Of Ray on this machine: what it keeps are pieces of run files.
_STORE_BYTES = 1 << 28
_TYPE = "accelerator_type:"

# How often Ray runs a task again that was lost with its node or its process.
_RETRIES = 2
# Between looks at what has come; Ctrl-C is heard as often.
_WAIT_SECONDS = 1.0
# What the line of an error begins with, and how much of what a scan says is brought back.
_COMMAND, _LAST_WORDS = "detmatrix: ", 4096
# Ray sets it to the cores of a task where a node does not, and a scan on one thread sees no race.
_THREADS = "OMP_NUM_THREADS"


class NodePool(NamedTuple):
    """Nodes or GPUs that are alike, so that what is observed on them is one run."""

    gpu: str  # as Ray names it; empty for nodes, and for GPUs that it cannot name
    places: int  # how many shards it scans at once
    options: dict[str, Any]  # of a task that runs there

    @property
    def awaited(self) -> str:
        """What must be free before the first task begins."""
        return "a GPU" if "num_gpus" in self.options else several(self.places, "node")


class Campaign(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asked for.

    Attributes:
        plan: Of each scan, but for the interpreter.
        address: Of the cluster.
        pythons: As they are called on the nodes, in any folder; empty: the one that Ray has there.
        shards: ``None``: as many as there are nodes, GPUs or ops, or as the scan that goes on has.
    """

    plan: Plan
    address: str
    pythons: tuple[str, ...]
    shards: int | None


class ShardDone(NamedTuple):
    """How the scan of a shard ended on a node: its host, exit code, last words, and the run file."""

    host: str
    code: int
    said: bytes
    run: bytes


def scan_shard(words: Sequence[str], variables: dict[str, str | None]) -> tuple[str, int, bytes, bytes]:
    """Scan one shard, in a process of Ray's on a node, and return the fields of ``ShardDone``.

    Ray sends this function by value, so that a node finds nothing of ours but the detmatrix that is installed there: it uses the
    standard library alone. Whatever ends this process ends all that it started.

    Args:
        words: Of the command line behind ``scan``, but for the output.
        variables: Of the environment of the scan, where it is not that of the node; ``None`` is one that must not be set.

    Raises:
        InterruptedError: A signal ended the scan.
    """
    host = platform.node()
    installed = importlib.util.find_spec("detmatrix")
    if installed is None or installed.origin is None:
        return host, 2, b"detmatrix is not installed there; install it on each node: detmatrix[ray]", b""
    root = Path(installed.origin).parent
    guardian = root / "scanner" / "processes" / "guardian.py"
    with tempfile.TemporaryDirectory(prefix="detmatrix-shard-") as folder:
        run, said = Path(folder, "run.jsonl"), Path(folder, "said")
        with said.open("wb") as stderr:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-ISB",
                    str(guardian),
                    sys.executable,
                    "-m",
                    "detmatrix",
                    "scan",
                    "-o",
                    run.name,
                    *words,
                ],
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


class _ClusterRun:
    """The shards of one interpreter on one kind of nodes or GPUs, which make one run file."""

    def __init__(self, campaign: Campaign, folder: Path, number: int, pool: NodePool, most: int) -> None:
        """Name the files of the shards.

        Raises:
            UsageError: The folder holds shards of another number of them than is asked for.
        """
        self.python = campaign.pythons[number - 1] if campaign.pythons else None
        self.pool, self.number = pool, number
        self.header: Header | None = None
        named = _named(f"python-{number}", pool.gpu)
        there = _count_in(folder, named)
        count = campaign.shards or there or min(pool.places, most)
        if there not in {None, count}:
            raise UsageError(
                f"{folder}: holds shards of {there}; give --shards {there}, or start over with --force"
            )
        self.shards = {
            f"{one}/{count}": folder / f"{named}-{one}-of-{count}.jsonl" for one in range(1, count + 1)
        }

    def take(self, path: Path) -> Run:
        """Read the file of a shard that is complete.

        Raises:
            RunFileError: It is none of a run file.
            UsageError: It is none of this run.
        """
        try:
            run = read_run(path)
        except RunFileError as error:
            raise RunFileError(f"{error}; install the same detmatrix on all nodes") from error
        self.header = self.header or run.header
        if (text := difference(self.header, run.header)) is not None:
            raise UsageError(
                f"{path.name}: is of another plan than the shards before: {text}; all nodes must have the same"
            )
        return run


def scan_on_cluster(campaign: Campaign, progress: Progress) -> list[Run]:
    """Scan, and return what the run files then hold: one for each interpreter and kind of GPU.

    Raises:
        DetmatrixError: What was asked cannot be done, or not on a node; the shards that were complete by then stay.
    """
    plan = campaign.plan
    refuse_packed(plan.output)
    with _shards_folder(plan) as folder, contextlib.ExitStack() as ending:
        if not _shards_in(folder) and (finished := _finished_run(campaign)) is not None:
            return [finished]
        progress.doing(
            "starting Ray" if campaign.address == LOCAL else f"connecting to Ray at {campaign.address}"
        )
        ending.callback(progress.end)
        with _connected(campaign.address) as ray:
            device = _device_there(ray, plan.settings.device)
            pythons = range(1, max(1, len(campaign.pythons)) + 1)
            most = campaign.shards or ops_named(plan, device) or MOST_SHARDS
            pools = _pools_there(ray, device, len(pythons) * most)
            runs = [_ClusterRun(campaign, folder, number, pool, most) for number in pythons for pool in pools]
            _scan_shards(ray, runs, _words_of(plan, device), progress)
        return [read_run(path) for path in _merged(campaign, runs, progress)]


def how_to_go_on(campaign: Campaign) -> str:
    """Say what an interrupted scan left, and the command that goes on with it."""
    plan = campaign.plan
    folder = _folder_for(plan.output)
    if not folder.exists():
        return "no shard is complete yet, start again"
    pythons = [word for python in campaign.pythons for word in ("--python", python)]
    shards = [] if campaign.shards is None else ["--shards", str(campaign.shards)]
    words = _words_of(plan, plan.settings.device)
    again = ["detmatrix", "scan", "--ray", campaign.address, "--resume", *pythons, *shards]
    return f"{folder} holds the complete shards, go on with: {shlex.join([*again, '-o', str(plan.output), *words])}"


def _words_of(plan: Plan, device: str) -> list[str]:
    """Return the words of a command line that ask for the same scan on a node."""
    said = {name: getattr(plan.settings, name) for name in SETTINGS if name in plan.said}
    said["device"] = device
    # A task has a folder of its own.
    said["specs"] = tuple(os.path.abspath(path) for path in plan.settings.specs)  # noqa: PTH100 - links stay
    words = [
        word for name, value in said.items() if SETTINGS[name].option for word in SETTINGS[name].words(value)
    ]
    if plan.balance is not None:
        words += ["--balance", os.path.abspath(plan.balance)]  # noqa: PTH100
    return [*words, *["--"] * bool(plan.settings.patterns), *plan.settings.patterns]


def _scan_shards(ray: Any, runs: Sequence[_ClusterRun], words: Sequence[str], progress: Progress) -> None:
    """Have all shards scanned that are not there yet."""
    # A node is to find nothing of ours but the detmatrix that is installed there.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    remote = ray.remote(max_retries=_RETRIES, retry_exceptions=[InterruptedError])(scan_shard)
    going: dict[Any, tuple[_ClusterRun, str]] = {}
    lost: list[str] = []
    for run in runs:
        for shard, path in run.shards.items():
            if path.exists():
                run.take(path)
                continue
            asked = ["--shard", shard, *("--python", run.python) * (run.python is not None), *words]
            task = remote.options(**run.pool.options).remote(asked, {_THREADS: os.environ.get(_THREADS)})
            going[task] = run, shard
    total = sum(len(run.shards) for run in runs)
    try:
        if going:
            progress.doing(f"waiting for {runs[0].pool.awaited} to be free; see ray status")
        while going:
            for task in ray.wait([*going], timeout=_WAIT_SECONDS)[0]:
                run, shard = going.pop(task)
                name = _shard_name(runs, run, shard)
                done = _result(ray, task, name)
                if isinstance(done, str):
                    lost.append(f"{name} ({done})")
                    continue
                _keep(run, shard, name, done)
                complete = total - len(going) - len(lost)
                progress.note(f"{name} is complete: {complete} of {several(total, 'shard')}")
    finally:
        for task in going:
            ray.cancel(task)
    if lost:
        raise UntrustedScanError(
            f"{lost[0]} was lost {1 + _RETRIES} times ({len(lost)} such); see ray status and the logs of the node, then go on "
            f"with --resume"
        )


def _result(ray: Any, task: Any, name: str) -> ShardDone | str:
    """Return how a task ended, or why it was lost."""
    try:
        return ShardDone(*ray.get(task))
    except ray.exceptions.RayTaskError as error:
        if not isinstance(error.cause, InterruptedError):
            raise UntrustedScanError(f"{name}: {error.cause}") from error
        return str(error.cause)
    except ray.exceptions.RayError as error:
        return type(error).__name__


def _keep(run: _ClusterRun, shard: str, name: str, done: ShardDone) -> None:
    """Write down a shard that is complete."""
    path = run.shards[shard]
    beside = path.with_suffix(".part")
    beside.write_bytes(done.run)
    try:
        complete = bool(done.run) and run.take(beside).closing is not None
        if not complete:
            said = done.said.decode(errors="replace")
            lines = [line.removeprefix(_COMMAND) for line in said.splitlines() if line.startswith(_COMMAND)]
            text = lines[-1] if lines else said.strip().rpartition("\n")[2] or f"ended with {done.code}"
            error = DetmatrixError(f"{name} on {done.host}: {text}")
            error.exit_code = done.code if done.code in {EXIT_USAGE, EXIT_RUN_FILE} else EXIT_UNTRUSTED
            raise error
        beside.rename(path)
    finally:
        beside.unlink(missing_ok=True)


def _shard_name(runs: Sequence[_ClusterRun], run: _ClusterRun, shard: str) -> str:
    """Name a shard as progress and errors do."""
    of = f" of {run.python}" if len({one.number for one in runs}) > 1 else ""
    return " on ".join(filter(None, (f"shard {shard}{of}", run.pool.gpu)))


# ---- files ----

_SHARD_FILE = re.compile(r"(?:.+-)?[0-9]+-of-([0-9]+)\.jsonl")


def _folder_for(output: Path) -> Path:
    """Return where the shards of a run file are kept until it is written."""
    return output.with_suffix(".shards")


@contextlib.contextmanager
def _shards_folder(plan: Plan) -> Iterator[Path]:
    """Have a folder for the shards of a run file, and nobody else have it; it goes when it is empty."""
    folder = _folder_for(plan.output)
    try:
        folder.mkdir(exist_ok=True)
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise UsageError(
            f"{folder}: cannot be written ({error.strerror}); choose another place with -o"
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        there = _shards_in(folder)
        if there and not plan.resume and not plan.force:
            raise UsageError(
                f"{folder}: holds the shards of an unfinished scan; go on with --resume, or start over with --force"
            )
        for path in there if plan.force else ():
            path.unlink()
        yield folder
    except BlockingIOError:
        raise UsageError(
            f"{folder}: another scan is writing it; wait for it, or choose another place with -o"
        ) from None
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()
        os.close(lock)


def _shards_in(folder: Path) -> list[Path]:
    """Return the files of shards that a folder holds."""
    return [path for path in folder.iterdir() if _SHARD_FILE.fullmatch(path.name)]


def _count_in(folder: Path, run: str) -> int | None:
    """Return how many shards a run has of which a folder holds some; ``None`` if it holds none."""
    names = (path.name.removeprefix(f"{run}-") for path in folder.glob(f"{glob.escape(run)}-*"))
    return next((int(found[1]) for name in names if (found := _SHARD_FILE.fullmatch(name))), None)


def _finished_run(campaign: Campaign) -> Run | None:
    """Return the run to go on with if an earlier scan has finished it; those of several interpreters go by names not known yet."""
    plan = campaign.plan
    there = plan.output.exists() and plan.output.stat().st_size
    if not plan.resume or len(campaign.pythons) > 1 or not there:
        return None
    run = read_run(plan.output)
    if run.closing is None or missing_words(run.header, parts_of(run.header, run.closing)):
        return None
    check_settings(plan, run.header.settings)
    return run


def _merged(campaign: Campaign, runs: Sequence[_ClusterRun], progress: Progress) -> list[Path]:
    """Join the shards of each run into one run file, all before any has its name, and remove them."""
    plan, folder = campaign.plan, _folder_for(campaign.plan.output)
    found: dict[Path, tuple[RunWriter, Path]] = {}
    try:
        with contextlib.ExitStack() as ending:
            for run in runs:
                output = _output(campaign, runs, run)
                if output in found:
                    output = _beside(output, str(run.number))
                writer = ending.enter_context(RunWriter(output))
                merged, missing = ending.enter_context(merged_beside([*run.shards.values()], output))
                if missing:
                    raise UntrustedScanError(
                        f"{folder}: {missing}; go on with --resume, or start over with --force"
                    )
                found[output] = writer, merged
            for output, (writer, merged) in found.items():
                if output.stat().st_size and not plan.force:
                    progress.note(f"{output}: the earlier run is kept as {writer.set_aside().name}")
                writer.replace(merged)
    except OSError as error:
        raise UsageError(
            f"{folder}: cannot be merged ({error.strerror}); make room and go on with --resume"
        ) from error
    for path in (path for run in runs for path in run.shards.values()):
        path.unlink()
    return [*found]


def _output(campaign: Campaign, runs: Sequence[_ClusterRun], run: _ClusterRun) -> Path:
    """Return the run file of a run: it is named after what tells the runs apart."""
    assert run.header is not None
    named = [
        f"torch-{run.header.environment.torch}" * (len(campaign.pythons) > 1),
        run.pool.gpu * (len({one.pool.gpu for one in runs}) > 1),
    ]
    return _beside(campaign.plan.output, *named)


def _beside(output: Path, *parts: str) -> Path:
    return output.with_stem(_named(output.stem, *parts))


def _named(*parts: str) -> str:
    """Join parts of the name of a file; some come from nodes."""
    return "-".join(re.sub(r"[^\w.+-]", "_", part) for part in parts if part)


# ---- the cluster ----


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
    # Ray has its processes search the current folder of who starts it, where anything may lie.
    with tempfile.TemporaryDirectory() as empty:
        options: dict[str, Any] = {}
        if address == LOCAL:
            options = {"include_dashboard": False, "object_store_memory": _STORE_BYTES}
        else:
            _refuse_silent(address, empty)
        handler = signal.getsignal(signal.SIGTERM)
        try:
            with contextlib.chdir(empty):
                ray.init(address, logging_level="ERROR", log_to_driver=False, **options)
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


def _refuse_silent(address: str, folder: str) -> None:
    """Find out in a process of its own whether Ray answers."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE, address],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ANSWER_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"--ray {address}: no Ray answers there within {ANSWER_SECONDS:g} seconds; see ray status on a node of the cluster"
        ) from None
    if done.returncode:
        raise UsageError(f"--ray {address}: {done.stdout.strip() or 'no Ray answers there'}")


def _device_there(ray: Any, asked: str) -> str:
    """Return the device of the scan of each task: what was asked for, or what the cluster has."""
    if asked == "auto":
        return "cuda" if ray.cluster_resources().get("GPU") else "cpu"
    if ":" in asked:
        raise UsageError(
            f"--device {asked}: Ray chooses the GPU of each shard; give --device {asked.partition(':')[0]}"
        )
    return asked


def _pools_there(ray: Any, device: str, most: int) -> list[NodePool]:
    """Return the kinds of nodes or GPUs that a scan on *device* can have."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if device == "cpu":
        return [_nodes([int(node.get("CPU", 0)) for node in nodes], most)]
    gpus: dict[str, int] = {}
    for node in nodes:
        named = [name.removeprefix(_TYPE) for name in node if name.startswith(_TYPE)]
        if node.get("GPU"):
            gpu = named[0] if named else ""
            gpus[gpu] = gpus.get(gpu, 0) + int(node["GPU"])
    if len(gpus) > 1:
        gpus.pop("", None)  # which of the others they are cannot be told
    if not gpus:
        raise UsageError(
            f"--device {device}: no node of the Ray cluster has a GPU; give --device cpu, or see ray status for what it has"
        )
    # Never a share of a GPU: two scans on one would be load to one another.
    return [
        NodePool(gpu, count, {"num_gpus": 1, **({"accelerator_type": gpu} if gpu else {})})
        for gpu, count in sorted(gpus.items())
    ]


def _nodes(cores: Sequence[int], most: int) -> NodePool:
    """Return what has one task at a time on each node, beside nothing else of Ray's if nodes have equally many cores."""
    able = sorted((count for count in cores if count), reverse=True)[:most]
    if not able:
        raise UsageError("--ray: no node of the cluster has a CPU for tasks; see ray status for what it has")
    least = able[-1]
    group = importlib.import_module("ray.util.placement_group")
    strategies = importlib.import_module("ray.util.scheduling_strategies")
    # A bundle on each node, which one task fills. That of a node that dies moves to one that comes.
    bundles = group.placement_group([{"CPU": least}] * len(able), strategy="STRICT_SPREAD")
    strategy = strategies.PlacementGroupSchedulingStrategy(bundles)
    return NodePool("", len(able), {"num_cpus": least, "scheduling_strategy": strategy})
