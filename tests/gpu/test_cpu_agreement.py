"""The GPU beside the CPU, whose results are the definition: products of every dtype, quantize."""

import pytest
import torch

import tcgemm

from support import cases, dtype_matrix, reference
from support.cases import (
    BF16,
    F16,
    F32,
    FP8,
    S8,
    S32,
    U8,
)
from support.dtype_matrix import all_operands

pytestmark = pytest.mark.gpu


def to_cpu(options):
    return {
        name: value.cpu() if isinstance(value, torch.Tensor) else value
        for name, value in options.items()
    }


@dtype_matrix.on_gpu()
def test_gpu_and_cpu_agree(types):
    """Integers in every bit, whatever they are; others within the bounds of both."""
    for out in types.outs:
        a, b, options = all_operands(types, 150, 130, 300, out)
        result = torch.ops.tcgemm.scaled_mm(a, b, **options).cpu()
        expected = torch.ops.tcgemm.scaled_mm(a.cpu(), b.cpu(), **to_cpu(options))
        assert result.dtype == expected.dtype
        if out == S32:
            assert torch.equal(result, expected)
        elif types.integer:
            # Sums modulo 2^32 are the same; the epilogue may contract to FMAs.
            difference = (result.double() - expected.double()).abs()
            unit = 2 * reference.UNIT_ROUNDOFF.get(out, 0.0) + 2.0**-20
            near = difference <= unit * expected.double().abs() + 1.0
            assert ((result == expected) | near).all()
        else:
            value, bound = reference.evaluate(a, b, **options)
            assert reference.largest_ratio(result, value.cpu(), bound.cpu()) <= 1
            assert reference.largest_ratio(expected, value.cpu(), bound.cpu()) <= 1


@pytest.mark.parametrize("dtype", (*FP8, S8), ids=cases.NAMES.get)
@pytest.mark.parametrize("granularity", dtype_matrix.GRANULARITIES)
def test_quantize_gives_the_bits_of_the_cpu(granularity, dtype):
    """Random bits: subnormal numbers, NaN and Inf among them; and sizes around every edge."""
    words = torch.randint(-(2**31), 2**31, (515, 2070), dtype=torch.int64).to(S32).view(F32)
    x = torch.randn(515, 2070) * 2.0 ** torch.randint(-130, 100, (515, 2070))
    for source in (words, x, words.to(BF16), x.to(F16), torch.randn(4, 130, 700)):
        for view in (source, source[..., :1], source[..., 3:260, 1:130], source.mT):
            values, scale = tcgemm.quantize(view.cuda(), dtype, granularity)
            expected, expected_scale = tcgemm.quantize(view, dtype, granularity)
            assert torch.equal(scale.cpu().view(S32), expected_scale.view(S32))  # NaN, too
            assert torch.equal(values.cpu().view(U8), expected.view(U8))
            # Given scales: nearly those, and numbers of any size, sign and kind.
            signs = torch.randint(0, 2, scale.shape) * 2 - 1
            wild = signs * 2.0 ** torch.randint(-149, 128, scale.shape)
            wild = torch.where(torch.rand(scale.shape) < 0.1, float("nan"), wild)
            for factors in (expected_scale * 0.3, wild, torch.zeros_like(wild)):
                results = tcgemm.quantize(
                    view.cuda(), dtype, granularity, scale=factors.cuda(), amax=True
                )
                expected, _, amax = tcgemm.quantize(
                    view, dtype, granularity, scale=factors, amax=True
                )
                assert torch.equal(results[0].cpu().view(U8), expected.view(U8))
                assert torch.equal(results[2].cpu(), amax)
