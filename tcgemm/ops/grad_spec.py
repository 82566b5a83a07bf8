"""The form of a gradient, and its sum over dimensions in which the input was broadcast."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from tcgemm.ops import fused_backward

_new = tuple.__new__  # GradSpec(...) takes 0.2 us


class GradSpec(NamedTuple):
    """Shape, dtype and memory order of a gradient. It does not keep the input alive."""

    shape: torch.Size
    dtype: torch.dtype
    column_major: bool

    @staticmethod
    def of(tensor: Any) -> GradSpec:
        """The form of the gradient of this input."""
        strides = tensor.stride()
        # The strides of a traced call are symbols, hence bool().
        column_major = len(strides) > 1 and bool(strides[-2] == 1 and strides[-1] != 1)
        return _new(GradSpec, (tensor.shape, tensor.dtype, column_major))

    def row_sum_dtype(self, gradient: torch.Tensor) -> torch.dtype | None:
        """The dtype, if fused_backward writes it and all dimensions but the last are summed."""
        shape = self.shape
        rows = len(shape) == 1 or (len(shape) > 1 and math.prod(shape[:-1]) == 1)
        fuses = rows and gradient.dim() > 1 and self.dtype in fused_backward.DTYPES
        return self.dtype if fuses and shape[-1] == gradient.shape[-1] else None

    def shaped(self, sums: torch.Tensor) -> torch.Tensor:
        """The sums over all dimensions but the last in the shape of the gradient."""
        return sums if len(self.shape) == 1 else sums.view(self.shape)

    def reduce(self, gradient: Any, factor: float = 1.0) -> torch.Tensor:
        """factor * the gradient summed over broadcast dimensions, in the input's dtype.

        The sum is rounded once: a float32 input beside a 16-bit result gets a sum in float32.
        """
        wide = gradient.dtype
        if wide is not self.dtype and wide.itemsize <= self.dtype.itemsize:
            wide = torch.float64 if self.dtype is torch.float64 else torch.float32
        shape = gradient.shape
        if factor != 1.0 and wide.itemsize == 2:
            wide = torch.float32  # the sum may be too large for float16, and factor small
        if shape == self.shape:
            return (gradient if factor == 1.0 else gradient.to(wide) * factor).to(self.dtype)
        if wide is gradient.dtype:
            gradient = gradient.sum_to_size(self.shape)
        else:
            lead = len(shape) - len(self.shape)
            dims = [d for d in range(len(shape)) if d < lead or self.shape[d - lead] == 1]
            gradient = gradient.sum(dims, dtype=wide, keepdim=True).reshape(self.shape)
        return (gradient if factor == 1.0 else gradient * factor).to(self.dtype)
