"""What comparisons say of one row of two runs; ``judge.py`` finds it."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from reports.compare.rows.comparable import UNLIKE, Reason
from reports.compare.rows.moved import Moved, moved
from reports.compare.rows.rates import RateTest
from reports.matrix.model import cell_of_mode
from scanner.observations.records import MODES, Mode, digest_kind
from scanner.verdicts.cells import Cell
from scanner.verdicts.findings import MatrixRow

Kind = Literal["regressed", "improved", "changed", "added", "removed", "not_comparable", "same"]

# One sentence each, printed with every report. The order is that of the reports.
CLASS_MEANING: dict[Kind, str] = {
    "regressed": "Worse than before, with the flag off and on or in a mode that both scans chose: raises or is refused where "
    "it ran, differs where it was deterministic, or is silent where it was not. Or it begins not to give what its reference "
    "says, or its bits to vary with threads, batch or layout, where both scans asked.",
    "improved": "Better than before, with the flag off and on or in a mode that both scans chose: runs deterministically where "
    "it raised or was refused, is deterministic where it differed, or is no longer silent. Or it now gives what its reference "
    "says, or its bits no longer vary with threads, batch or layout.",
    "changed": "Neither better nor worse: another alert caller, modes that give the same bits in one run and other "
    "bits in the other, or bits that vary at other values.",
    "added": "Only the later run planned the row, though both scans were asked for the same. Of what is written by hand "
    "an op that a torch lacks is planned all the same, so this is the catalog's doing; PyTorch's databases differ from one "
    "torch to another.",
    "removed": "Only the earlier run planned the row.",
    "not_comparable": "The runs cannot tell whether it changed, and the reason is given.",
    "same": "The same finding in both runs. Other bits than in the other run, or another rate of differing, are no "
    "change.",
}
# Of these something is told that is worth a look; the order is that in which checks tell it.
CHANGES: tuple[Kind, ...] = ("regressed", "improved", "changed", "added", "removed")
# A change of a row that both runs have.
MOVES: tuple[Kind, ...] = ("regressed", "improved", "changed")

CONFIRMED_MEANING = (
    "Unconfirmed: each run saw the row once, and load changes what is seen. An alert is proof by itself: that an op "
    "raises, or does not, does not depend on load; what it does where it no longer raises may."
)


class JudgedRow(Struct, frozen=True, kw_only=True):
    """What became of a row, and what says so."""

    kind: Kind
    confirmed: bool | None = None  # None: nothing changed that would need it
    detail: str = ""  # what the class rests on
    reason: Reason | None = None  # why the row is not comparable
    apparent: Kind | None = None  # what the findings alone would make of a row that is not comparable
    tests: tuple[RateTest, ...] = ()  # where a run saw it differ
    of_flag: Kind | None = None  # the class that the flag off and on alone give; None: the same one

    @property
    def chance(self) -> bool:
        """Whether the exact test takes for chance that the row seems to have changed."""
        return self.reason == "too_few_executions" and all(test.chance for test in self.tests)


class Change(Struct, frozen=True, kw_only=True):
    """One row of two runs."""

    old: MatrixRow | None  # None: not planned
    new: MatrixRow | None
    judged: JudgedRow

    @property
    def row(self) -> MatrixRow:
        """The later of the two, or the only one."""
        row = self.new or self.old
        assert row is not None
        return row

    @property
    def kind(self) -> Kind:
        """The class of the change."""
        return self.judged.kind

    @property
    def of_flag(self) -> Kind:
        """What became of the row with the flag off and on, whatever chosen modes, references and properties show."""
        return self.judged.of_flag or self.kind

    @property
    def differs(self) -> bool:
        """Whether the runs' findings are a change, be it comparable or not."""
        return self.kind in CHANGES or self.judged.apparent is not None

    @property
    def alike(self) -> bool:
        """Whether both runs computed the same, so that bits and times of the two can be held against each other."""
        return self.judged.reason not in UNLIKE

    @property
    def other_bits(self) -> tuple[Mode, ...]:
        """The modes in which both runs were deterministic and, computing the same, gave bits that are not the same."""
        if self.old is None or self.new is None or not self.alike:
            return ()
        pairs = ((mode, cell_of_mode(self.old, mode), cell_of_mode(self.new, mode)) for mode in MODES)
        return tuple(mode for mode, old, new in pairs if _apart(old, new))

    @property
    def moved(self) -> dict[Mode, Moved]:
        """How far, in those of them of which both runs hold samples."""
        if self.old is None or self.new is None:
            return {}
        found = {mode: moved(self.old, self.new, mode) for mode in self.other_bits}
        return {mode: one for mode, one in found.items() if one is not None}

    @property
    def bits_words(self) -> str:
        """Name the modes with other bits, and say how far they moved, once if that is the same in all; empty if there are none."""
        texts = {mode: one.words for mode, one in self.moved.items()}
        told = [f"{mode}: {text}" for mode, text in texts.items()]
        if len(set(texts.values())) == 1 and len(texts) == len(self.other_bits):
            told = [*texts.values()][:1]
        return ", ".join(self.other_bits) + (f"; bits moved: {'; '.join(told)}" if told else "")


def doubted(kind: Kind, reason: Reason, detail: str, tests: tuple[RateTest, ...]) -> JudgedRow:
    """Say that a row is not comparable, and what it would be if the findings were believed."""
    return JudgedRow(
        kind="not_comparable",
        detail=detail,
        reason=reason,
        apparent=kind if kind in MOVES else None,
        tests=tests,
    )


def _apart(old: Cell, new: Cell) -> bool:
    """Tell whether two cells that did not differ have digests of one kind that are not the same."""
    firsts = [one.first for one in (old, new) if one.verdict == "deterministic" and one.first is not None]
    return len(set(firsts)) > 1 and len(set(map(digest_kind, firsts))) == 1
