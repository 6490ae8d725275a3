"""Losses: sums over a whole batch, and paths through targets that repeat themselves.

Each reduction is a case of its own, and NLLLoss has one kernel for ``(N, C)`` and another for images.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from detmatrix.opspecs.families import KERNELS
from detmatrix.opspecs.inputs import Inputs
from detmatrix.opspecs.model import BACKWARD, BOTH, Call, Case, Direction, MissingError, OpSpec, Tensor, call

CLASSES = 8
ROW_LOSSES = "8192 losses summed (1048576 on CUDA)"
PIXEL_LOSSES = "8192 losses summed (2097152 on CUDA)"
LOSSES = "512 losses summed (16384 on CUDA)"
CLASS_GRADIENTS = "8 gradients summed over the classes of each sample"


def _samples(t: Inputs, *, spatial: bool) -> tuple[Tensor, Tensor]:
    """Scores ``(N, C)`` or ``(N, C, H, W)``, and the class of each sample or pixel."""
    if spatial:
        # A block of a GPU sums an image, and two sums always commute.
        batch, side = t.size(cpu=(2, 64), cuda=(8, 512), simulated=(64, 12))
        return t.normal(batch, CLASSES, side, side), t.index(batch, side, side, high=CLASSES)
    batch = t.size(cpu=1 << 13, cuda=1 << 20)
    return t.normal(batch, CLASSES), t.index(batch, high=CLASSES)


def _classify(
    t: Inputs,
    reduction: str,
    *,
    spatial: bool = False,
    weighted: bool = False,
    channels_last: bool = False,
    **options: float,
) -> Call:
    """Draw scores and classes; the scores' logarithms need not be those of probabilities."""
    scores, classes = _samples(t, spatial=spatial)
    scores = t.channels_last(scores) if channels_last else scores
    weight = t.uniform(CLASSES, low=0.5, high=1.5) if weighted else None
    return call(t.leaf(scores), classes, weight, reduction=reduction, **options)


def _soft_classes(t: Inputs) -> Call:
    scores, _ = _samples(t, spatial=False)
    return call(t.leaf(scores), t.probabilities(*scores.shape))


def _one_sample(t: Inputs) -> Call:
    """Draw one sample of many classes: a single loss, and nearly all of its gradient is zero."""
    classes = 1 << 17
    return call(t.leaf(t.normal(1, classes)), t.index(1, high=classes))


def _case(
    reduction: str,
    provokes: str = "",
    *,
    spatial: bool = False,
    directions: tuple[Direction, ...] | None = BOTH,
    inputs: Callable[[Inputs], Call] | None = None,
    **options: Any,
) -> Case:
    """Return a case that classifies rows or pixels, or of other inputs."""
    layout = "channels_last" if options.get("channels_last") else "contiguous"
    return Case(
        inputs or partial(_classify, reduction=reduction, spatial=spatial, **options),
        provokes,
        directions=directions,
        traits={"reduction": reduction, "dims": "spatial" if spatial else "rows", "memory_format": layout},
    )


def _classification_cases(*, spatial: bool) -> dict[str, Case]:
    """Return the cases NLLLoss has for rows and for images alike."""
    name, losses = ("spatial", PIXEL_LOSSES) if spatial else ("rows", ROW_LOSSES)
    case = partial(_case, spatial=spatial)
    cases = {
        f"{name}_mean": case("mean", losses),
        f"{name}_sum": case("sum", losses),
        # A loss for each sample: nothing is summed.
        f"{name}_none": case("none"),
        f"{name}_mean_weighted": case("mean", f"{losses}, and as many weights", weighted=True),
        f"{name}_mean_ignore_index": case("mean", losses, directions=None, ignore_index=0),
    }
    if spatial:  # Its backward refuses them: "grad_input must be contiguous".
        cases[f"{name}_mean_channels_last"] = case("mean", losses, directions=None, channels_last=True)
    return cases


def _linear_classify(t: Inputs, reduction: str, *, chunked: bool = False) -> Call:
    """Draw samples, weights of their classes, and the classes; the scores are their products, *chunked* of some samples at a time."""
    from torch import nn  # noqa: PLC0415 - specs load without it

    if chunked and not hasattr(nn, "LinearCrossEntropyOptions"):
        raise MissingError("this torch has no torch.nn.LinearCrossEntropyOptions")
    chunk = t.size(cpu=64, cuda=2048)
    options = {"options": nn.LinearCrossEntropyOptions(batch_chunk_size=chunk)} if chunked else {}
    samples, features, classes = t.size(cpu=(1 << 9, 96, 128), cuda=(1 << 14, 512, 1 << 12))
    drawn = t.leaf(t.normal(samples, features)), t.leaf(t.normal(classes, features))
    return call(*drawn, t.index(samples, high=classes), reduction=reduction, **options)


def _lengths(t: Inputs) -> tuple[int, int, int]:
    """Targets, labels in each of them, and steps; CUDA adds atomically if 2 steps + 2.4 targets + 0.2 classes exceed 450."""
    return t.size(cpu=(8, 32, 80), cuda=(8, 100, 226), simulated=(2, 48, 226))


def _ctc(t: Inputs, reduction: str = "mean", *, labels: int = 4, form: str = "", **options: bool) -> Call:
    """Align long targets, drawn from so many *labels* beside the blank.

    With one label a blank must stand between any two. The *form* ``"short"`` stays below that threshold on CUDA,
    ``"concatenated"`` gives the targets in one dim, and ``"cudnn"`` what cuDNN asks for: one dim of int32 on the CPU.
    """
    batch, length, steps = (8, 32, 80) if form == "short" else _lengths(t)
    # Logarithms of probabilities, as the formula of the gradient assumes.
    scores = t.leaf(t.log_probabilities(steps, batch, labels + 1))
    targets = t.index(batch, length, high=labels) + 1
    targets = targets.flatten() if form in {"concatenated", "cudnn"} else targets
    targets = targets.cpu().int() if form == "cudnn" else targets
    return call(scores, targets, (steps,) * batch, (length,) * batch, reduction=reduction, **options)


def _ctc_distinct(t: Inputs) -> Call:
    """Align a permutation of the labels: each position of the target has a label of its own."""
    batch, length, steps = _lengths(t)
    scores = t.leaf(t.log_probabilities(steps, batch, length + 1))
    targets = (t.permutation(length) + 1).expand(batch, length)
    return call(scores, targets, (steps,) * batch, (length,) * batch)


REPEATED = "32 positions of the target share one label's gradient (100 on CUDA)"
SHARED = Case(
    _ctc, "8 positions of the target share each label's gradient (25 on CUDA)", traits={"reduction": "mean"}
)
MEAN = {"reduction": "mean"}


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        name="torch.nn.NLLLoss",
        op="torch.nn.functional.nll_loss",
        why=f"On CUDA the losses of an image's pixels are summed with atomic additions ({KERNELS}/cuda/NLLLoss2d.cu), those "
        f"of rows by one block. On a CPU one thread sums the losses ({KERNELS}/LossNLL.cpp, {KERNELS}/LossNLL2d.cpp).",
        cases={
            **_classification_cases(spatial=False),
            **_classification_cases(spatial=True),
            # Forward it reads one number.
            "one_sample": _case("mean", directions=BACKWARD, inputs=_one_sample),
        },
        cuda_dtypes=("float16", "bfloat16"),
    ),
    OpSpec(
        name="torch.nn.CrossEntropyLoss",
        op="torch.nn.functional.cross_entropy",
        why="It is log_softmax and nll_loss, with the sums of both.",
        directions=("backward",),
        cases={
            "rows": _case("mean", ROW_LOSSES),
            "spatial": _case("mean", PIXEL_LOSSES, spatial=True),
            "spatial_sum": _case("sum", PIXEL_LOSSES, spatial=True),
            # A loss for each pixel: the sums are those over its classes.
            "spatial_none": _case("none", spatial=True),
            "label_smoothing": _case("mean", CLASS_GRADIENTS, directions=None, label_smoothing=0.1),
            "class_shares": _case("mean", CLASS_GRADIENTS, directions=None, inputs=_soft_classes),
        },
        cuda_dtypes=("float16", "bfloat16"),
    ),
    OpSpec(
        name="torch.nn.functional.linear_cross_entropy",
        why="It is linear and cross_entropy, with the sums of both; by chunks, the gradient of the weight is summed over those.",
        directions=BOTH,
        cases={
            "mean": Case(partial(_linear_classify, reduction="mean"), LOSSES, traits=MEAN),
            "none": Case(
                partial(_linear_classify, reduction="none"),
                "512 gradients added into each weight (16384 on CUDA)",
                traits={"reduction": "none"},
            ),
            "chunks": Case(
                partial(_linear_classify, reduction="mean", chunked=True),
                "512 losses summed, 8 chunks (16384 on CUDA)",
                traits=MEAN,
            ),
        },
        cuda_dtypes=("float16", "bfloat16"),
    ),
    OpSpec(
        name="torch.nn.CTCLoss",
        op="torch.nn.functional.ctc_loss",
        why="Positions of the target that hold one label add to its gradient, on CUDA with atomic additions "
        f"({KERNELS}/cuda/LossCTC.cu). cuDNN, which has kernels of its own, takes some targets.",
        directions=("backward",),
        cases={
            "one_label": replace(SHARED, inputs=partial(_ctc, labels=1), provokes=REPEATED, directions=BOTH),
            "four_labels": replace(SHARED, dtypes=("float32", "float64")),
            "four_labels_short": replace(
                SHARED,
                inputs=partial(_ctc, form="short"),
                provokes="8 positions of the target share each label's gradient",
                devices=("cuda",),
            ),
            **{
                f"four_labels_{reduction}": replace(
                    SHARED, inputs=partial(_ctc, reduction=reduction), traits={"reduction": reduction}
                )
                for reduction in ("sum", "none")
            },
            "four_labels_zero_infinity": replace(SHARED, inputs=partial(_ctc, zero_infinity=True)),
            "four_labels_concatenated": replace(SHARED, inputs=partial(_ctc, form="concatenated")),
            "four_labels_cudnn": replace(SHARED, inputs=partial(_ctc, form="cudnn")),
            "each_label_once": Case(_ctc_distinct, traits=MEAN),
        },
    ),
)
