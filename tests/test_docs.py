"""Documented claims held against rows: every agreement, and what the lists do not say."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from reports import docs_json, docs_markdown
from reports.docs_join import AGREEMENT_MEANING, Agreement, Docs, Judged, join
from reports.docs_reasons import shown_words
from reports.docs_render import drift_lines
from reports.matrix import Matrix, matrix_of
from scanner.claims import documented_claims, parse_claims
from scanner.errors import UsageError
from scanner.records import Claim, Mode
from scanner.verdicts import Finding, upper_bound
from tests.documented import docs_of, docstring, found, run_of, shown
from tests.evidence_runs import sentinel
from tests.runs import RUNS, Planned, row

CUDA = "when called on a CUDA tensor"


def only(docs: Docs) -> Judged:
    """Return the one claim that was judged."""
    (judged,) = docs.judged
    return judged


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
    assert "Not trustworthy: a control drifted" in "".join(docs_markdown.render(join([bad])))


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
    told = "".join(docs_markdown.render(docs))
    data = json.loads("".join(docs_json.render(docs)))
    why = "the sentinel (torch.index_put) differed in 1 of 11 executions beside it (mode on, process 0, load 0.5)"

    assert [judged.agreement for judged in docs.judged] == ["not_run", "confirmed"]
    assert docs.judged[0].reason == f"no evidence in 1 row: low power: {why}"
    assert "1 for, 1 of low power: `torch.b:" in told
    assert "| complete, 2 rows of low power |" in told
    assert [run["low_power"] for run in data["runs"]] == [{why: 2}, {}]
    assert [(one["reason"], one["low_power"]) for one in data["claims"][0]["rows"]] == [
        (f"low power: {why}", why)
    ]
    (raises,) = join([weak_run_of(claims, [shown("torch.b", "over_alert")], "off")]).judged[1].deciding
    assert shown_words(raises).endswith("with the flag off (0 of 100 differed, low power)")


def test_incomplete_runs_are_evidence_and_marked() -> None:
    """What a scan observed before it was killed counts; the table says that it did not finish."""
    claims = parse_claims(docstring([f"torch.a {CUDA}"]))
    docs = join([run_of(claims, [shown("torch.a", "fixed_by_mode")], complete=False)])

    assert only(docs).agreement == "confirmed"
    assert "Incomplete: the scan did not finish" in "".join(docs_markdown.render(docs))


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
    ("failing", "holding", "told"),
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
    failing: dict[str, Any], holding: dict[str, Any], told: str
) -> None:
    """A bullet that holds in some rows and fails in others says which condition tells them apart."""
    rows = [shown("torch.a", "raises", **failing), shown("torch.a", "fixed_by_mode", **holding)]
    judged = only(docs_of(docstring([f"torch.a {CUDA}"]), rows))

    assert judged.agreement == "contradicted"
    assert judged.reason == (
        f"says too much: raises in 1 row; holds in 1 row (0 of 100 differed with the flag on). {told}"
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


def test_the_same_run_is_refused_twice() -> None:
    """A run counts once, whatever its files are called; another start, or another machine, is another run."""
    claims, rows = parse_claims(docstring(["torch.a"])), [shown("torch.a", "raises")]
    one, copy, later = (
        run_of(claims, rows, name=name, started=started)
        for name, started in (("a.jsonl", "at noon"), ("b.jsonl.gz", "at noon"), ("c.jsonl", "later"))
    )

    with pytest.raises(UsageError) as raised:
        join([one, later, copy])

    assert str(raised.value) == (
        "a.jsonl and b.jsonl.gz are the same run, started at noon; give each run once"
    )
    assert len(join([one, later]).matrices) == 2


def test_what_an_unparsed_bullet_names_is_not_undocumented() -> None:
    """A bullet that was not understood may be about the rows: it is told, and so is the op it names, and no other."""
    text = docstring(["torch.a on Tuesdays"])
    docs = docs_of(text, [shown("torch.a", "raises"), shown("torch.a_b", "raises")])

    assert [one.op for one in docs.unread] == ["torch.a"]
    assert [one.op for one in docs.undocumented] == ["torch.a_b"]
    assert [line.partition(": ")[0] for line in drift_lines(docs)] == ["undocumented", "unparsed", "unread"]
    assert "unparsed: torch.a on Tuesdays" in list(drift_lines(docs))
    assert list(drift_lines(docs))[-1].endswith("an unparsed bullet names it")
    assert "* An unparsed bullet names `torch.a`, forward on cuda" in "".join(docs_markdown.render(docs))
    assert [one["op"] for one in json.loads("".join(docs_json.render(docs)))["unread"]] == ["torch.a"]


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


@pytest.mark.parametrize(
    ("finding", "expected"),
    [
        ("silent", True),
        ("raises", True),
        ("over_alert", True),
        ("fixed_by_mode", True),
        ("mode_dependent", False),
        ("deterministic", False),
        ("inconclusive", False),
    ],
)
def test_undocumented_rows_raise_or_differ(finding: Finding, expected: bool) -> None:
    """What raises or differs and has no bullet is undocumented; what shows nothing is not."""
    docs = docs_of(docstring(["torch.b"]), [shown("torch.a", finding)])

    assert expected == bool(docs.undocumented)


@pytest.mark.parametrize(("finding", "missing"), [("fixed_by_mode", []), ("silent", ["torch.empty"])])
def test_memory_that_the_flag_fills_misses_no_bullet(finding: Finding, missing: list[str]) -> None:
    """What uninitialised memory shows is documented elsewhere; that it still differs with the flag on is not."""
    planned = row("torch.empty", "floating", "forward", "float32", traits={"fill": "floating:NaN"})

    docs = docs_of(docstring(), [found(planned, finding)])

    assert missing == [one.op for one in docs.undocumented]
    assert len(docs.filled) == (not missing)
    assert ("Uninitialised memory" in "".join(docs_markdown.render(docs))) == (not missing)
    assert len(json.loads("".join(docs_json.render(docs)))["filled"]) == (not missing)


def test_undocumented_rows_are_grouped() -> None:
    """Rows of one op, device, direction and finding stand together; claims that name the op are mentioned."""
    text = docstring(["torch.a with ``x=True``", "torch.b on Tuesdays"])
    rows = [
        shown("torch.a", "raises", case="one"),
        shown("torch.a", "raises", case="two"),
        shown("torch.a", "raises", case="one", direction="backward"),
        shown("torch.a", "fixed_by_mode", traits={"x": "True"}),
        shown("mine.a", "raises"),
    ]
    docs = docs_of(text, rows)
    groups = [
        (one.op, one.device, one.direction, one.finding, len(one.evidence)) for one in docs.undocumented
    ]

    assert groups == [
        ("torch.a", "cuda", "backward", "raises", 1),
        ("torch.a", "cuda", "forward", "raises", 2),
    ]
    assert [claim.text for claim in docs.undocumented[0].named] == ["torch.a with ``x=True``"]
    assert [claim.text for claim in docs.unparsed] == ["torch.b on Tuesdays"]


def test_both_lists_of_2_15_contradict_each_other() -> None:
    """scatter_reduce stands in both lists of 2.15, which a run without claims takes from the table."""
    docs = join([run_of((), [shown("torch.b", "deterministic")], torch="2.15.0+cpu")])

    assert [tuple(claim.id for claim in pair) for pair in docs.self_contradictory] == [
        (
            "deterministic/torch.Tensor.scatter_reduce/cuda/reduce=mean,sum",
            "raises/torch.Tensor.scatter_reduce/cuda",
        )
    ]
    assert docs.claims == documented_claims("2.15.0")
    assert "those tabled for torch 2.15.0 stand in" in (docs.note or "")
    assert any(line.startswith("self_contradictory: ") for line in drift_lines(docs))


@pytest.mark.parametrize(
    ("torches", "texts", "message"),
    [
        (
            ("2.13.0+cpu", "2.11.0"),
            ("torch.a", "torch.a"),
            (
                "the runs document different lists: 0.jsonl is of torch 2.13.0 and 1.jsonl is of torch 2.11.0; give "
                "runs of one release at a time"
            ),
        ),
        (
            ("2.13.0+cpu", "2.13.0+cu130"),
            ("torch.a", "torch.b"),
            (
                "the runs document different lists: those of 1.jsonl are not those of 0.jsonl, though both are of "
                "torch 2.13.0; give runs of one build at a time"
            ),
        ),
    ],
)
def test_lists_of_two_builds_are_refused(
    torches: tuple[str, ...], texts: tuple[str, ...], message: str
) -> None:
    """Runs join only where they speak of the same lists; the message names both."""
    runs = [
        run_of(
            parse_claims(docstring([text])), [shown("torch.a", "raises")], name=f"{number}.jsonl", torch=torch
        )
        for number, (torch, text) in enumerate(zip(torches, texts, strict=True))
    ]

    with pytest.raises(UsageError) as raised:
        join(runs)

    assert message == str(raised.value)


def test_builds_of_one_release_join() -> None:
    """A CPU build and a CUDA build document the same lists; a run without claims takes the others'."""
    claims = parse_claims(docstring([f"torch.a {CUDA}"]))
    cpu = run_of((), [shown("torch.a", "fixed_by_mode", "cpu")], torch="2.13.0+cpu")
    cuda = run_of(claims, [shown("torch.a", "fixed_by_mode")], torch="2.13.0+cu130")

    assert only(join([cpu, cuda])).agreement == "confirmed"


def test_no_claims_and_no_table_is_refused() -> None:
    """Without a docstring and without a table nothing can be called undocumented."""
    with pytest.raises(
        UsageError, match=r"run\.jsonl: holds no claims .*no table of the claims of torch 9\.9"
    ):
        join([run_of((), [shown("torch.a", "raises")], torch="9.9.0")])


def every_agreement() -> tuple[str, list[Planned], list[Planned]]:
    """Return a docstring, a CPU run and a CUDA run that show every agreement and every kind of drift."""
    text = docstring(
        [
            ":func:`torch.a` when called on a CUDA tensor",
            ":func:`torch.b` when called on a CPU or CUDA tensor",
            ":func:`torch.both` when called on a CPU tensor",
            "torch.odd | on Tuesdays",
        ],
        [
            ":func:`torch.c` when called on a CUDA tensor",
            ":func:`torch.both`",
            ":func:`torch.gone` with ``x=True``",
            ":func:`torch.m` when called on an MPS tensor",
        ],
    )
    cpu = [
        shown("torch.b", "deterministic", "cpu"),
        shown("torch.both", "inconclusive", "cpu"),
        shown("torch.new_", "fixed_by_mode", "cpu"),
        shown("torch.m", "deterministic", "cpu"),
    ]
    cuda = [
        shown("torch.a", "fixed_by_mode"),
        shown("torch.b", "silent"),
        shown("torch.c", "raises"),
        shown("torch.c", "fixed_by_mode", dtype="int64"),
        shown("torch.new_", "raises", direction="backward"),
    ]
    return text, cpu, cuda


def test_json_has_the_promised_keys() -> None:
    """Each claim says what it says, what the runs say of it, and which rows decide."""
    docs = docs_of(*every_agreement())
    told = json.loads("".join(docs_json.render(docs)))

    assert {name: told["counts"][name] for name in AGREEMENT_MEANING} == {
        "contradicted": 2,
        "confirmed": 1,
        "not_triggered": 1,
        "not_run": 3,
        "not_covered": 1,
    }
    keys = ("section", "targets", "device", "direction", "conditions", "text", "agreement", "evidence")
    assert {key: told["claims"][0][key] for key in keys} == {
        "section": "deterministic",
        "targets": ["torch.a"],
        "device": "cuda",
        "direction": "any",
        "conditions": [],
        "text": ":func:`torch.a` when called on a CUDA tensor",
        "agreement": "confirmed",
        "evidence": ["torch.a:fixed_by_mode:forward:float32"],
    }
    assert [(one["op"], one["device"], one["finding"], one["evidence"]) for one in told["undocumented"]] == [
        ("torch.new_", "cpu", "fixed_by_mode", ["torch.new_:fixed_by_mode:forward:float32"]),
        ("torch.new_", "cuda", "raises", ["torch.new_:raises:backward:float32"]),
    ]
    assert [one["targets"] for one in told["self_contradictory"]] == [["torch.both"]]
    assert [one["text"] for one in told["unparsed"]] == ["torch.odd | on Tuesdays"]
    assert [(one["path"], one["upper_bound"]) for one in told["runs"]] == [
        ("cpu.jsonl", upper_bound(2 * RUNS)),
        ("cuda.jsonl", upper_bound(2 * RUNS)),
    ]


def test_markdown_tells_every_claim() -> None:
    """One row per claim with both modes' k of n, the bound, the legend, and the pipes escaped."""
    text = "".join(docs_markdown.render(docs_of(*every_agreement())))
    (line,) = [line for line in text.splitlines() if line.startswith("| `torch.a` when")]

    assert [cell.strip() for cell in line.split("|")[2:-1]] == [
        "deterministic",
        "cuda",
        "confirmed",
        "nondeterministic: 3 of 100 differed, 4 distinct",
        "deterministic: 0 of 100 differed, 1 distinct",
        "1 for: `torch.a:fixed_by_mode:forward:float32`",
    ]
    assert "with 95 % confidence: 2.95 % for n = 100" in text
    assert "* torch.odd \\| on Tuesdays (deterministic)\n" in text
    assert all(f"* **{plain}**" in text for plain in ("confirmed", "not_triggered", "undocumented", "silent"))
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in tables} == {4, 8, 9}


def test_drift_is_told_line_by_line() -> None:
    """The check names what is contradicted first, then undocumented, in both lists, and not covered."""
    told = [line.split(": ")[:2] for line in drift_lines(docs_of(*every_agreement()))]

    assert told == [
        ["contradicted", "deterministic/torch.b/cuda"],
        ["contradicted", "raises/torch.c/cuda"],
        ["undocumented", "torch.new_, forward on cpu"],
        ["undocumented", "torch.new_, backward on cuda"],
        ["self_contradictory", "deterministic/torch.both/cpu and raises/torch.both"],
        ["unparsed", "torch.odd | on Tuesdays"],
        ["not_covered", "raises/torch.gone/x=True"],
    ]


def test_no_drift_is_silent() -> None:
    """Lists that the rows confirm, or say nothing against, leave nothing to tell."""
    text = docstring(["torch.a"], ["torch.b"])
    docs = docs_of(text, [found(row("torch.a"), "deterministic"), found(row("torch.b"), "over_alert")])

    assert list(drift_lines(docs)) == []


def _sized(op: str, case: str, shape: str) -> Planned:
    """Return a row that differs without an alert, on an input of this shape."""
    planned, observations = shown(op, "silent", case=case)
    inputs = (f"args[0]: float32 {shape}", "args[1]: 0", "args[2]: int64 (2,)")
    return planned, [replace(one, inputs=inputs) for one in observations]


def test_undocumented_is_told_with_its_smallest_case() -> None:
    """Whoever looks into it starts with the fewest elements; strides are no part of a size."""
    rows = [
        _sized("torch.a", "large", "(1000, 2)"),
        _sized("torch.a", "small", "(5, 3), strides (1, 5)"),
        _sized("torch.a", "middle", "(40,)"),
    ]
    docs = docs_of(docstring(["torch.b"]), rows)
    (told,) = json.loads("".join(docs_json.render(docs)))["undocumented"]
    text = "".join(docs_markdown.render(docs))

    assert told["smallest"] == {"id": "torch.a:small:forward:float32", "elements": 17}
    assert "`torch.a:small:forward:float32`, 17 input elements" in text
    assert next(iter(drift_lines(docs))).endswith(": torch.a:small:forward:float32")


def test_the_smallest_case_may_have_no_size() -> None:
    """A row whose inputs were not recorded is not the smallest, unless there is no other."""
    unknown = shown("torch.a", "silent", case="unknown")
    unsized = unknown[0], [replace(one, inputs=()) for one in unknown[1]]
    of_two = docs_of(docstring(["torch.b"]), [unsized, _sized("torch.a", "sized", "(5,)")])
    of_one = docs_of(docstring(["torch.b"]), [unsized])

    assert of_two.undocumented[0].smallest[0].row.row.case == "sized"
    assert of_one.undocumented[0].smallest[1] is None
