"""What a build of torch tells of an overload: whether the device has a kernel for it, and what its functions are called.

The names of the functions come from ``native_functions.yaml``, from which PyTorch is generated and which its wheels
hold. They are where a call begins in C++; what these functions call in turn is not told there.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

_FUNC = re.compile(r"- func: (?P<name>[\w.]+)\(")
_FIELD = re.compile(r"  (?P<name>\w+):\s*(?P<value>[^#]*)")
_DISPATCH = re.compile(r"    (?P<keys>\w+(?:, *\w+)*): *(?P<function>[\w:]+)")
# With an explicit composite kernel an overload is called as it is; with an implicit one, what it is made of.
_EXPLICIT = ("CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")
_IMPLICIT = "CompositeImplicitAutograd"
_COMPOSITE = (*_EXPLICIT, _IMPLICIT)
_GENERATED = "ufunc_inner_loop"


def kernel_of(name: str, dense: str, layouts: Sequence[str] = ()) -> str:
    """Say where the kernel of an overload comes from, as ``overload_records.Kernel``.

    Args:
        name: As the dispatcher spells it: ``"aten::add.Tensor"``.
        dense: The dispatch key of the device's dense tensors: ``"CPU"``.
        layouts: The keys of its other layouts; without them their kernels do not count.
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


def kernels(names: Iterable[str], device: str) -> list[dict[str, Any]]:
    """Return the fields of ``trace.records.Overload`` for overloads, ``"aten::index_put"``, ``"aten::add.Tensor"``.

    Args:
        names: As the dispatcher spells them.
        device: ``"cpu"`` or ``"cuda:N"``.
    """
    declared = _declared()
    backend = device.partition(":")[0].upper()
    return [
        {"name": name, "kernel": _kernel(name, backend), "functions": _functions(name, backend, declared)}
        for name in names
    ]


def _kernel(name: str, backend: str) -> str:
    """Say where a call of an overload ends, as ``trace.records.Kernel``."""
    kernel = kernel_of(name, backend)
    if kernel == "device":
        return "own"
    if backend == "CUDA" and torch.version.cuda is None and torch.version.hip is None:
        return "unknown"
    return "none" if kernel == "none" else "composite"


def _functions(name: str, backend: str, declared: Mapping[str, dict[str, Any]]) -> list[str]:
    """Return the C++ functions behind an overload for dense tensors; for other layouts, of an op that only they have."""
    entry = declared.get(name.removeprefix("aten::"))
    if entry is None:
        return []
    delegate = declared.get(entry.get("structured_delegate", ""))
    structured = delegate is not None or entry.get("structured") == "True"
    dispatch: dict[str, str] = (delegate or entry)["dispatch"]
    found = {key: function for key, function in dispatch.items() if key == backend}
    if not found:
        found = {key: function for key, function in dispatch.items() if key in _COMPOSITE}
    # The dense function of an op with an inner loop is generated from it, and is not declared.
    if not found and _GENERATED not in (delegate or entry):
        # Keys of other layouts are "SparseCUDA", "SparseCsrCUDA" and the like.
        found = {key: function for key, function in dispatch.items() if key.endswith(backend)}
    if not found and not dispatch:
        # Without a dispatch table the op is composite, and its function is called as the op is.
        found = {"": re.sub(r"\.(\w*_)?out$", "_out", name.removeprefix("aten::")).partition(".")[0]}
    named = [
        function
        if "::" in function
        else f"at::native::{'structured_' * (structured and key == backend)}{function}"
        for key, function in found.items()
    ]
    return list(dict.fromkeys(named))


def _declared() -> dict[str, dict[str, Any]]:
    """Return the declarations of all ops by name; none where this torch does not bring them."""
    torchgen = importlib.util.find_spec("torchgen")
    if torchgen is None or torchgen.origin is None:
        return {}
    path = Path(torchgen.origin).parent / "packaged" / "ATen" / "native" / "native_functions.yaml"
    return parsed(path.read_text(encoding="utf-8")) if path.exists() else {}


def parsed(text: str) -> dict[str, dict[str, Any]]:
    """Read the parts of the declarations that are needed here; torch has no library for the rest of YAML."""
    entries: dict[str, dict[str, Any]] = {}
    entry: dict[str, Any] = {"dispatch": {}}
    in_dispatch = False
    for line in text.splitlines():
        if func := _FUNC.match(line):
            entry = entries[func["name"]] = {"dispatch": {}}
            in_dispatch = False
        elif in_dispatch and (message := _DISPATCH.match(line)):
            entry["dispatch"].update(dict.fromkeys(re.split(r", *", message["keys"]), message["function"]))
        elif field := _FIELD.match(line):
            in_dispatch = field["name"] == "dispatch"
            if not in_dispatch:
                entry[field["name"]] = field["value"].strip()
    return entries
