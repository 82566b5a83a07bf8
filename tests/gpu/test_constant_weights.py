"""Weights that a layer's kernel loads while the kernel before still runs.

The writers are the kernels that a wrong layer would overtake: tcgemm's own, which let the next
kernel start early, and torch's. Faults, and the tests that find them:

    the layer does not see a change      every writer, 1,000 times, eager and in graphs
    an operand's load is left out        the bits of tcgemm.linear, for tiles, waves and clusters
"""

import copy

import pytest
import torch

import tcgemm

from support.calls import early_calls

pytestmark = [pytest.mark.gpu, pytest.mark.sm90]
BF16 = torch.bfloat16
N, K = 4096, 2048
TIMES = 1000


def layer_of(n=N, k=K, **options):
    layer = tcgemm.nn.Linear(k, n, device="cuda", dtype=BF16, **options)
    return layer.eval().requires_grad_(False)


def whole(*shape):
    return torch.randint(-3, 4, shape, device="cuda").to(BF16)


@pytest.fixture
def early(monkeypatch):
    """The calls that load the weight early."""
    return early_calls(monkeypatch)


@pytest.mark.parametrize("activation", [None, "gelu"])
@pytest.mark.parametrize("m", [1, 16, 64, 100, 300, 2048])
def test_bits_are_those_of_linear(m, activation):
    for n, k in ((4096, 4096), (6144, 1000), (1000, 72), (40, 16384), (28672, 512), (8192, 8192)):
        x, w = torch.randn(m, k, device="cuda").to(BF16), torch.randn(n, k, device="cuda").to(BF16)
        bias = torch.randn(n, device="cuda").to(BF16)
        expected = tcgemm.linear(x, w, bias, activation=activation)
        for _ in range(3):
            found = torch.ops.tcgemm._constant_linear(x, w, bias, activation)
            assert torch.equal(found, expected), (n, k)


def test_a_weight_that_does_not_change_is_constant(early):
    layer, x = layer_of(), whole(16, K)
    expected = tcgemm.linear(x, layer.weight, layer.bias)
    with torch.no_grad():
        assert all(torch.equal(layer(x), expected) for _ in range(5))
    assert len(early) == 4


def test_other_calls_do_not_load_early(early):
    layer, x = layer_of(), whole(16, K)
    with torch.no_grad():
        layer(x[:0]), layer(x[:0])  # launch nothing
        layer(x)
    layer(x), layer.train()(x), layer.eval()
    with torch.no_grad():
        layer(x), copy.deepcopy(layer)(x)
        layer.prepare = False
        layer(x)
        layer.prepare = True
        with torch.autocast("cuda", dtype=torch.float16):
            layer(x)
        assert not early
        layer(x)
        assert len(early) == 1
        layer.float().bfloat16()(x)
        assert len(early) == 1


def writers(layer, values):
    """{name: a function that writes values[i] into the weight}."""
    weight, identity = layer.weight, torch.eye(K, device="cuda", dtype=BF16)
    weight.copy_(values[0])
    optimizer = torch.optim.SGD([weight.requires_grad_()], lr=1.0)
    weight.grad = torch.empty_like(weight)

    def step(i):
        weight.grad.copy_(weight).sub_(values[i])  # whole numbers: the step is exact
        optimizer.step()

    return {
        "copy_": lambda i: weight.copy_(values[i]),
        "tcgemm": lambda i: tcgemm.mm(values[i], identity, out=weight),
        "optimizer": step,
        "load_state_dict": lambda i: layer.load_state_dict({"weight": values[i]}),
    }


@pytest.mark.parametrize("writer", ["copy_", "tcgemm", "optimizer", "load_state_dict"])
def test_a_change_right_before_a_call_is_seen(writer, early):
    layer, x = layer_of(bias=False), whole(16, K)
    values = [whole(N, K) for _ in range(3)]
    expected = [tcgemm.linear(x, value) for value in values]
    write = writers(layer, values)[writer]
    wrong = torch.zeros((), device="cuda", dtype=torch.int64)
    with torch.no_grad():
        for time in range(TIMES):
            i = time % len(values)
            write(i)
            for _ in range(3):
                wrong += (layer(x) != expected[i]).sum()
    assert wrong.item() == 0
    assert len(early) == 2 * TIMES


def test_a_change_in_a_graph_is_seen(early):
    layer, x = layer_of(bias=False), whole(16, K)
    values, given = [whole(N, K) for _ in range(3)], torch.empty(N, K, device="cuda", dtype=BF16)
    expected = [tcgemm.linear(x, value) for value in values]
    write = writers(layer, [given])["tcgemm"]
    wrong = torch.zeros((), device="cuda", dtype=torch.int64)
    with torch.no_grad():
        layer(x), write(0)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            before = layer(x)
            write(0)
            found = [layer(x) for _ in range(3)]
        for time in range(TIMES):
            i = time % len(values)
            given.copy_(values[i])
            graph.replay()
            for each in found:
                wrong += (each != expected[i]).sum()
            if time > 0:
                wrong += (before != expected[(time - 1) % len(values)]).sum()
    assert wrong.item() == 0
    assert not early  # a captured call is not the last one that ran
