"""``detmatrix explain``, ``libraries`` and ``site``: all that is known of one op, of libraries, and all pages in a folder."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from msgspec.structs import replace

from detmatrix.reports import libraries
from detmatrix.reports.cli.docs import given_or_recorded
from detmatrix.reports.site import FRONT, site
from detmatrix.scanner.modes import WORKER_MODES
from detmatrix.scanner.observations.runfile import read_run
from detmatrix.scanner.verdicts.vocabulary import Finding
from tests.commands import Command
from tests.compared import shows
from tests.conftest import refused, table
from tests.runs import ENVIRONMENT, SETTINGS, drifting, every_finding, ran, row, stable, write_run

ROOT = Path(__file__).parent.parent
RUN = ROOT / "reports" / "runs" / "torch-2.13.0-cpu.jsonl.gz"


def test_no_line_of_a_run_file_leaves_the_code_of_markdown(detmatrix: Command, tmp_path: Path) -> None:
    """A carriage return ends a line of Markdown too, and with it the code that commands stand in."""
    path = write_run(tmp_path / "run.jsonl", [shows("silent", row("torch.take", "a\r<b>c"))])

    shown = detmatrix("explain", "take", path, "--format", "md").stdout
    assert "\r" not in shown
    assert f"    detmatrix repro {path} 'torch.take:a <b>c:forward:float32'" in shown


def test_a_run_file_here_goes_before_those_recorded(detmatrix: Command, tmp_path: Path) -> None:
    """``explain-everywhere.*`` shows what is told without one."""
    (tmp_path / "detmatrix.jsonl").write_bytes(b"no run file\n")

    assert "detmatrix.jsonl: not a detmatrix run file" in refused(detmatrix("explain", "take"), 3)


def test_a_name_that_is_one_ops_own_means_that_op(detmatrix: Command) -> None:
    """Though another op is called so, too: it is what a user is asked to type."""
    told = refused(detmatrix("explain", "F.batch_norm", RUN))
    names = told.partition("give one of them: ")[2].split(", ")

    assert "torch.nn.functional.batch_norm" in names
    answers = [detmatrix("explain", name, RUN, "--format", "json").stdout for name in names]
    assert [json.loads(one)["op"] for one in answers] == names


def test_a_name_means_an_op_and_not_its_second_gradient(detmatrix: Command) -> None:
    """Which is an entry of its own, of the same name, that no run has yet."""
    for name, op in (("lstsq", "torch.linalg.lstsq"), ("gradgrad:linalg.lstsq", "gradgrad:linalg.lstsq")):
        assert json.loads(detmatrix("explain", name, "--format", "json").stdout)["op"] == op


@pytest.mark.parametrize("finding", ["silent", "uninitialized"])
def test_advice_is_for_each_of_two(detmatrix: Command, tmp_path: Path, finding: Finding) -> None:
    """Where both are found: nobody looks into PyTorch's op for a seed, nor reports to PyTorch what a function of one's own reads."""
    rows = row("mine.take", documented=("torch.take",), source="own"), row("torch.take")
    settings = replace(SETTINGS, modes=WORKER_MODES)
    path = write_run(tmp_path / "run.jsonl", [shows(finding, one) for one in rows], settings=settings)

    action = json.loads(detmatrix("explain", "take", path, "--format", "json").stdout)["action"]
    assert {"silent": "use another op, or", "uninitialized": "It returns uninit"}[finding] in action
    assert "On CUDA: Unknown here: no run has it. Scan on a GPU, or read the recorded runs:" in action
    assert "detmatrix explain torch.take --recorded." in action


# ``detmatrix libraries``: what libraries document of reproducibility, each entry with its place, and the ops that call them.

PLACE = re.compile(r"https://github.com/pytorch/pytorch/blob/[0-9a-f]{40}/.+")


def test_what_libraries_document_has_its_place() -> None:
    """A quotation, a link and a version of each entry, the source of PyTorch at a commit for each call: nothing is told from memory."""
    raw = tomllib.loads((Path(libraries.__file__).parent / "libraries.toml").read_text(encoding="utf-8"))
    table = libraries.documented_libraries()

    for entry in table.entries.values():
        assert entry.promise in libraries.PROMISES, entry.id
        links = {entry.link, entry.via or "https://x"}
        # What somebody else has told of a library says where.
        assert len(links) == 2, entry.id
        assert all(link.startswith("https://") for link in links), entry.id
        assert len(entry.quotation.split()) > 3, entry.id
        assert all((entry.area.strip(), entry.condition.strip(), entry.version.strip())), entry.id
    for call in table.calls:
        assert PLACE.fullmatch(call.source), call.ops
        assert call.quotation.strip(), call.ops
    # No id stands twice, no field is misspelt, and each op by way of another has calls.
    assert len(table.entries) == len(raw["entries"])
    fields = {"entries": "id library area promise condition version link quotation setting via",
              "calls": "ops device condition source quotation entries sparse", "composed": "ops through source quotation"}  # fmt: skip
    for part, known in fields.items():
        assert {name for one in raw[part] for name in one} <= {*known.split()}
    assert {pattern for one in raw["composed"] for pattern in one["ops"]} <= {
        pattern for call in table.calls for pattern in call.ops
    }


@pytest.mark.parametrize(("op", "expected"), table("reports.txt", "libraries"))
def test_libraries_that_an_op_calls(op: str, expected: str) -> None:
    """By its dotted names, each with its device."""
    titles = [one.title.partition(" (")[0] for one in libraries.libraries_of([op])]
    assert ", ".join(titles) == expected.replace("none", "")


# The site: a folder of pages whose links lead somewhere, from a disk as from a server.

HOSTILE_NAME = "mine.<a href='../x'>/../op"


def _links(page: Path) -> list[Path]:
    """Return where the links of a page lead within the folder."""
    found = re.findall(r'href="([^"#][^"]*)"', page.read_text(encoding="utf-8"))
    return [page.parent / unquote(urlsplit(one).path) for one in found if not urlsplit(one).scheme]


def test_all_links_lead_somewhere(detmatrix: Command, tmp_path: Path) -> None:
    """Pages of ops, of releases and of run files, from every page; a hostile name is no markup; a run whose rows a larger one has is no step."""
    hostile = row(HOSTILE_NAME)
    rows = [*every_finding(), (hostile, [*ran(hostile, "off", *drifting(6)), *ran(hostile, "on", *stable())])]
    write_run(tmp_path / "old.jsonl", environment=replace(ENVIRONMENT, torch="2.1.0+cpu"))
    write_run(tmp_path / "new.jsonl", rows)
    for name, some in (
        ("less", rows[:1]),
        ("other", [shows("deterministic", row("torch.mv"))]),
        ("empty", []),
    ):
        write_run(tmp_path / f"{name}.jsonl", some, started=f"2026-01-03T03:04:05Z, {name}")
    done = detmatrix("site", "old.jsonl", "new.jsonl", "less.jsonl", "other.jsonl", "-o", "out")
    out = tmp_path / "out"

    assert done.returncode == 0, done.stderr
    assert f"open {Path('out') / FRONT}" in done.stderr
    pages = [*out.rglob("*.html")]
    reached = {link.resolve() for page in pages for link in _links(page)}
    assert reached >= {page.resolve() for page in pages}
    assert all(link.is_file() and link.is_relative_to(out) for link in reached)
    for page in ("releases/2.1.0.html", "lists.html", "changes.html"):
        assert any(link.parent.name == "ops" for link in _links(out / page)), page
    assert (out / "runs" / "new.jsonl").read_bytes() == (tmp_path / "new.jsonl").read_bytes()
    assert HOSTILE_NAME not in (out / FRONT).read_text(encoding="utf-8")
    changes = (out / "changes.html").read_text(encoding="utf-8")
    assert ("less.jsonl" in changes, "other.jsonl" in changes) == (False, True)
    assert "fixed_by_mode" in next((out / "ops").glob("mine*")).read_text(encoding="utf-8")
    (out / FRONT).unlink()
    assert detmatrix("site", "new.jsonl", "-o", "out").returncode == 0
    assert detmatrix("site", "old.jsonl", "empty.jsonl", "-o", "two").returncode == 0
    assert (out / FRONT).is_file()


def test_the_front_of_the_recorded_runs_is_small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A reader on a phone waits for it."""
    monkeypatch.chdir(tmp_path)  # a scan leaves a run in the folder of the checkout, which would be taken
    front = next(site([read_run(path) for path in given_or_recorded("site")], {}))

    assert front[0] == FRONT
    text = "".join(front[1])
    assert len(text.encode()) < 300_000
    # An op counts once, by the worst of all devices, and that which the flag makes wrong goes before all others.
    counts = [int(count) for count in re.findall(r'class="count">(\d+)', text)]
    assert sum(counts[1:]) == counts[0]
    ranks = dict(re.findall(r'data-rank="(\d+)"><b class="f (\w+)"', text))
    assert ranks["0"] == "wrong_with_flag"
