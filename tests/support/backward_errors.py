"""The sentences of the passes of the backward, as rows: a call, and what it says."""

import torch

from support.cases import F32, F64
from support.error_asserts import rows_of, t

OPS = torch.ops.tcgemm
G = t(3, 4)
BYTES = torch.ones(16, 16, dtype=torch.int8)


def backward(g=G, z=G, activation="gelu", dtype=F32):
    return lambda: OPS._activation_backward(g, z, activation, dtype)


WRITES = "but torch.float16, torch.bfloat16 and torch.float32 are what the backward writes; pass"
READS = "but torch.float16, torch.bfloat16 and torch.float32 are what the backward reads; convert"
ROWS = {
    "activation": (
        backward(activation="tanh"),
        ['tcgemm: activation is "tanh", but there are "relu", "gelu", "gelu_tanh" and "silu"'],
    ),
    "dtype": (backward(dtype=torch.int8), ["tcgemm: dtype is torch.int8", WRITES]),
    "sum dtype": (lambda: OPS._sum_rows(G, F64), ["tcgemm: sum_dtype is torch.float64", WRITES]),
    "g": (backward(G.int()), ["tcgemm: g is torch.int32", READS, "it with .to(...)."]),
    "sum of g": (lambda: OPS._sum_rows(G.double(), F32), ["tcgemm: g is torch.float64", READS]),
    "columns": (
        backward(t(), t()),
        ["tcgemm: g has no dimensions, but needs columns; reshape it to (1,)."],
    ),
    "product, g": (
        lambda: OPS._product_backward(t(4), None, t(4, 4), False),
        ["tcgemm: g must be at least a matrix, but has shape (4,); reshape it to a matrix."],
    ),
    "product, b": (
        lambda: OPS._product_backward(G, None, t(2, 4, 4), False),
        ["tcgemm: b must be a matrix, but has shape (2, 4, 4); reshape it to a matrix."],
    ),
    "z": (backward(z=G.half()), ["z is torch.float16, but g is torch.float32; convert z with .to"]),
    "shape": (
        backward(z=G.t()),
        ["z has shape (4, 3), but g has shape (3, 4); both need the shape of the result."],
    ),
    "no activation": (
        lambda: OPS.mm.with_z(G, G.t()),
        ["tcgemm.mm: z is the argument of the activation, but there is no activation; pass one."],
    ),
    "no gradient": (
        lambda: OPS.mm.with_z(BYTES, BYTES, activation="relu"),
        [
            "tcgemm.mm: the result is torch.int32, which has no gradient, so its backward needs",
            "call the overload without z.",
        ],
    ),
}
TABLE = rows_of({"backward": ROWS})
