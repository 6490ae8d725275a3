"""A program in which nothing differs: ops that draw, change their arguments, alias them, or return no tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


def step() -> list[Any]:
    """Compute; what is returned depends on every op."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(6, 8)
    x.t().mul_(torch.rand(8, 6, generator=generator))
    x[:, ::2].add_(x[:, 1::2])
    x.add_(x)
    x[1:].copy_(x[:-1].clone())
    torch.add(x, 1, out=x)
    y = torch.empty(6, 8).normal_(generator=generator).uniform_().bernoulli_(0.5)
    z = torch.empty(4, 4)
    z[:2], z[2:] = 1, 2
    values, places = torch.sort(torch.randint(0, 3, (40,)), stable=True)
    noise = [
        nn.functional.dropout(x),
        torch.multinomial(torch.ones(20), 5),
        torch.randperm(9),
        nn.functional.rrelu(x, training=True),
    ]
    cell = nn.LSTM(8, 8, 2, dropout=0.3)
    sequence, _ = cell(x[None])
    sparse = torch.eye(6).to_sparse() @ x
    bag = nn.EmbeddingBag(10, 3, mode="max")(torch.randint(10, (4, 5)))
    losses = nn.functional.ctc_loss(
        torch.randn(20, 2, 5).log_softmax(2),
        torch.randint(1, 5, (2, 6)),
        torch.full((2,), 20),
        torch.full((2,), 6),
    )
    number = x.sum().item() + bool(torch.equal(x, x)) + int((y > 0).sum())
    unique, counts = torch.unique(values, return_counts=True)
    # What autograd and generators know: one change is one version, and one execution draws.
    known = [x._version, y._version, z._version, torch.get_rng_state(), generator.get_state()]
    return [x, y, z, values, places, *noise, sequence, sparse, bag, losses, number, unique, counts, *known]


if __name__ == "__main__":
    step()
