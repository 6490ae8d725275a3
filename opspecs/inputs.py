"""Seeded inputs: what a case's generator draws from.

Everything is drawn on the CPU by generators of its own and then moved, so that every process and mode gets the same bits and
the global generator is left alone. So does every device, but for what is large and the gradients of outputs: on an accelerator
those are cut out of pools.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from detmatrix.opspecs.draws import Draw, KeptDraws, Pools, gradient_source, seed_of

if TYPE_CHECKING:
    import torch

T = TypeVar("T")
_LOG_2 = 0.6931471805599453


class Inputs:
    """Draws the tensors of one case for one dtype, device and direction; the ``t`` of a case's lambda."""

    gradients: type[UpstreamGradients]  # what draws the gradients of the outputs
    smaller = False  # whether the case has another size here than on a GPU
    real = False  # whether an enlarged sample has the size that it has on a GPU

    def __init__(
        self,
        key: str,
        *,
        dtype: str,
        device: str,
        direction: str,
        kept: KeptDraws | None = None,
        pools: Pools | None = None,
    ) -> None:
        """Seed the draws from *key*: equal keys give equal bits on one build of torch.

        The direction ``"backward"`` makes leaves. Without *kept*, what was drawn before, everything is drawn anew; windows are
        cut out of *pools*, those of *kept*, or new ones.
        """
        # Spec modules load without torch; only a worker makes Inputs.
        import warnings  # noqa: PLC0415

        import torch  # noqa: PLC0415

        self._torch = torch
        self._warnings = warnings
        self.device = device
        self.dtype: torch.dtype = getattr(torch, dtype)
        self.leaves: list[torch.Tensor] = []
        self._backward = direction == "backward"
        self._generator = torch.Generator().manual_seed(seed_of(key))
        self._key, self._kept, self._place = key, kept, 0
        self._pools, self._windows = pools or (Pools() if kept is None else kept.pools), 0

    def _draw(self, function: str, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Call a random function of torch, or return what it returned to the same call at this place of the sequence."""
        if self.device != "cpu":
            key = f"{self._key}|{self._windows}"
            window = self._pools.window(key, self.device, function, *args, **kwargs)
            if window is not None:
                self._windows += 1
                return window
        call = getattr(self._torch, function)
        if self._kept is None:
            return call(*args, generator=self._generator, **kwargs)
        asked, place = (function, args, tuple(kwargs.items())), self._place
        self._place += 1
        if known := self._kept.find(self._key, place, asked):
            self._generator.set_state(known.state)
            drawn = known.drawn
        else:
            drawn = call(*args, generator=self._generator, **kwargs)
            self._kept.keep(self._key, place, Draw(asked, drawn, self._generator.get_state()))
        # On the CPU the op is given the tensor itself, and may write into it.
        return drawn.clone() if self.device == "cpu" else drawn

    @property
    def itemsize(self) -> int:
        """Bytes per element of the case's dtype."""
        # dtype.itemsize came with torch 2.1.
        return int(self._torch.empty(0, dtype=self.dtype).element_size())

    def size(self, *, cpu: T, cuda: T, simulated: T | None = None) -> T:  # noqa: ARG002 - of `SimulatedInputs`
        """Choose by device: what fills a GPU takes seconds on a CPU, and minutes where it is simulated (default: as a CPU)."""
        return cpu if self.device == "cpu" else cuda

    def normal(self, *shape: int) -> torch.Tensor:
        """Standard normal values of the case's floating or complex dtype; shape as given.

        Torch draws them with logarithms and cosines: x86 CPUs that have AVX2 give equal bits, and other CPUs may give others.
        """
        return self._draw("randn", shape, dtype=self._wide).to(self.device, self.dtype)

    @property
    def _wide(self) -> torch.dtype:
        """What is drawn of the case's dtype: half types as float32, since not every torch draws them on the CPU."""
        return {2: self._torch.float32}.get(self.itemsize, self.dtype)

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> torch.Tensor:
        """Uniform values between *low* and *high* of the case's floating dtype; rounding may reach *high*."""
        drawn = self._draw("rand", shape, dtype=self._torch.float64)
        return (drawn * (high - low) + low).to(self.device, self.dtype)

    def probabilities(self, *shape: int) -> torch.Tensor:
        """Probabilities of the case's floating dtype, which add up to 1 along the last dim, none of them 65536 times another."""
        return self._shares(*shape).to(self.device, self.dtype)

    def log_probabilities(self, *shape: int) -> torch.Tensor:
        """Logarithms of probabilities, within 2e-9: a series of products and quotients, because ``log`` has other bits on other CPUs."""
        mantissa, exponent = self._torch.frexp(self._shares(*shape))
        ratio = (mantissa - 1) / (mantissa + 1)
        power, logarithm = 2 * ratio, exponent.double() * _LOG_2
        for odd in range(1, 17, 2):
            logarithm, power = logarithm + power / odd, power * ratio * ratio
        return logarithm.to(self.device, self.dtype)

    def _shares(self, *shape: int) -> torch.Tensor:
        """Probabilities in float64; integers are added up, so that no order matters."""
        parts = self._draw("randint", 1, 1 << 16, shape)
        return parts.double() / parts.sum(-1, keepdim=True)

    def mixed(self, *shape: int) -> torch.Tensor:
        """Normal values scaled by powers of ten from 1e-3 to 1e3, so that every reordering rounds elsewhere."""
        place = self._draw("randint", -3, 4, shape) + 3
        # A table, for the last bit of a power may depend on the machine.
        powers = self._torch.tensor([1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3], device=place.device)
        return self.normal(*shape) * powers[place].to(self.device, self.dtype)

    def spiky(self, *shape: int) -> torch.Tensor:
        """Normal values, about one in 64 of them 100 higher: every window that holds one has it as maximum."""
        spikes = self._draw("rand", shape) < 1 / 64
        return self.normal(*shape) + spikes.to(self.device, self.dtype) * 100

    def values(self, *shape: int) -> torch.Tensor:
        """Normal values for floating and complex dtypes, integers in ``[-100, 100)`` for the others."""
        if self.dtype.is_floating_point or self.dtype.is_complex:
            return self.normal(*shape)
        low = 0 if self.dtype in (self._torch.uint8, self._torch.bool) else -100
        return self.integers(*shape, low=low, high=100)

    def integers(self, *shape: int, low: int = 0, high: int) -> torch.Tensor:
        """Integers in ``[low, high)``, as values of the case's dtype; few of them make many ties."""
        drawn = self._draw("randint", low, high, shape)
        return drawn.to(self.device, self.dtype)

    def index(self, *shape: int, high: int) -> torch.Tensor:
        """Int64 indices in ``[0, high)``. Mean collisions per slot: ``prod(shape) / high``."""
        return self._draw("randint", 0, high, shape).to(self.device)

    def permutation(self, length: int) -> torch.Tensor:
        """A permutation of ``[0, length)`` as int64: indices of which no two are equal."""
        return self._draw("randperm", length).to(self.device)

    def mask(self, *shape: int) -> torch.Tensor:
        """Booleans, about half of them true."""
        return (self._draw("rand", shape) < 0.5).to(self.device)  # noqa: PLR2004

    def quantized(self, *shape: int) -> torch.Tensor:
        """Normal values, quantized to the case's dtype in steps of 1/16."""
        drawn = self._draw("randn", shape)
        with self._warnings.catch_warnings():
            # It is to be removed some day, and until then its bits are what we ask about.
            self._warnings.simplefilter("ignore")
            return self._torch.quantize_per_tensor(drawn.to(self.device), 1 / 16, 0, self.dtype)

    def coo(self, *shape: int, stored: int, repeated: bool = False) -> torch.Tensor:
        """A sparse matrix, or batch of them, with so many values at random places, in order; *repeated*: several at one, in no order."""
        size = math.prod(shape)
        places = self.index(stored, high=size) if repeated else self.permutation(size)[:stored].sort().values
        indices = []
        for side in reversed(shape):
            indices.append(places % side)
            places = places // side
        drawn = self._torch.sparse_coo_tensor(
            self._torch.stack(indices[::-1]), self.values(stored), shape, check_invariants=False
        )
        # The keyword is_coalesced came with torch 2.1.
        return drawn if repeated else drawn._coalesced_(True)

    def max_pool(self, tensor: torch.Tensor, kernel: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Maxima of disjoint windows of side *kernel*, and their int64 indices, no two equal in a plane.

        Args:
            tensor: ``(N, C, L)``, ``(N, C, H, W)`` or ``(N, C, D, H, W)``.
            kernel: Side of the windows; divides the sides of the tensor.
        """
        pool = getattr(self._torch.nn.functional, f"max_pool{tensor.dim() - 2}d")
        values, indices = pool(tensor.cpu(), kernel, return_indices=True)
        return values.to(self.device), indices.to(self.device)

    def channels_last(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same values, laid out channels last: ``(N, C, H, W)`` or ``(N, C, D, H, W)``."""
        formats = {4: self._torch.channels_last, 5: self._torch.channels_last_3d}
        return tensor.contiguous(memory_format=formats[tensor.dim()])

    def leaf(self, tensor: torch.Tensor) -> torch.Tensor:
        """Take part in backward: the gradient of this tensor is an output of the ``backward`` direction."""
        if not self._backward:
            return tensor
        tensor = tensor.detach().requires_grad_()
        self.leaves.append(tensor)
        return tensor

    def follow(self, tensor: torch.Tensor) -> None:
        """Let a leaf take part in backward as it is, of whatever kind, and whoever else holds it."""
        if self._backward and not any(tensor is leaf for leaf in self.leaves):
            self.leaves.append(tensor)

    @property
    def draws_on(self) -> str:
        """Where databases draw their samples."""
        return self.device

    def given(self, tensor: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
        """Return a copy of a tensor that a database drew; with one memo, tensors that share memory share it in the copies too."""
        return tensor.clone() if tensor.layout != self._torch.strided else copy.deepcopy(tensor, memo)


def _drawn_on_cpu(owner: type[Inputs], name: str) -> Callable[..., Any]:
    """Return a way of drawing that computes on the CPU and moves what comes out."""
    draw = getattr(owner, name)

    @functools.wraps(draw)
    def moved(self: Inputs, *args: Any, **kwargs: Any) -> Any:
        place, self.device = self.device, "cpu"
        try:
            drawn = draw(self, *args, **kwargs)
        finally:
            self.device = place
        return drawn.to(place)

    return moved


class SimulatedInputs(Inputs):
    """Draws for a simulated GPU: as for the CPU, with no kernel, so that no fault of the simulation is in the inputs."""

    draws_on = "cpu"

    def size(self, *, cpu: T, cuda: T, simulated: T | None = None) -> T:
        """Choose by device: the third size, that of a CPU if there is none."""
        chosen = cpu if simulated is None else simulated
        self.smaller |= chosen != cuda
        return chosen

    def channels_last(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same values, laid out channels last."""
        return super().channels_last(tensor.cpu()).to(self.device)

    def given(self, tensor: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
        """Return a copy on the device, in memory laid out as the tensor's."""
        plain = type(tensor) in (self._torch.Tensor, self._torch.nn.Parameter)
        if not plain or tensor.layout != self._torch.strided or tensor.is_quantized:
            return tensor.to(self.device)
        storage = tensor.untyped_storage()
        place = storage.data_ptr()
        if place not in memo:
            content = self._torch.empty(0, dtype=self._torch.uint8).set_(storage)
            memo[place] = content.to(self.device, copy=True).untyped_storage()
        there = self._torch.empty(0, dtype=tensor.dtype, device=self.device)
        there.set_(memo[place], tensor.storage_offset(), tensor.size(), tensor.stride())
        there = there.conj() if tensor.is_conj() else there
        return self._torch._neg_view(there) if tensor.is_neg() else there  # noqa: SLF001 - has no public name


for _name in (
    *("normal", "uniform", "mixed", "spiky", "values", "integers", "index", "permutation", "mask"),
    *("quantized", "coo", "probabilities", "log_probabilities"),
):
    setattr(SimulatedInputs, _name, _drawn_on_cpu(Inputs, _name))


class UpstreamGradients(Inputs):
    """Draws the gradients of a case's outputs, whose shapes are known when they are there."""

    def gradient(self, *shape: int) -> torch.Tensor:
        """Standard normal values for the gradient of the next output; shape as given."""
        if self.device == "cpu":
            return self.normal(*shape)
        drawn = self._pools.gradient(self._key, self._windows, self.device, shape, self._wide)
        self._windows += 1
        return drawn.to(self.device, self.dtype)

    def gradient_source(self) -> tuple[int, str]:
        """Return the seed of a generator ``g``, and how ``gradient`` makes one of it for output ``o`` at place ``i``, on an accelerator."""
        return gradient_source(self._key, self.device, self._wide, self.dtype)


Inputs.gradients = UpstreamGradients


class _WholeNumbers(Inputs):
    """Draws small integers in place of floats, so that their sums are exact in any order; for products 1 and -1."""

    def normal(self, *shape: int) -> torch.Tensor:
        """Integers from -4 to 4, without 0."""
        sizes = self._draw("randint", 1, 2 if "prod" in self._key else 5, shape)
        return (sizes * (1 - 2 * self._draw("randint", 0, 2, shape))).to(self.device, self.dtype)

    mixed = normal

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> torch.Tensor:
        """Quarters of the way from *low* to *high*; for products 1 and -1, too."""
        if "prod" in self._key:
            return self.normal(*shape)
        quarters = self._draw("randint", 1, 4, shape)
        return (low + quarters * (high - low) / 4).to(self.device, self.dtype)

    def given(self, tensor: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
        """The nearest integers."""
        if tensor.is_complex():
            tensor = self._torch.complex(tensor.real.round(), tensor.imag.round())
        return super().given(tensor.round() if tensor.is_floating_point() else tensor, memo)


class _WholeGradients(_WholeNumbers, UpstreamGradients):
    """Draws small integers as gradients."""


class WholeInputs(_WholeNumbers, SimulatedInputs):
    """Draws small integers for a simulated GPU: what differs by rounding alone does not differ with them."""

    gradients = _WholeGradients


for _name in ("normal", "mixed", "uniform"):
    setattr(WholeInputs, _name, _drawn_on_cpu(_WholeNumbers, _name))


class RealSizeInputs(Inputs):
    """Makes what a case has on a GPU in size, and holds nothing: for what host code makes of it while no kernel is executed."""

    draws_on, real = "cpu", True
    given = SimulatedInputs.given

    def _draw(self, function: str, *args: Any, **kwargs: Any) -> torch.Tensor:
        shape = (args[0],) if function == "randperm" else args[-1]
        integers = {"randint", "randperm"} & {function}
        kwargs = {"dtype": self._torch.int64} | kwargs if integers else kwargs
        return self._torch.empty(shape, device=self.device, **kwargs)
