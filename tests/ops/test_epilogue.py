"""act(alpha * (a @ b) + beta * c + bias) + residual, rounded once; results of 8 bits, scale_out and
amax: every term, shape and dtype. Scales of operands are in quant/test_scales.py.

Normal data and the bound of reference.py, and whole numbers, where one rounding shows bit by bit.
"""

import itertools

import pytest
import torch

import tcgemm

from support import cases, reference
from support.cases import BF16, E4M3, E5M2, F16, F32, F64, FP8, S8, S32, check_all
from support.dtype_matrix import EVERY, addends, parameters, positive

M, N, K = 67, 42, 96
NAN, INF = float("nan"), float("inf")
ROUNDED = parameters(lambda types: types.a != F64)  # there is a choice of results
TERMS = ("c", "bias", "residual")


def scaled_mm(types, a, b, **options):
    return torch.ops.tcgemm.scaled_mm(a, b, **types.options, **options)


def amax_of(types, a, b, **options):
    return torch.ops.tcgemm.scaled_mm_amax(a, b, **types.options, **options)


def real_outs(types):
    """The results that a bias, an activation and a bound make sense for."""
    return [out for out in types.outs if out != S32]


def curved(types, k):
    """alpha that brings sums of normal data into the curved part of each activation."""
    return 0.25 / (k**0.5 * (4e3 if types.integer else 1))


@EVERY
def test_activation(device, types):
    def check(activation, out):
        options = {"activation": activation, "alpha": 4 * curved(types, 16), "out_dtype": out}
        options |= types.options
        a, b = types.operands("TN", M, N, K, device=device)
        bias = types.addend(N, out=out, device=device, largest=None)
        result = tcgemm.mm(a, b, bias=bias, **options)
        reference.assert_close(result, a, b, None, bias, **options)

    check_all(itertools.product(cases.ACTIVATIONS, real_outs(types)), check)


@EVERY
def test_everything_at_once_on_normal_data(device, types):
    def check(activation, shape, layout, out):
        m, n, k = shape
        a, b = types.operands(layout, m, n, k, device=device)
        terms = addends(types, out, device, m, n, largest=None)
        epilogue = {"activation": activation, "alpha": -curved(types, k), "beta": 1.5}
        options = types.options | epilogue | {"out_dtype": out}
        result = torch.ops.tcgemm._gemm(a, b, **terms, **options)
        assert result.dtype == out
        reference.assert_close(result, a, b, **terms, **options)

    activations = (*cases.ACTIVATIONS, None)
    shapes = ((M, N, K), (128, 64, 64), (1, 257, 20), (130, 1, 7))
    outs = itertools.cycle(real_outs(types))
    arguments = []
    for activation, shape in itertools.product(activations, shapes):
        wide = types.widest if types.widest != S32 else F32
        arguments += [(activation, shape, "TN", out) for out in dict.fromkeys((next(outs), wide))]
    for activation, shape in zip(activations, (*shapes, (65, 130, 300)), strict=True):
        layout = cases.LAYOUTS[shape[2] % 4]
        arguments += [(activation, shape, layout, next(outs)) for _ in range(2)]
    check_all(arguments, check)


@EVERY
def test_every_choice_of_addends(device, types):
    a, b = types.operands("NN", M, N, K, device=device, whole=True)
    choices = [t for n in range(4) for t in itertools.combinations(TERMS, n)]
    for index, terms in enumerate(choices):
        for out in (types.widest, types.outs[index % len(types.outs)]):
            tensors = {name: addends(types, out, device, M, N)[name] for name in terms}
            options = {"activation": "relu", "alpha": 2.0, "beta": -3.0, "out_dtype": out}
            result = torch.ops.tcgemm._gemm(a, b, **tensors, **options, **types.options)
            expected = reference.exact(a, b, **tensors, **options, **types.options)
            reference.assert_exact(result, expected)


@EVERY
def test_types_of_addends_are_independent(device, types):
    a, b = types.operands("TN", M, N, K, device=device, whole=True)
    out = types.widest if types.widest != S32 else F32

    def check(*dtypes):
        c, bias, residual = (
            cases.make("contiguous", *shape, dtype=dtype, device=device, largest=9)
            for shape, dtype in zip(((M, N), (N,), (M, N)), dtypes, strict=True)
        )
        options = {"alpha": 2.0, "beta": 3.0, "out_dtype": out, **types.options}
        result = tcgemm.addmm(c, a, b, bias=bias, residual=residual, **options)
        reference.assert_exact(result, reference.exact(a, b, c, bias, residual, **options))

    check_all(itertools.product(types.addends, repeat=3), check)


@EVERY
def test_bias_along_rows_and_columns(device, types):
    a, b = types.operands("TN", M, N, K, device=device, whole=True)

    def check(shape, strides, out):
        largest = 99 if types.a in (F16, BF16, F32, F64) else 9
        bias = types.addend(*shape, out=out, device=device, strides=strides, largest=largest)
        result = tcgemm.mm(a, b, bias=bias, out_dtype=out, **types.options)
        expected = reference.exact(a, b, None, bias, out_dtype=out, **types.options)
        reference.assert_exact(result, expected)

    arguments = []
    for shape in ((N,), (1, N), (M, 1)):
        strides = ("contiguous", "offset", "step_cols" if shape[-1] > 1 else "step_rows")
        arguments += itertools.product(
            (shape,), strides, dict.fromkeys((types.outs[0], types.widest))
        )
    check_all(arguments, check)


@EVERY
def test_addends_of_any_strides_and_dtypes(device, types):
    a, b = types.operands("TN", M, N, K, device=device, whole=True)
    names = tuple(cases.STRIDES)
    for index, strides in enumerate(names):
        out = types.outs[index % len(types.outs)]
        for other, out_dtype in ((names[-index], out), (strides, types.widest)):
            c, residual = (
                types.addend(M, N, out=out_dtype, device=device, strides=name, step=index + step)
                for step, name in enumerate((strides, other))
            )
            shape = ((N,), (1, N), (M, 1))[index % 3]
            options = {"out": out_dtype, "device": device, "step": index // 3}
            bias = types.addend(*shape, strides="step_cols", **options)
            options = {"alpha": 1.0 + index % 2, "beta": 3.0, "out_dtype": out_dtype}
            options |= types.options
            result = tcgemm.addmm(c, a, b, bias=bias, residual=residual, **options)
            expected = reference.exact(a, b, c, bias, residual, **options)
            reference.assert_exact(result, expected)


@EVERY
def test_addends_broadcast(device, types):
    a, b = types.operands("NN", 20, N, K, device=device, batch=((3, 2), (2,)), whole=True)
    shapes = ((), (1,), (N,), (20, 1), (1, N), (2, 1, 1), (3, 1, 20, N), (3, 2, 20, N))
    for index, shape in enumerate(shapes):
        for out in dict.fromkeys((types.outs[index % len(types.outs)], types.outs[0])):
            residual, c = (
                types.addend(*(shape or (1,)), out=out, device=device, step=index).reshape(shape)
                for _ in range(2)
            )
            options = types.options | {"out_dtype": out}
            for terms in (
                {"c": c, "residual": residual, "beta": 2.0},
                {"c": c, "beta": 2.0},
                {"residual": residual},
            ):
                result = torch.ops.tcgemm._gemm(a, b, **terms, **options)
                reference.assert_exact(result, reference.exact(a, b, **terms, **options))
            result = tcgemm.matmul(a, b, residual=residual, **options)
            expected = reference.exact(a, b, None, None, residual, **options)
            reference.assert_exact(result, expected)
    largest = types.largest(K)
    vector = cases.make("contiguous", 1, K, dtype=types.b, device=device, largest=largest)[0]
    residual = types.addend(20, out=types.outs[0], device=device)
    result = tcgemm.matmul(a, vector, residual=residual, **types.options)
    expected = reference.exact(a, vector, None, None, residual, **types.options)
    reference.assert_exact(result, expected)


@EVERY
def test_c_is_not_read_where_beta_is_zero(device, types):
    a, b = types.operands("TN", M, N, K, device=device)
    for out in types.outs:
        options = types.options | {"out_dtype": out}
        expected = tcgemm.mm(a, b, **options)
        kind = S32 if out == S32 else types.addends[0]
        for value in (cases.poison(kind), INF)[: 1 if types.integer else 2]:
            c = torch.full((M, N), value, dtype=kind, device=device)
            assert torch.equal(tcgemm.addmm(c, a, b, beta=0.0, **options), expected)
            assert not torch.equal(tcgemm.addmm(c, a, b, beta=1.0, **options), expected)
        one = torch.ones((), device=device)
        if out != S32:
            assert torch.equal(scaled_mm(types, a, b, c=c, beta=0.0, out_dtype=out), expected)
            scaled = scaled_mm(types, a, b, scale_b=one, c=c, beta=0.0, out_dtype=out)
            assert torch.equal(scaled, expected)
            bias = types.addend(N, out=out, device=device, largest=None)
            epilogue = options | {"activation": "silu", "alpha": curved(types, K)}
            result = tcgemm.addmm(c, a, b, beta=0.0, bias=bias, **epilogue)
            reference.assert_close(result, a, b, None, bias, **epilogue)


@EVERY
def test_addends_spread_nan_and_inf(device, types):
    a, b = types.operands("TN", M, N, K, device=device, whole=True)
    dtype = F64 if types.a == F64 else F32
    bias = torch.zeros(N, dtype=dtype, device=device)
    residual = torch.zeros(M, N, dtype=dtype, device=device)
    bias[41], residual[66, 0], residual[3, 41] = NAN, INF, 1.0
    outs = (F64,) if types.a == F64 else (F32, BF16) if types.integer else (F32, F16, BF16, E5M2)
    for activation in (None, *cases.ACTIVATIONS):
        for out in outs:
            options = {"activation": activation, "alpha": 2.0**-14, "out_dtype": out}
            result = tcgemm.mm(a, b, bias=bias, residual=residual, **options, **types.options)
            assert result.isnan().sum() == M
            assert result[:, 41].isnan().all()
            largest = 57344.0 if out == E5M2 else INF
            assert float(result[66, 0]) == largest
            assert (~result.float().isfinite()).sum() == M + (out != E5M2)


@EVERY
def test_scalars_of_every_size(device, types):
    a, b = types.operands("NN", 33, 40, 64, device=device)
    scale = positive(33, 1, device=device)
    out = F64 if types.a == F64 else F32
    for alpha, beta in ((1e-3, 1e3), (-1.0, -1.0), (1 / 3, 2 / 3), (0.0, 0.1), (1.0, 0.0)):
        for step in range(len(types.addends)):
            c = types.addend(33, 40, device=device, largest=None, step=step)
            scalars = {"alpha": alpha, "beta": beta, "out_dtype": out, **types.options}
            reference.assert_close(tcgemm.addmm(c, a, b, **scalars), a, b, c, **scalars)
        scalars["scale_a"] = scale
        result = torch.ops.tcgemm.scaled_mm(a, b, c=c, **scalars)
        reference.assert_close(result, a, b, c, **scalars)


@pytest.mark.parametrize("device", cases.DEVICES)
def test_rounded_once(device):
    """An epilogue on a rounded product would lose what the sum needs."""
    k = 2049
    a = torch.ones(3, k, dtype=F16, device=device)
    b = torch.ones(k, 5, dtype=F16, device=device)
    c = torch.full((3, 5), -2048.0, dtype=F16, device=device)
    # 2049 is no f16: 2048 after a rounding in between.
    assert torch.equal(tcgemm.addmm(c, a, b), torch.ones_like(c))
    assert torch.equal(tcgemm.mm(a, b, residual=c), torch.ones_like(c))
    assert torch.equal(tcgemm.mm(a, b, bias=c[0], activation="relu"), torch.ones_like(c))
    assert torch.equal(tcgemm.mm(a, b, alpha=0.5), torch.full_like(c, 1024.0))
    assert torch.equal(tcgemm.mm(a, b, out_dtype=F32), torch.full_like(c, k, dtype=F32))
    assert torch.equal(tcgemm.mm(a, b, out_dtype=BF16), torch.full_like(c, 2048, dtype=BF16))


@pytest.mark.parametrize("device", cases.DEVICES)
def test_order_of_operations_of_f16(device):
    """relu stands after c and bias and before the residual; alpha does not scale the addends."""
    one = torch.ones(1, 1, dtype=F16, device=device)
    options = {"alpha": 3.0, "beta": 5.0, "activation": "relu"}
    out = tcgemm.addmm(-one, one, one, bias=-one[0], residual=-one, **options)
    assert out.item() == -1.0
    out = tcgemm.addmm(one, one, one, bias=-one[0], residual=-one, **options)
    assert out.item() == 6.0


@ROUNDED
def test_order_of_operations(device, types):
    """relu stands after c and bias and before the residual, scale_out after all; alpha does not
    scale the addends."""
    one_a, one_b = (torch.ones(1, 1, device=device).to(dtype) for dtype in (types.a, types.b))
    one, two = torch.ones(1, 1, device=device), torch.full((1,), 2.0, device=device)
    options = {"alpha": 3.0, "beta": 5.0, "activation": "relu", "scale_out": two}
    for sign, value in ((-1, -2.0), (1, 12.0)):
        for out in types.outs:
            if out == S32:
                continue
            terms = {"c": sign * one, "bias": -one[0], "residual": -one, "out_dtype": out}
            result, amax = amax_of(types, one_a, one_b, **terms, **options)
            assert float(result) == value
            assert float(amax) == abs(value) / 2


@ROUNDED
def test_results_of_8_bits_are_rounded_to_nearest_even_and_saturate(device, types):
    """Every number of the result's type, the middle of two adjacent ones, and what is beside it."""
    one_b = torch.ones(1, 1, device=device).to(types.b)
    for out in types.outs:
        if out not in (*FP8, S8):
            continue
        numbers = torch.arange(256, dtype=torch.uint8).view(out).float()
        numbers = numbers[numbers.isfinite()].unique()
        middles = (numbers[1:] + numbers[:-1]) / 2
        around = [torch.nextafter(middles, torch.full_like(middles, side)) for side in (INF, -INF)]
        large = torch.tensor([464.0, 465.0, 480.0, 61440.0, 61441.0, 1e6, INF, 127.5, 128.5])
        values = torch.cat([numbers, middles, *around, large, -large]).to(device)
        # The accumulator is 0, the value comes from the bias along m.
        zero = torch.zeros(len(values), 1, device=device).to(types.a)
        terms = {"bias": values[:, None], "out_dtype": out}
        expected = reference.narrow(values.double(), out)[:, None]
        result, amax = amax_of(types, zero, one_b, **terms)
        reference.assert_exact(result, expected)
        assert float(amax) == INF
        transposed = torch.empty_like(expected.mT).mT
        torch.ops.tcgemm._gemm.out(zero, one_b, **terms, **types.options, out=transposed)
        reference.assert_exact(transposed, expected)


@ROUNDED
def test_requantised(device, types):
    """scale_out brings the result into the range of its type, and amax says what that should be."""
    a, b = types.operands("TN", 150, 70, 260, device=device)
    for out in types.outs:
        if out == S32:
            continue
        factor = {E4M3: 3.0, E5M2: 100.0, S8: 1.7}.get(out, 0.7) / (1e5 if types.integer else 1)
        for scale in (torch.tensor(factor), torch.full((1, 1), factor)):
            scale = scale.to(device)
            bias = types.addend(70, out=out, device=device, largest=None)
            epilogue = types.options | {"bias": bias, "activation": "silu", "alpha": 0.3}
            options = {**epilogue, "scale_out": scale, "out_dtype": out}
            result, amax = torch.ops.tcgemm.scaled_mm_amax(a, b, **options)
            reference.assert_close(result, a, b, **options)
            reference.assert_amax(amax, a, b, **epilogue, out_dtype=out)
            assert torch.equal(torch.ops.tcgemm.scaled_mm(a, b, **options), result)


@EVERY
def test_amax_on_whole_numbers(device, types):
    """The largest of all elements: of ragged tiles, of every batch, and of nothing beside them."""
    out = F64 if types.a == F64 else F32
    for index, (m, n, k) in enumerate(((1, 1, 1), (130, 257, 40), (257, 65, 128), (16, 300, 9))):
        batches = (((3,), ()), ((2, 1), (1, 3)))[index % 2]
        a, b = types.operands(
            cases.LAYOUTS[index], m, n, k, device=device, batch=batches, whole=True
        )
        options = types.options | {"activation": (None, "relu")[index // 2], "out_dtype": out}
        expected = reference.exact(a, b, **options)
        result, amax = torch.ops.tcgemm.scaled_mm_amax(a, b, **options)
        reference.assert_exact(result, expected)
        assert float(amax) == float(expected.abs().max())
        # The largest in the last place, where a masked tile would lose it.
        residual = torch.zeros(m, n, device=device)
        residual[-1, -1] = -(2.0**22)
        _, amax = torch.ops.tcgemm.scaled_mm_amax(a, b, residual=residual, **options)
        assert float(amax) == float((expected.double() + residual).abs().max())


@EVERY
def test_amax_of_nan_and_inf(device, types):
    a, b = types.operands("TN", 130, 70, 40, device=device, whole=True)
    residual = torch.zeros(130, 70, device=device)
    out = F64 if types.a == F64 else BF16
    for value, expected in ((INF, INF), (-INF, INF), (NAN, NAN), (-NAN, NAN)):
        residual[129, 69] = value
        _, amax = amax_of(types, a, b, residual=residual, out_dtype=out)
        assert amax.isnan() if expected != expected else float(amax) == expected
    residual[0, 0] = INF  # beside a NaN
    _, amax = amax_of(types, a, b, residual=residual, out_dtype=out)
    assert amax.isnan()
    a, b = types.operands("TN", 0, 70, 40, device=device)
    assert float(amax_of(types, a, b, out_dtype=out)[1]) == 0


@pytest.mark.parametrize("device", cases.DEVICES)
def test_a_sum_of_integers_is_rounded_once(device):
    """2^24 + 1 is no f32, and a middle of two f16 or s8 may come from a rounding in between."""
    a = torch.full((1, 1), 127, dtype=S8, device=device).expand(1, 1041)
    b = torch.full((1041, 1), 127, dtype=S8, device=device)
    total = 127 * 127 * 1041
    assert total > 2**24
    for out in (F32, BF16, F16, S8):
        expected = reference.narrow(torch.tensor([[float(total)]], dtype=F64).float().double(), out)
        assert torch.equal(tcgemm.mm(a, b, out_dtype=out).cpu(), expected)
    assert tcgemm.mm(a, b).item() == total


@pytest.mark.parametrize("device", cases.DEVICES)
def test_alpha_zero_still_multiplies(device):
    """0 * NaN is NaN: alpha is a factor like any other, and a broken operand cannot hide."""
    a, b = cases.operands("TN", 9, 5, 8, dtype=F16, device=device)
    a[4, 4] = NAN
    out = tcgemm.mm(a, b, alpha=0.0)
    assert out[4].isnan().all()
    assert out.isnan().sum() == 5
