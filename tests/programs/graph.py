"""A graph network that adds messages into its nodes by ``scatter_add`` and ``index_add``."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Layer(nn.Module):
    """Messages along edges, and their sums at nodes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.message, self.own = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Any, edges: Any) -> Any:
        source, target = edges
        messages = self.message(x[source])
        summed = torch.zeros_like(x).scatter_add(0, target[:, None].expand_as(messages), messages)
        added = torch.zeros_like(x).index_add(0, target, messages.tanh())
        return torch.relu(self.own(x) + summed + added)


def step() -> float:
    """Train once."""
    torch.manual_seed(0)
    x, edges = torch.randn(40, 8), torch.randint(0, 40, (2, 200))
    layers = nn.ModuleList([Layer(8), Layer(8)])
    for layer in layers:
        x = layer(x, edges)
    loss = x.square().mean()
    loss.backward()
    torch.optim.Adam(layers.parameters()).step()
    return float(loss.detach())


if __name__ == "__main__":
    print(step())
