"""Products with a SparseTensor24 on either side, with all their epilogues, and what is refused.

The definition is the product of what to_dense() gives: on the CPU bit by bit, on a GPU within the
rounding of its result.
"""

import pytest
import torch
import torch.nn.functional as F

import tcgemm

from support.cases import BF16, E4M3, E5M2, F16, F32, NAMES, S8, S32, U8, gpu
from support.error_asserts import assert_error_message

DTYPES = (F16, BF16, F32, S8, U8, E4M3, E5M2)
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=NAMES.get)
devices = pytest.mark.parametrize("device", ["cpu", gpu("cuda", mark="sm90")])
M, N, K = 24, 20, 36


def dense(*shape, dtype=BF16, device="cpu"):
    if dtype in (S8, U8):
        return torch.randint(0 if dtype is U8 else -9, 10, shape).to(device, dtype)
    return torch.randn(shape).to(device, dtype)


def sparse(*shape, dtype=BF16, device="cpu", **options):
    return tcgemm.compress24(dense(*shape, dtype=dtype, device=device), prune=True, **options)


def close(result, expected):
    assert result.dtype is expected.dtype and result.shape == expected.shape
    if result.device.type == "cpu":
        assert torch.equal(result, expected)
        return
    eps = {F16: 2.0**-9, BF16: 2.0**-6, F32: 2.0**-9, E4M3: 0.13, E5M2: 0.26}.get(result.dtype, 0)
    size = expected.float().abs().amax().item() if expected.numel() else 0
    torch.testing.assert_close(result.float(), expected.float(), rtol=eps, atol=eps * size)


# (what is called, with x (M, K), a weight (N, K) and y (N, 5))
FORMS = {
    "F.linear": lambda x, w, y: F.linear(x, w),
    "@": lambda x, w, y: x @ w.t(),
    "left @": lambda x, w, y: w @ x.t(),
    "torch.mm": lambda x, w, y: torch.mm(x, w.t()),
    "Tensor.mm": lambda x, w, y: x.mm(w.T),
    "left torch.mm": lambda x, w, y: torch.mm(w, x.t()),
    "left Tensor.mm": lambda x, w, y: w.mm(x.t().contiguous()),
    "torch.matmul": lambda x, w, y: torch.matmul(x[None, None], w.mT),
    "left batch": lambda x, w, y: torch.matmul(w, x.t().expand(3, K, M)),
    "Tensor.matmul": lambda x, w, y: x.matmul(w.t()),
    "vector": lambda x, w, y: x[0] @ w.t(),
    "left vector": lambda x, w, y: w @ x[0],
    "torch.mv": lambda x, w, y: torch.mv(w, x[0]),
    "torch.addmm": lambda x, w, y: torch.addmm(x[:, :N], x, w.t(), beta=2, alpha=3),
    "Tensor.addmm": lambda x, w, y: x[0, :M].addmm(w, x.t(), beta=0.5),
    "transposed": lambda x, w, y: w.t() @ y,
    "transposed right": lambda x, w, y: y.t() @ w,
    "empty": lambda x, w, y: x[:0] @ w.t(),
}
# (what is called, with x, a weight, and addends and scales by name; all floating types)
OURS = {
    "linear": lambda x, w, o: tcgemm.linear(
        x, w, o["bias"], activation="gelu", residual=o["r"], **o["words"]
    ),
    "batch": lambda x, w, o: tcgemm.linear(x[None], w, activation="relu", **o["words"]),
    "to f32": lambda x, w, o: tcgemm.linear(x, w, o["bias"], out_dtype=F32, **o["words"]),
    "mm": lambda x, w, o: tcgemm.mm(
        x, w.t(), bias=o["column"], alpha=0.5, activation="silu", **o["words"]
    ),
    "left mm": lambda x, w, o: tcgemm.mm(
        w, x.t(), bias=o["bias"][:, None], residual=o["r"].t(), **o["words"]
    ),
    "matmul": lambda x, w, o: tcgemm.matmul(x.expand(2, M, K), w.mT, residual=o["r"], **o["words"]),
    "vector": lambda x, w, o: tcgemm.matmul(
        x[0], w.t(), bias=o["bias"], residual=o["r"][0], **o["words"]
    ),
    "left vector": lambda x, w, o: tcgemm.matmul(w, x[0], residual=o["r"][0], **o["words"]),
    "addmm": lambda x, w, o: tcgemm.addmm(
        o["r"], x, w.t(), beta=0.5, activation="gelu_tanh", **o["words"]
    ),
    "to e4m3": lambda x, w, o: tcgemm.linear(
        x, w, scale_out=o["one"], out_dtype=E4M3, **o["words"]
    ),
    "amax": lambda x, w, o: tcgemm.linear(x, w, amax=True, out_dtype=F32, **o["words"])[1],
    "scales": lambda x, w, o: tcgemm.linear(
        x, w, scale_a=o["column"], scale_b=o["bias"][None], out_dtype=F32, **o["words"]
    ),
    "left scales": lambda x, w, o: tcgemm.mm(
        w, x.t(), scale_a=o["bias"][:, None], scale_b=o["column"].t(), out_dtype=F32, **o["words"]
    ),
}


@devices
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [BF16, F16], ids=NAMES.get)
def test_torchs_functions(form, dtype, device):
    w = sparse(N, K, dtype=dtype, device=device)
    x, y = dense(M, K, dtype=dtype, device=device), dense(N, 5, dtype=dtype, device=device)
    result, expected = FORMS[form](x, w, y), FORMS[form](x, w.to_dense(), y)
    assert type(result) is torch.Tensor and result.shape == expected.shape
    torch.testing.assert_close(result, expected, rtol=2**-6, atol=2**-4)
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            assert torch.equal(FORMS[form](x, w, y), result)


@devices
@pytest.mark.parametrize("form", OURS)
@every_dtype
def test_our_functions(form, dtype, device):
    if dtype in (S8, U8) and "scales" not in form:
        pytest.skip("int32 results take neither activations nor addends of other types")
    w, x = sparse(N, K, dtype=dtype, device=device), dense(M, K, dtype=dtype, device=device)
    options = {
        "bias": torch.randn(N, device=device).abs(),
        "column": torch.randn(M, 1, device=device).abs(),
        "r": torch.randn(M, N, device=device),
        "one": torch.tensor(0.25, device=device),
        "words": {"precision": "high"} if dtype is F32 else {},
    }
    if dtype in (E4M3, E5M2):  # sums of sparse operands stay in the tensor cores
        options["words"] = {"precision": "fast"}
    result = OURS[form](x, w, options)
    close(result, OURS[form](x, w.to_dense(), options))
    if dtype in (F16, BF16, F32):  # with gradients the call goes a longer way to the same operator
        assert torch.equal(OURS[form](x.requires_grad_(), w, options), result)


@devices
@pytest.mark.parametrize("dtype", [S8, U8], ids=NAMES.get)
def test_integers_are_exact(dtype, device):
    w, x = sparse(N, K, dtype=dtype, device=device), dense(M, K, dtype=dtype, device=device)
    expected = x.cpu().int() @ w.to_dense().cpu().int().t()
    for result in (tcgemm.linear(x, w), x @ w.t(), (w @ x.t()).t()):
        assert result.dtype is S32 and torch.equal(result.cpu(), expected)
    mixed = tcgemm.linear(x.to(U8 if dtype is S8 else S8).abs(), w)
    assert mixed.dtype is S32


@devices
@every_dtype
def test_out(dtype, device):
    w, x = sparse(N, K, dtype=dtype, device=device), dense(M, K, dtype=dtype, device=device)
    expected = tcgemm.linear(x, w, out_dtype=F32)
    out = torch.empty(N, M, device=device).t()
    assert tcgemm.linear(x, w, out_dtype=F32, out=out) is out and torch.equal(out, expected)
    out = torch.empty(N, M, device=device)
    assert tcgemm.mm(w, x.t(), out_dtype=F32, out=out) is out
    close(out, expected.t())


@devices
@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 9, 130), (70, 33, 7), (3, 5, 0), (2, 0, 8)])
@pytest.mark.parametrize("dtype", [BF16, F32, S8], ids=NAMES.get)
def test_ragged_sizes(shape, dtype, device):
    m, n, k = shape
    w, x = sparse(n, k, dtype=dtype, device=device), dense(m, k, dtype=dtype, device=device)
    word = "high" if dtype is F32 else None
    expected = tcgemm.linear(x, w.to_dense(), out_dtype=F32, precision=word)
    close(tcgemm.linear(x, w, out_dtype=F32), expected)
    close(tcgemm.mm(w, x.t(), out_dtype=F32).t(), expected)


def test_a_product_of_two_makes_one_of_them_dense():
    first, second = sparse(N, K), sparse(M, K)
    close(first @ second.t(), first.to_dense() @ second.to_dense().t())


# float32.


@devices
def test_float32_is_tf32_unless_it_is_asked_for_as_bf16(device):
    w, x = sparse(N, K, dtype=F32, device=device), dense(M, K, dtype=F32, device=device)
    d = w.to_dense()
    close(tcgemm.linear(x, w), tcgemm.linear(x, d, precision="high"))
    assert torch.equal(tcgemm.linear(x, w, precision="high"), F.linear(x, w))
    medium = tcgemm.linear(x, d, precision="medium")
    close(tcgemm.linear(x, w, precision="medium"), medium)
    four = tcgemm.compress24(dense(N, K, dtype=F32, device=device), pattern="2:4", prune=True)
    expected = tcgemm.linear(x, four.to_dense(), precision="medium")
    close(tcgemm.linear(x, four, precision="medium"), expected)
    with torch.autocast(device, dtype=BF16):
        for s in (w, four):
            result = F.linear(x, s)
            assert result.dtype is BF16
            close(result, tcgemm.linear(x.to(BF16), s.to_dense().to(BF16)))
            assert tcgemm.linear(x, s, precision="highest").dtype is BF16


def test_float32_of_two_in_four_never_reaches_a_product():
    x, w = dense(M, K, dtype=F32), sparse(N, K).float()
    assert w.pattern == "2:4"
    pieces = ["pattern '2:4' cannot be multiplied as tf32", 'precision="medium"', "1:2"]
    for call in (
        lambda: x @ w.t(),
        lambda: w @ x.t(),
        lambda: tcgemm.linear(x, w, precision="high"),
        lambda: tcgemm.linear(x, w, precision="highest"),
        lambda: torch.ops.tcgemm.linear(x, w),
        lambda: torch.ops.aten.mm(x, w.t()),
        lambda: w.t() @ x[:N],
    ):
        assert_error_message(call, pieces)
    one = tcgemm.compress24(w.to_dense(), pattern="1:2", prune=True)
    for call in (
        lambda: tcgemm.linear(x, one, precision="highest"),
        lambda: torch.ops.tcgemm.linear(x, one, precision="highest"),
    ):
        assert_error_message(call, ["is multiplied as tf32", 'pass "high"', "w.to_dense()"])


def test_refusals():
    x, w = dense(M, K), sparse(N, K)
    for call, pieces in (
        (lambda: tcgemm.linear(x[:, :-1], w), ["tcgemm.linear", "(24, 35) and (20, 36)", "K"]),
        (lambda: x @ w, ["tcgemm.matmul", "(24, 36) and (20, 36)"]),
        (lambda: tcgemm.bmm(x[None], w.t()), ["tcgemm.bmm", "matmul"]),
        (lambda: tcgemm.linear(x, dense(N, K), residual=w), ["residual is a SparseTensor24"]),
        (lambda: tcgemm.addmm(w, x, w.t()), ["c is a SparseTensor24", "c.to_dense()"]),
        (lambda: F.linear(x.half(), w), ["tcgemm.linear: weight is torch.bfloat16, but x is"]),
        (lambda: tcgemm.mm(x.half(), w.t()), ["tcgemm.mm: b is torch.bfloat16, but a is"]),
    ):
        assert_error_message(call, pieces)
    with pytest.raises(RuntimeError, match="bias"):
        tcgemm.linear(x, w, torch.randn(N + 1))
    with pytest.raises(RuntimeError, match="zero_a"):
        zero = torch.tensor(1, dtype=S32)
        tcgemm.linear(dense(M, K, dtype=S8), sparse(N, K, dtype=S8), zero_a=zero)
    with pytest.raises(RuntimeError, match="have none"):
        leaf = sparse(N, K, dtype=E4M3).requires_grad_()
        tcgemm.linear(dense(M, K, dtype=E4M3), leaf).sum().backward()
