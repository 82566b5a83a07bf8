"""Checkpoints of DeepSeek's FP8 and of compressed-tensors become QuantLinear, bit for bit."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

import tcgemm

from support.transformer_models import bert, llama, mixtral, model_and_inputs, transformers

integration = pytest.importorskip("tcgemm.integrations.transformers")
TcgemmConfig = integration.TcgemmConfig
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}


def compressed(strategy, kind="float", **weights):
    """A quantization_config of compressed-tensors."""
    of_weights = {"num_bits": 8, "type": kind, "strategy": strategy, "symmetric": True} | weights
    inputs = {"num_bits": 8, "type": kind, "strategy": "token", "dynamic": True}
    group = {"targets": ["Linear"], "weights": of_weights, "input_activations": inputs}
    return {
        "quant_method": "compressed-tensors",
        "format": "float-quantized" if kind == "float" else "int-quantized",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
    }


# name -> (the config of the checkpoint, dtype, granularity, name and form of its scales)
KINDS = {
    "fp8 blocks": (FP8, torch.float8_e4m3fn, "128x128", "weight_scale_inv", lambda s: s),
    "fp8 tensor": (
        FP8 | {"weight_block_size": None},
        *(torch.float8_e4m3fn, "tensor", "weight_scale_inv", lambda s: s),
    ),
    "compressed rows": (
        compressed("channel"),
        *(torch.float8_e4m3fn, "row", "weight_scale", lambda s: s),
    ),
    "compressed tensor": (
        compressed("tensor"),
        *(torch.float8_e4m3fn, "tensor", "weight_scale", lambda s: s.reshape(1)),
    ),
    "compressed blocks": (
        compressed("block", block_structure=[128, 128]),
        *(torch.float8_e4m3fn, "128x128", "weight_scale", lambda s: s),
    ),
    "compressed int8": (
        compressed("channel", "int"),
        *(torch.int8, "row", "weight_scale", lambda s: s),
    ),
}


def checkpoint(folder, name, build=llama):
    """Writes a checkpoint as others do; (its model class, inputs, the dense folder)."""
    config, dtype, granularity, scale_name, form = KINDS[name]
    model, inputs = model_and_inputs(build)
    dense, folder = folder / "dense", folder / "other"
    model.save_pretrained(dense)
    model.save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    for key in list(tensors):
        weight = tensors[key]
        if key.endswith("weight") and weight.ndim == 2 and "proj" in key:
            tensors[key], scale = tcgemm.quantize(weight, dtype, granularity)
            tensors[key.replace("weight", scale_name)] = form(scale).contiguous()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    facts = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(facts | {"quantization_config": config}))
    return type(model), inputs, dense, folder


def load(kind, folder):
    config = transformers.AutoConfig.from_pretrained(folder)
    config.quantization_config = TcgemmConfig.of(config.quantization_config).to_dict()
    return kind.from_pretrained(folder, config=config)


def logits(model, inputs):
    with torch.no_grad():
        return model.eval()(**inputs).logits


@pytest.mark.parametrize("name", KINDS)
def test_a_checkpoint_is_read_with_its_scales(name, tmp_path):
    kind, inputs, dense, folder = checkpoint(tmp_path, name)
    model = load(kind, folder)
    _, dtype, granularity, *_ = KINDS[name]
    layers = [module for module in model.modules() if isinstance(module, tcgemm.nn.QuantLinear)]
    assert len(layers) == 14 and {module.granularity for module in layers} == {granularity}
    own = TcgemmConfig(dtype=dtype, granularity=granularity)
    expected = logits(kind.from_pretrained(dense, quantization_config=own), inputs)
    assert torch.equal(logits(model, inputs), expected)
    model.save_pretrained(tmp_path / "own")  # as any other model of tcgemm's
    facts = json.loads((tmp_path / "own" / "config.json").read_text())["quantization_config"]
    assert (facts["quant_method"], facts["checkpoint"]) == ("tcgemm", "tcgemm")
    assert torch.equal(logits(kind.from_pretrained(tmp_path / "own"), inputs), expected)


def test_only_layers_with_a_scale_are_swapped(tmp_path):
    """Whatever the config says of other modules: one that is dense in the file stays dense."""
    kind, inputs, dense, folder = checkpoint(tmp_path, "fp8 blocks")
    tensors, original = (load_file(path / "model.safetensors") for path in (folder, dense))
    name = "model.layers.1.mlp.up_proj.weight"
    tensors[name] = original[name]
    del tensors[f"{name}_scale_inv"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    model = load(kind, folder)
    assert type(model.model.layers[1].mlp.up_proj) is torch.nn.Linear
    assert torch.equal(model.model.layers[1].mlp.up_proj.weight, original[name])
    assert logits(model, inputs).isfinite().all()


def test_scales_of_another_name_are_refused(tmp_path):
    """The file has a scale as compressed-tensors names it, and says that it is of fp8."""
    kind, _, _, folder = checkpoint(tmp_path, "fp8 blocks")
    tensors = load_file(folder / "model.safetensors")
    name = "model.layers.1.mlp.up_proj.weight_scale"
    tensors[name] = tensors.pop(f"{name}_inv")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=f"The checkpoint has {name}, but the scales of the"):
        load(kind, folder)


def test_scales_that_no_layer_takes_are_refused(tmp_path):
    kind, _, _, folder = checkpoint(tmp_path, "fp8 blocks")
    tensors = load_file(folder / "model.safetensors")
    for key in ("weight", "weight_scale_inv"):
        tensors[f"model.layers.0.experts.3.{key}"] = torch.ones(1)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"1 modules that are no linear layers .*experts\.3"):
        load(kind, folder)


def test_experts_are_refused(tmp_path):
    """transformers merges them into one tensor, which no linear layer has."""
    model, _ = model_and_inputs(mixtral)
    folder = tmp_path / "other"
    model.save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    experts = [key for key in tensors if ".experts." in key and key.endswith("weight")]
    assert experts
    for key in experts:
        tensors[key], tensors[f"{key}_scale_inv"] = tcgemm.quantize(
            tensors[key], torch.float8_e4m3fn, "128x128"
        )
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    facts = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(facts | {"quantization_config": FP8}))
    with pytest.raises(ValueError, match=r"no linear layers of this model|no layer that"):
        load(type(model), folder)


def test_a_model_within_another_is_read(tmp_path):
    """The names of a checkpoint have a prefix that the model lacks."""
    _, inputs, _, folder = checkpoint(tmp_path, "compressed rows")
    model = load(transformers.AutoModel, folder)
    assert type(model).__name__ == "LlamaModel"
    assert isinstance(model.layers[0].self_attn.q_proj, tcgemm.nn.QuantLinear)
    network = load(transformers.LlamaForCausalLM, folder)
    with torch.no_grad():
        states = model.eval()(**inputs).last_hidden_state
        assert torch.equal(states, network.eval().model(**inputs).last_hidden_state)


def test_a_scale_of_another_shape_is_refused(tmp_path, caplog, monkeypatch):
    kind, _, _, folder = checkpoint(tmp_path, "compressed rows")
    tensors = load_file(folder / "model.safetensors")
    name = "model.layers.0.mlp.up_proj.weight_scale"
    tensors[name] = torch.ones(7, 1)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    monkeypatch.setattr(transformers.utils.logging.get_logger("transformers"), "propagate", True)
    with pytest.raises(RuntimeError, match="automatic conversion of the weights"):
        load(kind, folder)
    assert "has shape (7, 1) in the checkpoint; expected the 64 elements" in caplog.text


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"quant_method": "awq"}, "quant_method is 'awq'; expected 'fp8' or 'compressed-tensors'"),
        (FP8 | {"weight_block_size": [64, 64]}, r"weight_block_size is \[64, 64\]; expected"),
        (compressed("group"), "strategy 'group'"),
        (compressed("channel", num_bits=4), "4 bits"),
        (compressed("channel", symmetric=False), "symmetric False"),
        (compressed("block", block_structure=[64, 128]), r"blocks of \[64, 128\]"),
        (compressed("block", "int", block_structure=[128, 128]), "of type 'int'"),
        ({"quant_method": "compressed-tensors"}, "has 0 kinds of weights"),
    ],
)
def test_other_checkpoints_are_refused(config, words):
    with pytest.raises(ValueError, match=words):
        TcgemmConfig.of(config)


def test_weights_alone_are_refused():
    config = compressed("channel")
    config["config_groups"]["group_0"]["input_activations"] = None
    with pytest.raises(ValueError, match="only the weights have 8 bits"):
        TcgemmConfig.of(config)


def test_configs_of_transformers_are_taken():
    config = TcgemmConfig.of(transformers.FineGrainedFP8Config(weight_block_size=(128, 128)))
    assert (config.checkpoint, config.granularity, config.dtype) == (
        *("fp8", "128x128"),
        "float8_e4m3fn",
    )
    with pytest.raises(ValueError, match="checkpoint is 'gguf'"):
        TcgemmConfig(checkpoint="gguf")


def test_patterns_of_compressed_tensors():
    model, _ = model_and_inputs(bert)
    names = [name for name, _ in model.named_modules()]
    matches = integration._modules(r"re:.*attention\.self\.query$", names)
    assert len(matches) == 2 and all(name.endswith("query") for name in matches)


def test_files_that_are_no_safetensors(tmp_path):
    from tcgemm.integrations import checkpoints

    with pytest.raises(ValueError, match=r"pytorch_model\.bin is no file of safetensors"):
        checkpoints.scaled_modules([tmp_path / "pytorch_model.bin"], "weight_scale")
