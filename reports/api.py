"""What ``import detmatrix as dm`` gives scripts and notebooks: the commands as functions, and their results as tables.

A result is printed as text, shown as Markdown or a table in a notebook, and written in each format of its command. What
executes ops is a command in a process of its own, so that the caller's process keeps its torch, threads and signals.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from pickle import UnpicklingError
from symtable import SymbolTable, symtable
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from detmatrix.reports.cli.check import view_of_function, with_gradients
from detmatrix.reports.cli.report import RENDERERS as OF_RUNS
from detmatrix.reports.commands import deliver
from detmatrix.reports.compare.page import RENDERERS as OF_CHANGES
from detmatrix.reports.compare.runs import Comparison
from detmatrix.reports.compare.runs import compare as compare_matrices
from detmatrix.reports.compare.view import view_of as view_of_changes
from detmatrix.reports.explain import RENDERERS as OF_OPS
from detmatrix.reports.explain import view_of as view_of_op
from detmatrix.reports.locate import RENDERERS as OF_PROGRAMS
from detmatrix.reports.locate import view_of as view_of_program
from detmatrix.reports.matrix.model import Matrix, load, parse_findings
from detmatrix.reports.report.view import table_of
from detmatrix.scanner.cli.options import form_of
from detmatrix.scanner.errors import EXIT_CHECK_FAILED, EXIT_DONE, EXIT_UNTRUSTED, UsageError, one_line
from detmatrix.scanner.located import Located
from detmatrix.scanner.observations.settings import SETTINGS
from detmatrix.scanner.programs.process import ProgramSettings, observe_program, program_of
from detmatrix.scanner.run.simulation import simulated_gpu

if TYPE_CHECKING:
    import pandas as pd

_ROOT = str(Path(__file__).absolute().parents[2])
_ENTRY = f"import sys; sys.path[: not sys.flags.safe_path] = [{_ROOT!r}]; from detmatrix.scanner.cli.main import main; main()"
# Set where a command of ours runs, so that a file that it loads does not start another, and so on.
_CALLED = "DETMATRIX_CALLED"
# Run files that nobody asked to keep, until the process ends.
_KEPT: list[tempfile.TemporaryDirectory[str]] = []


class Answer:
    """What a command found: ``print`` it, ``write`` it to a file, or read ``json``."""

    def __init__(self, shown: Any, renderers: Mapping[str, Callable[[Any], Iterable[str]]]) -> None:
        self._shown = shown
        self._renderers = renderers

    def __str__(self) -> str:
        return self.render("text" if "text" in self._renderers else "md").rstrip("\n")

    def _repr_markdown_(self) -> str:
        return self.render("md")

    @property
    def json(self) -> Any:
        """The same as the command's ``--format json``, parsed."""
        return json.loads(self.render("json"))

    def render(self, form: str) -> str:
        """Return the text in one of the formats of the command, such as ``"md"``.

        Raises:
            UsageError: The command has no such format.
        """
        if form not in self._renderers:
            raise UsageError(f"no format is called {form!r}; choose: {', '.join(self._renderers)}")
        return "".join(self._renderers[form](self._shown))

    def write(self, path: str | Path, form: str | None = None) -> None:
        """Write the text to a file, in the format that its name ends in unless one is named.

        Raises:
            UsageError: The command has no such format, or the file cannot be written.
        """
        (path,) = _texts("path", path)
        form = form_of(form, path, self._renderers)
        deliver([self.render(form)], form, path)


class Runs(Answer):
    """Run files: ``rows`` and ``ops`` are the tables of ``report --format csv``, with typed columns."""

    def __init__(self, matrices: Sequence[Matrix]) -> None:
        super().__init__(matrices, OF_RUNS)
        self.matrices = tuple(matrices)

    @cached_property
    def rows(self) -> pd.DataFrame:
        """A line for each row of each run: the finding, and what each mode showed."""
        return table_of(self.matrices, "rows")

    @cached_property
    def ops(self) -> pd.DataFrame:
        """A line for each op in each release on each kind of device: its worst case, and what to do."""
        return table_of(self.matrices, "ops")

    @property
    def distrust(self) -> list[str]:
        """Why runs cannot be trusted; empty if they can."""
        return [f"{one.name}: {reason}" for one in self.matrices for reason in one.distrust]

    def _repr_html_(self) -> str:
        ops = self.ops[["op", "device", "torch", "finding", "action", "rows"]]
        return str(ops.to_html(index=False))


class Explained(Answer):
    """All that is known of one op; ``finding`` is its worst, and ``action`` what to do, by device."""

    def __init__(self, view: Mapping[str, Any]) -> None:
        super().__init__(view, OF_OPS)
        self.finding: str | None = view["finding"]
        self.action: str | None = view["action"]


class Checked(Runs):
    """What a function of the user's showed: tables as of any run; ``finding`` and ``action``; as text what ``check`` says."""

    def __init__(self, matrices: Sequence[Matrix], output: str | Path | None) -> None:
        matrices = [with_gradients(one) for one in matrices]
        super().__init__(matrices)
        self._said = Explained(view_of_function(matrices[0], output, scripted=None))
        self.finding, self.action = self._said.finding, self._said.action

    def __str__(self) -> str:
        return str(self._said)


class Changes(Answer):
    """What changed between runs; ``rows`` has a line for each row and step from one run to the next."""

    def __init__(self, comparison: Comparison) -> None:
        super().__init__(comparison, OF_CHANGES)

    @cached_property
    def rows(self) -> pd.DataFrame:
        """Columns: the step, the row, its class of change, what it showed in both runs, and why it has this class."""
        import pandas as pd  # noqa: PLC0415 - only tables need it

        return pd.DataFrame(
            {
                "from": pair["from"],
                "to": pair["to"],
                "op": row["spec"],
                **{name: row[name] for name in ("case", "direction", "dtype", "device", "class")},
                **{f"{end}_finding": row[end] and row[end]["finding"] for end in ("from", "to")},
                **{name: row[name] for name in ("confirmed", "seems", "reason", "detail", "other_bits")},
            }
            for pair in view_of_changes(self._shown)["pairs"]
            for row in pair["rows"]
        )


class CallSites(Answer):
    """The ops of a program that are not reproducible; ``roots`` has a line for each call site."""

    def __init__(self, located: Located, runs: Sequence[str]) -> None:
        self._view = view_of_program(located, runs)
        super().__init__(self._view, OF_PROGRAMS)

    @cached_property
    def roots(self) -> pd.DataFrame:
        """Columns: those of the table that ``locate`` prints, and what to do."""
        import pandas as pd  # noqa: PLC0415 - only tables need it

        lines = [[*root.cells, root["to_do"]] for root in self._view["roots"]]
        return pd.DataFrame(lines, columns=[*self._view.heads, "to do"])


def read(*paths: str | Path, only: str | Sequence[str] = (), rows: str | Sequence[str] = ()) -> Runs:
    """Read run files.

    Args:
        *paths: Files that a scan wrote, or these compressed with gzip.
        only: Findings; rows with others are left out.
        rows: Patterns as in ``scan``; rows that none selects are left out.

    Raises:
        RunFileError: A file cannot be read.
        UsageError: No finding has this name.
    """
    if not paths:
        raise UsageError("read: name one run file or more")
    return Runs(
        load(_texts("path", paths), parse_findings(_texts("only", only)), tuple(_texts("rows", rows)))
    )


def scan(
    *patterns: str, output: str | Path | None = None, python: str = sys.executable, **settings: Any
) -> Runs:
    """Scan ops, as the command ``scan`` does; progress goes to standard error.

    Args:
        *patterns: Names of ops, families or row ids; none: every documented op.
        output: The run file, which is overwritten. ``None``: a temporary one.
        python: The interpreter whose torch is scanned.
        **settings: Options of the command with underscores, ``runs=20`` or ``simulate="sm_80"``.

    Raises:
        UsageError: The scan cannot be done as asked, or was interrupted. It says why.
    """
    words = ["--python", python, *_words(settings), "--", *_texts("pattern", patterns)]
    return read(_command("scan", words, output))


def check(
    function: str | Callable[..., Any],
    inputs: Any = None,
    *,
    output: str | Path | None = None,
    python: str = sys.executable,
    **settings: Any,
) -> Checked:
    """Run one function again and again with the flag off and on, as the command ``check`` does.

    Args:
        function: ``"FILE.py:FUNCTION"``, a function of a module, or one that this script or a notebook's cell defines. The
            latter may use its arguments, modules, numbers and texts; whatever else it names belongs into a module.
        inputs: ``"FILE.py:FUNCTION"``, or the arguments: a tuple, a dictionary of keywords, or a single one; tensors,
            numbers, texts and containers of them. ``None``: no arguments.
        output: The run file, which is overwritten. ``None``: a temporary one.
        python: The interpreter whose torch runs it.
        **settings: ``device``, ``simulate``, ``runs``.

    Raises:
        UsageError: The function or its inputs cannot be handed to another process, or cannot be run. It says why.
    """
    words = ["--python", python, *_words(settings)]
    if inputs is not None:
        words += ["--inputs", inputs if isinstance(inputs, str) else _inputs_file(inputs)]
    named = function if isinstance(function, str) else _function_file(function)
    return Checked(load([_command("check", [*words, "--", named], output)]), output)


def explain(op: str, *runs: str | Path) -> Explained:
    """Say all that is known of one op: documented, measured, simulated, what to do, what it costs.

    Args:
        op: A name as you type it: ``"conv2d"``, ``"torch.take"``.
        *runs: Run files; none: the recorded ones.

    Raises:
        UsageError: No op has this name.
        RunFileError: A file cannot be read.
    """
    view, _ = view_of_op(" ".join(_texts("op", op)), tuple(_texts("run", runs)))
    return Explained(view)


def compare(*runs: str | Path) -> Changes:
    """Say what changed between run files, the oldest first.

    Raises:
        UsageError: Fewer than two are named.
        RunFileError: A file cannot be read.
    """
    if len(runs) < 2:  # noqa: PLR2004 - a comparison is of two
        raise UsageError("compare: name two run files or more")
    return Changes(compare_matrices(load(_texts("run", runs))))


def locate(
    program: str | Path,
    *arguments: str,
    module: bool = False,
    runs: int = 1,
    replays: int | None = None,
    simulate: str | None = None,
    matrices: Sequence[str | Path] = (),
    python: str = sys.executable,
) -> CallSites:
    """Run a program in a process of its own, and say which of its ops are not reproducible, and where it calls them.

    A step of a notebook itself is looked at by ``with detmatrix.scanner.locate.locate() as found``.

    Args:
        program: A script, ``FILE.py:FUNCTION``, or with *module* the name of a module.
        *arguments: Of the program.
        module: Whether it is a module, as for ``python -m``.
        runs: How often the program is run; with 2 and more its runs are held against each other.
        replays: Further executions of each op. ``None``: as many as the machine needs to show a race.
        simulate: The architecture of a GPU that is simulated, ``"sm_80"``.
        matrices: Run files in which ops are looked up. Default: the recorded run of the release.
        python: The interpreter that runs it.

    Raises:
        UsageError: There is no such program.
        UntrustedScanError: A process ended before it could say what was found.
    """
    for name, number in (("runs", runs), ("replays", replays)):
        if number is not None and (not isinstance(number, int) or number < 1):
            raise UsageError(f"{name}: {number!r} is no number of executions; give 1 or more")
    words = _texts("argument", (program, *arguments))
    what = program_of(tuple(words), module=module, calls=None)
    gpu = simulated_gpu(simulate, python) if simulate else None
    settings = ProgramSettings(python=python, quiet=True, gpu=gpu, observation={"replays": replays})
    return CallSites(observe_program(what, settings, runs), _texts("matrices", matrices))


def _texts(name: str, given: object) -> list[str]:
    """Return one text or several as a list; anything else is refused."""
    texts = given if isinstance(given, (list, tuple)) else [given]
    for one in texts:
        if not isinstance(one, (str, Path)) or "\0" in str(one):
            raise UsageError(f"{name}: {one!r} is no text; give one, or a list of them")
    return [str(one) for one in texts]


def _folder() -> Path:
    _KEPT.append(tempfile.TemporaryDirectory(prefix="detmatrix-"))
    return Path(_KEPT[-1].name)


def _words(settings: Mapping[str, Any]) -> list[str]:
    """Return settings as the words of a command line, which says what is wrong with them."""
    words = []
    for name, value in settings.items():
        if name not in SETTINGS or not SETTINGS[name].option:
            raise UsageError(f"no setting is called {name!r}; see detmatrix scan --help")
        setting = SETTINGS[name]
        if isinstance(value, bool):
            words.append(setting.option if value else setting.negated)
            continue
        texts = [str(item) for item in (value if isinstance(value, (list, tuple)) else [value])]
        for text in texts if setting.several else [",".join(texts)]:
            words += [setting.option, text]
    return words


def _command(name: str, words: Sequence[str], output: str | Path | None) -> str:
    """Run a command in a process of its own, whose progress goes to our standard error; return its run file.

    What it said last is the error where it did not do what was asked.
    """
    # Whatever lies there stays until there is another.
    path = _folder() / "run.jsonl"
    if _CALLED in os.environ:
        raise UsageError(
            "a file that is being checked calls detmatrix itself; do so under if __name__ == '__main__'"
        )
    last = ""
    with subprocess.Popen(
        [sys.executable, "-c", _ENTRY, name, "-o", str(path), *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {_CALLED: "1"},
    ) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                last = line.strip()
                print(last, file=sys.stderr)
        except KeyboardInterrupt:
            process.terminate()
            raise
    # What cannot be trusted is no error: the result says so.
    if process.returncode not in {EXIT_DONE, EXIT_CHECK_FAILED, EXIT_UNTRUSTED} or not path.exists():
        raise UsageError(last.removeprefix("detmatrix: "))
    if output is None:
        return str(path)
    try:
        shutil.copyfile(path, output)
    except (OSError, TypeError, ValueError) as error:
        raise UsageError(f"{output}: {error}") from error
    return str(output)


def _inputs_file(inputs: object) -> str:
    """Write arguments and the function that reads them; return ``FILE.py:FUNCTION``."""
    import torch  # noqa: PLC0415 - only arguments that are tensors need it

    folder = _folder()
    try:
        torch.save(inputs, folder / "inputs.pt")
    except Exception as error:  # whatever an object's own pickling raises
        raise UsageError(f"inputs: cannot be handed to another process: {one_line(str(error))}") from error
    try:
        torch.load(folder / "inputs.pt", weights_only=True)
    except UnpicklingError as error:
        raise UsageError(
            "inputs: only tensors, numbers, texts, and lists, tuples and dicts of them can be handed to another process; write a "
            "function that makes the others into a file, and run detmatrix check with --inputs"
        ) from error
    code = f"import torch\n\n\ndef inputs():\n    return torch.load({str(folder / 'inputs.pt')!r}, weights_only=True)\n"
    (folder / "inputs.py").write_text(code, encoding="utf-8")
    return f"{folder / 'inputs.py'}:inputs"


def _function_file(function: Callable[..., Any]) -> str:
    """Return ``FILE.py:FUNCTION`` of a function: where it lies, or a file written of what a script or a cell defines."""
    if not isinstance(function, FunctionType) or function.__name__ == "<lambda>" or function.__closure__:
        raise UsageError(
            f"{function!r}: give a function made by def at the top of a file or of a cell, undecorated"
        )
    source = inspect.getsourcefile(function)
    # A script would be executed again, with the call that asks for this.
    if function.__module__ != "__main__" and source and Path(source).is_file():
        if function.__qualname__ != function.__name__:
            raise UsageError(f"{function.__qualname__}: give a function at the top of its file")
        return f"{Path(source).resolve()}:{function.__name__}"
    try:
        source = textwrap.dedent(inspect.getsource(function))
    except OSError as error:
        raise UsageError(f"{function.__name__}: its source is not known; write it into a file") from error
    future = "from __future__ import annotations"  # annotations are not executed, and need not be known
    used = sorted(_used(symtable(f"{future}\n{source}", "cell", "exec")) - {function.__name__})
    lines = [
        _defined(name, function.__globals__[name], source) for name in used if name in function.__globals__
    ]
    path = _folder() / f"{function.__name__}.py"
    path.write_text("\n".join([future, *lines, source]), encoding="utf-8")
    return f"{path}:{function.__name__}"


def _used(table: SymbolTable) -> set[str]:
    """Return the names that code reads of its module, that of functions within it too."""
    own = {one.get_name() for one in table.get_symbols() if one.is_global() and one.is_referenced()}
    return own.union(*(_used(one) for one in table.get_children() if one.get_type() != "annotation"))


def _defined(name: str, value: object, source: str) -> str:
    """Return the lines that give a name its value in another process; a value that no line gives is refused."""
    if isinstance(value, ModuleType):
        # Of a package also the modules that the source names; each import binds the name, the last one for good.
        named = [f"{value.__name__}{path}." for path in re.findall(rf"\b{name}((?:\.\w+)+)", source)]
        below = [
            path
            for path, module in sorted(sys.modules.items())
            if path.startswith(f"{value.__name__}.")
            and getattr(module, "__spec__", None)
            and any(one.startswith(f"{path}.") for one in named)
        ]
        return "\n".join(f"import {path} as {name}" for path in (*below, value.__name__))
    if type(value) is float:  # what is not finite has no literal
        return f"{name} = float({str(value)!r})"
    if value is None or type(value) in {bool, int, str}:
        return f"{name} = {value!r}"
    raise UsageError(
        f"the function uses {name}, which another process does not have; hand it over as an argument, or write both into a file"
    )
