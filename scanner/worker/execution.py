"""One case made ready to run: the op, its arguments, and how to call it once.

Everything an execution needs is made here, outside the loop that repeats it: a bare execution is the call
itself, its backward, and nothing of ours.
"""

from __future__ import annotations

import copy
import importlib
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch

from detmatrix.opspecs.draws import KeptDraws
from detmatrix.opspecs.inputs import Inputs, SimulatedInputs
from detmatrix.opspecs.model import Call, MissingError, OpSpec
from detmatrix.opspecs.pytorch.enlarge import mapped
from detmatrix.opspecs.user import place_of
from detmatrix.scanner.alerts import alert_caller
from detmatrix.scanner.modes import ExecutionKind
from detmatrix.scanner.worker import accelerator, bits, global_state, simulated
from detmatrix.scanner.worker.held import held, may_change

# Calls one phase of an execution.
Around = Callable[[Callable[[], Any]], Any]

# What this process drew last.
DRAWS = KeptDraws()


class NotRunnableError(Exception):
    """This build of torch lacks the op or the dtype."""


class InvalidCaseError(Exception):
    """The case proves nothing: no inputs, no outputs, nothing to differentiate."""


def called(phase: Callable[[], Any]) -> Any:
    """Call a phase, and do nothing else."""
    return phase()


def _inputs() -> type[Inputs]:
    """Return what draws for the device of this process."""
    return SimulatedInputs if simulated.draws() else Inputs


def on_host(value: Any) -> Any:
    """Return what an op was given or returned; of a simulated GPU its copy on the CPU, where no kernel of ours is compared."""
    return mapped(value, lambda tensor: tensor.detach().cpu()) if simulated.active() else value


class Execution:
    """A case on one device, in one direction and dtype, ready to be called again and again."""

    def __init__(
        self,
        spec: OpSpec,
        case: str,
        *,
        direction: str,
        dtype: str,
        device: str,
        seed: int,
        kept: KeptDraws | None = None,
        drawn: type[Inputs] | None = None,
    ) -> None:
        """Draw the inputs, with numbers of *kept* draws, and by *drawn* in place of what draws for the device.

        What the scanned torch lacks is not run; a case whose inputs cannot be drawn, or backward without a leaf, is invalid.
        """
        self.op = resolve(spec.op)
        if not hasattr(torch, dtype):
            raise NotRunnableError(f"torch {torch.__version__} has no dtype {dtype}")
        self.in_place = spec.in_place
        self.constant = spec.cases[case].constant
        self.reference = spec.cases[case].reference
        self.reference_always = spec.cases[case].holds_always
        self._some_leaves = spec.some_leaves
        self._instead_of = spec.instead_of
        self.device = device
        self.backward = direction == "backward"
        # The direction is left out of the key: forward and backward see the same inputs.
        key = f"{seed}|{spec.name}|{case}|{dtype}"
        try:
            inputs = (drawn or _inputs())(key, dtype=dtype, device=device, direction=direction, kept=kept)
            self.call: Call = spec.cases[case].inputs(inputs)
        except MissingError:
            raise
        except BaseException as error:
            # An alert raised while drawing inputs would say nothing of the op.
            text = f"{first_line(error)}{place_of(error, spec.file)}"
            raise InvalidCaseError(f"its inputs could not be drawn ({text})") from error
        if not isinstance(self.call, Call):
            raise InvalidCaseError("its inputs are no call(...)")
        self.smaller = inputs.smaller
        self.leaves = inputs.leaves
        self.leaf_names = self._name_leaves()
        if self.backward and not self.leaves:
            raise InvalidCaseError("no input takes part in backward")
        # For the upstream gradients, drawn when the first forward call shows their shapes.
        self._upstream = inputs.gradients(
            f"{key}|upstream",
            dtype=dtype,
            # Without pools, as its inputs are.
            device="cpu" if simulated.draws() else device,
            direction=direction,
            pools=None if kept is None else kept.pools,
        )
        self._grad_outputs: list[torch.Tensor] | None = None
        self._seed = seed
        self._of_user = bool(spec.file)
        # By the last execution, each with its version, and whether the one before it had returned the same.
        self._returned: list[tuple[weakref.ref[torch.Tensor], int | None]] = []
        self.kept = False
        leaves = (leaf for _, leaf in bits.leaves(self._given()))
        self._drawn_from = [(leaf, leaf.get_state()) for leaf in leaves if isinstance(leaf, torch.Generator)]

    @cached_property
    def _generators(self) -> list[torch.Generator]:
        """The random generators an op may draw from; made when they are asked for, since a trace has no GPU."""
        return accelerator.generators(self.device)

    def inputs(self) -> list[bits.Part]:
        """Return the tensors and numbers among the arguments, named ``args[0]``, ``kwargs['weight']``."""
        return [
            *bits.parts(on_host(self.call.args), "args", skip_others=True),
            *bits.parts(on_host(dict(self.call.kwargs)), "kwargs", skip_others=True),
        ]

    def held(self) -> list[bits.Part]:
        """Return the tensors that other arguments of a user's hold; those of the catalog are tensors and numbers."""
        return held(self._given(), "given") if self._of_user else []

    def may_change_given(self) -> list[Any]:
        """Return the arguments of a user's that executions may have changed unseen."""
        return may_change(self._given()) if self._of_user else []

    def _given(self) -> tuple[Any, ...]:
        return self.call.args, dict(self.call.kwargs)

    def said(self) -> list[str]:
        """Return the other arguments in words, where they are drawn; those of our hand-written specs stand in the spec."""
        if not (self._some_leaves or self._of_user):
            return []
        return [*bits.said(self.call.args, "args"), *bits.said(dict(self.call.kwargs), "kwargs")]

    def words(self) -> list[str]:
        """Return what a user's other arguments are in words, but of modules: a lazy one shows other settings once it was called."""
        return bits.said(self._given(), "given", (torch.nn.Module,), depth=0) if self._of_user else []

    def _name_leaves(self) -> list[str]:
        """Name each leaf by the argument it is, ``leaf 0`` if it stands behind another tensor."""
        named = [(f"args[{i}]", value) for i, value in enumerate(self.call.args)]
        named += [(f"kwargs[{key!r}]", value) for key, value in self.call.kwargs.items()]
        if self._some_leaves:
            # Digests hold these names; those of the hand-written specs stay what they were.
            named = self.named_arguments()
        return [
            next((name for name, value in named if value is leaf), f"leaf {number}")
            for number, leaf in enumerate(self.leaves)
        ]

    def named_arguments(self) -> list[tuple[str, torch.Tensor]]:
        """Return the tensors among the arguments as they are, each with the name a reader finds it by."""
        named = [*bits.leaves(self.call.args, "args"), *bits.leaves(dict(self.call.kwargs), "kwargs")]
        return [(name, value) for name, value in named if isinstance(value, torch.Tensor)]

    def changed(
        self,
        tensors: Mapping[int, torch.Tensor],
        *,
        leaves: Sequence[torch.Tensor] | None = None,
        upstream: list[torch.Tensor] | None = None,
    ) -> Execution:
        """Return this execution with other *tensors* in place of those of these identities; leaves are replaced by leaves.

        *leaves* are those whose gradients are wanted, *upstream* the gradients of the outputs where those drawn do not fit.
        """
        wanted = self.leaves if leaves is None else leaves
        known = {id(leaf) for leaf in self.leaves}
        new = {key: one.requires_grad_() if key in known else one for key, one in tensors.items()}
        other = copy.copy(self)
        given = (self.call.args, dict(self.call.kwargs))
        other.call = Call(*mapped(given, lambda tensor: new.get(id(tensor), tensor)))
        other.leaves = [new.get(id(leaf), leaf) for leaf in wanted]
        names = dict(zip(map(id, self.leaves), self.leaf_names, strict=True))
        other.leaf_names = [names[id(leaf)] for leaf in wanted]
        if upstream is not None:
            other._grad_outputs = upstream  # noqa: SLF001 - its own
        return other

    def of_op(self) -> Execution | None:
        """Return this execution made by the op that it is another spelling of; ``None`` if it is of an op itself."""
        if self._instead_of is None:
            return None
        other = copy.copy(self)
        other.op, other.in_place = resolve(self._instead_of.op), self._instead_of.in_place
        return other

    def reseed(self) -> None:
        """Put the random generators back to the seed, and those that it is given to their state; an op draws equally each time."""
        for generator in self._generators:
            generator.manual_seed(self._seed)
        for generator, kept in self._drawn_from:
            generator.set_state(kept)

    def random_state(self) -> list[torch.Tensor]:
        """Return the state of the generators that ``reseed`` resets."""
        given = (generator for generator, _ in self._drawn_from)
        return [generator.get_state() for generator in (*self._generators, *given)]

    def arguments(self) -> tuple[Any, ...]:
        """Return the positional arguments of one execution: the first is a copy if the op writes into it."""
        args = self.call.args
        return (mapped(args[0], torch.Tensor.clone), *args[1:]) if self.in_place else args

    def __call__(
        self, args: tuple[Any, ...] | None = None, around: Around = called
    ) -> tuple[Any, tuple[torch.Tensor, ...]]:
        """Execute once; return what the op returned, and the gradients of the leaves (none in the forward direction).

        *around* calls the phase that is judged, of a backward execution the backward phase alone, and returns what that returns.
        """
        args = self.arguments() if args is None else args
        if not self.backward:
            output = around(lambda: self.forward(args))
            if self._of_user:
                self._check_computed(output)
            return output, ()
        output = self.forward(args)
        differentiable, grad_outputs = self.upstream(output)
        gradients = around(lambda: self.differentiate(differentiable, grad_outputs))
        self.check_gradients(gradients)
        return output, gradients

    def _check_computed(self, output: Any) -> None:
        """Note whether all that is returned, but arguments, was returned before, and nobody is known to have written into it."""
        given = {id(one) for _, one in self.named_arguments()}
        returned = [one for _, one in bits.leaves(output) if one is not None and id(one) not in given]
        tensors = [one for one in returned if isinstance(one, torch.Tensor)]
        now: list[tuple[int, int | None]] = [
            (id(one), None if one.is_inference() else one._version)  # noqa: SLF001
            for one in tensors
        ]
        last = [(id(ref()), version) for ref, version in self._returned]
        self.kept = bool(tensors) and len(tensors) == len(returned) and now == last
        self._returned = [(weakref.ref(one), version) for one, (_, version) in zip(tensors, now, strict=True)]

    def is_given(self, value: Any) -> bool:
        """Tell whether an object is an argument itself, and no setting that cannot be assigned to."""
        frozen = getattr(getattr(type(value), "__dataclass_params__", None), "frozen", False)
        return not frozen and any(value is leaf for _, leaf in bits.leaves(self._given()))

    @property
    def deterministic(self) -> bool:
        """Whether the flag is on in the phase that is judged."""
        return bool(torch.are_deterministic_algorithms_enabled())

    def forward(self, args: tuple[Any, ...]) -> Any:
        """Call the op with *args* and the keyword arguments of the case, and return what it returned."""
        # A function of the user's may differentiate, or do without gradients what it does otherwise with them.
        with torch.set_grad_enabled(self.backward or self._of_user):
            return self.op(*args, **self.call.kwargs)

    def differentiate(
        self, outputs: Sequence[torch.Tensor], upstream: Sequence[torch.Tensor]
    ) -> tuple[torch.Tensor, ...]:
        """Return the gradients of the leaves."""
        gradients: tuple[torch.Tensor, ...] = torch.autograd.grad(
            outputs, self.leaves, grad_outputs=upstream, allow_unused=True
        )
        return gradients

    def upstream(self, output: Any) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Return the outputs to differentiate, of which there must be one, and the gradient of each, drawn once."""
        differentiable = [tensor for tensor in tensors_in(output) if tensor.requires_grad]
        if self._grad_outputs is None:
            if not differentiable:
                raise InvalidCaseError(
                    "the output does not depend on any leaf, so there is nothing to differentiate"
                )
            self._grad_outputs = [self._upstream_gradient(tensor) for tensor in differentiable]
            self._unchanged = bits.unchanged(self._gradients())
        return differentiable, self._grad_outputs

    def eagerly(self) -> Execution:
        """Return what executes the case without compiling it."""
        return self

    def facts(self) -> dict[str, Any]:
        """Return what else is known of how executions were made, as fields of an observation."""
        return {}

    def gradients_given(self) -> list[torch.Tensor]:
        """Return the gradients of the outputs that were drawn; none in the forward direction."""
        return self._grad_outputs or []

    def changed_gradients_given(self) -> bool:
        """Tell whether the op has written into the gradients of its outputs, which later executions are given too."""
        return self._grad_outputs is not None and not self._unchanged(self._gradients())

    def _gradients(self) -> list[bits.Part]:
        return bits.parts(on_host(self._grad_outputs), "gradient")

    def check_gradients(self, gradients: Sequence[torch.Tensor | None]) -> None:
        """Refuse gradients of which one is missing."""
        if self._some_leaves and any(gradient is not None for gradient in gradients):
            return
        for name, gradient in zip(self.leaf_names, gradients, strict=True):
            if gradient is None:
                raise InvalidCaseError(f"the gradient of {name} is None")

    def parts(
        self, output: Any, gradients: Sequence[torch.Tensor]
    ) -> tuple[list[bits.Part], list[bits.Part]]:
        """Return the parts of the forward output (backward only), and those that are judged."""
        forward = bits.parts(output, "output")
        if not self.backward:
            return [], forward
        named = zip(self.leaf_names, gradients, strict=True)
        return forward, [part for name, one in named for part in bits.parts(one, f"grad of {name}")]

    def _upstream_gradient(self, output: torch.Tensor) -> torch.Tensor:
        """Draw a random gradient for an output: equal ones would hide a reordered sum."""
        if output.layout == torch.sparse_coo:
            values = output._values()  # noqa: SLF001 - not `values()`, which asks for a coalesced tensor
            drawn = self._upstream.gradient(*values.shape).to(values.device, values.dtype)
            return torch.sparse_coo_tensor(output._indices(), drawn, output.shape)  # noqa: SLF001
        if output.layout == torch.sparse_csr:
            drawn = self._upstream.gradient(*output.values().shape).to(output.device, output.dtype)
            rows, columns = output.crow_indices(), output.col_indices()
            return torch.sparse_csr_tensor(rows, columns, drawn, output.shape)
        drawn = self._upstream.gradient(*output.shape).to(output.dtype)
        # The output's own layout: a contiguous gradient would send channels-last ops down another path.
        return torch.empty_like(output, requires_grad=False).copy_(drawn)


def attempt(
    use: Callable[[Execution], dict[str, Any]], spec: OpSpec, case: str, **drawn: Any
) -> dict[str, Any]:
    """Hand a case to *use* with the flag off; return what that returns, or why there is nothing. The worker's mode is put back."""
    with global_state.mode_restored():
        torch.use_deterministic_algorithms(False)
        # Behind the first use of the flag, which imports parts of torch that set variables in the environment.
        before = global_state.snapshot()
        try:
            found = use(Execution(spec, case, kept=DRAWS, **drawn))
        except BaseException as error:  # noqa: BLE001 - an op may raise anything, sys.exit included; all of it is data
            found = failed(error)
        torch.use_deterministic_algorithms(False)
        return global_state.changed_since(before) or found


def failed(error: BaseException) -> dict[str, Any]:
    """Return what an exception makes of a case: nothing to run, nothing to prove, or an answer of the op."""
    if isinstance(error, (NotRunnableError, MissingError)):
        return {"outcome": "not_run", "message": str(error)}
    if isinstance(error, InvalidCaseError):
        return {"outcome": "invalid", "message": str(error)}
    return {"outcome": "raised", "message": first_line(error)}


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Return the tensors of a nested output, still attached to their graph."""
    return [leaf for _, leaf in bits.leaves(value) if isinstance(leaf, torch.Tensor)]


def describe(spec: OpSpec, case: str, *, device: str, seed: int) -> dict[str, Any]:
    """Return the directions and the dtype of a case whose spec leaves them to its inputs; those that cannot be drawn go forward."""
    key = f"{seed}|{spec.name}|{case}|float32"
    inputs = _inputs()(key, dtype="float32", device=device, direction="backward", kept=DRAWS)
    try:
        drawn = spec.cases[case].inputs(inputs)
    except Exception:  # noqa: BLE001 - a function of the user's fails in any way it likes
        return {"directions": ["forward"], "dtype": "float32"}
    tensors = [tensor for _, tensor in bits.parts([drawn.args, dict(drawn.kwargs)], "args", skip_others=True)]
    dtypes = [str(one.dtype).removeprefix("torch.") for one in tensors]
    # What can be differentiated comes before indices and masks.
    dtypes.sort(key=lambda dtype: not dtype.startswith(("float", "bfloat", "complex")))
    return {
        "directions": ["forward", "backward"] if inputs.leaves else ["forward"],
        "dtype": dtypes[0] if dtypes else "float32",
    }


def resolve(op: str | Callable[..., Any]) -> Callable[..., Any]:
    """Look up a dotted path below torch; say where the scanned torch has no such op."""
    if not isinstance(op, str):
        return op
    root, *names = op.split(".")
    found: Any = importlib.import_module(root)
    path = root
    for name in names:
        path = f"{path}.{name}"
        if not hasattr(found, name):
            try:
                found = importlib.import_module(path)
            except ImportError:
                raise NotRunnableError(f"torch {torch.__version__} has no {op}") from None
        else:
            found = getattr(found, name)
    return found  # type: ignore[no-any-return]


def first_line(error: BaseException) -> str:
    """Return the type and the first line of an exception, for a reader."""
    try:
        text = str(error).strip().split("\n", 1)[0][:1000]
    except Exception:  # noqa: BLE001 - an exception of the op's own may fail at this too
        text = "(message unavailable)"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


# --- The ways in which a worker makes an execution, by its mode; what was not compiled under ``torch.compile`` says nothing


class SwitchedExecution(Execution):
    """Has the flag in the backward phase the other way than in the forward one."""

    @property
    def deterministic(self) -> bool:
        """Whether the flag is on in the phase that is judged."""
        return super().deterministic != self.backward

    def differentiate(
        self, outputs: Sequence[torch.Tensor], upstream: Sequence[torch.Tensor]
    ) -> tuple[torch.Tensor, ...]:
        """Return the gradients of the leaves."""
        with global_state.flag_set(self.deterministic):
            return super().differentiate(outputs, upstream)


class CompiledExecution(Execution):
    """Calls the op under ``torch.compile``, with its default backend, and sees to it that compiled code runs."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Draw the inputs, and forget what was compiled before: each case is compiled for its own shapes."""
        from torch._dynamo.utils import counters  # noqa: PLC0415 - loads the compiler, which eager workers need not
        from torch._inductor import metrics  # noqa: PLC0415

        super().__init__(*args, **kwargs)
        torch._dynamo.reset()  # noqa: SLF001 - the package has no public name
        counters.clear()
        metrics.reset()
        self._counters, self._metrics = counters, metrics
        # Compiled graphs, and calls of their forward phases.
        counts = self._counts = Counter[str]()
        eager = self._eager = self.op

        def call(*args: Any, **kwargs: Any) -> Any:
            return eager(*args, **kwargs)

        # As ``torch.compile`` compiles by default. PyTorch keeps it: it must not hold the case, whose inputs would stay in memory.
        def backend(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
            compiled = torch._dynamo.lookup_backend("inductor")(graph, inputs)  # noqa: SLF001
            counts["graphs"] += 1

            def counted(*args: Any) -> Any:
                counts["calls"] += 1
                return compiled(*args)

            return counted

        # The shapes of a case never change, and those of another case are none of its business.
        self.op = torch.compile(call, backend=backend, dynamic=False)

    def __call__(
        self, args: tuple[Any, ...] | None = None, around: Around = called
    ) -> tuple[Any, tuple[torch.Tensor, ...]]:
        """Execute once; refuse what ran eagerly, and raise an alert as it is: the compiler meets it as it traces, and wraps it."""
        before = self._counts["calls"]
        try:
            executed = super().__call__(args, around)
        except Exception as error:
            if (alert := _alert_in(error)) is not None:
                raise alert from error
            raise
        if not self._counts["graphs"]:
            # The first line of what the compiler says of the first graph break.
            said = next(iter(self._counters["graph_break"]), "").strip().split("\n", 1)[0][:300]
            reason = said or "torch.compile found no tensor operation in it"
            raise NotRunnableError(f"not compiled: {reason}")
        if self._counts["calls"] == before:
            raise InvalidCaseError("compiled code ran in some executions, and not in all")
        return executed

    def eagerly(self) -> Execution:
        """Return what executes the case without compiling it."""
        eager = Execution.__new__(Execution)
        vars(eager).update(vars(self))
        eager.op = self._eager
        return eager

    def facts(self) -> dict[str, Any]:
        """Return what was compiled, as fields of an observation."""
        breaks = sum(self._counters["graph_break"].values())
        kernels = self._metrics.generated_kernel_count
        return {"compiled": {"graphs": self._counts["graphs"], "breaks": breaks, "kernels": kernels}}


def _alert_in(error: BaseException | None) -> BaseException | None:
    """Return PyTorch's alert, if that is why an exception was raised."""
    while error is not None and alert_caller(type(error).__name__, str(error)) is None:
        error = error.__cause__ or error.__context__
    return error


def failure(device: str) -> str | None:
    """Compile a function and run it on a device; return why that fails, ``None`` if it does not.

    On a simulated GPU nobody can measure which configuration of a kernel is the fastest: the first one is taken.
    """
    try:
        torch.compile(lambda x: x.sin() + 1, dynamic=False)(torch.ones(64, device=device))
        if simulated.active():
            from torch._inductor.runtime.triton_heuristics import CachingAutotuner  # noqa: PLC0415

            CachingAutotuner.bench = lambda *_, **__: 0.0
    except Exception as error:  # noqa: BLE001 - a compiler that is missing, or broken, fails in any way it likes
        return _cause(error)
    return None


def _cause(error: BaseException) -> str:
    """Return the last cause in words: what the compiler's wrappers say of it holds a page."""
    while (inner := getattr(error, "inner_exception", None) or error.__cause__) is not None:
        error = inner
    return first_line(error)


EXECUTIONS: dict[ExecutionKind, type[Execution]] = {
    "eager": Execution,
    "switched": SwitchedExecution,
    "compiled": CompiledExecution,
}
