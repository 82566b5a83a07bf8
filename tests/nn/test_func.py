"""torch.func over sparse layers, and layers without features."""

import warnings

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, jvp, stack_module_state, vmap

import tcgemm

X = torch.randn(6, 64)


@pytest.fixture(params=["frozen", "masked", "straight_through", "transposable"])
def layer(request):
    options = {"learns": request.param != "frozen"}
    if request.param == "straight_through":
        options["gradient"] = request.param
    source = nn.Linear(64, 64)
    if request.param == "transposable":
        source, options["method"] = source.half(), request.param
    return tcgemm.nn.SparseLinear24.from_linear(source, **options)


def assert_near(result, expected):
    error = 2e-2 if expected.dtype is torch.half else 1e-2  # float32 is multiplied as tf32
    expected = expected.to_dense() if hasattr(expected, "to_dense") else expected
    torch.testing.assert_close(result, expected, rtol=error, atol=error)


def parameters(layer):
    return {name: parameter.detach() for name, parameter in layer.named_parameters()}


def test_gradients_of_parameters(layer):
    own, x = parameters(layer), X.to(layer.bias.dtype)
    found = grad(lambda own: functional_call(layer, own, (x,)).pow(2).sum())(own)
    layer(x).pow(2).sum().backward()
    for name, parameter in layer.named_parameters():
        assert_near(found[name], parameter.grad)


def test_gradients_per_sample(layer):
    own, x = parameters(layer), X.to(layer.bias.dtype)

    def loss(own, x):
        return functional_call(layer, own, (x,)).pow(2).sum()

    found = vmap(grad(loss), in_dims=(None, 0))(own, x)
    for i, one in enumerate(x):
        expected = grad(loss)(own, one)
        for name in own:
            assert_near(found[name][i], expected[name])


def test_ensembles_and_tangents(layer):
    x = X.to(layer.bias.dtype)
    own, buffers = stack_module_state([layer, layer])
    found = vmap(lambda own: functional_call(layer, own, (x,)))(own)
    for one in found:
        assert_near(one, layer(x))
    _, tangent = jvp(lambda own: functional_call(layer, own, (x,)), *[(parameters(layer),)] * 2)
    if layer.learns and layer.gradient == "masked":  # it is linear in its parameters
        assert_near(tangent, layer(x).detach())
    with pytest.raises(RuntimeError, match="transforms the values of the sparse weight"):
        vmap(lambda *state: functional_call(layer, state, (x,)))(own, buffers)


LAYERS = {
    "Linear": lambda linear: tcgemm.nn.Linear.from_linear(linear),
    "Float8Linear": lambda linear: tcgemm.nn.Float8Linear.from_linear(linear, scaling="delayed"),
    "QuantLinear": lambda linear: tcgemm.nn.QuantLinear.from_linear(linear),
    "SparseLinear24": lambda linear: tcgemm.nn.SparseLinear24.from_linear(linear),
    "SparseLinear24-learns": lambda linear: tcgemm.nn.SparseLinear24.from_linear(
        linear, learns=True
    ),
    "PackedLinear": lambda linear: tcgemm.nn.PackedLinear.from_linear(linear, group_size=None),
    "Conv1D": lambda linear: tcgemm.nn.Conv1D(linear.out_features, linear.in_features).bfloat16(),
}


@pytest.mark.parametrize("shape", [(8, 0), (0, 8), (0, 0)])
@pytest.mark.parametrize("name", LAYERS)
def test_no_features(name, shape):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that it fills no weight
        linear = nn.Linear(*shape).bfloat16()
        layer = LAYERS[name](linear)
    x = torch.randn(3, shape[0], dtype=torch.bfloat16, requires_grad=True)
    y = layer(x)
    assert y.shape == (3, shape[1])
    y.sum().backward()
    assert x.grad.shape == x.shape and not x.grad.any()
    layer.load_state_dict(layer.state_dict())
    with torch.no_grad():
        assert_near(layer.eval()(x), y.detach())
    if name not in ("Conv1D", "SparseLinear24-learns"):
        options = {"group_size": None} if name == "PackedLinear" else {}
        model = nn.Sequential(linear)
        tcgemm.swap_linear(model, to=type(layer), **options)
        assert type(model[0]) is type(layer) and model(x).shape == y.shape


@pytest.mark.parametrize("scaling", ["current", "delayed"])
def test_float8_layers_of_jagged_tensors(scaling):
    layer = tcgemm.nn.Float8Linear(64, 32, scaling=scaling, activation="gelu")
    parts = [torch.randn(3, 64), torch.randn(5, 64)]
    x = torch.nested.nested_tensor(parts, layout=torch.jagged, requires_grad=True)
    y = layer(x)
    y.values().sum().backward()
    found = [x.grad.values(), layer.weight.grad, layer.bias.grad]
    layer.zero_grad()
    rows = torch.cat(parts).requires_grad_()
    expected = layer(rows)
    expected.sum().backward()
    assert torch.equal(y.values(), expected) and y.shape[0] == 2 and y.shape[2] == 32
    gradients = [rows.grad, layer.weight.grad, layer.bias.grad]
    assert all(map(torch.equal, found, gradients))
    with pytest.raises(RuntimeError, match="Float8Linear: x is a nested tensor, but x must be"):
        layer(torch.nested.nested_tensor(parts))
