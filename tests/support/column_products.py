"""Products of the tests of results that a kernel stores by columns.

A row-major result of the call is a column-major one of the kernel: `ROW^T` computes
out^T = b^T a^T. m and n of a kind are those of the kernel, so m is a multiple of 8, and the call
has n rows and m columns.
"""

import torch

from support import cases
from support.cases import BF16, F32, HALVES
from support.catalog_rows import MIRRORED, Kind, operands

# Sizes of the kernel's result.
WAVES = Kind("waves", lambda m, n, k, s: (20 * m - 8, 21 * n - 5, 2 * k + 8))  # three tiles a CTA
RAGGED = Kind("ragged", lambda m, n, k, s: (2 * m + 8, n + 13, 2 * k + k // 2 + 3))


def plain_out(row):
    """The results that the plain variant of the epilogue stores. The general one stores all."""
    return row.types.a if row.types.a in (F32, *HALVES) else BF16


def wide_outs(row):
    """The dtypes of results that take every term."""
    return (F32,) if plain_out(row) == F32 else HALVES


def narrow_outs(row):
    """The dtypes of 8 bits, which take no addend."""
    if plain_out(row) == F32:
        return ()
    return (torch.int8,) if row.types.integer else (torch.float8_e4m3fn, torch.float8_e5m2)


def other_out(row):
    return wide_outs(row)[0] if plain_out(row) != wide_outs(row)[0] else wide_outs(row)[-1]


def activations(row):
    """gelu of f32 results is exact, which this path is not."""
    return [word for word in cases.ACTIVATIONS if plain_out(row) != F32 or word != "gelu"]


def sizes_of(kind, row):
    """m, n and k of the call."""
    n, m, k = kind.sizes(*row.tile, row.stages)
    return m, n, k


def whole_operands(row, m, n, k, **options):
    """a and b of the call, of whole numbers whose sums have few bits."""
    a, b = operands(row, MIRRORED[row.layout], m, n, k, whole=True, **options)
    if row.types.integer:
        a.remainder_(5), b.remainder_(5)
    return a, b


def guarded_out(kind, m, n, dtype):
    shape = (*kind.batch, m, n)
    return cases.Guarded(kind.out, shape, dtype=dtype, device="cuda")
