"""``module_db`` and ``optim_db``, the databases of modules and optimizers of PyTorch's own tests: import them in a worker only."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Any

from detmatrix.opspecs.pytorch.database import Entry, Sample, names_of

_WHY = "An entry of PyTorch's database of modules; nobody has said what in its kernels could reorder."
_OF_OPTIMIZERS = "An entry of PyTorch's database of optimizers: two steps, all parameters in a few kernels."
# Parameters of an optimizer.
_SHAPES = ((7, 5), (16,), (3, 4, 2))


def run(module: Any, state: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
    """Call a module with these parameters and buffers in place of its own; neither are changed by it."""
    import torch  # noqa: PLC0415

    buffers = {name for name, _ in module.named_buffers()}
    fresh = {name: tensor.clone() if name in buffers else tensor for name, tensor in state.items()}
    return torch.func.functional_call(module, fresh, args, kwargs)


def steps(optimizer: Any, parameters: list[Any], gradients: list[Any], **options: Any) -> list[Any]:
    """Return copies of parameters after two steps of an optimizer."""
    parameters = [one.detach().clone() for one in parameters]
    made = optimizer(parameters, **options)
    for _ in range(2):
        for one, gradient in zip(parameters, gradients, strict=True):
            one.grad = gradient.clone()
        made.step()
    return parameters


def _entries() -> Iterator[Entry]:
    from torch.testing._internal.common_modules import module_db  # noqa: PLC0415 - takes seconds

    for info in module_db:
        yield Entry(
            name=f"module:{info.name}",
            path=f"torch.{info.name}",
            op=run,
            dtypes=partial(names_of, info.supported_dtypes),
            differentiable=lambda _, dtype: dtype.startswith(("float", "bfloat", "complex")),
            samples=partial(_samples, info),
            why=_WHY,
        )
    yield from _optimizers()


def _optimizers() -> Iterator[Entry]:
    """Yield the implementations that take all parameters together; a release before 2.2 has no such database."""
    try:
        from torch.testing._internal.common_optimizers import optim_db  # noqa: PLC0415
    except ImportError:
        return
    for info in optim_db:
        fused_on = getattr(info, "supports_fused_on", ())
        for kind in ("foreach", "fused"):
            if kind in getattr(info, "supported_impls", ()):
                yield Entry(
                    name=f"module:optim.{info.optim_cls.__name__}.{kind}",
                    path=f"torch.optim.{info.optim_cls.__name__}",
                    op=steps,
                    dtypes=partial(_of_optimizer, None if kind == "foreach" else fused_on),
                    differentiable=lambda *_: False,
                    samples=partial(_drawn_steps, info, kind),
                    why=_OF_OPTIMIZERS,
                )


def _of_optimizer(devices: Collection[str] | None, device: str) -> list[str]:
    return ["float32", "float64"] if devices is None or device.partition(":")[0] in devices else []


def _drawn_steps(info: Any, kind: str, device: str, dtype: str, _: bool) -> Iterator[Sample]:
    import torch  # noqa: PLC0415

    for drawn in info.optim_inputs_func(device=device):
        if not any(isinstance(value, torch.Tensor) for value in drawn.kwargs.values()):
            parameters, gradients = (
                [torch.randn(shape, dtype=getattr(torch, dtype), device=device) for shape in _SHAPES]
                for _ in range(2)
            )
            yield Sample((info.optim_cls, parameters, gradients), {**drawn.kwargs, kind: True}, fixed=1)


def _samples(info: Any, device: str, dtype: str, grad: bool) -> Iterator[Sample]:
    import torch  # noqa: PLC0415

    kind = getattr(torch, dtype)
    for drawn in info.module_inputs_func(info, device=device, dtype=kind, requires_grad=grad, training=True):
        made, given = drawn.constructor_input, drawn.forward_input
        module = info.module_cls(*made.args, **made.kwargs).to(device).to(kind).train()
        if info.is_lazy:
            # A lazy module learns the shapes of its parameters from what it is called with first.
            with torch.no_grad():
                module(*given.args, **given.kwargs)
        state = {
            **{name: value.detach().requires_grad_(grad) for name, value in module.named_parameters()},
            **{name: value.detach() for name, value in module.named_buffers()},
        }
        yield Sample((module, state, *given.args), dict(given.kwargs), fixed=2)


ENTRIES = {entry.name: entry for entry in _entries()}
