"""The passes of the backward: sums over the rows, and derivatives of activations. The forward that
keeps the argument of its activation."""

import pytest
import torch
from torch.library import opcheck

import tcgemm
from tcgemm.ops.activations import activate

from support.cases import ACTIVATIONS as NAMES

OPS = torch.ops.tcgemm
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
# (rows, columns): whole and broken vectors, one column, many splits of rows, many column blocks
SHAPES = [(1, 1), (7, 3), (33, 8), (64, 257), (300, 520), (4099, 72), (2, 5000), (1025, 2112)]


def derivative(z, activation):
    """act'(z) in float64, by torch."""
    z = z.double().requires_grad_()
    with torch.enable_grad():
        out = activate(z, activation)
    return torch.autograd.grad(out, z, torch.ones_like(z))[0]


def assert_sums(sums, terms, dtype):
    """Is `sums` the sum of float64 terms over the rows, but for f32 sums and one rounding?"""
    assert sums.dtype is dtype and sums.shape == terms.shape[-1:]
    terms = terms[None] if terms.dim() == 1 else terms.flatten(0, -2)
    bound = terms.abs().sum(0) * 4e-6 + terms.sum(0).abs() * torch.finfo(dtype).eps + 1e-30
    excess = (sums.double() - terms.sum(0)).abs() / bound
    assert not (excess > 1).any(), float(excess.max())


def assert_close(result, expected, g, narrow):
    """Rounded once; the derivative may be off by an absolute 2e-6, since its terms cancel."""
    eps = torch.finfo(result.dtype).eps
    slack = 1e-5 if narrow else 2e-6
    bound = expected.abs() * (eps + slack) + g.double().abs() * 2e-6
    bound += torch.finfo(result.dtype).smallest_normal
    excess = (result.double() - expected).abs() / bound
    assert not (excess > 1).any(), float(excess.max())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sums_over_the_rows(shape, dtype, device):
    g = torch.randn(shape).to(device, dtype)
    for sum_dtype in DTYPES:
        assert_sums(OPS._sum_rows(g, sum_dtype), g.double(), sum_dtype)


def views(device, dtype):
    """Matrices with any strides and alignment."""
    base = torch.randn(9, 37, 48).to(device, dtype)
    return {
        "batch": base,
        "two pitches": base[:, ::2, 8:40],
        "rows outside": base.transpose(0, 1),
        "shifted": base[1:, :, 1:42],
        "column-major": base[0].t(),
        "no batch of matrices": torch.randn(3, 5, 4, 16).to(device, dtype)[:, ::2].transpose(0, 2),
        "expanded": torch.randn(1, 1).to(device, dtype).expand(50, 24),
        "one row": base[0, :1],
        "vector": base[0, 0],
        "no rows": base[:0],
        "no columns": base[..., :0],
    }


@pytest.mark.parametrize("name", views("cpu", torch.float32))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_strides(name, dtype, device):
    g = views(device, dtype)[name]
    assert_sums(OPS._sum_rows(g, torch.float32), g.double(), torch.float32)
    for z in (torch.randn(g.shape).to(g), torch.randn(*g.shape, 2).to(g)[..., 0]):
        gz, sums = OPS._activation_backward(g, z, "gelu", dtype, torch.float32)
        expected = g.double() * derivative(z, "gelu")
        assert gz.shape == g.shape and gz.is_contiguous()
        assert_close(gz, expected, g, True)
        assert (
            (sums.double() - (expected[None] if g.dim() == 1 else expected.flatten(0, -2)).sum(0))
            .abs()
            .le(1e-2)
            .all()
        )


@pytest.mark.parametrize("activation", NAMES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_derivatives(dtype, activation, device):
    z = torch.cat([torch.linspace(-12, 12, 4096), torch.randn(4096) * 3]).reshape(64, 128)
    z = z.to(device, dtype)
    g = torch.randn(z.shape).to(z)
    expected = g.double() * derivative(z, activation)
    for out in DTYPES:
        gz, sums = OPS._activation_backward(g, z, activation, out, torch.float32)
        assert gz.dtype is out
        assert_close(gz, expected, g, dtype is not torch.float32)
        assert (sums.double() - expected.sum(0)).abs().le(1e-3).all()
        result, none = OPS._activation_backward(g, z, activation, out)
        assert torch.equal(result, gz) and none.numel() == 0


@pytest.mark.parametrize("activation", NAMES)
def test_nan_and_inf_are_those_of_torch(activation, device):
    inf, nan = float("inf"), float("nan")
    z = torch.tensor([inf, -inf, nan, 0.0, -0.0, 1.0, 3e4, -3e4] * 4, device=device)
    g = torch.tensor([1.0, inf, nan, -inf], device=device).repeat_interleave(8)
    for dtype in (torch.float32, torch.bfloat16):
        z, g = z.to(dtype), g.to(dtype)
        result, _ = OPS._activation_backward(g, z, activation, dtype)
        leaf = z.clone().requires_grad_()
        out = activate(leaf, activation)
        (expected,) = torch.autograd.grad(out, leaf, g)
        torch.testing.assert_close(result, expected, equal_nan=True, rtol=1e-2, atol=1e-6)


def test_bits_are_the_same_in_every_call_and_view(device):
    g = torch.randn(3000, 520).to(device).bfloat16()
    z = torch.randn(3000, 520).to(g)
    first = OPS._activation_backward(g, z, "silu", torch.bfloat16, torch.float32)
    for _ in range(3):
        results = OPS._activation_backward(g, z, "silu", torch.bfloat16, torch.float32)
        assert all(map(torch.equal, first, results))
    shifted = torch.empty(3000 * 520 + 1).to(g)[1:].view(3000, 520).copy_(g)
    results = OPS._activation_backward(shifted, z, "silu", torch.bfloat16, torch.float32)
    assert all(map(torch.equal, first, results))


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(512, 128256), (70000, 8), (8192, 4096), (17, 40)], ids=str)
def test_large_sums_on_a_gpu(shape):
    g = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
    z = torch.randn_like(g)
    assert_sums(OPS._sum_rows(g, torch.float32), g.double(), torch.float32)
    _, sums = OPS._activation_backward(g, z, "gelu_tanh", torch.bfloat16, torch.float32)
    expected = (g.double() * derivative(z, "gelu_tanh")).sum(0)
    assert (sums.double() - expected).abs().le(1e-5 * shape[0]).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.int32, torch.float8_e4m3fn], ids=str)
def test_other_dtypes_are_refused(dtype):
    with pytest.raises(RuntimeError, match="are what the backward reads"):
        OPS._sum_rows(torch.zeros(2, 3).to(dtype), torch.float32)
    with pytest.raises(RuntimeError, match="are what the backward writes"):
        OPS._sum_rows(torch.zeros(2, 3), dtype)


def test_operands_that_differ_are_refused():
    g = torch.zeros(2, 3)
    for z, words in (
        (g.half(), r"convert z with \.to\(g\.dtype\)"),
        (g.t(), "the shape of the result"),
    ):
        with pytest.raises(RuntimeError, match=words):
            OPS._activation_backward(g, z, "gelu", torch.float32)
    with pytest.raises(RuntimeError, match='activation is "tanh"'):
        OPS._activation_backward(g, g, "tanh", torch.float32)
    with pytest.raises(RuntimeError, match="has no dimensions"):
        OPS._sum_rows(torch.zeros(()), torch.float32)


def test_opcheck_of_the_passes():
    g, z = torch.randn(6, 9).bfloat16(), torch.randn(6, 9).bfloat16()
    opcheck(torch.ops.tcgemm._sum_rows.default, (g, torch.float32))
    backward = torch.ops.tcgemm._activation_backward.default
    opcheck(backward, (g, z, "gelu", torch.bfloat16, torch.float32))
    opcheck(backward, (g, z, "relu", torch.float32))


def products(device, dtype, shape=(40, 48, 32)):
    m, n, k = shape
    a, b = torch.randn(m, k).to(device, dtype), torch.randn(k, n).to(device, dtype)
    bias, rest = torch.randn(n).to(a), torch.randn(m, n).to(a)
    return {
        "mm": (OPS.mm, (a, b, bias, rest)),
        "bmm": (OPS.bmm, (a.expand(2, m, k), b.expand(2, k, n), bias)),
        "matmul": (OPS.matmul, (a[0], b)),
        "addmm": (OPS.addmm, (rest, a, b, bias)),
        "baddbmm": (OPS.baddbmm, (rest[None], a[None], b[None])),
        "linear": (OPS.linear, (a.expand(3, m, k), b.t(), bias)),
        "scaled_mm": (OPS.scaled_mm, (a, b, torch.tensor(0.5, device=device))),
    }


@pytest.mark.parametrize("name", products("cpu", torch.float32))
@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64], ids=str)
@pytest.mark.parametrize("shape", [(40, 48, 32), (5, 13, 9), (300, 520, 130)], ids=str)
def test_the_result_beside_z_has_the_bits_of_the_result(name, dtype, shape, device):
    packet, tensors = products(device, dtype, shape)[name]
    for activation in NAMES:
        out, z = packet.with_z(*tensors, activation=activation)
        assert torch.equal(out, packet.default(*tensors, activation=activation))
    if name != "mm":  # its residual comes after the activation
        assert torch.equal(z, packet.default(*tensors))
    else:
        assert torch.equal(z, packet.default(*tensors[:3]))
    if name != "scaled_mm":
        opcheck(packet.with_z, tensors, {"activation": "silu"}, test_utils="test_faketensor")


def test_z_needs_an_activation_and_a_float_result():
    a = torch.randn(4, 4)
    with pytest.raises(RuntimeError, match="there is no activation"):
        OPS.mm.with_z(a, a)
    with pytest.raises(RuntimeError, match="which has no gradient"):
        OPS.mm.with_z(a.half(), a.half(), activation="gelu", out_dtype=torch.float8_e4m3fn)


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64], ids=str)
@pytest.mark.parametrize("activation", NAMES)
@pytest.mark.parametrize("shape", [(64, 256, 128), (33, 31, 17)], ids=str)
def test_a_layer_has_the_same_bits_with_and_without_gradients(shape, activation, dtype, device):
    m, n, k = shape
    layer = tcgemm.nn.Linear(k, n, activation=activation, device=device, dtype=dtype)
    x = torch.randn(m, k).to(device, dtype)
    with torch.no_grad():
        expected = layer(x)
    out = layer(x)
    assert out.requires_grad and torch.equal(out, expected)
    assert torch.equal(layer(x.requires_grad_()), expected)


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("activation", [None, *NAMES])
@pytest.mark.parametrize("dtype", DTYPES[:2], ids=str)
def test_16_bit_gradients(dtype, activation, residual, device):
    m, n, k = 192, 264, 136
    x, w = torch.randn(2, m, k).to(device, dtype), torch.randn(n, k).to(device, dtype) / k**0.5
    bias, rest = torch.randn(n).to(x), torch.randn(2, m, n).to(x)
    leaves = [tensor.detach().requires_grad_() for tensor in (x, w, bias, *([rest] * residual))]
    keywords = {"residual": leaves[3]} if residual else {}
    out = tcgemm.linear(*leaves[:3], activation=activation, **keywords)
    g = torch.randn(out.shape).to(out)
    grads = torch.autograd.grad(out, leaves, g)
    z = torch.nn.functional.linear(x.double(), w.double(), bias.double())
    gz = g.double() * (1 if activation is None else derivative(z, activation))
    flat = gz.reshape(-1, n)
    expected = [gz @ w.double(), flat.t() @ x.double().reshape(-1, k), flat.sum(0)]
    for grad, value, leaf in zip(grads, [*expected, g.double()], leaves, strict=False):
        assert grad.dtype is leaf.dtype and grad.shape == leaf.shape
        assert float((grad.double() - value).norm() / value.norm()) < 4e-3 * (
            8 if dtype is torch.bfloat16 else 1
        )


def test_a_frozen_weight_keeps_no_input():
    """The argument of the activation serves the backward, so x is not needed."""
    x, w = torch.randn(4, 3, requires_grad=True), torch.randn(5, 3)
    shapes = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: shapes.append(t.shape) or t, lambda t: t
    ):
        tcgemm.linear(x, w, activation="gelu")
    assert sorted(map(tuple, shapes)) == [(4, 5), (5, 3)]


def test_checkpoint_keeps_no_argument_of_an_activation():
    layer = tcgemm.nn.Linear(8, 16, activation="gelu")
    x = torch.randn(4, 8, requires_grad=True)
    shapes = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: shapes.append(t.shape) or t, lambda t: t
    ):
        out = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)
    assert (4, 16) not in shapes
    (gradient,) = torch.autograd.grad(out.sum(), x)
    torch.testing.assert_close(gradient, torch.autograd.grad(layer(x).sum(), x)[0])


@pytest.mark.parametrize("activation", [None, "gelu", "relu"])
def test_batched_gradients(activation):
    x, w, bias = (torch.randn(s, requires_grad=True) for s in ((4, 3), (5, 3), (5,)))
    out = tcgemm.linear(x, w, bias, activation=activation)
    g = torch.randn(2, 4, 5)
    batches = torch.autograd.grad(out, (x, w, bias), g, is_grads_batched=True, retain_graph=True)
    for i in range(2):
        one = torch.autograd.grad(out, (x, w, bias), g[i], retain_graph=True)
        for grads, grad in zip(batches, one, strict=True):
            torch.testing.assert_close(grads[i], grad)
