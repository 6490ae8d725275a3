"""The text of a script that shows with torch alone what a row showed.

Its readers have never heard of this project, so only what the row needs stands in it, in as few lines as can be read.

A run file may come from anyone, and the script is run: names of its own choosing stand in comments alone, spelled out;
what stands in code are numbers, names out of tables, and values of variables that steer a scan, each as ``repr`` gives it.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Sequence
from math import ceil, prod

import msgspec

from detmatrix.scanner.accelerators import ACCELERATORS
from detmatrix.scanner.alerts import ALERT, CUBLAS_ALERT, REFUSAL
from detmatrix.scanner.errors import UsageError, one_line
from detmatrix.scanner.invariance import EXECUTIONS_IF_OTHER, LAYOUTS, POSITIONS, Property
from detmatrix.scanner.modes import DEFAULT_MODES, LEAST_RUNS, MODE_TABLE, Mode
from detmatrix.scanner.observations.records import Header, Output
from detmatrix.scanner.perturbations import CaseContext
from detmatrix.scanner.schedules import SCHEDULES
from detmatrix.scanner.verdicts.cells import Cell
from detmatrix.scanner.verdicts.findings import NEED_RUNS, MatrixRow
from detmatrix.scanner.verdicts.invariance import PropertyVerdict
from detmatrix.scanner.verdicts.vocabulary import DEPENDENCE, FINDING_MEANING, MODE_FINDING_MEANING

# The variables of a worker's environment that change what is computed, or in what order; no others are set.
_STEERING = (
    "ATEN_CPU_CAPABILITY", "GOMP_CPU_AFFINITY", "KMP_AFFINITY", "MKL_CBWR", "MKL_NUM_THREADS",
    "NVIDIA_TF32_OVERRIDE", "OMP_NUM_THREADS", "OMP_PLACES", "OMP_PROC_BIND",
)  # fmt: skip
# What such variables consist of: "granularity=fine,compact,1,0", "{0:4},{4:4}".
_VALUE = re.compile(r"[\w ,:;=+*!.{}()-]{0,200}", re.ASCII)
# Lines of a script are broken behind so many characters, where they can be.
WIDTH = 118
# Whose finding a row's own is, where other modes have findings too.
OF_OFF_AND_ON = " with the flag off and on"


def finding_comment(row: MatrixRow, header: Header) -> list[str]:
    """Say what was found, and where."""
    env, settings = header.environment, header.settings
    of_gpu = f"{env.gpu}, CUDA {env.cuda}" if env.cuda is not None else env.gpu
    where = of_gpu if settings.device != "cpu" else f"{env.cpu}, {env.threads} threads"
    if env.simulated:
        where = f"{of_gpu} ({env.simulated.architecture}): seen in simulation, not on a GPU"
    message = "; ".join(
        f"{mode}: {_described(cell)}"
        for mode, cell in row.cells.items()
        if mode in DEFAULT_MODES and cell.verdict != "not_run"
    )
    whose = OF_OFF_AND_ON * any(it.finding is not None for it in row.chosen.values())
    lines = [
        f"{row.row.id} with torch {env.torch} on {where}",
        f"{row.finding}{whose}: {FINDING_MEANING[row.finding]} {message or 'nothing was observed'} (detmatrix {header.tool}).",
        *([f"{row.reason}."] if row.needs_both and row.reason else []),
        *(
            f"{finding} in {mode}: {MODE_FINDING_MEANING[finding]} {_described(it, it.finding_reason)}."
            for mode, it in row.chosen.items()
            if (finding := it.finding) is not None
        ),
    ]
    return _comment_of(lines)


def _comment_of(lines: Sequence[str]) -> list[str]:
    """Return lines as the comment that a script begins with."""
    comment = [f"# {line}" for long in lines for line in textwrap.wrap(one_line(long), WIDTH - 2)]
    # Python takes "coding: ..." in a comment of the first two lines for the encoding of all that follows.
    return [re.sub(r"coding([:=])", r"coding \1", line) for line in comment]


def _described(cell: Cell, reason: str | None = None) -> str:
    """Say what was seen under a mode; why it is inconclusive or no verdict, if that is known of it."""
    if reason is not None:
        return textwrap.shorten(reason, 200)
    if cell.compared:
        return cell.counted if cell.simulated else f"{cell.counted}, {cell.distinct} distinct"
    return (
        cell.verdict if cell.verdict == "raises" else textwrap.shorten(f"{cell.verdict}, {cell.reason}", 200)
    )


def _steering_of(header: Header) -> list[str]:
    """Return the statements that set what steered the threads and kernels of a run, unless whoever runs the script has."""
    recorded = header.environment.variables.get("off", {})
    return [
        f"os.environ.setdefault({name!r}, {_value(recorded[name])!r})"
        for name in _STEERING
        if name in recorded
    ]


def _value(recorded: str) -> str:
    if not _VALUE.fullmatch(recorded):
        raise UsageError(
            f"no script can be written: the run file has {one_line(recorded[:80])!r} as the value of a variable that steers "
            f"threads or kernels; restore the file"
        )
    return recorded


_STRING = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\"""")
_IMPORTS = {"pause": "import time", "shift": "import random", "stress": "import threading"}
# By the names that scanner/worker/bits.py gives to parts of an output: what kind of output it is.
_KINDS = {
    r"\.indices": "coordinates",
    r"\.crow_indices": "rows",
    r"\.ccol_indices": "columns",
    r"\.scales": "by channel",
    r"\.int_repr \(scale": "quantized",
}
_FAR_OFTENER = 10  # times as often as under quiet


class InputSource(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``detmatrix.scanner.worker.repro``, which describes the fields."""

    lines: list[str]
    args: str
    kwargs: str
    leaves: str
    digest: str | None
    op: str
    in_place: bool
    imports: list[str]
    definitions: list[str]
    upstream: tuple[int, str] | None
    batch: tuple[list[tuple[int | str, int]], int] | None = None


def perturbations(row: MatrixRow) -> list[str]:
    """Return the perturbations without which a row hardly differed; none if it differs when nothing is done."""
    needed = []
    for cell in _cells(row):
        groups = [group for group in cell.groups if group.differing]
        if cell.differing and (row.row.family == "memory" or row.finding == "uninitialized"):
            # What lies in memory depends on all that a process did before, and a script does less than a scan.
            needed.append("poison")
        elif groups:
            rates = {group.perturbation: group.differing / group.executions for group in groups}
            often = max(rates, key=rates.__getitem__)
            if rates.get("quiet", 0.0) * _FAR_OFTENER <= rates[often]:
                needed.append(often)
    return list(dict.fromkeys(needed))


def _cells(row: MatrixRow) -> tuple[Cell, ...]:
    """Return what was seen of a row in each mode that a script has."""
    return tuple(cell for mode, cell in row.cells.items() if mode != "no_workspace")


def script(input_source: InputSource, row: MatrixRow, header: Header) -> str:
    """Return the script."""
    env, settings = header.environment, header.settings
    device = "cuda" if env.simulated else row.row.device.partition(":")[0]
    outputs = next((seen.outputs for seen in row.observations if seen.outputs), ())
    sizes = tuple(prod(output.shape) * _itemsize(output.dtype) for output in outputs)
    # Where nothing of it is compiled the script would run it eagerly, and call that a verdict of the mode.
    chosen = tuple(
        mode
        for mode, it in row.chosen.items()
        if it.finding not in {None, "not_compiled"} and not MODE_TABLE[mode].retired
    )
    compiled = tuple(mode for mode in chosen if MODE_TABLE[mode].compiles)
    off, on = (env.variables.get(mode, {}) for mode in ("off", "on"))
    # What a scan sets when the flag is on, and only then.
    set_when_on = [name for name in MODE_TABLE["on"].variables if name in on and name not in off]
    by_mode = {name: _value(on[name]) for name in set_when_on} if device == "cuda" else {}
    lacks = ACCELERATORS[device].lacks if device in ACCELERATORS else {}
    around = [name for name in perturbations(row) if name not in {*lacks, *SCHEDULES}]
    imports = {"import tempfile"} if compiled else set[str]()
    # An accelerator is kept busy by work beside the op's, not by threads.
    imports |= {
        _IMPORTS[name] for name in around if name in _IMPORTS and (name != "stress" or device == "cpu")
    }
    # A script holds all outputs together, so that it cannot tell those that the fill fixes from those that the flag does.
    filled = row.unfilled.verdict != "not_run" and not row.needs_both
    runs, processes = _executions(row, header, {row.finding, *(row.chosen[mode].finding for mode in chosen)})
    return rendered(
        "row",
        head=_head(input_source, row, header, by_mode, imports),
        runs=runs,
        processes=processes,
        device=device,
        alert=json.dumps(ALERT),
        cublas_alert=json.dumps(CUBLAS_ALERT),
        refusal=json.dumps(REFUSAL),
        by_mode=by_mode,
        without_variables=_is_none_of(
            mode for mode in ("off", *chosen) if MODE_TABLE[mode].variables.keys().isdisjoint(by_mode)
        ),
        chosen=chosen,
        guarded=tuple(mode for mode in chosen if MODE_TABLE[mode].flag_in(row.row.direction)),
        compiled=compiled,
        switched=tuple(mode for mode in chosen if MODE_TABLE[mode].execution == "switched"),
        filled=filled,
        need_runs=(*NEED_RUNS, *["fixed_by_mode"] * filled),
        least_runs=LEAST_RUNS,
        whose=OF_OFF_AND_ON * bool(chosen),
        flag=_is_none_of(mode for mode in ("off", *chosen) if not MODE_TABLE[mode].deterministic),
        cudnn=[
            (switch, modes)
            for switch in ("deterministic", "benchmark")
            if (modes := tuple(mode for mode in chosen if switch in MODE_TABLE[mode].cudnn))
        ],
        around=around,
        blocks=tuple(CaseContext(device, sizes).blocks),
        **executed(input_source, outputs, settings.seed, compiled=bool(compiled)),
    )


def rendered(name: str, **context: object) -> str:
    """Return a script, of the template of its name."""
    # Listing commands must start fast.
    import jinja2  # noqa: PLC0415

    environment = jinja2.Environment(  # noqa: S701 - it makes Python, of what is taken apart before
        loader=jinja2.PackageLoader("detmatrix.scanner.repro"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(f"{name}.py.j2").render(**context)


def _head(
    input_source: InputSource, row: MatrixRow, header: Header, by_mode: Iterable[str], imports: set[str]
) -> list[str]:
    lines = [
        *finding_comment(row, header),
        *["from __future__ import annotations"] * bool(input_source.definitions),
        "import ctypes, hashlib, json, os, subprocess, sys",
        *sorted(imports),
        *(f"os.environ.pop({name!r}, None)" for name in by_mode),
        *_steering_of(header),
    ]
    if "OMP_PROC_BIND" in lines[-1]:
        lines[-1] += "  # Threads that share a core never race."
    return lines


def _executions(row: MatrixRow, header: Header, findings: set[str | None]) -> tuple[int, int]:
    """Return how many executions each process makes, and how many processes each mode has."""
    settings, simulated = header.settings, header.environment.simulated
    # A single execution has nothing to differ from.
    runs = settings.runs if settings.processes > 1 else max(settings.runs, 2)
    # What took further executions takes as many here.
    processes = 2 if simulated else settings.processes
    runs = max(runs, ceil(max(sum(cell.by_process) for cell in _cells(row)) / processes))
    if simulated or findings & NEED_RUNS.keys() or row.unfilled.verdict != "not_run":
        runs = max(runs, ceil(LEAST_RUNS / processes))
    return runs, processes


def executed(
    input_source: InputSource, outputs: Sequence[Output], seed: int, *, compiled: bool = False
) -> dict[str, object]:
    """Return what templates need to draw the inputs, to execute once, and to take the outputs apart."""
    arguments = "args[0].clone(), *args[1:], **kwargs" if input_source.in_place else "*args, **kwargs"
    call = f"{'call' if compiled else input_source.op}({arguments})"
    names = [output.name for output in outputs]
    # What a function of one's own returned without dims may have been a number.
    known = bool(outputs) and (not input_source.definitions or all(output.shape for output in outputs))
    if input_source.upstream:
        judged = "torch.autograd.grad(outputs, leaves, upstream)"
        simple = known and not any(re.search(r"\.[a-z_]+( |$)", name) for name in names)
    elif known and names == ["output"]:
        judged, simple = f"[{call}]", True
    else:
        simple = known and all(re.fullmatch(r"output\[\d+\]", name) for name in names)
        judged = f"[t for t in {call} if t is not None]" if simple else call
    kinds = {
        kind
        for pattern, kind in _KINDS.items()
        if not known or any(re.search(pattern, name) for name in names)
    }
    if not known:
        kinds |= {"anything", "sequence"}
    elif len(names) > 1 or "[" in names[0]:
        kinds.add("sequence")
    by_place = input_source.upstream and " i * " in input_source.upstream[1]
    return {
        "imports": input_source.imports,
        "definitions": [definition.strip("\n") for definition in input_source.definitions],
        "inputs": _inputs(input_source),
        "op": input_source.op,
        # Where outputs are plain tensors the function that takes them apart is left out.
        "kinds": set() if simple else kinds | {"tensor"},
        "of": {
            "seed": seed,
            "upstream": input_source.upstream,
            "call": call,
            "judged": judged if simple else f"parts({judged})",
            "graph": bool(input_source.definitions),  # a function of one's own may differentiate
            "outputs": "torch.utils._pytree.tree_flatten(output)[0]"
            if input_source.definitions
            else "output if isinstance(output, tuple) else [output]",
            # On the CPU each is the generator's next; on an accelerator its place says where it is cut out.
            "each": "i, o in enumerate(outputs)" if by_place else "o in outputs",
        },
    }


def _inputs(input_source: InputSource) -> list[str]:
    returned = [input_source.args, input_source.kwargs, *[input_source.leaves] * bool(input_source.upstream)]
    lines = [*input_source.lines, f"return {', '.join(returned)}"]
    if len(lines[-1]) > WIDTH - 4:
        lines[-1:] = [f"args = {input_source.args}", f"return {', '.join(['args', *returned[1:]])}"]
    return [part for line in lines for part in _wrapped(line)]


def _is_none_of(modes: Iterable[Mode]) -> str:
    """Return the condition that a mode is none of these."""
    names = tuple(modes)
    return f'!= "{names[0]}"' if len(names) == 1 else f"not in {names!r}"


def _itemsize(dtype: str) -> int:
    """Return the bytes of an element: what a dtype's name says, for bool one."""
    bits = re.search(r"\d{1,3}", dtype)
    return max(int(bits[0]) // 8, 1) if bits else 1


def _wrapped(line: str) -> list[str]:
    """Break a long statement behind commas between brackets, the outermost first; strings stay whole."""
    depth = 0
    commas: list[tuple[int, int]] = []  # how deep, and where it ends, counted backwards
    for place, sign in enumerate(_STRING.sub(lambda found: "_" * len(found[0]), line)):
        depth += (sign in "([{") - (sign in ")]}")
        # Not that of a tuple of one.
        if sign == "," and depth and line[place + 1] == " ":
            commas.append((depth, -place - 1))
    lines, start = [], 0
    # Statements are indented by one level, what is left of them by two.
    while len(line) - start > WIDTH - 8:
        fitting = [(depth, place) for depth, place in commas if start < -place <= start + WIDTH - 8]
        if not fitting:
            break
        end = -min(fitting)[1]
        lines.append(line[start:end])
        start = end + 1
    lines.append(line[start:])
    return [lines[0], *(f"    {rest}" for rest in lines[1:])]


_COUNT = re.compile(r"([1-9][0-9]{0,3})")
_PART = re.compile(rf"([1-9][0-9]{{0,5}}) ({'|'.join(POSITIONS)})")
_LAYOUT = re.compile(
    rf"({'|'.join(LAYOUTS)}) ((?:args|kwargs)(?:\[(?:[0-9]{{1,3}}|'[A-Za-z_][A-Za-z0-9_]{{0,39}}')\])+)"
)
_OWN_COUNT = re.compile(r"([1-9][0-9]{0,3}) threads?")


def invariance_script(input_source: InputSource, row: MatrixRow, header: Header, what: Property) -> str:
    """Return the script."""
    one = tried_of(row, what)
    axes, axis_of_outputs = input_source.batch or ([], None)
    if what == "batch" and input_source.batch is None:
        raise UsageError(f"{row.row.id}: the specs here declare no batch; take the detmatrix that scanned it")
    outputs = next((seen.outputs for seen in row.observations if seen.outputs), ())
    own = _OWN_COUNT.fullmatch(one.baseline or "")
    said = f"{what}: {one.verdict}: {DEPENDENCE[one.verdict].meaning}"
    return rendered(
        "invariance",
        head=[
            *_comment_of([f"{row.row.id} with torch {header.environment.torch}, with the flag off", said]),
            *["from __future__ import annotations"] * bool(input_source.definitions),
            "import os",
            *_steering_of(header),
        ],
        runs=EXECUTIONS_IF_OTHER,
        what=what,
        tried=_tried(one, what),
        batch=dict(axes),
        batch_outputs=axis_of_outputs,
        own=int(own[1]) if own else 1,
        device=row.row.device.partition(":")[0],
        **executed(input_source, outputs, header.settings.seed),
    )


def tried_of(row: MatrixRow, what: Property) -> PropertyVerdict:
    """Return what a row showed at the values of a property.

    Raises:
        UsageError: It was tried at none.
    """
    one = row.invariance.get(what)
    if one is None:
        raise UsageError(f"{row.row.id}: the scan did not ask for {what}; scan with --invariance {what}")
    if not one.tried:
        raise UsageError(f"{row.row.id}: no value of {what} was tried ({one.reason}); choose another row")
    return one


def _tried(one: PropertyVerdict, what: Property) -> object:
    """Return the values that were tried, as the template has them: the sizes of a batch by position."""
    if what == "threads":
        return tuple(int(_matched(_COUNT, value)[0]) for value in one.tried)
    if what == "layout":
        return [_matched(_LAYOUT, value) for value in one.tried]
    sizes: dict[str, list[int]] = {}
    for size, position in (_matched(_PART, value) for value in one.tried):
        sizes.setdefault(position, []).append(int(size))
    return list(sizes.items())


def _matched(pattern: re.Pattern[str], value: str) -> tuple[str, ...]:
    found = pattern.fullmatch(value)
    if found is None:
        raise UsageError(
            f"no script can be written: the run file has {value[:80]!r} as a value that was tried; restore the file"
        )
    return found.groups()
