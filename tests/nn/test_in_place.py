"""Operators that change the result of a layer in place give what the out-of-place ones give."""

import operator

import pytest
import torch
from torch import nn

import tcgemm

MODULES = {
    "ReLU": nn.ReLU,
    "ReLU6": nn.ReLU6,
    "Hardswish": nn.Hardswish,
    "Hardsigmoid": nn.Hardsigmoid,
    "Hardtanh": nn.Hardtanh,
    "SiLU": nn.SiLU,
    "Mish": nn.Mish,
    "ELU": nn.ELU,
    "SELU": nn.SELU,
    "CELU": nn.CELU,
    "LeakyReLU": nn.LeakyReLU,
    "RReLU": nn.RReLU,
    "Threshold": lambda inplace: nn.Threshold(0.1, 0.0, inplace),
    "Dropout": lambda inplace: nn.Dropout(0.5, inplace),
    "AlphaDropout": lambda inplace: nn.AlphaDropout(0.5, inplace),
    "+": lambda inplace: lambda y: (operator.iadd if inplace else operator.add)(y, 1.5),
    "*": lambda inplace: lambda y: (operator.imul if inplace else operator.mul)(y, 1.5),
}


def linear(activation, dtype=torch.float32):
    return tcgemm.nn.Linear(64, 64, dtype=dtype, activation=activation)


def float8(activation, scaling):
    return tcgemm.nn.Float8Linear(64, 64, activation=activation, scaling=scaling)


def packed(activation):
    return tcgemm.nn.PackedLinear.from_linear(linear(activation, torch.bfloat16), group_size=64)


LAYERS = {
    "Linear": linear,
    "Float8Linear": lambda activation: float8(activation, "current"),
    "Float8Linear-delayed": lambda activation: float8(activation, "delayed"),
    "QuantLinear": lambda activation: tcgemm.nn.QuantLinear.from_linear(linear(activation)),
    "PackedLinear": packed,
    "SparseLinear24": lambda activation: tcgemm.nn.SparseLinear24.from_linear(linear(activation)),
    "SparseLinear24-learns": lambda activation: tcgemm.nn.SparseLinear24.from_linear(
        linear(activation), learns=True
    ),
}


def results(layer, then, *shape):
    """The result, and the gradients of x and of the Parameters."""
    torch.manual_seed(1)
    dtype = torch.bfloat16 if isinstance(layer, tcgemm.nn.PackedLinear) else torch.float32
    x = torch.randn(*shape, 64, dtype=dtype, requires_grad=True)
    layer.zero_grad()
    y = layer(x, x, x)[0] if isinstance(layer, nn.MultiheadAttention) else layer(x)
    y = then(y)
    (y * torch.randn(y.shape)).sum().backward()
    gradients = [p.grad for p in layer.parameters() if p.requires_grad]
    return [y.detach(), x.grad, *gradients]


def assert_same(layer, name, *shape):
    expected = results(layer, MODULES[name](inplace=False), *shape)
    found = results(layer, MODULES[name](inplace=True), *shape)
    # ELU in place computes its gradient from the rounded result.
    error = 0.05 if found[0].dtype is torch.bfloat16 else 1e-5
    torch.testing.assert_close(found, expected, rtol=error, atol=error)


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("layer", LAYERS)
def test_modules_in_place(layer, name):
    for activation in (None, "gelu"):
        made = LAYERS[layer](activation)
        assert_same(made, name, 10)
        assert_same(made, name, 2, 5)


@pytest.mark.parametrize("name", MODULES)
def test_layers_without_activation(name):
    assert_same(tcgemm.nn.MultiheadAttention(64, 4), name, 2, 5)
    assert_same(tcgemm.nn.Conv1D(64, 64), name, 2, 5)


@pytest.mark.parametrize("layer", LAYERS)
def test_relu_inside_refuses_as_torch_does(layer):
    """The backward of relu reads its result, which must not change: torch raises, too."""
    in_place = nn.ReLU6(inplace=True)
    for made in (nn.Sequential(nn.Linear(64, 64), nn.ReLU()), LAYERS[layer]("relu")):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            results(made, in_place, 2, 5)


@pytest.mark.parametrize("scaling", ["current", "delayed"])
def test_float8_layers_compiled(scaling):
    layer = float8(None, scaling)
    expected = results(layer, nn.ReLU(), 2, 5)
    compiled = torch.compile(nn.Sequential(layer, nn.ReLU(inplace=True)), backend="aot_eager")
    torch.testing.assert_close(results(compiled, nn.Identity(), 2, 5), expected)
