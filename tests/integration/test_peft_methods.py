"""The other methods of PEFT, all-linear and prepare_model_for_kbit_training on tcgemm's layers."""

import warnings

import pytest
import torch

import tcgemm
from tcgemm.nn import PackedLinear, QuantLinear, SparseLinear24

peft = pytest.importorskip("peft")
pytest.importorskip("tcgemm.integrations.peft")
LAYERS = {
    "int8": {"to": QuantLinear, "dtype": torch.int8},
    "e4m3": {"to": QuantLinear, "dtype": torch.float8_e4m3fn},
    "sparse": {"to": SparseLinear24},
    "nf4": {"to": PackedLinear, "format": "nf4"},
}
TARGETS = ["0", "2"]
METHODS = {
    "AdaLoRA": lambda: peft.AdaLoraConfig(
        init_r=4, target_r=2, total_step=20, target_modules=TARGETS
    ),
    "IA3": lambda: peft.IA3Config(target_modules=TARGETS, feedforward_modules=["2"]),
    "LoHa": lambda: peft.LoHaConfig(r=4, target_modules=TARGETS),
    "OFT": lambda: peft.OFTConfig(oft_block_size=8, target_modules=TARGETS),
    "VeRA": lambda: peft.VeraConfig(r=4, target_modules=TARGETS),
}
every_kind = pytest.mark.parametrize("kind", LAYERS)


def build(kind):
    """(a model, its input)"""
    torch.manual_seed(5)
    dtype = torch.bfloat16 if kind == "nf4" else torch.float32
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 64)
    ).to(dtype)
    tcgemm.swap_linear(model, **LAYERS[kind])
    return model, torch.randn(24, 64).to(dtype)


def bases(model):
    kinds = QuantLinear, PackedLinear, SparseLinear24
    return [layer for layer in model.modules() if isinstance(layer, kinds)]


def trained(model, x, steps=10):
    """The losses of some steps of a small regression."""
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=2e-2)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (model(x).float() - x.roll(1, 0).float()).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@every_kind
@pytest.mark.parametrize("method", METHODS)
def test_a_method_learns_and_is_merged(method, kind, tmp_path):
    model, x = build(kind)
    before = bases(model)
    model = peft.get_peft_model(model, METHODS[method]())
    assert len(before) == 2 and bases(model) == before
    losses = trained(model, x)
    assert losses[-1] < losses[0]
    model.eval()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        expected = model(x)
        model.save_pretrained(tmp_path)
        loaded = peft.PeftModel.from_pretrained(build(kind)[0], tmp_path).eval()
        # PEFT's AdaLoRA does not give a bfloat16 model back exactly, with torch.nn.Linear either.
        assert torch.equal(loaded(x), expected) or (method, kind) == ("AdaLoRA", "nf4")
        model.merge_adapter()
        merged = model(x)
        model.unmerge_adapter()
        assert bases(model) == before
        assert torch.equal(model(x), expected)
        plain = model.merge_and_unload()
    assert (merged - expected).abs().max() < 0.15 * expected.abs().max()
    assert torch.equal(plain(x), merged)
    kept = LAYERS[kind]["to"] is QuantLinear
    assert type(plain[0]) is (QuantLinear if kept else tcgemm.nn.Linear)


@every_kind
def test_a_broken_adapter_leaves_the_layer(kind):
    model, _ = build(kind)
    model = peft.get_peft_model(model, METHODS["IA3"]())
    layer = model.base_model.model[0]
    base = layer.base_layer
    layer.ia3_l["default"].data[0] = float("nan")
    with pytest.raises(ValueError, match="adapter default seems to be broken"):
        layer.merge(safe_merge=True)
    assert layer.base_layer is base and layer.merged_adapters == []


@every_kind
@pytest.mark.parametrize("config", [peft.LoraConfig, peft.LoHaConfig, peft.VeraConfig])
def test_all_linear(kind, config):
    model, x = build(kind)
    model.append(torch.nn.Linear(64, 4, dtype=x.dtype))
    model = peft.get_peft_model(model, config(r=4, target_modules="all-linear"))
    wrapped = [type(layer.base_layer) for layer in model.base_model.model if hasattr(layer, "r")]
    assert wrapped == [LAYERS[kind]["to"]] * 2 + [torch.nn.Linear]
    more = config(r=4, target_modules="all-linear")
    model.add_adapter("more", more)
    assert model(x).shape == (24, 4)
    assert not any("lora_" in name for name in more.target_modules)


def test_all_linear_leaves_the_head():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(3)
    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
    )
    model = transformers.LlamaForCausalLM(config)
    tcgemm.swap_linear(model, to=QuantLinear, dtype=torch.int8)
    assert type(model.lm_head) is QuantLinear
    chosen = peft.LoraConfig(r=4, target_modules="all-linear")
    model = peft.get_peft_model(model, chosen)
    assert type(model.base_model.model.lm_head) is QuantLinear
    assert len(model.targeted_module_names) == 7


@every_kind
def test_prepare_model_for_kbit_training(kind):
    model, _ = build(kind)
    first = torch.nn.LayerNorm(64, dtype=torch.bfloat16)
    model = torch.nn.Sequential(first, *model)
    model = peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    assert all(p.dtype is torch.float32 for p in model.parameters())
    model = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=["1", "3"]))
    x = torch.randn(24, 64)
    assert model(x).dtype is torch.float32
    losses = trained(model, x)
    assert losses[-1] < losses[0]


def test_a_packed_layer_casts_float32_to_the_dtype_of_its_weight():
    layer = PackedLinear.from_linear(torch.nn.Linear(64, 32).bfloat16(), "nf4")
    x = torch.randn(8, 64)
    expected = layer(x.bfloat16())
    layer.bias.data = layer.bias.data.float()
    leaf = x.clone().requires_grad_()
    result = layer(leaf)
    assert result.dtype is torch.float32 and torch.equal(result, expected.float())
    result.sum().backward()
    assert leaf.grad.dtype is torch.float32
    wide = PackedLinear.from_linear(torch.nn.Linear(64, 32), "nf4")
    with pytest.raises(RuntimeError, match="but a PackedWeight is multiplied"):
        wide(x)


@pytest.mark.parametrize("config", [peft.BOFTConfig, peft.HRAConfig])
def test_other_methods_are_refused(config):
    model, _ = build("int8")
    with pytest.raises(TypeError, match="Target module QuantLinear"):
        peft.get_peft_model(model, config(target_modules=TARGETS))
