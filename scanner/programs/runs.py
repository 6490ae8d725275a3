"""Runs of a program as their processes wrote them down, held against each other: equal inputs and other outputs are roots."""

from __future__ import annotations

import heapq
import sys
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Collection, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import IO, Any

import msgspec

from detmatrix.scanner.errors import RunFileError, UsageError
from detmatrix.scanner.located import (
    CHANGED,
    COMPILED_IN_ONE,
    GENERATOR,
    NOT_COMPARED,
    PART,
    REGION,
    Cause,
    CodeLine,
    Located,
    OpSite,
    Parting,
    Root,
)
from detmatrix.scanner.observations.opening import UNDECODABLE, opening_of, readable, refuse_newer, what_it_is

# The kind and the format of records; digests of 1, the first, were equal for some tensors that differ. An extra field of a line is
# no new format.
KIND, FORMAT = "ops", 2
# Bytes of a line: the longest names a call site, or what an op on thousands of tensors was given.
_LONGEST_LINE = 16 << 20
# The first step that is compared, and the one before which that ends.
Steps = tuple[int, int | None]
ALL_STEPS: Steps = (0, None)
# So many ops in a row must agree before two runs are said to go on together.
_TOGETHER = 8
# Ops that are looked through for that; most are near.
_WINDOW, _NEAR = 20_000, 256
Gap = tuple[int, int, int, int]  # from and to in the first, from and to in the second
# Ops of two runs that belong together, and where the runs part.
Alignment = tuple[list[tuple[int, int]], list[Gap]]
# A number of 64 bits, or a text that begins with one of these.
RecordedDigest = int | str


class RecordedOp(msgspec.Struct, array_like=True, frozen=True):
    """One op of a run."""

    site: int
    shapes: int
    numbers: int
    before: tuple[RecordedDigest, ...]
    writers: tuple[int, ...]
    behind: tuple[RecordedDigest, ...]
    older: tuple[int, ...] = ()
    used: int | None = None  # of a compiled region: numbers beside its arguments
    gave: int | None = None  # shapes of what it gave, of which zeros have the same digest in any


class _Named(msgspec.Struct):
    """What stands between ops: a call site, a text, the states of Python's generators, a step that begins, the end.

    And the line whose memory ``tolist`` or numpy was given and, ahead of the end, the call sites that read memory which nothing had written.
    """

    site: OpSite | None = None
    arguments: tuple[str, ...] = ()  # of the site: the names of the tensors that it is given
    text: str | None = None
    states: dict[str, int] | None = None
    step: int | None = None
    handed: int | None = None
    saved: int | None = None
    unwritten: tuple[int, ...] | None = None
    ended: str | None = None


class RecordHeader(msgspec.Struct):
    """What ran, and where."""

    kind: str
    format: int
    torch: str = "unknown"
    python: str = "unknown"
    threads: int = 1
    eager: bool | None = None  # whether torch.compile compiled nothing; None: an older record


class RecordedRun:
    """All ops of a run in their order, with the call sites and texts that they refer to by number."""

    def __init__(self, path: Path) -> None:
        """Read it.

        Raises:
            RunFileError: It cannot be read, or is no record.
        """
        self.path = path
        self.sites: list[OpSite] = []
        self.arguments: list[tuple[str, ...]] = []
        self.texts: list[str] = []
        self.ops: list[RecordedOp] = []
        self.states: list[tuple[int, dict[str, int]]] = []  # from which op on
        self.step: list[tuple[int, int]] = []  # the op that begins it, its number
        self.handed: list[tuple[int, int]] = []  # ahead of which op, whose memory
        self.saved: list[tuple[int, int]] = []
        self.unwritten: tuple[int, ...] = ()  # call sites
        self.ended: str | None = "the record is cut short"
        with readable(path, "detmatrix locate --record", RunFileError, cut=True) as file:
            lines = _lines(file)
            self._read_header(next(lines, b""))
            number = 1
            try:
                for line in lines:
                    number += 1
                    if line.endswith(b"\n"):  # the last one of a run that was killed need not be whole
                        self._read(line)
                self._check()
            except (*UNDECODABLE, IndexError) as error:
                raise RunFileError(f"{path}, line {number}: is no line of a record ({error})") from None

    def _read_header(self, line: bytes) -> None:
        opening = opening_of(line)
        if opening.kind != KIND:
            raise RunFileError(
                f"{self.path}: no record of a run{what_it_is(line)}; give a file that detmatrix locate --record wrote"
            )
        refuse_newer(self.path, "record format", opening.format, FORMAT, RunFileError)
        try:
            self.header = msgspec.json.decode(line, type=RecordHeader)
        except UNDECODABLE as error:
            raise RunFileError(f"{self.path}, line 1: is no line of a record ({error})") from None
        if self.header.format < FORMAT:
            raise RunFileError(f"{self.path}: is of an older detmatrix, with other digests; record it again")

    def _read(self, line: bytes) -> None:
        if line.startswith(b"["):
            self.ops.append(_OP.decode(line))
            return
        one = _NAMED.decode(line)
        if one.site is not None:
            self.sites.append(one.site)
            self.arguments.append(one.arguments)
        elif one.text is not None:
            self.texts.append(one.text)
        elif one.unwritten is not None:
            self.unwritten = one.unwritten
        elif found := next(((name, it) for name in _PLACED if (it := getattr(one, name)) is not None), None):
            getattr(self, found[0]).append((len(self.ops), found[1]))
        else:
            self.ended = one.ended or None

    def _check(self) -> None:
        for one in self.ops:
            texts = one.shapes, one.numbers, one.used or 0, one.gave or 0
            if min(one.site, *texts) < 0:
                raise IndexError(f"{one.site}, {texts}")
            _ = self.sites[one.site], [self.texts[text] for text in texts]
        if any(one not in range(len(self.sites)) for one in self.unwritten):
            raise IndexError(f"unwritten {self.unwritten}")

    def keys(self) -> list[list[Any]]:
        """Return what each op is known by in any run, from the closest to the widest: by its line, its module, its op.

        A file is known by its text: it may lie elsewhere, or under a random name.
        """
        by_line = [
            (one.op, one.phase, one.module, one.node, _code(one.line), _code(one.library))
            for one in self.sites
        ]
        by_module = [(*known[:4], *(code and code[-1] for code in known[4:])) for known in by_line]
        by_op = [(one.op, one.phase, one.module) for one in self.sites]
        return [
            [(by_line[one.site], self.texts[one.shapes]) for one in self.ops],
            *([sites[one.site] for one in self.ops] for sites in (by_module, by_op)),
        ]

    def states_at(self, i: int) -> dict[str, int]:
        """Return the states of Python's generators where an op was called, of those that had been drawn from."""
        return next((states for first, states in reversed(self.states) if first <= i), {})


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """Yield lines as far as they go: the compressed record of a job that was killed ends somewhere."""
    with suppress(EOFError):
        yield from iter(lambda: file.readline(_LONGEST_LINE), b"")


# What stands ahead of some op, each a list of a run.
_PLACED = ("states", "step", "handed", "saved")
_OP, _NAMED = msgspec.json.Decoder(RecordedOp), msgspec.json.Decoder(_Named)


def _code(line: CodeLine | None) -> tuple[str, int, str] | None:
    return (line.source or line.file, line.line, line.function) if line else None


def align_runs(first: RecordedRun, second: RecordedRun, steps: Steps = ALL_STEPS) -> Alignment:
    """Pair the ops of two runs by the closest of their keys, and what is left between these by wider ones."""
    pairs: list[tuple[int, int]] = []
    gaps: list[Gap] = [_common_steps(first, second, steps)]
    begin, _, there, _ = gaps[0]
    for one, other in zip(first.keys(), second.keys(), strict=True):
        left: list[Gap] = []
        for i, i_end, j, j_end in gaps:
            together, apart = align(one[i:i_end], other[j:j_end])
            pairs += [(i + x, j + y) for x, y in together]
            left += [(i + a, i + b, j + c, j + d) for a, b, c, d in apart]
        gaps = left
    # What a run that was resumed does before it goes on has no like; it is one that has nothing ahead of their first common step.
    if gaps and (
        (begin and not there and gaps[0][:2] == (begin,) * 2)
        or (there and not begin and gaps[0][2:] == (there,) * 2)
    ):
        del gaps[0]
    return sorted(pairs), gaps


def _common_steps(first: RecordedRun, second: RecordedRun, steps: Steps) -> Gap:
    """Return the ops of those steps that both runs have, from the first such step on; of runs that begin alike all ops."""
    one, other = ({number: op for op, number in reversed(run.step)} for run in (first, second))
    ends = len(first.ops), len(second.ops)
    if steps == ALL_STEPS and (not one or not other or min(one) == min(other)):
        return 0, ends[0], 0, ends[1]
    chosen = range(steps[0], sys.maxsize if steps[1] is None else steps[1])
    step = min((number for number in one.keys() & other.keys() if number in chosen), default=None)
    if step is None:
        raise UsageError(
            f"{first.path} and {second.path} have no step in common; record steps that both runs have"
        )
    i_end, j_end = (
        min((op for number, op in begins.items() if number >= chosen.stop), default=end)
        for begins, end in zip((one, other), ends, strict=True)
    )
    return one[step], i_end, other[step], j_end


def align(first: Sequence[Hashable], second: Sequence[Hashable]) -> Alignment:
    """Pair the ops of two runs, each known by a key."""
    numbers: dict[Hashable, int] = {}
    one = [numbers.setdefault(key, len(numbers)) for key in first]
    other = [numbers.setdefault(key, len(numbers)) for key in second]
    pairs: list[tuple[int, int]] = []
    gaps: list[Gap] = []
    i = j = 0
    while i < len(one) and j < len(other):
        if one[i] == other[j]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
            continue
        found = _together(one, i, other, j)
        if found is None:
            break
        gaps.append((i, found[0], j, found[1]))
        i, j = found
    if i < len(one) or j < len(other):
        gaps.append((i, len(one), j, len(other)))
    return pairs, gaps


def _together(one: Sequence[int], i: int, other: Sequence[int], j: int) -> tuple[int, int] | None:
    """Return the nearest places behind *i* and *j* from which the next ops agree, down to the end if that is near."""
    for length, window in ((_TOGETHER, _NEAR), (_TOGETHER, _WINDOW), (1, _WINDOW)):
        starts: dict[tuple[int, ...], int] = {}
        for place in range(j, min(j + window, len(other) - length + 1)):
            starts.setdefault(tuple(other[place : place + length]), place)
        best = None
        for place in range(i, min(i + window, len(one) - length + 1)):
            if best is not None and place - i >= best[0] - i + best[1] - j:
                break
            there = starts.get(tuple(one[place : place + length]))
            if there is not None and (best is None or place + there < sum(best)):
                best = place, there
        if window == _NEAR and best is not None and sum(best) - i - j > _NEAR:
            continue  # beyond what was looked through there may be nearer ones
        # Fewer ops than that agree by chance, but for the last ones of both runs.
        if best is not None and (length == _TOGETHER or list(one[best[0] :]) == list(other[best[1] :])):
            return best
    return None


_Marks = frozenset[Root]
_NONE: _Marks = frozenset()


class _Judge:
    """Walks through the ops that two runs have in common, and follows what came of those that differed."""

    def __init__(
        self, one: RecordedRun, other: RecordedRun, unwritten: set[OpSite], ignored: frozenset[str]
    ) -> None:
        self._one, self._other, self._ignored = one, other, ignored
        # Call sites that read memory which nothing had written: what differs there comes of that.
        self._unwritten = unwritten
        self.roots: dict[tuple[OpSite, Cause], Root] = {}
        # Roots that what a line wrote, or memory from outside, came of.
        self._marks: defaultdict[int, _Marks] = defaultdict(frozenset)
        # Lines of ops that left the memory which they wrote equal.
        self._equal: set[int] = set()
        # Each line from which on the other run's lines of the same ops are so many further, or back.
        self._shifts: list[tuple[int, int]] = []
        # Lines whose memory differs for no root: by ignored ops, or by what ops did that only one run called; those of the other run.
        self._excused: set[int] = set()
        self._left: set[int] = set()
        # The op that a root was last told at.
        self._last: dict[Root, int] = {}
        # What the state of a generator, by its name, comes of: draws of another number than in the other run.
        self._draws: defaultdict[str | None, _Marks] = defaultdict(frozenset)
        # Roots of what ops handed to Python, which numbers that it computed may come of; and whether it was handed what
        # differs for no root.
        self._handed: _Marks = _NONE
        self._handed_excused = False
        self._handings = deque(one.handed)
        # Roots of what was saved, which memory from outside may come of, and of regions, which it may have been saved by for
        # their backward phase.
        self._saved: _Marks = _NONE
        self._savings, self._regions = deque(one.saved), _NONE
        self.compared = self.propagated = self._there = 0
        # Whether ops were left out, whether such drew; memory from outside that was seen, in each run, and up to the last gap.
        self._parted = self._drew_apart = False
        self._seen = self._seen_at_gap = 0, 0
        self._compiled_in_one = {one.header.eager, other.header.eager} == {True, False}

    def part(self, gap: Gap) -> None:
        """Note that ops were left out, which may have written, drawn or handed over anything."""
        self._parted = True
        for run, begin, end in ((self._one, *gap[:2]), (self._other, *gap[2:])):
            left = run.ops[begin:end]
            self._handed_excused |= any(not op.behind for op in left)
            self._handed_excused |= any(begin <= writer < end for _, writer in run.handed)
            self._drew_apart |= any(_begins(one, GENERATOR) for op in left for one in op.before)
        self._excused.update(range(*gap[:2]))
        self._left.update(range(*gap[2:]))
        self._see(self._one.ops[slice(*gap[:2])], self._other.ops[slice(*gap[2:])])
        self._seen_at_gap = self._seen

    def _see(self, mine: Sequence[RecordedOp], its: Sequence[RecordedOp]) -> None:
        one, other = (min((writer for op in ops for writer in op.writers), default=0) for ops in (mine, its))
        self._seen = min(one, self._seen[0]), min(other, self._seen[1])

    def _align(self, i: int, j: int) -> None:
        if not self._shifts or self._shifts[-1][1] != j - i:
            self._shifts.append((i, j - i))

    def pair(self, i: int, j: int) -> None:
        """Judge an op that both runs called."""
        mine, its = self._one.ops[i], self._other.ops[j]
        self._there = j
        self._align(i, j)
        while self._handings and self._handings[0][0] <= i:
            writer = self._handings.popleft()[1]
            self._hand(self._marks.get(writer, _NONE), excused=writer in self._excused)
        while self._savings and self._savings[0][0] <= i:
            self._saved |= self._marks.get(self._savings.popleft()[1], _NONE)
        marks, name = self._inputs(i, mine, its), self._one.sites[mine.site].op
        self._see([mine], [its])
        digests = [*zip(mine.before, its.before, strict=False), *zip(mine.behind, its.behind, strict=False)]
        self.compared += not digests or any(NOT_COMPARED not in both for both in digests)
        differs = len(mine.behind) != len(its.behind) or self._texts_differ(mine.gave, its.gave) is not None
        differs |= any(_unlike(x, y) for x, y in zip(mine.behind, its.behind, strict=False))
        if marks is not None:
            self.propagated += 1
        elif differs and self._ignored & {name, name.partition(".")[0]}:
            marks = _NONE
        elif differs:
            # Compiled code rounds otherwise than eager code, whatever numbers it is given.
            used = self._texts_differ(mine.used, its.used)
            if used is None or self._compiled_in_one:
                marks = self._root(i, "runs", mine, used)
            else:
                marks = self._of_python(i, mine, used)
        if marks and name.startswith(REGION):
            self._regions |= marks
        for place in range(len(mine.writers), len(mine.before) if marks else 0):
            self._draws[self._generator(mine, place)] |= marks or _NONE
        if marks is not None and not mine.behind:
            self._hand(marks, excused=not marks)
        self._written(i, mine, marks if differs or not mine.behind else None)

    def _hand(self, marks: _Marks, *, excused: bool) -> None:
        """Note what Python was given, of which it may compute numbers."""
        self._handed |= marks
        self._handed_excused |= excused

    def _of_python(self, i: int, op: RecordedOp, value: str, reached: Collection[Root] = ()) -> _Marks:
        """Return the roots of a number, as both runs have it, that Python computed: of what ops that differed had handed to it.

        If none had it is a root itself; those *reached* have reached the op by its tensors.
        """
        for root in self._handed:
            root.numbers += 1
            root.reached += root not in reached
        if self._handed or self._handed_excused:
            return self._handed
        return self._root(i, "input", op, value)

    def _written(self, i: int, op: RecordedOp, marks: _Marks | None) -> None:
        """Note the roots of what an op wrote that differs, or may (``None``: it is equal); the rest of that memory is of older lines."""
        rest: _Marks = frozenset().union(*(self._marks[line] for line in op.older))
        if found := (marks or _NONE) | rest:
            self._marks[i] = found
        elif marks is not None or self._excused & set(op.older):
            self._excused.add(i)
        elif op.behind and self._equal.issuperset(op.older):
            self._equal.add(i)

    def _inputs(self, i: int, mine: RecordedOp, its: RecordedOp) -> _Marks | None:
        """Return the roots of inputs that differ; ``None`` if none does."""
        unlike = False
        reached, found = set[Root](), set[Root]()
        shapes = self._one.texts[mine.shapes], self._other.texts[its.shapes]
        # Memory from outside may come of what was saved, and in the backward phase of what regions kept for it.
        backward = self._one.sites[mine.site].phase == "backward"
        # Zeros and no elements have the same digest in any shape.
        reshaped = (
            [x != y for x, y in zip(*map(_split, shapes), strict=False)] if shapes[0] != shapes[1] else []
        )
        for place, (x, y) in enumerate(zip(mine.before, its.before, strict=False)):
            writer = mine.writers[place] if place < len(mine.writers) else None
            if not _unlike(x, y) and not (any(reshaped[place : place + 1]) and self._marks.get(writer or 0)):
                continue
            unlike = True
            if writer is None:
                found |= self._drawn(i, mine, place) if _begins(x, GENERATOR) else _NONE
            elif marks := self._marks.get(writer, _NONE):
                reached |= marks
            elif writer < 0 and (marks := self._saved | (self._regions if backward else _NONE)):
                self._marks[writer] = marks
                reached |= marks
            elif writer not in self._excused:
                found |= self._given(i, place, mine, its)
        for root in reached:
            root.reached += 1
        if reshaped:
            self._hand(frozenset(reached | found), excused=False)  # Python knows shapes
        if value := self._value(mine, its, beside=unlike):
            unlike = True
            found |= self._of_python(i, mine, value, reached)
        return frozenset(reached | found) if unlike else None

    def _given(self, i: int, place: int, mine: RecordedOp, its: RecordedOp) -> _Marks:
        """Return the root of a tensor that differs for no root that is known; none behind a gap that it may come of."""
        writer, others = mine.writers[place], its.writers[place : place + 1]
        if not self._left.isdisjoint(others) or not self._told(writer, others):
            return _NONE
        tensor = self._tensor(place, mine, its)
        if self._chosen(writer, others):
            return self._root(i, "input", mine, tensor)
        behind_us = writer in self._equal or any(_begins(op.before[place], CHANGED) for op in (mine, its))
        self._marks[writer] = marks = self._root(i, "changed" if behind_us else "input", mine, tensor)
        return marks

    def _chosen(self, writer: int, others: Sequence[int]) -> bool:
        """Tell whether an op was given what another op had made than in the other run: by the order of a set, for one."""
        place = bisect_right(self._shifts, writer, key=itemgetter(0)) - 1
        return (
            writer >= 0 and place >= 0 and any(other != writer + self._shifts[place][1] for other in others)
        )

    def _told(self, writer: int, others: Sequence[int]) -> bool:
        """Tell whether memory that differs for no root is one: behind a gap what came from outside since."""
        return not self._parted or (
            writer < self._seen_at_gap[0] and all(other < self._seen_at_gap[1] for other in others)
        )

    def _value(self, mine: RecordedOp, its: RecordedOp, *, beside: bool) -> str | None:
        """Return the first number, text or shape that the op is given and that differs, as both runs have it.

        *beside* a tensor that differs numbers may come of its shape.
        """
        shapes = self._one.texts[mine.shapes], self._other.texts[its.shapes]
        counts = len(mine.before), len(its.before)
        if beside and (counts[0] != counts[1] or shapes[0] != shapes[1]):
            return None
        if counts[0] != counts[1]:
            return f"{counts[0]} tensors against {counts[1]}"
        unlike = _against(self._one.texts[mine.numbers], self._other.texts[its.numbers])
        return unlike or (None if shapes[0] == shapes[1] else " against ".join(shapes))

    def _texts_differ(self, mine: int | None, its: int | None) -> str | None:
        """Return the first part that differs of two texts, where both ops have one."""
        if mine is None or its is None:
            return None
        return _against(self._one.texts[mine], self._other.texts[its])

    def _tensor(self, place: int, mine: RecordedOp, its: RecordedOp) -> str:
        """Return the name of a tensor that an op is given, with its shapes if these differ."""
        names = self._one.arguments[mine.site]
        name = names[place] if place < len(names) else f"tensor {place + 1}"
        one, other = _split(self._one.texts[mine.shapes]), _split(self._other.texts[its.shapes])
        if place < min(len(one), len(other)) and one[place] != other[place]:
            return f"{name}={one[place]} against {other[place]}"
        return name

    def _generator(self, op: RecordedOp, place: int) -> str | None:
        """Return the name of a generator that the op is given; one of PyTorch's own has none."""
        names = self._one.arguments[op.site]
        return names[place] if place < len(names) else None

    def _drawn(self, i: int, op: RecordedOp, place: int) -> _Marks:
        """Return the root of a generator in another state: the first op that drew from it, or what seeded it."""
        name = self._generator(op, place)
        generators = (root for (_, cause), root in self.roots.items() if cause == "generator")
        known = frozenset(root for root in generators if root.argument == name)
        known = known or self._draws[name] or self._handed
        for root in known:
            root.reached += 1
        if known or self._drew_apart or self._handed_excused:
            return known
        return self._root(i, "generator", op, name)

    def _root(self, i: int, cause: Cause, op: RecordedOp, argument: str | None = None) -> _Marks:
        site = self._one.sites[op.site]
        key = site, ("unwritten" if site in self._unwritten else cause)
        root = self.roots.get(key)
        if root is None:
            shapes = _split(self._one.texts[op.shapes])
            root = self.roots[key] = Root(site, key[1], shapes, first=i + 1, argument=argument)
            if cause == "input":
                # Python's generators that had been drawn from and were in other states.
                one, other = self._one.states_at(i), self._other.states_at(self._there)
                root.origin = (
                    ", ".join(name for name in one if other.get(name, one[name]) != one[name]) or None
                )
            if cause == "runs" and site.op.startswith(REGION) and self._compiled_in_one:
                root.origin = COMPILED_IN_ONE
        if self._last.get(root) != i:
            self._last[root] = i
            root.differing_calls += 1
        return frozenset({root})


@lru_cache(maxsize=256)
def _split(text: str) -> tuple[str, ...]:
    """Return the parts of a list of arguments; commas within brackets part nothing."""
    parts: list[str] = []
    together: list[str] = []
    depth = 0
    for piece in text.split(", ") if text else ():
        together.append(piece)
        depth = max(depth + piece.count("[") - piece.count("]"), 0)
        if not depth:
            parts.append(", ".join(together))
            together = []
    return tuple(one for one in (*parts, ", ".join(together)) if one)


def _against(one: str, other: str) -> str | None:
    """Return the first part of two lists of arguments that differs, of both."""
    if one == other:
        return None
    ones, others = _split(one), _split(other)
    unlike = next(((x, y) for x, y in zip(ones, others, strict=False) if x != y), None)
    return "{} against {}".format(*(unlike or (f"{len(ones)} arguments", f"{len(others)}")))


def _unlike(one: RecordedDigest, other: RecordedDigest) -> bool:
    if one == other or NOT_COMPARED in {one, other}:
        return False
    # Of another part nothing is known.
    which = [str(it).partition(".")[0] for it in (one, other) if _begins(it, PART)]
    return not which or which[1:] == which[:1]


def _begins(digest: RecordedDigest, sign: str) -> bool:
    return isinstance(digest, str) and digest.startswith(sign)


def hold(paths: Sequence[str], **choices: Any) -> Located:
    """Hold the first of some records against the others, with the choices of ``judge``.

    Raises:
        RunFileError: A file cannot be read, or is no record.
        UsageError: They have no step in common.
    """
    runs = [RecordedRun(Path(path)) for path in paths]
    named = tuple(f"{run.path} (torch {run.header.torch})" for run in runs)
    ended = next((f"{run.path}: {run.ended}" for run in runs if run.ended is not None), None)
    header = runs[0].header
    found = Located(
        header.torch, header.python, header.threads, ops=len(runs[0].ops), records=named, ended=ended
    )
    return judge(runs, found, **choices)


def judge(
    runs: list[RecordedRun],
    located: Located,
    *,
    ignored: Sequence[str] = (),
    steps: Steps = ALL_STEPS,
    only_first: bool = False,
) -> Located:
    """Return *located*, what the first of several runs found by itself, with what holding it against the others shows.

    Ops that are *ignored*, with or without the name of the overload, are no roots.
    """
    first = runs[0]
    calls: defaultdict[OpSite, int] = defaultdict(int)
    for op in first.ops:
        calls[first.sites[op.site]] += 1
    roots: dict[tuple[OpSite, Cause], Root] = {(root.site, root.cause): root for root in located.roots}
    partings: list[Parting] = []
    compared, propagated = len(first.ops), 0
    for number, other in enumerate(runs[1:], start=2):
        pairs, gaps = align_runs(first, other, steps)
        unwritten = {site for site, cause in roots if cause == "unwritten"}
        unwritten |= {first.sites[number] for number in first.unwritten}
        judged = _Judge(first, other, unwritten, frozenset(ignored))
        both: Iterator[Gap | tuple[int, int]] = heapq.merge(gaps, pairs, key=lambda one: (one[0], -len(one)))
        for one in both:
            if len(one) == 2:  # noqa: PLR2004 - a pair
                judged.pair(*one)
            else:
                judged.part(one)
        partings += [
            Parting(
                first=first.sites[first.ops[i].site] if i < len(first.ops) else None,
                second=other.sites[other.ops[j].site] if j < len(other.ops) else None,
                only_first=i_end - i,
                only_second=j_end - j,
                run=number,
            )
            for i, i_end, j, j_end in gaps
        ]
        compared = min(compared, judged.compared)
        propagated = max(propagated, judged.propagated)
        for key, root in judged.roots.items():
            known = roots.setdefault(key, root)
            known.calls = known.calls or calls[root.site]
            known.executions += 1
            known.differing += 1
            known.in_runs += (number,)
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
        roots=tuple(sorted(roots.values(), key=lambda root: root.first)[: 1 if only_first else None]),
    )
