"""What the web pages share: templates in which everything is escaped, one script, and tables of records."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Hashable, Iterator, Sequence
from types import ModuleType

import jinja2
import msgspec

from detmatrix.reports.render.json import json_of
from detmatrix.scanner.plurals import several
from detmatrix.scanner.verdicts.vocabulary import COLUMN_WORDS, FINDING, VERDICT, WORST_FIRST


class Tables:
    """Records, each once in its table."""

    def __init__(self) -> None:
        self._fields: dict[str, tuple[str, ...]] = {}
        self._records: dict[str, dict[tuple[Hashable, ...], int]] = {}

    def place(self, table: str, /, **fields: Hashable) -> int:
        """Return the place of a record in its table, whose records all have the same fields."""
        self._fields.setdefault(table, tuple(fields))
        records = self._records.setdefault(table, {})
        return records.setdefault(tuple(fields.values()), len(records))

    def columns(self) -> dict[str, dict[str, object]]:
        """Return the tables, each as its columns by name."""
        return {
            table: {
                name: _packed([record[place] for record in self._records[table]])
                for place, name in enumerate(fields)
            }
            for table, fields in self._fields.items()
        }


def _packed(values: Sequence[Hashable]) -> object:
    """Return a column, or where that is shorter what it holds, and of each record which of these, if there are several."""
    of = list(dict.fromkeys(values))
    if len(of) == 1:
        return {"of": of}
    places = {value: place for place, value in enumerate(of)}
    packed = {"of": of, "at": [places[value] for value in values]}
    return packed if len(json_of(packed)) < len(json_of(values)) else values


def generate(
    name: str,
    words: ModuleType | None = None,
    *,
    styles: Sequence[str] = (),
    script: bool = True,
    **context: object,
) -> Iterator[str]:
    """Yield a page in pieces.

    Args:
        name: Of its template, its style and its script, which stand behind those that all pages share.
        words: Functions that say in words what the template shows.
        styles: Further styles, of what not every page of this kind has.
        script: Whether the page has one.
        context: What the template shows.
    """
    environment = _environment()
    environment.filters["fields"] = msgspec.structs.astuple
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    environment.globals |= {
        "words": words,
        "several": several,
        "finding_sign": {name: FINDING[name].sign for name in WORST_FIRST},
        "verdict_sign": {name: word.sign for name, word in VERDICT.items()},
        "column_sign": {name: word.sign for name, word in COLUMN_WORDS.items()},
    }
    style, code = (
        _joined(environment, "css", name, *styles),
        _joined(environment, "js", name) if script else "",
    )
    yield from environment.get_template(f"{name}.html.j2").generate(
        style=style,
        script=code,
        script_hash=base64.b64encode(hashlib.sha256(code.encode()).digest()).decode(),
        **context,
    )


def generate_still(name: str, **context: object) -> Iterator[str]:
    """Yield a page that has no script, in pieces; arguments are those of ``generate``."""
    environment = _environment()
    style = _joined(environment, "css")
    yield from environment.get_template(f"{name}.html.j2").generate(style=style, **context)


def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("detmatrix.reports"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _joined(environment: jinja2.Environment, suffix: str, *names: str) -> str:
    """Return the files that all pages share and those of one, as they are: they hold braces that are not jinja's."""
    assert environment.loader is not None
    sources = (environment.loader.get_source(environment, f"{one}.{suffix}")[0] for one in ("page", *names))
    return "\n".join(sources)
