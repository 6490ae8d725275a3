"""A training step with automatic mixed precision on the CPU, gradients scaled and clipped."""

from __future__ import annotations

import torch
from torch import nn


def step() -> float:
    """Train once."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))
    optimizer = torch.optim.AdamW(net.parameters())
    scale = torch.tensor(1024.0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(net(torch.randn(8, 16)), torch.arange(8) % 4)
    (loss.float() * scale).backward()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.grad.div_(scale)
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    return float(loss.detach())


if __name__ == "__main__":
    print(step())
