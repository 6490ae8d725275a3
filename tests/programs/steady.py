"""Training steps in which nothing differs where nothing races: mixed precision, checkpointing, convolutions."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tests.programs.transformer import Training


def transformer() -> tuple[list[float], float]:
    """Train several steps, and call an op for the first time behind them."""
    training = Training(width=16, layers=1)
    return [training.step() for _ in range(4)], float(training.net.head.weight.detach().abs().sum())


def amp() -> float:
    """Train with automatic mixed precision on the CPU, gradients scaled and clipped."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))
    optimizer = torch.optim.AdamW(net.parameters())
    scale = torch.tensor(1024.0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = functional.cross_entropy(net(torch.randn(8, 16)), torch.arange(8) % 4)
    (loss.float() * scale).backward()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.grad.div_(scale)
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    return float(loss.detach())


def checkpointing() -> tuple[float, float]:
    """Checkpoint in both ways: the forward phase runs again in the backward phase, dropout with it."""
    torch.manual_seed(0)
    layers = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.Dropout(0.2)) for _ in range(4))
    x = torch.randn(8, 16, requires_grad=True)
    for number, layer in enumerate(layers):
        x = checkpoint(layer, x, use_reentrant=bool(number % 2))
    loss = x.square().mean()
    loss.backward()
    norm = sum(float(one.grad.square().sum()) for one in layers.parameters())
    return float(loss.detach()), norm


class Residual(nn.Module):
    """Two convolutions and a way around them; each execution of a norm would move its running statistics on."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2)
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels) for _ in range(2))

    def forward(self, x: Any) -> Any:
        y = self.norms[0](self.convolutions[0](x)).relu_()
        return (x + self.norms[1](self.convolutions[1](y))).relu_()


def resnet() -> tuple[float, Any]:
    """Train once; return the loss and the running means."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3), Residual(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)
    )
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9, nesterov=True)
    loss = functional.cross_entropy(net(torch.randn(4, 3, 10, 10)), torch.tensor([0, 1, 2, 3]))
    loss.backward()
    optimizer.step()
    return float(loss.detach()), net[1].norms[0].running_mean
