"""What rows show of a claim, and which single condition tells the rows that agree from those that do not.

A condition decides only if it separates the evidence cleanly: every value of it shows one thing. Where several
conditions would do, none is known to decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from detmatrix.reports.render import grouped
from detmatrix.scanner.claims.matching import claimed_kind, dtype_kind, is_vague, names_of
from detmatrix.scanner.observations.records import Claim, Condition, Kind, Row
from detmatrix.scanner.plurals import several
from detmatrix.scanner.verdicts.findings import MatrixRow
from detmatrix.scanner.verdicts.simulated import schedule_words
from detmatrix.scanner.verdicts.vocabulary import BESIDE

# acts     the mode makes a difference: with the flag on nothing differed, with it off something did (or it took
#          another path)
# raises   the alert with the flag on
# differs  the flag is on, nothing was raised, and the bits differ
# nothing  neither: 0 of n differed in both modes
Behaviour = Literal["acts", "raises", "differs", "nothing"]
# What a row makes of a claim, and all of them together; of one alone it is never "not_covered".
Agreement = Literal["contradicted", "confirmed", "not_triggered", "not_run", "not_covered"]

# keep  it is where it belongs      move  it belongs to the other list
# drop  it belongs to neither list: it differs without an alert, or never differed on inputs that provoke it and
#       does not raise
Action = Literal["keep", "move", "drop"]

# The conditions whose name alone says that they are no keyword arguments.
_KINDS: dict[str, Kind] = {
    "src": "argument",
    "weights": "argument",
    "index": "argument",
    "quantized": "input",
    "requires_grad": "input",
    "layout": "layout",
    "output": "output",
    "fill": "fill",
    "dtype": "dtype",
}

_DTYPES = ("floating", "complex", "integer", "bool")
_SWITCH = ("True", "False")

# A difference that a simulated GPU shows goes upstream before a GPU has shown it where it needs no order but these, which GPUs are
# known to take, and is named as simulated. What any other class alone shows changes no list.
UPSTREAM = ("resident-blocks", "warps", "both")


class Evidence(Struct, frozen=True, kw_only=True):
    """One row of one run, and what it does to a claim."""

    run: str  # the run's name
    gpu: str  # the GPU that was simulated; empty: it was measured
    row: MatrixRow
    behaviour: Behaviour | None  # None: it is no evidence
    doubt: str | None = None  # why it is none, if not for its finding
    # "underpowered", "serial" or "not exercised": it is none because too little could race for its sameness to show anything
    weak: str = ""
    held: str = ""  # why what it shows of bits changes no list; that it raised nothing may
    effect: Agreement = "not_run"

    @property
    def shows_little(self) -> bool:
        """Whether it did not differ with the flag off where it hardly could, or not at all."""
        return bool(self.weak) and not self.row.off.differing

    @property
    def provokes(self) -> bool:
        """Whether its sameness shows something: its inputs provoke a difference, or its threads are proved never to be in conflict."""
        known = self.row.off.simulated
        return bool(self.row.row.provokes) or (known is not None and known.race_free)

    @property
    def device(self) -> str:
        """The kind of device that claims speak of, on which it was run."""
        return claimed_kind(self.row.row.device)

    @property
    def simulated(self) -> bool:
        """Whether its GPU was simulated."""
        return bool(self.gpu)

    @property
    def place(self) -> str:
        """Where it was run, in words."""
        return f"{self.device} (simulated)" if self.simulated else self.device

    @property
    def wrong(self) -> bool:
        """Whether the flag makes its result another one than the CPU's."""
        return "wrong_with_flag" in self.row.beside

    @property
    def fault(self) -> str:
        """Say why its op is not said to act deterministically, though other rows do; empty if nothing forbids it."""
        if self.wrong:
            return f"with the flag on its result is not the CPU's ({self.witness})"
        if "value_race" in self.row.beside:
            return f"{BESIDE['value_race'].phrase} ({self.row.row.id})"
        return f"it differs with the flag on ({self.row.row.id})" if self.behaviour == "differs" else ""

    @property
    def witness(self) -> str:
        """Name what shows a simulated row: the alert of host code, elements, or the class, number, seed and kernel of a schedule."""
        cell = self.row.on if self.behaviour in {"raises", "differs"} else self.row.off
        known = cell.simulated
        if self.behaviour == "raises":
            return f"{self.row.row.id}: host code raises the alert of {cell.alert}"
        if self.wrong and (on := self.row.on.simulated) and on.cpu:
            return f"{self.row.row.id}: in the canonical order, {on.cpu.words}"
        if known is None or known.schedule is None:
            return f"{self.row.row.id}: no alert, {cell.counted}"
        kernel = f", kernel {known.witness.kernel}" if known.witness else ""
        return f"{self.row.row.id}: {schedule_words(known.schedule)}{kernel}"


def several_rows(evidence: Sequence[Evidence], kind: str = "row") -> str:
    """Count rows once, however many runs hold them: "9 rows", "9 rows of 3 runs"."""
    count = count_rows(evidence)
    runs = f" of {len({one.run for one in evidence})} runs" if count < len(evidence) else ""
    return f"{several(count, kind)}{runs}"


def count_rows(evidence: Iterable[Evidence]) -> int:
    """Count rows once, however many runs of a device hold them."""
    return len({(one.device, one.row.row.id) for one in evidence})


def held_back(row: MatrixRow, behaviour: Behaviour | None) -> str:
    """Say why what a row of a simulated GPU shows of bits changes no list; empty if it may change one.

    That host code raised an alert, or raised none, is a fact of any GPU. What is said of bits needs a witness of a class in
    ``UPSTREAM``, kernels that rows of real size launch, too, and a result that is the CPU's.
    """
    cells = [row.on] if behaviour == "differs" else [row.off, row.on]
    known = [cell.simulated for cell in cells if cell.simulated]
    if behaviour in {None, "raises"} or not known:
        return ""
    doubts = [BESIDE[name].phrase for name in row.beside]
    doubts += [one.contradiction for one in known if one.contradiction]
    doubts += [f"other kernel at real size: {one.other_kernels[0]}" for one in known if one.other_kernels]
    schedule = known[0].schedule
    if behaviour != "nothing" and (schedule is None or schedule.name not in UPSTREAM):
        doubts.append(f"shown by {schedule.name} alone" if schedule else "no schedule showed a difference")
    return doubts[0] if doubts else ""


# The values of a condition by what becomes of them; ``None`` where a row states no value.
Split = dict[Action, list[str | None]]


def behaviour_of(row: MatrixRow) -> Behaviour | None:
    """Return what a row shows, or ``None`` if it is inconclusive."""
    match row.finding:
        case "fixed_by_mode" | "uninitialized" | "mode_dependent":
            return "acts"
        case "raises" | "over_alert":
            return "raises"
        case "silent":
            return "differs"
        case "deterministic":
            return "nothing"
    # An alert is proof however seldom the row was executed with the flag off.
    return "raises" if (row.off.verdict, row.on.verdict) == ("deterministic", "raises") else None


def effect_of(claim: Claim, behaviour: Behaviour | None) -> Agreement:
    """Return what a row's showing does to a claim that it speaks to."""
    if behaviour is None:
        return "not_run"
    acting: dict[Behaviour, Agreement] = {"acts": "confirmed", "nothing": "not_triggered"}
    raising: dict[Behaviour, Agreement] = {"raises": "confirmed"}
    effect = (raising if claim.section == "raises" else acting).get(behaviour, "contradicted")
    return "not_triggered" if effect == "contradicted" and is_vague(claim) else effect


def action_of(claim: Claim, rows: Sequence[Evidence]) -> Action | None:
    """Return what becomes of a claim when its rows show this, or ``None`` if they disagree.

    That nothing was seen puts no claim into a list: it takes one from those that raise, if anything was provoked.
    """
    shown = {one.behaviour for one in rows}
    if is_vague(claim) or not shown:
        return "keep"
    if claim.section == "raises" and shown == {"nothing"}:
        return "drop" if any(one.provokes for one in rows) else "keep"
    acting = shown <= {"acts", "nothing"}
    if shown == {"raises"} or acting:
        return "keep" if acting == (claim.section != "raises") else "move"
    return "drop" if shown == {"differs"} else None


Fate = Callable[[Claim, Sequence[Evidence]], Action | None]


def splits(claim: Claim, rows: Sequence[Evidence], fate: Fate = action_of) -> dict[str, Split]:
    """Return the conditions that separate the rows cleanly, "op", "direction", "dtype" or a trait; the claim's own, if one does.

    The claim speaks of one device. Rows that all show the same are separated from what they leave unmeasured of its own
    conditions. *fate* says what becomes of a claim when its rows show this; ``None``: they disagree.
    """
    own = {condition.name for condition in claim.conditions if condition.kind != "unspecified"}
    names = dict.fromkeys(name for one in rows for name in _features(claim, one.row.row))
    found = {name: it for name in names if (it := _split(claim, name, rows, fate, own=name in own))}
    return {name: found[name] for name in found if name in own} or found


def failing(claim: Claim, rows: Sequence[Evidence]) -> Action | None:
    """Return for ``splits`` whether a claim fails or holds: what becomes of it is not asked, and what fails is dropped."""
    fails = {effect_of(claim, one.behaviour) == "contradicted" for one in rows}
    return None if len(fails) > 1 else "drop" if True in fails else "keep"


def _features(claim: Claim, row: Row) -> dict[str, str]:
    """Return all in which the rows of a claim can differ."""
    direction = {"direction": row.direction} if claim.direction == "any" else {}
    ops = [name for name in names_of(row) if name in claim.targets]
    op = {"op": " and ".join(ops)} if len(claim.targets) > 1 else {}
    exact = any(row.dtype in one.values for one in claim.conditions if one.kind == "dtype")
    dtype = row.dtype if exact else dtype_kind(row.dtype)
    return {**row.traits, **direction, **op, "dtype": dtype}


def _split(claim: Claim, name: str, rows: Sequence[Evidence], fate: Fate, *, own: bool) -> Split | None:
    """Return how the values of one feature separate the rows, or ``None`` if they do not."""
    shown = grouped((_features(claim, one.row.row).get(name), one) for one in rows)
    fates = {value: fate(claim, some) for value, some in shown.items()}
    # What was not measured stays as it is, where it is known what else there could be.
    left = [value for value in _unmeasured(claim, name, shown) if value not in shown]
    apart = len({*fates.values()}) > 1 or (own and left)
    values: Split = {
        action: [value for value, one in fates.items() if one == action] for action in get_args(Action)
    }
    values["keep"] += left
    if not apart or None in fates.values() or None in [*values["keep"], *values["move"]]:
        return None
    return values


def _unmeasured(claim: Claim, name: str, measured: Iterable[str | None]) -> tuple[str, ...]:
    """Return all values a condition can have, as far as that is known."""
    for condition in claim.conditions:
        if condition.name == name:
            return condition.values
    if name == "direction":
        return ("forward", "backward")
    return _SWITCH if set(measured) <= {*_SWITCH, None} else ()


def narrowed(claim: Claim, name: str, values: Sequence[str | None]) -> Claim:
    """Return a claim restricted to some values of a condition."""
    stated = [value for value in values if value is not None]
    if name == "direction":
        # All lists say "when attempting to differentiate"; none has words for a forward that is not differentiated.
        return replace(claim, direction="backward" if stated == ["backward"] else "forward")
    old = next((condition for condition in claim.conditions if condition.name == name), None)
    order = [*(old.values if old else _DTYPES if name == "dtype" else ())]
    stated.sort(key=lambda value: (order.index(value) if value in order else len(order), value))
    new = Condition(kind=old.kind if old else _KINDS.get(name, "keyword"), name=name, values=tuple(stated))
    kept = tuple(new if condition.name == name else condition for condition in claim.conditions)
    return replace(claim, conditions=kept if old else (*kept, new))
