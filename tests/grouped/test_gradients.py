"""Gradients of grouped products beside those of a loop of torch's products."""

import pytest
import torch

import tcgemm
from tcgemm.ops.activations import activate

from support import cases
from support.cases import BF16, F16, F32, F64
from support.grouped import DEVICE_TYPES, KINDS, RAGGED, UNEVEN, make_call

grouped_mm = tcgemm.grouped_mm
NAMES = ("a", "b", "bias", "residual")


def small(kind, split=((2, 0, 3, 1), 2), **options):
    """A call with every addend, in float64, that needs gradients."""
    call = make_call(kind, split, F64, bias=F64, residual=F64, m=2, n=3, k=4, **options)
    return needing_gradients(call)


def needing_gradients(call):
    """The same tensors as leaves, with strides and values of their own."""
    leaves = {name: getattr(call, name) for name in NAMES}
    return call._replace(
        **{name: t.detach().requires_grad_() for name, t in leaves.items() if t is not None}
    )


def leaves(call):
    return tuple(getattr(call, name) for name in NAMES if getattr(call, name) is not None)


def function(call, **options):
    """The product as a function of the tensors that need gradients."""
    names = [name for name in NAMES if getattr(call, name) is not None]

    def product(*values):
        return call._replace(**dict(zip(names, values, strict=True))).run(grouped_mm, **options)

    return product


def by_torch(call, activation=None, alpha=1.0):
    """The same call as a loop of torch's products in float64, differentiable."""
    like = call._replace(
        **{n: getattr(call, n).double() for n in NAMES if getattr(call, n) is not None}
    )

    def one(a, b, bias, residual):
        z = alpha * (a @ b)
        z = activate(z if bias is None else z + bias, activation)
        return z if residual is None else z + residual

    return like.loop(one, like.a)


@pytest.mark.parametrize("activation", [None, *cases.ACTIVATIONS])
@pytest.mark.parametrize("kind", KINDS)
def test_first_and_second_derivatives_pass_gradcheck(kind, activation):
    call = small(kind)
    product = function(call, activation=activation, alpha=0.7)
    assert torch.autograd.gradcheck(
        product,
        leaves(call),
        check_forward_ad=True,
        check_batched_grad=True,
        check_batched_forward_grad=True,
    )
    assert torch.autograd.gradgradcheck(product, leaves(call), check_fwd_over_rev=True)


@pytest.mark.parametrize("split", [((0, 0), 3), ((), 4), ((), 0), ((0, 3), 0), ((5,), 0)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_equal_those_of_the_loop(kind, split):
    call = small(kind, split)
    g = torch.randn(call.shape, dtype=F64)
    grads = torch.autograd.grad(call.run(grouped_mm, activation="gelu", alpha=0.7), leaves(call), g)
    out = by_torch(call, "gelu", 0.7)
    if out.requires_grad:
        expected = torch.autograd.grad(out, leaves(call), g, materialize_grads=True)
    else:  # no group has a result
        expected = [torch.zeros_like(leaf) for leaf in leaves(call)]
    for grad, other in zip(grads, expected, strict=True):
        torch.testing.assert_close(grad, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("device, types", DEVICE_TYPES)
def test_whole_numbers_have_exact_gradients(device, types, kind):
    dtype = types.dtype
    addend = F64 if dtype == F64 else F32
    call = make_call(kind, UNEVEN, dtype, device, largest=2, bias=addend, residual=dtype)
    call = needing_gradients(call)
    out = call.run(grouped_mm, alpha=2.0, precision=types.precision)
    g = torch.randint(-2, 3, call.shape, device="cpu").to(device, dtype)
    grads = torch.autograd.grad(out, leaves(call), g)
    expected = torch.autograd.grad(by_torch(call, alpha=2.0), leaves(call), g.double())
    for leaf, grad, other in zip(leaves(call), grads, expected, strict=True):
        assert grad.dtype == leaf.dtype and grad.shape == leaf.shape
        assert torch.equal(grad, other.to(leaf.dtype))


@pytest.mark.parametrize("out_dtype", [None, F32], ids=str)
@pytest.mark.parametrize("activation", ["relu", "silu"])
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_16_bits_are_close(kind, activation, out_dtype, device):
    call = needing_gradients(make_call(kind, UNEVEN, BF16, device, bias=F32, residual=F16))
    out = call.run(grouped_mm, activation=activation, alpha=0.125, out_dtype=out_dtype)
    g = torch.randn(call.shape, device="cpu").to(out)
    grads = torch.autograd.grad(out, leaves(call), g)
    expected = torch.autograd.grad(by_torch(call, activation, 0.125), leaves(call), g.double())
    for leaf, grad, other in zip(leaves(call), grads, expected, strict=True):
        assert grad.dtype == leaf.dtype
        error = (grad.double() - other.double()).norm() / other.double().norm()
        assert error < 2**-7


@pytest.mark.parametrize("strides", ["contiguous", "transposed"])
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_have_the_memory_order_of_their_operand(kind, strides, device):
    call = make_call(kind, UNEVEN, BF16, device, strides=(strides, strides), largest=2)
    call = needing_gradients(call)
    g = torch.ones(call.shape, dtype=BF16, device=device)
    grads = torch.autograd.grad(call.run(grouped_mm), leaves(call), g)
    expected = torch.autograd.grad(by_torch(call), leaves(call), g.double())
    for leaf, grad, other in zip(leaves(call), grads, expected, strict=True):
        assert grad.stride() == leaf.stride()
        assert torch.equal(grad, other.to(BF16))


@pytest.mark.parametrize("activation", [None, "relu", "silu"])
@pytest.mark.parametrize("kind", RAGGED)
def test_nan_of_no_group_reaches_no_gradient(kind, activation, device):
    call = make_call(kind, UNEVEN, BF16, device, bias=F32, residual=F32)
    inside = call.loop(lambda a, b, bias, residual: 1, call.a).bool()
    end = int(call.offs[-1])
    everything, rest = slice(None), slice(end, None)
    spoiled = call._replace(a=call.a.clone(), b=call.b.clone(), residual=call.residual.clone())
    if kind != "columns":
        spoiled.a[rest if kind == "rows" else (everything, rest)] = float("nan")
    if kind != "rows":
        spoiled.b[(everything, rest) if kind == "columns" else rest] = float("nan")
    spoiled.residual[~inside] = float("nan")
    g = torch.randn(call.shape, device="cpu").to(device, BF16)
    spoiled_g = torch.where(inside, g, float("nan"))

    def derivatives(call, g):
        call = needing_gradients(call)
        g = g.detach().requires_grad_()
        out = call.run(grouped_mm, activation=activation)
        first = torch.autograd.grad(out, leaves(call), g, create_graph=True)
        loss = sum(x.float().square().sum() for x in first)
        inputs = (*leaves(call)[:3], g)
        second = torch.autograd.grad(loss, inputs, materialize_grads=True)
        return *first, *second

    derivatives(call, g)  # the first backward on a GPU may add gradients in another order
    for clean, other in zip(derivatives(call, g), derivatives(spoiled, spoiled_g), strict=True):
        assert not other.isnan().any()
        assert torch.equal(clean, other)


def test_gradients_without_a_group_are_zero(device):
    call = needing_gradients(
        make_call("rows", UNEVEN, BF16, device, largest=2, bias=F32, residual=F32)
    )
    call.run(grouped_mm, activation="silu").sum().backward()
    end = int(call.offs[-1])
    assert not call.a.grad[end:].any() and not call.residual.grad[end:].any()
    for empty in (0, 2):
        assert not call.b.grad[empty].any() and not call.bias.grad[empty].any()
    assert call.a.grad[:end].any() and call.residual.grad[:end].all() and call.b.grad[1].any()


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_some_tensors(kind, device):
    """Each set of tensors that need a gradient has those of the whole set."""
    call = make_call(kind, UNEVEN, F32, device, bias=F32, residual=F32)
    g = torch.randn(call.shape, device="cpu").to(device)
    every = needing_gradients(call)
    whole = torch.autograd.grad(every.run(grouped_mm, activation="gelu"), leaves(every), g)
    for chosen in range(1, 15):
        tensors = {
            name: getattr(call, name).detach().requires_grad_(bool(chosen >> i & 1))
            for i, name in enumerate(NAMES)
        }
        out = call._replace(**tensors).run(grouped_mm, activation="gelu")
        needed = [(x, w) for x, w in zip(tensors.values(), whole, strict=True) if x.requires_grad]
        grads = torch.autograd.grad(out, [x for x, _ in needed], g)
        for grad, (_, expected) in zip(grads, needed, strict=True):
            torch.testing.assert_close(grad, expected)


def test_ends_that_change_before_the_backward_are_found():
    call = small("rows")
    out = call.run(grouped_mm)
    call.offs[0] += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_a_backward_finds_what_accumulate_wrote():
    call = make_call("rows", UNEVEN, F32)
    x = torch.ones(call.shape, requires_grad=True)
    target = torch.zeros(call.shape)
    y = x * target  # saves it
    call.run(grouped_mm, out=target, accumulate=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
