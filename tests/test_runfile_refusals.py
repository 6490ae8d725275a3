"""Run files that are refused: values, lines and formats that cannot be, each told with its place."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from detmatrix.scanner.errors import RunFileError
from detmatrix.scanner.observations.merge import merge
from detmatrix.scanner.observations.records import FORMAT
from detmatrix.scanner.observations.runfile import read_run
from tests.conftest import ADVICE, refusal
from tests.large import write_shard


@pytest.mark.parametrize("groups", [False, True])
def test_rows_of_a_part_that_is_not_there(small: bytes, tmp_path: Path, *, groups: bool) -> None:
    """Reports look up the machine of a row, also in a file that names no groups of its plan."""

    def change(header: dict[str, Any]) -> None:
        row = header["planned"][-1]
        row["part"] = 5
        part = {name: header[name] for name in ("started", "environment")}
        header["parts"] = [{**part, "shard": 1, "file": 1, "workers": 1, "closing": None}]
        header["groups"] = {one["spec"]: 1 for one in header["planned"]} if groups else {}

    path = _changed(small, tmp_path / "run.jsonl", 1, change)

    assert "is of part 5, and there are 1 - at `$.planned`" in refusal(path)


def test_entries_of_another_shard(tmp_path: Path) -> None:
    """An entry without rows tells its shard by its name alone."""
    path = write_shard(tmp_path / "run.jsonl", 700, 1, 3)
    whole = path.read_bytes()
    groups = json.loads(whole.splitlines()[0])["groups"]

    for shard, expected in ((2, "is in shard 2 of the plan, not in 1"), (None, "is in no shard of the plan")):

        def change(entry: dict[str, Any], shard: int | None = shard) -> None:
            entry["rows"] = []
            entry["spec"] = next((name for name, of in groups.items() if of == shard), "elsewhere")

        _changed(whole, path, 2, change)
        assert expected in refusal(path)
        with pytest.raises(RunFileError, match=expected):
            merge([path])


def _changed(data: bytes, path: Path, number: int, change: Callable[[dict[str, Any]], object]) -> Path:
    """Write *data* with a change made to the record in line *number*."""
    records = [json.loads(line) for line in data.splitlines()]
    change(records[number - 1])
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


_GONE = object()


def _apply(record: dict[str, Any], change: dict[str, Any]) -> None:
    """Set fields named by their paths; take away those that are gone."""
    for path, value in change.items():
        *parents, name = path.split(".")
        place = record
        for parent in parents:
            place = place[parent]
        place[name] = value
        if value is _GONE:
            del place[name]


@pytest.mark.parametrize(
    ("number", "change", "expected"),
    [
        (1, {"settings.runs": 0}, "line 1: Expected `int` >= 1 - at `$.settings.runs`"),
        (1, {"settings.seed": -1}, "line 1: Expected `int` >= 0 - at `$.settings.seed`"),
        (1, {"settings.timeout": 0}, "line 1: Expected `float` > 0.0 - at `$.settings.timeout`"),
        (1, {"settings.processes": True}, "line 1: Expected `int`, got `bool` - at `$.settings.processes`"),
        (1, {"settings.modes": ["off", "sideways"]},
         "line 1: Invalid enum value 'sideways' - at `$.settings.modes[1]`"),
        (1, {"environment.load": ["low"]}, "line 1: Expected `float`, got `str` - at `$.environment.load[0]`"),
        (1, {"environment.variables": {"off": {"A": 1}}},
         "line 1: Expected `str`, got `int` - at `$.environment.variables[...][...]`"),
        (1, {"planned": {}}, "line 1: Expected `array`, got `object` - at `$.planned`"),
        (1, {"format": True}, "line 1: Expected `int`, got `bool` - at `$.format`"),
        (1, {"format": "1"}, "line 1: Expected `int`, got `str` - at `$.format`"),
        (2, {"executions": -1}, "line 2: Expected `int` >= 0 - at `$.executions`"),
        (2, {"executions": True}, "line 2: Expected `int`, got `bool` - at `$.executions`"),
        (2, {"executions": 1.5}, "line 2: Expected `int`, got `float` - at `$.executions`"),
        (2, {"mode": "warn"}, "line 2: Invalid enum value 'warn' - at `$.mode`"),
        (2, {"outcome": "fine"}, "line 2: Invalid enum value 'fine' - at `$.outcome`"),
        (2, {"direction": None}, "line 2: Expected `str`, got `null` - at `$.direction`"),
        (2, {"digests": {"a": 0}}, "line 2: Expected `int` >= 1 - at `$.digests[...]`"),
        (2, {"seconds": -0.5}, "line 2: Expected `float` >= 0.0 - at `$.seconds`"),
        (2, {"seeded": 1}, "line 2: Expected `bool`, got `int` - at `$.seeded`"),
        (2, {"verdict": "deterministic"}, "line 2: Object contains unknown field `verdict`"),
        (2, {"kind": "remark"}, "line 2: Invalid value 'remark' - at `$.kind`"),
        (5, {"observations": "4"}, "line 5: Expected `int`, got `str` - at `$.observations`"),
        (5, {"distrust": "no"}, "line 5: Expected `array`, got `str` - at `$.distrust`"),
        *((number, {name: _GONE}, f"line {number}: Object missing required field `{name}`") for number, name in (
            (1, "format"), (1, "environment"), (2, "outcome"), (3, "kind"), (5, "load"))),
    ],
)  # fmt: skip
def test_wrong_values_are_told_with_their_path(
    small: bytes, tmp_path: Path, number: int, change: dict[str, Any], expected: str
) -> None:
    """The line, the field and what was expected of it, and what to do."""
    path = _changed(small, tmp_path / "run.jsonl", number, lambda record: _apply(record, change))

    advice = "restore the file, or cut it before this line and scan --resume"
    assert refusal(path) == f"{expected}; {advice}"


_ID = "torch.cumsum:collisions:forward:float32"
_SEEN = f"line 2: the observation of {_ID}"


@pytest.mark.parametrize(
    ("number", "change", "expected"),
    [
        (1, {"format": FORMAT + 1, "settings": "other"},
         (f"written in run file format {FORMAT + 1}, this detmatrix reads up to {FORMAT}; upgrade detmatrix to read it")),
        *((1, {"format": number}, f"line 1: no such run file format: {number} - at `$.format`") for number in (0, -1)),
        (1, {"settings.modes": ["off"]}, (f"line 4: the observation of {_ID} (process 0) was never planned; "
         "restore the file")),
        (2, {"spec": "torch.neg"}, ("line 2: the observation of torch.neg:collisions:forward:float32 (process 0) "
         "was never planned; restore the file")),
        *((2, {"process": number}, f"{_SEEN} (process {number}) was never planned; restore the file")
          for number in (3, 10**15)),
        *((2, {"executions": executions, "digests": digests},
           (f"{_SEEN} counts {executions} executions but {sum(digests.values())} digests - at `$.digests`; "
            "restore the file")) for executions, digests in ((49, {"a": 50}), (50, {}), (0, {}))),
        (2, {"executions": 52, "digests": {"a": 52}},
         f"{_SEEN} counts 52 executions, the scan makes 50 - at `$.executions`; restore the file"),
        *((2, {"first_differing": number}, (f"{_SEEN} names execution {number} of 50 as the first that differed - at "
           "`$.first_differing`; restore the file")) for number in (0, 50)),
        (2, {"forward_differing": 50}, (f"{_SEEN} counts 50 differing of 50 executions, the first included - at "
         "`$.forward_differing`; restore the file")),
        (2, {"outputs": [{"name": "output", "shape": [1], "dtype": "float32", "differing": 50}]},
         (f"{_SEEN} counts 50 differing of 50 executions, the first included - at `$.outputs[0].differing`; "
          "restore the file")),
        (2, {"outcome": "invalid", "executions": 0, "digests": {"a": 1}},
         f"{_SEEN} counts 0 executions but 1 digests - at `$.digests`; restore the file"),
        (2, {"outcome": "invalid", "executions": 0, "digests": {}, "forward_differing": 1},
         (f"{_SEEN} counts 1 differing of 0 executions, the first included - at `$.forward_differing`; "
          "restore the file")),
    ],
)  # fmt: skip
def test_records_that_cannot_be_are_refused(
    small: bytes, tmp_path: Path, number: int, change: dict[str, Any], expected: str
) -> None:
    """A later format says which it has, whatever else is new; an observation belongs to what was planned, and adds up."""
    assert (
        refusal(_changed(small, tmp_path / "run.jsonl", number, lambda one: _apply(one, change))) == expected
    )


@pytest.mark.parametrize(
    ("number", "content", "expected"),
    [
        (2, b"", "line 2: Input data was truncated"),
        (2, b"{", "line 2: Input data was truncated"),
        (2, b"null", "line 2: Expected `object`, got `null`"),
        (2, b"[" * 100_000, "line 2: Expected `object`, got `array`"),
        (2, b'{"kind":"closing","seconds":1e999}', "line 2: Number out of range - at `$.seconds`"),
        (2, b'{"kind":"closing","seconds":NaN}', "line 2: JSON is malformed: invalid character (byte 28)"),
        (2, b'{"kind":"closing\xff"}', "line 2: 'utf-8' codec can't decode byte 0xff"),
        (2, b'{"load":' + b"[" * 100_000, "line 2: maximum recursion depth exceeded"),
    ],
    ids=["blank", "cut", "null", "nested", "infinite", "NaN", "bytes", "deep"],
)
def test_lines_that_are_no_record_are_refused(
    small: bytes, tmp_path: Path, number: int, content: bytes, expected: str
) -> None:
    """Whatever stands in a line, the line is named."""
    broken = small.split(b"\n")
    broken[number - 1] = content
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"\n".join(broken))

    assert refusal(path).startswith(expected)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "no whole line in it"),
        (b"{}", "no whole line in it"),
        (b"\n", "no header line"),
        (b"{}\n", "no header line"),
        (b"[1, 2]\n", "no header line"),
        (b'{"kind": 1}\n', "no header line"),
        (b'{"kind": "closing"}\n', "no header line"),
        (b'{\n  "rows": []\n}\n', "no header line"),
        (b"spec,case\ntorch.cumsum,small\n", "no header line"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "no header line"),
        (b'\xef\xbb\xbf{"kind": "header"}\n', "no header line"),
        (b'{"x":' + b"[" * 100_000 + b"\n", "no header line"),
        (b'{"kind":"ops","format":1}\n', "it is a record of a program; detmatrix locate --diff reads it"),
        (gzip.compress(b'{"kind": "cudnn",\n"cells": []}'), "it is a table of cuDNN's engines; detmatrix cudnn --read reads it"),
    ],
    ids=["empty", "short", "blank", "object", "array", "number", "closing", "report", "csv", "png", "bom", "deep", "record", "table"],
)  # fmt: skip
def test_foreign_files_are_refused(tmp_path: Path, content: bytes, text: str) -> None:
    """What scan did not write is no run file."""
    path = tmp_path / "foreign"
    path.write_bytes(content)

    assert refusal(path) == f"not a detmatrix run file ({text}); {ADVICE}"


def test_unreadable_places_are_refused(tmp_path: Path) -> None:
    """A folder, a name without a file, a path below a file, a name too long, and a packed file that is damaged."""
    below = tmp_path / "file"
    below.write_bytes(b"\x1f\x8bplain text")

    assert refusal(tmp_path) == f"cannot be read (Is a directory); {ADVICE}"
    assert refusal(tmp_path / "none") == f"cannot be read (No such file or directory); {ADVICE}"
    assert refusal(below / "x") == f"cannot be read (Not a directory); {ADVICE}"
    assert refusal(tmp_path / ("x" * 300)) == f"cannot be read (File name too long); {ADVICE}"
    assert refusal(below) == f"cannot be read (Unknown compression method); {ADVICE}"


# Whole lines in the wrong place


def _rearranged(small: bytes, tmp_path: Path, *numbers: int) -> Path:
    """Write the lines of a run in another order."""
    old = small.splitlines(keepends=True)
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"".join(old[number - 1] for number in numbers))
    return path


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ((2, 3, 5), f"not a detmatrix run file (no header line); {ADVICE}"),
        ((1, 2, 2), f"line 3: the observation of {_ID} stands twice (first in line 2); remove one of them"),
        ((1, 2, 1), "line 3: header after the header; two runs in one file? Split it at this line"),
        ((1, 2, 3, 4, 5, 1),
         "line 6: header after the closing line; two runs in one file? Split it at this line"),
        ((1, 2, 3, 4, 5, 2),
         "line 6: observation after the closing line; two runs in one file? Split it at this line"),
        ((1, 2, 3, 4, 5, 5),
         "line 6: closing after the closing line; two runs in one file? Split it at this line"),
        ((1, 2, 4, 5), ("line 4: the scan closed with 3 observations, the file holds 2 - at `$.observations`; "
         "restore the file")),
    ],
)  # fmt: skip
def test_lines_in_the_wrong_place_are_refused(
    small: bytes, tmp_path: Path, numbers: tuple[int, ...], expected: str
) -> None:
    """Lines that are whole but missing, double or in a wrong order are told with their number."""
    assert refusal(_rearranged(small, tmp_path, *numbers)) == expected


def test_order_of_observations_is_free(small: bytes, tmp_path: Path) -> None:
    """A resumed scan may have written them in another order."""
    assert len(read_run(_rearranged(small, tmp_path, 1, 4, 3, 2, 5)).observations) == 3
