"""The names that files written by pickle and torch.save contain, and the objects they mean.

A pickle stores a class or a function as the name of its module and its own name. A file outlives
every move of the code. So public functions and classes are written as tcgemm.mm,
tcgemm.SparseTensor24 and tcgemm.nn.Linear, whichever module defines them, and WRITTEN has the other
names that tcgemm writes. They never change after a release.
"""

from collections.abc import Callable
from typing import Any

import torch

from tcgemm import nn
from tcgemm.operands.integers import BinaryTensor, Int4Tensor, binary_mm
from tcgemm.operands.integers import binary as binary_tensor
from tcgemm.operands.integers import int4 as int4_tensor
from tcgemm.operands.packed import PackedWeight, pack_weight
from tcgemm.operands.packed import view as packed_view
from tcgemm.operands.packed import weight as packed_weight
from tcgemm.operands.quant import weight as quantized_weight
from tcgemm.operands.quant.linear import quantized_linear
from tcgemm.operands.quant.quantize import dequantize, quantize
from tcgemm.operands.sparse import SparseTensor24, compress24, prune24
from tcgemm.operands.sparse import tensor as sparse_tensor
from tcgemm.ops import explanation, functional, invariance, prepared
from tcgemm.ops.grouped import grouped_mm
from tcgemm.ops.operators import PLAIN
from tcgemm.override import use

restored_sparse_tensor24: Callable[..., SparseTensor24] = sparse_tensor.restored
restored_prepared: Callable[..., prepared.Prepared] = prepared.restored
restored_packed_weight: Callable[..., PackedWeight] = packed_weight.restored
restored_packed_view: Callable[..., packed_view.PackedView] = packed_view.restored_view
restored_quantized_weight: Callable[..., quantized_weight.QuantizedWeight] = (
    quantized_weight.restored_quantized_weight
)
restored_int4_tensor: Callable[..., Int4Tensor] = int4_tensor.restored_int4
restored_binary_tensor: Callable[..., BinaryTensor] = binary_tensor.restored_binary
WRITTEN = (
    *("restored_sparse_tensor24", "restored_prepared", "restored_packed_weight"),
    *("restored_packed_view", "restored_quantized_weight"),
    *("restored_int4_tensor", "restored_binary_tensor"),
)
PUBLIC: dict[str, Any] = {
    **{op.name: getattr(functional, op.name) for op in PLAIN},
    "grouped_mm": grouped_mm,
    "check_layout": explanation.check_layout,
    "explain": explanation.explain,
    "batch_invariant": invariance.batch_invariant,
    "PackedWeight": PackedWeight,
    "pack_weight": pack_weight,
    "Prepared": prepared.Prepared,
    "prepare": prepared.prepare,
    "quantize": quantize,
    "dequantize": dequantize,
    "quantized_linear": quantized_linear,
    "SparseTensor24": SparseTensor24,
    "compress24": compress24,
    "prune24": prune24,
    "Int4Tensor": Int4Tensor,
    "BinaryTensor": BinaryTensor,
    "binary_mm": binary_mm,
    "constant_weights": nn.constant_weights,
    "refresh_weights": nn.refresh_weights,
    "swap_linear": nn.swap_linear,
    "use": use,
}
# torch.load(weights_only=True) calls these and nothing else: they check what the file holds. Files
# contain no such tensors besides, and SparseTensor24 itself takes any tensors.
SAFE: tuple[Callable[..., Any], ...] = (
    sparse_tensor.restored,
    prepared.restored,
    packed_weight.restored,
    packed_view.restored_view,
    quantized_weight.restored_quantized_weight,
    int4_tensor.restored_int4,
    binary_tensor.restored_binary,
)


def register() -> None:
    """Makes every name importable, and the names of SAFE loadable with weights_only=True."""
    for name in WRITTEN:
        function = globals()[name]
        function.__module__ = __name__
        function.__name__ = function.__qualname__ = name
    for name, value in PUBLIC.items():
        value.__module__ = "tcgemm"
        value.__qualname__ = name
    for name in nn.__all__:
        if name not in PUBLIC:
            getattr(nn, name).__module__ = "tcgemm.nn"
    torch.serialization.add_safe_globals(list(SAFE))
