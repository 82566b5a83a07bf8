"""A tensor on meta beside tensors with values is refused by every operator and every layer.

Nobody would write the result of such a call, and a model that was loaded only in part makes it. The
sentences about two real devices are in test_errors.py.
"""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import tcgemm

from support.error_asserts import error_message

OPS = torch.ops.tcgemm
M, N, K = 4, 8, 16


def f32(*shape, device="cpu"):
    return torch.ones(shape, device=device)


def s8(*shape, device="cpu"):
    return torch.ones(shape, dtype=torch.int8, device=device)


def u8(*shape, device="cpu"):
    return torch.zeros(shape, dtype=torch.uint8, device=device)


def s32(*shape, device="cpu"):
    return torch.zeros(shape, dtype=torch.int32, device=device)


EPILOGUE = {"bias": (f32, N), "residual": (f32, M, N)}
ADDENDS = {"c": (f32, M, N), **EPILOGUE}
PRODUCT = {"a": (f32, M, K), "b": (f32, K, N), **EPILOGUE}
SCALED = {
    **{"a": (s8, M, K), "b": (s8, K, N), "scale_a": (f32, M, 1), "scale_b": (f32, 1, N)},
    **ADDENDS,
    **{"zero_a": (s32, M, 1), "zero_b": (s32, 1, N), "scale_out": (f32,)},
}
QUANTIZED = {"x": (f32, M, K), "weight": (s8, N, K), "weight_scale": (f32, N, 1), **EPILOGUE}
SPARSE = {"a": (f32, M, K), "b": (f32, K // 2, N), "sparse_b": (u8, N, K // 16)}
# operator -> (its tensors by name: the function that makes each, and its shape; its options)
CALLS = {
    "mm": (PRODUCT, {}),
    "bmm": ({"a": (f32, 2, M, K), "b": (f32, 2, K, N), **EPILOGUE}, {}),
    "matmul": (PRODUCT, {}),
    "addmm": ({"c": (f32, M, N), **PRODUCT}, {}),
    "linear": ({"x": (f32, M, K), "weight": (f32, N, K), **EPILOGUE}, {}),
    "_gemm": ({**PRODUCT, "c": (f32, M, N)}, {}),
    "scaled_mm": (SCALED, {"out_dtype": torch.float32}),
    "scaled_mm_amax": (SCALED, {"out_dtype": torch.float32}),
    "scaled_mm sparse_b": (SPARSE, {"precision": "high"}),
    "scaled_mm prepared_b": (
        {"a": (f32, M, K), "b": (f32, K, N), "prepared_b": (u8, 0)},
        {},
    ),
    "_linear24": (
        {
            "weight": (f32, N, K // 2),
            "metadata": (u8, N, K // 16),
            "x": (f32, M, K),
            "bias": (f32, N),
        },
        {},
    ),
    "quantized_linear": (QUANTIZED, {"dtype": torch.int8, "granularity": "row"}),
    "decompress24": (
        {"values": (f32, N, K // 2), "metadata": (u8, N, K // 16)},
        {"k": K, "pattern": "1:2"},
    ),
    "gather24": ({"w": (f32, N, K), "metadata": (u8, N, K // 16)}, {"pattern": "1:2"}),
}
WITH_OUT = ("mm", "bmm", "matmul", "addmm", "linear", "_gemm", "scaled_mm")
ROWS = [(call, name) for call, (tensors, _) in CALLS.items() for name in tensors]
IDS = [f"{call}-{name}" for call, name in ROWS]


def made(call, odd=None, device="cpu", other="meta"):
    """(the operator, its tensors, its options); all tensors but `odd` are on `device`."""
    tensors, options = CALLS[call]
    return (
        getattr(OPS, call.split()[0]),
        {
            name: make(*shape, device=other if name == odd else device)
            for name, (make, *shape) in tensors.items()
        },
        options,
    )


def refused(function, first="cpu", second="meta"):
    text = error_message(function)
    assert f"is on {first}" in text and f"is on {second}" in text, text
    assert text.startswith("tcgemm"), text
    assert "meta" not in (first, second) or "no values on meta" in text, text


@pytest.mark.parametrize("call", CALLS)
def test_all_on_meta(call):
    op, tensors, options = made(call, device="meta")
    results = op(**tensors, **options)
    results = results if isinstance(results, tuple) else (results,)
    assert all(result.is_meta for result in results)


@pytest.mark.parametrize("call, name", ROWS, ids=IDS)
def test_one_on_meta(call, name):
    op, tensors, options = made(call, name)
    refused(lambda: op(**tensors, **options))


@pytest.mark.parametrize("call, name", ROWS, ids=IDS)
def test_one_with_values(call, name):
    op, tensors, options = made(call, name, device="meta", other="cpu")
    refused(lambda: op(**tensors, **options))


@pytest.mark.parametrize("call", WITH_OUT)
@pytest.mark.parametrize("device, other", [("cpu", "meta"), ("meta", "cpu")])
def test_out(call, device, other):
    op, tensors, options = made(call, device=device)
    shape = (2, M, N) if call == "bmm" else (M, N)
    refused(lambda: op.out(**tensors, **options, out=f32(*shape, device=other)))
    op.out(**tensors, **options, out=f32(*shape, device=device))


@pytest.mark.parametrize("call, name", ROWS, ids=IDS)
@pytest.mark.parametrize("device, other", [("cpu", "meta"), ("cuda:0", "cpu")])
def test_under_fake_tensor_mode(call, name, device, other):
    """Two real devices, too: a trace would end in a graph that fails."""
    with FakeTensorMode():
        op, tensors, options = made(call, name, device=device, other=other)
        refused(lambda: op(**tensors, **options), device, other)


@pytest.mark.parametrize("name", ["mm", "linear", "quantized_linear"])
def test_compiled(name):
    torch._dynamo.reset()
    op, tensors, options = made(name)
    with pytest.raises(Exception, match="is on meta, but"):
        torch.compile(lambda b: op(**tensors | {"bias": b}, **options), backend="aot_eager")(
            f32(N, device="meta")
        )


LAYERS = {
    "Linear": lambda device: tcgemm.nn.Linear(K, N, device=device),
    "QuantLinear": lambda device: tcgemm.nn.QuantLinear(K, N, device=device),
    "SparseLinear24": lambda device: tcgemm.nn.SparseLinear24(K, N, device=device),
    "learning": lambda device: tcgemm.nn.SparseLinear24(K, N, device=device, learns=True),
}


def mixed(kind, part):
    """(a layer of which this part is on another device than the rest, x)"""
    layer = LAYERS[kind]("meta" if part in ("all", "all but bias") else "cpu")
    if "bias" in part:
        bias = f32(N, device="meta" if part == "bias" else "cpu")
        layer.bias = torch.nn.Parameter(bias)
    return layer, f32(M, K, device="meta" if part == "x" else "cpu")


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("part", ["all", "bias", "all but bias", "x"])
@pytest.mark.parametrize("kind", LAYERS)
def test_layer_partly_on_meta(kind, part, training):
    layer, x = mixed(kind, part)
    layer.train(training)
    with torch.set_grad_enabled(training):
        refused(lambda: layer(x))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", LAYERS)
def test_layer_on_meta(kind, training):
    with torch.set_grad_enabled(training):
        assert LAYERS[kind]("meta").train(training)(f32(M, K, device="meta")).is_meta
