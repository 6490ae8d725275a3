"""What progress tells: what goes on, how far in which unit, of a total that stays, and how long it takes."""

from __future__ import annotations

import io
import time

import pytest

from detmatrix.scanner.run.progress import PlainProgress
from tests.runs import row

ROW = row("torch.take")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let time pass as the test says."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_plain_lines(clock: list[float]) -> None:
    """What begins is said at once; the total stays whatever else has to be measured, and so does the estimate its unit."""
    stream = io.StringIO()
    plain = PlainProgress(stream)
    plain.doing("starting torch: python")
    plain.begin(400, 0)
    for _ in range(100):
        clock[0] += 1
        plain.at(ROW, "on, process 0")
        plain.saw("deterministic")
    plain.further(50)
    for _ in range(50):
        clock[0] += 1
        plain.at(ROW, "warn_only, process 0")
        plain.saw("nondeterministic")
    plain.at(ROW, "cost")
    plain.saw(None)
    plain.end()

    lines = stream.getvalue().splitlines()
    assert lines[0] == "scan: starting torch: python"
    assert lines[1].startswith("scan: 9/400 observations; 9 deterministic; about 7 min left; at torch.take:")
    assert any(
        "100/400 observations (and 49/50 further ones); 100 deterministic, 49 non" in line for line in lines
    )
    assert lines[-1] == "scan: 101/400 observations; 100 deterministic, 50 nondeterministic; about 7 min left"
    assert all("/400 observations" in line for line in lines[1:])
