"""A decoder of Llama's shape, of plain torch modules and random weights.

With the same weights it computes what LlamaForCausalLM of transformers computes.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

HEAD = "head"  # the name of the layer that makes logits
THETA = 5e5  # the base of the rotary frequencies
EPS = 1e-5  # of RMSNorm
SPREAD = 0.02  # the standard deviation of the weights, Llama's initializer_range
Pair = tuple[Tensor, Tensor]
Cache = list[Pair]  # keys and values of each block: (batch, kv_heads, tokens, d)


@dataclass(frozen=True)
class Sizes:
    """The sizes of a model."""

    blocks: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    vocabulary: int = 32768
    positions: int = 2048

    @property
    def width(self) -> int:
        """Elements of one attention head."""
        return self.hidden // self.heads


class Attention(nn.Module):
    def __init__(self, sizes: Sizes):
        super().__init__()
        self.width = sizes.width
        kv = sizes.kv_heads * self.width
        self.q = nn.Linear(sizes.hidden, sizes.hidden, bias=False)
        self.k = nn.Linear(sizes.hidden, kv, bias=False)
        self.v = nn.Linear(sizes.hidden, kv, bias=False)
        self.o = nn.Linear(sizes.hidden, sizes.hidden, bias=False)

    def forward(self, x: Tensor, rotation: Pair, cache: Pair | None, start: int) -> Tensor:
        q, k, v = (
            layer(x).unflatten(-1, (-1, self.width)).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        q, k = rotated(q, *rotation), rotated(k, *rotation)
        if cache is not None:
            end = start + x.shape[1]
            for buffer, values in zip(cache, (k, v), strict=True):
                buffer[:, :, start:end].copy_(values)
            k, v = (buffer[:, :, :end] for buffer in cache)
        # One query sees all keys; several queries are a prompt, which starts at 0.
        causal = x.shape[1] > 1
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
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
        self.attention_norm = nn.RMSNorm(sizes.hidden, EPS)
        self.attention = Attention(sizes)
        self.mlp_norm = nn.RMSNorm(sizes.hidden, EPS)
        self.mlp = Mlp(sizes)

    def forward(self, x: Tensor, rotation: Pair, cache: Pair | None, start: int) -> Tensor:
        x = x + self.attention(self.attention_norm(x), rotation, cache, start)
        return x + self.mlp(self.mlp_norm(x))


class Decoder(nn.Module):
    """ids (batch, tokens) -> logits of the last token, (batch, vocabulary).

    With labels (batch, tokens) it returns the mean cross entropy of all tokens, of float32 logits.
    With a cache, the ids stand at the positions from `start` on, and their keys and values are
    stored there. They are one token, or a prompt with start 0.
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, sizes: Sizes):
        super().__init__()
        self.sizes = sizes
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.hidden)
        self.blocks = nn.ModuleList(Block(sizes) for _ in range(sizes.blocks))
        self.norm = nn.RMSNorm(sizes.hidden, EPS)
        self.head = nn.Linear(sizes.hidden, sizes.vocabulary, bias=False)
        frequency = THETA ** (-torch.arange(0, sizes.width, 2).float() / sizes.width)
        angle = torch.outer(torch.arange(sizes.positions).float(), frequency).repeat(1, 2)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(
        self,
        ids: Tensor,
        labels: Tensor | None = None,
        cache: Cache | None = None,
        start: int = 0,
    ) -> Tensor:
        count = ids.shape[1]
        x = self.embedding(ids)
        rotation = (self.cos[start : start + count], self.sin[start : start + count])
        for index, block in enumerate(self.blocks):
            x = block(x, rotation, cache[index] if cache else None, start)
        if labels is None:
            return self.head(self.norm(x[:, -1]))
        logits = self.head(self.norm(x)).float()
        return functional.cross_entropy(logits.flatten(0, 1), labels.flatten())

    def cache(self, batch: int, tokens: int) -> Cache:
        """Memory for the keys and values of so many tokens."""
        like = self.embedding.weight
        shape = (batch, self.sizes.kv_heads, tokens, self.sizes.width)
        return [(like.new_zeros(shape), like.new_zeros(shape)) for _ in range(self.sizes.blocks)]


def build(sizes: Sizes, device: torch.device | str, dtype: torch.dtype, seed: int = 0) -> Decoder:
    """The model in eval mode, with the same random weights in every run on a device."""
    with torch.device(device):
        model = Decoder(sizes)
    torch.manual_seed(seed)
    for parameter in model.parameters():
        if parameter.ndim == 2:  # the weights of RMSNorm stay 1
            nn.init.normal_(parameter, std=SPREAD)
    return model.to(dtype).eval().requires_grad_(False)
