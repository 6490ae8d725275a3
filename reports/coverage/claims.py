"""Which of the alerts that PyTorch documents were triggered by the rows of a coverage, and by which overloads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from reports.coverage.model import Coverage, MetAlert
from reports.matrix.words import bullet_words
from scanner.claims.matching import device_kind, matches
from scanner.observations.records import Claim

HEADS = ("documented to raise", "met as", "raised by", "rows that speak to it")


class DocumentedAlert(Struct, frozen=True, kw_only=True):
    """A bullet of the list of ops that raise, and what the rows that speak to it met."""

    bullet: str
    rows: int  # that speak to it; none: nothing was tried
    callers: tuple[str, ...]  # of the alerts they met; empty: none was triggered
    overloads: tuple[str, ...]  # that raised these


def documented_alerts(one: Coverage) -> list[DocumentedAlert]:
    """Return the bullets about the device, in the order of the list; none if the runs hold no lists."""
    return list(_documented_alerts(one))


def _documented_alerts(one: Coverage) -> Iterator[DocumentedAlert]:
    claims: Sequence[Claim] = next((it.run.header.claims for it in one.matrices if it.run.header.claims), ())
    rows = [row.row for matrix in one.matrices for row in matrix.rows]
    for claim in claims:
        if (
            claim.section != "raises"
            or not claim.parsed
            or claim.device not in {"any", device_kind(one.device)}
        ):
            continue
        ids = {row.id for row in rows if matches(row, claim)}
        met: list[MetAlert] = [alert for alert in one.alerts if not ids.isdisjoint(alert.rows)]
        yield DocumentedAlert(
            bullet=bullet_words(claim),
            rows=len(ids),
            callers=tuple(alert.caller for alert in met),
            overloads=tuple(dict.fromkeys(name for alert in met for name in alert.overloads)),
        )


def documented_lines(one: Coverage) -> list[tuple[str, str, str, str]]:
    """Return the bullets in words, for a table with ``HEADS``."""
    return [
        (
            it.bullet,
            ", ".join(it.callers) or ("not triggered" if it.rows else "not tried"),
            ", ".join(it.overloads) or ("nothing that the recorder sees" if it.callers else "none"),
            str(it.rows),
        )
        for it in documented_alerts(one)
    ]
