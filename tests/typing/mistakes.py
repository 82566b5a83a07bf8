"""Wrong calls: a type checker reports each line that ends in the word `wrong`, and no other."""

from __future__ import annotations

import torch
from torch import Tensor

import tcgemm


def products(a: Tensor, b: Tensor) -> None:
    tcgemm.mm(a, b, activation="geluu")  # wrong
    tcgemm.mm(a, b, activation=torch.relu)  # wrong
    tcgemm.mm(a, b, out_dtype="bfloat16")  # wrong
    tcgemm.mm(a, [[1.0]])  # wrong
    print(tcgemm.mm(a, b, amax=True).shape)  # wrong
    tcgemm.mm(a, b, None)  # wrong
