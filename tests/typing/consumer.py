"""Calls of the public functions as users write them, for a type checker in its strict mode."""

from __future__ import annotations

from typing import Unpack, assert_type

import torch
from torch import Tensor

import tcgemm
from tcgemm.typing import Activation, Options


def project(x: Tensor, w: Tensor, **options: Unpack[Options]) -> Tensor:
    """A wrapper that passes on the keyword arguments."""
    return tcgemm.mm(x, w, **options)


def products(activation: Activation | None) -> None:
    a, b, bias = torch.randn(4, 8), torch.randn(8, 6), torch.randn(6)
    assert_type(tcgemm.mm(a, b, bias=bias, activation=activation, alpha=2), Tensor)
    assert_type(tcgemm.mm(a, b, amax=True), tuple[Tensor, Tensor])
    assert_type(project(a, b, activation="relu", precision="high"), Tensor)


if __name__ == "__main__":
    products("gelu")
