"""The run files of a scan on a cluster: which there are, the shards that each is made of, and what joins them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from scanner.cases.settings import Plan
from scanner.cluster.files import ShardFiles, count_in, folder_for
from scanner.cluster.nodes import NodePool
from scanner.cluster.shard import ClusterShard
from scanner.errors import UntrustedScanError, UsageError
from scanner.observations.merge import merged_beside
from scanner.observations.parts import missing_words, parts_of
from scanner.observations.runfile import Run, read_run
from scanner.observations.writer import RunWriter
from scanner.run.progress import Progress
from scanner.run.resume import check_settings


class Campaign(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asked for."""

    plan: Plan  # but for the interpreter
    address: str
    pythons: tuple[
        str, ...
    ]  # as they are called on the nodes, in any folder; empty: the one that Ray has there
    shards: int | None  # None: as many as there are nodes, GPUs or ops, or as the scan that goes on has


class ClusterRun:
    """The shards of one interpreter on one kind of nodes or GPUs, which make one run file."""

    def __init__(self, campaign: Campaign, folder: Path, place: int, pool: NodePool, most: int) -> None:
        """Name the shards, and their files in a folder.

        Args:
            campaign: What is asked for.
            folder: What it holds of them goes on.
            place: Of the interpreter among those that are asked for.
            pool: What each shard is scanned on.
            most: There is no op for more shards than that.

        Raises:
            UsageError: The folder holds shards of another number of them than is asked for.
        """
        python = campaign.pythons[place] if campaign.pythons else None
        self.pool = pool
        self.number = place + 1
        named = _named(f"python-{self.number}", pool.gpu)
        there = count_in(folder, named)
        count = campaign.shards or there or min(pool.places, most)
        if there not in {None, count}:
            raise UsageError(
                f"{folder}: holds shards of {there}; give --shards {there}, or start over with --force"
            )
        self.shards = [
            ClusterShard(ShardFiles(folder, named, number, count), python, number, count)
            for number in range(1, count + 1)
        ]


def finished_run(campaign: Campaign) -> Run | None:
    """Return the run to go on with if an earlier scan has finished it; those of several interpreters go by names not known yet.

    Raises:
        UsageError: It has other settings.
        RunFileError: What is there is damaged.
    """
    plan = campaign.plan
    if (
        not plan.resume
        or len(campaign.pythons) > 1
        or not (plan.output.exists() and plan.output.stat().st_size)
    ):
        return None
    run = read_run(plan.output)
    if run.closing is None or missing_words(run.header, parts_of(run.header, run.closing)):
        return None
    check_settings(plan, run.header.settings)
    return run


def merged_runs(campaign: Campaign, runs: Sequence[ClusterRun], progress: Progress) -> list[Path]:
    """Join the shards of each run into one run file, all before any has its name, and remove them.

    Raises:
        UntrustedScanError: Something is missing; the shards stay.
        RunFileError: A shard is damaged; they stay as well.
        UsageError: A run file cannot be written; likewise.
    """
    plan, folder = campaign.plan, folder_for(campaign.plan.output)
    found: dict[Path, tuple[RunWriter, Path]] = {}
    try:
        with contextlib.ExitStack() as ending:
            for run in runs:
                output = _output(campaign, runs, run)
                if output in found:
                    output = _beside(output, str(run.number))
                writer = ending.enter_context(RunWriter(output))
                paths = [path for shard in run.shards for path in shard.files.paths]
                merged, missing = ending.enter_context(merged_beside(paths, output))
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
    for path in (path for run in runs for shard in run.shards for path in shard.files.paths):
        path.unlink()
    return [*found]


def _output(campaign: Campaign, runs: Sequence[ClusterRun], run: ClusterRun) -> Path:
    """Return the run file of a run: it is named after what tells the runs apart."""
    header = run.shards[0].header
    assert header is not None
    named = [
        f"torch-{header.environment.torch}" * (len(campaign.pythons) > 1),
        run.pool.gpu * (len({one.pool.gpu for one in runs}) > 1),
    ]
    return _beside(campaign.plan.output, *named)


def _beside(output: Path, *parts: str) -> Path:
    return output.with_stem(_named(output.stem, *parts))


def _named(*parts: str) -> str:
    """Join parts of the name of a file; some come from nodes."""
    return "-".join(re.sub(r"[^\w.+-]", "_", part) for part in parts if part)
