"""The command line: a table from command to where it lives, loaded when called, and the error boundary.

``detmatrix --help`` therefore imports no command, and with it neither torch nor jinja2. Defaults of options come from
``[tool.detmatrix.COMMAND]`` of the nearest ``pyproject.toml``. That file may be anyone's: it can choose numbers, switches and
names out of lists, and neither what is executed nor where anything is written, which the command line alone says.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Collection
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

import click

from detmatrix.scanner.cli.options import DEFAULTS
from detmatrix.scanner.errors import (
    EXIT_DONE,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    DetmatrixError,
    UsageError,
    one_line,
)

# Command -> (module:attribute, what help says of it).
COMMANDS: dict[str, tuple[str, str]] = {
    "list": ("scanner.cli.list:command", "List the ops and cases of the catalog."),
    "scan": ("scanner.cli.scan:command", "Run ops again and again under both modes; write a run file."),
    "merge": ("scanner.cli.merge:command", "Join run files that hold shards of one plan."),
    "check": ("reports.cli.check:check", "Run one function of yours again and again: FILE.py:FUNCTION."),
    "locate": ("reports.locate:locate", "Run your program; say which of its ops are not reproducible, and where."),
    "env": ("reports.locate:env", "Say what is set that decides whether bits repeat, and what to write instead."),
    "report": ("reports.cli.report:report", "Render run files as text, Markdown, HTML, CSV or JSON."),
    "explain": ("reports.explain:explain", "Say all that is known of one op: documented, measured, why, what to do."),
    "libraries": ("reports.libraries:libraries", "Say what cuDNN, cuBLAS, MKL and others document: documented, not measured."),
    "repro": ("scanner.cli.repro:command", "Write a script that needs only torch and shows what a row showed."),
    "docs": ("reports.cli.docs:docs", "Check the documented lists against run files, and regenerate them."),
    "coverage": ("reports.coverage:coverage", "Which of PyTorch's overloads the rows of run files reach."),
    "cudnn": ("reports.cudnn:cudnn", "Which engines of cuDNN are nondeterministic, without a GPU: expected, not measured."),
    "compare": ("reports.compare.page:command", "Compare runs: what improved, regressed, changed."),
    "site": ("reports.site:command", "Make a folder of web pages of run files, with a page for each op."),
}  # fmt: skip


# What shows a scan that has ended: the scanner itself knows no reports.
SUMMARY = "reports.cli.report:summarize"


def load(place: str) -> Any:
    """Import what lies at "module:attribute" of this package."""
    module, _, attribute = place.partition(":")
    return getattr(importlib.import_module(f"detmatrix.{module}"), attribute)


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Name the commands in the table's order."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command, and look for defaults of its options."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = load(COMMANDS[cmd_name][0])
        if (path := defaults_file()) is not None:
            ctx.default_map = {cmd_name: defaults_of(path, cmd_name, command, COMMANDS)}
            ctx.meta[DEFAULTS] = str(path)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the list of commands from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


def _print_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        from detmatrix.scanner.processes.environment import tool_version  # noqa: PLC0415 - reading the metadata takes time

        click.echo(f"detmatrix {tool_version()}")
        ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version,
              help="Show the version and exit.")  # fmt: skip
def cli() -> None:
    """Measure whether each PyTorch op is deterministic, nondeterministic, or raises.

    Runs each op again and again on the same input with torch.use_deterministic_algorithms off and on, compares
    raw bits, and renders the matrix.

    Exit codes: 0 done (differences are data, not failure), 1 a check you asked for failed, 2 usage, 3 unreadable
    file or build, 4 the scan cannot be trusted, 130 interrupted.
    """


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit; every error a user can cause is one line on standard error."""
    _open_closed_streams()
    # Without arguments help is what was asked for; click would complain with the help as its message.
    arguments = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    try:
        code = cli.main(arguments, prog_name="detmatrix", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        _fail(_usage(error), EXIT_USAGE)
    except DetmatrixError as error:
        _fail(str(error), error.exit_code)
    except (BrokenPipeError, SystemExit):
        # Whoever read our output has seen enough; click, where it meets this, would exit with 1.
        _discard_output()
        sys.exit(EXIT_DONE)
    except OSError as error:
        _discard_output()
        _fail(f"{error.filename or 'standard output'}: {error.strerror or error}", EXIT_USAGE)
    except (KeyboardInterrupt, click.Abort):
        _fail("interrupted", EXIT_INTERRUPTED)
    sys.exit(code if isinstance(code, int) else EXIT_DONE)


def _open_closed_streams() -> None:
    """Give a stream that the shell closed (``>&-``) somewhere to go; the next file opened would take its place."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - until the end


def _discard_output() -> None:
    """Keep the flush at exit from complaining as well."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _usage(error: click.ClickException) -> str:
    """Return click's complaint on one line, with where to look."""
    text = error.format_message().rstrip(".")
    ctx: Any = getattr(error, "ctx", None)
    return f"{text} (see {ctx.command_path} --help)" if ctx is not None else text


def _fail(message: str, code: int) -> NoReturn:
    with contextlib.suppress(OSError):
        click.echo(f"detmatrix: {one_line(message)}", err=True)
    sys.exit(code)


NAME = "pyproject.toml"
_MARK = b"tool.detmatrix"


def defaults_file() -> Path | None:
    """Return the nearest ``pyproject.toml``, here or in a folder above, if it has defaults."""
    here = Path.cwd()
    nearest = next((path for folder in (here, *here.parents) if (path := folder / NAME).is_file()), None)
    try:
        return nearest if nearest is not None and _MARK in nearest.read_bytes() else None
    except OSError:
        return None


def defaults_of(path: Path, name: str, command: click.Command, commands: Collection[str]) -> dict[str, Any]:
    """Return the defaults of a command by the names of its parameters; refuse names that there are not, and those it must not name."""
    tables = _tables(path)
    for other, table in tables.items():
        if not isinstance(table, dict) and other not in commands:
            raise UsageError(
                f"{path}: [tool.detmatrix] {other}: belongs to no command; put it into [tool.detmatrix.COMMAND]"
            )
        if other not in commands:
            raise UsageError(f"{path}: [tool.detmatrix.{other}] is no command{_near(other, commands)}")
    table = tables.get(name, {})
    if not isinstance(table, dict):
        raise UsageError(f"{path}: tool.detmatrix.{name} must be a table")
    options = {
        spelled.removeprefix("--"): one
        for one in command.params
        if isinstance(one, click.Option)
        for spelled in one.opts
    }
    found: dict[str, Any] = {}
    for key, value in table.items():
        where = f"{path}: [tool.detmatrix.{name}] {key}"
        option = options.get(key)
        if option is None or option.name is None:
            raise UsageError(f"{where}: is no option of detmatrix {name}{_near(key, options)}")
        if not _is_harmless(option):
            raise UsageError(
                f"{where}: is taken from the command line alone; numbers, switches and names out of lists have defaults here"
            )
        found[option.name] = _value(where, option, value)
    return found


def _tables(path: Path) -> dict[str, Any]:
    import tomllib  # noqa: PLC0415 - hardly anyone has a table

    try:
        tool = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {})
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: cannot be read ({error})") from error
    tables = tool.get("detmatrix", {}) if isinstance(tool, dict) else {}
    return tables if isinstance(tables, dict) else {}


def _is_harmless(option: click.Option) -> bool:
    """Tell whether an option chooses among what there is: no path, no text, no flag that overwrites or confirms."""
    if option.multiple:
        return False
    if option.is_flag:
        return bool(option.secondary_opts)
    numbers = (click.IntRange, click.FloatRange, click.Choice)
    return isinstance(option.type, numbers) or getattr(option.type, "chooses", False)


def _value(where: str, option: click.Option, value: Any) -> Any:
    """Return a value as the command line would have it."""
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        value = ",".join(value)
    if isinstance(value, bool) != option.is_flag or not isinstance(value, (bool, int, float, str)):
        raise UsageError(f"{where}: {value!r} is no value of it")
    try:
        option.type.convert(value, option, None)
    except click.BadParameter as error:
        raise UsageError(f"{where}: {error.message.rstrip('.')}") from error
    return value


def _near(name: str, names: Collection[str]) -> str:
    near = get_close_matches(name, list(names), n=1)
    return f"; did you mean {near[0]}?" if near else ""
