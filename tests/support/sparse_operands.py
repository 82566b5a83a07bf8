"""Products with a sparse operand, as the operators take them: what is sparse, its two forms, and
the call from either side.

    w (rows, K) -> prune24 -> compress24 -> values, metadata      on a GPU: tile24 -> tiles
    side "a": w @ x, x (.., K, n)        side "b": x @ w.t(), x (.., m, K)
"""

import pytest
import torch

import tcgemm  # noqa: F401  (registers the operators)

from support import cases
from support.cases import F32, FLOATS, FP8, S8, U8

prune24 = torch.ops.tcgemm.prune24
compress24 = torch.ops.tcgemm.compress24
tile24 = torch.ops.tcgemm.tile24
scaled_mm = torch.ops.tcgemm.scaled_mm

SIDES = ("a", "b")
DTYPES = (*FLOATS, *FP8, S8, U8)
KINDS = (*((dtype, "2:4") for dtype in DTYPES), (F32, "1:2"))
IDS = [f"{cases.NAMES[dtype]}-{pattern}" for dtype, pattern in KINDS]
kinds = pytest.mark.parametrize("dtype, pattern", KINDS, ids=IDS)
dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=cases.NAMES.get)

# Around groups, bytes of metadata, and the 32 x 256 boxes of a thread.
SHAPES = ((1, 1), (3, 7), (2, 8), (33, 255), (31, 256), (64, 257), (5, 1030), (130, 66))
RAGGED = range(1, 34)


def pattern(dtype):
    return "1:2" if dtype == F32 else "2:4"


def sparse_matrix(rows, k, dtype, *, device="cpu", largest=None):
    """A matrix that has the pattern of its dtype."""
    w = cases.make("contiguous", rows, k, dtype=dtype, device=device, largest=largest)
    return prune24(w, pattern(dtype))


def operand_of(w):
    """(values, what the operators take beside them)."""
    values, metadata, excess = compress24(w, pattern(w.dtype))
    assert excess.tolist() == [0, -1]
    if w.is_cuda:
        metadata = tile24(metadata, w.shape[1], pattern(w.dtype), w.dtype)
    return values, metadata


def dense_sides(side, w, x):
    """a and b of the dense product."""
    return (w, x) if side == "a" else (x, w.t())


def multiply(side, w, x, *, op=scaled_mm, out=None, operand=None, **options):
    """The product with w, a dense matrix that has the pattern, compressed. `given`: (values, form),
    made before."""
    values, form = operand or operand_of(w)
    a, b = dense_sides(side, values, x)
    options["sparse_" + side] = form
    if out is None:
        return op(a, b, **options)
    op.out(a, b, **options, out=out)
    return out


def options_of(types):
    """The options of the operators: a sparse operand has no precision "promoted"."""
    precision = "fast" if types.a in FP8 else types.precision
    return {"acc_dtype": types.accumulator, "precision": precision}


def random_matrix(rows, k, dtype):
    """Normal data with ties, zeros of both signs and, of floats, NaN and Inf."""
    numbers = [0.0, 0.0, 1.0, *((-0.0, float("nan"), -float("inf")) * dtype.is_floating_point)]
    special = torch.tensor(numbers)[torch.randint(0, len(numbers), (rows, k))]
    data = cases.random_values((rows, k), dtype).float()
    return torch.where(torch.rand(rows, k) < 0.5, special, data).to(dtype)
