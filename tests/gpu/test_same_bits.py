"""Products that must have the same bits on a GPU: whatever the strides of out=, and whether a layer
has terms of its weight or not. tests/plan/test_same_bits.py compares the plans.
"""

from functools import partial

import pytest
import torch

import tcgemm

from support import cases
from support.cases import BF16, F16, F32, F64

pytestmark = pytest.mark.gpu

E4M3, E5M2, S8 = torch.float8_e4m3fn, torch.float8_e5m2, torch.int8
M, N = 200, 136


def operand(rows, cols, dtype, k_major):
    """rows x cols of normal data; cols are along k."""
    x = torch.randn(rows, cols, device="cuda")
    if dtype is S8:
        x = (30 * x).clamp(-127, 127)
    x = x.to(dtype)
    return x if k_major else x.t().contiguous().t()


def bits(x):
    return x.contiguous().view(torch.uint8)


def outs(m, n, dtype):
    """Empty results, by the name of their strides."""
    empty = lambda *shape: torch.empty(shape, dtype=dtype, device="cuda")  # noqa: E731
    return {
        "rows": empty(m, n),
        "rows of an odd pitch": empty(m, n + 3)[:, :n],
        "columns": empty(n, m).t(),
        "columns of an odd pitch": empty(n, m + 3)[:, :m].t(),
        "strided": empty(m, n, 2)[..., 0],
    }


def assert_one_result(call, m=M, n=N):
    expected = call()
    for name, out in outs(m, n, expected.dtype).items():
        call(out=out)
        assert torch.equal(bits(out), bits(expected)), f"{name}: other bits than without out="


def vector(*shape):
    return torch.rand(shape, device="cuda") + 0.3


SCALES = {
    "none": {},
    "alpha": {"alpha": 0.3},
    "tensor": {"scale_a": (), "scale_b": ()},
    "rows": {"scale_a": (M, 1), "scale_b": (1, N)},
    "rows and a tensor": {"scale_a": (M, 1), "scale_b": ()},
    "a tensor and columns": {"scale_a": (), "scale_b": (1, N)},
    "rows and alpha": {"scale_a": (M, 1), "alpha": 0.3},
    "columns and alpha": {"scale_b": (1, N), "alpha": 0.3},
    "all": {"scale_a": (M, 1), "scale_b": (1, N), "alpha": 0.3},
}
TYPES = {
    "bf16": (BF16, {}),
    "f16": (F16, {}),
    "f16 in f16": (F16, {"acc_dtype": F16}),
    "f64": (F64, {}),
    "f32": (F32, {"precision": "highest"}),
    "tf32": (F32, {"precision": "high"}),
    "f32 as bf16": (F32, {"precision": "medium"}),
    "e4m3": (E4M3, {"out_dtype": BF16}),
    "e4m3 fast": (E4M3, {"out_dtype": F32, "precision": "fast"}),
    "e5m2": (E5M2, {"out_dtype": E4M3}),
    "s8": (S8, {"out_dtype": BF16}),
}


def supported(types):
    """The dtype and the options; without a kernel of this GPU the test is skipped."""
    dtype, options = TYPES[types]
    a = torch.zeros(32, 32, device="cuda").to(dtype)
    try:
        tcgemm.mm(a, a.t(), **options)
    except RuntimeError as error:
        if "no kernel" not in str(error):
            raise
        pytest.skip("this GPU has no kernel for it")
    return dtype, options


@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("types", TYPES)
def test_strides_of_out(types, scales):
    dtype, options = supported(types)
    tensors = {
        name: vector(*value) if isinstance(value, tuple) else value
        for name, value in SCALES[scales].items()
    }
    for k in (128, 1000, 4096):
        for a_major, b_major in ((True, True), (True, False), (False, True), (False, False)):
            a = operand(M, k, dtype, a_major)
            b = operand(N, k, dtype, b_major).t()
            assert_one_result(partial(tcgemm.mm, a, b, **tensors, **options))


@pytest.mark.parametrize("types", ["bf16", "f64", "f32", "e4m3", "s8"])
@pytest.mark.parametrize("shape", [(M, N), (1, N), (M, 1)])
def test_addends(shape, types):
    dtype, options = supported(types)
    a, b = operand(M, 512, dtype, True), operand(N, 512, dtype, True).t()
    c, bias = vector(*shape), vector(N)
    for beta in (1.0, 0.7):
        for terms in ({}, {"alpha": 0.3}, {"bias": bias}, {"bias": bias, "activation": "gelu"}):
            assert_one_result(partial(tcgemm.addmm, c, a, b, beta=beta, **terms, **options))


@pytest.mark.parametrize("activation", (None, *cases.ACTIVATIONS))
@pytest.mark.parametrize("types", ["bf16", "f16", "e4m3", "s8"])
def test_epilogues(types, activation):
    """Rows that are vectors have another epilogue than the rest: it must round as the rest does."""
    dtype, options = supported(types)
    a, b = operand(M, 512, dtype, True), operand(N, 512, dtype, True).t()
    narrow = torch.float16 if dtype is F16 else BF16
    scale = 0.3 if dtype is not S8 else 1e-4
    terms = {
        "bias": vector(N).to(narrow),
        "residual": torch.randn(M, N, device="cuda").to(narrow),
        "scale_a": scale * vector(M, 1),
        "scale_b": vector(1, N),
        "alpha": scale,
    }
    choices = [
        ("bias",),
        ("residual",),
        ("bias", "residual"),
        ("alpha", "bias"),
        ("alpha", "residual"),
    ]
    choices += [("scale_a", "scale_b", "bias"), ("scale_a", "scale_b", "bias", "residual")]
    for names in choices:
        call = partial(tcgemm.mm, activation=activation, **{name: terms[name] for name in names})
        assert_one_result(partial(call, a, b, **options))


def test_block_scales():
    supported("e4m3")
    x, w = torch.randn(256, 1024, device="cuda"), torch.randn(384, 1024, device="cuda")
    a, scale_a = tcgemm.quantize(x, E4M3, "1x128")
    for granularity in ("128x128", "1x128"):
        b, scale_b = tcgemm.quantize(w, E4M3, granularity)
        scales = {"scale_a": scale_a, "scale_b": scale_b.t(), "out_dtype": BF16}
        assert_one_result(partial(tcgemm.mm, a, b.t(), **scales), 256, 384)


@pytest.mark.sm90
@pytest.mark.parametrize("m, n, k", [(2048, 1536, 4096), (512, 2048, 1024), (62, 2048, 1024)])
def test_float32_of_many_tiles(m, n, k):
    a, b = operand(m, k, F32, True), operand(n, k, F32, True).t()
    assert_one_result(partial(tcgemm.mm, a, b), m, n)
    assert_one_result(partial(tcgemm.mm, a, tcgemm.prepare(b.t()).t()), m, n)


# A layer. The first sizes are those whose plans with and without terms of the weight differ.

SIZES = [(40, 1093, 1920), (255, 576, 755), (62, 1024, 2048), (1, 4096, 4096), (512, 300, 256)]


def layer_and_input(rows, k, n, activation=None):
    layer = tcgemm.nn.Linear(k, n, device="cuda", activation=activation)
    return layer, torch.randn(rows, k, device="cuda")


def graph_result(layer, x):
    """The result of a CUDA graph of the layer."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad():
        with torch.cuda.stream(stream):
            tcgemm.mm(x, layer.weight.t())  # loads the kernels without preparing the layer
        torch.cuda.current_stream().wait_stream(stream)
        with torch.cuda.graph(graph):
            out = layer(x)
    graph.replay()
    torch.cuda.synchronize()
    return out


@pytest.mark.sm90
@pytest.mark.parametrize("activation", [None, "gelu"])
@pytest.mark.parametrize("rows, k, n", SIZES)
def test_every_call_of_a_layer(rows, k, n, activation):
    layer, x = layer_and_input(rows, k, n, activation)
    results = {"train": layer(x)}
    layer.eval()
    results["graph without terms"] = graph_result(layer, x)
    assert layer.prepared is None
    results["first"] = layer(x)
    assert layer.prepared is not None
    results["later"] = layer(x)
    with torch.no_grad():
        results["no_grad"] = layer(x)
    results["graph with terms"] = graph_result(layer, x)
    with torch.no_grad():
        layer.weight.mul_(1.0)
    for name in ("changed", "after the change", "prepared again"):
        results[name] = layer(x)
    assert layer.prepared.fresh
    with torch.inference_mode():
        results["inference mode"] = layer(x)
    for name, result in results.items():
        assert torch.equal(bits(result.detach()), bits(results["first"].detach())), name


@pytest.mark.sm90
@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
@pytest.mark.parametrize("rows, k, n", SIZES[:3])
def test_gradients_of_a_layer(rows, k, n, activation):
    layer, x = layer_and_input(rows, k, n, activation)
    x.requires_grad_()
    results = []
    for training in (True, False):
        layer.train(training)
        out = layer(x)
        assert (layer.prepared is None) == training
        results.append(torch.autograd.grad(out.sin().sum(), (x, layer.weight, layer.bias)))
    for grad, expected in zip(*results, strict=True):
        assert torch.equal(bits(grad), bits(expected))


@pytest.mark.sm90
def test_compiled_layer():
    layer, x = layer_and_input(*SIZES[2])
    layer.eval()
    with torch.no_grad():
        compiled = torch.compile(layer)
        before = compiled(x)
        expected = layer(x)
        assert torch.equal(bits(before), bits(expected))
        assert torch.equal(bits(compiled(x)), bits(expected))
