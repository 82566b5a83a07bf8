"""The CPU product against its definition (csrc/cpu/dense.h), bit by bit, and its speed.

The model is one chain of libm's fma per element, k ascending. Whatever else could matter
(instruction set, number of threads, strides, orientation, tiles) must change no bit.
"""

import math

import pytest
import torch

import tcgemm  # noqa: F401  (registers torch.ops.tcgemm)

from support import cases
from support.cases import BF16, F16, F32, F64
from support.cpu_model import (
    ISAS,
    TYPES,
    Types,
    assert_same_digest,
    model,
    rounded,
    seconds_of,
    with_isa,
)
from support.reference import same_bits

# Factors of 2^24 + 1 and 2^24 + 3, which lie halfway between two f32 numbers, and these over 2^24.
TIES = (
    ((97.0, 172961.0), 1.0, 1 + 2.0**-23),
    ((1549.0, 10831.0), 1 + 2.0**-23, 1 + 2.0**-22),
)


def gemm(a, b, c=None, bias=None, residual=None, *, types=None, **options):
    if types:
        options |= {"acc_dtype": types.accumulator, "out_dtype": types.out}
    return torch.ops.tcgemm._gemm(a, b, c, bias, residual, **options)


@pytest.mark.parametrize("types", TYPES, ids=str)
@pytest.mark.parametrize("shape", [(5, 9, 17), (13, 35, 40), (3, 4, 523)], ids=str)
def test_the_sum_is_one_chain_of_fma_in_ascending_k(types, shape):
    m, n, k = shape
    a, b = cases.operands("TN", m, n, k, dtype=types.input)
    assert same_bits(gemm(a, b, types=types), rounded(model(types, a, b), types.out))


@pytest.mark.parametrize("types", [Types(F16, F32, F32), Types(BF16, F32, F32)], ids=str)
def test_a_chain_in_another_order_is_told_apart(types):
    """The model has teeth: descending k gives other bits on the same data."""
    a, b = cases.operands("NN", 8, 8, 200, dtype=types.input)
    assert not torch.equal(gemm(a, b, types=types), model(types, a.flip(1), b.flip(0)))


def test_the_f16_accumulator_is_rounded_every_16_products():
    """1 + 2^-12 sixteen times: lost in f16 if every product were rounded, kept in a chain of 16."""
    a = torch.full((1, 32), 2.0**-6, dtype=F16)
    a[0, 0] = 2.0**6
    b = torch.full((32, 1), 2.0**-6, dtype=F16)
    # 1 + 15 * 2^-12 rounds to 1 + 4 * 2^-10; 16 more make 8 * 2^-10.
    expected = torch.tensor([[1 + 2.0**-7]])
    types = Types(F16, F16, F32)
    assert same_bits(gemm(a, b, types=types), expected)
    assert same_bits(model(types, a, b), expected)
    assert not torch.equal(gemm(a, b, out_dtype=F32), expected)


@pytest.mark.parametrize("types", TYPES, ids=str)
def test_epilogue_operations_and_their_order(types):
    m, n, k = 7, 37, 29
    a, b = cases.operands("NN", m, n, k, dtype=types.input)
    wide = F64 if types.accumulator is F64 else F32
    c, residual = (cases.make("contiguous", m, n, dtype=wide) for _ in range(2))
    bias = cases.make("contiguous", n, dtype=wide if wide is F64 else types.input)
    alpha, beta = 1 / 3, -0.7

    def scalar(x):
        return torch.tensor(x, dtype=wide)

    value = model(types, a, b) * scalar(alpha) + c * scalar(beta) + bias.to(wide)
    expected = torch.where(value < 0, 0, value) + residual
    result = gemm(a, b, c, bias, residual, activation="relu", alpha=alpha, beta=beta, types=types)
    assert same_bits(result, rounded(expected, types.out))


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("name", cases.ACTIVATIONS)
def test_activations_are_right_to_a_few_ulps(name, dtype):
    """Relatively, also in the negative tail where 1 + erf(x) would cancel."""
    x = torch.cat([torch.linspace(-9, 9, 4001), torch.randn(2000) * 1e-20]).to(dtype)[:, None]
    result = gemm(x, torch.ones(1, 1, dtype=dtype), activation=name).double()
    wide = x.double()
    if name == "relu":
        exact = wide.clamp(min=0)
    elif name == "gelu":
        exact = 0.5 * wide * torch.special.erfc(-wide * math.sqrt(0.5))
    elif name == "gelu_tanh":
        exact = wide * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3))
    else:
        exact = wide * torch.sigmoid(wide)
    # An error of one ulp in the argument of exp is one of |argument| ulps in its value.
    ulps = 4 + 2 * (wide * wide).clamp(max=120)
    error = (result - exact).abs()
    assert (error <= ulps * torch.finfo(dtype).eps * exact.abs()).all()


def test_special_values():
    def one(x, y=1.0, dtype=F32, **options):
        a, b = (torch.tensor([[value]], dtype=dtype) for value in (x, y))
        return gemm(a, b, **options).item()

    inf, nan = math.inf, math.nan
    assert math.isnan(one(nan)) and math.isnan(one(0.0, inf)) and one(-2.0, inf) == -inf
    for name in cases.ACTIVATIONS:
        assert math.isnan(one(nan, activation=name)), name
        assert one(inf, activation=name) == inf, name
    assert one(60000.0, 2.0, F16) == inf and one(-60000.0, 2.0, F16) == -inf
    assert one(60000.0, 2.0, F16, out_dtype=F32) == 120000
    # The largest f32 number that is still finite in f16 and bf16, and its successor.
    assert one(65519.996, out_dtype=F16) == 65504 and one(65520.0, out_dtype=F16) == inf
    tie = 2.0**127 * (2 - 2.0**-8)
    assert one(tie - 2.0**104, out_dtype=BF16) < inf and one(tie, out_dtype=BF16) == inf
    # The accumulator leaves f16's range, and comes back from Inf no more.
    a, b = torch.full((1, 32), 255.0, dtype=F16), torch.full((32, 1), 255.0, dtype=F16)
    a[0, 16:] = -255
    assert gemm(a, b).item() == 0 and gemm(a, b, acc_dtype=F16).item() == inf
    # Subnormal operands and results are not flushed; half of the smallest one rounds to even, 0.
    assert one(2.0**-24, 1.0, F16) == 2.0**-24 and one(2.0**-24, 0.5, F16) == 0
    assert one(2.0**-24, 0.75, F16) == 2.0**-24
    assert one(2.0**-149) == 2.0**-149 and one(2.0**-133, 1.0, BF16) == 2.0**-133
    # One step from a tie between two f32 numbers, a step that not even f64 resolves.
    for factors, down, up in TIES:
        for side, expected in ((-1, down), (1, up)):
            a = torch.tensor([[side * 2.0**-60, factors[0]]])
            b = torch.tensor([[1.0], [factors[1] * 2.0**-24]])
            assert gemm(a, b).item() == gemm(-a, b).mul(-1).item() == expected
    # An f32 product that is subnormal is rounded once, with the sum.
    x = torch.tensor([[2.0**-149, 2.0**-75]])
    assert gemm(x, torch.tensor([[1.0], [1.5 * 2.0**-74]])).item() == 2 * 2.0**-149


def test_nan_has_one_bit_pattern():
    for types in TYPES:
        a = torch.tensor([[-math.nan], [math.inf], [-math.inf]], dtype=types.input)
        result = gemm(a, torch.zeros(1, 1, dtype=types.input), types=types)
        assert same_bits(result, torch.full((3, 1), math.nan, dtype=types.out)), types


@pytest.mark.parametrize("dtype", cases.HALVES)
def test_every_16_bit_number_is_read_and_written_exactly(dtype):
    x = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(dtype)
    one = torch.ones(1, 1, dtype=dtype)
    # + 0: the chain starts from +0, so -0 becomes +0.
    for out in (F32, dtype):
        expected = rounded(x.float() + 0, out)
        assert same_bits(gemm(x[:, None], one, out_dtype=out)[:, 0], expected)
        # A step of 2 takes the paths that convert one value at a time.
        assert same_bits(gemm(x[None, ::2].mT, one, out_dtype=out)[:, 0], expected[::2])


@pytest.mark.parametrize("out", cases.FLOATS)
def test_every_rounding_is_to_nearest_even(out):
    words = torch.randint(-(2**31), 2**31, (200_000,), dtype=torch.int32)
    words[::2] &= ~0xFFF  # ties of f16, and numbers that are in it
    words[1::4] &= ~0x7FFF  # those of bf16
    scale = torch.rand(50_000) * 2.0 ** torch.randint(-26, -12, (50_000,))  # subnormals of f16
    x = torch.cat([words.view(F32), scale])
    expected = rounded(x + 0, out)
    assert same_bits(gemm(x[:, None], torch.ones(1, 1), out_dtype=out)[:, 0], expected)
    strided = torch.empty(len(x), 3, dtype=out)[:, ::2][:, :1]
    torch.ops.tcgemm._gemm.out(x[:, None], torch.ones(1, 1), out=strided, out_dtype=out)
    assert same_bits(strided[:, 0], expected)


def test_beta_zero_leaves_c_unread_and_a_zero_depth_is_a_zero_product():
    a, b = torch.randn(3, 4), torch.randn(4, 5)
    nans = torch.full((3, 5), math.nan)
    assert same_bits(gemm(a, b, nans, beta=0.0), gemm(a, b))
    assert gemm(a, b, nans, beta=1.0).isnan().all()
    c, bias = torch.randn(3, 5), torch.randn(5)
    empty = gemm(a[:, :0], b[:0], c, bias, beta=2.0)
    assert same_bits(empty, 0.0 + 2.0 * c + bias)


@pytest.mark.parametrize("types", TYPES, ids=str)
def test_neither_orientation_nor_strides_nor_batches_change_a_bit(types):
    batch, m, n, k = 3, 50, 70, 300
    a = cases.make("contiguous", batch, m, k, dtype=types.input)
    b = cases.make("contiguous", k, n, dtype=types.input)
    expected = torch.stack([gemm(x, b, types=types) for x in a])
    assert same_bits(gemm(a, b, types=types), expected)
    assert same_bits(gemm(b.mT, a.mT, types=types).mT, expected)
    assert same_bits(gemm(a, b.mT.contiguous().mT, types=types), expected)
    assert same_bits(
        gemm(a[:, ::7, ::3], b[::3, ::5], types=types),
        gemm(a[:, ::7, ::3].contiguous(), b[::3, ::5].contiguous(), types=types),
    )
    assert same_bits(gemm(a[:, :1], b, types=types), expected[:, :1])
    assert same_bits(gemm(a, b[:, :1], types=types), expected[..., :1])
    out = cases.empty("transposed_odd", (batch, m, n), dtype=types.out)
    options = {"acc_dtype": types.accumulator, "out_dtype": types.out}
    torch.ops.tcgemm._gemm.out(a, b, out=out, **options)
    assert same_bits(out, expected)


def all_results():
    """Results over types, epilogues, special values and odd shapes, the same in every process."""
    torch.manual_seed(7)
    for types in TYPES:
        for index, (m, n, k) in enumerate(cases.FEW_SHAPES + cases.RAGGED_SHAPES):
            layout = cases.LAYOUTS[index % 4]
            a, b = cases.operands(layout, m, n, k, dtype=types.input)
            if index == 0:
                a[0, :6] = torch.tensor([math.nan, math.inf, -math.inf, -0.0, 1e-6, 6e4])
            yield gemm(a, b, types=types)
            terms = [
                cases.make("contiguous", *shape, dtype=types.input)
                for shape in ((m, n), (m, 1), (1, n))
            ]
            activation = (*cases.ACTIVATIONS, None)[index % 5]
            yield gemm(a, b, *terms, activation=activation, alpha=0.3, beta=1.7, types=types)
    for factors, _, _ in TIES:
        tiny = torch.randn(64, 1) * 2.0**-60
        a = torch.cat([tiny, torch.full_like(tiny, factors[0])], 1)
        yield gemm(a, torch.tensor([[1.0, -1.0], [factors[1] * 2.0**-24] * 2]))
    words = torch.randint(-(2**31), 2**31, (3, 40_000), dtype=torch.int32).view(F32)
    for out in cases.FLOATS:
        yield gemm(words[0, :, None], words[1, None, :1], words[2, :, None], out_dtype=out)
    # Around f32's subnormals and the end of its range, where one rounding and two differ most.
    for exponent in (-75, -70, 0, 63):
        a, b = (torch.randn(40, 40) * 2.0**exponent for _ in range(2))
        yield gemm(a, b)
        yield gemm(a.to(BF16), b.to(BF16), out_dtype=F32)


@pytest.mark.parametrize("isa", ISAS)
def test_every_instruction_set_gives_the_same_bits(isa):
    assert_same_digest(isa, __file__, all_results())


def test_an_unknown_instruction_set_is_refused():
    one = "torch.ones(1, 1)"
    run = with_isa("sse9", f"import torch, tcgemm; torch.ops.tcgemm._gemm({one}, {one})")
    assert run.returncode != 0
    assert 'TCGEMM_CPU_ISA is "sse9", but this machine has these instruction sets' in run.stderr
    assert "Set it to one of them, or unset it for the best." in run.stderr


@pytest.mark.parametrize("dtype", [F16, BF16, F32, F64])
def test_every_number_of_threads_gives_the_same_bits(dtype):
    a, b = cases.operands("NN", 300, 700, 600, dtype=dtype)
    small = cases.operands("NN", 20, 30, 40, dtype=dtype, batch=(50,))
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 3, 7):
            torch.set_num_threads(threads)
            results.append((gemm(a, b), gemm(*small, activation="gelu")))
    finally:
        torch.set_num_threads(before)
    for one, many in results[1:]:
        assert same_bits(one, results[0][0]) and same_bits(many, results[0][1])


@pytest.mark.parametrize("layout", ["TN", "NN"])
@pytest.mark.parametrize("dtype", [F16, BF16, F32, F64])
def test_at_1024_cubed_it_takes_at_most_three_times_the_time_of_torch(dtype, layout):
    """Of torch.mm in f32 (f64: in f64)."""
    if not torch.backends.cpu.get_cpu_capability().startswith("AVX"):
        pytest.skip("the bound holds from AVX2 on")
    a, b = cases.operands(layout, 1024, 1024, 1024, dtype=dtype)
    rival_dtype = F64 if dtype is F64 else F32
    rival = [x.to(rival_dtype) for x in (a, b)]
    ours, theirs = seconds_of(lambda: gemm(a, b), lambda: torch.mm(*rival))
    assert ours <= 3 * theirs, f"{ours * 1e3:.1f} ms, torch {theirs * 1e3:.1f} ms"
