"""What numpy and threads write into the memory of tensors, without any op."""

from __future__ import annotations

import threading
import time
from typing import Any

import torch


def step() -> float:
    """Compute on memory that is written behind PyTorch's back."""
    buffer = torch.zeros(64)
    known = buffer + 1
    threads = [threading.Thread(target=_write, args=(buffer.numpy(), number)) for number in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    read = buffer * 2  # root: changed between ops
    return float((read + known).sum())


def _write(memory: Any, number: int) -> None:
    """Leave what no other process leaves there."""
    memory[number::2] += time.time_ns() % 1_000_003


if __name__ == "__main__":
    print(step())
