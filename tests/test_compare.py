"""What became of a row from one run to the next: findings, evidence, measuring it again; what is not compared; the lists beside it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from fractions import Fraction
from itertools import product, zip_longest
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

from detmatrix.reports.compare.comparable import Rate, fisher, rate_test
from detmatrix.reports.compare.judge import (
    CHANGES,
    Change,
    Kind,
    class_of,
    few_processes,
    judge,
    with_dependence,
)
from detmatrix.reports.compare.page import failures
from detmatrix.reports.compare.runs import Again, compare, compare_claims, open_to_doubt
from detmatrix.reports.compare.view import view_of
from detmatrix.reports.matrix.model import Matrix, matrix_of
from detmatrix.reports.matrix.run_words import states
from detmatrix.scanner.claims.tables import documented_claims, parse_claims
from detmatrix.scanner.observations.records import MODES, Claim, Cost, Part, Row
from detmatrix.scanner.run.remeasure import rounds_for
from detmatrix.scanner.verdicts.vocabulary import FINDING_MEANING, Finding
from tests.compared import OFTEN, in_turns, pair_of, run_of, shows
from tests.conftest import table
from tests.documented import docstring
from tests.evidence_runs import ASKED_CONTROLS, asked_of, cost, sentinels
from tests.runs import CLOSING, ENVIRONMENT, RUNS, SETTINGS, Planned, drifting, ran, row, seen, stable

KINDS: tuple[Kind, ...] = ("same", "improved", "regressed", "changed", "not_comparable")
LETTERS = dict(zip("sirc?", KINDS, strict=True))
AFTER, *_LINES = (line.split() for (line,) in table("comparisons.txt", "findings"))
EXPECTED: dict[tuple[Any, Any], Kind] = {
    (before, after): LETTERS[letter]
    for before, *letters in _LINES
    for after, letter in zip(AFTER, letters, strict=True)
}
PLANNED = row("torch.Tensor.scatter_add_")


def only(old: Planned, new: Planned) -> Change:
    """Return what became of the one row of two runs that are alike."""
    (change,) = pair_of(run_of(old, name="a"), run_of(new, name="b")).changes
    return change


@pytest.mark.parametrize(("findings", "kind"), EXPECTED.items())
def test_table_of_findings(findings: tuple[Finding, Finding], kind: Kind) -> None:
    """Every pair of findings has its class. That an op raises is proof, and that it differs where it raised; nothing else is."""
    before, after = findings
    judged = only(shows(before), shows(after))
    raised_before, raised_after = (finding in {"raises", "over_alert"} for finding in findings)

    assert set(EXPECTED) == set(product(FINDING_MEANING, repeat=2))
    assert kind == class_of(before, after) == judged.kind
    if kind in CHANGES:
        proof = raised_before != raised_after and (raised_after or after == "silent")
        assert proof is judged.confirmed


def _other_inputs(planned: Planned) -> Planned:
    return planned[0], [replace(one, inputs_digest="other") for one in planned[1]]


STILL, DIFFERS, SILENT = (shows(finding) for finding in ("deterministic", "fixed_by_mode", "silent"))


@pytest.mark.parametrize(("before", "after", "kind", "proof", "detail"), table("comparisons.txt", "changes"))
def test_what_says_that_a_row_changed(before: str, after: str, kind: str, proof: str, detail: str) -> None:
    """A class; whether that is proof, or the reason why the row is not comparable though it seems so; and what is told."""
    judged, doubted = only(seen(before), seen(after)), proof not in {"true", "false", "none"}

    assert str(judged.apparent if doubted else judged.kind).lower() == kind
    assert str(judged.reason if doubted else judged.confirmed).lower() == proof
    assert (judged.kind == "not_comparable") is doubted
    assert detail in judged.detail or (detail == "none" and (doubted or not judged.detail))


@pytest.mark.parametrize(("after", "environment", "modes", "bits"), table("comparisons.txt", "bits"))
def test_other_bits(after: str, environment: str, modes: str, bits: str) -> None:
    """They are told of modes that were deterministic in both runs, by digests of one kind, of one machine."""
    pair = pair_of(run_of(STILL), run_of(seen(after), **json.loads(environment)))

    assert " ".join(pair.changes[0].other_bits) == modes.replace("none", "")
    assert "{} of {}".format(*pair.bits) == bits


def _sampled(planned: Row, first: str, sample: str, **changed: Any) -> Planned:
    """Return a deterministic row with these bits, of which its first output has this sample."""
    _, observations = seen(f"off stable {first}; on stable {first}", planned)
    (output,) = observations[0].outputs
    return planned, [replace(o, outputs=(replace(output, sample=sample),), **changed) for o in observations]


@pytest.mark.parametrize(("dtype", "old", "new", "changed", "words"), table("comparisons.txt", "samples"))
def test_samples_tell_how_far_bits_moved(dtype: str, old: str, new: str, changed: str, words: str) -> None:
    """The distance of what was sampled bounds that of the whole output from below."""
    planned, other = row("torch.sum", dtype=dtype), json.loads(changed)
    before, after = _sampled(planned, "a", old), _sampled(planned, "z", new.replace("none", ""), **other)
    change = only(before, after)
    head = "bits differ;" if words.startswith("none of") else "bits moved:"
    told = "" if other else "off, on" if words == "none" else f"off, on; {head} {words}"

    assert (change.bits_words, bool(change.moved)) == (told, words != "none")


def test_rows_are_joined_by_all_that_names_them() -> None:
    """Another case, direction or dtype is another row."""
    names: list[dict[str, Any]] = [{}, {"case": "other"}, {"direction": "backward"}, {"dtype": "float64"}]
    rows = [row("torch.cumsum", **name) for name in names]
    old = run_of(*(shows("deterministic", one) for one in rows), name="a")
    new = run_of(*(shows("silent", one) for one in reversed(rows)), name="b")

    pair = pair_of(old, new)
    assert [one.id for one in reversed(rows)] == [change.row.id for change in pair.changes]
    assert 4 == pair.counts["regressed"] == sum(change.confirmed is False for change in pair.changes)


# What measuring again makes of a change, what fails a check, and rows that a run has no finding of.


VAIN, GONE = "measured again without result, ", "the catalog has no such row"
BETTER, WORSE = (DIFFERS, STILL), (STILL, SILENT)  # what the scans showed


def _again(text: str) -> Matrix:
    """Return the run of a row as it was measured again: how, the finding, and in how many processes it differs if not in all."""
    how, finding, *odd = cast("list[Any]", text.split())
    measured, settings = shows(finding), SETTINGS
    match how:
        case "gone":
            return run_of()
        case "turns" | "missed":
            measured = in_turns(finding, odd=int(odd[0]) if odd else None)
        case "inputs":
            measured = _other_inputs(measured)
        case "crash":
            measured = seen("off crash killed")
        case "few":
            planned, observed = in_turns(finding)
            measured = planned, [replace(one, executions=2, digests={"a": 2}) for one in observed]
            settings = replace(SETTINGS, processes=7, runs=2)
    raced = {"weak": 1, "missed": 1, "strong": 10}.get(how)
    return run_of(
        measured,
        sentinels=sentinels(raced, 0, 1) if raced else (),
        settings=settings,
        distrust=("a control",) * (how == "untrusted"),
    )


@pytest.mark.parametrize(
    ("scans", "old", "new", "kind", "confirmed", "told"), table("comparisons.txt", "measured again")
)
def test_what_measuring_again_makes_of_a_change(
    scans: str, old: str, new: str, kind: str, confirmed: str, told: str
) -> None:
    """It is confirmed, dropped, or left as it was with the reason."""
    first = [
        run_of(one, name=it) for it, one in zip("ab", BETTER if scans == "better" else WORSE, strict=True)
    ]
    again = Again(old=_again(old), new=_again(new), left={PLANNED.key: GONE} if "gone" in old else {})
    ((judged,),) = (pair.changes for pair in compare(first, {("a", "b"): again}).pairs)

    detail = "" if told == "nothing" else told
    assert (judged.kind, str(judged.confirmed).lower()) == (kind, confirmed)
    assert (judged.reason == "not_reproduced") is (kind == "not_comparable")
    assert detail in judged.detail
    assert (VAIN in judged.detail) == detail.startswith(VAIN) or "processes" in detail


def test_a_proved_dependence_stands_before_a_doubtful_improvement(monkeypatch: pytest.MonkeyPatch) -> None:
    """What may be chance does not hide what is proof; and each text is told, also one that begins another."""
    monkeypatch.setattr(
        "detmatrix.reports.compare.judge.dependence_change", lambda *_: ("regressed", ["batch: 1"])
    )
    row = run_of(STILL).rows[0]
    doubted = Change(old=row, new=row, kind="improved", confirmed=False, detail="batch: 1, 2")

    found = with_dependence(doubted, row, row)

    assert (found.kind, found.confirmed, found.detail) == ("regressed", True, "batch: 1, 2; batch: 1")


@pytest.mark.parametrize(
    ("before", "after", "again", "kind", "confirmed", "told"), table("comparisons.txt", "dependence")
)
def test_measuring_again_undoes_no_dependence(
    before: str, after: str, again: str, kind: str, confirmed: str, told: str
) -> None:
    """Whether bits depend on the batch is proof by itself, and is told once whatever becomes of the rest."""
    first = [
        matrix_of(
            name,
            replace(
                run_of(one, name=name, settings=replace(SETTINGS, invariance=("batch",))).run,
                invariances=(
                    *asked_of(PLANNED, {} if varies == "unasked" else {"batch": (varies,)}),
                    *ASKED_CONTROLS,
                ),
            ),
        )
        for name, one, varies in zip("ab", BETTER if again == "none" else WORSE, (before, after), strict=True)
    ]
    findings: list[Any] = again.replace("none", "").split()
    measured = [run_of(in_turns(it), sentinels=sentinels(10, 0, 1)) for it in findings]
    found = compare(first, {("a", "b"): Again(old=measured[0], new=measured[1], left={})} if measured else {})
    ((judged,),) = (pair.changes for pair in found.pairs)

    assert (judged.kind, str(judged.confirmed).lower()) == (kind, confirmed)
    assert judged.detail.count(told) == 1


def _seldom(differing: int, *rows: str) -> list[Planned]:
    """Return samples of which so few of twenty executions with the flag off differ that chance may have done it."""
    off = {"a": 20 - differing, **{f"b{place}": 1 for place in range(differing)}}
    names = [name.split(":") for name in rows]
    named = [replace(row(op, case), source="opinfo", provoked="samples") for op, case in names]
    return [(one, [*ran(one, "off", off), *ran(one, "on", {"a": 20})]) for one in named]


RARE, ADD = shows("silent", often=2), shows("deterministic", row("torch.add"))
OF_ONE_OP, OF_SEVERAL = (
    [name.format(place) for place in range(4)] for name in ("torch.lstsq:{}", "torch.op{}:0")
)


@pytest.mark.parametrize(
    ("old", "new", "kinds", "told"),
    [
        # 7 of 98 against 0 of 98 is not comparable, and a check that asks for regressions does not pass over it.
        ([STILL], [shows("silent", often=8)], ("regressed",),
         ["not_comparable (seems regressed): torch.Tensor.scatter_add_:", "nothing compared: "]),
        ([STILL], [shows("silent", often=8)], ("improved",), ["nothing compared: "]),
        # 1 of 98 against 0 of 98, p = 1: no check fails because of it.
        ([STILL, ADD], [RARE, ADD], CHANGES, []),
        # Four rows of an op, each of which may be chance, are no chance together, and stand above samples, which count once.
        (
            [*_seldom(4, *OF_ONE_OP), *_seldom(0, "torch.qr:same", "torch.qr:a", "torch.qr:b")],
            [*_seldom(0, *OF_ONE_OP), *_seldom(0, "torch.qr:same", "torch.qr:c", "torch.cdist:d")],
            CHANGES,
            ["improved (likely): torch.lstsq: 4 rows together: off: 16 of 76 → 0 of 76 further executions differed",
             "other samples: 2 rows added, 2 rows removed, of 2 entries"],
        ),
        ([*_seldom(4, *OF_ONE_OP), ADD], [*_seldom(0, *OF_ONE_OP), ADD], ("regressed",), []),
        # Nothing joins rows of several ops.
        ([*_seldom(4, *OF_SEVERAL), ADD], [*_seldom(0, *OF_SEVERAL), ADD], CHANGES, []),
    ],
)  # fmt: skip
def test_what_fails_a_check(
    old: list[Planned], new: list[Planned], kinds: tuple[Kind, ...], told: list[str]
) -> None:
    """A row counts as what it seems unless that is chance, rows of one op count together, other samples once."""
    failed = failures(compare([run_of(*old, name="old"), run_of(*new, name="new")]), kinds)

    assert [str(one)[: len(text)] for one, text in zip_longest(failed, told, fillvalue="")] == told


def test_rounds_suffice_for_the_test_of_processes() -> None:
    """An output that every process of one run has to itself is told from none, and there are twice the processes."""
    assert [rounds_for(SETTINGS, replace(SETTINGS, processes=n)) for n in (2, 5)] == [7, 10]
    assert [rounds_for(SETTINGS, replace(SETTINGS, processes=n), between=True) for n in (2, 9)] == [16, 18]
    # Another output in every process, and one of two algorithms in seven of sixteen.
    for outputs in ([f"{n}" for n in range(7)], ["b"] * 7 + ["a"] * 9):
        still, apart = (
            seen(f"off {json.dumps([{output: RUNS} for output in off])}; on stable")
            for off in (["a"] * len(outputs), outputs)
        )
        (old,), (new,) = run_of(still).rows, run_of(apart).rows

        assert (judge(old, new).kind, judge(old, new).confirmed) == ("regressed", False)
        assert few_processes(old, new) is None


# Whether two rates differ: the exact test against brute force, and what is counted.


def _brute_force(one: Rate, other: Rate) -> Fraction:
    """Return the p-value from the choice of every single table with these margins, in exact fractions."""
    total = one.differing + other.differing
    tables = math.comb(one.compared + other.compared, total)
    weights = {
        k: Fraction(math.comb(one.compared, k) * math.comb(other.compared, total - k), tables)
        for k in range(total + 1)
    }
    assert sum(weights.values()) == 1
    return sum((weight for weight in weights.values() if weight <= weights[one.differing]), Fraction())


def test_every_small_table_is_exact() -> None:
    """For every two samples of up to nine the p-value is the one that counting all tables gives."""
    rates = [Rate(k, n) for n in range(10) for k in range(n + 1)]
    for one, other in product(rates, repeat=2):
        weighed = _brute_force(one, other)
        assert fisher(one, other) == float(weighed), (one, other)


@pytest.mark.parametrize(
    ("one", "other", "p"),
    [
        (Rate(1, 12), Rate(9, 12), 0.002759456185220083),  # "studying", of the usual textbook example
        (Rate(1, 98), Rate(0, 98), 1.0),
        (Rate(98, 98), Rate(0, 98), 2 / math.comb(196, 98)),
        # A file may hold any number; what it proves does not grow with it, and it takes no time.
        (Rate(10**18, 10**18), Rate(0, 10**18), 0.0),
        (Rate(1, 10**18), Rate(0, 10**18), 1.0),
    ],
)
def test_known_values(one: Rate, other: Rate, p: float) -> None:
    """Values that are known from elsewhere, in either order."""
    assert fisher(one, other) == pytest.approx(p, rel=1e-12)
    assert fisher(one, other) == fisher(other, one)


@pytest.mark.parametrize(("processes", "unit", "rate"), table("comparisons.txt", "counted"))
def test_what_is_counted(processes: str, unit: str, rate: str) -> None:
    """Executions of a process are held against its most frequent output; where none differ, processes are."""
    outputs = json.loads(processes)
    test = rate_test("off", ran(PLANNED, "off", *outputs), ran(PLANNED, "off", *[{"a": RUNS}] * len(outputs)))

    assert (test.unit, str(test.old), test.new.differing) == (unit, rate, 0)


# --- The cost of the flag in two runs: ratios within each, told apart or not.


def _timed(seconds: str) -> Cost:
    """Return what a row took with the flag off and on, and in the fastest of its samples if that is told too."""
    off, on, *low = map(float, seconds.split())
    timed = cost(PLANNED, off, on)
    return replace(timed, on=replace(timed.on, low=low[0])) if low else timed  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("before", "after", "inputs", "environment", "rows", "factor"), table("comparisons.txt", "costs")
)
def test_cost_is_compared_as_ratios(
    before: str, after: str, inputs: str, environment: str, rows: str, factor: str
) -> None:
    """A row is listed if its ratio changed by more than 1.5 times, whatever the times, and is told apart."""
    shown = STILL if inputs == "same" else _other_inputs(STILL)
    old = run_of(STILL, costs=[_timed(before)])
    found = pair_of(old, run_of(shown, costs=[_timed(after)], **json.loads(environment))).cost

    assert str(found and found["rows"]) == rows
    listed = [one["factor"] for one in (found.listed if found else ())]
    assert listed == [pytest.approx(float(it)) for it in [factor] if it != "none"]


# What keeps runs and rows from being compared: power, the machine, the inputs, what a scan was asked for.

OTHER = shows("deterministic", row("torch.cumsum"))


@pytest.mark.parametrize(("before", "after", "weak", "kind"), table("comparisons.txt", "low power"))
def test_low_power(before: Finding, after: Finding, weak: str, kind: Kind) -> None:
    """Low power matters where a verdict rests on nothing having differed."""
    # Sentinels that hardly differed.
    seldom = {weak: sentinels(1, 0, 1)}
    old = run_of(shows(before), name="a", sentinels=seldom.get("before", ()))
    new = run_of(shows(after), name="b", sentinels=seldom.get("after", ()))
    (change,) = pair_of(old, new).changes

    assert kind == change.kind
    assert ("low_power" if kind == "not_comparable" else None) == change.reason
    if before == after:
        assert change.apparent is None
        assert not open_to_doubt(change)


def _changed(one: Any, changes: Mapping[str, object]) -> Any:
    """Return a record with some fields as JSON has them."""
    return msgspec.convert(msgspec.to_builtins(one) | changes, type(one))


@pytest.mark.parametrize(
    ("device", "told", "of_run", "of_row", "of_seen"), table("comparisons.txt", "circumstances")
)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("after", ["silent", "deterministic"])
def test_only_like_is_compared_with_like(
    device: str, told: str, of_run: str, of_row: str, of_seen: str, after: Finding, *, turned: bool
) -> None:
    """What the machine, the settings or the inputs could explain is no change, and what it seems is told."""
    reason = None if told == "alike" else told
    run, planned, observed = map(json.loads, (of_run, of_row, of_seen))
    run["settings"] = _changed(SETTINGS, {"device": device, **run.get("settings", {})})
    before, (named, seen) = (shows(it, row("torch.put", device=device)) for it in ("deterministic", after))
    other = _changed(named, planned), [_changed(one, observed) for one in seen]
    hardware: dict[str, Any] = {"gpu": "H100", "cpu_model": "model 17, avx512f"}
    runs = run_of(before, name="a", **hardware), run_of(other, name="b", **hardware | run)
    (change,) = pair_of(*(runs[::-1] if turned else runs)).changes

    seems = None if after == "deterministic" else "improved" if turned else "regressed"
    found = (change.kind, change.reason, change.apparent)
    assert found == (("not_comparable", reason, seems) if reason else (seems or "same", None, None))
    # Two releases that two machines ran can both be scanned on one; one release needs no such advice.
    releases = runs[0], run_of(other, name="b", torch="2.14.0+cpu", **hardware | run)
    for pair, advised in (runs, False), (releases, reason == "other_device"):
        caveats = view_of(compare(pair)).caveats
        assert any("scan both releases on one machine" in told for told in caveats) == advised


def test_upstream_gradients_that_were_drawn_elsewhere_are_other_inputs() -> None:
    """``--as-simulated`` draws them on the CPU; of forward rows the digests of inputs tell."""
    side = shows("silent", row("torch.put", direction="backward"))
    settings = (_changed(SETTINGS, {"as_simulated": drawn}) for drawn in (False, True))

    assert pair_of(*(run_of(side, settings=one) for one in settings)).changes[0].reason == "other_inputs"


PUT_ROW = shows("raises", row("torch.Tensor.put_"))
GROUPS = {"groups": {PUT_ROW[0].spec: 1, OTHER[0].spec: 2}, "shards": 3}


def _of_plan(shards: str) -> dict[str, Any]:
    """Return what a header says of the shards that its file holds: of one, or of those that were merged."""
    first, *others = shards.split()
    if not others:
        return {} if first == "all" else GROUPS | {"shard": int(first)}
    ends = {"!": None, "": CLOSING}
    parts = (
        Part(shard=int(it[0]), started="", environment=ENVIRONMENT, workers=1, closing=ends[it[1:]])
        for it in (first, *others)
    )
    return GROUPS | {"parts": tuple(parts)}


@pytest.mark.parametrize(("few", "many", "shards", "told"), table("comparisons.txt", "planned"))
def test_rows_of_one_run_alone(few: str, many: str, shards: str, told: str) -> None:
    """A row is added or removed where the other scan was asked for it, and where its file would have it."""
    asked = [_changed(SETTINGS, json.loads(it)) for it in (few, many)]
    less = run_of(OTHER, name="few", settings=asked[0])
    less = replace(less, run=replace(less.run, header=replace(less.run.header, **_of_plan(shards))))
    more = run_of(OTHER, PUT_ROW, name="many", settings=asked[1])

    detail = "" if told == "none" else told
    assert ("not enumerated: 1 op" in str(states(less))) is detail.startswith("few ended")
    for pair, kind in ((pair_of(less, more), "added"), (pair_of(more, less), "removed")):
        judged = pair.changes[1]
        assert judged.kind == ("not_comparable" if detail else kind)
        assert (judged.reason, judged.detail) == ("not_asked_for" if detail else None, detail)


# The documented lists of two releases, held against what was measured to change.


def claims(lists: str) -> tuple[Claim, ...]:
    """Return the claims of lists such as "acts BULLET; raises BULLET"."""
    bullets = [one.partition(" ")[::2] for one in lists.split("; ")]
    sides = ([text for at, text in bullets if at == it] for it in ("acts", "raises"))
    # A run without any bullet has those of its release.
    return parse_claims(docstring(*(["torch.z", *side] for side in sides)))


@pytest.mark.parametrize(("old", "new", "kinds"), table("comparisons.txt", "bullets"))
def test_what_became_of_bullets(old: str, new: str, kinds: str) -> None:
    """Bullets are moved, added, dropped or reworded; each once, and none is paired where several could be meant."""
    found = [
        f"{one.change}:{'>'.join(one[side]['section'] if one[side] else 'none' for side in ('from', 'to'))}"
        for one in compare_claims(claims(old), claims(new), ())
    ]

    assert found == kinds.split()


def test_order_is_no_change_of_the_lists() -> None:
    """Those of a release, and the same in another order."""
    assert compare_claims(documented_claims("2.13"), documented_claims("2.13")[::-1], ()) == []


@pytest.mark.parametrize(
    ("old", "new", "before", "after", "measured", "undocumented"), table("comparisons.txt", "measured")
)
def test_documented_beside_measured(
    old: str, new: str, before: str, after: Finding, measured: str, undocumented: str
) -> None:
    """A bullet stands beside what became of its rows, and only one that changed as a row did documents what that did."""
    rows = row("torch.Tensor.put_"), row("my.own_op")
    finding: Any = before.partition(" ")
    often = int(finding[2] or OFTEN)
    pair = pair_of(
        run_of(*(shows(finding[0], one, often=often) for one in rows), name="a", claims=claims(old)),
        run_of(*(shows(after, one) for one in rows), name="b", claims=claims(new)),
    )

    told = (f"{one.change}:{one.measured}{'!' * one.unmeasured}" for one in pair.claims)
    assert (" ".join(told) or "none") == measured
    assert [one.row.spec for one in pair.undocumented] == ["torch.Tensor.put_"] * (undocumented == "yes")


def test_a_mode_is_no_measured_change_of_a_bullet() -> None:
    """Bullets speak of the flag off and on: what a chosen mode began or ceased to do is neither promised nor undocumented."""
    planned = row("torch.cumsum", device="cuda:0")
    eager = [one for mode in MODES for one in ran(planned, mode, *stable())]
    old, new = (
        run_of(
            (planned, [*eager, *ran(planned, "compile_on", *seen)]),
            name=name,
            claims=documented_claims(release),
        )
        for name, release, seen in (("a", "2.13", drifting(OFTEN)), ("b", "2.14", stable()))
    )
    pair = pair_of(old, new)
    (moved,) = (one for one in pair.claims if one.change == "moved")

    assert (pair.counts["improved"], moved.measured, moved.unmeasured) == (1, "same", True)
    assert pair.undocumented == ()
