"""Which op a name means, of all that is known: the catalog, PyTorch's databases, rows that were scanned, documented names."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from msgspec import Struct

from detmatrix.opspecs.model import OpSpec
from detmatrix.opspecs.patterns import OpNames, called, near, op_names, ops_of, recorded_names, rows_of
from detmatrix.opspecs.registry import SPECS, names_of
from detmatrix.opspecs.spellings import SPELLINGS, Code, code_of
from detmatrix.scanner.cases.catalog import load_catalog, with_installed
from detmatrix.scanner.errors import UsageError
from detmatrix.scanner.observations.records import Row

# A name that begins with what the user left out means more than one that has it in its middle: torch.mean, masked.mean.
_ROOTS = ("", "torch.", "torch.Tensor.", "torch.nn.", "torch.nn.functional.")
_MOST_NAMED = 4
# Words of a row behind the name of its spec: case, direction, dtype.
_IN_ROW = 3


class KnownOp(Struct, frozen=True):
    """An op, whatever it is called where."""

    name: str
    specs: tuple[str, ...]  # that are of it
    names: tuple[str, ...]  # by which documented lists may speak of it
    why: tuple[str, ...]  # what the catalog says could reorder

    def is_about(self, row: Row) -> bool:
        """Tell whether a row is one of this op."""
        return row.spec in self.specs


def spellings_of(specs: Collection[str]) -> Iterator[tuple[OpSpec, Code]]:
    """Yield what may be written instead of the op of these specs."""
    for one in SPELLINGS:
        if one.instead_of and one.instead_of.name in specs:
            yield one, code_of(one.op_name.rpartition(".")[2])


def op_called(typed: str, rows: Iterable[Row], targets: Iterable[str]) -> KnownOp:
    """Return the op that a name means, of the catalog, databases, scanned rows and the *targets* of documented lists.

    It is typed as its user knows it, or as a row in reports: ``"torch.take:collisions:backward:float32"``. A name that no op has,
    or several have, is refused.
    """
    op, *of_row = typed.rsplit(":", _IN_ROW)
    typed = op if len(of_row) == _IN_ROW else typed
    catalog = load_catalog(with_installed(()))
    listed = [op_names(name, "") for name in dict.fromkeys(targets)]
    everything = (*map(names_of, catalog), *map(names_of_row, rows), *recorded_names(), *listed)
    ops = {one.name: one for one in reversed(everything)}
    # Families are no ops.
    known = [ops[name]._replace(family="") for name in dict.fromkeys(one.name for one in everything)]
    found = called(typed, known)
    if not found:
        close = near(typed, [(one, one.name) for one in known])
        hint = f"did you mean {' or '.join(close)}?" if close else "detmatrix list shows what there is"
        if called(typed, everything):
            hint = "it is a family, whose ops detmatrix list shows"
        raise UsageError(f"no op is called {typed!r}; {hint}")
    direct = [one for one in found if any(f"{root}{typed}" in (one.name, *one.dotted) for root in _ROOTS)]
    found = direct or found
    first, *others = found
    lists = _documented(first)
    apart = [one for one in others if lists.isdisjoint(_documented(one))]
    if apart and (exact := [one for one in found if one.documented[0] == typed]):
        # What the message below would tell the user to give.
        found, first, apart = exact, exact[0], []
        lists = _documented(first)
    if apart:
        names = list(dict.fromkeys(one.documented[0] for one in (first, *apart)))
        more = ", ..." if len(names) > _MOST_NAMED else ""
        raise UsageError(
            f"{typed!r} means {len(names)} ops; give one of them: {', '.join(names[:_MOST_NAMED])}{more}"
        )
    related = [one.name for one in known if not lists.isdisjoint(_documented(one))]
    ours = [name for name in (first.name, *related) if name in {spec.name for spec in catalog}]
    return KnownOp(
        name=(ours or first.documented)[0],
        specs=tuple(dict.fromkeys((*ours, *related))),
        names=tuple(
            dict.fromkeys(name for one in found for name in (*one.documented, one.name) if ":" not in name)
        ),
        why=tuple(dict.fromkeys(spec.why for spec in catalog if spec.name in related)),
    )


def _documented(op: OpNames) -> frozenset[str]:
    """Return by which names lists would speak of an op, its own among them."""
    return frozenset((op.name, *op.documented))


def names_of_row(row: Row) -> OpNames:
    """Return what the op of a row is called."""
    return op_names(row.spec, row.family, row.op, row.documented)


def selected_rows(
    patterns: Sequence[str], rows: Sequence[Row], where: str, scanned: Sequence[Row] = ()
) -> set[str]:
    """Return the ids of the rows that patterns select; *where* begins to say that one selects nothing, *scanned* is what there is besides."""
    # A row is planned once for each run that has it.
    named = list(dict.fromkeys((names_of_row(row), row.id) for row in rows))
    found: set[str] = set()
    for pattern in patterns:
        matching = rows_of(pattern, named)
        if not matching:
            close = near(pattern, named)
            hint = f"did you mean {' or '.join(close)}?" if close else "detmatrix report shows what there is"
            there = [*(op for op, _ in named), *map(names_of_row, scanned)]
            if not ops_of(pattern, there) and ops_of(pattern, [*map(names_of, SPECS), *recorded_names()]):
                hint = "that is an op which was not scanned here"
            raise UsageError(f"{where} {pattern!r}; {hint}")
        found |= matching
    return found
