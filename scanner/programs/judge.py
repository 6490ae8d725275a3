"""Roots from two runs of a program: equal inputs and other outputs."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from scanner.located import Cause, Located, OpSite, Parting, Root
from scanner.programs.align import align
from scanner.programs.recorded_run import (
    CHANGED,
    GENERATOR,
    NOT_COMPARED,
    RecordedDigest,
    RecordedOp,
    RecordedRun,
)

_Marks = frozenset[int]
_NONE: _Marks = frozenset()
# Partings that are told of one run.
_MOST_PARTINGS = 5


class _Judge:
    """Walks through the ops that two runs have in common, and follows what came of those that differed."""

    def __init__(
        self, one: RecordedRun, other: RecordedRun, unwritten: set[OpSite], ignored: frozenset[str]
    ) -> None:
        self._one, self._other, self._ignored = one, other, ignored
        # Call sites that read memory which nothing had written: what differs there comes of that.
        self._unwritten = unwritten
        self.roots: dict[tuple[OpSite, Cause], Root] = {}
        self._numbers: dict[tuple[OpSite, Cause], int] = {}
        self._ordered: list[Root] = []
        # Roots that what a line wrote, or memory from outside, came of.
        self._marks: defaultdict[int, _Marks] = defaultdict(frozenset)
        # Lines of ops that left the memory which they wrote equal.
        self._equal: set[int] = set()
        # Lines whose memory differs for no root: by ignored ops, or by what ops did that only one run called.
        self._excused: set[int] = set()
        # The op that a root was last told at.
        self._last: dict[tuple[OpSite, Cause], int] = {}
        self.propagated = 0
        self._parted = False

    def part(self) -> None:
        """Note that ops were left out, which may have written anything."""
        self._parted = True

    def pair(self, i: int, j: int) -> None:
        """Judge an op that both runs called."""
        mine, its = self._one.ops[i], self._other.ops[j]
        marks = self._inputs(i, mine, its)
        differs = any(_unlike(x, y) for x, y in zip(mine.behind, its.behind, strict=False))
        if marks is not None:
            self.propagated += 1
        elif differs and self._is_ignored(mine):
            marks = _NONE
        elif differs:
            marks = self._root(i, "runs", mine)
        self._written(i, mine, marks if differs or not mine.behind else None)

    def _written(self, i: int, op: RecordedOp, marks: _Marks | None) -> None:
        """Note what came into the memory that an op wrote.

        Args:
            i: The op's line.
            op: What it wrote of that memory may be a part; the rest is of older lines.
            marks: Roots of what differs, or may; ``None``: what it wrote is equal.
        """
        rest: _Marks = frozenset().union(*(self._marks[line] for line in op.older))
        if found := (marks or _NONE) | rest:
            self._marks[i] = found
        elif marks is not None or self._excused & set(op.older):
            self._excused.add(i)
        elif op.behind and self._equal.issuperset(op.older):
            self._equal.add(i)

    def _is_ignored(self, op: RecordedOp) -> bool:
        name = self._one.sites[op.site].op
        return bool(self._ignored & {name, name.partition(".")[0]})

    def _inputs(self, i: int, mine: RecordedOp, its: RecordedOp) -> _Marks | None:
        """Return the roots of inputs that differ; ``None`` if none does."""
        unlike = False
        reached, found = set[int](), set[int]()
        for place, (x, y) in enumerate(zip(mine.before, its.before, strict=False)):
            writer = mine.writers[place] if place < len(mine.writers) else None
            if not _unlike(x, y):
                continue
            unlike = True
            if writer is None:
                found |= self._drawn(i, mine) if _begins(x, GENERATOR) else _NONE
            elif marks := self._marks.get(writer, _NONE):
                reached |= marks
            elif not self._parted and writer not in self._excused:
                behind_us = writer in self._equal or _begins(x, CHANGED) or _begins(y, CHANGED)
                cause: Cause = "changed" if behind_us else "input"
                self._marks[writer] = marks = self._root(i, cause, mine)
                found |= marks
        if not unlike and self._one.texts[mine.numbers] != self._other.texts[its.numbers]:
            # A number that Python computed: of what differed before, if anything did.
            unlike = True
            reached |= set(self._numbers.values())
            found |= _NONE if reached else self._root(i, "input", mine)
        for number in reached:
            self._ordered[number].reached += 1
        return frozenset(reached | found) if unlike else None

    def _drawn(self, i: int, op: RecordedOp) -> _Marks:
        """Return the root of a generator in another state: the first op that drew from it."""
        known = frozenset(number for (_, cause), number in self._numbers.items() if cause == "generator")
        for number in known:
            self._ordered[number].reached += 1
        return known or self._root(i, "generator", op)

    def _root(self, i: int, cause: Cause, op: RecordedOp) -> _Marks:
        site = self._one.sites[op.site]
        key = site, ("unwritten" if site in self._unwritten else cause)
        root = self.roots.get(key)
        if root is None:
            shapes = self._one.texts[op.shapes]
            tensors = tuple(f"{one}]" for one in shapes.removesuffix("]").split("], ")) if shapes else ()
            root = self.roots[key] = Root(site=site, cause=key[1], tensors=tensors, first=i + 1)
            self._numbers[key] = len(self._numbers)
            self._ordered.append(root)
        if self._last.get(key) != i:
            self._last[key] = i
            root.differing_calls += 1
        return frozenset({self._numbers[key]})


def _unlike(one: RecordedDigest, other: RecordedDigest) -> bool:
    return one != other and NOT_COMPARED not in {one, other}


def _begins(digest: RecordedDigest, sign: str) -> bool:
    return isinstance(digest, str) and digest.startswith(sign)


def judge(runs: list[RecordedRun], located: Located, ignored: frozenset[str] = frozenset()) -> Located:
    """Return what the first run found by itself, with what holding it against the others shows.

    Args:
        runs: At least two.
        located: What the process of the first run told.
        ignored: Ops that are no roots, with or without the name of the overload.
    """
    first = runs[0]
    calls: defaultdict[OpSite, int] = defaultdict(int)
    for op in first.ops:
        calls[first.sites[op.site]] += 1
    roots: dict[tuple[OpSite, Cause], Root] = {(root.site, root.cause): root for root in located.roots}
    partings: list[Parting] = []
    compared = propagated = 0
    for number, other in enumerate(runs[1:], start=2):
        aligned = align(first.keys(), other.keys())
        judged = _Judge(first, other, {site for site, cause in roots if cause == "unwritten"}, ignored)
        gaps = iter(aligned.gaps)
        gap = next(gaps, None)
        for i, j in aligned.pairs:
            while gap is not None and gap[0] <= i:
                judged.part()
                gap = next(gaps, None)
            judged.pair(i, j)
        partings += [
            Parting(
                first=first.sites[first.ops[i].site] if i < len(first.ops) else None,
                second=other.sites[other.ops[j].site] if j < len(other.ops) else None,
                only_first=i_end - i,
                only_second=j_end - j,
                run=number,
            )
            for i, i_end, j, j_end in aligned.gaps[:_MOST_PARTINGS]
        ]
        compared = max(compared, len(aligned.pairs))
        propagated = max(propagated, judged.propagated)
        for key, root in judged.roots.items():
            known = roots.get(key)
            root.executions, root.differing = 1, 1
            root.calls = calls[root.site]
            if known is None:
                roots[key] = root
            else:
                known.executions += 1
                known.differing += 1
                known.differing_calls = max(known.differing_calls, root.differing_calls)
                known.reached = max(known.reached, root.reached)
    for root in roots.values():
        if root.cause not in {"replay", "unwritten"}:
            root.executions = len(runs) - 1
    return replace(
        located,
        runs=len(runs),
        compared=compared,
        propagated=propagated,
        partings=tuple(partings),
        roots=tuple(roots.values()),
    )
