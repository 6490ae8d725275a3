"""Two processes that speak with each other by gloo; the second one may send something else each time."""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from pathlib import Path

import torch
from torch import distributed


def step(*, steady: bool = True) -> float:
    """Add up, gather and send on what both processes hold; return what comes of it."""
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder, "store"))
        other = multiprocessing.get_context("fork").Process(target=_work, args=(1, store, steady))
        other.start()
        found = _work(0, store, steady)
        other.join()
    return found


def _work(rank: int, store: str, steady: bool) -> float:
    distributed.init_process_group("gloo", store=distributed.FileStore(store, 2), rank=rank, world_size=2)
    try:
        mine = torch.full((8,), rank + 1.0)
        if rank and not steady:
            mine += time.time_ns() % 1_000_003
        halves = [torch.empty(8) for _ in range(2)]
        distributed.all_gather(halves, torch.full((8,), rank + 1.0))
        distributed.all_reduce(mine)
        waited = distributed.all_reduce(halves[1], async_op=True)
        waited.wait()
        both = mine * 2  # root: what the other process has sent
        return float((both + torch.stack(halves).sum()).sum())
    finally:
        distributed.destroy_process_group()
