"""An op that differs wherever anything races, executed in the program's process, under a mode like the program's."""

from __future__ import annotations

import torch

from scanner.locate.mode import LocateMode
from scanner.located import SentinelSeen

_SLOTS = 64
# As the sentinels of a scan (opspecs/controls.py): additions into 64 slots.
_ADDITIONS = {"cpu": 1 << 16, "cuda": 1 << 20}
_EXECUTIONS = 16


def ask_sentinel(device: str) -> SentinelSeen:
    """Replay the sentinel of a kind of device; the program's generators are not touched."""
    generator = torch.Generator().manual_seed(0)
    count = _ADDITIONS[device]
    index = torch.randint(_SLOTS, (count,), generator=generator, device="cpu").to(device)
    source = torch.randn(count, generator=generator, device="cpu", dtype=torch.float32).to(device)
    into = torch.randn(_SLOTS, generator=generator, device="cpu", dtype=torch.float32).to(device)
    with torch.no_grad(), LocateMode(replays=_EXECUTIONS, max_bytes=1 << 30) as mode:
        if device == "cpu":
            into.index_put((index,), source, accumulate=True)
        else:
            into.scatter_add(0, index, source)
    roots = mode.found()
    return SentinelSeen(
        op="aten::index_put" if device == "cpu" else "aten::scatter_add",
        device=device,
        executions=_EXECUTIONS,
        differing=max((root.differing for root in roots), default=0),
    )
