"""``detmatrix list``: what the catalog holds, without torch."""

from __future__ import annotations

from collections.abc import Sequence

import click

from detmatrix.opspecs.model import OpSpec, Planned
from detmatrix.opspecs.patterns import ops_of
from detmatrix.opspecs.pytorch.sources import databases
from detmatrix.opspecs.registry import names_of, select
from detmatrix.scanner.cases.catalog import choose, load_catalog, with_installed
from detmatrix.scanner.cli.options import patterns_argument, source_names, tell
from detmatrix.scanner.errors import UsageError
from detmatrix.scanner.plurals import several


@click.command(name="list")
@patterns_argument
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True,
              help="A table to read, or JSON with every row id.")  # fmt: skip
@click.option("--modes", is_flag=True, help="List the modes of scan instead, and which rows are run in each.")
@click.option("--source", "sources", type=source_names, metavar="LIST",
              help="Comma-separated sources to list: documented, opinfo, modules, all of these (all), gradgrad, or instead. The databases need a torch.")  # fmt: skip
@click.option("--python", metavar="PATH",
              help="The interpreter whose torch's databases are listed. Default: this one.")  # fmt: skip
def command(
    patterns: tuple[str, ...], form: str, modes: bool, sources: tuple[str, ...] | None, python: str | None
) -> None:
    """List the ops and cases that match the PATTERNs (default: all), which are those of scan.

    Needs a torch for PyTorch's databases alone, which are asked where a PATTERN names an op that only they have.

    Specs that installed packages bring are among them.

    A case that says what it provokes can expose a difference; an innocent case leaves the op no choice of order. A scan runs
    cases called batch… only where a PATTERN or --invariance batch asks for them.
    """
    if modes:
        if patterns or sources or python:
            raise UsageError(
                "--modes covers all modes; leave the patterns and the other options but --format out"
            )
        click.echo(_modes(form))
        return
    asked = sources or ("documented",)
    specs = load_catalog(with_installed(()), asked)
    ops = list(map(names_of, specs)) if patterns else []
    if databases(sources) or not all(ops_of(pattern, ops) for pattern in patterns):
        # They start a worker.
        from detmatrix.scanner.cases.discovery import listed, with_databases  # noqa: PLC0415

        asked = with_databases(patterns, asked, specs, said=sources is not None)
        if databases(asked):
            tell("list: starting torch, which has the databases")
            specs += listed(asked, patterns, specs, python)
    if python is not None and not databases(asked):
        raise UsageError(
            "--python names the torch whose databases are listed; add --source opinfo, modules or all"
        )
    rows = choose(patterns, "any", specs)
    on = {device: {planned.id for _, planned in select((), device, specs)} for device in ("cpu", "cuda")}
    click.echo(_json(rows, on) if form == "json" else _table(rows, on))


def _modes(form: str) -> str:
    """Return what each mode is, those of every scan first."""
    import json  # noqa: PLC0415

    from detmatrix.scanner.modes import MODE_TABLE  # noqa: PLC0415 - of a scan

    listed = [
        {"mode": mode, "chosen": it.chosen, "meaning": it.meaning, "rows": it.rows}
        for mode, it in MODE_TABLE.items()
        if not it.retired
    ]
    if form == "json":
        return json.dumps(listed, indent=2)
    width = max(map(len, MODE_TABLE))
    lines = ["The flag is that of torch.use_deterministic_algorithms."]
    for chosen, heading in ((False, "In every scan"), (True, "In scans whose --modes names them")):
        lines += ["", heading]
        for one in listed:
            if one["chosen"] == chosen:
                lines += [
                    f"  {one['mode']:{width}}  {one['meaning']}",
                    f"  {'':{width}}  rows: {one['rows']}",
                ]
    return "\n".join(lines)


def _json(rows: Sequence[tuple[OpSpec, Planned]], on: dict[str, set[str]]) -> str:
    import json  # noqa: PLC0415 - the table starts faster without

    listed = [
        {
            "id": planned.id,
            "family": spec.family,
            "spec": spec.name,
            "op": spec.op_name,
            "case": planned.case,
            "direction": planned.direction,
            "dtype": planned.dtype,
            "devices": [device for device, ids in on.items() if planned.id in ids],
            "provokes": spec.cases[planned.case].provokes,
            "why": spec.why,
        }
        for spec, planned in rows
    ]
    return json.dumps(listed, indent=2)


def _table(rows: Sequence[tuple[OpSpec, Planned]], on: dict[str, set[str]]) -> str:
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
        dtypes = ", ".join(dict.fromkeys(row.dtype + _only(row, on) for row in planned_rows))
        provokes = spec.cases[case].provokes or ("a sample" if databases([spec.source]) else "innocent")
        lines.append(f"    {case:{width}}  {directions}; {dtypes}; {provokes}")
    specs = len({name for _, name, _ in cases})
    cpu, cuda = (sum(planned.id in on[device] for _, planned in rows) for device in ("cpu", "cuda"))
    lines += [
        "",
        f"{several(specs, 'op')}, {several(len(cases), 'case')}, {several(cuda, 'row')} on CUDA, {cpu} on the CPU",
    ]
    return "\n".join(lines[1:])


def _only(row: Planned, on: dict[str, set[str]]) -> str:
    """Return the device in brackets where a row runs on one alone."""
    devices = [device for device, ids in on.items() if row.id in ids]
    return f" ({devices[0]})" if len(devices) == 1 else ""
