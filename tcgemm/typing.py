"""Types for annotations: the words that arguments take, and the keyword arguments of the products.

    def layer(x: Tensor, activation: tcgemm.typing.Activation | None = None) -> Tensor: ...
    def project(x: Tensor, w: Tensor, **options: Unpack[tcgemm.typing.Options]) -> Tensor: ...

Each type is the one list of its words: code that checks an argument takes them from it, by words().
"""

from typing import Any, Literal, TypedDict, get_args

import torch

Activation = Literal["relu", "gelu", "gelu_tanh", "silu"]
# precision of products of float32 operands, and of float8 operands
Float32Precision = Literal["highest", "high", "medium", "prepared"]
Float8Precision = Literal["promoted", "fast"]
Precision = Literal[Float32Precision, Float8Precision]

# dtypes by their short names; "tf32" is float32 operands that are rounded to tf32
DTypeName = Literal["f16", "bf16", "f32", "f64", "e4m3", "e5m2", "s8", "u8"]
MeasuredDType = Literal[DTypeName, "tf32"]
# how b and a lie in memory, in this order; T: as the transpose of a row-major matrix
Layout = Literal["TN", "NN", "TT", "NT"]
# which elements share a scale: of a tensor, and of the weight of a layer in 8 bits
Granularity = Literal["tensor", "row", "1x128", "128x128"]
WeightGranularity = Literal["tensor", "row", "128x128"]

# semi-structured sparsity: how many elements of a group are kept, and how they are chosen
SparsePattern = Literal["2:4", "1:2"]
PruneMethod = Literal["magnitude", "transposable", "mask"]
SparseGradient = Literal["masked", "straight_through"]

# functions of torch that tcgemm.compare measures beside tcgemm
TorchBaseline = Literal["torch", "torch.compile"]


def words(literal: Any) -> tuple[str, ...]:
    """The words of one of the types above, in their order."""
    return get_args(literal)


class LinearOptions(TypedDict, total=False):
    """The keyword arguments of tcgemm.linear, whose bias is positional; without amax."""

    activation: Activation | None
    residual: torch.Tensor | None
    alpha: float
    scale_a: torch.Tensor | None
    scale_b: torch.Tensor | None
    zero_a: torch.Tensor | None
    zero_b: torch.Tensor | None
    scale_out: torch.Tensor | None
    out_dtype: torch.dtype | None
    acc_dtype: torch.dtype | None
    precision: Precision | None
    out: torch.Tensor | None


class Options(LinearOptions, total=False):
    """The keyword arguments of mm, bmm, matmul, addmm and baddbmm; without amax and beta."""

    bias: torch.Tensor | None
