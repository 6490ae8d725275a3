"""The catalog against the documented lists: every bullet has rows that speak to it, and no spec names a bullet in vain."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec
import pytest

from opspecs.model import OpSpec
from opspecs.registry import SPECS
from scanner.claims import documented_claims, documented_versions
from scanner.list_claims import Planning, plain, planning, rows_by_spec
from scanner.records import Claim, Condition
from tests.conftest import Command, one_line

VERSIONS = documented_versions()
CLAIMS = {version: documented_claims(version) for version in VERSIONS}
ROWS = planning()

# There is no kernel to say it of: torch takes no complex tensors here, on any device we scan.
NO_SUCH_KERNEL = {("torch.Tensor.index_reduce", "dtype=complex")}


def parts_of(claim: Claim) -> Iterator[tuple[str, Claim]]:
    """Yield a claim once for each op it names and each value of each condition, with words for what is meant."""
    for target in claim.targets:
        one = msgspec.structs.replace(claim, targets=(target,))
        yield target, one
        for position, condition in enumerate(claim.conditions):
            for value in condition.values:
                narrow = msgspec.structs.replace(condition, values=(value,))
                conditions = (*claim.conditions[:position], narrow, *claim.conditions[position + 1 :])
                if (target, f"{condition.name}={value}") not in NO_SUCH_KERNEL:
                    yield (
                        f"{target} {condition.name}={value}",
                        msgspec.structs.replace(one, conditions=conditions),
                    )


def not_covered(claims: Sequence[Claim], rows: Sequence[Planning]) -> list[str]:
    """Name the bullets, and what of them, that no row speaks to."""
    return [
        f"{plain(claim.text)} ({part}, {claim.device})"
        for claim in claims
        for part, narrow in parts_of(claim)
        if not rows_by_spec(narrow, rows)
    ]


def idle_names(specs: Sequence[OpSpec]) -> list[str]:
    """Name the specs that name what no release documents."""
    targets = {target for claims in CLAIMS.values() for claim in claims for target in claim.targets}
    return [f"{spec.name}: {name}" for spec in specs for name in spec.documented if name not in targets]


def conditions() -> Iterator[Condition]:
    for claims in CLAIMS.values():
        for claim in claims:
            yield from claim.conditions


def idle_traits(specs: Sequence[OpSpec]) -> list[str]:
    """Name the traits that no condition of any release asks for."""
    asked = {condition.name for condition in conditions()}
    return [
        f"{spec.name}:{case}: {trait}"
        for spec in specs
        for case, declared in spec.cases.items()
        for trait in declared.traits
        if trait not in asked
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_bullet_is_covered(version: str) -> None:
    """Each op a bullet names, under each condition it states, has a row that could confirm or contradict it."""
    assert not not_covered(CLAIMS[version], ROWS)


def test_a_bullet_without_rows_is_named() -> None:
    """What loses its rows is told: the bullet, the op and the condition."""
    rows = [row for row in ROWS if row.spec != "torch.kthvalue" and row.traits.get("mode") != "trilinear"]

    missing = not_covered(CLAIMS["2.15.0"], rows)

    assert "torch.kthvalue when called on an MPS tensor (torch.kthvalue, mps)" in missing
    (trilinear,) = (line for line in missing if "trilinear, cuda" in line)
    assert trilinear.startswith(
        "torch.nn.functional.interpolate when attempting to differentiate a CUDA tensor"
    )
    assert len(missing) == 2


def test_a_bullet_about_a_device_asks_for_rows_there() -> None:
    """Rows of the CPU alone say nothing of CUDA, and the other way round."""
    on_cpu = not_covered(CLAIMS["2.15.0"], [row for row in ROWS if row.device == "cpu"])
    on_cuda = not_covered(CLAIMS["2.15.0"], [row for row in ROWS if row.device == "cuda"])

    assert any(line.endswith("(torch.nn.Conv1d, cuda)") for line in on_cpu)
    assert not any(line.endswith("(torch.nn.MaxUnpool1d, any)") for line in on_cpu)
    assert any(line.endswith("(torch.Tensor.put_ accumulate=True, cpu)") for line in on_cuda)


def test_specs_name_what_is_documented() -> None:
    """A name given for the lists' sake is in the list of some release."""
    assert not idle_names(SPECS)
    assert idle_names([replace(SPECS[0], documented=("torch.nn.Conv1", "torch.nn.Conv1d"))]) == [
        f"{SPECS[0].name}: torch.nn.Conv1"
    ]


def test_traits_are_conditions() -> None:
    """A trait answers to a condition of some release; a typing slip in one would speak to nothing."""
    spec = next(spec for spec in SPECS if spec.name == "torch.Tensor.put_")
    slip = replace(spec.cases["overwrite"], traits={"acumulate": "False"})

    assert not idle_traits(SPECS)
    assert idle_traits([replace(spec, cases={"overwrite": slip})]) == [
        "torch.Tensor.put_:overwrite: acumulate"
    ]


@pytest.mark.parametrize(
    ("name", "both"),
    [
        ("accumulate", {"True", "False"}),
        ("index", {"list of tensors", "slice"}),
        ("src", {"Tensor", "value"}),
        ("weights", {"given", "none"}),
        ("layout", {"sparse-dense", "dense"}),
        ("output", {"indices", "value"}),
        ("quantized", {"True", "False"}),
        ("reduce", {"sum", "mean", "prod", "amax", "amin"}),
        (
            "mode",
            {
                "sum",
                "mean",
                "max",
                "nearest",
                "nearest-exact",
                "area",
                "linear",
                "bilinear",
                "bicubic",
                "trilinear",
            },
        ),
    ],
)
def test_both_sides_of_a_condition_are_measured(name: str, both: set[str]) -> None:
    """Where a bullet holds under a condition, its opposite is measured too."""
    assert both == {row.traits[name] for row in ROWS if name in row.traits}


def test_list_claims_shows_every_bullet(detmatrix: Command) -> None:
    """Each bullet of the latest release has a line, and below it the specs with their numbers of rows."""
    done = detmatrix("list", "--claims")

    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    assert {plain(claim.text) for claim in CLAIMS["2.15.0"]} <= {line.strip() for line in lines}
    below = lines[lines.index("  torch.kthvalue when called on an MPS tensor") + 1]
    kthvalue = {row.id for row in ROWS if row.spec == "torch.kthvalue"}
    assert below == f"    torch.kthvalue ({len(kthvalue)} rows)"
    assert "torch 2.15.0: 57 bullets, 57 covered" in lines


def test_list_claims_of_a_device_each(detmatrix: Command) -> None:
    """A bullet about two devices says of each what speaks to it."""
    lines = detmatrix("list", "--claims", "--torch", "2.13").stdout.splitlines()

    position = lines.index("  torch.Tensor.index_copy when called on a CPU or CUDA tensor")
    assert [line.split(" (")[0] for line in lines[position + 1 : position + 3]] == [
        "    cpu: torch.Tensor.index_copy",
        "    cuda: torch.Tensor.index_copy",
    ]


@pytest.mark.parametrize("version", ["2.11", "2.13.0", "2.15.0+cu130"])
def test_list_claims_json(detmatrix: Command, version: str) -> None:
    """Every claim of a release, once, with the ids of the rows that speak to it."""
    listed = json.loads(detmatrix("list", "--claims", "--torch", version, "--format", "json").stdout)

    claims = documented_claims(version)
    ids = {row.id for row in ROWS}
    assert [claim.id for claim in claims] == [one["id"] for one in listed["claims"]]
    assert all(one["covered"] and one["specs"] for one in listed["claims"])
    assert all(set(spec["rows"]) <= ids for one in listed["claims"] for spec in one["specs"])


def test_list_claims_says_what_is_not_covered(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bullet nothing speaks to stands in the list with those words, and in the count."""
    from scanner import list_claims  # noqa: PLC0415 - patched here alone

    monkeypatch.setattr(list_claims, "planning", lambda: [row for row in ROWS if row.spec != "torch.histc"])

    print(list_claims.coverage("2.15", "table"))

    lines = capsys.readouterr().out.splitlines()
    assert lines[lines.index("  torch.histc when called on a CUDA tensor") + 1] == "    not covered"
    assert "torch 2.15: 57 bullets, 56 covered, 1 not covered" in lines
    (histc,) = (
        one for one in json.loads(list_claims.coverage("2.15", "json"))["claims"] if not one["covered"]
    )
    assert histc["targets"] == ["torch.histc"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--claims", "--torch", "9.9"], "detmatrix: no table of the claims of torch 9.9 "),
        (["--claims", "--torch", ""], "detmatrix: no table of the claims of torch "),
        (["--claims", "Conv2d"], "detmatrix: --claims covers the whole catalog; leave the patterns out"),
        (["--torch", "2.13"], "detmatrix: --torch names the release whose claims are listed; add --claims"),
    ],
)
def test_list_claims_usage_errors(detmatrix: Command, arguments: list[str], expected: str) -> None:
    """What cannot be listed ends in one line that says what to do."""
    done = detmatrix("list", *arguments)

    assert (done.returncode, done.stdout) == (2, "")
    assert one_line(done.stderr).startswith(expected)
