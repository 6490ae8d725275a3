"""Machine code to the instructions of the engine: nvdisasm's text, read once for each kernel and kept by the digest of its code."""

from __future__ import annotations

import contextlib
import re
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from math import isclose, isnan
from pathlib import Path

from detmatrix.scanner.errors import UsageError
from detmatrix.scanner.gpu.build import cache_folder, of_nvidia
from detmatrix.scanner.gpu.cubin import CubinError
from detmatrix.scanner.gpu.isa import ALLOWED, HINTS, MODIFIERS, OPCODES, SAME, SPECIAL

# Bytes of an instruction on every architecture since Volta.
WIDTH = 16
_OPERANDS, _WORDS = 8, 3
_OPERAND = struct.Struct("<BBBBIQ")
_HEAD = struct.Struct(f"<HBBI{_WORDS}Q")
# Of one instruction of the engine, as engine.h declares it.
SIZE = _HEAD.size + _OPERANDS * _OPERAND.size
_NONE, _REG, _UREG, _PRED, _UPRED, _CONST, _IMMEDIATE, _ADDRESS, _SPECIAL, _BARRIER, _ALL = range(11)
_NEGATE, _ABSOLUTE, _INVERT, _LOW, _HIGH, _WIDE, _INDEXED = (1 << place for place in range(7))
_RZ, _URZ, _PT = 255, 255, 7
_EMPTY = bytes(_OPERAND.size)

_LINE = re.compile(r"\s*/\*[0-9a-f]{4,}\*/\s*(?:@(!?)(U?)P(\w)\s+)?(\S+?)(?:\s+(.*?))?\s*;")
_NUMBER = re.compile(r"[+-]?(?:INF|QNAN|SNAN|\d+(?:\.\d*)?(?:e[+-]?\d+)?)")
_HEX = re.compile(r"-?0x[0-9a-f]+")
_CONSTANT = re.compile(r"c\[0x([0-9a-f]+)\] ?\[(?:(U?R)(\d+|Z)\+?)?(-?0x[0-9a-f]+)?\]")
_REGISTER = re.compile(r"(U?)R(\d+|Z)")
_PREDICATE = re.compile(r"(U?)P([0-6T])")
_SPECIALS = {name: place for place, name in enumerate(SPECIAL)}
_OTHER_NAMES = {"SRZ": "SR_Z", "SR_CgaCtaId": "SR_CGACTAID"}
_HALVES = {"H0_H0": _LOW, "H1_H1": _HIGH, "H0": _LOW, "H1": _HIGH}
_PLACES = {name: place for place, name in enumerate(MODIFIERS)}
_NUMBERS = {name: place for place, name in enumerate(OPCODES)}
# Modifiers that stand before a type as its source: F2F.F32.F64 has a double for a source.
_TYPES = frozenset({"F16", "BF16", "F32", "F64"})
# Vectors that atomic operations add: of how many words, and of what.
_VECTORS = {
    **{f"F32X{count}": ("F32", f"V{count}") for count in (2, 4)},
    **{f"{one}X{2 * count}": (f"{one}X2", f"V{count}") for one in ("F16", "BF16") for count in (2, 4)},
}
# An address that holds a register, and by how much it is scaled.
_TERM = re.compile(r"(U?)R(\d+|Z)(?:\.(64|U32|X4|X8|X16))?")
_SCALES = {"X4": 4, "X8": 8, "X16": 16}
_PACKED = frozenset({"half", "bfloat16"})
# Where constant bank 0 has the parameters, and what is known of what the driver puts before them: the sizes of blocks and of the grid,
# where windows of generic addresses begin, the stack; behind them a descriptor that nobody reads.
PARAMETERS = {80: 0x160, 90: 0x210, 100: 0x380}
BLOCK = {80: 0x00, 90: 0x00, 100: 0x360}
GRID = {80: 0x0C, 90: 0x0C, 100: 0x370}
SHARED_WINDOW = {80: 0x18, 90: 0x18}  # of sm_100 no code was seen that reads it
LOCAL_WINDOW = {80: 0x20, 90: 0x20, 100: 0x2F8}
STACK = {80: 0x28, 90: 0x28, 100: 0x37C}
_DRIVERS = {
    80: {*range(0x2C), *range(0x118, 0x120)},
    90: {*range(0x2C), *range(0x208, 0x210)},
    100: {*range(0x2F8, 0x300), *range(0x358, 0x36C), *range(0x370, 0x380)},
}
# Opcodes whose addresses have 64 bits, also where nvdisasm names one register of the pair alone.
_WIDE_ADDRESSES = frozenset(["LDG", "LD", "STG", "ST", "RED", "ATOM", "ATOMG", "QSPC"])
# Atomic operations that return what was there, where what follows an instruction cannot be told from its text, and how many registers
# one may name.
_RETURNING = frozenset(["ATOM", "ATOMG", "ATOMS"])
_ELSEWHERE = frozenset(["BRX", "BRXU", "CALL", "RET", "LEPC"])
_LONGEST_VECTOR = 8

# A digest of what decodes: this module and the table of opcodes, as they are when they are loaded.
_VERSION = sha256(
    b"".join(Path(__file__).with_name(name).read_bytes() for name in ("sass.py", "isa.py"))
).digest()


class UnknownInstructionError(Exception):
    """The engine has no such instruction; the text is the instruction."""


@cache
def instructions(code: bytes, architecture: int) -> bytes:
    """Return the instructions of a kernel as the engine reads them, an array of ``SIZE`` bytes each.

    An instruction that the engine does not have becomes one that fails when it is executed, since most kernels hold some
    that never are; ``text_of`` tells them.

    Raises:
        UsageError: There is no nvdisasm.
        CubinError: nvdisasm does not read it.
    """
    place = cache_folder("code") / sha256(_VERSION + bytes([architecture]) + code).hexdigest()
    try:
        kept = place.read_bytes()
        if sha256(kept[32:]).digest() == kept[:32]:
            return kept[32:]
    except OSError:
        pass
    lines = _lines(code, architecture)
    parts = [_encoded(line, number, code, architecture) for number, line in enumerate(lines)]
    for number in (at for at, line in enumerate(lines) if line[4].split(".")[0] in _RETURNING):
        if (result := _unread(lines, number)) is not None:
            one, none = (_OPERAND.pack(_REG, 0, register, _URZ, 0, 0) for register in (result, _RZ))
            parts[number] = parts[number].replace(one, none, 1)
    decoded = b"".join(parts)
    # Where the cache cannot be written, the next process reads the code again.
    with contextlib.suppress(OSError), tempfile.NamedTemporaryFile(dir=place.parent, delete=False) as file:
        file.write(sha256(decoded).digest() + decoded)
        file.flush()
        Path(file.name).rename(place)
    return decoded


@cache
def disassembler() -> str:
    """Return the command of nvdisasm: that of the package ``nvidia-cuda-nvdisasm``, or one that the path has.

    Raises:
        UsageError: There is none.
    """
    if found := of_nvidia("*/bin/nvdisasm") or shutil.which("nvdisasm"):
        return found
    raise UsageError("simulating a GPU needs nvdisasm: pip install 'detmatrix[simulate]'")


def _lines(code: bytes, architecture: int) -> list[re.Match[str]]:
    with tempfile.NamedTemporaryFile(suffix=".bin") as file:
        file.write(code)
        file.flush()
        command = [disassembler(), "--binary", f"SM{architecture}", "-ndf", file.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CubinError(f"nvdisasm: {(done.stderr.splitlines() or ['failed'])[0]}")
    lines = [found for line in done.stdout.splitlines() if (found := _LINE.match(line))]
    if len(lines) != len(code) // WIDTH:
        raise CubinError(f"nvdisasm told {len(lines)} of {len(code) // WIDTH} instructions")
    return lines


def _unread(lines: list[re.Match[str]], number: int) -> int | None:
    """Return the register that an atomic operation returns the old value in, if nothing that may follow names it.

    Compilers keep the register of an operation that orders memory. Whether it is read decides what commutes with it.
    """
    found = re.match(r"(?:U?P\w, )?R(\d+),", lines[number][5] or "")
    if found is None:
        return None
    result = int(found[1])
    seen, next_ones = {number}, [number + 1]
    while next_ones:
        at = next_ones.pop()
        if at in seen:
            continue
        if at >= len(lines):
            return None
        seen.add(at)
        _, _, guard, mnemonic, text = lines[at].groups()
        base = mnemonic.split(".")[0]
        # A register's name stands for those of a whole vector, which begins there.
        named = (int(one) for one in re.findall(r"\bR(\d+)", text or ""))
        if base in _ELSEWHERE or (base not in OPCODES and base not in SAME):
            return None
        if any(0 <= result - one < _LONGEST_VECTOR for one in named):
            return None
        if base == "BRA" and (target := re.search(r"0x([0-9a-f]+)$", text or "")):
            next_ones.append(int(target[1], 16) // WIDTH)
        if base != "EXIT" or guard:
            next_ones.append(at + 1)
    return result


def _encoded(line: re.Match[str], number: int, code: bytes, architecture: int) -> bytes:
    """Return one instruction; one that is unknown as the opcode behind the last, which the engine refuses."""
    negated, uniform, guard, mnemonic, text = line.groups()
    place = (_PT if guard in {None, "T"} else int(guard)) | 8 * bool(negated) | 16 * bool(uniform)
    try:
        name, modifiers = _opcode(mnemonic)
        kind = _kind(name, modifiers)
        word = code[number * WIDTH + 4 : number * WIDTH + 8]
        parts = _operands(kind, text or "", name)
        operands = [_operand(name, kind, one, word, architecture) for one in parts[:_OPERANDS]]
        opcode = _NUMBERS[name] if len(parts) <= _OPERANDS else len(OPCODES)
    except UnknownInstructionError:
        opcode, modifiers, operands = len(OPCODES), [], []
    bits = sum(1 << _PLACES[modifier] for modifier in set(modifiers))
    words = [bits >> 64 * word & (1 << 64) - 1 for word in range(_WORDS)]
    head = _HEAD.pack(opcode, place, len(operands), number, *words)
    return head + b"".join(operands) + _EMPTY * (_OPERANDS - len(operands))


def text_of(code: bytes, architecture: int, line: int) -> str:
    """Return the text of an instruction, for an error that names it."""
    found = _lines(code, architecture)[line]
    return f"{found[4]} {found[5] or ''}".strip()


def _opcode(mnemonic: str) -> tuple[str, list[str]]:
    base, *modifiers = mnemonic.split(".")
    name = SAME.get(base, base)
    modifiers = [one.upper() for one in modifiers]
    if name == "F2F":
        types = [one for one in modifiers if one in _TYPES]
        modifiers = (
            [one for one in modifiers if one not in _TYPES] + types[:1] + [f"FROM_{one}" for one in types[1:]]
        )
    modifiers = [word for one in modifiers for word in _VECTORS.get(one, (one,))]
    if name not in OPCODES or not ALLOWED[name].issuperset(modifiers):
        raise UnknownInstructionError(mnemonic)
    return name, [one for one in modifiers if one in OPCODES[name].split() or one not in HINTS]


def _kind(name: str, modifiers: list[str]) -> str:
    """Return what numbers among the operands are: ``half``, ``bfloat16``, ``double``, ``high``, ``float`` or ``integer``."""
    if name == "MUFU" and not {"RCP64H", "RSQ64H"}.isdisjoint(modifiers):
        return "high"  # of a double the high word
    if name[0] == "H":
        return "bfloat16" if "BF16_V2" in modifiers else "half"
    if name[0] == "D":
        return "double"
    return "float" if name == "MUFU" or (name[0] == "F" and name != "FLO") else "integer"


def _operands(kind: str, text: str, name: str) -> list[str]:
    """Cut the operands apart; two numbers of a packed operation are one constant, the high half first."""
    text = re.sub(r",?\s*\{[^}]*\}|\.reuse", "", text)
    parts = [one.strip() for one in text.split(",")] if text else []
    if name in {"BRX", "RET"}:
        parts = [half for one in parts for half in one.split()]
    if kind in _PACKED:
        at = 0
        while at + 1 < len(parts):
            if _NUMBER.fullmatch(parts[at]) and _NUMBER.fullmatch(parts[at + 1]):
                parts[at : at + 2] = [f"{parts[at]} {parts[at + 1]}"]
            at += 1
    return parts


def _operand(name: str, kind: str, text: str, word: bytes, architecture: int) -> bytes:
    flags, scale, plain = _signs(text)
    if found := _REGISTER.fullmatch(plain):
        of, zero = (_UREG, _URZ) if found[1] else (_REG, _RZ)
        return _OPERAND.pack(of, flags, zero if found[2] == "Z" else int(found[2]), _URZ, scale, 0)
    if scale:
        raise UnknownInstructionError(text)
    if found := _CONSTANT.fullmatch(plain):
        return _constant(found, flags, architecture)
    if plain.endswith("]"):
        return _address(name, plain)
    if (named := _named(plain)) is not None:
        of, reg, value = named
        return _OPERAND.pack(of, flags, reg, 0, 0, value)
    return _OPERAND.pack(_IMMEDIATE, flags, 0, 0, 0, _immediate(name, kind, plain, word))


def _signs(text: str) -> tuple[int, int, str]:
    """Return what is done to the value of an operand, by how many bits it begins later, and the operand without that."""
    flags, scale, plain = 0, 0, text
    if plain.startswith(("!", "~")):
        flags |= _NEGATE if plain[0] == "!" else _INVERT
        plain = plain[1:]
    elif plain.startswith("-") and not (_HEX.match(plain) or _NUMBER.match(plain)):
        flags |= _NEGATE
        plain = plain[1:]
    if plain.startswith("|"):
        flags |= _ABSOLUTE
        plain = plain.replace("|", "")
    if found := re.fullmatch(r"(.+)\.(H[01](?:_H[01])?|B[0-3]|64|U32)", plain):
        if found[2].startswith("B"):
            scale = 8 * int(found[2][1])
        elif found[2] not in {"64", "U32"} and found[2] not in _HALVES:
            raise UnknownInstructionError(text)
        flags |= _HALVES.get(found[2], 0)
        plain = found[1]
    return flags, scale, plain


def _named(plain: str) -> tuple[int, int, int] | None:
    """Return kind, register and number of what has a name of its own: predicates, barriers, special registers."""
    if found := _PREDICATE.fullmatch(plain):
        return _UPRED if found[1] else _PRED, _PT if found[2] == "T" else int(found[2]), 0
    if plain in {"PR", "UPR"}:
        return _ALL, int(plain[0] == "U"), 0
    if found := re.fullmatch(r"S?B(\d+)", plain):
        return _BARRIER, 0, int(found[1])
    special = _OTHER_NAMES.get(plain, plain.replace(".", "_"))
    return (_SPECIAL, 0, _SPECIALS[special]) if special in _SPECIALS else None


def _constant(found: re.Match[str], flags: int, architecture: int) -> bytes:
    bank, kind, register, offset = found.groups()
    reg, ureg = _RZ, _URZ
    if kind:
        flags |= _INDEXED
        if kind == "R":
            reg = _RZ if register == "Z" else int(register)
        else:
            ureg = _URZ if register == "Z" else int(register)
    # Offsets are of 16 bits; nvdisasm shows the upper half of them as negative ones.
    at = int(offset or "0", 16)
    if bank == "0" and not kind and 0 <= at < PARAMETERS[architecture] and at not in _DRIVERS[architecture]:
        raise UnknownInstructionError(found[0])
    if kind and at < 0:
        raise UnknownInstructionError(found[0])
    return _OPERAND.pack(_CONST, flags, reg, ureg, int(bank, 16), at & 0xFFFF)


def _address(name: str, text: str) -> bytes:
    found = re.fullmatch(r"(?:desc\[\w+\])?\[(.*)\]", text)
    if found is None:
        raise UnknownInstructionError(text)
    flags, reg, ureg, scale, offset = 0, _RZ, _URZ, 1, 0
    for term in re.findall(r"\+?(-?[^+]+)", found[1]):
        if _HEX.fullmatch(term):
            offset += int(term, 16)
        elif part := _TERM.fullmatch(term):
            if part[1]:
                ureg = _URZ if part[2] == "Z" else int(part[2])
                continue
            reg = _RZ if part[2] == "Z" else int(part[2])
            scale = _SCALES.get(part[3], 1)
            flags |= _WIDE * (part[3] == "64" or (part[3] is None and name in _WIDE_ADDRESSES))
        else:
            raise UnknownInstructionError(text)
    return _OPERAND.pack(_ADDRESS, flags, reg, ureg, scale, offset & (1 << 64) - 1)


def _immediate(name: str, kind: str, text: str, word: bytes) -> int:
    """Return the bits of a number; those of a floating one as the code has them, since text does not tell one NaN from another."""
    if _HEX.fullmatch(text):
        value = int(text, 16)
        return value & ((1 << 64) - 1 if name in {"BRX", "RET", "CALL", "BRA"} else 0xFFFFFFFF)
    numbers = text.split()
    if not all(map(_NUMBER.fullmatch, numbers)) or len(numbers) != 1 + (kind in _PACKED):
        raise UnknownInstructionError(text)
    if kind == "integer":
        return int(text) & 0xFFFFFFFF
    told = [float(re.sub("[QS]NAN", "nan", one)) for one in numbers]
    has = _FLOATING[kind](word)
    if not all(isclose(*pair, rel_tol=1e-6) or all(map(isnan, pair)) for pair in zip(told, has, strict=True)):
        raise UnknownInstructionError(text)
    bits = int.from_bytes(word, "little")
    return bits << 32 if kind == "double" else bits


# What the 32 bits of an immediate stand for, as nvdisasm writes it: the high half first.
_FLOATING: dict[str, Callable[[bytes], tuple[float, ...]]] = {
    "half": lambda word: struct.unpack("<ee", word)[::-1],
    "bfloat16": lambda word: (
        *struct.unpack("<f", b"\0\0" + word[2:]),
        *struct.unpack("<f", b"\0\0" + word[:2]),
    ),
    "float": lambda word: struct.unpack("<f", word),
    "double": lambda word: struct.unpack("<d", b"\0\0\0\0" + word),
    "high": lambda word: struct.unpack("<d", b"\0\0\0\0" + word),
}
