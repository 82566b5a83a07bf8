"""A fake refuses in the same words whatever its kernel refuses before it computes a shape."""

import itertools

import pytest
import torch

import tcgemm

from support.error_asserts import error_message

W = torch.ones(8, 16)
OPS = torch.ops.tcgemm
METADATA = torch.zeros(8, 1, dtype=torch.uint8)
E4M3 = torch.float8_e4m3fn
# Operator, its arguments, and the words of the sentence.
REFUSED = [
    (OPS.compress24, (W, "4:8"), 'tcgemm.compress24: pattern is "4:8", but there are "2:4"'),
    (OPS.compress24, (W[0], "1:2"), "tcgemm.compress24: w must be a matrix"),
    (OPS.prune24, (W, ""), 'tcgemm.prune24: pattern is "", but'),
    (OPS.gather24, (W[0], METADATA, "1:2"), "tcgemm.gather24: w must be a matrix"),
    (OPS.decompress24, (W, METADATA, -1, "1:2"), "tcgemm.decompress24: k is -1, but is the num"),
    (OPS.tile24, (METADATA, -1, "2:4", torch.int8), "tcgemm.tile24: k is -1, but is the number"),
    (OPS.prepare, (W[0],), "tcgemm.prepare: w must be a matrix (N, K), as the weight of"),
    (OPS.prepare, (W.half(),), "tcgemm.prepare: w is torch.float16, but torch.float32 alone"),
    (OPS.quantize, (W, E4M3, "rows"), 'tcgemm.quantize: granularity is "rows", but there are'),
    (OPS.quantize, (W[0], E4M3, "128x128"), 'granularity "128x128" needs a dimension for each'),
    (OPS.quantize, (W[0, 0], E4M3, "row"), 'granularity "row" needs a dimension for each'),
    (OPS.quantize.scaled, (W, W, E4M3), 'scale has shape (8, 16), but granularity "tensor" has'),
    (OPS.quantize.scaled, (W, W, E4M3, "row"), 'with granularity "row" has scales of shape (8, 1)'),
]


DTYPES = [
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn),
    *(torch.float8_e5m2, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64),
    *(torch.bool, torch.complex64),
]
PRODUCTS = {
    "mm": (tcgemm.mm, (4, 16), (16, 8)),
    "bmm": (tcgemm.bmm, (2, 4, 16), (2, 16, 8)),
    "matmul": (tcgemm.matmul, (2, 4, 16), (16, 8)),
    "linear": (tcgemm.linear, (4, 16), (8, 16)),
    "scales": (lambda a, b: OPS.scaled_mm(a, b, None, None), (4, 16), (16, 8)),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_pairs_of_dtypes(name):
    function, *shapes = PRODUCTS[name]
    for pair in itertools.product(DTYPES, repeat=2):
        texts = []
        for device in ("cpu", "meta"):
            operands = [
                torch.zeros(shape, dtype=dtype, device=device)
                for shape, dtype in zip(shapes, pair, strict=True)
            ]
            try:
                function(*operands)
                texts.append(None)
            except RuntimeError as error:
                texts.append(str(error))
        assert texts[0] == texts[1], pair


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(("operator", "operands", "words"), REFUSED)
def test_refused_in_the_same_words(operator, operands, words, device):
    arguments = [
        value.to(device) if isinstance(value, torch.Tensor) else value for value in operands
    ]
    assert words in error_message(lambda: operator(*arguments))
