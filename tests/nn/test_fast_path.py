"""torch.nn.TransformerEncoder calls swapped layers, also in eval mode without gradients."""

import copy
import pickle

import pytest
import torch
from torch import nn

import tcgemm

from support.calls import Counter

LAYERS = {
    "Linear": {"to": tcgemm.nn.Linear},
    "QuantLinear": {"to": tcgemm.nn.QuantLinear},
    "SparseLinear24": {"to": tcgemm.nn.SparseLinear24},
    "SparseLinear24 that learns": {"to": tcgemm.nn.SparseLinear24, "learns": True},
}
X = torch.linspace(-1, 1, 2 * 5 * 32).reshape(2, 5, 32)
PADDED = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])


def encoder(**options):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, **options)
    return nn.TransformerEncoder(layer, 2).eval()


def switches(model):
    return [
        (layer.activation_relu_or_gelu, model.use_nested_tensor, sorted(vars(layer)))
        for layer in model.layers
    ]


@pytest.mark.parametrize("options", LAYERS.values(), ids=LAYERS)
@pytest.mark.parametrize("padding", [None, PADDED], ids=["dense", "padded"])
def test_swapped_layers_run_and_undo_takes_the_fast_path_again(options, padding):
    model = encoder()
    before = switches(model)
    with torch.no_grad():
        expected = model(X, src_key_padding_mask=padding)
        report = tcgemm.swap_linear(model, **options)
        with Counter() as counter:
            result = model(X, src_key_padding_mask=padding)
        assert counter.count >= 4  # two linear layers in each of two encoder layers
        if options["to"] is tcgemm.nn.Linear:
            assert counter.count == 8
            rows = slice(None) if padding is None else ~padding  # the fast path writes zeros
            torch.testing.assert_close(result[rows], expected[rows])
        report.undo()
        assert switches(model) == before
        assert torch.equal(model(X, src_key_padding_mask=padding), expected)


def test_one_encoder_layer_is_a_model_too():
    layer = encoder(activation="gelu").layers[0]
    report = tcgemm.swap_linear(layer, "linear1", to=tcgemm.nn.QuantLinear)
    assert report.swapped == ["linear1"]
    with torch.no_grad(), Counter() as counter:
        layer(X)
    assert counter.count > 0
    report.undo()
    assert layer.activation_relu_or_gelu == 2


def test_the_path_stays_where_nothing_is_swapped():
    model = encoder()
    tcgemm.swap_linear(model, "layers.1")
    assert [layer.activation_relu_or_gelu for layer in model.layers] == [1, 0]
    assert not model.use_nested_tensor


def test_copies_go_back_without_the_report():
    model = encoder()
    before = switches(model)
    tcgemm.swap_linear(model)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        tcgemm.swap_linear(other, to=nn.Linear)
        assert switches(other) == before
    assert switches(model) != before


def test_two_swaps_keep_the_path_off_until_both_are_undone():
    model = encoder()
    first = tcgemm.swap_linear(model, "*.linear1")
    second = tcgemm.swap_linear(model, "*.linear2", to=tcgemm.nn.QuantLinear)
    first.undo()
    assert model.layers[0].activation_relu_or_gelu == 0
    second.undo()
    assert model.layers[0].activation_relu_or_gelu == 1 and model.use_nested_tensor
