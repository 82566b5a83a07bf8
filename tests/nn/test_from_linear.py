"""from_linear of every layer that replaces a torch.nn.Linear."""

import inspect

import pytest
import torch
from torch import nn

import tcgemm

LAYERS = (
    tcgemm.nn.Linear,
    tcgemm.nn.QuantLinear,
    tcgemm.nn.PackedLinear,
    tcgemm.nn.Float8Linear,
    tcgemm.nn.SparseLinear24,
)


@pytest.mark.parametrize("layer", LAYERS)
def test_a_new_layer_leaves_the_linear_layer_as_it_is(layer):
    linear = tcgemm.nn.Linear(128, 32, activation="relu").bfloat16().eval()
    before = {name: tensor.clone() for name, tensor in linear.state_dict().items()}
    converted = layer.from_linear(linear)
    assert type(converted) is layer and converted.activation == "relu" and not converted.training
    assert torch.equal(converted.bias, linear.bias) and converted.bias is not linear.bias
    x = torch.randn(4, 128).bfloat16()
    swapped = tcgemm.swap_linear(nn.Sequential(linear), to=layer)
    assert torch.equal(converted(x), linear(x))
    swapped.undo()
    assert all(torch.equal(linear.state_dict()[name], tensor) for name, tensor in before.items())


@pytest.mark.parametrize("layer", LAYERS)
def test_other_modules_are_refused(layer):
    with pytest.raises(TypeError, match=r"from_linear: linear must be a torch.nn.Linear"):
        layer.from_linear(nn.ReLU())


@pytest.mark.parametrize("layer", LAYERS)
def test_the_arguments_have_one_order(layer):
    names = list(inspect.signature(layer.from_linear).parameters)
    assert names[0] == "linear" and names[-2:] == ["batch_invariant", "constant_weights"]


def test_parameters_are_copies_of_the_same_dtype():
    linear = nn.Linear(64, 32, bias=False).bfloat16()
    linear.weight.requires_grad_(False)
    for layer in (tcgemm.nn.Linear, tcgemm.nn.Float8Linear):
        weight = layer.from_linear(linear).weight
        assert torch.equal(weight, linear.weight) and not weight.requires_grad
        assert weight.data_ptr() != linear.weight.data_ptr()


def test_delayed_scaling_starts_anew():
    layer = tcgemm.nn.Float8Linear.from_linear(nn.Linear(64, 32), scaling="delayed", history=4)
    assert layer.amax_history.shape == (3, 4) and layer.scales.device == layer.weight.device
    with pytest.raises(RuntimeError, match="batch_invariant is True"):
        tcgemm.nn.Float8Linear.from_linear(tcgemm.nn.Linear(64, 32, batch_invariant=True))
