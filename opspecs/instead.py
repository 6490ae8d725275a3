"""What may be written instead of an op: functions that take its arguments and return what it returns.

``detmatrix.opspecs.spellings`` says of which ops and cases, and names each function by its dotted path, so that a worker alone
imports it, with torch. A docstring, which says what the function is for, is shown to users, and so is the code below it. What a
function does not do of what its op does, it refuses: it never gives other values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


def _reduced(
    into: torch.Tensor, slots: torch.Tensor, source: torch.Tensor, reduce: str = "sum"
) -> torch.Tensor:
    slots = torch.cat([torch.arange(len(into), device=slots.device), slots])
    values = torch.cat([into, source])[slots.argsort(stable=True)]
    return torch.segment_reduce(values, reduce, lengths=torch.bincount(slots)).view_as(into)


def _last(into: torch.Tensor, slots: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    slots, order = slots.sort(stable=True)
    last = slots.diff(append=slots.new_tensor([-1])) != 0
    return into.index_copy(0, slots[last], source[order[last]])


def _slots(into: torch.Tensor, dim: int, index: torch.Tensor) -> torch.Tensor:
    places = torch.arange(into.numel(), device=into.device).view_as(into)
    return places.gather(dim, index).flatten()


def segments_along_dim(
    into: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    source: torch.Tensor,
    reduce: str = "sum",
    *,
    alpha: float = 1,
    include_self: bool = True,
) -> torch.Tensor:
    """Sort what is there and what is added by slot; reduce each segment in order. For floating point, with what is there."""
    assert include_self
    source = (source * alpha).movedim(dim, 0)
    moved = _reduced(into.movedim(dim, 0), index, source, reduce.removeprefix("a"))
    return moved.movedim(0, dim)


def accumulate_along_dim(
    into: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, *, alpha: float = 1
) -> torch.Tensor:
    """Let index_put add, which CUDA does in order of the sorted indices."""
    return into.index_put((slice(None),) * (dim % into.dim()) + (index,), source * alpha, accumulate=True)


def segments_of_elements(
    into: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    source: torch.Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> torch.Tensor:
    """Sort what is there and what is added by slot; reduce each segment in order. For floating point, with what is there."""
    assert include_self
    source = source[tuple(map(slice, index.shape))]
    reduce = {"add": "sum", "multiply": "prod"}.get(reduce, reduce.removeprefix("a"))
    slots = _slots(into, dim, index)
    return _reduced(into.flatten(), slots, source.flatten(), reduce).view_as(into)


def sums_of_elements(into: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """Sort what is there and what is added by slot; add up each segment in order. For floating point."""
    return segments_of_elements(into, dim, index, source, "sum")


def segments_of_places(
    into: torch.Tensor, index: Any, source: torch.Tensor, *, accumulate: bool
) -> torch.Tensor:
    """Sort what is there and what is added by place; add up each segment in order. For floating point and one index of one dim."""
    (index,) = index if isinstance(index, tuple) else (index,)
    assert accumulate
    assert index.dtype == torch.long
    return _reduced(into, index, source)


def accumulate_at_places(
    into: torch.Tensor, index: torch.Tensor, source: torch.Tensor, *, accumulate: bool
) -> torch.Tensor:
    """Let index_put add, which CUDA does in order of the sorted indices."""
    assert accumulate
    return into.flatten().index_put((index,), source, accumulate=True).view_as(into)


def last_along_dim(into: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """Sort by slot, and write only the last source of each, which alone gets a gradient."""
    return _last(into.movedim(dim, 0), index, source.movedim(dim, 0)).movedim(0, dim)


def last_of_elements(into: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """Sort by slot, and write only the last source of each, which alone gets a gradient. For a source that is a tensor."""
    source = source[tuple(map(slice, index.shape))]
    return _last(into.flatten(), _slots(into, dim, index), source.flatten()).view_as(into)


def last_at_places(
    into: torch.Tensor, index: Any, source: torch.Tensor, *, accumulate: bool = False
) -> torch.Tensor:
    """Sort by place, and write only the last source of each, which alone gets a gradient. For one index of one dim."""
    (index,) = index if isinstance(index, tuple) else (index,)
    assert not accumulate
    assert index.dtype == torch.long
    return _last(into, index, source)


def gather_by_indexing(
    x: torch.Tensor, dim: int, index: torch.Tensor, *, sparse_grad: bool = False
) -> torch.Tensor:
    """Index with tensors: backward is index_put, which CUDA adds in order of the sorted indices. Its gradient is dense."""
    assert not sparse_grad
    places = list(
        torch.meshgrid(*(torch.arange(size, device=x.device) for size in index.shape), indexing="ij")
    )
    places[dim] = index
    return x[tuple(places)]


def take_along_dim_by_indexing(x: torch.Tensor, index: torch.Tensor, dim: int) -> torch.Tensor:
    """Index with tensors: backward is index_put, which CUDA adds in order of the sorted indices."""
    sides = list(x.shape)
    sides[dim] = -1
    return gather_by_indexing(x, dim, index.expand(sides))


def select_by_indexing(x: torch.Tensor, dim: int, index: torch.Tensor) -> torch.Tensor:
    """Index with tensors: backward is index_put, which CUDA adds in order of the sorted indices."""
    return x[(slice(None),) * (dim % x.dim()) + (index.view(-1),)]


def repeat_by_indexing(x: torch.Tensor, repeats: torch.Tensor, dim: int | None = None) -> torch.Tensor:
    """Index with tensors: backward is index_put, which CUDA adds in order of the sorted indices."""
    x, dim = (x.flatten(), 0) if dim is None else (x, dim)
    return select_by_indexing(x, dim, torch.repeat_interleave(repeats.expand(x.shape[dim])))


def take_by_indexing(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Index with tensors: backward is index_put, which CUDA adds in order of the sorted indices."""
    return x.flatten()[index]


def embedding_by_indexing(index: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """Index with tensors: backward is index_put, which CUDA adds in order of the sorted indices. No padding, no norm."""
    return table[index]


def maxima_of_bags(index: torch.Tensor, table: torch.Tensor, mode: str) -> torch.Tensor:
    """Look the rows of each bag up, and take their maxima. For bags of one size, no weights, no NaN."""
    rows = table[index]
    assert mode == "max"
    assert not rows.isnan().any()
    return rows.max(1).values


def windows_by_unfolding(image: torch.Tensor, size: int, stride: int, padding: int = 0) -> torch.Tensor:
    """Unfold one dim after the other, and average its windows. For cubes, padding included."""
    image = torch.nn.functional.pad(image, (padding,) * 6)
    for dim in (-3, -2, -1):
        image = image.unfold(dim, size, stride).mean(-1)
    return image


def maxima_by_unfolding(image: torch.Tensor, size: int, stride: int) -> torch.Tensor:
    """Unfold one dim after the other, and take the maxima of its windows. For cubes without padding."""
    for dim in (-3, -2, -1):
        image = image.unfold(dim, size, stride).max(-1).values
    return image


def _windows(length: int, size: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    outputs = torch.arange(size, device=device)
    first, behind = outputs * length // size, -(-(outputs + 1) * length // size)
    at = first[:, None] + torch.arange(int((behind - first).max()), device=device)
    return at.clamp(max=length - 1), at < behind[:, None]


def _maxima(image: torch.Tensor, size: int, dims: int) -> torch.Tensor:
    assert image.dim() in {dims + 1, dims + 2}
    for dim in range(-dims, 0):
        at, inside = _windows(image.shape[dim], size, image.device)
        values = image.movedim(dim, -1)[..., at].masked_fill(~inside, -torch.inf)
        image = values.max(-1).values.movedim(-1, dim)
    return image


def maxima_by_indexing_1d(image: torch.Tensor, size: int) -> torch.Tensor:
    """Index the windows, and take their maxima."""
    return _maxima(image, size, 1)


def maxima_by_indexing_2d(image: torch.Tensor, size: int) -> torch.Tensor:
    """Index the windows of one dim after the other, and take their maxima. For one size for all dims."""
    return _maxima(image, size, 2)


def maxima_by_indexing_3d(image: torch.Tensor, size: int) -> torch.Tensor:
    """Index the windows of one dim after the other, and take their maxima. For one size for all dims."""
    return _maxima(image, size, 3)


def _means(image: torch.Tensor, size: int, dims: int) -> torch.Tensor:
    assert image.dim() in {dims + 1, dims + 2}
    for dim in range(-dims, 0):
        at, inside = _windows(image.shape[dim], size, image.device)
        values = image.movedim(dim, -1)[..., at].masked_fill(~inside, 0)
        image = (values.sum(-1) / inside.sum(1)).movedim(-1, dim)
    return image


def means_by_indexing_1d(image: torch.Tensor, size: int) -> torch.Tensor:
    """Index the windows, and take their means."""
    return _means(image, size, 1)


def means_by_indexing_2d(image: torch.Tensor, size: int) -> torch.Tensor:
    """Index the windows of one dim after the other, and take their means. For one size for all dims."""
    return _means(image, size, 2)


def means_by_indexing_3d(image: torch.Tensor, size: int) -> torch.Tensor:
    """Index the windows of one dim after the other, and take their means. For one size for all dims."""
    return _means(image, size, 3)


def resized_by_weights(image: torch.Tensor, scale_factor: float, mode: str, **options: bool) -> torch.Tensor:
    """Ask the op on the CPU for its weights along each dim, with unit vectors, and add the weighted elements. For one factor for all dims, float32 or float64, no NaN."""
    assert image.is_floating_point()
    assert image.isfinite().all()
    for dim in range(2, image.dim()):
        length, others = image.shape[dim], (1,) * (image.dim() - 3)
        unit = torch.eye(length, dtype=image.dtype).view(1, length, *others, length)
        scales = (*others, scale_factor)
        resized = torch.nn.functional.interpolate(unit, scale_factor=scales, mode=mode, **options)
        weights = resized.view(length, -1).T.to(image)
        used = weights != 0
        taps = int(used.sum(1).max())
        first = used.int().argmax(1).clamp(max=length - taps)
        at = first[:, None] + torch.arange(taps, device=image.device)
        image = (image.movedim(dim, -1)[..., at] * weights.gather(1, at)).sum(-1).movedim(-1, dim)
    return image


def sampled_by_indexing(
    image: torch.Tensor,
    grid: torch.Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> torch.Tensor:
    """Index the four pixels around each point, and add them with their shares. Bilinear, with zeros around, corners not aligned."""
    assert (mode, padding_mode, bool(align_corners)) == ("bilinear", "zeros", False)
    (count, _, height, width), result = image.shape, torch.zeros((), device=image.device)
    batch = torch.arange(count, device=image.device).view(count, 1, 1)
    x, y = ((grid[..., 0] + 1) * width - 1) / 2, ((grid[..., 1] + 1) * height - 1) / 2
    for column, row in ((x.floor() + right, y.floor() + down) for down in (0, 1) for right in (0, 1)):
        inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
        share = (1 - (x - column).abs()) * (1 - (y - row).abs())
        at = row.clamp(0, height - 1).long(), column.clamp(0, width - 1).long()
        result = result + (image[batch, :, at[0], at[1]] * share[..., None]).where(inside[..., None], 0)
    return result.movedim(-1, 1)


def _last_of_planes(values: torch.Tensor, indices: torch.Tensor, kernel: int, dims: int) -> torch.Tensor:
    assert values.dim() in {dims + 1, dims + 2}
    sides = [side * kernel for side in values.shape[-dims:]]
    flat = values.new_zeros(*values.shape[:-dims], *sides).flatten(-dims)
    return last_of_elements(flat, -1, indices.flatten(-dims), values.flatten(-dims)).unflatten(-1, sides)


def last_of_each_plane_1d(values: torch.Tensor, indices: torch.Tensor, kernel: int) -> torch.Tensor:
    """Sort by place, and write only the last value of each, which alone gets a gradient. For no padding."""
    return _last_of_planes(values, indices, kernel, 1)


def last_of_each_plane_2d(values: torch.Tensor, indices: torch.Tensor, kernel: int) -> torch.Tensor:
    """Sort by place, and write only the last value of each, which alone gets a gradient. For one kernel for all dims, no padding."""
    return _last_of_planes(values, indices, kernel, 2)


def last_of_each_plane_3d(values: torch.Tensor, indices: torch.Tensor, kernel: int) -> torch.Tensor:
    """Sort by place, and write only the last value of each, which alone gets a gradient. For one kernel for all dims, no padding."""
    return _last_of_planes(values, indices, kernel, 3)


def reflected_by_cat(image: torch.Tensor, pads: Sequence[int], mode: str) -> torch.Tensor:
    """Put flipped slices beside the image, one dim after the other. For a batch."""
    assert mode == "reflect"
    for dim, left, right in zip(range(image.dim() - 1, 1, -1), pads[::2], pads[1::2], strict=True):
        before = image.narrow(dim, 1, left).flip(dim)
        behind = image.narrow(dim, image.shape[dim] - 1 - right, right).flip(dim)
        image = torch.cat([before, image, behind], dim)
    return image


def replicated_by_cat(image: torch.Tensor, pads: Sequence[int], mode: str) -> torch.Tensor:
    """Put repeated slices beside the image, one dim after the other. For a batch."""
    assert mode == "replicate"
    for dim, left, right in zip(range(image.dim() - 1, 1, -1), pads[::2], pads[1::2], strict=True):
        before = image.narrow(dim, 0, 1).repeat_interleave(left, dim)
        behind = image.narrow(dim, image.shape[dim] - 1, 1).repeat_interleave(right, dim)
        image = torch.cat([before, image, behind], dim)
    return image


def picked_losses(
    scores: torch.Tensor,
    classes: torch.Tensor,
    weight: torch.Tensor | None = None,
    *,
    reduction: str = "mean",
) -> torch.Tensor:
    """Gather the scores of the classes, and average or add them. For a batch, no class ignored."""
    losses = -scores.gather(1, classes[:, None])[:, 0]
    shares = torch.ones_like(losses) if weight is None else weight[classes]
    losses = losses * shares
    assert reduction in {"none", "sum", "mean"}
    if reduction == "none":
        return losses
    return losses.sum() / shares.sum() if reduction == "mean" else losses.sum()


def picked_entropies(
    scores: torch.Tensor,
    classes: torch.Tensor,
    weight: torch.Tensor | None = None,
    *,
    reduction: str = "mean",
) -> torch.Tensor:
    """Gather the logarithms of the classes' probabilities, and average or add them. For a batch of classes, none ignored, no smoothing."""
    return picked_losses(scores.log_softmax(1), classes, weight, reduction=reduction)


def cumsum_of_two_rows(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Scan two equal rows: CUDA scans rows in order, and a tensor of one dim in blocks."""
    return x.expand(2, *x.shape).cumsum(dim % x.dim() + 1)[0]


def cumprod_of_two_rows(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Scan two equal rows: CUDA scans rows in order, and a tensor of one dim in blocks."""
    return x.expand(2, *x.shape).cumprod(dim % x.dim() + 1)[0]


def logcumsumexp_of_two_rows(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Scan two equal rows: CUDA scans rows in order, and a tensor of one dim in blocks."""
    return x.expand(2, *x.shape).logcumsumexp(dim % x.dim() + 1)[0]


def counted_bins(x: torch.Tensor, bins: int, low: float, high: float) -> torch.Tensor:
    """Compute each value's bin, and count integers. For a given range; a value at an edge may count in the next bin."""
    assert low < high
    x = x[(x >= low) & (x <= high)]
    at = ((x - low) * bins / x.new_tensor(high - low)).long().clamp(max=bins - 1)
    return torch.bincount(at, minlength=bins).to(x.dtype)


def weights_of_segments(index: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Sort the weights by bin; add up each segment in order. For float32 and float64 weights, no least length."""
    return _reduced(weights.new_zeros(int(index.max()) + 1), index, weights)


def _picked(x: torch.Tensor, dim: int, place: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    values, indices = x.sort(dim=dim, stable=True)
    return values.gather(dim, place).squeeze(dim), indices.gather(dim, place).squeeze(dim)


def middle_of_sorted(x: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Sort stably, and take what is in the middle, or the first NaN. For one dim; of equals the index may be another."""
    numbers = (~x.isnan()).sum(dim, keepdim=True)
    return _picked(x, dim, torch.where(numbers < x.shape[dim], numbers, (numbers - 1) // 2))


def middle_of_numbers(x: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Sort stably, and take what is in the middle of the numbers. For one dim; of equals the index may be another."""
    numbers = (~x.isnan()).sum(dim, keepdim=True)
    return _picked(x, dim, (numbers - 1).clamp(min=0) // 2)
