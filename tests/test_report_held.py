"""What a run measured, held against what the files of its build let expect."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from reports.builds.links import Link, Place
from reports.matrix.expected import ExpectedText, disagreement
from scanner.census.record import encode, read_census
from scanner.verdicts.findings import Finding
from tests.census_builds import detmatrix
from tests.compared import run_of, shows

REPORTS = Path(__file__).parent.parent / "reports"
RUN = REPORTS / "runs" / "torch-2.13.0-cpu.jsonl.gz"
CENSUS = REPORTS / "censuses" / "torch-2.13.0-cpu.json.gz"
ALERT = Place("alert", "libtorch_cuda.so", "put_kernel", "put_", "always")


def _said(way: str | None, *links: Link) -> ExpectedText:
    return ExpectedText(
        documented="not listed",
        binary="",
        trace="told",
        engines="",
        nondeterministic_engines=(),
        way=way,
        alerts=links,
        flags=(),
    )


def _link(alert: str | None = "put_", path: str = "always", overload: str | None = "aten::put_") -> Link:
    return Link(replace(ALERT, alert=alert, path=path), "function" if overload else "words", overload)


@pytest.mark.parametrize(
    ("finding", "said", "expected"),
    [
        # It raised: as expected, by another name, where none was expected, where nothing is known.
        ("raises", _said("alerts", _link("scatter_add_kernel")), None),
        ("raises", _said("alerts", _link()), "raised scatter_add_kernel; expected put_"),
        ("raises", _said("reroutes"), "raised scatter_add_kernel; expected no alert (told)"),
        ("raises", _said("met"), None),
        ("raises", _said(None), None),
        ("raises", _said("stopped"), None),
        # It ran to its end: an alert on all ways, on some, or by words alone.
        ("deterministic", _said("alerts", _link()), "ran to its end; expected put_ (told)"),
        ("silent", _said("met"), "ran to its end; expected an alert (told)"),
        ("deterministic", _said("alerts", _link(path="some")), None),
        ("deterministic", _said(None, _link(overload=None)), None),
        ("deterministic", _said("reroutes"), None),
    ],
)
def test_disagreement(finding: Finding, said: ExpectedText, expected: str | None) -> None:
    """An alert where none is expected, another one, or none where one is certain; nothing of what is not known."""
    (row,) = run_of(shows(finding)).rows

    assert disagreement(row, said) == expected


def test_the_recorded_run_and_its_census_agree() -> None:
    """Every alert that the CPU run met is one that its row leads to, or its row leads to none that is known."""
    code, out, _ = detmatrix("report", RUN, "--census", CENSUS, "--all")

    assert code == 0
    assert "No measurement contradicts what these files predict." in out


def test_a_census_that_is_wrong_is_caught(tmp_path: Path) -> None:
    """With another caller at the site of put_, the rows of put_ that raised are listed, in Markdown and JSON."""
    census = read_census(CENSUS)
    alerts = tuple(replace(one, alert="wrong") if one.alert == "put_" else one for one in census.alerts)
    path = tmp_path / "wrong.json"
    path.write_text(encode(replace(census, alerts=alerts)), encoding="utf-8")
    _, out, _ = detmatrix("report", RUN, "--census", path, "--all")
    _, data, _ = detmatrix(
        "report", RUN, "--census", path, "--format", "json", "--rows", "torch.Tensor.put_:*"
    )

    assert "Rows whose measurement contradicts what the files of their build predict" in out
    assert "raised put\\_; expected wrong" in out
    fields = {row["case"]: row["expected"][0]["disagreement"] for row in json.loads(data)["rows"]}
    assert fields["overwrite"] == "raised put_; expected wrong"
    assert fields["accumulate"] is None
