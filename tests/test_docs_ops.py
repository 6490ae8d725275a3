"""Op by op: what a build lets expect, and the lists do not say; nothing of it needs a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from reports.builds.expectations import BuildExpectations, expect
from reports.builds.ops import ExpectedOp
from reports.builds.traced import Reader
from scanner.census.record import Census, read_census
from scanner.claims.matching import names_of
from scanner.claims.tables import documented_claims
from scanner.observations.trace.files import read_trace
from scanner.observations.trace.records import TraceFile
from tests.census_builds import detmatrix

REPORTS = Path(__file__).parent.parent / "reports"
CENSUS = REPORTS / "censuses" / "torch-2.15.0-cu132.json.gz"
TRACE = REPORTS / "traces" / "torch-2.15.0-cuda.json.gz"
OPS = frozenset(
    {
        "torch.Tensor.index_reduce",
        "torch.Tensor.resize_",
        "torch.Tensor.scatter",
        "torch.empty",
        "torch.histc",
        "torch.mode",
        "torch.nanmedian",
        "torch.nn.AdaptiveAvgPool1d",
        "torch.nn.AvgPool3d",
        "torch.nn.EmbeddingBag",
        "torch.nn.NLLLoss",
        "torch.nn.ReflectionPad2d",
        "torch.nn.functional.interpolate",
        "torch.take",
    }
)


@pytest.fixture(scope="module")
def census() -> Census:
    """The census of a CUDA build."""
    return read_census(CENSUS)


@pytest.fixture(scope="module")
def trace() -> TraceFile:
    """The traced cases of some ops of the same build."""
    whole = read_trace(TRACE)
    return replace(whole, rows=tuple(row for row in whole.rows if names_of(row.row)[0] in OPS))


@pytest.fixture(scope="module")
def build(census: Census, trace: TraceFile) -> BuildExpectations:
    """What both say."""
    return expect(documented_claims("2.15"), ("census", census), ("trace", trace), "cuda")


def of(build: BuildExpectations, op: str, direction: str) -> ExpectedOp:
    """Return what is said of an op in one direction."""
    (one,) = [one for one in build.ops if (one.op, one.direction) == (op, direction)]
    return one


@pytest.mark.parametrize(
    ("op", "direction", "alert"),
    [
        ("torch.take", "backward", "put_"),
        ("torch.nanmedian", "forward", "median CUDA with indices output"),
        ("torch.nn.AdaptiveAvgPool1d", "backward", "adaptive_avg_pool2d_backward_cuda"),
        ("torch.nn.functional.interpolate", "backward", "adaptive_avg_pool2d_backward_cuda"),
        ("torch.Tensor.index_reduce", "forward", "index_reduce_cuda"),
    ],
)
def test_what_is_expected_to_raise_and_in_no_list(
    build: BuildExpectations, op: str, direction: str, alert: str
) -> None:
    """Each op and direction is told with the alert, whether or not another of its cases is listed."""
    one = of(build, op, direction)

    assert "unlisted_raise" in one.kinds
    assert alert in one.alerts
    # The mode "area" is in no list; what is listed is not told here.
    assert {"area"} >= {row.row.row.traits["mode"] for row in one.unlisted if "interpolate" in op}


def test_what_the_lists_say_rightly_is_not_told(build: BuildExpectations) -> None:
    """All cases of AvgPool3d raise, as documented; those of EmbeddingBag lead to an alert by its name."""
    assert {"torch.nn.AvgPool3d", "torch.nn.EmbeddingBag"}.isdisjoint(one.op for one in build.ops)


def test_a_name_that_overloads_share_makes_no_bullet_missing(
    build: BuildExpectations, trace: TraceFile
) -> None:
    """The alert of scatter is in the function that takes a tensor, by whose name it is met; with a number another one runs."""
    (one,) = [
        row for row in trace.rows if (row.row.spec, row.row.case) == ("torch.Tensor.scatter", "one_value")
    ]
    reader = Reader(build.census, trace, "cuda")

    assert reader.trace(one, "forward").by_name_alone
    assert [op.op for op in build.ops if one.row in [it.row.row for it in op.unlisted]] == []


def test_what_is_listed_and_not_expected_to_raise(build: BuildExpectations) -> None:
    """Histc of integers: the trace meets the alert for floating-point numbers, and not for them."""
    histc = of(build, "torch.histc", "forward")
    (claim,) = [one for one in build.expected if one.claim.targets == ("torch.histc",)]

    assert {"int32", "int64"} == {one.row.row.dtype for one in histc.passing}
    assert {"float32", "float64"} == {one.row.row.dtype for one in histc.raising}
    assert claim.expectation == "alert_partly"
    assert histc.named(histc.passing)[0] == "few_bins:int32,int64"
    assert {one.text for one in histc.passing} == {
        "the alert of _histc_cuda with floating point input, which the trace meets in other cases, is not met"
    }
    pad = of(build, "torch.nn.ReflectionPad2d", "backward")
    assert (len(pad.passing), pad.raising) == (len(pad.rows), ())


def test_an_alert_that_a_way_passes_by_is_no_sure_one(build: BuildExpectations) -> None:
    """NLLLoss without reduction reaches a function that alerts on some ways: which, the build does not say."""
    loss = of(build, "torch.nn.NLLLoss", "forward")

    assert "spatial_none" in {one.row.row.case for one in loss.unsure}
    assert {True} == {one.may_pass for one in loss.unsure}
    assert "rows_none" in {one.row.row.case for one in loss.passing}


def test_alerts_where_nothing_can_differ(build: BuildExpectations) -> None:
    """The minimum does not depend on the order of what it is taken of, and index_reduce alerts for it all the same."""
    assert of(build, "torch.Tensor.index_reduce", "forward").innocent == ("reduce=amax", "reduce=amin")


def test_an_alert_that_names_another_op_is_none(
    census: Census, trace: TraceFile, build: BuildExpectations
) -> None:
    """Python code of shapes raises the alert of median for mode, whose kernel has none; nanmedian is one of its ops."""
    reader = Reader(census, trace, "cuda")
    said = [reader.trace(row, "any") for row in trace.rows]
    ways = {(one.row.row.spec, one.way) for one in said}
    (text,) = {one.text for one in said if one.row.row.spec == "torch.mode"}

    assert ("torch.nanmedian", "met") in ways
    assert {"other_alert"} == {way for spec, way in ways if spec == "torch.mode"}
    assert "median CUDA with indices output, which names another op" in text
    assert "torch.mode" not in {one.op for one in build.ops}


@pytest.mark.parametrize("op", ["torch.empty", "torch.Tensor.resize_"])
def test_a_check_of_the_flag_that_fills_memory_is_told(census: Census, trace: TraceFile, op: str) -> None:
    """It is no sign that anything was made deterministic, and not nothing."""
    reader = Reader(census, trace, "cuda")
    said = [
        reader.trace(row, "any")
        for row in trace.rows
        # Of empty(out=) the fill is an op of its own, which the trace shows.
        if names_of(row.row)[0] == op
        and "quantized" not in row.row.case
        and row.row.spec != "torch.empty_out"
    ]

    assert said
    assert {"fills"} == {one.way for one in said}
    assert all(one.text.startswith("fill only: ") for one in said)
    assert not any(one.alerts for one in said)


def test_both_lists_contradict_each_other_without_a_run() -> None:
    """The command tells it of the tabled bullets, and the ops one by one, in both formats."""
    code, out, _ = detmatrix("docs", "--census", CENSUS, "--format", "json")
    (pair,) = json.loads(out)["self_contradictory"]
    _, text, _ = detmatrix("docs", "--census", CENSUS)

    assert code == 0
    assert [pair[name].partition("/")[0] for name in ("deterministic", "raises")] == [
        "deterministic",
        "raises",
    ]
    assert "## In both lists" in text
    assert "scatter_reduce" in text.partition("## In both lists")[2].partition("##")[0]
    assert "### Op by op" not in text
