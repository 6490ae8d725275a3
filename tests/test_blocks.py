"""Blocks between markers: regenerated in place, whole or not at all, and nothing beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from detmatrix.reports.render.blocks import command_words, update
from detmatrix.scanner.errors import UsageError

MD = "# Title\n\n<!-- detmatrix docs:begin -->\nold\n<!-- detmatrix docs:end -->\n\nend"
COMMAND = "detmatrix docs run.jsonl"


def file_of(folder: Path, text: str, name: str = "README.md") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def test_the_block_is_replaced(tmp_path: Path) -> None:
    """What stands between the markers is new, the begin marker names the command, and the rest is untouched."""
    path = file_of(tmp_path, MD)

    assert update(path, "docs", COMMAND, "new\n\ntext\n") == 0
    assert path.read_text() == (
        "# Title\n\n<!-- detmatrix docs:begin detmatrix docs run.jsonl -->\n\nnew\n\ntext\n\n"
        "<!-- detmatrix docs:end -->\n\nend"
    )


def test_rst_blocks_take_their_markers_indentation(tmp_path: Path) -> None:
    """A block can stand in a docstring: it is indented like its marker, whatever its own indentation."""
    path = file_of(
        tmp_path, '"""Doc.\n\n    .. detmatrix docs:begin\n    .. detmatrix docs:end\n    """\n', "a.py"
    )
    update(path, "docs", COMMAND, "    Heading:\n\n        * a\n")

    assert path.read_text() == (
        f'"""Doc.\n\n    .. detmatrix docs:begin {COMMAND}\n\n    Heading:\n\n        * a\n\n'
        '    .. detmatrix docs:end\n    """\n'
    )


def test_line_ends_and_permissions_stay(tmp_path: Path) -> None:
    """A file with CRLF line ends keeps them, and the file its mode."""
    path = file_of(tmp_path, MD.replace("\n", "\r\n"))
    path.chmod(0o640)
    update(path, "docs", COMMAND, "new\ntext")

    assert path.read_bytes().count(b"\r\n") == path.read_bytes().count(b"\n") == 9
    assert path.stat().st_mode & 0o777 == 0o640


BEGIN, END = "<!-- detmatrix docs:begin -->", "<!-- detmatrix docs:end -->"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("text", "has no block 'docs'; put the lines '<!-- detmatrix docs:begin -->' and '<!-- detmatrix docs:end -->'"),
        (f"{BEGIN}\n", ", line 1: the block 'docs' has no end marker behind this line; add it"),
        (f"\n{END}\n", ", line 2: the block 'docs' has no begin marker before this line; add it"),
        (f"{END}\n{BEGIN}\n", ", line 1: the block 'docs' has no begin marker before this line; add it"),
        (f"{MD}\n{MD}", "the begin marker of the block 'docs' stands twice (lines 3 and 10); remove one"),
        (f"{MD}\n{END}", "the end marker of the block 'docs' stands twice (lines 5 and 8); remove one"),
        (f"text {BEGIN}\n{END}", "has no begin marker before"),
    ],
)  # fmt: skip
def test_markers_that_make_no_block(tmp_path: Path, text: str, message: str) -> None:
    """Missing, unbalanced and repeated markers are one line that names file and line, and nothing is written."""
    path = file_of(tmp_path, text)

    with pytest.raises(UsageError) as raised:
        update(path, "docs", COMMAND, "new")

    assert message in str(raised.value)
    assert str(raised.value).startswith(str(path))
    assert path.read_text() == text


def test_a_block_holds_no_marker(tmp_path: Path) -> None:
    """A text with a marker in it would make a file that cannot be regenerated again."""
    path = file_of(tmp_path, MD)

    with pytest.raises(UsageError, match="marker of its own"):
        update(path, "docs", COMMAND, f"new\n{END}\n")

    assert path.read_text() == MD


def test_commands_name_no_machine() -> None:
    """An absolute path is shown by its name, and no file name can end the comment."""
    words = command_words("docs", ["/home/me/a b.jsonl", "runs/cpu.jsonl", "x-->.jsonl"], ["--format", "md"])

    assert words == "detmatrix docs 'a b.jsonl' runs/cpu.jsonl 'x--\\>.jsonl' --format md"
