"""The way back without a report: swap_linear(model, to=torch.nn.Linear)."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from tcgemm.nn import exchange
from tcgemm.nn.attention import MultiheadAttention
from tcgemm.nn.conv1d import Conv1D, QuantConv1D
from tcgemm.nn.float8_linear import Float8Linear
from tcgemm.nn.linear import Linear
from tcgemm.nn.packed_linear import PackedLinear
from tcgemm.nn.quant_linear import QuantLinear
from tcgemm.nn.sparse_linear import SparseLinear24
from tcgemm.nn.stored_weight import StoredWeight

_LAYERS = (
    *(Linear, Float8Linear, QuantLinear, PackedLinear, SparseLinear24),
    *(MultiheadAttention, Conv1D, QuantConv1D),
)
# The attributes whose values differ between torch.nn.Linear and the layers.
_STATE = ("_parameters", "_buffers", "_non_persistent_buffers_set")


def _state(module: Any, dtype: torch.dtype | None = None) -> dict[str, Any]:
    linear: Any = module
    if isinstance(module, StoredWeight):
        linear = linear.to_linear(dtype)
    elif isinstance(module, SparseLinear24):
        linear = module.to_linear()
        linear.register_parameter("bias", module.bias)  # an optimizer may have it
    if isinstance(module, QuantConv1D):  # the weight of transformers' Conv1D is the transpose
        linear.weight = torch.nn.Parameter(linear.weight.detach().t().contiguous())
    state = {name: vars(linear)[name] for name in _STATE}
    if isinstance(module, Float8Linear):  # without the buffers of delayed scaling
        state["_buffers"] = {k: v for k, v in module._buffers.items() if k not in module._BUFFERS}
    return state


def _why_not(module: Any, **_options: Any) -> str | None:
    if isinstance(module, (Conv1D, QuantConv1D)):
        if module.original is None:
            why_not = "so there is no class of transformers to go back to"
            return f"was made as a tcgemm.nn.{type(module).__name__}, {why_not}"
    elif isinstance(module, MultiheadAttention):
        if exchange.layer_of(module.out_proj):
            stays = f"has an out_proj that stays a {type(module.out_proj).__name__}"
            return f"{stays}, which torch.nn.MultiheadAttention would not call"
    elif module.activation is not None:
        return f"has the fused activation {module.activation!r}, but torch.nn.Linear has none"
    return None


def _becomes(module: Any, is_projection: bool) -> Any:
    if isinstance(module, MultiheadAttention):
        return torch.nn.MultiheadAttention
    if isinstance(module, (Conv1D, QuantConv1D)):
        return module.original
    # Output projections of torch.nn.MultiheadAttention have a class of their own.
    return NonDynamicallyQuantizableLinear if is_projection else torch.nn.Linear


for _layer in _LAYERS:
    exchange.register(
        exchange.Exchange(
            layer=torch.nn.Linear,
            options=("dtype",),
            # torch.nn.Linear has no `activation`.
            names=() if _layer in (MultiheadAttention, Conv1D) else (*_STATE, "activation"),
            state=_state,
            why_not=_why_not,
            source=exchange.source_of(_layer),
            to=torch.nn.Linear,
            becomes=_becomes,
        )
    )
