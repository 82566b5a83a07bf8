"""Products with a sparse operand are those with the dense matrix that it stands for: bit by bit on
small integers, within the error bound on normal data, from either side, with every epilogue.
"""

import functools

import pytest
import torch
from torch.library import opcheck

from support import cases, dtype_matrix, reference
from support.cases import BF16, F16, F32, S32
from support.dtype_matrix import GemmTypes
from support.sparse_operands import (
    SIDES,
    dense_sides,
    multiply,
    operand_of,
    options_of,
    scaled_mm,
    sparse_matrix,
)

KINDS = [GemmTypes(F16, F16, F32), GemmTypes(BF16, BF16, F32), GemmTypes(F32, F32, F32, "high")]
KINDS += [types for types in dtype_matrix.gemm_types("cpu") if types.fp8 or types.integer]
EVERY = pytest.mark.parametrize(
    ("device", "types"),
    [
        *(pytest.param("cpu", types, id=f"cpu-{types}") for types in KINDS),
        *(cases.gpu("cuda", types, mark="sm90", id=f"cuda-{types}") for types in KINDS),
    ],
)
SIDE = pytest.mark.parametrize("side", SIDES)
SHAPES = ((1, 1, 1), (5, 7, 9), (16, 1, 64), (33, 70, 100), (64, 64, 64), (130, 257, 301))


def fast(types):
    return types._replace(precision="fast") if types.fp8 else types


def operands(types, side, rows, other, k, *, device, batch=(), strides="contiguous", whole=True):
    """w, which is sparse, and x."""
    largest = fast(types).largest(k) if whole else None
    dtypes = (types.a, types.b) if side == "a" else (types.b, types.a)
    w = sparse_matrix(rows, k, dtypes[0], device=device, largest=largest)
    shape = (k, other) if side == "a" else (other, k)
    x = cases.make(strides, *batch, *shape, dtype=dtypes[1], device=device, largest=largest)
    return w, x


def expected(types, side, w, x, **terms):
    a, b = dense_sides(side, w, x)
    return reference.exact(a, b, **terms, **options_of(types))


@EVERY
@SIDE
@pytest.mark.parametrize("shape", SHAPES)
def test_every_bit(device, types, side, shape):
    w, x = operands(types, side, *shape, device=device)
    for out_dtype in types.outs:
        terms = {"out_dtype": out_dtype}
        result = multiply(side, w, x, **terms, **options_of(types))
        reference.assert_exact(result, expected(types, side, w, x, **terms))


@EVERY
@SIDE
def test_epilogues(device, types, side):
    rows, other, k = 48, 37, 72
    w, x = operands(types, side, rows, other, k, device=device)
    m, n = (rows, other) if side == "a" else (other, rows)
    for step, out_dtype in enumerate(out for out in types.outs if out != S32):
        kwargs = {"out": out_dtype, "device": device}
        terms = {
            "scale_a": dtype_matrix.scale_a("row", m, k, powers=True, device=device),
            "scale_b": dtype_matrix.scale_b("row" if step % 2 else "tensor", n, k, powers=True)
            .to(device)
            .contiguous(),
            "c": types.addend(m, n, step=step, **kwargs),
            "bias": types.addend(n, step=step + 1, **kwargs),
            "residual": types.addend(m, n, step=step, **kwargs),
            "scale_out": torch.full((), 0.5, device=device),
        }
        terms |= {"alpha": 2.0**-8, "beta": 2.0, "activation": "relu", "out_dtype": out_dtype}
        result = multiply(side, w, x, **terms, **options_of(types))
        value = expected(types, side, w, x, **terms)
        reference.assert_exact(result, value)
        result, amax = multiply(
            side, w, x, op=torch.ops.tcgemm.scaled_mm_amax, **terms, **options_of(types)
        )
        reference.assert_exact(result, value)
        terms.pop("scale_out")
        a, b = dense_sides(side, w, x)
        reference.assert_amax(amax, a, b, **terms, **options_of(types))


@EVERY
@SIDE
def test_a_bias_and_relu_alone(device, types, side):
    """The short way out of the kernels, of whole tiles and of ragged ones."""
    for rows, other, k in ((256, 256, 128), (130, 60, 64)):
        w, x = operands(types, side, rows, other, k, device=device)
        m, n = (rows, other) if side == "a" else (other, rows)
        for bias in ((n,), (m, 1)):
            for out_dtype in types.outs[:2]:
                addend = types.addend(*bias, out=out_dtype, device=device)
                terms = {"bias": addend, "activation": "relu", "out_dtype": out_dtype}
                result = multiply(side, w, x, **terms, **options_of(types))
                reference.assert_exact(result, expected(types, side, w, x, **terms))


@EVERY
@SIDE
@pytest.mark.parametrize("strides", ("transposed", "odd_pitch", "step_both", "expanded_rows"))
def test_any_strides(device, types, side, strides):
    w, x = operands(types, side, 40, 24, 68, device=device, strides=strides)
    shape = (40, 24) if side == "a" else (24, 40)
    values, form = operand_of(w)
    value = expected(types, side, w, x)
    for out_strides in ("odd_pitch", "transposed_padded", "step_both"):
        out = cases.Guarded(out_strides, shape, dtype=types.outs[0], device=device)
        multiply(side, w, x, operand=(values, form), out=out.view, **options_of(types))
        reference.assert_exact(out.view, value)
        assert out.untouched()
    # Values that are a part of another matrix, and begin anywhere in it.
    view = cases.empty("odd_pitch", values.shape, dtype=values.dtype, device=device).copy_(values)
    result = multiply(side, w, x, operand=(view, form), **options_of(types))
    reference.assert_exact(result, value)


@EVERY
@SIDE
def test_batches_of_the_other_operand(device, types, side):
    w, x = operands(types, side, 33, 20, 70, device=device, batch=(3, 2))
    result = multiply(side, w, x, **options_of(types))
    reference.assert_exact(result, expected(types, side, w, x))


@EVERY
@SIDE
def test_normal_data(device, types, side):
    if types.integer:
        pytest.skip("integers are exact")
    w, x = operands(types, side, 200, 130, 1100, device=device, whole=False)
    a, b = dense_sides(side, w, x)
    for out_dtype in dict.fromkeys((types.outs[0], F32)):
        result = multiply(side, w, x, out_dtype=out_dtype, **options_of(types))
        reference.assert_close(result, a, b, **options_of(types))


@EVERY
@SIDE
def test_nothing_to_add_up(device, types, side):
    for shape in ((5, 7, 0), (0, 7, 8), (5, 0, 8)):
        w, x = operands(types, side, *shape, device=device)
        reference.assert_exact(
            multiply(side, w, x, **options_of(types)), expected(types, side, w, x)
        )


@pytest.mark.parametrize("device", ["cpu", cases.gpu("cuda", mark="sm90")])
def test_not_finite_ones(device):
    """They reach the sums that they belong to. Tensor cores do not read a NaN of x at a position
    that w leaves out; the CPU multiplies it by zero, and the result is NaN."""
    w = sparse_matrix(64, 64, BF16, device=device, largest=3)
    x = cases.make("contiguous", 16, 64, dtype=BF16, device=device, largest=3)
    w[3, 8], w[3, 9:12] = float("inf"), 0
    x[5, 8] = float("nan")
    result = multiply("b", w, x)
    value = torch.matmul(x.float(), w.float().t())
    mask = torch.zeros_like(result, dtype=torch.bool)
    mask[:, 3] = True
    mask[5] = True
    assert torch.equal(result.isfinite() | mask, torch.ones_like(mask))
    assert torch.equal(result[~mask].float(), value[~mask].bfloat16().float())
    assert torch.all(result[5].isnan() | (w[:, 8] == 0))


@SIDE
def test_opcheck(side):
    w, x = sparse_matrix(16, 32, BF16), torch.randn(8, 32).bfloat16()
    values, form = operand_of(w)
    a, b = dense_sides(side, values, x if side == "b" else x.t())
    tests = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    opcheck(scaled_mm.default, (a, b), {"sparse_" + side: form}, test_utils=tests)


def test_derivatives_are_refused():
    w, x = sparse_matrix(16, 32, F32), torch.randn(8, 32, requires_grad=True)
    out = multiply("b", w, x, precision="high")
    with pytest.raises(RuntimeError, match=r"multiply a tcgemm\.SparseTensor24"):
        out.sum().backward()


def test_vmap():
    w, x = sparse_matrix(16, 32, BF16), torch.randn(3, 8, 32).bfloat16()
    operand = operand_of(w)
    result = torch.vmap(lambda x: multiply("b", w, x, operand=operand))(x)
    assert torch.equal(result, multiply("b", w, x, operand=operand))


@EVERY
@pytest.mark.parametrize("constant_b", [False, True])
def test_linear24_is_scaled_mm(constant_b, device, types):
    linear24 = functools.partial(torch.ops.tcgemm._linear24.default, constant_b=constant_b)
    if types.a is F32:
        w, x = operands(types, "b", 33, 70, 100, device=device)
        with pytest.raises(RuntimeError, match='pass precision="high"'):  # which it does not take
            linear24(*operand_of(w), x)
        return
    for shape, batch in (((33, 70, 100), ()), ((16, 1, 64), ()), ((20, 9, 36), (2, 3))):
        w, x = operands(types, "b", *shape, device=device, batch=batch)
        out = S32 if types.integer else None
        bias = types.addend(shape[0], out=out, device=device, largest=4)
        values, form = operand_of(w)
        terms = {"bias": bias, **options_of(types)}
        value = multiply("b", w, x, **terms)
        assert torch.equal(linear24(values, form, x, bias), value)
        if not types.fp8:  # which opcheck cannot compare
            names = ("test_schema", "test_faketensor")
            options = {"constant_b": constant_b}
            opcheck(linear24.func, (values, form, x, bias), options, test_utils=names)
