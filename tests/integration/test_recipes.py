"""The recipes that need other libraries, and the limits that they name.

The pages are docs/recipes/transformers.md, docs/recipes/lora.md, docs/recipes/aotinductor.md and
docs/recipes/onnx.md. docs/recipes/train-and-serve.md is here because it also runs on a GPU.
"""

import importlib

import pytest
import torch

import tcgemm
from tcgemm import _library
from tcgemm.nn import QuantLinear, SparseLinear24

from support import pages, programs


def need(*names):
    """A decorator: skip the test where a package is missing."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


def model_of(to=tcgemm.nn.Linear, **options):
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Linear(32, 4)).eval()
    tcgemm.swap_linear(model, to=to, **options)
    return model


def train_and_serve():
    """Each step of the page compares the bits of the trainer and of the server."""
    results = pages.run("docs/recipes/train-and-serve.md")["results"]
    assert len(results) == 3
    for packed, trained, quantised, trained8 in results:
        for served, own, most in ((packed, trained, 0.5), (quantised, trained8, 0.25)):
            assert 0 < (served - own).norm() / own.norm() < most  # the formats differ
    assert not torch.equal(results[0][1], results[1][1])


def test_a_model_that_trains_and_serves(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    train_and_serve()


@pytest.mark.gpu
@pytest.mark.sm90
def test_a_model_that_trains_and_serves_by_graphs():
    train_and_serve()


@need("transformers")
def test_transformers():
    names = pages.run("docs/recipes/transformers.md")
    report = names["report"]
    assert len(report.swapped) == 15 and report.reached == report.weights
    assert names["tokens"].shape == (1, 16)
    experts = names["experts"]
    assert len(experts.swapped) == 9 and experts.reached < experts.weights / 5
    assert "2 MixtralExperts (gate_up_proj, down_proj)" in str(experts)


@need("transformers")
@pytest.mark.parametrize(
    ("how", "function"), [("eager", "mm"), ("batched_mm", "bmm"), ("grouped_mm", "_grouped_mm")]
)
def test_products_of_experts_on_the_cpu(how, function):
    """The table of docs/recipes/transformers.md."""
    transformers = importlib.import_module("transformers")
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "vocab_size": 64}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 4}
    model = transformers.MixtralForCausalLM(transformers.MixtralConfig(**sizes, **heads)).eval()
    assert model.config._experts_implementation == "grouped_mm"  # the default
    model.set_experts_implementation(how)
    with torch.no_grad(), tcgemm.use() as used:
        model(torch.arange(12).reshape(1, 12))
    report = used.report()
    assert report.left == 0 and {row.function for row in report.rows} == {"mm", function}
    assert report.taken >= 8


@need("transformers")
def test_a_swapped_model_is_saved_and_loaded(tmp_path):
    transformers = importlib.import_module("transformers")
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "vocab_size": 64}
    config = transformers.LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2)
    ids = torch.arange(12).reshape(1, 12)
    for to in (QuantLinear, SparseLinear24):
        model = transformers.LlamaForCausalLM(config).eval()
        tcgemm.swap_linear(model, to=to, skip="lm_head")
        model.save_pretrained(tmp_path / to.__name__)
        reloaded, info = transformers.LlamaForCausalLM.from_pretrained(
            tmp_path / to.__name__, output_loading_info=True
        )
        assert not info["unexpected_keys"] and not info["missing_keys"]
        assert type(reloaded.model.layers[0].mlp.up_proj) is to
        assert torch.equal(reloaded.eval()(ids).logits, model(ids).logits)


@need("transformers")
def test_ties_are_refused():
    transformers = importlib.import_module("transformers")
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "vocab_size": 64}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    config = transformers.LlamaConfig(**sizes, **heads, tie_word_embeddings=True)
    for to in (QuantLinear, SparseLinear24):
        model = transformers.LlamaForCausalLM(config)
        tcgemm.swap_linear(model, to=to, shared=True)
        with pytest.raises(RuntimeError, match=f"{to.__name__}: weight is assigned"):
            model.tie_weights()


@need("accelerate")
def test_offloaded_buffers():
    accelerate = importlib.import_module("accelerate")
    model = accelerate.cpu_offload(model_of(QuantLinear), "cpu", offload_buffers=True)
    with pytest.raises(RuntimeError, match="do not set offload_buffers of accelerate"):
        model(torch.ones(2, 16))


@need("peft")
def test_lora():
    names = pages.run("docs/recipes/lora.md")
    assert type(names["merged"][0]) is QuantLinear


WITHOUT = """
import peft, torch, tcgemm
from tcgemm.nn import QuantLinear, SparseLinear24

def error(call):
    try:
        call()
    except (ValueError, RuntimeError) as found:
        return str(found)

config = peft.LoraConfig(r=4, target_modules=["0"])
for to in (QuantLinear, SparseLinear24):
    model = torch.nn.Sequential(torch.nn.Linear(16, 16))
    tcgemm.swap_linear(model, to=to)
    said = error(lambda: peft.get_peft_model(model, config))
    assert f"Target module {to.__name__}(" in said and "not supported" in said, said
model = peft.get_peft_model(torch.nn.Sequential(torch.nn.Linear(16, 16)), config)
tcgemm.swap_linear(model, "*.base_layer", to=QuantLinear)
assert "an operator writes into weight" in error(model.merge_and_unload)
"""


@pytest.mark.nightly
@need("peft")
def test_limits_of_peft_without_the_import():
    programs.run(WITHOUT, check=True, timeout=300)


@need("onnxscript")
def test_onnx():
    names = pages.run("docs/recipes/onnx.md")
    assert "Gemm" in [node.op_type for node in names["program"].model.graph]


@need("onnxscript")
def test_limits_of_onnx():
    model, x = model_of(), torch.randn(2, 16)
    name = r"No ONNX function found for <OpOverload\(op='tcgemm.linear', overload='default'\)>"
    with pytest.raises(torch.onnx.OnnxExporterError, match=name):
        torch.onnx.export(model, (x,), dynamo=True, verbose=False)
    model = model_of(QuantLinear, dtype=torch.int8)
    rounded = [module.weight.detach().clone() for module in model]
    tcgemm.swap_linear(model, to=torch.nn.Linear, dtype=torch.float32)
    for layer, weight in zip(model, rounded, strict=True):
        assert type(layer) is torch.nn.Linear and torch.equal(layer.weight, weight)


LOAD = """
import sys, torch
file, library, kind = sys.argv[1:]
load = torch._inductor.aoti_load_package if kind == "package" else torch.jit.load
try:
    print(load(file)(torch.ones(2, 16)))
except RuntimeError as error:
    print(error)
torch.ops.load_library(library)
print(tuple(load(file)(torch.ones(2, 16)).shape), "tcgemm" in sys.modules)
"""


def loaded_without_tcgemm(file, kind):
    """The output of a process that loads the file without the operators, then with the library."""
    process = programs.run(LOAD, file, _library.path().resolve(), kind)
    assert process.returncode == 0, process.stderr
    return process.stdout


@pytest.mark.nightly
def test_aot_inductor():
    names = pages.run("docs/recipes/aotinductor.md")
    text = loaded_without_tcgemm(names["package"], "package")
    assert text.startswith("Could not find schema for tcgemm::linear.")
    assert text.endswith("(2, 4) False\n")


def test_a_trace_needs_the_operators_and_nothing_else(tmp_path):
    with torch.no_grad():
        torch.jit.trace(model_of(), torch.ones(2, 16)).save(tmp_path / "traced.pt")
    text = loaded_without_tcgemm(tmp_path / "traced.pt", "trace")
    assert "Unknown builtin op: tcgemm::linear" in text and text.endswith("(2, 4) False\n")


def test_limits_of_traces():
    x = torch.ones(2, 16)
    with pytest.raises(torch.jit.TracingCheckError, match="Tracing failed sanity checks!"):
        torch.jit.trace(model_of(), x)
    with torch.no_grad(), pytest.raises(RuntimeError, match="aten::view"):
        torch.jit.trace(model_of(QuantLinear), x)
    for to in (tcgemm.nn.Linear, QuantLinear, SparseLinear24):
        with pytest.raises((RuntimeError, ValueError, torch.jit.frontend.NotSupportedError)):
            torch.jit.script(model_of(to))


def compiled(model, x, folder):
    program = torch.export.export(model, (x,))
    path = torch._inductor.aoti_compile_and_package(program, package_path=f"{folder}/model.pt2")
    return torch._inductor.aoti_load_package(path)


@pytest.mark.nightly
def test_aot_inductor_takes_sparse_layers(tmp_path):
    model, x = model_of(SparseLinear24), torch.randn(2, 16)
    torch.testing.assert_close(compiled(model, x, tmp_path)(x), model(x))


@pytest.mark.nightly
@pytest.mark.skipif(not torch.__version__.startswith("2.11."), reason="a fault of torch 2.11")
def test_aot_inductor_of_torch_2_11_passes_another_dtype(tmp_path, capfd):
    class Half(torch.nn.Linear):
        def forward(self, x):
            return tcgemm.linear(x, self.weight, self.bias, out_dtype=torch.bfloat16)

    x = torch.randn(2, 16)
    assert compiled(Half(16, 8), x, tmp_path)(x) is None
    assert "Not yet supported ScalarType QUInt8" in capfd.readouterr().err
