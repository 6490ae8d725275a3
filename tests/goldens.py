"""What every command that reads files prints, in every format, approved: ``python -m tests.goldens`` writes the texts again.

A golden is a text in ``tests/golden`` that begins with the command line that prints it, run in a folder of run files that code
writes or that are recorded. A new one is a file with that line alone, ``$ detmatrix report run.jsonl --format md``, whose name ends
like its format. A reviewer reads what a change does to users in the diff of these texts.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from msgspec.structs import replace

from detmatrix.reports.matrix.model import load
from detmatrix.scanner.claims.tables import parse_claims
from detmatrix.scanner.invariance import PROPERTIES
from detmatrix.scanner.modes import CHOSEN_MODES, MODES, WORKER_MODES, Mode
from detmatrix.scanner.observations.records import (
    BuildOverloads,
    Compiled,
    Dispatch,
    Distrust,
    Enumerated,
    EnumeratedEntry,
    Group,
    Invariance,
    Observation,
    OpComparison,
    Tried,
)
from detmatrix.scanner.observations.runfile import Line, RunReader
from detmatrix.scanner.observations.writer import RunWriter
from detmatrix.scanner.repro.script import invariance_script, script
from detmatrix.scanner.verdicts.vocabulary import Finding
from tests.commands import Command, command_in
from tests.compared import OFTEN, shows
from tests.documented import docstring, shown
from tests.evidence_runs import FORCING, controls, cost, evidence_run, overloads_run, sentinel, timing
from tests.found import PROGRAMS
from tests.mutants import INPUT_SOURCE, base_run
from tests.runs import (
    CLOSING,
    ENVIRONMENT,
    RUNS,
    SETTINGS,
    Planned,
    drifting,
    ended,
    every_finding,
    raised,
    ran,
    row,
    seen,
    stable,
    write_run,
)

ROOT = Path(__file__).parent.parent
APPROVED = ROOT / "tests" / "golden"
REPORTS = ROOT / "reports"
# A longer text of a recorded run is approved as its digest and its first lines: the synthetic runs show every sentence.
MOST = 20_000
EXCERPT = 12
# What a run file may hold to break a report.
HOSTILE = (
    "<script>alert(1)</script> | `x` **b** [l](http://e) </td> {{ 7 * 7 }} \x1b[31m \u202e\n"
    "second \u00e9\u4e2d\U0001f600 line"
)


def _lists(*raising: str) -> str:
    """Return lists of ops that act, and of those that raise."""
    acting = [
        ":class:`torch.nn.MaxPool3d` when attempting to differentiate a CUDA tensor",
        ":func:`torch.add` when called on a CPU tensor",
    ]
    return docstring(acting, [f":func:`torch.{name}` when called on a CPU tensor" for name in raising])


LISTS = _lists("put", "sort")
# The ops of runs of three versions, and what each of them shows.
OPS = ("torch.add", "torch.put", "torch.take", "torch.sort")
VERSIONS: dict[str, tuple[Finding, ...]] = {
    "2.11.0": ("raises", "deterministic", "fixed_by_mode", "fixed_by_mode"),
    "2.13.0": ("fixed_by_mode", "deterministic", "fixed_by_mode", "deterministic"),
    "2.15.0": ("fixed_by_mode", "silent", "deterministic", "deterministic"),
}
SUM = row("torch.sum", family="reduction")


def _again(mode: Mode, planned: Planned) -> Planned:
    """Return a row that another mode follows up, in which nothing differs."""
    return planned[0], [*planned[1], *ran(planned[0], mode, *stable())]


SAMPLE = replace(
    row("torch.addmm", "sample_3", provokes="", why=""),
    source="opinfo",
    provoked="enlarged",
    enlargement="0:64 1:repeat",
    samples=7,
)
ENTRY = EnumeratedEntry(
    source="opinfo", spec=SAMPLE.spec, rows=(SAMPLE,), samples=7, taken=3, enlarged=1, refused=1
)
ENUMERATED = (Enumerated(source="opinfo", entries=9, samples=80, taken=40, enlarged=30, refused=2),)


def rows_beside() -> list[Planned]:
    """Return rows that show what those of ``base_run`` do not: every finding, rows of databases and of users, hostile texts."""
    hostile = row(HOSTILE, HOSTILE, family=HOSTILE, provokes=HOSTILE, why=HOSTILE, documented=(HOSTILE,))
    long = row(f"torch.{'long' * 40}", "case" * 20)
    own = replace(row("mine.op", "only", family="mine"), source="own", digest="d" * 64)
    taken = {("torch.Tensor.scatter_add_", "collisions"), ("torch.Tensor.put_", "duplicates")}
    found = [one for one in every_finding() if (one[0].spec, one[0].case) not in taken]
    invalid = row("torch.clone", "only", family="memory")
    return [
        *found,
        (invalid, ended(invalid, "off", "invalid", "its result is an input unchanged")),
        shows("uninitialized", row("torch.empty_like", "left", family="memory")),
        _again("unfilled", shows("fixed_by_mode", SAMPLE)),
        shows("silent", own),
        _again("warn_only", shows("over_alert", long)),
        (hostile, [*ended(hostile, "off", "crash", HOSTILE), *ran(hostile, "on", *stable())]),
    ]


def _differing(one: Line) -> Line:
    """Make each row differ in the modes that were chosen."""
    if isinstance(one, Observation) and one.mode in CHOSEN_MODES and one.digests:
        return one if "control." in one.spec else replace(one, digests={"a": RUNS - 1, "b": 1})
    return one


def _everything(folder: Path) -> None:
    """Write a run that shows all that a scan on a CPU may hold, the rarest things by a change to one record each."""
    base_run(folder / "base.jsonl", rows_beside(), environment=replace(ENVIRONMENT, triton="3.9.0"))

    def rare(one: Line) -> Line:  # noqa: PLR0911 - a table of records
        match one:
            case Observation(mode="compile_on_cached", compiled=Compiled() as compiled):
                return replace(one, compiled=replace(compiled, hits=1))
            case Observation(spec="torch.empty"):
                return replace(one, blank_output="output[1]")
            case Dispatch(spec="torch.topk"):
                return replace(one, outcome="crash", message="killed by signal 9", modes={})
            case Dispatch(spec="torch.Tensor.put_", modes={"on": reached}):
                return replace(
                    one, modes=one.modes | {"on": replace(reached, message="ValueError: no | `value`")}
                )
            case Invariance(spec="torch.cumsum", what="batch"):
                failed = Tried(value="48 permuted", outcome="raised", message="RuntimeError: no such batch")
                return replace(one, trials=(*one.trials[:-1], failed), left_out=("grad of args[1]",))
            case Invariance(spec="torch.cumsum", what="layout"):
                return replace(one, differing=2)
            case _:
                return one

    def turned(one: Line) -> Line:
        """Make a row run in a mode in which it raised."""
        if isinstance(one, Observation) and (one.spec, one.mode) == ("torch.nn.MaxPool3d", "backward_only"):
            ran_ = {"outcome": "ran", "exception": None, "message": None, "inputs_digest": "i" * 8}
            return replace(one, **ran_, executions=RUNS, digests={"a": RUNS})
        return one

    _changed(folder / "base.jsonl", folder / "run.jsonl", rare)
    _changed(folder / "run.jsonl", folder / "turned.jsonl", turned)
    (folder / "base.jsonl").unlink()
    # The same of an older release, and with rows that differ in each mode that there is.
    older = replace(RunReader(folder / "run.jsonl").header.environment, torch="2.12.0+cpu")
    _changed(folder / "run.jsonl", folder / "older.jsonl", _differing, environment=older)


def _changed(old: Path, new: Path, change: Callable[[Line], Line], **header: Any) -> None:
    reader = RunReader(old)
    with RunWriter(new) as writer:
        writer.write(replace(reader.header, **header))
        for record in reader.records():
            writer.write(change(record))


def _doubtful(folder: Path) -> None:
    """Write runs that are not to be believed, not finished, of little power, serial, or of doubtful simulations."""
    distrust = replace(CLOSING, distrust=("control.constant differed in off, process 0",))
    voided = Distrust(reason="control.rare differed", mode="off", process=1, since=2, before=5)
    write_run(folder / "distrusted.jsonl", closing=distrust, lines=[voided])
    write_run(folder / "plain.jsonl")
    write_run(
        folder / "unfinished.jsonl",
        closing=None,
        kernels=BuildOverloads(groups=(), message="no dispatcher"),
        lines=[ENTRY],
    )
    evidence_run(folder / "weak.jsonl", enumerated=ENUMERATED)
    serial = [
        (planned, [replace(one, threads=1, worker=1) for one in seen]) for planned, seen in every_finding()
    ]
    write_run(
        folder / "serial.jsonl",
        serial,
        lines=[Distrust(reason="control.rare differed", mode="on", process=0, since=2, before=3, worker=1)],
        settings=replace(SETTINGS, workers=2),
        environment=replace(ENVIRONMENT, rocm="6.4", cuda="13.0"),
        sentinels=[
            replace(sentinel(differing=0), executions=0, worker=1, message="RuntimeError: no index_put")
        ],
    )

    def doubtful(one: Line) -> Line:
        if not isinstance(one, Observation) or one.simulated is None:
            return one
        found = one.simulated
        told = {"doubts": ("reads a clock",), "sampled": 16, "reversed": 12}
        conflicts = replace(found.conflicts, **told) if found.conflicts else None
        shown = replace(
            found,
            conflicts=conflicts,
            schedule=replace(found.schedule, number=2, seed=7) if found.schedule else None,
            value_race=found.schedule is not None,
            approximation_sensitive=True,
            other_kernels=None,
            real_size_why="the case is too large for a GPU",
        )
        return replace(one, simulated=shown)

    def mended(one: Line) -> Line:
        """Make what schedules showed look as if another build showed it no more."""
        if not isinstance(one, Observation) or one.mode not in MODES or not (found := one.simulated):
            return one
        if one.spec == "torch.nn.ReflectionPad2d" and found.cpu:
            return replace(one, simulated=replace(found, cpu=replace(found.cpu, agrees=True)))
        if one.spec != "torch.nn.AdaptiveMaxPool3d" or not found.schedule:
            return one
        still = {
            "digests": {next(iter(one.digests)): 8},
            "outputs": (),
            "groups": (),
            "first_differing": None,
        }
        return replace(one, executions=8, simulated=replace(found, schedule=None, witness=None), **still)

    recorded = folder / "simulated.jsonl.gz"
    environment = RunReader(recorded).header.environment
    assert environment.simulated
    schedules = environment.simulated.executions | {"lanes": 5}
    other = replace(environment, simulated=replace(environment.simulated, executions=schedules))
    _changed(recorded, folder / "simulated-doubts.jsonl", doubtful)
    _changed(recorded, folder / "simulated-mended.jsonl", mended)
    _changed(recorded, folder / "simulated-more.jsonl", mended, environment=other)


def _hostile(folder: Path) -> None:
    """Write runs that say hostile things wherever a run file has text, the first of a scan whose controls are blind."""
    still, loud = row("torch.op", constant=HOSTILE), row("torch.loud")
    threads = Group(perturbation="threads=1", executions=5, differing=0, digests={"o": 5})
    groups = (Group(perturbation="quiet", executions=RUNS, differing=0), threads)
    blank = [one for mode in MODES for one in ran(still, mode, *stable(), blank="zeros", groups=groups)]
    warned = ran(loud, "warn_only", *drifting(), alerts=(HOSTILE,))
    write_run(
        folder / "blind.jsonl",
        [(still, blank), (loud, [*ran(loud, "off", *stable()), *raised(loud, "on", HOSTILE), *warned])],
        settings=replace(FORCING, perturb=("quiet", "threads")),
        sentinels=[replace(sentinel(differing=0), op=HOSTILE)],
        costs=[cost(still, 1e-5, 9e-5)],
        controls=[*controls("blind"), (row(f"control.{HOSTILE}"), [])],
        closing=None,
    )
    bad, put = row(HOSTILE, HOSTILE), row("torch.put")
    broken = bad, ended(bad, "off", "raised", HOSTILE, exception=HOSTILE)
    changes = (
        [shows("raises", bad), (put, [*shows("deterministic", put)[1][:2], *raised(put, "on", HOSTILE)])],
        [shows("silent", bad), shows("over_alert", put)],
        [broken, shows("silent", put)],
        [broken, shows("silent", put)],
    )
    for place, rows in enumerate(changes):
        write_run(
            folder / f"hostile-{place}.jsonl",
            rows,
            environment=replace(ENVIRONMENT, torch=HOSTILE, cpu=HOSTILE, python=HOSTILE),
            claims=parse_claims(docstring([f":func:`torch.add` {HOSTILE}"], [])) if place else (),
            closing=replace(CLOSING, distrust=(HOSTILE,) if place == len(changes) - 1 else ()),
        )


def _accelerated(folder: Path) -> None:
    """Write a run on a GPU in the modes that there are nowhere else."""
    conv = row("torch.nn.Conv2d", "wide", "backward", device="cuda:0", family="convolution")
    product = row("torch.bmm", "wide", device="cuda:0", family="matrices")
    still: tuple[Mode, ...] = ("off", "on", "cudnn_deterministic", "cudnn_both")
    seen = [one for mode in still for one in ran(conv, mode, *stable())]
    write_run(
        folder / "gpu.jsonl",
        [
            (conv, [*seen, *ran(conv, "cudnn_benchmark", *drifting())]),
            (product, [*shows("deterministic", product)[1], *raised(product, "no_workspace", "bmm")]),
        ],
        settings=replace(SETTINGS, device="cuda:0", modes=WORKER_MODES),
        environment=replace(
            ENVIRONMENT,
            torch="2.9.0+cu128",
            gpu="Example GPU",
            gpu_capability="9.0",
            cudnn=91002,
            driver="580",
            tf32=("cuDNN",),
            cpu_model="cpu family 25, model 17, avx512f",
        ),
    )


def _spellings(folder: Path) -> None:
    """Write a run of other spellings: one with the op's values, one with others, one that nobody could compare."""
    compared = {
        "segments_along_dim:rows": OpComparison(agrees=True, of=64, error=0.5, largest=1.2e-7),
        "accumulate_along_dim:rows": OpComparison(
            agrees=False, output="output", elements=1, of=64, error=9.0, pair=("1.0", "2.0")
        ),
        "accumulate_along_dim:collisions": OpComparison(agrees=None, why="the CPU does not compute it"),
    }
    named = [name.split(":") for name in compared]
    rows = [
        replace(row(f"instead:torch.index_add.{function}", case, family="instead"), source="instead")
        for function, case in named
    ]
    write_run(
        folder / "instead.jsonl",
        [
            (one, [replace(seen, instead=how) for mode in MODES for seen in ran(one, mode, *stable())])
            for one, how in zip(rows, compared.values(), strict=True)
        ],
        settings=replace(SETTINGS, sources=("instead",)),
        costs=[replace(cost(one, 3e-5, 4e-5), op=timing(2e-5)) for one in rows],
    )


def _releases(folder: Path) -> None:
    """Write runs of three releases, whose ops change; sums of the last one have other bits, and its lists another bullet."""
    for torch, findings in VERSIONS.items():
        last = torch == "2.15.0"
        # That one differs too seldom for a proof.
        rows = [
            shows(finding, row(op), often=3 if op == "torch.sort" else OFTEN)
            for op, finding in zip(OPS, findings, strict=True)
        ]
        rows.append(seen("off stable b; on stable b" if last else "off stable; on stable", SUM))
        write_run(
            folder / f"{torch}.jsonl",
            rows,
            environment=replace(ENVIRONMENT, torch=f"{torch}+cpu"),
            claims=parse_claims(_lists("put", "sort", "take") if last else LISTS),
            costs=[
                cost(rows[0][0], 1e-5, 3.4e-5 if torch == "2.11.0" else 1.2e-5),
                cost(SUM, 1e-5, 4e-5 if last else 1e-5),
            ],
        )


def _drift(folder: Path) -> None:
    """Write runs on two devices after which of the lists one entry moves, one is split, one narrows, one appears and one goes."""
    text = (ROOT / "tests" / "data" / "drift.rst").read_text(encoding="utf-8")
    cpu = [shown("torch.Tensor.index_copy", "fixed_by_mode", "cpu"), shown("torch.take", "fixed_by_mode", "cpu", direction="backward")]  # fmt: skip
    interpolate = "torch.nn.functional.interpolate"
    cuda = [
        shown("torch.Tensor.index_copy", "raises"),
        shown("torch.silent_op", "silent"),
        shown("torch.thing", "raises"),
        shown("torch.nn.AvgPool3d", "fixed_by_mode", direction="backward"),
        shown(interpolate, "fixed_by_mode", case="b", direction="backward", traits={"mode": "bicubic"}),
        shown(interpolate, "raises", case="l", direction="backward", traits={"mode": "linear"}),
        shown("torch.cumsum", "raises"),
        shown("torch.cumsum", "fixed_by_mode", dtype="complex64"),
    ]
    for device, rows in (("cpu", cpu), ("cuda:0", cuda)):
        write_run(
            folder / f"drift-{device.partition(':')[0]}.jsonl",
            [(replace(planned, device=device), seen) for planned, seen in rows],
            settings=replace(SETTINGS, device=device),
            claims=parse_claims(text),
        )


def prepare(folder: Path) -> None:
    """Write the files that the command lines name into a folder."""
    shutil.copy(ROOT / "tests" / "data" / "simulated.jsonl.gz", folder)
    _everything(folder)
    _doubtful(folder)
    _releases(folder)
    _spellings(folder)
    _accelerated(folder)
    _drift(folder)
    _hostile(folder)
    write_run(folder / "cpu.jsonl")
    write_run(folder / "empty.jsonl", [])
    put, lost = row("torch.put"), row("torch.open")
    quiet = [
        shows("deterministic", one) for one in (row("torch.einsum"), replace(row("mine.fn"), source="own"))
    ]
    # It shows least of its op, and stands for it.
    few = seen('off [{"a": 30}, {"a": 30}]; on [{"a": 30}, {"a": 30}]', row("torch.einsum", "few"))
    quiet.append(few)
    write_run(folder / "old.jsonl", [quiet[0], (put, raised(put, "on", "put_"))], format_=1)
    write_run(folder / "quiet.jsonl", quiet)
    of_shard = {one.spec: 3 for one, _ in quiet}
    write_run(folder / "shard.jsonl", quiet, plan="f" * 64, groups=of_shard, shard=3, shards=8)
    write_run(folder / "lost.jsonl", [(lost, ended(lost, "off", "crash", "signal 11"))])
    write_run(
        folder / "cuda.jsonl",
        [(replace(planned, device="cuda:0"), seen) for planned, seen in every_finding()[:4]],
        environment=replace(ENVIRONMENT, gpu="Example GPU", torch="2.11.0+cu130"),
        settings=replace(SETTINGS, device="cuda:0"),
        closing=None,
    )
    raising = [":meth:`torch.Tensor.put_`", *(f":func:`torch.{name}`" for name in ("sum", "mm"))]
    raising.append(":func:`torch.cumsum` when called on a CUDA tensor")
    overloads_run(folder / "overloads.jsonl", claims=parse_claims(docstring([], raising)))
    source = folder / "checkout" / "torch" / "__init__.py"
    source.parent.mkdir(parents=True)
    made = f'def use_deterministic_algorithms(mode):\n    r"""Sets.\n{LISTS}\n    """\n    return mode\n'
    source.write_text(made)
    # What is no Python, has other lists, or a bullet that holds a command for terminals.
    (folder / "syntax.py").write_text("def f(: pass")
    (folder / "nested.py").write_text("(" * 100_000)
    (folder / "laid-out.py").write_text(made.replace("  *", "    *"))
    (folder / "hostile.py").write_text(made.replace("torch.sort`", "torch.sort` \x1b[2J"))
    # Nothing of the machine's is looked for above, such as the settings in a pyproject.toml.
    (folder / "pyproject.toml").write_text("")
    for block in ("matrix", "docs", "compare"):
        markers = f"<!-- detmatrix {block}:begin -->\n<!-- detmatrix {block}:end -->"
        (folder / f"{block}.md").write_text(f"before\n{markers}\nafter\n")
    for program in PROGRAMS:
        (folder / program).touch()
    for place in ("runs", "engines"):
        (folder / place).symlink_to(REPORTS / place)


_PROMPT = "$ detmatrix "
# By name the words behind ``detmatrix`` of each text that begins with some.
#
# explain-devices*             what is wrong on one kind of device hides nothing of another, nor what raises; recorded runs of
#                              all ops stand in for the CPU
# explain-collective-*         no run has a row of a collective: what is documented is told as such, and no scan of one is
#                              proposed
LINES = {
    path.name: line.removeprefix(_PROMPT)
    for path in sorted(APPROVED.iterdir())
    if (line := path.read_text(encoding="utf-8").partition("\n")[0]).startswith(_PROMPT)
}


def _reproduced(folder: Path) -> dict[str, Callable[[], str]]:
    """Return what makes each script, which a command line makes of inputs that a worker draws."""
    one, simulated = load([str(folder / name) for name in ("run.jsonl", "simulated.jsonl.gz")])
    asked = next(it for it in one.rows if it.row.spec == "torch.cumsum")
    made = [partial(script, INPUT_SOURCE, it.rows[0], it.run.header) for it in (one, simulated)]
    made += [partial(invariance_script, INPUT_SOURCE, asked, one.run.header, what) for what in PROPERTIES]
    return dict(zip(SCRIPTS, made, strict=True))


SCRIPTS = [f"repro-{name}.py.txt" for name in ("run", "simulated", *PROPERTIES)]
NAMES = (*LINES, *SCRIPTS)


class Goldens:
    """Renders goldens in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        prepare(folder)
        self._folder = folder
        self._command: Command = command_in(folder)
        self._scripts = _reproduced(folder)

    def render(self, name: str) -> str:
        """Return the text to approve: what a command prints, what it complains of, and its exit code if that is not 0."""
        if name not in LINES:
            return self._scripts[name]()
        # As they are named from here: where the checkout lies decides no line break.
        with (
            mock.patch("detmatrix.reports.matrix.model.RECORDED", self._folder / "runs"),
            mock.patch(
                "detmatrix.reports.locate.observe_program", lambda program, *_: PROGRAMS[program.name][1]
            ),
        ):
            done = self._command(*LINES[name].split())
        into = LINES[name].partition(" --into ")[2]
        shown = (self._folder / into).read_text(encoding="utf-8") if into else done.stdout
        text = _told(_static_left_out(shown), whole=not ("runs/" in LINES[name] or name.startswith(_LONG)))
        if done.returncode or done.stderr:
            text += f"\n[exit {done.returncode}]\n{done.stderr}"
        # Editors and GitHub obey some characters that are not to be seen; a command that prints one is told from one that escapes it.
        text = re.sub(r"[^\n]", lambda one: one[0] if one[0].isprintable() else f"⟨{ord(one[0]):x}⟩", text)
        return f"{_PROMPT}{LINES[name]}\n{text}".replace(str(self._folder), "FOLDER").replace(
            str(ROOT), "ROOT"
        )


# Tables of libraries and builds, of which the short forms are approved whole.
_LONG = ("libraries", "cudnn", "docs-simulated", "docs-newest")


def _static_left_out(page: str) -> str:
    """Leave out what a page takes from our files as it is, styles and functions, which are reviewed there."""
    page = re.sub(r"(<style>).*?(</style>)", r"\1…\2", page, flags=re.DOTALL)
    page = re.sub(r"(<script>).*?(</script>)", r"\1…\2", page, flags=re.DOTALL)
    return re.sub(r"'sha256-[^']*'", "'sha256-…'", page)


def _told(text: str, *, whole: bool) -> str:
    """Return a text, or of a long one a digest and an excerpt."""
    if whole or len(text) <= MOST:
        return text
    lines = text.splitlines()
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    excerpt = "".join(f"{line[:160]}\n" for line in lines[:EXCERPT])
    return f"[{len(text)} characters in {len(lines)} lines, SHA-256 {digest}; they begin]\n{excerpt}"


def main() -> None:
    """Write all approved texts again."""
    with tempfile.TemporaryDirectory() as folder:
        goldens = Goldens(Path(folder))
        for name in NAMES:
            (APPROVED / name).write_text(goldens.render(name), encoding="utf-8", newline="")


if __name__ == "__main__":
    main()
