"""All gradients of a product by one call of an operator: the same bits as by the formulas."""

import itertools

import pytest
import torch
from torch.library import opcheck

import tcgemm
from tcgemm.ops import fused_backward

from support.calls import Counter
from support.cases import F32, F64

BACKWARD = torch.ops.tcgemm._product_backward.default
DTYPES = (torch.float16, torch.bfloat16, F32, F64)


@pytest.fixture
def by_one_call(monkeypatch):
    """For each backward of a plain product, whether one call computed it."""
    noted = []
    of_product = fused_backward.of_product

    def note(*arguments):
        result = of_product(*arguments)
        noted.append(result is not None)
        return result

    monkeypatch.setattr(fused_backward, "of_product", note)
    return noted


def memory_of(shape, order, dtype, device):
    tensor = torch.randn(shape).to(device, dtype)
    if order == "column-major":
        return tensor.mT.contiguous().mT
    return torch.cat([tensor, tensor], -1)[..., ::2] if order == "strided" else tensor


def assert_same(result, leaves, g):
    """Are the gradients those of the formulas, bit by bit, and in the same memory order?"""
    gradients = torch.autograd.grad(result, leaves, g, retain_graph=True)
    with Counter():  # a dispatch mode sees the products one by one
        expected = torch.autograd.grad(result, leaves, g)
    for gradient, other, leaf in zip(gradients, expected, leaves, strict=True):
        assert torch.equal(gradient, other) and gradient.dtype is leaf.dtype
        assert gradient.shape == leaf.shape and gradient.stride() == other.stride()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("function", [tcgemm.mm, tcgemm.matmul, tcgemm.linear])
def test_gradients(function, dtype, device, by_one_call):
    orders, batches = ("row-major", "column-major", "strided"), ((), (3,), (2, 3))
    for batch, order_a, order_b in itertools.product(batches, orders, orders):
        if function is tcgemm.mm and batch:
            continue
        shape_b = (24, 40) if function is tcgemm.linear else (40, 24)
        a = memory_of((*batch, 17, 40), order_a, dtype, device).requires_grad_()
        b = memory_of(shape_b, order_b, dtype, device).requires_grad_()
        bias = torch.randn(24, dtype=F32, device=device).requires_grad_()
        for options in ({}, {"alpha": 0.5, "batch_invariant": True}):
            result = function(a, b, bias=bias, **options)
            del by_one_call[:]
            assert_same(result, (a, b, bias), torch.randn_like(result))
            assert by_one_call == [order_a != "column-major" and dtype is not F64, False]


def test_some_need_no_gradient(device, by_one_call):
    x, w, bias = (torch.randn(size, device=device) for size in ((5, 16), (8, 16), (8,)))
    for needed in itertools.product([False, True], repeat=3):
        leaves = [t.requires_grad_(need) for t, need in zip((x, w, bias), needed, strict=True)]
        leaves = [leaf for leaf in leaves if leaf.requires_grad]
        if leaves:
            result = tcgemm.linear(x, w, bias)
            assert_same(result, leaves, torch.randn_like(result))
    # The bias alone has no product.
    assert by_one_call.count(True) == 6


def test_gradients_with_any_strides(device, by_one_call):
    x = torch.randn(4, 6, 16, device=device).requires_grad_()
    w, bias = (torch.randn(size, device=device).requires_grad_() for size in ((8, 16), (8,)))
    result = tcgemm.linear(x, w, bias)
    one = torch.randn(1, 6, 8, device=device)
    for g, is_one_call in (
        (one.expand(4, 6, 8), True),
        (torch.randn(6, 4, 8, device=device).transpose(0, 1), True),
        (torch.randn(4, 6, 16, device=device)[..., 8:], True),
        (torch.ones((), device=device).expand_as(result), False),  # torch sums such columns
    ):
        del by_one_call[:]
        gradients = torch.autograd.grad(result, (x, w, bias), g, retain_graph=True)
        assert by_one_call == [is_one_call]
        rows = g.reshape(-1, 8)
        expected = (g @ w, rows.t() @ x.reshape(-1, 16), rows.sum(0))
        for gradient, other in zip(gradients, expected, strict=True):
            torch.testing.assert_close(gradient, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("function", [tcgemm.mm, tcgemm.linear])
def test_the_gradient_of_a_sum_has_no_strides(function, device, by_one_call):
    x, w = (torch.randn(16, 16, device=device).requires_grad_() for _ in range(2))
    function(x, w).sum().backward()
    assert by_one_call == [True]
    by_rows = w.detach() if function is tcgemm.linear else w.detach().t()
    torch.testing.assert_close(x.grad, by_rows.sum(0).expand_as(x), rtol=1e-5, atol=1e-5)
    columns = x.detach().sum(0)
    expected = columns.expand_as(w) if function is tcgemm.linear else columns[:, None].expand_as(w)
    torch.testing.assert_close(w.grad, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(0, 16), (3, 0, 16), (0, 3, 16), (3, 2, 0)], ids=str)
def test_zero_sizes(shape, device, by_one_call):
    x = torch.randn(shape, device=device).requires_grad_()
    w = torch.randn(8, shape[-1], device=device).requires_grad_()
    bias = torch.randn(8, device=device).requires_grad_()
    result = tcgemm.linear(x, w, bias)
    gx, gw, gb = torch.autograd.grad(result, (x, w, bias), torch.ones_like(result))
    assert by_one_call == [True]
    assert gx.shape == x.shape and gw.shape == w.shape and not gw.any()
    assert torch.equal(gb, torch.full_like(gb, result.numel() // 8))


def test_precision_of_float32(device, by_one_call):
    x, w = (torch.randn(32, 64, device=device).requires_grad_() for _ in range(2))
    for precision in ("highest", "high", "medium"):
        result = tcgemm.linear(x, w, precision=precision)
        assert_same(result, (x, w), torch.randn_like(result))
    assert by_one_call == [True, False] * 3


def test_many_rows(device, by_one_call):
    """On a GPU the sum over the rows is divided into slices, unless it is batch invariant."""
    x = torch.randn(8192, 64).to(device, torch.bfloat16).requires_grad_()
    w = torch.randn(48, 64).to(device, torch.bfloat16).requires_grad_()
    for batch_invariant in (False, True):
        result = tcgemm.linear(x, w, batch_invariant=batch_invariant)
        assert_same(result, (x, w), torch.randn_like(result))
    assert by_one_call == [True, False] * 2


@pytest.mark.parametrize("weight", [False, True])
def test_opcheck(weight, device):
    g, a = torch.randn(2, 3, 8, device=device), torch.randn(2, 3, 16, device=device)
    b = torch.randn((8, 16) if weight else (16, 8), device=device)
    opcheck(BACKWARD, (g, a, b, weight, F32))
    opcheck(BACKWARD, (g, None, b, weight), {"alpha": 0.5})
    opcheck(BACKWARD, (g, a, None, weight), {"batch_invariant": True})
