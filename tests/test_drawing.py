"""Recorded inputs, written down as source, make the same inputs again."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from detmatrix.opspecs.inputs import Inputs
from detmatrix.opspecs.model import Call, call

torch = pytest.importorskip("torch")

from detmatrix.scanner.worker import bits  # noqa: E402 - it needs torch
from detmatrix.scanner.worker.repro.codegen import Source, UntraceableError  # noqa: E402
from detmatrix.scanner.worker.repro.recorder import Drawing, mapped  # noqa: E402

OPTIONS: dict[str, Any] = {"dtype": "float32", "direction": "backward"}
Case = Callable[[Any], Call]


def written(make: Case, device: str = "cpu") -> str:
    """Return the source of the function that makes a case's arguments, keyword arguments and leaves."""
    t, drawing = Inputs("key", device=device, **OPTIONS), Drawing(device)
    with drawing:
        made = make(t)
    wanted = drawing.known((made.args, dict(made.kwargs), t.leaves))
    source = Source(drawing, wanted)
    return "\n    ".join(["def inputs():", *source.lines, f"return {source.text(wanted)}"])


def described(values: Any) -> Any:
    """Return all in which inputs can differ."""
    parts = bits.parts(values, "inputs", skip_others=True)
    plain = mapped(values, lambda one: one.requires_grad if isinstance(one, torch.Tensor) else repr(one))
    return [bits.digest(parts), [tensor.stride() for _, tensor in parts], plain]


def _in_place(t: Any) -> Call:
    x = t.normal(8)
    before, once = x * 2, x + 1
    x[2:4] = 0
    x.mul_(3).clamp_(-1, 1)
    return call(before, x, x[:2] + before[:2], once * 3)


def _views(t: Any) -> Call:
    x = t.normal(4, 4)
    row = x[1]
    row.fill_(1.5)
    x[:, 0] = row
    return call(x)


def _leaf_beside_itself(t: Any) -> Call:
    x = t.normal(4)
    return call(x, t.leaf(x), t.leaf(x * 2))


def _depends_on_values(t: Any) -> Call:
    index = t.index(9, high=5)
    return call(t.normal(int(index.max()) + 1, index.shape[0]), index.tolist())


def _into(t: Any) -> Call:
    out = torch.empty(4)
    torch.add(t.normal(4), t.normal(4), out=out)
    return call(out, torch.zeros(3, dtype=torch.int32))


def _own_generator(t: Any) -> Call:
    own = torch.Generator().manual_seed(7)
    x = t.normal(4)
    return call(torch.rand(4, generator=own), x, torch.rand(2, generator=own), t.normal(2))


def _properties(t: Any) -> Call:
    x = t.normal(3, 2)
    y = x.T
    x.requires_grad = True
    return call(x, y, x.detach().mT)


def _indexed(t: Any) -> Call:
    x = t.normal(2, 2)
    where = t.index(3, high=2)
    return call(
        x[..., 0], x[1:, None], x[-1], x[where], x[x > 0], x[::2, (0, 1)], x[0, 1], x[(1,)], x[where, 1:]
    )


def _results(t: Any) -> Call:
    x = t.normal(6)
    values, places = x.topk(3)
    low, _, high = x.split(2)
    least = x.min(0).indices
    return call(values, places, [low, {"high": high}], least, x.sort().indices, *x.view(2, 3))


CASES: dict[str, Case] = {
    "draws that meet in one expression": lambda t: call(t.uniform(4) * (t.normal(4) - t.mixed(4))),
    "a draw that nobody uses": lambda t: (t.normal(3), t.normal(3), call(t.normal(3)))[2],
    "one used twice": lambda t: call(*[t.normal(3)] * 2, t.normal(3)),
    "operators": lambda t: call(
        (1 - t.index(9, high=5)) // 2 % 3 - (t.index(9, high=5) - t.index(9, high=5)),
        2 ** -t.normal(2) ** 2 / (3 / (t.normal(2) / 2)),
        ((t.normal(2) < 0.5) == (t.normal(2) > 0)) & (t.normal(2) >= 0) ^ ~t.mask(2),
        -(t.normal(2) + 1) * -1.5,
    ),
    "functions": lambda t: call(
        torch.linalg.norm(t.normal(3, 3), dim=0),
        torch.where(t.mask(3), torch.arange(3), torch.tensor([1.5, math.inf, -0.0])),
        torch.nn.functional.one_hot(t.permutation(4), num_classes=5),
        torch.cat([t.normal(2), torch.ones(2)]),
        torch.fft.fft(t.normal(4)),
        torch.nn.functional.max_pool2d(t.normal(1, 1, 4, 4), 2),
    ),
    "what is no tensor": lambda t: call(
        math.inf, -math.inf, 1e-300, -0.0, 1j, -3, True, None, "it's \"so\"\n", "naïve", b"\0", ..., slice(1, -1), (), (2,),
        slice(None, None, 2), [(3,) * 9], {"a": [t.normal(1)]}, t.dtype, torch.strided, torch.channels_last,
        device=t.device, size=torch.Size([3]), of=torch.device("cpu"), kind=range(3),
    ),
    "indices": _indexed,
    "in place": _in_place,
    "views": _views,
    "a leaf beside itself": _leaf_beside_itself,
    "shapes from values": _depends_on_values,
    "into a given tensor": _into,
    "a generator of its own": _own_generator,
    "properties": _properties,
    "items of results": _results,
    "quantized": lambda t: call(torch.quantize_per_tensor(t.normal(5), 0.1, 3, torch.qint8)),
    "rows": lambda t: call(t.coo(4, 4, stored=5).to_sparse_csr(), t.leaf(t.coo(4, 4, stored=5))),
}  # fmt: skip


@pytest.mark.filterwarnings(
    "ignore:Sparse CSR tensor support is in beta", "ignore:torch.quantize", "ignore::UserWarning"
)
@pytest.mark.parametrize("make", CASES.values(), ids=CASES)
def test_source_makes_the_same(make: Case) -> None:
    """Whatever a case computes from its draws, its source computes too, bit by bit."""
    t = Inputs("key", device="cpu", **OPTIONS)
    made = make(t)
    expected = described((made.args, dict(made.kwargs), t.leaves))
    names: dict[str, Any] = {"torch": torch}

    exec(written(make), names)

    assert expected == described(names["inputs"]())


def test_source_reads_like_written_by_hand() -> None:
    """A statement for each draw and argument; what is used once stands where it is used; nothing idle is said."""
    source = written(lambda t: call(t.normal(8).reshape(2, 4), 0, t.leaf(t.mixed(4)), t.index(3, high=9)))

    assert source.splitlines()[2:] == [
        "    x0 = torch.randn(8, generator=g).reshape(2, 4)",
        "    x1 = torch.randint(-3, 4, (4,), generator=g) + 3",
        (
            "    x2 = (torch.randn(4, generator=g) * torch.tensor([0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0], "
            'device=torch.device("cpu"))[x1]).requires_grad_()'
        ),
        "    x3 = torch.randint(0, 9, (3,), generator=g)",
        "    return ((x0, 0, x2, x3), {}, [x2])",
    ]


def test_another_device_is_written_and_not_needed() -> None:
    """The script of a CUDA row is written on a machine without one: its tensors are moved there, and may come back."""
    source = written(
        lambda t: call(
            t.leaf(t.normal(2)), t.index(2, high=t.size(cpu=3, cuda=4)).cpu().int(), device=t.device
        ),
        "cuda",
    )

    assert source.splitlines()[2:] == [
        '    x0 = torch.randn(2, generator=g).to("cuda").requires_grad_()',
        '    x1 = torch.randint(0, 4, (2,), generator=g).to("cuda").cpu().int()',
        '    return ((x0, x1), {"device": "cuda"}, [x0])',
    ]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda t: call(torch.from_numpy(t.normal(3).numpy() * 2)), "a tensor is made by something that is no function"),
        (lambda _: call(iter([])), "a list_iterator has no source"),
    ],
)  # fmt: skip
def test_untraceable(make: Case, text: str) -> None:
    """What was not seen to be made cannot be written, and that is said."""
    pytest.importorskip("numpy")

    with pytest.raises(UntraceableError, match=text):
        written(make)
