"""Layers with constant_weights on a GPU: results in chains, graphs, streams and after writes.

The fault that these tests find: a kernel loads a weight early that the kernel before it writes.
"""

import pytest
import torch

import tcgemm
from tcgemm.nn import Conv1D, Linear, PackedLinear, QuantLinear, SparseLinear24

from support.cases import BF16, F32, graph_of

pytestmark = [pytest.mark.gpu, pytest.mark.sm90]
K = 2048
TIMES = 300


def dense(dtype=BF16):
    return torch.nn.Linear(K, K, device="cuda", dtype=dtype)


LAYERS = {
    "bf16": lambda: Linear.from_linear(dense()),
    "float32": lambda: Linear.from_linear(dense(F32)),
    "e4m3": lambda: QuantLinear.from_linear(dense()),
    "int8": lambda: QuantLinear.from_linear(dense(), torch.int8),
    "2:4": lambda: SparseLinear24.from_linear(dense()),
    "2:4 learns": lambda: SparseLinear24.from_linear(dense(), learns=True),
    "int4": lambda: PackedLinear.from_linear(dense()),
    "Conv1D": lambda: Conv1D(K, K).to("cuda", BF16),
}
every_layer = pytest.mark.parametrize("name", LAYERS)
few_rows = pytest.mark.parametrize("rows", [1, 16, 64, 300])


def weight_of(layer):
    if isinstance(layer, QuantLinear):
        return layer._buffers["weight"]
    if isinstance(layer, PackedLinear):
        return layer.codes
    if isinstance(layer, SparseLinear24) and not layer.learns:
        return layer.weight.values
    return layer.weight


def pair(name, rows):
    """A layer with constant_weights, two weights of it, x, and the results of both."""
    layer = LAYERS[name]().eval().requires_grad_(False)
    x = torch.randn(rows, K, device="cuda", dtype=F32 if name == "float32" else BF16)
    weights, results = [weight_of(layer).clone(), weight_of(LAYERS[name]()).detach().clone()], []
    for weight in weights:
        weight_of(layer).copy_(weight)
        for _ in range(3):
            result = layer(x)
        results.append(result)
        torch.cuda.synchronize()
    assert not torch.equal(*results)
    layer.constant_weights = True
    return layer, weights, x, results


@every_layer
@few_rows
@torch.no_grad()
def test_a_write_that_torch_counts(name, rows):
    layer, weights, x, expected = pair(name, rows)
    for i in range(TIMES):
        weight_of(layer).copy_(weights[i % 2])
        for _ in range(i % 3 + 1):
            assert torch.equal(layer(x), expected[i % 2])


@every_layer
@few_rows
@torch.no_grad()
def test_a_chain(name, rows):
    """Each layer reads what the one before has written."""
    layers = [LAYERS[name]().eval().requires_grad_(False) for _ in range(3)]
    x = torch.randn(rows, K, device="cuda", dtype=F32 if name == "float32" else BF16)

    def run():
        y = x
        for layer in layers:
            y = layer(y.sign())
        return y

    for _ in range(3):
        expected = run()
    torch.cuda.synchronize()
    with tcgemm.constant_weights(torch.nn.ModuleList(layers)):
        run()
        for _ in range(TIMES):
            assert torch.equal(run(), expected)
        graph, out = graph_of(run)
    for _ in range(TIMES):
        out.zero_()
        graph.replay()
        assert torch.equal(out, expected)


@every_layer
@few_rows
@torch.no_grad()
def test_writes_between_replays(name, rows):
    layer, weights, x, expected = pair(name, rows)
    layer(x)
    graph, out = graph_of(lambda: layer(x))
    for i in range(TIMES):
        weight_of(layer).copy_(weights[i % 2])
        if getattr(layer, "_form", None) is not None and layer._form.tensors:
            tcgemm.refresh_weights(layer)
        graph.replay()
        assert torch.equal(out, expected[i % 2])


@every_layer
@torch.no_grad()
def test_a_write_past_torch_where_the_gpu_is_idle(name):
    layer, weights, x, expected = pair(name, 4)
    for i in range(20):
        torch.from_dlpack(weight_of(layer).detach()).copy_(weights[i % 2])
        torch.cuda.synchronize()
        if getattr(layer, "_form", None) is not None and layer._form.tensors:
            tcgemm.refresh_weights(layer)
        for _ in range(3):
            assert torch.equal(layer(x), expected[i % 2])


@pytest.mark.parametrize("name", ["bf16", "e4m3", "2:4", "Conv1D"])
@torch.no_grad()
def test_compiled(name):
    torch._dynamo.reset()
    layer, weights, x, expected = pair(name, 4)
    compiled = torch.compile(layer, fullgraph=True)
    weight_of(layer).copy_(weights[0])
    layer(x)
    for _ in range(TIMES):
        assert torch.equal(compiled(x), expected[0])
    for i in range(TIMES):
        weight_of(layer).copy_(weights[i % 2])
        assert torch.equal(compiled(x), expected[i % 2])


@torch.no_grad()
def test_streams():
    layer, weights, x, expected = pair("bf16", 4)
    side = torch.cuda.Stream()
    for i in range(TIMES):
        with torch.cuda.stream(side):
            weight_of(layer).copy_(weights[i % 2])
        torch.cuda.current_stream().wait_stream(side)
        for _ in range(3):
            assert torch.equal(layer(x), expected[i % 2])
        side.wait_stream(torch.cuda.current_stream())
