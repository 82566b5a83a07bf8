"""constant_weights: which calls load the weight early, and which writes raise in the block."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch._dynamo.testing import EagerAndRecordGraphs

import tcgemm
from tcgemm.nn import (
    Conv1D,
    Float8Linear,
    Linear,
    MultiheadAttention,
    PackedLinear,
    QuantLinear,
    SparseLinear24,
)
from tcgemm.ops.operators import Scaled

from support.calls import Recorder
from support.error_asserts import error_message

K, N = 128, 64
X = torch.randn(4, K).bfloat16()
PRODUCTS = {f"tcgemm::{name}" for name in ("linear", "scaled_mm", "packed_mm", "quantized_linear")}


def dense():
    return nn.Linear(K, N).bfloat16()


LAYERS = {
    "Linear": lambda **options: Linear.from_linear(dense(), **options),
    "QuantLinear": lambda **options: QuantLinear.from_linear(dense(), torch.int8, **options),
    "SparseLinear24": lambda **options: SparseLinear24.from_linear(dense(), **options),
    "Conv1D": lambda **options: Conv1D(N, K, **options).bfloat16(),
    "2:4 learns": lambda **options: SparseLinear24.from_linear(dense(), learns=True, **options),
    "MultiheadAttention": lambda **options: Attention(**options),
}
OTHERS = {
    "Float8Linear": lambda **options: Float8Linear.from_linear(dense(), **options),
    "PackedLinear": lambda **options: PackedLinear.from_linear(dense(), **options),
}
layers = pytest.mark.parametrize("name", LAYERS)
all_layers = pytest.mark.parametrize("name", [*LAYERS, *OTHERS])


class Attention(MultiheadAttention):
    def __init__(self, **options):
        super().__init__(K, 4, batch_first=True, dtype=torch.bfloat16, **options)

    def forward(self, x):
        return super().forward(x, x, x, need_weights=False)[0]


def make(name, **options):
    return (LAYERS | OTHERS)[name](**options).eval()


def weight_of(layer):
    """A tensor of the weight that others write."""
    if isinstance(layer, QuantLinear):
        return layer._buffers["weight"]
    if isinstance(layer, PackedLinear):
        return layer.codes
    if isinstance(layer, MultiheadAttention):
        return layer.in_proj_weight
    if isinstance(layer, SparseLinear24) and not layer.learns:
        return layer.weight.values
    return layer.weight


def early(layer, x=X):
    """What each product of a call says of its weight."""

    def constant(func, args, kwargs):
        return [kwargs.get("constant_b", False)] if func._schema.name in PRODUCTS else []

    with Recorder(constant) as recorder:
        layer(x)
    return recorder.rows


def loads_early(layer, x=X):
    rows = early(layer, x)
    if isinstance(layer, MultiheadAttention):  # out_proj has an attribute of its own
        rows = rows[:1]
    assert rows and len({*rows}) == 1
    return rows[0]


@layers
@torch.no_grad()
def test_a_call_after_a_call_loads_early(name):
    layer = make(name)
    expected = layer(X)
    assert layer.constant_weights is False
    assert not loads_early(layer)
    layer.constant_weights = True
    assert not loads_early(layer)  # the weight may have been written before
    assert loads_early(layer)
    assert torch.equal(layer(X), expected)
    layer.constant_weights = False
    assert not loads_early(layer)
    constant = make(name, constant_weights=True)
    layer.constant_weights = True
    layer(X)
    constant(X)
    assert constant.constant_weights is True and loads_early(constant)


@layers
@torch.no_grad()
def test_a_call_after_a_write_waits(name):
    layer = make(name, constant_weights=True)
    other = make(name).state_dict()

    def replace(layer):
        weight_of(layer).data = weight_of(layer).clone()

    for write in (
        lambda layer: weight_of(layer).copy_(weight_of(layer).clone()),
        lambda layer: layer.load_state_dict(other),
        lambda layer: layer.load_state_dict(copy.deepcopy(other), assign=True),
        replace,
    ):
        layer(X)
        layer(X)
        write(layer)
        assert not any(early(layer)[:1])
        assert loads_early(layer)


@torch.no_grad()
def test_the_prepared_call_of_a_sparse_layer(monkeypatch):
    for learns in (False, True):
        layer = make("2:4 learns" if learns else "SparseLinear24", constant_weights=True)
        layer(X)
        expected = layer(X)
        calls = []
        waits, loads = layer._ready.calls

        def noted(name, call, calls=calls):
            return lambda *arguments: calls.append(name) or call(*arguments)

        layer._ready.calls = noted("waits", waits), noted("early", loads)
        assert torch.equal(layer(X), expected) and calls == ["early"]
        layer.constant_weights = False
        assert torch.equal(layer(X), expected) and calls == ["early", "waits"]


@pytest.mark.parametrize("name", ["Linear", "QuantLinear", "SparseLinear24"])
@torch.no_grad()
def test_calls_that_wait(name):
    layer = make(name, constant_weights=True)
    layer(X)
    layer(X)
    with torch.autocast("cpu"):
        assert not loads_early(layer)
    assert loads_early(layer)
    with torch.inference_mode():
        unwatched = make(name, constant_weights=True)
        unwatched(X)
        assert not loads_early(unwatched)
    names = dict(layer.named_parameters())
    given = {key: tensor.detach().clone() for key, tensor in names.items() if key == "weight"}
    if given:
        expected = make(name)
        expected.load_state_dict(layer.state_dict())
        expected.weight.add_(1)
        given["weight"].add_(1)
        for _ in range(2):
            assert torch.equal(torch.func.functional_call(layer, given, (X,)), expected(X))
        assert not loads_early(layer)


@torch.no_grad()
def test_the_product_of_8_bits_has_it(monkeypatch):
    """scaled_mm runs inside of the operator quantized_linear."""
    layer = make("QuantLinear", constant_weights=True)
    calls, run = [], Scaled.run
    monkeypatch.setattr(Scaled, "run", lambda *a: calls.append(a[-1].constant_b) or run(*a))
    for _ in range(2):
        layer(X)
    layer._buffers["weight"].add_(0)
    for _ in range(2):
        layer(X)
    assert calls == [False, True, False, True]


@torch.no_grad()
def test_a_batching_rule_waits():
    layer = make("Linear", constant_weights=True)
    layer(X)
    layer(X)
    batch = torch.stack([X, X])
    assert torch.equal(torch.vmap(layer)(batch), layer(batch))
    out = torch.vmap(lambda x: torch.ops.tcgemm.linear(x, layer.weight, constant_b=True))(batch)
    assert torch.equal(out, tcgemm.linear(batch, layer.weight))


def test_gradients_are_the_same():
    for name in ("Linear", "2:4 learns", "SparseLinear24"):
        layer = make(name, constant_weights=True).train()
        plain = copy.deepcopy(layer)
        plain.constant_weights = False
        for _ in range(3):
            results = []
            for one in (layer, plain):
                x = X.clone().requires_grad_()
                one.zero_grad()
                one(x).square().sum().backward()
                results += [x.grad, *(p.grad for p in one.parameters() if p.grad is not None)]
            half = len(results) // 2
            assert all(map(torch.equal, results[:half], results[half:]))


@pytest.mark.parametrize("name", ["Linear", "QuantLinear", "SparseLinear24", "Conv1D"])
@torch.no_grad()
def test_compiled(name):
    torch._dynamo.reset()
    layer = make(name)
    backend = EagerAndRecordGraphs()
    compiled = torch.compile(layer, fullgraph=True, backend=backend)

    def last_graph_loads_early():
        nodes = backend.graphs[-1].graph.nodes
        words = [node.kwargs for node in nodes if "kwargs" in dir(node)]
        return any(word.get("constant_b") for word in words)

    expected = layer(X)
    assert torch.equal(compiled(X), expected) and not last_graph_loads_early()
    layer.constant_weights = True
    layer(X)
    assert torch.equal(compiled(X), expected) and last_graph_loads_early()
    weight_of(layer).copy_(weight_of(make(name)))
    assert torch.equal(compiled(X), layer(X))
    assert len(backend.graphs) >= 2
    graphs = len(backend.graphs)
    with tcgemm.constant_weights(layer):
        compiled(X)
    assert len(backend.graphs) <= graphs + 1


@torch.no_grad()
def test_a_compiled_call_after_a_write_waits():
    torch._dynamo.reset()
    layer = make("Linear", constant_weights=True)
    backend = EagerAndRecordGraphs()
    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    layer(X)
    compiled(X)
    layer.weight.add_(1)
    compiled(X)
    words = [
        [node.kwargs.get("constant_b", False) for node in graph.graph.nodes if node.kwargs]
        for graph in backend.graphs
    ]
    assert [any(row) for row in words] == [True, False]


@all_layers
@torch.no_grad()
def test_a_write_in_the_block_raises(name):
    model = nn.ModuleDict({"head": make(name)})
    layer = model["head"]
    expected = layer(X)
    with tcgemm.constant_weights(model):
        assert torch.equal(layer(X), expected) and torch.equal(layer(X), expected)
        if name in LAYERS:
            assert loads_early(layer)
    assert layer.constant_weights is False
    text = (
        "tcgemm.constant_weights: the weight of head was written or replaced inside the block, but "
        "kernels load it before earlier kernels have ended; write weights outside of the block."
    )

    def write():
        weight_of(layer).copy_(weight_of(layer).clone())

    written = pytest.raises(RuntimeError, match="the weight of head was written")
    with written, tcgemm.constant_weights(model):  # the end raises, too
        layer(X)
        write()
        assert error_message(lambda: layer(X)) == text
    assert torch.equal(layer(X), expected)
    with written, tcgemm.constant_weights(model):
        write()
    with pytest.raises(KeyError), tcgemm.constant_weights(model):
        write()
        raise KeyError  # which the error of the write does not replace
    assert torch.equal(layer(X), expected)
    with tcgemm.constant_weights(model):
        pass


@torch.no_grad()
def test_blocks_inside_of_blocks():
    layer = make("Linear", constant_weights=True)
    with tcgemm.constant_weights(layer):
        with tcgemm.constant_weights(layer):
            assert loads_early(layer)
        assert loads_early(layer)
        message = "the weight of the model itself"
        layer.weight.add_(1)
        with pytest.raises(RuntimeError, match=message):
            layer(X)
        layer.weight.data = layer.weight.data.clone()
        with pytest.raises(RuntimeError, match=message):
            layer(X)
        layer._constant.watch(layer._watched())  # so that the end finds nothing
    layer(X)
    assert layer.constant_weights and loads_early(layer)


def test_what_is_no_module():
    text = (
        "tcgemm.constant_weights: model must be a torch.nn.Module, but is Tensor; pass the layer, "
        "or a module that has it."
    )
    with pytest.raises(TypeError) as excinfo, tcgemm.constant_weights(X):
        pass
    assert str(excinfo.value) == text


@all_layers
@torch.no_grad()
def test_shown_copied_and_pickled(name):
    layer = make(name, constant_weights=True)
    expected = layer(X)
    assert "constant_weights" not in repr(make(name))
    assert "constant_weights=True" in repr(layer) or name == "MultiheadAttention"
    copies = [copy.deepcopy(layer)]
    if name != "MultiheadAttention":  # pickle finds no class of a test
        copies.append(pickle.loads(pickle.dumps(layer)))
    for other in copies:
        assert other.constant_weights is True and torch.equal(other(X), expected)
        assert other._constant is not layer._constant
        if name in LAYERS:
            assert loads_early(other)
    assert not any("constant" in key for key in layer.state_dict())


@pytest.mark.parametrize("to", [Linear, QuantLinear, PackedLinear, Float8Linear, SparseLinear24])
@torch.no_grad()
def test_swap_linear(to):
    model = nn.Sequential(nn.Linear(K, K), nn.ReLU(), nn.Linear(K, N)).bfloat16()
    report = tcgemm.swap_linear(model, to=to, constant_weights=True)
    assert model[0].constant_weights is True and model[2].constant_weights is True
    model(X)
    if to not in (PackedLinear, Float8Linear):
        assert loads_early(model)
    report.undo()
    assert not hasattr(model[0], "_constant")
    tcgemm.swap_linear(model, to=to)
    assert model[0].constant_weights is False
    tcgemm.swap_linear(model, to=nn.Linear)
    assert type(model[0]) is nn.Linear and not hasattr(model[0], "_constant")
    with pytest.raises(RuntimeError, match="constant_weights is True"):
        tcgemm.swap_linear(model, to=nn.Linear, constant_weights=True)


def test_the_report_says_what_it_saves():
    """The estimates of explain for one row, on an H200."""
    linear = nn.Linear(4096, 4096)
    attention = nn.MultiheadAttention(1024, 8)
    model = nn.Sequential(linear, attention).bfloat16()
    for to, expected in (
        (Linear, 3 * 1.3),  # in_proj and out_proj, too
        (QuantLinear, 1.3),
        (SparseLinear24, 1.0),
        (PackedLinear, 0),
        (Float8Linear, 0),
    ):
        report = tcgemm.swap_linear(model, to=to)
        assert report.constant_microseconds() == pytest.approx(expected)
        text = f"constant_weights is off, and would save about {expected:.3g} us of a call"
        assert (text in str(report)) is (expected > 0)
        assert (text in report._repr_html_()) is (expected > 0)
        report.undo()
    report = tcgemm.swap_linear(model, constant_weights=True)
    assert "constant_weights saves about 3.9 us of a call with one row" in str(report)
    assert report.constant_microseconds(64) == pytest.approx(3 * 0.4)
    assert report.constant_microseconds(65) == 0
    x, w = torch.empty(1, 4096).bfloat16(), linear.weight.t()
    plan = tcgemm.explain(x, w, device="H200")
    assert plan.constant_microseconds == 1.3
    assert "constant_weights of a layer saves about 1.3 us" in plan
    for a, b, device in (
        (x, w, "A100"),
        (torch.empty(65, 4096).bfloat16(), w, "H200"),
        (x[:, 1:], w[1:], "H200"),  # a copy is written by the kernel before
        (torch.empty(64, 4096), w.float(), "H200"),  # so are the terms
        (x, tcgemm.pack_weight(linear.weight.detach(), "int4").t(), "H200"),
    ):
        plan = tcgemm.explain(a, b, device=device)
        assert plan.constant_microseconds == 0 and "constant_weights" not in plan


@pytest.mark.parametrize("to", [QuantLinear, PackedLinear, SparseLinear24])
def test_layers_made_of_a_layer(to):
    linear = Linear(K, N, constant_weights=True)
    assert to.from_linear(linear).constant_weights is True
    assert to.from_linear(linear).to_linear().constant_weights is True
    assert to.from_linear(dense()).constant_weights is False
    model = nn.Sequential(linear)
    tcgemm.swap_linear(model, to=to)
    assert model[0].constant_weights is True


def test_products_do_not_take_it():
    w = dense().weight.detach()
    with pytest.raises(TypeError, match="there is no option 'constant_b'"):
        tcgemm.mm(X, w.t(), constant_b=True)
