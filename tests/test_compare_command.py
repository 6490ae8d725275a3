"""The compare command: the same bytes every time, checks for CI, and errors of one line each."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from reports.compare.judge import CLASS_MEANING
from reports.compare.render import RENDERERS
from reports.compare.render import markdown as render
from reports.compare.runs import compare
from scanner.claims.tables import parse_claims
from scanner.verdicts.findings import Finding
from tests.commands import Command, rendered_by_process
from tests.compared import run_of, shows
from tests.conftest import one_line
from tests.documented import docstring
from tests.evidence_runs import cost
from tests.runs import CLOSING, ENVIRONMENT, ended, raised, row, write_run

ROOT = Path(__file__).parent.parent
RECORDED = [ROOT / f"reports/runs/torch-{version}-cpu.jsonl.gz" for version in ("2.13.0", "2.15.0")]
OPS = ("torch.add", "torch.put", "torch.take", "torch.sort")
VERSIONS: dict[str, tuple[Finding, ...]] = {
    "2.11.0": ("raises", "deterministic", "fixed_by_mode", "deterministic"),
    "2.13.0": ("fixed_by_mode", "deterministic", "fixed_by_mode", "deterministic"),
    "2.15.0": ("fixed_by_mode", "silent", "deterministic", "deterministic"),
}


def write(folder: Path, version: str, findings: Iterable[Finding], **fields: Any) -> Path:
    """Write a run of a torch that shows findings, one op each."""
    rows = [shows(finding, row(op)) for op, finding in zip(OPS, findings, strict=False)]
    return write_run(
        folder / f"{version}.jsonl", rows, environment=replace(ENVIRONMENT, torch=version), **fields
    )


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """Return the runs of three versions: one op stopped raising, one became silent, one deterministic."""
    return [write(tmp_path, version, findings) for version, findings in VERSIONS.items()]


def test_same_bytes_every_time(detmatrix: Command, runs: list[Path]) -> None:
    """A comparison holds no date of its own, no folder, and nothing that hashing could reorder."""
    elsewhere = runs[0].parent / "elsewhere"
    elsewhere.mkdir()
    copies = [elsewhere / run.name for run in runs]
    for run, copy in zip(runs, copies, strict=True):
        copy.write_bytes(run.read_bytes())

    written = rendered_by_process(elsewhere, RENDERERS, "compare", *copies, without=["torch"])

    for form in RENDERERS:
        text = detmatrix("compare", *runs, "--format", form).stdout
        assert text.encode() == written[form]
        assert str(runs[0].parent) not in text


@pytest.mark.parametrize("form", RENDERERS)
def test_written_file_is_what_stdout_shows(detmatrix: Command, runs: list[Path], form: str) -> None:
    """-o writes the same bytes; a check then prints its rows alone."""
    shown = detmatrix("compare", *runs, "--format", form).stdout
    written = detmatrix("compare", *runs, "--format", form, "--fail-on", "regression", "-o", "out")

    assert (written.returncode, written.stderr) == (1, "Wrote out\n" if form == "html" else "")
    assert "regressed (unconfirmed): torch.put:" in one_line(written.stdout)
    assert shown == (runs[0].parent / "out").read_bytes().decode()


def test_a_check_prints_what_regressed_first(detmatrix: Command, runs: list[Path]) -> None:
    """For CI: exit 1, and the regressed rows before the report, one line each."""
    checked = detmatrix("compare", *runs, "--fail-on", "regression")
    shown = detmatrix("compare", *runs)
    first, rest = checked.stdout.split("\n\n", 1)

    assert (checked.returncode, shown.returncode) == (1, 0)
    assert one_line(first).startswith(
        "regressed (unconfirmed): torch.put:collisions:forward:float32: deterministic (n = 100) → silent "
        "(2.13.0.jsonl → 2.15.0.jsonl); on: 0 of 98 → 19 of 98 further executions differed, p = "
    )
    assert shown.stdout == rest


def test_a_check_of_any_change(detmatrix: Command, runs: list[Path]) -> None:
    """--fail-on change tells what regressed, then what improved, then what else changed."""
    checked = detmatrix("compare", *runs, "--fail-on", "change", "-o", "out.md")

    assert checked.returncode == 1
    assert [tuple(line.split(":")[0:2]) for line in checked.stdout.replace(": ", ":").splitlines()] == [
        ("regressed (unconfirmed)", "torch.put"),
        ("improved (unconfirmed)", "torch.add"),
        ("improved (unconfirmed)", "torch.take"),
    ]


@pytest.mark.parametrize("check", ["regression", "change"])
@pytest.mark.parametrize("run", [*RECORDED[:1], "2.13.0.jsonl"])
def test_a_run_with_itself_passes_every_check(
    detmatrix: Command, runs: list[Path], run: Path | str, check: str
) -> None:
    """The same run twice is the same in every row."""
    path = runs[0].parent / run
    done = detmatrix("compare", path, path, "--fail-on", check, "--format", "json")
    (pair,) = json.loads(done.stdout)["pairs"]

    assert (done.returncode, done.stderr) == (0, "")
    assert len(pair["rows"]) == pair["counts"]["same"] == sum(pair["counts"].values()) > 0


def test_improvements_are_no_regressions(detmatrix: Command, runs: list[Path]) -> None:
    """--fail-on regression passes what improved; --fail-on change does not."""
    codes = [
        detmatrix("compare", *runs[:2], "--fail-on", check).returncode for check in ("regression", "change")
    ]

    assert codes == [0, 1]


def test_a_check_that_could_compare_nothing_fails(detmatrix: Command, runs: list[Path]) -> None:
    """An untrusted run, or one of another machine, is no all-clear; JSON on standard output stays JSON."""
    closing = replace(CLOSING, distrust=("the control varies shows nothing",))
    void = write(runs[0].parent, "void", VERSIONS["2.13.0"], closing=closing)
    done = detmatrix("compare", runs[1], void, "--fail-on", "regression", "--format", "json")

    assert done.returncode == 1
    assert (
        one_line(done.stderr)
        == "nothing compared: 2.13.0.jsonl → void.jsonl: untrusted_run: void.jsonl: the control varies shows nothing"
    )
    assert {"untrusted_run"} == {one["reason"] for one in json.loads(done.stdout)["pairs"][0]["rows"]}


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "detmatrix: Missing argument 'RUN RUN...' (see detmatrix compare --help)"),
        (
            ["2.11.0.jsonl"],
            2,
            "detmatrix: 2.11.0.jsonl: one run has nothing to be compared with; give at least two",
        ),
        (
            ["2.11.0.jsonl", "gone.jsonl"],
            3,
            "detmatrix: gone.jsonl: cannot be read (No such file or directory); give a file that scan wrote",
        ),
        (
            ["2.11.0.jsonl", "2.13.0.jsonl", "-o", "2.11.0.jsonl"],
            2,
            "detmatrix: 2.11.0.jsonl: is one of the run files reported on; choose another place with -o",
        ),
        (
            # Before anything is measured: there are no such interpreters.
            [
                "2.11.0.jsonl",
                "2.13.0.jsonl",
                "--confirm",
                "--python",
                "a",
                "--python",
                "b",
                "-o",
                "gone/out.md",
            ],
            2,
            "detmatrix: gone/out.md: cannot be written (No such file or directory); choose another place with -o",
        ),
        (
            ["2.11.0.jsonl", "\x1b]0;title\x07.jsonl"],
            3,
            (
                "detmatrix: \\x1b]0;title\\x07.jsonl: cannot be read (No such file or directory); give a file that scan "
                "wrote"
            ),
        ),
        (
            ["2.11.0.jsonl", "2.13.0.jsonl", "--fail-on", "everything"],
            2,
            (
                "detmatrix: Invalid value for '--fail-on': unknown class 'everything'; choose: regression, change, "
                "regressed, improved, changed, added, removed (see detmatrix compare --help)"
            ),
        ),
    ],
)
def test_errors_are_one_line(
    detmatrix: Command, runs: list[Path], arguments: list[str], code: int, message: str
) -> None:
    """What a user can get wrong ends in one line and its exit code."""
    assert runs
    done = detmatrix("compare", *arguments)

    assert (code, "", message) == (done.returncode, done.stdout, one_line(done.stderr))


def test_json_holds_what_is_promised(detmatrix: Command, runs: list[Path]) -> None:
    """Runs, pairs with counts, rows, claims and cost, and what the classes mean."""
    text = json.loads(detmatrix("compare", *runs, "--format", "json").stdout)

    assert [one["path"] for one in text["runs"]] == ["2.11.0.jsonl", "2.13.0.jsonl", "2.15.0.jsonl"]
    assert [(one["from"], one["to"]) for one in text["pairs"]] == [
        ("2.11.0.jsonl", "2.13.0.jsonl"),
        ("2.13.0.jsonl", "2.15.0.jsonl"),
    ]
    assert text["classes"] == CLASS_MEANING
    for pair in text["pairs"]:
        assert {"from", "to", "counts", "rows", "claims", "cost"} <= pair.keys()
        assert pair["counts"] == {
            kind: sum(one["class"] == kind for one in pair["rows"]) for kind in CLASS_MEANING
        }
    put = text["pairs"][1]["rows"][1]
    assert (put["class"], put["confirmed"], put["reason"]) == ("regressed", False, None)
    assert (put["from"]["finding"], put["to"]["finding"]) == ("deterministic", "silent")
    (test,) = put["tests"]
    assert (
        test["mode"],
        test["from"],
        test["to"],
        test["differ"],
    ) == ("on", {"differing": 0, "compared": 98}, {"differing": 19, "compared": 98}, True)


def _text(*matrices: Any) -> str:
    return "".join(render(compare(matrices)))


def _line(text: str, word: str) -> list[str]:
    """Return the cells of the only table line with a word."""
    (line,) = [line for line in text.splitlines() if word in line and line.startswith("|")]
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def test_markdown_tells_what_changed_worst_first() -> None:
    """Caveats and runs first, then counts, then the classes in their order, each row with both runs' cells."""
    old = run_of(
        *(shows(finding, row(op)) for op, finding in zip(OPS, VERSIONS["2.13.0"], strict=True)), name="a"
    )
    new = run_of(
        *(shows(finding, row(op)) for op, finding in zip(OPS, VERSIONS["2.15.0"], strict=True)),
        name="b",
        torch="2.15.0",
    )
    text = _text(old, new)
    places = [
        text.index(part)
        for part in ("# torch 2.13.0+cpu → torch 2.15.0", "no controls", "| run", "| class", "### Regressed")
    ]

    assert sorted(places) == places
    assert text.index("### Regressed") < text.index("### Improved") < text.index("### Documentation")
    assert "## Timeline" not in text
    assert _line(text, "torch.put:")[:6] == [
        "`torch.put:collisions:forward:float32`",
        "regressed (unconfirmed)",
        "deterministic (n = 100) → silent",
        "deterministic, 0 of 100 differed",
        "deterministic, 0 of 100 differed → nondeterministic, 19 of 100 differed",
        "not listed",
    ]
    assert "torch.sort" not in text


def test_markdown_timeline() -> None:
    """More than two versions stand side by side, each cell with the class of its change and what is documented."""
    claims = {
        "a": parse_claims(docstring([], [":func:`torch.add`"])),
        "b": parse_claims(docstring([":func:`torch.add`"], [])),
        "c": (),
    }
    runs = [
        run_of(
            *(shows(finding, row(op)) for op, finding in zip(OPS, findings, strict=True)),
            name=name,
            torch=version,
            claims=claims[name],
        )
        for (version, findings), name in zip(VERSIONS.items(), claims, strict=True)
    ]
    table = _text(*runs).split("## Timeline on cpu")[1].split("\n## ")[0]

    assert "3 of 4 rows, those that changed from one run to the next" in table
    assert _line(table, "torch.add:")[1:] == [
        "1",
        "raises; documented: raises",
        "**improved (unconfirmed)**: fixed_by_mode; documented: acts",
        "fixed_by_mode; documented: not listed",
    ]
    assert "torch.sort" not in table


def test_a_run_without_lists_is_not_said_to_list_nothing() -> None:
    """Where no list is known of a release, Markdown and the page say that, and not that an op is not listed."""
    findings: dict[str, Finding] = {"9.0": "raises", "9.1": "silent", "9.2": "raises"}
    runs = [run_of(shows(finding), name=torch, torch=torch) for torch, finding in findings.items()]

    table = _text(*runs).split("## Timeline on cpu")[1].split("\n## ")[0]
    page = "".join(RENDERERS["html"](compare(runs), ()))
    assert table.count("; documented: no lists") == page.count(">doc: no lists<") == 3
    assert "not listed" not in table


def test_markdown_groups_what_is_not_comparable() -> None:
    """Each reason once: first the rows that seem to have changed, then the others."""
    add, put = row("torch.add"), row("torch.put")
    unknown = put, ended(put, "off", "not_run", "no such op")
    text = _text(
        run_of(shows("fixed_by_mode", add, often=3), unknown, name="a"),
        run_of(shows("deterministic", add), shows("raises", put), name="b"),
    )

    assert "**too_few_executions**" in text
    assert _line(text, "torch.add:")[1] == "not_comparable (seems improved)"
    message = next(line for line in text.splitlines() if "no such op" in line)
    assert message.startswith("* before: off: not_run (no such op)")
    assert message.endswith("after, flag on: raises: `torch.put:collisions:forward:float32`")


def test_markdown_tells_cost_and_documentation() -> None:
    """Ratios within each run with their spread, and each changed bullet beside its rows."""
    add = row("torch.add")
    bullet = ":func:`torch.add`"
    text = _text(
        run_of(shows("fixed_by_mode", add), name="a", costs=[cost(add, 1e-5, 1e-5)], claims=_lists(bullet)),
        run_of(shows("fixed_by_mode", add), name="b", costs=[cost(add, 1e-5, 4e-5)], claims=_lists()),
    )

    assert _line(text, "| torch.add ") == [
        "torch.add",
        "dropped",
        "any",
        "raises → none",
        "same",
        "1 same: fixed_by_mode",
    ]
    assert "Documented changes without a measured one:\n\n* torch.add (dropped)" in text
    assert "4.00" in _line(text, "`torch.add:")[3]
    assert "the median ratio is" in text


def _lists(*raising: str) -> Any:
    return parse_claims(docstring([":func:`torch.sub`"], raising))


HOSTILE = "evil`|<b>\n# head\x1b[31m*x*"


def test_everything_a_run_says_is_escaped() -> None:
    """Names, versions, reasons, alerts and bullets of a file cannot leave their place."""
    planned, put = row(f"torch.{HOSTILE}", HOSTILE, dtype=HOSTILE), row("torch.put")
    broken = planned, ended(planned, "off", "raised", HOSTILE, exception=HOSTILE)
    alert = put, [*shows("deterministic", put)[1][:2], *raised(put, "on", HOSTILE.replace("\n", ""))]
    claims = parse_claims(docstring([f":func:`torch.add` {HOSTILE}"], []))
    fields: dict[str, Any] = {"torch": HOSTILE, "cpu": HOSTILE, "python": HOSTILE}
    runs = [
        run_of(shows("raises", planned), alert, name=HOSTILE, **fields),
        run_of(shows("silent", planned), shows("over_alert", put), name="b", claims=claims, **fields),
        run_of(broken, shows("silent", put), name="c", **fields),
        run_of(broken, shows("silent", put), name="d", distrust=(HOSTILE,), **fields),
    ]
    text = _text(*runs)

    # All places are reached in which a file's words stand.
    assert [tuple(change.kind for change in pair.changes) for pair in compare(runs).pairs] == [
        ("regressed", "changed"),
        ("not_comparable", "regressed"),
        ("not_comparable", "not_comparable"),
    ]
    assert not [c for c in text if not c.isprintable() and c != "\n"]
    assert "<b>" not in _outside_code(text)
    assert not [line for line in text.splitlines() if line.startswith("# head")]
    assert _widths(text) == {True}


def _outside_code(text: str) -> str:
    """Return Markdown without its code spans; those of this test open with two backticks."""
    return "".join(part for place, part in enumerate(text.split("``")) if place % 2 == 0)


def _widths(text: str) -> set[bool]:
    """Tell of each table whether all of its lines have as many cells as its head."""
    found = set()
    for block in text.split("\n\n"):
        lines = [line for line in block.splitlines() if line.startswith("|")]
        counts = {line.replace("\\|", "").count("|") for line in lines}
        if lines:
            found.add(len(counts) == 1)
    return found


def test_recorded_runs(detmatrix: Command) -> None:
    """Compressed files are compared as they are, and nothing changed between them."""
    done = detmatrix("compare", *RECORDED, "--fail-on", "change")

    assert done.returncode == 0
    assert "no controls" not in done.stdout
    assert _line(done.stdout, "| same ")[:2] == ["same", "665"]
