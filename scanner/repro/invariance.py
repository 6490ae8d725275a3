"""The text of a script that shows with torch alone what a row's bits depend on beyond a run.

As in the other scripts nothing of a run file stands in code as it is: values are taken apart, and written anew.
"""

from __future__ import annotations

import re

from scanner.errors import UsageError
from scanner.invariance import EXECUTIONS_IF_OTHER, LAYOUTS, POSITIONS, Property
from scanner.observations.records import Header
from scanner.repro import invariance_parts as text
from scanner.repro.comment import comment_of
from scanner.repro.script import InputSource, executed, inputs_of
from scanner.repro.variables import set_variables, steering_of
from scanner.verdicts.findings import MatrixRow
from scanner.verdicts.invariance import PropertyVerdict
from scanner.verdicts.vocabulary import DEPENDENCE

_COUNT = re.compile(r"([1-9][0-9]{0,3})")
_PART = re.compile(rf"([1-9][0-9]{{0,5}}) ({'|'.join(POSITIONS)})")
_LAYOUT = re.compile(
    rf"({'|'.join(LAYOUTS)}) ((?:args|kwargs)(?:\[(?:[0-9]{{1,3}}|'[A-Za-z_][A-Za-z0-9_]{{0,39}}')\])+)"
)
_OWN = re.compile(r"([1-9][0-9]{0,3}) threads?")


def invariance_script(input_source: InputSource, row: MatrixRow, header: Header, what: Property) -> str:
    """Return the script.

    Args:
        input_source: How the inputs are made.
        row: What the run says of the row.
        header: Of the run.
        what: The property.

    Raises:
        UsageError: The run did not try it, or the specs here declare no batch.
    """
    one = tried_of(row, what)
    found = [f"{what}: {one.verdict}: {DEPENDENCE[one.verdict].meaning}"]
    code = text.BACKWARD if input_source.upstream else text.FORWARD
    outputs = next((seen.outputs for seen in row.observations if seen.outputs), ())
    execute, parts = executed(input_source, outputs, header.settings.seed, code=code)
    main = text.MAINS[what].replace("$OWN", _own(one))
    batch = input_source.batch
    head: list[str] = []
    if what == "batch":
        if batch is None:
            raise UsageError(
                f"{row.row.id}: the specs here declare no batch; take the detmatrix that scanned it"
            )
        head = [
            f"BATCH, OUTPUTS = {dict(batch.inputs)!r}, {batch.outputs}  # axis of the batch in which arguments, in outputs"
        ]
        head += ["PARTS = {  # how many items, by which of the whole they are", *_parts(one), "}"]
        backward = input_source.upstream is not None
        main = main.replace("$PART", text.BACKWARD_PART if backward else text.FORWARD_PART)
        main = main.replace("$GIVEN", ", upstream" if backward else "")
    else:
        main = main.replace("$VALUES", _values(one, what))
    body = [
        *input_source.definitions,
        inputs_of(input_source),
        parts,
        execute,
        text.COMPARE,
        *text.HELPERS[what],
        main.replace("$DEVICE", row.row.device.partition(":")[0]),
        text.END,
    ]
    lines = [
        *comment_of([f"{row.row.id} with torch {header.environment.torch}, with the flag off", *found]),
        *(["from __future__ import annotations"] if input_source.definitions else []),
        "import os",
        *set_variables(steering_of(header)),
        "import torch",
        *input_source.imports,
        "",
        f"RUNS = {EXECUTIONS_IF_OTHER}",
        *head,
        "",
        "\n\n".join(part.strip("\n") for part in body if part),
        "",
    ]
    return "\n".join(lines)


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


def _parts(one: PropertyVerdict) -> list[str]:
    """Return the sizes that were tried in each position, written as code."""
    sizes: dict[str, list[int]] = {}
    for size, position in (_matched(_PART, value) for value in one.tried):
        sizes.setdefault(position, []).append(int(size))
    return [f'    "{position}": {of},' for position, of in sizes.items()]


def _values(one: PropertyVerdict, what: Property) -> str:
    """Return the values that were tried, written as code."""
    if what == "threads":
        return repr(tuple(int(_matched(_COUNT, value)[0]) for value in one.tried))
    layouts = [_matched(_LAYOUT, value) for value in one.tried]
    lines = ",\n        ".join(f'("{layout} {name}", "{layout}", {name})' for layout, name in layouts)
    return f"[\n        {lines},\n    ]"


def _own(one: PropertyVerdict) -> str:
    found = _OWN.fullmatch(one.baseline or "")
    return str(int(found[1])) if found else "1"


def _matched(pattern: re.Pattern[str], value: str) -> tuple[str, ...]:
    """Return the parts of a value.

    Raises:
        UsageError: It is none that a scan tries.
    """
    found = pattern.fullmatch(value)
    if found is None:
        raise UsageError(
            f"no script can be written: the run file has {value[:80]!r} as a value that was tried; restore the file"
        )
    return found.groups()
