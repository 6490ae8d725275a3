"""How far bits moved between two runs, told from the samples of outputs that both hold: at least so far."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from scanner.observations.records import Mode, Observation
from scanner.plurals import several
from scanner.verdicts.findings import MatrixRow

# dtype -> the bits of infinity, of one of its components: below lie the finite numbers, in their order, as IEEE 754 and
# bfloat16 (the upper half of a float32) have it. The bit above is the sign.
_INFINITY = {
    "float16": 0x7C00,
    "complex32": 0x7C00,
    "bfloat16": 0x7F80,
    "float32": 0x7F800000,
    "complex64": 0x7F800000,
    "float64": 0x7FF0000000000000,
    "complex128": 0x7FF0000000000000,
}


class Moved(Struct, frozen=True, kw_only=True):
    """What the samples of a row in a mode tell; the numbers that were not sampled may have moved further."""

    sampled: int  # numbers
    moved: int  # of those have other bits
    at_least_ulp: (
        int | None
    )  # the farthest of them; None: no pair of finite floating-point numbers is among them

    @property
    def words(self) -> str:
        """Say it."""
        among = several(self.sampled, "sampled number")
        if self.at_least_ulp:
            return f"at least {self.at_least_ulp} ULP in {among}"
        return f"{self.moved} of {among} moved"


def moved(old: MatrixRow, new: MatrixRow, mode: Mode) -> Moved | None:
    """Return how far the bits of a row moved; ``None`` where the runs hold no samples of the same outputs of the same inputs."""
    before, after = (_sampled(one for one in row.observations if one.mode == mode) for row in (old, new))
    if before is None or after is None or before.inputs_digest != after.inputs_digest:
        return None
    known = {(one.name, one.shape, one.dtype): one.sample.split() for one in before.outputs}
    pairs = [
        (one.dtype, int(left, 16), int(right, 16))
        for one in after.outputs
        if len(sample := known.get((one.name, one.shape, one.dtype), [])) == len(one.sample.split())
        for left, right in zip(sample, one.sample.split(), strict=True)
    ]
    steps = [ulp for dtype, left, right in pairs if (ulp := _steps(dtype, left, right)) is not None]
    unequal = sum(left != right for _, left, right in pairs)
    return Moved(sampled=len(pairs), moved=unequal, at_least_ulp=max(steps, default=None)) if pairs else None


def _sampled(observations: Iterable[Observation]) -> Observation | None:
    """Return the observation that holds samples, of known inputs."""
    of = (one for one in observations if one.inputs_digest and any(it.sample for it in one.outputs))
    return next(of, None)


def _steps(dtype: str, left: int, right: int) -> int | None:
    """Return how many numbers a dtype has from one to the other; ``None`` of integers, infinities and NaN."""
    infinity = _INFINITY.get(dtype)
    if infinity is None:
        return None
    sign = 1 << infinity.bit_length()
    sizes = [bits & (sign - 1) for bits in (left, right)]
    if max(sizes) >= infinity or max(left, right) >= 2 * sign:
        return None
    one, other = (-size if bits & sign else size for bits, size in zip((left, right), sizes, strict=True))
    return abs(one - other)
