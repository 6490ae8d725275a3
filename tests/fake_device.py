"""A strict stand-in for an accelerator: CPU tensors that a worker takes for tensors of a device, at the level of Python.

A file of specs that calls ``install`` makes its worker believe in the device; the scanner has no branch for it. It insists
on what a GPU insists on: tensors of one op lie on one device, streams are the device's, an event is recorded before it is
asked, nothing answers behind a failed device-side assertion, and memory ends somewhere. What is stored into a device tensor
arrives at the next synchronisation, as if it were still queued, and synchronisations are counted.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator
from types import SimpleNamespace
from typing import Any, Self

import torch
from torch.overrides import TorchFunctionMode

from detmatrix.opspecs.inputs import Inputs

TOTAL = 1 << 29
# What waits for the device.
_WAITING = {
    "item", "tolist", "__bool__", "__int__", "__float__", "__index__", "cpu", "numpy", "nonzero", "equal",
}  # fmt: skip
# What takes tensors of both sides.
_BOTH = {
    "to", "copy_", "cpu", "grad", "ctc_loss", "type", "__get__", "__set__", "backward",
    "get_default_device", "lstm", "gru", "rnn_tanh", "rnn_relu", "_pack_padded_sequence", "__getitem__",
    "__setitem__", "index_put", "index_put_", "unfold_backward", "tensor_split",
}  # fmt: skip
_ASSERTED = "CUDA error: device-side assert triggered"


class Device:
    """What the stand-in knows of the one device there is."""

    def __init__(self, kind: str, asserting: Collection[str]) -> None:
        self.kind = kind
        self.asserting = asserting
        self.name = torch.device(kind, 0)
        self.broken = False
        self.synchronisations = 0
        self.limit = TOTAL
        self.held = self.peak = 0
        self._storages: dict[int, list[int]] = {}
        self._queued: list[tuple[int, Callable[[], object]]] = []

    def check(self) -> None:
        """Fail as everything fails behind an assertion."""
        if self.broken:
            raise getattr(torch, "AcceleratorError", RuntimeError)(_ASSERTED)

    def synchronize(self) -> None:
        """Do what is queued."""
        self.synchronisations += 1
        self.check()
        self._work()

    def _work(self) -> None:
        queued, self._queued = self._queued, []
        for _, one in queued:
            one()

    def queue(self, into: torch.Tensor, work: Callable[[], object]) -> None:
        """Write into a tensor at the next synchronisation."""
        self._queued.append((into.untyped_storage().data_ptr(), work))

    def read(self, tensors: Iterable[torch.Tensor]) -> None:
        """Let an op see what was written into its tensors before it was called, as the order of a stream has it."""
        if self._queued:
            waiting = {address for address, _ in self._queued}
            if any(
                one.layout == torch.strided and one.untyped_storage().data_ptr() in waiting for one in tensors
            ):
                self._work()

    def put(self, tensor: torch.Tensor) -> None:
        """Let a tensor lie on the device."""
        if hasattr(tensor, "_on_device"):
            return
        tensor._on_device = True
        if tensor.layout != torch.strided or tensor.is_nested:
            return
        storage = tensor.untyped_storage()
        known = self._storages.setdefault(storage.data_ptr(), [0, storage.nbytes()])
        if not known[0]:
            if self.held + known[1] > self.limit:
                del self._storages[storage.data_ptr()]
                raise torch.cuda.OutOfMemoryError("CUDA out of memory. The stand-in has no more")
            self.held += known[1]
            self.peak = max(self.peak, self.held)
        known[0] += 1
        weakref.finalize(tensor, self._release, storage.data_ptr())

    def _release(self, address: int) -> None:
        known = self._storages[address]
        known[0] -= 1
        if not known[0]:
            self.held -= known[1]
            del self._storages[address]

    def means(self, value: object) -> bool:
        """Tell whether a value names the device, and refuse an index that is not there."""
        if isinstance(value, str) and value.partition(":")[0] == self.kind:
            value = torch.device(value)
        if not isinstance(value, torch.device) or value.type != self.kind:
            return False
        if value.index:
            raise RuntimeError("CUDA error: invalid device ordinal")
        return True


def _tensors(value: object) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def _lies(tensor: torch.Tensor) -> bool:
    return hasattr(tensor, "_on_device")


class _OnDevice(TorchFunctionMode):  # type: ignore[misc] # torch is not there when types are checked
    """Takes note of what happens on the device, and lets the CPU do it."""

    def __init__(self, device: Device) -> None:
        super().__init__()
        self._device = device
        # The getters of properties that say where a tensor lies.
        self._where: dict[Any, Callable[[torch.Tensor], object]] = {
            torch.Tensor.device.__get__: lambda one: device.name if _lies(one) else torch.device("cpu"),
            torch.Tensor.is_cuda.__get__: lambda one: _lies(one) and device.kind == "cuda",
            torch.Tensor.is_xpu.__get__: lambda one: _lies(one) and device.kind == "xpu",
            torch.Tensor.is_mps.__get__: lambda one: _lies(one) and device.kind == "mps",
        }

    def __torch_function__(self, func: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        device, kwargs = self._device, kwargs or {}
        if func in self._where:
            return self._where[func](args[0])
        name = getattr(func, "__name__", "")
        given = list(_tensors([args, kwargs]))
        onto = any(map(device.means, (*args, *kwargs.values()))) or name == device.kind
        if func is torch.device or not (onto or any(map(_lies, given))):
            return func(*args, **kwargs)
        device.check()
        if (
            name not in _BOTH
            and any(map(_lies, given))
            and any(not _lies(one) and one.dim() for one in given)
        ):
            raise RuntimeError(f"{name}: expected all tensors to be on the same device")
        if name == "__setitem__" and _lies(args[0]) and any(map(_lies, _tensors(args[2]))):
            device.queue(args[0], lambda: func(*args, **kwargs))
            return None
        if name != "__getitem__":
            device.read(given)
        if name == device.kind:
            func, args = torch.Tensor.clone, args[:1]
        return self._done(func, name, args, kwargs, onto=onto)

    def _done(self, func: Any, name: str, args: Any, kwargs: Any, *, onto: bool) -> Any:
        """Let the CPU call a function, and have what it gives lie where it would."""
        device = self._device
        home = name == "cpu" or (name == "to" and any(str(one) == "cpu" for one in (*args, *kwargs.values())))
        if name in _WAITING or home:
            device.synchronize()
        there = [torch.device("cpu") if device.means(value) else value for value in args]
        out = func(*there, **{key: "cpu" if device.means(value) else value for key, value in kwargs.items()})
        if isinstance(out, torch.Tensor) and (home or onto) and any(out is one for one in _tensors(args)):
            # A move to where the CPU has it already.
            out = out.clone() if out.layout == torch.strided and (home == _lies(out)) else out
        for one in () if home else _tensors(out):
            device.put(one)
        # The host goes on, and learns of it when it next waits.
        device.broken = name in device.asserting
        return out


class Stream:
    """A stream of the device."""

    device: Device
    cuda_stream = sycl_queue = 1

    def __init__(self, of: object = None) -> None:
        assert of is None or self.device.means(of), of

    def synchronize(self) -> None:
        """Wait for it."""
        self.device.synchronize()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Event:
    """Says nothing before it is recorded, and then that the work is still going on."""

    device: Device

    def __init__(self) -> None:
        self._recorded = False

    def record(self, stream: Stream) -> None:
        """Stand behind what a stream has to do."""
        assert isinstance(stream, Stream), stream
        self.device.check()
        self._recorded = True

    def query(self) -> bool:
        """Tell whether that is done."""
        assert self._recorded, "an event is recorded before it is asked"
        self.device.check()
        return False


def install(kind: str, asserting: Collection[str] = ()) -> Device | None:
    """Make this process believe in a device if it is a worker; what else loads the file is left alone.

    Args:
        kind: ``"cuda"`` and the like.
        asserting: Functions of torch in which an assertion fails on the device.
    """
    main = getattr(sys.modules["__main__"], "__spec__", None)
    if main is None or main.name != "detmatrix.scanner.worker.__main__":
        return None
    device = Device(kind, asserting)
    Stream.device = Event.device = device
    module = getattr(torch, kind)
    for name, value in _pretended(device).items():
        # Of what a kind lacks nothing is pretended.
        if hasattr(module, name) or name == "default_generators":
            setattr(module, name, value)
    if kind == "cuda":
        torch.version.cuda = "13.0"
    if kind == "mps":
        torch.backends.mps.is_available = lambda: True
    # What fills a GPU takes a CPU minutes.
    Inputs.size = lambda _, **sizes: sizes["cpu"]  # type: ignore[method-assign]
    _OnDevice(device).__enter__()
    return device


def _pretended(device: Device) -> dict[str, Any]:
    """Return what takes the place of the functions of ``torch.cuda`` and its like."""

    def synchronize(of: object = None) -> None:
        assert of is None or device.means(of), of
        device.synchronize()

    def bound(fraction: float, of: object = None) -> None:
        assert 0 <= fraction <= 1, fraction
        assert of is None or device.means(of), of
        device.limit = int(fraction * TOTAL)

    def selected(of: object) -> None:
        assert of == 0 or device.means(of), of

    default, generator = Stream(), torch.Generator()
    properties = SimpleNamespace(
        total_memory=TOTAL, major=9, minor=0, name="Pretended", multi_processor_count=132
    )
    return {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "get_device_capability": lambda _=None: (9, 0),
        "get_device_name": lambda _=None: "Pretended",
        "get_device_properties": lambda _=None: properties,
        "set_device": selected,
        "init": lambda: None,
        "is_initialized": lambda: True,
        "current_device": lambda: 0,
        "current_stream": lambda _=None: default,
        "synchronize": synchronize,
        "Stream": Stream,
        "Event": Event,
        "stream": lambda stream: stream,
        "default_generators": (generator,),
        "_get_default_mps_generator": lambda: generator,
        "memory_allocated": lambda _=None: device.held,
        "max_memory_allocated": lambda _=None: device.peak,
        "reset_peak_memory_stats": lambda _=None: setattr(device, "peak", device.held),
        "set_per_process_memory_fraction": bound,
        "recommended_max_memory": lambda: TOTAL,
        "is_bf16_supported": lambda *_, **__: True,
    }
