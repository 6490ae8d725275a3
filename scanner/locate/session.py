"""One program under observation: the mode around it, the sentinel before and behind it, and what is told in the end."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from scanner.locate.mode import LocateMode
from scanner.locate.sentinel import ask_sentinel
from scanner.located import Located, SentinelSeen


@dataclass(frozen=True)
class LocateSettings:
    """What a program is observed with."""

    replays: int = 4
    max_bytes: int = 1 << 30
    ignored: tuple[str, ...] = ()


class Session:
    """Observes what is called between ``start`` and ``stop``."""

    def __init__(self, settings: LocateSettings) -> None:
        self.mode = LocateMode(
            replays=settings.replays, max_bytes=settings.max_bytes, ignored=frozenset(settings.ignored)
        )
        self._sentinels: list[SentinelSeen] = []
        self._compiled: dict[str, None] = {}
        self._began = 0.0
        self._process = os.getpid()

    def start(self) -> None:
        """Begin."""
        self._ask("cpu")
        os.register_at_fork(after_in_child=self._pause)
        self._began = time.perf_counter()
        self.mode.places.start()
        self.mode.__enter__()

    def _pause(self) -> None:
        """Let a forked process, such as a worker of a data loader, run its ops alone."""
        self.mode.paused = True

    def stop(self) -> None:
        """End; ask the sentinel of each kind of device that was used."""
        self.mode.__exit__(None, None, None)
        self.mode.places.stop()
        self.seconds = time.perf_counter() - self._began
        self._ask("cpu")
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            self._ask("cuda")

    def _ask(self, device: str) -> None:
        self._sentinels.append(ask_sentinel(device))

    def located(self, ended: str | None = None) -> Located:
        """Return what was found."""
        mode = self.mode
        return Located(
            torch=torch.__version__,
            python=platform.python_version(),
            threads=torch.get_num_threads(),
            devices=tuple(mode.devices),
            replays=mode.replays,
            ops=mode.ops,
            replayed=mode.replayed,
            seconds=self.seconds,
            left_out=dict(mode.left_out),
            left_out_ops={reason: tuple(names) for reason, names in mode.left_out_ops.items()},
            compiled=tuple(self._compiled),
            sentinels=tuple(self._sentinels),
            roots=mode.found(),
            ended=ended,
        )


_Function = Callable[[], Any]
