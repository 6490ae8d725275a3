"""Progress on standard error: a live line in a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import Counter
from typing import Protocol, TextIO

from scanner.errors import one_line
from scanner.observations.records import Row
from scanner.verdicts.cells import VERDICT_MEANING, Verdict

# Between two plain lines.
PLAIN_SECONDS = 10.0


class Progress(Protocol):
    """What a scan tells while it goes on."""

    def enumerating(self, name: str, done: int, total: int) -> None:
        """The samples of a database's entry are being tried, behind *done* of *total* entries."""

    def begin(self, total: int, done: int) -> None:
        """*done* of *total* observations were there already."""

    def more(self, count: int) -> None:
        """So many observations are to be made beyond those that were planned."""

    def at(self, row: Row, what: str) -> None:
        """This row is being executed: "on, process 1", "cost", or "overloads"."""

    def saw(self, verdict: Verdict) -> None:
        """It came out like this in one process."""

    def timed(self) -> None:
        """Its cost was measured, or its overloads were recorded."""

    def end(self) -> None:
        """Nothing more will come."""

    def say(self, text: str) -> None:
        """What a user must know before the scan goes on."""


def progress_for(command: str = "scan") -> Progress:
    """Return a live display if standard error is a terminal, plain lines that begin with *command* if not."""
    stream = sys.stderr
    return LiveProgress() if stream.isatty() else PlainProgress(stream, command)


def _counts(verdicts: Counter[Verdict]) -> str:
    """``12 deterministic, 1 raises``, in the order of the reports."""
    return ", ".join(f"{verdicts[verdict]} {verdict}" for verdict in VERDICT_MEANING if verdicts[verdict])


def _say(text: str, stream: TextIO) -> None:
    with contextlib.suppress(OSError):
        print(one_line(text), file=stream, flush=True)


class PlainProgress:
    """A line every few seconds, for logs."""

    def __init__(self, stream: TextIO, command: str = "scan") -> None:
        self._stream = stream
        self._command = command
        self._verdicts: Counter[Verdict] = Counter()
        self._total = self._done = self._before = 0
        self._row = ""
        self._started = self._shown_at = time.monotonic()

    def enumerating(self, name: str, done: int, total: int) -> None:
        """See Progress."""
        if time.monotonic() - self._shown_at >= PLAIN_SECONDS:
            self._shown_at = time.monotonic()
            with contextlib.suppress(OSError):
                print(
                    f"scan: {done}/{total} entries tried; at {one_line(name)}", file=self._stream, flush=True
                )

    def begin(self, total: int, done: int) -> None:
        """See Progress."""
        self._total, self._done, self._before = total, done, done
        self._started = self._shown_at = time.monotonic()

    def at(self, row: Row, what: str) -> None:
        """See Progress."""
        self._row = f"{row.id} ({what})"
        if time.monotonic() - self._shown_at >= PLAIN_SECONDS:
            self._tell()

    def more(self, count: int) -> None:
        """See Progress."""
        self._total += count

    def saw(self, verdict: Verdict) -> None:
        """See Progress."""
        self._verdicts[verdict] += 1
        self._done += 1

    def timed(self) -> None:
        """See Progress."""
        self._done += 1

    def end(self) -> None:
        """See Progress."""
        self._row = ""
        self._tell()

    def say(self, text: str) -> None:
        """See Progress."""
        _say(text, self._stream)

    def _tell(self) -> None:
        self._shown_at = time.monotonic()
        made = self._done - self._before
        parts = [f"{self._done}/{self._total}"]
        if verdicts := _counts(self._verdicts):
            parts.append(verdicts)
        if made and self._done < self._total:
            left = (self._shown_at - self._started) / made * (self._total - self._done)
            parts.append(f"about {left:.0f} s left")
        if self._row:
            parts.append(f"at {one_line(self._row)}")
        # A scan does not end because nobody can read how it goes.
        with contextlib.suppress(OSError):
            print(f"{self._command}: " + "; ".join(parts), file=self._stream, flush=True)


class LiveProgress:
    """Three lines that renew themselves, drawn by rich: how far, what came out, what is being executed."""

    def __init__(self) -> None:
        # rich takes as long to import as the rest of the command line; only a terminal needs it.
        from rich.console import Console, Group  # noqa: PLC0415
        from rich.live import Live  # noqa: PLC0415
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        self._verdicts: Counter[Verdict] = Counter()
        self._total = 0
        self._row = ""
        console = Console(stderr=True)
        self._bar = Progress(
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=console,
        )
        self._task = self._bar.add_task("", total=None)

        def drawn() -> Group:
            lines = [line for line in (_counts(self._verdicts), self._row) if line]
            return Group(
                self._bar, *(Text(one_line(line), no_wrap=True, overflow="ellipsis") for line in lines)
            )

        self._live = Live(get_renderable=drawn, console=console, refresh_per_second=8)

    def enumerating(self, name: str, done: int, total: int) -> None:
        """See Progress."""
        self._row = f"{name} (trying its samples)"
        self._bar.update(self._task, total=total, completed=done)
        self._live.start()

    def begin(self, total: int, done: int) -> None:
        """See Progress."""
        self._total = total
        self._bar.update(self._task, total=total, completed=done)
        self._live.start()

    def at(self, row: Row, what: str) -> None:
        """See Progress."""
        self._row = f"{row.id} ({what})"

    def more(self, count: int) -> None:
        """See Progress."""
        self._total += count
        self._bar.update(self._task, total=self._total)

    def saw(self, verdict: Verdict) -> None:
        """See Progress."""
        self._verdicts[verdict] += 1
        self._bar.advance(self._task)

    def timed(self) -> None:
        """See Progress."""
        self._bar.advance(self._task)

    def end(self) -> None:
        """See Progress."""
        self._row = ""
        self._live.stop()

    def say(self, text: str) -> None:
        """See Progress."""
        _say(text, sys.stderr)
