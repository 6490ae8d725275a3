"""Bullets held against what a census and a trace say of a build: expected, beside what was measured."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from reports.builds.expectations import BuildExpectations, ExpectedClaim, count, expect
from reports.builds.files import paired
from reports.builds.links import Places, words
from reports.builds.traced import Reader
from reports.builds.words import trace as trace_words
from scanner.census.record import AlertSite, Census, encode, read_census
from scanner.claims.tables import documented_claims
from scanner.observations.trace.files import read_trace
from scanner.observations.trace.records import TracedOverload, TraceFile
from scanner.verdicts.reroutes import decided
from tests.census_builds import detmatrix

REPORTS = Path(__file__).parent.parent / "reports"
CENSUS = REPORTS / "censuses" / "torch-2.15.0-cu132.json.gz"
TRACE = REPORTS / "traces" / "torch-2.15.0-cuda.json.gz"
RUN = REPORTS / "runs" / "torch-2.15.0-cpu.jsonl.gz"
RAISES = "raises/torch.nn.AvgPool3d/cuda/backward"
LATE = (
    "max_pool3d_with_indices_backward_cuda",
    *(f"replication_pad{dimensions}d_backward_cuda" for dimensions in (1, 2, 3)),
    *(f"upsample_{mode}_backward_out_cuda" for mode in ("bilinear2d", "bicubic2d", "trilinear3d")),
)


@pytest.fixture(scope="module")
def census() -> Census:
    """The census of a CUDA build."""
    return read_census(CENSUS)


@pytest.fixture(scope="module")
def trace() -> TraceFile:
    """A trace of the same build, on fake CUDA tensors."""
    return read_trace(TRACE)


@pytest.fixture(scope="module")
def build(census: Census, trace: TraceFile) -> BuildExpectations:
    """What both say."""
    return judged(census, trace)


def judged(census: Census, trace: TraceFile | None) -> BuildExpectations:
    """Judge the bullets of 2.15 by a census and a trace."""
    return expect(
        documented_claims("2.15"), ("census", census), None if trace is None else ("trace", trace), "cuda"
    )


def of(build: BuildExpectations, part: str) -> ExpectedClaim:
    """Return what is said of the one bullet whose id has this part."""
    (one,) = [one for one in build.expected if part in one.claim.id]
    return one


def test_every_cuda_bullet_comes_out_as_something(build: BuildExpectations) -> None:
    """No bullet about CUDA, or about any device, is left out, and the counts add up to them."""
    wanted = [claim.id for claim in documented_claims("2.15") if claim.device in {"any", "cuda"}]

    assert wanted == [one.claim.id for one in build.expected]
    kinds = sum(len(one.kinds) for one in build.ops)
    assert len(wanted) + len(build.unspoken) + kinds == sum(number for _, number, _ in count(build))


def test_an_alert_taken_out_of_a_build_is_gone(
    census: Census, trace: TraceFile, build: BuildExpectations
) -> None:
    """What is said rests on the call site: without it the same bullet is said to have lost its alert."""
    less = replace(
        census, alerts=tuple(one for one in census.alerts if one.alert != "avg_pool3d_backward_cuda")
    )

    assert of(build, RAISES).expectation == "expected_raise"
    assert [link.place.alert for link in of(build, RAISES).alerts] == ["avg_pool3d_backward_cuda"]
    assert of(judged(less, trace), RAISES).expectation == "alert_gone"
    assert of(judged(less, None), RAISES).expectation == "unlinked"


def test_a_function_that_asks_instead_of_alerting_is_no_alert(build: BuildExpectations) -> None:
    """The backward of ReflectionPad2d checks the flag in this build, while the lists say that it raises."""
    one = of(build, "ReflectionPad2d")

    assert one.expectation == "alert_gone"
    assert not one.alerts
    assert {link.place.function.rpartition("::")[2] for link in one.flags} == {
        "reflection_pad2d_backward_out_template"
    }


def test_a_deterministic_bullet_whose_case_reaches_an_alert(build: BuildExpectations) -> None:
    """MaxPool3d is rerouted where it returns indices, and alerts where it does not."""
    one = of(build, "torch.nn.MaxPool3d")

    assert one.expectation == "alert_reached"
    assert {row.row.row.traits["return_indices"] for row in one.deciding} == {"False"}
    assert len(one.deciding) < len(one.traced)


def test_an_alert_that_the_trace_met_needs_no_census(census: Census, trace: TraceFile) -> None:
    """It is an alert whether a census names its caller, names others only, or is not there."""
    rows = tuple(
        replace(
            row,
            reached=tuple(
                replace(reach, outcome="alert", stopped="forward", caller="met_by_nobody_else")
                if reach.mode == "on"
                else reach
                for reach in row.reached
            ),
        )
        if row.row.spec == "torch.Tensor.scatter_reduce"
        else row
        for row in trace.rows
    )
    met = replace(trace, rows=rows)
    for named in (("census", census), None):
        one = of(
            expect(documented_claims("2.15"), named, ("trace", met), "cuda"),
            "deterministic/torch.Tensor.scatter_reduce",
        )

        assert one.expectation == "alert_reached"
        assert {row.text for row in one.deciding} == {"the trace met the alert of met_by_nobody_else"}


def test_a_flag_turned_on_for_backward_alone_meets_the_alert(
    census: Census, trace: TraceFile, build: BuildExpectations
) -> None:
    """Where the path is decided in forward, backward reaches the function of the flag being off, which alerts."""
    backward_only = [row for row in trace.rows if decided(row) == "forward"]
    reader, bare = Reader(census, trace, "cuda"), Reader(None, trace, "cuda")
    texts = {reader.trace(row, "backward").text.rpartition("; ")[2] for row in backward_only}

    assert len(backward_only) == 51
    assert {f"turned on only for backward it would raise {caller}" for caller in LATE} == texts
    assert {"turned on only for backward it does not reroute"} == {
        bare.trace(row, "any").backward_only_text for row in backward_only
    }
    assert trace_words(of(build, "torch.nn.MaxPool3d"), build).endswith(
        "turned on only for backward it would raise max_pool3d_with_indices_backward_cuda (3 of 15 cases)"
    )
    assert "only for backward" not in trace_words(of(build, RAISES), build)


def test_an_alert_met_for_backward_alone_is_told(census: Census, trace: TraceFile) -> None:
    """It is told with the caller that the trace met, which need not be in the census."""
    row = next(row for row in trace.rows if decided(row) == "same")
    off, on, backward_only = row.reached
    met = replace(
        row, reached=(off, on, replace(backward_only, outcome="alert", stopped="backward", caller="mine"))
    )
    reader = Reader(census, trace, "cuda")

    assert reader.trace(met, "any").text == (
        f"{reader.trace(row, 'any').text}; turned on only for backward it raises mine"
    )


def test_an_alert_with_a_question_before_it_stays_unsettled(build: BuildExpectations) -> None:
    """Both stand under the name of one overload: which of them a call meets is not in the build."""
    one = of(build, "deterministic/torch.Tensor.scatter/cuda")

    assert one.expectation == "unsettled"
    # Cases with reduce= reach the other one.
    assert {("scatter_cuda_", "shared"), ("scatter_reduce_cuda_kernel", "name")} == {
        (link.place.alert, link.way) for link in one.alerts
    }
    assert one.flags
    texts = {row.on for row in one.traced if "scatter.src" in row.on}
    assert len(texts) == 1
    assert "and a function of the op's name, which may serve another of its overloads, alerts" in texts.pop()


def test_an_alert_that_names_another_case_is_not_about_this_one(build: BuildExpectations) -> None:
    """The alert of ``reduce='prod'`` says nothing about sums and means."""
    one = of(build, "deterministic/torch.Tensor.scatter_reduce")

    assert one.expectation == "expected_flag"
    assert not one.alerts


def test_an_alert_of_another_device_is_not_one_of_this(build: BuildExpectations) -> None:
    """A bullet about any device, whose alert is in a function of the CPU."""
    one = of(build, "torch.Tensor.resize_")

    assert one.expectation == "other_device"
    assert {"quantized_resize_cpu_"} == {link.place.alert for link in one.alerts}


def test_places_without_a_bullet_are_told_with_their_ops(build: BuildExpectations) -> None:
    """An alert no bullet speaks of, a question for the flag, and what leads nowhere."""
    found = {(one.kind, one.ops) for one in build.unspoken if one.ops}

    assert found == {
        ("undocumented_alert", ("torch.Tensor.index_reduce",)),
        ("undocumented_flag", ("torch.topk",)),
    }
    assert any(
        one.kind == "unlinked_flag" and one.place.function == "at::native::_flash_attention_backward"
        for one in build.unspoken
    )


def test_words_are_asked_of_a_case_that_was_not_traced(build: BuildExpectations) -> None:
    """The op of cuDNN has no fake implementation: its cases stop there, beside others that lead to an alert."""
    alerts = {(link.place.alert, link.way) for link in of(build, "grid_sample").alerts}

    assert alerts == {
        ("cudnn_grid_sampler_backward", "words"),
        ("grid_sampler_2d_backward_cuda", "name"),
        ("grid_sampler_3d_backward_cuda", "name"),
    }


def test_words_lead_nowhere_that_the_trace_does_not(census: Census, build: BuildExpectations) -> None:
    """Where words alone find an alert, and the trace finds one too, they have found the same."""
    for one in judged(census, None).expected:
        traced = {link.place.alert for link in of(build, one.claim.id).alerts if link.way != "words"}
        said = {link.place.alert for link in one.alerts}
        if traced and said:
            assert traced & said, one.claim.id


@pytest.mark.parametrize(
    ("function", "overload", "way"),
    [
        ("at::native::structured_f_out_cuda::impl", "aten::f", "function"),
        ("at::native::(anonymous namespace)::launch_f_kernel", "aten::f", "name"),
        ("at::native::f_two_cuda_kernel::{lambda#1}::operator()", "aten::f_.two", "name"),
        ("at::native::f_backward_cuda", "aten::f", None),
        ("at::native::other_f_cuda", "aten::f", None),
    ],
)
def test_overloads_lead_to_functions(census: Census, function: str, overload: str, way: str | None) -> None:
    """By the build's own declaration, or by a name that says the same; not by a part of it."""
    alert = replace(
        census.alerts[-1], alert="f", function=function, library="libtorch_cuda.so", path="always"
    )
    places = Places(replace(census, alerts=(alert,), asks=(), python=()), "cuda")
    found = places.reached(TracedOverload(overload, "own", ("at::native::structured_f_out_cuda",)))

    assert ([] if way is None else [way]) == [link.way for link in found]


@pytest.mark.parametrize(
    ("function", "way"),
    [("at::native::f_cuda_kernel", "shared"), ("at::native::f_value_cuda_kernel", "name")],
)
def test_a_name_that_overloads_share_is_said_to_be_shared(census: Census, function: str, way: str) -> None:
    """It names the op and no overload, so that it may serve another one."""
    alert = replace(census.alerts[-1], function=function, library="libtorch_cuda.so")
    places = Places(replace(census, alerts=(alert,), asks=(), python=()), "cuda")

    for overload in ("aten::f.value", "aten::f_.value"):
        (link,) = places.reached(TracedOverload(overload, "own", ("at::native::structured_f_value_out",)))
        assert link.way == way


def test_words_of_names() -> None:
    """Modules and functions are taken apart alike."""
    assert ["adaptive", "avg", "pool", "2d"] == words("AdaptiveAvgPool2d") == words("adaptive_avg_pool2d")
    assert words("NLLLoss") == ["nll", "loss"]


def test_a_machine_without_a_gpu_sees_both_columns() -> None:
    """With no run at all, every bullet has its words, and nothing is called measured."""
    code, out, err = detmatrix("docs", "--census", CENSUS, "--trace", TRACE, "--format", "json")
    (text,) = json.loads(out)["builds"]

    assert (code, err) == (0, "")
    assert all(one["binary"] and one["trace"] for one in text["claims"])
    assert {"not measured"} == {one["measured"] for one in text["claims"]}
    assert len(text["claims"]) == sum(text["counts"][name] for name in json.loads(out)["expectations"])
    (median,) = [one for one in text["ops"] if one["op"] == "torch.nanmedian"]
    assert (median["documented"], median["kinds"]) == ([], ["unlisted_raise"])
    assert "torch.nanmedian:tied_rows:forward:float32" in median["unlisted"]
    _, table, _ = detmatrix("docs", "--census", CENSUS, "--trace", TRACE)
    (line,) = [line for line in table.splitlines() if line.startswith("| `torch.nanmedian`")]
    assert "in no list" in line
    assert "5 of 6 cases" in line


def test_measured_stays_with_what_ran() -> None:
    """Bullets about any device say what a CPU run showed, those about CUDA that nothing did."""
    code, out, _ = detmatrix("docs", RUN, "--census", CENSUS, "--trace", TRACE, "--format", "json")
    text = json.loads(out)
    (build,) = text["expected"]["builds"]
    measured = {one["id"]: one["measured"] for one in build["claims"]}

    assert code == 0
    assert {"not measured"} == {text for name, text in measured.items() if "/cuda" in name}
    assert measured["raises/torch.Tensor.put_/accumulate=False"] == "confirmed on cpu"
    assert not {one["expected"] for one in build["claims"]} & set(text["agreements"])


def test_markdown_follows_what_was_measured() -> None:
    """The part about builds stands after the part about runs, in tables of its own."""
    _, alone, _ = detmatrix("docs", RUN)
    code, out, _ = detmatrix("docs", RUN, "--census", CENSUS)

    assert code == 0
    assert out.startswith(alone)
    assert "| trace (expected)" in out[len(alone) :]
    assert "no trace" in out[len(alone) :]


def test_another_build_is_not_joined(tmp_path: Path, census: Census) -> None:
    """Neither another release, nor the same release made from other sources."""
    (tmp_path / "other.json").write_text(encode(replace(census, torch_git="0" * 40)))
    older = REPORTS / "censuses" / "torch-2.13.0-cu130.json.gz"
    code, out, _ = detmatrix(
        "docs", RUN, "--census", tmp_path / "other.json", "--census", older, "--format", "json"
    )
    text = json.loads(out)["expected"]

    assert (code, text["builds"]) == (0, [])
    assert [f"Not joined: other.json is of torch 2.15.0+cu132 (git {'0' * 40})"] == [
        text["not_joined"][0].partition(", and")[0]
    ]
    assert "torch 2.13.0+cu130" in text["not_joined"][1]


def test_a_trace_is_joined_with_the_census_of_its_own_build(census: Census, trace: TraceFile) -> None:
    """Of censuses of one release, in whatever order, it is the one of the same version; else one of its device."""
    other = ("other", replace(census, torch="2.15.0+cu130"))
    cpu = ("cpu", replace(census, torch="2.15.0+cpu", libraries=()))
    own = ("own", census)
    for named in ((own, other, cpu), (other, cpu, own), (cpu, own, other)):
        assert next(paired([*named, ("trace", trace)]))[0] == own
    assert next(paired([cpu, other, ("trace", trace)]))[0] == other

    on_cpu = replace(
        trace,
        settings=replace(trace.settings, device="cpu"),
        build=replace(trace.build, torch="2.15.0+cpu", cuda=None),
    )
    assert next(paired([own, cpu, ("trace", on_cpu)]))[0] == cpu


def test_names_of_a_build_are_no_markup(tmp_path: Path, census: Census) -> None:
    """A census is of untrusted origin: its names hold in the table, and are no commands to a terminal."""
    evil = "at::native::<b>|`x`\x1b[2J_avg_pool3d_backward"
    alerts = tuple(_renamed(one, evil) for one in census.alerts)
    (tmp_path / "evil.json").write_text(encode(replace(census, alerts=alerts)))
    code, out, _ = detmatrix("docs", "--census", tmp_path / "evil.json")

    assert code == 0
    assert "\x1b" not in out
    assert "\\|" in out
    rows = [line for line in out.splitlines() if line.startswith("| unlinked_alert") and "libtorch" in line]
    assert rows
    assert {6} == {line.replace("\\|", "").count("|") for line in rows}


def _renamed(alert: AlertSite, name: str) -> AlertSite:
    return replace(alert, function=name) if alert.alert == "avg_pool3d_backward_cuda" else alert


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ([], 2, "nothing to check the lists against"),
        ([str(RUN), "--census", str(CENSUS), "--format", "rst"], 2, "on what was measured alone"),
        (["--census", str(CENSUS), "--check"], 2, "give a run file too"),
        (["--census", str(TRACE)], 3, "not a census"),
        (["--trace", str(CENSUS)], 3, "not a trace file"),
        (["--census", "missing.json"], 3, "cannot be read"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], code: int, text: str) -> None:
    """Each is told in one line, with its exit code."""
    ended, out, err = detmatrix("docs", *arguments)

    assert (code, "", 1) == (ended, out, err.count("\n"))
    assert text in err


def test_a_release_without_a_table_is_told(tmp_path: Path, census: Census) -> None:
    """Without a run, the bullets are those of a table; a release that has none is one line."""
    with gzip.open(tmp_path / "new.json.gz", "wt") as file:
        file.write(encode(replace(census, torch="9.9.0+cu999")))
    ended, _, err = detmatrix("docs", "--census", tmp_path / "new.json.gz")

    assert (ended, err.count("\n")) == (2, 1)
    assert "no table of the claims of torch 9.9.0" in err
