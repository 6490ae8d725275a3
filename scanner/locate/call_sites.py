"""Where in a program an op was called: the user's line, the module, and the forward call that a backward op belongs to."""

from __future__ import annotations

import linecache
import os
import site
import sys
import sysconfig
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from weakref import WeakKeyDictionary

import torch

from detmatrix.scanner.located import CodeLine, OpSite, Phase

# Before 2.1 nothing tells that an op is called by the backward phase; it then stands at the line that calls backward.
_current_node: Callable[[], Any] = getattr(torch._C, "_current_autograd_node", lambda: None)  # noqa: SLF001
_sequence: Callable[[], int] = getattr(torch.autograd, "_get_sequence_nr", lambda: 0)
# Forward calls of which the place is kept for their backward; beyond it the oldest are forgotten.
_MOST_FORWARD = 400_000
TORCH = str(Path(torch.__file__).parent) + "/"
OURS = str(Path(__file__).parent) + "/"
# Paths of Python itself and of what is installed: none of it is the user's own file.
_INSTALLED = tuple(
    {
        str(Path(path)) + "/"
        for path in (
            *(sysconfig.get_paths().get(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
            *site.getsitepackages(),
            site.getusersitepackages(),
            # Folders of other environments, which .pth files or PYTHONPATH add.
            *(
                path
                for path in sys.path
                if isinstance(path, str) and path.endswith(("/site-packages", "/dist-packages"))
            ),
        )
        if path
    }
)
# Triton's frames stand between a kernel and who launches it.
_BETWEEN = (OURS, "<frozen", *(f"{path}triton/" for path in _INSTALLED))
# A module that is younger, and lies among temporary files, was written by a library: torch_geometric makes such.
_BEGAN = time.time()
_TEMPORARY = os.path.realpath(tempfile.gettempdir()) + os.sep
# Holds the module in what torch.compile makes of one.
_ORIGINAL = "_orig_mod"
_USER, _LIBRARY, _INNER, _ENGINE, _CHECKPOINT = range(5)


@cache
def _kind(code: CodeType) -> int:
    """Tell whose a piece of code is; the answer is kept."""
    name = code.co_filename
    if name.startswith(TORCH):
        inner = name[len(TORCH) :]
        if inner.startswith("autograd/") and code.co_name in {"_engine_run_backward", "backward", "grad"}:
            return _ENGINE
        return _CHECKPOINT if inner == "utils/checkpoint.py" else _INNER
    if name.startswith(_BETWEEN):
        return _INNER
    return _LIBRARY if name.startswith(_INSTALLED) or _generated(name) else _USER


def _generated(name: str) -> bool:
    """Tell whether a file holds code that was written while the program ran."""
    if name.startswith("<eval_with_key>") or "/torchinductor_" in name:  # by torch.fx, or the compiler
        return True
    try:
        return os.path.realpath(name).startswith(_TEMPORARY) and os.stat(name).st_mtime >= _BEGAN  # noqa: PTH116
    except OSError:
        return False


# What is said of one call: the user's line and the library's, each as (code, line); and whether it is recomputed.
_Line = tuple[CodeType, int]
_Frames = tuple["_Line | None", "_Line | None", bool]


def _frames(*, backward: bool) -> _Frames:
    """Walk from the op outwards to the user's code; in backward no further than the engine, or to checkpointing."""
    frame: FrameType | None = sys._getframe(4)  # noqa: SLF001 - walks without making a list of frames
    line = library = None
    while frame is not None:
        code = frame.f_code
        kind = _kind(code)
        if kind == _USER:
            if line is None:
                line = code, frame.f_lineno
            if not backward:
                break
        elif kind == _LIBRARY:
            if line is None and library is None:
                library = code, frame.f_lineno
        elif backward and kind >= _ENGINE:
            return line, library, kind == _CHECKPOINT
        frame = frame.f_back
    return line, library, False


# What identifies a call site while the program runs; made into a OpSite when it is told.
SiteKey = tuple[Any, ...]


class CallPlaces:
    """Follows the modules that are being called, and the forward calls that nodes of autograd belong to."""

    def __init__(self) -> None:
        self._stack: list[tuple[torch.nn.Module, str]] = []
        self._names: WeakKeyDictionary[torch.nn.Module, dict[int, str]] = WeakKeyDictionary()
        self._forward: dict[int, tuple[Any, ...]] = {}
        self._hooks: list[Any] = []

    def start(self) -> None:
        """Begin to follow modules."""
        modules = torch.nn.modules.module
        self._hooks = [modules.register_module_forward_pre_hook(self._enter)]
        try:
            self._hooks.append(modules.register_module_forward_hook(self._leave, always_call=True))
        except TypeError:  # before 2.1
            self._hooks.append(modules.register_module_forward_hook(self._leave))

    def stop(self) -> None:
        """Follow modules no longer."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    @contextmanager
    def unfollowed(self, key: SiteKey) -> Iterator[None]:
        """Follow no modules within the block, which the compiler would trace; what it makes a node for belongs to this call site."""
        _, _, *place, _ = key
        first = _sequence()
        self.stop()
        try:
            yield
        finally:
            self.start()
            for number in range(first, _sequence()):
                self._remember(number, *place)

    def _enter(self, module: torch.nn.Module, _: Any) -> None:
        if self._stack:
            root = self._stack[0][0]
            name = self._names[root].get(id(module))
            if name is None:
                # Not among the modules of the outermost one when it was first called: added since, or held elsewhere.
                name = f"{self._stack[-1][1]}.{type(original(module)).__name__}"
        else:
            name = type(original(module)).__name__
            if module not in self._names:
                names = self._names[module] = {}
                for path, one in module.named_modules():
                    parts = [part for part in path.split(".") if part not in {"", _ORIGINAL}]
                    names[id(one)] = ".".join([name, *parts])
        self._stack.append((module, name))

    def _leave(self, module: torch.nn.Module, _: Any, __: Any) -> None:
        # Modules that an exception ended may still stand above it.
        while self._stack and self._stack.pop()[0] is not module:
            pass

    def of(self, op: str) -> SiteKey:
        """Return the call site of the op that is being dispatched; called by what the dispatcher calls."""
        node = _current_node()
        line, library, recomputed = _frames(backward=node is not None)
        if node is None or recomputed:
            module = self._stack[-1][1] if self._stack else None
            # Later ops that make no node find its number taken.
            self._remember(_sequence() - 1, line, library, module)
            return op, "recomputed" if recomputed else "forward", line, library, module, None
        name = node.name()
        known = self._forward.get(node._sequence_nr())  # noqa: SLF001 - has no public name
        if known is None:
            return op, "backward", line, library, None, name
        # A backward function or a hook of the user's own has a line of its own.
        return (op, "backward", line, library, known[2], name) if line else (op, "backward", *known, name)

    def _remember(self, number: int, line: Any, library: Any, module: str | None) -> None:
        """Keep the place of the op that has made this node."""
        self._forward.setdefault(number, (line, library, module))
        if len(self._forward) > _MOST_FORWARD:
            for oldest in list(self._forward)[: _MOST_FORWARD // 2]:
                del self._forward[oldest]


def original(module: torch.nn.Module) -> torch.nn.Module:
    """Return the module within what torch.compile makes of one, or of such."""
    while _ORIGINAL in (within := vars(module).get("_modules", ())):
        module = within[_ORIGINAL]
    return module


def call_site(key: SiteKey) -> OpSite:
    """Return a call site in words."""
    op, phase, line, library, module, node = key
    named: Phase = phase
    return OpSite(op, named, _code_line(line), _code_line(library), module, node)


def _code_line(line: _Line | None) -> CodeLine | None:
    return line and CodeLine(line[0].co_filename, line[1], line[0].co_name, _source(line[0].co_filename))


@cache
def _source(name: str) -> str | None:
    """Return a digest of the text of a file, which may lie elsewhere in another run."""
    lines = linecache.getlines(name)
    return f"{zlib.crc32(''.join(lines).encode(errors='replace')):08x}" if lines else None
