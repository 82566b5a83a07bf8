"""A SparseLinear24 that learns: weights with zeros, gradients after a load, and training that goes
on from a checkpoint."""

import copy

import pytest
import torch
from torch import nn

from tcgemm.nn import SparseLinear24

from support.cases import BF16

K, N = 64, 32


every_size = pytest.mark.parametrize(("k", "n"), [(K, N), (62, 30), (5, 7)])


def with_zeros(k, n):
    """A layer whose first weight had whole columns and rows of zeros, and that has others now."""
    linear = nn.Linear(k, n).bfloat16()
    linear.weight.data[:, ::3] = 0
    linear.weight.data[:8] = 0
    layer = SparseLinear24.from_linear(linear, learns=True, method="transposable")
    layer.weight.data.normal_()
    return layer


@every_size
@torch.no_grad()
def test_zeros_of_a_transposable_weight_stay_out_of_exported_models(k, n):
    layer, x = with_zeros(k, n).eval(), torch.randn(8, k).to(BF16)
    expected = layer(x)
    ones = layer.kept.mask(torch.ones(n, k, dtype=BF16))  # at positions of both
    assert torch.equal(ones.to_dense(), ones.t().to_dense().t())
    if (k, n) == (K, N):  # two in each row and column of a block
        blocks = ones.to_dense().unflatten(0, (-1, 4)).unflatten(2, (-1, 4))
        assert blocks.sum(1).eq(2).all() and blocks.sum(3).eq(2).all()
    assert torch.equal(layer.to_linear()(x), expected)
    assert torch.equal(torch.export.export(layer, (x,)).module()(x), expected)
    assert torch.equal(torch.jit.trace(layer, x)(x), expected)


@every_size
@torch.no_grad()
def test_a_layer_takes_its_own_state(k, n):
    layer, x = with_zeros(k, n), torch.randn(8, k).to(BF16)
    layer.weight[:, ::5] = 0
    other = SparseLinear24(k, n, dtype=BF16, learns=True, method="transposable")
    other.load_state_dict(layer.state_dict())
    for changed in (layer, other):
        assert torch.equal(changed.kept.metadata, layer.kept.metadata)
        changed.bias.zero_()
    weight = torch.randn(n, k).to(BF16)  # the zeros had positions, which the layer keeps
    layer.weight.copy_(weight)
    other.weight.copy_(weight)
    assert torch.equal(other.eval()(x), layer.eval()(x))


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("method", ["magnitude", "transposable"])
def test_a_load_before_the_backward_is_an_error(method, learns, trains):
    """As of torch.nn.Linear, also where only x has a gradient."""
    layer, other = (
        SparseLinear24(K, N, dtype=BF16, learns=True, method=method).train(trains) for _ in range(2)
    )
    layer.weight.requires_grad_(learns)
    x = torch.randn(8, K).to(BF16).requires_grad_()
    out = layer(x).float().sum()
    layer.load_state_dict(other.state_dict())
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(out, x)


def trained(steps, interruption=None):
    """A layer after some steps; before one of them it is made anew from its state."""

    def make():
        options = {"learns": True, "refresh_every": 3, "gradient": "straight_through"}
        layer = SparseLinear24(K, N, **options)
        return layer, torch.optim.SGD(layer.parameters(), 0.5)

    torch.manual_seed(0)
    layer, optimizer = make()
    for step in range(steps):
        if step == interruption:
            state = copy.deepcopy(layer.state_dict())
            layer, optimizer = make()
            layer.load_state_dict(state)
        torch.manual_seed(100 + step)
        layer(torch.randn(8, K)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return layer


def test_training_goes_on_from_a_state():
    expected = trained(8)
    for interruption in range(1, 8):
        layer = trained(8, interruption)
        assert torch.equal(layer.weight, expected.weight)
        assert torch.equal(layer.kept.metadata, expected.kept.metadata)
    state = expected.state_dict()
    assert state["weight.refresh"].tolist() == [7, 1]
    frozen = SparseLinear24(K, N)
    frozen.load_state_dict({name: part for name, part in state.items() if name != "weight"})
    assert "weight.refresh" not in frozen.state_dict()
