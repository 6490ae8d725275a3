"""Which overloads of a build the rows of its runs reach: the share of those that have a kernel, and what they showed.

Runs of one build on one kind of device are joined. Nothing is said of a run that did not record overloads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from msgspec import Struct

from reports.matrix.model import FINDINGS, Matrix
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
SEES = (
    "Overloads are those that PyTorch's dispatcher reaches below autograd, in one more execution of each row and "
    "mode that is compared with no other; what a kernel calls in its turn is not seen. A finding is of a row, and a "
    "row reaches several overloads: it is no proof of which of them it is about."
)


class CoveredOverload(Struct, frozen=True, kw_only=True):
    """One overload, and what is known of the rows that reach it."""

    name: str  # "aten::add.Tensor"
    sort: Sort
    kernel: Kernel | None  # None: the build lists no such overload
    rows: int = 0
    worst: Finding | None = None  # of the rows that reach it, in the order of the reports
    evidence: tuple[str, ...] = ()  # ids of the rows with that finding
    alerts: tuple[str, ...] = ()  # callers of the alerts it raised

    @property
    def namespace(self) -> str:
        """Such as ``aten``."""
        return self.name.partition("::")[0]


class Count(Struct, frozen=True, kw_only=True):
    """Executed overloads of one namespace and sort, over all of them, by kernel."""

    namespace: str
    sort: Sort
    executed: dict[Kernel, int]
    total: dict[Kernel, int]


class MetAlert(Struct, frozen=True, kw_only=True):
    """An alert that rows met: the caller it names, and the overloads that raised it."""

    caller: str
    overloads: tuple[str, ...]  # empty: raised above all that the recorder sees
    rows: tuple[str, ...]


class Coverage(Struct, frozen=True, kw_only=True):
    """What the runs of one build on one kind of device reach."""

    torch: str
    device: str
    matrices: tuple[Matrix, ...]
    unknown: str | None  # why nothing is known; the rest is then empty
    planned: int
    recorded: int  # rows whose overloads were recorded
    missing: dict[str, tuple[str, ...]]  # why those of a row were not -> ids
    executed: tuple[CoveredOverload, ...]
    never: tuple[CoveredOverload, ...]  # with a kernel for the device
    counts: tuple[Count, ...]  # those with a kernel for the device, ATen first
    decomposed: int  # overloads the recorder never sees
    alerts: tuple[MetAlert, ...]

    def figure(self, kernels: Sequence[Kernel] = ("device",), *, variants: bool = True) -> tuple[int, int]:
        """Return executed and all overloads of ATen with such a kernel; without out and list variants if not asked."""
        chosen = [
            one for one in self.counts if one.namespace == "aten" and (variants or one.sort not in _VARIANTS)
        ]
        executed = sum(one.executed.get(kernel, 0) for one in chosen for kernel in kernels)
        return executed, sum(one.total.get(kernel, 0) for one in chosen for kernel in kernels)


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
    return Coverage(
        torch=torch,
        device=device,
        matrices=tuple(matrices),
        unknown=_unknown(matrices) if not listed else None,
        planned=sum(one.planned for one in matrices),
        recorded=recorded,
        missing={reason: tuple(ids) for reason, ids in missing.items()},
        executed=executed,
        never=never if recorded else (),
        counts=_counts(executed, never),
        decomposed=sum(one.kernel == "decomposed" for one in listed.values()),
        alerts=_alerts(alerts),
    )


def _listed(matrices: Iterable[Matrix]) -> dict[str, CoveredOverload]:
    """Return all that the build has; runs with specs of the user's own may add to it."""
    return {
        name: CoveredOverload(name=name, sort=sort_of(name, group.writes), kernel=group.kernel)
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
    if header.format < 3:  # noqa: PLR2004 - the format that brought overloads
        return f"{one.name} is of run file format {header.format}, which knows no overloads; scan again"
    return f"{one.name} was scanned with --no-overloads"


def _unknown(matrices: Sequence[Matrix]) -> str:
    """Say why no overload of the build is known."""
    lines = [one.run.kernels.message for one in matrices if one.run.kernels and one.run.kernels.message]
    left = [_left_out(one) for one in matrices if not one.run.header.settings.overloads]
    return "; ".join(dict.fromkeys([*left, *lines])) or "the scan was interrupted before it"


def _executed(
    name: str, listed: CoveredOverload | None, rows: Sequence[tuple[Finding, str]], alerts: Sequence[str]
) -> CoveredOverload:
    worst = min((finding for finding, _ in rows), key=FINDINGS.index)
    return CoveredOverload(
        name=name,
        sort=listed.sort if listed else sort_of(name, "new"),
        kernel=listed.kernel if listed else None,
        rows=len(rows),
        worst=worst,
        evidence=tuple(dict.fromkeys(identity for finding, identity in rows if finding == worst)),
        alerts=tuple(dict.fromkeys(alerts)),
    )


def _counts(executed: Iterable[CoveredOverload], never: Iterable[CoveredOverload]) -> tuple[Count, ...]:
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
        Count(
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


def figure_words(one: Coverage) -> str:
    """Say what share of the overloads was executed."""
    if one.unknown is not None:
        return f"Overloads are {NOT_RECORDED}: {one.unknown}."
    device = one.device.upper() if one.device == "cpu" else "CUDA"
    core, all_core = one.figure(variants=False)
    executed, total = one.figure()
    composite, all_composite = one.figure(("composite",), variants=False)
    return (
        f"{core} of the {all_core} overloads of ATen that have a kernel for {device} were executed{_share(core, all_core)}, "
        f"not counting out, foreach and fused variants ({executed} of {total} with them), by {one.recorded} of "
        f"{one.planned} rows. Of those with one kernel for all devices, {composite} of {all_composite}; "
        f"{one.decomposed} more are replaced by their parts before they are seen, and count nowhere."
    )


def _share(part: int, whole: int) -> str:
    return f" ({part / whole:.0%})" if whole else ""


_OTHERS = "other namespaces"


def count_lines(one: Coverage) -> list[tuple[str, ...]]:
    """Return namespace, sort, and executed of all by kernel, for a table; what nothing reached is one line."""
    found = _reached_namespaces(one)
    lines = [
        (count.namespace, count.sort, *(_of(count.executed[it], count.total[it]) for it in RUNNABLE))
        for count in one.counts
        if count.namespace in found
    ]
    others = [count for count in one.counts if count.namespace not in found]
    if others:
        totals = (sum(count.total[kernel] for count in others) for kernel in RUNNABLE)
        lines.append((_OTHERS, "all", *(_of(0, total) for total in totals)))
    return lines


def _reached_namespaces(one: Coverage) -> set[str]:
    return {"aten", *(it.namespace for it in one.executed)}


def by_finding(one: Coverage) -> list[CoveredOverload]:
    """Return the executed overloads, the worst finding first."""
    return sorted(one.executed, key=lambda it: (FINDINGS.index(it.worst) if it.worst else 0, it.name))


def _of(executed: int, total: int) -> str:
    return f"{executed} of {total}" if total else "none"


def alert_lines(one: Coverage) -> list[tuple[str, str, str]]:
    """Return caller, overloads, and how many rows met it, for a table."""
    return [
        (alert.caller, ", ".join(alert.overloads) or "nothing that the recorder sees", str(len(alert.rows)))
        for alert in one.alerts
    ]


def never_lines(one: Coverage) -> list[tuple[str, list[str]]]:
    """Return the overloads that were never reached under what they have in common, ATen first."""
    found = _reached_namespaces(one)

    def place(it: CoveredOverload) -> tuple[bool, str, int, int]:
        assert it.kernel is not None
        namespace = it.namespace if it.namespace in found else _OTHERS
        sort = list(SORT_MEANING).index(it.sort) if namespace != _OTHERS else -1
        return namespace != "aten", namespace, sort, RUNNABLE.index(it.kernel)

    lists: dict[str, list[str]] = {}
    for it in sorted(one.never, key=place):
        _, namespace, sort, kernel = place(it)
        text = f"{namespace}, {list(SORT_MEANING)[sort]}" if sort >= 0 else namespace
        lists.setdefault(f"{text}, kernel: {RUNNABLE[kernel]}", []).append(it.name)
    return list(lists.items())
