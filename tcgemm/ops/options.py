"""The types of the keyword arguments that all products share, for editors and type checkers."""

from typing import Literal, TypedDict

import torch

Activation = Literal["relu", "gelu", "gelu_tanh", "silu"]
Precision = Literal["highest", "high", "medium", "promoted", "fast"]


class LinearOptions(TypedDict, total=False):
    """Those of tcgemm.linear, whose bias is positional."""

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
    """Those of the other products."""

    bias: torch.Tensor | None
