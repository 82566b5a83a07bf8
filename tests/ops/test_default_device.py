"""Results on the CPU are the same if torch's default device is another one, such as "meta"."""

import copy
import io
import pickle

import pytest
import torch

import tcgemm
from tcgemm import nn, packed

from support.error_asserts import error_message

CPU = {"device": "cpu"}
FORMATS = ("int4", "int8", "e4m3", "nf4", "fp4", "mxfp4", "nvfp4")
E4M3 = torch.float8_e4m3fn


def parts(value):
    """Every tensor and number of a result."""
    if isinstance(value, tcgemm.PackedWeight):
        return parts([value.dequantize(), *value.stored.parts])
    if isinstance(value, tcgemm.Prepared):
        return [value.weight, value.terms]
    if isinstance(value, tcgemm.SparseTensor24):
        return [value.values.detach(), value.metadata]
    if isinstance(value, dict):
        return parts([*value.values()])
    if isinstance(value, tuple | list):
        return [part for one in value for part in parts(one)]
    return [value.detach()] if isinstance(value, torch.Tensor) else [str(value)]


def same(first, second):
    if not isinstance(first, torch.Tensor):
        return first == second
    if (first.device, first.dtype, first.shape) != (second.device, second.dtype, second.shape):
        return False
    pair = [tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in (first, second)]
    return torch.equal(*pair)


def saved(value):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def dense(dtype=torch.float32):
    torch.manual_seed(1)
    return torch.nn.Linear(128, 48, device="cpu", dtype=dtype)


X = torch.linspace(-1, 1, 16 * 128, **CPU).view(16, 128)
W = torch.linspace(-1, 1, 48 * 128, **CPU).view(48, 128).sin()
INT8 = torch.randint(-8, 8, (16, 64), dtype=torch.int8, **CPU)


def gradients():
    linear = dense()
    result = tcgemm.linear(X, linear.weight, linear.bias, activation="silu")
    return torch.autograd.grad(result.square().sum(), [*linear.parameters()])


def packed_layer(format):
    layer = nn.PackedLinear.from_linear(dense(), format)
    new = nn.PackedLinear(128, 48, format=format, device="cpu")
    new.load_state_dict(layer.state_dict())
    results = [copy.deepcopy(new)(X.half()), new.weight.to_dense(), new.to_linear().weight]
    new.load_state_dict(dense().state_dict())
    return [*results, new(X.half()), new.state_dict()]


def used(make, dtype=torch.float32, train=False):
    """A layer after its usual life: calls, states, copies, pickles, conversions."""
    layer, x = make(dense(dtype)).train(train), X.to(dtype)
    results = [layer(x), layer(x)]
    if train:
        results[-1].float().square().mean().backward()
        results += [parameter.grad for parameter in layer.parameters()]
    other = pickle.loads(pickle.dumps(layer))
    other.load_state_dict(copy.deepcopy(layer).state_dict())
    tcgemm.refresh_weights(other)
    return [*results, other(x), other.state_dict(), other.bfloat16()(x.bfloat16())]


def swapped(**options):
    model = torch.nn.Sequential(dense(torch.bfloat16))
    tcgemm.swap_linear(model, **options)
    return model(X.bfloat16())


def in_use():
    with tcgemm.use():
        return torch.nn.functional.linear(X, W), torch.mm(X, W.t())


def bitsandbytes():
    state = {"absmax": torch.ones(4, **CPU), "quant_map": torch.arange(16.0, **CPU)}
    facts = b'{"quant_type": "fp4", "blocksize": 64, "dtype": "float16", "shape": [2, 128]}'
    state["quant_state.bitsandbytes__fp4"] = torch.tensor(list(facts), dtype=torch.uint8, **CPU)
    return packed.from_bitsandbytes(torch.full((128, 1), 33, dtype=torch.uint8, **CPU), state)


def words(*shape):
    return torch.full(shape, 3, dtype=torch.int32, **CPU)


def gptq():
    scales, g_idx = torch.ones(2, 32, **CPU), torch.arange(128, **CPU) // 64
    return packed.from_gptq(words(16, 32), scales, words(2, 4), g_idx)


def mxfp4():
    blocks, scales = torch.ones(8, 2, 16, **CPU).byte(), torch.ones(8, 2, **CPU).byte()
    return packed.from_mxfp4(blocks, scales)


def emulated(dtype=torch.float16, rows=16, **options):
    return tcgemm.emulate.mm(X[:rows].to(dtype), W.to(dtype).t(), **options)


def one_instruction():
    a, b = X[:, :16].half(), W[:8, :16].half().t()
    return tcgemm.emulate.mma(a, b, instruction="mma.m16n8k16.f32.f16.f16")


CALLS = {
    "mm": lambda: tcgemm.mm(X, W.t(), bias=W[:, 0].contiguous(), activation="gelu"),
    "highest": lambda: tcgemm.mm(X, W.t(), precision="highest"),
    "gradients": gradients,
    "quantize": lambda: [tcgemm.quantize(W, E4M3, name) for name in ("row", "tensor", "128x128")],
    "quantized_linear": lambda: tcgemm.quantized_linear(X, W),
    "dequantize": lambda: tcgemm.dequantize(*tcgemm.quantize(W, torch.int8)),
    "prune24": lambda: [tcgemm.prune24(W), tcgemm.prune24(W.half(), method="transposable")],
    "compress24": lambda: saved(tcgemm.compress24(W.to(E4M3), prune=True)),
    "sparse linear": lambda: tcgemm.linear(X.half(), tcgemm.compress24(W.half(), prune=True)),
    "prepare": lambda: saved(tcgemm.prepare(W)),
    "Int4Tensor": lambda: tcgemm.linear(*[tcgemm.Int4Tensor.from_int8(INT8)] * 2),
    "binary_mm": lambda: tcgemm.binary_mm(
        tcgemm.BinaryTensor.from_bool(X > 0), tcgemm.BinaryTensor.from_bool(W > 0).t()
    ),
    "pack_weight": lambda: [tcgemm.pack_weight(W, name, method="mse") for name in FORMATS],
    "table": lambda: tcgemm.pack_weight(W, "table", 64, table=[float(i) for i in range(16)]),
    "zero points": lambda: saved(tcgemm.pack_weight(W, "int4", 64, zero_points=True)),
    "gptq": gptq,
    "awq": lambda: packed.from_awq(words(128, 4), torch.ones(2, 32, **CPU), words(2, 4)),
    "bitsandbytes": bitsandbytes,
    "mxfp4": mxfp4,
    **{f"PackedLinear {name}": lambda name=name: packed_layer(name) for name in FORMATS},
    "Linear": lambda: used(nn.Linear.from_linear, train=True),
    "QuantLinear": lambda: used(nn.QuantLinear.from_linear),
    "Float8Linear": lambda: used(nn.Float8Linear.from_linear, train=True),
    "Float8Linear delayed": lambda: used(
        lambda linear: nn.Float8Linear.from_linear(linear, scaling="delayed"), train=True
    ),
    "SparseLinear24": lambda: used(nn.SparseLinear24.from_linear),
    "SparseLinear24 learns": lambda: used(
        lambda linear: nn.SparseLinear24.from_linear(linear, learns=True, refresh_every=2),
        torch.bfloat16,
        train=True,
    ),
    "swap_linear": lambda: [swapped(to=nn.QuantLinear), swapped(to=nn.PackedLinear, format="nf4")],
    "use": in_use,
    "explain": lambda: str(tcgemm.explain(X, W.t())),
    "emulate": lambda: [emulated(), emulated(rows=1), emulated(rows=0), emulated(E4M3)],
    "emulate float32": lambda: [emulated(torch.float32, precision="highest")],
    "emulate packed": lambda: tcgemm.emulate.mm(X.half(), tcgemm.pack_weight(W, "nf4").t()),
    "emulate mma": one_instruction,
}


@pytest.mark.parametrize("name", CALLS)
def test_results_are_the_same(name):
    torch.manual_seed(0)
    expected = parts(CALLS[name]())
    torch.manual_seed(0)
    with torch.device("meta"):
        other = parts(CALLS[name]())
    assert len(expected) == len(other) > 0
    assert all(map(same, expected, other))


def test_new_layers_are_on_the_default_device():
    with torch.device("meta"):
        for kind in (nn.Linear, nn.QuantLinear, nn.PackedLinear, nn.Float8Linear, nn.Conv1D):
            tensors = kind(128, 48).state_dict().values()
            assert all(tensor.is_meta for tensor in tensors)


def test_the_emulator_refuses_tensors_without_values():
    a, b = X[:, :16].half(), W[:8, :16].half().t()
    name = "mma.m16n8k16.f32.f16.f16"
    assert error_message(
        lambda: tcgemm.emulate.mma(a.to("meta"), b, instruction=name), ValueError
    ) == ("a is on meta, so it has no values; pass a tensor of another device.")
    assert error_message(lambda: tcgemm.emulate.mm(a.to("meta"), b.to("meta")), ValueError) == (
        "a is on meta, so it has no values; pass a tensor of another device."
    )
