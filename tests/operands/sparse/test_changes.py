"""Changes of a SparseTensor24 that its products and gradients have to notice: values that are
changed in place or replaced, after a product or between forward and backward.
"""

import pytest
import torch
import torch.nn.functional as F

import tcgemm
from tcgemm import SparseTensor24

from support.cases import BF16, F16, F32
from support.error_asserts import assert_error_message

M, N, K = 4, 8, 16
CALLS = {
    "linear": lambda x, w: tcgemm.linear(x, w),
    "relu": lambda x, w: tcgemm.linear(x, w, activation="relu"),
    "gelu": lambda x, w: tcgemm.linear(x, w, activation="gelu"),
    "scaled": lambda x, w: tcgemm.linear(x, w, scale_a=torch.tensor(2.0)),
    "mm": lambda x, w: tcgemm.mm(x, w.t()),
    "left": lambda x, w: w @ x.t(),
    "F.linear": lambda x, w: F.linear(x, w),
    "transposed": lambda x, w: x[:, :N] @ w,
}
CHANGES = {
    "in place": lambda w: w.mul_(2),
    "values in place": lambda w: w.values.mul_(2),
    "values replaced": lambda w: setattr(w, "values", w.values * 2),
    "copied into": lambda w: w.copy_(w.detach() * 2),
}
calls = pytest.mark.parametrize("call", CALLS)
changes = pytest.mark.parametrize("change", CHANGES)


def sparse(dtype=BF16, **options):
    return tcgemm.compress24(torch.randn(N, K).to(dtype), prune=True, **options)


@calls
@changes
@pytest.mark.parametrize("needs", ["x", "weight", "both"])
def test_changes_between_forward_and_backward(call, change, needs):
    w, x = sparse(), torch.randn(M, K).to(BF16)
    x.requires_grad_(needs != "weight")
    w.requires_grad_(needs != "x")
    out = CALLS[call](x, w)
    with torch.no_grad():
        CHANGES[change](w)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


@calls
@pytest.mark.parametrize("dtype", [BF16, F16, F32])
@pytest.mark.parametrize("change", ["values in place", "values replaced", "copied into"])
def test_products_see_the_present_values(call, change, dtype):
    for options in ({}, {"transposable": True}) if dtype is not F32 else ({},):
        w, x = sparse(dtype, **options), torch.randn(M, K).to(dtype)
        CALLS[call](x, w)
        CHANGES[change](w)
        expected = CALLS[call](x, tcgemm.compress24(w.to_dense(), **options))
        assert torch.equal(CALLS[call](x, w), expected)
        assert torch.equal(w.t().to_dense(), w.to_dense().t())


@pytest.mark.parametrize("call", [name for name in CALLS if name != "transposed"])
def test_products_see_other_memory(call):
    """Assigning to `data` keeps the tensor of values, and gives it other memory."""
    w, x = sparse(), torch.randn(M, K).to(BF16)
    CALLS[call](x, w)
    w.values.data = w.values * 2
    assert torch.equal(CALLS[call](x, w), CALLS[call](x, tcgemm.compress24(w.to_dense())))


@pytest.mark.parametrize("activation", [None, "relu"])
@torch.no_grad()
def test_a_layer_sees_other_memory(activation):
    layer = tcgemm.nn.SparseLinear24(K, N, activation=activation, bias=False).eval()
    x = torch.randn(M, K)
    before = layer(x)
    assert torch.equal(layer(x), before)  # by the fast path
    layer.weight.values.data = layer.weight.values * 2
    assert torch.equal(layer(x), 2 * before)


def test_a_layer_sees_the_present_values():
    layer = tcgemm.nn.SparseLinear24(K, N, activation="relu").eval()
    x = torch.randn(M, K)
    with torch.no_grad():
        before = layer(x)
        layer.bias.zero_()
        layer.weight.values = torch.zeros_like(layer.weight.values)
        assert not torch.equal(layer(x), before)
        assert torch.equal(layer(x), torch.zeros(M, N))


@pytest.mark.parametrize("copy", [False, True])
@changes
def test_the_transpose_gets_the_new_values(change, copy):
    w = sparse(F16, transposable=True)
    for _ in range(2):
        CHANGES[change](w)
        w = w.clone() if copy else w
        values, metadata, _tiles = w.stored(True)
        transpose = torch.ops.tcgemm.decompress24(values, metadata, N, w.pattern)
        assert torch.equal(transpose, w.to_dense().t())


def test_a_hand_written_step_reaches_the_gradient_of_x():
    w, x = sparse(F16, transposable=True), torch.randn(M, K).half().requires_grad_()
    tcgemm.linear(x, w).sum().backward()
    w.values.sub_(1)
    x.grad = None
    tcgemm.linear(x, w).sum().backward()
    assert torch.equal(x.grad, torch.ones(M, N).half() @ w.to_dense())


def test_what_does_not_fit_is_refused():
    w = sparse()
    for other, pieces in (
        (w.values[:4], ["shape (8, 8) on cpu", "came torch.bfloat16 of shape (4, 8)"]),
        (w.values.half(), ["came torch.float16 of shape (8, 8)"]),
        (w.values.to("meta"), ["came torch.bfloat16 of shape (8, 8) on meta"]),
        (w.values.to_sparse(), ["pass such a tensor"]),
        (w.values.clone().requires_grad_(), ["that needs a gradient"]),
        (None, ["came NoneType"]),
    ):
        assert_error_message(lambda other=other: setattr(w, "values", other), pieces)
    for name in ("metadata", "tiles", "transposed_values", "pattern", "transposed", "k"):
        assert_error_message(
            lambda name=name: setattr(w, name, None), [f"{name} cannot be replaced", "from_parts"]
        )


def test_values_whose_memory_does_not_hold_them():
    w, x = sparse(F32), torch.randn(M, K)
    negated = torch.complex(w.values, w.values).conj().imag
    zero = torch._efficientzerotensor(w.values.shape)
    for values in (negated, zero):
        tensor = SparseTensor24.from_parts(values, w.metadata, K)
        replaced = w.clone()
        replaced.values = values
        expected = tcgemm.linear(x, w) * (-1 if values is negated else 0)
        for weight in (tensor, replaced):
            assert torch.equal(tcgemm.linear(x, weight), expected)
            assert torch.equal(weight.values, values.clone())


def test_what_is_saved_comes_back_from_hooks():
    """Hooks get the tensors inside as well, and may return copies."""
    w, x = sparse(F32).requires_grad_(), torch.randn(M, K, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().clone(), lambda t: t):
        out = tcgemm.linear(x, w, scale_a=torch.tensor(2.0), activation="gelu")
    out.sum().backward()
    grads = x.grad, w.grad.to_dense()
    x.grad = w.grad = None
    tcgemm.linear(x, w, scale_a=torch.tensor(2.0), activation="gelu").sum().backward()
    assert torch.equal(grads[0], x.grad) and torch.equal(grads[1], w.grad.to_dense())
