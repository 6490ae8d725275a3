"""Where the bullets of several releases lead in the builds of their time, and what stands on no bullet."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from reports.builds.expectations import BuildExpectations, ExpectedClaim, expect
from reports.builds.links import Places
from scanner.census.record import read_census
from scanner.claims.tables import documented_claims
from scanner.observations.trace.files import read_trace

REPORTS = Path(__file__).parent.parent / "reports"


def of(build: BuildExpectations, id_: str) -> ExpectedClaim:
    """Return what is said of a bullet."""
    (one,) = [one for one in build.expected if one.claim.id == id_]
    return one


@pytest.mark.parametrize(
    ("build_of", "without"),
    [("2.1.2-cu121", "alert_gone"), ("2.2.2-cu121", "unlinked"), ("2.13.0-cu130", "unlinked")],
)
def test_an_alert_of_another_device_is_not_gone(build_of: str, without: str) -> None:
    """Nor where a function of this device, which has the same words, checks the flag; it is if both lack it."""
    other = read_census(REPORTS / "censuses" / f"torch-{build_of}.json.gz")
    claims = documented_claims(build_of.rpartition("-")[0])
    less = replace(other, alerts=tuple(one for one in other.alerts if one.alert != "quantized_resize_cpu_"))
    id_ = "raises/torch.Tensor.resize_/quantized=True"
    said = of(expect(claims, ("census", other), None, "cuda"), id_)

    assert said.expectation == "other_device"
    assert {"quantized_resize_cpu_"} == {link.place.alert for link in said.alerts}
    assert of(expect(claims, ("census", less), None, "cuda"), id_).expectation == without


@pytest.mark.parametrize("build_of", ["2.1.2-cu121", "2.9.1-cu128"])
def test_the_list_of_cublas_is_one_of_what_raises(build_of: str) -> None:
    """Its ops lead to the alert of cuBLAS, which then is no place without a bullet; without it, it is gone."""
    older = read_census(REPORTS / "censuses" / f"torch-{build_of}.json.gz")
    less = replace(older, alerts=tuple(one for one in older.alerts if one.alert != "cuBLAS"))
    claims = documented_claims(build_of.rpartition("-")[0])
    build = expect(claims, ("census", older), None, "cuda")
    without = expect(claims, ("census", less), None, "cuda")

    for name in ("mm", "mv", "bmm"):
        one = of(build, f"cublas/torch.{name}/cuda")
        assert one.expectation == "expected_raise"
        assert {("cuBLAS", "list")} == {(link.place.alert, link.way) for link in one.alerts}
        assert of(without, one.claim.id).expectation == "alert_gone"
    assert "cuBLAS" not in {one.place.alert for one in build.unspoken}


@pytest.mark.parametrize("release", ["2.11.0", "2.13.0", "2.15.0"])
@pytest.mark.parametrize("traces", ["none", "some", "all"])
def test_every_alert_is_on_a_bullet_or_without_one(release: str, traces: str) -> None:
    """None is left out: it is linked to a bullet, met by a case with the flag on late, or has no bullet."""
    (file,) = (REPORTS / "censuses").glob(f"torch-{release}-cu*.json.gz")
    trace = read_trace(REPORTS / "traces" / f"torch-{release}-cuda.json.gz")
    if traces == "some":
        trace = replace(
            trace, rows=tuple(one for one in trace.rows if not one.row.case.startswith("reduce_"))
        )
    census = read_census(file)
    traced = None if traces == "none" else ("trace", trace)
    build = expect(documented_claims(release), ("census", census), traced, "cuda")
    linked = {link.place for one in build.expected for link in one.alerts}
    backward_only = {link.place for one in build.expected for row in one.traced for link in row.backward_only}
    without = {one.place for one in build.unspoken}

    assert {
        one for one in Places(census, "cuda").all if one.kind == "alert"
    } <= linked | backward_only | without
    assert without.isdisjoint(linked)
    # Of a trace only the cases of scatter with reduce= tell to which op the name leads.
    assert ("scatter_reduce_cuda_kernel" in {one.alert for one in without}) == (traces == "some")
