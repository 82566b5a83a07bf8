"""tcgemm.nn.Linear keeps the terms of its weight in eval mode, and drops them in time.

Here every weight counts as one on a GPU, of whose terms the CPU keeps an empty tensor; what is
decided is the same. gpu/test_prepared.py has the rest.
"""

import copy

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn.utils import prune

import tcgemm
from tcgemm.nn import Linear, linear
from tcgemm.ops import explanation

from support import cases
from support.calls import Recorder

X = torch.randn(6, 8)


@pytest.fixture(autouse=True)
def everything_is_on_a_gpu(monkeypatch):
    monkeypatch.setattr(linear, "_on_gpu", lambda weight: True)
    torch._dynamo.reset()


@pytest.fixture
def layer():
    return Linear(8, 5, activation="gelu").eval()


def is_correct(layer, x=X):
    """Does the layer multiply by its weight as it is now?"""
    out = layer(x)
    return torch.equal(out, tcgemm.linear(x, layer.weight, layer.bias, activation="gelu"))


def test_the_first_call_in_eval_mode_prepares_for_all(layer):
    assert layer.prepare and layer.prepared is None
    assert is_correct(layer)
    prepared = layer.prepared
    assert isinstance(prepared, tcgemm.Prepared) and prepared.weight is layer.weight
    assert is_correct(layer) and is_correct(layer, X[None, :2]) and is_correct(layer, X[0])
    with torch.inference_mode():
        assert is_correct(layer)
    assert layer.prepared is prepared and layer.eval().prepared is prepared


def terms_and_precision(func, args, kwargs):
    """(Did the product get terms, and which precision?)"""
    names = ("linear", "scaled_mm")
    row = (func._opname == "scaled_mm", kwargs.get("precision"))
    return [row] if func._opname in names else []


def test_calls_without_parts_ask_for_the_way_of_those_with_parts(layer):
    """So that all calls of a layer have the same bits: tests/plan/test_same_bits.py."""

    def call():
        with torch.no_grad(), Recorder(terms_and_precision) as calls:
            layer(X)
        return calls.rows

    assert call() == [(True, None)]
    with torch.no_grad():
        layer.weight.mul_(2)
    assert call() == [(False, "prepared")]  # the first call that sees the change
    assert call() == [(True, None)]
    layer.train()
    assert call() == [(False, "prepared")]
    layer.prepare = False
    assert call() == [(False, None)]


def test_nothing_is_prepared_where_it_would_not_be_used(layer, monkeypatch):
    def untouched(layer, x=X):
        layer(x)
        return layer.prepared is None

    assert untouched(layer.train())
    assert untouched(Linear(8, 5, prepare=False).eval())
    layer.eval().prepare = False
    assert untouched(layer)
    layer.prepare = True
    for word in ("high", "medium"):
        torch.set_float32_matmul_precision(word)
        try:
            assert untouched(layer)
        finally:
            torch.set_float32_matmul_precision("highest")
    for dtype in (torch.bfloat16, torch.float64):
        assert untouched(copy.deepcopy(layer).to(dtype), X.to(dtype))
    with monkeypatch.context() as patch:
        patch.setattr(torch, "is_autocast_enabled", lambda device: device == "cuda")
        assert untouched(layer)
    with torch.inference_mode():
        inference = Linear(8, 5).eval()
    assert untouched(inference)
    torch.vmap(layer)(X[None])
    functional_call(layer, {"weight": torch.ones(5, 8)}, X)
    torch.func.grad(lambda x: layer(x).sum())(X)
    assert layer.prepared is None
    monkeypatch.undo()  # and a weight on the CPU
    assert untouched(layer)


def test_weights_that_are_made_for_a_call_are_not_prepared(layer):
    nn.utils.parametrizations.weight_norm(layer)
    layer(X)
    assert layer.prepared is None
    pruned = Linear(8, 5).eval()
    prune.l1_unstructured(pruned, "weight", 0.5)
    pruned(X)
    assert pruned.prepared is None
    replica = Linear(8, 5).eval()._replicate_for_data_parallel()
    replica.weight, replica.bias = torch.ones(5, 8), torch.ones(5)
    assert torch.equal(replica(X), tcgemm.linear(X, replica.weight, replica.bias))
    assert replica.prepared is None


def exchanged(layer):
    layer.weight.data = torch.randn(5, 8)


def replaced(layer):
    layer.weight = nn.Parameter(torch.randn(5, 8))


def updated(layer):
    with torch.no_grad():
        layer.weight.mul_(2)


def loaded(layer, **options):
    layer.load_state_dict(Linear(8, 5).state_dict(), **options)


CHANGES = (updated, exchanged, replaced, loaded, lambda layer: loaded(layer, assign=True))


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_weight_is_prepared_again_when_it_stays(layer, change):
    layer(X)
    before = layer.prepared
    change(layer)
    assert is_correct(layer) and layer.prepared is None
    assert is_correct(layer) and layer.prepared not in (None, before)
    assert layer.prepared.weight is layer.weight and is_correct(layer)


def test_a_weight_that_learns_in_eval_mode_is_not_prepared_for_each_step(layer, monkeypatch):
    weights = []
    real = linear.prepared_in
    monkeypatch.setattr(
        linear, "prepared_in", lambda f, w, **copies: weights.append(w) or real(f, w, **copies)
    )
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    for _ in range(4):
        optimizer.zero_grad()
        assert is_correct(layer)
        layer(X[:0])  # a second call with the same weight
        layer(X).square().sum().backward()
        optimizer.step()
        weights.clear()
    for _ in range(4):
        optimizer.zero_grad()
        layer(X).square().sum().backward()
        optimizer.step()
    assert len(weights) <= 1


def test_train_and_moves_let_go(layer):
    for let_go in (
        lambda: layer.train().eval(),
        lambda: layer.double().float(),
        lambda: layer.to(torch.float32),
        lambda: layer.share_memory(),
    ):
        layer(X)
        assert layer.prepared is not None
        let_go()
        assert layer.prepared is None
        assert is_correct(layer)


def test_copies_and_states_are_without_it(layer):
    assert is_correct(layer)
    assert list(layer.state_dict()) == ["weight", "bias"]
    nn.Linear(8, 5).load_state_dict(layer.state_dict())
    for other in cases.copies(layer):
        assert type(other) is Linear and other.prepared is None and not other.training
        assert is_correct(other) and other.prepared.weight is other.weight
    assert layer.prepared is not None


def test_gradients_are_those_without_it(layer):
    plain = copy.deepcopy(layer)
    plain.prepare = False
    results = []
    for module in (layer, plain):
        x = X.clone().requires_grad_()
        module(x)
        out = module(x)
        results.append(torch.autograd.grad(out.sin().sum(), (x, *module.parameters())))
    for grad, expected in zip(*results, strict=True):
        assert torch.equal(grad, expected)


def test_what_a_cuda_graph_reads_is_kept(layer, monkeypatch):
    """Capture prepares nothing, and what it used stays when the weight changes."""
    monkeypatch.setattr(linear, "capturing", lambda weight: True)
    assert is_correct(layer) and layer.prepared is None
    monkeypatch.setattr(linear, "capturing", lambda weight: False)
    layer(X)
    form, (terms,) = layer._form, layer._form.tensors
    form.captured = True  # as a call during a capture leaves it
    updated(layer)
    assert is_correct(layer) and layer.prepared is None and form.tensors[0] is terms
    assert is_correct(layer) and layer.prepared.terms is terms
    assert layer.train().prepared is None and form.tensors[0] is terms
    assert copy.deepcopy(layer)._form is None
    layer.eval()(X), layer(X)
    layer.release_graphs()
    assert layer.prepared is not None and layer.train() and not form.tensors


def test_it_is_shown_and_can_be_switched_off():
    assert repr(Linear(8, 5)) == "Linear(in_features=8, out_features=5, bias=True)"
    off = Linear(8, 5, activation="relu", prepare=False)
    assert repr(off).endswith("activation=relu, prepare=False)")
    with pytest.raises(TypeError):
        Linear(8, 5, True, None, None, None, False)


def targets(layer):
    """The layer as it is compiled, and the operators of its graphs."""
    compiled, operators = cases.compiled(layer)
    with torch.no_grad():
        assert torch.equal(compiled(X), layer(X))
    return compiled, operators


def test_compiled_functions_use_what_is_there(layer):
    compiled, operators = targets(layer)  # the call in eager mode came second
    assert operators == ["tcgemm.linear.default"] and layer.prepared is not None
    with torch.no_grad():
        compiled(X)
        assert operators[1:] == ["tcgemm.scaled_mm.default"]
        updated(layer)
        assert torch.equal(compiled(X), copy.deepcopy(layer)(X))
        assert operators[2:] in ([], ["tcgemm.linear.default"])
        layer(X), layer(X)
        assert torch.equal(compiled(X), layer(X))
        layer.train()
        assert torch.equal(compiled(X), layer(X))


def test_a_compiled_model_notices_changed_weights_in_its_depth():
    model = nn.Sequential(nn.Sequential(Linear(8, 8), nn.ReLU()), Linear(8, 5)).eval()
    with torch.no_grad():
        model(X)
        compiled = torch.compile(model, fullgraph=True, backend="eager")
        for _ in range(3):
            for layer in (model[0][0], model[1]):
                assert layer.prepared is not None
                assert torch.equal(compiled(X), model(X))
                updated(layer)
                plain = copy.deepcopy(model)
                assert torch.equal(compiled(X), plain(X))
                model(X), model(X)


def test_exported_programs_hold_no_parts(layer):
    layer(X)
    program = torch.export.export(layer, (X,))
    names = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert names == ["tcgemm.linear.default"] and not program.constants
    assert torch.equal(program.module()(X), layer(X))


def test_swapped_layers_prepare_and_are_taken_back(monkeypatch):
    monkeypatch.setattr(explanation, "check_layout", lambda a, b: "")
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 5)).eval()
    before = [vars(module).copy() for module in model]
    expected = model(X)
    report = tcgemm.swap_linear(model)
    torch.testing.assert_close(model(X), expected)
    assert model[0].prepared is not None and model[2].prepared is not None
    report.undo()
    assert [vars(module) for module in model] == before and type(model[0]) is nn.Linear
    report = tcgemm.swap_linear(model, prepare=False)
    model(X)
    assert model[0].prepared is None and not model[0].prepare
    report.undo()
    assert [vars(module) for module in model] == before


def test_quantised_layers_hold_no_parts(layer):
    layer(X)
    model = nn.Sequential(layer)
    report = tcgemm.swap_linear(model, to=tcgemm.nn.QuantLinear)
    assert not [name for name in vars(layer) if name.startswith("_prep")]
    model(X)
    report.undo()
    assert type(layer) is Linear and is_correct(layer) and layer.prepared is not None


def test_what_no_kernel_multiplies_is_not_swapped(monkeypatch):
    def refused(a, b):
        raise RuntimeError("tcgemm: no kernel here; cast the operands.")

    monkeypatch.setattr(explanation, "check_layout", refused)
    model = nn.Sequential(nn.Linear(8, 8))
    assert tcgemm.swap_linear(model).skipped == {"0": "tcgemm: no kernel here; cast the operands."}
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: device == "cuda")
    assert tcgemm.swap_linear(model).swapped == ["0"]
