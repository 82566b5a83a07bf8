"""Layers whose weight has not changed since their last call say so, and no others.

Here every weight counts as one on a GPU; what is decided is the same. gpu/test_constant_weights.py
has the kernels.
"""

import copy
import gc
import pickle

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import tcgemm
from tcgemm.nn import Linear, QuantLinear, SparseLinear24, constant

from support.calls import early_calls
from support.cases import BF16

IN, OUT = 128, 32


def dense(**options):
    return Linear(IN, OUT, dtype=BF16, **options)


def eight(dtype=torch.int8, granularity="row", **options):
    return lambda: QuantLinear.from_linear(dense(**options), dtype, granularity)


def sparse(learns=False, dtype=BF16, **options):
    return lambda: SparseLinear24.from_linear(dense(**options).to(dtype), learns=learns)


E4M3 = torch.float8_e4m3fn
# name -> (a function that makes the layer, the operator of its constant weight)
LAYERS = {
    "Linear": (dense, "_constant_linear"),
    "Linear gelu": (lambda: dense(activation="gelu", bias=False), "_constant_linear"),
    "int8": (eight(), "_constant_scaled_mm"),
    "int8 tensor": (eight(granularity="tensor", bias=False), "_constant_scaled_mm"),
    "e4m3 gelu": (eight(E4M3, activation="gelu"), "_constant_scaled_mm"),
    "e4m3 128x128": (eight(E4M3, "128x128"), "_constant_scaled_mm"),
    "2:4": (sparse(), "_constant_linear24"),
    "2:4 gelu": (sparse(activation="gelu", bias=False), "_constant_scaled_mm"),
    "1:2": (sparse(dtype=torch.float32), "_constant_scaled_mm"),
    "learns": (sparse(learns=True), "_constant_linear24"),
}
every = pytest.mark.parametrize("name", LAYERS)


@pytest.fixture(autouse=True)
def everything_is_on_a_gpu(monkeypatch):
    monkeypatch.setattr(constant, "on_gpu", lambda weight: True)
    monkeypatch.setattr(constant, "stream_of", lambda weight: 1)


@pytest.fixture
def early(monkeypatch):
    return early_calls(monkeypatch)


def layer_of(name):
    return LAYERS[name][0]().eval().requires_grad_(False)


def x_of(layer, *shape):
    return torch.randn(*(shape or (6,)), IN).to(layer.weight.dtype)


@torch.no_grad()
def settled(layer, x, early):
    """The layer, after calls after which its weight is constant."""
    for _ in range(3):
        layer(x)
    assert early
    early.clear()
    return layer


@torch.no_grad()
def loads_early(layer, x, early):
    """Does the next call say that the weight is constant? Its result is that of a new layer."""
    expected = copy.deepcopy(layer)(x)
    early.clear()
    result = layer(x)
    assert torch.equal(result, expected)
    return bool(early)


@every
@torch.no_grad()
def test_which_operator_is_called(name, early):
    layer = layer_of(name)
    for shape in ((6,), (2, 3)):
        x = x_of(layer, *shape)
        expected = layer(x)
        settled(layer, x, early)
        for _ in range(3):
            assert torch.equal(layer(x), expected)
        assert early == [LAYERS[name][1]] * 3


@every
def test_a_new_layer_calls_twice_at_most(name, early):
    layer = layer_of(name)
    x = x_of(layer)
    with torch.no_grad():
        layer(x)
        assert not early
        layer(x), layer(x)
    assert early


def weight_of(layer):
    """The tensor that the kernel loads."""
    if isinstance(layer, SparseLinear24):
        return layer.compressed.values
    return layer._buffers["weight"] if isinstance(layer, QuantLinear) else layer.weight


def source_of(layer):
    """The tensor that changes: a layer that learns compresses its dense weight again."""
    return layer.weight if getattr(layer, "learns", False) else weight_of(layer)


def in_place(layer):
    source_of(layer).copy_(source_of(layer).flip(0))


def other_state(layer):
    other = dense(bias=layer.bias is not None).to(layer.weight.dtype)
    layer.load_state_dict(other.state_dict())


def assigned(layer):
    """As torch.load(mmap=True) and assign=True do."""
    layer.load_state_dict(copy.deepcopy(layer.state_dict()), assign=True)


def other_data(layer):
    source_of(layer).data = source_of(layer).clone()


def other_tensor(layer):
    """Another tensor in the same memory, with the same version."""
    weight = weight_of(layer)
    if isinstance(layer, Linear):
        layer.weight = nn.Parameter(weight.detach(), requires_grad=False)
    elif isinstance(layer, QuantLinear):
        layer._buffers["weight"] = weight.detach()
    else:
        layer._buffers[f"{layer._own}_values"] = weight.detach()
    assert weight_of(layer)._version == weight._version
    assert weight_of(layer).data_ptr() == weight.data_ptr()


def moved(layer):
    layer._apply(torch.clone)


def to_train_and_back(layer):
    layer.train().eval()


CHANGES = [in_place, other_state, assigned, other_data, other_tensor, moved, to_train_and_back]


@pytest.mark.parametrize("change", CHANGES)
@every
def test_a_change_is_seen(name, change, early):
    layer = layer_of(name)
    x = x_of(layer)
    for _ in range(3):
        settled(layer, x, early)
        with torch.no_grad():
            change(layer)
        assert not loads_early(layer, x, early)
    settled(layer, x, early)
    assert loads_early(layer, x, early)


OPERATORS = {
    "copy_": lambda w: w.copy_(w.mul(2)),
    "copy_ of a dense matrix": lambda w: w.copy_(w.mul(2).to_dense()),
    "mul_": lambda w: w.mul_(2),
    "mul_ of an alias": lambda w: w.detach().mul_(2),
    "zero_": lambda w: w.zero_(),
    "maximum": lambda w: torch.maximum(w, w.mul(2), out=w),
    "values": lambda w: setattr(w, "values", w.values * 2),
}


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("name", ["2:4", "2:4 gelu", "1:2"])
@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_operators_of_a_sparse_weight_are_seen(context, name, operator, early):
    layer = layer_of(name)
    x = x_of(layer)
    settled(layer, x, early)
    with context():
        OPERATORS[operator](layer.weight)
    assert not loads_early(layer, x, early)


def swap_data(tensor):
    tensor.data = tensor.clone()


@pytest.mark.parametrize("part", ["values", "metadata"])
@pytest.mark.parametrize("name", ["2:4", "learns", "1:2"])
def test_every_tensor_of_a_sparse_weight_counts(name, part, early):
    layer = layer_of(name)
    x = x_of(layer)
    for change in (lambda tensor: tensor.copy_(tensor.clone()), swap_data):
        settled(layer, x, early)
        with torch.no_grad():
            change(getattr(layer.compressed, part))
        assert not loads_early(layer, x, early)


@pytest.mark.parametrize("part", ["weight_scale", "bias"])
@pytest.mark.parametrize("name", ["int8", "e4m3 gelu", "e4m3 128x128"])
@torch.no_grad()
def test_scales_and_the_bias_may_change(name, part, early):
    """A kernel reads them after its wait."""
    layer = layer_of(name)
    x = x_of(layer)
    settled(layer, x, early)
    for _ in range(3):
        before = layer(x)
        getattr(layer, part).mul_(2)
        assert loads_early(layer, x, early)
        assert not torch.equal(layer(x), before)


@pytest.mark.parametrize("name", ["Linear", "learns"])
def test_a_step_of_an_optimizer_is_seen(name, early):
    layer = layer_of(name)
    optimizer = torch.optim.SGD([layer.weight.requires_grad_()], lr=1.0)
    x = x_of(layer)
    for _ in range(3):
        settled(layer, x, early)
        layer.weight.grad = torch.ones_like(layer.weight)
        optimizer.step()
        assert not loads_early(layer, x, early)


@torch.no_grad()
def test_the_dense_weight_and_refresh_are_seen(early):
    layer = layer_of("learns")
    x = x_of(layer)
    for change in (in_place, SparseLinear24.refresh):
        settled(layer, x, early)
        change(layer)
        assert not loads_early(layer, x, early)


@torch.no_grad()
@pytest.mark.parametrize("name", ["Linear", "int8"])
def test_a_weight_in_the_memory_of_a_freed_one(name, early):
    """An allocator gives the memory of the last weight to the next one, whose version is as low."""
    layer = layer_of(name)
    x, memory = x_of(layer), weight_of(layer).detach().clone()
    for _ in range(20):
        if name == "Linear":
            layer.weight = nn.Parameter(memory.view_as(memory), requires_grad=False)
        else:
            layer._buffers["weight"] = memory.view_as(memory)
        gc.collect()
        early.clear()
        layer(x)
        assert not early


class Passing(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def compiled(layer, x):
    torch._dynamo.reset()
    torch.compile(layer, backend="eager", fullgraph=True)(x)


def with_autocast(layer, x):
    with torch.autocast("cpu", dtype=BF16):
        layer(x)


def with_gradients(layer, x):
    with torch.enable_grad():
        layer(x.requires_grad_())


def with_tangent(layer, x):
    with torch.enable_grad(), forward_ad.dual_level():
        layer(forward_ad.make_dual(x, x))


def with_mode(layer, x):
    with Passing():
        layer(x)


def with_counter(layer, x):
    with FlopCounterMode(display=False) as counter:
        layer(x)
    assert counter.get_total_flops() == 2 * 6 * IN * OUT


def with_profiler(layer, x):
    with torch.profiler.profile():
        layer(x)


OTHER_CALLS = {
    "compiled": compiled,
    "autocast": with_autocast,
    "gradients": with_gradients,
    "train": lambda layer, x: (layer.train()(x), layer.eval()),
    "mode": with_mode,
    "flops": with_counter,
    "profiler": with_profiler,
    "trace": lambda layer, x: torch.jit.trace(layer, x, check_trace=False),
    "copy": lambda layer, x: copy.deepcopy(layer)(x),
    "pickle": lambda layer, x: pickle.loads(pickle.dumps(layer))(x),
    "vmap": lambda layer, x: torch.func.vmap(layer)(x[None]),
    "tangent": with_tangent,
}


@pytest.mark.parametrize("call", OTHER_CALLS)
@every
@torch.no_grad()
def test_other_calls_do_not_load_early(name, call, early):
    layer = layer_of(name)
    if call == "tangent" and isinstance(layer, SparseLinear24):
        pytest.skip("forward mode does not reach a SparseTensor24")
    if call == "trace" and name.startswith("e4m3"):
        pytest.skip("torch.jit.trace knows no view of bytes as float8")
    x = x_of(layer)
    settled(layer, x, early)
    OTHER_CALLS[call](layer, x.clone())
    assert not early


@pytest.mark.parametrize("name", ["Linear", "int8"])
def test_calls_with_gradients_switched_on_do_not(name, early):
    layer = layer_of(name)
    x = x_of(layer)
    settled(layer, x, early)
    layer(x)
    assert not early


@every
@torch.no_grad()
def test_calls_that_launch_nothing_are_not_the_last(name, early):
    layer = layer_of(name)
    x = x_of(layer)
    for _ in range(4):
        layer(x[:0])
    assert not early
    assert not loads_early(layer, x, early)


@pytest.mark.parametrize("name", ["Linear", "int8", "2:4"])
@torch.no_grad()
def test_calls_that_fail_are_not_the_last(name, early):
    layer = layer_of(name)
    x = x_of(layer)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="120"):
            layer(x[:, :-8])
    assert not loads_early(layer, x, early)
    settled(layer, x, early)
    with pytest.raises(RuntimeError, match="120"):
        layer(x[:, :-8])


@every
@torch.no_grad()
def test_a_captured_call_is_not_the_last(name, early, monkeypatch):
    layer = layer_of(name)
    x = x_of(layer)
    monkeypatch.setattr(constant, "capturing", lambda weight: True)
    for _ in range(4):
        layer(x)
    assert not early
    monkeypatch.setattr(constant, "capturing", lambda weight: False)
    settled(layer, x, early)
    monkeypatch.setattr(constant, "capturing", lambda weight: True)
    assert loads_early(layer, x, early)
    in_place(layer)
    for _ in range(3):
        assert not loads_early(layer, x, early)


@every
@torch.no_grad()
def test_a_call_in_another_stream_is_not_the_last(name, early, monkeypatch):
    """But a graph, captured in any stream, starts after what was before it."""
    layer = layer_of(name)
    x = x_of(layer)
    settled(layer, x, early)
    monkeypatch.setattr(constant, "stream_of", lambda weight: 2)
    with monkeypatch.context() as patch:
        patch.setattr(constant, "capturing", lambda weight: True)
        assert loads_early(layer, x, early)
    assert not loads_early(layer, x, early)
    assert loads_early(layer, x, early)
    monkeypatch.setattr(constant, "stream_of", lambda weight: 1)
    assert not loads_early(layer, x, early)


@pytest.mark.parametrize("name", ["Linear", "int8", "2:4"])
def test_inference_tensors_have_no_version(name, early):
    with torch.inference_mode():
        layer = layer_of(name)
        x = x_of(layer)
        for _ in range(4):
            layer(x)
    assert not early


@pytest.mark.parametrize("name", ["Linear", "int8"])
@torch.no_grad()
def test_a_swap_drops_the_state(name, early):
    model = nn.Sequential(layer_of(name))
    x = x_of(model[0])
    settled(model[0], x, early)
    report = tcgemm.swap_linear(model, to=torch.nn.Linear)
    assert vars(model[0]).get("_read") is None
    report.undo()
    assert not loads_early(model[0], x, early)


@torch.no_grad()
def test_a_tensor_granularity_stays_refused(early):
    layer = layer_of("int8 tensor")
    x = x_of(layer)
    settled(layer, x, early)
    layer.batch_invariant = True
    with pytest.raises(RuntimeError, match="batch_invariant is True"):
        layer(x)


@torch.no_grad()
def test_batch_invariant_layers(early):
    """The operator of Linear has no such argument."""
    for name in ("int8", "2:4"):
        layer = layer_of(name)
        layer.batch_invariant = True
        x = x_of(layer)
        settled(layer, x, early)
        assert loads_early(layer, x, early)
    early.clear()
    layer = layer_of("Linear")
    layer.batch_invariant = True
    for _ in range(4):
        layer(x)
    assert not early


@torch.no_grad()
def test_the_functions_never_say_so(early):
    layers = [layer_of(name) for name in ("Linear", "int8", "2:4")]
    x = x_of(layers[0])
    weight, eights, compressed = (layer.weight for layer in layers)
    for _ in range(4):
        tcgemm.linear(x, weight), tcgemm.mm(x, weight.t()), nn.functional.linear(x, weight)
        tcgemm.linear(x, compressed), tcgemm.mm(x, compressed.t())
        tcgemm.quantized_linear(x, eights.values, weight_scale=eights.scale)
        tcgemm.quantized_linear(x, weight)
    assert not early
