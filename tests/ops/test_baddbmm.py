"""tcgemm.baddbmm beside torch.baddbmm."""

import pytest
import torch

import tcgemm

A, B, C = torch.randn(3, 6, 8), torch.randn(3, 8, 5), torch.randn(3, 6, 5)
NAN = torch.full((3, 6, 5), float("nan"))


@pytest.mark.parametrize(
    "c", [C, C[:1], C[0], C[0, 0], C[0, 0, 0], C[:, :1]], ids=lambda c: c.shape
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_as_torchs(c, dtype):
    c, a, b = (tensor.to(dtype) for tensor in (c, A, B))
    expected = torch.baddbmm(c.double(), a.double(), b.double(), beta=0.5, alpha=2)
    result = tcgemm.baddbmm(c, a, b, beta=0.5, alpha=2)
    tolerance = 1e-2 if dtype is torch.bfloat16 else 1e-5
    torch.testing.assert_close(result.double(), expected, rtol=tolerance, atol=tolerance)
    out = torch.empty(3, 5, 6, dtype=dtype).mT
    assert tcgemm.baddbmm(c, a, b, beta=0.5, alpha=2, out=out) is out and torch.equal(out, result)


def test_beta_zero_does_not_read_c():
    assert torch.equal(tcgemm.baddbmm(NAN, A, B, beta=0), tcgemm.bmm(A, B))


def test_options():
    bias, residual = torch.randn(5), torch.randn(6, 5)
    result = tcgemm.baddbmm(C, A, B, bias=bias, activation="relu", residual=residual)
    torch.testing.assert_close(result, torch.relu(C + A @ B + bias) + residual)
    values, scale = tcgemm.quantize(A, torch.int8, "row")
    weights, scale_b = tcgemm.quantize(B.mT, torch.int8, "row")
    result, amax = tcgemm.baddbmm(
        C,
        values,
        weights.mT,
        scale_a=scale,
        scale_b=scale_b.mT,
        scale_out=torch.tensor(0.5),
        amax=True,
        out_dtype=torch.float32,
    )
    dense = C + tcgemm.dequantize(values, scale) @ tcgemm.dequantize(weights, scale_b).mT
    torch.testing.assert_close(result, dense / 2)
    torch.testing.assert_close(amax, dense.abs().max())


def test_under_vmap_and_compile():
    many = torch.randn(4, 3, 6, 8)
    result = torch.vmap(tcgemm.baddbmm, in_dims=(None, 0, None))(C, many, B)
    torch.testing.assert_close(result, C + many @ B)
    compiled = torch.compile(tcgemm.baddbmm, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(C, A, B, beta=2.0), tcgemm.baddbmm(C, A, B, beta=2.0))


def test_a_prepared_and_a_sparse_operand_are_refused():
    prepared = tcgemm.prepare(torch.randn(5, 8)).t()
    with pytest.raises(TypeError, match=r"tcgemm.baddbmm: b is a Prepared"):
        tcgemm.baddbmm(C, A, prepared)
    sparse = tcgemm.compress24(torch.randn(5, 8), prune=True).t()
    with pytest.raises(RuntimeError, match=r"tcgemm.baddbmm: .* SparseTensor24"):
        tcgemm.baddbmm(C, A, sparse)
