"""A scan on a Ray cluster: a task for each interpreter, kind of GPU and shard, and one run file of the shards in the end.

Ray decides what runs where and when. A task that ended with its node is asked for once more, with what it sent until then,
from which ``scan --resume`` goes on.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Sequence
from typing import Any

from scanner.cases.settings import Plan
from scanner.cases.shards import ops_named
from scanner.cluster import task
from scanner.cluster.files import folder_for, shards_folder, shards_in
from scanner.cluster.nodes import LOCAL, connected, device_there, pools_there
from scanner.cluster.runs import Campaign, ClusterRun, finished_run, merged_runs
from scanner.cluster.shard import ClusterShard
from scanner.errors import (
    EXIT_INTERRUPTED,
    EXIT_RUN_FILE,
    EXIT_UNTRUSTED,
    EXIT_USAGE,
    DetmatrixError,
    UntrustedScanError,
    UsageError,
    signal_name,
)
from scanner.observations.merge import difference
from scanner.observations.records import MOST_SHARDS
from scanner.observations.runfile import Run, read_run
from scanner.observations.settings import SETTINGS
from scanner.observations.writer import refuse_packed
from scanner.run.progress import Progress

# So many tasks of a shard in a row may end with their nodes and bring nothing new.
_TRIES = 3
# Between looks at what has come; Ctrl-C is heard as often.
_WAIT_SECONDS = 1.0
# What the line of an error begins with.
_COMMAND = "detmatrix: "
# Ray sets it to the cores of a task where a node does not, and a scan on one thread sees no race.
_THREADS = "OMP_NUM_THREADS"


def scan_on_cluster(campaign: Campaign, progress: Progress) -> list[Run]:
    """Scan, and return what the run files then hold: one for each interpreter and kind of GPU.

    Raises:
        DetmatrixError: What was asked cannot be done, or not on a node; the shards that were observed until then stay.
    """
    plan = campaign.plan
    refuse_packed(plan.output)
    with (
        shards_folder(plan.output, resume=plan.resume, force=plan.force) as folder,
        contextlib.ExitStack() as ending,
    ):
        if not shards_in(folder) and (finished := finished_run(campaign)) is not None:
            return [finished]
        progress.doing(
            "starting Ray" if campaign.address == LOCAL else f"connecting to Ray at {campaign.address}"
        )
        ending.callback(progress.end)
        with connected(campaign.address) as ray:
            device = device_there(ray, plan.settings.device)
            pythons = max(1, len(campaign.pythons))
            most = campaign.shards or ops_named(plan, device) or MOST_SHARDS
            pools = pools_there(ray, device, pythons * most)
            runs = [
                ClusterRun(campaign, folder, place, pool, most) for place in range(pythons) for pool in pools
            ]
            _Fleet(ray, runs, words_of(plan, device), progress).observe()
        return [read_run(path) for path in merged_runs(campaign, runs, progress)]


def how_to_go_on(campaign: Campaign) -> str:
    """Say what an interrupted scan left, and the command that goes on with it."""
    plan = campaign.plan
    folder = folder_for(plan.output)
    if not folder.exists():
        return "nothing was observed yet, start again"
    pythons = [word for python in campaign.pythons for word in ("--python", python)]
    shards = [] if campaign.shards is None else ["--shards", str(campaign.shards)]
    words = words_of(plan, plan.settings.device)
    again = ["detmatrix", "scan", "--ray", campaign.address, "--resume", *pythons, *shards]
    return (
        f"{folder} holds what was observed, go on with: "
        f"{shlex.join([*again, '-o', str(plan.output), *words])}"
    )


def words_of(plan: Plan, device: str) -> list[str]:
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


class _Fleet:
    """The tasks that are going on."""

    def __init__(
        self, ray: Any, runs: Sequence[ClusterRun], words: Sequence[str], progress: Progress
    ) -> None:
        self._ray = ray
        self._runs = runs
        self._words = words
        self._progress = progress
        self._going: dict[Any, tuple[ClusterRun, ClusterShard]] = {}
        self._given_up: list[str] = []
        self._counting = False
        # A node is to find nothing of ours but the detmatrix that is installed there.
        ray.cloudpickle.register_pickle_by_value(task)
        self._task = ray.remote(max_retries=0, num_returns="streaming")(task.scan_shard)

    def observe(self) -> None:
        """Have all shards observed that are not yet complete.

        Raises:
            DetmatrixError: One cannot be observed, or was lost too often.
        """
        shards = [(run, shard) for run in self._runs for shard in run.shards]
        done = sum(_recall(run, shard) for run, shard in shards)
        try:
            for run, shard in shards:
                if not shard.complete:
                    self._begin(run, shard)
            self._count(done)
            if self._going:
                self._progress.doing(f"waiting for {self._runs[0].pool.awaited} to be free; see ray status")
            while self._going:
                for one in self._ray.wait([*self._going], timeout=_WAIT_SECONDS)[0]:
                    self._hear(one)
        finally:
            for one in self._going:
                self._ray.cancel(one)
        if self._given_up:
            raise UntrustedScanError(
                f"{self._given_up[0]} is not complete ({len(self._given_up)} such); see ray status and the logs of the node, "
                f"then go on with --resume"
            )

    def _begin(self, run: ClusterRun, shard: ClusterShard) -> None:
        words = [*("--python", shard.python) * (shard.python is not None), *self._words]
        going = self._task.options(**run.pool.options).remote(
            ["--resume", "--shard", shard.shard, *words],
            shard.files.name,
            shard.files.held(),
            {_THREADS: os.environ.get(_THREADS)},
        )
        self._going[going] = run, shard

    def _hear(self, going: Any) -> None:
        """Take in one of the things that a task has to tell.

        Raises:
            DetmatrixError: It cannot go on, and would not elsewhere.
        """
        run, shard = self._going[going]
        errors = self._ray.exceptions
        try:
            what, number, data = self._ray.get(next(going))
        except StopIteration:
            del self._going[going]
        except errors.RayTaskError as error:
            raise UntrustedScanError(f"{self._name(run, shard)}: {error.cause}") from error
        except errors.RayError as error:
            self._again(going, type(error).__name__)
        else:
            match what:
                case task.BEGAN:
                    shard.host = data.decode(errors="replace")
                    self._progress.doing(self._name(run, shard))
                case task.LINES:
                    self._take(run, shard, number, data)
                case task.ENDED if not shard.complete:
                    self._ended(going, number, data.decode(errors="replace"))

    def _take(self, run: ClusterRun, shard: ClusterShard, number: int, lines: bytes) -> None:
        """Keep lines of a shard, and count what they measure."""
        began = shard.header is None
        found = [*shard.read(number, lines)]
        if began:
            _check(run, shard)
        shard.files.append(number, lines)
        self._count()
        for one in found:
            if one.new:
                shard.fruitless = 0
            self._progress.at(one.row, f"{one.what}, {self._name(run, shard)}")
            if not one.planned:
                self._progress.further(1)
            if one.verdict is None:
                self._progress.timed()
            else:
                self._progress.saw(one.verdict)

    def _ended(self, going: Any, code: int, said: str) -> None:
        """Tell why a scan on a node ended before its shard was complete, or have it go on if it was stopped.

        Raises:
            DetmatrixError: It ended by itself.
        """
        run, shard = self._going[going]
        if code < 0 or code >= EXIT_INTERRUPTED:
            self._again(going, f"it was stopped ({signal_name(-code) if code < 0 else code})")
            return
        lines = [line.removeprefix(_COMMAND) for line in said.splitlines() if line.startswith(_COMMAND)]
        text = lines[-1] if lines else said.strip().rpartition("\n")[2] or f"ended with {code}"
        error = DetmatrixError(f"{self._name(run, shard)}: {text}")
        error.exit_code = code if code in {EXIT_USAGE, EXIT_RUN_FILE} else EXIT_UNTRUSTED
        raise error

    def _again(self, going: Any, why: str) -> None:
        """Have a shard go on whose task was lost, unless it was lost too often."""
        run, shard = self._going.pop(going)
        if shard.complete:
            return
        shard.fruitless += 1
        if shard.fruitless == _TRIES:
            self._given_up.append(f"{self._name(run, shard)} ({why})")
            self._progress.note(
                f"{self._given_up[-1]} was lost {_TRIES} times in a row before it measured anything new"
            )
            return
        self._progress.note(f"{self._name(run, shard)} was lost ({why}); it goes on where there is room")
        self._begin(run, shard)

    def _count(self, done: int = 0) -> None:
        """Tell how many measurements there will be, once it is known: shards that have not begun are like those that have."""
        shards = [shard for run in self._runs for shard in run.shards]
        known = [shard.planned for shard in shards if shard.header is not None]
        if not sum(known):
            return
        expected = sum(known) * len(shards) // len(known)
        if self._counting:
            self._progress.expect(expected)
        else:
            self._progress.begin(expected, done)
        self._counting = True

    def _name(self, run: ClusterRun, shard: ClusterShard) -> str:
        """Name a shard as progress and errors do."""
        several = len({one.number for one in self._runs}) > 1
        of = f" of {shard.python}" if several else ""
        return " on ".join(filter(None, (f"shard {shard.shard}{of}", run.pool.gpu, shard.host)))


def _recall(run: ClusterRun, shard: ClusterShard) -> int:
    """Read what there is of a shard already, and return how many measurements that is."""
    held = enumerate(shard.files.held(), start=1)
    done = sum(one.planned for number, lines in held for one in shard.read(number, lines))
    _check(run, shard)
    return done


def _check(run: ClusterRun, shard: ClusterShard) -> None:
    """Refuse a shard that is none of its run.

    Raises:
        UsageError: Says in what it differs.
    """
    if shard.header is None:
        return
    first = next(one for one in run.shards if one.header is not None)
    assert first.header is not None
    if (text := difference(first.header, shard.header)) is not None:
        raise UsageError(
            f"{shard.files.name}: is of another plan than {first.files.name}: {text}; all nodes must have the same"
        )
