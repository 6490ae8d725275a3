"""The instructions that the machine executes: a table of opcodes, with all the modifiers that each may have.

An opcode or a modifier that stands here is implemented in ``engine/``, and has a test of its own; any other is refused by name.
Mnemonics are those of nvdisasm, for sm_80 and, where they have other names, sm_90 and sm_100.
"""

from __future__ import annotations

# Whose instructions stand here.
ARCHITECTURES = ("sm_80", "sm_90", "sm_100")

# Modifiers that change nothing here: caches, scopes of a memory that is always in order, hints to the hardware.
_HINTS = "E CONSTANT STRONG GPU SYS CTA SM SC ALL EF EL LU BYPASS LTC128B DEFER_BLOCKING NOINC NODEC LUT IV IVALL RN NTZ MMA PACK_AB RECONVERGENT RELIABLE ENL2"
_SIZES = "U8 S8 U16 S16 64 128"
_COMPARED = "LT EQ LE GT NE GE AND OR XOR"
_UNORDERED = f"{_COMPARED} NUM NAN LTU EQU LEU GTU NEU GEU"
_ROUNDED = "RM RP RZ"
_INTEGERS = "U8 S8 U16 S16 U32 U64 S64"
_REDUCED = "ADD MIN MAX AND OR XOR INC DEC F32 F64 64 S32 S64 FTZ F16X2 BF16X2"

# Opcodes that read no modifier.
_PLAIN = "MOV S2R LOP3 PLOP3 PRMT SEL VIADD IABS POPC BREV P2R R2P FSEL FCHK YIELD NANOSLEEP ELECT BRX LEPC EXIT BSSY BSYNC BREAK"

# By the name of the function that executes it: the modifiers that it reads.
OPCODES: dict[str, str] = {
    **dict.fromkeys(_PLAIN.split(), ""),
    **dict.fromkeys(["LD", "LDS", "LDL", "ST", "STS", "STL"], _SIZES),
    **dict.fromkeys(["DADD", "DMUL", "DFMA"], _ROUNDED),
    **dict.fromkeys(["FSET", "HSET2"], "BF AND LT EQ LE GT NE GE NUM NAN LTU EQU LEU GTU NEU GEU"),
    # Integers, bits and predicates.
    "R2UR": "BROADCAST",
    "CS2R": "32",
    "IADD3": "X",
    "IMAD": "HI WIDE X U32 MOV IADD SHL",
    "ISETP": f"{_COMPARED} EX U32",
    "SHF": "L R HI W U32 S32 U64 S64",
    "LEA": "HI X SX32",
    "IMNMX": "U32 RELU S16X2 U16X2",
    "VIMNMX3": "U32 U16X2",
    "VIADDMNMX": "U32 RELU",
    "FLO": "U32 SH",
    "BMSK": "W",
    "SGXT": "U32 W",
    "IDP": "4A S8 U8",
    # Floating point.
    "FADD": f"FTZ SAT {_ROUNDED}",
    "FMUL": f"FTZ SAT D2 D4 D8 M2 M4 M8 {_ROUNDED}",
    "FFMA": f"FTZ SAT {_ROUNDED}",
    "FMNMX": "FTZ NAN",
    "FSETP": f"FTZ {_UNORDERED}",
    "DSETP": f"MIN MAX {_UNORDERED}",
    "MUFU": "RCP RSQ SQRT EX2 LG2 SIN COS TANH RCP64H RSQ64H",
    "HADD2": "BF16_V2 F32 SAT",
    "HMUL2": "BF16_V2",
    "HFMA2": "BF16_V2 RELU SAT",
    "HMNMX2": "BF16_V2 NAN",
    "HSETP2": f"BF16_V2 {_UNORDERED}",
    "HMMA": "16816 1688 1684 F16 F32 BF16 TF32",
    "F2FP": "F16 BF16 F32 RELU RZ",
    "F2F": f"F16 BF16 F32 F64 FROM_F16 FROM_F32 FROM_F64 {_ROUNDED}",
    "FRND": "F16 F64 TRUNC FLOOR CEIL FTZ",
    "F2I": f"F16 F64 TRUNC FLOOR CEIL FTZ {_INTEGERS}",
    "F2IP": "U8 F32 TRUNC",
    "I2F": f"F16 BF16 F32 F64 {_ROUNDED} {_INTEGERS} S32",
    # Memory.
    "LDG": f"{_SIZES} 256",
    "LDSM": "16 M88 MT88 2 4",
    "LDC": "U8 S8 U16 S16 64 128",
    "STG": f"{_SIZES} 256",
    "LDGSTS": "64 128",
    "UBLKCP": "S G",
    "UBLKRED": "G S ADD F32",
    "SYNCS": "EXCH 64 ARRIVE TRANS64 PHASECHK TRYWAIT CCTL",
    "QSPC": "S L D",
    "RED": f"{_REDUCED} V2 V4",
    "ATOM": f"{_REDUCED} EXCH CAS CAST SPIN",
    "ATOMG": f"{_REDUCED} EXCH CAS V2 V4",
    "ATOMS": "ADD MIN MAX AND OR XOR INC DEC EXCH CAS 64 S32 CAST SPIN POPC 32",
    # Warps and control.
    "NOP": "LE VIEW ASYNC S",
    "VOTE": "ANY ALL EQ",
    "SHFL": "IDX UP DOWN BFLY",
    "MATCH": "ANY ALL U64",
    "REDUX": "OR XOR SUM MIN MAX S32",
    "BRA": "DIV CONV U ANY",
    "CALL": "REL ABS",
    "RET": "REL",
    "BPT": "TRAP",
    "WARPSYNC": "ALL EXCLUSIVE COLLECTIVE",
    "BMOV": "32 CLEAR",
    "BAR": "SYNC RED POPC AND OR",
    "B2R": "RESULT",
}
_UNIFORM = "IADD3 IMAD ISETP LOP3 PLOP3 SHF LEA PRMT SEL MOV LDC BMSK FLO BREV SGXT POPC"
# Mnemonics of others that do the same: of uniform registers, and what has no effect here.
SAME: dict[str, str] = {
    **{f"U{name}": name for name in _UNIFORM.split()},
    **dict.fromkeys(["MEMBAR", "ERRBAR", "CGAERRBAR", "DEPBAR", "LDGDEPBAR", "CCTL"], "NOP"),
    **dict.fromkeys(["ENDCOLLECTIVE", "ACQBULK", "PREEXIT", "FENCE", "UTMACMDFLUSH"], "NOP"),
    "S2UR": "S2R",
    "LDCU": "LDC",
    "CREDUX": "REDUX",
    "UP2UR": "P2R",
    "FMNMX3": "FMNMX",
    "VOTEU": "VOTE",
    "VIMNMX": "IMNMX",
    "I2FP": "I2F",
    "REDG": "RED",
    "BRXU": "BRX",
}
# Opcodes that may move program counters, or make lanes wait.
MOVES = frozenset(["BRA", "BRX", "CALL", "RET", "EXIT", "BSYNC", "WARPSYNC", "BREAK", "BAR", "NANOSLEEP"])
# What S2R and CS2R may read, as C calls it: SR_TID.X is SR_TID_X.
_READ = (
    "Z TID_X TID_Y TID_Z CTAID_X CTAID_Y CTAID_Z LANEID EQMASK LTMASK LEMASK GTMASK GEMASK SWINHI LMEMHIOFF CGACTAID CLOCKLO "
    "CLOCKHI GLOBALTIMERLO GLOBALTIMERHI"
)
SPECIAL = [f"SR_{name}" for name in _READ.split()]

HINTS = frozenset(_HINTS.split())
MODIFIERS = tuple(sorted({modifier for read in OPCODES.values() for modifier in read.split()}))
ALLOWED = {name: frozenset(read.split()) | HINTS for name, read in OPCODES.items()}


def header() -> str:
    """Return the table as C: numbers of opcodes, modifiers and special registers, and the functions by number."""
    lines = ["/* Made of isa.py. */", "#pragma once", '#include "engine.h"']
    lines.append(f"enum {{ {', '.join(f'O_{name}' for name in OPCODES)}, OPCODES }};")
    lines.append(f"enum {{ {', '.join(f'M_{name}' for name in MODIFIERS)}, MODIFIERS }};")
    lines.append(f"enum {{ {', '.join(SPECIAL)} }};")
    lines += [f"void op_{name}(Machine *, Warp *, const Instruction *, uint32_t lanes);" for name in OPCODES]
    lines.append("#ifdef TABLES")
    lines.append(f"static const Opcode OPCODE[] = {{ {', '.join(f'op_{name}' for name in OPCODES)} }};")
    lines.append(
        f"static const bool MOVES[] = {{ {', '.join(str(int(name in MOVES)) for name in OPCODES)} }};"
    )
    lines.append("#endif")
    return "\n".join(lines) + "\n"
