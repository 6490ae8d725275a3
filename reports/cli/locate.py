"""The ``locate`` command: a program in, the ops of it that are not reproducible out."""

from __future__ import annotations

from pathlib import Path

import click

from reports.locate.render import RENDERERS
from reports.render.output import check_place, write_report, write_to_stdout
from scanner.cli.options import format_option, output_option, python_option
from scanner.errors import EXIT_CHECK_FAILED, EXIT_DONE, EXIT_UNTRUSTED
from scanner.located import Located
from scanner.programs.process import ProgramSettings, observe_program, program_of


@click.command(context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False})
@click.argument("words", metavar="PROGRAM [ARGUMENT]...", nargs=-1, required=True)
@click.option("-m", "module", is_flag=True, help="PROGRAM is a module, as for python -m.")
@click.option("--calls", type=click.IntRange(1), metavar="N", help="Of FILE.py:FUNCTION. Default: 1.")
@click.option(
    "--replay",
    "replays",
    type=click.IntRange(1, 1000),
    default=4,
    show_default=True,
    metavar="K",
    help="Further executions of each op.",
)
@click.option(
    "--ignore",
    "ignored",
    multiple=True,
    metavar="OP",
    help="Execute this op once only. May be given more than once.",
)
@python_option("The interpreter to run it with; it needs only torch.")
@format_option(RENDERERS, "A table for the terminal, or JSON.", default="text")
@output_option
def locate(
    words: tuple[str, ...],
    module: bool,
    calls: int | None,
    replays: int,
    ignored: tuple[str, ...],
    python: str,
    form: str,
    output: str | None,
) -> int:
    """Run PROGRAM, a script, as python would, and say which of its ops are not reproducible, and where it calls them.

    PROGRAM may be FILE.py:FUNCTION too, a function that is called without arguments. Each op that reaches PyTorch's
    dispatcher is executed again on the same inputs, and compared bit for bit.
    """
    if output is not None:
        check_place(Path(output))
    program = program_of(words, module=module, calls=calls)
    settings = ProgramSettings(
        python=python,
        quiet=output is None and form != "text",
        observation={"replays": replays, "ignored": ignored},
    )
    located, _ = observe_program(program, settings)
    pieces = RENDERERS[form](located)
    if output is None:
        write_to_stdout(pieces)
    else:
        write_report(Path(output), pieces)
    return _exit_code(located)


def _exit_code(located: Located) -> int:
    if located.roots:
        return EXIT_CHECK_FAILED
    blind = located.ended is not None or not any(one.differing for one in located.sentinels)
    return EXIT_UNTRUSTED if blind else EXIT_DONE
