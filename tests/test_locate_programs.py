"""``locate`` around programs of all kinds, in this process: planted roots are found at their lines, and no others.

What is not looked at is told: other threads and processes, writes that are no ops. What ``torch.compile`` compiles is one op of a record.
"""

from __future__ import annotations

import collections
import copy
import io
import itertools
import os
import pickle
import random
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from detmatrix.scanner.locate import locate, record
from detmatrix.scanner.locate.fixture import detmatrix_locate  # noqa: F401 - a fixture, found by its name
from detmatrix.scanner.locate.mode import LocateMode, LocateSettings
from detmatrix.scanner.locate.overloads import known, tensors
from detmatrix.scanner.located import text
from detmatrix.scanner.programs.runs import RecordedRun, hold, judge
from tests.locating import held, line, marked, recorded, roots_of
from tests.programs import behind, collective, nothing, planted, steady, transformer, unseeded

OPS = planted.planted
pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize(
    "program", [steady.transformer, steady.amp, steady.checkpointing, steady.resnet, nothing.step]
)
def test_nothing_is_found_where_nothing_differs_and_the_program_computes_the_same(
    program: Callable[[], Any],
) -> None:
    """Replaying leaves generators, versions, statistics, gradients and aliased arguments as they are without it, in later steps too."""
    bare = program()
    with locate() as found:
        observed = [program() for _ in range(3)]
    runs = held(program, program)

    assert str(found).startswith("No call site differed"), str(found)
    assert found.replayed > 60
    assert found.outside == 0, str(found)
    torch.testing.assert_close(observed, [bare] * 3, rtol=0, atol=0)
    assert (runs.roots, runs.partings, runs.propagated) == ((), (), 0), text(runs)
    assert runs.compared == runs.ops > 20


def test_planted_roots_are_found_at_their_lines() -> None:
    """Every kind of them: returned, changed in place, in lists, second outputs, permuted, integers, sparse, backward."""
    with locate(replays=3) as found:
        planted.step()
    roots = {(marked(planted)[line(root.site)], root.site.phase): root for root in found.roots}

    assert {line(root.site) for root in found.roots} == set(marked(planted))
    assert len(marked(planted)) >= 10
    # Also where the forward phase ran twice.
    assert ("under checkpointing", "forward") in roots
    assert ("under checkpointing", "recomputed") in roots
    assert ("a backward function of one's own", "backward") in roots
    assert "lambda" in str(roots["a hook, whatever node called it", "backward"].site.line)
    root = roots["in a module", "forward"]
    assert (root.site.module, root.cause, root.flag) == ("Model.layers.1.attn", "replay", "differs")
    assert root.tensors == ("float32[4, 8]",)
    assert (root.calls, root.differing_calls, root.executions, root.differing) == (1, 1, 3, 3)
    assert root.distance.max_ulp is not None
    assert root.distance.max_ulp > 0
    assert root.reached > 3


def _count_into(x: torch.Tensor, *, out: torch.Tensor) -> None:
    out.copy_(x + next(planted._count))


def _onto(x: torch.Tensor, _: torch.Tensor) -> None:
    count = planted.define("count(Tensor x, *, Tensor(a!) out) -> ()", _count_into)
    count(torch.ones(()), out=x)


# What is called with two tensors that roots have written: how many ops each root then reaches, the last of which reads the first.
OVERWRITTEN: dict[str, tuple[Callable[[Any, Any], Any], list[int]]] = {
    "filled": (lambda x, _: x.zero_(), [0, 0]),
    "made": (lambda x, _: torch.ones(3, 3, out=x), [0, 0]),
    "copied": (lambda x, other: x.copy_(other), [0, 2]),
    "copied from itself": (lambda x, _: x[0].copy_(x[1]), [2, 0]),
    "read and written": (lambda x, _: torch.add(x, 1, out=x), [2, 0]),
    "in part": (lambda x, _: x[0].zero_(), [1, 0]),
    "of both": (lambda x, other: torch.mm(x, other, out=x), [2, 2]),
    "by another root, twice": (lambda x, _: [OPS.add_count_(x) for _ in range(2)], [3, 0, 2]),
    "by another root that reads nothing": (_onto, [0, 0, 1]),
}


@pytest.mark.parametrize("name", OVERWRITTEN)
def test_memory_that_is_overwritten_comes_of_what_was_written_last(name: str) -> None:
    """Of roots that wrote to it before nothing is left, unless it is written from what they wrote, or in part."""
    overwrite, counts = OVERWRITTEN[name]
    x, other = torch.zeros(3, 3), torch.zeros(3, 3)
    with locate() as found:
        OPS.add_count_(x)
        OPS.add_count_(other)
        overwrite(x, other)
        x.sum()

    assert [root.reached for root in found.roots] == counts


def _raising(x: torch.Tensor) -> torch.Tensor:
    with pytest.raises(RuntimeError, match="must match"):
        torch.ones(3) + torch.ones(4)
    return x


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


def _lying_late(x: torch.Tensor) -> torch.Tensor:
    touch = planted.define("late(int n, *, Tensor x) -> Tensor", lambda n, *, x: x.add_(int(n > 2)) * 2)
    for n in range(5):
        touch(n, x=x)
    return x


def _drawing_in_python(x: torch.Tensor) -> torch.Tensor:
    draw = planted.define("draw(Tensor x) -> Tensor", lambda x: x + float(np.random.rand()) + random.random())  # noqa: NPY002
    before = random.getstate(), np.random.get_state()  # noqa: NPY002
    one = draw(x)
    random.setstate(before[0])
    np.random.set_state(before[1])  # noqa: NPY002
    return (x + float(np.random.rand()) + random.random() == one).float()  # noqa: NPY002


def _drawing_from_its_own(x: torch.Tensor) -> torch.Tensor:
    own = torch.Generator().manual_seed(3)
    one = torch.poisson(torch.full((100,), 5.0), own)
    return x + torch.equal(one, torch.poisson(torch.full((100,), 5.0), own.manual_seed(3)))


def _shared(_: torch.Tensor) -> torch.Tensor:
    return torch.zeros(1).expand(4).index_put_((torch.tensor([0]),), torch.ones(1))


def _drawing(x: torch.Tensor) -> torch.Tensor:
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("cos", lambda x: x * torch.rand(()), "CPU")
        for _ in range(2):
            torch.ones(3).cos()
    known(torch.ops.aten.cos.default).random = False
    return x


def _unseeded(x: torch.Tensor) -> torch.Tensor:
    unseeded.step()
    return x


# What is called with zeros under a small --max-bytes: each element of its result, and what is told.
ONCE: dict[str, tuple[Callable[[torch.Tensor], Any], int, str]] = {
    "raises": (_raising, 0, "No call site differed"),
    "fails when it is executed again": (_once, 1, "executed again: detmatrix_planted::once"),
    "changes an argument that its schema does not tell of": (_lying, 4, "later calls are restored"),
    "changes an argument by name, from the fourth call on": (_lying_late, 2, "later calls are restored"),
    "draws from Python's and numpy's generators": (_drawing_in_python, 1, "No call site differed"),
    "draws from a generator that it is given by its position": (
        _drawing_from_its_own,
        1,
        "No call site differed",
    ),
    "changes memory that elements share": (_shared, 1, "or expanded: aten::index_put_"),
    "is too large": (lambda _: torch.ones(300).sign(), 1, "are larger than --max-bytes"),
    "draws without a tag": (_drawing, 0, "later calls are restored: aten::cos"),
    "draws, and nobody has seeded it, which two runs show": (_unseeded, 0, "No call site differed"),
}


@pytest.mark.parametrize("name", ONCE)
def test_what_cannot_be_executed_again_happens_once_and_is_told(name: str) -> None:
    """What it did the first time is the program's result."""
    program, value, told = ONCE[name]
    with locate(max_bytes=1000) as found:
        result = program(torch.zeros(3))

    assert set(result.tolist()) == {value}
    assert found.roots == ()
    assert told in str(found)


def test_ops_are_left_out_on_request() -> None:
    """By the name of the overload, or without it."""
    ignored = ("detmatrix_planted::total", "detmatrix_planted::add_count")
    with locate(ignored=ignored) as found:
        planted.step()

    assert not {*ignored} & {one.site.op for one in found.roots}
    assert "to ops that are ignored on request" in str(found)


def test_the_fixture_fails_a_test_that_is_not_reproducible(detmatrix_locate: Any) -> None:  # noqa: F811
    """With the report as the message; where nothing could have been seen it skips."""
    with pytest.raises(pytest.fail.Exception, match="planted::add_count"), detmatrix_locate():
        OPS.add_count(torch.ones(3))
    with pytest.raises(pytest.skip.Exception, match="Nothing was judged: 0 ops"), detmatrix_locate():
        pass
    with pytest.raises(pytest.skip.Exception, match="nothing raced here"), detmatrix_locate():
        torch.ones(3).sum()


def test_ops_of_other_threads_are_counted() -> None:
    """They run as without us, and are not executed again."""
    results: list[float] = []
    with locate() as found:
        other = threading.Thread(target=lambda: results.append(float(torch.ones(3).sum())))
        other.start()
        other.join()

    assert results == [3.0]
    assert (found.ops, found.thread_ops) == (0, 3)
    assert "Not looked at: 3 ops that other threads called." in str(found)
    assert "No op was looked at" in str(found)
    before = dict(vars(threading.Thread))
    with locate():
        pass
    assert dict(vars(threading.Thread)) == before


def test_memory_that_no_op_has_written_is_told_of() -> None:
    """Executing ops again says nothing of numpy, whose writes may race or not."""
    with locate() as found:
        behind.step()

    assert (found.roots, found.outside) == ((), 1)
    assert line(found.outside_site) in marked(behind)
    assert "--runs 2 compares it" in str(found)


def test_communication_is_not_executed_again() -> None:
    """Of real processes: what they compute is what they compute without us."""
    with locate() as found:
        total = collective.step()

    assert total == collective.step()
    assert (found.roots, found.processes) == ((), 1)
    assert "take part in communication: c10d::allgather_, c10d::allreduce_." in str(found)


@pytest.mark.nightly
def test_no_root_in_a_hundred_thousand_ops() -> None:
    """Of programs of all kinds, executed again and again."""
    training = transformer.Training(width=16)
    steps = [training.step, nothing.step, steady.amp, steady.checkpointing, steady.resnet]
    with locate(replays=2) as found:
        for step in itertools.cycle(steps):
            step()
            if found.ops >= 100_000:
                break

    assert found.replayed > 80_000
    assert found.roots == (), str(found)


def test_a_fork_of_a_program_tells_what_was_found_before_it() -> None:
    """No false all-clear: what the child executes is not looked at, and what its parent has found stays so."""
    reading, writing = os.pipe()
    child = -1
    try:
        with locate(replays=2) as found:
            planted.step()
            child = os.fork()
            if child == 0:
                OPS.add_count(torch.ones(3))  # as in a worker of a data loader
    finally:
        if child == 0:
            try:
                os.write(writing, str(len(found.roots)).encode())
            finally:
                os._exit(0)  # whatever happened, it must not go on with other tests
    os.close(writing)
    os.waitpid(child, 0)

    assert int(os.read(reading, 9)) == len(found.roots) > 10


# Their result is in part memory that nothing wrote, which is true of no other op of the database: known, and no fault of ours.
KNOWN = {"linalg.lstsq"}


@pytest.mark.nightly
def test_no_root_in_pytorch_s_own_samples() -> None:
    """Forward and backward, of every op of its database in two dtypes."""
    from torch.testing._internal.common_methods_invocations import op_db  # noqa: PLC0415 - takes seconds

    roots = set()
    replayed = 0
    for op in op_db:
        for dtype in (torch.float32, torch.int64):
            if dtype not in op.supported_dtypes("cpu"):
                continue
            for mode in _samples(op, dtype):
                replayed += mode.seen.replayed
                roots |= {(op.name, root.site.op, root.cause) for root in mode.found()}

    assert replayed > 15_000
    assert {root for root in roots if root[0] not in KNOWN and root[2] != "unwritten"} == set()


def _samples(op: Any, dtype: torch.dtype) -> Iterator[LocateMode]:
    differentiable = op.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
    try:
        samples = list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=differentiable), 3))
    except Exception:  # noqa: BLE001 - of an op that cannot be drawn nothing is asked
        return
    for sample in samples:
        mode = LocateMode(LocateSettings(replays=2))
        try:
            with mode:
                _run(op, sample)
        except Exception as error:  # noqa: BLE001 - is it the op's own?
            with pytest.raises(type(error)):
                _run(op, sample)
        yield mode


def _run(op: Any, sample: Any) -> None:
    outputs = [one for one in tensors(op(sample.input, *sample.args, **sample.kwargs)) if one.requires_grad]
    if outputs:
        torch.autograd.backward([one.abs().sum() if one.is_complex() else one.sum() for one in outputs])


# --- What is compiled, as one op of a record: what it is given, what it draws, and what is told of it


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
    assert str(root.site.node).endswith("Backward")


def test_what_records_leaves_nothing_behind(tmp_path: Path) -> None:
    """Of what tells the record of numbers; a lazy parameter, which holds nothing yet, does not end the program."""
    before = dict(vars(torch.Tensor))
    with record(str(tmp_path / "run")):
        torch.ones(2).tolist()
        given = _compiled(torch.nn.LazyLinear(2))(torch.ones(3, 4))

    assert given.shape == (3, 2)
    assert dict(vars(torch.Tensor)) == before
