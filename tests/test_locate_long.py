"""``locate`` for a long time: no root where nothing can differ."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from detmatrix.scanner.locate import locate
from detmatrix.scanner.locate.mode import LocateMode, LocateSettings
from tests.programs import nothing, steady, transformer

# Nothing races, so that every difference is a fault of ours.
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore"),
]
OPS = 100_000
# Their result is in part memory that nothing wrote, which is true of no other op of the database: known, and no fault of ours.
KNOWN = {"linalg.lstsq"}


def test_no_root_in_a_hundred_thousand_ops() -> None:
    """Of programs of all kinds, executed again and again."""
    training = transformer.Training(width=16)
    steps = [training.step, nothing.step, steady.amp, steady.checkpointing, steady.resnet]
    with locate(replays=2) as found:
        for step in itertools.cycle(steps):
            step()
            if found.ops >= OPS:
                break

    assert found.located is not None
    assert found.located.replayed > 0.8 * OPS
    assert found.roots == (), str(found)


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
                replayed += mode.replayed
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
        mode = LocateMode(LocateSettings(replays=2, max_bytes=1 << 30))
        try:
            with mode:
                _run(op, sample)
        except Exception as error:  # noqa: BLE001 - is it the op's own?
            with pytest.raises(type(error)):
                _run(op, sample)
        yield mode


def _run(op: Any, sample: Any) -> None:
    result = op(sample.input, *sample.args, **sample.kwargs)
    outputs = [
        one
        for one in (result if isinstance(result, (tuple, list)) else [result])
        if isinstance(one, torch.Tensor) and one.requires_grad
    ]
    if outputs:
        torch.autograd.backward([one.abs().sum() if one.is_complex() else one.sum() for one in outputs])
