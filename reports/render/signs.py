"""The signs of verdicts and findings, the same in every format: shapes, so that colour never carries meaning alone."""

from __future__ import annotations

from scanner.verdicts.cells import Verdict
from scanner.verdicts.findings import Finding

FINDING_SIGN: dict[Finding, str] = {
    "silent": "▲",
    "raises": "■",
    "over_alert": "□",
    "order_dependent": "△",
    "fixed_by_mode": "◆",
    "uninitialized": "◈",
    "mode_dependent": "◇",
    "deterministic": "●",
    "inconclusive": "○",
}
# Of what a further column finds (reports/matrix/columns.py): a word that is a finding too has its sign.
COLUMN_SIGN: dict[str, str] = {
    **dict(FINDING_SIGN.items()),
    "differs": "≠",
    "also_differs": "≢",
    "refused": "⊘",
    "not_compiled": "○",
    "as_off": "=",
    "varies": "≠",
    "invariant": "=",
    "not_repeatable": "?",
    "error": "×",  # noqa: RUF001
    # Beside a finding, on a simulated GPU.
    "wrong_with_flag": "▼",
    "wrong_without_flag": "▽",
    "value_race": "⇄",
    "contradiction": "⊥",
}
NO_SIGN = "·"  # it says nothing
VERDICT_SIGN: dict[Verdict, str] = {
    "deterministic": "=",
    "nondeterministic": "≠",
    "raises": "!",
    "error": "×",  # noqa: RUF001
    "timeout": "…",
    "crash": "†",
    "not_run": "–",  # noqa: RUF001
}
