"""Dropout that nobody has seeded, and a step that a set orders; in each process other numbers."""

from __future__ import annotations

import torch
from torch import nn


def step() -> float:
    """Compute once."""
    torch.seed()
    weight = torch.linspace(-1, 1, 64).reshape(8, 8).requires_grad_()
    y = nn.functional.dropout(torch.ones(8, 8) @ weight, 0.5)  # root: other generator state
    y.square().sum().backward()
    return float(y.sum().detach())


if __name__ == "__main__":
    print(step())
