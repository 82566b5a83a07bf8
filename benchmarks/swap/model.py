"""A decoder of Llama's shape, of plain torch modules and random weights, for the swap benchmark."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

HEAD = "head"  # the name of the layer that makes logits


@dataclass(frozen=True)
class Sizes:
    """The default has the decoder blocks of Llama 3 8B, but 6 of them and a smaller vocabulary."""

    blocks: int = 6
    hidden: int = 4096
    intermediate: int = 14336
    heads: int = 32
    kv_heads: int = 8
    vocabulary: int = 32000
    positions: int = 2048


class Attention(nn.Module):
    def __init__(self, sizes: Sizes):
        super().__init__()
        self.width = sizes.hidden // sizes.heads
        kv = sizes.kv_heads * self.width
        self.q = nn.Linear(sizes.hidden, sizes.hidden, bias=False)
        self.k = nn.Linear(sizes.hidden, kv, bias=False)
        self.v = nn.Linear(sizes.hidden, kv, bias=False)
        self.o = nn.Linear(sizes.hidden, sizes.hidden, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        q, k, v = (
            layer(x).unflatten(-1, (-1, self.width)).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o(y.transpose(1, 2).flatten(-2))


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


class Mlp(nn.Module):
    def __init__(self, sizes: Sizes):
        super().__init__()
        self.gate = nn.Linear(sizes.hidden, sizes.intermediate, bias=False)
        self.up = nn.Linear(sizes.hidden, sizes.intermediate, bias=False)
        self.down = nn.Linear(sizes.intermediate, sizes.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, sizes: Sizes):
        super().__init__()
        self.attention_norm = nn.RMSNorm(sizes.hidden)
        self.attention = Attention(sizes)
        self.mlp_norm = nn.RMSNorm(sizes.hidden)
        self.mlp = Mlp(sizes)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), cos, sin)
        return x + self.mlp(self.mlp_norm(x))


class Decoder(nn.Module):
    """ids (batch, tokens) -> logits of the last token, (batch, vocabulary). It has no cache."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.hidden)
        self.blocks = nn.ModuleList(Block(sizes) for _ in range(sizes.blocks))
        self.norm = nn.RMSNorm(sizes.hidden)
        self.head = nn.Linear(sizes.hidden, sizes.vocabulary, bias=False)
        width = sizes.hidden // sizes.heads
        frequency = 5e5 ** (-torch.arange(0, width, 2).float() / width)
        angle = torch.outer(torch.arange(sizes.positions).float(), frequency).repeat(1, 2)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        cos, sin = (table[: ids.shape[1]] for table in (self.cos, self.sin))
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.head(self.norm(x[:, -1]))


def build(sizes: Sizes, device: torch.device | str, dtype: torch.dtype) -> Decoder:
    """The model in eval mode, with the same random weights in every run on a device."""
    torch.manual_seed(0)
    with torch.device(device):
        model = Decoder(sizes)
    return model.to(dtype).eval().requires_grad_(False)
