"""What the files of a build say of the rows of a run: *expected*, beside what the run measured and never in its place."""

from __future__ import annotations

from msgspec import Struct

from reports.builds.links import Link
from reports.builds.traced import PASSING
from scanner.claims.matching import device_kind
from scanner.observations.records import Row
from scanner.verdicts.findings import MatrixRow

NOT_MEASURED = "not measured"
DEVICES = {"cpu": "the CPU", "cuda": "CUDA"}
# One sentence each, printed with a report that has these columns.
EXPECTED_MEANING = {
    "documented": "In which of the release's documented lists the op stands, for the device that the files speak of.",
    "binary": "Expected: the alerts and the checks of the flag in a build's files to which the row's op leads, by "
    "its traced overloads or its words.",
    "engines": "Expected, not measured: the engines of the cuDNN that the build's wheels bring that are noted nondeterministic for "
    "recorded layers like the case, and for how many of these PyTorch tries one first (detmatrix cudnn). Like it: the same "
    "operation, dims, dtype and layout, grouped, depthwise, strided, dilated or with a kernel of 1 where the case is; sizes and "
    "channels differ. The forward phase of a transposed convolution is a data gradient for cuDNN, and the reverse. Accepted is not "
    "runnable.",
    "trace": "Expected: what the row's case reaches with the flag on, with fake tensors. No kernel ran.",
    "about": "The files are of another device or build than the run: what they say was not measured there.",
}
DISAGREEMENTS = (
    "Rows whose measurement contradicts what the files of their build predict: an alert of another caller or none where "
    "one was expected, or one where the trace ends without. One of the two is not understood."
)
Key = tuple[str, str, str, str]


class ExpectedText(Struct, frozen=True):
    """What the files of one build say of one row, in words."""

    documented: str
    binary: str
    trace: str
    engines: str  # of the cuDNN that the build brings; empty: none is called, or none is recorded
    nondeterministic_engines: tuple[str, ...]  # those of them that are noted so
    way: str | None  # what the traced case comes to; None: there is none
    alerts: tuple[Link, ...]
    flags: tuple[Link, ...]

    @property
    def binary_words(self) -> str:
        """What the files of the build and of its cuDNN say."""
        return f"{self.binary}; {self.engines}" if self.engines else self.binary

    @property
    def raises(self) -> bool:
        """Whether an alert is expected: the trace met one, or reaches, by an overload, a function that always alerts."""
        sure = any(link.overload is not None and link.place.path == "always" for link in self.alerts)
        return self.way == "met" or (self.way == "alerts" and sure)


class ExpectedRows(Struct, frozen=True, kw_only=True):
    """What the files of one build say of the rows of one run."""

    device: str  # the kind that they speak of
    torch: str
    census: str | None  # the file's name
    trace: str | None
    run_torch: str
    run_device: str
    outdated: tuple[str, ...]  # a sentence for each file that an older rule set made
    rows: dict[Key, ExpectedText]

    @property
    def same_device(self) -> bool:
        """Whether the files speak of the kind of device that was measured."""
        return self.device == device_kind(self.run_device)

    @property
    def title(self) -> str:
        """The kind of device in words."""
        return device_words(self.device)

    @property
    def about(self) -> str:
        """What the files are about where that is not what the run measured; else nothing."""
        if not self.same_device:
            return f"about {self.title}"
        return "" if self.torch == self.run_torch else f"about {self.torch}"

    @property
    def note(self) -> str:
        """What the columns rest on, and what of it the run measured."""
        text = (
            "Expected, not measured: binary is read from the files of a build, trace was made with fake tensors, and "
            "no kernel ran for either."
        )
        if not self.same_device:
            text += (
                f" They speak of {self.title}; this run is on {self.run_device}, and nothing in them is about what it "
                f"measured."
            )
        if self.torch != self.run_torch:
            text += f" Their build is {self.torch}, that of the run {self.run_torch}: other files, made from the same sources."
        return " ".join([text, *(f"{one}." for one in self.outdated)])

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


def disagreement(row: MatrixRow, said: ExpectedText) -> str | None:
    """Say where a row measured something else than the files of its build let expect; ``None`` if it did not, or who knows.

    None is expected of a case whose trace ends without an alert that is known.
    """
    callers = sorted({link.place.alert for link in said.alerts if link.place.alert is not None})
    if row.on.verdict == "raises" and row.on.alert is not None:
        if said.way == "met" or row.on.alert in callers or not (callers or said.way in PASSING):
            return None
        return f"raised {row.on.alert}; expected {', '.join(callers) or f'no alert ({said.trace})'}"
    if row.on.verdict in ("deterministic", "nondeterministic") and said.raises:
        return f"ran to its end; expected {', '.join(callers) or 'an alert'} ({said.trace})"
    return None


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
