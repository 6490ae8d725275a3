"""Faults planted in a copy of the checkout: the fast tests of what they are in find each of them.

``nox -s nightly -- -k planted``: each fault is a text of a source that stands there once, and what takes its place.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = [pytest.mark.nightly, pytest.mark.planted]

ROOT = Path(__file__).parents[1]
ENGINE = "scanner/gpu/engine"
# Those that find a fault of the engine soonest come first.
TESTS = ("gpu_conflicts", "gpu_schedules", "gpu_opcodes", "gpu_programs")
FIRST = {"conflicts.c": TESTS[0], "floats.c": TESTS[2], "integers.c": TESTS[2], "machine.c": TESTS[1]}
# The engine is compiled fast, and before all else where it has the fault.
RUN = """
import sys
import pytest
from detmatrix.scanner.gpu import engine
engine._FLAGS = ("-O1", *engine._FLAGS[1:])
sys.argv[1] == "py" or engine.compiled()
sys.exit(pytest.main(["-x", "-q", "-W", "ignore::pytest.PytestAssertRewriteWarning", "-p", "no:cacheprovider",
                      "-m", "not nightly and not alone", *sys.argv[2:]]))
"""


class Fault(NamedTuple):
    """A text of a source file, the one in its place, and the modules of tests that find it; of a file of the engine those of the GPU."""

    file: str
    right: str
    wrong: str
    tests: str = ""


FAULTS: dict[str, Fault] = {
    "a negated guard": Fault("machine.c", "lanes & (i->guard & 8 ? ~guard : guard)", "lanes & guard"),
    "blocks beyond 65536": Fault("machine.c", "b->id[0] = b->index %", "b->id[0] = (uint16_t)b->index %"),
    "NaN of a sum": Fault("floats.c", "bits[l] = isnan(r) ? 0x7FFFFFFF : bits_of(r);", "bits[l] = bits_of(r);"),
    "NaN of an atomic sum": Fault("memory.c", "return isnan(r) ? 0x7FFFFFFF : bits_of(r);", "return bits_of(r);"),
    "zeros of a minimum": Fault("floats.c", "return a < b || (a == b && signbit(a)) ? a : b;", "return a < b ? a : b;"),
    "FFMA rounds twice": Fault("floats.c", "fmaf(a[l], b[l], c[l])", "a[l] * b[l] + c[l]"),
    "an integer rounds twice": Fault("floats.c", "(magnitude & beyond ? 0x800 : 0)", "0"),
    "denormals of RED": Fault("memory.c", "HAS(i, M_FTZ) ? no_denormal(no_denormal(a) + no_denormal(b)) : a + b", "a + b"),
    "a carry": Fault("integers.c", " + (in[1] >> l & 1)", ""),
    "the low word of a comparison": Fault("integers.c", "if (HAS(i, M_EX) && x == y) t = low >> l & 1;", ""),
    "numbers instead of halves": Fault("integers.c", "int width = HAS(i, M_S16X2) || HAS(i, M_U16X2) ? 16 : 32, up", "int width = 32, up"),
    "halves without a sign": Fault("integers.c", "HAS(i, M_U32) || HAS(i, M_U16X2) ? 0", "HAS(i, M_U32) ? 0"),
    "the sign of a half": Fault("integers.c", "if (r[l] >> (from + width - 1) & 1) r[l] &= ~mask;", "if (r[l] >> 31) r[l] &= ~mask;"),
    "the sign of a byte": Fault("integers.c", "byte = byte & 128 ? 255 : 0;", "byte = 0;"),
    "a mask wider than a register": Fault("integers.c", "v > 32 ? 32 : v", "v & 31"),
    "a shift by more than there is": Fault("integers.c", "s[l] > most ? most + 1 : s[l]", "s[l] & most"),
    "a shuffle from a lane that is not there": Fault("control.c", "lanes >> l & 1 && !(lanes >> from & 1)", "0"),
    "a vote of lanes that are not there": Fault("control.c", "predicate(m, w, &i->operand[first + 1]) & lanes;", "predicate(m, w, &i->operand[first + 1]);"),
    "the sign of an atomic minimum": Fault("memory.c", "HAS(i, M_S32) ? 1ull << 31 : HAS(i, M_S64)", "HAS(i, M_S64)"),
    "bounds of memory": Fault("memory.c", "high < r->end && (uint64_t)size <= r->end - high;", "high < r->end;"),
    "local memory of a lane": Fault("memory.c", "stride = launch->local, ", ""),
    "EXIT does not look at barriers": Fault("control.c", "release(w); /* others may have waited for them */", ""),
    "who has left by BREAK is waited for": Fault("control.c", "EACH if (with >> l & 1) w->convergence[b->value][l] &= ~lanes;", ""),
    "threads that disagree about a barrier": Fault("control.c", "if (waited && (b->count", "if (0 && (b->count"),
    "a barrier of some threads": Fault("machine.c", "barrier->count ? here < barrier->count : missing != 0", "missing != 0"),
    "a barrier that waits for nobody": Fault("machine.c", "barrier->count ? here < barrier->count : missing != 0", "barrier->count && here < barrier->count"),
    "lanes that do not wait": Fault("machine.c", "if (!(with & w->alive & ~here[w->at[l]] & ~but)) let_go", "let_go"),
    "a vote at a barrier": Fault("machine.c", "all &= !(w->barred[n] & ~w->barrier_vote);", ""),
    "more blocks than fit": Fault("machine.c", "launch->schedule.any_dispatch || launch->resident > blocks ? blocks : launch->resident", "blocks"),
    "the reverse order": Fault("machine.c", "if (how == DESCENDING) return count - 1 - at;", ""),
    "blocks that are not drawn": Fault("machine.c", "b->key = how >= DRAWN ? draw(m)", "b->key = how > INTERLEAVED ? draw(m)"),
    "turns of blocks": Fault("machine.c", "if (how == INTERLEAVED) turn", "if (how > INTERLEAVED) turn"),
    "who waits is not seen": Fault("machine.c", "return then == w->been;", "return false;"),
    "barriers order nothing": Fault("conflicts.c", "if (last->block != now->block || last->epoch != now->epoch) return found;", "if (last->block != now->block) return found;"),
    "reads are not logged": Fault("memory.c", "if (NOTES(m)) note(m, w, lanes, NULL, at[k], size, READS, NULL, NULL, NULL);", ""),
    "conflicts of blocks": Fault("conflicts.c", "if (s->blocks || last->block != now->block) found |=", "if (0) found |="),
    "all stores commute": Fault("conflicts.c", "last->kind == now->kind && (sort == STORING ? page->stored[i] : last->type) == bytes;", "last->kind == now->kind;"),
    "all sums are exact": Fault("conflicts.c", "s->magnitude >= power_of_two((int)digits + s->unit)", "0"),
    "sums that are flushed are exact": Fault("conflicts.c", "(HAS(m->now, M_FTZ) && s->unit < -126)", "0"),
    "atomics whose result is used commute": Fault("memory.c", "if (used || HAS(i, M_EXCH)", "if (HAS(i, M_EXCH)"),
    "a barrier that hides other blocks": Fault("conflicts.c", "return sort == READING || shared;", "return true;"),
    "accesses that are forgotten": Fault("conflicts.c", "else *to = *all[n] != 0;", "else *to = n > 0;"),
    "a swap that holds up nobody": Fault("machine.c", "w->held = 1;\n    return true;", "return false;"),
    "marks of the wrong thread": Fault("conflicts.c", "one->thread == w->first_thread + (uint32_t)lane && ", ""),
    # Verdicts, run files, resuming, merging, workers, comparisons, lists, escaping, limits, locate.
    "silent needs flag on": Fault("scanner/verdicts/findings.py", 'if on.verdict == "nondeterministic":\n        reads', 'if on.verdict == "nondeterministic" and off.verdict == "nondeterministic":\n        reads', "verdicts"),
    "over_alert under warn_only": Fault("scanner/verdicts/findings.py", 'if warn_only.verdict == "nondeterministic":\n        return "raises", None', 'if warn_only.verdict == "nondeterministic":\n        return "over_alert", None', "compare"),
    "mode_dependent from firsts": Fault("scanner/verdicts/findings.py", '"deterministic" if off.first == on.first else "mode_dependent"', '"deterministic"', "verdicts"),
    "unequal inputs void": Fault("scanner/verdicts/findings.py", "if unequal_inputs(own):", "if unequal_inputs(own) and False:", "verdicts"),
    "n missing before mode_dependent": Fault("scanner/verdicts/findings.py", 'if mode in _RESTS_ON.get(finding, ()) and (text := too_seldom(cell, f"with the flag {mode}")):', 'if mode in _RESTS_ON.get(finding, ()) and mode == "on" and (text := too_seldom(cell, f"with the flag {mode}")):', "verdicts"),
    "both needed": Fault("scanner/verdicts/findings.py", "if not (fixed and still):", "if not (fixed or still):", "verdicts"),
    "cured by NaN alone": Fault("scanner/verdicts/findings.py", '(on.verdict == "deterministic" or on.blank == "nan")', 'on.verdict == "deterministic"', "verdicts"),
    "alert with the flag off": Fault("scanner/verdicts/cells.py", 'if caller is not None and observation.mode != "off":', "if caller is not None:", "verdicts"),
    "processes disagree": Fault("scanner/verdicts/cells.py", 'verdict = "error" if verdict in {"raises", "not_run"} else verdict', 'verdict = "error" if verdict in {"not_run"} else verdict', "verdicts"),
    "single execution": Fault("scanner/verdicts/cells.py", "if runs < 2:", "if runs < 1:", "verdicts"),
    "serial and forward differing": Fault("scanner/verdicts/cells.py", "serial=threads == {1} and not any(one.forward_differing for one in ordered) if threads else None", "serial=threads == {1} if threads else None", "goldens"),
    "power share": Fault("scanner/verdicts/power.py", "sentinel.differing >= POWER_SHARE * (sentinel.executions - 1)", "sentinel.differing >= POWER_SHARE * sentinel.executions", "verdicts"),
    "sentinel behind": Fault("scanner/verdicts/power.py", "return seen[max(behind - 1, 0) : behind + 1]", "return seen[max(behind - 1, 0) : max(behind, 1)]", "goldens"),
    "rates of executions": Fault("scanner/verdicts/power.py", "if self.differing == self.of:\n            return 1", "if self.differing == self.of:\n            return 0", "verdicts"),
    "bound": Fault("scanner/verdicts/bound.py", "return [first - 1, *others]", "return [first, *others]", "verdicts"),
    "control over processes": Fault("scanner/verdicts/controls.py", 'seen = seen if digest == first_digest else "other bits than in the first process"', "seen = seen", "workers"),
    "rare control": Fault("scanner/verdicts/controls.py", '"rare": (_described(_differing_rarely(n), n), differing)', '"rare": (differing, differing)', "workers"),
    "chosen mode silent": Fault("scanner/verdicts/findings.py", 'if cell.verdict == "nondeterministic" and flag:', 'if cell.verdict == "nondeterministic" and not flag:', "chosen_modes"),
    "racing invariance": Fault("scanner/verdicts/invariance.py", "elif racing and not varies:", "elif racing:", "invariance"),
    "catalog at resume": Fault("scanner/observations/merge.py", "None if one.plan == other.plan else", "None if True else", "resume"),
    "other build at resume": Fault("scanner/observations/merge.py", "for name in BUILD]", "for name in ()]", "resume"),
    "settings at resume": Fault("scanner/run/resume.py", "if name in plan.said and not setting.resumes(now, then):", "if False:", "cli"),
    "torn header": Fault("scanner/run/resume.py", 'return b"\\n" not in data and data.startswith', "return False and data.startswith", "resume"),
    "machine of a GPU": Fault("scanner/run/resume.py", "on_gpu = now.environment.gpu is not None and now.environment.simulated is None", "on_gpu = True", "resume"),
    "torn last line": Fault("scanner/observations/runfile.py", 'if line.endswith(b"\\n"):\n                yield line[:-1]', "if line:\n                yield line.rstrip()", "runfile"),
    "behind the closing line": Fault("scanner/observations/runfile.py", "if closed or isinstance(record, Header):", "if isinstance(record, Header):", "runfile"),
    "voided observations": Fault("scanner/observations/runfile.py", "by.since <= place < by.before", "by.since < place < by.before", "controls"),
    "stands twice": Fault("scanner/observations/consistency.py", "if place in self._seen:\n", "if place in self._seen and False:\n", "runfile"),
    "digests counted": Fault("scanner/observations/consistency.py", "if counted > executions or (", "if (", "runfile"),
    "closing counts": Fault("scanner/observations/consistency.py", "if count != found[kind]:", "if count < found[kind]:", "runfile"),
    "shard twice": Fault("scanner/observations/merge.py", "source)) is not source:", "source)) is None:", "merge"),
    "order of a merge": Fault("scanner/observations/merge.py", "planned = [row for spec in base.groups if spec not in entries for row in rows.get(spec, ())]", "planned = [row for spec in rows if spec not in entries for row in rows.get(spec, ())]", "merge"),
    "unobserved row": Fault("scanner/observations/merge.py", "if (place := self._observed.find(False)) >= 0:", "if (place := self._observed.find(False)) > 0:", "merge"),
    "first differing": Fault("scanner/worker/comparison.py", "if self._first_differing is None:", "if True:", "comparison"),
    "structure": Fault("scanner/worker/comparison.py", "if not bits.same_structure(self._first, judged):\n            self.settle()", "if False:\n            self.settle()", "comparison"),
    "strides": Fault("scanner/worker/bits.py", "if left.stride() != right.stride():", "if False:", "bits"),
    "digest of shapes": Fault("scanner/worker/bits.py", "{name}|{tensor.dtype}|{tuple(tensor.shape)}|{one},{two}", "{name}|{tensor.dtype}|{tensor.numel()}|{one},{two}", "bits"),
    "last numbers of a block": Fault("scanner/worker/bits.py", "padded = torch.zeros(size + -size % 4", "padded = torch.ones(size + -size % 4", "bits"),
    "max ulp": Fault("scanner/worker/difference.py", "old if value is None else max(old, value)", "old if value is None else value", "comparison"),
    "blank of indices": Fault("scanner/worker/bits.py", 'if computed and kind not in (None, "value"):', 'if kind not in (None, "value"):', "bits"),
    "rank": Fault("reports/compare/judge.py", '"over_alert": 2,\n    "fixed_by_mode": 3', '"over_alert": 3,\n    "fixed_by_mode": 3', "compare"),
    "low power of what stopped raising": Fault("reports/compare/judge.py", 'if new.weak is not None:\n            return doubted(kind, "low_power", f"no longer raises', 'if False:\n            return doubted(kind, "low_power", f"no longer raises', "compare_circumstances"),
    "other inputs": Fault("reports/compare/comparable.py", "elif before.keys() != after.keys():", "elif False:", "compare_circumstances"),
    "threads compared": Fault("reports/compare/comparable.py", 'if kind == "cpu" and _threads(before) != _threads(after):', 'if kind == "cpu" and False:', "compare_circumstances"),
    "fisher": Fault("reports/compare/comparable.py", "for weight in _weights(one.compared, other.compared, total) if weight <= seen)", "for weight in _weights(one.compared, other.compared, total) if weight < seen)", "compare"),
    "condition on dtype": Fault("scanner/claims/matching.py", "return not {row.dtype, dtype_kind(row.dtype)}.isdisjoint(condition.values)", "return row.dtype in condition.values", "docs"),
    "clauses that disagree": Fault("scanner/claims/grammar.py", "if facts.setdefault((kind, name), values) != values:\n                return None", "facts.setdefault((kind, name), values)", "claims"),
    "indentation of a bullet": Fault("scanner/claims/grammar.py", "(indent > margin or not blank)", "(indent > margin)", "claims"),
    "release twice": Fault("reports/docs/judge.py", "if parts_of(header) == parts_of(theirs) and header.settings == theirs.settings:", "if False:", "goldens"),
    "weak evidence": Fault("reports/docs/judge.py", 'if behaviour in {"acts", "nothing"} and not doubt:', 'if behaviour in {"acts"} and not doubt:', "docs"),
    "bars in code spans": Fault("reports/render.py", 'text = one_line(text).replace("|", "\\\\|")', "text = one_line(text)", "reports"),
    "backticks in code spans": Fault("reports/render.py", 'max((len(run) for run in re.findall("`+", text)), default=0)', 'min((len(run) for run in re.findall("`+", text)), default=0)', "reports"),
    "autoescape": Fault("reports/render.py", "autoescape: bool = True", "autoescape: bool = False", "goldens"),
    "control characters": Fault("scanner/errors.py", "c if c.isprintable() else c.encode", 'c if c.isprintable() or c > "\\x7f" else c.encode', "reports"),
    "names that read alike": Fault("reports/render.py", "text if counts[text] == 1 else texts[name]", "text", "reports"),
    "size of an unpacked file": Fault("scanner/observations/files.py", "if size > most:", "if size > most and False:", "runfile"),
    "newer format": Fault("scanner/observations/files.py", "if isinstance(written, int) and written > newest:", "if isinstance(written, int) and written > newest + 1:", "runfile"),
    "file replaced while writing": Fault("scanner/observations/writer.py", "same = (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)", "same = True", "resume"),
    "ambiguous op": Fault("scanner/cases/known.py", "found = direct or found", "found = found", "explain"),
    "replaced names": Fault("scanner/worker/global_state.py", "new[owner].get(name)) is not value\n", "new[owner].get(name)) is not value and False\n", "global_state"),
    "CPU tolerance": Fault("scanner/worker/agreement.py", "step, relative = precision**0.5, precision**0.75", "step, relative = precision**0.5, precision**0.25", "comparison"),
    "forward of a node": Fault("scanner/locate/places.py", "self._forward.setdefault(number, (line, library, module))", "self._forward[number] = (line, library, module)", "locate_programs"),
    "directed orders": Fault("scanner/gpu/engine.py", "how = _DIRECTED[number] if number < DIRECTED else", "how = _DIRECTED[number] if number < 1 else", "gpu_schedules"),
    "types of F2F": Fault("scanner/gpu/sass.py", 'types[:1] + [f"FROM_{one}" for one in types[1:]]', 'types[1:] + [f"FROM_{one}" for one in types[:1]]', "gpu_opcodes"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(tmp_path: Path, name: str) -> None:
    """The copy compiles, and a test fails."""
    fault, copy = FAULTS[name], tmp_path / "copy"
    path = fault.file if fault.tests else f"{ENGINE}/{fault.file}"
    shutil.copytree(
        ROOT, copy, symlinks=True, ignore=shutil.ignore_patterns(".*", "__pycache__", "*.egg-info")
    )
    source = (copy / path).read_text(encoding="utf-8")
    assert source.count(fault.right) == 1
    (copy / path).write_text(source.replace(fault.right, fault.wrong), encoding="utf-8")

    modules = fault.tests.split() or dict.fromkeys((FIRST.get(fault.file, TESTS[3]), *TESTS))
    cache = {} if fault.tests else {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", RUN, path.rpartition(".")[2], *(f"tests/test_{one}.py" for one in modules)],
        cwd=copy,
        env=os.environ | {"PYTHONPATH": str(copy), "OMP_PROC_BIND": "false", **cache},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    found = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    print(f"{name}: {found or 'not found'}")

    assert done.returncode == 1, done.stdout + done.stderr
    assert found
