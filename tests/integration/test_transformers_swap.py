"""swap_linear on models of transformers: exact results, undo(), ties and coverage.

The models come from configs, with random weights; nothing is downloaded.
"""

import copy

import pytest
import torch

import tcgemm

from support.calls import Counter
from support.transformer_models import (
    IDS,
    bert,
    every_model,
    gpt2,
    llama,
    mixtral,
    model_and_inputs,
    t5,
    tied_llama,
    vit,
)

# How many layers are swapped, what percentage of the matrices they hold, and who holds the rest.
COVERAGE = {
    llama: (15, 100, []),
    tied_llama: (15, 100, []),
    bert: (14, 100, []),
    gpt2: (9, 100, []),
    vit: (13, 91, ["Conv2d"]),
    t5: (33, 100, []),
    mixtral: (9, 15, ["MixtralExperts", "MixtralTopKRouter"]),
}


@every_model
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_logits_are_torchs_and_undo_restores_them(make, dtype):
    model, inputs = model_and_inputs(make, dtype)
    with torch.no_grad():
        expected = model(**inputs).logits
        report = tcgemm.swap_linear(model)
        with Counter() as counter:
            result = model(**inputs).logits
        assert counter.count >= len(report.swapped)
        report.undo()
        assert torch.equal(model(**inputs).logits, expected)
    # torch's CPU library sums some of these shapes in another order; gpt2's on AMD's processors.
    if dtype is torch.float32 and make in (bert, vit, t5):
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-6)
    elif dtype is torch.bfloat16 and make is gpt2:
        torch.testing.assert_close(result, expected, rtol=2**-6, atol=2**-6)
    else:
        assert torch.equal(result, expected)


@every_model
def test_coverage(make):
    model, _ = model_and_inputs(make)
    report = tcgemm.swap_linear(model)
    swapped, percent, kinds = COVERAGE[make]
    assert len(report.swapped) == swapped and not report.skipped
    assert 100 * report.reached // report.weights == percent
    assert [layer.kind for layer in report.not_reached] == kinds


def test_experts_are_named():
    model, _ = model_and_inputs(mixtral)
    assert "not reached: 2 MixtralExperts (gate_up_proj, down_proj), 2 MixtralTopKRouter" in str(
        tcgemm.swap_linear(model)
    )


@pytest.mark.parametrize("make", [tied_llama, gpt2, t5], ids=lambda make: make.__name__)
@pytest.mark.parametrize(
    "options",
    [{"to": tcgemm.nn.QuantLinear, "dtype": torch.int8}, {"to": tcgemm.nn.SparseLinear24}],
    ids=["QuantLinear", "SparseLinear24"],
)
def test_ties_stay(make, options):
    model, inputs = model_and_inputs(make)
    embedding = model.get_input_embeddings()
    assert model.lm_head.weight is embedding.weight
    report = tcgemm.swap_linear(model, **options)
    assert report.skipped["lm_head"].startswith("shares its weight with ")
    assert model.lm_head.weight is embedding.weight
    model.tie_weights()  # as from_pretrained and resize_token_embeddings do
    model(**inputs)
    report.undo()
    report = tcgemm.swap_linear(model, shared=True, **options)
    assert "lm_head" in report.swapped and "lm_head" not in report.skipped


def test_a_tied_head_learns_with_its_embedding():
    model, inputs = model_and_inputs(tied_llama)
    tcgemm.swap_linear(model, to=tcgemm.nn.SparseLinear24, learns=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    before = model.lm_head.weight.detach().clone()
    model(**inputs, labels=IDS).loss.backward()
    optimizer.step()
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert not torch.equal(model.lm_head.weight, before)


@every_model
def test_the_way_back_needs_no_report(make):
    model, inputs = model_and_inputs(make)
    kinds = [type(module) for module in model.modules()]
    with torch.no_grad():
        expected = model(**inputs).logits
        tcgemm.swap_linear(model)
        twin = copy.deepcopy(model)
        tcgemm.swap_linear(twin, to=torch.nn.Linear)
        assert [type(module) for module in twin.modules()] == kinds
        assert torch.equal(twin(**inputs).logits, expected)


def test_names_and_patterns():
    model, _ = model_and_inputs(llama)
    report = tcgemm.swap_linear(model, ["*.mlp.*", "*.q_proj"], skip="model.layers.1")
    assert report.swapped == [
        "model.layers.0.self_attn.q_proj",
        "model.layers.0.mlp.gate_proj",
        "model.layers.0.mlp.up_proj",
        "model.layers.0.mlp.down_proj",
    ]
    assert report.skipped["lm_head"] == "filter_fn does not name it"
