"""The documented lists of two releases, held against what was measured to change."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from detmatrix.reports.compare.page import markdown
from detmatrix.reports.compare.runs import Measured, Pair, compare, compare_claims
from detmatrix.scanner.claims.tables import documented_claims, parse_claims
from detmatrix.scanner.observations.records import MODES, Claim
from detmatrix.scanner.verdicts.vocabulary import Finding
from tests.compared import OFTEN, pair_of, run_of, shows
from tests.documented import docstring
from tests.runs import SETTINGS, drifting, ran, row, stable

PUT = ":func:`torch.Tensor.put_`"
TAKE = ":func:`torch.take` when attempting to differentiate a CPU tensor"


def claims(acting: Sequence[str] = (), raising: Sequence[str] = ()) -> tuple[Claim, ...]:
    return parse_claims(docstring(acting, raising))


TRUE, FALSE = (f"{PUT} with ``accumulate={it}``" for it in (True, False))


@pytest.mark.parametrize(
    ("old", "new", "kinds"),
    [
        (claims([], [PUT]), claims([PUT], []), "moved:raises>deterministic"),
        (claims([PUT], []), claims([], [PUT]), "moved:deterministic>raises"),
        (claims([], []), claims([], [PUT]), "added:none>raises"),
        (claims([], [PUT]), claims([], []), "dropped:raises>none"),
        # Another device is another claim, though the op is the same.
        (claims([], [TAKE]), claims([], [TAKE.replace("CPU", "CUDA")]), "added:none>raises dropped:raises>none"),
        # The same words, said of a subset: other conditions. The same meaning in other words. Both at once.
        (claims([], [PUT]), claims([], [TRUE]), "reworded:raises>raises"),
        (claims([], [TRUE]), claims([], [TRUE.replace("with", "when")]), "reworded:raises>raises"),
        (claims([], [PUT]), claims([TRUE], []), "moved:raises>deterministic"),
        # What was not understood is compared by its words.
        (claims([], [f"{PUT} at full moon"]), claims([f"{PUT} at full moon"], []), "moved:raises>deterministic"),
        # Where a bullet could have become any of two, it went and they came.
        (claims([], [PUT]), claims([], [TRUE, FALSE]), "added:none>raises added:none>raises dropped:raises>none"),
        # The lists of a release, and the same in another order.
        (documented_claims("2.13"), documented_claims("2.13")[::-1], ""),
    ],
)  # fmt: skip
def test_what_became_of_bullets(old: tuple[Claim, ...], new: tuple[Claim, ...], kinds: str) -> None:
    """Bullets are moved, added, dropped or reworded; each once, and none is paired where several could be meant."""
    found = [
        f"{one.change}:{'>'.join(one[side]['section'] if one[side] else 'none' for side in ('from', 'to'))}"
        for one in compare_claims(old, new, ())
    ]

    assert found == kinds.split()


CPU = ":func:`torch.Tensor.put_` when called on a CPU tensor"
CUDA = CPU.replace("CPU", "CUDA")
PLANNED = row("torch.Tensor.put_")
RAISES, ACTS, SILENT = (shows(finding, PLANNED) for finding in ("raises", "fixed_by_mode", "silent"))


@pytest.mark.parametrize(
    ("bullet", "before", "after", "measured", "unmeasured"),
    [
        (CPU, RAISES, ACTS, "changed", False),
        (CPU, RAISES, SILENT, "otherwise", True),
        (CPU, ACTS, RAISES, "otherwise", True),
        (CPU, RAISES, RAISES, "same", True),
        (CPU, shows("fixed_by_mode", PLANNED, often=3), shows("deterministic", PLANNED), "not_comparable", False),
        (CUDA, RAISES, RAISES, "other_device", False),
        (":func:`torch.kthvalue`", RAISES, RAISES, "not_covered", False),
    ],
)  # fmt: skip
def test_documented_beside_measured(
    bullet: str, before: object, after: object, measured: Measured, *, unmeasured: bool
) -> None:
    """A bullet that moved stands beside what became of the rows that speak to it; without any change it is a finding."""
    old = run_of(before, name="a", claims=claims([], [bullet]))  # type: ignore[arg-type]
    new = run_of(after, name="b", claims=claims([bullet], []))  # type: ignore[arg-type]
    (one,) = pair_of(old, new).claims

    assert ("moved", measured, unmeasured) == (one.change, one.measured, one.unmeasured)


def test_a_mode_is_no_measured_change_of_a_bullet() -> None:
    """Bullets speak of the flag off and on: what a chosen mode began or ceased to do is neither promised nor undocumented."""
    planned = row("torch.cumsum", device="cuda")
    eager = [one for mode in MODES for one in ran(planned, mode, *stable())]
    settings = replace(SETTINGS, device="cuda:0")
    old, new = (
        run_of(
            (planned, [*eager, *ran(planned, "compile_on", *seen)]),
            name=name,
            claims=documented_claims(release),
            settings=settings,
        )
        for name, release, seen in (("a", "2.13", drifting(OFTEN)), ("b", "2.14", stable()))
    )
    pair = pair_of(old, new)
    (moved,) = (one for one in pair.claims if one.change == "moved")

    assert (pair.counts["improved"], moved.measured, moved.unmeasured) == (1, "same", True)
    assert pair.undocumented == ()
    shown = "".join(markdown(compare([old, new])))
    assert re.search(r"\| moved .*\| same +\| 1 same: deterministic", shown)


def _changed(old: tuple[Claim, ...], new: tuple[Claim, ...], after: Finding = "raises") -> Pair:
    rows = row("torch.Tensor.put_"), row("my.own_op")
    return pair_of(
        run_of(*(shows("fixed_by_mode", one) for one in rows), name="a", claims=old),
        run_of(*(shows(after, one) for one in rows), name="b", claims=new),
    )


def test_measured_without_documented() -> None:
    """A row of torch that changed, and of which no changed bullet speaks, is a finding; an op of one's own is none."""
    listed = claims([CPU, ":func:`torch.take`"], [])

    assert [one.row.row.spec for one in _changed(listed, listed).undocumented] == ["torch.Tensor.put_"]
    assert _changed(listed, claims([":func:`torch.take`"], [CPU])).undocumented == ()


def _in_other_words(listed: tuple[Claim, ...]) -> tuple[Claim, ...]:
    return tuple(replace(one, text=f"{one.text}, as ever") for one in listed)


@pytest.mark.parametrize(
    ("old", "new", "after", "documented_too"),
    [
        # Into a list and out of one, as the row did.
        (claims(), claims([], [CPU]), "raises", True),
        (claims([CPU]), claims(), "silent", True),
        # The other way round, or something else.
        (claims([], [CPU]), claims([CPU]), "raises", False),
        (claims([], [CPU]), claims(), "raises", False),
        (claims([CPU]), claims([], [CPU]), "silent", False),
        (claims(), claims([CPU]), "silent", False),
        # Other words say nothing.
        (claims([], [CPU]), _in_other_words(claims([], [CPU])), "raises", False),
        (claims([CPU]), _in_other_words(claims([CPU])), "silent", False),
    ],
)
def test_a_documented_change_is_one_in_the_same_direction(
    old: tuple[Claim, ...], new: tuple[Claim, ...], after: Finding, *, documented_too: bool
) -> None:
    """Only a bullet that changed as the row did documents what the row did."""
    undocumented = [one.row.row.spec for one in _changed(old, new, after).undocumented]

    assert undocumented == ([] if documented_too else ["torch.Tensor.put_"])
