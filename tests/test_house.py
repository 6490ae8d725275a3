"""The rules of the house: who may import whom, specs describe, the scanner runs, reports render; and how long each may be."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.test_planted_faults_nightly import FAULTS

ROOT = Path(__file__).parent.parent
PACKAGES = ("opspecs", "scanner", "reports")
OURS = tuple(f"detmatrix.{name}" for name in PACKAGES)
# What runs inside another interpreter, and what one of the two has of the other.
WITH_TORCH = ("scanner/worker", "scanner/locate")
# What specs name by its dotted path, so that a worker alone imports it.
NAMED = (ROOT / "opspecs/masked.py", ROOT / "opspecs/instead.py")
READ_BITS = {f"detmatrix.scanner.worker.{name}" for name in ("bits", "difference", "simulated")}


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def _imports(path: Path, *, nested: bool) -> tuple[str, ...]:
    """Return the dotted names a module imports; those inside functions too if *nested*."""
    found: list[str] = []
    for node in ast.walk(_tree(path)) if nested else _at_import_time(_tree(path)):
        if isinstance(node, ast.Import):
            found += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            # What is imported may be a module itself.
            names = [(f"{node.module}.{alias.name}", node.module or "") for alias in node.names]
            found += (name if _exists(name) else module for name, module in names)
    return tuple(found)


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


STDLIB = sys.stdlib_module_names
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SIMULATE = {
    Requirement(one).name.replace("-", "_")
    for one in PYPROJECT["project"]["optional-dependencies"]["simulate"]
}
# Of the modules of a folder, but for those of others: what alone they import, and what they do not.
RULES: dict[str, tuple[str, str, frozenset[str] | None, set[str]]] = {
    "specs describe": ("opspecs", "", STDLIB | {"opspecs", "torch"}, set()),
    # The scanner does not report; scripts are made of templates alone.
    "the scanner does not report": ("scanner", "scanner/repro/script.py", None, {"reports", "pandas", "jinja2", "tabulate"}),
    "scripts are made of templates": ("scanner/repro", "", None, {"reports", "pandas", "tabulate"}),
    # A worker starts in an environment that has a torch and nothing of ours.
    "a worker needs torch and specs": ("scanner/worker", "", STDLIB | {"torch", "opspecs", "scanner"}, set()),
    # The fixture is loaded by a test run, never by a program.
    "a program needs torch": ("scanner/locate", "scanner/locate/fixture.py", STDLIB | {"torch", "scanner"}, set()),
    "a test run has pytest": ("scanner/locate", "", STDLIB | {"torch", "scanner", "pytest"}, set()),
    # What is no module of ours, and none of Python's, is a requirement of the extra.
    "the simulated GPU has its extra": ("scanner/gpu", "", STDLIB | {"scanner"} | SIMULATE, set()),
    # The main process scans a torch in another interpreter and needs none of its own.
    "two folders need torch": ("scanner", "scanner/worker scanner/locate", None, {"torch"}),
    # A run file renders years later, without the build that was scanned, and without its specs.
    "reports need no torch": ("reports", "reports/api.py", None, {"torch", "opspecs"}),
}  # fmt: skip


@pytest.mark.parametrize("rule", RULES)
def test_modules_import_what_their_folder_may(rule: str) -> None:
    """Packages, those inside functions too."""
    folder, others, allowed, forbidden = RULES[rule]
    found = {path: _roots(path) for path in _modules(folder) if not _below(path, *others.split())}

    assert len(found) > 1
    assert {
        path: wrong for path, it in found.items() if (wrong := it - (allowed or it) | it & forbidden)
    } == {}


def _below(path: Path, *places: str) -> bool:
    return any(ROOT / place in (path, *path.parents) for place in places)


def test_torch_is_imported_where_a_worker_calls() -> None:
    """Specs and the interface of Python import it inside functions; what specs name by a dotted path nothing imports."""
    specs = _modules("opspecs")
    assert not [one for one in specs if one not in NAMED and "torch" in _roots(one, nested=False)]
    assert not {_name(one) for one in NAMED} & {name for one in specs for name in _imports(one, nested=True)}
    assert not _roots(ROOT / "reports/api.py", nested=False) & {"torch", "opspecs"}


def test_folders_with_torch_have_plain_modules_beside_them() -> None:
    """A worker and a program find their folder, what both read bits with, and what needs the standard library alone."""
    for path in (path for folder in WITH_TORCH for path in _modules(folder)):
        worker = _below(path, "scanner/worker")
        own = ("detmatrix.scanner.worker",) if worker else ("detmatrix.scanner.locate", *READ_BITS)
        assert all(map(_plain, (name for name in _ours(path, "scanner.") if not name.startswith(own)))), path


def _plain(name: str) -> bool:
    """Tell whether a module that lies in no folder needs the standard library alone, and others like it."""
    path = ROOT / f"{name.removeprefix('detmatrix.').replace('.', '/')}.py"
    ours = _ours(path, "scanner.")
    return name.count(".") == 2 and _roots(path) <= STDLIB | {"scanner"} and all(map(_plain, ours))


def test_nothing_imports_what_runs_beside_torch() -> None:
    """Neither the worker's folder nor what runs in a program, but for the package of the latter."""
    theirs = ("detmatrix.scanner.worker", "detmatrix.scanner.locate.")
    for path in (path for path in _modules("scanner") if not _below(path, *WITH_TORCH)):
        assert not {name for name in _imports(path, nested=True) if f"{name}.".startswith(theirs)}, path


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

    floors = ("opspecs.model", "scanner.observations", "scanner.verdicts", "reports.matrix", "reports.cli")
    places = [order.index(f"detmatrix.{name}") for name in floors]
    assert places == sorted(places)


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
    paths = [path for package in PACKAGES for path in _modules(package)]
    classes = [
        node.name for path in paths for node in ast.walk(_tree(path)) if isinstance(node, ast.ClassDef)
    ]

    assert [name for name, count in Counter(classes).items() if count > 1 and not name.startswith("_")] == []


# What the repository may hold: the lines of each part stay below the table of budgets in ``pyproject.toml``.


BUDGET: dict[str, dict[str, int]] = PYPROJECT["tool"]["budget"]
MODULE = 700  # lines
ENDINGS = {
    "python": (".py",),
    "c": (".c", ".h"),
    "templates": (".j2", ".js", ".css"),
    "scripts": (".py", "", ".yml", ".js"),
}


def _files(place: str, endings: Iterable[str]) -> Iterator[Path]:
    """Yield a file, or those below a folder that have one of the endings."""
    path = ROOT / place
    yield from [path] if path.is_file() else (one for one in path.rglob("*") if one.suffix in endings)


def _lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines()) if path.is_file() else 0


@pytest.mark.parametrize(("kind", "place"), [(kind, at) for kind, places in BUDGET.items() for at in places])
def test_parts_stay_in_their_budgets(kind: str, place: str) -> None:
    """A part that needs more lines raises its budget, and the commit's message says why."""
    lines = sum(map(_lines, _files(place, ENDINGS[kind])))

    assert 0 < lines <= BUDGET[kind][place], f"{place} has {lines} lines of {kind}"


def test_every_package_has_a_budget() -> None:
    """A new package, or a script, is in the table."""
    assert {*PACKAGES, "tests"} == BUDGET["python"].keys()
    assert {path.name for path in ROOT.glob("*.py")} <= BUDGET["scripts"].keys()


def test_modules_are_short_enough() -> None:
    """A module that is longer is two things."""
    modules = [path for package in (*PACKAGES, "tests") for path in (ROOT / package).rglob("*.py")]

    assert {path.name: _lines(path) for path in modules if _lines(path) > MODULE} == {}


def test_each_planted_fault_has_its_text() -> None:
    """Once: to plant all of them takes too long for each change."""
    found = {name: (ROOT / one.file).read_text("utf-8").count(one.right) for name, one in FAULTS.items()}
    assert found == dict.fromkeys(FAULTS, 1)
