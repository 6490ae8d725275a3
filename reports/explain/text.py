"""What is known of one op, for a terminal of 80 columns: plain text, nothing that only colour says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from reports.render.json import View
from reports.render.terminal import wrapped
from scanner.errors import one_line
from scanner.plurals import several

_DEVICES = {"any": "any device", "cpu": "CPU", "cuda": "CUDA", "mps": "MPS"}


def render(view: View) -> Iterator[str]:
    """Yield the text in pieces."""
    yield from (f"{line}\n" for line in _lines(view))


def _lines(view: View) -> Iterator[str]:
    yield one_line(view["op"])
    if others := [name for name in view["specs"] if name != view["op"]]:
        yield from wrapped(f"with {', '.join(others)}", "  ")
    if view["releases"]:
        yield from _documented(view)
    yield from _measured(view)
    yield from _section("WHY IT COULD DIFFER", view["why"])
    yield from _section("ENGINES OF cuDNN, NOT MEASURED", view["engines"])
    yield from _libraries(view["libraries"])
    yield from _section("WHAT TO DO", [view["action"]] if view["action"] else [])
    costs = [f"{name}: {text}" for name, text in view["cost"].items()]
    yield from _section("COST OF THE FLAG (time with it on, over that with it off)", costs)
    if view["commands"]:
        yield from ("", "SHOW IT" if view["measured"] else "MEASURE IT")
        # Whole, to be copied.
        yield from (f"  {one_line(command)}" for command in view["commands"])


def _documented(view: View) -> Iterator[str]:
    yield from ("", f"DOCUMENTED (torch {view.releases_words})")
    for bullet in view["documented"]:
        yield from wrapped(
            f"{bullet.span}: {bullet['list']}, {_DEVICES.get(bullet['device'], bullet['device'])}: {bullet['text']}",
            "  ",
        )
    if not view["documented"]:
        yield "  In no list of any of these releases."


def _measured(view: View) -> Iterator[str]:
    for run in view["measured"]:
        yield from ("", *_run(run))
    if not view["measured"]:
        yield from ("", "MEASURED", "  Not in these runs.")
    for device, count in view["unmeasured"].items():
        simulated = " SIMULATED," * (
            device == "cuda" and any(run.head == "CUDA, SIMULATED" for run in view["measured"])
        )
        yield f"  {_DEVICES.get(device, device)}{simulated} NOT MEASURED: {several(count, 'documented claim')}"


def _run(run: View) -> Iterator[str]:
    same = f"; the same findings in {', '.join(run['same'])}" if run["same"] else ""
    yield from wrapped(
        f"{run.head}, torch {run['torch']}, {run['machine']}{f', {run.n_words}' if run.n_words else ''} "
        f"({run['run']}){same}",
        "",
    )
    for name, text in run.further_words.items():
        yield from wrapped(f"{name}: {text}", "  ")
    for reason in run["distrust"]:
        yield from wrapped(f"NOT TRUSTWORTHY: {reason}", "  ")
    for direction, findings in run["cases"].items():
        for found in findings:
            yield from wrapped(f"{direction}: {found['finding']}: {_cases(found['cases'])}", "  ")
            yield from wrapped(_shown(found), "    ")
            for reason in found["reasons"]:
                yield from wrapped(reason, "    ")


def _shown(found: View) -> str:
    doubts = "".join(f"; {count} {name}" for name, count in found["doubts"].items())
    if found.differ:
        which = f"of {found['shown']}: " if len(found["rows"]) > 1 else ""
        return f"{which}off {found['off']}; on {found['on']}{doubts}"
    bound = f": rate < {found.bound_words}" if found.bound_words else ""
    return f"no difference in {several(len(found['rows']), 'row')}{bound}{doubts}"


def _cases(cases: Mapping[str, Sequence[str]]) -> str:
    """Return cases with their dtypes, said once where they are the same for all."""
    kinds = {tuple(dtypes) for dtypes in cases.values()}
    if len(kinds) == 1:
        return f"{', '.join(cases)} ({', '.join(next(iter(kinds)))})"
    return ", ".join(f"{name} ({', '.join(dtypes)})" for name, dtypes in cases.items())


def _libraries(libraries: Sequence[View]) -> Iterator[str]:
    if not libraries:
        return
    yield from ("", "DOCUMENTED BY LIBRARIES, NOT MEASURED (quoted by detmatrix libraries)")
    for library in libraries:
        yield from wrapped(library.title, "  ")
        for entry in library["entries"]:
            yield from wrapped(f"{entry.said}, {entry.when}", "    ")


def _section(title: str, texts: Sequence[str]) -> Iterator[str]:
    if texts:
        yield from ("", title)
        for text in texts:
            yield from wrapped(text, "  ")
