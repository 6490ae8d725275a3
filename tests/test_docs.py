"""Documented claims held against rows: every agreement, what decides it, and what the lists do not say."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from detmatrix.reports.docs.judge import Docs, join
from detmatrix.reports.docs.regenerate import RegeneratedLists
from detmatrix.reports.docs.view import pull_requests, render_diff, render_rst, view_of
from detmatrix.scanner.claims.matching import matches
from detmatrix.scanner.claims.tables import parse_claims
from detmatrix.scanner.observations.records import CpuComparison, Observation
from detmatrix.scanner.verdicts.vocabulary import Finding
from tests.compared import run_of
from tests.conftest import table
from tests.documented import (
    CUBLAS,
    CUDA,
    SIMULATED,
    bullets,
    claim_of,
    docs_of,
    docstring,
    only,
    seen_as,
    serial,
    shown,
    simulated,
    weak,
)
from tests.mutants import INPUT_SOURCE
from tests.runs import Planned, row


def agreements(
    bullet: str, rows: list[Planned], doubt: Callable[[Docs], Docs] = lambda docs: docs
) -> list[Any]:
    """Return what rows make of a bullet in the list of what acts, and in that of what raises."""
    texts = docstring([bullet]), docstring([], [bullet])
    return [only(doubt(docs_of(text, rows))).agreement for text in texts]


@pytest.mark.parametrize(("findings", "acting", "raising", "vague"), table("claims.txt", "decide"))
def test_findings_decide(findings: str, acting: str, raising: str, vague: str) -> None:
    """What rows show confirms or contradicts a bullet, by the list in which the bullet stands."""
    shown_: list[Any] = findings.split()
    for device in ("cpu", "cuda"):
        rows = [shown("torch.a", finding, device) for finding in shown_]

        assert agreements(f"torch.a when called on a {device.upper()} tensor", rows) == [acting, raising]
        assert agreements("torch.a in some cases", rows)[1] == vague
    # The mode on sets CUBLAS_WORKSPACE_CONFIG, so that a cuBLAS op confirms by acting deterministically.
    listed = f"Sets.\n\n{CUBLAS}\n        * :func:`torch.a`\n"
    assert only(docs_of(listed, [shown("torch.a", finding) for finding in shown_])).agreement == acting


def test_untrusted_runs_are_no_evidence() -> None:
    """A run whose controls misbehaved decides nothing beside one that can be trusted."""
    claims = parse_claims(docstring([f"torch.a {CUDA}"]))
    bad = run_of(shown("torch.a", "silent"), claims=claims, name="bad", distrust=("a control drifted",))
    good = run_of(shown("torch.a", "fixed_by_mode"), claims=claims, name="good")
    judged = only(join([bad, good]))

    assert judged.agreement == "confirmed"
    assert [one.effect for one in judged.evidence] == ["not_run", "confirmed"]
    assert join([bad]).undocumented == ()


@pytest.mark.parametrize("doubt", [weak, serial])
@pytest.mark.parametrize(
    ("finding", "acting", "raising"),
    [
        ("mode_dependent", "not_run", "not_run"),
        ("deterministic", "not_run", "not_run"),
        ("over_alert", "contradicted", "confirmed"),
        ("silent", "contradicted", "contradicted"),
    ],
)
def test_sameness_where_nothing_could_race_is_no_evidence(
    doubt: Callable[[Docs], Docs], finding: Finding, acting: str, raising: str
) -> None:
    """At low power, and with one thread at work, only an alert and bits that differ say something of a bullet."""
    rows = [shown("torch.a", finding)]
    why = "low power: " if doubt is weak else "serial: one thread did all the work"

    assert agreements(f"torch.a {CUDA}", rows, doubt) == [acting, raising]
    if acting == "not_run":
        reason = only(doubt(docs_of(docstring([f"torch.a {CUDA}"]), rows))).reason
        assert reason.startswith(f"no evidence in 1 row: {why}")


@pytest.mark.parametrize(("seen", "told"), [(1, "not_run"), (2, "not_triggered")])
def test_a_few_rows_do_not_judge_for_many(seen: int, told: str) -> None:
    """Where most rows are no evidence, that the others show nothing is told of these alone."""
    rows = [shown("torch.a", "deterministic", case=f"seen_{n}") for n in range(seen)]
    rows += [shown("torch.a", "inconclusive", case=f"unseen_{n}") for n in range(2)]
    judged = only(docs := docs_of(docstring([f"torch.a {CUDA}"]), rows))
    (claim,) = view_of(docs)["claims"]

    assert judged.agreement == told
    if seen == 1:
        assert claim.cells == [judged.reason]
        assert judged.reason.startswith("no evidence in 2 of 3 rows: ")
        assert judged.reason.endswith("; 1 other row: 0 of 100 differed")


def test_an_alert_is_proof_however_seldom_the_row_was_executed() -> None:
    """A row that raises confirms its bullet although too few executions say whether it differs."""
    (planned, seen) = shown("torch.a", "over_alert")
    few = [replace(one, executions=2, digests={"a": 2}) if one.mode == "off" else one for one in seen]
    docs = docs_of(docstring([], [f"torch.a {CUDA}"]), [(planned, few)])

    assert only(docs).agreement == "confirmed"
    assert "the alert is raised, though no difference was seen with the flag off (0 of 4" in only(docs).reason
    assert docs.rows[0].row.finding == "inconclusive"


@pytest.mark.parametrize(("failing", "holding", "text"), table("claims.txt", "broad"))
def test_over_broad_bullets_say_what_decides(failing: str, holding: str, text: str) -> None:
    """A bullet that holds in some rows and fails in others says which condition tells them apart."""
    sides = {"raises": json.loads(failing), "fixed_by_mode": json.loads(holding)}.items()
    rows = [shown("torch.a", finding, **fields) for finding, fields in sides]  # type: ignore[arg-type]
    judged = only(docs_of(docstring([f"torch.a {CUDA}"]), rows))

    assert judged.agreement == "contradicted"
    assert judged.reason == (
        f"says too much: raises in 1 row; holds in 1 row (0 of 100 differed with the flag on). {text}"
    )


@pytest.mark.parametrize(("bullet", "fields", "speaks"), table("claims.txt", "speaks"))
def test_a_row_speaks_to_a_claim(bullet: str, fields: str, speaks: str) -> None:
    """Name, device, direction and every condition must fit; a condition unstated does not hold."""
    assert matches(row("torch.a", **json.loads(fields)), claim_of(bullet)) is (speaks == "yes")


# --- What a simulated GPU shows


@pytest.mark.parametrize(
    ("known", "held"),
    [
        ({}, ""),
        ({"schedule": "warps"}, ""),
        ({"schedule": "both"}, ""),
        ({"schedule": "lanes"}, "shown by lanes alone"),
        ({"schedule": "any-blocks"}, "shown by any-blocks alone"),
        ({"schedule": "divergence"}, "shown by divergence alone"),
        ({"other_kernels": ("fill",)}, "other kernel at real size: fill"),
        ({"value_race": True}, "value race"),
    ],
)
def test_only_what_gpus_are_known_to_do_changes_a_list(known: dict[str, Any], held: str) -> None:
    """A difference goes upstream by its class, with kernels of real size; the alert is host code's and always counts."""
    text = docstring(["torch.z"], ["torch.y"])
    acts = [":func:`torch.a` when called on a CUDA tensor"]
    docs = join([simulated(text, shown("torch.a", "fixed_by_mode", SIMULATED, provokes="x"), **known)])
    found = RegeneratedLists(docs)
    alert = join([simulated(text, shown("torch.a", "raises", SIMULATED), **known)])

    assert [one.held for one in docs.rows] == [held]
    assert bullets(found.regenerated) == (["torch.z", *([] if held else acts)], ["torch.y"])
    assert (held or "[simulated: torch.a:fixed_by_mode:forward:float32: ") in found.added["torch.a", "cuda"]
    assert bullets(RegeneratedLists(alert).regenerated) == (["torch.z"], ["torch.y", *acts])


def test_nothing_hangs_on_the_simulated_gpu() -> None:
    """Two numbers of multiprocessors that show two things of a row change no list; where they agree they do."""
    text = docstring([], [f":func:`torch.a` {CUDA}"])
    few = [shown("torch.a", "fixed_by_mode", SIMULATED, case="one")]
    many = [shown("torch.a", "deterministic", SIMULATED, case="one")]
    agreeing = join([simulated(text, *few), simulated(text, *few, multiprocessors=20)])
    differing = join([simulated(text, *few), simulated(text, *many, multiprocessors=20)])

    assert bullets(RegeneratedLists(agreeing).regenerated) == ([f":func:`torch.a` {CUDA}"], [])
    assert bullets(RegeneratedLists(differing).regenerated) == ([], [])
    assert "sm_80 with 20 multiprocessors" in only(differing).reason
    # What one of them holds back is no evidence of the other either.
    held = join([simulated(text, *few), simulated(text, *few, multiprocessors=20, schedule="lanes")])
    assert [one.held for one in held.rows] == ["shown by lanes alone"] * 2
    assert bullets(RegeneratedLists(held).regenerated) == ([], [])


BACKWARD = "when attempting to differentiate a CUDA tensor"
WRONG = CpuComparison(agrees=False, elements=1, of=9, output="output", pair=("7", "9"))
NINTH = (
    "with the flag on its result is not the CPU's (torch.a:faulty:forward:float32: in the canonical order, 1 of 9 "
    "elements of output are not the CPU's (7, the CPU has 9))"
)
ACTS = shown("torch.a", "fixed_by_mode", SIMULATED, direction="backward", traits={"reduce": "sum"})
RAISES = shown("torch.a", "raises", SIMULATED, direction="backward", traits={"reduce": "prod"})


@pytest.mark.parametrize(
    ("text", "rows", "fault", "told"),
    [
        (docstring([], [f":func:`torch.a` {CUDA}"]), [], {"cpu": WRONG}, f"left as it is: {NINTH}; report"),
        # The bullet speaks of the backward, which keeps a part of it, and the forward is wrong.
        (docstring([f":func:`torch.a` {BACKWARD}"]), [ACTS, RAISES], {"cpu": WRONG}, f"left as it is: {NINTH}; report"),
        (docstring(["torch.z"]), [ACTS], {"cpu": WRONG}, f"not added to the list 'deterministic': {NINTH}"),
        (docstring(["torch.z"]), [ACTS], {"value_race": True}, "not added to the list 'deterministic': value race (torch.a:faulty:"),
    ],
)  # fmt: skip
def test_a_fault_keeps_an_op_from_being_said_to_act(
    text: str, rows: list[Planned], fault: dict[str, Any], told: str
) -> None:
    """Any row of it that is wrong with the flag on is reported before the list says that it acts; a value race adds no bullet."""

    def faulty(it: Observation) -> Observation:
        if it.simulated is None or (it.mode, it.case) != ("on", "faulty"):
            return it
        return replace(it, simulated=replace(it.simulated, **fault))

    one = simulated(text, *rows, shown("torch.a", "fixed_by_mode", SIMULATED, case="faulty"))
    found = RegeneratedLists(join([seen_as(one, faulty)]))

    assert found.regenerated == found.documented
    assert told in " ".join(found.notes)


# A new bullet carries the conditions of its evidence; tests/data/lists.txt has more.

TEXT = docstring(["torch.z"], ["torch.y"])


def drawn(finding: Finding, case: str, **fields: Any) -> Planned:
    return shown("torch.new_", finding, case=case, often=40, **fields)


def test_what_hardly_could_differ_is_left_out_where_words_can() -> None:
    """A dtype that one thread adds in, or that was seen at low power, takes no bullet away, and none speaks of it: only float32 was seen to differ."""
    differing = drawn("fixed_by_mode", "differs")
    still = drawn("deterministic", "still", dtype="float64")
    alike = drawn("deterministic", "small")
    bullet = ":func:`torch.new_` when called on a CUDA tensor and dtype is float32"

    for rows in ([differing, still], [differing, alike, still], [differing, still, alike]):
        docs = docs_of(TEXT, rows)
        # A busy machine, on which rows are of low power besides or instead, changes no bullet.
        for shown_little in (serial(docs), weak(docs, ["off"]), weak(serial(docs), ["off"])):
            assert bullets(RegeneratedLists(shown_little).regenerated)[0][1:] == [bullet]


def test_each_device_is_told_by_itself_and_what_is_left_out_is_named() -> None:
    """Rows of each device count for their bullet alone; what rests on simulation, and what no bullet is proposed for, is named."""
    text = docstring(["torch.b when called on a CPU tensor"], ["torch.c when called on a CPU tensor"])
    missing = [
        shown("torch.a", "raises", SIMULATED),
        shown("torch.d", "fixed_by_mode", SIMULATED, case="other"),
    ]
    measured = run_of(shown("torch.a", "fixed_by_mode", "cpu"), claims=parse_claims(text))
    gpu = simulated(text, *missing, other_kernels=("big",))
    docs = join([measured, gpu])
    reports = "".join(pull_requests(docs, (), None, lambda _: INPUT_SOURCE))

    assert "| fixed_by_mode in 1 forward row (CPU, measured) " in reports
    assert "| raises in 1 forward row (CUDA, simulated) " in reports
    rest = "nothing is proposed: other kernel at real size: big"
    assert reports.endswith(f"# Undocumented, and nothing is proposed\n\n* torch.d on cuda: {rest}\n")
    assert [*render_diff(docs)][-1] == f"# undocumented: torch.d on cuda: {rest}\n"
    comment = "    .. On simulation alone, not measured on a GPU: 1 changed or added bullet: torch.a\n\n"
    assert [*render_rst(docs)] == [comment, RegeneratedLists(docs).regenerated]
    assert next(render_rst(join([measured]))) == ""
