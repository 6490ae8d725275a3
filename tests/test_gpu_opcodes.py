"""Each opcode of the engine that computes, and each modifier, gives what Python says; and no opcode goes untested."""

import math
from collections import Counter
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

from detmatrix.scanner.gpu import engine, isa, sass
from detmatrix.scanner.gpu.cubin import Cubin
from tests import gpu_opcodes
from tests.gpu_machine import (
    ARCHITECTURES,
    assembled,
    assembler,
    instructions,
    kernels,
    loaded,
    recorded,
    run,
)
from tests.gpu_numbers import FORMATS, THREADS, TYPES, Array, decoded, encoded, inputs
from tests.gpu_opcodes import BLOCK, CASES, PLACES, SHARING, Case, atomics, groups

# What ptxas does not emit for small kernels; kernels of PyTorch have it.
UNSEEN = {
    "ACQBULK": "waits for the kernel before, which has ended",
    "PREEXIT": "lets the next kernel begin, which waits for the end of this one",
    "BRXU": "BRX of a uniform register",
    "UPLOP3": "PLOP3 of uniform predicates",
    "UP2UR": "P2R of uniform predicates",
}


@cache
def results(cubin: Cubin, level: tuple[str, ...] | None = None, moved: int = 0) -> dict[Case, Array]:
    """Return the bits that each case gives for all inputs, perhaps with approximations *moved*; by the engine of a level of x86-64, or of this machine's."""
    if level is not None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine, "_level", lambda: level)
            engine.compiled.cache_clear()
            found = results.__wrapped__(cubin)
        engine.compiled.cache_clear()
        return dict(found)
    found = {}
    for number, (kinds, cases) in enumerate(groups(cubin.architecture)):
        taken = np.array([one.view(f"u{one.itemsize}").astype(np.uint64) for one in inputs(kinds)])
        given = np.zeros((len(cases), THREADS), np.uint64)
        places = np.zeros((THREADS, 2), np.uint64)
        how: dict[str, Any] = {"grid": THREADS // BLOCK, "block": BLOCK, "orders": {"moved": moved}}
        result = run(cubin, f"k{number}", taken, given, places, **how)
        assert result.approximates or not any("ex2.approx" in one.ptx for one in cases)
        for one, bits in zip(cases, given, strict=True):
            found[one] = bits.astype(f"u{TYPES[one.result].itemsize}")
    return found


def expected_of(of: Case, *numbers: Any) -> Any:
    """Return what Python says of numbers; of packed types for each half."""
    if of.result.endswith("x2") and of.inputs[0].endswith("x2"):
        return tuple(of.expected(*half) for half in zip(*numbers, strict=True))
    return of.expected(*numbers)


def wrong(of: Case, bits: Array) -> list[str]:
    """Return the inputs of a case for which it gave what it should not."""
    found = []
    numbers = [decoded(one, kind) for one, kind in zip(inputs(of.inputs), of.inputs, strict=True)]
    for row, was in zip(zip(*numbers, strict=True), bits.tolist(), strict=True):
        expected = expected_of(of, *row)
        if expected is None or was == encoded(expected, of.result):
            continue
        if of.result in FORMATS:
            number = decoded(np.array([was], bits.dtype), of.result)[0]
            if of.error and abs(number - expected) <= of.error * abs(expected):
                continue
            # A double's NaN may have any payload; single precision has one NaN.
            if of.result == "f64" and math.isnan(number) and math.isnan(expected):
                continue
        found.append(f"{row}: {was:#x}, not {encoded(expected, of.result):#x}")
    return found


def test_the_recorded_opcodes_are_those_of_the_table() -> None:
    """Who changes the table records it anew: python -m tests.gpu_opcodes."""
    for architecture in ARCHITECTURES:
        assert recorded("opcodes", architecture)[0] == gpu_opcodes.ptx(architecture)
        assert recorded("programs", architecture)[0] == kernels("programs", architecture)


@pytest.mark.parametrize(
    ("of", "architecture"),
    [
        pytest.param(of, one, id=f"{of.ptx} {' '.join(of.inputs)} sm_{one}")
        for of in CASES
        for one in ARCHITECTURES
        if of.since <= one
    ],
)
def test_an_operation_gives_what_python_says(of: Case, architecture: int) -> None:
    """On edges and on random numbers."""
    assert wrong(of, results(recorded("opcodes", architecture)[1])[of])[:5] == []


@pytest.mark.parametrize(
    ("number", "architecture"),
    [
        pytest.param(number, one, id=f"{of.atomic} sm_{one}")
        for one in ARCHITECTURES
        for number, of in enumerate(atomics(one))
    ],
)
def test_threads_update_a_place_one_after_the_other(number: int, architecture: int) -> None:
    """Lanes and warps ascending, and each is given what the one before left."""
    of = atomics(architecture)[number]
    how, space, operation, *_ = of.atomic.split(".")
    drawn, size = np.random.default_rng(number), TYPES[of.result].itemsize
    packed, whole = of.result.endswith("x2"), "f" in of.result or operation in {"inc", "dec", "cas"}
    # Of a sum of whole numbers the order is nothing.
    most = 4 if whole else (1 << 8 * size) - 1
    given: Any = drawn.integers(0, most, (len(of.inputs) - 1, SHARING), np.uint64, endpoint=True)
    # Of those that ptxas makes loops of, in which lanes do not come in their order.
    loops = space == "shared" and (
        "f" in of.result or size == 2 or (size == 8 and operation not in {"exch", "cas"})
    )
    threads = PLACES if loops and operation == "cas" else SHARING
    if "f" in of.result:
        given = [
            [encoded((float(it), float(it)) if packed else float(it), of.result) for it in one]
            for one in given
        ]
    values = np.array(given, np.uint64)
    at, *numbers = (decoded(one.astype(f"u{size}"), of.result) for one in (np.zeros(PLACES), *values))
    before = []
    for thread in range(threads):
        place, more = thread % PLACES, [one[thread] for one in numbers]
        before.append(encoded(at[place], of.result))
        updated = encoded(expected_of(of, at[place], *more), of.result)
        (at[place],) = decoded(np.array([updated], f"u{size}"), of.result)
    memory, found = np.zeros(PLACES, np.uint64), np.zeros(SHARING, np.uint64)

    run(recorded("opcodes", architecture)[1], f"a{number}", values, found, memory, block=threads)

    assert memory.tolist() == [encoded(one, of.result) for one in at]
    if how == "atom" and (not loops or threads == PLACES):
        assert found[:threads].tolist() == before


def test_approximations_have_another_last_bit_where_it_is_asked_for() -> None:
    """What no document tells may be moved; what IEEE 754 tells may not."""
    _, cubin = recorded("opcodes")
    plain, moved = results(cubin), results(cubin, moved=1)

    changed = {one.ptx: plain[one] ^ moved[one] for one in plain if (plain[one] != moved[one]).any()}
    # What is denormal is scaled before and behind.
    assert {int(it) for it in changed["ex2.approx.f32 $r, $0;"]} <= {0, 1}
    exact = {ptx for ptx in changed if ".approx" not in ptx and ".full" not in ptx}
    # A quotient is refined from an approximation of which no more is known; of few it may lie beside.
    assert exact <= {"div.rn.f32 $r, $0, $1;"}


def test_every_opcode_and_modifier_is_tested() -> None:
    """What the engine claims to have occurs in the recorded code."""
    seen: Counter[str] = Counter()
    for one in product(("opcodes", "programs"), ARCHITECTURES):
        _, cubin = recorded(*one)
        for kernel, lines in instructions(cubin).items():
            for mnemonic in (line[4] for line in lines):
                try:
                    opcode, modifiers = sass._opcode(mnemonic)
                except sass.UnknownInstructionError:
                    assert kernel == "tensor_cores", mnemonic
                    continue
                seen[mnemonic.split(".")[0]] += 1
                seen.update([opcode, *(f"{opcode}.{one}" for one in modifiers)])
    claimed = {f"{name}.{one}" for name, read in isa.OPCODES.items() for one in read.split()}
    claimed |= {*isa.OPCODES, *isa.SAME}

    assert claimed - set(seen) == set(UNSEEN)


@pytest.mark.nightly
@pytest.mark.skipif(not assembler(), reason="there is no ptxas (nvidia-cuda-nvcc)")
def test_operations_assembled_anew_give_what_python_says() -> None:
    """Also as the ptxas of this machine assembles them."""
    cubin = loaded(assembled(gpu_opcodes.ptx()))

    assert {of.ptx: found[:2] for of, bits in results(cubin).items() if (found := wrong(of, bits))} == {}


@pytest.mark.nightly
@pytest.mark.skipif(not engine._level(), reason="this machine has no vectors of 256 bits")
def test_the_engine_gives_the_same_bits_on_every_machine() -> None:
    """With the vectors and fused operations of newer ones and without."""
    cubin = recorded("opcodes")[1]

    plain, newer = (results(cubin, level) for level in ((), engine._level()))

    assert [one.ptx for one in plain if (plain[one] != newer[one]).any()] == []


@pytest.mark.parametrize(
    ("behind", "ignored"),
    [
        (("BSYNC B0", "EXIT"), True),
        (("FADD R9, R0, R2", "EXIT"), False),
        (("STG.E.64 [R4.64], R1", "EXIT"), False),  # R1 and R2
        (("@P0 BRA 0x50", "EXIT", "NOP", "NOP", "MOV R0, R2", "EXIT"), False),
        (("EXIT", "MOV R0, R2"), True),
        (("@P0 EXIT", "MOV R0, R2", "EXIT"), False),
        (("RET.REL.NODEC R20 0x0",), False),
        (("WHATEVER", "EXIT"), False),
    ],
)
def test_an_atomic_whose_result_nobody_reads(behind: tuple[str, ...], ignored: bool) -> None:
    """It commutes as one without a result does, if no instruction that may follow names its register."""
    texts = ("ATOMG.E.ADD.F32.FTZ.RN.STRONG.GPU PT, R2, [R2.64], R5", *behind)
    lines = [sass._LINE.match(f"/*{16 * at:04x}*/ {text} ;") for at, text in enumerate(texts)]

    assert sass._unread([line for line in lines if line], 0) == (2 if ignored else None)
