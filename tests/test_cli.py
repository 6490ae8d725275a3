"""The command line as a user meets it: exit codes, one line per error, and never a traceback."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
import pytest

from scanner.cli import COMMANDS, cli
from scanner.runfile import read_run
from tests.conftest import Command, command_in, lines, one_line

SPECS = Path(__file__).with_name("quick.py")
OPTIONS = ("quick.cumsum", "--specs", SPECS, "--device", "cpu", "--runs", 2, "--processes", 1)


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Scan a case in both modes, and return the run file."""
    folder = tmp_path_factory.mktemp("complete")
    done = command_in(folder)("scan", *OPTIONS, "-o", "run.jsonl")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    return (folder / "run.jsonl").read_bytes()


@pytest.fixture
def unfinished(tmp_path: Path, complete: bytes) -> Path:
    """Return a scan that was cut short before its last observation."""
    path = tmp_path / "run.jsonl"
    written = complete.splitlines(keepends=True)
    last = max(place for place, line in enumerate(written) if line.startswith(b'{"kind":"observation"'))
    path.write_bytes(b"".join(written[:last]))
    return path


def _refused(done: subprocess.CompletedProcess[str], code: int = 2) -> str:
    """Return the one line that a command which failed said, without the name it begins with."""
    assert (done.returncode, done.stdout) == (code, "")
    line = one_line(done.stderr)
    assert line.startswith("detmatrix: ")
    return line.removeprefix("detmatrix: ")


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
        (["list", "Conv2D"], "no op matches 'Conv2D'; did you mean Conv2d or "),
        (["scan", "Conv2D"], "no op matches 'Conv2D'; did you mean Conv2d or "),
        (["scan", "cumsum", "Conv2D"], "no op matches 'Conv2D'; did you mean Conv2d or "),
        (["list", "zzzzzzzz"], "no op matches 'zzzzzzzz'; detmatrix list shows what there is"),
        (["list", "torch.cumsum:*:sideways"], "no op matches 'torch.cumsum:*:sideways'; "),
        (["list", ""], "no op matches ''; detmatrix list shows what there is"),
        (["scan", "--resume", "--force"], ("--resume keeps what the run file holds, --force throws it away; give "
         "one of them (see detmatrix scan --help)")),
    ],
)  # fmt: skip
def test_usage_errors_are_one_line(detmatrix: Command, arguments: list[str], expected: str) -> None:
    """What was not understood, and where to look or what was meant."""
    assert _refused(detmatrix(*arguments)).startswith(expected)


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("--runs", "0", "0 is not in the range 1<=x<=1000000"),
        ("--runs", "-5", "-5 is not in the range 1<=x<=1000000"),
        ("--runs", "10" * 20, f"{'10' * 20} is not in the range 1<=x<=1000000"),
        ("--runs", "1e3", "'1e3' is not a valid integer range"),
        ("--runs", "", "'' is not a valid integer range"),
        ("--processes", "0", "0 is not in the range 1<=x<=100"),
        ("--processes", "101", "101 is not in the range 1<=x<=100"),
        ("--timeout", "0", "0.0 is not in the range 0<x<=86400"),
        ("--timeout", "-1", "-1.0 is not in the range 0<x<=86400"),
        ("--timeout", "1e9", "1000000000.0 is not in the range 0<x<=86400"),
        ("--timeout", "inf", "inf is not in the range 0<x<=86400"),
        ("--timeout", "nan", "'nan' is not a number"),
        ("--timeout", "soon", "'soon' is not a valid float range"),
        ("--seed", "-1", "-1 is not in the range 0<=x<=9223372036854775807"),
        ("--seed", str(2**63), f"{2**63} is not in the range 0<=x<=9223372036854775807"),
        ("--device", "tpu", "'tpu' is not a device; give auto, cpu, cuda or cuda:N"),
        ("--device", "cuda:-1", "'cuda:-1' is not a device; give auto, cpu, cuda or cuda:N"),
        ("--device", "cuda:", "'cuda:' is not a device; give auto, cpu, cuda or cuda:N"),
        ("--device", "cuda:1:2", "'cuda:1:2' is not a device; give auto, cpu, cuda or cuda:N"),
        ("--device", "cpu:0", "'cpu:0' is not a device; give auto, cpu, cuda or cuda:N"),
        ("--device", "", "'' is not a device; give auto, cpu, cuda or cuda:N"),
    ],
)  # fmt: skip
def test_absurd_values_are_refused_before_anything_starts(
    detmatrix: Command, tmp_path: Path, option: str, value: str, expected: str
) -> None:
    """The option, the value and what it may be; no file is made."""
    told = _refused(detmatrix("scan", option, value))

    assert told == f"Invalid value for '{option}': {expected} (see detmatrix scan --help)"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("device", ["cuda", "cuda:7"])
def test_cuda_without_cuda_names_the_torch_found(detmatrix: Command, tmp_path: Path, device: str) -> None:
    """Whoever asks for a GPU that torch does not see learns which torch it is; no file is left."""
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device here")
    built = f"(CUDA {torch.version.cuda})" if torch.version.cuda else "(built without CUDA)"

    told = _refused(detmatrix("scan", "cumsum", "--device", device))

    assert told == (
        f"--device {device}: torch {torch.__version__} {built} sees no CUDA device here; use --device cpu"
    )
    assert list(tmp_path.iterdir()) == []


# Where the run file goes


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("none/run.jsonl", ("none/run.jsonl: cannot be written (No such file or directory); choose another place "
         "with -o")),
        ("file/run.jsonl", "file/run.jsonl: cannot be written (Not a directory); choose another place with -o"),
        ("folder", "Invalid value for '-o' / '--output': File 'folder' is a directory (see detmatrix scan --help)"),
        ("/proc/run.jsonl", ("/proc/run.jsonl: cannot be written (No such file or directory); choose another place "
         "with -o")),
        ("x" * 300, "x" * 300 + ": cannot be written (File name too long); choose another place with -o"),
        ("run.jsonl.gz", ("run.jsonl.gz: a scan writes plain run files; choose a name without .gz, compress it "
         "later")),
        ("file", ("file: exists and is no run file that can be read; choose another place with -o, or overwrite it "
         "with --force")),
    ],
)  # fmt: skip
def test_output_that_cannot_be_is_refused(
    detmatrix: Command, tmp_path: Path, output: str, expected: str
) -> None:
    """A folder that is missing, a place that cannot be written, a foreign file in the way."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("precious")

    assert _refused(detmatrix("scan", "cumsum", "-o", output)) == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]
    assert (tmp_path / "file").read_text() == "precious"


def test_complete_run_is_not_overwritten_unasked(detmatrix: Command, tmp_path: Path, complete: bytes) -> None:
    """Only --force throws a run away."""
    path = tmp_path / "run.jsonl"
    path.write_bytes(complete)

    told = _refused(detmatrix("scan", *OPTIONS, "-o", "run.jsonl"))

    assert told == (
        "run.jsonl: holds a complete run; choose another place with -o, or overwrite it with --force"
    )
    assert path.read_bytes() == complete
    done = detmatrix("scan", *OPTIONS, "--seed", 1, "-o", "run.jsonl", "--force")
    assert done.returncode == 0, done.stderr
    assert read_run(path).header.settings.seed == 1


def test_unfinished_run_asks_what_to_do(detmatrix: Command, unfinished: Path) -> None:
    """It is neither overwritten nor gone on with unasked."""
    before = unfinished.read_bytes()

    told = _refused(detmatrix("scan", *OPTIONS, "-o", "run.jsonl"))

    assert told == (
        "run.jsonl: holds an unfinished scan (7 of 8 observations); go on with --resume, or start over with --force"
    )
    assert unfinished.read_bytes() == before


def test_damaged_run_is_not_resumed(detmatrix: Command, unfinished: Path) -> None:
    """Exit 3, the line and the field; the file stays as it is."""
    damaged = unfinished.read_bytes().replace(b'"outcome":"ran"', b'"outcome":"fun"', 1)
    unfinished.write_bytes(damaged)

    told = _refused(detmatrix("scan", *OPTIONS, "--resume", "-o", "run.jsonl"), 3)

    assert told == (
        "run.jsonl, line 3: Invalid enum value 'fun' - at `$.outcome`; restore the file, or cut it before this line "
        "and scan --resume"
    )
    assert unfinished.read_bytes() == damaged


def test_foreign_file_is_not_resumed(detmatrix: Command, tmp_path: Path) -> None:
    """Exit 3: there is nothing in it to go on with."""
    (tmp_path / "run.jsonl").write_text("precious\n")

    told = _refused(detmatrix("scan", *OPTIONS, "--resume", "-o", "run.jsonl"), 3)

    assert told == "run.jsonl: not a detmatrix run file (no header line); give a file that scan wrote"


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        (("--runs", 3), "--runs is not the one it began with (3, it has 2)"),
        (("--timeout", 5), "--timeout is not the one it began with (5.0, it has 60.0)"),
        (
            ("quick.put_",),
            "the list of patterns is not the one it began with (quick.cumsum quick.put_, it has quick.cumsum)",
        ),
    ],
    ids=lambda value: str(value[0]) if isinstance(value, tuple) else None,
)
def test_resuming_with_other_settings_is_refused(
    detmatrix: Command, unfinished: Path, option: tuple[object, ...], expected: str
) -> None:
    """One run, one set of settings: what differs is named with both values."""
    before = unfinished.read_bytes()

    told = _refused(detmatrix("scan", *OPTIONS, *option, "--resume", "-o", "run.jsonl"))

    assert told == (
        f"run.jsonl: cannot be resumed, {expected}; start over with --force, or choose another place with -o"
    )
    assert unfinished.read_bytes() == before


# The interpreter that is scanned


def _scan_with(detmatrix: Command, python: Path) -> str:
    """Return the line a scan of another interpreter refuses with; it leaves no run file."""
    told = _refused(
        detmatrix("scan", "torch.cumsum", "--device", "cpu", "--python", python, "-o", "run.jsonl")
    )
    assert not (python.parent / "run.jsonl").exists()
    return told.removeprefix("--python ")


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """Return an interpreter that has the standard library and nothing else."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    return tmp_path / "bare" / "bin" / "python"


def test_interpreter_without_torch_is_told(detmatrix: Command, bare_python: Path) -> None:
    """Nothing can be scanned there, and the remedy is one command."""
    told = _scan_with(detmatrix, bare_python)

    assert told == f"{bare_python}: has no torch; install it there (pip install torch)"


def test_scan_without_torch_of_its_own_is_not_to_be_trusted(tmp_path: Path, bare_python: Path) -> None:
    """Where nobody named an interpreter, a torch that is missing means that no worker could start: exit 4."""
    # The main process finds what it needs by a variable that workers do not inherit.
    path = os.pathsep.join([str(Path(__file__).parent.parent), *(entry for entry in sys.path if entry)])

    done = subprocess.run(
        [bare_python, "-m", "scanner", "scan", "torch.cumsum", "--device", "cpu", "-o", tmp_path / "run.jsonl"],
        env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert _refused(done, 4) == f"{bare_python}: has no torch; install it there (pip install torch)"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (None, "no worker could be started (No such file or directory)"),
        ("", "no worker could be started (Permission denied)"),
        ("#!/bin/sh\necho broken >&2; exit 3\n", "no worker could be started (exited with code 3"),
        ("#!/bin/sh\nkill -9 $$\n", "no worker could be started (killed by SIGKILL"),
    ],
    ids=["missing", "not executable", "exits", "killed"],
)
def test_interpreter_that_does_not_start_is_told(
    detmatrix: Command, tmp_path: Path, script: str | None, expected: str
) -> None:
    """Whatever is wrong with it, the scan says so at once and leaves no file."""
    python = tmp_path / "python"
    if script is not None:
        python.write_text(script)
        python.chmod(0o755 if script else 0o644)

    assert _scan_with(detmatrix, python).startswith(f"{python}: {expected}")


# Specs of the user's


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "own.py: no such file"),
        ("SPECS = (\n", "own.py, line 1: SyntaxError: '(' was never closed (own.py, line 1)"),
        ("\n\nSPECS = [1 / 0]\n", "own.py, line 3: ZeroDivisionError: division by zero"),
        ("raise ValueError('a\\nb')\n", "own.py, line 1: ValueError: a b"),
        ("x = 1\n", "own.py: declares no SPECS; assign a tuple of OpSpec to it"),
        (
            "from opspecs.model import OpSpec as O\nSPECS = [O(name='a', op='a', why='', cases={'x': lambda t: t})]\n",
            "own.py, line 2: 'a': cases must map names to Case(inputs=lambda t: call(...))",
        ),
        (
            "from opspecs.model import Case, OpSpec as O\ncases = {'x': Case(inputs=id, directions=['sideways'])}\n\
SPECS = [O(name='a', op='torch.neg', why='', cases=cases)]\n",
            (
                "own.py, line 3: 'a': case 'x': directions must be a tuple of names among forward, backward, such as "
                "('forward',), and is ['sideways']"
            ),
        ),
        ("x = 1\nSPECS = ()\n", "own.py, line 2: SPECS is empty; put an OpSpec into it"),
        ("SPECS = [1]\n", "own.py, line 1: declares no SPECS; assign a tuple of OpSpec to it"),
        (
            "import sys\nsys.exit(0)\n",
            "own.py: exits when it is loaded; let it declare SPECS and do nothing else",
        ),
        (
            "from opspecs.registry import SPECS as OURS\nSPECS = OURS[:1]\n",
            "own.py: the name torch.nn.Conv1d is taken; give the spec a name of its own",
        ),
        *(
            (
                f"from opspecs.controls import SPECS as OURS\nfrom dataclasses import replace\n\
SPECS = [replace(OURS[0], name={name!r})]\n",
                (
                    f"own.py, line 3: {name!r}: names that begin with control. or sentinel. are those of our own; give the "
                    "spec another name"
                ),
            )
            for name in ("control.constant", "control.mine", "sentinel.index_put")
        ),
    ],
    ids=[
        *(
            "missing",
            "syntax",
            "raises",
            "two lines",
            "absent",
            "bare lambda",
            "direction",
            "empty",
            "no specs",
            "exits",
        ),
        *("taken", "control", "like a control", "sentinel"),
    ],
)
def test_spec_file_that_cannot_be_used(
    detmatrix: Command, tmp_path: Path, content: str | None, expected: str
) -> None:
    """The file, the line and what is wrong with it."""
    if content is not None:
        (tmp_path / "own.py").write_text(content)

    told = _refused(detmatrix("scan", "--specs", "own.py", "-o", "run.jsonl"))

    assert told == expected
    assert not (tmp_path / "run.jsonl").exists()


def test_spec_file_is_a_python_file(detmatrix: Command, tmp_path: Path) -> None:
    """Another ending is told rather than guessed at."""
    (tmp_path / "own.txt").write_text("SPECS = []\n")

    told = _refused(detmatrix("scan", "--specs", "own.txt"))

    assert told == "own.txt: not a Python file; give one that ends in .py"


# List


def test_list_json_holds_every_row_once(detmatrix: Command) -> None:
    """Each row has an id of its own, says where it runs, and a pattern of that id selects it."""
    listed = json.loads(detmatrix("list", "--format", "json").stdout)

    ids = [row["id"] for row in listed]
    assert len(set(ids)) == len(ids) > 100
    assert {tuple(row["devices"]) for row in listed} == {("cpu", "cuda"), ("cuda",), ("cpu",)}
    for row in listed:
        assert row["id"] == ":".join(row[name] for name in ("spec", "case", "direction", "dtype"))
        assert row["op"].startswith(("torch.", "opspecs."))
        assert row["why"]
    again = json.loads(detmatrix("list", ids[-1], "--format", "json").stdout)
    assert again == listed[-1:]


@pytest.mark.parametrize(
    ("patterns", "specs"),
    [
        (["torch.cumsum"], {"torch.cumsum"}),
        (["cumsum"], {"torch.cumsum"}),
        (["torch.nn.Conv?d"], {"torch.nn.Conv1d", "torch.nn.Conv2d", "torch.nn.Conv3d"}),
        (["Conv[12]d", "cumsum"], {"torch.nn.Conv1d", "torch.nn.Conv2d", "torch.cumsum"}),
        (["torch.cumsum:*:forward:float32"], {"torch.cumsum"}),
    ],
)
def test_patterns_select(detmatrix: Command, patterns: list[str], specs: set[str]) -> None:
    """A name, its last part, shell wildcards, a row id: each selects, and several add up."""
    listed = json.loads(detmatrix("list", *patterns, "--format", "json").stdout)

    assert {row["spec"] for row in listed} == specs
    if ":" in patterns[0]:
        assert {(row["direction"], row["dtype"]) for row in listed} == {("forward", "float32")}


def test_list_table_agrees_with_json(detmatrix: Command) -> None:
    """The last line counts what JSON lists, and every op and case stands in the table."""
    listed = json.loads(detmatrix("list", "--format", "json").stdout)
    table = detmatrix("list").stdout

    names = {row["spec"] for row in listed}
    cases = {(row["spec"], row["case"]) for row in listed}
    on_cpu, on_cuda = (sum(device in row["devices"] for row in listed) for device in ("cpu", "cuda"))
    assert table.splitlines()[-1] == (
        f"{len(names)} ops, {len(cases)} cases, {on_cuda} rows on CUDA, {on_cpu} on the CPU"
    )
    assert {line.strip() for line in table.splitlines()} >= names
    assert len(re.findall(r"^    \S", table, re.MULTILINE)) == len(cases)


@pytest.mark.parametrize(
    ("redirection", "code", "told"),
    [
        ("| head -1 | grep -q .; exit ${PIPESTATUS[0]}", 0, ""),
        ("| true; exit ${PIPESTATUS[0]}", 0, ""),
        (">&-", 0, ""),
        ("2>&-", 0, ""),
        (">/dev/full", 2, "detmatrix: standard output: No space left on device\n"),
    ],
)
def test_output_that_goes_nowhere_gives_no_traceback(
    tmp_path: Path, redirection: str, code: int, told: str
) -> None:
    """A reader that has seen enough, a closed stream and a full disk end a command quietly or in one line."""
    if "/dev/full" in redirection and not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    command = f"{shlex.quote(sys.executable)} -m scanner list --format json {redirection}"

    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path, check=False)

    assert (done.returncode, done.stderr) == (code, told)


# Help


def test_version(detmatrix: Command) -> None:
    """The version is the installed one."""
    done = detmatrix("--version")

    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"detmatrix \d+\.\d+\.\d+\n", done.stdout)


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_names_every_command_and_exit_code(detmatrix: Command, arguments: list[str]) -> None:
    """Help is what a bare command shows too."""
    done = detmatrix(*arguments)

    assert (done.returncode, done.stderr) == (0, "")
    for name, (_, told) in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(told[:40])}", done.stdout, re.MULTILINE)
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


# Ctrl-C

# Fast at first, then slow for as long as a file lies beside it.
_SLOW = """
import time
from pathlib import Path
from opspecs.model import Case, OpSpec, call

def slow(x):
    while Path(__file__).with_name("wait").exists():
        time.sleep(0.05)
    return x + 1

CASES = {"only": Case(inputs=lambda t: call(t.normal(8)))}
SPECS = [
    OpSpec(name="slow.first", op="torch.neg", why="Test.", cases=CASES),
    OpSpec(name="slow.then", op=slow, why="Test.", cases=CASES),
]
"""
# A shell that starts its jobs in the background makes them ignore Ctrl-C, and a test suite's children inherit it.
_RUN = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "from scanner.cli import main; main(sys.argv[1:])"
)


def _start(folder: Path, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _RUN, *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_interrupted_scan_says_how_to_go_on(detmatrix: Command, tmp_path: Path) -> None:
    """Ctrl-C leaves a valid file and exit code 130, and the command it prints finishes the scan."""
    (tmp_path / "slow specs.py").write_text(_SLOW)
    (tmp_path / "wait").touch()
    path = tmp_path / "my run.jsonl"
    arguments = ["slow.*", "--specs", "slow specs.py", "--device", "cpu", "--runs", "2", "--processes", "1"]
    process = _start(tmp_path, "scan", *arguments, "-o", path.name)
    deadline = time.monotonic() + 60
    # Six controls come before the first row.
    while not (path.exists() and path.read_bytes().count(b'"kind":"observation"') > 6):
        assert time.monotonic() < deadline
        time.sleep(0.05)

    process.send_signal(signal.SIGINT)
    printed, told = process.communicate(timeout=30)

    assert (process.returncode, printed) == (130, "")
    last = told.splitlines()[-1]
    said, _, again = last.partition(", go on with: ")
    assert said == "detmatrix: interrupted; my run.jsonl is valid"
    assert again == "detmatrix scan --resume -o 'my run.jsonl'"
    assert "Traceback" not in told
    assert [one.spec for one in read_run(path).observations] == ["slow.first"]
    (tmp_path / "wait").unlink()
    done = detmatrix(*shlex.split(again)[1:])
    assert done.returncode == 0, done.stderr
    # Two rows and six controls in two modes.
    assert lines(path)[-1]["observations"] == (2 + 6) * 2


def test_interrupted_before_anything_was_observed(tmp_path: Path) -> None:
    """While the first worker starts there is nothing to resume, and no file stays behind."""
    process = _start(tmp_path, "scan", "cumsum", "--device", "cpu", "-o", "run.jsonl")
    path = tmp_path / "run.jsonl"
    while not path.exists() and process.poll() is None:
        time.sleep(0.001)
    # The file is there before it is locked; a worker then takes a second at least to import torch.
    time.sleep(0.1)

    os.kill(process.pid, signal.SIGINT)
    _, told = process.communicate(timeout=30)

    assert process.returncode == 130
    assert told == "detmatrix: interrupted; nothing was observed yet, start again\n"
    assert not path.exists()
