"""Programs of Triton kernels in another order each time, in Triton's interpreter: a race of theirs without a GPU.

With ``TRITON_INTERPRET=1`` a kernel runs on the CPU, one program of its grid after the other, and the lanes of a store one
after the other. A GPU promises no order of either, so a kernel whose result depends on one may give other bits there. What
is shown is an order that a GPU may or may not take; programs are never interleaved.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import os
import random
import sys
from collections.abc import Callable
from typing import Any

from detmatrix.scanner.perturbations import INTERPRET

# Orders by their numbers; those from 2 on are drawn, with the number as seed.
NATURAL, REVERSED = 0, 1
# Atomic operations of one program; one that does more waits for a program that runs behind it.
_MOST_ATOMICS = 100_000


class EndlessProgramError(RuntimeError):
    """A program waits for another one, which the interpreter runs later."""


def asked() -> bool:
    """Tell whether Triton is to interpret the kernels of this process."""
    return os.environ.get(INTERPRET) == "1"


def version() -> str | None:
    """Return the version of the Triton that interprets kernels; ``None`` if none does."""
    return str(importlib.import_module("triton").__version__) if asked() else None


def launched() -> int:
    """Return how many kernels the interpreter has run in this process."""
    return launch_orders().launches if asked() and "triton" in sys.modules else 0


class LaunchOrders:
    """Decides in which order programs run, and lanes write; there is one in a process, since there is one interpreter."""

    def __init__(self) -> None:
        """Take the place of what the interpreter calls, if there is a Triton; nothing changes until an order is begun."""
        interpreter: Any = importlib.import_module("triton.runtime.interpreter")
        self._interpreter, self._np = interpreter, interpreter.np
        self._number = NATURAL
        self._places: dict[tuple[int, ...], tuple[int, ...]] = {}
        self.launches = 0  # of kernels, since the process began
        self._in_order = 0  # since the order was begun
        self._atomics = 0  # of the program that runs
        builder = interpreter.interpreter_builder
        self._draws = self._np.random.default_rng(0)
        self._set_grid_dim, self._set_grid_idx = builder.set_grid_dim, builder.set_grid_idx
        builder.set_grid_dim, builder.set_grid_idx = self._begin_grid, self._begin_program
        builder.create_masked_store = self._reordered(builder.create_masked_store, 0, atomic=False)
        builder.create_atomic_rmw = self._reordered(builder.create_atomic_rmw, 1, atomic=True)
        builder.create_atomic_cas = self._reordered(builder.create_atomic_cas, 0, atomic=True)
        self._converted = interpreter._implicit_cvt  # noqa: SLF001 - has no public name
        interpreter._implicit_cvt = self._argument  # noqa: SLF001
        self._device_functions()
        # Which configuration is fastest nobody can measure here; the first one is taken.
        tuner: Any = importlib.import_module("triton.runtime.autotuner").Autotuner
        tuner._bench = lambda *_, **__: [0.0, 0.0, 0.0]  # noqa: SLF001

    def begin(self, number: int) -> None:
        """Let the launches that follow run in the order of this number, each in one of its own."""
        self._number = number
        self._in_order = 0

    def _begin_grid(self, *dimensions: int) -> Any:
        """Draw the order of a launch's programs."""
        programs = [] if self._number == NATURAL else list(itertools.product(*map(range, dimensions)))
        taken = list(programs)
        if self._number == REVERSED:
            taken.reverse()
        else:
            random.Random(f"{self._number}|{self._in_order}").shuffle(taken)  # noqa: S311 - an order, not a secret
        self._draws = self._np.random.default_rng((self._number, self._in_order))
        self._places = dict(zip(programs, taken, strict=True))
        self.launches += 1
        self._in_order += 1
        return self._set_grid_dim(*dimensions)

    def _argument(self, value: Any) -> Any:
        """Make a tensor of an argument as the compiler does, which the interpreter leaves out of numbers of Python's float."""
        if not isinstance(value, float):
            return self._converted(value)
        language = self._interpreter.tl
        handle = self._interpreter.TensorHandle(self._np.array([value], self._np.float32), language.float32)
        return language.tensor(handle, language.float32)

    def _device_functions(self) -> None:
        """Let numpy compute functions of CUDA's libdevice, of which the interpreter has none."""
        library: Any = importlib.import_module("triton.language.extra.libdevice")
        np = self._np
        for name in dir(library):
            compute = getattr(np, name, None)
            if isinstance(compute, np.ufunc) and "f->f" in compute.types:
                setattr(library, name, self._elementwise(compute))
        library.rsqrt = self._elementwise(lambda data: 1 / np.sqrt(data))

    def _elementwise(self, compute: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def computed(value: Any) -> Any:
            data = compute(value.handle.data).astype(value.handle.data.dtype)
            return type(value)(type(value.handle)(data, value.handle.dtype), value.type)

        return computed

    def _begin_program(self, *place: int) -> Any:
        self._atomics = 0
        return self._set_grid_idx(*self._places.get(place, place))

    def _lanes(self, *handles: Any) -> Any:
        """Return the places of lanes in the order in which they write; ``None`` for theirs."""
        size = handles[0].data.size
        if self._number == NATURAL or size < 2 or any(one.data.size != size for one in handles):  # noqa: PLR2004
            return None
        return self._np.arange(size)[::-1] if self._number == REVERSED else self._draws.permutation(size)

    def _reordered(self, operation: Callable[..., Any], pointer: int, *, atomic: bool) -> Callable[..., Any]:
        """Let lanes do an operation in the order that is asked for: it takes three tensors, beginning with the pointers."""

        @functools.wraps(operation)
        def done(*given: Any, **named: Any) -> Any:
            self._atomics += atomic
            if self._atomics > _MOST_ATOMICS:
                raise EndlessProgramError(
                    "a program waits for another one, which runs later in the interpreter"
                )
            before, tensors, more = given[:pointer], given[pointer : pointer + 3], given[pointer + 3 :]
            lanes = self._lanes(*tensors)
            if lanes is None:
                return operation(*given, **named)
            result = operation(*before, *(_taken(one, lanes) for one in tensors), *more, **named)
            if atomic:  # what was there
                data = self._np.empty_like(result.data)
                data[lanes] = result.data
                result.data = data.reshape(tensors[0].data.shape)
            return result

        return done


def _taken(handle: Any, lanes: Any) -> Any:
    """Return a flat copy of a tensor of the interpreter, its elements in the order of *lanes*."""
    return type(handle)(handle.data.reshape(-1)[lanes], handle.dtype)


@functools.cache
def launch_orders() -> LaunchOrders:
    """Return the one of this process."""
    return LaunchOrders()
