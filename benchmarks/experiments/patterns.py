"""Data that is hard for f32 GEMMs made of 16-bit terms: the table PATTERNS.

All data is computed in float64 and rounded once, so that powers of two are exact.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tcgemm.measure.operands import in_layout
from tcgemm.typing import Layout

Pair = tuple[Tensor, Tensor]


class Random:
    """Random numbers in float64 with a seed from the row's name: the same in each run."""

    def __init__(self, name: str, device: torch.device | str) -> None:
        generator = torch.Generator(device).manual_seed(zlib.crc32(name.encode()))
        self.options: dict[str, Any] = {"generator": generator, "device": device}
        self.options["dtype"] = torch.float64

    def normal(self, *shape: int) -> Tensor:
        """Normal numbers."""
        return torch.randn(shape, **self.options)

    def uniform(self, *shape: int) -> Tensor:
        """Numbers from 0 to 1."""
        return torch.rand(shape, **self.options)

    def powers(self, most: int, *shape: int) -> Tensor:
        """Powers of two from 2^-most to 2^most."""
        return ((self.uniform(*shape) * (2 * most + 1)).floor_() - most).exp2()


def _at(size: int, *places: float) -> list[int]:
    """Indices of places from 0 (first) to 1 (last)."""
    return [min(size - 1, int(size * place)) for place in places]


def rows(a: Tensor, b: Tensor, random: Random) -> Pair:
    return a * random.powers(100, len(a), 1), b * random.powers(100, 1, b.shape[1])


def both_k(a: Tensor, b: Tensor, random: Random) -> Pair:
    return a * random.powers(60, a.shape[1]), b * random.powers(60, len(b), 1)


def along_k(a: Tensor, b: Tensor, random: Random) -> Pair:
    scale = random.powers(60, a.shape[1])
    return a * scale, b / scale.unsqueeze(1)


def elements(a: Tensor, b: Tensor, random: Random) -> Pair:
    first, second = (((random.uniform(*x.shape) * 2 - 1) * 20).exp2() for x in (a, b))
    return a * first, b * second


def odd_rows(a: Tensor, b: Tensor, random: Random) -> Pair:
    """Large elements of a meet zeros of b, so that the results come from elements far below them.

    There are so few that the GEMM keeps its f16 terms and recomputes these results.
    """
    (m, k), n = a.shape, b.shape[1]
    a[_at(m, 0.1, 0.45, 0.8), k // 2] *= 2.0**40
    b[k // 2] = 0.0
    b[0, _at(n, 0.3, 0.7)] *= 2.0**-45
    a[_at(m, 0.0, 1.0)] = 0.0
    b[:, _at(n, 0.2, 1.0)] = 0.0
    return a, b


def one_hot(a: Tensor, b: Tensor, random: Random) -> Pair:
    k = a.shape[1]
    picks = (random.uniform(len(a), 1) * k).floor_()
    return (picks == torch.arange(k, device=a.device)).double(), b


def subnormal(a: Tensor, b: Tensor, random: Random) -> Pair:
    b[:, ::2] *= 2.0**100
    return a * 2.0**-130, b


def special(a: Tensor, b: Tensor, random: Random) -> Pair:
    (m, k), n = a.shape, b.shape[1]
    inf, nan = math.inf, math.nan
    a[_at(m, 0.0, 0.15, 0.4, 0.6), _at(k, 0.0, 0.5, 1.0, 0.0)] = a.new_tensor((inf, -inf, nan, inf))
    a[_at(m, 0.6), -1] = -inf  # Inf and -Inf in one sum: NaN
    b[_at(k, 0.3, 0.0, 1.0), _at(n, 0.1, 0.25, 0.8)] = b.new_tensor((inf, nan, -inf))
    b[0, _at(n, 0.5, 0.9)] = 0.0  # Inf * 0 is NaN
    return a, b


def special_elements(a: Tensor, b: Tensor, random: Random) -> Pair:
    return special(*elements(a, b, random), random)


def sparse(a: Tensor, b: Tensor, random: Random) -> Pair:
    return torch.where(random.uniform(*a.shape).argsort(1) < 4, a, 0.0), b


class Pattern(NamedTuple):
    """A kind of data. `change` takes a (m, k) and b (k, n) of normal numbers, or of uniform ones
    for "uniform"."""

    title: str
    change: Callable[[Tensor, Tensor, Random], Pair]


PATTERNS = {
    "normal": Pattern("normal", lambda a, b, random: (a, b)),
    "uniform": Pattern("uniform in [0, 1)", lambda a, b, random: (a, b)),
    "rows": Pattern("2^±100 a row", rows),  # results overflow or underflow
    "along-k": Pattern("2^±60 along k, opposite", along_k),
    "both-k": Pattern("2^±60 along k, independent", both_k),
    "elements": Pattern("2^±20 an element", elements),
    "odd-rows": Pattern("a few rows with 2^40, zeros", odd_rows),
    "subnormal": Pattern("subnormal", subnormal),  # all of a, and half of the results
    "special": Pattern("Inf and NaN", special),
    "special-elements": Pattern("Inf and NaN, 2^±20 an element", special_elements),
    "one-hot": Pattern("one-hot rows", one_hot),
    "sparse": Pattern("rows with four elements", sparse),
}


def operands(
    pattern: str, layout: Layout, m: int, n: int, k: int, device: torch.device | str
) -> Pair:
    """(a, b) in f32 on the device, with the same values in each layout."""
    random = Random(f"{pattern}/{m}/{n}/{k}", device)
    draw = random.uniform if pattern == "uniform" else random.normal
    a, b = (wide.float() for wide in PATTERNS[pattern].change(draw(m, k), draw(k, n), random))
    return in_layout(layout, a, b)
