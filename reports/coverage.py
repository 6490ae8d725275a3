"""Which overloads of a build the rows of its runs reach: the share of those that have a kernel, and what they showed.

Runs of one build on one kind of device are joined. Nothing is said of a run that did not record overloads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import click

from detmatrix.reports.commands import Place, writes
from detmatrix.reports.matrix.model import Matrix, load
from detmatrix.reports.matrix.run_words import states
from detmatrix.reports.render import View, grouped, markdown_pieces, object_pieces
from detmatrix.scanner.accelerators import label_of
from detmatrix.scanner.cli.options import runs_argument
from detmatrix.scanner.observations.records import Dispatch, Kernel, Writes
from detmatrix.scanner.verdicts.vocabulary import FINDINGS, Finding

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
_SORTS = [*SORT_MEANING]
KERNEL_MEANING: dict[Kernel, str] = {
    "device": "A kernel is registered for the device's dense tensors.",
    "composite": "One kernel, made of other ops, serves all devices.",
    "layout": "A kernel is registered for the device's tensors of another layout alone: sparse, quantized, nested.",
    "decomposed": "Replaced by its parts before the recorder sees it: the parts are executed, the overload itself never is.",
    "none": "There is no kernel for the device.",
}
# Kernels that an execution can reach on the device.
RUNNABLE: tuple[Kernel, ...] = ("device", "composite", "layout")
# Of these the out variant, or a loop over the list, mostly runs the same kernel again.
_VARIANTS: tuple[Sort, ...] = ("foreach and fused", "out variant")
SEES = (
    "One more execution of each row and mode, which is compared with no other, records the overloads that PyTorch's dispatcher "
    "reaches below autograd; calls inside a kernel are not seen. A finding belongs to a row, and a row reaches several "
    "overloads: it does not prove which of them differs."
)
UNSEEN = "code above the recorder"
UNKNOWN = "overloads were not recorded"
NOT_RECORDED = "not recorded"
_CUT = "the scan was interrupted before it"
_OTHERS = "other namespaces"


def coverages(matrices: Iterable[Matrix]) -> list[View]:
    """Return one coverage for each build and kind of device, in the order of the runs."""
    groups = grouped(((one.torch, one.run.header.environment.torch_git, one.kind), one) for one in matrices)
    return [_coverage(torch, device, some) for (torch, _, device), some in groups.items()]


def sort_of(name: str, writes: Writes) -> Sort:
    """Return the sort of an overload, such as ``aten::add.Tensor``."""
    op = name.partition("::")[2]
    if writes == "out":
        return "out variant"
    if op.startswith(("_foreach_", "_fused_", "_amp_")):
        return "foreach and fused"
    if "backward" in op:
        return "backward"
    if op.startswith("_") and not op.startswith("__"):
        return "internal"
    return "in place" if writes == "in_place" else "op"


def _coverage(torch: str, device: str, matrices: Sequence[Matrix]) -> View:
    listed = {
        name: _overload(name, group.writes, group.kernel)
        for one in matrices
        for group in (one.run.kernels.groups if one.run.kernels else ())
        for name in group.names
    }
    reached: dict[str, list[tuple[Finding, str]]] = {}
    raised: dict[tuple[str, str | None], list[str]] = {}
    missing: dict[str, list[str]] = {}
    for one in matrices:
        known = {dispatch.key: dispatch for dispatch in one.run.dispatches}
        for row in one.rows:
            dispatch, name = known.get(row.row.key), row.row.id
            alerts: Iterable[tuple[str, str | None]] = ((caller, None) for caller in row.alerts)
            if dispatch is None or dispatch.outcome != "ran":
                missing.setdefault(_why(one, dispatch), []).append(name)
            else:
                alerts = (alert for mode in dispatch.modes.values() for alert in mode.alerts)
                for it in {it for mode in dispatch.modes.values() for it in mode.overloads}:
                    reached.setdefault(it, []).append((row.finding, name))
            for alert in dict.fromkeys(alerts):
                raised.setdefault(alert, []).append(name)
    recorded = sum(len(one.rows) for one in matrices) - sum(map(len, missing.values()))
    executed, alerts_met = _executed(reached, raised, listed), _alerts(raised)
    never = [one for name, one in sorted(listed.items()) if one["kernel"] in RUNNABLE and name not in reached]
    groups = _groups(executed, never)
    aten = [one for one in groups if one["namespace"] == "aten"]
    core = [one for one in aten if one["sort"] not in _VARIANTS]
    compiled = sorted({name for one in matrices if one.run.kernels for name in one.run.kernels.alerts or ()})
    # Why no overload of the build is known.
    left = [_left_out(one) for one in matrices if not one.run.header.settings.overloads]
    messages = [one.run.kernels.message for one in matrices if one.run.kernels and one.run.kernels.message]
    unknown = dict.fromkeys([*left, *messages])
    unseen = UNSEEN if recorded else UNKNOWN
    found = {
        "torch": torch,
        "device": device,
        "runs": [{"path": it.name, "complete": not it.missing, "distrust": it.distrust} for it in matrices],
        "not_recorded": None if listed else "; ".join(unknown) or _CUT,
        "planned": sum(one.planned for one in matrices),
        "recorded": recorded,
        # Executed and all overloads of ATen with a kernel of the device, or one for all; also without variants.
        "aten": {
            f"{kernel}{which}": {
                "executed": sum(one["executed"][kernel] for one in some),
                "of": sum(one["total"][kernel] for one in some),
            }
            for kernel in ("device", "composite")
            for which, some in (("", aten), ("_without_variants", core))
        }
        if listed
        else None,
        "groups": groups,
        "decomposed": sum(one["kernel"] == "decomposed" for one in listed.values()),
        "alerts": alerts_met,
        "compiled_alerts": compiled,
        "never_met": [name for name in compiled if name not in {one["caller"] for one in alerts_met}],
        "missing": missing,
        "sorts": SORT_MEANING,
        "kernels": KERNEL_MEANING,
        "executed": executed,
        "never": never if recorded else [],
    }
    namespaces = {"aten", *(one["namespace"] for one in executed)}
    return View(
        found,
        states=[(it.name, state) for it in matrices for _, state in states(it)],
        sees=SEES,
        label=label_of(device),
        unseen=unseen,
        summary=_summary(found),
        count_lines=_count_lines(groups, namespaces),
        alert_lines=[
            (one["caller"], ", ".join(one["overloads"]) or unseen, len(one["rows"])) for one in alerts_met
        ],
        by_finding=sorted(executed, key=lambda one: (FINDINGS.index(one["worst"]), one["name"])),
        never_lists=_lists(found["never"], namespaces),
    )


def _executed(
    reached: Mapping[str, Sequence[tuple[Finding, str]]],
    raised: Iterable[tuple[str, str | None]],
    listed: Mapping[str, dict[str, Any]],
) -> list[dict[str, Any]]:
    """Return the overloads that rows reach, each with the rows that show the worst."""
    executed = []
    for name, rows in sorted(reached.items()):
        worst = min((finding for finding, _ in rows), key=FINDINGS.index)
        seen = {
            "rows": len(rows),
            "worst": worst,
            "evidence": [*dict.fromkeys(identity for finding, identity in rows if finding == worst)],
            "alerts": [*dict.fromkeys(caller for caller, by in raised if by == name)],
        }
        executed.append((listed.get(name) or _overload(name, "new", None)) | seen)
    return executed


def _alerts(raised: Mapping[tuple[str, str | None], Iterable[str]]) -> list[dict[str, Any]]:
    """Return the alerts that rows met, by the caller they name; without overloads: raised above the recorder."""
    rows_of = grouped((caller, it) for (caller, _), ids in raised.items() for it in ids)
    return [
        {
            "caller": caller,
            "overloads": sorted(by for name, by in raised if name == caller and by),
            "rows": [*dict.fromkeys(ids)],
        }
        for caller, ids in sorted(rows_of.items())
    ]


def _overload(name: str, writes: Writes, kernel: Kernel | None) -> dict[str, Any]:
    """Return an overload; its kernel is ``None`` where the build lists no such overload."""
    namespace = name.partition("::")[0]
    return {"name": name, "namespace": namespace, "sort": sort_of(name, writes), "kernel": kernel}


def _why(one: Matrix, dispatch: Dispatch | None) -> str:
    """Say why the overloads of a row are not known."""
    if dispatch is not None:
        return f"{dispatch.outcome}: {dispatch.message}" if dispatch.message else dispatch.outcome
    if not one.run.header.settings.overloads:
        return f"{NOT_RECORDED}: {_left_out(one)}"
    return _CUT if one.run.closing is None else NOT_RECORDED


def _left_out(one: Matrix) -> str:
    format_ = one.run.header.format
    if one.simulated:
        return f"{one.name} is simulated, which records no overloads"
    if format_ < 3:  # noqa: PLR2004 - the format that brought overloads
        return f"{one.name} is of run file format {format_}, which knows no overloads; scan again"
    return f"{one.name} was scanned with --no-overloads"


def _groups(executed: Iterable[dict[str, Any]], never: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Count executed overloads and all by namespace, sort and kernel, ATen first."""
    counts = Counter(
        (one["namespace"], one["sort"], one["kernel"], "rows" in one)
        for one in (*executed, *never)
        if one["kernel"] in RUNNABLE
    )
    return [
        {
            "namespace": namespace,
            "sort": sort,
            "executed": {it: counts[namespace, sort, it, True] for it in RUNNABLE},
            "total": {it: sum(counts[namespace, sort, it, ran] for ran in (True, False)) for it in RUNNABLE},
        }
        for _, namespace, _, sort in sorted(
            {(it[0] != "aten", it[0], _SORTS.index(it[1]), it[1]) for it in counts}
        )
    ]


def _count_lines(groups: Iterable[dict[str, Any]], namespaces: set[str]) -> list[tuple[str, ...]]:
    """Return how many were executed of all, by kernel; namespaces that nothing reached have one line."""
    lines, others = [], Counter[str]()
    for one in groups:
        if one["namespace"] in namespaces:
            counts = (_of(one["executed"][it], one["total"][it]) for it in RUNNABLE)
            lines.append((one["namespace"], one["sort"], *counts))
        else:
            others.update(one["total"])
    return [*lines, *[(_OTHERS, "all", *(_of(0, others[it]) for it in RUNNABLE))] * bool(others)]


def _summary(found: dict[str, Any]) -> str:
    """Say what share of the overloads was executed."""
    if found["aten"] is None:
        return f"Overloads are {NOT_RECORDED}: {found['not_recorded']}."
    device = found["device"].upper() if found["device"] == "cpu" else "CUDA"
    (core, core_of), (every, every_of), (composite, composite_of) = (
        found["aten"][name].values()
        for name in ("device_without_variants", "device", "composite_without_variants")
    )
    share = f" ({core / core_of:.0%})" if core_of else ""
    return (
        f"{core} of the {core_of} overloads of ATen that have a kernel for {device} were executed{share}, "
        f"not counting out, foreach and fused variants ({every} of {every_of} with them), by "
        f"{found['recorded']} of {found['planned']} rows. Of those with one kernel for all devices, {composite} of "
        f"{composite_of}; {found['decomposed']} more are replaced by their parts before the recorder sees them, and are not counted."
    )


def _of(executed: int, total: int) -> str:
    return f"{executed} of {total}" if total else "none"


def _lists(never: Iterable[dict[str, Any]], namespaces: set[str]) -> dict[str, list[str]]:
    """Return the overloads that were never reached under what they have in common, ATen first."""

    def place(one: dict[str, Any]) -> tuple[bool, str, int, int]:
        namespace, kernel = one["namespace"], RUNNABLE.index(one["kernel"])
        if namespace in namespaces:
            return namespace != "aten", namespace, _SORTS.index(one["sort"]), kernel
        return True, _OTHERS, -1, kernel

    places = grouped((place(one), one["name"]) for one in never)
    return {
        f"{namespace}{f', {_SORTS[sort]}' if sort >= 0 else ''}, kernel: {RUNNABLE[kernel]}": names
        for (_, namespace, sort, kernel), names in sorted(places.items())
    }


def _json(ones: Sequence[View]) -> Iterator[str]:
    """Yield the object of a single coverage, and ``{"coverages": […]}`` for several."""

    def pieces(one: View) -> Iterator[str]:
        return object_pieces(one, "executed", "never")

    several = {"coverages": ones}
    yield from pieces(ones[0]) if len(ones) == 1 else object_pieces(several, *several, each=pieces, edge="")
    yield "\n"


RENDERERS: dict[str, Callable[[Sequence[View]], Iterator[str]]] = {
    "md": lambda ones: markdown_pieces("coverage", ones),
    "json": _json,
}


@click.command()
@runs_argument
@writes(RENDERERS, "Markdown, in which long lists are cut, or JSON, which has all of them.")
def coverage(runs: tuple[str, ...], to: Place) -> int:
    """Say which of PyTorch's overloads the rows of run files reach, and which they never do.

    RUN is a file that scan wrote, or one compressed with gzip (.gz). Runs of one build on one kind of device are
    joined.
    """
    return to.write(coverages(load(runs)), runs)
