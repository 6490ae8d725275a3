"""Which ops of a program are not reproducible, in every format: the roots, what is known of them, what to do."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import msgspec
from click.core import ParameterSource

from detmatrix.reports.commands import Place, writes
from detmatrix.reports.matrix.model import Matrix, load, recorded
from detmatrix.reports.matrix.run_words import bullet_words
from detmatrix.reports.render import View, check_place, grouped, json_of, markdown_pieces, page_pieces
from detmatrix.scanner.claims.matching import matches
from detmatrix.scanner.cli.options import ParamType, Whole, python_option
from detmatrix.scanner.cli.setting_options import architecture
from detmatrix.scanner.errors import (
    EXIT_CHECK_FAILED,
    EXIT_DONE,
    EXIT_UNTRUSTED,
    UntrustedScanError,
    UsageError,
    one_line,
    safe_lines,
)
from detmatrix.scanner.located import (
    CAUSE_MEANING,
    FEW_REPLAYS,
    MOST_REPLAYS,
    Located,
    Root,
    WithFlag,
    advice,
    columns,
    details,
    in_order,
    notes,
    of_rank,
    phase_words,
    site_words,
    summary,
    table,
    text,
)
from detmatrix.scanner.observations import torch_versions
from detmatrix.scanner.plurals import several
from detmatrix.scanner.programs.process import ProgramSettings, observe_program, of_all_ranks, program_of
from detmatrix.scanner.programs.runs import hold
from detmatrix.scanner.run.simulation import simulated_gpu
from detmatrix.scanner.verdicts.findings import MatrixRow
from detmatrix.scanner.verdicts.vocabulary import CURED, FINDINGS, Finding

# What an op that differs and does this with the flag on is called in the matrix.
_FINDINGS: dict[WithFlag | None, Finding] = {
    "cured": "fixed_by_mode",
    "raises": "raises",
    "differs": "silent",
}


def view_of(located: Located, runs: Sequence[str] = ()) -> View:
    """Return the report of a program, whose ops are looked up in *runs*, or in the recorded one of its release if there is one."""
    roots = in_order(located)
    heads, rows = table(located)
    looked_up = roots and (runs or not located.simulated)
    index = OverloadIndex(load(runs or recorded_run(located.torch)) if looked_up else [])
    places = [index.place(root) for root in roots]
    shown = [
        View(
            {**asdict(root), "matrix": place, "to_do": advice(root)},
            name=one_line(root.site.op),
            cells=row,
            details="; ".join(details(root)),
            place=matrix_words(place) if place else None,
        )
        for root, place, row in zip(roots, places, rows, strict=True)
    ]
    return View(
        {**asdict(located), "roots": shown},
        summary=summary(located),
        heads=heads,
        notes=notes(located),
        causes={cause: CAUSE_MEANING[cause] for cause in dict.fromkeys(root.cause for root in roots)},
        text=text(located, {number: one.place for number, one in enumerate(shown) if one.place}),
    )


# Findings of rows whose bits depend on the order of execution, worst first.
_HANGS: tuple[Finding, ...] = ("silent", "raises", *CURED)
_TO_DO = {
    "silent": "the flag does not cure it; choose another op",
    "raises": "the flag stops it with an error; choose another op",
    "fixed_by_mode": "torch.use_deterministic_algorithms(True) cures it",
    "uninitialized": "write the memory before it is read",
}
_SUSPECT_HEADS = ["on CUDA, simulated", "op", "line", "module", "phase", "calls"]


def suspects_of(located: Located, runs: Sequence[str] = ()) -> View:
    """Return the report of a program whose ops were only counted: each beside what a simulated GPU showed of it.

    Without *runs* on a simulated GPU those recorded of its release, or of the nearest, are read.
    """
    simulated, own, others = _simulated(located, runs)
    ranked = []
    for site, calls in located.called:
        direction = "backward" if site.phase == "backward" else "forward"
        beside = [it for it in others.get(site.op, ()) if it.row.direction == direction]
        rank, verdict, row = _verdict(own.get(site.op, []), beside)
        name = one_line(site.op)
        place = (site_words(site), one_line(site.module or ""), phase_words(site))
        view = View(
            {"site": asdict(site), "calls": calls, "verdict": verdict, "row": row and row.row.id},
            name=name,
            cells=[verdict, name, *place, str(calls)],
            details=f"{row.row.id}: {row.off.reason or row.row.why}" if row else "no row reaches it",
            hangs=rank < len(_HANGS),
            place=None,
            to_do=_to_do(verdict, row),
        )
        ranked.append((rank, -calls, view))
    roots = [one for *_, one in sorted(ranked, key=lambda one: one[:2])]
    hanging = [one for one in roots if one.hangs]
    gpus = ((one.name, one.run.header.environment.simulated) for one in simulated)
    where = ", ".join(f"{name} ({gpu.name})" for name, gpu in gpus if gpu)
    said = f"Of {several(len(roots), 'call site')}, {several(len(hanging), 'may depend', '')} on the order of execution where CUDA was simulated"
    summary = f"{said}: {several(located.ops, 'op')}, each executed once (torch {one_line(located.torch)})."
    notes = [
        f"The verdicts are of {where}; simulated, with other inputs than the program's, and nothing of them was measured on a GPU."
        if simulated
        else "No run of a simulated GPU is among those that --matrix names.",
        *([f"The program used {located.device}."] if located.device else []),
        *_ended(located),
    ]
    to_do = {one.name: f"{one.name}: {one.details} To do: {one.to_do}." for one in hanging}
    lines = [summary, "", *columns(_SUSPECT_HEADS, [one.cells for one in roots]), "", *to_do.values()]
    return View(
        {"torch": located.torch, "ops": located.ops, "device": located.device, "called": roots},
        summary=summary,
        heads=_SUSPECT_HEADS,
        notes=notes,
        causes={},
        roots=roots,
        text="\n".join([*lines, *([""] if hanging else []), *notes]) + "\n",
    )


def _ended(located: Located) -> list[str]:
    return [f"The program ended early: {one_line(located.ended)}."] if located.ended else []


def _simulated(
    located: Located, runs: Sequence[str]
) -> tuple[list[Matrix], dict[str, list[MatrixRow]], dict[str, list[MatrixRow]]]:
    """Return runs of a simulated GPU, and by overload the rows of its op and those of other ops that tell something of it."""
    # Those recorded of the release, or else of the newest that is not newer, or of the oldest.
    release = torch_versions.release(located.torch)
    known = [Path(path).name.split("-")[1] for path in recorded(what="simulated-*")]
    release = [*known[:1], *(one for one in known if torch_versions.key(one) <= torch_versions.key(release))][
        -1
    ]
    # On the GPU that was used, or on all there are.
    recordings = recorded(release, f"simulated-{located.device}") or recorded(release, "simulated-*")
    simulated = [one for one in load(runs or recordings) if one.simulated]
    # Their rows by the overloads that they reach, which runs on the CPU have recorded; those first that reach the fewest.
    by_case = grouped(
        ((it.row.spec, it.row.case, it.row.direction), it) for one in simulated for it in one.rows
    )
    reached: dict[str, dict[str, MatrixRow]] = {}
    overloads: dict[str, set[str]] = {}
    for name, _, _, one in sorted(_reaching(load(recorded_run(release))), key=lambda one: one[1]):
        for it in by_case.get((one.row.spec, one.row.case, one.row.direction), ()):
            reached.setdefault(name, {})[it.row.id] = it
            overloads.setdefault(it.row.id, set()).add(name)
    own = {name: _own(name, rows.values()) for name, rows in reached.items()}
    # Where a row reaches an overload that hangs by rows of its own, it says nothing of what else it reaches.
    hanging = {name for name, rows in own.items() if any(it.finding in _HANGS for it in rows)}
    others = {
        name: [
            it for it in rows.values() if it not in own[name] and not hanging & overloads[it.row.id] - {name}
        ]
        for name, rows in reached.items()
    }
    return simulated, own, others


def _own(op: str, rows: Iterable[MatrixRow]) -> list[MatrixRow]:
    """Return the rows of an op that has the name of an overload; one of a backward phase has those rows."""
    direction = "backward" if "backward" in op else "forward"
    return [
        one
        for one in rows
        if one.row.direction == direction
        and _plain(op) in {_plain(one.row.op), _plain("_".join(one.row.op.split(".")[-2:]))}
    ]


def _verdict(own: Sequence[MatrixRow], others: Sequence[MatrixRow]) -> tuple[int, str, MatrixRow | None]:
    """Return how an op ranks among suspects, what a simulated GPU showed of it, and the row that does.

    Of *others*, which reach it, those come first that reach the fewest; they may depend on what else they reach.
    """
    for rows in (own, others):
        hangs = sorted(
            (one for one in rows if one.finding in _HANGS), key=lambda one: _HANGS.index(one.finding)
        )
        judged = [one for one in rows if one.off.verdict not in {"not_run", "error"}]
        # One row of a kind that was simulated says little of an op whose other rows call a library.
        for one in [*hangs, *judged][: bool(hangs) or 2 * len(judged) > len(rows)]:
            part = "" if rows is own else f"part of {one.row.spec}: "
            if not hangs:
                return len(_HANGS) + 3, f"{part}{one.finding}", one
            if part:
                return len(_HANGS), f"no row of its own; reached by {one.row.spec} ({one.finding})", one
            alike = sum(it.finding == one.finding for it in judged)
            some = "" if alike == len(judged) else f" in {alike} of {len(judged)} rows"
            return _HANGS.index(one.finding), f"{one.finding}{some}", one
    if not own and not others:
        return len(_HANGS) + 2, "no row", None
    row = (own or others)[0]
    reasons = " ".join(one.off.reason or "" for one in own or [row])
    libraries = ["cuBLAS"] if "matrix products" in reasons else []
    libraries += re.findall(r"\((cu[A-Z]\w+)\)", reasons)
    why = (", ".join(dict.fromkeys(libraries)) or "error") + ("" if own else f", part of {row.row.spec}")
    return len(_HANGS) + 1, f"not judged: {why}", row


def _to_do(verdict: str, row: MatrixRow | None) -> str:
    if row is None or row.finding not in _TO_DO:
        return "nothing"
    if not verdict.startswith(row.finding):
        return f"see when that op does: detmatrix explain {row.row.spec}"
    some = verdict.partition(" in ")[2]
    alike = f"that is {some} of this op: compare the arguments; if yours are like it, " if some else ""
    return alike + _TO_DO[row.finding]


def _plain(name: str) -> str:
    """Return the name of an op without what tells its kinds apart: of ``aten::embedding_dense_backward`` embedding."""
    name = name.rpartition("::")[2].partition(".")[0] if "::" in name else name.rpartition(".")[2]
    return re.sub(r"^_+|_+$|(_dense|_data)?_backward(_data)?$|_forward$", "", name.lower())


def _reaching(matrices: Iterable[Matrix]) -> Iterator[tuple[str, int, Matrix, MatrixRow]]:
    """Yield the overloads that rows reach: the name of one, among how many, the run and the row."""
    for matrix in matrices:
        rows = {row.row.key: row for row in matrix.rows}
        for dispatch in matrix.run.dispatches:
            if (row := rows.get(dispatch.key)) is not None:
                names = {name for mode in dispatch.modes.values() for name in mode.overloads}
                yield from ((name, len(names), matrix, row) for name in names)


def matrix_words(place: dict[str, Any]) -> str:
    """Say what the matrix shows of an op."""
    where = "In the matrix, with other arguments" if place["other_case"] else "In the matrix"
    where += ", by its arguments" if len(place["cases"]) > 1 else ""
    said = f"{where}: {', '.join(f'{finding} ({row})' for finding, row in place['cases'].items())}"
    if place["alerts"]:
        said += f", alert caller {', '.join(place['alerts'])}"
    said += f". {place['why']}"
    return said + (
        f" Documented: {'; '.join(place['documented'])}." if place["documented"] else " Not documented."
    )


class OverloadIndex:
    """Finds the rows that reach an overload."""

    def __init__(self, matrices: Sequence[Matrix]) -> None:
        self._rows = grouped(
            (name, (FINDINGS.index(row.finding), among, place, matrix, row))
            for place, (name, among, matrix, row) in enumerate(_reaching(matrices))
        )

    def place(self, root: Root) -> dict[str, Any] | None:
        """Return the row that says most of an op: of its direction, that does as it did, with the worst finding."""
        direction = "backward" if root.site.phase == "backward" else "forward"
        seen = _FINDINGS.get(root.flag)
        found = self._rows.get(root.site.op)
        if not found:
            return None
        *_, matrix, row = min(
            found,
            key=lambda one: (
                one[4].row.direction != direction,
                seen is not None and one[4].finding != seen,
                one[4].row.source != "documented",
                *one[:3],
            ),
        )
        claims = (bullet_words(claim) for claim in matrix.run.header.claims if matches(row.row, claim))
        # What the flag does was not seen: the first row of each other finding that differs may be that of the call, too.
        cases = {row.finding: row.row.id}
        for *_, one in sorted(found, key=lambda one: one[:3]) if seen is None else ():
            same = (one.row.spec, one.row.direction) == (row.row.spec, row.row.direction)
            if same and one.finding in _HANGS:
                cases.setdefault(one.finding, one.row.id)
        # What calls many ops has a reason of its own.
        spec = row.row.spec
        about = "" if _plain(spec.rpartition(":")[2]) == _plain(root.site.op) else f"Of {spec}: "
        return {
            "run": matrix.name,
            "row": row.row.id,
            "spec": spec,
            "finding": row.finding,
            "cases": cases,
            "other_case": seen is not None and row.finding != seen,
            "why": about + row.row.why,
            "alerts": row.alerts,
            "documented": [*dict.fromkeys(claims)],  # bullets of the lists that speak of the row
        }


def recorded_run(torch: str) -> list[str]:
    """Return the recorded run of a release on a CPU, if there is one."""
    release = torch.partition("+")[0]
    # That of all databases of PyTorch reaches most overloads.
    return recorded(release, "cpu-all") or recorded(release, "cpu")


RENDERERS: dict[str, Callable[[View], Iterable[str]]] = {
    "text": lambda report: [safe_lines(report.text)],
    "md": lambda report: markdown_pieces("locate", report),
    "html": lambda report: page_pieces("locate", report=report),
    "json": lambda report: [msgspec.json.format(json_of(report), indent=1) + "\n"],
}


_OTHER_STATE = "PyTorch's generator begins with another state in each run"
_UNSEEDED = "draws other numbers in each run unless it was seeded"
_TIMES = "the compiler times kernels, and may choose another one in each run"
# What is set -> the values that let bits repeat, what others do, what to write.
_SETTINGS: dict[str, tuple[tuple[str, ...], str, str]] = {
    "torch.use_deterministic_algorithms": (
        ("True",),
        "ops may choose kernels that race; with warn_only those that have no other only warn",
        "torch.use_deterministic_algorithms(True)",
    ),
    "CUBLAS_WORKSPACE_CONFIG": (
        (":4096:8", ":16:8"),
        "cuBLAS may give other bits on several streams",
        "CUBLAS_WORKSPACE_CONFIG=:4096:8 before Python starts",
    ),
    "torch.backends.cudnn.benchmark": (
        ("False",),
        "cuDNN times its algorithms, and may choose another one in each run",
        "torch.backends.cudnn.benchmark = False",
    ),
    "torch.backends.cudnn.deterministic": (
        ("True",),
        "without the flag cuDNN may choose algorithms that race",
        "torch.backends.cudnn.deterministic = True",
    ),
    "TORCHINDUCTOR_MAX_AUTOTUNE": (("not set", "0"), _TIMES, "unset TORCHINDUCTOR_MAX_AUTOTUNE"),
    "torch.compile": (("not used", "no autotuning"), _TIMES, "torch.compile without max-autotune"),
    "torch.manual_seed": (("called",), _OTHER_STATE, "torch.manual_seed(0) at the start"),
    "torch.Generator": (("not used", "seeded"), _OTHER_STATE, "generator.manual_seed(0)"),
    "random": (("not drawn from",), _UNSEEDED, "random.seed(0) at the start"),
    "numpy.random": (("not drawn from",), _UNSEEDED, "numpy.random.seed(0) at the start"),
    "torch.utils.data.DataLoader": (
        ("not used", "all with a generator"),
        "order and seeds of workers depend on everything drawn before",
        "DataLoader(..., generator=torch.Generator().manual_seed(0))",
    ),
    "PYTHONHASHSEED": (
        ("0",),
        "sets of strings iterate in a different order in each run",
        "PYTHONHASHSEED=0 before Python starts",
    ),
    "scaled_dot_product_attention": (
        ("math",),
        "the backward phases of flash and memory-efficient attention may add in any order without the flag",
        "the flag, or torch.nn.attention.sdpa_kernel(SDPBackend.MATH)",
    ),
    "NCCL_ALGO": (
        ("Ring", "Tree"),
        "NCCL may add in another order where sizes, machines or releases are others",
        "NCCL_ALGO=Ring before Python starts",
    ),
}
# Values of the flag that do the same.
_BY_FLAG = {
    "torch.backends.cudnn.deterministic": {"True", "True, warn_only"},
    "scaled_dot_product_attention": {"True"},
}
_ELSEWHERE = "another value, GPU or release may give other bits"


def environment_of(located: Located) -> View:
    """Return what was set in a program's process, what of it breaks reproducibility, and what to write."""
    flag = located.settings.get("torch.use_deterministic_algorithms")
    rows = []
    for name, value in located.settings.items():
        good, breaks, write = _SETTINGS.get(name, ((), _ELSEWHERE, ""))
        numbered = name == "PYTHONHASHSEED" and value.isdecimal()
        if value in good or numbered or flag in _BY_FLAG.get(name, ()):
            breaks = write = ""
        rows.append({"name": name, "value": one_line(value), "breaks": breaks, "write": write})
    heads = ["setting", "value", "what it does", "write"]
    lines = [*columns(heads, [list(row.values()) for row in rows]), *_ended(located)]
    return View(
        {"torch": located.torch, "settings": rows, "ended": located.ended}, text="\n".join(lines) + "\n"
    )


# --- The commands


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
@click.option("--simulate", type=architecture, metavar="ARCH",
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
    _note_swallowed(words)
    settings = ProgramSettings(
        gpu=simulated_gpu(simulate, python) if simulate else None,
        python=python,
        quiet=to.path is None and to.form != "text",
        eager=eager,
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
_AGAIN = {"replays", "save", "simulate"}
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


def _note_swallowed(words: tuple[str, ...]) -> None:
    """Say which options of ours stand behind PROGRAM, which is given them."""
    ours = {
        name for one in click.get_current_context().command.params for name in one.opts if name[:2] == "--"
    }
    if swallowed := [word for word in words[1:] if word.partition("=")[0] in ours]:
        are = "are" if len(swallowed) > 1 else "is"
        click.echo(
            f"detmatrix: {', '.join(swallowed)} {are} given to {words[0]}; options of locate stand before it",
            err=True,
        )


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
@writes(
    {name: RENDERERS[name] for name in ("text", "json")}, "A table for the terminal, or JSON.", default="text"
)
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
