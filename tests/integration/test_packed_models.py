"""PackedLinear in other libraries: from_pretrained of transformers, and QLoRA by PEFT."""

import pytest
import torch

import tcgemm
from tcgemm.nn import PackedLinear

from support import transformer_models
from support.error_asserts import error_message
from support.packed_weight_cases import bits
from support.transformer_models import IDS, llama, logits

integration = pytest.importorskip("tcgemm.integrations.transformers")
peft = pytest.importorskip("peft")
peft_integration = pytest.importorskip("tcgemm.integrations.peft")
TcgemmConfig = integration.TcgemmConfig
CONFIGS = {
    "int4": {"group_size": 32},
    "zero points": {"group_size": 32, "zero_points": True, "method": "mse"},
    "nf4": {"format": "nf4", "group_size": 32},
    "mxfp4": {"format": "mxfp4"},
    "nvfp4": {"format": "nvfp4"},
    "e4m3": {"format": "e4m3"},
    "int8": {"format": "int8"},
}
DTYPE = {"dtype": torch.bfloat16}


def config(name):
    return TcgemmConfig(layer="PackedLinear", **CONFIGS[name])


def packed_layers(model):
    return {n: module for n, module in model.named_modules() if isinstance(module, PackedLinear)}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_model_is_saved_and_loaded_with_the_same_bits(name, tmp_path):
    kind, inputs = transformer_models.saved(llama, tmp_path / "dense")
    model = kind.from_pretrained(tmp_path / "dense", quantization_config=config(name), **DTYPE)
    expected = logits(model, inputs)
    dense = logits(kind.from_pretrained(tmp_path / "dense", **DTYPE), inputs)
    assert len(packed_layers(model)) == 14 and not torch.equal(expected, dense)
    assert (expected - dense).abs().max() < 0.4 * dense.abs().max()
    model.save_pretrained(tmp_path / "packed")
    twin = kind.from_pretrained(tmp_path / "packed", **DTYPE)
    assert torch.equal(logits(twin, inputs), expected)
    for name, layer in packed_layers(twin).items():
        copy, state = layer.state_dict(), model.get_submodule(name).state_dict()
        assert copy.keys() == state.keys()
        assert all(torch.equal(bits(copy[key]), bits(state[key])) for key in copy)
    assert twin.dtype is torch.bfloat16 and twin.generate(IDS[:1], max_new_tokens=2).shape == (
        1,
        14,
    )


def test_layers_whose_inputs_groups_do_not_divide_stay(tmp_path):
    kind, _ = transformer_models.saved(llama, tmp_path / "dense")
    options = TcgemmConfig(layer="PackedLinear", group_size=64)
    model = kind.from_pretrained(tmp_path / "dense", quantization_config=options, **DTYPE)
    assert {name.rpartition(".")[2] for name in packed_layers(model)} == {"down_proj"}
    model.save_pretrained(tmp_path / "packed")
    reloaded = kind.from_pretrained(tmp_path / "packed", **DTYPE)
    assert packed_layers(reloaded).keys() == packed_layers(model).keys()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"method": "magnitude"},
            "TcgemmConfig: method is 'magnitude'; expected one of nearest, mse.",
        ),
        (
            {"format": "table"},
            "TcgemmConfig: format is 'table'; expected one of int4, int8, e4m3, nf4, fp4, mxfp4, "
            "nvfp4.",
        ),
    ],
)
def test_a_config_is_refused(options, text):
    assert error_message(lambda: TcgemmConfig(layer="PackedLinear", **options), ValueError) == text


def adapted(name="nf4"):
    """A small llama with packed layers and adapters on them."""
    torch.manual_seed(4)
    model = llama()[0].bfloat16()
    options = CONFIGS[name]
    tcgemm.swap_linear(model, skip="lm_head", to=PackedLinear, **options)
    lora = peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "down_proj"])
    return peft.get_peft_model(model, lora)


def trained(model, steps=30, autocast=False):
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-2)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = model(input_ids=IDS, labels=IDS).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("name", ["nf4", "int4"])
def test_qlora(name):
    """Adapters learn beside a base of 4 bits, whose codes stay as they are."""
    model = adapted(name)
    base = packed_layers(model)
    before = {n: {k: v.clone() for k, v in e.state_dict().items()} for n, e in base.items()}
    learning = [n for n, p in model.named_parameters() if p.requires_grad]
    assert len(base) == 14 and learning and all("lora_" in word for word in learning)
    losses = trained(model)
    assert losses[-1] < 0.9 * losses[0]
    for name, layer in base.items():
        state = layer.state_dict()
        assert all(torch.equal(bits(state[key]), bits(old)) for key, old in before[name].items())


def test_merge_makes_a_dense_layer_and_unmerge_puts_the_packed_one_back():
    model = adapted()
    trained(model, 3)
    model.eval()
    expected, base = logits(model, {"input_ids": IDS}), packed_layers(model)
    model.merge_adapter()
    merged = logits(model, {"input_ids": IDS})
    assert len(packed_layers(model)) == len(base) - 4
    assert (merged - expected).abs().max() < 0.05 * expected.abs().max()
    model.unmerge_adapter()
    assert torch.equal(logits(model, {"input_ids": IDS}), expected)
    assert all(packed_layers(model)[name] is layer for name, layer in base.items())
    plain = model.merge_and_unload()
    assert type(plain.model.layers[0].self_attn.q_proj) is tcgemm.nn.Linear


def test_a_model_that_was_loaded_packed_takes_adapters(tmp_path):
    kind, _ = transformer_models.saved(llama, tmp_path / "dense")
    model = kind.from_pretrained(tmp_path / "dense", quantization_config=config("nf4"), **DTYPE)
    lora = peft.LoraConfig(r=4, target_modules=["q_proj", "up_proj"], task_type="CAUSAL_LM")
    adapters = peft.get_peft_model(peft.prepare_model_for_kbit_training(model), lora)
    losses = trained(adapters, 8, autocast=True)  # what is not packed is float32 now
    assert losses[-1] < losses[0]
