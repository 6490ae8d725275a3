"""Judged claims in Markdown and JSON, and what a check tells of drift."""

from __future__ import annotations

import json

from reports.docs import view as docs_render
from reports.docs.judge import AGREEMENT_MEANING
from reports.docs.view import RENDERERS, drift_lines
from scanner.verdicts.bound import upper_bound
from tests.compared import shows
from tests.documented import docs_of, docstring, shown
from tests.runs import RUNS, Planned, row


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
    text = json.loads("".join(docs_render.as_json(docs)))

    assert {name: text["counts"][name] for name in AGREEMENT_MEANING} == {
        "contradicted": 2,
        "confirmed": 1,
        "not_triggered": 1,
        "not_run": 3,
        "not_covered": 1,
    }
    keys = ("section", "targets", "device", "direction", "conditions", "text", "agreement", "evidence")
    assert {key: text["claims"][0][key] for key in keys} == {
        "section": "deterministic",
        "targets": ["torch.a"],
        "device": "cuda",
        "direction": "any",
        "conditions": [],
        "text": ":func:`torch.a` when called on a CUDA tensor",
        "agreement": "confirmed",
        "evidence": ["torch.a:fixed_by_mode:forward:float32"],
    }
    assert [(one["op"], one["device"], one["finding"], one["evidence"]) for one in text["undocumented"]] == [
        ("torch.new_", "cpu", "fixed_by_mode", ["torch.new_:fixed_by_mode:forward:float32"]),
        ("torch.new_", "cuda", "raises", ["torch.new_:raises:backward:float32"]),
    ]
    assert [one["targets"] for one in text["self_contradictory"]] == [["torch.both"]]
    assert [one["text"] for one in text["unparsed"]] == ["torch.odd | on Tuesdays"]
    assert [(one["path"], one["upper_bound"]) for one in text["runs"]] == [
        ("cpu.jsonl", upper_bound((RUNS, RUNS))),
        ("cuda.jsonl", upper_bound((RUNS, RUNS))),
    ]


def test_markdown_tells_every_claim() -> None:
    """One row per claim with both modes' k of n, the bound, the legend, and the pipes escaped."""
    text = "".join(docs_render.markdown(docs_of(*every_agreement())))
    (line,) = [line for line in text.splitlines() if line.startswith("| `torch.a` when")]

    assert [cell.strip() for cell in line.split("|")[2:-1]] == [
        "deterministic",
        "cuda",
        "confirmed",
        "nondeterministic: 3 of 100 differed, 4 distinct",
        "deterministic: 0 of 100 differed, 1 distinct",
        "1 for: `torch.a:fixed_by_mode:forward:float32`",
    ]
    assert "with 95 % confidence: 18.7 % for n = 100 in 2 processes" in text
    assert "* torch.odd \\| on Tuesdays (deterministic)\n" in text
    assert all(f"* **{plain}**" in text for plain in ("confirmed", "not_triggered", "undocumented", "silent"))
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in tables} == {4, 8, 9}


def test_drift_is_told_line_by_line() -> None:
    """The check names what is contradicted first, then undocumented, in both lists, and not covered."""
    lines = [line.split(": ")[:2] for line in drift_lines(docs_of(*every_agreement()))]

    assert lines == [
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
    docs = docs_of(text, [shows("deterministic", row("torch.a")), shows("over_alert", row("torch.b"))])

    assert list(drift_lines(docs)) == []


def test_a_bullet_of_any_device_says_where_it_was_measured() -> None:
    """What was seen on the CPU alone is not taken for what happens on every device."""
    text = docstring([":func:`torch.add`"])
    on_both = [[shown("torch.add", "fixed_by_mode", device)] for device in ("cpu", "cuda")]

    for runs, devices in ((on_both[:1], ["cpu"]), (on_both, ["cpu", "cuda"])):
        docs = docs_of(text, *runs)
        (claim,) = json.loads("".join(RENDERERS["json"](docs)))["claims"]
        assert (claim["agreement"], claim["devices"]) == ("confirmed", devices)
        table = " ".join("".join(RENDERERS["md"](docs)).split())
        assert f"| any | confirmed on {' and '.join(devices)} |" in table
