"""Scales and zero points of every shape and dtype, and batches that merge into one product or not:
bit by bit with powers of two, and within the bound with any numbers.

A scale that is taken from an adjacent block, row or column is another power of two more often
than not.
"""

import itertools

import pytest
import torch

import tcgemm
from tcgemm.measure import errors

from support import cases, reference
from support.cases import DEVICES, E4M3, F32, FP8, FP8_DEVICES, LAYOUTS, S8, S32
from support.dtype_matrix import (
    EVERY,
    GRANULARITIES,
    addends,
    blocks,
    parameters,
    positive,
    scale_a,
    scale_b,
    zero_points,
)

OPS = torch.ops.tcgemm
BLOCKS = parameters(lambda types: types.fp8 and types.precision is None)
FAST = parameters(lambda types: types.precision == "fast")
INTEGERS = parameters(lambda types: types.integer)
PAIRS = tuple(itertools.product(GRANULARITIES, GRANULARITIES))
# Whole blocks, blocks that end early along m, n and k, and fewer rows or columns than a block.
BLOCK_SHAPES = (
    *((130, 257, 300), (1, 129, 128), (257, 1, 129), (65, 300, 513), (300, 65, 127)),
    *((128, 256, 384), (400, 80, 1040), (2, 3, 1025), (129, 500, 64), (384, 144, 256)),
)
# Outer-dimension-major is the order of 1x128 scales in other libraries.
SCALE_STRIDES = ("contiguous", "transposed", "padded", "step_both", "offset", "transposed_padded")
# Batches of a and b: one matrix, equal, rows that go on, rows that cannot, loops around products.
BATCHES = [
    *(((), ()), ((2,), (2,)), ((4, 3), ()), ((4, 3), (1, 3))),
    *(((4, 1), (3,)), ((2, 2, 2), (2, 1, 2))),
]
# M at which blocks of 128 rows go on from matrix to matrix (256), and at which they do not.
SIZES = [(5, 7, 3), (1, 300, 4), (200, 300, 4), (256, 130, 1), (128, 128, 130)]


def out_of(types, index):
    """The result that an index picks, but s32, which has no scales."""
    outs = [out for out in types.outs if out != S32]
    return outs[index % len(outs)]


@BLOCKS
def test_blocks_of_every_kind_on_whole_numbers(device, types):
    for index, (of_a, of_b) in enumerate(PAIRS):
        for step in range(2):
            m, n, k = BLOCK_SHAPES[(index + 3 * step) % len(BLOCK_SHAPES)]
            layout = LAYOUTS[(index + step) % 4]
            a, b = types.operands(layout, m, n, k, device=device, whole=True)
            options = {"device": device, "powers": True}
            strides = SCALE_STRIDES[(index + step) % len(SCALE_STRIDES)]
            scales = {
                "scale_a": scale_a(of_a, m, k, strides=strides, **options),
                "scale_b": scale_b(of_b, n, k, strides=strides, **options),
            }
            out_dtype = F32 if step == 0 else out_of(types, index)
            out = tcgemm.mm(a, b, **scales, **types.options, out_dtype=out_dtype)
            expected = reference.exact(a, b, **scales, **types.options, out_dtype=out_dtype)
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
        epilogue = {"alpha": 0.2, "beta": -0.5, "activation": activation, **scales, **terms}
        epilogue |= types.options
        scale_out = torch.tensor(0.75, device=device)
        last = {"scale_out": scale_out, "out_dtype": out_dtype}
        out, amax = torch.ops.tcgemm.scaled_mm_amax(a, b, **epilogue, **last)
        reference.assert_close(out, a, b, **epilogue, **last)
        reference.assert_amax(amax, a, b, **epilogue, out_dtype=out_dtype)


@BLOCKS
def test_block_scales_of_batches(device, types):
    """Scales of one matrix, of every matrix, and of the other operand alone."""
    options = {"device": device, "powers": True}
    for index, (of_a, of_b) in enumerate((("1x128", "128x128"), ("128x128", "row"), ("", "1x128"))):
        for own_a, own_b in (((3,), ()), ((), (3,)), ((3,), (3,))):
            m, n, k = ((130, 70, 260), (256, 144, 128))[index % 2]
            a, b = types.operands(LAYOUTS[index], m, n, k, device=device, batch=(3,), whole=True)
            scales = {
                "scale_a": scale_a(of_a, m, k, batch=own_a, **options),
                "scale_b": scale_b(of_b, n, k, batch=own_b, **options),
            }
            for left, right in ((a, b), (a, b[0]), (a[0], b)):
                out = tcgemm.matmul(left, right, **scales, **types.options, out_dtype=F32)
                expected = reference.exact(left, right, **scales, **types.options, out_dtype=F32)
                reference.assert_exact(out, expected)


@BLOCKS
def test_a_column_major_result_of_blocks(device, types):
    """The transposed product: scale_a and scale_b change places."""
    options = {"device": device, "powers": True}
    for index, (of_a, of_b) in enumerate(PAIRS[5:]):
        m, n, k = BLOCK_SHAPES[index % len(BLOCK_SHAPES)]
        a, b = types.operands(LAYOUTS[index % 4], m, n, k, device=device, whole=True)
        scales = scale_a(of_a, m, k, **options), scale_b(of_b, n, k, **options)
        keywords = dict(zip(("scale_a", "scale_b"), scales, strict=True), out_dtype=F32)
        strides = ("transposed", "transposed_odd", "transposed_padded")[index % 3]
        guarded = cases.Guarded(strides, (m, n), dtype=F32, device=device)
        tcgemm.mm(a, b, **keywords, **types.options, out=guarded.view)
        reference.assert_guarded(guarded, reference.exact(a, b, **keywords, **types.options))


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
            scales = {
                "scale_a": scale_a(of_a, m, k, strides=strides, **options),
                "scale_b": scale_b(of_b, n, k, strides=strides, **options),
                "out_dtype": out_dtype,
                **types.options,
            }
            if powers:
                out = tcgemm.mm(a, b, **scales)
                reference.assert_exact(out, reference.exact(a, b, **scales))
            else:
                # Sums of integers leave the range of s8 and f16.
                scales["alpha"] = 1e-3 if types.integer else 1.0
                reference.assert_close(tcgemm.mm(a, b, **scales), a, b, **scales)


@FAST
def test_blocks_are_not_fast(device, types):
    a, b = types.operands("TN", 130, 65, 300, device=device)
    with pytest.raises(RuntimeError, match='"fast"'):
        tcgemm.mm(a, b, scale_a=scale_a("1x128", 130, 300, device=device), **types.options)
    options = {"scale_a": scale_a("row", 130, 300, device=device), **types.options}
    reference.assert_close(tcgemm.mm(a, b, **options, out_dtype=F32), a, b, **options)


@INTEGERS
def test_zero_points(device, types):
    """One value, rows and columns; exact in s32, and with scales in every other result."""
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
            options = {
                **zeros,
                "scale_a": scale_a("row", m, k, device=device),
                "scale_b": scale_b("row", n, k, device=device),
                "bias": types.addend(n, device=device),
                "alpha": 2.0**-10,
                "out_dtype": out_of(types, index),
            }
            out, amax = tcgemm.mm(a, b, **options, amax=True)
            reference.assert_close(out, a, b, **options)
            reference.assert_amax(amax, a, b, **options)


@INTEGERS
def test_zero_points_of_batches_and_any_strides(device, types):
    batches = (((3,), (3,)), ((2, 3), ()), ((), (3,)), ((2, 1), (3,)))
    strides = ("contiguous", "transposed", "odd_pitch", "step_both", "transposed_offset", "offset")
    for index, names in enumerate(itertools.product(strides, strides)):
        batch_a, batch_b = batches[index % 4]
        m, n, k = ((40, 24, 48), (33, 65, 70))[index % 2]
        a, b = types.make(*names, m, n, k, device=device, batch=(batch_a, batch_b))
        whole = torch.broadcast_shapes(batch_a, batch_b)
        options = {
            "zero_a": zero_points(*whole, m, 1, device=device),
            "zero_b": zero_points(*(whole if index % 3 else ()), 1, n, device=device),
        }
        out = tcgemm.matmul(a, b, **options)
        reference.assert_exact(out, reference.exact(a, b, **options))
        options["out_dtype"] = F32
        if index % 2:
            options["out"] = cases.empty("transposed_odd", out.shape, dtype=F32, device=device)
        wide = tcgemm.matmul(a, b, **options)
        assert torch.equal(wide, out.float())


@BLOCKS
def test_a_whole_network_of_8_bits(device, types):
    """quantize, multiply, requantise by amax, multiply: near the product of what was given."""
    x, w, v = (torch.randn(s, 300, device=device) for s in (130, 300, 70))
    for granularity in GRANULARITIES:
        x8, scale_x = tcgemm.quantize(x, types.a, granularity)
        w8, scale_w = tcgemm.quantize(w, types.b, granularity)
        options = {"scale_a": scale_x, "scale_b": scale_w.t(), "out_dtype": F32, **types.options}
        hidden, amax = tcgemm.linear(x8, w8, **options, activation="relu", amax=True)
        reference.assert_close(hidden, x8, w8.t(), activation="relu", **options)
        options |= {"scale_out": 448 / amax, "out_dtype": FP8[0]}
        h8 = tcgemm.linear(x8, w8, **options, activation="relu")
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


# Batches, and scales of any strides.


def whole(*shape, device):
    """fp8 whose sums every tensor core has exactly."""
    return torch.randint(-2, 3, shape, device=device).to(F32).to(E4M3)


def strided(scale, way):
    """The same scale with other strides."""
    if way == "transposed" and scale.dim() >= 2:
        return scale.mT.contiguous().mT
    if way == "stepped":
        return torch.stack([scale, 9 * scale], -1)[..., 0]
    return scale


def assert_near(out, expected):
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("device", FP8_DEVICES)
@pytest.mark.parametrize("m, k, n", SIZES)
@pytest.mark.parametrize("batch_a, batch_b", BATCHES)
def test_shapes_of_scales(batch_a, batch_b, m, k, n, device):
    batch = torch.broadcast_shapes(batch_a, batch_b)
    a = whole(*batch_a, m, k, device=device)
    b = whole(*batch_b, k, n, device=device)
    of_a = [(m, 1), (m, blocks(k)), (blocks(m), blocks(k))]
    of_b = [(1, n), (blocks(k), n), (blocks(k), blocks(n))]
    batches = [(batch, ()), ((), batch), (batch, batch), (batch_a, batch_b), ((), ())]
    for index, (shape_a, shape_b) in enumerate(itertools.product(of_a, of_b)):
        in_a, in_b = batches[index % len(batches)]
        way = ("contiguous", "transposed", "stepped")[index % 2 + index // 3 % 2]
        scale_a = strided(positive(*in_a, *shape_a, device=device), way)
        scale_b = strided(positive(*in_b, *shape_b, device=device), way)
        out, amax = OPS.scaled_mm_amax(a, b, scale_a, scale_b, out_dtype=F32)
        expected = (a.double() * errors.expand_scale(scale_a, m, k)) @ (
            b.double() * errors.expand_scale(scale_b, k, n)
        )
        assert out.shape == expected.shape
        assert_near(out, expected)
        assert amax == out.abs().max()  # of all products, however many launches they are


@pytest.mark.parametrize("device", FP8_DEVICES)
def test_blocks_that_share_memory(device):
    """Their strides fit rows that go on from matrix to matrix, but 200 rows end within a block."""
    a, b = whole(2, 200, 130, device=device), whole(130, 8, device=device)
    scale = positive(3, 2, device=device).as_strided((2, 2, 2), (2, 2, 1))
    expected = (a.double() * errors.expand_scale(scale, 200, 130)) @ b.double()
    assert_near(OPS.scaled_mm(a, b, scale, out_dtype=F32), expected)


@pytest.mark.parametrize("m", [128, 256, 512])
def test_rows_of_blocks_go_on(m):
    """One product for the whole batch, where each matrix is a whole number of blocks."""
    a, b = (torch.empty(*shape, dtype=E4M3) for shape in [(4, m, 256), (256, 64)])
    for scale in (torch.empty(4, m, 2), torch.empty(4, m // 128, 2)):
        merged = f"are one dimension of {4 * m} rows" in tcgemm.explain(a, b, scale_a=scale)
        assert merged == (scale.shape[1] > 1)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("m", [1, 6])
@pytest.mark.parametrize("batch_a, batch_b", [*BATCHES, ((4, 1, 2), (1, 3, 1))])
def test_shapes_of_zero_points(batch_a, batch_b, m, device):
    a = torch.randint(-128, 128, (*batch_a, m, 9), dtype=torch.int8, device=device)
    b = torch.randint(0, 256, (*batch_b, 9, 4), dtype=torch.uint8, device=device)
    batch = torch.broadcast_shapes(batch_a, batch_b)
    for of_a, of_b in [((*batch, m, 1), (1, 4)), ((m, 1), (*batch, 1, 4)), ((), (*batch, 1, 1))]:
        zero_a = torch.randint(-9, 9, of_a, dtype=torch.int32, device=device)
        zero_b = torch.randint(-9, 9, of_b, dtype=torch.int32, device=device)
        expected = (a.cpu().long() - zero_a.cpu()) @ (b.cpu().long() - zero_b.cpu())
        out = OPS.scaled_mm(a, b, zero_a=zero_a, zero_b=zero_b)
        assert out.dtype == torch.int32 and torch.equal(out.cpu().long(), expected)
        half = torch.tensor([[0.5]], device=device)
        options = {"zero_a": zero_a, "zero_b": zero_b, "out_dtype": F32}
        out, amax = OPS.scaled_mm_amax(a, b, half, **options, scale_out=half)
        assert torch.equal(out.cpu().double(), expected.double() / 4)
        assert amax == expected.abs().max() / 2


@pytest.mark.parametrize("device", FP8_DEVICES)
def test_one_value_for_each_matrix(device):
    a, b = whole(3, 16, 32, device=device), whole(3, 32, 8, device=device)
    scale_a, scale_b = (positive(3, 1, 1, device=device) for _ in range(2))
    expected = (a.double() @ b.double()) * scale_a.double() * scale_b.double()
    assert_near(OPS.scaled_mm(a, b, scale_a, scale_b, out_dtype=F32), expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("granularity", ["tensor", "row", "1x128", "128x128"])
@pytest.mark.parametrize("dims", [(0, 1, 2, 3), (1, 2, 0, 3), (2, 0, 3, 1)])
def test_quantize_of_any_strides(dims, granularity, device):
    """Also of those that no batch of matrices has: the same bits as of a contiguous tensor."""
    x = torch.randn(2, 3, 140, 150, device=device).permute(dims)
    values, scale = OPS.quantize(x, E4M3, granularity)
    expected, expected_scale = OPS.quantize(x.contiguous(), E4M3, granularity)
    rows, columns = x.shape[-2:]
    last = {
        "tensor": (),
        "row": (*x.shape[:-1], 1),
        "1x128": (*x.shape[:-1], blocks(columns)),
        "128x128": (*x.shape[:-2], blocks(rows), blocks(columns)),
    }
    assert values.shape == x.shape and values.is_contiguous() and values.dtype == E4M3
    assert scale.shape == last[granularity] and scale.is_contiguous() and scale.dtype == F32
    assert torch.equal(values.view(torch.int8), expected.view(torch.int8))
    assert torch.equal(scale, expected_scale)
    error = (values.double() * errors.expand_scale(scale, rows, columns) - x.double()).abs()
    assert (error <= x.double().abs() / 16 + errors.expand_scale(scale, rows, columns) / 1024).all()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3), (2, 0, 5)])
def test_quantize_of_nothing(shape, device):
    x = torch.empty(shape, device=device)
    for granularity in ("tensor", "row", "1x128"):
        values, scale = OPS.quantize(x, torch.int8, granularity)
        assert values.shape == shape and (scale == 1).all()
    assert OPS.quantize(x, E4M3)[1].shape == ()
