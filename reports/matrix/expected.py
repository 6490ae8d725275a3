"""What the files of a build say of the rows of a run: *expected*, beside what the run measured and never in its place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from reports.builds.links import Link
from scanner.observations.records import Row
from scanner.verdicts.findings import MatrixRow

NOT_MEASURED = "not measured"
DEVICES = {"cpu": "the CPU", "cuda": "CUDA"}
# One sentence each, printed with a report that has these columns.
EXPECTED_MEANING = {
    "documented": "In which of the release's documented lists the op stands, for the device that the files speak of.",
    "binary": "Expected: the alerts and the checks of the flag in a build's files to which the row's op leads, by "
    "its traced overloads or its words.",
    "trace": "Expected: what the row's case reaches with the flag on, with fake tensors. No kernel ran.",
    "about": "The files are of another device or build than the run: what they say was not measured there.",
}
CSV_FIELDS = ("documented", "binary", "trace")

Key = tuple[str, str, str, str]


class ExpectedText(Struct, frozen=True):
    """What the files of one build say of one row, in words."""

    documented: str
    binary: str
    trace: str
    way: str | None  # what the traced case comes to; None: there is none
    alerts: tuple[Link, ...]
    flags: tuple[Link, ...]


class ExpectedRows(Struct, frozen=True, kw_only=True):
    """What the files of one build say of the rows of one run."""

    device: str  # the kind that they speak of
    torch: str
    census: str | None  # the file's name
    trace: str | None
    same_device: bool  # as the run's
    same_build: bool  # torch's version with its build is that of the run
    rows: dict[Key, ExpectedText]

    @property
    def about(self) -> str:
        """What the files are about where that is not what the run measured; else nothing."""
        if not self.same_device:
            return f"about {device_words(self.device)}"
        return "" if self.same_build else f"about {self.torch}"

    @property
    def files(self) -> list[str]:
        """The files' names."""
        return [name for name in (self.census, self.trace) if name is not None]

    def of(self, row: Row) -> ExpectedText:
        """Return what is said of a row."""
        return self.rows[row.key]

    def measured(self, finding: str) -> str:
        """Return a row's finding if it was measured on the device that the files speak of."""
        return finding if self.same_device else NOT_MEASURED


def device_words(device: str) -> str:
    """Name a kind of device."""
    return DEVICES.get(device, device)


def about_words(one: ExpectedRows, torch: str, device: str) -> str:
    """Say what the columns rest on, and what of it was measured by a run of *torch* on *device*."""
    text = (
        "Expected, not measured: binary is read from the files of a build, trace was made with fake tensors, and "
        "no kernel ran for either."
    )
    if not one.same_device:
        text += (
            f" They speak of {device_words(one.device)}; this run is on {device}, and nothing in them is about what "
            f"it measured."
        )
    if not one.same_build:
        text += (
            f" Their build is {one.torch}, that of the run {torch}: other files, made from the same sources."
        )
    return text


def csv_fields(row: MatrixRow, expected: Sequence[ExpectedRows], devices: Iterable[str]) -> dict[str, object]:
    """Return the columns of the flat table: for each kind of device what the files about it say, if there are any."""
    fields: dict[str, object] = {}
    for device in devices:
        found = [one.of(row.row) for one in expected if one.device == device]
        for name in CSV_FIELDS:
            text = dict.fromkeys(str(getattr(said, name)) for said in found)
            fields[f"expected_{device}_{name}"] = " | ".join(text) or None
    return fields


def csv_names(devices: Iterable[str]) -> Iterator[str]:
    """Yield the names of those columns."""
    yield from (f"expected_{device}_{name}" for device in devices for name in CSV_FIELDS)


def link_fields(link: Link) -> dict[str, object]:
    """Return a link for machines."""
    return {
        "by": link.way,
        "overload": link.overload,
        "function": link.place.function,
        "library": link.place.library,
        "alert": link.place.alert,
        "raised": link.place.path if link.place.kind == "alert" else None,
    }


def json_fields(row: MatrixRow, expected: Sequence[ExpectedRows]) -> list[dict[str, object]]:
    """Return what each build says of a row, for machines."""
    return [
        {
            "device": one.device,
            "torch": one.torch,
            "about": one.about or None,
            "documented": said.documented,
            "binary": said.binary,
            "trace": said.trace,
            "way": said.way,
            "measured": one.measured(row.finding),
            "alerts": [link_fields(link) for link in said.alerts],
            "flags": [link_fields(link) for link in said.flags],
        }
        for one in expected
        for said in [one.of(row.row)]
    ]
