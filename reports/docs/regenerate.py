"""The two lists written again: an entry changes on evidence alone, and every other one keeps its bytes.

Each bullet is taken apart into one part per device and op, because only the part with evidence may change, and what
is left of it is put together again. What is written must read back as what was meant: a bullet that the claims' parser would
understand otherwise, or a change that the docstring has no words for, is not made, and said.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from msgspec.structs import replace

from detmatrix.reports.docs.evidence import Action, Evidence, action_of, effect_of, narrowed, splits
from detmatrix.reports.docs.judge import Docs, split_words, strongest
from detmatrix.reports.render import grouped
from detmatrix.scanner.claims.matching import matches, names_of
from detmatrix.scanner.claims.tables import overlap, parse_claims
from detmatrix.scanner.errors import UsageError
from detmatrix.scanner.observations.records import Claim, Section
from detmatrix.scanner.plurals import first_of, several

SIMULATED = "[simulated: "
ADDED = "added to the list"
_UNTOLD = " (whether the flag cures it or the fill of uninitialized memory, the run does not tell)"


class RegeneratedLists:
    """The lists as documented and as measured; the claims must hold the docstring's lines."""

    def __init__(self, docs: Docs) -> None:
        self.changes: dict[int, str] = {}  # a bullet's place -> what became of it, or why nothing did
        # op and device -> what was added for it, or why nothing was
        self.added: dict[tuple[str, str], str] = {}
        self.simulated: list[str] = []  # the ops of bullets that changed or were added on simulation alone
        self._docs = docs
        # Of a row that is held back counts that host code raised nothing.
        self._seen = [
            replace(one, behaviour="nothing") if one.held and one.behaviour else one for one in docs.rows
        ]
        self._entries = entries_of(docs.claims)
        self.documented = text_of(self._entries)
        for entry in [entry for entries in self._entries.values() for entry in entries]:
            self._revise(entry)
        for (op, device), some in groupby(docs.undocumented, key=lambda one: (one.op, one.device)):
            rows = [row for one in some for row in one.evidence]
            evidence = [row for row in rows if not row.held]
            held = "; ".join(dict.fromkeys(row.held for row in rows if row.held))
            added = self._add(op, device, evidence) if evidence else [f"nothing is proposed: {held}"]
            self.added[op, device] = "; ".join(added)
        self.regenerated = text_of(self._entries)

    @property
    def notes(self) -> list[str]:
        """All that is said of changes."""
        return [*self.changes.values(), *(f"{op} on {on}: {text}" for (op, on), text in self.added.items())]

    # --- Bullets that are there

    def _revise(self, entry: Entry) -> None:
        """Move, narrow or remove an entry as the evidence on its parts says."""
        first = entry[0]
        here, source = first.section, first.source or ""
        # What is said of one op on one device is a claim of its own.
        parts = [
            replace(claim, targets=(target,), device=device)
            for claim in (entry if first.parsed else ())
            for device in (DEVICES if claim.device == "any" else (claim.device,))
            for target in claim.targets
        ]
        decided = [self._decide(part, source) for part in parts]
        kept = [one for stay, _, _ in decided for one in stay]
        moved = [one for _, go, _ in decided for one in go]
        lines = [why for *_, why in decided if why]
        if lines:
            self.changes[first.order] = "; ".join(dict.fromkeys(lines))
        if kept == parts:
            return
        place = self._entries[here].index(entry)
        whole = [replace(part, section=here) for part in moved] == parts
        left = [] if whole else self._written(kept, entry)
        arriving = [_read(OTHER[here], source)] if whole else self._written(moved, entry)
        if left is None or arriving is None:
            self.changes[first.order] = f"left as it is: the lists have no words for it ({'; '.join(lines)})"
            return
        self.simulated += [first.targets[0]] * (SIMULATED in "; ".join(lines))
        self._entries[here][place : place + 1] = left
        for one in arriving:
            insert(self._entries, one)

    def _decide(self, claim: Claim, source: str) -> tuple[list[Claim], list[Claim], str]:
        """Return what of a claim stays, what goes to the other list, and why."""
        evidence = self._speaking(claim)
        action = action_of(claim, evidence)
        what = f"{claim.targets[0]} on {claim.device}"
        there = OTHER[claim.section]
        shown = {one.behaviour for one in evidence}
        if action == "keep":
            unproven = claim.section == "raises" and shown == {"nothing"}
            text = f"{what} is left as it is: nothing was raised, but no input provokes a difference"
            return [claim], [], text if unproven else ""
        found = splits(claim, evidence)
        failing = [one for one in evidence if effect_of(claim, one.behaviour) == "contradicted"]
        rests_on = witness_words([one for one in failing if not one.held] or failing)
        acting = there == "deterministic"
        arrives = acting and (action == "move" or any(split["move"] for split in found.values()))
        faults = [one for one in self._faults(claim.targets[0], claim.device) if one.wrong or arrives]
        whole = not found and not (acting and faults)
        if action == "move" and whole:
            why = "it acts deterministically" if acting else "it raises"
            return [], self._arriving([claim]), f"{what} moves to the list {there!r}: {why}{rests_on}"
        if action == "drop" and whole:
            why = "never differed, in either mode" if shown == {"nothing"} else "differs with the flag on"
            why = "is not known to act deterministically" if any(one.held for one in evidence) else why
            return [], [], f"{what} goes: it {why}, and nothing is raised{rests_on}"
        # Where a condition without words may decide as well, the one that has words is not known to.
        parts = [
            {action: [narrowed(claim, name, it)] if it else [] for action, it in split.items()}
            for name, split in found.items()
        ]
        worded = any(all(write(it, source) for it in part["keep"] + part["move"]) for part in parts)
        if faults or len(found) != 1 or not worded:
            text = (
                f"{faults[0].fault}; report that first"
                if faults
                else "several conditions may decide"
                if len(found) > 1
                else "no condition that the lists have words for decides"
            )
            return [claim], [], f"{what} is left as it is: {text}"
        decides = split_words(*next(iter(found.items())))
        moved = self._arriving(parts[0]["move"])
        return parts[0]["keep"], moved, f"{what} is narrowed by {decides}{rests_on}"

    def _arriving(self, claims: Sequence[Claim]) -> list[Claim]:
        """Return claims as the other list has them, but for those which it makes already of all rows."""
        return [
            replace(one, section=OTHER[one.section])
            for one in claims
            if not all(
                any(
                    matches(it.row.row, other)
                    for other in self._docs.claims
                    if other.section == OTHER[one.section]
                )
                for it in self._speaking(one)
                if it.behaviour != "nothing"
            )
        ]

    def _speaking(self, claim: Claim) -> list[Evidence]:
        return [one for one in self._seen if one.behaviour and matches(one.row.row, claim)]

    def _faults(self, op: str, device: str) -> list[Evidence]:
        """Return the rows for which an op is not said to act deterministically, first those of wrong results."""
        rows = [one for one in self._docs.rows if one.device == device and op in names_of(one.row.row)]
        return sorted((one for one in rows if one.fault), key=lambda one: not one.wrong)

    def _written(self, parts: Sequence[Claim], entry: Entry) -> list[Entry] | None:
        """Put parts together into as few bullets as say the same, or return ``None`` if one has no words."""
        written = []
        for same in grouped(((one.section, one.direction, one.conditions), one) for one in parts).values():
            of_targets = grouped((part.targets[0], part) for part in same)
            # Ops of which the same is said on the same devices.
            together = grouped((tuple(one.device for one in some), some[0]) for some in of_targets.values())
            for devices, some in together.items():
                claim = replace(some[0], targets=tuple(part.targets[0] for part in some))
                anywhere = entry[0].device == "any" and devices == DEVICES
                one = write(claim, entry[0].source or "", () if anywhere else devices)
                if one is None:
                    return None
                written.append(one)
        return written

    # --- Bullets that are missing

    def _add(self, op: str, device: str, evidence: Sequence[Evidence]) -> Iterator[str]:
        """Add bullets for rows without one; yield what was added, or why nothing was."""
        wanted: tuple[tuple[Section, str], ...] = (("raises", "raises"), ("deterministic", "acts"))
        for where, behaviour in wanted:
            rows = [one for one in evidence if one.behaviour == behaviour]
            if not rows:
                continue
            if where == "deterministic" and (faults := self._faults(op, device)):
                yield f"not added to the list {where!r}: {faults[0].fault}"
                continue
            entry = self._addition(op, device, where, rows)
            if isinstance(entry, str):
                yield f"not added to the list {where!r}: {entry}"
                continue
            insert(self._entries, entry)
            # Runs of today tell them apart: what the fill cures is no "fixed_by_mode" there.
            cured = any(one.behaviour == "acts" and one.row.unfilled.verdict == "not_run" for one in rows)
            self.simulated += [op] * bool(witness_words(rows))
            yield f"{ADDED} {where!r}: {entry[0].text}{_UNTOLD if cured else ''}{witness_words(rows)}"
        if differing := [one for one in evidence if one.behaviour == "differs"]:
            yield f"in neither list: it differs with the flag on, and nothing is raised{witness_words(differing)}"

    def _addition(self, op: str, device: str, where: Section, rows: Sequence[Evidence]) -> Entry | str:
        """Return what a list is to say of rows that no bullet speaks to and that show what the list says, or why nothing."""
        measured = [
            one
            for one in self._seen
            if (one.behaviour or one.shows_little) and op in names_of(one.row.row)
            if where == "raises" or not one.held
        ]
        standing = [one for entries in self._entries.values() for entry in entries for one in entry]
        claim = _read(where, f"* :func:`{op}`")[0]
        if not claim.parsed:
            return NO_WORDS
        directions = {one.row.row.direction for one in rows}
        claim = replace(claim, device=device, direction="backward" if directions == {"backward"} else "any")
        evidence = [one for one in measured if one.behaviour]
        shared = _shared(claim, rows)
        each = [replace(claim, conditions=(condition,)) for condition in shared.conditions]
        alone = [one for one in each if _fitting(one, rows, evidence, standing) == one]
        attempts = (claim, *(alone if len(alone) == 1 else ()), shared)
        found = next((one for it in attempts if (one := _fitting(it, rows, evidence, standing))), None)
        if found is None or where == "raises":
            return (found and write(found)) or NO_WORDS
        # Those that did not differ and could have, and those that hardly could, of which nothing is said where words can.
        still = [
            one
            for one in measured
            if one.row.row.provokes and one.row.row.direction in directions and matches(one.row.row, found)
        ]
        same = [one for one in still if one.behaviour == "nothing"]
        weak = [one for one in still if one.behaviour is None and one.shows_little]
        for some in filter(None, (same, *([one] for one in weak))):
            narrow = _apart(found, rows, some)
            narrow = narrow and _fitting(narrow, rows, evidence, standing)
            if some is same and narrow is None:
                ids = first_of([one.row.row.id for one in same], _NAMED)
                seen = f"{several(len(rows), 'row')} differed and {len(same)} did not ({ids})"
                return f"{seen}, and no single condition that the lists have words for tells them apart"
            found = narrow or found
        return write(found) or NO_WORDS


def witness_words(evidence: Sequence[Evidence]) -> str:
    """Name the witness of a simulated row that a change rests on; nothing of what was measured."""
    some = [one for one in evidence if one.simulated]
    return f" {SIMULATED}{strongest(some).witness}]" if some else ""


NO_WORDS = "no wording covers these rows and excludes the others"
_NAMED = 3  # rows


def _apart(claim: Claim, rows: Sequence[Evidence], still: Sequence[Evidence]) -> Claim | None:
    """Return a claim with the one condition that holds in all rows that differ and in none of *still*."""
    seen = [replace(one, behaviour="acts") for one in rows]
    seen += [replace(one, behaviour="nothing") for one in still]
    dtypes = narrowed(claim, "dtype", [*dict.fromkeys(one.row.row.dtype for one in seen)])
    for attempt in (claim, dtypes):
        found = splits(attempt, seen, _differing).items()
        worded = [narrowed(attempt, name, split["keep"]) for name, split in found if split["drop"]]
        if len(worded) == 1 and write(worded[0]):
            return worded[0]
    return None


def _differing(_: Claim, rows: Sequence[Evidence]) -> Action | None:
    """Return for ``splits`` whether rows differed: those that did stay."""
    shown = {one.behaviour for one in rows}
    return "keep" if shown == {"acts"} else "drop" if shown == {"nothing"} else None


# --- What fits the rows


def _shared(claim: Claim, rows: Sequence[Evidence]) -> Claim:
    """Return a claim restricted by the traits that all *rows* have in common."""
    for name, value in sorted(rows[0].row.row.traits.items()):
        part = narrowed(claim, name, [value])
        if all(one.row.row.traits.get(name) == value for one in rows) and write(part):
            claim = part
    return claim


def _fitting(
    claim: Claim, rows: Sequence[Evidence], evidence: Sequence[Evidence], standing: Sequence[Claim]
) -> Claim | None:
    """Return a claim as it is or narrowed, if it then fits all rows it speaks to, and no other bullet.

    A bullet that already speaks to some of the rows, or says part of what the claim says, would say nothing any
    more beside it.
    """
    speaking = [one for one in evidence if matches(one.row.row, claim)]
    if action_of(claim, speaking) != "keep":
        found = [
            part
            for name, split in splits(claim, speaking).items()
            if split["keep"]
            and write(part := narrowed(claim, name, split["keep"]))
            and all(matches(one.row.row, part) for one in rows)
        ]
        if len(found) != 1:
            return None
        (claim,) = found
    sections = {"deterministic", "raises"}
    if any(
        one.parsed and {one.section, claim.section} == sections and overlap(claim, one) for one in standing
    ):
        return None
    seen = [one.row.row for one in evidence]
    taken = any(matches(row, claim) and any(matches(row, one) for one in standing) for row in seen)
    return None if taken or any(_swallows(claim, one) for one in standing) else claim


def _swallows(claim: Claim, other: Claim) -> bool:
    """Tell whether all that another claim says of an op on a device is said by this one, too."""
    stated = {(condition.kind, condition.name): set(condition.values) for condition in other.conditions}
    return (
        other.parsed
        and not set(claim.targets).isdisjoint(other.targets)
        and (claim.device == other.device or "any" in {claim.device, other.device})
        and claim.direction in {"any", other.direction}
        and all(
            (condition.kind, condition.name) in stated
            and stated[condition.kind, condition.name] <= set(condition.values)
            for condition in claim.conditions
        )
    )


# --- Bullets in their own lines, and bullets written in the docstring's own words

DEVICES = ("cpu", "cuda", "mps")  # all that the lists speak of, in their order
HEADINGS: dict[str, str] = {
    "deterministic": "    The following normally-nondeterministic operations will act\n"
    "    deterministically when ``mode=True``:\n",
    "raises": "    The following normally-nondeterministic operations will throw a\n"
    "    :class:`RuntimeError` when ``mode=True``:\n",
}
INDENT = " " * 8
_WIDTH = 98  # columns, indentation included; some of the docstring's own lines have more
_LONG = 3  # values from which on they make a list of their own

# Traits that are neither keyword arguments nor anything that a release has words for.
_WORDLESS = frozenset({"dims", "memory_format", "output_size"})
_DTYPES = {"floating": "floating point"}
_BARE = re.compile(r"True|False|None|\d+")
# What a value may be, of a condition and of a keyword argument: "2-D" describes one, and is none.
_SPOKEN = (re.compile(r"\w[\w -]*", re.ASCII), re.compile(r"[A-Za-z_]\w*|\d+", re.ASCII))
_GRAD = "requires grad"
# What a condition says by its kind, or by its kind with its name or its values, and where in the sentence: "with …", "when …", what
# it is called on, the last words. What uninitialised memory is filled with is in none.
_PHRASES: dict[object, tuple[str, str]] = {
    "keyword": ("having", "{equal}"),
    "output": ("having", "{either} output"),
    "layout": ("call", "{either}"),
    "input": ("when", "called with a tensor that is not quantized"),
    ("input", ("True",)): ("when", "called with a quantized tensor"),
    ("input", "requires_grad"): ("call", _GRAD),
    "dtype": ("when", "dtype is {dtypes}"),
    "argument": ("when", "`{name}` type is {either}"),
    ("argument", ("given",)): ("when", "``{name}`` tensor is given"),
    ("argument", ("list of tensors",)): ("when", "the {name} is a list of tensors"),
    "unspecified": ("end", "in some cases"),
}


def role_of(target: str, text: str = "") -> str:
    """Return an op with its role, the one it has in *text* if it is there: ``:func:`torch.bmm```."""
    found = re.search(rf":(\w+):`~?{re.escape(target)}`", text)
    last = target.rpartition(".")[2]
    role = found[1] if found else "class" if last[:1].isupper() else "func"
    return f":{role}:`{target}`"


def write(claim: Claim, text: str = "", devices: Sequence[str] | None = None) -> Entry | None:
    """Return a bullet that says a claim, or ``None`` if the lists have no words for it.

    The roles of *text*, the bullet that it is made from, are kept. It speaks of the claim's own device unless *devices* are
    given; none: of any.
    """
    if devices is None:
        devices = () if claim.device == "any" else (claim.device,)
    said = _words(claim, devices, text)
    if said is None:
        return None
    words, items = said
    lines = textwrap.wrap(
        f"* {words}",
        _WIDTH - len(INDENT),
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    if items:
        lines += ["", *(f"  - ``{item}``" for item in items)]
    # It has to be read as what it was to say.
    entry = _read(claim.section, "\n".join(lines))
    meant = {_meaning(claim, device) for device in devices or ("any",)}
    found = {_meaning(one, one.device) for one in entry if one.parsed}
    return entry if meant == found else None


def _read(section: str, source: str) -> Entry:
    """Return the bullet of a list that has these lines."""
    return parse_claims(f"{HEADINGS[section]}\n{textwrap.indent(source, INDENT)}\n")


def _meaning(claim: Claim, device: str) -> tuple[object, ...]:
    """Return what a claim says of a device, whatever its words and their order."""
    facts = frozenset((it.kind, it.name, frozenset(it.values)) for it in claim.conditions)
    return claim.section, frozenset(claim.targets), device, claim.direction, facts


def _words(claim: Claim, devices: Sequence[str], text: str) -> tuple[str, tuple[str, ...]] | None:
    """Return a bullet's sentence and its nested list, or ``None`` if there are no words for it."""
    nested = next(
        (one for one in claim.conditions if one.kind == "keyword" and len(one.values) >= _LONG), None
    )
    said: dict[str, list[str]] = {"having": [], "when": [], "call": [], "end": []}
    for condition in claim.conditions:
        kind, name, values = condition.kind, condition.name, condition.values
        found = (_PHRASES.get(key) for key in ((kind, name), (kind, values), kind))
        slot, phrase = next(filter(None, found), (None, ""))
        spoken = all(map(_SPOKEN[kind == "keyword"].fullmatch, values))
        if slot is None or name in _WORDLESS or "none" in values or not spoken:
            return None
        if condition is not nested:
            equal = (f"``{name}={it if _BARE.fullmatch(it) else repr(it)}``" for it in values)
            dtypes = [_DTYPES.get(it, it) for it in values]
            said[slot].append(
                phrase.format(
                    name=name, equal=" or ".join(equal), either=_either(values), dtypes=_either(dtypes)
                )
            )
    when = [*filter(None, [_call(claim, devices, said["call"])]), *said["when"]]
    if nested:
        when.append(f"one of the following {nested.name}s is used:")
    *others, last = (role_of(target, text) for target in claim.targets)
    comma = "," * (len(others) > 1)
    parts = [
        f"{', '.join(others)}{comma} and {last}" if others else last,
        *([f"with {' and '.join(said['having'])}"] if said["having"] else []),
        *([f"when {' and '.join(when)}"] if when else []),
        *said["end"],
    ]
    return " ".join(parts), nested.values if nested else ()


def _call(claim: Claim, devices: Sequence[str], said: Sequence[str]) -> str:
    """Return "called on a CUDA tensor", "attempting to differentiate a CPU or CUDA tensor" or nothing."""
    names = _either([device.upper() for device in devices])
    on = f"{'an' if names.startswith('M') else 'a'} {names} tensor" if names else ""
    if _GRAD in said:
        return f"called on {on} that {_GRAD}" if on else _GRAD
    if said:
        return f"called on {said[0]} {names} tensors"
    if claim.direction == "backward":
        return f"attempting to differentiate {on}".rstrip()
    return f"called on {on}" if on else ""


def _either(words: Sequence[str]) -> str:
    """Return "a", "a or b", "a, b or c"."""
    return " or ".join([*([", ".join(words[:-1])] if len(words) > 1 else []), *words[-1:]])


# --- The lists as bullets in their own lines

OTHER: dict[str, Section] = {"deterministic": "raises", "raises": "deterministic"}

Entry = tuple[Claim, ...]  # the claims of a bullet, which hold its lines
Entries = dict[str, list[Entry]]


def entries_of(claims: Iterable[Claim]) -> Entries:
    """Return the bullets of the two lists; claims that do not hold the docstring's lines are refused."""
    entries: Entries = {"deterministic": [], "raises": []}
    listed = [claim for claim in claims if claim.section in OTHER]
    for _, group in groupby(listed, key=lambda claim: claim.order):
        entry = tuple(group)
        if entry[0].source is None:
            raise UsageError(
                "these claims do not hold the docstring's lines, so that the lists cannot be written again; scan a "
                "torch that has docstrings, or choose --format md or json"
            )
        entries[entry[0].section].append(entry)
    return entries


def text_of(entries: Entries) -> str:
    """Return both lists with their headings, indented as in the docstring."""
    bullets = {name: "\n".join(map(_lines, some)).rstrip("\n") for name, some in entries.items()}
    return "\n".join(
        HEADINGS[name] + (f"\n{textwrap.indent(text, INDENT)}\n" if text else "")
        for name, text in bullets.items()
    )


def _lines(entry: Entry) -> str:
    """Return the lines of a bullet, with the blank line behind it if there is one; behind a nested list it must be."""
    source = entry[0].source or ""
    lines = source.rstrip("\n")
    return f"{lines}\n" if "\n\n" in lines or source != lines else lines


def insert(entries: Entries, entry: Entry) -> None:
    """Put a bullet behind the last one of its list that names one of its ops, or at the end."""
    some = entries[entry[0].section]
    targets = set(entry[0].targets)
    near = [place for place, one in enumerate(some) if not targets.isdisjoint(one[0].targets)]
    some.insert(near[-1] + 1 if near else len(some), entry)
