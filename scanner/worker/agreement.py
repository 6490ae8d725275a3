"""Whether a simulated GPU computed what the CPU computes: the same call, on the same inputs and upstream gradients.

How far two right results may be apart depends on the op, so the CPU is asked: it computes the call again with every input
number moved by a relative √ε, ε being the precision of its dtype, in a few random ways. An element may be off by what it
moves by then, and by its own share ε^¾. Of a sum of n terms that is 3·10⁻⁴ (float32) of the root of the sum of their
squares: a lost term shows among millions, and the rounding of thousands of additions does not. Where an element jumps, for
two inputs nearly tie, any of the values that it jumps to is right.
"""

from __future__ import annotations

import math
import re
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any

import torch

from detmatrix.opspecs.inputs import RealSizeInputs, WholeInputs
from detmatrix.opspecs.model import Call
from detmatrix.opspecs.pytorch.enlarge import mapped
from detmatrix.scanner.schedules import CANONICAL
from detmatrix.scanner.worker import bits, global_state, simulated
from detmatrix.scanner.worker.execution import Execution, first_line, on_host, tensors_in
from detmatrix.scanner.worker.threads import thread_count

_SAMPLES, _MORE = 4, 12
# Of an element that is rounding alone, in the largest that the CPU made.
_ROUNDINGS = 8
_SEED = 0x5EED
# Values so far apart, as a share of the larger, are no small movement; and so near, in √ε, to one that was jumped to it is that.
_JUMP, _NEAR = 0.25, 8
_WORST = 1e300
_WIDER: dict[torch.dtype | None, torch.dtype] = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.int32: torch.float64,
    torch.int64: torch.float64,
}

_Shaped = Callable[[torch.Tensor], torch.Tensor]


class NotComparedError(Exception):
    """There is nothing on the CPU to compare with; the text says why."""


class CpuReference:
    """What the CPU computes of a case, and how far a result may be off."""

    def __init__(self, execution: Execution) -> None:
        """Compute; raise why the CPU cannot."""
        self._execution = execution
        self._source = next(
            iter(tensors_in(on_host([execution.call.args, dict(execution.call.kwargs)]))), None
        )
        self._lacking: torch.dtype | None = None  # a dtype that the CPU has no kernel for
        try:
            self._forward, self._judged = self._first()
        except Exception as error:
            raise NotComparedError(f"the CPU does not compute it ({first_line(error)})") from error
        if simulated.active() and simulated.report().faults:
            raise NotComparedError("it launches kernels on tensors of the CPU")
        if any(tensor.device.type != "cpu" for _, tensor in (*self._forward, *self._judged)):
            raise NotComparedError("it makes tensors on the GPU by itself")
        self._generator = torch.Generator().manual_seed(_SEED)
        self._samples: list[list[bits.Part]] = []
        self._draw(_SAMPLES)

    def _draw(self, count: int) -> None:
        """Let the CPU compute so many times more with its inputs moved."""
        for _ in range(count):
            try:
                _, sample = self._computed(lambda tensor: _moved(tensor, self._generator))
            except Exception:  # noqa: BLE001, S112 - what is moved may lie outside of what the op takes
                continue
            if bits.same_structure(sample, self._judged):
                self._samples.append(sample)

    def _first(self) -> tuple[list[bits.Part], list[bits.Part]]:
        """Return what the CPU gives; where it has no kernel for a dtype, the result of a wider one, rounded."""
        try:
            return self._computed(torch.Tensor.clone)
        except NotImplementedError:
            dtypes = (tensor.dtype for _, tensor in self._execution.named_arguments())
            self._lacking = next((dtype for dtype in dtypes if dtype in _WIDER), None)
            if self._lacking is None:
                raise
            return self._computed(torch.Tensor.clone)

    def _computed(
        self, change: Callable[[torch.Tensor], torch.Tensor]
    ) -> tuple[list[bits.Part], list[bits.Part]]:
        """Return what the CPU gives with one thread, each tensor that goes in changed; the flag is off unless it promises a result."""
        given = self._execution
        wider = _WIDER.get(self._lacking, torch.float64)
        put = partial(_cast, self._lacking, wider)
        tensors = {id(tensor): put(change(tensor.detach().cpu())) for _, tensor in given.named_arguments()}
        upstream = [put(change(tensor.detach().cpu())) for tensor in given.gradients_given()]
        here = given.changed(tensors, upstream=upstream or None)
        here.call = Call(
            tuple(map(_on_cpu, here.call.args)), {key: _on_cpu(one) for key, one in here.call.kwargs.items()}
        )
        promised = given.reference is not None and given.deterministic
        with thread_count(1), global_state.flag_set(deterministic=promised), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            output, gradients = here()
        if self._lacking:
            back = partial(_cast, wider, self._lacking)
            output, gradients = mapped(output, back), tuple(map(back, gradients))
        return self.parts(output, gradients)

    def parts(
        self, output: Any, gradients: tuple[torch.Tensor, ...]
    ) -> tuple[list[bits.Part], list[bits.Part]]:
        """Return the parts of the forward output (backward only) and those that are judged, each as dense numbers."""
        dense = [mapped(one, _dense) for one in gradients]
        return self._execution.parts(mapped(output, _dense), dense)

    def compare(self, output: Any, gradients: tuple[torch.Tensor, ...]) -> dict[str, Any]:
        """Return how a result on the host is to the CPU's, as fields of ``records.CpuComparison``."""
        forward, judged = self.parts(output, gradients)
        if [(name, one.shape) for name, one in judged] != [(name, one.shape) for name, one in self._judged]:
            return {"agrees": False, "output": "the result", "elements": 1, "of": 1, "error": _WORST}
        for (_, one), (_, cpu) in zip(forward, self._forward, strict=False):
            if not cpu.is_floating_point() and not cpu.is_complex() and not torch.equal(one, cpu):
                return {
                    "agrees": None,
                    "why": "its forward phase chose others of equal elements than the CPU",
                }
        found: dict[str, Any] = {"agrees": True, "elements": 0, "of": 0, "error": 0.0}
        for place, (name, one) in enumerate(judged):
            cpu = self._judged[place][1]
            found["of"] += one.numel()
            if not one.numel():
                continue
            error = self._errors(place, one, cpu)
            if (error > 1).any():
                # Of many elements one moves hardly at all in a few ways.
                self._draw(_MORE + _SAMPLES - len(self._samples))
                error = self._errors(place, one, cpu)
            wrong, worst = int((error > 1).sum()), int(error.argmax())
            found["elements"] += wrong
            if (largest := min(float(error.flatten()[worst]), _WORST)) > found["error"]:
                found["error"] = largest
                if wrong:
                    pair = tuple(repr(tensor.flatten()[worst].item()) for tensor in (one, cpu))
                    found.update(agrees=False, output=name, pair=pair)
        return found

    def distance(self, output: Any, gradients: tuple[torch.Tensor, ...]) -> float | None:
        """Return the largest distance of an element of a result from the CPU's, over the CPU's largest; ``None`` without numbers."""
        pairs = zip(self.parts(output, gradients)[1], self._judged, strict=True)
        shares = [
            float((_wide(one) - _wide(cpu)).abs().max() / _wide(cpu).abs().max())
            for (_, one), (_, cpu) in pairs
            if cpu.numel() and (cpu.is_floating_point() or cpu.is_complex())
        ]
        return max((share for share in shares if math.isfinite(share)), default=None)

    def writers_race(self, *results: tuple[Any, tuple[torch.Tensor, ...]]) -> bool:
        """Tell whether wherever results are not the CPU's they hold numbers that were given: one writer or another came last."""
        given = [tensor.detach().cpu() for _, tensor in self._execution.named_arguments()]
        given += [tensor.detach().cpu() for tensor in self._execution.gradients_given()]
        numbers = [
            tensor.flatten() for tensor in given if tensor.layout == torch.strided and not tensor.is_quantized
        ]
        for result in results:
            for place, (_, one) in enumerate(self.parts(*result)[1]):
                wrong = one[self._errors(place, one, self._judged[place][1]) > 1].tolist()
                alike = (tensor.tolist() for tensor in numbers if wrong and tensor.dtype == one.dtype)
                if not set(wrong).issubset(chain.from_iterable(alike)):
                    return False
        return True

    def _errors(self, place: int, one: torch.Tensor, cpu: torch.Tensor) -> torch.Tensor:
        """Return how far each element is off, in tolerances."""
        if not (cpu.is_floating_point() or cpu.is_complex()):
            unequal = one != cpu
            if unequal.any() and cpu.dtype in (torch.int32, torch.int64) and self._ties(one, cpu):
                unequal = torch.zeros_like(unequal)
            return unequal.double() * _WORST
        precision = torch.finfo(cpu.dtype).eps
        step, relative = precision**0.5, precision**0.75
        one, cpu = _wide(one), _wide(cpu)
        samples = [_wide(sample[place][1]) for sample in self._samples]
        moves = [torch.nan_to_num((sample - cpu).abs(), nan=0.0, posinf=0.0) for sample in samples]
        size = cpu.abs()
        if moves:
            allowed = torch.stack([move**2 for move in moves]).mean(0).sqrt() + relative * size
        else:
            allowed = relative * torch.nan_to_num(size, nan=0.0, posinf=0.0).max().expand_as(size)
        numbers = torch.finfo(self._judged[place][1].dtype)
        # Denormal numbers have no smaller steps.
        allowed = allowed + 2 * numbers.eps * numbers.smallest_normal
        if len(self._samples) > _SAMPLES:
            allowed = allowed.maximum(self._rounding(place, cpu, precision))
        error = _ratio((one - cpu).abs(), allowed)
        for sample, move in zip(samples, moves, strict=True):
            jumped = move > _JUMP * torch.maximum(sample.abs(), size)
            near = _ratio((one - sample).abs(), allowed.minimum(step * size) + _NEAR * step * sample.abs())
            error = torch.where(jumped, error.minimum(near), error)
        same = (one == cpu) | (one.isnan() & cpu.isnan())
        return torch.where(same, 0.0, torch.nan_to_num(error, nan=_WORST, posinf=_WORST))

    def _rounding(self, place: int, cpu: torch.Tensor, precision: float) -> torch.Tensor:
        """Return how far elements may be off that are rounding alone: where a wider dtype has nothing, all terms cancel.

        However inputs move, these hardly do; what is left of them is the rounding of their terms, of which the CPU's largest tells.
        """
        dtype = self._judged[place][1].dtype
        wider = {torch.float32: torch.float64}.get(dtype, _WIDER.get(dtype))
        try:
            exact = _wide(self._computed(partial(_cast, dtype, wider or dtype))[1][place][1])
        except Exception:  # noqa: BLE001 - not every op has a wider dtype
            return torch.zeros_like(cpu.abs())
        rounded = torch.nan_to_num((cpu - exact).abs(), nan=0.0, posinf=0.0).max()
        return torch.where(exact.abs() <= precision * rounded, _ROUNDINGS * rounded, 0.0)

    def _ties(self, one: torch.Tensor, cpu: torch.Tensor) -> bool:
        """Tell whether indices are as good as the CPU's: they choose elements with the same bits, and none twice for once.

        Indices are what stands beside the values that they choose, and what ops return whose names begin with "arg".
        """
        if self._execution.call.kwargs.get("stable"):
            return False
        values = [part for _, part in self._judged if part.shape == cpu.shape and part.dtype == self._dtype]
        for source, dim, shaped in self._choices(cpu):
            mine, theirs = shaped(one), shaped(cpu)
            if int(mine.min()) < 0 or int(mine.max()) >= source.size(dim):
                continue
            ours, chosen = source.gather(dim, mine), source.gather(dim, theirs)
            told = any(bits.equal_on_cpu(chosen.reshape(cpu.shape), value) for value in values)
            told |= not values and str(getattr(self._execution.op, "__name__", "")).startswith("arg")
            if (
                told
                and bits.equal_on_cpu(ours, chosen)
                and (_distinct(mine, dim) or not _distinct(theirs, dim))
            ):
                return True
        return False

    @property
    def _dtype(self) -> torch.dtype | None:
        return None if self._source is None else self._source.dtype

    def _choices(self, cpu: torch.Tensor) -> Iterator[tuple[torch.Tensor, int, _Shaped]]:
        """Yield what indices may mean of the first argument: a dim of it, and they are shaped to gather along that."""
        source = self._source
        if source is None or source.layout != torch.strided or not cpu.numel() or not source.numel():
            return
        shapes: list[tuple[torch.Tensor, int, _Shaped]] = []
        for dim in range(source.dim()):
            if cpu.dim() == source.dim():
                shapes.append((source, dim, lambda tensor: tensor))
                shapes.append((source.flatten(dim), dim, partial(torch.flatten, start_dim=dim)))
            elif cpu.dim() == source.dim() - 1:
                shapes.append((source, dim, partial(torch.unsqueeze, dim=dim)))
        shapes.append((source.flatten(), 0, torch.flatten))
        for flat, dim, shaped in shapes:
            theirs = shaped(cpu)
            fits = all(theirs.size(it) <= flat.size(it) for it in range(flat.dim()) if it != dim)
            if fits and int(theirs.min()) >= 0 and int(theirs.max()) < flat.size(dim):
                yield flat, dim, shaped


def _cast(old: torch.dtype | None, new: torch.dtype, tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(new) if tensor.dtype == old else tensor


def _distinct(index: torch.Tensor, dim: int) -> bool:
    return not bool((index.sort(dim).values.diff(dim=dim) == 0).any())


def _ratio(error: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
    return torch.where(error == 0, 0.0, error / allowed)


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor as numbers in places: what a sparse one stores twice is added, whatever the order it is stored in."""
    tensor = tensor.detach()
    if tensor.is_quantized:
        return tensor.dequantize()
    return tensor if tensor.layout == torch.strided else tensor.to_dense()


def _on_cpu(value: Any) -> Any:
    """Return an argument that names the device as one that names the CPU."""
    if isinstance(value, torch.device) or (isinstance(value, str) and value.startswith("cuda")):
        return "cpu"
    return value


def _moved(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return a tensor with each of its numbers moved by a random relative √ε."""
    tensor = tensor.clone()
    if tensor.is_quantized or not (tensor.is_floating_point() or tensor.is_complex()):
        return tensor
    numbers = tensor
    if tensor.layout == torch.sparse_coo:
        numbers = tensor._values()  # noqa: SLF001 - the numbers as they are stored
    elif tensor.layout != torch.strided:
        numbers = tensor.values()
    step = torch.finfo(tensor.dtype).eps ** 0.5
    numbers.copy_(
        _wide(numbers) * (1 + step * torch.randn(numbers.shape, generator=generator, dtype=torch.float64))
    )
    return tensor


# --- What stands behind a difference, and behind its inputs: rounding or a race, and the kernels of real life


# Makes the execution of a case anew.
Prepare = Callable[..., Execution]
# For host code at real size, and kernels that are told.
_SECONDS, _MOST_TOLD = 10.0, 5
# Kernels of CUB that set up what others work with, each thread its own part.
_SETS_UP = re.compile(r"Device\w*InitKernel\b")


def exactness(
    prepare: Prepare, schedule: dict[str, Any], witness: dict[str, Any] | None, deadline: float
) -> dict[str, Any]:
    """Execute a case again with small integers, canonically and as it differed; return fields of ``records.Simulation``."""
    digests, told, rounds = set(), None, False
    try:
        whole = prepare(drawn=WholeInputs)
        for name, number in ((CANONICAL, 0), (schedule["name"], schedule["number"])):
            simulated.begin(name, number, schedule["seed"], deadline, log=name == CANONICAL)
            whole.reseed()
            output, gradients = whole()
            outcome = bits.parts(on_host(list(gradients) if whole.backward else output), "output")
            digests.add(bits.digest(outcome))
            numbers = [one[one.isfinite()] for _, one in outcome if one.is_floating_point()]
            rounds |= any(not torch.equal(one, one.round()) for one in numbers)
            report = simulated.report()
            told = told or report.conflicts
            if report.faults:
                return {"exact_why": report.faults[0][1]}
    except Exception as error:  # noqa: BLE001 - what an op makes of such numbers says nothing of it
        return {"exact_why": first_line(error)}
    writers = witness is not None and set(witness["kinds"]) == {"write"}
    differs, in_conflict = len(digests) > 1, bool(told and told["told"])
    whys = {
        "it adds what is not exact with small integers either": differs and told and told["inexact"],
        "it approximates, so that small integers do not stay exact": differs
        and report.approximates
        and not writers,
        "its results of small integers are no integers": differs and rounds and not writers,
        "its writers write the same small integers": writers and not differs and not in_conflict,
    }
    if why := next((text for text, holds in whys.items() if holds), ""):
        return {"exact_why": why}
    return {"exact": "stays" if differs else "vanishes"}


def rests_on_approximations(
    execution: Execution, reference: CpuReference, seed: int, deadline: float
) -> bool:
    """Tell whether canonical results are no more those of the CPU where approximations of the GPU have another last bit."""
    try:
        simulated.begin(CANONICAL, 0, seed, deadline, moved=True)
        execution.reseed()
        output, gradients = on_host(list(execution()))
        return not simulated.report().faults and reference.compare(output, gradients)["agrees"] is False
    except Exception:  # noqa: BLE001 - what it makes of them says nothing of the op
        return False


def real_size(prepare: Prepare, launched: dict[str, int], seed: int) -> dict[str, Any]:
    """Return, as fields of ``records.Simulation``, which kernels the size of a case on a real GPU takes that were not executed here.

    Host code chooses them, and none is executed.
    """
    simulated.begin(CANONICAL, 0, seed, time.perf_counter() + _SECONDS, skip=True)
    try:
        real = prepare(drawn=RealSizeInputs)
        simulated.report()  # what the inputs launched
        output = real.forward(real.arguments())
        if real.backward:
            differentiable = [one for one in tensors_in(output) if one.requires_grad]
            upstream = [torch.empty_like(one, requires_grad=False) for one in differentiable]
            real.differentiate(differentiable, upstream)
        report = simulated.report()
    except Exception as error:  # noqa: BLE001 - host code may trip over results that are not there
        return {"real_size_why": first_line(error)}
    others = dict.fromkeys(report.names[name] for name in report.launches if name not in launched)
    alone = [
        report.names[name] for name, count in report.most_blocks.items() if count > 1 == launched.get(name)
    ]
    others |= dict.fromkeys(f"{name} of several blocks" for name in alone if not _SETS_UP.match(name))
    if others and report.reads:
        return {"real_size_why": "its host code reads results"}
    return {"other_kernels": list(others)[:_MOST_TOLD]}
