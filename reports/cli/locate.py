"""The ``locate`` command: a program in, the ops of it that are not reproducible out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from reports.cli.writing import Place, writes
from reports.locate import RENDERERS, view_of
from scanner.cli.options import Whole, python_option
from scanner.errors import EXIT_CHECK_FAILED, EXIT_DONE, EXIT_UNTRUSTED, UsageError
from scanner.located import Located
from scanner.programs.process import ProgramSettings, observe_program, program_of

_REPLAYS = 4


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("words", metavar="PROGRAM [ARGUMENT]...", nargs=-1, required=True)
@click.option("-m", "module", is_flag=True, help="PROGRAM is a module, as for python -m.")
@click.option("--calls", type=Whole(1), metavar="N", help="Calls of FILE.py:FUNCTION. Default: 1.")
@click.option(
    "--replay",
    "replays",
    type=Whole(1, 1000),
    metavar="K",
    help=f"Further executions of each op. Default: {_REPLAYS}.",
)
@click.option(
    "--runs",
    type=Whole(2, 100),
    metavar="N",
    help="Run the program N times, each op once, and hold the runs against each other.",
)
@click.option(
    "--order",
    is_flag=True,
    help="Run Triton kernels in Triton's interpreter, on the CPU, and again with their programs in other orders.",
)
@click.option("--only-first", is_flag=True, help="Look no further than the first call site that differs.")
@click.option(
    "--ignore",
    "ignored",
    multiple=True,
    metavar="OP",
    help="Do not look at this op (aten::index_put_) or kernel (triton::NAME). May be given more than once.",
)
@click.option("--max-ops", type=Whole(1), metavar="N", help="Look at the first N ops.")
@click.option(
    "--skip",
    type=Whole(0),
    default=0,
    metavar="N",
    help="Steps to leave out first: of an optimizer, or calls of FILE.py:FUNCTION.",
)
@click.option("--take", type=Whole(1), metavar="N", help="Steps to look at, then.")
@click.option(
    "--max-bytes",
    type=Whole(1),
    default=1 << 30,
    show_default=True,
    metavar="N",
    help="Bytes of copies that an op executed again may take.",
)
@click.option("--eager", is_flag=True, help="Let torch.compile compile nothing.")
@click.option(
    "--save", metavar="DIR", help="Keep the inputs of each root in this folder, for detmatrix repro FILE.pt."
)
@click.option(
    "--matrix",
    "matrices",
    multiple=True,
    metavar="RUN",
    help="Look ops up in this run file. May be given more than once. Default: the recorded run of the release.",
)
@python_option("The interpreter to run the program with; it needs only torch.")
@writes(RENDERERS, "A table for the terminal, Markdown, a page, or JSON.", default="text")
def locate(
    words: tuple[str, ...],
    module: bool,
    calls: int | None,
    replays: int | None,
    runs: int | None,
    order: bool,
    eager: bool,
    save: str | None,
    matrices: tuple[str, ...],
    python: str,
    to: Place,
    **observed: Any,
) -> int:
    """Run PROGRAM, a script, as python would, and say which of its ops are not reproducible, and where it calls them.

    PROGRAM may be FILE.py:FUNCTION too, a function that takes no arguments. Each op that reaches PyTorch's dispatcher is
    executed again on the same inputs and compared bit for bit. With --runs the program is run several times
    instead, which also shows what is no op of PyTorch's: unseeded generators, data that comes in another order, kernels
    that write through a pointer. Options of this command stand before PROGRAM.

    Exit codes: 1 a call site differs, or two runs call different ops, 0 none does, 4 none does and none could have been seen to.
    """
    if runs is not None and replays is not None:
        raise UsageError("--replay and --runs: choose one; with --runs each op is executed once in each run")
    if runs is not None and save is not None:
        raise UsageError("--save: keeps the inputs of ops that differ on replay; leave --runs out")
    if runs is not None and order:
        raise UsageError("--order: runs launches again in one run of the program; leave --runs out")
    to.check(matrices)
    program = program_of(words, module=module, calls=calls)
    settings = ProgramSettings(
        python=python,
        quiet=to.path is None and to.form != "text",
        eager=eager,
        order=order,
        observation={
            **observed,
            "replays": replays or _REPLAYS,
            "save": save and str(Path(save).resolve()),
            "progress": True,
        },
    )
    located = observe_program(program, settings, runs or 1)
    to.write(view_of(located, matrices), matrices)
    return _exit_code(located)


def _exit_code(located: Located) -> int:
    if located.roots or located.partings:
        return EXIT_CHECK_FAILED
    blind = (
        located.ended is not None or not any(one.differing for one in located.sentinels) or not located.ops
    )
    return EXIT_UNTRUSTED if blind else EXIT_DONE
