"""Numbers that were drawn before, so that they need not be drawn again: a GPU waits for what a CPU draws.

On the CPU both directions of a case take the same draws. On an accelerator what is large is cut out of pools, which are drawn
on the CPU once in a process and then lie on the device.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch

# Numbers in a pool, and what is drawn by itself although it would fit: a CPU is quick with so few.
POOL = 1 << 24
_FEW = 1 << 16
# Bytes of all pools; beyond them those that were asked for longest ago are drawn again when they are.
_POOLS_BYTES = 1 << 28
# How far apart the gradients of two outputs begin: equal ones would hide which output they came through.
_APART = 1_000_003
# Drawn of integers, as int32, before they are brought into the range that is asked for.
_HIGH = (1 << 31) - 1


class Draw(NamedTuple):
    """One call of a random function of torch: what was asked for, what came, and the generator's state behind it."""

    asked: object
    drawn: torch.Tensor
    state: torch.Tensor

    @property
    def size(self) -> int:
        """Bytes that are kept."""
        return int(self.drawn.numel() * self.drawn.element_size())


class KeptDraws:
    """What was drawn last, on the CPU, by key; of the keys that were asked for longest ago it is dropped."""

    def __init__(self, keys: int = 8, size: int = 1 << 29) -> None:
        """Keep so many keys at most, and so many bytes; pools are kept beside them."""
        self.pools = Pools()
        self._keys, self._size = keys, size
        self._held = 0
        self._by_key: OrderedDict[str, list[Draw]] = OrderedDict()

    def find(self, key: str, place: int, asked: object) -> Draw | None:
        """Return the draw at a place of a key's sequence, if it is what is asked for."""
        draws = self._by_key.get(key)
        if draws is None:
            return None
        self._by_key.move_to_end(key)
        return draws[place] if place < len(draws) and draws[place].asked == asked else None

    def keep(self, key: str, place: int, draw: Draw) -> None:
        """Keep a draw at its place; what was kept behind it came from another sequence."""
        draws = self._by_key.setdefault(key, [])
        self._by_key.move_to_end(key)
        if place > len(draws):
            return  # what came before was dropped
        self._held += draw.size - sum(one.size for one in draws[place:])
        draws[place:] = [draw]
        while self._held > self._size or len(self._by_key) > self._keys:
            _, oldest = self._by_key.popitem(last=False)
            self._held -= sum(one.size for one in oldest)


class Pools:
    """Numbers of each kind that is asked for, on the device; a draw is a window of them that goes round."""

    def __init__(self) -> None:
        self._pools: OrderedDict[tuple[str, Any, str], torch.Tensor] = OrderedDict()

    def window(self, key: str, device: str, function: str, *args: Any, **kwargs: Any) -> torch.Tensor | None:
        """Return what stands for a call of a random function; ``None`` if it is to be called.

        Equal arguments give equal numbers, in every process and on every device: no number is drawn twice, and none depends
        on what was drawn before. Permutations are no window of anything, and what is made of uniform numbers is computed in
        float64, which not every accelerator has. The shape is the last of *args*.
        """
        if function not in {"randn", "randint"} or not _FEW < (count := math.prod(args[-1])) <= POOL:
            return None
        if function == "randint" and args[1] - args[0] > _HIGH:
            return None
        # A copy, since an op may write into its input.
        numbers = _cut(self._pool(device, function, **kwargs), seed_of(key) % POOL, count).clone()
        if function == "randint":
            low, high, _ = args
            numbers = numbers.long().remainder_(high - low)
            if low:
                numbers += low
        return numbers.reshape(*args[-1])

    def gradient(
        self, key: str, place: int, device: str, shape: tuple[int, ...], dtype: torch.dtype
    ) -> torch.Tensor:
        """Return normal values for the gradient of the output at a *place* among those that are differentiated; see ``gradient_source``."""
        start = (seed_of(key) + place * _APART) % POOL
        # A copy here too: of a sparse output it is the gradient's very memory.
        return _cut(self._pool(device, "randn", dtype=dtype), start, math.prod(shape)).clone().reshape(shape)

    def _pool(self, device: str, function: str, **kwargs: Any) -> torch.Tensor:
        import torch  # noqa: PLC0415 - spec modules load without it

        kind = (function, kwargs.get("dtype"), device)
        if kind not in self._pools:
            generator = torch.Generator().manual_seed(_pool_seed(function, kwargs.get("dtype")))
            args: tuple[Any, ...] = (POOL,)
            if function == "randint":
                args, kwargs = (0, _HIGH, (POOL,)), {"dtype": torch.int32}
            self._pools[kind] = getattr(torch, function)(*args, generator=generator, **kwargs).to(device)
        self._pools.move_to_end(kind)
        while len(self._pools) > 1 and self._bytes() > _POOLS_BYTES:
            self._pools.popitem(last=False)
        return self._pools[kind]

    def _bytes(self) -> int:
        return sum(one.numel() * one.element_size() for one in self._pools.values())


def _cut(pool: torch.Tensor, start: int, count: int) -> torch.Tensor:
    """Return so many numbers from a place of the pool, going round as often as it takes."""
    if start + count > POOL:
        pool = pool.repeat(1 + (start + count) // POOL)
    # Not by an index, which asks for the device, and a trace has none.
    return pool.narrow(0, start, count)


def gradient_source(key: str, device: str, wide: torch.dtype, dtype: torch.dtype) -> tuple[int, str]:
    """Return the seed of a generator ``g``, and the expression that makes of it what ``Pools.gradient`` gives output ``o`` at place ``i``."""
    seed, start = _pool_seed("randn", wide), f"({seed_of(key) % POOL} + i * {_APART}) % {POOL}"
    pool = f'torch.randn({POOL}, generator=g.manual_seed({seed}), dtype={wide}).to("{device}", {dtype})'
    count = "o.numel()"
    return (seed, f"{pool}.repeat(2 + {count} // {POOL}).narrow(0, {start}, {count}).reshape(o.shape)")


def _pool_seed(function: str, dtype: torch.dtype | None) -> int:
    return seed_of(f"{function}|{dtype}")


def seed_of(text: str) -> int:
    """Return what a generator is seeded with from a text, the same in every process."""
    import hashlib  # noqa: PLC0415 - spec modules load without it

    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")
