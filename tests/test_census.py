"""A census reads out of a build who raises alerts and who checks the flag, and runs nothing of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scanner.census import names
from scanner.census.record import Census, encode, read_census
from scanner.errors import BuildError
from tests.census_builds import MEMBERS, detmatrix, wheel

ROOT = Path(__file__).parent.parent
RUN = ROOT / "reports" / "runs" / "torch-2.13.0-cpu.jsonl.gz"
RECORDED = ROOT / "reports" / "censuses" / "torch-2.13.0-cpu.json.gz"
# The callers that are documented facts of 2.13: a run and a census that both miss them are both wrong.
CPU_CALLERS = {"put_", "max_unpooling2d_forward_out", "max_unpooling3d_forward_out"}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Census:
    """The census of the small build, through the command line and back."""
    folder = tmp_path_factory.mktemp("census")
    code, _, text = detmatrix("census", "--wheel", wheel(folder / "torch.whl"), "-o", folder / "census.json")

    assert (code, text) == (0, "")
    return read_census(folder / "census.json")


def test_every_call_site_is_found_with_its_string(small: Census) -> None:
    """Strings are found in registers, on the stack, behind the loader's pointers, in a switch, in a moved part."""
    found = {one.alert: (one.function, one.path, one.via) for one in small.alerts if one.unresolved is None}

    assert found == {
        "always_caller": ("at::native::always", "always", "call"),
        "put_": ("at::native::conditional", "conditional", "call"),
        "older_caller": ("at::native::older", "conditional", "call"),
        "zero mode": ("at::native::choose", "conditional", "call"),
        "one mode": ("at::native::choose", "conditional", "call"),
        "kept_caller": ("at::native::jumps", "always", "jump"),
        "rare_caller": ("at::native::rare", "always", "call"),
        "checked_caller": ("at::native::checked", "always", "call"),
        "moved_caller": ("at::native::moved", "conditional", "call"),
        "cuBLAS": ("at::native::gemm", "always", "call"),
    }


def test_what_cannot_be_recovered_is_listed(small: Census) -> None:
    """A string that is computed, an unknown signature, an address taken: unresolved, with the reason, and counted."""
    unresolved = {one.function: one.unresolved for one in small.alerts if one.alert is None}

    assert unresolved == {
        "at::native::computed": "which string is passed is computed",
        "at::native::plain": "a signature that is not known passes it: PKc",
        "at::native::taken": "the address of the function is taken here, the call is elsewhere",
    }
    assert (small.counts.alert_sites, small.counts.unresolved) == (13, 3)


def test_what_asks_for_a_flag(small: Census) -> None:
    """Instances of one template stand together; each flag has its own entry."""
    asks = {(one.flag, one.function): (one.calls, len(one.places)) for one in small.asks}

    assert asks == {
        ("deterministicAlgorithms", "at::native::(anonymous namespace)::asks"): (2, 2),
        ("deterministicCuDNN", "at::native::lambda::{lambda#1}::operator()"): (1, 1),
        ("deterministicFillUninitializedMemory", "at::native::lambda"): (1, 1),
    }


def test_python_files(small: Census) -> None:
    """Questions and alerts in Python, not what sets a flag, nor other things of the name."""
    places = [(one.kind, one.name, one.alert, one.line, one.function) for one in small.python]

    assert places == [
        ("asks", "are_deterministic_algorithms_enabled", None, 3, "<module>"),
        ("alerts", "alert_not_deterministic", "median CUDA with indices output", 9, "Meta.median"),
        ("asks", "torch.backends.cudnn.deterministic", None, 10, "Meta.median"),
        ("alerts", "alert_not_deterministic", None, 16, "set_flag"),
    ]


def test_record_names_the_build_and_no_machine(small: Census, tmp_path: Path) -> None:
    """The record says which build it is of; the same build gives the same bytes, wherever it lies."""
    assert (small.torch, small.torch_git, small.cuda) == ("2.99.0+cpu", "abc123", None)
    assert small.libraries[0].build_id == "0123456789abcdef"
    again = tmp_path / "elsewhere"
    again.mkdir()
    code, out, _ = detmatrix("census", "--wheel", wheel(again / "torch.whl"), "--format", "json")

    assert code == 0
    assert out == encode(small)
    ids = [one.id for one in small.alerts] + [one.id for one in small.asks] + [one.id for one in small.python]
    assert len(ids) == len(set(ids))


def test_markdown_of_a_recorded_census(small: Census, tmp_path: Path) -> None:
    """A record is shown without the build; what is unresolved says so in the table and in the sentence."""
    (tmp_path / "census.json").write_text(encode(small), encoding="utf-8")
    code, out, text = detmatrix("census", "--census", tmp_path / "census.json")

    assert (code, text) == (0, "")
    assert "13 call sites of alerts, 10 distinct strings, 3 unresolved" in out
    assert "unresolved: which string is passed is computed" in out


def test_installed_torch_is_not_imported(tmp_path: Path) -> None:
    """The torch beside an interpreter is read even if importing it would end the process, .pth files likewise."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    packages = next((tmp_path / "env").glob("lib*/python*/site-packages"))
    for name, content in MEMBERS.items():
        (packages / name).parent.mkdir(parents=True, exist_ok=True)
        (packages / name).write_bytes(content)
    trap = f"import pathlib; pathlib.Path({str(tmp_path / 'ran')!r}).touch()\n"
    (packages / "torch" / "__init__.py").write_text(trap, encoding="utf-8")
    (packages / "trap.pth").write_text(trap, encoding="utf-8")
    code, out, _ = detmatrix("census", "--python", tmp_path / "env" / "bin" / "python", "--format", "json")

    assert code == 0
    assert json.loads(out)["source"] == "installed"
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("full", "expected"),
    [
        ("at::native::put_(at::Tensor&, bool)", "at::native::put_"),
        ("void at::f<int, (E)3>(int) const::{lambda(char)#1}::operator()() const", "at::f::{lambda#1}::operator()"),
        ("at::(anonymous namespace)::g(std::function<void (int)>)", "at::(anonymous namespace)::g"),
        ("bool at::operator<<<int>(at::A const&)", "at::operator<<"),
        ("at::A::operator bool() const", "at::A::operator bool"),
        ("at::A::operator->() const", "at::A::operator->"),
        ("_Z3bad", "_Z3bad"),
        ("", ""),
    ],
)  # fmt: skip
def test_short_names(full: str, expected: str) -> None:
    """A short name has neither result nor parameters nor template arguments."""
    assert names.short(full) == expected


def test_names_that_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A symbol whose demangled name doubles with each letter stays as it is; those before it are demangled."""
    symbol = "_Z1f1A1BIS_S_E"
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    symbol += "".join(f"S0_IS{digits[n]}_S{digits[n]}_E" for n in range(1, 36))
    monkeypatch.setattr(names, "SECONDS", 5)
    known = names.demangle(["_Z1ai", symbol])

    assert known == {"_Z1ai": "a(int)", symbol: symbol}


def _recorded_without(tmp_path: Path, change: Any) -> Path:
    raw = json.loads(encode(read_census(RECORDED)))
    change(raw)
    path = tmp_path / "census.json"
    path.write_text(json.dumps(raw), encoding="utf-8")
    return path


def test_recorded_census_has_every_alert_that_the_recorded_run_met() -> None:
    """The truth on the CPU: what a scan met is in the census of that build with the same string."""
    code, out, text = detmatrix("census", "--census", RECORDED, "--check", RUN)

    assert (code, text) == (0, "")
    assert {one.alert for one in read_census(RECORDED).alerts} >= CPU_CALLERS
    assert "Every alert that torch-2.13.0-cpu.jsonl.gz met" in out


@pytest.mark.parametrize("caller", sorted(CPU_CALLERS))
def test_a_census_that_misses_an_alert_fails(caller: str, tmp_path: Path) -> None:
    """A census without one of the alerts that were met, or with another string there, does not pass."""

    def remove(raw: Any) -> None:
        raw["alerts"] = [one for one in raw["alerts"] if one["alert"] != caller]
        raw["python"] = [one for one in raw["python"] if one["alert"] != caller]

    def alter(raw: Any) -> None:
        for one in (*raw["alerts"], *raw["python"]):
            one["alert"] = one["alert"] and one["alert"].replace(caller, f"{caller}x")

    for change in (remove, alter):
        code, out, _ = detmatrix("census", "--census", _recorded_without(tmp_path, change), "--check", RUN)

        assert code == 1
        assert [line.split(":")[:2] for line in out.splitlines()] == [["missing", f" {caller}"]]


def test_check_refuses_a_run_of_another_build(small: Census, tmp_path: Path) -> None:
    """Of two builds nothing follows for each other."""
    (tmp_path / "census.json").write_text(encode(small), encoding="utf-8")
    code, _, text = detmatrix("census", "--census", tmp_path / "census.json", "--check", RUN)

    assert code == 2
    assert "take the census of the build that was scanned" in text


@pytest.mark.nightly
def test_installed_torch_agrees_with_what_was_recorded() -> None:
    """The census of the torch these tests run with has every alert that the recorded run of that build met."""
    code, out, text = detmatrix("census", "--check", RUN)
    if code == 2 and "take the census of the build that was scanned" in text:
        pytest.skip("another torch is installed than the recorded run is of")

    assert (code, text) == (0, "")
    assert "Every alert" in out


@pytest.mark.parametrize(
    "path", sorted((ROOT / "reports" / "censuses").glob("*.gz")), ids=lambda path: path.name
)
def test_recorded_censuses(path: Path) -> None:
    """Each recorded census reads, is of the build its name says, and counts what it holds."""
    census = read_census(path)

    assert path.name == f"torch-{census.torch.replace('+', '-')}.json.gz"
    assert census.counts.alert_sites == len(census.alerts)
    assert census.counts.unresolved == sum(one.alert is None for one in census.alerts)
    assert any(one.alert == "put_" for one in census.alerts)
    for holder in ("/root", "/tmp", "/home", "/work"):
        assert holder not in encode(census)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"kind":"census","format":99}', "upgrade detmatrix"),
        ('{"kind":"census","format":1}', "take the census again"),
        ('{"kind":"header","format":1}', "not a census"),
        ("\x00", "not a census"),
        ("[" * 100000, "not a census"),
    ],
)
def test_records_that_are_none(text: str, message: str, tmp_path: Path) -> None:
    """What is no census, is damaged or too new, is told in one line."""
    path = tmp_path / "census.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BuildError, match=message):
        read_census(path)
