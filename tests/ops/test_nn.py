"""tcgemm.nn.Linear as a torch.nn.Linear, and swap_linear there and back."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

import tcgemm

from support import cases
from support.cases import reloaded
from support.gpu import missing, older


def pair(*arguments, **options):
    """The same layer of both libraries."""
    torch.manual_seed(0)
    torch_layer = nn.Linear(*arguments, **options)
    torch.manual_seed(0)
    return tcgemm.nn.Linear(*arguments, **options), torch_layer


def test_is_a_drop_in():
    for options in ({}, {"bias": False}, {"dtype": torch.float64}, {"device": "meta"}):
        layer, torch_layer = pair(8, 4, **options)
        assert isinstance(layer, nn.Linear)
        assert list(layer.state_dict()) == list(torch_layer.state_dict())
        if options.get("device") != "meta":
            torch.testing.assert_close(dict(layer.state_dict()), dict(torch_layer.state_dict()))
            x = torch.randn(2, 3, 8, dtype=layer.weight.dtype)
            torch.testing.assert_close(layer(x), torch_layer(x))
    torch_layer.to_empty(device="cpu").load_state_dict(nn.Linear(8, 4).state_dict())
    tcgemm.nn.Linear(8, 4).load_state_dict(torch_layer.state_dict(), strict=True)


@pytest.mark.parametrize(
    ("activation", "module"),
    [
        ("relu", nn.ReLU()),
        ("gelu", nn.GELU()),
        ("gelu_tanh", nn.GELU("tanh")),
        ("silu", nn.SiLU()),
    ],
)
def test_fused_activation_trains_as_two_modules(activation, module):
    layer, torch_layer = pair(8, 4, dtype=torch.float64)
    layer.activation = activation
    x = torch.randn(5, 8, dtype=torch.float64)
    layer(x).square().sum().backward()
    module(torch_layer(x)).square().sum().backward()
    torch.testing.assert_close(layer(x), module(torch_layer(x)))
    torch.testing.assert_close(layer.weight.grad, torch_layer.weight.grad)
    torch.testing.assert_close(layer.bias.grad, torch_layer.bias.grad)


def test_activation_is_keyword_only_shown_and_checked():
    with pytest.raises(TypeError):
        tcgemm.nn.Linear(8, 4, True, None, None, "relu")
    layer = tcgemm.nn.Linear(8, 4, activation="gelu")
    assert repr(layer) == "Linear(in_features=8, out_features=4, bias=True, activation=gelu)"
    assert repr(tcgemm.nn.Linear(8, 4)) == "Linear(in_features=8, out_features=4, bias=True)"
    with pytest.raises(RuntimeError, match='activation is "tanh"'):
        tcgemm.nn.Linear(8, 4, activation="tanh")(torch.randn(2, 8))


def test_copies_saves_and_conversions():
    layer = tcgemm.nn.Linear(8, 4, activation="silu")
    x = torch.randn(3, 8)
    for other in cases.copies(layer):
        assert type(other) is tcgemm.nn.Linear
        assert torch.equal(other(x), layer(x))
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        converted = copy.deepcopy(layer).to(dtype)
        assert converted(x.to(dtype)).dtype is dtype
    assert copy.deepcopy(layer).half()(x.half()).dtype is torch.float16
    nn.Linear(8, 4).load_state_dict(reloaded(layer.state_dict()))


class Block(nn.Module):
    """Layers that can be swapped beside layers that cannot."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.attention = nn.MultiheadAttention(16, 2)
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(16, 16))
        self.shared = self.first
        self.inner = nn.Sequential(nn.Linear(16, 16, bias=False), nn.ReLU(), nn.Linear(16, 4))
        self.complex = nn.Linear(4, 4, dtype=torch.complex64)
        self.patched = nn.Linear(4, 4)
        self.patched.forward = lambda x: x
        self.layer = tcgemm.nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(self.patched(self.inner(self.normed(self.first(x)))))


def test_swap_there_and_back():
    torch.manual_seed(0)
    model = Block()
    calls = []
    model.first.register_forward_hook(lambda *_: calls.append("hook"))
    model.inner[0].eval()
    before = {name: (module, vars(module).copy()) for name, module in model.named_modules()}
    parameters = dict(model.named_parameters())
    classes = {name: type(module) for name, module in model.named_modules()}
    x = torch.randn(5, 8)
    expected = model(x)

    report = tcgemm.swap_linear(model, filter_fn=lambda module, name: name != "inner.2")
    assert report.swapped == ["first", "attention", "attention.out_proj", "inner.0"]
    assert type(model.first) is type(model.shared) is tcgemm.nn.Linear
    assert report.skipped == {
        "normed": "is parametrized",
        "inner.2": "filter_fn is false for it",
        "complex": "has weights of torch.complex64; layers of tcgemm have torch.float16, "
        "torch.bfloat16, torch.float32, torch.float64",
        "patched": "has a forward of its own",
        "layer": "is a tcgemm.nn.Linear already",
    }
    text = str(report)
    assert (
        "4 swapped, 5 skipped" in text and "  skipped  inner.2: filter_fn is false for it" in text
    )
    torch.testing.assert_close(model(x), expected)
    assert calls == ["hook", "hook"]
    assert all(parameters[name] is p for name, p in model.named_parameters())

    for _ in range(2):
        report.undo()  # the second time does nothing
        assert {name: type(module) for name, module in model.named_modules()} == classes
    for name, module in model.named_modules():
        assert module is before[name][0]
        assert vars(module) == before[name][1]
    assert torch.equal(model(x), expected)


def test_swapping_the_model_itself():
    layer = nn.Linear(4, 4)
    report = tcgemm.swap_linear(layer)
    assert report.swapped == [""] and "(the model)" in str(report)
    assert type(layer) is tcgemm.nn.Linear
    assert repr(layer) == "Linear(in_features=4, out_features=4, bias=True)"
    report.undo()
    assert type(layer) is nn.Linear


def test_an_optimizer_made_before_the_swap_trains_after_it():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(16, 8), torch.randn(16, 1)
    tcgemm.swap_linear(model)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_undo_leaves_what_was_exchanged_meanwhile():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    report = tcgemm.swap_linear(model)
    child = model[0]
    model[0] = nn.Identity()
    report.undo()
    assert type(child) is nn.Linear and type(model[0]) is nn.Identity


def test_pruned_and_compiled_models_are_swapped():
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2))
    prune.l1_unstructured(model[0], "weight", 0.5)
    x = torch.randn(3, 8)
    expected = model(x)
    compiled = torch.compile(model, backend="aot_eager")
    compiled(x)
    assert tcgemm.swap_linear(compiled).swapped == ["_orig_mod.0", "_orig_mod.1"]
    torch.testing.assert_close(compiled(x), expected)
    torch.testing.assert_close(model(x), expected)


@pytest.mark.gpu
def test_float32_on_cuda_is_swapped_where_it_has_a_kernel():
    model = nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 4).half()).cuda()
    report = tcgemm.swap_linear(model)
    if missing("sm90") or older("sm90"):
        assert report.swapped == ["1"]
        assert "no kernel of this build multiplies f32" in report.skipped["0"]
    else:
        assert report.swapped == ["0", "1"]
    report.undo()
    torch.set_float32_matmul_precision("high")
    try:
        report = tcgemm.swap_linear(model)
    finally:
        torch.set_float32_matmul_precision("highest")
    assert report.swapped == ["0", "1"]
    report.undo()
    tcgemm.swap_linear(model[1])
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert tcgemm.swap_linear(model).swapped == ["0"]
        assert model[0](torch.randn(2, 8, device="cuda")).dtype is torch.bfloat16
