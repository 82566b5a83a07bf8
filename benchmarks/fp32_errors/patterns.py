"""Input patterns that are hard for f32 GEMMs made of 16-bit terms.

    normal, uniform      usual data; sums of uniform data in [0, 1) only grow
    rows                 rows of a and columns of b are scaled by powers of two: results overflow
                         or underflow
    along-k, both-k      columns of a and rows of b are scaled, oppositely or independently
    elements             each element is scaled: most of a row is far below its largest element
    odd-rows             a few rows and columns with large elements among normal ones, and zeros
    subnormal            all of a is subnormal, and half of the results
    special              Inf and NaN in some rows and columns of normal data
    special-elements     Inf and NaN in some rows and columns of `elements`
    one-hot, sparse      a row of a picks one row of b, or adds four: short sums at any K

All data is computed in float64 and rounded once, so that powers of two are exact. A pattern is a
function (m, n, k, random) -> (a, b), both float64; `operands` returns f32 tensors in a layout.
"""

import math
import zlib

import torch

from tcgemm.measure.operands import in_layout


class Random:
    """Random numbers with a seed from the row's name: the same in each run."""

    def __init__(self, name, device):
        seed = zlib.crc32(name.encode())
        self.options = {"device": device, "dtype": torch.float64}
        self.generator = torch.Generator(device).manual_seed(seed)

    def normal(self, *shape):
        return torch.randn(shape, generator=self.generator, **self.options)

    def uniform(self, *shape):
        return torch.rand(shape, generator=self.generator, **self.options)

    def exponents(self, most, *shape):
        """Integers from -most to most."""
        return (self.uniform(*shape) * (2 * most + 1)).floor_() - most


def normal(m, n, k, random):
    return random.normal(m, k), random.normal(k, n)


def uniform(m, n, k, random):
    return random.uniform(m, k), random.uniform(k, n)


def rows(m, n, k, random):
    a, b = normal(m, n, k, random)
    return a * random.exponents(100, m, 1).exp2(), b * random.exponents(100, 1, n).exp2()


def along_k(m, n, k, random):
    a, b = normal(m, n, k, random)
    exponents = random.exponents(60, k)
    return a * exponents.exp2(), b * (-exponents).exp2().unsqueeze(1)


def both_k(m, n, k, random):
    a, b = normal(m, n, k, random)
    return a * random.exponents(60, k).exp2(), b * random.exponents(60, k, 1).exp2()


def elements(m, n, k, random):
    a, b = normal(m, n, k, random)
    exponents = [(random.uniform(*shape) * 2 - 1) * 20 for shape in ((m, k), (k, n))]
    return a * exponents[0].exp2(), b * exponents[1].exp2()


def _at(size, *places):
    """Indices of places from 0 (first) to 1 (last)."""
    return [min(size - 1, int(size * place)) for place in places]


def odd_rows(m, n, k, random):
    """Large elements of a meet zeros of b, so that the results come from elements far below them.

    There are so few that the GEMM keeps its f16 terms and recomputes these results.
    """
    a, b = normal(m, n, k, random)
    a[_at(m, 0.1, 0.45, 0.8), k // 2] *= 2.0**40
    b[k // 2] = 0.0
    b[0, _at(n, 0.3, 0.7)] *= 2.0**-45
    a[_at(m, 0.0, 1.0)] = 0.0
    b[:, _at(n, 0.2, 1.0)] = 0.0
    return a, b


def one_hot(m, n, k, random):
    picks = (random.uniform(m, 1) * k).floor_()
    a = (picks == torch.arange(k, device=picks.device)).double()
    return a, random.normal(k, n)


def sparse(m, n, k, random):
    a, b = normal(m, n, k, random)
    return torch.where(random.uniform(m, k).argsort(1) < 4, a, 0.0), b


def subnormal(m, n, k, random):
    a, b = normal(m, n, k, random)
    b[:, ::2] *= 2.0**100
    return a * 2.0**-130, b


def _with_special(a, b):
    (m, k), n = a.shape, b.shape[1]
    inf, nan = math.inf, math.nan
    a[_at(m, 0.0, 0.15, 0.4, 0.6), _at(k, 0.0, 0.5, 1.0, 0.0)] = a.new_tensor((inf, -inf, nan, inf))
    a[_at(m, 0.6), -1] = -inf  # Inf and -Inf in one sum: NaN
    b[_at(k, 0.3, 0.0, 1.0), _at(n, 0.1, 0.25, 0.8)] = b.new_tensor((inf, nan, -inf))
    b[0, _at(n, 0.5, 0.9)] = 0.0  # Inf * 0 is NaN
    return a, b


def special(m, n, k, random):
    return _with_special(*normal(m, n, k, random))


def special_elements(m, n, k, random):
    return _with_special(*elements(m, n, k, random))


PATTERNS = {
    "normal": normal,
    "uniform": uniform,
    "rows": rows,
    "along-k": along_k,
    "both-k": both_k,
    "elements": elements,
    "odd-rows": odd_rows,
    "subnormal": subnormal,
    "special": special,
    "special-elements": special_elements,
    "one-hot": one_hot,
    "sparse": sparse,
}


def operands(pattern, layout, m, n, k, device):
    """(a, b) in f32 on the device, with the same values in each layout."""
    random = Random(f"{pattern}/{m}/{n}/{k}", device)
    a, b = (wide.float() for wide in PATTERNS[pattern](m, n, k, random))
    return in_layout(layout, a, b)
