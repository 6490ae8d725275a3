"""The grammar of the lists in the docstring of ``torch.use_deterministic_algorithms``.

Text in, plain tuples out: which lines make a bullet, and what its words say. Either a rule accounts for each
word, or the bullet is not read at all. Rules match where the last one ended, and no pattern can match the
same words in two ways, so that hostile text takes linear time too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from detmatrix.scanner.observations.records import Section

# What a clause says: kind, name, values. Devices and direction are told in the same form as conditions.
Fact = tuple[str, str, tuple[str, ...]]
Facts = tuple[Fact, ...]
_Rule = tuple[re.Pattern[str], Callable[[re.Match[str]], Facts]]

DEVICE = ("device", "")
DIRECTION = ("direction", "")

# A marker may lack the space before its role.
_MARKER = re.compile(r"[*+•-](?:\s+|(?=[:`])|$)")

# A tensor some of whose elements are one place in memory.
OVERLAP = "internal_overlap"
_NOTE = re.compile(
    r"This flag does not [^.]{1,200} inplace operation on a tensor with an internal memory overlap[^.]*\."
)

_REF = r":?(?:func|class|meth|attr)?:?`{0,2}~?(torch(?:\.\w+)+)(?:\(\))?`{0,2}"
_REFS = re.compile(_REF, re.ASCII)
_HEAD = re.compile(rf"{_REF}(?:(?:,? and |,? or |, ?|/){_REF})*", re.ASCII)


def bullets(docstring: str) -> Iterator[tuple[Section, list[str]]]:
    """Yield the section and the lines of each bullet, without its indentation.

    Indentation counts only against that of the bullet, because Python 3.13 and later strip it from
    docstrings. A line belongs to the bullet above it if it is indented further, or is no bullet and follows
    without a blank line. Blank lines belong to the bullet above them if another one follows.
    """
    section: Section = "other"
    heading: list[str] = []
    bullet: list[str] = []
    margin = blank = 0
    for raw in [*docstring.expandtabs().split("\n"), "", "."]:  # A last paragraph ends the last bullet.
        line = raw.rstrip()
        text = line.lstrip()
        if not text:
            blank += 1
            continue
        indent = len(line) - len(text)
        marker = _MARKER.match(text)
        if bullet and (indent >= margin + 2 or (not marker and (indent > margin or not blank))):
            bullet += [""] * blank
            bullet.append(line[min(indent, margin) :])
        else:
            if bullet and (section != "other" or _HEAD.match(sentence(bullet))):
                yield section, bullet + ([""] * blank if marker else [])
            if marker:
                section, heading = (_section(heading) if heading else section), []
                bullet, margin = [text], indent
            else:
                bullet, heading = [], [] if blank else heading
                heading.append(text)
        blank = 0


def notes(docstring: str) -> Iterator[tuple[str, Fact]]:
    """Yield the words of each note that says of calls of any op what the flag does not do, and what it is about."""
    text = " ".join(docstring.split())
    for found in _NOTE.finditer(text):
        yield found[0], ("input", OVERLAP, ("True",))


def _section(heading: Sequence[str]) -> Section:
    words = " ".join(" ".join(heading).lower().split())
    if "cublas_workspace_config" in words:
        return "cublas"
    if "following" in words and "act deterministically" in words:
        return "deterministic"
    return "raises" if "following" in words and "will throw" in words else "other"


def sentence(lines: Sequence[str]) -> str:
    """Return a bullet as one line without its marker, its nested list at the end: ``[linear|bilinear]``."""
    words = [lines[0][1:]]
    items: list[str] = []
    for line in lines[1:]:
        text = line.strip()
        if marker := _MARKER.match(text):
            item = _ITEM.fullmatch(text, marker.end())
            items.append(item[1] if item else "?")
        elif text and items:
            items.append("?")  # An item of more than one line, or a paragraph after the list.
        else:
            words.append(text)
    return " ".join(" ".join([*words, f"[{'|'.join(items)}]" if items else ""]).split())


def targets(text: str) -> tuple[str, ...]:
    """Return the ops named anywhere in a text, with or without a role."""
    return tuple(dict.fromkeys(_REFS.findall(text)))


def read(text: str) -> tuple[tuple[str, ...], dict[tuple[str, str], tuple[str, ...]]] | None:
    """Return a sentence's ops and facts, or ``None`` if a word is left over or two clauses disagree."""
    head = _HEAD.match(text)
    if not head:
        return None
    facts: dict[tuple[str, str], tuple[str, ...]] = {}
    position = head.end()
    while position < len(text):
        rules = ((meaning, pattern.match(text, position)) for pattern, meaning in _RULES)
        meaning, found = next((rule for rule in rules if rule[1]), (None, None))
        if meaning is None or found is None:
            return None
        position = found.end()
        for kind, name, values in meaning(found):
            if facts.setdefault((kind, name), values) != values:
                return None
    return targets(head[0]), facts


_DEVICES = r"((?:cpu|cuda|mps)(?:(?:, or |, | or | and |/)(?:cpu|cuda|mps))*)"
_TENSOR = rf"(?:an? )?{_DEVICES} tensors?"
_DTYPE = r"(?:(?:b?float|complex|u?int)\d+|floating[ -]point|floating|complex|integer|integral|boolean|bool)"
_DTYPES = rf"({_DTYPE}(?:(?:, or |, | or | and |/){_DTYPE})*)"
_SPELLINGS = {
    "floating point": "floating",
    "floating-point": "floating",
    "integral": "integer",
    "boolean": "bool",
}
_NAME = r"`{0,2}(\w+)`{0,2}"
_VALUE = r"['\"]?[\w-]+['\"]?"
_VALUES = rf"={_VALUE}(?:[\\/|]{_VALUE})*`{{0,2}}"  # 2.15 says ``reduce='prod'\'mean'``.
_ITEM = re.compile(r"[`'\"]*([\w-]+)[`'\"]*[,.;]?")


def _words(text: str) -> tuple[str, ...]:
    """Return the alternatives that a list of devices or dtypes names, in one spelling."""
    found = re.findall(rf"{_DTYPE}|cpu|cuda|mps", text.lower())
    return tuple(dict.fromkeys(_SPELLINGS.get(word, word) for word in found))


def _device(listed: str | None) -> Facts:
    return ((*DEVICE, _words(listed)),) if listed else ()


def _keyword(found: re.Match[str]) -> Facts:
    """Read ``reduce='sum'`` or ``reduce='mean'``."""
    values = [value for listed in re.findall(_VALUES, found[1]) for value in re.findall(r"[\w-]+", listed)]
    return (("keyword", found[2], tuple(dict.fromkeys(values))),)


def _rule(pattern: str, meaning: Callable[[re.Match[str]], Facts]) -> _Rule:
    """Return a clause, with the words that may join it to what stands before it.

    Every clause starts at a space and the sentence must be used up, so a clause cannot end within a word.
    """
    joined = rf"[,.;]? (?:(?:and|when|with|if|that) ){{0,2}}(?:{pattern})"
    return re.compile(joined, re.IGNORECASE | re.ASCII), meaning


_BACKWARD: Fact = (*DIRECTION, ("backward",))
_RULES: tuple[_Rule, ...] = (
    _rule(rf"called (?:on|with) {_TENSOR}", lambda m: _device(m[1])),
    _rule(
        rf"called on (?:an? )?(sparse-dense|dense-sparse|sparse) {_TENSOR}",
        lambda m: (("layout", "layout", (m[1].lower(),)), *_device(m[2])),
    ),
    _rule(rf"attempting to differentiate(?: {_TENSOR})?", lambda m: (_BACKWARD, *_device(m[1]))),
    _rule("requires? grad", lambda _: (_BACKWARD, ("input", "requires_grad", ("True",)))),
    # Alternatives must be of one name: "a=1 or b=2" is not what two conditions would say.
    _rule(rf"(`{{0,2}}([\w.]+){_VALUES}(?:(?:,? or |, )`{{0,2}}\2{_VALUES})*)", _keyword),
    _rule(
        r"one of the following (\w+?)s is used:? \[([\w|-]+)\]",
        lambda m: (("keyword", m[1], tuple(dict.fromkeys(m[2].split("|")))),),
    ),
    _rule(rf"(?:of )?{_DTYPES} dtypes?", lambda m: (("dtype", "dtype", _words(m[1])),)),
    _rule(rf"(?:the )?dtype is {_DTYPES}", lambda m: (("dtype", "dtype", _words(m[1])),)),
    _rule("indices output", lambda _: (("output", "output", ("indices",)),)),
    _rule(rf"(?:the )?{_NAME} tensor is given", lambda m: (("argument", m[1], ("given",)),)),
    _rule(rf"(?:the )?{_NAME} type is {_NAME}", lambda m: (("argument", m[1], (m[2],)),)),
    _rule(rf"(?:the )?{_NAME} is a list of tensors", lambda m: (("argument", m[1], ("list of tensors",)),)),
    _rule("called (?:on|with) a quantized tensor", lambda _: (("input", "quantized", ("True",)),)),
    _rule(
        "called (?:on|with) a tensor that is not quantized", lambda _: (("input", "quantized", ("False",)),)
    ),
    _rule("in some cases", lambda _: (("unspecified", "cases", ("some",)),)),
    # 2.1 lists the ops that fill uninitialised memory among those that act deterministically.
    _rule(
        rf"(?:sets new elements to|will fill the output tensor with) a known value\. {_DTYPES} "
        r"(?:values|dtype tensors) are (?:set to|filled with) nan\. integer (?:values|dtype tensors) are "
        r"(?:set to|filled with) the maximum value",
        lambda m: (("fill", "fill", (*(f"{dtype}:NaN" for dtype in _words(m[1])), "integer:maximum")),),
    ),
    (re.compile(r"[.,;]$"), lambda _: ()),
)
