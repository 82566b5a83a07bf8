"""The stack of the benchmark of models: the same as transformers' Llama, causal, repeatable."""

import pytest
import torch

from benchmarks.experiments.stack import EPS, HEAD, THETA, Sizes, build

SIZES = Sizes(2, 64, 128, 4, 2, 100, 32)
NAMES = {  # a module of the stack: the module of transformers
    "attention_norm": "input_layernorm",
    "mlp_norm": "post_attention_layernorm",
    **{f"attention.{name}": f"self_attn.{name}_proj" for name in "qkvo"},
    **{f"mlp.{name}": f"mlp.{name}_proj" for name in ("gate", "up", "down")},
}


def llama(stack):
    """LlamaForCausalLM with the weights of a stack."""
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=SIZES.vocabulary,
        hidden_size=SIZES.hidden,
        intermediate_size=SIZES.intermediate,
        num_hidden_layers=SIZES.blocks,
        num_attention_heads=SIZES.heads,
        num_key_value_heads=SIZES.kv_heads,
        max_position_embeddings=SIZES.positions,
        rms_norm_eps=EPS,
        rope_parameters={"rope_type": "default", "rope_theta": THETA},
        tie_word_embeddings=False,
    )
    weights = {
        "model.embed_tokens.weight": stack.embedding.weight,
        "model.norm.weight": stack.norm.weight,
        "lm_head.weight": stack.head.weight,
    }
    for index, block in enumerate(stack.blocks):
        for name, llama_name in NAMES.items():
            weights[f"model.layers.{index}.{llama_name}.weight"] = block.get_submodule(name).weight
    model = transformers.LlamaForCausalLM(config).eval()
    model.load_state_dict(weights)
    return model


@pytest.fixture
def stack():
    model = build(SIZES, "cpu", torch.float32)
    for parameter in model.parameters():  # weights at which a wrong block shows in the logits
        parameter.copy_(torch.randn_like(parameter) * 0.2 + (parameter.ndim == 1))
    return model


def test_logits_loss_and_gradients_are_those_of_llama(stack):
    model, ids = llama(stack), torch.randint(SIZES.vocabulary, (3, 9))
    torch.testing.assert_close(stack(ids), model(ids).logits[:, -1])
    stack.requires_grad_(True)
    loss, expected = stack(ids[:, :-1], labels=ids[:, 1:]), model(ids, labels=ids).loss
    torch.testing.assert_close(loss, expected)
    loss.backward()
    expected.backward()
    for index, block in enumerate(stack.blocks):
        for name, llama_name in NAMES.items():
            expected = model.model.layers[index].get_submodule(llama_name).weight.grad
            torch.testing.assert_close(block.get_submodule(name).weight.grad, expected)


def test_decode_with_a_cache_is_a_longer_prompt(stack):
    ids = torch.randint(SIZES.vocabulary, (2, 12))
    cache = stack.cache(2, 12)
    assert torch.equal(stack(ids[:, :9], cache=cache), stack(ids[:, :9]))
    for place in (9, 10, 11):
        logits = stack(ids[:, place : place + 1], cache=cache, start=place)
        torch.testing.assert_close(logits, stack(ids[:, : place + 1]))
    assert torch.equal(logits, stack(ids[:, 11:], cache=cache, start=11)), "a step can be repeated"
    cache[0][1][:, :, 3] += 1
    assert not torch.allclose(logits, stack(ids[:, 11:], cache=cache, start=11))


def test_the_model_is_causal_and_repeatable():
    network, twin = (build(SIZES, "cpu", torch.float32) for _ in range(2))
    ids = torch.randint(100, (1, 8))
    assert torch.equal(network(ids), twin(ids)) and network(ids).shape == (1, 100)
    assert not torch.equal(network(ids), build(SIZES, "cpu", torch.float32, seed=1)(ids))
    assert isinstance(network.get_submodule(HEAD), torch.nn.Linear)
    short = network(ids[:, :5])
    ids[:, 5:] = 0
    assert not torch.equal(network(ids), short)
    assert torch.equal(network(ids[:, :5]), short)
