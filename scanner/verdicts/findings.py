"""From the cells of a row to its finding, and from a run to the rows of its matrix: pure functions."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import replace

from detmatrix.scanner.claims.matching import matches
from detmatrix.scanner.invariance import Property
from detmatrix.scanner.modes import CHOSEN_MODES, DEFAULT_MODES, LEAST_RUNS, MODE_TABLE, ONE_CASE, why_not_on
from detmatrix.scanner.observations.parts import machine_of
from detmatrix.scanner.observations.records import (
    MODES,
    WORKER_MODES,
    Claim,
    Cost,
    Header,
    Invariance,
    Mode,
    Observation,
    Row,
    Sentinel,
)
from detmatrix.scanner.observations.settings import MOST_FURTHER
from detmatrix.scanner.verdicts.cells import NO_REASON, Cell, row_cell
from detmatrix.scanner.verdicts.invariance import PropertyVerdict, verdict_of
from detmatrix.scanner.verdicts.power import LEAST_SERIAL_RUNS, PowerCheck, RaceRate, rate_of, too_seldom
from detmatrix.scanner.verdicts.simulated import proved, witness_words
from detmatrix.scanner.verdicts.vocabulary import (
    BESIDE,
    CURED,
    DEPENDENCE_FOUND,
    DOUBTS,
    Finding,
    ModeFinding,
    Verdict,
)

# What voids a finding, whatever was seen: other inputs may give other bits.
UNEQUAL_INPUTS = "the inputs differed between processes or modes"
UNLIKE_REFERENCE = "not its reference"  # said of what a row gave, whatever its finding

# Findings that say of a row that it is deterministic although the flag changes what it does, each with what is not known
# as long as it was executed too seldom.
NEED_RUNS: dict[Finding, str] = {
    "mode_dependent": "whether the flag gives other bits, or a race does",
    "over_alert": "whether what raises ever differs",
}
# Executions that a scan aims at before it says so, in each mode that is said not to differ. Rows with other bits are few, and a
# race that shows in one of 200 executions is seen in 1000 of them with 99 %.
_AIM: dict[Finding, int] = {"mode_dependent": MOST_FURTHER, "over_alert": LEAST_RUNS}
_RESTS_ON: dict[Finding, tuple[Mode, ...]] = {"mode_dependent": ("off", "on"), "over_alert": ("off",)}
# Findings that rest on nothing having differed.
_STILL: tuple[Finding, ...] = ("deterministic", *NEED_RUNS)


_CUDNN_OPS = re.compile(r"conv|rnn|lstm|gru|ctc_?loss|batch_?norm", re.IGNORECASE)
# The cell of a mode that a scan was not asked for.
_NOT_ASKED = Cell(verdict="not_run", reason="the scan was not asked for this mode")


class MatrixRow(Struct, frozen=True, kw_only=True):
    """One row of the matrix: what was planned, what each mode showed, and what follows."""

    row: Row
    cells: dict[Mode, Cell]  # of the modes of every scan, and of those that it was asked for beside them
    finding: Finding
    # Why it is inconclusive; what the flag fixes, and what the fill; what a simulated GPU shows of it.
    reason: str | None
    weak: str | None  # low power: why "deterministic" says little here
    # It did not differ, and with the flag off one thread did all the work, so that nothing could race; None: not measured.
    serial: bool | None
    cost: Cost | None
    invariance: dict[Property, PropertyVerdict]  # by the properties that the scan asked for
    observations: tuple[Observation, ...]  # by mode and process, for details

    def cell(self, mode: Mode) -> Cell:
        """Return the cell of a mode, whether or not the scan was asked for it."""
        return self.cells.get(mode, _NOT_ASKED)

    @property
    def off(self) -> Cell:
        """What was seen with the flag off."""
        return self.cells["off"]

    @property
    def on(self) -> Cell:
        """What was seen with it on."""
        return self.cells["on"]

    @property
    def warn_only(self) -> Cell:
        """What an op that raises does under warn_only with the flag on."""
        return self.cells["warn_only"]

    @property
    def unfilled(self) -> Cell:
        """What an op that the flag cures does with the flag on and nothing filled."""
        return self.cells["unfilled"]

    @property
    def chosen(self) -> dict[Mode, Cell]:
        """The cells of the modes that the scan was asked for beside off and on."""
        return {mode: cell for mode, cell in self.cells.items() if mode in CHOSEN_MODES}

    @property
    def shown(self) -> dict[Mode, Cell]:
        """The cells of off and on, and of further modes in which the row was run."""
        raises = self.on.verdict == "raises"
        return {
            mode: cell
            for mode, cell in self.cells.items()
            if mode in MODES
            or cell.finding
            or (mode in DEFAULT_MODES and (raises if mode == "warn_only" else cell.verdict != "not_run"))
        }

    @property
    def needs_both(self) -> bool:
        """Whether the flag fixes some of its outputs and the fill of memory others; ``reason`` names them."""
        return self.finding == "fixed_by_mode" and self.unfilled.differing > 0

    @property
    def unlike_reference(self) -> tuple[Mode, ...]:
        """The modes in which some execution did not give what the reference of its case says of every mode."""
        return tuple(
            mode
            for mode, cell in self.cells.items()
            if mode in (*MODES, *CHOSEN_MODES) and cell.reference and cell.reference.unlike
        )

    @property
    def beside(self) -> tuple[str, ...]:
        """What a simulated GPU shows beside the finding, in the words of ``BESIDE``."""
        agree = (self.off.agrees, self.on.agrees)
        known = [cell.simulated for cell in self.cells.values() if cell.simulated]
        holds = {
            "wrong_with_flag": agree == (True, False),
            "wrong_without_flag": agree == (False, True),
            "value_race": any(it.raced for it in known),
            "contradiction": any(it.contradiction for it in known),
        }
        return tuple(name for name in BESIDE if holds[name])

    @property
    def found(self) -> set[str]:
        """All that was found of it, in the words that --only and --fail-on know: beside off and on what was chosen, and doubts."""
        modes = {cell.finding for cell in self.cells.values() if cell.finding is not None}
        properties = {it.verdict for it in self.invariance.values() if it.verdict in DEPENDENCE_FOUND}
        return {self.finding, *modes, *properties, *self.beside, *self.doubts}

    @property
    def doubts(self) -> tuple[str, ...]:
        """Which of ``DOUBTS`` there are about what it did."""
        holds = {"low_power": self.weak is not None, "serial": self.serial}
        return tuple(name for name in DOUBTS if holds[name])

    @property
    def alerts(self) -> tuple[str, ...]:
        """The callers of all alerts: of the one that ended the op, and of those it passes under warn_only."""
        raised = [alert for alert in (self.on.alert or self.off.alert,) if alert]
        return tuple(dict.fromkeys([*raised, *self.warn_only.alerts]))

    @property
    def constant(self) -> str | None:
        """Why a mode's result may hold no information and did not; ``None`` if it held some in both."""
        return self.row.may_be_blank if self.off.constant or self.on.constant else None

    @property
    def inputs(self) -> tuple[str, ...]:
        """What the op was called with, as a worker wrote it down."""
        return next((one.inputs for one in self.observations if one.inputs), ())

    @property
    def note(self) -> str:
        """What the finding rests on, if it is the one that says "deterministic"; else nothing."""
        if self.finding != "deterministic" or not (self.off.compared and self.on.compared):
            return ""
        count = min(self.off.runs, self.on.runs)
        n = f"n = {count} per mode"
        if self.off.simulated and self.on.simulated:
            known = self.off.simulated, self.on.simulated
            n = proved(*known) if all(it.race_free for it in known) else f"{count} schedules per mode"
        return n if self.constant is None else f"constant: {self.constant}"

    @property
    def witnesses(self) -> list[str]:
        """The pair of accesses that shows the difference on a simulated GPU, by mode."""
        return [
            f"{mode}: {witness_words(it)}"
            for mode, cell in self.shown.items()
            if (it := cell.simulated) and it.witness
        ]

    @property
    def remarks(self) -> list[str]:
        """What stands beside the finding."""
        return [*[UNLIKE_REFERENCE] * bool(self.unlike_reference), *(BESIDE[it].phrase for it in self.beside)]

    @property
    def joint_reason(self) -> str:
        """Why a row whose modes both have a usable verdict has a finding that no mode shows; else nothing."""
        usable = self.off.failure is None and self.on.failure is None
        return (self.reason or NO_REASON) if self.finding == "inconclusive" and usable else ""

    @property
    def on_words(self) -> str:
        """The cell of the flag on, with what the row does in the modes beside off and on."""
        return "; ".join(filter(None, (self.on.words, self.further_words)))

    @property
    def further_words(self) -> str:
        """What the row does in the modes beside off and on that every scan has."""
        names: dict[Mode, str] = {
            "warn_only": "warn_only",
            "unfilled": "fill off",
            "no_workspace": "no workspace",
        }
        return "; ".join(
            f"{name} not run"
            if cell.verdict == "not_run"
            else f"{name}: {cell.words if cell.simulated else ', '.join(filter(None, (cell.verdict, cell.details)))}"
            for mode, name in names.items()
            if (cell := self.shown.get(mode))
        )

    def doubt_words(self, *, trusted: bool = True) -> list[str]:
        """Return why it shows little what the row showed: of low power, serial, or of a scan that cannot be trusted."""
        return [*(name.replace("_", " ") for name in self.doubts), *["not trustworthy"] * (not trusted)]

    def finding_words(self, *, trusted: bool = True) -> str:
        """Return the finding with all that must not be read without it."""
        finding = f"{self.finding} ({self.note})" if self.note else self.finding
        return ", ".join([finding, *self.remarks, *self.doubt_words(trusted=trusted)])


def runs_in(
    mode: Mode, row: Row, cells: Mapping[Mode, Cell] | None = None, claims: Iterable[Claim] = ()
) -> str | None:
    """Return why a mode does not run a row; ``None`` if it does.

    Without *cells*, what was seen with the flag off and on, say whether the mode could say anything of such a row. *claims*
    are those of the lists of the scanned torch.
    """
    it = MODE_TABLE[mode]
    never = why_not_on(it, row.device)
    if never is None and (it.concern == "backward" or it.retired) and row.direction != "backward":
        never = "the row has no backward phase"
    if never is None and it.concern == "cudnn" and not _CUDNN_OPS.search(row.op):
        never = "only convolutions, RNNs, CTC loss and batch norm are run in it"
    if cells is None:
        return never
    match it.concern:
        case "raising" if cells["on"].verdict != "raises":
            return "only ops that raise are run under warn_only"
        case "cured" if not is_cured(cells["off"], cells["on"]):
            return "only ops that the flag cures run without the fill"
        case "one_case" if not row.compiled:
            return ONE_CASE
        case "cublas" if never or not any(
            claim.section == "cublas" and matches(row, claim) for claim in claims
        ):
            return (
                "only ops whose alert PyTorch's lists tie to CUBLAS_WORKSPACE_CONFIG run without it, on CUDA"
            )
    return never


def unequal_inputs(observations: Iterable[Observation]) -> tuple[str, ...]:
    """Say of each observation whose inputs are not those its row had first; any such voids a scan."""
    first: dict[tuple[str, ...], str] = {}
    return tuple(
        f"the inputs of {':'.join(observation.key)} in process {observation.process} of mode {observation.mode} "
        f"are not those of the first process"
        for observation in observations
        if observation.inputs_digest is not None
        and first.setdefault(observation.key, observation.inputs_digest) != observation.inputs_digest
    )


def finding_of(
    off: Cell, on: Cell, warn_only: Cell | None = None, unfilled: Cell | None = None
) -> tuple[Finding, str | None]:
    """Return the class of a row from both modes, and the reason if it rests on no verdict.

    *warn_only* is what a row that raises did under warn_only with the flag on, ``None`` if none ever was run so, as in scans
    before there was such a mode; *unfilled* what a row that the flag cures did with the flag on and nothing filled.
    """
    finding, reason = _seen(off, on, warn_only, unfilled)
    if finding == "over_alert" and off.simulated:
        reason = f"{off.runs} schedules with the flag off gave the same bits"
    for mode, cell in (("off", off), ("on", on)):
        if mode in _RESTS_ON.get(finding, ()) and (text := too_seldom(cell, f"with the flag {mode}")):
            return "inconclusive", f"{text} {NEED_RUNS[finding]}"
    if (
        finding == "fixed_by_mode"
        and unfilled is not None
        and not unfilled.differing
        and (text := too_seldom(unfilled, "with nothing filled"))
    ):
        return "inconclusive", f"{text} whether the flag fixes it, or the fill does"
    return finding, reason


def held_to_cpu(cell: Cell, other: Cell) -> Cell:
    """Return a cell as an error if its result is not the CPU's, and that of the other mode does not show whose fault it is."""
    if cell.agrees is not False or other.agrees or cell.simulated is None or cell.simulated.cpu is None:
        return cell
    return replace(cell, verdict="error", reason=f"its result is not the CPU's: {cell.simulated.cpu.words}")


def is_cured(off: Cell, on: Cell) -> bool:
    """Tell whether a row differs with the flag off, and not with it on; the fill alone may have made all of it NaN there."""
    return off.verdict == "nondeterministic" and (on.verdict == "deterministic" or on.blank == "nan")


def runs_missing(row: MatrixRow, mode: Mode) -> int:
    """Return how many more executions a scan makes of a row in one of ``FURTHER_MODES`` before it tells its finding."""
    cell = row.cells[mode]
    if row.off.simulated:
        return 0
    warn_only = None if row.warn_only.verdict == "not_run" else row.warn_only
    finding, _ = _seen(row.off, row.on, warn_only, None)
    if mode in _RESTS_ON.get(finding, ()):
        # What cannot race is not waited for.
        aim = _AIM[finding] if not cell.serial else LEAST_RUNS * (cell.runs < LEAST_SERIAL_RUNS)
        return max(0, aim - cell.runs)
    if mode != "off":
        rate = rate_of({"off": row.off} if mode == "unfilled" else {"off": row.off, "unfilled": row.unfilled})
        # One process more would not tell what differs between processes.
        if rate is None or rate.unit == "processes" or cell.verdict != "deterministic":
            return 0
        # Load hides a race for seconds: where it shows without the fill, the fill is not thanked before another process.
        again = 2 * LEAST_RUNS - rate.made(cell) if mode == "on" and row.unfilled.differing else 0
        return min(max(rate.missing(cell), again), max(0, MOST_FURTHER - rate.made(cell)))
    return 0


def _seen(off: Cell, on: Cell, warn_only: Cell | None, unfilled: Cell | None) -> tuple[Finding, str | None]:
    """Return the finding of a row, however seldom it was executed."""
    if on.verdict == "nondeterministic":
        reads = "memory that nobody wrote, which the flag does not fill" if on.reads_unwritten else None
        return "silent", reads and f"it reads {reads}"
    filled = on.blank == "nan" and unfilled is not None and unfilled.differing
    if is_cured(off, on) and (filled or off.reads_unwritten):
        # What the flag fills memory with is all that came out, or a simulated GPU has shown that bits come from there.
        return "uninitialized", None
    if (off.verdict, on.verdict) == ("deterministic", "raises"):
        return _under_warn_only(warn_only)
    if (off.verdict, on.verdict) == ("nondeterministic", "deterministic"):
        return _unfilled(off, unfilled)
    findings: dict[tuple[Verdict, Verdict], Finding] = {
        ("deterministic", "deterministic"): "deterministic" if off.first == on.first else "mode_dependent",
        ("nondeterministic", "raises"): "raises",
    }
    if (off.verdict, on.verdict) in findings:
        return findings[off.verdict, on.verdict], None
    failed = [f"{mode}: {cell.ended}" for mode, cell in (("off", off), ("on", on)) if cell.failure]
    return "inconclusive", "; ".join(failed) or f"off: {off.verdict}, on: {on.verdict}"


def _unfilled(off: Cell, unfilled: Cell | None) -> tuple[Finding, str | None]:
    """Return the finding of a row that differs with the flag off and not with it on: the flag fixes it, or the fill does."""
    if unfilled is None or unfilled.verdict == "deterministic":
        return "fixed_by_mode", None
    if unfilled.verdict != "nondeterministic":
        return "inconclusive", f"fill off: {unfilled.ended}"
    still, of = [it.name for it in unfilled.outputs if it.differing], sum(off.by_process)
    rates = {
        it.name: RaceRate("off", min(it.differing, of), of, "executions")
        for it in off.outputs
        if it.differing
    }
    fixed = [
        name
        for name, rate in rates.items()
        if name not in still and (unfilled.simulated or not rate.missing(unfilled))
    ]
    if not (fixed and still):
        return "uninitialized", None
    if too_seldom(unfilled, ""):
        return (
            "inconclusive",
            f"{unfilled.runs} executions with nothing filled do not tell what the flag fixes, and what the fill",
        )
    text = f"{', '.join(still)} still differed, {', '.join(fixed)} did not"
    return "fixed_by_mode", f"with the flag on and nothing filled {text}: both are needed"


def _under_warn_only(warn_only: Cell | None) -> tuple[Finding, str | None]:
    """Return the finding of a row that raises and did not differ with the flag off."""
    if warn_only is None or warn_only.verdict == "deterministic":
        return "over_alert", None
    if warn_only.verdict == "nondeterministic":
        return "raises", None
    return "inconclusive", f"warn_only: {warn_only.ended}"


def chosen_cell(
    mode: Mode,
    row: Row,
    eager: tuple[Cell, Cell],
    cell: Cell,
    *,
    weak: str | None = None,
    unequal: bool = False,
) -> Cell:
    """Return the cell of a mode with what it shows, held against what was seen with the flag off, and with it on (*eager*).

    *weak* says why that nothing differed in the mode would say little; *unequal* that its inputs were not those of all
    processes with the flag off and on.
    """
    off = eager[0]
    if cell.verdict == "not_run":
        eagerly = cell.compiled is not None and not cell.compiled.graphs
        return replace(cell, finding="not_compiled", finding_reason=cell.reason) if eagerly else cell
    if cell.refused:
        return replace(cell, finding="refused", finding_reason=cell.reason)
    flag = MODE_TABLE[mode].flag_in(row.direction)
    finding, reason = (
        ("inconclusive", UNEQUAL_INPUTS) if unequal else _chosen_finding(mode, off, cell, flag=flag)
    )
    still = cell.verdict == "deterministic" and not row.constant
    return replace(
        cell,
        finding=finding,
        finding_reason=reason,
        weak=weak if still else None,
        remarks=tuple(_remarks(cell, eager[flag])),
    )


def _remarks(cell: Cell, eager: Cell) -> Iterator[str]:
    """Yield what must be known of compiled code beside its finding."""
    compiled = cell.compiled
    if compiled is None:
        return
    if not compiled.graphs:
        yield "nothing compiled"
    elif compiled.breaks:
        yield "compiled in part"
    elif not compiled.kernels:
        yield "calls eager kernels"
    if (cell.verdict, eager.verdict) == ("deterministic", "deterministic") and cell.first != eager.first:
        yield "other bits than eager"


def _chosen_finding(mode: Mode, off: Cell, cell: Cell, *, flag: bool) -> tuple[ModeFinding, str | None]:
    if cell.verdict == "nondeterministic" and flag:
        return "silent", None
    if cell.verdict == "raises":
        return "raises", None
    findings: dict[tuple[str, str], ModeFinding] = {
        ("deterministic", "deterministic"): "as_off" if off.first == cell.first else "mode_dependent",
        ("deterministic", "nondeterministic"): "differs",
        ("nondeterministic", "deterministic"): "fixed_by_mode",
        ("nondeterministic", "nondeterministic"): "also_differs",
    }
    found = findings.get((off.verdict, cell.verdict), "inconclusive")
    if found == "inconclusive":
        return found, f"off: {off.ended}" if cell.compared else cell.ended
    few = too_seldom(off, "with the flag off") or too_seldom(cell, f"in {mode}")
    if found == "mode_dependent" and few:
        return "inconclusive", f"{few} whether the mode gives other bits, or a race does"
    return found, None


def matrix(
    header: Header,
    observations: Iterable[Observation],
    *,
    closed: bool,
    sentinels: Iterable[Sentinel] = (),
    costs: Iterable[Cost] = (),
    invariances: Iterable[Invariance] = (),
    wanted: Callable[[Row], bool] | None = None,
) -> Iterator[MatrixRow]:
    """Yield one row per planned row, or of those that are *wanted*, in planned order, whether or not anything was observed of it.

    *closed*, whether the run is complete, decides what an absent observation is called; what the sentinels saw decides,
    beside n, what is of low power.
    """
    seen: dict[tuple[str, ...], defaultdict[Mode, list[Observation]]] = {}
    for observation in observations:
        seen.setdefault(observation.key, defaultdict(list))[observation.mode].append(observation)
    cost_of = {cost.key: cost for cost in costs}
    asked = {(one.key, one.what): one for one in invariances}
    power_check = PowerCheck(header, sentinels)
    missing = "not recorded" if closed else "the scan was interrupted before this case"
    for place, row in enumerate(header.planned):
        if wanted is not None and not wanted(row):
            continue
        # What is joined is let go of: there may be a million rows.
        by_mode = seen.pop(row.key, None) or defaultdict(list)
        cells: dict[Mode, Cell] = {mode: row_cell(by_mode[mode], missing, row) for mode in MODES}
        off, on = held_to_cpu(cells["off"], cells["on"]), held_to_cpu(cells["on"], cells["off"])
        cells = {"off": off, "on": on}
        for mode in DEFAULT_MODES[len(MODES) :]:
            why = runs_in(mode, row, cells, header.claims) or missing
            cell = row_cell(by_mode[mode], why, row)
            against = {"warn_only": on, "unfilled": off}.get(mode)
            cells[mode] = cell if against is None else held_to_cpu(cell, against)
        finding, reason = finding_of(
            off,
            on,
            cells["warn_only"] if "warn_only" in header.settings.modes else None,
            cells["unfilled"] if "unfilled" in header.settings.modes else None,
        )
        lines = tuple(
            one for mode in WORKER_MODES for one in sorted(by_mode[mode], key=attrgetter("process"))
        )
        # A mode that was chosen is held against off and on, and never the other way round.
        own = tuple(one for one in lines if one.mode not in CHOSEN_MODES)
        if unequal_inputs(own):
            finding, reason = "inconclusive", UNEQUAL_INPUTS
        # With one thread nothing can race in any row; low power says so.
        several = machine_of(header, row).threads > 1
        serial = off.serial if several and finding in _STILL and not row.constant else False
        if row.device != "cpu":
            # Of an accelerator nobody counts them.
            serial = bool(serial)
        still = {
            mode: cell for mode, cell in cells.items() if cell.verdict == "deterministic" and not row.constant
        }
        uncured: dict[Mode, Cell] = {"off": off, "unfilled": cells["unfilled"]} if finding in CURED else {}
        weak = power_check.weak(place, still, lines, uncured)
        for mode in (it for it in CHOSEN_MODES if it in header.settings.modes):
            cell = row_cell(by_mode[mode], runs_in(mode, row, cells) or missing, row)
            cells[mode] = chosen_cell(
                mode,
                row,
                (off, on),
                cell,
                weak=power_check.weak(place, {mode: cell}, lines, {"off": off}),
                unequal=bool(unequal_inputs((*own, *by_mode[mode]))),
            )
        yield MatrixRow(
            row=row,
            cells=cells,
            finding=finding,
            reason=reason,
            weak=weak,
            serial=serial,
            cost=cost_of.get(row.key),
            invariance={
                what: verdict_of(asked.get((row.key, what)), off, missing)
                for what in header.settings.invariance
            },
            observations=lines,
        )
