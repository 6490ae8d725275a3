"""A report in a terminal: names that are cut, and a wide one; tests/test_goldens.py holds every text to the width."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from reports.matrix.model import load
from reports.render.terminal import NARROW as WIDTH
from reports.render.terminal import fitted
from reports.report import text
from tests.test_report_text import RUN


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (("torch.take", "torch.nn.Conv2d"), ["torch.take", "…nn.Conv2d"]),
        (("Tensor.index_put", "torch.index_put"), ["Tensor.index_put", "torch.index_put"]),
        (("a.scatter_add", "torch.scatter_add_"), ["…scatter_add", "…scatter_add_"]),
        (("torch.fractional_max_pool2d",), ["…fractional_max_pool2d"]),
        (("torch." + "long" * 40,), ["…" + "longlonglonglonglonglonglong"[-21:]]),
    ],
)
def test_names_are_cut_at_dots_and_never_read_the_same(names: tuple[str, ...], shown: list[str]) -> None:
    """What would read like another name stays whole; only a part without an end is cut within."""
    assert [*fitted(names, 12, 22).values()] == shown


def test_a_wide_terminal_is_used() -> None:
    """Several releases leave room for costs and actions in 140 columns, and actions are whole."""
    (new,) = load([str(RUN)])
    older = replace(new.run.header.environment, torch="2.12.0")
    old = replace(new, run=replace(new.run, header=replace(new.run.header, environment=older)))
    both = [old, new]
    narrow, wide = ("".join(text.render(both, width=width)) for width in (WIDTH, 140))

    assert ("set the flag: it fills memory" in wide, "set the flag" in narrow) == (True, False)
    assert max(map(len, wide.splitlines())) <= 140
