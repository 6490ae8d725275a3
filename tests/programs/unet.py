"""A U-Net that scales up by interpolation and by the indices of its pooling."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional


class UNet(nn.Module):
    """One level down, by pooling, and up again, by both ways."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(24, 3, 3, padding=1)
        self.middle = nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x: Any) -> Any:
        wide = self.down(x).relu()
        pooled, indices = functional.max_pool2d(wide, 2, return_indices=True)
        low = self.middle(pooled).relu()
        unpooled = functional.max_unpool2d(low, indices, 2)
        scaled = functional.interpolate(low, scale_factor=2, mode="bilinear", align_corners=False)
        return self.up(torch.cat([wide, unpooled, scaled], 1))


def step() -> float:
    """Train once."""
    torch.manual_seed(0)
    net = UNet()
    x = torch.randn(2, 3, 16, 16)
    loss = functional.mse_loss(net(x), x)
    loss.backward()
    torch.optim.SGD(net.parameters(), 0.1, momentum=0.9).step()
    return float(loss.detach())


if __name__ == "__main__":
    print(step())
