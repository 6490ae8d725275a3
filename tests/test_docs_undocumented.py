"""What differs or raises and the lists do not say."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from reports.docs import view as docs_render
from reports.docs.view import drift_lines
from scanner.verdicts.vocabulary import Finding
from tests.compared import shows
from tests.documented import docs_of, docstring, shown
from tests.runs import Planned, row


def test_what_an_unparsed_bullet_names_is_not_undocumented() -> None:
    """A bullet that was not understood may be about the rows: it is told, and so is the op it names, and no other."""
    text = docstring(["torch.a on Tuesdays"])
    docs = docs_of(text, [shown("torch.a", "raises"), shown("torch.a_b", "raises")])

    assert [one.op for one in docs.unread] == ["torch.a"]
    assert [one.op for one in docs.undocumented] == ["torch.a_b"]
    assert [line.partition(": ")[0] for line in drift_lines(docs)] == ["undocumented", "unparsed", "unread"]
    assert "unparsed: torch.a on Tuesdays" in list(drift_lines(docs))
    assert list(drift_lines(docs))[-1].endswith("an unparsed bullet names it")
    assert "* An unparsed bullet names `torch.a`, forward on cuda" in "".join(docs_render.markdown(docs))
    assert [one["op"] for one in json.loads("".join(docs_render.as_json(docs)))["unread"]] == ["torch.a"]


@pytest.mark.parametrize(
    ("finding", "expected"),
    [
        ("silent", True),
        ("raises", True),
        ("over_alert", True),
        ("fixed_by_mode", True),
        ("mode_dependent", False),
        ("deterministic", False),
        ("inconclusive", False),
    ],
)
def test_undocumented_rows_raise_or_differ(finding: Finding, expected: bool) -> None:
    """What raises or differs and has no bullet is undocumented; what shows nothing is not."""
    docs = docs_of(docstring(["torch.b"]), [shown("torch.a", finding)])

    assert expected == bool(docs.undocumented)


@pytest.mark.parametrize(("finding", "missing"), [("fixed_by_mode", []), ("silent", ["torch.empty"])])
def test_memory_that_the_flag_fills_misses_no_bullet(finding: Finding, missing: list[str]) -> None:
    """What uninitialised memory shows is documented elsewhere; that it still differs with the flag on is not."""
    planned = row("torch.empty", "floating", "forward", "float32", traits={"fill": "floating:NaN"})

    docs = docs_of(docstring(), [shows(finding, planned)])

    assert missing == [one.op for one in docs.undocumented]
    assert len(docs.filled) == (not missing)
    assert ("Uninitialised memory" in "".join(docs_render.markdown(docs))) == (not missing)
    assert len(json.loads("".join(docs_render.as_json(docs)))["filled"]) == (not missing)


@pytest.mark.parametrize(
    ("op", "bug"),
    [
        ("torch.empty", False),
        ("torch.Tensor.new_empty_strided", False),
        ("torch.Tensor.resize_as_", False),
        ("torch.ops.aten.empty.memory_format", False),
        ("torch.Tensor.new", False),
        ("torch.linalg.lstsq", True),
    ],
)
def test_memory_that_an_op_reads_is_a_bug_and_not_documented(op: str, *, bug: bool) -> None:
    """The fill is documented for ops that are to return memory as it is; what another op reads of it is a bug to report."""
    docs = docs_of(docstring(), [shown(op, "uninitialized", device="cpu")])

    for text in ("".join(docs_render.markdown(docs)), "".join(docs_render.page_of(docs))):
        assert (
            "1 row differs with the flag off, because the op reads memory that nobody wrote" in text
        ) == bug
        assert (
            "1 row differs with the flag off, because the op returns memory that nobody wrote" in text
        ) == (not bug)
    assert docs.undocumented == ()


def test_a_users_own_function_is_no_bug_of_pytorch() -> None:
    """It reads memory that nobody wrote, and is none of what the documentation speaks of."""
    docs = docs_of(docstring(), [shown("mine.reads", "uninitialized", device="cpu")])

    assert "Report it to PyTorch" not in "".join(docs_render.markdown(docs))


def test_undocumented_rows_are_grouped() -> None:
    """Rows of one op, device, direction and finding stand together; claims that name the op are mentioned."""
    text = docstring(["torch.a with ``x=True``", "torch.b on Tuesdays"])
    rows = [
        shown("torch.a", "raises", case="one"),
        shown("torch.a", "raises", case="two"),
        shown("torch.a", "raises", case="one", direction="backward"),
        shown("torch.a", "fixed_by_mode", traits={"x": "True"}),
        shown("mine.a", "raises"),
    ]
    docs = docs_of(text, rows)
    groups = [
        (one.op, one.device, one.direction, one.finding, len(one.evidence)) for one in docs.undocumented
    ]

    assert groups == [
        ("torch.a", "cuda", "backward", "raises", 1),
        ("torch.a", "cuda", "forward", "raises", 2),
    ]
    assert [claim.text for claim in docs.undocumented[0].named] == ["torch.a with ``x=True``"]
    assert [claim.text for claim in docs.unparsed] == ["torch.b on Tuesdays"]


def _sized(op: str, case: str, shape: str) -> Planned:
    """Return a row that differs without an alert, on an input of this shape."""
    planned, observations = shown(op, "silent", case=case)
    inputs = (f"args[0]: float32 {shape}", "args[1]: 0", "args[2]: int64 (2,)")
    return planned, [replace(one, inputs=inputs) for one in observations]


def test_undocumented_is_told_with_its_smallest_case() -> None:
    """Whoever looks into it starts with the fewest elements; strides are no part of a size."""
    rows = [
        _sized("torch.a", "large", "(1000, 2)"),
        _sized("torch.a", "small", "(5, 3), strides (1, 5)"),
        _sized("torch.a", "middle", "(40,)"),
    ]
    docs = docs_of(docstring(["torch.b"]), rows)
    (message,) = json.loads("".join(docs_render.as_json(docs)))["undocumented"]
    text = "".join(docs_render.markdown(docs))

    assert message["smallest"] == {"id": "torch.a:small:forward:float32", "elements": 17}
    assert "`torch.a:small:forward:float32`, 17 input elements" in text
    assert next(iter(drift_lines(docs))).endswith(": torch.a:small:forward:float32")


def test_the_smallest_case_may_have_no_size() -> None:
    """A row whose inputs were not recorded is not the smallest, unless there is no other."""
    unknown = shown("torch.a", "silent", case="unknown")
    unsized = unknown[0], [replace(one, inputs=()) for one in unknown[1]]
    of_two = docs_of(docstring(["torch.b"]), [unsized, _sized("torch.a", "sized", "(5,)")])
    of_one = docs_of(docstring(["torch.b"]), [unsized])

    assert of_two.undocumented[0].smallest[0].row.row.case == "sized"
    assert of_one.undocumented[0].smallest[1] is None
