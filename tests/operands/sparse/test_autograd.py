"""Gradients through a SparseTensor24 and of it, torch.func, torch.compile, optimizers.

Gradients equal the gradients of the dense product, for the weight where it keeps elements.
Finite differences are taken in whole steps of whole numbers: products are linear in each operand,
so that they are exact, in float32 and as tf32.
"""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch.func import functional_call, grad, hessian, jvp, vjp, vmap
from torch.library import opcheck

import tcgemm
from tcgemm import SparseTensor24
from tcgemm.operands.sparse import matmul

from support.cases import BF16, F16, F32, NAMES, compiled, gpu

DEVICES = ["cpu", gpu("cuda", mark="sm90")]
devices = pytest.mark.parametrize("device", DEVICES)
learning = pytest.mark.parametrize("dtype", [BF16, F16, F32], ids=NAMES.get)
kinds = pytest.mark.parametrize(
    "kind", [{}, {"transposable": True}, {"dense_gradient": True}], ids=["plain", "both", "dense"]
)
M, N, K = 24, 20, 36


@pytest.fixture
def calls(monkeypatch):
    """For each product with a SparseTensor24, whether it was sparse or made with to_dense()."""
    sides = []
    for name, is_sparse in (("metadata_argument", True), ("decompress", False)):
        function = getattr(matmul, name)

        def seen(*arguments, function=function, is_sparse=is_sparse):
            sides.append(is_sparse)
            return function(*arguments)

        monkeypatch.setattr(matmul, name, seen)
    return sides


def whole(*shape, dtype=F32, device="cpu"):
    return torch.randint(-3, 4, shape).to(device, dtype)


def template(dtype=F32, device="cpu", shape=(N, K), **kind):
    if kind.get("transposable") and dtype is F32:
        pytest.skip("float32 has the pattern 1:2, which is no transposable one")
    return tcgemm.compress24(whole(*shape, dtype=dtype, device=device), prune=True, **kind)


# (what is called with x (M, K) and a weight (N, K))
FORMS = {
    "linear": lambda x, w: F.linear(x, w),
    "linear gelu": lambda x, w: tcgemm.linear(x, w, x[0, : len(w)], activation="gelu"),
    "linear relu": lambda x, w: tcgemm.linear(x, w, activation="relu"),
    "left": lambda x, w: w @ x.t(),
    "batch": lambda x, w: torch.matmul(x.reshape(3, -1, x.shape[1]), w.t()),
    "left batch": lambda x, w: torch.matmul(w, x.reshape(3, -1, x.shape[1]).mT),
    "vector": lambda x, w: x[0] @ w.t(),
    "left vector": lambda x, w: w @ x[1],
    "addmm": lambda x, w: torch.addmm(x[:, : len(w)], x, w.t(), beta=2, alpha=0.5),
    "transposed": lambda x, w: w.t() @ x[: len(w)],
    "twice": lambda x, w: F.linear(x, w) * (x @ w.t()),
}


def words(w):
    return {"precision": "high"} if w.dtype is F32 else {}


@devices
@learning
@kinds
@pytest.mark.parametrize("form", FORMS)
def test_gradients(form, kind, dtype, device):
    s = template(dtype, device, **kind)
    mask = s.mask(torch.ones(N, K, dtype=dtype, device=device)).to_dense() != 0
    d, x = s.to_dense().requires_grad_(), whole(M, K, dtype=dtype, device=device).requires_grad_()
    s, y = s.requires_grad_(), x.detach().clone().requires_grad_()
    result, expected = FORMS[form](y, s), FORMS[form](x, d)
    factor = whole(*result.shape, dtype=dtype, device=device)
    result.backward(factor)
    expected.backward(factor)
    scale = max(1.0, d.grad.abs().max().item())
    close = {"rtol": 2**-6 if dtype is BF16 else 2**-8, "atol": scale * 2**-7}
    torch.testing.assert_close(y.grad, x.grad, **close)
    if kind.get("dense_gradient"):
        assert type(s.grad) is torch.Tensor
        torch.testing.assert_close(s.grad, d.grad, **close)
    else:
        assert type(s.grad) is SparseTensor24 and torch.equal(s.grad.metadata, s.metadata)
        torch.testing.assert_close(s.grad.to_dense(), d.grad * mask, **close)


@kinds
def test_the_backward_is_sparse_where_both_directions_are_stored(kind, calls):
    s, x = template(BF16, **kind), whole(M, K, dtype=BF16).requires_grad_()
    for work in (lambda: F.linear(x, s), lambda: s @ x.t(), lambda: x[:, :N] @ s):
        out = work()
        first = calls.copy()
        calls.clear()
        torch.autograd.grad(out.float().sum(), x)
        assert sorted([*first, *calls]) == sorted([True, s.transposable])
        calls.clear()


@pytest.mark.filterwarnings("ignore:Input #. requires gradient")
@pytest.mark.parametrize("form", ["linear", "left", "batch", "vector", "addmm", "transposed"])
def test_finite_differences(form):
    s = template(shape=(4, 6))

    def product(x, d):
        return FORMS[form](x, s.mask(d))

    operands = whole(6, 6).requires_grad_(), whole(4, 6).requires_grad_()
    assert torch.autograd.gradcheck(product, operands, eps=1.0, atol=1e-3)
    direction = whole(*product(*operands).shape).requires_grad_()
    assert torch.autograd.gradgradcheck(product, operands, (direction,), eps=1.0, atol=1e-3)


@kinds
@pytest.mark.parametrize("form", ["linear gelu", "left", "left batch", "twice"])
def test_second_derivatives_are_those_of_the_dense_product(form, kind):
    s = template(F16, **kind)
    x, d = (whole(M, K, dtype=F16) / 16).requires_grad_(), s.to_dense().requires_grad_()

    def second(w, leaf):
        out = FORMS[form](x, w)
        (gradient,) = torch.autograd.grad(out.float().sin().sum(), x, create_graph=True)
        return torch.autograd.grad(gradient.float().square().sum(), (x, leaf))

    mask = 1 if kind.get("dense_gradient") else s.mask(torch.ones(N, K).half()).to_dense()
    (got_x, got_w), (of_x, of_w) = second(s.mask(d), d), second(d, d)
    for result, expected in ((got_x, of_x), (got_w, of_w * mask)):
        size = expected.abs().max().item()
        torch.testing.assert_close(result, expected, rtol=2**-6, atol=size * 2**-7)


def test_transforms():
    s, x = template(), torch.randn(M, K)
    d = s.to_dense()

    def f(x, w):
        return tcgemm.linear(x, w, activation="silu", **words(w)).square().sum()

    torch.testing.assert_close(grad(f)(x, s), grad(f)(x, d))
    tangent = torch.randn(M, K)
    sparse, dense = (jvp(lambda x, w=w: f(x, w), (x,), (tangent,)) for w in (s, d))
    torch.testing.assert_close(sparse, dense)
    _, back = vjp(lambda x: x @ s.t(), x)
    torch.testing.assert_close(back(torch.ones(M, N))[0], torch.ones(M, N) @ d)
    torch.testing.assert_close(hessian(f)(x[:2], s), hessian(f)(x[:2], d))
    batch = torch.randn(3, M, K)
    torch.testing.assert_close(vmap(lambda x: x @ s.t())(batch), batch @ d.t(), atol=2e-2, rtol=0)
    torch.testing.assert_close(
        vmap(grad(f), (0, None))(batch, s), vmap(grad(f), (0, None))(batch, d)
    )
    layer = torch.nn.Linear(K, N, bias=False)
    torch.testing.assert_close(functional_call(layer, {"weight": s}, (x,)), x @ s.t())


# Compilation.


def model(x, w, bias):
    hidden = tcgemm.linear(x, w, bias, activation="gelu") + F.linear(x, w)
    return hidden @ w, (w @ x.t()).t() + x @ w.t()


@learning
@kinds
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_forward_and_backward(backend, kind, dtype):
    if backend == "inductor" and (kind or dtype is F16):
        pytest.skip("compiled by the other backend")
    s, x, bias = template(dtype, **kind), whole(M, K, dtype=dtype), whole(N, dtype=dtype)
    torch._dynamo.reset()
    function = torch.compile(model, fullgraph=True, backend=backend)
    results = []
    for call in (model, function):
        leaves = [leaf.detach().clone().requires_grad_() for leaf in (x, s, bias)]
        outs = call(*leaves)
        torch.autograd.backward(outs, [torch.ones_like(out) for out in outs])
        results.append([*outs, *(leaf.grad for leaf in leaves)])
    for eager, traced in zip(*results, strict=True):
        if isinstance(eager, SparseTensor24):
            eager, traced = eager.to_dense(), traced.to_dense()
        size = eager.abs().max().item()
        torch.testing.assert_close(traced, eager, rtol=2**-6, atol=size * 2**-6)
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            for result, expected in zip(function(x, s, bias), model(x, s, bias), strict=True):
                torch.testing.assert_close(result, expected, rtol=2**-6, atol=2**-4)


def test_compiled_views_copies_and_masks():
    s, d = template(BF16), whole(N, K, dtype=BF16)

    def work(w, d):
        masked = torch.ops.tcgemm.mask24(d, w)
        return w.t(), w.clone() * 2, w.to_dense(), masked, w.half().to_dense(), w.detach().T

    function, _ = compiled(work)
    for result, expected in zip(function(s, d), work(s, d), strict=True):
        if isinstance(expected, SparseTensor24):
            assert type(result) is SparseTensor24 and result.transposed is expected.transposed
            result, expected = result.to_dense(), expected.to_dense()
        assert torch.equal(result, expected)


def test_compiled_under_autocast():
    s, x = template(), torch.randn(M, K)

    def work(x, w):
        with torch.autocast("cpu", dtype=BF16):
            return F.linear(x, w)

    torch._dynamo.reset()
    result = torch.compile(work, fullgraph=True, backend="aot_eager")(x, s)
    assert result.dtype is BF16 and torch.equal(result, work(x, s))


def test_compression_inside_torch_compile():
    w = torch.randn(N, K)
    function = torch.compile(tcgemm.compress24, fullgraph=True, backend="eager")
    with pytest.raises(Exception, match=r"is not possible inside.*torch\.compile"):
        function(w)
    x = torch.randn(M, K)

    def work(w):
        return F.linear(x, tcgemm.compress24(w, prune=True)).square().sum()

    results = []
    for call in (work, torch.compile(work, fullgraph=True, backend="aot_eager")):
        leaf = w.clone().requires_grad_()
        call(leaf).backward()
        results.append(leaf.grad)
    torch.testing.assert_close(*results)
    pruned = torch.compile(tcgemm.prune24, fullgraph=True, backend="aot_eager")(w)
    assert torch.equal(pruned, tcgemm.prune24(w))


# Training, and what operators promise.


@pytest.mark.parametrize("options", [{}, {"momentum": 0.9}, {"weight_decay": 0.1}], ids=str)
def test_an_optimizer_of_compressed_weights(options):
    s = torch.nn.Parameter(template(BF16, transposable=True))
    d = torch.nn.Parameter(s.detach().to_dense())
    mask = s.detach().mask(torch.ones(N, K).bfloat16()).to_dense()
    x, y = whole(M, K, dtype=BF16) / 8, whole(M, N, dtype=BF16)
    steps = [torch.optim.SGD([parameter], lr=0.1, **options) for parameter in (s, d)]
    losses = []
    for _ in range(4):
        for weight, step in zip((s, d), steps, strict=True):
            step.zero_grad()
            loss = (F.linear(x, weight) - y).float().square().mean()
            loss.backward()
            if weight is d:
                d.grad *= mask
            norm = torch.nn.utils.clip_grad_norm_([weight], 1e6)
            torch.testing.assert_close(
                norm.float(), weight.grad.to_dense().float().norm(), rtol=1e-2, atol=0
            )
            step.step()
        losses.append(loss.item())
    torch.testing.assert_close(s.to_dense(), d, rtol=2**-6, atol=2**-4)
    values, metadata, _ = s.stored(True)
    transposed = torch.ops.tcgemm.decompress24(values, metadata, N, "2:4")
    assert torch.equal(transposed, s.to_dense().t())
    assert losses[-1] < losses[0]


def test_opcheck_of_what_differentiates():
    s, d = template(BF16), whole(N, K, dtype=BF16).requires_grad_()
    utils = ("test_schema", "test_faketensor")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        opcheck(torch.ops.tcgemm.mask24.default, (d, s), test_utils=utils[:1])
        opcheck(torch.ops.tcgemm.to_dense24.default, (s,), test_utils=utils[:1])
