"""``locate`` around programs of all kinds, in this process: planted roots are found at their lines, and no others."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from detmatrix.scanner.locate import locate
from detmatrix.scanner.locate.fixture import detmatrix_locate  # noqa: F401 - a fixture, found by its name
from detmatrix.scanner.locate.overloads import known
from tests.programs import (
    amp,
    checkpointing,
    graph,
    loader,
    nothing,
    planted,
    resnet,
    transformer,
    unet,
    unseeded,
)

STABLE: dict[str, Callable[[], Any]] = {
    "transformer": lambda: transformer.Training().step(),
    **{
        one.__name__.rpartition(".")[2]: one.step
        for one in (amp, checkpointing, graph, loader, nothing, resnet, unet)
    },
}

pytestmark = pytest.mark.usefixtures("one_thread")


def marked(module: ModuleType, kind: str = "") -> dict[int, str]:
    """Return the lines of a program that say in a comment that they are roots, with what they say."""
    text = Path(str(module.__file__)).read_text(encoding="utf-8").splitlines()
    found = {number: re.search(r"# root: (.*)$", line) for number, line in enumerate(text, 1)}
    return {number: one[1] for number, one in found.items() if one and kind in one[1]}


def line(root: Any) -> int:
    """Return the line of the user's file that a root is said to be at."""
    assert root.site.line is not None
    return int(root.site.line.line)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", STABLE)
def test_nothing_is_found_where_nothing_differs_and_the_program_computes_the_same(name: str) -> None:
    """Replaying leaves generators, statistics, gradients and aliased arguments as they are without it."""
    step = STABLE[name]
    bare = step()
    with locate() as found:
        observed = step()

    assert str(found).startswith("No call site differed"), str(found)
    assert found.located is not None
    assert found.located.replayed > 20
    torch.testing.assert_close(observed, bare, rtol=0, atol=0)


def test_planted_roots_are_found_at_their_lines() -> None:
    """Every kind of them: returned, changed in place, in lists, second outputs, permuted, integers, sparse, backward."""
    with locate() as found:
        planted.step()

    assert {line(root) for root in found.roots} == set(marked(planted))
    assert len(marked(planted)) >= 10


def test_a_root_says_what_its_author_recognises() -> None:
    """Module, part, line, how often, how far, what later ops were given of it."""
    with locate(replays=3) as found:
        planted.step()
    (root,) = [one for one in found.roots if marked(planted)[line(one)] == "in a module"]

    assert root.site.module == "Model.layers.1.attn"
    assert (root.site.phase, root.cause, root.flag) == ("forward", "replay", "differs")
    assert root.tensors == ("float32[4, 8]",)
    assert (root.calls, root.differing_calls, root.executions, root.differing) == (1, 1, 3, 3)
    assert root.distance.max_ulp is not None
    assert root.distance.max_ulp > 0
    assert root.reached > 3


def test_an_op_that_changes_its_argument_is_no_later_op_of_its_own() -> None:
    """Of later ops each is given what came of it, a further call of the same op too."""
    x = torch.zeros(3)
    with locate() as found:
        planted.planted.add_count_(x)
    with locate() as again:
        for _ in range(2):
            planted.planted.add_count_(x)
        x.sum()

    assert [root.reached for root in (*found.roots, *again.roots)] == [0, 2]


@pytest.mark.parametrize(
    ("overwrite", "counts"),
    [
        (lambda x, _: x.zero_(), [0, 0]),
        (lambda x, _: torch.ones(3, 3, out=x), [0, 0]),
        (lambda x, other: x.copy_(other), [0, 2]),
        (lambda x, _: x[0].copy_(x[1]), [2, 0]),
        (lambda x, _: torch.add(x, 1, out=x), [2, 0]),
        (lambda x, _: x[0].zero_(), [1, 0]),
        (lambda x, other: torch.mm(x, other, out=x), [2, 2]),
    ],
    ids=["filled", "made", "copied", "copied from itself", "read and written", "in part", "of both"],
)
def test_memory_that_is_overwritten_comes_of_what_was_written_last(
    overwrite: Callable[..., Any], counts: list[int]
) -> None:
    """Of roots that wrote to it before nothing is left, unless it is written from what they wrote, or in part."""
    x, other = torch.zeros(3, 3), torch.zeros(3, 3)
    with locate() as found:
        planted.planted.add_count_(x)
        planted.planted.add_count_(other)
        overwrite(x, other)
        x.sum()

    assert [root.reached for root in found.roots] == counts


def test_a_root_is_followed_into_memory_that_it_overwrites() -> None:
    """Its own mark is the one that stays."""
    counts = iter(range(1, 100))
    count = planted.define(
        "count(Tensor x, *, Tensor(a!) out) -> ()", lambda x, *, out: out.copy_(x + next(counts)) and None
    )
    x = torch.zeros(())
    with locate() as found:
        planted.planted.add_count_(x)
        count(torch.ones(()), out=x)
        x.sum()

    assert [root.reached for root in found.roots] == [0, 1]


def test_backward_ops_stand_at_the_line_of_the_forward_call() -> None:
    """Also where the forward phase ran twice."""
    with locate() as found:
        planted.step()
    phases = {(marked(planted)[line(root)], root.site.phase) for root in found.roots}

    assert ("under checkpointing", "forward") in phases
    assert ("under checkpointing", "recomputed") in phases
    assert ("a backward function of one's own", "backward") in phases


class Sine(torch.nn.Module):
    """The backward phase of its op, which PyTorch derives, takes a cosine."""

    def forward(self, x: torch.Tensor) -> Any:
        """Take it; what comes behind it makes no node of autograd."""
        y = x.sin()  # root: by its backward
        torch.ones(2).add(1)
        return y


@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
def test_a_backward_op_has_line_and_module_of_the_forward_call() -> None:
    """No line of Python calls it; autograd's number of the node leads back to the forward call."""
    # A kernel of PyTorch's own that differs, on request.
    counts = iter(range(1, 100))
    with torch.library._scoped_library("aten", "IMPL") as library, locate() as found:
        library.impl("cos", lambda x: x * next(counts), "CPU")
        torch.nn.Sequential(torch.nn.Identity(), Sine())(torch.ones(3, requires_grad=True)).sum().backward()

    (root,) = found.roots
    assert (root.site.op, root.site.phase, root.site.node) == ("aten::cos", "backward", "SinBackward0")
    assert root.site.module == "Sequential.1"
    assert root.site.line is not None
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    assert "# root: by its backward" in lines[root.site.line.line - 1]


def test_a_hook_in_the_backward_part_has_a_line_of_its_own() -> None:
    """It is the user's, whatever node of autograd called it."""
    x = torch.randn(3, requires_grad=True)
    with locate() as found:
        y = x.sin()
        y.register_hook(lambda gradient: planted.planted.add_count(gradient) * 1)
        y.sum().backward()

    (root,) = found.roots
    assert root.site.phase == "backward"
    assert root.site.line is not None
    assert "lambda" in root.site.line.function


@pytest.mark.parametrize("state", ["version", "generator", "gradient"])
def test_autograd_and_generators_do_not_notice(state: str) -> None:
    """Versions of tensors rise once for each change; the generator is where one execution leaves it."""
    x = torch.ones(4, requires_grad=True)

    def program() -> Any:
        torch.manual_seed(0)
        y = x * 1
        y.add_(1)
        y.mul_(torch.rand(4))
        if state == "version":
            return y._version
        if state == "generator":
            return torch.get_rng_state()
        y.sum().backward()
        gradient, x.grad = x.grad, None
        return gradient

    bare = program()
    with locate():
        observed = program()

    torch.testing.assert_close(observed, bare, rtol=0, atol=0)


def test_an_error_of_an_op_is_the_program_s() -> None:
    """It reaches the program as without us, and the block goes on."""
    with locate() as found, pytest.raises(RuntimeError, match="must match"):
        torch.ones(3) + torch.ones(4)

    assert found.roots == ()


def _once(x: torch.Tensor) -> torch.Tensor:
    calls: list[int] = []

    def fail_again(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        if len(calls) > 1:
            raise ValueError("only once")
        return x + 1

    result: torch.Tensor = planted.define("once(Tensor x) -> Tensor", fail_again)(x)
    return result


def _lying(x: torch.Tensor) -> torch.Tensor:
    touch = planted.define("touch(Tensor x) -> Tensor", lambda x: x.add_(1) * 2)
    for _ in range(4):
        touch(x)
    return x


def _shared(_: torch.Tensor) -> torch.Tensor:
    return torch.zeros(1).expand(4).index_put_((torch.tensor([0]),), torch.ones(1))


ONCE: dict[str, tuple[Callable[[torch.Tensor], Any], int, str]] = {
    "fails when it is executed again": (_once, 1, "executed again: detmatrix_planted::once"),
    "changes an argument that its schema does not tell of": (_lying, 4, "later calls are restored"),
    "changes memory that elements share": (_shared, 1, "or expanded: aten::index_put_"),
    "is too large": (lambda _: torch.ones(300).sign(), 1, "are larger than --max-bytes"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ONCE)
def test_what_cannot_be_executed_again_happens_once_and_is_told(name: str) -> None:
    """What it did the first time is the program's result."""
    program, value, told = ONCE[name]
    with locate(max_bytes=1000) as found:
        result = program(torch.zeros(3))

    assert set(result.tolist()) == {value}
    assert found.roots == ()
    assert told in str(found)


@pytest.mark.filterwarnings("ignore")
def test_an_op_that_draws_without_a_tag_is_no_root() -> None:
    """It is told, and its later calls begin with the same state."""
    with torch.library._scoped_library("aten", "IMPL") as library, locate() as found:
        library.impl("cos", lambda x: x * torch.rand(()), "CPU")
        for _ in range(2):
            torch.ones(3).cos()
    known(torch.ops.aten.cos.default).random = False

    assert found.roots == ()
    assert "later calls are restored: aten::cos" in str(found)


def test_ops_are_left_out_on_request() -> None:
    """By the name of the overload, or without it."""
    with locate(ignored=("detmatrix_planted::total", "detmatrix_planted::add_count")) as found:
        planted.step()

    assert not {"detmatrix_planted::total", "detmatrix_planted::add_count"} & {
        one.site.op for one in found.roots
    }
    assert "to ops that are ignored on request" in str(found)


def test_the_fixture_fails_a_test_that_is_not_reproducible(detmatrix_locate: Any) -> None:  # noqa: F811
    """With the report as the message; where nothing could have been seen it skips."""
    with pytest.raises(pytest.fail.Exception, match="planted::add_count"), detmatrix_locate():
        planted.planted.add_count(torch.ones(3))
    with (
        pytest.raises(pytest.skip.Exception, match="Nothing was judged: 0 ops"),
        detmatrix_locate(),
    ):
        pass
    with pytest.raises(pytest.skip.Exception, match="nothing raced here"), detmatrix_locate():
        torch.ones(3).sum()


def test_unseeded_dropout_is_no_root_of_one_run() -> None:
    """From the same state of the generator it is the same; that it is not seeded, two runs show."""
    with locate() as found:
        unseeded.step()

    assert found.roots == ()
