"""Operands and results of any strides and every dtype: bit by bit what contiguous copies give.

Kernels of 8 bits and of tf32 read K-major operands in whole words; everything else is copied, or
turned on its way to registers, or gathered, and this is where that shows. Storage is poison beside
every operand and every result.
"""

import itertools

import pytest
import torch

import tcgemm

from support import cases, reference
from support.cases import LAYOUTS
from support.dtype_matrix import EVERY, NARROW, parameters

SHAPES = ((70, 40, 50), (1, 65, 9), (129, 1, 64), (130, 144, 272))


def exact(types, a, b, **options):
    return reference.exact(a, b, **types.options, **options)


@NARROW
def test_operands_of_any_strides(device, types):
    for index, (stride_a, stride_b) in enumerate(cases.stride_pairs()):
        m, n, k = SHAPES[index % len(SHAPES)]
        a, b = types.make(stride_a, stride_b, m, n, k, device=device, whole=True)
        out = tcgemm.mm(a, b, **types.options)
        reference.assert_exact(out, exact(types, a, b))


@NARROW
def test_sizes_and_offsets_through_a_word(device, types):
    """All remainders of 16 bytes, of the depth, of the pitch and of the first address."""
    for index, k in enumerate(range(120, 137)):
        layout = cases.major_strides(LAYOUTS[index % 4])
        for offset in (0, 1 + index % 7, 8 + index % 8):
            a, b = types.operands(LAYOUTS[index % 4], 34, 40, k, device=device, whole=True)
            moved = []
            for operand, strides in zip((a, b), layout, strict=True):
                rows, cols = operand.shape if strides == "contiguous" else operand.mT.shape
                pitch = cols + index % 3
                size = offset + rows * pitch + 32
                whole = torch.full(
                    (size,), cases.poison(operand.dtype), dtype=operand.dtype, device=device
                )
                view = whole.as_strided((rows, cols), (pitch, 1), offset)
                view = view if strides == "contiguous" else view.mT
                moved.append(view.copy_(operand))
            reference.assert_exact(tcgemm.mm(*moved, **types.options), exact(types, a, b))


@EVERY
def test_results_of_any_strides(device, types):
    shapes = itertools.cycle(((70, 40, 50), (17, 33, 96), (1, 65, 9), (129, 1, 64), (130, 64, 72)))
    for index, strides in enumerate(cases.OUT_STRIDES):
        for turn, layout in enumerate(LAYOUTS):
            m, n, k = next(shapes)
            a, b = types.operands(layout, m, n, k, device=device, whole=True)
            out_dtype = types.outs[(index + turn) % len(types.outs)]
            guarded = cases.Guarded(strides, (m, n), dtype=out_dtype, device=device)
            options = types.options | {"out_dtype": out_dtype}
            assert tcgemm.mm(a, b, **options, out=guarded.view) is guarded.view
            reference.assert_exact(guarded.view, reference.exact(a, b, **options))
            assert guarded.untouched()


@EVERY
@pytest.mark.parametrize("strides", ("transposed", "transposed_padded", "transposed_odd"))
def test_column_major_results(device, types, strides):
    """The transposed product, in every layout and dtype, with all that the epilogue adds."""
    for (index, layout), batch in itertools.product(enumerate(LAYOUTS), ((), (3,))):
        m, n, k = ((136, 80, 144), (65, 41, 30))[index // 2]
        a, b = types.operands(layout, m, n, k, device=device, batch=batch, whole=True)
        for turn in range(index, len(types.outs), 4):
            out_dtype = types.outs[turn]
            c, residual = (
                types.addend(*batch, m, n, out=out_dtype, device=device, strides=name, turn=turn)
                for name in (strides, "contiguous")
            )
            bias = types.addend(*((m, 1) if turn % 2 else (n,)), out=out_dtype, device=device)
            options = {"activation": "relu", "alpha": 2.0, "beta": -1.0, "out_dtype": out_dtype}
            guarded = cases.Guarded(strides, (*batch, m, n), dtype=out_dtype, device=device)
            terms = (c, bias, residual)
            torch.ops.tcgemm._gemm.out(a, b, *terms, **options, **types.options, out=guarded.view)
            expected = reference.exact(a, b, *terms, **options, **types.options)
            reference.assert_exact(guarded.view, expected)
            assert guarded.untouched()


@NARROW
def test_batches_of_any_strides(device, types):
    for index, strides in enumerate((*cases.STRIDES, *cases.BATCH_STRIDES)):
        batch = ((3,), (2, 3))[index % 2]
        sizes = {"m": 20, "n": 24, "k": 40, "device": device, "batch": batch, "whole": True}
        a, b = types.make(strides, "contiguous", **sizes)
        reference.assert_exact(tcgemm.matmul(a, b, **types.options), exact(types, a, b))
        a, b = types.make("transposed", strides, **sizes)
        reference.assert_exact(tcgemm.matmul(a, b, **types.options), exact(types, a, b))
        a, b = types.make(strides, strides, **sizes)
        one = b[(0,) * len(batch)]
        reference.assert_exact(tcgemm.matmul(a, one, **types.options), exact(types, a, one))


@NARROW
def test_batched_results_of_any_strides(device, types):
    for index, strides in enumerate((*cases.OUT_STRIDES, "batch_innermost", "batch_reversed")):
        batches = ((2, 3), (2, 3) if index % 2 else ())
        layout = LAYOUTS[index % 4]
        a, b = types.operands(layout, 20, 24, 40, device=device, batch=batches, whole=True)
        out_dtype = types.outs[index % len(types.outs)]
        guarded = cases.Guarded(strides, (2, 3, 20, 24), dtype=out_dtype, device=device)
        options = types.options | {"out_dtype": out_dtype}
        tcgemm.matmul(a, b, **options, out=guarded.view)
        reference.assert_exact(guarded.view, reference.exact(a, b, **options))
        assert guarded.untouched()


@NARROW
def test_vectors_and_odd_strides_of_dimensions_of_one(device, types):
    """torch allows any stride where a dimension has one element, and makes such tensors itself."""
    a = cases.make("contiguous", 4096, dtype=types.a, device=device, largest=types.largest(40))
    b = cases.make("contiguous", 4096, dtype=types.b, device=device, largest=types.largest(40))
    for left, right in (
        (a.as_strided((1, 40), (3, 1)), b.as_strided((40, 24), (24, 1), 64)),
        (a.as_strided((24, 40), (1, 24), 64), b.as_strided((40, 1), (1, 7), 8)),
        (a.as_strided((1, 40), (3, 1)), b.as_strided((40, 1), (1, 7), 8)),
        (a.as_strided((40, 1), (1, 7), 8), b.as_strided((1, 40), (3, 1))),
        (a.as_strided((1, 1), (5, 9), 1), b.as_strided((1, 40), (3, 1), 5)),
        (a[3:43], b.as_strided((40, 33), (34, 1), 5)),
        (a.as_strided((33, 40), (1, 34), 5), b[::2][:40]),
        (a[:1].expand(40), b[1:41]),
    ):
        reference.assert_exact(
            tcgemm.matmul(left, right, **types.options), exact(types, left, right)
        )


@parameters(lambda types: types.a == types.b and types.a not in cases.HALVES)
def test_operands_may_share_memory(device, types):
    options = {"dtype": types.a, "device": device, "largest": types.largest(60)}
    x = cases.make("contiguous", 60, 60, **options)
    for a, b in ((x, x), (x, x.t()), (x.t(), x), (x[:30], x[:, :40]), (x[1:], x[:, 1:])):
        reference.assert_exact(tcgemm.mm(a, b, **types.options), exact(types, a, b))
    # Overlapping windows: every row begins before the one above ends.
    for pitch in (1, 16):
        windows = x.flatten().as_strided((50, 48), (pitch, 1))
        out = tcgemm.mm(windows, windows.t(), **types.options)
        reference.assert_exact(out, exact(types, windows, windows.t()))
