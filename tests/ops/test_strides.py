"""Operands and results of any strides and every dtype: bit by bit what contiguous copies give.

Kernels of 8 bits and of tf32 read K-major operands in whole 16-byte words; other operands are
copied, or transposed on their way to registers, or gathered, and these tests see where one of them
goes wrong. Storage is poison beside every operand and around every result.
"""

import itertools

import pytest
import torch

import tcgemm

from support import cases, reference
from support.cases import LAYOUTS, check_all
from support.dtype_matrix import EVERY, parameters

SHAPES = ((70, 40, 50), (17, 33, 96), (1, 65, 9), (129, 1, 64), (64, 64, 1), (130, 144, 272))
BATCHED = (*cases.STRIDES, *cases.BATCH_STRIDES)
BATCHED_OUT = (*cases.OUT_STRIDES, "batch_innermost", "batch_reversed")


def exact(types, a, b, **options):
    return reference.exact(a, b, **types.options, **options)


def assert_product(types, a, b):
    """matmul of whole numbers."""
    reference.assert_exact(tcgemm.matmul(a, b, **types.options), exact(types, a, b))


@EVERY
def test_operands_of_any_strides(device, types):
    def check(stride_a, stride_b, shape):
        a, b = types.make(stride_a, stride_b, *shape, device=device, whole=True)
        reference.assert_exact(tcgemm.mm(a, b, **types.options), exact(types, a, b))

    check_all(((*pair, shape) for pair in cases.stride_pairs() for shape in SHAPES), check)


@EVERY
def test_sizes_and_offsets_through_a_word(device, types):
    """All remainders of 16 bytes, of the depth, of the pitch and of the first address."""
    for index, k in enumerate(range(120, 137)):
        layout = cases.major_strides(LAYOUTS[index % 4])
        for offset in (0, 1 + index % 7, 8 + index % 8):
            a, b = types.operands(LAYOUTS[index % 4], 34, 40, k, device=device, whole=True)
            views = []
            for operand, strides in zip((a, b), layout, strict=True):
                rows, cols = operand.shape if strides == "contiguous" else operand.mT.shape
                pitch = cols + index % 3
                size = offset + rows * pitch + 32
                whole = torch.full(
                    (size,), cases.poison(operand.dtype), dtype=operand.dtype, device=device
                )
                view = whole.as_strided((rows, cols), (pitch, 1), offset)
                view = view if strides == "contiguous" else view.mT
                views.append(view.copy_(operand))
            reference.assert_exact(tcgemm.mm(*views, **types.options), exact(types, a, b))


@EVERY
def test_results_of_any_strides(device, types):
    def check(strides, layout, shape, out_dtype):
        m, n, k = shape
        a, b = types.operands(layout, m, n, k, device=device, whole=True)
        guarded = cases.Guarded(strides, (m, n), dtype=out_dtype, device=device)
        options = types.options | {"out_dtype": out_dtype}
        assert tcgemm.mm(a, b, **options, out=guarded.view) is guarded.view
        reference.assert_guarded(guarded, reference.exact(a, b, **options))

    shapes = ((70, 40, 50), (17, 33, 96), (1, 65, 9), (129, 1, 64), (64, 64, 1), (128, 64, 72))
    rotated = itertools.cycle((*shapes, (130, 64, 72)))
    arguments = []
    for index, strides in enumerate(cases.OUT_STRIDES):
        for out_dtype in dict.fromkeys((types.outs[0], types.widest)):
            arguments += [(strides, "TN", shape, out_dtype) for shape in shapes]
        for step, layout in enumerate(LAYOUTS):
            out_dtype = types.outs[(index + step) % len(types.outs)]
            arguments.append((strides, layout, next(rotated), out_dtype))
    check_all(arguments, check)


@EVERY
def test_epilogue_into_any_strides(device, types):
    m, n, k = 65, 41, 30

    def check(strides):
        a, b = types.operands("NT", m, n, k, device=device, whole=True)
        out_dtype = types.outs[0]
        options = {"out": out_dtype, "device": device}
        bias, c, residual = (types.addend(*shape, **options) for shape in ((n,), (m, n), (m, n)))
        guarded = cases.Guarded(strides, (m, n), dtype=out_dtype, device=device)
        terms = {"bias": bias, "residual": residual, "activation": "relu", "alpha": 2.0}
        terms |= types.options
        tcgemm.addmm(c, a, b, beta=-1.0, **terms, out=guarded.view)
        reference.assert_guarded(guarded, reference.exact(a, b, c, beta=-1.0, **terms))

    check_all(((strides,) for strides in cases.OUT_STRIDES), check)


@EVERY
@pytest.mark.parametrize("strides", ("transposed", "transposed_padded", "transposed_odd"))
def test_column_major_results(device, types, strides):
    """The transposed product, in every layout and dtype, with all that the epilogue adds."""
    for (index, layout), batch in itertools.product(enumerate(LAYOUTS), ((), (3,))):
        m, n, k = ((136, 80, 144), (65, 41, 30))[index // 2]
        a, b = types.operands(layout, m, n, k, device=device, batch=batch, whole=True)
        for step in range(index, len(types.outs), 4):
            out_dtype = types.outs[step]
            c, residual = (
                types.addend(*batch, m, n, out=out_dtype, device=device, strides=name, step=step)
                for name in (strides, "contiguous")
            )
            bias = types.addend(*((m, 1) if step % 2 else (n,)), out=out_dtype, device=device)
            options = {"activation": "relu", "alpha": 2.0, "beta": -1.0, "out_dtype": out_dtype}
            guarded = cases.Guarded(strides, (*batch, m, n), dtype=out_dtype, device=device)
            terms = (c, bias, residual)
            torch.ops.tcgemm._gemm.out(a, b, *terms, **options, **types.options, out=guarded.view)
            expected = reference.exact(a, b, *terms, **options, **types.options)
            reference.assert_guarded(guarded, expected)


@EVERY
def test_batches_of_any_strides(device, types):
    def check(strides, batch):
        sizes = {"m": 20, "n": 24, "k": 40, "device": device, "batch": batch, "whole": True}
        assert_product(types, *types.make(strides, "contiguous", **sizes))
        assert_product(types, *types.make("contiguous", strides, **sizes))
        assert_product(types, *types.make("transposed", strides, **sizes))
        a, _ = types.make("transposed", strides, **sizes)
        b = cases.make(
            strides, *batch, 24, 40, dtype=types.b, device=device, largest=types.largest(40)
        ).mT
        assert_product(types, a, b)
        a, b = types.make(strides, strides, **sizes)
        assert_product(types, a, b)
        one = b[(0,) * len(batch)]
        assert_product(types, a, one)
        assert_product(types, a, one.mT.contiguous().mT)

    check_all(((strides, batch) for strides in BATCHED for batch in ((3,), (2, 3))), check)


@EVERY
def test_batched_results_of_any_strides(device, types):
    def check(strides, layout, batch_b, out_dtype):
        batches = ((2, 3), batch_b)
        a, b = types.operands(layout, 20, 24, 40, device=device, batch=batches, whole=True)
        guarded = cases.Guarded(strides, (2, 3, 20, 24), dtype=out_dtype, device=device)
        options = types.options | {"out_dtype": out_dtype}
        tcgemm.matmul(a, b, **options, out=guarded.view)
        reference.assert_guarded(guarded, reference.exact(a, b, **options))

    arguments = []
    for index, strides in enumerate(BATCHED_OUT):
        # In the layouts' letters b comes first: b is contiguous, then transposed.
        arguments += [(strides, "NN", (2, 3), types.outs[0]), (strides, "TN", (), types.outs[0])]
        out_dtype = types.outs[index % len(types.outs)]
        arguments.append((strides, LAYOUTS[index % 4], (2, 3) if index % 2 else (), out_dtype))
    check_all(arguments, check)


@EVERY
def test_vectors_of_any_strides(device, types):
    options = {"device": device, "largest": types.largest(50)}
    for strides in ("contiguous", "offset", "step_cols", "expanded_cols"):
        row, column = (
            cases.make(strides, 1, 50, dtype=dtype, **options)[0] for dtype in (types.a, types.b)
        )
        left, right = (
            cases.make("odd_pitch", 50, 33, dtype=dtype, **options) for dtype in (types.a, types.b)
        )
        assert_product(types, row, right)
        assert_product(types, left.t(), column)
        assert_product(types, row, column)
        out = tcgemm.linear(row, right.t(), **types.options)
        reference.assert_exact(out, exact(types, row, right))


@EVERY
def test_odd_strides_of_dimensions_of_one(device, types):
    """torch allows any stride where a dimension has one element, and makes such tensors itself."""
    options = {"device": device, "largest": types.largest(40)}
    a, b = (cases.make("contiguous", 4096, dtype=dtype, **options) for dtype in (types.a, types.b))
    row, column = ((1, 40), (3, 1)), ((40, 1), (1, 7), 8)
    one, matrix = ((1, 1), (5, 9), 1), ((40, 24), (24, 1), 64)
    pairs = [
        (a.as_strided(*row), b.as_strided(*matrix)),
        (a.as_strided(*matrix).t(), b.as_strided(*column)),
        (a.as_strided(*row), b.as_strided(*column)),
        (a.as_strided(*column), b.as_strided(*row)),
        (a.as_strided(*one), b.as_strided(*row)),
        (a.as_strided(*one), b.as_strided((1, 40), (3, 1), 5)),
    ]
    for left, right in pairs:
        reference.assert_exact(tcgemm.mm(left, right, **types.options), exact(types, left, right))
        batch = left[None].as_strided((1, *left.shape), (11, *left.stride()), left.storage_offset())
        assert_product(types, batch, right)
    for left, right in (
        *pairs,
        (a[3:43], b.as_strided((40, 33), (34, 1), 5)),
        (a.as_strided((33, 40), (1, 34), 5), b[::2][:40]),
        (a[:1].expand(40), b[1:41]),
    ):
        assert_product(types, left, right)


@parameters(lambda types: types.a == types.b)
def test_operands_may_share_memory(device, types):
    options = {"dtype": types.a, "device": device, "largest": types.largest(60)}
    x = cases.make("contiguous", 60, 60, **options)
    for a, b in ((x, x), (x, x.t()), (x.t(), x), (x[:30], x[:, :40]), (x[1:], x[:, 1:])):
        reference.assert_exact(tcgemm.mm(a, b, **types.options), exact(types, a, b))
    if types.a in types.addends:
        out = tcgemm.addmm(x, x, x, residual=x, **types.options)
        reference.assert_exact(out, reference.exact(x, x, x, None, x, **types.options))
    # Overlapping windows: every row begins before the one above ends.
    for pitch in (1, 16):
        windows = x.flatten().as_strided((50, 48), (pitch, 1))
        out = tcgemm.mm(windows, windows.t(), **types.options)
        reference.assert_exact(out, exact(types, windows, windows.t()))
