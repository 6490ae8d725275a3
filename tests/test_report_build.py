"""Reports with what a census and a trace say beside each row: expected, and never in the place of what was measured."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from selenium import webdriver

from scanner.census.record import encode, read_census
from scanner.observations.trace.files import read_trace, trace_text
from tests.browser import CHROMEDRIVER, CHROMIUM, Page, start
from tests.census_builds import detmatrix
from tests.page_data import block, told

REPORTS = Path(__file__).parent.parent / "reports"
RUN = REPORTS / "runs" / "torch-2.15.0-cpu.jsonl.gz"
CENSUS = REPORTS / "censuses" / "torch-2.15.0-cu132.json.gz"
TRACE = REPORTS / "traces" / "torch-2.15.0-cuda.json.gz"
OLDER_RUN = REPORTS / "runs" / "torch-2.13.0-cpu.jsonl.gz"
OLDER_CENSUS = REPORTS / "censuses" / "torch-2.13.0-cu130.json.gz"
CPU_CENSUS = REPORTS / "censuses" / "torch-2.13.0-cpu.json.gz"
FILES = ("--census", CENSUS, "--trace", TRACE)
POOL = ("--rows", "torch.nn.MaxPool3d:*")
PUT = ("--rows", "torch.Tensor.put_:overwrite:*")
HOSTILE = "at::native::<img src=x onerror=hacked()>|`x`\x1b[2J{{ 7 * 7 }}"


def report(*arguments: str | Path) -> str:
    """Return what the command prints, which ends well and without a message."""
    code, out, err = detmatrix("report", *arguments)

    assert code == 0
    assert not err or err.startswith("Wrote ")
    return out


def rows(*arguments: str | Path) -> list[dict[str, Any]]:
    """Return the rows of a JSON report."""
    found: list[dict[str, Any]] = json.loads(report(*arguments, "--format", "json"))["rows"]
    return found


def said(lines: list[dict[str, Any]], case: str, direction: str) -> dict[str, Any]:
    """Return what the only build says of one row."""
    (one,) = [row for row in lines if (row["case"], row["direction"]) == (case, direction)]
    (build,) = one["expected"]
    assert isinstance(build, dict)
    return build


@pytest.fixture(scope="module")
def pool() -> list[dict[str, Any]]:
    """The rows of one op, beside a census and a trace of CUDA."""
    return rows(RUN, *FILES, *POOL)


def test_every_row_has_both_columns() -> None:
    """A CPU run beside files about CUDA: every row is told of CUDA, and nothing of that is called measured."""
    text = rows(RUN, *FILES)

    assert len(text) == 677
    assert all(one["binary"] and one["trace"] for row in text for one in row["expected"])
    assert {(1, "about CUDA", "not measured")} == {
        (len(row["expected"]), one["about"], one["measured"]) for row in text for one in row["expected"]
    }


def test_a_row_says_what_its_case_reaches(pool: list[dict[str, Any]]) -> None:
    """The backward of MaxPool3d leads to its alert, and where it returns indices the flag reroutes it."""
    alerting, rerouted = (said(pool, case, "backward") for case in ("overlapping", "overlapping_indices"))

    assert "max_pool3d_with_indices_backward_cuda (always)" in alerting["binary"]
    assert (alerting["documented"], alerting["way"]) == ("acts", "alerts")
    assert alerting["trace"].startswith("reaches aten::max_pool3d_with_indices_backward")
    assert {"function"} <= {link["by"] for link in alerting["alerts"]}
    assert "max_pool3d_with_indices_backward_cuda" not in rerouted["binary"]


def test_a_row_of_a_convolution_names_the_engine() -> None:
    """Of the cuDNN that the build brings: layers are like the row's case, and of its dtype and its layout."""
    build = ("--rows", "torch.nn.Conv2d:*", "--rows", "torch.nn.ConvTranspose2d:dense:*", *FILES)
    lines = {(row["spec"], row["case"]): row["expected"][0]["engines"] for row in rows(RUN, *build)}

    weight, data, last, bias = (
        lines["torch.nn.Conv2d", case]
        for case in ("weight_grad", "input_grad", "channels_last_input_grad", "bias_grad")
    )
    assert weight.startswith(
        "cuDNN 9.26.0: weight gradient (2-D): engine 20 noted nondeterministic, tried first for recorded layers like it: V100 "
    )
    assert weight.endswith("; not measured, and accepted is not runnable")
    assert (data != last, bias) == (True, None)
    assert "data gradient (2-D): engine 25" in data
    assert "forward (2-D): no engine" in lines["torch.nn.Conv2d", "dense"]
    assert lines["torch.nn.Conv2d", "depthwise_weight_grad"] != weight
    # What cuDNN runs for the forward of a transposed convolution.
    assert "data gradient (2-D): engine 25" in lines["torch.nn.ConvTranspose2d", "dense"]
    assert "engine 20 noted nondeterministic" in report(RUN, *build, "--format", "md", "--all")
    # And the op beside its rows.
    (told,) = [
        cell["backward"]["off"]["text"]
        for op in json.loads(report(RUN, *build, "--format", "json"))["ops"]
        if op["name"] == "torch.nn.Conv2d"
        for cell in op["cells"]
        if cell is not None and cell["backward"]["off"].get("expected")
    ]
    assert told == (
        "not measured; expected of cuDNN, as noted nondeterministic: data gradient engine 25, weight gradient engine 20"
    )


def test_what_is_said_rests_on_the_files(tmp_path: Path) -> None:
    """Without the call site no alert is linked; without the traced row its case is not in the trace."""
    census, trace = read_census(CENSUS), read_trace(TRACE)
    less = replace(
        census, alerts=tuple(one for one in census.alerts if "max_pool3d" not in (one.function or ""))
    )
    (tmp_path / "c.json").write_text(encode(less))
    kept = tuple(one for one in trace.rows if one.row.spec != "torch.nn.MaxPool3d")
    (tmp_path / "t.json").write_text(trace_text(replace(trace, rows=kept)))
    without = rows(RUN, "--census", tmp_path / "c.json", "--trace", TRACE, *POOL)
    untraced = rows(RUN, "--census", CENSUS, "--trace", tmp_path / "t.json", *POOL)
    alone = rows(RUN, "--trace", TRACE, *POOL)

    assert said(without, "overlapping", "backward")["binary"].startswith("no alert in build that is linked")
    assert said(untraced, "overlapping", "backward")["trace"] == "not in the trace"
    assert {"words"} == {link["by"] for link in said(untraced, "overlapping", "backward")["alerts"]}
    assert said(alone, "overlapping", "backward")["binary"] == "no census"
    assert said(rows(RUN, "--census", CENSUS, *POOL), "overlapping", "backward")["trace"] == "no trace"


def test_an_alert_behind_what_the_trace_did_not_enter_is_told_by_its_words() -> None:
    """The trace ends at the backward part of EmbeddingBag, before the kernel; that memory is filled there is no other answer."""
    found = rows(
        RUN, "--census", CENSUS, "--trace", TRACE, "--rows", "torch.nn.EmbeddingBag:*:backward:float32"
    )
    alerts = {case: said(found, case, "backward")["binary"].partition(";")[0] for case in ("max", "sum")}

    assert alerts == {
        "max": "alert in build: embedding_bag_backward_cuda_max (always)",
        "sum": "no alert in build that is linked",
    }


def test_a_census_of_the_device_that_ran_stands_beside_the_finding() -> None:
    """A census of the CPU is about the row itself; one of CUDA from the same sources is not."""
    files = ("--census", CPU_CENSUS, "--census", OLDER_CENSUS)
    text = json.loads(report(OLDER_RUN, *files, *PUT, "--format", "json"))
    own, other = text["rows"][0]["expected"]

    assert (own["device"], own["about"], own["measured"]) == ("cpu", None, "raises")
    assert "alert in build: put_" in own["binary"]
    assert (other["device"], other["about"], other["measured"]) == ("cuda", "about CUDA", "not measured")
    assert "made from the same sources" in text["builds"][1]["note"]


@pytest.mark.parametrize("form", ["md", "csv", "json"])
def test_what_was_measured_stays_as_it_is(form: str) -> None:
    """The report without files is part of the one with them, and says nothing of builds."""
    whole = ["--all"] * (form == "md")
    alone, text = (report(RUN, *PUT, "--format", form, *whole, *files) for files in ((), FILES))

    assert "xpected_" not in alone
    assert "binary" not in alone
    if form == "md":
        # An op has a column for what is expected.
        alone, text = (message[message.index("Run file") :] for message in (alone, text))
        before, _, after = text.partition("## Expected of CUDA, not measured\n")
        _, _, after = after.partition("\n## ")
        assert alone.startswith(before)
        assert ("## " + after).startswith(alone.removeprefix(before))
    elif form == "csv":
        names = next(csv.reader(io.StringIO(text)))
        assert names[-4:] == [
            f"expected_cuda_{name}" for name in ("documented", "binary", "engines", "trace")
        ]
        # These rows call no cuDNN.
        assert {line[-2] for line in csv.reader(io.StringIO(text))} == {"expected_cuda_engines", "NA"}
        cut = [line[:-4] for line in csv.reader(io.StringIO(text))]
        assert cut == list(csv.reader(io.StringIO(alone)))
    else:
        added = json.loads(text)
        del added["builds"], added["expected"]
        for row in added["rows"]:
            del row["expected"]
        # What is expected of an op has a column of its own, and decides nothing.
        for op in added["ops"]:
            assert [cell["expected"] for cell in op["cells"]] == [False, True]
            assert {mark["expected"] for way in ("forward",) for mark in (op["cells"].pop()[way]["on"],)} == {
                True
            }
        assert added["columns"].pop()["expected"]
        assert added == json.loads(alone)


def test_an_op_has_a_column_of_what_is_expected() -> None:
    """It stands beside what was measured, says so, and decides neither finding nor action."""
    code, out, _ = detmatrix("report", RUN, *FILES, *POOL, "--format", "text")

    assert code == 0
    assert out.startswith("102 ops, 677 rows · torch 2.15.0 CPU\n")
    assert ["OP", "CPU", "CUDA", "exp", "DOCS"] in [line.split() for line in out.splitlines()]
    assert "● MaxPool3d =/= =/=  ?/? ?/!" in out
    assert "expected: by a census or a trace of a build, never measured" in out
    # Of the rows that were asked for, not of the whole scan.
    assert "CUDA NOT MEASURED: 1 documented claim\n" in out


def test_each_file_goes_to_the_runs_of_its_build() -> None:
    """Of two runs the other one has no files, and its rows say so."""
    both = json.loads(report(OLDER_RUN, RUN, *FILES, *PUT, "--format", "json"))["runs"]
    table = list(csv.DictReader(io.StringIO(report(OLDER_RUN, RUN, *FILES, *PUT, "--format", "csv"))))
    page = report(OLDER_RUN, RUN, *FILES, *PUT, "--format", "html")

    assert ["builds" in one for one in both] == [False, True]
    assert {"NA"} == {row["expected_cuda_trace"] for row in table if row["run"] == OLDER_RUN.name}
    assert "NA" not in {row["expected_cuda_trace"] for row in table if row["run"] == RUN.name}
    without, with_ = (
        [row for op in block(page, "rows") for row in op[-1] if row[0] == run] for run in (0, 1)
    )
    assert len(without) == len(both[0]["rows"])
    assert {len(row) for row in without} == {len(with_[0]) - 1}


def test_names_of_a_build_are_no_markup(tmp_path: Path) -> None:
    """A census is of untrusted origin: its names hold in the table, in the page, and are no commands to a terminal."""
    census = read_census(CENSUS)
    alerts = tuple(
        replace(one, alert=HOSTILE) if one.alert == "max_pool3d_with_indices_backward_cuda" else one
        for one in census.alerts
    )
    (tmp_path / "evil.json").write_text(encode(replace(census, alerts=alerts)))
    files = ("--census", tmp_path / "evil.json", "--trace", TRACE)
    text, page = (report(RUN, *files, *POOL, "--format", form) for form in ("md", "html"))
    lines = [line for line in text.splitlines() if "onerror" in line]

    assert lines
    assert "\x1b" not in text
    assert {6} == {line.replace("\\|", "").count("|") for line in lines}
    assert "<img" not in text + page
    assert any("<img src=x" in one for one in told(page))


def test_a_block_names_the_files_it_was_made_of(tmp_path: Path) -> None:
    """An excerpt in a Markdown file has the table too, and its marker the options."""
    page = tmp_path / "page.md"
    page.write_text("<!-- detmatrix matrix:begin -->\n<!-- detmatrix matrix:end -->\n")
    report(RUN, *FILES, *POOL, "--all", "--into", page)
    text = page.read_text()

    assert "--census torch-2.15.0-cu132.json.gz --trace torch-2.15.0-cuda.json.gz" in text.splitlines()[0]
    assert "binary (expected)" in text
    assert detmatrix("report", RUN, *FILES, *POOL, "--all", "--into", page, "--check")[0] == 0


def test_the_largest_distance_stays_an_integer() -> None:
    """A column of integers with gaps holds numbers beyond 2**53 that no float is."""
    table = csv.DictReader(io.StringIO(report(RUN, "--rows", "torch.Tensor.resize_:*", "--format", "csv")))

    distances = {int(row["off_max_ulp"]) for row in table if row["off_max_ulp"] != "NA"}
    assert [one for one in distances if int(float(one)) != one]


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--census", TRACE], 3, "not a census"),
        (["--trace", CENSUS], 3, "not a trace file"),
        (["--census", "missing.json"], 3, "cannot be read"),
        (["--census", OLDER_CENSUS], 2, "is of torch 2.13.0+cu130"),
        (["--census", CENSUS, "--census", CENSUS], 2, "is there twice"),
        (["--census", CENSUS, "-o", CENSUS], 2, "choose another place with -o"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str | Path], code: int, text: str) -> None:
    """Each is told in one line, with its exit code."""
    ended, out, err = detmatrix("report", RUN, *arguments)

    assert (code, "", 1) == (ended, out, err.count("\n"))
    assert text in err


def test_a_damaged_census_is_one_line(tmp_path: Path) -> None:
    """One that was cut short, compressed or not."""
    (tmp_path / "cut.json.gz").write_bytes(CENSUS.read_bytes()[:5000])
    (tmp_path / "cut.json").write_text(encode(read_census(CPU_CENSUS))[:5000])
    for name in ("cut.json.gz", "cut.json"):
        code, out, err = detmatrix("report", RUN, "--census", tmp_path / name)

        assert (code, out, err.count("\n")) == (3, "", 1)


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    """Return the page of one family of ops, open in a browser."""
    if not (CHROMIUM.exists() and CHROMEDRIVER.exists()):
        pytest.skip(f"needs {CHROMIUM} and {CHROMEDRIVER} (Debian: chromium, chromium-driver)")
    path = tmp_path / "report.html"
    report(RUN, *FILES, "--rows", "torch.nn.MaxPool*", "--format", "html", "-o", path)
    driver: webdriver.Chrome = start(tmp_path / "profile")
    driver.get(path.as_uri())
    yield Page(driver, path.as_uri())
    driver.quit()


@pytest.mark.browser
def test_the_page_finds_rows_by_what_is_expected(page: Page) -> None:
    """Words of the columns are among those that the filter looks for; a panel tells the links."""
    page.one("#q").send_keys("max_pool3d_with_indices_backward_cuda")
    page.run("document.querySelector('#q').dispatchEvent(new Event('change'))")
    found = page.shown()
    page.unfold()[0].click()
    heads = [one.text for one in page.all(".grid > thead th")][-3:]
    panel = page.one(".panel").text

    assert heads == ["Documented", "Binary (expected)", "Trace (expected)"]
    assert [one.text for one in page.all(".of.expected")] == ["2.15.0 CUDA, expected"]
    backward = page.all("tbody.op:not([hidden]) > tr:first-child > .expected")[-1]
    assert backward.text == "?/!\nexpected"
    assert backward.value_of_css_property("outline-style") == "dashed"
    assert set(found) == {"MaxPool3d"}
    assert "Expected of CUDA, torch 2.15.0+cu132, about CUDA" in panel
    assert "by function through aten::max_pool3d_with_indices_backward" in panel
    assert page.run("return document.documentElement.scrollWidth <= innerWidth")
    assert not page.errors()
