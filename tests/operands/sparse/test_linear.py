"""tcgemm.nn.SparseLinear24: values, gradients, training, state, and the exchange."""

import copy
import io
from itertools import pairwise

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.utils.checkpoint import checkpoint

import tcgemm
from tcgemm import SparseTensor24
from tcgemm.nn import SparseLinear24
from tcgemm.operands.sparse import fast_path

from support.calls import Recorder
from support.cases import (
    BF16,
    F16,
    F32,
    NAMES,
    assert_undone,
    copies,
    gpu,
    graph_of,
    waits_for_nothing,
)

devices = pytest.mark.parametrize("device", ["cpu", gpu("cuda", mark="sm90")])
every_dtype = pytest.mark.parametrize("dtype", [BF16, F16, F32], ids=NAMES.get)
learning = pytest.mark.parametrize("learns", [False, True], ids=["frozen", "learns"])
methods = pytest.mark.parametrize("method", ["magnitude", "transposable"])
IN, OUT, ROWS = 36, 20, 24


def linear(dtype=BF16, device="cpu", **options):
    return nn.Linear(IN, OUT, dtype=dtype, device=device, **options)


def close(result, expected):
    eps = 2**-6 if result.dtype is BF16 else 2**-9
    size = expected.detach().float().abs().max().item()
    torch.testing.assert_close(result, expected, rtol=eps, atol=eps * size)


def pruned(weight):
    pattern = "1:2" if weight.dtype is F32 else "2:4"
    return tcgemm.prune24(weight.detach(), pattern=pattern)


# Values.


@devices
@every_dtype
@learning
def test_values_are_those_of_the_pruned_layer(learns, dtype, device):
    dense = linear(dtype, device)
    layer = SparseLinear24.from_linear(dense, learns=learns)
    expected = copy.deepcopy(dense)
    expected.weight.data = pruned(dense.weight)
    for shape in ((IN,), (ROWS, IN), (2, 3, IN), (0, IN)):
        x = torch.randn(shape, device=device).to(dtype)
        for mode in (True, False):
            layer.train(mode)
            for context in (torch.enable_grad, torch.no_grad, torch.inference_mode):
                with context():
                    for _ in range(2):  # the second call of eval mode goes the short way
                        result = layer(x)
                        assert result.dtype is dtype and result.shape == (*shape[:-1], OUT)
                        if result.numel():
                            close(result, expected(x))


@every_dtype
@pytest.mark.parametrize("activation", ["relu", "gelu", None])
def test_to_dense_and_back(activation, dtype):
    dense = tcgemm.nn.Linear(IN, OUT, dtype=dtype, activation=activation)
    layer = SparseLinear24.from_linear(dense)
    assert layer.activation == activation and type(layer.weight) is SparseTensor24
    assert layer.weight.pattern == ("1:2" if dtype is F32 else "2:4")
    back = layer.to_linear()
    assert isinstance(back, nn.Linear) and torch.equal(back.weight, pruned(dense.weight))
    assert torch.equal(back.bias, dense.bias) and back.bias is not dense.bias
    x = torch.randn(ROWS, IN).to(dtype)
    close(layer(x), back(x))
    third = SparseLinear24.from_linear(back)
    assert torch.equal(third(x), layer(x))
    assert SparseLinear24.from_linear(linear(dtype, bias=False)).to_linear().bias is None


def test_a_new_layer():
    torch.manual_seed(3)
    layer = SparseLinear24(IN, OUT, dtype=F16, activation="gelu", method="transposable")
    torch.manual_seed(3)
    dense = linear(F16)
    weight = tcgemm.prune24(dense.weight.detach(), method="transposable")
    assert torch.equal(layer.weight.to_dense(), weight) and torch.equal(layer.bias, dense.bias)
    assert repr(layer) == (
        "SparseLinear24(in_features=36, out_features=20, bias=True, dtype=torch.float16, "
        "pattern=2:4, method=transposable, activation=gelu)"
    )
    assert "learns=True, refresh_every=5, gradient=straight_through)" in repr(
        SparseLinear24(8, 8, learns=True, refresh_every=5, gradient="straight_through")
    )
    assert SparseLinear24(8, 4, device="meta").weight.is_meta
    assert layer.compressed is layer.weight


# The short way.


@learning
def test_the_short_way_sees_what_changes(learns):
    layer = SparseLinear24.from_linear(linear(), learns=learns).eval()
    x = torch.randn(ROWS, IN).to(BF16)
    with torch.no_grad():
        for change in (
            lambda: layer.bias.add_(1),
            lambda: setattr(layer, "bias", nn.Parameter(torch.ones(OUT).to(BF16))),
            lambda: layer.weight.mul_(-2),
            lambda: layer.load_state_dict(linear().state_dict()),
            lambda: layer.train().eval(),
            lambda: layer.refresh() if learns else None,
            lambda: setattr(
                layer, "weight", type(layer).from_linear(linear(), learns=learns).weight
            ),
            lambda: layer.to(F16).to(BF16),
        ):
            layer(x)
            assert layer._ready is not None
            change()
            for _ in range(2):
                assert torch.equal(layer(x), layer.to_linear()(x))
            assert layer._ready is not None
    x.requires_grad_()
    layer(x).float().sum().backward()
    assert x.grad is not None and layer.bias.grad is not None
    with torch.autocast("cpu", dtype=BF16):
        assert layer(x.float()).dtype is BF16
    assert torch.func.vmap(layer)(x.detach()[None]).shape == (1, ROWS, OUT)


@torch.no_grad()
def test_the_short_way_is_for_calls_that_nobody_looks_into(monkeypatch):
    layer = SparseLinear24.from_linear(linear()).eval()
    x, other = torch.randn(2, ROWS, IN).to(BF16)
    expected = layer.to_linear()(x)
    calls, kernel = [], fast_path.linear24
    monkeypatch.setattr(fast_path, "linear24", lambda *a: calls.append(a) or kernel(*a))
    for call in (layer, lambda x: nn.functional.linear(x, layer.weight, layer.bias)):
        calls.clear()
        assert torch.equal(call(x), expected) and len(calls) == 1
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            assert torch.equal(call(x), expected)
        assert "tcgemm::scaled_mm" in [event.name for event in profile.events()]
        with Recorder() as recorder:
            result = call(x)
        assert "tcgemm.linear" in recorder.rows[-1] and torch.equal(result, expected)
        with pytest.raises(RuntimeError, match="x is on meta, but weight is on cpu"):
            call(x.to("meta"))
        assert len(calls) == 1
    traced = torch.jit.trace(layer, x)
    assert torch.equal(traced(other), layer(other))


@pytest.mark.sm90
@pytest.mark.gpu
@learning
def test_graphs_hold_it_and_nothing_waits(learns):
    layer = SparseLinear24.from_linear(linear(device="cuda"), learns=learns).eval()
    x = torch.randn(ROWS, IN, device="cuda").to(BF16)
    with torch.no_grad():
        graph, out = graph_of(lambda: layer(x))
        x.copy_(torch.randn(ROWS, IN))
        graph.replay()
        assert torch.equal(out, layer(x))
        assert waits_for_nothing(lambda: layer(x))


# Gradients and training.


@devices
@every_dtype
@methods
@pytest.mark.parametrize("gradient", ["masked", "straight_through"])
def test_gradients(gradient, method, dtype, device):
    if method == "transposable" and dtype is F32:
        pytest.skip("float32 has the pattern 1:2")
    dense = linear(dtype, device)
    options = {"method": method, "gradient": gradient}
    layer = SparseLinear24.from_linear(dense, learns=True, **options)
    frozen = SparseLinear24.from_linear(dense, **options)
    expected = layer.to_linear()
    mask = layer.kept.mask(torch.ones_like(dense.weight)).to_dense()
    inputs = [torch.randn(ROWS, IN, device=device).to(dtype).requires_grad_()]
    inputs += [inputs[0].detach().clone().requires_grad_() for _ in range(2)]
    factor = torch.randn(ROWS, OUT, device=device).to(dtype)
    for module, x in zip((layer, frozen, expected), inputs, strict=True):
        module(x).backward(factor)
    for x in inputs[:2]:
        close(x.grad, inputs[2].grad)
    for module in (layer, frozen):
        close(module.bias.grad, expected.bias.grad)
    weight = expected.weight.grad
    close(layer.weight.grad, weight if gradient == "straight_through" else weight * mask)
    assert layer.kept.transposable is (method == "transposable")
    assert not frozen.weight.requires_grad


def fit(layer, steps, compiled=False, **options):
    torch.manual_seed(1)
    x, target = torch.randn(64, IN), torch.randn(64, OUT)
    work = torch.compile(layer, fullgraph=True, backend="aot_eager") if compiled else layer
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.05, **options)
    losses, masks = [], []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (work(x) - target).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        masks.append(layer.kept)
    return losses, masks


def test_training_with_a_mask_that_is_refreshed():
    layer = SparseLinear24.from_linear(linear(F32), learns=True, refresh_every=3)
    layer.gradient, layer.kept.dense_gradient = "straight_through", True
    losses, masks = fit(layer, 8)
    assert losses[-1] < losses[0]
    fresh = [True, *(now is not before for before, now in pairwise(masks))]
    assert fresh == [True, False, False, True, False, False, True, False]
    layer.refresh()
    assert torch.equal(layer.compressed.to_dense(), pruned(layer.weight))
    assert layer.compressed.dense_gradient
    assert (layer.to_linear().weight == 0).float().mean() == 0.5


def test_masked_training_leaves_what_is_pruned_alone():
    dense = linear(F32)
    layer = SparseLinear24.from_linear(dense, learns=True)
    positions = pruned(dense.weight) != 0
    losses, masks = fit(layer, 5, weight_decay=0)
    assert losses[-1] < losses[0] and all(mask is masks[0] for mask in masks)
    assert torch.equal(layer.weight[~positions], dense.weight[~positions])
    assert (layer.weight[positions] != dense.weight[positions]).all()
    compiled = SparseLinear24.from_linear(dense, learns=True)
    compiled_losses, _ = fit(compiled, 5, compiled=True, weight_decay=0)
    torch.testing.assert_close(compiled_losses, losses, rtol=1e-4, atol=0)


def test_a_checkpoint_that_recomputes_refreshes_nothing():
    layer = SparseLinear24.from_linear(linear(F32), learns=True, refresh_every=1)
    x = torch.randn(ROWS, IN, requires_grad=True)
    for _ in range(3):
        sparse_weight = layer.kept
        checkpoint(layer, x, use_reentrant=False).sum().backward()
        layer(x)
        after = layer.kept
        assert layer._changes == 0 or after is not sparse_weight
        with torch.no_grad():
            layer.weight.add_(torch.randn_like(layer.weight))
        assert layer.kept is after


def test_a_given_mask():
    dense = linear()
    mask = pruned(torch.rand(OUT, IN).to(BF16) + 1) != 0
    layer = SparseLinear24.from_linear(dense, method="mask", mask=mask, learns=True)
    assert torch.equal(layer.to_linear().weight, dense.weight * mask)
    layer.load_state_dict(linear().state_dict())
    assert torch.equal(layer.to_linear().weight, layer.weight * mask)
    with pytest.raises(RuntimeError, match=r"keeps a given mask.*nothing to refresh"):
        layer.refresh()


# State.


@devices
@learning
@methods
@pytest.mark.parametrize("taker", [False, True], ids=["into frozen", "into learning"])
def test_state(taker, method, learns, device, tmp_path):
    options = {"dtype": BF16, "device": device, "method": method}
    layer = SparseLinear24.from_linear(linear(device=device), method=method, learns=learns)
    state = layer.state_dict()
    keys = {"weight.values", "weight.metadata", "weight.format", "bias"}
    assert state.keys() == keys | ({"weight"} if learns else set())
    assert all(type(tensor) is torch.Tensor for tensor in state.values())
    assert state["weight.format"].tolist() == [1, 4, IN]
    model = nn.Sequential(layer, nn.ReLU(), nn.Linear(OUT, 3, dtype=BF16, device=device))
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    torch.save(model.state_dict(), tmp_path / "model.pt")
    x = torch.randn(ROWS, IN, device=device).to(BF16)
    for loaded in (
        load_file(tmp_path / "model.safetensors"),
        torch.load(tmp_path / "model.pt", weights_only=True),
    ):
        other = copy.deepcopy(model)
        other[0] = SparseLinear24(IN, OUT, learns=taker, **options)
        buffers = [value.data_ptr() for value in other[0].compressed.tensors().values()]
        assert str(other.load_state_dict(loaded)) == "<All keys matched successfully>"
        assert torch.equal(other(x), model(x))
        assert [value.data_ptr() for value in other[0].compressed.tensors().values()] == buffers
        assert other[0].compressed.transposable is (method == "transposable")
        if taker:
            expected = layer.weight if learns else layer.weight.to_dense()
            assert torch.equal(other[0].weight, expected)
        with torch.device("meta"):
            empty = SparseLinear24(IN, OUT, dtype=BF16, method=method, learns=taker)
        empty.load_state_dict(copy.deepcopy(loaded_of(loaded, "0.")), assign=True)
        assert torch.equal(empty.to(device)(x), layer(x))


@pytest.mark.parametrize("cut", ["freed", "flat"])
def test_a_weight_that_another_process_has_gives_no_values(cut):
    """As FSDP1 leaves it where the state dict goes to another process."""
    layer = SparseLinear24.from_linear(linear(), learns=True)
    if cut == "flat":
        layer.weight.data = layer.weight.data.flatten()[:0]
    else:
        layer.weight.data.untyped_storage().resize_(0)
    assert layer.state_dict().keys() == {"weight", "bias"}


def loaded_of(state, prefix):
    return {key[len(prefix) :]: value for key, value in state.items() if key.startswith(prefix)}


@learning
def test_a_dense_state_is_pruned(learns):
    dense, x = linear(), torch.randn(ROWS, IN).to(BF16)
    layer = SparseLinear24(IN, OUT, dtype=BF16, learns=learns)
    layer.load_state_dict(dense.state_dict())
    assert torch.equal(layer.compressed.to_dense(), pruned(dense.weight))
    assert torch.equal(layer(x), SparseLinear24.from_linear(dense)(x))
    if learns:
        assert torch.equal(layer.weight, dense.weight)


def test_states_of_other_types_are_converted():
    single = SparseLinear24.from_linear(linear(F32))
    layer = SparseLinear24(IN, OUT, dtype=BF16)
    layer.load_state_dict(single.state_dict())
    assert torch.equal(layer.weight.to_dense(), single.weight.to_dense().to(BF16))
    layer.half().load_state_dict(single.state_dict())
    assert layer.weight.dtype is F16 and layer.weight.pattern == "2:4"


def test_states_that_do_not_fit():
    layer = SparseLinear24(IN, OUT, dtype=BF16)
    state = layer.state_dict()
    later = {**state, "weight.format": torch.tensor([2, 4, IN])}
    half = {key: tensor for key, tensor in state.items() if key != "weight.metadata"}
    for bad, text in (
        (SparseLinear24(IN, OUT + 1, dtype=BF16).state_dict(), "has shape (21, 36)"),
        (SparseLinear24(IN + 8, OUT, dtype=BF16).state_dict(), "has shape (20, 44)"),
        (later, "has version 2 of the format, but this tcgemm reads version 1"),
        ({**state, "weight.values": state["weight.values"][:, 1:]}, "values of shape (20, 18)"),
        ({**state, "weight.format": torch.tensor([1, 8, IN])}, "pattern is 'of groups of 8'"),
        (half, 'Missing key(s) in state_dict: "weight.values", "weight.metadata"'),
        ({**state, "other": torch.ones(1)}, 'Unexpected key(s) in state_dict: "other"'),
    ):
        with pytest.raises(RuntimeError) as excinfo:
            layer.load_state_dict(bad)
        assert text in str(excinfo.value)
    with pytest.raises(RuntimeError, match=r"no products of torch\.float32 with that pattern"):
        SparseLinear24(IN, OUT).load_state_dict(state)


@learning
@methods
def test_copies_and_conversions(method, learns):
    layer = SparseLinear24.from_linear(linear(), method=method, learns=learns)
    x = torch.randn(ROWS, IN).to(BF16)
    expected = layer(x)
    with torch.no_grad():
        layer.eval()(x)
    for other in copies(layer):
        assert torch.equal(other(x), expected) and other.learns is learns
    converted = copy.deepcopy(layer).half()
    assert converted.compressed.dtype is F16 and converted(x.half()).dtype is F16
    wide = copy.deepcopy(layer).float()
    if learns and method == "magnitude":
        assert wide.kept.pattern == "1:2" and wide(x.float()).dtype is F32
    else:
        with pytest.raises(RuntimeError, match="pattern '2:4' cannot be multiplied as tf32"):
            wide(x.float())
    empty = copy.deepcopy(layer).to("meta").to_empty(device="cpu")
    empty.load_state_dict(layer.state_dict())
    assert torch.equal(empty(x), expected)
    file = io.BytesIO()
    torch.save(layer, file)


def test_refusals():
    for make, text in (
        (lambda: SparseLinear24(8, 8, method="best"), "method is 'best'"),
        (lambda: SparseLinear24(8, 8, gradient="none"), "gradient is 'none'"),
        (lambda: SparseLinear24(8, 8, refresh_every=3), "refresh_every is 3 with learns=False"),
        (lambda: SparseLinear24(8, 8, method="transposable"), "method is 'transposable'"),
        (lambda: SparseLinear24(8, 8, dtype=torch.float64), "the weight is torch.float64"),
        (lambda: SparseLinear24(8, 8).refresh(), "is frozen, so there is nothing to refresh"),
        (lambda: SparseLinear24.from_linear(linear(), method="mask"), "'mask' without a mask"),
    ):
        with pytest.raises(RuntimeError) as excinfo:
            make()
        assert text in str(excinfo.value) and str(excinfo.value).endswith(".")


# Compilation, and the exchange.


@learning
@methods
def test_compiled(method, learns):
    layer = SparseLinear24.from_linear(linear(), method=method, learns=learns)
    x = torch.randn(ROWS, IN).to(BF16)
    torch._dynamo.reset()
    function = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for mode in (True, False):
        layer.train(mode)
        for context in (torch.enable_grad, torch.no_grad, torch.inference_mode):
            with context():
                assert torch.equal(function(x), layer(x))
    gradients = []
    for call in (function, layer.train()):
        layer.zero_grad()
        leaf = x.clone().requires_grad_()
        call(leaf).float().square().sum().backward()
        gradients.append([leaf.grad, *(parameter.grad for parameter in layer.parameters())])
    for grad, expected in zip(*gradients, strict=True):
        close(grad, expected)


@learning
def test_swap_there_and_back(learns):
    model = nn.Sequential(
        nn.Linear(64, 32), nn.ReLU(), tcgemm.nn.Linear(32, 32, activation="gelu"), nn.Linear(32, 8)
    )
    model.append(nn.Linear(8, 8).double()).append(model[0])
    model[2].eval()
    before = [(type(module), vars(module).copy()) for module in model]
    parameters = dict(model.named_parameters())
    x = torch.randn(5, 64)
    expected = model[:4](x)
    options = {"to": SparseLinear24, "learns": learns}
    report = tcgemm.swap_linear(model, lambda module, name: name != "3", **options)
    assert report.swapped == ["0", "2"]
    assert report.skipped == {
        "3": "filter_fn is false for it",
        "4": "has weights of torch.float64; only weights of torch.float16, "
        "torch.bfloat16, torch.float32 are pruned",
    }
    assert type(model[0]) is type(model[5]) is type(model[2]) is SparseLinear24
    assert model[0].bias is parameters["0.bias"] and model[2].activation == "gelu"
    assert (model[0].weight is parameters["0.weight"]) is learns
    assert torch.equal(model[0].compressed.to_dense(), pruned(parameters["0.weight"]))
    assert not model[2].training and model[:4](x).shape == expected.shape
    with torch.no_grad():
        model[2](model[:2](x))
    last = tcgemm.swap_linear(model, to=SparseLinear24)
    assert last.skipped["0"] == "is a tcgemm.nn.SparseLinear24 already" and last.swapped == ["3"]
    assert_undone((last, report), model, before, parameters)
    assert torch.equal(model[:4](x), expected)
    mixed = nn.Sequential(nn.Linear(8, 8).half(), nn.Linear(8, 8))
    with pytest.raises(RuntimeError, match="method is 'transposable'"):
        tcgemm.swap_linear(mixed, to=SparseLinear24, method="transposable")
    assert type(mixed[0]) is nn.Linear  # all or nothing
    with pytest.raises(RuntimeError, match=r"SparseLinear24 with .*learns"):
        tcgemm.swap_linear(model, to=SparseLinear24, dtype=BF16)
