"""A residual block with batch normalisation, whose running statistics each execution would move on."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Residual(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2)
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels) for _ in range(2))

    def forward(self, x: Any) -> Any:
        y = self.norms[0](self.convolutions[0](x)).relu_()
        return (x + self.norms[1](self.convolutions[1](y))).relu_()


def step() -> tuple[float, Any]:
    """Train once; return the loss and the running means."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3), Residual(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)
    )
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9, nesterov=True)
    loss = nn.functional.cross_entropy(net(torch.randn(4, 3, 10, 10)), torch.tensor([0, 1, 2, 3]))
    loss.backward()
    optimizer.step()
    return float(loss.detach()), net[1].norms[0].running_mean


if __name__ == "__main__":
    print(step())
