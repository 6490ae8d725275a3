"""Runs compared in the order given: each with the one before it on the same kind of device, row by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from reports.compare.claims import ClaimChange, compare_claims, undocumented
from reports.compare.cost import CostComparison, compare_costs
from reports.compare.remeasured import Again, Outcome, outcome_of, settle
from reports.compare.rows.comparable import NotComparable, kind_of, of_absence, of_machines, of_rows, of_runs
from reports.compare.rows.judge import blocked, judge
from reports.compare.rows.judged import CHANGES, CLASS_MEANING, MOVES, Change, JudgedRow, Kind
from reports.compare.rows.rates import RateTest, together
from reports.matrix.listed import RunLists, lists_of
from reports.matrix.model import Matrix
from scanner.accelerators import label_of
from scanner.errors import UsageError
from scanner.verdicts.findings import MatrixRow

# By what joins it, the latest finding of a row and the run that has it.
Found = dict[tuple[str, str, str, str], tuple[Matrix, MatrixRow]]


class LikelyChange(Struct, frozen=True, kw_only=True):
    """Rows of one op that seem to have changed in one way: each by chance for all that is known, but not all together."""

    kind: Kind
    op: str
    tests: tuple[RateTest, ...]  # of all rows of the op together, in each mode in which they are told apart
    changes: tuple[Change, ...]  # the rows that seem to have changed


class Pair(Struct, frozen=True, kw_only=True):
    """Two runs on one kind of device, the second held against the first."""

    old: Matrix
    new: Matrix
    lists: tuple[RunLists, RunLists]
    obstacles: tuple[NotComparable, ...]  # what keeps every row from being compared
    changes: tuple[Change, ...]  # every row, those that are gone last
    claims: tuple[ClaimChange, ...]
    undocumented: tuple[Change, ...]  # measured changes that no changed claim is about
    cost: CostComparison | None  # None: ratios on other hardware or settings are not comparable
    again: Again | None = None  # what was measured again to confirm the changes; None: nothing

    @property
    def counts(self) -> dict[Kind, int]:
        """How many rows are of each class."""
        counts = Counter(change.kind for change in self.changes)
        return {kind: counts[kind] for kind in CLASS_MEANING}

    @property
    def unconfirmed(self) -> int:
        """How many changes are still to be confirmed."""
        return sum(change.judged.confirmed is False for change in self.changes)

    @property
    def compared(self) -> int:
        """How many rows have a finding in both runs that could be compared."""
        kinds: tuple[Kind, ...] = ("same", *MOVES)
        return sum(change.kind in kinds and change.row.finding != "inconclusive" for change in self.changes)

    @property
    def outcome(self) -> Outcome | None:
        """What became of the rows that were measured again; ``None`` if none should have been."""
        if self.again is None:
            return None
        return outcome_of(self.again, {change.row.row.key: change for change in self.changes})

    @property
    def likely(self) -> list[LikelyChange]:
        """The ops of which several rows seem to have changed in one way, and together are no chance."""
        seeming: dict[tuple[Kind, str], list[Change]] = {}
        for change in self.changes:
            if change.judged.apparent is not None and change.judged.chance:
                seeming.setdefault((change.judged.apparent, change.row.row.op), []).append(change)
        found = []
        for (kind, op), changes in seeming.items():
            # All rows of the op count, not those alone that were picked because they differ.
            every = [
                test for change in self.changes if change.row.row.op == op for test in change.judged.tests
            ]
            modes = dict.fromkeys(test.mode for change in changes for test in change.judged.tests)
            tests = [together([test for test in every if test.mode == mode]) for mode in modes]
            apart = tuple(test for test in tests if test is not None and test.differ)
            if apart and len(changes) > 1:
                found.append(LikelyChange(kind=kind, op=op, tests=apart, changes=tuple(changes)))
        return found

    def of(self, kind: Kind) -> list[Change]:
        """Return the rows of one class."""
        return [change for change in self.changes if change.kind == kind]


class Comparison(Struct, frozen=True, kw_only=True):
    """All runs, and what became of their rows from one to the next."""

    matrices: tuple[Matrix, ...]
    pairs: tuple[Pair, ...]
    alone: tuple[Matrix, ...]  # the only one of its kind of device


class TimelineRow(Struct, frozen=True):
    """One row in every run of one kind of device."""

    cells: tuple[MatrixRow | None, ...]  # by run; None: not planned
    changes: tuple[
        Change | None, ...
    ]  # from the run before; None for the first run, and where neither planned it

    @property
    def row(self) -> MatrixRow:
        """The latest of its cells."""
        return [cell for cell in self.cells if cell is not None][-1]

    @property
    def changed(self) -> int:
        """How often it changed."""
        return sum(change is not None and change.kind in CHANGES for change in self.changes)

    @property
    def differed(self) -> int:
        """How often its finding was another than before, be that comparable or not."""
        return sum(change is not None and change.differs for change in self.changes)


class Timeline(Struct, frozen=True):
    """The runs of one kind of device, and all of their rows."""

    matrices: tuple[Matrix, ...]
    lists: tuple[RunLists, ...]
    pairs: tuple[Pair, ...]  # each run with the one before it
    rows: tuple[TimelineRow, ...]  # those that changed most first

    @property
    def differing(self) -> list[TimelineRow]:
        """The rows that changed from one run to the next, or seem to have."""
        return [row for row in self.rows if row.differed]


def compare(matrices: Sequence[Matrix], again: Mapping[tuple[str, str], Again] | None = None) -> Comparison:
    """Compare each run with the one before it on the same kind of device.

    Args:
        matrices: The runs, in the order in which they are to be compared.
        again: What was measured again, by the names of the two runs.

    Raises:
        UsageError: No two runs are of one kind of device.
    """
    latest: dict[str, Matrix] = {}
    found: dict[str, Found] = {}
    pairs = []
    for one in matrices:
        kind = kind_of(one)
        before, known = latest.get(kind), found.setdefault(kind, {})
        if before is not None:
            pairs.append(compare_pair(before, one, (again or {}).get((before.name, one.name)), known))
        latest[kind] = one
        known |= {row.row.key: (one, row) for row in one.rows if row.finding != "inconclusive"}
    if not pairs:
        text = ", ".join(f"{one.name} is of {label_of(kind_of(one))}" for one in matrices)
        simulated = "; what is simulated is never compared with what was measured" * any(
            one.simulated for one in matrices
        )
        raise UsageError(f"nothing to compare: {text}{simulated}; give two runs of one kind of device")
    kinds = Counter(kind_of(one) for one in matrices)
    return Comparison(
        matrices=tuple(matrices),
        pairs=tuple(pairs),
        alone=tuple(one for one in matrices if kinds[kind_of(one)] == 1),
    )


def compare_pair(old: Matrix, new: Matrix, again: Again | None = None, found: Found | None = None) -> Pair:
    """Compare two runs of one kind of device.

    Args:
        old: The run before.
        new: The run after.
        again: Rows of both that were measured again; ``None`` if none were.
        found: For rows of which the run before has no finding, the latest run that has one; ``None``: there is none.
    """
    obstacles = of_runs(old, new)
    before, after = ({row.row.key: row for row in one.rows} for one in (old, new))
    rows: list[tuple[MatrixRow | None, MatrixRow | None]]
    rows = [(before.get(key), row) for key, row in after.items()]
    rows += [(row, None) for key, row in before.items() if key not in after]
    changes = [
        Change(
            old=earlier,
            new=later,
            judged=_across(
                _judged(old, new, obstacles, earlier, later, again), new, earlier, later, found or {}
            ),
        )
        for earlier, later in rows
    ]
    lists = lists_of(old), lists_of(new)
    claims = compare_claims(lists[0].claims, lists[1].claims, changes)
    return Pair(
        old=old,
        new=new,
        lists=lists,
        obstacles=obstacles,
        changes=tuple(changes),
        claims=claims,
        undocumented=undocumented(claims, changes),
        cost=None if obstacles else compare_costs([change for change in changes if change.alike]),
        again=again,
    )


def timelines(comparison: Comparison) -> list[Timeline]:
    """Return a timeline for each kind of device of which there are at least two runs."""
    kinds = dict.fromkeys(kind_of(one) for one in comparison.matrices)
    of_kind = ([pair for pair in comparison.pairs if kind_of(pair.new) == kind] for kind in kinds)
    return [_timeline(pairs) for pairs in of_kind if pairs]


def _judged(
    old: Matrix,
    new: Matrix,
    obstacles: Sequence[NotComparable],
    before: MatrixRow | None,
    after: MatrixRow | None,
    again: Again | None,
) -> JudgedRow:
    """Say what became of a row that at least one run has."""
    if before is None or after is None:
        absence = None
        if after is not None:
            absence = of_absence(old, new, after.row)
        elif before is not None:
            absence = of_absence(new, old, before.row)
        if absence is not None:
            return JudgedRow(kind="not_comparable", reason=absence.reason, detail=absence.detail)
        return JudgedRow(kind="added" if before is None else "removed")
    obstacle = next(iter(obstacles), None) or of_machines(old, new, before, after) or of_rows(before, after)
    if obstacle is not None:
        return blocked(before, after, obstacle)
    return settle(judge(before, after), before, after, again)


def _across(
    judged: JudgedRow, new: Matrix, before: MatrixRow | None, after: MatrixRow | None, found: Found
) -> JudgedRow:
    """Say what a row seems since the latest run that has a finding of it, where the run before has none."""
    if after is None or after.finding == "inconclusive" or after.row.key not in found:
        return judged
    if before is not None and before.finding != "inconclusive":
        return judged
    one, earlier = found[after.row.key]
    since = _judged(one, new, of_runs(one, new), earlier, after, None)
    apparent = since.kind if since.kind in MOVES else since.apparent
    if apparent is None:
        return judged
    text = f"since {one.name}: {earlier.finding} → {after.finding}" + f"; {since.detail}" * bool(since.detail)
    return replace(judged, apparent=apparent, detail=f"{judged.detail}; {text}" if judged.detail else text)


def _timeline(pairs: Sequence[Pair]) -> Timeline:
    """Join the pairs of one kind of device."""
    matrices = (pairs[0].old, *(pair.new for pair in pairs))
    by_run = [{row.row.key: row for row in one.rows} for one in matrices]
    changes = [{change.row.row.key: change for change in pair.changes} for pair in pairs]
    # The latest run says in which order the rows stand.
    keys = dict.fromkeys(key for rows in reversed(by_run) for key in rows)
    rows = [
        TimelineRow(tuple(rows.get(key) for rows in by_run), (None, *(found.get(key) for found in changes)))
        for key in keys
    ]
    rows.sort(key=lambda row: (-row.changed, -row.differed))
    lists = (pairs[0].lists[0], *(pair.lists[1] for pair in pairs))
    return Timeline(matrices, lists, tuple(pairs), tuple(rows))
