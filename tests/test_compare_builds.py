"""Censuses beside runs that are compared: what came and went in the builds, release by release."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from reports.compare.builds import builds_of
from reports.compare.render import RENDERERS
from reports.compare.runs import Comparison, compare
from scanner.census.record import encode, read_census
from scanner.claims.tables import documented_claims
from tests.census_builds import detmatrix
from tests.compared import run_of, shows

REPORTS = Path(__file__).parent.parent / "reports"
RUNS = [REPORTS / "runs" / f"torch-{name}-cpu.jsonl.gz" for name in ("2.9.1", "2.11.0")]
NAMES = ("2.7.1-cu126", "2.8.0-cu128", "2.9.1-cu128", "2.10.0-cu128", "2.11.0-cu130", "2.13.0-cu130")
CENSUSES = [str(REPORTS / "censuses" / f"torch-{name}.json.gz") for name in NAMES]
CPU = str(REPORTS / "censuses" / "torch-2.13.0-cpu.json.gz")
TRACE = REPORTS / "traces" / "torch-2.15.0-cuda.json.gz"
EVIL = "at::<script>hacked()</script>|`x`\x1b[2J"


def compared(*versions: str, git: str | None = None) -> Comparison:
    """Return the comparison of runs of these versions, whose lists are those that the releases had."""
    row = shows("deterministic")
    return compare(
        [
            run_of(row, name=f"{one}.jsonl", torch=one, claims=documented_claims(one), torch_git=git)
            for one in versions
        ]
    )


def markdown(comparison: Comparison, *paths: str) -> str:
    """Return the Markdown of a comparison beside censuses."""
    return "".join(RENDERERS["md"](comparison, builds_of(paths, comparison)))


def lines(text: str) -> dict[str, list[str]]:
    """Return the cells of each release."""
    _, _, table = text.partition("## Builds for CUDA, expected\n")
    rows = [line.strip("|").split("|") for line in table.partition("\n## ")[0].splitlines() if "|" in line]
    return {row[0].strip(): [cell.strip() for cell in row[1:]] for row in rows[2:]}


def test_a_release_without_a_run_or_a_census_stays() -> None:
    """Each release has a line, in their order, whatever the order of the files; what it lacks is said."""
    text = lines(markdown(compared("2.5.1", "2.9.1", "2.11.0"), *reversed(CENSUSES[:-1])))

    assert list(text) == ["2.5.1", "2.7.1", "2.8.0", "2.9.1", "2.10.0", "2.11.0"]
    assert text["2.5.1"] == ["2.5.1.jsonl", "the first run", *["no census"] * 5]
    assert text["2.7.1"] == ["no run", "no run", "torch-2.7.1-cu126.json.gz", *["the first census"] * 4]
    assert text["2.8.0"][3:] == ["11", "5", "5", "2"]
    assert text["2.10.0"] == ["no run", "no run", "torch-2.10.0-cu128.json.gz", "0", "29", "4", "4"]
    assert text["2.11.0"][:2] == ["2.11.0.jsonl", "4"]


def test_what_went_stands_beside_what_is_documented_no_more() -> None:
    """The release that drops the bullet of kthvalue follows a build that has lost its alert."""
    _, _, step = markdown(compared("2.9.1", "2.11.0"), *CENSUSES).partition("## 2.9.1 → 2.11.0\n")
    documented, _, built = step.partition("### Builds for CUDA, expected: 2.9.1 → 2.10.0 (no run of 2.10.0)")

    assert "torch.kthvalue" in documented.partition("### Documentation")[2]
    assert "| lost     | `kthvalue CUDA`" in built
    assert "### Builds for CUDA, expected: 2.10.0 → 2.11.0 (no run of 2.10.0)" in built


def test_every_step_is_told_once() -> None:
    """With the two runs it leads up to; before the first and after the last run with the builds themselves."""
    text = markdown(compared("2.8.0", "2.9.1", "2.11.0"), *CENSUSES)
    beyond, _, rest = text.partition("## 2.8.0 → 2.9.1\n")
    steps = ["2.7.1 → 2.8.0 (no run of 2.7.1)", "2.8.0 → 2.9.1", "2.9.1 → 2.10.0 (no run of 2.10.0)"]
    steps += ["2.10.0 → 2.11.0 (no run of 2.10.0)", "2.11.0 → 2.13.0 (no run of 2.13.0)"]

    assert [text.count(f"expected: {step}\n") for step in steps] == [1] * 5
    assert [f"expected: {step}\n" in beyond for step in steps] == [True, False, False, False, True]
    assert rest.index(steps[1]) < rest.index("## 2.9.1 → 2.11.0\n") < rest.index(steps[2])


def test_an_alert_taken_out_of_a_build_is_counted(tmp_path: Path) -> None:
    """The figures rest on the censuses; runs made from other sources than a census are told."""
    census = read_census(CENSUSES[-1])
    less = replace(census, alerts=census.alerts[1:], torch="2.14.0+cu130", torch_git="f" * 40)
    (tmp_path / "less.json").write_text(encode(less))
    files = CENSUSES[-1], str(tmp_path / "less.json")
    text = lines(markdown(compared("2.13.0", "2.14.0", git="0" * 40), *files))

    assert text["2.14.0"][2:] == ["less.json", "0", "1", "0", "0"]
    assert text["2.14.0"][0] == "2.14.0.jsonl (other sources)"


def test_no_step_between_two_runs_is_said() -> None:
    """Nothing came and went between two releases, if no census is of the later one or of one between them."""
    comparison = compared("2.5.1", "2.6.0")
    message = markdown(comparison, *CENSUSES[:2])
    page = "".join(RENDERERS["html"](comparison, builds_of(CENSUSES[:2], comparison)))

    for text in (message, page):
        assert "No step from census to census ends after torch 2.5.1 and up to 2.6.0." in text


def test_builds_for_other_devices_stand_apart() -> None:
    """A CPU build has not lost the alerts of CUDA, so it is not held against a CUDA build."""
    text = markdown(compared("2.11.0", "2.13.0"), *CENSUSES[-2:], CPU)

    assert "## Builds for CUDA, expected\n" in text
    assert "## Builds for the CPU, expected\n" in text
    assert "nothing in it is compared" not in text


def test_json_has_releases_and_steps() -> None:
    """And nothing of builds where no census was given."""
    comparison = compared("2.9.1", "2.11.0")
    text = json.loads("".join(RENDERERS["json"](comparison, builds_of(CENSUSES, comparison))))
    (cuda,) = text["builds"]["timelines"]
    alone = json.loads("".join(RENDERERS["json"](comparison, ())))

    assert [one["release"] for one in cuda["releases"]] == [name.partition("-")[0] for name in NAMES]
    assert [len(one["lost"]) for one in cuda["steps"] if one["to"] == "2.10.0"] == [34]
    assert text.keys() - alone.keys() == {"builds"}


def test_names_of_a_build_are_no_markup(tmp_path: Path) -> None:
    """A census is of untrusted origin: its names hold in tables and in the page."""
    census = read_census(CENSUSES[-1])
    alerts = (replace(census.alerts[0], id="evil", function=EVIL), *census.alerts)
    (tmp_path / "evil.json").write_text(encode(replace(census, alerts=alerts, torch="2.14.0")))
    comparison = compared("2.13.0", "2.14.0")
    builds = builds_of([CENSUSES[-1], str(tmp_path / "evil.json")], comparison)
    text, page = ("".join(RENDERERS[form](comparison, builds)) for form in ("md", "html"))
    (line,) = [line for line in text.splitlines() if "hacked" in line]

    assert "\x1b" not in text
    assert line.replace("\\|", "").count("|") == 6
    assert "&lt;script&gt;hacked()" in page
    assert "<script>hacked" not in page


def test_the_command_writes_them(tmp_path: Path) -> None:
    """Recorded runs beside recorded censuses, as Markdown and as a page."""
    options = [word for path in CENSUSES[2:5] for word in ("--census", path)]
    written = [tmp_path / "a.md", tmp_path / "a.html"]
    code, out, err = detmatrix("compare", *RUNS, *options, *(w for p in written for w in ("-o", p)))

    assert (code, out, err) == (0, "", f"Wrote {written[1]}\n")
    for path in written:
        assert "Builds for CUDA, expected: 2.9.1 → 2.10.0 (no run of 2.10.0)" in path.read_text()
    assert "0 alerts gained and 32 lost" in written[1].read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ([*RUNS, "--census", TRACE], 3, "not a census"),
        ([*RUNS, "--census", RUNS[0]], 3, "not a census"),
        ([*RUNS, "--census", "missing.json"], 3, "cannot be read"),
        ([*RUNS, "--census", CPU, "--census", CPU], 2, "is there twice"),
        ([*RUNS, "--census", CPU, "--into", "README.md"], 2, "without -o"),
        ([RUNS[0], CPU], 2, "beside runs with --census"),
        ([*CENSUSES, "--census", CPU], 2, "in Markdown and JSON"),
        ([*RUNS, "--census", CPU, "-o", CPU], 2, "choose another place with -o"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str | Path], code: int, text: str) -> None:
    """Each is told in one line, with its exit code."""
    ended, out, err = detmatrix("compare", *arguments)

    assert (code, "", 1) == (ended, out, err.count("\n"))
    assert text in err
