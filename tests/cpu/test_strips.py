"""Packed and sparse weights are decoded in strips: the bits are those of the dense weight."""

import pytest
import torch

import tcgemm

from support.cases import BF16, E4M3, F16, F32
from support.reference import same_bits

K = 4096  # a strip has 512 rows then
ROWS = 1100  # two whole strips, and one that ends inside of a block of 128 rows


def operands(dtype, batch=3, m=5):
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(shape, generator=generator, device="cpu")

    x, weight = draw(batch, m, K).to(dtype), (draw(ROWS, K) / 64).to(dtype)
    weight[0] *= 8  # amax is of the first strip
    return x, weight, draw


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize("format", ["int4", "nf4", "mxfp4", "int8", "e4m3"])
def test_a_packed_weight(format, dtype):
    x, weight, draw = operands(dtype)
    packed = tcgemm.pack_weight(weight, format)
    dense = packed.dequantize()
    assert same_bits(tcgemm.linear(x, packed), tcgemm.linear(x, dense))
    bias, residual = draw(ROWS).to(dtype), draw(3, 5, ROWS).to(dtype)
    options = {"residual": residual, "scale_out": torch.tensor([0.5]), "activation": "gelu"}
    result = tcgemm.linear(x, packed, bias, amax=True, **options)
    expected = tcgemm.linear(x, dense, bias, amax=True, **options)
    assert same_bits(result[0], expected[0]) and same_bits(result[1], expected[1])
    c, factors = draw(5, ROWS).to(dtype), {"alpha": 0.3, "beta": 1.7}
    result = tcgemm.addmm(c, x[0], packed.t(), **factors)
    assert same_bits(result, tcgemm.addmm(c, x[0], dense.t(), **factors))


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("dtype", [F16, BF16, F32, E4M3], ids=str)
def test_a_sparse_operand(dtype, side):
    x, weight, draw = operands(F32)
    sparse = tcgemm.compress24(weight.to(dtype), prune=True)
    x, dense = x[0].to(dtype), sparse.to_dense()
    one, many = torch.rand(ROWS, 1, device="cpu") + 0.5, torch.rand(5, 1, device="cpu") + 0.5
    options = {"activation": "relu", "amax": True, "out_dtype": F32}
    if dtype is F32:
        options["precision"] = "high"
    if side == "left":
        scales = {"scale_a": one, "scale_b": many.t(), "bias": draw(ROWS, 1)}
        results = [tcgemm.mm(w, x.t(), **scales, **options) for w in (sparse, dense)]
    else:
        scales = {"scale_a": many, "scale_b": one.t(), "bias": draw(ROWS)}
        results = [tcgemm.mm(x, w.t(), **scales, **options) for w in (sparse, dense)]
    for result, expected in zip(*results, strict=True):
        assert same_bits(result, expected)
