"""from_pretrained with a TcgemmConfig on a GPU, on several devices, with offloaded weights."""

import pytest
import torch

import tcgemm

from support.transformer_models import layers, llama, logits, model_and_inputs, saved, tied_llama

integration = pytest.importorskip("tcgemm.integrations.transformers")
accelerate = pytest.importorskip("accelerate")
TcgemmConfig = integration.TcgemmConfig
CONFIGS = {
    "e4m3": {},
    "int8": {"dtype": "int8"},
    "sparse": {"layer": "SparseLinear24"},
}
every_config = pytest.mark.parametrize("name", CONFIGS)


def spread(first, second):
    """A device_map for the two layers of a Llama, with the head on the second device."""
    ahead = ("model.embed_tokens", "model.rotary_emb", "model.layers.0")
    behind = ("model.layers.1", "model.norm", "lm_head")
    return dict.fromkeys(ahead, first) | dict.fromkeys(behind, second)


TWO_GPUS = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
every_map = pytest.mark.parametrize(
    "device_map",
    [
        pytest.param("cuda", id="cuda"),
        pytest.param("auto", id="auto"),
        pytest.param(spread(0, "cpu"), id="GPU and CPU"),
        pytest.param(spread(0, "disk"), id="GPU and disk"),
        pytest.param(spread(0, 1), id="two GPUs", marks=TWO_GPUS),
    ],
)


def weights(model):
    """The tensors of tcgemm's layers by name, on the CPU."""
    result = {}
    for name in layers(model):
        state = model.get_submodule(name).state_dict()
        result |= {f"{name}.{key}": tensor.cpu() for key, tensor in state.items()}
    return result


def assert_same(tensors, expected):
    assert tensors.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(tensors[name], tensor), name


@pytest.mark.parametrize(
    ("name", "offload_buffers"),
    [("e4m3", False), ("int8", False), ("sparse", False), ("sparse", True)],
)
def test_offloaded_weights_are_swapped_and_saved(name, offload_buffers, tmp_path):
    kind, inputs = saved(llama, tmp_path / "dense")
    config = TcgemmConfig(**CONFIGS[name])
    expected = kind.from_pretrained(tmp_path / "dense", quantization_config=config)
    options = {
        "device_map": spread("cpu", "disk"),
        "offload_folder": tmp_path / "offloaded",
        "offload_buffers": offload_buffers,
    }
    model = kind.from_pretrained(tmp_path / "dense", quantization_config=config, **options)
    assert model.hf_device_map == options["device_map"]
    for _ in range(2):
        assert torch.equal(logits(model, inputs), logits(expected, inputs))
    assert_same(weights(model), weights(expected))
    assert [name for name, parameter in model.named_parameters() if parameter.is_meta] == [
        "model.layers.1.input_layernorm.weight",
        "model.layers.1.post_attention_layernorm.weight",
        "model.norm.weight",
        "lm_head.weight",
    ]
    model.save_pretrained(tmp_path / "swapped")
    for reloaded in (
        kind.from_pretrained(tmp_path / "swapped", **options),
        kind.from_pretrained(tmp_path / "swapped"),
    ):
        assert torch.equal(logits(reloaded, inputs), logits(expected, inputs))
        assert_same(weights(reloaded), weights(expected))


def test_8_bit_values_are_not_offloaded(tmp_path):
    kind, _ = saved(llama, tmp_path / "dense")
    config = TcgemmConfig()
    model = kind.from_pretrained(tmp_path / "dense", quantization_config=config)
    model.save_pretrained(tmp_path / "swapped")
    options = {
        "device_map": spread("cpu", "disk"),
        "offload_folder": tmp_path / "offloaded",
        "offload_buffers": True,
    }
    for folder, config_options in ("dense", {"quantization_config": config}), ("swapped", {}):
        with pytest.raises(ValueError) as error:
            kind.from_pretrained(tmp_path / folder, **options, **config_options)
        assert str(error.value) == (
            "TcgemmConfig: offload_buffers is True and device_map offloads "
            "model.layers.1.self_attn.q_proj, a QuantLinear, but accelerate would make its 8-bit "
            "values float32; expected offload_buffers=False, with which they stay on the device "
            "that multiplies."
        )


def test_a_tied_head_on_the_disk_stays_tied(tmp_path):
    kind, inputs = saved(tied_llama, tmp_path / "dense")
    config = TcgemmConfig(dtype="int8", modules_to_not_convert=[])
    expected = kind.from_pretrained(tmp_path / "dense", quantization_config=config)
    device_map = spread("cpu", "disk") | {"model.embed_tokens": "disk"}
    model = kind.from_pretrained(
        tmp_path / "dense", quantization_config=config, device_map=device_map
    )
    assert model.hf_quantizer.report.skipped.keys() == {"lm_head"}
    assert torch.equal(logits(model, inputs), logits(expected, inputs))


def test_a_forward_of_its_own_survives_the_swap():
    from tcgemm.integrations.transformers_dispatch import without_hooks

    model, inputs = model_and_inputs(llama)
    projection = model.model.layers[0].mlp.up_proj
    projection.forward = lambda x: 2 * torch.nn.functional.linear(x, projection.weight)
    expected = logits(model, inputs)
    accelerate.dispatch_model(model, {"": "cpu"}, force_hooks=True)
    with without_hooks(model, None):
        report = tcgemm.swap_linear(model)
        assert report.skipped == {"model.layers.0.mlp.up_proj": "has a forward of its own"}
    assert torch.equal(logits(model, inputs), expected)


@pytest.mark.gpu
@every_config
@every_map
def test_a_model_on_a_gpu_is_saved_and_loaded_with_the_same_bits(name, device_map, tmp_path):
    kind, inputs = saved(llama, tmp_path / "dense", torch.bfloat16)
    config = TcgemmConfig(**CONFIGS[name])
    on_cpu = kind.from_pretrained(tmp_path / "dense", quantization_config=config)
    options = {"device_map": device_map, "offload_folder": tmp_path / "offloaded"}
    model = kind.from_pretrained(tmp_path / "dense", quantization_config=config, **options)
    assert_same(weights(model), weights(on_cpu))
    inputs = {name: tensor.cuda() for name, tensor in inputs.items()}
    expected = logits(model, inputs)
    one_gpu = kind.from_pretrained(
        tmp_path / "dense", quantization_config=config, device_map={"": 0}
    )
    assert expected.is_cuda and torch.equal(expected, logits(one_gpu, inputs))
    limits = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    tokens = model.generate(**inputs, **limits)
    if name == "sparse" and not hasattr(integration.HfQuantizer, "serialized_names"):
        pytest.skip("transformers before 5.21 reads no parts")

    model.save_pretrained(tmp_path / "swapped")
    reloaded = kind.from_pretrained(tmp_path / "swapped", **options)
    assert layers(reloaded) == layers(model)
    assert_same(weights(reloaded), weights(model))
    assert torch.equal(logits(reloaded, inputs), expected)
    assert torch.equal(reloaded.generate(**inputs, **limits), tokens)


LAYERS = {
    "QuantLinear": {"to": tcgemm.nn.QuantLinear, "dtype": "int8"},
    "PackedLinear": {"to": tcgemm.nn.PackedLinear, "group_size": 32},
    "SparseLinear24": {"to": tcgemm.nn.SparseLinear24},
    "SparseLinear24 learns": {"to": tcgemm.nn.SparseLinear24, "learns": True},
    "Float8Linear": {"to": tcgemm.nn.Float8Linear},
}


@pytest.mark.parametrize("options", LAYERS.values(), ids=LAYERS)
def test_accelerate_loads_a_checkpoint_and_dispatches(options, tmp_path):
    """load_checkpoint_and_dispatch sets tensors one by one; these two functions do not."""
    model, inputs = model_and_inputs(llama, torch.bfloat16)
    tcgemm.swap_linear(model, skip="lm_head", **options)
    model.save_pretrained(tmp_path)
    expected = logits(model, inputs)
    for parameter in (other := llama()[0].bfloat16()).parameters():
        parameter.data.mul_(2)
    tcgemm.swap_linear(other, skip="lm_head", **options)
    accelerate.load_checkpoint_in_model(other, str(tmp_path / "model.safetensors"))
    device_map = {"model": "cpu", "lm_head": "disk"}
    other = accelerate.dispatch_model(other, device_map, offload_dir=tmp_path / "disk")
    assert torch.equal(logits(other, inputs), expected)


def test_load_checkpoint_and_dispatch_has_an_error_with_the_way_out(tmp_path):
    model, inputs = model_and_inputs(llama)
    tcgemm.swap_linear(model, to=tcgemm.nn.QuantLinear, dtype="int8")
    model.save_pretrained(tmp_path)
    file = str(tmp_path / "model.safetensors")
    with pytest.raises(RuntimeError, match=r"accelerate\.load_checkpoint_in_model, without a dev"):
        logits(accelerate.load_checkpoint_and_dispatch(model, file, {"": "cpu"}), inputs)
