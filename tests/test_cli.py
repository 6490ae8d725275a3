"""The command line as a user meets it: exit codes, one line per error, and never a traceback."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from detmatrix.scanner.cli.main import COMMANDS, cli
from tests.commands import Command
from tests.conftest import refused
from tests.large import write_shard
from tests.stand_in import StandIn

ROOT = Path(__file__).parent.parent

# Usage


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["scna"], "No such command 'scna' (see detmatrix --help)"),
        (["--nope"], "No such option '--nope' (see detmatrix --help)"),
        (["scan", "--nope"], "No such option '--nope'"),
        (["scan", "--runs"], "Option '--runs' requires an argument"),
        (["list", "--format", "xml"],
         "Invalid value for '--format': 'xml' is not one of 'table', 'json' (see detmatrix list --help)"),
        (["list", "Cnov2d"], "no op matches 'Cnov2d'; did you mean Conv2d or "),
        (["scan", "Cnov2d"], "no op matches 'Cnov2d'; did you mean Conv2d or "),
        (["scan", "cumsum", "Cnov2d"], "no op matches 'Cnov2d'; did you mean Conv2d or "),
        (["list", "zzzzzzzz"], "no op matches 'zzzzzzzz'; detmatrix list shows what there is"),
        (["list", "torch.cumsum:*:sideways"], "no op matches 'torch.cumsum:*:sideways'; "),
        (["list", ""], "no op matches ''; detmatrix list shows what there is"),
        (["list", "--modes", "put_"], "--modes covers all modes; leave the patterns and the other options"),
        (["scan", "--modes", "off,backward"],
         "Invalid value for '--modes': unknown mode 'backward'; did you mean backward_only? choose: off, on, "),
        (["scan", "--modes", "compile_on_cached"], "Invalid value for '--modes': unknown mode 'compile_on_cached'; did you"),
        (["scan", "--resume", "--force"], ("--resume keeps what the run file holds, --force throws it away; give "
         "one of them (see detmatrix scan --help)")),
    ],
)  # fmt: skip
def test_usage_errors_are_one_line(detmatrix: Command, arguments: list[str], expected: str) -> None:
    """What was not understood, and where to look or what was meant."""
    assert refused(detmatrix(*arguments)).startswith(expected)


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("--runs", "0", "0 is not in the range 1<=x<=1000000"),
        ("--runs", "10" * 20, f"{'10' * 20} is not in the range 1<=x<=1000000"),
        ("--runs", "1e3", "'1e3' is not a valid whole number"),
        ("--processes", "101", "101 is not in the range 1<=x<=100"),
        ("--timeout", "0", "0.0 is not in the range 0<x<=86400"),
        ("--timeout", "inf", "inf is not in the range 0<x<=86400"),
        ("--timeout", "nan", "'nan' is not a number"),
        ("--seed", "-1", "-1 is not in the range 0<=x<=9223372036854775807"),
        ("--seed", str(2**63), f"{2**63} is not in the range 0<=x<=9223372036854775807"),
        ("--device", "tpu", "'tpu' is not a device; give auto, cpu, cuda, xpu, mps, or one of them as cuda:N"),
        ("--device", "cuda:-1", "'cuda:-1' is not a device; give auto, cpu, cuda, xpu, mps, or one of them as cuda:N"),
        ("--device", "cpu:0", "'cpu:0' is not a device; give auto, cpu, cuda, xpu, mps, or one of them as cuda:N"),
        ("--device", "", "'' is not a device; give auto, cpu, cuda, xpu, mps, or one of them as cuda:N"),
    ],
)  # fmt: skip
def test_absurd_values_are_refused_before_anything_starts(
    detmatrix: Command, tmp_path: Path, option: str, value: str, expected: str
) -> None:
    """The option, the value and what it may be; no file is made."""
    text = refused(detmatrix("scan", option, value))

    assert text == f"Invalid value for '{option}': {expected} (see detmatrix scan --help)"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("device", ["cuda", "cuda:7"])
def test_cuda_without_cuda_names_the_torch_found(detmatrix: Command, tmp_path: Path, device: str) -> None:
    """Whoever asks for a GPU that torch does not see learns which torch it is; no file is left."""
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device here")
    built = f"(CUDA {torch.version.cuda})" if torch.version.cuda else "(built without CUDA)"

    text = refused(detmatrix("scan", "cumsum", "--device", device))

    assert text == (
        f"--device {device}: torch {torch.__version__} {built} sees no CUDA device here; use --device cpu"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("redirection", "code", "text"),
    [
        ("| head -1 | grep -q .; exit ${PIPESTATUS[0]}", 0, ""),
        ("| true; exit ${PIPESTATUS[0]}", 0, ""),
        (">&-", 0, ""),
        ("2>&-", 0, ""),
        (">/dev/full", 2, "detmatrix: standard output: No space left on device\n"),
    ],
)
def test_output_that_goes_nowhere_gives_no_traceback(
    tmp_path: Path, redirection: str, code: int, text: str
) -> None:
    """A reader that has seen enough, a closed stream and a full disk end a command quietly or in one line."""
    if "/dev/full" in redirection and not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    command = f"{shlex.quote(sys.executable)} -m detmatrix list --format json {redirection}"

    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path, check=False)

    assert (done.returncode, done.stderr) == (code, text)


# Each command as a process

RUN = ROOT / "reports" / "runs" / "torch-2.13.0-cpu.jsonl.gz"
ENGINES = ROOT / "reports" / "engines" / "cudnn-9.28.0.json.gz"
STANDS_IN = "an interpreter that needs no torch"
SHARD = "a shard of a plan"
# What each is called with, and a word of what it prints, or writes.
SMOKE: dict[str, tuple[tuple[object, ...], str]] = {
    "list": (("put_",), "torch.Tensor.put_"),
    "scan": (
        ("torch.Tensor.put_:overwrite", "--device", "cpu", "--runs", 2, "--processes", 1, "--no-cost"),
        "",
    ),
    "report": ((RUN, "--rows", "torch.Tensor.put_:*"), "| `torch.Tensor.put_` "),
    "merge": ((SHARD, "-o", "merged.jsonl.gz"), ""),
    "check": (
        (f"{ROOT / 'tests' / 'checked.py'}:constant", "--python", STANDS_IN, "--runs", 2),
        "no difference in 1 row",
    ),
    "env": ((), "torch.use_deterministic_algorithms"),
    "locate": ((ROOT / "tests" / "programs" / "planted.py",), "detmatrix_planted::add_count"),
    "explain": (("take", RUN), "torch.take:collisions:backward:float32"),
    "libraries": (("cuFFT",), "called by: cuda: torch.fft"),
    "repro": ((RUN, "torch.Tensor.put_:overwrite:forward:float32"), "import torch"),
    "docs": ((RUN,), "torch.Tensor.put_"),
    "coverage": ((RUN,), "overloads of ATen"),
    "cudnn": (("--read", ENGINES), "data gradient"),
    "compare": ((RUN, RUN), "same"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_runs_as_a_process(detmatrix_process: Command, tmp_path: Path, name: str) -> None:
    """Nothing that a command needs is there only because a test has loaded it."""
    asked, expected = SMOKE[name]
    made: dict[object, Callable[[], Path]] = {
        STANDS_IN: lambda: StandIn(tmp_path).python,
        SHARD: lambda: write_shard(tmp_path / "shard.jsonl", 100, 1, 1),
    }
    arguments = [made[one]() if one in made else one for one in asked]

    done = detmatrix_process(name, *arguments)

    # The program that is looked at has roots.
    assert done.returncode == (1 if name == "locate" else 0), done.stderr
    assert "Traceback" not in done.stderr
    assert expected in done.stdout


# Help


def test_version(detmatrix: Command) -> None:
    """The version is that of the checkout, or the installed one."""
    done = detmatrix("--version")

    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"detmatrix \d+\.\d+\.\d+\n", done.stdout)


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_names_every_command_and_exit_code(detmatrix: Command, arguments: list[str]) -> None:
    """Help is what a bare command shows too."""
    done = detmatrix(*arguments)

    assert (done.returncode, done.stderr) == (0, "")
    for name, (_, message) in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(message[:40])}", done.stdout, re.MULTILINE)
    text = " ".join(done.stdout.split())
    for code in ("0 done", "1 a check you asked for failed", "2 usage", "3 unreadable",
                 "4 the scan cannot be trusted", "130 interrupted"):  # fmt: skip
        assert code in text


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_explains_every_option(detmatrix: Command, name: str) -> None:
    """No option without a sentence."""
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]

    done = detmatrix(name, "--help")

    assert (done.returncode, done.stderr) == (0, "")
    shown = " ".join(done.stdout.split())
    assert options
    for option in options:
        assert option.help, option.name
        assert option.help.endswith((".", "]")), option.help
        for spelled in option.opts:
            assert spelled in shown
