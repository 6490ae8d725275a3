"""What a developer, a user without a checkout habit and CI run: ``nox -s NAME``.

Environments are made by pip and kept between runs. torch comes in the version below unless a session is told
otherwise (``nox -s scan -- --torch 2.11.0``).
"""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import nox

nox.options.default_venv_backend = "venv"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["lint", "types", "docs", "tests"]

PYPROJECT = nox.project.load_toml("pyproject.toml")
WITHOUT_TORCH = [name for name in PYPROJECT["project"]["dependencies"] if not name.startswith("torch")]
TORCH = "2.13.0"
RUN = "detmatrix.jsonl"


def install(session: nox.Session, *groups: str, torch: str = TORCH) -> None:
    """Install detmatrix from this checkout, with torch first, and dependency groups."""
    session.install(f"torch=={torch}")
    session.install("--editable", ".", *nox.project.dependency_groups(PYPROJECT, *groups))


@nox.session
def tests(session: nox.Session) -> None:
    """Run the whole test suite; arguments go to pytest."""
    install(session, "tests")
    if not shutil.which("chromium"):
        session.warn("no chromium here: the tests of the HTML page in a browser are skipped")
    session.run("pytest", *session.posargs)


@nox.session(tags=["lint"])
def lint(session: nox.Session) -> None:
    """Check style and format with ruff."""
    session.install(*nox.project.dependency_groups(PYPROJECT, "lint"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session(tags=["lint"])
def types(session: nox.Session) -> None:
    """Check types with mypy, strictly and without torch."""
    session.install(*WITHOUT_TORCH, *nox.project.dependency_groups(PYPROJECT, "types"))
    session.run("mypy")


@nox.session(default=False)
def scan(session: nox.Session) -> None:
    """Scan this machine's PyTorch (CUDA if present, else CPU); show the matrix, and write it as HTML.

    ``--torch VERSION`` scans another version; all other arguments go to ``detmatrix scan``.
    """
    arguments = list(session.posargs)
    torch = TORCH
    if "--torch" in arguments:
        position = arguments.index("--torch")
        if position + 1 == len(arguments):
            session.error("--torch needs a version, such as 2.11.0")
        torch = arguments.pop(position + 1)
        del arguments[position]
    install(session, torch=torch)
    run = Path(_output(arguments))
    asked = any(
        argument in {"--resume", "--force"} or argument.startswith(("-o", "--output"))
        for argument in arguments
    )
    # Running the session again means scanning again, but an interrupted scan goes on.
    again = [] if asked or not run.exists() else ["--force" if _is_complete(run) else "--resume"]
    session.run("detmatrix", "scan", *again, *arguments)
    session.run("detmatrix", "report", str(run))
    page = run.with_suffix(".html")
    session.run("detmatrix", "report", str(run), "--format", "html", "-o", str(page))
    session.log(f"The matrix for a browser: {page.resolve()}")


def _output(arguments: list[str]) -> str:
    """Return the run file that arguments of ``detmatrix scan`` name."""
    for option, value in zip(arguments, [*arguments[1:], ""], strict=True):
        if option in {"-o", "--output"}:
            return value
        for prefix in ("--output=", "-o"):
            if option.startswith(prefix):
                return option.removeprefix(prefix)
    return RUN


def _is_complete(run: Path) -> bool:
    """Tell whether a run file ends with its closing line."""
    return run.read_bytes().rstrip(b"\n").rpartition(b"\n")[2].startswith(b'{"kind":"closing"')


@nox.session(tags=["lint"])
def docs(session: nox.Session) -> None:
    """Check that what the README shows is what the recorded runs say; ``-- --write`` regenerates it."""
    # Reports need no torch.
    session.install(*WITHOUT_TORCH)
    check = [] if "--write" in session.posargs else ["--check"]
    readme = Path("README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^<!-- detmatrix \w+:begin(?: detmatrix (.+?))? -->$", readme, flags=re.MULTILINE)
    if not blocks or not all(blocks):
        session.error("README.md has no generated block, or one whose marker names no command")
    for command in blocks:
        session.run("python", "-m", "scanner", *shlex.split(command), *check)


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
            session.run("python", "-m", "scanner.claims", "--check", str(wheel))
            wheel.unlink()


@nox.session(default=False)
def bench(session: nox.Session) -> None:
    """Print what detmatrix costs and how well it sees, as measured in this run; arguments name benchmarks."""
    install(session)
    scripts = {script.stem: script for script in sorted(Path("tests/benchmarks").glob("[!_]*.py"))}
    for name in session.posargs or scripts:
        if name not in scripts:
            session.error(f"there is no benchmark {name}; there are {', '.join(scripts)}")
        session.run("python", str(scripts[name]))
