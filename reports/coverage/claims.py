"""Which of the alerts that PyTorch documents were triggered by the rows of a coverage, and by which overloads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from reports.matrix.model import Matrix
from reports.matrix.words import bullet_words
from scanner.claims.matching import claimed_kind, matches
from scanner.observations.records import Claim

HEADS = ("documented to raise", "met as", "raised by", "rows that speak to it")
UNSEEN = "nothing that the recorder sees"


class MetAlert(Struct, frozen=True, kw_only=True):
    """An alert that rows met: the caller it names, and the overloads that raised it."""

    caller: str
    overloads: tuple[str, ...]  # empty: raised above all that the recorder sees
    rows: tuple[str, ...]


class DocumentedAlert(Struct, frozen=True, kw_only=True):
    """A bullet of the list of ops that raise, and what the rows that speak to it met."""

    bullet: str
    rows: int  # that speak to it; none: nothing was tried
    callers: tuple[str, ...]  # of the alerts they met; empty: none was triggered
    overloads: tuple[str, ...]  # that raised these


def documented_alerts(
    matrices: Sequence[Matrix], device: str, alerts: Sequence[MetAlert]
) -> Iterator[DocumentedAlert]:
    """Yield the bullets about a kind of device, in the order of the list; none if the runs hold no lists."""
    claims: Sequence[Claim] = next((it.run.header.claims for it in matrices if it.run.header.claims), ())
    rows = [row.row for matrix in matrices for row in matrix.rows]
    for claim in claims:
        if claim.section != "raises" or not claim.parsed or claim.device not in {"any", claimed_kind(device)}:
            continue
        ids = {row.id for row in rows if matches(row, claim)}
        met = [alert for alert in alerts if not ids.isdisjoint(alert.rows)]
        yield DocumentedAlert(
            bullet=bullet_words(claim),
            rows=len(ids),
            callers=tuple(alert.caller for alert in met),
            overloads=tuple(dict.fromkeys(name for alert in met for name in alert.overloads)),
        )


def documented_lines(alerts: Sequence[DocumentedAlert]) -> list[tuple[str, ...]]:
    """Return the bullets in words, for a table with ``HEADS``."""
    return [
        (
            it.bullet,
            ", ".join(it.callers) or ("not triggered" if it.rows else "not tried"),
            ", ".join(it.overloads) or (UNSEEN if it.callers else "none"),
            str(it.rows),
        )
        for it in alerts
    ]
