"""``locate`` and tensors that are not plain ones, of a device, or of memory that nothing wrote; digests tell bits apart."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from detmatrix.scanner.locate import locate, memory
from detmatrix.scanner.locate.memory import digest
from detmatrix.scanner.locate.mode import LocateMode, LocateSettings
from detmatrix.scanner.locate.replay import RepeatedCall, deterministic
from detmatrix.scanner.locate.session import ask_sentinel
from detmatrix.scanner.programs.runs import RecordedRun
from tests.programs.planted import define, planted

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.filterwarnings("ignore")]


class Wrapped(torch.Tensor):
    """Holds a tensor, and computes with it by ops of its own."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls: type[Wrapped], held: torch.Tensor) -> Any:
        """Make one."""
        made = torch.Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype)
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return planted.add_count(args[0].held)


class Passing(TorchDispatchMode):
    """A mode of the program's own."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def _fake() -> None:
    with FakeTensorMode():
        torch.randn(3).sum()


def _in_mode() -> None:
    with Passing():
        planted.add_count(torch.ones(3))


def _inference() -> None:
    with torch.inference_mode():
        planted.add_count(torch.nn.Linear(3, 3)(torch.ones(3)))


def _as_integers() -> Any:
    x = torch.empty(4)
    x.view(torch.int32).fill_(3)
    return x.sum()


def _nested() -> Any:
    return torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)])


def _partly() -> torch.Tensor:
    x = torch.empty(10)
    x[:5] = 1
    return x


WORKSPACE, COUNTED = torch.zeros(3), itertools.count()


def _by_numpy() -> torch.Tensor:
    x = torch.empty(10)
    x.numpy()[:] = 1
    return x


def _by_numpy_again() -> torch.Tensor:
    """Memory that is used again holds what numpy writes there once more."""
    for _ in range(3):
        x = _by_numpy()
        x.sum()
        del x
    x = torch.empty(10)
    x[:4] = 2
    ctypes.memset(x.data_ptr() + 16, 1, 24)
    return x


def _of_its_own(x: torch.Tensor) -> torch.Tensor:
    """Return memory that the op writes anew each time."""
    return WORKSPACE.add_(x)


def _onto_itself() -> torch.Tensor:
    x = torch.empty(10)
    return torch.add(x, 1, out=x)


X = torch.randn(4, 8)
# Why something of it is a root, and what is called.
PROGRAMS: dict[str, tuple[list[str], Callable[[], Any]]] = {
    "a subclass whose ops differ": (["replay"], lambda: Wrapped(X) + 1),
    "fake tensors": ([], _fake),
    "meta tensors": ([], lambda: torch.randn(3, device="meta") + 1),
    "nested": ([], lambda: _nested() * 2),
    "sparse": ([], lambda: torch.sparse.mm(X.to_sparse_csr(), X.t()).sum()),
    "sparse that differs": (["replay"], lambda: planted.sparse(X)),
    "quantized": ([], lambda: torch.quantize_per_tensor(X, 0.1, 0, torch.quint8).dequantize()),
    "conjugate": ([], lambda: torch.randn(3, dtype=torch.complex64).conj() * 2),
    "vmap": ([], lambda: torch.func.vmap(lambda one: one.sin().sum())(X)),
    "grad": (["replay"], lambda: torch.func.grad(lambda one: (one.sin() * planted.total(one).sign()).sum())(X)),
    "another mode": (["replay"], _in_mode),
    "inference mode": (["replay"], _inference),
    "no elements": ([], lambda: torch.ones(0).sum() + torch.ones(0, 3).sum()),
    "resized memory that nothing wrote": (["unwritten"], lambda: torch.zeros(3).resize_(10).sum()),
    "memory written as another dtype": ([], _as_integers),
    "sparse, in place": ([], lambda: torch.eye(3).to_sparse().mul_(2)),
    "half types": ([], lambda: (X.bfloat16() @ X.t().bfloat16()).half().sum()),
    "unwritten, added to": (["unwritten"], lambda: torch.empty(10).add_(1)),
    "unwritten, read": (["unwritten"], lambda: torch.empty_like(torch.ones(3)) * 2),
    "unwritten, partly written": (["unwritten"], lambda: _partly().sum()),
    "unwritten, the written part read": ([], lambda: _partly()[:5] * 2),
    "unwritten, filled": ([], lambda: torch.empty(10).fill_(1).sum()),
    "unwritten, filled where elements share memory": ([], lambda: torch.empty(3, 1).expand(3, 4).zero_().sum()),
    "unwritten, drawn": ([], lambda: torch.empty(10).normal_().sum()),
    "unwritten, scattered wholly": ([], lambda: torch.empty(9).scatter_(0, torch.arange(9), torch.ones(9)).sum()),
    "unwritten, scattered in part": (["unwritten"], lambda: torch.empty(10).scatter_(0, torch.arange(9), torch.ones(9)).sum()),
    "unwritten, written by numpy": ([], lambda: _by_numpy().sum()),
    "unwritten, written past ops": ([], lambda: _by_numpy_again().sum()),
    "an op that returns its workspace": (["replay"], lambda: define("work(Tensor x) -> Tensor", _of_its_own)(torch.ones(3)).sum()),
    "an op that returns a conjugate view": ([], lambda: define("turned(Tensor x) -> Tensor", lambda x: torch.view_as_complex(x).conj())(torch.ones(3, 2))),
    "unwritten, of 8 bits, read": (["unwritten"], lambda: torch.empty(64, dtype=torch.float8_e4m3fn).float().nan_to_num().sum()),
    "unwritten, of 4 bits": ([], lambda: torch.empty(8, dtype=torch.float4_e2m1fn_x2).view(torch.uint8).fill_(1).sum()),
    "unwritten, of 8 bits": ([], lambda: torch.empty(8, dtype=torch.float8_e4m3fn).view(torch.uint8).fill_(1).sum()),
    "an op that returns a number": (["replay"], lambda: define("count(Tensor x) -> float", lambda _: float(next(COUNTED)))(torch.ones(3))),
    "unwritten, an argument out": ([], lambda: torch.add(torch.ones(3), 1, out=torch.empty(3)).sum()),
    "unwritten, an argument out that is read": (["unwritten"], _onto_itself),
    "unwritten, masked": ([], lambda: torch.where(torch.tensor([False]), torch.empty(3), torch.ones(3)).sum()),
    "unwritten, never read": ([], lambda: torch.empty(3)),
    "unwritten, copied": (["unwritten"], lambda: torch.empty(3).clone()),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_kind_of_tensor_is_compared_or_left_alone(name: str) -> None:
    """What differs is found inside of subclasses and modes too, what has no memory is no difference; unwritten memory is followed."""
    causes, program = PROGRAMS[name]
    with locate() as found:
        program()

    assert [one.cause for one in found.roots] == causes, str(found)


def _normalized() -> tuple[torch.Tensor | None, ...]:
    batch, instance = torch.nn.BatchNorm1d(8), torch.nn.InstanceNorm1d(8, track_running_stats=True)
    instance(batch(torch.randn(4, 8, 5)))
    return batch.running_mean, batch.num_batches_tracked, batch.running_var, instance.running_mean


def _under_autocast() -> Any:
    with torch.autocast("cpu"):
        return torch.einsum("ij,kj->ik", X, X), torch.nn.functional.scaled_dot_product_attention(X, X, X)


COMPLEX = torch.complex(X, X + 1)
COMPOSITES: dict[str, Callable[[], Any]] = {
    # Their schemas do not tell that they change arguments.
    "statistics that are updated": _normalized,
    "cast within": _under_autocast,
    "conjugate within": lambda: torch.fft.hfft(COMPLEX),
    "given a conjugate": lambda: torch.fft.hfft(COMPLEX.conj()),
    "over a batch": lambda: torch.func.vmap(lambda one: torch.einsum("i,i->", one, one))(X),
    "nested": lambda: torch.nn.functional.linear(_nested(), torch.ones(2, 3)).to_padded_tensor(0.0),
    "sparse": lambda: torch.matmul(X.to_sparse(), X.t()),
}


@pytest.mark.parametrize("outer", [contextlib.nullcontext, Passing])
@pytest.mark.parametrize("name", COMPOSITES)
def test_composite_ops_compute_the_same_in_inference_mode(name: str, outer: Callable[[], Any]) -> None:
    """A mode is given them where autocast and what resolves conjugate views are excluded."""
    program = COMPOSITES[name]
    with torch.inference_mode():
        torch.manual_seed(0)
        bare = program()
        with locate() as found, outer():
            torch.manual_seed(0)
            observed = program()

    assert found.roots == ()
    torch.testing.assert_close(observed, bare, rtol=0, atol=0)


def test_an_op_has_the_same_name_in_inference_mode() -> None:
    """That of the kernel, by which the matrix knows it, not that of the composite op that calls it; at the same line."""
    # A kernel of PyTorch's own that differs, on request.
    counts = iter(range(1, 100))
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("addmm", lambda x, *_: x * next(counts), "CPU")
        linear = torch.nn.Linear(8, 8)
        with torch.inference_mode(), locate() as found:
            linear(X)

    (root,) = found.roots
    assert (root.site.op, root.site.module) == ("aten::addmm", "Linear")
    assert root.site.line is not None
    assert Path(root.site.line.file).name == Path(__file__).name


def _on_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all memory be that of a device, which the CPU cannot read."""
    monkeypatch.setattr(memory, "_sorts", {})
    monkeypatch.setattr(memory, "_sort", lambda _: memory.DEVICE)


@pytest.mark.parametrize("device", [False, True], ids=["cpu", "another device"])
def test_a_difference_that_shows_once_is_a_root(monkeypatch: pytest.MonkeyPatch, *, device: bool) -> None:
    """Further executions of a device, which tell how far the bits are apart, may all agree with the first."""
    if device:
        _on_device(monkeypatch)
    calls = itertools.count(1)
    rare = define("rare(Tensor x) -> (Tensor, Tensor)", lambda x: (x * 2, x + (next(calls) == 3)))
    with locate(replays=4) as found:
        rare(X)[1] + 1

    (root,) = found.roots
    assert (root.differing, root.executions, root.outputs, root.reached) == (1, 4, (1,), 1)
    assert bool(root.distance.elements) is not device
    # What did not differ again without the flag is not cured by it.
    assert root.flag == ("rare" if device else "cured")
    assert ("too rare to tell" in str(found)) is device


def test_memory_that_differs_once_is_no_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """The op does not write it: what was there before is there."""
    _on_device(monkeypatch)
    calls = itertools.count(1)

    def some(x: torch.Tensor) -> torch.Tensor:
        still = torch.are_deterministic_algorithms_enabled()
        y = x.clone()
        # Stands for what was left of another tensor.
        left = float(next(calls) == 3)
        y[0] = torch.nan if still and torch.utils.deterministic.fill_uninitialized_memory else left
        return y

    op = define("some(Tensor x) -> Tensor", some)
    with locate() as found:
        op(X)

    assert next(calls) > 6
    assert found.roots == ()


@pytest.mark.parametrize("record", [False, True], ids=["replay", "runs"])
def test_what_is_captured_into_a_graph_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, record: bool
) -> None:
    """Nothing of it may be executed again, or waited for; ops behind it are looked at."""
    capturing = [True]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing[0])
    path = tmp_path / "run.jsonl"
    with LocateMode(LocateSettings(replays=2, record=str(path) if record else None)) as mode:
        count = planted.add_count(torch.zeros(3))
        capturing[0] = False
        assert planted.add_count(torch.zeros(3))[0] == count[0] + 1
        planted.add_count(torch.zeros(3))

    assert mode.seen.left_out["are captured into a CUDA graph"] == 2
    if mode.recorder is None:
        assert [root.differing_calls for root in mode.found()] == [1, 1]
    else:
        mode.recorder.close()
        assert len(RecordedRun(path).ops) == 7  # all but the first two


def test_the_sentinel_races_whatever_the_program_has_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the flag on it would not, and what ignores the flag might."""
    seen: list[bool] = []
    enabled = torch.are_deterministic_algorithms_enabled
    monkeypatch.setattr(torch.Tensor, "index_put", lambda *_, **__: seen.append(enabled()))
    with deterministic():
        ask_sentinel("cpu")
        assert enabled()

    assert seen == [False]


def test_generators_of_all_devices_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """An op may draw from that of another device than the current one."""
    several = torch.Generator(), torch.Generator()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "default_generators", several)
    draw = define("draw(Tensor x) -> Tensor", lambda x: x + torch.rand((), generator=several[1]))
    with LocateMode(LocateSettings(replays=4)) as mode:
        first, second = (draw(X) for _ in range(2))

    assert mode.found() == ()
    assert not torch.equal(first, second)


def test_code_that_is_compiled_is_named() -> None:
    """The ops of a compiled function that ran uncompiled are seen; of what is compiled the place is told."""
    function = torch.compile(lambda x: planted.add_count(x.sin()).sum(), backend="eager")
    with locate() as found:
        torch.compile(lambda x: x + 1, backend="eager")
        function(X)

    assert "test_locate_tensors.py" in str(found)
    assert "what compiled kernels do was not seen" in str(found)
    assert [one.site.op for one in found.roots] == ["detmatrix_planted::add_count"]


@pytest.mark.parametrize("races", [False, True])
def test_a_workspace_is_no_root_although_its_memory_looks_the_same_with_the_flag_on(*, races: bool) -> None:
    """The workspace of an LSTM is handed other memory with the flag off, and the same each time when it is asked for again."""
    count = itertools.count(1)

    def compute(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        workspace = torch.empty(8, dtype=torch.uint8)
        still = torch.are_deterministic_algorithms_enabled()
        if not (still and torch.utils.deterministic.fill_uninitialized_memory):
            workspace.fill_(7 if still else next(count))
        workspace[:2] = next(count) if races and not still else 1
        return x * 2, workspace

    lstm = define("lstm(Tensor x) -> (Tensor, Tensor)", compute)
    with locate() as found:
        lstm(torch.ones(3))

    assert [(root.outputs, root.flag) for root in found.roots] == [((1,), "cured")] * races


def test_memory_that_was_filled_before_is_no_other_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """An LSTM leaves most of its workspace unwritten, which looks filled where something filled lay there before."""
    values = itertools.cycle(range(1, 100))

    def first(self: RepeatedCall) -> Any:
        _freed(255)
        return execute_first(self)

    def other(self: RepeatedCall) -> Any:
        _freed(next(values))
        return execute_again(self)

    execute_first, execute_again = RepeatedCall.first, RepeatedCall.other
    monkeypatch.setattr(RepeatedCall, "first", first)
    monkeypatch.setattr(RepeatedCall, "other", other)
    cell, x = torch.nn.LSTM(8, 8), torch.randn(1, 6, 8)

    with locate(replays=2) as found:
        for _ in range(30):
            cell(x)

    assert found.roots == (), str(found)


def _freed(value: int) -> None:
    """Free memory of the size of the workspace that holds one value, for the next execution to be given."""
    held = [torch.full((28672,), value, dtype=torch.uint8) for _ in range(6)]
    del held


@pytest.mark.parametrize("alerts", [False, True])
def test_a_result_that_is_the_same_as_the_fill_is_no_unwritten_memory(*, alerts: bool) -> None:
    """Memory of booleans is filled with True, which is what half of all results are; with the flag on it may race, too."""
    values = itertools.cycle([True, False])

    def compute(_: torch.Tensor) -> torch.Tensor:
        still = torch.are_deterministic_algorithms_enabled()
        if alerts and still and not torch.is_deterministic_algorithms_warn_only_enabled():
            raise RuntimeError(
                "racer does not have a deterministic implementation, but you set 'torch.use_deterministic_algorithms(True)'"
            )
        return torch.tensor([True if still and not alerts else next(values)])

    roots: list[Any] = []
    racer = define("racer(Tensor x) -> Tensor", compute)
    # The first result is True, and then False.
    for _ in range(2):
        values = itertools.cycle([True, False] if not roots else [False, True])
        with locate(replays=1) as found:
            racer(torch.ones(3))
        roots += [root.flag for root in found.roots]

    assert roots == ["raises" if alerts else "cured"] * 2


def test_equal_sums_and_permutations_are_seen() -> None:
    """Norms and XOR, by which others compare runs, are blind to these."""
    x, wide = torch.randn(1000), torch.ones(128, 256, dtype=torch.float64)
    pairs = {
        "permuted": (x, x.flip(0)),
        "two swapped": (x, torch.cat([x[:1].clone() * 0 + x[1], x[:1], x[2:]])),
        "pairs that XOR to zero": (torch.zeros(4), torch.tensor([3.0, 3.0, 0.0, 0.0])),
        "two signs": (torch.ones(8), torch.tensor([1.0, -1, 1, -1, 1, 1, 1, 1])),
        "all signs": (torch.ones(4096), -torch.ones(4096)),
        "exponents of neighbours": (torch.ones(64), torch.ones(64) * 2),
        "the sign of zero": (torch.zeros(3), -torch.zeros(3)),
        "signs of vectors, float64": (wide, wide.index_fill(1, torch.tensor([7]), -1)),
        "rows of tiles": (torch.arange(200 * 176), torch.arange(200 * 176).view(200, 176).flip(0).view(-1)),
        "shapes of blocks": (torch.arange(1 << 19), torch.arange(1 << 19).roll(1 << 17)),
        "classes exchanged": (torch.eye(160, 176).long(), torch.eye(160, 176).long().flip(0)),
        "complements": (torch.tensor([0, 0]), torch.tensor([-1, -1])),
        "padding and a class": (torch.full((2,), -100), torch.full((2,), 99)),
        "many complements": (torch.arange(20_000), ~torch.arange(20_000)),
        "the last of an odd number": (torch.zeros(7).byte(), torch.tensor([0] * 6 + [1]).byte()),
    }
    for name, (one, other) in pairs.items():
        assert digest(one).tolist() != digest(other).tolist(), name


def test_digests_are_the_same_in_inference_mode_and_behind_it() -> None:
    """Memory that is used again belongs to neither."""
    memory._workplace.cache_clear()
    with torch.inference_mode():
        once = digest(torch.arange(9)).tolist()

    assert digest(torch.arange(9)).tolist() == once
