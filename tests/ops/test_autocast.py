"""torch.autocast does to the public functions what it does to torch's."""

import pytest
import torch
import torch.nn.functional as F

import tcgemm

LOW = (torch.bfloat16, torch.float16)
X, W, BIAS = torch.randn(6, 8), torch.randn(4, 8), torch.randn(4)

PAIRS = {
    "mm": (lambda a, w, c: tcgemm.mm(a, w.t()), lambda a, w, c: torch.mm(a, w.t())),
    "bmm": (
        lambda a, w, c: tcgemm.bmm(a[None], w.t()[None]),
        lambda a, w, c: a[None] @ w.t()[None],
    ),
    "matmul": (lambda a, w, c: tcgemm.matmul(a, w[0]), lambda a, w, c: torch.matmul(a, w[0])),
    "baddbmm": (
        lambda a, w, c: tcgemm.baddbmm(c, a[None], w.t()[None]),
        lambda a, w, c: torch.baddbmm(c, a[None], w.t()[None]),
    ),
    "addmm": (lambda a, w, c: tcgemm.addmm(c, a, w.t()), lambda a, w, c: torch.addmm(c, a, w.t())),
    "linear": (tcgemm.linear, F.linear),
}


@pytest.mark.parametrize("low", LOW, ids=str)
@pytest.mark.parametrize("name", PAIRS)
def test_result_and_gradients_as_torchs(name, low, device):
    results = []
    for function in PAIRS[name]:
        leaves = [t.to(device, copy=True).requires_grad_() for t in (X, W, BIAS)]
        with torch.autocast(device, dtype=low):
            out = function(*leaves)
        assert out.dtype is low
        gradients = torch.autograd.grad(out.float().square().sum(), leaves, allow_unused=True)
        assert all(g is None or g.dtype is torch.float32 for g in gradients)
        results.append((out, gradients))
    torch.testing.assert_close(*results, rtol=3e-2, atol=3e-2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("low", LOW, ids=str)
def test_dtypes_that_are_cast(dtype, low):
    a, b = X.to(dtype), W.t().to(dtype)
    with torch.autocast("cpu", dtype=low):
        result, expected = tcgemm.mm(a, b), torch.mm(a, b)
    assert result.dtype is expected.dtype
    assert result.dtype is (torch.float64 if dtype is torch.float64 else low)


def test_double_beside_float_stays_an_error():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with pytest.raises(RuntimeError):
            torch.mm(X, W.t().double())
        with pytest.raises(RuntimeError, match=r"b is torch.float64, but a is torch.bfloat16"):
            tcgemm.mm(X, W.t().double())


def test_addends_are_cast_too():
    """As torch.addmm casts its first argument: a value that bfloat16 cannot hold is rounded."""
    fine = torch.full((6, 4), 1 + 2**-10)
    zero = torch.zeros(6, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = torch.addmm(fine, zero, W.t())
        options = {"out_dtype": torch.float32}
        results = [
            tcgemm.addmm(fine, zero, W.t(), **options),
            tcgemm.mm(zero, W.t(), bias=fine[0], **options),
            tcgemm.mm(zero, W.t(), residual=fine, **options),
        ]
    assert torch.equal(expected.float(), torch.ones(6, 4))
    for out in results:
        assert out.dtype is torch.float32
        assert torch.equal(out, torch.ones(6, 4))


def test_regions_without_autocast():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with torch.autocast("cpu", enabled=False):
            assert tcgemm.mm(X, W.t()).dtype is torch.float32
        assert tcgemm.mm(X, W.t()).dtype is torch.bfloat16
    with torch.autocast("cuda", dtype=torch.float16, enabled=torch.cuda.is_available()):
        assert tcgemm.mm(X, W.t()).dtype is torch.float32  # another device's autocast


def test_out_is_not_cast():
    """As with torch.mm(out=)."""
    result, expected = torch.empty(6, 4), torch.empty(6, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.mm(X, W.t(), out=expected)
        tcgemm.mm(X, W.t(), out=result)
    torch.testing.assert_close(result, expected, rtol=1e-6, atol=1e-6)


def test_module_trains_under_autocast(device):
    layer = tcgemm.nn.Linear(8, 4, device=device)
    torch_layer = torch.nn.Linear(8, 4, device=device)
    torch_layer.load_state_dict(layer.state_dict())
    for module in (layer, torch_layer):
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = module(X.to(device)).float().square().mean()
        loss.backward()
    assert layer.weight.grad.dtype is torch.float32
    torch.testing.assert_close(layer.weight.grad, torch_layer.weight.grad, rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(layer.bias.grad, torch_layer.bias.grad, rtol=2e-2, atol=2e-2)


def test_transforms_under_autocast(device):
    def loss(function):
        def scalar(w, x):
            with torch.autocast(device, dtype=torch.bfloat16):
                return function(x, w).float().square().sum()

        return torch.func.vmap(torch.func.grad(scalar), (None, 0))(W.to(device), X.to(device))

    torch.testing.assert_close(loss(tcgemm.linear), loss(F.linear), rtol=3e-2, atol=3e-2)
