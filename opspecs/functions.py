"""A spec made of one function of the user's, ``FILE.py:FUNCTION``, with inputs ``FILE.py:FUNCTION(FILE.py:INPUTS)``."""

from __future__ import annotations

import inspect
import random
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from detmatrix.opspecs.model import Call, Case, OpSpec, call

if TYPE_CHECKING:
    from detmatrix.opspecs.inputs import Inputs

CASE = "inputs"
_NAMED = re.compile(r"(.+\.py):(\w+)(?:\((.+\.py):(\w+)\))?")


class FunctionName(NamedTuple):
    """Which function, and which one gives its inputs, each with its file."""

    file: str
    function: str
    inputs_file: str | None = None
    inputs: str | None = None

    def __str__(self) -> str:
        inputs = f"({self.inputs_file}:{self.inputs})" if self.inputs else ""
        return f"{self.file}:{self.function}{inputs}"

    @property
    def name(self) -> str:
        """What the spec is called."""
        return f"{Path(self.file).stem}.{self.function}"


def named_function(text: str) -> FunctionName | None:
    """Return the function that a text names; ``None`` if it is the name of a file."""
    found = _NAMED.fullmatch(text)
    return FunctionName(*found.groups()) if found else None


def resolved(specs: str) -> str:
    """Return a file of specs, or a function with its files, by paths that hold in any folder."""
    named = named_function(specs)
    if named is None:
        return str(Path(specs).resolve())
    inputs = str(Path(named.inputs_file).resolve()) if named.inputs_file else None
    return str(named._replace(file=str(Path(named.file).resolve()), inputs_file=inputs))


def file_of(specs: str) -> Path:
    """Return the file in which specs are declared."""
    named = named_function(specs)
    return Path(named.file if named else specs)


def spec_of(named: FunctionName, declared: Mapping[str, Mapping[str, Any]]) -> OpSpec:
    """Return the spec of a function, given what each of its files declares; what it is given, a worker finds out.

    Raises:
        LookupError: There is no such function.
        TypeError: It cannot be called with what it is given.
    """
    op = _function(named.file, named.function, declared[named.file])
    if named.inputs_file is None or named.inputs is None:
        _check_callable(op, named)
        inputs: Callable[[Inputs], Call] = _nothing
    else:
        inputs = partial(_given, _function(named.inputs_file, named.inputs, declared[named.inputs_file]))
    return OpSpec(
        name=named.name,
        op=op,
        why="",
        directions=("forward", "backward"),
        cases={CASE: Case(inputs=inputs, provokes="inputs of your own")},
        described=True,
        some_leaves=True,
    )


def _function(file: str, name: str, declared: Mapping[str, Any]) -> Callable[..., Any]:
    found = declared.get(name)
    if callable(found):
        return found  # type: ignore[no-any-return]
    near = get_close_matches(name, [one for one, value in declared.items() if callable(value)], n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise LookupError(f"{file}: has no function {name!r}{hint}")


def _check_callable(op: Callable[..., Any], named: FunctionName) -> None:
    try:
        inspect.signature(op).bind()
    except ValueError:
        return  # one of C's, which does not say what it takes
    except TypeError as error:
        raise TypeError(
            f"{named.file}: {named.function} takes arguments ({error}); name a function that returns them with --inputs "
            f"FILE.py:FUNCTION"
        ) from None


def _nothing(_: Inputs) -> Call:
    return call()


def _given(make: Callable[..., Any], t: Inputs) -> Call:
    """Return the arguments that a function makes, the same each time, on the device of the scan."""
    import torch  # noqa: PLC0415 - a worker calls this

    made = make(t) if inspect.signature(make).parameters else _made(make, int(t.index(1, high=1 << 31)))

    def placed(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            there = value.detach().to(t.device)
            return t.leaf(there) if value.requires_grad else there
        if isinstance(value, dict):
            return {name: placed(one) for name, one in value.items()}
        # A named tuple is made of its fields.
        if isinstance(value, (tuple, list)) and type(value) in (tuple, list):
            return type(value)(map(placed, value))
        return value

    if isinstance(made, Call):
        return Call(placed(made.args), placed(dict(made.kwargs)))
    if isinstance(made, dict):
        return Call((), placed(made))
    return Call(placed(made) if isinstance(made, tuple) else (placed(made),), {})


def _made(make: Callable[[], Any], seed: int) -> Any:
    """Call a function that draws from the generators of torch and Python, and put them back."""
    import torch  # noqa: PLC0415

    before = random.getstate()
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        random.seed(seed)
        try:
            return make()
        finally:
            random.setstate(before)
