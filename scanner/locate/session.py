"""One program under observation: the mode around it, what is told in the end, and the sentinel before and behind it.

The sentinel is an op that differs wherever anything races, in the program's process, under a mode like the program's.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, RandomSampler

from detmatrix.scanner.errors import ending, one_line
from detmatrix.scanner.locate.call_sites import call_site, original
from detmatrix.scanner.locate.launches import LaunchReplay
from detmatrix.scanner.locate.mode import LocateMode, LocateSettings, not_compiled
from detmatrix.scanner.locate.replay import deterministic
from detmatrix.scanner.locate.settings import settings_now
from detmatrix.scanner.located import PLACES, Located, SentinelSeen, of_rank, replays_for
from detmatrix.scanner.worker import simulated

try:
    from torch.optim.optimizer import register_optimizer_step_post_hook as _when_optimizers_stepped
except ImportError:  # an older torch
    _when_optimizers_stepped = None


# The sentinel: as those of a scan (opspecs/controls.py), additions into few slots.
_SLOTS = 64
_ADDITIONS = {"cpu": 1 << 16, "cuda": 1 << 20}
_FEW_ADDITIONS = 1 << 12
_EXECUTIONS = 16
# Methods of tensors that read them past the dispatcher; by the last one a tensor is saved, and may be loaded again.
_MEMORY = ("numpy", "__dlpack__")
_WITHOUT_AN_OP = ("tolist", *_MEMORY, "__reduce_ex__")
_TORCH = str(Path(torch.__file__).parent)


class Session:
    """Observes what is called between ``start`` and ``stop``."""

    def __init__(self, settings: LocateSettings) -> None:
        self._settings = settings
        self.mode = LocateMode(settings)
        # What is told in the end; ops of other threads of Python, and processes of ``multiprocessing``, are counted alone.
        self._seen = self.mode.seen
        self._undo: list[Callable[[], Any]] = []
        self.forked = False  # whether this process is a fork of the program's, which tells nothing

    def start(self) -> None:
        """Begin."""
        if not simulated.active():
            self._seen.sentinels = (ask_sentinel("cpu"),)
            if self._settings.replays is None:
                self.mode.replays = replays_for(self._seen.sentinels[0])
        os.register_at_fork(after_in_child=self._leave)
        self._note_compilation()
        self._note_loaders()
        self._note_handed()
        self._note_elsewhere()
        if _when_optimizers_stepped is not None:
            self._undo.append(_when_optimizers_stepped(lambda *_: self.step()).remove)
        if simulated.active() and find_spec("triton") and self.mode.recorder is None:
            launches = LaunchReplay(self.mode)
            launches.start()
            self._undo.append(launches.stop)
        self._enter_step()
        self._began = time.perf_counter()
        self.mode.call_sites.start()
        self._undo.append(self.mode.call_sites.stop)
        self.mode.__enter__()

    def step(self) -> None:
        """Count a step: of an optimizer, or a call of the function."""
        self._seen.steps += 1
        self._enter_step()

    def _enter_step(self) -> None:
        """Find out whether the step that begins is to be observed."""
        first, end = self._settings.steps
        number = self._settings.first_step + self._seen.steps
        within = number >= first and (end is None or number < end)
        self.mode.paused = self.forked or not within
        if self.mode.recorder is not None and not self.mode.paused:
            self.mode.recorder.step(number)

    def _leave(self) -> None:
        """Let a forked process, such as a worker of a data loader, run its ops alone."""
        self.forked = self.mode.paused = True

    def _put(self, owner: Any, name: str, new: Any) -> None:
        """Put something else in the place of an attribute, until the end."""
        old, own = getattr(owner, name), name in vars(owner)
        setattr(owner, name, new)
        self._undo.append(lambda: setattr(owner, name, old) if own else delattr(owner, name))

    def _note_compilation(self) -> None:
        """Keep the places that ask for compilation: what compiled code does, no op of it comes here."""
        compiled = torch.compile

        @functools.wraps(compiled)
        def noted(*args: Any, **kwargs: Any) -> Any:
            caller = sys._getframe(1)  # noqa: SLF001 - one frame, without a list of all
            if not caller.f_code.co_filename.startswith(_TORCH):
                place = one_line(f"{caller.f_code.co_filename}:{caller.f_lineno}")
                self._seen.compiled = tuple(dict.fromkeys((*self._seen.compiled, place)))
            self.mode.noted.compiled(**kwargs)
            made = compiled(*args, **kwargs)
            written = args[0] if args else kwargs.get("model")
            if not (self._settings.regions and callable(written)):
                return made
            region = functools.partial(self.mode.region, _name_of(written), written=written)
            if made is written and isinstance(made, torch.nn.Module):
                if kwargs.get("disable"):
                    return made  # as the program asks for
                # Nothing is compiled: the module stays as it is, and in its place stands what would in a run that compiles.
                compiler = torch._dynamo.eval_frame  # noqa: SLF001 - neither class has a public name
                made = compiler.OptimizedModule(made, compiler._NullDecorator())  # noqa: SLF001
            if isinstance(made, torch.nn.Module):
                made.forward = region(made.forward)
                return made
            return region(made)

        # Of ours, which a region is none the worse for.
        warnings.filterwarnings("ignore", "Using `torch.compile\\(module\\)` when there are global hooks")
        self._put(torch, "compile", noted)

    def _note_loaders(self) -> None:
        """Count the data loaders that draw, for their order or for seeds of workers."""
        begin = DataLoader.__init__

        @functools.wraps(begin)
        def noted(loader: Any, *args: Any, **kwargs: Any) -> None:
            begin(loader, *args, **kwargs)
            if loader.num_workers or isinstance(loader.sampler, RandomSampler):
                self.mode.noted.loaders[loader.generator is not None] += 1
                self.mode.noted.seeds |= {loader.generator.initial_seed()} if loader.generator else set()

        self._put(DataLoader, "__init__", noted)

    def _note_handed(self) -> None:
        """Note what is handed to Python without an op: numbers, and memory that something else may then write to."""
        recorder = self.mode.recorder
        for name in _WITHOUT_AN_OP if recorder else _MEMORY:
            method = getattr(torch.Tensor, name)

            @functools.wraps(method)
            def noted(tensor: Any, *args: Any, _method: Any = method, **kwargs: Any) -> Any:
                if not self.mode.paused:
                    if recorder is not None:
                        recorder.handed(tensor, saved=_method.__name__ == "__reduce_ex__")
                    if _method.__name__ in _MEMORY:
                        self.mode.unwritten.exported(tensor)
                return _method(tensor, *args, **kwargs)

            not_compiled(noted)  # or it would call what it stands for by its name, which is itself
            self._put(torch.Tensor, name, noted)

    def _note_elsewhere(self) -> None:
        """Count ops of other threads, and processes."""
        # Has no public name: a class of the program's own may put another method in the place of `run`.
        run_thread: Any = threading.Thread._bootstrap_inner  # type: ignore[attr-defined] # noqa: SLF001
        start_process = BaseProcess.start

        def counted_thread(thread: threading.Thread) -> None:
            with _OfThread(self):
                run_thread(thread)

        def counted_process(process: BaseProcess) -> None:
            self._seen.processes += 1
            start_process(process)

        self._put(threading.Thread, "_bootstrap_inner", counted_thread)
        self._put(BaseProcess, "start", counted_process)

    def stop(self, ended: str | None = None) -> Located:
        """End; ask the sentinel of each kind of device that was used, and return what was found and how the program ended."""
        self.mode.__exit__(None, None, None)
        for undo in reversed(self._undo):
            undo()
        mode, seen = self.mode, self._seen
        seen.seconds = time.perf_counter() - self._began
        # A forked process has the parent's file, and none of its threads.
        if mode.recorder is not None and not self.forked:
            mode.recorder.close(ended, [key for key, cause in mode.roots if cause == "unwritten"])
        if not (simulated.active() or self.forked):
            seen.sentinels += (ask_sentinel("cpu"),)
        if torch.cuda.is_available() and torch.cuda.is_initialized() and not self.forked:
            seen.sentinels += (ask_sentinel("cuda"),)
        seen.threads = torch.get_num_threads()
        seen.bound = sys.platform != "linux" or bool(PLACES & os.environ.keys()) or seen.threads == 1
        seen.replays = 0 if mode.recorder else mode.replays
        seen.outside = mode.outside.seen
        seen.outside_site = call_site(mode.outside.first) if mode.outside.first else None
        seen.called = mode.called()
        seen.settings = settings_now(mode.noted)
        if torch.cuda.is_initialized():
            seen.device = "sm_{}{}".format(*torch.cuda.get_device_capability())
        seen.simulated = simulated.active()
        seen.roots, seen.ended = mode.found(), ended
        return seen


class _OfThread(TorchDispatchMode):
    """Counts the ops of a thread, which run as they do without it."""

    supports_higher_order_operators = True
    _should_skip_dynamo = LocateMode._should_skip_dynamo  # noqa: SLF001 - a mode's

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._session.mode.seen.thread_ops += 1
        return func(*args, **(kwargs or {}))


def _name_of(compiled: Any) -> str:
    """Return what a region is called: as what was compiled, or as the module of ``module.compile()``."""
    owner = getattr(compiled, "__self__", None)
    if isinstance(owner, torch.nn.Module) and compiled.__name__ == "_call_impl":
        compiled = owner
    if isinstance(compiled, torch.nn.Module):
        compiled = original(compiled)
    return str(getattr(compiled, "__name__", type(compiled).__name__))


def ask_sentinel(device: str) -> SentinelSeen:
    """Replay the sentinel of a kind of device; the program's generators are not touched."""
    generator = torch.Generator().manual_seed(0)
    count = _FEW_ADDITIONS if simulated.active() else _ADDITIONS[device]
    index = torch.randint(_SLOTS, (count,), generator=generator, device="cpu").to(device)
    source = torch.randn(count, generator=generator, device="cpu", dtype=torch.float32).to(device)
    into = torch.randn(_SLOTS, generator=generator, device="cpu", dtype=torch.float32).to(device)
    executions = 1 if simulated.active() else _EXECUTIONS
    # With the flag on the sentinel would not race, and what ignores the flag may.
    with torch.no_grad(), deterministic(on=False), LocateMode(LocateSettings(executions)) as mode:
        if device == "cpu":
            into.index_put((index,), source, accumulate=True)
        else:
            into.scatter_add(0, index, source)
    roots = mode.found()
    return SentinelSeen(
        op="aten::index_put" if device == "cpu" else "aten::scatter_add",
        device=device,
        executions=max((root.executions for root in roots), default=executions),
        differing=max((root.differing for root in roots), default=0),
    )


@contextmanager
def record(path: str, *, first_step: int = 0, steps: tuple[int, int | None] = (0, None)) -> Iterator[None]:
    """Write down what each op of the block was given and gave, as digests, for ``detmatrix locate --diff``.

    Args:
        path: The file; compressed if its name ends in ``.gz``. Of several ranks each adds its number to the name.
        first_step: The number of the first step: a run that is resumed goes on with another one than 0.
        steps: Of an optimizer, which are recorded: from the first number on, and before the second.
    """
    session = Session(LocateSettings(record=of_rank(path), regions=True, first_step=first_step, steps=steps))
    session.start()
    try:
        yield
    except BaseException as error:
        session.stop(ending(error))
        raise
    session.stop()


def recording(base: type[Any], path: str, *, steps: tuple[int, int | None] = (0, None)) -> Any:
    """Return a callback that records a training: ``callbacks=[recording(TrainerCallback, "run.ops.gz")]``.

    Args:
        base: Whose callback it is: ``TrainerCallback`` of transformers, or ``Callback`` of Lightning.
        path: As for ``record``.
        steps: As for ``record``.
    """

    class Recording(base):
        """Records from the beginning of a training to its end; steps have the numbers of the trainer."""

        _block: Any = None

        def _begin(self, step: int) -> None:
            self.on_train_end(error=RuntimeError("the training did not end"))
            self._block = record(path, first_step=step, steps=steps)
            self._block.__enter__()
            # Transformers tells nobody of an exception.
            atexit.register(lambda: self.on_exception(None, None, getattr(sys, "last_value", None)))

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
            """As transformers calls it."""
            self._begin(state.global_step)

        def on_train_start(self, trainer: Any, module: Any) -> None:  # noqa: ARG002
            """As Lightning calls it."""
            self._begin(trainer.global_step)

        def on_train_end(self, *_: Any, error: BaseException | None = None, **__: Any) -> None:
            """End the record."""
            block, self._block = self._block, None
            if block is not None:
                block.__exit__(type(error) if error else None, error, None)

        def on_exception(self, trainer: Any, module: Any, error: BaseException | None) -> None:  # noqa: ARG002
            """End the record of a training that failed, as Lightning calls it."""
            self.on_train_end(error=error or RuntimeError("the training did not end"))

    return Recording()


@contextmanager
def locate(
    *,
    replays: int | None = None,
    ignored: tuple[str, ...] = (),
    max_bytes: int = 1 << 30,
    save: str | None = None,
) -> Iterator[Located]:
    """Execute each op of the block again on the same inputs, and find those that give other bits.

    Args:
        replays: Further executions of each op; by default as many as the sentinel asks for.
        ignored: Ops that are executed once: ``aten::index_put_``.
        max_bytes: That copies of an op's tensors may take; larger ones are executed once.
        save: A folder for the inputs of roots, which ``detmatrix repro`` makes scripts of.
    """
    session = Session(LocateSettings(replays=replays, ignored=ignored, max_bytes=max_bytes, save=save))
    session.start()
    try:
        yield session.mode.seen
    finally:
        session.stop()
