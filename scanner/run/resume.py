"""Going on with an unfinished scan: what is in its file, and whether what is asked for now can follow."""

from __future__ import annotations

from pathlib import Path

from detmatrix.scanner.cases.plan import Plan, Shard
from detmatrix.scanner.errors import RunFileError, UsageError
from detmatrix.scanner.observations.merge import difference, value_words
from detmatrix.scanner.observations.records import FORMAT, MODES, Environment, Header, Settings
from detmatrix.scanner.observations.runfile import Run, read_run
from detmatrix.scanner.observations.settings import SETTINGS


def begun(plan: Plan) -> Run | None:
    """Return the scan to go on with, or ``None`` to start anew; refuse a file that is neither to go on with nor to be kept."""
    path = plan.output
    if plan.force or path.stat().st_size == 0:
        return None
    if plan.resume:
        if _torn_header(path):
            return None
        run = read_run(path)
        _check_file(plan, run.header)
        if run.closing is None and run.header.format != FORMAT:
            raise not_resumable(plan, f"its format {_other(FORMAT, run.header.format)}")
        return run
    try:
        run = read_run(path)
    except RunFileError:
        raise UsageError(
            f"{path}: exists and is no run file that can be read; choose another place with -o, or overwrite it "
            f"with --force"
        ) from None
    if run.closing is not None:
        return None  # it is kept under another name
    total = len(run.header.planned) * run.header.settings.processes * len(MODES)
    raise UsageError(
        f"{path}: holds an unfinished scan ({observations_made(run)} of {total} observations); go on with --resume, or start over "
        f"with --force"
    )


def observations_made(run: Run) -> int:
    """Return how many observations there are that every scan makes: which rows need more is not known before."""
    processes = run.header.settings.processes
    return sum(one.mode in MODES and one.process < processes for one in run.observations)


# Of the environment what a GPU's bits do not depend on.
_BESIDE_A_GPU = {"cpu", "cpu_model", "cores", "threads", "affinity", "os"}


def check_header(plan: Plan, then: Header, now: Header) -> None:
    """Refuse to add to a scan what another plan would add, or another machine: of a GPU the machine around it may be another."""
    if (text := difference(then, now)) is not None:
        raise not_resumable(plan, text)
    on_gpu = now.environment.gpu is not None and now.environment.simulated is None
    for name in Environment.__struct_fields__:
        here, there = getattr(now.environment, name), getattr(then.environment, name)
        # Files that an earlier release began know no model.
        skipped = name in {"load", "triton"} or (name == "cpu_model" and there is None)
        if here != there and not skipped and not (on_gpu and name in _BESIDE_A_GPU):
            raise not_resumable(plan, f"the {name} here {_other(here, there)}")


def _check_file(plan: Plan, header: Header) -> None:
    """Refuse to go on in a merged file, or with another shard or other settings."""
    if header.parts:
        raise UsageError(f"{plan.output}: is a merged file; go on with the files that it was made of")
    shard = Shard(header.shard, header.shards)
    if plan.shard is not None and plan.shard != shard:
        raise not_resumable(plan, f"--shard {_other(str(plan.shard), str(shard))}")
    check_settings(plan, header.settings)


def check_settings(plan: Plan, settings: Settings) -> None:
    """Refuse other settings than those of a scan; those not given are not asked for."""
    for name, setting in SETTINGS.items():
        now, then = getattr(plan.settings, name), getattr(settings, name)
        if name in plan.said and not setting.resumes(now, then):
            option = setting.option or f"the list of {setting.label}"
            raise not_resumable(plan, f"{option} {_other(now, then)}")


def not_resumable(plan: Plan, text: str) -> UsageError:
    """Return the one line said of a scan that cannot go on here."""
    return UsageError(
        f"{plan.output}: cannot be resumed, {text}; start over with --force, or choose another place with -o"
    )


def _other(now: object, then: object) -> str:
    return f"is not the one it began with ({value_words(now)}, it has {value_words(then)})"


def _torn_header(path: Path) -> bool:
    """Tell whether a scan was killed while it wrote its very first line."""
    data = path.read_bytes()
    return b"\n" not in data and data.startswith(b'{"kind":"header"'[: len(data)])
