"""Take a census: a build in, a record out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

from scanner.census.build import Build
from scanner.census.elf import Image
from scanner.census.names import demangle, short
from scanner.census.python_places import python_places
from scanner.census.record import (
    FORMAT,
    RULE_SETS,
    AlertSite,
    Census,
    Counts,
    FlagCheck,
    FlagSite,
    KernelCode,
    Library,
)
from scanner.census.sites import (
    ALERT,
    CUBLAS,
    CallSite,
    RaisedAlert,
    knows_alerts,
    member_sites,
    raised_alerts,
)
from scanner.errors import BuildError
from scanner.processes.environment import tool_version


def take(
    build: Build, progress: Callable[[str], None], kernels_of: Callable[[Build], KernelCode] | None = None
) -> Census:
    """Take a census of a build.

    Args:
        build: The build.
        progress: Called with what is being read.
        kernels_of: Looks at the CUDA kernels; ``None``: nobody does.

    Raises:
        BuildError: The build cannot be read.
    """
    libraries = []
    alerts: list[AlertSite] = []
    asks: list[FlagCheck] = []
    for name in build.libraries:
        progress(f"{name} of torch {build.version.torch}")
        with build.library(name) as path:
            library, sites, raised = _read(path, name)
        libraries.append(library)
        symbols = {site.function.symbol for site in sites if site.function is not None}
        signatures = demangle(symbols)
        alerts += _alerts(name, raised, signatures)
        asks += _asks(name, sites, signatures)
    progress("Python files")
    places, unread = python_places(build)
    return Census(
        format=FORMAT,
        tool=f"detmatrix {tool_version()}",
        rules=len(RULE_SETS),
        torch=build.version.torch,
        torch_git=build.version.git,
        cuda=build.version.cuda,
        source=build.source,
        libraries=tuple(libraries),
        counts=_counts(alerts, asks, len(places)),
        alerts=tuple(alerts),
        asks=tuple(asks),
        python=tuple(places),
        python_unread=tuple(unread),
        kernels=None if kernels_of is None else kernels_of(build),
    )


def _read(path: Path, name: str) -> tuple[Library, list[CallSite], list[RaisedAlert]]:
    image = Image(path, name)
    try:
        sites = member_sites(image)
        if name == "libtorch_cpu.so" and not knows_alerts(image):
            raise BuildError(
                f"{name}: knows no alert (at::Context::{ALERT}); give a build of torch since 1.8"
            )
        raised = raised_alerts(image, sites)
        library = Library(
            name=name,
            bytes=len(image.data),
            build_id=image.build_id,
            code_bytes=sum(section.size for section in image.executable),
            functions=image.function_count,
        )
    finally:
        image.close()
    return library, sites, raised


def _stem(library: str) -> str:
    return library.removesuffix(".so")


def _alerts(library: str, raised: list[RaisedAlert], signatures: dict[str, str]) -> list[AlertSite]:
    """Return the records of the sites that raise alerts, in the order of their ids."""
    seen: Counter[str] = Counter()
    found = []
    for one in sorted(raised, key=lambda one: one.site.address):
        site = one.site
        signature = None if site.function is None else signatures[site.function.symbol]
        name = None if signature is None else short(signature)
        key = ":".join((_stem(library), site.member, name or "?", one.alert or "?"))
        seen[key] += 1
        found.append(
            AlertSite(
                id=key if seen[key] == 1 else f"{key}#{seen[key]}",
                library=library,
                api=site.member,
                alert=one.alert,
                unresolved=one.unresolved,
                path=one.path,
                via=site.via,
                function=name,
                signature=signature,
                symbol=None if site.function is None else site.function.symbol,
                address=site.address,
            )
        )
    return sorted(found, key=lambda one: one.id)


def _asks(library: str, sites: list[CallSite], signatures: dict[str, str]) -> list[FlagCheck]:
    """Return the records of what checks a flag, in the order of their ids."""
    calls: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for site in sites:
        if site.member not in {ALERT, CUBLAS}:
            symbol = site.function.symbol if site.function is not None else "?"
            calls[site.member, short(signatures.get(symbol, symbol))][symbol] += 1
    return [
        FlagCheck(
            id=":".join((_stem(library), flag, name)),
            library=library,
            flag=flag,
            function=name,
            calls=found.total(),
            places=tuple(
                FlagSite(signature=signatures.get(symbol, symbol), symbol=symbol, calls=count)
                for symbol, count in sorted(found.items())
            ),
        )
        for (flag, name), found in sorted(calls.items())
    ]


def _counts(alerts: list[AlertSite], asks: list[FlagCheck], places: int) -> Counts:
    return Counts(
        alert_sites=len(alerts),
        alert_strings=len({one.alert for one in alerts if one.alert is not None}),
        unresolved=sum(one.alert is None for one in alerts),
        asking_functions=len({(one.library, place.symbol) for one in asks for place in one.places}),
        ask_calls=sum(one.calls for one in asks),
        python_places=places,
    )
