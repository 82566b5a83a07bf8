"""Scales and zero points of every shape and dtype: bit by bit with powers of two, and within the
bound with any numbers.

A scale that is taken from a neighbouring block, row or column is another power of two more often
than not. How their batches broadcast is in test_scales.py.
"""

import itertools

import pytest
import torch

import tcgemm

from support import cases, reference
from support.cases import F32, FP8, LAYOUTS, S8, S32
from support.dtype_matrix import (
    EVERY,
    GRANULARITIES,
    addends,
    parameters,
    scale_a,
    scale_b,
    zero_points,
)

BLOCKS = parameters(lambda types: types.fp8 and types.precision is None)
FAST = parameters(lambda types: types.precision == "fast")
INTEGERS = parameters(lambda types: types.integer)
PAIRS = tuple(itertools.product(GRANULARITIES, GRANULARITIES))
# Whole blocks, blocks that end early along m, n and k, and fewer rows or columns than a block.
BLOCK_SHAPES = (
    *((130, 257, 300), (1, 129, 128), (257, 1, 129), (65, 300, 513), (300, 65, 127)),
    *((128, 256, 384), (400, 80, 1040), (2, 3, 1025), (129, 500, 64), (384, 144, 256)),
)
# Outer-dimension-major is how other libraries want scales of 1x128.
SCALE_STRIDES = ("contiguous", "transposed", "padded", "step_both", "offset", "transposed_padded")


def out_of(types, index):
    """Results in turn, but s32, which has no scales."""
    outs = [out for out in types.outs if out != S32]
    return outs[index % len(outs)]


@BLOCKS
def test_blocks_of_every_kind_on_whole_numbers(device, types):
    for index, (of_a, of_b) in enumerate(PAIRS):
        for turn in range(2):
            m, n, k = BLOCK_SHAPES[(index + 3 * turn) % len(BLOCK_SHAPES)]
            layout = LAYOUTS[(index + turn) % 4]
            a, b = types.operands(layout, m, n, k, device=device, whole=True)
            options = {"device": device, "powers": True}
            strides = SCALE_STRIDES[(index + turn) % len(SCALE_STRIDES)]
            given = {
                "scale_a": scale_a(of_a, m, k, strides=strides, **options),
                "scale_b": scale_b(of_b, n, k, strides=strides, **options),
            }
            out_dtype = F32 if turn == 0 else out_of(types, index)
            out = tcgemm.mm(a, b, **given, **types.options, out_dtype=out_dtype)
            expected = reference.exact(a, b, **given, **types.options, out_dtype=out_dtype)
            reference.assert_exact(out, expected)


@BLOCKS
def test_blocks_on_normal_data_with_all_that_follows(device, types):
    for index, (of_a, of_b) in enumerate(PAIRS):
        m, n, k = BLOCK_SHAPES[index % len(BLOCK_SHAPES)]
        a, b = types.operands(LAYOUTS[index % 4], m, n, k, device=device)
        scales = {
            "scale_a": scale_a(of_a, m, k, device=device),
            "scale_b": scale_b(of_b, n, k, device=device),
        }
        out = tcgemm.mm(a, b, **scales, **types.options, out_dtype=F32)
        reference.assert_close(out, a, b, **scales, **types.options)
        out_dtype = out_of(types, index)
        terms = addends(types, out_dtype, device, m, n, largest=None)
        activation = tuple(cases.ACTIVATIONS)[index % 4]
        given = {"alpha": 0.2, "beta": -0.5, "activation": activation, **scales, **terms}
        given |= types.options
        scale_out = torch.tensor(0.75, device=device)
        last = {"scale_out": scale_out, "out_dtype": out_dtype}
        out, amax = torch.ops.tcgemm.scaled_mm_amax(a, b, **given, **last)
        reference.assert_close(out, a, b, **given, **last)
        reference.assert_amax(amax, a, b, **given)


@BLOCKS
def test_block_scales_of_batches(device, types):
    """Those of one matrix, of every matrix, and of none but the other operand."""
    options = {"device": device, "powers": True}
    for index, (of_a, of_b) in enumerate((("1x128", "128x128"), ("128x128", "row"), ("", "1x128"))):
        for own_a, own_b in (((3,), ()), ((), (3,)), ((3,), (3,))):
            m, n, k = ((130, 70, 260), (256, 144, 128))[index % 2]
            a, b = types.operands(LAYOUTS[index], m, n, k, device=device, batch=(3,), whole=True)
            given = {
                "scale_a": scale_a(of_a, m, k, batch=own_a, **options),
                "scale_b": scale_b(of_b, n, k, batch=own_b, **options),
            }
            for left, right in ((a, b), (a, b[0]), (a[0], b)):
                out = tcgemm.matmul(left, right, **given, **types.options, out_dtype=F32)
                expected = reference.exact(left, right, **given, **types.options, out_dtype=F32)
                reference.assert_exact(out, expected)


@BLOCKS
def test_a_column_major_result_of_blocks(device, types):
    """The transposed product: scale_a and scale_b change places."""
    options = {"device": device, "powers": True}
    for index, (of_a, of_b) in enumerate(PAIRS[5:]):
        m, n, k = BLOCK_SHAPES[index % len(BLOCK_SHAPES)]
        a, b = types.operands(LAYOUTS[index % 4], m, n, k, device=device, whole=True)
        scales = scale_a(of_a, m, k, **options), scale_b(of_b, n, k, **options)
        given = dict(zip(("scale_a", "scale_b"), scales, strict=True), out_dtype=F32)
        strides = ("transposed", "transposed_odd", "transposed_padded")[index % 3]
        guarded = cases.Guarded(strides, (m, n), dtype=F32, device=device)
        tcgemm.mm(a, b, **given, **types.options, out=guarded.view)
        reference.assert_exact(guarded.view, reference.exact(a, b, **given, **types.options))
        assert guarded.untouched()


@EVERY
def test_scales_of_rows_and_of_the_whole(device, types):
    kinds = ("", "tensor", "row")
    pairs = itertools.product(kinds, kinds)
    shapes = itertools.cycle(((65, 130, 40), (129, 33, 100), (1, 70, 16), (144, 1, 9)))
    for index, (of_a, of_b) in enumerate(pair for pair in pairs if pair != ("", "")):
        m, n, k = next(shapes)
        out_dtype = out_of(types, index)
        for powers in (True, False):
            a, b = types.operands(LAYOUTS[index % 4], m, n, k, device=device, whole=powers)
            options = {"device": device, "powers": powers}
            strides = SCALE_STRIDES[index % len(SCALE_STRIDES)]
            given = {
                "scale_a": scale_a(of_a, m, k, strides=strides, **options),
                "scale_b": scale_b(of_b, n, k, strides=strides, **options),
                "out_dtype": out_dtype,
                **types.options,
            }
            if powers:
                out = tcgemm.mm(a, b, **given)
                reference.assert_exact(out, reference.exact(a, b, **given))
            else:
                # Sums of integers leave the range of s8 and f16.
                given["alpha"] = 1e-3 if types.integer else 1.0
                reference.assert_close(tcgemm.mm(a, b, **given), a, b, **given)


@FAST
def test_blocks_are_not_fast(device, types):
    a, b = types.operands("TN", 130, 65, 300, device=device)
    with pytest.raises(RuntimeError, match='"fast"'):
        tcgemm.mm(a, b, scale_a=scale_a("1x128", 130, 300, device=device), **types.options)
    given = {"scale_a": scale_a("row", 130, 300, device=device), **types.options}
    reference.assert_close(tcgemm.mm(a, b, **given, out_dtype=F32), a, b, **given)


@INTEGERS
def test_zero_points(device, types):
    """Of one value, of rows and of columns; exact in s32, and with scales in every other result."""
    shapes = ((65, 130, 40), (129, 33, 100), (1, 70, 16), (144, 1, 9), (300, 200, 1025))
    for index, (m, n, k) in enumerate(shapes):
        a, b = types.operands(LAYOUTS[index % 4], m, n, k, device=device)
        for of_a, of_b in (((m, 1), (1, n)), ((1,), None), (None, (1, n)), ((m, 1), (1, 1))):
            zeros = {
                name: zero_points(*shape, device=device)
                for name, shape in (("zero_a", of_a), ("zero_b", of_b))
                if shape is not None
            }
            reference.assert_exact(tcgemm.mm(a, b, **zeros), reference.exact(a, b, **zeros))
            given = {
                **zeros,
                "scale_a": scale_a("row", m, k, device=device),
                "scale_b": scale_b("row", n, k, device=device),
                "bias": types.addend(n, device=device),
                "alpha": 2.0**-10,
                "out_dtype": out_of(types, index),
            }
            out, amax = tcgemm.mm(a, b, **given, amax=True)
            reference.assert_close(out, a, b, **given)
            del given["out_dtype"]
            reference.assert_amax(amax, a, b, **given)


@INTEGERS
def test_zero_points_of_batches_and_any_strides(device, types):
    batches = (((3,), (3,)), ((2, 3), ()), ((), (3,)), ((2, 1), (3,)))
    strides = ("contiguous", "transposed", "odd_pitch", "step_both", "transposed_offset", "offset")
    for index, names in enumerate(itertools.product(strides, strides)):
        batch_a, batch_b = batches[index % 4]
        m, n, k = ((40, 24, 48), (33, 65, 70))[index % 2]
        a, b = types.make(*names, m, n, k, device=device, batch=(batch_a, batch_b))
        whole = torch.broadcast_shapes(batch_a, batch_b)
        given = {
            "zero_a": zero_points(*whole, m, 1, device=device),
            "zero_b": zero_points(*(whole if index % 3 else ()), 1, n, device=device),
        }
        out = tcgemm.matmul(a, b, **given)
        reference.assert_exact(out, reference.exact(a, b, **given))
        given["out_dtype"] = F32
        if index % 2:
            given["out"] = cases.empty("transposed_odd", out.shape, dtype=F32, device=device)
        wide = tcgemm.matmul(a, b, **given)
        assert torch.equal(wide, out.float())


@BLOCKS
def test_a_whole_network_of_8_bits(device, types):
    """quantize, multiply, requantise by amax, multiply: near the product of what was given."""
    x, w, v = (torch.randn(s, 300, device=device) for s in (130, 300, 70))
    for granularity in GRANULARITIES:
        x8, scale_x = tcgemm.quantize(x, types.a, granularity)
        w8, scale_w = tcgemm.quantize(w, types.b, granularity)
        given = {"scale_a": scale_x, "scale_b": scale_w.t(), "out_dtype": F32, **types.options}
        hidden, amax = tcgemm.linear(x8, w8, **given, activation="relu", amax=True)
        reference.assert_close(hidden, x8, w8.t(), activation="relu", **given)
        given |= {"scale_out": 448 / amax, "out_dtype": FP8[0]}
        h8 = tcgemm.linear(x8, w8, **given, activation="relu")
        assert h8.float().max() == 448
        v8, scale_v = tcgemm.quantize(v, FP8[0], "row")
        out = tcgemm.linear(h8, v8, scale_a=amax / 448, scale_b=scale_v.t(), out_dtype=F32)
        exact = (x.double() @ w.double().t()).relu() @ v.double().t()
        error = (out.double() - exact).norm() / exact.norm()
        assert error < (0.06 if types.a == types.b == FP8[0] else 0.15)


@pytest.mark.parametrize("device", cases.DEVICES)
def test_quantized_integers_are_near_the_product(device):
    x, w = torch.randn(130, 300, device=device), torch.randn(70, 300, device=device)
    x8, scale_x = tcgemm.quantize(x, S8, "row")
    w8, scale_w = tcgemm.quantize(w, S8, "row")
    out = tcgemm.linear(x8, w8, scale_a=scale_x, scale_b=scale_w.t(), out_dtype=F32)
    exact = x.double() @ w.double().t()
    assert (out.double() - exact).norm() / exact.norm() < 0.02
