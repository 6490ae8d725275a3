"""What the files of builds say of the documented lists, as Markdown for people."""

from __future__ import annotations

from collections.abc import Iterator

from reports.builds import words
from reports.builds.expectations import (
    EXPECTATION_MEANING,
    PLACE_MEANING,
    BuildExpectations,
    Expectation,
    ExpectedClaim,
    UnmatchedSite,
    count,
)
from reports.builds.links import WAY_MEANING
from reports.docs.builds import BuildFiles, measured
from reports.docs.markdown import bullet
from reports.render.markdown import code, plain, table

# The disagreements, whose evidence is told in full.
_TOLD: tuple[Expectation, ...] = (
    "alert_gone",
    "alert_reached",
    "alert_partly",
    "unsettled",
    "other_device",
    "unlinked",
)
_CASES = 3
_LINKS = 6
_DEVICES = {"cpu": "CPU", "cuda": "CUDA"}


def render(files: BuildFiles) -> Iterator[str]:
    """Yield the part of a report that is about builds."""
    yield f"# What torch {plain(files.torch)} documents, and what its build says\n\n"
    yield (
        "Expected, not measured: *binary* is read from the files of a build, *trace* was made with fake "
        "tensors, and no kernel ran for either. *measured* is what runs showed.\n\n"
    )
    for text in (files.note, *files.left):
        if text:
            yield f"> [!NOTE]\n> {plain(text)}\n\n"
    for build in files.builds:
        yield from _build(build, files)
    yield from _legend()


def _build(build: BuildExpectations, files: BuildFiles) -> Iterator[str]:
    named = [name for name in (build.census_name, build.trace_name) if name is not None]
    device = _DEVICES.get(build.device, build.device)
    yield f"## {plain(device)}, torch {plain(build.torch)}\n\nFrom {' and '.join(map(code, named))}.\n\n"
    yield table(("what", "how many"), [(plain(name), str(number)) for name, number, _ in count(build)])
    yield "\n"
    yield table(
        ("claim", "documented", "binary (expected)", "trace (expected)", "expected", "measured"),
        [
            (
                bullet(one.claim.text),
                plain(words.documented(one)),
                plain(words.binary(one, build)),
                plain(words.trace(one, build)),
                plain(one.expectation),
                plain(measured(one, files.docs)),
            )
            for one in build.expected
        ],
    )
    yield "\n"
    for name in _TOLD:
        some = [one for one in build.expected if one.expectation == name]
        if some:
            yield f"### {name.replace('_', ' ').capitalize()}\n\n{EXPECTATION_MEANING[name]}\n\n"
            for one in some:
                yield from _evidence(one)
            yield "\n"
    yield from _unspoken(build.unspoken)


def _evidence(one: ExpectedClaim) -> Iterator[str]:
    yield f"* {bullet(one.claim.text)} ({plain(words.documented(one))})\n"
    links = list(dict.fromkeys((*one.alerts, *one.flags)))
    yield from (f"  * {plain(words.link_words(link))}\n" for link in links[:_LINKS])
    if len(links) > _LINKS:
        yield f"  * and {len(links) - _LINKS} links more\n"
    ways: dict[str, list[str]] = {}
    for traced in one.traced:
        ways.setdefault(traced.text, []).append(traced.row.row.id)
    for text, ids in ways.items():
        more = f" and {len(ids) - _CASES} more" if len(ids) > _CASES else ""
        yield f"  * {plain(text)}: {', '.join(map(code, ids[:_CASES]))}{more}\n"


def _unspoken(unspoken: tuple[UnmatchedSite, ...]) -> Iterator[str]:
    if not unspoken:
        return
    yield "### No bullet\n\n"
    order = list(PLACE_MEANING)
    yield table(
        ("what", "function", "alert caller", "file", "ops that lead there"),
        [
            (
                plain(one.kind),
                code(one.place.function),
                code(one.place.alert) if one.place.alert is not None else "none",
                code(one.place.library),
                ", ".join(map(code, one.ops)) or "none known",
            )
            for one in sorted(unspoken, key=lambda one: order.index(one.kind))
        ],
    )
    yield "\n"


def _legend() -> Iterator[str]:
    yield "## The words of builds\n\n"
    for meanings in (EXPECTATION_MEANING, PLACE_MEANING):
        yield from (f"* **{plain(name)}**: {meaning}\n" for name, meaning in meanings.items())
    yield "\nHow a bullet is linked to a place, the surest first:\n\n"
    yield from (f"* **{plain(name)}**: {meaning}\n" for name, meaning in WAY_MEANING.items())
