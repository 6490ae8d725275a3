"""An interpreter to give to ``--python`` in which no torch is needed: a stand-in takes the place of each worker."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from detmatrix.scanner.observations.runfile import Run
from tests.commands import scanned_in
from tests.stand_in_worker import BUILD

WORKER = Path(__file__).with_name("stand_in_worker.py")
# Of most scans by stand-ins: specs whose rows end in a moment.
QUICK = ("--specs", Path(__file__).with_name("quick.py"), "--device", "cpu")


class StandIn:
    """Workers that do what a test tells them to, and note what they are asked."""

    def __init__(
        self, folder: Path, *rules: Mapping[str, Any], build: Mapping[str, Any] | None = None
    ) -> None:
        """Write the interpreter into a folder, which may hold one.

        Each rule has ``then``, and what a request must be for it to hold: fields of the request, the ``mode``, or the number of
        the ``worker``, counted from 1. The first that fits holds; ``start`` is the hello. ``then`` is fields of the answer, or

        * ``"die"``, ``"exit"``, ``"hang"``, ``"close"`` (the pipes), ``"fork"`` (a child that keeps them open) and ``"garbage"``
          in place of an answer, perhaps behind ``"print and"`` or ``"daemon and"``, which starts processes in sessions of their own;
        * ``"stray"``, ``"unnumbered"``, ``"deep"`` and ``"long"`` before it, ``"twice"`` for two of them;
        * ``"taint"``, the answer of an op that left a flag behind, ``"vary"``, that of one that differs each time, and ``"race"``,
          of one that two threads work on and that differs each time under stress.

        ``wait`` names a file: the answer comes when it is gone; or it takes so many ``seconds``. *build* is what the hello says of
        torch, where it is not the usual.
        """
        self._folder = folder
        self._log = folder / "stand_in.log"
        script = folder / "stand_in.json"
        script.write_text(
            json.dumps({"rules": rules, "build": {**BUILD, **(build or {})}, "log": str(self._log)})
        )
        self.python = folder / "python"
        # What follows is ``-m detmatrix.scanner.worker`` and its options, as an interpreter gets them.
        command = shlex.join([sys.executable, "-ISB", str(WORKER), str(script)])
        # Its notes may be longer than the run file whose size a test limits.
        self.python.write_text(f'#!/bin/sh\nulimit -S -f unlimited\nexec {command} "$@"\n')
        self.python.chmod(0o755)

    def scanned(self, *words: object, code: int = 0) -> Run:
        """Scan in the folder with these workers, which ends with a code, and return the run."""
        return scanned_in(self._folder, *words, "--python", self.python, code=code)

    @property
    def noted(self) -> list[dict[str, Any]]:
        """What workers noted, in order: that they started (``do`` is ``start``), and each request."""
        return [json.loads(line) for line in self._log.read_text().splitlines()] if self._log.exists() else []

    @property
    def started(self) -> int:
        """How many workers there were."""
        return sum(one["do"] == "start" for one in self.noted)

    def asked(self, do: str) -> list[tuple[str, str]]:
        """Return the mode and the id of each row of which this was asked, controls aside."""
        return [
            (one["mode"], ":".join(one[name] for name in ("spec", "case", "direction", "dtype")))
            for one in self.noted
            if one["do"] == do and not one["spec"].startswith("control.")
        ]

    def forget(self) -> None:
        """Count from here on."""
        self._log.unlink(missing_ok=True)


def left(standing: StandIn) -> list[str]:
    """Return the command lines of the workers that are there, if some do not end within a while; reads /proc."""
    until = time.monotonic() + 10
    while (found := list(_using(standing))) and time.monotonic() < until:
        time.sleep(0.02)
    return found


def _using(standing: StandIn) -> Iterator[str]:
    script = str(standing.python.with_name("stand_in.json"))
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if script in (text := place.read_bytes().decode(errors="replace")):
                yield text
