"""Small models of transformers, from configs with random weights; nothing is downloaded.

Each function returns (model, the inputs of a call).
"""

import pytest
import torch

import tcgemm

transformers = pytest.importorskip("transformers")

SMALL = {"vocab_size": 96, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 4}
IDS = torch.arange(24).reshape(2, 12)


def llama(**options):
    config = transformers.LlamaConfig(**SMALL, **HEADS, num_key_value_heads=2, **options)
    return transformers.LlamaForCausalLM(config), {"input_ids": IDS}


def tied_llama():
    return llama(tie_word_embeddings=True)


def bert():
    config = transformers.BertConfig(**SMALL, **HEADS)
    return transformers.BertForSequenceClassification(config), {"input_ids": IDS}


def gpt2():
    config = transformers.GPT2Config(
        vocab_size=96, n_embd=32, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0
    )
    return transformers.GPT2LMHeadModel(config), {"input_ids": IDS}


def vit():
    sizes = {name: size for name, size in SMALL.items() if name != "vocab_size"}
    config = transformers.ViTConfig(**sizes, **HEADS, image_size=16, patch_size=4)
    pixels = torch.linspace(-1, 1, 2 * 3 * 16 * 16).reshape(2, 3, 16, 16)
    return transformers.ViTForImageClassification(config), {"pixel_values": pixels}


def t5():
    config = transformers.T5Config(
        vocab_size=96, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4
    )
    return transformers.T5ForConditionalGeneration(config), {
        "input_ids": IDS,
        "decoder_input_ids": IDS[:, :5],
    }


def mixtral():
    config = transformers.MixtralConfig(
        **SMALL, **HEADS, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2
    )
    return transformers.MixtralForCausalLM(config), {"input_ids": IDS}


EVERY = (llama, tied_llama, bert, gpt2, vit, t5, mixtral)
every_model = pytest.mark.parametrize("make", EVERY, ids=lambda make: make.__name__)


def model_and_inputs(make, dtype=torch.float32):
    torch.manual_seed(7)
    model, inputs = make()
    inputs = {name: x.to(dtype) if x.is_floating_point() else x for name, x in inputs.items()}
    return model.to(dtype).eval(), inputs


def saved(make, folder, dtype=torch.float32):
    """(the model's class, the inputs of a call) of a model that is saved in this folder."""
    model, inputs = model_and_inputs(make, dtype)
    model.save_pretrained(folder)
    return type(model), inputs


def logits(model, inputs):
    with torch.no_grad():
        return model.eval()(**inputs).logits


def layers(model):
    """The names of tcgemm's layers."""
    kinds = (tcgemm.nn.QuantLinear, tcgemm.nn.QuantConv1D, tcgemm.nn.SparseLinear24)
    return [name for name, module in model.named_modules() if isinstance(module, kinds)]
