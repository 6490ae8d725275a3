"""Which overloads of ATen (and of other namespaces) an execution reaches, as PyTorch's dispatcher names them.

A dispatch mode sees an op after autograd and after the decomposition of composite ops, which is where a kernel is
chosen; the backward pass runs under it too. What a kernel calls in its turn it does not see. It may change the path of
an op a little, so what is recorded here is never an execution that is compared.

Of a build it is told which overloads and which alerts it has. An alert that no row meets belongs to a case that the catalog
lacks, or to code that nothing reaches. The calls of ``at::Context::alertNotDeterministic`` are found in the bytes of the libraries:
a call's target is an entry of the table of imported functions, and the caller's name is the last text whose address the code loads
before it.
"""

from __future__ import annotations

import mmap
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from struct import calcsize, iter_unpack, unpack_from
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from detmatrix.opspecs.model import OpSpec
from detmatrix.scanner.accelerators import ACCELERATORS, kind_of
from detmatrix.scanner.alerts import caller_in
from detmatrix.scanner.elf import MAGIC, Section, sections
from detmatrix.scanner.worker.execution import Execution, InvalidCaseError, attempt, first_line

# What stands before the key of a device in the dispatch keys of other layouts.
_LAYOUTS = ("Sparse", "SparseCsr", "Quantized", "Mkldnn", "NestedTensor")
# With an explicit composite kernel an overload is called as it is; with an implicit one, what it is made of.
_EXPLICIT = ("CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")
_IMPLICIT = "CompositeImplicitAutograd"
_ALERT = b"_ZN2at7Context21alertNotDeterministic"
_X86_64 = MAGIC + b"\x01"
# A call is 0xE8, a jump 0xE9; lea of an address relative to the instruction behind it.
_CALL, _LOADS = 0xE9, re.compile(rb"[\x48\x4c]\x8d[\x05\x0d\x15\x1d\x25\x2d\x35\x3d](?=(.{4}))", re.DOTALL)
_CALLER = re.compile(rb"[\w :.,()\[\]=<>'-]{3,100}")
# Bytes before a call in which the name is loaded, and bytes that are searched at once.
_BEFORE, _AT_ONCE = 160, 1 << 24


def kernel_of(name: str, dense: str, layouts: Sequence[str] = ()) -> str:
    """Say where the kernel of an overload (``"aten::add.Tensor"``) comes from, as ``records.Kernel``.

    *dense* is the dispatch key of the device's dense tensors (``"CPU"``); without *layouts* kernels of other ones do not count.
    """

    def has(key: str) -> bool:
        return bool(torch._C._dispatch_has_kernel_for_dispatch_key(name, key))  # noqa: SLF001 - has no public name

    if has(dense):
        return "device"
    if any(map(has, _EXPLICIT)):
        return "composite"
    if any(map(has, layouts)):
        return "layout"
    return "decomposed" if has(_IMPLICIT) else "none"


class Overloads(TorchDispatchMode):  # type: ignore[misc] # torch is not there when types are checked
    """While active, counts the overloads that are called, in the order of their first call.

    Names are those of the schema: ``"aten::index_put"``, ``"aten::add.Tensor"``. The alerts that overloads raise are
    noted with the overload; where the flag only warns, each is tried with the alert raised, and called again.
    """

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.alerts: dict[tuple[str, str], None] = {}  # (caller, overload), in order

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        self.counts[func.name()] += 1
        warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
        try:
            if warn_only:
                # A warning does not say which overload it comes from: older releases hold it back until later.
                torch.use_deterministic_algorithms(True)
            return func(*args, **kwargs)
        except RuntimeError as error:
            caller = caller_in(str(error))
            if caller is None:
                raise
            self.alerts[caller, func.name()] = None
            if not warn_only:
                raise
            torch.use_deterministic_algorithms(True, warn_only=True)
            return func(*args, **kwargs)
        finally:
            if warn_only:
                torch.use_deterministic_algorithms(True, warn_only=True)


def record(spec: OpSpec, case: str, **drawn: Any) -> dict[str, Any]:
    """Execute a case once in each mode, in ``warn_only`` if it raises the alert, and return fields of ``records.Dispatch``."""
    return attempt(
        lambda execution: {"outcome": "ran", "modes": dict(_modes(execution))}, spec, case, **drawn
    )


def _modes(execution: Execution) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what was reached in each mode."""
    if execution.backward:
        # The first call draws the upstream gradients, which are no part of the case.
        _reached(execution)
    yield "off", _reached(execution)
    torch.use_deterministic_algorithms(True)
    reached = _reached(execution)
    yield "on", reached
    if reached["alerts"]:
        torch.use_deterministic_algorithms(True, warn_only=True)
        yield "warn_only", _reached(execution)


def _reached(execution: Execution) -> dict[str, Any]:
    """Execute once; return fields of ``records.Reached``."""
    execution.reseed()
    arguments = execution.arguments()
    overloads = Overloads()
    message = None
    callers: list[str | None] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with overloads:
                execution(arguments)
        except InvalidCaseError:
            raise
        except BaseException as error:  # noqa: BLE001 - an op may raise anything, sys.exit included; all of it is data
            caller = caller_in(str(error))
            callers.append(caller)
            message = first_line(error) if caller is None else None
    callers += [caller_in(str(warning.message)) for warning in caught]
    known = {caller for caller, _ in overloads.alerts}
    # An alert of a composite op is raised above all that the recorder sees.
    above = [(caller, None) for caller in dict.fromkeys(callers) if caller and caller not in known]
    return {"overloads": list(overloads.counts), "alerts": [*overloads.alerts, *above], "message": message}


def kernels(device: str) -> list[dict[str, Any]]:
    """Return every overload of this build, grouped by kernel and by what it writes, as fields of ``records.BuildOverloads``."""
    schemas = {
        schema.name + (f".{schema.overload_name}" if schema.overload_name else ""): schema
        for schema in torch._C._jit_get_all_schemas()  # noqa: SLF001 - has no public name
    }
    dense = "CPU" if device == "cpu" else ACCELERATORS[kind_of(device)].key
    layouts = tuple(key for layout in _LAYOUTS if _is_key(key := f"{layout}{dense}"))
    groups: dict[tuple[str, str], list[str]] = {}
    for name in sorted(torch._C._dispatch_get_all_op_names()):  # noqa: SLF001 - has no public name
        group = (kernel_of(name, dense, layouts), _writes(schemas.get(name)))
        groups.setdefault(group, []).append(name)
    return [
        {"kernel": kernel, "writes": writes, "names": names}
        for (kernel, writes), names in sorted(groups.items())
    ]


def _is_key(name: str) -> bool:
    """Tell whether this torch has a dispatch key of a name: not every device has every layout."""
    try:
        torch._C._dispatch_has_kernel_for_dispatch_key("aten::add.Tensor", name)  # noqa: SLF001 - has no public name
    except RuntimeError:
        return False
    return True


def _writes(schema: Any) -> str:
    """Say what an overload writes into, as ``records.Writes``."""
    if schema is None or not schema.is_mutable:
        return "new"
    return "out" if any(argument.is_out for argument in schema.arguments) else "in_place"


def compiled_alerts(device: str) -> list[str]:
    """Return the callers that alerts of this build may name, sorted; none where its libraries are not of Linux on x86-64."""
    kinds = ["cpu", *([] if device == "cpu" else [ACCELERATORS[kind_of(device)].key.lower()])]
    libraries = [Path(torch.__file__).parent / "lib" / f"libtorch_{kind}.so" for kind in kinds]
    return sorted({name for library in libraries if library.exists() for name in _callers(library)})


def _callers(library: Path) -> Iterator[str]:
    """Yield the names that a library hands to alerts."""
    with library.open("rb") as file:
        # Private and writable, as torch wants its buffers; nothing is written.
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    if data[:6] != _X86_64 or unpack_from("<H", data, 18) != (62,):
        return
    named = {one.name: one for one in sections(data)}
    if not {".text", ".rodata", ".plt", ".rela.plt", ".dynsym", ".dynstr"} <= named.keys():
        return
    code, constants = named[".text"], named[".rodata"]
    for call in _calls(data, code, _targets(data, named)):
        for load in reversed([*_LOADS.finditer(data[call - _BEFORE : call])]):
            behind = call - _BEFORE + load.end() + 4
            address = code.address - code.offset + behind + unpack_from("<i", load[1])[0]
            start = address - constants.address + constants.offset
            if constants.address <= address < constants.address + constants.size and (
                name := _CALLER.fullmatch(data[start : data.find(b"\0", start)])
            ):
                yield name[0].decode()
                break


def _targets(data: mmap.mmap, named: dict[str, Section]) -> list[int]:
    """Return where calls of the alert go: its entry in the table of imported functions, and itself where it is defined."""

    def table(name: str, form: str) -> list[tuple[int, ...]]:
        one = named[name]
        return list(iter_unpack(form, data[one.offset : one.offset + one.size - one.size % calcsize(form)]))

    strings = named[".dynstr"]
    name = data.find(_ALERT, strings.offset, strings.offset + strings.size) - strings.offset
    symbols = table(".dynsym", "<IBBHQQ")
    wanted = {k: symbol[4] for k, symbol in enumerate(symbols) if symbol[0] == name}
    entries = enumerate(table(".rela.plt", "<QQq"), 1)
    imported = [named[".plt"].address + 16 * k for k, (_, info, _) in entries if info >> 32 in wanted]
    return imported + [address for address in wanted.values() if address]


def _calls(data: mmap.mmap, code: Section, targets: list[int]) -> Iterator[int]:
    """Yield offsets of the calls that go to targets."""
    at, end = code.offset, code.offset + code.size
    for begin in range(at, end, _AT_ONCE):
        count = min(_AT_ONCE + 4, end - begin)
        part = torch.frombuffer(data, dtype=torch.uint8, count=count, offset=begin)
        places = ((part[:-4] | 1) == _CALL).nonzero()[:, 0]
        bytes_of = [part[places + k].to(torch.int64) << 8 * (k - 1) for k in range(1, 5)]
        distance = sum(bytes_of).to(torch.int32)  # with its sign
        goes_to = places + distance + (code.address - at + begin + 5)
        for place in places[torch.isin(goes_to, torch.tensor(targets))].tolist():
            yield begin + place
