"""From run files to the matrices every report is made from, and to the flat table of pandas.

A report shows the rows that were asked for; its counts are always those of the whole scan, so that a
filtered report cannot be mistaken for a clean one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import get_args

import pandas as pd
from msgspec import Struct
from msgspec.structs import replace

from scanner.errors import UsageError
from scanner.records import MODES, Mode, Observation, Output
from scanner.runfile import Run, read_run
from scanner.verdicts import FINDING_MEANING, Cell, Finding, MatrixRow, matrix, unequal_inputs

FINDINGS: tuple[Finding, ...] = tuple(FINDING_MEANING)
COMPARED = ("deterministic", "nondeterministic")  # verdicts that rest on compared executions

_NAMES = ("run", "family", "spec", "op", "case", "direction", "dtype", "device", "finding")
_CELL = ("verdict", "runs", "differing", "distinct", "upper_bound", "alert", "reason", "seeded", "seconds")


class Matrix(Struct, frozen=True, kw_only=True):
    """The matrix of one run."""

    name: str  # of the run file, without its folder; numbered where two runs share it
    run: Run
    rows: tuple[MatrixRow, ...]  # those asked for, in planned order
    planned: int  # rows of the whole scan
    counts: dict[Finding, int]  # over the whole scan, whatever was asked for
    only: tuple[Finding, ...]  # the findings asked for; empty: all
    patterns: tuple[str, ...]  # the row ids asked for; empty: all

    @property
    def distrust(self) -> tuple[str, ...]:
        """Why the scan cannot be trusted; of one that did not finish, what its observations show already."""
        return self.run.closing.distrust if self.run.closing else unequal_inputs(self.run.observations)

    @property
    def executions(self) -> int:
        """The n of a cell whose processes all finished."""
        settings = self.run.header.settings
        return settings.runs * settings.processes


def load(
    paths: Sequence[str], only: tuple[Finding, ...] = (), patterns: tuple[str, ...] = ()
) -> list[Matrix]:
    """Read run files and derive their matrices, in the order given.

    Raises:
        RunFileError: A file cannot be read.
        UsageError: A pattern matches no row of any run.
    """
    runs = [read_run(path) for path in paths]
    for pattern in patterns:
        if not any(fnmatchcase(row.id, pattern) for run in runs for row in run.header.planned):
            raise UsageError(f"--rows: no row id matches {pattern!r}; ids are spec:case:direction:dtype")
    return [matrix_of(name, run, only, patterns) for name, run in zip(_names(paths), runs, strict=True)]


def matrix_of(name: str, run: Run, only: tuple[Finding, ...] = (), patterns: tuple[str, ...] = ()) -> Matrix:
    """Derive the matrix of a run and keep the rows found as *only* and matching *patterns*; empty is all."""
    rows = tuple(matrix(run.header, run.observations, closed=run.closing is not None))
    findings = pd.Series([row.finding for row in rows], dtype="object").value_counts()
    return Matrix(
        name=name,
        run=run,
        rows=tuple(
            row
            for row in rows
            if (not only or row.finding in only)
            and (not patterns or any(fnmatchcase(row.row.id, pattern) for pattern in patterns))
        ),
        planned=len(rows),
        counts={finding: int(findings.get(finding, 0)) for finding in FINDINGS},
        only=only,
        patterns=patterns,
    )


def parse_findings(texts: Iterable[str]) -> tuple[Finding, ...]:
    """Return the findings named in comma-separated *texts*, each once, in the order of the reports.

    Raises:
        UsageError: A name is none of the findings.
    """
    asked = [name.strip().lower() for text in texts for name in text.split(",")]
    for name in asked:
        if name not in get_args(Finding):
            near = get_close_matches(name, FINDINGS, n=1)
            hint = f", did you mean {near[0]}? The" if near else "; the"
            raise UsageError(f"--only: no finding is called {name!r}{hint} findings: {', '.join(FINDINGS)}")
    return tuple(finding for finding in FINDINGS if finding in asked)


def frame(matrices: Iterable[Matrix]) -> pd.DataFrame:
    """Return the rows of all *matrices* as one flat table; what a cell does not have is ``<NA>``."""
    columns: dict[str, list[object]] = {
        name: [] for name in (*_NAMES, *(f"{mode}_{field}" for mode in MODES for field in _CELL), "provokes")
    }
    for one in matrices:
        for row in one.rows:
            for name in _NAMES:
                source = {"run": one.name, "finding": row.finding}
                columns[name].append(source[name] if name in source else getattr(row.row, name))
            for mode in MODES:
                for field, value in cell_fields(row, mode).items():
                    columns[f"{mode}_{field}"].append(value)
            columns["provokes"].append(row.row.provokes or "nothing")
    table = pd.DataFrame(columns)
    counts = [f"{mode}_{field}" for mode in MODES for field in ("runs", "differing", "distinct")]
    bounds = [f"{mode}_upper_bound" for mode in MODES]
    return table.astype(dict.fromkeys(counts, "Int64") | dict.fromkeys(bounds, "Float64"))


def cell_fields(row: MatrixRow, mode: Mode) -> dict[str, object]:
    """Return what the machine-readable reports say of one cell; ``None`` where there is no such thing.

    The counts of a cell in which nothing was compared are absent, not zero.
    """
    cell = cell_of_mode(row, mode)
    compared = cell.verdict in COMPARED
    return {
        "verdict": cell.verdict,
        "runs": cell.runs if compared else None,
        "differing": cell.differing if compared else None,
        "distinct": cell.distinct if compared else None,
        "upper_bound": cell.upper_bound,
        "alert": cell.alert,
        "reason": cell.reason,
        "seeded": is_seeded(row, mode),
        "seconds": cell.seconds,
    }


def cell_of_mode(row: MatrixRow, mode: Mode) -> Cell:
    """Return the cell of one mode."""
    return row.off if mode == "off" else row.on


def is_seeded(row: MatrixRow, mode: Mode) -> bool:
    """Whether the op consumed the random generator, which was then seeded before every execution."""
    return any(observation.seeded for observation in row.observations if observation.mode == mode)


def outputs_of(observations: Iterable[Observation]) -> tuple[Output, ...]:
    """Return the compared tensors of some processes, the executions that differed summed over them.

    Each process counts against its own first execution; what differs only between processes shows in the
    cell's k of n, not here.
    """
    outputs: dict[str, Output] = {}
    for observation in observations:
        for output in observation.outputs:
            before = outputs.get(output.name)
            more = before.differing if before else 0
            outputs[output.name] = replace(output, differing=output.differing + more)
    return tuple(outputs.values())


def _names(paths: Sequence[str]) -> list[str]:
    """Return the file names without folders, numbered where they repeat: reports name no absolute path."""
    names: list[str] = []
    for path in paths:
        name = Path(path).name
        again = sum(Path(other).name == name for other in paths[: len(names)])
        names.append(f"{name} ({again + 1})" if again else name)
    return names
