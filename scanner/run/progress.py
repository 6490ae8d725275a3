"""Progress on standard error: a live line in a terminal, a plain line now and then elsewhere.

A measurement is one row in one process, or its cost, its overloads, or its invariance to a property. How many there will be is
known when the rows are: that total stays. Which rows need more executions, or another mode, is known only later; those are told
apart from it.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections import Counter
from typing import Protocol, TextIO

from scanner.errors import one_line
from scanner.observations.records import Row
from scanner.verdicts.vocabulary import VERDICT_MEANING, Verdict

# Between two plain lines.
PLAIN_SECONDS = 10.0
_MINUTE, _HOUR = 60, 3600


class Progress(Protocol):
    """What a scan tells while it goes on."""

    def doing(self, text: str) -> None:
        """This goes on before anything is measured: "starting torch"."""

    def note(self, text: str) -> None:
        """This is to be known when all is over, too."""

    def enumerating(self, name: str, done: int, total: int) -> None:
        """The samples of a database's entry are being tried, behind *done* of *total* entries."""

    def begin(self, total: int, done: int) -> None:
        """*done* of *total* observations were there already."""

    def expect(self, total: int) -> None:
        """So many observations there will be, it turns out."""

    def further(self, count: int) -> None:
        """The next so many observations are beyond those that were planned."""

    def at(self, row: Row, what: str) -> None:
        """This row is being executed: "on, process 1", "cost", "overloads", or "invariance to batch"."""

    def saw(self, verdict: Verdict) -> None:
        """It came out like this in one process."""

    def timed(self) -> None:
        """Its cost was measured, its overloads were recorded, or it was asked of its invariance, if it had to be."""

    def end(self) -> None:
        """Nothing more will come."""


def progress_for(command: str = "scan") -> Progress:
    """Return a live display if standard error is a terminal, plain lines that begin with *command* if not."""
    stream = sys.stderr
    return LiveProgress() if stream.isatty() else PlainProgress(stream, command)


class _Counted:
    """How far a scan is, and how long the rest may take."""

    def __init__(self) -> None:
        self.verdicts: Counter[Verdict] = Counter()
        self.total = self.done = 0
        self.row = ""
        self._before = 0
        self._further = self._of_further = 0
        self._started = time.monotonic()

    def begin(self, total: int, done: int) -> None:
        """See Progress."""
        self.total, self.done, self._before = total, done, done
        self._started = time.monotonic()

    def further(self, count: int) -> None:
        """See Progress."""
        self._further, self._of_further = 0, count

    def saw(self, verdict: Verdict | None) -> None:
        """Count a measurement; one without a verdict is none of bits run to run."""
        if verdict is not None:
            self.verdicts[verdict] += 1
        if self._further < self._of_further:
            self._further += 1
        else:
            self.done += 1

    @property
    def counts(self) -> str:
        """``12 deterministic, 1 raises``, in the order of the reports."""
        seen = self.verdicts
        return ", ".join(f"{seen[verdict]} {verdict}" for verdict in VERDICT_MEANING if seen[verdict])

    @property
    def far(self) -> str:
        """How many observations are made, and, while there are others, how many of those."""
        beyond = self._further < self._of_further
        more = f" (and {self._further}/{self._of_further} further ones)" if beyond else ""
        return f"{self.done}/{self.total} observations{more}"

    @property
    def left(self) -> str:
        """How long the rest takes if it goes on like this; nothing before it is known."""
        made = self.done - self._before
        if not made or self.done >= self.total:
            return ""
        seconds = (time.monotonic() - self._started) / made * (self.total - self.done)
        if seconds < _MINUTE:
            return f"about {seconds:.0f} s left"
        minutes = round(seconds / _MINUTE)
        return (
            f"about {minutes} min left"
            if seconds < _HOUR
            else f"about {minutes // 60} h {minutes % 60} min left"
        )


class PlainProgress:
    """A line when something begins and every few seconds, for logs."""

    def __init__(self, stream: TextIO, command: str = "scan") -> None:
        self._stream = stream
        self._command = command
        self._counted = _Counted()
        self._shown_at = time.monotonic()

    def doing(self, text: str) -> None:
        """See Progress."""
        self._print(text)

    def note(self, text: str) -> None:
        """See Progress."""
        self._print(text)

    def enumerating(self, name: str, done: int, total: int) -> None:
        """See Progress."""
        if not done or time.monotonic() - self._shown_at >= PLAIN_SECONDS:
            self._print(f"{done}/{total} entries tried; at {name}")

    def begin(self, total: int, done: int) -> None:
        """See Progress."""
        self._counted.begin(total, done)
        self._shown_at = time.monotonic()

    def expect(self, total: int) -> None:
        """See Progress."""
        self._counted.total = total

    def at(self, row: Row, what: str) -> None:
        """See Progress."""
        self._counted.row = f"{row.id} ({what})"
        if time.monotonic() - self._shown_at >= PLAIN_SECONDS:
            self._tell()

    def further(self, count: int) -> None:
        """See Progress."""
        self._counted.further(count)

    def saw(self, verdict: Verdict) -> None:
        """See Progress."""
        self._counted.saw(verdict)

    def timed(self) -> None:
        """See Progress."""
        self._counted.saw(None)

    def end(self) -> None:
        """See Progress."""
        self._counted.row = ""
        if self._counted.total:
            self._tell()

    def _tell(self) -> None:
        seen = self._counted
        parts = (seen.far, seen.counts, seen.left, f"at {seen.row}" if seen.row else "")
        self._print("; ".join(filter(None, parts)))

    def _print(self, text: str) -> None:
        self._shown_at = time.monotonic()
        # A scan does not end because nobody can read how it goes.
        with contextlib.suppress(OSError):
            print(f"{self._command}: {one_line(text)}", file=self._stream, flush=True)


class LiveProgress:
    """Three lines that renew themselves, drawn by rich: how far, what came out, what is being executed."""

    def __init__(self) -> None:
        # rich takes as long to import as the rest of the command line; only a terminal needs it.
        from rich.console import Console, Group  # noqa: PLC0415
        from rich.live import Live  # noqa: PLC0415
        from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        self._counted = _Counted()
        console = Console(stderr=True)
        # Markup in names is none of ours.
        words = TextColumn("{task.description}", markup=False)
        self._bar = Progress(BarColumn(), words, console=console)
        self._task = self._bar.add_task("", total=None)

        def drawn() -> Group:
            lines = [line for line in (self._counted.counts, self._counted.row) if line]
            return Group(
                self._bar, *(Text(one_line(line), no_wrap=True, overflow="ellipsis") for line in lines)
            )

        self._live = Live(get_renderable=drawn, console=console, refresh_per_second=8)

    def doing(self, text: str) -> None:
        """See Progress."""
        self._counted.row = text
        self._live.start()

    def note(self, text: str) -> None:
        """See Progress."""
        self._live.console.print(one_line(text), markup=False, highlight=False)

    def enumerating(self, name: str, done: int, total: int) -> None:
        """See Progress."""
        self._counted.row = f"{name} (trying its samples)"
        self._bar.update(self._task, total=total, completed=done, description=f"{done}/{total} entries tried")
        self._live.start()

    def begin(self, total: int, done: int) -> None:
        """See Progress."""
        self._counted.begin(total, done)
        self._draw()
        self._live.start()

    def expect(self, total: int) -> None:
        """See Progress."""
        self._counted.total = total
        self._draw()

    def at(self, row: Row, what: str) -> None:
        """See Progress."""
        self._counted.row = f"{row.id} ({what})"

    def further(self, count: int) -> None:
        """See Progress."""
        self._counted.further(count)
        self._draw()

    def saw(self, verdict: Verdict) -> None:
        """See Progress."""
        self._counted.saw(verdict)
        self._draw()

    def timed(self) -> None:
        """See Progress."""
        self._counted.saw(None)
        self._draw()

    def end(self) -> None:
        """See Progress."""
        self._counted.row = ""
        self._live.stop()

    def _draw(self) -> None:
        seen = self._counted
        words = ", ".join(filter(None, (seen.far, seen.left)))
        self._bar.update(self._task, total=seen.total, completed=seen.done, description=words)
