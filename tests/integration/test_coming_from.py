"""The pages of docs/coming-from beside the libraries that they compare with.

The page docs/coming-from/torchao.md needs torchao. tests/repo/test_pages.py runs the others.
"""

import pytest
import torch
from torch.sparse._semi_structured_conversions import (
    sparse_semi_structured_from_dense_cutlass as torch_compress,
)
from torch.sparse._semi_structured_conversions import (
    sparse_semi_structured_to_dense_cutlass as torch_decompress,
)

import tcgemm
from tcgemm.nn import QuantLinear, SparseLinear24

from support import pages

E4M3 = torch.float8_e4m3fn
# The pages describe torch itself as of this version; a later one may differ.
of_torch_2_11 = pytest.mark.skipif(
    not torch.__version__.startswith("2.11."), reason="the pages describe torch 2.11"
)


@pytest.fixture
def torchao():
    return pytest.importorskip("torchao.quantization")


def test_torchao(torchao):
    pages.run("docs/coming-from/torchao.md")


def model_of(to=None, **options):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64))
    if to:
        tcgemm.swap_linear(model, to=to, **options)
    return model


def test_scales_of_torchao(torchao):
    weight = model_of()[0].weight.detach()
    int8, e4m3 = model_of(), model_of()
    torchao.quantize_(int8, torchao.Int8WeightOnlyConfig())
    torchao.quantize_(e4m3, torchao.Float8WeightOnlyConfig())
    assert torch.equal(int8[0].weight.scale, weight.abs().amax(1, keepdim=True) / 127.5)
    values, scale = tcgemm.quantize(weight, E4M3, "row")
    assert torch.equal(e4m3[0].weight.scale, scale)
    assert torch.equal(e4m3[0].weight.qdata.float(), values.float())
    half = model_of().bfloat16()
    weight = half[0].weight.detach().float()
    torchao.quantize_(half, torchao.Int8WeightOnlyConfig())
    error = half[0].weight.scale * 127.5 / weight.abs().amax(1, keepdim=True) - 1
    assert 2**-10 < error.abs().max() < 2**-8


def test_torchao_beside_layers_of_tcgemm(torchao):
    x = torch.randn(4, 64)
    model = model_of(tcgemm.nn.Linear)
    torchao.quantize_(model, torchao.Int8WeightOnlyConfig())
    with pytest.raises(NotImplementedError, match=r"func=<OpOverload\(op='tcgemm.linear'"):
        model(x)
    for to in (QuantLinear, SparseLinear24):
        model = model_of(to)
        expected = model(x)
        torchao.quantize_(model, torchao.Int8WeightOnlyConfig())
        assert type(model[0]) is to and torch.equal(model(x), expected)


def test_a_layer_of_bitsandbytes_stays():
    class Linear8bitLt(torch.nn.Linear):
        pass

    model = torch.nn.Sequential(Linear8bitLt(64, 64))
    report = tcgemm.swap_linear(model)
    assert report.skipped == {"0": "is a subclass of torch.nn.Linear (Linear8bitLt)"}


def test_torch_compresses_a_tensor_without_the_pattern():
    w = torch.ones(64, 128, dtype=torch.bfloat16)
    assert (torch_decompress(*torch_compress(w)) == 0).float().mean() == 0.5
    with pytest.raises(RuntimeError, match="w does not have the pattern 2:4"):
        tcgemm.compress24(w)


@of_torch_2_11
def test_the_result_scale_of_scaled_mm_divides_on_the_cpu():
    """On CUDA torch multiplies by it, or ignores it: pytorch#190449."""
    a, b, half = torch.ones(16, 16).to(E4M3), torch.ones(16, 16).to(E4M3).t(), torch.tensor(0.5)
    unit = torch.tensor(1.0)
    by_torch = torch._scaled_mm(a, b, unit, unit, scale_result=half, out_dtype=E4M3)
    out = tcgemm.mm(a, b, scale_out=half, out_dtype=E4M3)
    assert by_torch.float().unique().tolist() == [32] and out.float().unique().tolist() == [8]


@of_torch_2_11
def test_float8_results_of_scaled_mm():
    a, b, unit = torch.ones(16, 16).to(E4M3), torch.ones(16, 16).to(E4M3).t(), torch.tensor(1.0)
    assert torch._scaled_mm(a, b, unit, unit).dtype is E4M3
    torch_result = torch._scaled_mm(a, b, unit * 100, unit, out_dtype=E4M3)
    result = tcgemm.mm(a, b, scale_a=unit * 100, out_dtype=E4M3)
    assert torch_result.float().isnan().all() and result.float().unique().tolist() == [448]
    with pytest.raises(RuntimeError, match="only supports per-tensor scaling for CPU backend"):
        torch._scaled_mm(a, b, torch.ones(16, 1), torch.ones(1, 16), out_dtype=torch.bfloat16)


def test_options_of_int32_results():
    a, b = (torch.randint(-9, 9, (8, 8), dtype=torch.int8) for _ in range(2))
    matrix, zero = torch.ones(8, 8, dtype=torch.int32), torch.tensor(3, dtype=torch.int32)
    sums = a.int() @ b.int()
    options = {"bias": matrix[0], "residual": matrix, "activation": "relu", "zero_a": zero}
    expected = (2 * ((a.int() - 3) @ b.int()) + 3 * matrix + 1).relu() + 1
    assert torch.equal(tcgemm.addmm(matrix, a, b, alpha=2, beta=3, **options), expected)
    assert torch.equal(tcgemm.mm(a, b), sums)
    for options_of_floats in ({"scale_a": torch.ones(1)}, {"activation": "gelu"}):
        with pytest.raises(RuntimeError, match="is computed in integers alone"):
            tcgemm.mm(a, b, **options_of_floats)
