"""What ``torch.compile`` compiles, as one op of a record: what it is given, what it draws, and what is told of it."""

from __future__ import annotations

import collections
import copy
import io
import pickle
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from detmatrix.scanner.locate import record
from detmatrix.scanner.located import text
from detmatrix.scanner.programs.runs import RecordedRun, hold, judge
from tests.locating import held, recorded, roots_of

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.filterwarnings("ignore")]


def _shifting(module: Any, _: Any) -> Any:
    """Compile, as a backend of the compiler, to what gives other bits."""
    return lambda *given: [one + 1e-3 for one in module.forward(*given)]


def test_a_compiled_model_is_one_op_beside_an_eager_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes of it is reached; the same backend gives the same."""
    for name, backend in (("eager", "eager"), ("again", "eager"), ("other", _shifting)):
        torch.manual_seed(0)
        monkeypatch.setenv("TORCHDYNAMO_DISABLE", "01"[name == "eager"])
        with record(str(tmp_path / name)):
            net = torch.compile(torch.nn.Linear(4, 4), backend=backend)
            net(torch.ones(2, 4)).relu().sum()
    same = hold([str(tmp_path / "eager"), str(tmp_path / "again")])
    found = hold([str(tmp_path / "eager"), str(tmp_path / "other")])

    assert (same.roots, same.partings, same.compared) == ((), (), same.ops)
    assert roots_of(found) == [("compiled::Linear", "runs", 2, "compiled in one of the runs only")]
    assert found.roots[0].site.module == "Linear"
    assert "rounds in other places" in text(found)


def _compiled(*model: Any, **by_name: Any) -> Any:
    return torch.compile(*model, backend="eager", **by_name)


class _Net(torch.nn.Module):
    def __init__(self, number: float) -> None:
        super().__init__()
        self.number, self.weight = number, torch.nn.Parameter(torch.full((2,), number))

    def forward(self, x: Any) -> Any:
        return x * self.weight


class _Scaled(torch.nn.Module):
    def __init__(self, number: float) -> None:
        super().__init__()
        self.number, self.inner = number, _compiled(lambda x: x * 2)

    def forward(self, x: Any) -> Any:
        return self.inner(x) * self.number


class _Trainer:
    def __init__(self, number: float) -> None:
        self.nets = {"a": _Net(number)}
        self.step = _compiled(self._step)

    def _step(self, x: Any) -> Any:
        return self._forward(x)

    def _forward(self, x: Any) -> Any:
        return self.nets["a"](x)


NETS: dict[str, Any] = {}


def _named(x: Any) -> Any:
    return NETS["a"](x)


def _global(number: float) -> None:
    NETS["a"] = _Net(number)
    _compiled(lambda x: _named(x))(torch.ones(2))  # noqa: PLW0108 - it is named by what is compiled


def _closure(number: float) -> None:
    factor = torch.full((2,), number)
    _compiled(lambda x, by=factor: x * by)(torch.ones(2))
    _compiled(lambda x: x * factor)(torch.ones(2))


def _dropout(number: float) -> None:
    torch.manual_seed(int(number))
    _compiled(torch.nn.functional.dropout)(torch.ones(64))


def _unwritten(number: float) -> None:
    torch.full((30,), number)  # what the memory held before
    x, unused = torch.empty(30), torch.empty(30)
    _compiled(lambda x, _: x.fill_(1) + 1)(x, unused).sum()
    x.sum()


def _partly_written(number: float) -> None:
    junk = np.full(2500, number, dtype=np.float32)
    del junk
    out = torch.empty(2500)
    write = _compiled(lambda x, out: out[:10].copy_(x * 2).sum())
    write(torch.ones(10), out)
    junk = np.full(2500, number + 1, dtype=np.float32)
    del junk
    rows = torch.empty(2, 1250)
    for row in rows:
        _compiled(lambda x, out: out.copy_(x))(torch.ones(1250), row)
    rows.sum()
    same = torch.zeros(2500) + number * 0
    del same
    again = torch.empty(2500)
    _compiled(lambda x: x.zero_())(again)
    again.sum()


def _trained(number: float) -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU(), torch.nn.Linear(4, 1))
    with torch.no_grad():
        net[0].weight.mul_(number)
    _compiled(net)(torch.ones(3, 4)).sum().backward()


def _loaded(number: float) -> None:
    weight = torch.ones(3) * number
    kept = io.BytesIO()
    torch.save({"weight": weight}, kept)
    kept.seek(0)
    torch.ones(3).copy_(torch.load(kept)["weight"]).sum()


def _cached(number: float) -> None:
    cache, x = torch.empty(4, 8), torch.full((8,), number)
    _compiled(lambda cache, x: cache[1].copy_(x))(cache, x)
    _compiled(lambda cache: cache[1].sum())(cache)


def _full(reached: int) -> tuple[str, str, int, str]:
    return "aten::full", "input", reached, "fill_value=1.0 against fill_value=2.0"


_LAMBDA = "compiled::<lambda>"
# What is compiled and called with a number that is another one in the second run: its roots, as ``roots_of`` tells them.
REGIONS: dict[str, tuple[Callable[[float], Any], list[tuple[str, str, int, str]]]] = {
    "parameters": (lambda one: _compiled(_Net(one))(torch.ones(2)), [_full(1)]),
    "a model by its name": (lambda one: _compiled(model=_Net(one))(torch.ones(2)), [_full(1)]),
    "a module among arguments": (lambda one: _compiled(lambda x: x[0](x[1]))((_Net(one), torch.ones(2))), [_full(1)]),
    "its owner's attributes": (lambda one: _Trainer(one).step(torch.ones(2)), [_full(1)]),
    "a global that a function names": (_global, [_full(1)]),
    "a closure, a default": (_closure, [_full(2)]),
    "a mapping": (
        lambda one: _compiled(lambda x: x["x"] * 2)(collections.UserDict(x=torch.full((2,), one))), [_full(1)]
    ),
    "an object's number": (
        lambda one: _compiled(lambda x, by: x * by.number)(torch.ones(2), types.SimpleNamespace(number=one)),
        [(_LAMBDA, "input", 0, "argument 2.number=1.0 against argument 2.number=2.0")],
    ),
    "a module's number, another region within": (
        lambda one: _compiled(_Scaled(one))(torch.ones(2)),
        [("compiled::_Scaled", "input", 0, "number=1.0 against number=2.0")],
    ),
    "what it changes": (
        lambda one: _compiled(lambda x: x.add_(one))(torch.ones(2)).sum(),
        [(_LAMBDA, "input", 1, "one=1.0 against one=2.0")],
    ),
    "an array": (
        lambda one: _compiled(lambda x, by: x * float(by[0]))(torch.ones(2), np.full(2, one)),
        [(_LAMBDA, "runs", 0, "")],
    ),
    "a generator": (_dropout, [("compiled::dropout", "generator", 0, "")]),
    "memory that nothing wrote, whether or not it is written there": (_unwritten, [_full(0)]),
    "memory that it wrote in part": (_partly_written, []),
    "memory that it wrote in part and reads": (_cached, [_full(2)]),
    "what it kept for its backward phase": (
        _trained, [("aten::mul_.Tensor", "input", 7, "other=1.0 against other=2.0")]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REGIONS)
def test_a_compiled_region_is_given_what_it_uses(name: str) -> None:
    """Whatever its code reaches; of what no record shows the cause is not told. The compiler may have run before, as in a notebook."""
    torch.compile(torch.neg, backend="eager")(torch.ones(1))
    program, roots = REGIONS[name]
    runs, located = recorded(lambda: program(1.0), lambda: program(2.0))
    found = judge(runs, located)

    assert any(site.op.startswith("compiled::") for site in runs[0].sites)
    assert roots_of(found) == roots, text(found)
    assert ("may differ and is in no record" in text(found)) == (name == "an array")
    assert "rounds" not in text(found)


def test_tensors_that_were_saved_and_loaded_come_of_what_was_saved() -> None:
    """No op is called for it."""
    found = held(lambda: _loaded(2.0), lambda: _loaded(3.0))

    assert [root.site.op for root in found.roots] == ["aten::mul.Tensor"], text(found)


class _Bend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, by: float) -> Any:
        ctx.by = by
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient + ctx.by, None


class _Bent(torch.nn.Module):
    def __init__(self, by: float) -> None:
        super().__init__()
        self.by = (by,)

    def forward(self, x: Any) -> Any:
        return _Bend.apply(x, *self.by)


class _Outer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = _compiled(torch.nn.Sequential(torch.nn.Linear(2, 2)))
        self.inner.mark = 1  # of the module that it stands for

    def forward(self, x: Any) -> Any:
        return self.inner(x)


def test_where_nothing_is_compiled_a_module_behaves_as_a_compiled_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stands for it has its keys and attributes, is copied and pickled, and the module itself stays as it is."""
    seen, ones = [], torch.ones(1, 2)
    for disabled in "01":
        monkeypatch.setenv("TORCHDYNAMO_DISABLE", disabled)
        with record(str(tmp_path / disabled)):
            outer = _Outer()
            stands, net = outer.inner, outer.inner._orig_mod
            other, plain = pickle.loads(pickle.dumps(outer)), copy.deepcopy(net)
            plain[0].weight.data.zero_()
            equal = [one(ones).equal(outer(ones)) for one in (other, net, plain)]
            stands.eval()
            same = _compiled(net, disable=True) is net
            _compiled(stands)(ones)
        run = RecordedRun(tmp_path / disabled)
        attributes = [*stands.state_dict()], net.mark, len(stands), net.training, "forward" in vars(net)
        sites = [(run.sites[one.site].op, run.sites[one.site].module) for one in run.ops]
        seen.append(((*attributes, type(other.inner)), equal, same, [op for op, _ in sites], {*sites[:-1]}))

    assert seen[0] == seen[1]
    assert (seen[1][1:3], seen[1][3][-1]) == (([True, True, False], True), "compiled::Sequential")
    assert {("compiled::Sequential", "_Outer.inner"), ("aten::addmm", "_Outer.inner.0")} <= seen[1][4]


def test_the_line_of_a_gradient_is_that_of_its_region() -> None:
    """Where a backward phase alone gives other bits, another region before and behind it is no root."""

    def program(by: float) -> None:
        torch.manual_seed(0)
        first, last = _compiled(torch.nn.Linear(4, 4)), _compiled(torch.nn.Linear(4, 1))
        last(_compiled(_Bent(by))(first(torch.ones(2, 4)))).sum().backward()

    (root,) = held(lambda: program(0.0), lambda: program(1.0)).roots

    assert root.site.line is not None
    assert (root.site.phase, root.site.module, root.site.line.function) == ("backward", "_Bent", "program")


def test_what_records_leaves_nothing_behind(tmp_path: Path) -> None:
    """Of what tells the record of numbers; a lazy parameter, which holds nothing yet, does not end the program."""
    before = dict(vars(torch.Tensor))
    with record(str(tmp_path / "run")):
        torch.ones(2).tolist()
        given = _compiled(torch.nn.LazyLinear(2))(torch.ones(3, 4))

    assert given.shape == (3, 2)
    assert dict(vars(torch.Tensor)) == before
