"""Models of transformers train in float8 as they do in float32, checkpointed and not."""

import copy

import pytest
import torch

import tcgemm

from support.transformer_models import every_model, gpt2, llama, model_and_inputs

STEPS = 8


def losses_of(model, inputs):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model.train()
    torch.manual_seed(3)
    losses, target = [], None
    for _ in range(STEPS):
        torch.manual_seed(4)  # dropout is the same in each step
        logits = model(**inputs).logits
        target = torch.randn_like(logits) if target is None else target
        loss = (logits - target).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


@every_model
@pytest.mark.parametrize("scaling", ["current", "delayed"])
def test_the_loss_falls_as_that_of_float32(make, scaling):
    reference, inputs = model_and_inputs(make)
    model = copy.deepcopy(reference)
    report = tcgemm.swap_linear(model, to=tcgemm.nn.Float8Linear, scaling=scaling)
    if make is gpt2:  # whose other layers are Conv1D
        assert report.swapped == ["lm_head"]
    expected, losses = losses_of(reference, inputs), losses_of(model, inputs)
    assert losses != expected and losses[-1] < losses[0]
    # The first steps of AdamW follow the sign of each gradient, which rounding can change.
    torch.testing.assert_close(losses, expected, rtol=0.03, atol=0)


def test_gradient_checkpointing_has_the_same_bits():
    reference, inputs = model_and_inputs(llama)
    tcgemm.swap_linear(reference, to=tcgemm.nn.Float8Linear, scaling="delayed")
    model = copy.deepcopy(reference)
    model.gradient_checkpointing_enable()
    assert losses_of(model, inputs) == losses_of(reference, inputs)


def test_a_saved_model_is_a_usual_one(tmp_path):
    model, inputs = model_and_inputs(llama)
    tcgemm.swap_linear(model, to=tcgemm.nn.Float8Linear)
    losses_of(model, inputs)
    model.save_pretrained(tmp_path)
    reloaded = type(model).from_pretrained(tmp_path)
    tcgemm.swap_linear(reloaded, to=tcgemm.nn.Float8Linear)
    with torch.no_grad():
        assert torch.equal(reloaded(**inputs).logits, model.eval()(**inputs).logits)
