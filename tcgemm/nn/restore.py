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

# The attributes whose values differ between torch.nn.Linear and the layers, and `activation`, which
# torch.nn.Linear does not have.
_STATE = ("_parameters", "_buffers", "_non_persistent_buffers_set")
_NAMES = (*_STATE, "activation")


def _state_of(linear: torch.nn.Module) -> dict[str, Any]:
    return {name: vars(linear)[name] for name in _STATE}


def _dense(module: SparseLinear24) -> dict[str, Any]:
    """The weight of a sparse layer is a new Parameter; its bias stays the same."""
    linear = module.to_linear()
    linear.register_parameter("bias", module.bias)
    return _state_of(linear)


def _conv1d(module: QuantConv1D, dtype: torch.dtype | None = None) -> dict[str, Any]:
    """The state of transformers' Conv1D, whose weight is the transpose."""
    linear = module.to_linear(dtype)
    linear.weight = torch.nn.Parameter(linear.weight.detach().t().contiguous())
    return _state_of(linear)


def _why_activated(module: Any) -> str | None:
    if module.activation is None:
        return None
    return f"has the fused activation {module.activation!r}, but torch.nn.Linear has none"


def _why_not_attention(module: MultiheadAttention) -> str | None:
    if exchange.layer_of(module.out_proj) is None:
        return None
    kind = type(module.out_proj).__name__
    return f"has an out_proj that stays a {kind}, which torch.nn.MultiheadAttention would not call"


def _why_not_conv1d(module: Conv1D | QuantConv1D) -> str | None:
    if module.original is not None:
        return None
    kind = type(module).__name__
    return f"was made as a tcgemm.nn.{kind}, so there is no class of transformers to go back to"


def _register(layer: type, state: Any, why_not: Any, becomes: Any, names: Any = ()) -> None:
    exchange.register(
        exchange.Exchange(
            layer=torch.nn.Linear,
            options=("dtype",),
            names=names,
            state=state,
            why_not=why_not,
            source=exchange.Source(
                f"tcgemm.nn.{layer.__name__}",
                lambda module: isinstance(module, layer),
                lambda module: type(module) is layer,
            ),
            to=torch.nn.Linear,
            becomes=becomes,
        )
    )


def _without_scales(module: Float8Linear) -> dict[str, Any]:
    """The buffers without the buffers of delayed scaling."""
    state = _state_of(module)
    state["_buffers"] = {k: v for k, v in module._buffers.items() if k not in module._BUFFERS}
    return state


_LINEAR_STATES = {
    Linear: lambda module, dtype=None: _state_of(module),
    Float8Linear: lambda module, dtype=None: _without_scales(module),
    QuantLinear: lambda module, dtype=None: _state_of(module.to_linear(dtype)),
    PackedLinear: lambda module, dtype=None: _state_of(module.to_linear(dtype)),
    SparseLinear24: lambda module, dtype=None: _dense(module),
}


def _torch_linear(module: torch.nn.Module, is_projection: bool) -> type[torch.nn.Linear]:
    """The class of the module: output projections of torch.nn.MultiheadAttention have another."""
    return NonDynamicallyQuantizableLinear if is_projection else torch.nn.Linear


for _layer, _state in _LINEAR_STATES.items():
    _register(_layer, _state, _why_activated, _torch_linear, _NAMES)
_register(
    MultiheadAttention,
    lambda module, dtype=None: {},
    _why_not_attention,
    lambda module, is_projection: torch.nn.MultiheadAttention,
)
_register(
    Conv1D,
    lambda module, dtype=None: {},
    _why_not_conv1d,
    lambda module, is_projection: module.original,
)
_register(
    QuantConv1D,
    _conv1d,
    _why_not_conv1d,
    lambda module, is_projection: module.original,
    _NAMES,
)
