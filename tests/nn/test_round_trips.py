"""Layers and their weights are saved, loaded, copied, converted and exported, each one alone."""

import copy
import io
import pickle

import pytest
import torch

import tcgemm
from tcgemm import nn

from support.error_asserts import error_message

X = torch.linspace(-1, 1, 16 * 128).view(16, 128)


def linear():
    return torch.nn.Linear(128, 48)


def packed(format):
    table = torch.linspace(-1, 1, 16) if format == "table" else None
    group = 64 if format == "table" else "default"
    return nn.PackedLinear.from_linear(linear(), format, group, table=table)


def conv1d():
    layer = nn.Conv1D(48, 128)
    torch.nn.init.normal_(layer.weight)
    return layer


PACKED = ("int4", "int8", "e4m3", "nf4", "fp4", "mxfp4", "nvfp4", "table")
LAYERS = {
    "Linear": lambda: nn.Linear(128, 48),
    "QuantLinear float8": lambda: nn.QuantLinear.from_linear(linear()),
    "QuantLinear int8": lambda: nn.QuantLinear.from_linear(linear(), torch.int8),
    "QuantLinear blocks": lambda: nn.QuantLinear.from_linear(linear(), granularity="128x128"),
    **{f"PackedLinear {name}": lambda name=name: packed(name) for name in PACKED},
    "SparseLinear24": lambda: nn.SparseLinear24.from_linear(linear()),
    "Float8Linear": lambda: nn.Float8Linear.from_linear(linear()),
    "Conv1D": conv1d,
}
layers = pytest.mark.parametrize("name", LAYERS)
VIEWS = [name for name in LAYERS if name.startswith(("Quant", "Packed"))]
views = pytest.mark.parametrize("name", VIEWS)


def loaded(value, weights_only=True):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=weights_only)


COPIES = {
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
    "torch.save": loaded,
}
copies = pytest.mark.parametrize("way", COPIES)


@layers
def test_a_lone_layer_is_exported_saved_and_loaded(name, tmp_path):
    layer = LAYERS[name]().bfloat16().eval()
    x = X.bfloat16()
    program = torch.export.export(layer, (x,))
    torch.export.save(program, tmp_path / "program.pt2")
    other = torch.export.load(tmp_path / "program.pt2")
    expected = layer(x)
    assert torch.equal(program.module()(x), expected)
    assert torch.equal(other.module()(x), expected)


def test_a_layer_with_released_codes_is_exported():
    layer = packed("nf4").bfloat16()
    expected = layer(X.bfloat16())
    layer.release_codes()
    for one in (layer, copy.deepcopy(layer)):
        assert torch.equal(
            torch.export.export(one, (X.bfloat16(),)).module()(X.bfloat16()), expected
        )


@copies
@views
def test_a_weight_view_is_copied_and_saved(name, way):
    weight = LAYERS[name]().weight
    other = COPIES[way](weight)
    assert type(other) is type(weight) and other.dtype is weight.dtype
    assert torch.equal(other.to_dense(), weight.to_dense())
    if way != "copy":
        part = (lambda w: w.packed.codes) if name.startswith("Packed") else (lambda w: w.values)
        assert part(other).data_ptr() != part(weight).data_ptr()


@copies
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_a_sparse_float8_tensor_is_copied_and_saved(dtype, way):
    dense = tcgemm.prune24(torch.randn(48, 128)).to(dtype)
    for transposed in (False, True):
        tensor = tcgemm.compress24(dense)
        tensor = tensor.t() if transposed else tensor
        other = COPIES[way](tensor)
        assert type(other) is tcgemm.SparseTensor24 and other.dtype is dtype
        assert torch.equal(other.to_dense().view(torch.uint8), tensor.to_dense().view(torch.uint8))


def test_a_damaged_sparse_float8_tensor_is_refused():
    tensor = tcgemm.compress24(tcgemm.prune24(torch.randn(48, 128)).to(torch.float8_e5m2))
    restored, arguments = tensor.__reduce_ex__(4)
    wrong = (*arguments[:-1], torch.float32)
    assert error_message(lambda: restored(*wrong), RuntimeError) == (
        "tcgemm.SparseTensor24: the saved tensor is damaged: its values are not bytes of "
        "torch.float32; load another copy of the file."
    )


@copies
@pytest.mark.parametrize("transposed", [False, True])
def test_a_prepared_weight_is_copied_and_saved(way, transposed):
    prepared = tcgemm.prepare(torch.randn(48, 128))
    prepared = prepared.t() if transposed else prepared
    other = COPIES[way](prepared)
    assert type(other) is tcgemm.Prepared and other.shape == prepared.shape
    assert torch.equal(other.weight, prepared.weight) and other.fresh


def test_damaged_weights_are_refused():
    prepared, view = tcgemm.prepare(torch.ones(2, 2)), packed("int4").weight
    quantised = LAYERS["QuantLinear int8"]().weight
    function, (weight, _) = prepared.__reduce__()
    assert "Prepared: the saved object is damaged: transposed is 1" in error_message(
        lambda: function(weight, 1), RuntimeError
    )
    function, _ = view.__reduce_ex__(4)
    assert "PackedLinear: the saved weight is damaged: it has Tensor" in error_message(
        lambda: function(X), RuntimeError
    )
    function, (values, dtype, scale, shown) = quantised.__reduce_ex__(4)
    for wrong in (
        (None, dtype, scale, shown),
        (values, shown, scale, shown),
        (values, dtype, X, 1),
    ):
        text = error_message(lambda wrong=wrong: function(*wrong), RuntimeError)
        assert text.startswith("tcgemm.nn.QuantLinear: the saved weight is damaged: it must have")


@layers
def test_double_and_back(name):
    """A layer computes in float64 or says what it takes, and has its own result again."""
    layer = LAYERS[name]().eval()
    x = X.bfloat16() if name.startswith("Packed") else X
    with torch.no_grad():
        before, state = layer(x), copy.deepcopy(layer.state_dict())
        if name == "SparseLinear24":
            text = error_message(layer.double, RuntimeError)
            assert "it is converted to torch.float64" in text and "swap_linear" in text
        else:
            layer.double()
            if name in ("Linear", "Conv1D"):
                assert layer(X.double()).dtype is torch.float64
            else:
                text = error_message(lambda: layer(X.double()), RuntimeError)
                assert "x is torch.float64" in text
        for copied in (layer, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
            copied.float()
            assert torch.equal(copied(x), before)
            for key, tensor in copied.state_dict().items():
                if isinstance(tensor, torch.Tensor):
                    assert tensor.dtype is state[key].dtype


@views
def test_the_weight_of_a_double_layer(name):
    layer = LAYERS[name]().double()
    assert layer.weight.dtype is torch.float64
    for way in COPIES.values():
        assert torch.equal(way(layer.weight).to_dense(), layer.weight.to_dense())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@layers
def test_to_16_bits_keeps_parts(name, dtype):
    """Values, codes and scales stay as they are; the result is that of a layer made in 16 bits."""
    layer = LAYERS[name]().eval()
    state = copy.deepcopy(layer.state_dict())
    with torch.no_grad():
        expected = layer(X.bfloat16() if name.startswith("Packed") else X).float()
        result = layer.to(dtype)(X.to(dtype)).float()
    assert (result - expected).abs().max() <= 0.05 * expected.abs().max()
    for key, tensor in layer.state_dict().items():
        if not key.startswith(("weight.", "bias")) and name.startswith(("Quant", "Packed")):
            assert tensor.dtype is state[key].dtype


def test_a_scale_that_the_layer_would_not_use_is_refused():
    layer = LAYERS["QuantLinear float8"]()
    state = layer.state_dict()
    before = copy.deepcopy(state)
    other = {"weight_scale_inv" if key == "weight_scale" else key: state[key] for key in state}
    both = {**linear().state_dict(), "weight_scale": state["weight_scale"]}
    for wrong, text in (
        (other, "its scale has the name weight_scale_inv, which no layer takes; rename it"),
        (both, "is quantised while it is loaded, but the state has weight_scale as well"),
    ):
        for strict in (True, False):
            call = lambda wrong=wrong, strict=strict: layer.load_state_dict(wrong, strict)  # noqa: E731
            assert text in error_message(call, RuntimeError)
    assert torch.equal(layer.state_dict()["weight_scale"], before["weight_scale"])
    layer = packed("int4")
    both = {**linear().state_dict(), "scales": layer.state_dict()["scales"]}
    text = error_message(lambda: layer.load_state_dict(both, strict=False), RuntimeError)
    assert "the state has weight, which is packed while it is loaded, and scales as well" in text
