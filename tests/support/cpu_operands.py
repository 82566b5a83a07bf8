"""Operands, addends and calls of the tests of the CPU, and results in a narrow type."""

import itertools

import torch

from support.cases import FP8, INT8, S8, S32, U8
from support.cpu_model import narrowed, rounded

FP8_PAIRS = list(itertools.product(FP8, FP8))
INT8_PAIRS = list(itertools.product(INT8, INT8))
# Factors of 2^24 + 1 and 2^24 + 3, which lie halfway between two f32 numbers, and these over 2^24.
TIES = (
    ((97.0, 172961.0), 1.0, 1 + 2.0**-23),
    ((1549.0, 10831.0), 1 + 2.0**-23, 1 + 2.0**-22),
)


def gemm(a, b, c=None, bias=None, residual=None, *, types=None, **options):
    if types:
        options |= {"acc_dtype": types.accumulator, "out_dtype": types.out}
    return torch.ops.tcgemm._gemm(a, b, c, bias, residual, **options)


def integers(dtype, *shape):
    info = torch.iinfo(dtype)
    return torch.randint(info.min, info.max + 1, shape, dtype=dtype)


def normal(dtype, *shape):
    return (torch.randn(shape) * 2).to(dtype)


def operand(dtype, *shape):
    return integers(dtype, *shape) if dtype in (S8, U8) else normal(dtype, *shape)


def scales(*shape):
    return torch.rand(shape) + 0.5


def addends(m, n):
    return torch.randn(m, n), torch.randn(n), torch.randn(m, n)


def wrapped(x):
    """int64 modulo 2^32, as s32."""
    return ((x + 2**31) % 2**32 - 2**31).to(S32)


def to(x, dtype):
    return narrowed(x, dtype) if dtype in (*FP8, S8) else rounded(x, dtype)
