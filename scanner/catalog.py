"""The catalog as a command sees it: ours and the user's specs, and what patterns select from them."""

from __future__ import annotations

from collections.abc import Sequence

from opspecs.model import OpSpec, Planned
from opspecs.registry import SPECS, NoMatchError, select
from scanner.errors import UsageError


def load_catalog(spec_files: Sequence[str], sources: Sequence[str] = ("documented",)) -> tuple[OpSpec, ...]:
    """Return the catalog, if it is among the sources, with the specs of the user's files added.

    Raises:
        UsageError: A file cannot be used, or declares a name that is taken.
    """
    # Only those who bring specs of their own pay for it: listing must start fast.
    from opspecs.user import SpecFileError, load_specs  # noqa: PLC0415

    specs = {spec.name: spec for spec in SPECS} if "documented" in sources else {}
    for path in spec_files:
        try:
            own = load_specs(path)
        except SpecFileError as error:
            raise UsageError(str(error)) from error
        except SystemExit as error:
            raise UsageError(
                f"{path}: exits when it is loaded; let it declare SPECS and do nothing else"
            ) from error
        for spec in own:
            if spec.name in specs:
                raise UsageError(f"{path}: the name {spec.name} is taken; give the spec a name of its own")
            specs[spec.name] = spec
    return tuple(specs.values())


def choose(patterns: Sequence[str], device: str, specs: Sequence[OpSpec]) -> list[tuple[OpSpec, Planned]]:
    """Select rows by patterns.

    Raises:
        UsageError: A pattern matches nothing; near matches are named.
    """
    try:
        return select(patterns, device, specs)
    except NoMatchError as error:
        near = (
            f"did you mean {' or '.join(error.near)}?" if error.near else "detmatrix list shows what there is"
        )
        where = {"cpu": " on the CPU", "cuda": " on CUDA"}.get(device, "")
        raise UsageError(f"no op{where} matches {error.pattern!r}; {near}") from error
