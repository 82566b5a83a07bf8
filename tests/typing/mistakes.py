"""Wrong calls: a type checker reports each line that ends in the word `wrong`, and no other."""

from __future__ import annotations

import torch
from torch import Tensor

import tcgemm


def products(a: Tensor, b: Tensor) -> None:
    tcgemm.gemm(a, b)  # wrong
    print(tcgemm.saved_names)  # wrong
    tcgemm.mm(a, b, activation="geluu")  # wrong
    tcgemm.mm(a, b, activation=torch.relu)  # wrong
    tcgemm.mm(a, b, out_dtype=float)  # wrong
    tcgemm.mm(a, b, precision="tf32")  # wrong
    tcgemm.mm(a, [[1.0]])  # wrong
    print(tcgemm.mm(a, b, amax=True).shape)  # wrong
    tcgemm.mm(a, b, None)  # wrong
    tcgemm.mm(a, b, beta=0.5)  # wrong
    tcgemm.bmm(a, tcgemm.prepare(b))  # wrong
    tcgemm.matmul(a, b, scale_a=0.5)  # wrong
    tcgemm.addmm(None, a, b)  # wrong
    tcgemm.linear(a, b, None, "relu")  # wrong
    tcgemm.linear(a, b, biass=None)  # wrong
    one: Tensor = tcgemm.linear(a, b, amax=True)  # wrong
    print(one)
    tcgemm.prepare(b).to(torch.float16)  # wrong


def eight_bits(x: Tensor) -> None:
    tcgemm.quantize(x, 8)  # wrong
    tcgemm.quantize(x, torch.int8, "column")  # wrong
    print(tcgemm.quantize(x, torch.int8).dtype)  # wrong
    tcgemm.quantized_linear(x, x, granularity="1x128")  # wrong
    tcgemm.dequantize(x)  # wrong


def sparse(w: Tensor) -> None:
    tcgemm.prune24(w, method="random")  # wrong
    tcgemm.compress24(w, pattern="4:8")  # wrong
    print(tcgemm.compress24(w, prune=True).positions)  # wrong


def layers(model: torch.nn.Module) -> None:
    tcgemm.nn.Linear(4, 4, activation="geluu")  # wrong
    tcgemm.nn.QuantLinear(4, 4, granularity="1x128")  # wrong
    tcgemm.nn.SparseLinear24(4, 4, gradient="dense")  # wrong
    tcgemm.swap_linear(model, to=tcgemm.nn.QuantLinear, learns=True)  # wrong
    tcgemm.swap_linear(model, filter_fn=3)  # wrong


def others(a: Tensor, model: torch.nn.Module) -> None:
    tcgemm.use(min_size="8")  # wrong
    tcgemm.use(table=3)  # wrong
    tcgemm.compare((4, 4, 4), layouts="XX")  # wrong
    tcgemm.compare((4, 4, 4), dtypes="bf17")  # wrong
    tcgemm.compare((4, 4, 4), scales="column", precision="high")  # wrong
    tcgemm.compare(model, a, layouts=1, against=3)  # wrong
    tcgemm.explain(a, a, device=torch.device("cuda"))  # wrong
    print(tcgemm.explain(a, a).kernels)  # wrong
