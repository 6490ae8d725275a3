"""Nothing that a run file says becomes code of the script that reproduces a row: whoever runs it trusts the script."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from detmatrix.scanner.errors import DetmatrixError, UsageError
from detmatrix.scanner.observations.records import Group
from detmatrix.scanner.observations.runfile import read_run
from detmatrix.scanner.repro.script import script
from detmatrix.scanner.verdicts.findings import matrix
from tests.conftest import lines, refusal
from tests.mutants import INPUT_SOURCE
from tests.runs import ENVIRONMENT, SETTINGS, drifting, ran, row, stable, write_run

# Each begins where a value could end; the last one speaks to the reader of Python before there is any code.
PAYLOADS = (
    "threads=1)\ncanary()\n#",
    "1\rcanary()\r#",
    '"), canary(), ("',
    "'), canary(), ('",
    "x\\",
    "coding: utf-7 +AAo-canary()+AAo-",
    "vim: set fileencoding=utf-7 : +AAo-canary()",
    "\0",
    "\u2028canary()",
)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Return the lines of a run on a GPU whose row needs a perturbation and whose scan set variables."""
    planned = row("torch.cumsum", device="cuda:0")
    groups = (
        Group(perturbation="quiet", executions=25, differing=0),
        Group(perturbation="stress", executions=25, differing=2),
    )
    variables = {"off": {"OMP_NUM_THREADS": "2"}, "on": {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}}
    path = write_run(
        tmp_path_factory.mktemp("records") / "run.jsonl",
        [(planned, [*ran(planned, "off", *drifting(3), groups=groups), *ran(planned, "on", *stable())])],
        environment=replace(ENVIRONMENT, gpu="Example GPU", cuda="13.0", variables=variables),
        settings=replace(SETTINGS, device="cuda:0"),
    )
    return lines(path)


def _written(path: Path) -> str:
    run = read_run(path)
    (found,) = matrix(run.header, run.observations, closed=True)
    return script(INPUT_SOURCE, found, run.header)


def _places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where strings stand in nested records, names of members too."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        if isinstance(key, str):
            yield (*place, key, None)
        yield from _places(item, (*place, key))
    if isinstance(value, str):
        yield place


def _changed(records: list[dict[str, Any]], place: tuple[Any, ...], payload: str) -> str:
    """Return a run file in which one string, or the name of one member, is another."""
    copy: Any = json.loads(json.dumps(records))
    *outer, last = place[:-1] if place[-1] is None else place
    inner = copy
    for key in outer:
        inner = inner[key]
    if place[-1] is None:
        inner[payload] = inner.pop(last)
    else:
        inner[last] = payload
    return "".join(json.dumps(record) + "\n" for record in copy)


def test_no_text_of_a_run_file_becomes_code(records: list[dict[str, Any]], tmp_path: Path) -> None:
    """Whatever stands in the place of any string is refused, or stands in a comment or between quotes."""
    path = tmp_path / "run.jsonl"
    written = refused = 0
    for number, place in enumerate(_places(records)):
        # A third of them for each place: all for all take seconds.
        for payload in PAYLOADS[number % 3 :: 3]:
            path.write_text(_changed(records, place, payload), encoding="utf-8")
            try:
                text = _written(path)
            except DetmatrixError:
                refused += 1
                continue
            written += 1
            # As Python reads a file: its first lines may name an encoding.
            names = {node.id for node in ast.walk(ast.parse(text.encode())) if isinstance(node, ast.Name)}
            assert "canary" not in names, (place, payload)

    assert written > 100
    assert refused > 100


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("perturbation", "threads=1)\nprint('mine')", "at `$.groups[0].perturbation`"),
        ("perturbation", "threads=0", "at `$.groups[0].perturbation`"),
        ("perturbation", "unheard_of", "at `$.groups[0].perturbation`"),
        ("device", "tpu:0", "at `$.settings.device`"),
        ("device", "cuda:" + "9" * 5000, "at `$.settings.device`"),
        ("dtype", "float" + "9" * 5000, "at `$.outputs[0].dtype`"),
        ("dtype", "float32)\n", "at `$.outputs[0].dtype`"),
        ("shape", -4, "at `$.outputs[0].shape[0]`"),
    ],
)
def test_names_that_there_are_not_are_refused(
    records: list[dict[str, Any]], tmp_path: Path, field: str, value: Any, text: str
) -> None:
    """Perturbations, devices and dtypes are of a kind; others are told with their place when the file is read."""
    header, observation, *others = json.loads(json.dumps(records))
    if field == "device":
        header["settings"]["device"] = value
    elif field == "perturbation":
        observation["groups"][0]["perturbation"] = value
    else:
        observation["outputs"][0][field] = [value] if field == "shape" else value
    path = tmp_path / "run.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in (header, observation, *others)))

    assert text in refusal(path)


def test_variables_of_a_script_are_those_of_a_table(records: list[dict[str, Any]], tmp_path: Path) -> None:
    """What would load a library, or find another Python, is not set, neither for the script nor for its children."""
    path = tmp_path / "run.jsonl"
    copy = json.loads(json.dumps(records))
    variables = copy[0]["environment"]["variables"]
    for mode in ("off", "on"):
        variables[mode] |= {"OMP_NUM_THREADS": "3", "OMP_PROC_BIND": "true"}
    variables["on"] |= {
        "LD_PRELOAD": "/tmp/evil.so",
        "PYTHONPATH": "/tmp",
        "OMP_TOOL_LIBRARIES": "/tmp/evil.so",
    }
    variables["off"] |= {"OMP_TOOL_LIBRARIES": "/tmp/evil.so", "MKL_THREADING_LAYER": "/tmp/evil.so"}
    path.write_text("".join(json.dumps(one) + "\n" for one in copy))

    text = _written(path)

    assert "evil" not in text
    assert "PYTHONPATH" not in text
    # Set as it was, unless whoever runs the script has set it.
    assert "os.environ.setdefault('OMP_NUM_THREADS', '3')" in text
    assert "os.environ.setdefault('OMP_PROC_BIND', 'true')" in text
    # A process that has loaded torch is bound to one core, and so is all that it starts.
    assert "import torch" not in text.partition("    sys.exit()")[0]
    assert "{'CUBLAS_WORKSPACE_CONFIG': ':4096:8'}" in text

    variables["off"]["OMP_NUM_THREADS"] = "3')\nprint('mine"
    path.write_text("".join(json.dumps(one) + "\n" for one in copy))
    with pytest.raises(UsageError, match="as the value of a variable that steers threads"):
        _written(path)
