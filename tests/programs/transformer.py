"""A small transformer with a table that is gathered from by index, whose backward races on two threads."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional


class Gather(nn.Module):
    """Adds a row of a table to each token."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(16, width))

    def forward(self, x: Any, index: Any) -> Any:
        return x + self.table[index]  # root: its backward adds rows to the table in any order


class Block(nn.Module):
    """Attention and two linear layers."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.heads, self.drop = heads, nn.Dropout(0.1)

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        qkv = self.qkv(self.norms[0](x)).view(batch, length, 3, self.heads, width // self.heads)
        y = functional.scaled_dot_product_attention(*qkv.permute(2, 0, 3, 1, 4), is_causal=True)
        x = x + self.drop(self.out(y.transpose(1, 2).reshape(batch, length, width)))
        return x + self.mlp(self.norms[1](x))


class Net(nn.Module):
    """Embeddings, blocks, a head."""

    def __init__(self, width: int, layers: int, words: int) -> None:
        super().__init__()
        self.embedding, self.gather = nn.Embedding(words, width), Gather(width)
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(layers))
        self.head = nn.Linear(width, words)

    def forward(self, tokens: Any, index: Any) -> Any:
        x = self.gather(self.embedding(tokens), index)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Training:
    """A model, its optimizer and a batch."""

    def __init__(
        self, width: int = 32, layers: int = 2, batch: int = 2, length: int = 16, words: int = 64
    ) -> None:
        torch.manual_seed(0)
        self.net = Net(width, layers, words)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), 1e-3)
        self.tokens, self.targets = (torch.randint(0, words, (batch, length)) for _ in range(2))
        self.index = torch.randint(0, 16, (batch, length))

    def step(self) -> float:
        """Train once; return the loss."""
        self.optimizer.zero_grad()
        logits = self.net(self.tokens, self.index)
        loss = functional.cross_entropy(logits.flatten(0, 1), self.targets.flatten())
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())


if __name__ == "__main__":
    # Of a size at which the gather races.
    training = Training(width=128, layers=2, batch=4, length=128)
    print([training.step() for _ in range(2)])
