"""The catalog against the documented lists: every bullet has rows that speak to it, and no spec names a bullet in vain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec
import pytest

from detmatrix.opspecs.model import OpSpec
from detmatrix.opspecs.registry import SPECS
from detmatrix.scanner.cases.rows import known_rows
from detmatrix.scanner.claims.matching import matches
from detmatrix.scanner.claims.tables import documented_claims, documented_versions
from detmatrix.scanner.observations.records import Claim, Condition, Row

VERSIONS = documented_versions()
CLAIMS = {version: documented_claims(version) for version in VERSIONS}
ROWS = [row for device in ("cpu", "cuda") for row in known_rows(device, SPECS)]

# There is no kernel to say it of: torch takes no complex tensors here, on any device we scan.
NO_SUCH_KERNEL = {("torch.Tensor.index_reduce", "dtype=complex")}


# Traits of our own, beside the documented conditions: what could make a bullet true of some cases and not of others.
OUR_TRAITS = ("antialias", "dims", "memory_format", "output_size", "reduction", "return_indices")


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


def not_covered(claims: Sequence[Claim], rows: Sequence[Row]) -> list[str]:
    """Name the ops of bullets, and their conditions, that no row speaks to."""
    return [
        f"{part} ({claim.device})"
        for claim in claims
        for part, narrow in parts_of(claim)
        # No row runs on MPS: what is said of it is measured elsewhere.
        if not any(matches(row, narrow, ignore_device=claim.device == "mps") for row in rows)
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
    """Name the traits that no condition of any release asks for and that are not ours either."""
    asked = {condition.name for condition in conditions()} | set(OUR_TRAITS)
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
    """What loses its rows is told: the op and the condition."""
    rows = [row for row in ROWS if row.spec != "torch.kthvalue" and row.traits.get("mode") != "trilinear"]

    missing = not_covered(CLAIMS["2.15.0"], rows)

    assert missing == ["torch.nn.functional.interpolate mode=trilinear (cuda)", "torch.kthvalue (mps)"]


def test_specs_name_what_is_documented() -> None:
    """A name given for the lists' sake is in the list of some release."""
    assert not idle_names(SPECS)
    assert idle_names([replace(SPECS[0], documented=("torch.nn.Conv1", "torch.nn.Conv1d"))]) == [
        f"{SPECS[0].name}: torch.nn.Conv1"
    ]


def test_traits_are_conditions() -> None:
    """A trait answers to a condition of some release or is one of ours; a typing slip would speak to nothing."""
    spec = next(spec for spec in SPECS if spec.name == "torch.Tensor.put_")
    slip = replace(spec.cases["overwrite"], traits={"acumulate": "False"})

    assert not idle_traits(SPECS)
    assert idle_traits([replace(spec, cases={"overwrite": slip})]) == [
        "torch.Tensor.put_:overwrite: acumulate"
    ]
    assert set(OUR_TRAITS) == {trait for row in ROWS for trait in row.traits} & set(OUR_TRAITS)
