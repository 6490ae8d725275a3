"""``detmatrix list``: every row once, by pattern, as a table and as JSON."""

from __future__ import annotations

import json

from detmatrix.scanner.modes import MODE_TABLE
from tests.commands import Command


def test_list_json_holds_every_row_once(detmatrix: Command) -> None:
    """Each row has an id of its own, says where it runs, and a pattern of that id selects it."""
    listed = json.loads(detmatrix("list", "--format", "json").stdout)

    ids = [row["id"] for row in listed]
    assert len(set(ids)) == len(ids) > 100
    assert {tuple(row["devices"]) for row in listed} == {("cpu", "cuda"), ("cuda",), ("cpu",)}
    for row in listed:
        assert row["id"] == ":".join(row[name] for name in ("spec", "case", "direction", "dtype"))
        assert row["op"].startswith(("torch.", "opspecs."))
        assert row["why"]
    again = json.loads(detmatrix("list", ids[-1], "--format", "json").stdout)
    assert again == listed[-1:]


def test_modes_are_listed_with_what_they_set_and_their_rows(detmatrix: Command) -> None:
    """All of them, as a table and as JSON; scan --help leads there, and claims of no scan that it has them all."""
    table = detmatrix("list", "--modes").stdout
    listed = json.loads(detmatrix("list", "--modes", "--format", "json").stdout)
    text = " ".join(detmatrix("scan", "--help").stdout.split())

    assert [one["mode"] for one in listed] == [mode for mode, it in MODE_TABLE.items() if not it.retired]
    named = table.index("In scans whose --modes names them")
    for one in listed:
        place = table.index(f"  {one['mode']} ")
        assert (place > named) == one["chosen"]
        assert table[place:].split("rows: ", 1)[0].split(maxsplit=1)[1].strip() == one["meaning"]
        assert f"rows: {one['rows']}\n" in table[place:]
    rows = {one["mode"]: one["rows"] for one in listed}
    assert rows["cudnn_both"] == "those of convolutions, RNNs, CTC loss and batch norm; on CUDA"
    assert rows["compile_on"].endswith("; torch 2.1 or newer")
    assert "beside off and on (every scan has those two): backward_only, " in text
    assert "detmatrix list --modes says what each of them is" in text
