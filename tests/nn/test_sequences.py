"""Any sequence of swaps is undone in reverse order, and the way back needs no report."""

import copy
import random

import pytest
import torch
from torch import nn

import tcgemm
from tcgemm.nn import exchange

SWAPS = (
    {},
    {"prepare": False},
    {"to": tcgemm.nn.QuantLinear},
    {"to": tcgemm.nn.QuantLinear, "dtype": torch.int8, "granularity": "tensor"},
    {"to": tcgemm.nn.SparseLinear24},
    {"to": tcgemm.nn.SparseLinear24, "learns": True},
    {"to": nn.Linear},
)
PATTERNS = (None, "body", "*.linear1", "*.self_attn", "head", ["inner", "head"])
IDS = torch.arange(6).reshape(2, 3)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(16, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2)
        self.inner = nn.Linear(16, 16)
        self.head = nn.Linear(16, 16, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids):
        return self.head(self.inner(self.body(self.embedding(ids))))


def snapshot(model):
    """Class and attributes of every module, and which Parameters these hold."""
    return [
        (type(module), vars(module).copy(), {name: id(p) for name, p in module._parameters.items()})
        for module in model.modules()
    ]


def of_ours(model):
    return [module for module in model.modules() if exchange.layer_of(module)]


@pytest.mark.parametrize("seed", range(12))
def test_sequence(seed):
    draw = random.Random(seed)
    torch.manual_seed(seed)
    model = Model().eval()
    with torch.no_grad():
        expected = model(IDS)
        before, reports = [], []
        for _ in range(draw.randint(2, 5)):
            options = draw.choice(SWAPS)
            names = draw.choice(PATTERNS) if options.get("to") is not nn.Linear else None
            before.append(snapshot(model))
            reports.append(tcgemm.swap_linear(model, names, shared=draw.random() < 0.3, **options))
            assert model(IDS).shape == expected.shape
        other = copy.deepcopy(model)
        tcgemm.swap_linear(other, to=nn.Linear, shared=True)
        assert not of_ours(other)
        assert [type(module) for module in other.modules()] == [kind for kind, *_ in before[0]]
        assert [layer.activation_relu_or_gelu for layer in other.body.layers] == [1, 1]
        torch.testing.assert_close(other(IDS), model(IDS), rtol=0.2, atol=0.2)
        for report, state in zip(reversed(reports), reversed(before), strict=True):
            report.undo()
            assert snapshot(model) == state
        assert torch.equal(model(IDS), expected)
