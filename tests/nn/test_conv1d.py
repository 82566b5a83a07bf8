"""tcgemm.nn.Conv1D against transformers' layer of that name."""

import copy

import pytest
import torch
from torch import nn

import tcgemm

from support import cases

Theirs = pytest.importorskip("transformers.pytorch_utils").Conv1D


def pair():
    torch.manual_seed(1)
    plain = Theirs(12, 8)
    torch.manual_seed(1)
    return plain, tcgemm.nn.Conv1D(12, 8)


def test_is_a_drop_in():
    plain, layer = pair()
    assert list(layer.state_dict()) == list(plain.state_dict())
    torch.testing.assert_close(dict(layer.state_dict()), dict(plain.state_dict()))
    assert repr(layer) == repr(plain) and (layer.nf, layer.nx) == (12, 8)
    with torch.no_grad():
        layer.bias.normal_()
        plain.bias.copy_(layer.bias)
    for shape in ((8,), (3, 8), (2, 3, 8), (0, 8)):
        x = torch.randn(shape)
        if shape != (8,):
            torch.testing.assert_close(layer(x), plain(x))
        assert layer(x).shape == (*shape[:-1], 12)


def test_gradients():
    plain, layer = pair()
    x = torch.randn(5, 8, requires_grad=True)
    results = []
    for module in (layer, plain):
        x.grad = None
        module(x).square().sum().backward()
        results.append((x.grad, module.weight.grad, module.bias.grad))
    torch.testing.assert_close(*results)


def test_swap_there_and_back():
    layer, _ = pair()
    model = nn.Sequential(layer, nn.Linear(12, 4))
    x = torch.randn(5, 8)
    expected, before = model(x), vars(layer).copy()
    parameters = list(model.parameters())
    report = tcgemm.swap_linear(model)
    assert report.swapped == ["0", "1"] and report.reached == report.weights == 8 * 12 + 12 * 4
    assert type(layer) is tcgemm.nn.Conv1D
    assert all(one is other for one, other in zip(model.parameters(), parameters, strict=True))
    torch.testing.assert_close(model(x), expected)
    assert tcgemm.swap_linear(model).skipped["0"] == "is a tcgemm.nn.Conv1D already"
    for other in cases.copies(model):
        assert torch.equal(other(x), model(x))
        tcgemm.swap_linear(other, to=nn.Linear)
        assert type(other[0]) is Theirs and torch.equal(other(x), expected)
    report.undo()
    assert vars(layer) == before and type(layer) is Theirs
    assert torch.equal(model(x), expected)


def test_what_is_not_swapped():
    class Own(Theirs):
        pass

    model = nn.Sequential(Own(4, 4), Theirs(4, 4).to(torch.complex64), nn.Conv1d(4, 4, 1))
    assert tcgemm.swap_linear(model).skipped == {
        "0": "is a subclass of transformers' Conv1D (Own)",
        "1": "has weights of torch.complex64; layers of tcgemm have torch.float16, torch.bfloat16, "
        "torch.float32, torch.float64",
    }
    conv = nn.Sequential(tcgemm.nn.Conv1D(4, 4))
    report = tcgemm.swap_linear(conv, to=nn.Linear)
    assert "no class of transformers to go back to" in report.skipped["0"]
    report = tcgemm.swap_linear(nn.Sequential(Theirs(4, 4)), to=tcgemm.nn.SparseLinear24)
    assert str(report).endswith("not reached: 1 Conv1D (weight)")


@pytest.mark.parametrize("first", [None, tcgemm.nn.Linear], ids=["transformers", "tcgemm"])
def test_quantised(first):
    layer = Theirs(8, 8)  # of a square weight the transpose would load unnoticed
    with torch.no_grad():
        layer.weight.normal_()
        layer.bias.normal_()
    x, state = torch.randn(5, 8), layer.state_dict()
    expected, model = layer(x), nn.Sequential(layer)
    if first:
        tcgemm.swap_linear(model, to=first)
    before = vars(layer).copy()
    report = tcgemm.swap_linear(model, to=tcgemm.nn.QuantLinear, dtype=torch.int8)
    assert report.swapped == ["0"] and (report.reached, report.weights) == (64, 64)
    result = model(x)
    torch.testing.assert_close(result, expected, rtol=0.05, atol=0.1)
    for saved in (state, layer.state_dict()):
        other = copy.deepcopy(layer)
        other.weight.values.zero_()
        other.load_state_dict(saved)
        assert torch.equal(other(x), result)
    for other in cases.copies(model):
        assert type(other[0]) is tcgemm.nn.QuantConv1D and torch.equal(other(x), result)
        tcgemm.swap_linear(other, to=nn.Linear)
        assert type(other[0]) is Theirs and other[0].state_dict().keys() == state.keys()
        assert vars(other[0]).keys() == vars(Theirs(8, 8)).keys()
        torch.testing.assert_close(other(x), expected, rtol=0.05, atol=0.1)
    second = tcgemm.swap_linear(model, to=tcgemm.nn.QuantLinear)
    assert second.skipped == {"0": "is a tcgemm.nn.QuantConv1D already"}
    report.undo()
    assert vars(layer) == before
    torch.testing.assert_close(model(x), expected)


def test_compiles_in_one_graph():
    _, layer = pair()
    x = torch.randn(5, 8)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), layer(x))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_on_cuda(dtype):
    layer = Theirs(48, 64).to("cuda", dtype)
    x = torch.randn(10, 64, dtype=dtype, device="cuda")
    expected = layer(x)
    tcgemm.swap_linear(layer)
    torch.testing.assert_close(layer(x), expected, rtol=0.02, atol=0.02)
