"""The mode that sees every op of a program, below autograd."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from scanner.locate.overloads import KnownOverload, known, tensors, words
from scanner.locate.places import Places, SiteKey, call_site
from scanner.locate.replay import Call, differing, measure, readable, settled, too_large, with_flag
from scanner.located import Root

# Names of ops that are kept for each reason why calls were not executed again.
_MOST_NAMES = 8
_LARGE = "larger than --max-bytes"
_UNREADABLE = "has no memory that can be read"
_IGNORED = "ignored on request"


class LocateMode(TorchDispatchMode):
    """Executes each op again on the same inputs, and keeps the call sites of those that give other bits."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Otherwise the first op would import the compiler.
        return False

    def __init__(self, *, replays: int, max_bytes: int, ignored: frozenset[str] = frozenset()) -> None:
        super().__init__()
        self.replays, self._max_bytes, self._ignored = replays, max_bytes, ignored
        self.places = Places()
        self.paused = False
        self.ops = self.replayed = 0
        self.calls: defaultdict[SiteKey, int] = defaultdict(int)
        self.roots: dict[SiteKey, Root] = {}
        self.left_out: defaultdict[str, int] = defaultdict(int)
        self.left_out_ops: defaultdict[str, dict[str, None]] = defaultdict(dict)
        self.devices: dict[str, None] = {}
        self.began = time.perf_counter()
        # Flags on a device that nobody has waited for: (flag, site).
        self._pending: list[tuple[torch.Tensor, SiteKey, tuple[str, ...], int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """See one op."""
        kwargs = kwargs or {}
        if self.paused:
            return func(*args, **kwargs)
        if types and any(_foreign(one) for one in types):
            # Its own ops on the tensors it holds come here in their turn.
            return NotImplemented
        op = known(func)
        if op.view:
            return func(*args, **kwargs)
        self.ops += 1
        key = self.places.of(op.name)
        self.calls[key] += 1
        if op.empty:
            return func(*args, **kwargs)
        reason = self._refusal(op, args, kwargs)
        if reason is not None:
            self._leave_out(reason, op.name)
            return func(*args, **kwargs)
        return self._replay(op, func, args, kwargs, key)

    def _refusal(self, op: KnownOverload, args: Any, kwargs: Any) -> str | None:
        """Return why an op is not executed again; ``None`` if it is."""
        if op.refused is not None:
            return op.refused
        if op.name in self._ignored:
            return _IGNORED
        changed = op.changed(args, kwargs)
        if changed:
            if not readable(changed):
                return _UNREADABLE
            if too_large(changed, self._max_bytes // 2):
                return _LARGE
        return None

    def _leave_out(self, reason: str, name: str) -> None:
        self.left_out[reason] += 1
        names = self.left_out_ops[reason]
        if len(names) < _MOST_NAMES:
            names[name] = None

    def _replay(self, op: KnownOverload, func: Any, args: Any, kwargs: Any, key: SiteKey) -> Any:
        call = Call(op, func, args, kwargs)
        result = call.first()
        kept = call.kept
        if not kept or too_large(kept, self._max_bytes):
            if kept:
                self._leave_out(_LARGE, op.name)
            return result
        self.replayed += 1
        count, places = 0, set()
        for _ in range(self.replays):
            again = call.again()
            answer = differing(kept, again)
            if answer is None:
                continue
            found = settled(answer, kept, again)
            if found:
                count += 1
                places.update(found)
                measure(self._root(key, args, kwargs).distance, kept, again, found)
        if count:
            self._found(key, call, count, places)
        return result

    def _root(self, key: SiteKey, args: Any, kwargs: Any) -> Root:
        root = self.roots.get(key)
        if root is None:
            root = self.roots[key] = Root(
                site=call_site(key), cause="replay", tensors=words(args, kwargs), first=self.ops
            )
        return root

    def _found(self, key: SiteKey, call: Call, count: int, places: set[int]) -> None:
        root = self.roots[key]
        root.differing_calls += 1
        root.executions += self.replays
        root.differing += count
        root.outputs = tuple(sorted({*root.outputs, *places}))
        if root.flag is None:
            root.flag, root.alert = with_flag(call, self.replays)
        call.restore()

    def found(self) -> tuple[Root, ...]:
        """Return the roots, with how often their sites were called."""
        for key, root in self.roots.items():
            root.calls = self.calls[key]
        return tuple(self.roots.values())


def _foreign(kind: type) -> bool:
    """Tell whether a class of tensors dispatches by itself."""
    dispatch = getattr(kind, "__torch_dispatch__", None)
    return (
        dispatch is not torch.Tensor.__torch_dispatch__
        and dispatch is not torch._C._disabled_torch_dispatch_impl
    )  # noqa: SLF001
