"""From run files to the matrices every report is made from, and what the documented lists say of their rows.

A report shows the rows that were asked for; its counts are always those of the whole scan, so that a
filtered report cannot be mistaken for a clean one.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from detmatrix.reports.render import fields_of, grouped
from detmatrix.scanner.accelerators import label_of
from detmatrix.scanner.cases.known import selected_rows
from detmatrix.scanner.claims.matching import device_kind, matches, names_of
from detmatrix.scanner.claims.tables import documented_claims
from detmatrix.scanner.errors import UsageError
from detmatrix.scanner.observations import torch_versions
from detmatrix.scanner.observations.parts import missing_words, parts_of
from detmatrix.scanner.observations.records import Claim, Row, Section
from detmatrix.scanner.observations.runfile import Run, read_run
from detmatrix.scanner.verdicts.bound import upper_bound
from detmatrix.scanner.verdicts.controls import distrust
from detmatrix.scanner.verdicts.findings import MatrixRow, matrix
from detmatrix.scanner.verdicts.vocabulary import BESIDE, CURED, FINDING_WORDS, FINDINGS, RAISING, Finding

# "args[0]: float32 (64, 3), strides (1, 64)", as a worker writes its inputs down
_SHAPE = re.compile(r": \w+ \(([\d, ]*)\)(?:, strides|$)")
RECORDED = Path(__file__).resolve().parents[1] / "runs"


class Matrix(Struct, frozen=True, kw_only=True, dict=True):
    """The matrix of one run."""

    name: str  # of the run file, without its folder; numbered where two runs share it
    run: Run
    rows: tuple[MatrixRow, ...]  # those asked for, in planned order
    scanned: tuple[MatrixRow, ...]  # those of the whole scan
    counts: dict[Finding, int]  # over the whole scan, whatever was asked for
    only: tuple[str, ...] = ()  # the findings asked for, of off and on or of a further column; empty: all
    patterns: tuple[str, ...] = ()  # the row ids asked for; empty: all
    weak: dict[str, int]  # why rows are of low power -> how many of the whole scan, the most frequent first
    serial: int  # rows of the whole scan that did not differ and that one thread did alone
    serial_provoking: int  # those of them whose inputs provoke a difference
    serial_unknown: int  # rows of the whole scan that did not differ, and of which nobody counted the threads
    # Why the scan cannot be trusted: what it says itself, then what it shows besides.
    distrust: tuple[str, ...]

    @property
    def torch(self) -> str:
        """The build that was scanned."""
        return self.run.header.environment.torch

    @property
    def release(self) -> str:
        """The release of torch, without the build."""
        return torch_versions.release(self.torch)

    @property
    def kind(self) -> str:
        """The kind of device it is of: those of one kind are compared."""
        return device_kind(self.run.header.settings.device)

    @property
    def planned(self) -> int:
        """How many rows the whole scan has."""
        return len(self.scanned)

    @property
    def missing(self) -> str:
        """What of its plan is not in the file or not finished, in words; empty if nothing is."""
        header, closing = self.run.header, self.run.closing
        cut = "" if closing else "the file is cut short"
        return missing_words(header, parts_of(header, closing)) or cut

    @cached_property
    def unreached(self) -> frozenset[str]:
        """The ops of its plan that were not enumerated when it ended, of which no row is known."""
        header, closing = self.run.header, self.run.closing
        cut = {part.shard for part in parts_of(header, closing) if part.closing is None}
        known = self.run.entries | {row.spec for row in header.planned}
        return frozenset(op for op, shard in header.groups.items() if shard in cut and op not in known)

    @property
    def executions(self) -> int:
        """The n of a cell whose processes all finished."""
        return sum(self.asked)

    @property
    def asked(self) -> tuple[int, ...]:
        """The executions of each process of such a cell."""
        settings = self.run.header.settings
        return (settings.runs,) * settings.processes

    @property
    def upper_bound(self) -> float | None:
        """The bound on the rate of differing of such a cell, if nothing differed in it; schedules of a simulation have none."""
        return None if self.simulated else upper_bound(self.asked)

    @property
    def device(self) -> str:
        """The device as people read it."""
        device = self.run.header.settings.device
        return label_of(device) if self.simulated else device

    @property
    def simulated(self) -> bool:
        """Whether its GPU is simulated."""
        return self.run.header.environment.simulated is not None

    @property
    def beside(self) -> dict[str, int]:
        """What a simulated GPU shows beside findings, the worst first, and in how many rows of the whole scan."""
        return beside_counts(row.beside for row in self.scanned)

    @cached_property
    def lists(self) -> RunLists:
        """The claims of the run; for want of them, those tabled for its release; for want of a table, none."""
        claims, torch, none = self.run.header.claims, self.torch, f"{self.name} holds no claims"
        if claims:
            return RunLists(with_notes(claims, torch))
        try:
            told = f"{none}; those tabled for torch {torch} stand in for them."
            return RunLists(documented_claims(torch), told)
        except UsageError:
            return RunLists((), f"{none}, and there is no table of those of torch {torch}.")

    @property
    def sampled(self) -> str | None:
        """What "deterministic" is worth in the rows of PyTorch's databases, by what provokes a difference; ``None``: there are none.

        Enlarged rows whose result holds no information provoke nothing, and count as samples.
        """
        ours = [row for row in self.scanned if row.row.provoked]
        if not ours:
            return None
        enlarged = [row for row in ours if row.row.provoked == "enlarged"]
        provoked = [row for row in enlarged if not (row.off.constant or row.on.constant)]
        same = sum(row.finding == "deterministic" for row in ours)
        strong = sum(
            row.finding == "deterministic" and row.weak is None and not row.serial for row in provoked
        )
        count = len(enlarged) - len(provoked)
        blank = f", of which {count} gave a blank result and count as samples" if count else ""
        return (
            f"Of the rows from PyTorch's databases {len(ours) - len(enlarged)} are original samples, so tiny that hardly anything in "
            f"them collides, and {len(enlarged)} are enlarged so that kernels can run in parallel{blank}. No difference is weak "
            f"evidence in {same - strong} of these rows, and better evidence in {strong} enlarged ones."
        )


def load(paths: Sequence[str], only: tuple[str, ...] = (), patterns: tuple[str, ...] = ()) -> list[Matrix]:
    """Read run files and derive their matrices, in the order given.

    Raises:
        RunFileError: A file cannot be read.
        UsageError: A pattern matches no row of any run.
    """
    runs = [read_run(path) for path in paths]
    planned = [row for run in runs for row in run.header.planned] if patterns else []
    ids = selected_rows(patterns, planned, "--rows: no row matches")
    matrices = []
    for one in narrowed(runs):
        rows = (it for it in one.rows if not only or it.found & {*only})
        chosen = tuple(it for it in rows if not patterns or it.row.id in ids)
        matrices.append(replace(one, rows=chosen, only=only, patterns=patterns))
    return matrices


def recorded(release: str = "*", what: str = "*", of: str = "torch") -> list[str]:
    """Return the run files that are recorded with detmatrix, the oldest release first, as they can be given from here.

    *what* is the device, or for all of PyTorch's databases ``cpu-all``; *of* ``"instead"`` has the runs of other spellings of ops.
    """
    here, found = Path.cwd(), sorted(RECORDED.glob(f"{of}-{release}-{what}.jsonl.gz"))
    # Of a release the GPUs as they came: sm_80 before sm_100.
    found.sort(
        key=lambda path: (
            torch_versions.key(path.name.split("-")[1]),
            len(path.name) if "-sm_" in path.name else 0,
        )
    )
    return [str(path.relative_to(here) if path.is_relative_to(here) else path) for path in found]


def without(matrices: Sequence[Matrix], patterns: Sequence[str]) -> list[Matrix]:
    """Leave out rows that are known and allowed; refuse a pattern that selects none: what it allowed is gone."""
    if not patterns:
        return list(matrices)
    rows = [row.row for one in matrices for row in one.rows]
    scanned = [row.row for one in matrices for row in one.scanned]
    ids = selected_rows(patterns, rows, "--except: no row is", scanned)
    return [replace(one, rows=tuple(row for row in one.rows if row.row.id not in ids)) for one in matrices]


def narrowed(runs: Sequence[Run], wanted: Callable[[Row], bool] | None = None) -> list[Matrix]:
    """Derive of each run the rows wanted alone, as if its scan had no others: many times faster than all of them."""
    # File names without folders, numbered where they repeat: reports name no absolute path.
    names = [Path(run.path).name for run in runs]
    again = [names[:place].count(name) for place, name in enumerate(names)]
    shown = [f"{name} ({count + 1})" if count else name for name, count in zip(names, again, strict=True)]
    return [matrix_of(name, run, wanted) for name, run in zip(shown, runs, strict=True)]


def matrix_of(name: str, run: Run, wanted: Callable[[Row], bool] | None = None) -> Matrix:
    """Derive the matrix of a run, of all its rows or of those wanted alone."""
    told = fields_of(run, "sentinels", "costs", "invariances")
    rows = tuple(matrix(run.header, run.observations, closed=run.closing is not None, wanted=wanted, **told))
    findings = Counter(row.finding for row in rows)
    return Matrix(
        name=name,
        run=run,
        rows=rows,
        scanned=rows,
        counts={finding: findings[finding] for finding in FINDINGS},
        weak=dict(Counter(row.weak for row in rows if row.weak is not None).most_common()),
        serial=sum(bool(row.serial) for row in rows),
        serial_provoking=sum(bool(row.serial and row.row.provokes) for row in rows),
        serial_unknown=sum(row.serial is None for row in rows),
        distrust=distrust(run),
    )


def parse_findings(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the findings named in comma-separated *texts*, each once, those of further columns last; refuse other names."""
    asked = [name.strip().lower() for text in texts for name in text.split(",")]
    for name in asked:
        if name not in FINDING_WORDS:
            near = get_close_matches(name, FINDING_WORDS, n=1)
            hint = f", did you mean {near[0]}? The" if near else "; the"
            raise UsageError(
                f"--only: no finding is called {name!r}{hint} findings: {', '.join(FINDING_WORDS)}"
            )
    return tuple(finding for finding in FINDING_WORDS if finding in asked)


def beside_counts(found: Iterable[Iterable[str]]) -> dict[str, int]:
    """Count what stands beside findings, the worst first."""
    counts = Counter(name for names in found for name in names)
    return {name: counts[name] for name in BESIDE if counts[name]}


def input_elements(row: MatrixRow) -> int | None:
    """Return how many elements the tensors among a row's inputs have; ``None`` if none were recorded."""
    if not row.inputs:
        return None
    shapes = [shape[1] for one in row.inputs if (shape := _SHAPE.search(one))]
    sizes = ([int(size[:18]) for size in shape.split(",") if size.strip()] for shape in shapes)
    return min(sum(map(math.prod, sizes)), 2**63 - 1)  # a run file may say anything


# --- What the documented lists of a run's torch say of its rows, and which rows they should speak of and do not

SECTION_WORDS: dict[Section, str] = {
    "deterministic": "acts",
    "raises": "raises",
    "cublas": "raises without a cuBLAS workspace",
    "other": "other list",
    "note": "a note",
}
NOT_LISTED = "not listed"
# In the names of ops that are to return memory as it is: "torch.Tensor.new_empty_strided", "torch.ops.aten.resize_".
_HANDS_OUT = re.compile(r"[._](?:empty|resize)|\.new$")
# What a row shows that the lists ought to say of its op.
UNDOCUMENTED: tuple[Finding, ...] = ("silent", *RAISING, *CURED)


class RunLists(Struct, frozen=True, dict=True):
    """What the lists of one run's torch say, and where they come from if not from the run."""

    claims: tuple[Claim, ...]
    note: str | None = None

    @cached_property
    def _of(self) -> dict[str, list[Claim]]:
        """The claims by the ops that they are about; those that were not understood stand under no name."""
        return grouped(
            (it, claim) for claim in self.claims for it in (claim.targets if claim.parsed else [""])
        )

    def about(self, row: Row) -> list[Claim]:
        """Return the claims that could be about a row."""
        return [claim for name in (*names_of(row), "") for claim in self._of.get(name, ())]

    def lack(self, row: MatrixRow) -> bool:
        """Tell whether there are lists, a row raises or differs, and no claim is, or may be, about it."""
        names = names_of(row.row)
        return (
            bool(self.claims)
            and row.finding in UNDOCUMENTED
            and not is_filled(row)
            and names[0].startswith("torch.")
            and not is_noted(row.row, self.claims)
            and not any(
                matches(row.row, it) or (not it.parsed and is_about(it, names)) for it in self.about(row.row)
            )
        )


def with_notes(claims: tuple[Claim, ...], torch: str) -> tuple[Claim, ...]:
    """Return claims of a run; one that was made before notes were read has those that are tabled for its release."""
    if any(claim.section == "note" for claim in claims):
        return claims
    try:
        return (*claims, *documented_claims(torch, notes=True))
    except UsageError:
        return claims


def is_noted(row: Row, claims: Iterable[Claim]) -> bool:
    """Tell whether a note is about a row: an op in place on a tensor some of whose elements are one place in memory."""
    overlapping = row.family == "overlap" and names_of(row)[0].endswith("_")
    return overlapping and any(claim.section == "note" for claim in claims)


def documented(row: Row, claims: Iterable[Claim]) -> str:
    """Return in which lists a row's op stands, in words: "acts", "raises", "not listed"."""
    return " and ".join(SECTION_WORDS[section] for section in sections(row, claims)) or NOT_LISTED


def sections(row: Row, claims: Iterable[Claim]) -> list[Section]:
    """Return the lists in which a row's op stands, each once."""
    return list(dict.fromkeys(claim.section for claim in claims if matches(row, claim)))


def is_filled(row: MatrixRow) -> bool:
    """Tell whether a row differs only because of memory that nobody wrote and that the flag has filled.

    ``torch.utils.deterministic.fill_uninitialized_memory`` documents what returns it, so that the lists need not. A run that
    was made before the fill was told apart from the flag knows it of the ops that declare it.
    """
    older = "fill" in row.row.traits and row.finding == "fixed_by_mode" and not row.needs_both
    return row.finding == "uninitialized" or older


def hands_out(op: str) -> bool:
    """Tell whether an op is to return memory that nobody wrote, as ``torch.empty`` and ``torch.Tensor.resize_`` are."""
    return _HANDS_OUT.search(op) is not None


def is_about(claim: Claim, names: Iterable[str]) -> bool:
    """Tell whether a claim is about one of these ops; of one that was not understood, whether its words name it."""
    if claim.parsed:
        return any(name in claim.targets for name in names)
    return any(re.search(rf"(?<![\w.]){re.escape(name)}(?!\.?\w)", claim.text) for name in names)
