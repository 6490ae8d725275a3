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
from typing import TextIO

from detmatrix.scanner.errors import one_line
from detmatrix.scanner.observations.records import Row
from detmatrix.scanner.verdicts.vocabulary import VERDICT_MEANING, Verdict

# Between two plain lines.
PLAIN_SECONDS = 10.0
_MINUTE, _HOUR = 60, 3600


class Progress:
    """What a scan tells while it goes on: for logs a line when something begins, and every few seconds."""

    def __init__(self, stream: TextIO, command: str = "scan") -> None:
        self._verdicts: Counter[Verdict] = Counter()
        self._total = self._done = self._before = 0
        self._further = self._of_further = 0
        self._row = ""
        self._started = self._shown_at = time.monotonic()
        self._stream, self._command = stream, command

    def doing(self, text: str) -> None:
        """This goes on before anything is measured: "starting torch"."""
        self._shown_at = time.monotonic()
        # A scan does not end because nobody can read how it goes.
        with contextlib.suppress(OSError):
            print(f"{self._command}: {one_line(text)}", file=self._stream, flush=True)

    def note(self, text: str) -> None:
        """This is to be known when all is over, too."""
        self.doing(text)

    def enumerating(self, name: str, done: int, total: int) -> None:
        """The samples of a database's entry are being tried, behind *done* of *total* entries."""
        if not done or self._is_time:
            self.doing(f"{done}/{total} entries tried; at {name}")

    def _moved(self) -> None:
        """Show how far it is, if that is to be shown now."""
        if self._is_time:
            self._tell()

    def _tell(self) -> None:
        at = f"at {self._row}" if self._row else ""
        self.doing("; ".join(filter(None, (self._far, self._counts, self._left, at))))

    @property
    def _is_time(self) -> bool:
        return time.monotonic() - self._shown_at >= PLAIN_SECONDS

    def begin(self, total: int, done: int) -> None:
        """*done* of *total* observations were there already."""
        self._total, self._done, self._before = total, done, done
        self._started = self._shown_at = time.monotonic()
        self._moved()

    def further(self, count: int) -> None:
        """So many observations come that are beyond those planned; of another share some may still come."""
        if self._further == self._of_further:
            self._further = self._of_further = 0
        self._of_further += count

    def at(self, row: Row, what: str) -> None:
        """This row is being executed: "on, process 1", "cost", "overloads", or "invariance to batch"."""
        self._row = f"{row.id} ({what})"
        self._moved()

    def saw(self, verdict: Verdict | None) -> None:
        """It came out like this in one process; ``None``: what was measured is none of bits run to run."""
        if verdict is not None:
            self._verdicts[verdict] += 1
        if self._further < self._of_further:
            self._further += 1
        else:
            self._done += 1

    def end(self) -> None:
        """Nothing more will come."""
        self._row = ""
        if self._total:
            self._tell()

    @property
    def _counts(self) -> str:
        """``12 deterministic, 1 raises``, in the order of the reports."""
        seen = self._verdicts
        return ", ".join(f"{seen[verdict]} {verdict}" for verdict in VERDICT_MEANING if seen[verdict])

    @property
    def _far(self) -> str:
        """How many observations are made, and, while there are others, how many of those."""
        beyond = self._further < self._of_further
        more = f" (and {self._further}/{self._of_further} further ones)" if beyond else ""
        return f"{self._done}/{self._total} observations{more}"

    @property
    def _left(self) -> str:
        """How long the rest takes if it goes on like this; nothing before it is known."""
        made = self._done - self._before
        if not made or self._done >= self._total:
            return ""
        seconds = (time.monotonic() - self._started) / made * (self._total - self._done)
        if seconds < _MINUTE:
            return f"about {seconds:.0f} s left"
        minutes = round(seconds / _MINUTE)
        text = f"{minutes // 60} h {minutes % 60} min" if seconds >= _HOUR else f"{minutes} min"
        return f"about {text} left"


class _LiveProgress(Progress):
    """Three lines that renew themselves, drawn by rich: how far, what came out, what is being executed."""

    def __init__(self) -> None:
        # rich takes as long to import as the rest of the command line; only a terminal needs it.
        from rich.console import Console, Group  # noqa: PLC0415
        from rich.live import Live  # noqa: PLC0415
        from rich.progress import BarColumn, TextColumn  # noqa: PLC0415
        from rich.progress import Progress as Bar  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        super().__init__(sys.stderr)
        console = Console(stderr=True)
        # Markup in names is none of ours.
        self._bar = Bar(BarColumn(), TextColumn("{task.description}", markup=False), console=console)
        self._task = self._bar.add_task("", total=None)

        def drawn() -> Group:
            lines = [line for line in (self._counts, self._row) if line]
            return Group(
                self._bar, *(Text(one_line(line), no_wrap=True, overflow="ellipsis") for line in lines)
            )

        self._live = Live(get_renderable=drawn, console=console, refresh_per_second=8)

    def doing(self, text: str) -> None:
        self._row = text
        self._live.start()

    def note(self, text: str) -> None:
        self._live.console.print(one_line(text), markup=False, highlight=False)

    def enumerating(self, name: str, done: int, total: int) -> None:
        self._bar.update(self._task, total=total, completed=done, description=f"{done}/{total} entries tried")
        self.doing(f"{name} (trying its samples)")

    def begin(self, total: int, done: int) -> None:
        super().begin(total, done)
        self._live.start()

    def saw(self, verdict: Verdict | None) -> None:
        super().saw(verdict)
        self._moved()

    def end(self) -> None:
        self._row = ""
        self._live.stop()

    def _moved(self) -> None:
        words = ", ".join(filter(None, (self._far, self._left)))
        self._bar.update(self._task, total=self._total, completed=self._done, description=words)


def progress_for(command: str = "scan") -> Progress:
    """Return a live display if standard error is a terminal, plain lines that begin with *command* if not."""
    stream = sys.stderr
    return _LiveProgress() if stream.isatty() else Progress(stream, command)
