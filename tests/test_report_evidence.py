"""What verdicts rest on, in every report: controls, power, constants, perturbations, severity, warn_only."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt
from msgspec.structs import replace

from reports import evidence, markdown, perturbations, words
from reports.cli import RENDERERS
from reports.matrix import load, outputs_of
from reports.severity import distance, first_differing, worst
from scanner.perturb import DEFAULT, PERTURBATIONS
from scanner.records import MODES, WORKER_MODES, Closing, Group, Mode, Observation, Output, Row, Settings
from scanner.verdicts import MatrixRow
from tests.evidence_runs import (
    FORMS,
    ONE,
    SEVERITY,
    controls,
    cost,
    evidence_run,
    only,
    rows_of,
    sentinel,
    table_of,
    text,
    under,
)
from tests.runs import RUNS, Planned, drifting, ended, raised, ran, row, stable, write_run

SETTINGS = Settings(patterns=(), device="cpu", runs=RUNS, processes=2, timeout=60.0, seed=0)
FORCING = replace(SETTINGS, modes=("off", "on", "warn_only"))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a run file that shows all kinds of evidence."""
    return evidence_run(tmp_path / "run.jsonl")


def one_row(path: Path, observations: Sequence[Observation]) -> MatrixRow:
    """Return the one row of a run."""
    path.mkdir(exist_ok=True)
    return only(write_run(path / "one.jsonl", [(ONE, observations)], settings=FORCING)).rows[0]


def quiet_row(planned: Row = ONE) -> Planned:
    return planned, [*ran(planned, "off", *stable()), *ran(planned, "on", *stable())]


# Controls and trust.


def test_controls_are_tabled(run: Path) -> None:
    """Each control is told with what it must answer and what it did, once for the processes that agree."""
    line = "| varies    | on        | 0-1         | 50 distinct of 50 | 50 distinct of 50 | yes     |"

    assert line in text("md", run)
    assert "<td>varies</td><td>on</td><td>0-1</td><td>50 distinct of 50</td>" in text("html", run)
    assert "each answered as it must" in text("md", run)
    told = json.loads(text("json", run))["controls"]
    assert len(told) == 12
    assert told[0] == {
        "control": "constant",
        "mode": "off",
        "process": 0,
        "expected": "0 of 50 differed",
        "seen": "0 of 50 differed",
        "ok": True,
    }


def test_disagreeing_processes_of_a_control_are_told_apart(tmp_path: Path) -> None:
    """A control that is right in one process and wrong in another has a line for each."""
    lines = evidence.control_lines(only(write_run(tmp_path / "r.jsonl", controls=controls("blind"))))

    assert [
        (line.mode, line.processes, line.seen, line.ok) for line in lines if line.control == "varies"
    ] == [
        ("off", "0", "50 distinct of 50", "yes"),
        ("off", "1", "1 distinct of 50", "no"),
        ("on", "0-1", "50 distinct of 50", "yes"),
    ]


def test_an_unfinished_scan_with_a_wrong_control_is_not_trustworthy(tmp_path: Path) -> None:
    """Before the closing line says so, the controls' observations do, and no row can be read without it."""
    path = write_run(tmp_path / "r.jsonl", [quiet_row()], controls=controls("blind"), closing=None)
    reason = "the control varies in process 1 of mode off should show 50 distinct of 50, and shows 1 distinct of 50"
    told, page = text("md", path), text("html", path)

    assert only(path).distrust == (reason,)
    assert f"> [!CAUTION]\n> **Not trustworthy: {reason}**" in told.split("| finding")[0]
    assert "| deterministic (n = 100 per mode), not trustworthy |" in told
    assert "| 1 distinct of 50  | **no** " in told
    assert '<td class="untrusted">no</td>' in page
    assert "<title>NOT TRUSTWORTHY: detmatrix" in page
    assert '<h1>Nondeterminism matrix<span class="untrusted">, not trustworthy</span></h1>' in page
    assert '<span class="untrusted">not trustworthy</span></td>' in page
    assert table_of(path)["torch.cumsum"]["distrust"] == reason


def test_a_trustworthy_scan_is_never_called_otherwise(run: Path) -> None:
    """Where nothing is against a scan no report says the word, but as an absence."""
    assert not any("not trustworthy" in text(form, run).lower() for form in FORMS)
    assert table_of(run)["torch.cumsum"]["distrust"] == "NA"


def test_runs_are_trusted_each_by_itself(tmp_path: Path, run: Path) -> None:
    """Beside a run that can be trusted another's rows are marked, and the page's title says that some are."""
    closing = Closing(seconds=1, load=(), observations=0, distrust=("no reason",))
    bad = write_run(tmp_path / "bad.jsonl", [quiet_row()], closing=closing)
    page = text("html", run, bad)

    assert ", not all of it trustworthy" in page
    assert page.count('<span class="untrusted">not trustworthy</span></td>') == 1


def test_an_excerpt_says_first_that_it_cannot_be_trusted(tmp_path: Path) -> None:
    """Where a few rows stand in another page they carry the same marks."""
    closing = Closing(seconds=1, load=(), observations=0, distrust=("a control was wrong",))
    path = write_run(tmp_path / "r.jsonl", [quiet_row()], closing=closing)
    told = "".join(markdown.excerpt([only(path)]))

    assert told.startswith("**Not trustworthy: a control was wrong**\n")
    assert "1 rows, found by a scan that is not trustworthy: 1 deterministic." in told
    assert "per mode), not trustworthy |" in told


@pytest.mark.parametrize("form", FORMS)
def test_a_run_without_controls_says_so(tmp_path: Path, form: str) -> None:
    """A file of format 1 had none; a newer one may have planned none."""
    old = write_run(tmp_path / "old.jsonl", [quiet_row()], format_=1)
    new = write_run(tmp_path / "new.jsonl", [quiet_row()])

    assert "No controls: scanned before detmatrix had them." in text(form, old)
    assert "No controls: none were planned." in text(form, new)
    assert "no sentinel: nothing shows whether anything could race" in text(form, old)


def test_a_control_that_was_never_reached_is_not_passed_over(tmp_path: Path) -> None:
    """A planned control without an observation has a line that says so."""
    (constant, seen), (varies, _) = controls()
    path = write_run(tmp_path / "r.jsonl", controls=[(constant, seen), (varies, [])], closing=None)

    assert (
        "| varies    | any    | none        | an answer        | not observed     | **not known** |"
        in text("md", path)
    )
    assert "each answered as it must; 1 not observed" in text("md", path)


def seen_in(planned: Planned, modes: Sequence[Mode]) -> Planned:
    """Return a control without what was observed of it in other modes."""
    return planned[0], [one for one in planned[1] if one.mode in modes]


def test_a_finished_scan_is_distrusted_for_what_it_shows(tmp_path: Path) -> None:
    """Where the closing line says nothing the observations do; what it says stands first, and nothing twice."""
    wrong = "the control varies in process 1 of mode off should show 50 distinct of 50, and shows 1 distinct of 50"
    other = [replace(one, inputs_digest="o" * 8) for one in ran(ONE, "on", *stable())]
    inputs = [
        f"the inputs of {ONE.id} in process {process} of mode on are not those of the first process"
        for process in range(2)
    ]

    def distrust(*stored: str) -> tuple[str, ...]:
        closing = Closing(seconds=1, load=(), observations=0, distrust=stored)
        planned = [(ONE, [*ran(ONE, "off", *stable()), *other])]
        return only(
            write_run(tmp_path / f"{len(stored)}.jsonl", planned, controls=controls("blind"), closing=closing)
        ).distrust

    assert distrust() == (*inputs, wrong)
    assert distrust("the worker was replaced", wrong) == ("the worker was replaced", wrong, *inputs)


def test_a_control_that_was_passed_over_is_distrust(tmp_path: Path) -> None:
    """A finished scan that observed rows where a control is missing is not trustworthy; an unfinished one may go on."""
    constant, (varies, seen) = controls()
    partly = [one for one in seen if (one.mode, one.process) != ("on", 1)]
    path = write_run(tmp_path / "r.jsonl", [quiet_row()], controls=[constant, (varies, partly)])
    begun = write_run(
        tmp_path / "b.jsonl", [quiet_row()], controls=[constant, (varies, partly)], closing=None
    )
    told = text("md", path)

    assert only(path).distrust == ("the control varies was not observed in process 1 of mode on",)
    assert only(begun).distrust == ()
    assert "| varies    | on     | 1           | an answer " in told
    assert "; 1 not observed, so nothing below is trustworthy." in told


def test_only_processes_that_observed_rows_owe_controls(tmp_path: Path) -> None:
    """A mode in which no row was observed owes none; one in which rows were made to run owes all."""
    forced = ONE, [*ran(ONE, "off", *stable()), *raised(ONE, "on", "x"), *ran(ONE, "warn_only", *stable())]
    both = [seen_in(control, MODES) for control in controls(modes=WORKER_MODES)]
    quiet = write_run(tmp_path / "q.jsonl", [quiet_row()], settings=FORCING, controls=both)
    made = write_run(tmp_path / "m.jsonl", [forced], settings=FORCING, controls=both)

    assert only(quiet).distrust == ()
    assert len(only(made).distrust) == 4
    assert {told.split(" in ")[1] for told in only(made).distrust} == {
        "process 0 of mode warn_only",
        "process 1 of mode warn_only",
    }


# Power.


def test_low_power_is_marked_in_every_report(run: Path) -> None:
    """The row beside the sentinel that hardly differed is marked with the reason; the others are not."""
    reason = "the sentinel (torch.index_put) differed in 2 of 11 executions beside it (mode off, process 1, load 0.5)"
    told, page = text("md", run), text("html", run)

    assert (
        f"Low power: 1 of 6 rows did not differ in a mode in which hardly anything could race: {reason}"
        in told
    )
    assert "| deterministic (n = 100 per mode), low power |" in told
    assert told.count(", low power |") == 1
    assert f"* {reason}: 1 shown: `torch.cumsum:n_d:forward:float32`\n" in told
    assert page.count('<a class="weak" href="#power-0-0">low power</a>') == 1
    assert f'<li id="power-0-0" tabindex="-1">1 row: {reason}</li>' in page
    assert '<p class="alarm low_power"' in page
    assert {spec: one["low_power"] for spec, one in rows_of(run).items()} == {
        "torch.Tensor.scatter_add_": None,
        "torch.Tensor.put_": None,
        "torch.topk": None,
        "torch.empty": None,
        "torch.nn.Conv2d": None,
        "torch.cumsum": reason,
    }
    assert [table_of(run)[spec]["low_power"] for spec in ("torch.cumsum", "torch.topk")] == [reason, "NA"]
    assert json.loads(text("json", run))["low_power"] == {reason: 1}


def test_many_rows_of_low_power_are_counted(tmp_path: Path) -> None:
    """The most frequent reason is told first and names ten rows; counts are those of the whole scan."""
    planned = [quiet_row(row(f"torch.op{number}")) for number in range(14)]
    path = write_run(
        tmp_path / "r.jsonl",
        planned,
        sentinels=[sentinel(before=0, differing=0), sentinel(before=12), sentinel("on", 0, 13, 1)],
    )
    (one,) = load([str(path)], patterns=("torch.op1*:*",))
    told = "".join(RENDERERS["md"]([one]))

    assert list(one.weak.values()) == [12, 2]
    assert "Low power: 14 of 14 rows did not differ" in told
    assert "(12 rows), and 1 more reason" in told
    assert "load 0.5): 3 shown: `torch.op1:collisions:forward:float32`, `torch.op10:" in told
    assert (
        "`torch.op9:collisions:forward:float32` and 2 more, marked in the tables\n"
        in text("md", path).split("## Low power")[1]
    )


def test_hostile_evidence_stays_text(tmp_path: Path) -> None:
    """Names of perturbations, sentinels, alerts and constants from a run file are neither markup nor elements."""
    bad = "<b>x</b> | **y** [l](http://e) `z`"
    one = row("torch.op", constant=bad)
    digests = {"o": 5}
    groups = (*under(quiet=(RUNS, 0)), Group(perturbation=bad, executions=5, differing=0, digests=digests))
    still = [o for mode in MODES for o in ran(one, mode, *stable(), blank="zeros", groups=groups)]
    loud = row("torch.loud")
    seen = [
        *ran(loud, "off", *stable()),
        *raised(loud, "on", bad),
        *ran(loud, "warn_only", *drifting(), alerts=(bad,)),
    ]
    path = write_run(
        tmp_path / "r.jsonl",
        [(one, still), (loud, seen)],
        settings=replace(FORCING, perturb=(bad,)),
        sentinels=[replace(sentinel(differing=0), op=bad)],
        costs=[cost(one, 1e-5, 9e-5)],
        controls=[quiet_row(row(f"control.{bad}"))],
        closing=None,
    )
    told, page = text("md", path), text("html", path)
    tokens = MarkdownIt("commonmark").enable("table").parse(told)
    inline = [token for outer in tokens for token in [outer, *(outer.children or [])]]

    assert not [token for token in inline if token.type in ("html_block", "html_inline", "link_open")]
    assert not [token for token in inline if "x" in token.content and token.type == "strong_open"]
    assert "<b>x" not in page
    assert page.count("<script") == 4
    lines = [line.replace("\\|", "") for line in told.splitlines() if line.startswith("| `torch.")]
    assert [line.count("|") for line in lines if "float32 |" in line] == [10, 10]


def test_sentinels_are_summed_up(run: Path) -> None:
    """How many checks there were, the lowest and the median share that differed, by mode and process."""
    assert (
        "| off    | 1         | torch.index_put | 3        | 20 %     | 100 %    | 1               |"
        in text("md", run)
    )
    for form in FORMS:
        told = text(form, run).replace("torch.index\\_put", "torch.index_put")
        assert (
            "12 checks of torch.index_put: 100 % of the executions differed in the median, 20 % at the lowest; "
            "1 without power (below 50 %)"
        ) in told
    assert len(json.loads(text("json", run))["sentinels"]) == 12


# Constants, n, perturbations.


def test_a_constant_does_not_lean_on_its_n(run: Path) -> None:
    """A result that holds no information is called constant, with the reason and without a bound."""
    told = rows_of(run)["torch.empty"]

    assert "| deterministic (constant: the flag fills it) |" in text("md", run)
    assert "| deterministic: 0 of 100 differed, constant |" in text("md", run)
    assert "</b> <span>constant: the flag fills it</span></td>" in text("html", run)
    assert (told["constant"], told["off"]["constant"], told["off"]["upper_bound"]) == (
        "the flag fills it",
        True,
        None,
    )
    assert table_of(run)["torch.empty"]["constant"] == "the flag fills it"
    assert table_of(run)["torch.empty"]["off_upper_bound"] == "NA"
    assert rows_of(run)["torch.cumsum"]["constant"] is None


def test_constants_bound_nothing_in_words(tmp_path: Path) -> None:
    """The n of a constant is not among those that the bound is told for."""
    empty = row("torch.empty", constant="filled")
    path = write_run(
        tmp_path / "r.jsonl",
        [
            (empty, [o for mode in ("off", "on") for o in ran(empty, mode, {"a": 7}, blank="nan")]),
            quiet_row(),
        ],
    )

    assert "95 % confidence: 2.95 % for n = 100. That" in text("md", path)


@pytest.mark.parametrize(
    ("changes", "format_", "said", "unsaid"),
    [
        ({}, 1, "they were not perturbed. Where", "ten executions"),
        (
            {},
            2,
            "a cell's n counts what was executed, so that k of n of such a cell is an order of magnitude, not an unbiased",
            "or a case",
        ),
        (
            {"perturb": ("quiet", "poison")},
            2,
            f"shared among quiet (nothing is done) and poison ({PERTURBATIONS['poison'].meaning}).",
            "stress",
        ),
        ({"perturb": ("future",)}, 2, "they were all future (unknown to this detmatrix).", "shared"),
        (
            {"confidence": 0.99, "max_rate": 0.001},
            2,
            "a difference in 0.1 % of the executions would be seen with a probability of 99 %.",
            "or a case",
        ),
        ({"max_time": 2.5}, 2, "or a case has run for 2.5 s in it;", "probability"),
    ],
)
def test_n_is_explained(
    tmp_path: Path, changes: dict[str, Any], format_: int, said: str, unsaid: str
) -> None:
    """What shares the executions, what n was chosen for, and what ends them early is told with n."""
    settings = replace(SETTINGS, **changes)
    shares = dict.fromkeys(settings.perturb, (RUNS // len(settings.perturb), 0))
    groups = under(**shares) if format_ > 1 else ()
    planned = ONE, [o for mode in MODES for o in ran(ONE, mode, *stable(), groups=groups)]
    path = write_run(tmp_path / "r.jsonl", [planned], settings=settings, format_=format_)
    told = words.n_words(only(path))

    assert said in told
    assert unsaid not in told


def under_run(path: Path, asked: Sequence[str], *groups: tuple[Group, ...]) -> Path:
    """Write a run that asked for perturbations, with a row for each of some groups of executions."""
    planned: list[Planned] = []
    for number, of_row in enumerate(groups):
        one = row(f"torch.op{number}")
        planned.append((one, [o for mode in MODES for o in ran(one, mode, *stable(), groups=of_row)]))
    return write_run(path, planned, settings=replace(SETTINGS, perturb=tuple(asked)))


@pytest.mark.parametrize(
    ("groups", "said", "unsaid"),
    [
        (
            [under(quiet=(50, 0), stress=(0, 0))],
            "they were all quiet (nothing is done). Asked for but had no share: stress, shift, poison. A process",
            "shared among",
        ),
        (
            [under(quiet=(50, 0)), under(quiet=(25, 0), poison=(25, 0))],
            "Asked for but had no share: stress, shift. A process",
            "stress (",
        ),
        (
            [under(quiet=(20, 0), stress=(10, 0), shift=(10, 0), poison=(10, 0))],
            "they were shared among quiet (nothing is done), stress (",
            "Asked for",
        ),
        (
            [()],
            "no perturbation of theirs is on record (asked for: quiet, stress, shift, poison).",
            "shared among",
        ),
        (
            [],
            "no perturbation of theirs is on record (asked for: quiet, stress, shift, poison).",
            "shared among",
        ),
    ],
)
def test_only_perturbations_that_ran_are_claimed(
    tmp_path: Path, groups: list[tuple[Group, ...]], said: str, unsaid: str
) -> None:
    """What shares the executions is read off the rows shown; what was asked for and never ran is told as that."""
    told = words.n_words(only(under_run(tmp_path / "r.jsonl", DEFAULT, *groups)))

    assert said in told
    assert unsaid not in told


def test_rows_that_are_left_out_claim_no_perturbation(tmp_path: Path) -> None:
    """Of a report of some rows only the perturbations of those are told."""
    path = under_run(
        tmp_path / "r.jsonl", ("quiet", "stress"), under(quiet=(25, 0), stress=(25, 0)), under(quiet=(50, 0))
    )
    (one,) = load([str(path)], patterns=("torch.op1:*",))

    assert "Asked for but had no share: stress." in words.n_words(one)
    assert "Asked for" not in words.n_words(only(path))


def test_other_thread_counts_are_no_part_of_n(tmp_path: Path) -> None:
    """Executions with another thread count share no n, and it is said when there were any."""
    apart = Group(perturbation="threads=1", executions=5, differing=0, digests={"t": 5})
    told = words.n_words(
        only(under_run(tmp_path / "r.jsonl", ("quiet", "threads"), (*under(quiet=(50, 0)), apart)))
    )
    never = words.n_words(only(under_run(tmp_path / "n.jsonl", ("quiet", "threads"), under(quiet=(50, 0)))))

    assert "they were all quiet (nothing is done). Executions with another thread count (" in told
    assert "are no part of n unless they differ among themselves." in told
    assert "Asked for" not in told
    assert "another thread count" not in never
    assert "Asked for but had no share: threads." in never


@pytest.mark.parametrize(
    ("groups", "where"),
    [
        (under(quiet=(25, 0), stress=(25, 1)), "only under stress"),
        (under(quiet=(20, 2), stress=(10, 0), shift=(10, 1), poison=(10, 1)), "not under stress"),
        (under(quiet=(20, 0), stress=(10, 1), shift=(10, 0), poison=(10, 1)), "only under stress and poison"),
        (under(quiet=(48, 1), stress=(2, 0)), None),
        (under(quiet=(47, 1), stress=(3, 0)), "only under quiet"),
        (under(quiet=(25, 1), stress=(25, 1)), None),
        (under(quiet=(50, 2)), None),
        ((), None),
        (
            (
                *under(quiet=(50, 2)),
                Group(perturbation="threads=1", executions=5, differing=0, digests={"t": 5}),
            ),
            None,
        ),
    ],
)
def test_what_only_some_perturbations_reveal(
    tmp_path: Path, groups: tuple[Group, ...], where: str | None
) -> None:
    """A row that differs under one perturbation and in five executions of two processes under another does not."""
    found = one_row(tmp_path, [*ran(ONE, "off", *drifting(3), groups=groups), *ran(ONE, "on", *stable())])

    assert [it.where for it in perturbations.revealed([found])] == ([where] if where else [])


def test_what_only_some_perturbations_reveal_is_listed(tmp_path: Path, run: Path) -> None:
    """Markdown and page list such rows with their counts, and say in a line where there are none or none is known."""
    quiet = under_run(tmp_path / "q.jsonl", DEFAULT, under(quiet=(25, 0), poison=(25, 0)))
    unknown = under_run(tmp_path / "u.jsonl", ("quiet",), under(quiet=(50, 0)))
    heading = "Rows that only some perturbations reveal"
    told, page = text("md", run), text("html", run)

    assert f"## {heading}\n" in told
    assert (
        "| `torch.Tensor.scatter_add_:collisions:forward:float32` | off    | only under stress | quiet 0 of 50, stress 6 "
        "of 50 |\n"
    ) in told
    assert (
        "<td>torch.Tensor.scatter_add_:collisions:forward:float32</td><td>off</td><td>only under stress</td>"
        "<td>quiet 0 of 50, stress 6 of 50</td>"
    ) in page
    for form in FORMS:
        assert heading in text(form, quiet)
        assert "None: no row that differed kept the same bits in 5 or more executions" in text(form, quiet)
        assert "None is known: these rows ran under no perturbation but quiet" in text(form, unknown)


def test_settings_have_words(tmp_path: Path) -> None:
    """Shares, seconds and switches among the settings are told as such."""
    settings = replace(SETTINGS, confidence=0.95, max_rate=0.01, max_time=1.5, cost=True, perturb=DEFAULT)
    told = dict(words.settings_words(only(write_run(tmp_path / "r.jsonl", [], settings=settings))))

    assert told["confidence that n was chosen for"] == "95 %"
    assert told["rate of differing that n was chosen for"] == "1 %"
    assert told["executions per case and process, at most"] == "1.5 s"
    assert told["rows timed"] == "yes"
    assert told["perturbations asked for"] == "quiet, stress, shift, poison"


def test_rerun_is_disturbed_alike() -> None:
    """The command for a row names the perturbations where they are not the default, and the time limit."""
    assert "--perturb quiet -o" in words.rerun_options(SETTINGS)
    assert "--timeout 60 -o" in words.rerun_options(replace(SETTINGS, perturb=DEFAULT))
    assert "--timeout 60 --max-time 2 -o" in words.rerun_options(
        replace(SETTINGS, perturb=DEFAULT, max_time=2.0)
    )


def test_perturbations_are_told_of_what_differed(run: Path) -> None:
    """Under which perturbation executions differed stands beside the distances, and in JSON of every cell."""
    rows = rows_of(run)

    assert "| 6 of 100, 4 distinct  | stress 6 of 50 | within a process " in text("md", run)
    assert rows["torch.Tensor.scatter_add_"]["off"]["groups"] == [
        {"perturbation": "quiet", "executions": 50, "differing": 0},
        {"perturbation": "stress", "executions": 50, "differing": 6},
    ]
    assert rows["torch.topk"]["off"]["groups"] == []
    assert json.loads(text("json", run))["perturbations"]["quiet"] == "nothing is done"


@pytest.mark.parametrize(
    ("groups", "told"),
    [
        ((), "not recorded"),
        (under(quiet=(50, 0)), "none"),
        (under(quiet=(25, 1), stress=(16, 0), poison=(9, 9)), "quiet 2 of 50, poison 18 of 18"),
    ],
)
def test_under_words(tmp_path: Path, groups: tuple[Group, ...], told: str) -> None:
    """Only the perturbations under which something differed are named; none is said, and so is no record."""
    assert told == evidence.under_words(one_row(tmp_path, ran(ONE, "off", *drifting(), groups=groups)).off)


def test_differences_between_processes_are_told_apart(run: Path) -> None:
    """Processes that each repeat themselves but not one another are not said to differ within."""
    cell = rows_of(run)["torch.nn.Conv2d"]["off"]

    assert "50 of 100 differed, 2 distinct, between processes only |" in text("md", run)
    assert "50 of 100 differed, 2 distinct, between processes only</span>" in text("html", run)
    assert (cell["where"], cell["within"], cell["between"]) == ("between processes only", 0, True)
    assert rows_of(run)["torch.Tensor.scatter_add_"]["off"]["where"] == "within a process"
    assert table_of(run)["torch.nn.Conv2d"]["off_where"] == "between processes only"
    assert (
        text("md", run).count("between processes only |") == 3
    )  # in the matrix, and where it is told how far, twice


@pytest.mark.parametrize(
    ("counts", "told"),
    [((1,), "other bits with 1 thread"), ((2, 8), "other bits with 2 and 8 threads"), ((), "1 distinct")],
)
def test_other_thread_counts_are_no_nondeterminism(
    tmp_path: Path, counts: tuple[int, ...], told: str
) -> None:
    """Other bits under another thread count are told, and the cell stays deterministic."""
    apart = tuple(
        Group(perturbation=f"threads={count}", executions=5, differing=0, digests={f"t{count}": 5})
        for count in counts
    )
    groups = (*under(quiet=(RUNS, 0)), *apart)
    found = one_row(tmp_path, [*ran(ONE, "off", *stable(), groups=groups), *ran(ONE, "on", *stable())])

    assert words.cell_words(found, "off").endswith(told)
    assert words.cell_words(found, "off").startswith("deterministic: 0 of ")
    racing = one_row(tmp_path / "racing", ran(ONE, "off", *drifting(2), groups=groups))
    assert words.cell_words(racing, "off").endswith(" 2 distinct")
    assert set(racing.off.other_threads) == {group.perturbation for group in apart}


# Severity.


def test_how_far_in_full(run: Path) -> None:
    """Of what differed: output, first execution, elements, distances; integers are counted."""
    told = text("md", run).split("## How far")[1].split("\n## ")[0]
    lines = {line.split("`")[1]: re.sub(r"\s+", " ", line) for line in told.splitlines() if "`" in line}

    assert lines["torch.Tensor.scatter_add_:collisions:forward:float32"].endswith(
        "| 47 (process 0) | `output` | 6 of 6 | 48 of 192 (25 %) | 0.0625 | 1.5e-05 | 128 | 2.5e-07 | 0.25 |"
    )
    assert "| warn_only | 9 of 100, 10 distinct |" in lines["torch.Tensor.put_:duplicates:forward:float32"]
    assert "| 6 of 192 (3.12 %) | not subtracted |" in lines["torch.topk:ties:forward:int64"]
    assert (
        "| the first of a process | `not known` | not measured: differs between processes only | not measured |"
        in lines["torch.nn.Conv2d:wide:backward:float32"]
    )
    assert len(lines) == 4


def test_a_run_in_which_nothing_differed_has_no_distances(tmp_path: Path) -> None:
    """There is no such section without a difference."""
    assert "How far" not in text("md", write_run(tmp_path / "r.jsonl", [quiet_row()]))


def test_how_many_executions_were_examined(run: Path) -> None:
    """Distances say of how many of the differing executions they are the largest, in Markdown and in the panels."""
    told = re.sub(r" +", " ", text("md", run))
    panels = text("html", run)

    assert "of each measure the largest over the executions that were examined" in told
    assert "| examined | elements differing |" in told
    assert "| `output` | 3 of 9 | 48 of 192 (25 %) |" in told
    assert "| `output` | 1 of 1 | 6 of 192 (3.12 %) |" in told
    assert '"off","output","47 (process 0)","6 of 6","48 of 192 (25 %)"' in panels
    assert (
        '"first of a process","not measured: differs between processes only","not measured"'
        in panels.replace('"the first', '"first')
    )


def test_severity_for_machines(run: Path) -> None:
    """JSON has every measure of every output, CSV the worst of each over the outputs."""
    (output,) = rows_of(run)["torch.Tensor.scatter_add_"]["off"]["outputs"]
    flat = table_of(run)["torch.Tensor.scatter_add_"]

    assert output["severity"] | {"examined": 6} == output["severity"]  # of both processes
    assert output["severity"]["max_ulp"] == 128
    assert output["differing"] == 6
    assert [flat[f"off_{name}"] for name in ("v_c", "v_ermv", "max_abs", "max_rel", "max_ulp")] == [
        "0.25",
        "2.5e-07",
        "0.0625",
        "1.5e-05",
        "128",
    ]
    assert [flat[f"on_{name}"] for name in ("v_c", "max_ulp")] == ["NA", "NA"]
    assert table_of(run)["torch.topk"]["off_max_abs"] == "NA"
    assert rows_of(run)["torch.Tensor.scatter_add_"]["off"]["first_differing"] == {
        "execution": 47,
        "process": 0,
    }


def test_the_worst_of_each_measure_counts() -> None:
    """Joined over processes and outputs each measure is the largest known; nothing known stays nothing."""
    far = replace(SEVERITY, max_abs=None, max_ulp=9, v_c=0.5, differing_elements=50)
    outputs = [
        Output(name="output", shape=(192,), dtype="float32", differing=1, severity=severity)
        for severity in (SEVERITY, far, None)
    ]
    found = worst(outputs)

    assert found == replace(SEVERITY, examined=6, v_c=0.5, differing_elements=50)
    assert worst(reversed(outputs)) == found
    assert worst(outputs[2:]) is None
    processes = [replace(ran(ONE, "off", {"a": 2})[0], outputs=(output,)) for output in outputs]
    assert outputs_of(processes) == (replace(outputs[0], differing=3, severity=found),)


@pytest.mark.parametrize(
    ("dtype", "changes", "told"),
    [
        ("float32", {}, ("48 of 192 (25 %)", "0.0625", "1.5e-05", "128", "2.5e-07", "0.25")),
        (
            "float32",
            {"max_ulp": 1_234_567},
            ("48 of 192 (25 %)", "0.0625", "1.5e-05", "1.23e+06", "2.5e-07", "0.25"),
        ),
        ("float64", {"max_ulp": 2**63 - 1}, (None, None, None, "at least 9.22e+18", None, None)),
        ("float64", {"max_rel": 1.7976931348623157e308}, (None, None, "at least 1.8e+308", None, None, None)),
        (
            "float32",
            {"max_rel": None, "v_ermv": None},
            (None, None, "none comparable", None, "none comparable", None),
        ),
        ("int64", {"max_abs": None}, (None, "not subtracted", None, None, None, None)),
        ("uint8", {"max_ulp": None}, (None, None, None, "not subtracted", None, None)),
        ("bool", {"v_ermv": None}, (None, None, None, None, "not subtracted", None)),
    ],
)
def test_distances_in_words(dtype: str, changes: dict[str, Any], told: tuple[str | None, ...]) -> None:
    """What cannot be subtracted, compared or represented is a word."""
    output = Output(
        name="output", shape=(192,), dtype=dtype, differing=1, severity=replace(SEVERITY, **changes)
    )
    it = distance(output)
    found = (it.elements, it.max_abs, it.max_rel, it.max_ulp, it.v_ermv, it.v_c)

    assert [said for said in told if said] == [said for said, want in zip(found, told, strict=True) if want]


def test_first_differing_execution_is_the_earliest() -> None:
    """Of several processes the earliest execution counts, and its process is named."""
    seen = ran(ONE, "off", {"a": 9, "b": 1}, {"a": 4, "b": 6}, {"a": 10})

    assert first_differing(seen) == (4, 1)
    assert first_differing(seen[2:]) is None


# What an op that raises does when it is made to run.


def test_an_op_that_raises_is_told_as_made_to_run(run: Path) -> None:
    """What it does, and every alert it passes, stands in the row; rows that do not raise were not made to."""
    told, flat = rows_of(run), table_of(run)
    cell = "made to run: nondeterministic, 9 of 100 differed, 10 distinct"

    assert f"| raises; {cell} |" in text("md", run)
    assert "| `put_`, `index_put_` |" in text("md", run)
    assert f"<span>{cell}</span></td>" in text("html", run)
    assert "<td><code>put_</code>, <code>index_put_</code></td>" in text("html", run)
    assert told["torch.Tensor.put_"]["finding"] == "raises"
    assert told["torch.Tensor.put_"]["alerts"] == ["put_", "index_put_"]
    forced = told["torch.Tensor.put_"]["warn_only"]
    assert [forced[name] for name in ("verdict", "runs", "differing", "distinct", "alerts")] == [
        "nondeterministic",
        100,
        9,
        10,
        ["put_", "index_put_"],
    ]
    assert told["torch.topk"]["warn_only"] == {
        "verdict": "not_run",
        "reason": "only ops that raise are forced to run",
    }
    names = ("verdict", "runs", "differing", "alerts")
    assert [flat["torch.Tensor.put_"][f"warn_only_{name}"] for name in names] == [
        "nondeterministic",
        "100",
        "9",
        "put_ index_put_",
    ]
    assert [flat["torch.topk"][f"warn_only_{name}"] for name in names] == ["not_run", "NA", "NA", "NA"]


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        ([], "raises; not made to run"),
        (
            ran(ONE, "warn_only", *stable()),
            "raises; made to run: deterministic, 0 of 100 differed, 1 distinct",
        ),
        (ended(ONE, "warn_only", "crash", "signal 11"), "raises; made to run: crash"),
    ],
)
def test_words_of_an_op_that_raises(tmp_path: Path, seen: list[Observation], told: str) -> None:
    """Not made to run, made to run without a difference, and made to run in vain are three things."""
    observations = [*ran(ONE, "off", *stable()), *raised(ONE, "on", "x"), *seen]

    assert told == words.on_words(one_row(tmp_path, observations))


def test_why_an_op_could_not_be_made_to_run_is_listed(tmp_path: Path) -> None:
    """A cell of warn_only without a verdict has its reason among the others, if there was to be one."""
    plan: list[Planned] = [(ONE, [*ran(ONE, "off", *stable()), *raised(ONE, "on", "x")])]
    crashed = [(ONE, [*plan[0][1], *ended(ONE, "warn_only", "crash", "signal 11")])]
    unasked = text("md", write_run(tmp_path / "old.jsonl", plan))

    told = text("md", write_run(tmp_path / "r.jsonl", crashed, settings=FORCING))
    assert f"* crash: signal 11\n  * `{ONE.id}` warn_only\n" in told
    assert "Cells without a usable verdict" not in unasked


@pytest.mark.parametrize("form", FORMS)
def test_a_row_that_could_not_be_made_to_run_says_why_it_is_inconclusive(tmp_path: Path, form: str) -> None:
    """Both modes have a verdict, and what the finding lacks is told beside it."""
    seen = [
        *ran(ONE, "off", *stable()),
        *raised(ONE, "on", "x"),
        *ended(ONE, "warn_only", "crash", "signal 11"),
    ]
    path = write_run(tmp_path / "r.jsonl", [(ONE, seen)], settings=FORCING)
    reason = "made to run with the flag on: crash (signal 11)"
    told = text(form, path).replace("\\", "")

    if form == "md":
        assert f"* {reason}\n  * `{ONE.id}`\n" in told.split("## Cells without a usable verdict")[1]
    else:
        assert f"inconclusive</b> <small>{reason}</small></td>" in told
    assert only(path).rows[0].reason == reason


@pytest.mark.parametrize("form", RENDERERS)
def test_old_files_render(tmp_path: Path, form: str) -> None:
    """A file of format 1, which knows nothing of all this, gives every report, each with its words for it."""
    plan: list[Planned] = [quiet_row(), (row("torch.put"), raised(row("torch.put"), "on", "put_"))]
    told = text(form, write_run(tmp_path / "old.jsonl", plan, format_=1))

    assert "torch.cumsum" in told
    assert form != "md" or "raises; not made to run" in told
