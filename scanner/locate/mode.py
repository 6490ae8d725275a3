"""The mode that sees every op of a program, below autograd."""

from __future__ import annotations

import functools
import platform
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import sampler

from detmatrix.scanner.locate import overloads, replay
from detmatrix.scanner.locate.call_sites import CallPlaces, SiteKey, call_site
from detmatrix.scanner.locate.memory import Downstream, OutsideWrites
from detmatrix.scanner.locate.recorder import RunRecorder
from detmatrix.scanner.locate.settings import Noted
from detmatrix.scanner.locate.simulated import LEFT_OPEN, SimulatedOp
from detmatrix.scanner.locate.unwritten import UnwrittenMemory
from detmatrix.scanner.locate.uses import RegionUse
from detmatrix.scanner.located import FEW_REPLAYS, REGION, Cause, Located, OpSite, Root
from detmatrix.scanner.plurals import several
from detmatrix.scanner.schedules import MEMORY, phrase
from detmatrix.scanner.worker import simulated

# Loading the compiler itself takes seconds.
_eval_frame = torch._C._dynamo.eval_frame  # noqa: SLF001 - has no public name
# Calls of each site before which memory is looked at: what is done to it between ops is done in each step.
_FIRST_CALLS = 2
# Names of ops that are kept for each reason why calls were not executed again.
_MOST_NAMES = 8
LARGE = "are larger than --max-bytes"
_UNREADABLE = "have tensors without memory that can be read"
_COMPOUND = "change tensors that are sparse, nested, quantized, conjugate or expanded"
IGNORED = "are ignored on request"
_CAPTURED = "are captured into a CUDA graph"
_LYING = "change an argument that their schema does not tell of; later calls are restored"
_DRAWING = "draw random numbers although no tag of theirs tells; later calls are restored"
_FAILED = "raised when they were executed again"
_NONE: frozenset[Any] = frozenset()
# Frames between us and who calls an op; some are ours, and some those of modes for functions.
_NEAR = 10
# Seconds between two lines of progress.
_TELL_SECONDS = 10.0


@dataclass(frozen=True)
class LocateSettings:
    """What a program is observed with."""

    replays: int | None = None  # of each op; None: as many as the sentinel asks for; 0: ops are only counted
    max_bytes: int = 1 << 30
    ignored: Sequence[str] = ()
    # Where digests are written, to be held against another run; nothing is replayed then.
    record: str | None = None
    regions: bool = False  # what torch.compile compiles is compiled, and is one op of the record
    only_first: bool = False
    steps: tuple[int, int | None] = (0, None)  # that are observed: from the first on, and before the second
    # Number of the first step in the record: a run that is resumed begins with another one.
    first_step: int = 0
    progress: bool = False
    save: str | None = None


class LocateMode(TorchDispatchMode):
    """Executes each op again on the same inputs, or writes digests down, and keeps the call sites of roots."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Otherwise the first op would import the compiler.
        return False

    def __init__(self, settings: LocateSettings) -> None:
        super().__init__()
        self.settings = settings
        self.replays = FEW_REPLAYS if settings.replays is None else settings.replays
        self.call_sites = CallPlaces()
        self.unwritten = UnwrittenMemory()
        self.downstream = Downstream()
        self.outside = OutsideWrites()
        self.recorder = RunRecorder(settings.record, self.unwritten) if settings.record else None
        self._counts = not self.replays and self.recorder is None
        self.noted = Noted()
        # Set where ops run without being looked at: outside of the window, or in another process.
        self.paused = False
        # Set while the interpreter runs a launch: what it calls is no op of the program.
        self.launching = False
        self._in_region = False
        self.ended = False
        self.seen = Located(str(torch.__version__), platform.python_version(), torch.get_num_threads())
        self.calls: defaultdict[SiteKey, int] = defaultdict(int)
        self.roots: dict[tuple[SiteKey, str], Root] = {}
        # Outputs of call sites that are left unwritten, wholly or in part.
        self._open: dict[SiteKey, frozenset[int]] = {}
        self._began = self._told = time.monotonic()
        self._cuda = torch.cuda.is_available()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """See one op."""
        if "torch._dynamo" not in sys.modules:
            return self._see(func, types, args, kwargs or {})
        # Or the compiler would compile what follows, too.
        compiler = _eval_frame.set_eval_frame(None)
        try:
            return self._see(func, types, args, kwargs or {})
        finally:
            _eval_frame.set_eval_frame(compiler)

    def _see(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if self.paused or self.ended or self.launching:
            return func(*args, **kwargs)
        if types:
            owners = set(map(overloads.owner, types))
            if overloads.FAKE in owners:
                return func(*args, **kwargs)
            if overloads.OWN in owners:
                # Its own ops on the tensors it holds come here in their turn.
                return NotImplemented
        op = overloads.known(func)
        # In inference mode nothing takes them apart ahead of us. For nested tensors some have kernels.
        if op.composite and not any(one.is_nested for one in overloads.among(args, kwargs)):
            with self:
                result = op.composite(*args, **kwargs)
        elif op.view:
            result = func(*args, **kwargs)
        elif op.empty and not self._counts:
            result = func(*args, **kwargs)
            self.unwritten.handed_out(op, result)
            if self.recorder is None:
                self.outside.written(overloads.tensors(result))
        else:
            result = self._look(op, func, args, kwargs)
        return result

    def _look(self, op: overloads.KnownOverload, func: Any, args: Any, kwargs: Any) -> Any:
        """Look at an op that computes something."""
        if self._counts:
            # Nothing is waited for, copied or captured.
            if not op.empty:
                self.count(self.call_sites.of(op.name))
            own = overloads.generator_of(args, kwargs)
            if own is not None and not _samples():
                self.noted.seeds.add(own.initial_seed())
            return func(*args, **kwargs)
        key = self.call_sites.of(op.name)
        self.count(key)
        call = replay.RepeatedCall(op, func, args, kwargs)
        # Asked ahead of the call: what an op itself makes different in its arguments has not reached it.
        reached = (
            self.downstream.reach(call.given, op.overwritten(args, kwargs)) if self.downstream else _NONE
        )
        if origin := self.unwritten.reads(call):
            root = self.root(key, "unwritten", call.given)
            root.differing_calls += 1
            root.origin = origin
        if simulated.active():
            call.func = SimulatedOp(func, op, self.replays)
        reason = self._refusal(call)
        if reason is not None:
            self.leave_out(reason, op.name)
        # What workers of a data loader hand over is set when it arrives.
        if self.recorder is not None and reason != _CAPTURED and op.base != "aten::set_":
            self.recorder.begin(call, key)
            result = self._record(self.recorder, call, key, digested=reason is None)
        else:
            result = self._look_again(call, key, again=reason is None)
        if reached:
            self.downstream.mark(reached, [*replay.returned(result, call.changed), *call.changed])
        return result

    def _look_again(self, call: replay.RepeatedCall, key: SiteKey, *, again: bool) -> Any:
        """Execute an op again, unless it must not be; see what was done to its memory in between."""
        first = self.calls[key] <= _FIRST_CALLS
        if first:
            self.outside.look(call.given, key)
        if not again:
            result = self.unwritten.once(call)
            # It may go on writing.
            self.outside.forget([*call.given, *overloads.tensors(result)])
            return result
        result = self._replay(call, key)
        if first:
            self.outside.written([*overloads.tensors(result), *call.changed])
        elif call.changed:
            self.outside.forget(call.changed)
        return result

    def count(self, key: SiteKey) -> None:
        """Count a call: of an op, or of a Triton kernel, which reaches no dispatcher."""
        self.seen.ops += 1
        self.calls[key] += 1
        if (
            self.settings.progress
            and not self.seen.ops & 127
            and time.monotonic() - self._told > _TELL_SECONDS
        ):
            self._told = time.monotonic()
            rate = self.seen.ops / (self._told - self._began)
            sys.stderr.write(
                f"locate: {self.seen.ops} ops, {rate:.0f} per second, {several(len(self.roots), 'call site')} not reproducible\n"
            )

    def _refusal(self, call: replay.RepeatedCall) -> str | None:
        """Return why an op is not executed again; ``None`` if it is."""
        op, changed = call.op, call.changed
        if op.refused is not None:
            return op.refused
        # Two runs are told of it by the command line, and leave out what came of it.
        if self.recorder is None and self.ignores(op.name, op.base):
            return IGNORED
        if self._cuda and torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
            return _CAPTURED
        if changed and not replay.plain(changed):
            return _COMPOUND
        # Of what is copied ahead of a call.
        copied = call.given if op.unsure else changed
        large = self.recorder is None and replay.too_large(copied, self.settings.max_bytes // 2)
        return LARGE if large else None

    def ignores(self, *names: str) -> bool:
        """Tell whether an op of these names is ignored on request."""
        return not set(names).isdisjoint(self.settings.ignored)

    def leave_out(self, reason: str, name: str) -> None:
        """Note that a call is not executed again."""
        self.seen.left_out[reason] = self.seen.left_out.get(reason, 0) + 1
        names = self.seen.left_out_ops.get(reason, ())
        if name not in names and len(names) < _MOST_NAMES:
            self.seen.left_out_ops[reason] = (*names, name)

    def _record(
        self, recorder: RunRecorder, call: replay.RepeatedCall, key: SiteKey, *, digested: bool
    ) -> Any:
        """Execute an op, and digest what it has written, unless it may go on writing."""
        op = call.op
        if not digested:
            result = self.unwritten.once(call)
            # What an op says to the allocator moves memory to and fro, and leaves what it holds.
            recorder.end(
                [] if op.refused == overloads.EFFECTS else [*call.given, *overloads.tensors(result)], None
            )
        elif key in self._open or op.outputs <= 1 or not op.aten:
            result = call.once()
            recorder.end([*replay.returned(result, call.changed), *call.changed], self._open.get(key, _NONE))
        else:
            result = call.first()
            self._open[key] = frozenset(self._opened(call))
            recorder.end([*call.returned, *call.changed], self._open[key])
        return result

    def region(self, name: str, function: Any, written: Any) -> Any:
        """Return a compiled function that runs as one op of a record, whether or not it is compiled in this run.

        What the user wrote names the tensors that it uses beside its arguments.
        """
        op = overloads.OpaqueOperator(f"{REGION}{name}")

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            # What runs within another region is a part of that one.
            if self.recorder is None or self.paused or self.ended or self._in_region:
                return function(*args, **kwargs)
            self._in_region = True
            try:
                call = replay.RepeatedCall(op, function, args, kwargs)
                return self._run_region(self.recorder, call, written)
            finally:
                self._in_region = False

        return run

    def _run_region(self, recorder: RunRecorder, call: replay.RepeatedCall, written: Any) -> Any:
        key = self.call_sites.of(call.op.name)
        self.count(key)
        with _python_dispatch._disable_current_modes():  # noqa: SLF001 - has no public name
            with torch.no_grad():
                used = RegionUse(written, call.args, call.kwargs)
                call.given = used.tensors
                self.unwritten.reads(call, region=True)
                recorder.begin(call, key, used)
                blank = [(one, one.clone()) for one in used.tensors if id(one) in self.unwritten.given_open]
            with self.call_sites.unfollowed(key), recorder.drawing():
                result = call.once()
            with torch.no_grad():
                for one, before in blank:
                    self.unwritten.closed_within(one, before)
                # What it was given it may have changed.
                recorder.end([*overloads.tensors(result), *used.tensors], _NONE)
        return result

    def _opened(self, call: replay.RepeatedCall) -> dict[int, torch.Tensor]:
        """Return the outputs that an op leaves unwritten, wholly or in part, and follow their memory."""
        found = replay.left_open(call)
        for place, other in found.items():
            self.unwritten.left_open(call.op, call.returned[place], other)
        return found

    def _replay(self, call: replay.RepeatedCall, key: SiteKey) -> Any:
        op, func, result = call.op, call.func, call.first()
        if hidden := call.hidden:
            # Its schema keeps a change to itself.
            op.changes = tuple(sorted({*op.changes, *hidden}))
            call.changed = op.changed(call.args, call.kwargs)
            self.leave_out(_LYING, op.name)
            return result
        kept = call.kept
        if not kept.tensors:
            return result
        if not kept.readable or kept.size > self.settings.max_bytes:
            self.leave_out(LARGE if kept.readable else _UNREADABLE, op.name)
            return result
        if isinstance(func, SimulatedOp) and func.unjudged:
            self.leave_out(func.unjudged, op.name)
        else:
            times = self.replays
            if isinstance(func, SimulatedOp):
                times = func.times
                self.seen.race_free += func.race_free
            self._again(call, times, key)
        return result

    def _again(self, call: replay.RepeatedCall, times: int, key: SiteKey) -> None:
        """Execute it so many times more."""
        kept, count, places, root = call.kept, 0, set[int](), None
        try:
            # On another device than the CPU one waits once for all executions, and looks closer only if any differed.
            queued = call.queued(times)
            for _ in range(times if queued is None or queued else 0):
                again = call.other()
                if again is None or not (found := replay.settled(kept.tensors, again)):
                    continue
                # The arguments it changes go on changing in what follows.
                again = [one.clone() for one in again]
                if root is None and (root := self._judged(call, key, again, found)) is None:
                    break
                count += 1
                places.update(found)
                replay.measure(root.distance, kept.tensors, again, found)
            else:
                if queued:
                    # It differed, whether or not it has done so again.
                    count = len(queued)
                    places.update(*queued)
                    root = root or self._judged(call, key, None, sorted(places))
        except Exception:  # noqa: BLE001 - the program's own execution went well
            self.leave_out(_FAILED, call.op.name)
            call.restore()
            return
        self.seen.replayed += 1
        if root is not None:
            root.differing_calls += 1
            root.executions += times
            root.differing += count
            root.outputs = tuple(sorted({*root.outputs, *places}))
            call.restore()
            self.downstream.mark(frozenset({root}), [*call.returned, *call.changed])

    def _judged(
        self, call: replay.RepeatedCall, key: SiteKey, again: list[torch.Tensor] | None, found: list[int]
    ) -> Root | None:
        """Return the root of a call site that differed; ``None`` if only memory did that nothing wrote.

        *again* is what it gave then, ``None`` where that is gone and it has not differed since.
        """
        op, func = call.op, call.func
        schedule = func.schedule if isinstance(func, SimulatedOp) and func.ordered else None
        cause: Cause = "replay" if schedule is None else "schedule"
        root = self.roots.get((key, cause))
        if root is not None:
            return root
        if schedule == MEMORY:
            self.leave_out(LEFT_OPEN, op.name)
            call.restore()
            return None
        if not op.random and call.draws():
            op.random = True
            self.leave_out(_DRAWING, op.name)
            call.restore()
            return None
        # Of what the flag does with it the first call that differs is asked, before anything of it is kept.
        flag, alert = replay.with_flag(call, self.replays)
        # Without the fill it may have been given the same memory each time.
        opened = self._opened(call)
        if again is None:
            unwritten = flag == "filled" or opened.keys() >= set(found)
            flag = "rare" if flag == "cured" else flag
        else:
            unwritten = flag == "filled" or replay.unwritten_alone(call.kept.tensors, again, found, opened)
            for place in found if unwritten else ():
                if place < len(call.returned):
                    self.unwritten.left_open(op, call.returned[place], again[place])
        if unwritten:
            call.restore()
            return None
        root = self.root(key, cause, call.given)
        root.flag, root.alert, root.origin = flag, alert, schedule and phrase(schedule)
        if self.settings.save is not None:
            root.saved = replay.save_inputs(self.settings.save, len(self.roots), call)
        return root

    def root(self, key: SiteKey, cause: Cause, given: list[torch.Tensor]) -> Root:
        """Return the root of a call site, a new one where none is known."""
        known = self.roots.get((key, cause))
        if known is None:
            known = self.roots[key, cause] = Root(
                call_site(key), cause, overloads.words(given), first=self.seen.ops
            )
            self.ended |= self.settings.only_first
        return known

    def called(self) -> tuple[tuple[OpSite, int], ...]:
        """Return the call sites of a program whose ops were only counted."""
        return tuple((call_site(key), calls) for key, calls in self.calls.items()) if self._counts else ()

    def found(self) -> tuple[Root, ...]:
        """Return the roots, with how often their sites were called."""
        for (key, _), root in self.roots.items():
            root.calls = self.calls[key]
        return tuple(self.roots.values())


def _samples() -> bool:
    """Tell whether a sampler of a data loader calls the op: it seeds a generator of its own with what it has drawn."""
    frames = islice(traceback.walk_stack(None), _NEAR)
    return any(frame.f_code.co_filename == sampler.__file__ for frame, _ in frames)


def not_compiled(function: Any) -> None:
    """Keep the compiler out of a function; how, depends on the release."""
    if hasattr(_eval_frame, "set_code_exec_strategy"):
        skip = _eval_frame._FrameAction.SKIP  # noqa: SLF001 - has no public name
        strategy = _eval_frame._FrameExecStrategy(skip, skip)  # noqa: SLF001
        _eval_frame.set_code_exec_strategy(function.__code__, strategy)
    elif hasattr(_eval_frame, "skip_code"):
        _eval_frame.skip_code(function.__code__)


not_compiled(LocateMode.__torch_dispatch__)
