"""SwapReport as text, as fields and in a notebook; how much of a model a swap reaches."""

import pytest
import torch
from torch import nn

import tcgemm
from tcgemm.nn import coverage


class Experts(nn.Module):
    """Weights that no linear layer holds."""

    def __init__(self):
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.zeros(4, 16, 8))
        self.down_proj = nn.Parameter(torch.zeros(4, 8, 8))
        self.scale = nn.Parameter(torch.zeros(8))


def model():
    return nn.ModuleDict(
        {
            "embed": nn.Embedding(64, 8),
            "norm": nn.LayerNorm((2, 8)),
            "experts": nn.ModuleList([Experts(), Experts()]),
            "conv": nn.Conv2d(3, 4, 3),
            "gate": nn.Linear(8, 4),
            "<head>": nn.Linear(8, 64),
        }
    )


def test_text_and_fields():
    report = tcgemm.swap_linear(model(), skip="<head>")
    assert (report.reached, report.weights) == (32, 32 + 512 + 108 + 2 * 768)
    assert report.not_reached == [
        ("Experts", 2, ("gate_up_proj", "down_proj"), 1536),
        ("Linear", 1, ("weight",), 512),
        ("Conv2d", 1, ("weight",), 108),
    ]
    head = (
        "1 swapped, 1 skipped; reaches 1 % of 2.2 k weights in matrices; not reached: "
        "2 Experts (gate_up_proj, down_proj), 1 Linear (weight), 1 Conv2d (weight)"
    )
    assert repr(report) == str(report)
    assert str(report).split("\n") == [head, "  swapped  gate", "  skipped  <head>: skip names it"]


def test_html():
    html = tcgemm.swap_linear(model(), skip="<head>")._repr_html_()
    assert html.startswith("<p>1 swapped, 1 skipped; reaches 1 % of 2.2 k weights")
    assert "<tr><td>gate</td><td>swapped</td><td></td></tr>" in html
    assert "<tr><td>&lt;head&gt;</td><td>skipped</td><td>skip names it</td></tr>" in html
    assert "<td>(the model)</td>" in tcgemm.swap_linear(nn.Linear(2, 2))._repr_html_()


def test_a_tied_head_counts_once_and_a_lone_table_not():
    net = model()
    net["<head>"].weight = net["embed"].weight
    report = tcgemm.swap_linear(net, "<head>")
    assert (report.reached, report.weights) == (512, 32 + 512 + 108 + 2 * 768)


@pytest.mark.parametrize(
    "options", [{"skip": "<head>"}, {"to": tcgemm.nn.QuantLinear}], ids=["skipped", "shared"]
)
def test_a_tied_head_that_stays_is_not_missed(options):
    net = model()
    net["<head>"].weight = net["embed"].weight
    report = tcgemm.swap_linear(net, **options)
    assert "<head>" in report.skipped and report.weights == 32 + 108 + 2 * 768
    assert [layer.kind for layer in report.not_reached] == ["Experts", "Conv2d"]


class Mixer(nn.Module):
    """The Parameters of two dimensions that a Mamba layer, a ViT and experts do not multiply."""

    def __init__(self):
        super().__init__()
        shapes = {"A_log": (16, 8), "cls_token": (1, 2, 8), "pos_embed": (1, 4, 8)}
        shapes |= {"gate_up_proj_bias": (4, 8), "relative_position_bias_table": (9, 4)}
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.zeros(shape)))
        self.conv1d = nn.Conv1d(16, 16, 4, groups=16)
        self.in_proj = nn.Linear(8, 16)


def test_what_no_product_multiplies_is_no_matrix():
    report = tcgemm.swap_linear(nn.Sequential(Mixer()))
    assert report.coverage() == "reaches 100 % of 128 weights in matrices"


@pytest.mark.parametrize("to", [tcgemm.nn.QuantLinear, tcgemm.nn.SparseLinear24])
def test_layers_without_a_dense_weight_are_reached(to):
    net = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 4))
    assert tcgemm.swap_linear(net, "0", to=to).reached == 128
    report = tcgemm.swap_linear(net)
    assert (report.swapped, report.reached, report.weights) == (["1"], 192, 192)
    assert "reaches 100 % of 192 weights in matrices" in str(report).split("\n")[0]
    back = tcgemm.swap_linear(net, to=nn.Linear)
    assert (back.reached, back.weights) == (0, 192)


def test_a_model_without_matrices_and_one_of_many_classes():
    report = tcgemm.swap_linear(nn.Sequential(nn.ReLU(), nn.LayerNorm(4)))
    assert str(report) == "0 swapped, 0 skipped; the model has no weights in matrices"
    kinds = [type(f"Kind{index}", (nn.Bilinear,), {}) for index in range(10)]
    report = tcgemm.swap_linear(nn.Sequential(*(kind(2, 2, 2) for kind in kinds)))
    assert str(report).endswith("1 Kind7 (weight), and 2 other classes")


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [(0, 9, "0 %"), (9, 9, "100 %"), (999, 1000, "99 %"), (1, 150, "0.7 %"), (1, 10**6, "0.1 %")],
)
def test_percentage(part, whole, text):
    assert coverage.percentage(part, whole) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(512, "512"), (36_900, "36.9 k"), (1_300_000, "1.3 M"), (7_240_000_000, "7.2 G")],
)
def test_quantity(number, text):
    assert coverage.quantity(number) == text
