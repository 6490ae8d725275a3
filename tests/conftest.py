"""What tests share: the command line as a user starts it, a browser, and what they ask of run files."""

from __future__ import annotations

import json
import re
import subprocess
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from msgspec.structs import replace

from detmatrix.scanner.errors import RunFileError
from detmatrix.scanner.observations.runfile import Run, read_run
from tests.commands import Command, command_in, process_in
from tests.runs import write_run

# The same examples everywhere, however slow the machine is at the moment.
settings.register_profile(
    "tests", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tests")
LONGEST = ("faults", "opinfo", "resume", "workers", "readme")
DATA = Path(__file__).parent / "data"
RECORDED = Path(__file__).parents[1] / "reports" / "runs"
ADVICE = "give a file that scan wrote"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the modules that take longest, so that no process is left alone with one at the end."""
    ranks = {f"tests/test_{name}.py": rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(item.nodeid.partition("::")[0], len(ranks)))


@pytest.fixture(autouse=True, scope="session")
def _recorded_runs_are_read_once() -> Iterator[None]:
    """Keep recorded runs, which no test changes, for the commands that read them: reading takes most of their time."""
    kept: dict[Path, Run] = {}

    def read(path: str | Path) -> Run:
        place = Path(path).resolve()
        if place.parent != RECORDED:
            return read_run(path)
        if place not in kept:
            kept[place] = read_run(path)
        return replace(kept[place], path=str(path))

    with pytest.MonkeyPatch.context() as patch:
        for module in ("matrix.model", "explain"):
            patch.setattr(f"detmatrix.reports.{module}.read_run", read)
        yield


@pytest.fixture
def detmatrix(tmp_path: Path) -> Command:
    """Return a function that runs ``detmatrix`` in an empty folder, within this process."""
    return command_in(tmp_path)


@pytest.fixture
def detmatrix_process(tmp_path: Path) -> Command:
    """Return a function that starts ``detmatrix`` in an empty folder, as a user does."""
    return process_in(tmp_path)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Let nothing race in this process: what differs then differs by construction, or is a fault of ours."""
    import torch  # noqa: PLC0415 - most tests need none

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a run file that shows every finding and every verdict."""
    return write_run(tmp_path / "run.jsonl")


@pytest.fixture
def quiet_torch() -> Iterator[None]:
    """Leave torch its warnings about betas (CSR, complex32) and deprecations (quantized): the bits matter here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def lines(path: Path) -> list[dict[str, Any]]:
    """Return the records of a run file as plain objects."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def write_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> Path:
    """Write a run file that has these records, and return its path."""
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return path


def table(name: str, section: str) -> list[list[str]]:
    """Return a section of a table in ``tests/data``: the cells of each of its lines."""
    text = (DATA / name).read_text(encoding="utf-8")
    lines = text.partition(f"[{section}]\n")[2].partition("\n\n[")[0].splitlines()
    rows = [line.split(" | ") for line in lines if not line.startswith("#")]
    assert rows, f"{name} has no [{section}]"
    return rows


# What a scan says before it knows whether it can do what was asked.
PROGRESS = (
    *("check: loading", "check: starting torch", "scan: /", "scan: loading", "scan: starting torch"),
    *("scan: only PyTorch's databases have", "scan: preparing a simulated GPU"),
    "scan: torch.compile compiles a first function",
)


def one_line(text: str, progress: tuple[str, ...] = PROGRESS) -> str:
    """Return the only line of *text* beside *progress*, and fail if there are more: errors are one line each."""
    (line,) = (line for line in text.splitlines() if not line.startswith(progress))
    return line


def approved_lines(name: str, asked: str = r"\$ detmatrix (.*)") -> list[tuple[str, ...]]:
    """Return a table of ``tests/data``: the groups of each line that asks something, and the line below it."""
    text = (DATA / name).read_text(encoding="utf-8")
    found = re.findall(rf"^{asked}\n(.*)$", text, re.MULTILINE)
    assert 2 * len(found) == sum(not line.startswith("#") for line in text.splitlines() if line), name
    return found


def is_approved(told: str, approved: str) -> bool:
    """Tell whether a line is the approved one, in which … stands for anything."""
    begins, anything, ends = approved.partition("…")
    return told.startswith(begins) and told.endswith(ends) if anything else told == approved


def refusal(path: Path) -> str:
    """Return why a file is refused, without the path it starts with; exit code 3 in any case."""
    with pytest.raises(RunFileError) as error:
        read_run(path)
    assert error.value.exit_code == 3
    return str(error.value).removeprefix(str(path)).removeprefix(": ").removeprefix(", ")


def refused(
    done: subprocess.CompletedProcess[str], code: int = 2, progress: tuple[str, ...] = PROGRESS
) -> str:
    """Return the one line that a command which failed said, without the name it begins with."""
    assert (done.returncode, done.stdout) == (code, "")
    line = one_line(done.stderr, progress)
    assert line.startswith("detmatrix: ")
    return line.removeprefix("detmatrix: ")
