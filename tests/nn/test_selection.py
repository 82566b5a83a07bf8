"""filter_fn and skip of swap_linear, and its sentences for wrong arguments."""

import functools

import pytest
import torch
from torch import nn

import tcgemm


def model():
    block = {"attn": nn.Linear(8, 8), "mlp": nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))}
    layers = nn.ModuleList(nn.ModuleDict(block) for block in (block, dict(block)))
    layers[1]["attn"], layers[1]["mlp"] = nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8))
    return nn.ModuleDict({"layers": layers, "lm_head": nn.Linear(8, 16), "norm": nn.LayerNorm(8)})


ALL = ["layers.0.attn", "layers.0.mlp.0", "layers.0.mlp.1", "layers.1.attn", "layers.1.mlp.0"]
ALL.append("lm_head")
MLP = [name for name in ALL if ".mlp." in name]


@pytest.mark.parametrize(
    ("arguments", "swapped"),
    [
        ({}, ALL),
        ({"filter_fn": lambda module, name: module.out_features == 16}, ["lm_head"]),
        ({"filter_fn": lambda module, name, extra=1: True}, ALL),
        ({"filter_fn": functools.partial(lambda size, module, name: True, 1)}, ALL),
        ({"filter_fn": "lm_head"}, ["lm_head"]),
        ({"filter_fn": ["lm_head"]}, ["lm_head"]),
        ({"filter_fn": ("lm_head", "layers.1.attn")}, ["layers.1.attn", "lm_head"]),
        ({"filter_fn": "*.mlp.*"}, MLP),
        ({"filter_fn": "*.mlp"}, MLP),
        ({"filter_fn": "layers.0"}, ALL[:3]),
        ({"filter_fn": "layers.?.attn"}, ["layers.0.attn", "layers.1.attn"]),
        ({"skip": "lm_head"}, ALL[:-1]),
        ({"skip": ["lm_head", "layers.0"]}, ALL[3:5]),
        ({"skip": lambda module, name: "mlp" in name}, ["layers.0.attn", "layers.1.attn", ALL[-1]]),
        ({"filter_fn": "*.mlp.*", "skip": "layers.1"}, ALL[1:3]),
    ],
)
def test_names_patterns_and_functions(arguments, swapped):
    assert tcgemm.swap_linear(model(), **arguments).swapped == swapped


def test_reasons():
    always, never = (lambda module, name: True), (lambda module, name: False)
    for arguments, reason in (
        ({"filter_fn": never}, "filter_fn is false for it"),
        ({"filter_fn": "layers.1"}, "filter_fn does not name it"),
        ({"skip": always}, "skip is true for it"),
        ({"skip": "layers.0"}, "skip names it"),
    ):
        assert tcgemm.swap_linear(model(), **arguments).skipped["layers.0.attn"] == reason


def test_names_hold_for_every_kind_of_layer():
    """The same names in several swaps are no error, whatever an earlier one made of the layers."""
    net = model()
    tcgemm.swap_linear(net, "*.mlp", to=tcgemm.nn.QuantLinear)
    report = tcgemm.swap_linear(net, skip="*.mlp")
    assert report.swapped == [name for name in ALL if name not in MLP]
    reason = "is a tcgemm.nn.QuantLinear, which tcgemm.nn.Linear does not replace"
    assert report.skipped == dict.fromkeys(MLP, reason)
    net = nn.Sequential(nn.MultiheadAttention(8, 2), nn.Linear(8, 8))
    assert tcgemm.swap_linear(net, skip="0", to=tcgemm.nn.QuantLinear).swapped == ["1"]


def test_the_model_itself_has_an_empty_name():
    assert tcgemm.swap_linear(nn.Linear(8, 8), filter_fn="").swapped == [""]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"filter_fn": 3}, "filter_fn is 3, but it must be a function of .module, name., a name,"),
        ({"filter_fn": ["lm_head", 3]}, r"filter_fn is \['lm_head', 3\], but"),
        ({"filter_fn": tcgemm.nn.QuantLinear}, "or to=QuantLinear if layers of that class"),
        ({"filter_fn": nn.Linear(1, 1)}, "filter_fn is Linear"),
        ({"filter_fn": lambda module: True}, r"called with \(module, name\), but takes \(module\)"),
        ({"skip": lambda: True}, r"skip is called with \(module, name\), but takes \(\)"),
        (
            {"skip": "head"},
            "skip has 'head', but no layer has that name, .* the layers are 'layers",
        ),
        ({"filter_fn": ["*.mpl.*"]}, r"filter_fn has '\*.mpl.\*', but no layer"),
        ({"filter_fn": "norm"}, "filter_fn has 'norm', but no layer"),
        ({"filter_fn": lambda module, name: module.size}, "filter_fn failed for 'layers.0.attn'"),
        (
            {"to": nn.Conv2d},
            "to is torch.nn.Conv2d with options .., but there are tcgemm.nn.Linear with prepare, "
            "batch_invariant; tcgemm.nn.QuantLinear with dtype, granularity, batch_invariant; "
            "tcgemm.nn.Float8Linear with scaling, history, precision, batch_invariant; "
            "tcgemm.nn.PackedLinear with format, group_size, method, zero_points, scale_dtype, "
            "table, batch_invariant; tcgemm.nn.SparseLinear24 with method, learns, refresh_every, "
            "gradient, batch_invariant; torch.nn.Linear with dtype; pass one of these.$",
        ),
        ({"to": "QuantLinear"}, "to is 'QuantLinear' with options"),
        ({"to": []}, r"to is \[\] with options"),
        ({"to": nn.Linear(1, 1)}, "to is Linear"),
        ({"dtype": torch.int8}, r"to is tcgemm.nn.Linear with options \['dtype'\], but there are"),
        ({"to": tcgemm.nn.MultiheadAttention}, "to is tcgemm.nn.MultiheadAttention with options"),
    ],
)
def test_sentences(arguments, sentence):
    net = model()
    with pytest.raises(RuntimeError, match=r"^tcgemm\.swap_linear: .*" + sentence):
        tcgemm.swap_linear(net, **arguments)
    assert type(net["lm_head"]) is nn.Linear


@pytest.mark.parametrize("value", [None, torch.zeros(2), [nn.Linear(1, 1)], nn.Linear, "model"])
def test_what_is_no_model(value):
    with pytest.raises(
        RuntimeError, match=r"^tcgemm\.swap_linear: model is a \w+, but it must be a torch.nn"
    ):
        tcgemm.swap_linear(value)
