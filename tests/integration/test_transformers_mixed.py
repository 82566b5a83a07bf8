"""Models with layers of several kinds, saved and loaded by save_pretrained and from_pretrained."""

import copy
import json

import pytest
import torch

import tcgemm
from tcgemm.nn import Float8Linear, PackedLinear, QuantLinear, SparseLinear24

from support.error_asserts import error_message
from support.packed_weight_cases import bits
from support.transformer_models import (
    bert,
    gpt2,
    llama,
    logits,
    model_and_inputs,
    saved,
    t5,
    transformers,
)

integration = pytest.importorskip("tcgemm.integrations.transformers")
TcgemmConfig = integration.TcgemmConfig
TABLE = [float(number) / 8 for number in range(-8, 8)]
SWAPS = {
    "q_proj": {"to": QuantLinear, "dtype": "int8"},
    "k_proj": {"to": QuantLinear, "dtype": "float8_e5m2", "granularity": "tensor"},
    "v_proj": {"to": PackedLinear, "format": "nf4", "group_size": 32},
    "o_proj": {"to": PackedLinear, "format": "int4", "group_size": 32, "zero_points": True},
    "0.mlp.gate_proj": {"to": SparseLinear24},
    "1.mlp.gate_proj": {"to": SparseLinear24, "method": "transposable"},
    "0.mlp.up_proj": {"to": SparseLinear24, "learns": True, "refresh_every": 3},
    "1.mlp.up_proj": {"to": SparseLinear24, "learns": True, "gradient": "straight_through"},
    "0.mlp.down_proj": {"to": Float8Linear, "scaling": "delayed", "history": 4},
    "1.mlp.down_proj": {"to": PackedLinear, "format": "table", "table": TABLE, "group_size": 32},
    "lm_head": {"to": PackedLinear, "format": "int8"},
}


def mixed(folder):
    kind, inputs = saved(llama, folder / "dense", torch.bfloat16)
    model = kind.from_pretrained(folder / "dense").eval()
    for name, options in SWAPS.items():
        tcgemm.swap_linear(model, f"*{name}", **options)
    return model, inputs


def assert_same(model, other):
    states = [one.state_dict() for one in (model, other)]
    assert states[0].keys() == states[1].keys()
    for name, tensor in states[0].items():
        assert torch.equal(bits(tensor), bits(states[1][name])), name


def leaves(model):
    return {name: str(one) for name, one in model.named_modules() if not list(one.children())}


def test_a_mixed_model_is_saved_and_loaded(tmp_path):
    model, inputs = mixed(tmp_path)
    weight = model.model.layers[0].mlp.up_proj.weight
    with torch.no_grad():
        weight.mul_(torch.linspace(3, 0.1, weight.numel()).view_as(weight))  # other magnitudes
    for _ in range(2):
        model.save_pretrained(tmp_path)
        again = type(model).from_pretrained(tmp_path)
        assert leaves(again) == leaves(model)
        assert_same(again, model)
        assert torch.equal(logits(again, inputs), logits(model, inputs))
        model = again
    options = integration.layers_of(model)
    assert TcgemmConfig.of_model(model).layers == options and len(options) == len(SWAPS)
    base = transformers.LlamaModel.from_pretrained(tmp_path)  # names without the prefix
    assert_same(base, model.model)


def test_undo_and_dense_layers_leave_no_config(tmp_path):
    model, inputs = model_and_inputs(llama)
    expected = logits(model, inputs)
    tcgemm.swap_linear(model)  # saved as torch's layers
    assert not hasattr(model, "hf_quantizer")
    first = tcgemm.swap_linear(model, "*.mlp.*", to=QuantLinear)
    second = tcgemm.swap_linear(model, "*.self_attn.*", to=SparseLinear24)
    model.save_pretrained(tmp_path)
    facts = json.loads((tmp_path / "config.json").read_text())["quantization_config"]
    assert [one["layer"] for one in facts["layers"]] == ["SparseLinear24", "QuantLinear"]
    second.undo()
    model.save_pretrained(tmp_path)
    facts = json.loads((tmp_path / "config.json").read_text())["quantization_config"]
    assert [one["layer"] for one in facts["layers"]] == ["QuantLinear"]
    first.undo()
    assert not hasattr(model, "hf_quantizer")
    model.save_pretrained(tmp_path)
    assert "quantization_config" not in json.loads((tmp_path / "config.json").read_text())
    assert torch.equal(logits(type(model).from_pretrained(tmp_path), inputs), expected)


@pytest.mark.parametrize("make", [bert, gpt2, t5], ids=lambda make: make.__name__)
def test_a_model_of_swap_linear_needs_no_config(make, tmp_path):
    model, inputs = model_and_inputs(make)
    tcgemm.swap_linear(model, to=QuantLinear, dtype="int8")
    twin = copy.deepcopy(model)  # has a quantizer of its own
    twin.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path)
    assert leaves(again) == leaves(model)
    assert torch.equal(logits(again, inputs), logits(model, inputs))


def test_a_part_of_a_model_takes_one_call(tmp_path):
    model, inputs = model_and_inputs(llama)
    tcgemm.swap_linear(model.model.layers, to=QuantLinear)
    model.config.quantization_config = TcgemmConfig.of_model(model)
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path)
    assert torch.equal(logits(again, inputs), logits(model, inputs))


def test_layers_of_a_config_quantise_a_dense_model(tmp_path):
    kind, inputs = saved(llama, tmp_path, torch.bfloat16)
    layers = [
        {"layer": "PackedLinear", "format": "nf4", "group_size": 32, "modules": ["*.mlp.*"]},
        {"layer": "QuantLinear", "dtype": torch.int8, "modules": ["*.q_proj", "*.k_proj"]},
    ]
    config = TcgemmConfig(layers=layers)
    model = kind.from_pretrained(tmp_path, quantization_config=config)
    kinds = [type(module) for module in model.modules()]
    assert kinds.count(PackedLinear) == 6 and kinds.count(QuantLinear) == 4
    model.save_pretrained(tmp_path / "mixed")
    again = kind.from_pretrained(tmp_path / "mixed")
    assert torch.equal(logits(again, inputs), logits(model, inputs))
    config = TcgemmConfig(layers=[{"layer": "QuantLinear", "modules": ["*.no_such"]}])
    with pytest.raises(ValueError, match=r"layers names \*.no_such, but LlamaForCausalLM has no"):
        kind.from_pretrained(tmp_path, quantization_config=config)


def test_a_model_without_such_layers_has_no_config():
    model, _ = model_and_inputs(llama)
    assert error_message(lambda: TcgemmConfig.of_model(model), ValueError) == (
        "TcgemmConfig.of_model: LlamaForCausalLM has no layer of tcgemm that needs a config; "
        "expected one of QuantLinear, PackedLinear, SparseLinear24, Float8Linear. Save it without."
    )


@pytest.mark.parametrize("dtype", [None, torch.float16])
def test_dequantize(dtype, tmp_path):
    model, _ = mixed(tmp_path)
    weight = model.model.layers[0].self_attn.q_proj.to_linear(dtype or torch.bfloat16).weight
    assert model.dequantize(dtype) is model
    assert not hasattr(model, "hf_quantizer")
    linears = [one for one in model.modules() if isinstance(one, torch.nn.Linear)]
    assert len(linears) == 15 and {type(one) for one in linears} == {torch.nn.Linear}
    assert {one.weight.dtype for one in linears} == {dtype or torch.bfloat16}
    assert torch.equal(model.model.layers[0].self_attn.q_proj.weight, weight)
    model.to(dtype or torch.bfloat16).save_pretrained(tmp_path / "d")
    again = type(model).from_pretrained(tmp_path / "d")
    assert_same(again, model)
