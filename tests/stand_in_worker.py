"""Stands for a worker: speaks its protocol without torch, and does what a test tells it to (``tests.stand_in``).

Every request gets the answer that a healthy op would give, controls and sentinels what they must show, unless one of
the test's rules says otherwise. ``tests/test_stand_in.py`` holds what is answered here against a worker.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

TORCH = "2.13.0+standin"
ALERT = (
    "{} does not have a deterministic implementation, but you set "
    "'torch.use_deterministic_algorithms(True)'. You can turn off determinism just for this operation"
)
BUILD = {
    "torch": TORCH,
    "torch_git": "0" * 40,
    "cuda": None,
    "cudnn": None,
    "threads": 2,
    "python": "3.11.0",
    "devices": [],
    "docstring": "",
}
Answer = dict[str, Any]


def main() -> None:
    """Say hello, then answer requests until the pipe closes, as a worker does."""
    script = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    options = dict(zip(sys.argv[2::2], sys.argv[3::2], strict=True))
    mode = options["--mode"]
    log = Path(script["log"])
    worker = 1 + (log.read_text(encoding="utf-8").count('"do": "start"') if log.exists() else 0)
    with (
        os.fdopen(int(options["--requests"]), "r") as requests,
        os.fdopen(int(options["--replies"]), "w") as replies,
        log.open("a", encoding="utf-8") as notes,
    ):
        hello: Answer = {"do": "start", "variables": dict(os.environ)}
        for request in itertools.chain([hello], map(json.loads, requests)):
            asked = {**request, "mode": mode, "worker": worker}
            notes.write(json.dumps(asked) + "\n")
            notes.flush()
            _reply(requests, replies, asked, script)


def _reply(requests: Any, replies: Any, asked: Answer, script: Answer) -> None:
    """Do what the first rule that fits says, or what a worker whose ops are healthy would do."""
    rule = next((one for one in script["rules"] if _fits(one, asked)), {})
    while "wait" in rule and Path(rule["wait"]).exists():
        time.sleep(0.01)
    time.sleep(rule.get("seconds", 0))
    then = rule.get("then", {})
    if isinstance(then, str) and then != "taint":
        _FAULTS[then](requests, replies)
        return
    if asked["do"] == "start":
        reply = {"build": script["build"]} | then
    elif then == "taint":
        changed = "changed global state (thread count: 2 -> 1)"
        reply = {"answer": {**answer(asked), "outcome": "invalid", "message": changed}, "tainted": True}
    else:
        reply = {"answer": {**answer(asked), **then}, "tainted": False}
    replies.write(json.dumps(reply) + "\n")
    replies.flush()


def _fits(rule: Answer, asked: Answer) -> bool:
    return all(asked.get(name) == value for name, value in rule.items() if name not in {"then", "wait", "seconds"})


def _wait_for_the_end(requests: Any) -> None:
    """Do nothing until whoever asks is gone: what hangs here outlives no test run that is killed."""
    while os.read(requests.fileno(), 1 << 16):
        pass
    os._exit(0)


def _garbage(_: Any, replies: Any) -> None:
    replies.write("no reply\n")
    replies.flush()


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


_FAULTS: dict[str, Callable[[Any, Any], None]] = {
    "die": lambda *_: os.kill(os.getpid(), signal.SIGKILL),
    "exit": lambda *_: os._exit(0),
    "hang": _hang,
    "close": _close,
    "fork": _fork,
    "garbage": _garbage,
}


def answer(asked: Answer) -> Answer:
    """Return what a worker answers whose ops are healthy and whose machine lets races show."""
    return _ANSWERS[asked["do"]](asked)


def _observed(asked: Answer) -> Answer:
    name, runs, mode = asked["spec"], asked["runs"], asked["mode"]
    digests = {"first": runs}
    told: Answer = {}
    if name == "control.alerts" and mode == "on":
        return {"outcome": "raised", "exception": "RuntimeError", "message": ALERT.format("put_")}
    if name == "control.alerts" and mode == "warn_only":
        told["alerts"] = ["put_"]
    elif name == "control.random":
        told["seeded"] = True
    elif name == "control.varies":
        digests = {str(number): 1 for number in range(runs)}
    elif name == "control.rare":
        differing = sum(differs for differs, _ in zip(_rare_schedule(), range(runs), strict=False))
        digests = {"first": runs - differing, "other": differing} if differing else digests
    elif name == "control.uninitialised":
        return _uninitialised(asked)
    return _ran(asked, digests, **told)


def _uninitialised(asked: Answer) -> Answer:
    """Memory that nobody wrote differs wherever it is poisoned, and is filled with NaN with the flag on."""
    runs = asked["runs"]
    if asked["mode"] != "off":
        return _ran(asked, {"first": runs}, blank="nan")
    groups = _groups(asked)
    poisoned = sum(group["executions"] for group in groups if group["perturbation"] == "poison")
    if not poisoned:
        return _ran(asked, {"first": runs})
    for group in groups:
        if group["perturbation"] == "poison":
            group["differing"] = poisoned
    digests = {"first": runs - poisoned, "other": poisoned}
    return _ran(asked, digests) | {"groups": groups}


def _rare_schedule() -> Iterator[bool]:
    """Yield whether each execution of the control with a known rate differs, as ``opspecs.controls`` draws it."""
    import random  # noqa: PLC0415 - takes longer than all else here

    draws = random.Random(4)
    yield False
    while True:
        yield draws.random() < 0.1


def _ran(asked: Answer, digests: dict[str, int], **told: Any) -> Answer:
    runs = sum(digests.values())
    differing = runs - next(iter(digests.values()))
    name = "output" if asked["direction"] == "forward" else "grad of args[0]"
    return {
        "outcome": "ran",
        "executions": runs,
        "digests": digests,
        "first_differing": runs - differing if differing else None,
        "outputs": [{"name": name, "shape": [4], "dtype": asked["dtype"], "differing": differing, "severity": None}],
        "groups": _groups(asked, differing),
        "forward_differing": 0,
        "seeded": False,
        "alerts": [],
        "blank": None,
        "blank_output": None,
        "inputs": [f"args[0]: {asked['dtype']} (4,)"],
        "inputs_digest": f"{asked['spec']}:{asked['case']}:{asked['dtype']}:{asked['seed']}",
        "seconds": 0.25,
        "setup_seconds": 0.125,
    } | told  # fmt: skip


def _groups(asked: Answer, differing: int = 0) -> list[Answer]:
    """Share the executions out: half to the first perturbation, the rest evenly; what differs is in the first."""
    names = asked.get("perturbations") or ["quiet"]
    left = asked["runs"]
    shares = []
    for place in range(len(names)):
        share = left if place == len(names) - 1 else max(1, left // 2) if left else 0
        shares.append(share)
        left -= share
    groups = []
    for name, share in zip(names, shares, strict=True):
        here = min(differing, share)
        differing -= here
        if share:
            groups.append({"perturbation": name, "executions": share, "differing": here})
    return groups


def _sentinel(asked: Answer) -> Answer:
    return _ran(asked, {str(number): 1 for number in range(asked["runs"])})


def _cost(_: Answer) -> Answer:
    timing = {"low": 1e-4, "median": 2e-4, "high": 3e-4}
    return {"outcome": "ran", "samples": 5, "calls": 1, **dict.fromkeys(("off", "on", "unfilled"), timing)}


def _dispatch(_: Answer) -> Answer:
    reached = {"overloads": ["aten::neg"], "alerts": [], "message": None}
    return {"outcome": "ran", "modes": {"off": reached, "on": reached}}


def _kernels(_: Answer) -> Answer:
    return {"groups": [{"kernel": "device", "writes": "new", "names": ["aten::neg"]}]}


_ANSWERS: dict[str, Callable[[Answer], Answer]] = {
    "observe": _observed,
    "sentinel": _sentinel,
    "cost": _cost,
    "dispatch": _dispatch,
    "kernels": _kernels,
}

if __name__ == "__main__":
    main()
