"""The settings of a scan: a field for each, with all that the command line, ``--resume`` and reports say of it."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Annotated, Any, Literal, get_type_hints

from msgspec import Meta, Struct

from detmatrix.scanner.accelerators import ACCELERATORS, MEASURED, SIMULATED
from detmatrix.scanner.invariance import PROPERTIES, Property
from detmatrix.scanner.modes import DEFAULT_MODES, MODE_TABLE, MODES, OFFERED_MODES, Mode, said_modes
from detmatrix.scanner.perturbations import DEFAULT, OFFERED, PERTURBATIONS

# documented  written by hand, after PyTorch's lists
# own         the user's
# opinfo      PyTorch's database of operators, op_db of the scanned torch
# modules     PyTorch's database of modules, module_db of the scanned torch
Source = Literal["documented", "own", "opinfo", "modules", "gradgrad", "instead"]

# What a run file counts is held against its settings, and these against these.
MOST_RUNS = 1_000_000
MOST_PROCESSES = 1_000
# Side by side.
MOST_WORKERS = 8
_MOST_MULTIPROCESSORS = 1_000  # of a simulated GPU
# Executions, at most, of a further process, for rows that need more than was asked for.
MOST_FURTHER = 1_000
# Patterns, files, variables, dtypes.
MOST_NAMES = 10_000
_DAY = 86400

Share = Annotated[float, Meta(gt=0, lt=1)]
Duration = Annotated[float, Meta(gt=0)]
Texts = Annotated[tuple[str, ...], Meta(max_length=MOST_NAMES)]
# Names that steer what is run again: run files come from anywhere, so what is no such name is refused where they are read.
Device = Annotated[str, Meta(pattern=rf"^(cpu|({'|'.join(ACCELERATORS)}):[0-9]{{1,4}})\Z")]
Perturb = Annotated[str, Meta(pattern=f"^({'|'.join(PERTURBATIONS)})\\Z")]


# Functions, since the annotations below are evaluated where no lambda would find the names of this module.


def _same_device(asked: str, there: str) -> bool:
    """Tell whether a device will do; "cuda" is content with any of them."""
    return asked in {"auto", there, there.partition(":")[0]}


def _same_modes(asked: tuple[Mode, ...], there: tuple[Mode, ...]) -> bool:
    """Tell whether the same modes were said; which others follow depends on the device."""
    return said_modes(asked) == said_modes(there)


def _said_device(device: str) -> str | None:
    """Return what ``--device`` says; of a simulated one ``--simulate`` does."""
    return None if device == SIMULATED else device


def _said_if_on(switch: bool) -> bool | None:
    """Return what asks for a switch that nobody turns off."""
    return switch or None


def _said_perturbations(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return what ``--perturb`` says; schedules follow from ``--simulate``."""
    return tuple(name for name in names if name in OFFERED)


class Setting(Struct, frozen=True, kw_only=True):
    """How one setting is asked for, what resuming makes of it, and how reports call it."""

    label: str  # in reports
    default: Any = None  # of a new scan; what a run file means that lacks the field stands behind the field
    option: str = ""  # empty: there is none
    several: bool = False  # the option may be given more than once, for one item of the list each
    metavar: str | None = None
    limits: Meta | None = None  # of what may be asked for, where it is a number
    help: str = ""  # without the default, which is added where it is a value
    # Whether a scan that was begun with the second goes on when the first is asked for; what is not asked for goes on
    # as it was.
    resumes: Callable[[Any, Any], bool] = operator.eq
    # What of a value is said on the command line, where the rest follows.
    said: Callable[[Any], Any] = lambda value: value
    selects: bool = False  # decides, beside patterns, which rows are planned
    reruns: bool = False  # the command that runs a row again gives it: its executions depend on it
    unit: Literal["", "s", "%"] = ""
    separator: str = ", "  # between the items of a list, in reports
    empty: str = ""  # what an empty list means

    @property
    def negated(self) -> str:
        """The option that turns a switch off."""
        return f"--no-{self.option.removeprefix('--')}"

    def words(self, value: Any) -> list[str]:
        """Return the words of a command line that ask for a value; none if it is one that nobody asked for."""
        value = self.said(value)
        if isinstance(value, bool):
            return [self.option if value else self.negated]
        least = self.limits.ge if self.limits else None
        if value in {None, ""} or (least is not None and value < least):
            return []
        items = value if self.several else [value] * (value != ())
        return [word for item in items for word in (self.option, written(item))]


def written(value: object) -> str:
    """Write a value as the user would behind an option."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the user asked for, as a run file holds it; the comments speak of the values."""

    patterns: Annotated[
        Texts, Setting(label="patterns", default=(), separator=" ", empty="none given, so all rows")
    ]
    device: Annotated[  # as resolved: "cpu", "cuda:0"
        Device,
        Setting(
            label="device",
            default="auto",
            option="--device",
            metavar="auto|cpu|cuda|cuda:N",
            help=f"Where to run: the CPU, or an accelerator ({', '.join(MEASURED)}; ROCm is cuda); auto takes one if "
            "torch sees it.",
            resumes=_same_device,
            said=_said_device,
            reruns=True,
        ),
    ]
    simulate: Annotated[
        str,
        Meta(pattern=r"^(sm_[0-9]{2,3})?\Z"),
        Setting(
            label="simulated architecture",
            default="",
            option="--simulate",
            metavar="ARCH",
            help="Simulate a GPU of this architecture, such as sm_80: an interpreter executes the kernels of a CUDA build of "
            "torch, in orders that are drawn. No GPU is needed, and none is used. The defaults are then --runs 8, "
            "--processes 1 and --timeout 300.",
            reruns=True,
            empty="none",
        ),
    ] = ""
    multiprocessors: Annotated[
        int,
        Meta(ge=0, le=_MOST_MULTIPROCESSORS),
        Setting(
            label="simulated multiprocessors",
            default=0,
            option="--multiprocessors",
            metavar="N",
            limits=Meta(ge=1, le=_MOST_MULTIPROCESSORS),
            help="Of a simulated GPU; fewer or more blocks are resident at once, and PyTorch chooses other grids. Without it as "
            "many as the device has that is simulated.",
            reruns=True,
            empty="as published",
        ),
    ] = 0
    as_simulated: Annotated[
        bool,
        Setting(
            label="inputs of a simulated GPU",
            default=False,
            option="--as-simulated",
            help="Draw the inputs that a simulated GPU is given, so that its bits can be held against those of this device.",
            said=_said_if_on,
            reruns=True,
        ),
    ] = False
    runs: Annotated[
        int,
        Meta(ge=1, le=MOST_RUNS),
        Setting(
            label="executions per process",
            default=50,
            option="--runs",
            metavar="N",
            limits=Meta(ge=1, le=MOST_RUNS),
            help="Executions per process. Where whole databases are scanned 25, on a simulated GPU 8.",
            reruns=True,
        ),
    ]
    processes: Annotated[  # FURTHER_MODES may have one more, for rows that need more executions
        int,
        Meta(ge=1, le=MOST_PROCESSES),
        Setting(
            label="processes per mode",
            default=2,
            option="--processes",
            metavar="P",
            limits=Meta(ge=1, le=100),
            help="Worker processes per mode; more of them narrow the bound on the rate of differing.",
            reruns=True,
        ),
    ]
    timeout: Annotated[
        Duration,
        Setting(
            label="timeout per case and process",
            default=60.0,
            option="--timeout",
            metavar="S",
            limits=Meta(gt=0, le=_DAY),
            help="Seconds a case may take in one process.",
            reruns=True,
            unit="s",
        ),
    ]
    seed: Annotated[
        int,
        Meta(ge=0, le=2**63 - 1),
        Setting(
            label="seed",
            default=0,
            option="--seed",
            metavar="S",
            limits=Meta(ge=0, le=2**63 - 1),
            help="Seed of inputs and random ops.",
            reruns=True,
        ),
    ]
    modes: Annotated[  # those included that only some rows live under
        tuple[Mode, ...],
        Setting(
            label="modes",
            default=DEFAULT_MODES,
            option="--modes",
            metavar="LIST",
            help="Comma-separated modes to run rows in. A mode is what a process sets before it runs rows: off and on are "
            "torch.use_deterministic_algorithms(False) and (True); beside off and on (every scan has those two): "
            f"{', '.join(OFFERED_MODES)}. detmatrix list --modes says what each of them is.",
            resumes=_same_modes,
            said=said_modes,
            reruns=True,
        ),
    ] = MODES
    compile_all: Annotated[
        bool,
        Setting(
            label="all cases compiled",
            default=False,
            option="--compile-all",
            help="In modes under torch.compile run all cases: by default one of each op in each direction, since a compilation "
            "takes seconds.",
        ),
    ] = False
    perturb: Annotated[  # share the executions, in this order
        tuple[Perturb, ...],
        Setting(
            label="perturbations asked for",
            default=DEFAULT,
            option="--perturb",
            metavar="LIST",
            help=f"Comma-separated perturbations to split the executions among: {', '.join(OFFERED)}.",
            said=_said_perturbations,
            reruns=True,
        ),
    ] = ("quiet",)
    workers: Annotated[  # as resolved
        int,
        Meta(ge=1, le=MOST_WORKERS),
        Setting(
            label="workers side by side",
            option="--workers",
            metavar="N",
            limits=Meta(ge=1, le=MOST_WORKERS),
            help="Workers side by side, each with its share of the rows. Default: 1 on the CPU, where they would be load "
            f"to one another; on an accelerator as many as its memory and the cores allow, at most {MOST_WORKERS}.",
        ),
    ] = 1
    # Retired: earlier releases chose `runs` from them.
    confidence: Annotated[Share | None, Setting(label="confidence that n was chosen for", unit="%")] = None
    max_rate: Annotated[Share | None, Setting(label="rate of differing that n was chosen for", unit="%")] = (
        None
    )
    max_time: Annotated[
        Duration | None,
        Setting(
            label="executions per case and process, at most",
            default=5.0,
            option="--max-time",
            metavar="S",
            limits=Meta(gt=0, le=_DAY),
            help="Seconds of executions a case gets in one process, and its cost, five samples at least; the n it reached is recorded. Where "
            "whole databases are scanned 0.02, on a simulated GPU no limit. Rows that need more executions and --invariance get 5 at least, or half of --timeout if that is less; so does compare --confirm.",
            reruns=True,
            unit="s",
        ),
    ] = None
    cost: Annotated[
        bool,
        Setting(
            label="rows timed", default=True, option="--cost", help="Time each row with the flag off and on."
        ),
    ] = False
    overloads: Annotated[
        bool,
        Setting(
            label="overloads recorded",
            default=True,
            option="--overloads",
            help="Record which overloads of PyTorch each row reaches, for coverage.",
        ),
    ] = False
    invariance: Annotated[  # in the order of the table
        tuple[Property, ...],
        Meta(max_length=len(PROPERTIES)),
        Setting(
            label="invariance asked for",
            default=(),
            option="--invariance",
            metavar="LIST",
            help="Ask of rows that did not differ whether their bits change with something else. Comma-separated: "
            f"{', '.join(PROPERTIES)}.",
            selects=True,
            empty="none",
        ),
    ] = ()
    specs: Annotated[  # as they were given
        Texts,
        Setting(
            label="files of own specs",
            default=(),
            option="--specs",
            several=True,
            metavar="FILE.py",
            help="Scan the SPECS of this file too. May be given more than once.",
            # The files may lie elsewhere by now; that the rows are those planned is checked by themselves.
            resumes=lambda _, __: True,
            selects=True,
            reruns=True,
        ),
    ] = ()
    sources: Annotated[  # beside those files
        tuple[Source, ...],
        Setting(
            label="sources of specs",
            default=("documented",),
            option="--source",
            metavar="LIST",
            help="Comma-separated sources of specs: documented (written by hand), opinfo and modules (PyTorch's databases "
            "of operators and modules, in the scanned torch), or all of these; gradgrad: second gradients of operators; instead: other spellings of ops.",
            selects=True,
            reruns=True,
        ),
    ] = ("documented",)
    dtypes: Annotated[  # or "all"
        Texts,
        Setting(
            label="dtypes of database entries",
            default=(),
            option="--dtypes",
            metavar="LIST",
            help="Dtypes of the databases' entries, or all that each declares. Default: float32, or the first that it "
            "has.",
            selects=True,
            reruns=True,
            empty="float32, or the first that an entry declares",
        ),
    ] = ()
    samples: Annotated[  # 0: no database was scanned
        int,
        Meta(ge=0),
        Setting(
            label="samples per database entry, at most",
            default=2,
            option="--samples",
            metavar="N",
            limits=Meta(ge=1, le=1000),
            help="Samples of each of the databases' entries and dtypes.",
            selects=True,
            reruns=True,
        ),
    ] = 0

    def runs_in(self, mode: Mode) -> int:
        """Return how often a row is executed in each process of a mode."""
        if self.simulate:
            return self.runs
        return max(self.runs, math.ceil(MODE_TABLE[mode].least_runs / self.processes))


# By the name of the field, in the order of the fields.
SETTINGS: dict[str, Setting] = {
    name: next(one for one in hint.__metadata__ if isinstance(one, Setting))
    for name, hint in get_type_hints(Settings, include_extras=True).items()
}
