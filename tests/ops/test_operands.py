"""Operands that are no plain tensors: torch's products take each kind, and a new kind is a class
and a function."""

import pytest
import torch
from torch.nn import functional

import tcgemm
from tcgemm.ops.epilogue import DEFAULT
from tcgemm.ops.operands import Operand, products

X = torch.randn(4, 128)
W = torch.randn(48, 128)
C = torch.randn(48)


def packed():
    return tcgemm.pack_weight(W.bfloat16()), X.bfloat16()


def prepared():
    return tcgemm.prepare(W), X


def sparse():
    return tcgemm.compress24(W.bfloat16(), prune=True), X.bfloat16()


def int4():
    w, x = (torch.randint(-8, 8, tensor.shape, dtype=torch.int8) for tensor in (W, X))
    return tcgemm.Int4Tensor.from_int8(w), tcgemm.Int4Tensor.from_int8(x)


KINDS = {kind.__name__: kind for kind in (packed, prepared, sparse, int4)}
PAIRS = {
    "mm": (torch.mm, tcgemm.mm),
    "matmul": (torch.matmul, tcgemm.matmul),
    "@": (lambda x, w: x @ w, tcgemm.mm),
    "method": (lambda x, w: x.matmul(w), tcgemm.mm),
    "addmm": (
        lambda x, w: torch.addmm(C, x, w, beta=2, alpha=1),
        lambda x, w: tcgemm.addmm(C, x, w, beta=2.0),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PAIRS)
def test_torchs_products(kind, name):
    w, x = KINDS[kind]()
    product, expected = PAIRS[name]
    if name == "addmm" and kind == "int4":
        pytest.skip("float32 c beside an int32 result")
    assert torch.equal(product(x, w.t()), expected(x, w.t()))


@pytest.mark.parametrize("kind", KINDS)
def test_torchs_linear(kind):
    w, x = KINDS[kind]()
    assert torch.equal(functional.linear(x, w), tcgemm.linear(x, w))
    if kind != "int4":
        bias = C.to(x.dtype)
        assert torch.equal(functional.linear(x, w, bias), tcgemm.linear(x, w, bias))


@pytest.mark.parametrize("kind", ["packed", "prepared"])
def test_gradients_by_torchs_products(kind):
    w, x = KINDS[kind]()
    x = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad((x @ w.t()).sum(), x)
    (expected,) = torch.autograd.grad(tcgemm.mm(x, w.t()).sum(), x)
    assert torch.equal(gradient, expected)


@pytest.mark.parametrize("kind", ["packed", "prepared"])
def test_torchs_products_in_a_compiled_function(kind):
    w, x = KINDS[kind]()
    compiled = torch.compile(lambda x: x @ w.t() + functional.linear(x, w), fullgraph=True)
    assert torch.equal(compiled(x), 2 * tcgemm.linear(x, w))


def test_torchs_other_functions_name_a_remedy():
    w, x = packed()
    with pytest.raises(TypeError, match=r"^tcgemm: torch's add takes no PackedWeight; .*dequ"):
        torch.add(x, w)
    p, y = prepared()
    with pytest.raises(TypeError, match=r"takes no Prepared; .* its weight, the argument\.weight"):
        torch.relu(p)
    with pytest.raises(TypeError, match="residual is a PackedWeight, which is the weight"):
        tcgemm.mm(x, w.t(), residual=w)
    with pytest.raises(TypeError, match="a is a Prepared, which is the weight of tcgemm"):
        tcgemm.mm(p, y.t())


class Doubled(Operand):
    """A kind for this test: twice a matrix."""

    mend = "{}.weight"

    def __init__(self, weight):
        self.weight = weight


@pytest.fixture
def doubled():
    calls = []

    def multiply(function, op, a, b, c, bias, residual, out, epilogue, scales, amax):
        if type(b) is not Doubled:
            return NotImplemented
        calls.append((function, op.name, epilogue is DEFAULT, amax))
        return 2 * function(a, b.weight)

    products[Doubled] = multiply
    yield calls
    del products[Doubled]


def test_a_new_kind(doubled):
    weight = Doubled(W)
    expected = 2 * tcgemm.linear(X, W)
    assert torch.equal(tcgemm.linear(X, weight), expected)
    assert torch.equal(functional.linear(X, weight), expected)
    assert doubled == [(tcgemm.linear, "linear", True, False)] * 2
    with pytest.raises(TypeError, match=r"a is a Doubled, .*pass a\.weight\.$"):
        tcgemm.mm(weight, X)
