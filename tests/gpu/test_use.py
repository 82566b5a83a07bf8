"""tcgemm.use on a GPU: every function and dtype, autograd, autocast, compile, counts."""

import pytest
import torch
import torch.nn.functional as F

import tcgemm

from support import cases, reference
from support.cases import BF16, E4M3, F16, F32, F64, S8
from support.uses import by_torch, integers, same

pytestmark = pytest.mark.gpu
FLOATS = (F16, BF16, pytest.param(F32, marks=pytest.mark.sm90))
FLOATS += (pytest.param(F64, marks=pytest.mark.sm90),)


def cuda(*shape, dtype=BF16, largest=4):
    return integers(*shape, dtype=dtype, device="cuda", largest=largest)


@pytest.mark.parametrize("dtype", FLOATS)
def test_products(dtype):
    a, b, row = cuda(64, 72, dtype=dtype), cuda(72, 40, dtype=dtype), cuda(40, dtype=dtype)
    a3, b3 = cuda(3, 16, 24, dtype=dtype), cuda(3, 24, 40, dtype=dtype)
    same(torch.mm, a, b)
    same(torch.mm, a.t().contiguous().t(), b.t().contiguous().t())
    same(torch.addmm, row, a, b)
    same(torch.addmm, cuda(64, 40, dtype=dtype), a, b, beta=2, alpha=-1)
    same(torch.bmm, a3, b3)
    same(torch.baddbmm, row, a3, b3, beta=2)
    same(F.linear, a, b.t(), row)
    same(torch.einsum, "bik,kj->bij", a3, b3[0])
    out = torch.empty(40, 64, dtype=dtype, device="cuda").t()
    with tcgemm.use() as u:
        torch.mm(a, b, out=out)
    assert u.report().taken == 1
    reference.assert_exact(out, by_torch(torch.mm, a, b))


def test_wider_results():
    a, b, row = cuda(64, 72), cuda(72, 40), cuda(40)
    a3, b3 = cuda(3, 16, 24), cuda(3, 24, 40)
    same(torch.mm, a, b, out_dtype=F32)
    same(torch.bmm, a3, b3, out_dtype=F32)
    for function, args in ((torch.addmm, (row, a, b)), (torch.baddbmm, (row, a3, b3))):
        try:
            by_torch(function, *args, out_dtype=F32)
        except RuntimeError:
            continue  # torch asks for a c of the result's dtype in some versions
        same(function, *args, out_dtype=F32)


@pytest.mark.parametrize("use_gelu", [False, True])
def test_addmm_activation(use_gelu):
    a, b = (torch.randn(*s, device="cuda", dtype=BF16) for s in ((64, 72), (72, 40)))
    bias = torch.randn(40, device="cuda", dtype=BF16)
    expected = by_torch(torch._addmm_activation, bias, a, b, use_gelu=use_gelu)
    with tcgemm.use() as u:
        result = torch._addmm_activation(bias, a, b, use_gelu=use_gelu)
    assert u.report().taken == 1
    assert torch.allclose(result.float(), expected.float(), atol=0.1, rtol=0.02)


def test_int_mm():
    a, b = cuda(64, 72, dtype=S8, largest=127), cuda(72, 40, dtype=S8, largest=127)
    same(torch._int_mm, a, b.t().contiguous().t())


@pytest.mark.sm89
@pytest.mark.parametrize("fast", [False, True])
def test_scaled_mm(fast):
    a, b = cuda(64, 128, dtype=E4M3), cuda(48, 128, dtype=E4M3).t()
    one, two = (torch.tensor(value, device="cuda") for value in (1.0, 2.0))
    options = {"out_dtype": BF16, "use_fast_accum": fast}
    same(torch._scaled_mm, a, b, one, two, **options)
    same(torch._scaled_mm, a, b, one, two, bias=cuda(48), **options)
    if torch.cuda.get_device_capability() >= (9, 0):
        rows, columns = torch.full((64, 1), 0.5).cuda(), torch.full((1, 48), 4.0).cuda()
        same(torch._scaled_mm, a, b, rows, columns, **options)


def block_scales(*shape):
    """Scales whose first dimension is contiguous, as cuBLAS reads them."""
    return torch.randint(-2, 3, shape[::-1], device="cuda").float().exp2().t()


@pytest.mark.sm89
@pytest.mark.parametrize("fast", [False, True])
def test_scaled_mm_of_functional(fast):
    a, b = cuda(64, 128, dtype=E4M3), cuda(48, 128, dtype=E4M3).t()
    one, two = (torch.tensor([value], device="cuda") for value in (1.0, 2.0))
    kind = F.ScalingType.TensorWise
    same(F.scaled_mm, a, b, one, kind, two, kind, use_fast_accum=fast)
    same(F.scaled_mm, a, b, one, kind, two, kind, bias=cuda(48), use_fast_accum=fast)
    if torch.cuda.get_device_capability() >= (9, 0):
        rows, columns = torch.full((64, 1), 0.5).cuda(), torch.full((1, 48), 4.0).cuda()
        kind = F.ScalingType.RowWise
        same(F.scaled_mm, a, b, rows, kind, columns, kind, use_fast_accum=fast)


@pytest.mark.sm90
@pytest.mark.parametrize("k", [512, 640])
def test_scaled_mm_of_blocks(k):
    m, n = 256, 384
    a, b = cuda(m, k, dtype=E4M3), cuda(n, k, dtype=E4M3).t()
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("torch has scales of blocks for compute capability 9.0 alone")
    padded = (k // 128 + 3) // 4 * 4
    rows, blocks = F.ScalingType.BlockWise1x128, F.ScalingType.BlockWise128x128
    scale_a, scale_b = block_scales(m, k // 128), block_scales(n, k // 128)
    blocks_a, blocks_b = block_scales(padded, m // 128), block_scales(padded, n // 128)
    same(F.scaled_mm, a, b, scale_a, rows, scale_b, rows)
    same(F.scaled_mm, a, b, scale_a, rows, blocks_b, blocks)
    same(F.scaled_mm, a, b, blocks_a, blocks, scale_b, rows)


@pytest.mark.sm90
@pytest.mark.parametrize("setting", ["highest", "high"])
def test_float32_follows_torchs_setting(setting):
    a, b = torch.randn(256, 512, device="cuda"), torch.randn(512, 256, device="cuda")
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision(setting)
        with tcgemm.use() as u:
            result = torch.mm(a, b)
    finally:
        torch.set_float32_matmul_precision(before)
    assert torch.equal(result, tcgemm.mm(a, b, precision=setting))
    (row,) = u.report().rows
    assert row.dtype == {"highest": "f32", "high": "tf32"}[setting]


def test_what_this_gpu_has_no_kernel_for_is_torchs():
    a, b = cuda(8, 8, dtype=torch.complex64), cuda(8, 8, dtype=torch.complex64)
    with tcgemm.use() as u:
        torch.mm(a, b)
        if torch.cuda.get_device_capability() != (9, 0):
            torch.mm(cuda(8, 8, dtype=F64), cuda(8, 8, dtype=F64))
    assert u.report().taken == 0
    if torch.cuda.get_device_capability() != (9, 0):
        reasons = u.report().reasons
        assert any(reason.startswith("tcgemm: no kernel of this build") for reason in reasons)


def test_training_with_autocast():
    layer = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 8))
    layer, x = layer.cuda(), torch.randn(256, 64, device="cuda")

    def gradients():
        with torch.autocast("cuda", BF16):
            loss = layer(x).float().square().mean()
        return torch.autograd.grad(loss, list(layer.parameters()))

    expected = by_torch(gradients)
    with tcgemm.use() as u:
        result = gradients()
    assert (u.report().taken, u.report().left) == (5, 0), u.report()
    for tensor, torch_tensor in zip(result, expected, strict=True):
        assert torch.allclose(tensor, torch_tensor, atol=2e-3, rtol=0.05)


@pytest.mark.parametrize("mode", [None, "reduce-overhead", "max-autotune-no-cudagraphs"])
def test_compiled(mode):
    x, w = cuda(64, 128, largest=1), cuda(96, 128, largest=1)  # bf16 holds all sums
    bias, residual = cuda(96, largest=1), cuda(64, 96, largest=1)

    def function(x, w, bias, residual):
        return F.relu(F.linear(x, w, bias)) + residual

    expected = by_torch(function, x, w, bias, residual)
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, mode=mode)
    with tcgemm.use() as u, torch.no_grad():
        for _ in range(3):
            result = compiled(x, w, bias, residual).clone()
    reference.assert_exact(result, expected)
    names = {row.function for row in u.report().rows}
    assert "compiled mm + bias + relu + residual" in names, u.report()


def test_a_cuda_graph_holds_the_kernels_of_its_capture():
    a, b = cuda(64, 128), cuda(128, 96)
    with tcgemm.use() as u:
        graph, result = cases.graph_of(lambda: torch.mm(a, b))
    a.copy_(cuda(64, 128))
    graph.replay()
    reference.assert_exact(result, by_torch(torch.mm, a, b))
    assert u.report().taken == 2


def test_calls_do_not_wait_for_the_gpu():
    a, b = cuda(64, 128), cuda(128, 96)
    with tcgemm.use():
        assert cases.waits_for_nothing(lambda: torch.mm(a, b))


@pytest.mark.parametrize("n", (32, 31))
def test_grouped_products(n):
    a, b = cuda(40, 64), cuda(2, n, 64).mT
    ends = torch.tensor([16, 32], dtype=torch.int32, device="cuda")
    expected = by_torch(torch._grouped_mm, a, b, offs=ends)
    with tcgemm.use() as u:
        result = torch._grouped_mm(a, b, offs=ends)
        assert cases.waits_for_nothing(lambda: torch._grouped_mm(a, b, offs=ends))
    assert u.report().left == 0 and {row.function for row in u.report().rows} == {"_grouped_mm"}
    reference.assert_exact(result[:32], expected[:32])
    assert not result[32:].any() and result.stride() == expected.stride()


def test_a_gradient_of_grouped_products():
    a, b = cuda(40, 64).requires_grad_(), cuda(2, 32, 64).requires_grad_()
    like = {"dtype": BF16, "device": "cuda"}
    ends = torch.tensor([16, 32], dtype=torch.int32, device="cuda")
    with tcgemm.use() as u:
        torch._grouped_mm(a, b.mT, offs=ends).backward(torch.ones(40, 32, **like))
    assert u.report().taken == 3 and u.report().left == 0
    assert not a.grad[32:].any()
    reference.assert_exact(b.grad[1], a[16:32].detach().sum(0).expand(32, 64))
