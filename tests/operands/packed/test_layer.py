"""tcgemm.nn.PackedLinear: states, copies, moves, gradients, swap_linear, torch.compile, QLoRA."""

import copy
import pickle

import pytest
import torch
from safetensors.torch import load_file, load_model, save_file, save_model
from torch import nn

import tcgemm
from tcgemm.nn import PackedLinear

from support.cases import DEVICES, copies
from support.error_asserts import error_message
from support.packed_weight_cases import TABLE, bits

FORMATS = ("int4", "int8", "e4m3", "nf4", "fp4", "mxfp4", "nvfp4", "table")
formats = pytest.mark.parametrize("format", FORMATS)
X = torch.linspace(-1, 1, 3 * 128).view(3, 128).half()


def options_of(format):
    return {"format": format} | ({"table": TABLE} if format == "table" else {})


def linear(bias=True, dtype=torch.float16):
    return nn.Linear(128, 32, bias).to(dtype)


def layer(format="int4", bias=True, **options):
    return PackedLinear.from_linear(linear(bias), **options_of(format), **options)


def empty(format="int4", bias=True, **options):
    return PackedLinear(128, 32, bias, **options_of(format), **options)


def same(state, other):
    return state.keys() == other.keys() and all(
        tensor.dtype is other[name].dtype and torch.equal(bits(tensor), bits(other[name]))
        for name, tensor in state.items()
    )


@pytest.mark.parametrize("device", DEVICES)
@formats
def test_forward_is_the_product_with_the_dequantised_weight(format, device):
    module = layer(format).to(device)
    x = X.to(device)
    expected = tcgemm.linear(x, module.packed.dequantize(torch.float16), module.bias)
    assert torch.allclose(module(x).float(), expected.float(), rtol=2e-3, atol=2e-3)
    if device == "cpu":
        assert torch.equal(module(x), expected)
    for shape in ((128,), (2, 3, 128), (0, 128)):
        assert module(torch.zeros(shape, device=device).half()).shape == (*shape[:-1], 32)


@formats
def test_a_new_layer_is_zero(format):
    module = empty(format, bias_dtype=torch.bfloat16)
    assert (module(X.bfloat16()) == 0).all() and (module.packed.dequantize() == 0).all()
    assert module.weight.dtype is torch.bfloat16


@formats
def test_states_are_plain_tensors(format, tmp_path):
    module = layer(format)
    expected, state = module(X), module.state_dict()
    parts = module.packed
    names = ("codes", "scales", "table", "global_scale", "bias")
    assert list(state) == [n for n in names if getattr(module, n) is not None]
    assert all(type(tensor) is torch.Tensor for tensor in state.values())
    assert state["codes"].dtype is parts.codes.dtype and state["scales"].dtype is parts.scales.dtype

    loaded = empty(format, scale_dtype=None, bias_dtype=torch.float16)
    assert str(loaded.load_state_dict(state)) == "<All keys matched successfully>"
    assert torch.equal(loaded(X), expected) and same(loaded.state_dict(), state)

    meta = empty(format, device="meta", bias_dtype=torch.float16)
    meta.load_state_dict(state, assign=True)
    assert torch.equal(meta(X), expected) and same(meta.state_dict(), state)

    save_file(state, tmp_path / "state.safetensors")
    other = empty(format, bias_dtype=torch.float16)
    other.load_state_dict(load_file(tmp_path / "state.safetensors"))
    assert torch.equal(other(X), expected)


def test_save_model_of_safetensors(tmp_path):
    model = nn.Sequential(layer("nf4"), nn.ReLU())
    save_model(model, str(tmp_path / "model.safetensors"))
    other = nn.Sequential(empty("nf4", scale_dtype=torch.float16, bias_dtype=torch.float16))
    load_model(other, str(tmp_path / "model.safetensors"))
    assert torch.equal(other[0](X), model[0](X))


@formats
def test_the_state_of_a_linear_is_packed(format):
    dense = linear()
    module = empty(format, scale_dtype=None, bias_dtype=torch.float16)
    module.load_state_dict(dense.state_dict())
    expected = PackedLinear.from_linear(dense, **options_of(format))
    assert torch.equal(module(X), expected(X))
    points = PackedLinear(128, 32, zero_points=True, bias_dtype=torch.float16)
    points.load_state_dict(dense.state_dict())
    assert points.zero_points is not None
    assert torch.equal(points(X), PackedLinear.from_linear(dense, zero_points=True)(X))


def test_a_state_has_the_dtype_of_its_scales():
    state = layer().state_dict()
    module = empty(scale_dtype=torch.float32)
    module.load_state_dict(state)
    assert module.scales.dtype is torch.float16 and same(
        module.state_dict(), state | {"bias": module.bias.detach()}
    )


ERRORS = {
    "group": (
        lambda: layer(group_size=32).state_dict(),
        "scales must be torch.float16 or torch.bfloat16 or torch.float32 of shape (32, 1), but "
        "is torch.float16 of shape (32, 4); pass the tensors of one packed weight.",
    ),
    "format": (
        lambda: layer("int8").state_dict(),
        "codes must be torch.uint8 of shape (32, 64), but is torch.int8 of shape (32, 128); pass "
        "the tensors of one packed weight.",
    ),
    "shape of a linear": (
        lambda: nn.Linear(64, 32).state_dict(),
        "weight has shape (32, 64), but the layer has (32, 128); load the weight of such a layer.",
    ),
}


@pytest.mark.parametrize(("state", "text"), ERRORS.values(), ids=ERRORS)
def test_a_state_of_another_layer_is_refused(state, text):
    module = nn.Sequential(empty())
    before = module.state_dict()
    with pytest.raises(RuntimeError) as excinfo:
        module.load_state_dict({f"0.{name}": tensor for name, tensor in state().items()})
    assert text in str(excinfo.value)
    assert same(module.state_dict(), before)


def test_a_state_of_another_code_book_is_refused():
    with pytest.raises(RuntimeError) as excinfo:
        empty("nf4").load_state_dict(layer("fp4").state_dict())
    assert (
        "the layer: tcgemm.nn.PackedLinear: table differs from the table of 'nf4'; load the state "
        "into a layer of its format, or of the format 'table'." in str(excinfo.value)
    )
    module = empty("table", bias_dtype=torch.float16)
    source = layer("fp4")
    module.load_state_dict(source.state_dict())
    assert torch.equal(module(X), source(X))


def test_missing_and_unexpected_parts_are_named():
    state = layer(zero_points=True).state_dict()
    with pytest.raises(RuntimeError, match=r'Unexpected key\(s\) in state_dict: "zero_points"'):
        empty().load_state_dict(state)
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "zero_points"'):
        empty(zero_points=True).load_state_dict(layer().state_dict())


@formats
def test_copies(format):
    module = layer(format)
    expected = module(X)
    for copy_of_it in copies(module):
        assert copy_of_it._packed is None and torch.equal(copy_of_it(X), expected)
    assert module._packed is not None


@formats
def test_moves_convert_the_bias_alone(format):
    module = layer(format)
    state = module.state_dict()
    for move, dtype in (
        (lambda m: m.bfloat16(), torch.bfloat16),
        (lambda m: m.to(torch.float32), torch.float32),
    ):
        other = move(copy.deepcopy(module))
        assert other.bias.dtype is dtype and other.weight.dtype is dtype
        moved_state = other.state_dict()
        assert same(
            {k: v for k, v in moved_state.items() if k != "bias"},
            {k: v for k, v in state.items() if k != "bias"},
        )
        assert other.packed.dequantize().dtype is dtype
    assert module.to("meta").codes.is_meta


def test_to_linear():
    module = layer()
    dense = module.to_linear()
    assert type(dense) is tcgemm.nn.Linear and dense.weight.dtype is torch.float16
    assert torch.equal(dense(X), module(X)) and dense.weight.requires_grad
    assert module.to_linear(torch.float32).weight.dtype is torch.float32
    without = layer(bias=False).to_linear()
    assert without.bias is None and without.weight.dtype is torch.float16


def test_from_packed_shares_the_tensors():
    packed = tcgemm.pack_weight(torch.randn(32, 128).half(), "int4", 32, zero_points=True)
    module = PackedLinear.from_packed(packed, torch.ones(32), activation="gelu")
    assert module.codes is packed.codes and (module.format, module.group_size) == ("int4", 32)
    assert torch.equal(module(X), tcgemm.linear(X, packed, torch.ones(32), activation="gelu"))
    assert error_message(lambda: PackedLinear.from_packed(torch.ones(32, 128)), TypeError) == (
        "tcgemm.nn.PackedLinear.from_packed: packed must be a tcgemm.PackedWeight, but is Tensor; "
        "make one with tcgemm.pack_weight."
    )
    assert error_message(lambda: PackedLinear.from_packed(packed.t())) == (
        "tcgemm.nn.PackedLinear.from_packed: packed has shape (128, 32), and is a transpose, and "
        "bias has shape None, but a layer has a weight (N, K) and a bias (N,); pass the weight of "
        "32 rows as it was packed."
    )


def test_what_other_code_reads_of_the_weight():
    module = layer()
    weight, dense = module.weight, module.packed.dequantize()
    assert isinstance(weight, torch.Tensor) and weight.dtype is torch.float16
    assert weight.shape == (32, 128) and not weight.requires_grad and weight.device.type == "cpu"
    assert torch.equal(weight.to_dense(), dense) and torch.equal(weight.detach() + 0, dense)
    assert weight.to(torch.bfloat16).dtype is torch.bfloat16 and weight.t().shape == (128, 32)
    text = (
        "tcgemm.nn.PackedLinear: an operator writes into weight, which is the dequantised form of "
        "the codes and scales and read-only; load a weight with load_state_dict, or make another "
        "layer with from_linear."
    )
    assert error_message(lambda: weight.mul_(2)) == text
    with pytest.raises(RuntimeError) as excinfo:
        module.weight = dense
    assert str(excinfo.value) == (
        "tcgemm.nn.PackedLinear: weight is assigned Tensor, but it is the dequantised form of the "
        "codes and scales; load a weight with load_state_dict, or make another layer with "
        "from_linear or from_packed."
    )


@formats
def test_released_codes(format):
    module = layer(format)
    expected, state = module(X), {k: v.clone() for k, v in module.state_dict().items()}
    module.release_codes()
    assert module.codes is None and torch.equal(module(X), expected)
    assert same(module.state_dict(), state) and module.weight.shape == (32, 128)
    for copy_of_it in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert copy_of_it.codes is not None and torch.equal(copy_of_it(X), expected)
    assert module.codes is None and torch.equal(module.to_linear()(X), expected)
    torch._dynamo.reset()
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(X), expected)
    other = layer(format)
    module.load_state_dict(other.state_dict())
    assert module.codes is not None and torch.equal(module(X), other(X))
    module.release_codes()
    module.scales = other.scales.clone()  # a new buffer beside released codes
    assert torch.equal(module(X), other(X))
    module.release_codes()
    assert module.bfloat16().codes is not None and module.bias.dtype is torch.bfloat16


@pytest.mark.parametrize("change", ["in place", "assigned", "loaded"])
def test_a_forward_sees_every_change(change):
    module, other = layer(), layer()
    module(X)
    if change == "in place":
        module.codes.copy_(other.codes)
        module.scales.copy_(other.scales)
    elif change == "assigned":
        module.codes, module.scales = other.codes, other.scales
    else:
        module.load_state_dict(other.state_dict())
    module.bias = other.bias
    assert torch.equal(module(X), other(X))


def test_gradients_of_x_and_the_bias():
    packed = layer()
    packed.bias.requires_grad_()
    dense = packed.to_linear()
    g = torch.randn(3, 32).half()
    results = []
    for module in (packed, dense):
        x = X.clone().requires_grad_()
        results.append(torch.autograd.grad(module(x), (x, module.bias), g))
    for grad, expected in zip(*results, strict=True):
        assert torch.equal(grad, expected)
    assert not any(parameter.requires_grad for parameter in layer().parameters())


@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize("format", ["int4", "nvfp4"])
def test_compiled_layers(format, warm):
    torch._dynamo.reset()
    module = layer(format)
    expected = copy.deepcopy(module)(X)
    if warm:
        module(X)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    x = X.clone().requires_grad_()
    assert torch.equal(compiled(x), expected) and torch.equal(compiled(x), expected)
    (gradient,) = torch.autograd.grad(compiled(x).float().sum(), x)
    assert torch.equal(gradient, torch.autograd.grad(module(x).float().sum(), x)[0])
    module.scales.view(torch.uint8 if format == "nvfp4" else torch.int16).zero_()
    assert torch.equal(compiled(x), module(x))


def test_export_and_vmap():
    module = layer()
    exported = torch.export.export(module, (X,)).module()
    assert torch.equal(exported(X), module(X))
    assert torch.equal(torch.vmap(module)(X), module(X))


def test_activations_and_batch_invariance():
    dense = tcgemm.nn.Linear(128, 32, activation="gelu", batch_invariant=True).half()
    module = PackedLinear.from_linear(dense)
    assert module.activation == "gelu" and module.batch_invariant
    assert "format=int4, group_size=128, activation=gelu, batch_invariant=True" in repr(module)
    with pytest.raises(RuntimeError, match="PackedLinear: activation is"):
        module.activation = "tanh"


def mlp(dtype=torch.float16):
    return nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 100), nn.Linear(100, 8)).to(
        dtype
    )


def test_swap_linear():
    model = mlp()
    expected = model(X)
    report = tcgemm.swap_linear(model, to=PackedLinear, group_size=64, method="mse")
    assert report.swapped == ["0", "2"]
    assert report.skipped == {"3": "has 100 inputs, which groups of 64 do not divide"}
    assert type(model[0]) is PackedLinear and (model(X) - expected).abs().max() < 0.2
    report.undo()
    assert torch.equal(model(X), expected)
    tcgemm.swap_linear(model, to=PackedLinear, format="int8")
    assert [type(child).__name__ for child in model] == ["PackedLinear", "ReLU"] + [
        "PackedLinear"
    ] * 2
    near = model(X)
    assert next(model.parameters()).dtype is torch.float16
    back = tcgemm.swap_linear(model, to=nn.Linear)
    assert back.swapped == ["0", "2", "3"] and type(model[0]) is nn.Linear
    assert torch.equal(model(X), near)


def test_a_model_without_other_parameters_gets_a_placeholder():
    model = nn.Sequential(nn.Linear(128, 32, bias=False).half())
    tcgemm.swap_linear(model, to=PackedLinear)
    assert next(model.parameters()).dtype is torch.float16
    assert set(model.state_dict()) == {"0.codes", "0.scales"}
    other = nn.Sequential(PackedLinear(128, 32, False))
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(X), model(X))


def test_swap_linear_refuses_options():
    assert error_message(lambda: tcgemm.swap_linear(mlp(), to=PackedLinear, format="int3")) == (
        "tcgemm.swap_linear: format is 'int3', but there are int4, int8, e4m3, nf4, fp4, mxfp4, "
        "nvfp4, table; pass one of these."
    )
    assert error_message(lambda: tcgemm.swap_linear(mlp(), to=PackedLinear, group_size=48)) == (
        "tcgemm.swap_linear: group_size is 48, but the format 'int4' has groups of 32, 64, 128, "
        "None (a whole row); pass one of these."
    )


class Adapter(nn.Module):
    """A frozen layer and a product of two small matrices that learns, as in QLoRA."""

    def __init__(self, base, rank=4):
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, rank, bias=False, dtype=torch.bfloat16)
        self.up = nn.Linear(rank, base.out_features, bias=False, dtype=torch.bfloat16)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


def test_an_adapter_learns_beside_a_weight_of_four_bits():
    """QLoRA: the gradient passes through two layers in NF4, whose codes stay as they are."""
    model = nn.Sequential(nn.Linear(128, 64), nn.GELU(), nn.Linear(64, 16)).bfloat16()
    tcgemm.swap_linear(model, to=PackedLinear, format="nf4")
    model = nn.Sequential(Adapter(model[0]), model[1], Adapter(model[2]))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items() if "base" in name}
    x, target = torch.randn(64, 128).bfloat16(), torch.randn(64, 16).bfloat16()
    learning = [tensor for tensor in model.parameters() if tensor.requires_grad]
    assert len(learning) == 4
    optimizer = torch.optim.Adam(learning, lr=1e-2)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x).float(), target.float())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    assert all(
        torch.equal(bits(model.state_dict()[name]), bits(tensor)) for name, tensor in before.items()
    )


@pytest.mark.parametrize("out_features", [0, 8])
def test_inputs_that_the_default_group_does_not_divide(out_features):
    for k, mend in ((8, "pass None, for one group a row"), (96, "pass 32")):
        text = error_message(lambda k=k: PackedLinear(k, out_features))
        assert f"group_size is 128, which does not divide the {k} columns" in text and mend in text
        size = None if k == 8 else 32
        layer = PackedLinear(k, out_features, group_size=size)
        assert layer(torch.zeros(3, k, dtype=torch.half)).shape == (3, out_features)
        model = nn.Sequential(nn.Linear(k, 8))
        report = tcgemm.swap_linear(model, to=PackedLinear)
        assert report.skipped == {"0": f"has {k} inputs, which groups of 128 do not divide"}
        assert tcgemm.swap_linear(model, to=PackedLinear, group_size=size).swapped == ["0"]
