"""With batch_invariant a row has the same bits alone as among 512 others.

Faults, and the tests that find them:

    k is divided by the number of rows           every dtype, with few columns and a long k
    a strip of rows has another place            the sums of more than 256 MB
    the gradient of a weight divides its rows    rows of zeros after the last
    float32 changes between float64 and terms    f32 highest, with 4096 columns
    the terms follow the values of other rows    f32 highest, where other rows are wide in range
    the factors of a row change places           8-bit operands with a row-major b and two scales
    the backward forgets it                      the gradients of layers
    a graph plans anew                           layers in a CUDA graph, and compiled
"""

import pytest
import torch
from torch import nn

import tcgemm

from support.cases import BF16, E4M3, F16, F32, F64, S8
from support.inductor import inductor
from support.reference import same_bits

pytestmark = [pytest.mark.gpu, pytest.mark.sm90]

ALL = 512
COUNTS = (*range(1, 33), 47, 63, 64, 65, 100, 127, 129, 200, 255, 257, 333, 384, 511, ALL)
SHAPES = ((64, 16384), (4096, 4096), (136, 8200))  # columns, k


def data(rows, columns, dtype):
    x = torch.randn(rows, columns, device="cuda")
    if dtype is S8:
        return (30 * x).clamp(-127, 127).to(S8)
    return x.to(dtype)


def scales(kind, rows, columns, k):
    """scale_a and scale_b of all rows."""
    draw = lambda *shape: torch.rand(shape, device="cuda") + 0.5  # noqa: E731
    blocks = -(-k // 128)
    return {
        "none": {},
        "tensor": {"scale_a": draw(), "scale_b": draw()},
        "row": {"scale_a": draw(rows, 1), "scale_b": draw(1, columns)},
        "blocks": {"scale_a": draw(rows, blocks), "scale_b": draw(blocks, -(-columns // 128))},
    }[kind]


def assert_invariant(product, a, counts=COUNTS):
    """Rows of products of fewer rows have the bits of the product of all rows. The last row is
    compared too, alone and as the last one of others."""
    whole = product(a, slice(0, len(a)))
    assert same_bits(product(a, slice(0, len(a))), whole)
    for count in counts:
        for rows in (slice(0, count), slice(len(a) - count, len(a))):
            assert same_bits(product(a[rows], rows), whole[rows]), (count, rows)


TYPES = {
    "bf16": (BF16, "none", {}),
    "bf16 to f32": (BF16, "none", {"out_dtype": F32}),
    "f16": (F16, "none", {}),
    "f16 in f16": (F16, "none", {"acc_dtype": F16}),
    "tf32": (F32, "none", {"precision": "high"}),
    "f32 as bf16": (F32, "none", {"precision": "medium"}),
    "f32": (F32, "none", {"precision": "highest"}),
    "f32 prepared": (F32, "none", {"precision": "prepared"}),
    "f64": (F64, "none", {}),
    "e4m3 tensor": (E4M3, "tensor", {}),
    "e4m3 row": (E4M3, "row", {"out_dtype": F32}),
    "e4m3 row fast": (E4M3, "row", {"out_dtype": F32, "precision": "fast"}),
    "e4m3 blocks": (E4M3, "blocks", {"out_dtype": F32}),
    "s8": (S8, "none", {}),
    "s8 row": (S8, "row", {"out_dtype": BF16}),
}


def check_products(name, columns, k, major):
    dtype, kind, options = TYPES[name]
    a, b = data(ALL, k, dtype), major(data(columns, k, dtype).t())
    options = options | scales(kind, ALL, columns, k)

    def product(rows, indices):
        keywords = options
        if options.get("scale_a") is not None and options["scale_a"].numel() > 1:
            keywords = options | {"scale_a": options["scale_a"][indices]}
        return tcgemm.mm(rows, b, batch_invariant=True, **keywords)

    assert_invariant(product, a)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", TYPES)
def test_products(name, shape):
    check_products(name, *shape, lambda b: b)


@pytest.mark.parametrize("name", ["bf16", "e4m3 row", "s8 row", "f32", "tf32"])
def test_products_with_a_row_major_b(name):
    for shape in ((512, 33), (64, 16384)):
        check_products(name, *shape, torch.Tensor.contiguous)


@pytest.mark.parametrize("activation", [None, "gelu", "gelu_tanh", "silu"])
@pytest.mark.parametrize("dtype", [BF16, F32], ids=str)
def test_terms_of_the_epilogue(activation, dtype):
    columns, k = 136, 8192
    a, b = data(ALL, k, dtype), data(columns, k, dtype).t() * 0.02
    bias, residual = data(1, columns, dtype)[0], data(ALL, columns, dtype)
    precision = {"precision": "high"} if dtype is F32 else {}

    def product(rows, indices):
        options = {"bias": bias, "residual": residual[indices], "activation": activation}
        return tcgemm.mm(rows, b, batch_invariant=True, **options, **precision)

    assert_invariant(product, a)


def test_other_rows_of_a_wide_range_do_not_matter():
    """Outside, they make the GPU multiply bfloat16 terms."""
    b = data(4096, 4096, F32).t()
    a = data(ALL, 4096, F32)
    wild = a.clone()
    wild[64:] *= torch.logspace(-30, 10, 4096, device="cuda")
    options = {"precision": "highest", "batch_invariant": True}
    assert same_bits(tcgemm.mm(wild, b, **options)[:64], tcgemm.mm(a, b, **options)[:64])
    p = tcgemm.prepare(b.t().contiguous())
    assert same_bits(tcgemm.linear(a, p, **options), tcgemm.mm(a, b, **options))


@pytest.mark.parametrize("precision", [None, "high"])
def test_sparse(precision):
    dtype = F32 if precision else BF16
    w = tcgemm.prune24(data(1024, 8192, dtype))
    w = tcgemm.compress24(w)

    def product(rows, _which):
        return tcgemm.linear(rows, w, precision=precision, batch_invariant=True)

    assert_invariant(product, data(ALL, 8192, dtype))


def test_batches():
    a, b = data(ALL, 16384, BF16), data(64, 16384, BF16).t()
    whole = tcgemm.mm(a, b, batch_invariant=True)
    for shape in ((2, 256), (8, 64), (ALL, 1)):
        batch = a.unflatten(0, shape)
        copies = b.expand(shape[0], *b.shape).contiguous()
        for operand in (b, copies):
            result = tcgemm.matmul(batch, operand, batch_invariant=True)
            assert same_bits(result.flatten(0, 1), whole)


@pytest.mark.parametrize("columns", [64, 1000])
def test_from_one_row_to_16384(columns):
    a, b = data(16384, 16384, BF16), data(columns, 16384, BF16).t()
    product = lambda rows, _which: tcgemm.mm(rows, b, batch_invariant=True)  # noqa: E731
    assert_invariant(product, a, counts=(1, 64, 1024))


def test_sums_of_slices_in_strips():
    """4096 bytes of sums for each row: 65536 rows at most in a product, and so three of them."""
    k = 32768
    few, b = data(300, k, BF16), data(64, k, BF16).t()
    scale_a, residual = torch.rand(300, 1, device="cuda") + 0.5, data(300, 64, BF16)
    repeat = lambda x: x.repeat(500, 1)[:140_001]  # noqa: E731
    options = {"batch_invariant": True, "alpha": 0.01, "amax": True, "scale_b": scale_a[0, 0]}

    def product(a, scale, other):
        return tcgemm.mm(a, b, scale_a=scale, residual=other, **options)

    one, amax = product(few, scale_a, residual)
    many = [repeat(x) for x in (few, scale_a, residual)]
    out, amax_of_all = product(*many)
    assert torch.equal(out.view(torch.int16), repeat(one).view(torch.int16))
    assert torch.equal(amax, amax_of_all)
    del many
    plan = tcgemm.explain(few.expand(467, 300, k), b.expand(467, k, 64), batch_invariant=True)
    assert plan.slices == 16 and plan.products == 3
    batch = tcgemm.bmm(few.expand(467, 300, k), b.expand(467, k, 64), batch_invariant=True)
    assert same_bits(batch, tcgemm.mm(few, b, batch_invariant=True).expand_as(batch))


def test_rows_of_zeros_do_not_change_the_gradient_of_a_weight():
    x, g = data(40_000, 64, BF16), data(40_000, 64, BF16)
    layer = tcgemm.nn.Linear(64, 64, dtype=BF16, device="cuda", batch_invariant=True)

    def gradient(rows):
        (grad,) = torch.autograd.grad(layer(x[:rows]), layer.weight, g[:rows])
        return grad

    x[32_768:] = 0
    expected = gradient(32_768)
    assert all(same_bits(gradient(rows), expected) for rows in (32_769, 40_000))


def test_the_context_is_the_argument():
    a, b = data(64, 32768, BF16), data(64, 32768, BF16).t()
    expected = tcgemm.mm(a, b, batch_invariant=True)
    outside = tcgemm.mm(a, b)
    with tcgemm.batch_invariant():
        assert same_bits(tcgemm.mm(a, b), expected)
        assert tcgemm.explain(a, b).slices == 16
    assert tcgemm.explain(a, b).slices == 32
    assert same_bits(tcgemm.mm(a, b), outside) and not same_bits(outside, expected)


K = 8192
LAYERS = {
    "Linear bf16": lambda: tcgemm.nn.Linear(K, 64, dtype=BF16, batch_invariant=True),
    "Linear gelu": lambda: tcgemm.nn.Linear(
        K, 64, dtype=BF16, activation="gelu", batch_invariant=True
    ),
    "Linear f32": lambda: tcgemm.nn.Linear(K, 1024, batch_invariant=True),
    "QuantLinear e4m3": lambda: quantised(E4M3, "row"),
    "QuantLinear int8": lambda: quantised(S8, "row"),
    "QuantLinear blocks": lambda: quantised(E4M3, "128x128"),
    "SparseLinear24": lambda: tcgemm.nn.SparseLinear24(K, 64, dtype=BF16, batch_invariant=True),
    "transposable": lambda: tcgemm.nn.SparseLinear24(
        K, 64, dtype=BF16, method="transposable", batch_invariant=True
    ),
}


def quantised(dtype, granularity):
    linear = nn.Linear(K, 64, dtype=BF16)
    return tcgemm.nn.QuantLinear.from_linear(linear, dtype, granularity, batch_invariant=True)


def layer_and_dtype(name):
    layer = LAYERS[name]().cuda()
    return layer, F32 if "f32" in name else BF16


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name):
    layer, dtype = layer_and_dtype(name)
    x = data(ALL, K, dtype)
    for mode in (layer.train, layer.eval):
        mode()
        with torch.no_grad():
            assert_invariant(lambda rows, _which: layer(rows), x)


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_of_layers(name):
    """The gradient of a row of x. Its k are the columns of the result, so these are many."""
    layer, dtype = layer_and_dtype(name)
    wide = {"Linear bf16": 16384, "Linear f32": 4096}.get(name, layer.out_features)
    if wide != layer.out_features:
        options = {"dtype": dtype, "batch_invariant": True}
        layer = tcgemm.nn.Linear(64, wide, **options).cuda()
    x = data(ALL, layer.in_features, dtype)
    g = data(ALL, layer.out_features, dtype)

    def gradient(rows, indices):
        rows = rows.clone().requires_grad_()
        (grad,) = torch.autograd.grad(layer(rows), rows, g[indices])
        return grad

    assert_invariant(gradient, x)


@pytest.mark.parametrize("name", ["Linear bf16", "Linear f32", "QuantLinear e4m3"])
def test_layers_in_cuda_graphs(name):
    layer, dtype = layer_and_dtype(name)
    layer.eval()
    x = data(ALL, K, dtype)
    with torch.no_grad():
        whole = layer(x)
        for count in (1, 16, 33, 200):
            rows = x[:count].clone()
            layer(rows)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                out = layer(rows)
            rows.copy_(x[-count:])
            graph.replay()
            assert same_bits(out, whole[-count:]), count


@inductor
@pytest.mark.parametrize("name", ["Linear bf16", "QuantLinear e4m3", "SparseLinear24"])
def test_compiled_layers(name):
    """Forward and backward, and with sizes that are symbols."""
    torch._dynamo.reset()
    layer, dtype = layer_and_dtype(name)
    x, g = data(ALL, K, dtype), data(ALL, layer.out_features, dtype)

    def results(call, rows, grad):
        rows = rows.clone().requires_grad_()
        out = call(rows)
        return out.detach(), *torch.autograd.grad(out, rows, grad)

    compiled = torch.compile(layer, dynamic=True)
    whole = results(layer, x, g)
    for count in (2, 16, 64, 200):
        for result, expected in zip(results(compiled, x[:count], g[:count]), whole, strict=True):
            assert same_bits(result, expected[:count]), count


@inductor
def test_a_compiled_function_in_the_context():
    torch._dynamo.reset()
    a, b = data(64, 65536, BF16), data(64, 65536, BF16).t()
    compiled = torch.compile(lambda a, b: tcgemm.mm(a, b))
    outside = compiled(a, b)
    with tcgemm.batch_invariant():
        assert same_bits(compiled(a, b), tcgemm.mm(a, b, batch_invariant=True))
    assert same_bits(compiled(a, b), outside)
