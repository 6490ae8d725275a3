"""Defaults of options from ``[tool.detmatrix.COMMAND]`` of the nearest ``pyproject.toml``.

The file may be anyone's: it can choose numbers, switches and names out of lists, and neither what is executed nor where
anything is written, which the command line alone says.
"""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from detmatrix.scanner.errors import UsageError

NAME = "pyproject.toml"
_MARK = b"tool.detmatrix"


def defaults_file() -> Path | None:
    """Return the nearest ``pyproject.toml``, here or in a folder above, if it has defaults."""
    here = Path.cwd()
    nearest = next((path for folder in (here, *here.parents) if (path := folder / NAME).is_file()), None)
    try:
        return nearest if nearest is not None and _MARK in nearest.read_bytes() else None
    except OSError:
        return None


def defaults_of(path: Path, name: str, command: click.Command, commands: Collection[str]) -> dict[str, Any]:
    """Return the defaults of a command by the names of its parameters.

    Raises:
        UsageError: The file cannot be read, or names what there is not or what it must not name.
    """
    tables = _tables(path)
    for other, table in tables.items():
        if not isinstance(table, dict) and other not in commands:
            raise UsageError(
                f"{path}: [tool.detmatrix] {other}: belongs to no command; put it into [tool.detmatrix.COMMAND]"
            )
        if other not in commands:
            raise UsageError(f"{path}: [tool.detmatrix.{other}] is no command{_near(other, commands)}")
    table = tables.get(name, {})
    if not isinstance(table, dict):
        raise UsageError(f"{path}: tool.detmatrix.{name} must be a table")
    options = {
        spelled.removeprefix("--"): one
        for one in command.params
        if isinstance(one, click.Option)
        for spelled in one.opts
    }
    found: dict[str, Any] = {}
    for key, value in table.items():
        where = f"{path}: [tool.detmatrix.{name}] {key}"
        option = options.get(key)
        if option is None or option.name is None:
            raise UsageError(f"{where}: is no option of detmatrix {name}{_near(key, options)}")
        if not _is_harmless(option):
            raise UsageError(
                f"{where}: is taken from the command line alone; numbers, switches and names out of lists have defaults here"
            )
        found[option.name] = _value(where, option, value)
    return found


def _tables(path: Path) -> dict[str, Any]:
    import tomllib  # noqa: PLC0415 - hardly anyone has a table

    try:
        tool = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {})
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: cannot be read ({error})") from error
    tables = tool.get("detmatrix", {}) if isinstance(tool, dict) else {}
    return tables if isinstance(tables, dict) else {}


def _is_harmless(option: click.Option) -> bool:
    """Tell whether an option chooses among what there is: no path, no text, no flag that overwrites or confirms."""
    if option.multiple:
        return False
    if option.is_flag:
        return bool(option.secondary_opts)
    numbers = (click.IntRange, click.FloatRange, click.Choice)
    return isinstance(option.type, numbers) or getattr(option.type, "chooses", False)


def _value(where: str, option: click.Option, value: Any) -> Any:
    """Return a value as the command line would have it."""
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        value = ",".join(value)
    if isinstance(value, bool) != option.is_flag or not isinstance(value, (bool, int, float, str)):
        raise UsageError(f"{where}: {value!r} is no value of it")
    try:
        option.type.convert(value, option, None)
    except click.BadParameter as error:
        raise UsageError(f"{where}: {error.message.rstrip('.')}") from error
    return value


def _near(name: str, names: Collection[str]) -> str:
    near = get_close_matches(name, list(names), n=1)
    return f"; did you mean {near[0]}?" if near else ""
