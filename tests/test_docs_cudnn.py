"""A bullet whose rows differ only together with cuDNN's switch says so in a condition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from msgspec.structs import replace

from reports.docs.judge import Docs, join
from reports.docs.regenerate import regenerate
from reports.matrix.model import Matrix, matrix_of
from scanner.claims.tables import parse_claims
from scanner.modes import with_chosen
from tests.bullets import DETERMINISTIC, read
from tests.documented import CUDA, bullets, docstring, only, run_of, shown
from tests.runs import drifting, ran, stable

CONV = "torch.nn.functional.conv2d"


def _docs(benchmark: Sequence[Mapping[str, int]], both: Sequence[Mapping[str, int]]) -> Docs:
    """Return what a run says of a bullet whose only row did not differ with the flag off, nor with it on."""
    planned, seen = shown(CONV, "deterministic")
    seen = [*seen, *ran(planned, "cudnn_benchmark", *benchmark), *ran(planned, "cudnn_both", *both)]
    one = run_of(parse_claims(docstring([f"{CONV} {CUDA}"])), [(planned, seen)])
    header = one.run.header
    settings = replace(header.settings, modes=with_chosen(("cudnn_benchmark", "cudnn_both")))
    matrix: Matrix = matrix_of(one.name, replace(one.run, header=replace(header, settings=settings)))
    return join([matrix])


@pytest.mark.parametrize(
    ("benchmark", "both", "condition"),
    [
        (drifting(40), stable(), " with ``torch.backends.cudnn.benchmark=True``"),
        (drifting(40), drifting(40), ""),
        (stable(), stable(), ""),
    ],
)
def test_what_acts_only_with_the_switch_is_a_condition(
    benchmark: Sequence[Mapping[str, int]], both: Sequence[Mapping[str, int]], condition: str
) -> None:
    """It differs with cuDNN's benchmark on, and with the deterministic switch on as well it does not."""
    docs = _docs(benchmark, both)

    acting, _ = bullets(regenerate(docs).regenerated)

    assert [one.replace(":func:", "").replace("`torch.nn.functional.conv2d`", CONV) for one in acting] == [
        f"{CONV}{condition} {CUDA}"
    ]
    assert only(docs).agreement == "not_triggered"
    assert ("benchmark=True 1 row differed" in only(docs).reason) == bool(condition)


def test_such_a_condition_is_read() -> None:
    """What is written into the lists is understood where it is found in them."""
    (claim,) = read(f"{CONV} with ``torch.backends.cudnn.benchmark=True`` {CUDA}", DETERMINISTIC)

    assert [(one.kind, one.name, one.values) for one in claim.conditions] == [
        ("keyword", "torch.backends.cudnn.benchmark", ("True",))
    ]
