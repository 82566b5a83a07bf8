"""A tensor on meta beside tensors with values is refused by every operator and every layer.

Nobody would write the result of such a call, and a model that was loaded only in part makes it. The
sentences about two real devices are in test_errors.py.
"""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import tcgemm

from support.error_asserts import error_message
from support.operator_calls import CALLS, IDS, ROWS, WITH_OUT, K, M, N, f32, operator_call, result


def message(function, first="cpu", second="meta"):
    text = error_message(function)
    assert f"is on {first}" in text and f"is on {second}" in text, text
    assert text.startswith("tcgemm"), text
    return text


@pytest.mark.parametrize("call", CALLS)
def test_all_on_meta(call):
    op, tensors, options = operator_call(call, device="meta")
    results = op(**tensors, **options)
    results = results if isinstance(results, tuple) else (results,)
    assert all(result.is_meta for result in results)


@pytest.mark.parametrize("call, name", ROWS, ids=IDS)
def test_one_on_meta(call, name):
    op, tensors, options = operator_call(call, name)
    assert "has no values on meta" in message(lambda: op(**tensors, **options))


@pytest.mark.parametrize("call, name", ROWS, ids=IDS)
def test_one_with_values(call, name):
    op, tensors, options = operator_call(call, name, device="meta", other="cpu")
    message(lambda: op(**tensors, **options))


@pytest.mark.parametrize("call", WITH_OUT)
@pytest.mark.parametrize("device, other", [("cpu", "meta"), ("meta", "cpu")])
def test_out(call, device, other):
    op, tensors, options = operator_call(call, device=device)
    message(lambda: op.out(**tensors, **options, out=result(call, other)))
    op.out(**tensors, **options, out=result(call, device))


@pytest.mark.parametrize("call, name", ROWS, ids=IDS)
@pytest.mark.parametrize("device, other", [("cpu", "meta"), ("cuda:0", "cpu")])
def test_under_fake_tensor_mode(call, name, device, other):
    """Two real devices, too: a trace would end in a graph that fails."""
    with FakeTensorMode():
        op, tensors, options = operator_call(call, name, device=device, other=other)
        message(lambda: op(**tensors, **options), device, other)


@pytest.mark.parametrize("name", ["mm", "linear", "quantized_linear"])
def test_compiled(name):
    torch._dynamo.reset()
    op, tensors, options = operator_call(name)
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
        assert "has no values on meta" in message(lambda: layer(x))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", LAYERS)
def test_layer_on_meta(kind, training):
    with torch.set_grad_enabled(training):
        assert LAYERS[kind]("meta").train(training)(f32(M, K, device="meta")).is_meta
