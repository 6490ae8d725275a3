"""Two runs of a program held against each other: digests, alignment, roots and what follows from them."""

from __future__ import annotations

import atexit
import importlib.util
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

from detmatrix.scanner import located_words
from detmatrix.scanner.errors import UntrustedScanError
from detmatrix.scanner.locate import locate, places, record, recording
from detmatrix.scanner.locate.mode import LocateSettings
from detmatrix.scanner.locate.recorder import RunRecorder
from detmatrix.scanner.locate.session import Session
from detmatrix.scanner.locate.unwritten import UnwrittenMemory
from detmatrix.scanner.located import Located
from detmatrix.scanner.located_words import text
from detmatrix.scanner.programs import process
from detmatrix.scanner.programs.process import of_all_ranks
from detmatrix.scanner.programs.runs import RecordedRun, align, hold, judge
from tests.commands import Command
from tests.conftest import refused
from tests.programs import (
    amp,
    behind,
    checkpointing,
    graph,
    nothing,
    planted,
    resnet,
    transformer,
    unet,
    unseeded,
)
from tests.test_locate_programs import line, marked

pytestmark = pytest.mark.usefixtures("one_thread")


Recorded = Callable[..., tuple[list[RecordedRun], Located]]
Hold = Callable[..., Located]


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    """Return a function that records runs of programs, one after the other."""

    def record(*programs: Callable[[], Any]) -> tuple[list[RecordedRun], Located]:
        runs, located = [], []
        for number, program in enumerate(programs):
            path = tmp_path / f"{number}.jsonl"
            session = Session(LocateSettings(record=str(path), regions=True))
            session.start()
            try:
                program()
            finally:
                session.stop()
            located.append(session.located())
            runs.append(RecordedRun(path))
        return runs, located[0]

    return record


@pytest.fixture
def held(recorded: Recorded) -> Hold:
    """Return a function that holds runs of programs against the first."""
    return lambda *programs: judge(*recorded(*programs))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "program", [amp, checkpointing, graph, nothing, resnet, unet], ids=lambda one: one.__name__
)
def test_nothing_is_found_where_runs_agree(held: Hold, program: Any) -> None:
    """All ops of one have their like in the other."""
    found = held(program.step, program.step)

    assert found.roots == (), text(found)
    assert found.partings == ()
    assert found.compared == found.ops > 20
    assert found.propagated == 0


def _followed() -> None:
    x = torch.ones(4, 6, requires_grad=True)
    y = planted.planted.add_count(x.detach())
    z = (y.t()[1:] * 2).relu_() @ x
    z.sum().backward()
    x.detach().sub_(x.grad)
    (torch.arange(3) + 1).sum()


def _other_data() -> None:
    batch = torch.frombuffer(bytearray([next(NUMBERS)] * 8), dtype=torch.uint8)
    (batch[2:] + 1).sum()
    (batch * 2).sum()


def _partly_equal_data() -> None:
    batch = torch.frombuffer(bytearray([1, 2, 3, next(NUMBERS)]), dtype=torch.uint8)
    batch[:2].sum()
    batch.sum()


def _written_by_several() -> None:
    x = torch.zeros(4, 4)
    x[0].add_(planted.planted.add_count(torch.ones(4)))
    x[1].add_(1)
    x[2].copy_(torch.ones(4))
    x.sum()


def _sparse(kind: str) -> None:
    x = torch.eye(3) * next(NUMBERS)
    if kind == "csr":
        x.to_sparse_csr() @ torch.ones(3, 2)
    else:
        x.to_sparse().coalesce().to_dense()


def _behind_one_that_raised() -> None:
    with pytest.raises(RuntimeError):
        torch.ones(3) @ torch.ones(4)
    x = torch.ones(3) * next(NUMBERS)
    torch.ones(3).sum()
    (x + 1).sum()


def _handed_to_python() -> None:
    torch.ones(3) * planted.planted.add_count(torch.ones(1)).item()


NUMBERS = itertools.count(1)
# What differs by itself, and how many ops were given what came of it.
ROOTS: dict[str, tuple[Callable[[], Any], str, str, int]] = {
    "through views, in-place changes and gradients": (_followed, "detmatrix_planted::add_count", "runs", 7),
    "an unseeded generator": (unseeded.step, "aten::bernoulli_.float", "generator", 12),
    "memory that numpy wrote": (behind.step, "aten::mul.Tensor", "changed", 3),
    "other data": (_other_data, "aten::add.Tensor", "input", 3),
    "data of which a part is equal": (_partly_equal_data, "aten::sum", "input", 0),
    "a number of Python": (lambda: torch.ones(3) * next(NUMBERS), "aten::mul.Tensor", "input", 0),
    "a number that an op handed to Python": (_handed_to_python, "detmatrix_planted::add_count", "runs", 2),
    "another number of inputs": (
        lambda: torch.stack([torch.ones(2)] * next(NUMBERS)).sum(),
        "aten::stack",
        "input",
        1,
    ),
    "another number of outputs": (
        lambda: planted.planted.several(torch.ones(2)),
        "detmatrix_planted::several",
        "runs",
        0,
    ),
    "memory of several ops": (_written_by_several, "detmatrix_planted::add_count", "runs", 2),
    "through sparse tensors": (lambda: _sparse("coo"), "aten::mul.Tensor", "input", 3),
    "through compressed tensors": (lambda: _sparse("csr"), "aten::mul.Tensor", "input", 2),
    "behind an op that raised": (_behind_one_that_raised, "aten::mul.Tensor", "input", 2),
}


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize("name", ROOTS)
def test_roots_are_told_from_what_follows_from_them(held: Hold, name: str) -> None:
    """The op that first gave, or was given, something else; all that comes of it is counted."""
    program, op, cause, reached = ROOTS[name]
    (root,) = held(program, program).roots

    assert (root.site.op, root.cause, root.reached) == (op, cause, reached)
    if program in {unseeded.step, behind.step}:
        assert line(root) in marked(unseeded if program is unseeded.step else behind)
    assert (cause == "generator") == ("torch.manual_seed" in located_words.advice(root))


def _two_generators(turn: int) -> None:
    generator = torch.Generator()
    for one in (torch, generator):
        one.manual_seed(turn)
    torch.rand(3), torch.rand(3, generator=generator)


def _seeded_by_an_op(_: int) -> None:
    seed = int(planted.planted.add_count(torch.ones(1)))
    torch.rand(3, generator=torch.Generator().manual_seed(seed))


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


_ADDED = ("detmatrix_planted::add_count", "runs", None)
# What is called with the number of the run, and all roots, each with the argument that differs.
ALL_ROOTS: dict[str, tuple[Callable[[int], Any], list[tuple[str, str, str | None]]]] = {
    "a list of what differs": (lambda _: torch.ones(3) * planted.planted.add_count(torch.ones(3)).tolist()[0], [_ADDED]),
    "an array of what differs": (lambda _: torch.ones(3) * float(np.asarray(planted.planted.add_count(torch.ones(3)))[0]), [_ADDED]),
    "a number of no op": (
        lambda turn: (planted.planted.add_count(torch.ones(3)), torch.ones(3).mul_(turn)),
        [_ADDED, ("aten::mul_.Tensor", "input", "other=0 against other=1")],
    ),
    "a number beside a tensor that differs": (
        lambda turn: planted.planted.add_count(torch.ones(3)).mul_(turn),
        [_ADDED, ("aten::mul_.Tensor", "input", "other=0 against other=1")],
    ),
    "two generators": (
        _two_generators, [("aten::rand", "generator", None), ("aten::rand.generator", "generator", "generator")]
    ),
    "a generator that an op seeded": (_seeded_by_an_op, [_ADDED]),
    "a number of what only one run changed": (_number_of_a_gap, []),
    "data behind ops of one run": (_data_behind_a_gap, [("aten::sum", "input", "self")]),
    "no elements and one": (_no_elements, [("aten::add_.Tensor", "input", "other=0 against other=1")]),
    "memory that has grown": (_grown, [("aten::sum", "unwritten", None)]),
}  # fmt: skip


@pytest.mark.parametrize("name", ALL_ROOTS)
def test_all_roots_are_told_and_no_others(recorded: Recorded, name: str) -> None:
    """However numbers, shapes and generators come of them."""
    program, roots = ALL_ROOTS[name]
    found = judge(*recorded(lambda: program(0), lambda: program(1)))

    assert [(one.site.op, one.cause, one.argument) for one in found.roots] == roots, text(found)
    assert ("or by itself" in text(found)) == any(one.numbers for one in found.roots)


def test_an_ignored_op_is_no_root_and_makes_none(recorded: Recorded) -> None:
    """What comes of it differs for no root."""

    def program() -> None:
        (planted.planted.add_count(torch.ones(3)) * 2).sum()

    runs, located = recorded(program, program)

    assert len(judge(runs, located).roots) == 1
    assert judge(runs, located, ignored=["detmatrix_planted::add_count"]).roots == ()


def test_an_op_without_memory_was_not_compared(held: Hold) -> None:
    """Tensors on the device meta have no bits."""

    def program() -> None:
        (torch.ones(3, device="meta") + 1).sum()
        torch.ones(3)

    found = held(program, program)

    assert (found.compared, found.ops) == (1, 4)


def test_unwritten_memory_is_one_root_however_it_differs(recorded: Recorded) -> None:
    """Neither its reading nor what comes of it is told twice; what is overwritten is no difference."""

    def program() -> None:
        x = torch.empty(40_000)
        x.numpy()  # nobody writes
        (x[:10] + 1).sum()
        torch.empty(9).scatter_(0, torch.arange(9), torch.ones(9)).sum()
        torch.empty(40_000).fill_(2).sum()

    runs, located = recorded(program, program)
    for found in (judge(runs, located), hold([str(run.path) for run in runs])):
        assert {root.cause for root in found.roots} <= {"unwritten"}, text(found)
        assert len(found.roots) <= 1
    assert len(judge(runs, located).roots) == 1


def test_programs_that_part_are_told_with_both_call_sites(held: Hold) -> None:
    """And are held against each other again behind it."""
    turns = iter([False, True])

    def program() -> None:
        x = torch.ones(3) + 1
        if next(turns):
            x.sin().cos()
        for number in range(10):
            x = x * number
        planted.planted.add_count(x)

    found = held(program, program)

    (parting,) = found.partings
    assert parting.first is not None
    assert parting.second is not None
    assert (parting.first.op, parting.second.op) == ("aten::mul.Tensor", "aten::sin")
    assert (parting.only_first, parting.only_second) == (0, 2)
    assert [root.site.op for root in found.roots] == ["detmatrix_planted::add_count"]
    assert "aten::sin at" in text(found)


def test_runs_that_part_and_agree_else_are_not_the_same(held: Hold) -> None:
    """What was not compared is never said not to differ."""
    turns = iter([False, True])

    def program() -> None:
        x = torch.ones(3) + 1
        x.sin() if next(turns) else x.cos()
        x.sum()

    found = held(program, program)

    assert (found.roots, found.compared, found.ops) == ((), 3, 4)
    assert text(found).startswith(
        "The runs call different ops: 3 of 4 ops held against 1 more run, 1 without their like"
    )


def test_partings_beyond_five_are_counted(held: Hold) -> None:
    """The first are told one by one; JSON has all."""
    turns = iter([False, True])

    def program() -> None:
        x, turn = torch.ones(3), next(turns)
        for number in range(7):
            x = x.sin() if turn else x.cos()
            for factor in range(10):
                x = x * (factor + number)

    found = held(program, program)

    assert len(found.partings) == 7
    assert "Runs part at 2 more places." in text(found)


def test_inputs_of_another_shape_are_told_with_both(held: Hold) -> None:
    """The ops behind belong together all the same; the state of a generator comes of it, too."""
    sizes = iter([5, 7])

    def program() -> None:
        torch.manual_seed(0)
        x = torch.randn(next(sizes), 4)
        (x @ torch.randn(4, 4)).relu().sum()

    found = held(program, program)

    (root,) = found.roots
    assert (root.site.op, root.cause, root.argument) == (
        "aten::randn",
        "input",
        "size=[5, 4] against size=[7, 4]",
    )
    assert (found.compared, found.partings, root.reached) == (found.ops, (), 4)
    assert "another number or shape" in located_words.advice(root)


GENERATED = """
import torch
def propagate(x):
    return (x + 1).relu() * 2
"""


def test_modules_with_random_names_are_known_by_their_text(
    held: Hold, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As torch_geometric writes them: the line is that of who calls them."""
    numbers = itertools.count()

    def program() -> None:
        path = tmp_path / f"propagate_{next(numbers)}.py"
        path.write_text(GENERATED, encoding="utf-8")
        spec = importlib.util.spec_from_file_location("propagate", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        planted.planted.add_count(module.propagate(torch.ones(3)))

    monkeypatch.setattr(places, "_TEMPORARY", f"{tmp_path}/")
    found = held(program, program)

    assert (found.compared, found.partings) == (found.ops, ())
    assert [root.site.op for root in found.roots] == ["detmatrix_planted::add_count"]
    with locate() as replayed:
        program()
    assert replayed.located is not None
    (site,) = {root.site for root in replayed.roots}
    assert site.line is not None
    assert site.line.file == __file__


@pytest.mark.parametrize(
    ("argument", "advice"),
    [
        ("random", "call random.seed(0) at the start"),
        ("numpy.random", "call numpy.random.seed(0) at the start"),
        ("generator", "generator.manual_seed(0)"),
    ],
)
def test_the_generator_that_was_not_seeded_is_named(held: Hold, argument: str, advice: str) -> None:
    """Python's, numpy's, or the one that the op was given."""

    def program() -> None:
        if argument == "generator":
            generator = torch.Generator()
            generator.seed()
            torch.randn(3, generator=generator)
        elif argument == "random":
            (torch.frombuffer(bytearray(random.randbytes(8)), dtype=torch.uint8) + 1).sum()
        else:
            (torch.from_numpy(np.random.random(8)) + 1).sum()  # noqa: NPY002 - as programs do

    (root,) = held(program, program).roots

    assert argument in {root.argument, root.origin}
    assert advice in located_words.advice(root)


def test_three_runs_count_those_that_differ(held: Hold) -> None:
    """A root of some runs only."""
    numbers = iter([0, 0, 1])

    shift = planted.define("shift(Tensor x) -> Tensor", lambda x: x + next(numbers))

    found = held(*[lambda: shift(torch.ones(3))] * 3)

    (root,) = found.roots
    assert (root.differing, root.executions) == (1, 2)


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
        (500, 500, 500, 507),
        (9000, 9003, 9007, 9007),
        (15_000, 15_001, 15_004, 15_005),
    ]
    ops = list(range(20_000))
    _, gaps = align(ops, ops[:500] + [-1] * 600 + ops[500:9000] + [-1] * 200 + ops[9200:])
    assert gaps == [(500, 500, 500, 1100), (9000, 9200, 9600, 9800)]


def test_a_transformer_is_repeatable_on_one_thread(held: Hold) -> None:
    """From fresh weights, by the same seed."""
    found = held(*[lambda: transformer.Training(width=16, layers=1).step()] * 2)

    assert found.roots == (), text(found)


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
        x = planted.planted.add_count(x) if plant and step == 1 else x.mul(1)
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

    def diff(*names: str) -> tuple[int, dict[str, Any]]:
        done = detmatrix("locate", "--format", "json", "--diff", *names)
        return done.returncode, json.loads(done.stdout)

    code, same = diff("whole.ops", "again.ops.gz")
    assert (code, same["roots"], same["partings"], same["compared"]) == (0, [], [], same["ops"])
    code, resumed = diff("whole.ops", "resumed.ops")
    assert (code, resumed["roots"], resumed["partings"]) == (0, [], [])
    assert 0 < resumed["compared"] < resumed["ops"]
    code, forgot = diff("whole.ops", "forgot.ops")
    assert (code, bool(forgot["partings"] or forgot["roots"])) == (1, True)
    code, behind = diff("whole.ops", "behind.ops")
    assert (code, behind["partings"], behind["compared"]) == (4, [], 0)
    code, first = diff("--steps", "0:1", "whole.ops", "planted.ops")
    assert (code, first["partings"], 0 < first["compared"] < same["compared"] / 2) == (0, [], True)
    assert diff("--steps", "1:2", "whole.ops", "planted.ops")[0] == 1
    code, more = diff("--steps", "1:", "whole.ops", "more.ops")
    assert (code, more["partings"][0]["only_second"]) == (1, 2)
    code, three = diff("whole.ops", "again.ops.gz", "planted.ops")
    assert code == 1
    (parting, root) = three["partings"][0], three["roots"][:1]
    assert (parting["first"]["op"], parting["second"]["op"]) == (
        "aten::mul.Tensor",
        "detmatrix_planted::add_count",
    )
    assert not root or root[0]["in_runs"] == [3]


def test_only_the_first_op_that_differs_is_told_if_asked_for(recorded: Recorded) -> None:
    """Others that differ by themselves come behind it."""

    def program() -> None:
        for place in range(2):
            (planted.planted.add_count if place else planted.planted.add_count.default)(torch.ones(3))
            torch.ones(2)

    runs, located = recorded(program, program)

    assert [root.first for root in judge(runs, located, only_first=True).roots] == [2]


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
    assert [number for _, number in run.steps] == [7, 8, 9, 10, 11]
    assert len(run.ops) > 20
    assert run.ended == ("ValueError: mine" if fails else None)


@pytest.mark.parametrize("ending", ["ops", "ops.gz"])
def test_a_record_is_cut_short_where_its_job_was_killed(tmp_path: Path, ending: str) -> None:
    """What stands in it is held against the other run; the rest is told."""
    path, cut = tmp_path / f"run.{ending}", tmp_path / f"cut.{ending}"
    with record(str(path)):
        _training()
    cut.write_bytes(path.read_bytes()[:-100])
    found = hold([str(path), str(cut)])

    assert found.roots == ()
    assert len(found.partings) == 1
    assert found.compared > 20
    assert f"cut.{ending}: the record is cut short" in text(found)


def test_a_record_tells_what_it_is_before_its_first_op(tmp_path: Path) -> None:
    """A job may be killed at once."""
    recorder = RunRecorder(str(tmp_path / "a.ops.gz"), UnwrittenMemory())

    assert RecordedRun(tmp_path / "a.ops.gz").header.torch == torch.__version__
    recorder.close()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no record of a run"),
        (None, "no record of a run"),
        (b'{"kind":"header"}\n', "no record of a run (it is a run file; detmatrix report reads it)"),
        (b'{"kind":"ops","format":2}\n', "written in record format 2, this detmatrix reads up to 1"),
        (b'{"kind":"ops","format":1,"torch":[]}\n', "line 1: is no line of a record"),
        *(
            (b'{"kind":"ops","format":1}\n%s\n' % line, "line 2: is no line of a record")
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
                planted.planted.add_count(torch.ones(3))
            planted.planted.add_count(torch.ones(4)) if rank else None
        assert block.located is not None
        monkeypatch.setenv("LOCAL_RANK", str(rank))
        found[rank] = of_all_ranks(replace(block.located, left_out={f"of rank {rank}": 1}, processes=rank))

    assert found[1] is None
    assert found[0] is not None
    assert {root.in_runs: root.calls for root in found[0].roots} == {(0, 1): 3, (1,): 1}
    assert "ranks" in text(found[0])
    assert all(f"1 call to ops that of rank {rank}" in text(found[0]) for rank in (0, 1))
    assert "the ops of 1 more process." in text(found[0])
    assert len(list(tmp_path.glob("detmatrix-ranks*"))) == 1
    monkeypatch.setattr(process, "_RANKS_SECONDS", 0)
    with pytest.raises(UntrustedScanError, match="not all of 2 ranks"):
        of_all_ranks(found[0])  # what a rank of an earlier start told is not taken for this one's
