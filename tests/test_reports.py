"""Reports of synthetic runs, in what goldens cannot show: escapes, blocks, terminals, trust, advice; and how the command writes them."""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import json
import os
import re
import subprocess
import sys
import webbrowser
from pathlib import Path
from typing import Any

import jinja2
import pytest
from msgspec.structs import replace

from detmatrix.reports import render
from detmatrix.reports.checks import render_github
from detmatrix.reports.commands import Block, command_words
from detmatrix.reports.matrix.model import Matrix, load
from detmatrix.reports.matrix.run_words import bound_words
from detmatrix.reports.render import NARROW as WIDTH
from detmatrix.reports.render import View, code, fitted, plain, write_whole
from detmatrix.reports.report import text as terminal
from detmatrix.reports.report.view import report_view
from detmatrix.scanner.errors import UsageError
from detmatrix.scanner.modes import MODES
from detmatrix.scanner.observations.records import Closing, Cost
from detmatrix.scanner.verdicts.vocabulary import Finding
from tests import tied
from tests.commands import Command
from tests.compared import OFTEN, run_of, shows
from tests.conftest import one_line, table
from tests.evidence_runs import FORCING, ONE, controls, cost, only, text
from tests.runs import CLOSING, Planned, drifting, ended, raised, ran, row, seen, stable, write_run
from tests.stand_in import StandIn


@pytest.mark.parametrize(("escape", "given", "shown"), table("reports.txt", "cells"))
def test_text_in_cells(escape: str, given: str, shown: str) -> None:
    """A code span holds whatever it is given, on one line; plain text keeps its look and loses its markup."""
    text, cell = (codecs.decode(it, "unicode_escape") for it in (given, shown))
    assert {"code": code, "plain": plain}[escape]("" if text == "none" else text) == cell


FORMULAS = ["=1+1", "+1", "-1+2", "@SUM(A1)", "one\rtwo", "\t=1", "a\x1b[2Jb", "\u202etxt"]


@pytest.mark.parametrize("name", FORMULAS)
def test_cells_of_csv_stay_cells(tmp_path: Path, name: str) -> None:
    """No text of a run file begins a formula, splits a row, or commands a terminal."""
    bad = row("torch.add", "case", why=name, provokes=name)
    path = write_run(tmp_path / "run.jsonl", [(bad, ended(bad, "off", "crash", name))])
    message = text("csv", path)
    (found,) = csv.DictReader(io.StringIO(message, newline=""))

    for field in ("provokes", "off_reason"):
        assert not found[field].startswith(("=", "+", "-", "@", "\t", "\r"))
        assert found[field].isprintable()
    assert message.replace("\n", "").isprintable()


# --- Blocks between markers: regenerated in place, whole or not at all, and nothing beside them.

MD = "# Title\n\n<!-- detmatrix docs:begin -->\nold\n<!-- detmatrix docs:end -->\n\nend"
COMMAND = "detmatrix docs run.jsonl"


BEGIN, END = "<!-- detmatrix docs:begin -->", "<!-- detmatrix docs:end -->"
MADE = MD.replace(f"{BEGIN}\nold\n", f"<!-- detmatrix docs:begin {COMMAND} -->\n\nnew\n\ntext\n\n")
DOCSTRING = '"""Doc.\n\n    .. detmatrix docs:begin{}\n{}    .. detmatrix docs:end\n    """\n'


@pytest.mark.parametrize(
    ("name", "text", "body", "made"),
    [
        ("README.md", MD, "new\n\ntext\n", MADE),
        ("README.md", MD.replace("\n", "\r\n"), "new\n\ntext", MADE.replace("\n", "\r\n")),
        # A block can stand in a docstring: it is indented like its marker, whatever its own indentation.
        ("a.py", DOCSTRING.format("", ""), "  Heading:\n\n      * a\n",
         DOCSTRING.format(f" {COMMAND}", "\n    Heading:\n\n        * a\n\n")),
    ],
)  # fmt: skip
def test_the_block_is_replaced(tmp_path: Path, name: str, text: str, body: str, made: str) -> None:
    """What stands between the markers is new, the begin marker names the command, the rest, line ends and mode stay."""
    path = tmp_path / name
    path.write_bytes(text.encode())
    path.chmod(0o640)

    assert Block(path, "docs").update(COMMAND, body) == 0
    assert path.read_bytes().decode() == made
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("text", "none; end: none"),
        (f"{BEGIN}\n", "line 1; end: none"),
        (f"\n{END}\n", "none; end: line 2"),
        (f"{END}\n{BEGIN}\n", "line 2; end: line 1"),
        (f"{MD}\n{MD}", "line 3, line 10; end: line 5, line 12"),
        (f"{MD}\n{END}", "line 3; end: line 5, line 8"),
        (f"text {BEGIN}\n{END}", "none; end: line 2"),
        # A text with a marker in it would make a file that cannot be regenerated again.
        (MD, None),
    ],
)  # fmt: skip
def test_markers_that_make_no_block(tmp_path: Path, text: str, found: str | None) -> None:
    """Missing, unbalanced and repeated markers are one line that names file and lines, and nothing is written."""
    path = tmp_path / "README.md"
    path.write_text(text)

    with pytest.raises(UsageError) as raised:
        Block(path, "docs").update(COMMAND, f"new\n{END}\n")

    needed = f"needs one line {BEGIN!r} and below it one line {END!r}; found begin: {found}"
    told = needed if found else "would hold a marker of its own; name the run files otherwise"
    assert str(raised.value) == f"{path}: the block 'docs' {told}"
    assert path.read_text() == text


def test_commands_name_no_machine() -> None:
    """An absolute path is shown by its name, and no file name can end the comment."""
    words = command_words("docs", ["/home/me/a b.jsonl", "runs/cpu.jsonl", "x-->.jsonl"], ["--format", "md"])

    assert words == "detmatrix docs 'a b.jsonl' runs/cpu.jsonl 'x--\\>.jsonl' --format md"


# What a terminal shows: colours, names that are cut, width; tests/test_goldens.py holds every text to the width.

ROOT = Path(__file__).parent.parent
RUN = ROOT / "reports" / "runs" / "torch-2.13.0-cpu.jsonl.gz"


def test_colour_is_for_terminals_that_want_it(run: Path) -> None:
    """On a terminal the text is the default, in colour unless NO_COLOR asks for none; colours change no text."""

    def shown(**variables: str) -> str:
        leader, follower = os.openpty()
        command = [sys.executable, "-m", "detmatrix", "report", str(run)]
        done = tied.run(
            command, stdout=follower, capture_output=False, env=os.environ | {"TERM": "xterm"} | variables
        )
        os.close(follower)
        assert done.returncode == 0
        printed = b""
        # Linux says that all was read, and that nobody writes any more, by an error.
        with contextlib.suppress(OSError):
            while some := os.read(leader, 1 << 16):
                printed += some
        os.close(leader)
        return printed.decode().replace("\r\n", "\n")

    plain, coloured = shown(NO_COLOR="1"), shown(NO_COLOR="")
    assert plain == "".join(terminal.shown(report_view(load([str(run)]))))
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain


@pytest.mark.parametrize(("names", "shown"), table("reports.txt", "names"))
def test_names_are_cut_at_dots_and_never_read_the_same(names: str, shown: str) -> None:
    """What would read like another name is longer."""
    assert ", ".join(fitted(names.split(", "), 12, 22, 34).values()) == shown


def test_a_wide_terminal_is_used(run: Path) -> None:
    """Costs of several releases stand beside their actions in 140 columns, and what rows show beside that of one run in 160."""

    def shown(*matrices: Matrix, width: int) -> str:
        made = "".join(terminal.shown(report_view(matrices), width=width))
        assert max(map(len, made.splitlines())) <= width
        return made

    (new,) = load([str(RUN)])
    older = replace(new.run.header.environment, torch="2.12.0")
    old = replace(new, run=replace(new.run, header=replace(new.run.header, environment=older)))
    narrow, wide = (shown(old, new, width=width) for width in (WIDTH, 140))
    assert all("set the flag: it fills memory" in made for made in (narrow, wide))
    assert (" COST " in wide, " COST " in narrow, "left out: costs:" in narrow) == (True, False, True)

    narrow, wide = (shown(*load([str(run)]), width=width) for width in (WIDTH, 160))
    assert [" ROWS\n" in made for made in (narrow, wide)] == [False, True]
    assert re.search(r"put_ .* no fix: raises +1 raises of 1\n", wide)


# --- Whether a scan can be trusted: what its controls and its closing line say; ``tests/golden/report-blind.*`` shows it in words.

BLIND = (
    "the control varies in process 1 of mode off should show 50 distinct of 50, and shows 1 distinct of 50"
)
CONSTANT, (VARIES, SEEN) = controls()
PARTLY = VARIES, [one for one in SEEN if (one.mode, one.process) != ("on", 1)]
QUIET = seen("off stable; on stable", ONE)
OTHER_INPUTS = ONE, [replace(one, inputs_digest="o" * 8) if one.mode == "on" else one for one in QUIET[1]]
INPUTS = tuple(
    f"the inputs of {ONE.id} in process {process} of mode on are not those of the first process"
    for process in range(2)
)
FORCED = seen("off stable; on raises x; warn_only stable", ONE)
UNSEEN = tuple(
    f"the control {name} was not observed in process {process} of mode warn_only"
    for process in range(2)
    for name in ("constant", "varies")
)


@pytest.mark.parametrize(
    ("rows", "asked", "closing", "distrust"),
    [
        # Before the closing line says so, the controls' observations do.
        (QUIET, controls("blind"), None, (BLIND,)),
        # What the closing line says stands first, and nothing twice.
        (OTHER_INPUTS, controls("blind"), CLOSING, (*INPUTS, BLIND)),
        (OTHER_INPUTS, controls("blind"), replace(CLOSING, distrust=("a reason", BLIND)), ("a reason", BLIND, *INPUTS)),
        # An unfinished scan may go on; a finished one has passed a control over.
        (QUIET, [CONSTANT, PARTLY], None, ()),
        (QUIET, [CONSTANT, PARTLY], CLOSING, ("the control varies was not observed in process 1 of mode on",)),
        # A mode in which no row was observed owes none; one in which rows were run under warn_only owes all.
        (QUIET, controls(), CLOSING, ()),
        (FORCED, controls(), CLOSING, UNSEEN),
    ],
)  # fmt: skip
def test_a_scan_is_distrusted_for_what_it_shows(
    tmp_path: Path, rows: Planned, asked: list[Planned], closing: Closing | None, distrust: tuple[str, ...]
) -> None:
    """Controls, inputs and the closing line; the page's title says it."""
    path = write_run(tmp_path / "r.jsonl", [rows], settings=FORCING, controls=asked, closing=closing)

    assert only(path).distrust == distrust
    assert text("html", path).count("<title>NOT TRUSTWORTHY: ") == bool(distrust)


# One line an op: what stands for it, in which order, what it costs, what the lists say and what to do.


def view(*matrices: Matrix) -> View:
    """Return the ops of these runs."""
    ops: View = report_view(matrices).ops
    return ops


def op_of(*planned: Planned, costs: tuple[Cost, ...] = ()) -> View:
    """Return the only op of a run with these rows."""
    op: View
    (op,) = view(run_of(*planned, costs=costs)).ops
    return op


@pytest.mark.parametrize(("findings", "action"), table("reports.txt", "raising"))
def test_an_op_that_raises_says_how_often(findings: str, action: str) -> None:
    """Some rows raise, with or without a difference."""
    found: Any = [(row("torch.some", f"c{place}"), it) for place, it in enumerate(findings.split())]
    # Of a row that is not settled the mode off was not run.
    rows = [(one, raised(one, "on", "some")) if it == "unsettled" else shows(it, one) for one, it in found]

    assert op_of(*rows).action == action


@pytest.mark.parametrize(("finding", "compiled", "action"), table("reports.txt", "further"))
def test_an_op_is_sent_to_a_column_that_shows_worse(finding: Finding, compiled: str, action: str) -> None:
    """To set the flag is no advice where compiled code differs all the same; what is no worse stands in its column alone."""
    planned, seen = shows(finding, row("torch.some"))
    outputs = {"stable": stable(), "drifting": drifting(OFTEN)}[compiled]
    unfilled = ran(planned, "unfilled", *stable()) if finding == "fixed_by_mode" else []
    further = [*unfilled, *ran(planned, "compile_on", *outputs)]
    op = op_of((planned, [*seen, *further]), costs=(cost(planned, 1.0, 3.0, 1.0),))

    assert (op.finding, op.action) == (finding, action)
    assert op.cost_words.startswith("fill") == (finding == "uninitialized")


@pytest.mark.parametrize(("finding", "times", "shown"), table("reports.txt", "costs"))
def test_cost_of_an_op(finding: Finding, times: str, shown: str) -> None:
    """A ratio whose quartiles overlap counts as 1, and what the fill takes is not the cost of the flag."""
    taken = json.loads(times)
    planned = [row("torch.some", f"c{place}") for place in range(max(len(taken), 1))]
    costs = tuple(cost(one, *seconds) for one, seconds in zip(planned, taken, strict=False))
    op = op_of(*(shows(finding, one) for one in planned), costs=costs)

    assert op.cost_words == shown


# The command: the same bytes every time, whole files or none, and errors of one line each.


@pytest.mark.parametrize("found", [True, False])
def test_a_page_is_opened(
    detmatrix: Command, run: Path, monkeypatch: pytest.MonkeyPatch, found: bool
) -> None:
    """--open writes a page named after the run and shows it; without a browser a line says where it is."""
    asked: list[str] = []

    def open_(address: str) -> bool:
        asked.append(address)
        return found

    monkeypatch.setattr(webbrowser, "open", open_)
    opened = detmatrix("report", run, "--open")

    address = (run.parent / "run.html").as_uri()
    told = "" if found else f"detmatrix: no web browser was found; open {address}\n"
    assert (opened.returncode, opened.stdout) == (0, "")
    assert opened.stderr == f"Wrote run.html\n{told}"
    assert asked == [address]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("form", ["text", "html"])
def test_full_disk(detmatrix: Command, detmatrix_process: Command, run: Path, form: str) -> None:
    """A full disk is one line and exit code 2, written to by -o or by the shell; the device survives."""
    with Path("/dev/full").open("wb") as full:
        by_shell = detmatrix_process(
            "report", run, "--format", form, capture_output=False, stdout=full, stderr=subprocess.PIPE
        )
    by_option = detmatrix("report", run, "--format", form, "-o", "/dev/full")

    text = "cannot be written (No space left on device); choose another place with -o"
    assert (2, f"detmatrix: standard output: {text}") == (by_shell.returncode, one_line(by_shell.stderr))
    assert (2, f"detmatrix: /dev/full: {text}") == (by_option.returncode, one_line(by_option.stderr))
    assert Path("/dev/full").is_char_device()


def test_a_name_does_not_speak_to_the_terminal(detmatrix: Command) -> None:
    """What a file is called is told without control characters."""
    done = detmatrix("docs", "\x1b]0;title\x07.jsonl")

    expected = r"detmatrix: \x1b]0;title\x07.jsonl: cannot be read (No such file or directory)"
    assert (done.returncode, one_line(done.stderr).startswith(expected)) == (3, True)


def test_failed_write_loses_nothing(tmp_path: Path) -> None:
    """When writing ends in the middle the report of before is still whole, and no part file stays."""
    path = tmp_path / "report.md"
    path.write_text("before")

    def breaking() -> Any:
        yield "x" * 200_000
        raise OSError(28, "No space left on device")

    with pytest.raises(UsageError) as raised:
        write_whole(path, breaking())

    assert f"{path}: cannot be written (No space left on device); choose another place with -o" == str(
        raised.value
    )
    assert path.read_text() == "before"
    assert [path] == list(tmp_path.iterdir())


# What CI is told: exit codes of checks and the line that says why, annotations of GitHub, JUnit XML.


@pytest.mark.parametrize(("asked", "code"), [("silent", 1), ("raises", 0)])
def test_a_scan_fails_on_findings(detmatrix: Command, tmp_path: Path, asked: str, code: int) -> None:
    """The scan is whole, its file is kept, and the last line says what failed."""
    standing = StandIn(tmp_path, {"do": "observe", "mode": "on", "spec": "torch.bmm", "then": "vary"})
    words = ("torch.bmm", "--device", "cpu", "--python", standing.python, "--no-overloads", "--no-cost")
    done = detmatrix("scan", *words, "--fail-on", asked)

    assert done.returncode == code, done.stderr
    assert (tmp_path / "detmatrix.jsonl").exists()
    last = done.stderr.splitlines()[-1]
    assert last.startswith("detmatrix: --fail-on silent: ") is bool(code)
    assert ("silent: torch.bmm (" in last) is bool(code)


def test_every_annotation_of_a_function_stands_at_its_line(tmp_path: Path) -> None:
    """Of `check`, whose run file is thrown away; what is untrusted or serial too."""
    planned = row("torch.cumsum", "few")
    serial = [one for mode in MODES for one in ran(planned, mode, *stable(), threads=1)]
    path = write_run(tmp_path / "run.jsonl", [shows("silent", row("torch.bmm")), (planned, serial)])
    notes = list(render_github(load([str(path)]), at=("my.py", 3)))

    assert {note.split(" ")[0] for note in notes} == {"::error", "::notice"}
    assert all(" file=my.py,line=3,title=" in note for note in notes)


def test_what_most_rows_leave_possible_is_told_beside_the_most() -> None:
    """A few slow rows, which ran less often, do not stand for all."""

    def bound(*counts: int) -> str:
        rows = [row("torch.add", f"case_{place}") for place in range(len(counts))]
        ran_so = [
            (it, [*ran(it, "off", *[{"a": n}] * 2), *ran(it, "on", *[{"a": n}] * 2)])
            for it, n in zip(rows, counts, strict=True)
        ]
        return bound_words(run_of(*ran_so)).partition("below ")[2]

    assert bound(*[50] * 9, 5) == "18.7 % in nine of ten cells, 43.5 % in all (95 % confidence)"
    assert bound(*[50] * 8, 5, 5) == bound(5) == "43.5 % (95 % confidence)"


def test_what_a_template_does_not_get_is_an_error() -> None:
    """A misspelled name leaves no empty cell."""
    with pytest.raises(jinja2.UndefinedError):
        render._environment().from_string("{{ nothing }}").render()
