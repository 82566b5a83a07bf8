"""Names of dtypes, such as "int8", in the place of torch's dtypes."""

import pytest
import torch
from torch import nn

import tcgemm
from tcgemm import dtypes
from tcgemm.measure.compare.request import COMPARE
from tcgemm.override.policy import read_dtypes

NAMES = [name for dtype in dtypes.NAMES for name in (str(dtype), str(dtype).removeprefix("torch."))]
W = torch.randn(32, 128)
LAYERS = tcgemm.nn
CALLS = {
    "quantize": lambda dtype: tcgemm.quantize(W, dtype, "row")[0].dtype,
    "QuantLinear": lambda dtype: LAYERS.QuantLinear(128, 32, dtype=dtype).dtype,
    "QuantLinear.from_linear": lambda dtype: (
        LAYERS.QuantLinear.from_linear(nn.Linear(128, 32), dtype).dtype
    ),
    "swap_linear": lambda dtype: swapped(to=LAYERS.QuantLinear, dtype=dtype).dtype,
}
FLOAT_CALLS = {
    "dequantize": lambda dtype: tcgemm.dequantize(*tcgemm.quantize(W, "int8"), dtype).dtype,
    "pack_weight": lambda dtype: tcgemm.pack_weight(W, scale_dtype=dtype).scales.dtype,
    "PackedWeight.dequantize": lambda dtype: tcgemm.pack_weight(W).dequantize(dtype).dtype,
    "PackedWeight.from_parts": lambda dtype: from_parts(dtype).dequantize().dtype,
    "PackedLinear": lambda dtype: LAYERS.PackedLinear(128, 32, bias_dtype=dtype).bias.dtype,
    "PackedLinear.from_linear": lambda dtype: (
        LAYERS.PackedLinear.from_linear(nn.Linear(128, 32), scale_dtype=dtype).packed.scales.dtype
    ),
    "PackedLinear.to_linear": lambda dtype: (
        LAYERS.PackedLinear(128, 32).to_linear(dtype).weight.dtype
    ),
    "QuantLinear.bias_dtype": lambda dtype: LAYERS.QuantLinear(8, 4, bias_dtype=dtype).bias.dtype,
    "QuantLinear.to_linear": lambda dtype: LAYERS.QuantLinear(8, 4).to_linear(dtype).weight.dtype,
    "Linear": lambda dtype: LAYERS.Linear(8, 4, dtype=dtype).weight.dtype,
    "Float8Linear": lambda dtype: LAYERS.Float8Linear(16, 16, dtype=dtype).weight.dtype,
    "SparseLinear24": lambda dtype: LAYERS.SparseLinear24(16, 8, dtype=dtype).weight.dtype,
    "MultiheadAttention": lambda dtype: (
        LAYERS.MultiheadAttention(16, 2, dtype=dtype).in_proj_weight.dtype
    ),
    "swap_linear back": lambda dtype: back(dtype).weight.dtype,
}


def swapped(**options):
    model = nn.Sequential(nn.Linear(128, 32))
    tcgemm.swap_linear(model, **options)
    return model[0]


def back(dtype):
    model = nn.Sequential(swapped(to=LAYERS.QuantLinear))
    tcgemm.swap_linear(model, to=nn.Linear, dtype=dtype)
    return model[0]


def from_parts(dtype):
    packed = tcgemm.pack_weight(W, "int4", 32)
    tensors = {"codes": packed.codes, "scales": packed.scales}
    return tcgemm.PackedWeight.from_parts(**tensors, format="int4", group_size=32, dtype=dtype)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_its_dtype(name):
    dtype = dtypes.of("f", "dtype", name)
    assert name.removeprefix("torch.") == str(dtype).removeprefix("torch.")
    assert dtypes.of("f", "dtype", dtype) is dtype and dtypes.of("f", "dtype", None) is None


@pytest.mark.parametrize(
    ("alias", "dtype"),
    [("half", torch.float16), ("torch.float", torch.float32), ("torch.double", torch.float64)],
)
def test_an_alias_of_torch_is_its_dtype(alias, dtype):
    assert dtypes.of("f", "dtype", alias) is dtype
    assert read_dtypes(alias) == {dtype}
    assert COMPARE.dtype(alias) == dtypes.NAMES[dtype]
    assert LAYERS.Linear(8, 4, dtype=alias).weight.dtype is dtype
    ones = torch.ones(2, 2, dtype=dtype)
    assert tcgemm.mm(ones, ones, out_dtype=alias).dtype is dtype


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", ["int8", "torch.int8", "float8_e4m3fn", "float8_e5m2"])
def test_names_of_8_bits(call, name):
    assert CALLS[call](name) is dtypes.of("f", "dtype", name)


@pytest.mark.parametrize("call", FLOAT_CALLS)
@pytest.mark.parametrize("name", ["bfloat16", "torch.float16"])
def test_names_of_floats(call, name):
    assert FLOAT_CALLS[call](name) is dtypes.of("f", "dtype", name)


@pytest.mark.parametrize("call", CALLS | FLOAT_CALLS)
def test_other_words_are_refused_with_the_names(call):
    with pytest.raises(RuntimeError, match=r"is 'fp7', but it must be one of float\d+"):
        (CALLS | FLOAT_CALLS)[call]("fp7")


A, B, X = torch.randn(4, 16), torch.randn(16, 8), torch.randn(2, 128)
PRODUCTS = {
    "mm": lambda **options: tcgemm.mm(A, B, **options),
    "bmm": lambda **options: tcgemm.bmm(A[None], B[None], **options),
    "matmul": lambda **options: tcgemm.matmul(A, B, **options),
    "addmm": lambda **options: tcgemm.addmm(torch.ones(8), A, B, **options),
    "baddbmm": lambda **options: tcgemm.baddbmm(torch.ones(8), A[None], B[None], **options),
    "linear": lambda **options: tcgemm.linear(A, B.t(), **options),
    "linear with a gradient": lambda **options: tcgemm.linear(
        A, B.t().contiguous().requires_grad_(), **options
    ),
    "linear, compiled": torch.compile(
        lambda **options: tcgemm.linear(A, B.t(), **options), fullgraph=True, backend="eager"
    ),
    "linear with 2:4": lambda **options: tcgemm.linear(
        X.half(), tcgemm.compress24(W.half(), prune=True), **options
    ),
    "linear with packed": lambda **options: tcgemm.linear(
        X.half(), tcgemm.pack_weight(W.half()), **options
    ),
    "quantized_linear": lambda **options: tcgemm.quantized_linear(X, W, dtype="int8", **options),
    "emulate.mm": lambda **options: tcgemm.emulate.mm(A.half(), B.half(), **options),
}


@pytest.mark.parametrize("product", PRODUCTS)
def test_products_take_names_of_dtypes(product):
    names = PRODUCTS[product](out_dtype="torch.float16"), PRODUCTS[product](out_dtype="bfloat16")
    expected = PRODUCTS[product](out_dtype=torch.bfloat16)
    assert [tensor.dtype for tensor in names] == [torch.float16, torch.bfloat16]
    assert torch.equal(names[1], expected)


def test_accumulators_take_names_of_dtypes():
    a, b = torch.randn(64, 4096).half(), torch.randn(4096, 64).half()
    expected = tcgemm.mm(a, b, acc_dtype=torch.float16)
    assert torch.equal(tcgemm.mm(a, b, acc_dtype="float16"), expected)
    assert not torch.equal(tcgemm.mm(a, b, acc_dtype="float32"), expected)
    plan = tcgemm.explain(a, b, acc_dtype="float16", out_dtype="float16", device="H200")
    assert plan == tcgemm.explain(
        a, b, acc_dtype=torch.float16, out_dtype=torch.float16, device="H200"
    )


def test_readers_take_names_of_dtypes():
    blocks = torch.full((8, 2, 16), 0x22, dtype=torch.uint8)
    scales = torch.full((8, 2), 127, dtype=torch.uint8)
    packed = tcgemm.packed.from_mxfp4(blocks, scales, dtype="float16")
    assert packed.dequantize().dtype is torch.float16
    with pytest.raises(RuntimeError, match="but dequantize"):
        tcgemm.packed.from_mxfp4(blocks, scales, dtype="float64")
