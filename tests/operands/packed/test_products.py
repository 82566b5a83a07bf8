"""Products with a PackedWeight are those with its dequantised weight, with every epilogue."""

import pytest
import torch
from torch._dynamo.testing import EagerAndRecordGraphs
from torch.library import opcheck
from torch.utils.flop_counter import FlopCounterMode

import tcgemm

from support.cases import DEVICES
from support.packed_weight_cases import CASES, IDS, Case, with_exact_elements
from support.reference import assert_close

DTYPES = (torch.float16, torch.bfloat16)
E4M3 = torch.float8_e4m3fn
N, K = 48, 256
EPILOGUES = {
    "plain": {},
    "gelu": {"activation": "gelu"},
    "gelu_tanh, alpha": {"activation": "gelu_tanh", "alpha": -0.5},
    "relu": {"activation": "relu"},
    "silu, residual": {"activation": "silu", "residual": (5, N)},
    "scale_out": {"scale_out": ()},
    "float32": {"out_dtype": torch.float32},
    "e4m3": {"out_dtype": E4M3, "scale_out": ()},
    "batch_invariant": {"batch_invariant": True},
}
FUNCTIONS = (tcgemm.linear, tcgemm.mm, tcgemm.matmul, tcgemm.addmm)


def options_of(name, device):
    """The options, with a tensor in place of each shape."""
    return {
        word: torch.rand(value, device=device) if isinstance(value, tuple) else value
        for word, value in EPILOGUES[name].items()
    }


def run(function, x, w, bias=None, **options):
    """A product by one of the four functions; w (N, K) is dense or packed."""
    if function is tcgemm.linear:
        return tcgemm.linear(x, w, bias, **options)
    if function is tcgemm.addmm:
        c = torch.ones(w.shape[0], device=x.device)
        return tcgemm.addmm(c, x, w.t(), beta=0.5, bias=bias, **options)
    return function(x, w.t(), bias=bias, **options)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_every_format(case, dtype, device):
    packed = with_exact_elements(case.pack(torch.randn(N, K, device=device)))
    x = torch.randn(5, K, device=device).to(dtype)
    bias = torch.randn(N, device=device)
    out = tcgemm.linear(x, packed, bias)
    assert (out.dtype, out.shape) == (dtype, (5, N))
    assert_close(out, x, packed.dequantize(dtype).t(), None, bias)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", EPILOGUES)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_every_epilogue(function, name, device):
    w = torch.randn(N, K, device=device).bfloat16()
    packed = with_exact_elements(tcgemm.pack_weight(w, "int4", 32))
    x, bias = torch.randn(5, K, device=device).bfloat16(), torch.randn(N, device=device)
    options = options_of(name, device)
    out = run(function, x, packed, bias, **options)
    checked = dict(options)
    checked.pop("batch_invariant", None)
    residual = checked.pop("residual", None)
    c = None
    if function is tcgemm.addmm:
        c, checked["beta"] = torch.ones(N, device=device), 0.5
    assert_close(out, x, packed.dequantize().t(), c, bias, residual, **checked)


@pytest.mark.parametrize("shape", [(K,), (1, K), (0, K), (2, 3, K), (2, 0, K)])
def test_shapes_of_linear_and_matmul(shape):
    packed = tcgemm.pack_weight(torch.randn(N, K).half(), "nf4")
    x = torch.randn(shape).half()
    dense = packed.dequantize()
    assert torch.equal(tcgemm.linear(x, packed), tcgemm.linear(x, dense))
    assert torch.equal(tcgemm.matmul(x, packed.t()), tcgemm.matmul(x, dense.t()))
    for transpose in (packed.T, packed.mT):
        assert torch.equal(tcgemm.matmul(x, transpose), tcgemm.linear(x, dense))


def test_a_weight_without_columns_or_rows():
    x = torch.randn(3, 0).half()
    assert (tcgemm.linear(x, tcgemm.pack_weight(torch.randn(5, 0), "int4", None)) == 0).all()
    empty = tcgemm.pack_weight(torch.randn(0, 64), "int4", 32)
    assert tcgemm.linear(torch.randn(3, 64).half(), empty).shape == (3, 0)


def test_out():
    packed = tcgemm.pack_weight(torch.randn(N, K).half(), "int4", 32)
    x, out = torch.randn(5, K).half(), torch.empty(5, N).half()
    assert tcgemm.mm(x, packed.t(), out=out) is out
    assert torch.equal(out, tcgemm.mm(x, packed.t()))
    with pytest.raises(RuntimeError, match="out= cannot be differentiated, but x needs a gradient"):
        tcgemm.linear(x.requires_grad_(), packed, out=out)


def test_autocast():
    packed = tcgemm.pack_weight(torch.randn(N, K), "int4", 32)
    x = torch.randn(5, K)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(tcgemm.linear(x, packed), tcgemm.linear(x.bfloat16(), packed))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("activation", [None, "relu", "gelu", "silu"])
@pytest.mark.parametrize(
    ("case", "scale"),
    [*((case, None) for case in CASES), (CASES[0], 0.25)],
    ids=[*IDS, "scale_out"],
)
def test_gradients_are_those_of_the_dequantised_weight(case, scale, activation, device):
    packed = case.pack(torch.randn(N, K, device=device).half() / 8)
    dense = packed.dequantize(torch.float16)
    x = torch.randn(2, 5, K, device=device).half().requires_grad_()
    bias = torch.randn(N, device=device, requires_grad=True)
    residual = torch.randn(2, 5, N, device=device).half().requires_grad_()
    g = torch.randn(2, 5, N, device=device).half()
    inputs = (x, bias, residual)
    options = {"residual": residual, "activation": activation}
    if scale is not None:
        options["scale_out"] = torch.tensor(scale, device=device)
    both = [
        torch.autograd.grad(tcgemm.linear(x, w, bias, **options), inputs, g)
        for w in (packed, dense)
    ]
    for result, expected in zip(*both, strict=True):
        assert result.dtype is expected.dtype
        assert torch.allclose(result.float(), expected.float(), rtol=2e-2, atol=2e-2)
        if device == "cpu":
            assert torch.equal(result, expected)


def test_gradient_of_c_and_second_derivatives():
    packed = tcgemm.pack_weight(torch.randn(N, K).half() / 8, "int4", 32)
    x, c = torch.randn(5, K).half().requires_grad_(), torch.randn(5, N, requires_grad=True)

    def both(w):
        out = tcgemm.addmm(c, x, w.t(), beta=0.5, alpha=2.0, activation="silu")
        first = torch.autograd.grad(out.float().square().sum(), (x, c), create_graph=True)
        return *first, *torch.autograd.grad(first[0].float().sum(), (x, c))

    for result, expected in zip(both(packed), both(packed.dequantize()), strict=True):
        assert torch.equal(result, expected)


def test_transforms_of_torch_func():
    packed = tcgemm.pack_weight(torch.randn(N, K).half() / 8, "nf4")
    dense, bias = packed.dequantize(), torch.randn(N)
    x, tangent = torch.randn(7, 5, K).half(), torch.randn(7, 5, K).half()

    def layer(w):
        return lambda x: tcgemm.linear(x, w, bias, activation="gelu")

    def loss(w):
        return lambda x: layer(w)(x).float().square().sum()

    def results(w):
        yield torch.vmap(layer(w))(x)
        yield torch.vmap(lambda x, b: tcgemm.linear(x, w, b), (1, None))(x, bias)
        yield torch.vmap(lambda x, b: tcgemm.linear(x, w, b))(x, torch.arange(7.0).expand(N, 7).T)
        yield torch.vmap(lambda r: tcgemm.linear(x[0], w, residual=r))(torch.ones(3, 5, N))
        yield torch.func.grad(loss(w))(x)
        yield torch.vmap(torch.func.grad(loss(w)))(x)
        yield from torch.func.jvp(layer(w), (x,), (tangent,))

    for result, expected in zip(results(packed), results(dense), strict=True):
        assert torch.equal(result, expected)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_functions(backend):
    packed = tcgemm.pack_weight(torch.randn(N, K).half() / 8, "int4", 32, zero_points=True)
    x, bias = torch.randn(5, K).half().requires_grad_(), torch.randn(N)

    def function(x, w):
        return tcgemm.linear(x, w, bias, activation="gelu") + tcgemm.mm(x, w.t())

    def results(call, w):
        out = call(x, w)
        return out, *torch.autograd.grad(out.float().square().sum(), x)

    compiled = torch.compile(function, fullgraph=True, backend=backend)
    for _ in range(2):  # before and after the first eager product
        pairs = zip(results(compiled, packed), results(function, packed), strict=True)
        assert all(torch.allclose(a.float(), b.float(), rtol=2e-3, atol=2e-3) for a, b in pairs)
    packed.scales.mul_(2)
    result, expected = compiled(x, packed), function(x, packed)
    assert torch.allclose(result.float(), expected.float(), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_amax_is_the_largest_magnitude_before_scale_out(function, device):
    packed = tcgemm.pack_weight(torch.randn(N, K, device=device).half(), "int4", 64)
    scale = torch.tensor(0.125, device=device)
    for rows in (1, 12, 70):
        x = torch.randn(rows, K, device=device).half()
        for options in ({}, {"activation": "relu", "residual": torch.ones(rows, N).to(x)}):
            wide = run(function, x, packed, out_dtype=torch.float32, **options)
            for terms in ({}, {"scale_out": scale}, {"scale_out": scale, "out_dtype": E4M3}):
                terms |= options
                out, amax = run(function, x, packed, amax=True, **terms)
                assert torch.equal(out.float(), run(function, x, packed, **terms).float())
                assert amax.dtype is torch.float32 and amax.shape == ()
                assert torch.equal(amax, wide.abs().max())


def test_amax_has_no_gradient_and_compiles():
    packed = tcgemm.pack_weight(torch.randn(N, K).half(), "int4", 64)
    x = torch.randn(5, K).half().requires_grad_()
    out, amax = tcgemm.linear(x, packed, activation="gelu", amax=True)
    assert out.requires_grad and not amax.requires_grad
    out.sum().backward()
    other = x.detach().clone().requires_grad_()
    tcgemm.linear(other, packed, activation="gelu").sum().backward()
    # Without amax the backward reads the argument of gelu in float16.
    torch.testing.assert_close(x.grad, other.grad, rtol=2**-8, atol=2**-4)
    compiled = torch.compile(
        lambda x: tcgemm.linear(x, packed, amax=True), fullgraph=True, backend="aot_eager"
    )
    for result, expected in zip(compiled(x), tcgemm.linear(x, packed, amax=True), strict=True):
        assert torch.equal(result, expected)
    batch = torch.ones(3, 5, K).half()
    results = torch.vmap(lambda x: tcgemm.matmul(x, packed.t(), amax=True))(batch)
    assert results[0].shape == (3, 5, N) and results[1].shape == (3,)


def test_a_graph_has_one_operator_for_a_weight_that_was_arranged():
    packed = tcgemm.pack_weight(torch.randn(N, K).half(), "int4", 32)
    packed.arranged()
    backend = EagerAndRecordGraphs()
    function = torch.compile(lambda x: tcgemm.linear(x, packed), fullgraph=True, backend=backend)
    function(torch.randn(5, K).half())
    (graph,) = backend.graphs
    calls = [node.target for node in graph.graph.nodes if node.op == "call_function"]
    assert calls == [torch.ops.tcgemm.packed_mm.default]


@pytest.mark.parametrize("case", CASES[:4], ids=IDS[:4])
def test_operator(case):
    packed = case.pack(torch.randn(16, 64 if case.group_size != 128 else 128))
    k = packed.shape[1]
    a = torch.randn(5, k).half().requires_grad_()
    c, bias, residual = torch.randn(16), torch.randn(16), torch.randn(5, 16)
    options = dict(packed.order._asdict(), activation="silu", alpha=0.5, beta=2.0)
    tensors = (a, packed.arranged(), c, bias, residual, torch.tensor(0.5))
    opcheck(torch.ops.tcgemm.packed_mm.default, tensors, options)
    plain = (a.detach(), *tensors[1:])
    opcheck(torch.ops.tcgemm.packed_mm.with_z, plain, options)
    out = torch.empty(5, 16).half()
    opcheck(torch.ops.tcgemm.packed_mm.out, plain, {**options, "out": out})
    opcheck(torch.ops.tcgemm.packed_mm_amax.default, tensors, options)


def test_flops_are_those_of_the_dense_product():
    packed = tcgemm.pack_weight(torch.randn(N, K), "int4", 32)
    with FlopCounterMode(display=False) as counter:
        tcgemm.linear(torch.randn(5, K).half(), packed)
    assert counter.get_total_flops() == 2 * 5 * N * K


def test_fake_and_meta_tensors():
    packed = tcgemm.pack_weight(torch.randn(N, K, device="meta").half(), "nvfp4")
    out = tcgemm.linear(torch.randn(5, K, device="meta").half(), packed, out_dtype=torch.float32)
    assert (out.device.type, out.shape, out.dtype) == ("meta", (5, N), torch.float32)
    with torch._subclasses.fake_tensor.FakeTensorMode():
        packed = Case("nf4", 64).pack(torch.randn(N, K).half())
        out = tcgemm.linear(torch.randn(5, K).half(), packed)
        assert type(out).__name__ == "FakeTensor" and out.shape == (5, N)


def test_a_jagged_input():
    packed = tcgemm.pack_weight(torch.randn(N, K).half(), "int4", 32)
    parts = [torch.randn(rows, K).half() for rows in (2, 5)]
    x = torch.nested.nested_tensor(parts, layout=torch.jagged)
    out = tcgemm.linear(x, packed)
    for result, part in zip(out.unbind(), parts, strict=True):
        assert torch.equal(result, tcgemm.linear(part, packed))


def test_explain_names_the_kernel_and_the_bytes():
    packed = tcgemm.pack_weight(torch.zeros(2048, 1024).bfloat16(), "int4", 128)
    for rows, ending in ((4, "_gemv"), (32, "_gemv"), (8192, "packed4")):
        x = torch.empty(rows, 1024, dtype=torch.bfloat16)
        plan = tcgemm.explain(x, packed.t(), device="H200")
        assert plan.kernel.endswith(ending) and "packed4" in plan.kernel
        assert "packed        b: int4, a scale for 128 of k" in plan
        assert tcgemm.check_layout(x, packed.t(), device="H200").kernel == plan.kernel
    sentence = r"tcgemm\.explain: b is a PackedWeight of shape \(2048, 1024\), which is \(N, K\), "
    sentence += r"but b must be \(K, N\); pass its \.t\(\)\."
    with pytest.raises(RuntimeError, match=sentence):
        tcgemm.explain(x, packed, device="H200")


def test_a_plan_copies_inputs_that_the_kernels_cannot_read():
    """The rows of x have to be vectors: a transposed x and one with an odd pitch are copied."""
    packed = tcgemm.pack_weight(torch.zeros(2048, 1024).bfloat16(), "int4", 128)
    for rows in (4, 32, 8192):
        transposed = torch.empty(1024, rows, dtype=torch.bfloat16).t()
        odd = torch.empty(rows, 1025, dtype=torch.bfloat16)[:, 1:]
        for x in (transposed, odd):
            plan = tcgemm.explain(x, packed.t(), device="H200")
            assert "_packed4" in plan.kernel and plan.copies == "a"
