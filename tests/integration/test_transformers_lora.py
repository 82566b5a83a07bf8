"""LoRA on a model that from_pretrained quantised: transformers' Trainer, PEFT's merge, saving."""

import pytest
import torch

import tcgemm

from support.transformer_models import IDS, layers, llama, logits, saved, transformers

integration = pytest.importorskip("tcgemm.integrations.transformers")
peft = pytest.importorskip("peft")
pytest.importorskip("tcgemm.integrations.peft")
CONFIGS = {
    "int8": {"dtype": "int8"},
    "e4m3": {},
    "sparse": {"layer": "SparseLinear24"},
}
every_config = pytest.mark.parametrize("name", CONFIGS)
TARGETS = ["q_proj", "v_proj", "down_proj"]
EVERY = [*TARGETS, "k_proj", "o_proj", "gate_proj", "up_proj"]


class Rows(torch.utils.data.Dataset):
    """The same rows in each step, so that the loss of a step can be compared with the next."""

    def __len__(self):
        return len(IDS)

    def __getitem__(self, index):
        return {"input_ids": IDS[index], "labels": IDS[index]}


def load(name, folder, device="cpu"):
    """(a quantised model, the inputs of a call)"""
    kind, inputs = saved(llama, folder / "dense")
    config = integration.TcgemmConfig(**CONFIGS[name])
    model = kind.from_pretrained(
        folder / "dense", quantization_config=config, device_map={"": device}
    )
    return model, {name: tensor.to(device) for name, tensor in inputs.items()}


def with_adapters(model):
    torch.manual_seed(6)
    with pytest.warns(UserWarning, match="Unsupported layer type"):
        return peft.get_peft_model(model, peft.LoraConfig(r=8, target_modules=TARGETS))


def trainer_of(model, folder, device="cpu"):
    arguments = transformers.TrainingArguments(
        output_dir=str(folder / "trained"),
        max_steps=8,
        learning_rate=5e-2,
        lr_scheduler_type="constant",
        per_device_train_batch_size=len(IDS),
        logging_steps=1,
        use_cpu=device == "cpu",
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    arguments._n_gpu = 1  # no torch.nn.DataParallel, where there are several
    return transformers.Trainer(model, arguments, train_dataset=Rows())


def copies(model):
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


@every_config
def test_trainer_trains_the_adapters_alone(name, device, tmp_path):
    model, inputs = load(name, tmp_path, device)
    before = logits(model, inputs)
    model = with_adapters(model)
    assert torch.equal(logits(model, inputs), before)
    start = copies(model)
    trainer = trainer_of(model.train(), tmp_path, device)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(losses) == 8 and losses[-1] < 0.95 * losses[0]
    after = copies(model)
    names = {name for name in start if not torch.equal(start[name].float(), after[name].float())}
    assert names == {name for name in start if ".lora_" in name}
    expected = logits(model, inputs)
    merged = model.merge_and_unload()
    assert len(layers(merged)) == (8 if name == "sparse" else 14)
    change = (expected - before).abs().max()
    assert (logits(merged, inputs) - expected).abs().max() < 0.3 * change


def test_trainer_refuses_a_quantised_model_without_adapters(tmp_path):
    model, _ = load("int8", tmp_path)
    with pytest.raises(ValueError, match="cannot perform fine-tuning on purely quantized models"):
        trainer_of(model, tmp_path)


def test_all_linear_finds_the_layers_of_tcgemm(tmp_path):
    model, _ = load("int8", tmp_path)
    config = peft.LoraConfig(target_modules="all-linear", task_type="CAUSAL_LM")
    names = [name for name, _ in peft.get_peft_model(model, config).named_modules()]
    assert len([name for name in names if name.endswith(".base_layer")]) == 14


@pytest.mark.parametrize("targets", [TARGETS, EVERY], ids=["some", "all"])
@every_config
def test_a_merged_model_is_saved_and_loaded_with_the_same_bits(name, targets, tmp_path):
    model, inputs = load(name, tmp_path)
    start = model.config.quantization_config
    config = peft.LoraConfig(target_modules=targets, init_lora_weights=False)
    merged = peft.get_peft_model(model, config).merge_and_unload()
    expected = logits(merged, inputs)
    for _ in range(2):
        merged.save_pretrained(tmp_path / "merged")
    reloaded = type(merged).from_pretrained(tmp_path / "merged")
    assert layers(reloaded) == layers(merged)
    assert torch.equal(logits(reloaded, inputs), expected)
    assert start.modules_to_not_convert == ["lm_head"]  # may be the config of another model, too


def test_a_dequantised_model_is_saved_without_the_config(tmp_path):
    model, inputs = load("int8", tmp_path)
    tcgemm.swap_linear(model, to=torch.nn.Linear)
    expected = logits(model, inputs)
    model.save_pretrained(tmp_path / "dense again")
    reloaded = type(model).from_pretrained(tmp_path / "dense again")
    assert not layers(reloaded) and not hasattr(reloaded, "hf_quantizer")
    assert torch.equal(logits(reloaded, inputs), expected)
