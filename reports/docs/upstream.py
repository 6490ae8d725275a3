"""What would change in the docstring, as a patch of ``torch/__init__.py`` that ``git apply`` takes.

The file to change is read, never executed. Its own lists are held against the evidence, and only their bullets change;
lines that are not understood end in an error. What stands before the patch says what it rests on; git passes over it.
"""

from __future__ import annotations

import ast
import difflib
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from reports.docs.entries import INDENT, Entries, ListName, entries_of, sources, text_of
from reports.docs.judge import Docs
from reports.docs.regenerate import regenerate
from scanner.claims.tables import parse_claims
from scanner.errors import UsageError, one_line, safe_lines
from scanner.observations.records import Claim

PATH = "torch/__init__.py"
FUNCTION = "use_deterministic_algorithms"
_LARGEST = 16 << 20  # bytes of a file; torch/__init__.py has 100 kB
_NO_END = "\n\\ No newline at end of file\n"


class DocumentedSource(Struct, frozen=True, kw_only=True):
    """A file of Python that has the lists in a docstring."""

    path: str
    lines: tuple[str, ...]  # with their ends
    first: int  # the place of the docstring's first line
    last: int  # the place behind its last line
    claims: tuple[Claim, ...]

    def rewritten(self, before: Entries, after: Entries) -> list[str]:
        """Return the lines with the bullets of both lists replaced.

        Raises:
            UsageError: The bullets do not stand there as they were read.
        """
        lines = list(self.lines)
        for name in ("raises", "deterministic"):  # from the end, so that places stay
            old, new = _block(before, name), _block(after, name)
            places = [
                place
                for place in range(self.first, self.last - len(old) + 1)
                if old and lines[place : place + len(old)] == old
            ]
            if len(places) != 1:
                raise UsageError(
                    f"{self.path}: its list {name!r} is not laid out as PyTorch's are; give the {PATH} of a checkout"
                )
            lines[places[0] : places[0] + len(old)] = new
        return lines


def read_source(path: str) -> DocumentedSource:
    """Read the lists out of a file of Python, executing nothing of it.

    Raises:
        UsageError: It cannot be read, or has no lists.
    """
    try:
        with Path(path).open("rb") as file:
            content = file.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise UsageError(f"{path}: is too large to be PyTorch's; give the {PATH} of a checkout")
        text = content.decode()
        module = ast.parse(text)
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be read ({error.strerror}); give the {PATH} of a checkout with --source"
        ) from error
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"{path}: is no Python that can be read; give the {PATH} of a checkout") from error
    for node in module.body:
        if isinstance(node, ast.FunctionDef) and node.name == FUNCTION:
            claims = parse_claims(ast.get_docstring(node, clean=False) or "")
            if not all(entries_of(claims).values()):
                break
            docstring = node.body[0]
            assert docstring.end_lineno is not None
            return DocumentedSource(
                path=path,
                lines=tuple(f"{line}\n" for line in text.split("\n")),
                first=docstring.lineno - 1,
                last=docstring.end_lineno,
                claims=claims,
            )
    raise UsageError(f"{path}: has no {FUNCTION} with both lists; give the {PATH} of a checkout")


def lines(source: DocumentedSource, docs: Docs) -> list[str]:
    """Return the patch; nothing if nothing would change.

    Raises:
        UsageError: The file's lists are not laid out as expected, or hold what a terminal could take for a command.
    """
    before = entries_of(source.claims)
    lists = regenerate(docs)
    notes = [
        *lists.changes.values(),
        *(f"{op} on {on}: {text}" for (op, on), text in lists.added.items()),
    ]
    if lists.regenerated == text_of(before):
        return []
    # What is the same before and after proves that the file's lines are understood.
    source.rewritten(before, before)
    after = source.rewritten(before, entries_of(parse_claims(lists.regenerated)))
    patch = list(_diff(source, after))
    if safe_lines("".join(patch)) != "".join(patch):
        raise UsageError(f"{source.path}: its lists hold characters that cannot be shown; remove them first")
    preamble = [f"# {one_line(line)}\n" for line in _preamble(docs, notes)]
    return [*preamble, f"diff --git a/{PATH} b/{PATH}\n", *patch]


def _preamble(docs: Docs, notes: Sequence[str]) -> Iterator[str]:
    """Yield what the patch rests on."""
    yield f"Changes of the lists in the docstring of torch.{FUNCTION}, by detmatrix."
    yield "Apply them at the top of a checkout of PyTorch: git apply FILE"
    yield f"{docs.seen.capitalize()}, torch {docs.torch}: {', '.join(one.name for one in docs.matrices)}"
    yield from notes


def _diff(source: DocumentedSource, after: Sequence[str]) -> Iterator[str]:
    """Yield a unified diff of the file."""
    before = list(source.lines)
    # The last "line" is what follows the last end of line.
    ending = before.pop(), after[-1]
    assert ending[0] == ending[1]
    rest = [] if ending[0] == "\n" else [ending[0].removesuffix("\n") + _NO_END]
    return difflib.unified_diff([*before, *rest], [*after[:-1], *rest], f"a/{PATH}", f"b/{PATH}")


def _block(entries: Entries, name: ListName) -> list[str]:
    """Return the lines of a list's bullets as the docstring has them."""
    text = textwrap.indent("\n".join(sources(entries[name])), INDENT)
    return [f"{line}\n" for line in text.split("\n")] if text else []
