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

from scanner.accelerators import ACCELERATORS
from scanner.modes import LEAST_RUNS, MODE_TABLE, Mode
from scanner.observations.records import Header, Output
from scanner.perturbations import CaseContext
from scanner.repro import script_parts as text
from scanner.repro.comment import OF_OFF_AND_ON, WIDTH, finding_comment
from scanner.repro.variables import set_by_mode, set_variables, steering_of
from scanner.schedules import SCHEDULES
from scanner.verdicts.cells import Cell
from scanner.verdicts.findings import NEED_RUNS, MatrixRow

_STRING = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\"""")
_FAR_OFTENER = 10  # times as often as under quiet
_THREADS = re.compile(r"threads=([1-9][0-9]{0,3})")


class BatchSource(msgspec.Struct, frozen=True):
    """Where a case holds its batch, as ``opspecs.model.Batch``."""

    inputs: list[tuple[int | str, int]]
    outputs: int


class InputSource(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``scanner.worker.repro.inputs``, which describes the fields."""

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
    batch: BatchSource | None = None


def perturbations(row: MatrixRow) -> list[str]:
    """Return the perturbations without which a row hardly differed; none if it differs when nothing is done."""
    needed = []
    for cell in _cells(row):
        groups = [group for group in cell.groups if group.differing and group.perturbation != "order"]
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
    """Return the script.

    Args:
        input_source: How the inputs are made.
        row: What the run says of the row.
        header: Of the run.
    """
    simulated = header.environment.simulated is not None
    device = "cuda" if simulated else row.row.device.partition(":")[0]
    outputs = next((seen.outputs for seen in row.observations if seen.outputs), ())
    sizes = tuple(prod(output.shape) * _itemsize(output.dtype) for output in outputs)
    lacks = ACCELERATORS[device].lacks if device in ACCELERATORS else {}
    around = [_circumstance(name, device) for name in perturbations(row) if name not in {*lacks, *SCHEDULES}]
    # Where nothing of it is compiled the script would run it eagerly, and call that a verdict of the mode.
    chosen = tuple(mode for mode, it in row.chosen.items() if it.finding not in {None, "not_compiled"})
    execute, parts = executed(input_source, outputs, header.settings.seed, chosen)
    by_mode = set_by_mode(header.environment) if device == "cuda" else {}
    functions = [
        # The first process ends behind these: it evaluates nothing that needs torch.
        _cell(device, by_mode, chosen),
        text.MAIN,
        "\n".join(["import torch", *input_source.imports]),
        *input_source.definitions,
        inputs_of(input_source),
        parts,
        execute,
        text.DIGEST,
        *(one.definition for one in around),
        _observe(around, chosen),
        text.END,
    ]
    body = "\n\n".join(function.strip("\n") for function in functions if function)
    # A script holds all outputs together, so that it cannot tell those that the fill fixes from those that the flag does.
    filled = row.unfilled.verdict != "not_run" and not row.needs_both
    guarded = tuple(mode for mode in chosen if MODE_TABLE[mode].flag_in(row.row.direction))
    for name, value in {
        "$FLAG": f"mode {_is_none_of(mode for mode in ('off', *chosen) if not MODE_TABLE[mode].deterministic)}",
        "$CUDNN": "".join(
            text.CUDNN.replace("$SWITCH", switch).replace("$MODES", repr(modes))
            for switch in ("deterministic", "benchmark")
            if (modes := tuple(mode for mode in chosen if switch in MODE_TABLE[mode].cudnn))
        ),
        "$CHOSEN": text.CHOSEN.replace("$MODES", repr(chosen)).replace("$GUARDED", repr(guarded))
        * bool(chosen),
        "$FOUND": text.FOUND * bool(chosen),
        "$WHOSE": OF_OFF_AND_ON * bool(chosen),
        "$UNFILLED": text.UNFILLED * filled,
        "$FILLED": text.FILLED * filled,
        "$BLOCKS": str(tuple(CaseContext(device, sizes).blocks)),
        "$DEVICE": device,
        "$LEAST_RUNS": str(LEAST_RUNS),
        "$NEED_RUNS": repr((*NEED_RUNS, *["fixed_by_mode"] * filled)),
        "$WHERE": f'"{device}"' if device in {"cpu", "mps"} else f"torch.{device}.get_device_name()",
    }.items():
        body = body.replace(name, value)
    imports = {statement for one in around for statement in one.imports}
    if _compiled(chosen):
        imports.add("import tempfile")
    return "\n".join(
        [
            *finding_comment(row, header),
            *_head(input_source, header, row, chosen, imports, by_mode),
            "",
            body,
            "",
        ]
    )


def _head(
    input_source: InputSource,
    header: Header,
    row: MatrixRow,
    chosen: Sequence[Mode],
    imports: set[str],
    by_mode: dict[str, str],
) -> list[str]:
    """Return imports, environment and constants."""
    settings = header.settings
    steering = steering_of(header)
    lines = ["import ctypes, hashlib, json, os, subprocess, sys", *sorted(imports)]
    if input_source.definitions:
        lines.insert(0, "from __future__ import annotations")
    lines += [f"os.environ.pop({name!r}, None)" for name in by_mode]
    lines += set_variables(steering)
    if "OMP_PROC_BIND" in steering:
        lines[-1] += "  # Threads that share a core never race."
    # A single execution has nothing to differ from.
    runs = settings.runs if settings.processes > 1 else max(settings.runs, 2)
    # What took further executions takes as many here.
    processes = 2 if header.environment.simulated else settings.processes
    runs = max(runs, ceil(max(sum(cell.by_process) for cell in _cells(row)) / processes))
    found = {row.finding, *(row.chosen[mode].finding for mode in chosen)}
    if header.environment.simulated or found & NEED_RUNS.keys() or row.unfilled.verdict != "not_run":
        runs = max(runs, ceil(LEAST_RUNS / processes))
    alerts = [f"ALERT = {json.dumps(text.ALERT)}"]
    if settings.device != "cpu":
        alerts = [
            "ALERTS = [",
            *(f"    {json.dumps(alert)}," for alert in (text.ALERT, text.CUBLAS_ALERT)),
            "]",
        ]
    if _compiled(chosen):
        alerts.append(f"REFUSAL = {json.dumps(text.REFUSAL)}")
    return [
        *lines,
        "",
        f"RUNS, PROCESSES = {runs}, {processes}  # executions in each process, processes of each mode",
        *alerts,
    ]


def inputs_of(input_source: InputSource) -> str:
    """Return the function that draws the inputs."""
    returned = [input_source.args, input_source.kwargs] + (
        [input_source.leaves] if input_source.upstream else []
    )
    lines = [*input_source.lines, f"return {', '.join(returned)}"]
    if len(lines[-1]) > WIDTH - 4:
        lines[-1:] = [f"args = {input_source.args}", f"return {', '.join(['args', *returned[1:]])}"]
    return "def inputs():\n" + "\n".join(f"    {part}" for line in lines for part in _wrapped(line))


def executed(
    input_source: InputSource,
    outputs: Sequence[Output],
    seed: int,
    chosen: Sequence[Mode] = (),
    code: str = "",
) -> tuple[str, str]:
    """Return the function that executes once, and the one that takes its outputs apart, empty if none is needed."""
    arguments = "args[0].clone(), *args[1:], **kwargs" if input_source.in_place else "*args, **kwargs"
    call = f"{input_source.op}({arguments})"
    before = ""
    if compiled := _compiled(chosen):
        before = text.COMPILED.replace("$OP", f"{input_source.op}(*args, **kwargs)")
        own = tuple(mode for mode in compiled if not MODE_TABLE[mode].cached)
        before = before.replace("$OWN", repr(own)) + "\n"
        before = before.replace("$COMPILED", repr((*compiled, *_fillers(chosen))))
        call = f"call({arguments})"
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
    code = code or (text.BACKWARD if input_source.upstream else text.FORWARD)
    switching = tuple(mode for mode in chosen if MODE_TABLE[mode].execution == "switched")
    if switched := (*switching, *_fillers(chosen)):
        last = text.SWITCHED.lstrip("\n").replace("$SWITCHED", repr(switched))
        code = code.replace("    return $JUDGED\n", last)
    upstream_seed, drawn = input_source.upstream or (0, "")
    nested = "torch.utils._pytree.tree_flatten(output)[0]"
    for name, value in {
        "$SEED": str(seed),
        "$CALL": call,
        "$OUTPUTS": nested
        if input_source.definitions
        else "output if isinstance(output, tuple) else [output]",
        "$UPSTREAM": str(upstream_seed),
        # On the CPU each is the generator's next; on an accelerator its place says where it is cut out.
        "$EACH": "i, o in enumerate(outputs)" if " i * " in drawn else "o in outputs",
        "$DRAWN": drawn,
        "$JUDGED": judged if simple else f"parts({judged})",
    }.items():
        code = code.replace(name, value)
    return before + code, "" if simple else _parts(names if known else None)


def _compiled(chosen: Iterable[Mode]) -> tuple[Mode, ...]:
    """Return the modes in which the op runs under torch.compile."""
    return tuple(mode for mode in chosen if MODE_TABLE[mode].compiles)


def _cached(chosen: Iterable[Mode]) -> tuple[Mode, ...]:
    """Return the modes in which compiled code comes out of a cache that another process has filled."""
    return tuple(mode for mode in chosen if MODE_TABLE[mode].cached)


def _fillers(chosen: Iterable[Mode]) -> tuple[str, ...]:
    """Return what a process is called that fills the cache of others, if any mode needs one."""
    return ("fill_cache",) * bool(_cached(chosen))


def _parts(names: Sequence[str] | None) -> str:
    """Return the function that takes outputs of these names apart; of any kind where they are not known."""
    branches = [
        branch
        for pattern, branch in text.BRANCHES.items()
        if names is None or any(re.search(pattern, name) for name in names)
    ]
    if names is None:
        branches = [text.ANYTHING, text.SEQUENCE, text.NESTED, *branches]
    elif len(names) > 1 or "[" in names[0]:
        branches.insert(0, text.SEQUENCE)
    return text.PARTS.rstrip() + "\n" + _indented(1, *branches, "return [value]\n")


def _circumstance(name: str, device: str) -> text.Circumstance:
    """Return what brings a perturbation about."""
    if threads := _THREADS.fullmatch(name):
        return text.Circumstance(start=f"torch.set_num_threads({int(threads[1])})\n")
    stress = text.STRESS if device == "cpu" else text.STREAM_STRESS
    return {"poison": text.POISON, "shift": text.SHIFT, "pause": text.PAUSE, "stress": stress}[name]


def _observe(around: Sequence[text.Circumstance], chosen: Iterable[Mode]) -> str:
    """Return the function that runs in each process."""
    repeat = text.REPEAT
    if around:
        repeat = text.REPEAT_DISTURBED.replace("$START", "".join(one.start for one in around))
        repeat = repeat.replace("$BEFORE", _indented(1, *(one.before for one in around)))
    taken = text.TAKEN.replace("$CACHED", repr(cached)) if (cached := _cached(chosen)) else ""
    return text.OBSERVE.replace("$REPEAT", _indented(1, repeat)).replace("$TAKEN", taken)


def _is_none_of(modes: Iterable[Mode]) -> str:
    """Return the condition that a mode is none of these."""
    names = tuple(modes)
    return f'!= "{names[0]}"' if len(names) == 1 else f"not in {names!r}"


def _cell(device: str, by_mode: dict[str, str], chosen: Sequence[Mode]) -> str:
    """Return the function that runs one mode."""
    without = _is_none_of(
        mode for mode in ("off", *chosen) if MODE_TABLE[mode].variables.keys().isdisjoint(by_mode)
    )
    environment = f"        environment = os.environ | {by_mode!r} if mode {without} else None\n"
    code = text.CELL.replace("$ENVIRONMENT", environment if by_mode else "")
    cached = _cached(chosen)
    for name, part in {"$CACHE": text.CACHE, "$FILL_CACHE": text.FILL_CACHE}.items():
        code = code.replace(name, part.replace("$CACHED", repr(cached)) if cached else "")
    code = code.replace("$REFUSED", text.REFUSED if _compiled(chosen) else "")
    code = code.replace("$ENV", ", env=environment" if by_mode else "")
    return code.replace(
        "$ALERTED", "ALERT in error" if device == "cpu" else "any(alert in error for alert in ALERTS)"
    )


def _indented(levels: int, *blocks: str) -> str:
    return "".join(textwrap.indent(block.lstrip("\n"), "    " * levels) for block in blocks)


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
