"""swap_linear separates no Parameter from the modules that share it, unless it is asked to."""

import pytest
import torch
from torch import nn

import tcgemm

CUTTING = {
    "QuantLinear": {"to": tcgemm.nn.QuantLinear},
    "SparseLinear24": {"to": tcgemm.nn.SparseLinear24},
}
KEEPING = {
    "Linear": {"to": tcgemm.nn.Linear},
    "SparseLinear24 that learns": {"to": tcgemm.nn.SparseLinear24, "learns": True},
}


class Tied(nn.Module):
    def __init__(self, tie=lambda embedding: embedding.weight):
        super().__init__()
        self.embed_tokens = nn.Embedding(64, 32)
        self.inner = nn.Linear(32, 32)
        self.head = nn.Linear(32, 64, bias=False)
        self.head.weight = tie(self.embed_tokens)

    def forward(self, ids):
        return self.head(self.inner(self.embed_tokens(ids)))


@pytest.mark.parametrize("options", CUTTING.values(), ids=CUTTING)
@pytest.mark.parametrize(
    "tie",
    [lambda e: e.weight, lambda e: nn.Parameter(e.weight.detach())],
    ids=["one Parameter", "one memory"],
)
def test_a_tied_head_stays(options, tie):
    model = Tied(tie)
    report = tcgemm.swap_linear(model, **options)
    assert report.swapped == ["inner"] and type(model.head) is nn.Linear
    assert report.skipped["head"].startswith("shares its weight with embed_tokens;")
    assert "shared=True" in report.skipped["head"]


@pytest.mark.parametrize("options", CUTTING.values(), ids=CUTTING)
def test_shared_swaps_it_and_undo_ties_again(options):
    model = Tied()
    report = tcgemm.swap_linear(model, shared=True, **options)
    assert report.swapped == ["inner", "head"] and not report.skipped
    report.undo()
    assert model.head.weight is model.embed_tokens.weight


@pytest.mark.parametrize("options", KEEPING.values(), ids=KEEPING)
def test_layers_that_keep_the_parameter_keep_the_tie(options):
    model = Tied()
    before = model.embed_tokens.weight.detach().clone()
    report = tcgemm.swap_linear(model, **options)
    assert report.swapped == ["inner", "head"]
    assert model.head.weight is model.embed_tokens.weight
    assert torch.equal(model.embed_tokens.weight, before)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    model(torch.arange(8)).square().sum().backward()
    optimizer.step()
    assert model.head.weight is model.embed_tokens.weight
    assert not torch.equal(model.embed_tokens.weight, before)


def test_two_heads_and_a_bias():
    model = nn.ModuleList(nn.Linear(8, 8) for _ in range(6))
    for layer in model[1:5]:
        layer.weight = model[0].weight
    model[5].bias = model[0].bias
    report = tcgemm.swap_linear(model, to=tcgemm.nn.QuantLinear)
    assert not report.swapped
    assert report.skipped["0"].startswith("shares its weight with 1, 2, 3 and 1 more;")
    assert report.skipped["5"].startswith("shares its bias with 0;")
    # A frozen sparse layer keeps the bias.
    assert tcgemm.swap_linear(model, to=tcgemm.nn.SparseLinear24).swapped == ["5"]
    assert model[5].bias is model[0].bias


def test_one_layer_in_two_places_shares_with_nobody():
    layer = nn.Linear(8, 8)
    model = nn.Sequential(layer, nn.ReLU(), layer)
    assert tcgemm.swap_linear(model, to=tcgemm.nn.QuantLinear).swapped == ["0"]


def test_the_way_back_keeps_a_tie_too():
    model = Tied()
    tcgemm.swap_linear(model, to=tcgemm.nn.SparseLinear24, learns=True)
    report = tcgemm.swap_linear(model, to=nn.Linear)
    assert report.swapped == ["inner"]
    assert report.skipped["head"].startswith("shares its weight with embed_tokens;")
    assert model.head.weight is model.embed_tokens.weight
