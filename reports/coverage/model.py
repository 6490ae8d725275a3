"""Which overloads of a build the rows of its runs reach: the share of those that have a kernel, and what they showed.

Runs of one build on one kind of device are joined. Nothing is said of a run that did not record overloads.
``Coverage`` is what every format shows: its fields are the JSON.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, Literal

from msgspec import Struct
from msgspec.structs import asdict

from reports.coverage.claims import UNSEEN, DocumentedAlert, MetAlert, documented_alerts, documented_lines
from reports.matrix.model import FINDINGS, Matrix
from reports.matrix.words import state_words
from scanner.claims.matching import device_kind
from scanner.observations.overload_records import Dispatch, Kernel, Writes
from scanner.verdicts.findings import Finding

Sort = Literal["op", "in place", "backward", "internal", "foreach and fused", "out variant"]

# One sentence each, printed with every report; an overload belongs to the first that fits, from the last to the first.
SORT_MEANING: dict[Sort, str] = {
    "op": "Returns a new tensor or a view; what users call.",
    "in place": "Changes an argument.",
    "backward": "Computes a gradient: its name says backward.",
    "internal": "Its name begins with an underscore.",
    "foreach and fused": "Does one thing to lists of tensors, as optimizers do.",
    "out variant": "Writes into the argument out.",
}
KERNEL_MEANING: dict[Kernel, str] = {
    "device": "A kernel is registered for the device's dense tensors.",
    "composite": "One kernel serves all devices; it is made of other ops.",
    "layout": "A kernel is registered for the device's tensors of another layout alone: sparse, quantized, nested.",
    "decomposed": "It is replaced by the ops it is made of before the recorder sees it, so it can never be executed "
    "here, and its parts are.",
    "none": "There is no kernel for the device.",
}
# Kernels that an execution can reach on the device.
RUNNABLE: tuple[Kernel, ...] = ("device", "composite", "layout")
# Of these the out variant, or a loop over the list, mostly runs the same kernel again.
_VARIANTS: tuple[Sort, ...] = ("foreach and fused", "out variant")
NOT_RECORDED = "not recorded"
_OTHERS = "other namespaces"


class CoveredOverload(Struct, frozen=True, kw_only=True):
    """One overload of a build."""

    name: str  # "aten::add.Tensor"
    namespace: str  # "aten"
    sort: Sort
    kernel: Kernel | None  # None: the build lists no such overload


class Executed(CoveredOverload, frozen=True, kw_only=True):
    """One overload, and what is known of the rows that reach it."""

    rows: int
    worst: Finding  # of the rows that reach it, in the order of the reports
    evidence: tuple[str, ...]  # ids of the rows with that finding
    alerts: tuple[str, ...]  # callers of the alerts it raised


class OverloadCount(Struct, frozen=True, kw_only=True):
    """Executed overloads of one namespace and sort, over all of them, by kernel."""

    namespace: str
    sort: Sort
    executed: dict[Kernel, int]
    total: dict[Kernel, int]


class Share(Struct, frozen=True):
    """Executed overloads of all."""

    executed: int
    of: int


class CoveredRun(Struct, frozen=True):
    """A run that was joined."""

    path: str
    complete: bool
    distrust: tuple[str, ...]


class Coverage(Struct, frozen=True, kw_only=True):
    """What the runs of one build on one kind of device reach."""

    SEES: ClassVar[str] = (
        "Overloads are those that PyTorch's dispatcher reaches below autograd, in one more execution of each row and "
        "mode that is compared with no other; what a kernel calls in its turn is not seen. A finding is of a row, and a "
        "row reaches several overloads: it is no proof of which of them it is about."
    )
    UNSEEN: ClassVar[str] = UNSEEN

    torch: str
    device: str
    runs: tuple[CoveredRun, ...]
    states: tuple[tuple[str, str], ...]  # a run, and what must be known of it; not in the JSON
    not_recorded: str | None  # why nothing is known; the rest is then empty
    planned: int
    recorded: int  # rows whose overloads were recorded
    aten: dict[str, Share] | None  # with a kernel of the device or for all; with and without _VARIANTS
    groups: tuple[OverloadCount, ...]  # those with a kernel for the device, ATen first
    decomposed: int  # overloads the recorder never sees
    alerts: tuple[MetAlert, ...]
    documented_alerts: tuple[DocumentedAlert, ...]
    missing: dict[str, tuple[str, ...]]  # why the overloads of a row are not known -> ids
    sorts: dict[Sort, str]
    kernels: dict[Kernel, str]
    executed: tuple[Executed, ...]
    never: tuple[CoveredOverload, ...]  # with a kernel for the device

    @property
    def summary(self) -> str:
        """What share of the overloads was executed, in words."""
        if self.aten is None:
            return f"Overloads are {NOT_RECORDED}: {self.not_recorded}."
        device = self.device.upper() if self.device == "cpu" else "CUDA"
        core, every = self.aten["device_without_variants"], self.aten["device"]
        composite = self.aten["composite_without_variants"]
        share = f" ({core.executed / core.of:.0%})" if core.of else ""
        return (
            f"{core.executed} of the {core.of} overloads of ATen that have a kernel for {device} were executed{share}, "
            f"not counting out, foreach and fused variants ({every.executed} of {every.of} with them), by "
            f"{self.recorded} of {self.planned} rows. Of those with one kernel for all devices, {composite.executed} of "
            f"{composite.of}; {self.decomposed} more are replaced by their parts before they are seen, and count nowhere."
        )

    @property
    def count_lines(self) -> list[tuple[str, ...]]:
        """Namespace, sort, and executed of all by kernel; what nothing reached is one line."""
        found = self._reached_namespaces
        lines = [
            (count.namespace, count.sort, *(_of(count.executed[it], count.total[it]) for it in RUNNABLE))
            for count in self.groups
            if count.namespace in found
        ]
        others = [count for count in self.groups if count.namespace not in found]
        if others:
            totals = (sum(count.total[kernel] for count in others) for kernel in RUNNABLE)
            lines.append((_OTHERS, "all", *(_of(0, total) for total in totals)))
        return lines

    @property
    def alert_lines(self) -> list[tuple[str, str, int]]:
        """Caller, overloads, and how many rows met it."""
        return [(it.caller, ", ".join(it.overloads) or UNSEEN, len(it.rows)) for it in self.alerts]

    @property
    def documented_lines(self) -> list[tuple[str, ...]]:
        """The documented alerts in words."""
        return documented_lines(self.documented_alerts)

    @property
    def by_finding(self) -> list[Executed]:
        """The executed overloads, the worst finding first."""
        return sorted(self.executed, key=lambda it: (FINDINGS.index(it.worst), it.name))

    @property
    def never_lists(self) -> dict[str, list[str]]:
        """The overloads that were never reached under what they have in common, ATen first."""
        found = self._reached_namespaces
        sorts = list(SORT_MEANING)

        def place(it: CoveredOverload) -> tuple[bool, str, int, int]:
            assert it.kernel is not None
            known = it.namespace in found
            sort = sorts.index(it.sort) if known else -1
            return it.namespace != "aten", it.namespace if known else _OTHERS, sort, RUNNABLE.index(it.kernel)

        lists: dict[str, list[str]] = {}
        for it in sorted(self.never, key=place):
            _, namespace, sort, kernel = place(it)
            text = f"{namespace}, {sorts[sort]}" if sort >= 0 else namespace
            lists.setdefault(f"{text}, kernel: {RUNNABLE[kernel]}", []).append(it.name)
        return lists

    @property
    def _reached_namespaces(self) -> set[str]:
        return {"aten", *(it.namespace for it in self.executed)}


def coverages(matrices: Iterable[Matrix]) -> list[Coverage]:
    """Return one coverage for each build and kind of device, in the order of the runs."""
    groups: dict[tuple[str, str | None, str], list[Matrix]] = {}
    for one in matrices:
        header = one.run.header
        build = (header.environment.torch, header.environment.torch_git)
        groups.setdefault((*build, device_kind(header.settings.device)), []).append(one)
    return [_coverage(torch, device, some) for (torch, _, device), some in groups.items()]


def sort_of(name: str, writes: Writes) -> Sort:
    """Return the sort of an overload, such as ``aten::add.Tensor``."""
    op = name.partition("::")[2]
    if writes == "out":
        return "out variant"
    if op.startswith(("_foreach_", "_fused_", "_amp_")):
        return "foreach and fused"
    if op.startswith("_") and not op.startswith("__"):
        return "internal" if "backward" not in op else "backward"
    if "backward" in op:
        return "backward"
    return "in place" if writes == "in_place" else "op"


def _coverage(torch: str, device: str, matrices: Sequence[Matrix]) -> Coverage:
    listed = _listed(matrices)
    reached: dict[str, list[tuple[Finding, str]]] = {}
    alerts: dict[tuple[str, str | None], list[str]] = {}
    missing: dict[str, list[str]] = {}
    recorded = 0
    for one, identity, finding, dispatch in _dispatches(matrices):
        if dispatch is None or dispatch.outcome != "ran":
            missing.setdefault(_why(one, dispatch), []).append(identity)
            continue
        recorded += 1
        for name in dict.fromkeys(name for mode in dispatch.modes.values() for name in mode.overloads):
            reached.setdefault(name, []).append((finding, identity))
        for alert in dict.fromkeys(alert for mode in dispatch.modes.values() for alert in mode.alerts):
            alerts.setdefault(alert, []).append(identity)
    executed = tuple(
        _executed(name, listed.get(name), rows, [caller for caller, by in alerts if by == name])
        for name, rows in sorted(reached.items())
    )
    never = tuple(
        one for name, one in sorted(listed.items()) if one.kernel in RUNNABLE and name not in reached
    )
    groups, met = _groups(executed, never), _alerts(alerts)
    return Coverage(
        torch=torch,
        device=device,
        runs=tuple(CoveredRun(it.name, not it.missing, tuple(it.distrust)) for it in matrices),
        states=tuple((it.name, state) for it in matrices for state in state_words(it)),
        not_recorded=None if listed else _unknown(matrices),
        planned=sum(one.planned for one in matrices),
        recorded=recorded,
        aten=_shares(groups) if listed else None,
        groups=groups,
        decomposed=sum(one.kernel == "decomposed" for one in listed.values()),
        alerts=met,
        documented_alerts=tuple(documented_alerts(matrices, device, met)),
        missing={reason: tuple(ids) for reason, ids in missing.items()},
        sorts=SORT_MEANING,
        kernels=KERNEL_MEANING,
        executed=executed,
        never=never if recorded else (),
    )


def _shares(groups: Sequence[OverloadCount]) -> dict[str, Share]:
    """Return executed and all overloads of ATen with a kernel of the device, or one for all; also without variants."""
    aten = [one for one in groups if one.namespace == "aten"]
    core = [one for one in aten if one.sort not in _VARIANTS]
    kernels: tuple[Kernel, ...] = ("device", "composite")
    return {
        f"{kernel}{which}": Share(
            sum(one.executed[kernel] for one in some), sum(one.total[kernel] for one in some)
        )
        for kernel in kernels
        for which, some in (("", aten), ("_without_variants", core))
    }


def _listed(matrices: Iterable[Matrix]) -> dict[str, CoveredOverload]:
    """Return all that the build has; runs with specs of the user's own may add to it."""
    return {
        name: _overload(name, group.writes, group.kernel)
        for one in matrices
        if one.run.kernels
        for group in one.run.kernels.groups
        for name in group.names
    }


def _dispatches(
    matrices: Iterable[Matrix],
) -> Iterator[tuple[Matrix, str, Finding, Dispatch | None]]:
    for one in matrices:
        known = {dispatch.key: dispatch for dispatch in one.run.dispatches}
        for row in one.rows:
            yield one, row.row.id, row.finding, known.get(row.row.key)


def _why(one: Matrix, dispatch: Dispatch | None) -> str:
    """Say why the overloads of a row are not known."""
    if dispatch is not None:
        return f"{dispatch.outcome}: {dispatch.message}" if dispatch.message else dispatch.outcome
    if not one.run.header.settings.overloads:
        return f"{NOT_RECORDED}: {_left_out(one)}"
    return "the scan was interrupted before it" if one.run.closing is None else NOT_RECORDED


def _left_out(one: Matrix) -> str:
    header = one.run.header
    if one.simulated:
        return f"{one.name} is simulated, which records no overloads"
    if header.format < 3:  # noqa: PLR2004 - the format that brought overloads
        return f"{one.name} is of run file format {header.format}, which knows no overloads; scan again"
    return f"{one.name} was scanned with --no-overloads"


def _unknown(matrices: Sequence[Matrix]) -> str:
    """Say why no overload of the build is known."""
    lines = [one.run.kernels.message for one in matrices if one.run.kernels and one.run.kernels.message]
    left = [_left_out(one) for one in matrices if not one.run.header.settings.overloads]
    return "; ".join(dict.fromkeys([*left, *lines])) or "the scan was interrupted before it"


def _overload(name: str, writes: Writes, kernel: Kernel | None) -> CoveredOverload:
    return CoveredOverload(
        name=name, namespace=name.partition("::")[0], sort=sort_of(name, writes), kernel=kernel
    )


def _executed(
    name: str, listed: CoveredOverload | None, rows: Sequence[tuple[Finding, str]], alerts: Sequence[str]
) -> Executed:
    worst = min((finding for finding, _ in rows), key=FINDINGS.index)
    return Executed(
        **asdict(listed or _overload(name, "new", None)),
        rows=len(rows),
        worst=worst,
        evidence=tuple(dict.fromkeys(identity for finding, identity in rows if finding == worst)),
        alerts=tuple(dict.fromkeys(alerts)),
    )


def _groups(
    executed: Iterable[CoveredOverload], never: Iterable[CoveredOverload]
) -> tuple[OverloadCount, ...]:
    reached: Counter[tuple[str, Sort, Kernel | None]] = Counter()
    total: Counter[tuple[str, Sort, Kernel | None]] = Counter()
    for counter, some in ((reached, executed), (total, never)):
        counter.update((one.namespace, one.sort, one.kernel) for one in some if one.kernel in RUNNABLE)
    total += reached
    sorts = list(SORT_MEANING)
    places = sorted(
        {(namespace, sort) for namespace, sort, _ in total},
        key=lambda place: (place[0] != "aten", place[0], sorts.index(place[1])),
    )
    return tuple(
        OverloadCount(
            namespace=namespace,
            sort=sort,
            executed={kernel: reached[namespace, sort, kernel] for kernel in RUNNABLE},
            total={kernel: total[namespace, sort, kernel] for kernel in RUNNABLE},
        )
        for namespace, sort in places
    )


def _alerts(found: dict[tuple[str, str | None], list[str]]) -> tuple[MetAlert, ...]:
    return tuple(
        MetAlert(
            caller=caller,
            overloads=tuple(sorted(by for other, by in found if other == caller and by is not None)),
            rows=tuple(
                dict.fromkeys(
                    identity for (other, _), ids in found.items() if other == caller for identity in ids
                )
            ),
        )
        for caller in sorted({caller for caller, _ in found})
    )


def _of(executed: int, total: int) -> str:
    return f"{executed} of {total}" if total else "none"
