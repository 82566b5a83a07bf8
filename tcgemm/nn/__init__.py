"""tcgemm's layers, and the exchange of a model's linear layers for them."""

from tcgemm.nn import restore  # noqa: F401  (registers the way back to torch.nn.Linear)
from tcgemm.nn.attention import MultiheadAttention
from tcgemm.nn.constant import constant_weights
from tcgemm.nn.conv1d import Conv1D, QuantConv1D
from tcgemm.nn.float8_linear import Float8Linear
from tcgemm.nn.linear import Linear
from tcgemm.nn.packed_linear import PackedLinear
from tcgemm.nn.quant_linear import QuantLinear
from tcgemm.nn.refresh import Refreshed, RefreshReport, refresh_weights
from tcgemm.nn.sparse_linear import SparseLinear24
from tcgemm.nn.swap import SwapReport, swap_linear

__all__ = [
    "Conv1D",
    "Float8Linear",
    "Linear",
    "MultiheadAttention",
    "PackedLinear",
    "QuantConv1D",
    "QuantLinear",
    "RefreshReport",
    "Refreshed",
    "SparseLinear24",
    "SwapReport",
    "constant_weights",
    "refresh_weights",
    "swap_linear",
]
