# ruff: noqa: RUF001 - the sign for "times" is not an x.
"""What a terminal shows of run files: colours, names that are cut, width; tests/test_goldens.py holds every text to the width."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from detmatrix.reports.matrix import rows as costs
from detmatrix.reports.matrix.model import load
from detmatrix.reports.render import NARROW as WIDTH
from detmatrix.reports.render import fitted
from detmatrix.reports.report import text as terminal
from detmatrix.scanner.observations.records import MODES, WORKER_MODES, Closing, Group, Mode, Output, Timing
from detmatrix.scanner.verdicts.cells import cell_of
from tests import tied
from tests.evidence_runs import FORCING, ONE, SEVERITY, controls, cost, one_row, only, quiet_row, text, under
from tests.runs import CLOSING, RUNS, Planned, drifting, raised, ran, row, stable, write_run

ROOT = Path(__file__).parent.parent
RUN = ROOT / "reports" / "runs" / "torch-2.13.0-cpu.jsonl.gz"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a run file that shows every finding and every verdict."""
    return write_run(tmp_path / "run.jsonl")


def test_colour_is_for_terminals_that_want_it(run: Path) -> None:
    """On a terminal the text is the default, in colour unless NO_COLOR asks for none; colours change no text."""

    def shown(**variables: str) -> str:
        leader, follower = os.openpty()
        command = [sys.executable, "-m", "detmatrix", "report", str(run)]
        done = tied.run(
            command, stdout=follower, capture_output=False, env=os.environ | {"TERM": "xterm"} | variables
        )
        os.close(follower)
        assert done.returncode == 0
        printed = b""
        # Linux says that all was read, and that nobody writes any more, by an error.
        with contextlib.suppress(OSError):
            while some := os.read(leader, 1 << 16):
                printed += some
        os.close(leader)
        return printed.decode().replace("\r\n", "\n")

    plain, coloured = shown(NO_COLOR="1"), shown(NO_COLOR="")
    assert plain == "".join(terminal.render(load([str(run)])))
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (("torch.take", "torch.nn.Conv2d"), ["torch.take", "…nn.Conv2d"]),
        (("Tensor.index_put", "torch.index_put"), ["Tensor.index_put", "torch.index_put"]),
        (("a.scatter_add", "torch.scatter_add_"), ["…scatter_add", "…scatter_add_"]),
        (("torch.fractional_max_pool2d",), ["…fractional_max_pool2d"]),
        (("torch." + "long" * 40,), ["…" + "longlonglonglonglonglonglong"[-21:]]),
    ],
)
def test_names_are_cut_at_dots_and_never_read_the_same(names: tuple[str, ...], shown: list[str]) -> None:
    """What would read like another name stays whole; only a part without an end is cut within."""
    assert [*fitted(names, 12, 22).values()] == shown


def test_a_wide_terminal_is_used() -> None:
    """Actions of several releases are whole; costs stand beside them in 140 columns, and in 80 are said to be left out."""
    (new,) = load([str(RUN)])
    older = replace(new.run.header.environment, torch="2.12.0")
    old = replace(new, run=replace(new.run, header=replace(new.run.header, environment=older)))
    both = [old, new]
    narrow, wide = ("".join(terminal.render(both, width=width)) for width in (WIDTH, 140))

    assert all("set the flag: it fills memory" in shown for shown in (narrow, wide))
    assert (" COST " in wide, " COST " in narrow, "left out: costs:" in narrow) == (True, False, True)
    assert max(map(len, wide.splitlines())) <= 140


def test_a_wide_terminal_has_what_rows_show(run: Path) -> None:
    """In 160 columns each line ends in how many of the rows of its op show what, in 80 there is no room for that."""
    narrow, wide = ("".join(terminal.render(load([str(run)]), width=width)) for width in (WIDTH, 160))

    assert [" ROWS\n" in shown for shown in (narrow, wide)] == [False, True]
    assert re.search(r"put_ .* no fix: raises +1 raises of 1\n", wide)
    assert max(map(len, wide.splitlines())) <= 160


# --- What the flag costs and how far outputs lie apart, in words.


def test_a_cost_whose_quartiles_overlap_is_not_slow(tmp_path: Path) -> None:
    """Twice as long in the median, and maybe not at all: not counted."""
    planned = quiet_row(row("torch.op"))
    wide = replace(cost(planned[0], 1e-3, 2.5e-3), on=Timing(median=2.5e-3, low=0.9e-3, high=4e-3))
    (shown,) = only(write_run(tmp_path / "r.jsonl", [planned], costs=[wide])).rows

    assert costs.costs_words([shown]).startswith("0 of 1 timed rows shown here take at least twice as long")
    assert costs.cost_words(shown) == "≈2.50×"


def test_the_worst_of_each_measure_counts() -> None:
    """Joined over processes and outputs each measure is the largest known; nothing known stays nothing."""
    far = replace(SEVERITY, max_abs=None, max_ulp=9, v_c=0.5, differing_elements=50)
    outputs = [
        Output(name="output", shape=(192,), dtype="float32", differing=1, severity=severity)
        for severity in (SEVERITY, far, None)
    ]
    processes = [replace(ran(ONE, "off", {"a": 2})[0], outputs=(output,)) for output in outputs]
    found = replace(SEVERITY, examined=6, v_c=0.5, differing_elements=50)

    assert cell_of(processes).outputs == (replace(outputs[0], differing=3, severity=found),)
    assert cell_of(processes).severity == cell_of([*reversed(processes)]).severity == found
    assert cell_of(processes[2:]).severity is None


def test_first_differing_execution_is_the_earliest() -> None:
    """Of several processes the earliest execution counts, and its process is named."""
    seen = ran(ONE, "off", {"a": 9, "b": 1}, {"a": 4, "b": 6}, {"a": 10})

    assert cell_of(seen).first_differing == (4, 1)
    assert cell_of(seen[2:]).first_differing is None


@pytest.mark.parametrize(
    ("counts", "message"),
    [((1,), "other bits with 1 thread"), ((2, 8), "other bits with 2 and 8 threads"), ((), "1 distinct")],
)
def test_other_thread_counts_are_no_nondeterminism(
    tmp_path: Path, counts: tuple[int, ...], message: str
) -> None:
    """Other bits under another thread count are told, and the cell stays deterministic."""
    apart = tuple(
        Group(perturbation=f"threads={count}", executions=5, differing=0, digests={f"t{count}": 5})
        for count in counts
    )
    groups = (*under(quiet=(RUNS, 0)), *apart)
    found = one_row(tmp_path, [*ran(ONE, "off", *stable(), groups=groups), *ran(ONE, "on", *stable())])

    assert found.off.words.endswith(message)
    assert found.off.words.startswith("deterministic: 0 of ")
    racing = one_row(tmp_path / "racing", ran(ONE, "off", *drifting(2), groups=groups))
    assert racing.off.words.endswith(" 2 distinct")
    assert set(racing.off.other_threads) == {group.perturbation for group in apart}


# --- Whether a scan can be trusted: what its controls and its closing line say; ``tests/golden/report-blind.*`` shows it in words.

BLIND = (
    "the control varies in process 1 of mode off should show 50 distinct of 50, and shows 1 distinct of 50"
)
CONSTANT, (VARIES, SEEN) = controls()
PARTLY = VARIES, [one for one in SEEN if (one.mode, one.process) != ("on", 1)]
OTHER_INPUTS = (
    ONE,
    [
        *ran(ONE, "off", *stable()),
        *(replace(one, inputs_digest="o" * 8) for one in ran(ONE, "on", *stable())),
    ],
)
INPUTS = tuple(
    f"the inputs of {ONE.id} in process {process} of mode on are not those of the first process"
    for process in range(2)
)
FORCED = ONE, [*ran(ONE, "off", *stable()), *raised(ONE, "on", "x"), *ran(ONE, "warn_only", *stable())]


def _stored(*distrust: str) -> Closing:
    return replace(CLOSING, distrust=distrust)


def _seen_in(planned: Planned, modes: Sequence[Mode]) -> Planned:
    """Return a control without what was observed of it in other modes."""
    return planned[0], [one for one in planned[1] if one.mode in modes]


@pytest.mark.parametrize(
    ("rows", "asked", "closing", "distrust"),
    [
        # Before the closing line says so, the controls' observations do.
        (quiet_row(), controls("blind"), None, (BLIND,)),
        # What the closing line says stands first, and nothing twice.
        (OTHER_INPUTS, controls("blind"), CLOSING, (*INPUTS, BLIND)),
        (OTHER_INPUTS, controls("blind"), _stored("a reason", BLIND), ("a reason", BLIND, *INPUTS)),
        # An unfinished scan may go on; a finished one has passed a control over.
        (quiet_row(), [CONSTANT, PARTLY], None, ()),
        (quiet_row(), [CONSTANT, PARTLY], CLOSING, ("the control varies was not observed in process 1 of mode on",)),
    ],
)  # fmt: skip
def test_a_scan_is_distrusted_for_what_it_shows(
    tmp_path: Path,
    rows: Planned,
    asked: list[Planned],
    closing: Closing | None,
    distrust: tuple[str, ...],
) -> None:
    """Controls, inputs and the closing line; the page's title says it."""
    path = write_run(tmp_path / "r.jsonl", [rows], controls=asked, closing=closing)

    assert only(path).distrust == distrust
    assert text("html", path).count("<title>NOT TRUSTWORTHY: ") == bool(distrust)


def test_only_processes_that_observed_rows_owe_controls(tmp_path: Path) -> None:
    """A mode in which no row was observed owes none; one in which rows were run under warn_only owes all."""
    both = [_seen_in(control, MODES) for control in controls(modes=WORKER_MODES)]
    quiet, made = (
        only(write_run(tmp_path / f"{place}.jsonl", [rows], settings=FORCING, controls=both)).distrust
        for place, rows in enumerate((quiet_row(), FORCED))
    )

    assert quiet == ()
    assert {message.split(" in ")[1] for message in made} == {
        "process 0 of mode warn_only",
        "process 1 of mode warn_only",
    }
