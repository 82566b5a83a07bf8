"""Libraries that train and serve models work with tcgemm's layers as with torch's.

The models come from configs, with random weights; nothing is downloaded. The packages are test
dependencies; on a machine that lacks one, its tests are skipped.
"""

import copy
import importlib

import pytest
import torch

import tcgemm

from support.calls import Counter

IDS = torch.arange(24).reshape(2, 12) % 60


def library(name):
    """A decorator: skip the test where the package is missing."""
    is_installed = importlib.util.find_spec(name) is not None
    return pytest.mark.skipif(not is_installed, reason=f"{name} is not installed")


def llama(**options):
    transformers = importlib.import_module("transformers")
    torch.manual_seed(5)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 64}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    config = transformers.LlamaConfig(**sizes, **heads, **options)
    return transformers.LlamaForCausalLM(config)


def weights(model):
    return [parameter.detach() for parameter in model.parameters()]


def assert_same(results, expected):
    for result, exact in zip(results, expected, strict=True):
        torch.testing.assert_close(result, exact, rtol=1e-4, atol=1e-5)


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return {"input_ids": (IDS[0] + index) % 60, "labels": (IDS[0] + index) % 60}


@library("transformers")
@pytest.mark.parametrize("reentrant", [False, True], ids=["new", "reentrant"])
def test_trainer_with_bf16_and_gradient_checkpointing(reentrant, tmp_path):
    transformers = importlib.import_module("transformers")

    def trained(swap):
        model = llama()
        if swap:
            tcgemm.swap_linear(model)
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path),
            max_steps=2,
            optim="sgd",
            learning_rate=1.0,
            per_device_train_batch_size=4,
            bf16=True,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            gradient_checkpointing=True,
            gradient_checkpointing_kwargs={"use_reentrant": reentrant},
        )
        transformers.Trainer(model, arguments, train_dataset=Rows()).train()
        return weights(model)

    before, expected, weights_after = weights(llama()), trained(False), trained(True)
    for start, result, exact in zip(before, weights_after, expected, strict=True):
        step = (exact - start).norm()
        assert step > 0
        assert (result - exact).norm() <= 0.02 * step  # both round to bf16


@library("transformers")
def test_generate():
    model = llama().eval()
    expected = model.generate(IDS, max_new_tokens=6, do_sample=False, pad_token_id=0)
    tcgemm.swap_linear(model)
    with Counter() as counter:
        result = model.generate(IDS, max_new_tokens=6, do_sample=False, pad_token_id=0)
    assert counter.count > 0
    assert torch.equal(result, expected)


@library("accelerate")
@library("transformers")
def test_accelerate_prepares_and_offloads():
    accelerate = importlib.import_module("accelerate")
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)  # of other tests
    model = llama().eval()
    expected = model(IDS).logits
    tcgemm.swap_linear(model)
    accelerator = accelerate.Accelerator(cpu=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    prepared, optimizer = accelerator.prepare(model, optimizer)
    assert_same([prepared(IDS).logits], [expected])
    accelerator.backward(prepared(IDS, labels=IDS).loss)
    optimizer.step()

    offloaded = copy.deepcopy(model)
    expected = model(IDS).logits
    accelerate.cpu_offload(offloaded, execution_device="cpu")
    assert all(parameter.is_meta for parameter in offloaded.parameters())
    assert torch.equal(offloaded(IDS).logits, expected)


def lora(model):
    peft = importlib.import_module("peft")
    torch.manual_seed(6)
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "down_proj"], init_lora_weights=False)
    return peft.get_peft_model(model, config)


def lora_trained(model):
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    model(IDS, labels=IDS).loss.backward()
    optimizer.step()
    merged = model.merge_and_unload().eval()
    return [merged(IDS).logits]


@library("peft")
@library("transformers")
def test_peft_trains_and_merges_lora():
    swapped = llama()
    tcgemm.swap_linear(swapped)
    assert_same(lora_trained(lora(swapped)), lora_trained(lora(llama())))


@library("peft")
@library("transformers")
def test_lora_then_8_bits():
    """The order for quantised base layers: LoRA first, then the exchange of what it wrapped."""
    model = lora(llama())
    report = tcgemm.swap_linear(
        model,
        lambda _module, name: name.endswith("base_layer"),
        to=tcgemm.nn.QuantLinear,
        dtype=torch.int8,
    )
    assert len(report.swapped) == 4
    loss = model(IDS, labels=IDS).loss
    loss.backward()
    names = [name for name, p in model.named_parameters() if p.grad is not None]
    assert names and all("lora" in name for name in names)


@library("lightning")
def test_lightning(tmp_path):
    lightning = importlib.import_module("lightning")

    class Module(lightning.LightningModule):
        def __init__(self, swap):
            super().__init__()
            torch.manual_seed(2)
            self.model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 1))
            if swap:
                tcgemm.swap_linear(self.model)

        def training_step(self, batch, _index):
            return self.model(batch).square().mean()

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-2)

    def trained(swap):
        module = Module(swap)
        quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
        trainer = lightning.Trainer(
            max_steps=3,
            accelerator="cpu",
            enable_model_summary=False,
            default_root_dir=tmp_path,
            **quiet,
        )
        data = torch.linspace(-1, 1, 32 * 8).reshape(32, 8)
        trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=8))
        return weights(module)

    assert_same(trained(True), trained(False))


@library("torchao")
def test_torchao_quantises_a_swapped_model():
    """torchao takes every subclass of torch.nn.Linear, so it takes these layers as well."""
    quantization = importlib.import_module("torchao.quantization")

    def quantised(swap):
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(64, 64))
        if swap:
            report = tcgemm.swap_linear(model)
            report.undo()
        quantization.quantize_(model, quantization.Int8WeightOnlyConfig())
        return model(torch.linspace(-1, 1, 2 * 64).reshape(2, 64))

    assert torch.equal(quantised(True), quantised(False))


@library("onnxscript")
def test_onnx_export_after_undo():
    """ONNX knows no operator of tcgemm: the exporter names it, and undo() is the way."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU()).eval()
    report = tcgemm.swap_linear(model)
    x = torch.randn(2, 8)
    with pytest.raises(torch.onnx.OnnxExporterError) as error:
        torch.onnx.export(model, (x,), dynamo=True, verbose=False)
    assert "tcgemm.linear" in str(error.value) + str(error.value.__cause__)
    report.undo()
    program = torch.onnx.export(model, (x,), dynamo=True, verbose=False)
    assert "Gemm" in [node.op_type for node in program.model.graph]


@library("torchao")
def test_weights_that_torchao_quantised_stay():
    quantization = importlib.import_module("torchao.quantization")
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 8))
    quantization.quantize_(
        model, quantization.Int8WeightOnlyConfig(), filter_fn=lambda module, name: name == "0"
    )
    x = torch.linspace(-1, 1, 2 * 64).reshape(2, 64)
    expected = model(x)
    for to in (tcgemm.nn.Linear, tcgemm.nn.QuantLinear, tcgemm.nn.SparseLinear24):
        report = tcgemm.swap_linear(model, to=to)
        assert report.swapped == ["1"]
        assert report.skipped == {
            "0": "has weights of Int8Tensor, a tensor subclass of torchao",
        }
        model(x)
        report.undo()
    assert torch.equal(model(x), expected)
