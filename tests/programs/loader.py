"""Batches that worker processes of a data loader make."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset[Any]):
    """Each item is made by ops, in another process."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, place: int) -> Any:
        x = torch.arange(8, dtype=torch.float32) + place
        return x, (x * x).sum()


def step() -> list[float]:
    """Train an epoch."""
    torch.manual_seed(0)
    net = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(net.parameters(), 1e-5)
    losses = []
    for x, y in DataLoader(Squares(), batch_size=4, shuffle=True, num_workers=2):
        loss = (net(x)[:, 0] - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


if __name__ == "__main__":
    print(step())
