"""One row in two runs: same, better, worse, or not to be compared, and whether that is proof.

The findings say what a change would be, ``class_of``; the evidence says whether there is one, ``judge``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from detmatrix.reports.compare.comparable import UNLIKE, NotComparable, RateTest, Reason, moved, rate_test
from detmatrix.reports.matrix.chosen_columns import dependence_change
from detmatrix.reports.render import View
from detmatrix.scanner.observations.records import MODES, WORKER_MODES, Mode, Row, digest_kind
from detmatrix.scanner.verdicts.cells import COMPARED, Cell
from detmatrix.scanner.verdicts.findings import MatrixRow
from detmatrix.scanner.verdicts.vocabulary import BESIDE, CURED, Finding, Word, meanings

Kind = Literal["regressed", "improved", "changed", "added", "removed", "not_comparable", "same"]

# The order is that of the reports; the lowest rank is the worst.
CLASS: dict[Kind, Word] = {
    "regressed": Word(
        "Worse than before, with the flag off and on or in a mode that both scans chose: raises or is refused where "
        "it ran, differs where it was deterministic, or became silent; or no longer matches its reference, or newly depends on "
        "threads, batch or layout.",
        "↓",
        rank=0,
    ),
    "improved": Word(
        "Better than before, with the flag off and on or in a mode that both scans chose: runs deterministically where "
        "it raised or was refused, is deterministic where it differed, or is no longer silent; or now matches its reference, or no "
        "longer depends on threads, batch or layout.",
        "↑",
        rank=4,
    ),
    "changed": Word(
        "Neither better nor worse: another alert caller, modes that give the same bits in one run and other "
        "bits in the other, or bits that depend on other values.",
        "↔",
        rank=1,
    ),
    "added": Word(
        "Only the later run has the row, because the catalog or PyTorch's databases of samples changed; not a change of an op.",
        "+",
        rank=3,
    ),
    "removed": Word("Only the earlier run has the row.", "−", rank=2),  # noqa: RUF001
    "not_comparable": Word("The runs cannot tell whether the row changed; the reason is given.", "?"),
    "same": Word(
        "The same finding in both runs. Other bits, or another rate of differences, are no change.", "="
    ),
}
CLASS_MEANING = meanings(CLASS)
# Of these something is told that is worth a look; the order is that in which checks tell it.
CHANGES: tuple[Kind, ...] = ("regressed", "improved", "changed", "added", "removed")
# A change of a row that both runs have.
MOVES: tuple[Kind, ...] = ("regressed", "improved", "changed")

CONFIRMED_MEANING = (
    "Unconfirmed: each run saw the row once, and load changes what a run sees; --confirm measures it again. An alert is proof "
    "by itself: whether an op raises does not depend on load. What it does where it no longer raises may."
)


class Change(Struct, frozen=True, kw_only=True):
    """What became of a row of two runs, and what says so."""

    kind: Kind
    old: MatrixRow | None = None  # None: not planned, or not joined yet
    new: MatrixRow | None = None
    confirmed: bool | None = None  # None: nothing changed that would need it
    detail: str = ""  # what the class rests on
    reason: Reason | None = None  # why the row is not comparable
    apparent: Kind | None = None  # what the findings alone would make of a row that is not comparable
    tests: tuple[RateTest, ...] = ()  # where a run saw it differ
    # The class that the flag off and on alone give, whatever chosen modes, references and properties show; None: not told apart.
    of_flag: Kind | None = None
    # The modes whose verdicts carry it: those of the flag, or one that was chosen.
    carried: tuple[Mode, ...] = ()

    @property
    def seeming(self) -> Kind:
        """What the row seems, where it is not proven."""
        return self.apparent or self.kind

    @property
    def chance(self) -> bool:
        """Whether the exact test takes for chance that the row seems to have changed."""
        return self.reason == "too_few_executions" and all(test.chance for test in self.tests)

    @property
    def latest(self) -> MatrixRow:
        """The later of the two, or the only one."""
        found = self.new or self.old
        assert found is not None
        return found

    @property
    def row(self) -> Row:
        """What names it."""
        return self.latest.row

    @property
    def words(self) -> str:
        """The class, with what must not be read without it."""
        if self.apparent is not None:
            return f"{self.kind} (seems {self.apparent})"
        return f"{self.kind} (unconfirmed)" if self.confirmed is False else self.kind

    @property
    def wrong(self) -> str:
        """Say whether the flag newly makes its result wrong, or no longer; empty if neither, or if only one run has the row."""
        sides = tuple("wrong_with_flag" in row.beside if row else None for row in (self.old, self.new))
        turned = "newly" if sides == (False, True) else "no longer" if sides == (True, False) else ""
        return f"{turned} {BESIDE['wrong_with_flag'].phrase}" if turned else ""

    @property
    def differs(self) -> bool:
        """Whether the runs' findings are a change, be it comparable or not."""
        return self.kind in CHANGES or self.apparent is not None

    @property
    def alike(self) -> bool:
        """Whether both runs computed the same, so that bits and times of the two can be held against each other."""
        return self.reason not in UNLIKE

    @property
    def bits(self) -> dict[Mode, bool]:
        """Whether the bits are the same, in each mode in which both runs, computing the same, were deterministic.

        Digests of two kinds cannot be compared.
        """
        if self.old is None or self.new is None or not self.alike:
            return {}
        found = {}
        for mode in MODES:
            cells = (row.cell(mode) for row in (self.old, self.new))
            firsts = [it.first for it in cells if it.verdict == "deterministic" and it.first is not None]
            if len(firsts) > 1 and len(set(map(digest_kind, firsts))) == 1:
                found[mode] = len(set(firsts)) == 1
        return found

    @property
    def other_bits(self) -> tuple[Mode, ...]:
        """The modes of these in which they are not."""
        return tuple(mode for mode, same in self.bits.items() if not same)

    @property
    def moved(self) -> dict[Mode, View]:
        """How far, in those of them of which both runs hold samples."""
        if self.old is None or self.new is None:
            return {}
        found = {mode: moved(self.old, self.new, mode) for mode in self.other_bits}
        return {mode: one for mode, one in found.items() if one is not None}

    @property
    def farthest(self) -> float:
        """How far a sampled number moved at least, over the largest of its output; below 0 where that is not known."""
        return max((one.at_least_of_largest or -1.0 for one in self.moved.values()), default=-1.0)

    @property
    def bits_words(self) -> str:
        """Name the modes with other bits, and say how far they moved, once if that is the same in all; empty if there are none."""
        texts = {mode: one.words for mode, one in self.moved.items()}
        told = [f"{mode}: {text}" for mode, text in texts.items()]
        if len(set(texts.values())) == 1 and len(texts) == len(self.other_bits):
            told = [*texts.values()][:1]
        head = "bits moved: " if any(one["moved"] for one in self.moved.values()) else "bits differ; "
        return ", ".join(self.other_bits) + (f"; {head}{'; '.join(told)}" if told else "")


def doubted(kind: Kind, reason: Reason, detail: str, carried: tuple[Mode, ...] = ()) -> Change:
    """Say that a row is not comparable, and what it would be if the findings were believed."""
    apparent = kind if kind in MOVES else None
    return Change(kind="not_comparable", detail=detail, reason=reason, apparent=apparent, carried=carried)


# From worst to best. The flag on decides, since who needs determinism sets it: silent is worst, raising is better,
# running deterministically is best. Among equals the flag off decides: not having differed is better. Whether the two
# modes give the same bits is neither.
_RANK: dict[Finding, int] = {
    "silent": 0,
    "raises": 1,
    "over_alert": 2,
    "fixed_by_mode": 3,
    "uninitialized": 3,
    "mode_dependent": 4,
    "deterministic": 4,
}
# The same of the flag on alone, and of a chosen mode, which PyTorch may refuse to run as surely as it raises an alert.
_RANK_ON: dict[str, int] = {"nondeterministic": 0, "raises": 1, "refused": 1, "deterministic": 2}
_PROOF: dict[str, tuple[str, str]] = {
    "raises": ("raises now and did not before", "no longer raises"),
    "refused": ("is refused now and was not before", "is no longer refused"),
}
_CERTAIN = {"raises", "nondeterministic"}
# What a chosen mode finds that differs as little as off does: whether the two give the same bits.
_BITS = {"as_off", "mode_dependent"}
# Rates that 0 of n leaves plausible are comparable up to this factor: in two processes 0 of 100 with 0 of 20, not with 0 of 10.
_BOUNDS_FACTOR = 2


def class_of(old: Finding, new: Finding) -> Kind:
    """Return what two findings make of a row, before any doubt: the table that ``judge`` starts from."""
    # A scan that does not run ops without the fill cannot tell what the flag cures from what the fill does.
    if old == new or {old, new} == set(CURED):
        return "same"
    if "inconclusive" in {old, new}:
        return "not_comparable"
    return _of_ranks(_RANK[old], _RANK[new])


def _of_ranks(old: int, new: int) -> Kind:
    return "changed" if old == new else "improved" if new > old else "regressed"


def judge(old: MatrixRow, new: MatrixRow) -> Change:
    """Say what became of a row of two runs that can be compared.

    What a chosen mode began to show is a change whatever off and on show. Where several changed the worst stands for all,
    and each is told; where nothing else did, what its bits depend on. The bits of each value were the same in each of
    several executions: neither load nor chance speaks out of them.
    """
    tests = tuple(_tests(old, new))
    of_flag = replace(_of_flag(old, new, tests), carried=_flag_modes(old, new))
    further = [*(_of_mode(*moved, tests) for moved in _moved(old, new)), *_of_reference(old, new)]
    found = [replace(one, tests=tests) for one in (of_flag, *further)]
    # The worst first: what only seems so stands behind what is so, and chance behind all.
    changed = sorted(
        (one for one in found if one.seeming in MOVES),
        key=lambda it: (it.chance, MOVES.index(it.seeming), it.apparent is not None, not it.confirmed),
    )
    untold = [one for one in found[1:] if one.seeming not in MOVES]
    told = [*(changed or [one for one in found[:1] if one.kind != "same" or not untold]), *untold]
    judged = replace(told[0], detail="; ".join(one.detail for one in told), of_flag=of_flag.kind)
    simulated = all(any(row.cell(mode).simulated for mode in MODES) for row in (old, new))
    if judged.confirmed is False and simulated:
        judged = replace(judged, confirmed=True)  # the schedules are the same again
    return with_dependence(judged, old, new)


def with_dependence(judged: Change, old: MatrixRow, new: MatrixRow) -> Change:
    """Add to what became of a row what its bits depend on otherwise: proof, which stands before any doubt if it is for the worse."""
    kind, texts = dependence_change(old, new)
    over = judged.kind in {"same", "not_comparable"} and (judged.seeming not in MOVES or kind == "regressed")
    doubted = judged.kind == "improved" and judged.confirmed is False and kind == "regressed"
    if texts and (over or doubted):
        detail = judged.detail if judged.kind != "not_comparable" or judged.apparent else ""
        judged = replace(judged, kind=kind, confirmed=True, detail=detail, reason=None, apparent=None)
    untold = (text for text in texts if text not in judged.detail.split("; "))
    return replace(judged, detail="; ".join(filter(None, (judged.detail, *untold))))


def _moved(old: MatrixRow, new: MatrixRow) -> Iterator[tuple[Mode, Cell, Cell]]:
    """Yield the modes that both scans were asked for and in which a row does something else, with both cells.

    It has another verdict, or gives other bits than off where it gave the same, or the reverse. What a mode finds may also
    be something else because off is; that is told of off. A mode that one run did not come to has not changed.
    """
    for mode, before in old.chosen.items():
        after = new.chosen.get(mode)
        if after is None or not all(any(one.mode == mode for one in row.observations) for row in (old, new)):
            continue
        verdicts = {_verdict(before), _verdict(after)}
        if (len(verdicts) > 1 and verdicts & _RANK_ON.keys()) or {before.finding, after.finding} == _BITS:
            yield mode, before, after


def _verdict(one: Cell) -> str:
    """Return the verdict of a mode, in which PyTorch may have refused to run the row."""
    return "refused" if one.refused else one.verdict


def _of_mode(mode: Mode, old: Cell, new: Cell, tests: Sequence[RateTest]) -> Change:
    """Judge what a row does in a chosen mode, which is not what it did; an alert is proof, and so is a refusal."""
    before, after = _verdict(old), _verdict(new)
    if not {before, after} <= _RANK_ON.keys():
        # One of the runs has no result: what that is, and why, is told.
        told = [it.finding if it.finding == "not_compiled" or it.refused else it.verdict for it in (old, new)]
        reasons = [f"{side}: {it.reason}" for side, it in (("before", old), ("after", new)) if it.reason]
        detail = "; ".join([f"{mode}: {' → '.join(map(str, told))}", *reasons])
        return doubted("not_comparable", "no_verdict", detail)
    carried: tuple[Mode, ...] = (mode,) if old.verdict != new.verdict else ()
    # Where off has no verdict the mode finds nothing, and differs all the same.
    same = old.finding == new.finding
    text = f"{mode}: {before} → {after}" if same else f"{mode}: {old.finding} → {new.finding}"
    kind = _of_ranks(_RANK_ON[before], _RANK_ON[after])
    if {before, after} & _PROOF.keys() and after != "deterministic":
        what = _PROOF[after][0] if after in _PROOF else _PROOF[before][1]
        proof = "alert" if "raises" in (before, after) else "refusal"
        detail = f"{text}; {what}; the {proof} is proof"
        return Change(kind=kind, confirmed=True, detail=detail, carried=carried)
    for side, one in (("before", old), ("after", new)):
        if one.weak is not None:
            return doubted(kind, "low_power", f"{text}; {side}: {one.weak}", carried)
    if before not in (after, *_PROOF):
        decisive = [test for test in tests if test.mode == mode]
        text = "; ".join([text, *map(str, decisive)])
        if not any(test.differ for test in decisive):
            return doubted(kind, "too_few_executions", text, carried)
    return Change(kind=kind, confirmed=False, detail=text, carried=carried)


def _of_reference(old: MatrixRow, new: MatrixRow) -> Iterator[Change]:
    """Yield what became of whether a row gives what the reference of its case says, in modes in which both were held to it.

    On a simulated GPU that is what the CPU gives.
    """
    held = [mode for mode in WORKER_MODES if all(row.cell(mode).reference for row in (old, new))]
    turns: tuple[tuple[Kind, MatrixRow, MatrixRow, str, str], ...] = (
        ("regressed", new, old, "now, and was not before", "as its reference → not its reference"),
        ("improved", old, new, "no longer", "not its reference → as its reference"),
    )
    for kind, one, other, beside, reference in turns:
        for name in BESIDE:
            if name in one.beside and name not in other.beside:
                yield Change(kind=kind, confirmed=True, detail=f"{BESIDE[name].phrase} {beside}")
        unlike = {*one.unlike_reference} - {*other.unlike_reference}
        if modes := [mode for mode in held if mode in unlike]:
            yield Change(kind=kind, confirmed=False, detail=f"{', '.join(modes)}: {reference}")


def _of_flag(old: MatrixRow, new: MatrixRow, tests: Sequence[RateTest]) -> Change:
    """Say what became of a row with the flag off and on.

    A change of whether the op raises under the flag is proof: the build decides over the alert, on the same inputs
    and variables, and neither load nor chance does; a row whose processes disagree about it is an error. That an op
    which no longer raises does not differ either is no such proof. Any other change is a difference seen in one run
    and not in the other. It needs enough differing executions that the other run would hardly have missed them, and
    stays unconfirmed until it is measured again.
    """
    if "inconclusive" in {old.finding, new.finding}:
        return _without_finding(old, new, tests)
    kind = class_of(old.finding, new.finding)
    if kind == "same":
        return _same(old, new, tests)
    raised = old.on.verdict == "raises"
    if raised != (new.on.verdict == "raises"):
        detail = f"{_PROOF['raises'][raised]}; the alert is proof"
        # Whether an op that stopped raising is deterministic or silent is still a matter of what could race. One
        # that began to raise breaks programs that ran, whatever they computed.
        if new.on.verdict != "deterministic":
            return Change(kind=kind, confirmed=True, detail=detail)
        if new.weak is not None:
            return doubted(kind, "low_power", f"no longer raises; after: {new.weak}")
        text = f"no longer raises, which is proof; that it no longer differs rests on 0 of {new.on.runs}"
        return Change(kind=kind, confirmed=False, detail=text)
    return _by_evidence(kind, old, new, tests)


def blocked(old: MatrixRow, new: MatrixRow, obstacle: NotComparable) -> Change:
    """Say of a row that something stands against comparing it, and what its findings would make of it."""
    tests = tuple(_tests(old, new))
    others = [*(_of_mode(*moved, tests) for moved in _moved(old, new)), *_of_reference(old, new)]
    kinds = {class_of(old.finding, new.finding), *(one.seeming for one in others)}
    kind: Kind = next((one for one in MOVES if one in kinds), "same")
    return replace(doubted(kind, obstacle.reason, obstacle.detail), tests=tests)


def few_processes(old: MatrixRow, new: MatrixRow) -> str | None:
    """Say why the processes that differed do not carry a change though the executions do; ``None`` if they do."""
    tests = list(_tests(old, new, judge(old, new).carried, processes=True))
    if not tests or any(test.differ for test in tests):
        return None
    return f"single processes may explain the difference: {'; '.join(map(str, tests))}"


def _tests(
    old: MatrixRow, new: MatrixRow, modes: Sequence[Mode] = WORKER_MODES, *, processes: bool = False
) -> Iterator[RateTest]:
    """Yield the test of each mode in which both runs compared executions and one of them saw a difference."""
    for mode in modes:
        verdicts = {row.cell(mode).verdict for row in (old, new)}
        simulated = new.cell(mode).simulated
        if "nondeterministic" in verdicts and verdicts <= set(COMPARED) and not simulated:
            before, after = ([it for it in row.observations if it.mode == mode] for row in (old, new))
            yield rate_test(mode, before, after, processes=processes)


def _without_finding(old: MatrixRow, new: MatrixRow, tests: Sequence[RateTest]) -> Change:
    """Judge a row of which at least one run has no finding: the flag on, which may have its verdicts, and warn_only tell."""
    before, after = old.on.verdict, new.on.verdict
    alerts = _alerts_changed(old, new)
    apparent: Kind = "same"
    if before != after:
        ranked = before in _RANK_ON and after in _RANK_ON
        apparent = _of_ranks(_RANK_ON[before], _RANK_ON[after]) if ranked else "not_comparable"
    elif alerts or {old.warn_only.verdict, new.warn_only.verdict} == set(COMPARED):
        apparent = "changed"
    elif {old.off.verdict, new.off.verdict} == set(COMPARED):
        return _same(old, new, tests)
    if old.finding == new.finding and old.off.verdict == new.off.verdict and apparent == "same":
        return Change(kind="same", detail=f"no finding in either run: {new.reason or 'no reason given'}")
    sides = (("before", old), ("after", new))
    lines = [
        *(
            f"{side}: {row.reason or 'no reason given'}"
            for side, row in sides
            if row.finding == "inconclusive"
        ),
        # What is certain of the flag on is told even so.
        *(f"{side}, flag on: {row.on.verdict}" for side, row in sides if row.on.verdict in _CERTAIN),
        *[alerts] * bool(alerts and before == after),
    ]
    return doubted(apparent, "no_verdict", "; ".join(lines))


def _same(old: MatrixRow, new: MatrixRow, tests: Sequence[RateTest]) -> Change:
    """Judge a row whose finding is the same in both runs."""
    if old.finding != new.finding and all(row.unfilled.verdict in COMPARED for row in (old, new)):
        text = f"fill off: {old.unfilled.verdict} → {new.unfilled.verdict}"
        return Change(kind="changed", confirmed=False, detail=text)
    if changed := _alerts_changed(old, new):
        # An alert's caller is text of the build, not a matter of chance.
        return Change(kind="changed", confirmed=True, detail=f"{changed}; an alert is proof")
    # Under a finding that speaks of the flag on, the flag off may have changed.
    if {old.off.verdict, new.off.verdict} == set(COMPARED):
        kind: Kind = "improved" if new.off.verdict == "deterministic" else "regressed"
        return _by_evidence(kind, old, new, tests)
    # What did not differ under the flag where nothing could race is no evidence that both are deterministic.
    if new.on.verdict == "deterministic":
        for side, row in (("before", old), ("after", new)):
            if row.weak is not None:
                return doubted("same", "low_power", f"{side}: {row.weak}")
    if apart := _bounds_apart(old, new):
        return doubted("same", "fewer_executions", apart)
    text = "; ".join(f"rates differ, {test}" for test in tests if test.differ)
    return Change(kind="same", detail=text)


def _alerts_changed(old: MatrixRow, new: MatrixRow) -> str:
    """Say that the callers of alerts changed, those behind the first one if both runs made the op run; empty if they did not."""
    warn_only = all(row.warn_only.verdict in COMPARED for row in (old, new))
    before, after = (
        ", ".join(
            sorted({name for name in (row.on.alert, *(row.warn_only.alerts if warn_only else ())) if name})
        )
        for row in (old, new)
    )
    return f"alert callers {before or 'none'} → {after or 'none'}" if before != after else ""


def _by_evidence(kind: Kind, old: MatrixRow, new: MatrixRow, tests: Sequence[RateTest]) -> Change:
    """Judge a change that rests on what was seen to differ: on how often executions did, or on schedules of a simulated GPU."""
    carrying = _flag_modes(old, new)
    pairs = {mode: [row.cell(mode) for row in (old, new)] for mode in carrying}
    if texts := [
        f"{mode}: {' → '.join(cell.counted or cell.verdict for cell in pair)}"
        for mode, pair in pairs.items()
        if all(cell.simulated for cell in pair)
    ]:
        # The same schedules show the same again: neither load nor chance speaks out of them.
        return Change(kind=kind, confirmed=True, detail="; ".join(texts))
    for side, row in (("before", old), ("after", new)):
        # It rests on the row's not having differed, in a mode that carries the change, or in both.
        still = not carrying or any(row.cell(mode).verdict == "deterministic" for mode in carrying)
        if row.weak is not None and still:
            return doubted(kind, "low_power", f"{side}: {row.weak}")
    if not carrying:
        if apart := _bounds_apart(old, new):
            return doubted(kind, "fewer_executions", apart)
        bits = {"mode_dependent": "other bits", "deterministic": "the same bits"}
        text = f"the modes give {bits[old.finding]} → {bits[new.finding]}"
        return Change(kind=kind, confirmed=False, detail=text)
    decisive = [test for test in tests if test.mode in carrying]
    text = "; ".join(map(str, decisive))
    if decisive:
        differ = any(test.differ for test in decisive)
        proven = Change(kind=kind, confirmed=False, detail=text)
        return proven if differ else doubted(kind, "too_few_executions", text)
    warn_only = f"warn_only: {old.warn_only.verdict} → {new.warn_only.verdict}"
    reasons = [row.warn_only.reason for row in (old, new) if row.warn_only.reason]
    return doubted(kind, "warn_only_missing", f"{warn_only} ({'; '.join(reasons)})")


def _flag_modes(old: MatrixRow, new: MatrixRow) -> tuple[Mode, ...]:
    """Return the flag on if its verdict changed, or else those of the flag off and warn_only whose verdicts did."""
    if old.on.verdict != new.on.verdict:
        return ("on",)
    modes: tuple[Mode, ...] = ("off", "warn_only")
    return tuple(mode for mode in modes if old.cell(mode).verdict != new.cell(mode).verdict)


def _bounds_apart(old: MatrixRow, new: MatrixRow) -> str | None:
    """Say where neither run saw a difference and one looked so much less that the two are not comparable."""
    for mode in MODES:
        before, after = old.cell(mode), new.cell(mode)
        bounds = sorted(one.bound for one in (before, after) if one.bound is not None)
        if len(bounds) > 1 and bounds[1] > _BOUNDS_FACTOR * bounds[0]:
            return f"{mode}: 0 of {before.runs} → 0 of {after.runs} differed"
    return None
