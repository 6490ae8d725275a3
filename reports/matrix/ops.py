"""One line an op: what a report shows of it, in one run or in several, and in which words and signs.

A line is always about all rows of its op, whichever of them a report shows; the worst of them stands for it, in the order
of ``WORST_FIRST``. What several runs of one release on one kind of device show stands in one column. An op's finding, and
what to do, are those of the latest release that it was scanned in, on each kind of device; earlier columns show what was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from detmatrix.reports.matrix.chosen_columns import Column, all_columns, cell_of, outranking, pointer, telling
from detmatrix.reports.matrix.model import SECTION_WORDS, Matrix, RunLists, beside_counts, is_filled, sections
from detmatrix.reports.matrix.rows import APPROXIMATELY, SLOW, TIMES, timed, times
from detmatrix.reports.render import View, fields_of, grouped
from detmatrix.scanner.accelerators import label_of
from detmatrix.scanner.claims.matching import claimed_kind
from detmatrix.scanner.observations import torch_versions
from detmatrix.scanner.observations.records import Claim
from detmatrix.scanner.plurals import first_of, several
from detmatrix.scanner.verdicts.cells import USABLE, Cell
from detmatrix.scanner.verdicts.findings import UNLIKE_REFERENCE, MatrixRow
from detmatrix.scanner.verdicts.vocabulary import (
    BESIDE,
    CURED,
    FINDING,
    NO_SIGN,
    RAISING,
    VERDICT,
    WORST_FIRST,
    Finding,
)

UNKNOWN, OTHER_BITS = "?", "~"
UNSCANNED = "not scanned"  # on a kind of device, beside one on which there are rows
FILL = "+fill"  # behind the cost of the flag where that of the fill is high
NONE_LISTED, MISSING = "–", "MISSING"  # noqa: RUF001
# Signs that a cell of an op is made of, printed below every table of ops that has them.
MARK_MEANING = {
    VERDICT["nondeterministic"].sign: "differs",
    VERDICT["deterministic"].sign: "same",
    OTHER_BITS: "same, other bits than off",
    VERDICT["raises"].sign: "raises",
    UNKNOWN: "not measured",
    NO_SIGN: "no row",
}
LISTED_MEANING = {
    "acts": "Documented to act deterministically with the flag on.",
    "raises": "Documented to raise with the flag on.",
    MISSING: "It differs or raises, and no list says so.",
    NONE_LISTED: "In no list, and no list lacks it.",
}
MOST = 25  # ops that are listed unless all are asked for: a screen of them
_NAMED = 8  # ops of which nothing else is said
# The list of cuBLAS (up to 2.9) is one of what raises.
_SHORT = SECTION_WORDS | {"cublas": "raises"}

RunRow = tuple[int, MatrixRow]  # a row, and the place of its run among those of the report


def ops_view(matrices: Sequence[Matrix]) -> View:
    """Return the ops of these runs that have a row to show, the worst first, then in the order of the runs."""
    columns, lists = _columns(matrices), [one.lists for one in matrices]
    scanned, shown = (
        grouped((row.row.spec, (number, row)) for number, rows in enumerate(some) for row in rows)
        for some in ((one.scanned for one in matrices), (one.rows for one in matrices))
    )
    short = _short_names(scanned)
    further = telling(all_columns(matrices), [row.row for one in matrices for row in one.scanned])
    every = [
        _op(name, short[name], of, shown.get(name, ()), columns, further, lists)
        for name, of in scanned.items()
    ]
    found = Counter(op["finding"] for op in every)
    counts = {finding: found[finding] for finding in FINDING}
    ops = sorted(
        (op for op in every if op.rows),
        # What stands beside a finding is worse than any finding.
        key=lambda op: (
            min(map([*BESIDE].index, op["beside"]), default=len(BESIDE)),
            FINDING[op["finding"]].rank,
            op.is_clean,
        ),
    )
    narrowed = any(one.only or one.patterns for one in matrices)
    by_device = _by_device(every)
    unmeasured = _unmeasured(matrices, lists, narrowed=narrowed)
    acting, clean = [op for op in ops if not op.is_clean], [op for op in ops if op.is_clean]
    doubted = [op["short"] for op in clean if op["doubts"]]
    weak = "Weak evidence: every forward (or backward) row ran on one thread or could not have shown a race"
    simulated = " SIMULATED," * any(column["device"] == "simulated" for column in columns)
    return View(
        {
            "columns": columns,
            "unmeasured": unmeasured,
            "op_counts": counts,
            **({"device_counts": by_device} if by_device else {}),
            "ops": ops,
        },
        further=further,
        narrowed=narrowed,
        counts=counts,
        beside=beside_counts(op["beside"] for op in every),
        by_device=by_device,
        counted=_counted(every),
        shown=f"Shown: {len(ops)} of {len(every)} ops. Each line covers all rows of its op."
        if narrowed
        else None,
        acting=acting,
        clean=clean,
        # What a short report has lines for: the ops asked for, or the first with something to do.
        listed=ops if narrowed else acting[:MOST],
        left_out=[] if narrowed else acting[MOST:],
        doubted_words=f"{weak}: {first_of(doubted, _NAMED)}." if doubted else None,
        unmeasured_words=[
            f"{'THE CPU' if device == 'cpu' else device.upper()}{simulated * (device == 'cuda')} NOT MEASURED: "
            f"{several(count, 'documented claim')}"
            for device, count in unmeasured.items()
        ],
        legend=lambda listed: _legend(listed, further, several_devices=bool(by_device)),
    )


def _legend(
    ops: Sequence[View], further: Sequence[Column], *, several_devices: bool
) -> list[tuple[str, list[str]]]:
    """Return what the columns of some of the ops say, with the signs that they have."""
    ways = [cell[way] for op in ops for cell in op["cells"] for way in ("forward", "backward")]
    used = {sign for way in ways for sign in (way["off"].glyph, way["on"].glyph)}
    signs = [f"{sign} {meaning}" for sign, meaning in MARK_MEANING.items() if sign in used]
    lines = [("cells", ["off/on", *signs])]
    if any(op["cost"] or op["fill"] for op in ops):
        filled = any(op.cost_words.endswith(FILL) for op in ops)
        fill = f"{FILL} {SLOW:g}{TIMES} or more with fill_uninitialized_memory, on by default"
        lines.append(("cost", ["the flag alone", f"{APPROXIMATELY} within noise", *[fill] * filled]))
    missing = any(op["listed"] == MISSING for op in ops)
    if missing or any(op.docs_words != op["listed"] for op in ops):
        which = "each" if several_devices else "this"
        texts = [f"what PyTorch's lists say, of {which} device unless they name one"]
        lines.append(("docs", [*texts, *[f"{MISSING}: it differs or raises, and no list says so"] * missing]))
    return [*lines, *((column.name, [column.meaning]) for column in further)]


def _unmeasured(matrices: Sequence[Matrix], lists: Sequence[RunLists], *, narrowed: bool) -> dict[str, int]:
    """Return the kinds of devices that no run is on, and how many claims of the latest lists are about them."""
    if not matrices:
        return {}
    latest = max(zip(matrices, lists, strict=True), key=lambda it: torch_versions.key(it[0].release))[1]
    rows = [row.row for one in matrices for row in one.rows]
    told: Sequence[Claim] = latest.claims
    # Whoever scanned some ops, own ones or second gradients alone, asked about no others.
    if narrowed or all(row.source in {"own", "instead", "gradgrad"} for row in rows):
        about = {id(claim) for row in rows for claim in latest.about(row)}
        told = [claim for claim in told if id(claim) in about]
    claims = Counter(claim.device for claim in told)
    measured = {"any", *(one.kind for one in matrices)}
    return {kind: claims[kind] for kind in claims if kind not in measured}


def _by_device(ops: Sequence[View]) -> dict[str, dict[str, int]]:
    """Count the ops of each kind of device by what it shows, the worst first; empty if there is one kind."""
    counted = {}
    for label, those in grouped((it.label, it) for op in ops for it in op.devices).items():
        unscanned = sum(it["finding"] is None for it in those)
        counted[label] = _counted(those) | ({UNSCANNED: unscanned} if unscanned else {})
    return counted


def _counted(views: Sequence[View]) -> dict[str, int]:
    """Count ops by what they show, the worst first, and silent in any case."""
    counts = Counter(it["finding"] for it in views)
    told: dict[str, int] = {name: counts[name] for name in WORST_FIRST if counts[name] or name == "silent"}
    return beside_counts(it["beside"] for it in views) | told


def _short_names(names: Iterable[str]) -> dict[str, str]:
    """Return the shortest ending of each name that no other has; those of databases stay whole."""
    parts = {name: name.split(".") if name.startswith("torch.") else [name] for name in names}
    endings = {name: [".".join(of[place:]) for place in range(len(of))][::-1] for name, of in parts.items()}
    owners = Counter(ending for of in endings.values() for ending in of)
    return {name: next((it for it in of if owners[it] == 1), name) for name, of in endings.items()}


def _columns(matrices: Sequence[Matrix]) -> list[View]:
    """Return a column for each release on each kind of device, the oldest release first."""
    runs = grouped(((one.kind, one.release), number) for number, one in enumerate(matrices))
    return [
        View(
            {
                "device": device,
                "torch": torch,
                "runs": numbers,
                "executions": [matrices[number].executions for number in numbers],
                "trusted": not any(matrices[number].distrust for number in numbers),
            },
            title=f"{torch} {label_of(device)}",
        )
        for (device, torch), numbers in sorted(
            runs.items(), key=lambda it: (it[0][0], torch_versions.key(it[0][1]))
        )
    ]


def _op(
    name: str,
    short: str,
    scanned: Sequence[RunRow],
    shown: Sequence[RunRow],
    columns: Sequence[View],
    further: Sequence[Column],
    lists: Sequence[RunLists],
) -> View:
    of = [[(run, row) for run, row in scanned if run in column["runs"]] for column in columns]
    cells = [_cell(records, column, lists) for records, column in zip(of, columns, strict=True)]
    # The place of the latest column of each kind of device: of those with rows, if there are any.
    latest = {column["device"]: place for place, column in enumerate(columns)}
    latest |= {column["device"]: place for place, column in enumerate(columns) if of[place]}
    judged = [cells[place] for place in latest.values() if of[place]]
    rows = [row for place in latest.values() for _, row in of[place]]
    many, elsewhere = len(latest) > 1, _elsewhere(judged)
    quiet = FINDING["deterministic"].action
    if many or elsewhere:
        quiet = "none seen" if many else f"none seen on {label_of(next(iter(latest)))}"
    devices = [_device(cells[it], [row for _, row in of[it]], further, quiet) for it in latest.values()]
    told = [cell_of(column, rows) for column in further]
    finding = _worst(cell["finding"] for cell in judged)
    counts = sum((Counter(it["counts"]) for it in devices), Counter[Finding]())
    listed, cost, fill = _listed(judged), *_costs(rows)
    unlike = sum(bool(row.unlike_reference) for row in rows)
    notable = any(it["notable"] for it in told) or any(it["finding"] is None for it in devices)
    action = "; ".join(f"{it.label}: {it['action']}" if many else it["action"] for it in devices)
    doubts = dict.fromkeys(text for it in devices for text in it.doubts) if finding == "deterministic" else ()
    return View(
        {
            "name": name,
            "short": short,  # the shortest ending of it that no other op of the runs has
            "family": scanned[0][1].row.family,
            "finding": finding,  # the worst of the latest release, on any kind of device
            "action": action,
            "listed": listed,
            "elsewhere": elsewhere,
            "doubts": list(doubts),
            "counts": {it: counts[it] for it in WORST_FIRST if counts[it]},
            "cost": cost,
            "fill": fill,  # of the rows in which the fill of uninitialized memory makes a difference
            "cells": cells,
            "rows": [row.row.id for _, row in shown],
            "unlike_reference": unlike,
            "beside": beside_counts(row.beside for row in rows),
            **({"devices": devices} if many else {}),
            **({"further": {one.name: it for one, it in zip(further, told, strict=True)}} if further else {}),
        },
        rows=shown,
        further=told,
        devices=devices if many else [],
        # There is nothing to do, and nothing in doubt but what the summary says of all.
        is_clean=finding == "deterministic" and not (notable or unlike),
        docs_words=_docs_words(listed, elsewhere, devices),
        counts_words="; ".join(
            f"{it.label}: {it.counts_words}" if many else it.counts_words for it in devices
        ),
        # Of an op that only the fill cures that of the fill; of others it says where that is high.
        cost_words=(f"fill {_range_words(fill)}" if fill else NONE_LISTED)
        if any(it["action"].startswith(FINDING["uninitialized"].action) for it in devices)
        else (
            f"{_range_words(cost)}{FILL if fill and fill['high'] >= SLOW else ''}" if cost else NONE_LISTED
        ),
    )


def _worst(findings: Iterable[Finding | None]) -> Finding:
    return min((it for it in findings if it), key=lambda it: FINDING[it].rank)


def _device(cell: View, rows: Sequence[MatrixRow], further: Sequence[Column], quiet: str) -> View:
    """Return what the latest release of one kind of devices shows of an op, and what to do, *quiet* where no row differed."""
    weak = [text for way in ("forward", "backward") for text in cell[way]["doubts"]]
    told, finding = [cell_of(column, rows) for column in further], cell["finding"]
    counts = {it: cell["counts"][it] for it in WORST_FIRST if it in cell["counts"]}
    unlike = sum(bool(row.unlike_reference) for row in rows)
    beside = beside_counts(row.beside for row in rows)
    own, see = None if rows else UNSCANNED, None
    if finding and (finding == "deterministic" or outranking(finding, further, told)):
        see = pointer(further, told)
    if beside:
        worst = next(iter(beside))
        own = f"{BESIDE[worst].phrase}: {several(beside[worst], 'row')}"
    elif unlike:
        own = f"{UNLIKE_REFERENCE}: {several(unlike, 'row')}"
    elif finding and (see is None or finding != "deterministic"):
        own = _of_flag(finding, rows, weak, quiet)
    return View(
        {
            **fields_of(cell, "device", "finding"),
            "action": "; ".join(filter(None, (own, see))),
            "listed": _listed([cell]) if rows else NONE_LISTED,
            "counts": counts,
            "beside": beside,
        },
        label=label_of(cell["device"]),
        counts_words=counts_words(beside, counts),
        doubts=weak,
    )


def counts_words(beside: Mapping[str, int], findings: Mapping[Finding, int]) -> str:
    """Return how many rows there are of what stands beside findings and of each finding but "deterministic", of all."""
    counts = [f"{count} {name}" for name, count in beside.items()]
    counts += [f"{count} {finding}" for finding, count in findings.items() if finding != "deterministic"]
    return f"{', '.join(counts) or 'none'} of {sum(findings.values())}"


def _cell(records: Sequence[RunRow], column: View, lists: Sequence[RunLists]) -> View:
    """Return what the runs of a column show of an op."""
    rows = [row for _, row in records]
    finding = _worst(row.finding for row in rows) if rows else None
    worst = [(run, row) for run, row in records if row.finding == finding]
    return View(
        {
            **fields_of(column, "device", "torch"),
            "finding": finding,
            "forward": direction_of([row for row in rows if row.row.direction == "forward"]),
            "backward": direction_of([row for row in rows if row.row.direction == "backward"]),
            "counts": dict(Counter(row.finding for row in rows)),
            "documented": _documented(records, worst, column["device"], lists),
            # Rows that raise or differ, and that no bullet is about.
            "missing": sum(column["trusted"] and lists[run].lack(row) for run, row in records),
        }
    )


def _documented(
    records: Sequence[RunRow], worst: Sequence[RunRow], device: str, lists: Sequence[RunLists]
) -> dict[str, list[str]] | None:
    """Return what the lists say: of the device of the runs, for the worst rows; of others for all rows.

    ``None`` stands for a release without lists.
    """
    runs = {run for run, _ in records}
    if not any(lists[run].claims for run in runs):
        return None
    found: dict[str, list[str]] = {}
    measured = claimed_kind(device)
    listed = {claim.device for run in runs for claim in lists[run].claims}
    for kind in dict.fromkeys([measured, *(kind for kind in ("cpu", "cuda", "mps") if kind in listed)]):
        words = (
            _SHORT[section]
            for run, record in (worst if kind == measured else records)
            if (claims := lists[run].about(record.row))
            for section in sections(replace(record.row, device=kind), claims)
        )
        found[kind] = list(dict.fromkeys(words))
    return found


def direction_of(rows: Sequence[MatrixRow]) -> View:
    """Return the worst row of a direction; of those that did not differ, the one that shows least."""
    if not rows:
        text = "no row"
        nothing = View({"verdict": None, "text": text, "other_bits": False, "has_row": False}, glyph=NO_SIGN)
        return View(
            {"off": nothing, "on": nothing, "finding": None, "row": None, "doubts": []},
            glyphs=NO_SIGN,
            word=text,
            tint="no_row",
            text=text,
        )
    worst = min(
        rows,
        key=lambda row: (
            FINDING[row.finding].rank,
            row.off.verdict != "nondeterministic",
            min(row.off.runs, row.on.runs),
        ),
    )
    off, on = _mark(worst.off), _mark(worst.on, other_bits=worst.finding == "mode_dependent")
    doubted = [row.doubt_words() for row in rows]
    doubts = list(dict.fromkeys(text for texts in doubted for text in texts)) if all(doubted) else []
    still, told = ", ".join([on["text"], *doubts]), f" ({', '.join(doubts)})" if doubts else ""
    # Worse than any finding, of whichever row.
    beside = next(iter(beside_counts(row.beside for row in rows)), None)
    return View(
        {"off": off, "on": on, "finding": worst.finding, "row": worst.row.id, "doubts": doubts},
        glyphs=f"{off.glyph}/{on.glyph}",
        # What stands below the signs where there is room for little.
        word=BESIDE[beside].phrase
        if beside
        else still
        if worst.finding == "deterministic"
        else worst.finding,
        tint=beside or worst.finding,
        text=f"off: {off['text']}; on: {on['text']}{told}",
    )


def _mark(cell: Cell, *, other_bits: bool = False) -> View:
    """Return what one mode shows of the worst case of an op in one direction, with its sign."""
    text = cell.counted or f"{cell.verdict} {cell.alert or ''}".strip()
    usable = cell.verdict in USABLE
    return View(
        {
            "verdict": cell.verdict,
            "text": f"{text}, other bits" if other_bits else text,
            "other_bits": other_bits,
            "has_row": True,
        },
        glyph=OTHER_BITS if other_bits else VERDICT[cell.verdict].sign if usable else UNKNOWN,
    )


def _of_flag(finding: Finding, rows: Sequence[MatrixRow], weak: Iterable[str], quiet: str) -> str:
    """Return what to do about an op, by its worst rows with the flag off and on; *weak* says why a direction shows little."""
    of = [row for row in rows if row.finding == finding]
    raising = sum(row.on.verdict == "raises" for row in rows)
    fixed = sum(row.finding in CURED for row in rows)
    action = FINDING[finding].action
    if finding in RAISING and fixed:
        return f"raises in {several(raising, 'row')}; flag fixes {fixed}"
    if finding in CURED and raising:
        return f"{FINDING['fixed_by_mode'].action}; raises in {several(raising, 'row')}"
    if finding == "fixed_by_mode" and all(map(is_filled, of)):
        return FINDING["uninitialized"].action  # a run that was made before there was such a finding
    if finding == "inconclusive":
        more = (cell for row in of for cell in (row.unfilled, row.warn_only) if cell.verdict != "not_run")
        cells = (*(cell for row in of for cell in (row.off, row.on)), *more)
        failed = (_failure_words(cell) for cell in cells if cell.verdict not in USABLE)
        return f"{action}: {next(failed, 'too few runs')}"
    if finding != "deterministic":
        return action
    doubts = " and ".join(dict.fromkeys(weak))
    return f"none seen: {doubts}" if doubts else quiet


def _failure_words(cell: Cell) -> str:
    """Return the verdict of a cell without result; of one that rests on a library that is not simulated, the call."""
    known = cell.simulated if cell.verdict == "not_run" else None
    if known and known.libraries:
        return f"calls {known.libraries[0]}"
    return "products by the CPU" if known and known.products else cell.verdict


def _listed(cells: Sequence[View]) -> str:
    """Return in a word what the lists say of an op on the devices that it was measured on."""
    if any(cell["missing"] for cell in cells):
        return MISSING
    if all(cell["documented"] is None for cell in cells):
        return UNKNOWN
    words = dict.fromkeys(
        word for cell in cells for word in (cell["documented"] or {}).get(claimed_kind(cell["device"]), ())
    )
    return " and ".join(words) or NONE_LISTED


def _elsewhere(cells: Sequence[View]) -> str | None:
    """Return what the lists say of an op on devices that it was not measured on, "CUDA: acts"; ``None`` if they are silent."""
    measured = {claimed_kind(cell["device"]) for cell in cells}
    said = grouped(
        (device, word)
        for cell in cells
        for device, words in (cell["documented"] or {}).items()
        for word in words * (device not in measured)
    )
    texts = (f"{device.upper()}: {' and '.join(dict.fromkeys(words))}" for device, words in said.items())
    return ", ".join(texts) or None


def _docs_words(listed: str, elsewhere: str | None, devices: Sequence[View]) -> str:
    """Return what the lists say; of an op that is in none for this device, what they say of another.

    Of several devices of which they do not say the same, those are named of which they say something, or lack it.
    """
    if len({it["listed"] for it in devices}) > 1:
        missing = any(it["listed"] == MISSING for it in devices)
        told = (it for it in devices if it.listed == MISSING or not (missing or it.listed == NONE_LISTED))
        return ", ".join(f"{label_of(claimed_kind(it['device']))}: {it['listed']}" for it in told)
    return elsewhere if elsewhere and listed == NONE_LISTED else listed


def _range_words(ratios: Mapping[str, float]) -> str:
    """Return both ends of a range, or one where they read alike."""
    low, high = (f"{APPROXIMATELY if it == 1.0 else ''}{times(it)}" for it in ratios.values())
    return low if low == high else f"{low[:-1]}–{high}"  # noqa: RUF001


def _costs(rows: Iterable[MatrixRow]) -> tuple[dict[str, float] | None, dict[str, float] | None]:
    """Return the lowest and the highest ratio of the flag alone, and those of flag and fill in rows in which the fill matters.

    A ratio is exactly 1 in rows whose quartiles overlap.
    """
    timings = [(cost, is_filled(row)) for row in rows if (cost := timed(row))]
    # Without a time of its own nobody knows what the flag takes beside the fill.
    flags = [cost.flag for cost, filled in timings if cost.unfilled is not None or not filled]
    fills = [
        cost.ratio if cost.told_apart else 1.0
        for cost, filled in timings
        if cost.filling is not None or filled
    ]
    flag, fill = ({"low": min(it), "high": max(it)} if it else None for it in (flags, fills))
    return flag, fill
