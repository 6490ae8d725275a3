"""The docstring of the installed torch, the tables of the releases, and the wheels they are read from."""

from __future__ import annotations

import inspect
import re
import textwrap
import zipfile
from pathlib import Path

import msgspec
import pytest

from detmatrix.scanner.claims import tables as claims
from detmatrix.scanner.claims.tables import (
    contradictions,
    documented_claims,
    documented_notes,
    documented_versions,
    parse_claims,
)
from detmatrix.scanner.errors import EXIT_CHECK_FAILED, EXIT_DONE, UsageError
from tests.bullets import CUBLAS, DETERMINISTIC, RAISES, read

# --- The docstring and the tables ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def docstring() -> str:
    torch = pytest.importorskip("torch")
    return torch.use_deterministic_algorithms.__doc__ or ""


def test_installed_docstring_is_read_in_full(docstring: str) -> None:
    """Every bullet line of the installed torch gives a claim, and every word of it is accounted for."""
    found = [claim for claim in parse_claims(docstring) if claim.section != "note"]

    assert len({claim.order for claim in found}) == len(re.findall(r"^ *\* ", docstring, re.MULTILINE))
    assert [claim.text for claim in found if not claim.parsed] == []


def test_installed_docstring_is_written_again(docstring: str) -> None:
    """The sources of each section, indented, are the docstring's own lines."""
    found = parse_claims(inspect.cleandoc(docstring))
    for section in ("deterministic", "raises"):
        sources = {claim.order: claim.source or "" for claim in found if claim.section == section}

        assert textwrap.indent("\n".join(sources.values()), "    ") + "\n\n" in inspect.cleandoc(docstring)


def test_installed_docstring_is_the_tabled_one(docstring: str) -> None:
    """The table of the installed release says what its docstring says."""
    torch = pytest.importorskip("torch")
    version = torch.__version__.partition("+")[0]
    if version not in documented_versions():
        pytest.skip(f"torch {version} is not tabled")
    tabled = tuple(msgspec.structs.replace(claim, source=None) for claim in parse_claims(docstring))

    assert (*documented_claims(version), *documented_notes(version)) == tabled


@pytest.mark.parametrize("version", documented_versions())
def test_tables_are_understood_and_current(version: str) -> None:
    """No bullet is unparsed, ids are unique, no docstring is held, and this parser reads the same today."""
    tabled = documented_claims(version)
    assert {(claim.parsed, claim.source) for claim in tabled} == {(True, None)}
    assert len({claim.id for claim in tabled}) == len(tabled)

    headings = {"deterministic": DETERMINISTIC, "raises": RAISES, "cublas": CUBLAS}
    for claim in tabled:
        bullet = claim.text.replace(" - ", "\n\n          - ")
        again = [
            msgspec.structs.replace(found, order=claim.order, text=claim.text, source=None)
            for found in read(bullet, headings[claim.section])
        ]

        assert claim in again


def test_tables_are_written_as_they_are_read() -> None:
    """Encoding a table gives the bytes of its file."""
    for version in documented_versions():
        written = claims.encode_table(version, (*documented_claims(version), *documented_notes(version)))

        assert (claims.DATA / f"{version}.json").read_bytes() == written


def test_contradictions_are_pairs_that_can_meet() -> None:
    """Only scatter_reduce in 2.15 stands in both lists for one device; conditions and devices keep others apart."""
    found = {
        version: [(one.id, other.id) for one, other in contradictions(documented_claims(version))]
        for version in documented_versions()
    }

    assert {version: pairs for version, pairs in found.items() if pairs} == {
        "2.15.0": [
            (
                "deterministic/torch.Tensor.scatter_reduce/cuda/reduce=mean,sum",
                "raises/torch.Tensor.scatter_reduce/cuda",
            )
        ]
    }


@pytest.mark.parametrize(
    ("acting", "raising", "expected"),
    [
        ("torch.a", "torch.a", 1),
        ("torch.a", "torch.b", 0),
        ("torch.a when called on a CPU tensor", "torch.a", 1),
        ("torch.a when called on a CPU tensor", "torch.a when called on a CUDA tensor", 0),
        ("torch.a, torch.b when called on a CPU tensor", "torch.b when called on a CPU or CUDA tensor", 1),
        ("torch.a when called on a CUDA tensor", "torch.a when attempting to differentiate a CUDA tensor", 1),
        ("torch.a when ``x=1``", "torch.a when ``x=2``", 0),
        ("torch.a when ``x=1`` or ``x=2``", "torch.a when ``x=2`` or ``x=3``", 1),
        ("torch.a when ``x=1``", "torch.a when ``y=2``", 1),
        ("torch.a", "torch.a in mysterious ways", 0),
    ],
)
def test_contradictions_need_a_common_call(acting: str, raising: str, expected: int) -> None:
    """Two claims contradict each other if some call of some op is meant by both."""
    found = parse_claims(f"{DETERMINISTIC}\n        * {acting}\n\n{RAISES}\n        * {raising}\n")

    assert len(contradictions(found)) == expected


def test_the_very_release_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Among tables of one minor release the one asked for is taken, and else the latest."""
    monkeypatch.setattr(claims, "DATA", tmp_path)
    tables = {}
    for patch in (0, 9, 10):
        tables[patch] = parse_claims(f"{RAISES}\n* torch.v{patch}")
        (tmp_path / f"2.99.{patch}.json").write_bytes(claims.encode_table(f"2.99.{patch}", tables[patch]))

    assert [documented_claims(name)[0].targets for name in ("2.99.0", "2.99.9+cpu", "2.99.5")] == [
        tables[0][0].targets,
        tables[9][0].targets,
        tables[10][0].targets,
    ]


@pytest.mark.parametrize("version", ["1.13.1", "3.0.0", "2", "", "../../secrets"])
def test_untabled_release_is_refused(version: str) -> None:
    """The message says which tables there are and how to write one."""
    with pytest.raises(UsageError, match=r"no table .*2\.13\.0.*python -m detmatrix\.scanner\.claims WHEEL"):
        documented_claims(version)


def test_damaged_table_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the file and the field."""
    monkeypatch.setattr(claims, "DATA", tmp_path)
    (tmp_path / "2.99.0.json").write_text('{"torch":"2.99.0","claims":[{"id":3}]}')

    with pytest.raises(UsageError, match=r"2\.99\.0\.json: cannot be read .*\$\.claims\[0\]\.id.*restore"):
        documented_claims("2.99")


# --- Wheels ----------------------------------------------------------------------------------------------------


def wheel(folder: Path, init: str, name: str = "torch-2.99.0+cpu-cp311-none-any.whl") -> Path:
    with zipfile.ZipFile(folder / name, "w") as file:
        file.writestr("torch/__init__.py", init)
    return folder / name


def function(docstring: str) -> str:
    return f"raise SystemExit\ndef use_deterministic_algorithms(mode):\n    r'''{docstring}'''\n"


def test_wheel_is_read_and_not_run(tmp_path: Path) -> None:
    """The docstring comes out as it stands in the source, backslashes included."""
    assert claims.docstring_of_wheel(wheel(tmp_path, function("Sets\n    \\'x'."))) == "Sets\n    \\'x'."
    assert claims.docstring_of_wheel(wheel(tmp_path, "def use_deterministic_algorithms(): ...")) == ""


def test_what_is_no_wheel_is_refused(tmp_path: Path) -> None:
    """Text files, missing files and folders are usage errors."""
    (tmp_path / "text").write_text("no zip")
    with zipfile.ZipFile(tmp_path / "empty", "w"):
        pass
    for name in ("text", "empty", "missing", "."):
        with pytest.raises(UsageError, match="not a torch wheel"):
            claims.docstring_of_wheel(tmp_path / name)


def test_command_writes_and_checks_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command tables a wheel; with --check it writes nothing and tells whether the table is current."""
    monkeypatch.setattr(claims, "DATA", tmp_path / "claims")
    path = wheel(tmp_path, function(f"\n{RAISES}\n        * :func:`torch.a`\n        * torch.b mostly\n"))

    assert claims.main(["--check", str(path)]) == EXIT_CHECK_FAILED
    assert documented_versions() == ()
    assert claims.main([str(path)]) == EXIT_DONE
    assert [(claim.text, claim.source) for claim in documented_claims("2.99.0")] == [
        (":func:`torch.a`", None),
        ("torch.b mostly", None),
    ]
    assert claims.main(["--check", str(path)]) == EXIT_DONE
    assert "2.99.0: 2 raises; 2 claims, 1 unparsed\n  unparsed: torch.b mostly\n" in capsys.readouterr().out
