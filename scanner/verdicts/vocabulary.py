"""The words of verdicts and findings: one entry each, with all that any report says or shows of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeVar

Verdict = Literal["deterministic", "nondeterministic", "raises", "error", "timeout", "crash", "not_run"]
Finding = Literal[
    "deterministic",
    "mode_dependent",
    "uninitialized",
    "fixed_by_mode",
    "raises",
    "over_alert",
    "silent",
    "inconclusive",
]
ModeFinding = Literal[
    "silent",
    "raises",
    "differs",
    "also_differs",
    "fixed_by_mode",
    "mode_dependent",
    "refused",
    "not_compiled",
    "inconclusive",
    "as_off",
]
Dependence = Literal["invariant", "varies", "not_repeatable", "error", "not_asked"]

_Name = TypeVar("_Name", bound=str)
NO_SIGN = "·"  # of what says nothing


class Word(NamedTuple):
    """An entry of a vocabulary. Signs are shapes, so that colour never carries meaning alone."""

    meaning: str  # one sentence, printed with every report
    sign: str = NO_SIGN
    colour: str | None = None  # in a terminal
    rank: int = 0  # of findings: what a user must act on first has the lowest
    action: str = ""  # what to do about an op, in a cell of a table
    advice: str = ""  # the same in sentences
    phrase: str = ""  # what is found, as a sentence goes on with it


def meanings(words: Mapping[_Name, Word]) -> dict[_Name, str]:
    """Return what each word means."""
    return {name: word.meaning for name, word in words.items()}


VERDICT: dict[Verdict, Word] = {
    "deterministic": Word(
        "All n executions gave the bits of the first; this bounds the rate of differing and does not rule out nondeterminism; "
        "on a simulated GPU n counts schedules and bounds no rate.",
        "=",
    ),
    "nondeterministic": Word(
        "k of n executions differed in at least one bit from the first, on the same inputs.", "≠"
    ),
    "raises": Word("PyTorch raised its alert that the op has no deterministic implementation.", "!"),
    "error": Word(
        "Something else failed, and the reason is given; this says nothing about determinism.",
        "×",  # noqa: RUF001
    ),
    "timeout": Word("The case exceeded the time limit and was stopped.", "…"),
    "crash": Word("The worker process died during the case.", "†"),
    "not_run": Word("The case never ran, and the reason is given.", "–"),  # noqa: RUF001
}
# Of rows, in the order of the reports.
FINDING: dict[Finding, Word] = {
    "silent": Word(
        "The bits differ with the flag on, and nothing was raised.",
        "▲",
        "bright_red",
        rank=0,  # nothing helps, and nothing warns
        action="no fix: differs silently",
        advice="The flag does not help, and does not say so: use another op, or accept the difference.",
    ),
    "raises": Word(
        "Raises with the flag on, and differs with it off or under warn_only.",
        "■",
        "red",
        rank=1,  # nothing helps, and the flag warns
        action="no fix: raises",
        advice="With the flag on it raises: use another op, or warn_only=True and accept the difference.",
    ),
    "over_alert": Word(
        "Raises with the flag on, but no difference was seen, neither with it off nor under warn_only.",
        "□",
        "yellow",
        rank=2,  # the flag stops a program that was not seen to need it
        action="raises; no difference seen",
        advice="With the flag on it raises, though no difference was seen: warn_only=True lets it run.",
    ),
    "fixed_by_mode": Word(
        "Differs with the flag off, did not differ with it on.",
        "◆",
        "blue",
        rank=3,
        action="set the flag",
        advice="Set the flag: torch.use_deterministic_algorithms(True).",
    ),
    "uninitialized": Word(
        "Differs with the flag off, and with it on unless uninitialized memory is filled: the fill fixes it, not the flag.",
        "◈",
        "cyan",
        rank=4,
        action="set the flag: it fills memory",
        advice="It returns uninitialized memory: write it before you read it. The flag fills it "
        "(torch.utils.deterministic.fill_uninitialized_memory, on by default).",
    ),
    "mode_dependent": Word(
        "Did not differ within either mode, but the two modes give different bits.",
        "◇",
        "magenta",
        rank=5,
        action="keep one setting: on or off",
        advice="Keep one setting, on or off: each always gives the same bits, but not those of the other.",
    ),
    "deterministic": Word(
        "Did not differ in either mode, and both modes give the same bits.",
        "●",
        "green",
        rank=7,  # beside a row that was not settled, one that did not differ says nothing of the op
        action="nothing to do",
        advice="Nothing to do: no difference was seen. Other inputs may differ.",
    ),
    "inconclusive": Word(
        "At least one mode has no usable verdict; the reason is given.",
        "○",
        rank=6,
        action="not settled",
        advice="Not settled, for the reasons told. An error needs other inputs; anything else needs another scan.",
    ),
}
FINDINGS: tuple[Finding, ...] = tuple(FINDING)
WORST_FIRST: tuple[Finding, ...] = tuple(sorted(FINDING, key=lambda name: FINDING[name].rank))
# Of rows that differ with the flag off and did not with it on; of those that raise with it on.
CURED: tuple[Finding, ...] = ("fixed_by_mode", "uninitialized")
RAISING: tuple[Finding, ...] = ("raises", "over_alert")
# What a simulated GPU shows of a row beside its finding; the worst first.
BESIDE: dict[str, Word] = {
    "wrong_with_flag": Word(
        "With the flag on the result is not the CPU's, and with it off it is.",
        "▼",
        "bright_red",
        advice="Leave the flag off for such inputs, and report it to PyTorch.",
        phrase="wrong with the flag on",
    ),
    "wrong_without_flag": Word(
        "With the flag off the result is not the CPU's, and with it on it is.",
        "▽",
        "bright_red",
        advice="Set the flag for such inputs, and report it to PyTorch.",
        phrase="wrong with the flag off",
    ),
    "value_race": Word(
        "A schedule gave other values than the CPU, not only another rounding.",
        "⇄",
        "bright_red",
        advice="Look at the kernel for a lost update, and report it to PyTorch.",
        phrase="value race",
    ),
    "contradiction": Word(
        "Its witness says rounding and small integers a race of writers, or the other way round.",
        "⊥",
        "bright_red",
        advice="Look at the witness, and tell detmatrix: the simulation may be wrong.",
        phrase="contradiction",
    ),
}
# Of a mode that ``--modes`` chose, held against the flag off; the worst first, and last what needs no attention.
MODE_FINDING: dict[ModeFinding, Word] = {
    "silent": FINDING["silent"]._replace(
        meaning="The flag is on in the phase that is compared, nothing was raised, and the bits differ.",
        phrase="it differs though the flag is on",
    ),
    "raises": FINDING["raises"]._replace(meaning="Raises PyTorch's alert in this mode.", phrase="it raises"),
    "differs": Word(
        "Differs in this mode, and did not with the flag off.",
        "≠",
        phrase="it differs, and does not with the flag off",
    ),
    "also_differs": Word(
        "Differs in this mode, as it does with the flag off.", "≢", phrase="it differs, as with the flag off"
    ),
    "fixed_by_mode": FINDING["fixed_by_mode"]._replace(
        meaning="Differs with the flag off, did not differ in this mode.",
        phrase="it did not differ, and does with the flag off",
    ),
    "mode_dependent": FINDING["mode_dependent"]._replace(
        meaning="Did not differ in this mode nor with the flag off, but the two give different bits.",
        phrase="it gives other bits than with the flag off, the same every time",
    ),
    "refused": Word(
        "PyTorch refused to run a backward phase with the flag on that was compiled with it off; this is no alert.",
        "⊘",
        phrase="PyTorch refuses to run its backward phase",
    ),
    "not_compiled": Word(
        "torch.compile ran the op eagerly; this says nothing of compiled code.",
        "○",
        phrase="nothing of it is compiled",
    ),
    "inconclusive": FINDING["inconclusive"]._replace(
        meaning="This mode, or the flag off, has no usable verdict; the reason is given.",
        phrase="it is not settled",
    ),
    "as_off": Word(
        "As with the flag off: did not differ, and gives the same bits.",
        "=",
        phrase="it is as with the flag off",
    ),
}
# Of a property that ``--invariance`` chose.
DEPENDENCE: dict[Dependence, Word] = {
    "varies": Word(
        "At the values named each of 10 executions gave the same bits, and not those of the baseline (of batch: Replay "
        "only, in the words of NVIDIA's table of cuDNN, https://docs.nvidia.com/cudnn/operations/determinism).",
        "≠",
        phrase="its bits vary",
    ),
    "not_repeatable": Word(
        "Executions at one value differ among themselves, or run to run: what the value changes cannot be told (of batch: "
        "Not guaranteed).",
        "?",
        phrase="its bits are not repeatable",
    ),
    "error": Word(
        "It could not be tried; the reason is given.",
        "×",  # noqa: RUF001
        phrase="it could not be tried",
    ),
    "invariant": Word(
        "At every value that was tried each execution gave the bits of the baseline (of batch: Supported, which is a "
        "guarantee there and a measurement here).",
        "=",
        phrase="its bits stay the same",
    ),
    "not_asked": Word("It was not asked of this row; the reason is given."),
}
# What a property finds; of what it was not asked it says nothing.
DEPENDENCE_FOUND: dict[str, str] = {
    str(name): word.meaning for name, word in DEPENDENCE.items() if name != "not_asked"
}
# All that stands in a column: a word that is a finding too looks the same.
COLUMN_WORDS: dict[str, Word] = {
    name: word for words in (FINDING, BESIDE, DEPENDENCE, MODE_FINDING) for name, word in words.items()
}
# Why it shows little that a row did not differ, in a mode (low power) or in either (serial).
DOUBTS = ("low_power", "serial")
# The words that --only and --fail-on know: findings of rows, those of the further columns that a scan may be asked for, and doubts.
FINDING_WORDS: tuple[str, ...] = tuple(
    dict.fromkeys((*BESIDE, *FINDING, *MODE_FINDING, *DEPENDENCE_FOUND, *DOUBTS))
)
VERDICT_MEANING, FINDING_MEANING, BESIDE_MEANING = meanings(VERDICT), meanings(FINDING), meanings(BESIDE)
MODE_FINDING_MEANING = meanings(MODE_FINDING)
