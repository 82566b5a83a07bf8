"""Jagged NestedTensors in linear and in the layers, beside torch.nn.Linear."""

import pytest
import torch
import torch.nn.functional as F

import tcgemm

from support.error_asserts import error_message

LENGTHS = (3, 5, 1)
WEIGHT, BIAS = torch.randn(8, 16), torch.randn(8)


def jagged(*shape, lengths=LENGTHS, requires_grad=False, seed=0):
    generator = torch.Generator().manual_seed(seed)
    parts = [torch.randn(length, *shape, generator=generator) for length in lengths]
    return torch.nested.nested_tensor(parts, layout=torch.jagged, requires_grad=requires_grad)


def gradients(function):
    x = jagged(16, requires_grad=True)
    leaves = [tensor.clone().requires_grad_() for tensor in (WEIGHT, BIAS)]
    out = function(x, *leaves)
    out.values().square().sum().backward()
    return out, [x.grad.values(), *(leaf.grad for leaf in leaves)]


def test_under_compile():
    x = jagged(16)
    for function in (
        lambda x: tcgemm.linear(x, WEIGHT, BIAS, scale_a=torch.tensor(2.0)),
        lambda x: tcgemm.quantized_linear(x, WEIGHT, BIAS),
    ):
        compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
        assert torch.equal(compiled(x).values(), function(x).values())


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_linear_and_its_gradients_as_torchs(compiled):
    linear = tcgemm.linear
    if compiled:
        linear = torch.compile(linear, backend="aot_eager", fullgraph=True)
    out, grads = gradients(linear)
    expected_out, expected = gradients(F.linear)
    assert out.is_nested and out.layout is torch.jagged
    assert [part.shape for part in out.unbind()] == [(length, 8) for length in LENGTHS]
    torch.testing.assert_close(out.values(), expected_out.values())
    for g, e in zip(grads, expected, strict=True):
        torch.testing.assert_close(g, e)


def test_results_have_the_lengths_of_x():
    x = jagged(16)
    out = tcgemm.linear(x, WEIGHT, BIAS)
    assert (out + F.linear(x, WEIGHT)).shape == out.shape
    assert tcgemm.linear(jagged(2, 16), WEIGHT).shape[2:] == (2, 8)
    longer = torch.nested.narrow(
        torch.randn(2, 6, 16), 1, torch.tensor([0, 1]), torch.tensor([3, 4]), layout=torch.jagged
    )
    out = tcgemm.linear(longer, WEIGHT)
    for part, rows in zip(out.unbind(), longer.unbind(), strict=True):
        torch.testing.assert_close(part, F.linear(rows, WEIGHT))


def test_the_epilogue():
    x, residual = jagged(16), jagged(8, seed=1)
    residual = torch.nested.nested_tensor_from_jagged(residual.values(), x.offsets())
    result = tcgemm.linear(x, WEIGHT, BIAS, activation="relu", residual=residual, alpha=0.5)
    expected = torch.relu(0.5 * x.values() @ WEIGHT.t() + BIAS) + residual.values()
    torch.testing.assert_close(result.values(), expected)
    torch.testing.assert_close(
        tcgemm.linear(x, WEIGHT, residual=BIAS).values(), x.values() @ WEIGHT.t() + BIAS
    )
    scaled, amax = tcgemm.linear(x, WEIGHT, scale_a=torch.tensor(2.0), amax=True)
    torch.testing.assert_close(scaled.values(), 2 * x.values() @ WEIGHT.t())
    torch.testing.assert_close(amax, scaled.values().abs().max())
    prepared = tcgemm.linear(x, tcgemm.prepare(WEIGHT))
    torch.testing.assert_close(prepared.values(), x.values() @ WEIGHT.t())


@pytest.mark.parametrize(
    "layer",
    [tcgemm.nn.Linear, tcgemm.nn.QuantLinear, tcgemm.nn.SparseLinear24, "learning"],
    ids=str,
)
def test_layers(layer):
    options = {"learns": True} if layer == "learning" else {}
    model = torch.nn.Sequential(torch.nn.Linear(16, 8))
    to = tcgemm.nn.SparseLinear24 if layer == "learning" else layer
    tcgemm.swap_linear(model, to=to, **options)
    x = jagged(16, requires_grad=True)
    out = model(x)
    torch.testing.assert_close(out.values(), model(x.values()))
    out.values().sum().backward()
    assert x.grad.values().shape == (sum(LENGTHS), 16)
    with torch.no_grad():
        model.eval()
        torch.testing.assert_close(model(x).values(), model(x.values()))


def test_quantized_linear():
    x = jagged(16)
    result = tcgemm.quantized_linear(x, WEIGHT, BIAS, activation="gelu")
    expected = tcgemm.quantized_linear(x.values(), WEIGHT, BIAS, activation="gelu")
    assert result.is_nested and torch.equal(result.values(), expected)


def test_autocast():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert tcgemm.linear(jagged(16), WEIGHT).dtype is torch.bfloat16


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda x: tcgemm.linear(x.transpose(1, 2), WEIGHT), "the ragged dimension of x is its la"),
        (
            lambda x: tcgemm.linear(x, WEIGHT, residual=jagged(8, lengths=(5, 3, 1))),
            "residual has other lengths, but x is a jagged NestedTensor",
        ),
        (
            lambda x: tcgemm.linear(x, WEIGHT, residual=torch.ones(9, 8)),
            "residual is dense, of shape (9, 8), but x is a jagged NestedTensor; pass a NestedTen",
        ),
        (
            lambda x: tcgemm.linear(x, WEIGHT, scale_a=torch.ones(9, 1)),
            "scale_a is dense, of shape (9, 1), but x is a jagged NestedTensor",
        ),
        (
            lambda x: tcgemm.linear(x, WEIGHT, out=torch.empty(9, 8)),
            "x is a nested tensor, but every operand must be a dense, strided tensor",
        ),
        (
            lambda x: tcgemm.linear(torch.nested.nested_tensor(list(x.unbind())), WEIGHT),
            "x is a nested tensor, but every operand must be a dense, strided tensor",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_what_is_refused(call, sentence):
    assert error_message(lambda: call(jagged(16))).startswith(f"tcgemm.linear: {sentence}")
