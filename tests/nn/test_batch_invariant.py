"""The argument batch_invariant of the layers: who has it, who refuses it, and where it goes."""

import copy

import pytest
import torch
from torch import nn

import tcgemm

from support import cases
from support.error_asserts import error_message
from support.invariance import Compiled, recorded

SIZE = 64
LAYERS = {
    "Linear": lambda **options: tcgemm.nn.Linear(SIZE, 32, **options),
    "gelu": lambda **options: tcgemm.nn.Linear(SIZE, 32, activation="gelu", **options),
    "Conv1D": lambda **options: tcgemm.nn.Conv1D(32, SIZE, **options),
    "QuantLinear": lambda **options: tcgemm.nn.QuantLinear(SIZE, 32, **options),
    "int8": lambda **options: tcgemm.nn.QuantLinear(SIZE, 32, dtype=torch.int8, **options),
    "SparseLinear24": lambda **options: tcgemm.nn.SparseLinear24(SIZE, 32, **options),
    "learns": lambda **options: tcgemm.nn.SparseLinear24(SIZE, 32, learns=True, **options),
}
TENSOR = (
    'tcgemm.nn.QuantLinear: batch_invariant is True with the granularity "tensor", but then the '
    'scale of x comes from all rows, and so do the bits of each row; pass the granularity "row" '
    'or "128x128", or leave batch_invariant out.'
)
FLOAT8 = (
    "tcgemm.nn.Float8Linear: batch_invariant is True, but the scale of x comes from all rows, and "
    "so do the bits of each row; leave batch_invariant out, or use tcgemm.nn.QuantLinear with the "
    'granularity "row".'
)
layers = pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)


def x():
    return torch.randn(5, SIZE, requires_grad=True)


@layers
def test_every_product_of_a_layer(make):
    """The backward comes later."""
    layer = make(batch_invariant=True)
    out = []
    forward = recorded(lambda: out.append(layer(x())))
    backward = recorded(lambda: out[0].sum().backward())
    assert forward and all(forward) and backward and all(backward)
    other = make()
    assert not any(recorded(lambda: other(x()).sum().backward()))


@layers
@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_every_product_in_eval_mode(make, context):
    layer = make(batch_invariant=True).eval()
    with context():
        for _ in range(2):  # the second call of a sparse layer takes its fast path
            products = recorded(lambda: layer(x()))
            assert products and all(products)
        expected = make().eval()
        expected.load_state_dict(layer.state_dict())
        rows = x()
        assert torch.equal(layer(rows), expected(rows))


def test_the_fast_path_of_a_sparse_layer_has_it():
    layer = LAYERS["SparseLinear24"](batch_invariant=True).half().eval()
    with torch.no_grad():
        layer(x().half())
    call, _ = layer._ready.calls
    assert call.__closure__ is not None  # scaled_mm with keywords, not linear24
    assert {"batch_invariant": True} in [cell.cell_contents for cell in call.__closure__]


@layers
def test_compiled(make):
    torch._dynamo.reset()
    layer = make(batch_invariant=True)
    assert all(Compiled(layer).run(x()))


@layers
def test_shown_copied_and_not_saved(make):
    layer = make(batch_invariant=True)
    assert repr(layer).endswith(", batch_invariant=True)")
    assert "batch_invariant" not in repr(make())
    for other in (*cases.copies(layer), copy.copy(layer)):
        assert other.batch_invariant is True
    assert list(layer.state_dict()) == list(make().state_dict())


def test_older_pickles_have_the_default():
    layer = tcgemm.nn.Linear(4, 4)
    del vars(layer)["batch_invariant"]
    assert layer.batch_invariant is False and all(
        not flag for flag in recorded(lambda: layer(torch.randn(2, 4)))
    )


@pytest.mark.parametrize(
    ("to", "options"),
    [
        (tcgemm.nn.QuantLinear, {"dtype": torch.int8}),
        (tcgemm.nn.SparseLinear24, {}),
        (tcgemm.nn.SparseLinear24, {"learns": True}),
    ],
    ids=str,
)
def test_from_and_to_linear(to, options):
    plain, invariant = nn.Linear(SIZE, 32), tcgemm.nn.Linear(SIZE, 32, batch_invariant=True)
    assert to.from_linear(plain, **options).batch_invariant is False
    assert to.from_linear(plain, **options, batch_invariant=True).batch_invariant is True
    layer = to.from_linear(invariant, **options)
    assert layer.batch_invariant is True
    assert layer.to_linear().batch_invariant is True
    assert to.from_linear(plain, **options).to_linear().batch_invariant is False


@pytest.mark.parametrize(
    "to", [tcgemm.nn.Linear, tcgemm.nn.QuantLinear, tcgemm.nn.SparseLinear24], ids=str
)
def test_swap_linear_passes_it_on_and_takes_it_back(to):
    model = nn.Sequential(nn.Linear(SIZE, SIZE), nn.ReLU(), nn.Linear(SIZE, 32))
    report = tcgemm.swap_linear(model, to=to, batch_invariant=True)
    assert [type(model[i]) for i in (0, 2)] == [to, to]
    assert model[0].batch_invariant and model[2].batch_invariant
    report.undo()
    assert not hasattr(model[0], "batch_invariant")
    tcgemm.swap_linear(model, to=to, batch_invariant=True)
    tcgemm.swap_linear(model, to=nn.Linear)
    assert type(model[0]) is nn.Linear and not hasattr(model[0], "batch_invariant")


def test_swap_linear_keeps_that_of_our_layers():
    model = nn.Sequential(tcgemm.nn.Linear(SIZE, SIZE, batch_invariant=True))
    report = tcgemm.swap_linear(model, to=tcgemm.nn.QuantLinear)
    assert model[0].batch_invariant is True
    report.undo()
    assert type(model[0]) is tcgemm.nn.Linear and model[0].batch_invariant is True
    report = tcgemm.swap_linear(model, to=tcgemm.nn.Float8Linear)
    assert report.skipped == {
        "0": "is batch_invariant, but in float8 the scale of x comes from all rows"
    }
    model = nn.Sequential(tcgemm.nn.Conv1D(32, SIZE, batch_invariant=True))
    tcgemm.swap_linear(model, to=tcgemm.nn.QuantLinear)
    assert type(model[0]) is tcgemm.nn.QuantConv1D and model[0].batch_invariant is True


@pytest.mark.parametrize("inputs", ["one", "two", "three"])
def test_attention(inputs):
    layer = tcgemm.nn.MultiheadAttention(SIZE, 4, batch_first=True, batch_invariant=True)
    q, k, v = (torch.randn(2, 3, SIZE) for _ in range(3))
    operands = {"one": (q, q, q), "two": (q, k, k), "three": (q, k, v)}[inputs]
    products = recorded(lambda: layer(*operands)[0].sum().backward())
    assert len(products) >= 5 and all(products)
    model = nn.Sequential(nn.MultiheadAttention(SIZE, 4))
    report = tcgemm.swap_linear(model, batch_invariant=True)
    assert report.swapped == ["0", "0.out_proj"]
    assert model[0].batch_invariant and model[0].out_proj.batch_invariant
    report.undo()
    assert not hasattr(model[0], "batch_invariant")


def test_a_dynamic_scale_of_all_rows_is_refused():
    linear = nn.Linear(SIZE, 32)
    options = {"granularity": "tensor", "batch_invariant": True}
    makers = [
        (TENSOR, lambda: tcgemm.nn.QuantLinear(SIZE, 32, **options)),
        (TENSOR, lambda: tcgemm.nn.QuantLinear.from_linear(linear, **options)),
        (TENSOR, lambda: tcgemm.swap_linear(linear, to=tcgemm.nn.QuantLinear, **options)),
        (FLOAT8, lambda: tcgemm.nn.Float8Linear(SIZE, 32, batch_invariant=True)),
        (FLOAT8, lambda: tcgemm.nn.Float8Linear(4, 4, scaling="delayed", batch_invariant=True)),
        (
            FLOAT8,
            lambda: tcgemm.swap_linear(linear, to=tcgemm.nn.Float8Linear, batch_invariant=True),
        ),
    ]
    for sentence, make in makers:
        assert error_message(make) == sentence
    assert type(linear) is nn.Linear
    layer = tcgemm.nn.QuantLinear(SIZE, 32, granularity="tensor")
    layer.batch_invariant = True  # is noticed by the next call
    with pytest.raises(RuntimeError, match="the scale of x comes from all rows"):
        layer(x())


def test_no_weight_is_prepared(monkeypatch):
    """The terms would not be read."""
    monkeypatch.setattr("tcgemm.nn.linear._on_gpu", lambda weight: True)
    for invariant in (False, True):
        layer = tcgemm.nn.Linear(SIZE, 32, batch_invariant=invariant).eval()
        layer(x().detach())
        assert (layer.prepared is None) is invariant
