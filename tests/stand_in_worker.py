"""Stands for a worker: speaks its protocol without torch, and does what a test tells it to (``tests.stand_in``).

Every request gets the answer that a healthy op would give, controls and sentinels what they must show, unless one of
the test's rules says otherwise. ``tests/test_stand_in.py`` holds what is answered here against a worker.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# It is started in isolation, where nothing of ours is found.
sys.path.append(str(Path(__file__).parents[1]))
from detmatrix.scanner.alerts import ALERT
from detmatrix.scanner.modes import MODE_TABLE
from detmatrix.scanner.perturbations import shares

Answer = dict[str, Any]
# By what is asked: what a healthy op gives, the fields that no request changes. Of properties: the controls that have other bits at a value.
ANSWERS: Answer = json.loads((Path(__file__).parent / "data" / "answers.json").read_text(encoding="utf-8"))
BUILD: Answer = ANSWERS["build"]
TORCH: str = BUILD["torch"]


def main() -> None:
    """Say hello, then answer requests until the pipe closes, as a worker does."""
    script = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    options = dict(zip(sys.argv[2::2], sys.argv[3::2], strict=True))
    mode = options["--mode"]
    log, worker = Path(script["log"]), 0
    with (
        os.fdopen(int(options["--requests"]), "r") as requests,
        os.fdopen(int(options["--replies"]), "w") as replies,
        log.open("a", encoding="utf-8") as notes,
    ):
        for request in map(json.loads, requests):
            if request["do"] == "start":
                # Two that start at once have a number each.
                fcntl.flock(notes, fcntl.LOCK_EX)
                worker = 1 + log.read_text(encoding="utf-8").count('"do": "start"')
            mode = request.get("mode", mode)  # where it turns to another
            asked = {**request, "mode": mode, "worker": worker}
            if asked["do"] == "start":
                asked["variables"] = dict(os.environ)
            notes.write(json.dumps({name: asked[name] for name in asked if name != "id"}) + "\n")
            notes.flush()
            fcntl.flock(notes, fcntl.LOCK_UN)
            _reply(requests, replies, asked, script)


def _reply(requests: Any, replies: Any, asked: Answer, script: Answer) -> None:
    """Do what the first rule that fits says, or what a worker whose ops are healthy would do."""
    rule: Answer = next((one for one in script["rules"] if _fits(one, asked)), {})
    _wait(rule, requests)
    then = rule.get("then", {})
    for word in then.split(" and ") if isinstance(then, str) else ():
        if word in _FAULTS:
            _FAULTS[word](requests, replies)
            replies.flush()
            return
        if word in _FIRST:
            _FIRST[word](replies)
            then = {}
    twice, then = (2, {}) if then == "twice" else (1, then)
    if asked["do"] == "start":
        reply = {"build": script["build"]} | then
    elif then in ("vary", "race"):
        reply = {"answer": _differing(asked, under="stress" if then == "race" else None), "tainted": False}
    elif then == "taint":
        changed = "changed global state (thread count: 2 -> 1)"
        reply = {"answer": {**answer(asked), "outcome": "invalid", "message": changed}, "tainted": True}
    else:
        reply = {"answer": {**answer(asked), **then}}
        if asked["do"] not in {"kernels", "turn"}:
            reply["tainted"] = False
    for _ in range(twice):
        replies.write(json.dumps({"id": asked["id"], **reply}) + "\n")
    replies.flush()


def _wait(rule: Answer, requests: Any) -> None:
    while "wait" in rule and Path(rule["wait"]).exists():
        # Nothing more is asked before this is answered, so that what can be read is the end.
        if select.select([requests], [], [], 0.01)[0]:
            os._exit(0)
    time.sleep(rule.get("seconds", 0))


def _differing(asked: Answer, under: str | None) -> Answer:
    """Differ each time, or under one perturbation alone, as what several threads do."""

    def digest_of(number: int, perturbation: str) -> str:
        return f"{os.getpid()} {number}" if under in {None, perturbation} else "first"

    return _ran(asked, digest_of, threads=2 if under else 1)


def _fits(rule: Answer, asked: Answer) -> bool:
    return all(
        asked.get(name) == value for name, value in rule.items() if name not in {"then", "wait", "seconds"}
    )


def _wait_for_the_end(requests: Any) -> None:
    """Do nothing until whoever asks is gone: what hangs here outlives no test run that is killed."""
    while os.read(requests.fileno(), 1 << 16):
        pass
    os._exit(0)


def _hang(requests: Any, _: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _wait_for_the_end(requests)


def _close(requests: Any, replies: Any) -> None:
    os.close(replies.fileno())
    _wait_for_the_end(requests)


def _fork(requests: Any, _: Any) -> None:
    if os.fork() == 0:
        _wait_for_the_end(requests)
    os._exit(7)


def _start_daemons() -> None:
    """Leave three processes, each in a session of its own, whose parents have ended; note that they are there."""
    for _ in range(3):
        if child := os.fork():
            os.waitpid(child, 0)
            continue
        os.setsid()
        if os.fork() == 0:
            os.setsid()
            os.closerange(3, 64)
            with Path(sys.argv[1]).with_name("stand_in.daemons").open("a", encoding="utf-8") as notes:
                notes.write(f"{os.getpid()}\n")
            time.sleep(60)
        os._exit(0)
    started = Path(sys.argv[1]).with_name("stand_in.daemons")
    while not started.exists() or started.read_text(encoding="utf-8").count("\n") < 3:
        time.sleep(0.01)


# In place of an answer.
_FAULTS: dict[str, Callable[[Any, Any], object]] = {
    "die": lambda *_: os.kill(os.getpid(), signal.SIGKILL),
    "exit": lambda *_: os._exit(0),
    "hang": _hang,
    "close": _close,
    "fork": _fork,
    "garbage": lambda _, replies: replies.write("no reply\n"),
}


# Lines of whoever else writes into the pipe, before the answer; what would be one, if it had been asked for.
_OTHERS = json.dumps({"id": "0" * 32, "answer": {"outcome": "ran", "executions": 0}, "tainted": False})
# What is done before an answer.
_FIRST: dict[str, Callable[[Any], object]] = {
    "stray": lambda replies: replies.write(f"{_OTHERS}\n"),
    "unnumbered": lambda replies: replies.write("{}\n"),
    "deep": lambda replies: replies.write("[" * 30_000 + "\n"),
    "long": lambda replies: replies.write("1" * (17 << 20)),
    "print": lambda _: print("last words", flush=True),
    "daemon": lambda _: _start_daemons(),
}


def answer(asked: Answer) -> Answer:
    """Return what a worker answers whose ops are healthy and whose machine lets races show."""
    computed = _COMPUTED.get(asked["do"])
    return computed(asked) if computed else dict(ANSWERS[asked["do"]])


def _observed(asked: Answer) -> Answer:
    """Return what a row, or a control, shows; a digest is told by the number of the execution and its perturbation."""
    name, mode = asked["spec"], asked["mode"]
    alerts = name in {"control.alerts", "quick.put_"}
    if alerts and MODE_TABLE[mode].alerts:
        alert = {"outcome": "raised", "exception": "RuntimeError", "message": f"put_ {ALERT})'. You can"}
        return _drawn(asked) | alert
    if name == "control.varies":
        return _ran(asked, lambda number, _: str(number))
    if name == "control.rare":
        schedule = _rare_schedule()
        return _ran(asked, lambda *_: str(next(schedule)))
    if name == "control.uninitialised" and not (MODE_TABLE[mode].deterministic and MODE_TABLE[mode].fill):
        return _ran(asked, lambda number, perturbation: str(number) if perturbation == "poison" else "first")
    text: Answer = {}
    if alerts and mode == "warn_only":
        text["alerts"] = ["put_"]
    elif name == "control.random":
        text["seeded"] = True
    elif name == "control.uninitialised":
        text["blank"] = "nan"
    if MODE_TABLE[mode].compiles and not name.startswith("control."):
        text["compiled"] = {"graphs": 1, "breaks": 0, "kernels": 1}
    return _ran(asked, lambda *_: "first") | text


def _rare_schedule() -> Iterator[bool]:
    """Yield whether each execution of the control with a known rate differs, as ``detmatrix.opspecs.controls`` draws it."""
    import random  # noqa: PLC0415 - takes longer than all else here

    draws = random.Random(4)
    yield False
    while True:
        yield draws.random() < 0.1


def _drawn(asked: Answer) -> Answer:
    """Return what is told of inputs, which depend on the row and the seed alone."""
    digest = ":".join(str(asked[name]) for name in ("spec", "case", "dtype", "seed"))
    return {**ANSWERS["drawn"], "inputs": [f"args[0]: {asked['dtype']} (4,)"], "inputs_digest": digest}


def _ran(asked: Answer, digest_of: Callable[[int, str], str], threads: int | None = 1) -> Answer:
    """Execute as a worker does: half under the first perturbation, each of which ends after ten differences.

    Unless it is said otherwise one thread does what a row does, so that nothing of it is executed under stress; the sentinel
    races.
    """
    threads = 2 if asked["do"] == "sentinel" else threads
    threads = threads if asked.get("count_threads") and asked["runs"] > 1 else None
    names = asked.get("perturbations") or ["quiet"]
    first = digest_of(0, names[0])
    digests = {first: 1}
    groups = []
    first_differing = None
    number = 1
    for name, share in zip(names, shares(asked["runs"], names), strict=True):
        if name == "stress" and threads == 1:
            continue
        done, differing = (1 if name == names[0] else 0), 0
        while done < share and differing < 10:
            digest = digest_of(number, name)
            digests[digest] = digests.get(digest, 0) + 1
            if digest != first:
                differing += 1
                first_differing = number if first_differing is None else first_differing
            done += 1
            number += 1
        if done:
            groups.append({"perturbation": name, "executions": done, "differing": differing})
    forward = asked["direction"] == "forward"
    return {
        **ANSWERS["observe"],
        **_drawn(asked),
        "executions": number,
        "digests": digests,
        "first_differing": first_differing,
        "outputs": [
            _output("output" if forward else "grad of args[0]", asked["dtype"], number - digests[first])
        ],
        "groups": groups,
        **({} if forward else {"forward_differing": 0}),
        "threads": threads,
    }


def _output(name: str, dtype: str, differing: int) -> Answer:
    return {**ANSWERS["output"], "name": name, "dtype": dtype, "differing": differing}


def _invariance(asked: Answer) -> Answer:
    """Return what a row gives at the values of a property: the same everywhere, of controls what they must give."""
    tried = ANSWERS["invariance"][asked["property"]]
    other = {"outcome": "varies", "executions": 10, "outputs": [_output("output", asked["dtype"], 10)]}
    same = {"outcome": "same", "executions": 2, "outputs": []}
    return {
        "outcome": "ran",
        "baseline": tried["baseline"],
        "left_out": [],
        "executions": 11,
        "differing": 10 if asked["spec"] == "control.unrepeatable" else 0,
        "trials": [
            {"value": value, **(other if asked["spec"] in varying else same)}
            for value, varying in tried["values"].items()
        ],
    }


_COMPUTED: dict[str, Callable[[Answer], Answer]] = {
    "observe": _observed,
    "sentinel": lambda asked: _ran(asked, lambda number, _: str(number)),
    "enumerate": lambda asked: ANSWERS["enumerate"] | {"op": asked["name"].partition(":")[2]},
    "invariance": _invariance,
}

if __name__ == "__main__":
    main()
