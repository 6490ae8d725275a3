"""Every way a command can end, each with its exit code.

    DetmatrixError
    ├── UsageError (2)        what was asked cannot be done: a pattern, a number, a folder, a device
    ├── RunFileError (3)      a run file cannot be read
    ├── BuildError (3)        a build of cuDNN, or a table of its engines, cannot be read
    └── UntrustedScanError (4)  the scan cannot be trusted

A message says what happened, where, and what to do.
"""

from __future__ import annotations

import signal

EXIT_DONE = 0
EXIT_CHECK_FAILED = 1
EXIT_USAGE = 2
EXIT_RUN_FILE = 3
EXIT_UNTRUSTED = 4
EXIT_INTERRUPTED = 130


def one_line(text: str) -> str:
    """Join lines, and spell out what a terminal could take for a command: errors of ops and run files are quoted."""
    return _spelled(" ".join(text.split()))


def safe_lines(text: str) -> str:
    """Spell out what a terminal could take for a command, and keep the lines and their ends."""
    return "\n".join(map(_spelled, text.split("\n")))


def _spelled(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def ending(error: BaseException) -> str:
    """Return an exception as Python names it."""
    return f"{type(error).__name__}: {error}".rstrip(": ")


def signal_name(number: int) -> str:
    """Return what a signal that ended a process is called; those of real time have no names."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class DetmatrixError(Exception):
    """Base of the errors a user sees as one line."""

    exit_code = EXIT_USAGE


class UsageError(DetmatrixError):
    """What was asked cannot be done."""


class RunFileError(DetmatrixError):
    """A run file cannot be read."""

    exit_code = EXIT_RUN_FILE


class BuildError(DetmatrixError):
    """A build of cuDNN, or a table of its engines, cannot be read."""

    exit_code = EXIT_RUN_FILE


class UntrustedScanError(DetmatrixError):
    """The scan cannot be trusted: no worker could start, or inputs differed between processes."""

    exit_code = EXIT_UNTRUSTED
