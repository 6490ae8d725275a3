"""One line an op: what a report shows of it, in one run or in several, and in which words and signs.

A line is always about all rows of its op, whichever of them a report shows; the worst of them stands for it, in the order
of ``WORST_FIRST``. What several runs of one release on one kind of device show stands in one column. An op's finding, and
what to do, are those of the latest release that it was scanned in, on each kind of device; earlier columns show what was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct

from reports.matrix.columns import Column, ColumnCell
from reports.matrix.cost import APPROXIMATELY, SLOW, TIMES, times
from reports.matrix.model import WORST_FIRST
from reports.matrix.view import RowView
from reports.render.signs import VERDICT_SIGN
from scanner.accelerators import label_of
from scanner.claims.matching import claimed_kind
from scanner.observations.records import Direction
from scanner.plurals import several
from scanner.verdicts.cells import Verdict
from scanner.verdicts.findings import Finding, MatrixRow

_DEVICES = {"cpu": "the CPU", "cuda": "CUDA"}
NO_ROW, UNKNOWN, OTHER_BITS = "·", "?", "~"
UNSCANNED = "not scanned"  # on a kind of device, beside one on which there are rows
FILL = "+fill"  # behind the cost of the flag where that of the fill is high
NONE_LISTED, MISSING = "–", "MISSING"  # noqa: RUF001
# Signs that a cell of an op is made of, printed below every table of ops that has them.
MARK_MEANING = {
    VERDICT_SIGN["nondeterministic"]: "differs",
    VERDICT_SIGN["deterministic"]: "same",
    OTHER_BITS: "same, other bits than off",
    VERDICT_SIGN["raises"]: "raises",
    UNKNOWN: "not measured",
    NO_ROW: "no row",
}
LISTED_MEANING = {
    "acts": "Documented to act deterministically with the flag on.",
    "raises": "Documented to raise with the flag on.",
    MISSING: "Differs or raises, undocumented: no bullet is about it.",
    NONE_LISTED: "In no list, and none is missing.",
}
# What to do about an op of this finding, where nothing more is known of it.
ACTION: dict[Finding, str] = {
    "silent": "no fix: differs silently",
    "raises": "no fix: raises",
    "over_alert": "raises; no difference seen",
    "order_dependent": "order matters: try a GPU",
    "fixed_by_mode": "set the flag",
    "uninitialized": "set the flag: it fills memory",
    "mode_dependent": "keep one setting: on or off",
    "inconclusive": "not settled",
    "deterministic": "nothing to do",
}
MOST = 25  # ops that are listed unless all are asked for: a screen of them
_NAMED = 8  # ops of which nothing else is said
USABLE = ("deterministic", "nondeterministic", "raises")  # verdicts


class ModeMark(Struct, frozen=True, kw_only=True):
    """What one mode shows of the worst case of an op in one direction."""

    verdict: Verdict | None  # None: no row, or nothing is known
    text: str  # "69 of 70 differed", "raises put_", "no row"
    other_bits: bool = False  # as with the flag off every time, but not the same
    has_row: bool = True

    @property
    def glyph(self) -> str:
        """One sign; where there is no usable verdict, that of what is not known."""
        if not self.has_row:
            return NO_ROW
        if self.other_bits:
            return OTHER_BITS
        return VERDICT_SIGN[self.verdict] if self.verdict in USABLE else UNKNOWN

    @property
    def tint(self) -> str:
        """The class that colours it: a verdict, "mode_dependent", "inconclusive", "unknown" or "no_row"."""
        if self.verdict is None:
            return "unknown" if self.has_row else "no_row"
        if self.other_bits:
            return "mode_dependent"
        return self.verdict if self.verdict in USABLE else "inconclusive"


class OpDirection(Struct, frozen=True, kw_only=True):
    """What an op shows in one direction in one column: the verdicts of its worst row."""

    off: ModeMark
    on: ModeMark
    finding: Finding | None = None  # None: no row, or nothing measured
    row: str | None = None  # the id of the row that stands for it
    doubts: tuple[str, ...] = ()  # "serial", "low power": why it says little that none of its rows differed

    @property
    def glyphs(self) -> str:
        """Both signs, "≠/="; one where there is no row."""
        return f"{self.off.glyph}/{self.on.glyph}" if self.on.has_row else NO_ROW

    @property
    def word(self) -> str:
        """What stands below the signs where there is room for little: the finding; of what did not differ, its n."""
        if not self.on.has_row:
            return self.on.text
        if self.finding == "deterministic":
            return ", ".join([self.on.text, *self.doubts])
        return self.finding or "not measured"

    @property
    def text(self) -> str:
        """Both in words."""
        if not self.on.has_row:
            return self.on.text
        doubts = f" ({', '.join(self.doubts)})" if self.doubts else ""
        return f"off: {self.off.text}; on: {self.on.text}{doubts}"


class OpCell(Struct, frozen=True, kw_only=True):
    """What is known of one op in one column."""

    finding: Finding | None  # None: no row, or nothing measured
    forward: OpDirection
    backward: OpDirection
    counts: dict[Finding, int]  # its rows; empty: none
    # In which lists the op stands, by kind of device: "acts", "raises". None: there are no lists of this release.
    documented: dict[str, tuple[str, ...]] | None
    missing: int  # rows that raise or differ, and that no bullet is about

    @property
    def directions(self) -> dict[Direction, OpDirection]:
        """Both of them by name."""
        return {"forward": self.forward, "backward": self.backward}


class CostRange(Struct, frozen=True):
    """The lowest and the highest ratio of an op's rows; exactly 1 for those whose quartiles overlap."""

    low: float
    high: float

    @property
    def text(self) -> str:
        """Both, or one where they read alike."""
        low, high = (
            f"{APPROXIMATELY if ratio == 1.0 else ''}{times(ratio)}" for ratio in (self.low, self.high)
        )
        return low if low == high else f"{low[:-1]}–{high}"  # noqa: RUF001


class OpRow(NamedTuple):
    """A row of an op that the report shows."""

    run: int  # the place of its run among those of the report
    row: RowView
    record: MatrixRow


class OpColumn(Struct, frozen=True, kw_only=True):
    """A release on a kind of device."""

    device: str  # its kind: "cpu", "cuda"
    torch: str  # the release
    runs: tuple[int, ...] = ()  # the places of the runs whose rows it joins
    executions: tuple[int, ...] = ()  # n of a cell, by run
    trusted: bool = True

    @property
    def title(self) -> str:
        """What stands above it."""
        return f"{self.torch} {label_of(self.device)}"


class OpDevice(Struct, frozen=True, kw_only=True):
    """What the latest release of one kind of device shows of an op, beside other kinds."""

    device: str
    finding: Finding | None  # None: it has no row there
    action: str
    listed: str  # as `OpView.listed`
    counts: dict[Finding, int]
    beside: dict[str, int]

    @property
    def label(self) -> str:
        """The kind of device in words: "CUDA, simulated"."""
        return label_of(self.device)

    @property
    def counts_words(self) -> str:
        """How many rows there are of each finding; "deterministic" is told nowhere without its n."""
        return counts_words(self.beside, self.counts)


class OpView(Struct, frozen=True, kw_only=True):
    """One op."""

    name: str
    short: str  # the shortest ending of it that no other op of the runs has: "take", "Tensor.index_put"
    family: str
    finding: Finding  # the worst of the latest release, on any kind of device
    action: str  # what to do about it
    listed: str  # what the lists say: a word of LISTED_MEANING; "?" without lists
    elsewhere: str | None  # what they say of a device that the op was not measured on: "CUDA: acts"
    doubts: tuple[str, ...]  # "serial", "low power": why a whole direction shows little
    counts: dict[Finding, int]  # its rows in the latest release
    cost: CostRange | None  # of the flag alone; None: not measured
    fill: (
        CostRange | None
    )  # with the fill of uninitialized memory, of the rows in which that makes a difference
    cells: tuple[OpCell, ...]  # one for each column
    rows: tuple[OpRow, ...]  # those that the report shows
    further: tuple[ColumnCell, ...] = ()  # one for each further column, of the latest release
    unlike_reference: int = (
        0  # rows of the latest release that in some mode did not give what their reference says
    )
    beside: dict[
        str, int
    ] = {}  # what a simulated GPU shows beside findings, the worst first, and in how many rows
    devices: tuple[OpDevice, ...] = ()  # one for each kind of device, where there are several

    @property
    def is_clean(self) -> bool:
        """Whether there is nothing to do and nothing in doubt but what the summary says of all."""
        notable = any(it.notable for it in self.further)
        unscanned = any(it.finding is None for it in self.devices)
        return self.finding == "deterministic" and not (notable or self.unlike_reference or unscanned)

    @property
    def docs_words(self) -> str:
        """What the lists say; of an op that is in none for this device, what they say of another.

        Of several devices of which they do not say the same, those are named of which they say something, or lack it.
        """
        if len({it.listed for it in self.devices}) > 1:
            missing = any(it.listed == MISSING for it in self.devices)
            told = (
                it for it in self.devices if it.listed == MISSING or not (missing or it.listed == NONE_LISTED)
            )
            return ", ".join(f"{label_of(claimed_kind(it.device))}: {it.listed}" for it in told)
        return self.elsewhere if self.elsewhere and self.listed == NONE_LISTED else self.listed

    @property
    def counts_words(self) -> str:
        """How many rows there are of each finding; "deterministic" is told nowhere without its n."""
        if self.devices:
            return "; ".join(f"{it.label}: {it.counts_words}" for it in self.devices)
        return counts_words(self.beside, self.counts)

    @property
    def cost_words(self) -> str:
        """The cost of the flag; of an op that only the fill cures, that of the fill. Of others it says where that is high."""
        actions = [it.action for it in self.devices] or [self.action]
        if any(text.startswith(ACTION["uninitialized"]) for text in actions):
            return f"fill {self.fill.text}" if self.fill else NONE_LISTED
        fill = FILL if self.fill and self.fill.high >= SLOW else ""
        return f"{self.cost.text}{fill}" if self.cost else NONE_LISTED

    @property
    def deciding(self) -> tuple[str, ...]:
        """The cases of the shown rows that the finding rests on."""
        return tuple(dict.fromkeys(it.row.case for it in self.rows if it.row.finding == self.finding))


def counts_words(beside: Mapping[str, int], findings: Mapping[Finding, int]) -> str:
    """Return how many rows there are of what stands beside findings and of each finding but "deterministic", of all."""
    counts = [f"{count} {name}" for name, count in beside.items()]
    counts += [f"{count} {finding}" for finding, count in findings.items() if finding != "deterministic"]
    return f"{', '.join(counts) or 'none'} of {sum(findings.values())}"


class OpsView(Struct, frozen=True, kw_only=True):
    """All ops of a report."""

    columns: tuple[OpColumn, ...]  # by kind of device, the oldest release first
    ops: tuple[OpView, ...]  # those that have a row to show, the worst first, then in the order of the runs
    further: tuple[Column, ...]  # beside off and on, that say something of the runs
    narrowed: bool  # only some rows were asked for
    counts: dict[Finding, int]  # ops of the whole scans
    beside: dict[str, int]  # likewise of what stands beside findings
    unmeasured: dict[
        str, int
    ]  # kinds of devices that no run is on, and the claims of the latest lists about them
    # Where there are several kinds of devices, what `counted` says of each of them by itself, by its label.
    by_device: dict[str, dict[str, int]] = {}

    @property
    def shown(self) -> str | None:
        """How many ops are shown, if not all are."""
        if not self.narrowed:
            return None
        return f"Shown: {len(self.ops)} of {sum(self.counts.values())} ops; the line of an op is about all of its rows."

    @property
    def told(self) -> list[Finding]:
        """The findings that there are ops of, the worst first, and silent in any case."""
        return [finding for finding in WORST_FIRST if self.counts[finding] or finding == "silent"]

    @property
    def counted(self) -> dict[str, int]:
        """The same with how many ops there are, behind what stands beside findings."""
        return {**self.beside, **{finding: self.counts[finding] for finding in self.told}}

    @property
    def listed(self) -> tuple[OpView, ...]:
        """The ops that a short report has a line for: those asked for, or the first with something to do."""
        return self.ops if self.narrowed else tuple(self.acting[:MOST])

    @property
    def left_out(self) -> list[OpView]:
        """The ops with something to do that a short report has no line for."""
        return [] if self.narrowed else self.acting[MOST:]

    @property
    def clean(self) -> list[OpView]:
        """The ops with nothing to do."""
        return [op for op in self.ops if op.is_clean]

    @property
    def doubted(self) -> list[OpView]:
        """Those of them of which a whole direction shows little: serial, or of low power."""
        return [op for op in self.clean if op.doubts]

    @property
    def doubted_words(self) -> str | None:
        """Name them; ``None`` if there are none."""
        names = [op.short for op in self.doubted]
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        rest = "in a whole direction all rows are serial or of low power"
        return f"Nothing seen, but {rest}: {', '.join(names[:_NAMED])}{more}." if names else None

    @property
    def acting(self) -> list[OpView]:
        """The ops with something to do, the worst first."""
        return [op for op in self.ops if not op.is_clean]

    def legend(self, ops: Iterable[OpView]) -> list[tuple[str, list[str]]]:
        """Return what the columns of these ops say, with the signs that they have."""
        ops = list(ops)
        ways = [way for op in ops for cell in op.cells for way in cell.directions.values()]
        used = {sign for way in ways for sign in (way.off.glyph, way.on.glyph)}
        signs = [f"{sign} {meaning}" for sign, meaning in MARK_MEANING.items() if sign in used]
        lines = [("cells", ["off/on", *signs])]
        if any(op.cost or op.fill for op in ops):
            texts = ["the flag alone", f"{APPROXIMATELY} within noise"]
            filled = any(op.cost_words.endswith(FILL) for op in ops)
            lines.append(
                (
                    "cost",
                    [
                        *texts,
                        *(
                            [f"{FILL} {SLOW:g}{TIMES} or more with fill_uninitialized_memory, on by default"]
                            * filled
                        ),
                    ],
                )
            )
        missing = any(op.listed == MISSING for op in ops)
        if missing or any(op.docs_words != op.listed for op in ops):
            which = "each" if self.by_device else "this"
            texts = [f"PyTorch's lists, for {which} device if none is named"]
            lines.append(("docs", [*texts, *([f"{MISSING} differs or raises, undocumented"] * missing)]))
        lines += [(column.name, [column.meaning]) for column in self.further]
        return lines

    @property
    def unmeasured_words(self) -> list[str]:
        """What is documented of devices that were not measured."""
        simulated = any(column.device == "simulated" for column in self.columns)
        return [
            f"{_DEVICES.get(device, device).upper()}{' SIMULATED,' if simulated and device == 'cuda' else ''} NOT MEASURED: "
            f"{several(count, 'documented claim')}"
            for device, count in self.unmeasured.items()
        ]
