"""No gradient is computed from a number that was rounded to a narrower dtype than it needs.

Every gradient, and the tangent of forward mode, against float64. The bounds follow from the dtypes:

    u        the unit of the dtype of the gradient
    u_z      that of the dtype of z, which the forward keeps in the dtype of the result
    terms    |g| (1 + |z|), what a change of z by its rounding can change in g * act'(z)

    a, b     max(u, u_z) * |alpha| * terms @ |b|^T, and |a|^T @ terms
    addends  max(u, u_z) * terms summed to the shape of the addend
"""

import itertools

import pytest
import torch
from torch.autograd import forward_ad

import tcgemm
from tcgemm.ops.activations import activate

from support.cases import ACTIVATIONS, BF16, F16, F32, F64
from support.torch_reference import Case

M, N, K = 21, 14, 5
# The dtypes of operands and of the result.
DTYPES = [*itertools.product((F16, BF16, F32), (F16, BF16, F32)), (F64, F64)]
CASES = [
    Case("mm", (M, K), (K, N), bias=(N,)),
    Case("mm", (M, K), (K, N), bias=(1, N), residual=(M, N)),
    Case("mm", (M, K), (K, N), bias=(M, 1), residual=(M, 1)),
    Case("addmm", (M, K), (K, N), c=(M, N), bias=(M, 1), alpha=0.3, beta=0.7),
    Case("addmm", (M, K), (K, N), c=(N,), bias=(N,), residual=(1, N), alpha=-1.5, beta=0.3),
    Case("bmm", (3, M, K), (3, K, N), bias=(N,), residual=(3, 1, N)),
    Case("bmm", (3, M, K), (3, K, N), bias=(3, 1, N), residual=(3, M, N)),
    Case("baddbmm", (3, M, K), (3, K, N), c=(3, M, N), bias=(3, M, 1), alpha=0.1, beta=-0.3),
    Case("matmul", (2, 3, M, K), (3, K, N), bias=(3, 1, N), residual=(M, N), alpha=0.3),
    Case("matmul", (K,), (3, K, N), bias=(N,), residual=(3, N)),
    Case("linear", (3, M, K), (N, K), bias=(N,), residual=(3, M, N), alpha=0.3),
]


def unit(dtype):
    return torch.finfo(dtype).eps


def operands(case, dtype, others, device):
    """The tensors of a case; the addends have the dtypes `others`, one after another."""
    tensors = case.tensors(dtype, device=device)
    addends = [name for name in tensors if name not in ("a", "b")]
    for name, other in zip(addends, itertools.cycle(others), strict=False):
        tensors[name] = tensors[name].to(other)
    return {name: tensor.detach().requires_grad_() for name, tensor in tensors.items()}


def exact(case, activation, wide, g, scale_out):
    """(the gradients in float64, what bounds the error of each, for a unit of 1)."""

    def value(**tensors):
        inner = {name: t for name, t in tensors.items() if name != "residual"}
        z = Case.composed(case, **inner)
        out = activate(z, activation)
        out = out + tensors["residual"] if "residual" in tensors else out
        return out * scale_out, z

    out, z = value(**wide)
    grads = torch.autograd.grad(out, list(wide.values()), g)
    terms = (g * scale_out).abs() * (1 + z.detach().abs())
    sizes = {name: tensor.detach().abs().requires_grad_() for name, tensor in wide.items()}
    positive = Case(case.op, case.a, case.b, alpha=abs(case.alpha), beta=abs(case.beta))
    rest = sizes.get("residual", 0)
    sizes_z = positive.composed(**{name: t for name, t in sizes.items() if name != "residual"})
    bounds = torch.autograd.grad(sizes_z + rest, list(sizes.values()), terms)
    return grads, bounds


def rounding_of_z(dtype, out_dtype, activation):
    """The unit of z: the forward keeps it in the dtype of the result if that holds all values."""
    if activation in (None, "relu"):
        return unit(F64 if dtype is F64 else F32)
    return unit(torch.promote_types(dtype, out_dtype))


def assert_widths(case, tensors, grads, expected, bounds, u_z):
    for (name, tensor), grad, e, bound in zip(
        tensors.items(), grads, expected, bounds, strict=True
    ):
        assert grad.dtype is tensor.dtype
        u = max(unit(tensor.dtype), u_z if name != "residual" else 0)
        tiny = torch.finfo(tensor.dtype).smallest_normal * unit(tensor.dtype)
        excess = ((grad.double() - e).abs() / (4 * u * bound + tiny)).max()
        assert excess <= 1, f"{case} {name} of {tensor.dtype}: {float(excess):.3g} of the bound"


ADDENDS = ((F16, BF16, F32), (BF16, F32, F16), (F32, F16, BF16))
# An activation, the dtypes of the addends one after another, and is there a scale_out?
EPILOGUES = [
    (activation, ADDENDS[i % 3], i % 2 == 1) for i, activation in enumerate((None, *ACTIVATIONS))
]


@pytest.mark.parametrize(("dtype", "out_dtype"), DTYPES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_gradient_is_as_wide_as_it_is_asked_for(case, dtype, out_dtype, device):
    for activation, others, scaled in EPILOGUES:
        tensors = operands(case, dtype, others, device)
        scale_out = torch.tensor(0.3, device=device) if scaled else None
        options = {"activation": activation, "out_dtype": out_dtype, "scale_out": scale_out}
        out = case.fused(**tensors, **options)
        g = torch.randn(out.shape).to(out)
        grads = torch.autograd.grad(out, list(tensors.values()), g)
        wide = {name: t.detach().double().requires_grad_() for name, t in tensors.items()}
        factor = scale_out.double() if scaled else 1.0
        expected, bounds = exact(case, activation, wide, g.double(), factor)
        u_z = rounding_of_z(dtype, out_dtype, activation)
        assert_widths(case, tensors, grads, expected, bounds, u_z)


@pytest.mark.parametrize(("dtype", "out_dtype"), DTYPES, ids=str)
@pytest.mark.parametrize("case", [CASES[2], CASES[3], CASES[6], CASES[-1]], ids=str)
def test_the_tangent_is_rounded_once(case, dtype, out_dtype, device):
    """z and the sum of the tangents stay in the dtype of the accumulator."""
    for activation, others, _ in EPILOGUES:
        tensors = {name: t.detach() for name, t in operands(case, dtype, others, device).items()}
        tangents = {name: torch.randn_like(t) for name, t in tensors.items()}
        options = {"activation": activation, "out_dtype": out_dtype}
        with forward_ad.dual_level():
            duals = {n: forward_ad.make_dual(t, tangents[n]) for n, t in tensors.items()}
            tangent = forward_ad.unpack_dual(case.fused(**duals, **options)).tangent
            wide = {
                n: forward_ad.make_dual(t.double(), tangents[n].double())
                for n, t in tensors.items()
            }
            z = case.composed(**{n: t for n, t in wide.items() if n != "residual"})
            rest = wide.get("residual", 0)
            expected = forward_ad.unpack_dual(activate(z, activation) + rest).tangent
        assert tangent.dtype is out_dtype
        u = unit(F64 if dtype is F64 else F32)
        excess = (tangent.double() - expected).abs() - unit(out_dtype) * expected.abs()
        assert excess.max() <= 100 * u * (1 + float(expected.abs().max())), f"{case} {activation}"


def test_the_bias_of_a_float8_layer_has_a_sum_in_float32(device):
    """Also where torch sums: the gradient of sum() has no strides."""
    layer = tcgemm.nn.Float8Linear(32, 16, device=device)
    out = layer(torch.randn(1000, 32, device=device).bfloat16())
    g = torch.full((1, 1), 0.3, device=device).bfloat16().expand_as(out)
    (gradient,) = torch.autograd.grad(out, layer.bias, g)
    assert gradient.dtype is F32
    torch.testing.assert_close(gradient.double(), g.double().sum(0), rtol=1e-6, atol=0)


def relative(result, expected):
    return float((result.double() - expected).detach().norm() / expected.detach().norm())


@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
@pytest.mark.parametrize("kind", ["packed", "sparse"])
def test_a_float32_bias_beside_a_compressed_weight(kind, activation):
    dense = torch.randn(64, 128).bfloat16()
    if kind == "packed":
        weight = tcgemm.pack_weight(dense, "int4")
        wide_weight = weight.dequantize(BF16).double()
    else:
        weight = tcgemm.compress24(tcgemm.prune24(dense))
        wide_weight = weight.to_dense().double()
    x, bias = torch.randn(33, 128).bfloat16(), torch.randn(33, 1)
    leaves = [x.requires_grad_(), bias.requires_grad_()]
    out = tcgemm.mm(x, weight.t(), bias=bias, activation=activation, out_dtype=F32)
    g = torch.randn(33, 64)
    grads = torch.autograd.grad(out, leaves, g)
    wide_x, wide_bias = wide = [leaf.detach().double().requires_grad_() for leaf in leaves]
    exact_out = activate(wide_x @ wide_weight.t() + wide_bias, activation)
    expected = torch.autograd.grad(exact_out, wide, g.double())
    assert relative(grads[0], expected[0]) < unit(BF16) and relative(grads[1], expected[1]) < 1e-6


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_second_derivative_for_a_float32_bias(activation):
    a, b, bias = torch.randn(33, 16).bfloat16(), torch.randn(16, 12).bfloat16(), torch.randn(33, 1)

    def second(bias, product):
        first = torch.autograd.grad(product(bias).square().sum(), bias, create_graph=True)[0]
        return torch.autograd.grad(first.square().sum(), bias)[0]

    options = {"activation": activation, "out_dtype": F32}
    result = second(bias.clone().requires_grad_(), lambda t: tcgemm.mm(a, b, bias=t, **options))
    z = a.double() @ b.double()
    expected = second(bias.double().requires_grad_(), lambda t: activate(z + t, activation))
    assert relative(result, expected) < 1e-6
