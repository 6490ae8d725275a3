"""Which engines PyTorch tries, in which order, where ``torch.backends.cudnn.benchmark`` is off.

``aten/src/ATen/native/cudnn/Conv_v8.cpp``: ``get_configs_from_heuristics`` asks for the heuristics,
``filterEngineConfigs`` leaves engines out, and ``try_configs`` takes the first that can be built and run. It asks for mode
INSTANT, which lists what mode A lists (1008 convolutions compared, in cuDNN 9.20 and 9.28).
"""

from __future__ import annotations

from scanner.cudnn.record import Engine, EngineCell

TF32 = "float32 with TF32"


def ways(cell: EngineCell) -> dict[str, tuple[Engine, ...]]:
    """Return the engines in the order in which PyTorch tries them, by what it is told of the dtype.

    Engines that convert their inputs down are always left out, and in float32 without
    ``torch.backends.cudnn.allow_tf32`` those on tensor cores too.
    """
    known = {engine.number: engine for engine in cell.engines}
    listed = [known[one] for one in cell.order if one in known]
    kept = tuple(one for one in listed if "DOWN_CONVERT_INPUTS" not in one.notes)
    if cell.dtype != "float32":
        return {cell.dtype: kept}
    return {TF32: kept, "float32": tuple(one for one in kept if "TENSOR_CORE" not in one.notes)}


def first_place(engines: tuple[Engine, ...]) -> int | None:
    """Return the place, from 1, of the first nondeterministic engine; ``None``: there is none."""
    return next((place for place, one in enumerate(engines, 1) if one.nondeterministic), None)
