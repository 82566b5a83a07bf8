"""The errors about scales, zero points, integer results, precision and quantize, and similar calls
that are right.
"""

import pytest
import torch

import tcgemm

from support.cases import BF16, E4M3, E5M2, F16, F32, F64, S8, S32, U8
from support.error_asserts import assert_error_message, error_message, t
from support.scaled_errors import OPS, TABLE, M, N, operands, scaled


@pytest.mark.parametrize("call, pieces", TABLE)
@pytest.mark.filterwarnings("ignore:Sparse")
def test_error_message(call, pieces):
    assert_error_message(call, pieces)


def test_nothing_is_written_when_a_call_is_refused():
    out = torch.full((M, N), 7.0)
    error_message(lambda: OPS.scaled_mm(*operands(E4M3), t(M), out_dtype=F32, out=out))
    assert (out == 7).all()


def f32(*shape):
    return torch.ones(shape)


ACCEPTED = {
    "one value, any shape": (E4M3, f32(1, 1, 1, 1), f32(), {}),
    "rows of bf16": (BF16, f32(M, 1), f32(1, N), {}),
    "rows of f64": (F64, f32(M, 1), f32(1, N), {}),
    "rows of int8": (S8, f32(M, 1), f32(1, N), {"out_dtype": S8}),
    "blocks and one value": (E5M2, f32(M, 2), f32(), {"out_dtype": E4M3}),
    "blocks of both kinds": (E4M3, f32(M, 2), f32(2, 3), {"precision": "promoted"}),
    "fast rows": (E4M3, f32(M, 1), f32(1, N), {"precision": "fast"}),
    "zero points": (U8, None, None, {"zero_a": t(M, 1, dtype=S32), "zero_b": t(dtype=S32)}),
    "words of f32": (F16, None, None, {"precision": "high"}),
    "words of f32 for int8": (S8, None, None, {"precision": "medium"}),
    "integer relu": (S8, None, None, {"activation": "relu", "alpha": -3.0}),
    "beta without c": (S8, None, None, {"beta": 0.5}),
    "scale_out": (BF16, None, None, {"scale_out": f32(1), "out_dtype": E5M2}),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name):
    dtype, scale_a, scale_b, options = ACCEPTED[name]
    out = scaled(dtype, scale_a, scale_b, **options)
    default = {E4M3: BF16, E5M2: BF16, S8: S32, U8: S32}.get(dtype, dtype)
    assert out.shape == (M, N) and out.dtype == options.get("out_dtype", default)
    assert not out.float().any()


@pytest.mark.parametrize("k, of_a, of_b", [(0, (M, 0), (0, 3)), (128, (M, 1), (1, 3))])
def test_blocks_of_little_depth(k, of_a, of_b):
    """K = 0 has no blocks, and with one block they are rows, which every precision takes."""
    a, b = operands(E4M3, k=k)
    assert not OPS.scaled_mm(a, b, f32(*of_a), f32(*of_b)).any()
    assert not OPS.scaled_mm(a, b, f32(M, 1), f32(1, N), precision="fast").any()


@pytest.mark.parametrize("shape", [(0, 2, 3), (2, 0, 3), (2, 3, 0)])
def test_amax_of_little(shape):
    """An empty result has no maximum; with K = 0 it is the maximum of the addends."""
    m, n, k = shape
    a, b = operands(E4M3, m=m, n=n, k=k)
    out, amax = OPS.scaled_mm_amax(a, b, f32(m, 1), None, bias=torch.full((n,), -2.0))
    assert out.shape == (m, n)
    assert amax.shape == () and amax.dtype == F32 and amax == (0 if m * n == 0 else 2)


X = torch.ones(4, 8)
WORDS = {
    "quantize: dtype is 'fp8', but": lambda: tcgemm.quantize(X, "fp8"),
    "quantize: dtype is torch.int4, but": lambda: tcgemm.quantize(X, torch.int4),
    "quantize: dtype is None, but": lambda: tcgemm.quantize(X, None),
    "quantize: granularity is 3, but": lambda: tcgemm.quantize(X, S8, 3),
    "quantize: x must be a torch.Tensor": lambda: tcgemm.quantize([1.0], S8),
    "dequantize: values must be a torch.Tensor": lambda: tcgemm.dequantize(None, None),
    "dequantize: scale must be a torch.Tensor": lambda: tcgemm.dequantize(X, [1.0]),
    "dequantize: dtype is 'bf16', but": lambda: tcgemm.dequantize(X, f32(), "bf16"),
    "quantized_linear: dtype is 'fp8', but": lambda: tcgemm.quantized_linear(X, X, dtype="fp8"),
    "quantized_linear: granularity is None": lambda: tcgemm.quantized_linear(
        X, X, granularity=None
    ),
    "nn.QuantLinear: dtype is 'fp8', but": lambda: tcgemm.nn.QuantLinear(8, 8, dtype="fp8"),
    "nn.QuantLinear: dtype is torch.int4": lambda: tcgemm.nn.QuantLinear.from_linear(
        torch.nn.Linear(8, 8), torch.int4
    ),
}


@pytest.mark.parametrize("sentence", WORDS)
def test_values_of_other_types(sentence):
    with pytest.raises((RuntimeError, TypeError)) as excinfo:
        WORDS[sentence]()
    assert str(excinfo.value).startswith(f"tcgemm.{sentence}")
    assert str(excinfo.value).endswith(".")
