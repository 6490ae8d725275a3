"""The text of a script that shows with torch alone what a row's bits depend on beyond a run.

As in the other scripts nothing of a run file stands in code as it is: values are taken apart, and written anew.
"""

from __future__ import annotations

import re

from detmatrix.scanner.errors import UsageError
from detmatrix.scanner.invariance import EXECUTIONS_IF_OTHER, LAYOUTS, POSITIONS, Property
from detmatrix.scanner.observations.records import Header
from detmatrix.scanner.repro.head import comment_of, set_variables, steering_of
from detmatrix.scanner.repro.script import InputSource, executed, rendered
from detmatrix.scanner.verdicts.findings import MatrixRow
from detmatrix.scanner.verdicts.invariance import PropertyVerdict
from detmatrix.scanner.verdicts.vocabulary import DEPENDENCE

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
    batch = input_source.batch
    if what == "batch" and batch is None:
        raise UsageError(f"{row.row.id}: the specs here declare no batch; take the detmatrix that scanned it")
    outputs = next((seen.outputs for seen in row.observations if seen.outputs), ())
    own = _OWN.fullmatch(one.baseline or "")
    said = f"{what}: {one.verdict}: {DEPENDENCE[one.verdict].meaning}"
    return rendered(
        "invariance",
        head=[
            *comment_of([f"{row.row.id} with torch {header.environment.torch}, with the flag off", said]),
            *["from __future__ import annotations"] * bool(input_source.definitions),
            "import os",
            *set_variables(steering_of(header)),
        ],
        runs=EXECUTIONS_IF_OTHER,
        what=what,
        tried=_tried(one, what),
        batch=dict(batch.inputs) if batch else None,
        batch_outputs=batch.outputs if batch else None,
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
