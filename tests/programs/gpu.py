"""Training on a GPU, with three ops whose rows differ on an H100; on a CPU none of them does. Nobody has located them there yet."""

from __future__ import annotations

import sys

import torch
from torch.nn import functional

from tests.programs.transformer import Training

torch.set_default_device(next(iter(sys.argv[1:]), "cuda"))
training = Training(width=64, layers=1, batch=2, length=32)
nodes = torch.randint(0, 64, (20000,))
edges = torch.randn(20000, 8, requires_grad=True)
volume = torch.randn(2, 4, 12, 12, 12, requires_grad=True)
row = torch.rand(20000, requires_grad=True)
for _ in range(2):
    training.step()
    total = torch.zeros(64, 8).index_add(0, nodes, edges)  # root
    pooled = functional.adaptive_max_pool3d(volume, 7)  # root: its backward
    product = torch.cumprod(1 + (row - 0.5) / 100, 0)  # root
    picked = edges.sum(1)[nodes]  # its backward sorts
    (total.square().sum() + pooled.square().sum() + product.sum() + picked.sum()).backward()
