"""The report command: the same bytes every time, whole files or none, and errors of one line each."""

from __future__ import annotations

import subprocess
import webbrowser
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from detmatrix.reports.checks import render_github
from detmatrix.reports.cli.report import RENDERERS
from detmatrix.reports.compare.page import RENDERERS as COMPARISONS
from detmatrix.reports.docs.view import RENDERERS as DOCS
from detmatrix.reports.matrix.model import load
from detmatrix.reports.matrix.run_words import bound_words
from detmatrix.reports.render import write_whole
from detmatrix.scanner.claims.tables import parse_claims
from detmatrix.scanner.errors import UsageError
from detmatrix.scanner.observations.records import MODES
from tests.commands import Command, rendered_by_process
from tests.compared import run_of, shows
from tests.conftest import one_line
from tests.documented import docstring
from tests.runs import ran, row, stable, write_run
from tests.stand_in import StandIn


@pytest.mark.parametrize(
    ("command", "forms", "without"),
    [
        ("report", RENDERERS, ["torch", "opspecs.registry"]),
        ("docs", DOCS, ["torch", "opspecs.registry"]),
        ("compare", COMPARISONS, ["torch"]),
    ],
)
def test_same_bytes_every_time(
    detmatrix: Command, tmp_path: Path, command: str, forms: Iterable[str], without: list[str]
) -> None:
    """A report holds no date of its own, no folder, and nothing that hashing could reorder, and takes no torch and no catalog."""
    claims = parse_claims(docstring([":func:`torch.put_`"], [":func:`torch.cumsum`"]))
    run = write_run(tmp_path / "run.jsonl", claims=claims)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    copy = elsewhere / run.name
    copy.write_bytes(run.read_bytes())
    times = 2 if command == "compare" else 1

    written = rendered_by_process(elsewhere, forms, command, *[copy] * times, without=without)

    for form in forms:
        text = detmatrix(command, *[run] * times, "--format", form).stdout
        assert text.encode() == written[form]
        assert str(tmp_path) not in text


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
