"""tcgemm.prepare on a GPU: the bits of products with and without it, whatever the data, and what it
costs; graphs, streams, devices, and the layers that prepare by themselves.

    x, w                     terms of w    what is multiplied
    normal                   f16           f16 terms
    rows far apart           f16           f16 terms
    elements far apart       bf16          bf16 terms (of x alone: w is split again), or f64
    few such rows, Inf, NaN  f16           f16 terms, and what needs checks again
"""

import copy
import re

import pytest
import torch
from torch.library import opcheck

import tcgemm

from support import cases, reference
from support.cases import BF16, F32, S32, waits_for_nothing

pytestmark = [pytest.mark.gpu, pytest.mark.sm90]

# Products of terms are for large results and long sums, of bf16 terms for longer ones still.
M, N, K, LONG = 1600, 1408, 1024, 2304
KINDS = ("normal", "rows", "elements", "few", "special")


def data(kind, rows, cols):
    """rows x cols of f32 on the GPU, of a kind of the table above."""
    x = torch.randn(rows, cols)
    if kind == "rows":
        x *= torch.exp2(torch.randint(-60, 61, (rows, 1)))
    if kind == "elements":
        x *= torch.exp2(torch.randint(-20, 21, (rows, cols)))
    if kind == "few":
        x[rows // 2 : rows // 2 + 2] *= torch.exp2(torch.randint(-20, 21, (2, cols)))
    if kind == "special":
        x[3, 5], x[rows // 3, 7], x[rows - 1, 0] = float("inf"), float("nan"), -float("inf")
    return x.cuda()


def way(x, b):
    """How explain says that x @ b is computed."""
    return re.search(r"\n  precision +highest: (.*)", tcgemm.explain(x, b)).group(1)


def assert_same(out, expected):
    """Every bit, NaN's as well."""
    assert out.shape == expected.shape and out.dtype == expected.dtype
    assert torch.equal(out.contiguous().view(S32), expected.contiguous().view(S32))


def assert_alike(x, w, p):
    """The same bits where both products are of 16-bit terms, else right results."""
    out, expected = tcgemm.mm(x, p.t()), tcgemm.mm(x, w.t())
    ways = way(x, p.t()), way(x, w.t())
    if ways[0] == ways[1] or all("f16 terms" in text for text in ways):
        assert_same(out, expected)
    else:
        reference.assert_close(out, x, w.t())
        reference.assert_close(expected, x, w.t())


@pytest.mark.parametrize("of_w", KINDS)
@pytest.mark.parametrize("of_x", KINDS)
@pytest.mark.parametrize("k", [K, LONG])
def test_the_same_bits_whatever_the_data(k, of_x, of_w):
    x, w = data(of_x, M, k), data(of_w, N, k)
    p = tcgemm.prepare(w)
    assert p.term_type == ("bf16" if of_w == "elements" else "f16")
    assert "terms" in way(x, w.t())
    if k == LONG or p.term_type == "f16":
        assert f"{p.term_type} terms are prepared" in tcgemm.explain(x, p.t())
    expected = tcgemm.linear(x, w)
    for _ in range(2):
        assert_same(tcgemm.linear(x, p), expected)
    special = "special" in (of_x, of_w)
    assert torch.isfinite(expected).all() != special
    if not special:
        reference.assert_close(expected, x, w.t(), classic=True)


@pytest.mark.parametrize("strides", [name for name in cases.STRIDES if "expanded" not in name])
def test_weights_of_any_strides(strides):
    w = cases.make(strides, N, K - 2, dtype=F32, device="cuda")
    x = data("normal", M, K - 2)
    p = tcgemm.prepare(w)
    assert_alike(x, w, p)
    out = cases.empty("transposed_odd", (M, N), dtype=F32, device="cuda")
    tcgemm.linear(x, p, out=out)
    reference.assert_close(out, x, w.t())


@pytest.mark.parametrize(
    ("m", "n", "k"),
    [
        *((1, N, K), (16, N, K), (M, 1, K), (M, 33, K), (5, 7, 3), (1, 1, 1)),
        *((M, N, 1), (M, N, 65), (M, N, 255), (M, N, 256), (513, 511, 257), (1023, 1025, 1027)),
    ],
)
def test_shapes(m, n, k):
    x, w = data("normal", m, k), data("normal", n, k)
    p = tcgemm.prepare(w)
    assert (p.term_type is None) == ("terms" not in way(data("normal", M, k), data("normal", k, N)))
    assert_alike(x, w, p)
    reference.assert_close(tcgemm.linear(x, p), x, w.t())


def test_empty_weights():
    x = torch.randn(4, 8, device="cuda")
    for shape in ((0, 8), (5, 0)):
        w = torch.randn(shape, device="cuda")
        p = tcgemm.prepare(w)
        assert p.term_type is None and p.nbytes == 0
        assert torch.equal(tcgemm.linear(x[:, : shape[1]], p), tcgemm.linear(x[:, : shape[1]], w))


def test_every_function_and_epilogue():
    x, w = data("normal", M, K), data("normal", N, K)
    p = tcgemm.prepare(w)
    bias, c = torch.randn(N, device="cuda"), torch.randn(M, N, device="cuda")
    scale = torch.rand(M, 1, device="cuda") + 0.5
    for call in (
        lambda w: tcgemm.linear(x, w, bias, activation="gelu"),
        lambda w: tcgemm.linear(x, w, residual=c, alpha=0.5, scale_a=scale),
        lambda w: tcgemm.linear(x.view(4, -1, K), w, bias, activation="silu"),
        lambda w: tcgemm.mm(x, w.t(), activation="relu", out=torch.empty_like(c)),
        lambda w: tcgemm.matmul(x.view(2, 5, -1, K), w.mT),
        lambda w: tcgemm.addmm(c, x, w.t(), beta=0.5, activation="gelu_tanh"),
        lambda w: tcgemm.mm(x, w.t(), amax=True)[0],
        lambda w: tcgemm.mm(x, w.t(), precision="high"),
        lambda w: tcgemm.mm(x, w.t(), out_dtype=BF16).float(),
    ):
        assert_same(call(p), call(w))
    for call in (  # small products, which may be others with terms than without
        lambda w: tcgemm.linear(x[0], w, bias),
        lambda w: tcgemm.matmul(x.view(8, -1, K).transpose(0, 1), w.mT),
    ):
        torch.testing.assert_close(call(p), call(w), rtol=1e-4, atol=1e-4)


def test_gradients_are_those_without_it():
    x, w = data("normal", M, K).requires_grad_(), data("normal", N, K).requires_grad_()
    p = tcgemm.prepare(w)
    bias = torch.randn(N, device="cuda", requires_grad=True)
    for activation in (None, "relu", "gelu"):
        results = []
        for weight in (p, w):
            out = tcgemm.linear(x, weight, bias, activation=activation)
            results.append((out, *torch.autograd.grad(out.sin().sum(), (x, w, bias))))
        for grad, expected in zip(*results, strict=True):
            assert_same(grad, expected)


# Time.


@pytest.mark.parametrize(("kind", "least"), [("normal", 1.0), ("elements", 1.5)])
def test_memory(kind, least):
    w = data(kind, 2048, 4096)
    tcgemm.prepare(w)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    p = tcgemm.prepare(w)
    growth = torch.cuda.memory_allocated() - before
    assert p.nbytes <= growth < p.nbytes + 2**21
    assert least * w.nbytes < p.nbytes < (least + 0.05) * w.nbytes
    assert torch.cuda.max_memory_allocated() - before < 2.6 * w.nbytes
    del p
    assert torch.cuda.memory_allocated() == before


def test_products_wait_for_nothing():
    x, w = data("normal", M, K), data("normal", N, K)
    p = tcgemm.prepare(w)
    assert waits_for_nothing(lambda: tcgemm.linear(x, p))


def test_other_streams_need_not_wait():
    """prepare has waited for the terms, whichever stream made them."""
    x, w = data("normal", M, K), data("normal", N, K)
    expected = tcgemm.linear(x, w)
    torch.cuda.synchronize()
    for _ in range(10):
        with torch.cuda.stream(torch.cuda.Stream()):
            p = tcgemm.prepare(w)
        with torch.cuda.stream(torch.cuda.Stream()):
            out = tcgemm.linear(x, p)
        torch.cuda.synchronize()
        assert_same(out, expected)


# Graphs.


@pytest.mark.parametrize("kind", KINDS)
def test_graphs_hold_the_parts(kind):
    x, w = data("normal", M, K), data(kind, N, K)
    p = tcgemm.prepare(w)
    graph, out = cases.graph_of(lambda: tcgemm.linear(x, p, activation="relu"))
    for of_x in KINDS:
        x.copy_(data(of_x, M, K))
        out.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        assert_same(out, tcgemm.linear(x, w, activation="relu"))


def test_nothing_is_prepared_while_a_graph_is_captured():
    x, w = data("normal", M, K), data("normal", N, K)
    layer = tcgemm.nn.Linear(K, N, bias=False, device="cuda").eval()
    with torch.no_grad():
        layer.weight.copy_(w)
        layer.prepare = False
        expected = layer(x)
        layer.prepare = True
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
            with pytest.raises(RuntimeError, match="inside the capture of a CUDA graph"):
                tcgemm.prepare(w)
            out = layer(x)
        assert layer.prepared is None
        graph.replay()
        torch.cuda.synchronize()
        assert_same(out, expected)


# Stale weights, devices, the operator.


def test_a_weight_that_changed_is_refused():
    x, w = data("normal", 64, K), data("normal", N, K)
    for change in (lambda w: w.mul_(2), lambda w: w.__setattr__("data", w.data.clone())):
        p = tcgemm.prepare(w)
        tcgemm.linear(x, p)
        change(w)
        with pytest.raises(RuntimeError, match="whose weight was changed in place, moved or ex"):
            tcgemm.linear(x, p)
    module = torch.nn.Linear(K, N, device="cuda")
    p = tcgemm.prepare(module.weight)
    module.cpu()
    assert not p.fresh


def test_copies_and_moves():
    x, w = data("normal", M, K), data("normal", N, K)
    p = tcgemm.prepare(w)
    expected = tcgemm.linear(x, p)
    other = copy.deepcopy(p)
    w.zero_()
    assert other.terms.data_ptr() != p.terms.data_ptr() and other.term_type == "f16"
    assert_same(tcgemm.linear(x, other), expected)
    on_cpu = other.to("cpu")
    assert on_cpu.term_type is None and on_cpu.nbytes == 0 and on_cpu.device.type == "cpu"
    reference.assert_close(tcgemm.linear(x.cpu(), on_cpu), x.cpu(), other.weight.cpu().t())
    assert_same(tcgemm.linear(x, on_cpu.to("cuda")), expected)
    with pytest.raises(RuntimeError, match="must be on one device"):
        tcgemm.linear(x.cpu(), other)


def test_the_operators_pass_opcheck():
    x, w = data("normal", 200, 160), data("normal", 96, 160).requires_grad_()
    opcheck(torch.ops.tcgemm.prepare.default, (w.detach(),))
    terms = torch.ops.tcgemm.prepare(w.detach())
    operands = (x, w.t(), *[None] * 8, terms)
    opcheck(torch.ops.tcgemm.scaled_mm.default, operands, {"activation": "gelu"})
    opcheck(torch.ops.tcgemm.scaled_mm_amax.default, operands)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_on_the_second_gpu():
    x, w = data("normal", M, K), data("elements", N, K)
    expected = tcgemm.linear(x, w).cpu()
    on_second = tcgemm.prepare(w.to("cuda:1"))
    assert on_second.packed.device == torch.device("cuda:1") and on_second.term_type == "bf16"
    assert_same(tcgemm.linear(x.to("cuda:1"), on_second).cpu(), expected)
    copy_on_second = tcgemm.prepare(w).to("cuda:1")
    assert_same(tcgemm.linear(x.to("cuda:1"), copy_on_second).cpu(), expected)
    layer = tcgemm.nn.Linear(K, N, device="cuda:1").eval()
    layer(x.to("cuda:1"))
    assert layer.prepared.terms.device == torch.device("cuda:1")
    assert torch.cuda.current_device() == 0
    with pytest.raises(RuntimeError, match="must be on one device"):
        tcgemm.linear(x, on_second)


# Layers.


@pytest.fixture
def layer():
    return tcgemm.nn.Linear(K, N, device="cuda", activation="gelu").eval()


@torch.no_grad()
def uses_parts(layer, x):
    out = layer(x)
    assert_same(out, tcgemm.linear(x, layer.weight, layer.bias, activation="gelu"))
    return layer.prepared is not None


def test_layers_keep_the_parts_of_their_weight(layer):
    x = data("normal", M, K)
    assert uses_parts(layer, x)
    prepared = layer.prepared
    assert prepared.term_type == "f16" and prepared.nbytes > layer.weight.nbytes
    assert uses_parts(layer, x) and layer.prepared is prepared
    with torch.no_grad():
        layer.weight.mul_(2)
    assert not uses_parts(layer, x) and uses_parts(layer, x)
    layer.load_state_dict(tcgemm.nn.Linear(K, N).state_dict())
    assert not uses_parts(layer, x) and uses_parts(layer, x)
    assert list(layer.state_dict()) == ["weight", "bias"]
    other = copy.deepcopy(layer)
    assert other.prepared is None and uses_parts(other, x)
    assert not uses_parts(layer.train(), x)
    assert uses_parts(layer.eval(), x)
    assert layer.cpu().prepared is None
    assert uses_parts(layer.cuda(), x)


def test_layers_give_the_memory_back(layer):
    x = data("normal", M, K)
    uses_parts(layer, x)
    torch.cuda.synchronize()
    before, nbytes = torch.cuda.memory_allocated(), layer.prepared.nbytes
    layer.train()
    assert before - torch.cuda.memory_allocated() >= nbytes


def test_layers_under_autocast_and_other_precisions(layer):
    x = data("normal", M, K)
    with torch.no_grad(), torch.autocast("cuda", dtype=BF16):
        assert layer(x).dtype is BF16
    torch.set_float32_matmul_precision("high")
    try:
        expected = tcgemm.linear(x, layer.weight, layer.bias, activation="gelu", precision="high")
        assert_same(layer(x), expected)
    finally:
        torch.set_float32_matmul_precision("highest")
    assert layer.prepared is None and uses_parts(layer, x)


def test_graphs_of_layers_hold_their_parts(layer):
    x = data("normal", M, K)
    with torch.no_grad():
        graph, out = cases.graph_of(lambda: layer(x))
    assert layer.prepared is not None
    expected = copy.deepcopy(layer)
    layer.train()  # what the graph reads stays
    noise = [torch.full_like(layer.weight, float("nan")) for _ in range(4)]
    for _ in range(2):
        x.copy_(data("normal", M, K))
        graph.replay()
        torch.cuda.synchronize()
        with torch.no_grad():
            assert_same(out, expected(x))
    del noise


def test_compiled_layers_use_their_parts_and_notice_changes(layer):
    torch._dynamo.reset()
    x = data("normal", M, K)
    uses_parts(layer, x)
    compiled, targets = cases.compiled(layer)
    with torch.no_grad():
        assert_same(compiled(x), layer(x))
        assert targets == ["tcgemm.scaled_mm.default"]
        layer.weight.mul_(2)
        expected = tcgemm.linear(x, layer.weight, layer.bias, activation="gelu")
        assert_same(compiled(x), expected)
        assert targets[1:] == ["tcgemm.linear.default"]


def test_swapped_models_of_float32():
    model = torch.nn.Sequential(torch.nn.Linear(K, N), torch.nn.ReLU(), torch.nn.Linear(N, 10))
    model = model.cuda().eval()
    x = data("normal", M, K)
    with torch.no_grad():
        expected = model.double()(x.double())
        model.float()
        report = tcgemm.swap_linear(model)
        assert report.swapped == ["0", "2"]
        for _ in range(2):
            torch.testing.assert_close(model(x).double(), expected, rtol=1e-4, atol=1e-4)
        assert model[0].prepared is not None
        report.undo()
        assert type(model[0]) is torch.nn.Linear
