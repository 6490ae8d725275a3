"""What a worker asks of a device beside running rows: its memory, its first calls, its TF32; and how many share it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from detmatrix.scanner.processes import environment  # noqa: E402
from detmatrix.scanner.processes.process import WorkerBuild  # noqa: E402
from detmatrix.scanner.worker import accelerator  # noqa: E402
from detmatrix.scanner.worker.databases import trials  # noqa: E402
from tests.stand_in_worker import BUILD  # noqa: E402

GIB = 1 << 30


def _device(monkeypatch: pytest.MonkeyPatch, *, total: int, allocated: int) -> list[float]:
    """Pretend a device, and return the shares of its memory that its process is given, as they come."""
    shares: list[float] = []
    module = SimpleNamespace(
        get_device_properties=lambda _: SimpleNamespace(total_memory=total),
        memory_allocated=lambda _: allocated,
        set_per_process_memory_fraction=lambda share, _: shares.append(share),
        set_device=lambda _: None,
    )
    monkeypatch.setattr(accelerator, "module_of", lambda _: module)
    monkeypatch.setattr(accelerator, "_shares", {})
    return shares


def test_memory_of_a_device_is_bounded_while_samples_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as what is in use and a gigabyte more; addresses, which libraries reserve, are not bounded there."""
    shares = _device(monkeypatch, total=80 * GIB, allocated=GIB)

    def none(*_: object) -> None:
        raise AssertionError("addresses are bounded")

    monkeypatch.setattr("detmatrix.scanner.worker.databases.trials.resource.setrlimit", none)
    with trials._bounded_memory("cuda:0"):
        assert shares == [2 / 80]
    assert shares == [2 / 80, 1.0]


def test_a_share_of_the_memory_is_never_exceeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of workers side by side each keeps to its own, also behind a trial."""
    shares = _device(monkeypatch, total=8 * GIB, allocated=GIB)
    accelerator.select("cuda:0", 1 / 16)
    accelerator.select("cuda:0", 1 / 16)

    assert accelerator.memory("cuda:0") == GIB // 2
    with accelerator.bounded_memory("cuda:0", GIB):
        pass
    assert shares == [1 / 16, 1 / 16, 1 / 16]


@pytest.mark.parametrize(("device", "expected"), [("cuda:0", 0.01), ("cpu", 5.0)])
def test_what_a_first_call_loads_is_no_time_of_the_op(
    monkeypatch: pytest.MonkeyPatch, device: str, expected: float
) -> None:
    """On a device a call that took too long is made again; on the CPU nothing is loaded with a kernel."""
    calls = iter([5.0, 0.01])
    monkeypatch.setattr(trials.Trials, "execute", lambda *_: next(calls))
    entry: Any = None
    tried = trials.Trials(entry, "float32", device, 0)

    assert tried._seconds("enlarged_0", "forward", "") == expected


@pytest.mark.parametrize("allowed", [True, False])
def test_tf32_is_told_as_it_is_set(allowed: bool) -> None:
    """What a build allows by default differs between releases, and decides what convolutions compute."""
    # The test suite of PyTorch, which other tests load, lets the setting be changed in no other way.
    with torch.backends.cudnn.flags(allow_tf32=allowed):
        assert ("cuDNN" in accelerator.tf32()) == allowed


@pytest.mark.parametrize(
    ("device", "memory", "cores", "expected"),
    [
        ("cpu", 0, 64, 1),
        ("cuda:0", 80 * GIB, 16, 8),
        ("cuda:0", 80 * GIB, 6, 3),
        ("cuda:0", 24 * GIB, 16, 3),
        ("cuda:0", 4 * GIB, 16, 1),
        ("cuda:0", 80 * GIB, 1, 1),
        ("xpu:0", 80 * GIB, 16, 1),
    ],
)
def test_workers_that_share_a_device(
    monkeypatch: pytest.MonkeyPatch, device: str, memory: int, cores: int, expected: int
) -> None:
    """As many as memory and cores allow; one where they would be load to one another, or memory has no bounds."""
    monkeypatch.setattr("detmatrix.scanner.processes.environment.os.cpu_count", lambda: cores)
    there = [{"kind": device.partition(":")[0], "name": "Pretended", "capability": "", "memory": memory}]
    build: WorkerBuild = {**BUILD, "devices": there}  # type: ignore[typeddict-item]

    assert environment.workers_for(device, build) == expected
