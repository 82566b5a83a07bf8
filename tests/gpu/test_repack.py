"""The prepare pass in front of a wgmma kernel: any operand of 1, 2 or 4 bytes becomes readable by
TMA, converted from f32 to bf16 on the way where that is asked for. And what TMA reads without it.
"""

import pytest
import torch

import tcgemm

from support import cases, reference
from support.cases import BF16, E4M3, E5M2, F16, F32, FP8, S8, S32, U8
from support.dtype_matrix import GemmTypes

pytestmark = [pytest.mark.gpu, pytest.mark.sm90]

# With the kernels that take nothing but what TMA reads K-major; 16-bit ones take either major.
KERNELS = {
    GemmTypes(F16, F16, F32): "sm90a",
    GemmTypes(BF16, BF16, F32): "sm90a",
    GemmTypes(F32, F32, F32, "medium"): "sm90a",
    GemmTypes(F32, F32, F32, "high"): "sm90a_tf32_f32_128x128x32_w2_s6_tn",
    GemmTypes(S8, U8, S32): "sm90a_s8xu8_s32_128x128x128_w2_s6_tn",
    GemmTypes(E5M2, E4M3, F32): "sm90a_e5m2xe4m3_f32_128x128x128_w2_s6_tn_promoted",
}
TYPES = pytest.mark.parametrize("types", KERNELS, ids=str)


def run(types, a, b, out=None):
    options = types.options | {"kernel": KERNELS[types]}
    if out is None:
        return torch.ops.tcgemm._gemm(a, b, **options)
    return torch.ops.tcgemm._gemm.out(a, b, **options, out=out)


@TYPES
def test_any_operand_becomes_readable(types):
    for stride_a, stride_b in cases.stride_pairs():
        for m, n, k in ((130, 65, 200), (257, 129, 63), (65, 300, 129)):
            a, b = types.make(stride_a, stride_b, m, n, k, device="cuda", whole=True)
            guarded = cases.Guarded("padded", (m, n), dtype=types.outs[0], device="cuda")
            run(types, a, b, guarded.view)
            expected = reference.exact(a, b, **types.options)
            reference.assert_guarded(guarded, expected)


@TYPES
def test_batches(types):
    swapped = types._replace(a=types.b, b=types.a)
    for strides in (*cases.STRIDES, *cases.BATCH_STRIDES):
        for batch in ((5,), (2, 3)):
            sizes = {"m": 70, "n": 66, "k": 90, "device": "cuda", "batch": batch, "whole": True}
            a, b = types.make(strides, "odd_pitch", **sizes)
            for left, right in ((a, b), (a, b[(0,) * len(batch)])):
                out = run(types, left, right)
                reference.assert_exact(out, reference.exact(left, right, **types.options))
            b, a = (t.mT for t in swapped.make(strides, "odd_pitch", **sizes))
            reference.assert_exact(run(types, a, b), reference.exact(a, b, **types.options))


@TYPES
def test_nothing_beside_an_operand_is_read(types):
    """Sizes and offsets through all remainders of a 16-byte word, each in poison."""
    for k in range(120, 137):
        b = cases.make("contiguous", k, 64, dtype=types.b, device="cuda", largest=types.largest(k))
        for offset in range(17 if types.a.itemsize == 1 else 9):
            options = {"dtype": types.a, "device": "cuda"}
            buffer = torch.full((70 * (k + 1) + 32,), cases.poison(types.a), **options)
            view = buffer.as_strided((70, k), (k + 1, 1), offset)
            a = cases.fill(view, largest=types.largest(k))
            reference.assert_exact(run(types, a, b), reference.exact(a, b, **types.options))


@pytest.mark.parametrize("pitch", (8, 16, 24, 64))
@TYPES
def test_tma_reads_overlapping_rows(types, pitch):
    """Windows of a signal: rows that begin before the one above ends are rows like any other."""
    signal = cases.make(
        "contiguous", 8192, dtype=types.a, device="cuda", largest=types.largest(128)
    )
    windows = signal.as_strided((100, 128), (pitch, 1))
    weight = types.operands("TN", 1, 64, 128, device="cuda", whole=True)[1]
    expected = reference.exact(windows, weight, **types.options)
    older = "sm89" if types.a in FP8 else "sm80"
    for kernel in (None, KERNELS[types], older):
        out = torch.ops.tcgemm._gemm(windows, weight, **types.options, kernel=kernel)
        reference.assert_exact(out, expected)
    batches = signal.as_strided((3, 40, 128), (pitch, 128, 1))
    out = run(types, batches, weight[None].expand(3, -1, -1))
    reference.assert_exact(out, reference.exact(batches, weight, **types.options))


@pytest.mark.parametrize("layout", cases.LAYOUTS)
def test_f32_to_bf16_rounds_as_torch(layout):
    """Every kind of number, NaN and Inf too, through the converting copy and a product with 1."""
    words = torch.randint(-(2**31), 2**31, (300, 200), dtype=torch.int64).to(S32).view(F32)
    words[::3] = torch.randn(100, 200) * 2.0 ** torch.randint(-140, 120, (100, 200))
    words[0, :6] = torch.tensor([float("nan"), float("inf"), -float("inf"), 3.4e38, 2**-149, -0.0])
    for row in words.to("cuda").split(100):
        # A NaN or Inf fills its row of a product, so each number has one of its own.
        column = row.reshape(-1, 1)
        one = torch.ones(1, 1, device="cuda")
        for a, b in ((column, one), (one, column.mT)):
            a = a if layout[1] == "N" else a.mT.contiguous().mT
            b = b if layout[0] == "N" else b.mT.contiguous().mT
            out = tcgemm.mm(a, b, precision="medium").reshape(-1, 1)
            expected = column.to(BF16).float()
            assert torch.equal(out.isnan(), expected.isnan())
            assert torch.equal(out.nan_to_num(nan=0.0), expected.nan_to_num(nan=0.0))


def test_unknown_kernel_is_refused_and_harms_nothing():
    a = cases.make("contiguous", 64, 64, dtype=BF16, device="cuda", largest=4)
    with pytest.raises(RuntimeError, match="under the filter 'sm70'"):
        torch.ops.tcgemm._gemm(a, a, kernel="sm70")
    with pytest.raises(RuntimeError, match="no kernel of this build"):
        torch.ops.tcgemm._gemm(a, a, kernel="f16_f16")
    reference.assert_exact(tcgemm.mm(a, a), reference.exact(a, a))
