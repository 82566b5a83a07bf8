"""f32 GEMMs of 16-bit terms, as csrc/core/split_fp32.h describes them, and with terms left out.

    row of a, column of b  --scaled by a power of two-->  x' = p0 + p1 + ...  --products-->  sums

The sums are of float64, so that only the error of the terms remains. For finite data alone.
"""

import torch

# For each kind of terms: the dtype, the scaled exponent of the largest element, the shift of each
# term after the first, and the products that are made, small ones first.
KINDS = {
    "f16": (torch.float16, 14, 11, ((1, 0), (0, 1), (0, 0))),
    "bf16": (torch.bfloat16, 56, 0, ((2, 0), (1, 1), (0, 2), (1, 0), (0, 1), (0, 0))),
}


def split(x, dim, dtype, top, shift, count):
    """(terms, exponents of the scaling) of x, whose rows lie along `dim`."""
    largest = x.double().abs().amax(dim, keepdim=True)
    scale = top - torch.where(largest > 0, largest.log2().floor(), 0.0)
    rest, terms = x.double() * scale.exp2(), []
    for index in range(count):
        factor = 2.0 ** (shift * index)
        terms.append((rest * factor).to(dtype).double() / factor)
        rest = rest - terms[-1]
    return terms, scale


def product(a, b, kind, without=None):
    """a @ b in f32; `without` is the index of a product to leave out."""
    dtype, top, shift, products = KINDS[kind]
    count = 1 + max(max(pair) for pair in products)
    left, scale_a = split(a, 1, dtype, top, shift, count)
    right, scale_b = split(b, 0, dtype, top, shift, count)
    sums = [left[i] @ right[j] for at, (i, j) in enumerate(products) if at != without]
    return (sum(sums) * (-scale_a - scale_b).exp2()).float()
