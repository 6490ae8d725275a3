"""Documented claims held against rows, what decides each, what the lists do not say; and the lists written again."""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import re
import shutil
import subprocess
import textwrap
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from detmatrix.reports.docs.judge import Docs, join
from detmatrix.reports.docs.regenerate import HEADINGS, INDENT, RegeneratedLists, role_of, write
from detmatrix.reports.docs.view import RENDERERS, pull_requests, render_diff, render_rst
from detmatrix.scanner.claims.matching import matches
from detmatrix.scanner.claims.tables import documented_claims, documented_versions, parse_claims
from detmatrix.scanner.observations.records import Claim, CpuComparison, Observation
from detmatrix.scanner.verdicts.vocabulary import FINDINGS, Finding
from tests.commands import Command
from tests.compared import run_of, shows
from tests.conftest import one_line, table
from tests.documented import (
    CPU,
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
from tests.runs import SETTINGS, Planned, row, write_run


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
        rows = [shown("torch.a", it, device, case=f"case{place}") for place, it in enumerate(shown_)]

        assert agreements(f"torch.a when called on a {device.upper()} tensor", rows) == [acting, raising]
        assert agreements("torch.a in some cases", rows)[1] == vague
    # The mode on sets CUBLAS_WORKSPACE_CONFIG, so that a cuBLAS op confirms by acting deterministically.
    listed = f"Sets.\n\n{CUBLAS}\n        * :func:`torch.a`\n"
    assert only(docs_of(listed, rows)).agreement == acting


def test_an_alert_is_proof_however_seldom_the_row_was_executed() -> None:
    """A row that raises confirms its bullet although too few executions say whether it differs."""
    (planned, seen) = shown("torch.a", "over_alert")
    few = [replace(one, executions=2, digests={"a": 2}) if one.mode == "off" else one for one in seen]
    docs = docs_of(docstring([], [f"torch.a {CUDA}"]), [(planned, few)])

    assert (docs.rows[0].row.finding, only(docs).agreement) == ("inconclusive", "confirmed")
    assert "the alert is raised, though no difference was seen with the flag off (0 of 4" in only(docs).reason


@pytest.mark.parametrize("doubt", [weak, serial])
@pytest.mark.parametrize(("finding", "acting", "raising"), table("claims.txt", "doubted"))
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


@pytest.mark.parametrize(("shown_by", "held"), table("claims.txt", "held"))
def test_only_what_gpus_are_known_to_do_changes_a_list(shown_by: str, held: str) -> None:
    """A difference goes upstream by its class, with kernels of real size; the alert is host code's and always counts."""
    known, held = json.loads(shown_by), held.replace("nothing", "")
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


# The documented lists written again: what stays, moves, splits, narrows, appears, and why.

LISTS = (Path(__file__).parent / "data" / "lists.txt").read_text(encoding="utf-8")


def test_without_evidence_nothing_changes() -> None:
    """The lists of the installed torch come out byte for byte as its docstring has them."""
    installed = torch.use_deterministic_algorithms.__doc__ or ""
    docs = docs_of(installed, [shown("torch.unheard_of", "deterministic", "cpu")])
    text, cleaned = "".join(RENDERERS["rst"](docs)), inspect.cleandoc(installed).splitlines()

    assert text in "".join(f"    {line}\n" if line else "\n" for line in cleaned)
    assert text.count("* :") == len({claim.order for claim in docs.claims if claim.source})
    assert not [*RENDERERS["diff"](docs)]


@pytest.mark.parametrize("version", documented_versions())
def test_every_documented_bullet_can_be_written(version: str) -> None:
    """What any release says of an op can be said again, but for what uninitialised memory is filled with."""
    for claim in documented_claims(version):
        if claim.section not in {"deterministic", "raises"}:
            continue
        fills = any(condition.kind == "fill" for condition in claim.conditions)

        assert (write(claim, claim.text) is None) == fills


@pytest.mark.parametrize("block", LISTS.split("\n\n")[1:], ids=lambda block: " ".join(block.split())[:90])
def test_what_the_lists_become(block: str) -> None:
    """Bullets appear, move, split and narrow as rows show, say no more than rows do, and written a second time stay as they are."""
    acting, raising, measured, acting_then, raising_then, told = (
        [line.replace("\\n", "\n") for line in re.findall(rf"^{mark} (.*)$", block, re.MULTILINE)]
        for mark in ("acts", "raises", r"\+", "=> acts", "=> raises", "told")
    )
    rows = []
    for finding, _, fields in (line.partition(" ") for line in measured):
        named = {"op": "torch.a", "finding": finding, **json.loads(fields or "{}")}
        rows.append(shown(**named))
    found = RegeneratedLists(docs_of(docstring(["torch.y", *acting], ["torch.x", *raising]), rows))

    assert bullets(found.regenerated) == (["torch.y", *acting_then], ["torch.x", *raising_then])
    assert all(text in " ".join(found.notes) for text in told)
    assert RegeneratedLists(docs_of(found.regenerated, rows)).regenerated == found.regenerated


BOTH = "``reduce='sum'`` or ``reduce='mean'``"
# A busy machine draws examples slowly.
PATIENT = settings(max_examples=50)
OPS = st.sampled_from(["torch.a", "torch.nn.B", "torch.Tensor.c_"])
TRAITS = {
    "reduce": st.sampled_from(["sum", "mean", "prod"]),
    "accumulate": st.sampled_from(["True", "False"]),
}
bullet_texts = st.builds(
    lambda ops, *said: " ".join([", ".join(map(role_of, ops)), *filter(None, said)]),
    st.lists(OPS, min_size=1, max_size=3, unique=True),
    st.sampled_from(["", "with ``accumulate=True``", f"when {BOTH}", "with integer dtype"]),
    st.sampled_from(["", CPU, CUDA, "when called on a CPU or CUDA tensor", BACKWARD]),
)
measured_rows = st.lists(
    st.tuples(
        OPS,
        st.sampled_from(FINDINGS),
        st.sampled_from(["cpu", "cuda"]),
        st.fixed_dictionaries(
            {
                "direction": st.sampled_from(["forward", "backward"]),
                "dtype": st.sampled_from(["float32", "int64"]),
                "traits": st.fixed_dictionaries({}, optional=TRAITS),
            }
        ),
    ),
    max_size=8,
)


def planned(measured: list[Any]) -> list[Planned]:
    return [
        shown(op, finding, device, case=f"case{number}", **fields)
        for number, (op, finding, device, fields) in enumerate(measured)
    ]


def sources(text: str, section: str) -> dict[int, str]:
    """Return the lines of each bullet of a list by its place."""
    return {claim.order: claim.source or "" for claim in parse_claims(text) if claim.section == section}


@PATIENT
@given(
    st.lists(bullet_texts, max_size=5, unique=True),
    st.lists(bullet_texts, max_size=5, unique=True),
    measured_rows,
)
def test_any_evidence(acting: list[str], raising: list[str], measured: list[Any]) -> None:
    """Bullets without evidence keep their lines and order, all bullets parse, and a second time nothing changes."""
    text = docstring([*acting, "torch.z"], raising)
    rows = planned(measured)
    docs = docs_of(text, rows)
    found = RegeneratedLists(docs)

    for section in ("deterministic", "raises"):
        left = iter(sources(found.regenerated, section).values())
        for order, source in sources(text, section).items():
            claims = [claim for claim in docs.claims if claim.order == order]
            if not any(matches(row, claim) for row, _ in rows for claim in claims):
                # An iterator that is searched goes on behind what was found: the order is kept, too.
                assert source in left
    assert all(claim.parsed for claim in parse_claims(found.regenerated))
    again = RegeneratedLists(docs_of(found.regenerated, rows))
    assert again.documented == again.regenerated == found.regenerated


# What bullets are made of, and what breaks parsers.
FRAGMENTS = [
    *(":func:`torch.a`", "``torch.b``", ", ", " and ", " when ", "called on a CUDA tensor", "CPU or CUDA"),
    *("``reduce='sum'``", "accumulate=True", "that requires grad", "dtype is complex", "in some cases"),
    *["`", "``", ":", "*", "-", "=", "'", "\\", "[", "]", "|", "?"],
    *("- ", "\t", "\r", "\x0b", "\x85", "\u2028", "\ud800"),
]  # fmt: skip
lines = st.lists(
    st.sampled_from(FRAGMENTS) | st.text(st.characters(exclude_characters="\n"), max_size=4), max_size=6
).map("".join)
texts = st.lists(lines | st.sampled_from([*HEADINGS.values(), CUBLAS, "", "        * ", "      - "])).map(
    "\n".join
)

some = st.lists(lines, min_size=1, max_size=3)


@given(st.builds(docstring, some, some) | texts, measured_rows)
def test_odd_docstrings_are_no_error(text: str, measured: list[Any]) -> None:
    """Any text gives claims with distinct ids, the same each time, that survive being written; bullets that are not understood stay."""
    found = parse_claims(text)

    assert parse_claims(text) == found
    assert max(Counter(claim.id for claim in found).values(), default=1) == 1
    assert msgspec.json.decode(msgspec.json.encode(found), type=tuple[Claim, ...]) == found
    lists = RegeneratedLists(docs_of(text, planned(measured))).regenerated if found else ""
    for claim in found:
        if not claim.parsed and claim.section in {"deterministic", "raises"}:
            assert textwrap.indent((claim.source or "").rstrip("\n"), INDENT) in lists


# The docs command: blocks, the patch, and reports for maintainers.


def test_the_block_is_checked(detmatrix: Command, tmp_path: Path) -> None:
    """With --check it is only told whether it is stale; drift in the lists is no failure of the block. A golden has what is written."""
    contradicted = parse_claims(docstring([f"torch.a {CPU}"]))
    write_run(tmp_path / "run.jsonl", [shows("raises", row("torch.a"))], claims=contradicted)
    (tmp_path / "LISTS.md").write_text("<!-- detmatrix docs:begin -->\n<!-- detmatrix docs:end -->\n")
    command = ("docs", "run.jsonl", "--into", "LISTS.md")
    stale, written, current = (detmatrix(*command, *more) for more in (["--check"], [], ["--check"]))

    assert [done.returncode for done in (stale, written, current)] == [1, 0, 0]
    made = "detmatrix docs run.jsonl --format md --into LISTS.md"
    assert one_line(stale.stdout) == f"LISTS.md: the block 'docs' is stale; regenerate it with {made}"
    assert (written.stdout, current.stdout) == ("", "")


ROOT = Path(__file__).parent.parent


def test_git_applies_to_the_file_of_the_installed_torch(detmatrix: Command, tmp_path: Path) -> None:
    """The lists of a release are laid out as they are read: a bullet that fails moves, and git takes the patch."""
    rows = [shows("fixed_by_mode", row("torch.nn.AvgPool3d", direction="backward", device="cuda:0"))]
    claims = parse_claims(torch.use_deterministic_algorithms.__doc__ or "")
    write_run(tmp_path / "run.jsonl", rows, claims=claims, settings=replace(SETTINGS, device="cuda:0"))
    copy = tmp_path / "checkout" / "torch" / "__init__.py"
    copy.parent.mkdir(parents=True)
    shutil.copy(torch.__file__, copy)
    command = ("docs", "run.jsonl", "--format", "patch", "--source", copy)
    patch = detmatrix(*command).stdout
    for git in (["init", "-q"], ["apply", "--verbose", "-"]):
        subprocess.run(["git", *git], input=patch, text=True, check=True, cwd=tmp_path / "checkout")
    again = detmatrix(*command)

    assert (again.returncode, again.stdout, one_line(again.stderr)) == (
        0,
        "",
        f"{copy}: nothing to change by what these runs show",
    )
    assert sum(line[:1] in "+-" and line[:3] not in {"+++", "---"} for line in patch.splitlines()) == 2
    assert "        * :class:`torch.nn.AvgPool3d` when attempting" in copy.read_text()


@pytest.mark.parametrize(("op", "title", "told", "test"), table("claims.txt", "maintainers"))
def test_maintainers_get_a_report(detmatrix: Command, op: str, title: str, told: str, test: str) -> None:
    """Title, standing, entries, a test and a repro of 15 lines, both Python that runs; a wrong row proposes no change of the lists."""
    twice = ("--op", op, "--op", op)  # which is told once
    text = detmatrix("docs", ROOT / "tests/data/simulated.jsonl.gz", "--format", "pr", *twice).stdout
    tested, repro = re.findall(r"```python\n(.*?)```", text, re.DOTALL)

    assert text.startswith(f"# {op}: {title}\n")
    assert told in text.replace("\\", "")
    assert test in tested
    assert "```diff" not in text
    assert len(repro.splitlines()) <= 15
    compile(tested, "test", "exec")
    # On a CPU, where nothing differs.
    assert _printed(repro.replace('"cuda"', '"cpu"')).startswith("0 ")
    # Rounding is no wrong element.
    for factor, found in (("1.0001", "0"), ("2", "288")) if "isclose" in repro else ():
        gpu = f"[{factor} * one for one in run('cpu')]"
        off = _printed(repro.replace('run("cuda")', gpu))
        assert off == f"{found} elements are not the CPU's by more than a relative 0.001; 0 after the fix\n"


def _printed(code: str) -> str:
    """Return what a script prints, run in this process, and put the flag back."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(code, {})
    finally:
        torch.use_deterministic_algorithms(False)
    return printed.getvalue()
