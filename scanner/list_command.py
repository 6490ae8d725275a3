"""``detmatrix list``: what the catalog holds, without torch."""

from __future__ import annotations

import json
from collections.abc import Sequence

import click

from opspecs.model import OpSpec, Planned
from opspecs.registry import SPECS, select
from scanner.catalog import choose


@click.command(name="list")
@click.argument("patterns", nargs=-1, metavar="[PATTERN]...")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="A table to read, or JSON with every row id.",
)
def command(patterns: tuple[str, ...], form: str) -> None:  # fmt: skip
    """List the ops and cases that match the PATTERNs (default: all). Needs no torch.

    A case that says what it provokes can expose a difference; an innocent case leaves the op no choice of order.
    """
    # CUDA has every row the CPU has, and some dtypes more.
    rows = choose(patterns, "cuda", SPECS)
    on_cpu = {planned.id for _, planned in select((), "cpu")}
    click.echo(_json(rows, on_cpu) if form == "json" else _table(rows, on_cpu))


def _json(rows: Sequence[tuple[OpSpec, Planned]], on_cpu: set[str]) -> str:
    """Return a list with one object per row."""
    listed = [
        {
            "id": planned.id,
            "family": spec.family,
            "spec": spec.name,
            "op": spec.op_name,
            "case": planned.case,
            "direction": planned.direction,
            "dtype": planned.dtype,
            "devices": ["cpu", "cuda"] if planned.id in on_cpu else ["cuda"],
            "provokes": spec.cases[planned.case].provokes,
            "why": spec.why,
        }
        for spec, planned in rows
    ]
    return json.dumps(listed, indent=2)


def _table(rows: Sequence[tuple[OpSpec, Planned]], on_cpu: set[str]) -> str:
    """Return one line per case, grouped by family and op."""
    cases: dict[tuple[str, str, str], tuple[OpSpec, list[Planned]]] = {}
    for spec, planned in rows:
        cases.setdefault((spec.family, spec.name, planned.case), (spec, []))[1].append(planned)
    width = max(len(case) for _, _, case in cases)
    lines: list[str] = []
    family = name = ""
    for (in_family, of, case), (spec, planned_rows) in cases.items():
        if in_family != family:
            lines += ["", f"{in_family}"]
            family = in_family
        if of != name:
            lines.append(f"  {of}")
            name = of
        directions = ", ".join(dict.fromkeys(row.direction for row in planned_rows))
        dtypes = ", ".join(
            dict.fromkeys(row.dtype + ("" if row.id in on_cpu else " (cuda)") for row in planned_rows)
        )
        provokes = spec.cases[case].provokes or "innocent"
        lines.append(f"    {case:{width}}  {directions}; {dtypes}; {provokes}")
    specs = len({name for _, name, _ in cases})
    cpu = sum(planned.id in on_cpu for _, planned in rows)
    lines += ["", f"{specs} ops, {len(cases)} cases, {len(rows)} rows on CUDA, {cpu} on the CPU"]
    return "\n".join(lines[1:])
