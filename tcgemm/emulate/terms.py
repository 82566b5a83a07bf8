"""The terms of an epilogue, and the values after them."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tcgemm.emulate import lab_library


class _Epilogue(ctypes.Structure):
    """tcgemm::emulate::Epilogue of csrc/emulate/epilogue.h."""

    _fields_ = [
        *((name, ctypes.c_int32) for name in ("is_f64", "swap_ab", "relu")),
        *((name, ctypes.c_double) for name in ("alpha", "beta")),
        *((name, ctypes.c_int64) for name in ("batch", "m", "n")),
        *((name, ctypes.c_void_p) for name in ("values", "scale_a", "scale_b")),
        *((name, ctypes.c_int32) for name in ("one_scale_a", "one_scale_b")),
        *((name, ctypes.c_void_p) for name in ("c", "bias", "residual")),
    ]


@dataclass(frozen=True)
class Terms:
    """relu(alpha * scale_a * scale_b * sum + beta * c + bias) + residual."""

    scale_a: Tensor | None
    scale_b: Tensor | None
    c: Tensor | None
    beta: float
    bias: Tensor | None
    residual: Tensor | None
    alpha: float
    relu: bool

    def before_activation(self) -> Terms:
        """Those of the argument of the activation."""
        return replace(self, residual=None, relu=False)

    def of_integers(self, sums: Tensor) -> Tensor:
        """The int32 result, modulo 2^32."""
        values = sums * int(self.alpha)
        if self.c is not None:
            values = values + int(self.beta) * self.c.cpu().long()
        if self.bias is not None:
            values = values + self.bias.cpu().long()
        if self.relu:
            values = values.to(torch.int32).clamp(min=0).long()
        if self.residual is not None:
            values = values + self.residual.cpu().long()
        return values.to(torch.int32)

    def of_floats(self, sums: Tensor, swap_ab: bool) -> Tensor:
        """The values of the accumulator's dtype. `swap_ab`: the kernel computed the transpose."""
        values = sums.contiguous().clone()
        shape, dtype = values.shape, values.dtype
        addends = {
            "c": self.c if self.beta != 0 else None,
            "bias": self.bias,
            "residual": self.residual,
        }
        read = {
            name: x.cpu().to(dtype).expand(shape).contiguous()
            for name, x in addends.items()
            if x is not None
        }
        if self.scale_a is not None:
            read["scale_a"] = _scale(self.scale_a, shape[:-1], -1)
        if self.scale_b is not None:
            read["scale_b"] = _scale(self.scale_b, (*shape[:-2], shape[-1]), -2)
        call = _Epilogue(
            is_f64=dtype is torch.float64,
            swap_ab=swap_ab,
            relu=self.relu,
            alpha=self.alpha,
            beta=self.beta,
            batch=shape[:-2].numel(),
            m=shape[-2],
            n=shape[-1],
            values=values.data_ptr(),
            one_scale_a=self.scale_a is not None and self.scale_a.numel() == 1,
            one_scale_b=self.scale_b is not None and self.scale_b.numel() == 1,
            **{name: x.data_ptr() for name, x in read.items()},
        )
        lab_library.function("epilogue", _Epilogue)(ctypes.byref(call))
        return values


def _scale(scale: Tensor, shape: tuple[int, ...], dim: int) -> Tensor:
    """A value for each row or column; `dim`: the other one, which a matrix of scales has too."""
    scale = scale.cpu().float()
    if scale.dim() >= 2:
        scale = scale.squeeze(dim)
    return scale.expand(shape).contiguous()
