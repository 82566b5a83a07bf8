"""tcgemm.prepare: a Prepared in the place of its weight, in every function, transform and copy.

On the CPU nothing is made, but the calls go the same way as on a GPU, with an empty tensor in the
place of the terms. gpu/test_prepared.py tests the terms of a GPU, and test_prepared_linear.py the
Linear that prepares its weight by itself.
"""

import copy
import re
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.overrides import TorchFunctionMode

import tcgemm
from tcgemm.ops import prepared as prepared_module
from tcgemm.ops.kept import KeptForm

from support.calls import Recorder
from support.cases import copies
from support.error_asserts import error_message

M, N, K = 6, 5, 8
X, W, C, BIAS = torch.randn(M, K), torch.randn(N, K), torch.randn(M, N), torch.randn(N)
TERMS = 10  # the place of terms_b among the arguments of scaled_mm


def with_terms(weight, terms, term_type):
    """A Prepared with these terms."""
    form = KeptForm()
    form.write([weight], lambda: (terms,))
    return tcgemm.Prepared(weight, form, term_type)


def terms_of(func, args, kwargs):
    """A product's operator, and the terms that it got."""
    terms = args[TERMS] if len(args) > TERMS else None
    return [(func._opname, terms)] if func.namespace == "tcgemm" else []


# (what is called with x and a weight or its Prepared)
FUNCTIONS = {
    "linear": lambda x, w: tcgemm.linear(x, w),
    "linear with all": lambda x, w: tcgemm.linear(x, w, BIAS, activation="gelu", residual=C),
    "linear of a batch": lambda x, w: tcgemm.linear(x[None, None], w, activation="silu"),
    "linear of a vector": lambda x, w: tcgemm.linear(x[0], w, BIAS, activation="relu"),
    "mm": lambda x, w: tcgemm.mm(x, w.t()),
    "mm with all": lambda x, w: tcgemm.mm(x, w.T, bias=BIAS, activation="gelu_tanh", alpha=0.5),
    "mm with scales": lambda x, w: tcgemm.mm(x, w.mT, scale_b=BIAS.abs()[None]),
    "mm to bf16": lambda x, w: tcgemm.mm(x, w.mT, out_dtype=torch.bfloat16).float(),
    "mm with amax": lambda x, w: tcgemm.mm(x, w.t(), amax=True)[0],
    "matmul": lambda x, w: tcgemm.matmul(x[None], w.mT, bias=BIAS),
    "matmul of a vector": lambda x, w: tcgemm.matmul(x[0], w.t()),
    "addmm": lambda x, w: tcgemm.addmm(C, x, w.t(), beta=0.5, activation="silu"),
}
EVERY = pytest.mark.parametrize("name", FUNCTIONS)


def leaves():
    return X.clone().requires_grad_(), W.clone().requires_grad_()


@EVERY
def test_results_and_gradients_are_those_of_the_weight(name):
    function = FUNCTIONS[name]
    x, w = leaves()
    p = tcgemm.prepare(w)
    with Recorder(terms_of) as calls:
        out = function(x, p)
    assert [(op, terms is p.terms) for op, terms in calls.rows] == [
        ("scaled_mm_amax" if "amax" in name else "scaled_mm", True)
    ]
    expected = function(x, w)
    assert torch.equal(out, expected)
    prepared_grads = torch.autograd.grad(out.sin().sum(), (x, w), create_graph=True)
    grads = torch.autograd.grad(expected.sin().sum(), (x, w), create_graph=True)
    for grad, expected_grad in zip(prepared_grads, grads, strict=True):
        assert torch.equal(grad, expected_grad)
    pair = (prepared_grads, grads)
    seconds = [torch.autograd.grad(sum(map(torch.sum, firsts)), (x, w)) for firsts in pair]
    for grad, expected_grad in zip(*seconds, strict=True):
        assert torch.equal(grad, expected_grad)
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            assert torch.equal(function(x, p), expected)


def test_the_backward_multiplies_without_parts():
    """The forward has kept the argument of the activation."""
    x, w = leaves()
    p = tcgemm.prepare(w)
    out = tcgemm.linear(x, p, activation="gelu")
    with Recorder(terms_of) as calls:
        out.sum().backward()
    assert [name for name, _ in calls.rows] == ["_activation_backward", "matmul", "matmul"]
    assert not any(terms is p.terms for _, terms in calls.rows)
    assert w.grad is not None and x.grad is not None


def test_a_parameter_learns():
    layer = torch.nn.Linear(K, N)
    tcgemm.linear(X, tcgemm.prepare(layer.weight), layer.bias).sum().backward()
    expected = torch.autograd.grad(layer(X).sum(), layer.weight)[0]
    torch.testing.assert_close(layer.weight.grad, expected)


def test_out():
    p, out = tcgemm.prepare(W), torch.empty(N, M).t()
    assert tcgemm.mm(X, p.t(), out=out) is out
    assert torch.equal(out, tcgemm.mm(X, W.t()))
    assert torch.equal(tcgemm.linear(X, p, BIAS, out=torch.empty(M, N)), tcgemm.linear(X, W, BIAS))
    w = W.clone().requires_grad_()
    with pytest.raises(RuntimeError, match="out= cannot be differentiated, but weight needs"):
        tcgemm.linear(X, tcgemm.prepare(w), out=out)


# The object.


def test_what_it_says_of_itself():
    p = tcgemm.prepare(W)
    assert repr(p) == "Prepared(shape=(5, 8), device='cpu', term_type=None, nbytes=0)"
    assert p.weight is W and p.fresh and p.nbytes == 0 and p.term_type is None
    assert (p.shape, p.t().shape, p.t().t().shape) == ((N, K), (K, N), (N, K))
    assert p.dtype is torch.float32 and p.t().device == torch.device("cpu")
    assert isinstance(p.shape, torch.Size) and isinstance(p.T.shape, torch.Size)
    assert p.to("cpu") is p
    assert p.to("meta").device.type == p.t().to("meta").device.type == "meta"
    assert p.t().to("meta").shape == (K, N)
    prepared = with_terms(W, torch.zeros(40, dtype=torch.uint8), "f16").t()
    assert repr(prepared) == "Prepared(shape=(8, 5), device='cpu', term_type=f16, nbytes=40)"


@pytest.mark.parametrize("shape", [(0, K), (N, 0), (1, 1)])
def test_small_weights(shape):
    w = torch.randn(shape)
    x = torch.randn(M, shape[1])
    assert torch.equal(tcgemm.linear(x, tcgemm.prepare(w)), tcgemm.linear(x, w))


def test_copies_are_prepared_where_they_land():
    w = torch.nn.Parameter(W.clone())
    p = tcgemm.prepare(w)
    others = [*copies(p), *(transpose.t() for transpose in copies(p.t()))]
    with torch.no_grad():
        w.zero_()  # the copies are others'
    for other in others:
        assert other.weight is not w and isinstance(other.weight, torch.nn.Parameter)
        assert other.fresh and torch.equal(tcgemm.linear(X, other), tcgemm.linear(X, W))


def test_of_a_module():
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(W.clone())
            self.prepared = tcgemm.prepare(self.weight)

        def forward(self, x):
            return tcgemm.linear(x, self.prepared)

    layer = copy.deepcopy(Layer())
    assert layer.prepared.weight is layer.weight
    assert list(layer.state_dict()) == ["weight"]
    assert torch.equal(layer(X), tcgemm.linear(X, W))
    layer.double()  # the parameter is another tensor's now, and the terms are not
    with pytest.raises(RuntimeError, match=r"call tcgemm\.prepare again"):
        layer(X)


# Refusals.


def exchanged(w):
    w.data = w.data.clone()


def transposed(w):
    w.data = w.data.view(K, N).t()


CHANGES = {
    "in place": lambda w: w.mul_(2),
    "through a view": lambda w: w[0].zero_(),
    "through detach": lambda w: w.detach().add_(1),
    "by out=": lambda w: torch.mul(w, 2, out=w),
    "by out= of tcgemm": lambda w: tcgemm.mm(torch.ones(N, 1), torch.ones(1, K), out=w),
    "other memory": exchanged,
    "other strides": transposed,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_weight_that_changed_is_refused(change):
    w = W.clone()
    p = tcgemm.prepare(w)
    view = p.t()
    tcgemm.linear(X, p)
    CHANGES[change](w)
    assert not p.fresh and not view.fresh
    for name, call in (
        ("tcgemm.linear: weight is", lambda: tcgemm.linear(X, p)),
        ("tcgemm.mm: b is", lambda: tcgemm.mm(X, view, precision="medium")),
        ("tcgemm.addmm: b is", lambda: tcgemm.addmm(C, X, view, scale_a=torch.ones(()))),
        ("tcgemm.explain: b is", lambda: tcgemm.explain(X, view)),
    ):
        with pytest.raises(RuntimeError) as error:
            call()
        assert str(error.value).startswith(f"{name} a Prepared whose weight was changed in place")
        assert str(error.value).endswith("; call tcgemm.prepare again.")
    p = tcgemm.prepare(w)
    assert torch.equal(tcgemm.linear(X, p), tcgemm.linear(X, w))


def test_memory_that_comes_back_is_not_taken_for_the_weight():
    """torch uses freed memory again, at the same address."""
    w = W.clone()
    p = tcgemm.prepare(w)
    for _ in range(20):
        w.data = torch.randn(N, K)
        assert not p.fresh


def test_inference_tensors_are_not_watched():
    with torch.inference_mode():
        w = W.clone()
        p = tcgemm.prepare(w)
        assert torch.equal(tcgemm.linear(X, p), tcgemm.linear(X, w))
        assert not p.terms.is_inference()
        w.mul_(2)
        assert p.fresh


def test_the_other_orientation_is_refused():
    square = torch.randn(K, K)
    p = tcgemm.prepare(square)
    with pytest.raises(RuntimeError, match=r"mm: b is a Prepared of shape \(8, 8\).*pass b\.t\(\)"):
        tcgemm.mm(X, p)
    with pytest.raises(RuntimeError, match=r"linear: weight is a Prepared.*pass weight\.t\(\)"):
        tcgemm.linear(X, p.t())
    with pytest.raises(RuntimeError, match=r"matmul: b is a Prepared"):
        tcgemm.matmul(X, p, scale_a=torch.ones(()))
    with pytest.raises(RuntimeError, match=r"explain: b is a Prepared"):
        tcgemm.explain(X, p)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda p: tcgemm.mm(p, X.t()), "tcgemm.mm: a is a Prepared, which is the weight of"),
        (lambda p: tcgemm.bmm(X[None], p), "tcgemm.bmm: b is a Prepared, which is the weight of"),
        (lambda p: tcgemm.linear(X, W, p), "tcgemm.linear: bias is a Prepared, which is the we"),
        (lambda p: tcgemm.quantized_linear(X, p), "tcgemm.quantized_linear: weight is a Prepared"),
        (lambda p: tcgemm.linear(X, p, 1.0), "tcgemm.linear: bias must be a torch.Tensor, but is"),
        (lambda p: tcgemm.linear(None, p), "tcgemm.linear: x must be a torch.Tensor, but is None"),
        (lambda p: tcgemm.addmm(None, X, p.t()), "tcgemm.addmm: c must be a torch.Tensor, but is"),
        (lambda p: tcgemm.prepare(p), "tcgemm.prepare: w must be a torch.Tensor, but is Prepared"),
        (lambda p: tcgemm.prepare([1.0]), "tcgemm.prepare: w must be a torch.Tensor, but is list"),
    ],
)
def test_where_it_does_not_belong(call, sentence):
    assert error_message(lambda: call(tcgemm.prepare(W)), TypeError).startswith(sentence)


def test_shapes_are_the_weights():
    p = tcgemm.prepare(W)
    with pytest.raises(
        RuntimeError, match=r"must agree, but x has shape \(6, 5\) and weight \(5, 8"
    ):
        tcgemm.linear(C, p)
    with pytest.raises(RuntimeError, match=r"tcgemm.mm: a must be a matrix \(M, K\)"):
        tcgemm.mm(X[None], p.t())
    with pytest.raises(RuntimeError, match=r"b is torch.float32, but a is torch.float16"):
        tcgemm.linear(X.half(), p)
    with pytest.raises(RuntimeError, match=r"linear: bias must have shape \(5,\)"):
        tcgemm.linear(X, p, BIAS[None])
    nested = tcgemm.linear(torch.nested.nested_tensor([X, X[:2]], layout=torch.jagged), p)
    assert torch.equal(nested.values(), tcgemm.linear(torch.cat([X, X[:2]]), W))


def test_where_it_cannot_be_made(monkeypatch):
    torch._dynamo.reset()
    compiled = torch.compile(lambda w: tcgemm.prepare(w).weight, backend="eager", fullgraph=True)
    with pytest.raises(RuntimeError, match="inside a function that is compiled; prepare it before"):
        compiled(W)
    for transform in (torch.vmap, torch.func.grad):
        with pytest.raises(RuntimeError, match=r"that torch\.func transforms; prepare it before"):
            transform(lambda w: tcgemm.prepare(w).weight)(W)
    monkeypatch.setattr(prepared_module, "capturing", lambda w: True)
    with pytest.raises(RuntimeError, match="inside the capture of a CUDA graph; prepare it before"):
        tcgemm.prepare(W)


# Only "highest" uses the terms.


@pytest.fixture
def as_before():
    yield
    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.fp32_precision = "none"


def test_only_highest_takes_the_parts_on_cuda(as_before):
    with FakeTensorMode():
        x, w = torch.empty(M, K, device="cuda"), torch.empty(N, K, device="cuda")
        terms = torch.empty(2816, dtype=torch.uint8, device="cuda")
        form = SimpleNamespace(unchanged=True, tensors=(terms,), lock=nullcontext())
        p = tcgemm.Prepared(w, form, "f16")

        def gets_parts(**options):
            with Recorder(terms_of) as calls:
                tcgemm.linear(x, p, **options)
                tcgemm.mm(x, p.t(), **options)
            assert len({passed is terms for _, passed in calls.rows}) == 1 and len(calls.rows) == 2
            return calls.rows[0][1] is terms

        assert gets_parts() and gets_parts(precision="highest") and gets_parts(activation="gelu")
        assert not gets_parts(precision="high") and not gets_parts(precision="medium")
        for word in ("high", "medium"):
            torch.set_float32_matmul_precision(word)
            assert not gets_parts() and gets_parts(precision="highest")


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_other_precisions_multiply_the_weight(precision):
    p = tcgemm.prepare(W)
    expected = tcgemm.linear(X, W, BIAS, precision=precision)
    assert not torch.equal(expected, tcgemm.linear(X, W, BIAS))
    assert torch.equal(tcgemm.linear(X, p, BIAS, precision=precision), expected)


def test_autocast_multiplies_the_weight():
    x, w = leaves()
    p = tcgemm.prepare(w)
    with torch.autocast("cpu", dtype=torch.bfloat16), Recorder(terms_of) as calls:
        out = tcgemm.linear(x, p, BIAS, activation="gelu")
        expected = tcgemm.linear(x, w, BIAS, activation="gelu")
    assert [terms for _, terms in calls.rows] == [None, None]
    assert out.dtype is torch.bfloat16 and torch.equal(out, expected)
    out.sum().backward()
    assert w.grad.dtype is torch.float32


def test_explain_says_what_is_not_split_again():
    a = torch.empty(1024, 4096, device="meta")
    b = torch.empty(2048, 4096, device="meta").t()
    terms = torch.empty(0, dtype=torch.uint8, device="meta")
    plain = tcgemm.explain(a, b, device="H200", precision="highest")
    assert plain == tcgemm.explain(a, tcgemm.prepare(b.t()).t(), precision="highest")
    with pytest.raises(RuntimeError) as error:
        torch.ops.tcgemm.explain(a, b, terms_b=terms.new_empty(1))
    sizes = re.search(r"are (\d+) or (\d+); prepare", str(error.value)).groups()
    f16, bf16 = map(int, sizes)
    assert 1.0 < f16 / (4 * b.numel()) < 1.1 and 1.5 < bf16 / (4 * b.numel()) < 1.6
    for size, words in ((f16, "2 f16 terms"), (bf16, "3 bf16 terms")):
        p = with_terms(b.t(), terms.new_empty(size), words)
        for function in (tcgemm.explain, tcgemm.check_layout):
            text = function(a, p.t(), precision="highest")
            assert re.search(rf"\n  split-FP32 b .*its {words} are prepared", text)
            assert "are prepared" not in function(a, p.t(), precision="high")


# Transforms and graphs.


def test_transforms():
    p = tcgemm.prepare(W)

    def scalar(x, w):
        return tcgemm.linear(x, w, BIAS, activation="gelu").sin().sum()

    stack = torch.stack([X, -X])
    for transform in (
        lambda f: torch.func.grad(f)(X),
        lambda f: torch.func.jvp(f, (X,), (C @ W,)),
        lambda f: torch.func.jacrev(torch.func.grad(f))(X),
        lambda f: torch.func.hessian(f)(X),
        lambda f: torch.vmap(f)(stack),
        lambda f: torch.vmap(torch.func.grad(f))(stack),
        lambda f: torch.vmap(f, in_dims=1)(stack),
    ):
        torch.testing.assert_close(
            transform(lambda x: scalar(x, p)), transform(lambda x: scalar(x, W)), rtol=0, atol=0
        )


def test_vmap_is_one_call_with_the_parts():
    p, stack = tcgemm.prepare(W), torch.stack([X, -X])
    with Recorder(terms_of) as calls:
        torch.vmap(lambda x: tcgemm.mm(x, p.t(), activation="relu"))(stack)
    assert calls.rows == [("scaled_mm", p.terms)]
    with Recorder(terms_of) as calls:  # a weight for each example has none
        torch.vmap(lambda w: torch.ops.tcgemm.scaled_mm(X, w.t(), terms_b=p.terms))(
            torch.stack([W, -W])
        )
    assert calls.rows == [("matmul", None)]
    prepared = torch.vmap(torch.ops.tcgemm.prepare)(torch.stack([W, W]))
    assert prepared.shape == (2, 0)


class Seen(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in (tcgemm.linear, tcgemm.mm):
            assert isinstance(args[1], tcgemm.Prepared)
        return func(*args, **(kwargs or {}))


def test_function_modes_and_subclasses():
    class Tagged(torch.Tensor):
        pass

    p = tcgemm.prepare(W)
    for mode in (Seen, lambda: torch.device("meta")):
        with mode(), Recorder(terms_of) as calls:
            tcgemm.linear(X, p)
            tcgemm.mm(X, p.t(), scale_a=torch.ones((), device="cpu"))
        assert [terms is p.terms for _, terms in calls.rows] == [True, True]
    out = tcgemm.linear(X.as_subclass(Tagged), p)
    assert type(out) is Tagged and torch.equal(out.as_subclass(torch.Tensor), tcgemm.linear(X, W))


COMPILED = {name: FUNCTIONS[name] for name in ("linear with all", "mm with scales", "matmul")}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", COMPILED)
def test_compiled(name, dynamic):
    torch._dynamo.reset()
    function = COMPILED[name]
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for rows in (M, M + 3):
        x, w = torch.randn(M, K, requires_grad=True), W.clone().requires_grad_()
        if "all" not in name:  # whose residual has M rows
            x = torch.randn(rows, K, requires_grad=True)
        p = tcgemm.prepare(w)
        out, expected = compiled(x, p), function(x, w)
        torch.testing.assert_close(out, expected)
        grads = [torch.autograd.grad(result.sin().sum(), (x, w)) for result in (out, expected)]
        torch.testing.assert_close(*grads)


class Holder(torch.nn.Module):
    def __init__(self, prepared):
        super().__init__()
        self.prepared = prepared

    def forward(self, x):
        return tcgemm.mm(x, self.prepared.t())


@pytest.mark.parametrize("place", ["argument", "module"])
def test_a_compiled_function_notices_a_changed_weight(place):
    torch._dynamo.reset()
    w = W.clone()
    holder = Holder(tcgemm.prepare(w))
    function = tcgemm.linear if place == "argument" else holder
    graph = torch.compile(function, fullgraph=True, backend="aot_eager")

    def call():
        return graph(X, holder.prepared) if place == "argument" else graph(X)

    for _ in range(2):
        assert torch.equal(call(), tcgemm.linear(X, w))
    w.mul_(2)
    with pytest.raises(RuntimeError, match="is a Prepared whose weight was changed in place"):
        call()
    holder.prepared = tcgemm.prepare(w)
    assert torch.equal(call(), tcgemm.linear(X, w))


def test_fake_of_the_operator():
    """On a GPU the values decide the length."""
    with FakeTensorMode(shape_env=ShapeEnv()):
        terms = torch.ops.tcgemm.prepare(torch.empty(N, K, device="cuda"))
        assert terms.dtype is torch.uint8 and terms.device.type == "cuda" and terms.dim() == 1
        assert isinstance(terms.shape[0], torch.SymInt)
    for device in ("cpu", "meta"):
        assert torch.ops.tcgemm.prepare(torch.empty(N, K, device=device)).shape == (0,)


@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr", "_mkldnn"])
def test_only_strided_tensors_are_prepared(layout, capfd):
    w = torch.ones(4, 4)
    w = w.to_mkldnn() if layout == "_mkldnn" else w.to_sparse(layout=getattr(torch, layout))
    with pytest.raises(RuntimeError, match=f"tcgemm.prepare: w has the layout torch.{layout}"):
        tcgemm.prepare(w)
    assert capfd.readouterr().err == ""
