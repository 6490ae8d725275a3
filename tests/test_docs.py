"""Documented claims held against rows: every agreement, and what decides it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from reports.docs import view as docs_render
from reports.docs.judge import Agreement, Docs, join, shown_words
from reports.docs.view import RENDERERS
from reports.matrix.model import Matrix, matrix_of
from scanner.claims.tables import parse_claims
from scanner.observations.records import Claim, Mode
from scanner.verdicts.vocabulary import Finding
from tests.documented import CUDA, docs_of, docstring, only, run_of, serial, shown
from tests.evidence_runs import sentinel
from tests.runs import Planned


def weak_run_of(claims: Sequence[Claim], rows: Sequence[Planned], mode: Mode = "on") -> Matrix:
    """Return a run in which hardly anything could race in one process of *mode*."""
    one = run_of(claims, rows)
    return matrix_of(one.name, replace(one.run, sentinels=(sentinel(mode, differing=1),)))


def agreements(docs: Docs) -> dict[str, Agreement]:
    return {judged.claim.id: judged.agreement for judged in docs.judged}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize(
    ("finding", "acting", "raising"),
    [
        ("fixed_by_mode", "confirmed", "contradicted"),
        ("mode_dependent", "confirmed", "contradicted"),
        ("deterministic", "not_triggered", "contradicted"),
        ("raises", "contradicted", "confirmed"),
        ("over_alert", "contradicted", "confirmed"),
        ("silent", "contradicted", "contradicted"),
        ("inconclusive", "not_run", "not_run"),
    ],
)
def test_a_finding_decides(device: str, finding: Finding, acting: Agreement, raising: Agreement) -> None:
    """What one row shows confirms or contradicts a bullet, by the list in which the bullet stands."""
    bullet = f"torch.a when called on a {device.upper()} tensor"
    rows = [shown("torch.a", finding, device)]

    assert acting == only(docs_of(docstring([bullet]), rows)).agreement
    assert raising == only(docs_of(docstring([], [bullet]), rows)).agreement


@pytest.mark.parametrize(
    ("findings", "acting", "raising"),
    [
        (["deterministic", "fixed_by_mode", "inconclusive"], "confirmed", "contradicted"),
        (["deterministic", "inconclusive"], "not_triggered", "contradicted"),
        (["fixed_by_mode", "raises"], "contradicted", "contradicted"),
        (["raises", "over_alert", "inconclusive"], "contradicted", "confirmed"),
    ],
)
def test_rows_join(findings: list[Finding], acting: Agreement, raising: Agreement) -> None:
    """One contradicting row contradicts; short of that one confirming row confirms."""
    rows = [shown("torch.a", finding) for finding in findings]

    assert acting == only(docs_of(docstring([f"torch.a {CUDA}"]), rows)).agreement
    assert raising == only(docs_of(docstring([], [f"torch.a {CUDA}"]), rows)).agreement


def test_cublas_bullets_act_deterministically() -> None:
    """The mode on sets CUBLAS_WORKSPACE_CONFIG, so that a cuBLAS op confirms by acting deterministically."""
    text = "Sets.\n\n    If CUBLAS_WORKSPACE_CONFIG is not set, these raise:\n\n        * :func:`torch.mm`\n"
    confirmed, contradicted = (
        only(docs_of(text, [shown("torch.mm", finding)])) for finding in ("fixed_by_mode", "raises")
    )

    assert (confirmed.agreement, contradicted.agreement) == ("confirmed", "contradicted")
    assert "CUBLAS_WORKSPACE_CONFIG is set" in confirmed.reason


def test_no_evidence_has_a_reason() -> None:
    """A claim without evidence says why: another device, errors, doubt, or no row at all."""
    text = docstring([f"torch.a {CUDA}", "torch.b when called on a CPU tensor", "torch.c"])
    rows = [shown("torch.a", "fixed_by_mode", "cpu"), shown("torch.b", "inconclusive", "cpu")]
    a, b, c = docs_of(text, rows).judged

    assert (a.agreement, a.reason) == ("not_run", "none of these runs is on cuda")
    assert b.agreement == "not_run"
    assert b.reason.startswith("no evidence in 1 row: off: error (NotImplementedError: no kernel)")
    assert (c.agreement, c.reason) == ("not_covered", "no row of these runs speaks to it")


def test_selected_rows_are_told() -> None:
    """Where a run was limited by patterns, a claim that nothing speaks to may be covered elsewhere."""
    claims = parse_claims(docstring(["torch.a"]))
    docs = join([run_of(claims, [shown("torch.b", "deterministic")], patterns=("torch.b",))])

    assert "run.jsonl ran only the rows that patterns selected" in only(docs).reason


def test_untrusted_runs_are_no_evidence() -> None:
    """A run whose controls misbehaved is shown, and decides nothing, not even beside one that can be trusted."""
    claims = parse_claims(docstring([f"torch.a {CUDA}"]))
    bad = run_of(claims, [shown("torch.a", "silent")], name="bad.jsonl", distrust=("a control drifted",))
    good = run_of(claims, [shown("torch.a", "fixed_by_mode")], name="good.jsonl")
    alone, beside = only(join([bad])), only(join([bad, good]))

    assert (alone.agreement, beside.agreement) == ("not_run", "confirmed")
    assert "bad.jsonl is not trustworthy: a control drifted" in alone.reason
    assert [(one.run, one.effect) for one in beside.evidence] == [
        ("bad.jsonl", "none"),
        ("good.jsonl", "confirms"),
    ]
    assert join([bad]).undocumented == ()
    assert "Not trustworthy: a control drifted" in "".join(docs_render.markdown(join([bad])))


@pytest.mark.parametrize(
    ("finding", "acting", "raising"),
    [
        ("fixed_by_mode", "not_run", "not_run"),
        ("mode_dependent", "not_run", "not_run"),
        ("deterministic", "not_run", "not_run"),
        ("raises", "contradicted", "confirmed"),
        ("over_alert", "contradicted", "confirmed"),
        ("silent", "contradicted", "contradicted"),
    ],
)
def test_sameness_of_low_power_is_no_evidence(
    finding: Finding, acting: Agreement, raising: Agreement
) -> None:
    """Where nothing could race only an alert and bits that differ say something of a bullet."""
    rows = [shown("torch.a", finding)]
    a, b = (
        only(join([weak_run_of(parse_claims(text), rows)]))
        for text in (docstring([f"torch.a {CUDA}"]), docstring([], [f"torch.a {CUDA}"]))
    )

    assert (a.agreement, b.agreement) == (acting, raising)
    assert [one.low_power for one in a.evidence] == [acting == "not_run"]


def test_low_power_is_told_with_its_reason() -> None:
    """Beside the bullet, in the runs' state, in the counts of a bullet that other rows decide, and for machines."""
    claims = parse_claims(docstring([f"torch.a {CUDA}", f"torch.b {CUDA}"]))
    weak = weak_run_of(claims, [shown("torch.a", "deterministic"), shown("torch.b", "fixed_by_mode")])
    good = run_of(claims, [shown("torch.b", "fixed_by_mode")], name="good.jsonl")
    docs = join([weak, good])
    text = "".join(docs_render.markdown(docs))
    data = json.loads("".join(docs_render.as_json(docs)))
    why = "the sentinel (torch.index_put) differed in 1 of 11 executions beside it (mode on, process 0, load 0.5)"

    assert [judged.agreement for judged in docs.judged] == ["not_run", "confirmed"]
    assert docs.judged[0].reason == f"no evidence in 1 row: low power: {why}"
    assert "1 for, 1 underpowered: `torch.b:" in text
    assert "| complete, 2 underpowered rows |" in text
    assert [run["low_power"] for run in data["runs"]] == [{why: 2}, {}]
    assert [(one["reason"], one["low_power"]) for one in data["claims"][0]["rows"]] == [
        (f"low power: {why}", why)
    ]
    (raises,) = join([weak_run_of(claims, [shown("torch.b", "over_alert")], "off")]).judged[1].deciding
    assert shown_words(raises).endswith("with the flag off (0 of 100 differed, low power)")


@pytest.mark.parametrize(
    ("finding", "acting", "raising"),
    [
        ("fixed_by_mode", "confirmed", "contradicted"),
        ("mode_dependent", "not_run", "not_run"),
        ("deterministic", "not_run", "not_run"),
        ("over_alert", "contradicted", "confirmed"),
        ("silent", "contradicted", "contradicted"),
    ],
)
def test_sameness_of_one_thread_is_no_evidence(
    finding: Finding, acting: Agreement, raising: Agreement
) -> None:
    """What one thread did alone confirms and contradicts nothing by not having differed; what differed did race."""
    rows = [shown("torch.a", finding)]
    a, b = (
        serial(docs_of(text, rows))
        for text in (docstring([f"torch.a {CUDA}"]), docstring([], [f"torch.a {CUDA}"]))
    )

    assert (only(a).agreement, only(b).agreement) == (acting, raising)
    assert [one.serial for one in only(a).evidence] == [acting == "not_run"]
    data = json.loads("".join(RENDERERS["json"](a)))
    still = finding in {"deterministic", "mode_dependent", "over_alert"}
    assert [row["serial"] for row in data["claims"][0]["rows"]] == [still]
    assert ("| complete, 1 serial |" in "".join(RENDERERS["md"](a))) == still
    if acting == "not_run":
        assert only(a).reason.startswith("no evidence in 1 row: serial: one thread did all the work")


def test_an_alert_is_proof_however_seldom_the_row_was_executed() -> None:
    """A row that raises confirms its bullet although too few executions say whether it differs."""
    (planned, seen) = shown("torch.a", "over_alert")
    few = [replace(one, executions=2, digests={"a": 2}) if one.mode == "off" else one for one in seen]
    docs = docs_of(docstring([], [f"torch.a {CUDA}"]), [(planned, few)])

    assert only(docs).agreement == "confirmed"
    assert "the alert is raised, though no difference was seen with the flag off (0 of 4" in only(docs).reason
    assert docs.rows[0].row.finding == "inconclusive"


def test_incomplete_runs_are_evidence_and_marked() -> None:
    """What a scan observed before it was killed counts; the table says that it did not finish."""
    claims = parse_claims(docstring([f"torch.a {CUDA}"]))
    docs = join([run_of(claims, [shown("torch.a", "fixed_by_mode")], complete=False)])

    assert only(docs).agreement == "confirmed"
    assert "Incomplete: the scan did not finish" in "".join(docs_render.markdown(docs))


def test_runs_of_two_devices_fill_different_cells() -> None:
    """A CPU run and a CUDA run together judge the two claims of one bullet."""
    text = docstring(["torch.a when called on a CPU or CUDA tensor"])
    docs = docs_of(text, [shown("torch.a", "fixed_by_mode", "cpu")], [shown("torch.a", "raises", "cuda:0")])

    assert agreements(docs) == {
        "deterministic/torch.a/cpu": "confirmed",
        "deterministic/torch.a/cuda": "contradicted",
    }


def test_a_claim_of_any_device_says_where() -> None:
    """What was measured on a CPU alone says so of a bullet that names no device."""
    docs = docs_of(docstring(["torch.a"]), [shown("torch.a", "fixed_by_mode", "cpu")])

    assert only(docs).reason.endswith(", on cpu")


@pytest.mark.parametrize(
    ("failing", "holding", "text"),
    [
        ({"dtype": "int64"}, {}, "What decides: dtype (fails for integer, not for floating, complex, bool)."),
        (
            {"traits": {"reduce": "prod"}},
            {"traits": {"reduce": "sum"}},
            "What decides: reduce (fails for prod, not for sum).",
        ),
        ({"direction": "backward"}, {}, "What decides: direction (fails for backward, not for forward)."),
        (
            {"traits": {"reduce": "prod"}, "dtype": "int64"},
            {"traits": {"reduce": "sum"}},
            (
                "What may decide: reduce (fails for prod, not for sum) or dtype (fails for integer, not for "
                "floating, complex, bool)."
            ),
        ),
        (
            {},
            {},
            (
                "No single condition decides: fails in raises forward float32; holds in fixed_by_mode forward "
                "float32."
            ),
        ),
        (
            {"traits": {"dims": "2-D"}},
            {"traits": {"dims": "1-D"}},
            "What decides: dims (fails for 2-D, not for 1-D).",
        ),
    ],
)
def test_over_broad_bullets_say_what_decides(
    failing: dict[str, Any], holding: dict[str, Any], text: str
) -> None:
    """A bullet that holds in some rows and fails in others says which condition tells them apart."""
    rows = [shown("torch.a", "raises", **failing), shown("torch.a", "fixed_by_mode", **holding)]
    judged = only(docs_of(docstring([f"torch.a {CUDA}"]), rows))

    assert judged.agreement == "contradicted"
    assert judged.reason == (
        f"says too much: raises in 1 row; holds in 1 row (0 of 100 differed with the flag on). {text}"
    )


def test_an_op_of_a_bullet_can_decide() -> None:
    """A bullet about two ops that holds for one and fails for the other names the op."""
    rows = [shown("torch.a", "raises"), shown("torch.b", "fixed_by_mode")]
    judged, *_ = docs_of(docstring([f"torch.a and torch.b {CUDA}"]), rows).judged

    assert judged.reason.endswith("What decides: op (fails for torch.a, not for torch.b).")


def test_mixed_values_are_told_by_their_cases() -> None:
    """Where a value of a condition holds in one row and fails in another, the cases are named, a handful of them."""
    rows = [
        *(shown("torch.a", "raises", case=f"sum{n}", traits={"reduce": "sum"}) for n in range(7)),
        shown("torch.a", "raises", case="mean0", traits={"reduce": "mean"}),
        shown("torch.a", "fixed_by_mode", case="mean1", traits={"reduce": "mean"}),
    ]
    judged = only(docs_of(docstring([f"torch.a {CUDA}"]), rows))
    cases = ", ".join(f"sum{n} forward float32" for n in range(5))

    assert judged.reason.endswith(
        f"No single condition decides: fails in {cases} and 3 more; holds in mean1 forward float32."
    )


def test_a_bullet_can_fail_on_one_device() -> None:
    """A bullet without a device that holds on one and fails on another says so."""
    docs = docs_of(
        docstring([], ["torch.a"]),
        [shown("torch.a", "raises", "cpu")],
        [shown("torch.a", "fixed_by_mode", "cuda")],
    )

    assert only(docs).reason.endswith("It holds on cpu. It fails on cuda.")


def test_vague_bullets_cannot_be_contradicted() -> None:
    """What "in some cases" means is not said: a row can confirm it, and none can deny it."""
    text = docstring([], ["torch.a in some cases"])

    assert only(docs_of(text, [shown("torch.a", "fixed_by_mode")])).agreement == "not_triggered"
    assert (
        only(docs_of(text, [shown("torch.a", "fixed_by_mode"), shown("torch.a", "raises")])).agreement
        == "confirmed"
    )
