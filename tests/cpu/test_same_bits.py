"""The bits of the CPU do not depend on strides, batches, instruction set or number of threads."""

import math

import pytest
import torch

import tcgemm  # noqa: F401  (registers torch.ops.tcgemm)

from support import cases
from support.cases import BF16, E4M3, E5M2, F16, F32, F64, FP8, S8, S32, U8
from support.cpu_model import ISAS, TYPES, assert_same_digest, with_isa, with_threads
from support.cpu_operands import (
    FP8_PAIRS,
    INT8_PAIRS,
    TIES,
    addends,
    gemm,
    integers,
    operand,
    scales,
)
from support.dtype_matrix import gemm_types
from support.reference import same_bits

scaled_mm = torch.ops.tcgemm.scaled_mm
scaled_mm_amax = torch.ops.tcgemm.scaled_mm_amax
inf, nan = math.inf, math.nan


@pytest.mark.parametrize("types", gemm_types("cpu"), ids=str)
def test_neither_orientation_nor_strides_nor_batches_change_a_bit(types):
    batch, m, n, k = 3, 50, 70, 300
    a = types.operands("NN", m, n, k, batch=(batch,))[0]
    b = types.operands("NN", m, n, k)[1]
    for out in types.outs:
        options = types.options | {"out_dtype": out}

        def product(a, b, options=options):
            return scaled_mm(a, b, **options)

        expected = torch.stack([product(x, b) for x in a])
        assert same_bits(product(a, b), expected)
        assert same_bits(product(b.mT, a.mT).mT, expected)
        assert same_bits(product(a, b.mT.contiguous().mT), expected)
        assert same_bits(product(a.mT.contiguous().mT, b), expected)
        assert same_bits(
            product(a[:, ::7, ::3], b[::3, ::5]),
            product(a[:, ::7, ::3].contiguous(), b[::3, ::5].contiguous()),
        )
        assert same_bits(product(a[:, :1], b), expected[:, :1])
        assert same_bits(product(a, b[:, :1]), expected[..., :1])
        stored = cases.empty("transposed_odd", (batch, m, n), dtype=out)
        scaled_mm.out(a, b, **options, out=stored)
        assert same_bits(stored, expected)


@pytest.mark.parametrize("types", [(E4M3, E4M3), (E5M2, E4M3), (S8, U8), (F32, F32)], ids=str)
def test_neither_strides_nor_batches_of_scales_change_a_bit(types):
    batch, m, n, k = 3, 50, 70, 300
    a, b = operand(types[0], batch, m, k), operand(types[1], k, n)
    scale_a, scale_b = scales(batch, m, 1), scales(1, n)
    options = {"out_dtype": F32, "precision": "high" if types[0] is F32 else None}

    def product(a, b, *rest):
        return scaled_mm(a, b, *rest, **options)

    expected = torch.stack([product(x, b, s, scale_b) for x, s in zip(a, scale_a, strict=True)])
    assert same_bits(product(a, b, scale_a, scale_b), expected)
    # One b, but what multiplies it or is subtracted from it changes with the batch.
    terms = {"scale_b": scales(batch, 1, n)}
    if types[0] is S8:
        terms["zero_b"] = integers(S32, batch, 1, n)
    for name, term in terms.items():
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


def wide_results():
    """Results in f16, bf16, f32 and f64, and of f32 at the ends of its range."""
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


def narrow_results():
    """Results of 8-bit operands, and results with scales."""
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


def all_results():
    """Results over types, epilogues, special values and odd shapes, the same in every process."""
    yield from wide_results()
    yield from narrow_results()


@pytest.mark.parametrize("isa", ISAS)
def test_every_instruction_set_gives_the_same_bits(isa):
    assert_same_digest(isa, __file__, all_results())


def test_an_unknown_instruction_set_is_refused():
    one = "torch.ones(1, 1)"
    run = with_isa("sse9", f"import torch, tcgemm; torch.ops.tcgemm._gemm({one}, {one})")
    assert run.returncode != 0
    assert 'TCGEMM_CPU_ISA is "sse9", but this machine has these instruction sets' in run.stderr
    assert "Set it to one of them, or unset it for the best." in run.stderr


@pytest.mark.parametrize("types", gemm_types("cpu"), ids=str)
def test_every_number_of_threads_gives_the_same_bits(types):
    """A large product, alone, with scales and with blocks of them, and a batch of small ones."""
    a, b = types.operands("NN", 300, 700, 600)
    small = types.operands("NN", 20, 30, 40, batch=(50,))
    terms = [scales(300, 1), scales(1, 700), *addends(300, 700)]
    blocks = [scales(300, 5), scales(5, 6)] if types.fp8 else []
    alone = {"out_dtype": types.widest, **types.options}
    wide = F64 if types.a == F64 else F32
    scaled = {"out_dtype": wide, **types.options}

    def results():
        return (
            scaled_mm(a, b, *blocks, **({} if blocks else alone)),
            *scaled_mm_amax(a, b, *terms, **scaled),
            scaled_mm(*small, activation="gelu", **scaled),
        )

    first, *others = with_threads(results)
    for result in others:
        assert all(same_bits(x, y) for x, y in zip(result, first, strict=True))
