"""The way back without a report: swap_linear(model, to=torch.nn.Linear)."""

import torch
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from tcgemm.nn import exchange
from tcgemm.nn.attention import MultiheadAttention
from tcgemm.nn.conv1d import Conv1D, QuantConv1D
from tcgemm.nn.linear import Linear
from tcgemm.nn.quant_linear import QuantLinear
from tcgemm.nn.sparse_linear import SparseLinear24

# Attributes of torch.nn.Linear that the layers have otherwise, and `activation`, which it has not.
_STATE = ("_parameters", "_buffers", "_non_persistent_buffers_set")
_NAMES = (*_STATE, "activation")


def _state_of(linear):
    return {name: vars(linear)[name] for name in _STATE}


def _dense(module):
    """The weight of a sparse layer is a new Parameter; its bias stays the same."""
    linear = module.to_linear()
    linear.bias = module.bias
    return _state_of(linear)


def _conv1d(module, dtype=None):
    """The state of transformers' Conv1D, whose weight is the transpose."""
    linear = module.to_linear(dtype)
    linear.weight = torch.nn.Parameter(linear.weight.detach().t().contiguous())
    return _state_of(linear)


def _why_activated(module):
    if module.activation is None:
        return None
    return f"has the fused activation {module.activation!r}, which torch.nn.Linear has not"


def _why_not_attention(module):
    if exchange.layer_of(module.out_proj) is None:
        return None
    kind = type(module.out_proj).__name__
    return f"has an out_proj that stays a {kind}, which torch.nn.MultiheadAttention would not call"


def _why_not_conv1d(module):
    if module.original is not None:
        return None
    kind = type(module).__name__
    return f"was made as a tcgemm.nn.{kind}, so there is no class of transformers to go back to"


def _register(layer, state, why_not, becomes, names=()):
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


_LINEAR_STATES = {
    Linear: lambda module, dtype=None: _state_of(module),
    QuantLinear: lambda module, dtype=None: _state_of(module.to_linear(dtype)),
    SparseLinear24: lambda module, dtype=None: _dense(module),
}


def _torch_linear(module, is_projection):
    """torch.nn.MultiheadAttention has output projections of another class."""
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
