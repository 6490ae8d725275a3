"""Two runs of a program held against each other: digests, alignment, roots and what follows from them."""

from __future__ import annotations

import atexit
import io
import itertools
import json
import os
import random
import sys
import tempfile
import types
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from detmatrix.scanner.errors import UntrustedScanError
from detmatrix.scanner.locate import call_sites, locate, record, recorder, recording
from detmatrix.scanner.locate.recorder import RunRecorder
from detmatrix.scanner.locate.unwritten import UnwrittenMemory
from detmatrix.scanner.located import text
from detmatrix.scanner.programs import process
from detmatrix.scanner.programs.process import of_all_ranks
from detmatrix.scanner.programs.runs import RecordedRun, align, hold, judge
from tests.commands import Command
from tests.conftest import refused
from tests.locating import held, line, marked, recorded, roots_of
from tests.programs import behind, collective, planted, unseeded

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.filterwarnings("ignore")]
OPS = planted.planted


def _followed(_: int) -> None:
    x = torch.ones(4, 6, requires_grad=True)
    y = OPS.add_count(x.detach())
    z = (y.t()[1:] * 2).relu_() @ x
    z.sum().backward()
    x.detach().sub_(x.grad)
    (torch.arange(3) + 1).sum()


def _other_data(turn: int) -> None:
    batch = torch.frombuffer(bytearray([turn + 1] * 8), dtype=torch.uint8)
    (batch[2:] + 1).sum()
    (batch * 2).sum()


def _partly_equal_data(turn: int) -> None:
    batch = torch.frombuffer(bytearray([1, 2, 3, turn + 1]), dtype=torch.uint8)
    batch[:2].sum()
    batch.sum()


def _written_by_several(_: int) -> None:
    x = torch.zeros(4, 4)
    x[0].add_(OPS.add_count(torch.ones(4)))
    x[1].add_(1)
    x[2].copy_(torch.ones(4))
    x.sum()


def _behind_one_that_raised(turn: int) -> None:
    with pytest.raises(RuntimeError):
        torch.ones(3) @ torch.ones(4)
    x = torch.ones(3) * (turn + 1)
    torch.ones(3).sum()
    (x + 1).sum()


def _two_generators(turn: int) -> None:
    generator = torch.Generator()
    for one in (torch, generator):
        one.manual_seed(turn)
    torch.rand(3), torch.rand(3, generator=generator)


def _seeded_by_an_op(_: int) -> None:
    seed = int(OPS.add_count(torch.ones(1)))
    torch.rand(3, generator=torch.Generator().manual_seed(seed))


def _unseeded_generator(_: int) -> None:
    generator = torch.Generator()
    generator.seed()
    torch.randn(3, generator=generator)


def _number_of_a_gap(turn: int) -> None:
    x = torch.ones(3)
    if turn:
        x.add_(1)
    torch.ones(4) * x.sum().item()


def _data_behind_a_gap(turn: int) -> None:
    if turn:
        torch.ones(2).sin()
    x = torch.from_numpy(np.full(9, float(turn)))
    x.sum(), x.mean()


def _no_elements(turn: int) -> None:
    x = torch.zeros(1).add_(turn)
    (torch.nonzero(x) + 1).sum()


def _grown(_: int) -> None:
    x = torch.ones(4)
    x.resize_(1 << 16)
    x[:20_000].sum()


def _of_another_shape(turn: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(5 + 2 * turn, 4)
    (x @ torch.randn(4, 4)).relu().sum()


_ADDED = "detmatrix_planted::add_count"
# What is called with the number of the run, and all its roots: the op, the cause, how many ops it reached, what differs.
ROOTS: dict[str, tuple[Callable[[int], Any], list[tuple[str, str, int, str]]]] = {
    "through views, in-place changes and gradients": (_followed, [(_ADDED, "runs", 7, "")]),
    "PyTorch's generator": (lambda _: unseeded.step(), [("aten::bernoulli_.float", "generator", 12, "")]),
    "a generator of its own": (_unseeded_generator, [("aten::randn.generator", "generator", 0, "generator")]),
    "Python's generator": (
        lambda _: torch.frombuffer(bytearray(random.randbytes(8)), dtype=torch.uint8).sum(),
        [("aten::sum", "input", 0, "self, random")],
    ),
    "numpy's generator": (
        lambda _: torch.from_numpy(np.random.random(8)).sum(),  # noqa: NPY002 - as programs do
        [("aten::sum", "input", 0, "self, numpy.random")],
    ),
    "memory that numpy wrote": (lambda _: behind.step(), [("aten::mul.Tensor", "changed", 3, "self")]),
    "another process": (
        lambda _: collective.step(steady=False), [("aten::mul.Tensor", "input", 3, "self")]
    ),
    "a process that sends the same": (lambda _: collective.step(), []),
    "other data": (_other_data, [("aten::add.Tensor", "input", 3, "self")]),
    "data of which a part is equal": (_partly_equal_data, [("aten::sum", "input", 0, "self")]),
    "another shape": (_of_another_shape, [("aten::randn", "input", 4, "size=[5, 4] against size=[7, 4]")]),
    "another number of inputs": (
        lambda turn: torch.stack([torch.ones(2)] * (turn + 1)).sum(),
        [("aten::stack", "input", 1, "1 tensors against 2")],
    ),
    "another number of outputs": (
        lambda _: OPS.several(torch.ones(2)), [("detmatrix_planted::several", "runs", 0, "")]
    ),
    "memory of several ops": (_written_by_several, [(_ADDED, "runs", 2, "")]),
    "through sparse tensors": (
        lambda turn: (torch.eye(3) * (turn + 1)).to_sparse().coalesce().to_dense(),
        [("aten::mul.Tensor", "input", 3, "other=1 against other=2")],
    ),
    "through compressed tensors": (
        lambda turn: (torch.eye(3) * (turn + 1)).to_sparse_csr() @ torch.ones(3, 2),
        [("aten::mul.Tensor", "input", 2, "other=1 against other=2")],
    ),
    "behind an op that raised": (
        _behind_one_that_raised, [("aten::mul.Tensor", "input", 2, "other=1 against other=2")]
    ),
    "a number of what differs": (
        lambda _: torch.ones(3) * OPS.add_count(torch.ones(1)).item(), [(_ADDED, "runs", 2, "")]
    ),
    "a list of what differs": (
        lambda _: torch.ones(3) * OPS.add_count(torch.ones(3)).tolist()[0], [(_ADDED, "runs", 1, "")]
    ),
    "an array of what differs": (
        lambda _: torch.ones(3) * float(np.asarray(OPS.add_count(torch.ones(3)))[0]), [(_ADDED, "runs", 1, "")]
    ),
    "a number of no op": (
        lambda turn: (OPS.add_count(torch.ones(3)), torch.ones(3).mul_(turn)),
        [(_ADDED, "runs", 0, ""), ("aten::mul_.Tensor", "input", 0, "other=0 against other=1")],
    ),
    "a number beside a tensor that differs": (
        lambda turn: OPS.add_count(torch.ones(3)).mul_(turn),
        [(_ADDED, "runs", 1, ""), ("aten::mul_.Tensor", "input", 0, "other=0 against other=1")],
    ),
    "two generators": (
        _two_generators,
        [("aten::rand", "generator", 0, ""), ("aten::rand.generator", "generator", 0, "generator")],
    ),
    "a generator that an op seeded": (_seeded_by_an_op, [(_ADDED, "runs", 2, "")]),
    "a number of what only one run changed": (_number_of_a_gap, []),
    "data behind ops of one run": (_data_behind_a_gap, [("aten::sum", "input", 1, "self")]),
    "no elements and one": (_no_elements, [("aten::add_.Tensor", "input", 3, "other=0 against other=1")]),
    "memory that has grown": (_grown, [("aten::sum", "unwritten", 0, "aten::resize_")]),
}  # fmt: skip


@pytest.mark.parametrize("name", ROOTS)
def test_all_roots_are_told_and_no_others(name: str) -> None:
    """The op that first gave, or was given, something else; all that comes of it is counted, however it comes of it."""
    program, roots = ROOTS[name]
    found = held(lambda: program(0), lambda: program(1))

    assert roots_of(found) == roots, text(found)
    assert ("or by itself" in text(found)) == any(one.numbers for one in found.roots)
    assert (found.partings != ()) == ("one run" in name)
    for words, module in (("PyTorch's", unseeded), ("numpy wrote", behind), ("another process", collective)):
        assert words not in name or line(found.roots[0].site) in marked(module)


def test_ops_are_no_roots_on_request() -> None:
    """What comes of an ignored one differs for no root; behind the first root others may not be asked for."""

    def program() -> None:
        for place in range(2):
            OPS.total(OPS.add_count(torch.ones(3)) if place else torch.ones(3))

    runs, alone = recorded(program, program)

    assert [root.first for root in judge(runs, alone).roots] == [2, 4]
    assert [root.first for root in judge(runs, alone, only_first=True).roots] == [2]
    assert [root.first for root in judge(runs, alone, ignored=["detmatrix_planted::total"]).roots] == [4]
    assert judge(runs, alone, ignored=["detmatrix_planted::total", _ADDED]).roots == ()


def test_an_op_without_memory_was_not_compared() -> None:
    """Tensors on the device meta have no bits."""
    found = held(*[lambda: ((torch.ones(3, device="meta") + 1).sum(), torch.ones(3))] * 2)

    assert (found.compared, found.ops) == (1, 4)


def test_unwritten_memory_is_one_root_however_it_differs() -> None:
    """Neither its reading nor what comes of it is told twice; what is overwritten is no difference."""

    def program() -> None:
        x = torch.empty(40_000)
        (x[:10] + 1).sum()
        torch.empty(9).scatter_(0, torch.arange(9), torch.ones(9)).sum()
        torch.empty(40_000).fill_(2).sum()

    runs, alone = recorded(program, program)

    assert [root.cause for root in judge(runs, alone).roots] == ["unwritten"]
    # As records are held against each other, which do not tell what was found in a run by itself.
    assert [root.cause for root in judge(runs, replace(alone, roots=())).roots] in ([], ["unwritten"])


def test_another_tensor_that_python_chose_is_an_input() -> None:
    """By the order of a set, for one; the tensors themselves are the same in both runs."""

    def program(*order: int) -> None:
        made = [torch.full((3,), float(value)) for value in range(4)]
        total = torch.zeros(3)
        for place in order:
            total = total * 0.5 + made[place]
        made[0] + 1

    found = judge(*recorded(lambda: program(1, 2), lambda: program(2, 1)))

    assert [(root.cause, root.argument) for root in found.roots] == [("input", "other")]


def test_programs_that_part_are_told_with_both_call_sites() -> None:
    """And are held against each other again behind it; what was not compared is never said not to differ."""

    def program(turn: int) -> None:
        x = torch.ones(3) + 1
        x.sin().cos() if turn else x.tan()
        for number in range(10):
            x = x * number
        OPS.add_count(x) if turn < 2 else None

    found = held(lambda: program(0), lambda: program(1))
    (parting,) = found.partings

    assert [one and one.op for one in (parting.first, parting.second)] == ["aten::tan", "aten::sin"]
    assert (parting.only_first, parting.only_second) == (1, 2)
    assert (found.compared, found.ops) == (13, 14)
    assert [root.site.op for root in found.roots] == [_ADDED]
    assert "aten::sin at" in text(found)
    assert text(held(lambda: program(0), lambda: program(2))).startswith(
        "The runs call different ops: 12 of 14 ops"
    )


GENERATED = "def propagate(x):\n    return (x + 1).relu() * 2\n"


def test_modules_with_random_names_are_known_by_their_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As torch_geometric writes them: the line is that of who calls them."""
    numbers = itertools.count()

    def program() -> None:
        path, module = tmp_path / f"propagate_{next(numbers)}.py", dict[str, Any]()
        path.write_text(GENERATED, encoding="utf-8")
        exec(compile(GENERATED, path, "exec"), module)
        OPS.add_count(module["propagate"](torch.ones(3)))

    monkeypatch.setattr(call_sites, "_TEMPORARY", f"{tmp_path}/")
    found = held(program, program)

    assert (found.compared, found.partings) == (found.ops, ())
    assert [root.site.op for root in found.roots] == [_ADDED]
    with locate() as replayed:
        program()
    assert [root.site.line and root.site.line.file for root in replayed.roots] == [__file__]


def test_three_runs_count_those_that_differ() -> None:
    """A root of some runs only."""
    numbers = iter([0, 0, 1])
    shift = planted.define("shift(Tensor x) -> Tensor", lambda x: x + next(numbers))
    (root,) = held(*[lambda: shift(torch.ones(3))] * 3).roots

    assert (root.differing, root.executions, root.in_runs) == (1, 2, (3,))


@given(st.lists(st.integers(0, 3), max_size=40), st.lists(st.integers(0, 3), max_size=40))
def test_alignment_pairs_equal_ops_in_their_order(one: list[int], other: list[int]) -> None:
    """Whatever the runs, every op is paired or in a gap, once."""
    pairs, gaps = align(one, other)

    assert all(one[i] == other[j] for i, j in pairs)
    for side, size in ((0, len(one)), (1, len(other))):
        places = [pair[side] for pair in pairs]
        assert places == sorted(set(places))
        left = [place for gap in gaps for place in range(gap[2 * side], gap[2 * side + 1])]
        assert sorted(places + left) == list(range(size))


def test_alignment_goes_on_behind_what_was_put_in_left_out_or_replaced() -> None:
    """Among thousands of ops that repeat."""
    ops = [number % 97 for number in range(20_000)]
    other = ops[:500] + [100] * 7 + ops[500:9000] + ops[9003:15_000] + [101] + ops[15_001:]

    assert align(ops, other)[1] == [
        *((500, 500, 500, 507), (9000, 9003, 9007, 9007)),
        (15_000, 15_001, 15_004, 15_005),
    ]
    ops = list(range(20_000))
    _, gaps = align(ops, ops[:500] + [-1] * 600 + ops[500:9000] + [-1] * 200 + ops[9200:])
    assert gaps == [(500, 500, 500, 1100), (9000, 9200, 9600, 9800)]


def _training(
    *,
    begin: int = 0,
    kept: io.BytesIO | None = None,
    plant: bool = False,
    forget: bool = False,
    more: bool = False,
) -> None:
    """Train four steps; keep what a later run resumes from, or resume from it, and perhaps forget the optimizer's state."""
    torch.manual_seed(begin)
    net = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    if begin and kept is not None:
        kept.seek(0)
        weights, state = torch.load(kept)
        net.load_state_dict(weights)
        if not forget:
            optimizer.load_state_dict(state)
    for step in range(begin, 4):
        if step == 2 and not begin and kept is not None:
            torch.save([net.state_dict(), optimizer.state_dict()], kept)
        if more and step == 1:
            torch.ones(3).sin()
        x = torch.full((3, 4), 1.0 + step)
        x = OPS.add_count(x) if plant and step == 1 else x.mul(1)
        net(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def test_records_of_two_jobs_name_the_first_op_that_differs(tmp_path: Path, detmatrix: Command) -> None:
    """Held against itself a job shows nothing; one that resumes is held against the steps that it has."""
    kept = io.BytesIO()
    jobs: dict[str, dict[str, Any]] = {
        "whole.ops": {"kept": kept},
        "again.ops.gz": {},
        "resumed.ops": {"begin": 2, "kept": kept},
        "forgot.ops": {"begin": 2, "kept": kept, "forget": True},
        "planted.ops": {"plant": True},
        "more.ops": {"more": True},
        "behind.ops": {"begin": 4},
    }
    for name, job in jobs.items():
        with record(str(tmp_path / name), first_step=job.get("begin", 0)):
            _training(**job)

    def diff(*names: str) -> tuple[int, list[Any], list[Any], int]:
        done = detmatrix("locate", "--format", "json", "--diff", *names)
        told = json.loads(done.stdout)
        return done.returncode, told["roots"], told["partings"], told["compared"]

    ops = len(RecordedRun(tmp_path / "whole.ops").ops)
    assert diff("whole.ops", "again.ops.gz") == (0, [], [], ops)
    *same, compared = diff("whole.ops", "resumed.ops")
    assert (same, 0 < compared < ops) == ([0, [], []], True)
    code, roots, partings, _ = diff("whole.ops", "forgot.ops")
    assert (code, bool(partings or roots)) == (1, True)
    code, _, partings, compared = diff("whole.ops", "behind.ops")
    assert (code, partings, compared) == (4, [], 0)
    code, _, partings, compared = diff("--steps", "0:1", "whole.ops", "planted.ops")
    assert (code, partings, 0 < compared < ops / 2) == (0, [], True)
    assert diff("--steps", "1:2", "whole.ops", "planted.ops")[0] == 1
    code, _, partings, _ = diff("--steps", "1:", "whole.ops", "more.ops")
    assert (code, partings[0]["only_second"]) == (1, 2)
    code, roots, (parting, *_), _ = diff("whole.ops", "again.ops.gz", "planted.ops")
    assert code == 1
    assert [parting[one]["op"] for one in ("first", "second")] == ["aten::mul.Tensor", _ADDED]
    assert [root["in_runs"] for root in roots[:1]] in ([], [[3]])


@pytest.mark.parametrize("framework", ["transformers", "lightning"])
@pytest.mark.parametrize("fails", [False, True])
def test_a_callback_records_a_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, framework: str, *, fails: bool
) -> None:
    """Of the class that the framework knows, with the trainer's own number of the first step."""

    class Base:
        """Stands for the framework's callback, which knows more hooks than are used here."""

        def on_step_end(self, *_: Any, **__: Any) -> None:
            """Do nothing."""

    path = tmp_path / "run.ops.gz"
    at_exit: list[Callable[[], None]] = []
    monkeypatch.setattr(atexit, "register", at_exit.append)
    callback = recording(Base, str(path))
    trainer = types.SimpleNamespace(global_step=7)
    if framework == "transformers":
        callback.on_train_begin(None, trainer, None, model=None)
    else:
        callback.on_train_start(trainer, None)
    _training()
    callback.on_step_end(None, trainer, None)
    if not fails:
        callback.on_train_end(None, trainer, None)
    elif framework == "lightning":
        callback.on_exception(trainer, None, ValueError("mine"))
    else:
        monkeypatch.setattr(sys, "last_value", ValueError("mine"), raising=False)
    for function in at_exit:
        function()
    run = RecordedRun(path)

    assert isinstance(callback, Base)
    assert [number for _, number in run.step] == [7, 8, 9, 10, 11]
    assert len(run.ops) > 20
    assert run.ended == ("ValueError: mine" if fails else None)


@pytest.mark.parametrize("ending", ["ops", "ops.gz"])
def test_a_record_is_cut_short_where_its_job_was_killed(tmp_path: Path, ending: str) -> None:
    """What stands in it is held against the other run, the rest is told; killed at once it tells what it is."""
    path, cut = tmp_path / f"run.{ending}", tmp_path / f"cut.{ending}"
    with record(str(path)):
        _training()
    cut.write_bytes(path.read_bytes()[:-100])
    found = hold([str(path), str(cut)])

    assert found.roots == ()
    assert len(found.partings) == 1
    assert found.compared > 20
    assert f"cut.{ending}: the record is cut short" in text(found)
    beginning = RunRecorder(str(path), UnwrittenMemory())
    assert RecordedRun(path).header.torch == torch.__version__
    beginning.close()


def test_an_interruption_writes_no_line_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who catches it goes on: what follows has its own name and place."""
    encode, encoded = recorder._encode, itertools.count()

    def interrupted(one: Any) -> str:
        if next(encoded) == 15:
            raise KeyboardInterrupt
        return encode(one)

    monkeypatch.setattr(recorder, "_BATCH", 20)
    monkeypatch.setattr(recorder, "_encode", interrupted)
    with record(str(tmp_path / "run.ops")):
        with pytest.raises(KeyboardInterrupt):
            _training()
        torch.ones(3).sin()
    run = RecordedRun(tmp_path / "run.ops")

    assert next(encoded) > 20
    assert [run.sites[one.site].op for one in run.ops[-2:]] == ["aten::ones", "aten::sin"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no record of a run"),
        (None, "no record of a run"),
        (b'{"kind":"header"}\n', "no record of a run (it is a run file; detmatrix report reads it)"),
        (b'{"kind":"ops","format":3}\n', "written in record format 3, this detmatrix reads up to 2"),
        (b'{"kind":"ops","format":1}\n', "of an older detmatrix, with other digests; record it again"),
        (b'{"kind":"ops","format":2,"torch":[]}\n', "line 1: is no line of a record"),
        *(
            (b'{"kind":"ops","format":2}\n%s\n' % line, "line 2: is no line of a record")
            for line in (
                *(b"[1,2]", b"nonsense", b"[0,0,0,[],[],[]]", b'{"site":{"op":3}}', b'{"text":["a"]}'),
                *(b"[0,0,0,[1],[],[]]", b"[-1,0,0,[],[],[]]", b"[" * (1 << 20), b'{"unwritten":[0]}'),
            )
        ),
    ],
)
def test_a_record_of_a_stranger_is_refused_in_one_line(
    tmp_path: Path, detmatrix: Command, content: bytes | None, message: str
) -> None:
    """It may come from anywhere."""
    if content is None:
        os.mkfifo(tmp_path / "a.ops")
    else:
        (tmp_path / "a.ops").write_bytes(content)

    assert message in refused(detmatrix("locate", "--diff", "a.ops", "a.ops"), 3)


def test_ranks_make_one_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first waits for what the others found; each root names its ranks."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    found = {}
    for start, rank in ((0, 1), (1, 1), (1, 0)):
        monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", f"/tmp/run_{start}/attempt_0/{rank}/error.json")
        with locate() as block:
            for _ in range(rank + 1):
                OPS.add_count(torch.ones(3))
            OPS.add_count(torch.ones(4)) if rank else None
        monkeypatch.setenv("LOCAL_RANK", str(rank))
        reason = f"of rank {rank}"
        left_out: dict[str, Any] = {"left_out": {reason: 1}, "left_out_ops": {reason: (f"mine::{rank}",)}}
        found[rank] = of_all_ranks(replace(block, processes=rank, **left_out))

    assert found[1] is None
    assert found[0] is not None
    assert {root.in_runs: root.calls for root in found[0].roots} == {(0, 1): 3, (1,): 1}
    assert "ranks" in text(found[0])
    assert all(f"1 call to ops that of rank {rank}: mine::{rank}." in text(found[0]) for rank in (0, 1))
    assert "the ops of 1 more process." in text(found[0])
    assert len(list(tmp_path.glob("detmatrix-ranks*"))) == 1
    monkeypatch.setattr(process, "_RANKS_SECONDS", 0)
    with pytest.raises(UntrustedScanError, match="not all of 2 ranks"):
        of_all_ranks(found[0])  # what a rank of an earlier start told is not taken for this one's
