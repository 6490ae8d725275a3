"""The claims PyTorch makes of its ops: the bullets in the docstring of ``torch.use_deterministic_algorithms``.

Each bullet becomes at least one claim. It is ``parsed`` only if the grammar accounts for every word of it;
otherwise nothing is guessed, and its words are kept to be shown. What the lists said in each torch release lies
in ``reports/claims`` as data, written by ``python -m detmatrix.scanner.claims WHEEL…``.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import get_args

import msgspec

from detmatrix.scanner.claims import grammar
from detmatrix.scanner.claims.matching import meet
from detmatrix.scanner.errors import EXIT_CHECK_FAILED, EXIT_DONE, UsageError
from detmatrix.scanner.observations import torch_versions
from detmatrix.scanner.observations.records import (
    Claim,
    ClaimDevice,
    ClaimDirection,
    Condition,
    Kind,
    Record,
    Section,
)

DATA = Path(__file__).resolve().parents[2] / "reports" / "claims"


class ClaimTable(Record, frozen=True):
    """What the lists of one torch release said."""

    torch: str
    claims: tuple[Claim, ...]


def parse_claims(docstring: str) -> tuple[Claim, ...]:
    """Return the claims of a docstring, in its order. Any text is accepted and takes linear time."""
    # Lone surrogates could not be written to a run file.
    docstring = docstring.encode("utf-8", "replace").decode()
    claims: list[Claim] = []
    seen: Counter[str] = Counter()
    for order, (section, lines) in enumerate(grammar.bullets(docstring)):
        for claim in _claims(section, order, lines):
            seen[claim.id] += 1
            times = seen[claim.id]
            claims.append(claim if times == 1 else msgspec.structs.replace(claim, id=f"{claim.id}#{times}"))
    behind = 1 + max((claim.order for claim in claims), default=-1)
    for order, (text, (kind, name, values)) in enumerate(grammar.notes(docstring), start=behind):
        condition = Condition(kind=msgspec.convert(kind, Kind), name=name, values=values)
        claims.append(
            Claim(
                id=f"note/{name}",
                section="note",
                targets=(),
                device="any",
                direction="any",
                conditions=(condition,),
                text=text,
                parsed=True,
                order=order,
            )
        )
    return tuple(claims)


def _claims(section: Section, order: int, lines: Sequence[str]) -> Iterator[Claim]:
    """Yield what a bullet claims, once for each device it names."""
    source = "\n".join(lines)
    text = " ".join(source[1:].split())
    read = None if section == "other" else grammar.read(grammar.sentence(lines))
    targets, facts = read or (grammar.targets(text), {})
    devices = facts.pop(grammar.DEVICE, ("cuda",) if section == "cublas" else ("any",))
    direction = facts.pop(grammar.DIRECTION, ("any",))[0]
    conditions = tuple(
        Condition(kind=msgspec.convert(kind, Kind), name=name, values=values)
        for (kind, name), values in facts.items()
    )
    for device in devices if read else ("any",):
        parts = [
            section,
            "+".join(sorted(targets)) or "?",
            *(word for word in (device, direction) if word != "any"),
            *sorted(f"{c.name}={','.join(sorted(c.values))}".replace(" ", "_") for c in conditions),
        ]
        if not read:
            parts.append(f"unparsed-{hashlib.sha256(text.encode()).hexdigest()[:8]}")
        yield Claim(
            id="/".join(parts),
            section=section,
            targets=targets,
            device=msgspec.convert(device, ClaimDevice),
            direction=msgspec.convert(direction, ClaimDirection),
            conditions=conditions,
            text=text,
            parsed=read is not None,
            order=order,
            source=source,
        )


def contradictions(claims: Iterable[Claim]) -> tuple[tuple[Claim, Claim], ...]:
    """Return the pairs (acts deterministically, raises) that both speak of some call of one op."""
    parsed = [claim for claim in claims if claim.parsed]
    raising: dict[str, dict[int, Claim]] = {}
    for place, claim in enumerate(parsed):
        for target in claim.targets if claim.section == "raises" else ():
            raising.setdefault(target, {})[place] = claim
    found = []
    for one in (claim for claim in parsed if claim.section == "deterministic"):
        # Only those of the same op are looked at: a run file may hold any number of claims.
        of_its_ops = {
            place: other for target in one.targets for place, other in raising.get(target, {}).items()
        }
        found += [(one, of_its_ops[place]) for place in sorted(of_its_ops) if overlap(one, of_its_ops[place])]
    return tuple(found)


def overlap(one: Claim, other: Claim) -> bool:
    """Tell whether some call of some op is meant by both claims."""
    stated = {(condition.kind, condition.name): condition for condition in one.conditions}
    return (
        not set(one.targets).isdisjoint(other.targets)
        and (one.device == other.device or "any" in {one.device, other.device})
        and (one.direction == other.direction or "any" in {one.direction, other.direction})
        and all(
            meet(condition, stated.get((condition.kind, condition.name), condition))
            for condition in other.conditions
        )
    )


def documented_versions() -> tuple[str, ...]:
    """Return the torch releases whose claims are tabled, oldest first."""
    return tuple(sorted((path.stem for path in DATA.glob("*.json")), key=torch_versions.key))


def documented_claims(version: str, *, notes: bool = False) -> tuple[Claim, ...]:
    """Return the tabled bullets of a torch release, or its notes; for want of it those of the latest of that minor, or refuse it."""
    known = documented_versions()
    same = [name for name in known if name == torch_versions.release(version)]
    same = same or [name for name in known if torch_versions.minor(name) == torch_versions.minor(version)]
    if not same:
        raise UsageError(
            f"no table of the claims of torch {version} in {DATA} (there are: {', '.join(known)}); write it "
            f"with python -m detmatrix.scanner.claims WHEEL"
        )
    path = DATA / f"{same[-1]}.json"
    try:
        table = msgspec.json.decode(path.read_bytes(), type=ClaimTable)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read ({error}); restore the file") from error
    return tuple(claim for claim in table.claims if (claim.section == "note") == notes)


def docstring_of_wheel(path: Path) -> str:
    """Return the docstring of ``use_deterministic_algorithms`` in a torch wheel, executing nothing; refuse any other file."""
    try:
        with zipfile.ZipFile(path) as wheel:
            module = ast.parse(wheel.read("torch/__init__.py"))
    except (OSError, KeyError, zipfile.BadZipFile, SyntaxError, ValueError) as error:
        raise UsageError(f"{path}: not a torch wheel ({error}); give one that pip downloaded") from error
    for node in module.body:
        if isinstance(node, ast.FunctionDef) and node.name == "use_deterministic_algorithms":
            return ast.get_docstring(node, clean=False) or ""
    raise UsageError(f"{path}: no use_deterministic_algorithms in its torch/__init__.py; give a torch wheel")


def encode_table(torch: str, claims: Iterable[Claim]) -> bytes:
    """Return the table of one release as JSON, one claim per line, without the docstring's lines."""
    lines = [msgspec.json.encode(msgspec.structs.replace(claim, source=None)) for claim in claims]
    return b'{"torch":%s,"claims":[\n%s\n]}\n' % (msgspec.json.encode(torch), b",\n".join(lines))


def main(arguments: Sequence[str] | None = None) -> int:
    """Table the claims of torch wheels under ``reports/claims``."""
    parser = argparse.ArgumentParser(prog="python -m detmatrix.scanner.claims", description=main.__doc__)
    parser.add_argument("wheels", nargs="+", type=Path, metavar="WHEEL", help="torch-VERSION-….whl")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where a table is stale")
    options = parser.parse_args(arguments)
    stale = False
    for wheel in options.wheels:
        named = re.match(r"torch-(\d[\w.]*)", wheel.name)
        if not named:
            raise UsageError(f"{wheel}: not named torch-VERSION-….whl; give a wheel that pip downloaded")
        claims = parse_claims(docstring_of_wheel(wheel))
        unparsed = [claim for claim in claims if not claim.parsed]
        sections = Counter({claim.order: claim.section for claim in claims}.values())
        counts = ", ".join(f"{sections[name]} {name}" for name in get_args(Section) if sections[name])
        print(f"{named[1]}: {counts or 'no bullets'}; {len(claims)} claims, {len(unparsed)} unparsed")
        for claim in unparsed:
            print(f"  unparsed: {claim.text}")
        path = DATA / f"{named[1]}.json"
        table = encode_table(named[1], claims)
        if path.exists() and path.read_bytes() == table:
            continue
        if options.check:
            print(f"  {path}: not what the wheel says; run this without --check")
            stale = True
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(table)
    return EXIT_CHECK_FAILED if stale else EXIT_DONE
