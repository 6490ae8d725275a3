"""The claims that bullets and lists are read as."""

from __future__ import annotations

import codecs
import random
import re
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace as changed

from detmatrix.opspecs.registry import SPECS
from detmatrix.scanner.cases.rows import known_rows
from detmatrix.scanner.claims import tables as claims
from detmatrix.scanner.claims.matching import matches
from detmatrix.scanner.claims.tables import (
    contradictions,
    documented_claims,
    documented_versions,
    parse_claims,
)
from detmatrix.scanner.errors import EXIT_CHECK_FAILED, EXIT_DONE, UsageError
from detmatrix.scanner.observations import torch_versions
from detmatrix.scanner.observations.records import Claim
from tests.conftest import table
from tests.documented import CUBLAS, DETERMINISTIC, RAISES, read
from tests.documented import claim_of as one


@pytest.mark.parametrize(("written", "id_"), table("claims.txt", "read"))
def test_each_feature_of_the_grammar_shows_in_the_id(written: str, id_: str) -> None:
    """Of a bullet that is not understood nothing is guessed; its words and the names of its ops stay."""
    bullet = codecs.decode(written, "unicode_escape")
    claim = one(bullet)

    assert (claim.id if claim.parsed else "none") == id_
    assert claim.text == " ".join(bullet.split())
    if not claim.parsed:
        assert (claim.device, claim.direction, claim.conditions) == ("any", "any", ())
        assert claim.targets == tuple(re.findall(r"torch\.\w+", bullet))
        assert re.fullmatch(r"raises/[\w.+?]+/unparsed-[0-9a-f]{8}", claim.id)


@pytest.mark.parametrize("word", ["zebra", "not", "unless", "nor", "``", "XPU", "CPU", "=", "[mode]"])
def test_no_foreign_word_is_swallowed(word: str) -> None:
    """One word more, anywhere in any bullet of any release, makes it unparsed."""
    texts = {claim.text for version in documented_versions() for claim in documented_claims(version)}
    swallowed = []
    for text in sorted(text for text in texts if " - " not in text):
        words = text.split()
        longer = [" ".join([*words[:place], word, *words[place:]]) for place in range(len(words) + 1)]
        swallowed += [bullet for bullet in longer if any(claim.parsed for claim in read(bullet))]

    assert swallowed == []


def test_ops_under_an_unknown_heading_are_shown() -> None:
    """A new list is not lost in silence; lists that are not about ops are left alone."""
    found = parse_claims(
        "    These sing:\n\n      * :func:`torch.a`\n      * torch.b loudly\n      - don't autotune\n"
    )

    assert [(claim.section, claim.targets, claim.parsed) for claim in found] == [
        ("other", ("torch.a",), False),
        ("other", ("torch.b",), False),
    ]


@pytest.mark.parametrize("listed", [line for (line,) in table("claims.txt", "lists")])
def test_indentation_may_slip(listed: str) -> None:
    """A bullet ends where another starts, however it is indented; lazy and blank continuation belong to it."""
    found = parse_claims(f"{RAISES}\n{codecs.decode(listed, 'unicode_escape')}\n\nNote that this is slow.")

    assert [claim.id for claim in found] == ["raises/torch.a", "raises/torch.b/cuda"]


# --- The docstring of the installed torch, the tables of the releases, and the wheels they are read from


def test_installed_docstring_is_the_tabled_one() -> None:
    """Every bullet line of the installed torch gives a claim, and the table of its release says the same."""
    docstring, version = torch.use_deterministic_algorithms.__doc__ or "", torch.__version__.partition("+")[0]
    found = parse_claims(docstring)
    bullets = [claim for claim in found if claim.section != "note"]

    assert len({claim.order for claim in bullets}) == len(re.findall(r"^ *\* ", docstring, re.MULTILINE))
    if version in documented_versions():
        tabled = (*documented_claims(version), *documented_claims(version, notes=True))
        assert tabled == tuple(changed(claim, source=None) for claim in found)
    assert all(claim.parsed for claim in bullets)


@pytest.mark.parametrize("version", documented_versions())
def test_tables_are_understood_and_current(version: str) -> None:
    """No bullet is unparsed, ids are unique, no docstring is held, and this parser reads and writes the same today."""
    tabled = documented_claims(version)
    written = claims.encode_table(version, (*tabled, *documented_claims(version, notes=True)))
    assert (claims.DATA / f"{version}.json").read_bytes() == written
    assert {(claim.parsed, claim.source) for claim in tabled} == {(True, None)}
    assert len({claim.id for claim in tabled}) == len(tabled)

    headings = {"deterministic": DETERMINISTIC, "raises": RAISES, "cublas": CUBLAS}
    for claim in tabled:
        bullet = claim.text.replace(" - ", "\n\n          - ")
        again = [
            changed(found, order=claim.order, text=claim.text, source=None)
            for found in read(bullet, headings[claim.section])
        ]

        assert claim in again


@pytest.mark.parametrize(("acting", "raising", "common"), table("claims.txt", "contradict"))
def test_contradictions_need_a_common_call(acting: str, raising: str, common: str) -> None:
    """Two claims contradict each other if some call of some op is meant by both."""
    found = parse_claims(f"{DETERMINISTIC}\n        * {acting}\n\n{RAISES}\n        * {raising}\n")

    assert len(contradictions(found)) == (common == "yes")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder that stands for that of the tables."""
    monkeypatch.setattr(claims, "DATA", tmp_path / "claims")
    (tmp_path / "claims").mkdir()
    return tmp_path / "claims"


def test_the_very_release_goes_first(data: Path) -> None:
    """Among tables of one minor release the one asked for is taken, and else the latest."""
    for name in ("2.99.0", "2.99.9", "2.99.10"):
        table = parse_claims(f"{RAISES}\n* torch.v{name[5:]}")
        (data / f"{name}.json").write_bytes(claims.encode_table(name, table))

    found = {name: documented_claims(name)[0].targets for name in ("2.99.0", "2.99.9+cpu", "2.99.5")}
    assert found == {"2.99.0": ("torch.v0",), "2.99.9+cpu": ("torch.v9",), "2.99.5": ("torch.v10",)}


@pytest.mark.parametrize("version", ["1.13.1", "3.0.0", "2", "", "../../secrets"])
def test_untabled_release_is_refused(version: str) -> None:
    """The message says which tables there are and how to write one."""
    with pytest.raises(UsageError, match=r"no table .*2\.13\.0.*python -m detmatrix\.scanner\.claims WHEEL"):
        documented_claims(version)


def test_damaged_table_is_refused(data: Path) -> None:
    """The message names the file and the field."""
    (data / "2.99.0.json").write_text('{"torch":"2.99.0","claims":[{"id":3}]}')

    with pytest.raises(UsageError, match=r"2\.99\.0\.json: cannot be read .*\$\.claims\[0\]\.id.*restore"):
        documented_claims("2.99")


def wheel(folder: Path, init: str) -> Path:
    path = folder / "torch-2.99.0+cpu-cp311-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("torch/__init__.py", init)
    return path


def function(docstring: str) -> str:
    return f"raise SystemExit\ndef use_deterministic_algorithms(mode):\n    r'''{docstring}'''\n"


def test_wheel_is_read_and_not_run(tmp_path: Path) -> None:
    """The docstring comes out as it stands in the source, backslashes included; what is no wheel is a usage error."""
    assert claims.docstring_of_wheel(wheel(tmp_path, function("Sets\n    \\'x'."))) == "Sets\n    \\'x'."
    assert claims.docstring_of_wheel(wheel(tmp_path, "def use_deterministic_algorithms(): ...")) == ""
    (tmp_path / "text").write_text("no zip")
    for name in ("text", "missing", "."):
        with pytest.raises(UsageError, match="not a torch wheel"):
            claims.docstring_of_wheel(tmp_path / name)


def test_command_writes_and_checks_tables(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command tables a wheel; with --check it writes nothing and tells whether the table is current."""
    path = wheel(tmp_path, function(f"\n{RAISES}\n        * :func:`torch.a`\n        * torch.b mostly\n"))
    data.rmdir()

    assert claims.main(["--check", str(path)]) == EXIT_CHECK_FAILED
    assert documented_versions() == ()
    assert claims.main([str(path)]) == EXIT_DONE
    found = [(claim.text, claim.source) for claim in documented_claims("2.99.0")]
    assert found == [(":func:`torch.a`", None), ("torch.b mostly", None)]
    assert claims.main(["--check", str(path)]) == EXIT_DONE
    assert "2.99.0: 2 raises; 2 claims, 1 unparsed\n  unparsed: torch.b mostly\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    "text",
    [
        lambda count: "x " * count,
        lambda count: "`" * count,
        lambda count: "* torch.a\n" + "  - x\n" * count,
        lambda count: "* " + ":func:`torch.a`, " * count,
        lambda count: "* torch.a when called on " + "cpu or " * count,
        lambda count: "* torch.a" + " when called on cpu tensor" * count,
        lambda count: "* torch.a when a=" + "b/" * count + "!",
        lambda count: "* torch.a" + " in some cases" * count + " " + "a" * count,
        lambda count: "* " + ":" * count,
    ],
    ids=lambda text: re.sub(r"\W+", "_", text(3)[:24]) or "blank",
)
def test_time_is_linear(text: Callable[[int], str]) -> None:
    """Ten times as much odd text takes about ten times as long; a pattern that backtracks would take a hundred times, or for ever."""

    def seconds(count: int) -> float:
        before = time.process_time()
        parse_claims(f"{RAISES}\n{text(count)}")
        return time.process_time() - before

    few, many = (min(seconds(count) for _ in range(3)) for count in (4_000, 40_000))
    assert many < 30 * few


def test_releases_are_in_order() -> None:
    """Numbers count as numbers, a release comes behind what leads to it, and what is no version comes first."""
    expected = ["main", "2.9.1", "2.13.0a0+git0123456", "2.13.0rc1", "2.13.0", "2.13.0+cpu", "2.13.1"]
    given = expected.copy()
    random.Random(0).shuffle(given)

    assert sorted(given, key=torch_versions.key) == expected


@pytest.mark.parametrize(("version", "release", "minor"), table("claims.txt", "versions"))
def test_release_and_minor_of_a_build(version: str, release: str, minor: str) -> None:
    """A build is of one release; a file may name anything, which is of none that is known."""
    found = torch_versions.minor(version)
    assert (torch_versions.release(version), ".".join(map(str, found))) == (release, minor)
    assert (torch_versions.release("9" * 5000), torch_versions.minor("9" * 5000)) == ("9" * 5000, (0,))


# The catalog against the lists: every bullet has rows that speak to it, and no spec names a bullet in vain.


VERSIONS = documented_versions()
CLAIMS = {version: documented_claims(version) for version in VERSIONS}
LISTED = [claim for listed in CLAIMS.values() for claim in listed]
ROWS = [row for device in ("cpu", "cuda") for row in known_rows(device, SPECS)]
# There is no kernel to say it of: torch takes no complex tensors here, on any device we scan.
NO_SUCH_KERNEL = ("torch.Tensor.index_reduce dtype=complex",)
# Traits of our own, beside the documented conditions: what could make a bullet true of some cases and not of others.
OUR_TRAITS = {"antialias", "dims", "memory_format", "output_size", "reduction", "return_indices"}


def parts_of(claim: Claim) -> Iterator[tuple[str, Claim]]:
    """Yield a claim once for each op it names and each value of each condition, with words for what is meant."""
    for target in claim.targets:
        one = changed(claim, targets=(target,))
        yield target, one
        for stated in claim.conditions:
            others = tuple(it for it in claim.conditions if it is not stated)
            for value in stated.values:
                narrow = changed(stated, values=(value,))
                yield f"{target} {stated.name}={value}", changed(one, conditions=(narrow, *others))


@pytest.mark.parametrize("version", VERSIONS)
def test_every_bullet_is_covered(version: str) -> None:
    """Each op a bullet names, under each condition it states, has a row that could confirm or contradict it."""
    not_covered = [
        f"{part} ({claim.device})"
        for claim in CLAIMS[version]
        for part, narrow in parts_of(claim)
        # No row runs on MPS: what is said of it is measured elsewhere.
        if part not in NO_SUCH_KERNEL
        and not any(matches(row, narrow, ignore_device=claim.device == "mps") for row in ROWS)
    ]

    assert not_covered == []


def test_specs_name_what_is_documented() -> None:
    """A name given for the lists' sake, or a trait that is not ours, stands in those of some release; a slip would speak to nothing."""
    traits = {trait for spec in SPECS for case in spec.cases.values() for trait in case.traits}

    assert {name for spec in SPECS for name in spec.documented} <= {
        it for one in LISTED for it in one.targets
    }
    assert OUR_TRAITS <= traits <= OUR_TRAITS | {stated.name for one in LISTED for stated in one.conditions}
