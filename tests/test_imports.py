"""Who may import whom, as rules about folders: specs describe, the scanner runs, reports render."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("opspecs", "scanner", "reports")
OURS = tuple(f"detmatrix.{name}" for name in PACKAGES)
# What runs inside another interpreter, and what one of the two has of the other.
WITH_TORCH = ("scanner/worker", "scanner/locate")
# What specs name by its dotted path, so that a worker alone imports it.
NAMED = (ROOT / "opspecs/masked.py", ROOT / "opspecs/instead.py")
READ_BITS = {
    f"detmatrix.scanner.worker.{name}" for name in ("bits", "difference", "launch_orders", "simulated")
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
            module = node.module or ""
            # What is imported may be a module itself.
            yield from (
                f"{module}.{alias.name}" if _exists(f"{module}.{alias.name}") else module
                for alias in node.names
            )


def _exists(name: str) -> bool:
    place = ROOT / name.removeprefix("detmatrix.").replace(".", "/")
    return place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()


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


def _name(path: Path) -> str:
    return ".".join(("detmatrix", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")


def _roots(path: Path, *, nested: bool = True) -> set[str]:
    """Return the packages a module imports, ours without the name of the whole, which alone is installed."""
    names = list(_imports(path, nested=nested))
    assert not [name for name in names if name.partition(".")[0] in PACKAGES]
    return {name.removeprefix("detmatrix.").partition(".")[0] for name in names}


def _ours(path: Path, package: str = "") -> set[str]:
    """Return our modules that a module imports."""
    return {name for name in _imports(path, nested=True) if name.startswith(f"detmatrix.{package}")}


@pytest.mark.parametrize("path", _modules("opspecs"), ids=_name)
def test_opspecs_describe(path: Path) -> None:
    """Specs import nothing but specs and the standard library, and torch only where a worker calls."""
    assert _roots(path) <= sys.stdlib_module_names | {"opspecs", "torch"}
    assert path in NAMED or "torch" not in _roots(path, nested=False)
    assert not {_name(one) for one in NAMED} & {*_imports(path, nested=True)}


@pytest.mark.parametrize("path", _modules("scanner"), ids=_name)
def test_scanner_does_not_report(path: Path) -> None:
    """The scanner imports neither reports nor what they are made with; scripts are made of templates alone."""
    of_templates = {"jinja2"} if path == ROOT / "scanner/repro/script.py" else set()
    assert not _roots(path) & {"reports", "pandas", "jinja2", "tabulate"} - of_templates


@pytest.mark.parametrize("path", _modules("scanner/worker"), ids=_name)
def test_worker_needs_torch_and_specs_alone(path: Path) -> None:
    """A worker starts in an environment that has a torch and nothing of ours."""
    assert _roots(path) <= sys.stdlib_module_names | {"torch", "opspecs", "scanner"}
    ours = _ours(path, "scanner.")
    # Beside its own folder only what lies in none, and needs the standard library alone.
    beside = {name for name in ours if not name.startswith("detmatrix.scanner.worker")}
    assert all(map(_plain, beside))


def _plain(name: str) -> bool:
    """Tell whether a module that lies in no folder needs the standard library alone, and others like it."""
    path = ROOT / f"{name.removeprefix('detmatrix.').replace('.', '/')}.py"
    ours = _ours(path, "scanner.")
    return (
        name.count(".") == 2
        and _roots(path) <= sys.stdlib_module_names | {"scanner"}
        and all(map(_plain, ours))
    )


@pytest.mark.parametrize("path", _modules("scanner/locate"), ids=_name)
def test_what_runs_in_a_program_needs_torch_alone(path: Path) -> None:
    """A program of the user's finds nothing of ours but this folder, what a worker reads bits with, and plain modules."""
    # The fixture is loaded by a test run, never by a program.
    needed = {"torch", "scanner"} | ({"pytest"} if path.name == "fixture.py" else set())
    assert _roots(path) <= sys.stdlib_module_names | needed
    ours = _ours(path, "scanner.")
    beside = {name for name in ours if not name.startswith("detmatrix.scanner.locate")} - READ_BITS
    assert all(map(_plain, beside))


@pytest.mark.parametrize(
    "path",
    [path for path in _modules("scanner") if not {ROOT / name for name in WITH_TORCH} & set(path.parents)],
    ids=_name,
)
def test_only_two_folders_need_torch(path: Path) -> None:
    """The main process scans a torch in another interpreter and needs none of its own."""
    assert "torch" not in _roots(path)
    theirs = ("detmatrix.scanner.worker", "detmatrix.scanner.locate.")
    assert not {name for name in _imports(path, nested=True) if f"{name}.".startswith(theirs)}


@pytest.mark.parametrize("path", _modules("reports"), ids=_name)
def test_reports_need_no_torch(path: Path) -> None:
    """A run file renders years later, without the build that was scanned, and without its specs."""
    assert not _roots(path, nested=path.name != "api.py") & {"torch", "opspecs"}


def _folder(name: str) -> str:
    """Return the package that a module lies in; one directly below the three stands for itself, and so does what is run."""
    around, _, module = name.rpartition(".")
    return name if around in OURS or name in OURS or module == "__main__" else around


def test_folders_do_not_import_one_another_in_a_circle() -> None:
    """Whoever reads a folder needs to know those below it, and none that needs it in turn."""
    below: dict[str, set[str]] = {}
    for path in (path for package in PACKAGES for path in _modules(package)):
        here = _folder(_name(path))
        ours = {_folder(name) for name in _ours(path)}
        below.setdefault(here, set()).update(ours - {here})

    try:
        order = list(TopologicalSorter(below).static_order())
    except CycleError as error:
        pytest.fail(f"a circle of folders: {' → '.join(error.args[1])}")

    assert (
        order.index("detmatrix.opspecs.model")
        < order.index("detmatrix.scanner.observations")
        < order.index("detmatrix.scanner.verdicts")
    )
    assert (
        order.index("detmatrix.scanner.verdicts")
        < order.index("detmatrix.reports.matrix")
        < order.index("detmatrix.reports.cli")
    )


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [(["--help"], []), (["list"], []), (["--version"], ["hashlib", "importlib.metadata", "json", "msgspec"])],
    ids=" ".join,
)
def test_light_commands_import_little(arguments: list[str], needed: list[str]) -> None:
    """Help and list load neither torch nor pandas nor rich, nor what takes as long as all else: they answer at once."""
    script = (
        "import sys; before = set(sys.modules); from detmatrix.scanner.cli.main import main\n"
        f"try: main({arguments!r})\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'pandas', 'jinja2', 'tabulate', 'rich', 'msgspec', 'packaging',\n"
        "         'importlib.metadata', 'hashlib', 'json'} & set(sys.modules) - before\n"
        "print(sorted(heavy), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert set(ast.literal_eval(done.stderr)) <= set(needed)


def test_no_two_public_classes_share_a_name() -> None:
    """Whoever reads a name knows what it is, without the folder it comes from."""
    places: dict[str, list[str]] = {}
    for package in ("opspecs", "scanner", "reports"):
        for path in _modules(package):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places.setdefault(node.name, []).append(str(path))

    assert {name: found for name, found in places.items() if len(found) > 1} == {}
