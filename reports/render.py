"""What all reports are made with: JSON, Markdown, web pages, and where they go: a file, standard output, a terminal of some width.

In a template of Markdown (``reports/templates/NAME.md.j2``) every value is escaped by ``plain`` unless it is ``Markdown`` already:
what a filter below returns, or what the template itself declares with ``|safe``. What macros, ``~`` and ``join`` return
is text like any other, so that forgetting ``|safe`` shows, and lets nothing through.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import os
import re
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import chain
from pathlib import Path
from typing import IO, Any, TypeVar

import jinja2
import msgspec
from tabulate import tabulate

from detmatrix.scanner.errors import UsageError, one_line
from detmatrix.scanner.observations.writer import cannot_write
from detmatrix.scanner.plurals import first_of, several
from detmatrix.scanner.verdicts.vocabulary import COLUMN_WORDS, FINDING, VERDICT, WORST_FIRST

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")

_TEMPLATES = Path(__file__).resolve().parent / "templates"


def json_of(value: object) -> str:
    """Return a value as JSON on one line."""
    return msgspec.json.encode(value).decode()


def fields_of(one: object, *names: str) -> dict[str, Any]:
    """Return some fields of a structure by their names."""
    return {name: getattr(one, name) for name in names}


def grouped(pairs: Iterable[tuple[_Key, _Value]]) -> dict[_Key, list[_Value]]:
    """Return what stands behind each key, the keys in the order in which they come first."""
    found: dict[_Key, list[_Value]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


class View(dict[str, Any]):
    """What a report shows: machines are told what stands under the keys, only people what the attributes say.

    A key can be read as an attribute too, and what the view does not say itself, its record does.
    """

    def __init__(self, fields: Mapping[str, object], record: object = None, **words: object) -> None:
        super().__init__(fields)
        self.record = record
        self.__dict__ |= words

    def __getattr__(self, name: str) -> Any:
        return self[name] if name in self else getattr(self.record, name)


def object_pieces(
    view: Mapping[str, Any],
    *lists: str,
    each: Callable[[Any], Iterable[str]] = lambda one: [json_of(one)],
    edge: str = "\n",
) -> Iterator[str]:
    """Yield an object, a key per line, without a line end behind it.

    Of *lists* each member begins a line, in the text that *each* yields. *edge* stands inside the braces.
    """
    for number, (key, value) in enumerate(view.items()):
        yield f",\n{json_of(key)}: " if number else f"{{{edge}{json_of(key)}: "
        if key not in lists:
            yield json_of(value)
            continue
        yield "[\n"
        for place, one in enumerate(value):
            yield ",\n" if place else ""
            yield from each(one)
        yield "\n]"
    yield f"{edge}}}"


# --- Markdown that holds whatever text it is given: tables, code spans, escaped words, and templates of them

# Stands where there is nothing to say.
NONE = "none"
_MARKUP = re.compile(r"([\\`*\[\]|~$]|\b_|_\b|(?<!\w)_(?!\w))")
_REFERENCE = re.compile(r"(?::\w+:)?(`{1,2})~?([^`]+)\1")
_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
# ``code`` and ``plain`` put a backslash before every bar of a value, so that the others are the template's own.
_BAR = re.compile(r"(?<!\\)\|")


class Markdown(str):
    """Text whose Markdown is meant, which a template leaves as it is."""

    __slots__ = ()


def code(text: str) -> Markdown:
    """Return *text* as a code span that holds in a table cell."""
    text = one_line(text).replace("|", "\\|")
    if not text:
        return Markdown(NONE)
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    pad = " " if longest else ""
    return Markdown(f"{'`' * (longest + 1)}{pad}{text}{pad}{'`' * (longest + 1)}")


def codes(texts: Sequence[str], most: int | None = None) -> Markdown:
    """Return the first *most* texts as code spans, and how many more there are."""
    return Markdown(first_of([*map(code, texts)], most or len(texts)))


def plain(text: str) -> Markdown:
    """Return *text* on one line with its Markdown and HTML escaped."""
    return Markdown(_MARKUP.sub(r"\\\1", one_line(text)).translate(_HTML))


def bullet(text: str) -> Markdown:
    """Return the words of a bullet of PyTorch's docstring with its roles stripped and its code kept."""
    parts = (code(part) if is_code else _spaced(part) for is_code, part in pieces(text))
    return Markdown("".join(parts).strip())


def pieces(text: str) -> list[tuple[bool, str]]:
    """Return the words of a bullet in pieces, each with whether it is code."""
    found: list[tuple[bool, str]] = []
    end = 0
    for one in _REFERENCE.finditer(text):
        found += [(False, text[end : one.start()]), (True, one[2])]
        end = one.end()
    return [*found, (False, text[end:])]


def _spaced(text: str) -> str:
    """Return *text* escaped, with a space at either end where it had one."""
    ends = (" " if text[:1].isspace() else "", " " if text[-1:].isspace() else "")
    return plain(text).join(ends) if text.strip() else ends[0]


def meanings(words: Mapping[str, str]) -> Markdown:
    """Return a list of words of ours and what they mean, in Markdown of ours."""
    return Markdown("\n".join(f"* **{plain(word)}**: {meaning}" for word, meaning in words.items()))


def cells(values: Iterable[object]) -> Markdown:
    """Return values as the cells of a line of a table, without the bars at its ends."""
    return Markdown(" | ".join(map(_finished, values)))


def aligned(lines: str) -> str:
    """Return the table that a template writes in a filter block, one line ``| cell | cell |`` per row, the columns first."""
    columns, *rows = ([cell.strip() for cell in _BAR.split(line)[1:-1]] for line in lines.strip().split("\n"))
    # Without disable_numparse a version "2.10" would turn into 2.1.
    return tabulate([*rows], headers=columns, tablefmt="github", disable_numparse=True) + "\n"


def markdown_pieces(name: str, report: object) -> Iterator[str]:
    """Yield in pieces what the template ``reports/templates/NAME.md.j2`` makes of a report."""
    yield from _markdown().get_template(f"{name}.md.j2").generate(report=report)


def literal(body: str, language: str, *, rst: bool) -> str:
    """Return a text as a block that Markdown or RST shows as it is."""
    if rst:
        # A directive without content is an error.
        return f".. code-block:: {language}\n\n{textwrap.indent(body, '   ')}" if body.strip() else ""
    fence = "```"
    while fence in body:
        fence += "`"
    end = "" if body.endswith("\n") else "\n"
    return f"{fence}{language}\n{body}{end}{fence}\n"


def text_pieces(name: str, report: object) -> Iterator[str]:
    """Yield the same of a template of text for a terminal, ``NAME.txt.j2``, in which ``wrapped`` breaks what stands in its block."""
    environment = _environment(autoescape=False, keep_trailing_newline=True)
    environment.filters["line"] = one_line
    environment.filters["wrapped"] = lambda text, indent="": "\n".join([*wrapped(text, indent), ""])
    yield from environment.get_template(f"{name}.txt.j2").generate(report=report)


def _finished(value: object) -> str:
    """Escape what a template prints, unless its Markdown is meant."""
    return value if isinstance(value, Markdown) else plain(str(value))


@cache
def _markdown() -> jinja2.Environment:
    # What would escape for HTML is off; ``finalize`` escapes for Markdown.
    environment = _environment(autoescape=False, finalize=_finished, keep_trailing_newline=True)
    environment.filters |= {one.__name__: one for one in (bullet, cells, code, codes, meanings)}
    environment.filters |= {"line": one_line, "safe": Markdown, "table": aligned}
    return environment


def _environment(*, autoescape: bool = True, **options: Any) -> jinja2.Environment:
    """Return what templates are rendered with: those of pages escape everything for HTML."""
    environment = jinja2.Environment(
        autoescape=autoescape,  # noqa: S701 - Markdown is escaped by ``finalize``
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        **options,
    )
    environment.globals["several"] = several
    return environment


# --- Web pages: templates in which everything is escaped, one script, and tables of records


class Tables:
    """Records, each once in its table."""

    def __init__(self) -> None:
        # By name the fields of a table, and its records with their places.
        self._tables: dict[str, tuple[tuple[str, ...], dict[tuple[Hashable, ...], int]]] = {}

    def place(self, table: str, /, **fields: Hashable) -> int:
        """Return the place of a record in its table, whose records all have the same fields."""
        _, records = self._tables.setdefault(table, (tuple(fields), {}))
        return records.setdefault(tuple(fields.values()), len(records))

    def columns(self) -> dict[str, dict[str, object]]:
        """Return the tables, each as its columns by name."""
        return {
            table: dict(zip(fields, map(_packed, zip(*records, strict=True)), strict=True))
            for table, (fields, records) in self._tables.items()
        }


def _packed(values: Sequence[Hashable]) -> object:
    """Return a column, or where that is shorter what it holds, and of each record which of these, if there are several."""
    of = list(dict.fromkeys(values))
    if len(of) == 1:
        return {"of": of}
    places = {value: place for place, value in enumerate(of)}
    packed = {"of": of, "at": [places[value] for value in values]}
    return packed if len(json_of(packed)) < len(json_of(values)) else values


def page_pieces(name: str, *, styles: Sequence[str] = (), **context: object) -> Iterator[str]:
    """Yield in pieces what the template ``reports/templates/NAME.html.j2`` makes, with its style, further *styles*, and its script."""
    environment = _environment()
    environment.filters["fields"] = msgspec.structs.astuple
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    environment.globals |= {
        "finding_sign": {name: FINDING[name].sign for name in WORST_FIRST},
        "verdict_sign": {name: word.sign for name, word in VERDICT.items()},
        "column_sign": {name: word.sign for name, word in COLUMN_WORDS.items()},
    }
    code = _joined("js", "page", name) if (_TEMPLATES / f"{name}.js").exists() else ""
    yield from environment.get_template(f"{name}.html.j2").generate(
        style=_joined("css", "page", name, *styles),
        script=code,
        script_hash=base64.b64encode(hashlib.sha256(code.encode()).digest()).decode(),
        **context,
    )


def _joined(suffix: str, *names: str) -> str:
    """Return the files that there are as they are: they hold braces that are not jinja's."""
    paths = (_TEMPLATES / f"{name}.{suffix}" for name in names)
    return "\n".join(path.read_text(encoding="utf-8") for path in paths if path.exists())


# --- Where reports go: a file that is replaced whole or not at all, standard output, a web browser


def write_whole(path: Path, pieces: Iterable[str], runs: Sequence[str] = ()) -> None:
    """Write a report through a temporary file beside it, so that a failure leaves what was there before.

    A link is followed; a device such as ``/dev/null`` is written directly. The *runs* it was made from it must not replace.

    Raises:
        UsageError: The place cannot be written, or a run file lies there.
    """
    check_place(path, runs)
    target = Path(os.path.realpath(path))
    direct = target.exists() and not target.is_file()
    beside = target if direct else target.with_name(f".detmatrix-{os.getpid()}.part")
    try:
        with beside.open("wb") as file:
            _write(file, pieces)
        if not direct:
            beside.replace(target)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        if not direct:
            with suppress(OSError):
                beside.unlink(missing_ok=True)


def check_place(path: Path, runs: Sequence[str] = (), option: str = "-o") -> None:
    """Refuse a place that cannot be written, or where a run file lies, before what takes long is done for it."""
    if any(path.exists() and Path(run).exists() and path.samefile(run) for run in runs):
        raise UsageError(f"{path}: is one of the run files reported on; choose another place with -o")
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise UsageError(f"{path}: is a folder; name a file in it with {option}")
    for missing, number in (
        (not target.parent.exists(), errno.ENOENT),
        (not target.parent.is_dir(), errno.ENOTDIR),
        (not os.access(target if target.exists() else target.parent, os.W_OK), errno.EACCES),
    ):
        if missing:
            raise cannot_write(path, OSError(number, os.strerror(number)), option)


def write_to_stdout(pieces: Iterable[str]) -> None:
    """Write to standard output, in UTF-8 whatever the terminal's encoding, so that bytes are the same.

    A reader that has seen enough is no failure, nor does it make a check that was asked for pass.
    """
    try:
        _write(sys.stdout.buffer, pieces)
    except OSError as error:
        # What is left of it is not tried again at exit, which would be told a second time.
        with suppress(OSError), Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise cannot_write(Path("standard output"), error) from error


def _write(file: IO[bytes], pieces: Iterable[str]) -> None:
    file.writelines(piece.encode() for piece in pieces)
    file.flush()


# --- Text for a terminal: as wide as that is, and 80 columns where nobody looks at one

NARROW, _WIDE = 80, 160


def columns() -> int:
    """Return how many columns a text may take."""
    if not sys.stdout.isatty():
        return NARROW
    return min(max(shutil.get_terminal_size((NARROW, 24)).columns, NARROW // 2), _WIDE)


def wrapped(text: str, indent: str = "", width: int | None = None) -> list[str]:
    """Break a text into lines; what goes on stands further in. Names and options stay whole."""
    return textwrap.wrap(
        one_line(text),
        columns() if width is None else width,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def fitted(names: Iterable[str], width: int, most: int = 0, limit: int = 0) -> dict[str, str]:
    """Return each name on one line; one that is too wide without what stands before a dot or a colon of it.

    Two names do not read the same: what would takes more parts, those that fit into *most* columns. A last part that is wider than
    the *limit* is cut within, unless it would read like another.
    """
    most = max(width, most)
    limit = max(most, limit)
    ends: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        whole = one_line(name)
        ends[name] = [whole, *(f"…{whole[dot.end() :]}" for dot in re.finditer(r"[.:]", whole))]
    texts = {name: next((one for one in some if len(one) <= width), some[-1]) for name, some in ends.items()}
    counts = Counter(texts.values())
    shared = Counter(chain.from_iterable(ends.values()))
    for name, some in ends.items():
        if counts[texts[name]] > 1:
            # Of what no other name ends in the longest that fits, else the shortest.
            alone = [one for one in some if shared[one] == 1] or some[:1]
            texts[name] = next((one for one in alone if len(one) <= most), alone[-1])
    cut = {name: text if len(text) <= limit else f"…{text[1 - limit :]}" for name, text in texts.items()}
    counts = Counter(cut.values())
    return {name: text if counts[text] == 1 else texts[name] for name, text in cut.items()}
