"""Sessions read versions and options of their own; the rest goes to the command."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn

import pytest

ROOT = Path(__file__).parent.parent
LISTED = (
    "torch (2.15.0)\nAvailable versions: 2.16.0rc1, 2.15.0+cpu, 2.15.0, 2.14.1+cpu, 2.14.1, 2.14.0, 2.13.0\n"
)


class SessionError(Exception):
    """What a session stops with."""


def _stop(message: str) -> NoReturn:
    raise SessionError(message)


@pytest.fixture(scope="module")
def noxfile() -> ModuleType:
    """The noxfile as a module."""
    spec = importlib.util.spec_from_file_location("noxfile", ROOT / "noxfile.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        # The sessions read pyproject.toml beside it.
        patch.chdir(ROOT)
        spec.loader.exec_module(module)
    return module


def _session(*posargs: str, listed: str = LISTED) -> Any:
    """Return a session that notes the commands it would run as ``ran``."""
    ran: list[tuple[str, ...]] = []

    def run(*command: str, **_: object) -> str:
        ran.append(command)
        return listed

    return SimpleNamespace(
        posargs=posargs, error=_stop, run=run, ran=ran, install=lambda *_: None, log=lambda _: None
    )


@pytest.mark.parametrize(
    ("posargs", "listed", "text"),
    [
        ("2.13.0 2.15.0 --ops", LISTED, "--ops: expected one argument"),
        ("2.13.0 2.15.0 --op x", LISTED, "unrecognized arguments: --op"),
        ("2.13.0 torch.cumsum", LISTED, "torch.cumsum is no version of torch, such as 2.13.0"),
        ("2.13.0 2.13.0", LISTED, "name two or more versions"),
        # Without a package index the words for releases mean nothing.
        ("newest 2.13.0", "", "name versions"),
    ],
)
def test_wrong_arguments_end_the_session_in_a_line(
    noxfile: ModuleType, posargs: str, listed: str, text: str
) -> None:
    """What is wrong is named before anything is installed."""
    with pytest.raises(SessionError, match=re.escape(text)):
        noxfile._compared(_session(*posargs.split(), listed=listed))


@pytest.fixture
def environments(noxfile: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Let environments be names, and the working directory an empty one."""
    monkeypatch.setattr(noxfile, "environment_of", lambda _, torch: f"python-{torch}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def linux(noxfile: ModuleType, monkeypatch: pytest.MonkeyPatch, environments: Path) -> Path:
    """A machine whose builds of torch can be simulated, and environments that are names."""
    monkeypatch.setattr(noxfile, "environment_for_cuda", lambda _, torch: f"cuda-{torch}")
    monkeypatch.setattr(noxfile.sys, "platform", "linux")
    monkeypatch.setattr(noxfile.platform, "machine", lambda: "x86_64")
    return environments


@pytest.mark.parametrize(
    ("name", "posargs", "expected"),
    [
        ("scan", "", "--python python-2.13.0 -o detmatrix.jsonl"),
        ("scan", "--torch 2.11.0 torch.cumsum --runs 5",
         "torch.cumsum --runs 5 --python python-2.11.0 -o detmatrix.jsonl"),
        ("scan", "--python=py -oa.jsonl --resume x", "--resume x --python py -o a.jsonl"),
        ("simulate", "", "--simulate sm_80 --python cuda-2.15.0 -o detmatrix-simulated.jsonl"),
        ("simulate", "--torch 2.11.0 --arch sm_90 torch.cumsum -- --runs 16",
         "torch.cumsum --runs 16 --simulate sm_90 --python cuda-2.11.0 -o detmatrix-simulated.jsonl"),
        ("simulate", "--torch=newest -oa.jsonl", "--simulate sm_80 --python cuda-2.15.0 -o a.jsonl"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("linux")
def test_scan_passes_on_what_is_not_its_own(
    noxfile: ModuleType, name: str, posargs: str, expected: str
) -> None:
    """The session chooses build and GPU; patterns and options are those of a scan, and a page follows."""
    session = _session(*posargs.split())

    getattr(noxfile, name).func(session)

    scanned, page = session.ran[-2:]
    run = expected.rsplit(maxsplit=1)[-1]
    assert scanned == ("detmatrix", "scan", *expected.split())
    assert page == ("detmatrix", "report", run, "--format", "html", "-o", run.replace("jsonl", "html"))


@pytest.mark.parametrize(
    ("posargs", "last", "flags"),
    [
        ((), '{"kind":"closing"}', ["--force"]),
        ((), '{"kind":"observation"}', ["--resume"]),
        (("-o", "detmatrix.jsonl"), '{"kind":"closing"}', []),
        (("--resume",), '{"kind":"closing"}', ["--resume"]),
    ],
)
def test_interrupted_scan_goes_on(
    noxfile: ModuleType, environments: Path, posargs: tuple[str, ...], last: str, flags: list[str]
) -> None:
    """Running the session again scans again, or goes on; a file that was named is the user's business."""
    (environments / "detmatrix.jsonl").write_text(f"{last}\n", encoding="utf-8")
    session = _session(*posargs)

    noxfile.scan.func(session)

    assert session.ran[0][2 : 2 + len(flags)] == tuple(flags)
    assert session.ran[0][2 + len(flags)] == "--python"


def _simulating(folder: Path, requires: list[str]) -> Any:
    """Return a session in which pip reports a wheel of torch with these requirements."""
    session = _session()
    session.virtualenv = SimpleNamespace(location=str(folder / "simulate"))
    session.create_tmp = lambda: str(folder)
    (folder / "simulate-2.15.0").mkdir()

    def run(*command: str, **_: object) -> None:
        session.ran.append(command)
        if "--report" in command:
            found = {"metadata": {"requires_dist": requires}, "download_info": {"url": "file:///torch.whl"}}
            report = Path(command[command.index("--report") + 1])
            report.write_text(json.dumps({"install": [found]}), encoding="utf-8")

    session.run = run
    return session


def test_simulated_environment_has_nothing_of_nvidia(noxfile: ModuleType, tmp_path: Path) -> None:
    """Of the requirements of torch only those in plain Python are installed; the environment is kept."""
    requires = [
        "filelock",
        "sympy>=1.13.3",
        'cuda-toolkit[cublas,cudart]==13.2.2; platform_system != "Nothing"',
        "cuda-bindings<14,>=13.0.3",
        "nvidia-nccl-cu13==2.30.7",
        "triton~=3.9.0",
        'optree>=0.13.0; extra == "optree"',
    ]
    session = _simulating(tmp_path, requires)

    python = noxfile.environment_for_cuda(session, "2.15.0")

    pip = (python, "-m", "pip", "install")
    assert session.ran[1][-2:] == ("--no-deps", "torch===2.15.0")
    assert "--dry-run" in session.ran[1]
    assert session.ran[2] == (*pip, "filelock", "sympy>=1.13.3", *noxfile.DATABASES)
    assert session.ran[3:] == [(*pip, "--no-deps", "torch===2.15.0")]
    session.ran.clear()
    assert noxfile.environment_for_cuda(session, "2.15.0") == python
    assert not session.ran


def test_build_without_cuda_is_refused_before_it_is_installed(noxfile: ModuleType, tmp_path: Path) -> None:
    """An index may have a build for the CPU alone under the release's own number."""
    session = _simulating(tmp_path, ["filelock"])

    with pytest.raises(SessionError, match=r"torch\.whl is a build without CUDA; nothing was installed"):
        noxfile.environment_for_cuda(session, "2.15.0")

    assert all("--dry-run" in command for command in session.ran if "pip" in command)


@pytest.mark.parametrize(
    ("build", "machine", "text"),
    [
        *((build, "x86_64", f"{build} is a build without CUDA; name the release")
          for build in ("2.15.0+cpu", "2.15.0+xpu", "2.9.1+rocm6.4")),
        ("newest", "arm64", "Linux on x86-64"),
    ],
)  # fmt: skip
def test_what_cannot_be_simulated_is_refused(
    noxfile: ModuleType, monkeypatch: pytest.MonkeyPatch, linux: Path, build: str, machine: str, text: str
) -> None:
    """By the name of the build, or of the machine, before anything is installed."""
    monkeypatch.setattr(noxfile.platform, "machine", lambda: machine)
    session = _session("--torch", build)

    with pytest.raises(SessionError, match=re.escape(text)):
        noxfile.simulate.func(session)

    assert not session.ran
    assert not list(linux.iterdir())


@pytest.mark.parametrize("marks", [(), ("alone",), ("nightly",), ("alone", "nightly")], ids=str)
def test_every_test_is_run_by_one_session_once(
    noxfile: ModuleType, monkeypatch: pytest.MonkeyPatch, marks: tuple[str, ...]
) -> None:
    """Whatever a test is marked with, one call of pytest in one session selects it, and CI runs both sessions."""
    monkeypatch.setattr(noxfile, "environment_for_cuda", lambda *_: "python")
    calls: list[tuple[str, ...]] = []
    session = SimpleNamespace(
        posargs=[],
        install=lambda *_: None,
        warn=lambda _: None,
        run=lambda *command, **_: calls.append(command),
    )

    for name in ("tests", "nightly"):
        getattr(noxfile, name).func(session)

    chosen = [command[command.index("-m") + 1] for command in calls if command[0] == "pytest"]
    names = {name: name in marks for name in ("alone", "nightly")}
    assert [bool(eval(expression, {}, names)) for expression in chosen].count(True) == 1
    text = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert all(f"python3 -m nox -s {name}\n" in text for name in ("tests", "nightly"))
