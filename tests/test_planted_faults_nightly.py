"""Faults planted in a copy of the simulated GPU's engine: the fast tests of the GPU find each of them.

``nox -s nightly -- -k planted``: each fault is a text of the engine's source that stands there once, and what takes its place.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from detmatrix.scanner.gpu import engine

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[1]
TESTS = ("conflicts", "schedules", "opcodes", "programs")
# Those that find it soonest.
FIRST = {"conflicts.c": "conflicts", "floats.c": "opcodes", "integers.c": "opcodes", "machine.c": "schedules"}
# The engine is taken from another folder, and compiled fast.
RUN = """
import sys
from pathlib import Path
import pytest
from detmatrix.scanner.gpu import engine
engine._FOLDER, engine._FLAGS = Path(sys.argv[1]), ("-O1", *engine._FLAGS[1:])
engine.compiled()
sys.exit(pytest.main(["-x", "-q", "-W", "ignore::pytest.PytestAssertRewriteWarning", "-p", "no:cacheprovider", *sys.argv[2:]]))
"""


class Fault(NamedTuple):
    """A text of a source file, and the one in its place."""

    file: str
    right: str
    wrong: str


FAULTS: dict[str, Fault] = {
    "a negated guard": Fault("machine.c", "lanes & (i->guard & 8 ? ~guard : guard)", "lanes & guard"),
    "blocks beyond 65536": Fault("machine.c", "b->id[0] = b->index %", "b->id[0] = (uint16_t)b->index %"),
    "NaN of a sum": Fault("floats.c", "bits[l] = isnan(r) ? 0x7FFFFFFF : bits_of(r);", "bits[l] = bits_of(r);"),
    "NaN of an atomic sum": Fault("memory.c", "return isnan(r) ? 0x7FFFFFFF : bits_of(r);", "return bits_of(r);"),
    "zeros of a minimum": Fault("floats.c", "return a < b || (a == b && signbit(a)) ? a : b;", "return a < b ? a : b;"),
    "FFMA rounds twice": Fault("floats.c", "fmaf(a[l], b[l], c[l])", "a[l] * b[l] + c[l]"),
    "denormals of RED": Fault("memory.c", "HAS(i, M_FTZ) ? no_denormal(no_denormal(a) + no_denormal(b)) : a + b", "a + b"),
    "a carry": Fault("integers.c", " + (in[1] >> l & 1)", ""),
    "the low word of a comparison": Fault("integers.c", "if (HAS(i, M_EX) && x == y) t = low >> l & 1;", ""),
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
    "reads are not logged": Fault("memory.c", "if (NOTES(m)) note(m, w, lanes, NULL, at, size, READS, NULL, NULL, NULL);", ""),
    "conflicts of blocks": Fault("conflicts.c", "if (s->blocks || last->block != now->block) found |=", "if (0) found |="),
    "all stores commute": Fault("conflicts.c", "last->kind == now->kind && (sort == STORING ? page->stored[i] : last->type) == bytes;", "last->kind == now->kind;"),
    "all sums are exact": Fault("conflicts.c", "s->magnitude >= power_of_two((int)digits + s->unit)", "0"),
    "sums that are flushed are exact": Fault("conflicts.c", "(HAS(m->now, M_FTZ) && s->unit < -126)", "0"),
    "atomics whose result is used commute": Fault("memory.c", "if (used || HAS(i, M_EXCH)", "if (HAS(i, M_EXCH)"),
    "a barrier that hides other blocks": Fault("conflicts.c", "return sort == READING || shared;", "return true;"),
    "accesses that are forgotten": Fault("conflicts.c", "else *to = *all[n] != 0;", "else *to = n > 0;"),
    "a swap that holds up nobody": Fault("machine.c", "w->held = 1;\n    return true;", "return false;"),
    "marks of the wrong thread": Fault("conflicts.c", "one->thread == w->first_thread + (uint32_t)lane && ", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(tmp_path: Path, name: str) -> None:
    """The copy compiles, and a test of the GPU fails."""
    fault = FAULTS[name]
    for path in engine._FOLDER.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    source = (tmp_path / fault.file).read_text(encoding="utf-8")
    assert Counter(re.findall(re.escape(fault.right), source)) == {fault.right: 1}
    (tmp_path / fault.file).write_text(source.replace(fault.right, fault.wrong), encoding="utf-8")

    first = FIRST.get(fault.file, "programs")
    tests = [f"tests/test_gpu_{one}.py" for one in dict.fromkeys((first, *TESTS))]
    done = subprocess.run(
        [sys.executable, "-c", RUN, tmp_path, *tests],
        cwd=ROOT,
        env=os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    found = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    print(f"{name}: {found or 'not found'}")

    assert done.returncode == 1, done.stdout + done.stderr
    assert found
