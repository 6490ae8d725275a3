"""The coverage of overloads as JSON for machines, one overload per line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reports.coverage.claims import documented_alerts
from reports.coverage.model import KERNEL_MEANING, SORT_MEANING, Coverage, CoveredOverload
from reports.render.json import json_of, one_or_several


def render(coverages: Sequence[Coverage]) -> Iterator[str]:
    """Yield one object for one build and kind of device, and ``{"coverages": […]}`` for several."""
    return one_or_several("coverages", coverages, _coverage)


def _coverage(one: Coverage) -> Iterator[str]:
    figures = {
        "device": one.figure(),
        "device_without_variants": one.figure(variants=False),
        "composite": one.figure(("composite",)),
        "composite_without_variants": one.figure(("composite",), variants=False),
    }
    head = {
        "torch": one.torch,
        "device": one.device,
        "runs": [
            {"path": it.name, "complete": it.run.closing is not None, "distrust": it.distrust}
            for it in one.matrices
        ],
        "not_recorded": one.unknown,
        "planned": one.planned,
        "recorded": one.recorded,
        "aten": None
        if one.unknown
        else {name: {"executed": part, "of": whole} for name, (part, whole) in figures.items()},
        "groups": one.counts,
        "decomposed": one.decomposed,
        "alerts": one.alerts,
        "documented_alerts": documented_alerts(one),
        "missing": one.missing,
        "sorts": SORT_MEANING,
        "kernels": KERNEL_MEANING,
    }
    yield "{\n" + ",\n".join(f"{json_of(key)}: {json_of(value)}" for key, value in head.items())
    for name, some in (("executed", one.executed), ("never", one.never)):
        yield f',\n"{name}": [\n' + ",\n".join(json_of(_overload(it)) for it in some) + "\n]"
    yield "\n}"


def _overload(one: CoveredOverload) -> dict[str, object]:
    named: dict[str, object] = {
        "name": one.name,
        "namespace": one.namespace,
        "sort": one.sort,
        "kernel": one.kernel,
    }
    if not one.rows:
        return named
    return {**named, "rows": one.rows, "worst": one.worst, "evidence": one.evidence, "alerts": one.alerts}
