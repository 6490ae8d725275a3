"""Who may import whom: specs describe, the scanner runs, reports render."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# The modules that a worker loads, and so all that another interpreter with a torch must provide for.
WORKER = {
    *("worker", "observe", "execution", "bits", "state", "alerts", "perturb", "severity", "cost"),
    *("recipe", "drawing", "source", "dispatch", "reach", "walk", "kernels", "samples", "growth"),
}


def _imports(path: Path, *, nested: bool) -> Iterator[str]:
    """Yield the dotted names a module imports; those inside functions too if *nested*."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = ast.walk(tree) if nested else _at_import_time(tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield node.module or ""


def _at_import_time(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that run when a module is imported."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        yield node
        yield from _at_import_time(node)


def _modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def _roots(path: Path, *, nested: bool = True) -> set[str]:
    return {name.partition(".")[0] for name in _imports(path, nested=nested)}


@pytest.mark.parametrize("path", _modules("opspecs"), ids=lambda path: path.name)
def test_opspecs_describe(path: Path) -> None:
    """Specs import nothing but specs and the standard library, and torch only where a worker calls."""
    assert _roots(path) <= sys.stdlib_module_names | {"opspecs", "torch"}
    assert "torch" not in _roots(path, nested=False)


@pytest.mark.parametrize("path", _modules("scanner"), ids=lambda path: path.name)
def test_scanner_does_not_report(path: Path) -> None:
    """The scanner imports neither reports nor what they are made with."""
    assert not _roots(path) & {"reports", "pandas", "jinja2", "tabulate"}


@pytest.mark.parametrize(
    "path", [path for path in _modules("scanner") if path.stem not in WORKER], ids=lambda path: path.name
)
def test_only_the_worker_needs_torch(path: Path) -> None:
    """The main process scans a torch in another interpreter and needs none of its own."""
    assert "torch" not in _roots(path)


@pytest.mark.parametrize("name", sorted(WORKER))
def test_worker_needs_torch_and_specs_alone(name: str) -> None:
    """A worker starts in an environment that has a torch and nothing of ours."""
    names = set(_imports(ROOT / "scanner" / f"{name}.py", nested=True))
    allowed = {f"scanner.{module}" for module in WORKER} | {"scanner"}

    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names | {
        "torch",
        "opspecs",
        "scanner",
    }
    assert {name for name in names if name.startswith("scanner")} <= allowed


@pytest.mark.parametrize("path", _modules("reports"), ids=lambda path: path.name)
def test_reports_need_no_torch(path: Path) -> None:
    """A run file renders years later, without the build that was scanned and without its specs."""
    assert not _roots(path) & {"torch", "opspecs"}


@pytest.mark.parametrize("arguments", [["--help"], ["list"], ["--version"]])
def test_light_commands_import_little(arguments: list[str]) -> None:
    """Help and list load neither torch nor pandas nor rich: they answer at once."""
    script = (
        "import sys; from scanner.cli.main import main\n"
        f"try: main({arguments!r})\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'pandas', 'jinja2', 'tabulate', 'rich', 'msgspec', 'capstone', 'elftools'} & set(sys.modules)\n"
        "print(sorted(heavy), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stderr.strip() in ("[]", "['msgspec']" if arguments == ["--version"] else "[]")
