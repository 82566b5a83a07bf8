"""The pages of docs/coming-from beside the libraries that they compare with.

The pages of torchao, Liger and compressed-tensors need these libraries. tests/repo/test_pages.py
runs the others.
"""

import importlib
import importlib.metadata
import os
import re
import sys

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

from support import pages, programs
from support.source_tree import ROOT

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


def test_compressed_tensors():
    pytest.importorskip("compressed_tensors")
    names = pages.run("docs/coming-from/compressed-tensors.md")
    assert names["logits"].isfinite().all()


def test_presets_of_compressed_tensors():
    """Every preset that the page says to be read is, and every other one is refused."""
    quantization = pytest.importorskip("compressed_tensors.quantization")
    presets = importlib.import_module("compressed_tensors.quantization.quant_scheme").PRESET_SCHEMES
    from tcgemm.integrations.transformers import TcgemmConfig

    read = {}
    for name in presets.keys() - {"UNQUANTIZED"}:
        groups = {"group_0": quantization.preset_name_to_scheme(name, ["Linear"])}
        config = quantization.QuantizationConfig(config_groups=groups).model_dump(mode="json")
        config["quant_method"] = "compressed-tensors"
        try:
            made = TcgemmConfig.of(config)
        except ValueError as error:
            assert "config_groups has" in str(error), name
        else:
            read[name] = (made.dtype, made.granularity)
    rows = {"FP8_DYNAMIC": "row", "FP8": "tensor", "FP8_BLOCK": "128x128"}
    expected = {name: ("float8_e4m3fn", granularity) for name, granularity in rows.items()}
    assert read == expected | dict.fromkeys(("W8A8", "INT8"), ("int8", "row"))
    text = (ROOT / "docs/coming-from/compressed-tensors.md").read_text()
    table = text.split("| preset of")[1].split("\n\n")[0]
    named = set(re.findall(r"`([A-Z0-9]{3,}(?:_[A-Z]+)?)`", table))
    assert {*read} < named <= {*presets}


LIGER = """
from support import pages
from tcgemm.nn import Linear

names = pages.run("docs/coming-from/liger.md")
mlp = names["model"].model.layers[0].mlp
assert type(mlp).__name__ == "LigerSwiGLUMLP" and type(mlp.up_proj) is Linear
"""


@pytest.mark.nightly
def test_liger():
    """In a process of its own: Liger changes the classes of transformers."""
    pytest.importorskip("liger_kernel")
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests"), *sys.path])}
    process = programs.run(LIGER, env={**os.environ, **paths}, timeout=300)
    assert process.returncode == 0, process.stderr
    module = importlib.import_module("liger_kernel.transformers")
    functional = importlib.import_module("liger_kernel.transformers.functional")
    text = (ROOT / "docs/coming-from/liger.md").read_text()
    for name in set(re.findall(r"`((?:Liger|liger_|apply_liger)\w+)", text)):
        assert hasattr(module, name) or hasattr(functional, name), name


def test_names_of_cublas():
    """The names that the page about emulation has, in the installed library and header."""
    files = importlib.metadata.files("nvidia-cublas") if has_package("nvidia-cublas") else None
    paths = [
        file.locate() for file in files or [] if file.name in ("libcublas.so.13", "cublas_api.h")
    ]
    if not paths:
        pytest.skip("no cuBLAS of CUDA 13 is installed")
    content = b"".join(path.read_bytes() for path in paths)
    text = (ROOT / "docs/coming-from/cublas-emulation.md").read_text()
    names = set(re.findall(r"`(CUBLAS_[A-Z0-9_]+)", text))
    assert len(names) == 6
    assert not [name for name in names if name.encode() not in content]


def has_package(name):
    try:
        return bool(importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return False


def test_float8_training_of_torchao(torchao):
    """The recipes and options of torchao.float8 that the page names."""
    config = importlib.import_module("torchao.float8.config")
    recipes = {one.value for one in config.Float8LinearRecipeName}
    assert recipes == {"tensorwise", "rowwise", "rowwise_with_gw_hp"}
    assert {one.value for one in config.ScalingType} == {"dynamic", "disabled"}
    names = config.Float8LinearConfig.__dataclass_fields__
    assert {"enable_fsdp_float8_all_gather", "pad_inner_dim"} <= set(names)


@pytest.fixture
def bitsandbytes():
    return pytest.importorskip("bitsandbytes")


def test_bitsandbytes_on_the_cpu(bitsandbytes):
    """The left column of docs/coming-from/bitsandbytes.md, beside the right one."""
    torch.manual_seed(0)
    functional = importlib.import_module("bitsandbytes.functional")
    linear = torch.nn.Linear(128, 64)
    theirs = bitsandbytes.nn.Linear8bitLt(128, 64, has_fp16_weights=False, threshold=0.0)
    theirs.load_state_dict(linear.state_dict())
    theirs = theirs.to("cpu")
    scb, codes = theirs.weight.SCB, theirs.weight.detach().clone()
    assert codes.dtype is torch.int8 and scb.shape == (64,)
    layer = QuantLinear(128, 64, dtype=torch.int8, granularity="row")
    state = {"weight": codes, "weight_scale": scb[:, None] / 127, "bias": linear.bias.detach()}
    layer.load_state_dict(state)
    x = torch.randn(8, 128).half()
    assert torch.allclose(layer(x).float(), theirs(x).float(), atol=0.02)
    assert tcgemm.swap_linear(torch.nn.Sequential(theirs)).swapped == []

    rounded, row_stats, _ = functional.int8_vectorwise_quant(x)
    values, scale = tcgemm.quantize(x, torch.int8, "row")
    assert (rounded.int() - values.int()).abs().max() <= 1
    assert torch.allclose(scale[:, 0], row_stats / 127, rtol=1e-3)
    sums = functional.int8_linear_matmul(rounded, codes)
    assert torch.equal(sums, tcgemm.linear(rounded, codes))
    out = functional.int8_mm_dequant(sums, row_stats, scb, bias=linear.bias.detach().half())
    scales = {"scale_a": row_stats[:, None] / 127, "scale_b": scb[None] / 127}
    options = {**scales, "out_dtype": torch.float16}
    expected = tcgemm.linear(rounded, codes, linear.bias.detach(), **options)
    assert out.dtype is torch.float16 and torch.allclose(out, expected, atol=0.01)

    weight = linear.weight.detach().bfloat16()
    four, quant_state = functional.quantize_4bit(weight, quant_type="nf4", blocksize=64)
    packed = tcgemm.packed.from_bitsandbytes(four, quant_state)
    back = functional.dequantize_4bit(four, quant_state)
    assert torch.equal(packed.dequantize(torch.bfloat16), back)


def test_from_pretrained_takes_no_load_in_8bit(tmp_path):
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "vocab_size": 64}
    config = transformers.LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2)
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path)
    for word in ("load_in_8bit", "load_in_4bit"):
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{word}'"):
            transformers.LlamaForCausalLM.from_pretrained(tmp_path, **{word: True})


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
