"""Random operands with a named distribution."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

DISTRIBUTIONS = {
    "normal": "normal numbers, of both signs",
    "uniform": "uniform in [0, 1): no sign, so sums grow with K",
    "spread": "normal numbers times 2^-6 to 2^6",
}
_SPREAD = 6


def check_distribution(name: str) -> None:
    """ValueError for a name that is none of DISTRIBUTIONS."""
    if name not in DISTRIBUTIONS:
        raise ValueError(f"data is {name!r}; expected one of {', '.join(DISTRIBUTIONS)}.")


def draw(shape: tuple[int, int], data: str, dtype: torch.dtype, generator: Generator) -> Tensor:
    """A matrix of the distribution on the CPU. Integers are scaled to their range."""
    fill = torch.rand if data == "uniform" else torch.randn
    x = fill(shape, generator=generator, dtype=torch.float64)
    if data == "spread":
        x *= 2.0 ** torch.randint(-_SPREAD, _SPREAD + 1, shape, generator=generator, device="cpu")
    if not dtype.is_floating_point:
        x = (x / x.abs().max().clamp(min=1e-30) * torch.iinfo(dtype).max).round()
        x = x.abs() if dtype is torch.uint8 else x
    return x.to(dtype)
