"""Start a program under observation, wait for its end, and read what its process wrote."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import msgspec

from detmatrix.scanner.errors import RunFileError, UntrustedScanError, UsageError, signal_name
from detmatrix.scanner.gpu.process import LOST, GpuProcess, StandIns
from detmatrix.scanner.located import PLACES, Cause, Located, OpSite, Root
from detmatrix.scanner.observations.opening import UNDECODABLE
from detmatrix.scanner.programs.runs import RecordedRun, judge

_START = Path(__file__).parents[1] / "locate" / "start.py"
# Bytes that its process may write of what it found, and of the ops of a run.
_MOST_LOCATED, _MOST_RECORDED = 64 << 20, 4 << 30
# Executions of an op that its process may say there were.
_MOST_REPLAYS = 1_000_000
# How long the first rank waits for the others.
_RANKS_SECONDS = 600
# How ``start.py`` ends where there is no torch.
NO_TORCH = 86


@dataclass(frozen=True)
class Program:
    """What is to be run."""

    kind: Literal["script", "module", "function"]
    name: str  # a path, or a dotted name
    arguments: tuple[str, ...] = ()
    function: str | None = None
    calls: int = 1


@dataclass(frozen=True)
class ProgramSettings:
    """How it is run and observed; ``observation`` are fields of ``detmatrix.scanner.locate.mode.LocateSettings``."""

    python: str = sys.executable
    quiet: bool = False  # what it prints goes to standard error
    eager: bool = False  # nothing is compiled
    gpu: StandIns | None = None  # simulated
    observation: dict[str, Any] = field(default_factory=dict)


def program_of(words: tuple[str, ...], *, module: bool, calls: int | None) -> Program:
    """Return what the words of a command line name.

    Raises:
        UsageError: There is no such program.
    """
    name, *arguments = words
    path, _, function = name.rpartition(":")
    if not module and path and function.isidentifier() and not Path(name).exists():
        if not Path(path).is_file():
            raise UsageError(f"{path}: there is no such file; give FILE.py:FUNCTION")
        return Program("function", path, tuple(arguments), function, calls or 1)
    if calls is not None:
        raise UsageError(f"--calls: {name} is no function; give FILE.py:FUNCTION")
    if not module and not Path(name).exists():
        raise UsageError(f"{name}: there is no such file; give a script, -m MODULE, or FILE.py:FUNCTION")
    return Program("module" if module else "script", name, tuple(arguments))


def observe_program(program: Program, settings: ProgramSettings, runs: int = 1) -> Located:
    """Run a program, once, or several times to hold the runs against each other; return what was found.

    Raises:
        UsageError: The interpreter cannot be started.
        UntrustedScanError: A process ended before it could say what was found.
    """
    if shutil.which(settings.python) is None:
        raise UsageError(f"--python {settings.python}: there is no such interpreter")
    # A program may have left there what cannot be removed.
    with tempfile.TemporaryDirectory(prefix="detmatrix-locate-", ignore_cleanup_errors=True) as folder:
        if runs == 1:
            return _observed(program, settings, Path(folder))
        located = []
        recorded = []
        begin, stdin = _input_of_several()
        for number in range(runs):
            if begin is not None:
                os.lseek(0, begin, os.SEEK_SET)
            record = Path(folder, f"run-{number}.jsonl")
            located.append(_observed(program, settings, Path(folder), record, stdin))
            recorded.append(_record_of(program, record))
        ended = next((one.ended for one in located if one.ended is not None), None)
        asked = settings.observation.items()
        choices = {name: value for name, value in asked if name in {"ignored", "only_first"}}
        return judge(recorded, replace(located[0], ended=ended), **choices)


def of_all_ranks(located: Located) -> Located | None:
    """Join what the processes of a node found that torchrun started; ``None`` in all of them but the first.

    Each has a file in a folder of the user's own, whose name the processes of one start of torchrun share, and no other.

    Raises:
        UntrustedScanError: The folder is another user's, or a process does not tell.
    """
    rank, count = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    # It is in a folder of the rank, in one that torchrun makes anew.
    shared = hashlib.sha256(bytes(Path(os.environ["TORCHELASTIC_ERROR_FILE"]).parents[1])).hexdigest()[:32]
    folder = Path(tempfile.gettempdir(), f"detmatrix-ranks-{os.getuid()}-{shared}")
    folder.mkdir(mode=0o700, exist_ok=True)
    seen = folder.lstat()
    if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.getuid():
        raise UntrustedScanError(f"{folder}: is not a folder of yours, in which ranks tell what they found")
    mine = folder / f"{rank}.json"
    mine.with_suffix(".new").write_bytes(msgspec.json.encode(located))
    mine.with_suffix(".new").replace(mine)
    if rank:
        return None
    places = [folder / f"{one}.json" for one in range(count)]
    end = time.monotonic() + _RANKS_SECONDS
    while not all(map(Path.exists, places)):
        if time.monotonic() > end:
            raise UntrustedScanError(f"not all of {count} ranks told what they found in {_RANKS_SECONDS} s")
        time.sleep(0.1)
    found = [msgspec.json.decode(place.read_bytes(), type=Located) for place in places]
    shutil.rmtree(folder, ignore_errors=True)
    return joined(found)


def _input_of_several() -> tuple[int | None, int | None]:
    """Return where standard input begins if it is a file, and what several runs read: a file or a terminal, or else nothing.

    The first would leave nothing of a pipe.
    """
    try:
        return os.lseek(0, 0, os.SEEK_CUR), None
    except OSError:
        return None, None if os.isatty(0) else subprocess.DEVNULL


def _observed(
    program: Program,
    settings: ProgramSettings,
    folder: Path,
    record: Path | None = None,
    stdin: int | None = None,
) -> Located:
    """Run it once."""
    place = folder / f"{record.stem if record else 'run'}.json"
    gpu = GpuProcess(settings.gpu) if settings.gpu else None
    request = asdict(program) | {
        "settings": settings.observation | ({"record": str(record)} if record else {}),
        "located": str(place),
        "gpu": (str(settings.gpu.folder), *gpu.descriptors) if gpu and settings.gpu else None,
    }
    code, ending = 0, ""
    try:
        command = [settings.python, str(_START), json.dumps(request)]
        code = _run(command, settings, stdin, gpu.descriptors if gpu else ())
    finally:
        if gpu:
            for descriptor in gpu.descriptors:
                os.close(descriptor)
            ending = f"; the simulated GPU: {gpu.ending()}" if code == LOST else ""
            gpu.stop()
    if not os.path.lexists(place):
        if code == NO_TORCH:
            raise UntrustedScanError(f"{settings.python}: has no torch; install it there (pip install torch)")
        kept = settings.observation.get("record")
        known = f"what it recorded is in {kept}" if kept else "nothing is known of its ops"
        raise UntrustedScanError(f"{program.name}: {_ending(code)}{ending}; {known}")
    _check_written(program, place, _MOST_LOCATED)
    try:
        located = msgspec.json.decode(place.read_bytes(), type=Located)
    except (*UNDECODABLE, OSError) as error:
        raise UntrustedScanError(_unreadable(program, str(error))) from None
    if (
        not all(0 <= one.differing <= one.executions > 0 for one in located.sentinels)
        or not 0 <= located.replays <= _MOST_REPLAYS
    ):
        raise UntrustedScanError(_unreadable(program, "it counts what cannot be"))
    return replace(located, ended=located.ended or _ending(code)) if code < 0 else located


def _record_of(program: Program, record: Path) -> RecordedRun:
    """Read what a run wrote of its ops, once."""
    _check_written(program, record, _MOST_RECORDED)
    try:
        found = RecordedRun(record)
        record.unlink()
    except (RunFileError, OSError) as error:
        raise UntrustedScanError(_unreadable(program, str(error).replace(f"{record}, ", ""))) from None
    return found


def _check_written(program: Program, path: Path, most: int) -> None:
    """Refuse what would never end: the program, which has ended, may have put anything where its process was to write."""
    try:
        seen = path.lstat()
    except OSError as error:
        raise UntrustedScanError(_unreadable(program, error.strerror)) from None
    if not stat.S_ISREG(seen.st_mode) or seen.st_size > most:
        what = f"has {seen.st_size >> 20} MB" if stat.S_ISREG(seen.st_mode) else "is no file any more"
        raise UntrustedScanError(_unreadable(program, what))


def _unreadable(program: Program, why: str | None) -> str:
    return f"{program.name}: what its process wrote cannot be read ({why}); nothing is known of its ops"


def _run(
    command: list[str], settings: ProgramSettings, stdin: int | None, descriptors: tuple[int, ...] = ()
) -> int:
    """Run it with our standard streams; Ctrl-C is for the program, which shares our terminal."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return subprocess.run(
            command,
            env=_environment(settings),
            stdin=stdin,
            stdout=sys.stderr if settings.quiet else None,
            check=False,
            pass_fds=descriptors,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        ).returncode
    except OSError as error:
        raise UsageError(f"--python {settings.python}: cannot be started ({error.strerror})") from error
    finally:
        signal.signal(signal.SIGINT, before)


def _environment(settings: ProgramSettings) -> dict[str, str]:
    """Return the user's environment; on Linux OpenMP binds its threads, without which races on the CPU may never show."""
    bound = {"OMP_PROC_BIND": "true"} if sys.platform == "linux" and not PLACES & os.environ.keys() else {}
    eager = {"TORCHDYNAMO_DISABLE": "1"} if settings.eager else {}
    if settings.gpu is not None:  # more threads would take the cores from its interpreter
        bound = {"OMP_NUM_THREADS": "1"} if "OMP_NUM_THREADS" not in os.environ else {}
    return os.environ | bound | eager


def _ending(code: int) -> str:
    if code < 0:
        return f"its process was killed by {signal_name(-code)}"
    return f"its process ended with code {code} before the end of the program"


def joined(ranks: Sequence[Located]) -> Located:
    """Return what several ranks of a program found, each root with the ranks that found it."""
    roots: dict[tuple[OpSite, Cause], Root] = {}
    for rank, located in enumerate(ranks):
        for root in located.roots:
            known = roots.setdefault((root.site, root.cause), root)
            known.in_runs += (rank,)
            if known is not root:
                for name in ("calls", "differing_calls", "executions", "differing"):
                    setattr(known, name, getattr(known, name) + getattr(root, name))
                known.reached = max(known.reached, root.reached)
    counts = ("ops", "replayed", "launches", "thread_ops", "processes", "outside", "race_free")
    left_out = sum((Counter(one.left_out) for one in ranks), Counter[str]())
    return replace(
        ranks[0],
        **{name: sum(getattr(one, name) for one in ranks) for name in counts},
        ranks=len(ranks),
        bound=all(one.bound for one in ranks),
        replays=min(one.replays for one in ranks),
        left_out=dict(left_out),
        left_out_ops={
            reason: tuple(dict.fromkeys(op for one in ranks for op in one.left_out_ops.get(reason, ())))
            for reason in left_out
        },
        outside_site=next((one.outside_site for one in ranks if one.outside_site), None),
        compiled=tuple(dict.fromkeys(place for one in ranks for place in one.compiled)),
        sentinels=tuple(seen for one in ranks for seen in one.sentinels),
        roots=tuple(roots.values()),
        ended=next(
            (f"rank {rank}: {one.ended}" for rank, one in enumerate(ranks) if one.ended is not None), None
        ),
    )
