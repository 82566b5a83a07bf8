"""Names of dtypes, such as "int8", in the place of torch's dtypes."""

import pytest
import torch
from torch import nn

import tcgemm
from tcgemm import dtypes

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
