"""LoRA of PEFT on 8-bit and sparse layers: in both orders, trained, merged and unmerged."""

import warnings

import pytest
import torch

import tcgemm
from tcgemm.nn import QuantLinear, SparseLinear24

peft = pytest.importorskip("peft")
integration = pytest.importorskip("tcgemm.integrations.peft")
LAYERS = {
    "int8": {"to": QuantLinear, "dtype": torch.int8},
    "e4m3": {"to": QuantLinear, "dtype": torch.float8_e4m3fn},
    "blocks": {"to": QuantLinear, "granularity": "128x128"},
    "sparse": {"to": SparseLinear24},
}
SPARSE = {"rtol": 1e-2, "atol": 2e-3}  # a sparse float32 weight multiplies in TF32
X = torch.randn(24, 64, generator=torch.Generator().manual_seed(3))


def build(**options):
    torch.manual_seed(5)
    return torch.nn.Sequential(
        torch.nn.Linear(64, 96, **options), torch.nn.GELU(), torch.nn.Linear(96, 64, **options)
    )


def config(**options):
    return peft.LoraConfig(r=4, lora_alpha=8, target_modules=["0", "2"], **options)


def wrapped(kind, order, **options):
    """A model with adapters on such layers, made in one of the orders."""
    model = build()
    torch.manual_seed(7)
    if order == "LoRA first":
        model = peft.get_peft_model(model, config(**options))
        tcgemm.swap_linear(model, "*.base_layer", **LAYERS[kind])
        return model
    tcgemm.swap_linear(model, **LAYERS[kind])
    return peft.get_peft_model(model, config(**options))


def base_layers(model):
    return [x for x in model.modules() if isinstance(x, (QuantLinear, SparseLinear24))]


def trained(model, steps=12):
    """The losses of some steps of a small regression."""
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=5e-3)
    goal = X.roll(1, 0)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (model(X) - goal).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


every_order = pytest.mark.parametrize("order", ["LoRA first", "LoRA last"])
every_kind = pytest.mark.parametrize("kind", LAYERS)


@every_order
@every_kind
def test_adapters_learn_and_the_base_stays(kind, order):
    model = wrapped(kind, order)
    before = [{k: v.clone() for k, v in layer.state_dict().items()} for layer in base_layers(model)]
    assert len(before) == 2
    losses = trained(model)
    assert losses[-1] < 0.95 * losses[0]
    for layer, old_state in zip(base_layers(model), before, strict=True):
        state = layer.state_dict()
        assert all(torch.equal(state[key].float(), old_state[key].float()) for key in old_state)


@every_kind
def test_both_orders_are_one_model(kind):
    first, last = (wrapped(kind, order) for order in ("LoRA first", "LoRA last"))
    assert trained(first) == trained(last)
    assert torch.equal(first(X), last(X))


@every_order
@every_kind
def test_merge_and_unmerge(kind, order):
    model = wrapped(kind, order).eval()
    trained(model)
    expected, state = model(X), base_layers(model)
    model.merge_adapter()
    merged = model(X)
    if kind == "sparse":
        assert not base_layers(model)
        torch.testing.assert_close(merged, expected, **SPARSE)
    else:
        kinds = {(layer.dtype, layer.granularity) for layer in base_layers(model)}
        assert kinds == {(layer.dtype, layer.granularity) for layer in state}
        assert (merged - expected).abs().max() < 0.15 * expected.abs().max()
    assert not torch.equal(merged, expected)
    model.unmerge_adapter()
    assert torch.equal(model(X), expected)
    assert all(a is b for a, b in zip(base_layers(model), state, strict=True))


@every_kind
def test_merge_and_unload(kind):
    model = wrapped(kind, "LoRA last")
    trained(model)
    model.eval().merge_adapter()
    expected = model(X)
    model.unmerge_adapter()
    plain = model.merge_and_unload()
    assert torch.equal(plain(X), expected)
    assert type(plain[0]) is (tcgemm.nn.Linear if kind == "sparse" else QuantLinear)
    assert not [name for name, _ in plain.named_parameters() if "lora" in name]


def test_merged_weights_are_the_sum():
    model = wrapped("sparse", "LoRA last", init_lora_weights=False)
    layer = model.base_model.model[0]
    expected = layer.base_layer.weight.to_dense() + layer.get_delta_weight("default")
    plain = model.merge_and_unload()
    torch.testing.assert_close(plain[0].weight, expected)


def test_two_adapters_are_rounded_once():
    model = wrapped("int8", "LoRA last", init_lora_weights=False).eval()
    model.add_adapter("more", config(init_lora_weights=False))
    layer = model.base_model.model[0]
    base, deltas = layer.base_layer, [layer.get_delta_weight(name) for name in ("default", "more")]
    layer.merge(adapter_names=["default"])
    layer.merge(adapter_names=["more"])
    expected = tcgemm.quantize(base.to_linear().weight.detach() + sum(deltas), torch.int8, "row")
    assert torch.equal(layer.base_layer.weight.values, expected[0])
    assert layer.merged_adapters == ["default", "more"]
    layer.unmerge()
    assert layer.base_layer is base and layer.merged_adapters == []


@every_order
def test_adapters_are_saved_and_loaded(order, tmp_path):
    model = wrapped("e4m3", order).eval()
    trained(model)
    model.save_pretrained(tmp_path)
    fresh = build()
    tcgemm.swap_linear(fresh, **LAYERS["e4m3"])
    reloaded = peft.PeftModel.from_pretrained(fresh, tmp_path)
    assert torch.equal(reloaded.eval()(X), model.eval()(X))


def test_dora():
    model = wrapped("int8", "LoRA last", use_dora=True)
    losses = trained(model)
    assert losses[-1] < 0.95 * losses[0]
    expected = model.eval()(X)
    plain = model.merge_and_unload()
    assert (plain(X) - expected).abs().max() < 0.15 * expected.abs().max()


def test_bias_of_the_adapter():
    model = wrapped("sparse", "LoRA last", lora_bias=True, init_lora_weights=False).eval()
    expected = model(X)
    torch.testing.assert_close(model.merge_and_unload()(X), expected, **SPARSE)
    torch.manual_seed(5)
    bare = build(bias=False)
    tcgemm.swap_linear(bare, **LAYERS["int8"])
    bare = peft.get_peft_model(bare, config())
    layer = bare.base_model.model[0]
    layer.lora_bias["default"] = True
    with pytest.raises(RuntimeError, match="base layer has no bias"):
        layer.merge()


def test_broken_adapters_are_refused():
    model = wrapped("int8", "LoRA last", init_lora_weights=False)
    layer = model.base_model.model[0]
    layer.lora_A["default"].weight.data[0, 0] = float("nan")
    base = layer.base_layer
    with pytest.raises(ValueError, match="adapter default seems to be broken"):
        layer.merge(safe_merge=True)
    assert layer.base_layer is base and layer.merged_adapters == []


def test_layers_of_torch_are_merged_as_before():
    model = peft.get_peft_model(build(), config(init_lora_weights=False)).eval()
    expected = model(X)
    model.merge_adapter()
    torch.testing.assert_close(model(X), expected, rtol=1e-4, atol=1e-4)
    model.unmerge_adapter()
    torch.testing.assert_close(model(X), expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="is not supported"):
        peft.get_peft_model(build(), peft.LoraConfig(target_modules=["1"]))


def test_nothing_is_merged_twice():
    model = wrapped("int8", "LoRA last", init_lora_weights=False).eval()
    model.merge_adapter()
    once = model(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.merge_adapter()
    assert torch.equal(model(X), once)


def test_variants_that_change_the_base_weight_are_refused():
    for kind in ("int8", "sparse"):
        with pytest.raises(
            ValueError, match="init_lora_weights is 'pissa', which changes the base"
        ):
            wrapped(kind, "LoRA last", init_lora_weights="pissa")
    assert trained(wrapped("int8", "LoRA first", init_lora_weights="pissa"))


def test_another_method_between_is_refused():
    from peft.tuners.tuners_utils import BaseTunerLayer

    class Between(torch.nn.Module, BaseTunerLayer):
        def __init__(self, base_layer):
            super().__init__()
            self.base_layer = base_layer

    layer = wrapped("int8", "LoRA last", init_lora_weights=False).base_model.model[0]
    layer.base_layer = Between(layer.base_layer)
    with pytest.raises(RuntimeError, match="another method of PEFT is between them"):
        layer.merge()
