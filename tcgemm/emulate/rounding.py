"""Conversions of operands and results, with the roundings of the kernels."""

from __future__ import annotations

import torch
from torch import Tensor

LARGEST = {torch.float8_e4m3fn: 448.0, torch.float8_e5m2: 57344.0}
# The bits of NaN, and the integers that have them.
NAN = {torch.float32: 0x7FFFFFFF, torch.float16: 0x7FFF, torch.bfloat16: 0x7FFF}
NAN |= dict.fromkeys(LARGEST, 0x7F)
WORDS = {torch.float32: torch.int32, torch.float16: torch.int16, torch.bfloat16: torch.int16}
WORDS |= dict.fromkeys(LARGEST, torch.uint8)


def operand(x: Tensor, input_type: str) -> Tensor:
    """The operand as the tensor cores read it: float32 is widened to float64, or rounded."""
    if input_type == "f64":
        return x.double()
    if x.dtype is not torch.float32:
        return x
    return round_to_tf32(x) if input_type == "tf32" else to(x, torch.bfloat16)


def round_to_tf32(x: Tensor) -> Tensor:
    """float32 rounded to the 10 fraction bits of tf32, to nearest even. Inf and NaN stay."""
    bits = x.contiguous().view(torch.int32)
    rounded = (bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF
    return torch.where(x.isfinite(), rounded.view(torch.float32), x)


def from_sums(sums: Tensor) -> Tensor:
    """The accumulators as the epilogue has them: float64, or float32."""
    if sums.dtype is torch.int64:  # of integers, modulo 2^32
        return sums.to(torch.int32).float()
    return sums if sums.dtype is torch.float64 else sums.float()


def to(values: Tensor, dtype: torch.dtype) -> Tensor:
    """The values rounded once to nearest even. Results of 8 bits saturate."""
    if dtype is torch.int8:
        integers = values.nan_to_num(nan=0.0).round().clamp(-128, 127)
        return integers.to(torch.int8)
    if dtype in LARGEST:
        values = values.clamp(-LARGEST[dtype], LARGEST[dtype])
    result = values.to(dtype)
    if dtype in NAN:
        result.view(WORDS[dtype])[values.isnan()] = NAN[dtype]
    return result
