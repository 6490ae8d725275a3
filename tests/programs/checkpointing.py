"""Gradient checkpointing in both ways: the forward phase runs again in the backward phase, dropout with it."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def step() -> tuple[float, float]:
    """Train once; return the loss and the norm of the gradients."""
    torch.manual_seed(0)
    layers = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.Dropout(0.2)) for _ in range(4))
    x = torch.randn(8, 16, requires_grad=True)
    for number, layer in enumerate(layers):
        x = checkpoint(layer, x, use_reentrant=bool(number % 2))
    loss = x.square().mean()
    loss.backward()
    norm = sum(float(one.grad.square().sum()) for one in layers.parameters())
    return float(loss.detach()), norm


if __name__ == "__main__":
    print(step())
