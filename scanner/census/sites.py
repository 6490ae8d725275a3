"""The census of one library: who raises an alert there, with what string, and who checks a flag."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from scanner.census.code import Graph, listing
from scanner.census.elf import Function, Image
from scanner.census.record import Path_, Via
from scanner.census.registers import WORD, Stack, State, Value, shift
from scanner.census.search import Reference, all_references, call_targets
from scanner.census.values import Interpreter
from scanner.errors import BuildError

ALERT = "alertNotDeterministic"
CUBLAS = "alertCuBLASConfigNotDeterministic"
# What the alert of the cuBLAS configuration is called where alerts are recognised (scanner.alerts).
CUBLAS_CALLER = "cuBLAS"

_MEMBERS = re.compile(
    rb"_ZNK?2at7Context\d{1,2}(?:alertNotDeterministic|alertCuBLASConfigNotDeterministic"
    rb"|checkCuBLASConfigDeterministic|deterministic[A-Z][A-Za-z]*)E[^\0.]{1,200}"
)
_MEMBER = re.compile(r"_ZNK?2at7Context\d{1,2}([A-Za-z]+?)E(.+)")
# Functions that do not come back: what throws, and what ends the process.
_NEVER_RETURN = re.compile(
    rb"_ZN3c106detail\d+torch(?:CheckFail|InternalAssertFail)[^\0]{1,300}|__cxa_throw|__cxa_rethrow"
    rb"|__cxa_throw_bad_array_new_length|__cxa_bad_cast|_Unwind_Resume|__stack_chk_fail|abort|exit|__assert_fail"
    rb"|__clang_call_terminate|_ZSt9terminatev|_ZSt\d+__throw_[^\0]{1,100}"
)
# How the string is passed, by how the symbol spells its type: which word of the view is the pointer.
_VIEWS = {"RKN3c1017basic_string_viewIcEE": 0, "RKSt17basic_string_viewIcSt11char_traitsIcEE": 1}
MAX_DECODED = 64 << 20  # bytes of code of functions with references; a build of torch has 2 MB
MAX_FOLLOWED = 8 << 20  # bytes of code of functions with alerts; a build of torch has 200 kB
MAX_STRING = 1000


class CallSite(NamedTuple):
    """One instruction that leads to a member of ``at::Context``."""

    member: str
    passes: str  # how the symbol spells the parameters
    function: Function | None
    address: int
    via: Via
    readable: bool = True  # False: the code around it could not be disassembled, so that it may be none


class RaisedAlert(NamedTuple):
    """A site that raises an alert, with what could be found out about it."""

    site: CallSite
    alert: str | None
    unresolved: str | None
    path: Path_


def knows_alerts(image: Image) -> bool:
    """Tell whether a library defines or calls what raises alerts."""
    return any(ALERT in symbol for symbol in image.symbols(_MEMBERS))


def member_sites(image: Image) -> list[CallSite]:
    """Return every site in a library, sorted by address.

    Raises:
        BuildError: The library is damaged, or far from any build of torch.
    """
    wanted = {
        symbol: addresses
        for symbol, addresses in image.symbols(_MEMBERS).items()
        if _MEMBER.fullmatch(symbol) and addresses
    }
    targets = call_targets(image, wanted)
    by_function: dict[Function | None, list[Reference]] = defaultdict(list)
    for reference in all_references(image, targets):
        by_function[image.function_at(reference.end - 1)].append(reference)
    sites = []
    decoded = 0
    for function, references in by_function.items():
        instructions = None
        if function is not None:
            decoded += function.size
            if decoded > MAX_DECODED:
                raise BuildError(f"{image.shown}: damaged: more code has calls than in any build of torch")
            instructions = listing(image, function)
        for reference in references:
            member, passes = _MEMBER.fullmatch(targets[reference.target]).groups()  # type: ignore[union-attr]
            if instructions is None:
                sites.append(CallSite(member, passes, function, reference.end - 5, "call", readable=False))
            elif reference.end in instructions:
                one = instructions[reference.end]
                sites.append(CallSite(member, passes, function, one.address, _via(one.mnemonic)))
            # Else these bytes are part of something else: all of the function is code, and no instruction ends here.
    return sorted(sites, key=lambda site: site.address)


def _via(mnemonic: str) -> Via:
    word = mnemonic.rsplit(maxsplit=1)[-1]
    return "call" if word == "call" else "jump" if word.startswith("j") else "address"


def raised_alerts(image: Image, sites: Iterable[CallSite]) -> list[RaisedAlert]:
    """Return what is known of the sites that raise alerts.

    Raises:
        BuildError: The library is far from any build of torch.
    """
    raising: dict[Function | None, list[CallSite]] = defaultdict(list)
    for site in sites:
        if site.member in {ALERT, CUBLAS}:
            raising[site.function].append(site)
    ends = set(call_targets(image, image.symbols(_NEVER_RETURN, dynamic_only=True))) if raising else set()
    found: list[RaisedAlert] = []
    followed = 0
    for function, group in raising.items():
        followed += 0 if function is None else function.size
        if followed > MAX_FOLLOWED:
            raise BuildError(f"{image.shown}: damaged: more code raises alerts than in any build of torch")
        found.extend(_alerts_of(image, function, group, ends))
    return found


def _alerts_of(
    image: Image, function: Function | None, group: list[CallSite], ends: set[int]
) -> Iterable[RaisedAlert]:
    if function is None or not group[0].readable:
        text = "no symbol covers it" if function is None else "the code around it is not all instructions"
        return [RaisedAlert(site, None, text, "unknown") for site in group]
    graph = Graph(image, _parent(image, function), ends.__contains__)
    missing = [site for site in group if site.address not in graph.instructions]
    values = Interpreter(image, graph, {site.address for site in group} & graph.instructions.keys())
    found = []
    for site in group:
        if site in missing:
            found.append(RaisedAlert(site, None, "no way from the function leads there", "unknown"))
            continue
        path: Path_ = "unknown" if site.via == "address" else graph.passed(site.address)
        if site.member == CUBLAS:
            found.append(RaisedAlert(site, CUBLAS_CALLER, None, path))
            continue
        alert, unresolved = _string(image, site, values)
        found.append(RaisedAlert(site, alert, unresolved, path))
    return found


def _parent(image: Image, function: Function) -> Function:
    """Return the function that a part was moved away from; itself where it is none or that is not known."""
    name, cold, _ = function.symbol.partition(".cold")
    if not cold:
        return function
    starts = {
        address
        for addresses in image.symbols(re.compile(re.escape(name.encode()))).values()
        for address in addresses
    }
    found = [one for one in map(image.function_at, sorted(starts)) if one is not None and one.symbol == name]
    return found[0] if len(found) == 1 else function


def _string(image: Image, site: CallSite, values: Interpreter) -> tuple[str | None, str | None]:
    """Return the string passed at a site, or why it is not known."""
    if site.via == "address":
        return None, "the address of the function is taken here, the call is elsewhere"
    if site.passes not in _VIEWS:
        return None, f"a signature that is not known passes it: {site.passes}"
    if not values.complete:
        return None, "the function is too large to follow"
    state = values.before(site.address)
    view = state.registers.get("rdi")
    if view is None:
        return None, "where the string is described is computed"
    words = _word(image, state, view, 0), _word(image, state, view, WORD)
    return _text(image, words[_VIEWS[site.passes]], words[1 - _VIEWS[site.passes]])


def _text(image: Image, pointer: Value | None, size: Value | None) -> tuple[str | None, str | None]:
    """Return the string at an address, or why there is none."""
    if not isinstance(pointer, int):
        return None, "which string is passed is computed"
    # Older releases count the string's bytes with a loop in place: then it ends with its zero byte.
    if size is not None and not (isinstance(size, int) and 0 < size <= MAX_STRING):
        return None, "the string has no length that a name has"
    raw = image.text(pointer, size) if image.is_constant(pointer) else None
    text = raw.decode("utf-8", "replace") if raw is not None else ""
    if not text.isprintable() or not 0 < len(text) <= MAX_STRING:
        return None, "what is passed is no text"
    return text, None


def _word(image: Image, state: State, view: Value, by: int) -> Value | None:
    """Return a word of what an address leads to."""
    place = shift(view, by)
    if place in state.slots or isinstance(place, Stack):
        return state.slots.get(place)
    if place in image.relative or not image.is_constant(place):
        return image.relative.get(place)
    raw = image.at(place, WORD)
    return None if raw is None else int.from_bytes(raw, "little")
