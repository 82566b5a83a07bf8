"""tcgemm.use reaches what no swap of layers does: attention, Conv1D, experts, functional code."""

import pytest
import torch

import tcgemm

from support.uses import by_torch

transformers = pytest.importorskip("transformers")
SMALL = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}


def logits(model, ids):
    with torch.no_grad():
        return model(ids).logits


def check(model, least):
    model = model.eval()
    ids = torch.arange(24).view(2, 12)
    expected = by_torch(logits, model, ids)
    with tcgemm.use() as u:
        result = logits(model, ids)
    assert torch.allclose(result, expected, atol=1e-4)
    assert u.report().left == 0 and u.report().taken >= least, u.report()
    assert torch.equal(logits(model, ids), expected)
    return u.report()


@pytest.mark.parametrize("experts", ["eager", "grouped_mm"])
def test_mixtral_experts(experts):
    config = transformers.MixtralConfig(
        **SMALL,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=4,
        experts_implementation=experts,
        attn_implementation="eager",
    )
    of_experts = 2 if experts == "grouped_mm" else 2 * 4
    report = check(transformers.MixtralForCausalLM(config), 2 * (4 + 2 + 1 + of_experts))
    assert ("_grouped_mm" in {row.function for row in report.rows}) is (experts == "grouped_mm")
    sizes = {row.sizes[2:] for row in report.rows}
    assert {(96, 32), (32, 48)} <= sizes  # gate_up_proj and down_proj


def test_gpt2_conv1d():
    config = transformers.GPT2Config(
        vocab_size=64, n_embd=32, n_layer=2, n_head=4, attn_implementation="eager"
    )
    report = check(transformers.GPT2LMHeadModel(config), 2 * (4 + 2) + 1)
    assert {row.function for row in report.rows} >= {"addmm", "mm", "bmm"}


def test_transformer_encoder_with_torchs_fast_path():
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation="gelu")
    model = torch.nn.TransformerEncoder(layer, 2).eval()
    x = torch.randn(2, 8, 32)
    with torch.no_grad():
        expected = model(x)
        with tcgemm.use() as u:
            result = model(x)
    assert torch.allclose(result, expected, atol=1e-4)
    assert u.report().left == 0
    assert {"mm", "bmm", "_addmm_activation", "addmm"} <= {row.function for row in u.report().rows}


def test_a_training_step_learns_the_same():
    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4))
    state = {name: value.clone() for name, value in model.state_dict().items()}
    x, y = torch.randn(64, 16), torch.randint(4, (64,))

    def train():
        model.load_state_dict(state)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        for _ in range(20):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        return loss.item()

    expected = by_torch(train)
    with tcgemm.use() as u:
        assert train() == pytest.approx(expected, rel=1e-3)
    assert u.report().left == 0 and u.report().taken == 20 * 5
