"""Whether a race could have gone unseen where a row ran: what the sentinels around it saw, and how large its n is.

Both are held against one limit, so that of a row without a mark this holds: had it raced as often as the sentinel beside it,
its own executions would have shown it with a probability of 95 %. Whether two modes give other bits takes more executions, and
so does whether a mode cures what differs seldom.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from detmatrix.scanner.modes import LEAST_RUNS
from detmatrix.scanner.observations.parts import part_by_worker
from detmatrix.scanner.observations.records import Header, Mode, Observation, Sentinel
from detmatrix.scanner.verdicts.bound import executed_words
from detmatrix.scanner.verdicts.cells import Cell

# On an idle machine nearly every execution of a sentinel differs; where fewer than this did, races were rare. An n that
# leaves a larger rate plausible does not show them.
POWER_SHARE = 0.5
# The chance that is left to what differs seldom in one mode not to have differed in another that does not cure it.
_CHANCE = 0.05
_ROUNDING = 1e-9
# Executions in which nothing differed that say so, where nothing can race.
LEAST_SERIAL_RUNS = LEAST_RUNS // 2


def has_power(sentinel: Sentinel) -> bool:
    """Tell whether a sentinel differed as often as where things race freely; its first execution cannot differ."""
    return sentinel.executions > 1 and sentinel.differing >= POWER_SHARE * (sentinel.executions - 1)


def _too_few(cells: Iterable[Cell]) -> str | None:
    """Return why cells in which nothing differed had too few executions to show much; ``None`` if all had enough."""
    for cell in cells:
        if (bound := cell.upper_bound) is not None and bound > POWER_SHARE:
            limit = f"{100 * POWER_SHARE:g} %"
            return f"{executed_words(cell.by_process)} bounds the rate of differing at {100 * bound:.3g} %, above {limit}"
    return None


def too_seldom(cell: Cell, where: str) -> str | None:
    """Say how seldom a row was executed in a mode, if that is too seldom to tell a race from what the mode does."""
    needed = LEAST_SERIAL_RUNS if cell.serial else LEAST_RUNS
    if needed <= cell.runs or cell.simulated is not None:
        return None
    return f"0 of {cell.runs} executions differed {where}, of at least {needed} that would show"


class RaceRate(Struct, frozen=True):
    """How often a row differed in a mode: of its executions, or of processes where each gave the same bits throughout."""

    mode: Mode
    differing: int
    of: int
    unit: Literal["executions", "processes"]

    @property
    def needed(self) -> int:
        """So many, that if both modes differed alike, all that differed would be in this one in one of twenty scans.

        That is Fisher's exact test: of a rate that rests on one or two nobody knows whether it is so large.
        """

        def enough(further: int) -> bool:
            chance = _log_comb(self.of, self.differing) - _log_comb(self.of + further, self.differing)
            return chance <= math.log(_CHANCE) + _ROUNDING

        # After one alone it takes nineteen times as many, after more of them fewer.
        return bisect_left(range(20 * self.of), True, key=enough)

    def missing(self, still: Cell) -> int:
        """Return how many more it takes where nothing differed."""
        return max(0, self.needed - self.made(still))

    def made(self, still: Cell) -> int:
        """Return how many there were where nothing differed."""
        return len(still.by_process) if self.unit == "processes" else sum(still.by_process)


def _log_comb(of: int, chosen: int) -> float:
    return math.lgamma(of + 1) - math.lgamma(chosen + 1) - math.lgamma(of - chosen + 1)


def rate_of(differed: Mapping[Mode, Cell]) -> RaceRate | None:
    """Return how often a row differed in that mode in which it did most often; ``None`` if it did in none."""
    rates = []
    for mode, cell in differed.items():
        if cell.rarer:
            rates.append(RaceRate(mode, cell.rarer, sum(cell.by_process), "executions"))
        elif cell.rarer_processes:
            rates.append(RaceRate(mode, cell.rarer_processes, len(cell.by_process), "processes"))
    return max(rates, key=lambda rate: rate.differing / rate.of, default=None)


def _by_chance(still: Mapping[Mode, Cell], differed: Mapping[Mode, Cell]) -> str | None:
    """Return why it may be chance that nothing differed where something did in other modes; ``None`` if that is unlikely."""
    rate = rate_of(differed)
    if rate is None:
        return None
    for mode, cell in still.items():
        if rate.missing(cell):
            return (
                f"{rate.differing} of {rate.of} {rate.unit} differed in mode {rate.mode}, so that 0 of "
                f"{rate.made(cell)} in mode {mode} may be chance; 0 of {rate.needed} would hardly be"
            )
    return None


class PowerCheck:
    """Says of rows whether they were of low power, by the sentinels before and behind them."""

    def __init__(self, header: Header, sentinels: Iterable[Sentinel]) -> None:
        self._simulates = bool(header.settings.simulate)
        on_cpu = header.settings.device == "cpu"
        self._one_thread = {
            worker
            for worker, part in enumerate(part_by_worker(header))
            if on_cpu and part.environment.threads == 1
        }
        self._around: defaultdict[tuple[Mode, int, int], list[Sentinel]] = defaultdict(list)
        for sentinel in sentinels:
            self._around[sentinel.mode, sentinel.process, sentinel.worker].append(sentinel)
        for seen in self._around.values():
            # A scan that was interrupted and went on has two where it stopped; the later one stands behind.
            seen.sort(key=lambda sentinel: sentinel.before)

    def weak(
        self,
        place: int,
        still: Mapping[Mode, Cell],
        observations: Sequence[Observation],
        differed: Mapping[Mode, Cell],
    ) -> str | None:
        """Return why it says little that a row did not differ in some modes; ``None`` if nothing is against it."""
        if self._simulates:
            # Its orders are drawn one by one: none has a rate, and no machine hides them.
            return None
        seen = [one for one in observations if one.mode in still]
        return self.of(place, seen) or _too_few(still.values()) or _by_chance(still, differed)

    def of(self, place: int, observations: Sequence[Observation]) -> str | None:
        """Return why a row that did not differ could hardly have differed; ``None`` if nothing is against it."""
        for observation in observations:
            for sentinel in self._near(place, observation):
                if not has_power(sentinel):
                    return self._reason(sentinel)
        return None

    def _near(self, place: int, observation: Observation) -> list[Sentinel]:
        seen = self._around.get((observation.mode, observation.process, observation.worker), [])
        # There may be as many sentinels as rows, so that they are not gone through for each.
        behind = bisect_right(seen, place, key=lambda sentinel: sentinel.before)
        return seen[max(behind - 1, 0) : behind + 1]

    def _reason(self, sentinel: Sentinel) -> str:
        where = f"mode {sentinel.mode}, process {sentinel.process}, load {sentinel.load:g}"
        if sentinel.message is not None:
            return f"the sentinel did not run ({sentinel.message}; {where})"
        threads = ", one thread" if sentinel.worker in self._one_thread else ""
        return (
            f"the sentinel ({sentinel.op}) differed in {sentinel.differing} of {sentinel.executions} executions "
            f"beside it ({where}{threads})"
        )
