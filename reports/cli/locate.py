"""The ``locate`` command: a program in, the ops of it that are not reproducible out."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from detmatrix.reports.cli.writing import Place, writes
from detmatrix.reports.locate import ENVIRONMENT_RENDERERS, RENDERERS, environment_of, suspects_of, view_of
from detmatrix.reports.render import check_place
from detmatrix.scanner.cli.options import ParamType, Whole, python_option
from detmatrix.scanner.cli.settings import Architecture
from detmatrix.scanner.errors import (
    EXIT_CHECK_FAILED,
    EXIT_DONE,
    EXIT_UNTRUSTED,
    UntrustedScanError,
    UsageError,
    one_line,
)
from detmatrix.scanner.located import FEW_REPLAYS, MOST_REPLAYS, Located, of_rank
from detmatrix.scanner.plurals import several
from detmatrix.scanner.programs.process import ProgramSettings, observe_program, of_all_ranks, program_of
from detmatrix.scanner.programs.runs import hold
from detmatrix.scanner.run.simulation import simulated_gpu


class Steps(ParamType):
    """Numbers of steps, ``A:B``, of which either may be left out."""

    name = "steps"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse what names no step."""
        if isinstance(value, tuple):
            return value
        numbers = re.fullmatch(r"([0-9]{0,18}):([0-9]{0,18})", str(value))
        first, end = (int(text) if text else None for text in numbers.groups()) if numbers else (1, 0)
        if end is not None and end <= (first or 0):
            self.fail(
                f"{value!r} names no step; give A:B, such as 10:12 for the two behind the tenth", param, ctx
            )
        return first or 0, end


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("words", metavar="PROGRAM [ARGUMENT]...", nargs=-1, required=True)
@click.option("-m", "module", is_flag=True, help="PROGRAM is a module, as for python -m.")
@click.option("--calls", type=Whole(1), metavar="N", help="Calls of FILE.py:FUNCTION. Default: 1.")
@click.option("--replay", "replays", type=Whole(1, 1000), metavar="K",
              help=f"Further executions of each op. Default: {FEW_REPLAYS}, or up to {MOST_REPLAYS} where the sentinel differs "
              "less often.")  # fmt: skip
@click.option("--runs", type=Whole(2, 100), metavar="N",
              help="Run the program N times, each op once, and hold the runs against each other.")  # fmt: skip
@click.option("--order", is_flag=True,
              help="Run Triton kernels in Triton's interpreter, on the CPU, and again with their programs in other "
              "orders.")  # fmt: skip
@click.option("--record", metavar="FILE",
              help="Run the program once, and write digests of what its ops were given and gave, for --diff; compressed if "
              "FILE ends in .gz.")  # fmt: skip
@click.option("--diff", is_flag=True,
              help="PROGRAM and its arguments are records: hold the first against the others, and name the first op that "
              "differs. Goes with --steps, --only-first and --ignore.")  # fmt: skip
@click.option("--first-step", type=Whole(0), default=0, metavar="N",
              help="With --record: the number of the first step, where the program resumes an earlier run. "
              "Default: 0.")  # fmt: skip
@click.option("--suspects", is_flag=True,
              help="Execute each op once, and show each beside what a simulated GPU showed of it for this release: nothing is "
              "measured.")  # fmt: skip
@click.option("--simulate", type=Architecture(), metavar="ARCH",
              help="Run CUDA ops on a simulated GPU (sm_80), and each again in other orders of its threads: slow, and nothing "
              "is measured.")  # fmt: skip
@click.option("--only-first", is_flag=True, help="Look no further than the first call site that differs.")
@click.option("--ignore", "ignored", multiple=True, metavar="OP",
              help="Do not look at this op (aten::index_put_) or kernel (triton::NAME). May be given more than "
              "once.")  # fmt: skip
@click.option("--steps", type=Steps(), default=":", metavar="A:B",
              help="Look at the steps from A on and before B, as Python counts: of an optimizer, or calls of "
              "FILE.py:FUNCTION. Default: all.")  # fmt: skip
@click.option("--max-bytes", type=Whole(1), default=1 << 30, show_default=True, metavar="N",
              help="Bytes of copies that an op executed again may take.")  # fmt: skip
@click.option("--eager", is_flag=True, help="Let torch.compile compile nothing.")
@click.option("--save", metavar="DIR",
              help="Keep the inputs of each root in this folder, for detmatrix repro FILE.pt.")  # fmt: skip
@click.option("--matrix", "matrices", multiple=True, metavar="RUN",
              help="Look ops up in this run file. May be given more than once. Default: the recorded run of the "
              "release.")  # fmt: skip
@python_option("The interpreter to run the program with; it needs only torch.")
@writes(RENDERERS, "A table for the terminal, Markdown, a page, or JSON.", default="text")
def locate(
    words: tuple[str, ...],
    module: bool,
    calls: int | None,
    replays: int | None,
    runs: int | None,
    order: bool,
    record: str | None,
    diff: bool,
    suspects: bool,
    simulate: str | None,
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
    that write through a pointer. Two jobs, on other machines or of other releases, are recorded with --record and held
    against each other with --diff A B. Options of this command stand before PROGRAM.

    Exit codes: 1 a call site differs, or two runs call different ops, 0 none does, 4 none does and none could have been seen to.
    """
    _check_choices()
    if diff and len(words) == 1:
        raise UsageError(f"--diff: give two records or more, not {words[0]} alone")
    to.check(matrices)
    if diff:
        chosen = {name: observed[name] for name in ("ignored", "steps", "only_first")}
        return _told(hold(words, **chosen), to, matrices)
    if record is not None:
        record = of_rank(record)
        check_place(Path(record), option="--record")
        if Path(record).exists() and not Path(record).is_file():
            raise UsageError(f"{record}: is no file; choose another place with --record")
    program = program_of(words, module=module, calls=calls)
    settings = ProgramSettings(
        gpu=simulated_gpu(simulate, python) if simulate else None,
        python=python,
        quiet=to.path is None and to.form != "text",
        eager=eager,
        order=order,
        observation={
            **observed,
            "replays": 0 if suspects else replays,
            "save": save and str(Path(save).resolve()),
            "progress": True,
            "regions": record is not None,
            "record": record and str(Path(record).resolve()),
        },
    )
    located = observe_program(program, settings, 1 if record or suspects else runs or 1)
    if record is not None:
        return _recorded(located, record)
    if suspects:
        told = suspects_of(located, matrices)
        to.write(told, matrices)
        judged = any(one["row"] is not None for one in told["called"])
        return EXIT_DONE if judged and located.ended is None else EXIT_UNTRUSTED
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if runs is None and ranks > 1 and "TORCHELASTIC_ERROR_FILE" in os.environ:
        joined = of_all_ranks(located)
        if joined is None:
            return EXIT_DONE  # the first rank says it, with its exit code
        located = joined
    return _told(located, to, matrices)


_ONCE = "with {} each op is executed once in each run"
_AGAIN = {"replays", "save", "order", "simulate"}
# Options, the parameters that they have no use for, and why.
_ALONE: dict[str, tuple[set[str], str]] = {
    "diff": (
        _AGAIN
        | {"module", "calls", "runs", "record", "first_step", "suspects", "max_bytes", "eager", "python"},
        "with {} no program is run",
    ),
    "runs": (_AGAIN, _ONCE),
    "record": (_AGAIN | {"runs", "ignored", "only_first", "max_bytes", "matrices"}, _ONCE),
    "suspects": (_AGAIN | {"runs", "record", "ignored", "only_first", "max_bytes"}, _ONCE),
    "simulate": ({"order"}, "neither runs what the other does"),
}


def _check_choices() -> None:
    """Refuse options beside one that has no use for them; what a file of defaults says gives way to it."""
    context = click.get_current_context()
    options = {one.name: one.opts[-1] for one in context.command.params if one.name}
    source = context.get_parameter_source
    given = [name for name in options if source(name) is ParameterSource.COMMANDLINE]
    for name, (refused, why) in _ALONE.items():
        beside = [options[other] for other in given if other in refused]
        if beside and source(name) is not ParameterSource.DEFAULT:
            raise UsageError(f"{beside[0]} and {options[name]}: choose one; {why.format(options[name])}")
    if "first_step" in given and "record" not in given:
        raise UsageError("--first-step: is of a record; give --record FILE, too")


def _recorded(located: Located, record: str) -> int:
    """Say what was recorded."""
    if not Path(record).is_file():
        raise UntrustedScanError(f"{record}: is not there any more; the program has removed it")
    ended = f"; the program ended early: {one_line(located.ended)}" if located.ended else ""
    counted = f"{several(located.ops, 'op')}, {several(located.steps, 'step')}"
    click.echo(f"detmatrix: {record}: {counted}{ended}", err=True)
    return EXIT_UNTRUSTED if ended or not located.ops else EXIT_DONE


def _told(located: Located, to: Place, matrices: tuple[str, ...]) -> int:
    """Write the report; return the exit code."""
    to.write(view_of(located, matrices), matrices)
    if located.roots or located.partings:
        return EXIT_CHECK_FAILED
    return EXIT_DONE if located.could_see and located.ended is None else EXIT_UNTRUSTED


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("words", metavar="[PROGRAM [ARGUMENT]...]", nargs=-1)
@click.option("-m", "module", is_flag=True, help="PROGRAM is a module, as for python -m.")
@python_option("The interpreter to run the program with; it needs only torch.")
@writes(ENVIRONMENT_RENDERERS, "A table for the terminal, or JSON.", default="text")
def env(words: tuple[str, ...], module: bool, python: str, to: Place) -> int:
    """Say what is set, at the end of PROGRAM or where there is none, of what decides whether bits repeat.

    Flags, cuBLAS' workspace, cuDNN's switches, attention's backends, TF32, autotuning, NCCL, seeds: each with its value, what of it
    breaks reproducibility, and what to write. PROGRAM is run as python would, each op once.

    Exit codes: 0 done, 4 the program failed.
    """
    if module and not words:
        raise UsageError("-m: name the module")
    program = program_of(words or (os.devnull,), module=module, calls=None)
    settings = ProgramSettings(
        python=python, quiet=to.path is None and to.form != "text", observation={"replays": 0}
    )
    located = observe_program(program, settings)
    to.write(environment_of(located), ())
    return EXIT_DONE if located.ended is None else EXIT_UNTRUSTED
