"""Which rows an entry of PyTorch's databases gives: a worker's answer to ``enumerate``.

Of the samples those are taken that differ most from one another, and each is grown so that threads share the work, if
the op accepts that: whether it does is tried here, with the flag off.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from detmatrix.opspecs.pytorch import database, enlarge, traits
from detmatrix.opspecs.pytorch.database import Entry, Sample
from detmatrix.scanner.worker import bits, perturb, simulated
from detmatrix.scanner.worker.databases.trials import COLLIDES, NothingToCompareError, Trials
from detmatrix.scanner.worker.execution import InvalidCaseError

# Arguments that often switch off the part of an op that could differ: a dropout with p=0.0 or training=False draws
# nothing.
_SWITCHED_OFF = ("False", "0", "0.0")
# Samples that are looked at for each that is taken: some give an output without elements.
_SPARE = 4


def entry_rows(
    name: str, *, device: str, seed: int, dtypes: list[str] | None, samples: int, trial: bool
) -> dict[str, Any]:
    """Return the rows of an entry, and what they were chosen from: at most so many samples per dtype.

    *dtypes* are those wanted of the ones that the entry declares; ``None``: float32, or the first there is. A *trial* calls
    the op, to know what can be differentiated and enlarged; without, every sample is taken to be differentiable if the entry
    is, and nothing is enlarged.
    """
    # Whether an op takes its inputs does not depend on threads, which on a busy machine wait for one another. The worker
    # that enumerates observes nothing.
    torch.set_num_threads(1)
    # Nor are they to wait for the worker beside this one, which OpenMP bound to the same core.
    perturb.unbind()
    entry = database.entries(database.source_of(name) or "")[name]
    answer: dict[str, Any] = {"op": entry.path, "why": entry.why, "rows": [], "samples": 0, "refused": 0}
    for dtype in _dtypes(entry.dtypes(device), dtypes):
        planner = _Planner(entry, dtype, device, seed, answer)
        planner.plan(samples, trial=trial)
    return answer


def _dtypes(declared: list[str], wanted: list[str] | None) -> list[str]:
    """Return the dtypes to scan; of an entry without any of them, the first one stands for the row that says so."""
    if wanted is not None and "all" not in wanted:
        return [dtype for dtype in declared if dtype in wanted] or wanted[:1]
    if wanted is not None and declared:
        return declared
    order = ("float32", "float64", "bfloat16", "float16", "complex64", "int64")
    return [next((dtype for dtype in order if dtype in declared), (declared or ["float32"])[0])]


class _Planner:
    """Plans the rows of one entry in one dtype."""

    def __init__(self, entry: Entry, dtype: str, device: str, seed: int, answer: dict[str, Any]) -> None:
        self._entry = entry
        self._options: dict[str, Any] = {"dtype": dtype, "device": device, "seed": seed}
        self._trials = Trials(entry, dtype, device, seed)
        self._dtype = dtype
        self._answer = answer
        self._total = 0
        self._traits: dict[str, str] = {}

    def plan(self, most: int, *, trial: bool) -> None:
        options = self._options
        try:
            samples = database.drawn(self._entry, **options, on="cpu" if simulated.active() else "")
        except Exception:  # noqa: BLE001 - the row that stands for it says what went wrong
            samples = []
        self._total = len(samples)
        self._answer["samples"] += self._total
        if not samples:
            self._add("sample_0", "forward", "samples")
            return
        for number in self._telling(_unlike(samples, _SPARE * most), most, trial=trial):
            case = f"sample_{number}"
            sample = samples[number]
            self._tell_traits(sample)
            self._add(case, "forward", "samples")
            if self._differentiable(case, "", trial=trial):
                self._add(case, "backward", "samples")
            if trial:
                self._enlarge(number, sample)
        if trial:
            self._collide(samples)

    def _collide(self, samples: list[Sample]) -> None:
        """Enlarge one more sample, in which indices repeat, if there is one and that is so in none that were taken."""
        rows = [row for row in self._answer["rows"] if row["dtype"] == self._dtype]
        taken = {row["case"] for row in rows}
        indices = [number for number, sample in enumerate(samples) if _has_indices(sample)]
        for number in [one for one in indices if f"enlarged_{one}" not in taken][:_SPARE]:
            if any(
                COLLIDES in row["provokes"] for row in self._answer["rows"] if row["dtype"] == self._dtype
            ):
                return
            self._tell_traits(samples[number])
            self._enlarge(number, samples[number], needs=COLLIDES)

    def _tell_traits(self, sample: Sample) -> None:
        """Note what the rows added next are instances of."""
        self._traits = traits.traits_of(self._entry.name, sample.args, sample.kwargs, self._dtype)

    def _telling(self, numbers: list[int], most: int, *, trial: bool) -> list[int]:
        """Return the first *most* samples that give an output with elements, or raise: there is something to compare."""
        kept: list[int] = []
        for number in numbers:
            if len(kept) < most and (not trial or self._tells(f"sample_{number}")):
                kept.append(number)
        return sorted(kept or numbers[:1])

    def _tells(self, case: str) -> bool:
        try:
            self._trials.execute(case, "forward", "")
        except NothingToCompareError:
            return False
        except Exception:  # noqa: BLE001 - what goes wrong is for the row to say
            return True
        return True

    def _add(
        self, case: str, direction: str, provoked: str, enlargement: str = "", provokes: str = ""
    ) -> None:
        self._answer["rows"].append(
            {
                "case": case,
                "direction": direction,
                "dtype": self._dtype,
                "provoked": provoked,
                "enlargement": enlargement,
                "samples": self._total,
                "provokes": provokes,
                "traits": self._traits,
            }
        )

    def _differentiable(self, case: str, enlargement: str, *, trial: bool) -> bool:
        entry, options = self._entry, self._options
        if entry.in_place or not entry.differentiable(options["device"], self._dtype):
            return False
        if not trial:
            return True
        try:
            self._trials.execute(case, "backward", enlargement)
        except InvalidCaseError:
            return False
        except Exception:  # noqa: BLE001 - what goes wrong is for the row to say
            return True
        return True

    def _enlarge(self, number: int, sample: Sample, needs: str = "") -> None:
        """Add the rows of the enlarged sample, if the op accepts it and it provokes what is needed."""
        case = f"enlarged_{number}"
        best = self._trials.enlarged(case, sample, needs)
        if best is None:
            self._answer["refused"] += not needs
            return
        for direction in best.directions:
            self._add(case, direction, "enlarged", best.recipe, best.provokes)


def _unlike(samples: list[Sample], most: int) -> list[int]:
    """Return the numbers of up to *most* samples, always the least like those before it.

    The first is one with indices, if there are any, which can collide, and a large one.
    """
    described = [_features(sample) for sample in samples]
    elements = [sum(tensor.numel() for tensor in enlarge.tensors([s.args, dict(s.kwargs)])) for s in samples]
    off = [sum(text in _SWITCHED_OFF for _, text in features) for features in described]
    indexed = list(map(_has_indices, samples))
    best = max(
        range(len(samples)), key=lambda number: (indexed[number], elements[number], -off[number], -number)
    )
    chosen: list[int] = []
    seen = set()
    # How unlike each sample is to the chosen one that it is most like.
    unlike = dict.fromkeys(range(len(samples)), math.inf)
    while True:
        del unlike[best]
        digest = _digest(samples[best])
        if digest not in seen:
            seen.add(digest)
            chosen.append(best)
            unlike = {
                number: min(least, len(described[number] ^ described[best]))
                for number, least in unlike.items()
            }
        if not unlike or len(chosen) == most:
            return chosen
        best = max(unlike, key=lambda number: (min(elements[number], 2), unlike[number], -number))


def _has_indices(sample: Sample) -> bool:
    return enlarge.has_indices([sample.args[sample.fixed :], dict(sample.kwargs)])


def _digest(sample: Sample) -> tuple[str, frozenset[tuple[str, str]]]:
    """Return all in which two samples can differ."""
    parts = bits.parts([list(sample.args), dict(sample.kwargs)], "sample", skip_others=True)
    return bits.digest(parts), _features(sample)


def _features(sample: Sample) -> frozenset[tuple[str, str]]:
    """Describe a sample's structure, so that the number of unequal parts tells how unlike two samples are."""
    found: set[tuple[str, str]] = set()

    def walk(value: Any, name: str) -> None:
        if isinstance(value, torch.Tensor):
            sizes = tuple(min(size, 2) for size in value.shape)
            for text in (str(value.dtype), str(value.layout), f"{value.dim()}-D", f"sizes {sizes}"):
                found.add((name, text))
        elif isinstance(value, dict):
            for key, item in value.items():
                walk(item, f"{name}[{key!r}]")
        elif isinstance(value, (tuple, list)):
            found.add((name, f"{type(value).__name__} of {len(value)}"))
            for position, item in enumerate(value):
                walk(item, f"{name}[{position}]")
        elif isinstance(value, (bool, int, float, complex, str, torch.dtype, type(None))):
            found.add((name, repr(value)))
        else:
            found.add((name, type(value).__name__))

    walk(sample.args, "args")
    walk(dict(sample.kwargs), "kwargs")
    return frozenset(found)
