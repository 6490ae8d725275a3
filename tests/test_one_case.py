"""Which case of an op is compiled."""

from __future__ import annotations

from msgspec.structs import replace

from scanner.modes import with_chosen
from scanner.observations.one_case import with_compiled
from tests.runs import SETTINGS, row


def test_the_enlarged_case_is_compiled() -> None:
    """Of what a database gives, the tiny sample provokes nothing."""
    sample = replace(row("opinfo:var", "sample_0", provokes=""), source="opinfo", provoked="samples")
    enlarged = replace(row("opinfo:var", "enlarged_0"), source="opinfo", provoked="enlarged")
    settings = replace(SETTINGS, modes=with_chosen(("compile_on",)))

    assert [one.compiled for one in with_compiled((sample, enlarged), settings)] == [False, True]
    assert [one.compiled for one in with_compiled((sample,), settings)] == [True]
