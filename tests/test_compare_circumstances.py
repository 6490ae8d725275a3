"""What keeps runs and rows from being compared, power, the machine, the inputs, what a scan was asked for; and the lists beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from detmatrix.reports.compare.comparable import Reason
from detmatrix.reports.compare.judge import Kind
from detmatrix.reports.compare.page import failures
from detmatrix.reports.compare.runs import compare, compare_claims, open_to_doubt
from detmatrix.reports.compare.view import view_of
from detmatrix.reports.matrix.model import Matrix
from detmatrix.reports.matrix.run_words import states
from detmatrix.scanner.claims.tables import documented_claims, parse_claims
from detmatrix.scanner.observations.records import MODES, Claim, Part
from detmatrix.scanner.verdicts.vocabulary import Finding
from tests.compared import OFTEN, pair_of, run_of, shows
from tests.conftest import table
from tests.documented import docstring
from tests.evidence_runs import sentinels
from tests.runs import CLOSING, ENVIRONMENT, SETTINGS, Planned, drifting, ran, row, stable

PUT = ":func:`torch.Tensor.put_`"
OTHER = shows("deterministic", row("torch.cumsum"))


def _weak(*rows: Planned, name: str, claims: Sequence[Claim] = ()) -> Matrix:
    """Return a run whose sentinels hardly differed."""
    return run_of(*rows, name=name, sentinels=sentinels(1, 0, len(rows)), claims=claims)


@pytest.mark.parametrize(("before", "after", "weak", "kind"), table("comparisons.txt", "low power"))
def test_low_power(before: Finding, after: Finding, weak: str, kind: Kind) -> None:
    """Low power matters where a verdict rests on nothing having differed."""
    old = (_weak if weak == "before" else run_of)(shows(before), name="a")
    new = (_weak if weak == "after" else run_of)(shows(after), name="b")
    (change,) = pair_of(old, new).changes

    assert kind == change.kind
    assert ("low_power" if kind == "not_comparable" else None) == change.reason
    if before == after:
        assert change.apparent is None
        assert not open_to_doubt(change)


def test_two_runs_of_low_power_compare_nothing() -> None:
    """Two scans in which nothing could race agree in all rows, which no check takes for proof."""
    listed = (parse_claims(docstring([], [PUT])), parse_claims(docstring([PUT], [])))
    still = shows("deterministic", row("torch.Tensor.put_"))
    comparison = compare([_weak(still, name=name, claims=of) for name, of in zip("ab", listed, strict=True)])
    (pair,) = comparison.pairs

    assert pair.compared == 0
    assert [one.title for one in failures(comparison, ("regressed",))] == ["nothing compared"]
    assert [(one.measured, one.unmeasured) for one in pair.claims] == [("not_comparable", False)]


ELSEWHERE = {mode: {**it, "LD_LIBRARY_PATH": "/elsewhere"} for mode, it in ENVIRONMENT.variables.items()}
STEERED = {"off": {"OMP_NUM_THREADS": "2"}, "on": {"MKL_CBWR": "SSE2"}}
# What of a run, a row and its observations is another, by the reason for which they are not compared; none: they are.
CIRCUMSTANCES: dict[str, tuple[Reason | None, dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "distrust": ("untrusted_run", {"distrust": ("the inputs differed",)}, {}, {}),
    "cpu": ("other_device", {"cpu": "Another CPU"}, {}, {}),
    # Of older files, as of the other run, no model is known.
    "model of one": (None, {"cpu_model": "cpu family 25, model 17, AVX512"}, {}, {}),
    "threads": ("other_threads", {"threads": 4, "affinity": (0, 1, 2, 3)}, {}, {}),
    "cores": ("other_threads", {"affinity": (1,)}, {}, {}),
    "variables": ("other_variables", {"variables": STEERED}, {}, {}),
    # Two environments on one machine find their libraries elsewhere.
    "elsewhere": (None, {"variables": ELSEWHERE, "os": "Linux 6.2"}, {}, {}),
    "perturb": ("other_perturbations", {"settings": replace(SETTINGS, perturb=("quiet", "stress"))}, {}, {}),
    "inputs": ("other_inputs", {}, {}, {"inputs_digest": "other"}),
    "op": ("other_inputs", {}, {"op": "torch.scatter"}, {}),
    # Of the same inputs an op draws other numbers after another seed.
    "drawn": ("other_inputs", {"settings": replace(SETTINGS, seed=1)}, {}, {"seeded": True}),
    "seed": (None, {"settings": replace(SETTINGS, seed=1)}, {}, {}),
    # What an older file holds of the bits of inputs says nothing of what a newer one does.
    "older digests": (None, {}, {}, {"inputs_digest": "2:i"}),
    "older shapes": ("other_inputs", {}, {}, {"inputs_digest": "2:i", "inputs": ("args[0]: float32 (3,)",)}),
    # On CUDA the GPU must be the same, and the CPU and its threads need not.
    "cuda: host": (None, {"cpu": "another", "threads": 8}, {}, {}),
    "cuda: gpu": ("other_device", {"gpu": "H200"}, {}, {}),
}


@pytest.mark.parametrize("name", CIRCUMSTANCES)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("after", ["silent", "deterministic"])
def test_only_like_is_compared_with_like(name: str, after: Finding, *, turned: bool) -> None:
    """What the machine, the settings or the inputs could explain is no change, and what it seems is told."""
    reason, run, planned, observed = CIRCUMSTANCES[name]
    device = "cuda:0" if name.startswith("cuda") else "cpu"
    before, (named, seen) = (shows(it, row("torch.put", device=device)) for it in ("deterministic", after))
    other = replace(named, **planned), [replace(one, **observed) for one in seen]
    runs = run_of(before, name="a", gpu="H100"), run_of(other, name="b", **{"gpu": "H100"} | run)
    (change,) = pair_of(*(runs[::-1] if turned else runs)).changes

    seems = None if after == "deterministic" else "improved" if turned else "regressed"
    found = (change.kind, change.reason, change.apparent)
    assert found == (("not_comparable", reason, seems) if reason else (seems or "same", None, None))
    # Two releases that two machines ran can both be scanned on one; one release needs no such advice.
    releases = runs[0], run_of(other, name="b", torch="2.14.0+cpu", **{"gpu": "H100"} | run)
    for pair, advised in (runs, False), (releases, reason == "other_device"):
        caveats = view_of(compare(pair)).caveats
        assert any("scan both releases on one machine" in told for told in caveats) == advised


def test_cpus_of_one_name_are_told_apart_by_their_model() -> None:
    """On virtual machines CPUs of several generations have one name, and torch takes other kernels on each."""
    two = shows("deterministic", row("torch.put")), shows("deterministic", row("torch.put"))
    models = (f"cpu family 25, model {it}" for it in ("17, AVX512", "1, AVX2"))
    pair = pair_of(*(run_of(one, name=it, cpu_model=it) for one, it in zip(two, models, strict=True)))

    assert [(one.reason, one.detail) for one in pair.obstacles] == [
        (
            "other_device",
            f"{ENVIRONMENT.cpu} (cpu family 25, model 17, AVX512) → {ENVIRONMENT.cpu} (cpu family 25, model 1, AVX2)",
        )
    ]


PUT_ROW = shows("raises", row("torch.Tensor.put_"))
GROUPS = {"groups": {PUT_ROW[0].spec: 1, OTHER[0].spec: 2}, "shards": 3}
PARTS = tuple(
    Part(shard=it, started="", environment=ENVIRONMENT, workers=1, closing=CLOSING) for it in (1, 2, 3)
)
LACKS = "few lacks shard 1 of 3, where the row would be"
ENDED = f"few ended before it had enumerated {PUT_ROW[0].spec}"


@pytest.mark.parametrize(
    ("few", "many", "plan", "detail"),
    [
        # A row that only one run planned was added or removed.
        ({}, {}, {}, ""),
        # The same file of specs from elsewhere is the same; rows are asked about threads, and none is planned for that.
        ({"specs": ("/few/mine.py",)}, {"specs": ("/many/mine.py",)}, {}, ""),
        ({}, {"invariance": ("threads",)}, {}, ""),
        # Another choice of patterns, sources, samples, dtypes or files plans other rows, and no torch added them.
        ({"patterns": ("scatter*",)}, {}, {}, "few is a scan of scatter*"),
        ({}, {"sources": ("documented", "opinfo")}, {}, "few is a scan with --source documented and not documented,opinfo"),
        ({}, {"samples": 3}, {}, "few is a scan with --samples 0 and not 3"),
        ({}, {"dtypes": ("all",)}, {}, "few is a scan with --dtypes none and not all"),
        ({}, {"specs": ("mine.py",)}, {}, "few is a scan with --specs none and not mine.py"),
        ({}, {"invariance": ("threads", "batch")}, {}, "few is a scan with --invariance none and not batch"),
        # One shard, or some of them, tell nothing of the rows of another; of their own rows they do.
        ({}, {}, GROUPS | {"shard": 2}, LACKS),
        ({}, {}, GROUPS | {"parts": PARTS[1:]}, LACKS),
        ({}, {}, GROUPS | {"shard": 1}, ""),
        ({}, {}, GROUPS | {"parts": PARTS[:2]}, ""),
        # Nor does one that ended before it had enumerated the op.
        ({}, {}, GROUPS | {"parts": (replace(PARTS[0], closing=None), PARTS[1])}, ENDED),
        ({}, {}, GROUPS | {"parts": (PARTS[0], replace(PARTS[1], closing=None))}, ""),
    ],
)  # fmt: skip
def test_rows_of_one_run_alone(
    few: dict[str, Any], many: dict[str, Any], plan: dict[str, Any], detail: str
) -> None:
    """A row is added or removed where the other scan was asked for it, and where its file would have it."""
    less = run_of(OTHER, name="few", settings=replace(SETTINGS, **few))
    less = replace(less, run=replace(less.run, header=replace(less.run.header, **plan)))
    more = run_of(OTHER, PUT_ROW, name="many", settings=replace(SETTINGS, **many))

    assert ("not enumerated: 1 op" in str(states(less))) is (detail == ENDED)
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
