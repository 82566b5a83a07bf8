"""fp8, int8, tf32 and scaled products on the CPU against their definition (csrc/cpu/dense.h), bit
by bit: every code of a narrow type, every kind of rounding, exact integers, the order of scales.
"""

import itertools
import math

import pytest
import torch

from support import cases
from support.cases import BF16, F16, F32, F64
from support.cpu_model import ISAS, Types, assert_same_digest, model, narrowed, rounded, seconds_of
from support.reference import same_bits

scaled_mm = torch.ops.tcgemm.scaled_mm
scaled_mm_amax = torch.ops.tcgemm.scaled_mm_amax

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
FP8 = (E4M3, E5M2)
S8, U8, S32 = torch.int8, torch.uint8, torch.int32
FP8_PAIRS = list(itertools.product(FP8, FP8))
INT8_PAIRS = list(itertools.product((S8, U8), (S8, U8)))
inf, nan = math.inf, math.nan


def codes(dtype):
    return torch.arange(256, dtype=U8).view(dtype)


def integers(dtype, *shape):
    info = torch.iinfo(dtype)
    return torch.randint(info.min, info.max + 1, shape, dtype=dtype)


def normal(dtype, *shape):
    return (torch.randn(shape) * 2).to(dtype)


def operand(dtype, *shape):
    return integers(dtype, *shape) if dtype in (S8, U8) else normal(dtype, *shape)


def scales(*shape):
    return torch.rand(shape) + 0.5


def wrapped(x):
    """int64 modulo 2^32, as s32."""
    return ((x + 2**31) % 2**32 - 2**31).to(S32)


def to(x, dtype):
    return narrowed(x, dtype) if dtype in (*FP8, S8) else rounded(x, dtype)


def awkward(points):
    """f32 numbers around points and around the middle of two, of both signs; special ones; any."""
    points = points.double().sort().values
    middles = ((points[1:] + points[:-1]) / 2).float()
    near = [middles, points.float()]
    near += [torch.nextafter(x, torch.tensor(side)) for x in near for side in (inf, -inf)]
    special = torch.tensor([0.0, inf, nan, 2.0**-149, 2.0**-126, 3.4e38, 465.0, 61441.0, 127.5])
    words = torch.randint(-(2**31), 2**31, (20_000,), dtype=S32).view(F32)
    ranged = torch.randn(20_000) * 2.0 ** torch.randint(-20, 18, (20_000,))
    x = torch.cat([*near, special, words, ranged])
    return torch.cat([x, -x])


@pytest.mark.parametrize("dtype", FP8)
def test_all_codes_are_decoded(dtype):
    x, one = codes(dtype), torch.ones(1, 1).to(dtype)
    expected = rounded(x.float() + 0, F32)  # + 0: the chain starts from +0, so -0 becomes +0
    assert same_bits(scaled_mm(x[:, None], one, out_dtype=F32)[:, 0], expected)
    assert same_bits(scaled_mm(one, x[None], out_dtype=F32)[0], expected)
    # A step of 2 takes the paths that convert one value at a time.
    assert same_bits(scaled_mm(x[None, ::2].mT, one, out_dtype=F32)[:, 0], expected[::2])


@pytest.mark.parametrize("dtype", (*FP8, S8, U8))
@pytest.mark.parametrize("layout", cases.LAYOUTS)
def test_codes_reach_their_places_in_every_layout(dtype, layout):
    x = codes(dtype)
    if dtype in FP8:
        x = torch.where(x.float().isfinite(), x.float(), 0).to(dtype)
    stored_a, stored_b = cases.major_strides(layout)
    x = x[torch.randperm(256)].view(16, 16)
    unit = torch.eye(16).to(dtype)
    for a, b in ((x, unit), (unit, x)):
        a = a.mT.contiguous().mT if stored_a == "transposed" else a
        b = b.mT.contiguous().mT if stored_b == "transposed" else b
        assert torch.equal(scaled_mm(a, b, out_dtype=F32), x.float())


@pytest.mark.parametrize("out", FP8)
def test_every_rounding_to_fp8(out):
    x = awkward(codes(out)[:0x7F].float().nan_to_num(0, 0, 0))
    expected = narrowed(x + 0, out)
    one = torch.ones(1, 1)
    assert same_bits(scaled_mm(x[:, None], one, out_dtype=out)[:, 0], expected)
    strided = torch.empty(len(x), 3, dtype=out)[:, ::2][:, :1]
    torch.ops.tcgemm.scaled_mm.out(x[:, None], one, out_dtype=out, out=strided)
    assert same_bits(strided[:, 0], expected)


def test_every_rounding_to_s8():
    x = awkward(torch.arange(-130, 131).float())
    one = torch.ones(len(x), 1, dtype=S8)
    result = scaled_mm(one, one[:1], scale_a=x[:, None], out_dtype=S8)
    assert same_bits(result[:, 0], narrowed(x, S8))


def rounded_to(bits, x):
    """f32 to nearest even with this many bits of mantissa, on words."""
    word = x.view(S32).long() & 0xFFFFFFFF
    dropped = 23 - bits
    word = word + (1 << (dropped - 1)) - 1 + ((word >> dropped) & 1)
    value = wrapped(word >> dropped << dropped).view(F32)
    return torch.where(x.isnan(), nan, value)


@pytest.mark.parametrize("precision, bits", [("high", 10), ("medium", 7), ("highest", 23)])
def test_every_rounding_of_f32_operands(precision, bits):
    words = torch.randint(-(2**31), 2**31, (40_000,), dtype=S32)
    words[::2] &= ~0xFFF  # ties of tf32
    words[1::4] &= ~0x7FFF  # and of bf16
    largest = torch.tensor([3.4028234e38, inf, -inf, nan, 2.0**-149, 2.0**-127, 0.0])
    x = torch.cat([words.view(F32), largest, -largest])
    wide = x.clone() if bits == 23 else rounded_to(bits, x)
    if bits == 7:
        assert same_bits(rounded(wide, F32), rounded(x.to(BF16).float(), F32))
    expected = rounded(wide + 0, F32)
    one = torch.ones(1, 1)
    assert same_bits(scaled_mm(x[:, None], one, precision=precision)[:, 0], expected)
    assert same_bits(scaled_mm(one, x[None], precision=precision)[0], expected)
    one_by_one = scaled_mm(one, x[None, ::2], precision=precision)[0]
    assert same_bits(one_by_one, expected[::2])
    finite = x[wide.isfinite()][: 60 * 60].view(60, 60)
    for stored in (finite, finite.mT.contiguous().mT):
        result = scaled_mm(stored, torch.eye(60), precision=precision)
        assert torch.equal(result, wide[wide.isfinite()][: 60 * 60].view(60, 60))


@pytest.mark.parametrize("types", FP8_PAIRS, ids=str)
@pytest.mark.parametrize("shape", [(5, 9, 17), (13, 35, 40), (3, 4, 523)], ids=str)
def test_fp8_sums_are_one_chain_of_fma(types, shape):
    m, n, k = shape
    a, b = normal(types[0], m, k), normal(types[1], k, n)
    sums = model(Types(E4M3, F32, F32), a, b)
    for out in (F32, BF16, F16, *FP8):
        assert same_bits(scaled_mm(a, b, out_dtype=out), to(sums, out))
    assert same_bits(scaled_mm(a, b), sums.to(BF16))
    for precision in ("fast", "promoted"):
        assert same_bits(scaled_mm(a, b, out_dtype=F32, precision=precision), sums)


@pytest.mark.parametrize("types", INT8_PAIRS, ids=str)
@pytest.mark.parametrize("shape", [(1, 1, 1), (7, 33, 255), (70, 50, 1000), (300, 9, 70)], ids=str)
def test_integer_sums_are_exact(types, shape):
    m, n, k = shape
    a, b = integers(types[0], m, k), integers(types[1], k, n)
    exact = a.long() @ b.long()
    assert torch.equal(scaled_mm(a, b), exact.to(S32))
    assert same_bits(scaled_mm(a, b, out_dtype=F32), exact.to(S32).float())
    assert same_bits(scaled_mm(a, b, out_dtype=BF16), exact.float().to(BF16))
    assert same_bits(scaled_mm(a, b, out_dtype=S8), exact.clamp(-128, 127).to(S8))


@pytest.mark.parametrize("types", INT8_PAIRS, ids=str)
def test_integer_sums_are_exact_at_the_ends_of_the_range_and_wrap_around(types):
    """Blocks of 256 products reach 2^24 - 130816; 2^17 of the largest pass 2^31."""
    low, high = (tuple(torch.iinfo(t).min for t in types), tuple(torch.iinfo(t).max for t in types))
    for k in (255, 256, 257, 2**17 + 5):
        for x, y in ((low, low), (high, high), (low, high)):
            a = torch.full((3, k), x[0], dtype=types[0])
            b = torch.full((k, 2), y[1], dtype=types[1])
            a[0, 0] = b[1, 0] = 1
            assert torch.equal(scaled_mm(a, b), wrapped(a.long() @ b.long()))


@pytest.mark.parametrize("types", INT8_PAIRS, ids=str)
@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("columns", [False, True])
def test_zero_points_are_subtracted_exactly(types, rows, columns):
    m, n, k = 70, 45, 300
    a, b = integers(types[0], m, k), integers(types[1], k, n)
    zero_a = integers(S32, m, 1) if rows else integers(S32, 1, 1)
    zero_b = integers(S32, 1, n) if columns else integers(S32)
    for x, y in ((zero_a, None), (None, zero_b), (zero_a, zero_b)):
        left = a.long() - (0 if x is None else x.long())
        right = b.long() - (0 if y is None else y.long())
        sums = wrapped(left @ right)
        assert torch.equal(scaled_mm(a, b, zero_a=x, zero_b=y), sums)
        result = scaled_mm(a, b, zero_a=x, zero_b=y, out_dtype=F32)
        assert same_bits(result, sums.float())
        out = torch.empty(n, m, dtype=S32).mT
        torch.ops.tcgemm.scaled_mm.out(a, b, zero_a=x, zero_b=y, out=out)
        assert torch.equal(out, sums)


@pytest.mark.parametrize("activation", [None, "relu"])
def test_integer_results_are_computed_modulo_2_to_32(activation):
    m, n, k = 37, 41, 300
    a, b = integers(S8, m, k), integers(U8, k, n)
    c, residual = integers(S32, m, n), integers(S32, 1, n)
    for bias in (integers(S32, n), integers(S32, m, 1)):
        value = wrapped(-3 * (a.long() @ b.long()) + 70000 * c.long() + bias.long())
        value = value.clamp(min=0) if activation else value
        options = {"activation": activation, "alpha": -3.0, "beta": 70000.0}
        result = scaled_mm(a, b, c=c, bias=bias, residual=residual, **options)
        assert torch.equal(result, wrapped(value.long() + residual.long()))


def addends(m, n):
    return torch.randn(m, n), torch.randn(n), torch.randn(m, n)


@pytest.mark.parametrize("types", [(S8, S8), (E4M3, E5M2), (F16, F16), (F32, F32)], ids=str)
@pytest.mark.parametrize("kind", ["one", "rows", "columns", "both"])
def test_scales_and_the_rest_of_the_epilogue_in_their_order(types, kind):
    m, n, k = 19, 37, 29
    a, b = operand(types[0], m, k), operand(types[1], k, n)
    scale_a = scales(m, 1) if kind in ("rows", "both") else scales(1)
    scale_b = scales(1, n) if kind in ("columns", "both") else scales()
    c, bias, residual = addends(m, n)
    alpha, beta, scale_out = torch.tensor(1 / 3), torch.tensor(-0.7), torch.tensor(0.037)
    sums = (a.long() @ b.long()).float() if types[0] is S8 else model(Types(F16, F32, F32), a, b)
    value = sums * alpha * scale_a * scale_b + c * beta + bias
    value = torch.where(value < 0, 0, value) + residual
    options = {"activation": "relu", "alpha": alpha.item(), "beta": beta.item()}
    tensors = (scale_a, scale_b, c, bias, residual, None, None, scale_out)
    for out in (F16, F32, S8) if types[0] is S8 else (F16, F32, *FP8):
        expected = to(value * scale_out, out)
        assert same_bits(scaled_mm(a, b, *tensors, out_dtype=out, **options), expected)
        turned = torch.empty(n, m, dtype=out).mT
        torch.ops.tcgemm.scaled_mm.out(a, b, *tensors, out_dtype=out, out=turned, **options)
        assert same_bits(turned, expected)
        result, amax = scaled_mm_amax(a, b, *tensors, out_dtype=out, **options)
        assert same_bits(result, expected)
        assert same_bits(amax, value.abs().max())


def test_f64_takes_scales_too():
    a, b = torch.randn(9, 7, dtype=F64), torch.randn(7, 5, dtype=F64)
    scale_a, scale_b, scale_out = scales(9, 1), scales(1, 5), scales(1)
    value = scaled_mm(a, b) * scale_a.double() * scale_b.double()
    result, amax = scaled_mm_amax(a, b, scale_a, scale_b, scale_out=scale_out)
    assert same_bits(result, value * scale_out.double())
    assert same_bits(amax, value.abs().max().float())


def expanded(scale, m, n):
    """To one value an element."""
    rows, columns = scale.shape
    whole = scale.repeat_interleave(128, 0) if rows not in (1, m) else scale
    whole = whole.repeat_interleave(128, 1) if columns not in (1, n) else whole
    return whole[:m, :n].expand(m, n)


@pytest.mark.parametrize("shape", [(3, 4, 129), (2, 5, 300), (150, 3, 260), (2, 150, 260)], ids=str)
@pytest.mark.parametrize("kind", ["1x128", "128x128", "a", "b", "a and rows of b"])
def test_block_scales_multiply_the_sums_of_128(shape, kind):
    m, n, k = shape
    blocks = math.ceil(k / 128)
    a, b = normal(E4M3, m, k), normal(E5M2, k, n)
    scale_a, scale_b = scales(m, blocks), scales(blocks, n)
    if kind == "128x128":
        scale_a, scale_b = scales(math.ceil(m / 128), blocks), scales(blocks, math.ceil(n / 128))
    scale_a = scales(1, 1) if kind == "b" else scale_a
    scale_b = scales(1, n) if kind == "a and rows of b" else scales() if kind == "a" else scale_b
    wide_a = expanded(scale_a, m, blocks)
    wide_b = expanded(scale_b.view(1, 1) if scale_b.dim() == 0 else scale_b, blocks, n)
    value = torch.zeros(m, n)
    for i in range(blocks):
        part = slice(128 * i, 128 * i + 128)
        partial = model(Types(E4M3, F32, F32), a[:, part], b[part])
        value = value + wide_a[:, i, None] * wide_b[i] * partial
    alpha, bias = torch.tensor(0.3), torch.randn(n)
    assert same_bits(scaled_mm(a, b, scale_a, scale_b, out_dtype=F32), value)
    result = scaled_mm(a, b, scale_a, scale_b, bias=bias, alpha=alpha.item())
    assert same_bits(result, rounded(value * alpha + bias, BF16))
    out = torch.empty(n, m, dtype=F32).mT
    torch.ops.tcgemm.scaled_mm.out(a, b, scale_a, scale_b, out_dtype=F32, out=out)
    assert same_bits(out, value)
    step = torch.empty(*scale_a.shape, 3)[..., 1]
    assert same_bits(scaled_mm(a, b, step.copy_(scale_a), scale_b, out_dtype=F32), value)


def test_amax_is_nan_if_any_value_is_and_counts_all_products():
    a, b = torch.randn(2, 40, 30), torch.randn(30, 20)
    assert scaled_mm_amax(a, b)[1] == scaled_mm(a, b).abs().max()
    assert scaled_mm_amax(a, b, activation="relu")[1] == scaled_mm(a, b).max()
    assert scaled_mm_amax(a, b, scale_out=torch.tensor(0.0))[1] == scaled_mm(a, b).abs().max()
    largest = torch.full((1, 1), 1e9)
    assert scaled_mm_amax(a, b, residual=-largest, out_dtype=E4M3)[1] > 9e8
    for spoilt, expected in ((-inf, inf), (-nan, nan)):
        a[1, 7, 3] = spoilt
        assert same_bits(scaled_mm_amax(a[:, :, 3:4], b[3:4])[1], torch.tensor(expected))
    # Batches whose strides do not merge are products of their own.
    wide = torch.randn(3, 2, 5, 7).permute(1, 0, 2, 3)
    wide[0, 0, 0, 0] = 1e3  # in the first of them
    other = torch.randn(2, 3, 7, 4)
    assert scaled_mm_amax(wide, other)[1] == scaled_mm(wide, other).abs().max()
    assert scaled_mm_amax(a[:, :0], b)[1] == 0 and scaled_mm_amax(a[:, :, :0], b[:0])[1] == 0


def test_nan_and_inf():
    def one(x, y=1.0, dtype=E5M2, **options):
        a, b = (torch.tensor([[value]]).to(dtype) for value in (x, y))
        return scaled_mm(a, b, **({"out_dtype": F32} | options)).item()

    assert math.isnan(one(nan)) and math.isnan(one(0.0, inf)) and one(-2.0, inf) == -inf
    assert math.isnan(one(nan, dtype=E4M3)) and math.isnan(one(nan, out_dtype=E4M3))
    assert one(inf, out_dtype=E5M2) == 57344 and one(-inf, out_dtype=E4M3) == -448
    assert one(300.0, 300.0, F16, out_dtype=E4M3) == 448
    for precision in ("high", "medium"):
        assert math.isnan(one(nan, 1.0, F32, precision=precision))
        assert one(-inf, 1.0, F32, precision=precision) == -inf
        assert one(3.4028234e38, 1.0, F32, precision=precision) == inf
    x = torch.tensor([[nan], [inf], [-inf]])
    ones = torch.ones(3, 1, dtype=S8)
    assert scaled_mm(ones, ones[:1], x, out_dtype=S8)[:, 0].tolist() == [0, 127, -128]
    wide = scaled_mm(ones, ones[:1], x, out_dtype=F32)
    assert same_bits(wide, x.abs() * torch.tensor([[1.0], [1.0], [-1.0]]))


def test_a_depth_of_zero():
    for dtype in (*FP8, S8, U8, F32):
        a, b, bias = torch.ones(3, 0).to(dtype), torch.ones(0, 5).to(dtype), torch.randn(5)
        result = scaled_mm(a, b, scales(3, 1), scales(1, 5), bias=bias, out_dtype=F32)
        assert torch.equal(result, bias.expand(3, 5))
    zero = integers(S32, 1, 1)
    assert scaled_mm(a.to(S8), b.to(S8), zero_a=zero, zero_b=zero).eq(0).all()
    a, b = a.to(E4M3), b.to(E4M3)
    assert scaled_mm(a, b, torch.empty(3, 0), torch.empty(0, 5)).eq(0).all()


@pytest.mark.parametrize("types", [(E4M3, E4M3), (E5M2, E4M3), (S8, U8), (F32, F32)], ids=str)
def test_neither_strides_nor_batches_change_a_bit(types):
    batch, m, n, k = 3, 50, 70, 300
    a, b = operand(types[0], batch, m, k), operand(types[1], k, n)
    scale_a, scale_b = scales(batch, m, 1), scales(1, n)
    options = {"out_dtype": F32, "precision": "high" if types[0] is F32 else None}

    def product(a, b, *rest):
        return scaled_mm(a, b, *rest, **options)

    expected = torch.stack([product(x, b, s, scale_b) for x, s in zip(a, scale_a, strict=True)])
    assert same_bits(product(a, b, scale_a, scale_b), expected)
    # One b, but what multiplies it or is subtracted from it changes with the batch.
    own = {"scale_b": scales(batch, 1, n)}
    if types[0] is S8:
        own["zero_b"] = integers(S32, batch, 1, n)
    for name, term in own.items():
        whole = scaled_mm(a, b, **{name: term}, **options)
        for i in range(batch):
            assert same_bits(whole[i], scaled_mm(a[i], b, **{name: term[i]}, **options))
    assert same_bits(product(a, b.mT.contiguous().mT, scale_a, scale_b), expected)
    assert same_bits(product(a.mT.contiguous().mT, b, scale_a, scale_b), expected)
    assert same_bits(
        product(a[:, ::7, ::3], b[::3, ::5], scale_a[:, ::7], scale_b[:, ::5]),
        product(
            a[:, ::7, ::3].contiguous(), b[::3, ::5].contiguous(), scale_a[:, ::7], scale_b[:, ::5]
        ),
    )
    assert same_bits(product(a[:, :1], b, scale_a[:, :1], scale_b), expected[:, :1])
    assert same_bits(product(a, b[:, :1], scale_a, scale_b[:, :1]), expected[..., :1])
    if types[0] in FP8:
        blocks_a, blocks_b = scales(batch, 1, 3), scales(3, 1)
        whole = product(a, b, blocks_a, blocks_b)
        for i in range(batch):
            assert same_bits(product(a[i], b, blocks_a[i], blocks_b), whole[i])


def all_results():
    """Over types, epilogues, special values and odd shapes, the same in every process."""
    torch.manual_seed(7)
    for types in (*FP8_PAIRS, *INT8_PAIRS, (F32, F32), (F16, F16)):
        for index, (m, n, k) in enumerate((*cases.FEW_SHAPES, (1, 70, 300), (33, 1, 129))):
            a, b = operand(types[0], m, k), operand(types[1], k, n)
            b = b.mT.contiguous().mT if index % 2 else b
            if index == 0 and types[0] not in (S8, U8):
                special = torch.tensor([nan, inf, -inf, -0.0, 1e-6, 6e4])
                a[0, :6] = special.to(types[0])
            options = {"precision": ("high", "medium")[index % 2]} if types[0] is F32 else {}
            for out in (S32, S8, F32) if types[0] in (S8, U8) else (F16, *FP8):
                yield scaled_mm(a, b, out_dtype=out, **options)
            zeros = [None, None]
            if types[0] in (S8, U8):
                zeros = [integers(S32, m, 1), integers(S32, 1, n)]
            terms = (scales(m, 1), scales(1, n), *addends(m, n), *zeros, scales(1))
            activation = (*cases.ACTIVATIONS, None)[index % 5]
            options |= {"activation": activation, "alpha": 0.3, "beta": 1.7, "out_dtype": F32}
            yield from scaled_mm_amax(a, b, *terms, **options)
            if types[0] in FP8:
                blocks = math.ceil(k / 128)
                yield scaled_mm(a, b, scales(m, blocks), scales(blocks, n), out_dtype=F32)
    words = torch.randint(-(2**31), 2**31, (40_000,), dtype=S32).view(F32)[:, None]
    for out in FP8:
        yield scaled_mm(words, torch.ones(1, 1), out_dtype=out)
    ones = torch.ones(len(words), 1, dtype=S8)
    yield scaled_mm(ones, ones[:1], words, out_dtype=S8)


@pytest.mark.parametrize("isa", ISAS)
def test_every_instruction_set_gives_the_same_bits(isa):
    assert_same_digest(isa, __file__, all_results())


@pytest.mark.parametrize("types", [(E4M3, E5M2), (S8, U8)], ids=str)
def test_every_number_of_threads_gives_the_same_bits(types):
    a, b = operand(types[0], 300, 600), operand(types[1], 600, 700)
    terms = [scales(300, 1), scales(1, 700), *addends(300, 700)]
    blocks = [scales(300, 5), scales(5, 6)] if types[0] in FP8 else []
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3, 7):
            torch.set_num_threads(threads)
            results.append((*scaled_mm_amax(a, b, *terms, out_dtype=F32), scaled_mm(a, b, *blocks)))
    finally:
        torch.set_num_threads(before)
    for others in results[1:]:
        assert all(same_bits(x, y) for x, y in zip(others, results[0], strict=True))


@pytest.mark.parametrize("layout", ["TN", "NN"])
@pytest.mark.parametrize("name", ["e4m3", "blocks", "s8", "zero points", "tf32"])
def test_at_1024_cubed_it_takes_at_most_three_times_the_time_of_torch_in_f32(name, layout):
    if not torch.backends.cpu.get_cpu_capability().startswith("AVX"):
        pytest.skip("the bound holds from AVX2 on")
    size = 1024
    dtype = {"s8": S8, "zero points": S8, "tf32": F32}.get(name, E4M3)
    a, b = operand(dtype, size, size), operand(dtype, size, size)
    b = b.mT.contiguous().mT if layout == "TN" else b
    zero = torch.ones(size, 1, dtype=S32)
    options = {
        "blocks": {"scale_a": scales(size, 8), "scale_b": scales(8, size)},
        "zero points": {"zero_a": zero, "zero_b": zero.mT, "out_dtype": F32},
        "tf32": {"precision": "high"},
    }.get(name, {})
    rival = (a.float(), b.float())
    ours, theirs = seconds_of(lambda: scaled_mm(a, b, **options), lambda: torch.mm(*rival))
    assert ours <= 3 * theirs, f"{ours * 1e3:.1f} ms, torch {theirs * 1e3:.1f} ms"
