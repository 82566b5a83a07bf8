"""The dense tensors beside a SparseTensor24: those with torch's negative bit, ZeroTensors, vectors,
batches, other devices, layouts and dtypes, and precisions.

A call is right if it does what the same call with to_dense() does: the same result, or an error.
"""

import functools
import itertools

import pytest
import torch
import torch.nn.functional as F

import tcgemm

from support.cases import BF16, F16, F32, F64, S32
from support.error_asserts import assert_error_message

M, N, K = 4, 8, 16


def sparse(dtype=F32, pattern=None):
    return tcgemm.compress24(torch.randn(N, K).to(dtype), prune=True, pattern=pattern)


def negated(*shape):
    """A tensor whose memory holds its negated elements."""
    x = torch.complex(torch.randn(shape), torch.randn(shape)).conj().imag
    assert x.is_neg()
    return x


def zero(*shape):
    return torch._efficientzerotensor(shape)


LAYER = functools.cache(lambda **options: tcgemm.nn.SparseLinear24(K, N, **options).eval())


def layer(x, w, bias):
    """A layer that has prepared its fast path. Its weight and bias are its own."""
    module = LAYER(activation="relu")
    module(torch.ones(M, K))
    return module(x)


def layer_bias(x, w, bias):
    module = LAYER()
    module.bias = None
    module(torch.ones(M, K))
    module.bias = torch.nn.Parameter(bias)
    return module(x)


# (a function of x (M, K), the weight (N, K) and a bias (N,))
FORMS = {
    "linear": lambda x, w, bias: tcgemm.linear(x, w),
    "linear with a bias": lambda x, w, bias: tcgemm.linear(x, w, bias),
    "residual": lambda x, w, bias: tcgemm.linear(x, w, residual=bias, activation="relu"),
    "scales": lambda x, w, bias: tcgemm.linear(x, w, bias, scale_a=torch.tensor(2.0)),
    "mm": lambda x, w, bias: tcgemm.mm(x, w.t(), bias=bias),
    "left mm": lambda x, w, bias: tcgemm.mm(w, x.t(), bias=bias[:, None]),
    "matmul": lambda x, w, bias: tcgemm.matmul(x, w.t(), bias=bias),
    "vector": lambda x, w, bias: tcgemm.matmul(x[0], w.t()),
    "addmm": lambda x, w, bias: tcgemm.addmm(bias, x, w.t()),
    "F.linear": lambda x, w, bias: F.linear(x, w, bias),
    "torch.mm": lambda x, w, bias: torch.mm(x, w.t()),
    "torch.addmm": lambda x, w, bias: torch.addmm(bias, x, w.t()),
    "@": lambda x, w, bias: x @ w.t(),
    "transposed": lambda x, w, bias: x[:, :N] @ w,
    "layer": layer,
    "layer with a bias": layer_bias,
}


@pytest.mark.parametrize("make", [negated, zero], ids=["negative bit", "ZeroTensor"])
@pytest.mark.parametrize("form", FORMS)
def test_tensors_whose_memory_does_not_hold_their_elements(form, make):
    w, function = sparse(), FORMS[form]
    x, bias = torch.randn(M, K), torch.randn(N)
    with torch.no_grad():
        for operands in ((make(M, K), bias), (x, make(N)), (make(M, K), make(N))):
            plain = [tensor.clone() for tensor in operands]  # clone() writes the elements to memory
            assert not any(tensor.is_neg() or tensor._is_zerotensor() for tensor in plain)
            expected = function(plain[0], w, plain[1])
            for _ in range(2):
                assert torch.equal(function(operands[0], w, operands[1]), expected)


# Shapes.

SIZES = (2, 8)
SHAPES = [shape for dims in range(4) for shape in itertools.product(SIZES, repeat=dims)]
FUNCTIONS = {
    "linear": lambda x, w: tcgemm.linear(x, w),
    "linear of it": lambda x, w: tcgemm.linear(w, x),
    "linear, scaled": lambda x, w: tcgemm.linear(x, w, scale_a=torch.tensor(2.0)),
    "mm": lambda x, w: tcgemm.mm(x, w.t()),
    "left mm": lambda x, w: tcgemm.mm(w, x),
    "addmm": lambda x, w: tcgemm.addmm(torch.zeros(1), x, w.t()),
    "left addmm": lambda x, w: tcgemm.addmm(torch.zeros(1), w, x),
    "matmul": lambda x, w: tcgemm.matmul(x, w.t()),
    "left matmul": lambda x, w: tcgemm.matmul(w, x),
    "torch.mm": lambda x, w: torch.mm(x, w.t()),
    "left torch.mm": lambda x, w: torch.mm(w, x),
    "torch.mv": lambda x, w: torch.mv(w, x),
    "torch.addmm": lambda x, w: torch.addmm(torch.zeros(1), x, w.t()),
    "torch.matmul": lambda x, w: torch.matmul(x, w.t()),
    "left torch.matmul": lambda x, w: torch.matmul(w, x),
    "F.linear": lambda x, w: F.linear(x, w),
    "aten.mm": lambda x, w: torch.ops.aten.mm(x, w.t()),
    "aten.addmm": lambda x, w: torch.ops.aten.addmm(torch.zeros(1), w, x),
    "bias of mm": lambda x, w: tcgemm.mm(torch.ones(8, 8), w.t(), bias=x),
    "bias of linear": lambda x, w: tcgemm.linear(torch.ones(8, 8), w, x),
    "residual of linear": lambda x, w: tcgemm.linear(torch.ones(8, 8), w, residual=x),
    "c of addmm": lambda x, w: tcgemm.addmm(x, torch.ones(8, 8), w.t()),
}


def shape_or_error(function, *operands):
    try:
        return function(*operands).shape
    except (RuntimeError, NotImplementedError) as error:
        assert "INTERNAL" not in str(error)
        return "refused"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_shapes_are_those_of_the_dense_call(name):
    w = tcgemm.compress24(torch.randn(8, 8), prune=True)
    for shape, gradient in itertools.product(SHAPES, (False, True)):
        x, function = torch.randn(shape).requires_grad_(gradient), FUNCTIONS[name]
        expected = shape_or_error(function, x, w.to_dense())
        assert shape_or_error(function, x, w) == expected, (name, shape)


# Precisions and dtypes of float32 weights.

WORDS = ("tf32", "", "fast", "promoted", "HIGHEST", "High", "ieee", "none", "medium ")


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("pattern", ["1:2", "2:4"])
def test_unknown_precisions_are_refused(word, pattern):
    x, w = torch.randn(M, K), sparse(pattern=pattern)
    pieces = [f'precision is "{word}"', '"high"', '"medium"', "pass one of these"]
    for call in (
        lambda: tcgemm.linear(x, w, precision=word),
        lambda: tcgemm.linear(x, w, out_dtype=F16, precision=word),
        lambda: tcgemm.linear(x, w, precision=word, out=torch.empty(M, N)),
        lambda: tcgemm.linear(x, w, precision=word, amax=True),
        lambda: tcgemm.mm(x, w.t(), precision=word),
        lambda: tcgemm.mm(w, x.t(), precision=word),
        lambda: torch.ops.tcgemm.linear(x, w, precision=word),
    ):
        assert_error_message(call, pieces)


@pytest.mark.parametrize("pattern", ["1:2", "2:4"])
@pytest.mark.parametrize("precision", [None, "high", "medium"])
@pytest.mark.parametrize("dtype", [F64, torch.int64, BF16, F16, S32], ids=str)
def test_no_precision_converts_an_operand_of_another_dtype(dtype, precision, pattern):
    x, w = torch.ones(M, K, dtype=dtype), sparse(pattern=pattern)
    pieces = [f"weight is torch.float32, but x is {dtype}", "convert"]
    assert_error_message(lambda: tcgemm.linear(x, w, precision=precision), pieces)
    pieces = [f"b is {dtype}, but a is torch.float32", "convert"]
    assert_error_message(lambda: tcgemm.mm(w, x.t(), precision=precision), pieces)


# Errors name what the caller passed.


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors|Sparse")
def test_errors_name_the_arguments_of_the_function():
    w, x, b = sparse(), torch.randn(M, K), torch.randn(K, N)
    nested = torch.nested.nested_tensor([torch.randn(2, K), torch.randn(3, K)])
    for call, pieces in (
        (lambda: tcgemm.linear(x.to_sparse(), w), ["linear: x has the layout torch.sparse_coo"]),
        (lambda: F.linear(x.to_sparse(), w), ["linear: x has the layout torch.sparse_coo"]),
        (lambda: tcgemm.linear(x.to_mkldnn(), w), ["linear: x has the layout torch._mkldnn"]),
        (lambda: tcgemm.linear(nested, w), ["linear: x is a nested tensor", "x.unbind()"]),
        (lambda: tcgemm.linear(nested, w, activation="relu"), ["x is a nested tensor"]),
        (lambda: F.linear(nested, w), ["linear: x is a nested tensor"]),
        (lambda: nested @ w.t(), ["tcgemm.matmul: a is a nested tensor"]),
        (lambda: tcgemm.linear(x.to("meta"), w), ["linear: x is on meta, but weight is on cpu"]),
        (lambda: tcgemm.mm(w, x.t().to("meta")), ["mm: b is on meta, but a is on cpu"]),
        (lambda: tcgemm.linear(x, w, torch.zeros(N, device="meta")), ["bias is on meta"]),
        (lambda: tcgemm.linear(x, w, residual=torch.zeros(N, device="meta")), ["residual is on"]),
        (lambda: tcgemm.linear(x, w, out=torch.empty(M, N, device="meta")), ["out is on meta"]),
        (lambda: tcgemm.linear(x, w, scale_a=torch.ones((), device="meta")), ["scale_a is on me"]),
        (lambda: tcgemm.linear(x.cfloat(), w), ["linear: weight is torch.float32, but x is torch"]),
        (lambda: tcgemm.linear(x, w, activation="r"), ['tcgemm.linear: activation is "r"']),
        (lambda: tcgemm.mm(x, w.t(), activation="r"), ['tcgemm.mm: activation is "r"']),
        (lambda: tcgemm.linear(x, w, torch.zeros(N).int()), ["tcgemm.linear: bias is torch.int32"]),
        (lambda: tcgemm.linear(x, w, scale_a=w), ["linear: scale_a is a SparseTensor24"]),
        (lambda: tcgemm.linear(x, x, scale_b=w), ["linear: scale_b is a SparseTensor24"]),
        (lambda: tcgemm.mm(x, b, scale_out=w), ["mm: scale_out is a SparseTensor24"]),
        (lambda: tcgemm.mm(x, b, zero_a=w), ["mm: zero_a is a SparseTensor24"]),
        (lambda: tcgemm.mm(x, b, out=w), ["mm: out is a SparseTensor24", "a dense tensor"]),
        (lambda: torch.mm(x, b, out=w), ["mm: out is a SparseTensor24", "a dense tensor"]),
        (lambda: tcgemm.linear(x, x, w), ["linear: bias is a SparseTensor24"]),
        (lambda: F.linear(x, w, w), ["linear: bias is a SparseTensor24", "bias.to_dense()"]),
        (lambda: torch.ops.tcgemm.scaled_mm(x, b, w), ["scaled_mm: scale_a is a SparseTensor24"]),
        (lambda: torch.mv(w, x), ["torch.mv multiplies a matrix with a vector", "torch.matmul"]),
    ):
        assert_error_message(call, pieces)
