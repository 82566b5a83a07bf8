"""torch.nn.MultiheadAttention with its projections computed by tcgemm."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tcgemm import dtypes
from tcgemm.nn import exchange
from tcgemm.nn.constant import ConstantWeights
from tcgemm.nn.linear import Linear
from tcgemm.ops import functional
from tcgemm.ops.arguments import check_flag

_NAME = "tcgemm.nn.MultiheadAttention"


class MultiheadAttention(ConstantWeights, torch.nn.MultiheadAttention):
    """torch.nn.MultiheadAttention whose projections of query, key, value and output are tcgemm's.

    Example:
        >>> layer = tcgemm.nn.MultiheadAttention(32, 4, batch_first=True)
        >>> x = torch.randn(2, 10, 32)
        >>> layer(x, x, x)[0].shape
        torch.Size([2, 10, 32])

    Arguments, initialisation, state_dict and results are as in torch.nn.MultiheadAttention. The
    attention itself is torch's scaled_dot_product_attention. `out_proj` is called as a module, so
    hooks on it run, and swap_linear can exchange it. torch's fast path for inference reads the
    weights and calls no module, so this class never takes it. NestedTensors need it and are
    refused.

    `batch_invariant=True` makes a row of each projection independent of the other rows, as in
    tcgemm.nn.Linear. The attention between them is torch's, which does not promise it.
    `constant_weights` is that of tcgemm.nn.Linear, for all projections.
    """

    batch_invariant: bool = False

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | str | None = None,
        *,
        batch_invariant: bool = False,
        constant_weights: bool = False,
    ) -> None:
        dtype = dtypes.of("tcgemm.nn.MultiheadAttention", "dtype", dtype)
        check_flag("nn.MultiheadAttention", "batch_invariant", batch_invariant)
        super().__init__(
            *(embed_dim, num_heads, dropout, bias, add_bias_kv, add_zero_attn),
            *(kdim, vdim, batch_first, device, dtype),
        )
        dense = self.out_proj
        self.batch_invariant = batch_invariant
        self.constant_weights = constant_weights
        out_proj = Linear(
            *(self.embed_dim, self.embed_dim, dense.bias is not None, "meta"),
            batch_invariant=batch_invariant,
            constant_weights=constant_weights,
        )
        out_proj.weight, out_proj.bias = dense.weight, dense.bias
        self.out_proj = out_proj

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Returns (output, attention weights or None); see torch.nn.MultiheadAttention."""
        _check(query, key, value, attn_mask, is_causal)
        batched = query.dim() == 3
        # From here on the batch is the first dimension, and the sequence the second.
        q, k, v = self._project(query, key, value)
        if not batched:
            q, k, v = (x.unsqueeze(0) for x in (q, k, v))
            if key_padding_mask is not None:
                key_padding_mask = key_padding_mask.unsqueeze(0)
        elif not self.batch_first:
            q, k, v = (x.transpose(0, 1) for x in (q, k, v))
        mask, causal = self._mask(q, k, attn_mask, key_padding_mask, is_causal, need_weights)
        q, k, v = (
            x.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2) for x in (q, k, v)
        )
        k, v, mask = self._extend(k, v, mask)
        dropout = self.dropout if self.training else 0.0
        if need_weights:
            weights = (q * self.head_dim**-0.5) @ k.transpose(-2, -1)
            weights = weights if mask is None else weights + mask.to(weights.dtype)
            weights = torch.softmax(weights, dim=-1)
            weights = F.dropout(weights, dropout) if dropout else weights
            output = weights @ v
            weights = weights.mean(dim=1) if average_attn_weights else weights
            weights = weights if batched else weights.squeeze(0)
        else:
            weights = None
            output = F.scaled_dot_product_attention(q, k, v, mask, dropout, causal)
        sequence_first = batched and not self.batch_first
        output = output.permute((2, 0, 1, 3) if sequence_first else (0, 2, 1, 3)).flatten(2)
        return self.out_proj(output if batched else output.squeeze(0)), weights

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> Sequence[Tensor]:
        """The projected query, key and value. Inputs that are one tensor share a product."""
        weight, bias, size = self.in_proj_weight, self.in_proj_bias, self.embed_dim
        options: dict[str, Any] = {"batch_invariant": self.batch_invariant}
        if self._constant is not None and self._is_constant():
            options["constant_b"] = True
        linear = functools.partial(functional.linear, **options)
        if weight is not None and query is key and key is value:
            return linear(query, weight, bias).chunk(3, dim=-1)
        biases = (None, None, None) if bias is None else bias.chunk(3)
        if weight is None:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        elif key is value:
            both = linear(key, weight[size:], None if bias is None else bias[size:])
            return linear(query, weight[:size], biases[0]), *both.chunk(2, dim=-1)
        else:
            weights = weight.chunk(3)
        inputs = (query, key, value)
        return [linear(*operands) for operands in zip(inputs, weights, biases, strict=True)]

    def _watched(self) -> Sequence[Tensor]:
        names = ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight")
        weights = [self._parameters.get(name) for name in names]
        return [weight for weight in weights if weight is not None]

    def _mask(self, q, k, attn_mask, key_padding_mask, is_causal, need_weights):
        """(the sum of both masks, is attention causal without a mask?). The sum is in floating
        point, (batch or 1, heads or 1, L or 1, S), or None."""
        batch, rows, columns = q.shape[0], q.shape[1], k.shape[1]
        if is_causal and key_padding_mask is None and not need_weights:
            return None, True
        mask = None
        if attn_mask is not None:
            shapes = ((rows, columns), (batch * self.num_heads, rows, columns))
            mask = _as_float(attn_mask, "attn_mask", shapes, q.dtype)
            mask = mask if mask.dim() == 2 else mask.unflatten(0, (batch, self.num_heads))
        if key_padding_mask is not None:
            padding = _as_float(key_padding_mask, "key_padding_mask", ((batch, columns),), q.dtype)
            padding = padding.view(batch, 1, 1, columns)
            mask = padding if mask is None else mask + padding
        return mask, False

    def _extend(self, k, v, mask):
        """Appends the elements of add_bias_kv and add_zero_attn to the keys and values."""
        batch, heads, _, size = k.shape
        if self.bias_k is not None and self.bias_v is not None:
            k = torch.cat([k, self.bias_k.view(1, heads, 1, size).expand(batch, -1, -1, -1)], 2)
            v = torch.cat([v, self.bias_v.view(1, heads, 1, size).expand(batch, -1, -1, -1)], 2)
            mask = None if mask is None else F.pad(mask, (0, 1))
        if self.add_zero_attn:
            k, v = F.pad(k, (0, 0, 0, 1)), F.pad(v, (0, 0, 0, 1))
            mask = None if mask is None else F.pad(mask, (0, 1))
        return k, v, mask


def _check(query, key, value, attn_mask, is_causal):
    dims = (query.dim(), key.dim(), value.dim())
    if any(x.is_nested for x in (query, key, value)):
        raise RuntimeError(
            f"{_NAME}: query, key or value is a NestedTensor, which torch takes only on its fast "
            "path; pass padded tensors with key_padding_mask, or leave this module out of "
            "swap_linear."
        )
    if dims not in ((2, 2, 2), (3, 3, 3)) or key.shape[:-1] != value.shape[:-1]:
        shapes = ", ".join(str(tuple(x.shape)) for x in (query, key, value))
        raise RuntimeError(
            f"{_NAME}: query, key and value have the shapes {shapes}, but all must have 3 "
            "dimensions, or 2 without a batch, and there must be as many keys as values; reshape "
            "them."
        )
    if is_causal and attn_mask is None:
        raise RuntimeError(
            f"{_NAME}: is_causal is True without attn_mask, but it is a hint that attn_mask is "
            "causal; pass torch.nn.Transformer.generate_square_subsequent_mask(length) as "
            "attn_mask."
        )


def _as_float(
    mask: Tensor, name: str, shapes: Sequence[tuple[int, ...]], dtype: torch.dtype
) -> Tensor:
    """The mask in floating point, to be added to the scores: True becomes -inf."""
    if tuple(mask.shape) not in shapes:
        expected = " or ".join(str(tuple(shape)) for shape in shapes)
        raise RuntimeError(
            f"{_NAME}: {name} has the shape {tuple(mask.shape)}, but {expected} is expected; "
            "reshape it."
        )
    if mask.dtype is torch.bool:
        return torch.zeros_like(mask, dtype=dtype).masked_fill_(mask, float("-inf"))
    if not mask.is_floating_point():
        raise RuntimeError(
            f"{_NAME}: {name} is {mask.dtype}, but a mask is torch.bool (True: the position is "
            "left out) or floating point (added to the scores); convert it with .bool()."
        )
    return mask


def _state(module: Any, prepare: bool = True, batch_invariant: bool = False) -> dict[str, Any]:
    return {"batch_invariant": batch_invariant}


exchange.register(
    exchange.Exchange(
        layer=MultiheadAttention,
        options=exchange.LAYERS[Linear].options,
        names=("batch_invariant",),
        state=_state,
        why_not=lambda module, **_: exchange.LAYERS[Linear].why_not(module.out_proj),
        source=exchange.source_of(torch.nn.MultiheadAttention),
        to=Linear,
    )
)
