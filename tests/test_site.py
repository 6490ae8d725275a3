"""The site: a folder of pages whose links lead somewhere, from a disk as from a server."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from msgspec.structs import replace

from detmatrix.reports.cli.docs import newest_recorded
from detmatrix.reports.site import FRONT, site
from detmatrix.scanner.observations.runfile import read_run
from tests.commands import Command
from tests.conftest import refused
from tests.runs import ENVIRONMENT, drifting, every_finding, ran, row, stable, write_run

HOSTILE = "mine.<a href='../x'>/../op"


def _links(page: Path) -> list[Path]:
    """Return where the links of a page lead within the folder."""
    found = re.findall(r'href="([^"#][^"]*)"', page.read_text(encoding="utf-8"))
    return [page.parent / unquote(urlsplit(one).path) for one in found if not urlsplit(one).scheme]


def test_all_links_lead_somewhere(detmatrix: Command, tmp_path: Path) -> None:
    """Pages of ops, of releases and of run files, from every page; a hostile name leaves no folder and is no markup."""
    hostile = row(HOSTILE)
    rows = [*every_finding(), (hostile, [*ran(hostile, "off", *drifting(6)), *ran(hostile, "on", *stable())])]
    write_run(tmp_path / "old.jsonl", environment=replace(ENVIRONMENT, torch="2.1.0+cpu"))
    write_run(tmp_path / "new.jsonl", rows)
    done = detmatrix("site", "old.jsonl", "new.jsonl", "-o", "out")
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
    assert HOSTILE not in (out / FRONT).read_text(encoding="utf-8")
    assert "fixed_by_mode" in next((out / "ops").glob("mine*")).read_text(encoding="utf-8")
    (out / FRONT).unlink()
    assert detmatrix("site", "new.jsonl", "-o", "out").returncode == 0
    assert (out / FRONT).is_file()


@pytest.mark.parametrize("place", ["mine", "file"])
def test_a_folder_of_somebody_is_left_alone(detmatrix: Command, tmp_path: Path, place: str) -> None:
    """Whatever is in it."""
    write_run(tmp_path / "run.jsonl")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").touch()
    (tmp_path / "file").touch()

    assert f"{place}: is there, and no site of ours" in refused(detmatrix("site", "run.jsonl", "-o", place))
    write_run(tmp_path / "mine" / "run.jsonl")
    twice = refused(detmatrix("site", "run.jsonl", "mine/run.jsonl", "-o", "out"))
    assert "run.jsonl: 2 runs have this name" in twice


def test_the_front_of_the_recorded_runs_is_small() -> None:
    """A reader on a phone waits for it."""
    front = next(site({path: read_run(path) for path in newest_recorded()}, {}))

    assert front[0] == FRONT
    assert len("".join(front[1]).encode()) < 300_000
